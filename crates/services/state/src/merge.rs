//! Heal of two lines (section 7 of the protocol): whole keys, three ways, against their fork.
//!
//! Values are opaque bytes, maybe encrypted. The winner's line stays; [`merge`] gives the changes
//! of the loser that it takes, and a [`Report`] of everything that it does not. The caller writes
//! header, results and report as one atomic batch, with revisions above both lines.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::zone::{Basis, Chain, EpochId, Header, Hello, Relation};

/// How the keys below a prefix are merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Three ways, with conflicts.
    Plain,
    /// The winner's wholesale: somebody observes the world and writes it again. No conflict.
    Observed,
    /// The winner's: somebody repairs it. Reported with both values.
    Allocator,
}

/// A table of prefixes. The longest prefix of a key decides; keys with a lease are observed.
#[derive(Clone, Default, Debug)]
pub struct Classes {
    prefixes: Vec<(Bytes, Class)>,
}

/// Kubernetes' resources that controllers and kubelets write again, below its storage prefix.
const OBSERVED: [&str; 8] = [
    "controllerrevisions/",
    "endpointslices/",
    "events/",
    "leases/",
    "masterleases/",
    "minions/",
    "pods/",
    "replicasets/",
];

/// Kubernetes' allocations that its API server repairs.
const ALLOCATORS: [&str; 3] = ["ipaddresses/", "ranges/servicenodeports", "ranges/serviceips"];

impl Classes {
    /// The classes of a table; an empty one makes every key without a lease plain.
    #[must_use]
    pub fn new(prefixes: Vec<(Bytes, Class)>) -> Classes {
        Classes { prefixes }
    }

    /// Kubernetes' classes; `prefix` is the API server's `--etcd-prefix` with a slash at its end,
    /// usually `/registry/`.
    #[must_use]
    pub fn kubernetes(prefix: &str) -> Classes {
        let row = |name: &str, class| (Bytes::from(format!("{prefix}{name}")), class);
        let observed = OBSERVED.iter().map(|name| row(name, Class::Observed));
        let allocators = ALLOCATORS.iter().map(|name| row(name, Class::Allocator));
        Classes::new(observed.chain(allocators).collect())
    }

    /// The class of a key without a lease.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Class {
        let fits = self.prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        fits.max_by_key(|(prefix, _)| prefix.len()).map_or(Class::Plain, |(_, class)| *class)
    }
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// Its new value; `None`: deleted.
    pub value: Option<Bytes>,
    /// The lease that it is attached to; 0: none.
    pub lease: i64,
}

/// The changes of one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The revision on its line.
    pub revision: i64,
    /// The changes, each key once.
    pub changes: Vec<Change>,
}

/// One of two lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The line that continues.
    Winner,
    /// The line that is merged.
    Loser,
}

/// A key whose change is not in the merged line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The key.
    pub key: Bytes,
    /// Its class.
    pub class: Class,
    /// The side whose value stays.
    pub stays: Side,
    /// The winner's value; `None`: deleted or never there.
    pub winner: Option<Bytes>,
    /// The loser's value; `None`: deleted or never there.
    pub loser: Option<Bytes>,
    /// The revision of the change that does not stay, on its own line.
    pub revision: i64,
}

/// A transaction of which a part is in the merged line and a part is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitTransaction {
    /// Whose it was.
    pub side: Side,
    /// Its revision there.
    pub revision: i64,
    /// Keys that are as it wrote them.
    pub kept: Vec<Bytes>,
    /// Keys that are not, and that the same line did not change later.
    pub lost: Vec<Bytes>,
}

/// A key of class `observed` that the loser changed: the winner's stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedKey {
    /// The key.
    pub key: Bytes,
    /// The revision of its last change on the losing line.
    pub revision: i64,
}

/// What a merge did not take. Kept until an operator acknowledges it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Keys changed on both sides, and allocations, with both values.
    pub conflicts: Vec<Conflict>,
    /// Keys of class `observed`.
    pub observed: Vec<ObservedKey>,
    /// Transactions that the merge split.
    pub split: Vec<SplitTransaction>,
    /// Keys that both sides changed to the same bytes.
    pub equal: u64,
}

/// The result of a merge.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Merged {
    /// The changes that the winner's line takes, by key.
    pub results: Vec<Change>,
    /// The rest.
    pub report: Report,
}

/// The last change of a key on a line.
#[derive(Clone, Copy)]
struct Last<'a> {
    change: &'a Change,
    revision: i64,
}

/// What became of the sides' changes of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Only one side counts, or both are the same.
    Both,
    Stays(Side),
}

/// Merges the transactions of both lines above their fork; `fork` gives a key's value there.
/// The cost is that of sorting both lines' keys.
#[must_use]
pub fn merge(
    winner: &[Transaction],
    loser: &[Transaction],
    fork: impl Fn(&[u8]) -> Option<Bytes>,
    classes: &Classes,
) -> Merged {
    let (mine, theirs) = (last_changes(winner), last_changes(loser));
    let mut merged = Merged::default();
    let mut fates = BTreeMap::new();
    for (key, loser) in &theirs {
        let leased =
            loser.change.lease != 0 || mine.get(key).is_some_and(|winner| winner.change.lease != 0);
        let class = if leased { Class::Observed } else { classes.of(key) };
        let fate = merge_key(class, mine.get(key), loser, fork(key), &mut merged);
        fates.insert(*key, fate);
    }
    for (side, line, last) in [(Side::Winner, winner, &mine), (Side::Loser, loser, &theirs)] {
        merged.report.split.extend(split(side, line, last, &fates));
    }
    merged
}

fn last_changes(line: &[Transaction]) -> BTreeMap<&Bytes, Last<'_>> {
    let mut last = BTreeMap::new();
    for transaction in line {
        for change in &transaction.changes {
            last.insert(&change.key, Last { change, revision: transaction.revision });
        }
    }
    last
}

fn merge_key(
    class: Class,
    winner: Option<&Last<'_>>,
    loser: &Last<'_>,
    fork: Option<Bytes>,
    merged: &mut Merged,
) -> Fate {
    let mine = winner.map_or(&fork, |last| &last.change.value);
    let theirs = &loser.change.value;
    if mine == theirs {
        merged.report.equal += u64::from(winner.is_some());
        return Fate::Both;
    }
    let key = loser.change.key.clone();
    let conflict = |stays: Side, revision: i64| Conflict {
        key: key.clone(),
        class,
        stays,
        winner: mine.clone(),
        loser: theirs.clone(),
        revision,
    };
    let report = &mut merged.report;
    match class {
        Class::Observed => {
            report.observed.push(ObservedKey { key, revision: loser.revision });
            return Fate::Stays(Side::Winner);
        }
        Class::Allocator => {
            report.conflicts.push(conflict(Side::Winner, loser.revision));
            return Fate::Stays(Side::Winner);
        }
        Class::Plain => {}
    }
    // What ends as it was at the fork is no change: the other side's stands.
    if theirs == &fork {
        return Fate::Stays(Side::Winner);
    }
    let Some(winner) = winner.filter(|_| mine != &fork) else {
        merged.results.push(loser.change.clone());
        return Fate::Both;
    };
    if mine.is_none() {
        // Deletion against change: the change stays.
        report.conflicts.push(conflict(Side::Loser, winner.revision));
        merged.results.push(loser.change.clone());
        return Fate::Stays(Side::Loser);
    }
    report.conflicts.push(conflict(Side::Winner, loser.revision));
    Fate::Stays(Side::Winner)
}

/// The transactions of a line of which some last changes stand and some do not.
fn split(
    side: Side,
    line: &[Transaction],
    last: &BTreeMap<&Bytes, Last<'_>>,
    fates: &BTreeMap<&Bytes, Fate>,
) -> Vec<SplitTransaction> {
    let stands = |key: &Bytes| match fates.get(key) {
        Some(Fate::Stays(stays)) => *stays == side,
        Some(Fate::Both) | None => true,
    };
    let split = line.iter().map(|transaction| {
        let is_last =
            |key: &&Bytes| last.get(*key).is_some_and(|last| last.revision == transaction.revision);
        let keys = transaction.changes.iter().map(|change| &change.key).filter(is_last);
        let (kept, lost) = keys.cloned().partition(&stands);
        SplitTransaction { side, revision: transaction.revision, kept, lost }
    });
    split.filter(|split| !split.kept.is_empty() && !split.lost.is_empty()).collect()
}

/// A line that the peer may have written while this zone assumed that it was down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownLine {
    /// The last epoch that both had.
    pub after: u64,
    /// The length of it that this zone's line counts.
    pub length: u64,
    /// The epoch that assumed.
    pub opened_by: EpochId,
}

/// The unknown lines that a line has opened (section 7): one for each `assumed` and each
/// `operator` epoch, until a merge has taken in a line that left the same epoch.
#[must_use]
pub fn unknown_lines(chain: &Chain) -> Vec<UnknownLine> {
    let headers = chain.headers();
    let opens = |basis| matches!(basis, Basis::Assumed | Basis::Operator);
    // A line has one child of each of its epochs; a second one came with a merged line.
    let merged = |after: u64, opened_by: u64| {
        let second = |h: &Header| h.id.parent() == after && h.id.digest() != opened_by;
        let ended = |h: &Header| h.merged.is_some_and(|line| line.epoch.digest() == after);
        headers.iter().any(|header| second(header) || ended(header))
    };
    let opened = headers.iter().filter(|header| opens(header.basis));
    opened
        .filter(|header| !merged(header.id.parent(), header.id.digest()))
        .map(|header| UnknownLine {
            after: header.id.parent(),
            length: header.start,
            opened_by: header.id,
        })
        .collect()
}

/// Whether a HELLO closes all unknown lines: a peer with a disk that has no second line. A blank
/// peer may have lost one.
#[must_use]
pub fn closes_unknown_lines(hello: &Hello, relation: Relation) -> bool {
    hello.chain.is_some() && relation != Relation::TwoLines
}
