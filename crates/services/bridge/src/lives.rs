//! Who lives on the source, shown on the target: leases are asserted while a topic is open, and
//! while it is being opened anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Alive, Forwarder, Qos, Topic, TopicName, TopicSpec};
use helio_core::qos::{Liveliness, Ownership};

use crate::bridge::Ends;
use crate::found::Nameless;
use crate::kept::Held;
use crate::lane::Key;
use crate::pool::Running;

/// How often it is looked which producers live, where no lease is shorter.
const SWEEP: Duration = Duration::from_secs(1);

/// Whether it matters who is there though nothing comes of him.
pub(crate) fn shows_life(qos: &Qos) -> bool {
    matches!(qos.liveliness, Liveliness::Lease(_)) || qos.ownership == Ownership::Exclusive
}

/// A writer, as long as it is open.
type Watched = (Key, Weak<Mutex<Forwarder>>);

/// A topic's look at who lives.
pub(crate) struct Lives {
    topic: TopicName,
    /// The target's.
    lease: Option<Duration>,
    /// Whose writers are open there.
    held: Vec<Watched>,
    swept: Instant,
    sweeping: Option<Running<Result<Vec<Key>, String>>>,
}

impl Lives {
    pub(crate) fn new(topic: &TopicName, target: &Qos) -> Self {
        let lease = match target.liveliness {
            Liveliness::Lease(lease) => Some(lease),
            Liveliness::Automatic => None,
        };
        let (held, swept, sweeping) = (Vec::new(), Instant::now(), None);
        Self { topic: topic.clone(), lease, held, swept, sweeping }
    }

    /// Asserts the leases of those that live, in a thread of its own, whenever it is time; gives
    /// whose writers are to be closed, once that is known. Where no writers are named, of those
    /// that were named last and are open still.
    pub(crate) fn sweep(
        &mut self,
        ends: &Ends,
        forwarders: Option<&HashMap<Key, Held>>,
    ) -> Result<Vec<Key>, String> {
        if let Some(sweeping) = &self.sweeping {
            let Poll::Ready(swept) = sweeping.poll() else { return Ok(Vec::new()) };
            self.sweeping = None;
            return swept.unwrap_or_else(|| Err("a thread has failed".to_owned()));
        }
        let every = self.lease.map_or(SWEEP, |lease| SWEEP.min(lease / 4));
        if self.swept.elapsed() < every {
            return Ok(Vec::new());
        }
        self.swept = Instant::now();
        if let Some(forwarders) = forwarders {
            let weak = |(key, held): (&Key, &Held)| (key.clone(), Arc::downgrade(&held.forwarder));
            self.held = forwarders.iter().map(weak).collect();
        }
        if self.held.is_empty() {
            return Ok(Vec::new());
        }
        let (from, topic) = (ends.from.clone(), self.topic.clone());
        let (nameless, held) = (ends.nameless.clone(), self.held.clone());
        let asserts = self.lease.is_some();
        self.sweeping = Some(ends.keepers.run(move || {
            let source = from.topic(TopicSpec::of(topic)).map_err(|error| error.to_string())?;
            look(&source, (&held, asserts), &nameless)
        }));
        Ok(Vec::new())
    }
}

/// One that is fenced is told with its next sample.
fn assert_alive(forwarder: &Weak<Mutex<Forwarder>>) {
    forwarder.upgrade().into_iter().for_each(|one| _ = locked(&one).assert_alive());
}

/// Asserts the leases of those that live; gives who has gone.
fn look(
    source: &Topic,
    (held, asserts): (&[Watched], bool),
    nameless: &Nameless,
) -> Result<Vec<Key>, String> {
    let writers = match source.writers() {
        Ok(writers) => writers,
        // Nobody knows: those who lived do.
        Err(error) if error.is_outage() => {
            if asserts {
                held.iter().for_each(|(_, forwarder)| assert_alive(forwarder));
            }
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.to_string()),
    };
    let alive: HashMap<_, _> =
        writers.iter().map(|info| (nameless.named(&info.producer.name), info.alive)).collect();
    let mut gone = Vec::new();
    for (key, forwarder) in held {
        match alive.get(&key.1) {
            Some(Some(Alive::No)) => gone.push(key.clone()),
            Some(Some(Alive::Yes)) if asserts => assert_alive(forwarder),
            _ => {}
        }
    }
    Ok(gone)
}
