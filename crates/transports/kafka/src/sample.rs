//! A Kafka record as a sample: ours by its header, and those of others.

use std::sync::Arc;

use helio_bus::transport::{Origin, Producers, SampleRef, WriterInfo};
use helio_core::confluent::FRAME_BYTES;
use helio_core::sal::index_key;
use helio_core::{Headers, HeadersRef, Producer, ProducerName, SchemaId, Tai, TraceId};
use rdkafka::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::header::{self, Fixed, Frame, Key};
use crate::native::RawHeaders;

/// Who wrote what has no header of ours.
const FOREIGN: &str = "kafka";

/// Their incarnation: nobody counts them.
const ONE: u64 = 1;

/// Whether a producer is one of those who write without a word.
pub(crate) fn is_unknown(producer: &Producer) -> bool {
    producer.incarnation == ONE && producer.name.as_str() == FOREIGN
}

/// Those who write without a word, each partition: nobody knows whether they live.
pub(crate) fn unknown_writer(partitions: u32) -> impl Iterator<Item = WriterInfo> {
    let name = ProducerName::new(FOREIGN).expect("it is a name");
    let producer = Producer { name, incarnation: ONE };
    (0..partitions).map(move |partition| {
        let producer = producer.clone();
        WriterInfo { producer, partition, alive: None, seen: None }
    })
}

/// What a record is as a sample, beside its key and payload.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    pub(crate) producer: Arc<Producer>,
    pub(crate) sequence: u64,
    pub(crate) time: Tai,
    pub(crate) schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
    pub(crate) form: Form,
}

/// How the key and the payload of a record are those of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The payload lies behind so many bytes, and the key is there.
    Known(usize, Key),
    /// It is of others, and was not looked at yet.
    Foreign,
}

/// The number of the next record of others in a partition: counted on from the first one's place,
/// so that holes which compaction leaves are no losses.
pub(crate) type Foreign = Option<u64>;

impl Meta {
    pub(crate) fn of(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        foreign: &mut Foreign,
    ) -> Self {
        let mut headers = RawHeaders::of(message).peekable();
        let first = headers.peek().filter(|(name, _)| *name == header::NAME.as_bytes());
        let ours = first.and_then(|(_, value)| {
            let fixed = Fixed::parse(value)?;
            Some((fixed, producers.of(fixed.producer, fixed.incarnation)?))
        });
        let Some((fixed, producer)) = ours else {
            return Self::foreign(message, producers, (foreign, header::own(headers)));
        };
        headers.next();
        Self {
            producer,
            sequence: fixed.sequence,
            time: fixed.time,
            schema: fixed.schema,
            level: fixed.level,
            trace: fixed.trace,
            headers: header::own(headers),
            form: match fixed.frame {
                Frame::Plain => Form::Known(0, fixed.key),
                Frame::Framed => Form::Known(FRAME_BYTES, fixed.key),
            },
        }
    }

    fn foreign(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        (foreign, headers): (&mut Foreign, Headers),
    ) -> Self {
        let place = u64::try_from(message.offset()).unwrap_or(0) + 1;
        let sequence = foreign.unwrap_or(place);
        *foreign = Some(sequence + 1);
        let millis = match message.timestamp() {
            Timestamp::CreateTime(millis) | Timestamp::LogAppendTime(millis) => millis,
            Timestamp::NotAvailable => 0,
        };
        Self {
            producer: producers.of(FOREIGN, ONE).expect("it is a name"),
            sequence,
            time: Tai::from_unix_nanos(millis.saturating_mul(1_000_000)),
            schema: SchemaId::BYTES,
            level: 0,
            trace: None,
            headers,
            form: Form::Foreign,
        }
    }

    /// The sample, with what lies in the record: its key, and its payload with what is before it.
    pub(crate) fn sample<'a>(
        &'a self,
        (partition, offset): (u32, u64),
        (key, payload): (&'a [u8], &'a [u8]),
        origin: Origin,
    ) -> SampleRef<'a> {
        let (key, payload) = self.form.parts(key, payload);
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
        }
    }

    fn headers(&self) -> HeadersRef<'_> {
        self.headers.as_ref()
    }
}

impl Form {
    /// Key and payload of a sample, of those of its record.
    fn parts<'a>(self, key: &'a [u8], payload: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let datum = |behind: usize| payload.get(behind..).unwrap_or_default();
        match self {
            Self::Known(behind, Key::Own) => (key, datum(behind)),
            Self::Known(behind, Key::Index) => (index_key(datum(behind)), datum(behind)),
            Self::Known(behind, Key::Without) => (&[], datum(behind)),
            Self::Foreign => (key, payload),
        }
    }
}

/// A sample that owns what it carries: out of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) meta: Meta,
}

impl Kept {
    pub(crate) fn of(
        message: &BorrowedMessage<'_>,
        producers: &mut Producers,
        foreign: &mut Foreign,
    ) -> Self {
        Self::with(message, Meta::of(message, producers, foreign))
    }

    /// A record that was looked at.
    pub(crate) fn with(message: &BorrowedMessage<'_>, meta: Meta) -> Self {
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

    /// The sample's key, which may not be the record's.
    pub(crate) fn key(&self) -> &[u8] {
        self.meta.form.parts(&self.key, &self.payload).0
    }

    /// Incarnation and sequence: the order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.meta.producer.incarnation, self.meta.sequence)
    }
}
