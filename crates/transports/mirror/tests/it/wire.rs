//! The bytes of frames: as they were, and refused when damaged.

use bytes::{Bytes, BytesMut};
use helio_bus::mirror::{CopiedEpoch, CopyMarks, CopyPosition, MirrorBatch, SessionName};
use helio_mirror::wire::{Expect, Frame, Purpose};
use proptest::prelude::*;

fn frames() -> Vec<Frame> {
    let session = SessionName { dialer: 0x0102_0304_0506_0708, listener: 9 };
    let position = CopyPosition { next: 5, epoch: 2, epoch_check: 7, record_check: Some(8) };
    let epoch = CopiedEpoch { number: 2, start: 3, from: 5, header: Bytes::from_static(b"A") };
    let records = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
    vec![
        Frame::Hello { purpose: Purpose::Beats, session, log: "state/log".into() },
        Frame::Refused("no".into()),
        Frame::Position(position),
        Frame::Position(CopyPosition::default()),
        Frame::Epoch(epoch),
        Frame::Batch(MirrorBatch { first: 5, committed: 4, records }),
        Frame::Ack { batches: 1, marks: CopyMarks { stored: 8, durable: 6 } },
        Frame::Message(Bytes::from_static(b"RESIGN")),
        Frame::Beat { number: 3, echo: 0, payload: Bytes::from_static(b"t") },
        Frame::Bye,
    ]
}

fn bytes(frame: &Frame) -> BytesMut {
    let mut out = Vec::new();
    frame.encode(&mut out);
    BytesMut::from(&out[..])
}

#[test]
fn frames_have_the_golden_bytes() {
    let golden = include_str!("../golden/frames.txt");
    let hex = |frame: &Frame| bytes(frame).iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<String> = frames().iter().map(hex).collect();
    assert_eq!(lines.join("\n") + "\n", golden);
}

#[test]
fn every_damaged_bit_is_noticed() {
    for frame in frames() {
        let whole = bytes(&frame);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A greater length waits for bytes that do not come.
            let taken = Frame::take(&mut damaged, Expect::Any);
            assert!(!matches!(taken, Ok(Some(_))), "{frame:?}, bit {bit}");
        }
    }
}

#[test]
fn only_a_short_hello_is_taken_before_the_hello() {
    for frame in frames() {
        let allowed = matches!(frame, Frame::Hello { .. } | Frame::Refused(_));
        assert_eq!(Frame::take(&mut bytes(&frame), Expect::Hello).is_ok(), allowed, "{frame:?}");
    }
    let long = Frame::Refused("ä".repeat(2000));
    let mut long = bytes(&long);
    assert!(matches!(Frame::take(&mut long, Expect::Hello), Ok(Some(Frame::Refused(_)))));
}

fn batch() -> impl Strategy<Value = MirrorBatch> {
    let records = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40);
    (any::<u32>(), any::<u64>(), records).prop_map(|(first, committed, records)| {
        let records = records.into_iter().map(Bytes::from).collect();
        MirrorBatch { first: u64::from(first), committed, records }
    })
}

proptest! {
    #[test]
    fn batches_come_back_in_pieces(batch in batch(), piece in 1_usize..50) {
        let frame = Frame::Batch(batch);
        let whole = bytes(&frame);
        let mut received = BytesMut::new();
        let mut taken = None;
        for piece in whole.chunks(piece) {
            prop_assert!(taken.is_none());
            received.extend_from_slice(piece);
            taken = Frame::take(&mut received, Expect::Any).unwrap();
        }
        prop_assert_eq!(taken, Some(frame));
        prop_assert!(received.is_empty());
    }

    #[test]
    fn any_payload_with_a_right_checksum_is_taken_or_refused(
        kind in 0_u8..12, payload in prop::collection::vec(any::<u8>(), 0..200)
    ) {
        let mut whole = (payload.len() as u32).to_le_bytes().to_vec();
        whole.extend_from_slice(&[kind, 0, 0, 0]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&whole), &payload);
        whole.extend_from_slice(&crc.to_le_bytes());
        whole.extend_from_slice(&payload);
        if let Ok(Some(frame)) = Frame::take(&mut BytesMut::from(&whole[..]), Expect::Any) {
            prop_assert_eq!(&bytes(&frame)[..], &whole[..]);
        }
    }
}
