//! Plays requests on a server with etcd's API, and shows its answers without what differs between
//! any two servers.

use std::fmt::{Debug, Write as _};
use std::time::Duration;

use bytes::Bytes;
use helio_http::bytes_codec::RawCodec;
use helio_state_etcd::proto::etcdserverpb as pb;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// Answers are never waited for longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longer texts are cut.
const MOST_SHOWN: usize = 1_500;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    KeepAlive(pb::LeaseKeepAliveRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    Alarm(pb::AlarmRequest),
    Status,
    HashKv(i64),
    Defragment,
    MoveLeader(u64),
    Members,
    MemberAdd,
    MemberRemove(u64),
    Hash,
    Downgrade,
    Raw { path: &'static str, body: Bytes },
    Watch(Vec<Step>),
}

/// A step of a stream of watches.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(RequestUnion),
    /// Reads this many answers.
    Read(usize),
    Do(Box<Call>),
}

/// Plays all requests, one after the other; a line a request.
pub(crate) async fn play(url: &str, cases: &[(String, Call)]) -> String {
    let channel = Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let player = Player { channel };
    let mut lines = String::new();
    for (name, call) in cases {
        let shown = tokio::time::timeout(4 * TIMEOUT, player.call(call.clone())).await;
        let shown = shown.unwrap_or_else(|_| "no answer".to_owned());
        writeln!(lines, "{name}: {shown}").unwrap();
    }
    lines
}

struct Player {
    channel: Channel,
}

impl Player {
    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }

    fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    async fn call(&self, call: Call) -> String {
        match call {
            Call::Range(request) => shown(self.kv().range(request).await),
            Call::Put(request) => shown(self.kv().put(request).await),
            Call::Delete(request) => shown(self.kv().delete_range(request).await),
            Call::Txn(request) => shown(self.kv().txn(request).await),
            Call::Compact(request) => shown(self.kv().compact(request).await),
            Call::Grant(request) => shown(self.lease().lease_grant(request).await),
            Call::Revoke(request) => shown(self.lease().lease_revoke(request).await),
            Call::KeepAlive(request) => {
                let requests = Sent(vec![request].into_iter());
                match self.lease().lease_keep_alive(requests).await {
                    Ok(answers) => shown(answers.into_inner().message().await.map(Response::new)),
                    Err(status) => failed(&status),
                }
            }
            Call::TimeToLive(request) => shown(self.lease().lease_time_to_live(request).await),
            Call::Leases => shown(self.lease().lease_leases(pb::LeaseLeasesRequest {}).await),
            Call::Alarm(request) => shown(self.maintenance().alarm(request).await),
            Call::Status => self.status().await,
            Call::HashKv(revision) => self.hash_kv(revision).await,
            Call::Defragment => {
                shown(self.maintenance().defragment(pb::DefragmentRequest {}).await)
            }
            Call::MoveLeader(target_id) => {
                shown(self.maintenance().move_leader(pb::MoveLeaderRequest { target_id }).await)
            }
            Call::Hash => {
                let answer = self.maintenance().hash(pb::HashRequest {}).await;
                answer.map_or_else(|status| failed(&status), |_| "ok".to_owned())
            }
            Call::Downgrade => {
                shown(self.maintenance().downgrade(pb::DowngradeRequest::default()).await)
            }
            Call::Members => self.members().await,
            Call::MemberAdd => {
                let mut cluster = ClusterClient::new(self.channel.clone());
                shown(cluster.member_add(pb::MemberAddRequest::default()).await)
            }
            Call::MemberRemove(id) => {
                let mut cluster = ClusterClient::new(self.channel.clone());
                shown(cluster.member_remove(pb::MemberRemoveRequest { id }).await)
            }
            Call::Raw { path, body } => self.raw(path, body).await,
            Call::Watch(steps) => Box::pin(self.watch(steps)).await,
        }
    }

    /// What clients choose by: the version, that it has a leader, and whether sizes are given.
    async fn status(&self) -> String {
        match self.maintenance().status(pb::StatusRequest {}).await {
            Ok(answer) => {
                let status = answer.into_inner();
                let has_leader = status.leader != 0;
                let (version, learner) = (status.version, status.is_learner);
                let (sized, errors) = (status.db_size > 0, status.errors.len());
                format!(
                    "version {version} leader {has_leader} learner {learner} sized {sized} \
                     errors {errors}"
                )
            }
            Err(status) => failed(&status),
        }
    }

    async fn hash_kv(&self, revision: i64) -> String {
        match self.maintenance().hash_kv(pb::HashKvRequest { revision }).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let (compact, hash) = (answer.compact_revision, answer.hash_revision);
                format!("compact_revision {compact} hash_revision {hash}")
            }
            Err(status) => failed(&status),
        }
    }

    async fn members(&self) -> String {
        let mut cluster = ClusterClient::new(self.channel.clone());
        let request = pb::MemberListRequest { linearizable: true };
        match cluster.member_list(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let id = answer.header.unwrap_or_default().member_id;
                let member = &answer.members[0];
                let (count, is_itself) = (answer.members.len(), member.id == id);
                format!("{count} itself {is_itself} urls {}", member.client_ur_ls.len())
            }
            Err(status) => failed(&status),
        }
    }

    async fn raw(&self, path: &'static str, body: Bytes) -> String {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        let answer: Result<Response<Bytes>, _> =
            grpc.unary(tonic::Request::new(body), path, RawCodec).await;
        // Its bytes hold ids.
        answer.map_or_else(|status| failed(&status), |_| "ok".to_owned())
    }

    async fn watch(&self, steps: Vec<Step>) -> String {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut client = WatchClient::new(self.channel.clone());
        let mut answers = None;
        let mut opening = Some(Box::pin(async move { client.watch(Received(receiver)).await }));
        let mut told = String::new();
        for step in steps {
            match step {
                Step::Send(request) => {
                    sender.send(pb::WatchRequest { request_union: Some(request) }).unwrap();
                }
                Step::Read(count) => {
                    // Servers answer a stream when they answer its first request.
                    if let Some(opening) = opening.take() {
                        match opening.await {
                            Ok(opened) => answers = Some(opened.into_inner()),
                            Err(status) => return failed(&status),
                        }
                    }
                    let answers = answers.as_mut().unwrap();
                    for _ in 0..count {
                        let answer = tokio::time::timeout(TIMEOUT, answers.message()).await;
                        let answer = answer.unwrap_or(Err(Status::cancelled("no answer")));
                        write!(told, " | {}", shown(answer.map(Response::new))).unwrap();
                    }
                }
                Step::Do(call) => {
                    let shown = Box::pin(self.call(*call)).await;
                    assert!(shown.starts_with("ok"), "{shown}");
                }
            }
        }
        told
    }
}

fn shown<T: Debug>(answer: Result<Response<T>, Status>) -> String {
    match answer {
        Ok(answer) => cut(format!("ok {}", impersonal(&format!("{:?}", answer.into_inner())))),
        Err(status) => failed(&status),
    }
}

fn failed(status: &Status) -> String {
    cut(format!("{:?} {:?}", status.code(), status.message()))
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_SHOWN {
        let mut end = MOST_SHOWN;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

/// Without the ids of the cluster and the member, and the term.
fn impersonal(text: &str) -> String {
    let mut rest = text;
    let mut told = String::new();
    while let Some(at) = rest.find("ResponseHeader {") {
        let end = at + rest[at..].find('}').unwrap();
        let revision = rest[at..end].split("revision: ").nth(1).unwrap();
        let revision = revision.split(',').next().unwrap();
        write!(told, "{}rev {revision}", &rest[..at]).unwrap();
        rest = &rest[end + 1..];
    }
    told + rest
}

struct Sent<T>(std::vec::IntoIter<T>);

impl<T: Unpin> futures_core::Stream for Sent<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        std::task::Poll::Ready(self.0.next())
    }
}

/// Requests of a stream, as they come.
pub(crate) struct Received<T>(pub(crate) mpsc::UnboundedReceiver<T>);

impl<T> futures_core::Stream for Received<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
