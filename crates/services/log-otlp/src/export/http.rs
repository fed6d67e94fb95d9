//! The client of OTLP over HTTP.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use ureq::{Agent, Body};

use super::{ExportError, ExporterOptions, MAX_ANSWER_BYTES, Refused, TargetError, unanswered};
use crate::proto;
use crate::read::reason;

const PROTOBUF: &str = "application/x-protobuf";
/// The idle timeout of a connection, which is shorter than servers' timeouts.
const CONNECTION_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Client {
    agent: Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Client {
    pub(super) fn new(url: &str, options: &ExporterOptions) -> Result<Self, TargetError> {
        let wrong = |cause: String| TargetError::Url { url: url.to_owned(), cause };
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err(wrong("it has no host".to_owned()));
        }
        let whole = matches!(uri.path(), "" | "/");
        let url = if whole { format!("{}/v1/logs", url.trim_end_matches('/')) } else { url.into() };
        let headers = options.headers.iter().map(|(name, value)| {
            let wrong = || TargetError::Header(name.clone());
            let name = HeaderName::try_from(name).map_err(|_| wrong())?;
            Ok::<_, TargetError>((name, HeaderValue::try_from(value).map_err(|_| wrong())?))
        });
        let headers = headers.collect::<Result<_, _>>()?;
        let config = Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .http_status_as_error(false)
            .max_idle_age(CONNECTION_IDLE_TIMEOUT)
            .max_redirects(0)
            .user_agent("heliograph");
        Ok(Self { agent: tls(config).build().into(), url, headers })
    }

    pub(super) fn export(&self, request: &[u8]) -> Result<Refused, ExportError> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = packed.write_all(request).and_then(|()| packed.finish());
        let packed = packed.map_err(|error| ExportError::Never(error.to_string()))?;
        let mut call = self
            .agent
            .post(&self.url)
            .header("content-type", PROTOBUF)
            .header("content-encoding", "gzip");
        for (name, value) in &self.headers {
            call = call.header(name, value);
        }
        let later = |error: ureq::Error| unanswered(&self.url, &error.to_string());
        let (head, body) = call.send(&packed[..]).map_err(later)?.into_parts();
        let text = read(body).map_err(later)?;
        let is_protobuf = head.headers.get("content-type").is_some_and(|kind| kind == PROTOBUF);
        if head.status.is_success() {
            // The request was accepted, even if the response cannot be decoded.
            let answer =
                is_protobuf.then(|| proto::Response::decode(&text[..]).unwrap_or_default());
            return Ok(Refused::of(answer.unwrap_or_default()));
        }
        let said = match proto::Status::decode(&text[..]) {
            Ok(status) if is_protobuf => status.message,
            _ => String::from_utf8_lossy(&text).into_owned(),
        };
        let status = head.status.as_u16();
        let cause =
            reason(format!("{} rejected the request: HTTP {status} {}", self.url, said.trim()));
        Err(match status {
            429 | 502 | 503 | 504 => ExportError::Later { after: after(&head.headers), cause },
            413 => ExportError::TooLarge(cause),
            400 => ExportError::Refused(cause),
            _ => ExportError::Never(cause),
        })
    }
}

fn read(mut body: Body) -> Result<Vec<u8>, ureq::Error> {
    body.with_config().limit(MAX_ANSWER_BYTES as u64).read_to_vec()
}

/// The retry delay in seconds; a date is ignored.
fn after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

type Config = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// The system's OpenSSL, with the system's certificates.
#[cfg(feature = "tls")]
fn tls(config: Config) -> Config {
    use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
    let tls = TlsConfig::builder().provider(TlsProvider::NativeTls);
    config.tls_config(tls.root_certs(RootCerts::PlatformVerifier).build())
}

#[cfg(not(feature = "tls"))]
fn tls(config: Config) -> Config {
    config
}
