//! Snapshots, imports and exports between servers, as the command line makes them.

use std::fs::File;
use std::path::Path;

use helio_bus::Bus;
use helio_state::{Previous, PutRequest, RangeRequest, RangeResponse, WriteRequest, WriteResponse};
use helio_state_etcd::client::Client;
use helio_state_etcd::transfer::{self, Copied, TransferError};
use helio_state_etcd::{ClientTls, Server, saved};
use helio_state_node::{Options, Store, restore};

use crate::support::{open, serve_node};

/// More than a page of keys.
const KEYS: usize = 1_203;
/// A value as large as etcd takes.
const LARGEST: usize = (3 << 19) - 100;

fn bus(name: &str) -> Bus {
    Bus::connect(&format!("memory:state-transfer-{name}")).unwrap()
}

fn client(server: &Server) -> Client {
    Client::connect(&format!("http://{}", server.address()), &ClientTls::default()).unwrap()
}

fn put(store: &Store, key: String, value: Vec<u8>, lease: i64) {
    let (key, value) = (key.into(), Some(value.into()));
    let request = PutRequest { key, value, lease: Some(lease), previous: Previous::Omit };
    store.write(WriteRequest::Put(request)).wait().unwrap();
}

fn fill(store: &Store) {
    for id in [5, 6] {
        store.write(WriteRequest::LeaseGrant { id, ttl: 3600 }).wait().unwrap();
    }
    for n in 0..KEYS {
        put(store, format!("/k/{n}"), vec![1], 0);
        put(store, format!("/k/{n}"), n.to_string().into_bytes(), if n % 10 == 0 { 5 } else { 0 });
    }
    put(store, "large".into(), vec![7; LARGEST], 0);
    put(store, "gone".into(), vec![1], 0);
    let gone = helio_state::DeleteRangeRequest {
        key: "gone".into(),
        range_end: "".into(),
        previous: Previous::Omit,
    };
    store.write(WriteRequest::DeleteRange(gone)).wait().unwrap();
}

fn all(store: &Store) -> RangeResponse {
    let request =
        RangeRequest { key: "\0".into(), range_end: "\0".into(), ..RangeRequest::default() };
    store.range(&request).unwrap()
}

fn restored(name: &str, file: &Path, folder: &Path) -> std::sync::Arc<Store> {
    let bus = bus(name);
    let done = restore(&bus, file, folder, &Options::new("test")).unwrap();
    assert_eq!((done.to, done.keys), (1 << 36, KEYS + 1));
    open(&bus, folder)
}

#[test]
fn a_saved_snapshot_has_etcds_length_and_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&bus("saved"), &folder.path().join("old"));
    fill(&store);
    let server = serve_node(&store);
    let file = folder.path().join("saved");
    let bytes = client(&server).snapshot(&mut File::create(&file).unwrap()).unwrap();
    assert_eq!(bytes % 512, 32);
    let copy = folder.path().join("copy");
    saved::unseal(&file, &copy).unwrap();
    let new = restored("saved-new", &copy, &folder.path().join("new"));
    assert_eq!(all(&new).kvs, all(&store).kvs);
}

#[test]
fn an_import_has_the_sources_keys_with_their_revisions_and_starts_above_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&bus("import"), &folder.path().join("old"));
    fill(&store);
    let revision = store.status().revision;
    let server = serve_node(&store);
    let file = folder.path().join("imported");
    let mut last = None;
    let copied = transfer::import(&client(&server), b"", &file, &mut |at| last = Some(at)).unwrap();
    let keys = KEYS as u64 + 1;
    assert_eq!(copied, Copied { revision, keys, leases: 2, expired: 0 });
    assert_eq!(last, Some(transfer::Progress { keys, of: keys }));
    let new = restored("import-new", &file, &folder.path().join("new"));
    assert_eq!(all(&new).kvs, all(&store).kvs);
    assert_eq!(new.leases(), [5, 6]);
    let lease = new.lease_status(5);
    assert_eq!(lease.granted_ttl, 3600);
    assert!((3000..=3600).contains(&lease.ttl), "{}", lease.ttl);
    assert_eq!(lease.keys.len(), KEYS.div_ceil(10));
    // Values before the import are known to what comes after it.
    let put = PutRequest {
        key: "/k/7".into(),
        value: Some("new".into()),
        lease: Some(0),
        previous: Previous::Include,
    };
    let Ok(WriteResponse::Put(put)) = new.write(WriteRequest::Put(put)).wait() else { panic!() };
    assert_eq!((put.revision, put.previous.unwrap().value()), ((1 << 36) + 1, "7".into()));
    new.write(WriteRequest::LeaseRevoke { id: 5 }).wait().unwrap();
    assert_eq!(all(&new).count, (KEYS + 1 - KEYS.div_ceil(10)) as i64);
}

#[test]
fn an_import_of_a_prefix_has_no_other_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&bus("prefix"), &folder.path().join("old"));
    for key in ["/a", "/b/1", "/b/2", "/b0", "c"] {
        put(&store, key.into(), vec![1], 0);
    }
    let file = folder.path().join("imported");
    let server = serve_node(&store);
    let copied = transfer::import(&client(&server), b"/b/", &file, &mut |_| {}).unwrap();
    assert_eq!(copied.keys, 2);
}

#[test]
fn an_export_fills_an_empty_server_and_refuses_another() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (open(&bus("e"), &folder.path().join("e")), bus("f"));
    fill(&old);
    let new = open(&new, &folder.path().join("f"));
    let (from, to) = (serve_node(&old), serve_node(&new));
    let (from, to) = (client(&from), client(&to));
    let copied = transfer::export(&from, b"", &to, &mut |_| {}).unwrap();
    assert_eq!((copied.keys, copied.leases, copied.expired), (KEYS as u64 + 1, 2, 0));
    let contents = |store: &Store| -> Vec<_> {
        let kvs = all(store).kvs;
        kvs.iter().map(|kv| (kv.key(), kv.value(), kv.fields().lease)).collect()
    };
    assert_eq!(contents(&new), contents(&old));
    assert_eq!(new.leases(), [5, 6]);
    let again = transfer::export(&from, b"", &to, &mut |_| {}).unwrap_err();
    assert!(matches!(again, TransferError::NotEmpty(_)), "{again}");
}
