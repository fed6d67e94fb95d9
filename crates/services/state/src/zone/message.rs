//! What zones send each other. Records travel beside these, in the same order (section 3).

use super::config::Time;
use super::epoch::{Chain, EpochId};

/// A zone's role (section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Serves nothing; each start leads here.
    Join,
    /// Forwards requests; watches up to the commit length.
    Follow,
    /// Leads its last epoch.
    Lead,
}

/// Whether a zone's last epoch counts for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// A member of its last epoch.
    Member,
    /// Holds a copy; a member again by N4 alone.
    Outsider,
}

/// A message of a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// First in a session, and at each change of its fields.
    Hello(Hello),
    /// A leader's records or heartbeat.
    Append(Append),
    /// Answers APPEND, COPY and EPOCH.
    Ack(Ack),
    /// A leader alone to an outsider: given to the core when all of it is stored and synced.
    Copy(CopyDone),
    /// A new epoch with its receiver as member, with the records up to its start.
    Epoch(NewEpoch),
    /// The sender does not serve in this epoch any more.
    Resign(Resign),
}

/// HELLO: where its sender stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Hello {
    /// The sender's cluster.
    pub cluster: u128,
    /// The sender's role.
    pub role: Role,
    /// The sender's standing.
    pub standing: Standing,
    /// Whether the sender lost power as a member of a pair that keeps records in memory.
    pub dirty: bool,
    /// The sender's line; `None`: blank.
    pub chain: Option<Chain>,
    /// The length of its log.
    pub length: u64,
    /// How much of it is on disk.
    pub synced: u64,
}

/// APPEND: records up to `length`, or none (a heartbeat).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Append {
    /// The leader's epoch.
    pub epoch: EpochId,
    /// The length of the leader's log.
    pub length: u64,
    /// The length that is committed.
    pub commit: u64,
    /// The leader's clock when it was sent.
    pub sent: Time,
    /// The last read that waits for an answer to this (S2).
    pub read: u64,
}

/// ACK: watermarks of the receiver's log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ack {
    /// The epoch that is acknowledged.
    pub epoch: EpochId,
    /// The kernel holds this length.
    pub stored: u64,
    /// The disk holds this length.
    pub durable: u64,
    /// The send time of what is answered; `None`: the disk caught up, no promise is made.
    pub sent: Option<Time>,
    /// The read number of what is answered.
    pub read: u64,
}

/// COPY: the whole of the leader's line.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyDone {
    /// The leader's line.
    pub chain: Chain,
    /// Its length.
    pub length: u64,
    /// The length that was committed.
    pub commit: u64,
}

/// EPOCH: the header of a pair with the receiver as member.
#[derive(Clone, PartialEq, Debug)]
pub struct NewEpoch {
    /// The line that ends in the new epoch.
    pub chain: Chain,
    /// The leader's clock when it was sent.
    pub sent: Time,
}

/// RESIGN: this line ended here for its sender.
#[derive(Clone, PartialEq, Debug)]
pub struct Resign {
    /// The line that is ended.
    pub chain: Chain,
    /// Its final length.
    pub length: u64,
    /// The sender's unfinished child of it, as the witness shows it (V5).
    pub unfinished: Option<EpochId>,
}
