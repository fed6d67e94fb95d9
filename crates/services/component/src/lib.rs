//! Components of an observatory: commands with acknowledgements, events, telemetry, states.
//!
//! It knows SAL's interfaces and the bus; it must not know any transport. [`protocol`] decides the
//! course of each command, without I/O and without a clock, for all languages.
//!
//! An [`Interface`] is one component's topics. A [`Component`] has handlers for its commands. A
//! [`Remote`] sends commands and reads the component's events and telemetry:
//!
//! ```
//! use helio_bus::Bus;
//! use helio_component::protocol::SummaryState;
//! use helio_component::{Command, Component, Failed, Interface, Remote};
//!
//! let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");
//! let mount = Interface::of(&helio_bus::read_interfaces(folder)?, "MTMount")?;
//! let bus = Bus::connect("memory:")?;
//! let component = Component::builder(&bus, &mount, 0)
//!     .on("moveToTarget", |command: &Command| {
//!         let target = command.component().event("target")?;
//!         target.set("azimuth", command.number("azimuth")).write()?;
//!         Ok::<_, Failed>("arrived")
//!     })
//!     .start()?;
//!
//! let remote = Remote::open(&bus, &mount, 0)?;
//! remote.set_state(SummaryState::Enabled, "")?;
//! let call = remote.command("moveToTarget").set("azimuth", 90.0).set("elevation", 45.0);
//! let done = call.send().wait()?;
//! assert_eq!(done.result, "arrived");
//! let mut target = remote.event("target")?;
//! assert_eq!(target.newest()?.and_then(|newest| newest.number("azimuth")), Some(90.0));
//! component.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Constraints
//!
//! A [`Lease`] admits one live instance of a component, which detects its loss. Only the bus
//! blocks, and every queue is bounded: commands in their lanes, handlers' threads, calls of a
//! remote. On the wire the topics are SAL's, byte for byte. Additions to SAL are headers beside the
//! payload, or topics of our own ([`LeaseRecord`], [`ControlRecord`], [`AuditRecord`]).

mod component;
mod create_topics;
mod fields;
mod heartbeats;
mod interface;
mod key_file;
mod lease;
mod losses;
mod mock;
mod pipelining;
mod presence;
mod process_identity;
pub mod protocol;
mod rates;
mod read;
mod records;
mod remote;
mod send;
mod sender;
mod stubs;
mod timestamps;
mod topic;
mod warnings;
mod write;

pub use component::{
    Builder, Command, Component, ConfigError, ConfigFolder, Failed, Handler, LogLevel, RunError,
    Running, SoftwareVersions, StartError,
};
pub use create_topics::create_topics;
pub use fields::{FieldError, Fields};
pub use interface::{Interface, InterfaceError, Shape};
pub use key_file::{KeyFileError, make_caller_key, read_caller_key};
pub use lease::{Lease, LeaseError, LeaseOptions, LeaseStanding};
pub use losses::{Loss, Losses};
pub use mock::{
    Due, Mock, MockCounts, MockError, MockOptions, MockSchedule, MockValues, SkippedTopic,
    ValuesError, is_mocked,
};
pub use presence::{PRESENCE_MAX_AGE, PresenceProbe};
pub use process_identity::user_at_host;
pub use rates::{MAX_HZ, MAX_RATES, Rate, Rates, RatesError};
pub use read::{ReadTopic, Reading};
pub use records::{
    AuditPhase, AuditRecord, ControlAction, ControlRecord, LEASE_TIMEOUT, LeaseRecord, TaiNanos,
};
pub use remote::{
    Call, CallBuilder, CommandError, PRESENCE_POLL_INTERVAL, Remote, RemoteOptions, STATE_TIMEOUT,
};
pub use stubs::python_stub;
pub use topic::{STORED_TIMEOUT, TopicReadError, WriteError};
pub use write::{Update, WriteTopic, Written};
