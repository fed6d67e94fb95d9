//! Opening, refusing, closing, and restarts of the engine.

use std::time::{Duration, Instant};

use helio_core::Qos;
use helio_core::qos::{Durability, Guarantee, Ownership};

use super::support::{
    Outcome, ensure, gather, gather_at_least, listening, number, open, plain, process,
    publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::error::{PublishError, ReadError, TopicError, TransportError};
use crate::event::{Event, Outage};
use crate::publisher::Message;
use crate::subscribe::{Start, Subscribe};
use crate::topic::TopicSpec;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "open_refuses_by_name",
        promise: "opening a topic refuses an unsupported policy by name",
        run: refuses,
    },
    Check {
        name: "open_checks",
        promise: "opening a topic with another quality of service is an error that names the field",
        run: checks,
    },
    Check {
        name: "open_unknown",
        promise: "opening an unknown topic without a quality of service is an error",
        run: unknown,
    },
    Check {
        name: "close_ends_waits",
        promise: "closing a bus ends its waits at once, with an error",
        run: close,
    },
    Check {
        name: "close_leaves_others",
        promise: "closing one connection does not affect another",
        run: others,
    },
    Check {
        name: "reconnect",
        promise: "a restart of the engine is reported and survived, and no acknowledged sample is \
                  lost",
        run: reconnect,
    },
];

fn refuses(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let can = bus.capabilities().clone();
    let asks = [
        ("durability", Qos { durability: Durability::Persistent, ..plain() }),
        ("guarantee", Qos { guarantee: Guarantee::Durable, ..plain() }),
        ("ownership", Qos { ownership: Ownership::Exclusive, ..plain() }),
        ("history", Qos { history: helio_core::qos::History::KeepAll, ..plain() }),
        ("partitions", Qos { partitions: 1_024, ..plain() }),
    ];
    for (policy, qos) in asks {
        let opened = bus.topic(TopicSpec::new(&unique(policy))?.qos(qos.clone()));
        match (can.check(&unique(policy).parse()?, &qos), opened) {
            (Ok(()), Ok(_)) => {}
            (Err(_), Err(TopicError::Refused(refusal))) => {
                ensure!(refusal.policy == policy, "{} named for {policy}", refusal.policy);
                let whole = !refusal.asked.is_empty() && !refusal.remedy.is_empty();
                ensure!(whole && refusal.transport == can.transport, "{refusal:?}");
            }
            (declared, got) => {
                ensure!(false, "{policy}: declared {declared:?}, opening gave {got:?}");
            }
        }
    }
    Ok(())
}

fn checks(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("checks");
    open(&bus, &name, &plain())?;
    for bus in [&bus, &other] {
        open(bus, &name, &plain())?;
        let as_it_is = bus.topic(TopicSpec::new(&name)?)?;
        ensure!(*as_it_is.qos() == plain(), "it is {:?}", as_it_is.qos());
        let changed = Qos { deadline: Some(Duration::from_secs(1)), ..plain() };
        match bus.topic(TopicSpec::new(&name)?.qos(changed)) {
            Err(TopicError::Transport(TransportError::Differs { field, .. })) => {
                ensure!(field == "deadline", "the field {field} is named");
            }
            got => ensure!(false, "another deadline gave {got:?}"),
        }
    }
    Ok(())
}

fn unknown(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let name = unique("unknown");
    let opened = bus.topic(TopicSpec::new(&name)?);
    ensure!(matches!(opened, Err(TopicError::NoSuchTopic(_))), "{opened:?}");
    let info = bus.topic_info(&name.parse()?)?;
    ensure!(info.is_none(), "{info:?}");
    Ok(())
}

fn close(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("close"), &plain())?;
    let publisher = topic.publisher()?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    let patience = harness.timeout();
    let closed = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || samples.next_timeout(patience));
        bus.close();
        waiting.join().expect("it returns")
    });
    let said = matches!(closed, Err(ReadError::Transport(TransportError::Closed)));
    ensure!(said, "the wait ended with {closed:?}");
    let late = publisher.publish(Message::new(b"late")).wait();
    let said = matches!(late, Err(PublishError::Transport(TransportError::Closed)));
    ensure!(said, "a publish after the end gave {late:?}");
    Ok(())
}

fn others(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("leaves");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let topic = open(&bus, &name, &plain())?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    let _open = open(&other, &name, &plain())?.subscribe(Subscribe::from(Start::Latest))?;
    other.close();
    publish_numbers(&publisher, "k", 0..3)?;
    gather(harness, &mut samples, 3)?;
    Ok(())
}

fn reconnect(harness: &dyn Harness) -> Outcome {
    let Some(engine) = harness.engine() else {
        return Err(Failure::Skipped("there is no engine that could be stopped"));
    };
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("reconnect");
    let publisher = open(&bus, &name, &Qos::stream())?.publisher()?;
    let reading = open(&other, &name, &Qos::stream())?;
    let mut samples = listening(harness, &reading, Subscribe::from(Start::Latest), &publisher)?;
    publish_numbers(&publisher, "k", 0..10)?;
    let mut got = gather_at_least(harness, &mut samples, 10)?.numbers()?;
    engine.stop();
    let down = publisher.publish(Message::new(&99_u64.to_le_bytes()));
    let told = super::support::await_event(harness, &mut samples, "the outage", |event| {
        matches!(event, Event::Outage(Outage::Lost { .. })).then_some(())
    });
    engine.start();
    told?;
    let while_down = down.wait_timeout(harness.timeout());
    let until = Instant::now() + harness.timeout();
    while let Err(error) = publish_numbers(&publisher, "k", 10..11) {
        ensure!(Instant::now() < until, "the publisher did not recover: {error:?}");
        std::thread::yield_now();
    }
    while !got.contains(&10) {
        for sample in gather_at_least(harness, &mut samples, 1)?.samples {
            got.push(number(&sample)?);
        }
    }
    let kept = while_down.is_err() || got.contains(&99);
    ensure!(kept, "a publish was acknowledged during the outage and is lost: {got:?}");
    let before: Vec<u64> = got.iter().copied().filter(|number| *number < 10).collect();
    ensure!(before.iter().copied().eq(0..10), "received {got:?}");
    Ok(())
}
