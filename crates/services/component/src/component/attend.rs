//! The thread that waits for commands, and the end of a component.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::{Event, Member, ReadError, WaitSet};
use helio_core::Codec;
use thiserror::Error;

use super::generics::LogLevel;
use super::policy::Change;
use super::shell::{Shell, locked};
use super::{Component, StartError};
use crate::lease::Lease;
use crate::protocol::SummaryState;
use crate::protocol::controller::LeaseState;

/// How often there is a heartbeat, as SAL has it.
const EVERY: Duration = Duration::from_secs(1);
/// How long handlers are waited for when the component ends; their callers are then told.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most commands of one name that are taken before something that was asked: as many as wait
/// behind one that runs, and some that are refused.
const BEFORE: usize = 256;

/// Why a component ended that was not told to, or did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its lease was lost: it was stopped for longer than the lease, and another took over.
    #[error("the lease of {identity} was lost: another instance may run; start it again")]
    LeaseLost {
        /// The component, with its index.
        identity: String,
    },
    /// The bus failed, or was closed.
    #[error("{identity} cannot read its commands: {source}")]
    Bus {
        /// The component, with its index.
        identity: String,
        /// What the bus says.
        source: ReadError,
    },
    /// A bug of ours.
    #[error("the thread of {identity} panicked; this is a bug of Heliograph")]
    Panicked {
        /// The component, with its index.
        identity: String,
    },
}

/// A component that runs, as its owner has it. Dropped, it ends and is waited for.
#[derive(Debug)]
pub struct Running {
    pub(super) component: Component,
    pub(super) thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    /// Blocks until it ends.
    ///
    /// # Errors
    /// [`RunError`] where it was not told to.
    pub fn wait(mut self) -> Result<(), RunError> {
        self.join()
    }

    /// Has it end, and waits for that.
    ///
    /// # Errors
    /// [`RunError`] where it had ended already, not being told to.
    pub fn stop(mut self) -> Result<(), RunError> {
        self.component.stop();
        self.join()
    }

    fn join(&mut self) -> Result<(), RunError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let identity = self.component.identity().to_owned();
        thread.join().unwrap_or(Err(RunError::Panicked { identity }))
    }
}

impl Deref for Running {
    type Target = Component;

    fn deref(&self) -> &Component {
        &self.component
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.component.stop();
        // Whoever wants to know asks `wait` or `stop`.
        let _ = self.join();
    }
}

/// Whose samples a member of the wait set has.
#[derive(Debug)]
pub(super) enum Source {
    Command(String),
    Control,
}

/// What the thread waits for.
pub(super) struct Attendance {
    pub shell: Arc<Shell>,
    pub set: WaitSet,
    pub sources: HashMap<Member, Source>,
    pub control: Codec,
    /// How often the lease had run out when that was last looked at.
    pub lapses: u64,
}

impl Attendance {
    /// Serves the component until it ends.
    pub(super) fn run(mut self) -> Result<(), RunError> {
        let ended = self.serve();
        let shell = Arc::clone(&self.shell);
        shell.stopping.store(true, Ordering::Release);
        let left = self.close();
        shell.handlers.close();
        shell.changes.close();
        // Handlers that do not end keep their threads; nobody hears of them any more.
        shell.handlers.join(left);
        shell.changes.join(left);
        drop(self);
        shell.end(ended.is_ok());
        ended
    }

    fn serve(&mut self) -> Result<(), RunError> {
        let mut next = Instant::now();
        loop {
            if self.shell.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            if Instant::now() >= next {
                next = Instant::now() + EVERY;
                self.every_second();
            }
            let due = self.shell.due().unwrap_or(EVERY);
            let left = next.saturating_duration_since(Instant::now());
            self.attend(left.min(due))?;
            if !self.shell.holds() {
                let identity = self.shell.identity.clone();
                return Err(RunError::LeaseLost { identity });
            }
        }
    }

    /// Waits for a sample, and takes it.
    fn attend(&mut self, timeout: Duration) -> Result<(), RunError> {
        let next = self.set.next_timeout(timeout).map_err(|source| self.failed(source))?;
        let shell = &self.shell;
        if shell.due().is_some_and(|due| due.is_zero()) {
            shell.input(|controller, now| controller.tick(now));
        }
        // A stopped process does not know that it was: who runs now is asked before each command.
        if !shell.holds() || self.slept(next.is_some())? {
            return Ok(());
        }
        let Some((member, event)) = next else { return Ok(()) };
        match (self.sources.get(&member), event) {
            (Some(Source::Command(name)), event) => self.shell.take_command(name, event),
            (Some(Source::Control), Event::Sample(sample)) => {
                self.catch_up()?;
                self.shell.control(&self.control, &sample);
            }
            _ => {}
        }
        Ok(())
    }

    fn failed(&self, source: ReadError) -> RunError {
        RunError::Bus { identity: self.shell.identity.clone(), source }
    }

    /// Whether the lease had run out and nobody took it. Callers were told that the component is
    /// gone: what lies in its topics is dropped then, to the ends that they have now, and with it
    /// what was taken.
    fn slept(&mut self, taken: bool) -> Result<bool, RunError> {
        let lapses = locked(&self.shell.lease).as_ref().map_or(self.lapses, Lease::lapses);
        if std::mem::replace(&mut self.lapses, lapses) == lapses {
            return Ok(false);
        }
        let mut dropped = u64::from(taken);
        for member in self.sources.keys() {
            let Some(samples) = self.set.get_mut(*member) else { continue };
            for at in samples.positions() {
                dropped += at.end.saturating_sub(at.next);
                let identity = || self.shell.identity.clone();
                let moved = samples.seek(at.partition, at.end);
                moved.map_err(|source| RunError::Bus { identity: identity(), source })?;
            }
        }
        let text = format!("was silent for longer than its lease; {dropped} requests are dropped");
        self.shell.log(LogLevel::Warning, &text, "");
        Ok(true)
    }

    /// Takes the commands that are there. Topics are read in no order, and what a caller sent
    /// before it asked for something comes before that: such as the command that it cancels.
    fn catch_up(&mut self) -> Result<(), RunError> {
        let Self { shell, set, sources, .. } = self;
        for (member, source) in sources {
            let (Source::Command(name), Some(samples)) = (source, set.get_mut(*member)) else {
                continue;
            };
            for _ in 0..BEFORE {
                let event = samples.try_next().map_err(|source| {
                    let identity = shell.identity.clone();
                    RunError::Bus { identity, source }
                })?;
                let Some(event) = event else { break };
                shell.take_command(name, event);
            }
        }
        Ok(())
    }

    fn every_second(&self) {
        let shell = &self.shell;
        shell.publish_heartbeat();
        shell.look_at_policy();
        if shell.state() == SummaryState::Standby {
            shell.publish_available();
        }
    }

    /// Takes nothing more, interrupts what runs, and waits for it; how much longer that may take.
    fn close(&mut self) -> Duration {
        let shell = Arc::clone(&self.shell);
        shell.input(|controller, now| controller.close(now));
        let until = Instant::now() + CLOSE_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        while !locked(&shell.protocol).controller.is_idle() {
            if left().is_zero() || self.attend(left()).is_err() {
                break;
            }
        }
        shell.input(|controller, now| controller.give_up(now));
        left()
    }
}

impl Shell {
    /// Something came on a command's topic.
    fn take_command(self: &Arc<Self>, name: &str, event: Event) {
        match event {
            Event::Sample(sample) => self.command(name, sample),
            Event::Undecodable(wrong) => self.unreadable(name, &wrong),
            Event::Gap(gap) => {
                self.input(|controller, _| controller.stream_lost(name, gap.lost));
                let text = format!("{} commands {name} never came: {:?}", gap.lost, gap.cause);
                self.log(LogLevel::Warning, &text, "");
            }
            _ => {}
        }
    }

    /// Whether the lease is held; the controller hears when it is lost.
    fn holds(self: &Arc<Self>) -> bool {
        let lease = locked(&self.lease).clone();
        let held = lease.is_some_and(|lease| lease.is_held());
        if !held {
            self.input(|controller, now| controller.lease(now, LeaseState::Lost));
        }
        held
    }

    /// In what time the controller has something to do.
    fn due(&self) -> Option<Duration> {
        let at = locked(&self.protocol).controller.wake_at()?;
        let left = at.nanos().saturating_sub(self.bus.clock().now().nanos());
        Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
    }

    fn look_at_policy(self: &Arc<Self>) {
        let mut file = locked(&self.policy);
        let Some(policy) = file.as_mut() else { return };
        let path = policy.path().display().to_string();
        let change = policy.look();
        drop(file);
        match change {
            None => {}
            Some(Change::New(policy)) => {
                self.input(|controller, _| controller.set_policy(*policy));
                self.log(LogLevel::Info, &format!("the authorization file {path} is in force"), "");
            }
            Some(Change::Wrong(text)) => self.log(LogLevel::Error, &text, ""),
        }
    }

    pub(super) fn fault(self: &Arc<Self>, code: i32, report: &str, traceback: &str) {
        self.publish_error(code, report, traceback);
        self.log(LogLevel::Error, &format!("fault {code}: {report}"), traceback);
        self.input(|controller, now| controller.fault(now, code, report));
    }

    /// Goes away: others may take the lease from then on.
    fn end(&self, held: bool) {
        if held && self.state() != SummaryState::Offline {
            self.state.store(SummaryState::Offline.number(), Ordering::Release);
            self.publish_summary(SummaryState::Offline);
        }
        drop(locked(&self.lease).take());
    }
}
