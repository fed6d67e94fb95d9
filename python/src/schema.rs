//! `heliograph.Schema`: an Avro schema, and the codec compiled from it.

use std::cell::RefCell;

use helio_bus::SchemaText;
use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::codec::{self, CodecError, Plan};
use crate::errors;

/// A larger scratch buffer is freed after its use.
const SCRATCH_MAX_BYTES: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's empty scratch buffer. Foreign code that encodes meanwhile gets another one.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = SCRATCH.with(RefCell::take);
    buffer.clear();
    let result = work(&mut buffer);
    if buffer.capacity() <= SCRATCH_MAX_BYTES {
        SCRATCH.with(|scratch| scratch.replace(buffer));
    }
    result
}

/// An Avro schema with our attributes (units, description, enumeration, length), compiled.
///
/// ``Schema(text_or_dict)`` takes Avro's JSON; ``heliograph.schema(Wind)`` gives a record's. Values
/// are instances of the record's class, or dictionaries; numeric arrays decode to read-only numpy
/// arrays.
#[pyclass(frozen, module = "heliograph", name = "Schema")]
#[derive(Debug)]
pub(crate) struct Schema {
    schema: helio_core::Schema,
    text: String,
    name: String,
    plan: Plan,
    key: Vec<usize>,
}

/// The exception of a schema that the core rejects.
pub(crate) fn refused(error: &helio_core::SchemaError) -> PyErr {
    errors::raise("SchemaError", &error.to_string())
}

impl Schema {
    fn key_places(plan: &Plan, key: &[String]) -> PyResult<Vec<usize>> {
        let fields = plan.record().map_or(&[][..], |record| &record.fields);
        let place = |name: &String| {
            let place = fields.iter().position(|field| field.text == *name);
            let message = || format!("the key names {name:?}, which is not a field of the record");
            place.ok_or_else(|| errors::raise("SchemaError", &message()))
        };
        key.iter().map(place).collect()
    }

    /// Compiles a schema of the core.
    pub(crate) fn of(
        py: Python<'_>,
        schema: helio_core::Schema,
        classes: &Bound<'_, PyDict>,
        key: &[String],
    ) -> PyResult<Self> {
        let plan = codec::compile(py, &schema, classes)?;
        let name = plan.root().kind();
        let key = Self::key_places(&plan, key)?;
        Ok(Self { text: schema.to_string(), schema, name, plan, key })
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

    /// Appends the key of a value's key fields.
    pub(crate) fn key_into(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        codec::encode_fields(&self.plan, &self.key, value, out)
            .map_err(|error| self.encode_error(value.py(), error))
    }

    /// The schema's text and identity for the bus.
    pub(crate) fn identity(&self) -> SchemaText {
        SchemaText { id: self.schema.id(), text: self.text.as_str().into() }
    }

    /// The core's schema.
    pub(crate) fn schema(&self) -> &helio_core::Schema {
        &self.schema
    }

    /// Whether the schema has key fields.
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
        let schema = helio_core::Schema::parse(&text).map_err(|error| refused(&error))?;
        let none = PyDict::new(py);
        Self::of(py, schema, classes.unwrap_or(&none), &key.unwrap_or_default())
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

    /// Avro's Parsing Canonical Form.
    #[getter]
    fn canonical(&self) -> &str {
        self.schema.canonical_form()
    }

    /// CRC-64-AVRO of the canonical form, as 16 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        format!("{:016x}", self.schema.fingerprint())
    }

    /// The schema identity that samples carry: the fingerprint of the canonical form with units,
    /// lengths and enumerations, as 16 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.schema.id().to_string()
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
    /// Raises DecodeError, which names the field, if the bytes are not a datum of this schema.
    fn decode<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = data.py();
        let owned = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            Err(_) => py.get_type::<PyBytes>().call1((data,))?.cast_into()?,
        };
        self.decode_from(py, owned.as_bytes(), Some(owned.as_any()))
    }

    /// The data of a value's fields from `first` on, to before `end`, for comparison when the other
    /// fields change with every sample.
    #[pyo3(signature = (value, first, end=None))]
    fn encode_from<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        first: usize,
        end: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fields = self.plan.record().map_or(0, |record| record.fields.len());
        let places: Vec<_> = (first..end.map_or(fields, |end| end.min(fields))).collect();
        with_scratch(|out| {
            codec::encode_fields(&self.plan, &places, value, out)
                .map_err(|error| self.encode_error(value.py(), error))?;
            Ok(PyBytes::new(value.py(), out))
        })
    }

    /// Encodes one field's value alone, to check whether it fits.
    ///
    /// Raises EncodeError naming the field, and KeyError for an unknown name.
    fn encode_field<'py>(
        &self,
        name: &str,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fields = self.plan.record().map_or(&[][..], |record| &record.fields);
        let field = fields.iter().find(|field| field.text == name);
        let field = field.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        with_scratch(|out| {
            codec::encode_field_value(&self.plan, field, value, out)
                .map_err(|error| self.encode_error(value.py(), error))?;
            Ok(PyBytes::new(value.py(), out))
        })
    }

    /// The values of the record's first `count` fields.
    fn decode_first<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        count: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = data.py();
        codec::decode_first(py, &self.plan, data.as_bytes(), count)
            .map_err(|error| self.decode_error(py, error))
    }

    /// The names of the record's fields.
    #[getter]
    fn field_names(&self) -> Vec<&str> {
        let fields = self.plan.record().map_or(&[][..], |record| &record.fields);
        fields.iter().map(|field| &*field.text).collect()
    }

    /// The key of a value's key fields; empty if there are none.
    fn key_of<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        with_scratch(|out| {
            self.key_into(value, out)?;
            Ok(PyBytes::new(value.py(), out))
        })
    }

    /// The key of these values of the key fields, in order.
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
