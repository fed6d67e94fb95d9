//! Users' topics of results: what they have, and what is added.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use helio_bus::{
    Bus, Event, Evolution, Headers, Lagging, Message, PendingBatch, Publisher, Start, Subscribe,
    TopicSpec, TransportError,
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

/// A result to be published.
pub(crate) struct Outgoing {
    pub(crate) visit: i64,
    pub(crate) alert: i64,
    pub(crate) headers: Headers,
    pub(crate) encoded: Encoded,
}

/// A user's topic of results, of which this process is the only publisher.
pub(crate) struct Target {
    bus: Bus,
    name: String,
    bytes: Publisher,
    by_schema: HashMap<SchemaId, Publisher>,
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
        let (bus, by_schema) = (bus.clone(), HashMap::new());
        let mut target = Self { bus, name, bytes, by_schema, has, first, end: 0 };
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

    /// Notes results as there, and publishes them in order.
    pub(crate) fn publish(
        &mut self,
        results: &[Outgoing],
    ) -> Result<Vec<PendingBatch>, ServiceError> {
        // At once: a failure ends this publisher, and the next one reads the topic. Some may be
        // published again behind the others, but none lies before the present end.
        for result in results {
            self.note(result.visit, result.alert, self.end);
        }
        self.end += results.len() as u64;
        self.send(results)
    }

    /// Publishes results that are noted.
    pub(crate) fn send(&mut self, results: &[Outgoing]) -> Result<Vec<PendingBatch>, ServiceError> {
        let mut pending = Vec::new();
        let id = |result: &Outgoing| {
            result.encoded.schema.as_ref().map_or(SchemaId::BYTES, |schema| schema.id())
        };
        for run in results.chunk_by(|a, b| id(a) == id(b)) {
            let publisher = self.publisher(run[0].encoded.schema.as_ref())?;
            let messages: Vec<_> = run
                .iter()
                .map(|result| {
                    let message = Message::new(&result.encoded.payload);
                    message.key(&result.encoded.key).headers(result.headers.as_ref())
                })
                .collect();
            pending.push(publisher.publish_batch(&messages));
        }
        Ok(pending)
    }

    fn publisher(&mut self, schema: Option<&Arc<Schema>>) -> Result<Publisher, ServiceError> {
        let Some(schema) = schema else { return Ok(self.bytes.clone()) };
        if let Some(publisher) = self.by_schema.get(&schema.id()) {
            return Ok(publisher.clone());
        }
        // Filters of one user have different columns; each result has its schema.
        let spec = TopicSpec::new(&self.name)?.schema(&**schema).evolution(Evolution::None);
        let publisher = self.bus.topic(spec)?.publisher()?;
        self.by_schema.insert(schema.id(), publisher.clone());
        Ok(publisher)
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
