//! Data beside the repository, for tests that are skipped without it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder of shared test data: `$HELIO_SHARED_DATA`, else `../shared/data` beside the
/// repository. Without it the test reports that it is skipped.
pub(crate) fn shared_data(part: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(part);
    if !path.exists() {
        // Not println!, which the test runner captures.
        let _ = writeln!(std::io::stderr(), "skipped: {} not found", path.display());
        return None;
    }
    Some(path)
}

/// All files under a folder: paths within it, with `/` between parts, and contents.
pub(crate) fn files_under(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(folder).unwrap();
            let parts: Vec<_> = inside.iter().map(|part| part.to_str().unwrap()).collect();
            files.push((parts.join("/"), fs::read(&path).unwrap()));
        }
    }
    files
}

/// The lines of a gzip file, each parsed as JSON (RFC 1952; of the header's options only the name).
pub(crate) fn gzip_json_lines(path: &Path) -> Vec<serde_json::Value> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[..3], [0x1f, 0x8b, 8], "{} is no gzip file", path.display());
    let name = match bytes[3] {
        0 => 0,
        8 => bytes[10..].iter().position(|byte| *byte == 0).unwrap() + 1,
        flags => panic!("gzip flags {flags}"),
    };
    let text = miniz_oxide::inflate::decompress_to_vec(&bytes[10 + name..]).unwrap();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
