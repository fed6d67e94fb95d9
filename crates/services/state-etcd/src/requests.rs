//! Requests as Kubernetes' API server sends them.

use bytes::Bytes;

use crate::KeyValue;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request;
use crate::proto::etcdserverpb::response_op::Response;

/// What a transaction does with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Puts a value.
    Put {
        /// The value.
        value: Bytes,
        /// Its lease; 0 for none.
        lease: i64,
    },
    /// Deletes the key.
    Delete,
}

/// A transaction that changes a key if its `mod_revision` is `expected` (0: it is absent), and
/// reads it otherwise.
pub fn if_unchanged(key: Bytes, expected: i64, change: Change) -> pb::TxnRequest {
    let compare = pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::ModRevision(expected)),
    };
    let read = pb::RangeRequest { key: key.clone(), limit: 1, ..pb::RangeRequest::default() };
    let change = match change {
        Change::Put { value, lease } => {
            let put = pb::PutRequest { key, value, lease, ..pb::PutRequest::default() };
            Request::RequestPut(put)
        }
        Change::Delete => {
            let delete = pb::DeleteRangeRequest { key, ..pb::DeleteRangeRequest::default() };
            Request::RequestDeleteRange(delete)
        }
    };
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    let failure = op(Request::RequestRange(read));
    pb::TxnRequest { compare: vec![compare], success: op(change), failure }
}

/// The key that such a transaction read.
pub fn found(answer: &pb::TxnResponse) -> Option<&KeyValue> {
    match answer.responses.first()?.response.as_ref()? {
        Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    }
}
