//! Stamps that have a topic of their own, for results with stamps.

use helio_alerts::reader::{DEFAULT_PINNED_BYTES, LinkedError, LinkedStamps};
use helio_alerts::stamps::Link;
use helio_alerts::topics::{LINK_HEADER, Part};
use helio_bus::{Bus, Sample, TopicError, TopicSpec};

use crate::error::ServiceError;
use crate::results::Stored;

/// The topic of stamps beside a topic of alerts, opened when it is needed.
pub(crate) struct Linked {
    bus: Bus,
    alerts: String,
    open: Option<LinkedStamps>,
}

impl Linked {
    pub(crate) fn new(bus: &Bus, alerts: &str) -> Self {
        Self { bus: bus.clone(), alerts: alerts.to_owned(), open: None }
    }

    /// Puts a packet's stamps into it, if they are elsewhere; `false` if they are missing for good.
    pub(crate) fn join(
        &mut self,
        sample: &Sample,
        alert: i64,
        stored: &mut Stored,
    ) -> Result<bool, ServiceError> {
        let Some(link) = sample.headers.as_ref().get(LINK_HEADER) else { return Ok(true) };
        let Some(link) = Link::parse(link) else { return Ok(false) };
        let Some(linked) = self.open()? else { return Ok(false) };
        let files = match linked.files(sample.partition, &link, alert) {
            Ok(files) => files,
            Err(LinkedError::Missing(_)) => return Ok(false),
            Err(LinkedError::Unavailable(error)) => return Err(ServiceError::Stamps(error)),
        };
        let files: Vec<_> = files.iter().map(Option::as_deref).collect();
        let mut whole = Vec::new();
        let is_joined = stored.packet.layout.join(&stored.bytes, &files, &mut whole).is_ok();
        if is_joined {
            stored.bytes = whole.into();
        }
        Ok(is_joined)
    }

    fn open(&mut self) -> Result<Option<&mut LinkedStamps>, ServiceError> {
        if self.open.is_none() {
            let name = Part::Stamps.name(&self.alerts)?;
            let topic = match self.bus.topic(TopicSpec::of(name)) {
                Err(TopicError::NoSuchTopic(_)) => return Ok(None),
                opened => opened?,
            };
            let partitions: Vec<u32> = (0..topic.qos().partitions).collect();
            let mut stamps = LinkedStamps::new(topic, DEFAULT_PINNED_BYTES);
            stamps.assign(&partitions)?;
            self.open = Some(stamps);
        }
        Ok(self.open.as_mut())
    }
}
