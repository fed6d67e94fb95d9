//! Packets as they come: behind a Confluent frame, as Avro's single object, or as a container file.
//!
//! The frames carry a schema's registry number, its fingerprint or its text. [`Schemas`] finds the
//! compiled schema, and [`Schemas::open`] gives the datums without their frames. A datum is not
//! decoded; a packet of an unknown schema is an error that names it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use helio_core::Schema;
use helio_core::confluent;
use helio_core::container::{Container, ContainerError};
use helio_core::schema::SchemaError;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::Layout;
use crate::rubin::Version;

/// The first bytes of a container file.
const CONTAINER: &[u8] = b"Obj\x01";
/// The first bytes of a single object; the fingerprint follows, little-endian.
const SINGLE_OBJECT: [u8; 2] = [0xc3, 0x01];
/// The most schemas of container files that are kept compiled. A survey has a few; a file with
/// another one costs its compilation.
pub const MAX_EMBEDDED_SCHEMAS: usize = 64;
/// The most datums of one container that is a packet: surveys send one in each.
pub const MAX_DATUMS: usize = 10_000;

/// Why a packet cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PacketError {
    /// The bytes have no frame.
    #[error(
        "the packet begins with {0:02x?}: neither a Confluent frame, nor a single object, nor a \
         container"
    )]
    Unframed(Vec<u8>),
    /// No schema has the number of the frame.
    #[error("no schema has the registry number {id}; there are {known}")]
    UnknownId {
        /// The number.
        id: u32,
        /// The known ones.
        known: String,
    },
    /// No schema has the fingerprint of the single object.
    #[error("no schema has the fingerprint {0:016x} of the single object")]
    UnknownFingerprint(u64),
    /// The container is damaged, or its schema invalid.
    #[error("the container: {0}")]
    Container(#[from] ContainerError),
    /// The container has too many datums for a packet.
    #[error("the container has more than {MAX_DATUMS} datums; play it as a file")]
    Datums,
}

/// How a packet was framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A zero, and the schema's number in a registry.
    Confluent(u32),
    /// Avro's single object, with the schema's fingerprint.
    SingleObject(u64),
    /// A container file, with the schema's text.
    Container,
}

/// A packet without its frame.
#[derive(Debug, Clone)]
pub struct Opened<'a> {
    /// How it was framed.
    pub framing: Framing,
    /// The schema of the datums.
    pub layout: Arc<Layout>,
    /// The datums: one, but for containers.
    pub datums: Vec<std::borrow::Cow<'a, [u8]>>,
}

/// The schemas by which packets are read.
pub struct Schemas {
    by_id: HashMap<u32, Arc<Layout>>,
    by_fingerprint: HashMap<u64, Arc<Layout>>,
    /// Those of container files, by their text's hash.
    embedded: HashMap<u128, Arc<Layout>>,
}

impl Schemas {
    /// Schemas to which others are added.
    #[must_use]
    pub fn empty() -> Self {
        Self { by_id: HashMap::new(), by_fingerprint: HashMap::new(), embedded: HashMap::new() }
    }

    /// The schemas of all versions of Rubin's packets, under their numbers in its registry.
    #[must_use]
    pub fn rubin() -> Self {
        let mut schemas = Self::empty();
        for version in Version::ALL {
            schemas.add(version.registry_id(), version.schema());
        }
        schemas
    }

    /// Adds a schema under its registry number and fingerprint; it replaces another of the number.
    pub fn add(&mut self, id: u32, schema: &Schema) {
        let layout = Arc::new(Layout::new(schema));
        self.by_id.insert(id, Arc::clone(&layout));
        self.by_fingerprint.insert(schema.fingerprint(), layout);
    }

    /// Returns the schema with a registry number.
    #[must_use]
    pub fn of_id(&self, id: u32) -> Option<&Arc<Layout>> {
        self.by_id.get(&id)
    }

    /// Opens a packet. The schema of a container is compiled at its first occurrence.
    ///
    /// # Errors
    /// [`PacketError`] if the frame or its schema is unknown, or the container is damaged. The
    /// datum of the other framings is not looked at.
    pub fn open<'a>(&mut self, packet: &'a [u8]) -> Result<Opened<'a>, PacketError> {
        if let Some((id, datum)) = confluent::unframe(packet) {
            let known = || self.known();
            let layout = self.by_id.get(&id);
            let layout = layout.ok_or_else(|| PacketError::UnknownId { id, known: known() })?;
            return Ok(Opened::one(Framing::Confluent(id), layout, datum));
        }
        let single = packet.strip_prefix(&SINGLE_OBJECT).and_then(<[u8]>::split_first_chunk);
        if let Some((print, datum)) = single {
            let print = u64::from_le_bytes(*print);
            let layout = self.by_fingerprint.get(&print);
            let layout = layout.ok_or(PacketError::UnknownFingerprint(print))?;
            return Ok(Opened::one(Framing::SingleObject(print), layout, datum));
        }
        if packet.starts_with(CONTAINER) {
            return self.open_container(packet);
        }
        Err(PacketError::Unframed(packet.iter().take(8).copied().collect()))
    }

    fn open_container<'a>(&mut self, packet: &'a [u8]) -> Result<Opened<'a>, PacketError> {
        let mut found = None;
        let mut container = Container::open_with(packet, |text| {
            let layout = self.embedded(text)?;
            let codec = layout.codec().clone();
            found = Some(layout);
            Ok(codec)
        })?;
        let layout = found.expect("the container took its codec from it");
        let mut datums = Vec::new();
        while let Some(datum) = container.next_datum()? {
            if datums.len() == MAX_DATUMS {
                return Err(PacketError::Datums);
            }
            datums.push(datum.to_vec().into());
        }
        Ok(Opened { framing: Framing::Container, layout, datums })
    }

    fn embedded(&mut self, text: &str) -> Result<Arc<Layout>, SchemaError> {
        let hash = xxh3_128(text.as_bytes());
        if let Some(layout) = self.embedded.get(&hash) {
            return Ok(Arc::clone(layout));
        }
        let layout = Arc::new(Layout::new(&Schema::parse(text)?));
        if self.embedded.len() < MAX_EMBEDDED_SCHEMAS {
            self.embedded.insert(hash, Arc::clone(&layout));
        }
        Ok(layout)
    }

    fn known(&self) -> String {
        let mut ids: Vec<_> = self.by_id.keys().collect();
        ids.sort();
        let ids: Vec<_> = ids.into_iter().take(20).map(u32::to_string).collect();
        if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schemas({}; {} of containers)", self.known(), self.embedded.len())
    }
}

impl<'a> Opened<'a> {
    fn one(framing: Framing, layout: &Arc<Layout>, datum: &'a [u8]) -> Self {
        Self { framing, layout: Arc::clone(layout), datums: vec![datum.into()] }
    }
}

/// Appends a datum behind the mark of a single object.
pub fn put_single_object(schema: &Schema, datum: &[u8], out: &mut Vec<u8>) {
    out.extend(SINGLE_OBJECT);
    out.extend(schema.fingerprint().to_le_bytes());
    out.extend(datum);
}
