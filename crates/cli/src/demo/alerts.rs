//! The alert player: a plain publisher, like a system outside the observatory.

use helio_bus::{Bus, Message, SchemaText, TopicSpec};
use helio_core::Qos;
use helio_logging::Level;

use super::accounting::Source;
use super::logging;
use super::messages::{AlertTask, ProcessMessage};
use super::pace::{Pace, Step, tai_at};
use super::packet::Packets;
use crate::clock::{cpu_s, peak_rss_mb};
use crate::error::CliResult;
use crate::packets::{Packet, read_all};
use crate::value::schema_text;
use crate::worker::say;

/// Runs the process.
pub(crate) fn run(task: &AlertTask) -> CliResult {
    let mut packets = Alerts::new(task)?;
    let bus = Bus::builder().producer("AlertPlayer").connect(&task.url)?;
    let mut spec = TopicSpec::new(&task.topic)?.qos(Qos::stream());
    if let Some(schema) = packets.schema() {
        spec = spec.schema(schema);
    }
    let publisher = bus.topic(spec)?.publisher()?;
    let producer = publisher.producer();
    let source = Source {
        topic: task.topic.clone(),
        producer: producer.name.to_string(),
        incarnation: producer.incarnation,
    };
    logging::begin(&bus, "AlertPlayer")?;
    logging::note(Level::INFO, &format!("plays {} packets a second", task.rate_hz));
    say(&ProcessMessage::Ready)?;
    let mut pace = Pace::new(vec![task.rate_hz]);
    while let Some(step) = pace.next() {
        let Step::Due { due_ns, number, .. } = step else { continue };
        // The sample's time is the due time, so that readers measure the delay.
        let message = Message::new(packets.write(number)?).time(tai_at(&bus, due_ns));
        let receipt = publisher.publish(message).wait()?;
        say(&ProcessMessage::Receipt(source.clone(), receipt.sequence))?;
    }
    let logged = logging::end();
    say(&ProcessMessage::End { cpu_s: cpu_s(), rss_mb: peak_rss_mb(), logged })
}

/// The packets.
enum Alerts {
    Synthetic(Box<Packets>),
    /// Those of a file, in turn.
    Replayed(Option<SchemaText>, Vec<Packet>),
}

impl Alerts {
    fn new(task: &AlertTask) -> CliResult<Self> {
        match &task.file {
            None => Ok(Self::Synthetic(Box::new(Packets::new()?))),
            Some(path) => {
                let (schema, packets) = read_all(path)?;
                Ok(Self::Replayed(schema, packets))
            }
        }
    }

    /// The schema of the packets; `None` for untyped bytes.
    fn schema(&self) -> Option<SchemaText> {
        match self {
            Self::Synthetic(packets) => Some(schema_text(packets.schema())),
            Self::Replayed(schema, _) => schema.clone(),
        }
    }

    /// The packet of a number from 0.
    fn write(&mut self, number: u64) -> CliResult<&[u8]> {
        match self {
            Self::Synthetic(packets) => packets.write(number),
            Self::Replayed(_, packets) => {
                let at = (number % packets.len().max(1) as u64) as usize;
                Ok(packets.get(at).map_or(&[], |packet| &packet.payload))
            }
        }
    }
}
