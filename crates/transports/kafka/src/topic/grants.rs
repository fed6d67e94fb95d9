//! Grants: access control lists that let a user read one topic, and a login if the user has none.
//!
//! The lists come first, and the login last: a generated password is returned with the grant's
//! success, or not at all. The bus's own tables are readable by all users with a grant, as names
//! and schemas are no secrets.

use std::fs::File;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helio_bus::transport::Granted;
use helio_bus::{TopicName, TransportError};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::SCHEME;
use crate::client::access::{Access, Login, Resource};
use crate::client::error::{engine, refused, refused_with};
use crate::client::link::Link;
use crate::client::names::{PRODUCERS, SCHEMAS, TOPICS};
use crate::client::options::BROKER_TIMEOUT;

/// The random bytes of a generated password.
const PASSWORD_BYTES: usize = 24;
/// The random bytes with which a password is hashed.
const SALT_BYTES: usize = 32;

/// Lets a user read a topic, and creates the user's login.
pub(crate) fn grant(
    link: &Link,
    user: &str,
    topic: &TopicName,
    password: Option<&str>,
) -> Result<Granted, TransportError> {
    let what = "grant a topic to a user";
    check_user(user)?;
    if password == Some("") {
        return Err(invalid("grant a topic with an empty password", "name another one, or none"));
    }
    let internal = [TOPICS, SCHEMAS, PRODUCERS].map(|name| link.names.internal(name));
    let mut resources = of_topic(link, topic)?;
    resources.extend(internal.map(Resource::Topic));
    let client = link.admin.client()?;
    let access = Access { client: client.inner(), timeout: BROKER_TIMEOUT };
    let failed = failed(what);
    access.allow(user, &resources).map_err(&failed)?;
    let generated = match password {
        Some(_) => None,
        None if access.has_login(user).map_err(&failed)? => return Ok(Granted::new(None)),
        None => Some(URL_SAFE_NO_PAD.encode(random::<PASSWORD_BYTES>()?)),
    };
    if let Some(password) = password.or(generated.as_deref()) {
        let salt = random::<SALT_BYTES>()?;
        access.set_login(&Login { user, password, salt: &salt }).map_err(&failed)?;
    }
    Ok(Granted::new(generated))
}

/// Ends a user's grant; returns whether there was one. Login and the bus's own tables stay.
pub(crate) fn revoke(link: &Link, user: &str, topic: &TopicName) -> Result<bool, TransportError> {
    check_user(user)?;
    let client = link.admin.client()?;
    let access = Access { client: client.inner(), timeout: BROKER_TIMEOUT };
    let removed = access.disallow(user, &of_topic(link, topic)?);
    Ok(removed.map_err(failed("revoke a topic's grant"))? > 0)
}

/// What belongs to a topic: itself, its last values, its groups.
fn of_topic(link: &Link, topic: &TopicName) -> Result<Vec<Resource>, TransportError> {
    let kafka = link.names.kafka(topic)?;
    let groups = Resource::Groups(format!("{kafka}."));
    Ok(vec![Resource::Topic(kafka), Resource::Topic(link.names.companion(topic)?), groups])
}

/// Refuses no user, and the brokers' mark for all users.
fn check_user(user: &str) -> Result<(), TransportError> {
    match user {
        "" | "*" => Err(invalid(&format!("grant a topic to the user {user:?}"), "name one user")),
        _ => Ok(()),
    }
}

fn invalid(what: &str, remedy: &str) -> TransportError {
    let transport = SCHEME.to_owned();
    TransportError::Unsupported { transport, what: what.to_owned(), remedy: remedy.to_owned() }
}

fn failed(what: &str) -> impl Fn(Code) -> TransportError + '_ {
    move |code| match code {
        Code::SecurityDisabled => invalid(
            what,
            "the brokers have no access control: set authorizer.class.name and restart them",
        ),
        Code::ClusterAuthorizationFailed => refused_with(
            what,
            code,
            "the brokers' access control lists must allow the user of this URL to ALTER the \
             cluster",
        ),
        code => refused(what, code),
    }
}

fn random<const N: usize>() -> Result<[u8; N], TransportError> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| engine("generate a password", error))?;
    Ok(bytes)
}
