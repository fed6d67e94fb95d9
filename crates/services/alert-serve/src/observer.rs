//! Threads that observe a stream.
//!
//! Constraints. A stream that does not exist yet, and a bus that is away, are states and no errors.
//! Queries that wait for an engine stop no reading.
//!
//! Operation. One thread reads all alerts without a group, verifies them, and so closes visits,
//! too. Another queries topics and groups. Both write into the same [`Observation`]. A reader that
//! ends with an outage is opened again where it was, so that nothing is missed or counted twice.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_alerts::reader::{AlertReader, ReaderError, ReaderOptions, Stamps, Start, VisitEvent};
use helio_alerts::visit::Position;
use helio_bus::transport::locked;
use helio_bus::{Bus, TopicError, TopicName, TopicSpec, TransportError};

use crate::observation::{Observation, SHOWN_VISITS, TopicState};

/// The most alerts of one read.
const MAX_ALERTS: usize = 1_024;
/// The most bytes of one read: two batches of a producer.
const MAX_BYTES: usize = 32 << 20;
/// The longest wait of one read.
const READ_TIMEOUT: Duration = Duration::from_millis(200);
/// How often groups and topics are queried.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure the stream is opened again.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// The alerts whose places are remembered until their manifests have them: ten visits.
const MAX_PLACES: usize = 100_000;

/// Observes a stream until it is dropped.
pub struct Observer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    bus: Bus,
    stream: String,
    is_over: AtomicBool,
    seen: Mutex<Observation>,
    places: Mutex<Places>,
    known: Mutex<Known>,
    is_known: Condvar,
}

/// Which threads have said what they found at first.
#[derive(Default)]
struct Known {
    reading: bool,
    querying: bool,
}

/// Places of the newest alerts.
#[derive(Default)]
struct Places {
    of: HashMap<i64, Position>,
    order: VecDeque<i64>,
}

impl Places {
    fn put(&mut self, id: i64, at: Position) {
        if self.of.insert(id, at).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_PLACES
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
    }
}

impl Observer {
    /// Starts to observe a stream, which need not exist yet.
    ///
    /// # Errors
    /// If the system starts no threads.
    pub fn start(bus: &Bus, stream: &str) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            bus: bus.clone(),
            stream: stream.to_owned(),
            is_over: AtomicBool::new(false),
            seen: Mutex::default(),
            places: Mutex::default(),
            known: Mutex::default(),
            is_known: Condvar::new(),
        });
        let thread = |name: &str, run: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))
        };
        let threads = vec![
            thread("alerts-read", Shared::read_until_over)?,
            thread("alerts-query", Shared::query_until_over)?,
        ];
        Ok(Self { shared, threads })
    }

    /// The present state.
    #[must_use]
    pub fn observation(&self) -> Observation {
        locked(&self.shared.seen).clone()
    }

    /// Waits until the state of the log is known: visits, topics and groups, or why they are not;
    /// false after the timeout.
    #[must_use]
    pub fn wait_until_known(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut known = locked(&self.shared.known);
        while !(known.reading && known.querying) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.is_known.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Where an alert was read, if it is one of the newest.
    #[must_use]
    pub fn place(&self, alert: i64) -> Option<Position> {
        locked(&self.shared.places).of.get(&alert).copied()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed why.
            _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits, unless it is over.
    fn pause(&self, time: Duration) {
        let mut left = time;
        while !self.is_over() && !left.is_zero() {
            let step = left.min(READ_TIMEOUT);
            std::thread::sleep(step);
            left -= step;
        }
    }

    fn is_up(&self, trouble: Option<String>) {
        let mut seen = locked(&self.seen);
        (seen.is_up, seen.trouble) = (trouble.is_none(), trouble);
    }

    fn is_known(&self, what: impl FnOnce(&mut Known)) {
        what(&mut locked(&self.known));
        self.is_known.notify_all();
    }

    fn read_until_over(&self) {
        let mut start = Start::Latest;
        while !self.is_over() {
            if let Err(error) = self.read(&mut start) {
                if matches!(error, ReaderError::Topic(TopicError::NoSuchTopic(_))) {
                    // All that a stream has which did not exist is new.
                    start = Start::Earliest;
                }
                self.is_up(Some(error.to_string()));
                self.is_known(|known| known.reading = true);
                self.pause(REOPEN_INTERVAL);
            }
        }
    }

    /// Reads the stream until it is over or fails; the start becomes where it was.
    fn read(&self, start: &mut Start) -> Result<(), ReaderError> {
        let stamps = Stamps::AsPublished;
        let options = ReaderOptions { start: start.clone(), stamps, ..ReaderOptions::default() };
        let mut reader = AlertReader::open(&self.bus, &self.stream, options)?;
        self.is_up(None);
        locked(&self.seen).ledger(reader.ledger());
        self.is_known(|known| known.reading = true);
        while !self.is_over() {
            let at = reader.positions().into_iter().map(|at| (at.partition, at.next));
            *start = Start::Positions(at.collect());
            let read = reader.read(MAX_ALERTS, MAX_BYTES, READ_TIMEOUT)?;
            let mut places = locked(&self.places);
            read.alerts.iter().for_each(|alert| places.put(alert.id, alert.at));
            drop(places);
            let mut seen = locked(&self.seen);
            read.alerts.iter().for_each(|alert| seen.alert(alert));
            seen.drops(&read.dropped);
            read.events.iter().for_each(|event| self.event(&reader, &mut seen, event));
            seen.ledger(reader.ledger());
        }
        Ok(())
    }

    fn event(&self, reader: &AlertReader, seen: &mut Observation, event: &VisitEvent) {
        match event {
            // A reader that is opened again reports open visits again.
            VisitEvent::Opened(opening) => {
                seen.opened += u64::from(seen.counted.insert(opening.visit));
                if seen.counted.len() > SHOWN_VISITS {
                    seen.counted.pop_first();
                }
            }
            VisitEvent::Decided { closing, .. } => {
                seen.decided(closing, reader.ledger(), self.bus.clock().now());
                let audit = reader.audit(closing.visit).ok();
                let differs = audit.is_some_and(|audit| audit.found != closing.totals);
                seen.differing += u64::from(differs);
            }
            VisitEvent::Rejected { cause, .. } => {
                *seen.rejected.entry(*cause).or_default() += 1;
            }
            VisitEvent::Gap { topic, gap } => {
                *seen.lost.entry(topic.clone()).or_default() += gap.lost;
            }
            VisitEvent::Outage(outage) => {
                let is_up = matches!(outage, helio_bus::Outage::Restored);
                (seen.is_up, seen.trouble) = (is_up, (!is_up).then(|| format!("{outage:?}")));
            }
            _ => {}
        }
    }

    fn query_until_over(&self) {
        while !self.is_over() {
            if let Err(error) = self.query() {
                locked(&self.seen).trouble = Some(error.to_string());
            }
            self.is_known(|known| known.querying = true);
            self.pause(QUERY_INTERVAL);
        }
    }

    fn query(&self) -> Result<(), TopicError> {
        let below = format!("{}/", self.stream);
        let is_ours =
            |name: &TopicName| name.as_str() == self.stream || name.as_str().starts_with(&below);
        for name in self.bus.topics()?.into_iter().filter(is_ours) {
            let topic = match self.bus.topic(TopicSpec::of(name.clone())) {
                Err(TopicError::NoSuchTopic(_)) => continue,
                topic => topic?,
            };
            let partitions = topic.partitions()?;
            let state = TopicState {
                samples: partitions.iter().map(|partition| partition.end).sum(),
                bytes: partitions.iter().map(|partition| partition.bytes).sum(),
            };
            let groups = (name.as_str() == self.stream).then(|| topic.groups()).transpose();
            let mut seen = locked(&self.seen);
            seen.topics.insert(name.to_string(), state);
            match groups {
                Ok(Some(groups)) => seen.groups(groups),
                Ok(None) | Err(TopicError::Transport(TransportError::Unsupported { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
