//! SAL interface folders, as the Rubin Observatory writes them: which topics its components have,
//! with which fields, and the Avro schemas that follow from them.
//!
//! Constraints. A folder holds `SALSubsystems.xml` (the components), `SALGenerics.xml` (topics that
//! many components share) and, for a component `X`, any of `X/X_Commands.xml`, `X/X_Events.xml`,
//! `X/X_Telemetry.xml` and `X/*.avsc`; or a component is whole in `X.yaml` or `X/X.yaml`, which
//! needs neither of the first two. The schemas must equal those that the observatory registers
//! byte for byte, because its revision code is a hash of their text. Input may be hostile: sizes,
//! counts and nesting are bounded by the `MAX_*` constants, and no document type is read.
//!
//! Format. An item's type is one of [`SalType`]; a `Count` above 1 makes an array, except of
//! strings, which are never arrays. `AddedGenerics` mixes names of categories and of topics.
//! Enumerations stand at the set (`Class_Label`) or at an item; where no value is given they count
//! from 1. Enumerations, array lengths and SAL types are not in the SAL schema; the helio schema
//! has them as attributes.
//!
//! Operation. [`Interfaces::load`] takes paths and bytes (no I/O here) and gives components and
//! topics; a [`Topic`] then gives its names, its quality of service and its schemas on demand.

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
/// The most bytes that all files of a folder have together (release v27.1.1: 5 MB).
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
/// The most elements that a topic's fields have together (release v27.1.1: 14,486).
pub const MAX_ELEMENTS: u32 = 262_144;
/// The most labels in one enumeration.
pub const MAX_LABELS: usize = 4_096;
