//! The topic of a user's results.

use helio_bus::{Bus, Qos, Topic, TopicError};
use helio_core::qos::{Ownership, Retention};

use crate::names::spec;

/// Opens a user's topic of results, or creates it.
pub(crate) fn open_results(bus: &Bus, name: &str, max_bytes: u64) -> Result<Topic, TopicError> {
    match bus.topic(spec(name)?) {
        Err(TopicError::NoSuchTopic(_)) => {
            let retention =
                Retention { bytes: Some(max_bytes), age: None, last_value: false, default: false };
            let ownership = Ownership::Exclusive;
            bus.topic(spec(name)?.qos(Qos { ownership, retention, ..Qos::stream() }))
        }
        opened => opened,
    }
}
