//! What is served over HTTP beside gRPC: etcd's probes, its version, and figures.
//!
//! Source: etcd's `server/etcdserver/api/etcdhttp`.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use helio_state::{Content, RangeRequest};

use crate::proto::etcdserverpb::AlarmType;
use crate::service::Member;
use crate::store::Consistency;
use crate::{CLUSTER_VERSION, ETCD_VERSION, STORAGE_VERSION, exposition};

const LIVEZ: &[Check] = &[Check::SerializableRead];
const READYZ: &[Check] =
    &[Check::DataCorruption, Check::SerializableRead, Check::LinearizableRead, Check::NonLearner];

/// A check of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
        }
    }

    async fn run(self, member: &Member) -> Result<(), String> {
        match self {
            Check::DataCorruption if member.store.figures().is_corrupt => {
                Err("alarm activated: CORRUPT".to_owned())
            }
            Check::SerializableRead => read(member, Consistency::Serializable).await,
            Check::LinearizableRead => read(member, Consistency::Linearizable).await,
            Check::DataCorruption | Check::NonLearner => Ok(()),
        }
    }
}

/// Whether a read succeeds: the key is one that no client uses.
async fn read(member: &Member, how: Consistency) -> Result<(), String> {
    let key = Bytes::from_static(b"\0");
    let request =
        RangeRequest { key, content: Content::KeysOnly, limit: 1, ..RangeRequest::default() };
    match member.store.range(request, how).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("range error: {error}")),
    }
}

pub(crate) fn routes(member: Member) -> Router {
    let mut routes = Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/metrics", get(metrics));
    for (path, checks) in [("/livez", LIVEZ), ("/readyz", READYZ)] {
        let all = move |State(member): State<Member>, Query(query): Query<Pairs>| async move {
            let excluded = values(&query, "exclude");
            let wanted = checks.iter().filter(|check| !excluded.contains(&check.name()));
            probe(&member, wanted.copied().collect(), &query).await
        };
        routes = routes.route(path, get(all));
        for &check in checks {
            let one = move |State(member): State<Member>, Query(query): Query<Pairs>| async move {
                probe(&member, vec![check], &query).await
            };
            routes = routes.route(&format!("{path}/{}", check.name()), get(one));
        }
    }
    routes.with_state(member)
}

/// The names and values of a query, in order.
type Pairs = Vec<(String, String)>;

fn values<'a>(query: &'a Pairs, name: &str) -> Vec<&'a str> {
    let named = query.iter().filter(|(given, value)| given == name && !value.is_empty());
    named.map(|(_, value)| value.as_str()).collect()
}

async fn probe(member: &Member, checks: Vec<Check>, query: &Pairs) -> Response {
    let (mut told, mut status) = (String::new(), StatusCode::OK);
    for check in checks {
        let line = match check.run(member).await {
            Ok(()) => format!("[+]{} ok\n", check.name()),
            Err(why) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                format!("[-]{} failed: {why}\n", check.name())
            }
        };
        told += &line;
    }
    let is_verbose = query.iter().any(|(name, _)| name == "verbose");
    let body = match status {
        StatusCode::OK if is_verbose => told + "ok\n",
        StatusCode::OK => "ok\n".to_owned(),
        // As Go's `http.Error`, which ends its text with a line feed.
        _ => told + "\n",
    };
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body).into_response()
}

async fn health(State(member): State<Member>, Query(query): Query<Pairs>) -> Response {
    let excluded = values(&query, "exclude");
    let how = match values(&query, "serializable").first() {
        Some(&"true") => Consistency::Serializable,
        _ => Consistency::Linearizable,
    };
    let alarm = member.alarms().into_iter().find_map(|alarm| {
        let name = AlarmType::try_from(alarm.alarm).map_or("UNKNOWN", |a| a.as_str_name());
        (!excluded.contains(&name)).then(|| format!("ALARM {name}"))
    });
    let reason = match alarm {
        Some(alarm) => alarm,
        None if how == Consistency::Linearizable && member.store.position().leader == 0 => {
            "RAFT NO LEADER".to_owned()
        }
        None => match read(&member, how).await {
            Ok(()) => String::new(),
            Err(why) => format!("RANGE ERROR:{why}"),
        },
    };
    let is_healthy = reason.is_empty();
    let number = if is_healthy { &member.metrics.healthy } else { &member.metrics.unhealthy };
    number.add(1);
    let body = serde_json::json!({ "health": is_healthy.to_string(), "reason": reason });
    if is_healthy {
        (StatusCode::OK, body.to_string()).into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, body.to_string() + "\n").into_response()
    }
}

async fn version() -> Response {
    let body = serde_json::json!({
        "etcdserver": ETCD_VERSION,
        "etcdcluster": CLUSTER_VERSION,
        "storage": STORAGE_VERSION,
    });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn metrics(State(member): State<Member>) -> Response {
    ([(header::CONTENT_TYPE, helio_http::exposition::CONTENT_TYPE)], exposition::text(&member))
        .into_response()
}
