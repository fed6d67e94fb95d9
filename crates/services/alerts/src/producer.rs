//! The producer of a detector: a visit's alerts to one partition, and their manifest.
//!
//! Constraints. Publishing is at least once: an alert whose outcome is unknown is published again,
//! and readers count it once. The time of a visit's publishing is bounded
//! ([`ProducerOptions::retry_for`]); what the bus does not accept by then is named, and the visit's
//! packets are spilled to a file.
//!
//! Format. A spill file is an Avro container with all packets of the detector and visit, which any
//! Avro program reads.
//!
//! Operation. Stamps go before the metadata that they belong to, shared parts before both, the
//! manifest last. A batch has at most [`BATCH_BYTES`]; only samples that the bus did not accept are
//! published again. Metadata carry the place of their stamps, and the times of stages.
//!
//! A topic takes any schema, so that a survey changes it without a new topic: readers find that of
//! each packet.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use helio_bus::{
    Bus, Clock, Evolution, MAX_BATCH_BYTES, Message, PublishError, Publisher, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::codec::{Codec, EncodeError};
use helio_core::container::{Compression, Container, ContainerError, Writer};
use helio_core::schema::Schema;
use helio_core::{Headers, SchemaId, Tai};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::{Ccd, Layout};
use crate::stamps::{Link, MAX_LINKED_PARTS, Packing, PartHash, SharedParts, pack, pack_shared};
use crate::topics::{
    Keep, LINK_HEADER, PRODUCED_HEADER, Part, SHUTTER_HEADER, open_or_create, packets_qos,
    schema_of,
};
use crate::visit::{Control, Digest, Extent, Manifest, Opening, payload_hash};

pub use crate::topics::{DETECTOR_HEADER, VISIT_HEADER, control_topic};

/// The most bytes of samples in flight: a hundred packets, enough to hide the bus's latency.
pub const BATCH_BYTES: usize = MAX_BATCH_BYTES;
/// The time between two attempts to publish what was not accepted.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Where stamps are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopicLayout {
    /// In the packets, as foreign clients expect.
    #[default]
    Inline,
    /// In a topic of their own.
    Split(Packing),
}

/// Options of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerOptions {
    /// Where stamps are.
    pub layout: TopicLayout,
    /// The number of partitions of the topics of alerts and stamps, if this producer creates them.
    pub partitions: u32,
    /// How long packets and stamps are stored, if this producer creates the topics.
    pub keep: Keep,
    /// How long a visit's alerts are tried to be published.
    pub retry_for: Duration,
    /// The folder of spill files; without one, what fails is only named.
    pub spill: Option<PathBuf>,
}

impl Default for ProducerOptions {
    /// Inline, 16 partitions, 7 days, 30 s, no spill files.
    fn default() -> Self {
        let (layout, spill, keep) = (TopicLayout::Inline, None, Keep::default());
        Self { layout, partitions: 16, keep, retry_for: Duration::from_secs(30), spill }
    }
}

/// Why a visit's alerts cannot be published.
#[derive(Debug, Error)]
pub enum ProducerError {
    /// A topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A packet is no datum of the schema.
    #[error("packet {index}: {cause}")]
    Packet {
        /// The packet's place in the list.
        index: usize,
        /// The cause.
        cause: String,
    },
    /// The schema of the packets has no identifier.
    #[error("the schema has no field diaSourceId or candid, so its alerts cannot be told apart")]
    NoIdentifier,
    /// A control record cannot be encoded.
    #[error("the control record: {0}")]
    Encode(#[from] EncodeError),
    /// The bus did not accept a control record.
    #[error("the bus did not accept the record: {0}")]
    NotAccepted(String),
    /// The spill file cannot be written or read.
    #[error("the spill file {path}: {error}")]
    Spill {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The spill file has packets of another schema than the producer's.
    #[error(
        "the spill file {path} has packets of the schema {stored}, not {expected}: replay it by a \
         producer with its schema"
    )]
    SpillSchema {
        /// The file.
        path: PathBuf,
        /// The schema of its packets.
        stored: SchemaId,
        /// The producer's.
        expected: SchemaId,
    },
    /// The spill file is damaged.
    #[error("the spill file {path}: {error}")]
    SpillFormat {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: ContainerError,
    },
}

/// What became of a visit's alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CcdOutcome {
    /// What was announced: all alerts, those that failed included.
    pub manifest: Manifest,
    /// Alerts that the bus did not accept, or of which it does not say so.
    pub failed: Vec<i64>,
    /// Whether the manifest was published.
    pub is_announced: bool,
    /// The last cause of a failure.
    pub cause: Option<String>,
    /// The file with all packets, if anything failed.
    pub spilled: Option<PathBuf>,
    /// Why that file could not be written: the failed alerts are nowhere then.
    pub spill_error: Option<String>,
}

impl CcdOutcome {
    /// Whether all is published.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.failed.is_empty() && self.is_announced
    }
}

/// Publishes the alerts of a detector.
pub struct CcdProducer {
    layout: Layout,
    options: ProducerOptions,
    clock: Arc<dyn Clock>,
    topic: Topic,
    alerts: Publisher,
    stamps: Option<Publisher>,
    control: Publisher,
    control_codec: Codec,
    /// The last visit of which the time of shutter close is known.
    shutter: Mutex<Option<(i64, Tai)>>,
}

/// A sample to be published.
#[derive(Debug)]
struct Outgoing<'a> {
    /// The alert; none for a shared part or a control record.
    alert: Option<i64>,
    key: Vec<u8>,
    payload: Cow<'a, [u8]>,
    headers: Headers,
    /// The shared part that this is, or the parts to which it refers.
    parts: Vec<PartHash>,
    /// Its offset, once it is accepted.
    at: Option<u64>,
}

impl<'a> Outgoing<'a> {
    fn new(alert: Option<i64>, key: String, payload: impl Into<Cow<'a, [u8]>>) -> Self {
        let (key, payload) = (key.into_bytes(), payload.into());
        Self { alert, key, payload, headers: Headers::default(), parts: Vec::new(), at: None }
    }

    fn alert(id: i64, payload: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::new(Some(id), id.to_string(), payload)
    }

    fn message(&self, partition: u32) -> Message<'_> {
        let message = Message::new(&self.payload).key(&self.key).partition(partition);
        message.headers(self.headers.as_ref())
    }
}

/// The samples of a visit.
#[derive(Debug, Default)]
struct Prepared<'a> {
    /// Of the topic of stamps: shared parts first.
    stamps: Vec<Outgoing<'a>>,
    alerts: Vec<Outgoing<'a>>,
    digest: Digest,
    stamps_digest: Option<Digest>,
}

/// What was not accepted.
#[derive(Debug, Default)]
struct Failures {
    alerts: HashSet<i64>,
    /// Shared parts and control records.
    others: usize,
    parts: HashSet<PartHash>,
    /// The last cause; also of an attempt that was repeated.
    cause: Option<PublishError>,
}

impl CcdProducer {
    /// Opens the topics of alerts, or creates them: `topic`, `topic/control`, and `topic/stamps` if
    /// stamps are split. The topic may have packets of other schemas.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn open(
        bus: &Bus,
        topic: &str,
        schema: &Schema,
        options: ProducerOptions,
    ) -> Result<Self, ProducerError> {
        let spec = TopicSpec::of(Part::Alerts.name(topic)?);
        // Readers find the schema of each packet, so that none is incompatible.
        let spec = spec.schema(schema).evolution(Evolution::None);
        let alerts = open_or_create(bus, spec, || packets_qos(options.partitions, options.keep))?;
        let stamps = match options.layout {
            TopicLayout::Inline => None,
            TopicLayout::Split(_) => {
                let spec = TopicSpec::of(Part::Stamps.name(topic)?);
                // An alert and its stamps are in partitions of one number.
                let partitions = alerts.qos().partitions;
                let qos = || packets_qos(partitions, options.keep);
                Some(open_or_create(bus, spec, qos)?.publisher()?)
            }
        };
        Ok(Self {
            layout: Layout::new(schema),
            options,
            clock: Arc::clone(bus.clock()),
            alerts: alerts.publisher()?,
            topic: alerts,
            stamps,
            control: control_topic(bus, topic)?.publisher()?,
            control_codec: Codec::new(&schema_of::<Control>()),
            shutter: Mutex::new(None),
        })
    }

    /// Publishes the opening record of a visit, and notes the time of shutter close. If the record
    /// has no [starts](Opening::starts), the present ends of the partitions are used.
    ///
    /// # Errors
    /// [`ProducerError::NotAccepted`] with the bus's cause.
    pub fn open_visit(&self, mut opening: Opening) -> Result<(), ProducerError> {
        if opening.starts.is_empty() {
            let partitions = self.topic.partitions()?;
            let ends = partitions.iter().map(|p| i64::try_from(p.end).unwrap_or(i64::MAX));
            opening.starts = ends.collect();
        }
        self.set_shutter_close(opening.visit, Tai::from_nanos(opening.shutter_close_ns));
        let announced = self.announce(&Control::Opening(opening), self.deadline())?;
        announced.map_err(|error| ProducerError::NotAccepted(error.to_string()))
    }

    /// Notes when the shutter closed: alerts of the visit carry the time.
    pub fn set_shutter_close(&self, visit: i64, time: Tai) {
        *self.shutter.lock().unwrap_or_else(PoisonError::into_inner) = Some((visit, time));
    }

    /// Publishes a visit's packets, datums without frames, and then the manifest.
    ///
    /// # Errors
    /// [`ProducerError`] if a packet is invalid or repeats an identifier, before anything is
    /// published. What the bus does not accept is in the outcome.
    pub fn publish<P: AsRef<[u8]>>(
        &self,
        ccd: Ccd,
        packets: &[P],
    ) -> Result<CcdOutcome, ProducerError> {
        let (deadline, headers) = (self.deadline(), self.headers(ccd));
        let mut prepared = self.prepare(packets)?;
        let partition = ccd.detector.unsigned_abs() % self.topic.qos().partitions;
        let mut failures = Failures::default();
        if let Some(stamps) = &self.stamps {
            prepared.stamps.iter_mut().for_each(|sample| sample.headers = headers.clone());
            self.publish_all(stamps, partition, &mut prepared.stamps, deadline, &mut failures);
            failures.add_dependent(&prepared.stamps);
        }
        prepared.set_headers(&headers, self.stamps.is_some());
        let has_stamps = failures.cause.is_none();
        self.publish_all(&self.alerts, partition, &mut prepared.alerts, deadline, &mut failures);
        let has_failed = !has_stamps || failures.cause.is_some();
        let manifest = Manifest {
            visit: ccd.visit,
            detector: ccd.detector,
            producer: self.alerts.producer().name.to_string(),
            alerts: prepared.digest,
            stamps: prepared.stamps_digest,
            published_ns: self.clock.now().nanos(),
            extent: if has_failed { None } else { extent(partition, &prepared.alerts) },
        };
        let announced = self.announce(&Control::Manifest(manifest.clone()), deadline)?;
        let mut failed: Vec<_> = failures.alerts.into_iter().collect();
        failed.sort_unstable();
        let is_announced = announced.is_ok();
        let is_whole = failed.is_empty() && failures.others == 0 && is_announced;
        let spilled = match &self.options.spill {
            Some(folder) if !is_whole => Some(self.spill(folder, ccd, packets)),
            _ => None,
        };
        let (spilled, spill_error) = match spilled.transpose() {
            Ok(spilled) => (spilled, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let cause = announced.err().or(failures.cause).filter(|_| !is_whole);
        let cause = cause.map(|error| error.to_string());
        Ok(CcdOutcome { manifest, failed, is_announced, cause, spilled, spill_error })
    }

    /// Publishes the packets of a spill file and removes it, once all is published. Alerts that
    /// were published before count once.
    ///
    /// # Errors
    /// [`ProducerError`] if the file cannot be read or removed, is damaged, or has packets of
    /// another schema.
    pub fn replay(&self, file: &Path) -> Result<CcdOutcome, ProducerError> {
        let spill = |error| ProducerError::Spill { path: file.to_owned(), error };
        let damaged = |error| ProducerError::SpillFormat { path: file.to_owned(), error };
        let ccd = ccd_of(file).ok_or_else(|| {
            spill(io::Error::other("its name is not like visit-1-detector-2.avro"))
        })?;
        let bytes = fs::read(file).map_err(spill)?;
        let mut container = Container::open(&bytes).map_err(damaged)?;
        let (stored, expected) = (container.schema().id(), self.layout.schema().id());
        if stored != expected {
            return Err(ProducerError::SpillSchema { path: file.to_owned(), stored, expected });
        }
        let mut packets = Vec::new();
        while let Some(datum) = container.next_datum().map_err(damaged)? {
            packets.push(datum.to_vec());
        }
        let outcome = self.publish(ccd, &packets)?;
        if outcome.is_published() {
            fs::remove_file(file).map_err(spill)?;
        }
        Ok(outcome)
    }

    fn deadline(&self) -> Duration {
        self.clock.monotonic() + self.options.retry_for
    }

    /// The headers of all samples of a detector and visit.
    fn headers(&self, ccd: Ccd) -> Headers {
        let shutter = *self.shutter.lock().unwrap_or_else(PoisonError::into_inner);
        let shutter = shutter.filter(|(visit, _)| *visit == ccd.visit);
        let numbers = [
            (VISIT_HEADER, Some(ccd.visit)),
            (DETECTOR_HEADER, Some(ccd.detector.into())),
            (PRODUCED_HEADER, Some(self.clock.now().nanos())),
            (SHUTTER_HEADER, shutter.map(|(_, time)| time.nanos())),
        ];
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        numbers.fold(Headers::new(), |headers, (name, number)| {
            headers.with(name, number.to_string()).expect("a few short headers, each once")
        })
    }

    /// Checks the packets, and makes the samples of them.
    fn prepare<'p, P: AsRef<[u8]>>(&self, packets: &'p [P]) -> Result<Prepared<'p>, ProducerError> {
        let mut prepared = Prepared::default();
        let mut split = Vec::with_capacity(packets.len());
        let mut places = HashMap::with_capacity(packets.len());
        for (index, packet) in packets.iter().enumerate() {
            let datum = packet.as_ref();
            let wrong = |cause: String| ProducerError::Packet { index, cause };
            self.layout.codec().check(datum).map_err(|error| wrong(error.to_string()))?;
            let id = self.layout.alert_id(datum).map_err(|error| wrong(error.to_string()))?;
            let id = id.ok_or(ProducerError::NoIdentifier)?;
            // Readers count an identifier once, so that no reader would match the manifest.
            if let Some(former) = places.insert(id, index) {
                return Err(wrong(format!("repeats the identifier {id} of packet {former}")));
            }
            let alert = if self.stamps.is_some() {
                let mut metadata = Vec::new();
                let stamps = self.layout.split(datum, &mut metadata);
                split.push((id, stamps.map_err(|error| wrong(error.to_string()))?));
                Outgoing::alert(id, metadata)
            } else {
                Outgoing::alert(id, datum)
            };
            prepared.digest.add(id, payload_hash(&alert.payload));
            prepared.alerts.push(alert);
        }
        if let TopicLayout::Split(packing) = self.options.layout {
            prepare_stamps(&split, packing, &mut prepared)?;
        }
        Ok(prepared)
    }

    /// Publishes samples in their order, by batches.
    fn publish_all(
        &self,
        publisher: &Publisher,
        partition: u32,
        samples: &mut [Outgoing<'_>],
        deadline: Duration,
        failures: &mut Failures,
    ) {
        let mut rest = samples;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at_mut(batch_len(rest));
            rest = after;
            // An attempt may wait for the engine; one is enough behind the deadline.
            if failures.cause.is_some() && self.clock.monotonic() >= deadline {
                batch.iter().for_each(|sample| failures.add(sample, PublishError::Skipped));
                continue;
            }
            self.deliver(publisher, partition, batch, deadline, failures);
        }
    }

    /// Publishes a batch until all is accepted or the deadline is over.
    fn deliver(
        &self,
        publisher: &Publisher,
        partition: u32,
        batch: &mut [Outgoing<'_>],
        deadline: Duration,
        failures: &mut Failures,
    ) {
        // Metadata whose stamps failed wait for the replay, so that stamps are always first.
        let failed =
            |sample: &Outgoing<'_>| sample.alert.is_some_and(|id| failures.alerts.contains(&id));
        let mut left: Vec<_> = (0..batch.len()).filter(|index| !failed(&batch[*index])).collect();
        loop {
            let messages: Vec<_> = left.iter().map(|at| batch[*at].message(partition)).collect();
            let time = deadline.saturating_sub(self.clock.monotonic());
            let outcomes = publisher.publish_batch(&messages).wait_each_timeout(time);
            let mut again = Vec::new();
            for (index, outcome) in left.into_iter().zip(outcomes) {
                match outcome {
                    Ok(receipt) => batch[index].at = receipt.offset,
                    Err(error) if is_final(&error) => failures.add(&batch[index], error),
                    Err(error) => again.push((index, error)),
                }
            }
            if again.is_empty() {
                return;
            }
            let is_over = self.clock.monotonic() >= deadline;
            left = Vec::with_capacity(again.len());
            for (index, error) in again {
                match is_over {
                    true => failures.add(&batch[index], error),
                    false => failures.note(error),
                }
                left.push(index);
            }
            if is_over {
                return;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Publishes a control record; the inner error is the bus's.
    fn announce(
        &self,
        record: &Control,
        deadline: Duration,
    ) -> Result<Result<(), PublishError>, ProducerError> {
        let mut payload = Vec::new();
        self.control_codec.serialize(record, &mut payload)?;
        let mut sample = [Outgoing::new(None, record.visit().to_string(), payload)];
        let mut failures = Failures::default();
        self.deliver(&self.control, 0, &mut sample, deadline, &mut failures);
        let failed = failures.cause.filter(|_| failures.others > 0);
        Ok(failed.map_or(Ok(()), Err))
    }

    /// Writes all packets of a visit to a file, durably.
    fn spill<P: AsRef<[u8]>>(
        &self,
        folder: &Path,
        ccd: Ccd,
        packets: &[P],
    ) -> Result<PathBuf, ProducerError> {
        let path = folder.join(format!("visit-{}-detector-{}.avro", ccd.visit, ccd.detector));
        // Any bytes will do as marker between blocks that the packets do not have by chance.
        let sync = xxh3_128(path.as_os_str().as_encoded_bytes()).to_le_bytes();
        let mut writer = Writer::new(self.layout.schema(), Compression::Null, sync);
        packets.iter().for_each(|packet| writer.append(packet.as_ref()));
        let written = write_durably(folder, &path, &writer.finish());
        written.map_err(|error| ProducerError::Spill { path: path.clone(), error })?;
        Ok(path)
    }
}

impl Failures {
    fn add(&mut self, sample: &Outgoing<'_>, cause: PublishError) {
        match sample.alert {
            Some(id) => _ = self.alerts.insert(id),
            None => {
                self.others += 1;
                self.parts.extend(&sample.parts);
            }
        }
        self.note(cause);
    }

    /// Counts alerts whose stamps refer to a part that failed.
    fn add_dependent(&mut self, samples: &[Outgoing<'_>]) {
        let failed =
            |sample: &&Outgoing<'_>| sample.parts.iter().any(|part| self.parts.contains(part));
        let alerts: Vec<_> = samples.iter().filter(failed).filter_map(|one| one.alert).collect();
        self.alerts.extend(alerts);
    }

    /// Notes a cause; that samples were skipped is none.
    fn note(&mut self, cause: PublishError) {
        if self.cause.is_none() || !matches!(cause, PublishError::Skipped) {
            self.cause = Some(cause);
        }
    }
}

/// Whether no further attempt can succeed, so that the others must not wait for it.
fn is_final(error: &PublishError) -> bool {
    use PublishError::{Encode, NoPartition, Transport};
    let is_refused = |error: &TransportError| {
        matches!(error, TransportError::TooLarge { .. } | TransportError::Unsupported { .. })
    };
    match error {
        Encode(_) | NoPartition { .. } => true,
        Transport(error) => is_refused(error),
        _ => false,
    }
}

impl Prepared<'_> {
    /// Sets the headers of alerts, with the place of their stamps.
    fn set_headers(&mut self, headers: &Headers, are_split: bool) {
        if !are_split {
            return self.alerts.iter_mut().for_each(|alert| alert.headers = headers.clone());
        }
        let published = self.stamps.iter().filter_map(|sample| Some((sample, sample.at?)));
        let parts = published.clone().filter(|(sample, _)| sample.alert.is_none());
        let parts: HashMap<_, _> = parts
            .flat_map(|(sample, at)| sample.parts.iter().map(move |hash| (*hash, at)))
            .collect();
        let link = |sample: &Outgoing<'_>, at| {
            let parts = sample.parts.iter().map(|hash| parts.get(hash).copied());
            Some(Link { stamps: at, parts: parts.collect::<Option<_>>()? })
        };
        let links = published.filter_map(|(sample, at)| Some((sample.alert?, link(sample, at)?)));
        let links: HashMap<_, _> = links.collect();
        for alert in &mut self.alerts {
            let link = alert.alert.and_then(|id| links.get(&id)).map(Link::to_string);
            let linked = headers.clone().with(LINK_HEADER, link.unwrap_or_default());
            alert.headers = linked.expect("the number of linked parts is limited");
        }
    }
}

/// Where alerts were published; `None` if there are none, or the engine has no offsets.
fn extent(partition: u32, alerts: &[Outgoing<'_>]) -> Option<Extent> {
    let offsets = alerts.iter().map(|alert| i64::try_from(alert.at?).ok());
    let offsets = offsets.collect::<Option<Vec<_>>>()?;
    let ids = || alerts.iter().filter_map(|alert| alert.alert);
    Some(Extent {
        partition: partition as i32,
        first: offsets.iter().min().copied()?,
        end: offsets.iter().max()? + 1,
        lowest_id: ids().min()?,
        highest_id: ids().max()?,
    })
}

/// Makes the samples of the topic of stamps.
fn prepare_stamps(
    alerts: &[(i64, Vec<Option<&[u8]>>)],
    packing: Packing,
    prepared: &mut Prepared<'_>,
) -> Result<(), ProducerError> {
    let mut shared = SharedParts::default();
    alerts.iter().for_each(|(_, stamps)| shared.count(stamps));
    let wrong = |index, error: &dyn std::fmt::Display| ProducerError::Packet {
        index,
        cause: error.to_string(),
    };
    let (none, mut digest) = (SharedParts::default(), Digest::default());
    let (mut published, mut samples) = (HashSet::new(), Vec::with_capacity(alerts.len()));
    for (index, (id, stamps)) in alerts.iter().enumerate() {
        let mut parts = shared.of(stamps);
        parts.sort_unstable_by_key(|(hash, _)| *hash);
        parts.dedup_by_key(|(hash, _)| *hash);
        let is_linked = parts.len() <= MAX_LINKED_PARTS;
        let used = if is_linked { &shared } else { &none };
        parts.truncate(if is_linked { parts.len() } else { 0 });
        for (hash, part) in parts.iter().filter(|(hash, _)| published.insert(*hash)) {
            let mut payload = Vec::new();
            pack_shared(part, packing, &mut payload).map_err(|error| wrong(index, &error))?;
            let sample = Outgoing::new(None, format!("{hash:032x}"), payload);
            prepared.stamps.push(Outgoing { parts: vec![*hash], ..sample });
        }
        let mut payload = Vec::new();
        pack(*id, stamps, used, packing, &mut payload).map_err(|error| wrong(index, &error))?;
        digest.add(*id, payload_hash(&payload));
        let parts = parts.into_iter().map(|(hash, _)| hash).collect();
        samples.push(Outgoing { parts, ..Outgoing::alert(*id, payload) });
    }
    prepared.stamps.append(&mut samples);
    prepared.stamps_digest = Some(digest);
    Ok(())
}

/// How many samples form a batch of at most [`BATCH_BYTES`]; a larger sample is alone.
fn batch_len(samples: &[Outgoing<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |sample: &&Outgoing<'_>| {
        bytes += sample.payload.len();
        bytes <= BATCH_BYTES
    };
    samples.iter().take_while(fits).count().max(1).min(samples.len())
}

/// The visit and detector in the name of a spill file.
fn ccd_of(file: &Path) -> Option<Ccd> {
    let name = file.file_stem()?.to_str()?.strip_prefix("visit-")?;
    let (visit, detector) = name.split_once("-detector-")?;
    Some(Ccd { visit: visit.parse().ok()?, detector: detector.parse().ok()? })
}

/// Writes a file under a temporary name, and renames it once it is on the disk.
fn write_durably(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}
