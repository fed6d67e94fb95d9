//! The entry point: a bus is one connection to one transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_core::qos::Retention;
use helio_core::{ProducerName, Qos, SchemaId, TopicName};

use crate::bus_core::BusCore;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConnectError, TopicError, TransportError};
use crate::exclusive::{ExclusiveError, ExclusiveLog, LogOptions};
use crate::open_topics::OpenTopics;
use crate::reactor::EventSource;
use crate::schema_text::SchemaText;
use crate::topic::{Topic, TopicInfo, TopicSpec};
use crate::transport::{self, Capabilities, Opening, Transport};
use crate::url::BusUrl;
use crate::waitset::WaitSet;

/// How long [`Bus::topic_info`] retries an engine that does not list a topic's writers.
const INFO_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection to one transport. Cloning shares it. It closes with [`Bus::close`], or when the
/// last clone and everything opened from it are dropped.
///
/// ```
/// use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
///
/// let bus = Bus::connect("memory:")?;
/// let wind = bus.topic(TopicSpec::new("weather/wind")?.qos(Qos::telemetry()))?;
/// let mut samples = wind.subscribe(Subscribe::from(Start::Latest))?;
/// wind.publisher()?.publish(Message::new(b"7.5 m/s")).wait()?;
/// let sample = samples.next_sample()?;
/// assert_eq!(&sample.payload[..], b"7.5 m/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Bus {
    core: Arc<BusCore>,
    topics: Arc<OpenTopics>,
}

/// Options of a connection.
#[derive(Default, Clone)]
pub struct Builder {
    producer: Option<String>,
    clock: Option<Arc<dyn Clock>>,
    reads_only: bool,
}

impl Builder {
    /// The producer's name, which is stable over restarts. A second running process of the same
    /// name replaces the first, or is refused if a topic is exclusive. Choose a name that belongs
    /// to the component, such as `MTMount` or `Script:12`.
    ///
    /// The default consists of program, host and process: `helio@summit1:4711`, and
    /// `helio@summit1:4711.2` for the second bus of the process. It is unique while the process
    /// lives and therefore fences nobody; it does not identify the program after a restart.
    #[must_use]
    pub fn producer(mut self, name: &str) -> Self {
        self.producer = Some(name.to_owned());
        self
    }

    /// The clock for timestamps, lifespans and deadlines; [`SystemClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Only looks: a journal is opened for reading, so that nothing in its folder changes, no
    /// recovery runs, and a user without write permission may look. Publishing and groups are
    /// refused there. Other transports have no such difference.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(self, url: &str) -> Result<Bus, ConnectError> {
        let url: BusUrl = url.parse()?;
        let clock = self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let opened = if self.reads_only { transport::reading(&url)? } else { url.clone() };
        let transport = transport::open(&Opening { url: opened, clock: Arc::clone(&clock) })?;
        self.finish(url, clock, transport)
    }

    /// Connects through the caller's transport, as tests do.
    ///
    /// # Errors
    /// [`ConnectError::Producer`].
    pub fn over(self, transport: Arc<dyn Transport>) -> Result<Bus, ConnectError> {
        let url = format!("{}:", transport.capabilities().transport).parse()?;
        let clock = self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        self.finish(url, clock, transport)
    }

    fn finish(
        self,
        url: BusUrl,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Result<Bus, ConnectError> {
        let producer = match self.producer {
            Some(name) => ProducerName::new(&name)?,
            None => ProducerName::new(&default_producer())?,
        };
        let core = Arc::new(BusCore::new(transport, producer, clock, url));
        Ok(Bus { core, topics: Arc::default() })
    }
}

/// `program@host:pid`, followed by `.n` from the second bus of a process on.
fn default_producer() -> String {
    static BUSES: AtomicU64 = AtomicU64::new(0);
    let clean = |text: String, most: usize| -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        text.trim().trim_start_matches('.').chars().map(legal).take(most).collect()
    };
    let program = std::env::args_os()
        .next()
        .and_then(|path| Some(std::path::Path::new(&path).file_stem()?.to_string_lossy().into()))
        .filter(|name: &String| !name.is_empty())
        .unwrap_or_else(|| "program".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .unwrap_or_else(|_| "localhost".to_owned());
    let pid = std::process::id();
    let name = format!("{}@{}:{pid}", clean(program, 60), clean(host, 60));
    match BUSES.fetch_add(1, Ordering::Relaxed) {
        0 => name,
        n => format!("{name}.{}", n + 1),
    }
}

impl Bus {
    /// Connects to a URL under the default producer's name (see [`Builder::producer`]).
    ///
    /// # Errors
    /// [`ConnectError`]; the error of an unknown scheme lists the known ones.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url)
    }

    /// Sets a producer's name or a clock before connecting.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The transport's capabilities.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.core.transport.capabilities()
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &BusUrl {
        &self.core.url
    }

    /// Whether both are the same connection.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The producer that publishes through this bus.
    #[must_use]
    pub fn producer(&self) -> &ProducerName {
        &self.core.producer
    }

    /// The engine's own name, equal for all connections to the same data, however their URLs are
    /// written. An engine without a name is named by its URL without the options.
    ///
    /// # Errors
    /// The transport's error.
    pub fn identity(&self) -> Result<String, TransportError> {
        let named = self.core.transport.identity()?;
        Ok(named.unwrap_or_else(|| {
            let url = &self.core.url;
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let rest = url.rest().chars().map(|c| if legal(c) { c } else { '_' });
            format!("{}-{}", url.scheme(), rest.collect::<String>())
        }))
    }

    /// The clock that stamps samples.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    /// Opens a topic: creates it, or compares an existing one with the specification.
    ///
    /// # Errors
    /// [`TopicError`]; a policy that the transport lacks is refused by name.
    pub fn topic(&self, spec: TopicSpec) -> Result<Topic, TopicError> {
        let core = self.topics.open(&self.core, &spec)?;
        Ok(Topic::opened(core, spec))
    }

    /// Creates those of the topics that do not exist, in few requests, before a caller opens many.
    /// It does nothing on transports where creating a topic is cheap. `made` is called from time to
    /// time with the number of existing ones. A topic's own error is reported when it is opened.
    ///
    /// # Errors
    /// The transport's error.
    pub fn make_topics<'a>(
        &self,
        specs: impl IntoIterator<Item = &'a TopicSpec>,
        mut made: impl FnMut(usize),
    ) -> Result<(), TransportError> {
        let transport = &self.core.transport;
        let can = |spec: &&TopicSpec| {
            let fits = |qos: &Qos| transport.capabilities().check(&spec.name, qos).is_ok();
            spec.validate().is_ok() && spec.qos.as_ref().is_some_and(fits)
        };
        let wanted = specs.into_iter().filter(can);
        let wanted = wanted.filter_map(|spec| Some((spec.name.clone(), spec.qos.clone()?)));
        transport.make_topics(&wanted.collect::<Vec<_>>(), &mut made)
    }

    /// All topics, by name.
    ///
    /// # Errors
    /// The transport's error.
    pub fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.core.transport.topics()
    }

    /// Opens an [exclusive log](crate::exclusive); creates it if there is none.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] as [`ExclusiveError::Transport`] if the transport has none;
    /// [`ExclusiveError::Held`]; the transport's error.
    pub fn exclusive_log(
        &self,
        name: &TopicName,
        options: &LogOptions,
    ) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
        self.core.transport.exclusive_log(name, options)
    }

    /// Removes a topic with its samples; returns whether it existed. Open handles of all processes
    /// fail with [`TransportError::TopicGone`]; blocked readers return it.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the transport's error.
    pub fn remove_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.core.transport.remove_topic(name)
    }

    /// Removes all samples of a topic, which begins again as a new one of the same quality of
    /// service and schemas; returns whether it existed. Open handles of all processes fail with
    /// [`TransportError::TopicGone`].
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the transport's error.
    pub fn purge_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.core.transport.purge_topic(name)
    }

    /// Changes the limits of bytes and age of an existing topic, at once for all processes; returns
    /// whether it exists. Handles that are open show their former quality of service.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the transport's error.
    pub fn alter_topic(
        &self,
        name: &TopicName,
        retention: &Retention,
    ) -> Result<bool, TransportError> {
        self.core.transport.alter_topic(name, retention)
    }

    /// The declared schemas of a topic, oldest first; `None` if there is no such topic.
    ///
    /// # Errors
    /// The transport's error.
    pub fn schemas_of(&self, name: &TopicName) -> Result<Option<Vec<SchemaId>>, TransportError> {
        let topic = self.core.transport.open_topic(name)?;
        topic.map(|topic| topic.schemas()).transpose()
    }

    /// A topic's description and state; `None` if there is no such topic. An engine that does not
    /// list the writers at once is queried again for 10 s.
    ///
    /// # Errors
    /// The transport's error.
    pub fn topic_info(&self, name: &TopicName) -> Result<Option<TopicInfo>, TransportError> {
        let Some(topic) = self.core.transport.open_topic(name)? else { return Ok(None) };
        Ok(Some(TopicInfo {
            name: name.clone(),
            qos: Qos { retention: topic.retention()?, ..topic.qos().clone() },
            schemas: topic.schemas()?,
            partitions: topic.partitions()?,
            carried: topic.carried()?,
            writers: crate::status_events::newest_within(&*topic, &*self.core.clock, INFO_TIMEOUT)?,
        }))
    }

    /// The text of a schema by the identity that samples carry.
    ///
    /// # Errors
    /// The transport's error.
    pub fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.core.transport.schema(id)
    }

    /// The same for a schema without which the caller cannot continue.
    ///
    /// # Errors
    /// [`TransportError::NoSchema`] if the text is not stored; the transport's error.
    pub fn schema_text(&self, id: SchemaId) -> Result<SchemaText, TransportError> {
        let text = self.schema(id)?.ok_or(TransportError::NoSchema { schema: id })?;
        Ok(SchemaText { id, text: text.into() })
    }

    /// Stores a schema's text, as opening a publisher with it does. It replaces one that was
    /// edited or damaged.
    ///
    /// # Errors
    /// The transport's error.
    pub fn put_schema(&self, schema: &SchemaText) -> Result<(), TransportError> {
        self.core.transport.put_schema(schema.id, &schema.text)
    }

    /// A set that waits for many subscriptions of this bus in one thread, by one system call.
    ///
    /// # Errors
    /// The transport's error.
    pub fn wait_set(&self) -> Result<WaitSet, TransportError> {
        Ok(WaitSet::new(Arc::clone(&self.core), self.core.transport.bell()?))
    }

    /// The source of wake-ups for an event loop, in place of the bus's waiting thread. Create it
    /// before the first asynchronous wait, and drive it as long as such waits exist. `None` if the
    /// transport has no descriptor to watch, or if the thread runs already.
    ///
    /// # Errors
    /// The transport's error.
    pub fn event_source(&self) -> Result<Option<EventSource>, TransportError> {
        self.core.event_source()
    }

    /// Closes the connection. Blocked calls return [`TransportError::Closed`]; pending receipts are
    /// completed. Call `flush` first for a guarantee of samples in flight.
    pub fn close(&self) {
        self.core.close();
        self.topics.close();
        self.core.stop_reactor();
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus")
            .field("url", &self.core.url.to_string())
            .field("producer", &self.core.producer)
            .finish_non_exhaustive()
    }
}
