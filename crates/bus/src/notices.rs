//! Notices to the operator of a process, which belong to no call: where they go is the program's
//! choice, made once.

use std::sync::OnceLock;

static HANDLER: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the process's handler of notices: one line of text each, with cause and remedy, from the
/// thread in which the cause was found. It must not block. Only the first handler counts; without
/// one, notices are dropped. Events of subscriptions and errors do not depend on it.
pub fn on_notice(handler: fn(&str)) {
    // A later handler would take them from the first.
    let _ = HANDLER.set(handler);
}

/// Sends a notice to the process's handler, for transports: a line with cause and remedy.
pub fn notify(text: &str) {
    if let Some(handler) = HANDLER.get() {
        handler(text);
    }
}
