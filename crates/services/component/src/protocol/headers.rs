//! Headers beside the payload of commands and acknowledgements.
//!
//! | on | name | value |
//! |---|---|---|
//! | commands, `control` | `helio-caller` | the caller, UTF-8, 1 to 256 bytes |
//! | | `helio-expiry` | TAI nanoseconds, signed, little-endian, 8 bytes |
//! | | `helio-key` | the idempotency key, UTF-8, 1 to 128 bytes |
//! | | `helio-instance` | the incarnation of the lease's holder, unsigned, little-endian, 8 bytes |
//! | | `helio-signature` | the caller's [signature](super::SignedCommand), 64 bytes |
//! | `control` | `helio-schema` | the identity of the payload's schema, little-endian, 8 bytes |
//! | acknowledgements | `helio-progress` | 0 to 1, IEEE 754 double, little-endian, 8 bytes |
//! | | `helio-result` | the typed result, JSON in UTF-8 |
//!
//! Headers of other names are ignored.

use helio_core::{SchemaId, Tai};
use thiserror::Error;

use super::Signature;

/// The caller of a command.
pub const HEADER_CALLER: &str = "helio-caller";
/// The time after which a command must not run.
pub const HEADER_EXPIRY: &str = "helio-expiry";
/// The instance of the component that a command is for.
pub const HEADER_INSTANCE: &str = "helio-instance";
/// The idempotency key of a command.
pub const HEADER_KEY: &str = "helio-key";
/// The signature of a command by its caller.
pub const HEADER_SIGNATURE: &str = "helio-signature";
/// The schema of the command in a sample of `control`.
pub const HEADER_SCHEMA: &str = "helio-schema";
/// The part of a command that is done.
pub const HEADER_PROGRESS: &str = "helio-progress";
/// The typed result of a command.
pub const HEADER_RESULT: &str = "helio-result";

/// The longest name of a caller, in bytes: a user, a host and a component's name fit.
pub const MAX_CALLER_BYTES: usize = 256;
/// The longest idempotency key, in bytes: a UUID, or a name with a date, fits.
pub const MAX_KEY_BYTES: usize = 128;
/// The longest typed result, in bytes: it fits the 4096 bytes of headers beside the others.
pub const MAX_TYPED_BYTES: usize = 3_900;

/// An invalid header of ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the header {name} has {bytes} bytes that are not {expected}")]
pub struct HeaderError {
    /// The header.
    pub name: &'static str,
    /// Its length.
    pub bytes: usize,
    /// The expected value.
    pub expected: &'static str,
}

/// The metadata of a command beside its values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallHeaders {
    /// The caller, 1 to [`MAX_CALLER_BYTES`] bytes.
    pub caller: Option<String>,
    /// The time after which it must not run.
    pub expiry: Option<Tai>,
    /// The idempotency key, 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: Option<String>,
    /// On `control`, the schema of the command to validate; the default is the component's own.
    pub schema: Option<SchemaId>,
    /// The incarnation of the instance that it is for, if the caller saw one.
    pub instance: Option<u64>,
    /// The caller's signature.
    pub signature: Option<Signature>,
}

impl CallHeaders {
    /// Reads the headers of a command.
    ///
    /// # Errors
    /// [`HeaderError`] names the first invalid header of ours.
    pub fn decode<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, HeaderError> {
        let mut read = Self::default();
        for (name, value) in headers {
            match name {
                HEADER_CALLER => read.caller = Some(text(HEADER_CALLER, value, MAX_CALLER_BYTES)?),
                HEADER_KEY => read.key = Some(text(HEADER_KEY, value, MAX_KEY_BYTES)?),
                HEADER_EXPIRY => {
                    let wrong = || error(HEADER_EXPIRY, value, "8 bytes of TAI nanoseconds");
                    let bytes = value.try_into().map_err(|_| wrong())?;
                    read.expiry = Some(Tai::from_nanos(i64::from_le_bytes(bytes)));
                }
                HEADER_SCHEMA => {
                    let wrong = || error(HEADER_SCHEMA, value, "8 bytes of a schema's identity");
                    let bytes = value.try_into().map_err(|_| wrong())?;
                    read.schema = Some(SchemaId(u64::from_le_bytes(bytes)));
                }
                HEADER_INSTANCE => {
                    let wrong = || error(HEADER_INSTANCE, value, "8 bytes of an incarnation");
                    let bytes = value.try_into().map_err(|_| wrong())?;
                    read.instance = Some(u64::from_le_bytes(bytes));
                }
                HEADER_SIGNATURE => {
                    let wrong = || error(HEADER_SIGNATURE, value, "64 bytes of a signature");
                    let bytes = value.try_into().map_err(|_| wrong())?;
                    read.signature = Some(Signature(bytes));
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// The headers to send.
    ///
    /// # Errors
    /// [`HeaderError`] if the caller's name or the key is empty or too long.
    pub fn encode(&self) -> Result<Vec<(&'static str, Vec<u8>)>, HeaderError> {
        let mut headers = Vec::new();
        if let Some(caller) = &self.caller {
            text(HEADER_CALLER, caller.as_bytes(), MAX_CALLER_BYTES)?;
            headers.push((HEADER_CALLER, caller.clone().into_bytes()));
        }
        if let Some(expiry) = self.expiry {
            headers.push((HEADER_EXPIRY, expiry.nanos().to_le_bytes().to_vec()));
        }
        if let Some(key) = &self.key {
            text(HEADER_KEY, key.as_bytes(), MAX_KEY_BYTES)?;
            headers.push((HEADER_KEY, key.clone().into_bytes()));
        }
        if let Some(schema) = self.schema {
            headers.push((HEADER_SCHEMA, schema.0.to_le_bytes().to_vec()));
        }
        if let Some(instance) = self.instance {
            headers.push((HEADER_INSTANCE, instance.to_le_bytes().to_vec()));
        }
        if let Some(signature) = self.signature {
            headers.push((HEADER_SIGNATURE, signature.0.to_vec()));
        }
        Ok(headers)
    }
}

/// The metadata of an acknowledgement beside its fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AckHeaders {
    /// The part of the command that is done, 0 to 1.
    pub progress: Option<f64>,
    /// The result as JSON text, at most [`MAX_TYPED_BYTES`] bytes.
    pub typed: Option<String>,
}

impl AckHeaders {
    /// Reads the headers of an acknowledgement.
    ///
    /// # Errors
    /// [`HeaderError`] names the first invalid header of ours.
    pub fn decode<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, HeaderError> {
        let mut read = Self::default();
        for (name, value) in headers {
            match name {
                HEADER_PROGRESS => {
                    let wrong = || error(HEADER_PROGRESS, value, "a double from 0 to 1");
                    let progress = f64::from_le_bytes(value.try_into().map_err(|_| wrong())?);
                    let legal = (0.0..=1.0).contains(&progress);
                    read.progress = Some(legal.then_some(progress).ok_or_else(wrong)?);
                }
                HEADER_RESULT => read.typed = Some(text(HEADER_RESULT, value, usize::MAX)?),
                _ => {}
            }
        }
        Ok(read)
    }

    /// The headers to send.
    ///
    /// # Errors
    /// [`HeaderError`] if the progress is not between 0 and 1, or the result is too long.
    pub fn encode(&self) -> Result<Vec<(&'static str, Vec<u8>)>, HeaderError> {
        let mut headers = Vec::new();
        if let Some(progress) = self.progress {
            let bytes = progress.to_le_bytes().to_vec();
            if !(0.0..=1.0).contains(&progress) {
                return Err(error(HEADER_PROGRESS, &bytes, "a double from 0 to 1"));
            }
            headers.push((HEADER_PROGRESS, bytes));
        }
        if let Some(typed) = &self.typed {
            text(HEADER_RESULT, typed.as_bytes(), MAX_TYPED_BYTES)?;
            headers.push((HEADER_RESULT, typed.clone().into_bytes()));
        }
        Ok(headers)
    }
}

fn text(name: &'static str, value: &[u8], longest: usize) -> Result<String, HeaderError> {
    let wrong = || error(name, value, "UTF-8 text, not empty and not too long");
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let legal = !text.is_empty() && text.len() <= longest;
    legal.then(|| text.to_owned()).ok_or_else(wrong)
}

fn error(name: &'static str, value: &[u8], expected: &'static str) -> HeaderError {
    HeaderError { name, bytes: value.len(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_calls_are_read_as_they_were_written() {
        let headers = CallHeaders {
            caller: Some("alice@summit".into()),
            expiry: Some(Tai::from_nanos(-1)),
            key: Some("night-7".into()),
            schema: Some(SchemaId(7)),
            instance: Some(u64::MAX),
            signature: Some(Signature([5; 64])),
        };
        let written = headers.encode().unwrap();
        let seven: &[u8] = b"\x07\0\0\0\0\0\0\0";
        let golden = [
            ("helio-caller", &b"alice@summit"[..]),
            ("helio-expiry", &[0xff; 8]),
            ("helio-key", b"night-7"),
            ("helio-schema", seven),
            ("helio-instance", &[0xff; 8]),
            ("helio-signature", &[5; 64]),
        ];
        assert_eq!(written, golden.map(|(name, value)| (name, value.to_vec())));
        let pairs = written.iter().map(|(name, value)| (*name, value.as_slice()));
        let foreign = [("traceparent", &b"x"[..])];
        assert_eq!(CallHeaders::decode(pairs.chain(foreign)), Ok(headers));
    }

    #[test]
    fn headers_of_acknowledgements_are_read_as_they_were_written() {
        let headers = AckHeaders { progress: Some(0.25), typed: Some("{\"a\":1}".into()) };
        let written = headers.encode().unwrap();
        let progress: &[u8] = b"\0\0\0\0\0\0\xd0\x3f";
        let golden = [("helio-progress", progress), ("helio-result", b"{\"a\":1}")];
        assert_eq!(written, golden.map(|(name, value)| (name, value.to_vec())));
        let pairs = written.iter().map(|(name, value)| (*name, value.as_slice()));
        assert_eq!(AckHeaders::decode(pairs), Ok(headers));
    }

    #[test]
    fn hostile_headers_are_refused() {
        let long = vec![b'k'; MAX_KEY_BYTES + 1];
        for (name, value) in [
            (HEADER_CALLER, &b"\xff"[..]),
            (HEADER_CALLER, b""),
            (HEADER_KEY, &long),
            (HEADER_EXPIRY, b"1234567"),
            (HEADER_SCHEMA, b"123456789"),
            (HEADER_INSTANCE, b"123456789"),
            (HEADER_SIGNATURE, b"short"),
        ] {
            assert_eq!(CallHeaders::decode([(name, value)]).unwrap_err().name, name);
        }
        let nan = f64::NAN.to_le_bytes();
        assert!(AckHeaders::decode([(HEADER_PROGRESS, &nan[..])]).is_err());
        assert!(AckHeaders { progress: Some(1.5), typed: None }.encode().is_err());
        let typed = Some("x".repeat(MAX_TYPED_BYTES + 1));
        assert!(AckHeaders { progress: None, typed }.encode().is_err());
    }
}
