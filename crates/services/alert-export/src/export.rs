//! An export: opened, run, resumed.
//!
//! Constraints. Memory is bounded: a batch of alerts, a row group, the identifiers of visits that
//! are not read completely. Nothing but the folder holds state; a process may be killed at any
//! instruction.
//!
//! Operation. A *pass* exports the visits that are decided when it begins. Closing records give
//! each visit a position in every partition behind which its alerts are late. A pass goes from one
//! visit's positions to the next one's, and reads partition by partition, so that its order depends
//! on the log alone, and a resumed pass writes the files that an uninterrupted one would have
//! written. At the end of a file the manifest says how far each partition is in the files, and
//! where the first alert of an incomplete visit is: a resumed pass reads from there, counts again,
//! and writes only what is behind. Visits that are decided later are a pass of their own.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use helio_bus::{Bus, SchemaId, Topic, TopicSpec};
use helio_core::{Schema, SchemaError};

use crate::ExportError;
use crate::control::Visits;
use crate::folder::Folder;
use crate::manifest::{Description, Manifest, Part, PassState, Range};
use crate::options::{ExportOptions, Selection};
use crate::outcome::{Ended, Outcome, Progress, Stage};
use crate::pass::{Pass, PassEnd};
use crate::writer::{Finished, Target, Writer};

/// A selection and the folder to which it is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The topic of alerts.
    pub topic: String,
    /// The visits.
    pub visits: Selection,
    /// The folder, which is created. It has nothing but this export.
    pub folder: PathBuf,
}

/// Observes a run: shows its progress, and may stop it.
pub trait Observer {
    /// Notes the progress; called after each batch of alerts.
    fn progress(&mut self, progress: &Progress);

    /// Whether to stop. Files in the making are finished first.
    fn stops(&self) -> bool {
        false
    }
}

/// Shows nothing and does not stop.
impl Observer for () {
    fn progress(&mut self, _: &Progress) {}
}

/// The alerts of a night, to be written to files.
pub struct Export {
    pub(crate) bus: Bus,
    pub(crate) topic: Topic,
    pub(crate) visits: Arc<Visits>,
    pub(crate) folder: Folder,
    pub(crate) manifest: Manifest,
    pub(crate) options: ExportOptions,
    pub(crate) schemas: Vec<Schema>,
    pub(crate) lost: u64,
    /// Whether this run has written anything.
    has_written: bool,
}

impl Export {
    /// Opens a new export, or one that was interrupted or finished.
    ///
    /// # Errors
    /// [`ExportError`] if options, filter or columns are invalid, the visits are not known, or the
    /// folder is in use, damaged, or has something else.
    pub fn open(bus: &Bus, job: Job, options: ExportOptions) -> Result<Self, ExportError> {
        let export = Description::new(bus.identity()?, &job.topic, &job.visits, &options)?;
        let topic = bus.topic(TopicSpec::new(&job.topic)?)?;
        let schemas = schemas(bus, &topic)?;
        let (folder, manifest) = Folder::open(&job.folder)?;
        let manifest = match manifest {
            Some(manifest) => {
                manifest.export.expect(&export)?;
                manifest
            }
            None => Manifest::new(export),
        };
        let visits = Arc::new(Visits::read(bus, &job.topic, &job.visits)?);
        let (lost, has_written) = (0, false);
        let bus = bus.clone();
        let opened =
            Self { bus, topic, visits, folder, manifest, options, schemas, lost, has_written };
        // Options that do not fit fail before anything is written.
        Pass::check(&opened)?;
        opened.check_folder()?;
        Ok(opened)
    }

    fn check_folder(&self) -> Result<(), ExportError> {
        if self.manifest.passes.is_empty() {
            self.folder.store(&self.manifest)?;
        }
        self.folder.clean(&self.manifest)?;
        self.manifest.parts.iter().try_for_each(|part| self.folder.check_size(part))
    }

    /// Exports what is left. Without anything left, it compares the files with their hashes.
    ///
    /// # Errors
    /// [`ExportError`]; what was finished before is kept, and another run continues.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Outcome, ExportError> {
        loop {
            if self.manifest.unfinished().is_none() && !self.begin_pass()? {
                break;
            }
            self.has_written = true;
            match Pass::open(self)?.run(observer)? {
                PassEnd::Finished => {}
                PassEnd::Stopped => return Ok(self.outcome(Ended::Stopped, 0)),
            }
        }
        if self.manifest.parts.is_empty() && !self.manifest.passes.is_empty() {
            self.write_empty()?;
        }
        if self.has_written {
            return Ok(self.outcome(Ended::Finished, 0));
        }
        self.verify(observer)
    }

    /// Begins a pass over the visits that are decided and in no pass; false if there are none.
    fn begin_pass(&mut self) -> Result<bool, ExportError> {
        let is_known = |visit: &i64| self.manifest.passes.iter().any(|p| p.visits.contains(visit));
        let visits: Vec<i64> =
            self.visits.closed.iter().copied().filter(|visit| !is_known(visit)).collect();
        if visits.is_empty() {
            return Ok(false);
        }
        let partitions = self.topic.partitions()?;
        let ends: Vec<_> = partitions.iter().map(|partition| partition.end).collect();
        let mut next = self.visits.start(&visits, &ends);
        for (next, partition) in next.iter_mut().zip(&partitions) {
            // What retention has removed is missing in the visits' digests.
            *next = partition.first.max(*next);
        }
        let rescan = next.clone();
        self.manifest.passes.push(PassState { visits, next, rescan, is_finished: false });
        self.folder.store(&self.manifest)?;
        Ok(true)
    }

    /// Writes a file without rows where no alert matches: the columns are there, and the filter has
    /// run.
    fn write_empty(&mut self) -> Result<(), ExportError> {
        let mut writer = self.writer()?;
        let mut target = Target { folder: &self.folder, number: &mut 1 };
        writer.write_empty(&self.schemas, &mut target)?;
        let finished = writer.finish()?;
        self.commit(finished, &[])
    }

    pub(crate) fn writer(&self) -> Result<Writer, ExportError> {
        Writer::new(&self.options, self.options.check()?, &self.schemas)
    }

    /// Names finished files in the manifest, and stores it.
    pub(crate) fn commit(
        &mut self,
        finished: Vec<Finished>,
        ranges: &[Range],
    ) -> Result<(), ExportError> {
        self.folder.publish(finished.iter().map(|file| file.written.name.as_str()))?;
        let parts = finished.into_iter().map(|file| Part {
            file: file.written.name,
            rows: file.rows,
            bytes: file.written.bytes,
            xxh3: file.written.xxh3,
            schema: file.schema,
            visits: file.visits,
            ranges: ranges.to_vec(),
        });
        self.manifest.parts.extend(parts);
        self.folder.store(&self.manifest)
    }

    fn verify(&self, observer: &mut dyn Observer) -> Result<Outcome, ExportError> {
        let (base, mut verified) = (self.progress(Stage::Verifying, 0), 0);
        for part in &self.manifest.parts {
            self.folder.check_content(part, &mut |bytes| {
                verified += bytes;
                observer.progress(&Progress { verified_bytes: verified, ..base });
                if observer.stops() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if observer.stops() {
                return Ok(self.outcome(Ended::Stopped, verified));
            }
        }
        Ok(self.outcome(Ended::Verified, verified))
    }

    /// The progress by finished files.
    pub(crate) fn progress(&self, stage: Stage, verified_bytes: u64) -> Progress {
        let manifest = &self.manifest;
        let passes: usize = manifest.passes.iter().map(|pass| pass.visits.len()).sum();
        let read: u64 = manifest.visits.iter().map(|visit| visit.found.count()).sum();
        let reported: u64 = manifest.visits.iter().map(|visit| visit.decided.count()).sum();
        let pending = manifest.unfinished().into_iter().flat_map(|pass| &pass.visits);
        let pending = pending.filter(|id| manifest.visits.iter().all(|one| one.visit != **id));
        let pending = pending.filter_map(|visit| self.visits.closing(*visit));
        Progress {
            stage,
            visits: manifest.visits.len() as u64,
            visits_total: passes as u64,
            alerts: read,
            alerts_total: reported + pending.map(|closing| closing.totals.count()).sum::<u64>(),
            rows: manifest.parts.iter().map(|part| part.rows).sum(),
            bytes: manifest.parts.iter().map(|part| part.bytes).sum(),
            verified_bytes,
            files: manifest.parts.len() as u64,
        }
    }

    fn outcome(&self, ended: Ended, verified: u64) -> Outcome {
        let stage = if ended == Ended::Verified { Stage::Verifying } else { Stage::Exporting };
        Outcome {
            ended,
            visits: self.manifest.visits.clone(),
            open: self.visits.open.clone(),
            lost: self.lost,
            totals: self.progress(stage, verified),
        }
    }
}

/// The schemas of a topic; those of Rubin where packets have frames of their own.
fn schemas(bus: &Bus, topic: &Topic) -> Result<Vec<Schema>, ExportError> {
    let declared = bus.schemas_of(topic.name())?.unwrap_or_default();
    let declared: Vec<_> = declared.into_iter().filter(|id| *id != SchemaId::BYTES).collect();
    if declared.is_empty() {
        let versions = helio_alerts::rubin::Version::ALL;
        return Ok(versions.iter().map(|version| version.schema().clone()).collect());
    }
    let schema = |id: SchemaId| {
        let text = bus.schema_text(id)?.text;
        let wrong = |cause: SchemaError| ExportError::Schema { schema: id.to_string(), cause };
        Schema::parse(&text).map_err(wrong)
    };
    declared.into_iter().map(schema).collect()
}
