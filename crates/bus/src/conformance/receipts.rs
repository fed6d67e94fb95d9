//! Receipts: each reports exactly the guarantee that holds.

use std::collections::HashMap;
use std::time::Instant;

use helio_core::qos::Guarantee;
use helio_core::{Producer, Qos};

use super::support::{
    Outcome, block_on, ensure, gather, open, plain, process, publish_numbers, topic_has_places,
    unique,
};
use super::{Check, Failure, Harness};
use crate::error::{PublishError, TransportError};
use crate::publisher::{MAX_BATCH_BYTES, Message};
use crate::subscribe::{Start, Subscribe};
use crate::transport::Receipt;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "receipt_each_guarantee",
        promise: "each offered guarantee is confirmed, by awaiting and by blocking",
        run: each_guarantee,
    },
    Check {
        name: "receipt_beyond",
        promise: "a stronger guarantee than the transport's is refused",
        run: beyond,
    },
    Check {
        name: "receipt_names_the_sample",
        promise: "a receipt has the sample's partition, offset (if samples have offsets) and \
                  sequence",
        run: names_the_sample,
    },
    Check {
        name: "receipt_is_true",
        promise: "a late joiner receives each sample that has a receipt",
        run: is_true,
    },
    Check {
        name: "receipt_batch",
        promise: "a batch's receipts cover all of it, one a partition",
        run: batch,
    },
    Check {
        name: "receipt_batch_each",
        promise: "each sample of a batch has its own outcome; behind one that fails, none of its \
                  partition is published",
        run: batch_each,
    },
    Check {
        name: "receipt_batch_parts",
        promise: "a batch larger than 16 MiB is published whole and in order",
        run: batch_parts,
    },
    Check {
        name: "receipt_wrong_partition",
        promise: "publishing to an unknown partition is an error",
        run: wrong_partition,
    },
];

const ALL: [Guarantee; 3] = [Guarantee::Accepted, Guarantee::Stored, Guarantee::Durable];

fn each_guarantee(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("guarantees"), &plain())?;
    let publisher = topic.publisher()?;
    let offered = bus.capabilities().guarantee;
    for guarantee in ALL.into_iter().filter(|guarantee| *guarantee <= offered) {
        let message = Message::new(b"x").guarantee(guarantee);
        let waited = publisher.publish(message).wait_timeout(harness.timeout())?;
        let awaited = block_on(publisher.publish(message), harness.timeout())??;
        for receipt in [waited, awaited] {
            ensure!(
                receipt.guarantee >= guarantee,
                "requested {guarantee:?}, received {receipt:?}"
            );
        }
        ensure!(awaited.sequence == waited.sequence + 1, "{waited:?}, then {awaited:?}");
        // Samples with a weaker guarantee may keep it; a stronger one is then refused.
        match publisher.flush(guarantee, harness.timeout()) {
            Ok(()) | Err(PublishError::Transport(TransportError::Unsupported { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        let own = open(&bus, &unique("guarantee"), &plain())?.publisher()?;
        own.publish(message).wait_timeout(harness.timeout())?;
        own.flush(guarantee, harness.timeout())?;
    }
    let stats = publisher.stats();
    ensure!(stats.failed == 0 && stats.taken >= 2, "{stats:?}");
    Ok(())
}

fn beyond(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("beyond"), &plain())?;
    let publisher = topic.publisher()?;
    let offered = bus.capabilities().guarantee;
    for guarantee in ALL.into_iter().filter(|guarantee| *guarantee > offered) {
        let refused = publisher.publish(Message::new(b"x").guarantee(guarantee)).wait();
        ensure!(refused.is_err(), "{guarantee:?} was given, {offered:?} is declared");
        let refused = open(&bus, &unique("beyond"), &Qos { guarantee, ..plain() });
        ensure!(matches!(refused, Err(Failure::Refused(_))), "the topic was opened nevertheless");
    }
    Ok(())
}

fn names_the_sample(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("names"), &Qos { partitions: 3, ..Qos::stream() })?;
    let publisher = topic.publisher()?;
    let mut receipts: Vec<Receipt> = Vec::new();
    for number in 0..60_u64 {
        let key = (number % 7).to_le_bytes();
        let bytes = number.to_le_bytes();
        let message = Message::new(&bytes).key(&key).time(bus.clock().now());
        receipts.push(publisher.publish(message).wait()?);
    }
    let places = topic_has_places(&topic)?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    for sample in gather(harness, &mut samples, 60)?.samples {
        let number = super::support::number(&sample)?;
        let receipt = receipts[number as usize];
        ensure!(receipt.partition == sample.partition, "{receipt:?} for {sample:?}");
        let offset = places.then_some(sample.offset);
        ensure!(receipt.offset == offset, "{receipt:?} for {sample:?}");
        ensure!(receipt.sequence == sample.header.sequence, "{receipt:?} for {sample:?}");
    }
    Ok(())
}

fn is_true(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("true");
    let publisher = open(&bus, &name, &Qos::stream())?.publisher()?;
    let mut held = Vec::new();
    for number in 0..500_u64 {
        match publisher.publish(Message::new(&number.to_le_bytes())).wait() {
            Ok(receipt) => held.push(((receipt.offset, receipt.sequence), number)),
            Err(PublishError::Full { .. } | PublishError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let reading = open(&other, &name, &Qos::stream())?;
    let places = topic_has_places(&reading)?;
    let mut samples = reading.subscribe(Subscribe::from(Start::Earliest))?;
    let mut got = HashMap::new();
    let until = Instant::now() + harness.timeout();
    let missing = loop {
        while let Some(event) = samples.next_timeout(harness.quiet_period())? {
            if let Some(sample) = event.into_sample() {
                let offset = places.then_some(sample.offset);
                got.insert((offset, sample.header.sequence), super::support::number(&sample)?);
            }
        }
        let missing = held.iter().filter(|(at, number)| got.get(at) != Some(number)).count();
        if missing == 0 || Instant::now() >= until {
            break missing;
        }
    };
    ensure!(missing == 0, "{missing} of {} acknowledged samples are not there", held.len());
    Ok(())
}

fn batch(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("batch"), &Qos { partitions: 3, ..Qos::stream() })?;
    let publisher = topic.publisher()?;
    let payloads: Vec<_> = (0..90_u64).map(|number| (number.to_le_bytes(), number % 3)).collect();
    let messages: Vec<_> = payloads
        .iter()
        .map(|(bytes, partition)| Message::new(bytes).partition(*partition as u32))
        .collect();
    let receipts = publisher.publish_batch(&messages).wait()?;
    let mut partitions: Vec<u32> = receipts.iter().map(|receipt| receipt.partition).collect();
    partitions.sort_unstable();
    ensure!(partitions == [0, 1, 2], "receipts for the partitions {partitions:?}");
    ensure!(receipts.iter().all(|receipt| receipt.sequence == 30), "{receipts:?}");
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    gather(harness, &mut samples, 90)?;
    Ok(())
}

fn batch_each(harness: &dyn Harness) -> Outcome {
    const WRONG: u64 = 7;
    let bus = process(harness)?;
    let topic = open(&bus, &unique("batch-each"), &Qos { partitions: 3, ..Qos::stream() })?;
    let publisher = topic.publisher()?;
    let too_large = vec![0; bus.capabilities().max_payload_bytes + 1];
    let payloads: Vec<_> = (0..15_u64).map(u64::to_le_bytes).collect();
    let message = |number: u64| {
        let payload = if number == WRONG { &too_large } else { &payloads[number as usize][..] };
        Message::new(payload).partition((number % 3) as u32)
    };
    let messages: Vec<_> = (0..15).map(message).collect();
    let outcomes = publisher.publish_batch(&messages).wait_each();
    ensure!(outcomes.len() == 15, "{} outcomes of 15 samples", outcomes.len());
    let mut receipts: HashMap<u64, Receipt> = HashMap::new();
    for (number, outcome) in (0..).zip(outcomes) {
        match outcome {
            Ok(receipt) => _ = receipts.insert(number, receipt),
            Err(PublishError::Transport(TransportError::TooLarge { .. })) if number == WRONG => {}
            Err(PublishError::Skipped) if number > WRONG && number % 3 == WRONG % 3 => {}
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(receipts.len() == 12, "{} samples have receipts, not 12", receipts.len());
    let places = topic_has_places(&topic)?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    for sample in gather(harness, &mut samples, 12)?.samples {
        let number = super::support::number(&sample)?;
        let receipt = receipts.remove(&number);
        let receipt = receipt.ok_or_else(|| Failure::Broken(format!("{sample:?}: no receipt")))?;
        let offset = places.then_some(sample.offset);
        let named = (receipt.partition, receipt.offset, receipt.sequence);
        ensure!(
            named == (sample.partition, offset, sample.header.sequence),
            "{receipt:?} for {sample:?}"
        );
    }
    let next = publisher.publish(message(10)).wait()?;
    ensure!(next.sequence == 3, "skipped samples took sequence numbers: {next:?}");
    Ok(())
}

fn batch_parts(harness: &dyn Harness) -> Outcome {
    const SAMPLES: usize = 6;
    let bus = process(harness)?;
    let topic = open(&bus, &unique("batch-parts"), &Qos::stream())?;
    let publisher = topic.publisher()?;
    let size = MAX_BATCH_BYTES / 4;
    let payloads: Vec<_> = (0..SAMPLES).map(|number| vec![number as u8 + 1; size]).collect();
    let messages: Vec<_> = payloads.iter().map(|payload| Message::new(payload)).collect();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    let outcomes = publisher.publish_batch(&messages).wait_each();
    let receipts = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sequences: Vec<u64> = receipts.iter().map(|receipt| receipt.sequence).collect();
    ensure!(sequences == [1, 2, 3, 4, 5, 6], "the sequences {sequences:?}");
    let received = gather(harness, &mut samples, SAMPLES)?.samples;
    let same = received.iter().zip(&payloads).all(|(sample, payload)| sample.payload == *payload);
    ensure!(same && received.len() == SAMPLES, "{} samples, or others", received.len());
    Ok(())
}

fn wrong_partition(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("wrong"), &plain())?;
    let publisher = topic.publisher()?;
    let wrong = publisher.publish(Message::new(b"x").partition(1)).wait();
    let told = matches!(wrong, Err(PublishError::NoPartition { partition: 1, partitions: 1 }));
    ensure!(told, "partition 1 of 1 gave {wrong:?}");
    publish_numbers(&publisher, "", 0..1)?;
    let Producer { incarnation, .. } = publisher.producer();
    ensure!(incarnation > 0, "the first incarnation is {incarnation}, not at least 1");
    Ok(())
}
