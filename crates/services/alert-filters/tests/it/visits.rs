//! Visits through workers and a publisher: the cap, restarts, late alerts, statistics.

use std::collections::BTreeSet;
use std::time::Duration;

use helio_alert_filters::records::Summary;
use helio_alert_filters::{FilterStore, Force, Language, summaries};
use helio_bus::{Bus, TestClock};
use helio_core::Tai;

use crate::support::{
    Alert, DETECTORS, Night, Process, RANKED, TOPIC, best, bus, chosen, generated, header, results,
    sql, until, until_decided,
};

fn journal() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    (folder, url)
}

fn summary(bus: &Bus, visit: i64) -> Summary {
    let all = summaries(bus, TOPIC).unwrap();
    all.into_iter().find(|summary| summary.visit == visit).unwrap()
}

#[test]
fn a_user_gets_the_best_twenty_in_order() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(300));
    sql(&bus, "ada", "bright", RANKED);
    let mut process = [Process::open(&bus)];
    for visit in 0..3 {
        let alerts = night.visit(visit);
        until_decided(&mut process, u64::from(visit) + 1);
        let expected = best(&alerts, 6.0);
        assert_eq!(expected.len(), 20);
        assert_eq!(chosen(&bus, "ada")[&night.id(visit)], expected);
    }
    let ranks: Vec<_> = results(&bus, "ada").iter().map(|s| header(s, "rank")).collect();
    assert_eq!((ranks.len(), &ranks[0][..], &ranks[19][..]), (60, "1", "20"));
}

/// Over the journal, two processes share the partitions.
#[test]
fn two_processes_give_the_same_twenty() {
    let (_folder, url) = journal();
    let first = bus(&url, "first");
    let mut night = Night::new(&first, generated(300));
    sql(&first, "ada", "bright", RANKED);
    sql(&first, "bob", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6");
    let mut both = [Process::open(&first), Process::open(&bus(&url, "second"))];
    until(&mut both, |both| both.iter().all(|one| one.worker.partitions().len() == 2));
    let alerts = night.visit(0);
    until_decided(&mut both, 1);
    assert_eq!(chosen(&first, "ada")[&night.id(0)], best(&alerts, 6.0));
    let of_bob = &chosen(&first, "bob")[&night.id(0)];
    let matching: BTreeSet<i64> = alerts
        .iter()
        .filter(|alert| alert.snr.is_some_and(|snr| snr > 6.0))
        .map(|alert| alert.id)
        .collect();
    let distinct: BTreeSet<i64> = of_bob.iter().copied().collect();
    assert!(of_bob.len() == 20 && distinct.len() == 20 && distinct.is_subset(&matching));
    let publishers = both.iter().filter(|one| one.publisher.is_publisher()).count();
    assert_eq!(publishers, 1);
    // Each alert was filtered by one of them.
    assert_eq!(both.iter().map(|one| one.count(|c| &c.alerts)).sum::<u64>(), 300);
}

#[test]
fn first_come_is_published_before_the_visit_ends() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(300));
    sql(&bus, "bob", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6");
    let mut process = [Process::open(&bus)];
    night.open(0);
    let alerts = night.publish(0, 0..2);
    until(&mut process, |_| chosen(&bus, "bob").get(&night.id(0)).is_some_and(|c| c.len() == 20));
    assert!(alerts.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > 6.0)).count() >= 20);
    night.publish(0, 2..DETECTORS);
    night.close(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "bob")[&night.id(0)].len(), 20);
    let of = summary(&bus, night.id(0)).filters["bob"]["any@1"];
    assert_eq!((of.alerts, of.matches - of.capped), (300, 20));
}

/// Killed at different points, processes publish each result once.
#[test]
fn restarts_neither_lose_nor_repeat() {
    for kill_after in [0, 1, 2, 3, 5, 8, 13, 21] {
        let (_folder, url) = journal();
        let first = bus(&url, "night");
        let mut night = Night::new(&first, generated(200));
        sql(&first, "ada", "bright", RANKED);
        sql(&first, "bob", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6");
        let mut expected = Vec::new();
        for visit in 0..2 {
            expected.push((night.id(visit), best(&night.visit(visit), 6.0)));
        }
        let mut one = Process::open(&bus(&url, "one"));
        (0..kill_after).for_each(|_| _ = one.step());
        let decided = one.count(|c| &c.visits_decided);
        drop(one);
        let mut other = [Process::open(&bus(&url, "other"))];
        until_decided(&mut other, 2 - decided);
        // Another start has nothing to add.
        drop(other);
        let mut third = Process::open(&bus(&url, "third"));
        (0..5).for_each(|_| _ = third.step());
        assert_eq!(third.count(|c| &c.results), 0);
        assert_eq!(chosen(&first, "ada").into_iter().collect::<Vec<_>>(), expected);
        for alerts in chosen(&first, "bob").values() {
            assert_eq!(alerts.iter().collect::<BTreeSet<_>>().len(), 20);
            assert_eq!(alerts.len(), 20, "after {kill_after} steps");
        }
    }
}

/// A publisher that dies before its checkpoint has published: the users' topics say what.
#[test]
fn results_of_an_unfinished_visit_are_not_repeated() {
    let (_folder, url) = journal();
    let first = bus(&url, "night");
    let mut night = Night::new(&first, generated(60));
    sql(&first, "bob", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6");
    night.open(0);
    let matching = |alerts: &[crate::support::Alert]| {
        let bright = alerts.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > 6.0));
        bright.map(|alert| alert.id).collect::<BTreeSet<i64>>()
    };
    let early = matching(&night.publish(0, 0..1));
    assert!(!early.is_empty() && early.len() < 20);
    let of_bob = || chosen(&first, "bob").remove(&night.id(0)).unwrap_or_default();
    let mut one = [Process::open(&bus(&url, "one"))];
    until(&mut one, |_| of_bob().len() == early.len());
    assert_eq!(one[0].count(|c| &c.visits_decided), 0);
    drop(one);
    let mut other = [Process::open(&bus(&url, "other"))];
    until(&mut other, |other| {
        other[0].publisher.is_publisher() && other[0].count(|c| &c.alerts) >= early.len() as u64
    });
    let visit = night.id(0);
    night.publish(0, 1..DETECTORS);
    night.close(0);
    until_decided(&mut other, 1);
    let found = chosen(&first, "bob").remove(&visit).unwrap();
    let distinct: BTreeSet<i64> = found.iter().copied().collect();
    assert!(found.len() == 20 && distinct.len() == 20 && distinct.is_superset(&early));
}

#[test]
fn alerts_behind_the_end_are_late() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(120));
    sql(&bus, "ada", "bright", RANKED);
    sql(&bus, "bob", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6");
    let mut process = [Process::open(&bus)];
    night.open(0);
    let alerts = night.publish(0, 0..4);
    night.close(0);
    let late = night.publish(0, 4..DETECTORS);
    until_decided(&mut process, 1);
    until(&mut process, |process| process[0].count(|c| &c.alerts) == 120);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], best(&alerts, 6.0));
    let matching = late.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > 6.0)).count();
    assert!(matching > 0);
    until(&mut process, |process| process[0].count(|c| &c.late) >= matching as u64);
}

#[test]
fn a_filter_that_finds_nothing_has_run() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "never", "SELECT * FROM alerts WHERE diaSource.snr > 1e30");
    let mut process = [Process::open(&bus)];
    night.visit(0);
    until_decided(&mut process, 1);
    let summary = summary(&bus, night.id(0));
    let of = summary.filters["ada"]["never@1"];
    assert_eq!((of.alerts, of.matches, of.capped), (60, 0, 0));
    assert!(summary.results.is_empty() && results(&bus, "ada").is_empty());
}

/// A change concerns visits that begin after it.
#[test]
fn a_visit_keeps_the_filters_with_which_it_began() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(120));
    let mut process = [Process::open(&bus)];
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    sql(&bus, "ada", "bright", RANKED);
    night.open(0);
    until(&mut process, |process| process[0].worker.has_filters(night.id(0)));
    let text = RANKED.replace("DESC", "ASC");
    let second = store.add("ada", "bright", Language::Sql, &text).unwrap();
    assert_eq!(second.version, 2);
    store.activate(&second.id(), Force::Yes).unwrap();
    let alerts = night.publish(0, 0..DETECTORS);
    night.close(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], best(&alerts, 6.0));
    assert!(results(&bus, "ada").iter().all(|s| header(s, "filters") == "bright@1"));
    night.visit(1);
    until_decided(&mut process, 2);
    let last = results(&bus, "ada").pop().unwrap();
    assert_eq!(header(&last, "filters"), "bright@2");
    store.deactivate("ada", "bright").unwrap();
    night.visit(2);
    until_decided(&mut process, 3);
    assert!(!chosen(&bus, "ada").contains_key(&night.id(2)));
}

/// Alerts of visits that nobody opens do not hold up those of others for ever.
#[test]
fn visits_without_records_are_given_up() {
    let clock = TestClock::new(Tai::from_nanos(1_000_000_000_000_000));
    let builder = Bus::builder().clock(std::sync::Arc::new(clock.clone()));
    let bus = builder.connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(12));
    sql(&bus, "ada", "all", "SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.snr");
    let mut process = [Process::open(&bus)];
    for visit in 0..70 {
        night.publish(visit, 0..1);
    }
    until(&mut process, |process| process[0].count(|c| &c.alerts) >= 64);
    (0..20).for_each(|_| _ = process[0].step());
    night.visit(100);
    clock.advance(Duration::from_secs(601));
    // With the given up ones, of whose alerts none is chosen.
    until_decided(&mut process, 71);
    assert_eq!(chosen(&bus, "ada").into_keys().collect::<Vec<_>>(), [night.id(100)]);
}

/// A producer that was killed publishes all again.
#[test]
fn alerts_that_come_again_count_once_in_statistics() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "bright", RANKED);
    night.open(0);
    let alerts = night.publish(0, 0..DETECTORS);
    night.publish(0, [1, 2]);
    night.close(0);
    until_decided(&mut [Process::open(&bus)], 1);
    let bright = |alert: &&Alert| alert.snr.is_some_and(|snr| snr > 6.0);
    let matches = alerts.iter().filter(bright).count() as u64;
    let filter = summaries(&bus, TOPIC).unwrap()[0].filters["ada"]["bright@1"];
    assert_eq!((filter.alerts, filter.matches), (60, matches));
}
