//! Bytes to Python objects, by plan.

use numpy::Element;
use pyo3::exceptions::PyUnicodeDecodeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::error::CodecError;
use super::plan::{
    ArrayPlan, DEPTH_MAX, FieldPlan, IntegerPlan, NdArrayPlan, Node, NodeId, Plan, RecordPlan,
};
use crate::ndarray::{self, Numeric};
use crate::time::Time;

/// The most elements without bytes (nulls, empty records) of a datum: without a limit a few bytes
/// could demand any amount of memory.
const EMPTY_ITEMS_MAX: usize = 65_536;

type Decoded<T> = Result<T, CodecError>;

/// Decodes a whole datum. `owner` is the object that holds `bytes`, if arrays may be views of it.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    plan: &Plan,
    bytes: &[u8],
    owner: Option<&Bound<'py, PyAny>>,
) -> Decoded<Bound<'py, PyAny>> {
    let mut decoder = Decoder { py, plan, bytes, at: 0, owner, depth: 0, empty: EMPTY_ITEMS_MAX };
    let value = decoder.node(plan.root())?;
    if decoder.at < bytes.len() {
        let found = format!("{} more bytes", bytes.len() - decoder.at);
        return Err(CodecError::new("the end of the datum", found));
    }
    Ok(value)
}

/// Decodes the first `count` fields of a record, whatever follows them.
pub(crate) fn decode_first<'py>(
    py: Python<'py>,
    plan: &Plan,
    bytes: &[u8],
    count: usize,
) -> Decoded<Vec<Bound<'py, PyAny>>> {
    let fields = plan.record().map_or(&[][..], |record| &record.fields);
    let empty = EMPTY_ITEMS_MAX;
    let mut decoder = Decoder { py, plan, bytes, at: 0, owner: None, depth: 0, empty };
    let value = |field: &FieldPlan| {
        decoder.node(plan.node(field.node)).map_err(|error| error.at_field(&field.text))
    };
    fields.iter().take(count).map(value).collect()
}

struct Decoder<'a, 'py> {
    py: Python<'py>,
    plan: &'a Plan,
    bytes: &'a [u8],
    at: usize,
    owner: Option<&'a Bound<'py, PyAny>>,
    depth: u32,
    empty: usize,
}

fn object<T>(value: Bound<'_, T>) -> Bound<'_, PyAny> {
    value.into_any()
}

impl<'a, 'py> Decoder<'a, 'py> {
    fn node(&mut self, node: &'a Node) -> Decoded<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match node {
            Node::Null => py.None().into_bound(py),
            Node::Boolean => object(PyBool::new(py, self.boolean()?).to_owned()),
            Node::Int => object(PyInt::new(py, self.int()?)),
            Node::IntEnum(members) => {
                let value = self.int()?;
                match members.get(&value) {
                    Some(member) => member.bind(py).clone(),
                    None => object(PyInt::new(py, value)),
                }
            }
            Node::Long => object(PyInt::new(py, self.long()?)),
            Node::Integer(of) => object(PyInt::new(py, self.integer(*of)?)),
            Node::Time => {
                let time = Time::from_nanos(self.long()?);
                object(Bound::new(py, time).map_err(|e| CodecError::raised("Time", e))?)
            }
            Node::Float => object(PyFloat::new(py, f64::from(f32::from_le_bytes(self.array()?)))),
            Node::Double => object(PyFloat::new(py, f64::from_le_bytes(self.array()?))),
            Node::Bytes => {
                let size = self.size("bytes")?;
                object(PyBytes::new(py, self.take(size)?))
            }
            Node::NdArray(of) => self.ndarray(of)?,
            Node::String => {
                let size = self.size("string")?;
                object(PyString::new(py, self.text(size)?))
            }
            Node::Fixed(size) => object(PyBytes::new(py, self.take(*size)?)),
            Node::Enum(of) => {
                let index = self.int()?;
                let symbol = usize::try_from(index).ok().and_then(|index| of.symbols.get(index));
                let wrong = || CodecError::new(node.kind(), format!("symbol number {index}"));
                symbol.ok_or_else(wrong)?.bind(py).clone()
            }
            Node::Array(of) => self.nested(|this| this.elements(of))?,
            Node::Map(values) => self.nested(|this| this.map(*values))?,
            Node::Union(branches) => {
                let index = self.long()?;
                let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
                let wrong = || CodecError::new("a branch of the union", format!("number {index}"));
                let branch = *branch.ok_or_else(wrong)?;
                self.nested(|this| this.node(this.plan.node(branch)))?
            }
            Node::Record(record) => self.nested(|this| this.record(record))?,
            Node::Logical(logical) => {
                let raw = self.node(self.plan.node(logical.base))?;
                let value = logical.to_python.bind(py).call1((raw,));
                value.map_err(|error| CodecError::raised(logical.name.as_str(), error))?
            }
        })
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<T> {
        if self.depth == DEPTH_MAX {
            let expected = format!("at most {DEPTH_MAX} levels of nesting");
            return Err(CodecError::new(expected, "more"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn record(&mut self, record: &'a RecordPlan) -> Decoded<Bound<'py, PyAny>> {
        let Some(class) = &record.class else { return self.dictionary(record) };
        let py = self.py;
        let raised = |error| CodecError::raised(record.fullname.as_str(), error);
        let made = class.new.bind(py).call1((class.class.bind(py),)).map_err(raised)?;
        for field in &record.fields {
            let value =
                self.node(self.plan.node(field.node)).map_err(|e| e.at_field(&field.text))?;
            made.setattr(field.name.bind(py), value).map_err(raised)?;
        }
        if class.post_init {
            made.call_method0("__post_init__").map_err(raised)?;
        }
        Ok(made)
    }

    fn dictionary(&mut self, record: &'a RecordPlan) -> Decoded<Bound<'py, PyAny>> {
        let made = PyDict::new(self.py);
        for field in &record.fields {
            let value =
                self.node(self.plan.node(field.node)).map_err(|e| e.at_field(&field.text))?;
            let raised = |error| CodecError::raised(record.fullname.as_str(), error);
            made.set_item(field.name.bind(self.py), value).map_err(raised)?;
        }
        Ok(made.into_any())
    }

    fn map(&mut self, values: NodeId) -> Decoded<Bound<'py, PyAny>> {
        let made = PyDict::new(self.py);
        let node = self.plan.node(values);
        while let Some(count) = self.block()? {
            for _ in 0..count {
                let size = self.size("string")?;
                let key = self.text(size)?;
                let value = self.node(node).map_err(|error| error.at_key(key))?;
                made.set_item(key, value).map_err(|error| CodecError::raised("map", error))?;
            }
        }
        Ok(made.into_any())
    }

    fn elements(&mut self, of: &ArrayPlan) -> Decoded<Bound<'py, PyAny>> {
        match of.numeric {
            Some(Numeric::F32) => self.raw::<f32>(of),
            Some(Numeric::F64) => self.raw::<f64>(of),
            Some(Numeric::I8) => self.narrow::<i8>(of),
            Some(Numeric::U8) => self.narrow::<u8>(of),
            Some(Numeric::I16) => self.narrow::<i16>(of),
            Some(Numeric::U16) => self.narrow::<u16>(of),
            Some(Numeric::U32) => self.narrow::<u32>(of),
            Some(Numeric::U64) => self.narrow::<u64>(of),
            Some(Numeric::Bool) => self.each(of, Self::boolean),
            Some(Numeric::I32) => self.each(of, Self::int),
            Some(Numeric::I64) => self.each(of, Self::long),
            None => self.list(of),
        }
    }

    /// Elements whose encoding is their memory: usually one block, which is not even copied if it
    /// is large and aligned.
    fn raw<T: Element>(&mut self, of: &ArrayPlan) -> Decoded<Bound<'py, PyAny>> {
        let mut whole: Option<&'a [u8]> = None;
        let mut joined: Vec<u8> = Vec::new();
        while let Some(count) = self.block()? {
            let size = count.saturating_mul(size_of::<T>());
            let block = self.take(size)?;
            match whole {
                None => whole = Some(block),
                Some(first) => {
                    if joined.is_empty() {
                        joined.extend_from_slice(first);
                    }
                    joined.extend_from_slice(block);
                }
            }
        }
        let (raw, owner) = match whole {
            Some(first) if joined.is_empty() => (first, self.owner),
            _ => (joined.as_slice(), None),
        };
        check_length(of, raw.len() / size_of::<T>())?;
        Ok(ndarray::from_raw::<T>(self.py, raw, owner))
    }

    /// Elements of at least one byte each, which are read one by one into an array.
    fn each<T: Element>(
        &mut self,
        of: &ArrayPlan,
        read: impl Fn(&mut Self) -> Decoded<T>,
    ) -> Decoded<Bound<'py, PyAny>> {
        let mut items = Vec::new();
        while let Some(count) = self.block()? {
            if count > self.rest() {
                return Err(self.truncated(count));
            }
            items.reserve(count);
            for _ in 0..count {
                let index = items.len();
                items.push(read(self).map_err(|error| error.at_index(index))?);
            }
        }
        check_length(of, items.len())?;
        Ok(ndarray::from_elements(self.py, &items))
    }

    /// Integers of another range than their base type's.
    fn narrow<T: Element + TryFrom<i128>>(&mut self, of: &ArrayPlan) -> Decoded<Bound<'py, PyAny>> {
        let Node::Integer(integer) = *self.plan.node(of.item) else { return self.list(of) };
        let wrong = || CodecError::new(integer.dtype.name(), "another number");
        self.each(of, |this| T::try_from(this.integer(integer)?).map_err(|_| wrong()))
    }

    fn integer(&mut self, of: IntegerPlan) -> Decoded<i128> {
        let long = if of.long { self.long()? } else { self.int()?.into() };
        let wrong = || CodecError::new(of.dtype.name(), long.to_string());
        of.number(long).ok_or_else(wrong)
    }

    /// An array of raw elements: a view where the sample's bytes are large, whatever their
    /// alignment.
    fn ndarray(&mut self, of: &NdArrayPlan) -> Decoded<Bound<'py, PyAny>> {
        let size = self.size("bytes")?;
        let raw = self.take(size)?;
        let wrong = || CodecError::new(format!("ndarray {}", of.array), format!("{size} bytes"));
        let shape = of.array.shape_of(size).ok_or_else(wrong)?;
        let shaped = || {
            let shape = PyTuple::new(self.py, shape)?;
            let bytes = ndarray::from_raw::<u8>(self.py, raw, self.owner);
            let elements = bytes.call_method1(intern!(self.py, "view"), (&of.dtype,))?;
            elements.call_method1(intern!(self.py, "reshape"), (shape,))
        };
        shaped().map_err(|error| CodecError::raised("ndarray", error))
    }

    fn list(&mut self, of: &ArrayPlan) -> Decoded<Bound<'py, PyAny>> {
        let made = PyList::empty(self.py);
        let node = self.plan.node(of.item);
        while let Some(count) = self.block()? {
            for _ in 0..count {
                let before = self.at;
                let item = self.node(node).map_err(|error| error.at_index(made.len()))?;
                made.append(item).map_err(|error| CodecError::raised("array", error))?;
                if self.at == before {
                    self.count_empty()?;
                }
            }
        }
        check_length(of, made.len())?;
        Ok(made.into_any())
    }

    fn count_empty(&mut self) -> Decoded<()> {
        let expected = || format!("at most {EMPTY_ITEMS_MAX} elements without bytes");
        let left = self.empty.checked_sub(1);
        self.empty = left.ok_or_else(|| CodecError::new(expected(), "more"))?;
        Ok(())
    }

    /// The number of items in the next block; `None` at the end of the array or map.
    fn block(&mut self) -> Decoded<Option<usize>> {
        let count = self.long()?;
        if count >= 0 {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            return Ok((count > 0).then_some(count));
        }
        let size = self.size("a block")?;
        if size > self.rest() {
            return Err(self.truncated(size));
        }
        Ok(Some(usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)))
    }

    fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn truncated(&self, size: usize) -> CodecError {
        let found = format!("{} to the end of the datum", self.rest());
        CodecError::new(format!("{size} more bytes"), found)
    }

    fn take(&mut self, size: usize) -> Decoded<&'a [u8]> {
        let bytes: &'a [u8] = self.bytes;
        let end = self.at.checked_add(size).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(|| self.truncated(size))?;
        let taken = &bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn text(&mut self, size: usize) -> Decoded<&'a str> {
        let raw = self.take(size)?;
        std::str::from_utf8(raw).map_err(|error| {
            let cause = PyUnicodeDecodeError::new_utf8(self.py, raw, error);
            match cause {
                Ok(cause) => CodecError::raised("UTF-8 text", PyErr::from_value(cause.into_any())),
                Err(raised) => CodecError::raised("UTF-8 text", raised),
            }
        })
    }

    fn boolean(&mut self) -> Decoded<bool> {
        match self.take(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError::new("boolean (0 or 1)", format!("byte {other}"))),
        }
    }

    fn int(&mut self) -> Decoded<i32> {
        let wide = self.long()?;
        i32::try_from(wide).map_err(|_| CodecError::new("int (32 bits)", wide.to_string()))
    }

    fn size(&mut self, what: &str) -> Decoded<usize> {
        let size = self.long()?;
        let wrong = |_| CodecError::new(format!("the size of {what}"), size.to_string());
        usize::try_from(size).map_err(wrong)
    }

    #[inline]
    fn long(&mut self) -> Decoded<i64> {
        let mut value: u64 = 0;
        let mut shift = 0;
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                break;
            }
        }
        Err(match self.rest() {
            0 => self.truncated(1),
            _ => CodecError::new("a varint of at most 64 bits", "a longer one"),
        })
    }
}

fn check_length(of: &ArrayPlan, found: usize) -> Decoded<()> {
    match of.length {
        Some(length) if length != found => {
            Err(CodecError::new(format!("{length} elements"), found.to_string()))
        }
        _ => Ok(()),
    }
}
