//! Predicates compiled with their views and the present time: they decide on each record.
//!
//! Negations are at the leaves, so the result of a part of the tree is final. The tree is first
//! evaluated with the fields at fixed positions, and a second time, with the body, only if the
//! first result is open. Within a packet each logger, origin and site is tested once.

use std::cell::{Cell, OnceCell};
use std::ops::RangeInclusive;

use helio_core::Tai;
use thiserror::Error;

use super::Predicate;
use super::compare::{Order, Sense, TextTest, ValueTest};
use super::field_access::{Body, FieldAccess, WholeRecord};
use super::tree::{Expression, Field, Moment, Path, Term};
use super::views::Views;
use crate::fields::{Position, TextField};
use crate::level::Level;
use crate::packet::{EVERYONE, Packet, RecordRef};
use crate::record::{Record, Site};

/// The deepest nesting of views, as compiling is recursive.
const MAX_VIEWS: usize = 8;
/// The most terms after views are expanded: each takes memory and may be tested for every record.
const MAX_TERMS: usize = 4_096;

/// Why a predicate cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// There is no such view.
    #[error("there is no view {name:?}; the views are {known}")]
    UnknownView {
        /// The name.
        name: String,
        /// The existing views.
        known: String,
    },
    /// Views refer to each other in a circle, or more than eight levels deep.
    #[error("view {0:?} names itself, or views lie too deep in each other; define it without them")]
    TooDeep(String),
    /// After views are expanded the predicate has too many terms.
    #[error("with its views put in, the predicate has more than {MAX_TERMS} terms; shorten them")]
    TooLarge,
}

impl Predicate {
    /// Compiles the predicate, with `-15m` relative to `now`, and with these views.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn compile(&self, now: Tai, views: &Views) -> Result<Selector, CompileError> {
        let mut compiler = Compiler { now, views, depth: 0, terms: 0, audiences: 0, places: 0 };
        let root = compiler.node(&self.0, Sense::Is)?;
        let (audiences, places) = (compiler.audiences, compiler.places);
        Ok(Selector { reach: root.reach(), root, audiences, places })
    }
}

/// A compiled predicate.
#[derive(Debug, Clone)]
pub struct Selector {
    pub(super) root: Node,
    reach: Bounds,
    audiences: usize,
    places: usize,
}

impl Selector {
    /// Whether a record matches.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        self.root.decide(&WholeRecord::new(record)) == Some(true)
    }

    /// Whether a record in its packet matches. In a malformed body, fields after the damage are
    /// absent.
    #[must_use]
    pub fn matches_ref(&self, record: RecordRef<'_>) -> bool {
        let site = || record.site().map_or_else(Site::default, |site| site.to_site());
        let fixed = self.root.decide(&PackedRecord { known: None, record, body: None });
        fixed.unwrap_or_else(|| self.matches_body(None, record, &site()))
    }

    /// The matching records of a packet, in order, by [`Self::matches_ref`]. Each logger, origin
    /// and site is tested once.
    #[must_use]
    pub fn select<'a>(&'a self, packet: &'a Packet<'a>) -> Selected<'a> {
        Selected { selector: self, packet, next: 0, known: PacketCache::new(self, packet) }
    }

    fn matches_body(
        &self,
        known: Option<&PacketCache>,
        record: RecordRef<'_>,
        site: &Site,
    ) -> bool {
        let body = Body::of_packet(record, site);
        self.root.decide(&PackedRecord { known, record, body: Some(&body) }) == Some(true)
    }

    /// The levels at which a record can match, in ascending order, including the reserved one. A
    /// reader needs no other topics.
    pub fn levels(&self) -> impl Iterator<Item = Level> + use<> {
        let levels = self.reach.levels;
        (1..=11).filter_map(Level::new).filter(move |level| levels & bit(*level) != 0)
    }

    /// The times at which a record can match; an empty range if there are none.
    #[must_use]
    pub fn times(&self) -> RangeInclusive<Tai> {
        self.reach.from..=self.reach.to
    }
}

/// The matching records of a packet: the iterator of [`Selector::select`].
#[derive(Debug)]
pub struct Selected<'a> {
    selector: &'a Selector,
    packet: &'a Packet<'a>,
    next: usize,
    known: PacketCache,
}

impl<'a> Iterator for Selected<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<RecordRef<'a>> {
        while let Some(record) = self.packet.record(self.next) {
            self.next += 1;
            if self.matches(record) {
                return Some(record);
            }
        }
        None
    }
}

impl Selected<'_> {
    fn matches(&self, record: RecordRef<'_>) -> bool {
        let known = Some(&self.known);
        let fixed = self.selector.root.decide(&PackedRecord { known, record, body: None });
        fixed.unwrap_or_else(|| {
            let site = self.known.site(self.packet, record);
            self.selector.matches_body(known, record, site)
        })
    }
}

/// Cached results for the rows of a packet's tables.
#[derive(Debug)]
struct PacketCache {
    /// For each audience test, the bits of the matching audiences.
    masks: Vec<u32>,
    /// For each test of a table, the cached result of each row.
    verdicts: Vec<Vec<Cell<CachedResult>>>,
    /// The decoded sites; the last one is for records without a site.
    sites: OnceCell<Vec<OnceCell<Site>>>,
}

#[derive(Debug, Clone, Copy)]
enum CachedResult {
    Unasked,
    Holds,
    Fails,
}

impl PacketCache {
    fn new(selector: &Selector, packet: &Packet<'_>) -> Self {
        let (masks, verdicts) = (vec![0; selector.audiences], vec![Vec::new(); selector.places]);
        let mut known = Self { masks, verdicts, sites: OnceCell::new() };
        selector.root.each_test(&mut |test| known.prepare(test, packet));
        known
    }

    fn prepare(&mut self, test: &Test, packet: &Packet<'_>) {
        match test {
            Test::Audience(test) => {
                let names = packet.audiences().iter().enumerate();
                let affirmed = names.filter(|(_, name)| test.test.affirms_audience(name));
                self.masks[test.slot] =
                    affirmed.fold(EVERYONE, |mask, (place, _)| mask | 1 << place);
            }
            Test::Place(test) => {
                let count = match test.table() {
                    Table::Loggers => packet.text_count(),
                    Table::Origins => packet.origin_count(),
                    Table::Sites => packet.site_count() + 1,
                };
                self.verdicts[test.slot] = vec![Cell::new(CachedResult::Unasked); count];
            }
            Test::Level(_) | Test::Time(..) | Test::Body(_) => {}
        }
    }

    fn site(&self, packet: &Packet<'_>, record: RecordRef<'_>) -> &Site {
        let count = packet.site_count();
        let sites = self.sites.get_or_init(|| vec![OnceCell::new(); count + 1]);
        let made = || record.site().map_or_else(Site::default, |site| site.to_site());
        sites[record.site_number().min(count)].get_or_init(made)
    }

    fn audience(&self, test: &AudienceTest, record: RecordRef<'_>) -> AudienceMatch {
        match record.audience_bits() {
            0 => AudienceMatch::None,
            bits if bits & self.masks[test.slot] == 0 => AudienceMatch::Others,
            _ => AudienceMatch::Wanted,
        }
    }

    fn place(&self, test: &PlaceTest, record: RecordRef<'_>) -> bool {
        let verdicts = &self.verdicts[test.slot];
        let verdict = &verdicts[match test.table() {
            Table::Loggers => record.logger_number(),
            Table::Origins => record.origin_number(),
            Table::Sites => record.site_number().min(verdicts.len() - 1),
        }];
        match verdict.get() {
            CachedResult::Holds => true,
            CachedResult::Fails => false,
            CachedResult::Unasked => {
                let holds = ask(test, record);
                verdict.set(if holds { CachedResult::Holds } else { CachedResult::Fails });
                holds
            }
        }
    }
}

/// A record in its packet, with or without its body, and the packet's cache.
struct PackedRecord<'s> {
    known: Option<&'s PacketCache>,
    record: RecordRef<'s>,
    body: Option<&'s Body<'s>>,
}

impl FieldAccess for PackedRecord<'_> {
    fn level(&self) -> Level {
        self.record.level()
    }

    fn time(&self) -> Tai {
        self.record.time()
    }

    fn audience(&self, test: &AudienceTest) -> bool {
        let record = self.record;
        test.holds(match self.known {
            Some(known) => known.audience(test, record),
            None => test.found(record.is_for_everyone(), record.audiences()),
        })
    }

    fn place(&self, test: &PlaceTest) -> bool {
        match self.known {
            Some(known) => known.place(test, self.record),
            None => ask(test, self.record),
        }
    }

    fn body(&self, test: &BodyTest) -> Option<bool> {
        self.body.map(|body| body.holds(test))
    }
}

fn ask(test: &PlaceTest, record: RecordRef<'_>) -> bool {
    let site = record.site();
    test.holds(site.map_or(0, |site| site.line), |field| match field {
        TextField::Logger => record.logger(),
        TextField::Host => record.host(),
        TextField::Process => record.process(),
        TextField::Producer => record.producer(),
        TextField::File => site.map_or("", |site| site.file),
        TextField::Routine => site.map_or("", |site| site.routine),
        _ => "",
    })
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Leaf(Test, Sense),
}

/// The tests, cheapest first.
#[derive(Debug, Clone)]
pub(super) enum Test {
    /// A set of levels, as bits.
    Level(u16),
    Time(Order, Tai),
    Audience(AudienceTest),
    Place(PlaceTest),
    Body(BodyTest),
}

/// A test of a record's audiences.
#[derive(Debug, Clone)]
pub(super) struct AudienceTest {
    slot: usize,
    test: TextTest,
}

/// The result of comparing a record's audiences.
#[derive(Debug, Clone, Copy)]
pub(super) enum AudienceMatch {
    None,
    Others,
    /// A matching audience is present, or the record is for everyone.
    Wanted,
}

impl AudienceTest {
    pub(super) fn found<'a>(
        &self,
        is_for_everyone: bool,
        names: impl Iterator<Item = &'a str>,
    ) -> AudienceMatch {
        let mut found = AudienceMatch::None;
        for name in names {
            if self.test.affirms_audience(name) {
                return AudienceMatch::Wanted;
            }
            found = AudienceMatch::Others;
        }
        if is_for_everyone { AudienceMatch::Wanted } else { found }
    }

    pub(super) fn holds(&self, found: AudienceMatch) -> bool {
        match self.test.sense() {
            Sense::Is => matches!(found, AudienceMatch::Wanted),
            Sense::IsNot => matches!(found, AudienceMatch::Others),
        }
    }
}

/// A test of a field in a packet's tables, shared by many records.
#[derive(Debug, Clone)]
pub(super) struct PlaceTest {
    slot: usize,
    pub(super) question: Question,
}

#[derive(Debug, Clone)]
pub(super) enum Question {
    Text(TextField, TextTest),
    Line(Order, u32),
}

/// The packet's table with the field.
enum Table {
    Loggers,
    Origins,
    Sites,
}

impl PlaceTest {
    fn table(&self) -> Table {
        match self.question {
            Question::Text(field, _) if field.position() == Position::Logger => Table::Loggers,
            Question::Text(field, _) if field.position() == Position::Origin => Table::Origins,
            Question::Text(..) | Question::Line(..) => Table::Sites,
        }
    }

    pub(super) fn holds<'a>(&self, line: u32, text: impl Fn(TextField) -> &'a str) -> bool {
        match &self.question {
            Question::Text(field, test) => test.holds(text(*field)),
            Question::Line(order, wanted) => line != 0 && order.holds(line.cmp(wanted)),
        }
    }
}

/// A test of the body.
#[derive(Debug, Clone)]
pub(super) enum BodyTest {
    Text(TextField, TextTest),
    Value(Path, ValueTest),
    Words(Vec<String>),
}

impl Test {
    fn decide(&self, look: &impl FieldAccess) -> Option<bool> {
        Some(match self {
            Self::Level(levels) => levels & bit(look.level()) != 0,
            Self::Time(order, time) => order.holds(look.time().cmp(time)),
            Self::Audience(test) => look.audience(test),
            Self::Place(test) => look.place(test),
            Self::Body(test) => return look.body(test),
        })
    }

    fn cost(&self) -> u8 {
        match self {
            Self::Level(_) => 0,
            Self::Time(..) => 1,
            Self::Audience(_) => 2,
            Self::Place(_) => 3,
            Self::Body(BodyTest::Text(field, _)) if *field != TextField::Message => 4,
            Self::Body(BodyTest::Value(..)) => 5,
            Self::Body(_) => 6,
        }
    }

    pub(super) fn reach(&self) -> Bounds {
        match self {
            Self::Level(levels) => Bounds { levels: *levels, ..Bounds::ALL },
            Self::Time(order, time) => Bounds::of_time(*order, *time),
            Self::Audience(_) | Self::Place(_) | Self::Body(_) => Bounds::ALL,
        }
    }
}

impl Node {
    /// The result, if it is decided.
    fn decide(&self, look: &impl FieldAccess) -> Option<bool> {
        match self {
            Self::All(nodes) => Self::first(nodes, look, false),
            Self::Any(nodes) => Self::first(nodes, look, true),
            Self::Leaf(test, sense) => {
                test.decide(look).map(|holds| holds == (*sense == Sense::Is))
            }
        }
    }

    /// The result of a list: one decisive term decides it, or all terms together.
    fn first(nodes: &[Self], look: &impl FieldAccess, decisive: bool) -> Option<bool> {
        let mut known = Some(!decisive);
        for node in nodes {
            match node.decide(look) {
                Some(decided) if decided == decisive => return Some(decisive),
                Some(_) => {}
                None => known = None,
            }
        }
        known
    }

    fn each_test(&self, act: &mut impl FnMut(&Test)) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => {
                nodes.iter().for_each(|node| node.each_test(act));
            }
            Self::Leaf(test, _) => act(test),
        }
    }

    fn cost(&self) -> u8 {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(Self::cost).max().unwrap_or(0),
            Self::Leaf(test, _) => test.cost(),
        }
    }

    fn reach(&self) -> Bounds {
        match self {
            Self::All(nodes) => nodes.iter().map(Self::reach).fold(Bounds::ALL, Bounds::both),
            Self::Any(nodes) => nodes.iter().map(Self::reach).fold(Bounds::NONE, Bounds::either),
            Self::Leaf(test, _) => test.reach(),
        }
    }
}

/// Bounds on the levels and times of matching records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    levels: u16,
    pub(super) from: Tai,
    pub(super) to: Tai,
}

const FIRST: Tai = Tai::from_nanos(i64::MIN);
const LAST: Tai = Tai::from_nanos(i64::MAX);
/// The bits of levels 1 to 11.
const ALL_LEVELS: u16 = 0b1111_1111_1110;

impl Bounds {
    const ALL: Self = Self { levels: ALL_LEVELS, from: FIRST, to: LAST };
    const NONE: Self = Self { levels: 0, from: LAST, to: FIRST };

    fn of_time(order: Order, time: Tai) -> Self {
        let nanos = time.nanos();
        let (before, behind) = (nanos.checked_sub(1), nanos.checked_add(1));
        let (from, to) = match order {
            Order::Equal => (Some(nanos), Some(nanos)),
            Order::NotEqual => (Some(i64::MIN), Some(i64::MAX)),
            Order::Less => (Some(i64::MIN), before),
            Order::AtMost => (Some(i64::MIN), Some(nanos)),
            Order::Greater => (behind, Some(i64::MAX)),
            Order::AtLeast => (Some(nanos), Some(i64::MAX)),
        };
        let (Some(from), Some(to)) = (from, to) else { return Self::NONE };
        Self { from: Tai::from_nanos(from), to: Tai::from_nanos(to), ..Self::ALL }
    }

    fn or_none(self) -> Self {
        if self.levels == 0 || self.from > self.to { Self::NONE } else { self }
    }

    fn both(self, other: Self) -> Self {
        let levels = self.levels & other.levels;
        Self { levels, from: self.from.max(other.from), to: self.to.min(other.to) }.or_none()
    }

    fn either(self, other: Self) -> Self {
        let (one, two) = (self.or_none(), other.or_none());
        let levels = one.levels | two.levels;
        Self { levels, from: one.from.min(two.from), to: one.to.max(two.to) }
    }
}

pub(super) fn bit(level: Level) -> u16 {
    1 << level.number()
}

struct Compiler<'v> {
    now: Tai,
    views: &'v Views,
    depth: usize,
    terms: usize,
    audiences: usize,
    places: usize,
}

impl Compiler<'_> {
    fn node(&mut self, tree: &Expression, sense: Sense) -> Result<Node, CompileError> {
        match (tree, sense) {
            (Expression::Term(term), _) => self.term(term, sense),
            (Expression::Not(inner), Sense::Is) => self.node(inner, Sense::IsNot),
            (Expression::Not(inner), Sense::IsNot) => self.node(inner, Sense::Is),
            (Expression::All(terms), Sense::Is) | (Expression::Any(terms), Sense::IsNot) => {
                Ok(Node::All(self.nodes(terms, sense)?))
            }
            (Expression::Any(terms), Sense::Is) | (Expression::All(terms), Sense::IsNot) => {
                Ok(Node::Any(self.nodes(terms, sense)?))
            }
        }
    }

    fn nodes(&mut self, terms: &[Expression], sense: Sense) -> Result<Vec<Node>, CompileError> {
        let nodes = terms.iter().map(|term| self.node(term, sense));
        let mut nodes: Vec<_> = nodes.collect::<Result<_, _>>()?;
        nodes.sort_by_key(Node::cost);
        Ok(nodes)
    }

    fn term(&mut self, term: &Term, sense: Sense) -> Result<Node, CompileError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(CompileError::TooLarge);
        }
        let test = match term {
            Term::View(name) => return self.view(name, sense),
            Term::Has(Field::Level | Field::Time) => Test::Level(ALL_LEVELS),
            Term::Has(Field::Line) => self.place(Question::Line(Order::AtLeast, 1)),
            Term::Has(Field::Audience) => self.audience(TextTest::There),
            Term::Has(Field::Text(field)) => self.text(*field, TextTest::There),
            Term::Has(Field::Value(path)) => {
                Test::Body(BodyTest::Value(path.clone(), ValueTest::Text(TextTest::There)))
            }
            Term::Level(order, wanted) => {
                let levels = (1..=11).filter_map(Level::new);
                let levels = levels.filter(|level| order.holds(level.cmp(wanted)));
                Test::Level(levels.fold(0, |levels, level| levels | bit(level)))
            }
            Term::Time(order, Moment::At(time)) => Test::Time(*order, *time),
            Term::Time(order, Moment::Ago(nanos)) => {
                let time = self.now.nanos().saturating_sub(*nanos);
                Test::Time(*order, Tai::from_nanos(time))
            }
            Term::Line(order, line) => self.place(Question::Line(*order, *line)),
            Term::Audience(test) => self.audience(test.clone()),
            Term::Text(field, test) => self.text(*field, test.clone()),
            Term::Value(path, test) => Test::Body(BodyTest::Value(path.clone(), test.clone())),
            Term::Words(words) => Test::Body(BodyTest::Words(words.clone())),
        };
        // Ordered tests are negated by the inverse operators, which keeps the bounds exact.
        Ok(match (test, sense) {
            (Test::Level(levels), Sense::IsNot) => {
                Node::Leaf(Test::Level(ALL_LEVELS & !levels), Sense::Is)
            }
            (Test::Time(order, time), Sense::IsNot) => {
                Node::Leaf(Test::Time(order.inverse(), time), Sense::Is)
            }
            (test, sense) => Node::Leaf(test, sense),
        })
    }

    fn text(&mut self, field: TextField, test: TextTest) -> Test {
        match field.position() {
            Position::Logger | Position::Origin | Position::Site => {
                self.place(Question::Text(field, test))
            }
            Position::Body(_) | Position::Derived => Test::Body(BodyTest::Text(field, test)),
        }
    }

    fn place(&mut self, question: Question) -> Test {
        let slot = self.places;
        self.places += 1;
        Test::Place(PlaceTest { slot, question })
    }

    fn audience(&mut self, test: TextTest) -> Test {
        let slot = self.audiences;
        self.audiences += 1;
        Test::Audience(AudienceTest { slot, test })
    }

    fn view(&mut self, name: &str, sense: Sense) -> Result<Node, CompileError> {
        let Some(view) = self.views.get(name) else {
            let known = self.views.names().collect::<Vec<_>>().join(", ");
            return Err(CompileError::UnknownView { name: name.to_owned(), known });
        };
        if self.depth == MAX_VIEWS {
            return Err(CompileError::TooDeep(name.to_owned()));
        }
        self.depth += 1;
        let node = self.node(&view.0, sense);
        self.depth -= 1;
        node
    }
}
