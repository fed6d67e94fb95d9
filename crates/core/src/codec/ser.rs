//! Serde values to bytes.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::elements::{Integer, check_encoded, element_step, put_element};
use super::encode::{check_length, put_fixed, unknown};
use super::wire::{
    MAX_VALUE_DEPTH, Reader, close_block, put_block, put_bytes, put_length, put_long,
};
use super::{ArrayStep, Codec, EncodeError, EncodeProblem, Items, RecordStep, Step};
use crate::schema::{DType, Type};

type Result<T> = std::result::Result<T, EncodeError>;

impl Error for EncodeError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(EncodeProblem::Other(message.to_string()))
    }
}

/// A serializer of one value: output and schema node.
pub(super) struct Encoder<'a> {
    codec: &'a Codec,
    out: &'a mut Vec<u8>,
    at: usize,
    step: &'a Step,
    depth: usize,
}

fn is_null(step: &Step) -> bool {
    matches!(step, Step::Null)
}

fn is_boolean(step: &Step) -> bool {
    matches!(step, Step::Boolean)
}

fn is_int(step: &Step) -> bool {
    matches!(step, Step::Int | Step::Integer(Integer { long: false, .. }))
}

fn is_long(step: &Step) -> bool {
    matches!(step, Step::Long | Step::Integer(Integer { long: true, .. }))
}

fn is_bits(step: &Step) -> bool {
    matches!(step, Step::Integer(integer) if integer.is_bits())
}

fn is_float(step: &Step) -> bool {
    matches!(step, Step::Float)
}

fn is_double(step: &Step) -> bool {
    matches!(step, Step::Double)
}

fn is_string(step: &Step) -> bool {
    matches!(step, Step::String)
}

fn is_enum(step: &Step) -> bool {
    matches!(step, Step::Enum(_))
}

fn is_bytes(step: &Step) -> bool {
    matches!(step, Step::Bytes | Step::Fixed(_) | Step::NdArray(_))
}

fn is_array(step: &Step) -> bool {
    matches!(step, Step::Array(_))
}

fn is_map(step: &Step) -> bool {
    matches!(step, Step::Map { .. })
}

fn is_record(step: &Step) -> bool {
    matches!(step, Step::Record(_))
}

type Test = fn(&Step) -> bool;

impl<'a> Encoder<'a> {
    pub(super) fn new(codec: &'a Codec, out: &'a mut Vec<u8>) -> Self {
        Self { codec, out, at: 0, step: &codec.plan[0], depth: 0 }
    }

    /// Returns the serializer of a part of this value.
    fn part(codec: &'a Codec, out: &'a mut Vec<u8>, at: usize, depth: usize) -> Result<Self> {
        if depth >= MAX_VALUE_DEPTH {
            return Err(EncodeError::new(EncodeProblem::Depth));
        }
        Ok(Self { codec, out, at, step: &codec.plan[at], depth })
    }

    /// In a union, writes the first branch that passes a test; the tests are tried in order.
    #[inline]
    fn enter(self, tests: &[Test], word: &str) -> Result<Self> {
        match self.step {
            Step::Union(branches) => {
                let one = |test: &Test| branches.iter().position(|at| test(&self.codec.plan[*at]));
                match tests.iter().find_map(one) {
                    Some(branch) => self.branch(branches, branch),
                    None => Err(self.codec.wrong(self.at, word)),
                }
            }
            _ => Ok(self),
        }
    }

    fn branch(self, branches: &[usize], branch: usize) -> Result<Self> {
        put_length(self.out, branch);
        Self::part(self.codec, self.out, branches[branch], self.depth + 1)
    }

    /// In a union, writes the branch of a variant: by its type's name, else by its index.
    fn variant(self, place: u32, name: &str) -> Result<Self> {
        let Step::Union(branches) = self.step else {
            return Err(self.codec.wrong(self.at, &format!("the variant {name}")));
        };
        let branch = branch_of_variant(self.codec, branches, name);
        match branch.or(Some(place as usize).filter(|place| *place < branches.len())) {
            Some(branch) => self.branch(branches, branch),
            None => Err(self.codec.wrong(self.at, &format!("the variant {name}"))),
        }
    }

    fn whole(self, number: i64, tests: &[Test], word: &str) -> Result<()> {
        let this = self.enter(tests, word)?;
        match this.step {
            Step::Int if i32::try_from(number).is_err() => {
                Err(EncodeError::new(EncodeProblem::Range(number.to_string())))
            }
            Step::Integer(integer) if !integer.dtype.holds(number) => {
                Err(EncodeError::new(EncodeProblem::Range(number.to_string())))
            }
            Step::Int | Step::Long | Step::Integer(_) => {
                put_long(this.out, number);
                Ok(())
            }
            _ => Err(this.codec.wrong(this.at, word)),
        }
    }

    fn sequence(self, length: Option<usize>) -> Result<Sequence<'a>> {
        let this = self.enter(&[is_array, is_bytes], "a sequence")?;
        if this.depth + 1 >= MAX_VALUE_DEPTH {
            return Err(EncodeError::new(EncodeProblem::Depth));
        }
        let start = this.out.len();
        let form = match this.step {
            Step::Array(array) => {
                check_length(
                    array.length.filter(|_| length.is_some()),
                    length.unwrap_or_default(),
                )?;
                let announced = length.filter(|_| width(array).is_some());
                if let (Some(count @ 1..), Some(width)) = (announced, width(array)) {
                    put_block(this.out, this.codec.options.blocks, count, count * width);
                }
                let items = array.items;
                Form::Array { array, items, step: &this.codec.plan[items], announced }
            }
            Step::Bytes | Step::Fixed(_) | Step::NdArray(_) => {
                let dtype = match this.step {
                    Step::NdArray(array) => array.dtype(),
                    _ => DType::Uint8,
                };
                let element = element_step(dtype);
                Form::Raw { raw: Vec::new(), avro: Vec::new(), dtype, element, of: this.step }
            }
            _ => return Err(this.codec.wrong(this.at, "a sequence")),
        };
        let Encoder { codec, out, depth, .. } = this;
        Ok(Sequence { codec, out, depth, form, start, count: 0 })
    }

    fn fields(self) -> Result<Fields<'a>> {
        match self.step {
            Step::Record(RecordStep { fields: steps, .. }) => {
                let Encoder { codec, out, at, depth, .. } = self;
                Ok(Fields { codec, out, at, depth, steps, next: 0, early: Vec::new() })
            }
            _ => Err(self.codec.wrong(self.at, "a structure")),
        }
    }
}

/// Returns the branch whose type has that full name, plain name or type name.
pub(super) fn branch_of_variant(codec: &Codec, branches: &[usize], name: &str) -> Option<usize> {
    branches.iter().position(|at| {
        let kind = codec.kind(*at);
        let full = kind.name().unwrap_or(kind.word());
        full == name || full.rsplit('.').next() == Some(name)
    })
}

fn width(array: &ArrayStep) -> Option<usize> {
    match array.kind {
        Items::Floats => Some(4),
        Items::Doubles => Some(8),
        Items::Booleans => Some(1),
        _ => None,
    }
}

impl<'a> Serializer for Encoder<'a> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Sequence<'a>;
    type SerializeTuple = Sequence<'a>;
    type SerializeTupleStruct = Sequence<'a>;
    type SerializeTupleVariant = Sequence<'a>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Fields<'a>;

    fn is_human_readable(&self) -> bool {
        false
    }

    // The plain cases come first: long arrays consist of them.

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<()> {
        let this = self.enter(&[is_boolean], "a boolean")?;
        match this.step {
            Step::Boolean => this.out.push(u8::from(value)),
            _ => return Err(this.codec.wrong(this.at, "a boolean")),
        }
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Result<()> {
        self.serialize_i32(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<()> {
        self.serialize_i32(number.into())
    }

    #[inline]
    fn serialize_i32(self, number: i32) -> Result<()> {
        if let Step::Int | Step::Long = self.step {
            put_long(self.out, number.into());
            return Ok(());
        }
        self.whole(number.into(), &[is_int, is_long], "a 32-bit number")
    }

    #[inline]
    fn serialize_i64(self, number: i64) -> Result<()> {
        if let Step::Long = self.step {
            put_long(self.out, number);
            return Ok(());
        }
        self.whole(number, &[is_long, is_int], "a 64-bit number")
    }

    fn serialize_u8(self, number: u8) -> Result<()> {
        self.serialize_i32(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<()> {
        self.serialize_i32(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<()> {
        if let Ok(signed) = i64::try_from(number) {
            return self.serialize_i64(signed);
        }
        let this = self.enter(&[is_bits], "a number of 64 bits without sign")?;
        if !is_bits(this.step) {
            return Err(EncodeError::new(EncodeProblem::Range(number.to_string())));
        }
        put_long(this.out, number as i64);
        Ok(())
    }

    #[inline]
    fn serialize_f32(self, number: f32) -> Result<()> {
        if let Step::Float = self.step {
            self.out.extend_from_slice(&number.to_le_bytes());
            return Ok(());
        }
        let this = self.enter(&[is_float, is_double], "a 32-bit real number")?;
        match this.step {
            Step::Float => this.out.extend_from_slice(&number.to_le_bytes()),
            Step::Double => this.out.extend_from_slice(&f64::from(number).to_le_bytes()),
            _ => return Err(this.codec.wrong(this.at, "a 32-bit real number")),
        }
        Ok(())
    }

    #[inline]
    fn serialize_f64(self, number: f64) -> Result<()> {
        if let Step::Double = self.step {
            self.out.extend_from_slice(&number.to_le_bytes());
            return Ok(());
        }
        let this = self.enter(&[is_double], "a 64-bit real number")?;
        match this.step {
            Step::Double => this.out.extend_from_slice(&number.to_le_bytes()),
            _ => return Err(this.codec.wrong(this.at, "a 64-bit real number")),
        }
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<()> {
        let this = self.enter(&[is_string, is_enum], "a text")?;
        match this.step {
            Step::String => put_bytes(this.out, text.as_bytes()),
            Step::Enum(_) => return put_symbol(this, text),
            _ => return Err(this.codec.wrong(this.at, "a text")),
        }
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        let this = self.enter(&[is_bytes], "bytes")?;
        match this.step {
            Step::Bytes | Step::Fixed(_) | Step::NdArray(_) => put_raw(this.step, bytes, this.out)?,
            _ => return Err(this.codec.wrong(this.at, "bytes")),
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        let this = self.enter(&[is_null], "nothing")?;
        match this.step {
            Step::Null => Ok(()),
            _ => Err(this.codec.wrong(this.at, "nothing")),
        }
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        let this = self.enter(&[is_enum, is_string, is_null], "a variant")?;
        match this.step {
            Step::Enum(_) => put_symbol(this, variant),
            Step::Null => Ok(()),
            _ => this.serialize_str(variant),
        }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        place: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self.variant(place, variant)?)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Sequence<'a>> {
        self.sequence(length)
    }

    fn serialize_tuple(self, length: usize) -> Result<Sequence<'a>> {
        self.sequence(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Sequence<'a>> {
        self.sequence(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        place: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Sequence<'a>> {
        self.variant(place, variant)?.sequence(Some(length))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Entries<'a>> {
        let this = self.enter(&[is_map, is_record], "a map")?;
        if let Step::Map { values, .. } = this.step {
            let start = this.out.len();
            let Encoder { codec, out, depth, .. } = this;
            return Ok(Entries::Map { codec, out, depth, values: *values, start, count: 0 });
        }
        Ok(Entries::Record { fields: this.fields()?, key: String::new() })
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>> {
        match self.step {
            Step::Union(branches) => match branch_of_variant(self.codec, branches, name) {
                Some(branch) => self.branch(branches, branch)?.fields(),
                None => self.enter(&[is_record], "a structure")?.fields(),
            },
            _ => self.fields(),
        }
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        place: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Fields<'a>> {
        self.variant(place, variant)?.fields()
    }
}

/// Writes `bytes`, a `fixed` or a raw array.
fn put_raw(step: &Step, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match step {
        Step::Fixed(size) => return put_fixed(*size, bytes, out),
        Step::NdArray(array) => put_bytes(out, check_encoded(*array, bytes)?),
        _ => put_bytes(out, bytes),
    }
    Ok(())
}

fn put_symbol(to: Encoder<'_>, symbol: &str) -> Result<()> {
    let Type::Enum(of) = to.codec.kind(to.at) else { return Err(to.codec.wrong(to.at, "a text")) };
    let place = of.symbols.iter().position(|known| known == symbol);
    put_length(to.out, place.ok_or_else(|| unknown("symbol", format!("{symbol:?}"), &of.symbols))?);
    Ok(())
}

/// An array's elements, or bytes one by one.
pub(super) struct Sequence<'a> {
    codec: &'a Codec,
    out: &'a mut Vec<u8>,
    depth: usize,
    form: Form<'a>,
    start: usize,
    count: usize,
}

enum Form<'a> {
    /// `announced` is the number of elements whose block is written already.
    Array { array: &'a ArrayStep, items: usize, step: &'a Step, announced: Option<usize> },
    /// Bytes, or the elements of a raw array; `of` is their step. Each is written to `avro` as a
    /// number first, which checks its type and range.
    Raw { raw: Vec<u8>, avro: Vec<u8>, dtype: DType, element: Step, of: &'a Step },
}

impl Sequence<'_> {
    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let Self { codec, out, depth, form, count, .. } = self;
        let Form::Array { items, step, .. } = *form else { return self.raw_element(value) };
        let encoder = Encoder { codec, out, at: items, step, depth: *depth + 1 };
        if let Err(error) = value.serialize(encoder) {
            return Err(error.in_element(*count));
        }
        self.count += 1;
        Ok(())
    }

    /// A number that is a byte, or an element of a raw array.
    fn raw_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let Self { codec, depth, form, count, .. } = self;
        let Form::Raw { raw, avro, dtype, element, .. } = form else { return Ok(()) };
        avro.clear();
        let encoder = Encoder { codec, out: avro, at: 0, step: element, depth: *depth };
        value.serialize(encoder).map_err(|error| error.in_element(*count))?;
        put_element(*dtype, avro, raw).map_err(EncodeError::custom)?;
        self.count += 1;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self.form {
            Form::Array { array, announced: None, .. } => {
                check_length(array.length, self.count)?;
                close_block(self.out, self.codec.options.blocks, self.count, self.start);
            }
            Form::Array { announced: Some(announced), .. } => {
                check_length(Some(announced), self.count)?;
                self.out.push(0);
            }
            Form::Raw { raw, of, .. } => put_raw(of, &raw, self.out)?,
        }
        Ok(())
    }
}

macro_rules! sequence {
    ($($of:ident $method:ident)*) => {$(
        impl $of for Sequence<'_> {
            type Ok = ();
            type Error = EncodeError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.element(value)
            }

            fn end(self) -> Result<()> {
                self.finish()
            }
        }
    )*};
}

sequence! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

/// A record's fields, in any order.
pub(super) struct Fields<'a> {
    codec: &'a Codec,
    out: &'a mut Vec<u8>,
    at: usize,
    depth: usize,
    steps: &'a [usize],
    /// The next field to write.
    next: usize,
    /// The bytes of fields that came too early.
    early: Vec<(usize, Vec<u8>)>,
}

impl Fields<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        if self.next < self.steps.len() && self.codec.field_name(self.at, self.next) == name {
            let step = self.steps[self.next];
            let encoder = Encoder::part(self.codec, self.out, step, self.depth + 1)?;
            value.serialize(encoder).map_err(|error| error.in_field(name))?;
            self.next += 1;
            if !self.early.is_empty() {
                self.catch_up();
            }
            return Ok(());
        }
        let place = self.place(name)?;
        let mut bytes = Vec::new();
        let encoder = Encoder::part(self.codec, &mut bytes, self.steps[place], self.depth + 1)?;
        value.serialize(encoder).map_err(|error| error.in_field(name))?;
        self.early.push((place, bytes));
        Ok(())
    }

    /// Returns the index of a field that is not written yet.
    fn place(&self, name: &str) -> Result<usize> {
        let Type::Record(record) = self.codec.kind(self.at) else { return Ok(0) };
        let place = record.fields.iter().position(|field| field.name == name);
        let early = |place: usize| self.early.iter().any(|(early, _)| *early == place);
        match place {
            Some(place) if place >= self.next && !early(place) => Ok(place),
            Some(_) => Err(EncodeError::custom("the field is given twice").in_field(name)),
            None => {
                let known: Vec<_> = record.fields.iter().map(|field| field.name.clone()).collect();
                Err(unknown("field", format!("{name:?}"), &known))
            }
        }
    }

    /// Writes the fields that came too early and are next now.
    fn catch_up(&mut self) {
        while let Some(i) = self.early.iter().position(|(place, _)| *place == self.next) {
            let (_, bytes) = self.early.swap_remove(i);
            self.out.extend_from_slice(&bytes);
            self.next += 1;
        }
    }

    fn finish(mut self) -> Result<()> {
        self.catch_up();
        while self.next < self.steps.len() {
            let name = self.codec.field_name(self.at, self.next);
            self.codec
                .put_default(self.at, self.next, self.out)
                .map_err(|error| error.in_field(name))?;
            self.next += 1;
            self.catch_up();
        }
        Ok(())
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = EncodeError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.put(name, value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

impl SerializeStructVariant for Fields<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.put(name, value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

/// A map's entries, or a record's fields as map entries (flattened structures).
pub(super) enum Entries<'a> {
    Map {
        codec: &'a Codec,
        out: &'a mut Vec<u8>,
        depth: usize,
        values: usize,
        start: usize,
        count: usize,
    },
    Record {
        fields: Fields<'a>,
        key: String,
    },
}

impl SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        match self {
            Self::Map { codec, out, depth, count, .. } => {
                let encoder = Encoder { codec, out, at: 0, step: &Step::String, depth: *depth };
                *count += 1;
                key.serialize(encoder)
            }
            Self::Record { fields, key: name } => {
                let (codec, depth) = (fields.codec, fields.depth);
                let mut text = Vec::new();
                let out = &mut text;
                key.serialize(Encoder { codec, out, at: 0, step: &Step::String, depth })?;
                let text = Reader::new(&text).string().map_err(EncodeError::custom)?;
                text.clone_into(name);
                Ok(())
            }
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        match self {
            Self::Map { codec, out, depth, values, count, .. } => {
                let encoder = Encoder::part(codec, out, *values, *depth + 1)?;
                value.serialize(encoder).map_err(|error| error.in_element(*count - 1))
            }
            Self::Record { fields, key } => fields.put(key, value),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Map { codec, out, start, count, .. } => {
                close_block(out, codec.options.blocks, count, start);
                Ok(())
            }
            Self::Record { fields, .. } => fields.finish(),
        }
    }
}
