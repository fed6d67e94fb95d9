//! `helio topics`: lists the topics of the bus.

use helio_bus::transport::{Carried, Taken};
use helio_bus::{TopicInfo, TopicName};
use helio_core::name::fits;
use serde::Serialize;

use crate::args::TopicsArgs;
use crate::error::{CliError, CliResult};
use crate::open::look_only;
use crate::out::{Out, table};
use crate::units::{human_bytes, human_count};

#[derive(Serialize)]
struct Line {
    topic: String,
    partitions: Vec<Partition>,
    /// `null` if the engine tells no numbers of samples, as DDS.
    samples: Option<u64>,
    /// `null` if the engine tells no sizes, as Kafka and DDS.
    bytes: Option<u64>,
    /// What retention has removed, if the engine counts it.
    taken_samples: Option<u64>,
    taken_bytes: Option<u64>,
    last_time: Option<String>,
    schemas: Vec<String>,
    /// `typed` or `enveloped`, if the transport has both forms.
    carried: Option<&'static str>,
    /// The engine's type of a typed topic.
    r#type: Option<String>,
    writers: Vec<Writer>,
    qos: helio_core::Qos,
}

#[derive(Serialize)]
struct Partition {
    partition: u32,
    first: u64,
    end: u64,
    durable: u64,
    bytes: Option<u64>,
    missing: u64,
    missing_from: Option<u64>,
    taken_samples: Option<u64>,
    taken_bytes: Option<u64>,
    last_time: Option<String>,
}

#[derive(Serialize)]
struct Writer {
    producer: String,
    incarnation: u64,
    partition: u32,
    alive: Option<bool>,
}

impl Line {
    fn of(info: TopicInfo) -> Self {
        let partition = |p: &helio_bus::transport::PartitionInfo| Partition {
            partition: p.partition,
            first: p.first,
            end: p.end,
            durable: p.durable,
            bytes: p.bytes,
            missing: p.missing,
            missing_from: (p.missing > 0).then_some(p.missing_from),
            taken_samples: p.taken.map(|taken| taken.samples),
            taken_bytes: p.taken.map(|taken| taken.bytes),
            last_time: p.last_time.map(|t| t.to_utc_string()),
        };
        let writer = |w: &helio_bus::transport::WriterInfo| Writer {
            producer: w.producer.name.to_string(),
            incarnation: w.producer.incarnation,
            partition: w.partition,
            alive: w.alive.map(|alive| alive == helio_bus::Alive::Yes),
        };
        let known = !info.partitions.is_empty();
        let newest = info.partitions.iter().filter_map(|p| p.last_time).max();
        let (carried, r#type) = match info.carried {
            Some(Carried::Typed(name)) => (Some("typed"), Some(name)),
            Some(Carried::Enveloped) => (Some("enveloped"), None),
            None => (None, None),
        };
        let taken = |part: fn(&Taken) -> u64| {
            let all = info.partitions.iter().map(|p| p.taken.as_ref().map(part));
            all.sum::<Option<u64>>()
        };
        Self {
            taken_samples: taken(|taken| taken.samples),
            taken_bytes: taken(|taken| taken.bytes),
            carried,
            r#type,
            topic: info.name.to_string(),
            samples: known.then(|| info.partitions.iter().map(|p| p.end - p.first).sum()),
            bytes: info.partitions.iter().map(|p| p.bytes).sum::<Option<u64>>().filter(|_| known),
            last_time: newest.map(|t| t.to_utc_string()),
            schemas: info.schemas.iter().map(ToString::to_string).collect(),
            partitions: info.partitions.iter().map(partition).collect(),
            writers: info.writers.iter().map(writer).collect(),
            qos: info.qos,
        }
    }

    fn row(&self, carried: bool) -> Vec<String> {
        let none = || "-".to_owned();
        let mut row = vec![
            self.topic.clone(),
            self.partitions.len().to_string(),
            self.samples.map_or_else(none, human_count),
            self.bytes.map_or_else(none, |bytes| human_bytes(bytes as f64)),
            self.taken_samples.map_or_else(none, human_count),
            self.writers.iter().filter(|w| w.alive == Some(true)).count().to_string(),
            self.last_time.as_deref().unwrap_or("-").to_owned(),
            self.schemas.last().map_or("-", String::as_str).to_owned(),
        ];
        if carried {
            let ways = self.carried.into_iter().chain(self.r#type.as_deref());
            row.push(ways.collect::<Vec<_>>().join(" "));
        }
        row
    }
}

const HEAD: [&str; 9] = [
    "topic",
    "partitions",
    "samples",
    "bytes",
    "taken by retention",
    "live writers",
    "last sample",
    "schema",
    "carried",
];

/// Runs `helio topics`.
pub(crate) fn run(args: &TopicsArgs, url: Option<&str>) -> CliResult {
    let bus = look_only(url)?;
    let pattern = args.pattern.as_deref().unwrap_or("*");
    let wanted = |name: &TopicName| fits(pattern, name.as_str());
    let names: Vec<TopicName> = bus.topics()?.into_iter().filter(wanted).collect();
    let mut lines = Vec::with_capacity(names.len());
    for name in &names {
        // A topic may have been removed since the list was made.
        lines.extend(bus.topic_info(name)?.map(Line::of));
    }
    if lines.is_empty() && args.pattern.is_some() {
        return Err(CliError::NotFound(format!(
            "no topic of {} matches {pattern:?}; `helio topics` lists them",
            bus.url()
        )));
    }
    let mut out = Out::new();
    if args.output.json {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else if !lines.is_empty() {
        let carried = lines.iter().any(|line| line.carried.is_some());
        let rows: Vec<Vec<String>> = lines.iter().map(|line| line.row(carried)).collect();
        let head = if carried { &HEAD[..] } else { &HEAD[..HEAD.len() - 1] };
        table(head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    missing(&lines)
}

/// Fails if an engine has lost stored samples.
fn missing(lines: &[Line]) -> CliResult {
    let all = lines.iter().flat_map(|line| line.partitions.iter().map(move |p| (line, p)));
    let mut all = all.filter(|(_, p)| p.missing > 0).peekable();
    let Some((line, first)) = all.peek() else { return Ok(()) };
    let text = format!(
        "of {}, partition {}, from offset {} on",
        line.topic,
        first.partition,
        first.missing_from.unwrap_or_default()
    );
    let count: u64 = all.map(|(_, p)| p.missing).sum();
    Err(CliError::Lost(format!(
        "{count} stored samples cannot be read, the first {text}; `helio journal repair` tells more"
    )))
}
