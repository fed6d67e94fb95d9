//! Exclusive logs in the journal's folder, each in one of its own: `exclusive/NAME`.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use helio_core::TopicName;
use helio_journal::{
    AppendError, EpochInfo, ExclusiveLog, ExclusiveOptions, JournalError, JournalOptions, RunEnd,
    SyncPolicy,
};

use super::failed;
use crate::exclusive::{
    self, Began, Ended, Epoch, EpochStore, ExclusiveError, LastRun, LogDurability, LogOptions,
    OnSynced, Recovered, SYNC_INTERVAL,
};

/// The folder of exclusive logs in a journal's.
const FOLDER: &str = "exclusive";

// The journal takes what the bus admits.
const _: () = assert!(
    exclusive::MAX_BATCH_BYTES <= helio_journal::MAX_BATCH_BYTES
        && exclusive::MAX_BATCH_RECORDS <= helio_journal::MAX_BATCH_RECORDS
        && exclusive::MAX_EPOCH_HEADER_BYTES <= helio_journal::MAX_EPOCH_HEADER_BYTES
);

/// A log that this connection holds.
pub(super) struct JournalStore(ExclusiveLog);

fn error(what: &str) -> impl Fn(JournalError) -> ExclusiveError + '_ {
    move |error| match error {
        JournalError::Held { path, owner, pid, process } => {
            let folder = path.parent().unwrap_or(&path);
            ExclusiveError::Held { log: folder.display().to_string(), owner, pid, state: process }
        }
        JournalError::Released { .. } => ExclusiveError::Closed,
        JournalError::NoRoom { .. } => ExclusiveError::NoRoom { cause: error.to_string() },
        other => failed(what)(other).into(),
    }
}

fn not_appended(what: &str) -> impl Fn(AppendError) -> ExclusiveError + '_ {
    move |failure| match failure {
        AppendError::Journal(inner) => error(what)(inner),
        other => crate::error::engine(super::SCHEME, what, other).into(),
    }
}

fn durability(sync: SyncPolicy) -> LogDurability {
    match sync {
        SyncPolicy::OnRequest => LogDurability::Disk,
        SyncPolicy::Background => LogDurability::Interval,
    }
}

fn epoch(info: EpochInfo) -> Epoch {
    let EpochInfo { number, start, end, header, sync } = info;
    Epoch { number, start, end, header: header.into(), durability: durability(sync) }
}

impl JournalStore {
    pub(super) fn open(
        journal: &helio_journal::Journal,
        options: JournalOptions,
        name: &TopicName,
        log: &LogOptions,
    ) -> Result<(Self, Recovered), ExclusiveError> {
        let folder = journal.path().join(FOLDER).join(name.as_str().replace('/', "+"));
        let sync = match log.durability {
            LogDurability::Disk => SyncPolicy::OnRequest,
            LogDurability::Interval => SyncPolicy::Background,
        };
        let options = ExclusiveOptions {
            owner: log.owner.clone(),
            sync,
            segment_bytes: log.segment_bytes,
            journal: JournalOptions { sync_interval: SYNC_INTERVAL, ..options },
        };
        let opened = ExclusiveLog::open(&folder, options);
        let (log, found) = opened.map_err(error("open the exclusive log"))?;
        let ended = match found.ended {
            RunEnd::Never => Ended::Never,
            RunEnd::Closed => Ended::Cleanly,
            RunEnd::Killed => Ended::Killed,
            RunEnd::PowerLost => Ended::PowerLost,
        };
        let stored = found.epochs.last().map_or(0, |epoch| epoch.end);
        let (durable, committed) = (found.durable, found.committed);
        let run = LastRun { ended, stored, durable, committed };
        let epochs = found.epochs.into_iter().map(epoch).collect();
        Ok((Self(log), Recovered { run, first: found.first, epochs }))
    }
}

impl EpochStore for JournalStore {
    fn create(&self, epoch: &Epoch) -> Result<(), ExclusiveError> {
        let begun = self.0.begin(epoch.number, epoch.start, &epoch.header);
        begun.map_err(not_appended("begin an epoch"))
    }

    fn append(&self, first: u64, records: &[&[u8]]) -> Result<(), ExclusiveError> {
        self.0.append(first, records).map_err(not_appended("append a batch"))
    }

    fn sync(&self, call: OnSynced) {
        self.0.on_synced(Box::new(|synced| call(synced.map_err(error("sync the exclusive log")))));
    }

    fn durable(&self) -> u64 {
        self.0.durable()
    }

    fn scan(
        &self,
        epoch: u64,
        range: Range<u64>,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<(), ExclusiveError> {
        let mut next = range.start;
        let scanned = self.0.scan(epoch, range, &mut |offset, record| {
            next = offset + 1;
            visit(offset, Bytes::from_owner(record))
        });
        scanned.map_err(|failure| match failure {
            JournalError::Damaged { path, what } => {
                let what = format!("{}: {what}", path.display());
                ExclusiveError::Damaged { offset: next, what }
            }
            other => error("read the exclusive log")(other),
        })
    }

    fn save(&self, first: u64, committed: u64) -> Result<(), ExclusiveError> {
        self.0.save(first, committed).map_err(error("store the watermarks"))
    }

    fn drop_below(&self, epoch: u64, offset: Option<u64>) -> Result<(), ExclusiveError> {
        self.0.drop_below(epoch, offset).map_err(error("trim the exclusive log"))
    }

    fn close(&self, _began: Began) -> Result<(), ExclusiveError> {
        self.0.close().map_err(not_appended("close the exclusive log"))
    }

    fn release(&self) {
        self.0.release();
    }
}
