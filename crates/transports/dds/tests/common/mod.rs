//! Domains of one's own on the loopback.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::{Bus, TopicSpec};
use helio_dds::durability::{Durability, Notice};

/// A domain that no other test of this machine uses, most likely: by process and turn.
pub(crate) fn domain() -> u32 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    (std::process::id() + TURN.fetch_add(97, Ordering::Relaxed)) % 231
}

/// Its URL, with unicast on the loopback: right where multicast is filtered.
pub(crate) fn url(domain: u32) -> String {
    helio_dds::register();
    format!("dds://{domain}?interface=lo&multicast=false")
}

/// Says that a test is skipped, and why; fails where nothing may be, as the engines' programs do.
pub(crate) fn skipped(why: &str) {
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// Processes of the same test program, each in a role: see the test `child` of each file.
pub(crate) struct Process(std::process::Child);

impl Process {
    pub(crate) fn start(role: &str, url: &str) -> Self {
        Self::run(std::process::Command::new(std::env::current_exe().unwrap()), role, url)
    }

    /// The same by a command that runs the test program, which is to be its last argument so far.
    pub(crate) fn run(mut command: std::process::Command, role: &str, url: &str) -> Self {
        let child = command
            .args(["--exact", "child", "--nocapture"])
            .env("HELIO_TEST_ROLE", role)
            .env("HELIO_TEST_URL", url)
            .stdout(std::process::Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; gives its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// A durability service in this process.
pub(crate) struct Service(Arc<Shared>, Option<JoinHandle<()>>);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Whether it is to stand still, and does so.
    still: [AtomicBool; 2],
    notices: Mutex<Vec<Notice>>,
}

impl Service {
    pub(crate) fn start(url: &str, folder: &Path) -> Self {
        Self::start_with(url, folder, Shared::default())
    }

    /// It has said what it has, and does nothing yet.
    pub(crate) fn start_still(url: &str, folder: &Path) -> Self {
        let still = [true, true].map(AtomicBool::new);
        Self::start_with(url, folder, Shared { still, ..Shared::default() })
    }

    fn start_with(url: &str, folder: &Path, shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let told = Arc::clone(&shared);
        let mut service = Durability::open(url, folder).unwrap();
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

    /// Has it stand still, as a thread does that waits for a disk, or go on.
    pub(crate) fn stand_still(&self, still: bool) {
        self.0.still[0].store(still, Ordering::Release);
        while self.0.still[1].load(Ordering::Acquire) != still {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it has told something that it had not told the last time.
    pub(crate) fn await_notice(&self, wanted: impl Fn(&Notice) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !self.has_told(&wanted) {
            let notices = self.0.notices.lock().unwrap();
            assert!(Instant::now() < until, "it never told so, but {notices:?}");
            drop(notices);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it has.
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

/// It has what others have of a topic.
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
