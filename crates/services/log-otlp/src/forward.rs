//! Sends on what a reader reads.
//!
//! Constraints. What is not acknowledged is sent again, also after `kill -9`: where the reader
//! stands is written down when, and only when, a batch was answered. One batch at a time is on its
//! way; its records, its bytes and the pause before it is sent again are bounded.
//!
//! Format. The cursor's file has one line, a reader's cursor. It is replaced as a whole, and locked
//! by a file beside it.
//!
//! Operation. [`Forwarder::step`] does one thing and says what: gather, send, wait.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helio_logging::{Cursor, News, Next, ReaderError, Record, Records, Value};
use thiserror::Error;

use crate::export::{ExportError, Exporter, Refused};
use crate::write::to_protobuf;

/// Bytes of a batch, roughly: half of what receivers take, as far as OTLP's specification goes.
const BATCH_BYTES: usize = 2 << 20;
/// The first pause before a batch is sent again, where the receiver names none; each one is half as
/// long again as the one before.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The shortest pause, also where the receiver wants none: it is busy.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest pause, also where the receiver wants a longer one: who has come back is noticed
/// within this time.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// How a forwarder gathers.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// How many records a batch has at most.
    pub batch_records: usize,
    /// How long its first record waits for others.
    pub batch_age: Duration,
}

impl Default for ForwardOptions {
    /// A thousand records or 200 ms: who reads elsewhere is a person.
    fn default() -> Self {
        Self { batch_records: 1_000, batch_age: Duration::from_millis(200) }
    }
}

/// Why forwarding ends. What was not acknowledged is sent by the next one with the cursor's file.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// The cursor's file cannot be had.
    #[error("the cursor's file {file:?}: {source}")]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process forwards with it.
    #[error("the cursor's file {0:?} is in use; end who uses it, or name another file")]
    InUse(PathBuf),
    /// What is in it is no cursor.
    #[error("the cursor's file {file:?} has no cursor in it ({cause}); remove it to begin anew")]
    NoCursor {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The records cannot be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// The receiver refuses whatever comes.
    #[error("{0}; nothing more is sent: see to its address, or to --header for who may ask")]
    Never(String),
}

/// Where a forwarder stands, in a file that one process at a time has.
#[derive(Debug)]
pub struct CursorFile {
    file: PathBuf,
    _lock: File,
}

impl CursorFile {
    /// Takes a file, and reads where the last one stood; none where there is no such file yet.
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

    /// Writes down where it stands.
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

/// What became of the records that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardFigures {
    /// Records that the receiver took.
    pub taken: u64,
    /// Records that it refused for good.
    pub refused: u64,
    /// Requests that were sent again.
    pub again: u64,
}

/// What a step has done.
#[derive(Debug)]
pub enum Step {
    /// Nothing, or not yet enough.
    Waited,
    /// A batch of so many records was answered.
    Sent(usize),
    /// Something is to be told.
    Event(ForwardEvent),
    /// All was sent that was there.
    End,
}

/// What is told.
#[derive(Debug)]
pub enum ForwardEvent {
    /// The reader's news.
    News(Box<News>),
    /// The receiver refused records, or warns of something.
    Refused(Refused),
    /// The receiver took nothing: it is tried again.
    Later {
        /// When.
        after: Duration,
        /// What happened.
        cause: String,
    },
}

/// Sends what a reader reads to a receiver of OTLP.
#[derive(Debug)]
pub struct Forwarder {
    records: Records,
    exporter: Exporter,
    file: CursorFile,
    options: ForwardOptions,
    batch: Vec<Record>,
    bytes: usize,
    /// When the batch's first record came.
    since: Option<Instant>,
    /// How many of the batch's first records were answered, where it is sent in pieces.
    answered: usize,
    /// How many records are sent at once.
    piece: usize,
    /// When to send again, and the pause before that.
    pause: Option<(Instant, Duration)>,
    ended: bool,
    figures: ForwardFigures,
}

impl Forwarder {
    /// A forwarder of a reader that stands where the file says, or where the first one begins; that
    /// is written down.
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

    /// What became of the records so far.
    #[must_use]
    pub fn figures(&self) -> ForwardFigures {
        self.figures
    }

    /// Does one thing: reads until a batch is full, or old enough; or sends it; or waits for the
    /// time to send it again. It takes `patience` at most, or, where it sends, the exporter's
    /// time-out.
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

    /// The pause before the next try: what the receiver wants, or longer each time, a little more
    /// or less, so that many who were sent away do not come back together.
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

/// A number from 0 to 1, by chance: hash maps are seeded with some.
fn chance() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX)
}

/// How much a record has, roughly: what its texts have, and its values.
fn rough_bytes(record: &Record) -> usize {
    // Names of fields, numbers, times.
    const OTHER_BYTES: usize = 256;
    let site = &record.site;
    let texts = [&site.template, &site.file, &site.routine, &record.context, &record.uri];
    let texts: usize = texts.into_iter().map(String::len).sum();
    let text = record.text.as_ref().map_or(texts, |text| texts + text.len());
    let data: usize = record.data.iter().map(|(name, value)| name.len() + value_bytes(value)).sum();
    let arguments: usize = record.arguments.iter().map(value_bytes).sum();
    // Arguments are in the message, too.
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
