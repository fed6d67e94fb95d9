//! The groups of a topic: members, committed positions and lag.

use crate::transport::PartitionInfo;

/// A group of a topic as a transport reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// Its name.
    pub name: String,
    /// Its live members.
    pub members: Vec<GroupMember>,
    /// The committed position of each partition that has one.
    pub committed: Vec<(u32, u64)>,
}

/// A live member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its name: the producer name of its bus.
    pub name: String,
    /// Its process, on transports of one machine.
    pub process: Option<u32>,
    /// The address from which it is connected, on transports of a network.
    pub host: Option<String>,
    /// The partitions that are assigned to it.
    pub partitions: Vec<u32>,
}

/// A group of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Its live members.
    pub members: Vec<GroupMember>,
    /// All partitions of the topic.
    pub partitions: Vec<GroupPartition>,
}

/// A group's position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPartition {
    /// The partition.
    pub partition: u32,
    /// The offset of the oldest stored sample.
    pub first: u64,
    /// The offset that the next publish gets.
    pub end: u64,
    /// The offset at which the group resumes; `None` before its first commit.
    pub committed: Option<u64>,
}

impl GroupPartition {
    /// How many stored samples lie behind the committed position; `None` before the first commit.
    /// On engines whose offsets have holes (Kafka's transactions, compaction) it is an upper limit.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        Some(self.end.saturating_sub(self.committed?.max(self.first)))
    }
}

impl GroupInfo {
    pub(crate) fn of(state: GroupState, partitions: &[PartitionInfo]) -> Self {
        let GroupState { name, members, committed } = state;
        let at = |partition: u32| committed.iter().find(|(of, _)| *of == partition);
        let partition = |info: &PartitionInfo| GroupPartition {
            partition: info.partition,
            first: info.first,
            end: info.end,
            committed: at(info.partition).map(|(_, offset)| *offset),
        };
        Self { name, members, partitions: partitions.iter().map(partition).collect() }
    }

    /// The lag over all partitions that have a committed position.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.partitions.iter().filter_map(GroupPartition::lag).sum()
    }
}
