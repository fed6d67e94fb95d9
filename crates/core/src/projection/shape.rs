//! The columns that paths select from one or several schemas.

use std::sync::Arc;

use super::path::{Segment, parse};
use super::{Kind, ShapeError, Slot};
use crate::schema::{DType, Field, LogicalType, NodeId, Reads, Schema, Type};

/// The limit of columns, members and elements in one shape.
pub const MAX_SLOTS: usize = 16_384;
/// The limit of types that are visited to build a shape: a type may be used in many places.
const MAX_VISITS: usize = 1 << 18;

/// The columns that are read from datums of one or several schemas.
///
/// A path names a record's field; `[]` stands for an array's elements, and `*` for the whole datum.
/// Records and nullable unions are transparent: `diaSource.snr` is a column of that name. A path
/// to a record selects all its fields. In a union of several types, a branch is named by its type.
/// An array or map is a column whose elements are values, or records of the selected members. A
/// datum that is no record is named `value`.
///
/// With several schemas, a column has the type to which Avro's resolution promotes all of them;
/// fields match by name, or by an alias in one of the schemas.
#[derive(Debug, Clone)]
pub struct Shape(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Node,
    slots: Vec<Slot>,
    columns: Vec<usize>,
}

impl Shape {
    /// Selects columns from schemas, in the order of the paths.
    ///
    /// # Errors
    /// [`ShapeError`] names a path that is in none of the schemas, or a field whose types in the
    /// schemas have no common type.
    pub fn new<P: AsRef<str>>(schemas: &[Schema], paths: &[P]) -> Result<Self, ShapeError> {
        let mut root = Node::default();
        let mut visits = 0;
        for path in paths {
            let path = path.as_ref();
            let segments = parse(path)?;
            let mut found = false;
            let mut missing = None;
            for schema in schemas {
                let mut build = Build { schema, visits, records: Vec::new(), at: Vec::new() };
                match build.root(&mut root, &segments) {
                    Ok(()) => found = true,
                    Err(error @ ShapeError::Unknown { .. }) => missing = missing.or(Some(error)),
                    Err(error) => return Err(error),
                }
                visits = build.visits;
            }
            if !found {
                let path = path.to_owned();
                let known = String::new();
                return Err(missing.unwrap_or(ShapeError::Unknown { path, known }));
            }
        }
        let mut slots = Slots::default();
        let columns = slots.members(&mut root, "")?;
        Ok(Self(Arc::new(Inner { root, slots: slots.0, columns })))
    }

    /// All slots: columns, and within them members and elements, each after its holder.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    /// The slots of the columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        &self.0.columns
    }

    pub(super) fn root(&self) -> &Node {
        &self.0.root
    }
}

/// A part of the datum that is read, or that holds such parts.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) part: Part,
    /// The slot; a record outside arrays and maps has none.
    pub(super) slot: Option<usize>,
    /// The names of all branches of the schemas' unions, selected or not.
    pub(super) branches: Vec<String>,
    about: About,
}

#[derive(Debug, Default)]
pub(super) enum Part {
    /// Nothing was found yet.
    #[default]
    Empty,
    Leaf(Kind),
    List(Box<Node>),
    Map(Box<Node>),
    /// The members of a record.
    Record(Vec<Member>),
    /// The branches of a union of several types.
    Branches(Vec<Member>),
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) node: Node,
}

/// What schemas say about a slot besides its type.
#[derive(Debug, Clone, Default)]
struct About {
    units: Option<String>,
    description: Option<String>,
    enumeration: Option<Vec<(String, i64)>>,
    logical: Option<LogicalType>,
    /// The range of integers without another logical type.
    range: Option<DType>,
}

impl Node {
    pub(super) fn logical(&self) -> Option<LogicalType> {
        self.about.logical
    }

    pub(super) fn range(&self) -> Option<DType> {
        self.about.range
    }

    /// Rejects a field of another unit.
    pub(super) fn same_units(&self, field: &Field, at: &[String]) -> Result<(), ShapeError> {
        match (&field.units, &self.about.units) {
            (Some(writer), Some(reader)) if writer != reader => {
                let (writer, reader) = (writer.clone(), reader.clone());
                Err(ShapeError::Units { at: shown(at), writer, reader })
            }
            _ => Ok(()),
        }
    }

    /// The slots of this part up to those that it repeats: what a null fills.
    pub(super) fn nulls(&self) -> Vec<usize> {
        let mut out = Vec::new();
        self.collect_nulls(&mut out);
        out
    }

    fn collect_nulls(&self, out: &mut Vec<usize>) {
        out.extend(self.slot);
        if let Part::Record(members) | Part::Branches(members) = &self.part {
            members.iter().for_each(|member| member.node.collect_nulls(out));
        }
    }
}

/// Whether a datum's parts have names: it is a record, or of a union of several types.
pub(super) fn has_names(schema: &Schema) -> bool {
    let kind = |id: &NodeId| &schema.node(*id).kind;
    match &schema.root().kind {
        Type::Record(_) => true,
        Type::Union(branches) => {
            let mut values = branches.iter().map(kind).filter(|kind| **kind != Type::Null);
            match (values.next(), values.next()) {
                (Some(one), None) => matches!(one, Type::Record(_)),
                (one, _) => one.is_some(),
            }
        }
        _ => false,
    }
}

/// The name of a branch in paths: its type's plain name.
pub(super) fn branch_name(kind: &Type) -> &str {
    let name = kind.name().unwrap_or(kind.word());
    name.rsplit('.').next().unwrap_or(name)
}

/// The type to which both resolve, as Avro's resolution promotes them.
fn common(one: &Kind, other: &Kind) -> Option<Kind> {
    use Kind as K;
    Some(match (one, other) {
        (K::Null, kind) | (kind, K::Null) => kind.clone(),
        (K::Enum(known), K::Enum(more)) => {
            let mut symbols = known.to_vec();
            symbols.extend(more.iter().filter(|symbol| !known.contains(symbol)).cloned());
            K::Enum(symbols.into())
        }
        (one, other) if one == other => one.clone(),
        (K::Bytes, K::String) | (K::String, K::Bytes) => K::Bytes,
        (one, other) => match (rank(one)?, rank(other)?) {
            (one_rank, other_rank) if one_rank < other_rank => other.clone(),
            _ => one.clone(),
        },
    })
}

/// The range that has all integers of both.
fn wider(one: DType, other: DType) -> Option<DType> {
    let bounds = |dtype: DType| dtype.range().unwrap_or_default();
    let has = |range: &DType| {
        [one, other].into_iter().all(|dtype| {
            let ((low, high), (least, most)) = (bounds(dtype), bounds(*range));
            least <= low && high <= most
        })
    };
    [one, other, DType::Int32, DType::Int64].into_iter().find(has)
}

/// The logical type of a leaf for one more schema; the error has none for both.
fn common_logical(
    part: &Part,
    known: Option<LogicalType>,
    logical: Option<LogicalType>,
) -> Result<Option<LogicalType>, (LogicalType, LogicalType)> {
    use LogicalType as L;
    Ok(match (logical, known) {
        (Some(L::NdArray(new)), Some(L::NdArray(old))) => match () {
            () if new.reads_as(&old) == Reads::Always => known,
            () if old.reads_as(&new) == Reads::Always => logical,
            () => return Err((L::NdArray(new), L::NdArray(old))),
        },
        // Plain bytes, or a text, in one schema may be no array.
        (None, Some(L::NdArray(_))) => None,
        (Some(L::NdArray(_)), None) if matches!(part, Part::Leaf(Kind::Bytes | Kind::String)) => {
            None
        }
        (Some(new), Some(old)) if new != old => return Err((new, old)),
        (logical, known) => known.or(logical),
    })
}

/// The order of numbers' types in promotions.
fn rank(kind: &Kind) -> Option<u8> {
    Some(match kind {
        Kind::Int => 0,
        Kind::Long => 1,
        Kind::Float => 2,
        Kind::Double => 3,
        _ => return None,
    })
}

fn leaf(kind: &Type) -> Option<Kind> {
    Some(match kind {
        Type::Null => Kind::Null,
        Type::Boolean => Kind::Boolean,
        Type::Int => Kind::Int,
        Type::Long => Kind::Long,
        Type::Float => Kind::Float,
        Type::Double => Kind::Double,
        Type::Bytes => Kind::Bytes,
        Type::String => Kind::String,
        Type::Fixed(fixed) => Kind::Fixed(fixed.size),
        Type::Enum(of) => Kind::Enum(of.symbols.clone().into()),
        _ => return None,
    })
}

/// Adds the parts that one path selects from one schema.
struct Build<'a> {
    schema: &'a Schema,
    visits: usize,
    /// Records whose fields are all selected, from the outermost.
    records: Vec<NodeId>,
    at: Vec<String>,
}

type Built = Result<(), ShapeError>;

impl Build<'_> {
    /// A datum that is no record is the member `value` of one.
    fn root(&mut self, root: &mut Node, segments: &[Segment<'_>]) -> Built {
        if has_names(self.schema) {
            return self.add(root, NodeId::ROOT, segments);
        }
        let rest = match segments {
            [Segment::Name(super::VALUE), rest @ ..] => rest,
            [] => &[],
            _ => return Err(self.unknown(segments, super::VALUE.to_owned())),
        };
        let members = self.members(root, "record")?;
        let place = member(members, super::VALUE, &[]);
        self.add(&mut members[place].node, NodeId::ROOT, rest)
    }

    fn add(&mut self, node: &mut Node, id: NodeId, rest: &[Segment<'_>]) -> Built {
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return Err(ShapeError::Limit { at: self.place() });
        }
        let schema = self.schema;
        match (&schema.node(id).kind, rest) {
            (Type::Union(branches), _) => self.union(node, branches, rest),
            (Type::Record(record), []) => {
                if self.records.contains(&id) {
                    let (at, name) = (self.place(), record.name.clone());
                    return Err(ShapeError::Recursive { at, name });
                }
                self.records.push(id);
                let members = self.members(node, "record")?;
                record.fields.iter().try_for_each(|field| self.field(members, field, &[]))?;
                self.records.pop();
                Ok(())
            }
            (Type::Record(record), [Segment::Name(name), rest @ ..]) => {
                let members = self.members(node, "record")?;
                let known = members.iter().find(|member| member.name == *name);
                let aliases = known.map_or(&[][..], |known| &known.aliases[..]);
                let by_alias = |field: &&Field| aliases.contains(&field.name);
                let mut all = record.fields.iter();
                let found = all.clone().find(|field| field.name == *name);
                match found.or_else(|| all.find(by_alias)) {
                    Some(field) => self.named(members, name, field, rest),
                    None => {
                        let fields = record.fields.iter().map(|field| field.name.as_str());
                        Err(self.unknown(&[Segment::Name(name)], listed(fields)))
                    }
                }
            }
            (Type::Array(items), [] | [Segment::Items, ..]) => {
                let item = self.holder(node, "array")?;
                self.inside("[]", |this| this.add(item, *items, rest.get(1..).unwrap_or_default()))
            }
            (Type::Array(_), _) => Err(ShapeError::Array { at: self.place() }),
            (Type::Map(values), []) => {
                let item = self.holder(node, "map")?;
                self.inside("{}", |this| this.add(item, *values, &[]))
            }
            (_, []) => self.leaf(node, id),
            (kind, _) => Err(ShapeError::Inside { at: self.place(), kind: kind.to_string() }),
        }
    }

    fn field(&mut self, members: &mut Vec<Member>, field: &Field, rest: &[Segment<'_>]) -> Built {
        self.named(members, &field.name, field, rest)
    }

    /// Adds a field as the member of a name.
    fn named(
        &mut self,
        members: &mut Vec<Member>,
        name: &str,
        field: &Field,
        rest: &[Segment<'_>],
    ) -> Built {
        let place = member(members, name, &field.aliases);
        let node = &mut members[place].node;
        let done = self.inside(name, |this| this.add(node, field.kind, rest));
        let at = self.at.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
        node.same_units(field, &at)?;
        let about = &mut node.about;
        about.units = about.units.take().or_else(|| field.units.clone());
        about.description = about.description.take().or_else(|| field.text().map(str::to_owned));
        about.enumeration = about.enumeration.take().or_else(|| field.enumeration.clone());
        done
    }

    fn union(&mut self, node: &mut Node, branches: &[NodeId], rest: &[Segment<'_>]) -> Built {
        let schema = self.schema;
        let kind = |id: &NodeId| &schema.node(*id).kind;
        let values: Vec<NodeId> =
            branches.iter().copied().filter(|id| *kind(id) != Type::Null).collect();
        match (&values[..], rest) {
            ([], []) => branches.iter().try_for_each(|null| self.leaf(node, *null)),
            ([one], _) => self.add(node, *one, rest),
            // Another schema has a plain type here: the branches that resolve to it are read.
            _ if matches!(node.part, Part::Leaf(_)) => {
                let done: Vec<Built> = values.iter().map(|id| self.add(node, *id, rest)).collect();
                if done.iter().any(Result::is_ok) { Ok(()) } else { done.into_iter().collect() }
            }
            (values, []) => {
                let all = values.iter().map(|id| branch_name(kind(id)));
                if let Some(name) = repeated(all.clone()) {
                    let kind = format!("union with several branches {name}");
                    return Err(ShapeError::Inside { at: self.place(), kind });
                }
                node.branches.extend(all.clone().map(str::to_owned));
                let members = self.members(node, "union")?;
                all.zip(values).try_for_each(|(name, id)| self.branch(members, name, *id, &[]))
            }
            (values, [Segment::Name(name), rest @ ..]) => {
                let all = values.iter().map(|id| branch_name(kind(id)).to_owned());
                node.branches.extend(all);
                let mut named = values.iter().filter(|id| branch_name(kind(id)) == *name);
                let members = self.members(node, "union")?;
                match (named.next(), named.next()) {
                    (Some(id), None) => self.branch(members, name, *id, rest),
                    _ => {
                        let names = listed(values.iter().map(|id| branch_name(kind(id))));
                        Err(self.unknown(&[Segment::Name(name)], names))
                    }
                }
            }
            (_, [Segment::Items, ..]) => {
                let names = listed(values.iter().map(|id| branch_name(kind(id))));
                Err(self.unknown(&[], names))
            }
        }
    }

    fn branch(
        &mut self,
        members: &mut Vec<Member>,
        name: &str,
        id: NodeId,
        rest: &[Segment<'_>],
    ) -> Built {
        let place = member(members, name, &[]);
        let node = &mut members[place].node;
        self.inside(name, |this| this.add(node, id, rest))
    }

    fn leaf(&self, node: &mut Node, id: NodeId) -> Built {
        let (kind, logical) = (&self.schema.node(id).kind, self.schema.node(id).logical);
        let Some(new) = leaf(kind) else { return Err(self.types(node, kind.word())) };
        let integer = |logical| matches!(logical, None | Some(LogicalType::Integer(_)));
        match self.schema.node(id).integer() {
            Some(range) if integer(logical) && integer(node.about.logical) => {
                let known = node.about.range.unwrap_or(range);
                let both = wider(known, range);
                let both = both.ok_or_else(|| self.types(node, range.name()))?;
                node.about.range = Some(both);
                let stated = Some(both).filter(|b| !matches!(b, DType::Int32 | DType::Int64));
                node.about.logical = stated.map(LogicalType::Integer);
            }
            _ => {
                let both = common_logical(&node.part, node.about.logical, logical);
                node.about.logical = both.map_err(|(writer, reader)| ShapeError::Logical {
                    at: self.place(),
                    writer: writer.to_string(),
                    reader: reader.to_string(),
                })?;
            }
        }
        let merged = match &node.part {
            Part::Empty => Some(new),
            Part::Leaf(known) => common(known, &new),
            _ if new == Kind::Null => return Ok(()),
            _ => None,
        };
        let Some(merged) = merged else { return Err(self.types(node, kind.word())) };
        node.part = Part::Leaf(merged);
        Ok(())
    }

    /// The members of a record or union.
    fn members<'n>(
        &self,
        node: &'n mut Node,
        word: &'static str,
    ) -> Result<&'n mut Vec<Member>, ShapeError> {
        self.vacate(node);
        if let Part::Empty = node.part {
            node.part = match word {
                "union" => Part::Branches(Vec::new()),
                _ => Part::Record(Vec::new()),
            };
        }
        let wrong = self.types(node, word);
        match (&mut node.part, word) {
            (Part::Record(members), "record") | (Part::Branches(members), "union") => Ok(members),
            _ => Err(wrong),
        }
    }

    /// The element of an array or map.
    fn holder<'n>(
        &self,
        node: &'n mut Node,
        word: &'static str,
    ) -> Result<&'n mut Node, ShapeError> {
        self.vacate(node);
        if let Part::Empty = node.part {
            node.part = match word {
                "map" => Part::Map(Box::default()),
                _ => Part::List(Box::default()),
            };
        }
        let wrong = self.types(node, word);
        match (&mut node.part, word) {
            (Part::List(item), "array") | (Part::Map(item), "map") => Ok(item),
            _ => Err(wrong),
        }
    }

    /// A field that is always null in one schema takes the type of another.
    fn vacate(&self, node: &mut Node) {
        if let Part::Leaf(Kind::Null) = node.part {
            node.part = Part::Empty;
        }
    }

    fn inside<T>(&mut self, name: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        self.at.push(name.to_owned());
        let done = run(self);
        self.at.pop();
        done
    }

    fn place(&self) -> String {
        shown(&self.at)
    }

    fn unknown(&self, rest: &[Segment<'_>], known: String) -> ShapeError {
        let rest = rest.iter().map(|segment| match segment {
            Segment::Name(name) => (*name).to_owned(),
            Segment::Items => "[]".to_owned(),
        });
        let all: Vec<String> = self.at.iter().cloned().chain(rest).collect();
        ShapeError::Unknown { path: shown(&all), known }
    }

    fn types(&self, node: &Node, writer: &str) -> ShapeError {
        let reader = node.part.word().to_owned();
        ShapeError::Types { at: self.place(), writer: writer.to_owned(), reader }
    }
}

impl Part {
    /// The name of its type in errors.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Leaf(kind) => kind.word(),
            Self::List(_) => "array",
            Self::Map(_) => "map",
            Self::Record(_) => "record",
            Self::Branches(_) => "union",
        }
    }
}

/// The place of a member, which is added if there is none of that name.
fn member(members: &mut Vec<Member>, name: &str, aliases: &[String]) -> usize {
    let place = members.iter().position(|member| member.name == name);
    let place = place.unwrap_or_else(|| {
        let name = name.to_owned();
        members.push(Member { name, aliases: Vec::new(), node: Node::default() });
        members.len() - 1
    });
    let known = &mut members[place].aliases;
    known
        .extend(aliases.iter().filter(|alias| !known.contains(alias)).cloned().collect::<Vec<_>>());
    place
}

fn repeated<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let mut rest = names.clone();
    names.into_iter().find(|name| {
        rest.next();
        rest.clone().any(|other| other == *name)
    })
}

/// A path, from its parts.
pub(super) fn shown(at: &[String]) -> String {
    let mut out = String::new();
    for part in at.iter().take(20) {
        if !out.is_empty() && !matches!(part.as_str(), "[]" | "{}") {
            out.push('.');
        }
        out.push_str(part);
    }
    if out.is_empty() { "the whole".to_owned() } else { out }
}

/// The first names of a list.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.take(101).collect();
    if names.len() > 100 {
        names[100] = "…";
    }
    names.join(", ")
}

/// Numbers the slots.
#[derive(Default)]
struct Slots(Vec<Slot>);

impl Slots {
    /// Flattens records outside arrays and maps: a member's name is its path from their holder.
    fn members(&mut self, node: &mut Node, name: &str) -> Result<Vec<usize>, ShapeError> {
        let (Part::Record(members) | Part::Branches(members)) = &mut node.part else {
            return Ok(self.one(node, name)?.into_iter().collect());
        };
        let mut out = Vec::new();
        for member in members {
            let dot = if name.is_empty() { "" } else { "." };
            let full = format!("{name}{dot}{}", member.name);
            out.extend(self.members(&mut member.node, &full)?);
        }
        Ok(out)
    }

    fn one(&mut self, node: &mut Node, name: &str) -> Result<Option<usize>, ShapeError> {
        let kind = match &node.part {
            Part::Empty => return Ok(None),
            Part::Leaf(kind) => kind.clone(),
            Part::List(_) => Kind::List,
            Part::Map(_) => Kind::Map,
            Part::Record(_) | Part::Branches(_) => Kind::Record,
        };
        let slot = self.0.len();
        if slot >= MAX_SLOTS {
            return Err(ShapeError::Limit { at: name.to_owned() });
        }
        node.slot = Some(slot);
        let About { units, description, enumeration, logical, .. } = node.about.clone();
        let name = name.to_owned();
        let children = Vec::new();
        self.0.push(Slot { name, kind, children, logical, units, description, enumeration });
        self.0[slot].children = match &mut node.part {
            Part::List(item) | Part::Map(item) => self.one(item, "item")?.into_iter().collect(),
            Part::Record(_) | Part::Branches(_) => {
                let mut children = Vec::new();
                let (Part::Record(members) | Part::Branches(members)) = &mut node.part else {
                    return Ok(Some(slot));
                };
                for member in members {
                    children.extend(self.members(&mut member.node, &member.name)?);
                }
                children
            }
            _ => Vec::new(),
        };
        Ok(Some(slot))
    }
}
