//! A service on a bus in memory, and senders.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_log_serve::{Endpoint, Format, Options, Server, Statistics, Via};
use helio_logging::{Follow, Lanes, Level, Next, Reader, ReaderOptions, Record, Start};

/// Guards against hanging; no test waits that long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Nothing is told so late.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

pub(crate) fn bus() -> Bus {
    Bus::builder().producer("log-serve").connect("memory:").unwrap()
}

/// A service that tells of drops at its end only.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.limits.tell = NEVER;
    options
}

pub(crate) fn udp() -> Via {
    Via::Udp("127.0.0.1:0".to_owned())
}

pub(crate) fn tcp() -> Via {
    Via::Tcp("127.0.0.1:0".to_owned())
}

/// Opens an edge, and gives where it is: an address or a path.
pub(crate) fn listen(server: &mut Server, format: Format, via: Via) -> String {
    let listening = server.listen(&Endpoint { format, via }).unwrap();
    listening.via.address()
}

/// Sends all of a stream's bytes and closes it.
pub(crate) fn send_tcp(to: &str, bytes: &[u8]) {
    TcpStream::connect(to).unwrap().write_all(bytes).unwrap();
}

pub(crate) fn send_udp(to: &str, datagrams: &[&[u8]]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.iter().for_each(|bytes| assert_eq!(socket.send_to(bytes, to).unwrap(), bytes.len()));
}

pub(crate) fn send_unix(to: &str, bytes: &[u8]) {
    UnixStream::connect(to).unwrap().write_all(bytes).unwrap();
}

pub(crate) fn send_unix_datagram(to: &str, bytes: &[u8]) {
    UnixDatagram::unbound().unwrap().send_to(bytes, to).unwrap();
}

/// Waits until something holds.
pub(crate) fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "it never does");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the other end closes a connection.
pub(crate) fn closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    match stream.read(&mut [0; 16]) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("it is still open: {other:?}"),
    }
}

/// All records that are on the bus.
pub(crate) fn records(bus: &Bus) -> Vec<Record> {
    let options = ReaderOptions::from(Start::Earliest).follow(Follow::No);
    let mut records = Reader::open(bus, &Lanes::default(), options).unwrap().records();
    let mut all = Vec::new();
    loop {
        match records.next(TIMEOUT).unwrap() {
            Next::Record(record, _) => all.push(*record),
            Next::News(_) => {}
            Next::End => return all,
            Next::TimeOver => panic!("the reader waits"),
        }
    }
}

/// The records of senders, and those of the service itself.
pub(crate) fn by_origin(bus: &Bus) -> (Vec<Record>, Vec<Record>) {
    records(bus).into_iter().partition(|record| record.logger != "helio/log/serve")
}

/// Each record is accounted for.
pub(crate) fn adds_up(account: &Statistics) {
    let came = account.received + account.own + account.inherited;
    let went = account.published + account.waiting + account.dropped.total();
    assert_eq!(came, went, "{account:?}");
    let received: u64 = account.senders.iter().map(|sender| sender.received).sum();
    assert_eq!(received, account.received, "{account:?}");
}

/// The texts of records, in the order of their sender's numbers.
pub(crate) fn messages(records: &[Record]) -> Vec<String> {
    records.iter().map(Record::message).collect()
}

pub(crate) fn warnings_name(warnings: &[Record], parts: &[&str]) {
    let all = messages(warnings).join("\n");
    assert!(warnings.iter().all(|record| record.level == Level::WARNING), "{all}");
    parts.iter().for_each(|part| assert!(all.contains(part), "{part:?} is not in:\n{all}"));
}
