//! `helio record`: writes a topic to Avro container files.

use std::path::{Path, PathBuf};
use std::time::Instant;

use helio_bus::{Event, Sample, SchemaId, Subscribe, Subscription, Topic};
use helio_core::codec::wire::put_bytes;
use helio_core::schema::Schema;
use serde_json::json;

use crate::args::RecordArgs;
use crate::envelope;
use crate::error::{CliError, CliResult};
use crate::open::{existing, look, name};
use crate::out::{Out, Progress};
use crate::recording::Recording;
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units::{human_bytes, human_count};

/// Runs `helio record`.
pub(crate) fn run(args: &RecordArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let name = name(&args.topic)?;
    let topic = existing(&bus, &name)?.ok_or_else(|| {
        CliError::NotFound(format!("no topic {name} on {}; start its publisher first", bus.url()))
    })?;
    let mut recorder = Recorder::new(args, &topic)?;
    // The bus converts samples of older schemas to the topic's newest one.
    let mut samples = topic.subscribe(Subscribe::from(args.from))?;
    let ended = recorder.pump(&mut samples, stop);
    // The file is completed also after an error.
    recorder.finish()?;
    recorder.told()?;
    if ended? == End::Asked && args.end.is_given() {
        return Err(CliError::Interrupted);
    }
    match samples.stats().lost + samples.stats().undecodable {
        0 if recorder.nulls > 0 => Err(CliError::Lost(format!(
            "{} nulls are not in the file: its schema has no place for a sample without a value",
            recorder.nulls
        ))),
        0 => Ok(()),
        lost => Err(CliError::Lost(format!("{lost} samples are lost; they are not in the file"))),
    }
}

#[derive(PartialEq, Eq)]
enum End {
    Done,
    Asked,
}

struct Recorder<'a> {
    args: &'a RecordArgs,
    schema: Schema,
    id: SchemaId,
    recording: Option<Recording>,
    files: Vec<PathBuf>,
    samples: u64,
    /// Nulls that have no place in the file.
    nulls: u64,
    bytes: u64,
    progress: Progress,
    datum: Vec<u8>,
}

impl<'a> Recorder<'a> {
    fn new(args: &'a RecordArgs, topic: &Topic) -> CliResult<Self> {
        let (id, schema) = match topic.schema() {
            Some(text) => (text.id, Schema::parse(&text.text)),
            None => (SchemaId::BYTES, Schema::parse(r#""bytes""#)),
        };
        let mut schema = schema.map_err(|e| CliError::Failure(e.to_string()))?;
        if args.envelope {
            schema = envelope::schema(&schema)?;
        }
        let mut recorder = Self {
            args,
            schema,
            id,
            recording: None,
            files: Vec::new(),
            samples: 0,
            nulls: 0,
            bytes: 0,
            progress: Progress::new(),
            datum: Vec::new(),
        };
        recorder.open()?;
        Ok(recorder)
    }

    /// Opens the next file: the named one, or with --rotate NAME.1.avro and so on.
    fn open(&mut self) -> CliResult {
        let number = self.files.len() + 1;
        let path = match self.args.rotate {
            None => self.args.file.clone(),
            Some(_) => numbered(&self.args.file, number),
        };
        let codec = self.args.codec.into();
        self.recording = Some(Recording::create(&path, &self.schema, codec)?);
        self.files.push(path);
        Ok(())
    }

    fn pump(&mut self, samples: &mut Subscription, stop: &Stop) -> CliResult<End> {
        let until = self.args.end.until();
        while self.args.end.wants_more(self.samples) {
            if stop.asked() {
                return Ok(End::Asked);
            }
            let left = until.map_or(STOP_POLL_INTERVAL, |until| {
                until.saturating_duration_since(Instant::now())
            });
            match samples.next_timeout(left.min(STOP_POLL_INTERVAL))? {
                Some(Event::Sample(sample)) => self.sample(&sample)?,
                Some(_) => {}
                None if left.is_zero() => return Ok(End::Done),
                None => {}
            }
        }
        Ok(End::Done)
    }

    fn sample(&mut self, sample: &Sample) -> CliResult {
        if sample.header.schema != self.id {
            return Err(CliError::Refused(format!(
                "a sample has schema {}, the file has {}; record it in a separate run",
                sample.header.schema, self.id
            )));
        }
        // An envelope of bytes has its mark among the headers.
        if sample.is_null() && !(self.args.envelope && self.id == SchemaId::BYTES) {
            self.nulls += 1;
            return Ok(());
        }
        self.datum.clear();
        if self.args.envelope {
            envelope::put(&mut self.datum, sample);
        }
        if self.id == SchemaId::BYTES {
            put_bytes(&mut self.datum, &sample.payload);
        } else {
            self.datum.extend_from_slice(&sample.payload);
        }
        let Some(recording) = &mut self.recording else { return Ok(()) };
        recording.append(&self.datum)?;
        self.samples += 1;
        let full = self.args.rotate.is_some_and(|bytes| recording.bytes() >= bytes as u64);
        let (samples, bytes) = (self.samples, self.bytes + recording.bytes());
        self.progress
            .show(|| format!("{} samples, {}", human_count(samples), human_bytes(bytes as f64)));
        if full {
            self.finish()?;
            self.open()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> CliResult {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        // A rotation just before the end leaves an empty file.
        if recording.datums() == 0 && self.files.len() > 1 {
            self.files.pop();
            return Ok(());
        }
        self.bytes += recording.finish()?;
        Ok(())
    }

    fn told(&self) -> CliResult {
        let mut out = Out::new();
        if self.args.output.json {
            out.json(&json!({
                "topic": self.args.topic,
                "samples": self.samples,
                "bytes": self.bytes,
                "files": self.files,
            }))?;
        } else {
            let names: Vec<String> = self.files.iter().map(|p| p.display().to_string()).collect();
            out.line(&format!("{} samples in {}", human_count(self.samples), names.join(", ")))?;
        }
        out.flush()
    }
}

/// `a.avro` and 2 give `a.2.avro`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let extension = path.extension().unwrap_or("avro".as_ref()).to_string_lossy().into_owned();
    path.with_extension(format!("{number}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_are_numbered() {
        assert_eq!(numbered(Path::new("x/a.avro"), 2), Path::new("x/a.2.avro"));
        assert_eq!(numbered(Path::new("a"), 1), Path::new("a.1.avro"));
    }
}
