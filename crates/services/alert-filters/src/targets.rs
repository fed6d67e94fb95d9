//! Users' topics of results: what they have, and what is added.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use helio_bus::{
    Bus, Event, Evolution, Headers, Lagging, Message, PendingBatch, Publisher, Start, Subscribe,
    TopicError, TopicSpec, TransportError, notify,
};
use helio_core::{Schema, SchemaId};

use crate::decisions::BUS_TIMEOUT;
use crate::error::ServiceError;
use crate::names::Topics;
use crate::options::RESULTS_BYTES;
use crate::result_topic::open_results;
use crate::results::Encoded;
use crate::stream::number;

/// The header with the visit.
pub const VISIT_HEADER: &str = "visit";
/// The header with the alert's identifier.
pub const ALERT_HEADER: &str = "alert";
/// The header with the filters that the alert matches, and their versions: `snr@3,rising@1`.
pub const FILTERS_HEADER: &str = "filters";
/// The header with the place among the user's alerts of the visit, from 1, of ranked ones.
pub const RANK_HEADER: &str = "rank";
/// The headers with the stages' times, TAI nanoseconds since 1970: the shutter closed, the alert
/// was published, a worker's decision was written, the visit was decided.
pub const STAGE_HEADERS: [&str; 4] = ["shutter-ns", "published-ns", "filtered-ns", "decided-ns"];

/// How long a refusal of a schema is believed; then the bus is asked again.
const REFUSAL_TTL: Duration = Duration::from_secs(10);
/// Refused schemas of a user that are remembered.
const MAX_REFUSALS: usize = 256;

/// A result to be published.
pub(crate) struct Outgoing {
    pub(crate) visit: i64,
    pub(crate) alert: i64,
    /// The labels of the filters that chose it.
    pub(crate) filters: BTreeSet<String>,
    pub(crate) headers: Headers,
    pub(crate) encoded: Encoded,
}

/// A result that the bus does not accept, and why.
pub(crate) type Refused = (Outgoing, String);

/// Results on their way.
pub(crate) struct Sent {
    pub(crate) pending: Vec<PendingBatch>,
    pub(crate) accepted: Vec<Outgoing>,
    pub(crate) refused: Vec<Refused>,
}

/// Why a schema was refused, and when.
struct Refusal {
    reason: String,
    at: Duration,
}

/// A user's topic of results, of which this process is the only publisher.
pub(crate) struct Target {
    bus: Bus,
    name: String,
    bytes: Publisher,
    by_schema: HashMap<SchemaId, Publisher>,
    refusals: HashMap<SchemaId, Refusal>,
    /// The visits and alerts that it has, of visits that are not finished.
    has: BTreeSet<(i64, i64)>,
    /// The first result of each of these visits.
    first: BTreeMap<i64, u64>,
    end: u64,
}

impl Target {
    /// Opens a user's topic, or creates it, and reads what it has from an offset on.
    pub(crate) fn open(
        bus: &Bus,
        topics: &Topics,
        user: &str,
        from: Option<u64>,
        max_bytes: u64,
    ) -> Result<Self, ServiceError> {
        let name = topics.results(user);
        let topic = open_results(bus, &name, max_bytes)?;
        let mut retention = topic.qos().retention.clone();
        if retention.bytes.replace(max_bytes) == Some(RESULTS_BYTES) && max_bytes != RESULTS_BYTES {
            // The activation created it, with the default.
            match bus.alter_topic(topic.name(), &retention) {
                Ok(_) | Err(TransportError::Unsupported { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // From here on nobody else adds results.
        let bytes = topic.publisher()?;
        let (has, first) = (BTreeSet::new(), BTreeMap::new());
        let (bus, by_schema, refusals) = (bus.clone(), HashMap::new(), HashMap::new());
        let mut target = Self { bus, name, bytes, by_schema, refusals, has, first, end: 0 };
        let partition = topic.partitions()?.first().copied();
        let (stored, end) = partition.map_or((0, 0), |partition| (partition.first, partition.end));
        target.end = end;
        let offset = from.unwrap_or(0).max(stored);
        if offset < end {
            let start = Start::Offset { partition: 0, offset };
            let options = Subscribe::from(start).lagging(Lagging::Lossless).as_written();
            let mut samples = topic.subscribe(options.pinned(64 << 20))?;
            samples.set_fence()?;
            while let Some(event) = samples.next_stored(BUS_TIMEOUT)? {
                let Event::Sample(sample) = event else { continue };
                let headers = sample.headers.as_ref();
                let of = (number(headers, VISIT_HEADER), number(headers, ALERT_HEADER));
                if let (Some(visit), Some(alert)) = of {
                    target.note(visit, alert, sample.offset);
                }
            }
        }
        Ok(target)
    }

    fn note(&mut self, visit: i64, alert: i64, offset: u64) {
        self.has.insert((visit, alert));
        self.first.entry(visit).or_insert(offset);
    }

    pub(crate) fn has(&self, visit: i64, alert: i64) -> bool {
        self.has.contains(&(visit, alert))
    }

    /// Notes results as there, and publishes them in order; not those that the bus refuses.
    pub(crate) fn publish(&mut self, results: Vec<Outgoing>) -> Result<Sent, ServiceError> {
        let (accepted, refused) = self.admit(results)?;
        // At once: a failure ends this publisher, and the next one reads the topic. Some may be
        // published again behind the others, but none lies before the present end.
        for result in &accepted {
            self.note(result.visit, result.alert, self.end);
        }
        self.end += accepted.len() as u64;
        let pending = self.send(&accepted);
        Ok(Sent { pending, accepted, refused })
    }

    /// Opens the results' publishers. A refused schema stops its own results only: neither the
    /// user's others nor other users' wait for it.
    pub(crate) fn admit(
        &mut self,
        results: Vec<Outgoing>,
    ) -> Result<(Vec<Outgoing>, Vec<Refused>), ServiceError> {
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for result in results {
            match self.open_publisher(result.encoded.schema.as_ref())? {
                Ok(()) => accepted.push(result),
                Err(reason) => refused.push((result, reason)),
            }
        }
        Ok((accepted, refused))
    }

    /// Takes back notes of results that are never published: the others lie so much before.
    pub(crate) fn withdraw(&mut self, results: usize) {
        let fewer = |offset: &mut u64| *offset = offset.saturating_sub(results as u64);
        fewer(&mut self.end);
        self.first.values_mut().for_each(fewer);
    }

    /// Publishes admitted results.
    pub(crate) fn send(&mut self, results: &[Outgoing]) -> Vec<PendingBatch> {
        let mut pending = Vec::new();
        let id = |result: &Outgoing| result.encoded.schema.as_ref().map(|schema| schema.id());
        for run in results.chunk_by(|a, b| id(a) == id(b)) {
            let publisher = match id(&run[0]) {
                Some(id) => &self.by_schema[&id],
                None => &self.bytes,
            };
            let messages: Vec<_> = run
                .iter()
                .map(|result| {
                    let message = Message::new(&result.encoded.payload);
                    message.key(&result.encoded.key).headers(result.headers.as_ref())
                })
                .collect();
            pending.push(publisher.publish_batch(&messages));
        }
        pending
    }

    /// Opens the publisher of a schema, or returns why it is refused.
    fn open_publisher(
        &mut self,
        schema: Option<&Arc<Schema>>,
    ) -> Result<Result<(), String>, ServiceError> {
        let Some(schema) = schema.filter(|schema| !self.by_schema.contains_key(&schema.id()))
        else {
            return Ok(Ok(()));
        };
        let (id, now) = (schema.id(), self.bus.clock().monotonic());
        let is_fresh = |refusal: &&Refusal| now < refusal.at + REFUSAL_TTL;
        if let Some(refusal) = self.refusals.get(&id).filter(is_fresh) {
            return Ok(Err(refusal.reason.clone()));
        }
        // Filters of one user have different columns; each result has its schema.
        let spec = TopicSpec::new(&self.name)?.schema(&**schema).evolution(Evolution::None);
        match self.bus.topic(spec).and_then(|topic| topic.publisher()) {
            Ok(publisher) => {
                self.by_schema.insert(id, publisher);
                if self.refusals.remove(&id).is_some() {
                    notify(&format!("{}: the schema {id} is accepted now", self.name));
                }
                Ok(Ok(()))
            }
            Err(error) => match refusal(&self.name, &error) {
                Some(reason) => Ok(Err(self.refuse(id, reason, now))),
                None => Err(error.into()),
            },
        }
    }

    fn refuse(&mut self, id: SchemaId, reason: String, at: Duration) -> String {
        if self.refusals.len() >= MAX_REFUSALS {
            self.refusals.clear();
        }
        let known = self.refusals.insert(id, Refusal { reason: reason.clone(), at });
        if known.is_none_or(|known| known.reason != reason) {
            notify(&format!("results are not published: {reason}"));
        }
        reason
    }

    /// Forgets a visit that is finished.
    pub(crate) fn finish(&mut self, visit: i64) {
        self.first.remove(&visit);
        let of_visit: Vec<_> =
            self.has.range((visit, i64::MIN)..=(visit, i64::MAX)).copied().collect();
        of_visit.iter().for_each(|of| _ = self.has.remove(of));
    }

    /// The offset at or behind which results of unfinished visits lie.
    pub(crate) fn resume_offset(&self) -> u64 {
        self.first.values().copied().fold(self.end, u64::min)
    }
}

/// Why a schema of a topic of results is refused; `None` for failures of the engine, which pass.
fn refusal(topic: &str, error: &TopicError) -> Option<String> {
    match error {
        TopicError::Incompatible { schema, reason, .. } => Some(format!(
            "the registry refuses the schema {schema} of the topic {topic}: {reason}; set the \
             subject's compatibility to NONE (helio schema compatibility), or choose the format \
             json or fink"
        )),
        TopicError::Schema { .. } | TopicError::Invalid { .. } | TopicError::Refused(_) => {
            Some(error.to_string())
        }
        _ => None,
    }
}
