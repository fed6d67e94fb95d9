//! Log records in OpenTelemetry's protocol, OTLP: the messages, a service that takes them, and a
//! client that sends them.
//!
//! It knows log records, OTLP, gRPC and HTTP; it must not know what becomes of what it takes, nor
//! any transport of the bus.
//!
//! Constraints. A record of ours comes back from OTLP as it was. What OTLP says and a record has no
//! field for is kept, and goes back to its place when the record is sent on. Whatever comes is
//! foreign: its size is bounded before and after it is unpacked, and what is refused is said to the
//! sender.
//!
//! Format. OTLP 1.10 (<https://opentelemetry.io/docs/specs/otlp/>); names of attributes are in
//! `docs/logging.md`, "OpenTelemetry".
//!
//! Operation. [`to_protobuf`], [`from_protobuf`] and their twins for JSON are the codec; [`serve`]
//! listens and hands records to a [`Take`]; an [`Exporter`] sends, and a [`Forwarder`] sends on
//! what a reader reads.

mod bytes_codec;
mod export;
mod forward;
mod json;
mod names;
mod proto;
mod read;
mod serve;
mod value;
mod write;

pub use export::{ExportError, Exporter, ExporterOptions, Protocol, Refused, TargetError};
pub use forward::{
    CursorFile, ForwardError, ForwardEvent, ForwardFigures, ForwardOptions, Forwarder, Step,
};
pub use read::{
    MAX_EXPANDED_BYTES, MAX_LOG_RECORD_BYTES, MAX_REQUEST_RECORDS, ReadError, Received, from_json,
    from_protobuf,
};
pub use serve::{
    Listen, MAX_CONNECTIONS, MAX_REQUEST_BYTES, MAX_REQUESTS, ServeError, Serving, Take, Taken,
    serve,
};
pub use write::{to_json, to_protobuf};
