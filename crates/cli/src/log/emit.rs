//! `helio log emit`: publishes log records from a shell.

use std::io::{BufRead, BufReader, Read};

use helio_bus::{Bus, Message, Publisher, Topic, TopicError, TopicSpec, partition_of};
use helio_logging::{Audiences, Lanes, Level, Numbers, PacketWriter, PushError, Record};
use serde_json::json;

use crate::args::log::{EmitArgs, Pair};
use crate::error::{CliError, CliResult};
use crate::open::connect;
use crate::out::Out;
use crate::stop::Stop;

/// The longest line of standard input; it fits a record with its other fields.
const LINE_BYTES_MAX: u64 = 200_000;
/// Input that is read at once; its lines form one packet.
const READ_BYTES: usize = 64 << 10;

/// Runs `helio log emit`.
pub(crate) fn run(args: &EmitArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = connect(url, args.producer.as_deref())?;
    let topic = open(&bus, &args.lanes.lanes(), args.level)?;
    let mut emitter = Emitter {
        args,
        // Order holds within a partition, so a producer's records go to one.
        partition: partition_of(bus.producer().as_str().as_bytes(), topic.qos().partitions),
        publisher: topic.publisher()?,
        like: like(args),
        writer: PacketWriter::default(),
        next: 1,
        out: Out::new(),
        bus,
    };
    if args.text == ["-"] {
        emitter.input(stop)?;
    } else {
        emitter.add(&args.text.join(" "))?;
    }
    emitter.publish()?;
    emitter.out.flush()
}

/// The topic of a level, created if missing.
pub(super) fn open(bus: &Bus, lanes: &Lanes, level: Level) -> Result<Topic, TopicError> {
    match bus.topic(TopicSpec::new(&lanes.topic_name(level))?) {
        Err(TopicError::NoSuchTopic(_)) => bus.topic(lanes.topic(level)?),
        opened => opened,
    }
}

/// A record of this process.
pub(super) fn own() -> Record {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Record {
        host: host.trim().to_owned(),
        process: format!("helio:{}", std::process::id()),
        ..Record::default()
    }
}

/// A record without time and text.
fn like(args: &EmitArgs) -> Record {
    let names = args.audience.iter().cloned();
    Record {
        level: args.level,
        logger: args.logger.clone(),
        audiences: if args.everyone { Audiences::everyone() } else { Audiences::of(names) },
        data: args.data.iter().map(|Pair(name, value)| (name.clone(), value.clone())).collect(),
        antenna: args.antenna.clone(),
        array: args.array.clone(),
        uri: args.uri.clone(),
        ..own()
    }
}

struct Emitter<'a> {
    args: &'a EmitArgs,
    bus: Bus,
    publisher: Publisher,
    partition: u32,
    like: Record,
    writer: PacketWriter,
    /// The number of the first record of the packet.
    next: u64,
    out: Out,
}

impl Emitter<'_> {
    /// Reads one record per line. Lines that were read together are published together.
    fn input(&mut self, stop: &Stop) -> CliResult {
        let mut input = BufReader::with_capacity(READ_BYTES, std::io::stdin().lock());
        let (mut line, mut number) = (Vec::new(), 0_u64);
        loop {
            stop.check()?;
            line.clear();
            number += 1;
            let mut bounded = Read::take(&mut input, LINE_BYTES_MAX + 1);
            let read = bounded.read_until(b'\n', &mut line);
            read.map_err(|e| CliError::Failure(format!("standard input: {e}")))?;
            if line.is_empty() {
                return Ok(());
            }
            if line.len() as u64 > LINE_BYTES_MAX {
                self.publish()?;
                return Err(CliError::Refused(format!(
                    "line {number} is longer than {LINE_BYTES_MAX} bytes; the lines before it are \
                     published; shorten it"
                )));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if !text.is_empty() {
                self.add(text)?;
            }
            if input.buffer().is_empty() {
                self.publish()?;
            }
        }
    }

    fn add(&mut self, text: &str) -> CliResult {
        self.like.text = Some(text.to_owned());
        self.like.time = self.bus.clock().now();
        let mut pushed = self.writer.push(&self.like);
        if pushed == Err(PushError::Full) {
            self.publish()?;
            pushed = self.writer.push(&self.like);
        }
        pushed.map_err(|error| CliError::Refused(error.to_string()))
    }

    /// Publishes the gathered records and waits for the receipt.
    fn publish(&mut self) -> CliResult {
        let records = self.writer.len();
        if records == 0 {
            return Ok(());
        }
        let lane = Some(Lanes::lane(self.args.level));
        let numbers = Numbers { lane, first: self.next, shed: 0 };
        let packet = self.writer.finish(numbers);
        let message = Message::new(packet).level(self.args.level.number());
        let message = message.partition(self.partition);
        let receipt = self.publisher.publish(message).wait()?;
        self.next += records as u64;
        if !self.args.output.json {
            return Ok(());
        }
        self.out.json(&json!({
            "topic": self.args.lanes.lanes().topic_name(self.args.level),
            "partition": receipt.partition,
            "offset": receipt.offset,
            "records": records,
            "guarantee": receipt.guarantee,
        }))?;
        self.out.flush()
    }
}
