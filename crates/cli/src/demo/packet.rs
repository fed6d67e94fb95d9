//! An alert packet of our own, of the size and shape of LSST's: a source that changed, its past,
//! and three images. The names are ours; nothing of the observatory's schema is in it.

use helio_core::codec::{Codec, Value};
use helio_core::schema::Schema;

use crate::error::{CliError, CliResult};

/// Past detections of the object.
const HISTORY: usize = 60;
/// Bytes of each of the three images, so that a packet has about 140 kB.
const IMAGE_BYTES: usize = 43_000;

/// The packet's schema.
const SCHEMA: &str = r#"{
  "type": "record", "name": "Alert", "namespace": "heliograph.demo", "fields": [
    {"name": "alertId", "type": "long", "description": "Number of the alert"},
    {"name": "visit", "type": "long", "description": "Number of the exposure"},
    {"name": "detector", "type": "int", "description": "Number of the detector"},
    {"name": "source", "type": {
      "type": "record", "name": "Source", "fields": [
        {"name": "sourceId", "type": "long"},
        {"name": "time", "type": "double", "units": "d", "description": "MJD, TAI"},
        {"name": "ra", "type": "double", "units": "deg"},
        {"name": "dec", "type": "double", "units": "deg"},
        {"name": "flux", "type": "float", "units": "nJy"},
        {"name": "fluxError", "type": "float", "units": "nJy"},
        {"name": "band", "type": {"type": "enum", "name": "Band",
          "symbols": ["u", "g", "r", "i", "z", "y"]}},
        {"name": "moments", "type": {"type": "array", "items": "float"}, "length": 20}
      ]}},
    {"name": "history", "type": {"type": "array", "items": "Source"},
     "description": "Earlier detections of the same object"},
    {"name": "science", "type": "bytes", "description": "Image of this visit"},
    {"name": "template", "type": "bytes", "description": "Image of the past"},
    {"name": "difference", "type": "bytes", "description": "What is new"}
  ]}"#;

/// Makes packets.
pub(crate) struct Packets {
    codec: Codec,
    history: Value,
    images: [Value; 3],
    payload: Vec<u8>,
}

impl Packets {
    /// Prepares the past and the images, which all packets share.
    pub(crate) fn new() -> CliResult<Self> {
        let schema = Schema::parse(SCHEMA).map_err(|e| CliError::Failure(e.to_string()))?;
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
        let mut image = || Value::Bytes((0..IMAGE_BYTES).map(|_| noise.next() as u8).collect());
        let images = [image(), image(), image()];
        let history = Value::Array((0..HISTORY).map(|n| source(n as u64)).collect());
        Ok(Self { codec: Codec::new(&schema), history, images, payload: Vec::new() })
    }

    /// The schema.
    pub(crate) fn schema(&self) -> &Schema {
        self.codec.schema()
    }

    /// The datum of a packet by its number from 0.
    pub(crate) fn write(&mut self, number: u64) -> CliResult<&[u8]> {
        let [science, template, difference] = self.images.clone();
        let packet = Value::Record(vec![
            Value::Long(number as i64),
            Value::Long((number / 10_000) as i64),
            Value::Int((number % 189) as i32),
            source(number),
            self.history.clone(),
            science,
            template,
            difference,
        ]);
        self.payload.clear();
        let encoded = self.codec.encode(&packet, &mut self.payload);
        encoded.map_err(|e| CliError::Failure(format!("a synthetic alert packet: {e}")))?;
        Ok(&self.payload)
    }
}

fn source(number: u64) -> Value {
    let n = number as f64;
    Value::Record(vec![
        Value::Long(number as i64 * 1_000_003),
        Value::Double(61_000.0 + n * 4.5e-4),
        Value::Double((n * 0.618_033_988_7).fract() * 360.0),
        Value::Double((n * 0.754_877_666_2).fract() * 180.0 - 90.0),
        Value::Float((1_000.0 + 500.0 * (n * 0.1).sin()) as f32),
        Value::Float(12.5),
        Value::Enum((number % 6) as u32),
        Value::Floats((0..20).map(|i| (n + f64::from(i)) as f32 * 0.1).collect()),
    ])
}

/// Marsaglia's xorshift: images that no compression makes smaller, the same ones each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_lsst_s_size_and_its_own_number() {
        let mut packets = Packets::new().unwrap();
        let first = packets.write(0).unwrap().to_vec();
        assert!((130_000..150_000).contains(&first.len()), "{} bytes", first.len());
        let second = packets.write(7).unwrap().to_vec();
        assert_eq!(packets.write(0).unwrap(), first);
        let Value::Record(fields) = packets.codec.decode(&second).unwrap() else { panic!() };
        assert_eq!(fields[0], Value::Long(7));
    }
}
