//! Instances: one of many, one that dies, one that is replaced, and a foreign one.

use std::sync::Arc;
use std::time::Duration;

use crate::support::faults::faulty;
use crate::support::{HANG_TIMEOUT, Site, move_to, on_every_transport, only};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Clock, Evolution, Message, Start, Subscribe, SystemClock, Tai, TestClock, TopicError,
    TopicSpec,
};
use helio_component::protocol::caller::{Cause, Presence};
use helio_component::protocol::{AckCode, StateCommand, SummaryState};
use helio_component::{
    Command, Component, ConfigFolder, Failed, LEASE_TIMEOUT, Lease, LeaseOptions,
    PRESENCE_POLL_INTERVAL, Remote, RunError, Running, StartError, WriteError,
};
use helio_core::ProducerName;
use helio_core::sal::TopicKind;
use serde::Deserialize;
use serde_json::json;

fn mount(bus: &Bus, site: &Site) -> Result<Running, StartError> {
    Component::builder(bus, &site.mount(), 0)
        .inline("stop", |_: &Command| Ok(()))
        .on("moveToTarget", |command: &Command| {
            command.in_progress(Duration::from_secs(600), "running", None);
            command.pause(Duration::from_secs(3600))
        })
        .initial_state(SummaryState::Enabled)
        .start()
}

#[test]
fn of_two_instances_one_runs() {
    on_every_transport(|site: &Site| {
        let shared = site.bus();
        let contenders: Vec<Bus> = vec![shared.clone(), shared, site.bus(), site.bus()];
        let site = Arc::new(site.mount());
        let start = |bus: Bus| {
            let interface = Arc::clone(&site);
            std::thread::spawn(move || Component::builder(&bus, &interface, 0).start())
        };
        let threads: Vec<_> = contenders.into_iter().map(start).collect();
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let (running, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((running.len(), refused.len()), (1, 3));
        for error in refused {
            let told = error.unwrap_err().to_string();
            assert!(told.starts_with("MTMount runs already: "), "{told}");
        }
    });
}

#[test]
fn a_call_to_nobody_ends_at_once() {
    on_every_transport(|site: &Site| {
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        // No instance has ever run: the query reports it and creates no topic.
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
        let error = remote.command("stop").send().wait().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NobodyThere));
        let heartbeat = TopicSpec::new("MTMount/event/heartbeat").unwrap();
        assert!(matches!(site.bus().topic(heartbeat), Err(TopicError::NoSuchTopic(_))));
        let component = mount(&site.bus(), site).unwrap();
        assert!(matches!(remote.presence().unwrap(), Presence::Here { .. }));
        remote.command("stop").send().wait().unwrap();
        component.stop().unwrap();
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
        let error = remote.command("stop").send().wait().unwrap_err();
        assert_eq!((error.code(), error.cause()), (Some(AckCode::NoAck), Some(Cause::NobodyThere)));
        assert!(error.to_string().contains("nobody there: MTMount is not running"), "{error}");
        // Its last published state is no longer valid.
        let error = remote.set_state(SummaryState::Enabled, "").unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NobodyThere));
        // It runs again.
        let component = mount(&site.bus(), site).unwrap();
        remote.command("stop").send().wait().unwrap();
        component.stop().unwrap();
    });
}

/// The test below runs this in a separate process.
#[test]
fn child() {
    let Ok(url) = std::env::var("HELIO_COMPONENT_CHILD") else { return };
    mount(&Bus::connect(&url).unwrap(), &Site::memory()).unwrap().wait().unwrap();
}

#[test]
fn a_call_whose_component_is_killed_is_told() {
    let site = Site::journal();
    let mut child = only(module_path!(), "child")
        .env("HELIO_COMPONENT_CHILD", site.url())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let mut states = remote.event("summaryState").unwrap();
    states.next(HANG_TIMEOUT).unwrap();
    let mut call = move_to(&remote, 7.0).timeout(HANG_TIMEOUT).send();
    while call.next().unwrap().unwrap().code != AckCode::InProgress {}
    child.kill().unwrap();
    child.wait().unwrap();
    let error = call.wait().unwrap_err();
    assert_eq!((error.code(), error.cause()), (Some(AckCode::NoAck), Some(Cause::WentAway)));
    assert!(error.to_string().contains("went away"), "{error}");
    // Its lease is free, and its numbers continue.
    let component = mount(&site.bus(), &site).unwrap();
    let mut numbers = vec![1];
    states.next(HANG_TIMEOUT).map(|reading| numbers.push(reading.seq_num())).unwrap();
    assert_eq!(numbers, [1, 2]);
    component.stop().unwrap();
}

#[test]
fn a_bus_that_is_closed_ends_component_and_calls() {
    let site = Site::memory();
    let (bus, ours) = (site.bus(), site.bus());
    let component = mount(&bus, &site).unwrap();
    let remote = Remote::open(&ours, &site.mount(), 0).unwrap();
    let mut call = move_to(&remote, 7.0).send();
    while call.next().unwrap().unwrap().code != AckCode::InProgress {}
    bus.close();
    assert!(matches!(component.wait(), Err(RunError::Bus { .. })));
    let error = call.wait().unwrap_err();
    assert_eq!(error.code(), Some(AckCode::NoAck), "{error}");
}

#[test]
fn who_was_replaced_knows_it() {
    on_every_transport(|site: &Site| {
        let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
        let connect = || {
            let builder = Bus::builder().clock(Arc::new(clock.clone()));
            builder.connect(site.url()).unwrap()
        };
        // All of them are stopped together, and one resumes first. It takes the lease unless the
        // other confirms it at that moment.
        let take_over = |bus: &Bus| loop {
            clock.advance(LEASE_TIMEOUT + Duration::from_secs(1));
            if let Ok(lease) = Lease::claim(bus, &site.mount(), 0, LeaseOptions::default()) {
                break lease;
            }
        };
        let component = mount(&connect(), site).unwrap();
        let lease = take_over(&connect());
        assert!(matches!(component.wait(), Err(RunError::LeaseLost { .. })));
        assert!(lease.is_held());
        // Without a takeover during the stop, the lease is not lost.
        clock.advance(Duration::from_secs(3600));
        assert!(lease.is_held());
        // After a takeover it is, before the next command runs.
        let next = take_over(&connect());
        assert!(!lease.is_held() && next.is_held());
    });
}

/// The same where the requests are yet to be fetched: the reader does not know that they are there.
#[test]
fn what_was_stored_while_it_slept_and_comes_late_is_not_run() {
    let site = Site::memory();
    let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
    let transport = FaultTransport::connect(site.url(), FaultPlan::default()).unwrap();
    let cable = transport.cable();
    let faulty = Bus::builder().clock(Arc::new(clock.clone())).over(transport).unwrap();
    let other = Bus::builder().clock(Arc::new(clock.clone())).connect(site.url()).unwrap();
    let (entered, enter) = std::sync::mpsc::channel();
    let (wake, sleep) = std::sync::mpsc::channel::<()>();
    let sleep = std::sync::Mutex::new(sleep);
    let component = Component::builder(&faulty, &site.mount(), 0)
        .inline("stop", move |_: &Command| {
            entered.send(()).unwrap();
            sleep.lock().unwrap().recv().unwrap();
            Ok(())
        })
        .inline("moveToTarget", |command: &Command| Ok(command.number("azimuth").to_string()))
        .start()
        .unwrap();
    let remote = Remote::open(&other, &site.mount(), 0).unwrap();
    let mut log = remote.event("logMessage").unwrap();
    let acks = site.mount().shape(TopicKind::Ack, "ackcmd").unwrap();
    let topic = other.topic(TopicSpec::of(acks.topic().topic_name().clone())).unwrap();
    let mut answers = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let _busy = remote.command("stop").timeout(HANG_TIMEOUT).send();
    enter.recv().unwrap();
    cable.freeze();
    let late = [1.0, 2.0, 3.0].map(|to| move_to(&remote, to).timeout(HANG_TIMEOUT).send());
    clock.advance(LEASE_TIMEOUT + Duration::from_secs(1));
    // The lapse is noticed, a heartbeat later at the latest, before anything is fetched.
    wake.send(()).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    cable.thaw();
    // Under load it may be noticed later; then all three are dropped at once.
    let told = |reading: &helio_component::Reading| {
        let all = ["3 more requests", "; 3 requests are dropped"];
        reading.text("message").is_some_and(|text| all.iter().any(|all| text.contains(all)))
    };
    log.next_where(HANG_TIMEOUT, told).unwrap();
    let done = remote.command("moveToTarget").set("azimuth", 7.0).set("elevation", 45.0);
    assert_eq!(done.timeout(HANG_TIMEOUT).send().wait().unwrap().result, "7");
    let mut results = Vec::new();
    while let Some(event) = answers.try_next().unwrap() {
        let Some(sample) = event.into_sample() else { continue };
        let ack = acks.codec().decode(&sample.payload).unwrap();
        let ack = acks.codec().value_to_json(&ack).unwrap();
        results.extend((ack["ack"] == 303).then(|| ack["result"].to_string()));
    }
    assert_eq!(results.last().unwrap(), "\"7\"");
    assert!(!results.iter().any(|result| ["\"1\"", "\"2\"", "\"3\""].contains(&&**result)));
    drop(late);
    component.stop().unwrap();
}

/// A command whose caller was notified that it does not run does not run later.
#[test]
fn what_lay_there_while_it_slept_is_not_run() {
    on_every_transport(|site: &Site| {
        let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
        let connect = || {
            let builder = Bus::builder().clock(Arc::new(clock.clone()));
            builder.connect(site.url()).unwrap()
        };
        let (entered, enter) = std::sync::mpsc::channel();
        let (wake, sleep) = std::sync::mpsc::channel::<()>();
        let sleep = std::sync::Mutex::new(sleep);
        let component = Component::builder(&connect(), &site.mount(), 0)
            .inline("stop", move |_: &Command| {
                entered.send(()).unwrap();
                sleep.lock().unwrap().recv().unwrap();
                Ok(())
            })
            .inline("moveToTarget", |command: &Command| Ok(command.number("azimuth").to_string()))
            .start()
            .unwrap();
        let remote = Remote::open(&connect(), &site.mount(), 0).unwrap();
        let mut log = remote.event("logMessage").unwrap();
        let sent = |command: &str| remote.command(command).timeout(HANG_TIMEOUT).send();
        // The command thread is blocked for longer than the lease timeout; a command is pending.
        let _busy = sent("stop");
        enter.recv().unwrap();
        let _lying = move_to(&remote, 1.0).timeout(HANG_TIMEOUT).send();
        clock.advance(LEASE_TIMEOUT + Duration::from_secs(1));
        wake.send(()).unwrap();
        let told = |reading: &helio_component::Reading| {
            reading.text("message").is_some_and(|text| text.contains("1 requests are dropped"))
        };
        log.next_where(HANG_TIMEOUT, told).unwrap();
        // The component continues, and has run only this command.
        let done = remote.command("moveToTarget").set("azimuth", 7.0).set("elevation", 45.0);
        assert_eq!(done.send().wait().unwrap().result, "7");
        component.stop().unwrap();
    });
}

/// The last state of a dead instance is not the state of its successor.
#[test]
fn the_first_state_of_a_new_instance_is_waited_for() {
    on_every_transport(|site: &Site| {
        let (bus, next) = (site.bus(), site.bus());
        let component = mount(&bus, site).unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        assert_eq!(remote.state().unwrap(), Some(SummaryState::Enabled));
        bus.close();
        assert!(component.wait().is_err());
        // It has died; this is its last published state.
        assert_eq!(remote.state().unwrap(), Some(SummaryState::Enabled));
        let lease = Lease::claim(&next, &site.mount(), 0, LeaseOptions::default()).unwrap();
        let shape = site.mount().shape(TopicKind::Event, "summaryState").unwrap();
        let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
        let spec = spec.producer(ProducerName::new("MTMount").unwrap()).schema(shape.schema());
        let mut payload = Vec::new();
        let standby = shape.codec().value_from_json(&json!({"summaryState": 5})).unwrap();
        shape.codec().encode(&standby, &mut payload).unwrap();
        std::thread::scope(|scope| {
            let (begin, begun) = std::sync::mpsc::channel();
            let asks = [(); 2].map(|()| {
                let (begin, remote) = (begin.clone(), &remote);
                scope.spawn(move || {
                    begin.send(()).unwrap();
                    remote.state().unwrap()
                })
            });
            asks.iter().for_each(|_| begun.recv().unwrap());
            let topic = next.topic(spec).unwrap();
            let publisher = topic.publisher().unwrap();
            publisher.publish(Message::new(&payload)).wait().unwrap();
            let states = asks.map(|ask| ask.join().unwrap());
            assert_eq!(states, [Some(SummaryState::Standby); 2]);
        });
        assert!(lease.is_held());
    });
}

#[test]
fn what_was_done_before_it_went_is_told() {
    on_every_transport(|site: &Site| {
        let component = mount(&site.bus(), site).unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let other = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let done = remote.command("stop").send();
        // Commands of one name run in order.
        other.command("stop").send().wait().unwrap();
        component.stop().unwrap();
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
        done.wait().unwrap();
    });
}

/// The same where stored acknowledgements are fetched late, as on a broker.
#[test]
fn what_was_done_before_it_went_is_told_although_it_is_fetched_late() {
    on_every_transport(|site: &Site| {
        for seed in 0..8 {
            let component = mount(&site.bus(), site).unwrap();
            let late = Bus::connect(&format!("fault:{}?delay=1&seed={seed}", site.url())).unwrap();
            let remote = Remote::open(&late, &site.mount(), 0).unwrap();
            let other = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
            let done = remote.command("stop").send();
            other.command("stop").send().wait().unwrap();
            component.stop().unwrap();
            assert_eq!(remote.presence().unwrap(), Presence::Gone);
            done.wait().unwrap();
        }
    });
}

/// While nothing is fetched at all, the call goes on; also if another instance has taken over.
#[test]
fn a_call_does_not_end_before_its_acknowledgement_is_fetched() {
    for replaced in [false, true] {
        let site = Site::memory();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (bus, cable) = faulty(&site, &clock);
        let component = mount(&site.bus(), &site).unwrap();
        let remote = Remote::open(&bus, &site.mount(), 0).unwrap();
        let other = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        // Its topics are open, and its lease was read.
        remote.command("stop").send().wait().unwrap();
        let mut running = move_to(&remote, 7.0).send();
        // Sending reads the acknowledgements from before.
        let mut done = remote.command("stop").send();
        cable.freeze();
        other.command("stop").send().wait().unwrap();
        component.stop().unwrap();
        let next = replaced.then(|| mount(&site.bus(), &site).unwrap());
        // Several polls of the presence.
        let polls = 6 * PRESENCE_POLL_INTERVAL;
        assert!(done.next_timeout(polls).unwrap().is_none(), "replaced: {replaced}");
        assert!(done.seq_num().is_some(), "it has ended");
        cable.thaw();
        assert_eq!(done.wait().unwrap().code, AckCode::Complete);
        // The other one was interrupted by the end of the component, which said so.
        let error = loop {
            match running.next_timeout(HANG_TIMEOUT) {
                Ok(told) => assert!(told.is_some(), "it never ended"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.cause(), Some(Cause::Acknowledged), "{error}");
        drop(next);
    }
}

#[test]
fn of_whom_nothing_can_be_heard_nothing_is_said() {
    on_every_transport(|site: &Site| {
        let component = mount(&site.bus(), site).unwrap();
        let bus = site.bus();
        let remote = Remote::open(&bus, &site.mount(), 0).unwrap();
        let mut call = move_to(&remote, 7.0).send();
        while call.next().unwrap().unwrap().code != AckCode::InProgress {}
        bus.close();
        let error = call.wait().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::Unheard));
        assert!(error.to_string().contains("whether it ran is unknown"), "{error}");
        component.stop().unwrap();
    });
}

#[test]
fn who_was_replaced_writes_no_more() {
    on_every_transport(|site: &Site| {
        let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
        let connect = || {
            let builder = Bus::builder().clock(Arc::new(clock.clone()));
            builder.connect(site.url()).unwrap()
        };
        let old = mount(&connect(), site).unwrap();
        let event = |running: &Running| running.event("errorCount").unwrap();
        let (unopened, telemetry) = (event(&old), old.telemetry("elevation").unwrap());
        telemetry.write().unwrap();
        let live = loop {
            clock.advance(LEASE_TIMEOUT + Duration::from_secs(1));
            if let Ok(live) = mount(&connect(), site) {
                break live;
            }
        };
        event(&live).set("late", 1).write().unwrap();
        for refused in [unopened.set("late", 7).write(), telemetry.write()] {
            let Err(WriteError::NotLive { identity, reason, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(identity, "MTMount");
            assert!(reason.contains("lost"), "{reason}");
        }
        event(&live).set("late", 2).write().unwrap();
        assert!(old.stop().is_err());
        // An ended instance has released its lease.
        let after = event(&live);
        live.stop().unwrap();
        let told = after.set("late", 3).write().unwrap_err().to_string();
        assert!(told.contains("given back"), "{told}");
    });
}

#[test]
fn a_live_instance_takes_its_topics_back() {
    on_every_transport(|site: &Site| {
        let component = mount(&site.bus(), site).unwrap();
        let event = component.event("errorCount").unwrap();
        event.set("late", 1).write().unwrap();
        let topic = event.shape().topic();
        let spec = TopicSpec::of(topic.topic_name().clone()).qos(topic.qos());
        let spec = spec.schema(event.shape().schema());
        let spec = spec.producer(ProducerName::new("MTMount").unwrap());
        let other = site.bus();
        let intruder = other.topic(spec).unwrap().publisher().unwrap();
        assert_eq!(event.set("late", 2).write().unwrap().seq_num, 2);
        assert!(intruder.publish(Message::new(b"")).wait().is_err());
        assert_eq!(event.set("late", 3).write().unwrap().seq_num, 3);
        component.stop().unwrap();
    });
}

#[test]
fn numbers_go_on_after_a_restart() {
    on_every_transport(|site: &Site| {
        let write = |n: i32| {
            let component = mount(&site.bus(), site).unwrap();
            let event = component.event("errorCount").unwrap();
            assert!(event.set("late", n).write().unwrap().published);
            assert!(!event.set("late", n).write().unwrap().published);
            let telemetry = component.telemetry("elevation").unwrap();
            let first = telemetry.write().unwrap().seq_num;
            assert_eq!(telemetry.write().unwrap().seq_num, first + 1);
            let seq_num = event.set("late", n).force().write().unwrap().seq_num;
            component.stop().unwrap();
            (seq_num, first)
        };
        assert_eq!([write(1), write(1), write(2)], [(2, 1), (4, 3), (6, 5)]);
    });
}

#[test]
fn indexed_components_share_topics_and_not_commands() {
    on_every_transport(|site: &Site| {
        let mast = site.interface("ESS");
        let bus = site.bus();
        let [summit, valley] = [1, 2].map(|index| {
            Component::builder(&bus, &mast, index)
                .begin(StateCommand::Enable, move |_: &Command| match index {
                    1 => Ok(()),
                    _ => Err(Failed::new("flooded")),
                })
                .start()
                .unwrap()
        });
        let [to_summit, to_valley] = [1, 2].map(|index| Remote::open(&bus, &mast, index).unwrap());
        to_summit.set_state(SummaryState::Enabled, "").unwrap();
        let error = to_valley.set_state(SummaryState::Enabled, "").unwrap_err();
        assert_eq!(error.to_string(), "enable of ESS:2: flooded (CMD_FAILED)");
        assert_eq!(summit.state(), SummaryState::Enabled);
        assert_eq!(valley.state(), SummaryState::Disabled);
        // A late joiner receives the newest value of each instance, also of an inactive one.
        for n in 0..600 {
            summit.telemetry("airFlow").unwrap().set("speed", n).write().unwrap();
        }
        valley.telemetry("airFlow").unwrap().set("speed", 7).write().unwrap();
        summit.telemetry("airFlow").unwrap().set("speed", 3).write().unwrap();
        let speed = |remote: &Remote| {
            let mut reader = remote.telemetry("airFlow").unwrap();
            let reading = reader.next(HANG_TIMEOUT).unwrap();
            (reading.index(), reading.number("speed").unwrap(), reading.identity().to_owned())
        };
        assert_eq!(speed(&to_summit), (1, 3.0, "ESS:1".to_owned()));
        assert_eq!(speed(&to_valley), (2, 7.0, "ESS:2".to_owned()));
        let to_all = Remote::open(&bus, &mast, 0).unwrap();
        let mut both = to_all.telemetry("airFlow").unwrap();
        let mut indices = [1, 2].map(|_| both.next(HANG_TIMEOUT).unwrap().index());
        indices.sort_unstable();
        assert_eq!(indices, [1, 2]);
        let error = to_all.command("enable").send().wait().unwrap_err();
        assert!(error.to_string().contains("ESS has no instance 0"), "{error}");
    });
}

#[test]
fn a_foreign_component_is_commanded_too() {
    on_every_transport(|site: &Site| {
        let mount = site.mount();
        let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
        let command = mount.shape(TopicKind::Command, "stop").unwrap();
        let acks = mount.shape(TopicKind::Ack, "ackcmd").unwrap();
        let bus = site.bus();
        let open = |shape: &helio_component::Shape| {
            let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
            bus.topic(spec.schema(shape.schema())).unwrap()
        };
        let mut commands = open(&command).subscribe(Subscribe::from(Start::Latest)).unwrap();
        let publisher = open(&acks).publisher().unwrap();
        let foreign = std::thread::spawn(move || {
            let sample = commands.next_sample().unwrap();
            let asked = command.codec().decode(&sample.payload).unwrap();
            let asked = command.codec().value_to_json(&asked).unwrap();
            // Neither trace nor headers, and one acknowledgement of another caller's command.
            for (number, ack) in [(1, -302), (0, 301), (0, 303)] {
                let seq_num = asked["private_seqNum"].as_i64().unwrap() - number;
                let ack = acks.codec().value_from_json(&json!({
                    "private_seqNum": seq_num, "ack": ack, "result": "said",
                    "identity": asked["private_identity"], "origin": asked["private_origin"],
                }));
                let mut payload = Vec::new();
                acks.codec().encode(&ack.unwrap(), &mut payload).unwrap();
                publisher.publish(Message::new(&payload)).wait().unwrap();
            }
            publisher
        });
        assert_eq!(remote.command("stop").send().wait().unwrap().result, "said");
        let publisher = foreign.join().unwrap();
        // Requests that only our own components support are not sent to it.
        let error = remote.command("stop").validate().unwrap_err();
        assert!(error.to_string().contains("no lease of"), "{error}");
        // Its end is detected at once, without a missed heartbeat.
        assert_eq!(remote.presence().unwrap(), Presence::Unknown);
        drop(publisher);
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
    });
}

#[test]
fn a_command_of_another_release_is_run_or_told() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .inline("moveToTarget", |command: &Command| Ok(command.text("elevation").to_owned()))
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        // An additional field is skipped; a value in another unit is not accepted as the same.
        let field = "<item><EFDB_Name>speed</EFDB_Name><IDL_Type>double</IDL_Type>\
                     <Units>deg/second</Units><Count>1</Count></item>";
        let text = "Go to a position and stay there.</Description>";
        let more = site.other_mount(text, &format!("{text}{field}"));
        let remote = Remote::open(&site.bus(), &more, 0).unwrap();
        move_to(&remote, 7.0).set("speed", 1.0).send().wait().unwrap();
        let radians = site.other_mount("<Units>deg</Units>", "<Units>radian</Units>");
        let call = |interface: &helio_component::Interface| {
            let remote = Remote::open(&site.bus(), interface, 0).unwrap();
            remote.command("stop").send().wait().unwrap();
            move_to(&remote, 7.0).send().wait().unwrap_err()
        };
        // By default its schema is rejected, and all other topics continue.
        let error = call(&radians);
        assert_eq!(error.cause(), Some(Cause::NotSent));
        assert!(error.to_string().contains("azimuth"), "{error}");
        // If every schema is accepted, the component reports each command that it cannot decode.
        for _ in 0..2 {
            let error = call(&radians.evolution(Evolution::None));
            assert_eq!(
                (error.code(), error.cause()),
                (Some(AckCode::Failed), Some(Cause::Acknowledged))
            );
            assert!(error.to_string().contains("azimuth"), "{error}");
        }
        component.stop().unwrap();
    });
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    port: u16,
}

#[test]
fn a_configuration_is_taken_before_the_state_changes() {
    on_every_transport(|site: &Site| {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("_init.yaml", "port: 1\n");
        write("high.yaml", "port: 2\n");
        write("wrong.yaml", "prot: 2\n");
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .configuration(ConfigFolder::new(folder.path()), |command: &Command, with: Settings| {
                let event = command.component().event("errorCount")?;
                event.set("late", i64::from(with.port)).write()?;
                Ok(())
            })
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut available = remote.event("configurationsAvailable").unwrap();
        let told = available.next(HANG_TIMEOUT).unwrap();
        assert_eq!(told.text("overrides"), Some("high.yaml,wrong.yaml"));
        let error = remote.set_state(SummaryState::Enabled, "wrong.yaml").unwrap_err();
        assert!(
            error.to_string().contains("_init.yaml,wrong.yaml is wrong: unknown field"),
            "{error}"
        );
        assert_eq!(component.state(), SummaryState::Standby);
        remote.set_state(SummaryState::Disabled, "high.yaml").unwrap();
        let mut applied = remote.event("configurationApplied").unwrap();
        let told = applied.next(HANG_TIMEOUT).unwrap();
        assert_eq!(told.text("configurations"), Some("_init.yaml,high.yaml"));
        let late = remote.event("errorCount").unwrap().newest().unwrap().unwrap().integer("late");
        assert_eq!(late, Some(2));
        component.stop().unwrap();
    });
}

#[test]
fn a_command_that_the_running_release_does_not_have_is_refused_at_once() {
    on_every_transport(|site: &Site| {
        let component = mount(&site.bus(), site).unwrap();
        let newer = site.other_mount("MTMount_command_stop", "MTMount_command_halt");
        let remote = Remote::open(&site.bus(), &newer, 0).unwrap();
        let error = remote.command("halt").send().wait().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NotSent));
        assert!(error.to_string().contains("MTMount that runs has no command halt"), "{error}");
        component.stop().unwrap();
    });
}

#[test]
fn another_instance_that_runs_says_nothing_of_one_that_never_did() {
    on_every_transport(|site: &Site| {
        let mast = site.interface("ESS");
        let first = Component::builder(&site.bus(), &mast, 1).start().unwrap();
        let second = Remote::open(&site.bus(), &mast, 2).unwrap();
        let error =
            second.command("start").set("configurationOverride", "").send().wait().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NobodyThere));
        first.stop().unwrap();
    });
}
