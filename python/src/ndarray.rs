//! Numpy arrays and raw little-endian elements: one copy, or none.
//!
//! With `buffer` it is the only module of the package with `unsafe`. Constraints: it relies on a
//! little-endian machine (checked when compiled), on the interpreter lock for reading an array's
//! memory, and on owners whose bytes never move or change for views.

#![allow(unsafe_code)]

use numpy::ndarray::ArrayView1;
use numpy::npyffi::{_PyArray_GET_ITEM_DATA as fields, flags};
use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

#[cfg(target_endian = "big")]
compile_error!("arrays are moved as blocks: a little-endian machine is needed");

/// Aligned arrays of at least this size are views of the sample's bytes. A copy of a smaller one
/// costs less than keeping the whole sample alive.
pub(crate) const VIEW_MIN_BYTES: usize = 4096;

/// Element types that are moved as blocks, in numpy's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numeric {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Numeric {
    /// The type of an array's elements, if it is one of these in the machine's byte order.
    pub(crate) fn of(array: &Bound<'_, PyUntypedArray>) -> Option<Self> {
        let dtype = array.dtype();
        if dtype.is_native_byteorder() == Some(false) {
            return None;
        }
        match (dtype.kind(), dtype.itemsize()) {
            (b'b', 1) => Some(Self::Bool),
            (b'i', 1) => Some(Self::I8),
            (b'u', 1) => Some(Self::U8),
            (b'i', 2) => Some(Self::I16),
            (b'u', 2) => Some(Self::U16),
            (b'u', 4) => Some(Self::U32),
            (b'u', 8) => Some(Self::U64),
            (b'i', 4) => Some(Self::I32),
            (b'i', 8) => Some(Self::I64),
            (b'f', 4) => Some(Self::F32),
            (b'f', 8) => Some(Self::F64),
            _ => None,
        }
    }

    /// Numpy's name of the type.
    pub(crate) const fn dtype(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// Appends the memory of a contiguous array.
pub(crate) fn append_raw(array: &Bound<'_, PyUntypedArray>, out: &mut Vec<u8>) {
    assert!(array.is_c_contiguous(), "callers check the layout");
    let size = array.len() * array.dtype().itemsize();
    if size == 0 {
        return;
    }
    // SAFETY: the array is alive and contiguous, so `size` bytes lie at its data pointer; the
    // interpreter is attached, and the slice does not outlive this statement.
    out.extend_from_slice(unsafe {
        let data = (*fields(array.as_array_ptr())).data;
        std::slice::from_raw_parts(data.cast::<u8>(), size)
    });
}

/// Reads the elements of a one-dimensional, contiguous and aligned array of 32- or 64-bit integers.
pub(crate) fn integers(array: &Bound<'_, PyUntypedArray>, each: &mut dyn FnMut(i64)) {
    assert!(array.ndim() == 1 && array.is_c_contiguous() && array.is_aligned());
    if array.is_empty() {
        return;
    }
    let wide = Numeric::of(array) == Some(Numeric::I64);
    assert!(wide || Numeric::of(array) == Some(Numeric::I32), "callers check the type");
    // SAFETY: as in `append_raw`; the element type was checked, and the data is aligned.
    unsafe {
        let data = (*fields(array.as_array_ptr())).data;
        if wide {
            let slice = std::slice::from_raw_parts(data.cast::<i64>(), array.len());
            slice.iter().for_each(|item| each(*item));
        } else {
            let slice = std::slice::from_raw_parts(data.cast::<i32>(), array.len());
            slice.iter().for_each(|item| each(i64::from(*item)));
        }
    }
}

/// A read-only array of the elements that lie in `raw`: a view where `owner` holds `raw` and it is
/// large and aligned, otherwise a copy.
pub(crate) fn from_raw<'py, T: Element>(
    py: Python<'py>,
    raw: &[u8],
    owner: Option<&Bound<'py, PyAny>>,
) -> Bound<'py, PyAny> {
    let length = raw.len() / size_of::<T>();
    assert_eq!(length * size_of::<T>(), raw.len(), "callers cut whole elements");
    let aligned = raw.as_ptr().cast::<T>().is_aligned();
    let array = match owner {
        Some(owner) if aligned && raw.len() >= VIEW_MIN_BYTES => view::<T>(raw, length, owner),
        _ => copy::<T>(py, raw, length),
    };
    read_only(&array);
    array.into_any()
}

/// A read-only array of the given elements.
pub(crate) fn from_elements<'py, T: Element>(py: Python<'py>, items: &[T]) -> Bound<'py, PyAny> {
    let array = PyArray1::from_slice(py, items);
    read_only(&array);
    array.into_any()
}

fn copy<'py, T: Element>(py: Python<'py>, raw: &[u8], length: usize) -> Bound<'py, PyArray1<T>> {
    // SAFETY: the new array has room for `length` elements, all of which are written here before
    // anybody sees it; every bit pattern is a valid element of the numeric types used.
    unsafe {
        let array = PyArray1::<T>::new(py, [length], false);
        std::ptr::copy_nonoverlapping(raw.as_ptr(), array.data().cast::<u8>(), raw.len());
        array
    }
}

fn view<'py, T: Element>(
    raw: &[u8],
    length: usize,
    owner: &Bound<'py, PyAny>,
) -> Bound<'py, PyArray1<T>> {
    // SAFETY: `raw` is aligned, holds `length` elements, and lies in `owner`, whose bytes neither
    // move nor change; numpy keeps `owner` alive as the array's base. The array is made read-only
    // before it is handed out.
    unsafe {
        let items = ArrayView1::from_shape_ptr(length, raw.as_ptr().cast::<T>());
        PyArray1::borrow_from_array(&items, owner.clone())
    }
}

fn read_only<T: Element>(array: &Bound<'_, PyArray1<T>>) {
    // SAFETY: the array was made in this module and nobody else holds it yet.
    unsafe {
        (*fields(array.as_array_ptr())).flags &= !flags::NPY_ARRAY_WRITEABLE;
    }
}
