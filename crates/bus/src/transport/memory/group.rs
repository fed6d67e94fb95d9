//! Groups: assignment of partitions to members, and committed positions.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bell::{Waiters, locked};
use crate::groups::{GroupMember, GroupState};

/// One group of one topic.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<Members>,
    generation: AtomicU64,
}

#[derive(Default)]
struct Members {
    live: Vec<(u64, String)>,
    next: u64,
    committed: HashMap<u32, u64>,
    waiters: Waiters,
}

impl Group {
    pub(super) fn join(&self, name: &str) -> u64 {
        let mut state = locked(&self.state);
        state.next += 1;
        let id = state.next;
        state.live.push((id, name.to_owned()));
        self.changed(state);
        id
    }

    pub(super) fn leave(&self, member: u64) {
        let mut state = locked(&self.state);
        state.live.retain(|(other, _)| *other != member);
        self.changed(state);
    }

    fn changed(&self, mut state: std::sync::MutexGuard<'_, Members>) {
        self.generation.fetch_add(1, Ordering::Release);
        let waiters = state.waiters.take();
        drop(state);
        waiters.ring();
    }

    /// Wakes all waiting members.
    pub(super) fn wake(&self) {
        let waiters = locked(&self.state).waiters.take();
        waiters.ring();
    }

    /// Increases when a member joins or leaves.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn wait(&self, arm: impl FnOnce(&mut Waiters)) {
        arm(&mut locked(&self.state).waiters);
    }

    /// A member's partitions, out of `partitions`, and the generation of the assignment.
    pub(super) fn assigned(&self, member: u64, partitions: u32) -> (u64, Vec<u32>) {
        let state = locked(&self.state);
        let generation = self.generation();
        let Some(place) = state.live.iter().position(|(id, _)| *id == member) else {
            return (generation, Vec::new());
        };
        let members = state.live.len();
        let own = (0..partitions).filter(|p| *p as usize % members == place);
        (generation, own.collect())
    }

    /// The group under its name, in a topic of so many partitions.
    pub(super) fn state(&self, name: &str, partitions: u32) -> GroupState {
        let live = locked(&self.state).live.clone();
        let member = |(id, name): (u64, String)| GroupMember {
            name,
            process: Some(std::process::id()),
            host: None,
            partitions: self.assigned(id, partitions).1,
        };
        let members = live.into_iter().map(member).collect();
        GroupState { name: name.to_owned(), members, committed: self.all_committed() }
    }

    pub(super) fn committed(&self, partition: u32) -> Option<u64> {
        locked(&self.state).committed.get(&partition).copied()
    }

    pub(super) fn all_committed(&self) -> Vec<(u32, u64)> {
        let mut all: Vec<_> =
            locked(&self.state).committed.iter().map(|(p, at)| (*p, *at)).collect();
        all.sort_unstable();
        all
    }

    /// Commits a position; `None` if the partition is another member's.
    pub(super) fn commit(
        &self,
        member: u64,
        partitions: u32,
        partition: u32,
        offset: u64,
    ) -> Option<()> {
        let (_, own) = self.assigned(member, partitions);
        own.contains(&partition).then(|| {
            locked(&self.state).committed.insert(partition, offset);
        })
    }
}
