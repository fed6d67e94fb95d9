//! A client of a schema registry with Confluent's API, over HTTP. Every call blocks, for at most
//! [`REQUEST_TIMEOUT`].

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use helio_core::confluent::Compatibility;
use serde_json::{Value, json};
use thiserror::Error;
use ureq::http::{Request, StatusCode};
use ureq::{Agent, Body};

/// The maximum duration of a call.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of an answer: the largest schema, as a JSON string.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// How long an idle connection is kept: shorter than servers keep theirs.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// The media type of the registry's answers.
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// Why a call to a registry failed.
#[derive(Debug, Clone, Error)]
pub enum RegistryError {
    /// It cannot be reached, or has an internal error: a retry may succeed.
    #[error("the schema registry {url} does not answer: {cause}")]
    Unreachable {
        /// Its URL.
        url: String,
        /// The cause.
        cause: String,
    },
    /// It rejected the request.
    #[error(
        "the schema registry {url} rejected the request: {message} (HTTP {status}, code {code})"
    )]
    Refused {
        /// Its URL.
        url: String,
        /// The HTTP status: 401 and 403 for missing rights, 404 for a missing item, 409 for an
        /// incompatible schema.
        status: u16,
        /// The registry's own code, such as `42201` for an invalid schema; the status if it has
        /// none.
        code: u64,
        /// The registry's message.
        message: String,
    },
}

impl RegistryError {
    /// Whether the requested item does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// Options for reaching a registry, beside its URL.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// `USER:PASSWORD`, sent with each call.
    pub user_info: Option<String>,
    /// A file of PEM certificates to trust instead of the system's.
    pub authority: Option<PathBuf>,
}

/// A registry's client.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    urls: Vec<String>,
    authorization: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without credentials.
        f.debug_struct("Client").field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client of the registry at a URL, or at several URLs of one registry, separated by
    /// commas. No request is sent yet.
    ///
    /// # Errors
    /// A message if the URL or the options are invalid.
    pub fn new(urls: &str, options: ClientOptions) -> Result<Self, String> {
        let urls: Vec<_> =
            urls.split(',').map(|url| url.trim_end_matches('/').to_owned()).collect();
        for url in &urls {
            check_url(url)?;
        }
        let authorization = options.user_info.map(|user| {
            if user.contains(':') {
                Ok(format!("Basic {}", BASE64.encode(user)))
            } else {
                Err("basic.auth.user.info is written USER:PASSWORD")
            }
        });
        let config = Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .max_idle_age(IDLE_CONNECTION_TIMEOUT)
            .user_agent("heliograph");
        let config = tls(config, options.authority)?;
        Ok(Self { agent: config.build().into(), urls, authorization: authorization.transpose()? })
    }

    /// The registry's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.urls[0]
    }

    /// Registers an Avro schema under a subject and returns its number. Registering it again
    /// returns the same number.
    ///
    /// # Errors
    /// [`RegistryError`], with status 409 if it is incompatible with the subject's others.
    pub fn register(&self, subject: &str, text: &str) -> Result<u32, RegistryError> {
        let path = format!("/subjects/{}/versions", escaped(subject));
        let answer = self.call("POST", &path, Some(&json!({ "schema": text })))?;
        self.number(&answer["id"], &answer)
    }

    /// The number of one of a subject's schemas.
    ///
    /// # Errors
    /// [`RegistryError`]; [`RegistryError::is_missing`] if the subject does not have it.
    pub fn look_up(&self, subject: &str, text: &str) -> Result<u32, RegistryError> {
        let path = format!("/subjects/{}", escaped(subject));
        let answer = self.call("POST", &path, Some(&json!({ "schema": text })))?;
        self.number(&answer["id"], &answer)
    }

    /// The text of an Avro schema by its number; `None` if it is of another kind, or refers to
    /// others.
    ///
    /// # Errors
    /// [`RegistryError`]; [`RegistryError::is_missing`] if there is none of that number.
    pub fn schema(&self, number: u32) -> Result<Option<String>, RegistryError> {
        let answer = self.call("GET", &format!("/schemas/ids/{number}"), None)?;
        let is_avro = answer["schemaType"].as_str().is_none_or(|kind| kind == "AVRO");
        let refers = answer["references"].as_array().is_some_and(|others| !others.is_empty());
        let text = answer["schema"].as_str().ok_or_else(|| self.odd(&answer))?;
        Ok((is_avro && !refers).then(|| text.to_owned()))
    }

    /// All subjects.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn subjects(&self) -> Result<Vec<String>, RegistryError> {
        let answer = self.call("GET", "/subjects", None)?;
        let subjects = answer.as_array().ok_or_else(|| self.odd(&answer))?;
        Ok(subjects.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }

    /// The compatibility level of a subject, `None` if it has none of its own; or, without a
    /// subject, the global one.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn compatibility(
        &self,
        subject: Option<&str>,
    ) -> Result<Option<Compatibility>, RegistryError> {
        match self.call("GET", &config(subject), None) {
            Ok(answer) => self.level(&answer, "compatibilityLevel").map(Some),
            Err(error) if error.is_missing() && subject.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the compatibility level of a subject, or the global one.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn set_compatibility(
        &self,
        subject: Option<&str>,
        level: Compatibility,
    ) -> Result<(), RegistryError> {
        let body = json!({ "compatibility": level.name() });
        let answer = self.call("PUT", &config(subject), Some(&body))?;
        self.level(&answer, "compatibility").map(drop)
    }

    fn level(&self, answer: &Value, name: &str) -> Result<Compatibility, RegistryError> {
        let level = answer[name].as_str().and_then(|word| word.parse().ok());
        level.ok_or_else(|| self.odd(answer))
    }

    fn number(&self, value: &Value, answer: &Value) -> Result<u32, RegistryError> {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.odd(answer))
    }

    fn odd(&self, answer: &Value) -> RegistryError {
        let told: String = answer.to_string().chars().take(200).collect();
        self.unreachable(self.url(), format!("its answer is not a registry's: {told}"))
    }

    fn unreachable(&self, url: &str, cause: String) -> RegistryError {
        RegistryError::Unreachable { url: url.to_owned(), cause }
    }

    /// Sends a request; tries the next URL if one does not answer.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, RegistryError> {
        let mut failed = None;
        for url in &self.urls {
            match self.call_one(url, (method, path), body) {
                Err(error @ RegistryError::Unreachable { .. }) => failed = Some(error),
                answered => return answered,
            }
        }
        Err(failed.unwrap_or_else(|| self.unreachable("", "no URL".to_owned())))
    }

    fn call_one(
        &self,
        url: &str,
        (method, path): (&str, &str),
        body: Option<&Value>,
    ) -> Result<Value, RegistryError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{url}{path}"))
            .header("Accept", format!("{CONTENT_TYPE}, application/json"));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        if body.is_some() {
            request = request.header("Content-Type", CONTENT_TYPE);
        }
        let trouble = |cause: String| self.unreachable(url, cause);
        let wrong = |error: &dyn fmt::Display| trouble(error.to_string());
        let answer = match body {
            Some(body) => {
                let request = request.body(body.to_string()).map_err(|error| wrong(&error))?;
                self.agent.run(request)
            }
            None => self.agent.run(request.body(()).map_err(|error| wrong(&error))?),
        };
        let answer = answer.map_err(|error| trouble(explained(&error)))?;
        let (head, mut body) = answer.into_parts();
        let text = read(&mut body).map_err(|error| wrong(&error))?;
        let value = serde_json::from_str::<Value>(&text);
        if head.status.is_success() {
            return value.map_err(|error| trouble(format!("its answer is not JSON: {error}")));
        }
        Err(refusal(url, head.status, value.unwrap_or_default()))
    }
}

fn read(body: &mut Body) -> Result<String, ureq::Error> {
    body.with_config().limit(MAX_ANSWER_BYTES).read_to_string()
}

/// The cause of a missing answer, with a remedy where OpenSSL's message has none. OpenSSL's
/// messages are the same in all versions.
fn explained(error: &ureq::Error) -> String {
    let told = error.to_string();
    if told.contains("certificate verify failed") {
        return format!(
            "its certificate cannot be trusted: {told}; it must be valid now, for this host, and \
             from an authority in schema.registry.ssl.ca.location"
        );
    }
    if told.contains("wrong version number") {
        return format!("it does not speak TLS: {told}; is it http://?");
    }
    told
}

/// A registry's error answer.
fn refusal(url: &str, status: StatusCode, told: Value) -> RegistryError {
    let (url, message) = (url.to_owned(), told["message"].as_str());
    let words = || status.canonical_reason().unwrap_or("no reason").to_owned();
    let message = message.map_or_else(words, str::to_owned);
    if status.is_server_error() {
        return RegistryError::Unreachable { url, cause: format!("{message} (HTTP {status})") };
    }
    let code = told["error_code"].as_u64().unwrap_or(status.as_u16().into());
    let message = match status.as_u16() {
        401 | 403 => format!("{message}; check basic.auth.user.info"),
        _ => message,
    };
    RegistryError::Refused { url, status: status.as_u16(), code, message }
}

fn check_url(url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    if !["http", "https"].contains(&scheme) || host.is_empty() || url.contains(['?', '#', '@', ' '])
    {
        return Err("the URL of a registry is http://HOST:PORT, or several with commas between; \
                    users go into basic.auth.user.info"
            .to_owned());
    }
    if scheme == "https" && !cfg!(feature = "tls") {
        return Err("this program was built without TLS (feature tls)".to_owned());
    }
    Ok(())
}

type Config = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// With librdkafka's TLS, the system's OpenSSL, so that there is only one.
#[cfg(feature = "tls")]
fn tls(config: Config, authority: Option<PathBuf>) -> Result<Config, String> {
    use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
    let roots = match authority {
        None => RootCerts::PlatformVerifier,
        Some(path) => {
            let wrong = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
            let pem = std::fs::read(&path).map_err(|error| wrong(&error))?;
            let items = parse_pem(&pem).collect::<Result<Vec<_>, _>>();
            let items = items.map_err(|error| wrong(&error))?;
            let certificates: Vec<Certificate<'static>> = items
                .into_iter()
                .filter_map(|item| match item {
                    PemItem::Certificate(certificate) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
            RootCerts::from(certificates)
        }
    };
    let tls = TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(roots);
    Ok(config.tls_config(tls.build()))
}

#[cfg(not(feature = "tls"))]
fn tls(config: Config, _: Option<PathBuf>) -> Result<Config, String> {
    Ok(config)
}

fn config(subject: Option<&str>) -> String {
    subject.map_or_else(|| "/config".to_owned(), |name| format!("/config/{}", escaped(name)))
}

/// A path segment: everything except letters, digits and `-._~` is escaped (RFC 3986).
fn escaped(segment: &str) -> String {
    let mut path = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_escaped() {
        assert_eq!(escaped("lsst.sal.X-value"), "lsst.sal.X-value");
        assert_eq!(escaped("a/b c%é"), "a%2Fb%20c%25%C3%A9");
    }

    #[test]
    fn a_password_is_not_printed() {
        let options = ClientOptions { user_info: Some("me:secret".into()), authority: None };
        let client = Client::new("http://r:1,http://s/", options).unwrap();
        assert_eq!(client.urls, ["http://r:1", "http://s"]);
        assert!(!format!("{client:?}").contains("secret"));
    }
}
