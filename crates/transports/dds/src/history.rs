//! The newest samples of each key, for those who join late: out of what writers have kept.

use std::collections::{HashMap, HashSet};

use helio_bus::transport::{Origin, order_by_producer};

use crate::inbox::{Inbox, Queued};
use crate::tables::Stand;

/// Puts the newest `n` of each key, of what was written when the reader came (`stands`), before
/// what was written since.
pub(crate) fn begin(inbox: &mut Inbox, stands: &[&Stand], n: usize) {
    let (mut old, new): (Vec<_>, Vec<_>) =
        inbox.take_all().into_iter().partition(|queued| was_there(queued, stands));
    old.sort_by_key(Queued::published);
    order_by_producer(&mut old, |queued| queued.names().1.to_owned(), Queued::order);
    // A service's and its writer's own.
    let mut known = HashSet::new();
    old.retain(|queued| {
        let who = (queued.partition, queued.names().1.to_owned());
        known.insert((who, queued.order()))
    });
    let mut left: HashMap<(u32, Vec<u8>), usize> = HashMap::new();
    let mut newest: Vec<_> = old
        .into_iter()
        .rev()
        .filter(|queued| {
            let key = (queued.partition, queued.names().0.to_vec());
            let taken = left.entry(key).or_default();
            *taken += 1;
            *taken <= n
        })
        .collect();
    newest.reverse();
    newest.iter_mut().for_each(|queued| queued.origin = Origin::History);
    inbox.begin(newest, new);
}

fn was_there(queued: &Queued, stands: &[&Stand]) -> bool {
    if queued.origin == Origin::History {
        return true;
    }
    let producer = queued.names().1;
    stands.iter().any(|stand| {
        stand.partition == queued.partition
            && stand.producer.as_str() == producer
            && queued.order() <= (stand.incarnation, stand.sequence)
    })
}
