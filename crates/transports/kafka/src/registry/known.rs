//! The schemas that were met by their numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use helio_bus::SchemaId;
use helio_core::Schema;

use super::Look;

/// What SAL calls the number of one of several components.
const INDEX: &str = "salIndex";
/// The most numbers that are remembered.
pub(super) const MAX_NUMBERS: usize = 16_384;
/// The most bytes of their texts.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 20;

/// A schema that a registry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its identity on the bus.
    pub(crate) id: SchemaId,
    /// Whether its records begin with a `salIndex`.
    pub(crate) indexed: bool,
    text: Arc<str>,
}

impl Known {
    /// A schema by its text; none where it is no schema that the bus can have.
    pub(super) fn of(text: &str) -> Option<Self> {
        let schema = Schema::parse(text).ok()?;
        let first = schema.fields().first();
        let indexed = first.is_some_and(|field| &*field.name == INDEX);
        Some(Self { id: schema.id(), indexed, text: text.into() })
    }
}

/// Schemas by their numbers; those that came first are forgotten first.
#[derive(Default)]
pub(super) struct Numbers {
    /// What they are, or until when it counts that they are not known.
    all: HashMap<u32, Result<Known, Instant>>,
    texts: HashMap<SchemaId, Arc<str>>,
    order: VecDeque<u32>,
    bytes: usize,
}

impl Numbers {
    pub(super) fn look(&self, number: u32) -> Look {
        match self.all.get(&number) {
            Some(Ok(known)) => Look::Known(known.clone()),
            Some(Err(until)) if Instant::now() < *until => Look::Unknown,
            _ => Look::Wait,
        }
    }

    pub(super) fn text(&self, id: SchemaId) -> Option<&Arc<str>> {
        self.texts.get(&id)
    }

    pub(super) fn learn(&mut self, number: u32, answer: Result<Known, Instant>) {
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

    fn forget(&mut self, gone: Result<Known, Instant>) {
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

    fn known(n: usize, bytes: usize) -> Known {
        let doc = " ".repeat(bytes);
        let text = format!(r#"{{"type":"record","name":"R{n}","doc":"{doc}","fields":[]}}"#);
        Known::of(&text).unwrap()
    }

    #[test]
    fn what_came_first_is_forgotten_first() {
        let mut numbers = Numbers::default();
        let first = known(1, 0);
        numbers.learn(1, Ok(first.clone()));
        assert_eq!(numbers.look(1), Look::Known(first.clone()));
        assert!(numbers.text(first.id).is_some());
        for n in 2..=40 {
            numbers.learn(n, Ok(known(n as usize, 2 << 20)));
        }
        assert!(numbers.bytes <= MAX_TEXT_BYTES && numbers.all.len() > 20);
        assert_eq!((numbers.look(1), numbers.text(first.id)), (Look::Wait, None));
        assert!(matches!(numbers.look(40), Look::Known(_)));
        let later = Instant::now() + std::time::Duration::from_secs(600);
        for n in 0..=MAX_NUMBERS {
            numbers.learn(100 + n as u32, Err(later));
        }
        assert_eq!((numbers.all.len(), numbers.order.len()), (MAX_NUMBERS, MAX_NUMBERS));
        assert_eq!((numbers.bytes, numbers.texts.len()), (0, 0));
        assert_eq!((numbers.look(101), numbers.look(100)), (Look::Unknown, Look::Wait));
    }

    #[test]
    fn no_is_no_for_a_while() {
        let mut numbers = Numbers::default();
        numbers.learn(7, Err(Instant::now()));
        assert_eq!(numbers.look(7), Look::Wait);
        numbers.learn(7, Ok(known(7, 0)));
        assert!(matches!(numbers.look(7), Look::Known(_)));
        assert_eq!(numbers.order.len(), 1);
    }

    #[test]
    fn what_is_no_schema_is_not_known() {
        assert_eq!(Known::of("{}"), None);
        assert_eq!(
            Known::of(r#"{"type":"record","name":"a","fields":[{"name":"b","type":"Other"}]}"#),
            None
        );
    }
}
