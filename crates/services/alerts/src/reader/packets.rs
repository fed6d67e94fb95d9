//! Samples taken apart: schema, identifier, visit and datum.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use helio_bus::{Bus, HeadersRef, Sample, SchemaId, TransportError};
use helio_core::Schema;

use crate::framing::{PacketError, Schemas};
use crate::layout::{Ccd, Layout};
use crate::topics::{DETECTOR_HEADER, VISIT_HEADER};

use super::alert::UNKNOWN_VISIT;
use super::drops::DropCause;

/// The pinned bytes of a reader, unless it asks for another number: four batches.
pub const DEFAULT_PINNED_BYTES: u64 = 64 << 20;
/// The most schemas whose state is remembered: a survey has a few; anybody can publish others.
const MAX_SCHEMAS: usize = 1_024;

/// An alert of a sample, before it is counted.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The alert's identifier.
    pub id: i64,
    /// Its visit and detector, by the sample's headers or else by the datum.
    pub ccd: Ccd,
    /// The schema of the datum.
    pub layout: Arc<Layout>,
    /// The packet without frame, as it was published. It is a datum of the schema.
    pub datum: Bytes,
}

/// A packet that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPacket {
    /// The kind of cause.
    pub cause: DropCause,
    /// The cause in words.
    pub reason: String,
}

impl BadPacket {
    pub(super) fn new(cause: DropCause, reason: impl ToString) -> Self {
        Self { cause, reason: reason.to_string() }
    }
}

/// Takes samples of alerts apart, and finds their schemas.
pub struct Packets {
    bus: Bus,
    layouts: HashMap<SchemaId, Compiled>,
    /// Those of frames in samples without schema, as foreign producers write them.
    pub(super) framed: Schemas,
}

enum Compiled {
    Layout(Arc<Layout>),
    /// The schema's text is missing, edited or damaged.
    Unusable {
        samples: u64,
        reason: String,
    },
}

impl Packets {
    /// Finds the schemas of samples on a bus; those of packets with frames are Rubin's.
    #[must_use]
    pub fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone(), layouts: HashMap::new(), framed: Schemas::rubin() }
    }

    /// Takes a sample apart. A container has several alerts; one that is damaged does not spoil
    /// the others. A sample whose frame or schema is unusable is one [`BadPacket`].
    ///
    /// # Errors
    /// The transport's error if the schema cannot be looked up now: try again.
    pub fn open(
        &mut self,
        sample: &Sample,
    ) -> Result<Vec<Result<Packet, BadPacket>>, TransportError> {
        if sample.header.schema == SchemaId::BYTES {
            return Ok(self.open_framed(sample).unwrap_or_else(|bad| vec![Err(bad)]));
        }
        let layout = self.layout(sample.header.schema)?;
        let headers = sample.headers.as_ref();
        let opened = layout.and_then(|layout| packet(&layout, sample.payload.clone(), headers));
        Ok(vec![opened])
    }

    fn open_framed(
        &mut self,
        sample: &Sample,
    ) -> Result<Vec<Result<Packet, BadPacket>>, BadPacket> {
        let headers = sample.headers.as_ref();
        let opened = self.framed.open(&sample.payload).map_err(|error| {
            let is_unknown =
                matches!(error, PacketError::UnknownId { .. } | PacketError::UnknownFingerprint(_));
            let cause = if is_unknown { DropCause::UnknownSchema } else { DropCause::Damaged };
            BadPacket::new(cause, error)
        })?;
        let whole = |datum: Cow<'_, [u8]>| match datum {
            Cow::Borrowed(datum) => sample.payload.slice_ref(datum),
            Cow::Owned(datum) => datum.into(),
        };
        let packets = opened.datums.into_iter().map(|d| packet(&opened.layout, whole(d), headers));
        Ok(packets.collect())
    }

    /// The schema with an identity, or why its packets cannot be read.
    fn layout(&mut self, id: SchemaId) -> Result<Result<Arc<Layout>, BadPacket>, TransportError> {
        let unknown = |reason: &str| BadPacket::new(DropCause::UnknownSchema, reason);
        match self.layouts.get_mut(&id) {
            Some(Compiled::Layout(layout)) => return Ok(Ok(Arc::clone(layout))),
            Some(Compiled::Unusable { samples, reason }) => {
                *samples += 1;
                // A lookup for each sample would query the engine each time.
                if !samples.is_power_of_two() {
                    return Ok(Err(unknown(reason)));
                }
            }
            None => {}
        }
        let compiled = self.compile(id)?;
        self.make_room();
        Ok(match compiled {
            Ok(layout) => {
                self.layouts.insert(id, Compiled::Layout(Arc::clone(&layout)));
                Ok(layout)
            }
            Err(reason) => {
                let samples = match self.layouts.get(&id) {
                    Some(Compiled::Unusable { samples, .. }) => *samples,
                    _ => 1,
                };
                let unusable = Compiled::Unusable { samples, reason: reason.clone() };
                self.layouts.insert(id, unusable);
                Err(unknown(&reason))
            }
        })
    }

    /// Forgets unusable schemas, then the others, if there are too many.
    fn make_room(&mut self) {
        if self.layouts.len() >= MAX_SCHEMAS {
            self.layouts.retain(|_, one| matches!(one, Compiled::Layout(_)));
        }
        if self.layouts.len() >= MAX_SCHEMAS {
            self.layouts.clear();
        }
    }

    /// Compiles a schema; the inner error is that of its text, the outer one may pass.
    fn compile(&self, id: SchemaId) -> Result<Result<Arc<Layout>, String>, TransportError> {
        use TransportError::{NoSchema, SchemaEdited};
        let text = match self.bus.schema_text(id) {
            Ok(text) => text.text,
            Err(error @ (NoSchema { .. } | SchemaEdited { .. })) => {
                return Ok(Err(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let schema = Schema::parse(&text).map_err(|error| error.to_string());
        Ok(schema.map(|schema| Arc::new(Layout::new(&schema))))
    }
}

fn packet(
    layout: &Arc<Layout>,
    datum: Bytes,
    headers: HeadersRef<'_>,
) -> Result<Packet, BadPacket> {
    let damaged = |error: &dyn ToString| BadPacket::new(DropCause::Damaged, error.to_string());
    layout.codec().check(&datum).map_err(|error| damaged(&error))?;
    let id = layout.alert_id(&datum).map_err(|error| damaged(&error))?.ok_or_else(|| {
        let reason = "the schema has no field diaSourceId or candid";
        BadPacket::new(DropCause::NoIdentifier, reason)
    })?;
    let ccd = match ccd_of(headers) {
        Some(ccd) => ccd,
        None => {
            let ccd = layout.ccd(&datum).map_err(|error| damaged(&error))?;
            ccd.unwrap_or(Ccd { visit: UNKNOWN_VISIT, detector: 0 })
        }
    };
    Ok(Packet { id, ccd, layout: Arc::clone(layout), datum })
}

/// A number in a header.
pub(super) fn number<T: std::str::FromStr>(headers: HeadersRef<'_>, name: &str) -> Option<T> {
    std::str::from_utf8(headers.get(name)?).ok()?.parse().ok()
}

/// Returns the visit and detector in a sample's headers.
#[must_use]
pub fn ccd_of(headers: HeadersRef<'_>) -> Option<Ccd> {
    let detector = number(headers, DETECTOR_HEADER)?;
    Some(Ccd { visit: number(headers, VISIT_HEADER)?, detector })
}
