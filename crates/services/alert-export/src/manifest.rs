//! The manifest of an export: what is in which file, and where the export resumes.
//!
//! Format: `docs/formats/alert-export.md`.

use std::collections::BTreeMap;

use crc32c::crc32c;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::options::{Compression, ExportOptions, Format, Selection, StampsChoice};
use crate::{ExportError, VisitReport};

/// The manifest's name in the folder.
pub const FILE_NAME: &str = "export.json";
/// The value of its `format`.
const MAGIC: &str = "heliograph alert export";
/// The version of its format.
const VERSION: u32 = 1;

/// The files of an export, and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    /// The selection: other options than these are refused.
    pub(crate) export: Description,
    /// The readings of the log. Only the last one may be unfinished.
    pub(crate) passes: Vec<PassState>,
    pub(crate) parts: Vec<Part>,
    /// The visits that are exported completely, in their order.
    pub(crate) visits: Vec<VisitReport>,
}

/// The selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The identity of the bus.
    bus: String,
    topic: String,
    visits: String,
    files: Format,
    compression: Compression,
    columns: Option<Vec<String>>,
    stamps: StampsChoice,
    filter: Option<FilterText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FilterText {
    name: String,
    text: String,
}

/// One reading of the log, for visits that were decided when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassState {
    /// The visits, in the order of their ends.
    pub(crate) visits: Vec<i64>,
    /// The position of each partition up to which finished files have the alerts.
    pub(crate) next: Vec<u64>,
    /// Where the first alert is, in each partition, of visits that are not complete in these files.
    pub(crate) rescan: Vec<u64>,
    pub(crate) is_finished: bool,
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) file: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// XXH3-128 of the file, 32 hexadecimal digits.
    pub(crate) xxh3: String,
    /// The identity of the packets' schema, in Avro files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<String>,
    /// The rows of each visit.
    pub(crate) visits: BTreeMap<i64, u64>,
    /// The positions whose alerts it has, but for those of other visits, schemas or filters.
    pub(crate) ranges: Vec<Range>,
}

/// Positions of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) partition: u32,
    /// The first.
    pub(crate) from: u64,
    /// The one behind the last.
    pub(crate) to: u64,
}

impl Description {
    pub(crate) fn new(
        bus: String,
        topic: &str,
        visits: &Selection,
        options: &ExportOptions,
    ) -> Result<Self, ExportError> {
        let filter = options.filter.as_ref();
        Ok(Self {
            bus,
            topic: topic.to_owned(),
            visits: visits.to_string(),
            files: options.format,
            compression: options.check()?,
            columns: options.columns.clone(),
            stamps: options.stamps,
            filter: filter.map(|f| FilterText { name: f.name.clone(), text: f.text.clone() }),
        })
    }

    /// Compares with what is asked for.
    pub(crate) fn expect(&self, asked: &Self) -> Result<(), ExportError> {
        let name = |filter: &Option<FilterText>| match filter {
            None => "none".to_owned(),
            Some(FilterText { name, text }) => format!("{name} {text:?}"),
        };
        let columns = |columns: &Option<Vec<String>>| match columns {
            None => "not named".to_owned(),
            Some(columns) => columns.join(", "),
        };
        let texts = |one: &Self| {
            [
                ("the bus", one.bus.clone()),
                ("the topic", one.topic.clone()),
                ("the visits", one.visits.clone()),
                ("the format", one.files.as_str().to_owned()),
                ("the compression", one.compression.as_str().to_owned()),
                ("the columns", columns(&one.columns)),
                ("the stamps", one.stamps.as_str().to_owned()),
                ("the filter", name(&one.filter)),
            ]
        };
        let mut pairs = texts(self).into_iter().zip(texts(asked));
        match pairs.find(|((_, stored), (_, asked))| stored != asked) {
            Some(((field, stored), (_, asked))) => Err(ExportError::Other { field, stored, asked }),
            None => Ok(()),
        }
    }
}

impl Manifest {
    pub(crate) fn new(export: Description) -> Self {
        let (passes, parts, visits) = (Vec::new(), Vec::new(), Vec::new());
        Self { format: MAGIC.to_owned(), version: VERSION, export, passes, parts, visits }
    }

    /// Reads a manifest; the error is its cause.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let damaged = |cause: &dyn std::fmt::Display| format!("the manifest is damaged: {cause}");
        let sealed: Json = serde_json::from_slice(text).map_err(|error| damaged(&error))?;
        let manifest = &sealed["manifest"];
        if manifest["format"] != MAGIC {
            return Err(format!("no manifest of an export: its format is not {MAGIC:?}"));
        }
        if manifest["version"] != VERSION {
            let found = &manifest["version"];
            return Err(format!("a manifest of version {found}; this program reads {VERSION}"));
        }
        let sum = checksum(manifest);
        if sealed["crc32c"] != sum.as_str() {
            return Err(damaged(&"its checksum is another"));
        }
        Self::deserialize(manifest).map_err(|error| damaged(&error))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let manifest = serde_json::to_value(self).expect("its keys are texts and numbers");
        let sealed = serde_json::json!({ "crc32c": checksum(&manifest), "manifest": manifest });
        format!("{sealed:#}\n").into_bytes()
    }

    /// The pass that is not finished.
    pub(crate) fn unfinished(&self) -> Option<&PassState> {
        self.passes.last().filter(|pass| !pass.is_finished)
    }
}

/// CRC-32C of the manifest's JSON without white space, 8 hexadecimal digits.
fn checksum(manifest: &Json) -> String {
    format!("{:08x}", crc32c(manifest.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let visits = Selection::Visits([7, 9].into());
        let options = ExportOptions::default();
        let mut manifest =
            Manifest::new(Description::new("b".to_owned(), "alerts", &visits, &options).unwrap());
        manifest.passes.push(PassState {
            visits: vec![7],
            next: vec![10, 20],
            rescan: vec![10, 18],
            is_finished: false,
        });
        manifest.parts.push(Part {
            file: "alerts-00001.parquet".to_owned(),
            rows: 3,
            bytes: 400,
            xxh3: "0".repeat(32),
            schema: None,
            visits: [(7, 3)].into(),
            ranges: vec![Range { partition: 1, from: 2, to: 20 }],
        });
        manifest
    }

    #[test]
    fn a_manifest_is_read_as_written_and_damage_is_found() {
        let bytes = manifest().to_bytes();
        assert_eq!(Manifest::parse(&bytes), Ok(manifest()));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to, cause) in [
            ("\"rows\": 3", "\"rows\": 4", "the manifest is damaged: its checksum is another"),
            ("\"version\": 1", "\"version\": 2", "a manifest of version 2; this program reads 1"),
            ("heliograph", "another", "no manifest of an export: its format is not"),
        ] {
            let found = Manifest::parse(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(found.starts_with(cause), "{found}");
        }
        for end in (0..text.len()).step_by(97) {
            assert!(Manifest::parse(&text.as_bytes()[..end]).is_err());
        }
    }

    #[test]
    fn other_options_are_named() {
        let other = |change: &dyn Fn(&mut ExportOptions)| {
            let mut options = ExportOptions::default();
            change(&mut options);
            let visits = Selection::Visits([7, 9].into());
            let asked = Description::new("b".to_owned(), "alerts", &visits, &options).unwrap();
            manifest().export.expect(&asked).unwrap_err().to_string()
        };
        let found = other(&|options| options.format = Format::Avro);
        assert!(found.contains("the format parquet, not avro"), "{found}");
        let found = other(&|options| options.columns = Some(vec!["a".to_owned()]));
        assert!(found.contains("the columns not named, not a"), "{found}");
    }
}
