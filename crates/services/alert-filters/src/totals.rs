//! What all processes of the service did together, by filter: for a monitoring system.
//!
//! Operation. Activations and decided visits are read from their topics as they come; topics that
//! do not exist yet are tried again. A filter is counted from 0 at its activation, so that a
//! monitoring system sees its first visit.

use std::collections::{BTreeMap, BTreeSet};

use helio_bus::{Bus, Event, Lagging, Start, Subscribe, Subscription, TopicError};

use crate::decisions::BUS_TIMEOUT;
use crate::error::ServiceError;
use crate::names::{Topics, spec};
use crate::records::Summary;
use crate::statistics::VisitStatistics;
use crate::store::Definitions;

/// Visits that are remembered, so that none counts twice: those of more than a night.
const MAX_VISITS: usize = 4_096;

/// What a filter did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterTotal {
    /// Visits in which it was active.
    pub visits: u64,
    /// Those of them in which the cap or better alerts left matches without effect.
    pub capped_visits: u64,
    /// The sums over these visits.
    pub sums: VisitStatistics,
}

/// What a user got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserTotal {
    /// Results.
    pub results: u64,
    /// Matches that came after their visit's end.
    pub late: u64,
}

/// Sums over the visits that were decided since this was made.
pub struct FilterTotals {
    activations: Log,
    summaries: Log,
    definitions: Definitions,
    /// Filters that are active now.
    pub active: usize,
    /// Decided visits.
    pub visits: u64,
    /// Filters, by user and label.
    pub filters: BTreeMap<(String, String), FilterTotal>,
    /// Users.
    pub users: BTreeMap<String, UserTotal>,
    seen: BTreeSet<i64>,
    /// The newest visit that is not remembered any more.
    forgotten: i64,
    /// Whether what is read was decided after this was made.
    is_new: bool,
}

impl FilterTotals {
    /// Sums for a topic of alerts, from the visits on that are decided from now on. The topics need
    /// not exist.
    #[must_use]
    pub fn new(bus: &Bus, alerts: &str) -> Self {
        let topics = Topics::of(alerts);
        Self {
            activations: Log::new(bus, topics.filters()),
            summaries: Log::new(bus, topics.summaries()),
            forgotten: i64::MIN,
            is_new: false,
            definitions: Definitions::default(),
            active: 0,
            visits: 0,
            filters: BTreeMap::new(),
            users: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Reads what is new, and returns the visits that were decided. It waits for the bus only when
    /// topics are opened.
    ///
    /// # Errors
    /// [`ServiceError`]; the next call opens the topics again, where it was in them.
    pub fn refresh(&mut self) -> Result<Vec<Summary>, ServiceError> {
        let definitions = &mut self.definitions;
        self.activations.read(|key, value| {
            // A record that is none of this service is reported by the service.
            let _ = definitions.take(key, value);
        })?;
        let active = self.definitions.active_set();
        self.active = active.values().map(BTreeMap::len).sum();
        for (user, filters) in active {
            for (name, version) in filters {
                self.filters.entry((user.clone(), format!("{name}@{version}"))).or_default();
            }
            self.users.entry(user).or_default();
        }
        let mut decided = self.decided()?;
        // A publisher that died between a visit's summary and its checkpoint writes it again.
        let (seen, forgotten) = (&mut self.seen, self.forgotten);
        decided.retain(|summary| summary.visit > forgotten && seen.insert(summary.visit));
        while self.seen.len() > MAX_VISITS {
            self.forgotten = self.seen.pop_first().unwrap_or(self.forgotten);
        }
        if !std::mem::replace(&mut self.is_new, true) {
            return Ok(Vec::new());
        }
        decided.iter().for_each(|summary| self.add(summary));
        Ok(decided)
    }

    /// The visits whose statistics are stored: at first all of them, then what is new.
    fn decided(&mut self) -> Result<Vec<Summary>, ServiceError> {
        let mut decided = Vec::new();
        let mut take =
            |_: &[u8], value: &[u8]| decided.extend(serde_json::from_slice::<Summary>(value));
        match (self.is_new, self.summaries.open()?) {
            // All that it will have is new.
            (false, None) => self.is_new = true,
            (false, Some(stored)) => {
                stored.set_fence()?;
                while let Some(event) = stored.next_stored(BUS_TIMEOUT)? {
                    give(event, &mut take);
                }
            }
            (true, _) => self.summaries.read(take)?,
        }
        Ok(decided)
    }

    fn add(&mut self, summary: &Summary) {
        self.visits += 1;
        for (user, filters) in &summary.filters {
            for (label, statistics) in filters {
                let total = self.filters.entry((user.clone(), label.clone())).or_default();
                total.visits += 1;
                total.capped_visits += u64::from(statistics.capped > 0);
                total.sums.add(statistics);
            }
        }
        for (user, results) in &summary.results {
            self.users.entry(user.clone()).or_default().results += results;
        }
        for (user, late) in &summary.late {
            self.users.entry(user.clone()).or_default().late += late;
        }
    }
}

fn give(event: Event, take: &mut impl FnMut(&[u8], &[u8])) {
    if let Event::Sample(sample) = event
        && !sample.is_null()
    {
        take(&sample.key, &sample.payload);
    }
}

/// A topic that is read as it grows; after a failure from its start again.
struct Log {
    bus: Bus,
    name: String,
    open: Option<Subscription>,
}

impl Log {
    fn new(bus: &Bus, name: String) -> Self {
        Self { bus: bus.clone(), name, open: None }
    }

    /// Opens it, if it exists.
    fn open(&mut self) -> Result<Option<&mut Subscription>, ServiceError> {
        if self.open.is_none() {
            let topic = match self.bus.topic(spec(&self.name)?) {
                Err(TopicError::NoSuchTopic(_)) => return Ok(None),
                opened => opened?,
            };
            let options = Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless);
            self.open = Some(topic.subscribe(options)?);
        }
        Ok(self.open.as_mut())
    }

    /// Gives keys and values of pending records.
    fn read(&mut self, mut take: impl FnMut(&[u8], &[u8])) -> Result<(), ServiceError> {
        let Some(open) = self.open()? else { return Ok(()) };
        loop {
            match open.try_next() {
                Ok(Some(event)) => give(event, &mut take),
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.open = None;
                    return Err(error.into());
                }
            }
        }
    }
}
