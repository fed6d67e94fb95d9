//! Projections: equal to the full decoder, from datums of older and newer schemas, and from real
//! alert packets.

use std::path::{Path, PathBuf};

use helio_core::codec::{Blocks, Codec, EncodeOptions, Value};
use helio_core::container::Container;
use helio_core::projection::{Kind, Projection, Shape, ShapeError, Sink};
use helio_core::resolve::Resolution;
use helio_core::schema::{NodeId, Schema, SchemaSet, Type};

use crate::common::shared_data;
use crate::random::{Random, any_schema, any_value, evolved};

/// A column's value.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Leaf(Value),
    List(Vec<Cell>),
    Map(Vec<(String, Cell)>),
    /// The members in the order of the shape.
    Record(Vec<Cell>),
}

/// Builds cells as Arrow's builders do: what a slot received, in order.
struct Cells<'s> {
    shape: &'s Shape,
    received: Vec<Vec<Cell>>,
    keys: Vec<Vec<String>>,
}

impl<'s> Cells<'s> {
    fn read(shape: &'s Shape, projection: &Projection, bytes: &[u8]) -> Vec<Cell> {
        let count = shape.slots().len();
        let mut cells = Self { shape, received: vec![vec![]; count], keys: vec![vec![]; count] };
        projection.read(bytes, &mut cells).unwrap();
        let columns = shape.columns().iter();
        let out = columns.map(|slot| cells.take(*slot, 1).pop().unwrap()).collect();
        assert!(cells.received.iter().all(Vec::is_empty), "all that was received has a place");
        out
    }

    fn push(&mut self, slot: usize, value: impl Into<Value>) {
        self.received[slot].push(Cell::Leaf(value.into()));
    }

    /// The last values of a slot.
    fn take(&mut self, slot: usize, count: usize) -> Vec<Cell> {
        let from = self.received[slot].len() - count;
        let mut out = self.received[slot].split_off(from);
        let shape = self.shape;
        let of = &shape.slots()[slot];
        if of.kind == Kind::Record {
            for child in &of.children {
                for (record, member) in out.iter_mut().zip(self.take(*child, count)) {
                    match record {
                        Cell::Record(members) => members.push(member),
                        _ => assert_eq!(member, Cell::Null, "a null record's members are null"),
                    }
                }
            }
        }
        out
    }
}

impl<'a> Sink<'a> for Cells<'_> {
    fn null(&mut self, slot: usize) {
        self.received[slot].push(Cell::Null);
    }
    fn boolean(&mut self, slot: usize, value: bool) {
        self.push(slot, value);
    }
    fn int(&mut self, slot: usize, value: i32) {
        self.push(slot, value);
    }
    fn long(&mut self, slot: usize, value: i64) {
        self.push(slot, value);
    }
    fn float(&mut self, slot: usize, value: f32) {
        self.push(slot, value);
    }
    fn double(&mut self, slot: usize, value: f64) {
        self.push(slot, value);
    }
    fn bytes(&mut self, slot: usize, value: &'a [u8]) {
        self.push(slot, value.to_vec());
    }
    fn string(&mut self, slot: usize, value: &'a str) {
        self.push(slot, value);
    }
    fn symbol(&mut self, slot: usize, value: u32) {
        self.push(slot, Value::Enum(value));
    }
    fn record(&mut self, slot: usize) {
        self.received[slot].push(Cell::Record(Vec::new()));
    }
    fn key(&mut self, slot: usize, key: &'a str) {
        self.keys[slot].push(key.to_owned());
    }
    fn end(&mut self, slot: usize, count: usize) {
        let of = &self.shape.slots()[slot];
        let items = match of.children.first() {
            Some(item) => self.take(*item, count),
            None => Vec::new(),
        };
        let keys = &mut self.keys[slot];
        self.received[slot].push(match of.kind {
            Kind::Map => Cell::Map(keys.drain(keys.len() - count..).zip(items).collect()),
            _ => Cell::List(items),
        });
    }
}

fn branch_name(kind: &Type) -> &str {
    let name = kind.name().unwrap_or(kind.word());
    name.rsplit('.').next().unwrap()
}

/// The value behind names, in a decoded datum.
fn find<'v>(
    schema: &Schema,
    id: NodeId,
    value: &'v Value,
    names: &[&str],
) -> Option<(NodeId, &'v Value)> {
    match (&schema.node(id).kind, value) {
        (Type::Null, _) => None,
        (Type::Union(branches), Value::Union(branch, inner)) => {
            let id = branches[*branch as usize];
            let kind = &schema.node(id).kind;
            let values = branches.iter().filter(|id| schema.node(**id).kind != Type::Null).count();
            match (values, names) {
                (0 | 1, _) | (_, []) => find(schema, id, inner, names),
                (_, [name, rest @ ..]) if *name == branch_name(kind) => {
                    find(schema, id, inner, rest)
                }
                _ => None,
            }
        }
        (Type::Record(record), Value::Record(values)) if !names.is_empty() => {
            let place = record.fields.iter().position(|field| field.name == names[0])?;
            find(schema, record.fields[place].kind, &values[place], &names[1..])
        }
        _ => Some((id, value)),
    }
}

/// The cell of a slot, from its value in a decoded datum.
fn cell(shape: &Shape, slot: usize, schema: &Schema, at: Option<(NodeId, &Value)>) -> Cell {
    let of = &shape.slots()[slot];
    let Some((id, value)) = at.and_then(|(id, value)| {
        find(schema, id, value, &[]).map(|found| match of.kind {
            // A union of several types is a record of its branches.
            Kind::Record => (id, value),
            _ => found,
        })
    }) else {
        return Cell::Null;
    };
    match of.kind {
        Kind::List => {
            let Type::Array(item) = schema.node(id).kind else { panic!("no array") };
            let all = elements(value);
            Cell::List(
                all.iter().map(|v| cell(shape, of.children[0], schema, Some((item, v)))).collect(),
            )
        }
        Kind::Map => {
            let (Type::Map(item), Value::Map(all)) = (&schema.node(id).kind, value) else {
                panic!("no map")
            };
            let one = |v| cell(shape, of.children[0], schema, Some((*item, v)));
            Cell::Map(all.iter().map(|(key, v)| (key.clone(), one(v))).collect())
        }
        Kind::Record => {
            let member = |child: &usize| {
                let names: Vec<&str> = shape.slots()[*child].name.split('.').collect();
                cell(shape, *child, schema, find(schema, id, value, &names))
            };
            Cell::Record(of.children.iter().map(member).collect())
        }
        _ => Cell::Leaf(value.clone()),
    }
}

fn elements(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(all) => all.clone(),
        Value::Booleans(all) => all.iter().map(|v| (*v).into()).collect(),
        Value::Ints(all) => all.iter().map(|v| (*v).into()).collect(),
        Value::Longs(all) => all.iter().map(|v| (*v).into()).collect(),
        Value::Floats(all) => all.iter().map(|v| (*v).into()).collect(),
        Value::Doubles(all) => all.iter().map(|v| (*v).into()).collect(),
        other => panic!("{other:?}"),
    }
}

/// All columns, from the decoded datum.
fn expected(shape: &Shape, schema: &Schema, value: &Value) -> Vec<Cell> {
    let column = |slot: &usize| {
        let names: Vec<&str> = shape.slots()[*slot].name.split('.').collect();
        cell(shape, *slot, schema, find(schema, NodeId::ROOT, value, &names))
    };
    shape.columns().iter().map(column).collect()
}

/// A field that the writer lacks is null here: its default is not used.
fn blank(shape: &Shape, slot: usize, cell: &mut Cell) {
    let of = &shape.slots()[slot];
    if of.name == "added" || of.name.ends_with(".added") {
        *cell = Cell::Null;
    }
    let item = of.children.first().copied().unwrap_or_default();
    match cell {
        Cell::List(all) => all.iter_mut().for_each(|cell| blank(shape, item, cell)),
        Cell::Map(all) => all.iter_mut().for_each(|(_, cell)| blank(shape, item, cell)),
        Cell::Record(all) => {
            of.children.iter().zip(all).for_each(|(slot, cell)| blank(shape, *slot, cell));
        }
        Cell::Null | Cell::Leaf(_) => {}
    }
}

/// A random path to something, at most so deep.
fn any_path(random: &mut Random, schema: &Schema) -> Option<String> {
    let mut path = String::new();
    let mut id = NodeId::ROOT;
    for _ in 0..12 {
        let dot = if path.is_empty() { "" } else { "." };
        match &schema.node(id).kind {
            Type::Record(record) if record.fields.is_empty() => return None,
            Type::Record(record) => {
                let field = &record.fields[random.below(record.fields.len())];
                path = format!("{path}{dot}{}", field.name);
                id = field.kind;
            }
            Type::Union(branches) => {
                let value = |id: &&NodeId| schema.node(**id).kind != Type::Null;
                let values: Vec<_> = branches.iter().filter(value).collect();
                match values[..] {
                    [] => return Some(path),
                    [one] => id = *one,
                    _ => {
                        id = *values[random.below(values.len())];
                        path = format!("{path}{dot}{}", branch_name(&schema.node(id).kind));
                    }
                }
            }
            Type::Array(item) if random.chance(2) => {
                path.push_str("[]");
                id = *item;
            }
            _ => return Some(path),
        }
        if !path.is_empty() && random.chance(8) {
            return Some(path);
        }
    }
    None
}

fn any_shape(random: &mut Random, schema: &Schema) -> Option<Shape> {
    let paths: Vec<_> = (0..random.below(6)).filter_map(|_| any_path(random, schema)).collect();
    match Shape::new(std::slice::from_ref(schema), &paths) {
        Ok(shape) => Some(shape),
        Err(ShapeError::Recursive { .. }) => None,
        Err(error) => panic!("{paths:?} of {schema}: {error}"),
    }
}

fn datum(schema: &Schema, blocks: Blocks, value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let codec = Codec::with_options(schema, EncodeOptions { blocks });
    codec.encode(value, &mut bytes).unwrap();
    bytes
}

#[test]
fn columns_are_those_of_the_decoder() {
    let random = &mut Random::new(11);
    let mut seen = 0;
    for round in 0..3000 {
        let schema = Schema::from_json(&any_schema(random)).unwrap();
        let Some(shape) = any_shape(random, &schema) else { continue };
        let projection = Projection::new(&schema, &shape).unwrap();
        let blocks = if round % 2 == 0 { Blocks::Sized } else { Blocks::Plain };
        for _ in 0..5 {
            let value = any_value(random, &schema);
            let bytes = datum(&schema, blocks, &value);
            let found = Cells::read(&shape, &projection, &bytes);
            assert_eq!(found, expected(&shape, &schema, &value), "{schema}");
            seen += found.iter().filter(|cell| **cell != Cell::Null).count();
        }
    }
    assert!(seen > 10_000, "{seen} values");
}

#[test]
fn columns_of_an_older_schema_are_those_of_the_resolution() {
    let random = &mut Random::new(12);
    let mut seen = 0;
    for _ in 0..3000 {
        let json = any_schema(random);
        let writer = Schema::from_json(&json).unwrap();
        let reader = Schema::from_json(&evolved(random, &json)).unwrap();
        let Ok(resolution) = Resolution::new(&writer, &reader) else { continue };
        let Some(shape) = any_shape(random, &reader) else { continue };
        let projection = Projection::new(&writer, &shape).unwrap();
        let both = Shape::new(&[reader.clone(), writer.clone()], &["*"]);
        for _ in 0..3 {
            let bytes = datum(&writer, Blocks::Sized, &any_value(random, &writer));
            let mut resolved = Vec::new();
            if resolution.transcode(&bytes, &mut resolved).is_err() {
                continue;
            }
            let value = Codec::new(&reader).decode(&resolved).unwrap();
            let mut wanted = expected(&shape, &reader, &value);
            for (cell, slot) in wanted.iter_mut().zip(shape.columns()) {
                blank(&shape, *slot, cell);
            }
            assert_eq!(Cells::read(&shape, &projection, &bytes), wanted, "{writer} {reader}");
            seen += wanted.iter().filter(|cell| **cell != Cell::Null).count();
            // The shape of both reads both.
            if let Ok(both) = &both {
                let mut names = both.columns().iter().map(|slot| &both.slots()[*slot].name);
                assert!(reader.field("added").is_none() || names.any(|name| name == "added"));
                Cells::read(both, &Projection::new(&writer, both).unwrap(), &bytes);
                Cells::read(both, &Projection::new(&reader, both).unwrap(), &resolved);
            }
        }
    }
    assert!(seen > 3_000, "{seen} values");
}

fn parse(text: &str) -> Schema {
    Schema::parse(text).unwrap()
}

const SOURCE: &str = r#"{"type": "record", "name": "alert", "fields": [
    {"name": "id", "type": "long"},
    {"name": "source", "type": {"type": "record", "name": "source", "fields": [
        {"name": "snr", "type": ["null", "float"], "units": "1", "doc": "signal to noise"},
        {"name": "flux", "type": "float"}]}},
    {"name": "prv", "type": ["null", {"type": "array", "items": "source"}]},
    {"name": "stamp", "type": ["null", "bytes"]}]}"#;

#[test]
fn names_of_columns_are_paths() {
    let schema = parse(SOURCE);
    let paths = ["prv[].flux", "source", "prv[].snr", "id", "source.snr"];
    let shape = Shape::new(&[schema], &paths).unwrap();
    let slots = shape.slots();
    let names = |slots: &[usize]| -> Vec<String> {
        slots.iter().map(|slot| shape.slots()[*slot].name.clone()).collect()
    };
    assert_eq!(names(shape.columns()), ["prv", "source.snr", "source.flux", "id"]);
    let list = &slots[shape.columns()[0]];
    let item = &slots[list.children[0]];
    assert_eq!((&list.kind, &item.kind), (&Kind::List, &Kind::Record));
    assert_eq!(names(&item.children), ["flux", "snr"]);
    let snr = &slots[shape.columns()[1]];
    assert_eq!(snr.units.as_deref(), Some("1"));
    assert_eq!(snr.description.as_deref(), Some("signal to noise"));
}

#[test]
fn wrong_paths_name_the_remedy() {
    let error = |path: &str| Shape::new(&[parse(SOURCE)], &[path]).unwrap_err().to_string();
    assert_eq!(error("source.sn"), "there is no source.sn; beside it are: snr, flux");
    assert_eq!(error("prv.snr"), "prv is an array; write prv[] for its elements");
    assert_eq!(error("id.x"), "id is a long, of which no part can be selected; select the whole");
    assert!(error("id[]").contains("id is a long"));
    assert!(error("a[").contains("is no path"));
    let list = parse(
        r#"{"type": "record", "name": "L", "fields": [
        {"name": "x", "type": "int"}, {"name": "next", "type": ["null", "L"]}]}"#,
    );
    let recursive = Shape::new(std::slice::from_ref(&list), &["*"]).unwrap_err();
    assert_eq!(
        recursive.to_string(),
        "next: the record L contains itself; select its fields by name"
    );
    assert!(Shape::new(&[list], &["next.next.x"]).is_ok());
}

#[test]
fn a_selection_has_a_limit() {
    // Each record contains the next twice: 2^30 fields.
    let mut text = r#"{"type": "record", "name": "R30", "fields": []}"#.to_owned();
    for i in (0..30).rev() {
        text = format!(
            r#"{{"type": "record", "name": "R{i}", "fields": [
                {{"name": "a", "type": {text}}}, {{"name": "b", "type": "R{}"}}]}}"#,
            i + 1
        );
    }
    let error = Shape::new(&[parse(&text)], &["*"]).unwrap_err();
    assert!(matches!(error, ShapeError::Limit { .. }), "{error}");
}

#[test]
fn types_that_do_not_resolve_are_named() {
    let record = |kind: &str| {
        parse(&format!(
            r#"{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {kind}}}]}}"#
        ))
    };
    let shape = |kinds: &[&str]| {
        let schemas: Vec<Schema> = kinds.iter().map(|kind| record(kind)).collect();
        Shape::new(&schemas, &["a"])
    };
    let kind = |kinds: &[&str]| shape(kinds).map(|shape| shape.slots()[0].kind.clone());
    assert_eq!(kind(&[r#""int""#, r#""long""#]), Ok(Kind::Long));
    assert_eq!(kind(&[r#"["null", "double"]"#, r#""long""#]), Ok(Kind::Double));
    assert_eq!(kind(&[r#""null""#, r#"["null", "string"]"#]), Ok(Kind::String));
    let error = shape(&[r#""string""#, r#""int""#]).unwrap_err().to_string();
    assert_eq!(error, "a: a string cannot be read from a int");
    let time = |of| format!(r#"{{"type": "long", "logicalType": "timestamp-{of}"}}"#);
    let error = shape(&[&time("millis"), &time("micros")]).unwrap_err().to_string();
    assert_eq!(error, "a: the writer's values are TimestampMicros, the reader's TimestampMillis");
    // A narrower shape cannot read a wider type, which the writer's error names.
    let narrow = shape(&[r#""int""#]).unwrap();
    let error = Projection::new(&record(r#""double""#), &narrow).unwrap_err().to_string();
    assert_eq!(error, "a: a int cannot be read from a double");
}

#[test]
fn different_units_are_named() {
    let of = |unit: &str| {
        parse(&format!(
            r#"{{"type": "record", "name": "R", "fields": [
                {{"name": "flux", "type": "float", "units": "{unit}"}},
                {{"name": "id", "type": "long"}}]}}"#
        ))
    };
    let (new, old) = (of("nJy"), of("mag"));
    let expected = r#"flux: the writer's unit is "mag", the reader's "nJy""#;
    let error = Shape::new(&[new.clone(), old.clone()], &["flux"]).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let shape = Shape::new(std::slice::from_ref(&new), &["*"]).unwrap();
    assert_eq!(Projection::new(&old, &shape).unwrap_err().to_string(), expected);
    // Other columns are read.
    let shape = Shape::new(&[new], &["id"]).unwrap();
    assert!(Projection::new(&old, &shape).is_ok());
}

#[test]
fn branches_of_one_name_are_not_mixed_up() {
    let schema = parse(
        r#"{"type": "record", "name": "R", "fields": [{"name": "u", "type": [
            {"type": "fixed", "name": "a.F", "size": 2},
            {"type": "fixed", "name": "b.F", "size": 3}]}]}"#,
    );
    let error = Shape::new(std::slice::from_ref(&schema), &["*"]).unwrap_err().to_string();
    assert!(error.starts_with("u is a union with several branches F"), "{error}");
    assert!(Shape::new(&[schema], &["u.F"]).is_err());
}

#[test]
fn older_names_are_aliases() {
    let of =
        |field: &str| parse(&format!(r#"{{"type": "record", "name": "R", "fields": [{field}]}}"#));
    let old = of(r#"{"name": "MPCORB", "type": ["null", {"type": "record", "name": "v9.MPCORB",
        "fields": [{"name": "q", "type": "double"}]}]}"#);
    let new = of(r#"{"name": "mpc_orbits", "aliases": ["MPCORB"], "type": ["null",
        {"type": "record", "name": "v11.mpc_orbits", "fields": [
            {"name": "q", "type": "double"}, {"name": "e", "type": "double"}]}]}"#);
    for schemas in [vec![new.clone()], vec![new.clone(), old.clone()], vec![old.clone(), new]] {
        let shape = Shape::new(&schemas, &["mpc_orbits.q", "mpc_orbits.e"]).unwrap();
        let projection = Projection::new(&old, &shape).unwrap();
        let orbit = Value::Union(1, Box::new(Value::Record(vec![2.5.into()])));
        let bytes = datum(&old, Blocks::Sized, &Value::Record(vec![orbit]));
        let cells = Cells::read(&shape, &projection, &bytes);
        assert_eq!(cells, [Cell::Leaf(2.5.into()), Cell::Null]);
    }
}

#[test]
fn errors_name_the_path_and_the_byte() {
    let schema = parse(SOURCE);
    let shape = Shape::new(std::slice::from_ref(&schema), &["prv[].flux"]).unwrap();
    let projection = Projection::new(&schema, &shape).unwrap();
    struct Nothing;
    impl Sink<'_> for Nothing {}
    // id, source {null, flux}, two elements {snr, flux} of which the second has a wrong branch.
    let mut bytes = vec![2, 0, 0, 0, 0, 0, 2, 4];
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([9, 0, 0, 0, 0, 0, 0]);
    let error = projection.read(&bytes, &mut Nothing).unwrap_err();
    assert_eq!((error.offset(), error.error().at().as_str()), (18, "prv[1].snr"));
    assert_eq!(
        error.to_string(),
        "at byte 18: prv[1].snr: the union has no branch -5: damaged, or of another schema"
    );
    bytes[17] = 0;
    bytes.truncate(22);
    bytes.extend([0, 9]);
    let error = projection.read(&bytes, &mut Nothing).unwrap_err();
    assert_eq!(error.error().at(), "stamp");
}

#[test]
fn skipped_blocks_with_a_size_are_not_walked() {
    let schema = parse(SOURCE);
    let shape = Shape::new(std::slice::from_ref(&schema), &["stamp"]).unwrap();
    let projection = Projection::new(&schema, &shape).unwrap();
    // A block of one element in five bytes that are none.
    let mut bytes = vec![2, 0, 0, 0, 0, 0, 2, 1, 10, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 2, 4, 7, 8];
    let cells = Cells::read(&shape, &projection, &bytes);
    assert_eq!(cells, [Cell::Leaf(vec![7_u8, 8].into())]);
    // Without its size it is walked.
    bytes[7] = 2;
    bytes.remove(8);
    struct Nothing;
    impl Sink<'_> for Nothing {}
    assert_eq!(projection.read(&bytes, &mut Nothing).unwrap_err().error().at(), "prv[0].snr");
}

#[test]
fn branches_of_a_union_are_columns() {
    let of = |kinds: &str| {
        parse(&format!(
            r#"{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {kinds}}}]}}"#
        ))
    };
    let union = of(r#"["null", "int", "long", "string"]"#);
    let read = |shape: &Shape, schema: &Schema, value: Value| {
        let bytes = datum(schema, Blocks::Sized, &Value::Record(vec![value]));
        Cells::read(shape, &Projection::new(schema, shape).unwrap(), &bytes)
    };
    let branch = |branch, value: Value| Value::Union(branch, Box::new(value));
    let long = Shape::new(std::slice::from_ref(&union), &["a.long"]).unwrap();
    // Another branch that is known is not promoted.
    assert_eq!(read(&long, &union, branch(1, 7.into())), [Cell::Null]);
    assert_eq!(read(&long, &union, branch(2, 7_i64.into())), [Cell::Leaf(7_i64.into())]);
    let all = Shape::new(std::slice::from_ref(&union), &["a"]).unwrap();
    let cells = read(&all, &union, branch(3, "x".into()));
    assert_eq!(cells, [Cell::Null, Cell::Null, Cell::Leaf("x".into())]);
    // A plain type is the branch of its name, else the one that reads it.
    let plain = read(&all, &of("\"long\""), 7_i64.into());
    assert_eq!(plain, [Cell::Null, Cell::Leaf(7_i64.into()), Cell::Null]);
    let bytes = read(&all, &of("\"bytes\""), b"x".to_vec().into());
    assert_eq!(bytes, [Cell::Null, Cell::Null, Cell::Leaf("x".into())]);
    let error = Projection::new(&of("\"boolean\""), &all).unwrap_err().to_string();
    assert_eq!(error, "a: a union cannot be read from a boolean");
}

#[test]
fn nulls_that_have_no_bytes_are_limited() {
    let field = |i: usize| format!(r#"{{"name": "f{i}", "type": "int"}}"#);
    let fields: Vec<String> = (0..100).map(field).collect();
    let of = |fields: &str| {
        parse(&format!(
            r#"{{"type": "array", "items": ["null", {{"type": "record", "name": "R",
                "fields": [{fields}]}}]}}"#
        ))
    };
    let (wide, narrow) = (of(&fields.join(", ")), of(&field(0)));
    let shape = Shape::new(std::slice::from_ref(&wide), &["value"]).unwrap();
    for (schema, element) in [(&wide, &[0][..]), (&narrow, &[2, 2])] {
        let projection = Projection::new(schema, &shape).unwrap();
        for (count, fits) in [(600_usize, true), (100_000, false)] {
            let mut bytes = Vec::new();
            helio_core::codec::wire::put_length(&mut bytes, count);
            bytes.extend(element.repeat(count));
            bytes.push(0);
            assert!(Codec::new(schema).check(&bytes).is_ok());
            struct Count(usize);
            impl Sink<'_> for Count {
                fn null(&mut self, _slot: usize) {
                    self.0 += 1;
                }
            }
            let mut nulls = Count(0);
            assert_eq!(projection.read(&bytes, &mut nulls).is_ok(), fits);
            assert!(nulls.0 <= 66_000 + bytes.len() * 2, "{} nulls", nulls.0);
        }
    }
}

/// The fields of two objects in ZTF's packet, from the schema in its container.
#[test]
fn a_real_packet_of_ztf() {
    let Some(path) = shared_data("alerts/ztf-3_3.avro") else { return };
    let bytes = std::fs::read(path).unwrap();
    let mut file = Container::open(&bytes).unwrap();
    let schema = file.schema().clone();
    let packet = file.next_datum().unwrap().unwrap().to_vec();
    let paths = [
        "objectId",
        "candidate.ra",
        "candidate.magpsf",
        "prv_candidates[].magpsf",
        "prv_candidates[].jd",
        "fp_hists",
        "cutoutScience.stampData",
        "candidate",
    ];
    same_as_the_decoder(&schema, &paths, &packet);
    same_as_the_decoder(&schema, &["*"], &packet);
}

fn same_as_the_decoder(schema: &Schema, paths: &[&str], packet: &[u8]) {
    let value = Codec::new(schema).decode(packet).unwrap();
    let shape = Shape::new(std::slice::from_ref(schema), paths).unwrap();
    let projection = Projection::new(schema, &shape).unwrap();
    let cells = Cells::read(&shape, &projection, packet);
    // Their texts: NaN is not equal to itself.
    assert_eq!(format!("{cells:?}"), format!("{:?}", expected(&shape, schema, &value)));
    assert!(cells.iter().filter(|cell| **cell != Cell::Null).count() >= paths.len().min(4));
}

/// The published schema of LSST's alerts: from the package lsst-alert-packet, where the
/// repository's Python environment has it. Else the test reports that it is skipped.
fn lsst_schema() -> Option<Schema> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let pythons = std::fs::read_dir(&venv).into_iter().flatten().flatten();
    let mut folders = pythons.map(|p| p.path().join("site-packages/lsst/alert/packet/schema/9/0"));
    let Some(folder) = folders.find(|folder| folder.is_dir()) else {
        eprintln!("skipped: {} has no lsst-alert-packet", venv.display());
        return None;
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "avsc"));
    let text =
        |file: PathBuf| (file.display().to_string(), std::fs::read_to_string(&file).unwrap());
    let texts: Vec<(String, String)> = files.map(text).collect();
    let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    Some(SchemaSet::load(texts).unwrap().schema("lsst.v9_0.alert").unwrap())
}

#[test]
fn a_real_packet_of_rubin() {
    let Some(path) = shared_data("alerts/lsst-v9_0-confluent-framed.bin") else { return };
    let Some(schema) = lsst_schema() else { return };
    let bytes = std::fs::read(path).unwrap();
    let (number, packet) = helio_core::confluent::unframe(&bytes).unwrap();
    assert_eq!(number, 900);
    let paths = [
        "diaSource.snr",
        "diaSource.ra",
        "diaSource.band",
        "diaObject.diaObjectId",
        "prvDiaSources[].psfFlux",
        "prvDiaSources[].midpointMjdTai",
        "cutoutDifference",
    ];
    same_as_the_decoder(&schema, &paths, packet);
    same_as_the_decoder(&schema, &["*"], packet);
    // Sized blocks of the same values are read alike.
    let value = Codec::new(&schema).decode(packet).unwrap();
    same_as_the_decoder(&schema, &["*"], &datum(&schema, Blocks::Sized, &value));
}
