//! Which schemas a topic has: a log in an internal topic, read on as far as it has grown.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use helio_core::{ProducerName, SchemaId, TopicName};
use helio_journal::{
    AppendError, From, Item, Journal, LastValue, Ownership, Reader, Record, Topic, TopicConfig,
    Writer, WriterOptions,
};

use super::{SCHEME, failed};
use crate::bell::locked;
use crate::clock::{Clock, SystemClock};
use crate::error::{TransportError, engine};
use crate::transport::Declared;

const TOPIC: &str = "_helio/schemas";
const PRODUCER: &str = "_helio";
/// How often an append is tried anew after another process has claimed the name meanwhile.
const TRIES: usize = 100;

pub(super) struct Schemas {
    journal: Journal,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    reader: Option<Reader>,
    by_topic: HashMap<TopicName, Vec<SchemaId>>,
}

impl Schemas {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, known: Mutex::default() }
    }

    /// A topic's schemas, oldest first.
    pub(super) fn of(&self, topic: &TopicName) -> Result<Vec<SchemaId>, TransportError> {
        let mut known = locked(&self.known);
        if known.reader.is_none() {
            let name = internal()?;
            let log = self.journal.topic(&name).map_err(failed("open the schemas' topic"))?;
            let Some(log) = log else { return Ok(Vec::new()) };
            let reader = log.reader(0, From::Earliest);
            known.reader = Some(reader.map_err(failed("read the schemas' topic"))?);
        }
        known.read_on()?;
        Ok(known.by_topic.get(topic).cloned().unwrap_or_default())
    }

    /// Adds one, if the topic still has `after` and it is none of them.
    ///
    /// The writer is opened before the list is looked at: whoever opens one later fences it, so
    /// that nothing can come between the look and the append.
    pub(super) fn declare(
        &self,
        topic: &TopicName,
        id: SchemaId,
        after: usize,
    ) -> Result<Declared, TransportError> {
        let config = TopicConfig { last_value: LastValue::Keep, ..TopicConfig::default() };
        let log = self.journal.create_topic(&internal()?, &config);
        let log = log.map_err(failed("create the schemas' topic"))?;
        let mut key = topic.as_str().as_bytes().to_vec();
        key.push(0);
        key.extend_from_slice(&id.0.to_le_bytes());
        for _ in 0..TRIES {
            let mut writer = writer(&log)?;
            let known = self.of(topic)?;
            if known.len() != after || known.contains(&id) {
                return Ok(Declared::Behind);
            }
            let time = SystemClock::new().now();
            match writer.append(&Record { key: &key, time, ..Record::default() }) {
                Err(AppendError::Fenced { .. }) => {}
                Err(error) => return Err(engine(SCHEME, "declare a schema", error)),
                Ok(_) => return Ok(Declared::Yes),
            }
        }
        Err(TransportError::Outage {
            transport: SCHEME.to_owned(),
            cause: "too many processes declare schemas at once".to_owned(),
        })
    }
}

fn internal() -> Result<TopicName, TransportError> {
    TopicName::new(TOPIC).map_err(|error| engine(SCHEME, "name the schemas' topic", error))
}

fn writer(log: &Topic) -> Result<Writer, TransportError> {
    let producer = ProducerName::new(PRODUCER).expect("the name is legal");
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    log.writer(0, &options).map_err(failed("write the schemas' topic"))
}

impl Known {
    fn read_on(&mut self) -> Result<(), TransportError> {
        let Self { reader: Some(reader), by_topic } = self else { return Ok(()) };
        let each = |item: Item<'_>| {
            if let Item::Sample(sample) = item
                && let Some((topic, id)) = parse(sample.key)
            {
                let ids = by_topic.entry(topic).or_default();
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            ControlFlow::Continue(())
        };
        reader.poll(usize::MAX, each).map_err(failed("read the schemas' topic"))?;
        Ok(())
    }
}

fn parse(key: &[u8]) -> Option<(TopicName, SchemaId)> {
    let (name, id) = key.split_at_checked(key.len().checked_sub(9)?)?;
    let id = id[1..].try_into().ok().map(u64::from_le_bytes)?;
    Some((TopicName::new(std::str::from_utf8(name).ok()?).ok()?, SchemaId(id)))
}
