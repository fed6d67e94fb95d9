//! `heliograph.Schema`: an Avro schema, and the codec compiled from it.

use std::cell::RefCell;

use helio_bus::{SchemaId, SchemaText};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use serde_json::Value;

use crate::codec::{self, CodecError, Plan};
use crate::errors;

/// A scratch buffer that has grown beyond this is given back to the system after its use.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's scratch buffer, empty. Foreign code that runs meanwhile and encodes too gets
/// another one.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = SCRATCH.with(RefCell::take);
    buffer.clear();
    let result = work(&mut buffer);
    if buffer.capacity() <= SCRATCH_KEPT_BYTES {
        SCRATCH.with(|scratch| scratch.replace(buffer));
    }
    result
}

/// Names that are schemas by themselves, with or without JSON's quotes.
const PRIMITIVES: [&str; 8] =
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/// An Avro schema with our attributes (units, description, enumeration, length), compiled.
///
/// ``Schema(text_or_dict)`` takes Avro's JSON; ``heliograph.schema(Wind)`` gives a record's. Values
/// are instances of the record's class, or dictionaries; numeric arrays decode to read-only numpy
/// arrays.
#[pyclass(frozen, module = "heliograph", name = "Schema")]
#[derive(Debug)]
pub(crate) struct Schema {
    text: String,
    name: String,
    id: SchemaId,
    plan: Plan,
    key: Vec<usize>,
}

fn parse(text: &str) -> PyResult<Value> {
    if PRIMITIVES.contains(&text) {
        return Ok(Value::String(text.to_owned()));
    }
    serde_json::from_str(text)
        .map_err(|error| errors::raise("SchemaError", &format!("the schema is no JSON: {error}")))
}

impl Schema {
    fn key_places(plan: &Plan, key: &[String]) -> PyResult<Vec<usize>> {
        let fields = plan.record().map_or(&[][..], |record| &record.fields);
        let place = |name: &String| {
            let place = fields.iter().position(|field| field.text == *name);
            let message = || format!("the key names {name:?}, which is no field of the record");
            place.ok_or_else(|| errors::raise("SchemaError", &message()))
        };
        key.iter().map(place).collect()
    }

    pub(crate) fn encode_error(&self, py: Python<'_>, error: CodecError) -> PyErr {
        match errors::class(py, "EncodeError") {
            Ok(class) => error.into_py(py, &class, &self.name),
            Err(error) => error,
        }
    }

    pub(crate) fn decode_error(&self, py: Python<'_>, error: CodecError) -> PyErr {
        match errors::class(py, "DecodeError") {
            Ok(class) => error.into_py(py, &class, &self.name),
            Err(error) => error,
        }
    }

    /// Appends a value's datum.
    pub(crate) fn encode_into(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        codec::encode(&self.plan, value, out).map_err(|error| self.encode_error(value.py(), error))
    }

    /// Appends the key that a value's key fields make.
    pub(crate) fn key_into(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        codec::encode_fields(&self.plan, &self.key, value, out)
            .map_err(|error| self.encode_error(value.py(), error))
    }

    /// What the bus knows the schema by.
    pub(crate) fn identity(&self) -> SchemaText {
        SchemaText { id: self.id, text: self.text.as_str().into() }
    }

    /// Whether some fields are the key.
    pub(crate) fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// The value of a datum; large arrays may be views of `owner`, which holds the bytes.
    pub(crate) fn decode_from<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let value = codec::decode(py, &self.plan, bytes, owner);
        value.map_err(|error| self.decode_error(py, error))
    }
}

#[pymethods]
impl Schema {
    #[new]
    #[pyo3(signature = (schema, /, *, classes = None, key = None))]
    fn new(
        schema: &Bound<'_, PyAny>,
        classes: Option<&Bound<'_, PyDict>>,
        key: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let py = schema.py();
        let text = match schema.cast::<PyString>() {
            Ok(text) => text.to_str()?.to_owned(),
            Err(_) => py.import("json")?.call_method1("dumps", (schema,))?.extract()?,
        };
        let json = parse(&text)?;
        let text = json.to_string();
        let none = PyDict::new(py);
        let plan = codec::compile(py, &json, classes.unwrap_or(&none))?;
        let name = plan.root().kind();
        let key = Self::key_places(&plan, &key.unwrap_or_default())?;
        let id = identity(&text);
        Ok(Self { text, name, id, plan, key })
    }

    /// The full name of the record, or the type's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The schema as JSON, attributes included.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// Encode a value as an Avro datum.
    ///
    /// Raises EncodeError naming the field, what the schema expects and what was found.
    fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        with_scratch(|out| {
            self.encode_into(value, out)?;
            Ok(PyBytes::new(value.py(), out))
        })
    }

    /// Decode an Avro datum from bytes or another buffer.
    ///
    /// Raises DecodeError naming the field where the bytes are no datum of this schema.
    fn decode<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = data.py();
        let owned = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            Err(_) => py.get_type::<PyBytes>().call1((data,))?.cast_into()?,
        };
        self.decode_from(py, owned.as_bytes(), Some(owned.as_any()))
    }

    /// The key that a value's key fields make; empty where there are none.
    fn key_of<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        with_scratch(|out| {
            self.key_into(value, out)?;
            Ok(PyBytes::new(value.py(), out))
        })
    }

    /// The key that these values of the key fields, in order, make.
    #[pyo3(signature = (*values))]
    fn key<'py>(
        &self,
        values: Vec<Bound<'py, PyAny>>,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fields = self.plan.record().map_or(&[][..], |record| &record.fields);
        if values.len() != self.key.len() {
            let names: Vec<_> = self.key.iter().map(|place| &*fields[*place].text).collect();
            let message = format!("the key of {} has the fields {names:?}", self.name);
            return Err(errors::raise("EncodeError", &message));
        }
        with_scratch(|out| {
            for (place, value) in self.key.iter().zip(&values) {
                codec::encode_field_value(&self.plan, &fields[*place], value, out)
                    .map_err(|error| self.encode_error(py, error))?;
            }
            Ok(PyBytes::new(py, out))
        })
    }

    fn __repr__(&self) -> String {
        format!("<Schema {}>", self.name)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String,)) {
        (slf.get_type().into_any(), (slf.get().text.clone(),))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.plan.traverse(&visit)
    }
}

/// Until the core has schemas: a number that is the same for the same text.
fn identity(text: &str) -> SchemaId {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    SchemaId(hasher.finish())
}
