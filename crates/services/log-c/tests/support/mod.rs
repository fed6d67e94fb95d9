//! C and C++ programs against the header and the library as they are installed: they log to a
//! journal, and what is in it is read back.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use helio_bus::Bus;
use helio_logging::{
    Follow, Lanes, Level, Next, Reader, ReaderOptions, Record, Start, Style, Value,
};
use tempfile::TempDir;

pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// What Rust's own library wants of the system's (`rustc --print native-static-libs`).
const SYSTEM: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
/// How long a test waits for what must come: it only keeps a failed test from hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// Its compiler, with which the language is chosen whatever the file is called.
    pub(crate) fn compiler(self) -> Command {
        let (variable, usual, standard, language) = match self {
            Self::C => ("CC", "cc", "-std=c11", "c"),
            Self::Cpp => ("CXX", "c++", "-std=c++17", "c++"),
        };
        let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| usual.into()));
        command.args([standard, "-D_GNU_SOURCE", "-x", language]).args(WARNINGS);
        command.arg("-I").arg(Path::new(HERE).join("include"));
        command
    }

    /// Whether it is there; says so where it is not, and fails where nothing may be missing.
    pub(crate) fn is_there(self) -> bool {
        let there = self.compiler().arg("--version").output().is_ok();
        let required =
            std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
        assert!(there || !required, "there is no compiler of {self:?}");
        if !there {
            // Not by `eprintln!`, which a test that passes keeps to itself.
            let words = format!("skipped: there is no compiler of {self:?}\n");
            std::io::stderr().write_all(words.as_bytes()).unwrap();
        }
        there
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Linked {
    Statically,
    Dynamically,
}

/// The library that cargo has built for this test, beside it.
pub(crate) fn library(kind: &str) -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let name = format!("libhelio_log.{kind}");
    let places = beside.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    places
        .clone()
        .find(|library| library.exists())
        .unwrap_or_else(|| panic!("the library is at none of {:?}", places.collect::<Vec<_>>()))
}

/// Compiles a program and links it with the library that cargo has built beside this test.
pub(crate) fn build(source: &Path, language: Language, linked: Linked, into: &Path) {
    let mut compiler = language.compiler();
    compiler.arg(source).args(["-x", "none", "-o"]).arg(into);
    match linked {
        Linked::Statically => compiler.arg(library("a")),
        Linked::Dynamically => {
            let library = library("so");
            let folder = library.parent().unwrap().display();
            compiler.arg(&library).arg(format!("-Wl,-rpath,{folder}"))
        }
    };
    let output = compiler.args(SYSTEM).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source:?} as {language:?}:\n{words}");
}

/// A program, and a folder with its journal.
pub(crate) struct Program {
    pub(crate) program: PathBuf,
    pub(crate) folder: TempDir,
}

impl Program {
    /// The tests' own, compiled once for all; none where there is no compiler.
    pub(crate) fn of_tests(language: Language) -> Option<Self> {
        static IN_C: OnceLock<PathBuf> = OnceLock::new();
        static IN_CPP: OnceLock<PathBuf> = OnceLock::new();
        if !language.is_there() {
            return None;
        }
        let once = if language == Language::C { &IN_C } else { &IN_CPP };
        let program = once.get_or_init(|| {
            let name = format!("{}-program-{language:?}", env!("CARGO_CRATE_NAME"));
            let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            let source = Path::new(HERE).join("tests/programs/program.c");
            build(&source, language, Linked::Statically, &into);
            into
        });
        Some(Self { program: program.clone(), folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn url(&self) -> String {
        format!("journal:{}", self.folder.path().join("journal").display())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program).args(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} ended with {}: {words}", output.status);
        assert_eq!(words, "", "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it logs in a scenario, in the order of the lanes.
    pub(crate) fn scenario(&self, scenario: &str) -> Vec<Record> {
        self.run(&[scenario, &self.url()]);
        self.records()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let bus = Bus::connect(&self.url()).unwrap();
        let options = ReaderOptions::from(Start::Earliest).follow(Follow::No);
        let mut reader = Reader::open(&bus, &Lanes::default(), options).unwrap().records();
        let mut records = Vec::new();
        loop {
            match reader.next(HANG_TIMEOUT).unwrap() {
                Next::Record(record, producer) => {
                    assert_eq!(producer.name.to_string(), "CONTROL/DV11");
                    records.push(*record);
                }
                // What was shed, where a scenario logs more than there is room for.
                Next::News(_) => {}
                Next::End => return records,
                Next::TimeOver => panic!("nothing came within {HANG_TIMEOUT:?}"),
            }
        }
    }
}

/// Runs a scenario as C and as C++, and looks at what was logged.
pub(crate) fn in_both(scenario: &str, look: impl Fn(&[Record])) {
    for language in [Language::C, Language::Cpp] {
        if let Some(program) = Program::of_tests(language) {
            look(&program.scenario(scenario));
        }
    }
}

/// The messages of records.
pub(crate) fn messages(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.message()).collect()
}

/// The records of the scenarios `types` and `exit`.
pub(crate) fn look_at_types(records: &[Record]) {
    assert_eq!(
        messages(records),
        [
            "no arguments, 100 %",
            "-1 2 -3 4 -5 6 -7 8",
            "A -2 200 true",
            "1.5 0.25 4.000000",
            "array literal null",
            "18446744073709551615 0xffffffffffffffff",
            "abc|ab|    7|lo",
            "0x1000",
            "count 00ff",
            "not \u{fffd} UTF-8",
            "1234567891234567",
            "at 12.35 degrees",
        ]
    );
    let ints = |numbers: &[i64]| numbers.iter().map(|n| Value::Int(*n)).collect::<Vec<_>>();
    assert_eq!(records[1].arguments, ints(&[-1, 2, -3, 4, -5, 6, -7, 8]));
    assert_eq!(records[2].arguments[..3], ints(&[65, -2, 200]));
    assert_eq!(records[2].arguments[3], Value::Bool(true));
    assert_eq!(records[3].arguments, [1.5, 0.25, 4.0].map(Value::Double));
    assert_eq!(records[4].arguments[2], Value::Null);
    // What %.2s is for may be longer, and nothing behind that is looked at.
    assert_eq!(records[6].arguments[0], Value::from("abc"));
    assert_eq!(records[6].arguments[2], Value::from("ab"));
    assert_eq!(records[6].arguments[5], Value::from("lo"));
    assert_eq!(records[8].arguments[1], Value::Bytes(vec![0, 0xff]));
    assert_eq!(records[10].arguments.len(), 16);
    let data = [
        ("encoder".to_owned(), Value::Int(8_388_607)),
        ("state".to_owned(), Value::from("TRACKING")),
        ("load".to_owned(), Value::Double(0.5)),
        ("on".to_owned(), Value::Bool(true)),
    ];
    assert_eq!(records[11].data, data);
    for record in records {
        assert_eq!((record.logger.as_str(), record.level), ("types", Level::INFO));
        assert_eq!((record.host.as_str(), record.process.as_str()), ("dv11", "program"));
        assert!(record.site.file.ends_with("program.c") && record.site.line > 0, "{record:?}");
        assert_eq!((record.site.routine.as_str(), record.site.style), ("types", Style::Percent));
    }
    assert_eq!(records[11].site.template, "at %.2f degrees");
}
