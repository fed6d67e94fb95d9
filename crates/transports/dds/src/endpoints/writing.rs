//! The DDS writers of a bus writer, and the choice between them for each sample.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::locked;
use helio_core::idl::cdr::CdrProblem;

use super::TypedTopic;
use crate::announcements::{self, EndpointGuids};
use crate::entity::{self, DdsError, Endpoint, Guid, Listener, Refused, StatusEvent};
use crate::envelope::{self, Header, OTHER_TOPIC};
use crate::error::failed;
use crate::incompatible_qos::IncompatiblePolicies;
use crate::topic::TopicState;

/// The DDS writers of a bus writer.
pub(crate) struct WriterEndpoints {
    envelopes: entity::Writer,
    /// The number of readers that the envelope endpoint has matched, from status events.
    readers: Arc<AtomicU32>,
    typed: Mutex<Option<Arc<TypedWriter>>>,
    /// The typed endpoint could not be opened.
    failed: AtomicBool,
    /// Endpoints of schemas that were taken for the first one; their samples may still be in
    /// flight.
    former: Mutex<Vec<Arc<TypedWriter>>>,
    partition: u32,
    strength: Option<i32>,
    incompatible: Arc<Mutex<IncompatiblePolicies>>,
}

pub(crate) struct TypedWriter {
    of: Arc<TypedTopic>,
    writer: entity::Writer,
    /// The number of readers that it has matched, from status events.
    readers: Arc<AtomicU32>,
    /// Whether it has matched the readers that existed when it was opened. Before that, its samples
    /// may reach no reader.
    matched: AtomicBool,
}

/// Why a sample was not written.
pub(crate) enum WriteError {
    /// The type cannot hold a value: the field, and the cause.
    Value(String),
    Refused(Refused),
}

/// State that carries over from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct PreviousSample {
    /// The previous sample's number, and whether it was typed; `None` before the first one.
    pub(crate) written: Option<(u64, bool)>,
    bytes: Vec<u8>,
    key: Vec<u8>,
}

impl WriterEndpoints {
    pub(crate) fn open(
        topic: &TopicState,
        partition: u32,
        strength: Option<i32>,
    ) -> Result<Self, TransportError> {
        let incompatible = Arc::<Mutex<IncompatiblePolicies>>::default();
        let qos = topic.writer_qos(partition, strength)?;
        let (told, readers) = listener(&incompatible);
        let envelopes = entity::Writer::open(&topic.envelopes()?, &qos, Some(told));
        let envelopes = envelopes.map_err(failed("open the writer"))?;
        let (typed, failed, former) = Default::default();
        let this =
            Self { envelopes, readers, typed, failed, former, partition, strength, incompatible };
        this.adopt_schema(topic)?;
        Ok(this)
    }

    /// Opens the typed endpoint if the topic's first schema has changed.
    pub(crate) fn adopt_schema(&self, topic: &TopicState) -> Result<(), TransportError> {
        let adopted = self.try_to_adopt_schema(topic);
        self.failed.store(adopted.is_err(), Ordering::Release);
        adopted
    }

    /// Retries after a failure; the publisher receives the error. True if the endpoint was opened,
    /// and must match its readers.
    pub(crate) fn retry_adopting_schema(&self, topic: &TopicState) -> Result<bool, TransportError> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.adopt_schema(topic).map(|()| true) } else { Ok(false) }
    }

    fn try_to_adopt_schema(&self, topic: &TopicState) -> Result<(), TransportError> {
        let typed = topic.typed()?;
        let mut own = locked(&self.typed);
        let schema = |end: &Arc<TypedWriter>| end.of.schema;
        if own.as_ref().map(schema) == typed.as_ref().map(|typed| typed.schema) {
            return Ok(());
        }
        locked(&self.former).extend(own.take());
        let Some(of) = typed else { return Ok(()) };
        let qos = topic.writer_qos(self.partition, self.strength)?;
        let (told, readers) = listener(&self.incompatible);
        let writer = entity::Writer::open(&of.topic, &qos, Some(told));
        let writer = writer.map_err(failed("open the typed writer"))?;
        *own = Some(Arc::new(TypedWriter { of, writer, readers, matched: AtomicBool::new(false) }));
        Ok(())
    }

    fn typed(&self) -> Option<Arc<TypedWriter>> {
        locked(&self.typed).clone()
    }

    pub(crate) fn guids(&self) -> EndpointGuids {
        EndpointGuids {
            envelopes: announcements::guid(self.envelopes.guid()),
            typed: self.typed().map(|typed| announcements::guid(typed.writer.guid())),
        }
    }

    /// The typed endpoint, if it has not matched its readers yet.
    pub(crate) fn unmatched(&self) -> Option<Arc<TypedWriter>> {
        self.typed().filter(|typed| !typed.is_matched())
    }

    /// The readers that its endpoints have matched.
    pub(crate) fn matched(&self) -> Vec<String> {
        let typed = self.typed();
        let typed = typed.iter().flat_map(|typed| matched(&typed.writer));
        matched(&self.envelopes).into_iter().chain(typed).collect()
    }

    /// Whether it has matched a bus reader.
    pub(crate) fn has_matched(&self, reader: &EndpointGuids) -> bool {
        let typed = self.typed().map(|typed| matched(&typed.writer)).unwrap_or_default();
        reader.are_matched(&self.guids(), &matched(&self.envelopes), &typed)
    }

    pub(crate) fn incompatible(&self) -> &Mutex<IncompatiblePolicies> {
        &self.incompatible
    }

    /// Writes a sample to the typed topic or as an envelope; true if it was the typed topic. `time`
    /// is the source timestamp, in nanoseconds since 1970.
    pub(crate) fn write(
        &self,
        header: &Header<'_>,
        payload: &[u8],
        time: i64,
        before: &mut PreviousSample,
    ) -> Result<bool, WriteError> {
        if is_null(header, payload) {
            self.dispose(header, time, before)?;
            return self.write_envelope(header, payload, time, before).map(|()| false);
        }
        let typed = self.typed().filter(|typed| typed.of.schema == header.schema);
        match typed {
            Some(typed) if typed.fits(header, payload, before)? && typed.is_matched() => {
                let cdr = [std::io::IoSlice::new(&before.bytes)];
                typed.writer.write(&cdr, time).map_err(WriteError::Refused)?;
                before.written = Some((header.sequence, true));
                Ok(true)
            }
            _ => self.write_envelope(header, payload, time, before).map(|()| false),
        }
    }

    /// Disposes of a null's instance in the typed topic, for readers of other software. A key that
    /// is not one of the type is in no instance.
    fn dispose(
        &self,
        header: &Header<'_>,
        time: i64,
        before: &mut PreviousSample,
    ) -> Result<(), WriteError> {
        let Some(typed) = self.typed().filter(|typed| typed.is_matched()) else { return Ok(()) };
        before.bytes.clear();
        if typed.of.of.key_to_cdr(header.key, &mut before.bytes).is_err() {
            return Ok(());
        }
        match typed.writer.dispose(&before.bytes, time) {
            Err(Refused::Failed(DdsError::NoValue)) => Ok(()),
            disposed => disposed.map_err(WriteError::Refused),
        }
    }

    /// Writes a sample as an envelope, whatever its schema.
    pub(crate) fn write_envelope(
        &self,
        header: &Header<'_>,
        payload: &[u8],
        time: i64,
        before: &mut PreviousSample,
    ) -> Result<(), WriteError> {
        let flagged = before.flagged(header, false);
        envelope::write_head(&flagged, payload.len(), &mut before.bytes);
        let pieces = envelope::pieces(&before.bytes, payload);
        self.envelopes.write(&pieces, time).map_err(WriteError::Refused)?;
        before.written = Some((header.sequence, false));
        Ok(())
    }

    /// Checks that the sample's type can hold its values; the error names the field and the cause.
    pub(crate) fn check(
        &self,
        header: &Header<'_>,
        payload: &[u8],
        before: &mut PreviousSample,
    ) -> Result<(), String> {
        let is_typed = |typed: &Arc<TypedWriter>| {
            typed.of.schema == header.schema && !is_null(header, payload)
        };
        match self.typed().filter(is_typed).map(|typed| typed.fits(header, payload, before)) {
            Some(Err(WriteError::Value(told))) => Err(told),
            _ => Ok(()),
        }
    }

    /// Whether the newest sample may need acknowledgements. Even with a timeout of zero Cyclone
    /// waits for a timer's tick, ten times as long as a write takes. So Cyclone is asked only if no
    /// status event has reported a reader.
    pub(crate) fn awaits_acknowledgements(&self) -> Result<bool, DdsError> {
        let matched = |readers: &AtomicU32| readers.load(Ordering::Acquire) > 0;
        if matched(&self.readers) || self.typed().is_some_and(|typed| matched(&typed.readers)) {
            return Ok(true);
        }
        self.wait_for_acknowledgements(Duration::ZERO).map(|all| !all)
    }

    /// Waits until the readers have acknowledged all samples; `false` after `limit`.
    pub(crate) fn wait_for_acknowledgements(&self, limit: Duration) -> Result<bool, DdsError> {
        let until = Instant::now() + limit;
        let former = locked(&self.former).clone();
        for typed in self.typed().into_iter().chain(former) {
            let left = until.saturating_duration_since(Instant::now());
            if !typed.writer.wait_for_acknowledgements(left)? {
                return Ok(false);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        self.envelopes.wait_for_acknowledgements(left)
    }

    /// The readers that do not acknowledge all samples within a time each: none for those of the
    /// participants that stand still.
    pub(crate) fn lagging(&self, standing: &HashSet<Guid>, limit: Duration) -> Vec<Endpoint> {
        let former = locked(&self.former).clone();
        let typed: Vec<_> = self.typed().into_iter().chain(former).collect();
        let writers = typed.iter().map(|typed| &typed.writer).chain([&self.envelopes]);
        let mut lagging = Vec::new();
        for writer in writers {
            let readers = writer.readers().unwrap_or_default().into_iter();
            for end in readers.filter_map(|reader| writer.subscription(reader)) {
                let stands = standing.contains(&end.participant);
                let limit = if stands { Duration::ZERO } else { limit };
                // After an error its writer is gone.
                if !writer.is_acknowledged_by(end.guid, limit).unwrap_or(true) {
                    lagging.push(end);
                }
            }
        }
        lagging
    }

    pub(crate) fn assert_alive(&self) -> Result<(), DdsError> {
        self.typed().map_or(Ok(()), |typed| typed.writer.assert_alive())?;
        self.envelopes.assert_alive()
    }

    pub(crate) fn strengthen(&self, strength: i32) -> Result<(), DdsError> {
        self.typed().map_or(Ok(()), |typed| typed.writer.strengthen(strength))?;
        self.envelopes.strengthen(strength)
    }
}

impl TypedWriter {
    fn is_matched(&self) -> bool {
        self.matched.load(Ordering::Acquire)
    }

    /// Marks that it has matched its readers.
    pub(crate) fn has_matched(&self) {
        self.matched.store(true, Ordering::Release);
    }

    /// Serializes the sample as CDR; `false` if it must be an envelope. That holds for bytes that
    /// are not a datum, and for a key that differs from the key fields. DDS would mix up the last
    /// values of such keys.
    fn fits(
        &self,
        header: &Header<'_>,
        payload: &[u8],
        before: &mut PreviousSample,
    ) -> Result<bool, WriteError> {
        let header = before.flagged(header, true);
        let PreviousSample { bytes, key, .. } = before;
        bytes.clear();
        key.clear();
        match self.of.of.to_cdr_with_key(&header.head(), payload, bytes, key) {
            Ok(()) => {
                let own = header.key.is_empty() || !self.of.of.has_key_fields();
                Ok(own || header.key == &key[..])
            }
            Err(error) if matches!(error.problem(), CdrProblem::Avro(_)) => Ok(false),
            Err(error) => Err(WriteError::Value(error.to_string())),
        }
    }
}

impl PreviousSample {
    /// The header of a sample on one of the two DDS topics.
    fn flagged<'a>(&self, header: &Header<'a>, typed: bool) -> Header<'a> {
        // A resent sample does not follow the sample that was written last.
        let before = self.written.filter(|(sequence, _)| *sequence < header.sequence);
        let previous = before.map_or(0, |(sequence, _)| sequence);
        let elsewhere = before.is_some_and(|(_, by)| by != typed);
        let flags = header.flags | if elsewhere { OTHER_TOPIC } else { 0 };
        Header { previous, flags, ..*header }
    }
}

/// Whether a sample has no value: no type has one for it.
fn is_null(header: &Header<'_>, payload: &[u8]) -> bool {
    payload.is_empty() && header.headers.mark_null()
}

/// The readers that an endpoint has matched.
fn matched(writer: &entity::Writer) -> Vec<String> {
    let readers = writer.readers().unwrap_or_default();
    let endpoints = readers.into_iter().filter_map(|reader| writer.subscription(reader));
    endpoints.map(|end| announcements::guid(end.guid)).collect()
}

/// The listener of an endpoint, and its count of matched readers.
fn listener(incompatible: &Arc<Mutex<IncompatiblePolicies>>) -> (Listener, Arc<AtomicU32>) {
    let (found, readers) = (Arc::clone(incompatible), Arc::<AtomicU32>::default());
    let matched = Arc::clone(&readers);
    let told = move |news| match news {
        StatusEvent::Incompatible(policy) => locked(&found).add(policy),
        StatusEvent::Matched { now, .. } => matched.store(now, Ordering::Release),
        _ => {}
    };
    (Box::new(told), readers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::{HeadersRef, SchemaId, Tai};

    #[test]
    fn a_sample_says_which_came_before_it_and_by_which_topic() {
        let header = |sequence| Header {
            producer: "Mast",
            incarnation: 1,
            sequence,
            previous: 0,
            time: Tai::from_nanos(0),
            schema: SchemaId::BYTES,
            partition: 0,
            level: 0,
            flags: 0,
            trace: None,
            key: b"",
            headers: HeadersRef::EMPTY,
        };
        let mut before = PreviousSample::default();
        let mut said = |sequence, typed| {
            let header = before.flagged(&header(sequence), typed);
            before.written = Some((sequence, typed));
            (header.previous, header.flags == OTHER_TOPIC)
        };
        assert_eq!(said(5, true), (0, false), "nothing is known before the first");
        assert_eq!(said(7, false), (5, true), "numbers are left out");
        assert_eq!(said(8, false), (7, false));
        assert_eq!(said(9, true), (8, true));
        assert_eq!(said(7, false), (0, false), "the oldest that is sent again");
        assert_eq!(said(8, true), (7, true));
    }
}
