//! Helpers of the checks: connecting, publishing, gathering, reporting failures.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use helio_core::Qos;

use super::{Failure, Harness};
use crate::bus::Bus;
use crate::error::{PublishError, ReadError, TopicError};
use crate::event::{Event, Sample};
use crate::publisher::{Message, Publisher};
use crate::subscribe::{Start, Subscribe};
use crate::subscription::Subscription;
use crate::topic::{Topic, TopicSpec};

/// Fails the check unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Failure::Broken(format!($($why)+)));
        }
    };
}
pub(super) use ensure;

pub(super) type Outcome = Result<(), Failure>;

macro_rules! broken_by {
    ($($error:ty),+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Broken(error.to_string())
            }
        }
    )+};
}
broken_by!(
    crate::error::ConnectError,
    crate::error::TransportError,
    PublishError,
    ReadError,
    crate::waitset::MemberError,
    crate::exclusive::ExclusiveError,
    helio_core::NameError
);

impl From<TopicError> for Failure {
    /// A refusal by name does not break a promise.
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::Refused(refusal) => Self::Refused(refusal.to_string()),
            other => Self::Broken(other.to_string()),
        }
    }
}

/// A name that no other check, run or process uses.
pub(super) fn unique(base: &str) -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    format!("conformance/{base}-{seconds:x}-{:x}-{run:x}", std::process::id())
}

/// A separate bus, as of another process.
pub(super) fn process(harness: &dyn Harness) -> Result<Bus, Failure> {
    Ok(harness.connect(Bus::builder())?)
}

/// The same under a producer's name.
pub(super) fn named(harness: &dyn Harness, producer: &str) -> Result<Bus, Failure> {
    Ok(harness.connect(Bus::builder().producer(producer))?)
}

pub(super) fn open(bus: &Bus, name: &str, qos: &Qos) -> Result<Topic, Failure> {
    Ok(bus.topic(TopicSpec::new(name)?.qos(qos.clone()))?)
}

/// A quality of service that every transport supports: volatile, without history.
pub(super) fn plain() -> Qos {
    Qos {
        retention: helio_core::qos::Retention { last_value: false, ..Qos::stream().retention },
        durability: helio_core::qos::Durability::Volatile,
        history: helio_core::qos::History::None,
        overload: helio_core::qos::Overload::Block,
        ..Qos::telemetry()
    }
}

/// A subscription that receives all samples published from now on. Engines without a log match
/// readers and writers with a delay.
pub(super) fn listening(
    harness: &dyn Harness,
    topic: &Topic,
    options: Subscribe,
    publisher: &Publisher,
) -> Result<Subscription, Failure> {
    let mut subscription = topic.subscribe(options)?;
    if topic_has_places(topic)? {
        return Ok(subscription);
    }
    let until = Instant::now() + harness.timeout();
    let mut probes = 0;
    while Instant::now() < until {
        probes += 1;
        let probe = format!("are you there? {probes}");
        publisher.publish(Message::new(probe.as_bytes())).wait()?;
        let (mut met, mut left) = (false, harness.quiet_period());
        while let Some(event) = subscription.next_timeout(left)? {
            met = true;
            if let Some(sample) = event.into_sample() {
                if sample.payload == probe.as_bytes() {
                    return Ok(subscription);
                }
                // They are matched, so the newest probe arrives, however late: none remains for the
                // check.
                left = harness.timeout();
            }
        }
        if met {
            return Ok(subscription);
        }
    }
    Err(Failure::Broken("publisher and subscription were not matched".to_owned()))
}

/// Refused if the transport has no offsets, so that offsets cannot be tested.
pub(super) fn has_places(topic: &Topic) -> Outcome {
    let start = Start::Offset { partition: 0, offset: 0 };
    topic.subscribe(Subscribe::from(start)).map(drop).map_err(Failure::from)
}

/// Whether samples have offsets, so that a subscription's start is exact.
pub(super) fn topic_has_places(topic: &Topic) -> Result<bool, Failure> {
    Ok(!topic.partitions()?.is_empty())
}

/// Publishes numbered payloads under a key.
pub(super) fn publish_numbers(
    publisher: &Publisher,
    key: &str,
    numbers: std::ops::Range<u64>,
) -> Outcome {
    for number in numbers {
        publisher.publish(Message::new(&number.to_le_bytes()).key(key.as_bytes())).wait()?;
    }
    Ok(())
}

pub(super) fn number(sample: &Sample) -> Result<u64, Failure> {
    let bytes = sample.payload[..].try_into();
    let bytes = bytes.map_err(|_| Failure::Broken(format!("no number: {:?}", sample.payload)))?;
    Ok(u64::from_le_bytes(bytes))
}

/// The events of a subscription.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) samples: Vec<Sample>,
    pub(super) others: Vec<Event>,
}

impl Gathered {
    pub(super) fn numbers(&self) -> Result<Vec<u64>, Failure> {
        self.samples.iter().map(number).collect()
    }

    pub(super) fn by_key(&self) -> Result<HashMap<Vec<u8>, Vec<u64>>, Failure> {
        let mut keys: HashMap<Vec<u8>, Vec<u64>> = HashMap::new();
        for sample in &self.samples {
            keys.entry(sample.key.to_vec()).or_default().push(number(sample)?);
        }
        Ok(keys)
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::Sample(sample) => self.samples.push(sample),
            other => self.others.push(other),
        }
    }
}

/// Waits for a number of samples, then checks that no more arrive.
pub(super) fn gather(
    harness: &dyn Harness,
    subscription: &mut Subscription,
    expected: usize,
) -> Result<Gathered, Failure> {
    let gathered = gather_at_least(harness, subscription, expected)?;
    let mut gathered = gathered;
    while let Some(event) = subscription.next_timeout(harness.quiet_period())? {
        gathered.add(event);
    }
    let came = gathered.samples.len();
    ensure!(came == expected, "received {came} samples instead of {expected}");
    Ok(gathered)
}

/// Waits for at least this number of samples.
pub(super) fn gather_at_least(
    harness: &dyn Harness,
    subscription: &mut Subscription,
    expected: usize,
) -> Result<Gathered, Failure> {
    let until = Instant::now() + harness.timeout();
    let mut gathered = Gathered::default();
    while gathered.samples.len() < expected {
        let left = until.saturating_duration_since(Instant::now());
        match subscription.next_timeout(left)? {
            Some(event) => gathered.add(event),
            None => {
                let (came, stats) = (gathered.samples.len(), subscription.stats());
                let (stands, others) = (subscription.positions(), &gathered.others);
                let why = format!(
                    "received {came} of {expected} in time; {stats:?} at {stands:?}, {others:?}"
                );
                return Err(Failure::Broken(why));
            }
        }
    }
    Ok(gathered)
}

/// Waits for an event that a predicate accepts.
pub(super) fn await_event<T>(
    harness: &dyn Harness,
    subscription: &mut Subscription,
    what: &str,
    mut wanted: impl FnMut(&Event) -> Option<T>,
) -> Result<T, Failure> {
    let until = Instant::now() + harness.timeout();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match subscription.next_timeout(left)? {
            Some(event) => {
                if let Some(found) = wanted(&event) {
                    return Ok(found);
                }
            }
            None => return Err(Failure::Broken(format!("{what} was not reported"))),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread, with a timeout.
pub(super) fn block_on<F: Future>(future: F, patience: Duration) -> Result<F::Output, Failure> {
    let until = Instant::now() + patience;
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Broken("a task was not woken".to_owned()));
        }
        std::thread::park_timeout(left);
    }
}
