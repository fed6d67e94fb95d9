//! Validation of a command's values against its interface.
//!
//! The interface defines array lengths, the ranges of SAL's integer types, and enumerations; the
//! component may add limits. The rules are also available as data ([`Checks::rules`]), for engines
//! that do not store values as [`Value`].
//!
//! Labels that are all powers of two, at least three of them and 4 among them, are flags: any of
//! them may be combined, and 0 is allowed. Other enumerations allow only the labelled values.

use std::fmt;

use helio_core::schema::{Field, NodeId, Type};
use helio_core::{Schema, Value};
use thiserror::Error;

/// The most labels that an error's text lists.
const MAX_LISTED: usize = 20;

/// The fewest labels of an enumeration of flags.
const MIN_FLAGS: usize = 3;

/// A value that a command's interface does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}; it must be {allowed}")]
pub struct CheckError {
    /// The field; for arrays with the element's index, for example `forces[3]`.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

/// An invalid limit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LimitError {
    /// There is no such field.
    #[error("there is no field {0:?}; the fields are: {1}")]
    Unknown(String, String),
    /// The field is not a number.
    #[error("the field {0} is no number and can have no limits")]
    NoNumber(String),
    /// The limits exclude every value.
    #[error("the limits of {0} leave nothing: the smallest is {1}, the largest {2}")]
    Empty(String, f64, f64),
}

/// Whether NaN is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Nan {
    /// Allowed, whatever the limits: in SAL it often stands for "keep".
    #[default]
    Allowed,
    /// Not allowed.
    Refused,
}

/// Limits of a number, set by a component beyond its interface, in the field's unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// Whether NaN is allowed.
    pub nan: Nan,
}

/// The kind of a field's values, for the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// Integers.
    Integer,
    /// Floating point numbers.
    Real,
    /// Other values.
    Other,
}

/// An enumeration of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// The labels and their values.
    pub labels: Vec<(String, i64)>,
    /// Whether the values are flags that may be combined.
    pub flags: bool,
}

/// The rules for one field of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldRule {
    /// The field's name.
    pub name: String,
    /// Its position among the record's fields.
    pub position: usize,
    /// The kind of its values.
    pub kind: FieldKind,
    /// The number of elements of its array.
    pub length: Option<usize>,
    /// The smallest and the largest integer of its type.
    pub range: Option<(i64, i64)>,
    /// The allowed values.
    pub enumeration: Option<Labels>,
    /// The component's own limits.
    pub limits: Option<Limits>,
    /// Whether the range is narrower than its encoding.
    narrow: bool,
}

/// The rules for the values of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Checks {
    rules: Vec<FieldRule>,
}

impl Checks {
    /// The rules of a schema: one for each field of its record.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let fields = schema.fields().iter().enumerate();
        Self { rules: fields.map(|(at, field)| FieldRule::new(schema, at, field)).collect() }
    }

    /// Sets the component's own limits of a field.
    ///
    /// # Errors
    /// [`LimitError`] if there is no such number, or the limits exclude every value.
    pub fn limit(&mut self, field: &str, limits: Limits) -> Result<(), LimitError> {
        let (min, max) = (limits.min.unwrap_or(f64::MIN), limits.max.unwrap_or(f64::MAX));
        if min.is_nan() || max.is_nan() || min > max {
            return Err(LimitError::Empty(field.to_owned(), min, max));
        }
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.name == field) else {
            let names: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
            return Err(LimitError::Unknown(field.to_owned(), names.join(", ")));
        };
        if rule.kind == FieldKind::Other {
            return Err(LimitError::NoNumber(field.to_owned()));
        }
        rule.limits = Some(limits);
        Ok(())
    }

    /// The rules, in the order of the fields.
    #[must_use]
    pub fn rules(&self) -> &[FieldRule] {
        &self.rules
    }

    /// Checks a decoded record.
    ///
    /// # Errors
    /// [`CheckError`] for the first invalid value.
    pub fn check(&self, record: &Value) -> Result<(), CheckError> {
        let Value::Record(values) = record else {
            return Err(wrong("the sample", record.word().to_owned(), "a record".to_owned()));
        };
        if values.len() != self.rules.len() {
            let (has, needs) = (values.len(), self.rules.len());
            return Err(wrong("the sample", format!("{has} fields"), format!("{needs} fields")));
        }
        self.rules.iter().zip(values).try_for_each(|(rule, value)| rule.check(value))
    }
}

impl FieldRule {
    fn new(schema: &Schema, position: usize, field: &Field) -> Self {
        let kind = schema.nullable(field.kind).map_or(field.kind, |(inner, _)| inner);
        let scalar = schema.items(kind).unwrap_or(kind);
        let (range, narrow) = range(schema, scalar, field.sal_type.as_deref());
        let labels = field.enumeration.clone().filter(|labels| !labels.is_empty());
        Self {
            name: field.name.clone(),
            position,
            kind: match schema.node(scalar).kind {
                Type::Int | Type::Long => FieldKind::Integer,
                Type::Float | Type::Double => FieldKind::Real,
                _ => FieldKind::Other,
            },
            length: field.length,
            enumeration: labels.map(|labels| Labels { flags: are_flags(&labels), labels }),
            range,
            limits: None,
            narrow,
        }
    }

    /// Checks a value of the field.
    ///
    /// # Errors
    /// [`CheckError`] if it is not allowed.
    pub fn check(&self, value: &Value) -> Result<(), CheckError> {
        let value = value.bare();
        if let (Some(length), Some(elements)) = (self.length, elements(value))
            && length != elements
        {
            let has = format!("an array of {elements}");
            return Err(wrong(&self.name, has, format!("an array of {length}")));
        }
        if self.kind == FieldKind::Other || self.is_open() {
            return Ok(());
        }
        self.check_numbers(value)
    }

    /// Whether every number that the encoding can carry is allowed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.narrow && self.enumeration.is_none() && self.limits.is_none()
    }

    fn check_numbers(&self, value: &Value) -> Result<(), CheckError> {
        match value {
            Value::Null => Ok(()),
            Value::Int(number) => self.check_integer(None, (*number).into()),
            Value::Long(number) => self.check_integer(None, *number),
            Value::Float(number) => self.check_real(None, (*number).into()),
            Value::Double(number) => self.check_real(None, *number),
            Value::Ints(all) => {
                each(all, |at, number| self.check_integer(Some(at), i64::from(number)))
            }
            Value::Longs(all) => each(all, |at, number| self.check_integer(Some(at), number)),
            Value::Floats(all) => each(all, |at, number| self.check_real(Some(at), number.into())),
            Value::Doubles(all) => each(all, |at, number| self.check_real(Some(at), number)),
            Value::Array(all) => all.iter().try_for_each(|value| self.check_numbers(value.bare())),
            other => Err(wrong(&self.name, other.word().to_owned(), "a number".to_owned())),
        }
    }

    /// Checks an integer: the field's, or an element of its array at an index.
    ///
    /// # Errors
    /// [`CheckError`] if it is not allowed.
    pub fn check_integer(&self, at: Option<usize>, number: i64) -> Result<(), CheckError> {
        let refused = |allowed| Err(wrong(&self.place(at), number.to_string(), allowed));
        if let Some((min, max)) = self.range.filter(|(min, max)| number < *min || number > *max) {
            return refused(format!("{min} to {max}"));
        }
        if let Some(labels) = self.enumeration.as_ref().filter(|labels| !labels.allow(number)) {
            return refused(labels.to_string());
        }
        match self.limits.filter(|limits| !limits.allow(number as f64)) {
            Some(limits) => refused(limits.to_string()),
            None => Ok(()),
        }
    }

    /// Checks a floating point number: the field's, or an element of its array at an index.
    ///
    /// # Errors
    /// [`CheckError`] if it is not allowed.
    pub fn check_real(&self, at: Option<usize>, number: f64) -> Result<(), CheckError> {
        match self.limits.filter(|limits| !limits.allow(number)) {
            Some(limits) => Err(wrong(&self.place(at), number.to_string(), limits.to_string())),
            None => Ok(()),
        }
    }

    fn place(&self, at: Option<usize>) -> String {
        at.map_or_else(|| self.name.clone(), |at| format!("{}[{at}]", self.name))
    }
}

impl Limits {
    fn allow(&self, number: f64) -> bool {
        if number.is_nan() {
            return self.nan == Nan::Allowed;
        }
        self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{min} to {max}")?,
            (Some(min), None) => write!(f, "at least {min}")?,
            (None, Some(max)) => write!(f, "at most {max}")?,
            (None, None) => write!(f, "any number")?,
        }
        f.write_str(if self.nan == Nan::Refused { ", not NaN" } else { "" })
    }
}

impl Labels {
    fn allow(&self, number: i64) -> bool {
        if self.flags {
            let all = self.labels.iter().fold(0, |all, (_, value)| all | value);
            return number & !all == 0;
        }
        self.labels.iter().any(|(_, value)| *value == number)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.flags { "0 or a sum of " } else { "" })?;
        for (at, (label, value)) in self.labels.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{value} ({label})", if at == 0 { "" } else { ", " })?;
        }
        let more = self.labels.len().saturating_sub(MAX_LISTED);
        if more > 0 { write!(f, " or one of {more} more") } else { Ok(()) }
    }
}

fn are_flags(labels: &[(String, i64)]) -> bool {
    let mut values: Vec<i64> = labels.iter().map(|label| label.1).filter(|v| *v != 0).collect();
    values.sort_unstable();
    values.dedup();
    values.len() >= MIN_FLAGS
        && values.contains(&4)
        && values.iter().all(|value| value.count_ones() == 1 && *value > 0)
}

/// The range of an integer type, and whether its encoding can carry others.
fn range(schema: &Schema, id: NodeId, sal: Option<&str>) -> (Option<(i64, i64)>, bool) {
    match (&schema.node(id).kind, sal) {
        // SAL has both: its own programs write 0 to 255, older ones -128 to 127.
        (Type::Int, Some("byte")) => (Some((i8::MIN.into(), u8::MAX.into())), true),
        (Type::Int, Some("short")) => (Some((i16::MIN.into(), i16::MAX.into())), true),
        (Type::Int, Some("unsigned short")) => (Some((0, u16::MAX.into())), true),
        (Type::Long, Some("unsigned int")) => (Some((0, u32::MAX.into())), true),
        (Type::Int, _) => (Some((i32::MIN.into(), i32::MAX.into())), false),
        (Type::Long, _) => (Some((i64::MIN, i64::MAX)), false),
        _ => (None, false),
    }
}

fn elements(value: &Value) -> Option<usize> {
    Some(match value {
        Value::Array(all) => all.len(),
        Value::Booleans(all) => all.len(),
        Value::Ints(all) => all.len(),
        Value::Longs(all) => all.len(),
        Value::Floats(all) => all.len(),
        Value::Doubles(all) => all.len(),
        _ => return None,
    })
}

fn each<T: Copy>(
    all: &[T],
    mut check: impl FnMut(usize, T) -> Result<(), CheckError>,
) -> Result<(), CheckError> {
    all.iter().enumerate().try_for_each(|(at, number)| check(at, *number))
}

fn wrong(field: &str, value: String, allowed: String) -> CheckError {
    CheckError { field: field.to_owned(), value, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "record", "name": "move", "fields": [
        {"name": "axis", "type": "int", "salType": "byte"},
        {"name": "port", "type": "int", "salType": "unsigned short"},
        {"name": "mask", "type": "long", "salType": "unsigned int"},
        {"name": "door", "type": "int", "enumeration": {"Open": 1, "Closed": 2, "Ajar": 3}},
        {"name": "vent", "type": "int", "enumeration": {"A": 1, "B": 2, "C": 4}},
        {"name": "forces", "type": {"type": "array", "items": "double"}, "length": 2},
        {"name": "note", "type": "string"},
        {"name": "angle", "type": "double"}]}"#;

    fn good() -> Vec<Value> {
        vec![
            Value::Int(-128),
            Value::Int(65_535),
            Value::Long(0xffff_ffff),
            Value::Int(1),
            Value::Int(5),
            Value::Doubles(vec![1.0, f64::NAN]),
            Value::from("x"),
            Value::Double(2.0),
        ]
    }

    fn text(checks: &Checks, at: usize, value: Value) -> String {
        let mut values = good();
        values[at] = value;
        checks.check(&Value::Record(values)).map_or_else(|error| error.to_string(), |()| "".into())
    }

    #[test]
    fn values_beyond_the_interface_are_refused() {
        let checks = Checks::new(&Schema::parse(SCHEMA).unwrap());
        let list = |text: &str| text.to_owned();
        for (at, value, expected) in [
            (0, Value::Int(-128), list("")),
            (0, Value::Int(255), list("")),
            (0, Value::Int(256), list("axis is 256; it must be -128 to 255")),
            (0, Value::Int(-129), list("axis is -129; it must be -128 to 255")),
            (1, Value::Int(-1), list("port is -1; it must be 0 to 65535")),
            (2, Value::Long(1 << 32), list("mask is 4294967296; it must be 0 to 4294967295")),
            (3, Value::Int(0), list("door is 0; it must be 1 (Open), 2 (Closed), 3 (Ajar)")),
            (4, Value::Int(0), list("")),
            (4, Value::Int(8), list("vent is 8; it must be 0 or a sum of 1 (A), 2 (B), 4 (C)")),
            (5, Value::Doubles(vec![]), list("forces is an array of 0; it must be an array of 2")),
            (0, Value::from("x"), list("axis is string; it must be a number")),
        ] {
            assert_eq!(text(&checks, at, value), expected);
        }
        assert!(
            checks.check(&Value::Null).is_err() && checks.check(&Value::Record(vec![])).is_err()
        );
    }

    #[test]
    fn a_component_adds_limits() {
        let mut checks = Checks::new(&Schema::parse(SCHEMA).unwrap());
        let limits = Limits { min: Some(0.0), max: Some(90.0), nan: Nan::Refused };
        checks.limit("angle", limits).unwrap();
        checks.limit("forces", Limits { max: Some(1.0), ..Limits::default() }).unwrap();
        assert_eq!(text(&checks, 7, Value::Double(0.0)), "");
        let nan = text(&checks, 7, Value::Double(f64::NAN));
        assert_eq!(nan, "angle is NaN; it must be 0 to 90, not NaN");
        let force = text(&checks, 5, Value::Doubles(vec![0.0, 1.5]));
        assert_eq!(force, "forces[1] is 1.5; it must be at most 1");
        assert!(matches!(checks.limit("x", limits), Err(LimitError::Unknown(..))));
        assert!(matches!(checks.limit("note", limits), Err(LimitError::NoNumber(_))));
        let empty = Limits { min: Some(2.0), max: Some(1.0), ..limits };
        assert!(matches!(checks.limit("angle", empty), Err(LimitError::Empty(..))));
    }

    #[test]
    fn flags_are_told_from_plain_enumerations() {
        let flags = |values: &[i64]| {
            are_flags(&values.iter().map(|v| (v.to_string(), *v)).collect::<Vec<_>>())
        };
        assert!(flags(&[1, 2, 4]) && flags(&[0, 1, 2, 4, 8]) && flags(&[4, 8, 16]));
        assert!(
            !flags(&[1, 2]) && !flags(&[1, 2, 3]) && !flags(&[1, 2, 3, 4]) && !flags(&[1, 2, 8])
        );
        assert!(!flags(&[i64::MIN, 2, 4]));
    }
}
