//! What the explorer of the tests reads of a zone: all that its rules depend on.

use super::config::Time;
use super::epoch::EpochId;
use super::machine::{Ask, Purpose, Sure, Zone};

/// A zone's memory, times as what is left of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inspection {
    /// The length of the log on disk.
    pub synced: u64,
    /// The commit length that it knows of.
    pub commit: u64,
    /// The number of its session.
    pub session: u64,
    /// The peer's HELLO was handled.
    pub heard: bool,
    /// HELLO is due.
    pub hello_due: bool,
    /// RESIGN was sent in this session.
    pub resigned: bool,
    /// The peer follows in this epoch.
    pub member: bool,
    /// The peer is being copied.
    pub copying: bool,
    /// The peer's kernel holds so much.
    pub stored: u64,
    /// The peer's disk holds so much.
    pub durable: u64,
    /// ns left of the lease.
    pub lease: u64,
    /// ns left until it may serve.
    pub promise: u64,
    /// Evidence: 0 none, 1 ended, fenced or operator, 2 resigned.
    pub sure: u8,
    /// The unfinished epoch that the peer's RESIGN named.
    pub released: Option<EpochId>,
    /// Reads that wait for a confirmation.
    pub reads: u64,
    /// The swap that awaits its answer.
    pub ask: Option<(Purpose, EpochId, u64)>,
    /// What the witness held last.
    pub witness: Option<EpochId>,
    /// A fence whose answer counts.
    pub fencing: Option<u64>,
    /// The line that awaits its merge: last epoch, length, granted by the witness.
    pub lost: Option<(EpochId, u64, Option<EpochId>)>,
}

impl Zone {
    /// See [`Inspection`].
    #[must_use]
    pub fn inspect(&self, now: Time) -> Inspection {
        let (sure, released) = match self.sure {
            Sure::No => (0, None),
            Sure::Ended | Sure::Fenced | Sure::Operator => (1, None),
            Sure::Resigned(named) => (2, named),
        };
        let ask = |ask: Ask| (ask.purpose, ask.header.id, ask.header.revision_base);
        Inspection {
            synced: self.synced,
            commit: self.known_commit(),
            session: self.session.number,
            heard: self.session.heard,
            hello_due: self.session.hello_due,
            resigned: self.session.resigned,
            member: self.peer.member,
            copying: self.peer.copying,
            stored: self.peer.stored,
            durable: self.peer.durable,
            lease: self.lease_until.since(now),
            promise: self.promise_until.since(now),
            sure,
            released,
            reads: self.reads_asked - self.reads_done,
            ask: self.ask.map(ask),
            witness: self.witness,
            fencing: self.fencing,
            lost: self.lost.as_ref().map(|l| (l.chain.tip().id, l.length, l.granted)),
        }
    }

    /// The length up to which the line that awaits its merge and the own one are the same.
    #[must_use]
    pub fn lost_fork(&self) -> Option<u64> {
        let (chain, lost) = self.chain.as_ref().zip(self.lost.as_ref())?;
        Some(chain.fork(self.length, &lost.chain, lost.length))
    }

    /// The revision base of the line that awaits its merge.
    #[must_use]
    pub fn lost_base(&self) -> Option<u64> {
        self.lost.as_ref().map(|lost| lost.chain.tip().revision_base)
    }

    /// Forgets what is known of the commit length, as an old disk may have it.
    pub fn forget_commit(&mut self) {
        self.commit = 0;
    }

    /// A member of a pair in the middle of its life: the explorers begin there.
    #[must_use]
    pub fn in_pair(mut self, role: super::Role, now: Time) -> Zone {
        self.role = role;
        self.promise(now);
        self.session = super::machine::Session { number: 1, heard: true, ..Default::default() };
        if role == super::Role::Lead {
            self.peer.member = true;
            self.promise_until = now;
            self.lease_until = now.after(self.config.timers.lease);
        }
        self
    }
}
