//! SAL interface folders and schemas in several files.

use helio_core::SchemaSet;
use helio_core::sal::{self, SalNaming};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors;
use crate::schema::{Schema, refused};

/// The interfaces of a folder; private, see `heliograph._sal`.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawInterfaces")]
pub(crate) struct RawInterfaces(sal::Interfaces);

#[pymethods]
impl RawInterfaces {
    /// Takes paths within the folder and the files' contents.
    #[new]
    fn new(py: Python<'_>, files: Vec<(String, Vec<u8>)>) -> PyResult<Self> {
        let loaded = py.detach(|| sal::Interfaces::load(files));
        loaded.map(Self).map_err(|error| errors::raise("SchemaError", &error.to_string()))
    }

    /// The components' names.
    fn components(&self) -> Vec<&str> {
        self.0.components().iter().map(sal::Component::name).collect()
    }

    /// The topics' names on the bus.
    fn topics(&self) -> Vec<&str> {
        self.0.topics().map(|topic| topic.topic_name().as_str()).collect()
    }

    /// What is known about a topic, by the names of `heliograph._sal.InterfaceTopic`.
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

    /// A topic's schema, with its key.
    fn schema(&self, py: Python<'_>, name: &str) -> PyResult<Schema> {
        let topic = self.find(name)?;
        let schema = topic.schema().map_err(|error| refused(&error))?;
        let key: Vec<_> = topic.key_fields().iter().map(|field| (*field).to_owned()).collect();
        Schema::of(py, schema, &PyDict::new(py), &key)
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

    /// A topic's name on Kafka, in the name space `lsst.<subname>`.
    fn kafka_name(&self, name: &str, subname: &str) -> PyResult<String> {
        let naming = SalNaming::new(subname);
        let naming = naming.map_err(|error| errors::raise("NameRefused", &error.to_string()))?;
        Ok(self.find(name)?.kafka_name(&naming))
    }
}

impl RawInterfaces {
    fn find(&self, name: &str) -> PyResult<&sal::Topic> {
        self.0.topic(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }
}

/// The schema that several texts (name for messages, text) make together; without a root's full
/// name, the one that no other uses.
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
