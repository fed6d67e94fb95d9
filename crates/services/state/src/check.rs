//! Checks of requests that need no state: etcd's, in its order.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::range::KeyRange;
use crate::{Error, Limits, PutRequest, RangeRequest, RequestOp, TxnRequest, WriteRequest};

/// Refuses requests that are wrong in any state.
///
/// # Errors
///
/// Empty keys, values or leases that contradict `ignore_value` or `ignore_lease`, too many
/// operations, two changes of one key, too many bytes.
pub fn check(request: &WriteRequest, limits: &Limits) -> Result<(), Error> {
    match request {
        WriteRequest::Put(put) => check_put(put)?,
        WriteRequest::DeleteRange(delete) => check_key(&delete.key)?,
        WriteRequest::Txn(txn) => {
            check_txn(txn, limits, 0)?;
            Changes::of(&txn.success)?;
            Changes::of(&txn.failure)?;
        }
        _ => {}
    }
    if bytes_of(request) > limits.request_bytes {
        return Err(Error::RequestTooLarge);
    }
    Ok(())
}

fn check_key(key: &Bytes) -> Result<(), Error> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

fn check_put(put: &PutRequest) -> Result<(), Error> {
    check_key(&put.key)
}

fn check_txn(txn: &TxnRequest, limits: &Limits, depth: usize) -> Result<(), Error> {
    let most = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if most > limits.txn_ops || depth >= limits.txn_depth {
        return Err(Error::TooManyOps);
    }
    txn.compare.iter().try_for_each(|compare| check_key(&compare.key))?;
    txn.success.iter().chain(&txn.failure).try_for_each(|op| match op {
        RequestOp::Range(range) => check_key(&range.key),
        RequestOp::Put(put) => check_put(put),
        RequestOp::DeleteRange(delete) => check_key(&delete.key),
        RequestOp::Txn(txn) => check_txn(txn, limits, depth + 1),
    })
}

/// Bytes of the request's keys and values.
fn bytes_of(request: &WriteRequest) -> usize {
    match request {
        WriteRequest::Put(put) => put_bytes(put),
        WriteRequest::DeleteRange(delete) => delete.key.len() + delete.range_end.len(),
        WriteRequest::Txn(txn) => txn_bytes(txn),
        _ => 0,
    }
}

fn put_bytes(put: &PutRequest) -> usize {
    put.key.len() + put.value.as_ref().map_or(0, Bytes::len)
}

fn txn_bytes(txn: &TxnRequest) -> usize {
    let range = |range: &RangeRequest| range.key.len() + range.range_end.len();
    let compares: usize = txn.compare.iter().map(|c| c.key.len() + c.range_end.len()).sum();
    let ops = txn.success.iter().chain(&txn.failure).map(|op| match op {
        RequestOp::Range(request) => range(request),
        RequestOp::Put(put) => put_bytes(put),
        RequestOp::DeleteRange(delete) => delete.key.len() + delete.range_end.len(),
        RequestOp::Txn(txn) => txn_bytes(txn),
    });
    compares + ops.sum::<usize>()
}

/// Keys that a list of operations puts, and ranges that it deletes (etcd: `checkIntervals`).
#[derive(Default)]
struct Changes {
    puts: HashSet<Bytes>,
    deletes: Ranges,
}

impl Changes {
    fn of(ops: &[RequestOp]) -> Result<Self, Error> {
        let mut all = Self::default();
        for op in ops {
            // etcd takes the end `\0` for a key here, behind which no key lies.
            if let RequestOp::DeleteRange(delete) = op
                && delete.range_end.as_ref() != [0]
            {
                all.deletes.insert(&KeyRange::new(&delete.key, &delete.range_end));
            }
        }
        for op in ops {
            if let RequestOp::Txn(txn) = op {
                all.nested(Self::of(&txn.success)?, Self::of(&txn.failure)?)?;
            }
        }
        for op in ops {
            if let RequestOp::Put(put) = op {
                all.put(put.key.clone())?;
            }
        }
        Ok(all)
    }

    /// Adds both branches of a transaction inside: only one of them runs.
    fn nested(&mut self, success: Self, failure: Self) -> Result<(), Error> {
        for key in &success.puts {
            self.put(key.clone())?;
        }
        for key in failure.puts {
            if success.puts.contains(&key) {
                continue;
            }
            self.put(key)?;
        }
        self.deletes.merge(success.deletes);
        self.deletes.merge(failure.deletes);
        Ok(())
    }

    fn put(&mut self, key: Bytes) -> Result<(), Error> {
        if self.deletes.contains(&key) || !self.puts.insert(key) {
            return Err(Error::DuplicateKey);
        }
        Ok(())
    }
}

/// Disjoint ranges of keys: start to end, `None` for an open one.
#[derive(Default)]
struct Ranges {
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Ranges {
    fn contains(&self, key: &[u8]) -> bool {
        let below = self
            .ranges
            .range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key)));
        below.last().is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end.as_slice()))
    }

    fn insert(&mut self, range: &KeyRange) {
        if !range.is_empty() {
            self.add(range.start().to_vec(), range.end());
        }
    }

    fn add(&mut self, mut start: Vec<u8>, mut end: Option<Vec<u8>>) {
        if let Some((first, last)) = self.ranges.range(..=start.clone()).next_back()
            && last.as_ref().is_none_or(|last| *last >= start)
        {
            start = first.clone();
        }
        let touches = |at: &Vec<u8>| end.as_ref().is_none_or(|end| at <= end);
        let joined: Vec<_> = self.ranges.range(start.clone()..).map(|(at, _)| at.clone()).collect();
        let mut joined = joined.into_iter();
        let mut most = end.clone();
        for at in joined.by_ref().take_while(|at| touches(at)) {
            let other = self.ranges.remove(&at).flatten();
            most = match (most, other) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
        }
        end = most;
        self.ranges.insert(start, end);
    }

    fn merge(&mut self, other: Self) {
        for (start, end) in other.ranges {
            self.add(start, end);
        }
    }
}
