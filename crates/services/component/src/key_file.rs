//! Files with the private key of a caller.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::protocol::{CallerKey, KeyError, MAX_KEY_FILE_BYTES};

/// The permissions of a key file: reading and writing for its owner.
const MODE: u32 = 0o600;
/// The permissions that it must not have.
const OTHERS: u32 = 0o077;

/// Why a caller's key cannot be read or made.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file cannot be read or written.
    #[error("the key file {0}: {1}")]
    File(PathBuf, io::Error),
    /// Its contents are no key.
    #[error("the key file {0}: {1}")]
    Key(PathBuf, KeyError),
    /// Others than its owner may read it.
    #[error("the key file {0} may be read by others (mode {1:03o}); run `chmod 600 {0}`")]
    Open(PathBuf, u32),
}

/// Reads a caller's private key from a PEM file.
///
/// # Errors
/// [`KeyFileError`]; also for a file that others than its owner may read.
pub fn read_caller_key(path: &Path) -> Result<CallerKey, KeyFileError> {
    let failed = |error| KeyFileError::File(path.to_owned(), error);
    let file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Open(path.to_owned(), mode));
    }
    let mut text = String::new();
    file.take(MAX_KEY_FILE_BYTES as u64).read_to_string(&mut text).map_err(failed)?;
    CallerKey::from_pem(&text).map_err(|error| KeyFileError::Key(path.to_owned(), error))
}

/// Makes a key and writes it to a new file, which only its owner may read.
///
/// # Errors
/// [`KeyFileError::File`]; also if the file exists.
pub fn make_caller_key(path: &Path) -> Result<CallerKey, KeyFileError> {
    let failed = |error| KeyFileError::File(path.to_owned(), error);
    let mut seed = [0; 32];
    // The kernel fills 256 bytes or fewer as a whole.
    let filled = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    if filled.map_err(|error| failed(error.into()))? != seed.len() {
        return Err(failed(io::Error::other("the system gave too few random bytes")));
    }
    let key = CallerKey::of_seed(&seed);
    let new = fs::File::options().write(true).create_new(true).mode(MODE).open(path);
    let mut file = new.map_err(failed)?;
    file.write_all(key.to_pem().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_its_owner_s_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alice.pem");
        let key = make_caller_key(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(read_caller_key(&path).unwrap(), key);
        assert_ne!(make_caller_key(&folder.path().join("bob.pem")).unwrap(), key);
        let told = make_caller_key(&path).unwrap_err().to_string();
        assert!(told.contains("exists"), "{told}");
        for mode in [0o640, 0o604] {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&path, permissions).unwrap();
            let told = read_caller_key(&path).unwrap_err().to_string();
            assert!(told.contains("chmod 600"), "{told}");
        }
        let told = read_caller_key(&folder.path().join("none")).unwrap_err().to_string();
        assert!(told.contains("none: No such file"), "{told}");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, permissions).unwrap();
        fs::write(&path, "x".repeat(10_000)).unwrap();
        let told = read_caller_key(&path).unwrap_err().to_string();
        assert!(told.contains("no Ed25519 private key"), "{told}");
    }
}
