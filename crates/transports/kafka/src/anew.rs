//! Topics that others delete and make anew under the same name, told apart by their ids.
//!
//! librdkafka keeps what it knows of a partition by its topic's name: how far it has read, and the
//! epoch of its leader. Those of the new topic's leaders begin again, look like old news, and are
//! passed over for ever. Whoever reads such a topic is therefore given another consumer, from the
//! new topic's first records on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::{Begin, locked};

use crate::connection::Connection;
use crate::fetcher::{Place, Queue, Wake};
use crate::group::{Joined, Member};
use crate::native::{self, Described, TopicId};
use crate::reader::{Source, Start};
use crate::topic::TopicState;

/// How often it is looked whether topics have more partitions, or are others.
const LOOK: Duration = Duration::from_secs(20);
/// How long the brokers have for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// With what a topic that was made anew is read.
pub(crate) struct Anew {
    // Before the source: queues go before the consumer that fills them.
    pub(crate) queues: Vec<(Start, Queue)>,
    pub(crate) source: Source,
}

/// Which partitions a reader reads.
pub(crate) enum Reads {
    All,
    These(Vec<u32>),
    /// Those of a group's member.
    Shared(Joined),
}

/// A reader that is told of what others do to its topic.
pub(crate) struct Told {
    pub(crate) wake: Weak<Wake>,
    topic: Weak<TopicState>,
    reads: Reads,
    /// Where it has begun.
    begin: Begin,
    /// The one that it reads; none until it was seen.
    id: Mutex<Option<TopicId>>,
}

impl Told {
    pub(crate) fn new(
        wake: &Arc<Wake>,
        topic: &Arc<TopicState>,
        (reads, begin, id): (Reads, &Begin, Option<TopicId>),
    ) -> Self {
        let (wake, topic) = (Arc::downgrade(wake), Arc::downgrade(topic));
        Self { wake, topic, reads, begin: begin.clone(), id: Mutex::new(id) }
    }

    /// Where partitions of the topic end, as their brokers say.
    pub(crate) fn ends(
        &self,
        partitions: &[u32],
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        match self.topic.upgrade() {
            Some(topic) if !partitions.is_empty() => {
                topic.connection.client.all_ends(&topic.kafka, partitions, patience)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Has the reader go on at these places with a consumer that was started since then; a group's
    /// member goes, and comes again. This waits for the brokers.
    pub(crate) fn go_on(&self, places: &[Place], since: Instant) -> Result<(), TransportError> {
        let (Some(wake), Some(topic)) = (self.wake.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        // Nobody finds it to be another topic meanwhile.
        let id = locked(&self.id);
        let next: Vec<_> = places.iter().map(|place| (place.partition, place.next)).collect();
        if let Reads::Shared(joined) = &self.reads {
            let described = topic.connection.described(&topic.kafka, Duration::ZERO)?;
            let begin = (&self.begin, &wake);
            let member = Member::join((&topic, described), joined.clone().at(next), begin)?;
            wake.go_on(Anew { queues: Vec::new(), source: Source::Member(member) });
            return Ok(());
        }
        let partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        let pool = &topic.connection.pool;
        let mut lent = pool.lend_since((&topic.kafka, *id), (&partitions, topic.pace()), since)?;
        let queues = lent.assign(&next, &wake)?;
        let starts = next.into_iter().map(|(partition, offset)| Start::at(partition, offset));
        wake.go_on(Anew { queues: starts.zip(queues).collect(), source: Source::Lent(lent) });
        Ok(())
    }

    /// The topic's name, while somebody reads it.
    fn name(&self) -> Option<String> {
        self.wake.upgrade()?;
        Some(self.topic.upgrade()?.kafka.clone())
    }

    /// Looks at what the brokers say of the topic. Where it is another one, this does not wait for
    /// its leaders: its consumer begins when they are there.
    fn look(&self, described: Described) -> Result<(), TransportError> {
        let (Some(wake), Some(topic)) = (self.wake.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        let mut id = locked(&self.id);
        match *id {
            Some(id) if id != described.id => {
                let anew = self.anew(&topic, &wake, described)?;
                wake.renew(anew, described.partitions);
                wake.there();
                if let Some(these) = self.are_gone(described.partitions) {
                    wake.gone(&format!("what is read of the topic {}, {these:?}", topic.kafka));
                }
            }
            Some(_) => wake.is_same(),
            None => {}
        }
        *id = Some(described.id);
        wake.has(described.partitions);
        Ok(())
    }

    /// The partitions that it reads, where none of them is there.
    fn are_gone(&self, there: u32) -> Option<&[u32]> {
        match &self.reads {
            Reads::These(named) => named.iter().all(|named| *named >= there).then_some(named),
            Reads::All | Reads::Shared(_) => None,
        }
    }

    fn anew(
        &self,
        topic: &Arc<TopicState>,
        wake: &Arc<Wake>,
        described: Described,
    ) -> Result<Anew, TransportError> {
        let all = 0..described.partitions;
        let partitions: Vec<u32> = match &self.reads {
            Reads::All => all.collect(),
            Reads::These(named) => all.filter(|partition| named.contains(partition)).collect(),
            Reads::Shared(joined) => {
                let begin = (&Begin::Earliest, wake);
                let member = Member::join((topic, Some(described)), joined.clone(), begin)?;
                return Ok(Anew { queues: Vec::new(), source: Source::Member(member) });
            }
        };
        let named = (&*topic.kafka, Some(described.id));
        let mut lent = topic.connection.pool.lend(named, &partitions, topic.pace())?;
        let places: Vec<_> = partitions.iter().map(|partition| (*partition, 0)).collect();
        let queues = lent.assign(&places, wake)?;
        let queues = partitions.into_iter().map(Start::first).zip(queues).collect();
        Ok(Anew { queues, source: Source::Lent(lent) })
    }
}

/// Starts the thread that looks. It ends with the connection. It waits for brokers: nobody may wait
/// for it, least of all those who say that writers live.
pub(crate) fn start(connection: &Arc<Connection>) -> std::io::Result<()> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let run = move || {
        while !health.ends_within(LOOK) {
            // The connection is held while it looks only.
            let Some(connection) = weak.upgrade() else { return };
            if !health.is_lost() {
                look(&connection);
            }
        }
    };
    std::thread::Builder::new().name("kafka-topics".to_owned()).spawn(run).map(drop)
}

/// Looks whether others have added partitions to what is read, or made it anew, and tells the
/// readers.
fn look(connection: &Connection) {
    let mut readers = BTreeMap::<String, Vec<Arc<Told>>>::new();
    for reader in connection.told() {
        if let Some(name) = reader.name() {
            readers.entry(name).or_default().push(reader);
        }
    }
    if readers.is_empty() {
        return;
    }
    let told = native::describe(&connection.client.consumer, readers.keys().cloned(), ANSWER);
    // Another time, where there is no answer.
    let Some(told) = told else { return };
    for (name, readers) in readers {
        let Some(described) = told.get(&name) else { continue };
        for reader in readers {
            if connection.is_closed() {
                return;
            }
            // Another time, where no consumer can be had.
            let _ = reader.look(*described);
        }
    }
}
