//! A bus that is closed while a topic of it is being opened.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Barrier};

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{Transport, TransportTopic};
use helio_bus::{
    Bell, Bus, Capabilities, Qos, SchemaId, TopicError, TopicName, TopicSpec, TransportError,
};

/// Memory that takes its time to create a topic: until both barriers are met.
struct Slow {
    inner: Arc<dyn Transport>,
    created: Arc<Barrier>,
    goes_on: Arc<Barrier>,
}

impl Transport for Slow {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.inner.open_topic(name)
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        let created = self.inner.create_topic(name, qos);
        self.created.wait();
        self.goes_on.wait();
        created
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.inner.topics()
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.inner.put_schema(id, text)
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.inner.schema(id)
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        self.inner.bell()
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[test]
fn a_topic_that_was_being_opened_is_closed_too() {
    let barrier = || Arc::new(Barrier::new(2));
    let (created, goes_on) = (barrier(), barrier());
    let inner = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let slow = Slow { inner, created: Arc::clone(&created), goes_on: Arc::clone(&goes_on) };
    let bus = Bus::builder().over(Arc::new(slow)).unwrap();
    let opening = bus.clone();
    let opening = std::thread::spawn(move || {
        opening.topic(TopicSpec::new("wind").unwrap().qos(Qos::telemetry())).map(drop)
    });
    created.wait();
    bus.close();
    goes_on.wait();
    let opened = opening.join().unwrap();
    let closed = matches!(opened, Err(TopicError::Transport(TransportError::Closed)));
    assert!(closed, "{opened:?}");
}
