//! Alerts between the log and the files.

use std::sync::Arc;

use bytes::Bytes;
use helio_alerts::layout::Layout;
use helio_alerts::reader::Packet;
use helio_alerts::stamps::Link;
use helio_alerts::topics::LINK_HEADER;
use helio_alerts::visit::{Position, payload_hash};
use helio_bus::Sample;

use crate::tally::Seen;

/// An alert.
pub(crate) struct Alert {
    pub(crate) seen: Seen,
    pub(crate) layout: Arc<Layout>,
    /// The packet without frame.
    pub(crate) datum: Bytes,
    pub(crate) stamps: Stamps,
}

/// Where an alert's stamps are.
pub(crate) enum Stamps {
    /// In the packet.
    InPacket,
    /// On the topic of stamps; `None` if their place is unknown.
    Linked(Option<Link>),
}

impl Alert {
    pub(crate) fn new(sample: &Sample, packet: Packet) -> Self {
        let Packet { id, ccd, layout, datum } = packet;
        let hash = payload_hash(&datum);
        let at = Position { partition: sample.partition, offset: sample.offset };
        let seen = Seen { visit: ccd.visit, detector: ccd.detector, id, hash, at };
        let stamps = match sample.headers.as_ref().get(LINK_HEADER) {
            None => Stamps::InPacket,
            Some(link) => Stamps::Linked(Link::parse(link)),
        };
        Self { seen, layout, datum, stamps }
    }
}
