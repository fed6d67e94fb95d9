//! Python objects to bytes, by plan. Arrays and maps are written as sized blocks, so that readers
//! can skip them.

use helio_core::codec::Reader;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    IntoPyDict, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
};

use super::error::CodecError;
use super::plan::{
    ArrayPlan, DEPTH_MAX, EnumPlan, FieldPlan, LogicalPlan, NdArrayPlan, Node, NodeId, Plan,
    RecordPlan,
};
use super::union::choose;
use crate::ndarray::{self, Numeric};
use crate::time::Time;

type Encoded<T = ()> = Result<T, CodecError>;

/// Appends the datum of a value to `out`.
pub(crate) fn encode(plan: &Plan, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Encoded {
    Encoder { plan, out, depth: 0 }.node(plan.root(), value)
}

/// Appends the data of some fields of a record, in the given order: a key, say.
pub(crate) fn encode_fields(
    plan: &Plan,
    fields: &[usize],
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> Encoded {
    let Some(record) = plan.record() else { return Ok(()) };
    let mut encoder = Encoder { plan, out, depth: 0 };
    fields.iter().try_for_each(|field| encoder.field(record, &record.fields[*field], value))
}

/// Appends the datum of one field's value.
pub(crate) fn encode_field_value(
    plan: &Plan,
    field: &FieldPlan,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> Encoded {
    let mut encoder = Encoder { plan, out, depth: 0 };
    encoder.node(plan.node(field.node), value).map_err(|error| error.at_field(&field.text))
}

struct Encoder<'a> {
    plan: &'a Plan,
    out: &'a mut Vec<u8>,
    depth: u32,
}

/// The longest varint, in bytes.
const VARINT_MAX: usize = 10;

fn varint(value: i64, buffer: &mut [u8; VARINT_MAX]) -> &[u8] {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut length = 0;
    loop {
        let last = rest < 0x80;
        buffer[length] = (rest & 0x7f) as u8 | if last { 0 } else { 0x80 };
        length += 1;
        if last {
            return &buffer[..length];
        }
        rest >>= 7;
    }
}

impl Encoder<'_> {
    fn node(&mut self, node: &Node, value: &Bound<'_, PyAny>) -> Encoded {
        let wrong = |_| CodecError::value(node.kind(), value);
        match node {
            Node::Null if value.is_none() => {}
            Node::Null => return Err(CodecError::value("null", value)),
            Node::Boolean => self.out.push(value.extract::<bool>().map_err(wrong)?.into()),
            Node::Int | Node::IntEnum(_) => self.long(int(value)?.into()),
            Node::Long => self.long(value.extract::<i64>().map_err(wrong)?),
            Node::Integer(of) => {
                let number = value.extract::<i128>().map_err(wrong)?;
                let held = Some(number).filter(|number| of.dtype.holds(*number));
                self.long(held.ok_or_else(|| CodecError::value(node.kind(), value))? as i64);
            }
            Node::Time => {
                self.long(value.cast::<Time>().map_err(|e| wrong(e.into()))?.get().nanos())
            }
            Node::Float => self.out.extend_from_slice(&single(value)?.to_le_bytes()),
            Node::Double => {
                let number: f64 = value.extract().map_err(wrong)?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Node::NdArray(of) => self.ndarray(node, of, value)?,
            Node::Bytes => self.bytes(node, value, None)?,
            Node::Fixed(size) => self.bytes(node, value, Some(*size))?,
            Node::String => self.string(value)?,
            Node::Enum(of) => self.symbol(node, of, value)?,
            Node::Array(of) => self.nested(|this| this.array(of, value))?,
            Node::Map(values) => self.nested(|this| this.map(*values, value))?,
            Node::Union(branches) => self.nested(|this| this.union(branches, value))?,
            Node::Record(record) => self.nested(|this| this.record(record, value))?,
            Node::Logical(logical) => self.logical(logical, value)?,
        }
        Ok(())
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Encoded) -> Encoded {
        if self.depth == DEPTH_MAX {
            let expected = format!("at most {DEPTH_MAX} levels of nesting");
            return Err(CodecError::new(expected, "more"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn long(&mut self, value: i64) {
        self.out.extend_from_slice(varint(value, &mut [0; VARINT_MAX]));
    }

    fn size(&mut self, size: usize) {
        self.long(i64::try_from(size).expect("no object in memory is longer than 2^63 bytes"));
    }

    fn string(&mut self, value: &Bound<'_, PyAny>) -> Encoded {
        let text = value.cast::<PyString>().map_err(|_| CodecError::value("string", value))?;
        let text = text.to_str().map_err(|error| CodecError::raised("UTF-8 text", error))?;
        self.size(text.len());
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn bytes(&mut self, node: &Node, value: &Bound<'_, PyAny>, exact: Option<usize>) -> Encoded {
        let fits = |found: usize| match exact {
            Some(size) if size != found => {
                Err(CodecError::new(node.kind(), format!("{found} bytes")))
            }
            _ => Ok(()),
        };
        if let Ok(raw) = value.cast::<PyBytes>() {
            let raw = raw.as_bytes();
            fits(raw.len())?;
            if exact.is_none() {
                self.size(raw.len());
            }
            self.out.extend_from_slice(raw);
            return Ok(());
        }
        let buffer = PyBuffer::<u8>::get(value);
        let buffer = buffer.map_err(|_| CodecError::value(node.kind(), value))?;
        let length = buffer.item_count();
        fits(length)?;
        if exact.is_none() {
            self.size(length);
        }
        let start = self.out.len();
        self.out.resize(start + length, 0);
        buffer
            .copy_to_slice(value.py(), &mut self.out[start..])
            .map_err(|error| CodecError::raised(node.kind(), error))
    }

    /// The elements of a numpy array, or bytes that are them.
    fn ndarray(&mut self, node: &Node, of: &NdArrayPlan, value: &Bound<'_, PyAny>) -> Encoded {
        let Ok(array) = value.cast::<PyUntypedArray>() else {
            let start = self.out.len();
            self.bytes(&Node::Bytes, value, None)?;
            let mut written = Reader::new(&self.out[start..]);
            let size = written.bytes().map_or(0, <[u8]>::len);
            if of.array.holds(size) {
                return Ok(());
            }
            return Err(CodecError::new(node.kind(), format!("{size} bytes")));
        };
        let fits = |(size, wanted): (&usize, &i32)| *wanted < 0 || *size == *wanted as usize;
        let wanted = of.array.shape();
        if array.ndim() != wanted.len() || !array.shape().iter().zip(wanted).all(fits) {
            return Err(CodecError::new(node.kind(), format!("shape {:?}", array.shape())));
        }
        let dtype = of.dtype.bind(value.py());
        if array.dtype().is_equiv_to(dtype) && array.is_c_contiguous() {
            self.size(array.len() * array.dtype().itemsize());
            ndarray::append_raw(array, self.out);
            return Ok(());
        }
        let py = value.py();
        let found = || format!("array of {}", array.dtype());
        let named = [(intern!(py, "casting"), "safe"), (intern!(py, "order"), "C")];
        let made = named
            .into_py_dict(py)
            .and_then(|named| array.call_method(intern!(py, "astype"), (dtype,), Some(&named)));
        let made = made.map_err(|_| CodecError::new(node.kind(), found()))?;
        let made = made.cast::<PyUntypedArray>().map_err(|_| CodecError::value("array", value))?;
        self.size(made.len() * made.dtype().itemsize());
        ndarray::append_raw(made, self.out);
        Ok(())
    }

    fn symbol(&mut self, node: &Node, of: &EnumPlan, value: &Bound<'_, PyAny>) -> Encoded {
        let py = value.py();
        let named = match value.cast::<PyString>() {
            Ok(text) if !value.hasattr(intern!(py, "_name_")).unwrap_or(false) => text.clone(),
            _ => value
                .getattr(intern!(py, "_name_"))
                .ok()
                .and_then(|name| name.cast_into::<PyString>().ok())
                .ok_or_else(|| CodecError::value(node.kind(), value))?,
        };
        let index = named.to_str().ok().and_then(|name| of.index.get(name));
        let index = index.ok_or_else(|| CodecError::value(node.kind(), value))?;
        self.long((*index).into());
        Ok(())
    }

    fn logical(&mut self, logical: &LogicalPlan, value: &Bound<'_, PyAny>) -> Encoded {
        let raw = logical.from_python.bind(value.py()).call1((value,));
        let raw = raw.map_err(|_| CodecError::value(logical.name.as_str(), value))?;
        self.node(self.plan.node(logical.base), &raw)
    }

    fn union(&mut self, branches: &[NodeId], value: &Bound<'_, PyAny>) -> Encoded {
        let (index, value) = choose(self.plan, branches, value)?;
        self.size(index);
        self.node(self.plan.node(branches[index]), &value)
    }

    fn record(&mut self, record: &RecordPlan, value: &Bound<'_, PyAny>) -> Encoded {
        if let Ok(dictionary) = value.cast::<PyDict>() {
            return self.dictionary(record, dictionary);
        }
        record.fields.iter().try_for_each(|field| self.attribute(record, field, value))
    }

    fn field(&mut self, of: &RecordPlan, field: &FieldPlan, value: &Bound<'_, PyAny>) -> Encoded {
        match value.cast::<PyDict>() {
            Ok(dictionary) => self.item(field, dictionary).map(drop),
            Err(_) => self.attribute(of, field, value),
        }
    }

    fn attribute(
        &mut self,
        record: &RecordPlan,
        field: &FieldPlan,
        value: &Bound<'_, PyAny>,
    ) -> Encoded {
        let item = value.getattr(field.name.bind(value.py()));
        let item = item.map_err(|error| {
            let expected = format!("{} (an object or a dict with its fields)", record.fullname);
            match value.cast::<PyMapping>() {
                Err(_) => CodecError::value(expected, value).at_field(&field.text),
                Ok(_) => CodecError::raised(expected, error).at_field(&field.text),
            }
        })?;
        self.node(self.plan.node(field.node), &item).map_err(|error| error.at_field(&field.text))
    }

    fn dictionary(&mut self, record: &RecordPlan, value: &Bound<'_, PyDict>) -> Encoded {
        let mut given = 0;
        for field in &record.fields {
            given += usize::from(self.item(field, value)?);
        }
        if given < value.len() {
            return Err(unknown_key(record, value));
        }
        Ok(())
    }

    /// Encodes a dictionary's item, or the default in its place; returns which.
    fn item(&mut self, field: &FieldPlan, value: &Bound<'_, PyDict>) -> Encoded<bool> {
        let raised = |error| CodecError::raised("a dict", error);
        let item = value.get_item(field.name.bind(value.py())).map_err(raised)?;
        let node = self.plan.node(field.node);
        match (item, &field.default) {
            (Some(item), _) => {
                self.node(node, &item).map_err(|error| error.at_field(&field.text))?;
                return Ok(true);
            }
            (None, Some(default)) => self.out.extend_from_slice(default),
            (None, None) => {
                let found = "nothing: it is missing and has no default";
                return Err(CodecError::new(node.kind(), found).at_field(&field.text));
            }
        }
        Ok(false)
    }

    fn map(&mut self, values: NodeId, value: &Bound<'_, PyAny>) -> Encoded {
        let wrong = |_| CodecError::value("map (a dict)", value);
        let mapping = value.cast::<PyMapping>().map_err(|error| wrong(PyErr::from(error)))?;
        let items = mapping.items().map_err(wrong)?;
        self.block(items.len(), |this| {
            for item in &items {
                let (key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                    item.extract().map_err(|error| CodecError::raised("map", error))?;
                this.string(&key)?;
                let text = || key.to_string();
                this.node(this.plan.node(values), &item).map_err(|e| e.at_key(&text()))?;
            }
            Ok(())
        })
    }

    fn array(&mut self, of: &ArrayPlan, value: &Bound<'_, PyAny>) -> Encoded {
        if let (Some(numeric), Ok(array)) = (of.numeric, value.cast::<PyUntypedArray>()) {
            return self.numeric(of, numeric, array);
        }
        if let Ok(list) = value.cast::<PyList>() {
            check_length(of, list.len())?;
            return self.items(of, list.len(), list.iter());
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            check_length(of, tuple.len())?;
            return self.items(of, tuple.len(), tuple.iter());
        }
        self.foreign(of, value)
    }

    /// A sequence other than a list, tuple or numpy array: converted to one of these.
    fn foreign(&mut self, of: &ArrayPlan, value: &Bound<'_, PyAny>) -> Encoded {
        let wrong = || CodecError::value("array (a numpy array, list or tuple)", value);
        let unordered = value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyBytes>()
            || value.is_instance_of::<PyDict>()
            || value.len().is_err();
        if unordered {
            return Err(wrong());
        }
        if let (Some(numeric), Ok(_)) = (of.numeric, pyo3::buffer::PyUntypedBuffer::get(value)) {
            let array =
                value.py().import("numpy").and_then(|np| np.call_method1("asarray", (value,)));
            let array = array.map_err(|_| wrong())?;
            let array = array.cast::<PyUntypedArray>().map_err(|_| wrong())?;
            return self.numeric(of, numeric, array);
        }
        let items = value.try_iter().and_then(Iterator::collect::<PyResult<Vec<_>>>);
        let items = items.map_err(|_| wrong())?;
        check_length(of, items.len())?;
        self.items(of, items.len(), items.into_iter())
    }

    fn items<'py>(
        &mut self,
        of: &ArrayPlan,
        length: usize,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> Encoded {
        let node = self.plan.node(of.item);
        self.block(length, |this| {
            let mut written = 0;
            for (index, item) in items.enumerate() {
                this.node(node, &item).map_err(|error| error.at_index(index))?;
                written = index + 1;
            }
            // Foreign code that ran meanwhile (a property, __float__) may have changed the list.
            if written == length {
                Ok(())
            } else {
                Err(CodecError::new(format!("{length} elements"), format!("{written} later on")))
            }
        })
    }

    fn numeric(
        &mut self,
        of: &ArrayPlan,
        wanted: Numeric,
        array: &Bound<'_, PyUntypedArray>,
    ) -> Encoded {
        if array.ndim() != 1 {
            let found = format!("shape {:?}", array.shape());
            return Err(CodecError::new("array of one dimension", found));
        }
        check_length(of, array.len())?;
        let given = Numeric::of(array).filter(|_| array.is_c_contiguous() && array.is_aligned());
        if matches!(self.plan.node(of.item), Node::Integer(_)) {
            let list = array.call_method0(intern!(array.py(), "tolist"));
            let list = list.map_err(|error| CodecError::raised("array", error))?;
            let list = list.cast::<PyList>().map_err(|_| CodecError::value("array", array))?;
            return self.items(of, list.len(), list.iter());
        }
        match (wanted, given) {
            (Numeric::I32 | Numeric::I64, Some(Numeric::I32 | Numeric::I64)) => {
                self.integers(wanted, array)
            }
            (_, Some(given)) if given == wanted => {
                self.raw(array);
                Ok(())
            }
            _ => self.converted(wanted, array),
        }
    }

    /// Writes the memory of an array as one block.
    fn raw(&mut self, array: &Bound<'_, PyUntypedArray>) {
        let length = array.len();
        if length > 0 {
            self.long(-i64::try_from(length).expect("an array in memory is shorter than 2^63"));
            self.size(length * array.dtype().itemsize());
            ndarray::append_raw(array, self.out);
        }
        self.out.push(0);
    }

    fn integers(&mut self, wanted: Numeric, array: &Bound<'_, PyUntypedArray>) -> Encoded {
        self.block(array.len(), |this| {
            let mut index = 0;
            let mut wrong = None;
            ndarray::integers(array, &mut |item| {
                if wanted == Numeric::I32 && i32::try_from(item).is_err() && wrong.is_none() {
                    let error = CodecError::new("int (32 bits)", item.to_string());
                    wrong = Some(error.at_index(index));
                }
                index += 1;
                this.long(item);
            });
            wrong.map_or(Ok(()), Err)
        })
    }

    /// Another element type, byte order or layout: numpy converts it if that keeps the kind.
    fn converted(&mut self, wanted: Numeric, array: &Bound<'_, PyUntypedArray>) -> Encoded {
        let py = array.py();
        let whole = matches!(wanted, Numeric::I32 | Numeric::I64);
        let (target, casting) = match wanted {
            Numeric::Bool => ("bool", "no"),
            _ if whole => ("int64", "safe"),
            _ => (wanted.dtype(), "same_kind"),
        };
        let named = PyDict::new(py);
        let made = named
            .set_item(intern!(py, "casting"), casting)
            .and_then(|()| named.set_item(intern!(py, "order"), "C"))
            .and_then(|()| array.call_method("astype", (target,), Some(&named)));
        let found = || format!("array of {}", array.dtype());
        let wrong = || CodecError::new(format!("array of {}", wanted.dtype()), found());
        let made = made.map_err(|_| wrong())?;
        let made = made.cast::<PyUntypedArray>().map_err(|_| wrong())?;
        if whole {
            return self.integers(wanted, made);
        }
        self.raw(made);
        Ok(())
    }

    /// Writes `count` items as one sized block, and the end.
    fn block(&mut self, count: usize, items: impl FnOnce(&mut Self) -> Encoded) -> Encoded {
        if count > 0 {
            self.long(-i64::try_from(count).expect("a list in memory is shorter than 2^63"));
            let start = self.out.len();
            // The size comes first and is known last: leave room for the longest, then close up.
            self.out.extend_from_slice(&[0; VARINT_MAX]);
            items(self)?;
            let body = start + VARINT_MAX;
            let size = i64::try_from(self.out.len() - body).expect("buffers are shorter than 2^63");
            let mut buffer = [0; VARINT_MAX];
            let header = varint(size, &mut buffer);
            self.out[start..start + header.len()].copy_from_slice(header);
            self.out.copy_within(body.., start + header.len());
            self.out.truncate(self.out.len() - (VARINT_MAX - header.len()));
        }
        self.out.push(0);
        Ok(())
    }
}

fn int(value: &Bound<'_, PyAny>) -> Encoded<i32> {
    value.extract().map_err(|_| CodecError::value("int (32 bits)", value))
}

fn single(value: &Bound<'_, PyAny>) -> Encoded<f32> {
    let wide: f64 = value.extract().map_err(|_| CodecError::value("float", value))?;
    let narrow = wide as f32;
    if narrow.is_infinite() && wide.is_finite() {
        return Err(CodecError::value("float (32 bits)", value));
    }
    Ok(narrow)
}

fn check_length(of: &ArrayPlan, found: usize) -> Encoded {
    match of.length {
        Some(length) if length != found => {
            Err(CodecError::new(format!("{length} elements"), found.to_string()))
        }
        _ => Ok(()),
    }
}

fn unknown_key(record: &RecordPlan, value: &Bound<'_, PyDict>) -> CodecError {
    let known = |key: &Bound<'_, PyAny>| {
        key.cast::<PyString>()
            .ok()
            .and_then(|key| key.to_str().ok().map(str::to_owned))
            .is_some_and(|key| record.fields.iter().any(|field| field.text == key))
    };
    let stranger = value.keys().iter().find(|key| !known(key));
    let found = stranger.map_or_else(String::new, |key| key.to_string());
    CodecError::new(format!("only fields of {}", record.fullname), format!("the key {found:?}"))
}

/// Whether a value is a number but not an integer.
pub(super) fn is_real(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyFloat>()
        || (!value.is_instance_of::<PyInt>() && value.hasattr("__float__").unwrap_or(false))
}
