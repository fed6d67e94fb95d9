//! Durability: one request to the disk serves all waiters.
//!
//! Constraints: before a record is reported durable, its file went through fdatasync, the file's
//! name through a sync of the folder, and its producer's incarnation before both. A failed sync is
//! remembered: the kernel marks the dropped pages clean, so the next sync would succeed. The
//! partition reports the error until the next boot.
//!
//! Operation: partitions are synced in parallel, each under a sync lock that all processes share.
//! The holder syncs up to the current tail; threads that waited for the lock then find their
//! records durable. Each sync writes a checkpoint from which recovery starts.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::JournalError;
use crate::control::{self, Beginning, Checkpoint, SYNC_LOCK};
use crate::map::Mode;
use crate::partition::{OnDurable, Partition, control_path};
use crate::segment::{self, Segment, SegmentHold};

/// The limit of log behind the newest checkpoint that is itself on the disk.
const CHECKPOINT_INTERVAL_BYTES: u64 = 32 << 20;

impl Partition {
    /// Returns the offset below which everything is on the disk.
    pub(crate) fn durable(&self) -> u64 {
        self.control.durable().1
    }

    /// Syncs everything up to the current tail, unless `offset` is durable already.
    pub(crate) fn sync(&self, offset: u64) -> Result<(), JournalError> {
        self.sync_within(offset, self.env.options.lock_timeout)
    }

    /// The same, waiting at most this long for another process's sync.
    fn sync_within(&self, offset: u64, longest: Duration) -> Result<(), JournalError> {
        self.sync_failure()?;
        if self.durable() > offset {
            return Ok(());
        }
        self.check_gone()?;
        if !self.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        let _guard = self.lock_within(SYNC_LOCK, longest)?;
        self.sync_failure()?;
        if self.durable() > offset {
            return Ok(());
        }
        self.sync_all()
    }

    /// Syncs everything up to the current tail.
    pub(crate) fn sync_present(&self) -> Result<(), JournalError> {
        match self.log_end().1 {
            0 => Ok(()),
            end => self.sync(end - 1),
        }
    }

    /// Syncs everything up to the current tail, and stores the disk's error for all later waiters.
    /// Under the sync lock.
    fn sync_all(&self) -> Result<(), JournalError> {
        // What a missing folder causes is no error of the disk.
        self.sync_changed().map_err(|e| match self.check_present() {
            Ok(()) => self.remember(e),
            Err(gone) => gone,
        })
    }

    /// Syncs the segments that have changed since the last sync.
    fn sync_changed(&self) -> Result<(), JournalError> {
        let control = &self.control;
        let (tail, end, last) = self.log_end_in_segment();
        let time = control.max_time().nanos();
        let first = control.first_seq();
        let synced = control.durable().2;
        if synced == 0 {
            // Without these files the records would have no topic.
            self.sync_topic()?;
        }
        for seq in synced.max(first)..=last {
            match self.sync_segment(seq) {
                // Retired meanwhile: it is not needed any more.
                Err(_) if control.first_seq() > seq => {}
                other => other?,
            }
        }
        if last > synced {
            self.env.sync_dir(&self.dir)?;
        }
        // Without its name nobody finds what was synced.
        self.check_present()?;
        control.set_checkpoint(Checkpoint { seq: last, pos: tail, end, time });
        if synced == 0 {
            // Without a checkpoint, recovery assumes that nothing was durable.
            self.sync_control()?;
        }
        control.set_durable(tail, end, last);
        Ok(())
    }

    /// Syncs a segment's file: the one that this process has written, if it has.
    fn sync_segment(&self, seq: u64) -> Result<(), JournalError> {
        if let Some(written) = self.written(seq) {
            return written.sync(&self.env, &self.dir);
        }
        match Segment::open(&self.dir, seq, Mode::Write, SegmentHold::Loose)? {
            Some(segment) => segment.sync(&self.env, &self.dir),
            None => Err(JournalError::damaged(&segment::path(&self.dir, seq), "missing")),
        }
    }

    /// Returns tail, end offset and current segment of one moment.
    fn log_end_in_segment(&self) -> (u64, u64, u64) {
        loop {
            let seq = self.control.seq();
            let (tail, end) = self.control.log_end();
            if self.control.seq() == seq {
                return (tail, end, seq);
            }
        }
    }

    /// Brings a checkpoint behind a segment to the disk, before that segment is retired, with the
    /// log's new beginning if there is one. Otherwise recovery might start at a retired segment, or
    /// take a retired one for a lost one.
    pub(crate) fn secure_behind(
        &self,
        seq: u64,
        begin: Option<Beginning>,
    ) -> Result<(), JournalError> {
        self.sync_failure()?;
        let _guard = self.lock_within(SYNC_LOCK, self.env.options.lock_timeout)?;
        self.sync_all()?;
        debug_assert!(self.control.checkpoint().is_some_and(|c| c.seq > seq));
        // Only now: what replaces the retired records is on the disk.
        begin.into_iter().for_each(|begin| self.control.set_beginning(begin));
        self.sync_control()
    }

    /// Syncs the files that the topic was created with. Not included are the producers, which each
    /// claim syncs, and this partition's control page, which comes with the checkpoint. The other
    /// partitions' control pages are included: without them a topic cannot be read.
    fn sync_topic(&self) -> Result<(), JournalError> {
        let Some(topic) = self.dir.parent() else { return Ok(()) };
        let others = (0..self.config.partitions).map(|number| topic.join(number.to_string()));
        let others: Vec<_> = others.filter(|dir| *dir != self.dir).collect();
        if others.iter().any(|dir| control::was_synced(&control_path(dir))) {
            return Ok(());
        }
        for dir in &others {
            match self.env.sync_file(&control_path(dir)) {
                // Lost with the power; the first open for writing rebuilds it.
                Err(_) if !control_path(dir).exists() => continue,
                synced => synced?,
            }
            self.env.sync_dir(dir)?;
        }
        self.env.sync_file(&topic.join("topic.json"))?;
        self.env.sync_dir(topic)?;
        topic.parent().map_or(Ok(()), |topics| self.env.sync_dir(topics))
    }

    /// Syncs the control page if recovery would otherwise have to scan too much.
    pub(crate) fn save_checkpoint(&self) -> Result<(), JournalError> {
        let durable = self.control.durable().0;
        let saved = self.checkpoint_saved.load(Relaxed);
        if durable < saved.saturating_add(CHECKPOINT_INTERVAL_BYTES) {
            return Ok(());
        }
        self.sync_control()?;
        self.checkpoint_saved.store(durable, Relaxed);
        Ok(())
    }

    fn sync_failure(&self) -> Result<(), JournalError> {
        match self.control.sync_error().load(Acquire) {
            0 => Ok(()),
            code => {
                let reason = std::io::Error::from_raw_os_error(code as i32).to_string();
                Err(JournalError::SyncFailed { path: self.dir.clone(), reason })
            }
        }
    }

    /// Stores the disk's error for all later waiters.
    fn remember(&self, error: JournalError) -> JournalError {
        let code = match &error {
            JournalError::Io { action: "sync", source, .. } => source.raw_os_error(),
            JournalError::NoRoom { .. } => Some(libc::ENOSPC),
            _ => None,
        };
        if let Some(code) = code {
            self.control.sync_error().store(code as u64, Release);
        }
        error
    }

    /// Blocks until the record at an offset is durable.
    pub(crate) fn wait_durable(
        &self,
        offset: u64,
        timeout: Option<Duration>,
    ) -> Result<(), JournalError> {
        let start = Instant::now();
        let longest = self.env.options.lock_timeout;
        loop {
            let left = timeout.map(|t| t.saturating_sub(start.elapsed()));
            match self.sync_within(offset, left.map_or(longest, |left| left.min(longest))) {
                // Another process's sync is slow.
                Err(JournalError::Stuck { .. }) => {
                    let waited = start.elapsed();
                    if timeout.is_some_and(|t| waited >= t) {
                        return Err(JournalError::TimedOut { waited });
                    }
                }
                Err(e) => return Err(e),
                Ok(()) if self.durable() > offset => return Ok(()),
                // The offset has not been written yet, so no sync can make it durable.
                Ok(()) => {
                    let waited = start.elapsed();
                    return Err(JournalError::TimedOut { waited });
                }
            }
        }
    }

    /// Calls back once the record at an offset is durable: at once, or from
    /// [`serve_durable`](Self::serve_durable). Returns true if the caller must arrange that call.
    #[must_use]
    pub(crate) fn on_durable(&self, offset: u64, call: OnDurable) -> bool {
        if self.durable() > offset {
            call(Ok(()));
            return false;
        }
        let mut waiting = self.waiting_durable();
        waiting.calls.push((offset, call));
        !std::mem::replace(&mut waiting.served, true)
    }

    /// Returns whether callbacks are pending.
    pub(crate) fn is_served(&self) -> bool {
        self.waiting_durable().served
    }

    /// Syncs and calls the pending callbacks. Returns whether new ones arrived meanwhile.
    pub(crate) fn serve_durable(&self) -> bool {
        let waiting = std::mem::take(&mut self.waiting_durable().calls);
        let highest = waiting.iter().map(|w| w.0).max().unwrap_or_default();
        let result = self.wait_durable(highest, None);
        let durable = self.durable();
        for (offset, call) in waiting {
            call(if offset < durable { Ok(()) } else { result.clone() });
        }
        let mut waiting = self.waiting_durable();
        waiting.served = !waiting.calls.is_empty();
        waiting.served
    }

    /// Returns whether this process should run the background sync now. Each sync costs the writer
    /// a fault at its next page, so one process is enough. That is a process that writes, if no
    /// other has synced since its last turn; or any process, if none has synced for a whole
    /// interval.
    pub(crate) fn is_our_turn(&self) -> bool {
        let durable = self.control.durable().0;
        let unsynced = self.is_unsynced();
        let waiting = if unsynced { durable } else { u64::MAX };
        let before = self.last_turn.swap(waiting, Relaxed);
        let others = before != u64::MAX && before != durable;
        unsynced && !others && (before == durable || self.writes())
    }

    /// Runs the background sync.
    pub(crate) fn take_turn(&self) -> Result<(), JournalError> {
        self.sync_present()?;
        self.last_turn.store(self.control.durable().0, Relaxed);
        self.save_checkpoint()
    }

    /// Returns whether there are unsynced records, and no sync has failed.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.control.durable().0 < self.tail() && self.control.sync_error().load(Relaxed) == 0
    }

    /// Syncs the control page's file (after recovery).
    pub(crate) fn sync_control(&self) -> Result<(), JournalError> {
        self.env.sync_map(&self.control.map, &control_path(&self.dir))
    }
}
