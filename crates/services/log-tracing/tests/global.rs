//! What only a program's one global subscriber sees: what other threads say, and the crate `log`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    Decorator, Published, Record, TopicDecorator, Transport, TransportTopic, Writer, WriterRequest,
};
use helio_bus::{
    Bus, Guarantee, PendingReceipt, Producer, PublishError, TopicName, TransportError,
};
use helio_logging::{Level, LogOptions, Logging};
use support::{HANG_TIMEOUT, records};
use tracing_subscriber::layer::SubscriberExt as _;

/// How often the bus has said that it publishes.
static SAID: AtomicUsize = AtomicUsize::new(0);

/// A bus that logs each sample that it publishes.
struct Talking(Arc<FaultTransport>);

impl Decorator for Talking {
    fn inner(&self) -> &dyn Transport {
        &*self.0
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(TalkingTopic(inner))
    }
}

struct TalkingTopic(Arc<dyn TransportTopic>);

impl TopicDecorator for TalkingTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.0
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        Ok(Box::new(Talker(self.0.writer(request)?)))
    }
}

struct Talker(Box<dyn Writer>);

impl Writer for Talker {
    fn producer(&self) -> &Producer {
        self.0.producer()
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        SAID.fetch_add(1, Ordering::Relaxed);
        tracing::error!(level = "ALERT", "publishing");
        log::error!("publishing");
        self.0.publish(record, guarantee)
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.0.assert_alive()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.0.flush(guarantee)
    }
}

#[test]
fn records_of_log_come_as_what_they_are_and_the_bus_s_own_are_passed_over() {
    let behind = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let bus = Bus::builder().over(Arc::new(Talking(behind))).unwrap();
    let options = LogOptions { level: Level::INFO, ..LogOptions::default() };
    let logging = Arc::new(Logging::start(bus.clone(), options).unwrap());
    let subscriber = tracing_subscriber::registry().with(helio_log_tracing::layer(&logging));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    tracing_log::LogTracer::init().unwrap();

    let line = line!() + 1;
    log::warn!(target: "motor::axis", "{} steps lost", 3);
    log::debug!(target: "motor::axis", "not taken");
    logging.logger("motor/axis").set_level(Level::DEBUG);
    log::debug!(target: "motor::axis", "taken");
    tracing::info!("an event");
    let other = std::thread::spawn(|| log::info!("from another thread"));
    other.join().unwrap();
    assert!(logging.flush(HANG_TIMEOUT));
    let said = SAID.load(Ordering::Relaxed);
    assert!(logging.flush(HANG_TIMEOUT));

    assert!(said > 0);
    assert_eq!((SAID.load(Ordering::Relaxed), logging.figures().offered), (said, 4));
    let seen = records(&bus);
    let messages: Vec<_> = seen.iter().map(|record| (record.message(), record.level)).collect();
    let expected = [
        ("3 steps lost".to_owned(), Level::WARNING),
        ("taken".to_owned(), Level::DEBUG),
        ("an event".to_owned(), Level::INFO),
        ("from another thread".to_owned(), Level::INFO),
    ];
    assert_eq!(messages, expected);
    let first = &seen[0];
    assert_eq!((first.logger.as_str(), first.site.line), ("motor/axis", line));
    assert!(first.site.file.ends_with("global.rs"), "{first:?}");
    assert_eq!((first.site.routine.as_str(), first.data.len()), ("global", 0));
    assert_eq!(seen[3].logger, "global");
}
