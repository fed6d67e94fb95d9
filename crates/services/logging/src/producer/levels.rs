//! Levels at run time: applies the settings in the topic to all loggers, present and future.
//!
//! Constraints. A thread that logs reads its logger's levels and nothing else. The rules are
//! replaced first, then all loggers are updated. A logger that is created meanwhile has the new
//! rules or is among those that are updated.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bus, Clock, ReadError, TopicError};

use super::{Inner, OFF};
use crate::lanes::Lanes;
use crate::level::{Level, Threshold};
use crate::levels::{LevelEntry, LevelTable, LevelsReader, Rule, Rules};

/// The interval of polling the topic: levels take effect within a second, also on a busy machine.
const LEVELS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The rules for the loggers' levels, and the threads that wait for a change.
#[derive(Debug)]
pub(super) struct Ruling {
    rules: Mutex<Arc<Rules>>,
    generation: Mutex<u64>,
    changed: Condvar,
}

impl Ruling {
    pub(super) fn new(rules: Rules) -> Self {
        let rules = Mutex::new(Arc::new(rules));
        Self { rules, generation: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&locked(&self.rules))
    }

    /// Waits until the generation differs from `seen`, and returns it.
    pub(super) fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let generation = locked(&self.generation);
        let same = |generation: &mut u64| *generation == seen;
        let waited = self.changed.wait_timeout_while(generation, timeout, same);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The levels of a logger, by number.
#[derive(Debug)]
pub(super) struct Levels {
    /// The lowest enabled level.
    pub(super) lowest: AtomicU8,
    /// The lowest published level.
    pub(super) published: AtomicU8,
    /// The lowest printed level.
    pub(super) printed: AtomicU8,
    /// The program's own level; locked while all are set.
    own: Mutex<Option<Level>>,
}

impl Levels {
    /// The levels of a new logger.
    pub(super) fn of(inner: &Inner, name: &str) -> Self {
        let off = || AtomicU8::new(OFF);
        let (lowest, published, printed) = (off(), off(), off());
        let levels = Self { lowest, published, printed, own: Mutex::default() };
        levels.rule(inner, name);
        levels
    }

    /// Sets the program's own level.
    pub(super) fn say(&self, inner: &Inner, name: &str, own: Level) {
        let mut said = locked(&self.own);
        *said = Some(own);
        self.set(inner, name, *said);
    }

    /// Applies the rules as they are now.
    pub(super) fn rule(&self, inner: &Inner, name: &str) {
        let own = locked(&self.own);
        self.set(inner, name, *own);
    }

    fn set(&self, inner: &Inner, name: &str, own: Option<Level>) {
        let (published, printed) = inner.ruling.rules().of(name, own);
        let published = published.number();
        let printed = match printed {
            Threshold::From(level) => level.number(),
            Threshold::Off => OFF,
        };
        let kept = inner.options.keep.map_or(OFF, Level::number);
        self.published.store(published, Ordering::Relaxed);
        self.printed.store(printed, Ordering::Relaxed);
        self.lowest.store(published.min(printed).min(kept), Ordering::Relaxed);
    }
}

impl Inner {
    /// Replaces the rules for all loggers.
    pub(super) fn apply(&self, rules: Rules) {
        *locked(&self.ruling.rules) = Arc::new(rules);
        let states: Vec<_> = locked(&self.logger_states).values().map(Arc::clone).collect();
        states.iter().for_each(|state| state.levels.rule(self, &state.name));
        *locked(&self.ruling.generation) += 1;
        self.ruling.changed.notify_all();
        self.say_levels();
    }

    /// The number of loggers that match a pattern.
    fn loggers_of(&self, entry: &LevelEntry) -> usize {
        let states = locked(&self.logger_states);
        states.keys().filter(|name| entry.pattern.matches(name)).count()
    }
}

/// The topic on a bus.
pub(super) struct Source {
    heard: LevelsReader,
    clock: Arc<dyn Clock>,
}

impl Source {
    /// Opens or creates the topic.
    pub(super) fn open(bus: &Bus, lanes: &Lanes) -> Result<Self, TopicError> {
        let heard = LevelTable::make(bus, lanes)?.hear()?;
        Ok(Self { heard, clock: Arc::clone(bus.clock()) })
    }
}

/// Polls the topic.
pub(super) struct LevelsWatcher {
    /// None until the bus was connected.
    source: Option<Box<Source>>,
    looked: Instant,
    /// The rules without settings of run time.
    file: Vec<Rule>,
    otherwise: (Level, Threshold),
}

/// Expired settings, and the number of loggers that had them.
pub(super) struct ExpiredLevels {
    pub(super) entry: LevelEntry,
    pub(super) loggers: usize,
}

impl LevelsWatcher {
    /// For a bus that is not connected yet.
    pub(super) fn new(inner: &Inner, file: Vec<Rule>) -> Self {
        let otherwise = (inner.options.level, inner.options.local);
        Self { source: None, looked: Instant::now(), file, otherwise }
    }

    /// The bus was connected: its settings are applied at once.
    pub(super) fn begin(&mut self, source: Box<Source>, inner: &Inner) {
        self.source = Some(source);
        // The next poll reads what failed now, and reports the error.
        let _ = self.read(inner);
    }

    /// Applies new and expired settings, if a poll is due.
    pub(super) fn look(&mut self, inner: &Inner) -> Result<Vec<ExpiredLevels>, ReadError> {
        if self.looked.elapsed() < LEVELS_POLL_INTERVAL {
            return Ok(Vec::new());
        }
        self.looked = Instant::now();
        self.read(inner)
    }

    fn read(&mut self, inner: &Inner) -> Result<Vec<ExpiredLevels>, ReadError> {
        let Some(Source { heard, clock }) = self.source.as_deref_mut() else {
            return Ok(Vec::new());
        };
        let now = clock.now();
        let polled = heard.poll(now);
        let over = heard.expire(now);
        if !over.is_empty() || polled.as_ref().is_ok_and(|polled| polled.changed) {
            self.apply(inner);
        }
        polled?;
        let over = over.into_iter().map(|entry| {
            let loggers = inner.loggers_of(&entry);
            ExpiredLevels { entry, loggers }
        });
        Ok(over.collect())
    }

    /// Replaces the file's rules and the defaults.
    pub(super) fn file(&mut self, inner: &Inner, file: Vec<Rule>, otherwise: (Level, Threshold)) {
        if (&file, otherwise) != (&self.file, self.otherwise) {
            (self.file, self.otherwise) = (file, otherwise);
            self.apply(inner);
        }
    }

    fn apply(&self, inner: &Inner) {
        let entries = self.source.iter().flat_map(|source| source.heard.entries.values());
        let (remote, local) = self.otherwise;
        inner.apply(Rules::new(entries, &self.file, remote, local));
    }

    /// The number of samples of the topic that are not entries.
    pub(super) fn passed_over(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.heard.passed_over)
    }
}
