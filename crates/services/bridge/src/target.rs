//! Opens a topic on the target, or creates it there as on the source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

use helio_bus::transport::locked;
use helio_bus::{
    Bus, Evolution, SchemaId, SchemaText, Topic, TopicError, TopicName, TopicSpec, TransportError,
};
use helio_core::{Qos, Schema};
use thiserror::Error;

use crate::overrides::Override;

/// Why a topic cannot be opened on both buses.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    /// A retry changes nothing; an operator has to decide.
    #[error("{0}")]
    Refused(String),
    /// It is retried.
    #[error("{0}")]
    Failed(String),
}

impl From<TopicError> for OpenError {
    fn from(error: TopicError) -> Self {
        match &error {
            TopicError::Refused(refusal) => {
                Self::Refused(format!("{error} (--qos {}=VALUE for a bridge)", refusal.policy))
            }
            TopicError::Transport(TransportError::Unsupported { .. })
            | TopicError::Incompatible { .. }
            | TopicError::Invalid { .. } => Self::Refused(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<TransportError> for OpenError {
    fn from(error: TransportError) -> Self {
        TopicError::from(error).into()
    }
}

/// A topic that is open on both buses.
pub(crate) struct Both {
    pub(crate) source: Topic,
    pub(crate) target: Topic,
    /// The notice's text.
    pub(crate) notice: String,
}

/// Opens a source's topic on the target. A missing topic is created with the source's quality of
/// service and the overrides; an existing one stays as it is.
pub(crate) fn open(
    to: &Bus,
    source: Topic,
    (overrides, creator): (&[Override], &TopicCreator),
) -> Result<Both, OpenError> {
    let name = source.name();
    let mut wanted = source.qos().clone();
    overrides.iter().for_each(|one| one.apply(&mut wanted));
    let (target, notice) = match to.topic(TopicSpec::of(name.clone())) {
        Ok(target) => {
            let notice = difference(target.qos(), &wanted);
            (target, notice.unwrap_or_else(|| "exists on the target".to_owned()))
        }
        Err(TopicError::NoSuchTopic(_)) => {
            let spec = TopicSpec::of(name.clone()).qos(wanted);
            creator.create(to, &spec);
            (to.topic(spec)?, "created on the target".to_owned())
        }
        Err(error) => return Err(error.into()),
    };
    let (here, there) = (source.qos().partitions, target.qos().partitions);
    if here != there {
        return Err(OpenError::Refused(format!(
            "partitions = {here} on the source, {there} on the target: a bridge keeps each \
             sample's partition, as sequences and order hold within one; remove the topic there, \
             or forward to another bus"
        )));
    }
    Ok(Both { source, target, notice })
}

/// Creates topics on the target in batches: requests that arrive during a batch form the next one.
#[derive(Default)]
pub(crate) struct TopicCreator {
    queue: Mutex<Queue>,
    finished: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<TopicSpec>,
    is_busy: bool,
    /// The numbers of batches that were started and finished.
    started: u64,
    finished: u64,
}

impl TopicCreator {
    /// Returns when the target has tried to create the topic. Opening it reports errors.
    fn create(&self, to: &Bus, spec: &TopicSpec) {
        let mut queue = locked(&self.queue);
        queue.waiting.push(spec.clone());
        let turn = queue.started + 1;
        while queue.finished < turn {
            if queue.is_busy {
                let waited = self.finished.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_busy = true;
            queue.started += 1;
            let all = std::mem::take(&mut queue.waiting);
            drop(queue);
            // If this fails, opening creates each topic alone.
            let _ = catch_unwind(AssertUnwindSafe(|| to.make_topics(&all, |_| {})));
            queue = locked(&self.queue);
            (queue.is_busy, queue.finished) = (false, queue.started);
            self.finished.notify_all();
        }
    }
}

/// The first field in which the target's topic differs from the wanted one.
fn difference(existing: &Qos, wanted: &Qos) -> Option<String> {
    let (is, other) = (serde_json::to_value(existing).ok()?, serde_json::to_value(wanted).ok()?);
    let (field, value) =
        is.as_object()?.iter().find(|(field, value)| other.get(*field) != Some(*value))?;
    let wanted = other.get(field)?;
    Some(format!("exists on the target with {field} = {value}, not {wanted}; it is not changed"))
}

/// Adds a schema of the source to the target's topic; returns false if the source lacks its text,
/// or has a text that is not the schema's: it would be of no use to the target's readers.
pub(crate) fn carry_schema(
    (from, to): (&Bus, &Bus),
    name: &TopicName,
    id: SchemaId,
) -> Result<bool, OpenError> {
    let is_text_of = |text: &str| Schema::parse(text).is_ok_and(|schema| schema.id() == id);
    let text = match from.schema(id) {
        Ok(Some(text)) if is_text_of(&text) => text,
        Ok(_) | Err(TransportError::SchemaEdited { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let schema = SchemaText { id, text: text.into() };
    let spec = TopicSpec::of(name.clone()).schema(schema).evolution(Evolution::None);
    to.topic(spec)?.declare()?;
    Ok(true)
}
