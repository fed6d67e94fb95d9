//! A Kafka record as a sample: ours by its header, and those of other programs.

use std::sync::Arc;

use helio_bus::transport::{Origin, Producers, SampleRef, WriterInfo};
use helio_core::confluent::FRAME_BYTES;
use helio_core::headers::NULL_HEADER;
use helio_core::sal::index_key;
use helio_core::{Headers, HeadersRef, Producer, ProducerName, SchemaId, Tai, TraceId};
use rdkafka::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::client::ffi::RawHeaders;
use crate::topic::header::{self, Frame, KeySource, RecordHeader};

/// The producer of records without our header.
const FOREIGN_PRODUCER: &str = "kafka";

/// Its incarnation.
const FOREIGN_INCARNATION: u64 = 1;

/// Whether this is the producer of records without our header.
pub(crate) fn is_unknown(producer: &Producer) -> bool {
    producer.incarnation == FOREIGN_INCARNATION && producer.name.as_str() == FOREIGN_PRODUCER
}

/// The unknown writer of each partition, whose liveliness is unknown.
pub(crate) fn unknown_writer(partitions: u32) -> impl Iterator<Item = WriterInfo> {
    let name = ProducerName::new(FOREIGN_PRODUCER).expect("it is a name");
    let producer = Producer { name, incarnation: FOREIGN_INCARNATION };
    (0..partitions).map(move |partition| {
        let producer = producer.clone();
        WriterInfo { producer, partition, alive: None, seen: None }
    })
}

/// A sample's metadata, without key and payload.
#[derive(Debug, Clone)]
pub(crate) struct SampleMeta {
    pub(crate) producer: Arc<Producer>,
    pub(crate) sequence: u64,
    pub(crate) time: Tai,
    pub(crate) schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
    pub(crate) form: RecordForm,
}

/// How a record's key and payload contain those of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// The payload begins behind so many bytes, and the key is there.
    Known(usize, KeySource),
    /// Of another program, and not examined yet.
    Foreign,
}

/// The sequence of the next foreign record in a partition. It counts on from the first one's
/// offset, so that compacted records are not counted as lost.
pub(crate) type NextForeignSequence = Option<u64>;

impl SampleMeta {
    pub(crate) fn of(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        foreign: &mut NextForeignSequence,
    ) -> Self {
        let mut headers = RawHeaders::of(message).peekable();
        let first = headers.peek().filter(|(name, _)| *name == header::HEADER_NAME.as_bytes());
        let ours = first.and_then(|(_, value)| {
            let fixed = RecordHeader::parse(value)?;
            Some((fixed, producers.of(fixed.producer, fixed.incarnation)?))
        });
        let Some((fixed, producer)) = ours else {
            return Self::foreign(message, producers, (foreign, header::own(headers)));
        };
        headers.next();
        let own = header::own(headers);
        Self {
            producer,
            sequence: fixed.sequence,
            time: fixed.time,
            schema: fixed.schema,
            level: fixed.level,
            trace: fixed.trace,
            headers: if is_null(message) { header::of_null(own) } else { own },
            form: match fixed.frame {
                Frame::Plain => RecordForm::Known(0, fixed.key),
                Frame::Framed => RecordForm::Known(FRAME_BYTES, fixed.key),
            },
        }
    }

    fn foreign(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        (foreign, headers): (&mut NextForeignSequence, Headers),
    ) -> Self {
        let place = u64::try_from(message.offset()).unwrap_or(0) + 1;
        let sequence = foreign.unwrap_or(place);
        *foreign = Some(sequence + 1);
        let millis = match message.timestamp() {
            Timestamp::CreateTime(millis) | Timestamp::LogAppendTime(millis) => millis,
            Timestamp::NotAvailable => 0,
        };
        Self {
            producer: producers.of(FOREIGN_PRODUCER, FOREIGN_INCARNATION).expect("it is a name"),
            sequence,
            time: Tai::from_unix_nanos(millis.saturating_mul(1_000_000)),
            schema: SchemaId::BYTES,
            level: 0,
            trace: None,
            headers: if is_null(message) { header::of_null(headers) } else { headers },
            form: RecordForm::Foreign,
        }
    }

    /// The sample, from the record's key and framed payload.
    pub(crate) fn sample<'a>(
        &'a self,
        (partition, offset): (u32, u64),
        (key, payload): (&'a [u8], &'a [u8]),
        origin: Origin,
    ) -> SampleRef<'a> {
        let (key, payload) = self.parts(key, payload);
        SampleRef {
            partition,
            offset,
            key,
            producer: &self.producer,
            sequence: self.sequence,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
            headers: self.headers(),
            payload,
            origin,
            pin: None,
        }
    }

    fn headers(&self) -> HeadersRef<'_> {
        self.headers.as_ref()
    }
}

impl SampleMeta {
    /// A sample's key and payload, from those of its record.
    fn parts<'a>(&'a self, key: &'a [u8], payload: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let datum = |behind: usize| payload.get(behind..).unwrap_or_default();
        match self.form {
            RecordForm::Known(behind, KeySource::Own) => (key, datum(behind)),
            // A null has no datum that would begin with its key.
            RecordForm::Known(0, KeySource::Index) if self.is_null() => {
                (self.headers().get(NULL_HEADER).unwrap_or_default(), &[])
            }
            RecordForm::Known(behind, KeySource::Index) => {
                (index_key(datum(behind)), datum(behind))
            }
            RecordForm::Known(behind, KeySource::Without) => (&[], datum(behind)),
            RecordForm::Foreign => (key, payload),
        }
    }

    /// Incarnation and sequence: the order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.producer.incarnation, self.sequence)
    }

    /// Whether the sample has no value.
    fn is_null(&self) -> bool {
        self.headers().mark_null()
    }
}

/// Whether a record has no value; an empty one is a value.
fn is_null(message: &BorrowedMessage<'_>) -> bool {
    message.payload().is_none()
}

/// A sample that owns its data, from a scan.
#[derive(Debug, Clone)]
pub(crate) struct OwnedSample {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) meta: SampleMeta,
}

impl OwnedSample {
    pub(crate) fn of(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        foreign: &mut NextForeignSequence,
    ) -> Self {
        Self::with(message, SampleMeta::of(message, producers, foreign))
    }

    /// From a record and its metadata.
    pub(crate) fn with(message: &BorrowedMessage<'_>, meta: SampleMeta) -> Self {
        Self {
            partition: u32::try_from(message.partition()).unwrap_or(0),
            offset: u64::try_from(message.offset()).unwrap_or(0),
            key: message.key().unwrap_or_default().to_vec(),
            payload: message.payload().unwrap_or_default().to_vec(),
            meta,
        }
    }

    pub(crate) fn sample(&self, origin: Origin) -> SampleRef<'_> {
        let place = (self.partition, self.offset);
        self.meta.sample(place, (&self.key, &self.payload), origin)
    }

    /// The sample's key, which may differ from the record's.
    pub(crate) fn key(&self) -> &[u8] {
        self.meta.parts(&self.key, &self.payload).0
    }

    /// Whether the sample has no value.
    pub(crate) fn is_null(&self) -> bool {
        self.meta.is_null()
    }

    /// Incarnation and sequence: the order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        self.meta.order()
    }
}
