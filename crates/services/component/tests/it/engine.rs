//! Components and their callers, on every transport of this machine.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::{HANG_TIMEOUT, Site, move_to, on_every_transport};
use helio_bus::{Message, TopicSpec};
use helio_component::protocol::caller::Presence;
use helio_component::protocol::{AckCode, StateCommand, SummaryState};
use helio_component::{Call, Command, CommandError, Component, Failed, Remote};
use helio_core::sal::TopicKind;

fn state_of(remote: &Remote) -> SummaryState {
    remote.state().unwrap().unwrap()
}

#[test]
fn a_command_is_run_and_acknowledged() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .on("moveToTarget", |command: &Command| {
                command.in_progress(Duration::from_secs(5), "half way", Some(0.5));
                let target = command.component().event("target")?;
                target.set("azimuth", command.number("azimuth")).write()?;
                Ok::<_, Failed>(serde_json::json!({"elevation": command.number("elevation")}))
            })
            .inline("stop", |_: &Command| Ok(()))
            .initial_state(SummaryState::Enabled)
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut target = remote.event("target").unwrap();
        assert!(target.newest().unwrap().is_none());
        let mut call =
            remote.command("moveToTarget").set("azimuth", 90).set("elevation", 45.0).send();
        let mut told = Vec::new();
        while let Some(ack) = call.next().unwrap() {
            told.push((ack.code, ack.result, ack.progress, ack.typed));
        }
        let expected = [
            (AckCode::InProgress, "half way".to_owned(), Some(0.5), None),
            (AckCode::Complete, "Done".to_owned(), None, Some("{\"elevation\":45.0}".to_owned())),
        ];
        let expected: Vec<_> = expected.into_iter().collect();
        assert!(told.ends_with(&expected), "{told:?}");
        let reading = target.next(HANG_TIMEOUT).unwrap();
        assert_eq!(reading.number("azimuth"), Some(90.0));
        assert_eq!((reading.identity(), reading.seq_num()), ("MTMount", 1));
        for _ in 0..3 {
            assert_eq!(remote.command("stop").send().wait().unwrap().result, "Done");
        }
        assert_eq!(component.state(), SummaryState::Enabled);
        component.stop().unwrap();
        assert_eq!(state_of(&remote), SummaryState::Offline);
    });
}

#[test]
fn commands_lead_through_the_states() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .end(StateCommand::Enable, |command: &Command| {
                // The hardware does not answer the first time.
                let fails = command.component().event("errorCount")?;
                let first = fails.set("missed", 1).write()?;
                if first.published { Err(Failed::with_code(7, "no answer")) } else { Ok(()) }
            })
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut states = remote.event("summaryState").unwrap();
        let error = remote.set_state(SummaryState::Enabled, "").unwrap_err();
        assert_eq!(error.to_string(), "enable of MTMount: no answer (CMD_FAILED)");
        assert_eq!(error.ack().unwrap().error, 7);
        remote.set_state(SummaryState::Enabled, "").unwrap();
        assert_eq!(component.state(), SummaryState::Enabled);
        let error =
            remote.command("start").set("configurationOverride", "").send().wait().unwrap_err();
        assert_eq!(error.code(), Some(AckCode::Failed));
        assert!(error.to_string().contains("start not allowed in state ENABLED"), "{error}");
        component.fault(12, "a brake is stuck", "");
        let start = remote.command("start").set("configurationOverride", "");
        let error = start.send().wait().unwrap_err();
        let why = "start not allowed in state FAULT (error 12: a brake is stuck)";
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.ack().unwrap().error, 12);
        assert_eq!(state_of(&remote), SummaryState::Fault);
        let mut errors = remote.event("errorCode").unwrap();
        let told = errors.newest().unwrap().unwrap();
        assert_eq!(
            (told.integer("errorCode"), told.text("errorReport")),
            (Some(12), Some("a brake is stuck"))
        );
        remote.set_state(SummaryState::Offline, "").unwrap();
        component.wait().unwrap();
        let mut seen = Vec::new();
        while let Some(reading) = states.try_next().unwrap() {
            seen.push(reading.fields().label("summaryState").unwrap().to_owned());
        }
        let expected = [
            "Standby", "Disabled", "Enabled", "Disabled", "Enabled", "Fault", "Standby", "Offline",
        ];
        assert_eq!(seen, expected);
    });
}

/// Makes a component run a command and end before its caller has read an acknowledgement.
fn run_and_gone(site: &Site, remote: &Remote, then: impl FnOnce(Call)) {
    let (runs, ran) = mpsc::channel();
    let component = Component::builder(&site.bus(), &site.mount(), 0)
        .inline("stop", move |_: &Command| runs.send(()).map_err(|_| Failed::aborted()))
        .start()
        .unwrap();
    let call = remote.command("stop").send();
    ran.recv_timeout(HANG_TIMEOUT).unwrap();
    component.stop().unwrap();
    then(call);
}

#[test]
fn what_a_component_said_before_it_went_away_counts_whoever_looks() {
    on_every_transport(|site: &Site| {
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let done = |call: Call| assert_eq!(call.wait().unwrap().code, AckCode::Complete);
        run_and_gone(site, &remote, |call| {
            assert_eq!(remote.presence().unwrap(), Presence::Gone);
            done(call);
        });
        run_and_gone(site, &remote, |call| {
            let nobody = remote.command("stop").send().wait().unwrap_err();
            assert_eq!(nobody.code(), Some(AckCode::NoAck), "{nobody}");
            done(call);
        });
        // It restarts at once, and a call finds it immediately.
        run_and_gone(site, &remote, |call| {
            let _next = Component::builder(&site.bus(), &site.mount(), 0).start().unwrap();
            assert!(matches!(remote.presence().unwrap(), Presence::Here { .. }));
            done(call);
        });
        // Another call waits and has not read the available acknowledgements yet.
        for _ in 0..10 {
            run_and_gone(site, &remote, |call| {
                std::thread::scope(|scope| {
                    let waits = scope.spawn(|| done(call));
                    assert_eq!(remote.presence().unwrap(), Presence::Gone);
                    waits.join().unwrap();
                });
            });
        }
    });
}

#[test]
fn a_call_to_a_component_that_goes_away_ends_for_all_who_wait() {
    on_every_transport(|site: &Site| {
        let (runs, ran) = mpsc::channel();
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .on("stop", move |command: &Command| {
                runs.send(()).map_err(|_| Failed::aborted())?;
                command.pause(HANG_TIMEOUT)
            })
            .concurrent("stop")
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let calls = [0; 4].map(|_| remote.command("stop").timeout(HANG_TIMEOUT).send());
        calls.iter().for_each(|_| ran.recv_timeout(HANG_TIMEOUT).unwrap());
        std::thread::scope(|scope| {
            let waits = calls.map(|call| scope.spawn(|| call.wait()));
            component.stop().unwrap();
            for ended in waits.map(|thread| thread.join().unwrap()) {
                let error: CommandError = ended.unwrap_err();
                assert_eq!(error.code(), Some(AckCode::Aborted), "{error}");
            }
        });
    });
}

#[test]
fn of_progress_that_nobody_asked_for_the_newest_is_kept_and_the_end() {
    on_every_transport(|site: &Site| {
        let (begin, begun) = mpsc::channel();
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .inline("moveToTarget", move |command: &Command| {
                begin.send(()).unwrap();
                for step in 1..=50 {
                    command.in_progress(HANG_TIMEOUT, &format!("step {step}"), None);
                }
                Ok(())
            })
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut held = move_to(&remote, 7.0).send();
        // Topics have no order among each other: a stop that is sent at once may run first.
        begun.recv_timeout(HANG_TIMEOUT).unwrap();
        // Commands run one by one here, so this reads all acknowledgements of the previous one.
        remote.command("stop").send().wait().unwrap();
        let mut told = Vec::new();
        while let Some(ack) = held.next().unwrap() {
            told.push((ack.code, ack.result));
        }
        let expected =
            [(AckCode::InProgress, "step 50".to_owned()), (AckCode::Complete, "Done".to_owned())];
        assert_eq!(told, expected);
        component.stop().unwrap();
    });
}

#[test]
fn acknowledgements_of_a_quiet_night_are_not_read_before_a_command() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let (warn, warned) = mpsc::channel();
        remote.on_warning(move |text| warn.send(text.to_owned()).unwrap());
        let stop = || remote.command("stop").send().wait().unwrap();
        stop();
        // They belong to another call; its events show that they were read.
        let shape = site.mount().shape(TopicKind::Ack, "ackcmd").unwrap();
        let spec = TopicSpec::of(shape.topic().topic_name().clone());
        let other = site.bus().topic(spec).unwrap().publisher().unwrap();
        let night = |count: usize| {
            for _ in 0..count {
                other.publish(Message::new(b"no record")).wait().unwrap();
            }
            stop();
            warned.try_iter().count()
        };
        assert_eq!(night(1_000), 0);
        stop();
        assert!(night(1) > 0, "few are read");
        component.stop().unwrap();
    });
}
