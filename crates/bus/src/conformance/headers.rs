//! Headers arrive unchanged, from the log and from the history.

use helio_core::headers::{HeadersError, MAX_HEADERS_BYTES};
use helio_core::qos::History;
use helio_core::{Headers, Qos};

use super::support::{Outcome, ensure, gather, listening, number, open, plain, process, unique};
use super::{Check, Failure, Harness};
use crate::batch::Batch;
use crate::publisher::{Message, Publisher};
use crate::subscribe::{Start, Subscribe};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "headers_whole",
        promise: "headers are received unchanged: none, one, many and the most, with keys and \
                  without",
        run: whole,
    },
    Check {
        name: "headers_in_batches",
        promise: "headers stay with their samples in batches, written and read",
        run: batches,
    },
    Check {
        name: "headers_of_last_values",
        promise: "a late joiner receives the headers of last values",
        run: last_values,
    },
    Check {
        name: "headers_limit",
        promise: "more headers than the limit are refused, naming the limit",
        run: limit,
    },
];

impl From<HeadersError> for Failure {
    fn from(error: HeadersError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// The headers of the sample of a number: most samples have none.
fn headers(number: u64) -> Result<Headers, Failure> {
    let none = Headers::new();
    Ok(match number % 7 {
        1 => none.with("helio-caller", "alice@summit1")?,
        2 => (0..40).try_fold(none, |all, n: u8| all.with(&format!("n{}", 40 - n), [n]))?,
        4 => none.with("empty", "")?.with("any", (0..=255).collect::<Vec<u8>>())?,
        5 => none.with("most", vec![number as u8; MAX_HEADERS_BYTES - 7])?,
        _ => none,
    })
}

fn publish(publisher: &Publisher, numbers: std::ops::Range<u64>) -> Outcome {
    for number in numbers {
        let (headers, key) = (headers(number)?, [number as u8; 3]);
        let payload = number.to_le_bytes();
        let message = Message::new(&payload).key(&key[..number as usize % 4]);
        publisher.publish(message.headers(headers.as_ref())).wait()?;
    }
    Ok(())
}

fn whole(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("headers");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let reading = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &publisher)?;
    publish(&publisher, 0..50)?;
    let gathered = gather(harness, &mut samples, 50)?;
    for (n, sample) in gathered.samples.iter().enumerate() {
        ensure!(number(sample)? == n as u64, "payload {n} is damaged");
        ensure!(sample.key[..] == [n as u8; 3][..n % 4], "key {n}: {:?}", sample.key);
        ensure!(sample.headers == headers(n as u64)?, "headers {n}: {:?}", sample.headers);
    }
    Ok(())
}

fn batches(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("headers");
    let publisher = open(&bus, &name, &plain())?.publisher()?;
    let reading = open(&other, &name, &plain())?;
    let options = Subscribe::from(Start::Latest);
    let mut samples = listening(harness, &reading, options, &publisher)?;
    let headers = (0..200).map(headers).collect::<Result<Vec<_>, _>>()?;
    let messages: Vec<_> = headers.iter().map(|h| Message::new(b"x").headers(h.as_ref())).collect();
    publisher.publish_batch(&messages).wait()?;
    let (mut batch, mut count) = (Batch::new(), 0);
    while count < 200 && samples.next_batch(64, harness.timeout(), &mut batch)? > 0 {
        for sample in batch.iter() {
            ensure!(sample.headers == headers[count].as_ref(), "headers {count} differ");
            ensure!(sample.payload == b"x", "payload {count}: {:?}", sample.payload);
            count += 1;
        }
    }
    ensure!(count == 200, "received {count} of 200 samples in batches");
    Ok(())
}

fn last_values(harness: &dyn Harness) -> Outcome {
    let qos = Qos { history: History::KeepLast(1), ..Qos::telemetry() };
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("headers");
    let publisher = open(&bus, &name, &qos)?.publisher()?;
    for n in 0..30_u64 {
        let (headers, payload) = (headers(n)?, n.to_le_bytes());
        let message = Message::new(&payload).key(&payload);
        publisher.publish(message.headers(headers.as_ref())).wait()?;
    }
    let mut samples = open(&other, &name, &qos)?.subscribe(Subscribe::from(Start::Last(1)))?;
    for sample in gather(harness, &mut samples, 30)?.samples {
        let n = number(&sample)?;
        ensure!(sample.headers == headers(n)?, "headers {n}: {:?}", sample.headers);
    }
    Ok(())
}

fn limit(_: &dyn Harness) -> Outcome {
    let refused = Headers::new().with("most", vec![0; MAX_HEADERS_BYTES - 6]);
    let told = matches!(&refused, Err(HeadersError::TooLarge(n)) if *n == MAX_HEADERS_BYTES + 1);
    ensure!(told, "one byte more than the limit: {refused:?}");
    Ok(())
}
