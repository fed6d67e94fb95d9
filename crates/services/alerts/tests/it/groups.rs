//! Groups: members share a stream, die, and prove together that they have all.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use helio_alerts::reader::{
    AlertReader, ReaderError, ReaderOptions, Stamps, Start, Stream, VisitEvent,
};
use helio_alerts::rubin::Version;
use helio_bus::Bus;

use crate::support::{
    Found, PARTITIONS, TOPIC, bus, made, open, options, packets_of, places, publish_visit,
    read_all, read_until,
};

const GROUP: &str = "filters";

fn stream(bus: &Bus) -> Stream<'_> {
    Stream { bus, name: TOPIC }
}

fn member(bus: &Bus) -> AlertReader {
    let (group, start) = (Some(GROUP.to_owned()), Start::Committed);
    let options = ReaderOptions { group, start, ..ReaderOptions::default() };
    AlertReader::open(bus, TOPIC, options).unwrap()
}

fn assigned(found: &Found) -> Option<usize> {
    found.events.iter().rev().find_map(|event| match event {
        VisitEvent::Assigned(partitions) => Some(partitions.len()),
        _ => None,
    })
}

/// Lets members read in turn until something holds.
fn read_together(members: &mut [(AlertReader, Found)], done: impl Fn(&[Found]) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        for (reader, found) in members.iter_mut() {
            found.add(reader.read(3, 1 << 20, Duration::from_millis(5)).unwrap());
        }
        let found: Vec<_> = members.iter_mut().map(|(_, found)| std::mem::take(found)).collect();
        let is_done = done(&found);
        members.iter_mut().zip(found).for_each(|((_, place), found)| *place = found);
        if is_done {
            return;
        }
        assert!(Instant::now() < until, "{members:?}");
    }
}

/// Publishes a visit and closes it.
fn publish_closed(url: &str, visit: u32) -> i64 {
    publish_visit(url, visit, Version::LATEST, &options());
    let bus = bus(url, "closer");
    let (id, _) = packets_of(visit, Version::LATEST);
    let mut reader = open(&bus, Start::Visit(id), Stamps::None);
    read_until(&mut reader, |found| found.decided.iter().any(|closing| closing.visit == id));
    id
}

/// Nothing was hashed, so that nothing can differ.
#[test]
fn a_member_that_does_not_verify_proves_nothing() {
    places("unverified", |url| {
        let visit = publish_closed(url, 0);
        let bus = bus(url, "a");
        let options = ReaderOptions {
            group: Some(GROUP.to_owned()),
            start: Start::Committed,
            verify: false,
            ..ReaderOptions::default()
        };
        let mut reader = AlertReader::open(&bus, TOPIC, options).unwrap();
        let is_decided = |found: &Found| found.decided.iter().any(|closing| closing.visit == visit);
        let found = read_until(&mut reader, is_decided);
        reader.commit().unwrap();
        let audit = stream(&bus).audit_group(GROUP, visit).unwrap();
        assert_eq!((found.ids().len(), audit.missing.len()), (22, PARTITIONS as usize));
        assert!(audit.members.is_empty() && audit.audit.found.count() == 0, "{audit:?}");
    });
}

#[test]
fn members_share_a_visit_and_their_digests_add_up() {
    places("share", |url| {
        publish_visit(url, 0, Version::LATEST, &options());
        let buses = ["a", "b"].map(|name| bus(url, name));
        let mut members = buses.each_ref().map(|bus| (member(bus), Found::default()));
        read_together(&mut members, |found| {
            let partitions: Vec<_> = found.iter().filter_map(assigned).collect();
            partitions.len() == 2 && partitions.iter().sum::<usize>() == PARTITIONS as usize
        });
        let visit = publish_closed(url, 1);
        let is_decided = |found: &Found| found.decided.iter().any(|closing| closing.visit == visit);
        read_together(&mut members, |found| found.iter().all(is_decided));
        let audit = stream(&buses[0]).audit_group(GROUP, visit).unwrap();
        assert!(!audit.is_equal() && !audit.missing.is_empty(), "nothing is committed");
        for (reader, _) in &mut members {
            reader.commit().unwrap();
        }
        let audit = stream(&buses[0]).audit_group(GROUP, visit).unwrap();
        assert!(audit.is_equal(), "{audit:?}");
        let names: BTreeSet<_> = audit.members.values().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(["a", "b"]));
        let of_visit = |found: &Found| {
            let alerts = found.alerts.iter().filter(|alert| alert.visit == visit);
            alerts.map(|alert| alert.id).collect::<BTreeSet<_>>()
        };
        let [a, b] = members.each_ref().map(|(_, found)| of_visit(found));
        assert!(a.is_disjoint(&b));
        assert_eq!(a.union(&b).copied().collect::<BTreeSet<_>>(), {
            made(1, Version::LATEST).into_keys().collect()
        });
    });
}

/// The first has committed a part, and returned more.
#[test]
fn another_member_takes_over_where_one_that_died_has_committed() {
    places("killed", |url| {
        let visit = publish_closed(url, 0);
        let (first, second) = (bus(url, "first"), bus(url, "second"));
        let mut reader = member(&first);
        let committed = read_until(&mut reader, |found| found.alerts.len() >= 8);
        reader.commit().unwrap();
        let lost = read_until(&mut reader, |found| found.alerts.len() >= 7);
        drop(reader);
        // The visit comes again: what the first has committed is not returned by its repetition.
        publish_visit(url, 0, Version::LATEST, &options());
        let mut reader = member(&second);
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        let (before, after) = (committed.ids(), found.ids());
        assert!(before.is_disjoint(&after) && lost.ids().is_subset(&after));
        assert_eq!(before.len() + after.len(), 22);
        assert_eq!(found.alerts.len(), after.len());
        reader.commit().unwrap();
        let audit = stream(&second).audit_group(GROUP, visit).unwrap();
        assert!(audit.is_equal(), "{audit:?}");
        read_all(&mut reader);
        reader.commit().unwrap();
        drop(reader);
        // A restart reports nothing of visits that were committed.
        let found = read_until(&mut member(&first), |found| assigned(found) == Some(3));
        assert!(found.decided.is_empty() && found.alerts.is_empty(), "{found:?}");
    });
}

#[test]
fn a_group_is_moved_while_it_has_no_members() {
    places("moved", |url| {
        let visits = [0, 1].map(|visit| publish_closed(url, visit));
        let bus = bus(url, "member");
        let mut reader = member(&bus);
        read_until(&mut reader, |found| found.decided.len() == 2);
        reader.commit().unwrap();
        let start = Start::Visit(visits[1]);
        let in_use = stream(&bus).rewind_group(GROUP, &start).unwrap_err();
        assert!(matches!(&in_use, ReaderError::GroupInUse { .. }), "{in_use}");
        drop(reader);
        stream(&bus).rewind_group(GROUP, &start).unwrap();
        let found = read_until(&mut member(&bus), |found| !found.decided.is_empty());
        assert_eq!(found.ids(), made(1, Version::LATEST).into_keys().collect());
    });
}
