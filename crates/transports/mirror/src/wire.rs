//! The bytes of a connection: frames with a length, a kind and a checksum.
//!
//! Format, little-endian: payload length (4), kind (1), 0 (3), CRC-32C of these 8 bytes and the
//! payload (4), payload. `docs/formats/mirror.md` has the payloads.
//!
//! Constraints: parsing costs memory in proportion to the bytes received, and never panics.

use bytes::{Buf as _, Bytes, BytesMut};
use helio_bus::exclusive::{MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MAX_EPOCH_HEADER_BYTES};
use helio_bus::mirror::{
    CopiedEpoch, CopyMarks, CopyPosition, MAX_MESSAGE_BYTES, MirrorBatch, SessionName,
};

pub(crate) const MAGIC: &[u8; 8] = b"HELIOMIR";
/// The version of the protocol. Ends of different versions refuse each other.
pub const VERSION: u16 = 1;
const HEAD_BYTES: usize = 12;
/// The longest payload: a batch of the log's largest size, with its head and table.
const MAX_PAYLOAD_BYTES: usize = MAX_BATCH_BYTES + 64;
/// The longest text of a refusal, in bytes.
const MAX_REASON_BYTES: usize = 1024;
/// The most bytes of a payload that comes before a peer's hello was read.
const MAX_HELLO_BYTES: usize = 1024;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Records and messages.
    Session = 0,
    /// Beats of a session.
    Beats = 1,
    /// A guard's report.
    Guard = 2,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The first one of both ends.
    Hello {
        /// What the connection is for.
        purpose: Purpose,
        /// The session's name, as far as the sender knows it.
        session: SessionName,
        /// The name of the log, which both ends share.
        log: String,
    },
    /// The sender ends the connection, and why.
    Refused(String),
    /// Where the sender's copy ends.
    Position(CopyPosition),
    /// The epoch of the batches that follow.
    Epoch(CopiedEpoch),
    /// Records.
    Batch(MirrorBatch),
    /// Batches handled in this session, and the copy's watermarks.
    Ack {
        /// How many.
        batches: u64,
        /// The watermarks.
        marks: CopyMarks,
    },
    /// A message of the user.
    Message(Bytes),
    /// A beat: a number, the number that it echoes (0: none), the user's bytes.
    Beat {
        /// The number of a beat that asks for an echo; 0: none.
        number: u64,
        /// The number of the beat that is answered; 0: none.
        echo: u64,
        /// The user's bytes.
        payload: Bytes,
    },
    /// The sender closes the session in order.
    Bye,
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadFrame(String);

fn bad<T>(what: impl Into<String>) -> Result<T, BadFrame> {
    Err(BadFrame(what.into()))
}

/// What a receiver accepts: until the peer's hello, only that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// A hello or a refusal.
    Hello,
    /// Any frame.
    Any,
}

const HELLO: u8 = 1;
const REFUSED: u8 = 2;
const POSITION: u8 = 3;
const EPOCH: u8 = 4;
const BATCH: u8 = 5;
const ACK: u8 = 6;
const MESSAGE: u8 = 7;
const BEAT: u8 = 8;
const BYE: u8 = 9;

fn words(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => HELLO,
            Self::Refused(_) => REFUSED,
            Self::Position(_) => POSITION,
            Self::Epoch(_) => EPOCH,
            Self::Batch(_) => BATCH,
            Self::Ack { .. } => ACK,
            Self::Message(_) => MESSAGE,
            Self::Beat { .. } => BEAT,
            Self::Bye => BYE,
        }
    }

    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.payload(out);
        let length = (out.len() - head - HEAD_BYTES) as u32;
        out[head..head + 4].copy_from_slice(&length.to_le_bytes());
        out[head + 4] = self.kind();
        let crc = crc32c::crc32c(&out[head..head + 8]);
        let crc = crc32c::crc32c_append(crc, &out[head + HEAD_BYTES..]);
        out[head + 8..head + HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { purpose, session, log } => {
                out.extend_from_slice(MAGIC);
                out.extend_from_slice(&VERSION.to_le_bytes());
                out.extend_from_slice(&[*purpose as u8, 0, 0, 0, 0, 0]);
                words(out, &[session.dialer, session.listener]);
                out.extend_from_slice(log.as_bytes());
            }
            Self::Refused(reason) => {
                let mut ends = (0..=reason.len().min(MAX_REASON_BYTES)).rev();
                let end = ends.find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
                out.extend_from_slice(&reason.as_bytes()[..end]);
            }
            Self::Position(at) => {
                words(out, &[at.next, at.epoch]);
                out.extend_from_slice(&at.epoch_check.to_le_bytes());
                out.extend_from_slice(&u32::from(at.record_check.is_some()).to_le_bytes());
                out.extend_from_slice(&at.record_check.unwrap_or(0).to_le_bytes());
            }
            Self::Epoch(epoch) => {
                words(out, &[epoch.number, epoch.start, epoch.from]);
                out.extend_from_slice(&epoch.header);
            }
            Self::Batch(batch) => {
                words(out, &[batch.first, batch.committed, batch.records.len() as u64]);
                let mut end = 0;
                for record in &batch.records {
                    end += record.len() as u32;
                    out.extend_from_slice(&end.to_le_bytes());
                }
                batch.records.iter().for_each(|record| out.extend_from_slice(record));
            }
            Self::Ack { batches, marks } => words(out, &[*batches, marks.stored, marks.durable]),
            Self::Message(message) => out.extend_from_slice(message),
            Self::Beat { number, echo, payload } => {
                words(out, &[*number, *echo]);
                out.extend_from_slice(payload);
            }
            Self::Bye => {}
        }
    }

    /// Takes the first whole frame from received bytes; `None` if more are needed.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection cannot be used any more.
    pub fn take(bytes: &mut BytesMut, expect: Expect) -> Result<Option<Self>, BadFrame> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>().copied() else { return Ok(None) };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = head[4];
        let most = match (expect, kind) {
            (Expect::Hello, HELLO | REFUSED) => MAX_HELLO_BYTES,
            (Expect::Hello, _) => return bad(format!("a frame of kind {kind} before the hello")),
            (_, EPOCH) => MAX_EPOCH_HEADER_BYTES + 24,
            (_, BATCH) => MAX_PAYLOAD_BYTES,
            (_, MESSAGE) => MAX_MESSAGE_BYTES,
            (_, BEAT) => MAX_BEAT_BYTES + 16,
            _ => MAX_REASON_BYTES,
        };
        if length > most {
            return bad(format!("a frame of {length} bytes and kind {kind}; the most are {most}"));
        }
        if bytes.len() < HEAD_BYTES + length {
            bytes.reserve((HEAD_BYTES + length - bytes.len()).min(MAX_RESERVE_BYTES));
            return Ok(None);
        }
        let mut frame = bytes.split_to(HEAD_BYTES + length).freeze();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..8]), &frame[HEAD_BYTES..]);
        if crc.to_le_bytes() != head[8..] {
            return bad("a frame whose checksum is wrong");
        }
        if head[5..8] != [0; 3] {
            return bad("a frame with unknown flags");
        }
        frame.advance(HEAD_BYTES);
        parse(kind, frame).map(Some)
    }
}

/// Room that is made at once for a frame that is announced.
const MAX_RESERVE_BYTES: usize = 1 << 20;
/// The longest payload of a beat, in bytes.
pub const MAX_BEAT_BYTES: usize = 4096;

fn word(bytes: &mut Bytes) -> Result<u64, BadFrame> {
    bytes.try_get_u64_le().or_else(|_| bad("a frame that is too short"))
}

fn half(bytes: &mut Bytes) -> Result<u32, BadFrame> {
    bytes.try_get_u32_le().or_else(|_| bad("a frame that is too short"))
}

fn text(bytes: &Bytes) -> Result<String, BadFrame> {
    String::from_utf8(bytes.to_vec()).or_else(|_| bad("a text that is no UTF-8"))
}

fn parse(kind: u8, mut rest: Bytes) -> Result<Frame, BadFrame> {
    let frame = match kind {
        HELLO => return hello(rest),
        REFUSED => return text(&rest).map(Frame::Refused),
        POSITION => {
            let (next, epoch, epoch_check) = (word(&mut rest)?, word(&mut rest)?, half(&mut rest)?);
            let has_check = half(&mut rest)?;
            let check = half(&mut rest)?;
            let record_check = match (has_check, check) {
                (0, 0) => None,
                (1, check) => Some(check),
                _ => return bad("a position with unknown flags"),
            };
            Frame::Position(CopyPosition { next, epoch, epoch_check, record_check })
        }
        EPOCH => {
            let (number, start, from) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
            if number == 0 || from < start {
                return bad("an epoch without a number, or that continues before its start");
            }
            return Ok(Frame::Epoch(CopiedEpoch { number, start, from, header: rest }));
        }
        BATCH => return batch(rest),
        ACK => {
            let (batches, stored, durable) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
            Frame::Ack { batches, marks: CopyMarks { stored, durable } }
        }
        MESSAGE => return Ok(Frame::Message(rest)),
        BEAT => {
            let (number, echo) = (word(&mut rest)?, word(&mut rest)?);
            return Ok(Frame::Beat { number, echo, payload: rest });
        }
        BYE => Frame::Bye,
        _ => return bad(format!("a frame of the unknown kind {kind}")),
    };
    if rest.is_empty() { Ok(frame) } else { bad("a frame that is too long") }
}

fn hello(mut rest: Bytes) -> Result<Frame, BadFrame> {
    if rest.len() < 32 || rest.split_to(8) != MAGIC[..] {
        return bad("no hello of a mirror");
    }
    let version = rest.get_u16_le();
    if version != VERSION {
        return bad(format!("a hello of version {version}; this is version {VERSION}"));
    }
    let purpose = match rest.get_u8() {
        0 => Purpose::Session,
        1 => Purpose::Beats,
        2 => Purpose::Guard,
        other => return bad(format!("a hello for the unknown purpose {other}")),
    };
    if rest.split_to(5) != [0; 5][..] {
        return bad("a hello with unknown flags");
    }
    let session = SessionName { dialer: rest.get_u64_le(), listener: rest.get_u64_le() };
    Ok(Frame::Hello { purpose, session, log: text(&rest)? })
}

fn batch(mut rest: Bytes) -> Result<Frame, BadFrame> {
    let (first, committed, count) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    if count > MAX_BATCH_RECORDS as u64 || rest.len() as u64 / 4 < count {
        return bad("a batch with a table that is too long");
    }
    if first.checked_add(count).is_none_or(|end| end == u64::MAX) {
        return bad("a batch beyond the last offset");
    }
    let mut table = rest.split_to(4 * count as usize);
    let mut records = Vec::with_capacity(count as usize);
    let mut before = 0;
    while table.has_remaining() {
        let end = table.get_u32_le();
        let length = end.checked_sub(before).map(|length| length as usize);
        let Some(length) = length.filter(|length| *length <= rest.len()) else {
            return bad("a batch whose table contradicts its length");
        };
        records.push(rest.split_to(length));
        before = end;
    }
    if !rest.is_empty() {
        return bad("a batch whose table contradicts its length");
    }
    Ok(Frame::Batch(MirrorBatch { first, committed, records }))
}
