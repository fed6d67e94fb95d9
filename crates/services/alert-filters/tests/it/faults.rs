//! Failures of the bus, foreign records, and visits that nobody opens or closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_alert_filters::records::{Decision, Version};
use helio_alert_filters::{FilterId, FilterStore, Force, Language, Options, Topics, summaries};
use helio_bus::transport::Record;
use helio_bus::{
    Bus, HeadersRef, Message, PublishError, SchemaId, SizeLimit, Tai, TestClock, TopicSpec,
    TransportError,
};
use helio_filter::Rank;
use helio_filter::cap::{Candidate, Top};

use crate::support::faulty::Faulty;
use crate::support::{
    Alert, Night, PARTITIONS, Process, RANKED, TOPIC, best, chosen, generated, results, samples,
    sql, until, until_decided,
};

/// Matches without an order.
const ANY: &str = "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 0";
/// Steps that are enough for a few visits in memory.
const STEPS: usize = 400;

fn unknown() -> PublishError {
    PublishError::Unknown { cause: "as the test wants".to_owned() }
}

fn matching(alerts: &[Alert]) -> BTreeSet<i64> {
    let found = alerts.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > 0.0));
    found.map(|alert| alert.id).collect()
}

/// Claims that the bus refuses are written before their partition ends.
#[test]
fn a_partition_ends_only_when_its_claims_are_stored() {
    let refusals = AtomicU64::new(1);
    let (_, bus) = Faulty::new(move |_: &str, record: &Record<'_>| {
        let is_refused = record.key.starts_with(b"claims/")
            && refusals
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok();
        is_refused.then(unknown)
    });
    let mut night = Night::new(&bus, generated(12));
    sql(&bus, "bob", "any", ANY);
    let mut first = Process::open(&bus);
    let alerts = night.visit(0);
    let wait = Duration::from_millis(1);
    let failed = (0..STEPS).any(|_| first.worker.step(wait).is_err());
    assert!(failed);
    drop(first);
    until_decided(&mut [Process::open(&bus)], 1);
    let found: BTreeSet<i64> = chosen(&bus, "bob")[&night.id(0)].iter().copied().collect();
    assert_eq!(found, matching(&alerts));
}

fn number(headers: HeadersRef<'_>, name: &str) -> Option<i64> {
    std::str::from_utf8(headers.get(name)?).ok()?.parse().ok()
}

/// A result that the engine never accepts becomes a reference, and the others are published.
#[test]
fn a_result_that_is_too_large_is_a_reference() {
    const MOST: usize = 300;
    let large = std::sync::Arc::new(AtomicU64::new(0));
    let of = std::sync::Arc::clone(&large);
    let (_, bus) = Faulty::new(move |topic: &str, record: &Record<'_>| {
        let alert = number(record.headers, "alert")?;
        let is_large = topic == "alerts/results/ada"
            && alert == of.load(Ordering::Relaxed) as i64
            && record.payload.len() > MOST;
        is_large.then(|| {
            PublishError::Transport(TransportError::TooLarge {
                what: "the payload",
                bytes: record.payload.len(),
                limit: SizeLimit::Bytes(MOST),
                transport: "faulty".to_owned(),
            })
        })
    });
    let mut night = Night::new(&bus, generated(60));
    let packets = RANKED.replace("SELECT diaSourceId, diaSource.snr", "SELECT *");
    sql(&bus, "ada", "packets", &packets);
    sql(&bus, "bob", "columns", RANKED);
    let mut process = [Process::open(&bus)];
    night.open(0);
    let alerts = night.publish(0, 0..crate::support::DETECTORS);
    let expected = best(&alerts, 6.0);
    large.store(expected[1] as u64, Ordering::Relaxed);
    night.close(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], expected);
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], expected);
    assert_eq!(process[0].count(|c| &c.results_without_packet), 1);
    let of_ada = results(&bus, "ada");
    assert!(of_ada[1].payload.len() <= MOST && of_ada[0].payload.len() > MOST);
    // A restart finds all of them.
    drop(process);
    let mut other = Process::open(&bus);
    (0..10).for_each(|_| _ = other.step());
    assert_eq!((other.count(|c| &c.results), results(&bus, "ada").len()), (0, expected.len()));
}

fn with_clock() -> (TestClock, Bus) {
    let clock = TestClock::new(Tai::from_nanos(1_000_000_000_000_000));
    let builder = Bus::builder().clock(std::sync::Arc::new(clock.clone()));
    (clock, builder.connect("memory:").unwrap())
}

/// Alerts of a visit that nobody opens, claimed at once, do not stop the positions for ever.
#[test]
fn a_visit_that_nobody_opens_is_decided_after_a_while() {
    let (clock, bus) = with_clock();
    let mut night = Night::new(&bus, generated(12));
    sql(&bus, "bob", "any", ANY);
    let mut process = [Process::open(&bus)];
    let alerts = night.publish(0, 0..1);
    until(&mut process, |_| chosen(&bus, "bob").contains_key(&night.id(0)));
    assert_eq!(process[0].count(|c| &c.visits_decided), 0);
    clock.advance(Duration::from_secs(601));
    (0..STEPS).for_each(|_| _ = process[0].step());
    assert_eq!(process[0].count(|c| &c.visits_decided), 1);
    // What comes of it later is late.
    night.publish(0, 1..2);
    (0..STEPS).for_each(|_| _ = process[0].step());
    let found: BTreeSet<i64> = chosen(&bus, "bob")[&night.id(0)].iter().copied().collect();
    assert_eq!(found, matching(&alerts));
}

fn decide(bus: &Bus, decisions: &[Decision]) {
    let topic = bus.topic(TopicSpec::new(&Topics::of(TOPIC).decisions()).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    for decision in decisions {
        let (key, value) = (decision.key(), serde_json::to_vec(decision).unwrap());
        publisher.publish(Message::new(&value).key(key.as_bytes())).wait().unwrap();
    }
}

/// A whole partial of a partition with one alert for a user.
fn partial(visit: i64, partition: u32) -> Decision {
    let mut top = Top::default();
    top.insert(Candidate {
        alert: visit * 10 + i64::from(partition),
        rank: Rank::default(),
        filters: BTreeSet::from(["f@1".to_owned()]),
    });
    let users =
        if partition == 0 { BTreeMap::from([("ada".to_owned(), top)]) } else { BTreeMap::new() };
    Decision::Partial {
        visit,
        partition,
        part: 0,
        parts: 1,
        users,
        places: Vec::new(),
        statistics: BTreeMap::new(),
        late: BTreeMap::new(),
        causes: BTreeMap::new(),
    }
}

/// A visit that stays pending stops the checkpoint; what is finished behind it is not forgotten.
#[test]
fn a_pending_visit_does_not_make_finished_ones_be_decided_again() {
    const VISITS: i64 = 2_150;
    let bus = Bus::connect("memory:").unwrap();
    let _night = Night::new(&bus, generated(12));
    let mut process = [Process::open(&bus)];
    decide(&bus, &[partial(1, 1)]);
    let others: Vec<Decision> =
        (2..2 + VISITS).flat_map(|visit| (0..PARTITIONS).map(move |p| partial(visit, p))).collect();
    decide(&bus, &others);
    until_decided(&mut process, VISITS as u64);
    assert_eq!(results(&bus, "ada").len(), VISITS as usize);
    // The one that stops the checkpoint is given up, as the finished ones become too many.
    assert_eq!(process[0].count(|c| &c.visits_abandoned), 1);
    drop(process);
    let mut other = [Process::open(&bus)];
    decide(&bus, &(0..PARTITIONS).map(|p| partial(9_999, p)).collect::<Vec<_>>());
    until_decided(&mut other, 1);
    assert_eq!(results(&bus, "ada").len(), VISITS as usize + 1);
    assert_eq!(other[0].count(|c| &c.visits_decided), 1);
}

fn put(bus: &Bus, topic: &str, key: &str, value: &[u8]) {
    let topic = bus.topic(TopicSpec::new(topic).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(value).key(key.as_bytes())).wait().unwrap();
}

fn value(process: &Process, name: &str) -> u64 {
    let values = process.counters.values();
    values.into_iter().find(|(of, ..)| *of == name).map_or(0, |(.., value)| value)
}

/// Records that are none of the service's are counted; the service and its users continue.
#[test]
fn foreign_records_are_skipped() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "bright", RANKED);
    let topics = Topics::of(TOPIC);
    put(&bus, &topics.filters(), "version/ada/bright/7", b"of a newer program");
    put(&bus, &topics.filters(), "what", b"is it");
    put(&bus, &topics.lists(), "what", b"is it");
    let mut first = [Process::open(&bus)];
    until(&mut first, |first| first[0].publisher.is_publisher());
    drop(first);
    put(&bus, &topics.publisher(), "checkpoint", b"of a newer program");
    let mut process = [Process::open(&bus)];
    for key in ["begin/7", "claims/7/0", "partial/7/0/part", "what"] {
        put(&bus, &topics.decisions(), key, b"none");
    }
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], best(&alerts, 6.0));
    // The worker reads filters, lists and begins, the publisher the others and the checkpoint.
    assert_eq!(value(&process[0], "foreign_records"), 3 + 1 + 3 + 1);
    // A number that an unreadable version has is not given again.
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let added = store.add("ada", "bright", Language::Sql, ANY).unwrap();
    assert_eq!(added.version, 8);
}

/// With 64 visits open a partition is read no further; visits whose end is known are not open.
#[test]
fn a_worker_reads_no_further_with_too_many_open_visits() {
    const VISITS: u32 = 70;
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(12));
    sql(&bus, "ada", "all", "SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.snr");
    let options = Options { batch_bytes: 1, ..Options::of(TOPIC) };
    let mut process = [Process::with(&bus, &options)];
    for visit in 0..VISITS {
        night.open(visit);
        night.publish(visit, 0..6);
    }
    let all = u64::from(VISITS) * 12;
    (0..all * 2).for_each(|_| _ = process[0].step());
    let read = process[0].count(|c| &c.alerts);
    assert!((64..all).contains(&read), "{read} of {all} alerts");
    (0..VISITS).for_each(|visit| night.close(visit));
    until_decided(&mut process, u64::from(VISITS));
    assert_eq!(process[0].count(|c| &c.alerts), all);
    // Another group reads all of it with the ends known from the first alert on.
    let group = "others".to_owned();
    let mut other = [Process::with(&bus, &Options { group, ..options })];
    until(&mut other, |other| other[0].count(|c| &c.alerts) == all);
}

/// A schema that cannot be looked up is not an unknown one: the alerts are read again.
#[test]
fn alerts_wait_for_a_failed_lookup_of_their_schema() {
    let (faulty, bus) = Faulty::new(|_: &str, _: &Record<'_>| None);
    let mut night = Night::new(&bus, generated(12));
    sql(&bus, "bob", "any", ANY);
    let mut first = Process::open(&bus);
    let alerts = night.visit(0);
    faulty.schema_failures.store(2, Ordering::Relaxed);
    let failed = (0..STEPS).any(|_| first.worker.step(Duration::from_millis(1)).is_err());
    drop(first);
    faulty.schema_failures.store(0, Ordering::Relaxed);
    let mut process = [Process::open(&bus)];
    until_decided(&mut process, 1);
    let found: BTreeSet<i64> = chosen(&bus, "bob")[&night.id(0)].iter().copied().collect();
    assert!(failed && process[0].count(|c| &c.alerts_rejected) == 0);
    assert_eq!(found, matching(&alerts));
    // An unknown schema is looked up once.
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    let before = faulty.lookups.load(Ordering::Relaxed);
    for _ in 0..5 {
        publisher.publish(Message::new(b"x").schema(SchemaId(7)).partition(0)).wait().unwrap();
    }
    until(&mut process, |process| process[0].count(|c| &c.alerts_rejected) == 5);
    let lookups = faulty.lookups.load(Ordering::Relaxed) - before;
    assert_eq!(lookups, 1);
}

#[test]
fn statistics_count_each_alert_in_time_once() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "any", ANY);
    sql(&bus, "bob", "bright", RANKED);
    night.open(0);
    let in_time = night.publish(0, 0..4);
    let again = night.packets(0, 1);
    night.publish_packets(0, 1, &again);
    night.close(0);
    night.publish(0, 4..6);
    let mut process = [Process::open(&bus)];
    until_decided(&mut process, 1);
    let filters = &summaries(&bus, TOPIC).unwrap()[0].filters;
    let of = filters["ada"]["any@1"];
    let expected = (in_time.len() as u64, matching(&in_time).len() as u64);
    assert_eq!((of.alerts, of.matches), expected);
    assert_eq!(filters["bob"]["bright@1"].alerts, in_time.len() as u64);
}

/// Kafka takes 8 MiB; claims, partials and summaries of many users with many filters stay below.
#[test]
fn records_of_many_users_are_bounded() {
    const USERS: usize = 24;
    const FILTERS: usize = 50;
    /// The service's own limit, and what one more user may have.
    const MOST: usize = (1 << 20) + (200 << 10);
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(120));
    drop(FilterStore::open(&bus, TOPIC).unwrap());
    let topic = bus.topic(TopicSpec::new(&Topics::of(TOPIC).filters()).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    let store = |key: String, value: Vec<u8>| {
        publisher.publish(Message::new(&value).key(key.as_bytes())).wait().unwrap();
    };
    for (kind, order) in [("first", ""), ("best", " ORDER BY diaSource.snr")] {
        for user in 0..USERS {
            let user = format!("{kind}{user}");
            let mut filters = BTreeMap::new();
            for filter in 0..FILTERS {
                let name = format!("{filter:0>64}");
                let version = Version {
                    user: user.clone(),
                    name: name.clone(),
                    version: 1,
                    language: Language::Sql,
                    text: format!("SELECT diaSourceId FROM alerts WHERE TRUE{order}"),
                    hash: String::new(),
                    added_ns: 0,
                };
                let FilterId { user, name, version: number } = version.id();
                let value = serde_json::to_vec(&version).unwrap();
                store(format!("version/{user}/{name}/{number}"), value);
                filters.insert(name, 1);
            }
            let active = helio_alert_filters::records::Active { filters, ..Default::default() };
            store(format!("active/{user}"), serde_json::to_vec(&active).unwrap());
        }
    }
    drop(publisher);
    let mut process = [Process::open(&bus)];
    night.visit(0);
    until_decided(&mut process, 1);
    let decisions = samples(&bus, &Topics::of(TOPIC).decisions());
    let size_of = |kind: &[u8]| {
        let of_kind = decisions.iter().filter(|sample| sample.key.starts_with(kind));
        let sizes: Vec<usize> = of_kind.map(|sample| sample.payload.len()).collect();
        (sizes.iter().sum::<usize>(), sizes.into_iter().max().unwrap_or(0))
    };
    for kind in [&b"claims/"[..], b"partial/"] {
        let (sum, most) = size_of(kind);
        assert!(sum > 1 << 20 && most < MOST, "{sum} bytes, {most} of a record");
    }
    for user in 0..USERS {
        for kind in ["first", "best"] {
            assert_eq!(chosen(&bus, &format!("{kind}{user}"))[&night.id(0)].len(), 20);
        }
    }
}

/// The record of a visit's filters fits in a message.
#[test]
fn active_filters_of_all_users_are_limited() {
    let bus = Bus::connect("memory:").unwrap();
    let _night = Night::new(&bus, generated(12));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let id = store.add("ada", "any", Language::Sql, ANY).unwrap().id();
    let filters: BTreeMap<String, u32> = (0..50).map(|n| (format!("f{n}"), 1)).collect();
    let active = helio_alert_filters::records::Active { filters, ..Default::default() };
    let value = serde_json::to_vec(&active).unwrap();
    for user in 0..400 {
        put(&bus, &Topics::of(TOPIC).filters(), &format!("active/user{user}"), &value);
    }
    let refused = store.activate(&id, Force::Yes).unwrap_err().to_string();
    assert_eq!(refused, "active filters of all users: 20000 at most");
    store.deactivate("user7", "f7").unwrap();
    store.activate(&id, Force::Yes).unwrap();
}
