//! A client that creates, updates and deletes objects as an API server does: by transactions that
//! compare `mod_revision`, whose other branch reads the key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::proto::etcdserverpb::kv_client::KvClient;
use helio_state_etcd::requests::{self, Change};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::history::{Outcome, Read, Write};
use crate::load::{Plan, Shared};
use crate::objects::{self, Kind, Random};
use crate::watcher::END;

/// How long a request may take until its outcome counts as unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay between reads of a store that does not answer.
const RECOVERY_DELAY: Duration = Duration::from_millis(20);
/// How far a writer may be behind its pace before it forgets about what it missed.
const MOST_BEHIND: Duration = Duration::from_millis(100);
/// Objects of each kind that a writer prefers, and of those that all writers share.
const OWN_OBJECTS: usize = 12;
const SHARED_OBJECTS: usize = 4;
/// The part of the writes that go to shared objects: one of so many.
const SHARED_EVERY: usize = 10;

pub(crate) struct Writer {
    number: u16,
    kv: KvClient<Channel>,
    lease: i64,
    interval: Duration,
    random: Random,
    /// The numbers of values are above it.
    first_number: u64,
    shared: Arc<Shared>,
    /// The `mod_revision` of keys, as this client knows it.
    known: HashMap<Bytes, i64>,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: Vec<Read>,
}

impl Writer {
    pub(crate) fn new(
        number: u16,
        channel: Channel,
        lease: i64,
        plan: &Plan,
        interval: Duration,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            number,
            kv: KvClient::new(channel),
            lease,
            interval,
            random: Random::new(u64::from(plan.seed) << 16 | u64::from(number)),
            first_number: u64::from(plan.seed) << 32,
            shared,
            known: HashMap::new(),
            writes: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Writes until the load ends.
    pub(crate) async fn run(mut self) -> Self {
        let mut due = Instant::now();
        while !self.shared.is_ending() {
            let (key, kind) = self.choose();
            if self.write(key, kind).await.is_none() {
                break;
            }
            due = (due + self.interval).max(Instant::now() - MOST_BEHIND);
            tokio::time::sleep_until(due).await;
        }
        self
    }

    /// Writes the last key of each prefix, so that its watch knows its end.
    pub(crate) async fn mark_ends(&mut self, prefixes: &[&str]) {
        for prefix in prefixes {
            let key = Bytes::from(format!("{prefix}{END}"));
            // The first one may find the key of an earlier load.
            let before = self.writes.len();
            while self.writes.len() == before {
                if self.write(key.clone(), Kind::Node).await.is_none() {
                    return;
                }
            }
        }
    }

    fn choose(&mut self) -> (Bytes, Kind) {
        // Leases are renewed most, as in a quiet cluster.
        let kind = match self.random.below(10) {
            0..4 => Kind::Lease,
            4..7 => Kind::Pod,
            7..9 => Kind::Event,
            _ => Kind::Node,
        };
        let number = if self.random.below(SHARED_EVERY) == 0 {
            self.random.below(SHARED_OBJECTS)
        } else {
            let first = SHARED_OBJECTS + usize::from(self.number) * OWN_OBJECTS;
            first + self.random.below(OWN_OBJECTS)
        };
        (kind.key(number), kind)
    }

    /// One transaction; none where the load has written enough.
    async fn write(&mut self, key: Bytes, kind: Kind) -> Option<()> {
        let expected = self.known.get(&key).copied().unwrap_or(0);
        let deletes = expected != 0
            && match kind {
                Kind::Lease | Kind::Node => false,
                Kind::Pod => self.random.below(5) == 0,
                Kind::Event => self.random.below(2) == 0,
            };
        let number = kind.number(self.first_number + self.shared.next_write()?);
        let lease = if kind == Kind::Event { self.lease } else { 0 };
        let change = match deletes {
            true => Change::Delete,
            false => Change::Put { value: objects::value(number), lease },
        };
        let number = (!deletes).then_some(number);
        let floor = self.shared.floor.load(Ordering::Relaxed);
        let request = requests::if_unchanged(key.clone(), expected, change);
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.kv.txn(request)).await;
        let Ok(Ok(answer)) = answer else {
            self.shared.unknown.fetch_add(1, Ordering::Relaxed);
            let outcome = Outcome::Unknown;
            self.writes.push(Write { key: key.clone(), number, expected, floor, outcome });
            self.recover(key).await;
            return Some(());
        };
        let answer = answer.into_inner();
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        self.shared.floor.fetch_max(revision, Ordering::Relaxed);
        if answer.succeeded {
            self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.known.insert(key.clone(), if deletes { 0 } else { revision });
            let outcome = Outcome::Acknowledged(revision);
            self.writes.push(Write { key, number, expected, floor, outcome });
        } else {
            self.shared.conflicts.fetch_add(1, Ordering::Relaxed);
            let found = requests::found(&answer).map_or(0, |kv| kv.0.fields().mod_revision);
            self.known.insert(key.clone(), found);
            self.reads.push(Read { key, revision, floor, found });
        }
        Some(())
    }

    /// Reads the key of a write without an answer, until the store is there.
    async fn recover(&mut self, key: Bytes) {
        loop {
            let floor = self.shared.floor.load(Ordering::Relaxed);
            let request = pb::RangeRequest { key: key.clone(), limit: 1, ..Default::default() };
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.kv.range(request)).await;
            if let Ok(Ok(answer)) = answer {
                let answer = answer.into_inner();
                let revision = answer.header.as_ref().map_or(0, |header| header.revision);
                self.shared.floor.fetch_max(revision, Ordering::Relaxed);
                let found = answer.kvs.first().map_or(0, |kv| kv.0.fields().mod_revision);
                self.known.insert(key.clone(), found);
                self.reads.push(Read { key, revision, floor, found });
                return;
            }
            tokio::time::sleep(RECOVERY_DELAY).await;
        }
    }
}
