//! Domains of one's own on the loopback.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
pub(crate) struct Service(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Service {
    pub(crate) fn start(url: &str, folder: &Path) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let mut service = Durability::open(url, folder).unwrap();
        let run = move || {
            while !stopped.load(Ordering::Acquire) {
                service.turn(Duration::from_millis(50), &mut |_: Notice| {}).unwrap();
            }
        };
        Self(stop, Some(std::thread::spawn(run)))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        let thread = self.1.take();
        thread.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
