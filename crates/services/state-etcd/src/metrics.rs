//! What the service counts: calls of gRPC by method, and what they did, as etcd counts them.
//!
//! Source: etcd's `/metrics`; its counters of gRPC are those of go-grpc-middleware's `prometheus`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use helio_state_node::Histogram;
use tonic::Code;

use crate::proto::etcdserverpb::TxnResponse;
use crate::proto::etcdserverpb::response_op::Response;

/// Bounds of the times of calls, in seconds: those of go-grpc-middleware.
const CALL_BOUNDS_S: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The names of gRPC's codes, by their numbers.
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// The kinds of methods, by gRPC's names for them.
const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BOTH_STREAM: &str = "bidi_stream";

/// Services with their methods, as etcd registers them.
const SERVICES: [(&str, &[(&str, &str)]); 6] = [
    (
        "etcdserverpb.Auth",
        &[
            ("AuthDisable", UNARY),
            ("AuthEnable", UNARY),
            ("AuthStatus", UNARY),
            ("Authenticate", UNARY),
            ("RoleAdd", UNARY),
            ("RoleDelete", UNARY),
            ("RoleGet", UNARY),
            ("RoleGrantPermission", UNARY),
            ("RoleList", UNARY),
            ("RoleRevokePermission", UNARY),
            ("UserAdd", UNARY),
            ("UserChangePassword", UNARY),
            ("UserDelete", UNARY),
            ("UserGet", UNARY),
            ("UserGrantRole", UNARY),
            ("UserList", UNARY),
            ("UserRevokeRole", UNARY),
        ],
    ),
    (
        "etcdserverpb.Cluster",
        &[
            ("MemberAdd", UNARY),
            ("MemberList", UNARY),
            ("MemberPromote", UNARY),
            ("MemberRemove", UNARY),
            ("MemberUpdate", UNARY),
        ],
    ),
    (
        "etcdserverpb.KV",
        &[
            ("Compact", UNARY),
            ("DeleteRange", UNARY),
            ("Put", UNARY),
            ("Range", UNARY),
            ("RangeStream", SERVER_STREAM),
            ("Txn", UNARY),
        ],
    ),
    (
        "etcdserverpb.Lease",
        &[
            ("LeaseGrant", UNARY),
            ("LeaseKeepAlive", BOTH_STREAM),
            ("LeaseLeases", UNARY),
            ("LeaseRevoke", UNARY),
            ("LeaseTimeToLive", UNARY),
        ],
    ),
    (
        "etcdserverpb.Maintenance",
        &[
            ("Alarm", UNARY),
            ("Defragment", UNARY),
            ("Downgrade", UNARY),
            ("Hash", UNARY),
            ("HashKV", UNARY),
            ("MoveLeader", UNARY),
            ("Snapshot", SERVER_STREAM),
            ("Status", UNARY),
        ],
    ),
    ("etcdserverpb.Watch", &[("Watch", BOTH_STREAM)]),
];

/// A number that threads change without order among each other.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A method, and its calls.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) service: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) started: Number,
    pub(crate) received: Number,
    pub(crate) sent: Number,
    pub(crate) handled: [Number; CODES.len()],
    pub(crate) times: Histogram,
}

impl Method {
    fn new(service: &'static str, name: &'static str, kind: &'static str) -> Self {
        Self {
            service,
            name,
            kind,
            started: Number::default(),
            received: Number::default(),
            sent: Number::default(),
            handled: Default::default(),
            times: Histogram::new(CALL_BOUNDS_S),
        }
    }
}

/// The numbers of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By path.
    methods: HashMap<String, Arc<Method>>,
    pub(crate) received_bytes: Number,
    pub(crate) sent_bytes: Number,
    pub(crate) puts: Number,
    pub(crate) ranges: Number,
    pub(crate) deletes: Number,
    pub(crate) transactions: Number,
    pub(crate) writes_failed: Number,
    pub(crate) watch_streams: Number,
    pub(crate) watchers: Number,
    pub(crate) events: Number,
    pub(crate) leases_granted: Number,
    pub(crate) leases_revoked: Number,
    pub(crate) leases_renewed: Number,
    pub(crate) healthy: Number,
    pub(crate) unhealthy: Number,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let of = |(service, methods): &(&'static str, &[(&'static str, &'static str)])| {
            let service = *service;
            let method = move |(name, kind): &(&'static str, &'static str)| {
                (format!("/{service}/{name}"), Arc::new(Method::new(service, name, kind)))
            };
            methods.iter().map(method).collect::<Vec<_>>()
        };
        Self {
            methods: SERVICES.iter().flat_map(of).collect(),
            received_bytes: Number::default(),
            sent_bytes: Number::default(),
            puts: Number::default(),
            ranges: Number::default(),
            deletes: Number::default(),
            transactions: Number::default(),
            writes_failed: Number::default(),
            watch_streams: Number::default(),
            watchers: Number::default(),
            events: Number::default(),
            leases_granted: Number::default(),
            leases_revoked: Number::default(),
            leases_renewed: Number::default(),
            healthy: Number::default(),
            unhealthy: Number::default(),
        }
    }

    /// Methods by service and name.
    pub(crate) fn methods(&self) -> Vec<&Method> {
        let mut methods: Vec<&Method> = self.methods.values().map(Arc::as_ref).collect();
        methods.sort_unstable_by_key(|method| (method.service, method.name));
        methods
    }

    /// Counts the start of a call; none of a method that is not known.
    pub(crate) fn call(self: &Arc<Self>, path: &str) -> Option<Arc<Call>> {
        let method = Arc::clone(self.methods.get(path)?);
        method.started.add(1);
        let ended = AtomicU64::new(0);
        Some(Arc::new(Call { metrics: Arc::clone(self), method, started: Instant::now(), ended }))
    }

    /// Counts the operations of a transaction, as etcd does: it is one if it has two.
    pub(crate) fn transaction(&self, answer: &TxnResponse) {
        if self.operations(answer) > 1 {
            self.transactions.add(1);
        }
    }

    fn operations(&self, answer: &TxnResponse) -> u64 {
        let operations = answer.responses.iter().filter_map(|answer| answer.response.as_ref());
        operations.fold(0, |count, operation| {
            let number = match operation {
                Response::ResponseRange(_) => &self.ranges,
                Response::ResponsePut(_) => &self.puts,
                Response::ResponseDeleteRange(_) => &self.deletes,
                Response::ResponseTxn(nested) => return count + self.operations(nested),
            };
            number.add(1);
            count + 1
        })
    }
}

/// A call that has begun. Its end is counted once; without one the client has gone: `Canceled`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) method: Arc<Method>,
    started: Instant,
    ended: AtomicU64,
}

impl Call {
    /// Counts the end.
    pub(crate) fn end(&self, code: Code) {
        if self.ended.swap(1, Ordering::Relaxed) == 0 {
            self.method.handled[code as usize].add(1);
            self.method.times.observe(self.started.elapsed());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}
