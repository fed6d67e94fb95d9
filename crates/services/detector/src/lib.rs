//! Frames of detectors and digitizers: one schema for all arrays.
//!
//! It is pure: values in, values out. It knows no transport, no clock, no thread and no file.
//!
//! Constraints. The work for a frame is its bytes' copy at most, never one for each element. What
//! is received may be hostile: it is checked, and memory has named limits.
//!
//! Modules: `frame` is the schema, its checks and a frame's parts; `assembly` puts parts together
//! again. `attributes` are a source's named values, by revisions that frames name; `burst` accounts
//! for the chapters of bursts.

mod assembly;
mod attributes;
mod burst;
mod frame;

pub use assembly::{Assembled, Assembler, AssemblyLimits, IncompleteFrame, PartError};
pub use attributes::{
    Attribute, AttributeChanges, AttributeError, AttributeSource, AttributeValue, AttributeView,
    AttributesAt, MAX_ATTRIBUTES, MAX_CHANGES_AHEAD, MAX_NAME_BYTES, MAX_TEXT_BYTES,
};
pub use burst::{
    Burst, BurstAccount, BurstEnd, BurstError, BurstEvent, MAX_CHAPTERS, MAX_OPEN_BURSTS, Verdict,
};
pub use frame::{
    Compression, Frame, FrameError, MAX_HEADER_BYTES, MAX_PARTS, MAX_SOURCE_BYTES, MAX_UNITS_BYTES,
    Order,
};
