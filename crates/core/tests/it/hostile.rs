//! Damaged and random input, the same in every run: a small version of the fuzzer.

use crate::random::{Random, any_schema, any_value};
use crate::targets;
use helio_core::codec::{Blocks, Codec, EncodeOptions};
use helio_core::container::{Compression, Writer};
use helio_core::schema::Schema;
use serde_json::Value as Json;

/// The bytes with some of them changed, removed, repeated or inserted.
fn damaged(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..random.below(4) + 1 {
        let place = random.below(out.len() + 1);
        let byte = match random.below(4) {
            0 => 0xff,
            1 => 0x7f,
            2 => 0,
            _ => random.next() as u8,
        };
        match random.below(5) {
            0 => out.truncate(place),
            1 => out.insert(place, byte),
            2 if place < out.len() => out[place] = byte,
            3 if place < out.len() => out[place] ^= 1 << random.below(8),
            4 => {
                let part: Vec<u8> = out[place..].iter().take(random.below(20)).copied().collect();
                out.extend(part);
            }
            _ => {}
        }
    }
    out
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(64)).map(|_| random.next() as u8).collect()
}

#[test]
fn schemas() {
    let random = &mut Random::new(1);
    for _ in 0..3000 {
        let text = any_schema(random).to_string();
        targets::schema(text.as_bytes());
        targets::schema(&damaged(random, text.as_bytes()));
    }
}

/// Datums of the targets' schemas, valid, damaged and random, each behind its schema's index.
fn datums(seed: u64, mut each: impl FnMut(&[u8])) {
    let random = &mut Random::new(seed);
    for round in 0..500 {
        for (place, text) in targets::SCHEMAS.iter().enumerate() {
            let schema = Schema::parse(text).unwrap();
            let blocks = if round % 2 == 0 { Blocks::Sized } else { Blocks::Plain };
            let codec = Codec::with_options(&schema, EncodeOptions { blocks });
            let mut bytes = vec![place as u8];
            // A wrong length of the random value is rejected.
            if codec.encode(&any_value(random, &schema), &mut bytes).is_ok() {
                each(&bytes);
                for _ in 0..5 {
                    let mut bytes = damaged(random, &bytes[1..]);
                    bytes.insert(0, place as u8);
                    each(&bytes);
                }
            }
            let mut bytes = noise(random);
            bytes.insert(0, place as u8);
            each(&bytes);
        }
    }
}

#[test]
fn values() {
    datums(2, targets::codec);
}

#[test]
fn resolutions() {
    datums(3, targets::resolution);
}

#[test]
fn projections() {
    let mut mask = 0_u8;
    datums(5, |bytes| {
        mask = mask.wrapping_add(37);
        targets::projection(&[&[bytes[0], mask], &bytes[1..]].concat());
    });
}

#[test]
fn containers() {
    let random = &mut Random::new(4);
    for round in 0..1500 {
        let schema = Schema::from_json(&any_schema(random)).unwrap();
        let all = [Compression::Null, Compression::Deflate, Compression::Snappy];
        let mut writer = Writer::new(&schema, all[round % 3], [7; 16]);
        for _ in 0..random.below(4) {
            let mut bytes = Vec::new();
            Codec::new(&schema).encode(&any_value(random, &schema), &mut bytes).unwrap();
            writer.append(&bytes);
        }
        let bytes = writer.finish();
        targets::container(&bytes);
        for _ in 0..5 {
            targets::container(&damaged(random, &bytes));
        }
    }
}

#[test]
fn cdr() {
    let random = &mut Random::new(6);
    let golden = ["typed", "foreign"].map(|form| {
        let path = format!("{}/tests/golden/cdr/{form}.json", env!("CARGO_MANIFEST_DIR"));
        let json: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let hex = |text: &Json| -> Vec<u8> {
            let digits = text.as_str().unwrap();
            let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
            (0..digits.len() / 2).map(byte).collect()
        };
        json["cdr"].as_object().unwrap().values().map(hex).collect::<Vec<_>>()
    });
    for round in 0..500 {
        for (form, samples) in golden.iter().enumerate() {
            for sample in samples {
                let input = if round == 0 { sample.clone() } else { damaged(random, sample) };
                targets::cdr(&[&[form as u8][..], &input].concat());
            }
        }
        for first in 0..6 {
            let mut input = vec![first, 0, [1, 7, 9, 6][round % 4], 0, 0];
            input.extend(noise(random));
            targets::cdr(&input);
        }
    }
}
