//! A client process: reads every field of every selected record in place and counts the records.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use helio_bus::{Bus, Producer};
use helio_logging::{
    Field, Item, Lanes, Level, LossAccounts, ProducerCounts, Reader, ReaderOptions, RecordPlace,
    RecordRef, Start, Value,
};

use super::accounting::ClientCounts;
use super::messages::{ClientOrder, ClientReport, ClientTask, Offered, Spent};
use crate::bench::report::histogram;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::CliResult;
use crate::log::selector;
use crate::service_error::ServiceResult;
use crate::stop::STOP_POLL_INTERVAL;
use crate::worker::{orders, say};

/// Records of one read.
const READ_BATCH_RECORDS: usize = 4_096;
/// Ordinary records per measured latency, to spare readings of the clock.
const RECORDS_PER_LATENCY: u64 = 64;
/// The silence after which missing records are unaccounted for.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Element and parameter of syslog's structured data for the due time, because syslog has no
/// arguments.
pub(crate) const DUE_PARAMETER: [&str; 2] = ["bench@32473", "due"];

/// Runs the process.
pub(crate) fn run(task: &ClientTask) -> CliResult {
    let bus = Bus::connect(&task.url)?;
    let selector = selector(std::slice::from_ref(&task.predicate), &[], bus.clock().now())?;
    let lanes: BTreeSet<u8> = selector.levels().map(|level| Lanes::lane(level).number()).collect();
    let options = ReaderOptions::from(Start::Latest).select(selector);
    let reader = Reader::open(&bus, &super::lanes(&task.prefix, task.ordinary.as_ref()), options)
        .or_cli()?;
    say(&())?;
    let mut client = Client { reader, seen: ReceivedRecords::new(), lanes };
    match client.read(&orders())? {
        Some(report) => say(&report),
        None => Ok(()),
    }
}

struct Client {
    reader: Reader,
    seen: ReceivedRecords,
    lanes: BTreeSet<u8>,
}

impl Client {
    /// Reads until all offered records are accounted for, or until silence.
    fn read(&mut self, orders: &Receiver<ClientOrder>) -> CliResult<Option<ClientReport>> {
        let cpu = cpu_s();
        let mut expected = None;
        let (mut known, mut heard) = (0, Instant::now());
        loop {
            let ordered = match orders.try_recv() {
                Ok(ClientOrder::End { offered }) => Some(self.expected(&offered)),
                Ok(ClientOrder::EndOfEach { offered }) => Some(Expected::Each(offered)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return Ok(None),
            };
            if ordered.is_some() {
                // A client that was suspended has heard nothing yet.
                (expected, heard) = (ordered, Instant::now());
            }
            self.pump()?;
            if let Some(expected) = &expected {
                let account = self.reader.account();
                let now = account.total().offered();
                if now != known {
                    (known, heard) = (now, Instant::now());
                }
                if expected.is_in(&account) || heard.elapsed() > SILENCE_TIMEOUT {
                    let offered = expected.offered(&account);
                    return Ok(Some(self.report(offered, cpu)));
                }
            } else {
                heard = Instant::now();
            }
            self.reader.wait(STOP_POLL_INTERVAL).or_cli()?;
        }
    }

    fn expected(&self, offered: &Offered) -> Expected {
        let ours = offered.iter().filter(|(lane, _)| self.lanes.contains(lane));
        let (lanes, records): (_, Vec<_>) = ours.map(|(lane, records)| (*lane, *records)).unzip();
        Expected::All { lanes, records: records.iter().sum() }
    }

    fn pump(&mut self) -> CliResult {
        let Self { reader, seen, .. } = self;
        reader
            .visit(READ_BATCH_RECORDS, |item| {
                if let Item::Record(record, place) = item {
                    seen.record(record, &place);
                }
                ControlFlow::Continue(())
            })
            .or_cli()?;
        for (lane, producer) in seen.malformed.drain(..) {
            reader.malformed(lane, &producer);
        }
        Ok(())
    }

    fn report(&mut self, expected: u64, cpu_before: f64) -> ClientReport {
        let told = self.reader.account().total();
        let seen = &self.seen;
        let counts = |of: &Histogram<u64>| {
            of.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
        };
        ClientReport {
            account: ClientCounts::of(expected, seen.delivered, &told),
            urgent: seen.urgent.len(),
            end_ns: seen.end_ns,
            tail_ns: counts(&seen.tail),
            urgent_ns: counts(&seen.urgent),
            used: Spent { cpu_s: cpu_s() - cpu_before, rss_mb: peak_rss_mb() },
        }
    }
}

/// The records that producers report to have logged.
enum Expected {
    /// All of them, in the lanes that are read. In other lanes, in which the log service may log,
    /// the received records count as offered.
    All { lanes: BTreeSet<u8>, records: u64 },
    /// Each of these. Of others the received records count as offered.
    Each(BTreeMap<String, u64>),
}

impl Expected {
    fn is_in(&self, account: &LossAccounts) -> bool {
        match self {
            Self::All { lanes, records } => {
                account.of(|row| lanes.contains(&row.lane.number())).offered() >= *records
            }
            Self::Each(all) => all.iter().all(|(name, records)| came(account, name) >= *records),
        }
    }

    fn offered(&self, account: &LossAccounts) -> u64 {
        match self {
            Self::All { lanes, records } => {
                records + account.of(|row| !lanes.contains(&row.lane.number())).offered()
            }
            Self::Each(all) => {
                let theirs: u64 = all.keys().map(|name| came(account, name)).sum();
                account.total().offered() - theirs + all.values().sum::<u64>()
            }
        }
    }
}

/// The counts of a producer's records.
fn came(account: &LossAccounts, name: &str) -> u64 {
    let is_theirs =
        |row: &ProducerCounts| row.producer.as_ref().is_some_and(|p| p.name.as_str() == name);
    account.of(is_theirs).offered()
}

/// Counts of received records.
struct ReceivedRecords {
    lanes: Lanes,
    delivered: u64,
    end_ns: u64,
    tail: Histogram<u64>,
    urgent: Histogram<u64>,
    malformed: Vec<(Level, Producer)>,
}

impl ReceivedRecords {
    fn new() -> Self {
        Self {
            lanes: Lanes::default(),
            delivered: 0,
            end_ns: 0,
            tail: histogram(),
            urgent: histogram(),
            malformed: Vec::new(),
        }
    }

    fn record(&mut self, record: RecordRef<'_>, place: &RecordPlace<'_>) {
        let mut due = None;
        for field in record.fields() {
            match field {
                Ok(Field::Argument(Value::Int(ns))) => due = due.or(u64::try_from(ns).ok()),
                Ok(Field::Data(name, Value::Text(ns))) if name.split('.').eq(DUE_PARAMETER) => {
                    due = due.or(ns.parse().ok());
                }
                Ok(_) => {}
                Err(_) => return self.malformed.push((place.lane, place.producer.clone())),
            }
        }
        let urgent = self.lanes.is_urgent(record.level());
        if urgent
            || self.delivered.is_multiple_of(RECORDS_PER_LATENCY)
            || place.record + 1 == place.records
        {
            self.end_ns = monotonic_ns();
        }
        if let Some(due) = due
            && (urgent || self.delivered.is_multiple_of(RECORDS_PER_LATENCY))
        {
            let of = if urgent { &mut self.urgent } else { &mut self.tail };
            of.saturating_record(self.end_ns.saturating_sub(due).max(1));
        }
        self.delivered += 1;
    }
}
