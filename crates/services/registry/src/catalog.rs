//! The registry's state: applies changes and answers queries, without I/O or clock.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use helio_core::Schema;
use helio_core::confluent::Compatibility;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The most schemas of a registry, including deleted ones: twenty times those of a large
/// observatory.
pub const MAX_SCHEMAS: usize = 100_000;
/// The longest name of a subject, in bytes.
const MAX_SUBJECT_BYTES: usize = 1_024;

/// A change of the registry: a sample of its topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    /// A schema was registered in a subject.
    Registered {
        /// The subject.
        subject: String,
        /// The schema's version in the subject.
        version: u32,
        /// The schema's identifier in the registry.
        id: u32,
        /// Its text.
        schema: Arc<str>,
    },
    /// Versions of a subject were deleted.
    Deleted {
        /// The subject.
        subject: String,
        /// The deleted versions.
        versions: Vec<u32>,
        /// Whether they are removed for good; otherwise they can still be queried.
        permanent: bool,
    },
    /// A compatibility level was set or unset.
    Level {
        /// The subject; none for the global level.
        subject: Option<String>,
        /// The level's name; none if it was unset.
        level: Option<String>,
    },
    /// A mode was set or unset.
    Mode {
        /// The subject; none for the global mode.
        subject: Option<String>,
        /// The mode; none if it was unset.
        mode: Option<Mode>,
    },
}

/// Whether schemas can be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Mode {
    /// They can.
    #[default]
    Readwrite,
    /// They cannot, except in subjects with another mode of their own.
    Readonly,
    /// They cannot, whatever the subject's own mode is.
    ReadonlyOverride,
    /// They can under given numbers only, whatever the compatibility level is.
    Import,
}

impl FromStr for Mode {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text {
            "READWRITE" => Ok(Self::Readwrite),
            "READONLY" => Ok(Self::Readonly),
            "READONLY_OVERRIDE" => Ok(Self::ReadonlyOverride),
            "IMPORT" => Ok(Self::Import),
            other => Err(Refusal::Mode(other.chars().take(40).collect())),
        }
    }
}

/// A version of a subject.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) number: u32,
    pub(crate) id: u32,
    pub(crate) deleted: bool,
}

/// The version in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionSelector {
    Latest,
    Number(u32),
}

impl FromStr for VersionSelector {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text {
            "latest" | "-1" => Ok(Self::Latest),
            text => match text.parse() {
                Ok(number @ 1..=0x7fff_ffff) => Ok(Self::Number(number)),
                _ => Err(Refusal::Version(text.chars().take(40).collect())),
            },
        }
    }
}

/// Whether a query includes deleted versions that are not removed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    Include,
    Exclude,
}

impl From<bool> for Deleted {
    fn from(counts: bool) -> Self {
        if counts { Self::Include } else { Self::Exclude }
    }
}

/// The identifier and version that a request gives to a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Given {
    pub(crate) id: Option<u32>,
    pub(crate) version: Option<u32>,
}

/// Whether a mode is set in spite of existing schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

impl From<bool> for Force {
    fn from(force: bool) -> Self {
        if force { Self::Yes } else { Self::No }
    }
}

/// Subjects, schemas, levels and modes.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    subjects: BTreeMap<String, Vec<Version>>,
    texts: BTreeMap<u32, Arc<str>>,
    /// Identifiers by normalised text, so that a schema has one identifier.
    ids: BTreeMap<String, u32>,
    level: Option<Compatibility>,
    levels: BTreeMap<String, Compatibility>,
    mode: Option<Mode>,
    modes: BTreeMap<String, Mode>,
    newest_id: u32,
}

/// Normalises a schema: its JSON without spaces.
fn normal(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(value.to_string())
}

fn parse(text: &str) -> Result<(Schema, String), Refusal> {
    let schema = Schema::parse(text).map_err(|error| Refusal::Schema(error.to_string()))?;
    let normal = normal(text).ok_or_else(|| Refusal::Schema("not JSON".to_owned()))?;
    Ok((schema, normal))
}

impl Catalog {
    /// Applies a durable change.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Registered { subject, version, id, schema } => {
                let versions = self.subjects.entry(subject.clone()).or_default();
                versions.retain(|old| old.number != *version);
                versions.push(Version { number: *version, id: *id, deleted: false });
                versions.sort_by_key(|version| version.number);
                self.newest_id = self.newest_id.max(*id);
                self.texts.entry(*id).or_insert_with(|| Arc::clone(schema));
                // An import gives another number to a schema whose versions were removed for good.
                self.ids.insert(normal(schema).unwrap_or_default(), *id);
            }
            Change::Deleted { subject, versions, permanent } => {
                self.delete(subject, versions, *permanent)
            }
            Change::Level { subject, level } => {
                let level = level.as_deref().and_then(|word| word.parse().ok());
                set(&mut self.level, &mut self.levels, (subject, level));
            }
            Change::Mode { subject, mode } => {
                set(&mut self.mode, &mut self.modes, (subject, *mode))
            }
        }
    }

    fn delete(&mut self, subject: &str, numbers: &[u32], permanent: bool) {
        let Some(versions) = self.subjects.get_mut(subject) else { return };
        let named = |version: &Version| numbers.contains(&version.number);
        if permanent {
            versions.retain(|version| !named(version));
        } else {
            versions.iter_mut().filter(|v| named(v)).for_each(|version| version.deleted = true);
        }
        if versions.is_empty() {
            self.subjects.remove(subject);
            self.levels.remove(subject);
            self.modes.remove(subject);
        }
    }

    pub(crate) fn subjects(&self, deleted: Deleted, prefix: &str) -> Vec<&str> {
        let counts = |versions: &[Version]| {
            deleted == Deleted::Include || versions.iter().any(|version| !version.deleted)
        };
        let of = self
            .subjects
            .iter()
            .filter(|(name, versions)| name.starts_with(prefix) && counts(versions));
        of.map(|(name, _)| name.as_str()).collect()
    }

    /// The versions of a subject, oldest first.
    pub(crate) fn versions(
        &self,
        subject: &str,
        deleted: Deleted,
    ) -> Result<Vec<&Version>, Refusal> {
        let missing = || Refusal::NoSubject(subject.to_owned());
        let versions = self.subjects.get(subject).ok_or_else(missing)?;
        let counts = |version: &&Version| deleted == Deleted::Include || !version.deleted;
        let found: Vec<_> = versions.iter().filter(counts).collect();
        if found.is_empty() { Err(missing()) } else { Ok(found) }
    }

    pub(crate) fn version(
        &self,
        subject: &str,
        wanted: VersionSelector,
        deleted: Deleted,
    ) -> Result<&Version, Refusal> {
        let versions = self.versions(subject, deleted)?;
        match wanted {
            VersionSelector::Latest => versions.last().copied().ok_or(Refusal::NoSchema),
            VersionSelector::Number(number) => {
                let found = versions.into_iter().find(|version| version.number == number);
                found.ok_or(Refusal::NoVersion(number))
            }
        }
    }

    pub(crate) fn text(&self, id: u32) -> Result<&Arc<str>, Refusal> {
        self.texts.get(&id).ok_or(Refusal::NoId(id))
    }

    /// The subjects and versions that have a schema.
    pub(crate) fn usages(&self, id: u32, deleted: Deleted) -> Vec<(&str, u32)> {
        let all = self.subjects.iter().flat_map(|(subject, versions)| {
            versions.iter().map(move |version| (subject.as_str(), version))
        });
        let counts = |version: &Version| deleted == Deleted::Include || !version.deleted;
        let its = all.filter(|(_, version)| version.id == id && counts(version));
        its.map(|(subject, version)| (subject, version.number)).collect()
    }

    /// The newest version of a subject that has a schema.
    pub(crate) fn look_up(
        &self,
        subject: &str,
        text: &str,
        deleted: Deleted,
    ) -> Result<&Version, Refusal> {
        let versions = self.versions(subject, deleted)?;
        let (_, normal) = parse(text)?;
        let id = self.ids.get(&normal).ok_or(Refusal::NoSchema)?;
        versions.into_iter().rev().find(|version| version.id == *id).ok_or(Refusal::NoSchema)
    }

    /// The identifier of a schema and the change that registers it; no change if the subject has
    /// it. In import mode the request gives the identifier; otherwise it must not.
    pub(crate) fn register(
        &self,
        subject: &str,
        text: &str,
        given: Given,
    ) -> Result<(u32, Option<Change>), Refusal> {
        if subject.is_empty() || subject.len() > MAX_SUBJECT_BYTES {
            let reason = format!("a subject's name has 1 to {MAX_SUBJECT_BYTES} bytes");
            return Err(Refusal::Request(reason));
        }
        let (schema, normal) = parse(text)?;
        let known = self.ids.get(&normal).copied();
        let versions = self.versions(subject, Deleted::Exclude).unwrap_or_default();
        let has = known.and_then(|id| versions.iter().find(|version| version.id == id));
        let is_given = |version: &Version| {
            given.id.is_none_or(|id| id == version.id)
                && given.version.is_none_or(|number| number == version.number)
        };
        if let Some(version) = has.filter(|version| is_given(version)) {
            return Ok((version.id, None));
        }
        let name = || subject.to_owned();
        match (self.mode(subject), given.id) {
            (Mode::Readonly | Mode::ReadonlyOverride, _) => return Err(Refusal::ReadOnly(name())),
            (Mode::Import, None) => return Err(Refusal::NotReadWrite(name())),
            (Mode::Readwrite, Some(_)) => return Err(Refusal::NotImport(name())),
            _ => {}
        }
        if known.is_none() && self.texts.len() >= MAX_SCHEMAS {
            return Err(Refusal::Request(format!("the registry is full: {MAX_SCHEMAS} schemas")));
        }
        let id = match given.id {
            Some(id) => self.importable(id, known, &normal)?,
            None => {
                let objections = self.level(subject).objections(&self.schemas(&versions), &schema);
                if !objections.is_empty() {
                    return Err(Refusal::Incompatible(name(), objections.join("; ")));
                }
                known.unwrap_or(self.newest_id + 1)
            }
        };
        let version = self.next_version(subject, given.version)?;
        Ok((id, Some(Change::Registered { subject: name(), version, id, schema: text.into() })))
    }

    /// The given identifier, unless another schema has it, or the schema another identifier.
    fn importable(&self, id: u32, known: Option<u32>, normal: &str) -> Result<u32, Refusal> {
        let taken =
            self.texts.get(&id).is_some_and(|text| self::normal(text).as_deref() != Some(normal));
        if taken {
            return Err(Refusal::IdTaken(id));
        }
        let in_use =
            |known: &u32| *known != id && !self.usages(*known, Deleted::Include).is_empty();
        known.filter(in_use).map_or(Ok(id), |known| Err(Refusal::OtherId { id, known }))
    }

    /// The number of a subject's next version: the given one, unless it is taken. A deleted version
    /// keeps its number until it is removed for good.
    fn next_version(&self, subject: &str, given: Option<u32>) -> Result<u32, Refusal> {
        let all = self.subjects.get(subject).map_or(&[][..], Vec::as_slice);
        match given {
            Some(number) if all.iter().any(|version| version.number == number) => {
                Err(Refusal::VersionTaken(subject.to_owned(), number))
            }
            Some(number) => Ok(number),
            None => Ok(all.iter().map(|version| version.number).max().unwrap_or(0) + 1),
        }
    }

    /// The change that sets a mode. A subject or registry with schemas is not put into import mode
    /// unless it is forced, as identifiers might be given twice.
    pub(crate) fn mode_change(
        &self,
        subject: Option<String>,
        mode: Mode,
        force: Force,
    ) -> Result<Change, Refusal> {
        let is_empty = match &subject {
            Some(subject) => self.versions(subject, Deleted::Exclude).is_err(),
            None => self.subjects(Deleted::Exclude, "").is_empty(),
        };
        if mode == Mode::Import && force == Force::No && !is_empty {
            return Err(Refusal::NotEmpty);
        }
        Ok(Change::Mode { subject, mode: Some(mode) })
    }

    /// The incompatibilities of a schema with one version, or with all that the level compares.
    pub(crate) fn objections(
        &self,
        subject: &str,
        wanted: Option<VersionSelector>,
        text: &str,
    ) -> Result<Vec<String>, Refusal> {
        let (schema, _) = parse(text)?;
        let held = match wanted {
            Some(wanted) => vec![self.version(subject, wanted, Deleted::Exclude)?],
            None => self.versions(subject, Deleted::Exclude).unwrap_or_default(),
        };
        Ok(self.level(subject).objections(&self.schemas(&held), &schema))
    }

    fn schemas(&self, versions: &[&Version]) -> Vec<Schema> {
        let texts = versions.iter().filter_map(|version| self.texts.get(&version.id));
        texts.filter_map(|text| Schema::parse(text).ok()).collect()
    }

    /// The change that deletes versions.
    pub(crate) fn deletion(
        &self,
        subject: &str,
        wanted: Option<VersionSelector>,
        permanent: bool,
    ) -> Result<Change, Refusal> {
        let name = || subject.to_owned();
        if matches!(self.mode(subject), Mode::Readonly | Mode::ReadonlyOverride) {
            return Err(Refusal::ReadOnly(name()));
        }
        let all = self.versions(subject, Deleted::Include)?;
        let numbers: Vec<u32> = match wanted {
            None => {
                let live = all.iter().any(|version| !version.deleted);
                match (permanent, live) {
                    (true, true) => return Err(Refusal::SubjectNotDeleted(name())),
                    (false, false) => return Err(Refusal::SubjectDeleted(name())),
                    _ => {}
                }
                let chosen = all.iter().filter(|version| permanent || !version.deleted);
                chosen.map(|version| version.number).collect()
            }
            Some(wanted) => {
                let version = self.version(subject, wanted, Deleted::Include)?;
                match (permanent, version.deleted) {
                    (true, false) => {
                        return Err(Refusal::VersionNotDeleted(name(), version.number));
                    }
                    (false, true) => return Err(Refusal::VersionDeleted(name(), version.number)),
                    _ => vec![version.number],
                }
            }
        };
        Ok(Change::Deleted { subject: name(), versions: numbers, permanent })
    }

    /// The level in force for a subject.
    pub(crate) fn level(&self, subject: &str) -> Compatibility {
        self.levels.get(subject).copied().unwrap_or_else(|| self.common_level())
    }

    pub(crate) fn own_level(&self, subject: &str) -> Option<Compatibility> {
        self.levels.get(subject).copied()
    }

    /// The global level; by default backward, like Confluent's.
    pub(crate) fn common_level(&self) -> Compatibility {
        self.level.unwrap_or(Compatibility::Backward)
    }

    /// The mode in force for a subject.
    pub(crate) fn mode(&self, subject: &str) -> Mode {
        match self.common_mode() {
            Mode::ReadonlyOverride => Mode::ReadonlyOverride,
            common => self.modes.get(subject).copied().unwrap_or(common),
        }
    }

    pub(crate) fn own_mode(&self, subject: &str) -> Option<Mode> {
        self.modes.get(subject).copied()
    }

    pub(crate) fn common_mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }
}

fn set<T>(
    common: &mut Option<T>,
    own: &mut BTreeMap<String, T>,
    (subject, value): (&Option<String>, Option<T>),
) {
    match (subject, value) {
        (None, value) => *common = value,
        (Some(subject), Some(value)) => _ = own.insert(subject.clone(), value),
        (Some(subject), None) => _ = own.remove(subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = r#"{"type": "record", "name": "W", "fields": [
        {"name": "a", "type": "int", "default": 0}]}"#;
    const B: &str = r#"{"type": "record", "name": "W", "fields": [
        {"name": "a", "type": "double", "default": 0}]}"#;

    fn registered(catalog: &mut Catalog, subject: &str, text: &str) -> u32 {
        let (id, change) = catalog.register(subject, text, Given::default()).unwrap();
        // As read back from the topic.
        let change = change.map(|change| serde_json::to_string(&change).unwrap());
        change.iter().for_each(|text| catalog.apply(&serde_json::from_str(text).unwrap()));
        id
    }

    #[test]
    fn one_schema_has_one_number_and_a_subject_has_it_once() {
        let mut catalog = Catalog::default();
        assert_eq!(registered(&mut catalog, "s", A), 1);
        assert_eq!(registered(&mut catalog, "s", &A.replace([' ', '\n'], "")), 1);
        assert_eq!(registered(&mut catalog, "t", A), 1);
        assert_eq!(registered(&mut catalog, "s", B), 2);
        assert_eq!(catalog.usages(1, Deleted::Exclude), [("s", 1), ("t", 1)]);
        assert_eq!(catalog.subjects(Deleted::Exclude, ""), ["s", "t"]);
        assert_eq!(catalog.look_up("s", A, Deleted::Exclude).unwrap().number, 1);
        assert_eq!(catalog.look_up("t", B, Deleted::Exclude).unwrap_err(), Refusal::NoSchema);
        assert!(matches!(catalog.register("s", "{}", Given::default()), Err(Refusal::Schema(_))));
        assert!(matches!(catalog.register("", A, Given::default()), Err(Refusal::Request(_))));
    }

    #[test]
    fn levels_are_held_to_and_modes_too() {
        let mut catalog = Catalog::default();
        registered(&mut catalog, "s", B);
        assert!(matches!(
            catalog.register("s", A, Given::default()),
            Err(Refusal::Incompatible(..))
        ));
        assert_eq!(catalog.objections("s", None, A).unwrap().len(), 1);
        let level =
            |word: &str| Change::Level { subject: Some("s".into()), level: Some(word.into()) };
        catalog.apply(&level("NONE"));
        registered(&mut catalog, "s", A);
        catalog.apply(&level("FULL_TRANSITIVE"));
        assert_eq!(catalog.objections("s", Some(VersionSelector::Latest), A).unwrap().len(), 0);
        catalog.apply(&Change::Level { subject: Some("s".into()), level: None });
        assert_eq!(catalog.level("s"), Compatibility::Backward);
        catalog.apply(&Change::Mode { subject: None, mode: Some(Mode::Readonly) });
        assert!(matches!(catalog.register("u", A, Given::default()), Err(Refusal::ReadOnly(_))));
        assert_eq!(registered(&mut catalog, "s", A), 2);
        catalog.apply(&Change::Mode { subject: Some("u".into()), mode: Some(Mode::Readwrite) });
        registered(&mut catalog, "u", A);
        catalog.apply(&Change::Mode { subject: None, mode: Some(Mode::ReadonlyOverride) });
        assert!(matches!(catalog.register("u", B, Given::default()), Err(Refusal::ReadOnly(_))));
    }

    #[test]
    fn what_is_deleted_is_there_until_it_is_gone() {
        let mut catalog = Catalog::default();
        registered(&mut catalog, "s", A);
        registered(&mut catalog, "s", B);
        let delete = |catalog: &mut Catalog, wanted, permanent| {
            let change = catalog.deletion("s", wanted, permanent)?;
            catalog.apply(&change);
            Ok::<_, Refusal>(())
        };
        let one = VersionSelector::Number(1);
        let first = Some(one);
        let refused = delete(&mut catalog, first, true).unwrap_err();
        assert_eq!(refused, Refusal::VersionNotDeleted("s".into(), 1));
        delete(&mut catalog, first, false).unwrap();
        assert_eq!(catalog.version("s", one, Deleted::Exclude).unwrap_err(), Refusal::NoVersion(1));
        assert_eq!(catalog.versions("s", Deleted::Include).unwrap().len(), 2);
        delete(&mut catalog, first, true).unwrap();
        assert_eq!(catalog.versions("s", Deleted::Include).unwrap().len(), 1);
        delete(&mut catalog, None, false).unwrap();
        assert_eq!(
            delete(&mut catalog, None, false).unwrap_err(),
            Refusal::SubjectDeleted("s".into())
        );
        assert!(catalog.subjects(Deleted::Exclude, "").is_empty());
        // Its version numbers continue, and identifiers still find the old schemas.
        assert_eq!(registered(&mut catalog, "s", A), 1);
        assert_eq!(
            catalog.version("s", VersionSelector::Latest, Deleted::Exclude).unwrap().number,
            3
        );
        assert_eq!(&**catalog.text(2).unwrap(), B);
    }

    fn imported(catalog: &mut Catalog, subject: &str, text: &str, id: u32) -> Result<u32, Refusal> {
        let (id, change) =
            catalog.register(subject, text, Given { id: Some(id), version: None })?;
        change.iter().for_each(|change| catalog.apply(change));
        Ok(id)
    }

    #[test]
    fn identifiers_are_given_in_import_mode_only() {
        let mut catalog = Catalog::default();
        let given = Given { id: Some(900), version: None };
        assert_eq!(catalog.register("s", A, given), Err(Refusal::NotImport("s".into())));
        catalog.apply(&catalog.mode_change(None, Mode::Import, Force::No).unwrap());
        let refused = catalog.register("s", A, Given::default());
        assert_eq!(refused, Err(Refusal::NotReadWrite("s".into())));
        assert_eq!(imported(&mut catalog, "s", B, 900), Ok(900));
        // The level, backward, would refuse it.
        assert_eq!(imported(&mut catalog, "s", A, 1000), Ok(1000));
        assert_eq!(imported(&mut catalog, "s", A, 1000), Ok(1000));
        assert_eq!(imported(&mut catalog, "t", A, 1000), Ok(1000));
        assert_eq!(imported(&mut catalog, "u", r#""int""#, 900), Err(Refusal::IdTaken(900)));
        let refused = imported(&mut catalog, "s", B, 901);
        assert_eq!(refused, Err(Refusal::OtherId { id: 901, known: 900 }));
        let version = Given { id: Some(7), version: Some(1) };
        let refused = catalog.register("s", r#""int""#, version);
        assert_eq!(refused, Err(Refusal::VersionTaken("s".into(), 1)));
        let refused = catalog.mode_change(Some("s".into()), Mode::Import, Force::No);
        assert_eq!(refused, Err(Refusal::NotEmpty));
        assert!(catalog.mode_change(Some("s".into()), Mode::Import, Force::Yes).is_ok());
        catalog.apply(&catalog.mode_change(None, Mode::Readwrite, Force::No).unwrap());
        assert_eq!(registered(&mut catalog, "u", r#""int""#), 1001);
    }

    /// As Rubin's tool does it: all subjects are removed, and imported under their numbers.
    #[test]
    fn a_schema_is_imported_under_another_number_once_its_subjects_are_gone() {
        let mut catalog = Catalog::default();
        assert_eq!(registered(&mut catalog, "s", A), 1);
        for permanent in [false, true] {
            catalog.apply(&catalog.deletion("s", None, permanent).unwrap());
        }
        catalog.apply(&catalog.mode_change(None, Mode::Import, Force::No).unwrap());
        assert_eq!(imported(&mut catalog, "s", A, 900), Ok(900));
        assert_eq!(catalog.look_up("s", A, Deleted::Exclude).unwrap().id, 900);
        // Samples that were written under the first number can still be read.
        assert_eq!(&**catalog.text(1).unwrap(), A);
        assert_eq!(&**catalog.text(900).unwrap(), A);
    }

    /// The samples of `_schemas`, in full; a rename must not change the format on disk.
    #[test]
    fn the_format_of_changes() {
        let subject = || "s".to_owned();
        let mode = |subject, mode| Change::Mode { subject, mode };
        let schema = r#"{"type":"int"}"#.into();
        let goldens = [
            (
                Change::Registered { subject: subject(), version: 2, id: 7, schema },
                concat!(
                    r#"{"change":"registered","subject":"s","version":2,"id":7,"#,
                    r#""schema":"{\"type\":\"int\"}"}"#
                ),
            ),
            (
                Change::Deleted { subject: subject(), versions: vec![1, 2], permanent: true },
                r#"{"change":"deleted","subject":"s","versions":[1,2],"permanent":true}"#,
            ),
            (
                Change::Level { subject: None, level: Some("FULL".to_owned()) },
                r#"{"change":"level","subject":null,"level":"FULL"}"#,
            ),
            (
                mode(Some(subject()), Some(Mode::Readonly)),
                r#"{"change":"mode","subject":"s","mode":"READONLY"}"#,
            ),
            (
                mode(None, Some(Mode::Readwrite)),
                r#"{"change":"mode","subject":null,"mode":"READWRITE"}"#,
            ),
            (
                mode(None, Some(Mode::ReadonlyOverride)),
                r#"{"change":"mode","subject":null,"mode":"READONLY_OVERRIDE"}"#,
            ),
            (mode(None, Some(Mode::Import)), r#"{"change":"mode","subject":null,"mode":"IMPORT"}"#),
            (mode(None, None), r#"{"change":"mode","subject":null,"mode":null}"#),
        ];
        for (change, golden) in goldens {
            assert_eq!(serde_json::to_string(&change).unwrap(), golden);
            assert_eq!(serde_json::from_str::<Change>(golden).unwrap(), change);
        }
    }
}
