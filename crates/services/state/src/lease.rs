//! Leases: times to live, and the keys that end with them. Time is passed in, in milliseconds of
//! one clock that never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::{Error, LeaseStatus};

/// Greatest time to live, s: etcd's.
pub const MAX_TTL: i64 = 9_000_000_000;
/// Least time to live granted, s: etcd's with its default election timeout.
pub const MIN_TTL: i64 = 2;

/// A lease.
#[derive(Clone, Debug)]
struct Lease {
    ttl: i64,
    deadline_ms: u64,
    /// Remaining seconds as checkpointed; 0: none since the last renewal.
    checkpoint: i64,
    keys: BTreeSet<Arc<[u8]>>,
}

/// A lease as snapshots keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseImage {
    /// The id.
    pub id: i64,
    /// Time to live granted, s.
    pub ttl: i64,
    /// Remaining time as checkpointed, s; 0: none since the last renewal.
    pub checkpoint: i64,
}

/// All leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    leases: BTreeMap<i64, Lease>,
    by_deadline: BTreeSet<(u64, i64)>,
    /// How to undo the changes since [`forget_changes`](Self::forget_changes).
    undo: Vec<Undo>,
}

#[derive(Clone, Debug)]
enum Undo {
    /// It did not exist.
    Remove(i64),
    /// It was revoked.
    Insert(i64, Lease),
    /// Its times changed.
    Times {
        id: i64,
        deadline_ms: u64,
        checkpoint: i64,
    },
    Attach(i64, Arc<[u8]>),
    Detach(i64, Arc<[u8]>),
}

impl Leases {
    /// The time to live that a grant gets.
    pub(crate) fn check_grant(&self, id: i64, ttl: i64) -> Result<i64, Error> {
        if ttl > MAX_TTL {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(Error::LeaseExists);
        }
        Ok(ttl.max(MIN_TTL))
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// Adds a lease; one that exists keeps its keys.
    pub(crate) fn insert(&mut self, image: LeaseImage, now_ms: u64) {
        let old = self.remove(image.id);
        self.undo.push(old.as_ref().map_or(Undo::Remove(image.id), |old| Undo::Times {
            id: image.id,
            deadline_ms: old.deadline_ms,
            checkpoint: old.checkpoint,
        }));
        let keys = old.map(|l| l.keys).unwrap_or_default();
        let left = if image.checkpoint > 0 { image.checkpoint } else { image.ttl };
        let deadline_ms = now_ms.saturating_add(left.cast_unsigned().saturating_mul(1000));
        let lease = Lease { ttl: image.ttl, deadline_ms, checkpoint: image.checkpoint, keys };
        self.put(image.id, lease);
    }

    fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.by_deadline.remove(&(lease.deadline_ms, id));
        Some(lease)
    }

    pub(crate) fn revoke(&mut self, id: i64) {
        let old = self.remove(id);
        self.undo.extend(old.map(|lease| Undo::Insert(id, lease)));
    }

    /// Changes so far stay.
    pub(crate) fn forget_changes(&mut self) {
        self.undo.clear();
    }

    /// Undoes all changes since [`forget_changes`](Self::forget_changes).
    pub(crate) fn undo_changes(&mut self) {
        for change in std::mem::take(&mut self.undo).into_iter().rev() {
            match change {
                Undo::Remove(id) => drop(self.remove(id)),
                Undo::Insert(id, lease) => self.put(id, lease),
                Undo::Times { id, deadline_ms, checkpoint } => {
                    if let Some(lease) = self.remove(id) {
                        self.put(id, Lease { deadline_ms, checkpoint, ..lease });
                    }
                }
                Undo::Attach(id, key) => {
                    self.leases.get_mut(&id).map(|lease| lease.keys.insert(key));
                }
                Undo::Detach(id, key) => {
                    self.leases.get_mut(&id).map(|lease| lease.keys.remove(&key));
                }
            }
        }
    }

    fn put(&mut self, id: i64, lease: Lease) {
        self.by_deadline.insert((lease.deadline_ms, id));
        self.leases.insert(id, lease);
    }

    pub(crate) fn keys(&self, id: i64) -> Option<Vec<Arc<[u8]>>> {
        Some(self.leases.get(&id)?.keys.iter().cloned().collect())
    }

    pub(crate) fn attach(&mut self, id: i64, key: Arc<[u8]>) {
        if let Some(lease) = self.leases.get_mut(&id)
            && lease.keys.insert(key.clone())
        {
            self.undo.push(Undo::Detach(id, key));
        }
    }

    pub(crate) fn detach(&mut self, id: i64, key: &[u8]) {
        if let Some(key) = self.leases.get_mut(&id).and_then(|lease| lease.keys.take(key)) {
            self.undo.push(Undo::Attach(id, key));
        }
    }

    /// Renews a lease; gives its time to live, and whether the log must forget a checkpoint.
    pub(crate) fn keep_alive(&mut self, id: i64, now_ms: u64) -> Option<(i64, bool)> {
        let lease = self.leases.get(&id).filter(|l| l.deadline_ms > now_ms)?;
        let (ttl, checkpointed) = (lease.ttl, lease.checkpoint > 0);
        self.insert(LeaseImage { id, ttl, checkpoint: 0 }, now_ms);
        Some((ttl, checkpointed))
    }

    /// Sets remaining times, as a checkpoint in the log says.
    pub(crate) fn restore(&mut self, id: i64, checkpoint: i64, now_ms: u64) {
        if let Some(lease) = self.leases.get(&id) {
            let ttl = lease.ttl;
            self.insert(LeaseImage { id, ttl, checkpoint }, now_ms);
        }
    }

    /// Marks what a checkpoint wrote, without a change of deadlines.
    pub(crate) fn mark(&mut self, id: i64, checkpoint: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            let (deadline_ms, old) = (lease.deadline_ms, lease.checkpoint);
            self.undo.push(Undo::Times { id, deadline_ms, checkpoint: old });
            lease.checkpoint = checkpoint;
        }
    }

    /// Leases whose remaining time a checkpoint should keep: (id, seconds left).
    pub(crate) fn to_checkpoint(&self, now_ms: u64, least_ttl: i64) -> Vec<(i64, i64)> {
        let left = |l: &Lease| (l.deadline_ms.saturating_sub(now_ms) / 1000) as i64;
        let old = self.leases.iter().filter(|(_, l)| l.ttl >= least_ttl && left(l) > 0);
        let changed = old.filter(|(_, l)| left(l) < l.ttl && left(l) != l.checkpoint);
        changed.map(|(id, l)| (*id, left(l))).collect()
    }

    pub(crate) fn expired(&self, now_ms: u64, most: usize) -> Vec<i64> {
        let due = self.by_deadline.iter().take_while(|(at, _)| *at <= now_ms);
        due.take(most).map(|(_, id)| *id).collect()
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    /// Gives every lease its full time, as a new leader does.
    pub(crate) fn extend_all(&mut self, now_ms: u64) {
        for image in self.images() {
            self.insert(LeaseImage { checkpoint: 0, ..image }, now_ms);
        }
    }

    pub(crate) fn status(&self, id: i64, now_ms: u64) -> LeaseStatus {
        let Some(lease) = self.leases.get(&id) else {
            return LeaseStatus { id, ttl: -1, ..LeaseStatus::default() };
        };
        let ttl = (lease.deadline_ms.saturating_sub(now_ms) / 1000) as i64;
        let keys = lease.keys.iter().map(|k| Bytes::copy_from_slice(k)).collect();
        LeaseStatus { id, ttl, granted_ttl: lease.ttl, keys }
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.leases.keys().copied().collect()
    }

    pub(crate) fn images(&self) -> Vec<LeaseImage> {
        let image =
            |(id, l): (&i64, &Lease)| LeaseImage { id: *id, ttl: l.ttl, checkpoint: l.checkpoint };
        self.leases.iter().map(image).collect()
    }
}
