//! The identity of this process: user, host, process number.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// The identity of a program that is not a component: `user@host`, as SAL writes it.
#[must_use]
pub fn user_at_host() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| format!("{}@{}", user(), host_name())).clone()
}

fn user() -> String {
    let mut named = ["USER", "LOGNAME"].iter().filter_map(|name| std::env::var(name).ok());
    named.find(|name| !name.is_empty()).unwrap_or_else(|| "user".to_owned())
}

/// The host's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of this process, for SAL's `private_origin`.
pub(crate) fn origin() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

/// An unpredictable number.
pub(crate) fn random() -> u64 {
    // The standard library seeds each hash table from the system's randomness.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
        assert!(user_at_host().contains('@'));
    }
}
