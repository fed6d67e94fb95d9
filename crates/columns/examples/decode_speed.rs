//! Times the decoding of a real alert packet of Rubin (schema 9.0) into columns, in microseconds of
//! processor time a packet, beside a copy of its bytes and, if a Python with fastavro is named,
//! that library:
//!
//! `cargo run --release -p helio-columns --example decode_speed -- PACKET SCHEMAS [PYTHON]`
//!
//! PACKET is Confluent-framed, SCHEMAS the folder of `lsst.v9_0.*.avsc` (of the package
//! lsst-alert-packet). History is 100 copies of the packet's source, and 100 forced points.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use helio_columns::{Decoder, Layout};
use helio_core::codec::{Blocks, Codec, EncodeOptions, Value};
use helio_core::confluent;
use helio_core::schema::{NodeId, Schema, SchemaSet, Type};
use rustix::time::{ClockId, clock_gettime};

const COLUMNS: [&str; 10] = [
    "diaSourceId",
    "diaSource.visit",
    "diaSource.detector",
    "diaSource.midpointMjdTai",
    "diaSource.ra",
    "diaSource.dec",
    "diaSource.psfFlux",
    "diaSource.psfFluxErr",
    "diaSource.snr",
    "diaSource.band",
];
const HISTORY: [&str; 3] =
    ["prvDiaSources[].midpointMjdTai", "prvDiaSources[].psfFlux", "prvDiaSources[].band"];
const POINTS: usize = 100;
/// Packets of a batch.
const BATCH: usize = 256;
const BATCHES: usize = 31;
const PEER: &str = r#"
import io, sys, time, fastavro, fastavro.schema
folder, narrow, *files = sys.argv[1:]
schema = fastavro.schema.load_schema(folder + "/lsst.v9_0.alert.avsc")
narrow = fastavro.parse_schema(__import__("json").load(open(narrow)))
for file in files:
    packet = open(file, "rb").read()
    for name, reader in [("all to dict", None), ("10 columns to dict", narrow)]:
        best = 1e9
        for _ in range(7):
            start = time.process_time()
            for _ in range(40):
                fastavro.schemaless_reader(io.BytesIO(packet), schema, reader)
            best = min(best, (time.process_time() - start) / 40)
        print(f"  {'fastavro, ' + name:<44}{best * 1e6:>10.2f}")
"#;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [packet, folder, ..] = &args[..] else { return Err("name PACKET and SCHEMAS".into()) };
    let schema = schema(Path::new(folder))?;
    let framed = std::fs::read(packet)?;
    let (_, plain) = confluent::unframe(&framed).ok_or("the packet is not framed")?;
    let codec = Codec::new(&schema);
    let long = with_history(&schema, codec.decode(plain)?)?;
    let encoded = |blocks| {
        let mut bytes = Vec::new();
        let codec = Codec::with_options(&schema, EncodeOptions { blocks });
        codec.encode(&long, &mut bytes).map(|()| bytes)
    };
    println!("processor time, microseconds a packet{:>18}{:>10}", "median", "least");
    for (name, packet) in [
        ("the packet", plain.to_vec()),
        ("with history, sized blocks", encoded(Blocks::Sized)?),
        ("with history, unsized blocks", encoded(Blocks::Plain)?),
    ] {
        println!("{name}, {} bytes", packet.len());
        measure(&schema, &packet)?;
        if let Some(python) = args.get(2) {
            fastavro(python, Path::new(folder), &packet)?;
        }
    }
    Ok(())
}

fn measure(schema: &Schema, packet: &[u8]) -> Result<(), Failure> {
    // Copies at different addresses, as of a topic.
    let packets: Vec<Vec<u8>> = (0..BATCH).map(|_| packet.to_vec()).collect();
    let mut copy = Vec::with_capacity(packet.len());
    time("copy of the bytes", || {
        for packet in &packets {
            copy.clear();
            copy.extend_from_slice(black_box(packet));
        }
        Ok(())
    })?;
    let both: Vec<&str> = COLUMNS.iter().chain(&HISTORY).copied().collect();
    for (name, paths) in [
        ("10 columns to Arrow", &COLUMNS[..]),
        ("10 columns and 3 of the history to Arrow", &both),
        ("all columns to Arrow", &["*"]),
    ] {
        let layout = Layout::new(std::slice::from_ref(schema), paths)?;
        let mut decoder = Decoder::new(&layout);
        time(name, || {
            for packet in &packets {
                decoder.push(schema, black_box(packet))?;
            }
            black_box(decoder.finish()?);
            Ok(())
        })?;
    }
    Ok(())
}

/// Prints the median and the least processor time of a packet, over batches.
fn time(name: &str, mut batch: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = processor_time();
        batch()?;
        times.push((processor_time() - start) / BATCH as f64);
    }
    times.sort_by(f64::total_cmp);
    println!("  {name:<44}{:>9.2}{:>10.2}", times[BATCHES / 2], times[0]);
    Ok(())
}

/// This thread's, in microseconds.
fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn schema(folder: &Path) -> Result<Schema, Failure> {
    let mut texts = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|end| end == "avsc") {
            texts.push((path.display().to_string(), std::fs::read_to_string(&path)?));
        }
    }
    let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(SchemaSet::load(texts)?.schema("lsst.v9_0.alert")?)
}

/// The packet with [`POINTS`] past sources and forced points.
fn with_history(schema: &Schema, packet: Value) -> Result<Value, Failure> {
    let Value::Record(mut fields) = packet else { return Err("no record".into()) };
    let place = |name: &str| schema.fields().iter().position(|field| field.name == name);
    let source = place("diaSource").ok_or("no diaSource")?;
    let past = place("prvDiaSources").ok_or("no prvDiaSources")?;
    let forced = place("prvDiaForcedSources").ok_or("no prvDiaForcedSources")?;
    let list = |item: Value| Value::Union(1, Box::new(Value::Array(vec![item; POINTS])));
    let items = schema.items(schema.fields()[forced].kind).ok_or("no items")?;
    fields[past] = list(fields[source].clone());
    fields[forced] = list(some_value(schema, items));
    Ok(Value::Record(fields))
}

/// A value of a record of numbers and texts.
fn some_value(schema: &Schema, id: NodeId) -> Value {
    match &schema.node(id).kind {
        Type::Int => 7.into(),
        Type::Long => 170_028_514_190_721_074_i64.into(),
        Type::Float => 1234.5_f32.into(),
        Type::Double => 60_000.25.into(),
        Type::String => "r".into(),
        Type::Union(branches) => {
            let last = branches.len() - 1;
            Value::Union(last as u32, Box::new(some_value(schema, branches[last])))
        }
        Type::Record(record) => {
            Value::Record(record.fields.iter().map(|f| some_value(schema, f.kind)).collect())
        }
        _ => Value::Null,
    }
}

/// Runs fastavro over the same bytes.
fn fastavro(python: &str, folder: &Path, packet: &[u8]) -> Result<(), Failure> {
    let temporary = std::env::temp_dir().join(format!("decode-speed-{}", std::process::id()));
    std::fs::create_dir_all(&temporary)?;
    let (file, narrow) = (temporary.join("packet"), temporary.join("narrow.avsc"));
    std::fs::write(&file, packet)?;
    let field = |name: &&str| {
        let kind = match *name {
            "visit" => "\"long\"",
            "detector" => "\"int\"",
            "midpointMjdTai" | "ra" | "dec" => "\"double\"",
            "band" => r#"["null", "string"]"#,
            _ => r#"["null", "float"]"#,
        };
        format!(r#"{{"name": "{name}", "type": {kind}}}"#)
    };
    let names = COLUMNS.iter().filter_map(|path| path.strip_prefix("diaSource."));
    let fields: Vec<String> = names.collect::<Vec<_>>().iter().map(field).collect();
    let text = format!(
        r#"{{"type": "record", "name": "alert", "namespace": "lsst.v9_0", "fields": [
            {{"name": "diaSourceId", "type": "long"}},
            {{"name": "diaSource", "type": {{"type": "record", "name": "diaSource", "fields":
                [{}]}}}}]}}"#,
        fields.join(", ")
    );
    std::fs::write(&narrow, text)?;
    let status = Command::new(python).args(["-c", PEER]).args([folder, &narrow, &file]).status()?;
    std::fs::remove_dir_all(&temporary)?;
    if status.success() { Ok(()) } else { Err("fastavro failed".into()) }
}
