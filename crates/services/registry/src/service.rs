//! The REST calls of Confluent's clients.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use helio_http::{Limits, Server};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::catalog::{Catalog, Change, Deleted, Force, Given, Mode, Version, VersionSelector};
use crate::refusal::Refusal;
use crate::registry::Registry;

/// The most bytes of a request: the largest schema, escaped as JSON.
pub const MAX_BODY_BYTES: usize = 9 << 20;
/// The content type of responses.
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

type Shared = State<Arc<Registry>>;
type Options = Query<HashMap<String, String>>;

/// Serves a registry at an address such as `127.0.0.1:8081`, in its own threads.
///
/// # Errors
/// If the system refuses the address.
pub fn serve(registry: Registry, listen: &str) -> io::Result<Server> {
    let limits = Limits { body_bytes: MAX_BODY_BYTES, ..Limits::default() };
    Ok(helio_http::listen(listen, "registry", limits)?.serve(routes(Arc::new(registry))))
}

fn routes(registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/", get(async || reply(Ok(json!({})))))
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(look_up).delete(delete_subject))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version).delete(delete_version))
        .route("/subjects/{subject}/versions/{version}/schema", get(version_text))
        .route("/subjects/{subject}/versions/{version}/referencedby", get(referenced_by))
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
            let body = json!({ "error_code": 404, "message": "HTTP 404 Not Found" });
            typed((StatusCode::NOT_FOUND, axum::Json(body)).into_response())
        })
        .with_state(registry)
}

fn typed(mut response: Response) -> Response {
    let content = (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    let (name, value): (HeaderName, HeaderValue) = content;
    response.headers_mut().insert(name, value);
    response
}

fn reply(result: Result<Value, Refusal>) -> Response {
    typed(match result {
        Ok(value) => axum::Json(value).into_response(),
        Err(refusal) => refusal.into_response(),
    })
}

/// Answers a query, which waits for changes in progress at most.
async fn query(
    registry: Arc<Registry>,
    query: impl FnOnce(&Catalog) -> Result<Value, Refusal> + Send + 'static,
) -> Response {
    blocking(move || registry.query(query)).await
}

/// Makes a change, which waits for the disk.
async fn change(
    registry: Arc<Registry>,
    decide: impl FnOnce(&Catalog) -> Result<(Value, Option<Change>), Refusal> + Send + 'static,
) -> Response {
    blocking(move || registry.change(decide)).await
}

async fn blocking(work: impl FnOnce() -> Result<Value, Refusal> + Send + 'static) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    reply(done.unwrap_or_else(|error| Err(Refusal::Store(error.to_string()))))
}

/// A schema in a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaRequest {
    schema: String,
    schema_type: Option<String>,
    #[serde(default)]
    references: Option<Vec<Value>>,
    /// In import mode: the schema's identifier. Clients send -1 for none, like 0 as the version.
    #[serde(default)]
    id: Option<i64>,
    #[serde(default)]
    version: Option<i64>,
}

fn schema_of(body: &[u8]) -> Result<String, Refusal> {
    Ok(request_of(body)?.schema)
}

/// The schema of a request, and the numbers that it gives to it.
fn registration_of(body: &[u8]) -> Result<(String, Given), Refusal> {
    let request = request_of(body)?;
    let number = |number: Option<i64>| match number {
        None | Some(-1 | 0) => Ok(None),
        Some(number) => match u32::try_from(number) {
            Ok(number @ 1..=0x7fff_ffff) => Ok(Some(number)),
            _ => Err(Refusal::Request(format!("{number} is no id and no version of a schema"))),
        },
    };
    let given = Given { id: number(request.id)?, version: number(request.version)? };
    Ok((request.schema, given))
}

fn request_of(body: &[u8]) -> Result<SchemaRequest, Refusal> {
    let request: SchemaRequest = body_of(body)?;
    if request.schema_type.as_deref().is_some_and(|kind| kind != "AVRO") {
        return Err(Refusal::Schema("only AVRO is supported".to_owned()));
    }
    if request.references.as_ref().is_some_and(|others| !others.is_empty()) {
        return Err(Refusal::Schema("references to other schemas are not supported".to_owned()));
    }
    Ok(request)
}

fn body_of<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Request(error.to_string()))
}

fn flag(options: &HashMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "true")
}

async fn subjects(State(registry): Shared, Query(options): Options) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let prefix = options.get("subjectPrefix").map_or("", String::as_str);
        Ok(json!(catalog.subjects(deleted, prefix)))
    })
    .await
}

async fn versions(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let versions = catalog.versions(&subject, deleted)?;
        Ok(json!(versions.iter().map(|version| version.number).collect::<Vec<_>>()))
    })
    .await
}

fn describe(catalog: &Catalog, subject: &str, version: &Version) -> Result<Value, Refusal> {
    Ok(json!({
        "subject": subject,
        "version": version.number,
        "id": version.id,
        "schemaType": "AVRO",
        "schema": &**catalog.text(version.id)?,
    }))
}

async fn version(
    State(registry): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let version = catalog.version(&subject, wanted.parse()?, deleted)?;
        describe(catalog, &subject, version)
    })
    .await
}

fn text_of(text: &str) -> Result<Value, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal::Store(error.to_string()))
}

async fn version_text(
    State(registry): Shared,
    Path((subject, wanted)): Path<(String, String)>,
) -> Response {
    query(registry, move |catalog| {
        let version = catalog.version(&subject, wanted.parse()?, Deleted::Exclude)?;
        text_of(catalog.text(version.id)?)
    })
    .await
}

async fn referenced_by(
    State(registry): Shared,
    Path((subject, wanted)): Path<(String, String)>,
) -> Response {
    query(registry, move |catalog| {
        catalog.version(&subject, wanted.parse()?, Deleted::Exclude)?;
        Ok(json!([]))
    })
    .await
}

async fn register(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    change(registry, move |catalog| {
        let (schema, given) = registration_of(&body)?;
        let (id, change) = catalog.register(&subject, &schema, given)?;
        Ok((json!({ "id": id }), change))
    })
    .await
}

async fn look_up(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let version = catalog.look_up(&subject, &schema_of(&body)?, deleted)?;
        describe(catalog, &subject, version)
    })
    .await
}

async fn delete_subject(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    let permanent = flag(&options, "permanent");
    change(registry, move |catalog| {
        let change = catalog.deletion(&subject, None, permanent)?;
        Ok((json!(deleted(&change)), Some(change)))
    })
    .await
}

async fn delete_version(
    State(registry): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
) -> Response {
    let permanent = flag(&options, "permanent");
    change(registry, move |catalog| {
        let wanted: VersionSelector = wanted.parse()?;
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

async fn schema(State(registry): Shared, Path(id): Path<String>) -> Response {
    query(registry, move |catalog| {
        Ok(json!({ "schema": &**catalog.text(number(&id)?)?, "schemaType": "AVRO" }))
    })
    .await
}

fn number(id: &str) -> Result<u32, Refusal> {
    id.parse().map_err(|_| Refusal::NoSchema)
}

async fn schema_text(State(registry): Shared, Path(id): Path<String>) -> Response {
    query(registry, move |catalog| text_of(catalog.text(number(&id)?)?)).await
}

async fn schema_subjects(
    State(registry): Shared,
    Path(id): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let id = number(&id)?;
        catalog.text(id)?;
        let mut names: Vec<_> = catalog.usages(id, deleted).iter().map(|usage| usage.0).collect();
        names.dedup();
        Ok(json!(names))
    })
    .await
}

async fn schema_versions(
    State(registry): Shared,
    Path(id): Path<String>,
    Query(options): Options,
) -> Response {
    let deleted = Deleted::from(flag(&options, "deleted"));
    query(registry, move |catalog| {
        let id = number(&id)?;
        catalog.text(id)?;
        let usages = catalog.usages(id, deleted).into_iter();
        let all = usages.map(|(subject, version)| json!({"subject": subject, "version": version}));
        Ok(all.collect())
    })
    .await
}

async fn check_all(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let verbose = flag(&options, "verbose");
    query(registry, move |catalog| {
        Ok(compatibility_reply(catalog.objections(&subject, None, &schema_of(&body)?)?, verbose))
    })
    .await
}

async fn check_one(
    State(registry): Shared,
    Path((subject, wanted)): Path<(String, String)>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    let verbose = flag(&options, "verbose");
    query(registry, move |catalog| {
        let wanted: VersionSelector = wanted.parse()?;
        Ok(compatibility_reply(
            catalog.objections(&subject, Some(wanted), &schema_of(&body)?)?,
            verbose,
        ))
    })
    .await
}

fn compatibility_reply(objections: Vec<String>, verbose: bool) -> Value {
    let compatible = objections.is_empty();
    if verbose {
        json!({ "is_compatible": compatible, "messages": objections })
    } else {
        json!({ "is_compatible": compatible })
    }
}

async fn common_level(State(registry): Shared) -> Response {
    query(registry, |catalog| Ok(json!({ "compatibilityLevel": catalog.common_level().name() })))
        .await
}

async fn level(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    query(registry, move |catalog| {
        let level = match catalog.own_level(&subject) {
            None if flag(&options, "defaultToGlobal") => catalog.common_level(),
            own => own.ok_or(Refusal::NoLevel(subject))?,
        };
        Ok(json!({ "compatibilityLevel": level.name() }))
    })
    .await
}

#[derive(Deserialize)]
struct LevelRequest {
    compatibility: String,
}

async fn set_common_level(State(registry): Shared, body: Bytes) -> Response {
    put_level(registry, None, body).await
}

async fn set_level(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    put_level(registry, Some(subject), body).await
}

async fn put_level(registry: Arc<Registry>, subject: Option<String>, body: Bytes) -> Response {
    change(registry, move |_| {
        let request: LevelRequest = body_of(&body)?;
        let level: helio_core::confluent::Compatibility = request.compatibility.parse()?;
        let change = Change::Level { subject, level: Some(level.name().to_owned()) };
        Ok((json!({ "compatibility": level.name() }), Some(change)))
    })
    .await
}

async fn unset_common_level(State(registry): Shared) -> Response {
    change(registry, |catalog| {
        let was = json!({ "compatibilityLevel": catalog.common_level().name() });
        Ok((was, Some(Change::Level { subject: None, level: None })))
    })
    .await
}

async fn unset_level(State(registry): Shared, Path(subject): Path<String>) -> Response {
    change(registry, move |catalog| {
        let was = catalog.own_level(&subject).ok_or_else(|| Refusal::NoLevel(subject.clone()))?;
        let was = json!({ "compatibilityLevel": was.name() });
        Ok((was, Some(Change::Level { subject: Some(subject), level: None })))
    })
    .await
}

async fn common_mode(State(registry): Shared) -> Response {
    query(registry, |catalog| Ok(json!({ "mode": catalog.common_mode() }))).await
}

async fn mode(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
) -> Response {
    query(registry, move |catalog| {
        let mode = match catalog.own_mode(&subject) {
            None if flag(&options, "defaultToGlobal") => catalog.mode(&subject),
            own => own.ok_or(Refusal::NoMode(subject))?,
        };
        Ok(json!({ "mode": mode }))
    })
    .await
}

#[derive(Deserialize)]
struct ModeRequest {
    mode: String,
}

async fn set_common_mode(
    State(registry): Shared,
    Query(options): Options,
    body: Bytes,
) -> Response {
    put_mode(registry, None, options, body).await
}

async fn set_mode(
    State(registry): Shared,
    Path(subject): Path<String>,
    Query(options): Options,
    body: Bytes,
) -> Response {
    put_mode(registry, Some(subject), options, body).await
}

async fn put_mode(
    registry: Arc<Registry>,
    subject: Option<String>,
    options: HashMap<String, String>,
    body: Bytes,
) -> Response {
    change(registry, move |catalog| {
        let request: ModeRequest = body_of(&body)?;
        let mode: Mode = request.mode.parse()?;
        let force = Force::from(flag(&options, "force"));
        Ok((json!({ "mode": mode }), Some(catalog.mode_change(subject, mode, force)?)))
    })
    .await
}

async fn unset_mode(State(registry): Shared, Path(subject): Path<String>) -> Response {
    change(registry, move |catalog| {
        let was = catalog.own_mode(&subject).ok_or_else(|| Refusal::NoMode(subject.clone()))?;
        Ok((json!({ "mode": was }), Some(Change::Mode { subject: Some(subject), mode: None })))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of requests from Confluent's clients.
    #[test]
    fn the_bodies_of_requests() {
        let body = r#"{"schema":"{}","schemaType":"AVRO","references":[]}"#;
        assert_eq!(schema_of(body.as_bytes()), Ok("{}".to_owned()));
        let given = |numbers: &str| {
            let body = body.replacen('{', &format!("{{{numbers},"), 1);
            registration_of(body.as_bytes()).map(|(_, given)| (given.id, given.version))
        };
        assert_eq!(given(r#""id":900,"version":3"#), Ok((Some(900), Some(3))));
        assert_eq!(given(r#""id":-1,"version":0"#), Ok((None, None)));
        assert!(given(r#""id":-7"#).is_err() && given(r#""id":2147483648"#).is_err());
        let refused = |body: &str| schema_of(body.as_bytes()).unwrap_err().to_string();
        assert!(refused(&body.replace("AVRO", "JSON")).contains("only AVRO"));
        assert!(refused(&body.replace("[]", "[{}]")).contains("references"));
        let level: LevelRequest = body_of(br#"{"compatibility":"FULL"}"#).unwrap();
        let mode: ModeRequest = body_of(br#"{"mode":"READONLY"}"#).unwrap();
        assert_eq!((level.compatibility.as_str(), mode.mode.as_str()), ("FULL", "READONLY"));
    }
}
