use serde_json::json;

use super::build::{array, double, enumeration, fixed, float, int, map, named, nullable, record};
use super::*;

fn parse(json: Json) -> Result<Schema, SchemaError> {
    Schema::from_json(&json)
}

fn wind() -> Json {
    json!({"type": "record", "name": "Wind", "namespace": "site", "doc": "Wind.", "revision": 3,
    "fields": [
        {"name": "speed", "type": "double", "units": "m/s", "description": "mean", "ucd": "x"},
        {"name": "gusts", "type": {"type": "array", "items": "float"}, "length": 64},
        {"name": "state", "type": "int", "enumeration": {"OK": 1, "BAD": 2}, "salType": "byte"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "next", "type": ["null", "Wind"], "default": null},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
         "default": "A", "aliases": ["sort"], "order": "ignore"},
    ]})
}

#[test]
fn what_is_said_about_fields_is_kept() {
    let schema = parse(wind()).unwrap();
    assert_eq!(schema.name(), Some("site.Wind"));
    let field = |name: &str| schema.field(name).unwrap();
    assert_eq!(field("speed").units.as_deref(), Some("m/s"));
    assert_eq!(field("speed").text(), Some("mean"));
    assert_eq!(field("speed").attributes["ucd"], "x");
    assert_eq!(field("gusts").length, Some(64));
    assert_eq!(field("state").sal_type.as_deref(), Some("byte"));
    assert_eq!(field("state").enumeration, Some(vec![("OK".into(), 1), ("BAD".into(), 2)]));
    assert_eq!(schema.node(field("at").kind).logical, Some(LogicalType::TimestampMillis));
    assert_eq!(schema.nullable(field("next").kind), Some((NodeId::ROOT, 0)));
    assert_eq!(field("kind").order, Some(Order::Ignore));
    assert_eq!(schema.root().attributes["revision"], 3);
    assert!(schema.named("site.Kind").is_some());
}

#[test]
fn text_out_is_text_in() {
    let schema = parse(wind()).unwrap();
    let text = schema.to_string();
    let again = Schema::parse(&text).unwrap();
    assert_eq!(again, schema);
    assert_eq!(again.to_string(), text);
    assert_eq!(again.id(), schema.id());
}

#[test]
fn the_canonical_form_is_avro_s() {
    let schema = parse(wind()).unwrap();
    assert_eq!(
        schema.canonical_form(),
        concat!(
            r#"{"name":"site.Wind","type":"record","fields":[{"name":"speed","type":"double"},"#,
            r#"{"name":"gusts","type":{"type":"array","items":"float"}},"#,
            r#"{"name":"state","type":"int"},{"name":"at","type":"long"},"#,
            r#"{"name":"next","type":["null","site.Wind"]},{"name":"kind","type":"#,
            r#"{"name":"site.Kind","type":"enum","symbols":["A","B"]}}]}"#
        )
    );
    assert_eq!(schema.fingerprint(), crc64_avro(schema.canonical_form().as_bytes()));
}

#[test]
fn fingerprints_are_fastavro_s() {
    // fastavro prints them as little-endian bytes.
    let known = [
        (json!("int"), "8f5c393f1ad57572"),
        (json!({"type": "string"}), "c70345637248018f"),
        (
            json!({"type": "record", "name": "a.b.Foo", "fields": [{"name": "x", "doc": "d",
                "type": ["null", {"type": "array", "items": "float"}], "default": null}]}),
            "d22fa4953e10c2e1",
        ),
    ];
    for (json, print) in known {
        let found = parse(json).unwrap().fingerprint().swap_bytes();
        assert_eq!(format!("{found:016x}"), print);
    }
}

#[test]
fn the_identity_tells_apart_what_the_fingerprint_does_not() {
    let base = json!({"type": "record", "name": "T", "fields": [
        {"name": "x", "type": {"type": "array", "items": "int"}, "doc": "d", "default": []}]});
    let plain = parse(base.clone()).unwrap();
    assert_eq!(plain.id().0, plain.fingerprint());
    let mut ids = vec![plain.id()];
    for (key, value) in [
        ("units", json!("m")),
        ("units", json!("km")),
        ("length", json!(3)),
        ("enumeration", json!({"A": 1})),
        ("salType", json!("short")),
    ] {
        let mut changed = base.clone();
        changed["fields"][0][key] = value;
        let changed = parse(changed).unwrap();
        assert_eq!(changed.fingerprint(), plain.fingerprint());
        assert!(!ids.contains(&changed.id()), "{key}");
        ids.push(changed.id());
    }
    let mut described = base;
    described["fields"][0]["description"] = json!("else");
    described["fields"][0]["default"] = json!([1]);
    assert_eq!(parse(described).unwrap().id(), plain.id());
    let date = parse(json!({"type": "int", "logicalType": "date"})).unwrap();
    assert_ne!(date.id().0, date.fingerprint());
}

#[test]
fn errors_name_the_place() {
    let field = |json: Json| json!({"type": "record", "name": "a.T", "fields": [json]});
    let cases = [
        (json!(3), "the schema's root: 3 is no type"),
        (json!("Foo"), "\"Foo\" is defined nowhere"),
        (json!([]), "an empty union"),
        (json!(["int", ["null"]]), "a union directly in a union"),
        (json!(["int", "int"]), "the branch of a union \"int\" is defined twice"),
        (json!({"type": "record", "name": "1x", "fields": []}), "invalid Avro name \"1x\""),
        (json!({"type": "record", "fields": []}), "\"name\" is missing"),
        (json!({"type": "record", "name": "x"}), "\"fields\" is missing"),
        (json!({"type": "fixed", "name": "x", "size": -1}), "\"size\" is no whole number"),
        (json!({"type": "enum", "name": "x", "symbols": ["a", "a"]}), "\"a\" is defined twice"),
        (
            json!({"type": "enum", "name": "x", "symbols": ["a"], "default": "b"}),
            "no symbol: \"b\"",
        ),
        (field(json!({"name": "x"})), "a.T, field \"x\": the attribute \"type\" is missing"),
        (field(json!({"name": "x", "type": "Bar"})), "a.T, field \"x\": the type \"Bar\""),
        (field(json!({"name": "x", "type": "int", "default": "1"})), "\"1\" is no int"),
        (field(json!({"name": "x", "type": "int", "default": 1.5})), "1.5 is no int"),
        (field(json!({"name": "x", "type": "int", "length": 3})), "a field that is no array"),
        (field(json!({"name": "x", "type": "int", "units": 3})), "\"units\" is no text: 3"),
        (field(json!({"name": "x", "type": "string", "enumeration": {}})), "no integer"),
        (field(json!({"name": "x", "type": "int", "enumeration": {"A": 0.5}})), "whole numbers"),
        (field(json!({"name": "x", "type": "T"})), "it has no value"),
        (
            field(json!({"name": "x", "type": {"type": "array", "items": "int"}, "length": 3,
                "default": [1]})),
            "1 elements, the length is 3",
        ),
    ];
    for (json, part) in cases {
        let error = parse(json.clone()).expect_err(&json.to_string()).to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
    assert!(matches!(Schema::parse("{"), Err(SchemaError::Json { .. })));
}

#[test]
fn hostile_texts_are_refused() {
    assert!(Schema::parse(&"[".repeat(100_000)).is_err());
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(500), "}".repeat(500));
    assert!(Schema::parse(&deep).is_err());
    let wide: Vec<_> =
        (0..MAX_SCHEMA_NODES).map(|i| format!(r#"{{"name":"f{i}","type":"int"}}"#)).collect();
    let many: Vec<_> = (0..=MAX_BRANCHES)
        .map(|i| json!({"type": "fixed", "name": format!("F{i}"), "size": 1}))
        .collect();
    assert!(matches!(parse(many.into()), Err(SchemaError::Limit { .. })));
    let wide = format!(r#"{{"type":"record","name":"W","fields":[{}]}}"#, wide.join(","));
    assert!(Schema::parse(&wide).is_err());
    assert!(matches!(
        Schema::parse(&" ".repeat(MAX_SCHEMA_BYTES + 1)),
        Err(SchemaError::Limit { .. })
    ));
}

#[test]
fn a_default_that_fits_nothing_is_found_out_in_time() {
    // Each level can be tried as A and as B, and the innermost fits neither: 2^40 ways.
    let mut default = json!({"f": 1});
    for _ in 0..40 {
        default = json!({"f": default});
    }
    let branch = |name: &str| {
        json!({"type": "record", "name": name, "fields": [
        {"name": "f", "type": ["null", "A", "B"]}]})
    };
    let mut a = branch("A");
    a["fields"][0]["type"] = json!(["null", "A", branch("B")]);
    let schema = json!({"type": "record", "name": "R", "fields": [
        {"name": "x", "type": ["null", a], "default": default}]});
    assert!(matches!(parse(schema), Err(SchemaError::Default { .. })));
}

#[test]
fn long_chains_of_types_do_not_overflow_the_stack() {
    let mut fields = vec![json!({"name": "f0", "type":
        {"type": "record", "name": "T0", "fields": []}})];
    for i in 1..20_000 {
        let kind = json!({"type": "record", "name": format!("T{i}"), "fields": [
            {"name": "f", "type": format!("T{}", i - 1)}]});
        fields.push(json!({"name": format!("f{i}"), "type": kind}));
    }
    let text = json!({"type": "record", "name": "R", "fields": fields}).to_string();
    let schema = Schema::parse(&text).unwrap();
    assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
}

#[test]
fn namespaces_are_inherited_and_left() {
    let schema = parse(json!({"type": "record", "name": "x.A", "aliases": ["Old", "y.Older"],
    "fields": [
        {"name": "b", "type": {"type": "record", "name": "B", "namespace": "", "fields": []}},
        {"name": "c", "type": {"type": "fixed", "name": "z.C", "size": 2}},
        {"name": "d", "type": {"type": "map", "values": "z.C"}},
        {"name": "e", "type": ["null", "A", "B"]},
    ]}))
    .unwrap();
    assert!(["x.A", "B", "z.C"].iter().all(|name| schema.named(name).is_some()));
    assert_eq!(schema.root().kind.aliases(), ["x.Old", "y.Older"]);
    assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
}

#[test]
fn files_name_each_other_in_any_order() {
    let a = r#"{"type": "record", "name": "n.A", "fields": [{"name": "b", "type": "B"},
        {"name": "c", "type": ["null", {"type": "array", "items": "n.C"}], "default": null}]}"#;
    let b = r#"{"type": "record", "name": "B", "namespace": "n", "fields": [
        {"name": "a", "type": ["null", "n.A"]}, {"name": "c", "type": "C"}]}"#;
    let c = r#"{"type": "enum", "name": "n.C", "symbols": ["x"]}"#;
    let one = SchemaSet::load([("a", a), ("b", b), ("c", c)]).unwrap();
    let two = SchemaSet::load([("c", c), ("b", b), ("a", a)]).unwrap();
    assert_eq!(one.schema("n.A").unwrap(), two.schema("n.A").unwrap());
    assert_eq!(one.names().collect::<Vec<_>>(), ["n.A", "n.B", "n.C"]);
    let whole = one.schema("n.B").unwrap();
    assert_eq!(Schema::parse(&whole.to_string()).unwrap(), whole);
    // A and B use each other, so no file is the root.
    assert!(matches!(one.root(), Err(SchemaError::Root { .. })));
    // A type that uses itself is nobody else's; C is the other file's.
    let own = r#"{"type": "record", "name": "n.O", "fields": [
        {"name": "next", "type": ["null", "O"]}, {"name": "c", "type": "C"},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [
            {"name": "up", "type": {"type": "array", "items": "O"}}]}}]}"#;
    let root = |set: SchemaSet| set.root().map(|root| root.name().map(str::to_owned));
    let files = [("o", own), ("c", c)];
    assert_eq!(root(SchemaSet::load(files).unwrap()).unwrap().unwrap(), "n.O");
    // A file that uses a type inside of another one's uses that one's, too.
    let user = r#"{"type": "record", "name": "n.U", "fields": [{"name": "in", "type": "In"}]}"#;
    let files = [("u", user), ("o", own), ("c", c)];
    assert_eq!(root(SchemaSet::load(files).unwrap()).unwrap().unwrap(), "n.U");
    let missing = SchemaSet::load([("a.avsc", a), ("c.avsc", c)]).unwrap_err().to_string();
    assert!(missing.starts_with("a.avsc: n.A, field \"b\": the type \"B\""), "{missing}");
    let twice = SchemaSet::load([("a.avsc", c), ("b.avsc", c)]).unwrap_err().to_string();
    assert!(twice.contains("b.avsc") && twice.contains("twice"), "{twice}");
    let endless = r#"{"type": "record", "name": "D", "fields": [{"name": "e", "type": "E"}]}"#;
    let cycle = r#"{"type": "record", "name": "E", "fields": [{"name": "d", "type": "D"}]}"#;
    let cycle = SchemaSet::load([("d", endless), ("e", cycle)]).unwrap();
    assert!(matches!(cycle.schema("D"), Err(SchemaError::Endless { .. })));
}

#[test]
fn code_makes_the_same_schemas() {
    let kind = enumeration("site.Kind", &["A", "B"]);
    let schema = record("site.Wind")
        .description("Wind.")
        .field("speed", double())
        .units("m/s")
        .default(0.0)
        .field("gusts", array(float()))
        .length(2)
        .field("state", int())
        .labels(&[("OK", 1)])
        .field("kinds", map(kind.clone()))
        .field("kind", nullable(kind))
        .field("next", nullable(named("site.Wind")))
        .field("digest", fixed("site.Digest", 32).attribute("algorithm", "sha256"))
        .schema()
        .unwrap();
    assert_eq!(schema.field("speed").unwrap().default, Some(json!(0.0)));
    assert_eq!(
        schema.items(schema.field("gusts").unwrap().kind).map(|id| &schema.node(id).kind),
        Some(&Type::Float)
    );
    assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
}

struct Wind;
crate::has_schema!(Wind, "site.Wind", {
    speed: f64 [units("m/s"), default(0.0)],
    gusts: Option<Vec<f32>>,
});

#[test]
fn rust_types_have_schemas() {
    let schema = <Vec<Wind>>::schema().unwrap();
    let Type::Array(items) = schema.root().kind else { panic!("{schema}") };
    assert_eq!(<Vec<u8>>::schema().unwrap().root().kind, Type::Bytes);
    assert_eq!(u8::schema().unwrap().root().kind, Type::Int);
    let Type::Record(record) = &schema.node(items).kind else { panic!("{schema}") };
    assert_eq!(record.fields[0].units.as_deref(), Some("m/s"));
}
