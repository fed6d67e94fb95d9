//! A compacted topic of one partition as a table: its log, folded in order.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::locked;
use helio_bus::transport::versioned_json::{self, FormatError};
use rdkafka::message::Message as _;
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::client::admin::TopicToCreate;
use crate::client::delivery::DeliveryOutcome;
use crate::client::error::{engine, failed, outage};
use crate::client::fetcher::{LentPartitions, SampleQueue};
use crate::client::in_flight::{DeliveryReceiver, OutgoingRecord};
use crate::client::link::Link;
use crate::client::names::PRODUCERS;
use crate::client::options::{BROKER_TIMEOUT, FetchPace};
use crate::client::signal::ReaderSignal;
use crate::client::topic_config;

/// How long callers that must not wait long wait for the brokers.
const GLANCE_TIMEOUT: Duration = Duration::from_millis(800);
/// How often a waiting reader checks whether another reader has finished.
const LOG_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Additional time for each of many records on busy brokers.
const RECORD_ACK_ALLOWANCE: Duration = Duration::from_millis(10);

/// A record of an internal topic.
pub(crate) struct LogRecord<'a> {
    pub(crate) offset: u64,
    /// When it was written, in milliseconds of UTC.
    pub(crate) millis: i64,
    pub(crate) key: &'a [&'a str],
    /// `None` is a tombstone.
    pub(crate) value: Option<&'a [u8]>,
}

/// The value of a record without members.
pub(crate) const TRUE: &[u8] = b"true";

/// A record's value as JSON.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TransportError> {
    versioned_json::encode(value).map_err(|error| engine("write a table", error))
}

/// Checks a value without members.
pub(crate) fn check_true(json: &[u8]) -> Result<(), FormatError> {
    if json == TRUE {
        return Ok(());
    }
    versioned_json::decode::<IgnoredAny>(json)?;
    Err(FormatError::invalid("expected true"))
}

/// The error of a record whose key no rule describes.
pub(crate) fn unknown_key() -> FormatError {
    FormatError::invalid("unknown kind of key")
}

/// The state that results from a log.
pub(crate) trait Fold: Default {
    /// The table's name.
    const NAME: &'static str;
    /// Applies the next record. An error ignores it; it does not affect other records.
    fn take(&mut self, entry: LogRecord<'_>) -> Result<(), FormatError>;
}

/// A table, as far as its log was read. Lookups do not wait for reads, and concurrent reads are
/// done once for all callers.
pub(crate) struct Table<F> {
    link: Arc<Link>,
    fold: Mutex<F>,
    log: Mutex<Option<LogReader>>,
    /// How many reads to the end have begun.
    begun: AtomicU64,
    /// The newest of these that reached the end.
    done: AtomicU64,
    /// How many records could not be read.
    unreadable: AtomicU64,
}

struct LogReader {
    queue: SampleQueue,
    next: u64,
    /// Since when no record has arrived although there are some; `None` if they arrive.
    silent: Option<Instant>,
    lent: LentPartitions,
}

impl<F: Fold> Table<F> {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            fold: Mutex::default(),
            log: Mutex::default(),
            begun: AtomicU64::default(),
            done: AtomicU64::default(),
            unreadable: AtomicU64::default(),
        }
    }

    /// Inspects the state as of the last read.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&F) -> R) -> R {
        inspect(&locked(&self.fold))
    }

    /// Reads to the log's current end, then inspects the state.
    pub(crate) fn read<R>(
        &self,
        patience: Duration,
        inspect: impl FnOnce(&F) -> R,
    ) -> Result<R, TransportError> {
        self.link.check_open()?;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = locked(&self.log);
        if !self.was_read_after(came) {
            self.read_on(&mut log, patience)?;
        }
        drop(log);
        self.link.check_open()?;
        Ok(self.inspect(inspect))
    }

    /// Reads to the log's current end within a time limit, also while another thread reads it or
    /// the connection is being closed.
    pub(crate) fn catch_up(&self, patience: Duration) -> Result<(), TransportError> {
        let until = Instant::now() + patience;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = self.log_by(until)?;
        if self.was_read_after(came) {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        self.read_on(&mut log, left.max(LOG_LOCK_POLL_INTERVAL))
    }

    /// The log, if no other thread reads it by then.
    fn log_by(&self, until: Instant) -> Result<MutexGuard<'_, Option<LogReader>>, TransportError> {
        loop {
            match self.log.try_lock() {
                Ok(log) => return Ok(log),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                // Another thread's read may be older than this query.
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(LOG_LOCK_POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(outage(format!("another thread is reading {}", F::NAME)));
                }
            }
        }
    }

    /// Whether a read that began after the first `came` ones has reached the end.
    fn was_read_after(&self, came: u64) -> bool {
        self.done.load(Ordering::SeqCst) > came
    }

    /// The same for callers that must not wait long: within [`GLANCE_TIMEOUT`], also while another
    /// thread reads. The first call opens the table and may take longer.
    pub(crate) fn glance<R>(&self, inspect: impl FnOnce(&F) -> R) -> Result<R, TransportError> {
        self.link.check_open()?;
        let until = Instant::now() + GLANCE_TIMEOUT;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = self.log_by(until)?;
        let left = until.saturating_duration_since(Instant::now());
        let patience =
            if log.is_some() { left.max(LOG_LOCK_POLL_INTERVAL) } else { BROKER_TIMEOUT };
        if !self.was_read_after(came) {
            self.read_on(&mut log, patience)?;
        }
        drop(log);
        Ok(self.inspect(inspect))
    }

    fn read_on(
        &self,
        log: &mut Option<LogReader>,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let topic = self.link.names.internal(F::NAME);
        if log.is_none() {
            // A closing connection opens nothing.
            self.link.check_open()?;
            if self.link.client.partitions(&topic)?.is_none() {
                return Ok(());
            }
        }
        let ends = self.link.client.ends(&topic, 0, patience);
        // If no broker answers, the consumer is not at fault.
        let (first, end) =
            ends.inspect_err(|_| log.iter_mut().for_each(|log| log.silent = None))?;
        // A log that is shorter than before is a new one: the topic was deleted.
        if log.as_ref().is_none_or(|log| log.next > end || log.next < first) {
            self.link.check_open()?;
            *log = Some(LogReader::open(&self.link, &topic, first)?);
            *locked(&self.fold) = F::default();
        }
        let Some(log) = log else { return Ok(()) };
        if log
            .silent
            .is_some_and(|since| since.elapsed() >= self.link.options.watchdog.fetch_silence)
        {
            self.link.check_open()?;
            log.lent.fetcher.abandon();
            *log = LogReader::open(&self.link, &topic, log.next)?;
        }
        log.read_on((end, patience), |entry| {
            let key = entry.key;
            let taken = locked(&self.fold).take(entry);
            if let Err(error) = taken {
                self.report_unreadable(&topic, key, &error);
            }
        })?;
        self.done.store(this, Ordering::SeqCst);
        Ok(())
    }

    /// Counts a record that cannot be read, and warns of the first, second, fourth, … one.
    fn report_unreadable(&self, topic: &str, key: &[&str], error: &FormatError) {
        let count = self.unreadable.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            // If standard error is closed, the warning is lost.
            let _ = writeln!(
                std::io::stderr().lock(),
                "heliograph: the record {:?} of Kafka's topic {topic} is in a format that this \
                 release cannot read ({error}); ignored, {count} so far; use the same release in \
                 all programs",
                key.join(" ")
            );
        }
    }
}

impl LogReader {
    fn open(link: &Link, topic: &str, first: u64) -> Result<Self, TransportError> {
        let id = link.client.described(topic, BROKER_TIMEOUT)?.map(|described| described.id);
        let mut lent = link.pool.lend((topic, id), &[0], FetchPace::Patient)?;
        let queue = lent.assign(&[(0, first)], &Arc::<ReaderSignal>::default())?.pop();
        let queue = queue.ok_or_else(|| outage(format!("{topic} has no queue")))?;
        Ok(Self { queue, next: first, silent: None, lent })
    }

    fn read_on(
        &mut self,
        (end, patience): (u64, Duration),
        mut take: impl FnMut(LogRecord<'_>),
    ) -> Result<(), TransportError> {
        let began = Instant::now();
        let until = began + patience;
        while self.next < end {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.silent.get_or_insert(began);
                return Err(outage(format!("{} cannot be read", self.lent.topic)));
            }
            let Some(message) = self.queue.poll(left) else { continue };
            self.silent = None;
            let message = message.map_err(failed("read a table"))?;
            let offset = u64::try_from(message.offset()).unwrap_or(0);
            self.next = offset + 1;
            let key = String::from_utf8_lossy(message.key().unwrap_or_default());
            let words: Vec<_> = key.split(' ').collect();
            let millis = message.timestamp().to_millis().unwrap_or(0);
            take(LogRecord { offset, millis, key: &words, value: message.payload() });
        }
        Ok(())
    }
}

/// A new record: its key and its value; `None` is a tombstone.
type NewRecord = (String, Option<Vec<u8>>);

/// Appends a record to a table, which is created if necessary; returns its offset.
pub(crate) fn append(
    link: &Link,
    table: &str,
    key: &str,
    value: Option<&[u8]>,
) -> Result<u64, TransportError> {
    let offsets = append_all(link, table, &[(key.to_owned(), value.map(<[u8]>::to_vec))])?;
    Ok(offsets.into_iter().next().unwrap_or(0))
}

/// The same for many records.
pub(crate) fn append_all(
    link: &Link,
    table: &str,
    records: &[NewRecord],
) -> Result<Vec<u64>, TransportError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let name = link.names.internal(table);
    if link.client.partitions(&name)?.is_none() {
        let config = if table == PRODUCERS { topic_config::words() } else { topic_config::table() };
        let made = TopicToCreate { name: name.clone(), partitions: 1, config };
        let refused = link.admin.create(&[made], BROKER_TIMEOUT)?;
        refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
        link.client.wait_until_created(&name)?;
    }
    let patience =
        BROKER_TIMEOUT + RECORD_ACK_ALLOWANCE * u32::try_from(records.len()).unwrap_or(u32::MAX);
    let offsets = append_within(link, table, records, patience)?.into_iter().zip(records);
    let offsets = offsets.map(|(offset, (key, _))| {
        let repeated = || outage(format!("{}: it was repeated", writing(table, key)));
        offset.ok_or_else(repeated)
    });
    offsets.collect()
}

fn writing(table: &str, key: &str) -> String {
    format!("write {key:?} to the table of {table}")
}

/// Appends records to an existing table and waits for their acknowledgements; returns their
/// offsets, `None` for repeated ones.
pub(crate) fn append_within(
    link: &Link,
    table: &str,
    records: &[NewRecord],
    patience: Duration,
) -> Result<Vec<Option<u64>>, TransportError> {
    let name = link.names.internal(table);
    let mut in_flight = Vec::with_capacity(records.len());
    let until = Instant::now() + patience;
    for (key, value) in records {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Tables are written when something is opened: records in flight make room soon.
        while !send(link, &name, (key, value.as_deref()), &sender)? {
            if Instant::now() > until {
                return Err(outage("the producer's queue stays full".to_owned()));
            }
            std::thread::sleep(LOG_LOCK_POLL_INTERVAL);
        }
        in_flight.push((writing(table, key), receiver));
    }
    let producer = link.internal_producer()?;
    let arrived = in_flight.into_iter().map(|(what, receiver)| {
        let left = until.saturating_duration_since(Instant::now());
        let outcome = receiver.recv_timeout(left).map_err(|_| late(&what))?;
        outcome.map_err(|error| failed(&what)(producer.cause(error)))
    });
    arrived.collect()
}

/// The same without waiting: if the queue is full, the record is not sent.
pub(crate) fn send_unconfirmed(
    link: &Link,
    table: &str,
    key: &str,
    value: Option<&[u8]>,
) -> Result<(), TransportError> {
    let name = link.names.internal(table);
    send(link, &name, (key, value), &mpsc::sync_channel(1).0).map(drop)
}

fn late(what: &str) -> TransportError {
    outage(format!("{what}: no broker has acknowledged it"))
}

/// Sends a record if there is room.
fn send(
    link: &Link,
    name: &str,
    (key, value): (&str, Option<&[u8]>),
    report: &SyncSender<DeliveryOutcome>,
) -> Result<bool, TransportError> {
    let producer = link.internal_producer()?;
    let bytes = key.len() + value.map_or(0, <[u8]>::len);
    let Some(taken) = producer.take((1, bytes), None, || DeliveryReceiver::Table(report.clone()))
    else {
        return Ok(false);
    };
    let record = OutgoingRecord {
        topic: name,
        partition: 0,
        key: Some(key.as_bytes()),
        payload: value,
        headers: None,
        timestamp: None,
    };
    producer.send(record, taken).map_err(failed("write a table")).map(|()| true)
}

#[cfg(test)]
mod tests {
    use helio_bus::transport::Opening;
    use helio_bus::{Clock, SystemClock, TopicName};

    use super::*;
    use crate::client::options::Options;
    use crate::internal::writer_table::WriterTable;
    use crate::support::{shared_broker, unique};

    #[test]
    fn records_that_cannot_be_read_are_counted_and_others_are_applied() {
        let Some(broker) = shared_broker() else { return };
        let (url, clock) = (broker.url("").parse().unwrap(), Arc::new(SystemClock::new()));
        let opening = Opening { url, clock: Arc::clone(&clock) as Arc<dyn Clock> };
        let options = Options::parse(&opening).unwrap();
        let link = Link::open(options, &opening.clock).unwrap();
        let (table, name) = (Table::<WriterTable>::new(&link), unique("counted"));
        let record = |v: u64| {
            let record = serde_json::json!({
                "v": v, "incarnation": null, "exclusive": true, "expected_end_offset": 0,
                "open": true, "last_active_tai_ns": 0, "session": "s",
            });
            (format!("writer {name} 0 Mount {v}"), Some(record.to_string().into_bytes()))
        };
        append_all(&link, PRODUCERS, &[1, 2, 3].map(record)).unwrap();
        let topic = TopicName::new(&name).unwrap();
        let attempts =
            table.read(BROKER_TIMEOUT, |writers| writers.former_writers(&topic, 0, 0).len());
        assert_eq!((attempts.unwrap(), table.unreadable.load(Ordering::Relaxed)), (1, 2));
    }
}
