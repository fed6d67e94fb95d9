//! etcd's semantics of keys, revisions and transactions.

use helio_state::{
    Alarm, AlarmState, Code, Compare, CompareResult, CompareTarget, Content, DeleteRangeRequest,
    Error, Limits, PutRequest, RangeRequest, RequestOp, ResponseOp, SortOrder, SortTarget,
    TxnRequest, WriteRequest, WriteResponse, check,
};

use crate::support::{Store, bytes, get, put, row};

fn compare(key: &str, result: CompareResult, target: CompareTarget) -> Compare {
    Compare { key: bytes(key), range_end: bytes(""), result, target }
}

fn op(key: &str, value: &str) -> RequestOp {
    RequestOp::Put(put(key, value))
}

fn delete(key: &str, end: &str) -> RequestOp {
    let (key, range_end) = (bytes(key), bytes(end));
    RequestOp::DeleteRange(DeleteRangeRequest { key, range_end, ..Default::default() })
}

fn only(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

#[test]
fn revisions_start_at_one_and_count_changes_only() {
    let mut store = Store::new();
    assert_eq!(store.range(&get("a", "")).unwrap().revision, 1);
    assert_eq!(store.put("a", "1"), 2);
    assert_eq!(store.delete("b", ""), (2, 0));
    assert_eq!(store.put("a", "2"), 3);
    assert_eq!(store.delete("a", ""), (4, 1));
    assert_eq!(store.put("a", "3"), 5);
    let all = store.range(&get("\0", "\0")).unwrap();
    assert_eq!(all.kvs.iter().map(row).collect::<Vec<_>>(), [("a".into(), "3".into(), 5, 5, 1)]);
    let old = store.range(&RangeRequest { revision: 3, ..get("a", "") }).unwrap();
    assert_eq!(old.kvs.iter().map(row).collect::<Vec<_>>(), [("a".into(), "2".into(), 2, 3, 2)]);
    assert_eq!((old.revision, old.count), (5, 1));
    let gone = store.range(&RangeRequest { revision: 4, ..get("a", "") }).unwrap();
    assert_eq!((gone.kvs.len(), gone.count), (0, 0));
}

#[test]
fn a_transaction_is_one_revision_and_sees_its_own_writes() {
    let mut store = Store::new();
    store.put("a", "0");
    let txn = only(vec![
        op("a", "1"),
        RequestOp::Range(get("a", "c")),
        op("b", "2"),
        RequestOp::Range(get("a", "c")),
        RequestOp::Range(RangeRequest { revision: 2, ..get("a", "") }),
    ]);
    let response = store.txn(txn).unwrap();
    assert_eq!((response.revision, response.succeeded), (3, true));
    let ResponseOp::Range(first) = &response.responses[1] else { panic!() };
    assert_eq!(first.kvs.iter().map(row).collect::<Vec<_>>(), [("a".into(), "1".into(), 2, 3, 2)]);
    let ResponseOp::Range(second) = &response.responses[3] else { panic!() };
    assert_eq!((second.count, second.revision), (2, 3));
    let ResponseOp::Range(old) = &response.responses[4] else { panic!() };
    assert_eq!(row(&old.kvs[0]).1, "0");
    assert_eq!(store.view().revision(), 3);
    let reads = only(vec![RequestOp::Range(get("a", "")), delete("x", "z")]);
    assert_eq!(store.txn(reads).unwrap().revision, 3);
}

#[test]
fn comparisons_of_absent_keys_and_ranges() {
    use CompareResult::{Equal, Greater, Less, NotEqual};
    let mut store = Store::new();
    store.put("a/1", "x");
    store.put("a/2", "y");
    let mut holds = |compare: Compare| {
        let txn = TxnRequest { compare: vec![compare], ..TxnRequest::default() };
        store.txn(txn).unwrap().succeeded
    };
    assert!(holds(compare("b", Equal, CompareTarget::Mod(0))));
    assert!(holds(compare("b", Equal, CompareTarget::Version(0))));
    assert!(holds(compare("b", Less, CompareTarget::Create(1))));
    assert!(!holds(compare("b", NotEqual, CompareTarget::Value(bytes("x")))));
    assert!(holds(compare("a/1", Equal, CompareTarget::Value(bytes("x")))));
    assert!(holds(compare("a/2", Equal, CompareTarget::Mod(3))));
    assert!(holds(compare("a/2", Equal, CompareTarget::Lease(0))));
    let range = |result, n| Compare {
        range_end: bytes("b"),
        ..compare("a", result, CompareTarget::Mod(n))
    };
    assert!(holds(range(Greater, 1)));
    assert!(!holds(range(Greater, 2)));
}

#[test]
fn all_comparisons_are_made_before_the_first_operation() {
    let mut store = Store::new();
    let inside = TxnRequest {
        compare: vec![compare("a", CompareResult::Equal, CompareTarget::Version(0))],
        success: vec![op("b", "absent")],
        failure: vec![op("b", "present")],
    };
    store.txn(only(vec![op("a", "1"), RequestOp::Txn(inside)])).unwrap();
    assert_eq!(row(&store.range(&get("b", "")).unwrap().kvs[0]).1, "absent");
}

#[test]
fn two_changes_of_one_key_are_refused() {
    let limits = Limits::default();
    let verdict = |success| check(&WriteRequest::Txn(only(success)), &limits);
    let refused = Err(Error::DuplicateKey);
    assert_eq!(verdict(vec![op("a", "1"), op("a", "2")]), refused);
    assert_eq!(verdict(vec![op("a", "1"), delete("a", "")]), refused);
    assert_eq!(verdict(vec![delete("a", "c"), op("b", "1")]), refused);
    // etcd's check takes this end for a key.
    assert_eq!(verdict(vec![delete("b", "\0"), op("z", "1")]), Ok(()));
    assert_eq!(verdict(vec![delete("a", "b"), op("b", "1")]), Ok(()));
    assert_eq!(verdict(vec![delete("a", "c"), delete("b", "d")]), Ok(()));
    assert_eq!(verdict(vec![delete("b", "c"), delete("a", "z"), op("y", "")]), refused);
    assert_eq!(verdict(vec![delete("z", "a"), op("b", "1")]), Ok(()));
    let inside =
        |success, failure| RequestOp::Txn(TxnRequest { compare: vec![], success, failure });
    assert_eq!(verdict(vec![inside(vec![op("a", "1")], vec![op("a", "2")])]), Ok(()));
    assert_eq!(verdict(vec![op("a", "0"), inside(vec![op("a", "1")], vec![])]), refused);
    assert_eq!(verdict(vec![op("a", "0"), inside(vec![], vec![delete("a", "b")])]), refused);
    let twice = vec![inside(vec![op("a", "1")], vec![]), inside(vec![], vec![op("a", "1")])];
    assert_eq!(verdict(twice), refused);
}

#[test]
fn a_key_that_is_deleted_and_put_at_once_is_new() {
    let mut store = Store::new();
    store.put("b", "old");
    store.put("c", "old");
    store.txn(only(vec![delete("a", "\0"), op("b", "new")])).unwrap();
    let now = store.range(&get("a", "\0")).unwrap();
    assert_eq!(now.kvs.iter().map(row).collect::<Vec<_>>(), [("b".into(), "new".into(), 4, 4, 1)]);
    // And the other way round, at once or as a second revision.
    store.txn(only(vec![op("d", "1"), delete("a", "\0")])).unwrap();
    assert_eq!(store.range(&get("a", "\0")).unwrap().count, 0);
    for (revision, keys) in [(2, "b"), (3, "bc"), (4, "b"), (5, "")] {
        let old = store.range(&RangeRequest { revision, ..get("a", "\0") }).unwrap();
        assert_eq!(old.kvs.iter().map(|kv| row(kv).0).collect::<String>(), keys, "at {revision}");
        assert_eq!(old.count, keys.len() as i64);
    }
    store.compact(4).unwrap();
    assert_eq!(store.range(&RangeRequest { revision: 4, ..get("b", "") }).unwrap().count, 1);
    store.compact(5).unwrap();
    store.put("b", "again");
    assert_eq!(
        row(&store.range(&get("b", "")).unwrap().kvs[0]),
        ("b".into(), "again".into(), 6, 6, 1)
    );
}

#[test]
fn the_first_compaction_may_be_at_revision_0() {
    let mut store = Store::new();
    assert_eq!(store.compact(-1), Err(Error::Compacted));
    assert_eq!(store.compact(0), Ok(()));
    assert_eq!(store.compact(0), Err(Error::Compacted));
    store.put("a", "1");
    assert_eq!(store.compact(1), Ok(()));
    assert_eq!(store.compact(0), Err(Error::Compacted));
}

#[test]
fn wrong_requests_have_etcds_errors() {
    let mut store = Store::new();
    let many = (0..129).map(|n| op(&format!("k{n}"), "")).collect();
    assert_eq!(store.txn(only(many)), Err(Error::TooManyOps));
    let empty = WriteRequest::Put(put("", "1"));
    assert_eq!(store.write(&empty), Err(Error::EmptyKey));
    let keeps = PutRequest { value: None, ..put("a", "") };
    assert_eq!(store.write(&WriteRequest::Put(keeps.clone())), Err(Error::KeyNotFound));
    let lease = PutRequest { lease: Some(9), ..put("a", "1") };
    let txn = only(vec![op("b", "1"), RequestOp::Put(lease)]);
    assert_eq!(store.txn(txn), Err(Error::LeaseNotFound));
    assert_eq!(store.view().revision(), 1, "the whole transaction fails");
    let future =
        only(vec![op("b", "1"), RequestOp::Range(RangeRequest { revision: 9, ..get("a", "") })]);
    assert_eq!(store.txn(future), Err(Error::FutureRevision));
    assert_eq!(store.view().len(), 0);
    let big = WriteRequest::Put(put("a", &"x".repeat(3 * 512 * 1024)));
    assert_eq!(store.write(&big), Err(Error::RequestTooLarge));
    let mut deep = only(vec![op("a", "1")]);
    for _ in 0..100 {
        deep = only(vec![RequestOp::Txn(deep)]);
    }
    assert_eq!(store.txn(deep), Err(Error::TooManyOps));
    store.put("a", "1");
    store.write(&WriteRequest::Put(keeps)).unwrap();
    assert_eq!(row(&store.range(&get("a", "")).unwrap().kvs[0]), ("a".into(), "1".into(), 2, 3, 2));
}

#[test]
fn every_error_has_etcds_prefix_and_a_code() {
    for error in Error::ALL {
        assert!(error.text().starts_with("etcdserver: "), "{error:?}");
        assert_eq!(error.to_string(), error.text());
    }
    assert_eq!(Error::Compacted.code(), Code::OutOfRange);
    assert_eq!(Error::NoSpace.code() as i32, 8);
}

#[test]
fn ranges_sort_limit_and_filter_as_etcd() {
    let mut store = Store::new();
    for (key, value) in [("c", "1"), ("a", "3"), ("b", "2"), ("d", "0"), ("a", "4")] {
        store.put(key, value);
    }
    let keys = |request: RangeRequest| {
        let response = store.range(&request).unwrap();
        let keys: String = response.kvs.iter().map(|kv| row(kv).0).collect();
        (keys, response.more, response.count)
    };
    let all = || get("\0", "\0");
    assert_eq!(keys(RangeRequest { limit: 3, ..all() }), ("abc".into(), true, 4));
    assert_eq!(keys(RangeRequest { limit: 4, ..all() }), ("abcd".into(), false, 4));
    let sorted =
        |sort_target, sort_order, limit| RangeRequest { sort_target, sort_order, limit, ..all() };
    assert_eq!(keys(sorted(SortTarget::Value, SortOrder::None, 0)).0, "dcba");
    assert_eq!(keys(sorted(SortTarget::Mod, SortOrder::Descend, 2)), ("ad".into(), true, 4));
    assert_eq!(keys(sorted(SortTarget::Create, SortOrder::Ascend, 0)).0, "cabd");
    assert_eq!(keys(sorted(SortTarget::Version, SortOrder::Descend, 1)).0, "a");
    assert_eq!(keys(sorted(SortTarget::Key, SortOrder::Descend, 1)), ("d".into(), true, 4));
    assert_eq!(keys(RangeRequest { min_mod_revision: 5, ..all() }), ("ad".into(), false, 4));
    assert_eq!(keys(RangeRequest { max_create_revision: 3, ..all() }).0, "ac");
    let counted = RangeRequest { content: Content::CountOnly, ..all() };
    assert_eq!(keys(counted), (String::new(), false, 4));
    let bare = store.range(&RangeRequest { content: Content::KeysOnly, ..get("a", "") }).unwrap();
    assert_eq!(row(&bare.kvs[0]), ("a".into(), String::new(), 3, 6, 2));
    assert_eq!(keys(get("d", "a")), (String::new(), false, 0));
    assert_eq!(keys(RangeRequest { revision: 4, limit: 2, ..all() }), ("ab".into(), true, 3));
}

#[test]
fn compaction_refuses_older_revisions_only() {
    let mut store = Store::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    store.delete("a", "");
    assert_eq!(store.compact(9), Err(Error::FutureRevision));
    store.compact(3).unwrap();
    assert_eq!(store.compact(3), Err(Error::Compacted));
    let at = |revision| RangeRequest { revision, ..get("a", "") };
    assert_eq!(store.range(&at(2)), Err(Error::Compacted));
    assert_eq!(row(&store.range(&at(3)).unwrap().kvs[0]).1, "2");
    assert_eq!(store.range(&at(9)), Err(Error::FutureRevision));
    store.trim();
    assert_eq!(row(&store.range(&at(3)).unwrap().kvs[0]).1, "2");
    assert_eq!(row(&store.range(&at(4)).unwrap().kvs[0]).1, "3");
    store.compact(5).unwrap();
    assert_eq!(store.range(&at(5)).unwrap().count, 0);
}

#[test]
fn no_space_refuses_what_adds() {
    let mut store = Store::new();
    store.put("a", "1");
    let alarm = |state| WriteRequest::Alarm { alarm: Alarm::NoSpace, state };
    store.write(&alarm(AlarmState::Raised)).unwrap();
    let mut store = store.replayed();
    assert_eq!(store.state.alarms(), [Alarm::NoSpace]);
    assert_eq!(store.write(&WriteRequest::Put(put("b", "1"))), Err(Error::NoSpace));
    assert_eq!(store.txn(only(vec![op("b", "1")])), Err(Error::NoSpace));
    let grant = WriteRequest::LeaseGrant { id: 0, ttl: 9 };
    assert_eq!(store.write(&grant), Err(Error::NoSpace));
    assert_eq!(store.delete("a", ""), (3, 1));
    store.compact(3).unwrap();
    store.write(&alarm(AlarmState::Cleared)).unwrap();
    assert_eq!(store.put("b", "1"), 4);
}

#[test]
fn a_jump_compacts_what_is_older() {
    let mut store = Store::new();
    store.put("a", "1");
    let record = store.state.jump(1 << 36).unwrap();
    store.append(Some(record));
    assert!(store.state.jump(1 << 36).is_err());
    for store in [&store, &store.replayed()] {
        let now = store.range(&get("a", "")).unwrap();
        assert_eq!((now.revision, row(&now.kvs[0]).3), (1 << 36, 2));
        let old = RangeRequest { revision: 2, ..get("a", "") };
        assert_eq!(store.range(&old), Err(Error::Compacted));
    }
    assert_eq!(store.put("b", "1"), (1 << 36) + 1);
}

#[test]
fn damaged_records_are_refused() {
    let mut store = Store::new();
    store.put("a", "1");
    let good = store.log.records[0].clone();
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1;
        store.log.records[0] = bad.into();
        let mut other = Store::new();
        let result = other.state.replay(0, store.log.records[0].clone(), 0, &other.log);
        assert_eq!(result, Err(Error::Corrupt), "byte {at}");
        assert!(other.state.replay(0, good.slice(..at), 0, &other.log).is_err());
    }
}

#[test]
fn keys_may_be_any_bytes() {
    let mut store = Store::new();
    for key in [&b"\0"[..], b"\0\0", b"\xff", b"\xff\xff\0"] {
        let key = bytes::Bytes::copy_from_slice(key);
        let request = PutRequest { key, ..put("", "v") };
        assert!(matches!(store.write(&WriteRequest::Put(request)), Ok(WriteResponse::Put(_))));
    }
    assert_eq!(store.range(&get("\0", "\0")).unwrap().count, 4);
    assert_eq!(store.range(&get("\0", "\u{1}")).unwrap().count, 2);
}
