//! etcd's services Maintenance, Cluster and Auth, as far as one member has them.

use tonic::{Request, Response, Status};

use crate::ETCD_VERSION;
use crate::error::{not_served, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::auth_server::Auth;
use crate::proto::etcdserverpb::cluster_server::Cluster;
use crate::proto::etcdserverpb::maintenance_server::Maintenance;
use crate::proto::etcdserverpb::{AlarmMember, AlarmType};
use crate::service::{Answers, Filled, Member, queue};
use crate::store::SnapshotChunks;
use helio_state::{Alarm, AlarmState, Error, WriteRequest};

const FIXED_MEMBERS: &str = "members are fixed when the store is created";

impl Member {
    /// The alarms that are raised.
    pub(crate) fn alarms(&self) -> Vec<AlarmMember> {
        let state = self.store.figures();
        let raised = [(state.is_full, AlarmType::Nospace), (state.is_corrupt, AlarmType::Corrupt)];
        let raised = raised.into_iter().filter(|(is_raised, _)| *is_raised);
        let member_id = self.store.position().member_id;
        raised.map(|(_, alarm)| AlarmMember { member_id, alarm: alarm.into() }).collect()
    }

    fn described(&self) -> pb::Member {
        pb::Member {
            id: self.store.position().member_id,
            name: self.description.name.clone(),
            peer_ur_ls: self.description.peer_urls.clone(),
            client_ur_ls: self.description.client_urls.clone(),
            is_learner: false,
        }
    }

    /// Lists, raises or clears alarms; the ones that it concerned.
    async fn change_alarm(&self, request: pb::AlarmRequest) -> Result<Vec<AlarmMember>, Status> {
        let concerns = |shown: &AlarmMember| {
            request.alarm == AlarmType::None as i32 || shown.alarm == request.alarm
        };
        let state = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Activate) => AlarmState::Raised,
            Ok(AlarmAction::Deactivate) => AlarmState::Cleared,
            Ok(AlarmAction::Get) => {
                return Ok(self.alarms().into_iter().filter(concerns).collect());
            }
            Err(_) => return Ok(Vec::new()),
        };
        let alarm = match AlarmType::try_from(request.alarm) {
            Ok(AlarmType::Nospace) => Alarm::NoSpace,
            Ok(AlarmType::Corrupt) => Alarm::Corrupt,
            _ => return Ok(Vec::new()),
        };
        if ![0, self.store.position().member_id].contains(&request.member_id) {
            return Ok(Vec::new());
        }
        let before = self.alarms();
        self.write(WriteRequest::Alarm { alarm, state }).await?;
        let shown = if state == AlarmState::Raised { self.alarms() } else { before };
        Ok(shown.into_iter().filter(concerns).collect())
    }
}

#[tonic::async_trait]
impl Maintenance for Member {
    type SnapshotStream = Answers<pb::SnapshotResponse>;

    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        let alarms = self.change_alarm(request.into_inner()).await?;
        Ok(Response::new(pb::AlarmResponse { header: self.header(), alarms }))
    }

    async fn status(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let (state, figures) = (self.store.position(), self.store.figures());
        let index = u64::try_from(state.revision).unwrap_or(0);
        let mut errors = Vec::new();
        if state.leader == 0 {
            errors.push(Error::NoLeader.text().to_owned());
        }
        errors.extend(self.alarms().into_iter().map(|alarm| {
            format!("memberID:{} alarm:{} ", alarm.member_id, alarm.alarm().as_str_name())
        }));
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.header_at(state.revision)),
            version: ETCD_VERSION.to_owned(),
            db_size: i64::try_from(figures.disk_bytes).unwrap_or(i64::MAX),
            leader: state.leader,
            raft_index: index,
            raft_term: state.term,
            raft_applied_index: index,
            errors,
            db_size_in_use: i64::try_from(figures.live_bytes).unwrap_or(i64::MAX),
            is_learner: false,
            storage_version: crate::STORAGE_VERSION.to_owned(),
            db_size_quota: self.description.quota_bytes,
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    async fn defragment(
        &self,
        _: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        // Segments of the log and snapshots are removed whole: there is nothing to defragment.
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    async fn hash(
        &self,
        _: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        Err(not_served("Hash sums etcd's own file; HashKV sums the keyspace"))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        let found = self.store.hash(request.into_inner().revision).await.map_err(status)?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.header(),
            hash: found.hash,
            compact_revision: found.compact_revision,
            hash_revision: found.revision,
        }))
    }

    async fn snapshot(
        &self,
        _: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Answers<pb::SnapshotResponse>>, Status> {
        let chunks = self.store.snapshot().await.map_err(status)?;
        let (sender, stream) = queue();
        let member = self.clone();
        // Chunks are read from files.
        tokio::task::spawn_blocking(move || member.send_snapshot(chunks, &sender));
        Ok(Response::new(stream))
    }

    async fn move_leader(
        &self,
        _: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        Err(not_served("there is no second member to move the leadership to"))
    }

    async fn downgrade(
        &self,
        _: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        Err(not_served("the store's format has a version of its own, and etcd's cannot be set"))
    }
}

impl Member {
    fn send_snapshot(
        &self,
        mut chunks: Box<dyn SnapshotChunks>,
        sender: &Filled<Result<pb::SnapshotResponse, Status>>,
    ) {
        loop {
            let left = chunks.remaining_bytes();
            let answer = match chunks.next_chunk() {
                Ok(None) => return,
                Ok(Some(blob)) => Ok(pb::SnapshotResponse {
                    header: None,
                    remaining_bytes: left.saturating_sub(blob.len() as u64),
                    blob,
                    version: crate::STORAGE_VERSION.to_owned(),
                }),
                Err(error) => Err(status(error)),
            };
            let failed = answer.is_err();
            if sender.blocking_send(answer).is_err() || failed {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl Cluster for Member {
    async fn member_add(
        &self,
        _: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(not_served(FIXED_MEMBERS))
    }

    async fn member_remove(
        &self,
        _: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(not_served(FIXED_MEMBERS))
    }

    async fn member_update(
        &self,
        _: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        Err(not_served(FIXED_MEMBERS))
    }

    async fn member_list(
        &self,
        _: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let members = vec![self.described()];
        // etcd's header of this answer has no revision.
        Ok(Response::new(pb::MemberListResponse { header: Some(self.header_at(0)), members }))
    }

    async fn member_promote(
        &self,
        _: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(not_served(FIXED_MEMBERS))
    }
}

#[tonic::async_trait]
impl Auth for Member {
    async fn auth_status(
        &self,
        _: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let header = self.header();
        Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }
}
