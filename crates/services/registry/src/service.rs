//! The REST calls, as Confluent's clients make them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::answer::Refusal;
use crate::catalog::{Catalog, Change, Deleted, Mode, Version, Wanted};
use crate::keeper::Keeper;

/// The most bytes of a request: the largest schema, escaped as JSON.
pub const MAX_BODY_BYTES: usize = 9 << 20;
/// What answers are called.
const CONTENT: &str = "application/vnd.schemaregistry.v1+json";

type Shared = State<Arc<Keeper>>;
type Options = Query<HashMap<String, String>>;

/// A registry that serves. Dropping it ends that.
pub struct Serving {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Serving {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    /// Lets nobody in any more; calls under way get their time.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        }
    }
}

/// Serves a registry at an address such as `127.0.0.1:8081`, in threads of its own.
///
/// # Errors
/// What the system says of the address.
pub fn serve(keeper: Keeper, listen: &str) -> io::Result<Serving> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("registry")
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind(listen))?;
    let address = listener.local_addr()?;
    let (end, ended) = oneshot::channel::<()>();
    let service = routes(Arc::new(keeper));
    runtime.spawn(async move {
        let ended = async { drop(ended.await) };
        axum::serve(listener, service).with_graceful_shutdown(ended).await
    });
    Ok(Serving { address, end: Some(end), runtime: Some(runtime) })
}

fn routes(keeper: Arc<Keeper>) -> Router {
    Router::new()
        .route("/", get(async || reply(Ok(json!({})))))
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(look_up).delete(delete_subject))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version).delete(delete_version))
        .route("/subjects/{subject}/versions/{version}/schema", get(version_text))
        .route("/subjects/{subject}/versions/{version}/referencedby", get(nobody_refers))
        .route("/schemas/types", get(async || reply(Ok(json!(["AVRO"])))))
        .route("/schemas/ids/{id}", get(schema))
        .route("/schemas/ids/{id}/schema", get(schema_text))
        .route("/schemas/ids/{id}/subjects", get(schema_subjects))
        .route("/schemas/ids/{id}/versions", get(schema_versions))
        .route("/compatibility/subjects/{subject}/versions", post(check_all))
        .route("/compatibility/subjects/{subject}/versions/{version}", post(check_one))
        .route("/config", get(common_level).put(set_common_level).delete(unset_common_level))
        .route("/config/{subject}", get(level).put(set_level).delete(unset_level))
        .route("/mode", get(common_mode).put(set_common_mode))
        .route("/mode/{subject}", get(mode).put(set_mode).delete(unset_mode))
        .fallback(async || {
            let told = json!({ "error_code": 404, "message": "HTTP 404 Not Found" });
            typed((StatusCode::NOT_FOUND, axum::Json(told)).into_response())
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(keeper)
}

fn typed(mut response: Response) -> Response {
    let content = (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    let (name, value): (HeaderName, HeaderValue) = content;
    response.headers_mut().insert(name, value);
    response
}

fn reply(answer: Result<Value, Refusal>) -> Response {
    typed(match answer {
        Ok(value) => axum::Json(value).into_response(),
        Err(refusal) => refusal.into_response(),
    })
}

/// Looks, which waits for nothing but those who change.
async fn look(
    keeper: Arc<Keeper>,
    look: impl FnOnce(&Catalog) -> Result<Value, Refusal> + Send + 'static,
) -> Response {
    blocking(move || keeper.look(look)).await
}

/// Changes, which waits for the disk.
async fn change(
    keeper: Arc<Keeper>,
    decide: impl FnOnce(&Catalog) -> Result<(Value, Option<Change>), Refusal> + Send + 'static,
) -> Response {
    blocking(move || keeper.change(decide)).await
}

async fn blocking(work: impl FnOnce() -> Result<Value, Refusal> + Send + 'static) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    reply(done.unwrap_or_else(|error| Err(Refusal::Store(error.to_string()))))
}

/// A schema as clients send it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    schema: String,
    schema_type: Option<String>,
    #[serde(default)]
    references: Option<Vec<Value>>,
}

fn sent(body: &[u8]) -> Result<String, Refusal> {
    let sent: Sent = body_of(body)?;
    if sent.schema_type.as_deref().is_some_and(|kind| kind != "AVRO") {
        return Err(Refusal::Schema("only AVRO is kept here".to_owned()));
    }
    if sent.references.is_some_and(|others| !others.is_empty()) {
        return Err(Refusal::Schema("references to other schemas are not kept here".to_owned()));
    }
    Ok(sent.schema)
}

fn body_of<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Request(error.to_string()))
}

fn flag(options: &HashMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "true")
}

async fn subjects(State(keeper): Shared, Query(options): Options) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let prefix = options.get("subjectPrefix").map_or("", String::as_str);
        Ok(json!(catalog.subjects(deleted, prefix)))
    })
    .await
}

async fn versions(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let versions = catalog.versions(&subject, deleted)?;
        Ok(json!(versions.iter().map(|version| version.number).collect::<Vec<_>>()))
    })
    .await
}

fn described(catalog: &Catalog, subject: &str, version: &Version) -> Result<Value, Refusal> {
    Ok(json!({
        "subject": subject,
        "version": version.number,
        "id": version.id,
        "schemaType": "AVRO",
        "schema": &**catalog.text(version.id)?,
    }))
}

async fn version(
    State(keeper): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let version = catalog.version(&subject, wanted.parse()?, deleted)?;
        described(catalog, &subject, version)
    })
    .await
}

fn text_of(text: &str) -> Result<Value, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal::Store(error.to_string()))
}

async fn version_text(
    State(keeper): Shared,
    Path((subject, wanted)): Path<(String, String)>,
) -> Response {
    look(keeper, move |catalog| {
        let version = catalog.version(&subject, wanted.parse()?, Deleted::DoesNot)?;
        text_of(catalog.text(version.id)?)
    })
    .await
}

async fn nobody_refers(
    State(keeper): Shared,
    Path((subject, wanted)): Path<(String, String)>,
) -> Response {
    look(keeper, move |catalog| {
        catalog.version(&subject, wanted.parse()?, Deleted::DoesNot)?;
        Ok(json!([]))
    })
    .await
}

async fn register(State(keeper): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    change(keeper, move |catalog| {
        let (id, change) = catalog.register(&subject, &sent(&body)?)?;
        Ok((json!({ "id": id }), change))
    })
    .await
}

async fn look_up(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let version = catalog.look_up(&subject, &sent(&body)?, deleted)?;
        described(catalog, &subject, version)
    })
    .await
}

async fn delete_subject(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    let permanent = flag(&options, "permanent");
    change(keeper, move |catalog| {
        let change = catalog.deletion(&subject, None, permanent)?;
        Ok((json!(deleted(&change)), Some(change)))
    })
    .await
}

async fn delete_version(
    State(keeper): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
) -> Response {
    let permanent = flag(&options, "permanent");
    change(keeper, move |catalog| {
        let wanted: Wanted = wanted.parse()?;
        let change = catalog.deletion(&subject, Some(wanted), permanent)?;
        Ok((json!(deleted(&change).first()), Some(change)))
    })
    .await
}

fn deleted(change: &Change) -> &[u32] {
    match change {
        Change::Deleted { versions, .. } => versions,
        _ => &[],
    }
}

async fn schema(State(keeper): Shared, Path(id): Path<String>) -> Response {
    look(keeper, move |catalog| {
        Ok(json!({ "schema": &**catalog.text(number(&id)?)?, "schemaType": "AVRO" }))
    })
    .await
}

fn number(id: &str) -> Result<u32, Refusal> {
    id.parse().map_err(|_| Refusal::NoSchema)
}

async fn schema_text(State(keeper): Shared, Path(id): Path<String>) -> Response {
    look(keeper, move |catalog| text_of(catalog.text(number(&id)?)?)).await
}

async fn schema_subjects(
    State(keeper): Shared,
    Path(id): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let id = number(&id)?;
        catalog.text(id)?;
        let mut names: Vec<_> = catalog.places(id, deleted).iter().map(|place| place.0).collect();
        names.dedup();
        Ok(json!(names))
    })
    .await
}

async fn schema_versions(
    State(keeper): Shared,
    Path(id): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    look(keeper, move |catalog| {
        let id = number(&id)?;
        catalog.text(id)?;
        let places = catalog.places(id, deleted).into_iter();
        let told = places.map(|(subject, version)| json!({"subject": subject, "version": version}));
        Ok(told.collect())
    })
    .await
}

async fn check_all(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let verbose = flag(&options, "verbose");
    look(keeper, move |catalog| {
        Ok(told(catalog.objections(&subject, None, &sent(&body)?)?, verbose))
    })
    .await
}

async fn check_one(
    State(keeper): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let verbose = flag(&options, "verbose");
    look(keeper, move |catalog| {
        let wanted: Wanted = wanted.parse()?;
        Ok(told(catalog.objections(&subject, Some(wanted), &sent(&body)?)?, verbose))
    })
    .await
}

fn told(objections: Vec<String>, verbose: bool) -> Value {
    let compatible = objections.is_empty();
    if verbose {
        json!({ "is_compatible": compatible, "messages": objections })
    } else {
        json!({ "is_compatible": compatible })
    }
}

async fn common_level(State(keeper): Shared) -> Response {
    look(keeper, |catalog| Ok(json!({ "compatibilityLevel": catalog.common_level().name() }))).await
}

async fn level(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    look(keeper, move |catalog| {
        let level = match catalog.own_level(&subject) {
            None if flag(&options, "defaultToGlobal") => catalog.common_level(),
            own => own.ok_or(Refusal::NoLevel(subject))?,
        };
        Ok(json!({ "compatibilityLevel": level.name() }))
    })
    .await
}

#[derive(Deserialize)]
struct SentLevel {
    compatibility: String,
}

async fn set_common_level(State(keeper): Shared, body: Bytes) -> Response {
    put_level(keeper, None, body).await
}

async fn set_level(State(keeper): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    put_level(keeper, Some(subject), body).await
}

async fn put_level(keeper: Arc<Keeper>, subject: Option<String>, body: Bytes) -> Response {
    change(keeper, move |_| {
        let sent: SentLevel = body_of(&body)?;
        let level: helio_core::confluent::Compatibility = sent.compatibility.parse()?;
        let change = Change::Level { subject, level: Some(level.name().to_owned()) };
        Ok((json!({ "compatibility": level.name() }), Some(change)))
    })
    .await
}

async fn unset_common_level(State(keeper): Shared) -> Response {
    change(keeper, |catalog| {
        let was = json!({ "compatibilityLevel": catalog.common_level().name() });
        Ok((was, Some(Change::Level { subject: None, level: None })))
    })
    .await
}

async fn unset_level(State(keeper): Shared, Path(subject): Path<String>) -> Response {
    change(keeper, move |catalog| {
        let was = catalog.own_level(&subject).ok_or_else(|| Refusal::NoLevel(subject.clone()))?;
        let was = json!({ "compatibilityLevel": was.name() });
        Ok((was, Some(Change::Level { subject: Some(subject), level: None })))
    })
    .await
}

async fn common_mode(State(keeper): Shared) -> Response {
    look(keeper, |catalog| Ok(json!({ "mode": catalog.common_mode() }))).await
}

async fn mode(
    State(keeper): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    look(keeper, move |catalog| {
        let mode = match catalog.own_mode(&subject) {
            None if flag(&options, "defaultToGlobal") => catalog.mode(&subject),
            own => own.ok_or(Refusal::NoMode(subject))?,
        };
        Ok(json!({ "mode": mode }))
    })
    .await
}

#[derive(Deserialize)]
struct SentMode {
    mode: String,
}

async fn set_common_mode(State(keeper): Shared, body: Bytes) -> Response {
    put_mode(keeper, None, body).await
}

async fn set_mode(State(keeper): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    put_mode(keeper, Some(subject), body).await
}

async fn put_mode(keeper: Arc<Keeper>, subject: Option<String>, body: Bytes) -> Response {
    change(keeper, move |_| {
        let sent: SentMode = body_of(&body)?;
        let mode: Mode = sent.mode.parse()?;
        Ok((json!({ "mode": mode }), Some(Change::Mode { subject, mode: Some(mode) })))
    })
    .await
}

async fn unset_mode(State(keeper): Shared, Path(subject): Path<String>) -> Response {
    change(keeper, move |catalog| {
        let was = catalog.own_mode(&subject).ok_or_else(|| Refusal::NoMode(subject.clone()))?;
        Ok((json!({ "mode": was }), Some(Change::Mode { subject: Some(subject), mode: None })))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of requests, as Confluent's clients send them.
    #[test]
    fn the_bodies_of_requests() {
        let body = r#"{"schema":"{}","schemaType":"AVRO","references":[]}"#;
        assert_eq!(sent(body.as_bytes()), Ok("{}".to_owned()));
        let refused = |body: &str| sent(body.as_bytes()).unwrap_err().to_string();
        assert!(refused(&body.replace("AVRO", "JSON")).contains("only AVRO"));
        assert!(refused(&body.replace("[]", "[{}]")).contains("references"));
        let level: SentLevel = body_of(br#"{"compatibility":"FULL"}"#).unwrap();
        let mode: SentMode = body_of(br#"{"mode":"READONLY"}"#).unwrap();
        assert_eq!((level.compatibility.as_str(), mode.mode.as_str()), ("FULL", "READONLY"));
    }
}
