//! A worker ends with its supervisor, whatever it does, and not with the thread that started it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{filter, numbers, python, selected};

/// Set in the supervisor's process of the test below.
const SUPERVISOR: &str = "HELIO_SANDBOX_TEST_SUPERVISOR";
/// It only keeps a failed test from hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Not a test by itself: the supervisor that is killed.
#[test]
fn supervisor() {
    if std::env::var_os(SUPERVISOR).is_none() {
        return;
    }
    let python = python().unwrap();
    let mut filter = filter(
        &python,
        "import os, time\nif batch.rows == 10: raise LookupError(os.getpid())\ntime.sleep(1e6)",
    );
    println!("\nworker {}", selected(&mut filter).unwrap_err());
    filter.select(&numbers(3)).unwrap();
}

#[test]
fn a_worker_ends_with_a_killed_supervisor() {
    if python().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "orphan::supervisor", "--nocapture"]).env(SUPERVISOR, "1");
    let mut supervisor = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(supervisor.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("LookupError: ")).unwrap();
    let pid: u32 = line["LookupError: ".len()..].parse().unwrap();
    let status = format!("/proc/{pid}/status");
    assert!(Path::new(&status).exists());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let start = Instant::now();
    // Gone, or a zombie where nobody waits for orphans.
    let ended = || std::fs::read_to_string(&status).map_or(true, |s| s.contains("State:\tZ"));
    while !ended() {
        assert!(start.elapsed() < HANG_TIMEOUT, "worker {pid} is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_worker_outlives_the_thread_that_started_it() {
    let Some(python) = python() else { return };
    let start = move || filter(&python, "return batch['n'] > 8");
    let mut filter = std::thread::spawn(start).join().unwrap();
    for _ in 0..3 {
        assert_eq!(selected(&mut filter).unwrap(), [9]);
    }
}
