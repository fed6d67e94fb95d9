//! Times the codec on a record like Rubin's `MTM1M3_forceActuatorData`: 8 private fields, a time
//! stamp and seven float arrays of together 804 elements (some 3.3 kB), beside a copy of its bytes.
//!
//! `cargo run --release -p helio-core --example codec_speed`

use std::hint::black_box;
use std::time::Instant;

use helio_core::codec::{Blocks, Codec, EncodeOptions, Value};
use helio_core::resolve::Resolution;
use helio_core::schema::Schema;
use helio_core::schema::build::{array, double, float, int, record, string};
use serde::{Deserialize, Serialize};

const ARRAYS: [(&str, usize); 7] = [
    ("primaryCylinderForce", 156),
    ("secondaryCylinderForce", 112),
    ("primaryCylinderFollowingError", 156),
    ("secondaryCylinderFollowingError", 112),
    ("xForce", 12),
    ("yForce", 100),
    ("zForce", 156),
];

#[derive(Serialize, Deserialize)]
#[allow(non_snake_case, reason = "the interface's own names")]
struct ForceActuatorData {
    private_sndStamp: f64,
    private_rcvStamp: f64,
    private_efdStamp: f64,
    private_kafkaStamp: f64,
    private_seqNum: i32,
    private_revCode: String,
    private_identity: String,
    private_origin: i32,
    timestamp: f64,
    primaryCylinderForce: Vec<f32>,
    secondaryCylinderForce: Vec<f32>,
    primaryCylinderFollowingError: Vec<f32>,
    secondaryCylinderFollowingError: Vec<f32>,
    xForce: Vec<f32>,
    yForce: Vec<f32>,
    zForce: Vec<f32>,
}

fn schema() -> Result<Schema, helio_core::SchemaError> {
    let mut spec = record("lsst.sal.MTM1M3.forceActuatorData")
        .field("private_sndStamp", double())
        .field("private_rcvStamp", double())
        .field("private_efdStamp", double())
        .field("private_kafkaStamp", double())
        .field("private_seqNum", int())
        .field("private_revCode", string())
        .field("private_identity", string())
        .field("private_origin", int())
        .field("timestamp", double());
    for (name, length) in ARRAYS {
        spec = spec.field(name, array(float())).length(length).units("N");
    }
    spec.schema()
}

fn value() -> Value {
    let mut fields: Vec<Value> = vec![
        1.7e9.into(),
        0.0.into(),
        0.0.into(),
        0.0.into(),
        123_456.into(),
        "b6107eef".into(),
        "MTM1M3".into(),
        4242.into(),
        1.7e9.into(),
    ];
    for (_, length) in ARRAYS {
        fields.push((0..length).map(|i| i as f32 * 0.25).collect::<Vec<f32>>().into());
    }
    Value::Record(fields)
}

/// Prints the median and the least time of one call, in nanoseconds, over 31 batches of 2,000.
fn time(name: &str, mut call: impl FnMut()) {
    let mut batches: Vec<f64> = (0..31)
        .map(|_| {
            let start = Instant::now();
            (0..2000).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / 2000.0
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{name:<28} {:>8.0} ns median {:>8.0} ns least", batches[15], batches[0]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = schema()?;
    let codec = Codec::new(&schema);
    let plain = Codec::with_options(&schema, EncodeOptions { blocks: Blocks::Plain });
    let value = value();
    let mut bytes = Vec::new();
    codec.encode(&value, &mut bytes)?;
    let typed: ForceActuatorData = codec.deserialize(&bytes)?;
    let wider = Schema::parse(&schema.to_string().replace("\"float\"", "\"double\""))?;
    let same = Resolution::new(&schema, &schema)?;
    let wide = Resolution::new(&schema, &wider)?;
    let mut out = Vec::with_capacity(2 * bytes.len());
    println!("{} bytes", bytes.len());
    time("copy of the bytes", || {
        out.clear();
        out.extend_from_slice(black_box(&bytes));
    });
    time("encode Value", || {
        out.clear();
        codec.encode(black_box(&value), &mut out).expect("the value is the schema's");
    });
    time("encode Value, plain blocks", || {
        out.clear();
        plain.encode(black_box(&value), &mut out).expect("the value is the schema's");
    });
    time("decode Value", || {
        black_box(codec.decode(black_box(&bytes)).expect("the bytes are a datum"));
    });
    time("encode serde", || {
        out.clear();
        codec.serialize(black_box(&typed), &mut out).expect("the type is the schema's");
    });
    time("decode serde", || {
        let typed: ForceActuatorData =
            codec.deserialize(black_box(&bytes)).expect("the bytes are a datum");
        black_box(typed);
    });
    time("check", || codec.check(black_box(&bytes)).expect("the bytes are a datum"));
    time("transcode, the same schema", || {
        out.clear();
        same.transcode(black_box(&bytes), &mut out).expect("the bytes are a datum");
    });
    time("transcode, float to double", || {
        out.clear();
        wide.transcode(black_box(&bytes), &mut out).expect("the bytes are a datum");
    });
    Ok(())
}
