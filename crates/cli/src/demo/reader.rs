//! A reader process of the demo: reads its topics, counts the samples and reports at the end.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use helio_bus::{Bus, Event, Member, Sample, Start, Subscribe, Tai, TopicName, WaitSet};

use super::accounting::{AckedSequences, CountsBySource, Numbering, Source, SourceCounts};
use super::content::{Contents, OfCommand};
use super::logging;
use super::messages::{Newest, ReaderMessage, ReaderOrder, ReaderReport, ReaderTask, Role};
use crate::bench::report::histogram;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::CliResult;
use crate::open::{existing, name};
use crate::worker::{orders, say};

/// How often orders are polled.
const ORDER_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often the recorder looks for new topics.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for missing samples without progress; a slow machine is no loss.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Samples that are read between two polls for orders.
const SAMPLES_PER_POLL: u64 = 10_000;

/// Runs the process.
pub(crate) fn run(task: &ReaderTask) -> CliResult {
    let bus = Bus::connect(&task.url)?;
    let begun_ns = monotonic_ns();
    let mut reader = Reader::open(&bus, &task.role)?;
    match &task.role {
        Role::Joins(expected) => reader.join(expected)?,
        Role::Records | Role::Follows(_) => {
            say(&ReaderMessage::Ready)?;
            reader.follow(&orders())?;
        }
    }
    say(&ReaderMessage::Report(Box::new(reader.report(begun_ns))))
}

struct Reader {
    bus: Bus,
    /// Whether new topics are read too.
    records: bool,
    set: WaitSet,
    /// Each with the time when it was opened.
    topics: HashMap<Member, (TopicName, Tai)>,
    opened: HashSet<TopicName>,
    looked_up: Instant,
    contents: Contents,
    seen: HashMap<(Member, String, u64), SourceCounts>,
    latencies: HashMap<Member, Histogram<u64>>,
    numbering: HashMap<(Member, String), Numbering>,
    newest: HashMap<(Member, Vec<u8>), (u64, u64)>,
    finished_ns: u64,
    report: ReaderReport,
}

impl Reader {
    fn open(bus: &Bus, role: &Role) -> CliResult<Self> {
        let mut reader = Self {
            bus: bus.clone(),
            records: *role == Role::Records,
            set: bus.wait_set()?,
            topics: HashMap::new(),
            opened: HashSet::new(),
            looked_up: Instant::now(),
            contents: Contents::new(bus),
            seen: HashMap::new(),
            latencies: HashMap::new(),
            numbering: HashMap::new(),
            newest: HashMap::new(),
            finished_ns: 0,
            report: ReaderReport::default(),
        };
        match role {
            // Skip samples of an earlier run.
            Role::Records => reader.look_up(Start::Latest)?,
            Role::Follows(topics) => {
                topics.iter().try_for_each(|topic| reader.add(&name(topic)?, Start::Earliest))?;
            }
            Role::Joins(expected) => {
                for newest in expected {
                    reader.add(&name(&newest.topic)?, Start::Last(1))?;
                }
            }
        }
        Ok(reader)
    }

    fn add(&mut self, topic: &TopicName, start: Start) -> CliResult {
        if self.opened.contains(topic) {
            return Ok(());
        }
        let Some(open) = existing(&self.bus, topic)? else { return Ok(()) };
        let member = self.set.add(open.subscribe(Subscribe::from(start).as_written())?);
        self.topics.insert(member, (topic.clone(), self.bus.clock().now()));
        self.opened.insert(topic.clone());
        Ok(())
    }

    fn look_up(&mut self, start: Start) -> CliResult {
        self.looked_up = Instant::now();
        // The log has a reader of its own.
        let topics = self.bus.topics()?;
        let mut topics = topics.iter().filter(|topic| !logging::is_log(topic));
        topics.try_for_each(|topic| self.add(topic, start))
    }

    /// Reads until the order to drain, then until everything is received.
    fn follow(&mut self, orders: &Receiver<ReaderOrder>) -> CliResult {
        loop {
            self.read(ORDER_POLL_INTERVAL)?;
            match orders.try_recv() {
                Ok(ReaderOrder::TellNewest) => say(&ReaderMessage::Newest(self.newest_events()))?,
                Ok(ReaderOrder::Drain(books)) => return self.drain(&books),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn drain(&mut self, books: &AckedSequences) -> CliResult {
        let mut progress = Instant::now();
        self.looked_up = Instant::now() - DISCOVERY_INTERVAL;
        while progress.elapsed() < PROGRESS_TIMEOUT {
            if self.read(ORDER_POLL_INTERVAL)? > 0 {
                progress = Instant::now();
            } else if self.lost_and_ahead().1 == 0 {
                let topics: Vec<String> = self.opened.iter().map(ToString::to_string).collect();
                if books.all_in(&self.seen_by_source(), &topics) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads until the late joiner has all newest events.
    fn join(&mut self, expected: &[Newest]) -> CliResult {
        let until = Instant::now() + PROGRESS_TIMEOUT;
        while missing(&self.newest_events(), expected) > 0 && Instant::now() < until {
            self.read(ORDER_POLL_INTERVAL)?;
        }
        self.finished_ns = monotonic_ns();
        Ok(())
    }

    /// Waits for samples and reads all; returns their number.
    fn read(&mut self, wait: Duration) -> CliResult<u64> {
        if self.records && self.looked_up.elapsed() >= DISCOVERY_INTERVAL {
            self.look_up(Start::Earliest)?;
        }
        let mut taken = 0;
        let mut next = self.set.next_timeout(wait)?;
        while let Some((member, event)) = next {
            if let Event::Sample(sample) = event {
                self.sample(member, &sample)?;
                taken += 1;
            }
            if taken >= SAMPLES_PER_POLL {
                break;
            }
            next = self.set.try_next()?;
        }
        Ok(taken)
    }

    fn sample(&mut self, member: Member, sample: &Sample) -> CliResult {
        let (now_ns, now) = (monotonic_ns(), self.bus.clock().now());
        let (producer, sequence) = (&sample.header.producer, sample.header.sequence);
        let source = (member, producer.name.to_string(), producer.incarnation);
        self.seen.entry(source).or_default().note(sequence, sample.payload.len());
        // A sample that does not match its schema is an error.
        let content = self.contents.of(sample)?;
        if let Some(number) = content.number {
            let key = (member, producer.name.to_string());
            self.numbering.entry(key).or_default().note(producer.incarnation, number);
        }
        if sample.topic.as_str().contains("/event/") {
            let key = (member, sample.key.to_vec());
            self.newest.insert(key, (producer.incarnation, sequence));
        }
        let commands = &mut self.report.commands;
        match content.command {
            Some(OfCommand::Sent(id)) => commands.sent.push(id),
            Some(OfCommand::Acknowledged(id, code)) => commands.acks.push((id, code)),
            Some(OfCommand::Audited(id, code)) => commands.audits.push((id, code)),
            None => {}
        }
        let opened = self.topics.get(&member).map(|(_, opened)| *opened);
        match content.since {
            // Samples from before the reader have no latency.
            Some(since) if Some(since) < opened => {}
            Some(since) => {
                let took_ns = now.nanos().saturating_sub(since.nanos()).max(1) as u64;
                let latencies = self.latencies.entry(member).or_insert_with(histogram);
                latencies.saturating_record(took_ns);
            }
            None => {
                let (count, last_ns) = self.report.burst.get_or_insert((0, 0));
                (*count, *last_ns) = (*count + 1, now_ns);
            }
        }
        Ok(())
    }

    fn newest_events(&self) -> Vec<Newest> {
        let newest =
            |((member, key), (incarnation, sequence)): (&(Member, Vec<u8>), &(u64, u64))| {
                let (key, incarnation, sequence) = (key.clone(), *incarnation, *sequence);
                Newest { topic: self.topic(*member), key, incarnation, sequence }
            };
        self.newest.iter().map(newest).collect()
    }

    fn topic(&self, member: Member) -> String {
        self.topics.get(&member).map(|(name, _)| name.to_string()).unwrap_or_default()
    }

    fn seen_by_source(&self) -> CountsBySource {
        let entry =
            |((member, producer, incarnation), seen): (&(Member, String, u64), &SourceCounts)| {
                let (producer, incarnation) = (producer.clone(), *incarnation);
                (Source { topic: self.topic(*member), producer, incarnation }, *seen)
            };
        self.seen.iter().map(entry).collect()
    }

    /// Samples that the bus reported as lost, and unread ones.
    fn lost_and_ahead(&mut self) -> (u64, u64) {
        let (mut lost, mut ahead) = (0, 0);
        for member in self.topics.keys() {
            if let Some(samples) = self.set.get_mut(*member) {
                lost += samples.stats().lost;
                ahead += samples.stats().lag;
            }
        }
        (lost, ahead)
    }

    fn report(mut self, begun_ns: u64) -> ReaderReport {
        let counts = |histogram: &Histogram<u64>| {
            let values = histogram.iter_recorded();
            values.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
        };
        let (told_lost, lag) = self.lost_and_ahead();
        let numbering = self.numbering.iter().map(|((member, producer), numbering)| {
            (self.topic(*member), producer.clone(), numbering.clone())
        });
        let numbering = numbering.collect();
        let latencies = self.latencies.iter();
        let latencies = latencies.map(|(member, h)| (self.topic(*member), counts(h))).collect();
        ReaderReport {
            seen: self.seen_by_source(),
            newest: self.newest_events(),
            told_lost,
            lag,
            latencies,
            numbering,
            joined_ns: self.finished_ns.saturating_sub(begun_ns),
            cpu_s: cpu_s(),
            rss_mb: peak_rss_mb(),
            ..self.report
        }
    }
}

/// The number of keys without their newest sample or a newer one.
pub(crate) fn missing(newest: &[Newest], expected: &[Newest]) -> usize {
    let has = |event: &&Newest| {
        newest.iter().any(|one| {
            let newer = (one.incarnation, one.sequence) >= (event.incarnation, event.sequence);
            one.topic == event.topic && one.key == event.key && newer
        })
    };
    expected.iter().filter(|event| !has(event)).count()
}
