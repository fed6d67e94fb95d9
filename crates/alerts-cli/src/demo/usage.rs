//! Processor time and memory of the demo's processes, as the kernel counts them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

/// How often memory is read: 200 processes take 1 % of a processor.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// The unit of processor time in `/proc` (proc(5)): `USER_HZ` of Linux's interface.
const TICKS_PER_S: f64 = 100.0;

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

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<u32, &'static str>,
    used: BTreeMap<&'static str, Usage>,
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
        let state = Arc::<Mutex<State>>::default();
        let of_thread = Arc::clone(&state);
        let run = move || {
            while !lock(&of_thread).is_over {
                sample(&mut lock(&of_thread));
                std::thread::park_timeout(SAMPLE_INTERVAL);
            }
        };
        Self { state, thread: Some(std::thread::spawn(run)) }
    }

    /// Follows a process.
    pub(super) fn add(&self, process: u32, role: &'static str) {
        let mut state = lock(&self.state);
        state.running.insert(process, role);
        state.used.entry(role).or_default().processes += 1;
    }

    /// Counts a process that is about to end, or be killed.
    pub(super) fn retire(&self, process: u32) {
        let mut state = lock(&self.state);
        sample(&mut state);
        if let Some(role) = state.running.remove(&process) {
            state.used.entry(role).or_default().cpu_s += cpu_s(process).unwrap_or_default();
        }
    }

    /// The usage of processes that have ended, by role.
    pub(super) fn used(&self) -> BTreeMap<&'static str, Usage> {
        lock(&self.state).used.clone()
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

fn sample(state: &mut State) {
    let mut totals: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (process, role) in &state.running {
        let Some(anon_mb) = anon_mb(*process) else { continue };
        *totals.entry(role).or_default() += anon_mb;
        let used = state.used.entry(role).or_default();
        used.most_anon_mb = used.most_anon_mb.max(anon_mb);
    }
    for (role, total) in totals {
        let used = state.used.entry(role).or_default();
        used.most_total_mb = used.most_total_mb.max(total);
    }
}

/// The anonymous memory of a process, megabytes of 10^6 bytes.
fn anon_mb(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024.0 * 1e-6)
}

/// The processor seconds of a process and of its children that have ended.
fn cpu_s(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command's name is in brackets and may contain spaces. The four times begin at field 14.
    let fields = text.rsplit_once(')')?.1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured() {
        let own = std::process::id();
        assert!(anon_mb(own).is_some_and(|mb| mb > 0.1) && cpu_s(own).is_some());
        let meter = Meter::start();
        meter.add(own, "test");
        meter.retire(own);
        let used = meter.used()["test"];
        assert!(used.processes == 1 && used.most_anon_mb > 0.1, "{used:?}");
    }
}
