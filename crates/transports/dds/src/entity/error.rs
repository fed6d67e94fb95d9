//! Cyclone DDS's errors.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

use thiserror::Error;

/// Why a call to Cyclone DDS failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DdsError {
    /// Cyclone returned an error.
    #[error("Cyclone DDS could not {what}: {why} ({code})")]
    Refused {
        /// The attempted operation.
        what: String,
        /// Cyclone's text for its code.
        why: String,
        /// The code, below zero.
        code: i32,
    },
    /// The domain is open in this process with another configuration; Cyclone has one per domain.
    #[error(
        "domain {domain} is open in this process with another configuration; a process has one a \
         domain: use the same options in all URLs of that domain (current: {there:?}, requested: \
         {asked:?})"
    )]
    OtherConfiguration {
        /// The domain.
        domain: u32,
        /// The configuration that it has.
        there: String,
        /// The requested configuration.
        asked: String,
    },
    /// A name with a zero byte in it.
    #[error("{0:?} has a zero byte, which DDS names cannot contain")]
    Zero(String),
    /// The sample is not a value of the topic's type.
    #[error("the bytes are not a value of the topic's type")]
    NoValue,
}

/// A value that is not below zero, or the error.
pub(super) fn checked(what: &str, value: i32) -> Result<i32, DdsError> {
    if value >= 0 {
        return Ok(value);
    }
    // SAFETY: Cyclone gives a static text for every code.
    let why = unsafe { CStr::from_ptr(cyclors::dds_strretcode(value)) };
    let (what, why) = (what.to_owned(), why.to_string_lossy().into_owned());
    Err(DdsError::Refused { what, why, code: value })
}

/// A name as a C string.
pub(super) fn text(name: &str) -> Result<CString, DdsError> {
    CString::new(name).map_err(|_| DdsError::Zero(name.to_owned()))
}
