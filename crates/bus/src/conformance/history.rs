//! History of late joiners, start positions, and retention.

use std::time::{Duration, Instant};

use helio_core::qos::{Guarantee, History, Retention};
use helio_core::{Qos, Tai};

use super::support::{
    Outcome, ensure, gather, gather_at_least, has_places, listening, number, open, plain, process,
    publish_numbers, topic_has_places, unique,
};
use super::{Check, Failure, Harness};
use crate::event::{Event, GapCause};
use crate::publisher::Message;
use crate::subscribe::{Lagging, Start, Subscribe};
use crate::subscription::Subscription;
use crate::topic::Topic;
use crate::transport::Origin;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "start_latest",
        promise: "a subscription that starts at the latest receives no older sample",
        run: latest,
    },
    Check {
        name: "start_last",
        promise: "a late joiner receives the newest n samples of each key, in order, then new ones",
        run: last,
    },
    Check {
        name: "start_last_quiet_keys",
        promise: "the last value of a key is stored, however many samples of others are published \
                  and removed",
        run: quiet_keys,
    },
    Check {
        name: "start_earliest",
        promise: "with keep all, a late joiner receives all samples, once and in order",
        run: earliest,
    },
    Check {
        name: "start_offset",
        promise: "a subscription starts at an offset, and can seek back to one",
        run: offset,
    },
    Check {
        name: "start_time",
        promise: "a subscription starts with the first sample at or after a time",
        run: time,
    },
    Check {
        name: "fence_live",
        promise: "a subscription that has passed a fence has received every sample published \
                  before the fence was set",
        run: fence_live,
    },
    Check {
        name: "fence_history",
        promise: "a late joiner that has passed a fence has received all samples stored when it \
                  was set, and all last values",
        run: fence_history,
    },
    Check {
        name: "history_outlives_writers",
        promise: "history survives the writers' connections",
        run: outlives,
    },
    Check {
        name: "retention_is_a_gap",
        promise: "samples removed before a slow reader received them are an explicit gap: received \
                  + lost = published",
        run: retention,
    },
];

fn latest(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("latest");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    publish_numbers(&publisher, "k", 0..10)?;
    let topic = open(&other, &name, &plain())?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    publish_numbers(&publisher, "k", 10..12)?;
    let numbers = gather(harness, &mut samples, 2)?.numbers()?;
    ensure!(numbers == [10, 11], "received {numbers:?}");
    Ok(())
}

fn keep_last(n: u8) -> Qos {
    Qos { history: History::KeepLast(n), ..Qos::telemetry() }
}

fn last(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("last");
    let publisher = open(&bus, &name, &keep_last(3))?.publisher()?;
    for number in 0..40 {
        publish_numbers(&publisher, &format!("{}", number % 4), number..number + 1)?;
    }
    let topic = open(&other, &name, &keep_last(3))?;
    for n in [1, 3] {
        let mut samples = topic.subscribe(Subscribe::from(Start::Last(n)))?;
        let history = gather(harness, &mut samples, 4 * n as usize)?;
        let numbers = history.numbers()?;
        let expected: Vec<u64> = (40 - 4 * u64::from(n)..40).collect();
        ensure!(numbers == expected, "last({n}) gave {numbers:?}");
        let marked = history.samples.iter().all(|s| s.origin == Origin::History);
        ensure!(marked, "history is not marked as such");
        ensure!(samples.stats().lost == 0, "history counts as loss: {:?}", samples.stats());
    }
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
    publish_numbers(&publisher, "0", 40..45)?;
    let gathered = gather(harness, &mut samples, 9)?;
    let live: Vec<u64> = gathered.numbers()?[4..].to_vec();
    ensure!(live == [40, 41, 42, 43, 44], "received {live:?} after the history");
    ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    Ok(())
}

fn quiet_keys(harness: &dyn Harness) -> Outcome {
    let retention =
        Retention { bytes: Some(64 << 10), age: None, last_value: true, default: false };
    let qos = Qos { retention, ..keep_last(1) };
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("quiet");
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    for number in 0..50 {
        publish_numbers(&publisher, &format!("quiet/{number}"), number..number + 1)?;
    }
    let noise = [1; 1_000];
    for _ in 0..2_000 * harness.scale() {
        publisher.publish(Message::new(&noise).key(b"noisy")).wait()?;
    }
    let topic = open(&other, &name, &qos)?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
    let history = gather(harness, &mut samples, 51)?;
    let mut quiet: Vec<u64> = Vec::new();
    for sample in history.samples.iter().filter(|sample| sample.key.starts_with(b"quiet")) {
        quiet.push(number(sample)?);
    }
    ensure!(quiet.iter().copied().eq(0..50), "received {quiet:?} of the quiet keys");
    let newest = history.samples.iter().find(|sample| &sample.key[..] == b"noisy");
    let whole = newest.is_some_and(|sample| sample.payload[..] == noise);
    ensure!(whole, "the noisy key's newest sample is missing or damaged");
    ensure!(samples.stats().lost == 0, "history counts as loss: {:?}", samples.stats());
    Ok(())
}

fn earliest(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("earliest");
    let publisher = open(&bus, &name, &Qos::stream())?.publisher()?;
    let count = 1_000 * harness.scale() as u64;
    publish_numbers(&publisher, "k", 0..count)?;
    let topic = open(&other, &name, &Qos::stream())?;
    for lagging in [Lagging::Lossless, Lagging::DropOldest { depth: 2 * count }] {
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest).lagging(lagging))?;
        let numbers = gather(harness, &mut samples, count as usize)?.numbers()?;
        ensure!(numbers.iter().copied().eq(0..count), "the history is not whole");
        ensure!(samples.stats().lag == 0, "{:?}", samples.stats());
    }
    Ok(())
}

fn offset(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("offset"), &Qos::stream())?;
    has_places(&topic)?;
    let publisher = topic.publisher()?;
    let mut at = Vec::new();
    for number in 0..20_u64 {
        let receipt = publisher.publish(Message::new(&number.to_le_bytes())).wait()?;
        at.push(receipt.offset.ok_or(Failure::Broken("a receipt has no offset".to_owned()))?);
    }
    let start = Start::Offset { partition: 0, offset: at[12] };
    let mut samples = topic.subscribe(Subscribe::from(start))?;
    let gathered = gather(harness, &mut samples, 8)?;
    ensure!(gathered.numbers()?.iter().copied().eq(12..20), "{:?}", gathered.numbers());
    ensure!(gathered.samples[0].offset == at[12], "the offset is not the receipt's");
    samples.seek(0, at[5])?;
    let numbers = gather(harness, &mut samples, 15)?.numbers()?;
    ensure!(numbers.iter().copied().eq(5..20), "received {numbers:?} after seeking back");
    let stats = samples.stats();
    ensure!((stats.lost, stats.lag) == (0, 0), "{stats:?}");
    Ok(())
}

fn time(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("time"), &Qos::stream())?;
    let publisher = topic.publisher()?;
    let base = bus.clock().now().nanos();
    let at = |number: u64| Tai::from_nanos(base + number as i64 * 1_000_000);
    for number in 0..500_u64 {
        let bytes = number.to_le_bytes();
        publisher.publish(Message::new(&bytes).time(at(number))).wait()?;
    }
    let between = Tai::from_nanos(at(123).nanos() - 1);
    for (start, first) in [(between, 123), (at(200), 200), (Tai::from_nanos(0), 0)] {
        let mut samples = topic.subscribe(Subscribe::from(Start::Time(start)))?;
        let numbers = gather(harness, &mut samples, 500 - first)?.numbers()?;
        ensure!(numbers[0] == first as u64, "the time gave {} for {first}", numbers[0]);
    }
    let mut none = topic.subscribe(Subscribe::from(Start::Time(at(500))))?;
    gather(harness, &mut none, 0)?;
    Ok(())
}

fn outlives(harness: &dyn Harness) -> Outcome {
    let name = unique("outlives");
    let bus = process(harness)?;
    let publisher = open(&bus, &name, &Qos::event())?.publisher()?;
    publish_numbers(&publisher, "a", 0..3)?;
    publish_numbers(&publisher, "b", 3..4)?;
    publisher.flush(bus.capabilities().guarantee, harness.timeout())?;
    drop(publisher);
    bus.close();
    drop(bus);
    let later = process(harness)?;
    let topic = open(&later, &name, &Qos::event())?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
    let numbers = gather(harness, &mut samples, 2)?.numbers()?;
    ensure!(numbers == [2, 3], "received {numbers:?} after the writer had closed");
    Ok(())
}

/// The numbers that a subscription receives up to a fence behind what is stored now.
fn stored(harness: &dyn Harness, samples: &mut Subscription) -> Result<Vec<u64>, Failure> {
    let mut numbers = Vec::new();
    samples.set_fence()?;
    while let Some(event) = samples.next_stored(harness.timeout())? {
        numbers.extend(event.into_sample().map(|sample| number(&sample)).transpose()?);
    }
    Ok(numbers)
}

fn fence_live(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("fence-live");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let topic = open(&other, &name, &plain())?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    stored(harness, &mut samples)?;
    // Without offsets there is no store: samples count from when they are accepted.
    let best = bus.capabilities().guarantee.min(Guarantee::Stored);
    let guarantee = if topic_has_places(&topic)? { best } else { Guarantee::Accepted };
    let publish = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let payload = number.to_le_bytes();
            publisher.publish(Message::new(&payload).key(b"k").guarantee(guarantee)).wait()?;
        }
        Ok::<_, Failure>(())
    };
    for round in 0..20 {
        publish(round * 10..round * 10 + 10)?;
        let numbers = stored(harness, &mut samples)?;
        let wanted = round * 10..round * 10 + 10;
        ensure!(numbers.iter().copied().eq(wanted), "round {round} gave {numbers:?}");
    }
    let numbers = stored(harness, &mut samples)?;
    ensure!(numbers.is_empty(), "received {numbers:?}, and nothing was published");
    // Subscriptions that wait together, and one of a topic without any sample.
    let mut set = other.wait_set()?;
    let empty = open(&other, &unique("fence-empty"), &plain())?;
    publish(0..10)?;
    for mut samples in [samples, empty.subscribe(Subscribe::from(Start::Latest))?] {
        samples.set_fence()?;
        set.add(samples);
    }
    let mut came = 0;
    while let Some((_, event)) = set.next_stored(harness.timeout())? {
        came += usize::from(event.into_sample().is_some());
    }
    ensure!(came == 10, "a wait set received {came} of 10");
    Ok(())
}

fn fence_history(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("fence-history");
    let qos = Qos { partitions: 3, ..Qos::stream() };
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    let topic = open(&other, &name, &qos)?;
    let mut early = topic.subscribe(Subscribe::from(Start::Earliest))?;
    let numbers = stored(harness, &mut early)?;
    ensure!(numbers.is_empty(), "received {numbers:?} of an empty topic");
    for number in 0..300 {
        publish_numbers(&publisher, &format!("{}", number % 30), number..number + 1)?;
    }
    publisher.flush(bus.capabilities().guarantee, harness.timeout())?;
    let sorted = |samples: &mut Subscription| {
        let mut numbers = stored(harness, samples)?;
        numbers.sort_unstable();
        Ok::<_, Failure>(numbers)
    };
    let mut late = topic.subscribe(Subscribe::from(Start::Earliest))?;
    for (who, samples) in [("a late joiner", &mut late), ("an early reader", &mut early)] {
        let numbers = sorted(samples)?;
        ensure!(numbers.iter().copied().eq(0..300), "{who} received {} of 300", numbers.len());
    }
    for lagging in [Lagging::Lossless, Lagging::Conflate] {
        let last = Subscribe::from(Start::Last(1)).lagging(lagging);
        let numbers = sorted(&mut topic.subscribe(last)?)?;
        ensure!(numbers.iter().copied().eq(270..300), "{lagging:?}: last values {numbers:?}");
    }
    Ok(())
}

/// The offset of the oldest stored sample, or a later one.
fn oldest(harness: &dyn Harness, topic: &Topic) -> Result<u64, Failure> {
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    let found = gather_at_least(harness, &mut samples, 1)?;
    Ok(found.samples.first().map_or(0, |sample| sample.offset))
}

fn retention(harness: &dyn Harness) -> Outcome {
    let bytes = 256 << 10;
    let retention = Retention { bytes: Some(bytes), age: None, last_value: false, default: false };
    let qos = Qos { retention, ..Qos::stream() };
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("retention");
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    let topic = open(&other, &name, &qos)?;
    has_places(&topic)?;
    let options = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut slow = topic.subscribe(options)?;
    let payload = [7; 1_000];
    let first = 5;
    for _ in 0..first {
        publisher.publish(Message::new(&payload)).wait()?;
    }
    gather(harness, &mut slow, first)?;
    // Engines remove whole segments: publish many times the retained size.
    let more = 100 * bytes / 1_000;
    for _ in 0..more {
        publisher.publish(Message::new(&payload)).wait()?;
    }
    // They also remove them late, and a reader may retain its segment: more than that must be gone.
    let until = Instant::now() + harness.timeout();
    while oldest(harness, &topic)? < more / 2 {
        ensure!(Instant::now() < until, "no sample was removed");
        publisher.publish(Message::new(&payload)).wait()?;
    }
    let end = slow.positions().first().map_or(0, |position| position.end);
    let mut received = first as u64;
    let mut told = 0;
    while received + told < end {
        let gathered = gather_at_least(harness, &mut slow, 1)?;
        received += gathered.samples.len() as u64;
        for event in gathered.others {
            let Event::Gap(gap) = event else { continue };
            let retention = matches!(gap.cause, GapCause::Retention { .. });
            ensure!(retention, "the gap's cause is {:?}", gap.cause);
            told += gap.lost;
        }
    }
    let stats = slow.stats();
    ensure!(told > 0, "no gap was reported to the slow reader");
    ensure!(stats.lost == told, "{told} were reported, {stats:?}");
    ensure!(stats.received == received && received + told == end, "{received} + {told}, {stats:?}");
    ensure!(slow.next_timeout(Duration::ZERO)?.is_none(), "received more than was published");
    Ok(())
}
