//! Overload: each policy counts what it refuses or drops.

use std::time::Instant;

use helio_core::Qos;
use helio_core::qos::Overload;

use super::support::{
    Outcome, ensure, gather, listening, open, plain, process, publish_numbers, unique,
};
use super::{Check, Harness};
use crate::error::PublishError;
use crate::event::{Event, GapCause};
use crate::publisher::Message;
use crate::subscribe::{Lagging, Start, Subscribe};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "overload_publisher",
        promise: "accepted + refused + dropped = published, and accepted samples are received",
        run: publisher_accounts,
    },
    Check {
        name: "overload_drop_oldest",
        promise: "a slow reader that drops receives the newest samples, and a gap that counts the \
                  others",
        run: drop_oldest,
    },
    Check {
        name: "overload_conflate",
        promise: "a slow reader that conflates receives the newest sample of each key; the others \
                  are counted",
        run: conflate,
    },
    Check {
        name: "overload_shed",
        promise: "a slow reader that sheds drops and counts the lowest levels",
        run: shed,
    },
    Check {
        name: "overload_nobody_else",
        promise: "stalled readers do not affect the writer or other readers",
        run: nobody_else,
    },
];

fn publisher_accounts(harness: &dyn Harness) -> Outcome {
    let policies = [Overload::Block, Overload::Refuse, Overload::DropNewest, Overload::ShedByLevel];
    for overload in policies {
        let qos = Qos { overload, ..plain() };
        let (bus, other) = (process(harness)?, process(harness)?);
        let name = unique("accounts");
        let publisher = open(&bus, &name, &qos)?.publisher()?;
        let reading = open(&other, &name, &qos)?;
        let options = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
        let mut samples = listening(harness, &reading, options, &publisher)?;
        let met = publisher.stats().taken;
        let tried = 2_000 * harness.scale();
        let payload = [3; 1_000];
        let publishing: Vec<_> =
            (0..tried).map(|_| publisher.publish(Message::new(&payload))).collect();
        let mut taken = 0;
        for publishing in publishing {
            match publishing.wait_timeout(harness.timeout()) {
                Ok(_) => taken += 1,
                Err(PublishError::Full { .. }) if overload == Overload::Refuse => {}
                Err(PublishError::Dropped { .. }) if overload != Overload::Block => {}
                Err(error) => ensure!(false, "under {overload:?}: {error}"),
            }
        }
        let stats = publisher.stats();
        ensure!(stats.taken - met == taken, "{taken} receipts, {stats:?}");
        let others = stats.refused + stats.dropped;
        ensure!(taken + others == tried as u64, "{taken} of {tried}, {stats:?}");
        gather(harness, &mut samples, taken as usize)?;
        ensure!(samples.stats().lost == 0, "{:?}", samples.stats());
    }
    Ok(())
}

fn drop_oldest(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("drop-oldest");
    let qos = Qos::stream();
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    let options = Subscribe::from(Start::Latest).lagging(Lagging::DropOldest { depth: 10 });
    let topic = open(&other, &name, &qos)?;
    let mut slow = listening(harness, &topic, options, &publisher)?;
    publish_numbers(&publisher, "k", 0..100)?;
    let gathered = gather(harness, &mut slow, 10)?;
    let numbers = gathered.numbers()?;
    ensure!(numbers.iter().copied().eq(90..100), "received {numbers:?}");
    let gaps = gathered.others.iter().filter_map(|e| match e {
        Event::Gap(gap) => Some((gap.lost, matches!(gap.cause, GapCause::Overload { .. }))),
        _ => None,
    });
    let gaps: Vec<_> = gaps.collect();
    ensure!(gaps == [(90, true)], "the gaps are {gaps:?}");
    ensure!(slow.stats().lost == 90, "{:?}", slow.stats());
    publish_numbers(&publisher, "k", 100..105)?;
    let numbers = gather(harness, &mut slow, 5)?.numbers()?;
    ensure!(numbers.iter().copied().eq(100..105), "then received {numbers:?}");
    Ok(())
}

fn conflate(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("conflate");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let topic = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest).lagging(Lagging::Conflate);
    let mut slow = listening(harness, &topic, options, &publisher)?;
    let before = slow.stats();
    for number in 0..300 {
        publish_numbers(&publisher, &format!("{}", number % 3), number..number + 1)?;
    }
    // However the reader's polls divide the samples, the last one of each key is the newest.
    let mut newest = std::collections::HashMap::new();
    let mut came = 0;
    let until = Instant::now() + harness.timeout();
    loop {
        while let Some(event) = slow.next_timeout(harness.quiet_period())? {
            if let Some(sample) = event.into_sample() {
                came += 1;
                newest.insert(sample.key.to_vec(), super::support::number(&sample)?);
            }
        }
        let conflated = slow.stats().conflated - before.conflated;
        if came + conflated >= 300 || Instant::now() >= until {
            break;
        }
    }
    let mut newest: Vec<u64> = newest.into_values().collect();
    newest.sort_unstable();
    ensure!(newest == [297, 298, 299], "the newest of the keys are {newest:?}");
    let stats = slow.stats();
    let conflated = stats.conflated - before.conflated;
    ensure!(came + conflated == 300, "received {came} of 300, {stats:?}");
    ensure!(stats.lost == 0, "{stats:?}");
    Ok(())
}

fn shed(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("shed"), &Qos::stream())?;
    let publisher = topic.publisher()?;
    let options = Subscribe::from(Start::Latest).lagging(Lagging::ShedByLevel { depth: 50 });
    let mut slow = listening(harness, &topic, options, &publisher)?;
    for number in 0..500_u64 {
        let bytes = number.to_le_bytes();
        let message = Message::new(&bytes)
            .level((number % 10) as u8)
            .guarantee(helio_core::qos::Guarantee::Accepted);
        publisher.publish(message).wait()?;
    }
    let mut high = 0;
    let mut low = 0;
    let until = Instant::now() + harness.timeout();
    loop {
        while let Some(event) = slow.next_timeout(harness.quiet_period())? {
            let Some(sample) = event.into_sample() else { continue };
            if sample.header.level > 4 { high += 1 } else { low += 1 }
        }
        if high + low + slow.stats().shed >= 500 || Instant::now() >= until {
            break;
        }
    }
    let stats = slow.stats();
    ensure!(high == 250, "received {high} of 250 samples of high level");
    ensure!(stats.shed > 0 && low + stats.shed == 250, "{low} of low level, {stats:?}");
    Ok(())
}

fn nobody_else(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("stalled");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let topic = open(&other, &name, &plain())?;
    let options = || Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut stalled = Vec::new();
    for _ in 0..10 {
        stalled.push(topic.subscribe(options())?);
    }
    let mut reader = listening(harness, &topic, options(), &publisher)?;
    publish_numbers(&publisher, "k", 0..1_000)?;
    let numbers = gather(harness, &mut reader, 1_000)?.numbers()?;
    ensure!(numbers.iter().copied().eq(0..1_000), "the reader that keeps up lost samples");
    let refused = publisher.stats().refused + publisher.stats().dropped;
    ensure!(refused == 0, "stalled readers made the writer refuse {refused}");
    Ok(())
}
