//! The records of our own topics beside a component's: its lease, control requests, and the audit.
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
use helio_core::{Codec, Qos, Tai};
use serde::{Deserialize, Serialize};

/// How long a lease stays valid after its last renewal. Longer than any pause of a healthy process,
/// and short enough for an operator to wait.
pub const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The codec of one of these records.
pub(crate) fn codec<T: HasSchema>() -> Codec {
    Codec::new(&T::schema().expect("a test parses the schemas of our own records"))
}

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

/// The live instance of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The component's name.
    pub component: String,
    /// Its index; 0 if it is not indexed.
    pub index: i32,
    /// Its `private_identity`.
    pub identity: String,
    /// The name of its host.
    pub host: String,
    /// Its process number.
    pub pid: i32,
    /// When it took the lease.
    pub started: TaiNanos,
    /// The middleware and its version.
    pub software: String,
    /// The version of its interface, if known.
    pub interface: String,
    /// The commands of its interface, so that callers of another release detect at once which of
    /// their commands it lacks.
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
    /// Why this instance cannot run a command: its interface has no command of that name.
    #[must_use]
    pub fn missing_command(&self, command: &str) -> Option<String> {
        let has = |known: &String| known == command;
        (!command.is_empty() && !self.commands.iter().any(has)).then(|| {
            format!("the instance of {} that runs has no command {command}", self.identity)
        })
    }

    /// The quality of service of leases' topics.
    #[must_use]
    pub fn qos() -> Qos {
        Qos {
            ownership: Ownership::Exclusive,
            liveliness: Liveliness::Lease(LEASE_TIMEOUT),
            ..Qos::telemetry()
        }
    }
}

/// The action of a control request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlAction {
    /// Cancel a queued or running command.
    Cancel,
    /// Report whether a command would run.
    Validate,
    /// Refuse the commands of other callers for a limited time.
    Lock,
    /// Accept commands of all callers again.
    Unlock,
}

impl HasSchema for ControlAction {
    fn type_spec() -> TypeSpec {
        enumeration("helio.component.Action", &["cancel", "validate", "lock", "unlock"])
    }
}

/// A control request. It is answered like a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The instance; 0 if the component is not indexed.
    #[serde(rename = "salIndex")]
    pub index: i32,
    /// The action.
    pub action: ControlAction,
    /// The short name of the command to validate or to cancel.
    pub command: String,
    /// `private_seqNum` of the command to cancel.
    pub target: i32,
    /// How long to lock, in seconds.
    pub seconds: f64,
    /// The command to validate, encoded as in its own topic.
    pub payload: Vec<u8>,
    /// The number that the answer carries.
    #[serde(rename = "seqNum")]
    pub seq_num: i32,
    /// The sender: a component's name, or user@host.
    pub identity: String,
    /// The sending process.
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

/// The point in a command's life at which an audit record is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditPhase {
    /// Accepted: it runs, or is queued.
    Received,
    /// It ended.
    Finished,
}

impl HasSchema for AuditPhase {
    fn type_spec() -> TypeSpec {
        enumeration("helio.component.Phase", &["received", "finished"])
    }
}

/// A command or control request, and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The time of the record.
    pub time: TaiNanos,
    /// The component's name.
    pub component: String,
    /// Its index; 0 if it is not indexed.
    pub index: i32,
    /// The command's short name, or the control request.
    pub command: String,
    /// The command's `private_seqNum`.
    #[serde(rename = "seqNum")]
    pub seq_num: i32,
    /// The caller.
    pub caller: String,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// The point in the command's life.
    pub phase: AuditPhase,
    /// The acknowledgement's code; 0 for a command that was just received.
    pub ack: i32,
    /// The component's error code; 0 for none.
    pub error: i32,
    /// The acknowledgement's text.
    pub result: String,
    /// The time since it was received, in seconds.
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

    /// Peers of other releases read these: a file has the record as JSON, its schema, and the
    /// record's bytes in hexadecimal.
    #[track_caller]
    fn golden<T>(record: &T, file: &str)
    where
        T: HasSchema + Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
    {
        let mut lines = file.lines();
        let mut line = || lines.next().unwrap_or_default();
        let json = line();
        assert_eq!(serde_json::to_string(record).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), *record);
        assert_eq!(T::schema().unwrap().to_json().to_string(), line());
        let codec = Codec::new(&T::schema().unwrap());
        let mut encoded = Vec::new();
        codec.serialize(record, &mut encoded).unwrap();
        let hex: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, line());
        assert_eq!(codec.deserialize::<T>(&encoded).unwrap(), *record);
    }

    #[test]
    fn leases_keep_their_names() {
        let record = LeaseRecord {
            component: "Cam".into(),
            index: 1,
            identity: "Cam:1".into(),
            host: "h".into(),
            pid: 2,
            started: TaiNanos(3),
            software: "s".into(),
            interface: "i".into(),
            commands: vec!["go".into()],
        };
        golden(&record, include_str!("../tests/golden/lease.txt"));
    }

    #[test]
    fn requests_on_control_keep_their_names() {
        let record = ControlRecord {
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
        golden(&record, include_str!("../tests/golden/control.txt"));
        use ControlAction::{Cancel, Lock, Unlock, Validate};
        let actions = serde_json::to_string(&[Cancel, Validate, Lock, Unlock]).unwrap();
        assert_eq!(actions, r#"["cancel","validate","lock","unlock"]"#);
    }

    #[test]
    fn records_of_the_audit_keep_their_names() {
        let record = AuditRecord {
            time: TaiNanos(1),
            component: "Cam".into(),
            index: 1,
            command: "go".into(),
            seq_num: 2,
            caller: "a@b".into(),
            identity: "i".into(),
            origin: 3,
            phase: AuditPhase::Finished,
            ack: 303,
            error: 4,
            result: "Done".into(),
            duration: 0.5,
            arguments: "{}".into(),
        };
        golden(&record, include_str!("../tests/golden/audit.txt"));
        let phases = serde_json::to_string(&[AuditPhase::Received, AuditPhase::Finished]).unwrap();
        assert_eq!(phases, r#"["received","finished"]"#);
    }
}
