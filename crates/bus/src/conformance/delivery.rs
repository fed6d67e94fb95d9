//! Delivery: published samples arrive whole, in order, at all subscriptions, without delay.

use std::collections::HashSet;
use std::sync::Barrier;

use helio_core::qos::Retention;
use helio_core::{Qos, Tai, TraceId};

use super::support::{
    Outcome, block_on, ensure, gather, gather_at_least, listening, named, number, open, plain,
    process, publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::batch::Batch;
use crate::error::{PublishError, SizeLimit, TransportError};
use crate::event::{Event, Sample};
use crate::publisher::Message;
use crate::subscribe::{Start, Subscribe};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "delivery_whole",
        promise: "payload, key, time, level, trace and producer are received unchanged",
        run: whole,
    },
    Check {
        name: "delivery_order_per_key",
        promise: "samples of a key are received in publishing order, whatever the partition",
        run: order_per_key,
    },
    Check {
        name: "delivery_to_everybody",
        promise: "each subscription has its own cursor and receives all samples",
        run: to_everybody,
    },
    Check {
        name: "delivery_by_key",
        promise: "a key filter admits only its keys and counts the others",
        run: by_key,
    },
    Check {
        name: "delivery_batches",
        promise: "batches keep the order, and reading in batches equals reading one by one",
        run: batches,
    },
    Check {
        name: "delivery_large",
        promise: "payloads up to the limit are received whole; larger ones are refused, naming the \
                  limit",
        run: large,
    },
    Check {
        name: "delivery_pinned",
        promise: "pinned payloads keep their bytes, also beyond retention, and beyond their limit \
                  payloads are copied",
        run: pinned,
    },
    Check {
        name: "delivery_wakes",
        promise: "each publish wakes a blocked reader: no wake-up is lost",
        run: wakes,
    },
    Check {
        name: "delivery_wakes_tasks",
        promise: "each publish wakes an awaiting task, under any executor",
        run: wakes_tasks,
    },
    Check {
        name: "delivery_many_topics",
        promise: "one thread waits for hundreds of topics and receives each sample",
        run: many_topics,
    },
];

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

fn whole(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (named(harness, "Writer:1")?, process(harness)?);
    let name = unique("whole");
    let topic = open(&bus, &name, &plain())?;
    let publisher = topic.publisher()?;
    let reading = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &publisher)?;
    let lengths = [0, 1, 7, 8, 255, 256, 3_333, 65_536, 140_000];
    for (n, length) in lengths.into_iter().enumerate() {
        let payload = payload(length);
        let key = [n as u8; 5];
        let message = Message::new(&payload)
            .key(&key[..n % 6])
            .time(Tai::from_nanos(1_000 + n as i64))
            .level(n as u8)
            .trace(TraceId([n as u8 + 1; 16]));
        publisher.publish(message).wait()?;
    }
    let gathered = gather(harness, &mut samples, lengths.len())?;
    let first = gathered.samples[0].header.sequence;
    for (n, sample) in gathered.samples.iter().enumerate() {
        let header = &sample.header;
        ensure!(sample.payload == payload(lengths[n]), "payload {n} is damaged");
        ensure!(sample.key[..] == [n as u8; 5][..n % 6], "key {n}: {:?}", sample.key);
        ensure!(header.time == Tai::from_nanos(1_000 + n as i64), "time {n}: {}", header.time);
        ensure!(header.level == n as u8, "level {n}: {}", header.level);
        ensure!(header.trace == Some(TraceId([n as u8 + 1; 16])), "trace {n}: {header:?}");
        ensure!(header.producer.name.as_str() == "Writer:1", "producer {n}: {header:?}");
        ensure!(header.sequence == first + n as u64, "sequence {n}: {header:?}");
    }
    ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    Ok(())
}

fn order_per_key(harness: &dyn Harness) -> Outcome {
    let qos = Qos { partitions: 4, ..plain() };
    let name = unique("order");
    let buses = [named(harness, "one")?, named(harness, "two")?];
    let reader = process(harness)?;
    let publisher = open(&buses[0], &name, &qos)?.publisher()?;
    let reading = open(&reader, &name, &qos)?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &publisher)?;
    let each = 100 * harness.scale() as u64;
    let start = Barrier::new(2);
    let outcomes = std::thread::scope(|scope| {
        let threads = buses.iter().enumerate().map(|(n, bus)| {
            let (start, name, qos) = (&start, &name, &qos);
            scope.spawn(move || -> Outcome {
                let publisher = open(bus, name, qos)?.publisher()?;
                start.wait();
                for number in 0..each {
                    let key = format!("{n}/{}", number % 10);
                    publish_numbers(&publisher, &key, number..number + 1)?;
                }
                Ok(())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("it returns")).collect::<Vec<_>>()
    });
    outcomes.into_iter().collect::<Result<(), Failure>>()?;
    let keys = gather(harness, &mut samples, 2 * each as usize)?.by_key()?;
    ensure!(keys.len() == 20, "received {} keys of 20", keys.len());
    for (key, numbers) in keys {
        ensure!(numbers.is_sorted(), "received {numbers:?} of key {key:?}");
    }
    ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    Ok(())
}

fn to_everybody(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("everybody");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let mut readers = Vec::new();
    for bus in [&bus, &other, &other] {
        let topic = open(bus, &name, &plain())?;
        readers.push(listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?);
    }
    for reader in &mut readers {
        // Errors of the others are not checked.
        while reader.next_timeout(harness.quiet_period())?.is_some() {}
    }
    publish_numbers(&publisher, "k", 0..50)?;
    for reader in &mut readers {
        let numbers = gather(harness, reader, 50)?.numbers()?;
        ensure!(numbers.iter().copied().eq(0..50), "{numbers:?}");
    }
    Ok(())
}

fn by_key(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("keys"), &plain())?;
    let publisher = topic.publisher()?;
    let exactly = Subscribe::from(Start::Latest).keys(["b", "camera/2", ""]);
    let prefix = Subscribe::from(Start::Latest).key_prefix(b"camera/");
    let mut exactly = topic.subscribe(exactly)?;
    let mut prefix = topic.subscribe(prefix)?;
    let mut all = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    while exactly.next_timeout(harness.quiet_period())?.is_some() {}
    for (n, key) in ["a", "b", "camera/1", "camera/2", ""].into_iter().enumerate() {
        publish_numbers(&publisher, key, n as u64..n as u64 + 1)?;
    }
    gather(harness, &mut all, 5)?;
    let numbers = gather(harness, &mut exactly, 3)?.numbers()?;
    ensure!(numbers == [1, 3, 4], "the exact filter let through {numbers:?}");
    let numbers = gather(harness, &mut prefix, 2)?.numbers()?;
    ensure!(numbers == [2, 3], "the prefix let through {numbers:?}");
    let filtered = exactly.stats().filtered;
    ensure!(filtered >= 2 && exactly.stats().lost == 0, "{:?}", exactly.stats());
    Ok(())
}

fn batches(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("batches");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let reading = open(&other, &name, &plain())?;
    let latest = || Subscribe::from(Start::Latest);
    let mut batched = reading.subscribe(latest())?;
    let mut single = listening(harness, &reading, latest(), &publisher)?;
    while batched.next_timeout(harness.quiet_period())?.is_some() {}
    let payloads: Vec<[u8; 8]> = (0..1_000_u64).map(u64::to_le_bytes).collect();
    for part in payloads.chunks(128) {
        let messages: Vec<_> = part.iter().map(|bytes| Message::new(bytes).key(b"k")).collect();
        let receipts = publisher.publish_batch(&messages).wait()?;
        ensure!(!receipts.is_empty(), "a batch of {} has no receipt", part.len());
    }
    let one_by_one = gather(harness, &mut single, 1_000)?;
    let mut batch = Batch::new();
    let mut count = 0;
    while count < 1_000 && batched.next_batch(100, harness.timeout(), &mut batch)? > 0 {
        for sample in batch.iter() {
            let expected = one_by_one.samples[count].as_ref();
            ensure!(sample.payload == expected.payload, "sample {count} of the batches differs");
            ensure!(sample.key == expected.key, "key {count} of the batches differs");
            ensure!(sample.sequence == expected.sequence, "number {count} differs");
            count += 1;
        }
    }
    ensure!(count == 1_000, "received {count} of 1000 samples in batches");
    let numbers = one_by_one.numbers()?;
    ensure!(numbers.iter().copied().eq(0..1_000), "the batches are out of order");
    Ok(())
}

fn large(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("large"), &plain())?;
    let publisher = topic.publisher()?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    let limit = bus.capabilities().max_payload_bytes;
    for length in [1 << 20, limit] {
        let payload = payload(length);
        publisher.publish(Message::new(&payload)).wait()?;
        let got = gather(harness, &mut samples, 1)?;
        ensure!(got.samples[0].payload == payload, "received {length} bytes damaged");
    }
    let refused = publisher.publish(Message::new(&vec![0; limit + 1])).wait();
    let named = matches!(
        &refused,
        Err(PublishError::Transport(TransportError::TooLarge { limit: told, .. }))
            if *told == SizeLimit::Bytes(limit)
    );
    ensure!(named, "{} bytes gave {refused:?}", limit + 1);
    let key = vec![b'k'; bus.capabilities().max_key_bytes + 1];
    let refused = publisher.publish(Message::new(b"").key(&key)).wait();
    let named = matches!(&refused, Err(PublishError::Transport(TransportError::TooLarge { .. })));
    ensure!(named, "a key of {} bytes gave {refused:?}", key.len());
    publish_numbers(&publisher, "", 7..8)?;
    let numbers = gather(harness, &mut samples, 1)?.numbers()?;
    ensure!(numbers == [7] && samples.stats().lost == 0, "a refused publish left a trace");
    Ok(())
}

fn pinned(harness: &dyn Harness) -> Outcome {
    const SAMPLES: u64 = 64;
    let bus = process(harness)?;
    let bytes = bus.capabilities().retention_bytes.is_yes().then_some(1 << 20);
    let retention = Retention { bytes, ..plain().retention };
    let topic = open(&bus, &unique("pinned"), &Qos { retention, ..plain() })?;
    let publisher = topic.publisher()?;
    // One subscription pins all samples, the other one a few.
    let subscribe = |limit| topic.subscribe(Subscribe::from(Start::Latest).pinned(limit));
    let (mut all, mut few) = (subscribe(u64::MAX)?, subscribe(1 << 20)?);
    let payload = |number: u64| vec![number as u8; 64 << 10];
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        publisher.publish(Message::new(&payload(number))).wait()?;
        kept.extend(gather(harness, &mut all, 1)?.samples);
        others.extend(gather(harness, &mut few, 1)?.samples);
    }
    // What retention has removed may be written again.
    for number in SAMPLES..2 * SAMPLES {
        publisher.publish(Message::new(&payload(number))).wait()?;
    }
    drop((all, few, publisher, topic));
    bus.close();
    for samples in [kept, others] {
        let same = |(number, sample): (u64, &Sample)| sample.payload == payload(number);
        ensure!((0..).zip(&samples).all(same), "a sample that was kept has changed");
        ensure!(samples.len() as u64 == SAMPLES, "{} samples of {SAMPLES}", samples.len());
    }
    Ok(())
}

fn wakes(harness: &dyn Harness) -> Outcome {
    let (here, there) = (process(harness)?, process(harness)?);
    let (ping, pong) = (unique("ping"), unique("pong"));
    let rounds = 200 * harness.scale() as u64;
    let to = open(&here, &ping, &plain())?.publisher()?;
    let back = open(&there, &pong, &plain())?.publisher()?;
    let at_there = open(&there, &ping, &plain())?;
    let at_here = open(&here, &pong, &plain())?;
    let mut hears = listening(harness, &at_there, Subscribe::from(Start::Latest), &to)?;
    let mut answers = listening(harness, &at_here, Subscribe::from(Start::Latest), &back)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome {
            for _ in 0..rounds {
                let got = gather_at_least(harness, &mut hears, 1)?;
                back.publish(Message::new(&got.samples[0].payload)).wait()?;
            }
            Ok(())
        });
        for round in 0..rounds {
            publish_numbers(&to, "", round..round + 1)?;
            let got = gather_at_least(harness, &mut answers, 1)?;
            ensure!(number(&got.samples[0])? == round, "round {round} was answered wrongly");
        }
        echo.join().expect("it returns")
    })
}

fn wakes_tasks(harness: &dyn Harness) -> Outcome {
    let (here, there) = (process(harness)?, process(harness)?);
    let name = unique("tasks");
    let publisher = open(&here, &name, &plain())?.publisher()?;
    let reading = open(&there, &name, &plain())?;
    let mut samples = listening(harness, &reading, Subscribe::from(Start::Latest), &publisher)?;
    let rounds = 200_u64;
    let patience = harness.timeout();
    std::thread::scope(|scope| {
        let task = scope.spawn(move || {
            let reading = async {
                let mut expected = 0;
                while expected < rounds {
                    // A dropped future must not lose an event.
                    drop(samples.next());
                    let Some(sample) = samples.next().await?.into_sample() else { continue };
                    let got = number(&sample)?;
                    ensure!(got == expected, "received {got} instead of {expected}");
                    expected += 1;
                }
                Ok(())
            };
            block_on(reading, patience)?
        });
        let writing = async {
            for number in 0..rounds {
                publisher.publish(Message::new(&number.to_le_bytes())).await?;
            }
            Ok::<(), Failure>(())
        };
        block_on(writing, patience)??;
        task.join().expect("it returns")
    })
}

fn many_topics(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let base = unique("many");
    let count = 200 * harness.scale();
    let mut set = other.wait_set()?;
    let mut publishers = Vec::new();
    let mut waiting = HashSet::new();
    for n in 0..count {
        let name = format!("{base}/{n}");
        let publisher = open(&bus, &name, &plain())?.publisher()?;
        let topic = open(&other, &name, &plain())?;
        let options = Subscribe::from(Start::Latest);
        waiting.insert(set.add(listening(harness, &topic, options, &publisher)?));
        publishers.push(publisher);
    }
    let listed = bus.topics()?.iter().filter(|name| name.as_str().starts_with(&base)).count();
    ensure!(listed == count, "{listed} of {count} topics are listed");
    ensure!(set.try_next()?.is_none(), "received an event before the first publish");
    for publisher in publishers.iter().rev() {
        publish_numbers(publisher, "", 0..1)?;
    }
    while !waiting.is_empty() {
        match set.next_timeout(harness.timeout())? {
            Some((member, Event::Sample(_))) => {
                ensure!(waiting.remove(&member), "received a topic's sample twice");
            }
            Some(_) => {}
            None => ensure!(false, "{} topics of {count} did not ring", waiting.len()),
        }
    }
    Ok(())
}
