//! Fencing: no reader receives a sample of an older incarnation after one of a newer.

use helio_core::qos::Ownership;
use helio_core::{ProducerName, Qos};

use super::support::{
    Outcome, ensure, gather, gather_at_least, listening, named, open, plain, process,
    publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::error::{PublishError, TopicError, TransportError};
use crate::publisher::Message;
use crate::subscribe::{Lagging, Start, Subscribe};
use crate::topic::TopicSpec;
use crate::transport::{Alive, Fencing};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "fencing_takes_over",
        promise: "a restarted producer has a newer incarnation, and samples of the older are not \
                  received any more",
        run: takes_over,
    },
    Check {
        name: "fencing_exclusive",
        promise: "the second live writer of an exclusive topic is refused, and admitted once the \
                  topic is free",
        run: exclusive,
    },
    Check {
        name: "fencing_own_publishers",
        promise: "publishers of one bus on one topic share an incarnation and do not fence each \
                  other",
        run: own_publishers,
    },
    Check {
        name: "fencing_producers_of_a_bus",
        promise: "producers that share a bus have their own incarnations and sequences, and are \
                  listed with their liveliness",
        run: producers_of_a_bus,
    },
    Check {
        name: "fencing_others",
        promise: "producers of other names are not affected",
        run: others,
    },
];

fn takes_over(harness: &dyn Harness) -> Outcome {
    let (old, new, reader) =
        (named(harness, "Mount")?, named(harness, "Mount")?, process(harness)?);
    let name = unique("fencing");
    let zombie = open(&old, &name, &plain())?.publisher()?;
    let reading = open(&reader, &name, &plain())?;
    let options = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut samples = listening(harness, &reading, options, &zombie)?;
    publish_numbers(&zombie, "k", 0..10)?;
    gather(harness, &mut samples, 10)?;
    let successor = open(&new, &name, &plain())?.publisher()?;
    let (before, after) = (zombie.producer().incarnation, successor.producer().incarnation);
    ensure!(after > before, "incarnation {after} follows {before}");
    publish_numbers(&successor, "k", 10..20)?;
    let fencing = reader.capabilities().fencing;
    for number in 100..110_u64 {
        let late = publisher_outcome(&zombie, number);
        if fencing == Fencing::RefuseAndDrop {
            let told = matches!(
                &late,
                Err(PublishError::Transport(TransportError::Fenced { newer, .. }))
                    if *newer == after
            );
            ensure!(told, "the zombie's publish gave {late:?}");
        }
    }
    publish_numbers(&successor, "k", 20..30)?;
    let gathered = gather(harness, &mut samples, 20)?;
    let numbers = gathered.numbers()?;
    ensure!(numbers.iter().copied().eq(10..30), "received {numbers:?}");
    let newest = gathered.samples.iter().all(|s| s.header.producer.incarnation == after);
    ensure!(newest, "samples of the zombie were received after its successor's");
    ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    Ok(())
}

fn publisher_outcome(
    publisher: &crate::publisher::Publisher,
    number: u64,
) -> Result<crate::transport::Receipt, PublishError> {
    publisher.publish(Message::new(&number.to_le_bytes()).key(b"k")).wait()
}

fn exclusive(harness: &dyn Harness) -> Outcome {
    let qos = Qos { ownership: Ownership::Exclusive, ..plain() };
    let (one, two) = (named(harness, "one")?, named(harness, "two")?);
    let name = unique("exclusive");
    let first = open(&one, &name, &qos)?.publisher()?;
    publish_numbers(&first, "k", 0..1)?;
    let refused = open(&two, &name, &qos)?.publisher();
    let told = matches!(
        &refused,
        Err(TopicError::Transport(TransportError::Owned { holder, .. })) if holder.contains("one")
    );
    ensure!(told, "the second writer got {refused:?}");
    publish_numbers(&first, "k", 1..2)?;
    drop(first);
    let second = open(&two, &name, &qos)?.publisher()?;
    publish_numbers(&second, "k", 2..3)?;
    // Closing the connection releases it, too.
    two.close();
    let third = open(&one, &name, &qos)?.publisher()?;
    publish_numbers(&third, "k", 3..4)?;
    Ok(())
}

fn own_publishers(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let name = unique("own");
    let topic = open(&bus, &name, &plain())?;
    let (one, two) = (topic.publisher()?, open(&bus, &name, &plain())?.publisher()?);
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &one)?;
    for number in 0..10 {
        let publisher = if number % 2 == 0 { &one } else { &two };
        publish_numbers(publisher, "k", number..number + 1)?;
    }
    let numbers = gather(harness, &mut samples, 10)?.numbers()?;
    ensure!(numbers.iter().copied().eq(0..10), "received {numbers:?}");
    Ok(())
}

fn producers_of_a_bus(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (named(harness, "host")?, process(harness)?);
    let name = unique("producers");
    let of = |producer: &str| -> Result<_, Failure> {
        let spec = TopicSpec::new(&name)?.qos(plain());
        Ok(bus.topic(spec.producer(ProducerName::new(producer)?))?)
    };
    let (mount, dome) = (of("Mount:1")?, of("Dome")?);
    ensure!(mount.producer().as_str() == "Mount:1", "{:?}", mount.producer());
    let (one, two) = (mount.publisher()?, dome.publisher()?);
    let own = open(&bus, &name, &plain())?.publisher()?;
    let again = of("Mount:1")?.publisher()?;
    ensure!(one.producer() == again.producer(), "handles of a producer do not share a writer");
    let reading = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &own)?;
    for (number, publisher) in (0..).zip([&one, &two, &own, &again, &two]) {
        publish_numbers(publisher, "k", number..number + 1)?;
    }
    let gathered = gather(harness, &mut samples, 5)?;
    let who: Vec<_> = gathered.samples.iter().map(|s| s.header.producer.name.as_str()).collect();
    ensure!(who == ["Mount:1", "Dome", "host", "Mount:1", "Dome"], "{who:?} published");
    ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    drop((two, dome));
    for topic in [&reading, &mount] {
        let writers = topic.writers_within(harness.timeout())?;
        let told: Vec<_> = writers.iter().map(|w| (w.producer.name.as_str(), w.alive)).collect();
        let (yes, no) = (Some(Alive::Yes), Some(Alive::No));
        // An engine that cannot list writers reports that.
        let known = told.iter().all(|(_, alive)| alive.is_some());
        let expected = [("Dome", no), ("Mount:1", yes), ("host", yes)];
        ensure!(!known || told == expected, "the writers are {told:?}");
        let mount = writers.iter().find(|w| w.producer.name.as_str() == "Mount:1");
        ensure!(mount.is_some_and(|w| w.producer == one.producer()), "{writers:?}");
    }
    Ok(())
}

fn others(harness: &dyn Harness) -> Outcome {
    let (a, b, again) = (named(harness, "a")?, named(harness, "b")?, named(harness, "a")?);
    let name = unique("others");
    let of = |bus: &crate::bus::Bus| -> Result<_, Failure> {
        let topic = bus.topic(TopicSpec::new(&name)?.qos(plain()))?;
        Ok(topic.publisher()?)
    };
    let (first, steady) = (of(&a)?, of(&b)?);
    let topic = open(&b, &name, &plain())?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &steady)?;
    publish_numbers(&first, "k", 0..1)?;
    publish_numbers(&steady, "k", 1..2)?;
    let second = of(&again)?;
    publish_numbers(&second, "k", 2..3)?;
    publish_numbers(&steady, "k", 3..4)?;
    let gathered = gather_at_least(harness, &mut samples, 4)?;
    ensure!(gathered.numbers()? == [0, 1, 2, 3], "received {:?}", gathered.numbers());
    ensure!(samples.stats().fenced == 0, "{:?}", samples.stats());
    Ok(())
}
