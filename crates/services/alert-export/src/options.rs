//! Options: selection, format, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use helio_alerts::reader::Night;
use helio_filter::{LiveWatchList, Region};
use serde::{Deserialize, Serialize};

use crate::ExportError;

/// The bytes of a finished file, unless the options have others: some thousand packets with stamps.
pub const PART_BYTES: u64 = 1 << 30;
/// The bytes of alerts read after which a file is finished, unless the options have others: what a
/// kill costs an export of few alerts is reading these again.
pub const PART_INPUT_BYTES: u64 = 64 << 30;

/// The alerts of a batch, unless the options have others: enough for Arrow's kernels.
pub const BATCH_ALERTS: usize = 1_024;

/// The visits to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Those whose shutter closed in a night.
    Night(Night),
    /// These.
    Visits(BTreeSet<i64>),
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Night(night) => write!(f, "of the night {night}"),
            Self::Visits(visits) => {
                let visits: Vec<_> = visits.iter().map(i64::to_string).collect();
                f.write_str(&visits.join(", "))
            }
        }
    }
}

/// The format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Apache Parquet: columns.
    #[default]
    Parquet,
    /// Avro object container files: packets, a file for each schema.
    Avro,
}

/// The compression of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None.
    None,
    /// Zstandard; Parquet only, and its default.
    Zstd,
    /// Deflate; Avro only, and its default: all readers have it.
    Deflate,
    /// Snappy; Avro only. Faster, and a little larger.
    Snappy,
}

/// Whether stamps are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StampsChoice {
    /// Nothing.
    #[default]
    None,
    /// Their files, in the packets or in columns.
    Inline,
}

macro_rules! named {
    ($kind:ty, $what:literal, $($name:literal => $value:expr),+) => {
        impl $kind {
            /// Its name in options and manifests.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                $(if self == $value { return $name; })+
                unreachable!("all values have names")
            }
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err(format!(concat!("unknown ", $what, " {:?}; known are {}"), text,
                        [$($name),+].join(", "))),
                }
            }
        }
    };
}

named!(Format, "format", "parquet" => Self::Parquet, "avro" => Self::Avro);
named!(Compression, "compression", "none" => Self::None, "zstd" => Self::Zstd,
    "deflate" => Self::Deflate, "snappy" => Self::Snappy);
named!(StampsChoice, "choice of stamps", "none" => Self::None, "inline" => Self::Inline);

/// The alerts to export: those that a filter matches, without its cap.
#[derive(Debug, Clone, Default)]
pub struct FilterQuery {
    /// Its name and version, for the manifest; empty for a text.
    pub name: String,
    /// Its SQL.
    pub text: String,
    /// The regions that it may name.
    pub regions: BTreeMap<String, Region>,
    /// The watch lists that it may name.
    pub watch_lists: BTreeMap<String, Arc<LiveWatchList>>,
}

/// Options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The format of the files.
    pub format: Format,
    /// Their compression; `None` is the format's default.
    pub compression: Option<Compression>,
    /// The columns of Parquet files, as paths such as `diaSource.snr` or `prvDiaSources[].psfFlux`.
    /// `None` are those of the filter's SELECT, or all without one.
    pub columns: Option<Vec<String>>,
    /// Whether stamps are exported.
    pub stamps: StampsChoice,
    /// The alerts to export; `None` are all.
    pub filter: Option<FilterQuery>,
    /// The bytes after which a file is finished.
    pub part_bytes: u64,
    /// The bytes of alerts read after which a file is finished.
    pub part_input_bytes: u64,
    /// The alerts after which a batch is filtered and written.
    pub batch_alerts: usize,
}

impl Default for ExportOptions {
    /// All alerts as Parquet files of 1 GiB, without stamps.
    fn default() -> Self {
        Self {
            format: Format::default(),
            compression: None,
            columns: None,
            stamps: StampsChoice::default(),
            filter: None,
            part_bytes: PART_BYTES,
            part_input_bytes: PART_INPUT_BYTES,
            batch_alerts: BATCH_ALERTS,
        }
    }
}

impl ExportOptions {
    /// The compression of the files.
    ///
    /// # Errors
    /// [`ExportError::Options`] if the format does not have it, or has no columns.
    pub(crate) fn check(&self) -> Result<Compression, ExportError> {
        if self.format == Format::Avro && self.columns.is_some() {
            return Err(ExportError::Options(
                "Avro files have whole packets; choose columns with the format parquet",
            ));
        }
        match (self.format, self.compression) {
            (Format::Parquet, None) => Ok(Compression::Zstd),
            (Format::Avro, None) => Ok(Compression::Deflate),
            (Format::Parquet, Some(Compression::Deflate | Compression::Snappy)) => {
                Err(ExportError::Options("Parquet files are written with zstd or none"))
            }
            (Format::Avro, Some(Compression::Zstd)) => {
                Err(ExportError::Options("Avro files are written with deflate, snappy or none"))
            }
            (_, Some(compression)) => Ok(compression),
        }
    }
}
