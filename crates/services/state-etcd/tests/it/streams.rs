//! Streams: many watches on one, a reader that does not read, lists in chunks, a lost leader.

use std::sync::Arc;

use bytes::Bytes;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::store::Store as _;
use helio_state_etcd::{Description, Server, listen};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use crate::support::memory::Memory;
use crate::support::serve;

/// etcd's clients open as many on one stream.
const MANY_WATCHES: usize = 10_000;
const LARGE_BYTES: usize = 1 << 20;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

async fn connect(server: &Server) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect().await.unwrap()
}

/// A stream of watches: what sends requests, and what brings answers.
async fn watch(
    channel: Channel,
    first: pb::WatchCreateRequest,
) -> (mpsc::UnboundedSender<pb::WatchRequest>, Streaming<pb::WatchResponse>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    sender.send(created(first)).unwrap();
    let answers = WatchClient::new(channel).watch(crate::support::play::Received(receiver)).await;
    (sender, answers.unwrap().into_inner())
}

fn created(request: pb::WatchCreateRequest) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) }
}

fn of_key(key: String) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: key.into(), ..Default::default() }
}

fn put(key: String, value: Vec<u8>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
}

#[test]
fn ten_thousand_watches_of_one_stream_each_get_their_event() {
    let server = serve(None);
    run(async {
        let channel = connect(&server).await;
        let (requests, mut answers) = watch(channel.clone(), of_key("k/0".into())).await;
        for number in 1..MANY_WATCHES {
            requests.send(created(of_key(format!("k/{number}")))).unwrap();
        }
        for number in 0..MANY_WATCHES {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!((answer.watch_id, answer.created), (number as i64, true));
        }
        let mut kv = KvClient::new(channel);
        for number in [0, 77, MANY_WATCHES - 1] {
            kv.put(put(format!("k/{number}"), b"v".to_vec())).await.unwrap();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!((answer.watch_id, answer.events.len()), (number as i64, 1));
        }
    });
}

#[test]
fn a_stream_that_is_not_read_loses_nothing_and_delays_nobody() {
    let server = serve(None);
    run(async {
        let (slow, quick) = (connect(&server).await, connect(&server).await);
        let (_requests, mut answers) = watch(slow, of_key("k".into())).await;
        assert!(answers.message().await.unwrap().unwrap().created);
        let mut kv = KvClient::new(quick);
        // Far more than what flow control lets wait.
        let writes = 40;
        for number in 0..writes {
            kv.put(put("k".into(), vec![number; LARGE_BYTES])).await.unwrap();
        }
        let mut seen = Vec::new();
        while seen.len() < usize::from(writes) {
            for event in answers.message().await.unwrap().unwrap().events {
                seen.push(event.kv.unwrap().0.value()[0]);
            }
        }
        assert_eq!(seen, (0..writes).collect::<Vec<u8>>());
    });
}

#[test]
fn a_streamed_range_is_the_range_in_chunks() {
    let server = serve(None);
    run(async {
        let mut kv = KvClient::new(connect(&server).await);
        for number in 0..5_u8 {
            kv.put(put(format!("k/{number}"), vec![number; LARGE_BYTES / 2])).await.unwrap();
        }
        let request = pb::RangeRequest {
            key: Bytes::from_static(b"k/"),
            range_end: Bytes::from_static(b"k0"),
            limit: 4,
            ..Default::default()
        };
        let whole = kv.range(request.clone()).await.unwrap().into_inner();
        let mut stream = kv.range_stream(request).await.unwrap().into_inner();
        let mut chunks = Vec::new();
        while let Some(chunk) = stream.message().await.unwrap() {
            chunks.push(chunk.range_response.unwrap());
        }
        assert!(chunks.len() > 1, "{}", chunks.len());
        let last = chunks.last().unwrap();
        assert_eq!((&last.header, last.more, last.count), (&whole.header, true, 5));
        assert!(chunks.iter().rev().skip(1).all(|chunk| chunk.header.is_none()));
        let kvs: Vec<_> = chunks.into_iter().flat_map(|chunk| chunk.kvs).collect();
        assert_eq!(kvs, whole.kvs);
    });
}

#[test]
fn requests_that_need_a_leader_fail_without_one() {
    let store = Memory::new();
    let listening = listen("127.0.0.1:0", None).unwrap();
    let server = listening.serve(Arc::new(store.clone()), Description::default());
    run(async {
        let mut kv = KvClient::new(connect(&server).await);
        store.set_leader(0);
        assert_eq!(store.position().leader, 0);
        let mut request = tonic::Request::new(pb::RangeRequest {
            key: Bytes::from_static(b"k"),
            ..Default::default()
        });
        kv.range(pb::RangeRequest { key: Bytes::from_static(b"k"), ..Default::default() })
            .await
            .unwrap();
        request.metadata_mut().insert("hasleader", "true".parse().unwrap());
        let refused = kv.range(request).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Unavailable, "etcdserver: no leader")
        );
    });
}

/// A request that ends with the leader.
fn led<T>(content: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(content);
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    request
}

fn ended<T: std::fmt::Debug>(answer: Result<Option<T>, tonic::Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[test]
fn open_streams_end_with_etcds_error_when_the_leader_is_lost_and_when_the_server_ends() {
    let store = Memory::new();
    let listening = listen("127.0.0.1:0", None).unwrap();
    let server = listening.serve(Arc::new(store.clone()), Description::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let unavailable = |text: &str| (Code::Unavailable, text.to_owned());
    runtime.block_on(async {
        let channel = connect(&server).await;
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(created(of_key("k".into()))).unwrap();
        let mut client = WatchClient::new(channel.clone());
        let watched = client.watch(led(crate::support::play::Received(receiver))).await;
        let mut led_watch = watched.unwrap().into_inner();
        assert!(led_watch.message().await.unwrap().unwrap().created);
        let (_other, mut free_watch) = watch(channel.clone(), of_key("k".into())).await;
        assert!(free_watch.message().await.unwrap().unwrap().created);
        let mut leases = LeaseClient::new(channel.clone());
        let grant = pb::LeaseGrantRequest { ttl: 60, id: 5 };
        leases.lease_grant(grant).await.unwrap();
        let (renewals, receiver) = mpsc::unbounded_channel();
        renewals.send(pb::LeaseKeepAliveRequest { id: 5 }).unwrap();
        let alive = leases.lease_keep_alive(led(crate::support::play::Received(receiver))).await;
        let mut alive = alive.unwrap().into_inner();
        assert_eq!(alive.message().await.unwrap().unwrap().ttl, 60);
        store.set_leader(0);
        assert_eq!(ended(led_watch.message().await), unavailable("etcdserver: no leader"));
        assert_eq!(ended(alive.message().await), unavailable("etcdserver: no leader"));
        // It did not ask for a leader, and has missed nothing when there is one again.
        store.set_leader(7);
        let mut kv = KvClient::new(channel);
        kv.put(put("k".into(), b"v".to_vec())).await.unwrap();
        assert_eq!(free_watch.message().await.unwrap().unwrap().events.len(), 1);
        let ending = tokio::task::spawn_blocking(move || drop(server));
        assert_eq!(ended(free_watch.message().await), unavailable("etcdserver: server stopped"));
        ending.await.unwrap();
    });
}
