//! A bus that can be made to fail under a component, and readers of what the component publishes.

use std::sync::Arc;

use helio_bus::transport::Opening;
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{Bus, Clock, Start, Subscribe, Subscription, SystemClock, TopicName, TopicSpec};
use helio_component::protocol::SummaryState;
use helio_component::{AuditPhase, AuditRecord, Builder, Component, Reading, Remote};
use helio_core::Codec;
use helio_core::schema::HasSchema;

use super::{HANG_TIMEOUT, Site};

/// A site whose component is on a bus that can be made to fail; others are not.
pub(crate) struct Failing {
    pub(crate) site: Site,
    pub(crate) bus: Bus,
    pub(crate) cable: Cable,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A bus on a site, with its cable.
pub(crate) fn faulty(site: &Site, clock: &Arc<dyn Clock>) -> (Bus, Cable) {
    let opening = Opening { url: site.url().parse().unwrap(), clock: Arc::clone(clock) };
    let transport = FaultTransport::open(&opening, FaultPlan::default()).unwrap();
    let cable = transport.cable();
    (Bus::builder().clock(Arc::clone(clock)).over(transport).unwrap(), cable)
}

impl Failing {
    pub(crate) fn new() -> Self {
        Self::by(Arc::new(SystemClock::new()))
    }

    pub(crate) fn by(clock: Arc<dyn Clock>) -> Self {
        let site = Site::memory();
        let (bus, cable) = faulty(&site, &clock);
        Self { site, bus, cable, clock }
    }

    pub(crate) fn mount(&self) -> Builder {
        let builder = Component::builder(&self.bus, &self.site.mount(), 0);
        builder.initial_state(SummaryState::Enabled)
    }

    pub(crate) fn other(&self) -> Bus {
        Bus::builder().clock(Arc::clone(&self.clock)).connect(self.site.url()).unwrap()
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote::open(&self.other(), &self.site.mount(), 0).unwrap()
    }
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName::new(&format!("MTMount/{topic}")).unwrap()
}

pub(crate) fn audit(bus: &Bus) -> Subscription {
    let topic = bus.topic(TopicSpec::of(name("audit"))).unwrap();
    topic.subscribe(Subscribe::from(Start::Earliest)).unwrap()
}

/// The next records: command, and whether it has ended.
pub(crate) fn records(samples: &mut Subscription, count: usize) -> Vec<(String, AuditPhase)> {
    let codec = Codec::new(&AuditRecord::schema().unwrap());
    let mut next = || {
        let event = samples.next_timeout(HANG_TIMEOUT).unwrap().expect("a record");
        let sample = event.into_sample().unwrap();
        let record: AuditRecord = codec.deserialize(&sample.payload).unwrap();
        (record.command, record.phase)
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn both(command: &str) -> [(String, AuditPhase); 2] {
    [AuditPhase::Received, AuditPhase::Finished].map(|phase| (command.to_owned(), phase))
}

pub(crate) fn says(word: &'static str) -> impl FnMut(&Reading) -> bool {
    move |reading| reading.text("message").is_some_and(|text| text.contains(word))
}

pub(crate) fn is_state(state: SummaryState) -> impl FnMut(&Reading) -> bool {
    move |reading| reading.integer("summaryState") == Some(i64::from(state.number()))
}
