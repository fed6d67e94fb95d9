//! Names of attributes (`docs/logging.md`, "OpenTelemetry"). Those of text fields are in
//! [`TextField`].
//!
//! Source: OpenTelemetry's semantic conventions 1.38, "Attribute registry", for names without the
//! prefix `helio` or `otel`. `otel.*` are ours, for OTLP's values without a field in a record; they
//! follow the names of its "Mapping to non-OTLP formats".

use helio_logging::TextField;

pub(crate) const LINE: &str = "code.line.number";
/// The names of file, line and routine before semantic conventions 1.30.
pub(crate) const FILE_OLD: &str = "code.filepath";
pub(crate) const LINE_OLD: &str = "code.lineno";
pub(crate) const ROUTINE_OLD: &str = "code.function";
pub(crate) const STACK_ID: &str = "helio.stack.id";
pub(crate) const STACK_LEVEL: &str = "helio.stack.level";
pub(crate) const AUDIENCES: &str = "helio.audiences";
pub(crate) const EVERYONE: &str = "helio.everyone";
pub(crate) const TEMPLATE: &str = "helio.template";
pub(crate) const STYLE: &str = "helio.template.style";
pub(crate) const NAMES: &str = "helio.template.names";
pub(crate) const ARGUMENTS: &str = "helio.arguments";
pub(crate) const FILLED: &str = "helio.filled";
pub(crate) const SEQUENCE: &str = "helio.sequence";
pub(crate) const TIME: &str = "helio.time.tai";
pub(crate) const OBSERVED: &str = "helio.observed.tai";
/// Data pairs that cannot be attributes under their own names.
pub(crate) const DATA: &str = "helio.data";

/// Attributes of a log record for other fields than [texts](TextField::otlp_name).
const OTHERS: [&str; 17] = [
    LINE,
    FILE_OLD,
    LINE_OLD,
    ROUTINE_OLD,
    STACK_ID,
    STACK_LEVEL,
    AUDIENCES,
    EVERYONE,
    TEMPLATE,
    STYLE,
    NAMES,
    ARGUMENTS,
    FILLED,
    SEQUENCE,
    TIME,
    OBSERVED,
    DATA,
];

/// Whether an attribute of a log record is a field. Data pairs of such names go to [`DATA`].
pub(crate) fn is_field(name: &str) -> bool {
    OTHERS.contains(&name) || TextField::of_otlp_name(name).is_some()
}

/// The text field of an attribute of a log record.
pub(crate) fn text_field(name: &str) -> Option<TextField> {
    match name {
        FILE_OLD => Some(TextField::File),
        ROUTINE_OLD => Some(TextField::Routine),
        name => TextField::of_otlp_name(name),
    }
}

/// The style of templates with `%`.
pub(crate) const PERCENT: &str = "percent";

pub(crate) const HOST: &str = "host.name";
pub(crate) const SERVICE: &str = "service.name";
pub(crate) const PROGRAM: &str = "process.executable.name";
pub(crate) const PID: &str = "process.pid";

/// Attributes of a resource that are fields of a record.
pub(crate) const OF_RESOURCES: [&str; 4] = [HOST, SERVICE, PROGRAM, PID];

/// Data pairs for OTLP's values without a field in a record: a record's last pairs, in this order.
pub(crate) const SEVERITY_NUMBER: &str = "otel.severity_number";
pub(crate) const SEVERITY_TEXT: &str = "otel.severity_text";
pub(crate) const BODY: &str = "otel.body";
pub(crate) const DROPPED: &str = "otel.dropped_attributes_count";
pub(crate) const SCOPE_VERSION: &str = "otel.scope.version";
pub(crate) const SCOPE_SCHEMA: &str = "otel.scope.schema_url";
pub(crate) const SCOPE_ATTRIBUTES: &str = "otel.scope.attributes";
pub(crate) const RESOURCE_SCHEMA: &str = "otel.resource.schema_url";
pub(crate) const RESOURCE_ATTRIBUTES: &str = "otel.resource.attributes";
/// Data pairs for invalid times and ids. They are not restored when the record is sent on.
pub(crate) const WRONG_TIME: &str = "otel.time_unix_nano";
pub(crate) const WRONG_TRACE: &str = "otel.trace_id";
pub(crate) const WRONG_SPAN: &str = "otel.span_id";
