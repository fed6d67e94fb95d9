//! Frames put together from their parts.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

use crate::frame::{Frame, FrameError};

/// The limits of an [`Assembler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssemblyLimits {
    /// The largest frame, in bytes of data.
    pub frame_bytes: u64,
    /// The most bytes of all unfinished frames together.
    pub pending_bytes: u64,
    /// The most unfinished frames.
    pub pending_frames: usize,
    /// How many frames are remembered after their end, so that their parts are known as repeated.
    pub finished_frames: usize,
}

impl Default for AssemblyLimits {
    /// Frames of 2 GiB, twice that pending, 64 unfinished and 1,024 finished ones.
    fn default() -> Self {
        Self {
            frame_bytes: 2 << 30,
            pending_bytes: 4 << 30,
            pending_frames: 64,
            finished_frames: 1024,
        }
    }
}

/// Why a part was not taken. The assembler is as before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PartError {
    /// The part itself is invalid.
    #[error("{source_name}, frame {unique_id}: {error}")]
    Invalid {
        /// The source.
        source_name: String,
        /// The frame's number.
        unique_id: u64,
        /// The cause.
        error: FrameError,
    },
    /// The frame is larger than the limit.
    #[error(
        "{source_name}, frame {unique_id}: {length} bytes are more than the limit frame_bytes of \
         {limit}; raise it, or send smaller frames"
    )]
    TooLarge {
        /// The source.
        source_name: String,
        /// The frame's number.
        unique_id: u64,
        /// The frame's bytes.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// An earlier part of the same frame has another description.
    #[error(
        "{source_name}, frame {unique_id}: part {part} describes another frame than earlier \
         parts; two sources may have one name"
    )]
    Different {
        /// The source.
        source_name: String,
        /// The frame's number.
        unique_id: u64,
        /// The part's number, from 0.
        part: u32,
    },
}

/// What a part led to.
#[derive(Debug, PartialEq)]
pub enum Assembled<'a> {
    /// A whole frame; one that came in one part is borrowed from it.
    Whole(Frame<'a>),
    /// More parts of its frame are missing.
    Pending,
    /// The part, or all parts of its frame, were received before.
    Repeated,
}

/// A frame that was given up with parts missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncompleteFrame {
    /// The source.
    pub source: String,
    /// The frame's number.
    pub unique_id: u64,
    /// The missing parts.
    pub missing: Vec<Range<u32>>,
}

/// Puts frames together from parts in any order, in bounded memory. When a limit is reached, the
/// oldest unfinished frame is given up, and reported.
#[derive(Debug)]
pub struct Assembler {
    limits: AssemblyLimits,
    pending: VecDeque<Pending>,
    bytes: u64,
    finished: VecDeque<Finished>,
}

/// A frame that was put together or given up. After a restart its number comes again, at another
/// time.
#[derive(Debug)]
struct Finished {
    source: String,
    unique_id: u64,
    time: i64,
}

#[derive(Debug)]
struct Pending {
    /// The first part that came, without its data.
    first: Frame<'static>,
    data: Vec<u8>,
    received: Vec<bool>,
    missing: u32,
}

impl Assembler {
    /// Returns an assembler without frames.
    #[must_use]
    pub fn new(limits: AssemblyLimits) -> Self {
        Self { limits, pending: VecDeque::new(), bytes: 0, finished: VecDeque::new() }
    }

    /// Takes a frame or part. Frames that had to be given up for it are appended to `lost`.
    ///
    /// # Errors
    /// [`PartError`] if the part is invalid or its frame too large.
    pub fn push<'a>(
        &mut self,
        part: Frame<'a>,
        lost: &mut Vec<IncompleteFrame>,
    ) -> Result<Assembled<'a>, PartError> {
        let (unique_id, length, limit) = (part.unique_id, part.length, self.limits.frame_bytes);
        let source_name = || part.source.clone().into_owned();
        part.check().map_err(|error| PartError::Invalid {
            source_name: source_name(),
            unique_id,
            error,
        })?;
        if length > limit {
            let source_name = source_name();
            return Err(PartError::TooLarge { source_name, unique_id, length, limit });
        }
        if part.parts == 1 {
            return Ok(Assembled::Whole(part));
        }
        if self.finished.iter().any(|one| one.is(&part)) {
            return Ok(Assembled::Repeated);
        }
        let known = |one: &Pending| one.first.source == part.source && one.is(unique_id);
        let place = match self.pending.iter().position(known) {
            Some(place) if !self.pending[place].first.is_part_of(&part) => {
                let source_name = source_name();
                return Err(PartError::Different { source_name, unique_id, part: part.part });
            }
            Some(place) => place,
            None => self.begin(&part, lost),
        };
        let pending = &mut self.pending[place];
        if !pending.put(&part) {
            return Ok(Assembled::Repeated);
        }
        if pending.missing > 0 {
            return Ok(Assembled::Pending);
        }
        Ok(self.finish_at(place).map_or(Assembled::Pending, Assembled::Whole))
    }

    /// Makes room for a frame, and returns its place.
    fn begin(&mut self, part: &Frame<'_>, lost: &mut Vec<IncompleteFrame>) -> usize {
        let AssemblyLimits { pending_bytes, pending_frames, .. } = self.limits;
        while self.pending.len() >= pending_frames.max(1)
            || (self.bytes.saturating_add(part.length) > pending_bytes && !self.pending.is_empty())
        {
            lost.extend(self.give_up());
        }
        self.bytes += part.length;
        self.pending.push_back(Pending::new(part));
        self.pending.len() - 1
    }

    fn give_up(&mut self) -> Option<IncompleteFrame> {
        let oldest = self.pending.pop_front()?;
        self.bytes -= oldest.first.length;
        self.remember(&oldest.first);
        Some(oldest.incomplete())
    }

    fn finish_at(&mut self, place: usize) -> Option<Frame<'static>> {
        let done = self.pending.remove(place)?;
        self.bytes -= done.first.length;
        self.remember(&done.first);
        Some(Frame { part: 0, parts: 1, data: Cow::Owned(done.data), ..done.first })
    }

    fn remember(&mut self, frame: &Frame<'_>) {
        while self.finished.len() >= self.limits.finished_frames.max(1) {
            self.finished.pop_front();
        }
        let (source, unique_id, time) = (frame.source.to_string(), frame.unique_id, frame.time);
        self.finished.push_back(Finished { source, unique_id, time });
    }

    /// Gives up all unfinished frames, the oldest first: at the end of a source, for example.
    pub fn finish(&mut self) -> Vec<IncompleteFrame> {
        std::iter::from_fn(|| self.give_up()).collect()
    }

    /// The bytes of all unfinished frames.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.bytes
    }
}

impl Finished {
    fn is(&self, part: &Frame<'_>) -> bool {
        self.source == part.source && self.unique_id == part.unique_id && self.time == part.time
    }
}

impl Pending {
    fn new(part: &Frame<'_>) -> Self {
        let first = Frame { data: Cow::Borrowed(&[]), ..part.clone() }.into_owned();
        Self {
            data: vec![0; part.length as usize],
            received: vec![false; part.parts as usize],
            missing: part.parts,
            first,
        }
    }

    fn is(&self, unique_id: u64) -> bool {
        self.first.unique_id == unique_id
    }

    /// Stores a checked part; false if it was there.
    fn put(&mut self, part: &Frame<'_>) -> bool {
        let place = part.part as usize;
        if self.received[place] {
            return false;
        }
        let (start, end) = part.range(part.part).unwrap_or_default();
        self.data[start as usize..end as usize].copy_from_slice(&part.data);
        self.received[place] = true;
        self.missing -= 1;
        true
    }

    fn incomplete(self) -> IncompleteFrame {
        let missing = ranges(self.received.iter().map(|received| !received));
        let Frame { source, unique_id, .. } = self.first;
        IncompleteFrame { source: source.into_owned(), unique_id, missing }
    }
}

/// The ranges of marked places.
pub(crate) fn ranges(marked: impl Iterator<Item = bool>) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for (place, _) in (0..).zip(marked).filter(|(_, marked)| *marked) {
        match out.last_mut() {
            Some(last) if last.end == place => last.end += 1,
            _ => out.push(place..place + 1),
        }
    }
    out
}
