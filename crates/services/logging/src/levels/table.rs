//! Reads and writes the topic of levels.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Lagging, Message, PublishError, Publisher, Qos, ReadError, Start, Subscribe,
    Subscription, Topic, TopicError, TopicSpec,
};
use helio_core::qos::{Guarantee, Overload};
use helio_core::schema::HasSchema as _;
use helio_core::{Codec, Tai};
use thiserror::Error;

use super::{LevelChange, LevelEntry, LevelEntryError, LevelSample, MAX_LEVEL_ENTRIES, codec};
use crate::lanes::Lanes;
use crate::predicate::Glob;

/// The most samples that are read at once, so that a flood of the topic blocks nothing.
const MAX_POLL_SAMPLES: usize = 4_096;

/// Why levels cannot be read or set.
#[derive(Debug, Error)]
pub enum LevelsError {
    /// The topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The topic cannot be written.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The entry is out of its limits.
    #[error(transparent)]
    Entry(#[from] LevelEntryError),
    /// Too many entries are set.
    #[error("{MAX_LEVEL_ENTRIES} patterns are set, more are not possible; clear some of them")]
    TooMany,
    /// The bus does not deliver the entries.
    #[error("the bus does not hand out the levels that are set; try again")]
    Silent,
}

/// The entries that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelList {
    /// The entries in effect, by pattern.
    pub entries: Vec<LevelEntry>,
    /// The number of skipped samples: those that are not entries.
    pub passed_over: u64,
    /// The reason and the producer of the last skipped sample.
    pub last: Option<String>,
}

/// The topic that sets the loggers' levels: `log/levels`, beside the lanes.
///
/// ```
/// use std::time::Duration;
/// use helio_bus::Bus;
/// use helio_logging::{Lanes, Level, LevelEntry, LevelTable, LogOptions, Logging};
///
/// let bus = Bus::connect("memory:")?;
/// let logging = Logging::start(bus.clone(), LogOptions::default())?;
/// let table = LevelTable::make(&bus, &Lanes::default())?;
/// table.set(&LevelEntry {
///     pattern: "CONTROL/DV11/*".parse()?,
///     remote: Level::TRACE,
///     local: None,
///     until: None,
///     who: "ops@dv11".to_owned(),
///     why: "lost lock".to_owned(),
///     when: bus.clock().now(),
/// })?;
/// assert_eq!(logging.wait_levels(0, Duration::from_secs(60)), 1);
/// assert_eq!(logging.level_of("CONTROL/DV11/Mount"), Level::TRACE);
/// assert_eq!(logging.level_of("CONTROL/DV12/Mount"), Level::DELOUSE);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LevelTable {
    bus: Bus,
    topic: Topic,
    codec: Codec,
}

/// The newest entry of each pattern is retained without limit, and survives a power loss.
fn qos() -> Qos {
    Qos { guarantee: Guarantee::Durable, overload: Overload::Refuse, ..Qos::event() }
}

impl LevelTable {
    /// Opens the topic; none if it does not exist.
    ///
    /// # Errors
    /// [`TopicError`], also if the lanes' prefix is invalid.
    pub fn open(bus: &Bus, lanes: &Lanes) -> Result<Option<Self>, TopicError> {
        let name = lanes.levels_name();
        let schema = LevelSample::schema().expect("a test parses this constant");
        let topic = match bus.topic(TopicSpec::new(&name)?.schema(&schema)) {
            Err(TopicError::NoSuchTopic(_)) => return Ok(None),
            opened => opened?,
        };
        Ok(Some(Self { bus: bus.clone(), topic, codec: codec() }))
    }

    /// Opens or creates the topic.
    ///
    /// # Errors
    /// [`TopicError`].
    pub fn make(bus: &Bus, lanes: &Lanes) -> Result<Self, TopicError> {
        if let Some(table) = Self::open(bus, lanes)? {
            return Ok(table);
        }
        let schema = LevelSample::schema().expect("a test parses this constant");
        let spec = TopicSpec::new(&lanes.levels_name())?.qos(qos()).schema(&schema);
        Ok(Self { bus: bus.clone(), topic: bus.topic(spec)?, codec: codec() })
    }

    /// Reads the entries in effect. It waits until all stored samples are read, or until none has
    /// arrived for this time.
    ///
    /// # Errors
    /// [`LevelsError`].
    pub fn list(&self, patience: Duration) -> Result<LevelList, LevelsError> {
        let mut heard = self.hear()?;
        heard.samples.set_fence()?;
        let mut until = Instant::now() + patience;
        loop {
            let before = heard.samples.stats().received;
            while heard.poll(self.bus.clock().now())?.more {}
            if heard.samples.has_passed_fence()? {
                break;
            }
            if heard.samples.stats().received > before {
                until = Instant::now() + patience;
            }
            if !heard.samples.wait_until(Some(until))? {
                return Err(LevelsError::Silent);
            }
        }
        let entries = heard.entries.into_values().collect();
        Ok(LevelList { entries, passed_over: heard.passed_over, last: heard.last })
    }

    /// Sets levels and replaces the pattern's earlier entry. The sample is durable when this
    /// returns.
    ///
    /// # Errors
    /// [`LevelsError`].
    pub fn set(&self, entry: &LevelEntry) -> Result<(), LevelsError> {
        self.write(&entry.written())
    }

    /// Clears the pattern's entry; who, why and when describe the clearing.
    ///
    /// # Errors
    /// [`LevelsError`].
    pub fn clear(&self, entry: &LevelEntry) -> Result<(), LevelsError> {
        self.write(&entry.written().cleared())
    }

    fn write(&self, written: &LevelSample) -> Result<(), LevelsError> {
        let bytes = written.bytes(&self.codec)?;
        let publisher: Publisher = self.topic.publisher()?;
        publisher.publish(Message::new(&bytes).key(written.pattern.as_bytes())).wait()?;
        Ok(())
    }

    /// Subscribes to stored and new samples.
    pub(crate) fn hear(&self) -> Result<LevelsReader, TopicError> {
        // A foreign schema is no obstacle to reading; each of its samples is reported.
        let all = Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless).each_undecodable();
        Ok(LevelsReader {
            samples: self.topic.subscribe(all)?,
            codec: self.codec.clone(),
            entries: BTreeMap::new(),
            passed_over: 0,
            last: None,
        })
    }
}

/// The state of the topic as read so far.
#[derive(Debug)]
pub(crate) struct LevelsReader {
    samples: Subscription,
    codec: Codec,
    /// The entries in effect, by pattern.
    pub(crate) entries: BTreeMap<String, LevelEntry>,
    /// Samples that are not entries.
    pub(crate) passed_over: u64,
    last: Option<String>,
}

/// The result of a poll.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Polled {
    /// The entries in effect have changed.
    pub(crate) changed: bool,
    /// There may be more to read.
    more: bool,
}

impl LevelsReader {
    /// Reads the available samples without waiting.
    pub(crate) fn poll(&mut self, now: Tai) -> Result<Polled, ReadError> {
        let mut polled = Polled::default();
        for _ in 0..MAX_POLL_SAMPLES {
            match self.samples.try_next()? {
                None => return Ok(polled),
                Some(Event::Sample(sample)) => {
                    match LevelChange::read(&self.codec, &sample.key, &sample.payload) {
                        Ok(said) => polled.changed |= self.take(said, now),
                        Err(error) => self.pass_over(&sample, &error.to_string()),
                    }
                }
                Some(Event::Undecodable(unread)) => self.pass_over(&unread.sample, &unread.reason),
                Some(_) => {}
            }
        }
        Ok(Polled { more: true, ..polled })
    }

    fn take(&mut self, said: LevelChange, now: Tai) -> bool {
        match said {
            LevelChange::Set(entry) if entry.holds(now) => {
                let pattern = entry.pattern.to_string();
                if self.entries.len() >= MAX_LEVEL_ENTRIES && !self.entries.contains_key(&pattern) {
                    self.passed_over += 1;
                    self.last = Some(format!("{pattern}: {}", LevelsError::TooMany));
                    return false;
                }
                self.entries.insert(pattern, entry);
                true
            }
            LevelChange::Set(entry) => self.forget(&entry.pattern),
            LevelChange::Cleared(pattern) => self.forget(&pattern),
        }
    }

    fn forget(&mut self, pattern: &Glob) -> bool {
        self.entries.remove(pattern.as_str()).is_some()
    }

    fn pass_over(&mut self, sample: &helio_bus::Sample, why: &str) {
        self.passed_over += 1;
        let (producer, offset) = (&sample.header.producer, sample.offset);
        self.last = Some(format!("a sample of {}, offset {offset}: {why}", producer.name));
    }

    /// Removes expired entries.
    pub(crate) fn expire(&mut self, now: Tai) -> Vec<LevelEntry> {
        let over = self.entries.values().filter(|entry| !entry.holds(now));
        let over: Vec<_> = over.cloned().collect();
        over.iter().for_each(|entry| _ = self.forget(&entry.pattern));
        over
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;
    use crate::level::Level;
    use helio_bus::TestClock;
    use std::sync::Arc;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_set_is_listed_until_it_is_over_or_taken_back() {
        let clock = TestClock::new(Tai::from_nanos(1_000));
        let bus = Bus::builder().clock(Arc::new(clock.clone())).connect("memory:").unwrap();
        let lanes = Lanes::default();
        assert!(LevelTable::open(&bus, &lanes).unwrap().is_none());
        let table = LevelTable::make(&bus, &lanes).unwrap();
        let list = || table.list(PATIENCE).unwrap().entries;
        assert_eq!(list(), []);
        let mut short = entry("a/*", Level::DEBUG);
        short.until = Some(Tai::from_nanos(2_000));
        table.set(&entry("a/*", Level::TRACE)).unwrap();
        table.set(&short).unwrap();
        table.set(&entry("b", Level::ERROR)).unwrap();
        assert_eq!(list(), [short, entry("b", Level::ERROR)]);
        clock.advance(Duration::from_nanos(1_000));
        assert_eq!(list(), [entry("b", Level::ERROR)]);
        table.clear(&entry("b", Level::ERROR)).unwrap();
        assert_eq!(list(), []);
        let long = entry(&"x".repeat(257), Level::DEBUG);
        assert!(matches!(table.set(&long), Err(LevelsError::Entry(LevelEntryError::Limit { .. }))));
    }

    #[test]
    fn what_others_write_is_passed_over_and_told() {
        let bus = Bus::connect("memory:").unwrap();
        let table = LevelTable::make(&bus, &Lanes::default()).unwrap();
        table.set(&entry("a", Level::DEBUG)).unwrap();
        let foreign = bus.topic(TopicSpec::new("log/levels").unwrap()).unwrap();
        let foreign = foreign.publisher().unwrap();
        foreign.publish(Message::new(b"text").key(b"b")).wait().unwrap();
        let list = table.list(PATIENCE).unwrap();
        assert_eq!((list.entries, list.passed_over), (vec![entry("a", Level::DEBUG)], 1));
        assert!(list.last.unwrap().contains("without a schema"));
    }

    #[test]
    fn no_more_than_the_limit_hold() {
        let bus = Bus::connect("memory:").unwrap();
        let table = LevelTable::make(&bus, &Lanes::default()).unwrap();
        for n in 0..=MAX_LEVEL_ENTRIES {
            table.set(&entry(&format!("logger/{n}"), Level::DEBUG)).unwrap();
        }
        let list = table.list(PATIENCE).unwrap();
        assert_eq!((list.entries.len(), list.passed_over), (MAX_LEVEL_ENTRIES, 1));
    }
}
