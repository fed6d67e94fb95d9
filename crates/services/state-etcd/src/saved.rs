//! Snapshots as files for etcd's clients: the store's own snapshot, then zeros, its length, and a
//! SHA-256 of all before. `docs/formats/state.md` has the byte table.
//!
//! `etcdctl snapshot save` accepts a file whose length has a remainder of 32 by 512. The content is
//! not etcd's: `etcdutl` cannot read it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// The unit of the length without the sum: a page of etcd's own file is a multiple of it.
const UNIT_BYTES: u64 = 512;
const SUM_BYTES: u64 = SHA256_OUTPUT_LEN as u64;
const LENGTH_BYTES: u64 = 8;

/// Seals a file: appends zeros, the length and the sum, and syncs it.
///
/// # Errors
/// If the file cannot be read or written.
pub fn seal(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    let padded = (length + LENGTH_BYTES).next_multiple_of(UNIT_BYTES) - LENGTH_BYTES;
    let mut end = vec![0; usize::try_from(padded - length).map_err(io::Error::other)?];
    end.extend_from_slice(&length.to_le_bytes());
    let mut sum = Context::new(&SHA256);
    add(&mut sum, &mut file)?;
    sum.update(&end);
    end.extend_from_slice(sum.finish().as_ref());
    file.write_all(&end)?;
    file.sync_all()
}

/// The bytes of the snapshot in a sealed file; none if the file is not sealed, or damaged.
///
/// # Errors
/// If the file cannot be read.
pub fn content(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length % UNIT_BYTES != SUM_BYTES || length < UNIT_BYTES {
        return Ok(None);
    }
    let mut sum = Context::new(&SHA256);
    add(&mut sum, &mut (&mut file).take(length - SUM_BYTES))?;
    let mut stored = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut stored)?;
    if sum.finish().as_ref() != stored {
        return Ok(None);
    }
    let mut content = [0; LENGTH_BYTES as usize];
    file.seek(SeekFrom::Start(length - SUM_BYTES - LENGTH_BYTES))?;
    file.read_exact(&mut content)?;
    let content = u64::from_le_bytes(content);
    Ok((content <= length - SUM_BYTES - LENGTH_BYTES).then_some(content))
}

/// Copies the snapshot of a file, sealed or not, to a new file; its bytes.
///
/// # Errors
/// If one file cannot be read or the other not written.
pub fn unseal(from: &Path, to: &Path) -> io::Result<u64> {
    let length = match content(from)? {
        Some(length) => length,
        // The snapshot's own checksums refuse a damaged end.
        None => std::fs::metadata(from)?.len(),
    };
    let mut new = File::create(to)?;
    io::copy(&mut File::open(from)?.take(length), &mut new)
}

fn add(sum: &mut Context, from: &mut impl Read) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => sum.update(&buffer[..bytes]),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn a_sealed_file_has_its_content_and_a_damaged_one_is_not_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, copy) = (folder.path().join("a"), folder.path().join("b"));
        for length in [0, 1, 503, 504, 505, 544, 1024, 300_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(content(&file).unwrap(), None);
            seal(&file).unwrap();
            assert_eq!(std::fs::metadata(&file).unwrap().len() % 512, 32);
            assert_eq!(content(&file).unwrap(), Some(length));
            assert_eq!(unseal(&file, &copy).unwrap(), length);
            assert_eq!(std::fs::read(&copy).unwrap(), bytes);
            let mut sealed = std::fs::read(&file).unwrap();
            let places = [0, sealed.len() / 2, sealed.len() - 40, sealed.len() - 1];
            for at in places {
                sealed[at] ^= 1;
                std::fs::write(&file, &sealed).unwrap();
                assert_eq!(content(&file).unwrap(), None, "byte {at} of {length}");
                sealed[at] ^= 1;
            }
            sealed.truncate(sealed.len() - 1);
            std::fs::write(&file, &sealed).unwrap();
            assert_eq!(content(&file).unwrap(), None);
        }
    }
}
