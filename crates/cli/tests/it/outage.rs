//! Services that are started while the engine of their bus is away: they report it once and wait.

use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Site, ended, helio, interrupt, line_of, run, told_by};

/// The URL of a broker that is not there: its port refuses connections.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("kafka://{}", listener.local_addr().unwrap())
}

/// The services, on a bus that is away. A bridge has it at either end.
fn services(site: &Site, away: &str) -> Vec<Vec<String>> {
    let (archive, cursor) = (site.path("archive"), site.path("cursor"));
    let forward = ["--otlp-http", "http://127.0.0.1:9", "--cursor", cursor.as_str()];
    let on_bus: [Vec<&str>; 3] = [
        vec!["log", "archive", &archive],
        [&["log", "forward"][..], &forward].concat(),
        vec!["registry", "--listen", "127.0.0.1:0"],
    ];
    let bridges = [[away, site.url.as_str()], [site.url.as_str(), away]]
        .map(|[from, to]| vec!["bridge", from, to, "--topics", "*"]);
    let on_bus = on_bus.map(|args| [&args[..], &["--url", away]].concat());
    let all = bridges.into_iter().chain(on_bus);
    all.map(|args| args.into_iter().map(str::to_owned).collect()).collect()
}

#[test]
fn services_wait_for_a_broker_that_is_away_and_report_it_once() {
    let site = Site::new();
    site.run(&["pub", "t", "1", "--profile", "event", "--json"]).ok();
    let away = nobody();
    let started = services(&site, &away).into_iter().map(|args| {
        let mut command = helio();
        command.args(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (args, command.spawn().unwrap())
    });
    let mut started: Vec<_> = started.collect();
    for (args, child) in &mut started {
        let line = told_by(child);
        assert!(line.starts_with("helio: kafka cannot reach its engine: "), "{args:?}: {line}");
        assert!(line.ends_with("or end this command and correct the URL"), "{args:?}: {line}");
    }
    for (args, mut child) in started {
        assert_eq!(interrupt(&mut child), Some(0), "{args:?}");
        let rest = child.wait_with_output().unwrap();
        let texts = [rest.stdout, rest.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(texts, ["", ""], "{args:?}");
    }
}

#[test]
fn what_no_wait_can_change_ends_a_service_at_once() {
    let site = Site::new();
    site.run(&["pub", "t", "1", "--profile", "event", "--json"]).ok();
    for url in ["kafka://127.0.0.1:1?bogus=1", "telegraph://127.0.0.1:1"] {
        for args in services(&site, url) {
            let ran = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!((ran.code, ran.err.lines().count()), (Some(2), 1), "{args:?}: {}", ran.err);
        }
    }
    // A migration, and an export that ends, report the outage as an error.
    let away = nobody();
    let once = run(&["bridge", &site.url, &away, "--topics", "*", "--once"]);
    assert_eq!(once.code, Some(1), "{}", once.err);
    assert!(once.err.contains("cannot reach its engine"), "{}", once.err);
}

#[test]
fn a_reader_that_waits_outlives_a_journal_in_creation() {
    let site = Site::new();
    // As the creator leaves it before it names the journal's own file.
    let folder = site.folder.path().join("half");
    std::fs::create_dir_all(folder.join("topics")).unwrap();
    let url = format!("journal:{}", folder.display());
    let mut reader = helio();
    reader.args(["sub", "t", "--wait", "--from", "earliest", "--count", "1", "--url", &url]);
    reader.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reader = reader.spawn().unwrap();
    let line = told_by(&mut reader);
    assert!(line.contains("the journal is not complete"), "{line}");
    run(&["pub", "t", "7", "--profile", "event", "--json", "--url", &url]).ok();
    assert!(line_of(&mut reader).contains('7'));
    assert_eq!(ended(&mut reader), Some(0));
}
