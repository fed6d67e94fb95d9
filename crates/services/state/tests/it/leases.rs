//! Leases: their time is passed in, and comes back from the log.

use helio_state::{Error, PutRequest, WriteRequest, WriteResponse, lease};

use crate::support::{Store, get, put};

fn grant(store: &mut Store, id: i64, ttl: i64) -> (i64, i64) {
    match store.write(&WriteRequest::LeaseGrant { id, ttl }) {
        Ok(WriteResponse::LeaseGrant { id, ttl, .. }) => (id, ttl),
        other => panic!("{other:?}"),
    }
}

fn keep_alive(store: &mut Store, id: i64) -> i64 {
    match store.write(&WriteRequest::LeaseKeepAlive { id }) {
        Ok(WriteResponse::LeaseKeepAlive { ttl, .. }) => ttl,
        other => panic!("{other:?}"),
    }
}

fn attach(store: &mut Store, key: &str, lease: i64) {
    let request = PutRequest { lease: Some(lease), ..put(key, "v") };
    store.write(&WriteRequest::Put(request)).unwrap();
}

fn expire(store: &mut Store) {
    for id in store.state.expired_leases(store.now_ms) {
        store.write(&WriteRequest::LeaseRevoke { id }).unwrap();
    }
}

#[test]
fn keys_end_with_their_lease_in_one_revision() {
    let mut store = Store::new();
    assert_eq!(grant(&mut store, 5, 10), (5, 10));
    assert_eq!(store.view().revision(), 1, "a grant is no revision");
    attach(&mut store, "a", 5);
    attach(&mut store, "b", 5);
    attach(&mut store, "c", 5);
    store.put("b", "without a lease");
    store.delete("c", "");
    let status = store.state.lease_status(5, 1_500);
    assert_eq!((status.ttl, status.granted_ttl, status.keys.len()), (8, 10, 1));
    store.now_ms = 9_999;
    expire(&mut store);
    assert_eq!(store.view().len(), 2);
    store.now_ms = 10_000;
    expire(&mut store);
    assert_eq!(store.view().revision(), 7);
    assert_eq!(store.range(&get("a", "z")).unwrap().count, 1);
    assert_eq!(store.state.lease_status(5, 0).ttl, -1);
    assert_eq!(store.replayed().view().len(), 1);
}

#[test]
fn grants_are_checked() {
    let mut store = Store::new();
    grant(&mut store, 5, 10);
    let again = WriteRequest::LeaseGrant { id: 5, ttl: 10 };
    assert_eq!(store.write(&again), Err(Error::LeaseExists));
    for ttl in [lease::MAX_TTL + 1, i64::MAX] {
        let request = WriteRequest::LeaseGrant { id: 6, ttl };
        assert_eq!(store.write(&request), Err(Error::LeaseTtlTooLarge));
    }
    assert_eq!(grant(&mut store, 7, 0).1, lease::MIN_TTL);
    assert_eq!(grant(&mut store, 8, -1).1, lease::MIN_TTL);
    let (one, other) = (grant(&mut store, 0, 10).0, grant(&mut store, 0, 10).0);
    assert!(one > 0 && other > 0 && one != other);
    let missing = WriteRequest::LeaseRevoke { id: 99 };
    assert_eq!(store.write(&missing), Err(Error::LeaseNotFound));
    assert_eq!(keep_alive(&mut store, 99), 0);
}

#[test]
fn a_restart_uses_the_checkpoint_unless_a_renewal_followed() {
    let mut store = Store::new();
    grant(&mut store, 1, 100);
    grant(&mut store, 2, 100);
    grant(&mut store, 3, 100);
    store.now_ms = 60_000;
    assert_eq!(keep_alive(&mut store, 3), 100);
    let record = store.state.checkpoint_leases(60_000, 60);
    store.append(record);
    assert_eq!(keep_alive(&mut store, 2), 100);
    let restarted = store.replayed();
    let left = |id| restarted.state.lease_status(id, 60_000).ttl;
    assert_eq!((left(1), left(2), left(3)), (40, 100, 100));
    let (image, kvs) = store.trim();
    let restarted = store.restarted(&image, &kvs);
    assert_eq!(restarted.state.lease_status(1, 60_000).ttl, 40);
    assert_eq!(store.state.checkpoint_leases(60_000, 60), None, "nothing new");
}

#[test]
fn an_expired_lease_cannot_be_renewed() {
    let mut store = Store::new();
    grant(&mut store, 1, 5);
    store.now_ms = 5_000;
    assert_eq!(keep_alive(&mut store, 1), 0);
    store.state.extend_leases(5_000);
    assert_eq!(keep_alive(&mut store, 1), 5, "a new leader extends every lease");
}

#[test]
fn a_batch_that_was_not_appended_leaves_nothing() {
    let mut store = Store::new();
    grant(&mut store, 1, 50);
    attach(&mut store, "a", 1);
    let before = (store.view().len(), store.view().revision(), store.state.lease_status(1, 0));
    let savepoint = store.state.savepoint();
    let next = store.log.records.len();
    for request in [
        WriteRequest::Put(put("a", "x")),
        WriteRequest::LeaseGrant { id: 2, ttl: 9 },
        WriteRequest::Put(PutRequest { lease: Some(1), ..put("b", "x") }),
        WriteRequest::LeaseRevoke { id: 1 },
        WriteRequest::Alarm {
            alarm: helio_state::Alarm::NoSpace,
            state: helio_state::AlarmState::Raised,
        },
    ] {
        let outcome = store.state.write(&request, 7_000, &store.log);
        assert!(outcome.response.is_ok() && outcome.record.is_some());
    }
    store.state.roll_back(savepoint);
    assert_eq!(store.state.view().next_record(), next as u64);
    let after = (store.view().len(), store.view().revision(), store.state.lease_status(1, 0));
    assert_eq!(before, after);
    assert_eq!((store.state.leases(), store.state.alarms()), (vec![1], vec![]));
    assert_eq!(store.put("a", "y"), 3);
    assert_eq!(store.replayed().view().len(), 1);
}
