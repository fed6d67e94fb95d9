//! The columns of a batch in the making.
//!
//! Each slot of the shape has a builder: values, and which of them are null. Builders can be cut
//! back to a number of rows, so that a sample that cannot be read leaves nothing behind.

use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, Time64MicrosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, ListArray,
    MapArray, NullArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{
    Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{ArrowError, DataType, Field, Fields, TimeUnit};
use helio_core::projection::{Kind, Shape, Sink, Slot};
use helio_core::schema::{DType, LogicalType};

#[cfg(target_endian = "big")]
compile_error!("raw arrays are moved as blocks: a little-endian machine is needed");

/// The limit of bytes and of elements in one column: Arrow counts them with 31 bits.
pub(crate) const MAX_COLUMN: usize = i32::MAX as usize;

/// The largest `fixed` that is one in Arrow, in bytes: there a null takes as much as a value.
pub(crate) const MAX_FIXED: usize = 64;

#[derive(Debug)]
pub(crate) struct Builders {
    all: Vec<Builder>,
}

#[derive(Debug)]
struct Builder {
    values: Values,
    nulls: NullBufferBuilder,
    children: Vec<usize>,
}

#[derive(Debug)]
enum Values {
    /// Only nulls, or a record: the members are the values.
    None,
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    /// The elements of raw arrays: the ends of the arrays after a zero, and all bytes.
    Elements(Vec<i32>, MutableBuffer, DType),
    /// The ends of the values, after a zero.
    Bytes(Vec<i32>, Vec<u8>),
    Fixed(usize, Vec<u8>),
    /// Symbols' indices, and the symbols.
    Symbols(Vec<i32>, Arc<StringArray>),
    /// The ends of the lists in the child, after a zero.
    List(Vec<i32>),
    /// The same, and the keys: their ends after a zero, and their bytes.
    Map(Vec<i32>, Vec<i32>, Vec<u8>),
}

impl Builders {
    pub(crate) fn new(shape: &Shape) -> Self {
        let builder = |slot: &Slot| Builder {
            values: Values::new(slot),
            nulls: NullBufferBuilder::new(0),
            children: slot.children.clone(),
        };
        Self { all: shape.slots().iter().map(builder).collect() }
    }

    /// The largest number of bytes or elements in a column.
    pub(crate) fn largest(&self) -> usize {
        let size = |builder: &Builder| match &builder.values {
            Values::Bytes(_, bytes) => bytes.len().max(builder.nulls.len()),
            Values::Elements(_, bytes, _) => bytes.len().max(builder.nulls.len()),
            Values::Map(_, keys, bytes) => bytes.len().max(keys.len()),
            _ => builder.nulls.len(),
        };
        self.all.iter().map(size).max().unwrap_or_default()
    }

    /// Cuts columns back to their first values.
    pub(crate) fn truncate(&mut self, columns: &[usize], length: usize) {
        for slot in columns {
            let children = std::mem::take(&mut self.all[*slot].children);
            let inside = self.all[*slot].truncate(length);
            self.truncate(&children, inside);
            self.all[*slot].children = children;
        }
    }

    /// Takes a column; its builder is empty afterwards.
    pub(crate) fn finish(
        &mut self,
        slot: usize,
        fields: &[Arc<Field>],
    ) -> Result<ArrayRef, ArrowError> {
        let children = self.all[slot].children.clone();
        let inside: Vec<ArrayRef> = children
            .iter()
            .map(|child| self.finish(*child, fields))
            .collect::<Result<_, ArrowError>>()?;
        self.all[slot].finish(fields[slot].data_type(), inside)
    }
}

impl Values {
    fn new(slot: &Slot) -> Self {
        if let (Kind::Bytes, Some(LogicalType::NdArray(array))) = (&slot.kind, slot.logical) {
            return Self::Elements(vec![0], MutableBuffer::new(0), array.dtype());
        }
        match &slot.kind {
            Kind::Null | Kind::Record => Self::None,
            Kind::Boolean => Self::Boolean(BooleanBufferBuilder::new(0)),
            Kind::Int => Self::Int(Vec::new()),
            Kind::Long => Self::Long(Vec::new()),
            Kind::Float => Self::Float(Vec::new()),
            Kind::Double => Self::Double(Vec::new()),
            Kind::Fixed(size) if *size <= MAX_FIXED => Self::Fixed(*size, Vec::new()),
            Kind::Bytes | Kind::String | Kind::Fixed(_) => Self::Bytes(vec![0], Vec::new()),
            Kind::Enum(symbols) => {
                let symbols = StringArray::from_iter_values(symbols.iter());
                Self::Symbols(Vec::new(), Arc::new(symbols))
            }
            Kind::List => Self::List(vec![0]),
            Kind::Map => Self::Map(vec![0], vec![0], Vec::new()),
        }
    }

    /// Adds a value in the place of a null.
    fn push_null(&mut self) {
        match self {
            Self::None => {}
            Self::Boolean(values) => values.append(false),
            Self::Int(values) | Self::Symbols(values, _) => values.push(0),
            Self::Long(values) => values.push(0),
            Self::Float(values) => values.push(0.0),
            Self::Double(values) => values.push(0.0),
            Self::Bytes(ends, _)
            | Self::List(ends)
            | Self::Elements(ends, ..)
            | Self::Map(ends, ..) => repeat_last(ends),
            Self::Fixed(size, bytes) => bytes.resize(bytes.len() + *size, 0),
        }
    }
}

fn repeat_last(ends: &mut Vec<i32>) {
    ends.push(last(ends));
}

fn last(ends: &[i32]) -> i32 {
    ends.last().copied().unwrap_or_default()
}

impl Builder {
    /// Cuts the values back, and returns the number of those that the children keep.
    fn truncate(&mut self, length: usize) -> usize {
        self.nulls.truncate(length);
        match &mut self.values {
            Values::None => {}
            Values::Boolean(values) => values.truncate(length),
            Values::Int(values) | Values::Symbols(values, _) => values.truncate(length),
            Values::Long(values) => values.truncate(length),
            Values::Float(values) => values.truncate(length),
            Values::Double(values) => values.truncate(length),
            Values::Bytes(ends, bytes) => {
                ends.truncate(length + 1);
                bytes.truncate(last(ends) as usize);
            }
            Values::Elements(ends, bytes, dtype) => {
                ends.truncate(length + 1);
                bytes.truncate(last(ends) as usize * dtype.size());
            }
            Values::Fixed(size, bytes) => bytes.truncate(length * *size),
            Values::List(ends) => {
                ends.truncate(length + 1);
                return last(ends) as usize;
            }
            Values::Map(ends, keys, bytes) => {
                ends.truncate(length + 1);
                keys.truncate(last(ends) as usize + 1);
                bytes.truncate(last(keys) as usize);
                return last(ends) as usize;
            }
        }
        length
    }

    fn finish(
        &mut self,
        kind: &DataType,
        mut inside: Vec<ArrayRef>,
    ) -> Result<ArrayRef, ArrowError> {
        let length = self.nulls.len();
        let nulls = self.nulls.finish();
        let take = std::mem::take::<Vec<i32>>;
        Ok(match &mut self.values {
            Values::None => match kind {
                DataType::Struct(fields) => struct_of(fields, inside, length, nulls)?,
                _ => Arc::new(NullArray::new(length)),
            },
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int(values) => ints(take(values).into(), nulls, kind)?,
            Values::Long(values) => longs(std::mem::take(values).into(), nulls, kind)?,
            Values::Float(values) => {
                primitive::<Float32Type>(std::mem::take(values).into(), nulls, kind)?
            }
            Values::Double(values) => {
                primitive::<Float64Type>(std::mem::take(values).into(), nulls, kind)?
            }
            Values::Bytes(ends, bytes) => {
                let (ends, bytes) = (offsets(ends), std::mem::take(bytes).into());
                match kind {
                    DataType::Utf8 => Arc::new(StringArray::try_new(ends, bytes, nulls)?),
                    _ => Arc::new(BinaryArray::try_new(ends, bytes, nulls)?),
                }
            }
            Values::Elements(ends, bytes, dtype) => {
                let DataType::List(item) = kind else { return Err(unexpected(kind)) };
                let items = elements(std::mem::replace(bytes, MutableBuffer::new(0)), *dtype);
                Arc::new(ListArray::try_new(item.clone(), offsets(ends), items, nulls)?)
            }
            Values::Fixed(size, bytes) => {
                let bytes = std::mem::take(bytes).into();
                let size = *size as i32;
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, bytes, nulls, length)?)
            }
            Values::Symbols(values, symbols) => {
                let keys = PrimitiveArray::<Int32Type>::try_new(take(values).into(), nulls)?;
                Arc::new(DictionaryArray::try_new(keys, symbols.clone())?)
            }
            Values::List(ends) => {
                let DataType::List(item) = kind else { return Err(unexpected(kind)) };
                let items = inside.pop().ok_or_else(|| unexpected(kind))?;
                Arc::new(ListArray::try_new(item.clone(), offsets(ends), items, nulls)?)
            }
            Values::Map(ends, keys, bytes) => {
                let DataType::Map(field, _) = kind else { return Err(unexpected(kind)) };
                let DataType::Struct(fields) = field.data_type() else {
                    return Err(unexpected(kind));
                };
                let bytes = std::mem::take(bytes).into();
                let count = keys.len() - 1;
                let keys = StringArray::try_new(offsets(keys), bytes, None)?;
                inside.insert(0, Arc::new(keys));
                let entries =
                    StructArray::try_new_with_length(fields.clone(), inside, None, count)?;
                let ends = offsets(ends);
                Arc::new(MapArray::try_new(field.clone(), ends, entries, nulls, false)?)
            }
        })
    }
}

fn unexpected(kind: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a builder of another type than {kind}"))
}

fn struct_of(
    fields: &Fields,
    members: Vec<ArrayRef>,
    length: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), members, nulls, length)?))
}

/// Takes ends as offsets, and leaves a zero.
fn offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(std::mem::replace(ends, vec![0]).into())
}

fn ints(
    values: ScalarBuffer<i32>,
    nulls: Option<NullBuffer>,
    kind: &DataType,
) -> Result<ArrayRef, ArrowError> {
    Ok(match kind {
        DataType::Date32 => primitive::<Date32Type>(values, nulls, kind)?,
        DataType::Time32(_) => primitive::<Time32MillisecondType>(values, nulls, kind)?,
        DataType::Int8 => narrow::<Int8Type, _>(&values, nulls, |n| n as i8),
        DataType::UInt8 => narrow::<UInt8Type, _>(&values, nulls, |n| n as u8),
        DataType::Int16 => narrow::<Int16Type, _>(&values, nulls, |n| n as i16),
        DataType::UInt16 => narrow::<UInt16Type, _>(&values, nulls, |n| n as u16),
        _ => primitive::<Int32Type>(values, nulls, kind)?,
    })
}

fn longs(
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
    kind: &DataType,
) -> Result<ArrayRef, ArrowError> {
    match kind {
        DataType::Time64(_) => primitive::<Time64MicrosecondType>(values, nulls, kind),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            primitive::<TimestampMillisecondType>(values, nulls, kind)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            primitive::<TimestampMicrosecondType>(values, nulls, kind)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            primitive::<TimestampNanosecondType>(values, nulls, kind)
        }
        DataType::UInt32 => Ok(narrow::<UInt32Type, _>(&values, nulls, |n| n as u32)),
        DataType::UInt64 => Ok(narrow::<UInt64Type, _>(&values, nulls, |n| n as u64)),
        _ => primitive::<Int64Type>(values, nulls, kind),
    }
}

/// Numbers that were checked to be of a narrower range, or the bits of one without sign.
fn narrow<T: ArrowPrimitiveType, N: Copy>(
    values: &[N],
    nulls: Option<NullBuffer>,
    cast: impl Fn(N) -> T::Native,
) -> ArrayRef {
    let values: Vec<T::Native> = values.iter().map(|value| cast(*value)).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

/// The elements of raw arrays as numbers: their memory.
fn elements(bytes: MutableBuffer, dtype: DType) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(bytes: MutableBuffer) -> ArrayRef {
        let buffer: Buffer = bytes.into();
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(buffer), None))
    }
    match dtype {
        DType::Int8 => of::<Int8Type>(bytes),
        DType::Uint8 => of::<UInt8Type>(bytes),
        DType::Int16 => of::<Int16Type>(bytes),
        DType::Uint16 => of::<UInt16Type>(bytes),
        DType::Int32 => of::<Int32Type>(bytes),
        DType::Uint32 => of::<UInt32Type>(bytes),
        DType::Int64 => of::<Int64Type>(bytes),
        DType::Uint64 => of::<UInt64Type>(bytes),
        DType::Float32 => of::<Float32Type>(bytes),
        DType::Float64 => of::<Float64Type>(bytes),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: ScalarBuffer<T::Native>,
    nulls: Option<NullBuffer>,
    kind: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let array = PrimitiveArray::<T>::try_new(values, nulls)?;
    Ok(Arc::new(array.with_data_type(kind.clone())))
}

impl Builders {
    /// Adds a value of a type that the slot has: the projection feeds no other.
    #[inline]
    fn put(&mut self, slot: usize, put: impl FnOnce(&mut Values)) {
        let builder = &mut self.all[slot];
        put(&mut builder.values);
        builder.nulls.append_non_null();
    }
}

impl<'a> Sink<'a> for Builders {
    #[inline]
    fn null(&mut self, slot: usize) {
        let builder = &mut self.all[slot];
        builder.values.push_null();
        builder.nulls.append_null();
    }

    fn boolean(&mut self, slot: usize, value: bool) {
        self.put(slot, |values| {
            if let Values::Boolean(values) = values {
                values.append(value);
            }
        });
    }

    #[inline]
    fn int(&mut self, slot: usize, value: i32) {
        self.put(slot, |values| {
            if let Values::Int(values) = values {
                values.push(value);
            }
        });
    }

    #[inline]
    fn long(&mut self, slot: usize, value: i64) {
        self.put(slot, |values| {
            if let Values::Long(values) = values {
                values.push(value);
            }
        });
    }

    #[inline]
    fn float(&mut self, slot: usize, value: f32) {
        self.put(slot, |values| {
            if let Values::Float(values) = values {
                values.push(value);
            }
        });
    }

    #[inline]
    fn double(&mut self, slot: usize, value: f64) {
        self.put(slot, |values| {
            if let Values::Double(values) = values {
                values.push(value);
            }
        });
    }

    fn bytes(&mut self, slot: usize, value: &'a [u8]) {
        self.put(slot, |values| match values {
            Values::Bytes(ends, bytes) => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len() as i32);
            }
            Values::Fixed(_, bytes) => bytes.extend_from_slice(value),
            Values::Elements(ends, bytes, dtype) => {
                bytes.extend_from_slice(value);
                ends.push((bytes.len() / dtype.size()) as i32);
            }
            _ => {}
        });
    }

    fn string(&mut self, slot: usize, value: &'a str) {
        self.bytes(slot, value.as_bytes());
    }

    fn symbol(&mut self, slot: usize, value: u32) {
        self.put(slot, |values| {
            if let Values::Symbols(values, _) = values {
                values.push(value as i32);
            }
        });
    }

    fn floats(&mut self, slot: usize, raw: &'a [[u8; 4]]) {
        let builder = &mut self.all[slot];
        if let Values::Float(values) = &mut builder.values {
            values.extend(raw.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            builder.nulls.append_n_non_nulls(raw.len());
        }
    }

    fn doubles(&mut self, slot: usize, raw: &'a [[u8; 8]]) {
        let builder = &mut self.all[slot];
        if let Values::Double(values) = &mut builder.values {
            values.extend(raw.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            builder.nulls.append_n_non_nulls(raw.len());
        }
    }

    fn record(&mut self, slot: usize) {
        self.put(slot, |_| {});
    }

    fn key(&mut self, slot: usize, key: &'a str) {
        if let Values::Map(_, ends, bytes) = &mut self.all[slot].values {
            bytes.extend_from_slice(key.as_bytes());
            ends.push(bytes.len() as i32);
        }
    }

    fn end(&mut self, slot: usize, count: usize) {
        self.put(slot, |values| {
            if let Values::List(ends) | Values::Map(ends, ..) = values {
                ends.push(last(ends) + count as i32);
            }
        });
    }
}
