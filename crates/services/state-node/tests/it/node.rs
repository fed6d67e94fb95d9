//! Restarts, snapshots, watches, restores.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use helio_state::{
    Alarm, AlarmState, Error, PutRequest, RangeRequest, WatchBody, WatchCreate, WriteRequest,
};
use helio_state_node::{OpenError, Options, Store, restore};

use crate::support::{all, bus, get, open, put, put_request, value};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_killed_store_has_all_that_it_acknowledged() {
    let (bus, folder) = (bus("killed"), tempfile::tempdir().unwrap());
    let store = open(&bus, folder.path());
    for n in 0..100 {
        put(&store, &format!("k{}", n % 30), &n.to_string());
    }
    drop(store);
    let store = open(&bus, folder.path());
    assert_eq!((store.status().revision, store.status().keys), (101, 30));
    assert_eq!(value(&store.range(&get("k9")).unwrap()), "99");
    assert_eq!(put(&store, "k9", "x"), 102);
    store.close().unwrap();
    assert!(matches!(
        store.write(WriteRequest::Put(put_request("a", "b"))).wait(),
        Err(Error::Stopped)
    ));
}

#[test]
fn a_second_store_of_a_log_is_refused() {
    let (bus, folder) = (bus("second"), tempfile::tempdir().unwrap());
    let _store = open(&bus, folder.path());
    let second = Store::open(&bus, folder.path(), &Options::new("second"));
    let Err(OpenError::Log(error)) = second else { panic!("opened twice") };
    assert!(error.to_string().contains("test"), "{error}");
}

#[test]
fn trimmed_keys_are_read_from_the_snapshot_before_and_after_a_restart() {
    let (bus, folder) = (bus("trimmed"), tempfile::tempdir().unwrap());
    let mut store = open(&bus, folder.path());
    for round in 0..4 {
        for n in 0..50 {
            put(&store, &format!("k{n:02}"), &format!("{round}"));
        }
        put(&store, &format!("once{round}"), &round.to_string());
        let revision = store.status().revision;
        store.write(WriteRequest::Compact(revision - 10)).wait().unwrap();
        let hash = store.hash_kv(0).unwrap();
        let before = store.status().db_size;
        assert!(store.trim().unwrap());
        assert!(!store.trim().unwrap(), "nothing more to trim");
        assert!(before > 0);
        assert_eq!(store.hash_kv(0).unwrap(), hash);
        let old = RangeRequest { revision: revision - 10, ..get("k49") };
        let want = if round == 0 { None } else { Some((round - 1).to_string()) };
        // k49 is the last but one write of a round: nine below it were not yet overwritten.
        let got = store.range(&old).unwrap();
        assert_eq!(got.kvs.first().map(|_| value(&got)), want);
        drop(store);
        store = open(&bus, folder.path());
        assert_eq!(store.hash_kv(0).unwrap(), hash);
        let got = store.range(&old).unwrap();
        assert_eq!(got.kvs.first().map(|_| value(&got)), want);
        let older = RangeRequest { revision: revision - 11, ..get("k49") };
        assert_eq!(store.range(&older), Err(Error::Compacted));
    }
    assert_eq!(store.range(&all()).unwrap().count, 54);
    assert_eq!(value(&store.range(&get("once0")).unwrap()), "0");
}

#[test]
fn writers_of_many_threads_get_distinct_revisions_and_a_watch_sees_each() {
    let (bus, folder) = (bus("many"), tempfile::tempdir().unwrap());
    let store = Arc::new(open(&bus, folder.path()));
    let watcher = store.watcher();
    watcher.create(&WatchCreate { range_end: "\0".into(), ..WatchCreate::default() });
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let store = Arc::clone(&store);
            thread::spawn(move || -> Vec<i64> {
                (0..200).map(|n| put(&store, &format!("{thread}/{n}"), "v")).collect()
            })
        })
        .collect();
    let mut revisions: Vec<i64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..1602).collect::<Vec<_>>());
    let mut seen = Vec::new();
    while seen.len() < 1600 {
        for response in watcher.next(PATIENCE) {
            if let WatchBody::Events { events, .. } = response.body {
                seen.extend(events.iter().map(|e| e.kv.fields().mod_revision));
            }
        }
    }
    assert_eq!(seen, revisions);
}

struct Flag(std::sync::atomic::AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_waiting_stream_is_woken_without_a_runtime() {
    let (bus, folder) = (bus("woken"), tempfile::tempdir().unwrap());
    let store = open(&bus, folder.path());
    let watcher = store.watcher();
    let flag = Arc::new(Flag(false.into()));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    watcher.create(&WatchCreate { key: "a".into(), ..WatchCreate::default() });
    let Poll::Ready(created) = watcher.poll_next(&mut context) else { panic!() };
    assert_eq!(created[0].body, WatchBody::Created);
    assert!(watcher.poll_next(&mut context).is_pending());
    put(&store, "a", "1");
    assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
    assert!(watcher.poll_next(&mut context).is_ready());
}

#[test]
fn expired_leases_delete_their_keys() {
    let (bus, folder) = (bus("leases"), tempfile::tempdir().unwrap());
    let store = open(&bus, folder.path());
    store.write(WriteRequest::LeaseGrant { id: 7, ttl: 2 }).wait().unwrap();
    let put = PutRequest { lease: Some(7), ..put_request("a", "1") };
    store.write(WriteRequest::Put(put)).wait().unwrap();
    assert_eq!(store.lease_status(7).keys.len(), 1);
    let watcher = store.watcher();
    watcher.create(&WatchCreate { key: "a".into(), ..WatchCreate::default() });
    watcher.try_next();
    let responses = watcher.next(PATIENCE);
    assert!(matches!(&responses[0].body, WatchBody::Events { events, .. } if events.len() == 1));
    assert!(store.leases().is_empty());
}

#[test]
fn a_restored_store_jumps_and_a_watch_of_the_old_one_is_canceled() {
    let (old, new) = (bus("backup"), bus("restored"));
    let folder = tempfile::tempdir().unwrap();
    let store = open(&old, &folder.path().join("old"));
    for n in 0..20 {
        put(&store, &format!("k{n}"), "kept");
    }
    let file = folder.path().join("backup");
    store.backup(&file).unwrap();
    put(&store, "lost", "1");
    let to = folder.path().join("new");
    let options = Options::new("restored");
    let restored = restore(&new, &file, &to, &options).unwrap();
    assert_eq!((restored.from, restored.to, restored.keys), (21, 1 << 36, 20));
    assert!(matches!(restore(&new, &file, &to, &options), Err(OpenError::NotEmpty { .. })));
    for _ in 0..2 {
        let store = open(&new, &to);
        assert_eq!(store.range(&all()).unwrap().count, 20);
        assert_eq!(value(&store.range(&get("k7")).unwrap()), "kept");
        let watcher = store.watcher();
        let create = WatchCreate { key: "k7".into(), start_revision: 22, ..Default::default() };
        watcher.create(&create);
        let responses = watcher.try_next();
        let WatchBody::Canceled { compact_revision, .. } = responses[1].body else {
            panic!("{responses:?}")
        };
        assert_eq!(compact_revision, 1 << 36);
    }
    let store = open(&new, &to);
    assert!(put(&store, "k7", "new") > 1 << 36);
    drop(store);
    let store = open(&new, &to);
    assert_eq!(value(&store.range(&get("k7")).unwrap()), "new");
    assert_eq!(value(&store.range(&get("k8")).unwrap()), "kept");
}

#[test]
fn the_alarm_of_space_outlives_a_restart_and_compaction_ends_it() {
    let (bus, folder) = (bus("quota"), tempfile::tempdir().unwrap());
    let options = Options { quota_bytes: 200_000, ..Options::new("quota") };
    let store = Store::open(&bus, folder.path(), &options).unwrap();
    let big = "x".repeat(1_000);
    let refused = loop {
        let put = WriteRequest::Put(put_request("a", &big));
        match store.write(put).wait() {
            Ok(_) => {}
            Err(error) => break error,
        }
        thread::yield_now();
    };
    assert_eq!(refused, Error::NoSpace);
    drop(store);
    let store = Store::open(&bus, folder.path(), &options).unwrap();
    assert_eq!(store.alarms(), [Alarm::NoSpace]);
    store.write(WriteRequest::Compact(store.status().revision)).wait().unwrap();
    store.trim().unwrap();
    assert!(store.status().db_size < 100_000, "{}", store.status().db_size);
    let clear = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Cleared };
    store.write(clear).wait().unwrap();
    put(&store, "b", "1");
    assert_eq!(store.alarms(), []);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let (bus, folder) = (bus("damaged"), tempfile::tempdir().unwrap());
    let store = open(&bus, folder.path());
    put(&store, "a", "1");
    let file = folder.path().join("copy");
    store.backup(&file).unwrap();
    let good = std::fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let to = folder.path().join(format!("to{at}"));
        let other = crate::support::bus(&format!("damaged{at}"));
        let result = restore(&other, &file, &to, &Options::new("x"));
        assert!(matches!(result, Err(OpenError::Snapshot(_))), "byte {at}: {result:?}");
    }
}
