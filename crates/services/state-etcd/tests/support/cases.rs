//! The requests that are recorded on a real etcd: bad ones, and good ones at their borders. They
//! are played in order, on an empty store.

use bytes::Bytes;
use helio_state_etcd::proto::etcdserverpb as pb;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::range_request::{SortOrder, SortTarget};
use pb::request_op::Request;
use pb::watch_request::RequestUnion;

use super::play::{Call, Step};

/// What a request may have at the most, in etcd.
const MOST: usize = 3 << 19;
const NO_SUCH_LEASE: i64 = 987_654;

pub(crate) fn all() -> Vec<(String, Call)> {
    let groups: [(&str, Vec<Call>); 12] = [
        ("fresh", fresh()),
        ("put", puts()),
        ("range", ranges()),
        ("sort", sorts()),
        ("delete", deletes()),
        ("txn", txns()),
        ("compare", compares()),
        ("nested", nested()),
        ("size", sizes()),
        ("lease", leases()),
        ("watch", watches()),
        ("compact", compactions()),
    ];
    let mut all: Vec<(String, Call)> = Vec::new();
    for (group, calls) in groups.into_iter().chain([("bad", bad()), ("other", others())]) {
        for (number, call) in calls.into_iter().enumerate() {
            all.push((format!("{group}-{:02}", number + 1), call));
        }
    }
    all
}

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn range(key: &'static str, end: &'static str) -> pb::RangeRequest {
    pb::RangeRequest { key: b(key), range_end: b(end), ..Default::default() }
}

fn put(key: &'static str, value: &'static str) -> pb::PutRequest {
    pb::PutRequest { key: b(key), value: b(value), ..Default::default() }
}

fn delete(key: &'static str, end: &'static str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: b(key), range_end: b(end), prev_kv: true }
}

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn put_op(key: &'static str) -> pb::RequestOp {
    op(Request::RequestPut(put(key, "t")))
}

fn delete_op(key: &'static str, end: &'static str) -> pb::RequestOp {
    op(Request::RequestDeleteRange(delete(key, end)))
}

fn range_op(key: &'static str) -> pb::RequestOp {
    op(Request::RequestRange(range(key, "")))
}

fn success(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}

fn fresh() -> Vec<Call> {
    vec![
        Call::Range(range("absent", "")),
        Call::Compact(pb::CompactionRequest { revision: 0, physical: false }),
        Call::Compact(pb::CompactionRequest { revision: 5, physical: false }),
        Call::Delete(delete("absent", "")),
        Call::Range(pb::RangeRequest { revision: 1, ..range("a", "z") }),
        Call::Range(pb::RangeRequest { revision: 2, ..range("a", "z") }),
        Call::Status,
        Call::Members,
    ]
}

fn puts() -> Vec<Call> {
    let with = |change: fn(&mut pb::PutRequest)| {
        let mut request = put("a", "");
        change(&mut request);
        Call::Put(request)
    };
    vec![
        Call::Put(put("", "v")),
        Call::Put(put("a", "1")),
        Call::Put(put("b", "")),
        Call::Put(put("a", "2")),
        with(|put| put.prev_kv = true),
        with(|put| (put.ignore_value, put.value) = (true, b("v"))),
        with(|put| (put.ignore_lease, put.lease) = (true, 1)),
        with(|put| (put.ignore_value, put.key) = (true, b("absent"))),
        with(|put| (put.ignore_lease, put.key) = (true, b("absent"))),
        with(|put| (put.ignore_value, put.prev_kv) = (true, true)),
        with(|put| (put.ignore_lease, put.prev_kv) = (true, true)),
        with(|put| put.lease = NO_SUCH_LEASE),
        with(|put| put.lease = -1),
        with(|put| (put.key, put.ignore_value, put.value) = (b(""), true, b("v"))),
        with(|put| put.key = Bytes::from_static(b"nul\0\xff")),
        with(|put| put.key = Bytes::from_static(b"\0")),
        Call::Put(put("c/1", "x")),
        Call::Put(put("c/2", "y")),
        Call::Put(put("c/3", "w")),
    ]
}

fn ranges() -> Vec<Call> {
    let with = |change: fn(&mut pb::RangeRequest)| {
        let mut request = range("c/", "c0");
        change(&mut request);
        Call::Range(request)
    };
    vec![
        Call::Range(range("", "")),
        Call::Range(range("", "z")),
        Call::Range(range("a", "")),
        Call::Range(range("a", "\0")),
        Call::Range(range("\0", "\0")),
        Call::Range(range("z", "a")),
        Call::Range(range("c/1", "c/1")),
        with(|range| range.limit = 2),
        with(|range| range.limit = 3),
        with(|range| range.limit = -1),
        with(|range| range.revision = 1_000_000),
        with(|range| range.revision = i64::MAX),
        with(|range| range.revision = -1),
        with(|range| range.revision = i64::MIN),
        with(|range| range.revision = 2),
        with(|range| range.revision = 12),
        with(|range| range.count_only = true),
        with(|range| range.keys_only = true),
        with(|range| (range.count_only, range.limit) = (true, 1)),
        with(|range| (range.count_only, range.keys_only) = (true, true)),
        with(|range| range.serializable = true),
        with(|range| (range.min_mod_revision, range.limit) = (12, 1)),
        with(|range| range.max_mod_revision = 11),
        with(|range| range.min_create_revision = 12),
        with(|range| range.max_create_revision = 11),
        with(|range| range.min_mod_revision = -5),
        with(|range| range.max_mod_revision = -5),
        with(|range| (range.min_mod_revision, range.max_mod_revision) = (13, 11)),
    ]
}

fn sorts() -> Vec<Call> {
    let targets = [
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ];
    let with = |sort_order: i32, sort_target: i32, limit: i64| {
        let request = range("a", "\0");
        Call::Range(pb::RangeRequest { sort_order, sort_target, limit, ..request })
    };
    let mut calls = vec![with(7, 0, 0), with(0, 9, 0), with(-1, 0, 0), with(0, -1, 0)];
    for target in targets {
        for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
            calls.push(with(order.into(), target.into(), 0));
        }
        calls.push(with(SortOrder::Descend.into(), target.into(), 2));
    }
    // The key is checked first.
    calls.push(Call::Range(pb::RangeRequest { sort_order: 7, ..range("", "") }));
    calls
}

fn deletes() -> Vec<Call> {
    vec![
        Call::Delete(delete("", "")),
        Call::Delete(delete("", "z")),
        Call::Delete(delete("z", "a")),
        Call::Delete(delete("c/1", "c/1")),
        Call::Delete(delete("c/1", "")),
        Call::Delete(delete("c/1", "")),
        Call::Delete(pb::DeleteRangeRequest { prev_kv: false, ..delete("c/", "c0") }),
        Call::Range(pb::RangeRequest { revision: 12, ..range("c/", "c0") }),
        Call::Put(put("c/1", "again")),
        Call::Range(range("c/1", "")),
    ]
}

fn txns() -> Vec<Call> {
    let bad_range = pb::RangeRequest { revision: 1_000_000, ..range("a", "") };
    let leased = pb::PutRequest { lease: NO_SUCH_LEASE, ..put("t", "x") };
    let ignoring = pb::PutRequest { ignore_value: true, ..put("absent", "") };
    let many = |count: usize| vec![range_op("a"); count];
    let mut calls = vec![
        success(vec![]),
        success(vec![pb::RequestOp { request: None }]),
        success(vec![put_op("")]),
        success(vec![range_op("")]),
        success(vec![delete_op("", "")]),
        success(vec![put_op("t"), put_op("t")]),
        success(vec![put_op("t"), delete_op("t", "")]),
        success(vec![delete_op("a", "z"), put_op("t")]),
        success(vec![delete_op("z", "a"), put_op("t")]),
        success(vec![delete_op("t", ""), delete_op("t", "u")]),
        success(vec![put_op("t"), range_op("t"), put_op("u"), range_op("u")]),
        success(vec![delete_op("t", "v"), range_op("t"), put_op("w")]),
        success(vec![range_op("a")]),
        success(vec![op(Request::RequestRange(bad_range.clone()))]),
        success(vec![put_op("t"), op(Request::RequestRange(bad_range))]),
        success(vec![op(Request::RequestPut(leased))]),
        success(vec![op(Request::RequestPut(ignoring))]),
        success(many(128)),
        success(many(129)),
        pb::TxnRequest { failure: vec![put_op("t"), put_op("t")], ..Default::default() },
        pb::TxnRequest { failure: many(129), ..Default::default() },
        pb::TxnRequest { success: many(100), failure: many(100), ..Default::default() },
        pb::TxnRequest { compare: vec![pb::Compare::default()], ..Default::default() },
        pb::TxnRequest {
            compare: vec![pb::Compare { key: b("a"), ..Default::default() }; 129],
            ..Default::default()
        },
    ];
    let bad_sort = pb::RangeRequest { sort_target: 9, ..range("a", "") };
    let bad_put = pb::PutRequest { ignore_value: true, ..put("a", "v") };
    calls.push(success(vec![op(Request::RequestRange(bad_sort))]));
    calls.push(success(vec![op(Request::RequestPut(bad_put))]));
    calls.into_iter().map(Call::Txn).collect()
}

fn compares() -> Vec<Call> {
    let compare = |target: CompareTarget, result: CompareResult, operand: Option<TargetUnion>| {
        let mut compare = pb::Compare { key: b("a"), target_union: operand, ..Default::default() };
        compare.set_target(target);
        compare.set_result(result);
        compare
    };
    let operands = [
        (CompareTarget::Version, TargetUnion::Version(1)),
        (CompareTarget::Create, TargetUnion::CreateRevision(2)),
        (CompareTarget::Mod, TargetUnion::ModRevision(2)),
        (CompareTarget::Value, TargetUnion::Value(b("2"))),
        (CompareTarget::Lease, TargetUnion::Lease(0)),
    ];
    let results = [
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ];
    let mut compares = Vec::new();
    for (target, operand) in operands {
        for result in results {
            compares.push(compare(target, result, Some(operand.clone())));
            let absent = compare(target, result, Some(operand.clone()));
            compares.push(pb::Compare { key: b("absent"), ..absent });
        }
        // Another operand than the target's, and none.
        compares.push(compare(target, CompareResult::Equal, Some(TargetUnion::Lease(3))));
        compares.push(compare(target, CompareResult::Equal, None));
        let all = compare(target, CompareResult::Greater, Some(operand));
        compares.push(pb::Compare { range_end: b("\0"), ..all });
    }
    let unknown = compare(CompareTarget::Version, CompareResult::Equal, None);
    compares.push(pb::Compare { result: 9, ..unknown.clone() });
    compares.push(pb::Compare { target: 9, ..unknown.clone() });
    compares.push(pb::Compare { range_end: b("A"), ..unknown });
    let txn = |compare| pb::TxnRequest { compare: vec![compare], ..Default::default() };
    compares.into_iter().map(|compare| Call::Txn(txn(compare))).collect()
}

fn nested() -> Vec<Call> {
    let txn = |request: pb::TxnRequest| op(Request::RequestTxn(request));
    let both = |key| pb::TxnRequest {
        success: vec![put_op(key)],
        failure: vec![put_op(key)],
        ..Default::default()
    };
    let deep = (0..3).fold(success(vec![put_op("deep")]), |inner, _| success(vec![txn(inner)]));
    let wide = success(vec![txn(success(vec![range_op("a"); 128]))]);
    let calls = vec![
        success(vec![txn(both("n"))]),
        success(vec![txn(both("n")), put_op("n")]),
        success(vec![txn(both("n")), txn(both("n"))]),
        success(vec![delete_op("n", ""), txn(both("n"))]),
        success(vec![txn(success(vec![delete_op("n", "")])), put_op("n")]),
        success(vec![txn(success(vec![delete_op("n", "")])), txn(success(vec![put_op("n")]))]),
        success(vec![txn(success(vec![put_op("n")])), txn(success(vec![delete_op("n", "")]))]),
        success(vec![txn(success(vec![put_op("m")])), range_op("m")]),
        success(vec![txn(success(vec![pb::RequestOp { request: None }]))]),
        deep,
        wide,
    ];
    calls.into_iter().map(Call::Txn).collect()
}

/// Requests around the limit; their keys are deleted again.
fn sizes() -> Vec<Call> {
    let sized = |bytes: usize| {
        Call::Put(pb::PutRequest { value: Bytes::from(vec![b'x'; bytes]), ..put("big", "") })
    };
    // Between 27 and 20 it depends on how long etcd's number of the request is, which has its
    // member's in it.
    let below = [64, 32, 29, 28, 27, 20, 16, 8, 0];
    let mut calls: Vec<Call> = below.into_iter().map(|less| sized(MOST - less)).collect();
    calls.push(sized(MOST + 1));
    calls.push(sized(MOST + (512 << 10) - 20));
    calls.push(sized(MOST + (512 << 10)));
    let long = pb::RangeRequest { key: Bytes::from(vec![b'x'; MOST]), ..Default::default() };
    calls.push(Call::Range(long));
    let large = pb::PutRequest { value: Bytes::from(vec![b'x'; MOST / 2]), ..put("big", "") };
    let mut twice = success(vec![op(Request::RequestPut(large.clone()))]);
    let second = pb::PutRequest { key: b("bigger"), ..large };
    twice.success.push(op(Request::RequestPut(second)));
    calls.push(Call::Txn(twice));
    calls.push(Call::Delete(pb::DeleteRangeRequest { prev_kv: false, ..delete("big", "bih") }));
    calls
}

fn leases() -> Vec<Call> {
    let grant = |id, ttl| Call::Grant(pb::LeaseGrantRequest { ttl, id });
    let ttl = |id, keys| Call::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys });
    let revoke = |id| Call::Revoke(pb::LeaseRevokeRequest { id });
    let alive = |id| Call::KeepAlive(pb::LeaseKeepAliveRequest { id });
    let leased = |key, lease| Call::Put(pb::PutRequest { lease, ..put(key, "l") });
    vec![
        Call::Leases,
        grant(10, 1_000_000_000),
        grant(10, 60),
        grant(11, 9_000_000_001),
        grant(11, i64::MAX),
        grant(12, 9_000_000_000),
        grant(-5, 1_000_000_000),
        Call::Leases,
        leased("l/1", 10),
        leased("l/2", 10),
        leased("l/2", 0),
        leased("l/3", 12),
        leased("l/3", 10),
        Call::Put(pb::PutRequest { ignore_lease: true, prev_kv: true, ..put("l/1", "kept") }),
        Call::Range(range("l/", "l0")),
        alive(NO_SUCH_LEASE),
        alive(0),
        alive(10),
        ttl(NO_SUCH_LEASE, true),
        ttl(0, false),
        revoke(NO_SUCH_LEASE),
        revoke(0),
        revoke(10),
        revoke(10),
        Call::Range(range("l/", "l0")),
        revoke(12),
        revoke(-5),
        Call::Leases,
    ]
}

fn create(change: impl Fn(&mut pb::WatchCreateRequest)) -> Step {
    let mut request = pb::WatchCreateRequest { key: b("w"), ..Default::default() };
    change(&mut request);
    Step::Send(RequestUnion::CreateRequest(request))
}

fn cancel(watch_id: i64) -> Step {
    Step::Send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id }))
}

fn progress() -> Step {
    Step::Send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
}

fn done(call: Call) -> Step {
    Step::Do(Box::new(call))
}

fn watches() -> Vec<Call> {
    let write = |value| done(Call::Put(put("w", value)));
    let range_of = |end: &'static str| move |w: &mut pb::WatchCreateRequest| w.range_end = b(end);
    let txn = success(vec![put_op("w"), put_op("w2"), delete_op("w3", "")]);
    let read = Step::Read;
    let ended = |n| [cancel(0), read(n)];
    let mut calls = vec![
        vec![create(|_| {}), read(1), write("1"), read(1), cancel(0), read(1)],
        vec![create(|w| w.start_revision = -1), read(1)],
        vec![create(|w| w.start_revision = i64::MIN), read(1)],
        vec![create(|w| w.watch_id = 7), read(1), create(|w| w.watch_id = 7), read(1)],
        vec![create(|w| w.watch_id = -3), read(1), write("2"), read(1)],
        vec![create(|_| {}), read(1), create(|_| {}), read(1), create(|w| w.watch_id = 1), read(1)],
        vec![create(range_of("a")), read(1)],
        vec![create(range_of("w")), read(1)],
        vec![create(range_of("\0")), read(1), write("3"), read(1)],
        vec![create(|w| w.key = b("")), read(1)],
        vec![create(|w| (w.key, w.range_end) = (b(""), b("\0"))), read(1), write("4"), read(1)],
        vec![create(|w| w.prev_kv = true), read(1), write("5"), read(1)],
        vec![cancel(99), create(|_| {}), read(1)],
        vec![create(|_| {}), read(1), progress(), read(1)],
        vec![progress(), create(|_| {}), read(1)],
        vec![
            create(|w| (w.range_end, w.prev_kv) = (b("x"), true)),
            read(1),
            done(Call::Put(put("w3", "gone"))),
            read(1),
            done(Call::Txn(txn)),
            read(1),
        ],
        vec![
            create(|w| (w.filters, w.prev_kv) = (vec![0], true)),
            read(1),
            write("6"),
            done(Call::Delete(delete("w", ""))),
            read(1),
        ],
        vec![
            create(|w| w.filters = vec![1]),
            read(1),
            write("7"),
            read(1),
            done(Call::Delete(delete("w", ""))),
            write("8"),
            read(1),
        ],
        vec![create(|w| w.start_revision = 2), read(2)],
        vec![
            create(|w| (w.key, w.start_revision, w.prev_kv) = (b("a"), 2, true)),
            read(2),
            progress(),
            read(1),
        ],
    ];
    for steps in calls.iter_mut().take(1) {
        steps.extend(ended(0));
    }
    let mut calls: Vec<Call> = calls.into_iter().map(Call::Watch).collect();
    let empty = RequestUnion::CreateRequest(pb::WatchCreateRequest::default());
    calls.push(Call::Watch(vec![Step::Send(empty), read(1)]));
    calls
}

fn compactions() -> Vec<Call> {
    let compact = |revision| Call::Compact(pb::CompactionRequest { revision, physical: true });
    let at = |revision| Call::Range(pb::RangeRequest { revision, ..range("a", "") });
    let old = |revision| {
        Call::Watch(vec![
            create(move |w| (w.key, w.start_revision) = (b("a"), revision)),
            Step::Read(2),
        ])
    };
    vec![
        compact(1_000_000),
        compact(-1),
        compact(4),
        compact(4),
        compact(3),
        compact(0),
        at(3),
        at(4),
        at(5),
        at(1),
        old(3),
        old(1),
        old(4),
        Call::Txn(success(vec![op(Request::RequestRange(pb::RangeRequest {
            revision: 2,
            ..range("a", "")
        }))])),
        Call::Txn(success(vec![
            put_op("t"),
            op(Request::RequestRange(pb::RangeRequest { revision: 2, ..range("a", "") })),
        ])),
        Call::HashKv(0),
        Call::HashKv(2),
        Call::HashKv(4),
        Call::HashKv(1_000_000),
        compact(6),
        Call::HashKv(0),
    ]
}

fn others() -> Vec<Call> {
    let alarm = |action, alarm| Call::Alarm(pb::AlarmRequest { action, alarm, member_id: 0 });
    let raw = |path, body: &'static [u8]| Call::Raw { path, body: Bytes::from_static(body) };
    vec![
        // An unknown action is left out: it ends etcd by a panic.
        alarm(0, 0),
        alarm(2, 1),
        Call::Defragment,
        Call::MoveLeader(5),
        Call::MemberAdd,
        Call::MemberRemove(5),
        Call::Hash,
        Call::Downgrade,
        Call::Members,
        raw("/etcdserverpb.KV/Range", b"\xff\xff"),
        raw("/etcdserverpb.KV/Range", b"\x0a\x05ab"),
        raw("/etcdserverpb.KV/Put", b"\x08\x01"),
        raw("/etcdserverpb.KV/Range", b"\x0a\x01a\xfa\x07\x01x"),
        raw("/etcdserverpb.KV/Nothing", b""),
        raw("/etcdserverpb.Nothing/Nothing", b""),
        raw("/v3lockpb.Lock/Lock", b""),
        raw("/v3electionpb.Election/Leader", b""),
        raw("/etcdserverpb.Auth/AuthEnable", b""),
        raw("/etcdserverpb.Auth/UserList", b""),
        Call::Txn(success(vec![delete_op("s", "\0"), put_op("t")])),
    ]
}

/// More operations than clients send, times that are none, revisions to come, any bytes as keys.
fn bad() -> Vec<Call> {
    let grant = |id, ttl| Call::Grant(pb::LeaseGrantRequest { ttl, id });
    let revoke = |id| Call::Revoke(pb::LeaseRevokeRequest { id });
    let key = Bytes::from_static(b"\xff\0\xff");
    let put_any = pb::PutRequest { key: key.clone(), ..put("", "any") };
    let from = |start: &'static [u8], end: &'static [u8]| pb::RangeRequest {
        key: Bytes::from_static(start),
        range_end: Bytes::from_static(end),
        ..Default::default()
    };
    let of_key = |w: &mut pb::WatchCreateRequest| w.key = Bytes::from_static(b"\xff\0\xff");
    let later = |w: &mut pb::WatchCreateRequest| w.start_revision = 1_000;
    let foreign = |w: &mut pb::WatchCreateRequest| w.start_revision = i64::MAX;
    let any_range = |end: &'static [u8]| Call::Range(from(b"\xff", end));
    vec![
        Call::Txn(success(vec![range_op("a"); 100_000])),
        Call::Txn(pb::TxnRequest {
            compare: vec![pb::Compare { key: b("a"), ..Default::default() }; 100_000],
            ..Default::default()
        }),
        grant(21, 0),
        grant(22, -1),
        grant(23, i64::MIN),
        revoke(21),
        revoke(22),
        revoke(23),
        Call::Put(put_any.clone()),
        any_range(b"\0"),
        any_range(b"\xff\0"),
        any_range(b"\xff\0\xff\0"),
        any_range(b"\xff\xff"),
        any_range(b"\xfe"),
        Call::Watch(vec![
            create(of_key),
            Step::Read(1),
            done(Call::Put(put_any)),
            Step::Read(1),
            cancel(0),
            Step::Read(1),
        ]),
        Call::Watch(vec![
            create(later),
            Step::Read(1),
            done(Call::Put(put("later", "before its revision"))),
            cancel(0),
            Step::Read(1),
        ]),
        Call::Delete(pb::DeleteRangeRequest { key, range_end: Bytes::new(), prev_kv: true }),
        Call::Watch(vec![create(foreign), Step::Read(1), cancel(0), Step::Read(1)]),
    ]
}
