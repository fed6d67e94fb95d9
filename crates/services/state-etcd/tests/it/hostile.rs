//! Requests that are no gRPC, and folders that are no store or full: an error each, and the next
//! request is answered.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_state::{Previous, PutRequest, RangeRequest, WriteRequest};
use helio_state_etcd::client::Client;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::{ClientTls, Server};
use helio_state_node::{Options, Store};
use pb::kv_client::KvClient;
use pb::maintenance_client::MaintenanceClient;
use prost::Message as _;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::client::{GOOD, connect, get, response};
use crate::support::{serve, serve_node};

/// How long a test waits for what comes at once.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A message with the head that gRPC gives it.
fn framed(flag: u8, length: u32, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &length.to_be_bytes(), message].concat()
}

/// The head of the answer to a call whose body is these bytes, over HTTP/1.1; its name has small
/// letters.
fn call(server: &Server, path: &str, kind: &str, body: &[u8]) -> String {
    let mut stream = connect(GOOD, server.address());
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let (_, head) = response(&mut stream).unwrap();
    head
}

/// The code of gRPC in a head; none if the call did not fail at once.
fn code(head: &str) -> Option<Code> {
    let line = head.lines().find_map(|line| line.strip_prefix("grpc-status: "))?;
    Some(Code::from_bytes(line.trim().as_bytes()))
}

fn works(server: &Server) {
    assert_eq!(get(server.address(), "/health").0, 200);
    let client = client(server);
    client.range(pb::RangeRequest { key: "a".into(), ..Default::default() }).unwrap();
}

fn client(server: &Server) -> Client {
    Client::connect(&format!("http://{}", server.address()), &ClientTls::default()).unwrap()
}

#[test]
fn malformed_frames_get_an_error_and_the_next_call_its_answer() {
    let server = serve(None);
    let range = pb::RangeRequest { key: "a".into(), ..Default::default() }.encode_to_vec();
    let length = range.len() as u32;
    let grpc =
        |body: &[u8]| code(&call(&server, "/etcdserverpb.KV/Range", "application/grpc", body));
    assert_eq!(grpc(&framed(0, length, &range)), None, "a good one");
    let bad = [
        ("no message", Vec::new()),
        ("half a head", vec![0, 0, 0]),
        ("a head alone", framed(0, length, &[])),
        ("more bytes announced", framed(0, length + 1, &range)),
        ("the greatest length", framed(0, u32::MAX, &range)),
        ("compressed without an encoding", framed(1, length, &range)),
        ("an unknown flag", framed(7, length, &range)),
        ("fewer bytes announced", framed(0, length - 1, &range)),
    ];
    for (what, body) in bad {
        let code = grpc(&body);
        assert!(code.is_some_and(|code| code != Code::Ok), "{what}: {code:?}");
    }
    let framed = framed(0, length, &range);
    let head = call(&server, "/etcdserverpb.KV/Range", "text/plain", &framed);
    assert!(head.starts_with("http/1.1 404"), "{head}");
    works(&server);
}

/// Numbers that are the same in each run (xorshift).
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[test]
fn no_bytes_in_a_message_end_the_server() {
    let server = serve(None);
    let put = pb::PutRequest { key: "a".into(), value: "v".into(), lease: 5, ..Default::default() };
    let operation =
        pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put.clone())) };
    let txn = pb::TxnRequest { success: vec![operation; 3], ..Default::default() };
    let grant = pb::LeaseGrantRequest { ttl: 7, id: 9 };
    let calls = [
        ("/etcdserverpb.KV/Put", put.encode_to_vec()),
        ("/etcdserverpb.KV/Txn", txn.encode_to_vec()),
        ("/etcdserverpb.KV/Compact", vec![8, 1]),
        ("/etcdserverpb.Lease/LeaseGrant", grant.encode_to_vec()),
        ("/etcdserverpb.Maintenance/Alarm", vec![8, 1, 24, 2]),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for round in 0..400 {
        let (path, message) = &calls[round % calls.len()];
        let mut message = message.clone();
        for _ in 0..=next(&mut random) % 3 {
            let at = next(&mut random) % message.len();
            message[at] = next(&mut random) as u8;
        }
        let body = framed(0, message.len() as u32, &message);
        let head = call(&server, path, "application/grpc", &body);
        assert!(head.starts_with("http/1.1 200"), "{path} {message:?}: {head}");
    }
    works(&server);
}

/// A transaction within a transaction, and so on.
fn nested(depth: usize) -> Vec<u8> {
    let field = |tag: u8, content: &[u8]| {
        let mut field = vec![tag];
        prost::encoding::encode_varint(content.len() as u64, &mut field);
        [&field, content].concat()
    };
    // The operation's field 4 is a transaction, whose field 2 is an operation.
    (0..depth).fold(Vec::new(), |inner, _| field(2 << 3 | 2, &field(4 << 3 | 2, &inner)))
}

#[test]
fn transactions_nested_without_an_end_are_refused() {
    let server = serve(None);
    let mut codes = Vec::new();
    for depth in [20, 200, 5_000] {
        let message = nested(depth);
        let body = framed(0, message.len() as u32, &message);
        codes.push(code(&call(&server, "/etcdserverpb.KV/Txn", "application/grpc", &body)));
    }
    assert_eq!(codes[1..], [Some(Code::Internal); 2]);
    // The innermost one is empty, as a list of operations may be.
    assert_eq!(codes[0], None);
    works(&server);
}

async fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect().await.unwrap()
}

#[test]
fn a_full_store_answers_as_etcd_does_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::connect("memory:state-full").unwrap();
    let options = Options {
        quota_bytes: 1 << 20,
        segment_bytes: Some(128 << 10),
        snapshot_bytes: 1,
        ..Options::new("full")
    };
    let store = Arc::new(Store::open(&bus, folder.path(), &options).unwrap());
    let server = serve_node(&store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (refused, alarms) = runtime.block_on(async {
        let channel = channel(&server).await;
        let mut kv = KvClient::new(channel.clone());
        let value = vec![b'v'; 10_000];
        let mut refused = None;
        // The alarm is raised beside the writes.
        while refused.is_none() {
            let put = pb::PutRequest {
                key: "a".into(),
                value: value.clone().into(),
                ..Default::default()
            };
            refused = kv.put(put).await.err();
        }
        let alarms = MaintenanceClient::new(channel).alarm(pb::AlarmRequest::default()).await;
        (refused.unwrap(), alarms.unwrap().into_inner().alarms)
    });
    let refused = (refused.code(), refused.message());
    assert_eq!(refused, (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"));
    assert_eq!(
        alarms.iter().map(|alarm| alarm.alarm()).collect::<Vec<_>>(),
        [pb::AlarmType::Nospace]
    );
    // A read, and what makes room, are answered.
    let client = client(&server);
    let range = pb::RangeRequest { key: "a".into(), ..Default::default() };
    let revision = client.range(range).unwrap().header.unwrap().revision;
    client.compact(revision).unwrap();
    let deadline = Instant::now() + HANG_TIMEOUT;
    while store.status().db_size > options.quota_bytes / 2 {
        assert!(Instant::now() < deadline, "compaction makes no room");
    }
    let (status, health) = get(server.address(), "/health");
    assert_eq!((status, health.contains("NOSPACE")), (503, true), "{health}");
    let put = pb::PutRequest { key: "a".into(), value: "v".into(), ..Default::default() };
    let operation = pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) };
    let txn = pb::TxnRequest { success: vec![operation], ..Default::default() };
    client.txn(txn.clone()).unwrap_err();
    let disarm = pb::AlarmRequest { action: 2, alarm: 1, ..Default::default() };
    runtime.block_on(async {
        MaintenanceClient::new(channel(&server).await).alarm(disarm).await.unwrap();
    });
    client.txn(txn).unwrap();
}

/// A store of a folder, on a journal in it.
fn open(folder: &Path) -> Result<Store, String> {
    let bus = Bus::connect(&format!("journal:{}", folder.join("log").display())).unwrap();
    Store::open(&bus, &folder.join("store"), &Options::new("test")).map_err(|e| e.to_string())
}

/// A closed store of fifty keys; the folder, and a backup of it.
fn stored() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 0..50 {
        let (key, value) = (format!("key-{n:02}").into(), Some("a-value".repeat(30).into()));
        let put = PutRequest { key, value, lease: Some(0), previous: Previous::Omit };
        store.write(WriteRequest::Put(put)).wait().unwrap();
    }
    let backup = folder.path().join("backup");
    store.backup(&backup).unwrap();
    store.close().unwrap();
    (folder, backup)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

/// The place of some bytes in the files of a folder.
fn place(folder: &Path, sought: &[u8]) -> (PathBuf, usize) {
    let mut found = Vec::new();
    files(folder, &mut found);
    let place = |file: PathBuf| {
        let bytes = fs::read(&file).unwrap();
        let at = bytes.windows(sought.len()).position(|bytes| bytes == sought)?;
        Some((file, at))
    };
    found.into_iter().find_map(place).unwrap()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_log_is_refused_by_name_and_its_backup_is_restored() {
    let (folder, backup) = stored();
    let (file, at) = place(&folder.path().join("log"), b"key-25");
    flip(&file, at);
    let refused = open(folder.path()).map(drop).unwrap_err();
    assert!(refused.contains("damaged"), "{refused}");
    // Not the second time either, as if it had been cut.
    assert_eq!(open(folder.path()).map(drop).unwrap_err(), refused);
    let new = tempfile::tempdir().unwrap();
    let bus = Bus::connect(&format!("journal:{}", new.path().join("log").display())).unwrap();
    let options = Options::new("test");
    let done = helio_state_node::restore(&bus, &backup, &new.path().join("store"), &options);
    assert_eq!(done.unwrap().keys, 50);
    drop(bus);
    let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    assert_eq!(open(new.path()).unwrap().range(&all).unwrap().count, 50);
}

#[test]
fn a_folder_of_another_version_and_a_damaged_snapshot_are_refused_by_name() {
    let (folder, backup) = stored();
    let name = folder.path().join("store").join("snapshot-0000000000000033-0000000000000032");
    for (at, what) in [(0, "version"), (8, "version"), (20, "head"), (100, "a key")] {
        fs::copy(&backup, &name).unwrap();
        flip(&name, at);
        let refused = open(folder.path()).map(drop).unwrap_err();
        assert!(refused.contains(what), "byte {at}: {refused}");
    }
    fs::copy(&backup, &name).unwrap();
    let newer = folder.path().join("store").join("snapshot-ffffffffffffff33-ffffffffffffff32");
    fs::copy(&backup, &newer).unwrap();
    fs::write(&newer, b"HELIOSTA").unwrap();
    let refused = open(folder.path()).map(drop).unwrap_err();
    assert!(refused.contains("ffffffffffffff33"), "{refused}");
    fs::remove_file(&newer).unwrap();
    assert_eq!(open(folder.path()).unwrap().status().keys, 50);
}
