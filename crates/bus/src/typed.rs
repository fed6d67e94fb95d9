//! Topics of Rust types, encoded as Avro.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use helio_core::{Codec, HasSchema, Qos, Resolution, Schema, SchemaId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bus::Bus;
use crate::error::{PublishError, ReadError, TopicError};
use crate::event::{Event, Sample, Undecodable};
use crate::publisher::{Message, Publisher};
use crate::receipts::PendingPublish;
use crate::subscribe::{Stats, Subscribe};
use crate::subscription::Subscription;
use crate::topic::{Topic, TopicSpec};

impl Bus {
    /// Opens a topic of a Rust type.
    ///
    /// ```
    /// use helio_bus::{Bus, Qos, Start, Subscribe};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Wind {
    ///     mast: i32,
    ///     speed: f64,
    /// }
    /// helio_core::has_schema!(Wind, "site.Wind", {
    ///     mast: i32,
    ///     speed: f64 [units("m/s")],
    /// });
    ///
    /// let bus = Bus::connect("memory:")?;
    /// let wind = bus.typed::<Wind>("weather/wind", Qos::telemetry())?.key_fields(&["mast"])?;
    /// let mut samples = wind.subscribe(Subscribe::from(Start::Latest))?;
    /// wind.publish(&Wind { mast: 2, speed: 7.5 }).wait()?;
    /// let sample = samples.next_value()?;
    /// assert_eq!(sample.value, Wind { mast: 2, speed: 7.5 });
    /// assert_eq!(&sample.sample.key[..], [4]); // 2, as Avro writes an int
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bus::topic`]; [`TopicError::Schema`] if the type's schema is invalid.
    pub fn typed<T: HasSchema>(&self, name: &str, qos: Qos) -> Result<TypedTopic<T>, TopicError> {
        let spec = TopicSpec::new(name)?;
        let schema = T::schema().map_err(|error| TopicError::Schema {
            topic: spec.name.clone(),
            schema: SchemaId::BYTES,
            reason: error.to_string(),
        })?;
        let topic = self.topic(spec.qos(qos).schema(&schema))?;
        let codec = Codec::new(&schema);
        let (publisher, value) = (Arc::default(), PhantomData);
        Ok(TypedTopic { topic, codec, key: None, publisher, value })
    }
}

/// A topic of a Rust type. Cloning shares it.
#[derive(Debug)]
pub struct TypedTopic<T> {
    topic: Topic,
    codec: Codec,
    key: Option<Arc<Resolution>>,
    publisher: Arc<OnceLock<Publisher>>,
    value: PhantomData<fn(&T) -> T>,
}

impl<T> Clone for TypedTopic<T> {
    fn clone(&self) -> Self {
        Self {
            topic: self.topic.clone(),
            codec: self.codec.clone(),
            key: self.key.clone(),
            publisher: Arc::clone(&self.publisher),
            value: PhantomData,
        }
    }
}

impl<T> TypedTopic<T> {
    /// Sets the key fields: the key is the concatenation of their Avro encodings, in this order.
    ///
    /// # Errors
    /// [`TopicError::Invalid`] if the type has no such field.
    pub fn key_fields(mut self, fields: &[&str]) -> Result<Self, TopicError> {
        let name = self.topic.name().clone();
        let invalid = |value: &str, reason| TopicError::Invalid {
            topic: name.clone(),
            field: "key_fields",
            value: value.to_owned(),
            reason,
        };
        let projected = project(self.codec.schema(), fields);
        let key = projected.map_err(|field| invalid(field, "the type has no such field"))?;
        let resolution = Resolution::new(self.codec.schema(), &key);
        let resolution = resolution.map_err(|_| invalid(&fields.join(", "), "not usable"))?;
        self.key = Some(Arc::new(resolution));
        Ok(self)
    }

    /// The underlying topic of bytes.
    #[must_use]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The type's schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.codec.schema()
    }
}

/// The record of some of a record's fields, for a resolution that extracts their encodings.
fn project<'a>(schema: &Schema, fields: &[&'a str]) -> Result<Schema, &'a str> {
    let first = fields.first().copied().unwrap_or("");
    let whole = schema.to_json();
    let mut kept = Vec::new();
    for field in fields {
        let all = whole["fields"].as_array().ok_or(*field)?;
        kept.push(all.iter().find(|json| json["name"] == *field).ok_or(*field)?.clone());
    }
    let mut json = whole.clone();
    json["fields"] = kept.into();
    Schema::from_json(&json).map_err(|_| first)
}

impl<T: Serialize> TypedTopic<T> {
    /// Publishes a value, by a publisher that this topic's clones share.
    pub fn publish(&self, value: &T) -> PendingPublish {
        self.publish_with(value, |message| message)
    }

    /// Publishes a value with options: a level, a time, a guarantee, a key.
    pub fn publish_with(
        &self,
        value: &T,
        with: impl FnOnce(Message<'_>) -> Message<'_>,
    ) -> PendingPublish {
        let publisher = match self.publisher() {
            Ok(publisher) => publisher,
            Err(error) => return PendingPublish::done(Err(error)),
        };
        SCRATCH.with_borrow_mut(|(payload, key)| {
            payload.clear();
            key.clear();
            if let Err(error) = self.codec.serialize(value, payload) {
                return PendingPublish::done(Err(PublishError::Encode(error.to_string())));
            }
            if let Some(Err(error)) = self.key.as_ref().map(|fields| fields.transcode(payload, key))
            {
                return PendingPublish::done(Err(PublishError::Encode(error.to_string())));
            }
            publisher.publish(with(Message::new(payload).key(key)))
        })
    }

    fn publisher(&self) -> Result<&Publisher, PublishError> {
        if let Some(publisher) = self.publisher.get() {
            return Ok(publisher);
        }
        let opened = self.topic.publisher().map_err(|error| match error {
            TopicError::Transport(error) => PublishError::Transport(error),
            other => PublishError::NotOpened(other.to_string()),
        })?;
        Ok(self.publisher.get_or_init(|| opened))
    }
}

thread_local! {
    /// A buffer for encoding; publishing copies its contents.
    static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl<T: DeserializeOwned> TypedTopic<T> {
    /// Opens a subscription.
    ///
    /// # Errors
    /// As [`Topic::subscribe`].
    pub fn subscribe(&self, options: Subscribe) -> Result<TypedSubscription<T>, TopicError> {
        let inner = self.topic.subscribe(options)?;
        Ok(TypedSubscription { inner, codec: self.codec.clone(), value: PhantomData })
    }
}

/// A received value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<T> {
    /// The value.
    pub value: T,
    /// Its sample, with the encoded value.
    pub sample: Sample,
}

/// An event of a subscription of values.
#[derive(Debug, Clone)]
pub enum TypedEvent<T> {
    /// A value.
    Value(Received<T>),
    /// Another event: gaps, outages, values that cannot be read.
    Other(Event),
}

/// A subscription to a topic of a Rust type.
#[derive(Debug)]
pub struct TypedSubscription<T> {
    inner: Subscription,
    codec: Codec,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> TypedSubscription<T> {
    fn typed(&self, event: Event) -> TypedEvent<T> {
        let sample = match event {
            Event::Sample(sample) => sample,
            other => return TypedEvent::Other(other),
        };
        match self.codec.deserialize(&sample.payload) {
            Ok(value) => TypedEvent::Value(Received { value, sample }),
            Err(error) => {
                let (schema, reason) = (sample.header.schema, error.to_string());
                TypedEvent::Other(Event::Undecodable(Undecodable { sample, schema, reason }))
            }
        }
    }

    /// The next event, for tasks. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn next(&mut self) -> Result<TypedEvent<T>, ReadError> {
        let event = self.inner.next().await?;
        Ok(self.typed(event))
    }

    /// The next event, if one is pending.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn try_next(&mut self) -> Result<Option<TypedEvent<T>>, ReadError> {
        Ok(self.inner.try_next()?.map(|event| self.typed(event)))
    }

    /// Blocks until the next event, at most for `timeout`; `None` after the timeout.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<TypedEvent<T>>, ReadError> {
        Ok(self.inner.next_timeout(timeout)?.map(|event| self.typed(event)))
    }

    /// Blocks until the next value; skips other events, which the statistics count.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_value(&mut self) -> Result<Received<T>, ReadError> {
        loop {
            let event = self.inner.next_blocking()?;
            if let TypedEvent::Value(received) = self.typed(event) {
                return Ok(received);
            }
        }
    }

    /// The statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// The underlying subscription of bytes, to commit and to seek.
    pub fn inner(&mut self) -> &mut Subscription {
        &mut self.inner
    }
}

impl<T: DeserializeOwned> Stream for TypedSubscription<T> {
    type Item = Result<TypedEvent<T>, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.inner).poll_next(context);
        polled.map(|event| event.map(|event| event.map(|event| self.typed(event))))
    }
}
