//! Producers of samples, as transports read them.

use std::collections::HashMap;
use std::sync::Arc;

use helio_core::{Producer, ProducerName};

/// The most producers that a reader caches.
const MAX_CACHED_PRODUCERS: usize = 1024;

/// A cache of a reader's producers, so that a sample allocates none, for transports.
#[derive(Default)]
pub struct Producers(Vec<Arc<Producer>>);

impl Producers {
    /// The producer of a sample; `None` if the name is invalid.
    pub fn of(&mut self, name: &str, incarnation: u64) -> Option<Arc<Producer>> {
        let same =
            |known: &Arc<Producer>| known.incarnation == incarnation && known.name.as_str() == name;
        if let Some(place) = self.0.iter().position(same) {
            // The most frequent producer is found first.
            self.0.swap(0, place);
            return Some(Arc::clone(&self.0[0]));
        }
        let producer = Arc::new(Producer { name: ProducerName::new(name).ok()?, incarnation });
        if self.0.len() == MAX_CACHED_PRODUCERS {
            self.0.truncate(MAX_CACHED_PRODUCERS / 2);
        }
        self.0.push(Arc::clone(&producer));
        Some(producer)
    }
}

/// Sorts each producer's samples by incarnation and sequence within the positions that they occupy,
/// for transports.
pub fn order_by_producer<T>(
    all: &mut Vec<T>,
    who: impl Fn(&T) -> String,
    order: impl Fn(&T) -> (u64, u64),
) {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, sample) in all.iter().enumerate() {
        places.entry(who(sample)).or_default().push(place);
    }
    let sorted = |own: &Vec<usize>| own.iter().map(|place| order(&all[*place])).is_sorted();
    let wrong: Vec<_> = places.into_values().filter(|own| !sorted(own)).collect();
    if wrong.is_empty() {
        return;
    }
    let mut taken: Vec<_> = all.drain(..).map(Some).collect();
    for places in wrong {
        let mut own: Vec<_> = places.iter().filter_map(|place| taken[*place].take()).collect();
        own.sort_by_key(&order);
        places.into_iter().zip(own).for_each(|(place, sample)| taken[place] = Some(sample));
    }
    all.extend(taken.into_iter().flatten());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_one_value_however_often_it_is_met() {
        let mut producers = Producers::default();
        let first = producers.of("a", 1).unwrap();
        let others = [producers.of("b", 1).unwrap(), producers.of("a", 2).unwrap()];
        assert!(Arc::ptr_eq(&first, &producers.of("a", 1).unwrap()));
        assert!(others.iter().all(|other| !Arc::ptr_eq(&first, other)));
        assert!(producers.of("no name", 1).is_none());
    }

    #[test]
    fn each_producers_samples_get_into_order_on_their_places() {
        let mut all = vec![("a", 1, 3), ("b", 1, 1), ("a", 1, 1), ("b", 1, 2), ("a", 1, 2)];
        order_by_producer(&mut all, |s| s.0.to_owned(), |s| (s.1, s.2));
        assert_eq!(all, [("a", 1, 1), ("b", 1, 1), ("a", 1, 2), ("b", 1, 2), ("a", 1, 3)]);
    }
}
