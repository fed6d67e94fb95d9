//! A snapshot as a file that later versions must read.

use helio_state::{Alarm, AlarmState, WriteRequest};
use helio_state_node::{Options, restore};

use crate::support::{bus, get, open, put, value};

#[test]
fn a_snapshot_is_as_it_was_and_is_read() {
    let (old, new) = (bus("golden"), bus("golden-read"));
    let folder = tempfile::tempdir().unwrap();
    let store = open(&old, &folder.path().join("old"));
    put(&store, "a", "one");
    put(&store, "b", "two");
    store.write(WriteRequest::LeaseGrant { id: 5, ttl: 60 }).wait().unwrap();
    let alarm = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Raised };
    store.write(alarm).wait().unwrap();
    let file = folder.path().join("snapshot");
    store.backup(&file).unwrap();
    let hex: String = std::fs::read(&file).unwrap().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("../golden/snapshot-1.txt").trim_end());
    let to = folder.path().join("new");
    let restored = restore(&new, &file, &to, &Options::new("golden")).unwrap();
    assert_eq!((restored.from, restored.keys), (3, 2));
    let store = open(&new, &to);
    assert_eq!(value(&store.range(&get("b")).unwrap()), "two");
    assert_eq!((store.leases(), store.alarms()), (vec![5], vec![Alarm::NoSpace]));
}
