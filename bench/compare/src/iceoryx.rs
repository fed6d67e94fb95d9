//! iceoryx2: publish-subscribe service for the payload, event service for the wake-up, nothing
//! dropped.

use std::time::Duration;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use crate::harness::{Publish, Subscribe, Work};

/// Room between publisher and subscriber, in samples.
const BUFFER: usize = 1024;

type Service = ipc::Service;

fn node() -> Node<Service> {
    set_log_level(LogLevel::Error);
    NodeBuilder::new().create::<Service>().expect("an iceoryx2 node can be made")
}

/// The sending end.
pub struct Sender {
    publisher: Publisher<Service, [u8], ()>,
    notifier: Notifier<Service>,
    service: iceoryx2::service::port_factory::publish_subscribe::PortFactory<Service, [u8], ()>,
    events: iceoryx2::service::port_factory::event::PortFactory<Service>,
    _node: Node<Service>,
}

/// The receiving end.
pub struct Receiver {
    subscriber: Subscriber<Service, [u8], ()>,
    listener: Listener<Service>,
    _node: Node<Service>,
}

impl Sender {
    /// Opens the service of that name.
    pub fn open(work: &Work) -> Self {
        let node = node();
        let (service, events) = services(&node, &work.topic);
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(work.payload_bytes.max(16))
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .expect("a publisher");
        let notifier = events.notifier_builder().create().expect("a notifier");
        Self { publisher, notifier, service, events, _node: node }
    }
}

type Services = (
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<Service, [u8], ()>,
    iceoryx2::service::port_factory::event::PortFactory<Service>,
);

fn services(node: &Node<Service>, topic: &str) -> Services {
    let name = topic.try_into().expect("a topic name of ours is a service name");
    let service = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(BUFFER)
        .open_or_create()
        .expect("the publish-subscribe service");
    let events = node.service_builder(&name).event().open_or_create().expect("the event service");
    (service, events)
}

impl Publish for Sender {
    fn wait_for_subscriber(&mut self) {
        while self.service.dynamic_config().number_of_subscribers() == 0
            || self.events.dynamic_config().number_of_listeners() == 0
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(&mut self, payload: &[u8]) {
        let sample = self.publisher.loan_slice_uninit(payload.len()).expect("a loan");
        sample.write_from_slice(payload).send().expect("sent");
        self.notifier.notify().expect("notified");
    }

    fn finish(&mut self) {
        // The publisher owns the memory of what is not yet read.
        std::thread::sleep(Duration::from_secs(1));
    }
}

impl Receiver {
    /// Opens the service of that name.
    pub fn open(work: &Work) -> Self {
        let node = node();
        let (service, events) = services(&node, &work.topic);
        let subscriber =
            service.subscriber_builder().buffer_size(BUFFER).create().expect("a subscriber");
        let listener = events.listener_builder().create().expect("a listener");
        Self { subscriber, listener, _node: node }
    }
}

impl Subscribe for Receiver {
    fn receive(&mut self, limit: Duration, each: &mut dyn FnMut(&[u8])) {
        self.listener.timed_wait(|_| (), limit).expect("waited");
        while let Some(sample) = self.subscriber.receive().expect("received") {
            each(sample.payload());
        }
    }
}
