//! The newest samples of each key for late joiners, from writers and from a durability service.

use std::collections::{HashMap, HashSet};

use helio_bus::transport::{Origin, order_by_producer};

use crate::announcements::ProducerPosition;
use crate::reorder_queue::{QueuedSample, ReorderQueue};

/// Orders what a late joiner has received. First come the newest `n` samples of each key, since its
/// last null, that were written before it joined (`positions`), then the samples written since.
///
/// A service's samples keep the order of its journal, in which they arrived, so no two hosts'
/// clocks are compared. A writer's own samples come before them if the service had them, otherwise
/// after them. The samples of one producer are in the order of their numbers, whatever their
/// source.
pub(crate) fn begin(reorder_queue: &mut ReorderQueue, positions: &[&ProducerPosition], n: usize) {
    let all = reorder_queue.take_all();
    let (past, others): (Vec<_>, Vec<_>) = all.into_iter().partition(QueuedSample::is_history);
    let mut known: HashSet<_> = past.iter().map(sample).collect();
    let (mut before, mut behind, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for queued in others {
        if reorder_queue.is_covered(&queued) {
            before.push(queued);
        } else if was_there(&queued, positions) {
            behind.push(queued);
        } else {
            new.push(queued);
        }
    }
    let mut old = Vec::with_capacity(3);
    for mut some in [before, behind] {
        // A service and the writer may both have sent it.
        some.retain(|queued| known.insert(sample(queued)));
        some.sort_by_key(QueuedSample::published);
        old.push(some);
    }
    old.insert(1, past);
    let mut old: Vec<_> = old.into_iter().flatten().collect();
    // Before the newest are chosen: a sample that the service missed may be newer than the
    // service's samples of that key.
    in_order(&mut old);
    let mut left: HashMap<(u32, Vec<u8>), usize> = HashMap::new();
    let mut newest: Vec<_> = old
        .into_iter()
        .rev()
        .filter(|queued| {
            let key = (queued.partition, queued.names().0.to_vec());
            let taken = left.entry(key).or_default();
            // It deletes what is older; who starts at the earliest receives everything.
            if n < usize::MAX && queued.is_null() {
                *taken = n;
            }
            *taken += 1;
            *taken <= n
        })
        .collect();
    newest.reverse();
    in_order(&mut newest);
    newest.iter_mut().for_each(|queued| queued.origin = Origin::History);
    reorder_queue.begin(newest, new);
}

/// The identity of a sample.
fn sample(queued: &QueuedSample) -> (u32, String, (u64, u64)) {
    (queued.partition, queued.names().1.to_owned(), queued.order())
}

/// Sorts each producer's samples in a partition by number.
fn in_order(all: &mut Vec<QueuedSample>) {
    let who = |queued: &QueuedSample| format!("{} {}", queued.partition, queued.names().1);
    order_by_producer(all, who, QueuedSample::order);
}

fn was_there(queued: &QueuedSample, positions: &[&ProducerPosition]) -> bool {
    if queued.origin == Origin::History {
        return true;
    }
    let producer = queued.names().1;
    positions.iter().any(|position| {
        position.partition == queued.partition
            && position.producer.as_str() == producer
            && queued.order() <= (position.incarnation, position.sequence)
    })
}
