//! The machine's clocks, and this process's CPU time, memory and load.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long before its time a sender stops sleeping and spins: the overshoot of a sleep.
const SPIN_NS: u64 = 200_000;

fn nanos(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The machine's monotonic clock in nanoseconds: the same for every process of this machine.
pub fn monotonic_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

/// CPU seconds of this process so far, in user and system mode, over all its threads.
pub fn cpu_s() -> f64 {
    nanos(ClockId::ProcessCPUTime) as f64 * 1e-9
}

/// CPU seconds of the calling thread so far.
pub fn thread_cpu_s() -> f64 {
    nanos(ClockId::ThreadCPUTime) as f64 * 1e-9
}

/// Sleeps until shortly before `at_ns` of the monotonic clock, then spins. The overshoot of a sleep
/// would count as latency.
pub fn wait_until(at_ns: u64) {
    let early = at_ns.saturating_sub(monotonic_ns() + SPIN_NS);
    if early > 0 {
        std::thread::sleep(Duration::from_nanos(early));
    }
    while monotonic_ns() < at_ns {
        std::hint::spin_loop();
    }
}

/// Peak resident memory of this process in megabytes (`VmHWM`); 0 if unknown.
pub fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// The machine's load average over one minute; 0 if unknown.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_never_early() {
        let at = monotonic_ns() + 300_000;
        wait_until(at);
        assert!(monotonic_ns() >= at);
        assert!(thread_cpu_s() > 0.0 && cpu_s() >= thread_cpu_s());
        assert!(peak_rss_mb() > 0.0);
    }
}
