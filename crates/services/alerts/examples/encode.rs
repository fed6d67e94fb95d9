//! Measures the encoding of packets and the packing of stamps, in processor time of one thread:
//! `cargo run --release --package helio-alerts --example encode`.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use helio_alerts::arrays::{self, Column, Kind, Values};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::layout::Layout;
use helio_alerts::packet::{Alert, PacketEncoder};
use helio_alerts::row::{Plan, Row};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::{Packing, SharedParts, pack, pack_shared};
use helio_core::codec::Codec;

/// Prints the least and the median time of a call.
fn measure(what: &str, mut call: impl FnMut()) {
    let mut times: Vec<Duration> = (0..201)
        .map(|_| {
            let since = Instant::now();
            call();
            since.elapsed()
        })
        .collect();
    times.sort();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    println!("{what}: least {:.1} us, median {:.1} us", us(times[0]), us(times[times.len() / 2]));
}

fn filled(plan: &Plan, number: i64) -> Row {
    let mut row = plan.unmeasured();
    for name in ["diaSourceId", "visit", "diaObjectId", "diaForcedSourceId"] {
        row.set_number(plan.place(name), number);
    }
    row.set_number(plan.place("detector"), 168);
    for name in ["psfNdata", "bboxSize", "trailNdata", "dipoleNdata", "ssObjectId"] {
        row.set_number(plan.place(name), 1_681);
    }
    row.set_text(plan.place("band"), "r");
    row
}

fn main() {
    let mut encoder = PacketEncoder::new(Version::LATEST);
    let stamps = [vec![7; 34_560], vec![8; 34_560], vec![9; 69_120]];
    let previous: Vec<_> = (0..100).map(|n| filled(&encoder.source, 1 << 52 | n)).collect();
    let forced: Vec<_> = (0..100).map(|n| filled(&encoder.forced, 1 << 52 | n)).collect();
    let (source, object) = (filled(&encoder.source, 1 << 52), filled(&encoder.object, 1 << 52));
    let mut alert = Alert {
        id: 1 << 52,
        observation_reason: None,
        target_name: None,
        source: &source,
        previous: Some(&previous),
        forced: Some(&forced),
        object: Some(&object),
        solar_system: None,
        orbit: None,
        stamps: stamps.each_ref().map(|stamp| Some(&stamp[..])),
    };
    let mut out = Vec::new();
    measure("encode, 100 + 100 points, stamps", || {
        out.clear();
        encoder.encode(&alert, &mut out);
    });
    Codec::new(Version::LATEST.schema()).check(&out).expect("a datum of the schema");
    println!("  {} bytes", out.len());
    let mut copy = Vec::new();
    measure("  a copy of its bytes", || {
        copy.clear();
        copy.extend_from_slice(black_box(&out));
    });
    alert.stamps = [None; 3];
    measure("encode, 100 + 100 points, no stamps", || {
        out.clear();
        encoder.encode(&alert, &mut out);
    });
    alert.previous = None;
    alert.forced = Some(&[]);
    measure("encode, no past, no stamps", || {
        out.clear();
        encoder.encode(&alert, &mut out);
    });
    for history in [History::None, History::Drawn] {
        let mut generator =
            Generator::new(GeneratorOptions { history, ..GeneratorOptions::default() });
        let mut number = 0;
        measure(&format!("generate, history {history:?}"), || {
            out.clear();
            generator.write(AlertNumber { visit: 0, detector: 0, number: number % 53 }, &mut out);
            number += 1;
        });
    }
    columns();
    ratios();
}

/// Measures the encoding from columns of all fields, 100 + 100 points, without stamps.
fn columns() {
    const ALERTS: usize = 53;
    const POINTS: usize = ALERTS * 100;
    let codec = Codec::new(Version::LATEST.schema());
    let longs: Vec<i64> = (0..POINTS as i64).map(|n| (n % 7) << 20).collect();
    let offsets: Vec<i64> = (0..=ALERTS as i64).map(|n| n * 100).collect();
    let (floats, doubles) = (vec![1.5_f32; POINTS], vec![2.5_f64; POINTS]);
    let (booleans, texts) = (vec![true; POINTS], vec![Some("r"); POINTS]);
    let mut given: Vec<(String, Column<'_>)> = Vec::new();
    for (path, kind) in arrays::columns(codec.schema()) {
        let count = if path.contains("[]") { POINTS } else { ALERTS };
        let values = match kind {
            Kind::Longs => Values::Longs(&longs[..count]),
            Kind::Floats => Values::Floats(&floats[..count]),
            Kind::Doubles => Values::Doubles(&doubles[..count]),
            Kind::Booleans => Values::Booleans(&booleans[..count]),
            Kind::Texts => Values::Texts(&texts[..count]),
            Kind::Offsets => Values::Longs(&offsets),
            Kind::Bytes | Kind::Presence => continue,
        };
        if !path.starts_with("ssSource") && !path.starts_with("mpc_orbits") {
            given.push((path, values.into()));
        }
    }
    let mut out = Vec::new();
    measure("53 packets from columns, 100 + 100 points, no stamps", || {
        out.clear();
        let encoder = arrays::Encoder::new(&codec, ALERTS, &given).expect("columns that fit");
        (0..ALERTS).for_each(|row| encoder.put(row, &mut out));
    });
    println!("  {} bytes a packet", out.len() / ALERTS);
}

/// Prints the sizes of a CCD's stamps, packed.
fn ratios() {
    let mut generator = Generator::new(GeneratorOptions::default());
    let layout = Layout::new(Version::LATEST.schema());
    let datums: Vec<Vec<u8>> = (0..generator.alerts(0))
        .map(|number| {
            let mut datum = Vec::new();
            generator.write(AlertNumber { visit: 0, detector: 0, number }, &mut datum);
            datum
        })
        .collect();
    let split = |datum| layout.split(datum, &mut Vec::new()).expect("a generated packet");
    let stamps: Vec<_> = datums.iter().map(|datum| split(datum)).collect();
    let plain: usize = stamps.iter().flatten().flatten().map(|stamp| stamp.len()).sum();
    let mut shared = SharedParts::default();
    stamps.iter().for_each(|stamps| shared.count(stamps));
    for shared in [SharedParts::default(), shared] {
        for packing in [Packing::Plain, Packing::ShuffleZstd] {
            let (mut total, mut taken) = (0, HashSet::new());
            for stamps in &stamps {
                let mut out = Vec::new();
                let parts = shared.of(stamps).into_iter();
                for (_, part) in parts.filter(|(hash, _)| taken.insert(*hash)) {
                    pack_shared(part, packing, &mut out).expect("a part within the limits");
                }
                pack(1, stamps, &shared, packing, &mut out).expect("stamps within the limits");
                total += out.len();
            }
            println!(
                "stamps of {} alerts, {} shared parts, {packing:?}: {} bytes each, ratio {:.2}",
                stamps.len(),
                taken.len(),
                total / stamps.len(),
                plain as f64 / total as f64
            );
        }
    }
    let mut shared = SharedParts::default();
    stamps.iter().for_each(|stamps| shared.count(stamps));
    let mut out = Vec::new();
    measure("pack an alert's stamps, ShuffleZstd, shared parts", || {
        out.clear();
        pack(1, &stamps[0], &shared, Packing::ShuffleZstd, &mut out)
            .expect("stamps within the limits");
    });
}
