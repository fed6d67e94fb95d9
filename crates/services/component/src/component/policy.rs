//! The authorization file: which caller may send which command. It is read again when it changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::protocol::Policy;
use crate::protocol::authorization::MAX_POLICY_BYTES;

/// A file that is polled once a second.
#[derive(Debug)]
pub(super) struct PolicyFile {
    path: PathBuf,
    /// The file's version when it was last read.
    seen: FileVersion,
    /// Why it cannot be read at present; reported once. Each poll tries again.
    unreadable: Option<String>,
}

/// The properties that identify a version of a file: time, size, inode.
type FileVersion = (SystemTime, u64, u64);

/// The result of a poll.
#[derive(Debug)]
pub(super) enum PolicyChange {
    /// A new policy.
    New(Box<Policy>),
    /// The file is invalid; the last valid policy stays in force.
    Wrong(String),
}

impl PolicyFile {
    /// Reads the file for the first time; the error is its reason.
    pub(super) fn open(path: &Path) -> Result<(Self, Policy), String> {
        let seen = seen(path).map_err(|error| error.to_string())?;
        let text = read(path).map_err(|error| error.to_string())?;
        let policy = Policy::parse(&text).map_err(|error| error.to_string())?;
        Ok((Self { path: path.to_owned(), seen, unreadable: None }, policy))
    }

    /// Checks whether the file changed since the last poll.
    pub(super) fn poll(&mut self) -> Option<PolicyChange> {
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
            Ok(policy) => PolicyChange::New(Box::new(policy)),
            Err(error) => self.wrong(&error.to_string()),
        })
    }

    /// The file's text, if it has changed. The version is taken before reading: a change in between
    /// is read again.
    fn changed(&self) -> io::Result<Option<(FileVersion, String)>> {
        let seen = seen(&self.path)?;
        if self.seen == seen && self.unreadable.is_none() {
            return Ok(None);
        }
        Ok(Some((seen, read(&self.path)?)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn wrong(&self, reason: &str) -> PolicyChange {
        let path = self.path.display();
        let text = format!("the authorization file {path} cannot be used: {reason}");
        PolicyChange::Wrong(format!("{text}; the last valid one stays in force"))
    }
}

fn seen(path: &Path) -> io::Result<FileVersion> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path)?;
    Ok((file.modified()?, file.len(), file.ino()))
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    // One byte more than the limit: the parser then reports that the file is too long.
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
        // All have the same length and time: only reading tells them apart.
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let write = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        fs::write(&path, b"default: deny").unwrap();
        let (mut file, _) = PolicyFile::open(&path).unwrap();
        assert!(file.poll().is_none());
        write(b"default: \xff\xff\xff\xff\xff");
        assert!(matches!(file.poll(), Some(PolicyChange::Wrong(text)) if text.contains("stays")));
        assert!(file.poll().is_none(), "it is told once");
        write(b"default: allow");
        assert!(matches!(file.poll(), Some(PolicyChange::New(_))));
        assert!(file.poll().is_none());
        fs::remove_file(&path).unwrap();
        assert!(matches!(file.poll(), Some(PolicyChange::Wrong(_))));
        write(b"default: allow");
        assert!(matches!(file.poll(), Some(PolicyChange::New(_))));
    }
}
