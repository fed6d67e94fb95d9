//! What processes use of processors, memory and disk, as the kernel counts it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_console::usage;
use serde::Serialize;

/// How often memory is read: 200 processes take 1 % of a processor.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// The most samples: four hours of them.
const MAX_SAMPLES: usize = 57_600;

/// Processor time and memory of the processes of a role.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Usage {
    /// Processes that were started.
    pub(super) processes: u64,
    /// Processor seconds of all, their children included.
    pub(super) cpu_s: f64,
    /// The most anonymous memory of one process (`RssAnon`), megabytes.
    pub(super) most_anon_mb: f64,
    /// The most of all at one time.
    pub(super) most_total_mb: f64,
}

/// What one process used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessUse {
    /// Processor seconds, its children included.
    pub(super) cpu_s: f64,
    /// The most anonymous memory (`RssAnon`), megabytes.
    pub(super) most_anon_mb: f64,
    /// Megabytes that the kernel read for it from disks.
    pub(super) read_mb: f64,
    /// Megabytes of files that it changed, which the kernel writes to disks.
    pub(super) written_mb: f64,
}

/// What all processes of a role used in an interval.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sample {
    /// Seconds since the meter was started.
    pub(super) at_s: f64,
    /// By role: processors in use, megabytes of anonymous memory, megabytes written a second.
    pub(super) roles: BTreeMap<&'static str, [f64; 3]>,
    /// Megabytes a second through the loopback interface: the traffic of all local connections.
    pub(super) loopback_mb_per_s: f64,
}

/// A process that runs.
#[derive(Debug, Clone, Copy)]
struct Running {
    role: &'static str,
    /// What it had used when it was added.
    before: ProcessUse,
    /// What it has used since.
    used: ProcessUse,
}

struct State {
    begun: Instant,
    running: BTreeMap<u32, Running>,
    used: BTreeMap<&'static str, Usage>,
    ended: Vec<(&'static str, ProcessUse)>,
    samples: Vec<Sample>,
    loopback_mb: [f64; 2],
    is_over: bool,
}

/// Follows processes. Dropping it ends its thread.
pub(super) struct Meter {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meter {
    pub(super) fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            begun: Instant::now(),
            running: BTreeMap::new(),
            used: BTreeMap::new(),
            ended: Vec::new(),
            samples: Vec::new(),
            loopback_mb: [loopback_mb().unwrap_or_default(); 2],
            is_over: false,
        }));
        let of_thread = Arc::clone(&state);
        let run = move || {
            while !lock(&of_thread).is_over {
                lock(&of_thread).sample();
                std::thread::park_timeout(SAMPLE_INTERVAL);
            }
        };
        Self { state, thread: Some(std::thread::spawn(run)) }
    }

    /// Follows a process; what it used before does not count.
    pub(super) fn add(&self, process: u32, role: &'static str) {
        let before = process_use(process).unwrap_or_default();
        let mut state = lock(&self.state);
        state.running.insert(process, Running { role, before, used: ProcessUse::default() });
        state.used.entry(role).or_default().processes += 1;
    }

    /// Counts a process that is about to end, or be killed.
    pub(super) fn retire(&self, process: u32) {
        let mut state = lock(&self.state);
        state.follow(process);
        let Some(running) = state.running.remove(&process) else { return };
        let used = state.used.entry(running.role).or_default();
        used.cpu_s += running.used.cpu_s;
        used.most_anon_mb = used.most_anon_mb.max(running.used.most_anon_mb);
        state.ended.push((running.role, running.used));
    }

    /// The usage of processes that have ended, by role.
    pub(super) fn used(&self) -> BTreeMap<&'static str, Usage> {
        lock(&self.state).used.clone()
    }

    /// What each process used that has ended, with its role.
    pub(super) fn processes(&self) -> Vec<(&'static str, ProcessUse)> {
        lock(&self.state).ended.clone()
    }

    /// Megabytes through the loopback interface since the start, until the last sample.
    pub(super) fn loopback_mb(&self) -> f64 {
        let [begin, end] = lock(&self.state).loopback_mb;
        end - begin
    }

    /// What was used over time.
    pub(super) fn samples(&self) -> Vec<Sample> {
        lock(&self.state).samples.clone()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        lock(&self.state).is_over = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl State {
    /// Reads what a process has used; returns how much more that is than before.
    fn follow(&mut self, process: u32) -> Option<ProcessUse> {
        let running = self.running.get_mut(&process)?;
        let (now, old) = (process_use(process)?, running.used);
        let used = ProcessUse {
            cpu_s: now.cpu_s - running.before.cpu_s,
            most_anon_mb: old.most_anon_mb.max(now.most_anon_mb),
            read_mb: now.read_mb - running.before.read_mb,
            written_mb: now.written_mb - running.before.written_mb,
        };
        running.used = used;
        Some(ProcessUse {
            cpu_s: used.cpu_s - old.cpu_s,
            most_anon_mb: now.most_anon_mb,
            read_mb: used.read_mb - old.read_mb,
            written_mb: used.written_mb - old.written_mb,
        })
    }

    fn sample(&mut self) {
        let at_s = self.begun.elapsed().as_secs_f64();
        let seconds = (at_s - self.samples.last().map_or(0.0, |last| last.at_s)).max(1e-3);
        let mut roles: BTreeMap<&'static str, [f64; 3]> = BTreeMap::new();
        for process in self.running.keys().copied().collect::<Vec<_>>() {
            let Some(more) = self.follow(process) else { continue };
            let Some(running) = self.running.get(&process) else { continue };
            let total = roles.entry(running.role).or_default();
            total[0] += more.cpu_s / seconds;
            total[1] += more.most_anon_mb;
            total[2] += more.written_mb / seconds;
        }
        for (role, [_, anon_mb, _]) in &roles {
            let used = self.used.entry(role).or_default();
            used.most_total_mb = used.most_total_mb.max(*anon_mb);
        }
        let loopback_mb = loopback_mb().unwrap_or_default();
        let loopback_mb_per_s = (loopback_mb - self.loopback_mb[1]) / seconds;
        self.loopback_mb[1] = loopback_mb;
        if self.samples.len() < MAX_SAMPLES {
            // Digits that say nothing make results long.
            let round = |number: f64| (number * 1e3).round() * 1e-3;
            let roles = roles.into_iter().map(|(role, of)| (role, of.map(round))).collect();
            let (at_s, loopback_mb_per_s) = (round(at_s), round(loopback_mb_per_s));
            self.samples.push(Sample { at_s, roles, loopback_mb_per_s });
        }
    }
}

/// What a process has used so far; its memory is that of now, in megabytes of 10^6 bytes.
fn process_use(process: u32) -> Option<ProcessUse> {
    let used = usage::ProcessUse::of(process)?;
    // Other users' are not readable.
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let bytes = |name| usage::number(&io, name).unwrap_or_default();
    Some(ProcessUse {
        cpu_s: used.cpu_s,
        most_anon_mb: used.anonymous_bytes * 1e-6,
        read_mb: bytes("read_bytes:") * 1e-6,
        written_mb: bytes("write_bytes:") * 1e-6,
    })
}

/// The megabytes that went through the loopback interface.
fn loopback_mb() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/net/dev").ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|bytes| bytes * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured() {
        let own = std::process::id();
        assert!(process_use(own).is_some_and(|used| used.most_anon_mb > 0.1));
        let meter = Meter::start();
        meter.add(own, "test");
        meter.retire(own);
        let used = meter.used()["test"];
        assert!(used.processes == 1 && used.most_anon_mb > 0.1, "{used:?}");
        assert_eq!(meter.processes().len(), 1);
    }
}
