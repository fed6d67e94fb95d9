//! A bus that is closed while a topic of it is being opened.

use std::sync::{Arc, Barrier};

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{Decorator, Transport, TransportTopic};
use helio_bus::{Bus, Qos, TopicError, TopicName, TopicSpec, TransportError};

/// A memory transport that blocks in creating a topic, until both barriers are met.
struct Slow {
    inner: Arc<dyn Transport>,
    created: Arc<Barrier>,
    goes_on: Arc<Barrier>,
}

impl Decorator for Slow {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
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
