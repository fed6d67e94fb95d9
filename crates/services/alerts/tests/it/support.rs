//! Real packets, and Rubin's published schemas.

use std::path::{Path, PathBuf};

use helio_core::schema::{Schema, SchemaSet};

/// A real packet; where it is absent the test says that it is skipped.
pub(crate) fn shared_data(part: &str) -> Option<Vec<u8>> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(part);
    let found = std::fs::read(&path).ok();
    if found.is_none() {
        println!("skipped: {} not found", path.display());
    }
    found
}

/// A real packet of version 9.0, with its Confluent frame.
pub(crate) fn rubin_packet() -> Option<Vec<u8>> {
    shared_data("alerts/lsst-v9_0-confluent-framed.bin")
}

/// A version's published schema, from the package lsst-alert-packet where the repository's Python
/// environment has it. Where it is absent the test says that it is skipped.
pub(crate) fn published(version: helio_alerts::rubin::Version) -> Option<Schema> {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.venv/lib");
    let part = version.to_string().replace('.', "/");
    let part = format!("site-packages/lsst/alert/packet/schema/{part}");
    let pythons = std::fs::read_dir(venv).into_iter().flatten().flatten();
    let Some(folder) = pythons.map(|p| p.path().join(&part)).find(|folder| folder.is_dir()) else {
        println!("skipped: {venv} has no {part}; `make python` installs lsst-alert-packet");
        return None;
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == "avsc"));
    let texts: Vec<_> = files
        .map(|file| (file.display().to_string(), std::fs::read_to_string(&file).unwrap()))
        .collect();
    let set = SchemaSet::load(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let name = format!("lsst.v{}.alert", version.to_string().replace('.', "_"));
    Some(set.unwrap().schema(&name).unwrap())
}
