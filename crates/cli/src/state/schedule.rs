//! Snapshots on schedule: a file each interval, in a folder that keeps the newest ones.
//!
//! Constraints. A file has its name only when it is whole and synced. Only files with such names
//! are removed, and none before a newer one is there. A failure is reported, and tried again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use helio_state_etcd::saved;
use helio_state_node::Store;

use crate::error::{CliError, CliResult};

/// Names are `state-REVISION.snapshot`, in 16 hexadecimal digits: they sort by revision.
const PREFIX: &str = "state-";
const SUFFIX: &str = ".snapshot";
/// Files that an interrupted process left.
const PART_SUFFIXES: [&str; 2] = [".part", ".new"];
/// The delay after a failure, at most.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Snapshots of a store, until it is dropped.
pub(super) struct Schedule {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Schedule {
    /// Starts them; the first is due an interval after the newest file, or now without one.
    pub(super) fn start(
        store: Arc<Store>,
        folder: PathBuf,
        every: Duration,
        keep: usize,
    ) -> CliResult<Self> {
        let wrong = |error: io::Error| CliError::file(&folder, &error);
        fs::create_dir_all(&folder).map_err(wrong)?;
        remove_parts(&folder).map_err(wrong)?;
        let newest = list(&folder).map_err(wrong)?.pop();
        let age = newest.and_then(|path| fs::metadata(path).ok()?.modified().ok());
        let age = age.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        let mut delay = age.map_or(Duration::ZERO, |age| every.saturating_sub(age));
        let (stop, stopped) = channel();
        let run = move || {
            while stopped.recv_timeout(delay) == Err(RecvTimeoutError::Timeout) {
                delay = match save(&store, &folder, keep) {
                    Ok(()) => every,
                    Err(error) => {
                        eprintln!("helio: no snapshot in {}: {error}", folder.display());
                        every.min(RETRY_INTERVAL)
                    }
                };
            }
        };
        let thread = std::thread::Builder::new().name("state-schedule".into()).spawn(run);
        let thread = thread.map_err(|error| CliError::Failure(error.to_string()))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            drop(thread.join());
        }
    }
}

/// The snapshots of a folder, oldest first.
pub(super) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = names(folder, &[SUFFIX])?;
    found.sort();
    Ok(found)
}

fn names(folder: &Path, suffixes: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name
            .strip_prefix(PREFIX)
            .and_then(|rest| suffixes.iter().find_map(|suffix| rest.strip_suffix(suffix)));
        if digits
            .is_some_and(|digits| digits.len() == 16 && i64::from_str_radix(digits, 16).is_ok())
        {
            found.push(path);
        }
    }
    Ok(found)
}

fn remove_parts(folder: &Path) -> io::Result<()> {
    names(folder, &PART_SUFFIXES)?.iter().try_for_each(fs::remove_file)
}

/// Saves a snapshot, unless there is one of this revision, and removes the oldest ones.
fn save(store: &Store, folder: &Path, keep: usize) -> io::Result<()> {
    let revision = store.status().revision;
    let file = folder.join(format!("{PREFIX}{revision:016x}{SUFFIX}"));
    if !file.exists() {
        let part = folder.join(format!("{PREFIX}{revision:016x}{}", PART_SUFFIXES[0]));
        let saved = store.backup(&part).map_err(io::Error::other);
        let saved = saved.and_then(|_| saved::seal(&part)).and_then(|()| fs::rename(&part, &file));
        saved.and_then(|()| File::open(folder)?.sync_all()).inspect_err(|_| {
            drop(fs::remove_file(&part));
        })?;
    }
    let all = list(folder)?;
    all[..all.len().saturating_sub(keep)].iter().try_for_each(fs::remove_file)
}
