//! The options of a `kafka:` URL: brokers, our own options, and librdkafka's by their names.

use std::time::Duration;

use helio_bus::transport::Opening;
use helio_bus::{BusUrl, ConnectError, Guarantee};
use helio_core::sal::SalNaming;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::client::names::Names;
use crate::registry::options::{REGISTRY_OPTIONS, RegistryOptions};

/// The transport's own options. All others are librdkafka's.
const OWN_OPTIONS: [&str; 5] = ["prefix", "replication", "naming", "subname", "null"];

/// Options of producers only. librdkafka warns about them elsewhere.
const PRODUCER_OPTIONS: [&str; 17] = [
    "acks",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.send.max.retries",
    "message.timeout.ms",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "request.required.acks",
    "retries",
];

/// Options of consumers only.
const CONSUMER_OPTIONS: [&str; 12] = [
    "check.crcs",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "session.timeout.ms",
];

/// Options that the transport must set itself.
const RESERVED_OPTIONS: [&str; 11] = [
    "auto.commit.enable",
    "auto.offset.reset",
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "partition.assignment.strategy",
    "transactional.id",
];

/// Options that weaken a producer's guarantees below what the internal topics need.
const WEAKENING_OPTIONS: [&str; 5] = [
    "acks",
    "enable.idempotence",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "request.required.acks",
];

/// How long a record may be in flight, in milliseconds; 0 is no limit.
const DELIVERY_TIMEOUT_OPTIONS: [&str; 2] = ["delivery.timeout.ms", "message.timeout.ms"];
/// The default of these options.
const DEFAULT_DELIVERY_TIMEOUT_MS: u64 = 300_000;

/// The maximum size of a batch, in bytes; a single record may be larger.
const BATCH_SIZE_OPTION: &str = "batch.size";
/// Batch sizes of forwarders, in bytes: a topic uses the largest that it admits.
pub(crate) const FORWARDING_BATCH_BYTES: [u32; 5] = [1_000_000, 250_000, 60_000, 15_000, 1];

/// The largest payload, in bytes. A topic's `max.message.bytes` is larger by the overhead.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 8 << 20;
/// The largest key, in bytes: the same as the journal's.
pub(crate) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The rest of a record: key, headers, Kafka's lengths.
const MAX_RECORD_OVERHEAD_BYTES: usize = 128 << 10;
/// The largest record.
pub(crate) const MAX_RECORD_BYTES: usize = MAX_PAYLOAD_BYTES + MAX_RECORD_OVERHEAD_BYTES;

/// How long a consumer waits for an answer before it reconnects. Otherwise it detects neither a
/// connection that was lost while a machine stood still nor a lost metadata request, which is not
/// repeated before. Requests that wait by their nature, of group members and of fetches, have
/// timeouts of their own; but requests behind such a fetch are answered after it. Producers keep
/// librdkafka's 60 s: a broker may take `request.timeout.ms`, 30 s, to replicate a write, and must
/// not be interrupted.
const SOCKET_TIMEOUT_MS: u32 = 10_000;
/// librdkafka's own limit.
const MAX_SOCKET_TIMEOUT_MS: u32 = 300_000;
/// How often a consumer requests the cluster's metadata, in milliseconds. A moved leader is found
/// by fetching; new partitions and brokers are found only by this.
const METADATA_REFRESH_MS: &str = "30000";

/// A URL's options, checked.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) brokers: String,
    /// The clients' name in the brokers' logs and lists.
    pub(crate) client_id: String,
    pub(crate) names: Names,
    /// Whether nulls may be published to SAL's topics.
    pub(crate) sal_nulls: bool,
    /// Copies of each partition; `None` is the brokers' default.
    pub(crate) replication: Option<i32>,
    pub(crate) limits: InFlightLimits,
    /// The strongest guarantee that the option `acks` allows.
    pub(crate) guarantee: Guarantee,
    /// The schema registry, if payloads have schema numbers.
    pub(crate) registry: Option<RegistryOptions>,
    /// How long a fetch waits, and for how many bytes.
    pub(crate) pace: FetchPace,
    /// Whether consumers report the end of a log.
    tells_ends: bool,
    /// When a reader's consumer that stopped fetching is replaced.
    pub(crate) watchdog: WatchdogTimeouts,
    given: Vec<(String, String)>,
}

/// How often a consumer fetches.
///
/// librdkafka has no fetch sessions (KIP-227). A broker checks all partitions of a consumer when a
/// fetch arrives, when it is answered, and whenever one of them is written while the fetch waits. A
/// reader of thousands of partitions must therefore not fetch often in vain, and frequent records
/// must not be fetched one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchPace {
    /// A connection's first partitions: fetches wait so briefly that a partition opened meanwhile
    /// is fetched at once.
    Prompt,
    /// All others. Samples arrive as soon, except the first ones of a partition that was just
    /// opened: they wait for the fetch in flight.
    Patient,
    /// Partitions beyond those that are written at a regular rate: samples are collected for a
    /// moment.
    Busy,
}

impl FetchPace {
    /// The maximum number of partitions of a consumer. For each answer of a broker, librdkafka also
    /// searches its partitions in a list; with thousands it would do little else.
    pub(crate) fn most(self) -> usize {
        match self {
            Self::Prompt => 32,
            Self::Patient => 64,
            Self::Busy => 256,
        }
    }
}

/// The timeouts of a connection's watchdog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchdogTimeouts {
    /// How long a consumer may take to learn a partition's new end.
    pub(crate) fetch_silence: Duration,
    /// How long a woken reader has to poll.
    pub(crate) reader_poll: Duration,
}

impl Default for WatchdogTimeouts {
    fn default() -> Self {
        Self { fetch_silence: Duration::from_secs(10), reader_poll: Duration::from_secs(1) }
    }
}

/// The limits of records in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlightLimits {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Options {
    pub(crate) fn parse(opening: &Opening) -> Result<Self, ConnectError> {
        let url = &opening.url;
        let brokers = brokers(url)?;
        let own = |name: &str| OWN_OPTIONS.contains(&name) || REGISTRY_OPTIONS.contains(&name);
        let foreign = url.options().filter(|(name, _)| !own(name));
        let given: Vec<_> =
            foreign.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some((name, value)) =
            given.iter().find(|(name, _)| RESERVED_OPTIONS.contains(&&**name))
        {
            return Err(url.bad_option(name, value, "the transport sets it by itself"));
        }
        let options = Self {
            brokers,
            client_id: "heliograph".to_owned(),
            names: names(url)?,
            sal_nulls: sal_nulls(url)?,
            replication: url.number("replication")?,
            limits: limits(url)?,
            guarantee: guarantee(url)?,
            registry: RegistryOptions::parse(url)?,
            pace: FetchPace::Prompt,
            tells_ends: false,
            watchdog: WatchdogTimeouts::default(),
            given,
        };
        options.check(url)?;
        Ok(options)
    }

    /// Lets librdkafka check each option separately, so that the error names it.
    fn check(&self, url: &BusUrl) -> Result<(), ConnectError> {
        for (name, value) in &self.given {
            let mut alone = ClientConfig::new();
            alone.set(name, value);
            if let Err(error) = alone.create_native_config() {
                let reason = match error {
                    KafkaError::ClientConfig(_, reason, ..) => reason,
                    other => other.to_string(),
                };
                let own = [&OWN_OPTIONS[..], &REGISTRY_OPTIONS].concat().join(", ");
                let reason = format!(
                    "{reason}; the options are {own}, and those of librdkafka's documentation"
                );
                return Err(url.bad_option(name, value, &reason));
            }
        }
        Ok(())
    }

    /// The configuration that all clients of the connection share.
    fn client(&self, not: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Critical);
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", &self.client_id);
        // A broker that returns is found at once, not after ten seconds.
        config.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "500");
        config.set("socket.keepalive.enable", "true").set("socket.nagle.disable", "true");
        for (name, value) in self.given.iter().filter(|(name, _)| !not.contains(&&**name)) {
            config.set(name, value);
        }
        // Requesting a topic's metadata does not create it.
        config.set("allow.auto.create.topics", "false");
        config
    }

    /// The same for consumers that read stored records and do not wait for more.
    pub(crate) fn for_scans(&self) -> Self {
        Self { tells_ends: true, ..self.clone() }
    }

    /// The same for consumers of a pace.
    pub(crate) fn at(&self, pace: FetchPace) -> Self {
        Self { pace, ..self.clone() }
    }

    /// The same for the internal topics, whose records must be stored whatever the samples'
    /// guarantee.
    pub(crate) fn for_internal_topics(&self) -> Self {
        let mut options = Self { guarantee: Guarantee::Durable, ..self.clone() };
        options.given.retain(|(name, _)| !WEAKENING_OPTIONS.contains(&&**name));
        options
    }

    /// The same for samples of another bus, which are retried without end: dropping one would leave
    /// a hole between others. A batch is not larger than its topic admits, so that a record that is
    /// too large fails alone.
    pub(crate) fn for_forwarding(&self, batch_bytes: u32) -> Self {
        let mut options = self.clone();
        let timeouts = ["message.timeout.ms", "delivery.timeout.ms"];
        options.given.retain(|(name, _)| !timeouts.contains(&&**name));
        options.given.push((timeouts[0].to_owned(), "0".to_owned()));
        let given = options.given.iter().find(|(name, _)| name == BATCH_SIZE_OPTION);
        let given = given.and_then(|(_, value)| value.parse::<u32>().ok());
        options.given.retain(|(name, _)| name != BATCH_SIZE_OPTION);
        let bytes = given.map_or(batch_bytes, |given| given.min(batch_bytes));
        options.given.push((BATCH_SIZE_OPTION.to_owned(), bytes.to_string()));
        options
    }

    pub(crate) fn admin(&self) -> ClientConfig {
        self.client(&[&PRODUCER_OPTIONS[..], &CONSUMER_OPTIONS[..]].concat())
    }

    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.client(&CONSUMER_OPTIONS);
        let mut default = |name: &str, value: &str| {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        };
        default("linger.ms", "0");
        default(BATCH_SIZE_OPTION, "1000000");
        if self.guarantee == Guarantee::Durable {
            default("enable.idempotence", "true");
        }
        if !matches!(config.get("enable.idempotence"), Some("true" | "t" | "1")) {
            // A retried batch would arrive behind the next one, and readers drop it then.
            WEAKENING_OPTIONS.iter().filter(|name| name.starts_with("max")).for_each(|name| {
                config.remove(name);
            });
            config.set("max.in.flight", "1");
        }
        // The transport's own limit is below these.
        config.set("queue.buffering.max.messages", "0");
        config.set("queue.buffering.max.kbytes", "2147483647");
        config.set("message.max.bytes", MAX_RECORD_BYTES.to_string());
        config
    }

    /// How long a record may be in flight, as librdkafka counts it.
    pub(crate) fn message_timeout(&self) -> Duration {
        let given =
            self.given.iter().rfind(|(name, _)| DELIVERY_TIMEOUT_OPTIONS.contains(&&**name));
        match given.map_or(Ok(DEFAULT_DELIVERY_TIMEOUT_MS), |(_, millis)| millis.parse()) {
            // 0 is no limit; invalid values were rejected before.
            Ok(0) | Err(_) => Duration::MAX,
            Ok(millis) => Duration::from_millis(millis),
        }
    }

    /// A consumer that is assigned its partitions; it can commit for a group.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = self.client(&PRODUCER_OPTIONS);
        let given_ms = config.get("fetch.wait.max.ms").and_then(|wait| wait.parse().ok());
        let timeout_ms =
            SOCKET_TIMEOUT_MS.saturating_add(given_ms.unwrap_or(0)).min(MAX_SOCKET_TIMEOUT_MS);
        let mut default = |name: &str, value: &str| {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        };
        let (wait_ms, min_bytes) = match self.pace {
            _ if self.tells_ends => ("5", "1"),
            FetchPace::Prompt => ("50", "1"),
            FetchPace::Patient => ("500", "1"),
            FetchPace::Busy => ("100", "65536"),
        };
        default("fetch.wait.max.ms", wait_ms);
        default("fetch.min.bytes", min_bytes);
        default("socket.timeout.ms", &timeout_ms.to_string());
        default("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS);
        default("fetch.error.backoff.ms", "50");
        default("fetch.queue.backoff.ms", "5");
        // The memory for a lagging reader, per partition.
        default("queued.max.messages.kbytes", "4096");
        default("queued.min.messages", "10000");
        default("session.timeout.ms", "6000");
        default("heartbeat.interval.ms", "500");
        default("receive.message.max.bytes", "200000000");
        config.set("group.id", group);
        // If the log no longer has the position, the reader reports a gap.
        config.set("auto.offset.reset", "earliest");
        config.set("enable.partition.eof", if self.tells_ends { "true" } else { "false" });
        config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        config
    }
}

fn names(url: &BusUrl) -> Result<Names, ConnectError> {
    match url.option("naming") {
        None => {}
        Some("sal") => {
            if let Some(prefix) = url.option("prefix") {
                let reason = "naming=sal has its own: lsst.SUBNAME.";
                return Err(url.bad_option("prefix", prefix, reason));
            }
            let subname = url.option("subname").unwrap_or("sal");
            let naming = SalNaming::new(subname);
            let naming =
                naming.map_err(|error| url.bad_option("subname", subname, &error.to_string()))?;
            return Ok(Names::sal(naming));
        }
        Some(other) => return Err(url.bad_option("naming", other, "there is: sal")),
    }
    if let Some(subname) = url.option("subname") {
        return Err(url.bad_option("subname", subname, "it has no effect without naming=sal"));
    }
    let prefix = url.option("prefix").unwrap_or_default();
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !prefix.chars().all(legal) {
        let reason = "a prefix is made of letters, digits, '.', '_' and '-'";
        return Err(url.bad_option("prefix", prefix, reason));
    }
    Ok(Names::new(prefix))
}

fn sal_nulls(url: &BusUrl) -> Result<bool, ConnectError> {
    match (url.option("null"), url.option("naming")) {
        (None, _) => Ok(false),
        (Some("allow"), Some(_)) => Ok(true),
        (Some("allow"), None) => {
            Err(url.bad_option("null", "allow", "it has no effect without naming=sal"))
        }
        (Some(other), _) => Err(url.bad_option("null", other, "there is: allow")),
    }
}

fn brokers(url: &BusUrl) -> Result<String, ConnectError> {
    let rest = url.rest().strip_prefix("//").unwrap_or(url.rest()).trim_end_matches('/');
    let wrong =
        |reason: &str| ConnectError::Url { url: url.to_string(), reason: reason.to_owned() };
    if rest.is_empty() {
        return Err(wrong("kafka needs its brokers, kafka://host:9092,host:9092"));
    }
    for broker in rest.split(',') {
        let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(wrong("each broker is written host:port"));
        }
    }
    Ok(rest.to_owned())
}

fn limits(url: &BusUrl) -> Result<InFlightLimits, ConnectError> {
    let records = url.number("queue.buffering.max.messages")?.unwrap_or(100_000);
    let kbytes = url.number::<usize>("queue.buffering.max.kbytes")?.unwrap_or(64 << 10);
    Ok(InFlightLimits { records, bytes: kbytes.saturating_mul(1024) })
}

fn guarantee(url: &BusUrl) -> Result<Guarantee, ConnectError> {
    let acks = url.option("acks").or_else(|| url.option("request.required.acks"));
    match acks {
        None | Some("all" | "-1") => Ok(Guarantee::Durable),
        Some("1") => Ok(Guarantee::Stored),
        Some("0") => Ok(Guarantee::Accepted),
        Some(other) => Err(url.bad_option("acks", other, "all, 1 or 0")),
    }
}

/// The maximum time that opening anything waits for the brokers.
pub(crate) const BROKER_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn parse(url: &str) -> Result<Options, ConnectError> {
        let clock = Arc::new(helio_bus::SystemClock::new());
        Options::parse(&Opening { url: url.parse()?, clock })
    }

    #[test]
    fn options_of_librdkafka_go_where_they_belong() {
        let options =
            parse("kafka://a:1,b:2?acks=1&prefix=x.&replication=3&fetch.min.bytes=7").unwrap();
        assert_eq!(options.brokers, "a:1,b:2");
        assert_eq!(
            (options.names.internal("t"), options.replication),
            ("x._helio.t".into(), Some(3))
        );
        assert_eq!(options.guarantee, Guarantee::Stored);
        let (producer, consumer) = (options.producer(), options.consumer("g"));
        assert_eq!(producer.get("acks"), Some("1"));
        assert_eq!(producer.get("max.in.flight"), Some("1"));
        assert_eq!(options.for_internal_topics().producer().get("acks"), None);
        assert_eq!(
            options.for_internal_topics().producer().get("enable.idempotence"),
            Some("true")
        );
        assert_eq!(producer.get("fetch.min.bytes"), None);
        assert_eq!(consumer.get("fetch.min.bytes"), Some("7"));
        assert_eq!(consumer.get("acks"), None);
        assert_eq!(
            parse("kafka://a:1").unwrap().producer().get("enable.idempotence"),
            Some("true")
        );
    }

    #[test]
    fn consumers_notice_a_lost_connection_soon_and_the_url_wins() {
        let [timeout, refresh] = ["socket.timeout.ms", "topic.metadata.refresh.interval.ms"];
        let consumer = |url: &str| parse(url).unwrap().consumer("g");
        let plain = consumer("kafka://a:1");
        assert_eq!((plain.get(timeout), plain.get(refresh)), (Some("10000"), Some("30000")));
        assert_eq!(parse("kafka://a:1").unwrap().producer().get(timeout), None);
        let waits = consumer("kafka://a:1?fetch.wait.max.ms=15000");
        assert_eq!(waits.get(timeout), Some("25000"), "answers come behind a fetch that waits");
        let longest = consumer("kafka://a:1?fetch.wait.max.ms=300000");
        longest.create_native_config().unwrap();
        let given = format!("kafka://a:1?{timeout}=60000&{refresh}=300000");
        let given = consumer(&given);
        assert_eq!((given.get(timeout), given.get(refresh)), (Some("60000"), Some("300000")));
    }

    #[test]
    fn without_idempotence_nothing_overtakes() {
        let url = "kafka://a:1?enable.idempotence=false&max.in.flight.requests.per.connection=9";
        let producer = parse(url).unwrap().producer();
        assert_eq!(producer.get("max.in.flight"), Some("1"));
        assert_eq!(producer.get("max.in.flight.requests.per.connection"), None);
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let cases = [
            ("kafka:", "brokers"),
            ("kafka://host", "host:port"),
            ("kafka://host:99999", "host:port"),
            ("kafka://a:1?nonsense=1", "nonsense"),
            ("kafka://a:1?linger.ms=soon", "linger.ms"),
            ("kafka://a:1?acks=2", "acks"),
            ("kafka://a:1?group.id=g", "by itself"),
            ("kafka://a:1?prefix=a/b", "prefix"),
            ("kafka://a:1?replication=many", "replication"),
            ("kafka://a:1?naming=dds", "there is: sal"),
            ("kafka://a:1?naming=sal&subname=a-b", "sub-name"),
            ("kafka://a:1?naming=sal&prefix=x", "lsst.SUBNAME."),
            ("kafka://a:1?subname=sal", "without naming"),
            ("kafka://a:1?null=allow", "without naming"),
            ("kafka://a:1?naming=sal&null=yes", "there is: allow"),
        ];
        for (url, named) in cases {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(named), "{url}: {error}");
        }
    }
}
