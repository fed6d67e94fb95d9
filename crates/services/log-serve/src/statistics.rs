//! Statistics of received and dropped messages.

use crate::sender::{Cause, Peer, SenderCounts};

/// Dropped messages by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Malformed messages.
    pub malformed: u64,
    /// Messages above the limit of bytes.
    pub too_large: u64,
    /// Records above their senders' rates.
    pub rate: u64,
    /// Records shed because the bus was too slow.
    pub shed: u64,
}

impl Dropped {
    /// The sum.
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

/// Statistics of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderStatistics {
    /// The sender; none for all senders above the limit.
    pub peer: Option<Peer>,
    /// Received messages.
    pub received: u64,
    /// Of these, dropped messages. Records shed from the queue cannot be assigned to senders.
    pub dropped: Dropped,
    /// Connections refused above the limit.
    pub refused: u64,
    /// Connections closed by a timeout.
    pub timed_out: u64,
}

impl SenderStatistics {
    pub(crate) fn of(peer: Option<Peer>, tally: SenderCounts) -> Self {
        let SenderCounts { received, refused, timed_out, .. } = tally;
        Self { peer, received, dropped: Dropped::of(&tally), refused, timed_out }
    }
}

/// Statistics of the service. While nothing arrives, `received + own + inherited = published +
/// waiting + dropped.total()`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Received messages.
    pub received: u64,
    /// The service's own records, which report drops.
    pub own: u64,
    /// Records from the spill file of an earlier process.
    pub inherited: u64,
    /// Records that the bus has acknowledged.
    pub published: u64,
    /// Records queued or in flight; at the end, those in the spill file.
    pub waiting: u64,
    /// Dropped messages.
    pub dropped: Dropped,
    /// Connections refused above the limits.
    pub refused: u64,
    /// Connections closed by a timeout.
    pub timed_out: u64,
    /// Datagrams that the kernel dropped before they were read. They are not included in
    /// `received`.
    pub kernel_dropped: u64,
    /// Statistics by sender.
    pub senders: Vec<SenderStatistics>,
}
