//! Components of an observatory: commands with acknowledgements, events, telemetry, states.
//!
//! It knows SAL's interfaces and the bus; it must not know any transport. What a command goes
//! through is decided in [`protocol`], without I/O and without a clock, for every language alike.

mod component;
mod fields;
mod host;
mod interface;
mod lease;
mod mock;
mod presence;
pub mod protocol;
mod rates;
mod read;
mod records;
mod remote;
mod stubs;
mod topic;
mod write;

pub use component::{
    Builder, Command, Component, ConfigError, ConfigFolder, Failed, Handler, LogLevel, RunError,
    Running, SoftwareVersions, StartError,
};
pub use fields::{FieldError, Fields};
pub use host::user_at_host;
pub use interface::{Interface, InterfaceError, Shape};
pub use lease::{Lease, LeaseError, LeaseOptions};
pub use mock::{Due, MockSchedule, MockValues, ValuesError};
pub use presence::{RECENT, Watch};
pub use rates::{MAX_HZ, MAX_RATES, Rate, Rates, RatesError};
pub use read::{ReadTopic, Reading};
pub use records::{
    AuditPhase, AuditRecord, ControlAction, ControlRecord, LEASE, LeaseRecord, TaiNanos,
};
pub use remote::{Call, CallBuilder, CommandError, LOOK_EVERY, Remote, RemoteOptions};
pub use stubs::python_stub;
pub use topic::{TopicReadError, WriteError};
pub use write::{Update, WriteTopic, Written};
