//! The process of a CCD's producer.

use std::collections::VecDeque;

use helio_alerts::generator::AlertNumber;
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, TopicLayout};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::Packing;
use helio_bus::{Bus, Tai};
use helio_console::clock::cpu_s;
use helio_console::error::CliResult;
use helio_console::open;
use helio_console::worker::{hear, say};

use super::RETRY_FOR;
use super::messages::{ProducerOrder, ProducerReply, ProducerTask, Published, Stamped, Survey};
use crate::error;

/// Runs the process.
pub(super) fn run(task: &ProducerTask) -> CliResult {
    let ProducerTask { survey, detector } = task;
    let bus = open::connect(Some(&survey.url), Some(&format!("ccd-{detector}")))?;
    let producer = open_producer(&bus, survey)?;
    let mut generator = survey.packets();
    let alerts = generator.alerts(*detector);
    let mut prepared = VecDeque::new();
    say(&ProducerReply::Ready)?;
    while let Some(order) = hear::<ProducerOrder>()? {
        match order {
            ProducerOrder::Prepare { visit: next } => {
                let mut packet = |number| {
                    let alert = AlertNumber { visit: next.into(), detector: *detector, number };
                    let mut datum = Vec::new();
                    generator.write(alert, &mut datum);
                    datum
                };
                let packets: Vec<Vec<u8>> = (0..alerts).map(&mut packet).collect();
                prepared.push_back((next, packets));
                say(&ProducerReply::Prepared)?;
            }
            ProducerOrder::Publish { shutter_ns } => {
                let (visit, packets) = prepared.pop_front().unwrap_or_default();
                let visit = Survey::visit(visit);
                producer.set_shutter_close(visit, Tai::from_nanos(shutter_ns));
                let ccd = Ccd { visit, detector: i32::from(*detector) };
                let before = cpu_s();
                let outcome = producer.publish(ccd, &packets).map_err(error::producer)?;
                let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
                let failed = outcome.failed.len() as u64 + u64::from(!outcome.is_announced);
                say(&ProducerReply::Published(Published {
                    alerts: outcome.manifest.alerts.count(),
                    bytes,
                    failed,
                    cause: outcome.cause,
                    cpu_s: cpu_s() - before,
                    done_ns: bus.clock().now().nanos(),
                }))?;
            }
        }
    }
    Ok(())
}

/// Opens the topics of the stream, or creates them.
pub(super) fn open_producer(bus: &Bus, survey: &Survey) -> CliResult<CcdProducer> {
    let layout = match survey.stamped {
        Stamped::None | Stamped::Inline | Stamped::Url => TopicLayout::Inline,
        Stamped::Linked => TopicLayout::Split(Packing::Plain),
    };
    let options = ProducerOptions {
        layout,
        partitions: survey.partitions,
        retry_for: RETRY_FOR,
        ..ProducerOptions::default()
    };
    let schema = Version::LATEST.schema();
    CcdProducer::open(bus, &survey.topic, schema, options).map_err(error::producer)
}
