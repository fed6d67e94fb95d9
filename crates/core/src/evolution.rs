//! Differences between two versions of a schema, and their compatibility.
//!
//! *Backward*: readers with the new schema read old data. *Forward*: readers with the old schema
//! read new data. Each [`Difference`] has its own compatibility; a schema's [`Level`] is the one
//! that holds for all of them. The rules are stricter than Avro's. Avro admits changes that a
//! reader silently sees as 0, as an array of another length, or in another unit:
//!
//! | change | backward | forward |
//! | --- | --- | --- |
//! | field added with a default / without | yes / no | yes |
//! | field removed, whatever its default | yes | no: old readers would see a default |
//! | field renamed, the old name kept as an alias | yes | no |
//! | type widened (`int` to `long`…) / narrowed | yes / no | no / yes |
//! | type changed otherwise, `fixed` size, name without alias, logical type | no | no |
//! | `string` to `bytes` or back | yes | yes |
//! | union's branch added / removed | yes / no | no / yes |
//! | enumeration's symbol or label added | yes | no, unless the old symbols have a default |
//! | enumeration's symbol or label removed | no, unless the new symbols have a default | yes |
//! | label renumbered | no | no |
//! | array's `length` changed / fixed / freed | no / no / yes | no / yes / no |
//! | unit changed | no | no |
//! | integer's range or raw array's shape widened / narrowed | yes / no | no / yes |
//! | unit, labels or other logical type newly stated or no longer | yes | yes |
//! | default or SAL type changed | yes | yes |
//!
//! The order of fields and all documentation do not count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::Serialize;

use crate::resolve::{Answer, answers, sources};
use crate::schema::{Enum, Field, Node, NodeId, Reads, Record, Schema, Type};

/// The limit of differences that are listed for one schema.
pub const MAX_DIFFERENCES: usize = 10_000;

/// Compatibility of two versions of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Both ways.
    Full,
    /// Old readers read new data; new readers cannot read old data.
    Forward,
    /// New readers read old data; old readers cannot read new data.
    Backward,
    /// Neither.
    Breaking,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Breaking => "breaking",
        })
    }
}

impl Level {
    fn of(backward: bool, forward: bool) -> Self {
        match (backward, forward) {
            (true, true) => Self::Full,
            (false, true) => Self::Forward,
            (true, false) => Self::Backward,
            (false, false) => Self::Breaking,
        }
    }

    /// Returns whether new readers read old data.
    #[must_use]
    pub fn is_backward(self) -> bool {
        matches!(self, Self::Full | Self::Backward)
    }

    /// Returns whether old readers read new data.
    #[must_use]
    pub fn is_forward(self) -> bool {
        matches!(self, Self::Full | Self::Forward)
    }

    /// Returns the compatibility of two changes together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let backward = self.is_backward() && other.is_backward();
        Self::of(backward, self.is_forward() && other.is_forward())
    }
}

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A field was added.
    FieldAdded,
    /// A field was removed.
    FieldRemoved,
    /// A field was renamed, with the old name as an alias.
    FieldRenamed,
    /// A field's default changed.
    Default,
    /// A type changed: widened, narrowed or otherwise.
    Type,
    /// A record, enumeration or fixed was renamed.
    Name,
    /// A fixed's size changed.
    Size,
    /// An array's length changed.
    Length,
    /// A unit changed.
    Units,
    /// A symbol or label was added, removed or renumbered.
    Enumeration,
    /// A union's branch was added or removed.
    Branch,
    /// A logical type changed.
    Logical,
    /// The SAL type changed.
    SalType,
}

/// One difference between two versions of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field, for example `sources.[].flux`; empty for the schema as a whole.
    pub at: String,
    /// The kind of change.
    pub change: Change,
    /// The old value; `None` if there was none.
    pub old: Option<String>,
    /// The new value; `None` if there is none.
    pub new: Option<String>,
    /// The compatibility of this difference alone.
    pub level: Level,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "the schema" } else { &self.at };
        let what = match self.change {
            Change::FieldAdded => "field added",
            Change::FieldRemoved => "field removed",
            Change::FieldRenamed => "field renamed",
            Change::Default => "default",
            Change::Type => "type",
            Change::Name => "name",
            Change::Size => "size",
            Change::Length => "length",
            Change::Units => "units",
            Change::Enumeration => "enumeration",
            Change::Branch => "branch",
            Change::Logical => "logical type",
            Change::SalType => "SAL type",
        };
        write!(f, "{at}: {what}")?;
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, " {old} -> {new}")?,
            (Some(old), None) => write!(f, " {old} -> none")?,
            (None, Some(new)) => write!(f, " {new}")?,
            (None, None) => {}
        }
        write!(f, " ({})", self.level)
    }
}

/// The differences between two versions of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evolution {
    /// The compatibility that holds for all differences.
    pub level: Level,
    /// The differences in the order of the new schema, up to [`MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
}

/// The change of a topic between two versions of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicChange {
    /// It was added.
    Added,
    /// It was removed.
    Removed,
    /// Its schema changed.
    Changed(Evolution),
}

/// Compares two versions of one schema.
#[must_use]
pub fn compare(old: &Schema, new: &Schema) -> Evolution {
    let mut walk = Walk {
        old,
        new,
        seen: HashSet::new(),
        path: Vec::new(),
        level: Level::Full,
        differences: Vec::new(),
    };
    walk.types(NodeId::ROOT, NodeId::ROOT);
    Evolution { level: walk.level, differences: walk.differences }
}

/// Compares two versions of an interface: topics' schemas by name. Topics without a difference are
/// left out.
#[must_use]
pub fn compare_topics<'a>(
    old: &BTreeMap<&'a str, Schema>,
    new: &BTreeMap<&'a str, Schema>,
) -> BTreeMap<&'a str, TopicChange> {
    let mut out = BTreeMap::new();
    for (name, schema) in new {
        let Some(before) = old.get(name) else {
            out.insert(*name, TopicChange::Added);
            continue;
        };
        let evolution = compare(before, schema);
        if !evolution.differences.is_empty() {
            out.insert(*name, TopicChange::Changed(evolution));
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        out.insert(*name, TopicChange::Removed);
    }
    out
}

struct Walk<'a> {
    old: &'a Schema,
    new: &'a Schema,
    seen: HashSet<(NodeId, NodeId)>,
    path: Vec<&'a str>,
    level: Level,
    differences: Vec<Difference>,
}

/// The limit of compared nesting. In a sensible schema, deeper types were compared before.
const MAX_DEPTH: usize = 200;

impl<'a> Walk<'a> {
    fn add(&mut self, change: Change, old: Option<String>, new: Option<String>, level: Level) {
        self.level = self.level.and(level);
        if self.differences.len() < MAX_DIFFERENCES {
            let at = self.path.join(".");
            self.differences.push(Difference { at, change, old, new, level });
        }
    }

    /// The change of an optional attribute.
    fn stated<T: PartialEq + ToString>(
        &mut self,
        change: Change,
        old: Option<T>,
        new: Option<T>,
        changed: Level,
    ) {
        if old != new {
            let level = if old.is_some() && new.is_some() { changed } else { Level::Full };
            let text = |value: Option<T>| value.map(|value| value.to_string());
            self.add(change, text(old), text(new), level);
        }
    }

    fn within(&mut self, segment: &'a str, old: NodeId, new: NodeId) {
        self.path.push(segment);
        self.types(old, new);
        self.path.pop();
    }

    fn types(&mut self, o: NodeId, n: NodeId) {
        if self.path.len() > MAX_DEPTH || !self.seen.insert((o, n)) {
            return;
        }
        let (old, new) = (self.old.node(o), self.new.node(n));
        match (&old.kind, &new.kind) {
            (Type::Array(old), Type::Array(new)) => self.within("[]", *old, *new),
            (Type::Map(old), Type::Map(new)) => self.within("{}", *old, *new),
            (Type::Record(old), Type::Record(new)) => {
                self.names(o, n);
                self.records(old, new);
            }
            (Type::Enum(old), Type::Enum(new)) => {
                self.names(o, n);
                self.symbols(old, new);
            }
            (Type::Fixed(old), Type::Fixed(new)) => {
                self.names(o, n);
                if old.size != new.size {
                    let (old, new) = (old.size.to_string(), new.size.to_string());
                    self.add(Change::Size, Some(old), Some(new), Level::Breaking);
                }
            }
            (Type::Union(old), Type::Union(new)) => self.unions(old, new),
            (_, Type::Union(branches)) => self.one_to_union(o, branches),
            (Type::Union(branches), _) => self.union_to_one(branches, n),
            (old, new) if old != new => {
                let level = replaced(old, new);
                self.add(Change::Type, Some(old.to_string()), Some(new.to_string()), level);
            }
            _ => {}
        }
        let always = |from: &Node, to: &Node| from.reads_as(to).map(|r| r == Reads::Always);
        let levels = (always(old, new), always(new, old));
        let named = |logical: &crate::schema::LogicalType| logical.to_string();
        let names = (old.logical.as_ref().map(named), new.logical.as_ref().map(named));
        match levels {
            (Some(backward), Some(forward)) if names.0 != names.1 => {
                self.add(Change::Logical, names.0, names.1, Level::of(backward, forward));
            }
            _ => self.stated(Change::Logical, names.0, names.1, Level::Breaking),
        }
    }

    fn names(&mut self, o: NodeId, n: NodeId) {
        let (old, new) = (&self.old.node(o).kind, &self.new.node(n).kind);
        let level = Level::of(answers(new, old) != Answer::No, answers(old, new) != Answer::No);
        if level != Level::Full {
            self.add(Change::Name, old.name().map(Into::into), new.name().map(Into::into), level);
        }
    }

    fn records(&mut self, old: &'a Record, new: &'a Record) {
        let places = sources(old, new);
        for (field, place) in new.fields.iter().zip(&places) {
            self.path.push(&field.name);
            match place {
                Some(place) => self.fields(&old.fields[*place], field),
                None => {
                    let kind = self.new.node(field.kind).kind.to_string();
                    let level = Level::of(field.default.is_some(), true);
                    self.add(Change::FieldAdded, None, Some(kind), level);
                }
            }
            self.path.pop();
        }
        let kept: HashSet<usize> = places.into_iter().flatten().collect();
        for (place, field) in old.fields.iter().enumerate() {
            if !kept.contains(&place) {
                self.path.push(&field.name);
                let kind = self.old.node(field.kind).kind.to_string();
                self.add(Change::FieldRemoved, Some(kind), None, Level::Backward);
                self.path.pop();
            }
        }
    }

    fn fields(&mut self, old: &'a Field, new: &'a Field) {
        if old.name != new.name {
            let forward = old.aliases.contains(&new.name);
            let (before, now) = (Some(old.name.clone()), Some(new.name.clone()));
            self.add(Change::FieldRenamed, before, now, Level::of(true, forward));
        }
        self.types(old.kind, new.kind);
        if old.length != new.length {
            let level = match (old.length, new.length) {
                (None, _) => Level::Forward,
                (_, None) => Level::Backward,
                _ => Level::Breaking,
            };
            let text = |length: Option<usize>| length.map(|length| length.to_string());
            self.add(Change::Length, text(old.length), text(new.length), level);
        }
        self.stated(Change::Units, old.units.as_deref(), new.units.as_deref(), Level::Breaking);
        self.labels(old.enumeration.as_deref(), new.enumeration.as_deref());
        let (before, now) = (old.sal_type.as_deref(), new.sal_type.as_deref());
        self.stated(Change::SalType, before, now, Level::Full);
        if old.length == new.length {
            self.stated(Change::Default, old.default.as_ref(), new.default.as_ref(), Level::Full);
        }
    }

    fn labels(&mut self, old: Option<&[(String, i64)]>, new: Option<&[(String, i64)]>) {
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (old, new),
            (old, new) => {
                let text = |labels: Option<&[(String, i64)]>| labels.map(list);
                return self.stated(Change::Enumeration, text(old), text(new), Level::Full);
            }
        };
        let before: HashMap<&str, i64> = old.iter().map(|(l, n)| (l.as_str(), *n)).collect();
        let now: HashSet<&str> = new.iter().map(|(l, _)| l.as_str()).collect();
        let text = |label: &str, number: i64| Some(format!("{label} = {number}"));
        for (label, now) in new {
            match before.get(label.as_str()) {
                None => self.add(Change::Enumeration, None, text(label, *now), Level::Backward),
                Some(before) if before != now => {
                    let (before, now) = (text(label, *before), text(label, *now));
                    self.add(Change::Enumeration, before, now, Level::Breaking);
                }
                _ => {}
            }
        }
        for (label, before) in old.iter().filter(|(label, _)| !now.contains(label.as_str())) {
            self.add(Change::Enumeration, text(label, *before), None, Level::Forward);
        }
    }

    fn symbols(&mut self, old: &Enum, new: &Enum) {
        let before: HashSet<&String> = old.symbols.iter().collect();
        let now: HashSet<&String> = new.symbols.iter().collect();
        for symbol in new.symbols.iter().filter(|symbol| !before.contains(symbol)) {
            let level = Level::of(true, old.default.is_some());
            self.add(Change::Enumeration, None, Some(symbol.clone()), level);
        }
        for symbol in old.symbols.iter().filter(|symbol| !now.contains(symbol)) {
            let level = Level::of(new.default.is_some(), true);
            self.add(Change::Enumeration, Some(symbol.clone()), None, level);
        }
        let (old, new) = (old.default.as_ref(), new.default.as_ref());
        self.stated(Change::Default, old, new, Level::Full);
    }

    fn unions(&mut self, old: &[NodeId], new: &[NodeId]) {
        let mut left: Vec<NodeId> = old.to_vec();
        let mut added = Vec::new();
        for n in new {
            let kind = &self.new.node(*n).kind;
            match left.iter().position(|o| corresponds(&self.old.node(*o).kind, kind)) {
                Some(place) => self.types(left.remove(place), *n),
                None => added.push(*n),
            }
        }
        for n in added {
            let kind = &self.new.node(n).kind;
            // A wider branch in the place of a narrower one, and the other way round.
            let pair = left.iter().map(|o| replaced(&self.old.node(*o).kind, kind));
            match pair.enumerate().find(|(_, level)| *level != Level::Breaking) {
                Some((place, _)) => self.types(left.remove(place), n),
                None => self.add(Change::Branch, None, Some(kind.to_string()), Level::Backward),
            }
        }
        for o in left {
            let kind = self.old.node(o).kind.to_string();
            self.add(Change::Branch, Some(kind), None, Level::Forward);
        }
    }

    fn one_to_union(&mut self, o: NodeId, branches: &[NodeId]) {
        let old = &self.old.node(o).kind;
        let level = |n: &NodeId| reads(old, &self.new.node(*n).kind);
        let same = branches.iter().find(|n| corresponds(old, &self.new.node(**n).kind));
        let backward = same.is_some() || branches.iter().any(level);
        let words = words(self.new, branches);
        self.add(Change::Type, Some(old.to_string()), Some(words), Level::of(backward, false));
        if let Some(n) = same {
            self.types(o, *n);
        }
    }

    fn union_to_one(&mut self, branches: &[NodeId], n: NodeId) {
        let new = &self.new.node(n).kind;
        let level = |o: &NodeId| reads(new, &self.old.node(*o).kind);
        let same = branches.iter().find(|o| corresponds(&self.old.node(**o).kind, new));
        let forward = same.is_some() || branches.iter().any(level);
        let words = words(self.old, branches);
        self.add(Change::Type, Some(words), Some(new.to_string()), Level::of(false, forward));
        if let Some(o) = same {
            self.types(*o, n);
        }
    }
}

fn words(schema: &Schema, branches: &[NodeId]) -> String {
    let words: Vec<_> = branches.iter().map(|id| schema.node(*id).kind.to_string()).collect();
    format!("[{}]", words.join(", "))
}

fn list(labels: &[(String, i64)]) -> String {
    let words: Vec<_> =
        labels.iter().map(|(label, number)| format!("{label} = {number}")).collect();
    words.join(", ")
}

/// Whether two branches are versions of one another.
fn corresponds(old: &Type, new: &Type) -> bool {
    match old.name() {
        Some(_) if old.word() == new.word() => {
            answers(new, old) != Answer::No || answers(old, new) != Answer::No
        }
        _ => old.word() == new.word(),
    }
}

/// Whether data of one plain type can be read as another.
fn reads(writer: &Type, reader: &Type) -> bool {
    writer == reader
        || matches!(
            (writer, reader),
            (Type::Int, Type::Long | Type::Float | Type::Double)
                | (Type::Long, Type::Float | Type::Double)
                | (Type::Float, Type::Double)
                | (Type::String, Type::Bytes)
                | (Type::Bytes, Type::String)
        )
}

fn replaced(old: &Type, new: &Type) -> Level {
    Level::of(reads(old, new), reads(new, old))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn differences(old: Json, new: Json) -> Vec<String> {
        let record = |fields: Json| json!({"type": "record", "name": "T", "fields": fields});
        let schema = |json: Json| Schema::from_json(&json).unwrap();
        let evolution = compare(&schema(record(old)), &schema(record(new)));
        let all = evolution.differences.iter().fold(Level::Full, |all, one| all.and(one.level));
        assert_eq!(evolution.level, all);
        evolution.differences.iter().map(ToString::to_string).collect()
    }

    /// The differences between two versions of a field's attributes.
    fn field(old: Json, new: Json) -> Vec<String> {
        let named = |mut json: Json| {
            json["name"] = json!("x");
            json!([json])
        };
        differences(named(old), named(new))
    }

    #[test]
    fn fields() {
        let x = json!({"name": "x", "type": "int"});
        let y = json!({"name": "y", "type": "int", "default": 0, "doc": "d"});
        assert_eq!(differences(json!([x, y]), json!([y, x])), [""; 0]);
        assert_eq!(differences(json!([x]), json!([x, y])), ["y: field added int (full)"]);
        assert_eq!(differences(json!([y]), json!([x, y])), ["x: field added int (forward)"]);
        assert_eq!(
            differences(json!([x, y]), json!([x])),
            ["y: field removed int -> none (backward)"]
        );
        let renamed = json!({"name": "z", "aliases": ["x"], "type": "int"});
        assert_eq!(
            differences(json!([x]), json!([renamed])),
            ["z: field renamed x -> z (backward)"]
        );
        let other = json!({"name": "y", "type": "int", "default": 1});
        assert_eq!(differences(json!([y]), json!([other])), ["y: default 0 -> 1 (full)"]);
    }

    #[test]
    fn types() {
        let plain = |old: &str, new: &str| field(json!({"type": old}), json!({"type": new}));
        assert_eq!(plain("int", "double"), ["x: type int -> double (backward)"]);
        assert_eq!(plain("double", "int"), ["x: type double -> int (forward)"]);
        assert_eq!(plain("int", "string"), ["x: type int -> string (breaking)"]);
        assert_eq!(plain("bytes", "string"), ["x: type bytes -> string (full)"]);
        let union = |all: Json| json!({"type": all});
        assert_eq!(
            field(json!({"type": "int"}), union(json!(["null", "int"]))),
            ["x: type int -> [null, int] (backward)"]
        );
        assert_eq!(
            field(union(json!(["null", "long"])), json!({"type": "int"})),
            ["x: type [null, long] -> int (forward)"]
        );
        assert_eq!(
            field(union(json!(["null", "int"])), union(json!(["string", "long"]))),
            [
                "x: branch string (backward)",
                "x: type int -> long (backward)",
                "x: branch null -> none (forward)",
            ]
        );
        let fixed = |name: &str, size: usize| {
            json!({"type":
            {"type": "fixed", "name": name, "size": size}})
        };
        assert_eq!(field(fixed("F", 2), fixed("F", 3)), ["x: size 2 -> 3 (breaking)"]);
        assert_eq!(field(fixed("F", 2), fixed("G", 2)), ["x: name F -> G (breaking)"]);
        assert_eq!(field(fixed("a.F", 2), fixed("b.F", 2)), [""; 0]);
        let time = |unit: &str| json!({"type": {"type": "long", "logicalType": unit}});
        assert_eq!(
            field(time("timestamp-millis"), time("timestamp-micros")),
            ["x: logical type TimestampMillis -> TimestampMicros (breaking)"]
        );
    }

    #[test]
    fn lengths_units_and_labels() {
        let array = |length: Json| {
            let mut json = json!({"type": {"type": "array", "items": "float"}});
            if length.is_u64() {
                json["length"] = length;
            }
            json
        };
        assert_eq!(field(array(json!(2)), array(json!(3))), ["x: length 2 -> 3 (breaking)"]);
        assert_eq!(field(array(json!(2)), array(json!(null))), ["x: length 2 -> none (backward)"]);
        assert_eq!(field(array(json!(null)), array(json!(2))), ["x: length 2 (forward)"]);
        let units = |units: Json| json!({"type": "float", "units": units});
        assert_eq!(field(units(json!("m")), units(json!("km"))), ["x: units m -> km (breaking)"]);
        assert_eq!(field(units(json!(null)), units(json!("km"))), ["x: units km (full)"]);
        let labels = |labels: Json| json!({"type": "int", "enumeration": labels});
        assert_eq!(
            field(labels(json!({"A": 1, "B": 2, "C": 3})), labels(json!({"B": 2, "C": 4, "D": 5}))),
            [
                "x: enumeration C = 3 -> C = 4 (breaking)",
                "x: enumeration D = 5 (backward)",
                "x: enumeration A = 1 -> none (forward)",
            ]
        );
        let symbols = |symbols: &[&str]| {
            json!({"type":
            {"type": "enum", "name": "E", "symbols": symbols}})
        };
        assert_eq!(
            field(symbols(&["A", "B"]), symbols(&["B", "C"])),
            ["x: enumeration C (backward)", "x: enumeration A -> none (forward)"]
        );
    }

    #[test]
    fn what_lies_within_is_named() {
        let inner = |kind: &str| {
            json!([{"name": "all", "type": {"type": "array", "items": ["null",
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind},
                {"name": "next", "type": ["null", "R"]}]}]}}])
        };
        assert_eq!(
            differences(inner("int"), inner("long")),
            ["all.[].x: type int -> long (backward)"]
        );
    }

    #[test]
    fn topics_come_and_go() {
        let schema = |word: &str| Schema::parse(word).unwrap();
        let old =
            BTreeMap::from([("a", schema("int")), ("b", schema("int")), ("c", schema("int"))]);
        let new =
            BTreeMap::from([("b", schema("int")), ("c", schema("long")), ("d", schema("int"))]);
        let changes = compare_topics(&old, &new);
        assert_eq!(changes.keys().copied().collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(changes["a"], TopicChange::Removed);
        assert!(matches!(&changes["c"], TopicChange::Changed(e) if e.level == Level::Backward));
        assert_eq!(changes["d"], TopicChange::Added);
    }
    /// `helio schema diff --json` and `helio schema check --json` print these names.
    #[test]
    fn the_json_of_a_change_is_golden() {
        let levels = [Level::Full, Level::Forward, Level::Backward, Level::Breaking];
        let text = r#"["full","forward","backward","breaking"]"#;
        assert_eq!(serde_json::to_string(&levels).unwrap(), text);
        let changes = [
            Change::FieldAdded,
            Change::FieldRemoved,
            Change::FieldRenamed,
            Change::Default,
            Change::Type,
            Change::Name,
            Change::Size,
            Change::Length,
            Change::Units,
            Change::Enumeration,
            Change::Branch,
            Change::Logical,
            Change::SalType,
        ];
        let text = r#"[
            "field_added","field_removed","field_renamed","default","type","name","size",
            "length","units","enumeration","branch","logical","sal_type"
        ]"#;
        let text: String = text.split_whitespace().collect();
        assert_eq!(serde_json::to_string(&changes).unwrap(), text);
        let (old, new) = (Schema::parse("\"int\"").unwrap(), Schema::parse("\"long\"").unwrap());
        let changed = TopicChange::Changed(compare(&old, &new));
        let text = r#"["added","removed",{"changed":{"level":"backward","differences":[
            {"at":"","change":"type","old":"int","new":"long","level":"backward"}
        ]}}]"#;
        let text: String = text.split_whitespace().collect();
        let changes = [TopicChange::Added, TopicChange::Removed, changed];
        assert_eq!(serde_json::to_string(&changes).unwrap(), text);
    }
}
