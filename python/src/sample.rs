//! Samples and other events of a subscription as Python objects.

use bytes::Bytes;
use helio_bus::{Event, GapCause, Outage, SampleRef};
use helio_component::Loss;
use helio_component::protocol::{AckHeaders, CallHeaders, HeaderError};
use helio_core::{Headers, SchemaId, TraceId};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString, PyType};

use crate::buffer::{self, Buffer};
use crate::schema::Schema;
use crate::time::Time;

/// The type of ``heliograph.NULL``: published in the place of a value, it deletes the last value of
/// its key.
#[pyclass(frozen, module = "heliograph", name = "Null")]
pub(crate) struct Null;

#[pymethods]
impl Null {
    fn __repr__(&self) -> &'static str {
        "heliograph.NULL"
    }

    fn __copy__(this: Py<Self>) -> Py<Self> {
        this
    }
}

/// One sample: its value and its header.
///
/// ``value`` is decoded at its first use: an instance of the topic's record class, a
/// dictionary, the bytes of a topic without a schema, or ``None`` for a null. Numeric arrays in it
/// are read-only; large ones are views of ``payload``.
#[pyclass(frozen, module = "heliograph", name = "Sample")]
pub(crate) struct Sample {
    topic: Py<PyString>,
    partition: u32,
    offset: u64,
    key: Py<PyBytes>,
    payload: Payload,
    producer: Py<PyString>,
    incarnation: u64,
    sequence: u64,
    time: Time,
    schema_id: SchemaId,
    level: u8,
    trace: Option<[u8; 16]>,
    headers: Headers,
    schema: Option<Py<Schema>>,
    value: PyOnceLock<Py<PyAny>>,
}

/// The bytes of a sample.
enum Payload {
    Copied(Py<PyBytes>),
    /// In place, as the subscription asked for.
    Pinned(Py<Buffer>),
}

impl Payload {
    fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Copied(bytes) => bytes.bind(py).as_bytes(),
            Self::Pinned(buffer) => buffer.get().bytes(),
        }
    }

    /// The object that holds them.
    fn owner<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Self::Copied(bytes) => bytes.bind(py).clone().into_any(),
            Self::Pinned(buffer) => buffer.bind(py).clone().into_any(),
        }
    }
}

/// The attributes that all samples of a subscription share.
pub(crate) struct SampleContext {
    pub(crate) topic: Py<PyString>,
    pub(crate) schema: Option<Py<Schema>>,
    /// Whether payloads may stay in place.
    pub(crate) pins: bool,
    producer: Option<(helio_core::ProducerName, Py<PyString>)>,
}

impl SampleContext {
    pub(crate) fn new(topic: Py<PyString>, schema: Option<Py<Schema>>) -> Self {
        Self { topic, schema, pins: false, producer: None }
    }

    /// The Python object of a sample that is still in the transport's memory. Its payload is copied
    /// unless it can be, or was, `pinned`.
    pub(crate) fn sample(
        &mut self,
        py: Python<'_>,
        from: &SampleRef<'_>,
        pinned: Option<Bytes>,
    ) -> PyResult<Sample> {
        let name = &from.producer.name;
        let producer = match &self.producer {
            Some((known, text)) if known == name => text.clone_ref(py),
            _ => {
                let text = PyString::new(py, name.as_str()).unbind();
                self.producer = Some((name.clone(), text.clone_ref(py)));
                text
            }
        };
        let payload = match pinned.or_else(|| from.pinned()) {
            Some(bytes) => Payload::Pinned(Py::new(py, Buffer::new(bytes))?),
            None => Payload::Copied(PyBytes::new(py, from.payload).unbind()),
        };
        Ok(Sample {
            topic: self.topic.clone_ref(py),
            partition: from.partition,
            offset: from.offset,
            key: PyBytes::new(py, from.key).unbind(),
            payload,
            producer,
            incarnation: from.producer.incarnation,
            sequence: from.sequence,
            time: from.time.into(),
            schema_id: from.schema,
            level: from.level,
            trace: from.trace.map(|trace| trace.0),
            headers: from.headers.into(),
            schema: self.schema.as_ref().map(|schema| schema.clone_ref(py)),
            value: PyOnceLock::new(),
        })
    }
}

impl Sample {
    /// The headers of a command.
    pub(crate) fn call_headers(&self) -> Result<CallHeaders, HeaderError> {
        CallHeaders::decode(self.headers.as_ref())
    }

    /// The headers of an acknowledgement.
    pub(crate) fn ack_headers(&self) -> Result<AckHeaders, HeaderError> {
        AckHeaders::decode(self.headers.as_ref())
    }

    /// The trace that it belongs to.
    pub(crate) fn trace_id(&self) -> Option<TraceId> {
        self.trace.map(TraceId)
    }
}

#[pymethods]
impl Sample {
    /// The decoded value; None for a null.
    ///
    /// Raises DecodeError if the payload is not a datum of its schema.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_null(py) {
            return Ok(py.None().into_bound(py));
        }
        let decode = || match &self.schema {
            None => Ok(self.payload(py).into_any()),
            Some(schema) => {
                let owner = self.payload.owner(py);
                let value = schema.get().decode_from(py, self.payload.bytes(py), Some(&owner));
                value.map(Bound::unbind)
            }
        };
        self.value.get_or_try_init(py, decode).map(|value| value.bind(py).clone())
    }

    /// Whether it has no value: it deletes the last value of its key.
    #[getter]
    fn is_null(&self, py: Python<'_>) -> bool {
        self.headers.as_ref().mark_null() && self.payload.bytes(py).is_empty()
    }

    /// When it was published.
    #[getter]
    const fn time(&self) -> Time {
        self.time
    }

    /// When it was published, in nanoseconds of TAI since 1970; creates no object.
    #[getter]
    const fn time_ns(&self) -> i64 {
        self.time.nanos()
    }

    /// The topic's name.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic.clone_ref(py)
    }

    /// The key; empty if there is none.
    #[getter]
    fn key(&self, py: Python<'_>) -> Py<PyBytes> {
        self.key.clone_ref(py)
    }

    /// The encoded value: a copy, if the payload is pinned.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        match &self.payload {
            Payload::Copied(bytes) => bytes.clone_ref(py),
            Payload::Pinned(buffer) => PyBytes::new(py, buffer.get().bytes()).unbind(),
        }
    }

    /// The encoded value without a copy: a read-only memoryview, of the log's own segment if the
    /// payload is pinned.
    #[getter]
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        buffer::view(&self.payload.owner(py))
    }

    /// Whether the payload is held in place: see ``subscribe(pinned_bytes=…)``.
    #[getter]
    fn is_pinned(&self) -> bool {
        matches!(self.payload, Payload::Pinned(_))
    }

    /// The producer's name.
    #[getter]
    fn producer(&self, py: Python<'_>) -> Py<PyString> {
        self.producer.clone_ref(py)
    }

    /// The producer's incarnation, which increases at each of its starts.
    #[getter]
    const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The sample's number among those of its producer's incarnation, from 1.
    #[getter]
    const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The partition.
    #[getter]
    const fn partition(&self) -> u32 {
        self.partition
    }

    /// The offset in the partition.
    #[getter]
    const fn offset(&self) -> u64 {
        self.offset
    }

    /// The routing byte.
    #[getter]
    const fn level(&self) -> u8 {
        self.level
    }

    /// The 16 bytes of the trace that it belongs to.
    #[getter]
    fn trace<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.trace.map(|trace| PyBytes::new(py, &trace))
    }

    /// The headers: a new dictionary of names to bytes at each access. Of a name that another
    /// program repeated it has the first value: see header_items.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let headers = PyDict::new(py);
        for (name, value) in self.headers.as_ref() {
            if !headers.contains(name)? {
                headers.set_item(name, PyBytes::new(py, value))?;
            }
        }
        Ok(headers)
    }

    /// All headers as names and bytes, repeated ones too, in their order.
    #[getter]
    fn header_items<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        let item = |(name, value): (&str, &[u8])| (name.to_owned(), PyBytes::new(py, value));
        self.headers.as_ref().iter().map(item).collect()
    }

    /// The schema's identity, as 16 hexadecimal digits.
    #[getter]
    fn schema_id(&self) -> String {
        self.schema_id.to_string()
    }

    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "<Sample {} {}/{} from {} at {}>",
            self.topic.bind(py),
            self.partition,
            self.offset,
            self.producer.bind(py),
            self.time.isoformat()
        )
    }
}

/// A gap in a writer's own sequence numbers.
pub(crate) fn loss(py: Python<'_>, loss: &Loss) -> PyResult<Py<PyAny>> {
    let Loss { partition, lost, first, next, identity, .. } = loss;
    let class = py.import("heliograph._events")?.getattr("Gap")?;
    Ok(class.call1((partition, lost, "sequence", first, next, identity))?.unbind())
}

/// An event other than a sample, as an object of `heliograph._events`.
pub(crate) fn event(
    py: Python<'_>,
    event: Event,
    shared: &mut SampleContext,
) -> PyResult<Py<PyAny>> {
    let module = py.import("heliograph._events")?;
    let class = |name: &str| module.getattr(name);
    let made = match event {
        Event::Sample(_) => return Ok(py.None()),
        Event::Gap(gap) => {
            let (cause, first, next, producer) = match &gap.cause {
                GapCause::Retention { from, to } => ("retention", *from, *to, None),
                GapCause::Overload { from, to } => ("overload", *from, *to, None),
                GapCause::Damaged { from, to } => ("damaged", *from, *to, None),
                GapCause::Replaced { from, to } => ("replaced", *from, *to, None),
                GapCause::Sequence { producer, from, to } => {
                    ("sequence", *from, *to, Some(producer.name.as_str()))
                }
                GapCause::Behind { producer, from, to } => {
                    ("behind", *from, *to, Some(producer.name.as_str()))
                }
                _ => ("unknown", 0, 0, None),
            };
            class("Gap")?.call1((gap.partition, gap.lost, cause, first, next, producer))?
        }
        Event::Undecodable(of) => {
            let payload = PyBytes::new(py, &of.sample.payload);
            let place = (of.sample.partition, of.sample.offset);
            let sample = shared.sample(py, &of.sample.as_ref(), None)?;
            class("Undecodable")?.call1((place.0, place.1, payload, of.reason, sample))?
        }
        Event::Fenced(of) => {
            let who = (of.partition, of.producer.name.as_str(), of.producer.incarnation, of.newer);
            class("WriterFenced")?.call1(who)?
        }
        Event::DeadlineMissed(of) => {
            let key = PyBytes::new(py, &of.key);
            class("DeadlineMissed")?.call1((key, of.deadline, of.in_a_row))?
        }
        Event::Liveliness(of) => {
            let alive = of.alive == helio_bus::Alive::Yes;
            let who = (of.producer.name.as_str(), of.producer.incarnation);
            class("LivelinessChanged")?.call1((who.0, who.1, alive))?
        }
        Event::Outage(Outage::Lost { cause }) => class("Outage")?.call1((cause,))?,
        Event::Outage(Outage::Restored) => class("Restored")?.call0()?,
        Event::Assigned(partitions) => class("Assigned")?.call1((partitions,))?,
        Event::Incompatible(told) => class("Incompatible")?.call1((told.policy,))?,
        other => class("Unknown")?.call1((format!("{other:?}"),))?,
    };
    Ok(made.unbind())
}
