//! The table of records and fields, and the schemas made of it.

use std::collections::HashSet;
use std::sync::OnceLock;

use helio_core::Schema;
use serde_json::{Map, Value as Json, json};

use super::Version;

const TEXT: &str = include_str!("schemas.txt");
/// The name of the packet's record.
const ROOT: &str = "alert";
/// The bands that a block of `bands` stands for, in the packets' order.
const BANDS: [&str; 6] = ["u", "g", "r", "i", "z", "y"];

/// The versions of a record or field: first and last.
type Versions = (Version, Version);

#[derive(Debug)]
pub(super) struct Table {
    records: Vec<RecordRow>,
}

#[derive(Debug)]
struct RecordRow {
    names: Names,
    versions: Versions,
    doc: String,
    fields: Vec<FieldRow>,
}

#[derive(Debug, Clone)]
struct FieldRow {
    names: Names,
    /// A type's word, or the name of a record.
    kind: String,
    is_array: bool,
    is_nullable: bool,
    units: Option<String>,
    versions: Versions,
    doc: String,
}

#[derive(Debug, Clone)]
struct Names {
    name: String,
    aliases: Vec<String>,
}

/// What a schema is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Write(Version),
    ReadAll,
}

impl Table {
    /// The table of this crate.
    pub(super) fn ours() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| Self::parse(TEXT).expect("the table is compiled in, and tested"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut records: Vec<RecordRow> = Vec::new();
        let mut block: Option<Vec<FieldRow>> = None;
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
        for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
            let wrong = || format!("line {number} of the table: {line:?}");
            if let Some(head) = line.strip_prefix("record ") {
                records.push(RecordRow::parse(head).ok_or_else(wrong)?);
                continue;
            }
            let record = records.last_mut().ok_or_else(wrong)?;
            match (line, &mut block) {
                ("bands", _) => block = Some(Vec::new()),
                ("end", _) => {
                    let rows = block.take().ok_or_else(wrong)?;
                    let all = BANDS.iter().flat_map(|band| rows.iter().map(|row| row.of(band)));
                    record.fields.extend(all);
                }
                (field, Some(rows)) => rows.push(FieldRow::parse(field).ok_or_else(wrong)?),
                (field, None) => record.fields.push(FieldRow::parse(field).ok_or_else(wrong)?),
            }
        }
        Ok(Self { records })
    }

    pub(super) fn schema(&self, version: Version) -> Schema {
        let (major, minor) = version.numbers();
        self.build(Purpose::Write(version), &format!("lsst.v{major}_{minor}"))
    }

    pub(super) fn reader(&self) -> Schema {
        self.build(Purpose::ReadAll, "lsst.reader")
    }

    fn build(&self, purpose: Purpose, namespace: &str) -> Schema {
        let mut json = self.record(ROOT, purpose, &mut HashSet::new());
        json["namespace"] = namespace.into();
        Schema::from_json(&json).expect("the table is compiled in, and tested")
    }

    /// The record of that name in a version, or of that alias.
    fn find(&self, name: &str, version: Version) -> Option<&RecordRow> {
        let mut records = self.records.iter().filter(|row| has(row.versions, version));
        records.find(|row| row.names.answer_to(name))
    }

    fn record(&self, name: &str, purpose: Purpose, seen: &mut HashSet<String>) -> Json {
        let version = purpose.version();
        let row = self.find(name, version).filter(|_| seen.insert(name.to_owned()));
        let Some(row) = row else { return name.into() };
        let mut out = Map::new();
        out.insert("type".into(), "record".into());
        row.names.describe(&row.doc, &mut out);
        let fields = row.fields.iter().filter(|field| has(field.versions, version));
        let fields = fields.map(|field| {
            let nullable =
                field.is_nullable || purpose == Purpose::ReadAll && self.may_lack(row, field);
            let mut kind = self.kind(&field.kind, purpose, seen);
            if field.is_array {
                kind = json!({"type": "array", "items": kind});
            }
            let mut out = Map::new();
            field.names.describe(&field.doc, &mut out);
            out.insert("type".into(), if nullable { json!(["null", kind]) } else { kind });
            if nullable {
                out.insert("default".into(), Json::Null);
            }
            if let Some(units) = &field.units {
                out.insert("units".into(), units.clone().into());
            }
            Json::Object(out)
        });
        out.insert("fields".into(), fields.collect());
        Json::Object(out)
    }

    fn kind(&self, kind: &str, purpose: Purpose, seen: &mut HashSet<String>) -> Json {
        match kind {
            "micros" => json!({"type": "long", "logicalType": "timestamp-micros"}),
            plain if self.find(plain, purpose.version()).is_none() => plain.into(),
            record => self.record(record, purpose, seen),
        }
    }

    /// Whether the packets of some version may lack a record's field.
    fn may_lack(&self, record: &RecordRow, field: &FieldRow) -> bool {
        let required = |version: Version| {
            let fields = self.find(&record.names.name, version).map_or(&[][..], |row| &row.fields);
            let mut fields = fields.iter().filter(|row| has(row.versions, version));
            fields.any(|row| field.names.overlap(&row.names) && !row.is_nullable)
        };
        !Version::ALL.into_iter().all(required)
    }
}

impl Purpose {
    fn version(self) -> Version {
        match self {
            Self::Write(version) => version,
            Self::ReadAll => Version::LATEST,
        }
    }
}

impl RecordRow {
    /// Parses `name [versions] : text`.
    fn parse(line: &str) -> Option<Self> {
        let (head, doc) = line.split_once(" : ")?;
        let mut words = head.split_whitespace();
        let names = Names::parse(words.next()?);
        let versions = words.next().map_or_else(|| versions("*"), versions)?;
        Some(Self { names, versions, doc: doc.to_owned(), fields: Vec::new() })
    }
}

impl FieldRow {
    /// Parses `name type unit versions text`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let names = Names::parse(words.next()?);
        let kind = words.next()?;
        let bare = kind.trim_end_matches('?');
        let item = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let units = words.next().map(str::to_owned).filter(|units| units != "-");
        let versions = versions(words.next()?)?;
        let doc = words.collect::<Vec<_>>().join(" ");
        (!doc.is_empty()).then(|| Self {
            names,
            kind: item.unwrap_or(bare).to_owned(),
            is_array: item.is_some(),
            is_nullable: bare != kind,
            units,
            versions,
            doc,
        })
    }

    /// The same field of a band.
    fn of(&self, band: &str) -> Self {
        let mut row = self.clone();
        row.names.name = row.names.name.replace("{b}", band);
        row.doc = row.doc.replace("{b}", band);
        row
    }
}

impl Names {
    fn parse(text: &str) -> Self {
        let (name, aliases) = text.split_once('=').unwrap_or((text, ""));
        let aliases = aliases.split(',').filter(|alias| !alias.is_empty());
        Self { name: name.to_owned(), aliases: aliases.map(str::to_owned).collect() }
    }

    fn answer_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    fn overlap(&self, other: &Self) -> bool {
        self.answer_to(&other.name) || other.answer_to(&self.name)
    }

    fn describe(&self, doc: &str, out: &mut Map<String, Json>) {
        out.insert("name".into(), self.name.clone().into());
        if !self.aliases.is_empty() {
            out.insert("aliases".into(), self.aliases.clone().into());
        }
        out.insert("doc".into(), doc.into());
    }
}

/// Parses `*`, `..9.0`, `10.0..` or `10.0..11.0`.
fn versions(text: &str) -> Option<Versions> {
    let (first, last) = if text == "*" { ("", "") } else { text.split_once("..")? };
    let or = |text: &str, other| if text.is_empty() { Some(other) } else { text.parse().ok() };
    Some((or(first, Version::ALL[0])?, or(last, Version::LATEST)?))
}

fn has(versions: Versions, version: Version) -> bool {
    versions.0 <= version && version <= versions.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_is_named() {
        let table = |lines: &str| Table::parse(&format!("record r : A record\n{lines}"));
        assert!(table("a int - * A field").is_ok());
        for wrong in ["a int - *", "a int - 9.0 A field", "a int - 8.0.. A field", "end"] {
            let error = table(wrong).map(drop).unwrap_err();
            assert!(error.starts_with("line 2 of the table"), "{error}");
        }
        assert!(Table::parse("a int - * A field").is_err());
    }

    #[test]
    fn only_what_all_versions_always_have_is_required_of_a_reader() {
        let table = Table::ours();
        let required = |record: &str, field: &str| {
            let row = table.find(record, Version::LATEST).unwrap();
            let field = row.fields.iter().rev().find(|row| row.names.name == field).unwrap();
            !field.is_nullable && !table.may_lack(row, field)
        };
        assert!(required("diaSource", "ra") && required("diaObject", "nDiaSources"));
        assert!(!required("diaSource", "psfNdata"));
        assert!(!required("ssSource", "eclLambda") && !required("mpc_orbits", "id"));
    }
}
