//! Bytes to serde values.

use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::decode::{Care, check_length, deeper, enter};
use super::elements::{Elements as RawElements, check_decoded};
use super::ser::branch_of_variant;
use super::wire::{Block, Reader};
use super::{ArrayStep, Codec, DecodeError, DecodeProblem, RecordStep, Step};
use crate::schema::Type;

type Result<T> = std::result::Result<T, DecodeError>;

impl Error for DecodeError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(DecodeProblem::Other(message.to_string()))
    }
}

/// A deserializer of one value: input and schema node.
pub(super) struct Decoder<'a, 'de> {
    codec: &'a Codec,
    reader: &'a mut Reader<'de>,
    at: usize,
    step: &'a Step,
    depth: usize,
}

impl<'a, 'de> Decoder<'a, 'de> {
    pub(super) fn new(codec: &'a Codec, reader: &'a mut Reader<'de>) -> Self {
        Self { codec, reader, at: 0, step: &codec.plan[0], depth: 0 }
    }

    /// In a union, continues with its branch.
    fn branch(self, branches: &[usize]) -> Result<Self> {
        deeper(self.depth)?;
        let branch = self.reader.branch(branches.len())?;
        let at = branches[branch];
        Ok(Self { at, step: &self.codec.plan[at], depth: self.depth + 1, ..self })
    }

    fn array<V: Visitor<'de>>(self, array: &'a ArrayStep, visitor: V) -> Result<V::Value> {
        deeper(self.depth)?;
        let Decoder { codec, reader, depth, .. } = self;
        let mut blocks = Blocks::new(reader, array.least);
        let step = &codec.plan[array.items];
        let mut elements =
            Elements { codec, blocks: &mut blocks, at: array.items, step, depth: depth + 1 };
        let value = visitor.visit_seq(&mut elements)?;
        let all = blocks.finish()?;
        check_length(array.length, all)?;
        Ok(value)
    }

    fn map<V: Visitor<'de>>(self, values: usize, least: usize, visitor: V) -> Result<V::Value> {
        deeper(self.depth)?;
        let Decoder { codec, reader, depth, .. } = self;
        let mut blocks = Blocks::new(reader, least);
        let mut entries =
            Entries { codec, blocks: &mut blocks, at: values, depth: depth + 1, key: "" };
        let value = visitor.visit_map(&mut entries)?;
        blocks.finish()?;
        Ok(value)
    }

    fn record<V: Visitor<'de>>(self, record: &'a RecordStep, visitor: V) -> Result<V::Value> {
        enter(record, self.reader, self.depth)?;
        let steps = &record.fields;
        let Decoder { codec, reader, at, depth, .. } = self;
        let mut fields = Fields { codec, reader, at, depth: depth + 1, steps, next: 0 };
        let value = visitor.visit_map(&mut fields)?;
        while fields.next < steps.len() {
            codec.pass(steps[fields.next], fields.reader, depth + 1, Care::Skip)?;
            fields.next += 1;
        }
        Ok(value)
    }

    fn symbol(&mut self, symbols: usize) -> Result<&'a str> {
        let place = self.reader.symbol(symbols)?;
        match self.codec.kind(self.at) {
            Type::Enum(of) => Ok(&of.symbols[place]),
            _ => Ok(""),
        }
    }
}

impl<'a, 'de> Deserializer<'de> for Decoder<'a, 'de> {
    type Error = DecodeError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value> {
        match self.step {
            Step::Null => visitor.visit_unit(),
            Step::Boolean => visitor.visit_bool(self.reader.boolean()?),
            Step::Int => visitor.visit_i32(self.reader.int()?),
            Step::Long => visitor.visit_i64(self.reader.long()?),
            Step::Integer(integer) => {
                let number = integer.read(self.reader)?;
                match i32::try_from(number) {
                    _ if integer.is_bits() => visitor.visit_u64(number as u64),
                    Ok(number) if !integer.long => visitor.visit_i32(number),
                    _ => visitor.visit_i64(number),
                }
            }
            Step::Float => visitor.visit_f32(self.reader.float()?),
            Step::Double => visitor.visit_f64(self.reader.double()?),
            Step::Bytes => visitor.visit_borrowed_bytes(self.reader.bytes()?),
            Step::NdArray(array) => {
                visitor.visit_borrowed_bytes(check_decoded(*array, self.reader.bytes()?)?)
            }
            Step::String => visitor.visit_borrowed_str(self.reader.string()?),
            Step::Fixed(size) => visitor.visit_borrowed_bytes(self.reader.take(*size)?),
            Step::Enum(symbols) => visitor.visit_str(self.symbol(*symbols)?),
            Step::Array(array) => self.array(array, visitor),
            Step::Map { values, least } => self.map(*values, *least, visitor),
            Step::Union(branches) => self.branch(branches)?.deserialize_any(visitor),
            Step::Record(record) => self.record(record, visitor),
        }
    }

    // The elements of long arrays come first, before all other types.

    #[inline]
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.step {
            Step::Float => visitor.visit_f32(self.reader.float()?),
            _ => self.deserialize_any(visitor),
        }
    }

    #[inline]
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.step {
            Step::Double => visitor.visit_f64(self.reader.double()?),
            _ => self.deserialize_any(visitor),
        }
    }

    #[inline]
    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.step {
            Step::Int => visitor.visit_i32(self.reader.int()?),
            _ => self.deserialize_any(visitor),
        }
    }

    #[inline]
    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.step {
            Step::Long => visitor.visit_i64(self.reader.long()?),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let this = match self.step {
            Step::Union(branches) => self.branch(branches)?,
            _ => self,
        };
        match this.step {
            Step::Null => visitor.visit_none(),
            _ => visitor.visit_some(this),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let bytes = match self.step {
            Step::Union(branches) => return self.branch(branches)?.deserialize_seq(visitor),
            Step::Bytes => self.reader.bytes()?,
            Step::Fixed(size) => self.reader.take(*size)?,
            Step::NdArray(array) => {
                let rest = check_decoded(*array, self.reader.bytes()?)?;
                let mut elements = RawElements { dtype: array.dtype(), rest };
                let value = visitor.visit_seq(&mut elements)?;
                return match elements.rest {
                    [] => Ok(value),
                    _ => Err(Self::Error::custom("more elements than the type can take")),
                };
            }
            _ => return self.deserialize_any(visitor),
        };
        let mut bytes = SeqDeserializer::<_, DecodeError>::new(bytes.iter().copied());
        let value = visitor.visit_seq(&mut bytes)?;
        bytes.end()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let codec = self.codec;
        match self.step {
            Step::Enum(symbols) => {
                let symbol = self.symbol(*symbols)?;
                visitor.visit_enum(IntoDeserializer::<DecodeError>::into_deserializer(symbol))
            }
            Step::String => {
                let text = BorrowedStrDeserializer::new(self.reader.string()?);
                visitor.visit_enum(text)
            }
            Step::Union(branches) => {
                let inner = self.branch(branches)?;
                if matches!(inner.step, Step::Enum(_) | Step::String) {
                    return inner.deserialize_enum(_name, variants, visitor);
                }
                let place = branches.iter().position(|at| *at == inner.at).unwrap_or_default();
                let named = |name: &&str| branch_of_variant(codec, branches, name) == Some(place);
                let variant = variants.iter().find(|name| named(name)).or(variants.get(place));
                let variant = variant.ok_or_else(|| {
                    Self::Error::custom(format!("no variant for the branch {place} of the union"))
                })?;
                visitor.visit_enum(Variant { variant, inner })
            }
            _ => Err(Self::Error::custom("an enum where the schema has neither enum nor union")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.codec.pass(self.at, self.reader, self.depth, Care::Skip)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit
        unit_struct map struct identifier
    }
}

/// The blocks of an array or map.
struct Blocks<'a, 'de> {
    reader: &'a mut Reader<'de>,
    least: usize,
    block: Block,
    start: usize,
    left: usize,
    all: usize,
    ended: bool,
}

impl<'a, 'de> Blocks<'a, 'de> {
    fn new(reader: &'a mut Reader<'de>, least: usize) -> Self {
        let block = Block { count: 0, bytes: None };
        Self { reader, least, block, start: 0, left: 0, all: 0, ended: false }
    }

    /// Returns whether there is one more element, which must be read next.
    #[inline]
    fn more(&mut self) -> Result<bool> {
        if self.left == 0 && !self.next_block()? {
            return Ok(false);
        }
        self.left -= 1;
        self.all += 1;
        Ok(true)
    }

    fn next_block(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.reader.end_block(self.block, self.start)?;
        match self.reader.block(self.least)? {
            Some(block) => {
                (self.block, self.left) = (block, block.count);
                self.start = self.reader.rest().len();
            }
            None => self.ended = true,
        }
        Ok(!self.ended)
    }

    /// Checks that all elements are read, and returns their number.
    fn finish(mut self) -> Result<usize> {
        if self.left > 0 || self.next_block()? {
            return Err(DecodeError::custom("more elements than the type can take"));
        }
        Ok(self.all)
    }
}

struct Elements<'b, 'a, 'de> {
    codec: &'a Codec,
    blocks: &'b mut Blocks<'a, 'de>,
    at: usize,
    step: &'a Step,
    depth: usize,
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, '_, 'de> {
    type Error = DecodeError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.blocks.more()? {
            return Ok(None);
        }
        let Elements { codec, blocks, at, step, depth } = &mut **self;
        let decoder = Decoder { codec, reader: blocks.reader, at: *at, step, depth: *depth };
        match seed.deserialize(decoder) {
            Ok(element) => Ok(Some(element)),
            Err(error) => Err(error.in_element(blocks.all - 1)),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.blocks.left)
    }
}

struct Entries<'b, 'a, 'de> {
    codec: &'a Codec,
    blocks: &'b mut Blocks<'a, 'de>,
    at: usize,
    depth: usize,
    key: &'de str,
}

impl<'de> MapAccess<'de> for &mut Entries<'_, '_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.blocks.more()? {
            return Ok(None);
        }
        self.key = self.blocks.reader.string()?;
        seed.deserialize(BorrowedStrDeserializer::new(self.key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let Entries { codec, blocks, at, depth, key } = &mut **self;
        let step = &codec.plan[*at];
        let decoder = Decoder { codec, reader: blocks.reader, at: *at, step, depth: *depth };
        seed.deserialize(decoder).map_err(|error| error.in_key(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.blocks.left)
    }
}

struct Fields<'a, 'de> {
    codec: &'a Codec,
    reader: &'a mut Reader<'de>,
    at: usize,
    depth: usize,
    steps: &'a [usize],
    next: usize,
}

impl<'de> MapAccess<'de> for &mut Fields<'_, 'de> {
    type Error = DecodeError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.next >= self.steps.len() {
            return Ok(None);
        }
        let name = self.codec.field_name(self.at, self.next);
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let at = self.steps[self.next];
        self.next += 1;
        let Fields { codec, reader, depth, .. } = &mut **self;
        let step = &codec.plan[at];
        let value = seed.deserialize(Decoder { codec, reader, at, step, depth: *depth });
        value.map_err(|error| error.in_field(self.codec.field_name(self.at, self.next - 1)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.steps.len() - self.next)
    }
}

/// A union's branch as a variant.
struct Variant<'a, 'de> {
    variant: &'static str,
    inner: Decoder<'a, 'de>,
}

impl<'a, 'de> EnumAccess<'de> for Variant<'a, 'de> {
    type Error = DecodeError;
    type Variant = Decoder<'a, 'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Decoder<'a, 'de>)> {
        let name = StrDeserializer::<DecodeError>::new(self.variant);
        Ok((seed.deserialize(name)?, self.inner))
    }
}

impl<'de> VariantAccess<'de> for Decoder<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<()> {
        self.codec.pass(self.at, self.reader, self.depth, Care::Skip)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }
}
