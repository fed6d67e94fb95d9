//! Who lives on the source, shown on the target: leases are asserted while a topic is open, and
//! while it is being opened anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Alive, Forwarder, Qos, Topic, TopicName, TopicSpec};
use helio_core::qos::{Liveliness, Ownership};

use crate::context::BridgeContext;
use crate::pool::Running;
use crate::types::{AnonymousProducer, OpenWriter, ProducerKey};

/// How often it is looked which producers live, where no lease is shorter.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Whether it matters who is there though nothing comes of him.
pub(crate) fn tracks_liveliness(qos: &Qos) -> bool {
    matches!(qos.liveliness, Liveliness::Lease(_)) || qos.ownership == Ownership::Exclusive
}

/// A writer, as long as it is open.
type WatchedWriter = (ProducerKey, Weak<Mutex<Forwarder>>);

/// A topic's look at who lives.
pub(crate) struct LivelinessMonitor {
    topic: TopicName,
    /// The target's.
    lease: Option<Duration>,
    /// Whose writers are open there.
    writers: Vec<WatchedWriter>,
    swept_at: Instant,
    sweeping: Option<Running<Result<Vec<ProducerKey>, String>>>,
}

impl LivelinessMonitor {
    pub(crate) fn new(topic: &TopicName, target: &Qos) -> Self {
        let lease = match target.liveliness {
            Liveliness::Lease(lease) => Some(lease),
            Liveliness::Automatic => None,
        };
        let (writers, swept_at, sweeping) = (Vec::new(), Instant::now(), None);
        Self { topic: topic.clone(), lease, writers, swept_at, sweeping }
    }

    /// Asserts the leases of those that live, in a thread of its own, whenever it is time; gives
    /// whose writers are to be closed, once that is known. Where no writers are named, of those
    /// that were named last and are open still.
    pub(crate) fn sweep(
        &mut self,
        context: &BridgeContext,
        open_writers: Option<&HashMap<ProducerKey, OpenWriter>>,
    ) -> Result<Vec<ProducerKey>, String> {
        if let Some(sweeping) = &self.sweeping {
            let Poll::Ready(swept) = sweeping.poll() else { return Ok(Vec::new()) };
            self.sweeping = None;
            return swept.unwrap_or_else(|| Err("a thread has failed".to_owned()));
        }
        let interval = self.lease.map_or(SWEEP_INTERVAL, |lease| SWEEP_INTERVAL.min(lease / 4));
        if self.swept_at.elapsed() < interval {
            return Ok(Vec::new());
        }
        self.swept_at = Instant::now();
        if let Some(open_writers) = open_writers {
            let weak = |(key, writer): (&ProducerKey, &OpenWriter)| {
                (key.clone(), Arc::downgrade(&writer.forwarder))
            };
            self.writers = open_writers.iter().map(weak).collect();
        }
        if self.writers.is_empty() {
            return Ok(Vec::new());
        }
        let (from, topic) = (context.from.clone(), self.topic.clone());
        let (anonymous, writers) = (context.anonymous.clone(), self.writers.clone());
        let renews_leases = self.lease.is_some();
        self.sweeping = Some(context.lease_renewers.run(move || {
            let source = from.topic(TopicSpec::of(topic)).map_err(|error| error.to_string())?;
            sweep(&source, &writers, &anonymous, renews_leases)
        }));
        Ok(Vec::new())
    }
}

/// One that is fenced is told with its next sample.
fn assert_alive(forwarder: &Weak<Mutex<Forwarder>>) {
    forwarder.upgrade().into_iter().for_each(|one| _ = locked(&one).assert_alive());
}

/// Asserts the leases of those that live; gives who has gone.
fn sweep(
    source: &Topic,
    writers: &[WatchedWriter],
    anonymous: &AnonymousProducer,
    renews_leases: bool,
) -> Result<Vec<ProducerKey>, String> {
    let infos = match source.writers() {
        Ok(infos) => infos,
        // Nobody knows: those who lived do.
        Err(error) if error.is_outage() => {
            if renews_leases {
                writers.iter().for_each(|(_, forwarder)| assert_alive(forwarder));
            }
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.to_string()),
    };
    let alive: HashMap<_, _> = infos
        .iter()
        .map(|info| (anonymous.forwarded_name(&info.producer.name), info.alive))
        .collect();
    let mut gone = Vec::new();
    for (key, forwarder) in writers {
        match alive.get(&key.producer) {
            Some(Some(Alive::No)) => gone.push(key.clone()),
            Some(Some(Alive::Yes)) if renews_leases => assert_alive(forwarder),
            _ => {}
        }
    }
    Ok(gone)
}
