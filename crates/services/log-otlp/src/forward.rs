//! Forwards the records of a reader.
//!
//! Constraints. Unacknowledged records are sent again, also after `kill -9`: the reader's position
//! is stored if, and only if, a batch was answered. One batch at a time is in flight. Its records,
//! its bytes and the retry delay are bounded.
//!
//! Format. The cursor's file has one line, a reader's cursor. It is replaced atomically, and locked
//! by a file beside it.
//!
//! Operation. [`Forwarder::step`] performs one action and returns it: gather, send or wait.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helio_logging::{Cursor, News, Next, ReaderError, Record, Records, Value};
use thiserror::Error;

use crate::export::{ExportError, Exporter, Refused};
use crate::write::to_protobuf;

/// The approximate bytes of a batch: half of the limit that OTLP's specification recommends.
const BATCH_BYTES: usize = 2 << 20;
/// The first retry delay, if the receiver gives none. Each further delay is 1.5 times as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The shortest retry delay, even if the receiver gives a shorter one.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest retry delay, even if the receiver gives a longer one: a recovered receiver is
/// detected within this time.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The options of a forwarder.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// The most records of a batch.
    pub batch_records: usize,
    /// The time that a batch's first record waits for others.
    pub batch_age: Duration,
}

impl Default for ForwardOptions {
    /// A thousand records or 200 ms, which suits human readers.
    fn default() -> Self {
        Self { batch_records: 1_000, batch_age: Duration::from_millis(200) }
    }
}

/// Why forwarding ends. The next forwarder with the cursor's file sends unacknowledged records.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// The cursor's file cannot be read or written.
    #[error("the cursor's file {file:?}: {source}")]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process uses the cursor's file.
    #[error("the cursor's file {0:?} is in use by another process; end it, or name another file")]
    InUse(PathBuf),
    /// The file has no valid cursor.
    #[error("the cursor's file {file:?} has no valid cursor ({cause}); remove it to start again")]
    NoCursor {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The records cannot be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// The receiver refuses every request.
    #[error("{0}; stopped sending: check the address, and --header for authorization")]
    Never(String),
}

/// A forwarder's position, in a file that one process at a time owns.
#[derive(Debug)]
pub struct CursorFile {
    file: PathBuf,
    _lock: File,
}

impl CursorFile {
    /// Opens a file and reads the last position; none if the file does not exist.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn open(file: &Path) -> Result<(Self, Option<Cursor>), ForwardError> {
        let failed = |source| ForwardError::File { file: file.to_owned(), source };
        let lock = File::create(beside(file, ".lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ForwardError::InUse(file.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let cursor = match std::fs::read_to_string(file) {
            Ok(text) => {
                let wrong = |cause: String| ForwardError::NoCursor { file: file.to_owned(), cause };
                Some(text.trim().parse::<Cursor>().map_err(|error| wrong(error.to_string()))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed(source)),
        };
        Ok((Self { file: file.to_owned(), _lock: lock }, cursor))
    }

    /// Stores the position.
    fn keep(&self, cursor: &Cursor) -> Result<(), ForwardError> {
        let new = beside(&self.file, ".new");
        let written = File::create(&new).and_then(|mut file| {
            writeln!(file, "{cursor}")?;
            file.sync_data()
        });
        let kept = written.and_then(|()| std::fs::rename(&new, &self.file));
        kept.map_err(|source| ForwardError::File { file: self.file.clone(), source })
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The counts of a forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardFigures {
    /// Records that the receiver accepted.
    pub taken: u64,
    /// Records that it finally refused.
    pub refused: u64,
    /// Repeated requests.
    pub again: u64,
}

/// The result of a step.
#[derive(Debug)]
pub enum Step {
    /// The batch is not complete yet.
    Waited,
    /// A batch of this many records was answered.
    Sent(usize),
    /// A notice.
    Event(ForwardEvent),
    /// All records were sent.
    End,
}

/// A forwarder's notices.
#[derive(Debug)]
pub enum ForwardEvent {
    /// A notice of the reader.
    News(Box<News>),
    /// The receiver refused records, or sent a warning.
    Refused(Refused),
    /// The receiver accepted nothing; the request is retried.
    Later {
        /// The delay.
        after: Duration,
        /// The cause.
        cause: String,
    },
}

/// Sends the records of a reader to a receiver of OTLP.
#[derive(Debug)]
pub struct Forwarder {
    records: Records,
    exporter: Exporter,
    file: CursorFile,
    options: ForwardOptions,
    batch: Vec<Record>,
    bytes: usize,
    /// The arrival of the batch's first record.
    since: Option<Instant>,
    /// The number of the batch's first records that were answered, if it is sent in pieces.
    answered: usize,
    /// The number of records per request.
    piece: usize,
    /// The time of the next attempt, and the delay before it.
    pause: Option<(Instant, Duration)>,
    ended: bool,
    figures: ForwardFigures,
}

impl Forwarder {
    /// Creates a forwarder for a reader at the file's position, or at any start. The position is
    /// stored.
    ///
    /// # Errors
    /// [`ForwardError::File`].
    pub fn new(
        records: Records,
        exporter: Exporter,
        file: CursorFile,
        options: ForwardOptions,
    ) -> Result<Self, ForwardError> {
        file.keep(&records.cursor())?;
        Ok(Self {
            records,
            exporter,
            file,
            piece: options.batch_records.max(1),
            options,
            batch: Vec::new(),
            bytes: 0,
            since: None,
            answered: 0,
            pause: None,
            ended: false,
            figures: ForwardFigures::default(),
        })
    }

    /// The counts so far.
    #[must_use]
    pub fn figures(&self) -> ForwardFigures {
        self.figures
    }

    /// Performs one action: gathers a batch until it is full or old enough, sends it, or waits for
    /// the next attempt. It takes at most `patience`, or the exporter's timeout if it sends.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn step(&mut self, patience: Duration) -> Result<Step, ForwardError> {
        if let Some((when, _)) = self.pause {
            let left = when.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                std::thread::sleep(left.min(patience));
                return Ok(Step::Waited);
            }
            return self.send();
        }
        if self.is_due() {
            return self.send();
        }
        if self.ended {
            return Ok(Step::End);
        }
        self.gather(patience)
    }

    fn is_due(&self) -> bool {
        let full =
            self.batch.len() >= self.options.batch_records.max(1) || self.bytes >= BATCH_BYTES;
        let old = self.since.is_some_and(|since| since.elapsed() >= self.options.batch_age);
        !self.batch.is_empty() && (full || old || self.ended)
    }

    fn gather(&mut self, patience: Duration) -> Result<Step, ForwardError> {
        let until = Instant::now() + patience;
        while !self.is_due() {
            let now = Instant::now();
            let mut left = until.saturating_duration_since(now);
            if let Some(since) = self.since {
                left = left.min((since + self.options.batch_age).saturating_duration_since(now));
            }
            match self.records.next(left)? {
                Next::Record(record, _) => {
                    self.bytes += rough_bytes(&record);
                    self.batch.push(*record);
                    self.since.get_or_insert(now);
                }
                Next::News(news) => return Ok(Step::Event(ForwardEvent::News(Box::new(news)))),
                Next::TimeOver => break,
                Next::End => {
                    self.ended = true;
                    break;
                }
            }
        }
        Ok(Step::Waited)
    }

    fn send(&mut self) -> Result<Step, ForwardError> {
        let end = self.batch.len().min(self.answered + self.piece);
        let count = end - self.answered;
        let request = to_protobuf(&self.batch[self.answered..end]);
        if self.pause.is_some() {
            self.figures.again += 1;
        }
        let refused = match self.exporter.export(request) {
            Ok(refused) => refused,
            Err(ExportError::Later { after, cause }) => {
                let after = self.pause_for(after);
                return Ok(Step::Event(ForwardEvent::Later { after, cause }));
            }
            Err(ExportError::TooLarge(_)) if count > 1 => {
                (self.piece, self.pause) = (count.div_ceil(2), None);
                return Ok(Step::Waited);
            }
            Err(ExportError::TooLarge(reason) | ExportError::Refused(reason)) => {
                Refused { records: count as u64, reason }
            }
            Err(ExportError::Never(cause)) => return Err(ForwardError::Never(cause)),
        };
        self.pause = None;
        let lost = refused.records.min(count as u64);
        self.figures.refused += lost;
        self.figures.taken += count as u64 - lost;
        self.answered = end;
        if end == self.batch.len() {
            self.batch.clear();
            (self.bytes, self.since, self.answered) = (0, None, 0);
            self.piece = self.options.batch_records.max(1);
            self.file.keep(&self.records.cursor())?;
        }
        let told = lost > 0 || !refused.reason.is_empty();
        Ok(if told { Step::Event(ForwardEvent::Refused(refused)) } else { Step::Sent(count) })
    }

    /// The delay before the next attempt: the receiver's, or an increasing one with jitter, so that
    /// many clients do not retry together.
    fn pause_for(&mut self, wanted: Option<Duration>) -> Duration {
        let before = self.pause.map(|(_, pause)| pause);
        let growing =
            before.map_or(FIRST_RETRY_DELAY, |pause| pause.max(FIRST_RETRY_DELAY).mul_f64(1.5));
        let pause = wanted.unwrap_or(growing).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        let jitter = if wanted.is_some() { 1.0 } else { 0.8 + 0.4 * chance() };
        let after = pause.mul_f64(jitter);
        self.pause = Some((Instant::now() + after, pause));
        after
    }
}

/// A random number from 0 to 1, from the seed of hash maps.
fn chance() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX)
}

/// The approximate size of a record: its texts and values.
fn rough_bytes(record: &Record) -> usize {
    // Names of fields, numbers, times.
    const OTHER_BYTES: usize = 256;
    let site = &record.site;
    let texts = [&site.template, &site.file, &site.routine, &record.context, &record.uri];
    let texts: usize = texts.into_iter().map(String::len).sum();
    let text = record.text.as_ref().map_or(texts, |text| texts + text.len());
    let data: usize = record.data.iter().map(|(name, value)| name.len() + value_bytes(value)).sum();
    let arguments: usize = record.arguments.iter().map(value_bytes).sum();
    // The message contains the arguments, too.
    OTHER_BYTES + text + data + 2 * arguments
}

fn value_bytes(value: &Value) -> usize {
    const VALUE_BYTES: usize = 8;
    VALUE_BYTES
        + match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(values) => values.iter().map(value_bytes).sum(),
            Value::Map(pairs) => {
                pairs.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Double(_) => 0,
        }
}
