//! `/metrics`: calls, their outcomes, and what etcd's alerts and dashboards ask for.

use std::time::Duration;

use helio_bus::Bus;
use helio_state_etcd::client::Client;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::{ClientTls, Server};

use crate::client::get;
use crate::support::metrics::{alerts, has, kinds};
use crate::support::{open, serve, serve_node};

/// The names and kinds of etcd 3.6.16's metrics, of the Go runtime none.
const OF_ETCD: &str = include_str!("../golden/metrics_of_etcd.txt");
/// Of etcd only with `--metrics extensive`.
const EXTENSIVE: &str = "grpc_server_handling_seconds histogram";

fn scraped(server: &Server) -> String {
    let (status, text) = get(server.address(), "/metrics");
    assert_eq!(status, 200);
    text
}

fn client(server: &Server) -> Client {
    Client::connect(&format!("http://{}", server.address()), &ClientTls::default()).unwrap()
}

/// The value of a series, with its labels.
fn value(metrics: &str, series: &str) -> u64 {
    let of = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(of).unwrap_or_else(|| panic!("no {series} in\n{metrics}"))
}

fn calls(metrics: &str, code: &str, method: &str) -> u64 {
    let (service, kind) = match method {
        "Watch" => ("Watch", "bidi_stream"),
        "Snapshot" => ("Maintenance", "server_stream"),
        _ => ("KV", "unary"),
    };
    let labels = format!(
        "grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\""
    );
    match code {
        "started" | "msg_sent" | "msg_received" => {
            value(metrics, &format!("grpc_server_{code}_total{{{labels}}}"))
        }
        code => {
            value(metrics, &format!("grpc_server_handled_total{{grpc_code=\"{code}\",{labels}}}"))
        }
    }
}

fn put(key: &'static str) -> pb::RequestOp {
    let put = pb::PutRequest { key: key.into(), value: "v".into(), ..Default::default() };
    pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) }
}

#[test]
fn calls_are_counted_by_method_and_code() {
    let server = serve(None);
    let client = client(&server);
    let range = pb::RangeRequest { key: "a".into(), ..Default::default() };
    client.range(range.clone()).unwrap();
    client.range(pb::RangeRequest { revision: 99, ..range.clone() }).unwrap_err();
    let success = vec![put("a"), put("b")];
    client.txn(pb::TxnRequest { success, ..Default::default() }).unwrap();
    client.txn(pb::TxnRequest { success: vec![put("a")], ..Default::default() }).unwrap();
    let text = scraped(&server);
    let range = |code| calls(&text, code, "Range");
    assert_eq!(["started", "OK", "OutOfRange", "Unavailable"].map(range), [2, 1, 1, 0]);
    assert_eq!(["msg_received", "msg_sent"].map(range), [2, 1]);
    assert_eq!(calls(&text, "OK", "Txn"), 2);
    for (name, expected) in [("put", 3), ("range", 1), ("txn", 1), ("delete", 0)] {
        assert_eq!(value(&text, &format!("etcd_mvcc_{name}_total")), expected, "{name}");
    }
    let labels = "grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"";
    let count = format!("grpc_server_handling_seconds_count{{{labels}}}");
    let most = format!("grpc_server_handling_seconds_bucket{{{labels},le=\"+Inf\"}}");
    assert_eq!((value(&text, &count), value(&text, &most)), (2, 2));
    assert!(value(&text, "etcd_network_client_grpc_received_bytes_total") > 0);
}

#[test]
fn open_streams_are_counted_with_their_messages_and_ends() {
    let server = serve(None);
    let client = client(&server);
    let create = pb::WatchCreateRequest { key: "a".into(), ..Default::default() };
    let mut watching = client.watch(create).unwrap();
    let created = watching.next(Duration::from_secs(30)).unwrap().unwrap();
    assert!(created.created);
    client.txn(pb::TxnRequest { success: vec![put("a")], ..Default::default() }).unwrap();
    while watching.next(Duration::from_secs(30)).unwrap().unwrap().events.is_empty() {}
    let text = scraped(&server);
    let gauges = ["etcd_debugging_mvcc_watcher_total", "etcd_debugging_mvcc_watch_stream_total"];
    assert_eq!(gauges.map(|name| value(&text, name)), [1, 1]);
    assert_eq!(value(&text, "etcd_debugging_mvcc_events_total"), 1);
    assert_eq!(
        ["started", "msg_received", "msg_sent"].map(|n| calls(&text, n, "Watch")),
        [1, 1, 2]
    );
    assert_eq!(calls(&text, "Canceled", "Watch") + calls(&text, "OK", "Watch"), 0);
    drop(watching);
    drop(client);
    // The server notices it when the connection's end has reached it.
    let ended = |text: &str| calls(text, "Canceled", "Watch") + calls(text, "OK", "Watch") == 1;
    let mut text = scraped(&server);
    while !ended(&text) || value(&text, gauges[0]) > 0 || value(&text, gauges[1]) > 0 {
        text = scraped(&server);
    }
}

#[test]
fn metrics_have_the_names_and_kinds_of_etcds_and_alerts_find_their_series() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Bus::connect("memory:state-metrics").unwrap(), folder.path());
    let server = serve_node(&store);
    let client = client(&server);
    client.txn(pb::TxnRequest { success: vec![put("a")], ..Default::default() }).unwrap();
    let text = scraped(&server);
    for kind in kinds(&text) {
        assert!(kind == EXTENSIVE || OF_ETCD.lines().any(|known| known == kind), "{kind}");
    }
    for (series, outcome) in alerts() {
        assert_eq!(has(&text, series), outcome.starts_with("found"), "{series}: {outcome}");
    }
    // A sync was timed, and this process is described.
    assert_eq!(value(&text, "etcd_disk_wal_fsync_duration_seconds_count"), 1);
    assert_eq!(value(&text, "etcd_server_proposals_committed_total"), 1);
    assert_eq!(value(&text, "etcd_server_quota_backend_bytes"), 8 << 30);
    assert!(value(&text, "process_resident_memory_bytes") > 1 << 20);
    assert!(value(&text, "process_open_fds") > 3);
}
