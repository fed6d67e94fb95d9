//! Framed payloads and container files.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use helio_columns::{Decoder, Framing, Layout, PushError, Reason};
use helio_core::codec::Blocks;
use helio_core::container::{Compression, Writer};
use helio_core::{confluent, single_object};

use crate::batches::{packet, schema};

fn ids(decoder: &mut Decoder) -> Vec<i64> {
    let batch = decoder.finish().unwrap().records;
    batch["id"].as_primitive::<Int64Type>().values().to_vec()
}

fn decoder() -> Decoder {
    Decoder::new(&Layout::new(&[schema()], &["id", "prv[].time"]).unwrap())
}

#[test]
fn frames_name_the_schema() {
    let mut decoder = decoder();
    let (print, mut payload) = (schema().fingerprint(), Vec::new());
    let by_number = |number| (number == 900).then(schema);
    let by_print = |found| (found == print).then(schema);
    confluent::frame(900, &packet(1, 3, Blocks::Plain), &mut payload);
    decoder.push_payload(Framing::Confluent(&by_number), &payload).unwrap();
    confluent::frame(901, &packet(2, 3, Blocks::Plain), &mut payload);
    let unknown = decoder.push_payload(Framing::Confluent(&by_number), &payload).unwrap_err();
    assert_eq!(unknown.to_string(), "the schema 901 is unknown");
    single_object::frame(print, &packet(3, 3, Blocks::Sized), &mut payload);
    decoder.push_payload(Framing::SingleObject(&by_print), &payload).unwrap();
    let other = decoder.push_payload(Framing::Confluent(&by_number), &payload).unwrap_err();
    assert_eq!(other, PushError::Rejected(Reason::Frame("Confluent")));
    decoder.push_payload(Framing::Datum(&schema()), &packet(4, 0, Blocks::Sized)).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.positions, [0, 2, 4]);
    let rejected: Vec<usize> = batch.rejected.iter().map(|r| r.position).collect();
    assert_eq!(rejected, [1, 3]);
}

#[test]
fn container_files_bring_their_schema() {
    let mut decoder = decoder();
    let file = |numbers: std::ops::Range<i64>, compression| {
        let mut writer = Writer::new(&schema(), compression, [5; 16]);
        for number in numbers {
            writer.append(&packet(number, 2, Blocks::Sized));
            writer.end_block();
        }
        writer.finish()
    };
    for (numbers, compression) in
        [(0..3, Compression::Null), (3..4, Compression::Deflate), (4..5, Compression::Snappy)]
    {
        decoder.push_payload(Framing::Container, &file(numbers, compression)).unwrap();
    }
    assert_eq!(ids(&mut decoder), [0, 1, 2, 3, 4]);
    let mut damaged = file(0..3, Compression::Null);
    damaged.truncate(damaged.len() - 30);
    decoder.push_payload(Framing::Container, &damaged).unwrap_err();
    decoder.push_payload(Framing::Container, b"no container").unwrap_err();
    decoder.push_payload(Framing::Container, &file(7..8, Compression::Null)).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.positions, [0, 0, 2]);
    assert_eq!(batch.rejected.iter().map(|r| r.position).collect::<Vec<_>>(), [0, 1]);
}
