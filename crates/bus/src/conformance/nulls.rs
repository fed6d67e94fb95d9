//! Nulls: samples without a value, which delete the last value of their key.

use helio_core::qos::{History, Retention};
use helio_core::{Headers, Qos};

use super::support::{
    Outcome, ensure, gather, listening, open, plain, process, publish_numbers, unique,
};
use super::{Check, Failure, Harness};
use crate::event::Sample;
use crate::publisher::Message;
use crate::subscribe::{Start, Subscribe};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "null_is_a_value",
        promise: "a null is received as a null, with its key and headers, and an empty value as an \
                  empty value",
        run: is_a_value,
    },
    Check {
        name: "null_deletes",
        promise: "a late joiner receives nothing of a key whose newest sample is a null, and only \
                  the values behind the null once there are any",
        run: deletes,
    },
    Check {
        name: "null_deletes_for_ever",
        promise: "a deleted key stays deleted, however many samples of others are published and \
                  removed",
        run: for_ever,
    },
];

fn is_a_value(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("null");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let reading = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &publisher)?;
    let note = Headers::new().with("note", b"why")?;
    let noted = note.clone().null()?;
    let messages = [
        Message::new(b"value").key(b"k"),
        Message::null(b"k"),
        Message::new(b"").key(b"k"),
        Message::null(b"k").headers(noted.as_ref()),
        Message::new(b"").key(b"k").headers(note.as_ref()),
        Message::null(b""),
    ];
    for message in [messages; 3].concat() {
        publisher.publish(message).wait()?;
    }
    publisher.publish_batch(&messages).wait()?;
    let told = publisher.publish(Message::null(b"k").headers(note.as_ref())).wait();
    ensure!(told.is_err(), "a null whose headers lack the mark was taken");
    let gathered = gather(harness, &mut samples, 4 * messages.len())?;
    let seen = |s: &Sample| (s.is_null(), s.payload.to_vec(), s.key.to_vec());
    let seen: Vec<_> = gathered.samples.iter().map(seen).collect();
    let (k, none) = (b"k".to_vec(), Vec::new());
    let expected = [
        (false, b"value".to_vec(), k.clone()),
        (true, none.clone(), k.clone()),
        (false, none.clone(), k.clone()),
        (true, none.clone(), k.clone()),
        (false, none.clone(), k),
        (true, none.clone(), none),
    ];
    ensure!(seen == vec![expected; 4].concat(), "received {seen:?}");
    for place in (0..4).flat_map(|round| [6 * round + 3, 6 * round + 4]) {
        let found = gathered.samples[place].headers.as_ref().get("note");
        ensure!(found == Some(&b"why"[..]), "sample {place} has the note {found:?}");
    }
    Ok(())
}

fn keep_last(n: u8) -> Qos {
    Qos { history: History::KeepLast(n), ..Qos::telemetry() }
}

/// The keys and numbers that a late joiner receives with the newest `n` samples of each key.
fn last(harness: &dyn Harness, name: &str, n: u8, expected: usize) -> Result<Vec<u64>, Failure> {
    let other = process(harness)?;
    let topic = open(&other, name, &keep_last(3))?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(n.into())))?;
    let gathered = gather(harness, &mut samples, expected)?;
    ensure!(samples.stats().lost == 0, "a deletion counts as loss: {:?}", samples.stats());
    let mut numbers = gathered.numbers()?;
    numbers.sort_unstable();
    Ok(numbers)
}

fn deletes(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let name = unique("deleted");
    let publisher = open(&bus, &name, &keep_last(3))?.publisher()?;
    publish_numbers(&publisher, "a", 0..2)?;
    publish_numbers(&publisher, "b", 2..4)?;
    publisher.publish(Message::null(b"a")).wait()?;
    // A key that never had a value.
    publisher.publish(Message::null(b"c")).wait()?;
    let numbers = last(harness, &name, 1, 1)?;
    ensure!(numbers == [3], "last(1) gave {numbers:?}");
    let numbers = last(harness, &name, 3, 2)?;
    ensure!(numbers == [2, 3], "last(3) gave {numbers:?}");
    publish_numbers(&publisher, "a", 4..5)?;
    let numbers = last(harness, &name, 1, 2)?;
    ensure!(numbers == [3, 4], "last(1) gave {numbers:?} after another value");
    let numbers = last(harness, &name, 3, 3)?;
    ensure!(numbers == [2, 3, 4], "last(3) gave {numbers:?} after another value");
    Ok(())
}

fn for_ever(harness: &dyn Harness) -> Outcome {
    let retention =
        Retention { bytes: Some(64 << 10), age: None, last_value: true, default: false };
    let qos = Qos { retention, ..keep_last(1) };
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("deleted");
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    let noise = [1; 1_000];
    let noisy = || -> Outcome {
        for _ in 0..500 * harness.scale() {
            publisher.publish(Message::new(&noise).key(b"noisy")).wait()?;
        }
        Ok(())
    };
    for number in 0..20 {
        publish_numbers(&publisher, &format!("quiet/{number}"), number..number + 1)?;
    }
    noisy()?;
    for number in (0..20).step_by(2) {
        publisher.publish(Message::null(format!("quiet/{number}").as_bytes())).wait()?;
    }
    noisy()?;
    let topic = open(&other, &name, &qos)?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
    let history = gather(harness, &mut samples, 11)?;
    let mut quiet: Vec<u64> = Vec::new();
    for sample in history.samples.iter().filter(|sample| sample.key.starts_with(b"quiet")) {
        quiet.push(super::support::number(sample)?);
    }
    let expected = (0..20).filter(|number| number % 2 == 1);
    ensure!(quiet.iter().copied().eq(expected), "received {quiet:?} of the quiet keys");
    Ok(())
}
