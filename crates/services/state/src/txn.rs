//! One transaction at work: reads see what it has written.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;

use crate::lease::Leases;
use crate::range::KeyRange;
use crate::record::{Builder, Kind};
use crate::tree::{Entry, Place};
use crate::view::{Source, View, resolve};
use crate::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, Error,
    EventKind, Fields, KeyValue, Previous, PutRequest, PutResponse, RangeRequest, RangeResponse,
    RequestOp, ResponseOp, Revision, TxnRequest, TxnResponse, WriteRequest, WriteResponse,
};

/// A transaction: the state that it changes, and its record so far.
pub(crate) struct Txn<'a> {
    view: &'a mut View,
    leases: &'a mut Leases,
    source: &'a dyn Source,
    record: Builder,
    kind: Kind,
    deleted: Vec<Arc<[u8]>>,
}

/// Reads the transaction's own record before the rest.
struct Own<'a> {
    number: u64,
    record: &'a Builder,
    /// A copy of the record, made once.
    copy: OnceCell<Bytes>,
    source: &'a dyn Source,
}

impl Source for Own<'_> {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        if number == self.number {
            let copy = || Bytes::copy_from_slice(self.record.bytes());
            return Ok(Some(self.copy.get_or_init(copy).clone()));
        }
        self.source.record(number)
    }

    fn snapshot(&self, key: &[u8]) -> Option<KeyValue> {
        self.source.snapshot(key)
    }
}

impl<'a> Txn<'a> {
    pub(crate) fn new(view: &'a mut View, leases: &'a mut Leases, source: &'a dyn Source) -> Self {
        let record = Builder::new(Kind::Changes, view.next_record, view.revision + 1);
        Self { view, leases, source, record, kind: Kind::Changes, deleted: Vec::new() }
    }

    /// The deletions of a lease's keys.
    pub(crate) fn revoke(
        view: &'a mut View,
        leases: &'a mut Leases,
        source: &'a dyn Source,
        lease: i64,
    ) -> Self {
        let mut record = Builder::new(Kind::Revoke, view.next_record, view.revision + 1);
        record.number(lease);
        Self { view, leases, source, record, kind: Kind::Revoke, deleted: Vec::new() }
    }

    /// The record, if the store changes, and the deleted keys.
    pub(crate) fn into_record(self) -> (Option<Builder>, Vec<Arc<[u8]>>) {
        let changes = self.kind == Kind::Revoke || self.record.changes() > 0;
        (changes.then_some(self.record), self.deleted)
    }

    /// The revision after what was done so far.
    fn revision(&self) -> Revision {
        self.view.revision + i64::from(self.record.changes() > 0)
    }

    /// Refuses what would fail halfway; the taken branches are checked alone.
    pub(crate) fn check(&self, request: &WriteRequest) -> Result<(), Error> {
        match request {
            WriteRequest::Put(put) => self.check_put(put),
            WriteRequest::Txn(txn) => self.check_txn(txn),
            _ => Ok(()),
        }
    }

    fn check_put(&self, put: &PutRequest) -> Result<(), Error> {
        let keeps = put.value.is_none() || put.lease.is_none();
        if keeps && self.view.tree.get(&put.key).is_none_or(|e| !e.is_live()) {
            return Err(Error::KeyNotFound);
        }
        match put.lease {
            Some(lease) if lease != 0 && !self.leases.contains(lease) => Err(Error::LeaseNotFound),
            _ => Ok(()),
        }
    }

    fn check_txn(&self, txn: &TxnRequest) -> Result<(), Error> {
        let branch = if self.holds(txn)? { &txn.success } else { &txn.failure };
        branch.iter().try_for_each(|op| match op {
            RequestOp::Range(range) => self.view.check_revision(range.revision),
            RequestOp::Put(put) => self.check_put(put),
            RequestOp::DeleteRange(_) => Ok(()),
            RequestOp::Txn(txn) => self.check_txn(txn),
        })
    }

    pub(crate) fn run(&mut self, request: &WriteRequest) -> Result<WriteResponse, Error> {
        Ok(match request {
            WriteRequest::Put(put) => WriteResponse::Put(self.put(put)?),
            WriteRequest::DeleteRange(delete) => {
                WriteResponse::DeleteRange(self.delete_all(delete)?)
            }
            WriteRequest::Txn(txn) => {
                let plan = self.plan(txn)?;
                let mut response = self.txn(txn, &mut plan.iter().copied())?;
                response.revision = self.revision();
                WriteResponse::Txn(response)
            }
            _ => unreachable!("only changes of keys are transactions"),
        })
    }

    /// Which branches run: all comparisons, nested ones too, are made before the first operation.
    fn plan(&self, txn: &TxnRequest) -> Result<Vec<bool>, Error> {
        let holds = self.holds(txn)?;
        let mut plan = vec![holds];
        for op in if holds { &txn.success } else { &txn.failure } {
            if let RequestOp::Txn(txn) = op {
                plan.extend(self.plan(txn)?);
            }
        }
        Ok(plan)
    }

    fn txn(
        &mut self,
        txn: &TxnRequest,
        plan: &mut dyn Iterator<Item = bool>,
    ) -> Result<TxnResponse, Error> {
        let succeeded = plan.next().unwrap_or(false);
        let mut responses = Vec::new();
        for op in if succeeded { &txn.success } else { &txn.failure } {
            responses.push(match op {
                RequestOp::Range(range) => ResponseOp::Range(self.range(range)?),
                RequestOp::Put(put) => ResponseOp::Put(self.put(put)?),
                RequestOp::DeleteRange(delete) => ResponseOp::DeleteRange(self.delete_all(delete)?),
                RequestOp::Txn(txn) => ResponseOp::Txn(self.txn(txn, plan)?),
            });
        }
        Ok(TxnResponse { revision: self.revision(), succeeded, responses })
    }

    fn own(&self) -> Own<'_> {
        let (number, copy) = (self.view.next_record, OnceCell::new());
        Own { number, record: &self.record, copy, source: self.source }
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let view = View { revision: self.revision(), ..self.view.clone() };
        view.range(request, &self.own())
    }

    /// A live key's value before the transaction's next change.
    fn current(&self, key: &[u8]) -> Result<Option<(Entry, KeyValue)>, Error> {
        let Some(entry) = self.view.tree.get(key).filter(|e| e.is_live()).cloned() else {
            return Ok(None);
        };
        let own = entry.place.record == self.view.next_record;
        let kv = if own {
            resolve(&self.own(), key, entry.place)?
        } else {
            resolve(self.source, key, entry.place)?
        };
        Ok(Some((entry, kv)))
    }

    fn put(&mut self, put: &PutRequest) -> Result<PutResponse, Error> {
        let current = self.current(&put.key)?;
        let revision = self.view.revision + 1;
        let old = current.as_ref().map(|(_, kv)| kv.fields());
        let keeps = put.value.is_none() || put.lease.is_none();
        if keeps && old.is_none() {
            return Err(Error::KeyNotFound);
        }
        let kept = old.unwrap_or_default();
        let lease = put.lease.unwrap_or(kept.lease);
        let fields = Fields {
            key: &put.key,
            create_revision: old.map_or(revision, |f| f.create_revision),
            mod_revision: revision,
            version: kept.version + 1,
            value: put.value.as_deref().unwrap_or(kept.value),
            lease,
        };
        let before = self.view.tree.get(&put.key).map(|e| (e.revision, e.place));
        let place = self.record.change(EventKind::Put, before, &fields);
        let old_lease = kept.lease;
        let key = self.set(&put.key, revision, place);
        if old_lease != lease {
            self.leases.detach(old_lease, &key);
        }
        self.leases.attach(lease, key);
        let previous = current.map(|(_, kv)| kv).filter(|_| put.previous == Previous::Include);
        Ok(PutResponse { revision, previous })
    }

    /// Sets a key's entry; gives the key's shared bytes.
    fn set(&mut self, key: &[u8], revision: Revision, place: Place) -> Arc<[u8]> {
        let known = self.view.tree.get(key).map(|e| e.key.clone());
        let key = known.unwrap_or_else(|| key.into());
        self.view.tree.insert(Entry { key: key.clone(), revision, place });
        key
    }

    /// Deletes a key; gives the value it had.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<Option<KeyValue>, Error> {
        let Some((entry, kv)) = self.current(key)? else { return Ok(None) };
        let revision = self.view.revision + 1;
        let fields = Fields { key, mod_revision: revision, ..Fields::default() };
        let before = Some((entry.revision, entry.place));
        let place = self.record.change(EventKind::Delete, before, &fields);
        let key = self.set(key, revision, place);
        self.leases.detach(kv.fields().lease, &key);
        self.deleted.push(key);
        Ok(Some(kv))
    }

    fn delete_all(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        let range = KeyRange::new(&request.key, &request.range_end);
        let live = self.view.tree.range(&range).filter(|e| e.is_live());
        let keys: Vec<_> = live.map(|e| e.key.clone()).collect();
        let mut response = DeleteRangeResponse { deleted: keys.len() as i64, ..Default::default() };
        for key in keys {
            let kv = self.delete(&key)?;
            response.previous.extend(kv.filter(|_| request.previous == Previous::Include));
        }
        response.revision = self.revision();
        Ok(response)
    }

    /// Whether all comparisons hold.
    fn holds(&self, txn: &TxnRequest) -> Result<bool, Error> {
        for compare in &txn.compare {
            if !self.compare(compare)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compare(&self, compare: &Compare) -> Result<bool, Error> {
        let range = KeyRange::new(&compare.key, &compare.range_end);
        let mut any = false;
        for entry in self.view.tree.range(&range).filter(|e| e.is_live()) {
            any = true;
            let kv = match compare.target {
                CompareTarget::Mod(_) => None,
                _ => Some(resolve(self.source, &entry.key, entry.place)?),
            };
            let fields = kv.as_ref().map_or_else(
                || Fields { mod_revision: entry.revision, ..Fields::default() },
                KeyValue::fields,
            );
            if !relates(compare, &fields) {
                return Ok(false);
            }
        }
        let absent = || !matches!(compare.target, CompareTarget::Value(_));
        Ok(any || (absent() && relates(compare, &Fields::default())))
    }
}

fn relates(compare: &Compare, fields: &Fields<'_>) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(n) => fields.version.cmp(n),
        CompareTarget::Create(n) => fields.create_revision.cmp(n),
        CompareTarget::Mod(n) => fields.mod_revision.cmp(n),
        CompareTarget::Lease(n) => fields.lease.cmp(n),
        CompareTarget::Value(value) => fields.value.cmp(value.as_ref()),
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
