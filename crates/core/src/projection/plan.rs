//! The operations that read a shape's columns from datums of one schema.

use std::ops::Range;
use std::sync::Arc;

use super::shape::{Member, Node, Part, branch_name, has_names, shown};
use super::{Kind, Shape, ShapeError};
use crate::codec::elements::Integer;
use crate::schema::{self, DType, Enum, LogicalType, NdArray, NodeId, Reads, Record, Schema, Type};

/// The operation for a type of the writer.
#[derive(Debug)]
pub(super) enum Op {
    /// A value of one slot.
    Leaf {
        slot: usize,
        read: Read,
    },
    /// Nulls in all these slots; the writer has no value.
    Nulls(Box<[usize]>),
    /// The same for a value that is not wanted.
    Skip {
        step: usize,
        nulls: Box<[usize]>,
    },
    Record(RecordOp),
    /// An array's or map's elements.
    List {
        slot: usize,
        step: usize,
        item: Box<Op>,
    },
    /// One operation for each branch.
    Union(Box<[Op]>),
    /// One branch of the shape's union; the others, and the union's record, if it is one.
    Branch {
        record: Option<usize>,
        nulls: Box<[usize]>,
        op: Box<Op>,
    },
    /// A value of the writer that the shape cannot represent; its type.
    Fail(String),
}

/// The operation for a record: parts in the order of its fields.
#[derive(Debug)]
pub(super) struct RecordOp {
    /// The record's step.
    pub(super) step: usize,
    /// Its slot, if it is an element.
    pub(super) slot: Option<usize>,
    pub(super) parts: Box<[Fields]>,
    /// Slots that the writer's record lacks.
    pub(super) missing: Box<[usize]>,
}

#[derive(Debug)]
pub(super) enum Fields {
    /// Skips some fields.
    Skip(Range<usize>),
    /// Reads one.
    Read(usize, Op),
}

/// How a value is read, and promoted.
#[derive(Debug)]
pub(super) enum Read {
    Boolean,
    Int,
    IntToLong,
    /// Checked against the writer's range and the shape's; `long` is the shape's type.
    Integer {
        from: Integer,
        to: DType,
        long: bool,
    },
    UintToFloat,
    UintToDouble,
    NdArray(NdArray),
    IntToFloat,
    IntToDouble,
    Long,
    LongToFloat,
    LongToDouble,
    Float,
    FloatToDouble,
    Double,
    Bytes,
    Fixed(usize),
    String,
    Enum(Symbols),
}

/// The shape's index of each of the writer's symbols.
#[derive(Debug)]
pub(super) struct Symbols {
    pub(super) places: Box<[Option<u32>]>,
    pub(super) names: Arc<[String]>,
}

/// Compiles the operations for a writer's schema.
pub(super) fn compile(schema: &Schema, shape: &Shape) -> Result<Op, ShapeError> {
    let mut compiler = Compiler { schema, at: Vec::new() };
    let root = shape.root();
    match &root.part {
        Part::Empty => Ok(Op::Skip { step: 0, nulls: Box::default() }),
        Part::Record(members) if !has_names(schema) => {
            let [only] = &members[..] else { return Err(compiler.types(NodeId::ROOT, root)) };
            match only.name.as_str() {
                super::VALUE => compiler.op(NodeId::ROOT, &only.node),
                _ => Err(compiler.types(NodeId::ROOT, root)),
            }
        }
        _ => compiler.op(NodeId::ROOT, root),
    }
}

/// Returns whether values of one logical type may be of another.
fn readable(from: LogicalType, to: LogicalType) -> bool {
    use LogicalType as L;
    match (from, to) {
        (L::Integer(from), L::Integer(to)) => {
            let bounds = from.range().zip(to.range());
            bounds.is_some_and(|((low, high), (least, most))| least <= low && high <= most)
        }
        (L::NdArray(from), L::NdArray(to)) => from.reads_as(&to) != Reads::Never,
        (from, to) => from == to,
    }
}

/// Returns how a value is read whose logical types decide on its range, bits or shape.
fn refine(read: Read, writer: &schema::Node, node: &Node) -> Read {
    use LogicalType as L;
    let stated = |logical| matches!(logical, Some(L::Integer(_)));
    let range = writer.integer();
    match read {
        Read::LongToFloat if range == Some(DType::Uint64) => Read::UintToFloat,
        Read::LongToDouble if range == Some(DType::Uint64) => Read::UintToDouble,
        Read::Int | Read::IntToLong | Read::Long
            if stated(writer.logical) || stated(node.logical()) =>
        {
            let (Some(dtype), Some(to)) = (range, node.range()) else { return read };
            let from = Integer { dtype, long: writer.kind == Type::Long };
            Read::Integer { from, to, long: !matches!(read, Read::Int) }
        }
        Read::Bytes => match node.logical() {
            Some(L::NdArray(array)) => Read::NdArray(array),
            _ => read,
        },
        read => read,
    }
}

struct Compiler<'a> {
    schema: &'a Schema,
    at: Vec<String>,
}

type Compiled<T> = Result<T, ShapeError>;

impl<'a> Compiler<'a> {
    fn kind(&self, id: NodeId) -> &'a Type {
        &self.schema.node(id).kind
    }

    fn types(&self, id: NodeId, node: &Node) -> ShapeError {
        let writer = self.kind(id).to_string();
        ShapeError::Types { at: shown(&self.at), writer, reader: node.part.word().to_owned() }
    }

    fn op(&mut self, id: NodeId, node: &Node) -> Compiled<Op> {
        match (self.kind(id), &node.part) {
            (Type::Null, _) => Ok(Op::Nulls(node.nulls().into())),
            (Type::Union(branches), _) => self.union(id, branches, node),
            (_, Part::Branches(members)) => self.branch(id, node, members),
            (Type::Record(record), Part::Record(members)) => self.record(id, record, node, members),
            (Type::Array(items), Part::List(item)) | (Type::Map(items), Part::Map(item)) => {
                let slot = node.slot.ok_or_else(|| self.types(id, node))?;
                let item = self.inside("[]", |this| this.op(*items, item))?;
                Ok(Op::List { slot, step: id.index(), item: item.into() })
            }
            (kind, Part::Leaf(to)) => {
                let read = self.read(kind, to).ok_or_else(|| self.types(id, node))?;
                let writer = self.schema.node(id);
                let (from, to) = (writer.logical, node.logical());
                match (from, to) {
                    (Some(from), Some(to)) if from != to && !readable(from, to) => {
                        Err(ShapeError::Logical {
                            at: shown(&self.at),
                            writer: from.to_string(),
                            reader: to.to_string(),
                        })
                    }
                    _ => {
                        let slot = node.slot.ok_or_else(|| self.types(id, node))?;
                        Ok(Op::Leaf { slot, read: refine(read, writer, node) })
                    }
                }
            }
            _ => Err(self.types(id, node)),
        }
    }

    fn read(&self, from: &Type, to: &Kind) -> Option<Read> {
        Some(match (from, to) {
            (Type::Boolean, Kind::Boolean) => Read::Boolean,
            (Type::Int, Kind::Int) => Read::Int,
            (Type::Int, Kind::Long) => Read::IntToLong,
            (Type::Int, Kind::Float) => Read::IntToFloat,
            (Type::Int, Kind::Double) => Read::IntToDouble,
            (Type::Long, Kind::Long) => Read::Long,
            (Type::Long, Kind::Float) => Read::LongToFloat,
            (Type::Long, Kind::Double) => Read::LongToDouble,
            (Type::Float, Kind::Float) => Read::Float,
            (Type::Float, Kind::Double) => Read::FloatToDouble,
            (Type::Double, Kind::Double) => Read::Double,
            (Type::Bytes | Type::String, Kind::Bytes) => Read::Bytes,
            (Type::Bytes | Type::String, Kind::String) => Read::String,
            (Type::Fixed(fixed), Kind::Fixed(size)) if fixed.size == *size => Read::Fixed(*size),
            (Type::Enum(of), Kind::Enum(symbols)) => Read::Enum(self.symbols(of, symbols)),
            _ => return None,
        })
    }

    fn symbols(&self, of: &Enum, known: &[String]) -> Symbols {
        let place = |symbol: &String| known.iter().position(|k| k == symbol).map(|p| p as u32);
        let default = of.default.as_ref().and_then(place);
        let places = of.symbols.iter().map(|symbol| place(symbol).or(default)).collect();
        Symbols { places, names: of.symbols.clone().into() }
    }

    /// Each branch is resolved separately; at least one besides null must match.
    fn union(&mut self, id: NodeId, branches: &[NodeId], node: &Node) -> Compiled<Op> {
        let mut ops = Vec::with_capacity(branches.len());
        let mut failed = None;
        let mut matched = false;
        for branch in branches {
            let depth = self.at.len();
            ops.push(match self.op(*branch, node) {
                Ok(op) => {
                    matched |= *self.kind(*branch) != Type::Null;
                    op
                }
                Err(error) => {
                    self.at.truncate(depth);
                    failed = failed.or(Some(error));
                    Op::Fail(self.kind(*branch).to_string())
                }
            });
        }
        match failed {
            Some(error) if !matched => Err(error),
            _ if branches.is_empty() => Err(self.types(id, node)),
            _ => Ok(Op::Union(ops.into())),
        }
    }

    /// The shape's branch of the same name, else the first to which the type is promoted. A branch
    /// that is not selected is skipped.
    fn branch(&mut self, id: NodeId, node: &Node, members: &[Member]) -> Compiled<Op> {
        let name = branch_name(self.kind(id));
        let named = members.iter().position(|member| member.name == name);
        if named.is_none() && node.branches.iter().any(|known| known == name) {
            let nulls = members.iter().flat_map(|member| member.node.nulls()).collect();
            let skip = Op::Skip { step: id.index(), nulls: Box::default() };
            return Ok(Op::Branch { record: node.slot, nulls, op: skip.into() });
        }
        let tried = named.map_or(0..members.len(), |place| place..place + 1);
        let mut error = self.types(id, node);
        for place in tried {
            match self.inside(name, |this| this.op(id, &members[place].node)) {
                Ok(op) => {
                    let others = members.iter().enumerate().filter(|(i, _)| *i != place);
                    let nulls = others.flat_map(|(_, member)| member.node.nulls()).collect();
                    return Ok(Op::Branch { record: node.slot, nulls, op: op.into() });
                }
                Err(other) if named.is_some() => error = other,
                Err(_) => {}
            }
        }
        Err(error)
    }

    fn record(
        &mut self,
        id: NodeId,
        record: &Record,
        node: &Node,
        members: &[Member],
    ) -> Compiled<Op> {
        let (wanted, missing) = sources(record, members);
        let mut parts: Vec<Fields> = Vec::new();
        for (place, member) in wanted.iter().enumerate() {
            match (member, parts.last_mut()) {
                (Some(member), _) => {
                    let field = &record.fields[place];
                    let op = self.inside(&member.name, |this| {
                        member.node.same_units(field, &this.at)?;
                        this.op(field.kind, &member.node)
                    })?;
                    parts.push(Fields::Read(place, op));
                }
                (None, Some(Fields::Skip(range))) => range.end = place + 1,
                (None, _) => parts.push(Fields::Skip(place..place + 1)),
            }
        }
        let missing = missing.iter().flat_map(|member| member.node.nulls()).collect();
        let parts = parts.into();
        Ok(Op::Record(RecordOp { step: id.index(), slot: node.slot, parts, missing }))
    }

    fn inside<T>(&mut self, name: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        self.at.push(name.to_owned());
        let done = run(self);
        self.at.pop();
        done
    }
}

/// The member that is read from each of the writer's fields, by name, else by alias; and those
/// without a field.
fn sources<'m>(
    record: &Record,
    members: &'m [Member],
) -> (Vec<Option<&'m Member>>, Vec<&'m Member>) {
    let mut wanted: Vec<Option<&Member>> = vec![None; record.fields.len()];
    let place = |name: &String| record.fields.iter().position(|field| field.name == *name);
    let mut unnamed = Vec::new();
    for member in members {
        match place(&member.name) {
            Some(place) => wanted[place] = Some(member),
            None => unnamed.push(member),
        }
    }
    unnamed.retain(|member| {
        let free = |place: &usize| wanted[*place].is_none();
        let found = member.aliases.iter().filter_map(place).find(free);
        found.map(|place| wanted[place] = Some(member)).is_none()
    });
    (wanted, unnamed)
}
