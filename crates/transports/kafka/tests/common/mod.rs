//! What the tests on real brokers share: the brokers, and plain clients of them.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod broker;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

pub(crate) use broker::{Broker, broker, unique};

impl Broker {
    /// Sets a topic's property.
    pub(crate) fn set(&self, topic: &str, name: &str, value: &str) {
        let config = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let altered = done(admin(self).alter_configs([&config], &AdminOptions::new()));
        let altered = altered.expect("the broker answers");
        assert!(altered.iter().all(Result::is_ok), "{altered:?}");
    }
}

/// A plain client of the broker.
pub(crate) fn config(broker: &Broker) -> ClientConfig {
    let mut config = ClientConfig::new();
    let servers = broker.url("").replace("kafka://", "");
    config.set("bootstrap.servers", servers.trim_end_matches('?'));
    config
}

pub(crate) type Admin = AdminClient<DefaultClientContext>;

pub(crate) fn admin(broker: &Broker) -> Admin {
    config(broker).create().expect("librdkafka knows its options")
}

/// Runs an administrator's future; its client has a thread of its own.
pub(crate) fn done<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}
