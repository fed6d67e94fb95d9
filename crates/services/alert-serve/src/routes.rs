//! The routes: `/metrics`, `/stamps/{alert}/{stamp}`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use helio_http::exposition::{CONTENT_TYPE, Exposition};
use xxhash_rust::xxh3::xxh3_128;

use crate::exposition::{Counter, counters, exposition};
use crate::observer::Observer;
use crate::range::{Wanted, wanted};
use crate::stamps::{StampError, StampStore};

/// The content type of metrics.
/// The content type of stamps (RFC 4047).
const FITS_TYPE: &str = "image/fits";
/// A stamp never changes, so that caches may keep it for a day without asking.
const CACHING: &str = "public, max-age=86400, immutable";

/// The statuses of answers about stamps.
const STATUSES: [u16; 8] = [200, 206, 304, 404, 410, 416, 500, 503];

/// Numbers of other parts of a program.
pub type CounterSource = Box<dyn Fn() -> Vec<Counter> + Send + Sync>;

/// The state of the routes.
pub struct Service {
    observer: Arc<Observer>,
    stamps: Arc<StampStore>,
    sources: Vec<CounterSource>,
    /// Requests for stamps by status.
    requests: Mutex<BTreeMap<u16, u64>>,
}

impl Service {
    /// A service of an observed stream and its stamps.
    #[must_use]
    pub fn new(observer: Arc<Observer>, stamps: StampStore) -> Self {
        let (stamps, sources) = (Arc::new(stamps), Vec::new());
        // Each is there from the start, so that its first increase is seen.
        let requests = Mutex::new(STATUSES.map(|status| (status, 0)).into());
        Self { observer, stamps, sources, requests }
    }

    /// Adds numbers to the metrics, such as those of the filter service.
    #[must_use]
    pub fn with(mut self, source: CounterSource) -> Self {
        self.sources.push(source);
        self
    }

    fn metrics(&self) -> String {
        let text = exposition(
            &self.observer.observation(),
            &self.sources.iter().flat_map(|s| s()).collect::<Vec<_>>(),
        );
        let name = "helio_alerts_stamp_requests_total";
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = requests.iter().map(|(status, count)| (status.to_string(), *count));
        let mut stamps = Exposition::default();
        stamps.each(name, "counter", "Requests for stamps, by status.", "status", requests);
        text + &stamps.into_text()
    }

    fn count(&self, status: StatusCode) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(status.as_u16()).or_default() += 1;
    }
}

/// The routes of a service, for a server or a gateway.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/stamps/{alert}/{stamp}", get(stamp))
        .with_state(service)
}

/// The route `/metrics` of numbers alone, without a stream.
pub fn counters_router(source: CounterSource) -> Router {
    let source = Arc::new(source);
    let answer = move || {
        let text = counters(&source());
        async { ([(header::CONTENT_TYPE, CONTENT_TYPE)], text) }
    };
    Router::new().route("/metrics", get(answer))
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    // Numbers of other parts may wait for the bus.
    match tokio::task::spawn_blocking(move || service.metrics()).await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn stamp(
    State(service): State<Arc<Service>>,
    Path((alert, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let response = match alert.parse() {
        Ok(alert) => {
            let stamps = Arc::clone(&service.stamps);
            // It waits for the bus.
            let found = tokio::task::spawn_blocking(move || stamps.stamp(alert, &name)).await;
            found.map_or_else(
                |error| refusal(&StampError::Unavailable(error.to_string())),
                |found| found.map_or_else(|error| refusal(&error), |file| answer(&file, &headers)),
            )
        }
        Err(_) => refusal(&StampError::Unknown(format!("{alert:?} is no identifier"))),
    };
    service.count(response.status());
    response
}

fn refusal(error: &StampError) -> Response {
    let (status, text) = match error {
        StampError::Unknown(text) => (StatusCode::NOT_FOUND, text),
        StampError::Removed(text) => (StatusCode::GONE, text),
        StampError::Damaged(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
        StampError::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
    };
    (status, format!("{text}\n")).into_response()
}

/// Answers a request for a file: all of it, a range, or that it has not changed.
fn answer(file: &Bytes, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:032x}\"", xxh3_128(file));
    let given = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let has_tag = |list: &str| {
        list.split(',')
            .any(|one| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == tag)
    };
    let is_known = given(header::IF_NONE_MATCH).is_some_and(has_tag);
    // A range of another version would be put together with this one.
    let is_same = given(header::IF_RANGE).is_none_or(|other| other == tag);
    let range = given(header::RANGE).filter(|_| is_same);
    let mut response = match wanted(range, file.len()) {
        _ if is_known => StatusCode::NOT_MODIFIED.into_response(),
        Wanted::Whole => file.clone().into_response(),
        Wanted::Part(part) => {
            let of = format!("bytes {}-{}/{}", part.start, part.end - 1, file.len());
            let range = [(header::CONTENT_RANGE, of)];
            (StatusCode::PARTIAL_CONTENT, range, file.slice(part)).into_response()
        }
        Wanted::Unsatisfiable => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{}", file.len()))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, range).into_response();
        }
    };
    let fixed = [
        (header::CONTENT_TYPE, FITS_TYPE),
        (header::ACCEPT_RANGES, "bytes"),
        (header::CACHE_CONTROL, CACHING),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(HeaderName, &str)]) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a header")));
        answer(&Bytes::from_static(b"0123456789"), &headers.collect())
    }

    fn of<'a>(response: &'a Response, name: &HeaderName) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
    }

    #[test]
    fn ranges_and_tags_are_answered() {
        let whole = asked(&[]);
        let tag = of(&whole, &header::ETAG).to_owned();
        assert_eq!((whole.status(), tag.len()), (StatusCode::OK, 34));
        assert_eq!(of(&whole, &header::CONTENT_TYPE), "image/fits");
        let part = asked(&[(header::RANGE, "bytes=2-4")]);
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(of(&part, &header::CONTENT_RANGE), "bytes 2-4/10");
        let behind = asked(&[(header::RANGE, "bytes=10-")]);
        assert_eq!(behind.status(), StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(of(&behind, &header::CONTENT_RANGE), "bytes */10");
        let known = asked(&[(header::IF_NONE_MATCH, &format!("\"other\", W/{tag}"))]);
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        let changed = asked(&[(header::RANGE, "bytes=2-4"), (header::IF_RANGE, "\"other\"")]);
        assert_eq!(changed.status(), StatusCode::OK);
        let same = asked(&[(header::RANGE, "bytes=2-4"), (header::IF_RANGE, &tag)]);
        assert_eq!(same.status(), StatusCode::PARTIAL_CONTENT);
    }

    #[test]
    fn refusals_have_their_status() {
        for (error, status) in [
            (StampError::Unknown(String::new()), 404),
            (StampError::Removed(String::new()), 410),
            (StampError::Damaged(String::new()), 500),
            (StampError::Unavailable(String::new()), 503),
        ] {
            assert_eq!(refusal(&error).status().as_u16(), status, "{error:?}");
        }
    }
}
