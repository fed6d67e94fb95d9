//! Mirrors the liveliness of the source's producers: renews their leases on the target, also while
//! a topic is being reopened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Alive, Forwarder, PendingTask, Qos, Topic, TopicName, TopicSpec};
use helio_core::qos::{Liveliness, Ownership};

use crate::context::BridgeContext;
use crate::types::{AnonymousProducer, OpenWriter, ProducerKey};

/// How often the source's producers are queried; more often for shorter leases.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Whether liveliness matters for a producer that does not publish.
pub(crate) fn tracks_liveliness(qos: &Qos) -> bool {
    matches!(qos.liveliness, Liveliness::Lease(_)) || qos.ownership == Ownership::Exclusive
}

/// A writer, while it is open.
type WatchedWriter = (ProducerKey, Weak<Mutex<Forwarder>>);

/// The liveliness of a topic's producers.
pub(crate) struct LivelinessMonitor {
    topic: TopicName,
    /// The target's lease.
    lease: Option<Duration>,
    /// The writers that were open at the last sweep.
    writers: Vec<WatchedWriter>,
    swept_at: Instant,
    sweeping: Option<PendingTask<Result<Vec<ProducerKey>, String>>>,
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

    /// Renews live producers' leases in a thread, when due. Returns the producers whose writers are
    /// to be closed, once known. Without `open_writers`, the last ones that are still open count.
    pub(crate) fn sweep(
        &mut self,
        context: &BridgeContext,
        open_writers: Option<&HashMap<ProducerKey, OpenWriter>>,
    ) -> Result<Vec<ProducerKey>, String> {
        if let Some(sweeping) = &self.sweeping {
            let Poll::Ready(swept) = sweeping.poll() else { return Ok(Vec::new()) };
            self.sweeping = None;
            return swept.unwrap_or_else(|| Err("a thread of the bridge panicked".to_owned()));
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

/// The next sample reports a fenced writer.
fn assert_alive(forwarder: &Weak<Mutex<Forwarder>>) {
    forwarder.upgrade().into_iter().for_each(|one| _ = locked(&one).assert_alive());
}

/// Renews live producers' leases; returns the departed ones.
fn sweep(
    source: &Topic,
    writers: &[WatchedWriter],
    anonymous: &AnonymousProducer,
    renews_leases: bool,
) -> Result<Vec<ProducerKey>, String> {
    let infos = match source.writers() {
        Ok(infos) => infos,
        // During an outage all stay alive.
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
