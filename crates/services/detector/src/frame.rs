//! A frame: one array of a source, or a part of one.

use std::borrow::Cow;

use helio_core::schema::build::{
    TypeSpec, array, double, enumeration, long, ndarray, nullable, record, string, uint32, uint64,
};
use helio_core::schema::{DType, HasSchema, MAX_DIMENSIONS};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The limit of a source's name, in bytes.
pub const MAX_SOURCE_BYTES: usize = 255;
/// The limit of a unit, in bytes.
pub const MAX_UNITS_BYTES: usize = 63;
/// The most bytes of a frame's datum beside its elements.
pub const MAX_HEADER_BYTES: usize = 1024;
/// The limit of parts of one frame.
pub const MAX_PARTS: u32 = 65_536;

/// The order of elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The last index varies fastest, as in C and numpy.
    C,
    /// The first index varies fastest, as in Fortran and areaDetector's dimensions.
    F,
}

/// The compression of the elements. Packed bytes are passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None: the little-endian elements.
    None,
    /// LZ4, one raw block, as areaDetector writes it.
    Lz4,
    /// Bitshuffle and LZ4, as areaDetector and the HDF5 filter write it.
    Bslz4,
    /// Blosc's own frame.
    Blosc,
}

/// One array of a source, or a part of one. The description is the same in all parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame<'a> {
    /// The source's name, which is also the sample's key.
    #[serde(borrow)]
    pub source: Cow<'a, str>,
    /// The accelerator's pulse; 0 without one.
    pub pulse_id: u64,
    /// The number of the source's frame, which grows by 1.
    pub unique_id: u64,
    /// When it was taken, in nanoseconds of TAI since 1970-01-01T00:00:00 TAI.
    pub time: i64,
    /// The type of the elements.
    #[serde(with = "dtype")]
    pub dtype: DType,
    /// The dimensions, the slowest first in either order; at most [`MAX_DIMENSIONS`].
    pub shape: Vec<u64>,
    /// The order of elements in memory.
    pub order: Order,
    /// The compression of the elements.
    pub codec: Compression,
    /// The unit of the elements at this moment; empty without one.
    #[serde(borrow)]
    pub units: Cow<'a, str>,
    /// The number that displays show darkest.
    pub display_low: Option<f64>,
    /// The number that displays show brightest.
    pub display_high: Option<f64>,
    /// The revision of the source's attributes that holds for it; 0 without attributes.
    pub attributes: u64,
    /// The burst that it belongs to; 0 without one.
    pub burst: u64,
    /// Its number in the burst, from 1; 0 without a burst.
    pub chapter: u32,
    /// The number of this part, from 0.
    pub part: u32,
    /// Number of parts; 1 for a whole frame.
    pub parts: u32,
    /// The bytes of all parts' data together.
    pub length: u64,
    /// The elements, or this part of them.
    #[serde(borrow, with = "raw")]
    pub data: Cow<'a, [u8]>,
}

/// Why a frame is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A text is too long.
    #[error("{field} has {found} bytes, at most {limit} are allowed; shorten it")]
    Text {
        /// The field.
        field: &'static str,
        /// Its bytes.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// There are too many dimensions.
    #[error("{found} dimensions, at most {MAX_DIMENSIONS} are allowed")]
    Dimensions {
        /// Their number.
        found: usize,
    },
    /// The elements of that type and shape have another size.
    #[error("{found} bytes of data, but {dtype} of shape {shape:?} are {expected}")]
    Size {
        /// The bytes of data.
        found: u64,
        /// The type of the elements.
        dtype: DType,
        /// The dimensions.
        shape: Vec<u64>,
        /// The bytes of such an array; the largest number if they are more than that.
        expected: u64,
    },
    /// The parts are impossible: no such number, or a part of another size.
    #[error("part {part} of {parts} with {found} bytes cannot be one of a frame of {length} bytes")]
    Part {
        /// The number, from 0.
        part: u32,
        /// Number of parts.
        parts: u32,
        /// Its bytes.
        found: u64,
        /// The frame's bytes.
        length: u64,
    },
    /// The limit leaves no room for elements, or the frame would have too many parts.
    #[error(
        "a frame of {length} bytes does not fit in {MAX_PARTS} samples of {limit} bytes; raise \
         the transport's payload limit"
    )]
    PayloadLimit {
        /// The frame's bytes.
        length: u64,
        /// The limit of a sample's payload, in bytes.
        limit: usize,
    },
}

impl<'a> Frame<'a> {
    /// Returns a whole frame in C order without compression, ids, units and limits; fields can be
    /// changed.
    #[must_use]
    pub fn new(source: &'a str, dtype: DType, shape: &[u64], data: &'a [u8]) -> Self {
        Self {
            source: source.into(),
            pulse_id: 0,
            unique_id: 0,
            time: 0,
            dtype,
            shape: shape.to_vec(),
            order: Order::C,
            codec: Compression::None,
            units: "".into(),
            display_low: None,
            display_high: None,
            attributes: 0,
            burst: 0,
            chapter: 0,
            part: 0,
            parts: 1,
            length: data.len() as u64,
            data: data.into(),
        }
    }

    /// Returns the bytes of the elements without compression; `None` if they have no 64-bit number.
    #[must_use]
    pub fn element_bytes(&self) -> Option<u64> {
        let size = self.dtype.size() as u64;
        self.shape.iter().try_fold(size, |all, size| all.checked_mul(*size))
    }

    /// Checks the description, and that the data has the size of such a frame or part. Packed
    /// elements are not unpacked.
    ///
    /// # Errors
    /// [`FrameError`] names the field that is wrong.
    pub fn check(&self) -> Result<(), FrameError> {
        self.check_description()?;
        let found = self.data.len() as u64;
        let Self { part, parts, length, .. } = *self;
        match self.range(part) {
            Some((start, end)) if end - start == found => Ok(()),
            _ => Err(FrameError::Part { part, parts, found, length }),
        }
    }

    fn check_description(&self) -> Result<(), FrameError> {
        let texts = [
            ("source", self.source.len(), MAX_SOURCE_BYTES),
            ("units", self.units.len(), MAX_UNITS_BYTES),
        ];
        for (field, found, limit) in texts {
            if found > limit {
                return Err(FrameError::Text { field, found, limit });
            }
        }
        if self.shape.len() > MAX_DIMENSIONS {
            return Err(FrameError::Dimensions { found: self.shape.len() });
        }
        let expected = self.element_bytes();
        let packed = self.codec != Compression::None;
        if expected.is_none() || (!packed && expected != Some(self.length)) {
            return Err(FrameError::Size {
                found: self.length,
                dtype: self.dtype,
                shape: self.shape.clone(),
                expected: expected.unwrap_or(u64::MAX),
            });
        }
        Ok(())
    }

    /// Returns where a part begins and ends in the frame's data: all parts but the last have the
    /// same size, and none is empty unless the frame is.
    pub(crate) fn range(&self, part: u32) -> Option<(u64, u64)> {
        let Self { parts, length, .. } = *self;
        if part >= parts || parts > MAX_PARTS {
            return None;
        }
        let size = length.div_ceil(parts.into());
        let last = u64::from(parts - 1) * size;
        let possible = parts == 1 || last < length;
        let start = u64::from(part) * size;
        possible.then(|| (start, length.min(start.saturating_add(size))))
    }

    /// Divides the frame into parts whose datums have at most `limit` bytes. A frame that fits is
    /// its only part; one that is a part already is not divided again. Nothing is copied.
    ///
    /// # Errors
    /// [`FrameError`] if the frame is invalid, or would have too many parts.
    pub fn parts(&self, limit: usize) -> Result<impl Iterator<Item = Frame<'_>>, FrameError> {
        self.check()?;
        let length = self.length;
        let wrong = || FrameError::PayloadLimit { length, limit };
        let room = limit.checked_sub(MAX_HEADER_BYTES).filter(|room| *room > 0);
        let parts = length.div_ceil(room.ok_or_else(wrong)? as u64).max(1);
        let parts = u32::try_from(parts).ok().filter(|n| *n <= MAX_PARTS).ok_or_else(wrong)?;
        let parts = if self.parts == 1 { parts } else { 1 };
        Ok((0..parts).map(move |part| self.part(part, parts)))
    }

    fn part(&self, part: u32, parts: u32) -> Frame<'_> {
        if parts == 1 {
            return Frame { data: Cow::Borrowed(&self.data), ..self.described() };
        }
        let description = Frame { part, parts, ..self.described() };
        let (start, end) = description.range(part).unwrap_or_default();
        let data = self.data.get(start as usize..end as usize).unwrap_or_default();
        Frame { data: Cow::Borrowed(data), ..description }
    }

    /// The frame without its data.
    fn described(&self) -> Frame<'_> {
        Frame {
            source: Cow::Borrowed(&self.source),
            units: Cow::Borrowed(&self.units),
            shape: self.shape.clone(),
            data: Cow::Borrowed(&[]),
            ..*self
        }
    }

    /// Returns a frame that borrows nothing; data is copied unless it is owned.
    #[must_use]
    pub fn into_owned(self) -> Frame<'static> {
        Frame {
            source: Cow::Owned(self.source.into_owned()),
            units: Cow::Owned(self.units.into_owned()),
            data: Cow::Owned(self.data.into_owned()),
            ..self
        }
    }

    /// Returns whether another part is of the same frame.
    pub(crate) fn is_part_of(&self, other: &Frame<'_>) -> bool {
        // A limit that is NaN is the same as itself.
        let limits = |frame: &Frame<'_>| {
            [frame.display_low, frame.display_high].map(|limit| limit.map(f64::to_bits))
        };
        let [mut one, mut two] = [self.described(), other.described()];
        for frame in [&mut one, &mut two] {
            (frame.part, frame.display_low, frame.display_high) = (0, None, None);
        }
        limits(self) == limits(other) && one == two
    }
}

impl HasSchema for Frame<'_> {
    fn type_spec() -> TypeSpec {
        let names = DType::ALL.map(DType::name);
        let codecs = ["none", "lz4", "bslz4", "blosc"];
        record("helio.detector.Frame")
            .description("One array of a source, or a part of one.")
            .field("source", string())
            .field("pulse_id", uint64())
            .field("unique_id", uint64())
            .field("time", long().attribute("logicalType", "tai-nanos"))
            .field("dtype", enumeration("helio.detector.DType", &names))
            .field("shape", array(uint64()))
            .field("order", enumeration("helio.detector.Order", &["c", "f"]))
            .field("codec", enumeration("helio.detector.Codec", &codecs))
            .field("units", string())
            .field("display_low", nullable(double()))
            .field("display_high", nullable(double()))
            .field("attributes", uint64())
            .field("burst", uint64())
            .field("chapter", uint32())
            .field("part", uint32())
            .field("parts", uint32())
            .field("length", uint64())
            .units("byte")
            .field("data", ndarray(DType::Uint8, &[-1]))
            .into()
    }
}

mod dtype {
    use helio_core::schema::DType;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(dtype: &DType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(dtype.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DType, D::Error> {
        let name = String::deserialize(from)?;
        DType::from_name(&name).ok_or_else(|| D::Error::custom(format!("no element type {name}")))
    }
}

/// Bytes as a block; serde's own way is one by one.
mod raw {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(data: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(data)
    }

    pub(super) fn deserialize<'de: 'a, 'a, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Cow<'a, [u8]>, D::Error> {
        <&[u8]>::deserialize(from).map(Cow::Borrowed)
    }
}
