//! The demo's mount: it follows targets, each for a given time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_bus::Tai;
use helio_component::protocol::{StateCommand, SummaryState};
use helio_component::{Builder, Command, Failed};
use helio_core::Value;
use helio_logging::Level;

use super::component_process::ReportingTopic;
use super::logging;
use crate::worker::say;

/// An axis, with the names of its fields in targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    Azimuth,
    Elevation,
}

impl Axis {
    /// The axis of telemetry of this name.
    pub(crate) fn of(telemetry: &str) -> Option<Self> {
        match telemetry {
            "azimuth" => Some(Self::Azimuth),
            "elevation" => Some(Self::Elevation),
            _ => None,
        }
    }
}

/// A target: positions and rates of both axes at a time.
#[derive(Debug, Clone, Copy)]
struct Target {
    time_s: f64,
    /// Degrees and degrees per second, of azimuth and elevation.
    axes: [(f64, f64); 2],
}

#[derive(Debug, Default)]
struct Drives {
    tracking: bool,
    target: Option<Target>,
}

/// A mount. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mount(Arc<Mutex<Drives>>);

impl Mount {
    fn drives(&self) -> MutexGuard<'_, Drives> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the mount's commands to a component.
    pub(crate) fn attach(&self, builder: Builder) -> Builder {
        let (track, stop, disable, target) =
            (self.clone(), self.clone(), self.clone(), self.clone());
        builder
            .on("startTracking", move |command: &Command| {
                enabled(command)?;
                track.drives().tracking = true;
                logging::note(Level::INFO, "tracks");
                Ok("tracking")
            })
            .on("stop", move |_: &Command| {
                *stop.drives() = Drives::default();
                logging::note(Level::INFO, "stands still");
                Ok("stopped")
            })
            .begin(StateCommand::Disable, move |_| {
                *disable.drives() = Drives::default();
                Ok(())
            })
            // It takes microseconds, 20 times per second.
            .inline("trackTarget", move |command: &Command| target.follow(command))
            .stream("trackTarget", "taiTime", Duration::ZERO)
    }

    fn follow(&self, command: &Command) -> Result<(), Failed> {
        let axis = |name: &str| (command.number(name), command.number(&format!("{name}Velocity")));
        let target = Target {
            time_s: command.number("taiTime"),
            axes: [axis("azimuth"), axis("elevation")],
        };
        let mut drives = self.drives();
        if !drives.tracking {
            logging::note(Level::DEBUG, "a target comes while it does not track");
            return Err(Failed::new("it does not track; command startTracking first"));
        }
        drives.target = Some(target);
        drop(drives);
        let event = ReportingTopic::open(command.component().event("target")?)?;
        let named = ["azimuth", "azimuthVelocity", "elevation", "elevationVelocity", "taiTime"];
        let word = event.write(named.map(|name| (name, Value::Double(command.number(name)))))?;
        Ok(word.map_or(Ok(()), |word| say(&word))?)
    }

    /// The position of an axis at a time, for telemetry.
    pub(crate) fn position(&self, axis: Axis, time: Tai) -> [(&'static str, Value); 4] {
        let target = self.drives().target;
        let (position, velocity) = target.map_or((0.0, 0.0), |target| {
            let (position, velocity) = target.axes[axis as usize];
            (position + velocity * (time.seconds() - target.time_s), velocity)
        });
        let names = ["actualPosition", "demandPosition", "actualVelocity", "demandVelocity"];
        let values = [position, position, velocity, velocity];
        std::array::from_fn(|place| (names[place], Value::Double(values[place])))
    }
}

/// Refuses commands unless the component is enabled.
pub(crate) fn enabled(command: &Command) -> Result<(), Failed> {
    match command.component().state() {
        SummaryState::Enabled => Ok(()),
        state => {
            let name = command.name();
            Err(Failed::new(format!("{name} is not allowed in state {state}; enable it first")))
        }
    }
}
