//! Parts of frames: any order, missing and repeated ones, limits.

use helio_core::schema::DType;
use helio_detector::{
    Assembled, Assembler, AssemblyLimits, Compression, Frame, IncompleteFrame, MAX_HEADER_BYTES,
    PartError,
};
use proptest::prelude::*;

use crate::frames::encoded;

fn limits() -> AssemblyLimits {
    AssemblyLimits { frame_bytes: 1000, pending_bytes: 1500, pending_frames: 3, finished_frames: 4 }
}

fn bytes(count: usize, unique_id: u64) -> Vec<u8> {
    (0..count).map(|i| (i as u64 * 31 + unique_id) as u8).collect()
}

fn frame(data: &[u8], unique_id: u64) -> Frame<'_> {
    Frame { unique_id, ..Frame::new("camera", DType::Uint8, &[data.len() as u64], data) }
}

/// The parts of a frame with so many bytes of data each.
fn parts<'a>(frame: &'a Frame<'_>, room: usize) -> Vec<Frame<'a>> {
    frame.parts(MAX_HEADER_BYTES + room).unwrap().collect()
}

fn push(assembler: &mut Assembler, part: &Frame<'_>) -> Option<Frame<'static>> {
    let mut lost = Vec::new();
    let done = assembler.push(part.clone(), &mut lost).unwrap();
    assert_eq!(lost, []);
    match done {
        Assembled::Whole(frame) => Some(frame.into_owned()),
        Assembled::Pending => None,
        Assembled::Repeated => panic!("repeated"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_in_any_order_with_repeats_are_the_frame(
        size in 0_usize..1000,
        room in 1_usize..1200,
        seed in any::<prop::sample::Index>(),
        order in any::<u64>(),
    ) {
        let data = bytes(size, 7);
        let whole = frame(&data, 7);
        let mut all = parts(&whole, room);
        prop_assert_eq!(all.len(), size.div_ceil(room).max(1));
        for part in &all {
            part.check().unwrap();
            prop_assert!(encoded(part).len() <= MAX_HEADER_BYTES + room);
        }
        let count = all.len();
        // A fixed shuffle from the seed, and one part twice.
        let twice = all[seed.index(count)].clone();
        all.sort_by_key(|part| u64::from(part.part + 1).wrapping_mul(order | 1));
        let mut assembler = Assembler::new(limits());
        let mut found = Vec::new();
        let mut repeated = 0;
        for (i, part) in all.into_iter().chain([twice]).enumerate() {
            match assembler.push(part, &mut Vec::new()).unwrap() {
                Assembled::Whole(frame) if i < count => found.push(frame.into_owned()),
                Assembled::Whole(_) => prop_assert_eq!(count, 1),
                Assembled::Pending => {}
                Assembled::Repeated => repeated += 1,
            }
        }
        prop_assert_eq!(repeated, usize::from(count > 1));
        prop_assert_eq!(found, [whole.into_owned()]);
        prop_assert_eq!(assembler.pending_bytes(), 0);
        prop_assert_eq!(assembler.finish(), []);
    }
}

#[test]
fn missing_parts_are_named_when_a_limit_is_reached() {
    let all: Vec<Vec<u8>> = (0..4).map(|id| bytes(100, id)).collect();
    let frames: Vec<_> = (0..4).map(|id| frame(&all[id as usize], id)).collect();
    let mut assembler = Assembler::new(limits());
    for whole in &frames[..3] {
        for part in parts(whole, 10).iter().filter(|part| ![0, 1, 5].contains(&part.part)) {
            assert_eq!(push(&mut assembler, part), None);
        }
    }
    assert_eq!(assembler.pending_bytes(), 300);
    let mut lost = Vec::new();
    let fourth = parts(&frames[3], 10);
    assert_eq!(assembler.push(fourth[0].clone(), &mut lost).unwrap(), Assembled::Pending);
    let missing = vec![0..2, 5..6];
    let gone = |unique_id| IncompleteFrame {
        source: "camera".to_owned(),
        unique_id,
        missing: missing.clone(),
    };
    assert_eq!(lost, [gone(0)]);
    // Its late parts are no new frame.
    let late = parts(&frames[0], 10).remove(0);
    assert_eq!(assembler.push(late, &mut lost).unwrap(), Assembled::Repeated);
    let rest = assembler.finish();
    assert_eq!(rest[..2], [gone(1), gone(2)]);
    assert_eq!((rest[2].missing.len(), rest[2].missing.first()), (1, Some(&(1..10))));
    assert_eq!(assembler.pending_bytes(), 0);
}

#[test]
fn memory_is_bounded_by_bytes_too() {
    let (first, second) = (bytes(900, 1), bytes(900, 2));
    let (first, second) = (frame(&first, 1), frame(&second, 2));
    let mut assembler = Assembler::new(limits());
    assert_eq!(push(&mut assembler, &parts(&first, 500)[1]), None);
    let mut lost = Vec::new();
    let part = parts(&second, 500).remove(0);
    assert_eq!(assembler.push(part, &mut lost).unwrap(), Assembled::Pending);
    assert_eq!((lost.len(), lost[0].unique_id), (1, 1));
    assert_eq!((lost[0].missing.len(), lost[0].missing.first()), (1, Some(&(0..1))));
    assert_eq!(assembler.pending_bytes(), 900);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (data, large) = (bytes(100, 1), bytes(1001, 2));
    let whole = frame(&data, 1);
    let all = parts(&whole, 40);
    let mut assembler = Assembler::new(limits());
    assert_eq!(push(&mut assembler, &all[0]), None);
    let mut refused = |part: Frame<'_>| assembler.push(part, &mut Vec::new()).unwrap_err();
    let error = refused(Frame { data: data[..39].into(), ..all[1].clone() });
    assert!(matches!(error, PartError::Invalid { unique_id: 1, .. }), "{error}");
    let error = refused(Frame { part: 3, ..all[2].clone() });
    assert!(error.to_string().contains("part 3 of 3"), "{error}");
    let error = refused(Frame { time: 1, ..all[1].clone() });
    assert!(matches!(error, PartError::Different { part: 1, .. }), "{error}");
    let error = refused(frame(&large, 2));
    assert!(error.to_string().contains("limit frame_bytes of 1000; raise it"), "{error}");
    // A frame that claims to be huge costs nothing.
    let claimed = 1 << 62;
    let huge = Frame { shape: vec![claimed], length: claimed, parts: 65_536, ..whole.clone() };
    assert!(matches!(refused(huge), PartError::Invalid { .. }));
    let (codec, shape, length) = (Compression::Lz4, vec![0], u64::MAX);
    let huge = Frame { codec, shape, length, parts: 2, part: 1, ..whole.clone() };
    assert!(matches!(refused(huge), PartError::Invalid { .. }));
    assert_eq!(assembler.pending_bytes(), 100);
    assert_eq!(push(&mut assembler, &all[2]), None);
    assert_eq!(push(&mut assembler, &all[1]).unwrap(), whole.clone().into_owned());
}

#[test]
fn a_number_comes_again_after_a_restart() {
    let data = bytes(80, 1);
    let first = frame(&data, 1);
    let second = Frame { time: 1, ..first.clone() };
    let mut assembler = Assembler::new(limits());
    for whole in [&first, &second] {
        let all = parts(whole, 40);
        assert_eq!(push(&mut assembler, &all[0]), None);
        assert_eq!(push(&mut assembler, &all[1]).unwrap(), whole.clone().into_owned());
        let repeated = assembler.push(all[0].clone(), &mut Vec::new()).unwrap();
        assert_eq!(repeated, Assembled::Repeated);
    }
}

#[test]
fn limits_may_be_nan() {
    let data = bytes(80, 1);
    let whole = Frame { display_low: Some(f64::NAN), ..frame(&data, 1) };
    let mut assembler = Assembler::new(limits());
    let all = parts(&whole, 40);
    assert_eq!(push(&mut assembler, &all[0]), None);
    let done = push(&mut assembler, &all[1]).unwrap();
    assert!(done.display_low.is_some_and(f64::is_nan));
    assert_eq!(done.data, whole.data);
}

#[test]
fn sources_are_apart() {
    let (one, two) = (bytes(80, 1), bytes(80, 2));
    let one = frame(&one, 5);
    let two = Frame { source: "other".into(), ..frame(&two, 5) };
    let mut assembler = Assembler::new(limits());
    assert_eq!(push(&mut assembler, &parts(&one, 40)[0]), None);
    assert_eq!(push(&mut assembler, &parts(&two, 40)[0]), None);
    assert_eq!(push(&mut assembler, &parts(&two, 40)[1]).unwrap(), two.clone().into_owned());
    assert_eq!(push(&mut assembler, &parts(&one, 40)[1]).unwrap(), one.clone().into_owned());
}
