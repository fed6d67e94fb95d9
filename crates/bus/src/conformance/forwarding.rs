//! Forwarding: samples of another bus keep their producers, incarnations and sequences.

use std::time::Instant;

use helio_core::qos::{Durability, History};
use helio_core::{
    Header, Headers, HeadersRef, Producer, ProducerName, Qos, SchemaId, Tai, TraceId,
};

use super::support::{
    Outcome, ensure, gather, named, number, open, process, publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::error::{PublishError, TopicError, TransportError};
use crate::event::Sample;
use crate::forwarder::Forwarder;
use crate::subscribe::{Lagging, Start, Subscribe};
use crate::subscription::Subscription;
use crate::topic::Topic;
use crate::transport::Origin;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "forwarding_as_it_is",
        promise: "a sample forwarded from another bus keeps its producer, incarnation, sequence, \
                  time, key, level, trace and headers",
        run: as_it_is,
    },
    Check {
        name: "forwarding_goes_on",
        promise: "a restarted forwarder resumes with the producer's incarnation; repeated samples \
                  are received once",
        run: goes_on,
    },
    Check {
        name: "forwarding_is_fenced",
        promise: "a producer that moves to the bus has a newer incarnation than its forwarded \
                  samples, and replaces their writer",
        run: is_fenced,
    },
];

/// An incarnation that no transport allocates by counting: engines count in different ways.
const INCARNATION: u64 = 1_790_000_000_000_000_000;

fn sample(topic: &Topic, incarnation: u64, sequence: u64) -> Result<Sample, Failure> {
    let time = Tai::from_nanos(1_000_000_000_000_000_007);
    Ok(Sample {
        topic: topic.name().clone(),
        partition: 0,
        offset: 0,
        key: "k".into(),
        header: Header {
            producer: Producer { name: ProducerName::new("Far")?, incarnation },
            sequence,
            time,
            schema: SchemaId::BYTES,
            level: 3,
            trace: Some(TraceId([7; 16])),
        },
        headers: Headers::new().with("note", b"far").unwrap_or_default(),
        payload: sequence.to_le_bytes().to_vec().into(),
        origin: Origin::Log,
    })
}

fn stream() -> Qos {
    Qos { durability: Durability::Volatile, history: History::None, ..Qos::stream() }
}

fn forwarder(topic: &Topic, incarnation: u64) -> Result<Forwarder, Failure> {
    let producer = sample(topic, incarnation, 1)?.header.producer;
    match topic.forwarder(&producer, 0) {
        Err(TopicError::Transport(error @ TransportError::Unsupported { .. })) => {
            Err(Failure::Refused(error.to_string()))
        }
        other => Ok(other?),
    }
}

fn forward(
    harness: &dyn Harness,
    forwarder: &mut Forwarder,
    sample: &Sample,
) -> Result<(), Failure> {
    let until = Instant::now() + harness.timeout();
    loop {
        match forwarder.forward(&sample.as_ref(), sample.headers.as_ref()) {
            Err(PublishError::Full { .. }) if Instant::now() < until => std::thread::yield_now(),
            other => return Ok(other?.wait_timeout(harness.timeout()).map(drop)?),
        }
    }
}

/// New samples only, which every transport supports.
fn listen(topic: &Topic) -> Result<Subscription, Failure> {
    Ok(topic.subscribe(Subscribe::from(Start::Latest).lagging(Lagging::Lossless))?)
}

fn as_it_is(harness: &dyn Harness) -> Outcome {
    let (bridge, reader) = (process(harness)?, process(harness)?);
    let name = unique("forwarding");
    let topic = open(&bridge, &name, &stream())?;
    let mut samples = listen(&open(&reader, &name, &stream())?)?;
    let mut far = forwarder(&topic, INCARNATION)?;
    let mut sent = Vec::new();
    // Sequences start at any number, and a hole is the source's.
    for (incarnation, sequence) in [
        (INCARNATION, 5),
        (INCARNATION, 6),
        (INCARNATION, 8),
        (INCARNATION + 10, 1),
        (INCARNATION + 10, 2),
    ] {
        let sample = sample(&topic, incarnation, sequence)?;
        forward(harness, &mut far, &sample)?;
        sent.push(sample);
    }
    let came = gather(harness, &mut samples, sent.len())?;
    for (came, sent) in came.samples.iter().zip(&sent) {
        let same = came.header == sent.header
            && (&came.key, &came.payload, &came.headers)
                == (&sent.key, &sent.payload, &sent.headers);
        ensure!(same, "received {came:?}, forwarded {sent:?}");
    }
    let lost = samples.stats().lost;
    ensure!(lost == 1, "{lost} samples were reported lost instead of number 7 of the source");
    Ok(())
}

fn goes_on(harness: &dyn Harness) -> Outcome {
    let (first, second, reader) = (process(harness)?, process(harness)?, process(harness)?);
    let name = unique("forwarding");
    let topic = open(&first, &name, &stream())?;
    let mut samples = listen(&open(&reader, &name, &stream())?)?;
    let mut far = forwarder(&topic, INCARNATION)?;
    for sequence in 1..=5 {
        forward(harness, &mut far, &sample(&topic, INCARNATION, sequence)?)?;
    }
    drop(far);
    first.close();
    let topic = open(&second, &name, &stream())?;
    let mut far = forwarder(&topic, INCARNATION)?;
    for sequence in 4..=9 {
        forward(harness, &mut far, &sample(&topic, INCARNATION, sequence)?)?;
    }
    let came = gather(harness, &mut samples, 9)?;
    let numbers: Vec<_> = came.samples.iter().map(|sample| sample.header.sequence).collect();
    ensure!(numbers.iter().copied().eq(1..=9), "received {numbers:?}");
    let stats = samples.stats();
    ensure!(stats.duplicates >= 2 && stats.lost == 0, "{stats:?}");
    Ok(())
}

fn is_fenced(harness: &dyn Harness) -> Outcome {
    let (bridge, reader) = (process(harness)?, process(harness)?);
    let name = unique("forwarding");
    let topic = open(&bridge, &name, &stream())?;
    let mut samples = listen(&open(&reader, &name, &stream())?)?;
    let mut far = forwarder(&topic, INCARNATION)?;
    forward(harness, &mut far, &sample(&topic, INCARNATION, 1)?)?;
    forward(harness, &mut far, &sample(&topic, INCARNATION + 5, 1)?)?;
    let writers = topic.writers_within(harness.timeout())?;
    let listed = writers.iter().any(|writer| {
        writer.producer.name.as_str() == "Far" && writer.producer.incarnation == INCARNATION + 5
    });
    ensure!(listed, "it is not among the topic's writers: {writers:?}");
    // The producer moves.
    let moved = named(harness, "Far")?;
    let own = open(&moved, &name, &stream())?.publisher()?;
    let incarnation = own.producer().incarnation;
    ensure!(
        incarnation > INCARNATION + 5,
        "incarnation {incarnation} is not newer than the previous ones"
    );
    publish_numbers(&own, "k", 100..110)?;
    // Later samples from there may be refused, and are delivered to no reader.
    let late = sample(&topic, INCARNATION + 5, 2)?;
    let _ = far
        .forward(&late.as_ref(), HeadersRef::EMPTY)
        .map(|late| late.wait_timeout(harness.timeout()));
    publish_numbers(&own, "k", 110..120)?;
    drop(far);
    let opened = topic.forwarder(&late.header.producer, 0);
    let told = matches!(&opened, Err(TopicError::Transport(TransportError::Fenced { .. })));
    ensure!(told, "an incarnation that is older than the producer's own got {opened:?}");
    let came = gather(harness, &mut samples, 22)?;
    let numbers: Vec<_> = came.samples[2..].iter().map(number).collect::<Result<_, _>>()?;
    ensure!(numbers.iter().copied().eq(100..120), "received {numbers:?}");
    Ok(())
}
