//! A record without a fault, and the same with one fault each.

use bytes::Bytes;
use helio_state_load::audit::{Audit, History, Record, audit};
use helio_state_load::history::{Event, Listing, Outcome, Read, Seen, Stored, Write};
use helio_state_load::objects::{Kind, PREFIX};

const POD: Kind = Kind::Pod;

fn key(number: usize) -> Bytes {
    POD.key(number)
}

fn write(key: Bytes, number: Option<u64>, expected: i64, outcome: Outcome) -> Write {
    let floor = match outcome {
        Outcome::Acknowledged(revision) => revision - 1,
        Outcome::Unknown => 1,
    };
    Write { key, number, expected, floor, outcome }
}

/// Two keys from revision 11 on: one is created, updated, deleted, created without an answer; the
/// other updated without an answer, and once in vain.
fn record() -> Record {
    use Outcome::{Acknowledged, Unknown};
    let event = |key, revision, number, previous| Event { key, revision, number, previous };
    let stored = |key, created, revision, version, number| Stored {
        key,
        created,
        revision,
        version,
        lease: 0,
        number,
    };
    let events = vec![
        event(key(1), 11, Some(101), 0),
        event(key(1), 12, Some(102), 11),
        event(key(2), 13, Some(201), 9),
        event(key(1), 14, None, 12),
        event(key(1), 15, Some(103), 0),
    ];
    let seen = |prefix: &'static str| Seen {
        prefix: Bytes::from_static(prefix.as_bytes()),
        events: events.clone(),
        ..Seen::default()
    };
    Record {
        begin: Listing { revision: 10, keys: vec![stored(key(2), 9, 9, 1, 200)] },
        writes: vec![
            write(key(1), Some(101), 0, Acknowledged(11)),
            write(key(1), Some(102), 11, Acknowledged(12)),
            write(key(2), Some(201), 9, Unknown),
            write(key(2), Some(202), 9, Unknown),
            write(key(1), None, 12, Acknowledged(14)),
            write(key(1), Some(103), 0, Unknown),
        ],
        reads: vec![
            Read { key: key(1), revision: 13, floor: 12, found: 12 },
            Read { key: key(1), revision: 14, floor: 14, found: 0 },
        ],
        watches: vec![seen(PREFIX), seen(POD.prefix())],
        end: Listing {
            revision: 15,
            keys: vec![stored(key(1), 15, 15, 1, 103), stored(key(2), 9, 13, 2, 201)],
        },
    }
}

/// What the audit finds once a record was damaged.
fn damaged(damage: impl FnOnce(&mut Record)) -> Audit {
    let mut record = record();
    damage(&mut record);
    let found = audit(&record);
    assert!(!found.is_clean(), "{found:?}");
    found
}

#[test]
fn a_record_without_a_fault_is_clean_and_unknown_outcomes_are_counted() {
    let found = audit(&record());
    assert!(found.is_clean(), "{found:?}");
    assert_eq!((found.acknowledged, found.events, found.reads), (3, 10, 2));
    assert_eq!((found.unknown_applied, found.unknown_absent), (2, 1));
}

#[test]
fn an_acknowledged_write_that_is_gone_is_lost() {
    // The store forgot revisions 14 and 15, and its watches never had them.
    let found = damaged(|record| {
        record.end.revision = 13;
        record.end.keys[0] =
            Stored { revision: 12, version: 2, number: 102, ..record.end.keys[0].clone() };
        record.watches.iter_mut().for_each(|seen| seen.events.truncate(3));
        record.reads.pop();
    });
    assert_eq!(found.lost.count, 1, "{found:?}");
    assert!(found.lost.words[0].contains("of 14 is Some((12, 102))"), "{found:?}");
    assert_eq!(found.regressions.count, 1, "the last revision is below an acknowledged one");
    // And one whose key is gone with it.
    let found = damaged(|record| _ = record.writes.pop());
    assert_eq!((found.lost.count, found.phantoms.count), (1, 1), "{found:?}");
}

#[test]
fn a_value_that_was_damaged_is_lost() {
    let found = damaged(|record| record.end.keys[1].number = u64::MAX);
    assert_eq!(found.lost.count, 1, "{found:?}");
}

#[test]
fn an_event_that_a_watch_lacks_is_a_hole() {
    // All watches lack an update: the next event's previous value tells it.
    let found = damaged(|record| {
        record.watches.iter_mut().for_each(|seen| _ = seen.events.remove(1));
    });
    assert!(found.holes.count >= 3, "{found:?}");
    assert!(found.holes.words[0].contains("behind 12, not 11"), "{found:?}");
    // One lacks the last event, which nothing follows.
    let found = damaged(|record| _ = record.watches[1].events.pop());
    assert_eq!(found.holes.count, 1, "{found:?}");
    assert!(found.holes.words[0].starts_with(POD.prefix()), "{found:?}");
    // One was cancelled.
    let found = damaged(|record| record.watches[1].ended = Some("compacted".to_owned()));
    assert_eq!(found.holes.count, 1, "{found:?}");
}

#[test]
fn an_event_twice_or_out_of_order_is_found() {
    let found = damaged(|record| {
        let events = &mut record.watches[1].events;
        let again = events[2].clone();
        events.push(again);
    });
    assert_eq!((found.duplicates.count, found.reordered.count), (1, 0), "{found:?}");
    let found = damaged(|record| record.watches[0].events.swap(1, 2));
    assert_eq!((found.duplicates.count, found.reordered.count), (0, 1), "{found:?}");
}

#[test]
fn a_revision_that_goes_back_is_found() {
    let found = damaged(|record| record.writes[1].floor = 12);
    assert_eq!(found.regressions.count, 1, "a write at a revision that was answered: {found:?}");
    let found = damaged(|record| record.reads[0].floor = 14);
    assert_eq!(found.regressions.count, 1, "a read at an old revision: {found:?}");
    let found = damaged(|record| {
        let again = record.writes[0].clone();
        record.writes.push(again);
    });
    assert_eq!(found.regressions.count, 1, "a revision given twice: {found:?}");
}

#[test]
fn a_stale_read_and_a_compare_of_an_old_state_are_found() {
    let found = damaged(|record| record.reads[0].found = 11);
    assert_eq!(found.stale.count, 1, "{found:?}");
    let found = damaged(|record| record.writes[1].expected = 0);
    assert_eq!(found.stale.count, 1, "two clients created one key: {found:?}");
}

#[test]
fn a_key_that_nobody_wrote_is_a_phantom() {
    let found = damaged(|record| record.writes.truncate(5));
    assert_eq!(found.phantoms.count, 1, "{found:?}");
    let found = damaged(|record| {
        let stray = Stored { key: key(3), ..record.end.keys[0].clone() };
        record.end.keys.push(stray);
    });
    assert_eq!(found.phantoms.count, 1, "{found:?}");
}

#[test]
fn a_listing_is_compared_with_the_history_at_its_revision() {
    let record = record();
    let history = History::of(&record);
    assert_eq!(history.differences(15, &record.end.keys).count, 0);
    assert_eq!(history.differences(10, &record.begin.keys).count, 0);
    // At 14 the first key is deleted.
    assert_eq!(history.differences(14, &record.end.keys[1..]).count, 0);
    assert_eq!(history.differences(14, &record.end.keys).count, 1);
    assert_eq!(history.differences(13, &record.end.keys[1..]).count, 1, "one is missing");
}
