//! The schemas of Rubin's alert packets.
//!
//! They are built from one table, `schemas.txt`, which is ours: the field names, types and order
//! are those that the observatory publishes, the descriptions and units are not copied. A test
//! compares the canonical forms with the package lsst-alert-packet. Defaults and aliases go beyond
//! the published schemas; no canonical form has either.

mod table;

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use helio_core::Schema;
use thiserror::Error;

use table::Table;

/// A version of Rubin's alert schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 9.0, the first of the survey's commissioning.
    V9_0,
    /// 10.0: orbits are the Minor Planet Center's (`mpc_orbits`), `ssSource` is another.
    V10_0,
    /// 11.0: numbers of data points are never null.
    V11_0,
    /// 11.1: exposure time, trail algorithm and the version of the reliability's model.
    V11_1,
}

/// The error of a version that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown version {0:?} of Rubin's alert schema; known are 9.0, 10.0, 11.0 and 11.1")]
pub struct VersionError(String);

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 4] = [Self::V9_0, Self::V10_0, Self::V11_0, Self::V11_1];
    /// The newest version.
    pub const LATEST: Self = Self::V11_1;

    /// Returns the schema's number in Rubin's registry, which frames packets: 100 times the major
    /// version plus the minor one.
    #[must_use]
    pub fn registry_id(self) -> u32 {
        let (major, minor) = self.numbers();
        major * 100 + minor
    }

    /// Returns the version with a number in Rubin's registry.
    #[must_use]
    pub fn of_registry_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.registry_id() == id)
    }

    /// Returns the schema of the version's packets.
    #[must_use]
    pub fn schema(self) -> &'static Schema {
        static SCHEMAS: [OnceLock<Schema>; Version::ALL.len()] =
            [const { OnceLock::new() }; Version::ALL.len()];
        SCHEMAS[self as usize].get_or_init(|| Table::ours().schema(self))
    }

    fn numbers(self) -> (u32, u32) {
        match self {
            Self::V9_0 => (9, 0),
            Self::V10_0 => (10, 0),
            Self::V11_0 => (11, 0),
            Self::V11_1 => (11, 1),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.numbers();
        write!(f, "{major}.{minor}")
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let found = Self::ALL.into_iter().find(|version| version.to_string() == text);
        found.ok_or_else(|| VersionError(text.chars().take(40).collect()))
    }
}

/// Returns a schema that reads the packets of all versions: the newest one's fields, each of which
/// may be null unless all versions always have it. Renamed records and fields are aliases.
#[must_use]
pub fn reader_schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Table::ours().reader())
}
