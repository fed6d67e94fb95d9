//! Index terms: which words, names, levels and times a set of records can contain.
//!
//! [`index_terms`] lists the terms of a packet's records, from which a filter is built. A
//! [`Selector`] decides from such a filter whether a record can match. Both are here, so that they
//! agree.

use helio_core::Tai;

use super::compare::{Order, Sense, TextTest, ValueTest};
use super::field_access::Body;
use super::select::{BodyTest, Node, PlaceTest, Question, Selector, Test, bit};
use super::tree::{Path, Root};
use super::words::words;
use crate::fields::TextField;
use crate::level::Level;
use crate::packet::{Packet, RecordRef};
use crate::record::Site;

/// The most prefixes of a logger's name that are terms. Only hostile names have more parts, and
/// each prefix takes as many bytes as it is long.
const MAX_LOGGER_PREFIXES: usize = 16;

/// The kind of an index term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexTermKind {
    /// A word of a message or of a data value's text (see [`words`]).
    Word,
    /// The name of a data pair.
    Data,
    /// The whole text of a field; of a logger also its first parts. A message has words instead.
    Text(TextField),
}

impl IndexTermKind {
    /// The kind's number in the archive's format.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Word => 1,
            Self::Data => 2,
            Self::Text(field) => field.index_number(),
        }
    }
}

/// A term of a record, which an index of many records can exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexTerm<'a> {
    /// The kind.
    pub kind: IndexTermKind,
    /// The word, or the whole text of the field.
    pub text: &'a str,
}

impl<'a> IndexTerm<'a> {
    const fn of(field: TextField, text: &'a str) -> Self {
        Self { kind: IndexTermKind::Text(field), text }
    }
}

/// A summary of many records.
pub trait Outline {
    /// Whether a record may have this level.
    fn may_have_level(&self, level: Level) -> bool;
    /// The earliest and the latest time.
    fn times(&self) -> (Tai, Tai);
    /// Whether a record may have this term; false only if none has.
    fn may_have(&self, key: IndexTerm<'_>) -> bool;
}

impl Selector {
    /// Whether one of these records may match; false only if none does.
    pub fn may_match(&self, records: &impl Outline) -> bool {
        node(&self.root, records)
    }
}

fn node(known: &Node, records: &impl Outline) -> bool {
    match known {
        Node::All(nodes) => nodes.iter().all(|inner| node(inner, records)),
        Node::Any(nodes) => nodes.iter().any(|inner| node(inner, records)),
        // Any record may satisfy a negation.
        Node::Leaf(_, Sense::IsNot) => true,
        Node::Leaf(Test::Level(levels), Sense::Is) => {
            let mut asked =
                (1..=11).filter_map(Level::new).filter(|level| levels & bit(*level) != 0);
            asked.any(|level| records.may_have_level(level))
        }
        Node::Leaf(test @ Test::Time(..), Sense::Is) => {
            let (reach, (first, last)) = (test.reach(), records.times());
            reach.from <= last && first <= reach.to
        }
        Node::Leaf(Test::Place(test), Sense::Is) => place(test, records),
        Node::Leaf(Test::Body(test), Sense::Is) => body(test, records),
        Node::Leaf(Test::Audience(_), Sense::Is) => true,
    }
}

fn place(test: &PlaceTest, records: &impl Outline) -> bool {
    match &test.question {
        Question::Text(field, test) => text(*field, test, records),
        Question::Line(..) => true,
    }
}

fn body(test: &BodyTest, records: &impl Outline) -> bool {
    match test {
        BodyTest::Text(field, test) => text(*field, test, records),
        BodyTest::Words(words) => {
            let mut words =
                words.iter().map(|word| IndexTerm { kind: IndexTermKind::Word, text: word });
            words.all(|word| records.may_have(word))
        }
        BodyTest::Value(path, test) => value(path, test, records),
    }
}

fn text(field: TextField, test: &TextTest, records: &impl Outline) -> bool {
    match (field, test) {
        (TextField::Message, TextTest::Order(Order::Equal, wanted)) => all_words(wanted, records),
        (TextField::Message, _) => true,
        (TextField::Logger, TextTest::Glob(Sense::Is, glob)) => {
            let beginning = glob.beginning(MAX_LOGGER_PREFIXES);
            beginning.is_empty() || records.may_have(IndexTerm::of(field, &beginning))
        }
        (field, TextTest::Order(Order::Equal, wanted)) => {
            records.may_have(IndexTerm::of(field, wanted))
        }
        _ => true,
    }
}

/// Every test of a pair, also `!=`, requires its presence. The words of a nested value are among
/// those of the outer value's text.
fn value(path: &Path, test: &ValueTest, records: &impl Outline) -> bool {
    let (Root::Data, Some(name)) = (path.root, path.names.first()) else { return true };
    if !records.may_have(IndexTerm { kind: IndexTermKind::Data, text: name }) {
        return false;
    }
    match test {
        ValueTest::Text(TextTest::Order(Order::Equal, wanted)) => all_words(wanted, records),
        _ => true,
    }
}

fn all_words(text: &str, records: &impl Outline) -> bool {
    words(text).all(|word| records.may_have(IndexTerm { kind: IndexTermKind::Word, text: &word }))
}

/// Lists all terms of a packet's records, possibly repeatedly. If a [`Selector`] matches one of the
/// records, it also matches an [`Outline`] with these terms.
pub fn index_terms(packet: &Packet<'_>, mut act: impl FnMut(IndexTerm<'_>)) {
    let mut loggers = vec![false; packet.text_count()];
    let mut origins = vec![false; packet.origin_count()];
    let mut sites: Vec<Option<Site>> = vec![None; packet.site_count()];
    let none = Site::default();
    for record in packet.records() {
        if !std::mem::replace(&mut loggers[record.logger_number()], true) {
            beginnings(record.logger())
                .for_each(|text| act(IndexTerm::of(TextField::Logger, text)));
        }
        if !std::mem::replace(&mut origins[record.origin_number()], true) {
            act(IndexTerm::of(TextField::Host, record.host()));
            act(IndexTerm::of(TextField::Process, record.process()));
            act(IndexTerm::of(TextField::Producer, record.producer()));
        }
        let site = match sites.get_mut(record.site_number()) {
            None => &none,
            Some(known) => known.get_or_insert_with(|| site_terms(record, &mut act)),
        };
        body_terms(&Body::of_packet(record, site), &mut act);
    }
}

fn site_terms(record: RecordRef<'_>, act: &mut impl FnMut(IndexTerm<'_>)) -> Site {
    let site = record.site().map_or_else(Site::default, |site| site.to_site());
    act(IndexTerm::of(TextField::File, &site.file));
    act(IndexTerm::of(TextField::Routine, &site.routine));
    site
}

fn body_terms(body: &Body<'_>, act: &mut impl FnMut(IndexTerm<'_>)) {
    for field in TextField::ALL.into_iter().filter(|field| *field != TextField::Message) {
        let text = &*body.text_of(field);
        if !text.is_empty() {
            act(IndexTerm::of(field, text));
        }
    }
    words(body.message())
        .for_each(|text| act(IndexTerm { kind: IndexTermKind::Word, text: &text }));
    for (name, value) in &body.data {
        act(IndexTerm { kind: IndexTermKind::Data, text: name });
        let shown = value.to_string();
        words(&shown).for_each(|text| act(IndexTerm { kind: IndexTermKind::Word, text: &text }));
    }
}

/// The name, and its prefixes.
fn beginnings(name: &str) -> impl Iterator<Item = &str> {
    let slashes = name.match_indices('/').take(MAX_LOGGER_PREFIXES);
    slashes.map(|(at, _)| &name[..at]).chain([name])
}
