//! A topic on both buses: opened, and made on the target as it is on the source.

use helio_bus::{
    Bus, Evolution, SchemaId, SchemaText, Topic, TopicError, TopicName, TopicSpec, TransportError,
};
use helio_core::Qos;
use thiserror::Error;

use crate::overrides::Override;

/// Why a topic cannot be opened on both buses.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    /// Trying again changes nothing: somebody has to decide.
    #[error("{0}")]
    Refused(String),
    /// It is tried again.
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
    /// What is to be told of it.
    pub(crate) told: String,
}

/// Opens on the target a topic of the source. It is made with the source's quality of service and
/// what overrides that, or taken as it is where it exists.
pub(crate) fn open(to: &Bus, source: Topic, overrides: &[Override]) -> Result<Both, OpenError> {
    let name = source.name();
    let mut wanted = source.qos().clone();
    overrides.iter().for_each(|one| one.apply(&mut wanted));
    let (target, told) = match to.topic(TopicSpec::of(name.clone())) {
        Ok(target) => {
            let told = difference(target.qos(), &wanted);
            (target, told.unwrap_or_else(|| "exists on the target".to_owned()))
        }
        Err(TopicError::NoSuchTopic(_)) => {
            let spec = TopicSpec::of(name.clone()).qos(wanted);
            (to.topic(spec)?, "created on the target".to_owned())
        }
        Err(error) => return Err(error.into()),
    };
    let (here, there) = (source.qos().partitions, target.qos().partitions);
    if here != there {
        return Err(OpenError::Refused(format!(
            "partitions = {here} on the source, {there} on the target: a bridge keeps each \
             sample's partition, as numbers and order hold within one; remove the topic there, or \
             forward to another bus"
        )));
    }
    Ok(Both { source, target, told })
}

/// The first field in which the target's topic differs from what was wanted.
fn difference(existing: &Qos, wanted: &Qos) -> Option<String> {
    let (is, other) = (serde_json::to_value(existing).ok()?, serde_json::to_value(wanted).ok()?);
    let (field, value) =
        is.as_object()?.iter().find(|(field, value)| other.get(*field) != Some(*value))?;
    let wanted = other.get(field)?;
    Some(format!("exists on the target with {field} = {value}, not {wanted}; it stays so"))
}

/// Makes a schema of the source one of the target's topic. What cannot be parsed is carried as
/// text: its samples are as unreadable there as here.
pub(crate) fn carry_schema(
    (from, to): (&Bus, &Bus),
    name: &TopicName,
    id: SchemaId,
) -> Result<(), OpenError> {
    let Some(text) = from.schema(id)? else { return Ok(()) };
    let schema = SchemaText { id, text: text.into() };
    let spec = TopicSpec::of(name.clone()).schema(schema.clone()).evolution(Evolution::None);
    match to.topic(spec)?.declare() {
        Err(TopicError::Schema { .. }) => Ok(to.put_schema(&schema)?),
        other => Ok(other?),
    }
}
