//! A component's messages while topics fail, block their writers, or cannot be read.

use std::sync::{Arc, mpsc};

use helio_bus::{Message, Tai, TestClock, TopicSpec};
use helio_component::protocol::caller::Presence;
use helio_component::protocol::controller::{AUDIT_LOST_CODE, AUDIT_TIMEOUT};
use helio_component::protocol::{AckCode, SummaryState};
use helio_component::{AuditPhase, Command, Component, Failed, Reading, Remote};
use helio_core::ProducerName;

use crate::support::faults::{Failing, audit, both, is_state, name, records, says};
use crate::support::{HANG_TIMEOUT, Site, move_to, on_every_transport};

#[test]
fn what_cannot_be_published_comes_later_and_in_order() {
    let failing = Failing::new();
    let (cable, topics) = (failing.cable.clone(), ["ackcmd", "audit"].map(name));
    let broken = topics.clone();
    let (runs, ran) = mpsc::channel();
    let moves = runs.clone();
    let component = failing
        .mount()
        .inline("moveToTarget", move |_: &Command| {
            broken.iter().for_each(|topic| cable.break_topic(topic));
            moves.send(())?;
            Ok::<_, Failed>("arrived")
        })
        // On the same thread: when it runs, the messages of the previous one were tried.
        .inline("stop", move |_: &Command| runs.send(()).map_err(|_| Failed::aborted()))
        .start()
        .unwrap();
    let remote = failing.remote();
    let mut records_of = audit(&failing.other());
    let first = move_to(&remote, 7.0).timeout(HANG_TIMEOUT).send();
    ran.recv_timeout(HANG_TIMEOUT).unwrap();
    let second = remote.command("stop").timeout(HANG_TIMEOUT).send();
    ran.recv_timeout(HANG_TIMEOUT).unwrap();
    topics.iter().for_each(|topic| failing.cable.mend_topic(topic));
    assert_eq!(first.wait().unwrap().result, "arrived");
    assert_eq!(second.wait().unwrap().code, AckCode::Complete);
    assert_eq!(records(&mut records_of, 4), [both("moveToTarget"), both("stop")].concat());
    component.stop().unwrap();
}

#[test]
fn a_state_that_cannot_be_published_comes_later_and_the_acknowledgement_after_its_failure() {
    let failing = Failing::new();
    let component = failing.mount().initial_state(SummaryState::Disabled).start().unwrap();
    let remote = failing.remote();
    let mut states = remote.event("summaryState").unwrap();
    states.next(HANG_TIMEOUT).unwrap();
    let topic = states.shape().topic().topic_name().clone();
    failing.cable.break_topic(&topic);
    remote.command("enable").timeout(HANG_TIMEOUT).send().wait().unwrap();
    assert_eq!(component.state(), SummaryState::Enabled);
    assert!(states.try_next().unwrap().is_none());
    remote.command("disable").timeout(HANG_TIMEOUT).send().wait().unwrap();
    failing.cable.mend_topic(&topic);
    let mut next = || states.next(HANG_TIMEOUT).unwrap().integer("summaryState");
    assert_eq!([next(), next()], [Some(2), Some(1)]);
    component.stop().unwrap();
}

#[test]
fn without_an_audit_nothing_is_run_after_a_while() {
    let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
    let failing = Failing::by(Arc::new(clock.clone()));
    let component = failing.mount().inline("stop", |_: &Command| Ok(())).start().unwrap();
    let remote = failing.remote();
    let stop = || remote.command("stop").timeout(HANG_TIMEOUT).send().wait();
    let event = |name: &str| remote.event(name).unwrap();
    let [mut states, mut errors, mut log] = ["summaryState", "errorCode", "logMessage"].map(event);
    stop().unwrap();
    failing.cable.break_topic(&name("audit"));
    // The component continues for some seconds.
    stop().unwrap();
    clock.advance(AUDIT_TIMEOUT);
    // This is longer than the lease timeout, too: the requests in its topics are dropped.
    log.next_where(HANG_TIMEOUT, says("the lease had lapsed")).unwrap();
    states.next_where(HANG_TIMEOUT, is_state(SummaryState::Fault)).unwrap();
    let fault = |reading: &Reading| reading.integer("errorCode") == Some(AUDIT_LOST_CODE.into());
    let told = errors.next_where(HANG_TIMEOUT, fault).unwrap();
    assert!(told.text("errorReport").unwrap().contains("the audit of MTMount"));
    let refused = stop().unwrap_err();
    assert_eq!(refused.code(), Some(AckCode::Failed), "{refused}");
    assert!(refused.to_string().contains("audit of MTMount cannot be written"), "{refused}");
    assert_eq!(component.state(), SummaryState::Fault);
    failing.cable.mend_topic(&name("audit"));
    log.next_where(HANG_TIMEOUT, says("the audit is written again")).unwrap();
    stop().unwrap();
    // No acknowledgement is missing.
    let mut expected = [both("stop"), both("stop")].concat();
    expected.push(("stop".to_owned(), AuditPhase::Finished));
    expected.extend(both("stop"));
    assert_eq!(records(&mut audit(&failing.other()), 7), expected);
    component.stop().unwrap();
}

/// During an outage the presence is unknown: neither an end nor another instance is reported.
#[test]
fn who_was_gone_is_commanded_where_nobody_can_tell() {
    let failing = Failing::new();
    let caller = Remote::open(&failing.bus, &failing.site.mount(), 0).unwrap();
    let start = || {
        let builder = Component::builder(&failing.other(), &failing.site.mount(), 0);
        builder.inline("stop", |_: &Command| Ok(())).start().unwrap()
    };
    let stop = || caller.command("stop").timeout(HANG_TIMEOUT).send().wait();
    let component = start();
    stop().unwrap();
    component.stop().unwrap();
    assert_eq!(caller.presence().unwrap(), Presence::Gone);
    let component = start();
    failing.cable.break_topic(&name("lease/0"));
    assert!(caller.presence().is_err());
    stop().unwrap();
    component.stop().unwrap();
}

#[test]
fn the_audit_is_taken_back() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let stop = || remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
        stop();
        let other = site.bus();
        let spec = TopicSpec::of(name("audit")).producer(ProducerName::new("MTMount").unwrap());
        let intruder = other.topic(spec).unwrap().publisher().unwrap();
        stop();
        stop();
        let expected = [both("stop"), both("stop"), both("stop")].concat();
        assert_eq!(records(&mut audit(&other), 6), expected);
        assert!(intruder.publish(Message::new(b"")).wait().is_err());
        component.stop().unwrap();
    });
}

#[test]
fn a_command_that_cannot_be_read_leaves_the_others() {
    let failing = Failing::new();
    let component = failing
        .mount()
        .inline("moveToTarget", |command: &Command| Ok(command.number("azimuth").to_string()))
        .inline("stop", |_: &Command| Ok(()))
        .start()
        .unwrap();
    let remote = failing.remote();
    let mut log = remote.event("logMessage").unwrap();
    let send = |azimuth: f64| {
        let call = remote.command("moveToTarget").set("azimuth", azimuth).set("elevation", 45.0);
        call.timeout(HANG_TIMEOUT).send()
    };
    send(1.0).wait().unwrap();
    let topic = name("command/moveToTarget");
    failing.cable.break_topic(&topic);
    let told = log.next_where(HANG_TIMEOUT, says("commands moveToTarget cannot be read")).unwrap();
    assert_eq!(told.integer("level"), Some(40));
    remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
    // A cancellation first reads all available commands.
    let waiting = send(2.0);
    let unknown = waiting.cancel().unwrap_err();
    assert_eq!(unknown.code(), Some(AckCode::Failed), "{unknown}");
    let other = send(3.0);
    failing.cable.mend_topic(&topic);
    log.next_where(HANG_TIMEOUT, says("commands moveToTarget are read again")).unwrap();
    assert_eq!(other.wait().unwrap().result, "3");
    assert_eq!(waiting.wait().unwrap_err().code(), Some(AckCode::Aborted));
    assert_eq!(component.state(), SummaryState::Enabled);
    component.stop().unwrap();
}

#[test]
fn what_is_asked_and_cannot_be_read_is_told() {
    let failing = Failing::new();
    let component = failing.mount().start().unwrap();
    let mut log = failing.remote().event("logMessage").unwrap();
    let control = failing.other().topic(TopicSpec::of(name("control"))).unwrap();
    control.publisher().unwrap().publish(Message::new(b"\xff")).wait().unwrap();
    let told = log.next_where(HANG_TIMEOUT, says("a request on control cannot be read")).unwrap();
    assert_eq!(told.integer("level"), Some(30));
    component.stop().unwrap();
}
