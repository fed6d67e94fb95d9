//! Dynamic values from and to JSON.
//!
//! Plain JSON: records and maps are objects, arrays are arrays, enumerations their symbols, `bytes`
//! and `fixed` texts whose characters U+0000 to U+00FF are the bytes (Avro's own rule), and a
//! union's value is written bare. If a bare value would be read back as another branch, it is
//! wrapped as Avro does, `{"type": value}`; wrapped values are always accepted. Raw arrays
//! are nested arrays of numbers, or texts as `bytes`. NaN and the
//! infinities, which JSON lacks, are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`. A record's
//! missing fields take their defaults.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Map, Number, Value as Json};
use thiserror::Error;

use super::ser::branch_of_variant;
use super::wire::MAX_VALUE_DEPTH;
use super::{
    ArrayStep, Codec, EncodeError, EncodeProblem, Items, Place, RecordStep, Step, Value, elements,
};
use crate::schema::{Type, number_word, shorten};

/// The limit of steps of one conversion: JSON of a few megabytes, or branches of a union that do
/// not match.
const MAX_STEPS: usize = 10_000_000;

/// The same for a field's default, which may expand other defaults.
const MAX_DEFAULT_STEPS: usize = 200_000;

/// The cause of a JSON conversion error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonProblem {
    /// The JSON is not of the field's type.
    #[error("{found} where the schema has {expected}")]
    Type {
        /// The schema's type.
        expected: String,
        /// The JSON.
        found: String,
    },
    /// A record has no such field.
    #[error("no such field in {record}; it has {known}")]
    Field {
        /// The record.
        record: String,
        /// Its fields.
        known: String,
    },
    /// A field without default is missing.
    #[error("the field is missing and has no default")]
    Missing,
    /// The value is too deep or too large.
    #[error("too deep or too large to convert")]
    Limit,
}

/// The JSON, or the value, does not match the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(Box<(Place, JsonProblem)>);

located!(JsonError, JsonProblem);

impl From<JsonError> for EncodeError {
    fn from(error: JsonError) -> Self {
        let (place, problem) = *error.0;
        let problem = match problem {
            JsonProblem::Missing => EncodeProblem::Missing,
            other => EncodeProblem::Other(other.to_string()),
        };
        Self(Box::new((place, problem)))
    }
}

type Result<T> = std::result::Result<T, JsonError>;

impl Codec {
    /// Converts JSON to a value.
    ///
    /// # Errors
    /// [`JsonError`] names the field that does not match.
    pub fn value_from_json(&self, json: &Json) -> Result<Value> {
        Conversion { codec: self, steps: MAX_STEPS }.value(0, json, 0)
    }

    /// Converts a value to JSON.
    ///
    /// # Errors
    /// [`JsonError`] names the field whose value does not match the schema.
    pub fn value_to_json(&self, value: &Value) -> Result<Json> {
        Conversion { codec: self, steps: MAX_STEPS }.json(0, value, 0)
    }

    /// Converts some fields of a record to JSON. The codec's schema is that record.
    ///
    /// # Errors
    /// [`JsonError`] names the field whose value does not match the schema. It is also returned if
    /// the schema is no record, or the record has another length.
    pub fn fields_to_json(
        &self,
        record: &[Value],
        places: Range<usize>,
    ) -> Result<Map<String, Json>> {
        let mut conversion = Conversion { codec: self, steps: MAX_STEPS };
        match &self.plan[0] {
            Step::Record(RecordStep { fields, .. }) if fields.len() == record.len() => {
                conversion.fields(0, (fields, record), places, 0)
            }
            _ => Err(conversion.wrong(0, "a record")),
        }
    }

    /// Returns the default of a record's field as a value; `record` is the record's index in the
    /// schema.
    ///
    /// # Errors
    /// [`JsonError`] if the field has none.
    pub fn default_value(&self, record: crate::schema::NodeId, field: usize) -> Result<Value> {
        Conversion { codec: self, steps: MAX_DEFAULT_STEPS }.default(record.index(), field, 0)
    }

    /// Appends the datum of the default of a record's field to `out`; `record` is the record's
    /// index in the schema.
    ///
    /// # Errors
    /// [`EncodeError`] if the field has none.
    pub fn encode_default(
        &self,
        record: crate::schema::NodeId,
        field: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), EncodeError> {
        self.put_default(record.index(), field, out)
    }

    /// Writes the default of a record's field.
    pub(crate) fn put_default(
        &self,
        at: usize,
        place: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), EncodeError> {
        let value = Conversion { codec: self, steps: MAX_DEFAULT_STEPS }.default(at, place, 0)?;
        match &self.plan[at] {
            Step::Record(record) => self.put_value(record.fields[place], &value, out, 0),
            _ => Ok(()),
        }
    }
}

struct Conversion<'a> {
    codec: &'a Codec,
    steps: usize,
}

impl Conversion<'_> {
    fn step(&mut self, depth: usize) -> Result<()> {
        let left = self.steps.checked_sub(1).filter(|_| depth < MAX_VALUE_DEPTH);
        self.steps = left.ok_or_else(|| JsonError::new(JsonProblem::Limit))?;
        Ok(())
    }

    fn value(&mut self, at: usize, json: &Json, depth: usize) -> Result<Value> {
        self.step(depth)?;
        let codec = self.codec;
        let value = match (&codec.plan[at], json) {
            (Step::Null, Json::Null) => Some(Value::Null),
            (Step::Boolean, Json::Bool(value)) => Some(Value::Boolean(*value)),
            (Step::Int, Json::Number(n)) => int(n).map(Value::Int),
            (Step::Long, Json::Number(n)) => n.as_i64().map(Value::Long),
            (Step::Integer(integer), Json::Number(_)) => integer.parse(json),
            (Step::Float, json) => real(json).map(|number| Value::Float(number as f32)),
            (Step::Double, json) => real(json).map(Value::Double),
            (Step::Bytes, Json::String(text)) => latin1(text).map(Value::Bytes),
            (Step::NdArray(array), Json::String(text)) => {
                latin1(text).filter(|bytes| array.holds(bytes.len())).map(Value::Bytes)
            }
            (Step::NdArray(array), json) => elements::from_json(*array, json).map(Value::Bytes),
            (Step::String, Json::String(text)) => Some(Value::String(text.clone())),
            (Step::Fixed(size), Json::String(text)) => {
                latin1(text).filter(|bytes| bytes.len() == *size).map(Value::Bytes)
            }
            (Step::Enum(_), Json::String(symbol)) => self.symbol(at, symbol),
            (Step::Array(array), Json::Array(items)) => {
                return self.array(array, items, depth);
            }
            (Step::Map { values, .. }, Json::Object(entries)) => {
                let mut all = Vec::with_capacity(entries.len());
                for (key, json) in entries {
                    let value = self.value(*values, json, depth + 1);
                    all.push((key.clone(), value.map_err(|error| error.in_key(key))?));
                }
                Some(Value::Map(all))
            }
            (Step::Union(branches), json) => return self.union(at, branches, json, depth),
            (Step::Record(record), Json::Object(object)) => {
                return self.record(at, &record.fields, object, depth);
            }
            _ => None,
        };
        value.ok_or_else(|| self.wrong(at, &shorten(json)))
    }

    fn symbol(&self, at: usize, symbol: &str) -> Option<Value> {
        let Type::Enum(of) = self.codec.kind(at) else { return None };
        let place = of.symbols.iter().position(|known| known == symbol)?;
        u32::try_from(place).ok().map(Value::Enum)
    }

    fn array(&mut self, array: &ArrayStep, items: &[Json], depth: usize) -> Result<Value> {
        self.steps = self.steps.saturating_sub(items.len());
        let numbers = match array.kind {
            Items::Booleans => collect(items, Json::as_bool).map(Value::Booleans),
            Items::Ints => collect(items, |json| json.as_number().and_then(int)).map(Value::Ints),
            Items::Longs => collect(items, Json::as_i64).map(Value::Longs),
            Items::Floats => collect(items, |json| real(json).map(|n| n as f32)).map(Value::Floats),
            Items::Doubles => collect(items, real).map(Value::Doubles),
            Items::Others => None,
        };
        if let Some(value) = numbers {
            return Ok(value);
        }
        let mut all = Vec::with_capacity(items.len());
        for (i, json) in items.iter().enumerate() {
            let value = self.value(array.items, json, depth + 1);
            all.push(value.map_err(|error| error.in_element(i))?);
        }
        Ok(Value::Array(all))
    }

    fn record(
        &mut self,
        at: usize,
        steps: &[usize],
        object: &Map<String, Json>,
        depth: usize,
    ) -> Result<Value> {
        let Type::Record(record) = self.codec.kind(at) else { return Err(self.wrong(at, "?")) };
        let mut found = 0;
        let mut values = Vec::with_capacity(steps.len());
        for (place, (step, field)) in steps.iter().zip(&record.fields).enumerate() {
            let value = match object.get(&field.name) {
                Some(json) => {
                    found += 1;
                    self.value(*step, json, depth + 1)
                }
                None => self.default(at, place, depth + 1),
            };
            values.push(value.map_err(|error| error.in_field(&field.name))?);
        }
        if found < object.len() {
            let known: HashSet<&String> = record.fields.iter().map(|field| &field.name).collect();
            let unknown =
                object.keys().find(|key| !known.contains(key)).cloned().unwrap_or_default();
            let names: Vec<_> = record.fields.iter().take(30).map(|f| f.name.as_str()).collect();
            let (record, known) = (record.name.clone(), names.join(", "));
            return Err(JsonError::new(JsonProblem::Field { record, known }).in_field(&unknown));
        }
        Ok(Value::Record(values))
    }

    fn default(&mut self, at: usize, place: usize, depth: usize) -> Result<Value> {
        let missing = || JsonError::new(JsonProblem::Missing);
        let (Type::Record(record), Step::Record(RecordStep { fields: steps, .. })) =
            (self.codec.kind(at), &self.codec.plan[at])
        else {
            return Err(missing());
        };
        let field = record.fields.get(place).ok_or_else(missing)?;
        let default = field.default.as_ref().ok_or_else(missing)?;
        match &self.codec.plan[steps[place]] {
            // A default is never wrapped.
            Step::Union(branches) => {
                self.step(depth)?;
                self.bare(steps[place], branches, default, depth)
            }
            _ => self.value(steps[place], default, depth),
        }
    }

    fn union(&mut self, at: usize, branches: &[usize], json: &Json, depth: usize) -> Result<Value> {
        let wrapped = json.as_object().filter(|object| object.len() == 1);
        if let Some((key, inner)) = wrapped.and_then(|object| object.iter().next())
            && let Some(branch) = branch_of_variant(self.codec, branches, key)
            && let Ok(value) = self.value(branches[branch], inner, depth + 1)
        {
            return Ok(Value::Union(branch as u32, Box::new(value)));
        }
        self.bare(at, branches, json, depth)
    }

    /// Returns the first branch that JSON matches. Whole numbers match `int` or `long`; numbers
    /// that a `float` cannot represent exactly prefer a `double`.
    fn bare(&mut self, at: usize, branches: &[usize], json: &Json, depth: usize) -> Result<Value> {
        let mut rough = None;
        let mut error = None;
        for (branch, step) in branches.iter().enumerate() {
            match self.value(*step, json, depth + 1) {
                Ok(value) if rough_number(&value, json) => {
                    rough = rough.or(Some((branch, value)));
                }
                Ok(value) => return Ok(Value::Union(branch as u32, Box::new(value))),
                Err(wrong) if *wrong.problem() == JsonProblem::Limit => return Err(wrong),
                Err(wrong) => {
                    // For a record or array in a union with null, the error inside it is reported.
                    let inner = !wrong.0.0.0.is_empty();
                    error = error.or(Some(wrong).filter(|_| inner));
                }
            }
        }
        match rough {
            Some((branch, value)) => Ok(Value::Union(branch as u32, Box::new(value))),
            None => Err(error.unwrap_or_else(|| self.wrong(at, &shorten(json)))),
        }
    }

    #[cold]
    fn wrong(&self, at: usize, found: &str) -> JsonError {
        let expected = self.codec.expected(at);
        JsonError::new(JsonProblem::Type { expected, found: found.to_owned() })
    }

    fn json(&mut self, at: usize, value: &Value, depth: usize) -> Result<Json> {
        self.step(depth)?;
        let codec = self.codec;
        Ok(match (&codec.plan[at], value) {
            (Step::Null, Value::Null) => Json::Null,
            (Step::Boolean, Value::Boolean(value)) => Json::Bool(*value),
            (Step::Int | Step::Long, Value::Int(number)) => Json::from(*number),
            (Step::Long, Value::Long(number)) => Json::from(*number),
            (Step::Integer(integer), value) => match integer.number(value) {
                Some(number) => integer.to_json(number),
                None => return Err(self.wrong(at, value.word())),
            },
            (Step::Float | Step::Double, Value::Float(number)) => from_float(*number),
            (Step::Double, Value::Double(number)) => from_double(*number),
            (Step::Bytes | Step::Fixed(_), Value::Bytes(bytes)) => from_bytes(bytes),
            (Step::NdArray(array), Value::Bytes(bytes)) => {
                let json = elements::to_json(*array, bytes);
                json.ok_or_else(|| self.wrong(at, &format!("{} bytes", bytes.len())))?
            }
            (Step::String | Step::Enum(_), Value::String(text)) => Json::String(text.clone()),
            (Step::Enum(_), Value::Enum(place)) => match codec.kind(at) {
                Type::Enum(of) if (*place as usize) < of.symbols.len() => {
                    Json::String(of.symbols[*place as usize].clone())
                }
                _ => return Err(self.wrong(at, &format!("the symbol {place}"))),
            },
            (Step::Array(array), value) => self.json_array(at, array, value, depth)?,
            (Step::Map { values: step, .. }, Value::Map(entries)) => {
                let mut all = Map::new();
                for (key, value) in entries {
                    let json = self.json(*step, value, depth + 1).map_err(|e| e.in_key(key))?;
                    all.insert(key.clone(), json);
                }
                Json::Object(all)
            }
            (Step::Record(RecordStep { fields: steps, .. }), Value::Record(values))
                if steps.len() == values.len() =>
            {
                Json::Object(self.fields(at, (steps, values), 0..values.len(), depth)?)
            }
            (Step::Union(branches), Value::Union(branch, inner)) => {
                self.json_union(at, branches, *branch, inner, depth)?
            }
            (_, value) => return Err(self.wrong(at, value.word())),
        })
    }

    fn fields(
        &mut self,
        at: usize,
        (steps, values): (&[usize], &[Value]),
        places: Range<usize>,
        depth: usize,
    ) -> Result<Map<String, Json>> {
        let mut all = Map::with_capacity(places.len());
        let pairs = steps.iter().zip(values).enumerate();
        for (place, (step, value)) in pairs.take(places.end).skip(places.start) {
            let name = self.codec.field_name(at, place);
            let json = self.json(*step, value, depth + 1).map_err(|e| e.in_field(name))?;
            all.insert(name.to_owned(), json);
        }
        Ok(all)
    }

    fn json_array(
        &mut self,
        at: usize,
        array: &ArrayStep,
        value: &Value,
        depth: usize,
    ) -> Result<Json> {
        Ok(Json::Array(match value {
            Value::Booleans(all) => all.iter().map(|value| Json::Bool(*value)).collect(),
            Value::Ints(all) => all.iter().map(|number| Json::from(*number)).collect(),
            Value::Longs(all) => all.iter().map(|number| Json::from(*number)).collect(),
            Value::Floats(all) => all.iter().map(|number| from_float(*number)).collect(),
            Value::Doubles(all) => all.iter().map(|number| from_double(*number)).collect(),
            Value::Array(all) => {
                let mut items = Vec::with_capacity(all.len());
                for (i, value) in all.iter().enumerate() {
                    let json = self.json(array.items, value, depth + 1);
                    items.push(json.map_err(|error| error.in_element(i))?);
                }
                items
            }
            other => return Err(self.wrong(at, other.word())),
        }))
    }

    fn json_union(
        &mut self,
        at: usize,
        branches: &[usize],
        branch: u32,
        inner: &Value,
        depth: usize,
    ) -> Result<Json> {
        let found = branches.get(branch as usize);
        let step = found.ok_or_else(|| self.wrong(at, &format!("the branch {branch}")))?;
        let json = self.json(*step, inner, depth + 1)?;
        let plain = matches!(self.codec.plan[*step], Step::Null)
            || (branches.len() <= 2 && !json.is_object() && self.beside_null(branches));
        if plain {
            return Ok(json);
        }
        match self.union(at, branches, &json, depth) {
            Ok(Value::Union(again, _)) if again == branch => Ok(json),
            _ => {
                let kind = self.codec.kind(*step);
                let name = kind.name().unwrap_or(kind.word()).to_owned();
                Ok(Json::Object(Map::from_iter([(name, json)])))
            }
        }
    }

    fn beside_null(&self, branches: &[usize]) -> bool {
        branches.iter().any(|step| matches!(self.codec.plan[*step], Step::Null))
    }
}

/// Returns whether another branch may represent the number better.
fn rough_number(value: &Value, json: &Json) -> bool {
    match value {
        Value::Float(n) => json.is_i64() || real(json).is_some_and(|j| f64::from(*n) != j),
        Value::Double(_) => json.is_i64(),
        _ => false,
    }
}

fn collect<T>(items: &[Json], one: impl Fn(&Json) -> Option<T>) -> Option<Vec<T>> {
    items.iter().map(one).collect()
}

fn int(number: &Number) -> Option<i32> {
    number.as_i64().and_then(|number| i32::try_from(number).ok())
}

pub(super) fn real(json: &Json) -> Option<f64> {
    match json {
        Json::Number(number) => number.as_f64(),
        Json::String(word) => number_word(word),
        _ => None,
    }
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn from_bytes(bytes: &[u8]) -> Json {
    Json::String(bytes.iter().map(|byte| char::from(*byte)).collect())
}

pub(super) fn from_double(number: f64) -> Json {
    let word = || {
        if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
    };
    Number::from_f64(number).map_or_else(|| Json::from(word()), Json::Number)
}

/// Returns the shortest decimal number that is read back as the same 32 bits.
pub(super) fn from_float(number: f32) -> Json {
    from_double(number.to_string().parse().unwrap_or(f64::from(number)))
}
