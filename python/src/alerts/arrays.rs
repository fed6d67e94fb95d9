//! Packets from numpy arrays, dictionaries or bytes.

use helio_alerts::arrays::{Column, Encoder, Images, Kind, Values, columns};
use helio_alerts::fits::Size;
use helio_core::codec::Codec;
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::errors;
use crate::schema::Schema;

/// Packets that are encoded, ready to be published.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawPackets")]
#[derive(Debug)]
pub(crate) struct RawPackets(pub(crate) Vec<Vec<u8>>);

/// A column from Python: its path, its array or list, and which values are null.
type Given<'py> = (String, Bound<'py, PyAny>, Option<PyReadonlyArray1<'py, bool>>);

/// A stamp's pixels, their variances, and the point spread function.
type GivenImages<'py> = (
    PyReadonlyArray3<'py, f32>,
    Option<PyReadonlyArray3<'py, f32>>,
    Option<PyReadonlyArray2<'py, f64>>,
);

/// A column whose memory is borrowed from Python.
enum Held<'py> {
    Booleans(PyReadonlyArray1<'py, bool>),
    Longs(PyReadonlyArray1<'py, i64>),
    Floats(PyReadonlyArray1<'py, f32>),
    Doubles(PyReadonlyArray1<'py, f64>),
    Texts(Vec<Option<PyBackedStr>>),
    Bytes(Vec<Option<PyBackedBytes>>),
    Images(GivenImages<'py>),
}

/// The texts and files of a column, as slices of Python's objects.
enum Borrowed<'a> {
    Texts(Vec<Option<&'a str>>),
    Bytes(Vec<Option<&'a [u8]>>),
    Nothing,
}

impl<'py> Held<'py> {
    fn of(kind: Kind, path: &str, given: &Bound<'py, PyAny>) -> PyResult<Self> {
        let held = match kind {
            Kind::Booleans | Kind::Presence => given.extract().map(Self::Booleans),
            Kind::Longs | Kind::Offsets => given.extract().map(Self::Longs),
            Kind::Floats => given.extract().map(Self::Floats),
            Kind::Doubles => given.extract().map(Self::Doubles),
            Kind::Texts => given.extract().map(Self::Texts),
            Kind::Bytes => match given.extract::<GivenImages<'py>>() {
                Ok(images) => Ok(Self::Images(images)),
                Err(_) => given.extract().map(Self::Bytes),
            },
        };
        held.map_err(|error| refused(&format!("the column {path}: {error}")))
    }

    fn borrow(&self) -> Borrowed<'_> {
        match self {
            Self::Texts(texts) => {
                Borrowed::Texts(texts.iter().map(|text| text.as_deref()).collect())
            }
            Self::Bytes(all) => Borrowed::Bytes(all.iter().map(|one| one.as_deref()).collect()),
            _ => Borrowed::Nothing,
        }
    }

    fn values<'a>(&'a self, borrowed: &'a Borrowed<'a>) -> PyResult<Values<'a>> {
        Ok(match (self, borrowed) {
            (Self::Booleans(array), _) => Values::Booleans(slice(array)?),
            (Self::Longs(array), _) => Values::Longs(slice(array)?),
            (Self::Floats(array), _) => Values::Floats(slice(array)?),
            (Self::Doubles(array), _) => Values::Doubles(slice(array)?),
            (Self::Images((pixels, variances, psf)), _) => {
                let size = |shape: &[usize]| Size { columns: shape[1], rows: shape[0] };
                let psf = psf.as_ref().map(|psf| Ok::<_, PyErr>((slice(psf)?, size(psf.shape()))));
                Values::Images(Images {
                    size: size(&pixels.shape()[1..]),
                    pixels: slice(pixels)?,
                    variances: variances.as_ref().map(slice).transpose()?,
                    psf: psf.transpose()?,
                })
            }
            (_, Borrowed::Texts(texts)) => Values::Texts(texts),
            (_, Borrowed::Bytes(all)) => Values::Bytes(all),
            (_, Borrowed::Nothing) => Values::Bytes(&[]),
        })
    }
}

/// The elements of an array that the package has made contiguous.
fn slice<'a, T: Element, D: numpy::ndarray::Dimension>(
    array: &'a numpy::PyReadonlyArray<'_, T, D>,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|error| PyValueError::new_err(error.to_string()))
}

fn refused(message: &str) -> PyErr {
    Python::attach(|py| {
        let made = errors::class(py, "EncodeError")
            .and_then(|class| class.call1((message, "", "columns that fit the schema", "others")));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// The kinds of a schema's columns, by path.
#[pyfunction]
pub(crate) fn array_columns(schema: &Schema) -> Vec<(String, &'static str)> {
    let name = |kind| match kind {
        Kind::Booleans | Kind::Presence => "bool",
        Kind::Longs | Kind::Offsets => "int64",
        Kind::Floats => "float32",
        Kind::Doubles => "float64",
        Kind::Texts => "str",
        Kind::Bytes => "bytes",
    };
    let columns = columns(schema.schema());
    columns
        .into_iter()
        .map(|(path, kind)| (path, if kind == Kind::Offsets { "offsets" } else { name(kind) }))
        .collect()
}

#[pymethods]
impl RawPackets {
    /// Of columns, which `_arrays.py` has converted to the types of [`array_columns`].
    #[staticmethod]
    fn of_arrays(
        py: Python<'_>,
        schema: &Schema,
        rows: usize,
        given: Vec<Given<'_>>,
    ) -> PyResult<Self> {
        let kinds = columns(schema.schema());
        let held: Vec<_> = given
            .iter()
            .map(|(path, array, _)| {
                let kind = kinds.iter().find(|(known, _)| known == path);
                let unknown = || refused(&format!("the schema has no field for the column {path}"));
                Held::of(kind.ok_or_else(unknown)?.1, path, array)
            })
            .collect::<PyResult<_>>()?;
        let borrowed: Vec<_> = held.iter().map(Held::borrow).collect();
        let mut bound = Vec::with_capacity(given.len());
        for ((path, _, nulls), (held, borrowed)) in given.iter().zip(held.iter().zip(&borrowed)) {
            let nulls = nulls.as_ref().map(slice).transpose()?;
            bound.push((path.clone(), Column { values: held.values(borrowed)?, nulls }));
        }
        let codec = Codec::new(schema.schema());
        let encoder = Encoder::new(&codec, rows, &bound);
        let encoder = encoder.map_err(|error| refused(&error.to_string()))?;
        let mut packets: Vec<Vec<u8>> = Vec::with_capacity(rows);
        for row in 0..rows {
            // A packet is about as long as the one before.
            let mut packet = Vec::with_capacity(packets.last().map_or(4_096, Vec::len) + 64);
            encoder.put(row, &mut packet);
            packets.push(packet);
            // Other threads run in between.
            py.detach(|| {});
        }
        Ok(Self(packets))
    }

    /// Of values in the schema.
    #[staticmethod]
    fn of_values(py: Python<'_>, schema: &Schema, values: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut packets = Vec::with_capacity(values.len());
        for value in values {
            let mut packet = Vec::new();
            schema.encode_into(&value, &mut packet)?;
            packets.push(packet);
            py.detach(|| {});
        }
        Ok(Self(packets))
    }

    /// Of datums without frames.
    #[staticmethod]
    fn of_datums(datums: Vec<PyBackedBytes>) -> Self {
        Self(datums.iter().map(|datum| datum.to_vec()).collect())
    }

    /// The datums.
    fn datums<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.iter().map(|packet| PyBytes::new(py, packet)).collect()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
