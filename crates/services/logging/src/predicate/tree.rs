//! The syntax tree of a predicate, and its text, which parses to the same tree.

use std::fmt;

use helio_core::Tai;

use super::compare::{Number, Order, Sense, TextTest, ValueTest};
use crate::fields::TextField;
use crate::level::Level;

/// Lists have at least two terms and no list of the same kind directly inside. Only the whole tree
/// may be an empty list, which everything matches.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Term(Term),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Level(Order, Level),
    Time(Order, Moment),
    Line(Order, u32),
    Audience(TextTest),
    Text(TextField, TextTest),
    Value(Path, ValueTest),
    Has(Field),
    Words(Vec<String>),
    View(String),
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    At(Tai),
    /// This many nanoseconds before now.
    Ago(i64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Level,
    Time,
    Line,
    Audience,
    Text(TextField),
    Value(Path),
}

/// The path of a typed value, and of a value inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    /// At least one, none of them empty.
    pub(super) names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Data,
    Arguments,
}

pub(super) const KEYWORDS: [&str; 5] = ["and", "or", "not", "has", "view"];

impl Field {
    /// All fields except `data.` and `args.`.
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Level, Self::Time, Self::Audience, Self::Line];
        others.into_iter().chain(TextField::ALL.map(Self::Text))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Time => "time",
            Self::Audience => "audience",
            Self::Line => "line",
            Self::Text(field) => field.predicate_name(),
            Self::Value(path) => path.root.name(),
        }
    }

    /// The field of a name, in upper or lower case.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::all().find(|field| field.name().eq_ignore_ascii_case(name))
    }

    /// All names, for messages.
    pub(super) fn names() -> String {
        let names = Self::all().map(|field| field.name()).chain(["data.NAME", "args.NAME"]);
        names.collect::<Vec<_>>().join(", ")
    }
}

impl Root {
    const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Arguments => "args",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        let mut roots = [Self::Data, Self::Arguments].into_iter();
        roots.find(|root| root.name().eq_ignore_ascii_case(name))
    }
}

impl Expression {
    pub(super) fn all(terms: Vec<Self>) -> Self {
        let flat = terms.into_iter().flat_map(|term| match term {
            Self::All(terms) => terms,
            term => vec![term],
        });
        one_or(flat.collect(), Self::All)
    }

    pub(super) fn any(terms: Vec<Self>) -> Self {
        let flat = terms.into_iter().flat_map(|term| match term {
            Self::Any(terms) => terms,
            term => vec![term],
        });
        one_or(flat.collect(), Self::Any)
    }

    fn list(f: &mut fmt::Formatter<'_>, terms: &[Self], between: &str) -> fmt::Result {
        for (place, term) in terms.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { between })?;
            match term {
                // Only `or` binds more loosely than `and`.
                Self::Any(_) => write!(f, "({term})")?,
                term => write!(f, "{term}")?,
            }
        }
        Ok(())
    }
}

fn one_or(mut terms: Vec<Expression>, list: fn(Vec<Expression>) -> Expression) -> Expression {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        last => {
            terms.extend(last);
            list(terms)
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(terms) => Self::list(f, terms, " and "),
            Self::Any(terms) => Self::list(f, terms, " or "),
            Self::Not(inner) => match **inner {
                Self::All(_) | Self::Any(_) => write!(f, "not ({inner})"),
                _ => write!(f, "not {inner}"),
            },
            Self::Term(term) => term.fmt(f),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(order, level) => write!(f, "level {} {level}", order.sign()),
            Self::Time(order, moment) => write!(f, "time {} {moment}", order.sign()),
            Self::Line(order, line) => write!(f, "line {} {line}", order.sign()),
            Self::Audience(test) => write!(f, "audience {test}"),
            Self::Text(field, test) => write!(f, "{} {test}", Field::Text(*field)),
            Self::Value(path, ValueTest::Text(test)) => write!(f, "{path} {test}"),
            Self::Value(path, ValueTest::Number(order, number)) => {
                write!(f, "{path} {} {number}", order.sign())
            }
            Self::Has(field) => write!(f, "has {field}"),
            Self::Words(words) => match words.as_slice() {
                [word] if !is_reserved(word) => f.write_str(word),
                words => write!(f, "\"{}\"", words.join(" ")),
            },
            Self::View(name) => write!(f, "view {}", QuotedIfNeeded(name)),
        }
    }
}

fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || Field::of(word).is_some() || Root::of(word).is_some()
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(path) => path.fmt(f),
            field => f.write_str(field.name()),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.name())?;
        self.names.iter().try_for_each(|name| match name.contains('.') {
            true => write!(f, ".{}", Quoted(name)),
            false => write!(f, ".{}", QuotedIfNeeded(name)),
        })
    }
}

impl fmt::Display for TextTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Never displayed: `has` is a separate term.
            Self::There => Ok(()),
            Self::Order(order, text) => write!(f, "{} {}", order.sign(), QuotedIfNeeded(text)),
            Self::Glob(Sense::Is, glob) => write!(f, "= {glob}"),
            Self::Glob(Sense::IsNot, glob) => write!(f, "!= {glob}"),
            Self::Regex(Sense::Is, pattern) => write!(f, "~ {}", QuotedIfNeeded(pattern.as_str())),
            Self::Regex(Sense::IsNot, pattern) => {
                write!(f, "!~ {}", QuotedIfNeeded(pattern.as_str()))
            }
        }
    }
}

/// The units of times before now, each a multiple of the next.
pub(super) const UNITS: [(&str, i64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::Ago(0) => f.write_str("now"),
            Self::Ago(nanos) => {
                let unit = UNITS.iter().find(|(_, unit)| nanos % unit == 0);
                let (name, unit) = unit.unwrap_or(&("ns", 1));
                write!(f, "-{}{name}", nanos / unit)
            }
        }
    }
}

/// Displays a text, in quotes if it has special characters.
struct QuotedIfNeeded<'a>(&'a str);

impl fmt::Display for QuotedIfNeeded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
        let is_plain = !self.0.is_empty() && self.0.chars().all(plain);
        if is_plain && Number::parse(self.0).is_none() {
            return f.write_str(self.0);
        }
        Quoted(self.0).fmt(f)
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}
