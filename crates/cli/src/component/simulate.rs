//! `helio component run`: simulated components, in this process or in several.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Tai};
use helio_component::{Mock, MockError, Rates, mock_instances};
use helio_core::sal::Interfaces;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::{Instance, RunArgs};
use super::command::state;
use super::target::from_interface;
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::sal;
use crate::stop::{LOOK, Stop};
use crate::worker::{Worker, orders, say};

/// What one process simulates.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MockTask {
    pub(crate) url: String,
    pub(crate) interfaces: Option<PathBuf>,
    pub(crate) instances: Vec<(String, i32)>,
    pub(crate) state: String,
    pub(crate) rates: Option<String>,
    pub(crate) scale: f64,
}

/// What the process says when its components are there.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    components: usize,
}

impl MockTask {
    /// Starts the components.
    pub(crate) fn start(&self) -> CliResult<Mock> {
        let interfaces = sal::folder_or_own(self.interfaces.as_deref())?;
        let bus = Bus::connect(&self.url)?;
        let mock = Mock::start(&bus, &interfaces, &self.instances, state(&self.state)?);
        let mock = mock.map_err(from_mock)?;
        match &self.rates {
            None => Ok(mock),
            Some(text) => {
                let rates = Rates::parse(text).map_err(|e| CliError::Refused(e.to_string()))?;
                Ok(mock.with_rates(&rates))
            }
        }
    }
}

/// An error of simulated components as one of the command line.
pub(crate) fn from_mock(error: MockError) -> CliError {
    match error {
        MockError::Interface(error) => from_interface(error),
        MockError::Start(_) => CliError::Refused(error.to_string()),
        MockError::Values(_) | MockError::Write(_) => CliError::Failure(error.to_string()),
    }
}

/// Waits until a time of the system's clock, unless the end is asked for.
pub(crate) fn wait_until(bus: &Bus, at: Tai, mut ended: impl FnMut() -> bool) -> bool {
    loop {
        if ended() {
            return false;
        }
        let left = at.nanos().saturating_sub(bus.clock().now().nanos());
        let Ok(left @ 1..) = u64::try_from(left) else { return true };
        std::thread::sleep(Duration::from_nanos(left).min(LOOK));
    }
}

/// Runs `helio component run`.
pub(crate) fn run(args: &RunArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let tasks = tasks(args, url)?;
    let until = args.duration.and_then(|time| Instant::now().checked_add(time));
    let ended = || stop.asked() || until.is_some_and(|until| until <= Instant::now());
    match &tasks[..] {
        [one] => here(one, args, ended)?,
        several => in_processes(several, args, stop, ended)?,
    }
    match stop.asked() && args.duration.is_some() {
        true => Err(CliError::Interrupted),
        false => Ok(()),
    }
}

fn tasks(args: &RunArgs, url: Option<&str>) -> CliResult<Vec<MockTask>> {
    let folder = args.interfaces.interfaces.as_deref();
    let interfaces = sal::folder_or_own(folder)?;
    let instances = instances(args, &interfaces)?;
    state(&args.state)?;
    let read = |file: &PathBuf| std::fs::read_to_string(file).map_err(|e| CliError::file(file, &e));
    let rates = args.rates.as_ref().map(read).transpose()?;
    if let Some(text) = &rates {
        Rates::parse(text).map_err(|e| CliError::Refused(e.to_string()))?;
    }
    let url = open::url(url)?;
    let processes = (args.processes as usize).min(instances.len()).max(1);
    let absolute = |path| std::fs::canonicalize(path).map_err(|e| CliError::file(path, &e));
    let folder = folder.map(absolute).transpose()?;
    let task = |place: usize| MockTask {
        url: url.clone(),
        interfaces: folder.clone(),
        instances: instances.iter().skip(place).step_by(processes).cloned().collect(),
        state: args.state.clone(),
        rates: rates.clone(),
        scale: args.scale,
    };
    Ok((0..processes).map(task).collect())
}

fn instances(args: &RunArgs, interfaces: &Interfaces) -> CliResult<Vec<(String, i32)>> {
    if args.all {
        return Ok(mock_instances(interfaces));
    }
    let one = |instance: &Instance| {
        let component = super::component(interfaces, &instance.component)?;
        let usual = i32::from(component.indexed());
        Ok((instance.component.clone(), instance.index.unwrap_or(usual)))
    };
    args.components.iter().map(one).collect()
}

fn here(task: &MockTask, args: &RunArgs, mut ended: impl FnMut() -> bool) -> CliResult {
    let mut mock = task.start()?;
    told(args, mock.len())?;
    let bus = Bus::connect(&task.url)?;
    let begin = bus.clock().now();
    let waited = |at| wait_until(&bus, at, &mut ended);
    mock.publish_until(begin, task.scale, waited).map_err(from_mock)
}

fn in_processes(
    tasks: &[MockTask],
    args: &RunArgs,
    stop: &Stop,
    mut ended: impl FnMut() -> bool,
) -> CliResult {
    let start =
        |task: &MockTask| Worker::start("component-mock", "simulated components", task, stop);
    let mut workers = tasks.iter().map(start).collect::<CliResult<Vec<_>>>()?;
    let mut components = 0;
    for worker in &mut workers {
        components += worker.reply::<Ready>()?.components;
    }
    told(args, components)?;
    while !ended() {
        for worker in &mut workers {
            // Nothing more is said; one that has gone is an error.
            worker.try_reply::<()>()?;
        }
        std::thread::sleep(LOOK);
    }
    workers.into_iter().try_for_each(Worker::finish)
}

fn told(args: &RunArgs, components: usize) -> CliResult {
    let mut out = Out::new();
    if args.output.json {
        out.json(&json!({"components": components, "ready": true}))?;
    } else {
        out.line(&format!("{components} simulated components run; Ctrl-C ends them"))?;
    }
    out.flush()
}

/// The process of some simulated components: it ends with its orders.
pub(crate) fn worker(task: &MockTask) -> CliResult {
    let mut mock = task.start()?;
    say(&Ready { components: mock.len() })?;
    let bus = Bus::connect(&task.url)?;
    let orders = orders::<()>();
    let begin = bus.clock().now();
    let over = || orders.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty);
    mock.publish_until(begin, task.scale, |at| wait_until(&bus, at, over)).map_err(from_mock)?;
    Ok(())
}
