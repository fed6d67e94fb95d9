//! `helio demo`: a small observatory in separate processes on a fresh journal, with its books kept.
//!
//! Four writers (a mirror support, the pointing of a mount, a weather station, a player of alert
//! packets) and four readers (the mount, an operators' console, an alert broker, a recorder of
//! everything) run by a schedule. On the way the weather station is killed (SIGKILL) and started
//! again, and a late joiner asks for the newest event of every key. At the end the mirror support
//! publishes a burst as fast as the bus takes it. Every writer says what it has receipts for, every
//! reader what it has seen; what is acknowledged and was not seen is lost.

mod account;
mod body;
mod cast;
mod packet;
pub(crate) mod plan;
pub(crate) mod reader;
mod report;
pub(crate) mod scene;
pub(crate) mod writer;

use std::time::Duration;

use cast::{Cast, Play};

use crate::args::DemoArgs;
use crate::clock::monotonic_ns;
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress};
use crate::site::Site;
use crate::stop::Stop;

/// The first samples are due this long after the order to begin.
const LEAD_NS: u64 = 200_000_000;
/// How often the words of the processes are collected.
const COLLECT: Duration = Duration::from_millis(10);
/// Samples of the burst: 33 MB of forceActuatorData, about a half of what its topic keeps.
const BURST_SAMPLES: u64 = 10_000;
/// The longest that the burst may take.
const BURST_NS: u64 = 60_000_000_000;

/// What happens when, in parts of the whole time.
const KILL_AT: f64 = 0.35;
const RESTART_AT: f64 = 0.40;
const JOIN_AT: f64 = 0.60;

/// What happens at a time of the play.
type Happening = fn(&mut Cast) -> CliResult;

/// Runs `helio demo`.
pub(crate) fn run(args: &DemoArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = Site::fresh("helio-demo", args.run.dir.as_deref(), url)?;
    if site.url().starts_with("memory:") {
        let text = "memory: is one process, the demo takes nine; give a journal: instead";
        return Err(CliError::Refused(text.to_owned()));
    }
    let scene = scene::build(args)?;
    let mut progress = Progress::new();
    let mut cast = Cast::start(&scene, site.url(), stop)?;
    let ended = direct(&mut cast, args, stop, &mut progress).and_then(|()| cast.end());
    drop(progress);
    let play: Play = ended?;
    let report = report::Report::of(&scene, &play, site.url());
    let mut out = Out::new();
    if args.run.output.json {
        out.json(&report)?;
    } else {
        report.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    report.verdict()
}

/// Lets the play run by its time table.
fn direct(cast: &mut Cast, args: &DemoArgs, stop: &Stop, progress: &mut Progress) -> CliResult {
    let start_ns = monotonic_ns() + LEAD_NS;
    let total_ns = args.seconds.as_nanos() as u64;
    let at = |part: f64| start_ns + (total_ns as f64 * part) as u64;
    cast.begin(start_ns)?;
    let scenes: [(f64, Happening); 4] = [
        (KILL_AT, Cast::kill_one),
        (RESTART_AT, Cast::restart_it),
        (JOIN_AT, Cast::join_late),
        (1.0, Cast::rest),
    ];
    for (part, happens) in scenes {
        while monotonic_ns() < at(part) {
            stop.check()?;
            std::thread::sleep(COLLECT);
            cast.collect()?;
            progress.show(|| cast.status(monotonic_ns().saturating_sub(start_ns), total_ns));
        }
        happens(cast)?;
    }
    cast.burst(BURST_SAMPLES)?;
    let latest = monotonic_ns() + BURST_NS;
    while !cast.burst_is_over() && monotonic_ns() < latest {
        stop.check()?;
        std::thread::sleep(COLLECT);
        cast.collect()?;
        progress.show(|| "a burst, as fast as the bus takes it".to_owned());
    }
    Ok(())
}
