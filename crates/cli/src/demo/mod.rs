//! `helio demo`: a small observatory in separate processes, with an account of every sample.
//!
//! A mirror, a mount, a camera and two weather masts are components. A script commands them, and
//! the pointing process sends targets to the mount. An alert player has a broker, a recorder reads
//! everything, and a log reader reads the log records of all. During the run a second camera is
//! refused, the mount is killed (SIGKILL) and restarted, and a late joiner reads the newest event
//! of every key. At the end the mirror publishes a burst at full speed, and the script brings all
//! components to OFFLINE.
//!
//! Writers report acknowledged samples, callers the outcomes of their commands, readers the samples
//! that they received. An acknowledged sample that no reader received is lost. Each step waits for
//! an event and never for time alone, so that a slow machine only takes longer.

mod accounting;
pub(crate) mod alerts;
mod caller;
mod camera;
pub(crate) mod component_process;
mod content;
mod display;
#[cfg(feature = "dds")]
pub(crate) mod durability;
mod layout;
pub(crate) mod logging;
mod messages;
mod mount;
mod pace;
pub(crate) mod pointing;
mod processes;
pub(crate) mod reader;
mod report;
pub(crate) mod script;

use std::time::{Duration, Instant};

use helio_bus::Bus;

use self::display::Display;
use self::layout::{MOUNT, POINTING, SCRIPT, Scene};
use self::messages::{Newest, Order, ReaderReport, Step};
use self::processes::{Notes, Processes};
use self::report::{Play, Report};
use crate::args::DemoArgs;
use crate::clock::monotonic_ns;
use crate::error::{CliError, CliResult};
use crate::out::Out;
use crate::run_bus::RunBus;
use crate::stop::Stop;

/// The first samples are due this long after the order to begin.
const LEAD_NS: u64 = 200_000_000;
/// Samples of the burst: 33 MB of forceActuatorData, about half of the topic's retention.
const BURST_SAMPLES: u64 = 10_000;
/// The longest silence of all players while one is awaited; no slow machine takes that long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The times of events, as fractions of the whole time.
const DOUBLE_AT: f64 = 0.20;
const KILL_AT: f64 = 0.35;
const RESTART_AT: f64 = 0.40;
const JOIN_AT: f64 = 0.60;

/// Runs `helio demo`.
pub(crate) fn run(args: &DemoArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-demo", args.run.dir.as_deref(), url)?;
    site.refuse_memory(11)?;
    let scene = layout::build(args, site.url())?;
    #[cfg(feature = "dds")]
    let durability = durability::where_wanted(site.url(), args.run.dir.as_deref())?;
    #[cfg(not(feature = "dds"))]
    let durability: Option<()> = None;
    let bus = Bus::connect(site.url())?;
    let processes = Processes::start(&scene, site.url(), stop)?;
    let mut display = Display::open(&bus, args.run.output.json)?;
    if durability.is_some() {
        display
            .tell("no durability service is there: one of this demo's own, which ends with it")?;
    }
    let begun_ns = monotonic_ns() + LEAD_NS;
    let total_ns = u64::try_from(args.seconds.as_nanos()).unwrap_or(u64::MAX);
    let mut direction = Direction { processes, display, stop: stop.clone(), begun_ns, total_ns };
    let events = direction.play(&scene)?;
    let Direction { processes, mut display, .. } = direction;
    let (recorder, broker, log, notes) = processes.drain()?;
    let (states, story) = (display.states()?, display.close()?);
    let play = Play { events, recorder, broker, log, notes, story, states };
    let report = Report::of(&scene, play, (site.url(), bus.capabilities().reach));
    let mut out = Out::new();
    if args.run.output.json {
        out.json(&report)?;
    } else {
        report.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    report.verdict()
}

/// The events that the demo observed.
pub(crate) struct Events {
    /// Why the second camera was refused; `None` if it ran.
    double: Option<String>,
    /// The events that the late joiner should have received, and those that it received.
    late: (Vec<Newest>, ReaderReport),
    /// How long the schedule ran.
    seconds: f64,
}

struct Direction {
    processes: Processes,
    display: Display,
    stop: Stop,
    begun_ns: u64,
    total_ns: u64,
}

impl Direction {
    /// Runs the demo by its time table.
    fn play(&mut self, scene: &Scene) -> CliResult<Events> {
        self.begin(scene)?;
        let double = self.double(scene)?;
        self.kill()?;
        self.restart()?;
        self.wait(JOIN_AT, "", |_| true)?;
        let late = self.processes.join_late()?;
        self.wait(1.0, "", |_| true)?;
        self.processes.order_all_but("", Order::Rest)?;
        let seconds = monotonic_ns().saturating_sub(self.begun_ns) as f64 * 1e-9;
        self.burst()?;
        self.end()?;
        Ok(Events { double, late, seconds })
    }

    fn begin(&mut self, scene: &Scene) -> CliResult {
        let components = scene.components.join(", ");
        let others =
            "beside them script, pointing, alert player, alert broker, recorder, log reader";
        self.display.tell(&format!("components: {components}; {others}"))?;
        if scene.double.is_none() {
            self.display.tell("these interfaces have no camera: nobody takes images")?;
        }
        self.begun_ns = monotonic_ns() + LEAD_NS;
        let start_ns = self.begun_ns;
        self.processes.order_all_but(POINTING, Order::Begin { start_ns })?;
        self.wait(0.0, "the script to begin", |notes| notes.steps.contains(&Step::Began))?;
        let start_ns = monotonic_ns();
        self.processes.order(POINTING, Order::Begin { start_ns })?;
        self.display.tell("pointing sends the mount 20 targets a second")
    }

    /// Starts a second instance of the camera, which must be refused.
    fn double(&mut self, scene: &Scene) -> CliResult<Option<String>> {
        let Some(double) = &scene.double else { return Ok(None) };
        self.wait(DOUBLE_AT, "", |_| true)?;
        let refused = self.processes.double(double)?;
        let told = refused.as_deref().unwrap_or("it runs, which it must not");
        self.display.tell(&format!("a second {} is started: {told}", double.name))?;
        Ok(refused)
    }

    fn kill(&mut self) -> CliResult {
        self.wait(KILL_AT, "the mount to follow targets", |notes| notes.followed() > 0)?;
        self.processes.kill(MOUNT)?;
        self.display.tell(&format!("SIGKILL for {MOUNT}"))?;
        self.processes.order(SCRIPT, Order::Died)?;
        let told =
            |notes: &Notes| notes.steps.iter().any(|step| matches!(step, Step::ToldGone { .. }));
        self.wait(0.0, "the script to be told that nobody is there", told)?;
        self.display.show_operators()?;
        self.wait(RESTART_AT, "", |_| true)
    }

    fn restart(&mut self) -> CliResult {
        self.processes.restart(MOUNT, monotonic_ns())?;
        self.display.tell(&format!("{MOUNT} is started again"))?;
        self.processes.order(SCRIPT, Order::Returned)?;
        self.wait(0.0, "the mount to be back", |notes| notes.steps.contains(&Step::Resumed))?;
        let followed = self.processes.notes.followed();
        self.wait(0.0, "targets to be followed", |notes| notes.followed() > followed)
    }

    fn burst(&mut self) -> CliResult {
        self.display.doing("a burst, as fast as the bus takes it".to_owned());
        self.processes.burst(BURST_SAMPLES)?;
        self.wait(1.0, "the burst", |notes| notes.burst.is_some())
    }

    /// Ends pointing, then the components by the script, then all processes.
    fn end(&mut self) -> CliResult {
        for name in [POINTING, SCRIPT] {
            self.processes.order(name, Order::End)?;
            self.until(name, |processes| processes.has_ended(name))?;
        }
        self.processes.order_all_but("", Order::End)?;
        self.until("all to end", Processes::have_all_ended)
    }

    /// Waits for a fraction of the time and for an event.
    fn wait(&mut self, part: f64, what: &str, happened: impl Fn(&Notes) -> bool) -> CliResult {
        let at_ns = self.begun_ns + (self.total_ns as f64 * part) as u64;
        self.until(what, |processes| monotonic_ns() >= at_ns && happened(&processes.notes))
    }

    fn until(&mut self, what: &str, happened: impl Fn(&Processes) -> bool) -> CliResult {
        let mut heard = Instant::now();
        loop {
            if self.processes.collect()? {
                heard = Instant::now();
            }
            for line in std::mem::take(&mut self.processes.notes.story) {
                self.display.tell(&line)?;
            }
            if let Some(text) = self.processes.notes.doing.take() {
                self.display.doing(text);
            }
            if happened(&self.processes) {
                return Ok(());
            }
            self.stop.check()?;
            if heard.elapsed() > SILENCE_TIMEOUT {
                let text = format!("the demo waits for {what}, and no process says anything");
                return Err(CliError::Failure(text));
            }
            self.display.step()?;
        }
    }
}
