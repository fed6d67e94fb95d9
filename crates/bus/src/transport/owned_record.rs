//! Records that wait in a queue.

use helio_core::{Headers, SchemaId, Tai, TraceId};

use super::Record;

/// A record that owns its bytes.
#[derive(Debug)]
pub(crate) struct OwnedRecord {
    key: Vec<u8>,
    payload: Vec<u8>,
    time: Tai,
    schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
}

impl OwnedRecord {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Self {
            key: record.key.to_vec(),
            payload: record.payload.to_vec(),
            time: record.time,
            schema: record.schema,
            level: record.level,
            trace: record.trace,
            headers: record.headers.into(),
        }
    }

    pub(crate) fn as_ref(&self) -> Record<'_> {
        Record {
            key: &self.key,
            payload: &self.payload,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
            headers: self.headers.as_ref(),
        }
    }
}
