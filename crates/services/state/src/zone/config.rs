//! What a zone is configured with: names, policy, timers.

use std::fmt;

/// A point of a zone's own clock (CLOCK_BOOTTIME), ns. Clocks of two zones are never compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// This time plus `ns`; the end of time if that is beyond it.
    #[must_use]
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// ns from `earlier` to this time; 0 if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One of the two zones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneName {
    /// The first zone.
    A,
    /// The second zone.
    B,
}

impl ZoneName {
    /// The other zone.
    #[must_use]
    pub fn peer(self) -> ZoneName {
        match self {
            ZoneName::A => ZoneName::B,
            ZoneName::B => ZoneName::A,
        }
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ZoneName::A => "A",
            ZoneName::B => "B",
        })
    }
}

/// What permits a member of a pair to continue alone when its peer is silent; one a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// RESIGN and ENDED only.
    Consistent,
    /// The same; the named zone also by silence.
    Preferred(ZoneName),
    /// A swap at the witness, always.
    Witness,
    /// RESIGN, ENDED, or the peer confirmed off.
    Fence,
    /// RESIGN, ENDED, silence: both zones may continue, in two lines.
    Available,
}

/// When a pair acknowledges a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Durability {
    /// Both kernels hold it.
    Memory,
    /// Both disks hold it.
    Both,
}

/// How the leader of a pair knows that its reads are current.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reads {
    /// By its lease; clocks must run while the guest is stopped.
    Lease,
    /// By an answered heartbeat for each read; no clock.
    Confirm,
}

/// Intervals in ns. [`Timers::default`] has the protocol's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timers {
    /// Between two heartbeats of a leader.
    pub heartbeat: u64,
    /// A silent peer is suspected after this.
    pub suspect: u64,
    /// A pair's leader reads so long after the send time of an answered heartbeat.
    pub lease: u64,
    /// A zone serves so long after its last promise: above 1.1 `lease` and a timer step.
    pub promote: u64,
    /// A follower fences so much later than a leader does.
    pub fence_delay: u64,
    /// `available`: a member alone in JOIN assumes after this. `None`: never.
    pub start_alone_after: Option<u64>,
}

impl Default for Timers {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Timers {
            heartbeat: 50 * MS,
            suspect: 200 * MS,
            lease: 400 * MS,
            promote: 500 * MS,
            fence_delay: 2_000 * MS,
            start_alone_after: None,
        }
    }
}

/// The configuration of a zone. Both zones have the same but for `zone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The cluster's random identity; a peer of another cluster is refused.
    pub cluster: u128,
    /// This zone.
    pub zone: ZoneName,
    /// What permits continuing alone.
    pub policy: Policy,
    /// When a pair acknowledges.
    pub durability: Durability,
    /// How reads of a pair are confirmed.
    pub reads: Reads,
    /// The intervals.
    pub timers: Timers,
    /// The rule that is broken on purpose, for the tests of the tests.
    #[cfg(feature = "model-check")]
    #[doc(hidden)]
    pub mutant: Option<super::Mutant>,
}

impl Config {
    /// The configuration of `zone`, with `durability=both`, `reads=lease` and the usual timers.
    #[must_use]
    pub fn new(cluster: u128, zone: ZoneName, policy: Policy) -> Config {
        Config {
            cluster,
            zone,
            policy,
            durability: Durability::Both,
            reads: Reads::Lease,
            timers: Timers::default(),
            #[cfg(feature = "model-check")]
            mutant: None,
        }
    }
}
