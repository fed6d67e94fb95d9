//! Heal of two lines: section 7 of the protocol, key by key.

use std::collections::BTreeMap;

use bytes::Bytes;
use helio_state::merge::{
    Change, Class, Classes, Merged, Side, Transaction, closes_unknown_lines, merge, unknown_lines,
};
use helio_state::zone::{
    Basis, Chain, EpochId, Header, Hello, Members, MergedLine, Relation, Role, Standing, ZoneName,
};
use proptest::prelude::*;

type Values = BTreeMap<String, String>;

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

/// Transactions from lines such as `7 a=1 b`: a revision, puts and deletions.
fn line(text: &str) -> Vec<Transaction> {
    let transaction = |line: &str| {
        let mut words = line.split_whitespace();
        let revision = words.next().unwrap().parse().unwrap();
        let changes = words.map(|word| match word.split_once('=') {
            Some((key, value)) => change(key, Some(value)),
            None => change(word, None),
        });
        Transaction { revision, changes: changes.collect() }
    };
    text.split(';').map(str::trim).filter(|line| !line.is_empty()).map(transaction).collect()
}

fn change(key: &str, value: Option<&str>) -> Change {
    Change { key: bytes(key), value: value.map(bytes), lease: 0 }
}

fn healed(fork: &str, winner: &str, loser: &str) -> Merged {
    let values = values(fork);
    let at_fork = |key: &[u8]| values.get(std::str::from_utf8(key).unwrap()).map(|v| bytes(v));
    merge(&line(winner), &line(loser), at_fork, &Classes::kubernetes("/registry/"))
}

fn values(text: &str) -> Values {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn what_one_side_changed_is_taken() {
    let merged = healed("a=1 b=1 c=1", "5 c=2", "6 a=2; 7 b; 8 d=1");
    let taken = [change("a", Some("2")), change("b", None), change("d", Some("1"))];
    assert_eq!(merged.results, taken);
    assert_eq!(merged.report, Default::default());
}

#[test]
fn what_both_changed_is_a_conflict_and_the_winner_stays() {
    let merged = healed("a=1", "5 a=2", "6 a=3");
    assert_eq!(merged.results, []);
    let [conflict] = &merged.report.conflicts[..] else { panic!("{merged:?}") };
    assert_eq!((conflict.stays, conflict.revision), (Side::Winner, 6));
    assert_eq!(conflict.winner, Some(bytes("2")));
    assert_eq!(conflict.loser, Some(bytes("3")));
}

#[test]
fn equal_bytes_are_no_conflict() {
    let merged = healed("a=1", "5 a=2", "6 a=3; 7 a=2");
    assert!(merged.results.is_empty() && merged.report.conflicts.is_empty());
    assert_eq!(merged.report.equal, 1);
}

#[test]
fn a_change_stays_against_a_deletion() {
    let merged = healed("a=1 b=1", "5 a; 6 b=2", "7 a=3; 8 b");
    assert_eq!(merged.results, [change("a", Some("3"))]);
    let stays: Vec<Side> = merged.report.conflicts.iter().map(|c| c.stays).collect();
    assert_eq!(stays, [Side::Loser, Side::Winner]);
}

#[test]
fn what_ends_as_at_the_fork_is_no_change() {
    let merged = healed("a=1 b=1", "5 a=2; 6 b=2; 7 b=1", "8 a=3; 9 a=1; 10 b=4");
    assert_eq!(merged.results, [change("b", Some("4"))]);
    assert!(merged.report.conflicts.is_empty(), "{merged:?}");
}

#[test]
fn observed_keys_are_the_winners_and_listed() {
    let merged =
        healed("", "5 /registry/pods/x/p=1", "6 /registry/pods/x/p=2 /registry/pods/x/q=1");
    assert!(merged.results.is_empty() && merged.report.conflicts.is_empty());
    assert_eq!(merged.report.observed.len(), 2);
}

#[test]
fn leased_keys_are_observed() {
    let mut loser = line("6 a=2");
    loser[0].changes[0].lease = 9;
    let merged = merge(&[], &loser, |_| None, &Classes::default());
    assert!(merged.results.is_empty());
    assert_eq!(merged.report.observed.len(), 1);
}

#[test]
fn allocations_are_the_winners_and_reported() {
    let merged = healed("", "", "6 /registry/ranges/serviceips=x");
    let [conflict] = &merged.report.conflicts[..] else { panic!("{merged:?}") };
    assert!(merged.results.is_empty());
    assert_eq!((conflict.class, conflict.stays), (Class::Allocator, Side::Winner));
}

#[test]
fn a_split_transaction_is_listed() {
    let merged = healed("a=1 b=1", "5 a=2", "6 a=3 b=3; 7 c=1 d=1");
    let [split] = &merged.report.split[..] else { panic!("{merged:?}") };
    assert_eq!((split.side, split.revision), (Side::Loser, 6));
    assert_eq!((&split.kept[..], &split.lost[..]), (&[bytes("b")][..], &[bytes("a")][..]));
    // The winner's, too: its deletion does not stand.
    let merged = healed("a=1 b=1", "5 a b=2", "6 a=3");
    let [split] = &merged.report.split[..] else { panic!("{merged:?}") };
    assert_eq!((split.side, split.revision), (Side::Winner, 5));
}

fn header(parent: Option<&Header>, number: u64, zone: ZoneName, basis: Basis) -> Header {
    let parent = parent.map_or(0, |parent| parent.id.digest());
    let id = EpochId::new(number, zone, Members::Alone, parent);
    Header { id, start: 3, basis, revision_base: 0, copied: 0, merged: None }
}

#[test]
fn an_assumed_epoch_opens_an_unknown_line_until_the_heal() {
    let first = header(None, 1, ZoneName::A, Basis::First);
    let assumed = header(Some(&first), 2, ZoneName::A, Basis::Assumed);
    let other = header(Some(&first), 2, ZoneName::B, Basis::Assumed);
    let mine = Chain::new(&[first, assumed]).unwrap();
    let theirs = Chain::new(&[first, other]).unwrap();
    let [unknown] = unknown_lines(&mine)[..] else { panic!("one line is unknown") };
    assert_eq!((unknown.after, unknown.length), (first.id.digest(), 3));
    let mut merged = header(Some(&assumed), 3, ZoneName::A, Basis::Merged);
    merged.merged = Some(MergedLine { epoch: other.id, length: 5 });
    let healed = mine.extended(merged, Some(&theirs));
    assert_eq!(unknown_lines(&healed), []);
}

#[test]
fn a_blank_peer_closes_no_unknown_line() {
    let chain = Chain::new(&[header(None, 1, ZoneName::A, Basis::First)]);
    let hello = |chain| Hello {
        cluster: 1,
        role: Role::Join,
        standing: Standing::Member,
        dirty: false,
        chain,
        length: 0,
        synced: 0,
    };
    assert!(!closes_unknown_lines(&hello(None), Relation::MineNewer));
    assert!(closes_unknown_lines(&hello(chain.clone()), Relation::MineNewer));
    assert!(!closes_unknown_lines(&hello(chain), Relation::TwoLines));
}

fn random_line(first: i64) -> impl Strategy<Value = Vec<Transaction>> {
    let change = (0..4_u8, proptest::option::weighted(0.7, 0..3_u8));
    let transaction = proptest::collection::btree_map(0..4_u8, change, 1..3);
    proptest::collection::vec(transaction, 0..6).prop_map(move |line| {
        let transaction = |(at, changes): (usize, BTreeMap<u8, (u8, Option<u8>)>)| Transaction {
            revision: first + at as i64,
            changes: changes
                .iter()
                .map(|(key, (_, value))| Change {
                    key: bytes(&key.to_string()),
                    value: value.map(|value| bytes(&value.to_string())),
                    lease: 0,
                })
                .collect(),
        };
        line.into_iter().enumerate().map(transaction).collect()
    })
}

fn last(line: &[Transaction], key: &Bytes) -> Option<Option<Bytes>> {
    let changes = line.iter().rev().flat_map(|transaction| &transaction.changes);
    changes.into_iter().find(|change| change.key == *key).map(|change| change.value.clone())
}

proptest! {
    /// I7, key by key: after the merge each side's last change of a key stands, or is reported,
    /// or ends as the key was at the fork.
    #[test]
    fn each_last_change_stands_or_is_reported(
        winner in random_line(10), loser in random_line(20), fork in 0..16_u8,
    ) {
        let at_fork = |key: &Bytes| {
            let key: u8 = std::str::from_utf8(key).unwrap().parse().unwrap();
            (fork >> key & 1 == 1).then(|| bytes("0"))
        };
        let merged = merge(&winner, &loser, |key| at_fork(&Bytes::copy_from_slice(key)),
            &Classes::default());
        for key in (0..4).map(|key: u8| bytes(&key.to_string())) {
            let (mine, theirs) = (last(&winner, &key), last(&loser, &key));
            let result = merged.results.iter().find(|change| change.key == key);
            let stands = result.map(|change| change.value.clone())
                .or(mine.clone()).unwrap_or_else(|| at_fork(&key));
            let conflict = merged.report.conflicts.iter().any(|c| c.key == key);
            for side in [mine, theirs].into_iter().flatten() {
                let unchanged = side == at_fork(&key);
                prop_assert!(side == stands || conflict || unchanged, "{key:?}: {merged:?}");
            }
        }
    }
}
