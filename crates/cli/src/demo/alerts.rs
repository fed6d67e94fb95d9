//! The alert player: a plain publisher, like a system outside the observatory.

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions};
use helio_bus::{Bus, Message, SchemaText, TopicSpec};
use helio_core::Qos;
use helio_logging::Level;

use super::accounting::Source;
use super::logging;
use super::messages::{AlertTask, ProcessMessage};
use super::pace::{Pace, Step, tai_at};
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
        let message = Message::new(packets.write(number)).time(tai_at(&bus, due_ns));
        let receipt = publisher.publish(message).wait()?;
        say(&ProcessMessage::Receipt(source.clone(), receipt.sequence))?;
    }
    let logged = logging::end();
    say(&ProcessMessage::End { cpu_s: cpu_s(), rss_mb: peak_rss_mb(), logged })
}

/// The packets.
enum Alerts {
    /// Those of the generator, of visit after visit.
    Generated(Box<Generator>, Vec<u8>),
    /// Those of a file, in turn.
    Replayed(Option<SchemaText>, Vec<Packet>),
}

impl Alerts {
    fn new(task: &AlertTask) -> CliResult<Self> {
        match &task.file {
            None => {
                let generator = Generator::new(GeneratorOptions::default());
                Ok(Self::Generated(Box::new(generator), Vec::new()))
            }
            Some(path) => {
                let (schema, packets) = read_all(path)?;
                Ok(Self::Replayed(schema, packets))
            }
        }
    }

    /// The schema of the packets; `None` for untyped bytes.
    fn schema(&self) -> Option<SchemaText> {
        match self {
            Self::Generated(generator, _) => {
                Some(schema_text(generator.options().version.schema()))
            }
            Self::Replayed(schema, _) => schema.clone(),
        }
    }

    /// The packet of a number from 0.
    fn write(&mut self, number: u64) -> &[u8] {
        match self {
            Self::Generated(generator, payload) => {
                payload.clear();
                generator.write(place(number, generator.options()), payload);
                payload
            }
            Self::Replayed(_, packets) => {
                let at = (number % packets.len().max(1) as u64) as usize;
                packets.get(at).map_or(&[], |packet| &packet.payload)
            }
        }
    }
}

/// The place of a packet by its number: the detectors of a visit in turn.
fn place(number: u64, options: &GeneratorOptions) -> AlertNumber {
    let alerts = u64::from(options.alerts_per_visit);
    let detectors = u64::from(options.detectors);
    let within = number % alerts;
    AlertNumber {
        visit: (number / alerts) as u32,
        detector: (within % detectors) as u16,
        number: (within / detectors) as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let generator = Generator::new(GeneratorOptions::default());
        let places = (0..20_000).map(|number| place(number, generator.options()));
        let exists = |at: &AlertNumber| at.number < generator.alerts(at.detector);
        assert_eq!(places.filter(exists).collect::<HashSet<_>>().len(), 20_000);
    }
}
