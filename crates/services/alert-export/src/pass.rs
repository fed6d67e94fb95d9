//! One reading of the log for the visits that were decided when it began.

use std::collections::HashMap;
use std::sync::Arc;

use helio_alerts::reader::{DEFAULT_PINNED_BYTES, LinkedError, LinkedStamps, Packets, ccd_of};
use helio_alerts::topics::Part;
use helio_alerts::visit::Position;
use helio_bus::{TopicError, TopicSpec};

use crate::alert::{Alert, Stamps};
use crate::control::{at, positions};
use crate::export::{Export, Observer};
use crate::manifest::{PassState, Range};
use crate::matcher::{Matched, Matcher};
use crate::options::StampsChoice;
use crate::outcome::{Progress, Stage};
use crate::reading::{Next, PartitionReader};
use crate::tally::Tallies;
use crate::writer::{Chosen, Target, Writer};
use crate::{ExportError, VisitReport};

/// The most alerts of a batch where stamps are put into packets: 18 MB of Rubin's.
const JOINED_ALERTS: usize = 128;
/// The bytes of alerts after which a batch ends.
const BATCH_BYTES: usize = 16 << 20;

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassEnd {
    Finished,
    Stopped,
}

/// Where alerts of a visit end in each partition.
struct Window {
    visit: i64,
    ends: Vec<u64>,
}

/// Whether a batch is in finished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// It is not.
    Pending,
    /// It is: it is only counted.
    Finished,
}

#[derive(Default)]
struct Batch {
    alerts: Vec<Alert>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self, alerts: usize) -> bool {
        self.alerts.len() >= alerts || self.bytes >= BATCH_BYTES
    }
}

/// Puts an alert's stamps into its packet, if they are elsewhere; `false` if they are missing for
/// good.
fn join(linked: Option<&mut LinkedStamps>, alert: &mut Alert) -> Result<bool, ExportError> {
    let Stamps::Linked(link) = &alert.stamps else { return Ok(true) };
    let (Some(linked), Some(link)) = (linked, link) else { return Ok(false) };
    let files = match linked.files(alert.seen.at.partition, link, alert.seen.id) {
        Ok(files) => files,
        Err(LinkedError::Missing(_)) => return Ok(false),
        Err(LinkedError::Unavailable(error)) => return Err(ExportError::Stamps(error)),
    };
    let files: Vec<_> = files.iter().map(Option::as_deref).collect();
    let mut whole = Vec::new();
    let is_joined = alert.layout.join(&alert.datum, &files, &mut whole).is_ok();
    if is_joined {
        alert.datum = whole.into();
    }
    Ok(is_joined)
}

/// A pass in the making.
pub(crate) struct Pass<'e> {
    export: &'e mut Export,
    matcher: Option<Matcher>,
    writer: Writer,
    packets: Packets,
    readers: HashMap<u32, PartitionReader>,
    /// The positions behind the last alerts that were read.
    next: Vec<u64>,
    /// Behind the alerts in finished files.
    written: Vec<u64>,
    /// Where alerts have their stamps elsewhere, and these are wanted.
    stamps: Option<LinkedStamps>,
    /// The most alerts of a batch.
    batch_alerts: usize,
    /// Alerts to be written.
    batch: Batch,
    /// Alerts that are in finished files, and are only counted.
    again: Batch,
    /// The number of the next file.
    number: usize,
    /// Bytes of alerts read since the last file.
    input_bytes: u64,
    /// Visits that are complete, but not named in the manifest.
    reports: Vec<VisitReport>,
    base: Progress,
}

impl<'e> Pass<'e> {
    /// Checks that the options fit the topic.
    pub(crate) fn check(export: &Export) -> Result<(), ExportError> {
        Self::matcher(export)?;
        export.writer().map(drop)
    }

    fn matcher(export: &Export) -> Result<Option<Matcher>, ExportError> {
        let query = export.options.filter.clone();
        query.map(|query| Matcher::new(query, export.schemas.clone())).transpose()
    }

    fn stamps(export: &Export) -> Result<Option<LinkedStamps>, ExportError> {
        if export.options.stamps == StampsChoice::None {
            return Ok(None);
        }
        let spec = TopicSpec::of(Part::Stamps.name(export.topic.name().as_str())?);
        let topic = match export.bus.topic(spec) {
            Err(TopicError::NoSuchTopic(_)) => return Ok(None),
            topic => topic?,
        };
        let mut stamps = LinkedStamps::new(topic, DEFAULT_PINNED_BYTES);
        let partitions: Vec<_> = (0..export.topic.qos().partitions).collect();
        stamps.assign(&partitions)?;
        Ok(Some(stamps))
    }

    /// Resumes the pass that is not finished.
    pub(crate) fn open(export: &'e mut Export) -> Result<Self, ExportError> {
        let state = export.manifest.unfinished().cloned();
        let state = state.ok_or_else(|| ExportError::Fault("no pass is unfinished".to_owned()))?;
        for (partition, info) in export.topic.partitions()?.iter().enumerate() {
            let (offset, end) = (at(&state.next, partition), info.end);
            if offset > end {
                let (topic, partition) = (export.topic.name().to_string(), info.partition);
                return Err(ExportError::Replaced { topic, partition, offset, end });
            }
        }
        let stamps = Self::stamps(export)?;
        Ok(Self {
            matcher: Self::matcher(export)?,
            writer: export.writer()?,
            packets: Packets::new(&export.bus),
            batch_alerts: match &stamps {
                Some(_) => export.options.batch_alerts.min(JOINED_ALERTS),
                None => export.options.batch_alerts,
            },
            stamps,
            readers: HashMap::new(),
            next: state.rescan,
            written: state.next,
            batch: Batch::default(),
            again: Batch::default(),
            number: export.manifest.parts.len() + 1,
            input_bytes: 0,
            reports: Vec::new(),
            base: export.progress(Stage::Exporting, 0),
            export,
        })
    }

    /// Reads and writes until all visits are complete, or the observer stops.
    pub(crate) fn run(mut self, observer: &mut dyn Observer) -> Result<PassEnd, ExportError> {
        let windows = self.windows()?;
        let visits = Arc::clone(&self.export.visits);
        let decided = windows.iter().filter_map(|window| {
            let visit = visits.visit(window.visit)?;
            Some((visit, visit.closing()?))
        });
        let mut tallies = Tallies::new(decided);
        for window in &windows {
            for partition in 0..self.next.len() {
                let end = at(&window.ends, partition);
                let read = self.read(partition as u32, end, &mut tallies, observer)?;
                if read == PassEnd::Stopped {
                    return Ok(read);
                }
            }
            self.flush(Files::Finished, &mut tallies)?;
            self.flush(Files::Pending, &mut tallies)?;
            self.reports.extend(tallies.complete(window.visit));
            if self.end_batch(&tallies, observer)? == PassEnd::Stopped {
                return Ok(PassEnd::Stopped);
            }
        }
        self.finish(&tallies)?;
        Ok(PassEnd::Finished)
    }

    /// The visits that are not complete, with their ends; these do not decrease.
    fn windows(&self) -> Result<Vec<Window>, ExportError> {
        let manifest = &self.export.manifest;
        let state = manifest.unfinished().map_or(&[][..], |state| &state.visits);
        let logs = self.export.topic.partitions()?;
        let mut ends = vec![0; self.next.len()];
        let mut windows = Vec::new();
        for visit in state {
            let is_complete = manifest.visits.iter().any(|report| report.visit == *visit);
            let closing = self.export.visits.closing(*visit);
            let Some(closing) = closing else {
                if is_complete {
                    continue;
                }
                let topic = format!("{}/control", self.export.topic.name());
                return Err(ExportError::Forgotten { topic, visit: *visit });
            };
            let closed = positions(&closing.ends);
            for (partition, end) in ends.iter_mut().enumerate() {
                let log_end = logs.get(partition).map_or(0, |log| log.end);
                *end = at(&closed, partition).min(log_end).max(*end);
            }
            if !is_complete {
                windows.push(Window { visit: *visit, ends: ends.clone() });
            }
        }
        Ok(windows)
    }

    /// Reads a partition up to a position.
    fn read(
        &mut self,
        partition: u32,
        end: u64,
        tallies: &mut Tallies<'_>,
        observer: &mut dyn Observer,
    ) -> Result<PassEnd, ExportError> {
        let place = partition as usize;
        while self.next[place] < end {
            let next = self.reader(partition)?.next_before(end)?;
            let Next::Sample(sample) = next else {
                self.next[place] = end;
                break;
            };
            self.next[place] = sample.offset + 1;
            let at = Position { partition, offset: sample.offset };
            let named = ccd_of(sample.headers.as_ref());
            let is_other = named.is_some_and(|ccd| !tallies.wants(ccd.visit, at));
            if is_other || sample.is_null() {
                continue;
            }
            let is_written = sample.offset < self.written[place];
            for packet in self.packets.open(&sample)? {
                // Which visit lacks an alert that does not name it is in the visits' digests.
                let Ok(packet) = packet else {
                    named.iter().for_each(|ccd| tallies.unreadable(ccd.visit));
                    continue;
                };
                let alert = Alert::new(&sample, packet);
                if tallies.wants(alert.seen.visit, at) && tallies.add(&alert.seen)? {
                    self.add(alert, is_written);
                }
            }
            if self.again.is_full(self.batch_alerts) {
                self.flush(Files::Finished, tallies)?;
            }
            if self.batch.is_full(self.batch_alerts) {
                self.flush(Files::Pending, tallies)?;
                if self.end_batch(tallies, observer)? == PassEnd::Stopped {
                    return Ok(PassEnd::Stopped);
                }
            }
        }
        Ok(PassEnd::Finished)
    }

    fn reader(&mut self, partition: u32) -> Result<&mut PartitionReader, ExportError> {
        use std::collections::hash_map::Entry;
        let offset = self.next[partition as usize];
        match self.readers.entry(partition) {
            Entry::Occupied(reader) => Ok(reader.into_mut()),
            Entry::Vacant(place) => {
                let reader = PartitionReader::open(&self.export.topic, partition, offset)?;
                Ok(place.insert(reader))
            }
        }
    }

    fn add(&mut self, alert: Alert, is_written: bool) {
        let bytes = alert.datum.len();
        let batch = if is_written { &mut self.again } else { &mut self.batch };
        batch.bytes += bytes;
        batch.alerts.push(alert);
        if !is_written {
            self.input_bytes += bytes as u64;
        }
    }

    /// Filters the alerts read so far, and writes those that are not in files. The batches are
    /// apart, so that those to be written do not depend on where a pass resumes.
    fn flush(&mut self, files: Files, tallies: &mut Tallies<'_>) -> Result<(), ExportError> {
        let batch = match files {
            Files::Finished => &mut self.again,
            Files::Pending => &mut self.batch,
        };
        let mut alerts = std::mem::take(batch).alerts;
        if alerts.is_empty() {
            return Ok(());
        }
        let matched = match &mut self.matcher {
            Some(matcher) => matcher.run(&alerts)?,
            None => Matched { alerts: (0..alerts.len()).collect(), ..Matched::default() },
        };
        let mut unreadable = matched.unreadable;
        let mut rows = matched.alerts;
        let columns = matched.columns.filter(|_| self.writer.takes_columns());
        if columns.is_none() && self.export.options.stamps == StampsChoice::Inline {
            let mut whole = Vec::with_capacity(rows.len());
            for row in rows {
                let is_joined = join(self.stamps.as_mut(), &mut alerts[row])?;
                if is_joined { whole.push(row) } else { unreadable.push(row) }
            }
            rows = whole;
        }
        let chosen = Chosen { alerts: &alerts, rows: rows.clone(), columns };
        let rejected = match files {
            Files::Finished => self.writer.check(chosen)?,
            Files::Pending => {
                let number = &mut self.number;
                let mut target = Target { folder: &self.export.folder, number };
                self.writer.write(chosen, &mut target)?
            }
        };
        let exported = rows.iter().filter(|row| !rejected.contains(row));
        exported.for_each(|row| tallies.exported(&alerts[*row].seen));
        unreadable.extend(rejected);
        unreadable.iter().for_each(|row| tallies.unreadable(alerts[*row].seen.visit));
        Ok(())
    }

    /// Notes the progress, and finishes files that are full, or before the pass stops.
    fn end_batch(
        &mut self,
        tallies: &Tallies<'_>,
        observer: &mut dyn Observer,
    ) -> Result<PassEnd, ExportError> {
        self.report(observer, tallies);
        let options = &self.export.options;
        let is_full = self.writer.bytes() >= options.part_bytes
            || self.input_bytes >= options.part_input_bytes;
        let stops = observer.stops();
        if is_full || stops {
            self.commit(tallies)?;
        }
        Ok(if stops { PassEnd::Stopped } else { PassEnd::Finished })
    }

    /// Finishes the files, and stores how far they are.
    fn commit(&mut self, tallies: &Tallies<'_>) -> Result<(), ExportError> {
        let finished = self.writer.finish()?;
        let moved = self.written.iter().zip(&self.next).enumerate();
        let ranges: Vec<_> = moved
            .filter(|(_, (from, to))| to > from)
            .map(|(partition, (from, to))| Range {
                partition: partition as u32,
                from: *from,
                to: *to,
            })
            .collect();
        for (written, next) in self.written.iter_mut().zip(&self.next) {
            *written = (*next).max(*written);
        }
        // What was not read again since this pass was resumed is still to be counted.
        let rescan = (0_u32..).zip(&self.next).map(|(partition, next)| {
            tallies.first(partition).map_or(*next, |first| first.min(*next))
        });
        let (next, rescan) = (self.written.clone(), rescan.collect());
        if let Some(pass) = self.export.manifest.passes.last_mut() {
            *pass = PassState { next, rescan, ..pass.clone() };
        }
        self.export.manifest.visits.append(&mut self.reports);
        self.input_bytes = 0;
        self.export.commit(finished, &ranges)
    }

    /// Ends the pass: with the last file all visits are complete.
    fn finish(mut self, tallies: &Tallies<'_>) -> Result<(), ExportError> {
        if let Some(pass) = self.export.manifest.passes.last_mut() {
            pass.is_finished = true;
        }
        let lost = self.readers.values().map(PartitionReader::lost).sum::<u64>();
        self.commit(tallies)?;
        self.export.lost += lost;
        Ok(())
    }

    fn report(&self, observer: &mut dyn Observer, tallies: &Tallies<'_>) {
        let complete = &self.reports;
        let read: u64 = complete.iter().map(|report| report.found.count()).sum();
        observer.progress(&Progress {
            visits: self.base.visits + complete.len() as u64,
            alerts: self.base.alerts + read + tallies.alerts() as u64,
            rows: self.base.rows + self.writer.rows(),
            ..self.base
        });
    }
}
