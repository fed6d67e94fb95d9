//! Filters and lists in their topics: versions, activations, reports.
//!
//! Constraints. A user's filters, and the number of a version, are decided by one process at a
//! time: the topics are exclusive, and a change reads all of the topic first. A version never
//! changes. What is acknowledged is durable.
//!
//! Format. [`Topics::filters`]: keys `version/USER/NAME/NUMBER` ([`Version`]), `active/USER`
//! ([`Active`]) and `report/USER/NAME/NUMBER` ([`Report`]), values JSON. [`Topics::lists`]: see the
//! module of lists.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Lagging, Message, Publisher, Qos, Start, Subscribe, Subscription, Topic,
    TopicError, TopicName, TransportError,
};
use helio_core::qos::{Guarantee, History, Ownership, Retention};
use helio_filter::cap::Mode;
use helio_filter::{Catalog, Filter};
use xxhash_rust::xxh3::xxh3_128;

use crate::check::{Checked, check};
use crate::decisions::BUS_TIMEOUT;
use crate::dry_run::excesses;
use crate::error::{ChangeError, CheckFailure, ServiceError};
use crate::lists::{self, Contents, Entries, Head, ListKind, Lists, MAX_ENTRIES, MAX_LISTS, json};
use crate::names::{FilterId, Topics, check_name, spec};
use crate::options::RESULTS_BYTES;
use crate::records::{Active, ActiveSet, Delivery, Language, Report, Version};
use crate::result_topic::open_results;
use crate::stream::Stream;

/// Versions of all filters: those of 100 users' filters for years.
pub const MAX_VERSIONS: usize = 20_000;
/// Active filters of a user.
pub const MAX_ACTIVE_FILTERS: usize = 50;
/// Users with active filters.
pub const MAX_USERS: usize = 2_000;
/// Active filters of all users: with the longest names a visit's record of them has 1.8 MB, and its
/// statistics 5.6 MB, which fit in Kafka's message of 8 MiB.
pub const MAX_ALL_ACTIVE_FILTERS: usize = 20_000;
/// The time between two attempts to get the topic.
const OWNED_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Overwritten records that are stored.
const MAX_OVERWRITTEN_BYTES: u64 = 64 << 20;

/// Whether limits that a dry run found exceeded are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// They are not.
    #[default]
    No,
    /// They are.
    Yes,
}

/// What the topic of filters says.
#[derive(Debug, Default)]
pub struct Definitions {
    versions: BTreeMap<FilterId, Version>,
    active: BTreeMap<String, Active>,
    reports: BTreeMap<FilterId, Report>,
    /// Versions that a newer program has written: their numbers are not given again.
    unreadable: BTreeSet<FilterId>,
}

impl Definitions {
    /// A version.
    #[must_use]
    pub fn version(&self, id: &FilterId) -> Option<&Version> {
        self.versions.get(id)
    }

    /// The versions of a user's filters, or of all, oldest first.
    pub fn versions<'d>(
        &'d self,
        user: Option<&'d str>,
    ) -> impl Iterator<Item = (&'d FilterId, &'d Version)> {
        self.versions.iter().filter(move |(id, _)| user.is_none_or(|user| user == id.user))
    }

    /// A user's active filters.
    #[must_use]
    pub fn active(&self, user: &str) -> Option<&Active> {
        self.active.get(user)
    }

    /// The active filters of all users.
    #[must_use]
    pub fn active_set(&self) -> ActiveSet {
        let active = self.active.iter().filter(|(_, active)| !active.filters.is_empty());
        active.map(|(user, active)| (user.clone(), active.filters.clone())).collect()
    }

    /// The users that have or had active filters.
    pub fn users(&self) -> impl Iterator<Item = &String> {
        self.active.keys()
    }

    /// The last dry run of a version.
    #[must_use]
    pub fn report(&self, id: &FilterId) -> Option<&Report> {
        self.reports.get(id)
    }

    /// The newest version of a user's filter.
    #[must_use]
    pub fn newest(&self, user: &str, name: &str) -> Option<&Version> {
        let mut newest_first = self.versions.values().rev();
        newest_first.find(|version| version.user == user && version.name == name)
    }

    /// The number of a filter's next version.
    fn next_number(&self, user: &str, name: &str) -> u32 {
        let all = self.versions.keys().chain(&self.unreadable);
        let of = all.filter(|id| id.user == user && id.name == name).map(|id| id.version);
        of.max().map_or(1, |newest| newest.saturating_add(1))
    }

    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let key = std::str::from_utf8(key).map_err(|error| error.to_string())?;
        let wrong = |error: serde_json::Error| format!("{key}: {error}");
        let parts: Vec<&str> = key.split('/').collect();
        match parts[..] {
            ["version", user, name, number] => {
                let id = id(user, name, number)?;
                let version = serde_json::from_slice(value).map_err(wrong);
                if version.is_err() {
                    self.unreadable.insert(id.clone());
                }
                self.versions.insert(id, version?);
            }
            ["report", user, name, number] => {
                let id = id(user, name, number)?;
                self.reports.insert(id, serde_json::from_slice(value).map_err(wrong)?);
            }
            ["active", user] => {
                let active = serde_json::from_slice(value).map_err(wrong)?;
                self.active.insert(user.to_owned(), active);
            }
            _ => return Err(format!("the key {key}")),
        }
        Ok(())
    }
}

fn id(user: &str, name: &str, number: &str) -> Result<FilterId, String> {
    format!("{user}/{name}@{number}")
        .parse()
        .map_err(|error: crate::names::NameError| error.to_string())
}

fn key(kind: &str, id: &FilterId) -> String {
    format!("{kind}/{}/{}/{}", id.user, id.name, id.version)
}

/// Records to be published: keys and values; a null has none.
type Records = Vec<(String, Option<Vec<u8>>)>;

/// A compacted topic of one writer at a time.
struct Compacted {
    topic: Topic,
    subscription: Subscription,
    /// Records that cannot be read.
    foreign: u64,
}

impl Compacted {
    fn open(bus: &Bus, name: &str) -> Result<Self, ServiceError> {
        let qos = Qos {
            history: History::KeepLast(1),
            ownership: Ownership::Exclusive,
            guarantee: Guarantee::Stored,
            retention: Retention {
                bytes: Some(MAX_OVERWRITTEN_BYTES),
                age: None,
                last_value: true,
                default: false,
            },
            ..Qos::event()
        };
        let topic = bus.topic(spec(name)?.qos(qos))?;
        let options = Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless);
        let subscription = topic.subscribe(options)?;
        Ok(Self { topic, subscription, foreign: 0 })
    }

    /// Gives each record that is stored by now, and waits for them.
    fn read_stored(&mut self, mut take: impl Take) -> Result<(), ServiceError> {
        self.subscription.set_fence()?;
        while let Some(event) = self.subscription.next_stored(BUS_TIMEOUT)? {
            self.give(event, &mut take);
        }
        Ok(())
    }

    /// Gives each pending record.
    fn read_pending(&mut self, mut take: impl Take) -> Result<(), ServiceError> {
        while let Some(event) = self.subscription.try_next()? {
            self.give(event, &mut take);
        }
        Ok(())
    }

    /// Gives a record; one that is none of this program is counted.
    fn give(&mut self, event: Event, take: &mut impl Take) {
        let Event::Sample(sample) = event else { return };
        let value = (!sample.is_null()).then_some(&sample.payload[..]);
        self.foreign += u64::from(take(&sample.key, value).is_err());
    }

    /// The exclusive publisher, once no other process has it.
    fn publisher(&self) -> Result<Publisher, ChangeError> {
        let until = Instant::now() + BUS_TIMEOUT;
        loop {
            match self.topic.publisher() {
                Err(TopicError::Transport(TransportError::Owned { holder, .. })) => {
                    if Instant::now() >= until {
                        return Err(ChangeError::Busy(holder));
                    }
                    std::thread::sleep(OWNED_RETRY_INTERVAL);
                }
                opened => return Ok(opened?),
            }
        }
    }
}

trait Take: FnMut(&[u8], Option<&[u8]>) -> Result<(), String> {}
impl<F: FnMut(&[u8], Option<&[u8]>) -> Result<(), String>> Take for F {}

fn publish(
    publisher: &Publisher,
    records: &[(String, Option<Vec<u8>>)],
) -> Result<(), ServiceError> {
    for (key, value) in records {
        let message = match value {
            Some(value) => Message::new(value).key(key.as_bytes()),
            None => Message::null(key.as_bytes()),
        };
        publisher.publish(message.guarantee(Guarantee::Durable)).wait_timeout(BUS_TIMEOUT)?;
    }
    Ok(())
}

/// The filters and lists of a topic of alerts.
pub struct FilterStore {
    bus: Bus,
    topics: Topics,
    pub(crate) stream: Stream,
    filters: Compacted,
    listed: Compacted,
    definitions: Definitions,
    pub(crate) lists: Lists,
    /// What filters may name, with the generations of columns and lists that it is made of.
    catalog: Option<((u64, u64), Arc<Catalog>)>,
}

impl FilterStore {
    /// Opens the topics beside a topic of alerts, or creates them, and reads all they have. The
    /// topic of alerts must exist: its schemas are the columns.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn open(bus: &Bus, alerts: &str) -> Result<Self, ServiceError> {
        let topics = Topics::of(alerts);
        let alerts = TopicName::new(alerts).map_err(TopicError::from)?;
        let stream = Stream::open(bus, &alerts)?;
        let mut store = Self {
            bus: bus.clone(),
            stream,
            filters: Compacted::open(bus, &topics.filters())?,
            listed: Compacted::open(bus, &topics.lists())?,
            topics,
            definitions: Definitions::default(),
            lists: Lists::default(),
            catalog: None,
        };
        store.read_stored()?;
        Ok(store)
    }

    /// The names of the topics.
    #[must_use]
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.bus
    }

    /// What was read so far.
    #[must_use]
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The watch lists and regions, without their entries.
    #[must_use]
    pub fn lists(&self) -> &BTreeMap<String, Head> {
        self.lists.heads()
    }

    /// The contents of the watch lists and regions, which a filter elsewhere may name.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.lists.contents()
    }

    /// The records that could not be read since the last call: none of this program, and without
    /// effect.
    pub(crate) fn take_foreign(&mut self) -> u64 {
        std::mem::take(&mut self.filters.foreign) + std::mem::take(&mut self.listed.foreign)
    }

    /// Reads what other processes have changed; it never waits.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn refresh(&mut self) -> Result<(), ServiceError> {
        let (definitions, lists) = (&mut self.definitions, &mut self.lists);
        self.listed.read_pending(|key: &[u8], value: Option<&[u8]>| lists.take(key, value))?;
        self.filters.read_pending(defined(definitions))
    }

    /// Reads all that is stored by now, and waits for it.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn read_stored(&mut self) -> Result<(), ServiceError> {
        let (definitions, lists) = (&mut self.definitions, &mut self.lists);
        self.listed.read_stored(|key: &[u8], value: Option<&[u8]>| lists.take(key, value))?;
        self.filters.read_stored(defined(definitions))
    }

    /// What filters may name at present.
    pub(crate) fn catalog(&mut self) -> Arc<Catalog> {
        let now = (self.stream.generation(), self.lists.generation());
        match &self.catalog {
            Some((of, catalog)) if *of == now => Arc::clone(catalog),
            _ => {
                let catalog = Catalog::new(self.stream.arrow(), self.stream.sky());
                let catalog = Arc::new(self.lists.with(catalog));
                self.catalog = Some((now, Arc::clone(&catalog)));
                catalog
            }
        }
    }

    /// Checks a text. One in Python is compiled by `helio-sandbox` at its dry run.
    ///
    /// # Errors
    /// [`CheckFailure`].
    pub fn check(&mut self, language: Language, text: &str) -> Result<Checked, CheckFailure> {
        let catalog = self.catalog();
        check(language, text, &catalog, &self.stream)
    }

    /// Adds a version of a filter, or returns the newest one if it has this text.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn add(
        &mut self,
        user: &str,
        name: &str,
        language: Language,
        text: &str,
    ) -> Result<Version, ChangeError> {
        check_name(user)?;
        check_name(name)?;
        self.check(language, text)?;
        let added_ns = self.bus.clock().now().nanos();
        self.change(|definitions| {
            let newest = definitions.newest(user, name);
            if let Some(same) = newest.filter(|v| v.text == text && v.language == language) {
                return Ok((same.clone(), Vec::new()));
            }
            if definitions.versions.len() >= MAX_VERSIONS {
                return Err(ChangeError::Limit { what: "versions", limit: MAX_VERSIONS });
            }
            let version = Version {
                user: user.to_owned(),
                name: name.to_owned(),
                version: definitions.next_number(user, name),
                language,
                text: text.to_owned(),
                hash: format!("{:032x}", xxh3_128(text.as_bytes())),
                added_ns,
            };
            let record = (key("version", &version.id()), Some(json(&version)));
            Ok((version, vec![record]))
        })
    }

    /// Stores the dry run of a version, which its activation asks for.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn add_report(&mut self, id: &FilterId, report: &Report) -> Result<(), ChangeError> {
        self.change(|definitions| {
            definitions.version(id).ok_or_else(|| ChangeError::Unknown(id.clone()))?;
            Ok(((), vec![(key("report", id), Some(json(report)))]))
        })
    }

    /// Activates a version in place of the filter's active one, from the next visit on. The user's
    /// topic of results is created, so that the user can connect.
    ///
    /// # Errors
    /// [`ChangeError::Mixed`] if the user's active filters would rank in different ways;
    /// [`ChangeError::NoReport`] and [`ChangeError::Excess`] without [`Force::Yes`].
    pub fn activate(&mut self, id: &FilterId, force: Force) -> Result<(), ChangeError> {
        let catalog = self.catalog();
        self.read_stored()?;
        let mut active = self.definitions.active(&id.user).cloned().unwrap_or_default();
        active.filters.insert(id.name.clone(), id.version);
        let checked = self.checked(&catalog, &id.user, &active)?;
        // The user may connect before there is a result.
        open_results(&self.bus, &self.topics.results(&id.user), RESULTS_BYTES)?;
        self.change(|definitions| {
            if force == Force::No {
                let report = definitions.report(id);
                let report = report.ok_or_else(|| ChangeError::NoReport(id.clone()))?;
                let excesses = excesses(report);
                if !excesses.is_empty() {
                    return Err(ChangeError::Excess { id: id.clone(), excesses });
                }
            }
            let mut active = definitions.active(&id.user).cloned().unwrap_or_default();
            active.filters.insert(id.name.clone(), id.version);
            let is_new = !definitions.active.contains_key(&id.user);
            if is_new && definitions.active.len() >= MAX_USERS {
                return Err(ChangeError::Limit { what: "users", limit: MAX_USERS });
            }
            if active.filters.len() > MAX_ACTIVE_FILTERS {
                let what = "active filters of a user";
                return Err(ChangeError::Limit { what, limit: MAX_ACTIVE_FILTERS });
            }
            let others = definitions.active.iter().filter(|(user, _)| **user != id.user);
            let others: usize = others.map(|(_, active)| active.filters.len()).sum();
            if others + active.filters.len() > MAX_ALL_ACTIVE_FILTERS {
                let what = "active filters of all users";
                return Err(ChangeError::Limit { what, limit: MAX_ALL_ACTIVE_FILTERS });
            }
            if active.filters.keys().any(|name| !checked.contains_key(name)) {
                return Err(ChangeError::Busy("another activation for the user".to_owned()));
            }
            Ok(((), vec![(format!("active/{}", id.user), Some(json(&active)))]))
        })
    }

    /// Checks a user's active filters against each other.
    fn checked(
        &self,
        catalog: &Arc<Catalog>,
        user: &str,
        active: &Active,
    ) -> Result<BTreeMap<String, Checked>, ChangeError> {
        let mut checked = BTreeMap::new();
        for (name, version) in &active.filters {
            let id = FilterId { user: user.to_owned(), name: name.clone(), version: *version };
            let stored = self.definitions.version(&id).ok_or(ChangeError::Unknown(id))?;
            let text = check(stored.language, &stored.text, catalog, &self.stream)?;
            checked.insert(name.clone(), text);
        }
        // A filter in Python has no order: it is first come, as a query without ORDER BY.
        let plain = Filter::check("SELECT * FROM alerts WHERE TRUE", catalog);
        let plain = plain.map_err(CheckFailure::from)?;
        let filters = checked
            .iter()
            .map(|(name, text)| (name.as_str(), text.sql().map_or(&plain, |filter| &**filter)));
        Mode::of(filters)?;
        Ok(checked)
    }

    /// Ends the activation of a user's filter, from the next visit on.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn deactivate(&mut self, user: &str, name: &str) -> Result<(), ChangeError> {
        self.change(|definitions| {
            let missing =
                || ChangeError::NotActive { user: user.to_owned(), name: name.to_owned() };
            let mut active = definitions.active(user).cloned().ok_or_else(missing)?;
            active.filters.remove(name).ok_or_else(missing)?;
            Ok(((), vec![(format!("active/{user}"), Some(json(&active)))]))
        })
    }

    /// Sets how a user gets results, from the next ones on.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn set_delivery(&mut self, user: &str, delivery: Delivery) -> Result<(), ChangeError> {
        check_name(user)?;
        self.change(|definitions| {
            let active = definitions.active(user).cloned().unwrap_or_default();
            let active = Active { delivery, ..active };
            Ok(((), vec![(format!("active/{user}"), Some(json(&active)))]))
        })
    }

    /// Stores a watch list of positions [right ascension, declination] in degrees, with a radius
    /// around each, or replaces it under the filters that use it.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn put_watch_list(
        &mut self,
        name: &str,
        positions: Vec<[f64; 2]>,
        radius_arcsec: f64,
    ) -> Result<Head, ChangeError> {
        let kind = ListKind::WatchList { radius_arcsec };
        self.put_list(name, kind, &Entries::Positions(positions))
    }

    /// Stores a region of ranges of HEALPix cells of order 29, or replaces it.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn put_region(&mut self, name: &str, ranges: Vec<Range<u64>>) -> Result<Head, ChangeError> {
        self.put_list(name, ListKind::Region, &Entries::Ranges(ranges))
    }

    fn put_list(
        &mut self,
        name: &str,
        kind: ListKind,
        entries: &Entries,
    ) -> Result<Head, ChangeError> {
        check_name(name)?;
        lists::check(kind, entries)?;
        let publisher = self.listed.publisher()?;
        self.read_stored()?;
        let heads = self.lists.heads();
        let former = heads.get(name);
        let is_watch_list = |kind: &ListKind| matches!(kind, ListKind::WatchList { .. });
        if former.is_some_and(|head| is_watch_list(&head.kind) != is_watch_list(&kind)) {
            return Err(ChangeError::OtherKind(name.to_owned()));
        }
        if former.is_none() && heads.len() >= MAX_LISTS {
            return Err(ChangeError::Limit { what: "lists", limit: MAX_LISTS });
        }
        let others = heads.iter().filter(|(other, _)| *other != name);
        let others: usize = others.map(|(_, head)| head.entries).sum();
        if others + entries.len() > MAX_ENTRIES {
            return Err(ChangeError::Limit { what: "entries of all lists", limit: MAX_ENTRIES });
        }
        let revision = former.map_or(1, |head| head.revision + 1);
        let records = entries.records(name, kind, revision).into_iter();
        let records: Vec<_> = records.map(|(key, value)| (key, Some(value))).collect();
        publish(&publisher, &records)?;
        drop(publisher);
        self.read_stored()?;
        let head = self.lists.heads().get(name).copied();
        head.ok_or_else(|| ChangeError::NoList(name.to_owned()))
    }

    /// Removes a watch list or region. Filters that name it fail from then on.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn remove_list(&mut self, name: &str) -> Result<(), ChangeError> {
        let publisher = self.listed.publisher()?;
        self.read_stored()?;
        let head = self.lists.heads().get(name);
        let head = *head.ok_or_else(|| ChangeError::NoList(name.to_owned()))?;
        let parts = (0..head.parts).flat_map(|n| (0..2).map(move |parity| (parity, n)));
        let parts = parts.map(|(parity, n)| (format!("part/{name}/{parity}/{n}"), None));
        let records: Vec<_> =
            std::iter::once((format!("head/{name}"), None)).chain(parts).collect();
        publish(&publisher, &records)?;
        drop(publisher);
        Ok(self.read_stored()?)
    }

    /// Runs something while the definitions have a version that is not stored.
    pub(crate) fn with_version<R>(
        &mut self,
        id: &FilterId,
        language: Language,
        text: &str,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let version = Version {
            user: id.user.clone(),
            name: id.name.clone(),
            version: id.version,
            language,
            text: text.to_owned(),
            hash: String::new(),
            added_ns: 0,
        };
        self.definitions.versions.insert(id.clone(), version);
        let result = run(self);
        self.definitions.versions.remove(id);
        result
    }

    /// Decides on a change by all that is stored, while no other process can write.
    fn change<R>(
        &mut self,
        decide: impl FnOnce(&Definitions) -> Result<(R, Records), ChangeError>,
    ) -> Result<R, ChangeError> {
        let publisher = self.filters.publisher()?;
        self.read_stored()?;
        let (result, records) = decide(&self.definitions)?;
        publish(&publisher, &records)?;
        drop(publisher);
        self.read_stored()?;
        Ok(result)
    }
}

impl Version {
    /// The filter with its version.
    #[must_use]
    pub fn id(&self) -> FilterId {
        let Self { user, name, version, .. } = self;
        FilterId { user: user.clone(), name: name.clone(), version: *version }
    }
}

/// Takes records of the topic of filters; it has no nulls.
fn defined(definitions: &mut Definitions) -> impl Take + '_ {
    |key: &[u8], value: Option<&[u8]>| value.map_or(Ok(()), |value| definitions.take(key, value))
}
