//! etcd's service KV.

use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::error::status;
use crate::proto::etcdserverpb::kv_server::Kv;
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, RequestOp, TxnRequest,
    TxnResponse,
};
use crate::service::{Answers, Member, other_kind, queue};
use crate::store::Consistency;
use crate::{checks, convert};
use helio_state::{Error, WriteRequest, WriteResponse};

/// A chunk of a streamed range, in bytes of keys and values.
const CHUNK_BYTES: usize = 1 << 20;

#[tonic::async_trait]
impl Kv for Member {
    type RangeStreamStream = Answers<RangeStreamResponse>;

    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        self.ranged(request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<Answers<RangeStreamResponse>>, Status> {
        let whole = self.ranged(request.into_inner()).await.map_err(status)?;
        let (sender, stream) = queue();
        tokio::spawn(async move {
            for chunk in chunks(whole) {
                let answer = RangeStreamResponse { range_response: Some(chunk) };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(stream))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        checks::put(&request).and_then(|()| checks::size(&request)).map_err(status)?;
        let mut answer = match self.write(WriteRequest::Put(convert::put(request))).await? {
            WriteResponse::Put(answer) => convert::put_done(answer),
            _ => return Err(other_kind()),
        };
        self.metrics.puts.add(1);
        self.fill(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        checks::delete_range(&request).and_then(|()| checks::size(&request)).map_err(status)?;
        let request = WriteRequest::DeleteRange(convert::delete_range(request));
        let mut answer = match self.write(request).await? {
            WriteResponse::DeleteRange(answer) => convert::deleted(answer),
            _ => return Err(other_kind()),
        };
        self.metrics.deletes.add(1);
        self.fill(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        checks::txn(&request).map_err(status)?;
        if writes(&request) {
            checks::size(&request).map_err(status)?;
        }
        let request = WriteRequest::Txn(convert::txn(request).map_err(status)?);
        let mut answer = match self.write(request).await? {
            WriteResponse::Txn(answer) => convert::txn_done(answer),
            _ => return Err(other_kind()),
        };
        self.metrics.transaction(&answer);
        self.fill(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let request = WriteRequest::Compact(request.into_inner().revision);
        match self.write(request).await? {
            WriteResponse::Compact(revision) => {
                let header = Some(self.header_at(revision));
                Ok(Response::new(CompactionResponse { header }))
            }
            _ => Err(other_kind()),
        }
    }
}

impl Member {
    async fn ranged(&self, request: RangeRequest) -> Result<RangeResponse, Error> {
        checks::range(&request)?;
        let how = match request.serializable {
            true => Consistency::Serializable,
            false => Consistency::Linearizable,
        };
        let answer = self.store.range(convert::range(request)?, how).await?;
        self.metrics.ranges.add(1);
        let mut answer = convert::ranged(answer);
        self.fill(&mut answer.header);
        Ok(answer)
    }
}

/// Whether a transaction has an operation that writes, in either branch.
fn writes(request: &TxnRequest) -> bool {
    let mut both = request.success.iter().chain(&request.failure);
    both.any(|operation: &RequestOp| match &operation.request {
        Some(Operation::RequestTxn(nested)) => writes(nested),
        Some(Operation::RequestRange(_)) | None => false,
        Some(Operation::RequestPut(_) | Operation::RequestDeleteRange(_)) => true,
    })
}

/// A range in chunks: the header, `more` and `count` are on the last only.
fn chunks(whole: RangeResponse) -> Vec<RangeResponse> {
    let mut chunks = vec![RangeResponse::default()];
    let mut bytes = 0;
    for kv in whole.kvs {
        let added = kv.encoded_len();
        if bytes > 0 && bytes + added > CHUNK_BYTES {
            chunks.push(RangeResponse::default());
            bytes = 0;
        }
        bytes += added;
        if let Some(last) = chunks.last_mut() {
            last.kvs.push(kv);
        }
    }
    if let Some(last) = chunks.last_mut() {
        (last.header, last.more, last.count) = (whole.header, whole.more, whole.count);
    }
    chunks
}
