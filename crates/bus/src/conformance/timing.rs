//! Deadlines, lifespans, liveliness: by a clock that the check turns.

use std::sync::Arc;
use std::time::Duration;

use helio_core::qos::Liveliness;
use helio_core::{Qos, Tai};

use super::support::{
    Outcome, await_event, ensure, gather, listening, open, plain, process, publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::bus::Bus;
use crate::clock::TestClock;
use crate::event::Event;
use crate::publisher::Message;
use crate::subscribe::{Start, Subscribe};
use crate::transport::Alive;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "deadline_missed",
        promise: "a key that falls silent is told, once a deadline, and only that key",
        run: deadline,
    },
    Check {
        name: "lifespan_expired",
        promise: "samples older than their lifespan are dropped at the reader, counted",
        run: lifespan,
    },
    Check {
        name: "liveliness_automatic",
        promise: "a writer's coming and going is told, whatever way it goes",
        run: automatic,
    },
    Check {
        name: "liveliness_lease",
        promise: "a writer that neither publishes nor asserts within its lease counts as gone",
        run: lease,
    },
];

/// A bus with a clock that starts now and is turned by hand.
fn turned(harness: &dyn Harness) -> Result<(Bus, TestClock), Failure> {
    let now = crate::clock::Clock::now(&crate::clock::SystemClock::new());
    let clock = TestClock::new(now);
    Ok((harness.connect(Bus::builder().clock(Arc::new(clock.clone())))?, clock))
}

fn deadline(harness: &dyn Harness) -> Outcome {
    let second = Duration::from_secs(1);
    let qos = Qos { deadline: Some(second), ..plain() };
    let (bus, clock) = turned(harness)?;
    let topic = open(&bus, &unique("deadline"), &qos)?;
    let publisher = topic.publisher()?;
    let mut samples = listening(harness, (&topic, Subscribe::from(Start::Latest)), &publisher)?;
    publish_numbers(&publisher, "steady", 0..1)?;
    publish_numbers(&publisher, "silent", 1..2)?;
    gather(harness, &mut samples, 2)?;
    clock.advance(second / 2);
    publish_numbers(&publisher, "steady", 2..3)?;
    let early = gather(harness, &mut samples, 1)?;
    ensure!(early.others.is_empty(), "told before the deadline: {:?}", early.others);
    clock.advance(second * 3 / 4);
    let missed = |event: &Event| match event {
        Event::DeadlineMissed(missed) => Some(missed.clone()),
        _ => None,
    };
    let told = await_event(harness, &mut samples, "the missed deadline", missed)?;
    ensure!(&told.key[..] == b"silent" && told.in_a_row == 1, "{told:?}");
    ensure!(samples.try_next()?.is_none(), "the steady key was told too");
    clock.advance(second * 2);
    let told = await_event(harness, &mut samples, "the next missed deadline", missed)?;
    ensure!(told.in_a_row >= 2 || &told.key[..] == b"steady", "{told:?}");
    ensure!(samples.stats().deadlines_missed >= 2, "{:?}", samples.stats());
    Ok(())
}

fn lifespan(harness: &dyn Harness) -> Outcome {
    let (bus, clock) = turned(harness)?;
    let topic = open(&bus, &unique("lifespan"), &plain())?;
    let publisher = topic.publisher()?;
    let options = Subscribe::from(Start::Latest).lifespan(Duration::from_secs(1));
    let mut samples = listening(harness, (&topic, options), &publisher)?;
    let now = crate::clock::Clock::now(&clock).nanos();
    let ages = [0_i64, 500, 1_500, 999, 3_600_000];
    for (number, age_ms) in ages.iter().enumerate() {
        let time = Tai::from_nanos(now - age_ms * 1_000_000);
        let bytes = (number as u64).to_le_bytes();
        publisher.publish(Message::new(&bytes).time(time)).wait()?;
    }
    let numbers = gather(harness, &mut samples, 3)?.numbers()?;
    ensure!(numbers == [0, 1, 3], "{numbers:?} came");
    let stats = samples.stats();
    ensure!(stats.expired == 2 && stats.lost == 0, "{stats:?}");
    Ok(())
}

fn automatic(harness: &dyn Harness) -> Outcome {
    let (bus, writer) = (process(harness)?, process(harness)?);
    let name = unique("automatic");
    let topic = open(&bus, &name, &plain())?;
    let mut watching = topic.subscribe(Subscribe::from(Start::Latest).watch_writers())?;
    let publisher = open(&writer, &name, &plain())?.publisher()?;
    publish_numbers(&publisher, "k", 0..1)?;
    let who = publisher.producer();
    let told = |alive: Alive| {
        let who = who.clone();
        move |event: &Event| match event {
            Event::Liveliness(told) if told.producer.name == who.name => {
                (told.alive == alive).then_some(told.producer.incarnation)
            }
            _ => None,
        }
    };
    let incarnation = await_event(harness, &mut watching, "the writer's coming", told(Alive::Yes))?;
    ensure!(incarnation == who.incarnation, "incarnation {incarnation} of {who:?}");
    drop(publisher);
    writer.close();
    await_event(harness, &mut watching, "the writer's going", told(Alive::No))?;
    Ok(())
}

fn lease(harness: &dyn Harness) -> Outcome {
    let lease = Duration::from_secs(2);
    let qos = Qos { liveliness: Liveliness::Lease(lease), ..plain() };
    let (bus, clock) = turned(harness)?;
    let topic = open(&bus, &unique("lease"), &qos)?;
    let mut watching = topic.subscribe(Subscribe::from(Start::Latest).watch_writers())?;
    let publisher = topic.publisher()?;
    publish_numbers(&publisher, "k", 0..1)?;
    let change = |event: &Event| match event {
        Event::Liveliness(told) => Some(told.alive),
        _ => None,
    };
    let told = await_event(harness, &mut watching, "the writer's coming", change)?;
    ensure!(told == Alive::Yes, "{told:?}");
    clock.advance(lease * 3 / 4);
    publisher.assert_alive()?;
    clock.advance(lease * 3 / 4);
    while let Some(event) = watching.try_next()? {
        ensure!(change(&event).is_none(), "told within the lease: {event:?}");
    }
    clock.advance(lease);
    let told = await_event(harness, &mut watching, "the writer's silence", change)?;
    ensure!(told == Alive::No, "{told:?}");
    publish_numbers(&publisher, "k", 1..2)?;
    clock.advance(lease / 2);
    let told = await_event(harness, &mut watching, "the writer's return", change)?;
    ensure!(told == Alive::Yes, "{told:?}");
    Ok(())
}
