//! The demo's pointing: sends 20 targets per second to the mount, each ahead of its time.

use helio_bus::Bus;
use helio_component::protocol::AckCode;
use helio_component::protocol::caller::Cause;
use helio_logging::Level;

use super::caller::{Callee, Ended};
use super::logging;
use super::messages::{PointingTask, ProcessMessage};
use super::pace::{Pace, Step, tai_at};
use crate::clock::{cpu_s, peak_rss_mb};
use crate::error::CliResult;
use crate::sal;
use crate::worker::say;

/// The caller name.
pub(crate) const IDENTITY: &str = "MTPtg";
/// How long before its time a target is sent; 50 ms are required.
const AHEAD_S: f64 = 0.1;

/// Runs the process.
pub(crate) fn run(task: &PointingTask) -> CliResult {
    let interfaces = sal::folder_or_own(task.world.interfaces.as_deref())?;
    let bus = Bus::connect(&task.world.url)?;
    let mount = Callee::open(&bus, &interfaces, &(task.mount.clone(), 0), IDENTITY)?;
    logging::begin(&bus, IDENTITY)?;
    say(&ProcessMessage::Ready)?;
    let (mut pace, mut phase) = (Pace::new(vec![task.rate_hz]), Phase::Tracks);
    while let Some(step) = pace.next() {
        let Step::Due { number, due_ns, .. } = step else { continue };
        let time_s = tai_at(&bus, due_ns).seconds() + AHEAD_S;
        let seconds = number as f64 / task.rate_hz;
        let call = mount.command("trackTarget").set("taiTime", time_s);
        let call = call.set("azimuth", 10.0 + RATE * seconds).set("azimuthVelocity", RATE);
        let call = call.set("elevation", 60.0 - RATE * seconds).set("elevationVelocity", -RATE);
        let call = call.set("trackId", 1).set("tracksys", "SIDEREAL").set("radesys", "ICRS");
        let ended = mount.send("trackTarget", call).wait();
        let before = phase;
        let met = phase.accepts(&ended);
        if phase != before {
            logging::note(Level::NOTICE, &format!("targets: {before:?}, now {phase:?}"));
        }
        ended.account(met)?;
    }
    let logged = logging::end();
    say(&ProcessMessage::End { cpu_s: cpu_s(), rss_mb: peak_rss_mb(), logged })
}

/// Degrees per second of a star.
const RATE: f64 = 15.0 / 3600.0;

/// The phases of the mount in order: it tracks, is gone, is back without tracking, tracks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Tracks,
    Gone,
    IsBack,
    TracksAgain,
}

impl Phase {
    /// Records a target's outcome; returns whether the phase allows it. Late ones are allowed.
    fn accepts(&mut self, ended: &Ended) -> bool {
        let next = match (ended.cause, AckCode::from_number(ended.called.code)) {
            (Some(Cause::Acknowledged), Some(AckCode::Timeout)) => return true,
            (Some(Cause::Acknowledged), Some(AckCode::Complete)) if *self == Self::Tracks => *self,
            (Some(Cause::Acknowledged), Some(AckCode::Complete)) => Self::TracksAgain,
            (Some(Cause::Acknowledged), Some(AckCode::Failed)) => Self::IsBack,
            (Some(Cause::NobodyThere | Cause::WentAway), _) => Self::Gone,
            _ => return false,
        };
        let forward = next >= *self;
        *self = next.max(*self);
        forward
    }
}
