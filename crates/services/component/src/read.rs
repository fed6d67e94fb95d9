//! Reading a topic: the newest value, the next value, and losses.
//!
//! Constraints. A reader has its own cursor in the topic and no queue: unread samples stay in the
//! transport. It begins with the newest value of each of its instances, including quiet ones.
//! Commands and acknowledgements have no historical data.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{
    Alive, Bus, Event, Lagging, Producer, Sample, Start, Stats, Subscribe, Subscription, Tai, Topic,
};
use helio_core::Value;
use helio_core::sal::TopicKind;
use serde_json::Value as Json;

use crate::fields::Fields;
use crate::interface::{PrivateField, Shape};
use crate::losses::{Loss, Losses};
use crate::protocol::sequence_gaps::SequenceStats;
use crate::timestamps;
use crate::topic::{self, STORED_TIMEOUT, TopicReadError};
use crate::warnings::Warnings;

/// A received sample.
#[derive(Debug, Clone)]
pub struct Reading {
    fields: Fields,
    sample: Sample,
}

impl Reading {
    pub(crate) fn decode(
        shape: &Arc<Shape>,
        sample: Sample,
        now: Tai,
    ) -> Result<Self, TopicReadError> {
        let wrong = |reason: String| {
            let topic = shape.topic().to_string();
            TopicReadError::Undecodable { topic, reason }
        };
        match shape.codec().decode(&sample.payload) {
            Ok(Value::Record(mut record)) => {
                record[shape.at(PrivateField::RcvStamp)] = Value::Double(timestamps::stamps(now).0);
                Ok(Self { fields: Fields::of(shape, record), sample })
            }
            Ok(other) => Err(wrong(format!("it is a {}", other.word()))),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// The public fields.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    pub(crate) fn into_fields(self) -> Fields {
        self.fields
    }

    /// The sample with the bus's metadata: producer, time, trace, headers.
    #[must_use]
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// The producer's name on the bus, and its incarnation.
    pub(crate) fn producer(&self) -> &Producer {
        &self.sample.header.producer
    }

    /// The publisher: a component's name, with `:index` if it is indexed, or user@host.
    #[must_use]
    pub fn identity(&self) -> &str {
        match &self.fields.record()[self.fields.shape().at(PrivateField::Identity)] {
            Value::String(identity) => identity,
            _ => "",
        }
    }

    /// The publishing process.
    #[must_use]
    pub fn origin(&self) -> i32 {
        self.int(PrivateField::Origin)
    }

    /// The publisher's sequence number.
    #[must_use]
    pub fn seq_num(&self) -> i32 {
        self.int(PrivateField::SeqNum)
    }

    /// The instance; 0 if the component is not indexed.
    #[must_use]
    pub fn index(&self) -> i32 {
        match self.fields.record().first() {
            Some(Value::Int(index)) if self.fields.shape().topic().indexed() => *index,
            _ => 0,
        }
    }

    /// The time of publishing, from `private_sndStamp`: TAI seconds since 1970.
    #[must_use]
    pub fn sent_s(&self) -> f64 {
        match self.fields.record()[self.fields.shape().at(PrivateField::SndStamp)] {
            Value::Double(stamp) => stamp,
            _ => 0.0,
        }
    }

    /// A numeric field; see [`Fields::number`].
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.fields.number(name)
    }

    /// An integer field; see [`Fields::integer`].
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.fields.integer(name)
    }

    /// A text field; see [`Fields::text`].
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.text(name)
    }

    /// The public fields as JSON.
    #[must_use]
    pub fn to_json(&self) -> Json {
        self.fields.to_json()
    }

    fn int(&self, field: PrivateField) -> i32 {
        match self.fields.record()[self.fields.shape().at(field)] {
            Value::Int(number) => number,
            _ => 0,
        }
    }
}

/// A topic for reading, starting at the newest value of each instance.
pub struct ReadTopic {
    bus: Bus,
    shape: Arc<Shape>,
    topic: Topic,
    index: i32,
    queue: Subscription,
    losses: Losses,
    warnings: Warnings,
    warned: bool,
    /// A second cursor for the newest value; opened on first use.
    newest: Option<Subscription>,
    kept: Option<Reading>,
}

impl ReadTopic {
    /// A reader of one instance, or of all if the index is 0.
    pub(crate) fn open(
        bus: &Bus,
        shape: Arc<Shape>,
        index: i32,
        warnings: &Warnings,
    ) -> Result<Self, TopicReadError> {
        let topic = topic::open(bus, &shape, None).map_err(|error| failed(&shape, &error))?;
        let queue = subscribe(&topic, &shape, index, Lagging::Lossless)?;
        let (bus, losses, warnings) = (bus.clone(), Losses::new(shape.schema()), warnings.clone());
        let (warned, newest, kept) = (false, None, None);
        Ok(Self { bus, shape, topic, index, queue, losses, warnings, warned, newest, kept })
    }

    /// The topic.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The newest value, if there is one. It does not consume values of [`next`](Self::next). The
    /// first call waits until the stored values have arrived.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn newest(&mut self) -> Result<Option<&Reading>, TopicReadError> {
        let mut samples = match self.newest.take() {
            Some(samples) => samples,
            None => {
                let lagging = Lagging::Conflate;
                let mut samples = subscribe(&self.topic, &self.shape, self.index, lagging)?;
                samples.set_fence().map_err(|source| bus_failed(&self.shape, source))?;
                samples
            }
        };
        let (shape, mut wrong) = (Arc::clone(&self.shape), None);
        let failed = |source| bus_failed(&shape, source);
        // Without a fence, it returns what has arrived.
        while let Some(event) = samples.next_stored(STORED_TIMEOUT).map_err(failed)? {
            self.keep(event, &mut wrong);
        }
        self.newest = Some(samples);
        // Reported once; the next call returns the value before it.
        wrong.map_or(Ok(()), Err)?;
        Ok(self.kept.as_ref())
    }

    /// Keeps a value as the newest, or why it cannot be read.
    fn keep(&mut self, event: Event, wrong: &mut Option<TopicReadError>) {
        match event {
            Event::Sample(sample) => {
                match Reading::decode(&self.shape, sample, self.bus.clock().now()) {
                    Ok(reading) => (self.kept, *wrong) = (Some(reading), None),
                    Err(error) => *wrong = Some(error),
                }
            }
            Event::Undecodable(newer) => *wrong = Some(undecodable(&self.shape, &newer)),
            _ => {}
        }
    }

    /// Waits for a value newer than the last [newest](Self::newest) one.
    pub(crate) fn wait_newer(&mut self, at_most: Duration) -> Result<(), TopicReadError> {
        let Some(samples) = &mut self.newest else { return Ok(()) };
        let waited = samples.wait_until(Instant::now().checked_add(at_most));
        waited.map(drop).map_err(|source| bus_failed(&self.shape, source))
    }

    /// Whether that incarnation of a producer still writes the topic, as far as the bus knows.
    pub(crate) fn has_writer(&self, producer: &Producer) -> Result<bool, TopicReadError> {
        let writers = match self.topic.writers() {
            Err(error) if error.is_outage() => Ok(Vec::new()),
            told => told.map_err(|error| failed(&self.shape, &error)),
        }?;
        Ok(writers.iter().any(|w| w.producer == *producer && w.alive != Some(Alive::No)))
    }

    /// The oldest unread value, if there is one now.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn try_next(&mut self) -> Result<Option<Reading>, TopicReadError> {
        loop {
            let event = self.queue.try_next().map_err(|source| bus_failed(&self.shape, source))?;
            let loss = event.as_ref().and_then(|event| self.losses.event(event));
            self.warn(loss);
            match event {
                None => return Ok(None),
                Some(Event::Sample(sample)) => {
                    return Reading::decode(&self.shape, sample, self.bus.clock().now()).map(Some);
                }
                Some(Event::Undecodable(wrong)) => return Err(undecodable(&self.shape, &wrong)),
                Some(_) => {}
            }
        }
    }

    /// The oldest unread value; waits for one, at most for `timeout`.
    ///
    /// # Errors
    /// [`TopicReadError::Timeout`] if none arrived.
    pub fn next(&mut self, timeout: Duration) -> Result<Reading, TopicReadError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(reading) = self.try_next()? {
                return Ok(reading);
            }
            let more = self.queue.wait_until(until);
            if !more.map_err(|source| bus_failed(&self.shape, source))? {
                return Err(TopicReadError::Timeout { topic: self.shape.topic().to_string() });
            }
        }
    }

    /// The next value that satisfies a condition; values before it are skipped.
    ///
    /// # Errors
    /// [`TopicReadError::Timeout`] if none arrived.
    pub fn next_where(
        &mut self,
        timeout: Duration,
        mut condition: impl FnMut(&Reading) -> bool,
    ) -> Result<Reading, TopicReadError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left = until.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            let reading = self.next(left)?;
            if condition(&reading) {
                return Ok(reading);
            }
        }
    }

    /// Skips everything that was published so far, also what has not arrived yet.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn flush(&mut self) -> Result<(), TopicReadError> {
        let shape = Arc::clone(&self.shape);
        let failed = |source| bus_failed(&shape, source);
        self.queue.set_fence().map_err(failed)?;
        while let Some(event) = self.queue.next_stored(STORED_TIMEOUT).map_err(failed)? {
            let loss = self.losses.event(&event);
            self.warn(loss);
        }
        Ok(())
    }

    /// Blocks for each value, without an end.
    pub fn iter(&mut self) -> impl Iterator<Item = Result<Reading, TopicReadError>> {
        std::iter::from_fn(|| Some(self.next(Duration::MAX)))
    }

    /// The received, lost and unread samples, as the bus counts them. Losses and repetitions of
    /// writers that the bus does not number are included, by their `private_seqNum`; their repeated
    /// samples are delivered nevertheless.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (bus, own) = (self.queue.stats(), self.losses.stats());
        let (lost, duplicates) = (bus.lost + own.lost, bus.duplicates + own.repeated);
        Stats { lost, duplicates, ..bus }
    }

    /// The counts by `private_seqNum` alone, of writers that the bus does not number.
    #[must_use]
    pub fn number_stats(&self) -> SequenceStats {
        self.losses.stats()
    }

    /// Warns of the first loss; the counters show the total.
    fn warn(&mut self, loss: Option<Loss>) {
        if let Some(loss) = loss
            && !std::mem::replace(&mut self.warned, true)
        {
            self.warnings.tell(&format!("{}: {loss}", self.shape.topic()));
        }
    }
}

impl std::fmt::Debug for ReadTopic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadTopic({})", self.shape.topic())
    }
}

fn subscribe(
    topic: &Topic,
    shape: &Arc<Shape>,
    index: i32,
    lagging: Lagging,
) -> Result<Subscription, TopicReadError> {
    let start = match shape.topic().kind() {
        TopicKind::Event | TopicKind::Telemetry => Start::Last(1),
        TopicKind::Command | TopicKind::Ack => Start::Latest,
    };
    let options = of_instance(Subscribe::from(start), shape, index).lagging(lagging);
    topic.subscribe(options).map_err(|error| failed(shape, &error))
}

/// Restricts a subscription to one instance, or to none if the index is 0.
pub(crate) fn of_instance(options: Subscribe, shape: &Shape, index: i32) -> Subscribe {
    if shape.topic().indexed() && index != 0 { options.keys([shape.key(index)]) } else { options }
}

fn failed(shape: &Shape, error: &helio_bus::TopicError) -> TopicReadError {
    TopicReadError::Open { topic: shape.topic().to_string(), reason: error.to_string() }
}

fn bus_failed(shape: &Shape, source: helio_bus::ReadError) -> TopicReadError {
    TopicReadError::Bus { topic: shape.topic().to_string(), source }
}

fn undecodable(shape: &Shape, wrong: &helio_bus::Undecodable) -> TopicReadError {
    TopicReadError::Undecodable { topic: shape.topic().to_string(), reason: wrong.reason.clone() }
}
