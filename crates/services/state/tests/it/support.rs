//! A log in memory, and a store on it.

use std::collections::BTreeMap;

use bytes::Bytes;
use helio_state::{
    Error, KeyValue, Limits, Outcome, PutRequest, RangeRequest, RangeResponse, Revision, Source,
    State, Stored, TxnRequest, TxnResponse, View, WatchResponse, WatchStream, WriteRequest,
    WriteResponse,
};

/// Records by number; those below `first` were trimmed.
#[derive(Default, Clone)]
pub(crate) struct Log {
    pub(crate) records: Vec<Bytes>,
    pub(crate) first: u64,
    pub(crate) snapshot: BTreeMap<Vec<u8>, KeyValue>,
}

impl Source for Log {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        Ok(self.records.get(number as usize).filter(|_| number >= self.first).cloned())
    }

    fn snapshot(&self, key: &[u8]) -> Option<KeyValue> {
        self.snapshot.get(key).cloned()
    }
}

pub(crate) struct Store {
    pub(crate) state: State,
    pub(crate) log: Log,
    pub(crate) now_ms: u64,
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: bytes(key),
        value: Some(bytes(value)),
        lease: Some(0),
        previous: helio_state::Previous::Include,
    }
}

pub(crate) fn get(key: &str, end: &str) -> RangeRequest {
    RangeRequest { key: bytes(key), range_end: bytes(end), ..RangeRequest::default() }
}

/// Key, value, create revision, mod revision and version.
pub(crate) fn row(kv: &KeyValue) -> (String, String, i64, i64, i64) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let f = kv.fields();
    (text(f.key), text(f.value), f.create_revision, f.mod_revision, f.version)
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { state: State::new(0, Limits::default(), 7), log: Log::default(), now_ms: 0 }
    }

    pub(crate) fn write(&mut self, request: &WriteRequest) -> Result<WriteResponse, Error> {
        let Outcome { record, response } = self.state.write(request, self.now_ms, &self.log);
        self.append(record);
        response
    }

    pub(crate) fn append(&mut self, record: Option<Bytes>) {
        self.log.records.extend(record);
        self.state.release(self.log.records.len() as u64);
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) -> Revision {
        match self.write(&WriteRequest::Put(put(key, value))) {
            Ok(WriteResponse::Put(response)) => response.revision,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&mut self, key: &str, end: &str) -> (Revision, i64) {
        let request = helio_state::DeleteRangeRequest {
            key: bytes(key),
            range_end: bytes(end),
            ..Default::default()
        };
        match self.write(&WriteRequest::DeleteRange(request)) {
            Ok(WriteResponse::DeleteRange(response)) => (response.revision, response.deleted),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn txn(&mut self, txn: TxnRequest) -> Result<TxnResponse, Error> {
        match self.write(&WriteRequest::Txn(txn))? {
            WriteResponse::Txn(response) => Ok(response),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        self.write(&WriteRequest::Compact(revision)).map(drop)
    }

    pub(crate) fn view(&self) -> View {
        self.state.view()
    }

    pub(crate) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.view().range(request, &self.log)
    }

    /// Moves what lies below the compact revision to a snapshot, and trims the log.
    pub(crate) fn trim(
        &mut self,
    ) -> (helio_state::Image, Vec<(KeyValue, helio_state::StoredPlace)>) {
        let view = self.view();
        let at = (view.compact_revision() - 1).max(1);
        let mut kvs = Vec::new();
        view.scan(at, &self.log, |stored: &Stored<'_>| {
            kvs.push((stored.kv.clone(), stored.place()));
            Ok::<_, Error>(())
        })
        .expect("scan");
        let next = self.state.record_of(at + 1);
        let image = self.state.image(at, next);
        self.log.snapshot =
            kvs.iter().map(|(kv, _)| (kv.fields().key.to_vec(), kv.clone())).collect();
        self.log.first = next;
        (image, kvs)
    }

    /// A store restarted from a snapshot and the log.
    pub(crate) fn restarted(
        &self,
        image: &helio_state::Image,
        kvs: &[(KeyValue, helio_state::StoredPlace)],
    ) -> Self {
        let mut state = State::new(0, Limits::default(), 7);
        state.restore(image, self.now_ms);
        for (kv, place) in kvs {
            state.load(kv, *place);
        }
        for (at, record) in self.log.records.iter().enumerate().skip(image.next_record as usize) {
            state.replay(at as u64, record.clone(), self.now_ms, &self.log).expect("replay");
        }
        Self { state, log: self.log.clone(), now_ms: self.now_ms }
    }

    /// A store restarted from the whole log.
    pub(crate) fn replayed(&self) -> Self {
        let mut state = State::new(0, Limits::default(), 7);
        for (at, record) in self.log.records.iter().enumerate() {
            state.replay(at as u64, record.clone(), self.now_ms, &self.log).expect("replay");
        }
        Self { state, log: self.log.clone(), now_ms: self.now_ms }
    }

    pub(crate) fn poll(&self, stream: &mut WatchStream, budget: usize) -> Vec<WatchResponse> {
        let mut all = Vec::new();
        loop {
            let responses = stream.poll(&self.view(), &self.log, budget);
            let over = responses.is_empty() && stream.is_level(&self.view());
            all.extend(responses);
            if over {
                return all;
            }
        }
    }
}
