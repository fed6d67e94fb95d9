//! The bus and its topics for Python.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use helio_bus::{
    Alive, Bus, Clock, EvolutionError, GroupInfo, GroupMember, GroupPartition, Headers, HeadersRef,
    Lagging, Message, PendingBatch, ProducerName, PublishError, Publisher, Start, Subscribe, Tai,
    TestClock, Topic, TopicName, TopicSpec, TraceId, TransportError, WriterInfo,
};
use helio_core::NameError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString};

use crate::errors;
use crate::fork::{Generation, Owned};
use crate::receipt::{Pending, Receipt, SIGNAL_CHECK_INTERVAL, guarantee, seconds};
use crate::sample::{Null, Sample, SampleContext};
use crate::schema::{Schema, with_scratch};
use crate::subscription::RawSubscription;
use crate::time::Time;

/// A clock that stands still until a test advances it.
#[pyclass(frozen, module = "heliograph.testing", name = "ManualClock")]
#[derive(Debug)]
pub(crate) struct ManualClock(TestClock);

#[pymethods]
impl ManualClock {
    /// A clock with the initial time `now`.
    #[new]
    fn new(now: &Time) -> Self {
        Self(TestClock::new(Tai::from_nanos(now.nanos())))
    }

    /// Advance the time by seconds.
    fn advance(&self, seconds: f64) -> PyResult<()> {
        let wrong = |_| PyValueError::new_err(format!("{seconds} s cannot pass"));
        self.0.advance(Duration::try_from_secs_f64(seconds).map_err(wrong)?);
        Ok(())
    }

    /// Step the time of day, as an operator or NTP does; monotonic time continues.
    fn set(&self, now: &Time) {
        self.0.set(Tai::from_nanos(now.nanos()));
    }

    /// The current time.
    fn now(&self) -> Time {
        self.0.now().into()
    }
}

/// A bus, driven by the package's own classes.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawBus")]
pub(crate) struct RawBus {
    bus: Mutex<Owned<Bus>>,
    generation: Generation,
}

const OBJECT: &str = "bus";

impl RawBus {
    pub(crate) fn bus(&self, py: Python<'_>) -> PyResult<Bus> {
        self.lock(py)?.get(OBJECT).cloned()
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Owned<Bus>>> {
        self.generation.check(OBJECT)?;
        Ok(self.bus.lock_py_attached(py).unwrap_or_else(|error| error.into_inner()))
    }
}

#[pymethods]
impl RawBus {
    /// Connects without the interpreter lock.
    #[new]
    #[pyo3(signature = (url, producer = None, clock = None))]
    fn new(
        py: Python<'_>,
        url: &str,
        producer: Option<&str>,
        clock: Option<&ManualClock>,
    ) -> PyResult<Self> {
        let mut builder = Bus::builder();
        if let Some(producer) = producer {
            builder = builder.producer(producer);
        }
        if let Some(clock) = clock {
            let clock: Arc<dyn Clock> = Arc::new(clock.0.clone());
            builder = builder.clock(clock);
        }
        let bus = py.detach(|| builder.connect(url)).map_err(|error| errors::connect(&error))?;
        Ok(Self { bus: Mutex::new(Owned::new(bus)), generation: Generation::current() })
    }

    #[getter]
    fn url(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.bus(py)?.url().to_string())
    }

    #[getter]
    fn producer(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.bus(py)?.producer().to_string())
    }

    /// The time of its clock, in nanoseconds of TAI since 1970.
    fn now_ns(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.bus(py)?.clock().now().nanos())
    }

    /// The time of its clock for SAL's `private_sndStamp` and `private_efdStamp`: seconds of TAI
    /// and of UTC since 1970.
    fn stamps(&self, py: Python<'_>) -> PyResult<(f64, f64)> {
        let now = self.bus(py)?.clock().now();
        Ok((now.seconds(), now.unix_nanos() as f64 * 1e-9))
    }

    /// Opens a topic, with its quality of service as JSON.
    #[expect(clippy::too_many_arguments, reason = "private to the package")]
    #[pyo3(signature = (name, qos, schema, evolution = None, producer = None, required = None))]
    fn topic(
        &self,
        py: Python<'_>,
        name: &str,
        qos: Option<&str>,
        schema: Option<Py<Schema>>,
        evolution: Option<&str>,
        producer: Option<&str>,
        required: Option<Vec<String>>,
    ) -> PyResult<RawTopic> {
        let bus = self.bus(py)?;
        let wrong = |error| errors::topic(&error, "HelioError");
        let mut spec = TopicSpec::new(name).map_err(wrong)?;
        if let Some(qos) = qos {
            let refused = |error| errors::raise("QosRefused", &format!("{name}: {error}"));
            spec = spec.qos(serde_json::from_str(qos).map_err(refused)?);
        }
        if let Some(schema) = &schema {
            spec = spec.schema(schema.get().identity());
        }
        if let Some(policy) = evolution {
            let wrong = |error: EvolutionError| PyValueError::new_err(error.to_string());
            spec = spec.evolution(policy.parse().map_err(wrong)?);
        }
        if let Some(required) = &required {
            spec = spec.required_fields(required.iter().map(String::as_str));
        }
        if let Some(producer) = producer {
            let refused = |error: NameError| errors::raise("NameRefused", &error.to_string());
            spec = spec.producer(ProducerName::new(producer).map_err(refused)?);
        }
        let topic = py.detach(|| bus.topic(spec)).map_err(wrong)?;
        let name = PyString::new(py, topic.name().as_str()).unbind();
        let opened = OpenTopic { topic, publisher: Mutex::default() };
        Ok(RawTopic { opened: Owned::new(opened), name, schema })
    }

    /// The names of all topics.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let bus = self.bus(py)?;
        let names = py.detach(|| bus.topics()).map_err(|error| errors::transport(&error))?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// The text of a topic's newest schema; `None` if there is no such topic, or it has no schema.
    ///
    /// Raises SchemaError if the text is missing.
    fn newest_schema(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        let bus = self.bus(py)?;
        let name = TopicName::new(name);
        let name = name.map_err(|error| errors::raise("NameRefused", &error.to_string()))?;
        let text = py.detach(|| -> Result<Option<String>, TransportError> {
            match bus.schemas_of(&name)?.and_then(|schemas| schemas.last().copied()) {
                Some(newest) => Ok(Some(bus.schema_text(newest)?.text.to_string())),
                None => Ok(None),
            }
        });
        text.map_err(|error| errors::transport(&error))
    }

    /// Closes the connection.
    fn close(&self, py: Python<'_>) {
        // What a parent opened is the parent's to close.
        let taken = self.lock(py).ok().and_then(|mut bus| bus.take());
        py.detach(|| {
            if let Some(bus) = taken {
                bus.close();
            }
        });
    }
}

/// The smallest payload that is copied without the interpreter lock: below it, copying costs less
/// than releasing the lock.
const DETACH_MIN_BYTES: usize = 64 << 10;

/// The policy for a publish that would block the thread: another process has the partition's lock
/// (and may be stopped), or a writer must be opened.
#[derive(Clone, Copy)]
enum WhenBlocked {
    /// Wait without the interpreter lock.
    Wait,
    /// Do not publish.
    Refuse,
}

struct OpenTopic {
    topic: Topic,
    /// Shared with publishes in progress, as the writer may be reopened meanwhile.
    publisher: Mutex<Option<Arc<Publisher>>>,
}

impl OpenTopic {
    /// Held briefly: nothing is opened or closed while it is locked.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<Arc<Publisher>>> {
        self.publisher.lock_py_attached(py).unwrap_or_else(|error| error.into_inner())
    }
}

/// A topic, driven by the package's own classes.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawTopic")]
pub(crate) struct RawTopic {
    opened: Owned<OpenTopic>,
    name: Py<PyString>,
    schema: Option<Py<Schema>>,
}

/// The options of a publish; `None` is the topic's default.
#[derive(FromPyObject)]
struct PublishOptions<'py> {
    #[pyo3(item)]
    key: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    level: u8,
    #[pyo3(item)]
    time: Option<Bound<'py, Time>>,
    #[pyo3(item)]
    trace: Option<Bound<'py, PyBytes>>,
    #[pyo3(item)]
    headers: Option<Bound<'py, PyMapping>>,
    #[pyo3(item)]
    guarantee: Option<String>,
    #[pyo3(item)]
    partition: Option<u32>,
}

impl<'py> PublishOptions<'py> {
    /// Converts a mapping of names to bytes into headers.
    fn headers(&self) -> PyResult<Headers> {
        let mut headers = Headers::new();
        let Some(given) = &self.headers else { return Ok(headers) };
        for item in given.items()?.iter() {
            let (name, value) = item.extract::<(PyBackedStr, Bound<'py, PyAny>)>()?;
            let Ok(value) = value.cast::<PyBytes>() else {
                let found = value.get_type().name()?;
                let message = format!("the header {name} is bytes, not {found}");
                return Err(errors::raise("EncodeError", &message));
            };
            let with = headers.with(&name, value.as_bytes());
            headers = with.map_err(|error| errors::raise("EncodeError", &error.to_string()))?;
        }
        Ok(headers)
    }

    fn apply<'a>(&'a self, mut message: Message<'a>) -> PyResult<Message<'a>> {
        message = message.level(self.level);
        if let Some(time) = &self.time {
            message = message.time(Tai::from_nanos(time.get().nanos()));
        }
        if let Some(trace) = &self.trace {
            let bytes = trace.as_bytes().try_into();
            let wrong = |_| PyValueError::new_err("a trace id has 16 bytes");
            message = message.trace(TraceId(bytes.map_err(wrong)?));
        }
        if let Some(name) = &self.guarantee {
            message = message.guarantee(guarantee(name)?);
        }
        if let Some(partition) = self.partition {
            message = message.partition(partition);
        }
        Ok(message)
    }
}

/// A key from the application: bytes, or text as UTF-8.
fn append_key(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(raw) = key.cast::<PyBytes>() {
        out.extend_from_slice(raw.as_bytes());
    } else if let Ok(text) = key.cast::<PyString>() {
        out.extend_from_slice(text.to_str()?.as_bytes());
    } else {
        let found = key.get_type().name()?;
        let message = format!("a key is bytes or str, not {found}; make one with topic.key(…)");
        return Err(errors::raise("EncodeError", &message));
    }
    Ok(())
}

impl RawTopic {
    fn opened(&self) -> PyResult<&OpenTopic> {
        self.opened.get("topic")
    }

    fn publisher(&self, py: Python<'_>) -> PyResult<Arc<Publisher>> {
        let opened = self.opened()?;
        if let Some(publisher) = &*opened.lock(py) {
            return Ok(Arc::clone(publisher));
        }
        let publisher = py.detach(|| opened.topic.publisher());
        let publisher = publisher.map_err(|error| errors::topic(&error, "StorageError"))?;
        Ok(Arc::clone(opened.lock(py).get_or_insert_with(|| Arc::new(publisher))))
    }

    /// Appends a value's payload and its key; returns where the key begins. A null has no payload.
    fn encode(
        &self,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        out: &mut Vec<u8>,
    ) -> PyResult<usize> {
        let is_null = value.is_exact_instance_of::<Null>();
        match &self.schema {
            _ if is_null => {}
            Some(schema) => schema.get().encode_into(value, out)?,
            None => match value.cast::<PyBytes>() {
                Ok(raw) => out.extend_from_slice(raw.as_bytes()),
                Err(_) => raw_payload(value, out)?,
            },
        }
        let middle = out.len();
        match (key, &self.schema) {
            (Some(key), _) => append_key(key, out)?,
            (None, Some(schema)) if schema.get().has_key() && is_null => {
                let message = "a null has no fields to make its key of; give key=topic.key(…)";
                return Err(errors::raise("EncodeError", message));
            }
            (None, Some(schema)) if schema.get().has_key() => schema.get().key_into(value, out)?,
            _ => {}
        }
        Ok(middle)
    }

    /// Publishes at once, or as `when_blocked` says; `None` if it was not published.
    fn send(
        &self,
        value: &Bound<'_, PyAny>,
        options: Option<&PublishOptions<'_>>,
        when_blocked: WhenBlocked,
    ) -> PyResult<Option<Py<PyAny>>> {
        let key = options.and_then(|options| options.key.as_ref());
        let py = value.py();
        let headers = options.map(PublishOptions::headers).transpose()?.unwrap_or_default();
        let headers = match value.is_exact_instance_of::<Null>() {
            false => headers,
            true => {
                let marked = headers.null();
                marked.map_err(|error| errors::raise("EncodeError", &error.to_string()))?
            }
        };
        let publisher = self.publisher(py)?;
        let publishing = with_scratch(|out| {
            let middle = self.encode(value, key, out)?;
            let (payload, key) = out.split_at(middle);
            let message = Message::new(payload).key(key).headers(headers.as_ref());
            let message = match options {
                Some(options) => options.apply(message)?,
                None => message,
            };
            let at_once = match payload.len() {
                ..DETACH_MIN_BYTES => publisher.try_publish(message),
                _ => py.detach(|| publisher.try_publish(message)),
            };
            PyResult::Ok(match when_blocked {
                WhenBlocked::Wait => {
                    at_once.or_else(|| Some(py.detach(|| publisher.publish(message))))
                }
                WhenBlocked::Refuse => at_once,
            })
        })?;
        let Some(publishing) = publishing else { return Ok(None) };
        Ok(Some(match publishing.outcome() {
            Some(Ok(receipt)) => Py::new(py, Receipt::from(receipt))?.into_any(),
            Some(Err(error)) => return Err(errors::publish(&error)),
            None => Py::new(py, Pending::one(publishing))?.into_any(),
        }))
    }

    fn batch(&self, values: &Bound<'_, PyAny>, partition: Option<u32>) -> PyResult<PendingBatch> {
        let py = values.py();
        let publisher = self.publisher(py)?;
        let mut parts = Vec::new();
        with_scratch(|out| {
            for value in values.try_iter()? {
                let start = out.len();
                let value = value?;
                let middle = self.encode(&value, None, out)?;
                let is_null = value.is_exact_instance_of::<Null>();
                let headers = if is_null { HeadersRef::NULL } else { HeadersRef::EMPTY };
                parts.push((start, middle, out.len(), headers));
            }
            let message = |&(start, middle, end, headers): &(usize, usize, usize, _)| {
                let message = Message::new(&out[start..middle]).key(&out[middle..end]);
                let message = message.headers(headers);
                partition.map_or(message, |partition| message.partition(partition))
            };
            let messages: Vec<_> = parts.iter().map(message).collect();
            PyResult::Ok(py.detach(|| publisher.publish_batch(&messages)))
        })
    }
}

type Member = (String, Option<u32>, Option<String>, Vec<u32>);
type Group = (String, Vec<Member>, Vec<(u32, u64, u64, Option<u64>)>);

fn raw_payload(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let buffer = pyo3::buffer::PyBuffer::<u8>::get(value).map_err(|_| {
        let found = value.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
        let message = format!("a topic without a schema takes bytes, not {found}");
        errors::raise("EncodeError", &message)
    })?;
    let start = out.len();
    out.resize(start + buffer.item_count(), 0);
    buffer.copy_to_slice(value.py(), &mut out[start..])
}

#[pymethods]
impl RawTopic {
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    #[getter]
    fn schema(&self, py: Python<'_>) -> Option<Py<Schema>> {
        self.schema.as_ref().map(|schema| schema.clone_ref(py))
    }

    /// The quality of service as JSON.
    #[getter]
    fn qos(&self) -> PyResult<String> {
        let qos = self.opened()?.topic.qos();
        serde_json::to_string(qos).map_err(|error| errors::raise("QosRefused", &error.to_string()))
    }

    /// A command embedded in another sample, in its sender's schema, converted to this topic's.
    ///
    /// Raises SchemaError if the schemas do not resolve.
    fn resolve(
        &self,
        sample: &Bound<'_, Sample>,
        payload: Bound<'_, PyBytes>,
    ) -> PyResult<Py<PyBytes>> {
        let py = payload.py();
        let headers = sample.get().call_headers().unwrap_or_default();
        let Some(schema) = headers.schema else { return Ok(payload.unbind()) };
        let (topic, bytes) = (&self.opened()?.topic, payload.as_bytes());
        let resolved = py.detach(|| topic.resolve(schema, bytes));
        let resolved = resolved.map_err(|error| errors::topic(&error, "SubscribeError"))?;
        Ok(PyBytes::new(py, &resolved).unbind())
    }

    /// Adds the schema to the topic's, as opening a writer does: writers are bound to it.
    fn declare(&self, py: Python<'_>) -> PyResult<()> {
        let topic = &self.opened()?.topic;
        py.detach(|| topic.declare()).map_err(|error| errors::topic(&error, "StorageError"))
    }

    /// The incarnation under which this bus publishes here; opens the writer if necessary.
    fn claim(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.publisher(py)?.producer().incarnation)
    }

    /// Reopens a writer that was fenced; this fences the other one in turn.
    fn reopen(&self, py: Python<'_>) -> PyResult<()> {
        let fenced = self.opened()?.lock(py).take();
        // Publishers of one bus share a writer, which closes with the last of them.
        py.detach(|| drop(fenced));
        self.publisher(py).map(drop)
    }

    /// The producer name of this handle.
    #[getter]
    fn producer(&self) -> PyResult<String> {
        Ok(self.opened()?.topic.producer().to_string())
    }

    /// Current and former writers of the topic: name, incarnation, and whether it is alive.
    fn writers(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, Option<bool>)>> {
        let topic = &self.opened()?.topic;
        let writers = py.detach(|| topic.writers());
        let writers = writers.map_err(|error| errors::topic(&error, "StorageError"))?;
        let told = |writer: WriterInfo| {
            let alive = writer.alive.map(|alive| alive == Alive::Yes);
            (writer.producer.name.to_string(), writer.producer.incarnation, alive)
        };
        Ok(writers.into_iter().map(told).collect())
    }

    /// Lets a user read the topic; returns a generated password.
    fn grant(
        &self,
        py: Python<'_>,
        user: &str,
        password: Option<&str>,
    ) -> PyResult<Option<String>> {
        let topic = &self.opened()?.topic;
        let granted = py.detach(|| topic.grant(user, password));
        Ok(granted.map_err(|error| errors::topic(&error, "StorageError"))?.password)
    }

    /// Ends a user's grant; returns whether there was one.
    fn revoke(&self, py: Python<'_>, user: &str) -> PyResult<bool> {
        let topic = &self.opened()?.topic;
        let revoked = py.detach(|| topic.revoke(user));
        revoked.map_err(|error| errors::topic(&error, "StorageError"))
    }

    /// The groups: name, members (name, process, host, partitions) and partitions (number, first,
    /// end, committed).
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Group>> {
        let topic = &self.opened()?.topic;
        let groups = py.detach(|| topic.groups());
        let groups = groups.map_err(|error| errors::topic(&error, "SubscribeError"))?;
        let member = |of: GroupMember| (of.name, of.process, of.host, of.partitions);
        let partition = |of: GroupPartition| (of.partition, of.first, of.end, of.committed);
        let group = |info: GroupInfo| {
            let members = info.members.into_iter().map(member).collect();
            (info.name, members, info.partitions.into_iter().map(partition).collect())
        };
        Ok(groups.into_iter().map(group).collect())
    }

    /// Publishes a value; returns a Receipt, or Pending if it is not complete.
    fn publish(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        self.send(value, None, WhenBlocked::Wait)
    }

    /// The same with a key, level, time and so on.
    fn publish_with(
        &self,
        value: &Bound<'_, PyAny>,
        options: PublishOptions<'_>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.send(value, Some(&options), WhenBlocked::Wait)
    }

    /// Publishes a value unless that would block the thread: then returns None and does nothing.
    fn offer(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        self.send(value, None, WhenBlocked::Refuse)
    }

    /// The same with a key, level, time and so on.
    fn offer_with(
        &self,
        value: &Bound<'_, PyAny>,
        options: PublishOptions<'_>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.send(value, Some(&options), WhenBlocked::Refuse)
    }

    /// Publishes values as one batch; returns the pending last receipt of each partition.
    fn publish_many(&self, values: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let batching = self.batch(values, None)?;
        if let (0, Some(error)) = (batching.taken(), batching.failed()) {
            return Err(errors::publish(error));
        }
        Ok(Pending::batch(batching))
    }

    /// The same, to one partition if it is given; returns the pending outcome of each.
    #[pyo3(signature = (values, partition))]
    fn publish_batch(
        &self,
        values: &Bound<'_, PyAny>,
        partition: Option<u32>,
    ) -> PyResult<Pending> {
        Ok(Pending::each(self.batch(values, partition)?))
    }

    /// Waits until all published samples have a guarantee.
    #[pyo3(signature = (name, timeout_s))]
    fn flush(&self, py: Python<'_>, name: &str, timeout_s: f64) -> PyResult<()> {
        let publisher = self.publisher(py)?;
        let guarantee = guarantee(name)?;
        let until = Instant::now().checked_add(seconds(Some(timeout_s))?.unwrap_or_default());
        loop {
            let left = until
                .map_or(SIGNAL_CHECK_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
            let done = py.detach(|| publisher.flush(guarantee, left.min(SIGNAL_CHECK_INTERVAL)));
            py.check_signals()?;
            match done {
                Err(PublishError::Timeout) if left > SIGNAL_CHECK_INTERVAL => {}
                done => return done.map_err(|error| errors::publish(&error)),
            }
        }
    }

    /// Renews this writer's liveliness lease.
    fn assert_alive(&self, py: Python<'_>) -> PyResult<()> {
        let publisher = self.publisher(py)?;
        let alive = py.detach(|| publisher.assert_alive());
        alive.map_err(|error| errors::transport(&error))
    }

    /// The counters of the samples that this bus published here, by name.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let publisher = self.opened()?.lock(py).clone();
        let stats = publisher.map(|publisher| publisher.stats()).unwrap_or_default();
        let counts = PyDict::new(py);
        for (name, count) in [
            ("taken", stats.taken),
            ("bytes", stats.bytes),
            ("refused", stats.refused),
            ("dropped", stats.dropped),
            ("failed", stats.failed),
            ("abandoned", stats.abandoned),
        ] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    /// Opens a subscription; `options` are those of the package's `subscribe`.
    fn subscribe(
        &self,
        py: Python<'_>,
        options: SubscribeOptions<'_>,
    ) -> PyResult<RawSubscription> {
        let pins = options.pinned_bytes.is_some();
        let options = options.options()?;
        let topic = &self.opened()?.topic;
        let opened = py.detach(|| topic.subscribe(options));
        let opened = opened.map_err(|error| errors::topic(&error, "SubscribeError"))?;
        let schema = self.schema.as_ref().map(|schema| schema.clone_ref(py));
        let mut context = SampleContext::new(self.name.clone_ref(py), schema);
        context.pins = pins;
        Ok(RawSubscription::new(opened, context))
    }
}

/// The options of a subscription.
#[derive(FromPyObject)]
struct SubscribeOptions<'py> {
    #[pyo3(item)]
    start: (String, i64, u32),
    #[pyo3(item)]
    keys: Option<Bound<'py, PyList>>,
    #[pyo3(item)]
    key_prefix: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    partitions: Option<Vec<u32>>,
    #[pyo3(item)]
    group: Option<String>,
    #[pyo3(item)]
    lagging: Option<(String, u64)>,
    #[pyo3(item)]
    deadline: Option<Duration>,
    #[pyo3(item)]
    lifespan: Option<Duration>,
    #[pyo3(item)]
    watch_writers: bool,
    #[pyo3(item)]
    each_undecodable: bool,
    #[pyo3(item)]
    pinned_bytes: Option<u64>,
}

impl SubscribeOptions<'_> {
    fn options(self) -> PyResult<Subscribe> {
        let mut options = Subscribe::from(start(&self.start)?);
        if let Some(keys) = &self.keys {
            let mut wanted = Vec::new();
            for key in keys {
                let mut raw = Vec::new();
                append_key(&key, &mut raw)?;
                wanted.push(raw);
            }
            options = options.keys(wanted);
        }
        if let Some(prefix) = &self.key_prefix {
            let mut raw = Vec::new();
            append_key(prefix, &mut raw)?;
            options = options.key_prefix(&raw);
        }
        if let Some(partitions) = self.partitions {
            options = options.partitions(partitions);
        }
        if let Some(group) = &self.group {
            options = options.group(group);
        }
        if let Some((name, depth)) = &self.lagging {
            options = options.lagging(lagging(name, *depth)?);
        }
        if let Some(deadline) = self.deadline {
            options = options.deadline(deadline);
        }
        if let Some(lifespan) = self.lifespan {
            options = options.lifespan(lifespan);
        }
        if let Some(bytes) = self.pinned_bytes {
            options = options.pinned(bytes);
        }
        let options = if self.each_undecodable { options.each_undecodable() } else { options };
        Ok(if self.watch_writers { options.watch_writers() } else { options })
    }
}

fn start((kind, number, partition): &(String, i64, u32)) -> PyResult<Start> {
    let wrong = |_| PyValueError::new_err(format!("a start of {number}"));
    Ok(match kind.as_str() {
        "latest" => Start::Latest,
        "earliest" => Start::Earliest,
        "last" => Start::Last((*number).try_into().map_err(wrong)?),
        "offset" => {
            Start::Offset { partition: *partition, offset: (*number).try_into().map_err(wrong)? }
        }
        "time" => Start::Time(Tai::from_nanos(*number)),
        other => return Err(PyValueError::new_err(format!("no start is called {other:?}"))),
    })
}

fn lagging(name: &str, depth: u64) -> PyResult<Lagging> {
    Ok(match name {
        "lossless" => Lagging::Lossless,
        "drop_oldest" => Lagging::DropOldest { depth },
        "conflate" => Lagging::Conflate,
        "shed_by_level" => Lagging::ShedByLevel { depth },
        other => return Err(PyValueError::new_err(format!("no policy is called {other:?}"))),
    })
}
