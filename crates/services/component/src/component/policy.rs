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
    /// The file as it was when it was last read.
    seen: Seen,
    /// Why it cannot be read now, as was told once; it is tried again at each look.
    unreadable: Option<String>,
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
        Ok((Self { path: path.to_owned(), seen, unreadable: None }, policy))
    }

    /// Looks whether it changed since the last look.
    pub(super) fn look(&mut self) -> Option<Change> {
        let text = match self.changed() {
            Ok(None) => return None,
            Ok(Some((seen, text))) => {
                (self.seen, self.unreadable) = (seen, None);
                text
            }
            Err(error) => {
                let reason = error.to_string();
                let told = self.unreadable.as_ref() == Some(&reason);
                let change = (!told).then(|| self.wrong(&reason));
                self.unreadable = Some(reason);
                return change;
            }
        };
        Some(match Policy::parse(&text) {
            Ok(policy) => Change::New(Box::new(policy)),
            Err(error) => self.wrong(&error.to_string()),
        })
    }

    /// What it says, where it has changed. It is looked at before it is read: what changes in
    /// between is read again.
    fn changed(&self) -> io::Result<Option<(Seen, String)>> {
        let seen = seen(&self.path)?;
        if self.seen == seen && self.unreadable.is_none() {
            return Ok(None);
        }
        Ok(Some((seen, read(&self.path)?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_read_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("who.yaml");
        // All of the same length and time: nothing but the reading tells them apart.
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let write = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        fs::write(&path, b"default: deny").unwrap();
        let (mut file, _) = PolicyFile::open(&path).unwrap();
        assert!(file.look().is_none());
        write(b"default: \xff\xff\xff\xff\xff");
        assert!(matches!(file.look(), Some(Change::Wrong(text)) if text.contains("stays")));
        assert!(file.look().is_none(), "it is told once");
        write(b"default: allow");
        assert!(matches!(file.look(), Some(Change::New(_))));
        assert!(file.look().is_none());
        fs::remove_file(&path).unwrap();
        assert!(matches!(file.look(), Some(Change::Wrong(_))));
        write(b"default: allow");
        assert!(matches!(file.look(), Some(Change::New(_))));
    }
}
