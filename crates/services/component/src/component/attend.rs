//! The thread that waits for commands, and the end of a component.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::transport::Position;
use helio_bus::{
    Event, Member, MemberError, ReadError, Subscription, Tai, TransportError, WaitSet,
};
use helio_core::Codec;
use thiserror::Error;

use super::beat::EVERY;
use super::generics::LogLevel;
use super::listen::Source;
use super::shell::{Shell, locked};
use super::{Component, StartError};
use crate::lease::{Lease, LeaseStanding};
use crate::protocol::SummaryState;

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

/// What the thread waits for.
pub(super) struct Attendance {
    pub shell: Arc<Shell>,
    pub set: WaitSet,
    pub sources: HashMap<Member, Source>,
    pub control: Codec,
    /// How often the lease had run out when that was last looked at.
    pub lapses: u64,
    pub unread: Vec<Unread>,
    /// What was opened again on other threads, and is yet to be taken here.
    pub opened: (Sender<Opened>, Receiver<Opened>),
    /// Where those go on that could not be read before.
    pub resumed: HashMap<Member, Vec<Position>>,
}

/// A topic that cannot be read now.
pub(super) struct Unread {
    source: Source,
    /// Where to go on; nowhere where it failed there twice.
    at: Vec<Position>,
    /// Whether a thread is about to open it again.
    opening: bool,
}

impl Unread {
    /// Has what was opened again go on where it was.
    fn place(&self, samples: &mut Subscription) -> Result<(), ReadError> {
        if !self.at.is_empty() {
            return self.at.iter().try_for_each(|at| samples.seek(at.partition, at.next));
        }
        // The lease may have run out since it was opened: it goes on at the end that there is now.
        samples.positions().iter().try_for_each(|at| samples.seek(at.partition, at.end))
    }
}

/// A topic that was to be opened again; `None` where it could not be.
pub(super) type Opened = (Source, Option<Subscription>);

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
        let mut next = Instant::now() + EVERY;
        while !self.shell.stopping.load(Ordering::Acquire) {
            if Instant::now() >= next {
                next = Instant::now() + EVERY;
                self.open_again();
            }
            self.read_again();
            self.attend(next.saturating_duration_since(Instant::now()))?;
        }
        // Who is asked to end may have been replaced before, and not have seen it yet.
        self.held().map(drop)
    }

    /// Whether the lease is held for sure.
    fn held(&self) -> Result<bool, RunError> {
        match self.shell.look_at_lease() {
            LeaseStanding::Held => Ok(true),
            LeaseStanding::Lapsed => Ok(false),
            LeaseStanding::Lost => {
                Err(RunError::LeaseLost { identity: self.shell.identity.clone() })
            }
        }
    }

    /// Waits for a sample, at most for a time, and takes it.
    fn attend(&mut self, timeout: Duration) -> Result<(), RunError> {
        let due = locked(&self.shell.protocol).controller.wake_at();
        let left = due.map_or(timeout, |due| timeout.min(self.shell.until(due)));
        let next = match self.set.next_timeout(left) {
            Ok(next) => next,
            Err(failed) => {
                self.unread(failed)?;
                None
            }
        };
        let shell = &self.shell;
        if due.is_some_and(|due| shell.until(due).is_zero()) {
            shell.input(|controller, now| controller.tick(now));
        }
        // A stopped process does not know that it was: who runs now is asked before each command.
        let held = self.held()?;
        let unsure = self.shell.unsure.load(Ordering::Acquire);
        if !unsure && self.slept(next.is_some())? {
            return Ok(());
        }
        if let Some((member, event)) = next {
            self.take(member, event)?;
        }
        if unsure && held { self.go_on() } else { Ok(()) }
    }

    /// Has commands run again. What came while nobody could tell who has the lease is answered
    /// before, as far as there is room for it; the rest is dropped.
    fn go_on(&mut self) -> Result<(), RunError> {
        let members: Vec<_> = self.sources.keys().copied().collect();
        for member in members {
            for _ in 0..BEFORE {
                let Some(samples) = self.set.get_mut(member) else { break };
                match samples.try_next() {
                    Ok(None) => break,
                    Ok(Some(event)) => self.take(member, event)?,
                    Err(source) => {
                        self.unread(MemberError { member, source })?;
                        break;
                    }
                }
            }
        }
        self.slept(false)?;
        self.shell.hold_again();
        Ok(())
    }

    fn take(&mut self, member: Member, event: Event) -> Result<(), RunError> {
        match (self.sources.get(&member), event) {
            (Some(Source::Command(name)), event) => self.shell.take_command(name, event),
            (Some(Source::Control), Event::Sample(sample)) => {
                self.catch_up()?;
                self.shell.control(&self.control, &sample);
            }
            (Some(Source::Control), event) => self.shell.missed(&event),
            (None, _) => {}
        }
        Ok(())
    }

    /// A topic cannot be read. The others go on without it, unless there is none.
    fn unread(&mut self, failed: MemberError) -> Result<(), RunError> {
        let MemberError { member, source: error } = failed;
        let closed = matches!(error, ReadError::Transport(TransportError::Closed));
        let at = self.set.remove(member).map_or_else(Vec::new, |samples| samples.positions());
        let source = self.sources.remove(&member);
        if closed || self.sources.is_empty() {
            let identity = self.shell.identity.clone();
            return Err(RunError::Bus { identity, source: error });
        }
        let Some(source) = source else { return Ok(()) };
        // What fails again at its place is passed over.
        let stuck = self.resumed.remove(&member).is_some_and(|resumed| same_place(&resumed, &at));
        let text = format!("{source} cannot be read: {error}; all others are");
        self.shell.log(LogLevel::Error, &text, "");
        let at = if stuck { Vec::new() } else { at };
        self.unread.push(Unread { source, at, opening: false });
        Ok(())
    }

    /// Subscribes again to what could not be read, on threads that may wait for files and locks.
    fn open_again(&mut self) {
        for unread in self.unread.iter_mut().filter(|unread| !unread.opening) {
            unread.opening = true;
            let (shell, source) = (Arc::clone(&self.shell), unread.source.clone());
            let opened = self.opened.0.clone();
            self.shell.openings.run(Box::new(move || {
                let samples = shell.listen(&source).ok().flatten();
                // Who has ended meanwhile does not take it.
                let _ = opened.send((source, samples));
                shell.wake();
            }));
        }
    }

    /// Takes what was opened again, to go on where it was.
    fn read_again(&mut self) {
        while let Ok((source, samples)) = self.opened.1.try_recv() {
            let Some(which) = self.unread.iter().position(|unread| unread.source == source) else {
                continue;
            };
            self.unread[which].opening = false;
            let Some(mut samples) = samples else { continue };
            if self.unread[which].place(&mut samples).is_err() {
                continue;
            }
            let unread = self.unread.swap_remove(which);
            let member = self.set.add(samples);
            let from = if unread.at.is_empty() { "; what lay there is not taken" } else { "" };
            let text = format!("{} are read again{from}", unread.source);
            self.shell.log(LogLevel::Info, &text, "");
            self.sources.insert(member, unread.source);
            self.resumed.insert(member, unread.at);
        }
    }

    /// Whether the lease had run out and nobody took it. Callers were told that the component is
    /// gone: what lies in its topics is dropped then, to the ends that they have now, and with it
    /// what was taken.
    fn slept(&mut self, taken: bool) -> Result<bool, RunError> {
        let lapses = locked(&self.shell.lease).as_ref().map_or(self.lapses, Lease::lapses);
        if std::mem::replace(&mut self.lapses, lapses) == lapses {
            return Ok(false);
        }
        let (mut dropped, mut failed) = (u64::from(taken), Vec::new());
        for member in self.sources.keys() {
            let Some(samples) = self.set.get_mut(*member) else { continue };
            for at in samples.positions() {
                dropped += at.end.saturating_sub(at.next);
                if let Err(source) = samples.seek(at.partition, at.end) {
                    failed.push(MemberError { member: *member, source });
                }
            }
        }
        failed.into_iter().try_for_each(|failed| self.unread(failed))?;
        // Where those go on that cannot be read, since long or since now, is long ago too.
        self.unread.iter_mut().for_each(|unread| unread.at.clear());
        let text = format!("was silent for longer than its lease; {dropped} requests are dropped");
        self.shell.log(LogLevel::Warning, &text, "");
        Ok(true)
    }

    /// Takes the commands that are there. Topics are read in no order, and what a caller sent
    /// before it asked for something comes before that: such as the command that it cancels.
    fn catch_up(&mut self) -> Result<(), RunError> {
        let Self { shell, set, sources, .. } = self;
        let mut failed = Vec::new();
        for (member, source) in sources {
            let (Source::Command(name), Some(samples)) = (source, set.get_mut(*member)) else {
                continue;
            };
            for _ in 0..BEFORE {
                match samples.try_next() {
                    Ok(None) => break,
                    Ok(Some(event)) => shell.take_command(name, event),
                    Err(source) => {
                        failed.push(MemberError { member: *member, source });
                        break;
                    }
                }
            }
        }
        failed.into_iter().try_for_each(|failed| self.unread(failed))
    }

    /// Takes nothing more, interrupts what runs, and waits for it; how much longer that may take.
    fn close(&mut self) -> Duration {
        let shell = Arc::clone(&self.shell);
        shell.input(|controller, now| controller.close(now));
        let until = Instant::now() + CLOSE_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        while !locked(&shell.protocol).controller.is_idle() {
            // Without the lease handlers are waited for all the same.
            let bus = matches!(self.attend(left()), Err(RunError::Bus { .. }));
            if bus || left().is_zero() {
                break;
            }
        }
        shell.input(|controller, now| controller.give_up(now));
        left()
    }
}

/// Whether nothing was read between two places.
fn same_place(one: &[Position], other: &[Position]) -> bool {
    let next = |all: &[Position]| all.iter().map(|at| at.next).collect::<Vec<_>>();
    next(one) == next(other)
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

    /// Something that was asked besides commands was not received.
    fn missed(self: &Arc<Self>, event: &Event) {
        match event {
            Event::Undecodable(wrong) => self.unreadable_request(&wrong.reason),
            Event::Gap(gap) => {
                let text = format!("{} requests on control never came: {:?}", gap.lost, gap.cause);
                self.log(LogLevel::Warning, &text, "");
            }
            _ => {}
        }
    }

    /// The time that is left until an instant.
    fn until(&self, instant: Tai) -> Duration {
        let left = instant.nanos().saturating_sub(self.bus.clock().now().nanos());
        Duration::from_nanos(u64::try_from(left).unwrap_or(0))
    }

    pub(super) fn fault(self: &Arc<Self>, code: i32, report: &str, traceback: &str) {
        self.input(|controller, now| {
            // Under the lock: between the two nobody leads out of FAULT and clears the code.
            self.say_fault(code, report, traceback);
            controller.fault(now, code, report);
        });
    }

    /// Goes away: others may take the lease from then on.
    pub(super) fn end(self: &Arc<Self>, held: bool) {
        self.ended.set();
        self.settle_last();
        if held && self.state() != SummaryState::Offline {
            self.state.store(SummaryState::Offline.number(), Ordering::Release);
            self.say_summary(SummaryState::Offline);
        }
        self.publish_last();
        for pool in [&self.beats, &self.lines, &self.openings] {
            pool.close();
            // One that waits for a topic or a file ends when it can.
            pool.join(EVERY);
        }
        drop(locked(&self.lease).take());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failing_mount, topic, until};

    #[test]
    fn after_a_lapse_a_topic_that_fails_then_goes_on_at_its_end() {
        let (builder, _bus, cable) = failing_mount();
        let mut attendance = builder.attendance().unwrap();
        let all = attendance.set.len();
        cable.break_topic(&topic("command/stop"));
        attendance.lapses = u64::MAX;
        assert!(attendance.slept(false).unwrap());
        let [unread] = &attendance.unread[..] else { panic!("it is read") };
        assert!(unread.at.is_empty(), "what lay there before the lapse would be run");
        assert_eq!(attendance.set.len(), all - 1);
        cable.mend_topic(&topic("command/stop"));
        // Another thread opens it, and this one takes it when that is done.
        attendance.open_again();
        assert!(attendance.unread[0].opening);
        assert_eq!(attendance.set.len(), all - 1);
        until(|| {
            attendance.read_again();
            attendance.unread.is_empty()
        });
        assert_eq!((attendance.set.len(), attendance.sources.len()), (all, all));
    }
}
