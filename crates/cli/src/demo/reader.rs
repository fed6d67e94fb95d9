//! A reader process of the demo: follows its topics, keeps its own books, and says at the end what
//! it has seen.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use helio_bus::{Bus, Event, Member, Origin, Sample, SchemaId, Start, Subscribe, WaitSet};

use super::account::{Seen, SeenBySource, Source, complete};
use super::plan::{Drain, Mark, ReaderReport, ReaderTask, Role};
use crate::bench::report::histogram;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::open::{existing, name};
use crate::value::Values;
use crate::worker::{orders, say};

/// Orders are looked for at least this often.
const LOOK: Duration = Duration::from_millis(20);
/// The longest that a reader waits without progress for what it should still get.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a late joiner waits for the history of a topic.
const HISTORY: Duration = Duration::from_millis(500);

/// Runs the process.
pub(crate) fn run(task: &ReaderTask) -> CliResult {
    let bus = Bus::connect(&task.url)?;
    let mut reader = Reader::open(&bus, task)?;
    say(&())?;
    match task.role {
        Role::Follows => reader.follow(&orders())?,
        Role::JoinsLate => reader.history()?,
    }
    say(&reader.report())
}

struct Reader {
    set: WaitSet,
    members: Vec<Member>,
    topics: Vec<String>,
    values: Values,
    seen: HashMap<(Member, String, u64), Seen>,
    latencies: HashMap<Member, Histogram<u64>>,
    burst: Option<(u64, u64)>,
    newest: Vec<(Source, Vec<u8>, u64)>,
}

impl Reader {
    fn open(bus: &Bus, task: &ReaderTask) -> CliResult<Self> {
        let mut set = bus.wait_set()?;
        let start = match task.role {
            Role::Follows => Start::Earliest,
            Role::JoinsLate => Start::Last(1),
        };
        let mut members = Vec::with_capacity(task.topics.len());
        for topic in &task.topics {
            let topic = existing(bus, &name(topic)?)?.ok_or_else(|| {
                CliError::NotFound(format!("there is no topic {topic}; its writer has not started"))
            })?;
            members.push(set.add(topic.subscribe(Subscribe::from(start).as_written())?));
        }
        Ok(Self {
            set,
            members,
            topics: task.topics.clone(),
            values: Values::new(bus),
            seen: HashMap::new(),
            latencies: HashMap::new(),
            burst: None,
            newest: Vec::new(),
        })
    }

    /// Reads on until told what there is to have, and then until it has that.
    fn follow(&mut self, orders: &Receiver<Drain>) -> CliResult {
        loop {
            self.read(LOOK)?;
            match orders.try_recv() {
                Ok(drain) => return self.drain(&drain),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn drain(&mut self, drain: &Drain) -> CliResult {
        let mut progress = Instant::now();
        while progress.elapsed() < PATIENCE {
            if complete(&drain.0, &self.seen_by_source(), &self.topics) {
                return Ok(());
            }
            if self.read(LOOK)? > 0 {
                progress = Instant::now();
            }
        }
        Ok(())
    }

    /// Takes what a late joiner gets at once.
    fn history(&mut self) -> CliResult {
        let until = Instant::now() + HISTORY;
        while let Some((member, event)) =
            self.set.next_timeout(until.saturating_duration_since(Instant::now()))?
        {
            let Event::Sample(sample) = event else { continue };
            if sample.origin != Origin::History {
                continue;
            }
            self.check(&sample)?;
            let key = sample.key.to_vec();
            let source = self.source(member, &sample.header.producer);
            self.newest.push((source, key, sample.header.sequence));
        }
        Ok(())
    }

    /// Waits for something and takes all there is; gives the number of samples.
    fn read(&mut self, wait: Duration) -> CliResult<u64> {
        let mut taken = 0;
        let mut next = self.set.next_timeout(wait)?;
        while let Some((member, event)) = next {
            if let Event::Sample(sample) = event {
                self.sample(member, &sample)?;
                taken += 1;
            }
            if taken >= 10_000 {
                break;
            }
            next = self.set.try_next()?;
        }
        Ok(taken)
    }

    fn sample(&mut self, member: Member, sample: &Sample) -> CliResult {
        let now_ns = monotonic_ns();
        self.check(sample)?;
        let producer = &sample.header.producer;
        let key = (member, producer.name.to_string(), producer.incarnation);
        self.seen.entry(key).or_default().note(sample.header.sequence);
        match Mark::of(sample.header.trace) {
            Some(Mark::Scheduled(due_ns)) => {
                let latencies = self.latencies.entry(member).or_insert_with(histogram);
                latencies.saturating_record(now_ns.saturating_sub(due_ns).max(1));
            }
            Some(Mark::Burst) => {
                let (count, last_ns) = self.burst.get_or_insert((0, 0));
                (*count, *last_ns) = (*count + 1, now_ns);
            }
            None => {}
        }
        Ok(())
    }

    /// A sample that cannot be read as what its schema says is an error, not a sample.
    fn check(&mut self, sample: &Sample) -> CliResult {
        match sample.header.schema {
            SchemaId::BYTES => Ok(()),
            schema => self.values.check(schema, &sample.payload),
        }
    }

    fn source(&self, member: Member, producer: &helio_bus::Producer) -> Source {
        Source {
            topic: self.topic(member),
            producer: producer.name.to_string(),
            incarnation: producer.incarnation,
        }
    }

    fn topic(&self, member: Member) -> String {
        let at = self.members.iter().position(|known| *known == member);
        at.map(|at| self.topics[at].clone()).unwrap_or_default()
    }

    fn seen_by_source(&self) -> SeenBySource {
        let entry = |((member, producer, incarnation), seen): (&(Member, String, u64), &Seen)| {
            let (producer, incarnation) = (producer.clone(), *incarnation);
            (Source { topic: self.topic(*member), producer, incarnation }, *seen)
        };
        self.seen.iter().map(entry).collect()
    }

    fn report(&mut self) -> ReaderReport {
        let counts = |histogram: &Histogram<u64>| {
            let values = histogram.iter_recorded();
            values.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
        };
        let latencies =
            self.latencies.iter().map(|(member, h)| (self.topic(*member), counts(h))).collect();
        let (mut told_lost, mut lag) = (0, 0);
        for member in &self.members {
            if let Some(subscription) = self.set.get_mut(*member) {
                told_lost += subscription.stats().lost;
                lag += subscription.stats().lag;
            }
        }
        ReaderReport {
            seen: self.seen_by_source(),
            latencies,
            burst: self.burst,
            newest: std::mem::take(&mut self.newest),
            told_lost,
            lag,
            cpu_s: cpu_s(),
            rss_mb: peak_rss_mb(),
        }
    }
}
