//! Deadlines, lifespans and liveliness, on a simulated clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_core::qos::{Liveliness, Ownership};
use helio_core::{Producer, Qos, Tai};

use super::support::{
    Outcome, await_event, ensure, gather, listening, open, plain, process, publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::bus::Bus;
use crate::clock::TestClock;
use crate::error::{PublishError, TopicError, TransportError};
use crate::event::Event;
use crate::publisher::{Message, Publisher};
use crate::subscribe::{Start, Subscribe};
use crate::subscription::Subscription;
use crate::topic::Topic;
use crate::transport::{Alive, WriterInfo};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "deadline_missed",
        promise: "a key without samples is reported once a deadline, and only that key",
        run: deadline,
    },
    Check {
        name: "lifespan_expired",
        promise: "samples older than their lifespan are dropped at the reader and counted",
        run: lifespan,
    },
    Check {
        name: "liveliness_automatic",
        promise: "a writer's start and end are reported, however it ends",
        run: automatic,
    },
    Check {
        name: "liveliness_lease",
        promise: "a writer that neither publishes nor renews within its lease is reported gone",
        run: lease,
    },
    Check {
        name: "lease_held",
        promise: "an exclusive topic stays its writer's while that renews within the lease, even \
                  without publishing",
        run: held,
    },
    Check {
        name: "lease_taken_over",
        promise: "an exclusive topic whose writer's lease has expired can be taken over, and the \
                  first writer is fenced",
        run: taken_over,
    },
];

/// Buses with one simulated clock, which starts now.
fn turned_by(clock: &TestClock, harness: &dyn Harness, name: &str) -> Result<Bus, Failure> {
    let builder = Bus::builder().producer(name).clock(Arc::new(clock.clone()));
    Ok(harness.connect(builder)?)
}

fn clock() -> TestClock {
    TestClock::new(crate::clock::Clock::now(&crate::clock::SystemClock::new()))
}

fn turned(harness: &dyn Harness) -> Result<(Bus, TestClock), Failure> {
    let clock = clock();
    Ok((harness.connect(Bus::builder().clock(Arc::new(clock.clone())))?, clock))
}

fn deadline(harness: &dyn Harness) -> Outcome {
    let second = Duration::from_secs(1);
    let qos = Qos { deadline: Some(second), ..plain() };
    let (bus, clock) = turned(harness)?;
    let topic = open(&bus, &unique("deadline"), &qos)?;
    let publisher = topic.publisher()?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    publish_numbers(&publisher, "steady", 0..1)?;
    publish_numbers(&publisher, "silent", 1..2)?;
    gather(harness, &mut samples, 2)?;
    clock.advance(second / 2);
    publish_numbers(&publisher, "steady", 2..3)?;
    let early = gather(harness, &mut samples, 1)?;
    ensure!(early.others.is_empty(), "reported before the deadline: {:?}", early.others);
    clock.advance(second * 3 / 4);
    let missed = |event: &Event| match event {
        // Engines without offsets are matched by samples without a key, whose deadline is missed,
        // too.
        Event::DeadlineMissed(missed) if !missed.key.is_empty() => Some(missed.clone()),
        _ => None,
    };
    let told = await_event(harness, &mut samples, "the missed deadline", missed)?;
    ensure!(&told.key[..] == b"silent" && told.in_a_row == 1, "{told:?}");
    while let Some(event) = samples.try_next()? {
        ensure!(missed(&event).is_none(), "the steady key was reported, too");
    }
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
    let mut samples = listening(harness, &topic, options, &publisher)?;
    let now = crate::clock::Clock::now(&clock).nanos();
    let ages = [0_i64, 500, 1_500, 999, 3_600_000];
    for (number, age_ms) in ages.iter().enumerate() {
        let time = Tai::from_nanos(now - age_ms * 1_000_000);
        let bytes = (number as u64).to_le_bytes();
        publisher.publish(Message::new(&bytes).time(time)).wait()?;
    }
    let numbers = gather(harness, &mut samples, 3)?.numbers()?;
    ensure!(numbers == [0, 1, 3], "received {numbers:?}");
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
        ensure!(change(&event).is_none(), "reported within the lease: {event:?}");
    }
    let told = await_silence(harness, &clock, lease, &mut watching, change)?;
    ensure!(told == Alive::No, "{told:?}");
    publish_numbers(&publisher, "k", 1..2)?;
    clock.advance(lease / 2);
    let told = await_event(harness, &mut watching, "the writer's return", change)?;
    ensure!(told == Alive::Yes, "{told:?}");
    Ok(())
}

/// Advances the clock until a writer is reported gone. An assertion in flight when the clock is
/// advanced counts as later, so that one step may not suffice.
fn await_silence<T>(
    harness: &dyn Harness,
    clock: &TestClock,
    step: Duration,
    watching: &mut Subscription,
    mut change: impl FnMut(&Event) -> Option<T>,
) -> Result<T, Failure> {
    let until = Instant::now() + harness.timeout();
    while Instant::now() < until {
        clock.advance(step);
        while let Some(event) = watching.next_timeout(Duration::from_secs(1))? {
            if let Some(told) = change(&event) {
                return Ok(told);
            }
        }
    }
    Err(Failure::Broken("the writer's silence was not reported".to_owned()))
}

const LEASE: Duration = Duration::from_secs(5);

fn leased() -> Qos {
    let liveliness = Liveliness::Lease(LEASE);
    Qos { ownership: Ownership::Exclusive, liveliness, ..plain() }
}

/// A topic's writers by name, if the engine knows their liveliness.
fn writers(harness: &dyn Harness, topic: &Topic) -> Result<Vec<(String, Option<Alive>)>, Failure> {
    let told = |w: WriterInfo| (w.producer.name.to_string(), w.alive);
    Ok(topic.writers_within(harness.timeout())?.into_iter().map(told).collect())
}

fn refused_by(outcome: &Result<Publisher, TopicError>, name: &str) -> bool {
    matches!(
        outcome,
        Err(TopicError::Transport(TransportError::Owned { holder, .. })) if holder.contains(name)
    )
}

fn held(harness: &dyn Harness) -> Outcome {
    let clock = clock();
    let buses = [turned_by(&clock, harness, "holder")?, turned_by(&clock, harness, "other")?];
    let name = unique("held");
    let topics = [open(&buses[0], &name, &leased())?, open(&buses[1], &name, &leased())?];
    let holder = topics[0].publisher()?;
    for _ in 0..4 {
        clock.advance(LEASE * 9 / 10);
        let refused = topics[1].publisher();
        ensure!(refused_by(&refused, "holder"), "within the lease a second one got {refused:?}");
        holder.assert_alive()?;
        let told = writers(harness, &topics[1])?;
        ensure!(told == [("holder".to_owned(), Some(Alive::Yes))], "the writers are {told:?}");
    }
    // A publish renews the lease, too.
    clock.advance(LEASE * 9 / 10);
    publish_numbers(&holder, "k", 0..1)?;
    clock.advance(LEASE * 9 / 10);
    let refused = topics[1].publisher();
    ensure!(refused_by(&refused, "holder"), "after a publish a second one got {refused:?}");
    // Late, but not taken over: the writer still owns the topic.
    clock.advance(LEASE * 3);
    let told = writers(harness, &topics[1])?;
    ensure!(told == [("holder".to_owned(), Some(Alive::No))], "the writers are {told:?}");
    holder.assert_alive()?;
    let refused = topics[1].publisher();
    ensure!(refused_by(&refused, "holder"), "after its return a second one got {refused:?}");
    Ok(())
}

fn taken_over(harness: &dyn Harness) -> Outcome {
    for successor in ["other", "holder"] {
        let clock = clock();
        let buses = [turned_by(&clock, harness, "holder")?, turned_by(&clock, harness, successor)?];
        let name = unique("taken");
        let topics = [open(&buses[0], &name, &leased())?, open(&buses[1], &name, &leased())?];
        let mut watching = topics[1].subscribe(Subscribe::from(Start::Latest).watch_writers())?;
        let old = topics[0].publisher()?;
        publish_numbers(&old, "k", 0..1)?;
        let told = await_event(harness, &mut watching, "the writer's coming", change)?;
        ensure!(told == (old.producer(), Alive::Yes), "{told:?}");
        let told = await_silence(harness, &clock, LEASE * 11 / 10, &mut watching, change)?;
        ensure!(told == (old.producer(), Alive::No), "{told:?}");
        let told = writers(harness, &topics[0])?;
        ensure!(told == [("holder".to_owned(), Some(Alive::No))], "the writers are {told:?}");
        let new = topics[1].publisher()?;
        clock.advance(LEASE / 5);
        let told = await_event(harness, &mut watching, "the successor's coming", change)?;
        ensure!(told == (new.producer(), Alive::Yes), "{told:?}");
        zombie(&old)?;
        publish_numbers(&new, "k", 1..2)?;
        zombie(&old)?;
        let lives: Vec<_> = writers(harness, &topics[0])?;
        let lives = lives.iter().filter(|(_, alive)| *alive == Some(Alive::Yes));
        let lives: Vec<_> = lives.map(|(name, _)| name.as_str()).collect();
        ensure!(lives == [successor], "live writers: {lives:?}");
        drop(old);
        clock.advance(LEASE / 5);
        let refused = topics[0].publisher();
        ensure!(refused_by(&refused, successor), "the first one then got {refused:?}");
        while let Some(event) = watching.next_timeout(harness.quiet_period())? {
            ensure!(change(&event).is_none(), "unexpected liveliness: {event:?}");
        }
    }
    Ok(())
}

fn change(event: &Event) -> Option<(Producer, Alive)> {
    match event {
        Event::Liveliness(told) => Some((told.producer.clone(), told.alive)),
        _ => None,
    }
}

/// Checks that all of a writer's operations report that it was fenced.
fn zombie(old: &Publisher) -> Outcome {
    let asserted = old.assert_alive();
    let told = matches!(&asserted, Err(TransportError::Fenced { .. }));
    ensure!(told, "the old one's assertion gave {asserted:?}");
    let late = old.publish(Message::new(b"late")).wait();
    let told = matches!(&late, Err(PublishError::Transport(TransportError::Fenced { .. })));
    ensure!(told, "the old one's publish gave {late:?}");
    Ok(())
}
