//! etcd's guarantees of watches: ordered, unique, reliable, atomic, resumable.

use bytes::Bytes;
use helio_state::{
    Error, Filter, Fragment, FragmentPart, Previous, Progress, PutRequest, RequestOp,
    STREAM_WATCH_ID, Start, TxnRequest, WatchBody, WatchCreate, WatchResponse, WatchStream,
};

use crate::support::{Store, bytes, put};

fn create(key: &str, end: &str, start_revision: i64) -> WatchCreate {
    WatchCreate { key: bytes(key), range_end: bytes(end), start_revision, ..Default::default() }
}

fn open(store: &Store, stream: &mut WatchStream, create: &WatchCreate) -> Option<i64> {
    let start = Start { record: store.state.record_of(create.start_revision) };
    stream.create(create, &store.view(), start)
}

/// One line a response.
fn lines(responses: &[WatchResponse]) -> Vec<String> {
    responses.iter().map(line).collect()
}

fn line(response: &WatchResponse) -> String {
    let head = format!("{}@{}", response.watch_id, response.revision);
    let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
    match &response.body {
        WatchBody::Created => format!("{head} created"),
        WatchBody::Progress => format!("{head} progress"),
        WatchBody::Canceled { compact_revision, reason, .. } => {
            format!("{head} canceled {compact_revision} {reason}")
        }
        WatchBody::Events { events, fragment } => {
            let events = events.iter().map(|e| {
                let old = e.previous.as_ref().map(|kv| format!("<{}", text(kv.value())));
                let revision = e.kv.fields().mod_revision;
                let value = text(e.kv.value());
                format!(
                    " {:?} {}={value}@{revision}{}",
                    e.kind,
                    text(e.kv.key()),
                    old.unwrap_or_default()
                )
            });
            let more = if *fragment == FragmentPart::More { " more" } else { "" };
            format!("{head}{}{more}", events.collect::<String>())
        }
    }
}

#[test]
fn created_comes_first_and_events_follow() {
    let mut store = Store::new();
    store.put("a", "0");
    let mut stream = WatchStream::new();
    assert_eq!(open(&store, &mut stream, &create("a", "b", 0)), Some(0));
    assert_eq!(open(&store, &mut stream, &create("a", "", 2)), Some(1));
    store.put("a", "1");
    store.put("b", "1");
    store.delete("a", "");
    let got = lines(&store.poll(&mut stream, 1 << 20));
    assert_eq!(
        got,
        [
            "0@2 created",
            "1@2 created",
            "1@5 Put a=0@2",
            "0@4 Put a=1@3 Delete a=@5".replace("0@4", "0@5").as_str(),
            "1@5 Put a=1@3 Delete a=@5",
        ]
    );
}

#[test]
fn a_revision_is_never_split_but_by_fragments() {
    let mut store = Store::new();
    let mut stream = WatchStream::new();
    open(&store, &mut stream, &create("a", "z", 0));
    let split = WatchCreate { fragment: Fragment::Split, ..create("a", "z", 0) };
    open(&store, &mut stream, &split);
    let value = "x".repeat(400_000);
    let one = |n: i32| RequestOp::Put(put(&format!("k{n}"), &value));
    for _ in 0..3 {
        let success = (0..3).map(one).collect();
        store.txn(TxnRequest { success, ..Default::default() }).unwrap();
    }
    let responses = store.poll(&mut stream, 1);
    let mut parts = vec![0; 2];
    for response in &responses {
        if let WatchBody::Events { events, .. } = &response.body {
            parts[response.watch_id as usize] += 1;
            if response.watch_id == 0 {
                assert_eq!(events.len(), 3, "whole revisions");
            }
        }
    }
    assert_eq!(parts, [3, 3]);
    let mut stream = WatchStream::new();
    open(&store, &mut stream, &WatchCreate { start_revision: 2, ..split });
    let responses = store.poll(&mut stream, 1 << 30);
    let events = responses.iter().filter_map(|r| match &r.body {
        WatchBody::Events { events, fragment } => Some((events.len(), *fragment)),
        _ => None,
    });
    use FragmentPart::{Last, More};
    assert_eq!(events.collect::<Vec<_>>(), [(3, More), (3, More), (3, Last)]);
}

#[test]
fn progress_waits_for_every_watch() {
    let mut store = Store::new();
    for n in 0..10 {
        store.put("a", &n.to_string());
    }
    let mut stream = WatchStream::new();
    open(&store, &mut stream, &create("b", "", 0));
    open(&store, &mut stream, &create("a", "", 2));
    stream.request_progress();
    let mut got = Vec::new();
    while !stream.is_level(&store.view()) {
        got.extend(lines(&stream.poll(&store.view(), &store.log, 1)));
    }
    assert_eq!(got.iter().position(|l| l.contains("progress")), Some(got.len() - 1));
    assert_eq!(got.last().unwrap(), &format!("{STREAM_WATCH_ID}@11 progress"));
    open(&store, &mut stream, &create("a", "", 13));
    stream.request_progress();
    assert_eq!(lines(&store.poll(&mut stream, 99)), ["2@11 created"]);
    store.put("a", "x");
    store.put("a", "y");
    let got = lines(&store.poll(&mut stream, 1 << 20));
    assert!(got.contains(&"2@13 Put a=y@13".to_owned()), "{got:?}");
    assert_eq!(got.last().unwrap(), "-1@13 progress");
}

#[test]
fn compaction_cancels_what_it_overtakes() {
    let mut store = Store::new();
    for n in 0..200 {
        store.put("a", &n.to_string());
    }
    let mut slow = WatchStream::new();
    open(&store, &mut slow, &create("a", "", 2));
    assert_eq!(slow.poll(&store.view(), &store.log, 1).len(), 2);
    store.compact(150).unwrap();
    store.trim();
    let mut stream = WatchStream::new();
    assert_eq!(open(&store, &mut stream, &create("a", "", 149)), None);
    assert_eq!(open(&store, &mut stream, &create("a", "", -1)), None);
    assert_eq!(open(&store, &mut stream, &create("a", "", 1 << 40)), None);
    let compacted = Error::Compacted.text();
    assert_eq!(
        lines(&store.poll(&mut stream, 99)),
        [
            "0@201 created".to_owned(),
            "0@0 canceled 150 ".to_owned(),
            format!("-1@201 canceled 150 {compacted}"),
            "2@201 created".to_owned(),
            "2@0 canceled 201 ".to_owned(),
        ]
    );
    let got = lines(&store.poll(&mut slow, 99));
    assert_eq!(got.last().unwrap(), "0@0 canceled 150 ");
    let previous = WatchCreate { previous: Previous::Include, ..create("a", "", 150) };
    open(&store, &mut stream, &previous);
    let got = lines(&store.poll(&mut stream, 1 << 20));
    assert!(got[1].contains(" Put a=148@150<147 Put a=149@151<148"), "{}", got[1]);
}

#[test]
fn filters_previous_values_and_ids() {
    let mut store = Store::new();
    store.put("a", "0");
    let mut stream = WatchStream::new();
    let puts = WatchCreate {
        filter: Filter { no_delete: true, ..Filter::default() },
        watch_id: 7,
        ..create("", "\0", 0)
    };
    assert_eq!(open(&store, &mut stream, &puts), Some(7));
    assert_eq!(open(&store, &mut stream, &puts), None);
    assert_eq!(open(&store, &mut stream, &create("b", "a", 0)), None);
    let deletes = WatchCreate {
        filter: Filter { no_put: true, ..Filter::default() },
        previous: Previous::Include,
        ..create("a", "", 0)
    };
    assert_eq!(open(&store, &mut stream, &deletes), Some(0));
    store.put("a", "1");
    store.delete("a", "");
    stream.cancel(7, &store.view());
    store.put("a", "2");
    let got = lines(&store.poll(&mut stream, 1 << 20));
    assert_eq!(got[1], "-1@2 canceled 0 mvcc: duplicate watch ID provided on the WatchStream");
    assert_eq!(got[2], "-1@2 canceled 0 mvcc: watcher range is empty");
    assert_eq!(got[4..], ["7@4 canceled 0 ", "0@4 Delete a=@4<1"]);
}

#[test]
fn periodic_progress_is_for_idle_watches() {
    let mut store = Store::new();
    let mut stream = WatchStream::new();
    let periodic = |key| WatchCreate { progress: Progress::Periodic, ..create(key, "", 0) };
    open(&store, &mut stream, &periodic("a"));
    open(&store, &mut stream, &periodic("b"));
    open(&store, &mut stream, &create("c", "", 0));
    store.put("a", "1");
    store.poll(&mut stream, 1 << 20);
    stream.periodic_progress(&store.view());
    assert_eq!(lines(&store.poll(&mut stream, 9)), ["1@2 progress"]);
}

#[test]
fn events_of_a_revoked_lease_are_atomic() {
    let mut store = Store::new();
    let grant = helio_state::WriteRequest::LeaseGrant { id: 3, ttl: 5 };
    store.write(&grant).unwrap();
    for key in ["a", "b"] {
        let request = PutRequest { lease: Some(3), ..put(key, "v") };
        store.write(&helio_state::WriteRequest::Put(request)).unwrap();
    }
    let mut stream = WatchStream::new();
    open(&store, &mut stream, &create("a", "z", 0));
    store.write(&helio_state::WriteRequest::LeaseRevoke { id: 3 }).unwrap();
    let got = lines(&store.poll(&mut stream, 99));
    assert_eq!(got[1], "0@4 Delete a=@4 Delete b=@4");
}
