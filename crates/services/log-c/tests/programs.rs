//! C and C++ programs against the header and the library as they are installed: they log to a
//! journal, and what is in it is read back.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

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

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// What Rust's own library wants of the system's (`rustc --print native-static-libs`).
const SYSTEM: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
/// A loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
}

impl Language {
    /// Its compiler, with which the language is chosen whatever the file is called.
    fn compiler(self) -> Command {
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
    fn is_there(self) -> bool {
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
enum Linked {
    Statically,
    Dynamically,
}

/// The library that cargo has built for this test, beside it.
fn library(kind: &str) -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let name = format!("libhelio_log.{kind}");
    let places = beside.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    places
        .clone()
        .find(|library| library.exists())
        .unwrap_or_else(|| panic!("the library is at none of {:?}", places.collect::<Vec<_>>()))
}

/// Compiles a program and links it with the library that cargo has built beside this test.
fn build(source: &Path, language: Language, linked: Linked, into: &Path) {
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
struct Program {
    program: PathBuf,
    folder: TempDir,
}

impl Program {
    /// The tests' own, compiled once for all; none where there is no compiler.
    fn of_tests(language: Language) -> Option<Self> {
        static IN_C: OnceLock<PathBuf> = OnceLock::new();
        static IN_CPP: OnceLock<PathBuf> = OnceLock::new();
        if !language.is_there() {
            return None;
        }
        let once = if language == Language::C { &IN_C } else { &IN_CPP };
        let program = once.get_or_init(|| {
            let name = format!("program-{language:?}");
            let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            let source = Path::new(HERE).join("tests/programs/program.c");
            build(&source, language, Linked::Statically, &into);
            into
        });
        Some(Self { program: program.clone(), folder: tempfile::tempdir().unwrap() })
    }

    fn url(&self) -> String {
        format!("journal:{}", self.folder.path().join("journal").display())
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program).args(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} ended with {}: {words}", output.status);
        assert_eq!(words, "", "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it logs in a scenario, in the order of the lanes.
    fn scenario(&self, scenario: &str) -> Vec<Record> {
        self.run(&[scenario, &self.url()]);
        self.records()
    }

    fn records(&self) -> Vec<Record> {
        let bus = Bus::connect(&self.url()).unwrap();
        let options = ReaderOptions::from(Start::Earliest).follow(Follow::No);
        let mut reader = Reader::open(&bus, &Lanes::default(), options).unwrap().records();
        let mut records = Vec::new();
        loop {
            match reader.next(PATIENCE).unwrap() {
                Next::Record(record, producer) => {
                    assert_eq!(producer.name.to_string(), "CONTROL/DV11");
                    records.push(*record);
                }
                // What was shed, where a scenario logs more than there is room for.
                Next::News(_) => {}
                Next::End => return records,
                Next::TimeOver => panic!("nothing came within {PATIENCE:?}"),
            }
        }
    }
}

/// Runs a scenario as C and as C++, and looks at what was logged.
fn in_both(scenario: &str, look: impl Fn(&[Record])) {
    for language in [Language::C, Language::Cpp] {
        if let Some(program) = Program::of_tests(language) {
            look(&program.scenario(scenario));
        }
    }
}

fn messages(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.message()).collect()
}

fn look_at_types(records: &[Record]) {
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

#[test]
fn every_type_arrives_as_what_it_is() {
    in_both("types", look_at_types);
}

#[test]
fn who_ends_without_closing_has_logged_all_the_same() {
    in_both("exit", look_at_types);
}

#[test]
fn what_is_not_enabled_is_not_evaluated_and_levels_and_audiences_are_kept() {
    in_both("levels", |records| {
        let levels: Vec<u8> = records
            .iter()
            .filter(|record| record.message().starts_with("level "))
            .map(|record| record.level.number())
            .collect();
        assert_eq!(levels.len(), 4, "{records:?}");
        assert!([8, 9, 10, 11].iter().all(|level| levels.contains(level)));
        let found = |text: &str| records.iter().find(|record| record.message() == text).unwrap();
        assert_eq!(found("1").level, Level::TRACE);
        assert_eq!(found("for two").audiences.names, ["Operator", "SciLog"]);
        assert!(found("for everyone").audiences.everyone);
        assert!(found("level 8").audiences.is_empty());
        assert_eq!(records.len(), 1 + 4 + 2);
    });
}

#[test]
fn messages_of_others_keep_their_places() {
    in_both("emit", |records| {
        let [bare, old] = records else { panic!("{records:?}") };
        let (old, bare) = if old.level == Level::WARNING { (old, bare) } else { (bare, old) };
        assert_eq!(old.message(), "100 % is %s");
        let Record { site, data, .. } = old;
        assert_eq!((site.file.as_str(), site.line, site.routine.as_str()), ("old.c", 12, "old"));
        assert_eq!(data[0], ("n".to_owned(), Value::Int(7)));
        assert_eq!((data[1].0.as_str(), &data[1].1), ("text", &Value::from("x")));
        assert_eq!((bare.message().as_str(), bare.site.line), ("bare", 0));
    });
}

#[test]
fn of_what_threads_log_nothing_is_lost_uncounted() {
    for language in [Language::C, Language::Cpp] {
        let Some(program) = Program::of_tests(language) else { continue };
        let published: usize = program.run(&["threads", &program.url()]).trim().parse().unwrap();
        let mut next = std::collections::HashMap::<(String, Level), i64>::new();
        let records: Vec<_> = program.records();
        assert_eq!(records.len(), published);
        for record in records {
            let Value::Int(n) = record.arguments[0] else { panic!("{record:?}") };
            let before = next.insert((record.logger.clone(), record.level), n);
            assert!(before.is_none_or(|before| before < n), "{record:?}");
        }
        assert_eq!(next.len(), 8);
    }
}

#[test]
fn what_is_wrong_is_an_error() {
    in_both("wrong", |records| {
        let [record] = records else { panic!("{records:?}") };
        assert_eq!(
            (record.message().as_str(), &record.arguments[..]),
            ("null", &[Value::Null][..])
        );
    });
}

#[test]
fn a_fork_logs_nothing_and_disturbs_nobody() {
    in_both("fork", |records| assert_eq!(messages(records), ["before", "behind"]));
}

#[test]
fn strings_of_cpp_are_texts_also_where_they_are_made_in_the_line() {
    let Some(program) = Program::of_tests(Language::Cpp) else { return };
    let records = program.scenario("cpp");
    assert_eq!(
        messages(&records),
        [
            "text iew true 1",
            "this text, which is longer than a string keeps in itself, is made in place",
            "a is made in place",
            "4"
        ]
    );
    assert_eq!(records[1].data[0].1, Value::from("data is made in place"));
    assert_eq!(records[1].data[1].1, Value::Null);
    assert_eq!(records[2].site.routine, "in_template");
}

#[test]
fn a_message_that_does_not_go_with_its_arguments_is_not_compiled() {
    for language in [Language::C, Language::Cpp] {
        for (line, fits) in [
            ("HELIO_LOG(l, HELIO_INFO, \"%d of %s\", 1, \"a\");", true),
            ("HELIO_LOG(l, HELIO_INFO, \"%s\", 1);", false),
            ("HELIO_LOG(l, HELIO_INFO, \"%d %d\", 1);", false),
            ("HELIO_LOG_WITH(l, HELIO_INFO, (HELIO_DATA(\"n\", 1)), \"%d\", \"a\");", false),
            ("const char *text = \"a\"; HELIO_LOG(l, HELIO_INFO, text);", false),
        ] {
            if !language.is_there() {
                return;
            }
            let folder = tempfile::tempdir().unwrap();
            let source = folder.path().join("line");
            let text = format!(
                "#include \"helio_log.h\"\nvoid f(const helio_logger *l);\n\
                 void f(const helio_logger *l) {{ {line} }}\n"
            );
            std::fs::write(&source, text).unwrap();
            let output = language.compiler().arg("-fsyntax-only").arg(&source).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), fits, "{line} as {language:?}: {words}");
        }
    }
}

#[test]
fn the_example_of_the_documentation_runs_with_either_library() {
    let page = std::fs::read_to_string(Path::new(HERE).join("../../../docs/logging.md")).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let (example, _) = rest.split_once("```\n").unwrap();
    for (language, linked) in
        [(Language::C, Linked::Dynamically), (Language::Cpp, Linked::Statically)]
    {
        if !language.is_there() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("example.c");
        std::fs::write(&source, example).unwrap();
        let program = Program { program: folder.path().join("example"), folder };
        build(&source, language, linked, &program.program);
        program.run(&[&program.url()]);
        let records = program.records();
        let mut messages = messages(&records);
        messages.sort();
        assert_eq!(
            messages,
            ["axis azimuth is 0.2 degrees off", "moved", "stopped at the limit switch"]
        );
        let moved = records.iter().find(|record| record.message() == "moved").unwrap();
        assert_eq!(moved.data[0], ("encoder".to_owned(), Value::Int(8_388_607)));
    }
}
