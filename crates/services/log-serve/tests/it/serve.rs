//! The edges as senders find them: formats, limits, wrong input, a bus that is away.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use helio_bus::Bus;
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_log_serve::{Endpoint, Format, Peer, Rate, ServeError, Server, Via};
use helio_logging::{Audiences, Level, Value};

const XML: &[u8] = br#"<Warning TimeStamp="2026-11-21T03:00:00.123" SourceObject="CONTROL/DV11"
    Host="dv11" Audience="Operator"><![CDATA[axis is off]]></Warning>"#;
const JSON: &[u8] = br#"{"time":"2026-11-21T03:00:00Z","level":"ERROR","logger":"a","message":"b",
    "producer":"CONTROL","sequence":41}"#;

#[test]
fn each_format_comes_by_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bus = bus();
    let mut server = Server::start(bus.clone(), options()).unwrap();
    let by_udp = listen(&mut server, Format::Syslog, udp());
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let by_unix = listen(&mut server, Format::Syslog, Via::Unix(path("stream")));
    let by_log = listen(&mut server, Format::Syslog, Via::UnixDatagram(path("log")));
    let acs = listen(&mut server, Format::Acs, tcp());
    let json = listen(&mut server, Format::Json, tcp());
    let json_udp = listen(&mut server, Format::Json, udp());

    send_udp(&by_udp, &[b"<29>1 2026-11-21T03:00:00Z gas01 ntpd 812 - - one"]);
    send_tcp(&by_tcp, b"13 <29>ntpd: two<29>ntpd: three\n<29>ntpd: four");
    send_unix(&by_unix, b"<29>ntpd: five\n");
    send_unix_datagram(&by_log, b"<29>Nov 22 19:00:00 ntpd[812]: six");
    send_tcp(&acs, XML);
    let line: Vec<u8> = JSON.iter().copied().filter(|byte| *byte != b'\n').collect();
    send_tcp(&json, &[&line[..], b"\n", &line, b"\n"].concat());
    send_udp(&json_udp, &[&line]);
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.published, account.own), (10, 10, 0), "{account:?}");
    let peers: Vec<_> =
        account.senders.iter().map(|one| (one.peer.unwrap(), one.received)).collect();
    let user = Peer::User(rustix::process::getuid().as_raw());
    let here = Peer::Ip([127, 0, 0, 1].into());
    assert_eq!(peers, [(here, 8), (user, 1), (Peer::Local, 1)]);

    let (records, _) = by_origin(&bus);
    let mut texts = messages(&records);
    texts.sort();
    let heard = ["ntpd: five", "ntpd: four", "ntpd: three", "ntpd: two", "one", "six"];
    assert_eq!(texts, [&["axis is off", "b", "b", "b"][..], &heard].concat());
    let of = |text: &str| records.iter().find(|record| record.message().ends_with(text)).unwrap();
    let one = of("one");
    let time = "2026-11-21T03:00:00Z".parse().unwrap();
    assert_eq!((one.time, one.host.as_str()), (time, "gas01"));
    assert!(one.observed.unwrap() > one.time);
    assert_eq!((one.producer.as_str(), of("four").host.as_str()), ("127.0.0.1", "127.0.0.1"));
    assert_eq!((of("six").logger.as_str(), of("six").producer.as_str()), ("ntpd", "local"));
    let off = of("axis is off");
    assert_eq!((off.level, &off.audiences), (Level::WARNING, &Audiences::of(["Operator"])));
    let b = of("b");
    assert_eq!(
        (b.producer.as_str(), b.data.clone()),
        ("CONTROL", vec![("sequence".to_owned(), Value::Int(41))])
    );
    assert!(!path("stream").exists() && !path("log").exists());
}

#[test]
fn what_comes_before_the_bus_is_there_is_published_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("disk");
    // The disk is not mounted yet.
    std::fs::write(&place, "").unwrap();
    let url = format!("journal:{}", place.join("journal").display());
    let mut server = Server::connect(Bus::builder(), &url, options()).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    send_tcp(&by_tcp, b"<29>ntpd: one\n");
    wait_until(|| server.statistics().received == 1);
    assert!(server.trouble().is_some_and(|told| told.contains("journal")));
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    wait_until(|| server.statistics().published == 1);
    assert_eq!(server.trouble(), None);
    send_tcp(&by_tcp, b"<29>ntpd: two\n");
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.published), (2, 2), "{account:?}");
}

#[test]
fn what_is_wrong_is_counted_by_sender_and_cause_and_told() {
    let bus = bus();
    let mut server = Server::start(bus.clone(), options()).unwrap();
    let by_udp = listen(&mut server, Format::Syslog, udp());
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let acs = listen(&mut server, Format::Acs, tcp());
    let json = listen(&mut server, Format::Json, tcp());
    // No priority; a severity that is none; a header that is none; no UTF-8, which is kept.
    send_udp(&by_udp, &[b"hello", b"<999>a", b"<13>1 yesterday h a p m - x", b"<13>a: \xff\xfe"]);
    // Over-long by count and by line, and what stands behind them; a cut at the end.
    let long = "x".repeat(70_000);
    let stream = format!("70000 {long}9 <13>a: on<13>{long}\n<13>b: on\n99 <13>cut");
    send_tcp(&by_tcp, stream.as_bytes());
    send_tcp(
        &acs,
        &[b"<!DOCTYPE a>", XML, b"<Info TimeStamp=\"noon\"></Info><Info TimeSt"].concat(),
    );
    send_tcp(&json, b"{\"time\":\n[]\n\"level\"\n\n\xff\n");
    let account = server.end();
    adds_up(&account);
    let dropped = account.dropped;
    assert_eq!((dropped.malformed, dropped.too_large, dropped.rate), (3 + 1 + 3 + 4, 2, 0));
    assert_eq!((account.received, account.own), (4 + 5 + 4 + 4, 1));
    let (records, warnings) = by_origin(&bus);
    assert_eq!(records.len(), 4);
    let bytes =
        records.iter().flat_map(|record| &record.data).find(|(name, _)| name == "syslog.raw");
    assert_eq!(bytes.unwrap().1, Value::Bytes(b"<13>a: \xff\xfe".to_vec()));
    warnings_name(&warnings, &["13 messages of 127.0.0.1 dropped: 11 malformed, 2 too large"]);
    let data = &warnings[0].data;
    assert_eq!(
        data[..2],
        [("sender".to_owned(), "127.0.0.1".into()), ("malformed".to_owned(), Value::Int(11))]
    );
}

#[test]
fn a_clock_that_lies_is_kept_and_seen() {
    let bus = bus();
    let mut server = Server::start(bus.clone(), options()).unwrap();
    let json = listen(&mut server, Format::Json, tcp());
    send_tcp(
        &json,
        b"{\"time\":\"1999-01-01T00:00:00Z\",\"observed\":\"2099-01-01T00:00:00Z\"}\n\
        {\"time\":\"2099-01-01T00:00:00Z\",\"observed\":\"2026-01-01T00:00:00Z\"}\n",
    );
    assert_eq!(server.end().published, 2);
    let records = records(&bus);
    let year = |time: helio_bus::Tai| time.to_utc_string()[..4].to_owned();
    let years: Vec<_> =
        records.iter().map(|one| (year(one.time), one.observed.map(year))).collect();
    assert_eq!(years[0].0, "1999");
    // Nobody has observed it in a time to come: it was now.
    assert!(years[0].1.as_deref().unwrap() < "2099", "{years:?}");
    assert_eq!(years[1], ("2099".to_owned(), Some("2026".to_owned())));
}

#[test]
fn a_sender_over_its_rate_is_cut_and_its_alerts_are_not() {
    let bus = bus();
    let mut options = options();
    options.limits.rate = Rate { per_s: 0.0, burst: 10.0 };
    options.limits.urgent = Rate { per_s: 0.0, burst: 5.0 };
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let flood: String = (0..100).map(|n| format!("<15>flood: {n}\n")).collect();
    let alerts: String = (0..7).map(|n| format!("<9>fire: {n}\n")).collect();
    send_tcp(&by_tcp, format!("{flood}{alerts}").as_bytes());
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.dropped.rate, account.own), (107, 92, 1));
    let (records, warnings) = by_origin(&bus);
    let fires = records.iter().filter(|record| record.level == Level::ALERT).count();
    assert_eq!((records.len(), fires), (15, 5));
    let texts = messages(&records);
    assert!((0..10).all(|n| texts.contains(&format!("flood: {n}"))), "{texts:?}");
    warnings_name(&warnings, &["92 messages of 127.0.0.1 dropped: 92 over the sender's rate"]);
}

#[test]
fn records_that_are_too_large_are_told_and_their_neighbours_pass() {
    let bus = bus();
    let mut options = options();
    options.limits.record_bytes = 1_000;
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    send_tcp(&by_tcp, format!("<13>a: {}\n<13>a: b\n", "x".repeat(1_000)).as_bytes());
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.dropped.too_large, account.published), (2, 1, 2));
    let (records, warnings) = by_origin(&bus);
    assert_eq!(messages(&records), ["a: b"]);
    warnings_name(
        &warnings,
        &["1 messages of 127.0.0.1 dropped: 1 too large", "the limit is 1000"],
    );
}

#[test]
fn ten_thousand_connections_of_one_sender_are_not_everyones() {
    let bus = bus();
    let mut options = options();
    options.limits.connections_per_sender = 3;
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let by_udp = listen(&mut server, Format::Syslog, udp());
    let mut open: Vec<_> = (0..3).map(|_| TcpStream::connect(&by_tcp).unwrap()).collect();
    // They are let in as they come: the next ones find no room.
    for _ in 0..10_000 {
        closed(TcpStream::connect(&by_tcp).unwrap());
    }
    assert_eq!(server.statistics().refused, 10_000);
    open.iter_mut().for_each(|stream| stream.write_all(b"<13>a: here\n").unwrap());
    send_udp(&by_udp, &[b"<13>b: there"]);
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.dropped.total()), (4, 0));
    let (records, warnings) = by_origin(&bus);
    assert_eq!(records.len(), 4);
    warnings_name(&warnings, &["connections of 127.0.0.1 refused: too many"]);
}

#[test]
fn who_says_nothing_or_never_ends_is_sent_away() {
    let bus = bus();
    let mut options = options();
    options.limits.unfinished = Duration::from_millis(20);
    let mut server = Server::start(bus.clone(), options.clone()).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let json = listen(&mut server, Format::Json, tcp());
    let acs = listen(&mut server, Format::Acs, tcp());
    for (to, begun) in [(&by_tcp, "99 <13>a"), (&json, "{\"ti"), (&acs, "<Info Time")] {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(begun.as_bytes()).unwrap();
        closed(stream);
    }
    // Who is between messages may stay.
    let mut patient = TcpStream::connect(&by_tcp).unwrap();
    patient.write_all(b"<13>a: whole\n").unwrap();
    let account = server.end();
    drop(patient);
    adds_up(&account);
    assert_eq!((account.timed_out, account.dropped.malformed, account.received), (3, 3, 4));
    warnings_name(&by_origin(&bus).1, &["3 connections of 127.0.0.1 closed: too slow"]);

    options.limits.idle = Duration::from_millis(20);
    let mut server = Server::start(crate::support::bus(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    closed(TcpStream::connect(&by_tcp).unwrap());
    assert_eq!(server.end().timed_out, 1);
}

#[test]
fn while_the_bus_is_away_senders_go_on_and_each_record_is_counted() {
    const DEBUGS: usize = 60_000;
    let plan = FaultPlan { queue: 10, ..FaultPlan::default() };
    let transport = FaultTransport::connect("memory:", plan).unwrap();
    let bus = Bus::builder().producer("log-serve").over(Arc::clone(&transport) as _).unwrap();
    let mut options = options();
    options.log.queue_bytes = 256 << 10;
    options.limits.rate = Rate { per_s: 1e9, burst: 1e9 };
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    transport.cable().freeze();
    let debug: String = (0..DEBUGS).map(|n| format!("<15>flood: {n}\n")).collect();
    let errors: String = (0..100).map(|n| format!("<11>broken: {n}\n")).collect();
    // It returns: nobody waits for the bus.
    send_tcp(&by_tcp, (debug + &errors).as_bytes());
    // All of it has been read before the bus comes back.
    let all = DEBUGS as u64 + 100;
    wait_until(|| server.statistics().received >= all);
    transport.cable().thaw();
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.waiting), (all, 0));
    assert!(account.dropped.shed > 0, "{account:?}");
    let (records, _) = by_origin(&bus);
    let errors = records.iter().filter(|record| record.level == Level::ERROR).count();
    assert_eq!(errors, 100);
    assert_eq!(records.len() as u64 + account.own, account.published);
}

#[test]
fn who_sends_in_a_stream_is_held_up_while_the_bus_is_slow_and_loses_nothing() {
    // More than the queues take.
    const RECORDS: usize = 60_000;
    let plan = FaultPlan { queue: 10, ..FaultPlan::default() };
    let transport = FaultTransport::connect("memory:", plan).unwrap();
    let bus = Bus::builder().producer("log-serve").over(Arc::clone(&transport) as _).unwrap();
    let mut options = options();
    options.limits.rate = Rate { per_s: 1e9, burst: 1e9 };
    options.limits.hold = NEVER;
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    transport.cable().freeze();
    let filling = "x".repeat(500);
    let sender = std::thread::spawn(move || {
        let lines = (0..RECORDS).map(|n| format!("<15>flood: {n} {filling}\n"));
        send_tcp(&by_tcp, lines.collect::<String>().as_bytes());
    });
    // Nothing more comes: it is held up.
    let mut before = 0;
    wait_until(|| {
        std::thread::sleep(Duration::from_millis(200));
        let now = server.statistics().received;
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!((before as usize) < RECORDS && !sender.is_finished());
    transport.cable().thaw();
    sender.join().unwrap();
    wait_until(|| server.statistics().received == RECORDS as u64);
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.dropped.total(), account.published), (0, RECORDS as u64));
}

#[test]
fn drops_are_told_while_it_runs() {
    let bus = bus();
    let mut options = options();
    options.limits.tell = Duration::from_millis(10);
    let mut server = Server::start(bus.clone(), options).unwrap();
    let by_udp = listen(&mut server, Format::Syslog, udp());
    send_udp(&by_udp, &[b"hello"]);
    wait_until(|| server.statistics().own > 0);
    let account = server.end();
    adds_up(&account);
    warnings_name(
        &by_origin(&bus).1,
        &["1 messages of 127.0.0.1 dropped: 1 malformed; for example: "],
    );
}

#[test]
fn a_socket_that_was_left_is_replaced_and_one_that_is_used_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let stream = Via::Unix(folder.path().join("stream"));
    let log = Via::UnixDatagram(folder.path().join("log"));
    let file = Via::Unix(folder.path().join("file"));
    std::fs::write(folder.path().join("file"), "kept").unwrap();
    // As a process that is killed leaves them.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("stream")).unwrap());
    drop(std::os::unix::net::UnixDatagram::bind(folder.path().join("log")).unwrap());
    let mut first = Server::start(bus(), options()).unwrap();
    let mut second = Server::start(bus(), options()).unwrap();
    for via in [&stream, &log] {
        let endpoint = Endpoint { format: Format::Syslog, via: via.clone() };
        first.listen(&endpoint).unwrap();
        let used = second.listen(&endpoint);
        assert!(matches!(used, Err(ServeError::Listen(..))), "{used:?}");
    }
    let refused = first.listen(&Endpoint { format: Format::Json, via: file });
    assert!(matches!(refused, Err(ServeError::Listen(..))), "{refused:?}");
    send_unix(&stream.address(), b"<13>a: b");
    send_unix_datagram(&log.address(), b"<13>a: b");
    assert_eq!((second.end().received, first.end().received), (0, 2));
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"kept");
}
