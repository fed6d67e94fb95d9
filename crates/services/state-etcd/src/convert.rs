//! etcd's messages to the store's requests, and its answers back.

use helio_state as state;
use helio_state::{Content, Error, Previous};

use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request;
use crate::proto::etcdserverpb::response_op::Response;
use crate::proto::mvccpb;
use crate::raw::KeyValue;

fn previous(wanted: bool) -> Previous {
    if wanted { Previous::Include } else { Previous::Omit }
}

/// A header with nothing but a revision; the service fills in the rest where it is sent.
fn at(revision: state::Revision) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

/// # Errors
/// If the order or target is unknown.
pub(crate) fn range(request: pb::RangeRequest) -> Result<state::RangeRequest, Error> {
    use pb::range_request::{SortOrder, SortTarget};
    let order = SortOrder::try_from(request.sort_order).map_err(|_| Error::InvalidSortOption)?;
    let target = SortTarget::try_from(request.sort_target).map_err(|_| Error::InvalidSortOption)?;
    Ok(state::RangeRequest {
        key: request.key,
        range_end: request.range_end,
        limit: request.limit,
        revision: request.revision,
        sort_order: match order {
            SortOrder::None => state::SortOrder::None,
            SortOrder::Ascend => state::SortOrder::Ascend,
            SortOrder::Descend => state::SortOrder::Descend,
        },
        sort_target: match target {
            SortTarget::Key => state::SortTarget::Key,
            SortTarget::Version => state::SortTarget::Version,
            SortTarget::Create => state::SortTarget::Create,
            SortTarget::Mod => state::SortTarget::Mod,
            SortTarget::Value => state::SortTarget::Value,
        },
        content: match (request.count_only, request.keys_only) {
            (true, _) => Content::CountOnly,
            (false, true) => Content::KeysOnly,
            (false, false) => Content::All,
        },
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    })
}

pub(crate) fn put(request: pb::PutRequest) -> state::PutRequest {
    state::PutRequest {
        key: request.key,
        value: (!request.ignore_value).then_some(request.value),
        lease: (!request.ignore_lease).then_some(request.lease),
        previous: previous(request.prev_kv),
    }
}

pub(crate) fn delete_range(request: pb::DeleteRangeRequest) -> state::DeleteRangeRequest {
    state::DeleteRangeRequest {
        key: request.key,
        range_end: request.range_end,
        previous: previous(request.prev_kv),
    }
}

/// # Errors
/// If an operation is empty or has an unknown order.
pub(crate) fn txn(request: pb::TxnRequest) -> Result<state::TxnRequest, Error> {
    Ok(state::TxnRequest {
        compare: request.compare.into_iter().filter_map(compare).collect(),
        success: request.success.into_iter().map(operation).collect::<Result<_, _>>()?,
        failure: request.failure.into_iter().map(operation).collect::<Result<_, _>>()?,
    })
}

fn operation(operation: pb::RequestOp) -> Result<state::RequestOp, Error> {
    Ok(match operation.request.ok_or(Error::KeyNotFound)? {
        Request::RequestRange(request) => state::RequestOp::Range(range(request)?),
        Request::RequestPut(request) => state::RequestOp::Put(put(request)),
        Request::RequestDeleteRange(request) => {
            state::RequestOp::DeleteRange(delete_range(request))
        }
        Request::RequestTxn(request) => state::RequestOp::Txn(txn(request)?),
    })
}

/// A comparison; none where the relation is unknown, as etcd lets that pass. Operands of another
/// target than the one that is compared count as absent: 0, or empty.
fn compare(compare: pb::Compare) -> Option<state::Compare> {
    let result = match CompareResult::try_from(compare.result).ok()? {
        CompareResult::Equal => state::CompareResult::Equal,
        CompareResult::Greater => state::CompareResult::Greater,
        CompareResult::Less => state::CompareResult::Less,
        CompareResult::NotEqual => state::CompareResult::NotEqual,
    };
    let operand = compare.target_union;
    let target = match (CompareTarget::try_from(compare.target).ok()?, operand) {
        (CompareTarget::Version, Some(TargetUnion::Version(n))) => state::CompareTarget::Version(n),
        (CompareTarget::Version, _) => state::CompareTarget::Version(0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(n))) => {
            state::CompareTarget::Create(n)
        }
        (CompareTarget::Create, _) => state::CompareTarget::Create(0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(n))) => state::CompareTarget::Mod(n),
        (CompareTarget::Mod, _) => state::CompareTarget::Mod(0),
        (CompareTarget::Value, Some(TargetUnion::Value(v))) => state::CompareTarget::Value(v),
        (CompareTarget::Value, _) => state::CompareTarget::Value(bytes::Bytes::new()),
        (CompareTarget::Lease, Some(TargetUnion::Lease(n))) => state::CompareTarget::Lease(n),
        (CompareTarget::Lease, _) => state::CompareTarget::Lease(0),
    };
    Some(state::Compare { key: compare.key, range_end: compare.range_end, result, target })
}

pub(crate) fn watch(request: pb::WatchCreateRequest) -> state::WatchCreate {
    use pb::watch_create_request::FilterType;
    let has = |filter: FilterType| request.filters.contains(&(filter as i32));
    state::WatchCreate {
        filter: state::Filter {
            no_put: has(FilterType::Noput),
            no_delete: has(FilterType::Nodelete),
        },
        key: request.key,
        range_end: request.range_end,
        start_revision: request.start_revision,
        previous: previous(request.prev_kv),
        progress: match request.progress_notify {
            true => state::Progress::Periodic,
            false => state::Progress::OnRequest,
        },
        fragment: match request.fragment {
            true => state::Fragment::Split,
            false => state::Fragment::Whole,
        },
        watch_id: request.watch_id,
    }
}

pub(crate) fn ranged(answer: state::RangeResponse) -> pb::RangeResponse {
    pb::RangeResponse {
        header: at(answer.revision),
        kvs: answer.kvs.into_iter().map(KeyValue).collect(),
        more: answer.more,
        count: answer.count,
    }
}

pub(crate) fn put_done(answer: state::PutResponse) -> pb::PutResponse {
    pb::PutResponse { header: at(answer.revision), prev_kv: answer.previous.map(KeyValue) }
}

pub(crate) fn deleted(answer: state::DeleteRangeResponse) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: at(answer.revision),
        deleted: answer.deleted,
        prev_kvs: answer.previous.into_iter().map(KeyValue).collect(),
    }
}

pub(crate) fn txn_done(answer: state::TxnResponse) -> pb::TxnResponse {
    let response = |response| {
        Some(match response {
            state::ResponseOp::Range(answer) => Response::ResponseRange(ranged(answer)),
            state::ResponseOp::Put(answer) => Response::ResponsePut(put_done(answer)),
            state::ResponseOp::DeleteRange(answer) => {
                Response::ResponseDeleteRange(deleted(answer))
            }
            // etcd leaves the revision out there.
            state::ResponseOp::Txn(answer) => {
                Response::ResponseTxn(pb::TxnResponse { header: at(0), ..txn_done(answer) })
            }
        })
    };
    let responses = answer.responses.into_iter();
    pb::TxnResponse {
        header: at(answer.revision),
        succeeded: answer.succeeded,
        responses: responses.map(|r| pb::ResponseOp { response: response(r) }).collect(),
    }
}

pub(crate) fn event(event: state::Event) -> mvccpb::Event {
    mvccpb::Event {
        r#type: event.kind as i32,
        kv: Some(KeyValue(event.kv)),
        prev_kv: event.previous.map(KeyValue),
    }
}

/// An answer on a stream of watches; its header has the revision alone.
pub(crate) fn watched(answer: state::WatchResponse) -> pb::WatchResponse {
    let mut shown = pb::WatchResponse {
        header: at(answer.revision),
        watch_id: answer.watch_id,
        ..Default::default()
    };
    match answer.body {
        state::WatchBody::Created => shown.created = true,
        state::WatchBody::Canceled { compact_revision, reason, created } => {
            (shown.canceled, shown.created) = (true, created);
            (shown.compact_revision, shown.cancel_reason) = (compact_revision, reason);
        }
        state::WatchBody::Progress => {}
        state::WatchBody::Events { events, fragment } => {
            shown.events = events.into_iter().map(event).collect();
            shown.fragment = fragment == state::FragmentPart::More;
        }
    }
    shown
}
