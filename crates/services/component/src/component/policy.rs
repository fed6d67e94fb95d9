//! The authorization file: who may command what, read again when it changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::StartError;
use crate::protocol::Policy;
use crate::protocol::authority::MAX_POLICY_BYTES;

/// A file that is looked at once a second.
#[derive(Debug)]
pub(super) struct PolicyFile {
    path: PathBuf,
    seen: Option<Seen>,
}

/// What tells that a file changed.
type Seen = (SystemTime, u64, u64);

/// What became of a file.
#[derive(Debug)]
pub(super) enum Change {
    /// There is a new policy.
    New(Box<Policy>),
    /// It is wrong; the last good one stays.
    Wrong(String),
}

impl PolicyFile {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path) -> Result<(Self, Policy), StartError> {
        let wrong = |reason: String| StartError::Policy { path: path.to_owned(), reason };
        let seen = seen(path).map_err(|error| wrong(error.to_string()))?;
        let text = read(path).map_err(|error| wrong(error.to_string()))?;
        let policy = Policy::parse(&text).map_err(|error| StartError::policy(path, &error))?;
        Ok((Self { path: path.to_owned(), seen: Some(seen) }, policy))
    }

    /// Looks whether it changed since the last look.
    pub(super) fn look(&mut self) -> Option<Change> {
        let seen = match seen(&self.path) {
            Ok(seen) => seen,
            Err(_) if self.seen.is_none() => return None,
            Err(error) => {
                self.seen = None;
                return Some(self.wrong(&error.to_string()));
            }
        };
        if self.seen == Some(seen) {
            return None;
        }
        self.seen = Some(seen);
        let text = match read(&self.path) {
            Ok(text) => text,
            Err(error) => return Some(self.wrong(&error.to_string())),
        };
        Some(match Policy::parse(&text) {
            Ok(policy) => Change::New(Box::new(policy)),
            Err(error) => self.wrong(&error.to_string()),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn wrong(&self, reason: &str) -> Change {
        let path = self.path.display();
        let text = format!("the authorization file {path} cannot be used: {reason}");
        Change::Wrong(format!("{text}; the last good one stays in force"))
    }
}

fn seen(path: &Path) -> io::Result<Seen> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path)?;
    Ok((file.modified()?, file.len(), file.ino()))
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    // One byte more than is allowed: the parser then says that it is too long.
    let limit = MAX_POLICY_BYTES as u64 + 1;
    fs::File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}
