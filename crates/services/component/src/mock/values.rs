//! Plausible values for any topic, generated as fast as a bus accepts them.
//!
//! Constraints. A simulated observatory publishes thousands of messages a second. Values are
//! therefore written directly as bytes, by generators that are prepared once per topic. They depend
//! only on the topic, the message's number and its time: two runs are equal. They satisfy the
//! topic's schema: array lengths, members of enumerations, ranges of SAL's types.
//!
//! Operation. Numbers with units oscillate slowly about a usual value of the unit; time fields have
//! the message's time; integers count. Enumerations, booleans and texts change with every message
//! of an event, because events are published on change, and seldom in telemetry.

use helio_core::codec::{Blocks, wire};
use helio_core::sal::{Topic, TopicKind};
use helio_core::schema::{Field, NodeId, Schema, Type};
use helio_core::{SchemaError, Tai};
use thiserror::Error;

/// The number of elements of an array whose schema has no length.
const DEFAULT_ARRAY_LENGTH: usize = 5;
/// The nesting depth that is generated, for recursive types of `.avsc` topics; deeper values stay
/// empty.
const MAX_DEPTH: usize = 8;
/// Telemetry messages between two changes of a boolean, enumeration or text.
const TELEMETRY_CHANGE_PERIOD: u64 = 1_000;
/// The modulus of counted integers: they fit SAL's smallest type, `byte`, even signed.
const COUNT_MODULUS: u64 = 100;

/// Why no values can be generated for a topic.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValuesError {
    /// The topic has no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A record that contains itself in every value, or is nested too deeply.
    #[error(
        "{topic}: the field {field} is nested deeper than {MAX_DEPTH}, no value can be made up"
    )]
    Depth {
        /// The topic.
        topic: String,
        /// Its field.
        field: String,
    },
}

/// Generates the public fields of a topic's messages.
///
/// ```
/// use helio_component::MockValues;
/// use helio_core::Tai;
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");
/// # let interfaces = helio_bus::read_interfaces(folder)?;
///
/// let topic = interfaces.topic("MTMount/telemetry/elevation").expect("it is there");
/// let mut values = MockValues::new(topic)?;
/// let mut bytes = Vec::new();
/// values.write(1, Tai::from_nanos(0), &mut bytes);
/// assert!(!bytes.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MockValues {
    steps: Vec<ValueGenerator>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    pace: u64,
}

/// The generator of a field's value.
#[derive(Debug, Clone)]
enum ValueGenerator {
    /// The same bytes each time.
    Constant(Vec<u8>),
    /// The message's time in seconds.
    Time,
    Double(Wave),
    Float(Wave),
    /// Counts from 0 to [`COUNT_MODULUS`], excluded.
    Count,
    /// One of these, the next one with each change.
    Member(Vec<i64>),
    Boolean(u64),
    /// The field's name and the number of the change.
    Text(String),
    Times(usize),
    Doubles(usize, Wave),
    Floats(usize, Wave),
    Counts(usize),
    Members(usize, Vec<i64>),
    Booleans(usize, u64),
    /// An array of that many elements.
    Array(usize, Box<ValueGenerator>),
    /// A branch of a union.
    Branch(usize, Box<ValueGenerator>),
    Record(Vec<ValueGenerator>),
}

/// A value that oscillates about a centre.
#[derive(Debug, Clone, Copy)]
struct Wave {
    centre: f64,
    swing: f64,
    /// Radians per second.
    speed: f64,
    /// Radians at time 0.
    phase: f64,
}

/// Usual values of units: the centre and the amplitude. Other units are like `unitless`.
const UNIT_RANGES: [(&[&str], f64, f64); 27] = [
    (&["deg", "degree"], 45.0, 30.0),
    (&["deg/second", "deg/s", "deg / s"], 0.0, 3.5),
    (&["arcsec", "arcsecond"], 0.0, 2.0),
    (&["celsius", "deg_c", "deg c", "c"], 10.0, 5.0),
    (&["volt", "v"], 24.0, 0.5),
    (&["mv"], 500.0, 100.0),
    (&["a", "ampere"], 3.0, 1.0),
    (&["ma"], 100.0, 20.0),
    (&["watt", "w", "va"], 400.0, 50.0),
    (&["kw"], 20.0, 5.0),
    (&["n", "newton"], 0.0, 500.0),
    (&["n m", "newton*meter", "n*m"], 0.0, 1_000.0),
    (&["pa"], 74_000.0, 300.0),
    (&["kpa"], 74.0, 0.3),
    (&["bar"], 6.0, 0.5),
    (&["psia", "psig"], 80.0, 10.0),
    (&["torr"], 1e-6, 1e-7),
    (&["rpm"], 1_500.0, 50.0),
    (&["hz"], 50.0, 0.1),
    (&["%", "pct", "percent"], 50.0, 30.0),
    (&["mm", "millimeter"], 0.0, 10.0),
    (&["um", "micron"], 0.0, 100.0),
    (&["m", "meter"], 5.0, 1.0),
    (&["m/s", "meter/second"], 5.0, 3.0),
    (&["m/s2"], 0.0, 0.1),
    (&["second", "s", "hour", "h"], 10.0, 5.0),
    (&["ms", "millisecond"], 20.0, 5.0),
];

impl MockValues {
    /// Prepares values for a topic.
    ///
    /// # Errors
    /// [`ValuesError`] if the topic has no schema, or one with endless values.
    pub fn new(topic: &Topic) -> Result<Self, ValuesError> {
        let schema = topic.schema()?;
        let public = schema.fields().iter().filter(|field| !is_private(&field.name));
        let step = |field: &Field| {
            let seed = seed(topic.topic_name().as_str(), &field.name);
            GeneratorBuilder { schema: &schema, field, seed }
                .step(field.kind, MAX_DEPTH)
                .ok_or_else(|| {
                    let (topic, field) = (topic.topic_name().to_string(), field.name.clone());
                    ValuesError::Depth { topic, field }
                })
        };
        let steps = public.map(step).collect::<Result<_, _>>()?;
        let pace = if topic.kind() == TopicKind::Telemetry { TELEMETRY_CHANGE_PERIOD } else { 1 };
        Ok(Self { steps, floats: Vec::new(), doubles: Vec::new(), pace })
    }

    /// Appends the public fields of a message to `out` in Avro: the part of the topic's datum after
    /// the private fields. `number` counts the topic's messages; `time` is the value of its time
    /// fields.
    pub fn write(&mut self, number: u64, time: Tai, out: &mut Vec<u8>) {
        let moment = SampleContext { number, changes: number / self.pace, seconds: time.seconds() };
        for step in &self.steps {
            step.write(&moment, &mut self.floats, &mut self.doubles, out);
        }
    }
}

/// The inputs of a message's values.
struct SampleContext {
    number: u64,
    changes: u64,
    seconds: f64,
}

impl ValueGenerator {
    fn write(
        &self,
        at: &SampleContext,
        floats: &mut Vec<f32>,
        doubles: &mut Vec<f64>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Constant(bytes) => out.extend_from_slice(bytes),
            Self::Time => out.extend_from_slice(&at.seconds.to_le_bytes()),
            Self::Double(wave) => out.extend_from_slice(&wave.at(at.seconds).to_le_bytes()),
            Self::Float(wave) => {
                out.extend_from_slice(&(wave.at(at.seconds) as f32).to_le_bytes());
            }
            Self::Count => wire::put_long(out, (at.number % COUNT_MODULUS) as i64),
            Self::Member(members) => wire::put_long(out, member(members, at.changes)),
            Self::Boolean(seed) => out.push(boolean(*seed, at.changes)),
            Self::Text(name) => text(name, at.changes, out),
            Self::Times(length) => {
                fill(doubles, *length, |_| at.seconds);
                wire::put_doubles(out, BLOCKS, doubles);
            }
            Self::Doubles(length, wave) => {
                let (value, step) = (wave.at(at.seconds), wave.step(*length));
                fill(doubles, *length, |place| value + place as f64 * step);
                wire::put_doubles(out, BLOCKS, doubles);
            }
            Self::Floats(length, wave) => {
                let (value, step) = (wave.at(at.seconds) as f32, wave.step(*length) as f32);
                fill(floats, *length, |place| value + place as f32 * step);
                wire::put_floats(out, BLOCKS, floats);
            }
            Self::Counts(length) => {
                array(out, *length, |out, place| {
                    wire::put_long(out, ((at.number + place as u64) % COUNT_MODULUS) as i64);
                });
            }
            Self::Members(length, members) => {
                array(out, *length, |out, place| {
                    wire::put_long(out, member(members, at.changes + place as u64));
                });
            }
            Self::Booleans(length, seed) => {
                array(out, *length, |out, place| {
                    out.push(boolean(*seed, at.changes + place as u64));
                });
            }
            Self::Array(length, step) => {
                array(out, *length, |out, _| step.write(at, floats, doubles, out));
            }
            Self::Branch(branch, step) => {
                wire::put_length(out, *branch);
                step.write(at, floats, doubles, out);
            }
            Self::Record(steps) => {
                for step in steps {
                    step.write(at, floats, doubles, out);
                }
            }
        }
    }
}

/// The codec's default form of arrays.
const BLOCKS: Blocks = Blocks::Sized;

fn fill<T>(values: &mut Vec<T>, length: usize, value: impl Fn(usize) -> T) {
    values.clear();
    values.extend((0..length).map(value));
}

fn array(out: &mut Vec<u8>, length: usize, mut element: impl FnMut(&mut Vec<u8>, usize)) {
    let start = out.len();
    for place in 0..length {
        element(out, place);
    }
    wire::close_block(out, BLOCKS, length, start);
}

fn member(members: &[i64], change: u64) -> i64 {
    members[(change % members.len() as u64) as usize]
}

fn boolean(seed: u64, change: u64) -> u8 {
    u8::from((seed + change) & 1 == 1)
}

/// The field's name and the number of the change, which wraps.
fn text(name: &str, change: u64, out: &mut Vec<u8>) {
    let (tens, ones) = (b'0' + (change / 10 % 10) as u8, b'0' + (change % 10) as u8);
    wire::put_length(out, name.len() + 3);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&[b' ', tens, ones]);
}

impl Wave {
    fn new(units: Option<&str>, seed: u64) -> Self {
        let units = units.unwrap_or_default().trim().to_ascii_lowercase();
        let usual = UNIT_RANGES.iter().find(|(names, ..)| names.contains(&units.as_str()));
        let (centre, swing) = usual.map_or((0.5, 0.4), |(_, centre, swing)| (*centre, *swing));
        // Periods of one to eight minutes: a chart over a few minutes shows movement.
        let period = 60.0 + (seed % 420) as f64;
        let phase = (seed / 420 % 1_000) as f64 * std::f64::consts::TAU / 1_000.0;
        Self { centre, swing, speed: std::f64::consts::TAU / period, phase }
    }

    fn at(&self, seconds: f64) -> f64 {
        self.centre + self.swing * (seconds * self.speed + self.phase).sin()
    }

    /// The difference between an array's elements: together a tenth of the amplitude.
    fn step(&self, length: usize) -> f64 {
        self.swing * 0.1 / length.max(1) as f64
    }
}

/// Builds the generators of a field.
struct GeneratorBuilder<'a> {
    schema: &'a Schema,
    field: &'a Field,
    seed: u64,
}

impl GeneratorBuilder<'_> {
    /// The generator of a type; `None` if it is nested too deeply.
    fn step(&self, id: NodeId, depth: usize) -> Option<ValueGenerator> {
        let depth = depth.checked_sub(1)?;
        Some(match &self.schema.node(id).kind {
            Type::Null => ValueGenerator::Constant(Vec::new()),
            Type::Boolean => ValueGenerator::Boolean(self.seed),
            Type::Int | Type::Long => {
                self.members().map_or(ValueGenerator::Count, ValueGenerator::Member)
            }
            Type::Float => ValueGenerator::Float(self.wave()),
            Type::Double if self.is_time() => ValueGenerator::Time,
            Type::Double => ValueGenerator::Double(self.wave()),
            Type::Bytes | Type::Map(_) => ValueGenerator::Constant(vec![0]),
            Type::String => self.text(),
            Type::Enum(_) => ValueGenerator::Constant(vec![0]),
            Type::Fixed(fixed) => ValueGenerator::Constant(vec![0; fixed.size]),
            Type::Array(items) => self.array(*items, depth),
            Type::Union(branches) => self.branch(branches, depth)?,
            Type::Record(record) => {
                let inner = |field| GeneratorBuilder { field, ..*self }.step(field.kind, depth);
                ValueGenerator::Record(record.fields.iter().map(inner).collect::<Option<_>>()?)
            }
        })
    }

    fn array(&self, items: NodeId, depth: usize) -> ValueGenerator {
        let length = self.field.length.unwrap_or(DEFAULT_ARRAY_LENGTH);
        match &self.schema.node(items).kind {
            Type::Double if self.is_time() => ValueGenerator::Times(length),
            Type::Double => ValueGenerator::Doubles(length, self.wave()),
            Type::Float => ValueGenerator::Floats(length, self.wave()),
            Type::Boolean => ValueGenerator::Booleans(length, self.seed),
            Type::Int | Type::Long => match self.members() {
                Some(members) => ValueGenerator::Members(length, members),
                None => ValueGenerator::Counts(length),
            },
            _ => match self.step(items, depth) {
                Some(step) => ValueGenerator::Array(length, Box::new(step)),
                // If the elements are endless, the array is empty.
                None => ValueGenerator::Constant(vec![0]),
            },
        }
    }

    /// The first branch that is not null, otherwise null.
    fn branch(&self, branches: &[NodeId], depth: usize) -> Option<ValueGenerator> {
        let null = |id: &NodeId| self.schema.node(*id).kind == Type::Null;
        let places = || branches.iter().enumerate();
        let worth = places().filter(|(_, id)| !null(id)).chain(places().filter(|(_, id)| null(id)));
        let step = |(place, id): (usize, &NodeId)| {
            self.step(*id, depth).map(|step| ValueGenerator::Branch(place, Box::new(step)))
        };
        worth.map(step).find(Option::is_some).flatten()
    }

    fn wave(&self) -> Wave {
        Wave::new(self.field.units.as_deref(), self.seed)
    }

    fn members(&self) -> Option<Vec<i64>> {
        let labels = self.field.enumeration.as_ref().filter(|labels| !labels.is_empty())?;
        Some(labels.iter().map(|(_, value)| *value).collect())
    }

    /// Whether it is a time: in seconds, and named so.
    fn is_time(&self) -> bool {
        let seconds = matches!(self.field.units.as_deref(), Some("second" | "s"));
        let name = self.field.name.to_ascii_lowercase();
        seconds && (name.ends_with("stamp") || name.ends_with("taitime") || name == "tai")
    }

    /// Names, places and versions are constant; other texts change.
    fn text(&self) -> ValueGenerator {
        let name = &self.field.name;
        let lower = name.to_ascii_lowercase();
        let stays = ["name", "location", "version", "url", "site", "type"];
        if !stays.iter().any(|word| lower.contains(word)) {
            return ValueGenerator::Text(name.clone());
        }
        let mut bytes = Vec::new();
        wire::put_bytes(&mut bytes, if lower.contains("version") { b"1.0.0" } else { b"mock" });
        ValueGenerator::Constant(bytes)
    }
}

/// Whether every topic has the field.
fn is_private(name: &str) -> bool {
    name == "salIndex" || name.starts_with("private_")
}

/// A number for a field, equal in every run and process (FNV-1a).
fn seed(topic: &str, field: &str) -> u64 {
    let bytes = topic.bytes().chain([b'/']).chain(field.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
