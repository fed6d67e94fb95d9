//! The audit finds what it is for, in records that were damaged on purpose.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod damage;
