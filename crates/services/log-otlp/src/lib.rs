//! Log records in OpenTelemetry's protocol, OTLP: the messages, a service that receives them, and a
//! client that sends them.
//!
//! It knows log records, OTLP, gRPC and HTTP. It must not know the use of received records, or any
//! transport of the bus.
//!
//! Constraints. A record round-trips through OTLP. OTLP's values without a field in a record become
//! data, and are restored when the record is sent on. Input is foreign: its size is bounded before
//! and after it is decompressed, and refusals are reported to the sender.
//!
//! Format. OTLP 1.10 (<https://opentelemetry.io/docs/specs/otlp/>); names of attributes are in
//! `docs/logging.md`, "OpenTelemetry".
//!
//! Operation. [`to_protobuf`], [`from_protobuf`] and their counterparts for JSON are the codec.
//! [`serve`] listens and passes records to a [`Take`]. An [`Exporter`] sends requests; a
//! [`Forwarder`] sends the records of a reader.

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
    Limits, Listen, MAX_REQUEST_BYTES, MAX_REQUESTS, ServeError, Serving, Take, Taken, Taking,
    serve,
};
pub use write::{to_json, to_protobuf};

/// The path of gRPC's call (`logs_service.proto`).
const EXPORT_PATH: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
