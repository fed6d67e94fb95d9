//! Services that are started while the engine of their bus is away: they report it once and wait.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::Command;

use crate::support::Site;

/// The URL of a broker that is not there: its port refuses connections.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("kafka://{}", listener.local_addr().unwrap())
}

#[test]
fn services_wait_for_a_broker_that_is_away_and_report_it_once() {
    let site = Site::new();
    let away = nobody();
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["filter", "run"]] {
        let mut child = site.command(args).env("HELIO_URL", &away).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("kafka cannot reach its engine: "), "{args:?}: {line}");
        assert!(line.ends_with("and correct the URL\n"), "{args:?}: {line}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "{args:?}");
    }
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["filter", "run"]] {
        let url = ["--url", "kafka://127.0.0.1:1?bogus=1"];
        let ran = site.run(&[args, &url].concat());
        assert_eq!((ran.code, ran.err.lines().count()), (Some(2), 1), "{args:?}: {}", ran.err);
    }
}
