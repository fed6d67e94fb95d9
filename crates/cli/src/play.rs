//! `helio play`: publishes the samples of files.

use std::path::Path;

use helio_bus::{Message, Publisher, Topic, TopicSpec};
use helio_core::schema::Schema;
use serde_json::json;

use crate::args::PlayArgs;
use crate::clock::monotonic_ns;
use crate::envelope::SampleMetadata;
use crate::error::{CliError, CliResult};
use crate::open::{connect, existing, existing_untyped, name, profile};
use crate::out::{Out, Progress};
use crate::packets::{Input, Packet, Packets, Reading};
use crate::publish::pause;
use crate::receipts::Receipts;
use crate::schema;
use crate::stop::Stop;
use crate::units::{human_bytes, human_count};
use crate::value::{parse, schema_text};

/// The largest number of samples in flight.
const RECEIPT_WINDOW: usize = 1_000;

/// Runs `helio play`.
pub(crate) fn run(args: &PlayArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = connect(url, args.publishing.producer.as_deref())?;
    let given = match args.schema.as_slice() {
        [] => None,
        paths => Some(schema::files(paths)?),
    };
    let name = name(&args.topic)?;
    let known = match &given {
        // It may be the one that restores the topic's own text.
        Some(_) => existing_untyped(&bus, &name)?,
        None => existing(&bus, &name)?,
    };
    let fallback = match (&given, &known) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(topic)) => topic.schema().map(|s| parse(&s.text)).transpose()?,
        (None, None) => None,
    };
    let reading = Reading { schema: fallback, key_fields: args.publishing.key_field.clone() };
    // The first file decides the topic's schema.
    let schema = match args.files.first() {
        Some(path) => Packets::of(&Input::read(path)?, &reading)?.schema().cloned(),
        None => None,
    };
    let topic = open(&bus, args, known, schema.as_ref())?;
    let mut player = Player {
        args,
        stop,
        reading,
        schema,
        publisher: topic.publisher()?,
        receipts: Receipts::new(RECEIPT_WINDOW),
        progress: Progress::new(),
        begun_ns: monotonic_ns(),
        samples: 0,
        bytes: 0,
    };
    let ended = player.all();
    let acknowledged = player.receipts.finish();
    player.told(acknowledged?)?;
    ended
}

/// The existing topic, or a new one with the first file's schema.
fn open(
    bus: &helio_bus::Bus,
    args: &PlayArgs,
    known: Option<Topic>,
    schema: Option<&Schema>,
) -> CliResult<Topic> {
    let mut spec = TopicSpec::of(name(&args.topic)?);
    if let Some(schema) = schema {
        spec = spec.schema(schema_text(schema));
    }
    if known.is_none() || args.publishing.profile.is_some() {
        spec = spec.qos(profile(args.publishing.profile.as_deref().unwrap_or("stream"))?);
    }
    Ok(bus.topic(spec)?)
}

struct Player<'a> {
    args: &'a PlayArgs,
    stop: &'a Stop,
    reading: Reading,
    schema: Option<Schema>,
    publisher: Publisher,
    receipts: Receipts,
    progress: Progress,
    begun_ns: u64,
    samples: u64,
    bytes: u64,
}

impl Player<'_> {
    fn all(&mut self) -> CliResult {
        let mut round = 0;
        loop {
            let before = self.samples;
            for path in &self.args.files {
                self.file(path)?;
            }
            round += 1;
            let again = self.args.forever || round < self.args.repeat;
            if !again || self.samples == before {
                return Ok(());
            }
        }
    }

    fn file(&mut self, path: &Path) -> CliResult {
        let input = Input::read(path)?;
        let mut packets = Packets::of(&input, &self.reading)?;
        if packets.schema().map(Schema::id) != self.schema.as_ref().map(Schema::id) {
            return Err(CliError::Refused(format!(
                "{} has another schema than the files before; play it in a separate run",
                path.display()
            )));
        }
        while let Some(packet) = packets.next()? {
            if self.args.count.is_some_and(|count| self.samples >= count) {
                return Ok(());
            }
            self.sample(&packet)?;
        }
        Ok(())
    }

    fn sample(&mut self, packet: &Packet) -> CliResult {
        self.stop.check()?;
        if let Some(rate) = self.args.publishing.rate {
            pause(self.begun_ns + (self.samples as f64 * 1e9 / rate) as u64, self.stop)?;
        }
        let SampleMetadata { key, time, level, trace, headers } = &packet.belongings;
        let mut message =
            Message::new(&packet.payload).key(key).level(*level).headers(headers.as_ref());
        if let Some(time) = time {
            message = message.time(*time);
        }
        if let Some(trace) = trace {
            message = message.trace(*trace);
        }
        if let Some(guarantee) = self.args.publishing.guarantee {
            message = message.guarantee(guarantee.into());
        }
        self.receipts.take(self.publisher.publish(message))?;
        self.samples += 1;
        self.bytes += packet.payload.len() as u64;
        let (samples, bytes) = (self.samples, self.bytes);
        self.progress
            .show(|| format!("{} samples, {}", human_count(samples), human_bytes(bytes as f64)));
        Ok(())
    }

    /// Reports the published samples, also after an error.
    fn told(&mut self, acknowledged: u64) -> CliResult {
        let seconds = (monotonic_ns() - self.begun_ns) as f64 * 1e-9;
        let rate = acknowledged as f64 / seconds.max(1e-9);
        let mut out = Out::new();
        if self.args.output.json {
            out.json(&json!({
                "topic": self.args.topic,
                "samples": acknowledged,
                "bytes": self.bytes,
                "seconds": (seconds * 1e6).round() / 1e6,
                "rate_hz": (rate * 1e3).round() / 1e3,
            }))?;
        } else {
            out.line(&format!(
                "{} samples, {} in {seconds:.3} s ({rate:.1} Hz)",
                human_count(acknowledged),
                human_bytes(self.bytes as f64)
            ))?;
        }
        out.flush()
    }
}
