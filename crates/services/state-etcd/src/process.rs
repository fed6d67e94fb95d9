//! Figures of this process, by the names of Prometheus' clients. Source: proc(5).

use std::fs;

/// The kernel's ticks of times that it shows to programs, on all of Linux' platforms.
const TICKS_PER_S: f64 = 100.0;

/// Name, kind, description and value of each figure that the system gives.
pub(crate) fn figures() -> Vec<(&'static str, &'static str, &'static str, f64)> {
    let limits = read("/proc/self/limits");
    let rows = [
        (
            "process_cpu_seconds_total",
            "counter",
            "Processor time of this process, in seconds.",
            ticks(13).zip(ticks(14)).map(|(user, system)| user + system),
        ),
        (
            "process_max_fds",
            "gauge",
            "The most files that this process may have open.",
            word_after(&limits, "Max open files"),
        ),
        ("process_open_fds", "gauge", "Files that this process has open.", open_files()),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory of this process, mapped files that are in memory included, in bytes.",
            kilobytes("VmRSS:"),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When this process started, in seconds since 1970.",
            ticks(21)
                .zip(word_after(&read("/proc/stat"), "btime"))
                .map(|(after, boot)| boot + after),
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Addresses of this process, in bytes.",
            kilobytes("VmSize:"),
        ),
    ];
    let known =
        |(name, kind, help, value): (_, _, _, Option<f64>)| Some((name, kind, help, value?));
    rows.into_iter().filter_map(known).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first number behind a name.
fn word_after(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn kilobytes(name: &str) -> Option<f64> {
    word_after(&read("/proc/self/status"), name).map(|kilobytes| kilobytes * 1024.0)
}

/// A field of `/proc/self/stat`, counted from 0, in seconds.
fn ticks(field: usize) -> Option<f64> {
    let text = read("/proc/self/stat");
    // The second field is the program's name in parentheses, which may have blanks.
    let (_, rest) = text.rsplit_once(") ")?;
    let ticks: f64 = rest.split(' ').nth(field - 2)?.parse().ok()?;
    Some(ticks / TICKS_PER_S)
}

fn open_files() -> Option<f64> {
    // One of them is the folder that is read.
    fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as f64)
}
