//! `helio pub`: publishes values from the command line, a file or standard input.

use std::io::BufRead;

use helio_bus::{Bus, Message, Publisher, Receipt, SchemaText, Topic, TopicSpec};
use serde_json::{Value, json};

use crate::args::PubArgs;
use crate::clock::{monotonic_ns, wait_until};
use crate::error::{CliError, CliResult};
use crate::key::KeyFields;
use crate::open::{connect, existing, name, profile};
use crate::out::Out;
use crate::stop::Stop;
use crate::value::{Encoder, schema_file};

/// The longest line of standard input.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Runs `helio pub`.
pub(crate) fn run(args: &PubArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = connect(url, args.publishing.producer.as_deref())?;
    let topic = open(&bus, args)?;
    let encoder = topic.schema().map(|schema| Encoder::new(&schema.text)).transpose()?;
    let mut sender = Sender {
        args,
        stop,
        publisher: topic.publisher()?,
        key_fields: KeyFields::new(
            encoder.as_ref().map(Encoder::schema),
            &args.publishing.key_field,
        )?,
        encoder,
        out: Out::new(),
        payload: Vec::new(),
        sent: 0,
        start_ns: monotonic_ns(),
    };
    let ended = sender.all();
    sender.out.flush()?;
    ended
}

/// The existing topic, or a new one by the arguments.
fn open(bus: &Bus, args: &PubArgs) -> CliResult<Topic> {
    let name = name(&args.topic)?;
    let schema = args.schema.as_deref().map(schema_file).transpose()?;
    if args.publishing.profile.is_none() && args.partitions.is_none() {
        match &schema {
            None => {
                if let Some(topic) = existing(bus, &name)? {
                    return Ok(topic);
                }
            }
            // It may be the one that restores the topic's own text.
            Some(schema) if bus.schemas_of(&name)?.is_some() => {
                return Ok(bus.topic(TopicSpec::of(name).schema(schema.clone()))?);
            }
            Some(_) => {}
        }
    }
    let mut qos = profile(args.publishing.profile.as_deref().unwrap_or("stream"))?;
    qos.partitions = args.partitions.unwrap_or(1);
    let spec = TopicSpec::of(name).qos(qos);
    Ok(bus.topic(with(spec, schema))?)
}

fn with(spec: TopicSpec, schema: Option<SchemaText>) -> TopicSpec {
    match schema {
        Some(schema) => spec.schema(schema),
        None => spec,
    }
}

struct Sender<'a> {
    args: &'a PubArgs,
    stop: &'a Stop,
    publisher: Publisher,
    encoder: Option<Encoder>,
    key_fields: Option<KeyFields>,
    out: Out,
    payload: Vec<u8>,
    sent: u64,
    start_ns: u64,
}

impl Sender<'_> {
    fn all(&mut self) -> CliResult {
        for _ in 0..self.args.repeat {
            if self.args.null {
                let key = self.args.key.clone().unwrap_or_default();
                self.publish(Message::null(key.as_bytes()))?;
            }
            for value in &self.args.values {
                self.text(value)?;
            }
            for path in &self.args.file {
                let bytes = std::fs::read(path).map_err(|e| CliError::file(path, &e))?;
                self.encoder.as_ref().map_or(Ok(()), |encoder| encoder.check(&bytes))?;
                self.send(&bytes)?;
            }
        }
        if self.args.values.is_empty() && self.args.file.is_empty() && !self.args.null {
            self.input()?;
        }
        Ok(())
    }

    /// Publishes one sample per line.
    fn input(&mut self) -> CliResult {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = std::io::Read::take(&mut input, LINE_BYTES_MAX);
            let read = bounded.read_until(b'\n', &mut line);
            read.map_err(|e| CliError::Failure(format!("standard input: {e}")))?;
            if line.is_empty() {
                return Ok(());
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            match std::str::from_utf8(&line) {
                Ok(text) => self.text(text)?,
                Err(_) if self.encoder.is_none() => self.send(&line)?,
                Err(_) => {
                    return Err(CliError::Refused(format!("line {}: no text", self.sent + 1)));
                }
            }
        }
    }

    /// Publishes a text: JSON of a typed topic, else the text itself.
    fn text(&mut self, text: &str) -> CliResult {
        let Some(encoder) = &self.encoder else { return self.send(text.as_bytes()) };
        let value: Value = serde_json::from_str(text)
            .map_err(|e| CliError::Refused(format!("sample {}: no JSON: {e}", self.sent + 1)))?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        encoder.encode(&value, &mut payload)?;
        let sent = self.send(&payload);
        self.payload = payload;
        sent
    }

    fn send(&mut self, payload: &[u8]) -> CliResult {
        let key = match (&self.key_fields, &self.args.key) {
            (Some(fields), _) => fields.of(payload)?,
            (None, key) => key.clone().unwrap_or_default().into_bytes(),
        };
        self.publish(Message::new(payload).key(&key))
    }

    /// Publishes a message in its turn.
    fn publish(&mut self, message: Message<'_>) -> CliResult {
        self.stop.check()?;
        if let Some(rate) = self.args.publishing.rate {
            let due = self.start_ns + (self.sent as f64 * 1e9 / rate) as u64;
            pause(due, self.stop)?;
        }
        let mut message = message.level(self.args.level);
        if let Some(guarantee) = self.args.publishing.guarantee {
            message = message.guarantee(guarantee.into());
        }
        let receipt = self.publisher.publish(message).wait()?;
        self.sent += 1;
        if self.args.output.json { self.told(&receipt) } else { Ok(()) }
    }

    fn told(&mut self, receipt: &Receipt) -> CliResult {
        self.out.json(&json!({
            "partition": receipt.partition,
            "offset": receipt.offset,
            "sequence": receipt.sequence,
            "guarantee": receipt.guarantee,
        }))?;
        self.out.flush()
    }
}

/// Waits until a time, or for a signal.
pub(crate) fn pause(due_ns: u64, stop: &Stop) -> CliResult {
    const SLICE_NS: u64 = 50_000_000;
    while due_ns > monotonic_ns() + SLICE_NS {
        stop.check()?;
        wait_until(monotonic_ns() + SLICE_NS);
    }
    wait_until(due_ns);
    stop.check()
}
