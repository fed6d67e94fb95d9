//! The log's records as files that later versions must read.

use helio_state::{Alarm, AlarmState, WriteRequest};

use crate::support::Store;

fn golden() -> Store {
    let mut store = Store::new();
    let lease = WriteRequest::LeaseGrant { id: 5, ttl: 60 };
    store.write(&lease).unwrap();
    let mut leased = crate::support::put("a", "one");
    leased.lease = Some(5);
    store.write(&WriteRequest::Put(leased)).unwrap();
    store.put("b", "two");
    store.put("b", "three");
    store.now_ms = 20_000;
    let record = store.state.checkpoint_leases(20_000, 60);
    store.append(record);
    store.delete("b", "");
    store.compact(3).unwrap();
    store.write(&WriteRequest::LeaseRevoke { id: 5 }).unwrap();
    let alarm = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Raised };
    store.write(&alarm).unwrap();
    let record = store.state.jump(1 << 36).unwrap();
    store.append(Some(record));
    store
}

fn hex(store: &Store) -> String {
    let line = |r: &bytes::Bytes| r.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    store.log.records.iter().map(line).collect()
}

#[test]
fn records_are_as_they_were() {
    assert_eq!(hex(&golden()), include_str!("../golden/records-1.txt"));
}

#[test]
fn golden_records_are_read() {
    let store = golden();
    let read = store.replayed();
    assert_eq!(read.view().revision(), 1 << 36);
    assert_eq!(read.state.alarms(), [Alarm::NoSpace]);
    assert_eq!((read.view().len(), read.state.leases().len()), (0, 0));
}
