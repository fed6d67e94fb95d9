//! The protocol of a visit: messages in, effects out.
//!
//! Constraints. No I/O, no clock, no bus: positions, messages and times are arguments. Any number
//! of processes may read, close, die and return; all come to the same decision.
//!
//! Operation. A visit opens with a record on the *control topic*, which has one partition: the
//! expected detectors and a deadline. Each detector's producer publishes its alerts, and then a
//! *manifest*: how many distinct alerts, and a hash that depends on no order ([`Digest`]). A reader
//! counts what it reads ([`Tally`]). When all manifests match, or at the deadline, any reader
//! proposes a *closing record*. The first of a visit in the log decides for everyone ([`Reader`]):
//! it has the positions in the alerts' partitions up to which alerts count. An alert at or behind
//! its partition's position is late, for all readers alike, whenever they read it.
//!
//! An alert's identifier is always in one partition, that of its detector. So of two alerts with
//! one identifier every reader reads the same one first; the first counts.

mod audit;
mod digest;
mod ledger;
mod messages;
mod reader;
mod tally;

pub use audit::{Audit, DetectorAudit, Finding};
pub use digest::{Digest, DigestError, PayloadHash, payload_hash};
pub use ledger::{Fact, Ledger, MAX_EXPECTED_DETECTORS, MAX_VISITS, Rejection, Visit};
pub use messages::{Closing, Control, Extent, Manifest, Opening};
pub use reader::{Effect, MAX_TALLIES, Reader, Role};
pub use tally::{MAX_ALERTS, Position, ReadAlert, Seen, Tally};
