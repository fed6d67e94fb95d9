//! A writer process of the demo: one component, its streams at their rates.

use std::sync::mpsc::{Receiver, TryRecvError};

use helio_bus::{Bus, Message, Publisher, TopicSpec};
use helio_core::qos::Guarantee;

use super::account::{Acknowledged, Source};
use super::body::Bodies;
use super::plan::{Mark, Stream, WriterOrder, WriterTask, WriterWord};
use super::scene::key_of;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb, wait_until};
use crate::error::CliResult;
use crate::worker::{orders, say};

/// Orders are looked for at least this often.
const LOOK_NS: u64 = 20_000_000;
/// A burst tells of its receipts so often.
const TELL_EVERY: u64 = 1_000;

/// Runs the process.
pub(crate) fn run(task: &WriterTask) -> CliResult {
    let bus = Bus::builder().producer(&task.producer).connect(&task.url)?;
    let lanes = task.streams.iter().map(|stream| Lane::open(&bus, stream));
    let mut writer = Writer { lanes: lanes.collect::<CliResult<_>>()? };
    say(&WriterWord::Ready)?;
    writer.follow(&orders())?;
    let guarantee = task.streams.iter().map(|s| s.qos.guarantee).min().unwrap_or(Guarantee::Stored);
    say(&WriterWord::End { guarantee, cpu_s: cpu_s(), rss_mb: peak_rss_mb() })
}

/// One stream on its way.
struct Lane {
    publisher: Publisher,
    bodies: Bodies,
    indices: Vec<i32>,
    source: Source,
    step_ns: u64,
    due_ns: Option<u64>,
    number: u64,
    acknowledged: Acknowledged,
}

impl Lane {
    fn open(bus: &Bus, stream: &Stream) -> CliResult<Self> {
        let mut spec = TopicSpec::new(&stream.topic)?.qos(stream.qos.clone());
        let bodies = Bodies::new(&stream.body)?;
        if let Some(schema) = bodies.schema() {
            spec = spec.schema(schema);
        }
        let publisher = bus.topic(spec)?.publisher()?;
        let producer = publisher.producer();
        Ok(Self {
            source: Source {
                topic: stream.topic.clone(),
                producer: producer.name.to_string(),
                incarnation: producer.incarnation,
            },
            publisher,
            bodies,
            indices: stream.indices.clone(),
            step_ns: (1e9 / stream.rate_hz) as u64,
            due_ns: None,
            number: 0,
            acknowledged: Acknowledged::default(),
        })
    }

    /// Publishes the next sample and waits for its receipt; gives its key.
    fn publish(&mut self, mark: Mark) -> CliResult<Vec<u8>> {
        let turn = (self.number % self.indices.len().max(1) as u64) as usize;
        let index = self.indices.get(turn).copied();
        let key = index.map(key_of).unwrap_or_default();
        let payload = self.bodies.write(self.number, index.unwrap_or(0))?;
        let message = Message::new(payload).key(&key).trace(mark.trace());
        let receipt = self.publisher.publish(message).wait()?;
        self.acknowledged.bytes += payload.len() as u64;
        self.acknowledged.last = receipt.sequence;
        self.number += 1;
        Ok(key)
    }
}

struct Writer {
    lanes: Vec<Lane>,
}

impl Writer {
    fn follow(&mut self, orders: &Receiver<WriterOrder>) -> CliResult {
        loop {
            match orders.try_recv() {
                Ok(WriterOrder::Begin { start_ns }) => self.begin(start_ns),
                Ok(WriterOrder::Rest) => self.lanes.iter_mut().for_each(|lane| lane.due_ns = None),
                Ok(WriterOrder::Burst { samples }) => self.burst(samples)?,
                Ok(WriterOrder::End) | Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => self.step()?,
            }
        }
    }

    fn begin(&mut self, start_ns: u64) {
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            // Streams of one process begin a little apart, so that they do not wait for each other.
            lane.due_ns = Some(start_ns + n as u64 * 3_000_000);
        }
    }

    /// Publishes what is due next, or waits a little.
    fn step(&mut self) -> CliResult {
        let horizon = monotonic_ns() + LOOK_NS;
        let next = self.lanes.iter_mut().filter(|lane| lane.due_ns.is_some_and(|at| at < horizon));
        let Some(lane) = next.min_by_key(|lane| lane.due_ns) else {
            std::thread::sleep(std::time::Duration::from_nanos(LOOK_NS / 2));
            return Ok(());
        };
        let Some(due_ns) = lane.due_ns else { return Ok(()) };
        wait_until(due_ns);
        let key = lane.publish(Mark::Scheduled(due_ns))?;
        lane.due_ns = Some(due_ns + lane.step_ns);
        say(&WriterWord::Receipt(lane.source.clone(), lane.acknowledged, key))
    }

    fn burst(&mut self, samples: u64) -> CliResult {
        let Some(lane) = self.lanes.first_mut() else { return Ok(()) };
        let (begin_ns, bytes_before) = (monotonic_ns(), lane.acknowledged.bytes);
        for number in 1..=samples {
            lane.publish(Mark::Burst)?;
            if number.is_multiple_of(TELL_EVERY) || number == samples {
                say(&WriterWord::Receipt(lane.source.clone(), lane.acknowledged, Vec::new()))?;
            }
        }
        let bytes = lane.acknowledged.bytes - bytes_before;
        say(&WriterWord::Burst { begin_ns, end_ns: monotonic_ns(), samples, bytes })
    }
}
