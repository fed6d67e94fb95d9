//! The demo's processes and its books while it runs.

use helio_core::qos::Guarantee;

use super::account::{Books, Source};
use super::plan::{Drain, ReaderReport, ReaderTask, Role, WriterOrder, WriterTask, WriterWord};
use super::scene::Scene;
use crate::error::{CliError, CliResult};
use crate::stop::Stop;
use crate::units::human_count;
use crate::worker::Worker;

/// A writer process and its task, so that it can be started again.
struct Writer {
    task: WriterTask,
    process: Option<Worker>,
}

/// The newest acknowledged event of a topic's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) topic: String,
    pub(crate) key: Vec<u8>,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

/// What the burst gave at its writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
}

/// What the late joiner should have got at least, and what it got.
#[derive(Debug, Clone)]
pub(crate) struct LateJoin {
    /// The newest acknowledged event of every key just before it joined.
    pub(crate) expected: Vec<Newest>,
    /// What it got.
    pub(crate) got: ReaderReport,
}

/// Everything that is known at the end.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) books: Books,
    /// By the readers' names.
    pub(crate) readers: Vec<(ReaderTask, ReaderReport)>,
    pub(crate) late: Option<LateJoin>,
    pub(crate) burst: Option<Burst>,
    /// The topic of the burst.
    pub(crate) burst_topic: Option<String>,
    pub(crate) guarantee: Guarantee,
    /// How long the schedule ran.
    pub(crate) seconds: f64,
    /// CPU seconds of all writers that lived to the end.
    pub(crate) writers_cpu_s: f64,
    /// The largest process.
    pub(crate) rss_mb: f64,
}

/// All processes.
pub(crate) struct Cast {
    url: String,
    stop: Stop,
    victim: String,
    event_topics: Vec<String>,
    writers: Vec<Writer>,
    readers: Vec<(ReaderTask, Worker)>,
    books: Books,
    newest: Vec<Newest>,
    late: Option<LateJoin>,
    burst: Option<Burst>,
    begun_ns: u64,
    rested_ns: u64,
}

impl Cast {
    /// Starts writers, then readers; all are ready when this returns.
    pub(crate) fn start(scene: &Scene, url: &str, stop: &Stop) -> CliResult<Self> {
        let mut cast = Self {
            url: url.to_owned(),
            stop: stop.clone(),
            victim: scene.victim.clone(),
            event_topics: scene.event_topics(),
            writers: Vec::new(),
            readers: Vec::new(),
            books: Books::default(),
            newest: Vec::new(),
            late: None,
            burst: None,
            begun_ns: 0,
            rested_ns: 0,
        };
        for (producer, streams) in &scene.writers {
            let (producer, streams, url) = (producer.clone(), streams.clone(), url.to_owned());
            let task = WriterTask { url, producer, streams };
            let process = Some(cast.writer(&task)?);
            cast.writers.push(Writer { task, process });
        }
        for (reader, topics) in &scene.readers {
            let (task, process) = cast.reader(reader, topics, Role::Follows)?;
            cast.readers.push((task, process));
        }
        Ok(cast)
    }

    fn writer(&self, task: &WriterTask) -> CliResult<Worker> {
        let mut process = Worker::start("demo-writer", &task.producer, task, &self.stop)?;
        match process.reply()? {
            WriterWord::Ready => Ok(process),
            word => Err(CliError::Failure(format!("{} said {word:?} first", task.producer))),
        }
    }

    fn reader(&self, name: &str, topics: &[String], role: Role) -> CliResult<(ReaderTask, Worker)> {
        let (url, name, topics) = (self.url.clone(), name.to_owned(), topics.to_vec());
        let task = ReaderTask { url, name, topics, role };
        let mut process = Worker::start("demo-reader", &task.name, &task, &self.stop)?;
        process.reply::<()>()?;
        Ok((task, process))
    }

    fn order_all(&mut self, order: WriterOrder) -> CliResult {
        let mut alive = self.writers.iter_mut().filter_map(|writer| writer.process.as_mut());
        alive.try_for_each(|process| process.order(&order))
    }

    /// The schedule begins.
    pub(crate) fn begin(&mut self, start_ns: u64) -> CliResult {
        self.begun_ns = start_ns;
        self.order_all(WriterOrder::Begin { start_ns })
    }

    /// Takes down what the writers have said by now.
    pub(crate) fn collect(&mut self) -> CliResult {
        let mut words = Vec::new();
        for writer in &mut self.writers {
            let Some(process) = &mut writer.process else { continue };
            while let Some(word) = process.try_reply::<WriterWord>()? {
                words.push(word);
            }
        }
        words.into_iter().for_each(|word| self.note(word));
        Ok(())
    }

    fn note(&mut self, word: WriterWord) {
        match word {
            WriterWord::Receipt(source, acknowledged, key) => {
                self.books.note(&source, acknowledged);
                if self.event_topics.contains(&source.topic) {
                    let Source { topic, incarnation, .. } = source;
                    let sequence = acknowledged.last;
                    self.event(Newest { topic, key, incarnation, sequence });
                }
            }
            WriterWord::Burst { begin_ns, end_ns, samples, bytes } => {
                self.burst = Some(Burst { begin_ns, end_ns, samples, bytes });
            }
            WriterWord::Ready | WriterWord::End { .. } => {}
        }
    }

    fn event(&mut self, event: Newest) {
        let same = |known: &&mut Newest| known.topic == event.topic && known.key == event.key;
        match self.newest.iter_mut().find(same) {
            Some(known) => *known = event,
            None => self.newest.push(event),
        }
    }

    /// SIGKILL for the victim; what it had still said is taken down.
    pub(crate) fn kill_one(&mut self) -> CliResult {
        let victim = self.writers.iter_mut().find(|w| w.task.producer == self.victim);
        let Some(process) = victim.and_then(|writer| writer.process.take()) else { return Ok(()) };
        for line in process.kill()? {
            let word = serde_json::from_str(&line);
            self.note(word.map_err(|e| CliError::Failure(format!("{}: {e}", self.victim)))?);
        }
        Ok(())
    }

    /// Starts the victim again; it begins its schedule at once.
    pub(crate) fn restart_it(&mut self) -> CliResult {
        let Some(at) = self.writers.iter().position(|w| w.process.is_none()) else { return Ok(()) };
        let mut process = self.writer(&self.writers[at].task)?;
        let start_ns = crate::clock::monotonic_ns() + super::LEAD_NS / 10;
        process.order(&WriterOrder::Begin { start_ns })?;
        self.writers[at].process = Some(process);
        Ok(())
    }

    /// Starts the late joiner and waits for what it got.
    pub(crate) fn join_late(&mut self) -> CliResult {
        let expected = self.newest.clone();
        let topics = self.event_topics.clone();
        let (_, mut process) = self.reader("late joiner", &topics, Role::JoinsLate)?;
        let got = process.reply()?;
        process.finish()?;
        self.late = Some(LateJoin { expected, got });
        Ok(())
    }

    /// The schedule ends.
    pub(crate) fn rest(&mut self) -> CliResult {
        self.rested_ns = crate::clock::monotonic_ns();
        self.order_all(WriterOrder::Rest)
    }

    /// The first writer publishes as fast as it can.
    pub(crate) fn burst(&mut self, samples: u64) -> CliResult {
        match self.writers.first_mut().and_then(|writer| writer.process.as_mut()) {
            Some(process) => process.order(&WriterOrder::Burst { samples }),
            None => Ok(()),
        }
    }

    /// Whether the burst's writer has all its receipts.
    pub(crate) fn burst_is_over(&self) -> bool {
        self.burst.is_some()
    }

    /// A line of progress.
    pub(crate) fn status(&self, elapsed_ns: u64, total_ns: u64) -> String {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        let alive = self.writers.iter().filter(|w| w.process.is_some()).count();
        format!(
            "{:.0} of {:.0} s: {} samples published, {alive} of {} writers alive",
            seconds(elapsed_ns),
            seconds(total_ns),
            human_count(self.books.samples()),
            self.writers.len()
        )
    }

    /// Ends the writers, then the readers as soon as they have everything.
    pub(crate) fn end(mut self) -> CliResult<Play> {
        let first = self.writers.first().and_then(|writer| writer.task.streams.first());
        let burst_topic = first.map(|stream| stream.topic.clone());
        let (mut guarantee, mut writers_cpu_s, mut largest) = (Guarantee::Durable, 0.0, 0f64);
        for writer in std::mem::take(&mut self.writers) {
            let Some(mut process) = writer.process else { continue };
            process.order(&WriterOrder::End)?;
            loop {
                match process.reply()? {
                    WriterWord::End { guarantee: its, cpu_s, rss_mb } => {
                        guarantee = guarantee.min(its);
                        writers_cpu_s += cpu_s;
                        largest = largest.max(rss_mb);
                        break;
                    }
                    word => self.note(word),
                }
            }
            process.finish()?;
        }
        let mut readers = Vec::with_capacity(self.readers.len());
        for (_, process) in &mut self.readers {
            process.order(&Drain(self.books.clone()))?;
        }
        for (task, mut process) in std::mem::take(&mut self.readers) {
            let report: ReaderReport = process.reply()?;
            largest = largest.max(report.rss_mb);
            process.finish()?;
            readers.push((task, report));
        }
        Ok(Play {
            books: self.books,
            readers,
            late: self.late,
            burst: self.burst,
            burst_topic,
            guarantee,
            seconds: self.rested_ns.saturating_sub(self.begun_ns) as f64 * 1e-9,
            writers_cpu_s,
            rss_mb: largest,
        })
    }
}
