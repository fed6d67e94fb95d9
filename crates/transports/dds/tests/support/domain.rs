//! DDS domains for tests, each used by one process of the machine at a time.
//!
//! Shared by `#[path]` with other crates' tests; `python/tests/conftest.py` follows the same rule.
//! A domain is reserved by a lock on a file `heliograph-dds-domain-N` in the temporary folder. The
//! lock is held until the process ends, however it ends.

use std::fs::{File, OpenOptions};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The preferred domains: their ports lie below the ephemeral ports of Linux.
const PREFERRED_DOMAINS: u32 = 100;
/// The largest domain whose ports fit.
const MAX_DOMAIN: u32 = 230;
/// How long to wait for a free domain.
const FREE_DOMAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A domain that no other call in any process has reserved.
pub(crate) fn domain() -> u32 {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + FREE_DOMAIN_TIMEOUT;
    loop {
        // Processes start at different domains, so that they do not meet leftovers of the previous
        // one.
        let first = std::process::id() % PREFERRED_DOMAINS;
        let near = (0..PREFERRED_DOMAINS).map(|n| 1 + (first + n) % PREFERRED_DOMAINS);
        for domain in near.chain(PREFERRED_DOMAINS + 1..=MAX_DOMAIN) {
            let file = std::env::temp_dir().join(format!("heliograph-dds-domain-{domain}"));
            // Another user's file cannot be opened; it counts as in use.
            let opened = OpenOptions::new().create(true).truncate(false).write(true).open(file);
            if let Ok(file) = opened
                && file.try_lock().is_ok()
            {
                held.push(file);
                return domain;
            }
        }
        assert!(Instant::now() < until, "all DDS domains of this machine are in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}
