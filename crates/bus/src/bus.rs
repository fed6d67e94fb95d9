//! The way in: a bus is one connection to one transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_core::{ProducerName, Qos, SchemaId, TopicName};

use crate::bus_core::BusCore;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConnectError, TopicError, TransportError};
use crate::open_topics::OpenTopics;
use crate::reactor::EventSource;
use crate::schema_text::SchemaText;
use crate::topic::{Topic, TopicInfo, TopicSpec};
use crate::transport::{self, Capabilities, Opening, Transport};
use crate::url::BusUrl;
use crate::waitset::WaitSet;

/// How long an engine may take to tell who writes a topic, where somebody wants to know all of it.
const INFO_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection to one transport. Cloning shares it; it closes when the last clone and everything
/// that was opened from it are gone, or by [`Bus::close`].
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

/// What may be chosen before connecting.
#[derive(Default, Clone)]
pub struct Builder {
    producer: Option<String>,
    clock: Option<Arc<dyn Clock>>,
}

impl Builder {
    /// The producer's name: who publishes, stable over restarts. A second running process of the
    /// same name takes over from the first (or is refused, where a topic is exclusive), so choose
    /// one that belongs to the component, such as `MTMount` or `Script:12`.
    ///
    /// Without it the name is made of program, host and process: `helio@summit1:4711`, and
    /// `helio@summit1:4711.2` for the second bus of the process. Such a name is unique while the
    /// process lives, and therefore fences nobody, but says nothing after a restart.
    #[must_use]
    pub fn producer(mut self, name: &str) -> Self {
        self.producer = Some(name.to_owned());
        self
    }

    /// The clock for stamps, lifespans and deadlines; by default [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(self, url: &str) -> Result<Bus, ConnectError> {
        let url: BusUrl = url.parse()?;
        let clock = self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let transport = transport::open(&Opening { url: url.clone(), clock: Arc::clone(&clock) })?;
        self.finish(url, clock, transport)
    }

    /// Connects through a transport that the caller made, as tests of transports do.
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

/// `program@host:pid`, and `.n` behind it from the second bus of a process on.
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
    /// Connects to what a URL names, under a producer's name that is made up (see
    /// [`Builder::producer`]).
    ///
    /// # Errors
    /// [`ConnectError`]; an unknown scheme's error lists those that exist.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url)
    }

    /// Chooses a producer's name or a clock before connecting.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What the transport can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.core.transport.capabilities()
    }

    /// The URL that it is connected to.
    #[must_use]
    pub fn url(&self) -> &BusUrl {
        &self.core.url
    }

    /// Whether both are the same connection.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Who publishes through it.
    #[must_use]
    pub fn producer(&self) -> &ProducerName {
        &self.core.producer
    }

    /// The engine's own name: the same from every connection to the same data, however its URL is
    /// written. Where an engine has none it is made of the URL without its options.
    ///
    /// # Errors
    /// What the transport says.
    pub fn identity(&self) -> Result<String, TransportError> {
        let named = self.core.transport.identity()?;
        Ok(named.unwrap_or_else(|| {
            let url = &self.core.url;
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let rest = url.rest().chars().map(|c| if legal(c) { c } else { '_' });
            format!("{}-{}", url.scheme(), rest.collect::<String>())
        }))
    }

    /// The clock that it stamps with.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    /// Opens a topic: creates it, or checks that it is what the specification says.
    ///
    /// # Errors
    /// [`TopicError`]: what the transport cannot do is refused here, by name.
    pub fn topic(&self, spec: TopicSpec) -> Result<Topic, TopicError> {
        let core = self.topics.open(&self.core, &spec)?;
        Ok(Topic::opened(core, spec))
    }

    /// Has topics made that will be opened soon, as far as they are not there, all of them at once:
    /// for who opens many. Where making one costs nothing this does nothing. `made` hears now and
    /// then how many of them are there; what is wrong with one of them is told when that is opened.
    ///
    /// # Errors
    /// What the transport says.
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
    /// What the transport says.
    pub fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.core.transport.topics()
    }

    /// Removes a topic and all that is in it, where the transport can; whether there was one. It is
    /// for those who know that nobody has it open: who has goes on with what nobody else sees.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; what the transport says.
    pub fn remove_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.core.transport.remove_topic(name)
    }

    /// The schemas that were declared for a topic, oldest first; `None` where there is none of that
    /// name.
    ///
    /// # Errors
    /// What the transport says.
    pub fn schemas_of(&self, name: &TopicName) -> Result<Option<Vec<SchemaId>>, TransportError> {
        let topic = self.core.transport.open_topic(name)?;
        topic.map(|topic| topic.schemas()).transpose()
    }

    /// What is known about a topic; `None` where there is none. An engine that does not answer at
    /// once who writes it is asked again, for 10 s.
    ///
    /// # Errors
    /// What the transport says.
    pub fn topic_info(&self, name: &TopicName) -> Result<Option<TopicInfo>, TransportError> {
        let Some(topic) = self.core.transport.open_topic(name)? else { return Ok(None) };
        Ok(Some(TopicInfo {
            name: name.clone(),
            qos: topic.qos().clone(),
            schemas: topic.schemas()?,
            partitions: topic.partitions()?,
            carried: topic.carried()?,
            writers: crate::status_events::newest_within(&*topic, &*self.core.clock, INFO_TIMEOUT)?,
        }))
    }

    /// The text of a schema that samples carry the identity of.
    ///
    /// # Errors
    /// What the transport says.
    pub fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.core.transport.schema(id)
    }

    /// Keeps a schema's text, as opening a topic with it does.
    ///
    /// # Errors
    /// What the transport says.
    pub fn put_schema(&self, schema: &SchemaText) -> Result<(), TransportError> {
        self.core.transport.put_schema(schema.id, &schema.text)
    }

    /// A set that waits for many subscriptions of this bus in one thread, with one kernel wait.
    ///
    /// # Errors
    /// What the transport says.
    pub fn wait_set(&self) -> Result<WaitSet, TransportError> {
        Ok(WaitSet::new(Arc::clone(&self.core), self.core.transport.bell()?))
    }

    /// The source of wake-ups for an event loop that takes the place of the bus's waiting thread:
    /// to be asked for before anything waits asynchronously, and driven for as long as it does.
    /// `None` where the transport has no descriptor to watch, or the thread runs already.
    ///
    /// # Errors
    /// What the transport says.
    pub fn event_source(&self) -> Result<Option<EventSource>, TransportError> {
        self.core.event_source()
    }

    /// Closes the connection: what waits returns [`TransportError::Closed`], pending receipts are
    /// completed. Publishers that want a guarantee for what is under way call `flush` first.
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
