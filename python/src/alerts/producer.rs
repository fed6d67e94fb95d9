//! The producer of a detector, and generated packets for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{
    CcdOutcome, CcdProducer, ProducerError, ProducerOptions, TopicLayout,
};
use helio_alerts::stamps::Packing;
use helio_alerts::topics::Keep;
use helio_alerts::visit::Opening;
use helio_bus::Tai;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use super::arrays::RawPackets;
use crate::bus::RawBus;
use crate::errors;
use crate::fork::{Generation, Owned};
use crate::receipt::seconds;
use crate::schema::Schema;

const OBJECT: &str = "producer of alerts";

/// A manifest: producer, digest of the alerts, digest of the stamps, time of the last one.
type ManifestRow = (String, String, Option<String>, i64);
/// An outcome: the manifest, failed alerts, whether it is announced, the cause, the spill file, why
/// there is none.
type OutcomeRow = (ManifestRow, Vec<i64>, bool, Option<String>, Option<PathBuf>, Option<String>);

/// Publishes the alerts of detectors, driven by the package's own classes.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawCcdProducer")]
pub(crate) struct RawCcdProducer {
    producer: Mutex<Owned<Arc<CcdProducer>>>,
    generation: Generation,
}

fn refused(error: &ProducerError) -> PyErr {
    match error {
        ProducerError::Topic(error) => errors::topic(error, "PublishError"),
        ProducerError::NoIdentifier => errors::raise("SchemaError", &error.to_string()),
        ProducerError::Spill { .. } => PyOSError::new_err(error.to_string()),
        ProducerError::SpillSchema { .. } => errors::raise("SchemaError", &error.to_string()),
        ProducerError::SpillFormat { .. } => errors::raise("StorageError", &error.to_string()),
        other => errors::raise("PublishError", &other.to_string()),
    }
}

fn row(outcome: CcdOutcome) -> OutcomeRow {
    let CcdOutcome { manifest, failed, is_announced, cause, spilled, spill_error } = outcome;
    let stamps = manifest.stamps.map(|digest| digest.to_string());
    let manifest = (manifest.producer, manifest.alerts.to_string(), stamps, manifest.published_ns);
    (manifest, failed, is_announced, cause, spilled, spill_error)
}

fn layout(stamps: &str) -> PyResult<TopicLayout> {
    match stamps {
        "inline" => Ok(TopicLayout::Inline),
        "split" => Ok(TopicLayout::Split(Packing::Plain)),
        "packed" => Ok(TopicLayout::Split(Packing::ShuffleZstd)),
        _ => {
            let message = format!("stamps={stamps:?}: use inline, split or packed");
            Err(PyValueError::new_err(message))
        }
    }
}

impl RawCcdProducer {
    fn producer(&self, py: Python<'_>) -> PyResult<Arc<CcdProducer>> {
        self.generation.check(OBJECT)?;
        let guard = self.producer.lock_py_attached(py);
        guard.unwrap_or_else(|error| error.into_inner()).get(OBJECT).cloned()
    }
}

#[pymethods]
impl RawCcdProducer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "private to the package")]
    fn new(
        py: Python<'_>,
        bus: &RawBus,
        topic: &str,
        schema: &Schema,
        stamps: &str,
        partitions: u32,
        keep: (u32, Option<u64>),
        retry_s: f64,
        spill: Option<PathBuf>,
    ) -> PyResult<Self> {
        let layout = layout(stamps)?;
        let keep = Keep { days: keep.0, partition_bytes: keep.1 };
        let retry_for = seconds(Some(retry_s))?.unwrap_or_default();
        let options = ProducerOptions { layout, partitions, keep, retry_for, spill };
        let bus = bus.bus(py)?;
        let schema = schema.schema();
        let opened = py.detach(|| CcdProducer::open(&bus, topic, schema, options));
        let producer = Owned::new(Arc::new(opened.map_err(|error| refused(&error))?));
        Ok(Self { producer: Mutex::new(producer), generation: Generation::current() })
    }

    /// Publishes the opening record of a visit.
    fn open_visit(
        &self,
        py: Python<'_>,
        visit: i64,
        detectors: Vec<i32>,
        shutter_close_ns: i64,
        window_ns: i64,
    ) -> PyResult<()> {
        let producer = self.producer(py)?;
        let opening = Opening { visit, detectors, shutter_close_ns, window_ns, starts: Vec::new() };
        py.detach(|| producer.open_visit(opening)).map_err(|error| refused(&error))
    }

    /// Publishes a visit's packets, and then the manifest; it may wait for as long as it retries.
    fn publish(
        &self,
        py: Python<'_>,
        visit: i64,
        detector: i32,
        packets: &RawPackets,
        shutter_close_ns: Option<i64>,
    ) -> PyResult<OutcomeRow> {
        let producer = self.producer(py)?;
        if let Some(nanos) = shutter_close_ns {
            producer.set_shutter_close(visit, Tai::from_nanos(nanos));
        }
        let done = py.detach(|| producer.publish(Ccd { visit, detector }, &packets.0));
        done.map(row).map_err(|error| refused(&error))
    }

    /// Publishes a spill file's packets.
    fn replay(&self, py: Python<'_>, file: PathBuf) -> PyResult<OutcomeRow> {
        let producer = self.producer(py)?;
        py.detach(|| producer.replay(&file)).map(row).map_err(|error| refused(&error))
    }
}

/// Packets that look like a survey's, for tests.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawGenerator")]
pub(crate) struct RawGenerator(Mutex<Generator>);

#[pymethods]
impl RawGenerator {
    #[new]
    fn new(
        version: &str,
        seed: u64,
        alerts_per_visit: u32,
        detectors: u16,
        history: Option<usize>,
        has_stamps: bool,
    ) -> PyResult<Self> {
        let version = version.parse().map_err(|error| {
            let error: helio_alerts::rubin::VersionError = error;
            PyValueError::new_err(error.to_string())
        })?;
        let options = GeneratorOptions {
            version,
            seed,
            alerts_per_visit,
            detectors,
            history: history.map_or(History::Drawn, History::Points),
            stamps: if has_stamps { WithStamps::Fits } else { WithStamps::None },
            ..GeneratorOptions::default()
        };
        Ok(Self(Mutex::new(Generator::new(options))))
    }

    /// The identifier of a visit, and the packets of a detector, both counted from 0.
    fn packets<'py>(
        &self,
        py: Python<'py>,
        visit: u32,
        detector: u16,
    ) -> (i64, Vec<Bound<'py, PyBytes>>) {
        let guard = self.0.lock_py_attached(py);
        let mut generator = guard.unwrap_or_else(|error| error.into_inner());
        let packets = (0..generator.alerts(detector)).map(|number| {
            let mut datum = Vec::new();
            generator.write(AlertNumber { visit, detector, number }, &mut datum);
            PyBytes::new(py, &datum)
        });
        let packets = packets.collect();
        (generator.visit_id(visit), packets)
    }
}
