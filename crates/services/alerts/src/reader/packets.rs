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
    /// the others.
    ///
    /// # Errors
    /// [`BadPacket`] if the sample's frame or schema is unusable.
    pub fn open(&mut self, sample: &Sample) -> Result<Vec<Result<Packet, BadPacket>>, BadPacket> {
        let headers = sample.headers.as_ref();
        if sample.header.schema != SchemaId::BYTES {
            let layout = self.layout(sample.header.schema)?;
            return Ok(vec![packet(&layout, sample.payload.clone(), headers)]);
        }
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

    fn layout(&mut self, id: SchemaId) -> Result<Arc<Layout>, BadPacket> {
        let unknown = |reason: &str| BadPacket::new(DropCause::UnknownSchema, reason);
        match self.layouts.get_mut(&id) {
            Some(Compiled::Layout(layout)) => return Ok(Arc::clone(layout)),
            Some(Compiled::Unusable { samples, reason }) => {
                *samples += 1;
                // A lookup for each sample would query the engine each time.
                if !samples.is_power_of_two() {
                    return Err(unknown(reason));
                }
            }
            None => {}
        }
        match self.compile(id) {
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
        }
    }

    fn compile(&self, id: SchemaId) -> Result<Arc<Layout>, String> {
        let text = self.bus.schema(id).map_err(|error| error.to_string())?;
        let text = text.ok_or_else(|| TransportError::NoSchema { schema: id }.to_string())?;
        let schema = Schema::parse(&text).map_err(|error| error.to_string())?;
        Ok(Arc::new(Layout::new(&schema)))
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
