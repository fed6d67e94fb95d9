//! Log records of a facility: those of ALMA's ACS and of OpenTelemetry, on the bus.
//!
//! It knows the bus, levels, audiences and foreign formats of log records. It must not know any
//! transport.
//!
//! Constraints. A producer never blocks, and counts the records that it drops. A record's time,
//! level, logger and audiences are read without its body. Each packet is self-contained.
//!
//! Format. A sample of a log topic is a [`Packet`]: records of one producer and level, with the
//! texts and call sites that they refer to (`docs/formats/log.md`). `fields` is the table of a
//! record's fields.

mod body;
mod fields;
pub mod formats;
mod lanes;
mod level;
mod levels;
mod line;
mod packet;
mod predicate;
mod producer;
mod reader;
mod record;
mod template;
mod value;
mod watch;
mod wire;

pub use body::{Body, Field};
pub use fields::{RecordColumn, TextField};
pub use lanes::Lanes;
pub use level::{Level, LevelError, Threshold, ThresholdError};
pub use levels::{
    LevelEntry, LevelEntryError, LevelList, LevelTable, LevelsError, MAX_LEVEL_ENTRIES,
    MAX_PATTERN_BYTES,
};
pub use line::{Colours, line};
pub use packet::{
    BodyError, MAX_AUDIENCES, MAX_PACKET_BYTES, MAX_RECORD_BYTES, MAX_RECORDS, Names, Numbers,
    Origin, Packet, PacketError, PacketWriter, PushError, RecordEntry, RecordRef, SiteRef,
};
pub use predicate::{
    CompileError, FieldName, Glob, GlobError, IndexTerm, IndexTermKind, MAX_GLOB_PARTS,
    MAX_PREDICATE_BYTES, Outline, Predicate, PredicateError, Selected, Selector, Views,
    index_terms, words,
};
pub use producer::{
    Argument, BatchReceipt, CallSite, EncodedRecord, LogError, LogFigures, LogOptions, Logger,
    Logging, MAX_LOGGERS, MAX_SITES, RecordReceipt, Relay, SettingsError, Shed, Shown, SiteNumber,
    Spill, Suppress,
};
pub use reader::{
    Cursor, CursorError, Damaged, Filter, FilterDecision, Follow, Gap, GapRange, Item,
    LossAccounts, LossCause, Malformed, News, Next, Packets, ProducerCounts, Reader, ReaderError,
    ReaderOptions, RecordCounts, RecordPlace, Records, Start, Waited,
};
pub use record::{Audiences, Record, Site, Stack, Style, audience};
pub use value::{MAX_DEPTH, Value};
pub use watch::{MAX_INSTANCES, WATCH_LOGGER, Watch, WatchError, WatchStateError};
