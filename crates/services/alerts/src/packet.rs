//! Rubin's packets from rows.
//!
//! Arrays are written as *sized* blocks, so that readers that want neither history nor stamps skip
//! them; [`PacketEncoder::with_blocks`] writes as other libraries do.

use helio_core::codec::wire::{Blocks, put_block, put_bytes, put_length, put_long};
use helio_core::schema::{NodeId, Schema, Type};

use crate::row::{Plan, Row};
use crate::rubin::Version;

/// The fields of a packet, as the encoder writes them.
const FIELDS: [&str; 12] = [
    "diaSourceId",
    "observation_reason",
    "target_name",
    "diaSource",
    "prvDiaSources",
    "prvDiaForcedSources",
    "diaObject",
    "ssSource",
    "mpc_orbits",
    "cutoutDifference",
    "cutoutScience",
    "cutoutTemplate",
];

/// An alert to be encoded.
#[derive(Debug, Clone, Copy)]
pub struct Alert<'a> {
    /// The alert's identifier, that of its new detection.
    pub id: i64,
    /// Why the scheduler took the exposure.
    pub observation_reason: Option<&'a str>,
    /// The exposure's target.
    pub target_name: Option<&'a str>,
    /// The new detection.
    pub source: &'a Row,
    /// Earlier detections, oldest first.
    pub previous: Option<&'a [Row]>,
    /// Forced photometry, oldest first.
    pub forced: Option<&'a [Row]>,
    /// The object.
    pub object: Option<&'a Row>,
    /// The geometry of a known Solar System object.
    pub solar_system: Option<&'a Row>,
    /// Its orbit.
    pub orbit: Option<&'a Row>,
    /// The FITS files: difference, science, template.
    pub stamps: [Option<&'a [u8]>; 3],
}

/// Writes the datums of packets of one version.
#[derive(Debug)]
pub struct PacketEncoder {
    version: Version,
    blocks: Blocks,
    /// The records' plans.
    pub source: Plan,
    /// Of forced photometry.
    pub forced: Plan,
    /// Of objects.
    pub object: Plan,
    /// Of the geometry of Solar System objects.
    pub solar_system: Plan,
    /// Of orbits.
    pub orbit: Plan,
    rows: Vec<u8>,
}

impl PacketEncoder {
    /// Compiles a version's records.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self::with_blocks(version, Blocks::default())
    }

    /// Compiles a version's records, with the form of arrays.
    ///
    /// # Panics
    /// If a version's schema has other fields than this encoder writes, which a test would show.
    #[must_use]
    pub fn with_blocks(version: Version, blocks: Blocks) -> Self {
        let schema = version.schema();
        let fields = schema.fields().iter().zip(FIELDS);
        let is_known = |name: &str, alias: &[String], ours: &str| {
            name == ours || alias.iter().any(|alias| alias == ours)
        };
        assert!(
            schema.fields().len() == FIELDS.len()
                && fields.clone().all(|(field, ours)| is_known(&field.name, &field.aliases, ours)),
            "the fields of version {version}"
        );
        let plan = |place: usize| {
            let kind = record_in(schema, schema.fields()[place].kind);
            let plan = kind.and_then(|record| Plan::new(schema, record));
            plan.expect("the records of all versions are flat")
        };
        Self {
            version,
            blocks,
            source: plan(3),
            forced: plan(5),
            object: plan(6),
            solar_system: plan(7),
            orbit: plan(8),
            rows: Vec::new(),
        }
    }

    /// The version of the packets.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Appends the datum of an alert to `out`.
    ///
    /// # Panics
    /// If a row is not of this encoder's plans.
    pub fn encode(&mut self, alert: &Alert<'_>, out: &mut Vec<u8>) {
        let stamps: usize = alert.stamps.iter().flatten().map(|stamp| stamp.len() + 6).sum();
        out.reserve(stamps + 4_096);
        put_long(out, alert.id);
        put_text(alert.observation_reason, out);
        put_text(alert.target_name, out);
        self.source.encode(alert.source, out);
        put_rows(&self.source, alert.previous, self.blocks, &mut self.rows, out);
        put_rows(&self.forced, alert.forced, self.blocks, &mut self.rows, out);
        put_row(&self.object, alert.object, out);
        put_row(&self.solar_system, alert.solar_system, out);
        put_row(&self.orbit, alert.orbit, out);
        for stamp in alert.stamps {
            put_length(out, usize::from(stamp.is_some()));
            if let Some(stamp) = stamp {
                put_bytes(out, stamp);
            }
        }
    }
}

fn put_text(text: Option<&str>, out: &mut Vec<u8>) {
    put_length(out, usize::from(text.is_some()));
    if let Some(text) = text {
        put_bytes(out, text.as_bytes());
    }
}

fn put_row(plan: &Plan, row: Option<&Row>, out: &mut Vec<u8>) {
    put_length(out, usize::from(row.is_some()));
    if let Some(row) = row {
        plan.encode(row, out);
    }
}

fn put_rows(
    plan: &Plan,
    rows: Option<&[Row]>,
    blocks: Blocks,
    room: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    put_length(out, usize::from(rows.is_some()));
    let Some(rows) = rows else { return };
    if !rows.is_empty() {
        room.clear();
        rows.iter().for_each(|row| plan.encode(row, room));
        put_block(out, blocks, rows.len(), room.len());
        out.extend_from_slice(room);
    }
    out.push(0);
}

/// The record of a field: its type, that of an array's elements, or a branch of either.
fn record_in(schema: &Schema, kind: NodeId) -> Option<NodeId> {
    match &schema.node(kind).kind {
        Type::Record(_) => Some(kind),
        Type::Array(items) => record_in(schema, *items),
        Type::Union(branches) => branches.iter().find_map(|branch| record_in(schema, *branch)),
        _ => None,
    }
}
