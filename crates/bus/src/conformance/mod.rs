//! The conformance suite for all transports.
//!
//! A transport provides a [`Harness`], which connects to its real engine, and stops and starts it.
//! Each [`Check`] tests one promise of the bus. A transport must refuse unsupported policies by
//! name: the check is then [`Verdict::Refused`], if the capabilities agree.
//!
//! Tests run the checks on the fault injector to show that they can fail.
//!
//! ```
//! use helio_bus::conformance::{self, UrlHarness};
//!
//! let private = UrlHarness::to("memory:docs-of-conformance");
//! let report = conformance::run(&private, |check| check.name.starts_with("start"));
//! assert!(report.is_conformant(), "{report}");
//! ```

mod delivery;
mod exclusive;
mod fencing;
mod forwarding;
mod grants;
mod groups;
mod headers;
mod history;
mod lifecycle;
mod nulls;
mod overload;
mod receipts;
mod results;
mod schemas;
mod support;
mod timing;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use results::{compare_with_stored, tables};

use crate::bell::locked;
use crate::bus::{Builder, Bus};
use crate::error::ConnectError;

/// The default of [`Harness::jobs`].
const DEFAULT_JOBS: usize = 4;

/// Checks that stop the engine under all connections, and thus must run alone.
const RUN_ALONE: [&str; 1] = ["reconnect"];

/// The suite's interface to a transport.
pub trait Harness: Sync {
    /// Connects to the engine, as a separate process would. All connections share the topics.
    ///
    /// # Errors
    /// [`ConnectError`].
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError>;
    /// The engine, if the suite may stop it.
    fn engine(&self) -> Option<&dyn Engine> {
        None
    }
    /// How long a check waits for an expected event.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
    /// How long a check waits to show that no event arrives, if the transport cannot be queried.
    fn quiet_period(&self) -> Duration {
        Duration::from_millis(50)
    }
    /// The factor of the amount of work; 1 for each commit.
    fn scale(&self) -> usize {
        1
    }
    /// How many checks run concurrently, at least 1. Checks mostly wait. The one that stops the
    /// engine always runs alone, after the others.
    fn jobs(&self) -> usize {
        DEFAULT_JOBS
    }
}

/// An engine that can be stopped and started.
pub trait Engine: Sync {
    /// Stops it; connections stay open.
    fn stop(&self);
    /// Starts it again.
    fn start(&self);
}

/// The harness of transports that need only a URL.
#[derive(Debug, Clone)]
pub struct UrlHarness {
    url: String,
}

impl UrlHarness {
    /// A harness whose connections use this URL.
    #[must_use]
    pub fn to(url: &str) -> Self {
        Self { url: url.to_owned() }
    }
}

impl Harness for UrlHarness {
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError> {
        builder.connect(&self.url)
    }
}

/// A test of one promise of the bus.
pub struct Check {
    /// Its name, for filters and tables.
    pub name: &'static str,
    /// The promise, in a sentence.
    pub promise: &'static str,
    run: fn(&dyn Harness) -> Result<(), Failure>,
}

/// The reason why a check did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The transport refused it by name, as its capabilities declare.
    Refused(String),
    /// The harness cannot test it.
    Skipped(&'static str),
    /// The promise was broken.
    Broken(String),
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// The promise holds.
    Passed,
    /// The transport refuses it by name, as its capabilities declare.
    Refused(String),
    /// The harness cannot test it.
    Skipped(String),
    /// The promise is broken.
    Broken(String),
}

/// One line of a report.
#[derive(Debug, Clone, Serialize)]
pub struct CheckResult {
    /// The check's name.
    pub check: &'static str,
    /// Its promise.
    pub promise: &'static str,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The results of a transport.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// One line a check.
    pub lines: Vec<CheckResult>,
}

impl Report {
    /// Whether all promises hold or are refused.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The names of the checks that failed.
    pub fn broken(&self) -> impl Iterator<Item = &'static str> {
        let broken = |line: &&CheckResult| matches!(line.verdict, Verdict::Broken(_));
        self.lines.iter().filter(broken).map(|line| line.check)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let (word, why) = match &line.verdict {
                Verdict::Passed => ("passed", ""),
                Verdict::Refused(why) => ("refused", why.as_str()),
                Verdict::Skipped(why) => ("skipped", why.as_str()),
                Verdict::Broken(why) => ("BROKEN", why.as_str()),
            };
            writeln!(f, "{word:8} {:32} {}", line.check, line.promise)?;
            if !why.is_empty() {
                writeln!(f, "         {why}")?;
            }
        }
        Ok(())
    }
}

/// All checks, in the order of the documentation.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    [
        delivery::CHECKS,
        headers::CHECKS,
        history::CHECKS,
        nulls::CHECKS,
        groups::CHECKS,
        receipts::CHECKS,
        overload::CHECKS,
        fencing::CHECKS,
        forwarding::CHECKS,
        schemas::CHECKS,
        grants::CHECKS,
        exclusive::CHECKS,
        timing::CHECKS,
        lifecycle::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Runs the selected checks, [`Harness::jobs`] concurrently. The report is in the order of the
/// documentation.
pub fn run(harness: &dyn Harness, wanted: impl Fn(&Check) -> bool) -> Report {
    let wanted: Vec<&Check> = checks().filter(|check| wanted(check)).collect();
    let lines: Vec<OnceLock<CheckResult>> = wanted.iter().map(|_| OnceLock::new()).collect();
    let pairs = || wanted.iter().zip(&lines);
    let runs_alone = |check: &Check| RUN_ALONE.contains(&check.name);
    let queue = Mutex::new(pairs().filter(|(check, _)| !runs_alone(check)));
    let work = || {
        // The lock is released before the check runs.
        let next = || locked(&queue).next();
        while let Some((check, line)) = next() {
            line.get_or_init(|| check.hold(harness));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..harness.jobs().clamp(1, wanted.len().max(1)) {
            scope.spawn(work);
        }
    });
    for (check, line) in pairs().filter(|(check, _)| runs_alone(check)) {
        line.get_or_init(|| check.hold(harness));
    }
    Report { lines: lines.into_iter().filter_map(OnceLock::into_inner).collect() }
}

/// Runs all checks.
pub fn run_all(harness: &dyn Harness) -> Report {
    run(harness, |_| true)
}

impl Check {
    fn hold(&self, harness: &dyn Harness) -> CheckResult {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(harness)));
        let verdict = match outcome {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(Failure::Refused(why))) => Verdict::Refused(why),
            Ok(Err(Failure::Skipped(why))) => Verdict::Skipped(why.to_owned()),
            Ok(Err(Failure::Broken(why))) => Verdict::Broken(why),
            Err(panic) => Verdict::Broken(format!("panicked: {}", message(&*panic))),
        };
        CheckResult { check: self.name, promise: self.promise, verdict }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
