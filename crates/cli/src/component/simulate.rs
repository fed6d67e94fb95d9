//! `helio component run`: simulated components, in this process or in several.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helio_bus::{Bus, EvolutionError, Tai, TopicError};
use helio_component::{Mock, MockCounts, MockError, MockOptions, Rates};
use helio_core::sal::{Component, Interfaces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::command::state;
use super::instances::{check, indices};
use super::target::{from_interface, index};
use crate::args::component::{Instance, RunArgs};
use crate::args::instances::Instances;
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::{Out, Progress};
use crate::sal;
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};
use crate::worker::{Worker, orders, say};

/// The task of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MockTask {
    pub(crate) url: String,
    pub(crate) interfaces: Option<PathBuf>,
    pub(crate) instances: Vec<(String, i32)>,
    pub(crate) state: String,
    pub(crate) rates: Option<String>,
    pub(crate) scale: f64,
    pub(crate) evolution: Option<String>,
}

/// A process's first reply, when its components run: the topics that are not simulated.
type Ready = Vec<String>;

impl MockTask {
    fn options(&self) -> CliResult<MockOptions> {
        let policy = self.evolution.as_deref().map(str::parse).transpose();
        Ok(MockOptions {
            instances: self.instances.clone(),
            state: state(&self.state)?,
            evolution: policy.map_err(|e: EvolutionError| CliError::Usage(e.to_string()))?,
        })
    }

    /// Creates the topics of all components at once, before any component starts.
    pub(crate) fn make_topics(&self, bus: &Bus, progress: &mut Progress) -> CliResult {
        let interfaces = sal::folder_or_own(self.interfaces.as_deref())?;
        let instances = self.options()?.instances(&interfaces).map_err(from_interface)?;
        let all = instances.iter().map(|(interface, index)| (interface, *index));
        let made = |made, of| progress.show(|| format!("{made} of {of} topics are there"));
        helio_component::create_topics(bus, all, made).map_err(|e| from_mock(MockError::Topics(e)))
    }

    /// Starts the components.
    pub(crate) fn start(&self) -> CliResult<Mock> {
        let interfaces = sal::folder_or_own(self.interfaces.as_deref())?;
        let bus = Bus::connect(&self.url)?;
        let mock = Mock::start(&bus, &interfaces, &self.options()?).map_err(from_mock)?;
        for refused in mock.skipped() {
            eprintln!("helio: {} is not simulated: {}", refused.topic, refused.reason);
        }
        match &self.rates {
            None => Ok(mock),
            Some(text) => {
                let rates = Rates::parse(text).map_err(|e| CliError::Refused(e.to_string()))?;
                Ok(mock.with_rates(&rates))
            }
        }
    }
}

/// An error of simulated components as a command's error.
pub(crate) fn from_mock(error: MockError) -> CliError {
    match error {
        MockError::Interface(error) => from_interface(error),
        MockError::Start(_) => CliError::Refused(error.to_string()),
        MockError::Topics(TopicError::Transport(error)) => error.into(),
        MockError::Topics(_) => CliError::Failure(error.to_string()),
        MockError::Write(_) | MockError::Thread(_) => CliError::Failure(error.to_string()),
    }
}

/// Waits until a time of the system's clock, or for a signal.
pub(crate) fn wait_until(bus: &Bus, at: Tai, mut ended: impl FnMut() -> bool) -> bool {
    loop {
        if ended() {
            return false;
        }
        let left = at.nanos().saturating_sub(bus.clock().now().nanos());
        let Ok(left @ 1..) = u64::try_from(left) else { return true };
        std::thread::sleep(Duration::from_nanos(left).min(STOP_POLL_INTERVAL));
    }
}

/// Runs `helio component run`.
pub(crate) fn run(args: &RunArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let tasks = tasks(args, url)?;
    let until = Until::new(args.end.duration, stop);
    match &tasks[..] {
        [one] => here(one, args, &until)?,
        several => in_processes(several, args, stop, &until)?,
    }
    until.result()
}

/// The tasks of the processes, each with its share of the instances.
pub(crate) fn shares(task: &MockTask, processes: u32) -> Vec<MockTask> {
    let processes = (processes as usize).min(task.instances.len()).max(1);
    let share = |place: usize| MockTask {
        instances: task.instances.iter().skip(place).step_by(processes).cloned().collect(),
        ..task.clone()
    };
    (0..processes).map(share).collect()
}

/// An absolute path of a folder of interfaces.
pub(crate) fn absolute(folder: Option<&Path>) -> CliResult<Option<PathBuf>> {
    let absolute = |path| std::fs::canonicalize(path).map_err(|e| CliError::file(path, &e));
    folder.map(absolute).transpose()
}

fn tasks(args: &RunArgs, url: Option<&str>) -> CliResult<Vec<MockTask>> {
    let folder = args.interface.folder.interfaces.as_deref();
    let interfaces = sal::folder_or_own(folder)?;
    let instances = instances(args, &interfaces)?;
    state(&args.state)?;
    let read = |file: &PathBuf| std::fs::read_to_string(file).map_err(|e| CliError::file(file, &e));
    let rates = args.rates.as_ref().map(read).transpose()?;
    if let Some(text) = &rates {
        Rates::parse(text).map_err(|e| CliError::Refused(e.to_string()))?;
    }
    let task = MockTask {
        url: open::url(url)?,
        interfaces: absolute(folder)?,
        instances,
        state: args.state.clone(),
        rates,
        scale: args.scale,
        evolution: args.interface.evolution.map(|policy| policy.name().to_owned()),
    };
    Ok(shares(&task, args.processes))
}

fn instances(args: &RunArgs, interfaces: &Interfaces) -> CliResult<Vec<(String, i32)>> {
    if args.all {
        return all(interfaces, &args.instances);
    }
    let named = |instance: &Instance| super::component(interfaces, &instance.component);
    let components = args.components.iter().map(named).collect::<CliResult<Vec<_>>>()?;
    check(&args.instances, components.iter().copied())?;
    let mut instances = Vec::new();
    for (instance, component) in args.components.iter().zip(components) {
        match index(component, instance)? {
            Some(index) if component.indexed() => {
                instances.push((component.name().to_owned(), index));
            }
            _ => instances.extend(of(component, &args.instances)),
        }
    }
    some(instances)
}

/// All components of the interfaces, with the instances by the rules.
pub(crate) fn all(interfaces: &Interfaces, rules: &[Instances]) -> CliResult<Vec<(String, i32)>> {
    check(rules, interfaces.components().iter())?;
    some(interfaces.components().iter().flat_map(|component| of(component, rules)).collect())
}

fn of(component: &Component, rules: &[Instances]) -> Vec<(String, i32)> {
    let name = component.name();
    indices(component, rules).into_iter().map(|index| (name.to_owned(), index)).collect()
}

fn some(instances: Vec<(String, i32)>) -> CliResult<Vec<(String, i32)>> {
    match instances.is_empty() {
        true => Err(CliError::Usage("--instances leaves nobody who could run".to_owned())),
        false => Ok(instances),
    }
}

fn here(task: &MockTask, args: &RunArgs, until: &Until) -> CliResult {
    let mut mock = task.start()?;
    told(args, std::slice::from_ref(task), &refused(&mock))?;
    let bus = Bus::connect(&task.url)?;
    let begin = bus.clock().now();
    let waited = |at| wait_until(&bus, at, || until.is_over());
    let ended = mock.publish_until(begin, task.scale, waited);
    tell_withheld(&mock);
    ended.map_err(from_mock)
}

/// Reports topics that are not published, if any.
fn tell_withheld(mock: &Mock) {
    let MockCounts { withheld, published, .. } = mock.counts();
    if withheld > 0 {
        eprintln!(
            "helio: {withheld} samples were due and not published, as the bus could not be \
             reached; {published} were"
        );
    }
}

fn in_processes(tasks: &[MockTask], args: &RunArgs, stop: &Stop, until: &Until) -> CliResult {
    let start =
        |task: &MockTask| Worker::start("component-mock", "simulated components", task, stop);
    let mut workers = tasks.iter().map(start).collect::<CliResult<Vec<_>>>()?;
    let mut refused = Ready::new();
    for worker in &mut workers {
        refused.extend(worker.reply::<Ready>()?);
    }
    told(args, tasks, &refused)?;
    while !until.is_over() {
        for worker in &mut workers {
            // No further reply comes; a worker that ended is an error.
            worker.try_reply::<()>()?;
        }
        std::thread::sleep(STOP_POLL_INTERVAL);
    }
    workers.into_iter().try_for_each(Worker::finish)
}

/// The numbers of components and instances.
pub(crate) fn counts(instances: &[(String, i32)]) -> (usize, usize) {
    let components: HashSet<&str> = instances.iter().map(|(name, _)| name.as_str()).collect();
    (components.len(), instances.len())
}

fn refused(mock: &Mock) -> Ready {
    mock.skipped().iter().map(|refused| refused.topic.clone()).collect()
}

fn told(args: &RunArgs, tasks: &[MockTask], refused: &[String]) -> CliResult {
    let mut out = Out::new();
    let all: Vec<_> = tasks.iter().flat_map(|task| task.instances.clone()).collect();
    let (components, instances) = counts(&all);
    if args.output.json {
        out.json(&json!({
            "components": components, "instances": instances, "ready": true, "refused": refused
        }))?;
    } else {
        let several = match instances > components {
            true => format!(" in {instances} instances"),
            false => String::new(),
        };
        out.line(&format!("{components} simulated components run{several}; Ctrl-C ends them"))?;
    }
    out.flush()
}

/// The process of some simulated components; it ends when its orders end.
pub(crate) fn worker(task: &MockTask) -> CliResult {
    let mut mock = task.start()?;
    say(&refused(&mock))?;
    let bus = Bus::connect(&task.url)?;
    let orders = orders::<()>();
    let begin = bus.clock().now();
    let over = || orders.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty);
    let ended = mock.publish_until(begin, task.scale, |at| wait_until(&bus, at, over));
    tell_withheld(&mock);
    ended.map_err(from_mock)?;
    Ok(())
}
