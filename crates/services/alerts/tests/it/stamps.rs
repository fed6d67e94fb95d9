//! Stamps as samples of their own.

use std::collections::HashSet;

use helio_alerts::framing::Schemas;
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions};
use helio_alerts::layout::Layout;
use helio_alerts::rubin::Version;
use helio_alerts::stamps::{
    Packing, SharedParts, Stamps, StampsError, alert_of, pack, pack_shared, unpack,
};
use proptest::prelude::*;

use crate::support::rubin_packet;

type Files = Vec<Option<Vec<u8>>>;

fn borrowed(files: &Files) -> Vec<Option<&[u8]>> {
    files.iter().map(Option::as_deref).collect()
}

fn packed(files: &Files, packing: Packing) -> Vec<u8> {
    let mut sample = Vec::new();
    pack(7, &borrowed(files), &SharedParts::default(), packing, &mut sample).unwrap();
    sample
}

#[test]
fn a_real_packet_s_stamps_are_the_same_again_and_smaller() {
    let Some(packet) = rubin_packet() else { return };
    let opened = Schemas::rubin().open(&packet).unwrap();
    let stamps = opened.layout.split(&opened.datums[0], &mut Vec::new()).unwrap();
    let files: Files = stamps.iter().map(|stamp| stamp.map(<[u8]>::to_vec)).collect();
    for packing in [Packing::Plain, Packing::ShuffleZstd] {
        let sample = packed(&files, packing);
        println!("{packing:?}: {} bytes of 138,240", sample.len());
        assert_eq!(alert_of(&sample), Some(7));
        let read = unpack(&sample, |_| None).unwrap();
        assert!(read == Stamps { alert_id: 7, files: files.clone() });
    }
    // zstd alone, at its level 3, reaches 2.4 on the packet.
    assert!(packed(&files, Packing::ShuffleZstd).len() * 26 < 138_240 * 10);
    // In a CCD's batch the PSFs are shared, and images differ.
    let mut shared = SharedParts::default();
    for alert in 0..4 {
        let mut others = files.clone();
        for file in others.iter_mut().flatten() {
            // The first pixel of the image and of its variance.
            [2_880, 11_520].iter().for_each(|at| file[*at] ^= alert);
        }
        shared.count(&borrowed(&others));
    }
    for packing in [Packing::Plain, Packing::ShuffleZstd] {
        let mut sample = Vec::new();
        pack(7, &stamps, &shared, packing, &mut sample).unwrap();
        println!("{packing:?}, PSFs shared: {} bytes of 138,240", sample.len());
        assert!((10_000..60_000).contains(&sample.len()), "{} bytes", sample.len());
    }
}

/// A CCD's stamps with their PSFs once.
#[test]
fn a_part_that_a_batch_shares_is_stored_once() {
    let options = GeneratorOptions { version: Version::V11_0, ..GeneratorOptions::default() };
    let mut generator = Generator::new(options);
    let layout = Layout::new(Version::V11_0.schema());
    let alerts: Vec<Files> = (0..generator.alerts(0))
        .map(|number| {
            let mut datum = Vec::new();
            generator.write(AlertNumber { visit: 0, detector: 0, number }, &mut datum);
            let stamps = layout.split(&datum, &mut Vec::new()).unwrap();
            stamps.into_iter().map(|stamp| stamp.map(<[u8]>::to_vec)).collect()
        })
        .collect();
    let mut shared = SharedParts::default();
    alerts.iter().for_each(|files| shared.count(&borrowed(files)));
    let mut taken = HashSet::new();
    let parts = alerts.iter().flat_map(|files| shared.of(&borrowed(files)));
    let parts: Vec<_> = parts.filter(|(hash, _)| taken.insert(*hash)).collect();
    assert_eq!(parts.len(), 2, "the PSF of difference and science, and the template's");
    for packing in [Packing::Plain, Packing::ShuffleZstd] {
        let mut total = 0;
        let mut stored = Vec::new();
        for (hash, part) in &parts {
            let mut sample = Vec::new();
            pack_shared(part, packing, &mut sample).unwrap();
            total += sample.len();
            let file = unpack(&sample, |_| None).unwrap().files.remove(0).unwrap();
            assert!(file == *part);
            stored.push((*hash, file));
        }
        for files in &alerts {
            let mut sample = Vec::new();
            pack(9, &borrowed(files), &shared, packing, &mut sample).unwrap();
            total += sample.len();
            let find = |hash| stored.iter().find(|(of, _)| *of == hash).map(|(_, part)| &part[..]);
            assert!(unpack(&sample, find).unwrap().files == *files);
            let missing = unpack(&sample, |_| None).unwrap_err();
            assert_eq!(missing, StampsError::Missing(parts[0].0));
        }
        let ratio = (138_240 * alerts.len()) as f64 / total as f64;
        println!("{packing:?}: ratio {ratio:.2} for {} alerts of a CCD", alerts.len());
        assert!(ratio > if packing == Packing::Plain { 2.5 } else { 5.0 }, "{ratio}");
    }
}

#[test]
fn damage_is_found_and_named() {
    let files = vec![Some(vec![1, 2, 3]), None];
    for packing in [Packing::Plain, Packing::ShuffleZstd] {
        let sample = packed(&files, packing);
        for end in 0..sample.len() {
            assert!(unpack(&sample[..end], |_| None).is_err());
        }
        for bit in 0..sample.len() * 8 {
            let mut changed = sample.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&changed, |_| None).is_err(), "{bit}");
        }
    }
    let mut newer = packed(&files, Packing::Plain);
    newer[4] = 2;
    assert_eq!(unpack(&newer, |_| None), Err(StampsError::Version(2)));
    assert_eq!(unpack(b"HLOG", |_| None), Err(StampsError::Magic));
}

#[test]
fn the_format_of_a_sample() {
    let golden = include_bytes!("../golden/stamps-1.bin");
    let files = vec![Some(b"no FITS file".to_vec()), None, Some(Vec::new())];
    let sample = packed(&files, Packing::Plain);
    std::fs::write(std::env::temp_dir().join("helio-stamps-1.bin"), &sample).unwrap();
    assert!(sample == golden, "the sample differs from the golden file");
    assert_eq!(unpack(golden, |_| None).unwrap().files, files);
}

proptest! {
    #[test]
    fn any_stamps_come_back(
        files in proptest::collection::vec(
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100)), 0..4),
        compress in any::<bool>(),
    ) {
        let packing = if compress { Packing::ShuffleZstd } else { Packing::Plain };
        let sample = packed(&files, packing);
        prop_assert_eq!(unpack(&sample, |_| None).unwrap().files, files);
    }
}
