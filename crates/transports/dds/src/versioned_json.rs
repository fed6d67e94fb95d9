//! JSON on the wire, with the version of its format.
//!
//! Format. A message is an object whose first member is `"v"`, the version. A message of another
//! version or without one is an error that names the version found; the rest of it is not read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Result;

/// The version that this release writes and reads. Increase it when an older release would
/// misunderstand a message; a member that older releases may ignore needs no new version.
const VERSION: u64 = 2;

/// A message and its version.
#[derive(Serialize)]
struct Versioned<T> {
    v: u64,
    #[serde(flatten)]
    message: T,
}

/// A message as JSON.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { v: VERSION, message })
}

/// The message that JSON contains.
pub(crate) fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map(|Versioned { message, .. }| message)
}

/// The message that JSON contains; `null` is none.
pub(crate) fn decode_optional<T: DeserializeOwned>(json: &[u8]) -> Result<Option<T>> {
    let versioned: Option<Versioned<T>> = serde_json::from_slice(json)?;
    Ok(versioned.map(|Versioned { message, .. }| message))
}

/// Checks the version before it reads the rest, which it does not buffer.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Versioned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(VersionedVisitor(PhantomData))
    }
}

struct VersionedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for VersionedVisitor<T> {
    type Value = Versioned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object that begins with its version {VERSION}")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut members: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        if members.next_key()? != Some(Member::Version) {
            return Err(A::Error::custom(format_args!("no version, expected version {VERSION}")));
        }
        match members.next_value()? {
            VERSION => Ok(Versioned {
                v: VERSION,
                message: T::deserialize(MapAccessDeserializer::new(members))?,
            }),
            v => Err(A::Error::custom(format_args!("version {v}, expected version {VERSION}"))),
        }
    }
}

/// The name of the first member.
#[derive(PartialEq, Deserialize)]
#[serde(field_identifier)]
enum Member {
    #[serde(rename = "v")]
    Version,
    #[serde(other)]
    Other,
}
