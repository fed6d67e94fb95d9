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
//! manifest last. Samples are in flight by batches of [`BATCH_BYTES`].

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helio_bus::{Bus, Clock, Message, PendingPublish, Publisher, Topic, TopicError, TopicSpec};
use helio_core::codec::{Codec, EncodeError};
use helio_core::container::{Compression, Container, ContainerError, Writer};
use helio_core::schema::{HasSchema, Schema};
use helio_core::{Headers, Qos};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::{Ccd, Layout};
use crate::stamps::{Packing, SharedParts, pack, pack_shared};
use crate::visit::{Control, Digest, Manifest, Opening, payload_hash};

/// The most bytes of samples in flight: a hundred packets, enough to hide the bus's latency.
pub const BATCH_BYTES: usize = 16 << 20;
/// The time between two attempts to publish what was not accepted.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The name of a topic of alerts, followed by this, is that of its stamps.
const STAMPS_SUFFIX: &str = "stamps";
/// The same, of its control topic.
const CONTROL_SUFFIX: &str = "control";
/// The header with the visit.
pub const VISIT_HEADER: &str = "visit";
/// The header with the detector.
pub const DETECTOR_HEADER: &str = "detector";

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
    /// The number of partitions of the topics of alerts and stamps.
    pub partitions: u32,
    /// How long a visit's alerts are tried to be published.
    pub retry_for: Duration,
    /// The folder of spill files; without one, what fails is only named.
    pub spill: Option<PathBuf>,
}

impl Default for ProducerOptions {
    /// Inline, 16 partitions, 30 s, no spill files.
    fn default() -> Self {
        let (layout, spill) = (TopicLayout::Inline, None);
        Self { layout, partitions: 16, retry_for: Duration::from_secs(30), spill }
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
    alerts: Publisher,
    stamps: Option<Publisher>,
    control: Publisher,
    control_codec: Codec,
}

/// A sample to be published.
#[derive(Debug)]
struct Outgoing {
    /// The alert; none for a shared part or a control record.
    alert: Option<i64>,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// The samples of a visit.
#[derive(Debug, Default)]
struct Prepared {
    /// Of the topic of stamps: shared parts first.
    stamps: Vec<Outgoing>,
    alerts: Vec<Outgoing>,
    digest: Digest,
    stamps_digest: Option<Digest>,
}

/// What was not accepted.
#[derive(Debug, Default)]
struct Failures {
    alerts: HashSet<i64>,
    others: usize,
    cause: Option<String>,
}

impl Failures {
    fn add(&mut self, samples: &[&Outgoing]) {
        for sample in samples {
            match sample.alert {
                Some(id) => _ = self.alerts.insert(id),
                None => self.others += 1,
            }
        }
    }
}

/// Opens the control topic of a topic of alerts, or creates it.
///
/// # Errors
/// [`TopicError`].
pub fn control_topic(bus: &Bus, alerts: &str) -> Result<Topic, TopicError> {
    let schema = Control::schema().expect("the records' schemas are compiled in");
    let spec = TopicSpec::new(&format!("{alerts}/{CONTROL_SUFFIX}"))?;
    bus.topic(spec.qos(Qos { partitions: 1, ..Qos::stream() }).schema(&schema))
}

impl CcdProducer {
    /// Opens the topics of alerts, or creates them: `topic`, `topic/control`, and `topic/stamps` if
    /// stamps are split.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn open(
        bus: &Bus,
        topic: &str,
        schema: &Schema,
        options: ProducerOptions,
    ) -> Result<Self, ProducerError> {
        let qos = Qos { partitions: options.partitions, ..Qos::stream() };
        let alerts = TopicSpec::new(topic)?.qos(qos.clone()).schema(schema);
        let stamps = match options.layout {
            TopicLayout::Inline => None,
            TopicLayout::Split(_) => {
                let spec = TopicSpec::new(&format!("{topic}/{STAMPS_SUFFIX}"))?.qos(qos);
                Some(bus.topic(spec)?.publisher()?)
            }
        };
        let control = control_topic(bus, topic)?;
        let control_schema = Control::schema().expect("the records' schemas are compiled in");
        Ok(Self {
            layout: Layout::new(schema),
            options,
            clock: Arc::clone(bus.clock()),
            alerts: bus.topic(alerts)?.publisher()?,
            stamps,
            control: control.publisher()?,
            control_codec: Codec::new(&control_schema),
        })
    }

    /// Publishes the opening record of a visit.
    ///
    /// # Errors
    /// [`ProducerError::NotAccepted`] with the bus's cause.
    pub fn open_visit(&self, opening: Opening) -> Result<(), ProducerError> {
        let announced = self.announce(&Control::Opening(opening), self.deadline())?;
        announced.map_err(ProducerError::NotAccepted)
    }

    /// Publishes a visit's packets, datums without frames, and then the manifest.
    ///
    /// # Errors
    /// [`ProducerError`] if a packet is invalid, before anything is published, or if the spill file
    /// cannot be written. What the bus does not accept is in the outcome.
    pub fn publish<P: AsRef<[u8]>>(
        &self,
        ccd: Ccd,
        packets: &[P],
    ) -> Result<CcdOutcome, ProducerError> {
        let deadline = self.deadline();
        let prepared = self.prepare(packets)?;
        let mut failures = Failures::default();
        if let Some(stamps) = &self.stamps {
            self.publish_all(stamps, ccd, &prepared.stamps, deadline, &mut failures);
        }
        self.publish_all(&self.alerts, ccd, &prepared.alerts, deadline, &mut failures);
        let manifest = Manifest {
            visit: ccd.visit,
            detector: ccd.detector,
            producer: self.alerts.producer().name.to_string(),
            alerts: prepared.digest,
            stamps: prepared.stamps_digest,
            published_ns: self.clock.now().nanos(),
        };
        let announced = self.announce(&Control::Manifest(manifest.clone()), deadline)?;
        let mut failed: Vec<_> = failures.alerts.into_iter().collect();
        failed.sort_unstable();
        let is_whole = failed.is_empty() && failures.others == 0 && announced.is_ok();
        let spilled = match &self.options.spill {
            Some(folder) if !is_whole => Some(self.spill(folder, ccd, packets)?),
            _ => None,
        };
        let is_announced = announced.is_ok();
        let cause = announced.err().or(failures.cause);
        Ok(CcdOutcome { manifest, failed, is_announced, cause, spilled })
    }

    /// Publishes the packets of a spill file and removes it, once all is published. Alerts that
    /// were published before count once.
    ///
    /// # Errors [`ProducerError`] if the file cannot be read or removed, or is damaged.
    pub fn replay(&self, file: &Path) -> Result<CcdOutcome, ProducerError> {
        let spill = |error| ProducerError::Spill { path: file.to_owned(), error };
        let damaged = |error| ProducerError::SpillFormat { path: file.to_owned(), error };
        let ccd = ccd_of(file).ok_or_else(|| {
            spill(io::Error::other("its name is not like visit-1-detector-2.avro"))
        })?;
        let bytes = fs::read(file).map_err(spill)?;
        let mut container = Container::open(&bytes).map_err(damaged)?;
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

    /// Checks the packets, and makes the samples of them.
    fn prepare<P: AsRef<[u8]>>(&self, packets: &[P]) -> Result<Prepared, ProducerError> {
        let mut prepared = Prepared::default();
        let mut split = Vec::with_capacity(packets.len());
        for (index, packet) in packets.iter().enumerate() {
            let datum = packet.as_ref();
            let wrong = |cause: String| ProducerError::Packet { index, cause };
            let id = self.layout.alert_id(datum).map_err(|error| wrong(error.to_string()))?;
            let id = id.ok_or(ProducerError::NoIdentifier)?;
            let mut payload = Vec::new();
            if self.stamps.is_some() {
                let stamps = self.layout.split(datum, &mut payload);
                split.push((id, stamps.map_err(|error| wrong(error.to_string()))?));
            } else {
                payload.extend_from_slice(datum);
            }
            prepared.digest.add(id, payload_hash(&payload));
            let key = id.to_string().into_bytes();
            prepared.alerts.push(Outgoing { alert: Some(id), key, payload });
        }
        if let TopicLayout::Split(packing) = self.options.layout {
            prepare_stamps(&split, packing, &mut prepared)?;
        }
        Ok(prepared)
    }

    fn publish_all(
        &self,
        publisher: &Publisher,
        ccd: Ccd,
        samples: &[Outgoing],
        deadline: Duration,
        failures: &mut Failures,
    ) {
        let partition = ccd.detector.unsigned_abs() % self.options.partitions;
        let headers = headers(ccd);
        for batch in batches(samples) {
            // Metadata whose stamps failed wait for the replay, so that stamps are always first.
            let failed =
                |sample: &&Outgoing| sample.alert.is_some_and(|id| failures.alerts.contains(&id));
            let batch: Vec<_> = batch.iter().filter(|sample| !failed(sample)).collect();
            let message = |sample: &Outgoing| {
                let message = Message::new(&sample.payload).key(&sample.key).partition(partition);
                publisher.publish(message.headers(headers.as_ref()))
            };
            let (left, cause) = self.deliver(batch, message, deadline);
            failures.add(&left);
            failures.cause = cause.or(failures.cause.take());
        }
    }

    /// Publishes samples until all are accepted or the deadline is over; returns the others, and
    /// the last cause. (Here a batch with an outcome a record would be published as one.)
    fn deliver<'s>(
        &self,
        mut samples: Vec<&'s Outgoing>,
        publish: impl Fn(&'s Outgoing) -> PendingPublish,
        deadline: Duration,
    ) -> (Vec<&'s Outgoing>, Option<String>) {
        let mut cause = None;
        loop {
            let pending: Vec<_> = samples.iter().map(|sample| (*sample, publish(sample))).collect();
            samples.clear();
            for (sample, pending) in pending {
                let left = deadline.saturating_sub(self.clock.monotonic());
                if let Err(error) = pending.wait_timeout(left) {
                    cause = Some(error.to_string());
                    samples.push(sample);
                }
            }
            if samples.is_empty() {
                return (samples, None);
            }
            if self.clock.monotonic() >= deadline {
                return (samples, cause);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Publishes a control record; the inner error is the bus's.
    fn announce(
        &self,
        record: &Control,
        deadline: Duration,
    ) -> Result<Result<(), String>, ProducerError> {
        let mut payload = Vec::new();
        self.control_codec.serialize(record, &mut payload)?;
        let key = record.visit().to_string().into_bytes();
        let sample = Outgoing { alert: None, key, payload };
        let publish = |sample: &Outgoing| {
            self.control.publish(Message::new(&sample.payload).key(&sample.key))
        };
        let (left, cause) = self.deliver(vec![&sample], publish, deadline);
        Ok(if left.is_empty() { Ok(()) } else { Err(cause.unwrap_or_default()) })
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

/// Makes the samples of the topic of stamps.
fn prepare_stamps(
    alerts: &[(i64, Vec<Option<&[u8]>>)],
    packing: Packing,
    prepared: &mut Prepared,
) -> Result<(), ProducerError> {
    let mut shared = SharedParts::default();
    alerts.iter().for_each(|(_, stamps)| shared.count(stamps));
    let wrong = |index, error: &dyn std::fmt::Display| ProducerError::Packet {
        index,
        cause: error.to_string(),
    };
    let mut taken = HashSet::new();
    for (index, (_, stamps)) in alerts.iter().enumerate() {
        for (hash, part) in shared.take(stamps, &mut taken) {
            let mut payload = Vec::new();
            pack_shared(part, packing, &mut payload).map_err(|error| wrong(index, &error))?;
            let key = format!("{hash:032x}").into_bytes();
            prepared.stamps.push(Outgoing { alert: None, key, payload });
        }
    }
    let mut digest = Digest::default();
    for (index, (id, stamps)) in alerts.iter().enumerate() {
        let mut payload = Vec::new();
        pack(*id, stamps, &shared, packing, &mut payload).map_err(|error| wrong(index, &error))?;
        digest.add(*id, payload_hash(&payload));
        let key = id.to_string().into_bytes();
        prepared.stamps.push(Outgoing { alert: Some(*id), key, payload });
    }
    prepared.stamps_digest = Some(digest);
    Ok(())
}

/// Cuts samples into batches of at most [`BATCH_BYTES`]; a larger sample is alone.
fn batches(samples: &[Outgoing]) -> impl Iterator<Item = &[Outgoing]> {
    let mut rest = samples;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |sample: &&Outgoing| {
            bytes += sample.payload.len();
            bytes <= BATCH_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

fn headers(ccd: Ccd) -> Headers {
    let named = Headers::new().with(VISIT_HEADER, ccd.visit.to_string());
    let named = named.and_then(|headers| headers.with(DETECTOR_HEADER, ccd.detector.to_string()));
    named.expect("two short headers")
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
