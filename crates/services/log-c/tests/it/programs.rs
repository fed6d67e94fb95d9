//! What C and C++ programs log, and what does not compile.

use std::path::Path;

use helio_logging::{Level, Record, Value};

use crate::support::{HERE, Language, Program, in_both, library, look_at_types, messages};

#[test]
fn every_type_arrives_as_what_it_is() {
    in_both("types", look_at_types);
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

/// The names that C programs link against.
const SYMBOLS: &str = "helio_log_close helio_log_emit helio_log_flush helio_log_level \
                       helio_log_logger helio_log_read_figures helio_log_record \
                       helio_log_set_level helio_log_start helio_log_to helio_log_trouble";

#[test]
fn the_names_of_the_library_and_of_its_header_stay_as_they_are() {
    let library = std::fs::read(library("so")).unwrap();
    for name in SYMBOLS.split(' ') {
        let symbol = [b"\0", name.as_bytes(), b"\0"].concat();
        assert!(library.windows(symbol.len()).any(|bytes| bytes == symbol), "{name}");
    }
    let header = std::fs::read_to_string(Path::new(HERE).join("include/helio_log.h")).unwrap();
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    // Types, numbers and functions as they are; of what is behind them, macros for instance, the
    // names.
    let (declared, rest) = code.split_once("#ifdef __cplusplus\n}\n#endif\n").unwrap();
    let lines: Vec<&str> = declared.lines().filter(|line| !line.trim().is_empty()).collect();
    let ours = format!("{}\n{}\n", lines.join("\n"), public_names(rest).join("\n"));
    let golden = Path::new(HERE).join("tests/golden/helio_log.names");
    if std::env::var_os("HELIO_GOLDEN").is_some() {
        std::fs::write(&golden, &ours).unwrap();
    }
    assert_eq!(ours, std::fs::read_to_string(golden).unwrap());
}

/// The words that begin as the library's names do, but for those that are its own affair.
fn public_names(code: &str) -> Vec<&str> {
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_public = |word: &&str| {
        let is_ours = word.starts_with("helio_") || word.starts_with("HELIO_");
        is_ours && !word.ends_with('_') && !word.starts_with("HELIO_LOG_EACH_")
    };
    let mut names: Vec<&str> = words.filter(is_public).collect();
    names.sort_unstable();
    names.dedup();
    names
}
