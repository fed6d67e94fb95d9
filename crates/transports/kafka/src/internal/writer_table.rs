//! The records of `_helio.producers`, and the writers that result from them.
//!
//! Format. Keys are words separated by spaces.
//!
//! | key | value |
//! | --- | --- |
//! | `writer`, topic, partition, producer, attempt | [`WriterRecord`], as [`versioned_json`] |
//! | `session`, session | `true`; deleted when the connection is closed |
//!
//! [`versioned_json`]: helio_bus::transport::versioned_json
//!
//! Operation. A writer's first record has no incarnation: its incarnation is that record's offset
//! plus one, so later ones are larger, whatever their names. Samples of another bus keep their
//! producers' incarnations; a producer's later incarnations here are larger than those.
//!
//! The first record of an exclusive topic's writer is a claim. It contains the offset up to which
//! its writer had read when it found the topic free. The claim is lost, for all readers, if the
//! topic has another record in between. A second record confirms the claim. Only then it fences
//! others, so that a lost claim that was never deleted fences nobody after compaction.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use helio_bus::transport::versioned_json::{FormatError, decode};
use helio_bus::transport::{Alive, WriterInfo};
use helio_bus::{Producer, ProducerName, Tai, TopicName};
use serde::{Deserialize, Serialize};

use crate::client::health::ReachableWindow;
use crate::client::names::PRODUCERS;
use crate::client::options::BROKER_TIMEOUT;
use crate::internal::table::{Fold, LogRecord, check_true, unknown_key};

/// A connection without a heartbeat for so long is declared dead, with its process.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unconfirmed claim may still be confirmed: claiming waits for the brokers three
/// times.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(3 * BROKER_TIMEOUT.as_secs());
/// How many records are deleted at a time.
const MAX_SWEPT_RECORDS: usize = 1_000;

/// A writer's record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WriterRecord {
    /// `None` in a claim: there it is the record's offset plus one.
    pub(crate) incarnation: Option<u64>,
    pub(crate) exclusive: bool,
    /// In a claim of an exclusive topic: the end of the partition's records that its writer knew.
    pub(crate) expected_end_offset: u64,
    pub(crate) open: bool,
    /// When the writer last published or asserted its liveliness.
    pub(crate) last_active_tai_ns: i64,
    pub(crate) session: String,
    /// Of a forwarder: its producer's newest incarnation on the other bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forwarded_incarnation: Option<u64>,
    /// The producer's newest earlier incarnation, if the topic has samples of another bus: the
    /// writer's own is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_incarnation: Option<u64>,
}

/// The key of a writer's record.
pub(crate) fn writer_key(
    topic: &TopicName,
    partition: u32,
    name: &ProducerName,
    attempt: &str,
) -> String {
    format!("writer {topic} {partition} {name} {attempt}")
}

/// The sessions and writers that result from all records.
#[derive(Default)]
pub(crate) struct WriterTable {
    sessions: HashMap<String, Session>,
    partitions: HashMap<(TopicName, u32), PartitionWriters>,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    /// Milliseconds of UTC.
    last_heartbeat: i64,
}

/// A writer's producer and attempt.
pub(crate) type WriterName = (ProducerName, String);

/// A partition of a topic.
#[derive(Default)]
struct PartitionWriters {
    /// The end of its records.
    end: u64,
    entries: BTreeMap<WriterName, WriterEntry>,
}

/// A valid claim, current or former.
struct WriterEntry {
    incarnation: u64,
    confirmed: bool,
    record: WriterRecord,
}

impl WriterEntry {
    /// The incarnation of its samples.
    fn shown(&self) -> u64 {
        let next = self.record.previous_incarnation.map_or(0, |previous| previous + 1);
        self.record.forwarded_incarnation.unwrap_or(self.incarnation.max(next))
    }
}

impl Fold for WriterTable {
    const NAME: &'static str = PRODUCERS;

    fn take(&mut self, entry: LogRecord<'_>) -> Result<(), FormatError> {
        match (entry.key, entry.value) {
            (["session", session], Some(value)) => {
                check_true(value)?;
                self.heartbeat(session, entry.millis);
            }
            (["session", session], None) => _ = self.sessions.remove(*session),
            (["writer", topic, partition, name, attempt], value) => {
                let topic = TopicName::new(topic).map_err(FormatError::invalid)?;
                let partition = partition.parse::<u32>().map_err(FormatError::invalid)?;
                let name = ProducerName::new(name).map_err(FormatError::invalid)?;
                let record = value.map(decode::<WriterRecord>).transpose()?;
                let writer = (name, (*attempt).to_owned());
                let writers = self.partitions.entry((topic, partition)).or_default();
                match record {
                    None => _ = writers.entries.remove(&writer),
                    Some(record) => {
                        let session = record.session.clone();
                        writers.take(entry.offset, writer, record);
                        self.heartbeat(&session, entry.millis);
                    }
                }
            }
            (_, None) => {}
            _ => return Err(unknown_key()),
        }
        Ok(())
    }
}

impl WriterTable {
    fn heartbeat(&mut self, session: &str, millis: i64) {
        let fresh = Session { last_heartbeat: millis };
        let session = self.sessions.entry(session.to_owned()).or_insert(fresh);
        session.last_heartbeat = session.last_heartbeat.max(millis);
    }

    /// The keys of records without a heartbeat since then, unless something depends on them.
    pub(crate) fn forgotten(&self, long_ago: i64) -> Vec<String> {
        let gone =
            |session: &str| self.sessions.get(session).is_none_or(|s| s.last_heartbeat < long_ago);
        let sessions = self.sessions.keys().filter(|session| gone(session));
        let sessions = sessions.map(|session| format!("session {session}"));
        let records = self.partitions.iter().flat_map(|((topic, partition), writers)| {
            let shared = writers.entries.iter().filter(|(_, entry)| {
                let record = &entry.record;
                let active = Tai::from_nanos(record.last_active_tai_ns).unix_nanos() / 1_000_000;
                let counts = record.forwarded_incarnation.or(record.previous_incarnation).is_some();
                !record.exclusive && !counts && active < long_ago && gone(&record.session)
            });
            shared.map(move |((name, attempt), _)| writer_key(topic, *partition, name, attempt))
        });
        sessions.chain(records).take(MAX_SWEPT_RECORDS).collect()
    }

    fn alive(
        &self,
        writers: &PartitionWriters,
        entry: &WriterEntry,
        LivenessCriteria { lease, now, reachable }: LivenessCriteria,
    ) -> bool {
        let record = &entry.record;
        let session = self.sessions.get(&record.session);
        let silence = i64::try_from(SESSION_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        let silent = |s: &Session| reachable.until - s.last_heartbeat.max(reachable.since);
        let runs = session.is_some_and(|s| silent(s) <= silence);
        // Since the end of the outage, if there was one.
        let back = Tai::from_unix_nanos(reachable.since.saturating_mul(1_000_000));
        let active = record.last_active_tai_ns;
        let since = if reachable.since == 0 { active } else { active.max(back.nanos()) };
        let idle = u128::try_from(now.nanos().saturating_sub(since)).unwrap_or(0);
        record.open
            && runs
            && lease.is_none_or(|lease| idle <= lease.as_nanos())
            && (!record.exclusive || entry.incarnation >= writers.newest())
    }

    fn partition(&self, topic: &TopicName, partition: u32) -> Option<&PartitionWriters> {
        self.partitions.get(&(topic.clone(), partition))
    }

    /// Checks that a partition has no live writer: returns the end of its records, or the writer's
    /// name.
    pub(crate) fn free(
        &self,
        topic: &TopicName,
        partition: u32,
        criteria: LivenessCriteria,
    ) -> Result<u64, String> {
        let Some(writers) = self.partition(topic, partition) else { return Ok(0) };
        let is_alive = |entry: &WriterEntry| self.alive(writers, entry, criteria);
        let live = writers.entries.iter().find(|(_, entry)| is_alive(entry));
        live.map_or(Ok(writers.end), |((name, _), entry)| {
            Err(format!("{name} (incarnation {})", entry.incarnation))
        })
    }

    /// Whether a claim is valid.
    pub(crate) fn has(&self, topic: &TopicName, partition: u32, writer: &WriterName) -> bool {
        let writers = self.partition(topic, partition);
        writers.is_some_and(|writers| writers.entries.contains_key(writer))
    }

    /// A producer's newest incarnation of this bus, and its newest of another bus.
    pub(crate) fn incarnations(
        &self,
        topic: &TopicName,
        partition: u32,
        name: &ProducerName,
    ) -> (u64, u64) {
        let writers = self.partition(topic, partition);
        writers.map_or((0, 0), |writers| writers.incarnations(name))
    }

    /// The newest incarnation that fences a partition's writers (0 is none), and whether a claim
    /// later than `order` may still be confirmed.
    pub(crate) fn takeover(
        &self,
        topic: &TopicName,
        partition: u32,
        order: u64,
        now: Tai,
    ) -> (u64, bool) {
        let writers = self.partition(topic, partition);
        writers.map_or((0, false), |writers| (writers.newest(), writers.is_claimed(order, now)))
    }

    /// The keys of a partition's writers, except the newest `kept`.
    pub(crate) fn former_writers(
        &self,
        topic: &TopicName,
        partition: u32,
        kept: usize,
    ) -> Vec<String> {
        let writers = self.partition(topic, partition).into_iter();
        let all = writers.flat_map(|writers| &writers.entries);
        let mut all: Vec<_> = all.map(|(writer, entry)| (entry.incarnation, writer)).collect();
        all.sort_unstable();
        let former = all.into_iter().rev().skip(kept);
        former.map(|(_, (name, attempt))| writer_key(topic, partition, name, attempt)).collect()
    }

    /// The current and former writers of a topic.
    pub(crate) fn list(&self, topic: &TopicName, criteria: LivenessCriteria) -> Vec<WriterInfo> {
        let mut list = Vec::new();
        for ((_, partition), writers) in
            self.partitions.iter().filter(|((name, _), _)| name == topic)
        {
            list.extend(writers.entries.iter().map(|((name, _), entry)| {
                let alive = self.alive(writers, entry, criteria);
                WriterInfo {
                    producer: Producer { name: name.clone(), incarnation: entry.shown() },
                    partition: *partition,
                    alive: Some(if alive { Alive::Yes } else { Alive::No }),
                    seen: Some(Tai::from_nanos(entry.record.last_active_tai_ns)),
                }
            }));
        }
        list
    }
}

impl PartitionWriters {
    fn take(&mut self, offset: u64, writer: WriterName, record: WriterRecord) {
        let known = self.entries.get_mut(&writer);
        match (known, record.incarnation) {
            (Some(entry), Some(incarnation)) if incarnation >= entry.incarnation => {
                (entry.incarnation, entry.confirmed, entry.record) = (incarnation, true, record);
            }
            // The last record of a replaced writer of the same name.
            (Some(_), Some(_)) => return,
            (_, None) if record.exclusive && self.end > record.expected_end_offset => return,
            (_, incarnation) => {
                let confirmed = incarnation.is_some() || !record.exclusive;
                let incarnation = incarnation.unwrap_or(offset + 1);
                self.entries.insert(writer, WriterEntry { incarnation, confirmed, record });
            }
        }
        self.end = offset + 1;
    }

    /// A producer's newest incarnation of this bus, and its newest of another bus.
    fn incarnations(&self, name: &ProducerName) -> (u64, u64) {
        let of = self.entries.iter().filter(|((other, _), _)| other == name);
        of.fold((0, 0), |(own, forwarded), (_, entry)| match entry.record.forwarded_incarnation {
            None => (own.max(entry.shown()), forwarded),
            Some(newest) => (own, forwarded.max(newest)),
        })
    }

    /// Whether a later claim may still be confirmed.
    fn is_claimed(&self, order: u64, now: Tai) -> bool {
        let claims = |entry: &WriterEntry| {
            let age = now.nanos().saturating_sub(entry.record.last_active_tai_ns);
            let age = u128::try_from(age).unwrap_or(0);
            let may = entry.record.open && age <= CLAIM_TIMEOUT.as_nanos();
            !entry.confirmed && entry.record.exclusive && entry.incarnation > order && may
        };
        self.entries.values().any(claims)
    }

    /// The newest incarnation that fences others; 0 is none.
    fn newest(&self) -> u64 {
        let fencing = |entry: &&WriterEntry| entry.confirmed && entry.record.exclusive;
        self.entries.values().filter(fencing).map(|entry| entry.incarnation).max().unwrap_or(0)
    }
}

/// The criteria of liveliness.
#[derive(Clone, Copy)]
pub(crate) struct LivenessCriteria {
    pub(crate) lease: Option<Duration>,
    pub(crate) now: Tai,
    pub(crate) reachable: ReachableWindow,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::clock::utc_millis;
    use crate::internal::table::{TRUE, encode};

    fn say(
        claims: &mut WriterTable,
        offset: u64,
        (name, attempt): (&str, &str),
        word: Option<WriterRecord>,
    ) {
        let value = word.map(|word| encode(&word).unwrap());
        let (key, millis) = (["writer", "t", "0", name, attempt], utc_millis());
        claims.take(LogRecord { offset, millis, key: &key, value: value.as_deref() }).unwrap();
    }

    fn word(incarnation: Option<u64>, expected_end_offset: u64) -> Option<WriterRecord> {
        Some(WriterRecord {
            incarnation,
            exclusive: true,
            expected_end_offset,
            open: true,
            last_active_tai_ns: 0,
            session: "s".to_owned(),
            forwarded_incarnation: None,
            previous_incarnation: None,
        })
    }

    fn place(claims: &WriterTable) -> &PartitionWriters {
        &claims.partitions[&(TopicName::new("t").unwrap(), 0)]
    }

    fn live(claims: &WriterTable) -> Vec<u64> {
        let place = place(claims);
        let reachable = ReachableWindow { since: 0, until: utc_millis() };
        let now = LivenessCriteria { lease: None, now: Tai::from_nanos(0), reachable };
        let live = place.entries.values().filter(|entry| claims.alive(place, entry, now));
        live.map(|entry| entry.incarnation).collect()
    }

    /// Records of `_helio.producers`: the last two members are optional.
    const GOLDEN: [&str; 2] = [
        concat!(
            r#"{"v":2,"incarnation":11,"exclusive":true,"expected_end_offset":7,"open":true,"#,
            r#""last_active_tai_ns":-5,"session":"s","forwarded_incarnation":3,"#,
            r#""previous_incarnation":2}"#
        ),
        concat!(
            r#"{"v":2,"incarnation":null,"exclusive":false,"expected_end_offset":0,"open":false,"#,
            r#""last_active_tai_ns":0,"session":"s"}"#
        ),
    ];
    /// A record before version 2.
    const VERSION_1: &str =
        r#"{"incarnation":null,"exclusive":true,"after":0,"open":true,"seen":0,"session":"s"}"#;

    #[test]
    fn words_are_those_of_the_format() {
        for golden in GOLDEN {
            let record: WriterRecord = decode(golden.as_bytes()).unwrap();
            assert_eq!(encode(&record).unwrap(), golden.as_bytes());
        }
        let record: WriterRecord = decode(GOLDEN[0].as_bytes()).unwrap();
        assert_eq!((record.incarnation, record.exclusive, record.open), (Some(11), true, true));
        assert_eq!((record.expected_end_offset, record.last_active_tai_ns), (7, -5));
        assert_eq!((record.session.as_str(), record.forwarded_incarnation), ("s", Some(3)));
        assert_eq!(record.previous_incarnation, Some(2));
    }

    #[test]
    fn records_that_cannot_be_read_change_nothing() {
        let mut table = WriterTable::default();
        let mut take = |key: &str, value: &str| {
            let key: Vec<_> = key.split(' ').collect();
            let value = Some(value.as_bytes());
            table.take(LogRecord { offset: 10, millis: 0, key: &key, value })
        };
        let writer = "writer t 0 p x";
        assert_eq!(take(writer, VERSION_1), Err(FormatError::NoVersion));
        let newer = GOLDEN[1].replacen('2', "3", 1);
        assert_eq!(take(writer, &newer), Err(FormatError::Version(3)));
        assert_eq!(take("session s", "{}"), Err(FormatError::NoVersion));
        assert_eq!(take("session s", r#"{"v":1}"#), Err(FormatError::Version(1)));
        for (key, value) in [
            (writer, r#"{"v":2}"#),
            (writer, "true"),
            ("session s", "false"),
            ("writer t zero p x", GOLDEN[0]),
            ("reader t 0 p x", GOLDEN[0]),
        ] {
            assert!(matches!(take(key, value), Err(FormatError::Invalid(_))), "{key} {value}");
        }
        assert!(table.sessions.is_empty() && table.partitions.is_empty());
    }

    #[test]
    fn keys_are_those_of_the_format() {
        let (topic, name) = (TopicName::new("a/b").unwrap(), ProducerName::new("p:1").unwrap());
        assert_eq!(writer_key(&topic, 3, &name, "-"), "writer a/b 3 p:1 -");
        assert_eq!(writer_key(&topic, 3, &name, "="), "writer a/b 3 p:1 =");
        let mut claims = WriterTable::default();
        let mut take = |offset, key: &str, value: Option<&str>| {
            let key: Vec<_> = key.split(' ').collect();
            let value = value.map(str::as_bytes);
            claims.take(LogRecord { offset, millis: 0, key: &key, value }).unwrap();
        };
        take(10, "writer t 0 p x", Some(GOLDEN[0]));
        take(11, "session s", Some("true"));
        take(12, "session gone", Some("true"));
        take(13, "session gone", None);
        assert_eq!(claims.sessions.keys().collect::<Vec<_>>(), ["s"]);
        assert_eq!(claims.forgotten(1), ["session s"]);
        assert_eq!(place(&claims).incarnations(&ProducerName::new("p").unwrap()), (0, 3));
    }

    #[test]
    fn of_two_claims_at_once_the_first_holds() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("b", "2"), word(None, 0));
        assert_eq!(live(&claims), [11]);
        say(&mut claims, 12, ("b", "2"), None);
        say(&mut claims, 13, ("a", "1"), word(Some(11), 0));
        assert_eq!((live(&claims), place(&claims).newest()), (vec![11], 11));
    }

    #[test]
    fn who_said_a_word_meanwhile_is_not_taken_over_from() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("a", "1"), word(Some(11), 0));
        say(&mut claims, 12, ("b", "2"), word(None, 11));
        assert_eq!(live(&claims), [11]);
        say(&mut claims, 13, ("b", "3"), word(None, 12));
        assert_eq!(live(&claims), [11, 14], "until it is confirmed it fences nobody");
        say(&mut claims, 14, ("b", "3"), word(Some(14), 0));
        assert_eq!(live(&claims), [14]);
        say(&mut claims, 15, ("a", "1"), word(Some(11), 0));
        assert_eq!(live(&claims), [14], "a zombie's word changes nothing");
    }

    #[test]
    fn a_claim_that_may_be_confirmed_is_waited_for() {
        let mut claims = WriterTable::default();
        let now = |seconds: u64| Tai::from_nanos(i64::try_from(seconds).unwrap() * 1_000_000_000);
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("a", "1"), word(Some(11), 0));
        assert!(!place(&claims).is_claimed(11, now(1)));
        say(&mut claims, 12, ("b", "2"), word(None, 12));
        assert!(place(&claims).is_claimed(11, now(1)));
        assert!(!place(&claims).is_claimed(11, now(31)), "who said it is gone");
        say(&mut claims, 13, ("b", "2"), word(Some(13), 0));
        assert!(!place(&claims).is_claimed(11, now(1)), "it has taken over");
    }

    #[test]
    fn compaction_changes_no_holder() {
        // The rest of: a's claim 10 and records up to 20, b's lost claim 15.
        let mut claims = WriterTable::default();
        say(&mut claims, 15, ("b", "2"), word(None, 12));
        say(&mut claims, 20, ("a", "1"), word(Some(11), 0));
        assert_eq!(place(&claims).newest(), 11);
    }

    #[test]
    fn what_is_given_here_lies_above_what_came_from_elsewhere() {
        let mut claims = WriterTable::default();
        let name = ProducerName::new("a").unwrap();
        let shared = |incarnation, forwarded_incarnation, previous_incarnation| {
            let (exclusive, word) = (false, word(incarnation, 0).unwrap());
            Some(WriterRecord { exclusive, forwarded_incarnation, previous_incarnation, ..word })
        };
        say(&mut claims, 10, ("a", "="), shared(None, Some(5_000), None));
        assert_eq!(place(&claims).incarnations(&name), (0, 5_000));
        say(&mut claims, 20, ("a", "-"), shared(None, None, Some(5_000)));
        assert_eq!(place(&claims).incarnations(&name), (5_001, 5_000));
        say(&mut claims, 30, ("a", "-"), shared(None, None, Some(5_001)));
        assert_eq!(place(&claims).incarnations(&name), (5_002, 5_000));
        say(&mut claims, 40, ("a", "="), shared(Some(11), Some(6_000), None));
        assert_eq!(place(&claims).incarnations(&name), (5_002, 6_000));
        assert!(claims.forgotten(i64::MAX).iter().all(|key| !key.starts_with("writer")));
    }

    #[test]
    fn a_session_that_was_closed_has_no_live_writers() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let key = ["session", "s"];
        let silent = utc_millis() - 1_000_000;
        let take = |claims: &mut WriterTable, offset, millis, value| {
            claims.take(LogRecord { offset, millis, key: &key, value }).unwrap();
        };
        take(&mut claims, 11, silent, Some(TRUE));
        assert_eq!(live(&claims), [11]);
        take(&mut claims, 12, utc_millis(), None);
        assert!(live(&claims).is_empty());
    }

    #[test]
    fn what_nobody_speaks_for_is_forgotten() {
        let mut claims = WriterTable::default();
        let shared = |session: &str| WriterRecord {
            exclusive: false,
            session: session.to_owned(),
            ..word(None, 0).unwrap()
        };
        say(&mut claims, 10, ("a", "-"), Some(shared("gone")));
        say(&mut claims, 11, ("b", "-"), Some(shared("alive")));
        for (offset, session, value) in [(12, "gone", None), (13, "silent", Some(TRUE))] {
            let key = ["session", session];
            claims.take(LogRecord { offset, millis: 5, key: &key, value }).unwrap();
        }
        let forgotten = claims.forgotten(utc_millis() - 1_000);
        assert_eq!(forgotten, ["session silent", "writer t 0 a -"]);
    }

    #[test]
    fn nobody_dies_of_an_outage_of_the_brokers() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let alive = |until, since| {
            let (place, reachable) = (place(&claims), ReachableWindow { since, until });
            let now = LivenessCriteria { lease: None, now: Tai::from_nanos(0), reachable };
            place.entries.values().any(|entry| claims.alive(place, entry, now))
        };
        let later = utc_millis() + 60_000;
        assert!(!alive(later, 0));
        assert!(alive(later, later - 1_000), "it could not be heard before");
        assert!(!alive(later, later - 20_000));
    }

    #[test]
    fn no_lease_runs_out_in_an_outage_of_the_brokers() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let until = utc_millis();
        let now = Tai::from_unix_nanos(until * 1_000_000);
        let alive = |since| {
            let (place, reachable) = (place(&claims), ReachableWindow { since, until });
            let now = LivenessCriteria { lease: Some(Duration::from_secs(5)), now, reachable };
            place.entries.values().any(|entry| claims.alive(place, entry, now))
        };
        assert!(!alive(0), "it has said nothing since 1970");
        assert!(alive(until - 4_000), "its word is yet to come");
        assert!(!alive(until - 6_000));
    }
}
