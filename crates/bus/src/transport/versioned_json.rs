//! JSON on the wire, with the version of its format.
//!
//! Format. An object whose first member is `"v"`, the version. An object of another version, or
//! without one, is an error that names the version found.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version that this release writes and reads. Increase it when an older release would
/// misunderstand a message; a member that older releases may ignore needs no new version.
const VERSION: u64 = 2;

/// Why a message cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// It has no version: it was written before versions, or by another program.
    #[error("no version, expected version {VERSION}")]
    NoVersion,
    /// It has another version.
    #[error("version {0}, expected version {VERSION}")]
    Version(u64),
    /// It is not JSON, or not of the expected form.
    #[error("{0}")]
    Invalid(String),
}

impl FormatError {
    /// The message is invalid, for this reason.
    pub fn invalid(reason: impl ToString) -> Self {
        Self::Invalid(reason.to_string())
    }
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u64,
    #[serde(flatten)]
    message: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: Option<u64>,
}

/// A message as JSON. It serializes as an object.
///
/// # Errors
/// [`FormatError::Invalid`] if it does not.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FormatError> {
    serde_json::to_vec(&Versioned { v: VERSION, message }).map_err(FormatError::invalid)
}

/// The message that JSON contains.
///
/// # Errors
/// [`FormatError`].
pub fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, FormatError> {
    decode_optional(json)?.ok_or_else(|| FormatError::invalid("null instead of a message"))
}

/// The message that JSON contains; `null` is none.
///
/// # Errors
/// [`FormatError`].
pub fn decode_optional<T: DeserializeOwned>(json: &[u8]) -> Result<Option<T>, FormatError> {
    match serde_json::from_slice(json).map_err(FormatError::invalid)? {
        None => Ok(None),
        Some(Version { v: Some(VERSION) }) => {
            serde_json::from_slice(json).map(Some).map_err(FormatError::invalid)
        }
        Some(Version { v: Some(other) }) => Err(FormatError::Version(other)),
        Some(Version { v: None }) => Err(FormatError::NoVersion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_first_member_and_others_are_refused_by_name() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Message {
            at: u8,
        }
        assert_eq!(encode(&Message { at: 7 }).unwrap(), br#"{"v":2,"at":7}"#);
        assert_eq!(decode(br#"{"v":2,"at":7,"newer":1}"#), Ok(Message { at: 7 }));
        assert_eq!(decode_optional::<Message>(b"null"), Ok(None));
        let error = |json: &str| decode::<Message>(json.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(r#"{"v":1,"to":7}"#), "version 1, expected version 2");
        assert_eq!(error(r#"{"at":7}"#), "no version, expected version 2");
        for json in ["null", "", "7", r#"{"v":"2"}"#, r#"{"v":-1}"#, r#"{"v":2,"v":2,"at":7}"#] {
            assert!(matches!(decode::<Message>(json.as_bytes()), Err(FormatError::Invalid(_))));
        }
        assert_eq!(encode(&7).map_err(|error| matches!(error, FormatError::Invalid(_))), Err(true));
    }
}
