//! Cyclone DDS's log, on standard error, limited to a few lines a second.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use cyclors::dds_log_data_t;

/// An unplugged cable causes a message per packet.
const MAX_LINES_PER_SECOND: u64 = 10;

/// The number of lines in the current second.
struct LogRate {
    since: Option<Instant>,
    lines: u64,
}

static LOG_RATE: Mutex<LogRate> = Mutex::new(LogRate { since: None, lines: 0 });

/// Redirects Cyclone's log from now on.
pub(super) fn take() {
    static ONCE: Once = Once::new();
    // SAFETY: the function has the type that Cyclone calls, and needs no data.
    ONCE.call_once(|| unsafe { cyclors::dds_set_log_sink(Some(complain), std::ptr::null_mut()) });
}

unsafe extern "C" fn complain(_: *mut c_void, data: *const dds_log_data_t) {
    if data.is_null() {
        return;
    }
    // SAFETY: Cyclone passes a message that ends with a zero.
    let message = unsafe { CStr::from_ptr((*data).message) }.to_string_lossy();
    let mut second = LOG_RATE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let over = second.since.is_none_or(|since| now - since > Duration::from_secs(1));
    let before = if over { std::mem::take(&mut second.lines) } else { 0 };
    if over {
        second.since = Some(now);
    }
    second.lines += 1;
    let print = second.lines <= MAX_LINES_PER_SECOND;
    drop(second);
    // Write errors are ignored: a panic in Cyclone's thread would abort the process.
    let mut to = std::io::stderr().lock();
    if before > MAX_LINES_PER_SECOND {
        let more = before - MAX_LINES_PER_SECOND;
        let _ = writeln!(to, "Cyclone DDS: {more} more lines like these");
    }
    if print {
        let _ = write!(to, "Cyclone DDS: {message}");
    }
}
