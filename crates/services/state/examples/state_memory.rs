//! Measures the anonymous memory of a live key, beyond its bytes, without a log's or values'.
//!
//! `cargo run -p helio-state --example state_memory -- [KEYS [STEP]]`; keys come in
//! order, or each STEP places after the one before (7919317: scattered).

use bytes::Bytes;
use helio_state::{
    Error, KeyValue, Limits, Previous, PutRequest, Source, State, View, WriteRequest,
};

/// Keys between two views held by readers, as after each batch.
const BATCH: usize = 100;

/// A log whose records nobody reads: each key is written once.
struct Unread;

impl Source for Unread {
    fn record(&self, _: u64) -> Result<Option<Bytes>, Error> {
        Ok(None)
    }

    fn snapshot(&self, _: &[u8]) -> Option<KeyValue> {
        None
    }
}

type Failure = Box<dyn std::error::Error>;

/// Anonymous memory of this process, in bytes (`RssAnon` of proc(5)).
fn anonymous() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon")).ok_or("no RssAnon")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse::<u64>()? * 1024)
}

fn main() -> Result<(), Failure> {
    let keys: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |keys| keys.parse())?;
    let value = Bytes::from(vec![b'v'; 953]);
    let step: usize = std::env::args().nth(2).map_or(Ok(1), |step| step.parse())?;
    let before = anonymous()?;
    let mut state = State::new(0, Limits::default(), 1);
    let mut view = View::default();
    let mut length = 0;
    for n in 0..keys {
        let key = format!("/registry/pods/default/pod-{:09}", n * step % keys);
        length = key.len();
        let put = PutRequest {
            key: key.into(),
            value: Some(value.clone()),
            lease: Some(0),
            previous: Previous::Omit,
        };
        state.savepoint();
        state.write(&WriteRequest::Put(put), 0, &Unread).response?;
        state.release(state.view().next_record());
        if n % BATCH == 0 {
            view = state.view();
        }
    }
    let grown = anonymous()?.saturating_sub(before) / keys as u64;
    let bare = grown.saturating_sub(length as u64);
    println!("{keys} keys ({} in view), {bare} B a key beyond its bytes", view.len());
    Ok(())
}
