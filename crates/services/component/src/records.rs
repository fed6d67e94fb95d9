//! The records of our own topics beside a component's: its lease, what is asked of it besides
//! commands, and the audit.
//!
//! | topic | record | quality of service |
//! | --- | --- | --- |
//! | `X/lease/<index>` | [`LeaseRecord`] | exclusive, newest one, liveliness by lease of 5 s |
//! | `X/control` | [`ControlRecord`] | as commands |
//! | `X/audit` | [`AuditRecord`] | stream |
//!
//! Samples of `X/control` and `X/audit` have `salIndex` as their key where the component is
//! indexed, as its own topics have.

use std::time::Duration;

use helio_core::qos::{Guarantee, Liveliness, Overload, Ownership};
use helio_core::schema::HasSchema;
use helio_core::schema::build::{TypeSpec, enumeration, long};
use helio_core::{Qos, Tai};
use serde::{Deserialize, Serialize};

/// For how long a component counts as there after it last said so. Longer than any pause of a
/// healthy process, shorter than an operator's patience.
pub const LEASE: Duration = Duration::from_secs(5);

/// An instant: nanoseconds of TAI since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaiNanos(pub i64);

impl From<Tai> for TaiNanos {
    fn from(time: Tai) -> Self {
        Self(time.nanos())
    }
}

impl From<TaiNanos> for Tai {
    fn from(time: TaiNanos) -> Self {
        Self::from_nanos(time.0)
    }
}

impl HasSchema for TaiNanos {
    fn type_spec() -> TypeSpec {
        long().attribute("logicalType", "tai-nanos")
    }
}

/// Who is the one live instance of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The component's name.
    pub component: String,
    /// Its index; 0 where it is not indexed.
    pub index: i32,
    /// Its `private_identity`.
    pub identity: String,
    /// The machine that it runs on.
    pub host: String,
    /// The number of its process there.
    pub pid: i32,
    /// When it took the lease.
    pub started: TaiNanos,
    /// What it is made with, and of which version.
    pub software: String,
    /// The version of its interface, where it is known.
    pub interface: String,
    /// The commands of its interface, so that a caller of another release is told at once which of
    /// its own it does not have.
    pub commands: Vec<String>,
}

helio_core::has_schema!(LeaseRecord, "helio.component.Lease", {
    component: String,
    index: i32,
    identity: String,
    host: String,
    pid: i32,
    started: TaiNanos,
    software: String,
    interface: String,
    commands: Vec<String>,
});

impl LeaseRecord {
    /// The quality of service of leases' topics.
    #[must_use]
    pub fn qos() -> Qos {
        Qos {
            ownership: Ownership::Exclusive,
            liveliness: Liveliness::Lease(LEASE),
            ..Qos::telemetry()
        }
    }
}

/// What is asked on the topic `control`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlAction {
    /// Cancel a command that waits or runs.
    Cancel,
    /// Say whether a command would be run.
    Validate,
    /// Take no commands but this caller's, for a while.
    Lock,
    /// Take commands of all callers again.
    Unlock,
}

impl HasSchema for ControlAction {
    fn type_spec() -> TypeSpec {
        enumeration("helio.component.Action", &["cancel", "validate", "lock", "unlock"])
    }
}

/// What is asked of a component besides commands. Answered like a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The instance; 0 where the component is not indexed.
    #[serde(rename = "salIndex")]
    pub index: i32,
    /// What is asked.
    pub action: ControlAction,
    /// The short name of the command to validate or to cancel.
    pub command: String,
    /// `private_seqNum` of the command to cancel.
    pub target: i32,
    /// How long to lock, in seconds.
    pub seconds: f64,
    /// The command to validate, encoded as on its own topic.
    pub payload: Vec<u8>,
    /// The number that the answer carries.
    #[serde(rename = "seqNum")]
    pub seq_num: i32,
    /// Who asks: a component's name or user@host.
    pub identity: String,
    /// The process that asks.
    pub origin: i32,
}

impl HasSchema for ControlRecord {
    fn type_spec() -> TypeSpec {
        use helio_core::schema::build::{bytes, double, int, record, string};
        let record = record("helio.component.Control")
            .field("salIndex", int())
            .field("action", ControlAction::type_spec())
            .field("command", string())
            .field("target", int())
            .field("seconds", double())
            .units("second")
            .field("payload", bytes())
            .field("seqNum", int())
            .field("identity", string())
            .field("origin", int());
        record.into()
    }
}

impl ControlRecord {
    /// The quality of service of `control` topics.
    #[must_use]
    pub fn qos() -> Qos {
        Qos::command()
    }
}

/// When in a command's life a record of the audit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditPhase {
    /// It was taken, and runs or waits.
    Received,
    /// It ended.
    Finished,
}

impl HasSchema for AuditPhase {
    fn type_spec() -> TypeSpec {
        enumeration("helio.component.Phase", &["received", "finished"])
    }
}

/// What was asked of a component, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When.
    pub time: TaiNanos,
    /// The component's name.
    pub component: String,
    /// Its index; 0 where it is not indexed.
    pub index: i32,
    /// The command's short name, or what was asked on the topic `control`.
    pub command: String,
    /// The command's `private_seqNum`.
    #[serde(rename = "seqNum")]
    pub seq_num: i32,
    /// Who asked.
    pub caller: String,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// When in the command's life.
    pub phase: AuditPhase,
    /// The code that the caller was told; 0 when it was just received.
    pub ack: i32,
    /// The component's own error code; 0 for none.
    pub error: i32,
    /// The text that the caller was told.
    pub result: String,
    /// Time since it was received, in seconds.
    pub duration: f64,
    /// The command's public fields as JSON.
    pub arguments: String,
}

impl HasSchema for AuditRecord {
    fn type_spec() -> TypeSpec {
        use helio_core::schema::build::{double, int, record, string};
        let record = record("helio.component.Audit")
            .field("time", TaiNanos::type_spec())
            .field("component", string())
            .field("index", int())
            .field("command", string())
            .field("seqNum", int())
            .field("caller", string())
            .field("identity", string())
            .field("origin", int())
            .field("phase", AuditPhase::type_spec())
            .field("ack", int())
            .field("error", int())
            .field("result", string())
            .field("duration", double())
            .units("second")
            .field("arguments", string());
        record.into()
    }
}

impl AuditRecord {
    /// The quality of service of audits' topics.
    #[must_use]
    pub fn qos() -> Qos {
        Qos { overload: Overload::Block, guarantee: Guarantee::Stored, ..Qos::stream() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::Codec;

    #[test]
    fn records_are_read_as_they_were_written() {
        let control = ControlRecord {
            index: 2,
            action: ControlAction::Validate,
            command: "move".into(),
            target: 0,
            seconds: 1.5,
            payload: vec![1, 2],
            seq_num: 7,
            identity: "a@b".into(),
            origin: 9,
        };
        let codec = Codec::new(&ControlRecord::schema().unwrap());
        let mut bytes = Vec::new();
        codec.serialize(&control, &mut bytes).unwrap();
        assert_eq!(codec.deserialize::<ControlRecord>(&bytes).unwrap(), control);
        assert_eq!(AuditRecord::schema().unwrap().fields().len(), 14);
        assert_eq!(LeaseRecord::schema().unwrap().name(), Some("helio.component.Lease"));
    }
}
