//! The schemas that were found by their numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use helio_bus::SchemaId;
use helio_core::Schema;

use super::NumberLookup;

/// SAL's field for the number of one of several components.
const SAL_INDEX_FIELD: &str = "salIndex";
/// The maximum number of cached schemas.
pub(super) const MAX_NUMBERS: usize = 16_384;
/// The maximum size of their texts, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 20;

/// A schema of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSchema {
    /// Its identity on the bus.
    pub(crate) id: SchemaId,
    /// Whether its records begin with a `salIndex`.
    pub(crate) indexed: bool,
    text: Arc<str>,
}

impl KnownSchema {
    /// A schema by its text; `None` if the bus does not support it.
    pub(super) fn of(text: &str) -> Option<Self> {
        let schema = Schema::parse(text).ok()?;
        let first = schema.fields().first();
        let indexed = first.is_some_and(|field| &*field.name == SAL_INDEX_FIELD);
        Some(Self { id: schema.id(), indexed, text: text.into() })
    }
}

/// Schemas by their numbers; the oldest entries are dropped first.
#[derive(Default)]
pub(super) struct SchemaCache {
    /// The schemas, or until when a number counts as unknown.
    all: HashMap<u32, Result<KnownSchema, Instant>>,
    texts: HashMap<SchemaId, Arc<str>>,
    order: VecDeque<u32>,
    bytes: usize,
}

impl SchemaCache {
    pub(super) fn lookup(&self, number: u32) -> NumberLookup {
        match self.all.get(&number) {
            Some(Ok(known)) => NumberLookup::Known(known.clone()),
            Some(Err(until)) if Instant::now() < *until => NumberLookup::Unknown,
            _ => NumberLookup::Wait,
        }
    }

    pub(super) fn text(&self, id: SchemaId) -> Option<&Arc<str>> {
        self.texts.get(&id)
    }

    pub(super) fn learn(&mut self, number: u32, answer: Result<KnownSchema, Instant>) {
        if let Ok(known) = &answer {
            self.bytes += known.text.len();
            self.texts.insert(known.id, Arc::clone(&known.text));
        }
        match self.all.insert(number, answer) {
            None => self.order.push_back(number),
            Some(before) => self.forget(before),
        }
        while self.all.len() > MAX_NUMBERS || (self.bytes > MAX_TEXT_BYTES && self.all.len() > 1) {
            let Some(oldest) = self.order.pop_front() else { return };
            let gone = self.all.remove(&oldest);
            gone.into_iter().for_each(|gone| self.forget(gone));
        }
    }

    fn forget(&mut self, gone: Result<KnownSchema, Instant>) {
        let Ok(known) = gone else { return };
        self.bytes -= known.text.len();
        // Two numbers may have texts of one identity.
        let is_its = |text: &Arc<str>| Arc::ptr_eq(text, &known.text);
        if self.texts.get(&known.id).is_some_and(is_its) {
            self.texts.remove(&known.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(n: usize, bytes: usize) -> KnownSchema {
        let doc = " ".repeat(bytes);
        let text = format!(r#"{{"type":"record","name":"R{n}","doc":"{doc}","fields":[]}}"#);
        KnownSchema::of(&text).unwrap()
    }

    #[test]
    fn what_came_first_is_forgotten_first() {
        let mut numbers = SchemaCache::default();
        let first = known(1, 0);
        numbers.learn(1, Ok(first.clone()));
        assert_eq!(numbers.lookup(1), NumberLookup::Known(first.clone()));
        assert!(numbers.text(first.id).is_some());
        for n in 2..=40 {
            numbers.learn(n, Ok(known(n as usize, 2 << 20)));
        }
        assert!(numbers.bytes <= MAX_TEXT_BYTES && numbers.all.len() > 20);
        assert_eq!((numbers.lookup(1), numbers.text(first.id)), (NumberLookup::Wait, None));
        assert!(matches!(numbers.lookup(40), NumberLookup::Known(_)));
        let later = Instant::now() + std::time::Duration::from_secs(600);
        for n in 0..=MAX_NUMBERS {
            numbers.learn(100 + n as u32, Err(later));
        }
        assert_eq!((numbers.all.len(), numbers.order.len()), (MAX_NUMBERS, MAX_NUMBERS));
        assert_eq!((numbers.bytes, numbers.texts.len()), (0, 0));
        assert_eq!(
            (numbers.lookup(101), numbers.lookup(100)),
            (NumberLookup::Unknown, NumberLookup::Wait)
        );
    }

    #[test]
    fn no_is_no_for_a_while() {
        let mut numbers = SchemaCache::default();
        numbers.learn(7, Err(Instant::now()));
        assert_eq!(numbers.lookup(7), NumberLookup::Wait);
        numbers.learn(7, Ok(known(7, 0)));
        assert!(matches!(numbers.lookup(7), NumberLookup::Known(_)));
        assert_eq!(numbers.order.len(), 1);
    }

    #[test]
    fn what_is_no_schema_is_not_known() {
        assert_eq!(KnownSchema::of("{}"), None);
        assert_eq!(
            KnownSchema::of(
                r#"{"type":"record","name":"a","fields":[{"name":"b","type":"Other"}]}"#
            ),
            None
        );
    }
}
