//! Topics that others delete and make anew under the same name, told apart by their ids.
//!
//! librdkafka keeps what it knows of a partition by its topic's name: how far it has read, and the
//! epoch of its leader. Those of the new topic's leaders begin again, look like old news, and are
//! passed over for ever. Whoever reads such a topic is therefore given another consumer, from the
//! new topic's first records on.

use std::sync::{Arc, Mutex, Weak};

use helio_bus::TransportError;
use helio_bus::transport::{Begin, locked};

use crate::fetcher::{Queue, Wake};
use crate::group::{Joined, Member};
use crate::native::Described;
use crate::reader::{Source, Start, starts};
use crate::topic::TopicState;

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
    id: Mutex<Option<(i64, i64)>>,
}

impl Told {
    pub(crate) fn new(wake: &Arc<Wake>, topic: &Arc<TopicState>, reads: Reads) -> Self {
        let (wake, topic) = (Arc::downgrade(wake), Arc::downgrade(topic));
        Self { wake, topic, reads, id: Mutex::default() }
    }

    /// Whether it is not known yet which topic it reads.
    pub(crate) fn is_new(&self) -> bool {
        locked(&self.id).is_none()
    }

    /// The topic's name, while somebody reads it.
    pub(crate) fn name(&self) -> Option<String> {
        self.wake.upgrade()?;
        Some(self.topic.upgrade()?.kafka.clone())
    }

    /// Looks at what the brokers say of the topic. Where it is another one this waits for them.
    pub(crate) fn look(&self, described: Described) {
        let (Some(wake), Some(topic)) = (self.wake.upgrade(), self.topic.upgrade()) else { return };
        let mut id = locked(&self.id);
        if id.is_some_and(|id| id != described.id) {
            // Where it cannot be read yet, the next look tries again.
            let Ok(anew) = self.anew(&topic, &wake, described.partitions) else { return };
            wake.renew(anew);
        }
        *id = Some(described.id);
        drop(id);
        if matches!(self.reads, Reads::All) {
            wake.grow(described.partitions);
        }
    }

    fn anew(
        &self,
        topic: &Arc<TopicState>,
        wake: &Arc<Wake>,
        there: u32,
    ) -> Result<Anew, TransportError> {
        let partitions: Vec<u32> = match &self.reads {
            Reads::All => (0..there).collect(),
            Reads::These(named) => named.iter().copied().filter(|named| *named < there).collect(),
            Reads::Shared(joined) => {
                let member = Member::join(topic, joined.clone(), (&Begin::Earliest, wake))?;
                return Ok(Anew { queues: Vec::new(), source: Source::Member(member) });
            }
        };
        let mut lent = topic.connection.pool.lend_anew(&topic.kafka, &partitions)?;
        let starts = starts(topic, &Begin::Earliest, &partitions)?;
        let places: Vec<_> = starts.iter().map(|start| (start.partition, start.offset)).collect();
        let queues = lent.assign(&places, wake)?;
        let queues = starts.into_iter().zip(queues).collect();
        Ok(Anew { queues, source: Source::Lent(lent) })
    }
}
