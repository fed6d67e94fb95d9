//! What became of all that came.

use crate::sender::{Cause, Peer, SenderCounts};

/// What was dropped, by cause, in records or what should have been one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// No records.
    pub malformed: u64,
    /// With more bytes than the limit.
    pub too_large: u64,
    /// Above their senders' rates.
    pub rate: u64,
    /// The bus took less than came.
    pub shed: u64,
}

impl Dropped {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.malformed + self.too_large + self.rate + self.shed
    }

    pub(crate) fn of(tally: &SenderCounts) -> Self {
        let count = |cause: Cause| tally.dropped[cause as usize];
        Self {
            malformed: count(Cause::Malformed),
            too_large: count(Cause::TooLarge),
            rate: count(Cause::Rate),
            shed: count(Cause::Shed),
        }
    }

    /// Each cause and its count.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, u64)> + use<> {
        Cause::ALL.into_iter().zip([self.malformed, self.too_large, self.rate, self.shed])
    }
}

/// What became of what one sender sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderStatistics {
    /// Who it is; none: all those for whom there was no room.
    pub peer: Option<Peer>,
    /// What came, in records or what should have been one.
    pub received: u64,
    /// What of this was dropped; of records that were shed behind the queue nobody knows whose
    /// they were.
    pub dropped: Dropped,
    /// Connections that were not taken, as there were too many.
    pub refused: u64,
    /// Connections that were closed, as nothing came or a message took too long.
    pub timed_out: u64,
}

impl SenderStatistics {
    pub(crate) fn of(peer: Option<Peer>, tally: SenderCounts) -> Self {
        let SenderCounts { received, refused, timed_out, .. } = tally;
        Self { peer, received, dropped: Dropped::of(&tally), refused, timed_out }
    }
}

/// What became of all that came: `received + own + inherited = published + waiting +
/// dropped.total()`, once nothing comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// What came, in records or what should have been one.
    pub received: u64,
    /// Records of the service itself: what it told of drops.
    pub own: u64,
    /// Records that an earlier one had left in its spill file.
    pub inherited: u64,
    /// Records that the bus has acknowledged.
    pub published: u64,
    /// Records on their way; at the end, those that lie in the spill file.
    pub waiting: u64,
    /// What was dropped.
    pub dropped: Dropped,
    /// Connections that were not taken.
    pub refused: u64,
    /// Connections that were closed, as nothing came or a message took too long.
    pub timed_out: u64,
    /// Datagrams that the kernel dropped before they were read: these are not among what came.
    pub kernel_dropped: u64,
    /// Each sender's part.
    pub senders: Vec<SenderStatistics>,
}
