//! Programs that end, fork or log from many threads, and the documentation's example.

use std::path::Path;

use helio_logging::{Level, Value};

use crate::support::{HERE, Language, Linked, Program, build, in_both, look_at_types, messages};

#[test]
fn who_ends_without_closing_has_logged_all_the_same() {
    in_both("exit", look_at_types);
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
fn a_fork_logs_nothing_and_disturbs_nobody() {
    in_both("fork", |records| assert_eq!(messages(records), ["before", "behind"]));
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
