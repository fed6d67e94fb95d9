//! Exclusive logs in memory: a handle that is dropped without closing it counts as killed.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::bell::locked;
use crate::exclusive::{
    Began, Ended, Epoch, EpochStore, ExclusiveError, LastRun, LogOptions, OnSynced, Recovered,
};

/// A log with its records, by epoch and offset.
#[derive(Default)]
struct Contents {
    owner: Option<String>,
    closed: bool,
    first: u64,
    committed: u64,
    epochs: Vec<(Epoch, BTreeMap<u64, Bytes>)>,
}

/// The exclusive logs of an engine.
#[derive(Default)]
pub(super) struct MemoryLogs(Mutex<BTreeMap<String, Arc<Mutex<Contents>>>>);

/// A log that a handle holds.
pub(super) struct MemoryStore(Arc<Mutex<Contents>>);

impl MemoryLogs {
    pub(super) fn open(
        &self,
        name: &str,
        options: &LogOptions,
    ) -> Result<(MemoryStore, Recovered), ExclusiveError> {
        let log = Arc::clone(locked(&self.0).entry(name.to_owned()).or_default());
        let mut contents = locked(&log);
        if let Some(owner) = contents.owner.clone() {
            let (log, pid, state) = (name.to_owned(), std::process::id(), String::new());
            return Err(ExclusiveError::Held { log, owner, pid, state });
        }
        contents.owner = Some(options.owner.clone());
        let ended = match (contents.epochs.is_empty(), contents.closed) {
            (true, _) => Ended::Never,
            (_, true) => Ended::Cleanly,
            (_, false) => Ended::Killed,
        };
        let stored = contents.epochs.last().map_or(0, |(epoch, _)| epoch.end);
        let (committed, first) = (contents.committed, contents.first);
        let run = LastRun { ended, stored, durable: stored, committed };
        let epochs = contents.epochs.iter().map(|(epoch, _)| epoch.clone()).collect();
        drop(contents);
        Ok((MemoryStore(log), Recovered { run, first, epochs }))
    }
}

impl EpochStore for MemoryStore {
    fn create(&self, epoch: &Epoch) -> Result<(), ExclusiveError> {
        let mut contents = locked(&self.0);
        contents.closed = false;
        contents.epochs.push((epoch.clone(), BTreeMap::new()));
        Ok(())
    }

    fn append(&self, first: u64, records: &[&[u8]]) -> Result<(), ExclusiveError> {
        let mut contents = locked(&self.0);
        let (epoch, stored) = contents.epochs.last_mut().ok_or(ExclusiveError::NoEpoch)?;
        stored.extend((first..).zip(records.iter().map(|record| Bytes::copy_from_slice(record))));
        epoch.end = first + records.len() as u64;
        Ok(())
    }

    fn sync(&self, call: OnSynced) {
        call(Ok(()));
    }

    fn durable(&self) -> u64 {
        locked(&self.0).epochs.last().map_or(0, |(epoch, _)| epoch.end)
    }

    fn scan(
        &self,
        epoch: u64,
        range: Range<u64>,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<(), ExclusiveError> {
        for offset in range {
            let contents = locked(&self.0);
            let stored = contents.epochs.iter().find(|(known, _)| known.number == epoch);
            let found = stored.and_then(|(_, records)| records.get(&offset).cloned());
            let trimmed = ExclusiveError::Trimmed { offset, first: contents.first };
            drop(contents);
            if visit(offset, found.ok_or(trimmed)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn save(&self, first: u64, committed: u64) -> Result<(), ExclusiveError> {
        let mut contents = locked(&self.0);
        (contents.first, contents.committed) = (first, committed);
        Ok(())
    }

    fn drop_below(&self, epoch: u64, offset: Option<u64>) -> Result<(), ExclusiveError> {
        let mut contents = locked(&self.0);
        match offset {
            None => contents.epochs.retain(|(known, _)| known.number != epoch),
            Some(offset) => {
                let mut all = contents.epochs.iter_mut();
                if let Some((_, records)) = all.find(|(known, _)| known.number == epoch) {
                    *records = records.split_off(&offset);
                }
            }
        }
        Ok(())
    }

    fn close(&self, began: Began) -> Result<(), ExclusiveError> {
        locked(&self.0).closed |= began == Began::Yes;
        Ok(())
    }

    fn release(&self) {
        locked(&self.0).owner = None;
    }
}
