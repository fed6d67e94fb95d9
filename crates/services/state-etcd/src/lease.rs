//! etcd's service Lease.

use tonic::{Request, Response, Status, Streaming};

use crate::error::status;
use crate::proto::etcdserverpb::lease_server::Lease;
use crate::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use crate::service::{Answers, Member, leader_need, other_kind, queue};
use helio_state::{WriteRequest, WriteResponse};

impl Member {
    async fn kept_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
        match self.write(WriteRequest::LeaseKeepAlive { id }).await? {
            WriteResponse::LeaseKeepAlive { revision, id, ttl } => {
                self.metrics.leases_renewed.add(u64::from(ttl > 0));
                let header = Some(self.header_at(revision));
                Ok(LeaseKeepAliveResponse { header, id, ttl })
            }
            _ => Err(other_kind()),
        }
    }
}

#[tonic::async_trait]
impl Lease for Member {
    type LeaseKeepAliveStream = Answers<LeaseKeepAliveResponse>;

    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        match self.write(WriteRequest::LeaseGrant { id, ttl }).await? {
            WriteResponse::LeaseGrant { revision, id, ttl } => {
                self.metrics.leases_granted.add(1);
                let header = Some(self.header_at(revision));
                Ok(Response::new(LeaseGrantResponse { header, id, ttl, error: String::new() }))
            }
            _ => Err(other_kind()),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.write(WriteRequest::LeaseRevoke { id: request.into_inner().id }).await?;
        self.metrics.leases_revoked.add(1);
        Ok(Response::new(LeaseRevokeResponse { header: self.header() }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Answers<LeaseKeepAliveResponse>>, Status> {
        let (sender, stream) = queue();
        let need = leader_need(&request);
        let (member, mut requests) = (self.clone(), request.into_inner());
        let mut ends = self.ends.clone();
        tokio::spawn(async move {
            loop {
                let answer = tokio::select! {
                    request = requests.message() => match request {
                        Ok(Some(LeaseKeepAliveRequest { id })) => member.kept_alive(id).await,
                        _ => return,
                    },
                    error = ends.wait(need) => Err(status(error)),
                };
                let failed = answer.is_err();
                if sender.send(answer).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(stream))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let found = self.store.lease(id).await.map_err(status)?;
        Ok(Response::new(LeaseTimeToLiveResponse {
            header: self.header(),
            id,
            ttl: found.ttl,
            granted_ttl: found.granted_ttl,
            keys: if keys { found.keys } else { Vec::new() },
        }))
    }

    async fn lease_leases(
        &self,
        _: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let ids = self.store.leases().await.map_err(status)?;
        let leases = ids.into_iter().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header: self.header(), leases }))
    }
}
