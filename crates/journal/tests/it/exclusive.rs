//! Exclusive logs after power cuts that the simulation (`tests/soak`) once found to go wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use helio_journal::{
    ExclusiveContents, ExclusiveLog, ExclusiveOptions, JournalOptions, Maintenance, RunEnd,
    SyncHook, SyncPolicy,
};

fn open(folder: &Path, boot: u8, sync_hook: Option<SyncHook>) -> (ExclusiveLog, ExclusiveContents) {
    let (maintenance, boot_id) = (Maintenance::Manual, Some([boot; 16]));
    let journal = JournalOptions { maintenance, boot_id, sync_hook, ..JournalOptions::default() };
    let options = ExclusiveOptions {
        owner: "test".to_owned(),
        sync: SyncPolicy::OnRequest,
        segment_bytes: Some(32 << 10),
        journal,
    };
    ExclusiveLog::open(folder, options).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The only segment in and below a folder.
fn segment(folder: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.find_map(|path| match path.is_dir() {
        true => segment(&path),
        false => path.extension().is_some_and(|name| name == "seg").then_some(path),
    })
}

fn lose_record(file: &Path, payload: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(payload.len()).rposition(|window| window == payload).unwrap();
    bytes[at..at + payload.len()].fill(0);
    fs::write(file, bytes).unwrap();
}

/// Copies a folder before each of its syncs: what a power cut at that moment may leave.
fn images(folder: &Path, into: &Path) -> (SyncHook, Arc<Mutex<usize>>) {
    let (folder, into) = (folder.to_owned(), into.to_owned());
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let hook = move |_: &Path| {
        let mut count = counted.lock().unwrap();
        copy(&folder, &into.join(count.to_string()));
        *count += 1;
        Ok(())
    };
    (Arc::new(hook), count)
}

#[test]
fn a_second_power_cut_during_recovery_makes_no_unsynced_record_missing() {
    let root = tempfile::tempdir().unwrap();
    let (first, cut) = (root.path().join("first"), root.path().join("cut"));
    let (log, _) = open(&first, 1, None);
    log.begin(1, 0, b"").unwrap();
    log.append(0, &[b"synced"]).unwrap();
    log.on_synced(Box::new(|synced| synced.unwrap()));
    log.append(1, &[b"not synced"]).unwrap();
    // The page of the control file reaches the disk, that of the record does not.
    copy(&first, &cut);
    drop(log);
    lose_record(&segment(&cut).unwrap(), b"not synced");

    let (hook, count) = images(&cut, root.path());
    let (log, found) = open(&cut, 2, Some(hook));
    let wanted = (RunEnd::PowerLost, 1);
    assert_eq!((found.ended, found.durable), wanted);
    log.begin(2, 1, b"").unwrap();
    drop(log);
    let count = *count.lock().unwrap();
    assert!(count > 5, "{count} syncs");
    let mut began = 0;
    for image in (0..count).map(|n| root.path().join(n.to_string())) {
        let (_, found) = open(&image, 3, None);
        let newest = found.epochs.last().unwrap();
        assert_eq!((newest.end, found.ended), (1, RunEnd::PowerLost), "{}", image.display());
        assert!(found.durable <= newest.end, "{found:?} in {}", image.display());
        began += usize::from(newest.number == 2);
    }
    assert!(began < count, "no cut came before the next epoch");
}
