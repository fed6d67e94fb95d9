//! Epochs, their headers, and the relation of two lines.
//!
//! A line is an epoch and a length in it, with all parents. A [`Chain`] holds the headers of a
//! line; two zones compare chains, never lengths or numbers alone (J4).

use std::sync::Arc;

use super::config::ZoneName;

/// Headers that a chain keeps; older ones leave it. An epoch that left is taken for a line of its
/// own, which a heal merges and reports: nothing is lost by the limit.
pub const MAX_CHAIN_EPOCHS: usize = 4_096;

/// Revisions between two jumps (section 6): a jump goes to a multiple of this.
pub const REVISION_STRIDE: u64 = 1 << 36;

/// Who must hold a record of an epoch before it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Members {
    /// The leader alone.
    Alone,
    /// Both zones.
    Pair,
}

/// Names an epoch: number, zone that leads it, members, and the parent's id by its digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochId {
    number: u64,
    zone: ZoneName,
    members: Members,
    parent: u64,
    digest: u64,
}

impl EpochId {
    /// The id of a child of the epoch with digest `parent` (0: the first epoch of a cluster).
    #[must_use]
    pub fn new(number: u64, zone: ZoneName, members: Members, parent: u64) -> EpochId {
        let bits = number << 2 | u64::from(zone == ZoneName::B) << 1;
        let bits = bits | u64::from(members == Members::Pair);
        let digest = mix(mix(bits) ^ parent) | 1;
        EpochId { number, zone, members, parent, digest }
    }

    /// Rises along a line.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The zone that leads it.
    #[must_use]
    pub fn zone(&self) -> ZoneName {
        self.zone
    }

    /// Who holds its records.
    #[must_use]
    pub fn members(&self) -> Members {
        self.members
    }

    /// The digest of the parent's id; 0 if it has none.
    #[must_use]
    pub fn parent(&self) -> u64 {
        self.parent
    }

    /// 64 bits that stand for the whole id; never 0.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The evidence on which an epoch began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Basis {
    /// `helio state init` (N0).
    First,
    /// A zone that was alone restarted (N3).
    Restart,
    /// The peer joined (N4), or the pair was renewed for a blank witness (V6).
    Joined,
    /// The peer resigned (V1).
    Resigned,
    /// The peer's guard reported its end (V2).
    Ended,
    /// Silence, in the preferred zone (V3).
    Silence,
    /// The peer is confirmed off (V4).
    Fenced,
    /// The witness swapped (V5).
    Witness,
    /// Two lines became one (section 7).
    Merged,
    /// Silence under `available`: the peer may have continued, too (V3).
    Assumed,
    /// A dirty zone continued by the peer's RESIGN (D1).
    Blackout,
    /// `start-alone` (section 6).
    Operator,
}

impl Basis {
    /// Whether what a zone holds above such an epoch's start was never acknowledged (J4).
    #[must_use]
    pub fn is_safe(self) -> bool {
        !matches!(self, Basis::Assumed | Basis::Blackout | Basis::Operator)
    }
}

/// The second line that a merge took in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergedLine {
    /// The last epoch of that line.
    pub epoch: EpochId,
    /// Its length; what that zone has above it is not merged.
    pub length: u64,
}

/// An epoch, as it stands on disk before the first effect that depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name.
    pub id: EpochId,
    /// How much of the parent's line counts.
    pub start: u64,
    /// The evidence.
    pub basis: Basis,
    /// A multiple of [`REVISION_STRIDE`]: revisions of this line are above it since the last jump.
    pub revision_base: u64,
    /// The first records of the epoch that are copies: of the parent's tail (a jump), or results
    /// of a merge.
    pub copied: u64,
    /// The second parent of a merge.
    pub merged: Option<MergedLine>,
}

/// How a line contains an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contained {
    /// Up to this length the epoch is on the line.
    pub length: u64,
    /// How the line left it.
    pub link: Link,
}

/// How a line leaves one of its epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// By a child with a safe basis: the excess was never acknowledged.
    Safe,
    /// By a child with an unsafe basis: the excess may be another line's.
    Unsafe,
    /// By a merge.
    Merge,
}

/// Relation of my line to the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The same epoch.
    Same,
    /// The peer's line contains mine.
    PeerNewer,
    /// My line contains the peer's.
    MineNewer,
    /// Neither contains the other.
    TwoLines,
}

/// The headers of a line, the last epoch at the end. Never empty; cheap to clone.
#[derive(Clone, PartialEq, Debug)]
pub struct Chain(Arc<[Header]>);

impl Chain {
    /// The chain of a cluster's first epoch, or one read from a disk: `None` if empty.
    #[must_use]
    pub fn new(headers: &[Header]) -> Option<Chain> {
        (!headers.is_empty()).then(|| Chain(headers.into()))
    }

    /// All headers, parents before children.
    #[must_use]
    pub fn headers(&self) -> &[Header] {
        &self.0
    }

    /// The last epoch.
    #[must_use]
    pub fn tip(&self) -> &Header {
        &self.0[self.0.len() - 1]
    }

    /// This chain with a child of its tip, and the headers of the line that the child merged.
    #[must_use]
    pub fn extended(&self, header: Header, merged: Option<&Chain>) -> Chain {
        debug_assert!(header.id.parent == self.tip().id.digest, "a child names its parent");
        let others = merged.map_or(&[][..], |chain| &chain.0);
        let mut headers: Vec<Header> =
            others.iter().filter(|h| self.index(h.id.digest).is_none()).copied().collect();
        headers.extend(self.0.iter());
        headers.push(header);
        let surplus = headers.len().saturating_sub(MAX_CHAIN_EPOCHS);
        Chain(headers[surplus..].into())
    }

    fn index(&self, digest: u64) -> Option<usize> {
        self.0.iter().rposition(|h| h.id.digest == digest)
    }

    /// The header of `epoch`, if this chain has it.
    #[must_use]
    pub fn header(&self, digest: u64) -> Option<&Header> {
        self.index(digest).map(|at| &self.0[at])
    }

    /// How this line contains `epoch`; `None` for its tip and for epochs of other lines.
    #[must_use]
    pub fn contains(&self, epoch: EpochId) -> Option<Contained> {
        let mut visited = Vec::new();
        if self.0.iter().any(|h| h.merged.is_some()) {
            visited = vec![false; self.0.len()];
        }
        self.contains_below(self.0.len() - 1, epoch.digest, &mut visited)
    }

    /// Depth first, parents before merged lines; `visited` is empty if nothing was merged.
    fn contains_below(
        &self,
        mut at: usize,
        digest: u64,
        visited: &mut [bool],
    ) -> Option<Contained> {
        let mut merges = Vec::new();
        loop {
            let header = &self.0[at];
            if let Some(found) = leaves(header, digest) {
                return Some(found);
            }
            if let Some(line) = &header.merged {
                merges.push(line.epoch.digest);
            }
            let Some(parent) = self.index(header.id.parent) else { break };
            if let Some(seen) = visited.get_mut(parent)
                && std::mem::replace(seen, true)
            {
                break;
            }
            at = parent;
        }
        // The oldest merge first: its line is the deepest.
        merges.into_iter().rev().find_map(|line| {
            let at = self.index(line)?;
            if std::mem::replace(&mut visited[at], true) {
                return None;
            }
            self.contains_below(at, digest, visited)
        })
    }

    /// The length up to which this line and `other` are the same one.
    #[must_use]
    pub fn fork(&self, length: u64, other: &Chain, other_length: u64) -> u64 {
        let mine = self.line(length);
        let theirs = other.line(other_length);
        mine.iter()
            .find_map(|(digest, end)| {
                let (_, other_end) = theirs.iter().find(|(d, _)| d == digest)?;
                Some(*end.min(other_end))
            })
            .unwrap_or(0)
    }

    /// The epochs of the line from its tip to its first, each with the length where it ends.
    fn line(&self, length: u64) -> Vec<(u64, u64)> {
        let mut epochs = Vec::new();
        let (mut at, mut end) = (Some(self.0.len() - 1), length);
        while let Some(index) = at {
            let header = &self.0[index];
            epochs.push((header.id.digest, end));
            end = end.min(header.start);
            at = self.index(header.id.parent);
        }
        epochs
    }
}

fn leaves(child: &Header, digest: u64) -> Option<Contained> {
    if child.id.parent == digest {
        let tail = if child.merged.is_none() { child.copied } else { 0 };
        let link = if child.basis.is_safe() { Link::Safe } else { Link::Unsafe };
        return Some(Contained { length: child.start + tail, link });
    }
    let line = child.merged.filter(|line| line.epoch.digest == digest)?;
    Some(Contained { length: line.length, link: Link::Merge })
}
