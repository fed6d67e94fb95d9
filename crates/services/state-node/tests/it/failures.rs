//! What the machine does to a store: full disks, the loss of power, threads that panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state::{
    Alarm, AlarmState, DeleteRangeRequest, Error, RangeRequest, WatchBody, WatchCreate,
    WriteRequest, WriteResponse,
};
use helio_state_node::{Options, Pending, Store};

use crate::support::{all, bus, get, put, put_request, value};
use crate::tmpfs::on_tmpfs;

fn journal(folder: &Path, options: &Options) -> Store {
    let bus = Bus::connect(&format!("journal:{}", folder.join("log").display())).unwrap();
    Store::open(&bus, &folder.join("state"), options).unwrap()
}

fn delete(key: &str) -> WriteRequest {
    let key = key.to_owned().into();
    WriteRequest::DeleteRange(DeleteRangeRequest { key, ..Default::default() })
}

/// Puts until one is refused; returns the number of puts.
fn fill(store: &Store, len: usize) -> usize {
    for n in 0..10_000 {
        let request = put_request(&format!("k{n:04}"), &"x".repeat(len));
        match store.write(WriteRequest::Put(request)).wait() {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                return n;
            }
        }
    }
    panic!("the disk never got full");
}

#[test]
fn a_full_disk_raises_the_alarm_and_deletions_and_compactions_make_room() {
    for durability in [LogDurability::Disk, LogDurability::Interval] {
        on_tmpfs("24m", |dir| fill_disk(dir, durability));
    }
}

fn fill_disk(dir: &Path, durability: LogDurability) {
    let options = Options {
        durability,
        segment_bytes: Some(1 << 20),
        reserve_bytes: 4 << 20,
        ..Options::new("full")
    };
    let store = journal(dir, &options);
    let stored = fill(&store, 10_000);
    assert!(stored > 500, "{stored} puts on 20 MB");
    // The next ones are refused by the alarm, in the store and after its restart.
    let grant = WriteRequest::LeaseGrant { id: 0, ttl: 60 };
    assert_eq!(store.write(grant).wait(), Err(Error::NoSpace));
    assert_eq!(store.alarms(), [Alarm::NoSpace]);
    assert_eq!(store.check(), Ok(()));
    drop(store);
    let store = journal(dir, &options);
    assert_eq!(store.alarms(), [Alarm::NoSpace]);
    assert_eq!(fill(&store, 1), 0);
    // Reads, deletions and compactions go on.
    assert_eq!(store.range(&all()).unwrap().count, stored as i64);
    assert_eq!(value(&store.range(&get("k0007")).unwrap()).len(), 10_000);
    for n in 0..stored - 10 {
        store.write(delete(&format!("k{n:04}"))).wait().unwrap();
    }
    let revision = store.status().revision;
    store.write(WriteRequest::Compact(revision)).wait().unwrap();
    store.trim().unwrap();
    assert_eq!(store.range(&all()).unwrap().count, 10);
    // The end of the alarm lets writes in again, also after a restart.
    let cleared = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Cleared };
    store.write(cleared).wait().unwrap();
    put(&store, "again", "1");
    drop(store);
    let store = journal(dir, &options);
    assert_eq!(store.alarms(), []);
    assert_eq!(store.range(&all()).unwrap().count, 11);
    assert!(fill(&store, 10_000) > 500, "the room is given back");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A copy of the folder has lost its boot's mark, as after the loss of power.
#[test]
fn revisions_jump_after_a_power_loss_where_syncs_come_after_the_answers() {
    for durability in [LogDurability::Interval, LogDurability::Disk] {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        let options = Options { durability, ..Options::new("jump") };
        let store = journal(&before, &options);
        for n in 0..20 {
            put(&store, &format!("k{n}"), "v");
        }
        // A kill alone is no reason to jump.
        drop(store);
        let store = journal(&before, &options);
        assert_eq!(store.status().revision, 21);
        drop(store);
        copy(&before, &after);
        let mut store = journal(&after, &options);
        let jumped = durability == LogDurability::Interval;
        let base = if jumped { 1 << 36 } else { 21 };
        assert_eq!(store.status().revision, base);
        assert_eq!(store.status().compact_revision, if jumped { base } else { 0 });
        assert_eq!(store.range(&all()).unwrap().count, 20);
        let old = RangeRequest { revision: 21, ..get("k3") };
        let read = store.range(&old).map(|response| response.count);
        assert_eq!(read, if jumped { Err(Error::Compacted) } else { Ok(1) });
        let watcher = store.watcher();
        let create = WatchCreate { key: "k3".into(), start_revision: 22, ..Default::default() };
        watcher.create(&create);
        let canceled = watcher.try_next().into_iter().find_map(|response| match response.body {
            WatchBody::Canceled { compact_revision, .. } => Some(compact_revision),
            _ => None,
        });
        assert_eq!(canceled, jumped.then_some(base));
        assert_eq!(put(&store, "k3", "new"), base + 1);
        // A second loss jumps again, a clean end does not.
        drop(watcher);
        store.close().unwrap();
        store = journal(&after, &options);
        assert_eq!(store.status().revision, base + 1);
        drop(store);
        let again = folder.path().join("again");
        copy(&after, &again);
        let store = journal(&again, &options);
        assert_eq!(store.status().revision, if jumped { 2 << 36 } else { 22 });
        assert_eq!(value(&store.range(&get("k3")).unwrap()), "new");
    }
}

/// A waker that writes, which is queued, and panics.
struct Panicking {
    store: Arc<Store>,
    queued: Mutex<Option<Pending>>,
}

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        let queued = self.store.write(WriteRequest::Put(put_request("queued", "1")));
        *self.queued.lock().unwrap() = Some(queued);
        panic!("a waker's panic");
    }
}

#[test]
fn a_panic_in_a_write_stops_the_store_and_no_request_waits_for_ever() {
    let (bus, folder) = (bus("panic"), tempfile::tempdir().unwrap());
    let options = Options { durability: LogDurability::Interval, ..Options::new("panic") };
    let store = Arc::new(Store::open(&bus, folder.path(), &options).unwrap());
    put(&store, "a", "1");
    let watcher = store.watcher();
    watcher.create(&WatchCreate { key: "a".into(), ..WatchCreate::default() });
    watcher.try_next();
    let waker = Arc::new(Panicking { store: Arc::clone(&store), queued: Mutex::default() });
    let context = Waker::from(Arc::clone(&waker));
    assert!(watcher.poll_next(&mut Context::from_waker(&context)).is_pending());
    // Answers come while the writer is held, under this durability.
    let write = || store.write(WriteRequest::Put(put_request("a", "2")));
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
    let queued = waker.queued.lock().unwrap().take().unwrap();
    assert_eq!(queued.wait(), Err(Error::Stopped));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let store = Arc::clone(&store);
            let request = WriteRequest::Put(put_request(&format!("t{n}"), "1"));
            thread::spawn(move || store.write(request).wait())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Err(Error::Stopped));
    }
    assert_eq!(store.check(), Err(Error::Stopped));
    let failure = store.status().failure.unwrap();
    assert!(failure.contains("panicked"), "{failure}");
    // Its log has what was acknowledged.
    assert_eq!(store.range(&get("a")).unwrap().count, 1);
    drop((watcher, context, waker));
    drop(store);
    let store = Store::open(&bus, folder.path(), &options).unwrap();
    let written = store.write(delete("a")).wait();
    assert!(matches!(written, Ok(WriteResponse::DeleteRange(d)) if d.deleted == 1));
}
