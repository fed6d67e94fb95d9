//! The log of decisions: one partition, which all processes write and read.

use std::time::Duration;

use helio_alerts::producer::control_topic;
use helio_bus::{
    Bus, Event, Lagging, Message, PendingPublish, Publisher, Qos, Start, Subscribe, Tai, Topic,
};
use helio_core::codec::Codec;
use helio_core::qos::{History, Retention};
use helio_core::schema::HasSchema;

use helio_alerts::visit::Control;

use crate::error::ServiceError;
use crate::lists::json;
use crate::names::{Topics, spec};
use crate::options::Options;
use crate::records::Decision;

/// How long the bus may take to store a record, or to deliver a stored one.
pub(crate) const BUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The control topic and the decisions are read from this much before the oldest alert that is to
/// be filtered: openings and sets of filters precede a visit's alerts by less.
const LOG_MARGIN_NS: i64 = 3600 * 1_000_000_000;
/// Bytes of decisions that are stored: those of 100 users for several nights.
const MAX_STORED_BYTES: u64 = 4 << 30;

/// The topic of decisions.
pub(crate) fn decisions_topic(bus: &Bus, topics: &Topics) -> Result<Topic, ServiceError> {
    let retention =
        Retention { bytes: Some(MAX_STORED_BYTES), age: None, last_value: false, default: true };
    let qos = Qos { partitions: 1, history: History::KeepAll, retention, ..Qos::stream() };
    Ok(bus.topic(spec(&topics.decisions())?.qos(qos))?)
}

/// Writes decisions in order. The last part of a partial ends its partition for all processes, so
/// it is written only when everything before it is stored.
pub(crate) struct DecisionLog {
    publisher: Publisher,
    pending: Vec<PendingPublish>,
    /// Last parts, until the next flush.
    last_parts: Vec<Decision>,
}

impl DecisionLog {
    pub(crate) fn open(topic: &Topic) -> Result<Self, ServiceError> {
        Ok(Self { publisher: topic.publisher()?, pending: Vec::new(), last_parts: Vec::new() })
    }

    pub(crate) fn append(&mut self, decision: Decision) {
        if decision.is_last_part() {
            self.last_parts.push(decision);
        } else {
            self.publish(&decision);
        }
    }

    fn publish(&mut self, decision: &Decision) {
        let (key, value) = (decision.key(), json(decision));
        let message = Message::new(&value).key(key.as_bytes());
        self.pending.push(self.publisher.publish(message));
    }

    /// Waits until all that was appended is stored.
    pub(crate) fn flush(&mut self) -> Result<(), ServiceError> {
        self.wait()?;
        for last in std::mem::take(&mut self.last_parts) {
            self.publish(&last);
        }
        self.wait()
    }

    fn wait(&mut self) -> Result<(), ServiceError> {
        for pending in self.pending.drain(..) {
            pending.wait_timeout(BUS_TIMEOUT)?;
        }
        Ok(())
    }
}

/// The control topic's records.
pub(crate) struct ControlLog {
    topic: Topic,
    codec: Codec,
}

impl ControlLog {
    pub(crate) fn open(bus: &Bus, alerts: &str) -> Result<Self, ServiceError> {
        let schema = Control::schema().expect("the records' schemas are compiled in");
        Ok(Self { topic: control_topic(bus, alerts)?, codec: Codec::new(&schema) })
    }

    pub(crate) fn subscribe(&self, start: Start) -> Result<helio_bus::Subscription, ServiceError> {
        Ok(self.topic.subscribe(Subscribe::from(start).lagging(Lagging::Lossless))?)
    }

    /// A record, if it is one.
    pub(crate) fn record(&self, payload: &[u8]) -> Option<Control> {
        self.codec.deserialize(payload).ok()
    }
}

/// Where the logs are to be read from, so that all of the visits that the group reads is known.
pub(crate) fn log_start(
    alerts: &Topic,
    bus: &Bus,
    options: &Options,
) -> Result<Start, ServiceError> {
    let committed = alerts.committed(&options.group)?;
    if committed.is_empty() && options.start == Start::Earliest {
        return Ok(Start::Earliest);
    }
    let mut oldest = bus.clock().now();
    let partitions = alerts.partitions()?;
    for partition in &partitions {
        let of = committed.iter().find(|(of, _)| *of == partition.partition);
        let next = match (of, options.start) {
            (Some((_, next)), _) => (*next).max(partition.first),
            (None, Start::Earliest) => partition.first,
            (None, _) => partition.end,
        };
        if next < partition.end {
            let time = published_at(alerts, partition.partition, next)?;
            oldest = oldest.min(time.unwrap_or(oldest));
        }
    }
    Ok(Start::Time(Tai::from_nanos(oldest.nanos().saturating_sub(LOG_MARGIN_NS))))
}

/// When the first sample from an offset on was published.
pub(crate) fn published_at(
    alerts: &Topic,
    partition: u32,
    offset: u64,
) -> Result<Option<Tai>, ServiceError> {
    let options = Subscribe::from(Start::Offset { partition, offset }).partitions([partition]);
    let mut samples = alerts.subscribe(options.lagging(Lagging::Lossless))?;
    samples.set_fence()?;
    while let Some(event) = samples.next_stored(BUS_TIMEOUT)? {
        if let Event::Sample(sample) = event {
            return Ok(Some(sample.header.time));
        }
    }
    Ok(None)
}
