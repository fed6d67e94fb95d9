//! A Kafka record as a sample: ours by its header, and those of others.

use std::sync::Arc;

use helio_bus::transport::{Origin, Producers, SampleRef};
use helio_core::confluent::FRAME_BYTES;
use helio_core::{Headers, HeadersRef, Producer, SchemaId, Tai, TraceId};
use rdkafka::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::header::{self, Fixed, Frame};
use crate::native::RawHeaders;

/// Who wrote what has no header of ours.
const FOREIGN: &str = "kafka";

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

/// How the payload of a record is that of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As the header says, behind so many bytes.
    Behind(usize),
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
            form: Form::Behind(match fixed.frame {
                Frame::Plain => 0,
                Frame::Framed => FRAME_BYTES,
            }),
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
            producer: producers.of(FOREIGN, 1).expect("it is a name"),
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
            payload: match self.form {
                Form::Behind(bytes) => payload.get(bytes..).unwrap_or_default(),
                Form::Foreign => payload,
            },
            origin,
        }
    }

    fn headers(&self) -> HeadersRef<'_> {
        self.headers.as_ref()
    }
}

/// A sample that owns what it carries: out of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) key: Vec<u8>,
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

    /// Incarnation and sequence: the order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.meta.producer.incarnation, self.meta.sequence)
    }
}
