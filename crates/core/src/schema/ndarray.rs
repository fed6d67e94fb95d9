//! Element types, and arrays whose elements are raw bytes.

use std::fmt;

use serde_json::Value as Json;

use super::MAX_LENGTH;

/// The limit of an array's dimensions.
pub const MAX_DIMENSIONS: usize = 10;
/// The most parts of an array without elements, as of `[65536, 0]`.
const MAX_EMPTY_PARTS: usize = 65_536;

/// The type of a number, under numpy's name. In raw arrays elements are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// A signed 8-bit integer.
    Int8,
    /// An unsigned 8-bit integer.
    Uint8,
    /// A signed 16-bit integer.
    Int16,
    /// An unsigned 16-bit integer.
    Uint16,
    /// A signed 32-bit integer.
    Int32,
    /// An unsigned 32-bit integer.
    Uint32,
    /// A signed 64-bit integer.
    Int64,
    /// An unsigned 64-bit integer.
    Uint64,
    /// A 32-bit IEEE 754 number.
    Float32,
    /// A 64-bit IEEE 754 number.
    Float64,
}

impl DType {
    /// All types, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Int8,
        Self::Uint8,
        Self::Int16,
        Self::Uint16,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float32,
        Self::Float64,
    ];

    /// Numpy's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// Returns the type of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The size of an element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }

    /// The smallest and the largest number of an integer type.
    #[must_use]
    pub fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::Int8 => (i8::MIN.into(), i8::MAX.into()),
            Self::Uint8 => (0, u8::MAX.into()),
            Self::Int16 => (i16::MIN.into(), i16::MAX.into()),
            Self::Uint16 => (0, u16::MAX.into()),
            Self::Int32 => (i32::MIN.into(), i32::MAX.into()),
            Self::Uint32 => (0, u32::MAX.into()),
            Self::Int64 => (i64::MIN.into(), i64::MAX.into()),
            Self::Uint64 => (0, u64::MAX.into()),
            Self::Float32 | Self::Float64 => return None,
        })
    }

    /// Returns whether the type is of integers and has this one.
    #[must_use]
    pub fn holds(self, number: impl Into<i128>) -> bool {
        let number = number.into();
        self.range().is_some_and(|(least, most)| (least..=most).contains(&number))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of an n-dimensional array: raw little-endian elements, the last index varying fastest.
///
/// One dimension may be -1, as in numpy's `reshape`: its size follows from the number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NdArray {
    dtype: DType,
    rank: usize,
    shape: [i32; MAX_DIMENSIONS],
}

impl NdArray {
    /// Returns the type of arrays of that shape. `None` if there are more than [`MAX_DIMENSIONS`]
    /// dimensions, more than one of -1 or one of -1 beside one of 0, another negative one, or more
    /// than [`MAX_LENGTH`] bytes, or have more than 65,536 parts without an element.
    #[must_use]
    pub fn new(dtype: DType, shape: &[i32]) -> Option<Self> {
        let free = shape.iter().filter(|size| **size == -1).count();
        let known = || shape.iter().filter(|size| **size != -1);
        let invalid = known().any(|size| *size < i32::from(free > 0));
        if shape.len() > MAX_DIMENSIONS || free > 1 || invalid {
            return None;
        }
        let multiply = |all: usize, size: &i32| all.checked_mul(usize::try_from(*size).ok()?);
        known().try_fold(dtype.size(), multiply).filter(|bytes| *bytes <= MAX_LENGTH)?;
        // An array without elements is nothing on the wire, and its empty parts in JSON are.
        let one_at_least = |all: usize, size: &i32| multiply(all, &(*size).max(1));
        if known().any(|size| *size == 0) {
            known().try_fold(1, one_at_least).filter(|parts| *parts <= MAX_EMPTY_PARTS)?;
        }
        let mut all = [0; MAX_DIMENSIONS];
        all[..shape.len()].copy_from_slice(shape);
        Some(Self { dtype, rank: shape.len(), shape: all })
    }

    /// Returns the type that a schema's attributes `dtype` and `shape` name.
    pub(super) fn from_json(dtype: &Json, shape: &Json) -> Option<Self> {
        let size = |json: &Json| json.as_i64().and_then(|size| i32::try_from(size).ok());
        let shape = shape.as_array()?.iter().map(size).collect::<Option<Vec<_>>>()?;
        Self::new(DType::from_name(dtype.as_str()?)?, &shape)
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions, the slowest first; -1 is one of any size.
    #[must_use]
    pub fn shape(&self) -> &[i32] {
        &self.shape[..self.rank]
    }

    /// Returns the dimensions of an array of so many bytes; `None` if it is none of this type.
    #[must_use]
    pub fn shape_of(&self, bytes: usize) -> Option<Vec<usize>> {
        let rest = self.rest(bytes)?;
        Some(self.shape().iter().map(|size| usize::try_from(*size).unwrap_or(rest)).collect())
    }

    /// Returns whether so many bytes are an array of this type.
    #[must_use]
    pub fn holds(&self, bytes: usize) -> bool {
        self.rest(bytes).is_some()
    }

    /// The size of the free dimension; 1 without one.
    fn rest(&self, bytes: usize) -> Option<usize> {
        let known = self.shape().iter().filter_map(|size| usize::try_from(*size).ok());
        let row = known.product::<usize>() * self.dtype.size();
        if self.shape().contains(&-1) {
            bytes.is_multiple_of(row).then_some(bytes / row)
        } else {
            (bytes == row).then_some(1)
        }
    }

    /// Returns whether every array of this type is one of `other`, or some may be, or none.
    pub(crate) fn reads_as(&self, other: &Self) -> Reads {
        let pairs = || self.shape().iter().zip(other.shape());
        let never = |(one, two): (&i32, &i32)| one != two && *one >= 0 && *two >= 0;
        if self.dtype != other.dtype || self.rank != other.rank || pairs().any(never) {
            Reads::Never
        } else if pairs().all(|(one, two)| one == two || *two < 0) {
            Reads::Always
        } else {
            Reads::Sometimes
        }
    }
}

impl fmt::Display for NdArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape())
    }
}

impl fmt::Debug for NdArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Which of a writer's values a reader's type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Always,
    /// It depends on the value, which is checked.
    Sometimes,
    Never,
}
