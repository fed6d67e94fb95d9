//! Reads a topic in memory: one cursor a partition, in turn.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Armed, Begin, Item, Origin, Position, Reader, ReaderRequest, Visit, not_ours};
use super::SCHEME;
use super::group::Group;
use super::partition::{Partition, StoredSample};
use super::topic::MemoryTopic;
use crate::bell::{Bell, locked};
use crate::error::TransportError;
use crate::event::Gap;

/// The most samples copied from a partition under one lock.
const SAMPLES_PER_LOCK: usize = 64;

pub(super) struct MemoryReader {
    topic: Arc<MemoryTopic>,
    from: Begin,
    cursors: Vec<Cursor>,
    turn: usize,
    scratch: Vec<Arc<StoredSample>>,
    member: Option<Member>,
    armed: Option<(Arc<dyn Bell>, u64)>,
    closed: Arc<AtomicBool>,
}

struct Member {
    group: Arc<Group>,
    id: u64,
    generation: u64,
}

struct Cursor {
    partition: u32,
    next: u64,
    history: VecDeque<Arc<StoredSample>>,
}

impl Cursor {
    fn begin(partition: u32, state: &Partition, from: &Begin) -> Self {
        let (next, history) = match from {
            Begin::Latest => (state.end(), Vec::new()),
            Begin::Earliest => (state.first(), state.retained()),
            Begin::LastPerKey(n) => (state.end(), state.last_per_key(*n)),
            Begin::Offset(at, offset) if *at == partition => (*offset, Vec::new()),
            Begin::Offset(..) => (state.first(), Vec::new()),
            Begin::Time(time) => (state.at_time(*time), Vec::new()),
        };
        Self { partition, next: next.min(state.end()), history: history.into() }
    }

    fn has_something(&self, state: &Partition) -> bool {
        !self.history.is_empty() || self.next < state.end()
    }
}

impl MemoryReader {
    pub(super) fn open(
        topic: &Arc<MemoryTopic>,
        request: &ReaderRequest<'_>,
        closed: Arc<AtomicBool>,
    ) -> Result<Self, TransportError> {
        let member = request.group.as_ref().map(|group| {
            let joined = topic.group(group.name);
            Member { id: joined.join(group.member), group: joined, generation: 0 }
        });
        let mut reader = Self {
            topic: Arc::clone(topic),
            from: request.from.clone(),
            cursors: Vec::new(),
            turn: 0,
            scratch: Vec::with_capacity(SAMPLES_PER_LOCK),
            member,
            armed: None,
            closed,
        };
        if reader.member.is_none() {
            let all: Vec<u32> = (0..topic.qos().partitions).collect();
            let partitions = if request.partitions.is_empty() { &all } else { request.partitions };
            for partition in partitions {
                let state = locked(topic.partition(*partition)?);
                reader.cursors.push(Cursor::begin(*partition, &state, &request.from));
            }
        }
        Ok(reader)
    }

    /// Adopts the group's assignment, if it changed.
    fn reassign(&mut self, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let Some(member) = &mut self.member else { return ControlFlow::Continue(()) };
        if member.generation == member.group.generation() {
            return ControlFlow::Continue(());
        }
        let (generation, own) = member.group.assigned(member.id, self.topic.qos().partitions);
        member.generation = generation;
        self.cursors.retain(|cursor| own.contains(&cursor.partition));
        for partition in &own {
            if self.cursors.iter().any(|cursor| cursor.partition == *partition) {
                continue;
            }
            let from = match member.group.committed(*partition) {
                Some(offset) => Begin::Offset(*partition, offset),
                None => self.from.clone(),
            };
            let state = locked(&self.topic.partitions()[*partition as usize]);
            let mut cursor = Cursor::begin(*partition, &state, &from);
            // Groups commit offsets in the log, which last values beyond the retention lack.
            cursor.history.clear();
            self.cursors.push(cursor);
        }
        visit.item(Item::Assigned(&own))
    }

    fn poll_cursor(&mut self, turn: usize, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let cursor = &mut self.cursors[turn];
        while let Some(stored) = cursor.history.pop_front() {
            visit.item(Item::Sample(stored.sample(cursor.partition, Origin::History)))?;
        }
        loop {
            self.scratch.clear();
            let state = locked(&self.topic.partitions()[cursor.partition as usize]);
            let first = state.first();
            state.read(
                cursor.next.max(first),
                visit.left().min(SAMPLES_PER_LOCK),
                &mut self.scratch,
            );
            drop(state);
            if cursor.next < first {
                let gap = Gap::retention(cursor.partition, cursor.next, first);
                cursor.next = first;
                visit.item(Item::Gap(gap))?;
            }
            if self.scratch.is_empty() {
                return ControlFlow::Continue(());
            }
            for stored in self.scratch.drain(..) {
                cursor.next = stored.offset + 1;
                visit.item(Item::Sample(stored.sample(cursor.partition, Origin::Log)))?;
            }
        }
    }

    fn disarm(&mut self) {
        let Some((bell, token)) = self.armed.take() else { return };
        for cursor in &self.cursors {
            let mut state = locked(&self.topic.partitions()[cursor.partition as usize]);
            state.waiters.remove(&bell, token);
        }
        if let Some(member) = &self.member {
            member.group.wait(|waiters| waiters.remove(&bell, token));
        }
    }
}

impl Reader for MemoryReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(TransportError::Closed);
        }
        if max == 0 {
            return Ok(0);
        }
        let mut visit = Visit::new(visit, max);
        if self.reassign(&mut visit).is_break() {
            return Ok(max - visit.left());
        }
        for _ in 0..self.cursors.len() {
            self.turn = (self.turn + 1) % self.cursors.len();
            if self.poll_cursor(self.turn, &mut visit).is_break() {
                break;
            }
        }
        Ok(max - visit.left())
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(TransportError::Closed);
        }
        let same = self.armed.as_ref().is_some_and(|(b, t)| Arc::ptr_eq(b, bell) && *t == token);
        if !same {
            self.disarm();
            self.armed = Some((Arc::clone(bell), token));
        }
        if let Some(member) = &self.member {
            member.group.wait(|waiters| waiters.add(bell, token));
            if member.generation != member.group.generation() {
                return Ok(Armed::Ready);
            }
        }
        for cursor in &self.cursors {
            let mut state = locked(&self.topic.partitions()[cursor.partition as usize]);
            if cursor.has_something(&state) {
                return Ok(Armed::Ready);
            }
            state.waiters.add(bell, token);
        }
        // Closing wakes armed readers; check again in case it happened in between.
        if self.closed.load(Ordering::Acquire) { Ok(Armed::Ready) } else { Ok(Armed::Waiting) }
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        for cursor in &self.cursors {
            let end = locked(&self.topic.partitions()[cursor.partition as usize]).end();
            visit(Position { partition: cursor.partition, next: cursor.next, end });
        }
    }

    fn unread_history(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.history.len() as u64).sum()
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        let found = self.cursors.iter_mut().find(|cursor| cursor.partition == partition);
        let cursor = found.ok_or_else(|| not_ours(SCHEME, partition))?;
        let end = locked(&self.topic.partitions()[partition as usize]).end();
        cursor.history.clear();
        cursor.next = offset.min(end);
        Ok(())
    }

    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        let member = self.member.as_ref().ok_or_else(|| not_ours(SCHEME, partition))?;
        let partitions = self.topic.qos().partitions;
        let committed = member.group.commit(member.id, partitions, partition, offset);
        committed.ok_or_else(|| not_ours(SCHEME, partition))
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        self.disarm();
        if let Some(member) = &self.member {
            member.group.leave(member.id);
        }
    }
}
