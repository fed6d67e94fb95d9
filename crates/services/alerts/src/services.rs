//! Where the services of a stream are reached.
//!
//! A record in the topic `T/services` has the name of a service and its URL, the newest of a name
//! counts. So readers need no configuration to get stamps by URL, and a service may move.

use std::time::Duration;

use helio_bus::{
    Bus, Event, Message, PublishError, ReadError, Start, Subscribe, TopicError, TopicSpec,
};
use helio_core::Qos;
use helio_core::codec::{Codec, EncodeError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::topics::{Part, open_or_create, schema_of};

/// The service that returns stamps.
pub const STAMPS_SERVICE: &str = "stamps";
/// The placeholder of an alert's identifier in the URL of stamps.
const ALERT: &str = "{alert}";
/// The placeholder of a stamp's name.
const STAMP: &str = "{stamp}";
/// How long stored records are waited for that the engine has announced.
const STORED_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a record's receipt is waited for.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Why services are not found or announced.
#[derive(Debug, Error)]
pub enum ServicesError {
    /// The topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The record cannot be encoded.
    #[error("the record: {0}")]
    Encode(#[from] EncodeError),
    /// The bus did not accept the record.
    #[error("the bus did not accept the record: {0}")]
    NotAccepted(#[from] PublishError),
}

/// A service of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAddress {
    /// The service's name.
    pub name: String,
    /// Its URL; for [`STAMPS_SERVICE`] a template of [`StampUrls`].
    pub url: String,
    /// When it was announced, TAI nanoseconds since 1970.
    pub since_ns: i64,
}

helio_core::has_schema!(ServiceAddress, "helio.alerts.ServiceAddress", {
    name: String [],
    url: String [description("of stamps: with {alert} and {stamp} in place of the names")],
    since_ns: i64 [units("ns"), description("TAI since 1970")],
});

/// The URLs of stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampUrls {
    template: String,
}

impl StampUrls {
    /// Those below an address, such as `http://127.0.0.1:9464`.
    #[must_use]
    pub fn below(address: &str) -> Self {
        Self { template: format!("{}/stamps/{ALERT}/{STAMP}", address.trim_end_matches('/')) }
    }

    /// Those of a template.
    #[must_use]
    pub fn of_template(template: &str) -> Self {
        Self { template: template.to_owned() }
    }

    /// The template.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The URL of a stamp, named by its field, such as `cutoutScience`.
    #[must_use]
    pub fn url(&self, alert: i64, stamp: &str) -> String {
        self.template.replace(ALERT, &alert.to_string()).replace(STAMP, stamp)
    }

    /// Those that a stream's service has announced; `None` if there is none.
    ///
    /// # Errors
    /// [`ServicesError`].
    pub fn of_stream(bus: &Bus, stream: &str) -> Result<Option<Self>, ServicesError> {
        let found = find(bus, stream, STAMPS_SERVICE)?;
        Ok(found.map(|service| Self { template: service.url }))
    }
}

fn spec(stream: &str) -> Result<TopicSpec, TopicError> {
    Ok(TopicSpec::of(Part::Services.name(stream)?).schema(schema_of::<ServiceAddress>()))
}

/// Announces a service. The one of its name that was announced before counts no more.
///
/// # Errors
/// [`ServicesError`].
pub fn announce(bus: &Bus, stream: &str, name: &str, url: &str) -> Result<(), ServicesError> {
    let topic = open_or_create(bus, spec(stream)?, Qos::event)?;
    let since_ns = bus.clock().now().nanos();
    let record = ServiceAddress { name: name.to_owned(), url: url.to_owned(), since_ns };
    let mut payload = Vec::new();
    Codec::new(&schema_of::<ServiceAddress>()).serialize(&record, &mut payload)?;
    let publisher = topic.publisher()?;
    publisher.publish(Message::new(&payload).key(name.as_bytes())).wait_timeout(PUBLISH_TIMEOUT)?;
    Ok(())
}

/// Finds the service that was announced last under a name; `None` if there is none.
///
/// # Errors
/// [`ServicesError`].
pub fn find(bus: &Bus, stream: &str, name: &str) -> Result<Option<ServiceAddress>, ServicesError> {
    let topic = match bus.topic(spec(stream)?) {
        Err(TopicError::NoSuchTopic(_)) => return Ok(None),
        topic => topic?,
    };
    let codec = Codec::new(&schema_of::<ServiceAddress>());
    let mut subscription = topic.subscribe(Subscribe::from(Start::Last(1)).keys([name]))?;
    subscription.set_fence()?;
    let mut found = None;
    while let Some(event) = subscription.next_stored(STORED_TIMEOUT)? {
        if let Event::Sample(sample) = event {
            found = codec.deserialize::<ServiceAddress>(&sample.payload).ok().or(found);
        }
    }
    Ok(found)
}
