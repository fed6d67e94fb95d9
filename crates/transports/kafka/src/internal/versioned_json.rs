//! The values of internal topics: JSON with the version of its format.
//!
//! Format. An object whose first member is `"v"`, the version. A value of another version, or
//! without one, is an error that names the version found; its other members are not read. Values
//! without members are `true`.

use helio_bus::TransportError;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::client::error::engine;

/// The version that this release writes and reads. Increase it when an older release would
/// misunderstand a value; a member that older releases may ignore needs no new version.
const VERSION: u64 = 2;
/// A value without members.
pub(crate) const TRUE: &[u8] = b"true";

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FormatError {
    #[error("no version, expected version {VERSION}")]
    NoVersion,
    #[error("version {0}, expected version {VERSION}")]
    Version(u64),
    #[error("{0}")]
    Invalid(String),
}

impl FormatError {
    pub(crate) fn invalid(error: impl ToString) -> Self {
        Self::Invalid(error.to_string())
    }

    pub(crate) fn unknown_key() -> Self {
        Self::invalid("unknown kind of key")
    }
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u64,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: Option<u64>,
}

/// A value as JSON.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TransportError> {
    serde_json::to_vec(&Versioned { v: VERSION, value })
        .map_err(|error| engine("write a table", error))
}

/// The value that JSON contains.
pub(crate) fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, FormatError> {
    match serde_json::from_slice(json).map_err(FormatError::invalid)? {
        Version { v: Some(VERSION) } => serde_json::from_slice(json).map_err(FormatError::invalid),
        Version { v: Some(other) } => Err(FormatError::Version(other)),
        Version { v: None } => Err(FormatError::NoVersion),
    }
}

/// Checks a value without members.
pub(crate) fn check_true(json: &[u8]) -> Result<(), FormatError> {
    if json == TRUE {
        return Ok(());
    }
    decode::<IgnoredAny>(json)?;
    Err(FormatError::invalid("expected true"))
}
