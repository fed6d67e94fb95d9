//! The shared model's invariants, asked of the product's code through its public face, and two
//! more: a follower shows nothing that was not committed, and a member's log is its leader's.

use helio_state::zone::{Chain, Durability, Members, Mutant, Role};

use super::world::{Bad, Node, Report, State, WRITES, World};

impl World {
    /// After each action: notes what clients can be shown now, then judges.
    pub fn judge(&self, s: &mut State) -> Bad {
        for z in 0..2 {
            if let Some(bad) = self.show(s, z) {
                return Some(bad);
            }
        }
        let must = musts(s);
        if s.split {
            return lost(s, &must);
        }
        let bad = if self.confirm { self.alone_complete(s, &must) } else { self.serves(s, &must) };
        bad.or_else(|| lost(s, &must))
    }

    fn committed(&self, node: &Node) -> Option<u64> {
        node.zone.as_ref().and_then(|zone| zone.committed(node.now()))
    }

    fn show(&self, s: &mut State, z: usize) -> Bad {
        let node = &s.node[z];
        let follows = node.role() == Some(Role::Follow);
        let known = node.zone.as_ref().filter(|_| follows).map(|zone| zone.known_commit());
        let (Some(shown), Some(chain)) = (self.committed(node).or(known), &node.chain) else {
            return None;
        };
        for (position, base) in original_records(chain, shown) {
            let w = node.log[position as usize] as usize;
            if w == 0 {
                continue;
            }
            let revision = (base >> 36 << 4) + position + 1;
            let old = s.shown[w - 1];
            if follows && old == 0 {
                return Some("I3: a follower shows a record that was not committed");
            }
            if s.shown.iter().enumerate().any(|(v, r)| v + 1 != w && *r == revision) {
                return Some("I5: one revision names two contents");
            }
            if old != 0 && old != revision {
                return Some("I5: one write shown under two revisions");
            }
            s.shown[w - 1] = revision;
        }
        None
    }

    fn serves(&self, s: &State, must: &[u8]) -> Bad {
        let reads = |node: &Node| node.zone.as_ref().is_some_and(|z| z.may_read(node.now()));
        if reads(&s.node[0]) && reads(&s.node[1]) {
            return Some("I1: two zones serve at once");
        }
        for node in s.node.iter().filter(|node| reads(node)) {
            let commit = self.committed(node).unwrap_or(0) as usize;
            if must.iter().any(|w| !node.log[..commit].contains(w)) {
                return Some("I2/I4: a zone serves without a write that was acknowledged or shown");
            }
        }
        None
    }

    /// `reads=confirm`: a zone that can acknowledge alone holds all that was shown.
    fn alone_complete(&self, s: &State, must: &[u8]) -> Bad {
        for node in &s.node {
            let alone = node.role() == Some(Role::Lead) && !node.is_pair();
            let shows = alone && self.committed(node).is_some();
            if shows && must.iter().any(|w| !node.log[..node.synced as usize].contains(w)) {
                return Some("I2: a zone leads alone without an acknowledged write");
            }
        }
        None
    }

    /// Writes of which no copy is left are forgiven, where the policy promises no more.
    pub fn forgive(&self, s: &mut State, z: usize, blank: bool) -> Bad {
        let other_lost = s.lost_power >> (1 - z) & 1 == 1;
        let alone = s.node[z].chain.is_none() || blank;
        s.lost_power |= 1 << z;
        for w in musts(s) {
            if kept(s, w) {
                continue;
            }
            if !(alone || other_lost) {
                return Some("I2: one loss of power destroyed an acknowledged write");
            }
            if self.both_disks && !blank && s.lost_power & 4 == 0 {
                return Some("I2: loss of power destroyed a write that both disks were to hold");
            }
            s.forgiven |= 1 << w;
        }
        if blank {
            s.lost_power |= 4;
        }
        None
    }

    /// The durability of a pair.
    pub fn durability(&self) -> Durability {
        if self.both_disks { Durability::Both } else { Durability::Memory }
    }
}

/// The positions below `shown` that are no copies, each with the revision base of its epoch.
fn original_records(chain: &Chain, shown: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut end = shown;
    let mut next = Some(chain.tip());
    std::iter::from_fn(move || {
        let header = next?;
        let first = (header.start + header.copied).min(end);
        let span = (first..end).map(|position| (position, header.revision_base));
        end = end.min(header.start);
        next = chain.header(header.id.parent());
        Some(span)
    })
    .flatten()
}

/// The writes that a client was shown and that were not forgiven.
pub fn musts(s: &State) -> Vec<u8> {
    let shown = |w: &u8| s.shown[*w as usize - 1] != 0 && s.forgiven >> w & 1 == 0;
    (1..=WRITES as u8).filter(shown).collect()
}

fn lost(s: &State, must: &[u8]) -> Bad {
    let lost = must.iter().any(|w| !kept(s, *w));
    lost.then_some("I7: an acknowledged write is on no line and in no report")
}

fn kept(s: &State, w: u8) -> bool {
    s.node.iter().any(|node| node.chain.as_ref().is_some_and(|c| accounted(s, node, c, w)))
}

/// Is write `w` on this line, in one of its reports, or superseded on a line that it merged?
fn accounted(s: &State, node: &Node, chain: &Chain, w: u8) -> bool {
    if node.log[..node.length as usize].contains(&w) {
        return true;
    }
    if s.reports.is_empty() {
        return false;
    }
    let merged = |report: &&Report| chain.header(report.merge).is_some();
    s.reports.iter().filter(merged).any(|report| {
        let log = &report.log[..report.length as usize];
        let at = log.iter().position(|x| *x == w);
        let key = |w: u8| s.keys >> w & 1;
        let superseded =
            at.is_some_and(|at| log[at + 1..].iter().any(|x| *x != 0 && key(*x) == key(w)));
        report.writes >> w & 1 == 1 || superseded
    })
}

/// Section 7 for the model's clients: results of the merge, and the writes of the report (bits).
pub fn merge(s: &State, z: usize, fork: u64, lost: &[u8]) -> (Vec<u8>, u8) {
    let node = &s.node[z];
    let mine = &node.log[fork as usize..node.length as usize];
    let theirs = lost.get(fork as usize..).unwrap_or(&[]);
    let last = |log: &[u8], key: u8| {
        log.iter().rev().find(|w| **w != 0 && s.keys >> **w & 1 == key).copied()
    };
    let (mut results, mut report) = (Vec::new(), 0);
    for key in 0..2 {
        match (last(theirs, key), last(mine, key)) {
            (Some(l), None) => results.push(l),
            (Some(l), Some(w)) if l != w => report |= 1 << l,
            _ => {}
        }
    }
    (results, report)
}

/// Whether the mutants that write an epoch's record twice are caught where they write.
pub fn written_twice(world: &World, node: &Node) -> bool {
    let members = node.id().map(|id| id.members());
    let resumed = world.is(Mutant::same_epoch_after_restart) || world.mutant.is_none();
    resumed
        && members.is_some_and(|m| m == Members::Alone || m == Members::Pair)
        && node.length < node.high
}
