//! The service's metrics in Prometheus' text format, by etcd's names where etcd has one.

use helio_http::exposition::{Exposition, Total};
use helio_state_node::HistogramReading;

use crate::metrics::{CODES, Method};
use crate::service::Member;
use crate::{CLUSTER_VERSION, ETCD_VERSION, process};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// A number of a method: name, description, and where it is.
type OfMethod = (&'static str, &'static str, fn(&Method) -> u64);

/// All metrics.
pub(crate) fn text(member: &Member) -> String {
    let mut text = Exposition::default();
    calls(&mut text, member);
    served(&mut text, member);
    state(&mut text, member);
    identity(&mut text, member);
    for (name, kind, help, value) in process::figures() {
        text.one(name, kind, help, value);
    }
    text.into_text()
}

fn labels(method: &Method) -> [(&'static str, &'static str); 3] {
    let Method { service, name, kind, .. } = method;
    [("grpc_method", name), ("grpc_service", service), ("grpc_type", kind)]
}

fn histogram(text: &mut Exposition, name: &str, labels: &[(&str, &str)], of: HistogramReading) {
    let HistogramReading { below, count, sum_s: sum } = of;
    text.histogram(name, labels, below, Total { count, sum });
}

fn calls(text: &mut Exposition, member: &Member) {
    let methods = member.metrics.methods();
    let name = "grpc_server_handled_total";
    text.family(name, COUNTER, "Calls that ended, by code.");
    for method in &methods {
        for (code, number) in CODES.iter().zip(&method.handled) {
            let labels = [&[("grpc_code", *code)], &labels(method)[..]].concat();
            text.sample(name, &labels, number.get());
        }
    }
    let name = "grpc_server_handling_seconds";
    text.family(name, HISTOGRAM, "Times of calls from their start to their end, in seconds.");
    for method in &methods {
        histogram(text, name, &labels(method), method.times.read());
    }
    let rows: [OfMethod; 3] = [
        ("grpc_server_msg_received_total", "Messages received from clients.", |method| {
            method.received.get()
        }),
        ("grpc_server_msg_sent_total", "Messages sent to clients.", |method| method.sent.get()),
        ("grpc_server_started_total", "Calls that started.", |method| method.started.get()),
    ];
    for (name, help, value) in rows {
        text.family(name, COUNTER, help);
        for method in &methods {
            text.sample(name, &labels(method), value(method));
        }
    }
}

fn served(text: &mut Exposition, member: &Member) {
    let of = &member.metrics;
    let rows = [
        ("etcd_debugging_lease_granted_total", COUNTER, "Leases granted.", &of.leases_granted),
        (
            "etcd_debugging_lease_renewed_total",
            COUNTER,
            "Keep-alives of leases.",
            &of.leases_renewed,
        ),
        (
            "etcd_debugging_lease_revoked_total",
            COUNTER,
            "Leases that clients revoked.",
            &of.leases_revoked,
        ),
        ("etcd_debugging_mvcc_events_total", COUNTER, "Events sent to watches.", &of.events),
        ("etcd_debugging_mvcc_watch_stream_total", GAUGE, "Streams of watches.", &of.watch_streams),
        ("etcd_debugging_mvcc_watcher_total", GAUGE, "Watches.", &of.watchers),
        ("etcd_mvcc_delete_total", COUNTER, "Deletions of ranges by clients.", &of.deletes),
        ("etcd_mvcc_put_total", COUNTER, "Puts by clients.", &of.puts),
        ("etcd_mvcc_range_total", COUNTER, "Reads of ranges by clients.", &of.ranges),
        (
            "etcd_mvcc_txn_total",
            COUNTER,
            "Transactions by clients with more than one operation.",
            &of.transactions,
        ),
        (
            "etcd_network_client_grpc_received_bytes_total",
            COUNTER,
            "Bytes of requests' messages, with the heads of gRPC.",
            &of.received_bytes,
        ),
        (
            "etcd_network_client_grpc_sent_bytes_total",
            COUNTER,
            "Bytes of responses' messages, with the heads of gRPC.",
            &of.sent_bytes,
        ),
        ("etcd_server_health_failures", COUNTER, "Failures of /health.", &of.unhealthy),
        ("etcd_server_health_success", COUNTER, "Successes of /health.", &of.healthy),
        (
            "etcd_server_proposals_failed_total",
            COUNTER,
            "Writes whose outcome is unknown, or that the log refused.",
            &of.writes_failed,
        ),
    ];
    for (name, kind, help, number) in rows {
        text.one(name, kind, help, number.get());
    }
}

fn state(text: &mut Exposition, member: &Member) {
    let (position, figures) = (member.store.position(), member.store.figures());
    let has_leader = position.leader != 0;
    let is_leader = has_leader && position.leader == position.member_id;
    let revision = position.revision.unsigned_abs();
    let compacted = figures.compact_revision.unsigned_abs();
    let rows: [(&str, &str, &str, u64); 11] = [
        ("etcd_server_has_leader", GAUGE, "Whether a leader exists.", has_leader.into()),
        ("etcd_server_is_leader", GAUGE, "Whether this member leads.", is_leader.into()),
        (
            "etcd_server_leader_changes_seen_total",
            COUNTER,
            "Changes of the leader since the start, the first one included.",
            has_leader.into(),
        ),
        (
            "etcd_mvcc_db_total_size_in_bytes",
            GAUGE,
            "Bytes of the store on disk.",
            figures.disk_bytes,
        ),
        (
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            GAUGE,
            "Bytes of the store on disk that hold current and old revisions.",
            figures.live_bytes,
        ),
        ("etcd_debugging_mvcc_keys_total", GAUGE, "Current keys.", figures.keys),
        ("etcd_debugging_mvcc_current_revision", GAUGE, "The current revision.", revision),
        ("etcd_debugging_mvcc_compact_revision", GAUGE, "The compact revision.", compacted),
        ("etcd_server_proposals_applied_total", GAUGE, "Records applied, ever.", figures.records),
        (
            "etcd_server_proposals_committed_total",
            GAUGE,
            "Records committed, ever.",
            figures.records,
        ),
        ("etcd_server_proposals_pending", GAUGE, "Writes that wait.", figures.pending),
    ];
    for (name, kind, help, value) in rows {
        text.one(name, kind, help, value);
    }
    if let Some(times) = member.store.sync_times() {
        let name = "etcd_disk_wal_fsync_duration_seconds";
        text.family(name, HISTOGRAM, "Times from the append of writes to their sync, in seconds.");
        histogram(text, name, &[], times.read());
    }
}

fn identity(text: &mut Exposition, member: &Member) {
    // Without a quota there is no share of it, and no alert.
    if member.description.quota_bytes > 0 {
        let help = "The most bytes of the store on disk.";
        let quota = member.description.quota_bytes;
        text.one("etcd_server_quota_backend_bytes", GAUGE, help, quota);
    }
    let cluster = CLUSTER_VERSION.strip_suffix(".0").unwrap_or(CLUSTER_VERSION);
    let id = format!("{:x}", member.store.position().member_id);
    let rows = [
        ("etcd_cluster_version", "cluster_version", cluster, "The cluster's version."),
        ("etcd_server_id", "server_id", id.as_str(), "The member's id."),
        ("etcd_server_version", "server_version", ETCD_VERSION, "The etcd version served."),
    ];
    for (name, label, value, help) in rows {
        text.family(name, GAUGE, help);
        text.sample(name, &[(label, value)], 1);
    }
}
