//! Support of both test binaries: domains on the loopback, processes, services.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod domain;

use std::io::{BufReader, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::{Bus, TopicSpec};
use helio_dds::durability::{Durability, Notice, Timeouts};

pub(crate) use domain::domain;

/// A domain's URL, with unicast on the loopback, which works where multicast is filtered. The wait
/// for a durability service is shorter than the default.
pub(crate) fn url(domain: u32) -> String {
    helio_dds::register();
    format!("dds://{domain}?interface=lo&multicast=false&service_ms=500")
}

/// Prints that a test is skipped, and why; fails if skipping is not allowed.
pub(crate) fn skipped(why: &str) {
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // `eprintln!` output of a passing test is captured.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// The name of a module's test `child`, for `--exact`.
pub(crate) fn child_of(module: &str) -> String {
    let (_crate_name, module) = module.split_once("::").unwrap_or(("", ""));
    [module, "child"].join("::").trim_start_matches("::").to_owned()
}

/// Reads up to the line with which a test program announces one test. Fails if the program ends
/// before, or runs no test.
pub(crate) fn await_child(lines: &mut impl std::io::BufRead) {
    let mut line = String::new();
    while !line.starts_with("running ") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the process has ended");
    }
    assert_eq!(line.trim_end(), "running 1 test");
}

/// A process of the same test program in a role: see the test `child` of each module.
pub(crate) struct Process {
    child: std::process::Child,
    // Further output is ignored, but the pipe must stay open.
    _lines: BufReader<std::process::ChildStdout>,
}

impl Process {
    pub(crate) fn start(module: &str, role: &str, url: &str) -> Self {
        Self::run(std::process::Command::new(std::env::current_exe().unwrap()), module, role, url)
    }

    /// The same by a command that runs the test program, to which the arguments are appended.
    pub(crate) fn run(
        mut command: std::process::Command,
        module: &str,
        role: &str,
        url: &str,
    ) -> Self {
        let child = command
            .args(["--exact", &child_of(module), "--nocapture"])
            .env("HELIO_TEST_ROLE", role)
            .env("HELIO_TEST_URL", url)
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        await_child(&mut lines);
        Self { child, _lines: lines }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process; returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// A durability service in this process.
pub(crate) struct Service(Arc<Shared>, Option<JoinHandle<()>>);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Whether it should stall, and whether it does.
    still: [AtomicBool; 2],
    notices: Mutex<Vec<Notice>>,
}

impl Service {
    pub(crate) fn start(url: &str, folder: &Path) -> Self {
        Self::start_timed(url, folder, Timeouts::default())
    }

    pub(crate) fn start_timed(url: &str, folder: &Path, timeouts: Timeouts) -> Self {
        Self::start_with(url, folder, Shared::default(), timeouts)
    }

    /// Starts a service that announces its folder and then stalls.
    pub(crate) fn start_still(url: &str, folder: &Path) -> Self {
        let still = [true, true].map(AtomicBool::new);
        Self::start_with(url, folder, Shared { still, ..Shared::default() }, Timeouts::default())
    }

    fn start_with(url: &str, folder: &Path, shared: Shared, timeouts: Timeouts) -> Self {
        let shared = Arc::new(shared);
        let told = Arc::clone(&shared);
        let mut service = Durability::open_with(url, folder, timeouts).unwrap();
        let run = move || {
            let mut tell = |notice: Notice| told.notices.lock().unwrap().push(notice);
            while !told.stop.load(Ordering::Acquire) {
                let still = told.still[0].load(Ordering::Acquire);
                told.still[1].store(still, Ordering::Release);
                if still {
                    std::thread::sleep(Duration::from_millis(1));
                } else {
                    service.turn(Duration::from_millis(50), &mut tell).unwrap();
                }
            }
        };
        Self(shared, Some(std::thread::spawn(run)))
    }

    /// Makes the service stall as if it waited for a disk, or resume.
    pub(crate) fn stand_still(&self, still: bool) {
        self.0.still[0].store(still, Ordering::Release);
        while self.0.still[1].load(Ordering::Acquire) != still {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a notice that was not returned before.
    pub(crate) fn await_notice(&self, wanted: impl Fn(&Notice) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !self.has_told(&wanted) {
            let notices = self.0.notices.lock().unwrap();
            assert!(Instant::now() < until, "it never told so, but {notices:?}");
            drop(notices);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether there is such a notice; removes the notices up to it.
    pub(crate) fn has_told(&self, wanted: impl Fn(&Notice) -> bool) -> bool {
        let mut notices = self.0.notices.lock().unwrap();
        let told = notices.iter().position(wanted);
        told.into_iter().for_each(|place| drop(notices.drain(..=place)));
        told.is_some()
    }
}

/// Waits until a service's folder has so many samples of a topic.
pub(crate) fn await_kept(folder: &Path, topic: &str, count: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    let journal = format!("journal:{}?access=read", folder.display());
    let kept = || -> Option<u64> {
        let bus = Bus::connect(&journal).ok()?;
        let topic = bus.topic(TopicSpec::new(topic).ok()?).ok()?;
        Some(topic.partitions().ok()?.iter().map(|partition| partition.end).sum())
    };
    while kept().is_none_or(|kept| kept < count) {
        assert!(Instant::now() < until, "{:?} of {count} are kept", kept());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The service has all samples of the other services.
pub(crate) fn is_ready(notice: &Notice) -> bool {
    matches!(notice, Notice::Ready { .. })
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        let thread = self.1.take();
        thread.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
