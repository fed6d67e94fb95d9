//! Random histories against a model that keeps every version of every key.

use std::collections::BTreeMap;

use bytes::Bytes;
use helio_state::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Error, RangeRequest, RequestOp,
    TxnRequest, WatchBody, WatchCreate, WatchStream,
};
use proptest::prelude::*;

use crate::support::{Store, put, row};

type Row = (String, String, i64, i64, i64);

/// All keys as of each revision.
struct Model {
    states: BTreeMap<i64, BTreeMap<String, Row>>,
    revision: i64,
    compacted: i64,
    /// A compaction at revision 0 is refused.
    refuses_0: bool,
}

impl Model {
    fn new() -> Self {
        Self { states: [(1, BTreeMap::new())].into(), revision: 1, compacted: 0, refuses_0: false }
    }

    fn now(&self) -> &BTreeMap<String, Row> {
        &self.states[&self.revision]
    }

    fn change(&mut self, changes: &[(String, Option<String>)]) {
        let mut state = self.now().clone();
        let revision = self.revision + 1;
        let mut changed = false;
        for (key, value) in changes {
            match value {
                Some(value) => {
                    let old = state.get(key);
                    let created = old.map_or(revision, |o| o.2);
                    let version = old.map_or(0, |o| o.4) + 1;
                    let row = (key.clone(), value.clone(), created, revision, version);
                    state.insert(key.clone(), row);
                    changed = true;
                }
                None => changed |= state.remove(key).is_some(),
            }
        }
        if changed {
            self.revision = revision;
            self.states.insert(revision, state);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8, u8),
    Swap(u8, u8, i64),
    Compact(u8),
    Trim,
    Restart,
    Replay,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..40, any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
        3 => (0u8..40, 0u8..6).prop_map(|(k, n)| Step::Delete(k, n)),
        4 => (0u8..40, 0u8..40, 0i64..3).prop_map(|(a, b, v)| Step::Swap(a, b, v)),
        1 => (0u8..30).prop_map(Step::Compact),
        1 => Just(Step::Trim),
        1 => Just(Step::Restart),
        1 => Just(Step::Replay),
    ]
}

fn name(key: u8) -> String {
    format!("k{key:02}")
}

fn apply(step: &Step, store: &mut Store, model: &mut Model, whole: &mut bool) {
    match step {
        Step::Put(key, value) => {
            store.put(&name(*key), &value.to_string());
            model.change(&[(name(*key), Some(value.to_string()))]);
        }
        Step::Delete(key, n) => {
            store.delete(&name(*key), &name(key + n));
            let keys = (*key..key + n).map(|k| (name(k), None));
            model.change(&keys.collect::<Vec<_>>());
        }
        Step::Swap(a, b, version) => swap(store, model, (*a, *b, *version)),
        Step::Compact(back) => {
            let revision = model.revision - i64::from(*back);
            let is_first = revision == 0 && !model.refuses_0;
            let is_old = revision <= model.compacted && !is_first;
            let want = if is_old { Err(Error::Compacted) } else { Ok(()) };
            assert_eq!(store.compact(revision), want);
            model.refuses_0 |= !is_old;
            model.compacted = model.compacted.max(revision);
        }
        Step::Trim => {
            store.trim();
            *whole = false;
        }
        Step::Restart => {
            let (image, kvs) = store.trim();
            (*whole, model.refuses_0) = (false, true);
            *store = store.restarted(&image, &kvs);
        }
        Step::Replay if *whole => *store = store.replayed(),
        Step::Replay => {}
    }
}

/// A transaction: if a's version is as given, put both; otherwise delete b.
fn swap(store: &mut Store, model: &mut Model, given: (u8, u8, i64)) {
    let (a, b, version) = given;
    let key = Bytes::from(name(a));
    let compare = vec![Compare {
        key,
        range_end: Bytes::new(),
        result: CompareResult::Equal,
        target: CompareTarget::Version(version),
    }];
    let mut success = vec![RequestOp::Put(put(&name(a), "swapped"))];
    let mut changes = vec![(name(a), Some("swapped".to_owned()))];
    if a != b {
        success.push(RequestOp::Put(put(&name(b), "too")));
        changes.push((name(b), Some("too".to_owned())));
    }
    let key = Bytes::from(name(b));
    let delete = DeleteRangeRequest { key, ..Default::default() };
    let failure = vec![RequestOp::DeleteRange(delete)];
    let response = store.txn(TxnRequest { compare, success, failure }).unwrap();
    let holds = model.now().get(&name(a)).map_or(0, |r| r.4) == version;
    assert_eq!(response.succeeded, holds);
    model.change(&if holds { changes } else { vec![(name(b), None)] });
    assert_eq!(response.revision, model.revision);
}

fn compare_all(store: &Store, model: &Model) {
    for (revision, state) in &model.states {
        let request = RangeRequest {
            revision: *revision,
            key: Bytes::from_static(b"k05"),
            range_end: Bytes::from_static(b"k30"),
            limit: 7,
            ..Default::default()
        };
        let got = store.range(&request);
        if *revision < model.compacted {
            assert_eq!(got, Err(Error::Compacted));
            continue;
        }
        let got = got.unwrap();
        let want: Vec<_> =
            state.range("k05".to_owned().."k30".to_owned()).map(|(_, row)| row.clone()).collect();
        assert_eq!(got.count, want.len() as i64, "at {revision}");
        assert_eq!(got.kvs.iter().map(row).collect::<Vec<_>>(), want[..want.len().min(7)]);
        assert_eq!(got.more, want.len() > 7);
    }
}

/// Every event from a revision on, as the model's states differ.
fn expected(model: &Model, from: i64) -> Vec<(i64, String, Option<String>)> {
    let mut all = Vec::new();
    for revision in from..=model.revision {
        let (old, new) = (&model.states[&(revision - 1)], &model.states[&revision]);
        for key in old.keys().chain(new.keys()).collect::<std::collections::BTreeSet<_>>() {
            match (old.get(key), new.get(key)) {
                (_, Some(row)) if row.3 == revision => {
                    all.push((revision, key.clone(), Some(row.1.clone())));
                }
                (Some(_), None) => all.push((revision, key.clone(), None)),
                _ => {}
            }
        }
    }
    all
}

fn observed(store: &Store, from: i64, budget: usize) -> Vec<(i64, String, Option<String>)> {
    let mut stream = WatchStream::new();
    let create = WatchCreate {
        range_end: Bytes::from_static(&[0]),
        start_revision: from,
        previous: helio_state::Previous::Include,
        ..Default::default()
    };
    let start = helio_state::Start { record: store.state.record_of(from) };
    stream.create(&create, &store.view(), start);
    let mut all = Vec::new();
    for response in store.poll(&mut stream, budget) {
        let WatchBody::Events { events, .. } = response.body else { continue };
        for event in events {
            let (key, value, _, revision, _) = row(&event.kv);
            let put = event.kind == helio_state::EventKind::Put;
            let had = event.previous.is_some();
            assert!(put || had, "a deletion has a previous value, also at a compaction");
            all.push((revision, key, put.then_some(value)));
        }
    }
    all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn histories_equal_the_model(steps in prop::collection::vec(step(), 1..250)) {
        let (mut store, mut model, mut whole) = (Store::new(), Model::new(), true);
        for step in &steps {
            apply(step, &mut store, &mut model, &mut whole);
        }
        prop_assert_eq!(store.view().revision(), model.revision);
        compare_all(&store, &model);
        let from = model.compacted.max(2);
        for budget in [1, 300, 1 << 20] {
            prop_assert_eq!(observed(&store, from, budget), expected(&model, from));
        }
    }
}
