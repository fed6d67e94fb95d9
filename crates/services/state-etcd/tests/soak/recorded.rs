//! The golden file is what a real etcd answers; `HELIO_RECORD=1` writes it.

use std::path::PathBuf;

use crate::engine::Etcd;
use crate::support::{cases, play};

#[test]
fn the_golden_file_is_what_etcd_answers() {
    let Some(etcd) = Etcd::start() else { return };
    assert_eq!(etcd.version(), helio_state_etcd::ETCD_VERSION);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = runtime.block_on(play::play(etcd.url(), &cases::all()));
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/etcd.txt");
    if std::env::var_os("HELIO_RECORD").is_some() {
        std::fs::write(&golden, &told).unwrap();
    }
    let golden = std::fs::read_to_string(golden).unwrap();
    for (told, golden) in told.lines().zip(golden.lines()) {
        assert_eq!(told, golden);
    }
    assert_eq!(told.lines().count(), golden.lines().count());
}
