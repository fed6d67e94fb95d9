//! The declared schemas of all topics: a log in an internal topic, read incrementally.

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

const SCHEMA_TOPIC: &str = "_helio/schemas";
const SCHEMA_PRODUCER: &str = "_helio";
/// The payload that removes a schema from its topic's list.
const FORGOTTEN_PAYLOAD: &[u8] = b"forgotten";
/// How often an append is retried after another process has claimed the name.
const MAX_APPEND_ATTEMPTS: usize = 100;

pub(super) struct Schemas {
    journal: Journal,
    known: Mutex<SchemaLog>,
    /// The last declaration's writer. It is reused until another process opens one, because each
    /// claim waits for the disk. It is locked during a declaration.
    writer: Mutex<Option<Writer>>,
}

#[derive(Default)]
struct SchemaLog {
    reader: Option<Reader>,
    by_topic: HashMap<TopicName, Vec<SchemaId>>,
}

impl Schemas {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, known: Mutex::default(), writer: Mutex::default() }
    }

    /// A topic's schemas, oldest first.
    pub(super) fn of(&self, topic: &TopicName) -> Result<Vec<SchemaId>, TransportError> {
        let mut known = locked(&self.known);
        match self.read(&mut known) {
            Err(TransportError::TopicGone { .. }) => {
                *known = SchemaLog::default();
                self.read(&mut known)?;
            }
            read => read?,
        }
        Ok(known.by_topic.get(topic).cloned().unwrap_or_default())
    }

    /// Reads the new declarations.
    fn read(&self, known: &mut SchemaLog) -> Result<(), TransportError> {
        if known.reader.is_none() {
            let name = internal()?;
            let log = self.journal.topic(&name).map_err(failed("open the schemas' topic"))?;
            let Some(log) = log else { return Ok(()) };
            let reader = log.reader(0, From::Earliest);
            known.reader = Some(reader.map_err(failed("read the schemas' topic"))?);
        }
        known.catch_up()
    }

    /// Adds a schema if the topic still has `after` and it is not among them.
    ///
    /// The writer is opened before the list is read. A later writer of another process fences it,
    /// so that no other declaration is appended between the two.
    pub(super) fn declare(
        &self,
        topic: &TopicName,
        id: SchemaId,
        after: usize,
    ) -> Result<Declared, TransportError> {
        let mut writer = locked(&self.writer);
        let key = key(topic, id);
        for _ in 0..MAX_APPEND_ATTEMPTS {
            let open = match &mut *writer {
                Some(open) => open,
                None => writer.insert(self.open_writer()?),
            };
            let known = self.of(topic)?;
            if known.len() != after || known.contains(&id) {
                return Ok(Declared::Behind);
            }
            let time = SystemClock::new().now();
            match open.append(&Record { key: &key, time, ..Record::default() }) {
                Ok(_) => return Ok(Declared::Yes),
                Err(AppendError::Fenced { .. }) => *writer = None,
                Err(error) => {
                    *writer = None;
                    return Err(engine(SCHEME, "declare a schema", error));
                }
            }
        }
        Err(TransportError::Outage {
            transport: SCHEME.to_owned(),
            cause: "too many processes declare schemas at once".to_owned(),
        })
    }

    /// Removes the schemas of a removed topic.
    pub(super) fn forget(&self, topic: &TopicName) -> Result<(), TransportError> {
        if self.of(topic)?.is_empty() {
            return Ok(());
        }
        let mut writer = locked(&self.writer);
        // A concurrent declaration is fenced.
        let open = writer.insert(self.open_writer()?);
        for id in self.of(topic)? {
            let (key, time) = (key(topic, id), SystemClock::new().now());
            let forgotten =
                Record { key: &key, time, payload: FORGOTTEN_PAYLOAD, ..Record::default() };
            open.append(&forgotten).map_err(|error| engine(SCHEME, "forget a schema", error))?;
        }
        Ok(())
    }

    /// Lets a user read the topics' schemas.
    pub(super) fn share(&self, user: u32) -> Result<(), TransportError> {
        let log = self.log()?;
        self.journal.share(log.name(), user).map_err(failed("share the schemas' topic"))?;
        Ok(())
    }

    /// The topic, created if there is none.
    fn log(&self) -> Result<Topic, TransportError> {
        let config = TopicConfig { last_value: LastValue::Keep, ..TopicConfig::default() };
        let log = self.journal.create_topic(&internal()?, &config);
        log.map_err(failed("create the schemas' topic"))
    }

    fn open_writer(&self) -> Result<Writer, TransportError> {
        let log = self.log()?;
        let producer = ProducerName::new(SCHEMA_PRODUCER).expect("the name is legal");
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        log.writer(0, &options).map_err(failed("write the schemas' topic"))
    }
}

fn internal() -> Result<TopicName, TransportError> {
    TopicName::new(SCHEMA_TOPIC).map_err(|error| engine(SCHEME, "name the schemas' topic", error))
}

impl SchemaLog {
    fn catch_up(&mut self) -> Result<(), TransportError> {
        let Self { reader: Some(reader), by_topic } = self else { return Ok(()) };
        let each = |item: Item<'_>| {
            if let Item::Sample(sample) = item
                && let Some((topic, id)) = parse(sample.key)
            {
                let ids = by_topic.entry(topic).or_default();
                if sample.payload == FORGOTTEN_PAYLOAD {
                    ids.retain(|known| *known != id);
                } else if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            ControlFlow::Continue(())
        };
        reader.poll(usize::MAX, each).map_err(failed("read the schemas' topic"))?;
        Ok(())
    }
}

fn key(topic: &TopicName, id: SchemaId) -> Vec<u8> {
    [topic.as_str().as_bytes(), &[0], &id.0.to_le_bytes()].concat()
}

fn parse(key: &[u8]) -> Option<(TopicName, SchemaId)> {
    let (name, id) = key.split_at_checked(key.len().checked_sub(9)?)?;
    let id = id[1..].try_into().ok().map(u64::from_le_bytes)?;
    Some((TopicName::new(std::str::from_utf8(name).ok()?).ok()?, SchemaId(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_journal::JournalOptions;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A process's view of the journal in a folder, and how often it waited for the disk to claim
    /// the name.
    fn process(folder: &Path) -> (Schemas, Arc<AtomicUsize>) {
        let claims = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&claims);
        let hook = move |path: &Path| {
            let claim = path.ends_with("_helio+schemas/producers");
            counted.fetch_add(usize::from(claim), Ordering::Relaxed);
            Ok(())
        };
        let options = JournalOptions { sync_hook: Some(Arc::new(hook)), ..Default::default() };
        (Schemas::new(Journal::open(folder, options).unwrap()), claims)
    }

    fn topic(number: u64) -> TopicName {
        TopicName::new(&format!("wind/{number}")).unwrap()
    }

    #[test]
    fn many_declarations_take_one_claim() {
        let folder = tempfile::tempdir().unwrap();
        let (schemas, claims) = process(folder.path());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let schemas = &schemas;
                scope.spawn(move || {
                    for number in (0..80).skip(thread).step_by(8) {
                        let declared = schemas.declare(&topic(number), SchemaId(number), 0);
                        assert_eq!(declared.unwrap(), Declared::Yes);
                    }
                });
            }
        });
        // Background syncs of the log are not counted.
        assert!(claims.load(Ordering::Relaxed) <= 2, "{claims:?}");
        for number in 0..80 {
            assert_eq!(schemas.of(&topic(number)).unwrap(), [SchemaId(number)]);
        }
    }

    #[test]
    fn a_writer_that_was_kept_is_fenced_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let [(one, _), (two, _)] = [(); 2].map(|()| process(folder.path()));
        let topic = topic(0);
        for number in 0..10 {
            let (next, last) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let declare =
                |who: &Schemas, after: usize| who.declare(&topic, SchemaId(number), after).unwrap();
            assert_eq!(declare(next, number as usize + 1), Declared::Behind);
            assert_eq!(declare(next, number as usize), Declared::Yes);
            assert_eq!(declare(last, number as usize), Declared::Behind);
            assert_eq!(last.of(&topic).unwrap().len(), number as usize + 1);
        }
    }

    #[test]
    fn schemas_that_are_forgotten_are_declared_anew_from_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let [(one, _), (two, _)] = [(); 2].map(|()| process(folder.path()));
        for (after, id) in [(0, 7), (1, 8)] {
            assert_eq!(one.declare(&topic(0), SchemaId(id), after).unwrap(), Declared::Yes);
        }
        one.declare(&topic(1), SchemaId(7), 0).unwrap();
        two.forget(&topic(0)).unwrap();
        assert_eq!(one.of(&topic(0)).unwrap(), []);
        assert_eq!(one.of(&topic(1)).unwrap(), [SchemaId(7)], "another topic's stay");
        assert_eq!(one.declare(&topic(0), SchemaId(8), 0).unwrap(), Declared::Yes);
        let (later, _) = process(folder.path());
        assert_eq!(later.of(&topic(0)).unwrap(), [SchemaId(8)]);
    }
}
