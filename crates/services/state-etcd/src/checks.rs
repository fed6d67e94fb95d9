//! Checks of requests, in etcd's order, of what the store's requests cannot express. The store's
//! own come after them.
//!
//! Source: etcd's `server/etcdserver/api/v3rpc/key.go`.

use prost::Message;

use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::etcdserverpb::request_op::Request;
use crate::proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};
use crate::{MAX_REQUEST_BYTES, MAX_TXN_OPERATIONS};
use helio_state::Error;

/// What etcd's log adds to a request, whose size with it is limited: a header with an id of eight
/// bytes, and the request's own tag and length.
const LOGGED_OVERHEAD_BYTES: usize = 18;

pub(crate) fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    SortOrder::try_from(request.sort_order).map_err(|_| Error::InvalidSortOption)?;
    SortTarget::try_from(request.sort_target).map_err(|_| Error::InvalidSortOption)?;
    Ok(())
}

pub(crate) fn put(request: &PutRequest) -> Result<(), Error> {
    match request {
        put if put.key.is_empty() => Err(Error::EmptyKey),
        put if put.ignore_value && !put.value.is_empty() => Err(Error::ValueProvided),
        put if put.ignore_lease && put.lease != 0 => Err(Error::LeaseProvided),
        _ => Ok(()),
    }
}

pub(crate) fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

pub(crate) fn txn(request: &TxnRequest) -> Result<(), Error> {
    operations(request, MAX_TXN_OPERATIONS)
}

/// Whether etcd's log would hold a request.
pub(crate) fn size(request: &impl Message) -> Result<(), Error> {
    match request.encoded_len() + LOGGED_OVERHEAD_BYTES <= MAX_REQUEST_BYTES {
        true => Ok(()),
        false => Err(Error::RequestTooLarge),
    }
}

fn operations(request: &TxnRequest, most: usize) -> Result<(), Error> {
    let lists = [request.compare.len(), request.success.len(), request.failure.len()];
    let rest = lists.into_iter().max().and_then(|count| most.checked_sub(count));
    let rest = rest.ok_or(Error::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    let mut both = request.success.iter().chain(&request.failure);
    both.try_for_each(|operation| match &operation.request {
        Some(Request::RequestRange(request)) => range(request),
        Some(Request::RequestPut(request)) => put(request),
        Some(Request::RequestDeleteRange(request)) => delete_range(request),
        Some(Request::RequestTxn(request)) => operations(request, rest),
        None => Err(Error::KeyNotFound),
    })
}
