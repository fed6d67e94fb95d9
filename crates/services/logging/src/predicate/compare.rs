//! Single comparisons of a field with a value.
//!
//! An absent field makes every comparison false, also `!=` and `!~`: these require a field that is
//! present and different. Of several values one match is sufficient; `!=` and `!~` require all of
//! them to differ.

use std::cmp::Ordering;
use std::fmt;

use regex::{Regex, RegexBuilder};

use super::glob::Glob;
use crate::value::Value;

/// The most bytes of a compiled regular expression, and of its cache. A page of alternatives fits,
/// and about ten `\w`, each of which is large because of Unicode. A hostile repetition does not
/// fit.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Order {
    pub(super) fn holds(self, found: Ordering) -> bool {
        match self {
            Self::Equal => found.is_eq(),
            Self::NotEqual => found.is_ne(),
            Self::Less => found.is_lt(),
            Self::AtMost => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::AtLeast => found.is_ge(),
        }
    }

    /// The inverse operator.
    pub(super) fn inverse(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::AtLeast,
            Self::AtMost => Self::Greater,
            Self::Greater => Self::AtMost,
            Self::AtLeast => Self::Less,
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }

    fn sense(self) -> Sense {
        if self == Self::NotEqual { Sense::IsNot } else { Sense::Is }
    }

    /// The operator without a negation: `=` for `!=`.
    fn affirmed(self) -> Self {
        if self == Self::NotEqual { Self::Equal } else { self }
    }
}

/// Whether a test is affirmed or negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sense {
    Is,
    IsNot,
}

/// A regular expression. Expressions with the same text are equal.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Compiles the expression; fails with a message.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        let built = builder.size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build();
        built.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            // The last line has the error, those before it its position.
            error => error.to_string().lines().last().unwrap_or_default().to_owned(),
        })
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// A test of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TextTest {
    There,
    Order(Order, String),
    Glob(Sense, Glob),
    Regex(Sense, Pattern),
}

impl TextTest {
    pub(super) fn sense(&self) -> Sense {
        match self {
            Self::There => Sense::Is,
            Self::Order(order, _) => order.sense(),
            Self::Glob(sense, _) | Self::Regex(sense, _) => *sense,
        }
    }

    /// Whether a text satisfies the affirmed form of the test.
    pub(super) fn affirms(&self, text: &str) -> bool {
        match self {
            Self::There => true,
            Self::Order(order, wanted) => order.affirmed().holds(text.cmp(wanted.as_str())),
            Self::Glob(_, glob) => glob.matches(text),
            Self::Regex(_, pattern) => pattern.0.is_match(text),
        }
    }

    /// The same for the name of an audience, ignoring case.
    pub(super) fn affirms_audience(&self, name: &str) -> bool {
        match self {
            Self::Order(_, wanted) => name.eq_ignore_ascii_case(wanted),
            test => test.affirms(name),
        }
    }

    /// Whether a field with one text satisfies the test. An empty text is absent.
    pub(super) fn holds(&self, text: &str) -> bool {
        !text.is_empty() && self.affirms(text) == (self.sense() == Sense::Is)
    }
}

/// A test of typed values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueTest {
    /// A test of their text.
    Text(TextTest),
    Number(Order, Number),
}

impl ValueTest {
    /// Whether the values of one name satisfy the test.
    pub(super) fn holds(&self, values: &[&Value]) -> bool {
        let affirmed = values.iter().any(|value| self.affirms(value));
        let sense = match self {
            Self::Text(test) => test.sense(),
            Self::Number(order, _) => order.sense(),
        };
        match sense {
            Sense::Is => affirmed,
            Sense::IsNot => !values.is_empty() && !affirmed,
        }
    }

    fn affirms(&self, value: &Value) -> bool {
        match self {
            Self::Text(test) => match value {
                Value::Text(text) => test.affirms(text),
                value => test.affirms(&value.to_string()),
            },
            Self::Number(order, wanted) => {
                let found = Number::of(value).and_then(|number| number.compare(*wanted));
                found.is_some_and(|found| order.affirmed().holds(found))
            }
        }
    }
}

/// A number. Integers are compared exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    WholeRecord(i64),
    Real(f64),
}

impl Number {
    /// Parses a finite number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The library also parses `inf` and `nan`, which are words here.
        if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
            return None;
        }
        let real = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Real);
        text.parse().ok().map(Self::WholeRecord).or_else(real)
    }

    /// A value's number. Numeric texts count, as all of ACS's values are texts.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self::WholeRecord(*number)),
            Value::Double(number) => Some(Self::Real(*number)),
            Value::Text(text) => Self::parse(text),
            _ => None,
        }
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::WholeRecord(one), Self::WholeRecord(two)) => Some(one.cmp(&two)),
            (Self::Real(one), Self::Real(two)) => one.partial_cmp(&two),
            (Self::WholeRecord(one), Self::Real(two)) => compare(one, two),
            (Self::Real(one), Self::WholeRecord(two)) => compare(two, one).map(Ordering::reverse),
        }
    }
}

fn compare(whole: i64, real: f64) -> Option<Ordering> {
    /// Two to the power of 63: one more than the largest integer.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if real >= BEYOND {
        return Some(Ordering::Less);
    }
    if real < -BEYOND {
        return Some(Ordering::Greater);
    }
    let cut = real.trunc();
    let rest = cut.partial_cmp(&real)?;
    Some(whole.cmp(&(cut as i64)).then(rest))
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WholeRecord(number) => number.fmt(f),
            // With a point or an exponent, so that it parses as a floating-point number again.
            Self::Real(number) => write!(f, "{number:?}"),
        }
    }
}

/// The values of one name; pairs may repeat names.
pub(super) fn named<'a, 'v: 'a>(
    pairs: impl Iterator<Item = (&'a str, &'v Value)>,
    path: &[String],
) -> Vec<&'v Value> {
    let Some((first, rest)) = path.split_first() else { return Vec::new() };
    let found = pairs.filter(|(name, _)| name == first);
    found.flat_map(|(_, value)| inside(value, rest)).collect()
}

/// The values at a path inside a value.
pub(super) fn inside<'v>(value: &'v Value, path: &[String]) -> Vec<&'v Value> {
    match value {
        value if path.is_empty() => vec![value],
        Value::Map(pairs) => named(pairs.iter().map(|(name, value)| (name.as_str(), value)), path),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [Order; 6] =
        [Order::Equal, Order::NotEqual, Order::Less, Order::AtMost, Order::Greater, Order::AtLeast];

    fn text(order: Order, wanted: &str) -> TextTest {
        TextTest::Order(order, wanted.to_owned())
    }

    #[test]
    fn what_is_not_there_is_neither_equal_nor_unequal() {
        for order in ORDERS {
            assert!(!text(order, "a").holds(""), "{order:?}");
            assert!(!ValueTest::Number(order, Number::WholeRecord(1)).holds(&[]), "{order:?}");
        }
        assert!(text(Order::NotEqual, "a").holds("b"));
        assert!(!TextTest::There.holds(""));
    }

    #[test]
    fn of_several_values_one_is_enough_and_none_may_be_what_is_denied() {
        let (one, two) = (Value::Int(1), Value::from("2"));
        let number = |order, wanted| ValueTest::Number(order, Number::WholeRecord(wanted));
        assert!(number(Order::Equal, 2).holds(&[&one, &two]));
        assert!(!number(Order::NotEqual, 2).holds(&[&one, &two]));
        assert!(number(Order::NotEqual, 3).holds(&[&one, &two]));
    }

    #[test]
    fn numbers_are_compared_as_numbers_whatever_they_are_kept_as() {
        let at_least = |wanted| ValueTest::Number(Order::AtLeast, Number::parse(wanted).unwrap());
        for (wanted, value, expected) in [
            ("5", Value::Int(5), true),
            ("5.5", Value::Int(5), false),
            ("-5.5", Value::Int(-5), true),
            ("5", Value::Double(5.5), true),
            ("9", Value::from("10"), true),
            ("9", Value::from("ten"), false),
            ("9", Value::Double(f64::NAN), false),
            ("9", Value::Double(f64::INFINITY), true),
            ("0", Value::Bool(true), false),
            ("9007199254740993", Value::Double(9_007_199_254_740_992.0), false),
            ("9223372036854775807", Value::Double(9.3e18), true),
        ] {
            assert_eq!(at_least(wanted).holds(&[&value]), expected, "{value:?} >= {wanted}");
        }
        for word in ["inf", "-inf", "nan", "+nan", "1e999", "", "-", "5 m", "0x5", "five"] {
            assert_eq!(Number::parse(word), None, "{word}");
        }
    }

    #[test]
    fn expressions_have_limits() {
        assert_eq!(Pattern::new("(a{1000}){1000}"), Err("it is too large".to_owned()));
        assert_eq!(Pattern::new("(a"), Err("error: unclosed group".to_owned()));
        assert!(Pattern::new(r"(?i)\btimeout\b \d+ µs").is_ok());
        assert!(Pattern::new(r"^(\w+)\s(\w+)\s(\w+): \w+ \w+ \S+ \w+ \w+ \w+$").is_ok());
        let hundred: Vec<_> = (0..100).map(|n| format!("a rather long sentence {n}")).collect();
        assert!(Pattern::new(&hundred.join("|")).is_ok());
    }

    proptest! {
        #[test]
        fn whole_and_real_numbers_have_one_order(whole: i64, near in -3..=3_i64, real: f64) {
            for real in [real, whole as f64, whole.saturating_add(near) as f64 + 0.5] {
                let found = compare(whole, real);
                // 128 bits have room for both, where the real one has no fraction.
                let exact = i128::from(whole).partial_cmp(&(real.floor() as i128)).unwrap();
                let fraction = real.floor() < real && exact.is_eq();
                let expected = if fraction { Ordering::Less } else { exact };
                prop_assert_eq!(found, (!real.is_nan()).then_some(expected));
            }
        }

        #[test]
        fn the_inverse_holds_where_it_does_not(one: u8, two: u8) {
            for order in ORDERS {
                let found = one.cmp(&two);
                prop_assert_ne!(order.holds(found), order.inverse().holds(found));
            }
        }

        #[test]
        fn numbers_come_back(number: i64, real: f64) {
            for number in [Number::WholeRecord(number), Number::Real(real)] {
                let finite = !matches!(number, Number::Real(real) if !real.is_finite());
                let back = Number::parse(&number.to_string());
                prop_assert_eq!(back, finite.then_some(number));
            }
        }
    }
}
