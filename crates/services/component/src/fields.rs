//! Values of a topic's public fields, accessed by name.

use std::fmt;
use std::sync::Arc;

use helio_core::Value;
use helio_core::codec::Reader;
use helio_core::schema::{Field, NodeId, Schema, Type};
use serde_json::Value as Json;
use thiserror::Error;

use crate::interface::{Shape, list};
use crate::protocol::caller::MissingFields;
use crate::protocol::checks::CheckError;

/// A value that does not fit a topic's field. The text names the field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The topic has no such field.
    #[error("{topic} has no field {field}; it has {known}")]
    NoField {
        /// The topic.
        topic: String,
        /// The requested name.
        field: String,
        /// The existing fields.
        known: String,
    },
    /// The value does not fit the field.
    #[error("{topic}, field {field}: {problem}")]
    Wrong {
        /// The topic.
        topic: String,
        /// The field.
        field: String,
        /// The problem.
        problem: String,
    },
    /// Fields of a command that were not set and have no declared default.
    #[error("{topic}: no value for {fields}; a command is sent with a value for every field")]
    Missing {
        /// The topic.
        topic: String,
        /// The fields.
        fields: String,
    },
    /// The interface or the component does not allow the value.
    #[error("{topic}: {refusal}")]
    Refused {
        /// The topic.
        topic: String,
        /// The field, its value and the allowed values.
        refusal: CheckError,
    },
}

/// Values of one topic's public fields; unset fields have their defaults.
#[derive(Clone)]
pub struct Fields {
    shape: Arc<Shape>,
    /// The whole record, including the private fields.
    record: Vec<Value>,
    /// A bit for each field that was set, by its position in the record.
    given: Vec<u64>,
}

impl Fields {
    /// Checks the values of a command: every field without a declared default was set, unless
    /// `missing` allows otherwise, and the set values have the interface's lengths, ranges and
    /// labels. Unset fields are left to the component: the default of an enumeration may have no
    /// label.
    ///
    /// # Errors
    /// [`FieldError::Missing`] naming the unset fields; [`FieldError::Refused`] naming the first
    /// invalid one.
    pub fn check(&self, missing: MissingFields) -> Result<(), FieldError> {
        let unset = self.shape.required().filter(|(place, _)| !self.is_given(*place));
        let unset: Vec<&str> = unset.map(|(_, name)| name).collect();
        if missing == MissingFields::Refuse && !unset.is_empty() {
            let topic = self.shape.topic().to_string();
            return Err(FieldError::Missing { topic, fields: list(unset.into_iter()) });
        }
        let rules = self.shape.checks().rules().iter().zip(&self.record);
        let mut given = rules.filter(|(rule, _)| self.is_given(rule.position));
        given
            .try_for_each(|(rule, value)| rule.check(value))
            .map_err(|refusal| self.shape.refused(refusal))
    }

    /// The defaults of all fields; none counts as set.
    #[must_use]
    pub fn new(shape: &Arc<Shape>) -> Self {
        Self::of(shape, shape.defaults())
    }

    /// The values of encoded public fields; all of them count as set.
    pub(crate) fn of_public(shape: &Arc<Shape>, public: &[u8]) -> Option<Self> {
        let codec = shape.codec();
        let mut bytes = Vec::new();
        codec.encode(&Value::Record(shape.defaults()), &mut bytes).ok()?;
        let place = |fields| {
            let mut reader = Reader::new(&bytes);
            codec.skip_fields(fields, &mut reader).ok()?;
            Some(bytes.len() - reader.rest().len())
        };
        let fields = shape.public();
        let replaced = place(fields.start)?..place(fields.end)?;
        bytes.splice(replaced, public.iter().copied());
        let Ok(Value::Record(mut record)) = codec.decode(&bytes) else { return None };
        let mut values = Self::new(shape);
        for place in fields {
            values.put(place, std::mem::replace(&mut record[place], Value::Null));
        }
        Some(values)
    }

    pub(crate) fn of(shape: &Arc<Shape>, record: Vec<Value>) -> Self {
        Self { shape: Arc::clone(shape), record, given: Vec::new() }
    }

    fn is_given(&self, place: usize) -> bool {
        self.given.get(place / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }

    fn put(&mut self, place: usize, value: Value) {
        self.record[place] = value;
        let word = place / 64;
        if self.given.len() <= word {
            self.given.resize(word + 1, 0);
        }
        self.given[word] |= 1 << (place % 64);
    }

    pub(crate) fn record(&self) -> &[Value] {
        &self.record
    }

    pub(crate) fn record_mut(&mut self) -> &mut Vec<Value> {
        &mut self.record
    }

    /// Takes the public values of another record of the same topic.
    pub(crate) fn take_public(&mut self, mut from: Self) {
        let public = self.shape.public();
        self.record[public.clone()].swap_with_slice(&mut from.record[public]);
    }

    /// The topic of the values.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Sets a field. Numbers are converted if nothing but a `float`'s precision is lost. An integer
    /// must be in the range of its SAL type; one with labels must have one of their values, and the
    /// label itself is accepted too.
    ///
    /// # Errors
    /// [`FieldError`] names the field; nothing changes then.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<&mut Self, FieldError> {
        let (place, value) = self.shape.take(name, value.into())?;
        self.put(place, value);
        Ok(self)
    }

    /// Sets a field from JSON; numbers may also be `"NaN"`, `"Infinity"`, `"-Infinity"`.
    ///
    /// # Errors
    /// [`FieldError`] names the field; nothing changes then.
    pub fn set_json(&mut self, name: &str, json: &Json) -> Result<&mut Self, FieldError> {
        let (place, value) = self.shape.take_json(name, json)?;
        self.put(place, value);
        Ok(self)
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.shape.place(name).and_then(|place| self.record.get(place)).map(Value::bare)
    }

    /// A number of any type; `None` if there is no such field or it is not a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Double(number) => Some(*number),
            Value::Float(number) => Some(f64::from(*number)),
            Value::Int(number) => Some(f64::from(*number)),
            Value::Long(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// An integer; `None` if there is no such field or it is not an integer.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(number) => Some(i64::from(*number)),
            Value::Long(number) => Some(*number),
            _ => None,
        }
    }

    /// A text; `None` if there is no such field or it is not a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A boolean; `None` if there is no such field or it is not a boolean.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Boolean(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The numbers of an array, of any type.
    #[must_use]
    pub fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        Some(match self.get(name)? {
            Value::Doubles(all) => all.clone(),
            Value::Floats(all) => all.iter().copied().map(f64::from).collect(),
            Value::Ints(all) => all.iter().copied().map(f64::from).collect(),
            Value::Longs(all) => all.iter().map(|number| *number as f64).collect(),
            _ => return None,
        })
    }

    /// The label of an integer field with labels.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        let number = self.integer(name)?;
        let field = &self.shape.schema().fields()[self.shape.place(name)?];
        let labels = field.enumeration.as_ref()?;
        labels.iter().find(|(_, known)| *known == number).map(|(label, _)| label.as_str())
    }

    /// The public fields as JSON, in order.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let public = self.shape.codec().fields_to_json(&self.record, self.shape.public());
        public.map_or(Json::Null, Json::Object)
    }
}

impl PartialEq for Fields {
    /// Whether the public fields are equal; all NaN are equal, and -0 equals 0.
    fn eq(&self, other: &Self) -> bool {
        let public = self.shape.public();
        self.record[public.clone()].iter().zip(&other.record[public]).all(|(a, b)| same(a, b))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape.topic(), self.to_json())
    }
}

/// Whether two values are equal for readers: all NaN are equal, and -0 equals 0.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    let both = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
    match (one, other) {
        (Value::Double(a), Value::Double(b)) => both(*a, *b),
        (Value::Float(a), Value::Float(b)) => both(f64::from(*a), f64::from(*b)),
        (Value::Doubles(a), Value::Doubles(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| both(*a, *b))
        }
        (Value::Floats(a), Value::Floats(b)) => {
            let same = |(a, b): (&f32, &f32)| both(f64::from(*a), f64::from(*b));
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (Value::Union(i, a), Value::Union(j, b)) => i == j && same(a, b),
        (Value::Record(a), Value::Record(b)) | (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1))
        }
        _ => one == other,
    }
}

impl Shape {
    /// The position of a field, and the value converted to its type; an integer must be in the
    /// range of its SAL type, and have a label if the field has labels.
    pub(crate) fn take(&self, name: &str, value: Value) -> Result<(usize, Value), FieldError> {
        let (place, value) = self.take_any(name, value)?;
        let rule = &self.checks().rules()[place];
        if !rule.is_open() {
            rule.check(&value).map_err(|refusal| self.refused(refusal))?;
        }
        Ok((place, value))
    }

    /// Like [`take`](Self::take), for any value that the field can carry.
    pub(crate) fn take_any(&self, name: &str, value: Value) -> Result<(usize, Value), FieldError> {
        let place = self.place(name).ok_or_else(|| self.no_field(name))?;
        let field = &self.schema().fields()[place];
        let found = value.word();
        let value = fit(self.schema(), field, field.kind, value).ok_or_else(|| {
            self.wrong(name, format!("{} does not fit {}", found, word(self.schema(), field)))
        })?;
        if let (Some(length), Some(elements)) = (field.length, elements(&value))
            && length != elements
        {
            return Err(self.wrong(name, format!("{elements} elements, it has {length}")));
        }
        Ok((place, value))
    }

    /// Like [`take`](Self::take), from JSON.
    pub(crate) fn take_json(&self, name: &str, json: &Json) -> Result<(usize, Value), FieldError> {
        let place = self.place(name).ok_or_else(|| self.no_field(name))?;
        let field = &self.schema().fields()[place];
        if let (Some(_), Json::String(label)) = (&field.enumeration, json) {
            return self.take(name, Value::String(label.clone()));
        }
        let object = Json::Object([(name.to_owned(), json.clone())].into_iter().collect());
        match self.codec().value_from_json(&object) {
            Ok(Value::Record(mut values)) => self.take(name, values.swap_remove(place)),
            Ok(_) => Err(self.wrong(name, "no value".to_owned())),
            Err(error) => Err(self.wrong(name, error.problem().to_string())),
        }
    }

    fn refused(&self, refusal: CheckError) -> FieldError {
        FieldError::Refused { topic: self.topic().to_string(), refusal }
    }

    pub(crate) fn no_field(&self, field: &str) -> FieldError {
        let known: Vec<_> = self.names().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        FieldError::NoField { topic: self.topic().to_string(), field: field.to_owned(), known }
    }

    pub(crate) fn wrong(&self, field: &str, problem: String) -> FieldError {
        FieldError::Wrong { topic: self.topic().to_string(), field: field.to_owned(), problem }
    }
}

fn word(schema: &Schema, field: &Field) -> String {
    let kind = &schema.node(field.kind).kind;
    match (kind, field.length, &field.sal_type) {
        (Type::Array(items), Some(length), _) => {
            format!("{length} of {}", schema.node(*items).kind.word())
        }
        (_, _, Some(sal)) => sal.clone(),
        _ => kind.word().to_owned(),
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

/// A value converted to a field's type; `None` if it does not fit.
fn fit(schema: &Schema, field: &Field, kind: NodeId, value: Value) -> Option<Value> {
    match (&schema.node(kind).kind, value) {
        (Type::Union(branches), Value::Union(branch, inner)) => {
            let inner = fit(schema, field, *branches.get(branch as usize)?, *inner)?;
            Some(Value::Union(branch, Box::new(inner)))
        }
        (Type::Union(branches), value) => branches.iter().enumerate().find_map(|(place, kind)| {
            let inner = fit(schema, field, *kind, value.clone())?;
            Some(Value::Union(u32::try_from(place).ok()?, Box::new(inner)))
        }),
        (Type::Array(items), value) => array(&schema.node(*items).kind, value),
        (Type::Int | Type::Long, Value::String(label)) => {
            let labels = field.enumeration.as_ref()?;
            let number = labels.iter().find(|(known, _)| *known == label)?.1;
            scalar(&schema.node(kind).kind, Value::Long(number))
        }
        (kind, value) => scalar(kind, value),
    }
}

fn scalar(kind: &Type, value: Value) -> Option<Value> {
    Some(match (kind, value) {
        (Type::Int, Value::Long(number)) => Value::Int(i32::try_from(number).ok()?),
        (Type::Long, Value::Int(number)) => Value::Long(i64::from(number)),
        (Type::Float, Value::Double(number)) => Value::Float(number as f32),
        (Type::Float, Value::Int(number)) => Value::Float(number as f32),
        (Type::Double, Value::Float(number)) => Value::Double(f64::from(number)),
        (Type::Double, Value::Int(number)) => Value::Double(f64::from(number)),
        (Type::Double, Value::Long(number)) => Value::Double(number as f64),
        (Type::Null, value @ Value::Null)
        | (Type::Boolean, value @ Value::Boolean(_))
        | (Type::Int, value @ Value::Int(_))
        | (Type::Long, value @ Value::Long(_))
        | (Type::Float, value @ Value::Float(_))
        | (Type::Double, value @ Value::Double(_))
        | (Type::Bytes | Type::Fixed(_), value @ Value::Bytes(_))
        | (Type::String, value @ Value::String(_))
        | (Type::Enum(_), value @ (Value::Enum(_) | Value::String(_)))
        | (Type::Map(_), value @ Value::Map(_))
        | (Type::Record(_), value @ Value::Record(_)) => value,
        _ => return None,
    })
}

fn array(items: &Type, value: Value) -> Option<Value> {
    Some(match (items, value) {
        (Type::Int, Value::Longs(all)) => {
            let ints = all.into_iter().map(i32::try_from).collect::<Result<_, _>>();
            Value::Ints(ints.ok()?)
        }
        (Type::Long, Value::Ints(all)) => Value::Longs(all.into_iter().map(i64::from).collect()),
        (Type::Float, Value::Doubles(all)) => {
            Value::Floats(all.into_iter().map(|number| number as f32).collect())
        }
        (Type::Float, Value::Ints(all)) => {
            Value::Floats(all.into_iter().map(|number| number as f32).collect())
        }
        (Type::Double, Value::Floats(all)) => {
            Value::Doubles(all.into_iter().map(f64::from).collect())
        }
        (Type::Double, Value::Ints(all)) => {
            Value::Doubles(all.into_iter().map(f64::from).collect())
        }
        (Type::Boolean, value @ Value::Booleans(_))
        | (Type::Int, value @ Value::Ints(_))
        | (Type::Long, value @ Value::Longs(_))
        | (Type::Float, value @ Value::Floats(_))
        | (Type::Double, value @ Value::Doubles(_))
        | (_, value @ Value::Array(_)) => value,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::interface::tests::interfaces;
    use helio_core::sal::TopicKind;
    use serde_json::json;

    fn fields(component: &str, kind: TopicKind, name: &str) -> Fields {
        let interface = Interface::of(&interfaces(), component).unwrap();
        Fields::new(&interface.shape(kind, name).unwrap())
    }

    #[test]
    fn values_are_taken_as_the_field_has_them() {
        let mut target = fields("MTMount", TopicKind::Command, "trackTarget");
        target.set("azimuth", 1).unwrap().set("trackId", 7_i64).unwrap();
        target.set_json("tracksys", &json!("LOCAL")).unwrap();
        target.set_json("elevation", &json!("NaN")).unwrap();
        assert_eq!((target.number("azimuth"), target.integer("trackId")), (Some(1.0), Some(7)));
        assert_eq!(target.text("tracksys"), Some("LOCAL"));
        assert!(target.number("elevation").unwrap().is_nan());
        assert_eq!(target, target.clone());
        assert_eq!(target.to_json()["trackId"], 7);
        assert_eq!(target.to_json().as_object().unwrap().len(), 8);
    }

    #[test]
    fn what_reads_the_same_is_the_same() {
        let (low, high) = (f64::from_bits(0xfff0_0000_0000_0001), f64::from_bits(u64::MAX >> 1));
        let (low32, high32) = (f32::from_bits(0xff80_0001), f32::from_bits(u32::MAX >> 1));
        let map = |number| Value::Map(vec![("gain".to_owned(), Value::Double(number))]);
        let union = |number| Value::Union(1, Box::new(Value::Double(number)));
        let alike = [
            (Value::Double(0.0), Value::Double(-0.0)),
            (Value::Double(low), Value::Double(high)),
            (Value::Float(-0.0), Value::Float(0.0)),
            (Value::Float(low32), Value::Float(high32)),
            (Value::Doubles(vec![1.0, -0.0, low]), Value::Doubles(vec![1.0, 0.0, high])),
            (Value::Floats(vec![0.0, high32]), Value::Floats(vec![-0.0, low32])),
            (
                Value::Array(vec![union(low), union(0.0)]),
                Value::Array(vec![union(high), union(-0.0)]),
            ),
            (map(low), map(-f64::NAN)),
        ];
        for (one, other) in &alike {
            assert!(same(one, other) && same(other, one), "{one:?} {other:?}");
        }
        let apart = [
            (Value::Double(f64::NAN), Value::Double(0.0)),
            (Value::Double(0.0), Value::Double(f64::MIN_POSITIVE)),
            (Value::Doubles(vec![0.0]), Value::Doubles(vec![0.0, 0.0])),
            (union(0.0), Value::Union(0, Box::new(Value::Null))),
            (map(0.0), Value::Map(vec![("offset".to_owned(), Value::Double(0.0))])),
            (map(0.0), Value::Map(Vec::new())),
        ];
        for (one, other) in &apart {
            assert!(!same(one, other) && !same(other, one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn labels_are_taken_for_their_numbers() {
        let mut state = fields("MTMount", TopicKind::Event, "azimuthMotionState");
        state.set("state", "Tracking").unwrap();
        assert_eq!((state.integer("state"), state.label("state")), (Some(2), Some("Tracking")));
        state.set_json("state", &json!("Moving")).unwrap();
        assert_eq!(state.integer("state"), Some(1));
        assert!(state.set("state", "Flying").is_err());
    }

    #[test]
    fn numbers_without_a_label_are_refused_when_they_are_set() {
        let mut state = fields("MTMount", TopicKind::Event, "azimuthMotionState");
        let told = state.set("state", 77).unwrap_err().to_string();
        assert!(told.contains("azimuthMotionState: state is 77; it must be 0 ("), "{told}");
        assert!(state.set_json("state", &json!(77)).is_err());
        assert_eq!(state.integer("state"), Some(0));
    }

    #[test]
    fn what_nobody_set_is_the_component_s_to_judge() {
        let mut chase = fields("MTM1M3", TopicKind::Command, "enableHardpointChase");
        assert_eq!(chase.check(MissingFields::Default), Ok(()));
        assert_eq!(
            chase.check(MissingFields::Refuse).unwrap_err().to_string(),
            "MTM1M3/command/enableHardpointChase: no value for hardpointActuator; a command is \
             sent with a value for every field"
        );
        let told = chase.set("hardpointActuator", vec![1, 2, 3, 0, 5, 6]).unwrap_err().to_string();
        assert!(told.contains("hardpointActuator[3] is 0; it must be 1 (UPPER_LEFT)"), "{told}");
        chase.set("hardpointActuator", vec![1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(chase.check(MissingFields::Refuse), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_told_by_the_field() {
        let mut target = fields("MTMount", TopicKind::Command, "moveToTarget");
        let told = |result: Result<&mut Fields, FieldError>| result.unwrap_err().to_string();
        assert_eq!(
            told(target.set("azimut", 1.0)),
            "MTMount/command/moveToTarget has no field azimut; it has azimuth, elevation"
        );
        assert_eq!(
            told(target.set("azimuth", "north")),
            "MTMount/command/moveToTarget, field azimuth: string does not fit double"
        );
        let mut forces = fields("MTM1M3", TopicKind::Telemetry, "forceActuatorData");
        assert_eq!(
            told(forces.set("xForce", vec![1.0_f32; 3])),
            "MTM1M3/telemetry/forceActuatorData, field xForce: 3 elements, it has 12"
        );
        assert!(told(forces.set("xForce", 1.0)).contains("double does not fit 12 of float"));
        forces.set("xForce", vec![1.0; 12]).unwrap();
        assert_eq!(forces.numbers("xForce"), Some(vec![1.0; 12]));
    }
}
