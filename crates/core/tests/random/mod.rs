//! Random schemas and values, for several tests.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "in tests a failure is to panic")]

use std::collections::BTreeSet;

use helio_core::codec::Value;
use helio_core::schema::{DType, Field, LogicalType, NdArray, NodeId, Schema, Type};
use serde_json::{Value as Json, json};

/// A small generator of numbers (splitmix64), so that a seed reproduces a failing case.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

const PLAIN: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

const INTEGERS: [(&str, &str); 6] = [
    ("int", "int8"),
    ("int", "uint8"),
    ("int", "int16"),
    ("int", "uint16"),
    ("long", "uint32"),
    ("long", "uint64"),
];

/// A random schema, with namespaces, reused named types, and recursion.
pub(crate) fn any_schema(random: &mut Random) -> Json {
    let mut made = Made { random, names: Vec::new(), count: 0 };
    made.record(3, "")
}

/// A random schema that IDL can express: without maps, recursion, and unions other than with
/// `null`, and with the attributes that select types.
#[allow(dead_code, reason = "some tests want other schemas")]
pub(crate) fn any_sayable(random: &mut Random) -> Json {
    let mut made = Made { random, names: Vec::new(), count: 0 };
    made.sayable_record(3)
}

struct Made<'a> {
    random: &'a mut Random,
    /// Full names of complete types.
    names: Vec<String>,
    count: usize,
}

impl Made<'_> {
    fn name(&mut self, namespace: &str) -> (String, String, String) {
        self.count += 1;
        let short = format!("N{}", self.count);
        let space = match self.random.below(3) {
            0 => "a.b".to_owned(),
            1 => "c".to_owned(),
            _ => namespace.to_owned(),
        };
        let full = if space.is_empty() { short.clone() } else { format!("{space}.{short}") };
        (short, space, full)
    }

    fn record(&mut self, depth: usize, outer: &str) -> Json {
        let (name, space, full) = self.name(outer);
        let mut fields = Vec::new();
        for i in 0..self.random.below(6) {
            let mut field = json!({"name": format!("f{i}"), "type": self.any(depth, &space)});
            if self.random.chance(3) {
                field["doc"] = json!("what it is");
            }
            fields.push(field);
        }
        if self.random.chance(3) {
            fields.push(json!({"name": "again", "type": ["null", full.clone()]}));
        }
        self.names.push(full);
        let mut out = json!({"type": "record", "name": name, "fields": fields});
        if space != outer {
            out["namespace"] = json!(space);
        }
        out
    }

    fn any(&mut self, depth: usize, space: &str) -> Json {
        if depth == 0 || self.random.chance(2) {
            return json!(PLAIN[self.random.below(PLAIN.len())]);
        }
        match self.random.below(9) {
            0 => json!({"type": "array", "items": self.any(depth - 1, space)}),
            1 => json!({"type": "map", "values": self.any(depth - 1, space)}),
            2 => self.union(depth - 1, space),
            3 => self.record(depth - 1, space),
            4 => {
                let (_, _, full) = self.name(space);
                self.names.push(full.clone());
                json!({"type": "fixed", "name": full, "size": self.random.below(20) + 1})
            }
            5 => {
                let (_, _, full) = self.name(space);
                self.names.push(full.clone());
                let count = self.random.below(5) + 1;
                let symbols: Vec<_> = (0..count).map(|i| format!("S{i}")).collect();
                json!({"type": "enum", "name": full, "symbols": symbols})
            }
            6 => {
                let (base, name) = INTEGERS[self.random.below(INTEGERS.len())];
                json!({"type": base, "logicalType": name})
            }
            7 => {
                let dtype = DType::ALL[self.random.below(DType::ALL.len())].name();
                let shape = [json!([]), json!([-1]), json!([3]), json!([2, -1, 2]), json!([0, 4])];
                let shape = &shape[self.random.below(shape.len())];
                json!({"type": "bytes", "logicalType": "ndarray", "dtype": dtype, "shape": shape})
            }
            // A name without namespace cannot be used within one.
            _ => match self.names.last().filter(|name| name.contains('.') || space.is_empty()) {
                Some(name) => json!(name),
                None => json!("long"),
            },
        }
    }

    fn sayable_record(&mut self, depth: usize) -> Json {
        let (name, space, _) = self.name("");
        let fields: Vec<Json> = (0..self.random.below(5) + 1)
            .map(|i| {
                let array = depth > 0 && self.random.chance(3);
                let optional = self.random.chance(4);
                let (kind, sal) = self.sayable(if array { depth - 1 } else { depth });
                let mut field =
                    json!({"name": format!("f{i}"), "type": kind.clone(), "salType": sal});
                if array && kind != "bytes" && kind["type"] != "fixed" {
                    field["type"] = json!({"type": "array", "items": kind});
                    if self.random.chance(2) {
                        field["length"] = json!(self.random.below(4) + 1);
                    }
                }
                if optional {
                    field["type"] = match self.random.below(2) {
                        0 => json!(["null", field["type"]]),
                        _ => json!([field["type"], "null"]),
                    };
                }
                field
            })
            .collect();
        json!({"type": "record", "name": name, "namespace": space, "fields": fields})
    }

    /// A type and its SAL type.
    fn sayable(&mut self, depth: usize) -> (Json, &'static str) {
        let plain = [
            ("boolean", "boolean"),
            ("int", "byte"),
            ("int", "short"),
            ("int", "unsigned short"),
            ("int", "int"),
            ("long", "unsigned int"),
            ("long", "long long"),
            ("float", "float"),
            ("double", "double"),
            ("string", "string"),
            ("bytes", ""),
        ];
        match self.random.below(if depth > 0 { 20 } else { 13 }) {
            11 => {
                let (_, _, full) = self.name("");
                let symbols: Vec<_> =
                    (0..=self.random.below(4)).map(|i| format!("S{}_{i}", self.count)).collect();
                (json!({"type": "enum", "name": full, "symbols": symbols}), "")
            }
            12 => {
                let (_, _, full) = self.name("");
                (json!({"type": "fixed", "name": full, "size": self.random.below(20) + 1}), "")
            }
            13..=15 => (self.sayable_record(depth - 1), ""),
            n => {
                let (kind, sal) = plain[n % plain.len()];
                (json!(kind), sal)
            }
        }
    }

    fn union(&mut self, depth: usize, space: &str) -> Json {
        let mut seen = BTreeSet::new();
        let mut branches = Vec::new();
        for _ in 0..self.random.below(4) + 1 {
            let known = self.names.len();
            let branch = self.any(depth, space);
            let key = match &branch {
                Json::Object(object) => match object["type"].as_str().unwrap() {
                    word @ ("array" | "map" | "int" | "long" | "bytes") => word.to_owned(),
                    _ => self.names.last().unwrap().clone(),
                },
                Json::String(word) => word.clone(),
                _ => String::new(),
            };
            if !branch.is_array() && seen.insert(key) {
                branches.push(branch);
            } else {
                // The branch's definitions are removed with it.
                self.names.truncate(known);
            }
        }
        if branches.is_empty() { json!("null") } else { json!(branches) }
    }
}

/// A random value of the schema; arrays have their field's length.
pub(crate) fn any_value(random: &mut Random, schema: &Schema) -> Value {
    value(random, schema, NodeId::ROOT, 0)
}

fn value(random: &mut Random, schema: &Schema, id: NodeId, depth: usize) -> Value {
    let count = if depth > 6 { 0 } else { random.below(5) };
    counted(random, schema, (id, count), depth)
}

fn counted(
    random: &mut Random,
    schema: &Schema,
    (id, count): (NodeId, usize),
    depth: usize,
) -> Value {
    match &schema.node(id).kind {
        Type::Null => Value::Null,
        Type::Boolean => random.chance(2).into(),
        Type::Int => match schema.node(id).logical {
            Some(LogicalType::Integer(dtype)) => Value::Int(ranged(random, dtype) as i32),
            _ => int(random).into(),
        },
        Type::Long => match schema.node(id).logical {
            Some(LogicalType::Integer(dtype)) => ranged(random, dtype),
            _ => long(random),
        }
        .into(),
        Type::Float => float(random).into(),
        Type::Double => double(random).into(),
        Type::Bytes => match schema.node(id).logical {
            Some(LogicalType::NdArray(of)) => elements(random, of, count),
            _ => (0..count).map(|_| random.next() as u8).collect(),
        }
        .into(),
        Type::String => text(random, count).into(),
        Type::Fixed(fixed) => {
            (0..fixed.size).map(|_| random.next() as u8).collect::<Vec<u8>>().into()
        }
        Type::Enum(of) => Value::Enum(random.below(of.symbols.len()) as u32),
        Type::Array(item) => match schema.node(*item).kind {
            _ if schema.node(*item).logical.is_some() => {
                Value::Array((0..count).map(|_| value(random, schema, *item, depth + 1)).collect())
            }
            Type::Boolean => Value::Booleans((0..count).map(|_| random.chance(2)).collect()),
            Type::Int => Value::Ints((0..count).map(|_| int(random)).collect()),
            Type::Long => Value::Longs((0..count).map(|_| long(random)).collect()),
            Type::Float => Value::Floats((0..count).map(|_| float(random)).collect()),
            Type::Double => Value::Doubles((0..count).map(|_| double(random)).collect()),
            _ => {
                Value::Array((0..count).map(|_| value(random, schema, *item, depth + 1)).collect())
            }
        },
        Type::Map(item) => Value::Map(
            (0..count)
                .map(|i| (format!("k{i}"), value(random, schema, *item, depth + 1)))
                .collect(),
        ),
        Type::Union(branches) => {
            let null = branches.iter().position(|b| schema.node(*b).kind == Type::Null);
            let any = random.below(branches.len());
            let branch = null.filter(|_| depth > 6).unwrap_or(any);
            // A field's length is that of the array in its union, too.
            let inner = counted(random, schema, (branches[branch], count), depth + 1);
            Value::Union(branch as u32, inner.into())
        }
        Type::Record(record) => {
            let field = |f: &Field| match f.length {
                Some(length) => counted(random, schema, (f.kind, length), depth + 1),
                None => value(random, schema, f.kind, depth + 1),
            };
            Value::Record(record.fields.iter().map(field).collect())
        }
    }
}

/// An integer of a range, as the base type has it.
fn ranged(random: &mut Random, dtype: DType) -> i64 {
    let (least, most) = dtype.range().unwrap();
    match random.below(4) {
        0 => least as i64,
        1 => most as i64,
        _ => (least + (random.next() as i128).rem_euclid(most - least + 1)) as i64,
    }
}

/// The bytes of an array with so many rows; JSON has one NaN only, which `float` avoids.
fn elements(random: &mut Random, of: NdArray, rows: usize) -> Vec<u8> {
    let sizes = of.shape().iter().map(|size| usize::try_from(*size).unwrap_or(rows));
    let mut out = Vec::new();
    for _ in 0..sizes.product::<usize>() {
        match of.dtype() {
            DType::Float32 => out.extend(float(random).to_le_bytes()),
            DType::Float64 => out.extend(double(random).to_le_bytes()),
            dtype => out.extend_from_slice(&random.next().to_le_bytes()[..dtype.size()]),
        }
    }
    out
}

fn int(random: &mut Random) -> i32 {
    (random.next() as i32) >> random.below(32)
}

fn long(random: &mut Random) -> i64 {
    (random.next() as i64) >> random.below(64)
}

fn float(random: &mut Random) -> f32 {
    let any = f32::from_bits(random.next() as u32);
    if any.is_nan() { f32::INFINITY } else { any }
}

fn double(random: &mut Random) -> f64 {
    let any = f64::from_bits(random.next());
    if any.is_nan() { f64::NEG_INFINITY } else { any }
}

fn text(random: &mut Random, count: usize) -> String {
    (0..count).map(|_| ['a', 'é', '中', '\u{0}', '"', '🔭'][random.below(6)]).collect()
}

/// The schema with fields reordered, removed, added with a default and widened.
pub(crate) fn evolved(random: &mut Random, json: &Json) -> Json {
    let mut out = json.clone();
    let Some(fields) = out.get_mut("fields").and_then(Json::as_array_mut) else { return out };
    let count = fields.len();
    if count > 1 && random.chance(2) {
        fields.swap(0, count - 1);
    }
    // Later fields may use the names that a field defines: only plain fields are removed.
    if let Some(place) = fields.iter().position(|field| field["type"].is_string())
        && random.chance(2)
    {
        fields.remove(place);
    }
    for field in fields.iter_mut() {
        let wider = match field["type"].as_str() {
            Some("int") => ["long", "float", "double"][random.below(3)],
            Some("long") => ["float", "double"][random.below(2)],
            Some("float") => "double",
            _ => continue,
        };
        if random.chance(2) {
            field["type"] = json!(wider);
        }
    }
    if random.chance(2) {
        let place = random.below(fields.len() + 1);
        fields.insert(place, json!({"name": "added", "type": "string", "default": "new"}));
    }
    // A swap may have moved a name's use before its definition.
    if Schema::from_json(&out).is_ok() { out } else { json.clone() }
}
