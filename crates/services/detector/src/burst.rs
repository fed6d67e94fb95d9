//! Bursts: a unit of frames, its chapters, and the verdict.

use std::collections::VecDeque;
use std::ops::Range;

use helio_core::schema::HasSchema;
use helio_core::schema::build::{TypeSpec, enumeration, long, record, string, uint32, uint64};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::assembly::ranges;
use crate::frame::Frame;

/// The limit of chapters of one burst.
pub const MAX_CHAPTERS: u32 = 65_536;
/// The limit of bursts that are open at once, of all sources.
pub const MAX_OPEN_BURSTS: usize = 256;

/// Which end of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BurstEvent {
    /// Its chapters follow.
    Begin,
    /// All its chapters were sent.
    End,
}

/// The begin or the end of a burst, in the order of the frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// The source's name, which is also the sample's key.
    pub source: String,
    /// The burst's number, from 1.
    pub burst: u64,
    /// Which end it is.
    pub event: BurstEvent,
    /// The chapters that it has, at most [`MAX_CHAPTERS`]; the same at both ends.
    pub chapters: u32,
    /// When, in nanoseconds of TAI since 1970-01-01T00:00:00 TAI.
    pub time: i64,
}

impl HasSchema for Burst {
    fn type_spec() -> TypeSpec {
        record("helio.detector.Burst")
            .description("The begin or the end of a burst of frames.")
            .field("source", string())
            .field("burst", uint64())
            .field("event", enumeration("helio.detector.BurstEvent", &["begin", "end"]))
            .field("chapters", uint32())
            .field("time", long().attribute("logicalType", "tai-nanos"))
            .into()
    }
}

/// How a burst ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurstEnd {
    /// By its end.
    Ended,
    /// Its source disconnected.
    Disconnected,
    /// It was given up for a newer one: a later burst of its source, or the limit of open ones.
    Replaced,
}

/// What was received of a burst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The source.
    pub source: String,
    /// The burst's number.
    pub burst: u64,
    /// How it ended.
    pub end: BurstEnd,
    /// The chapters that it has; `None` if neither end was received.
    pub chapters: Option<u32>,
    /// Whether its begin was received.
    pub begun: bool,
    /// Chapters that were received, each once.
    pub received: u32,
    /// Frames of chapters that were received before.
    pub repeated: u64,
    /// Missing chapters, from 1.
    pub missing: Vec<Range<u32>>,
}

impl Verdict {
    /// Returns whether both ends and all chapters were received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.begun && self.end == BurstEnd::Ended && self.missing.is_empty()
    }
}

/// Why a frame or event belongs to no burst. The account is as before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BurstError {
    /// The number of chapters, or of a chapter, is impossible.
    #[error(
        "{source_name}, burst {burst}: chapter or number of chapters {found} is not among 1 to \
         {limit}"
    )]
    Chapter {
        /// The source.
        source_name: String,
        /// The burst's number.
        burst: u64,
        /// The number.
        found: u32,
        /// The largest one possible.
        limit: u32,
    },
    /// The burst is over, or older than one that is.
    #[error("{source_name}, burst {burst}: it is over, or older than burst {last}")]
    Over {
        /// The source.
        source_name: String,
        /// The burst's number.
        burst: u64,
        /// The newest burst that is over.
        last: u64,
    },
}

/// Accounts for the chapters of bursts, in the order in which they are received.
#[derive(Debug, Default)]
pub struct BurstAccount {
    open: VecDeque<Open>,
    /// The newest burst of a source that is over; bounded as the open ones.
    over: VecDeque<(String, u64)>,
}

#[derive(Debug)]
struct Open {
    source: String,
    burst: u64,
    begun: bool,
    chapters: Option<u32>,
    received: Vec<bool>,
    count: u32,
    repeated: u64,
}

impl BurstAccount {
    /// Takes a begin or an end. Bursts that are over by it are returned, the oldest first.
    ///
    /// # Errors
    /// [`BurstError`] if the number of chapters is impossible, or the burst is over already.
    pub fn event(&mut self, event: &Burst) -> Result<Vec<Verdict>, BurstError> {
        let (source, burst, chapters) = (&event.source, event.burst, event.chapters);
        check_chapter(source, burst, chapters, MAX_CHAPTERS)?;
        let mut verdicts = Vec::new();
        let place = self.place(source, burst, &mut verdicts)?;
        let open = &mut self.open[place];
        // The larger of two different numbers: what is missing of it is missing.
        open.chapters = open.chapters.max(Some(chapters));
        match event.event {
            BurstEvent::Begin => open.begun = true,
            BurstEvent::End => verdicts.extend(self.close(place, BurstEnd::Ended)),
        }
        Ok(verdicts)
    }

    /// Takes a whole frame; one without a burst is ignored. Bursts that are over by it are
    /// returned.
    ///
    /// # Errors
    /// [`BurstError`] if its chapter is impossible, or its burst is over already.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<Vec<Verdict>, BurstError> {
        let (source, burst, chapter) = (&*frame.source, frame.burst, frame.chapter);
        let mut verdicts = Vec::new();
        if burst == 0 {
            return Ok(verdicts);
        }
        let known = self.find(source, burst).and_then(|place| self.open[place].chapters);
        check_chapter(source, burst, chapter, known.unwrap_or(MAX_CHAPTERS))?;
        let place = self.place(source, burst, &mut verdicts)?;
        self.open[place].take(chapter);
        Ok(verdicts)
    }

    /// Ends the open bursts of a source that disconnected.
    pub fn disconnect(&mut self, source: &str) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        while let Some(place) = self.open.iter().position(|open| open.source == source) {
            verdicts.extend(self.close(place, BurstEnd::Disconnected));
        }
        verdicts
    }

    fn find(&self, source: &str, burst: u64) -> Option<usize> {
        self.open.iter().position(|open| open.source == source && open.burst == burst)
    }

    /// The place of a burst, which is opened if there is none; others are given up for it.
    fn place(
        &mut self,
        source: &str,
        burst: u64,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<usize, BurstError> {
        if let Some(place) = self.find(source, burst) {
            return Ok(place);
        }
        let of_source = |(name, _): &&(String, u64)| name == source;
        let last = self.over.iter().find(of_source).map_or(0, |(_, last)| *last);
        if burst <= last {
            let source_name = source.to_owned();
            return Err(BurstError::Over { source_name, burst, last });
        }
        let older = |open: &Open| open.source == source && open.burst < burst;
        while let Some(place) = self.open.iter().position(older) {
            verdicts.extend(self.close(place, BurstEnd::Replaced));
        }
        if self.open.len() >= MAX_OPEN_BURSTS {
            verdicts.extend(self.close(0, BurstEnd::Replaced));
        }
        self.open.push_back(Open::new(source, burst));
        Ok(self.open.len() - 1)
    }

    fn close(&mut self, place: usize, end: BurstEnd) -> Option<Verdict> {
        let open = self.open.remove(place)?;
        let known = self.over.iter().position(|(name, _)| *name == open.source);
        let last = known.and_then(|place| self.over.remove(place)).map_or(0, |(_, last)| last);
        if self.over.len() >= MAX_OPEN_BURSTS {
            self.over.pop_front();
        }
        self.over.push_back((open.source.clone(), open.burst.max(last)));
        Some(open.verdict(end))
    }
}

impl Open {
    fn new(source: &str, burst: u64) -> Self {
        let (received, count, repeated) = (Vec::new(), 0, 0);
        let source = source.to_owned();
        Self { source, burst, begun: false, chapters: None, received, count, repeated }
    }

    fn take(&mut self, chapter: u32) {
        let place = (chapter - 1) as usize;
        if self.received.len() <= place {
            self.received.resize(place + 1, false);
        }
        match std::mem::replace(&mut self.received[place], true) {
            true => self.repeated += 1,
            false => self.count += 1,
        }
    }

    fn verdict(mut self, end: BurstEnd) -> Verdict {
        let chapters = self.chapters.unwrap_or_default() as usize;
        self.received.resize(chapters.max(self.received.len()), false);
        let missing = ranges(self.received.iter().map(|received| !received));
        Verdict {
            source: self.source,
            burst: self.burst,
            end,
            chapters: self.chapters,
            begun: self.begun,
            received: self.count,
            repeated: self.repeated,
            missing: missing.into_iter().map(|part| part.start + 1..part.end + 1).collect(),
        }
    }
}

fn check_chapter(source: &str, burst: u64, found: u32, limit: u32) -> Result<(), BurstError> {
    if (1..=limit).contains(&found) {
        return Ok(());
    }
    let source_name = source.to_owned();
    Err(BurstError::Chapter { source_name, burst, found, limit })
}
