//! The names of the quality-of-service profiles, for help and completions.

pub(crate) const PROFILES: [&str; 6] = ["telemetry", "event", "command", "stream", "log", "state"];
