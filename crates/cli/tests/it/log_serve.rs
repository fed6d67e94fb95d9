//! `log serve`: records from sockets to the bus, by way of the program.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::Child;

use crate::support::{Site, ended, interrupt, line_of};
use serde_json::{Value, json};

/// A running service, and where its edges are.
struct Serving {
    child: Child,
    begun: Value,
}

impl Serving {
    fn start(site: &Site, args: &[&str]) -> Self {
        let mut child = site.start(&[&["log", "serve", "--json"], args].concat());
        let line = line_of(&mut child);
        assert!(!line.is_empty(), "{:?}", child.wait_with_output());
        Self { child, begun: serde_json::from_str(&line).unwrap() }
    }

    fn address(&self, place: usize) -> String {
        self.begun["listening"][place]["address"].as_str().unwrap().to_owned()
    }

    /// Ends it as Ctrl-C does, and gives its account.
    fn end(mut self) -> Value {
        assert_eq!(interrupt(&mut self.child), Some(0));
        let account: Value = serde_json::from_str(&line_of(&mut self.child)).unwrap();
        account["account"].clone()
    }
}

/// What was received is what was published, kept or dropped.
fn adds_up(account: &Value) {
    let count = |name: &str| account[name].as_u64().unwrap();
    let dropped = account["dropped"].as_object().unwrap().values();
    let dropped: u64 = dropped.map(|count| count.as_u64().unwrap()).sum();
    let came = count("received") + count("own") + count("inherited");
    assert_eq!(came, count("published") + count("waiting") + dropped, "{account}");
}

fn tail(site: &Site) -> Vec<Value> {
    site.run(&["log", "tail", "--no-follow", "--json"]).lines()
}

#[test]
fn what_listens_where_is_said_and_each_record_is_accounted_for() {
    let site = Site::new();
    let socket = site.path("log");
    let all = "127.0.0.1:0";
    let ways = ["--syslog-udp", all, "--syslog-tcp", all, "--json-tcp", all];
    let serving = Serving::start(&site, &[&ways[..], &["--syslog-unix", &socket]].concat());
    let listening = serving.begun["listening"].as_array().unwrap();
    let kinds: Vec<_> = listening.iter().map(|one| [&one["format"], &one["via"]]).collect();
    let expected =
        json!([["syslog", "udp"], ["syslog", "tcp"], ["json", "tcp"], ["syslog", "unix-datagram"]]);
    assert_eq!(json!(kinds), expected);
    assert_eq!(serving.begun["bus"], site.url);
    assert!(listening[..3].iter().all(|one| !one["address"].as_str().unwrap().ends_with(":0")));

    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.send_to(b"<12>mount: by udp", serving.address(0)).unwrap();
    from.send_to(b"nothing", serving.address(0)).unwrap();
    TcpStream::connect(serving.address(1)).unwrap().write_all(b"<12>mount: by tcp\n").unwrap();
    let line = b"{\"time\":\"2026-11-21T03:00:00Z\",\"level\":\"ALERT\",\"message\":\"by json\"}";
    TcpStream::connect(serving.address(2)).unwrap().write_all(line).unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"<12>mount: by log", &socket).unwrap();
    let account = serving.end();
    adds_up(&account);
    assert_eq!((&account["received"], &account["published"]), (&json!(5), &json!(5)));
    assert_eq!((&account["own"], &account["dropped"]["malformed"]), (&json!(1), &json!(1)));
    assert_eq!(account["senders"][0]["sender"], "127.0.0.1");

    let records = tail(&site);
    let mut texts: Vec<_> = records.iter().map(|one| one["message"].as_str().unwrap()).collect();
    texts.sort_unstable();
    assert!(texts[0].starts_with("1 messages of 127.0.0.1 dropped: 1 malformed"), "{texts:?}");
    assert_eq!(texts[1..], ["by json", "mount: by log", "mount: by tcp", "mount: by udp"]);
    assert!(
        records.iter().all(|one| one["logger"] == "helio/log/serve" || one["observed"].is_string())
    );
}

#[test]
fn people_read_what_listens_and_what_became_of_all() {
    let site = Site::new();
    let mut child = site.start(&["log", "serve", "--syslog-udp", "127.0.0.1:0"]);
    let line = line_of(&mut child);
    let address = line.strip_prefix("receives syslog at udp ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(line_of(&mut child), format!("publishes on {}", site.url));
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.send_to(b"nothing", address).unwrap();
    assert_eq!(interrupt(&mut child), Some(0));
    assert_eq!(line_of(&mut child), "received 1, told 1: published 1, 1 dropped: 1 malformed");
    assert_eq!(line_of(&mut child), "  127.0.0.1: received 1, 1 dropped: 1 malformed");
}

#[test]
fn standard_input_is_read_to_its_end_which_is_the_services() {
    let site = Site::new();
    let lines = r#"<Log>
        <Info TimeStamp="2026-11-21T03:00:00.123" SourceObject="a"><![CDATA[one]]></Info>
        <Error TimeStamp="2026-11-21T03:00:01.123" SourceObject="a"><![CDATA[two]]></Error></Log>"#;
    let ran =
        site.run_with(&["log", "serve", "--input", "acs", "--json"], lines.as_bytes()).lines();
    assert_eq!(ran[0]["listening"][0], json!({"format": "acs", "via": "input", "address": "-"}));
    adds_up(&ran[1]["account"]);
    assert_eq!(ran[1]["account"]["published"], 2);
    let texts: Vec<_> = tail(&site).iter().map(|one| one["message"].clone()).collect();
    assert_eq!(json!(texts), json!(["one", "two"]));
    assert_eq!(tail(&site)[0]["producer"], "standard input");
}

#[test]
fn it_goes_on_where_one_was_killed() {
    let site = Site::new();
    let socket = site.path("log");
    let args = ["--syslog-unix", socket.as_str(), "--producer", "log-serve"];
    let first = Serving::start(&site, &args);
    let sender = UnixDatagram::unbound().unwrap();
    for n in 0..1_000 {
        sender.send_to(format!("<12>a: {n}").as_bytes(), &socket).unwrap();
    }
    let mut child = first.child;
    child.kill().unwrap();
    assert_eq!(ended(&mut child), None);
    assert!(sender.send_to(b"<12>a: to nobody", &socket).is_err());

    let second = Serving::start(&site, &args);
    sender.send_to(b"<12>a: again", &socket).unwrap();
    let account = second.end();
    adds_up(&account);
    assert_eq!((&account["received"], &account["published"]), (&json!(1), &json!(1)));
    // Each record of the first one is there whole, once, in its order, or is not there.
    let records = tail(&site);
    let texts: Vec<_> = records.iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(texts.last(), Some(&"a: again"));
    let kept = texts.len() - 1;
    let expected: Vec<_> = (0..kept).map(|n| format!("a: {n}")).collect();
    assert_eq!(texts[..kept], expected);
}

#[test]
fn what_cannot_be_is_said() {
    let site = Site::new();
    let ran = site.run(&["log", "serve"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("nothing to take records from; give --syslog-udp"), "{}", ran.err);
    let ran = site.run(&["log", "serve", "--syslog-udp", "nowhere"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cannot listen at udp nowhere: "), "{}", ran.err);
    let used = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let ran = site.run(&["log", "serve", "--syslog-udp", &address]);
    assert!(ran.err.contains("in use"), "{}", ran.err);
}

#[test]
fn limits_are_those_of_the_command_line() {
    let site = Site::new();
    let lines: String = (0..100).map(|n| format!("<15>a: {n}\n")).collect();
    let long = format!("<15>a: {}\n", "x".repeat(2_000));
    let rate = ["--burst", "10", "--rate", "1e-9"];
    let serving = Serving::start(&site, &[&["--syslog-tcp", "127.0.0.1:0"], &rate[..]].concat());
    TcpStream::connect(serving.address(0)).unwrap().write_all(lines.as_bytes()).unwrap();
    assert_eq!(serving.end()["dropped"]["rate"], 90);
    // What comes by standard input has no rate: it waits.
    let args = [&["log", "serve", "--input", "syslog", "--json"], &rate[..]].concat();
    let ran = site.run_with(&args, lines.as_bytes()).lines();
    assert_eq!(
        (&ran[1]["account"]["published"], &ran[1]["account"]["own"]),
        (&json!(100), &json!(0))
    );
    let args = ["log", "serve", "--input", "syslog", "--max-record", "1k", "--json"];
    let ran = site.run_with(&args, long.as_bytes()).lines();
    assert_eq!(ran[1]["account"]["dropped"]["too_large"], 1);
    let args = ["log", "serve", "--input", "syslog", "--syslog-offset", "+02:00"];
    site.run_with(&args, b"<15>2026-11-21T03:00:00 dv11 a: noon").ok();
    let noon = tail(&site).into_iter().find(|one| one["message"] == "noon").unwrap();
    assert_eq!(noon["time"], "2026-11-21T01:00:00.000000000Z");
}
