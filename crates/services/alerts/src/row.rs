//! Records of numbers and short texts as flat rows, and their encoding in runs of equal fields.
//!
//! Constraints. A record's fields are primitive, each possibly null; a record has at most 128.
//! Rubin's `diaSource`, `diaForcedSource`, `diaObject`, `ssSource` and orbits are of this kind: a
//! packet with a year of history has 20,000 such fields, and is encoded within microseconds.
//!
//! Operation. A [`Plan`] is compiled from the schema's record: its fields in *runs* of one kind. A
//! [`Row`] has a word a field and a bit for each null. A run without nulls is written without a
//! branch a field, in places whose distance is known.

use std::collections::HashMap;

use helio_core::Schema;
use helio_core::codec::wire::{put_bytes, put_long};
use helio_core::schema::{NodeId, Type};

/// The most fields of a row: one bit each in a word of 128.
const MAX_FIELDS: usize = 128;
/// The longest text that fits in a field's word.
const SHORT_TEXT: usize = 7;
/// The mark of a text that is in the row's list.
const LONG_TEXT: u8 = 0xff;

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Number,
    Float,
    Double,
    Text,
}

/// Fields of one kind, one after the other.
#[derive(Debug, Clone)]
struct Run {
    kind: Kind,
    /// The branches of value and null, each as its byte; `None` if the fields cannot be null.
    nullable: Option<(u8, u8)>,
    first: usize,
    count: usize,
    /// The bits of the fields.
    mask: u128,
}

/// A record's fields, compiled.
#[derive(Debug, Clone)]
pub struct Plan {
    runs: Vec<Run>,
    places: HashMap<String, usize>,
    /// The most bytes of a row, without its texts.
    bytes: usize,
    /// The fields that may be null.
    nullable: u128,
}

/// The values of a record's fields.
#[derive(Debug, Clone, Default)]
pub struct Row {
    words: Vec<u64>,
    nulls: u128,
    texts: Vec<String>,
}

impl Plan {
    /// Compiles a record of a schema; `None` if a field is neither primitive nor a nullable
    /// primitive, or if there are too many.
    #[must_use]
    pub fn new(schema: &Schema, record: NodeId) -> Option<Self> {
        let Type::Record(record) = &schema.node(record).kind else { return None };
        if record.fields.len() > MAX_FIELDS {
            return None;
        }
        let mut plan = Self { runs: Vec::new(), places: HashMap::new(), bytes: 0, nullable: 0 };
        for (place, field) in record.fields.iter().enumerate() {
            let (kind, nullable) = match schema.nullable(field.kind) {
                Some((inner, null)) => (inner, Some((2 - 2 * null as u8, 2 * null as u8))),
                None => (field.kind, None),
            };
            let kind = match schema.node(kind).kind {
                Type::Boolean => Kind::Boolean,
                Type::Int | Type::Long => Kind::Number,
                Type::Float => Kind::Float,
                Type::Double => Kind::Double,
                Type::String => Kind::Text,
                _ => return None,
            };
            plan.push(kind, nullable, place);
            plan.places.insert(field.name.clone(), place);
        }
        Some(plan)
    }

    fn push(&mut self, kind: Kind, nullable: Option<(u8, u8)>, place: usize) {
        let bit = 1 << place;
        self.bytes += kind.most_bytes() + usize::from(nullable.is_some());
        self.nullable |= if nullable.is_some() { bit } else { 0 };
        match self.runs.last_mut() {
            Some(run) if run.kind == kind && run.nullable == nullable => {
                run.count += 1;
                run.mask |= bit;
            }
            _ => self.runs.push(Run { kind, nullable, first: place, count: 1, mask: bit }),
        }
    }

    /// Returns the place of a field; `None` if the record has none of that name.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// A row whose fields are null, or zero where they cannot be null.
    #[must_use]
    pub fn row(&self) -> Row {
        Row { words: vec![0; self.places.len()], nulls: self.nullable, texts: Vec::new() }
    }

    /// A row of what was not measured, as Rubin's pipelines write it: floats are not a number,
    /// flags are false, the rest is null, or zero where it cannot be null.
    #[must_use]
    pub fn unmeasured(&self) -> Row {
        let mut row = self.row();
        for run in &self.runs {
            let places = run.first..run.first + run.count;
            match run.kind {
                Kind::Float => places.for_each(|place| row.set_float(Some(place), f32::NAN)),
                Kind::Double => places.for_each(|place| row.set_double(Some(place), f64::NAN)),
                Kind::Boolean => places.for_each(|place| row.set_false(Some(place))),
                Kind::Number | Kind::Text => {}
            }
        }
        row
    }

    /// Appends a row's datum to `out`.
    ///
    /// # Panics
    /// If the row is of another plan.
    pub fn encode(&self, row: &Row, out: &mut Vec<u8>) {
        assert_eq!(row.words.len(), self.places.len(), "a row of another plan");
        out.reserve(self.bytes);
        for run in &self.runs {
            run.encode(row, out);
        }
    }
}

impl Kind {
    fn most_bytes(self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Float => 4,
            Self::Double => 8,
            Self::Number => 10,
            Self::Text => SHORT_TEXT + 1,
        }
    }
}

impl Run {
    fn encode(&self, row: &Row, out: &mut Vec<u8>) {
        let words = &row.words[self.first..self.first + self.count];
        let has_null = row.nulls & self.mask != 0;
        match (self.kind, self.nullable) {
            (Kind::Float, None) => fixed(words, out, |word| (word as u32).to_le_bytes()),
            (Kind::Double, None) => fixed(words, out, u64::to_le_bytes),
            (Kind::Boolean, None) => fixed(words, out, |word| [word as u8]),
            (Kind::Float, Some((value, _))) if !has_null => fixed(words, out, |word| {
                let [a, b, c, d] = (word as u32).to_le_bytes();
                [value, a, b, c, d]
            }),
            (Kind::Double, Some((value, _))) if !has_null => fixed(words, out, |word| {
                let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
                [value, a, b, c, d, e, f, g, h]
            }),
            (Kind::Boolean, Some((value, _))) if !has_null => {
                fixed(words, out, |word| [value, word as u8]);
            }
            (_, nullable) => {
                for (place, word) in (self.first..).zip(words) {
                    let is_null = row.nulls >> place & 1 == 1;
                    if let Some((value, null)) = nullable {
                        out.push(if is_null { null } else { value });
                    }
                    if !is_null {
                        self.kind.put(*word, row, out);
                    }
                }
            }
        }
    }
}

impl Kind {
    fn put(self, word: u64, row: &Row, out: &mut Vec<u8>) {
        match self {
            Self::Boolean => out.push(word as u8),
            Self::Number => put_long(out, word as i64),
            Self::Float => out.extend((word as u32).to_le_bytes()),
            Self::Double => out.extend(word.to_le_bytes()),
            Self::Text => {
                let bytes = word.to_le_bytes();
                match bytes[SHORT_TEXT] {
                    LONG_TEXT => {
                        let text = row.texts.get(word as u32 as usize);
                        put_bytes(out, text.map_or(&[][..], |text| text.as_bytes()));
                    }
                    length => put_bytes(out, &bytes[..usize::from(length).min(SHORT_TEXT)]),
                }
            }
        }
    }
}

/// Appends fields of `N` bytes each.
#[inline]
fn fixed<const N: usize>(words: &[u64], out: &mut Vec<u8>, bytes: impl Fn(u64) -> [u8; N]) {
    let start = out.len();
    out.resize(start + words.len() * N, 0);
    let (places, _) = out[start..].as_chunks_mut::<N>();
    for (place, word) in places.iter_mut().zip(words) {
        *place = bytes(*word);
    }
}

/// The fields are given by their places ([`Plan::place`]); `None` as place is ignored, so that a
/// field which a version lacks needs no question.
impl Row {
    fn set(&mut self, place: Option<usize>, word: u64) {
        if let Some(word_there) = place.and_then(|place| self.words.get_mut(place)) {
            *word_there = word;
            self.nulls &= !(1 << place.unwrap_or_default());
        }
    }

    /// Sets a `boolean` to true.
    pub fn set_true(&mut self, place: Option<usize>) {
        self.set(place, 1);
    }

    /// Sets a `boolean` to false.
    pub fn set_false(&mut self, place: Option<usize>) {
        self.set(place, 0);
    }

    /// Sets an `int` or a `long`.
    pub fn set_number(&mut self, place: Option<usize>, value: i64) {
        self.set(place, value as u64);
    }

    /// Sets a `float`.
    pub fn set_float(&mut self, place: Option<usize>, value: f32) {
        self.set(place, u64::from(value.to_bits()));
    }

    /// Sets a `double`.
    pub fn set_double(&mut self, place: Option<usize>, value: f64) {
        self.set(place, value.to_bits());
    }

    /// Sets a `string`.
    pub fn set_text(&mut self, place: Option<usize>, text: &str) {
        let mut word = [0; 8];
        if text.len() <= SHORT_TEXT {
            word[..text.len()].copy_from_slice(text.as_bytes());
            word[SHORT_TEXT] = text.len() as u8;
        } else {
            word[..4].copy_from_slice(&(self.texts.len() as u32).to_le_bytes());
            word[SHORT_TEXT] = LONG_TEXT;
            self.texts.push(text.to_owned());
        }
        self.set(place, u64::from_le_bytes(word));
    }

    /// The number in a field; 0 where it is null.
    #[must_use]
    pub fn number(&self, place: Option<usize>) -> i64 {
        self.word(place) as i64
    }

    /// The `float` in a field; NaN where it is null.
    #[must_use]
    pub fn float(&self, place: Option<usize>) -> f32 {
        let is_null = place.is_none_or(|place| self.nulls >> place & 1 == 1);
        if is_null { f32::NAN } else { f32::from_bits(self.word(place) as u32) }
    }

    /// The `double` in a field; NaN where it is null.
    #[must_use]
    pub fn double(&self, place: Option<usize>) -> f64 {
        let is_null = place.is_none_or(|place| self.nulls >> place & 1 == 1);
        if is_null { f64::NAN } else { f64::from_bits(self.word(place)) }
    }

    fn word(&self, place: Option<usize>) -> u64 {
        place.and_then(|place| self.words.get(place)).copied().unwrap_or_default()
    }
}
