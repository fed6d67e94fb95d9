//! Frames as datums: exact values, golden bytes, checks.

use std::borrow::Cow;

use helio_core::Codec;
use helio_core::schema::{DType, HasSchema};
use helio_detector::{Compression, Frame, FrameError, MAX_HEADER_BYTES, Order};
use proptest::prelude::*;

pub(crate) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Codec::new(&Frame::schema().unwrap()).serialize(frame, &mut out).unwrap();
    out
}

pub(crate) fn decoded(datum: &[u8]) -> Frame<'_> {
    Codec::new(&Frame::schema().unwrap()).deserialize(datum).unwrap()
}

/// A frame whose description takes as many bytes as one can.
fn largest_description(data: &[u8]) -> Frame<'_> {
    Frame {
        source: Cow::Owned("s".repeat(255)),
        units: Cow::Owned("u".repeat(63)),
        pulse_id: u64::MAX >> 1,
        unique_id: u64::MAX,
        time: i64::MIN,
        shape: vec![u64::MAX >> 1; 10],
        display_low: Some(-1.5),
        display_high: Some(f64::INFINITY),
        attributes: u64::MAX,
        burst: u64::MAX,
        chapter: u32::MAX,
        part: 65_534,
        parts: 65_535,
        length: u64::MAX,
        order: Order::F,
        codec: Compression::Blosc,
        ..Frame::new("", DType::Uint64, &[], data)
    }
}

#[test]
fn a_description_takes_no_more_bytes_than_are_reserved() {
    let frame = largest_description(b"data");
    let datum = encoded(&frame);
    // The data's length has 5 bytes at most where it has 1 here.
    assert!(datum.len() - 4 + 9 <= MAX_HEADER_BYTES, "{} bytes", datum.len());
    assert_eq!(decoded(&datum), frame);
}

#[test]
fn data_is_borrowed_from_the_datum() {
    let pixels = [7_u8; 5000];
    let datum = encoded(&Frame::new("camera", DType::Uint8, &[50, 100], &pixels));
    let frame = decoded(&datum);
    let place = datum.len() - pixels.len();
    assert!(matches!(frame.data, Cow::Borrowed(data) if data.as_ptr() == datum[place..].as_ptr()));
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/frame.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let [schema, datum] = golden.lines().collect::<Vec<_>>()[..] else { panic!("two lines") };
    let data = [1, 0, 255, 255, 2, 1, 0, 128];
    let frame = Frame {
        pulse_id: u64::MAX,
        unique_id: 300,
        time: 1_700_000_000_123_456_789,
        units: "counts".into(),
        display_low: Some(0.0),
        display_high: Some(65535.0),
        attributes: 3,
        burst: 9,
        chapter: 480,
        ..Frame::new("llrf-1", DType::Uint16, &[2, 2], &data)
    };
    assert_eq!(Frame::schema().unwrap().to_string(), schema);
    let hex: String = encoded(&frame).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, datum);
}

#[test]
fn invalid_frames_are_refused_with_the_cause() {
    let data = [0_u8; 24];
    let good = || Frame::new("camera", DType::Int32, &[2, 3], &data);
    good().check().unwrap();
    let said = |frame: Frame<'_>| frame.check().unwrap_err().to_string();
    assert_eq!(
        said(Frame { shape: vec![2, 2], ..good() }),
        "24 bytes of data, but int32 of shape [2, 2] are 16"
    );
    assert!(said(Frame { shape: vec![u64::MAX, 2], ..good() }).contains("18446744073709551615"));
    assert!(said(Frame { shape: vec![1; 11], ..good() }).starts_with("11 dimensions"));
    assert!(said(Frame { units: "u".repeat(64).into(), ..good() }).contains("shorten"));
    assert!(said(Frame { source: "s".repeat(256).into(), ..good() }).contains("shorten"));
    for (part, parts) in [(0, 0), (1, 1), (0, 2), (3, 2), (0, 65_537)] {
        let error = Frame { part, parts, ..good() }.check().unwrap_err();
        assert!(matches!(error, FrameError::Part { .. }), "{part} of {parts}: {error}");
    }
    // Packed elements have any size; arrays of no elements have none.
    Frame { codec: Compression::Lz4, shape: vec![1000], ..good() }.check().unwrap();
    Frame::new("camera", DType::Float64, &[0, 7], &[]).check().unwrap();
    Frame::new("camera", DType::Float64, &[], &[0; 8]).check().unwrap();
    assert!(matches!(good().parts(1024).err(), Some(FrameError::PayloadLimit { .. })));
    let large = vec![0_u8; 65_537];
    let large = Frame::new("camera", DType::Uint8, &[65_537], &large);
    assert!(large.parts(1025).err().unwrap().to_string().contains("payload limit"));
    assert_eq!(large.parts(1026).unwrap().count(), 32_769);
}

fn any_frame() -> impl Strategy<Value = (DType, Vec<u64>, Vec<u8>, u64, i64, Option<f64>)> {
    let dtype = prop::sample::select(&DType::ALL[..]);
    let shape = prop::collection::vec(0_u64..5, 0..4);
    let limit = prop::option::of(any::<f64>().prop_filter("NaN equals nothing", |n| !n.is_nan()));
    (dtype, shape, any::<u64>(), any::<i64>(), limit).prop_flat_map(|all| {
        let (dtype, shape, id, time, limit) = all;
        let size = shape.iter().product::<u64>() as usize * dtype.size();
        prop::collection::vec(any::<u8>(), size)
            .prop_map(move |data| (dtype, shape.clone(), data, id, time, limit))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_are_the_same_after_a_round_trip(of in any_frame()) {
        let (dtype, shape, data, id, time, limit) = of;
        let frame = Frame {
            pulse_id: id,
            unique_id: id.rotate_left(7),
            time,
            display_low: limit,
            ..Frame::new("site/camera", dtype, &shape, &data)
        };
        frame.check().unwrap();
        let datum = encoded(&frame);
        prop_assert_eq!(decoded(&datum), frame);
    }
}
