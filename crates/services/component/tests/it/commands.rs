//! Outcomes of commands: cancelled, validated, locked, expired, repeated, rejected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::{HANG_TIMEOUT, Site, move_to, on_every_transport};
use helio_bus::Tai;
use helio_component::protocol::caller::{Cause, MissingFields};
use helio_component::protocol::checks::{Limits, Nan};
use helio_component::protocol::controller::MAX_CONCURRENT;
use helio_component::protocol::{AckCode, StateCommand, SummaryState};
use helio_component::{
    AuditPhase, AuditRecord, Builder, Command, CommandError, Component, Failed, FieldError,
    Handler, Interface, Remote, RemoteOptions,
};
use helio_core::Codec;
use helio_core::schema::HasSchema;

fn mount(site: &Site) -> Builder {
    Component::builder(&site.bus(), &site.mount(), 0).initial_state(SummaryState::Enabled)
}

fn remote(site: &Site) -> Remote {
    Remote::open(&site.bus(), &site.mount(), 0).unwrap()
}

/// Reports progress once, then runs until it is cancelled.
fn endless(command: &Command) -> Result<(), Failed> {
    command.in_progress(Duration::from_secs(600), "running", None);
    command.pause(Duration::from_secs(3600))
}

/// A handler that waits for other things polls its cancellation.
#[test]
fn a_call_can_be_looked_at_without_waiting_for_its_end() {
    on_every_transport(|site: &Site| {
        let component = mount(site).on("moveToTarget", endless).start().unwrap();
        let remote = remote(site);
        let mut call = move_to(&remote, 7.0).send();
        while call.next_timeout(HANG_TIMEOUT).unwrap().unwrap().code != AckCode::InProgress {}
        assert!(call.next_timeout(Duration::from_millis(1)).unwrap().is_none());
        assert!(call.next_timeout(Duration::ZERO).unwrap().is_none());
        call.send_cancel().unwrap().wait().unwrap();
        let error = call.next_timeout(HANG_TIMEOUT).unwrap_err();
        assert_eq!(error.code(), Some(AckCode::Aborted));
        assert!(call.next_timeout(HANG_TIMEOUT).unwrap().is_none(), "its end was told");
        assert!(call.send_cancel().unwrap_err().to_string().contains("not running"));

        let path = remote.path_to(SummaryState::Standby).unwrap();
        assert_eq!(path, [StateCommand::Disable, StateCommand::Standby]);
        assert_eq!(remote.path_to(SummaryState::Enabled).unwrap(), []);
        component.stop().unwrap();
    });
}

#[test]
fn a_command_is_cancelled_whether_it_runs_or_waits() {
    on_every_transport(|site: &Site| {
        let component = mount(site).on("moveToTarget", endless).start().unwrap();
        let remote = remote(site);
        let mut running = move_to(&remote, 7.0).send();
        while running.next().unwrap().unwrap().code != AckCode::InProgress {}
        let waiting = move_to(&remote, 7.0).send();
        waiting.cancel().unwrap();
        assert_eq!(waiting.wait().unwrap_err().code(), Some(AckCode::Aborted));
        running.cancel().unwrap();
        let error = running.wait().unwrap_err();
        assert_eq!(error.code(), Some(AckCode::Aborted));
        assert!(error.to_string().contains("moveToTarget of MTMount"), "{error}");
        component.stop().unwrap();
    });
}

struct Careful(Arc<AtomicUsize>);

impl Handler for Careful {
    fn run(&self, _: &Command) -> Result<helio_component::protocol::Done, Failed> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(().into())
    }

    fn validate(&self, command: &Command) -> Result<(), Failed> {
        match command.number("elevation") {
            below if below < 15.0 => Err(Failed::new("the dome is in the way below 15 deg")),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_command_is_validated_and_not_run() {
    on_every_transport(|site: &Site| {
        let runs = Arc::new(AtomicUsize::new(0));
        let limits = Limits { min: Some(-270.0), max: Some(270.0), nan: Nan::Refused };
        let component = mount(site)
            .on("moveToTarget", Careful(Arc::clone(&runs)))
            .limit("moveToTarget", "azimuth", limits)
            .start()
            .unwrap();
        let remote = remote(site);
        let to = |azimuth: f64, elevation: f64| {
            remote.command("moveToTarget").set("azimuth", azimuth).set("elevation", elevation)
        };
        assert_eq!(to(10.0, 45.0).validate().unwrap().result, "valid");
        let refused = to(10.0, 5.0).validate().unwrap_err();
        assert!(refused.to_string().contains("the dome is in the way"), "{refused}");
        let refused = to(300.0, 45.0).validate().unwrap_err();
        assert!(refused.to_string().contains("azimuth is 300; it must be"), "{refused}");
        assert_eq!(runs.load(Ordering::SeqCst), 0);
        // The same limits apply when it runs; its own check is for validation only.
        assert_eq!(to(300.0, 5.0).send().wait().unwrap_err().code(), Some(AckCode::Failed));
        let refused = to(f64::NAN, 45.0).send().wait().unwrap_err();
        assert!(refused.to_string().contains("azimuth is NaN"), "{refused}");
        to(10.0, 45.0).send().wait().unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        component.stop().unwrap();
    });
}

#[test]
fn what_does_not_fit_is_told_before_it_is_sent() {
    let site = Site::memory();
    let remote = remote(&site);
    let told = |call: helio_component::CallBuilder| call.send().wait().unwrap_err().to_string();
    assert_eq!(
        told(remote.command("moveToTarget").set("azimuth", "north")),
        "MTMount/command/moveToTarget, field azimuth: string does not fit double"
    );
    assert!(told(remote.command("moveToTarget").set("azimut", 1.0)).contains("no field azimut"));
    assert!(told(remote.command("fly")).starts_with("MTMount has no command fly; it has "));
    assert!(site.bus().topics().unwrap().is_empty());
}

#[test]
fn an_enumeration_that_nobody_set_is_judged_by_the_component() {
    let site = Site::memory();
    let (bus, interface) = (site.bus(), site.interface("MTM1M3"));
    let ran = Arc::new(AtomicUsize::new(0));
    let running = Arc::clone(&ran);
    let component = Component::builder(&bus, &interface, 0)
        .on("enableHardpointChase", move |_: &Command| {
            running.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .start()
        .unwrap();
    let refusing = Remote::open(&bus, &interface, 0).unwrap();
    let unset = refusing.command("enableHardpointChase").send().wait().unwrap_err();
    assert!(matches!(unset, CommandError::Field(FieldError::Missing { .. })), "{unset}");
    let missing_fields = Some(MissingFields::Default);
    let options = RemoteOptions { missing_fields, ..Default::default() };
    let remote = Remote::with_options(&bus, &interface, 0, options).unwrap();
    let unset = remote.command("enableHardpointChase").send().wait().unwrap_err();
    assert_eq!((unset.code(), unset.cause()), (Some(AckCode::Failed), Some(Cause::Acknowledged)));
    assert!(unset.to_string().contains("hardpointActuator[0] is 0; it must be"), "{unset}");
    let zeros = remote.command("enableHardpointChase").set("hardpointActuator", vec![0; 6]);
    let wrong = zeros.send().wait().unwrap_err();
    assert!(matches!(wrong, CommandError::Field(_)), "{wrong}");
    remote
        .command("enableHardpointChase")
        .set("hardpointActuator", vec![1, 2, 3, 4, 5, 6])
        .send()
        .wait()
        .unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    component.stop().unwrap();
}

#[test]
fn a_locked_component_takes_commands_of_one_caller() {
    on_every_transport(|site: &Site| {
        let component = mount(site).inline("stop", |_: &Command| Ok(())).start().unwrap();
        let named = |name: &str| {
            let options = RemoteOptions { caller: Some(name.to_owned()), ..Default::default() };
            Remote::with_options(&site.bus(), &site.mount(), 0, options).unwrap()
        };
        let (alice, bob) = (named("alice"), named("bob"));
        alice.lock(Duration::from_secs(600)).unwrap();
        alice.command("stop").send().wait().unwrap();
        let refused = bob.command("stop").send().wait().unwrap_err();
        assert_eq!(refused.code(), Some(AckCode::NoPerm));
        assert!(refused.to_string().contains("locked by alice until"), "{refused}");
        let refused = bob.command("stop").caller("carol").send().wait().unwrap_err();
        assert_eq!(refused.code(), Some(AckCode::NoPerm));
        assert!(alice.lock(Duration::from_secs(100_000)).is_err());
        alice.unlock().unwrap();
        bob.command("stop").send().wait().unwrap();
        component.stop().unwrap();
    });
}

#[test]
fn an_expired_or_repeated_command_is_not_run() {
    on_every_transport(|site: &Site| {
        let runs = Arc::new(AtomicUsize::new(0));
        let handler = Careful(Arc::clone(&runs));
        let component = mount(site).on("stop", handler).start().unwrap();
        let remote = remote(site);
        let expired = remote.command("stop").expiry(Tai::from_nanos(1)).send().wait().unwrap_err();
        assert_eq!(expired.code(), Some(AckCode::Timeout));
        assert!(expired.to_string().contains("expired"), "{expired}");
        assert_eq!(runs.load(Ordering::SeqCst), 0);
        for _ in 0..3 {
            let call = remote.command("stop").key("night 7").expires_in(HANG_TIMEOUT);
            assert_eq!(call.send().wait().unwrap().result, "Done");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        component.stop().unwrap();
    });
}

#[test]
fn a_stream_ignores_what_comes_too_late() {
    on_every_transport(|site: &Site| {
        let component = mount(site)
            .inline("trackTarget", |_: &Command| Ok(()))
            .stream("trackTarget", "taiTime", Duration::ZERO)
            .start()
            .unwrap();
        let remote = remote(site);
        let (warn, warned) = mpsc::channel();
        remote.on_warning(move |text| warn.send(text.to_owned()).unwrap());
        let now = component.now();
        for late in [false, true, true, false] {
            let ahead = if late { -1_000_000_000 } else { 600_000_000_000 };
            let time = Tai::from_nanos(now.nanos() + ahead);
            let call = remote.command("trackTarget").set("taiTime", time.seconds()).time(time);
            let numbers = ["azimuth", "azimuthVelocity", "elevation", "elevationVelocity"];
            let call = numbers.into_iter().fold(call, |call, name| call.set(name, 0.0));
            let call = call.set("trackId", 1).set("tracksys", "LOCAL").set("radesys", "");
            let outcome = call.send().wait();
            let code = outcome.as_ref().map_or_else(|error| error.code(), |ack| Some(ack.code));
            let expected = if late { AckCode::Timeout } else { AckCode::Complete };
            assert_eq!(code, Some(expected), "{outcome:?}");
        }
        let stats = component.stream("trackTarget").unwrap();
        assert_eq!((stats.received, stats.late, stats.most_missing), (4, 2, 2));
        assert_eq!(remote.late_sent(), 2);
        let told = warned.try_recv().unwrap();
        assert!(told.contains(": 1 command was sent to MTMount less than 50 ms ahead"), "{told}");
        component.stop().unwrap();
    });
}

#[test]
fn every_command_and_its_outcome_is_in_the_audit() {
    on_every_transport(|site: &Site| {
        let failing = |_: &Command| Err::<(), _>(Failed::with_code(3, "no power"));
        let component = mount(site).inline("moveToTarget", failing).start().unwrap();
        let options = RemoteOptions { caller: Some("alice".to_owned()), ..Default::default() };
        let remote = Remote::with_options(&site.bus(), &site.mount(), 0, options).unwrap();
        move_to(&remote, 7.0).send().wait().unwrap_err();
        remote.command("stop").send().wait().unwrap_err();
        let bus = site.bus();
        let spec = helio_bus::TopicSpec::new("MTMount/audit").unwrap();
        let topic = bus.topic(spec).unwrap();
        let start = helio_bus::Subscribe::from(helio_bus::Start::Earliest);
        let mut samples = topic.subscribe(start).unwrap();
        let codec = Codec::new(&AuditRecord::schema().unwrap());
        let mut next = || -> AuditRecord {
            codec.deserialize(&samples.next_sample().unwrap().payload).unwrap()
        };
        let (received, finished, refused) = (next(), next(), next());
        assert_eq!((received.phase, received.ack), (AuditPhase::Received, 0));
        assert!(received.arguments.contains("\"azimuth\":7.0"), "{}", received.arguments);
        assert_eq!((finished.phase, finished.ack, finished.error), (AuditPhase::Finished, -302, 3));
        assert_eq!((&*finished.result, &*finished.caller), ("no power", "declared:alice"));
        assert_eq!((&*refused.command, refused.phase), ("stop", AuditPhase::Finished));
        assert!(refused.result.contains("does not implement stop"), "{}", refused.result);
        component.stop().unwrap();
    });
}

#[test]
fn a_handler_that_panics_fails_its_command_only() {
    on_every_transport(|site: &Site| {
        let component = mount(site)
            .on("moveToTarget", |_: &Command| -> Result<(), Failed> { panic!("no such axis") })
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        let remote = remote(site);
        let error = move_to(&remote, 7.0).send().wait().unwrap_err();
        assert!(error.to_string().contains("panicked: no such axis"), "{error}");
        assert_eq!(error.cause(), Some(Cause::Acknowledged));
        remote.command("stop").send().wait().unwrap();
        component.stop().unwrap();
    });
}

const LAMP: &str = "
name: Lamp
generics: [csc]
enumerations:
  Color: [Red, Green]
commands:
  shine:
    description: Give light.
    fields:
      - {name: color, type: long, enumeration: Color, description: Which.}
      - {name: level, type: byte, description: How much.}
      - {name: times, type: double, count: 3, description: When.}
";

#[test]
fn what_the_interface_does_not_allow_is_refused_before_it_is_sent() {
    let interfaces = helio_core::sal::Interfaces::load([("Lamp.yaml", LAMP)]).unwrap();
    let lamp = Interface::of(&interfaces, "Lamp").unwrap();
    let site = Site::memory();
    let remote = Remote::open(&site.bus(), &lamp, 0).unwrap();
    let refused = |field: &str, value: serde_json::Value| {
        let call = remote.command("shine").set("color", 1).set_json(field, &value);
        let error = call.send().wait().unwrap_err();
        assert!(matches!(error, CommandError::Field(_)), "{error}");
        assert!(error.to_string().contains(field), "{error}");
    };
    refused("color", 3.into());
    refused("color", "Blue".into());
    refused("level", 256.into());
    refused("level", (-129).into());
    refused("times", vec![1.0, 2.0].into());
    refused("times", "noon".into());
    refused("colour", 1.into());
}

#[test]
fn handlers_that_hang_hold_up_no_other_command() {
    let site = Site::memory();
    let component = mount(&site)
        .on("moveToTarget", endless)
        .concurrent("moveToTarget")
        .on("stop", |_: &Command| Ok(()))
        .start()
        .unwrap();
    let remote = remote(&site);
    let mut calls: Vec<_> =
        (0..MAX_CONCURRENT).map(|_| move_to(&remote, 7.0).timeout(HANG_TIMEOUT).send()).collect();
    for call in &mut calls {
        while call.next().unwrap().unwrap().code != AckCode::InProgress {}
    }
    remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
    component.stop().unwrap();
}
