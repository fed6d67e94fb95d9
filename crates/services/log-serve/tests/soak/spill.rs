//! The spill file: the end of a service waits for a bus that takes nothing before it is written.

use std::sync::Arc;

use helio_bus::Bus;
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_log_serve::{Format, Server};

use crate::support::*;

#[test]
fn what_the_bus_does_not_take_outlives_the_service_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let plan = FaultPlan { queue: 10, ..FaultPlan::default() };
    let transport = FaultTransport::connect("memory:", plan).unwrap();
    let bus = Bus::builder().producer("log-serve").over(Arc::clone(&transport) as _).unwrap();
    let mut options = options();
    let file = folder.path().join("spill");
    options.log.spill = Some(helio_logging::Spill { file, bytes: 64 << 20 });
    transport.cable().freeze();
    let mut server = Server::start(bus, options.clone()).unwrap();
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let lines: String = (0..1_000).map(|n| format!("<13>a: {n}\n")).collect();
    send_tcp(&by_tcp, lines.as_bytes());
    let first = server.end();
    adds_up(&first);
    assert_eq!((first.received, first.published, first.waiting), (1_000, 0, 1_000));

    let bus = crate::support::bus();
    let second = Server::start(bus.clone(), options).unwrap().end();
    adds_up(&second);
    assert_eq!((second.received, second.inherited, second.published), (0, 1_000, 1_000));
    assert_eq!(records(&bus).len(), 1_000);
}
