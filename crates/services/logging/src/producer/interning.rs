//! Numbers for values that records refer to in the rings: loggers, call sites, audiences.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

/// Maps values to numbers and back, up to a limit. Values are never removed: a record in flight may
/// refer to any.
#[derive(Debug)]
pub(super) struct Interner<T> {
    known: RwLock<Interned<T>>,
    most: usize,
}

#[derive(Debug)]
struct Interned<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T: Eq + Hash> Interner<T> {
    pub(super) fn new(most: usize) -> Self {
        let known = Interned { numbers: HashMap::new(), values: Vec::new() };
        Self { known: RwLock::new(known), most }
    }

    /// A value's number; none above the limit.
    pub(super) fn number(&self, value: T) -> Option<u32> {
        let table = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.numbers.get(&value) {
            return Some(*number);
        }
        drop(table);
        let mut table = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.numbers.get(&value) {
            return Some(*number);
        }
        let number =
            u32::try_from(table.values.len()).ok().filter(|_| table.values.len() < self.most)?;
        let value = Arc::new(value);
        table.numbers.insert(Arc::clone(&value), number);
        table.values.push(value);
        Some(number)
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<T>> {
        let table = self.known.read().unwrap_or_else(PoisonError::into_inner);
        table.values.get(number as usize).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_number_each_and_no_more_than_the_limit() {
        let table = Interner::new(2);
        assert_eq!((table.number("a"), table.number("b")), (Some(0), Some(1)));
        assert_eq!((table.number("a"), table.number("c")), (Some(0), None));
        assert_eq!(table.get(1).as_deref(), Some(&"b"));
        assert_eq!(table.get(2), None);
    }
}
