//! The journal's doorbell, which says that something came, made into one that says for whom.
//!
//! A doorbell rings for all readers of a thread together, and a ring takes it off the partition
//! that rang. So each armed reader leaves watches behind, and after a ring all of them are armed
//! again: those that find something are ready, the others are sure to ring next time.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use helio_journal::{Reader, Wake, Watch};

use crate::bell::{Bell, locked};

pub(super) struct JournalBell {
    bell: helio_journal::Bell,
    armed: Mutex<Armed>,
}

#[derive(Default)]
struct Armed {
    readers: HashMap<u64, Vec<Watch>>,
    /// Rung from this process.
    local: HashSet<u64>,
}

impl JournalBell {
    pub(super) fn new(bell: helio_journal::Bell) -> Self {
        Self { bell, armed: Mutex::default() }
    }

    /// Arms the readers of a token; true where one of them has something.
    pub(super) fn arm<'a>(
        &self,
        token: u64,
        readers: impl Iterator<Item = &'a mut Reader>,
    ) -> bool {
        // The lock is held over both, so that a ring in between finds the watches.
        let mut armed = locked(&self.armed);
        let mut watches = armed.readers.remove(&token).unwrap_or_default();
        watches.clear();
        for reader in readers {
            if reader.arm(&self.bell) {
                return true;
            }
            watches.push(reader.watch());
        }
        armed.readers.insert(token, watches);
        false
    }

    pub(super) fn disarm(&self, token: u64) {
        locked(&self.armed).readers.remove(&token);
    }

    /// Adds the tokens that were rung from this process, and after a ring of others those whose
    /// readers find something.
    fn collect(&self, rung: bool, ready: &mut Vec<u64>) {
        let mut armed = locked(&self.armed);
        ready.extend(armed.local.drain());
        if !rung {
            return;
        }
        if armed.readers.len() == 1 {
            // The usual case, a thread with one reader: it looks for itself.
            ready.extend(armed.readers.drain().map(|(token, _)| token));
            return;
        }
        armed.readers.retain(|token, watches| {
            let something = watches.iter().any(|watch| watch.arm(&self.bell));
            if something {
                ready.push(*token);
            }
            !something
        });
    }

    /// Rings for every armed reader.
    pub(super) fn ring_all(&self) {
        let mut armed = locked(&self.armed);
        let tokens: Vec<u64> = armed.readers.drain().map(|(token, _)| token).collect();
        armed.local.extend(tokens);
        drop(armed);
        self.bell.ring();
    }
}

impl Bell for JournalBell {
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        let woken = self.bell.wait(timeout);
        self.collect(woken == Wake::Rung, ready);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bell.descriptor()
    }

    fn listen(&self, ready: &mut Vec<u64>) {
        let rung = self.bell.listen();
        self.collect(rung, ready);
    }

    fn sleep(&self, timeout: Option<Duration>) {
        // Its reader stays armed; arming it again is what it does next where it finds nothing.
        self.bell.wait(timeout);
    }

    fn ring(&self, token: Option<u64>) {
        locked(&self.armed).local.extend(token);
        self.bell.ring();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
