//! SAL interface folders and schemas in several files.

use std::path::PathBuf;

use helio_core::SchemaSet;
use helio_core::sal::{self, SalNaming};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors;
use crate::schema::{Schema, refused};

/// Labels of an enumeration with their values.
type Labels = Vec<(String, i64)>;

/// Name, type, number of elements, units, enumeration (class, labels).
type FieldRow = (String, String, u32, String, Option<(String, Labels)>);

/// The interfaces of a folder; private, see `heliograph._sal`.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawInterfaces")]
pub(crate) struct RawInterfaces(sal::Interfaces);

#[pymethods]
impl RawInterfaces {
    /// Reads a folder, or one component's interface.
    #[new]
    #[pyo3(signature = (folder, component = None))]
    fn new(py: Python<'_>, folder: PathBuf, component: Option<&str>) -> PyResult<Self> {
        let loaded = py.detach(|| match component {
            Some(component) => helio_bus::read_component(folder, component),
            None => helio_bus::read_interfaces(folder),
        });
        loaded.map(Self).map_err(|error| errors::raise("SchemaError", &error.to_string()))
    }

    /// Their release; empty if unknown.
    fn release(&self) -> &str {
        self.0.release()
    }

    /// The components' names.
    fn components(&self) -> Vec<&str> {
        self.0.components().iter().map(sal::Component::name).collect()
    }

    /// The topics' names on the bus.
    fn topics(&self) -> Vec<&str> {
        self.0.topics().map(|topic| topic.topic_name().as_str()).collect()
    }

    /// A topic's properties, by the names of `heliograph._sal.InterfaceTopic`.
    fn topic<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let topic = self.find(name)?;
        let about = PyDict::new(py);
        about.set_item("name", topic.topic_name().as_str())?;
        about.set_item("component", topic.component())?;
        about.set_item("kind", format!("{:?}", topic.kind()).to_lowercase())?;
        about.set_item("description", topic.description())?;
        about.set_item("indexed", topic.indexed())?;
        about.set_item("sal_name", topic.sal_name())?;
        Ok(about)
    }

    /// A topic's quality of service as JSON.
    fn qos(&self, name: &str) -> PyResult<String> {
        let qos = self.find(name)?.qos();
        serde_json::to_string(&qos).map_err(|error| errors::raise("QosRefused", &error.to_string()))
    }

    /// A component's properties: whether it is indexed, its description, and the kinds and short
    /// names of its topics.
    fn component<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let component = self.component_of(name)?;
        let topics: Vec<_> =
            component.topics().iter().map(|t| (t.kind().segment(), t.name())).collect();
        let about = PyDict::new(py);
        about.set_item("name", component.name())?;
        about.set_item("description", component.description())?;
        about.set_item("indexed", component.indexed())?;
        about.set_item("topics", topics)?;
        Ok(about)
    }

    /// The enumerations of a component's own sets: class, and labels with their values.
    fn enumerations(&self, name: &str) -> PyResult<Vec<(String, Labels)>> {
        let known = self.component_of(name)?.enumerations();
        Ok(known.iter().map(|known| (known.class.clone(), known.labels.clone())).collect())
    }

    /// A topic's public fields: name, type, number of elements, units, enumeration.
    fn fields(&self, name: &str) -> PyResult<Vec<FieldRow>> {
        let row = |field: &'_ sal::Field| {
            let of = match &field.field_type {
                sal::FieldType::Sal(sal) => sal.name().to_owned(),
                sal::FieldType::Avro(whole) => whole["type"].to_string(),
            };
            let labels = field.enumeration.as_ref();
            let labels = labels.map(|known| (known.class.clone(), known.labels.clone()));
            (field.name.to_string(), of, field.count, field.units.to_string(), labels)
        };
        Ok(self.find(name)?.fields().iter().map(row).collect())
    }

    /// The names of a topic's public fields without a declared default.
    fn required(&self, name: &str) -> PyResult<Vec<&str>> {
        let fields = self.find(name)?.fields().iter().filter(|field| !field.has_default());
        Ok(fields.map(|field| &*field.name).collect())
    }

    /// A field's description.
    fn field_description(&self, name: &str, field: &str) -> PyResult<Option<String>> {
        let fields = self.find(name)?.fields();
        Ok(fields.iter().find(|f| &*f.name == field).map(|f| f.description.to_string()))
    }

    /// A topic's schema, with its key; `classes` as for `Schema`.
    #[pyo3(signature = (name, classes = None))]
    fn schema(
        &self,
        py: Python<'_>,
        name: &str,
        classes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Schema> {
        let topic = self.find(name)?;
        let schema = topic.schema().map_err(|error| refused(&error))?;
        let key: Vec<_> = topic.key_fields().iter().map(|field| (*field).to_owned()).collect();
        let none = PyDict::new(py);
        Schema::of(py, schema, classes.unwrap_or(&none), &key)
    }

    /// The schema that SAL itself registers for a topic.
    fn sal_schema(&self, py: Python<'_>, name: &str) -> PyResult<Schema> {
        let schema = self.find(name)?.sal_schema().map_err(|error| refused(&error))?;
        Schema::of(py, schema, &PyDict::new(py), &[])
    }

    /// SAL's revision code of a topic.
    fn revcode(&self, name: &str) -> PyResult<String> {
        Ok(self.find(name)?.revcode())
    }

    /// The position of the first private field in a topic's samples.
    fn private_at(&self, name: &str) -> PyResult<usize> {
        Ok(self.find(name)?.private_at())
    }

    /// A message's key on Kafka.
    #[pyo3(signature = (name, index))]
    fn kafka_key(&self, name: &str, index: Option<i32>) -> PyResult<String> {
        Ok(self.find(name)?.kafka_key(index))
    }

    /// A topic's name on Kafka, in the name space `lsst.<subname>`.
    fn kafka_name(&self, name: &str, subname: &str) -> PyResult<String> {
        let naming = SalNaming::new(subname);
        let naming = naming.map_err(|error| errors::raise("NameRefused", &error.to_string()))?;
        Ok(self.find(name)?.kafka_name(&naming))
    }
}

impl RawInterfaces {
    /// All enumerations.
    pub(crate) fn all(&self) -> &sal::Interfaces {
        &self.0
    }

    fn component_of(&self, name: &str) -> PyResult<&sal::Component> {
        self.0.component(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn find(&self, name: &str) -> PyResult<&sal::Topic> {
        self.0.topic(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }
}

/// The schema of several texts (name for messages, text); without a root's full name, the one that
/// no other uses.
#[pyfunction]
#[pyo3(signature = (texts, root = None))]
pub(crate) fn schema_set(
    py: Python<'_>,
    texts: Vec<(String, Bound<'_, PyString>)>,
    root: Option<&str>,
) -> PyResult<Schema> {
    let read = |(name, text): &(String, Bound<'_, PyString>)| {
        Ok((name.clone(), text.to_str()?.to_owned()))
    };
    let texts = texts.iter().map(read).collect::<PyResult<Vec<_>>>()?;
    let pairs = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let set = SchemaSet::load(pairs).map_err(|error| refused(&error))?;
    let schema = match root {
        Some(root) => set.schema(root),
        None => set.root(),
    };
    Schema::of(py, schema.map_err(|error| refused(&error))?, &PyDict::new(py), &[])
}
