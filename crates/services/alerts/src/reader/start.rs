//! Where a reader starts: positions by visit, night, time, alert or checkpoint.
//!
//! The index is the control topic: an opening record has the ends of the partitions before it, a
//! manifest the place of its detector's alerts, a closing record the ends behind which alerts are
//! late. So no packet is read in order to find one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use helio_bus::transport::PartitionInfo;
use helio_bus::{Bus, Event, Sample, Subscribe, Topic, TopicSpec};
use helio_core::codec::Codec;
use helio_core::{Qos, Tai};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::topics::{Part, open_or_create, schema_of};
use crate::visit::{Closing, Extent, Ledger, Manifest, Visit};

use super::error::ReaderError;
use super::packets::Packets;

/// How long stored samples are waited for that the engine has announced.
pub(super) const STORED_TIMEOUT: Duration = Duration::from_secs(30);
/// The visits without closing record, newest first, of which a reader reads what lies before its
/// start: in a survey two are open at a time.
const MAX_OPEN_VISITS: usize = 8;

/// A stream of alerts on a bus.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    /// The bus.
    pub bus: &'a Bus,
    /// The name of the topic of packets.
    pub name: &'a str,
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.name)
    }
}

impl Stream<'_> {
    /// Opens the topic of packets, which must exist.
    pub(super) fn topic(self) -> Result<Topic, ReaderError> {
        Ok(self.bus.topic(TopicSpec::of(Part::Alerts.name(self.name)?))?)
    }
}

/// Where a reader starts.
///
/// A member of a group resumes at the committed position of each partition; the start counts for
/// partitions without one. [`Stream::rewind_group`] moves a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Start {
    /// With alerts that are published from now on.
    #[default]
    Latest,
    /// With the oldest stored alert.
    Earliest,
    /// With the oldest stored alert, unless the group has a committed position.
    Committed,
    /// With the first alert of a visit.
    Visit(i64),
    /// With the first alert of the first visit of a night.
    Night(Night),
    /// With the first alert of each partition that was published at or after a time.
    Time(Tai),
    /// With an alert, and what was published after it; in other partitions with the alert's visit.
    Alert(i64),
    /// Behind the alerts that were read when a checkpoint was set.
    Checkpoint(String),
    /// At these offsets of partitions, such as those of
    /// [`AlertReader::positions`](super::AlertReader::positions); in others with the oldest stored
    /// alert. What retention has removed meanwhile is a gap.
    Positions(Vec<(u32, u64)>),
}

/// An observing night: the 24 hours from noon UTC of a date, as Rubin's `day_obs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Night {
    /// POSIX seconds of the noon.
    noon: i64,
}

/// The error of a night's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid night {0:?}; write the date of its evening, like 2026-11-25")]
pub struct NightError(String);

const DAY_SECONDS: i64 = 24 * 3_600;

impl Night {
    /// Returns the night of a time.
    #[must_use]
    pub fn of(time: Tai) -> Self {
        let noons = (time.unix_nanos().div_euclid(1_000_000_000) - DAY_SECONDS / 2) / DAY_SECONDS;
        Self { noon: noons * DAY_SECONDS + DAY_SECONDS / 2 }
    }

    /// When it begins.
    #[must_use]
    pub fn begin(self) -> Tai {
        Tai::from_unix_nanos(self.noon * 1_000_000_000)
    }

    /// When it ends, and the next begins.
    #[must_use]
    pub fn end(self) -> Tai {
        Tai::from_unix_nanos((self.noon + DAY_SECONDS) * 1_000_000_000)
    }

    /// Returns whether a time is in it.
    #[must_use]
    pub fn contains(self, time: Tai) -> bool {
        (self.begin()..self.end()).contains(&time)
    }
}

impl fmt::Display for Night {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.begin().to_utc_string().split('T').next().unwrap_or_default())
    }
}

impl FromStr for Night {
    type Err = NightError;

    fn from_str(text: &str) -> Result<Self, NightError> {
        let wrong = || NightError(text.chars().take(40).collect());
        let noon: Tai = format!("{text}T12:00:00Z").parse().map_err(|_| wrong())?;
        let night = Self::of(noon);
        if night.to_string() == text { Ok(night) } else { Err(wrong()) }
    }
}

/// What the first returned alert has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Visit(i64),
    Alert(i64),
}

/// The start in each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begin {
    pub offsets: Vec<u64>,
    pub target: Option<Target>,
}

/// A named position in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its name.
    pub name: String,
    /// The partition.
    pub partition: i32,
    /// The offset of the next alert.
    pub next: i64,
    /// When it was set, TAI nanoseconds since 1970.
    pub time_ns: i64,
}

helio_core::has_schema!(Checkpoint, "helio.alerts.Checkpoint", {
    name: String [],
    partition: i32 [],
    next: i64 [description("the offset of the next alert")],
    time_ns: i64 [units("ns"), description("TAI since 1970")],
});

/// Opens the topic of checkpoints of a stream, or creates it.
pub(super) fn checkpoints_topic(stream: Stream<'_>) -> Result<Topic, ReaderError> {
    let spec =
        TopicSpec::of(Part::Checkpoints.name(stream.name)?).schema(schema_of::<Checkpoint>());
    Ok(open_or_create(stream.bus, spec, Qos::event)?)
}

/// Finds starts in a stream.
pub(super) struct Index<'a> {
    pub stream: Stream<'a>,
    pub topic: &'a Topic,
    pub partitions: &'a [PartitionInfo],
    pub ledger: &'a Ledger,
}

impl Index<'_> {
    pub(super) fn find(&self, start: &Start, packets: &mut Packets) -> Result<Begin, ReaderError> {
        let at = |offsets| Begin { offsets, target: None };
        Ok(match start {
            Start::Latest => at(self.partitions.iter().map(|p| p.end).collect()),
            Start::Earliest | Start::Committed => at(self.firsts()),
            Start::Visit(visit) => self.visit(*visit)?,
            Start::Night(night) => self.visit(self.first_visit(*night)?)?,
            Start::Time(time) => at(self.time(*time)?),
            Start::Alert(id) => self.alert(*id, packets)?,
            Start::Checkpoint(name) => at(self.checkpoint(name)?),
            Start::Positions(positions) => at(self.positions(positions)),
        })
    }

    fn positions(&self, positions: &[(u32, u64)]) -> Vec<u64> {
        let of = |info: &PartitionInfo| {
            let found = positions.iter().find(|(partition, _)| *partition == info.partition);
            found.map_or(info.first, |(_, next)| (*next).min(info.end))
        };
        self.partitions.iter().map(of).collect()
    }

    fn firsts(&self) -> Vec<u64> {
        self.partitions.iter().map(|partition| partition.first).collect()
    }

    pub(super) fn visit(&self, id: i64) -> Result<Begin, ReaderError> {
        let visit = self.ledger.visit(id).filter(|visit| visit.opening().is_some());
        let visit = visit.ok_or_else(|| ReaderError::NoSuchVisit { visit: id })?;
        let starts = starts(visit, self.partitions.len());
        let mut offsets = Vec::with_capacity(starts.len());
        for (start, partition) in starts.iter().zip(self.partitions) {
            // What lies before the first stored offset is gone, and may have been of the visit.
            if start.may_have_alerts && start.offset < partition.first {
                let (partition, first) = (partition.partition, partition.first);
                let start = start.offset;
                return Err(ReaderError::Removed {
                    what: format!("visit {id}"),
                    partition,
                    start,
                    first,
                });
            }
            offsets.push(start.offset.clamp(partition.first, partition.end));
        }
        Ok(Begin { offsets, target: Some(Target::Visit(id)) })
    }

    fn first_visit(&self, night: Night) -> Result<i64, ReaderError> {
        let is_in = |visit: &Visit| {
            let opening = visit.opening();
            opening.is_some_and(|o| night.contains(Tai::from_nanos(o.shutter_close_ns)))
        };
        let found = self.ledger.visits().find(|(_, visit)| is_in(visit));
        found.map(|(id, _)| id).ok_or_else(|| ReaderError::NoSuchNight { night: night.to_string() })
    }

    fn time(&self, time: Tai) -> Result<Vec<u64>, ReaderError> {
        let subscription = self.topic.subscribe(Subscribe::from(helio_bus::Start::Time(time)))?;
        let mut offsets = self.firsts();
        for position in subscription.positions() {
            if let Some(offset) = offsets.get_mut(position.partition as usize) {
                *offset = position.next;
            }
        }
        Ok(offsets)
    }

    fn alert(&self, id: i64, packets: &mut Packets) -> Result<Begin, ReaderError> {
        for (visit, extent) in extents(self.ledger, id) {
            let partition = extent.partition as u32;
            let range = (extent.first as u64)..(extent.end as u64);
            if let Some(at) = self.scan(id, Some((partition, range)), packets)? {
                return self.alert_at(id, visit, at);
            }
        }
        // Its manifest may be missing: all packets are read.
        let found = self.scan(id, None, packets)?;
        let at = found.ok_or_else(|| ReaderError::NoSuchAlert { id })?;
        self.alert_at(id, at.visit, at)
    }

    fn alert_at(&self, id: i64, visit: i64, at: FoundAlert) -> Result<Begin, ReaderError> {
        let offsets = match self.visit(visit) {
            Ok(begin) => begin.offsets,
            // Of an unknown or partly removed visit, what is stored is returned.
            Err(ReaderError::NoSuchVisit { .. } | ReaderError::Removed { .. }) => self.firsts(),
            Err(error) => return Err(error),
        };
        let mut begin = Begin { offsets, target: Some(Target::Alert(id)) };
        if let Some(offset) = begin.offsets.get_mut(at.partition as usize) {
            *offset = at.offset;
        }
        Ok(begin)
    }

    /// Reads packets until an alert is found: of a range of a partition, or all that are stored.
    fn scan(
        &self,
        id: i64,
        range: Option<(u32, std::ops::Range<u64>)>,
        packets: &mut Packets,
    ) -> Result<Option<FoundAlert>, ReaderError> {
        let options = match &range {
            None => Subscribe::from(helio_bus::Start::Earliest),
            Some((partition, range)) => {
                let (partition, offset) = (*partition, range.start);
                Subscribe::from(helio_bus::Start::Offset { partition, offset })
                    .partitions([partition])
            }
        };
        let mut subscription = self.topic.subscribe(options)?;
        subscription.set_fence()?;
        while let Some(event) = subscription.next_stored(STORED_TIMEOUT)? {
            let Event::Sample(sample) = event else { continue };
            if range.as_ref().is_some_and(|(_, range)| sample.offset >= range.end) {
                break;
            }
            if let Some(found) = find_alert(&sample, id, packets)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn checkpoint(&self, name: &str) -> Result<Vec<u64>, ReaderError> {
        let unknown = || ReaderError::NoSuchCheckpoint { name: name.to_owned() };
        let found = checkpoint(self.stream, name)?;
        if found.is_empty() {
            return Err(unknown());
        }
        let mut offsets = self.firsts();
        for info in self.partitions {
            let Some(next) = found.get(&info.partition) else { continue };
            if *next < info.first {
                return Err(ReaderError::Removed {
                    what: format!("checkpoint {name}"),
                    partition: info.partition,
                    start: *next,
                    first: info.first,
                });
            }
            offsets[info.partition as usize] = (*next).min(info.end);
        }
        Ok(offsets)
    }

    /// From where on a reader of these partitions reads in order to know the visits that it starts
    /// amidst: so it notices repetitions, and can close open visits.
    pub(super) fn warm_up(&self, begin: &[u64], own: &[u32]) -> Vec<u64> {
        let mut warm = begin.to_vec();
        let mut open = 0;
        for (_, visit) in self.ledger.visits().rev() {
            if visit.opening().is_none_or(|opening| opening.starts.is_empty()) {
                continue;
            }
            open += usize::from(visit.closing().is_none());
            if visit.closing().is_none() && open > MAX_OPEN_VISITS {
                continue;
            }
            // What was read of it is committed as a whole, so that it is known whole until then.
            let is_read = |ends: Vec<u64>| {
                own.iter().all(|partition| ends[*partition as usize] <= begin[*partition as usize])
            };
            if ends(visit, begin.len()).is_some_and(is_read) {
                continue;
            }
            for (warm, start) in warm.iter_mut().zip(starts(visit, begin.len())) {
                if start.may_have_alerts {
                    *warm = start.offset.min(*warm);
                }
            }
        }
        for (warm, info) in warm.iter_mut().zip(self.partitions) {
            *warm = (*warm).max(info.first);
        }
        warm
    }
}

/// The position in a partition behind which alerts are late.
pub(super) fn end(closing: &Closing, partition: usize) -> u64 {
    closing.ends.get(partition).and_then(|end| u64::try_from(*end).ok()).unwrap_or(0)
}

/// Where a visit starts in a partition.
#[derive(Debug, Clone, Copy)]
pub struct VisitStart {
    /// None of its alerts lies before.
    pub offset: u64,
    /// Whether it may have alerts there.
    pub may_have_alerts: bool,
}

/// Behind which offsets a decided visit has no alerts that count; `None` if it is not decided.
fn ends(visit: &Visit, partitions: usize) -> Option<Vec<u64>> {
    let closing = visit.closing()?;
    // Who closes it may have read on in other partitions. Repetitions may lie behind the manifests'
    // alerts.
    if !is_exact(visit) || !closing.repeated.is_empty() {
        return Some((0..partitions).map(|partition| end(closing, partition)).collect());
    }
    let mut ends = vec![0; partitions];
    for extent in visit.manifests().filter_map(|manifest| manifest.extent) {
        if let Some(end) = ends.get_mut(extent.partition as usize) {
            *end = (extent.end as u64).max(*end);
        }
    }
    Some(ends)
}

/// Whether the manifests say where all alerts of a visit are: the newest one of a detector that was
/// published twice does not.
fn is_exact(visit: &Visit) -> bool {
    let is_known = |m: &Manifest| m.extent.is_some() || m.alerts.count() == 0;
    let is_complete = visit.has_all_manifests() && !visit.has_repeats();
    is_complete && visit.manifests().all(is_known)
}

/// Returns where a visit starts in each partition, by its opening record and manifests.
#[must_use]
pub fn starts(visit: &Visit, partitions: usize) -> Vec<VisitStart> {
    let opening = visit.opening().map(|opening| &opening.starts[..]).unwrap_or_default();
    let mut starts: Vec<_> = (0..partitions)
        .map(|partition| {
            let start = opening.get(partition).and_then(|start| u64::try_from(*start).ok());
            VisitStart { offset: start.unwrap_or(0), may_have_alerts: true }
        })
        .collect();
    let is_exact = is_exact(visit);
    let mut firsts = BTreeMap::new();
    for extent in visit.manifests().filter_map(|manifest| manifest.extent) {
        let first = firsts.entry(extent.partition as usize).or_insert(u64::MAX);
        *first = (*first).min(extent.first as u64);
    }
    for (partition, start) in starts.iter_mut().enumerate() {
        match firsts.get(&partition) {
            Some(first) if is_exact => start.offset = *first,
            // A packet may have overtaken the opening record.
            Some(first) => start.offset = start.offset.min(*first),
            None => start.may_have_alerts = !is_exact,
        }
    }
    starts
}

/// The visits and extents that may contain an alert, newest first.
pub(super) fn extents(ledger: &Ledger, id: i64) -> impl Iterator<Item = (i64, Extent)> {
    let visits = ledger.visits().rev();
    let extents = visits.flat_map(|(id, v)| v.manifests().map(move |m| (id, m.extent)));
    let known = extents.filter_map(|(visit, extent)| Some((visit, extent?)));
    known.filter(move |(_, extent)| (extent.lowest_id..=extent.highest_id).contains(&id))
}

/// An alert in the log.
#[derive(Debug, Clone, Copy)]
struct FoundAlert {
    partition: u32,
    offset: u64,
    visit: i64,
}

fn find_alert(
    sample: &Sample,
    id: i64,
    packets: &mut Packets,
) -> Result<Option<FoundAlert>, ReaderError> {
    let is_key = sample.key == id.to_string().as_bytes();
    if !is_key && !sample.key.is_empty() {
        return Ok(None);
    }
    let found = packets.open(sample)?.into_iter().flatten().find(|packet| packet.id == id);
    let (partition, offset) = (sample.partition, sample.offset);
    Ok(found.map(|found| FoundAlert { partition, offset, visit: found.ccd.visit }))
}

/// The positions of a checkpoint, by partition; empty if there is none.
fn checkpoint(stream: Stream<'_>, name: &str) -> Result<BTreeMap<u32, u64>, ReaderError> {
    let codec = Codec::new(&schema_of::<Checkpoint>());
    let topic = checkpoints_topic(stream)?;
    let prefix = format!("{name}/");
    let options = Subscribe::from(helio_bus::Start::Last(1)).key_prefix(prefix.as_bytes());
    let mut subscription = topic.subscribe(options)?;
    subscription.set_fence()?;
    let mut found = BTreeMap::new();
    while let Some(event) = subscription.next_stored(STORED_TIMEOUT)? {
        let Event::Sample(sample) = event else { continue };
        let one = codec.deserialize::<Checkpoint>(&sample.payload);
        let Some(one) = one.ok().filter(|one| one.name == name) else { continue };
        if let (Ok(partition), Ok(next)) = (u32::try_from(one.partition), u64::try_from(one.next)) {
            found.insert(partition, next);
        }
    }
    Ok(found)
}
