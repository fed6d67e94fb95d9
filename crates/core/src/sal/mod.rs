//! SAL interface folders of the Rubin Observatory: the topics of its components, their fields, and
//! their Avro schemas.
//!
//! Constraints. A folder holds `SALSubsystems.xml` (the components), `SALGenerics.xml` (topics that
//! many components share) and, for a component `X`, any of `X/X_Commands.xml`, `X/X_Events.xml`,
//! `X/X_Telemetry.xml` and `X/*.avsc`; or one file `X.yaml` or `X/X.yaml` describes a whole
//! component, without the first two. The schemas must equal the observatory's byte for byte,
//! because its revision code is a hash of their text. Input may be hostile: the `MAX_*` constants
//! bound sizes, counts and nesting, and document types are rejected.
//!
//! Format. An item's type is one of [`SalType`]; a `Count` above 1 makes an array, except of
//! strings, which are never arrays. `AddedGenerics` mixes names of categories and of topics.
//! Enumerations belong to the set (`Class_Label`) or to an item; without values, labels count
//! from 1. The SAL schema lacks enumerations, array lengths and SAL types, which are attributes in
//! the helio schema.
//!
//! Operation. [`Interfaces::load`] takes paths and bytes (no I/O here) and returns components and
//! topics. A [`Topic`] returns its names, its quality of service and its schemas on demand.

mod avsc;
mod diff;
mod enumeration;
mod error;
mod field;
mod interfaces;
mod kafka;
mod load;
mod naming;
mod schema;
mod topic;
mod xml;
mod yaml;

pub use diff::{
    ChangedEnumeration, ChangedIndexing, ChangedTopic, InterfacesDiff, Presence, Summary,
};
pub use enumeration::Enumeration;
pub use error::{SalCause, SalError};
pub use field::{Field, FieldType, SalType};
pub use interfaces::{Component, Counts, Indexing, Interfaces, TopicCounts};
pub use kafka::{SalKeys, index_key, sal_text};
pub use load::{is_interface_file, yaml_component};
pub use naming::{NamingError, SalNaming};
pub use schema::SalRecord;
pub use topic::{Topic, TopicKind};

/// The largest file that is read, in bytes (the largest of release v27.1.1 has 1.4 MB).
pub const MAX_FILE_BYTES: usize = 8 << 20;
/// The most files in a folder (release v27.1.1 has 148, v28 about 310).
pub const MAX_FILES: usize = 20_000;
/// The limit of all files of a folder together, in bytes (release v27.1.1: 5 MB).
pub const MAX_FOLDER_BYTES: usize = 256 << 20;
/// The most components in a folder (release v27.1.1 has 63).
pub const MAX_COMPONENTS: usize = 4_096;
/// The most topics in a folder, generics counted for each component (release v27.1.1 has 3,166).
pub const MAX_TOPICS: usize = 65_536;
/// The most fields of all topics together (release v27.1.1 has 19,875).
pub const MAX_FIELDS: usize = 1_000_000;
/// The most nodes of a file's XML or YAML (the largest file of release v27.1.1 has 44,000).
pub const MAX_NODES: u32 = 500_000;
/// The most elements in an array field (release v27.1.1: 3,024).
pub const MAX_COUNT: u32 = 65_536;
/// The limit of elements of all fields of a topic (release v27.1.1: 14,486).
pub const MAX_ELEMENTS: u32 = 262_144;
/// The most labels in one enumeration.
pub const MAX_LABELS: usize = 4_096;
