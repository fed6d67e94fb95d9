//! The thread that reads commands, and the end of a component.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::transport::{Position, locked};
use helio_bus::{
    Event, Member, MemberError, ReadError, Subscription, Tai, TransportError, WaitSet,
};
use helio_core::Codec;
use thiserror::Error;

use super::engine::{Engine, Threads};
use super::generics::LogLevel;
use super::periodic::HEARTBEAT_INTERVAL;
use super::subscriptions::CommandSource;
use super::{Component, StartError};
use crate::lease::{Lease, LeaseError, LeaseStanding};
use crate::protocol::SummaryState;
use crate::records::{ControlAction, ControlRecord};

/// How long the end of a component waits for handlers; then their callers get a final
/// acknowledgement.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most commands of one name that are processed before a control request: as many as queue
/// behind a running one, and some that are refused.
const MAX_DRAINED_SAMPLES: usize = 256;

/// How often a fence is polled whose place the engine has not told yet.
const FENCE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why a component ended without being asked to, or did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its lease was lost: it was stopped for longer than the lease timeout, and another instance
    /// took over.
    #[error("the lease of {identity} was lost: another instance may run; start it again")]
    LeaseLost {
        /// The component, with its index.
        identity: String,
    },
    /// A component of other software runs under its name. One command must not run twice, so this
    /// one has ended.
    #[error(transparent)]
    Foreign(LeaseError),
    /// The bus failed, or was closed.
    #[error("{identity} cannot read its commands: {source}")]
    Bus {
        /// The component, with its index.
        identity: String,
        /// The bus's error.
        source: ReadError,
    },
    /// An internal error.
    #[error("the thread of {identity} panicked; this is a bug of Heliograph")]
    Panicked {
        /// The component, with its index.
        identity: String,
    },
}

/// A running component, as its owner holds it. Dropping it stops the component and waits for its
/// end.
#[derive(Debug)]
pub struct Running {
    pub(super) component: Component,
    pub(super) thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    /// Blocks until the component ends.
    ///
    /// # Errors
    /// [`RunError`] if it ended without being asked to.
    pub fn wait(mut self) -> Result<(), RunError> {
        self.join()
    }

    /// Stops the component and waits for its end.
    ///
    /// # Errors
    /// [`RunError`] if it had ended before, without being asked to.
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
        // An owner that needs the result calls `wait` or `stop`.
        let _ = self.join();
    }
}

/// The state of the command thread.
pub(super) struct CommandLoop {
    pub engine: Arc<Engine>,
    pub set: WaitSet,
    pub sources: HashMap<Member, CommandSource>,
    pub control: Codec,
    /// The lease's lapse count at the last check.
    pub lapses: u64,
    /// The requests from before a lapse that are yet to be fetched.
    pub lapsed: LapsedRequests,
    pub failed_sources: Vec<FailedSource>,
    /// Subscriptions that other threads reopened and this thread has not taken yet.
    pub opened: (Sender<Reopened>, Receiver<Reopened>),
    /// The positions at which reopened subscriptions resumed.
    pub resumed: HashMap<Member, Vec<Position>>,
}

/// Requests that were stored when a lapse was noticed, and were not fetched yet: they must not run.
#[derive(Default)]
pub(super) struct LapsedRequests {
    /// The topics whose fence was not passed yet.
    fenced: HashSet<Member>,
    /// How many were dropped since the lapse was noticed.
    dropped: u64,
}

impl LapsedRequests {
    /// Skips what is known to be stored, and sets a fence behind everything that is. Returns how
    /// many requests are skipped.
    fn skip(&mut self, member: Member, samples: &mut Subscription) -> Result<u64, ReadError> {
        self.fenced.insert(member);
        let mut skipped = 0;
        for at in samples.positions() {
            skipped += at.end.saturating_sub(at.next);
            samples.seek(at.partition, at.end)?;
        }
        samples.set_fence().map(|()| skipped)
    }

    /// Whether an event is such a request; it is counted. A request that was read before the
    /// engine told where the fence is counts as one, too.
    fn holds(
        &mut self,
        member: Member,
        samples: &mut Subscription,
        event: &Event,
    ) -> Result<bool, ReadError> {
        let sample = match event {
            Event::Sample(sample) => sample,
            Event::Undecodable(wrong) => &wrong.sample,
            _ => return Ok(false),
        };
        if !self.fenced.contains(&member) {
            return Ok(false);
        }
        samples.knows_fence()?;
        let held = samples.is_before_fence(sample.partition, sample.offset);
        self.dropped += u64::from(held);
        Ok(held)
    }
}

/// A topic that cannot be read at present.
pub(super) struct FailedSource {
    source: CommandSource,
    /// The position to resume at; empty after a second failure at the same position.
    at: Vec<Position>,
    /// Whether a thread is reopening it.
    opening: bool,
}

impl FailedSource {
    /// Moves a reopened subscription to the position of the failed one.
    fn place(&self, samples: &mut Subscription) -> Result<(), ReadError> {
        self.at.iter().try_for_each(|at| samples.seek(at.partition, at.next))
    }
}

/// The result of reopening a topic; `None` if it failed.
pub(super) type Reopened = (CommandSource, Option<Subscription>);

impl CommandLoop {
    /// Runs the component until it ends.
    pub(super) fn run(mut self) -> Result<(), RunError> {
        let ended = self.serve();
        let engine = Arc::clone(&self.engine);
        engine.shutdown.request();
        let left = self.close();
        engine.threads.handlers.close();
        engine.threads.state_changes.close();
        // Handlers that do not end keep their threads; their results are discarded.
        engine.threads.handlers.join(left);
        engine.threads.state_changes.join(left);
        drop(self);
        engine.end(ended.is_ok());
        ended
    }

    fn serve(&mut self) -> Result<(), RunError> {
        let mut next = Instant::now() + HEARTBEAT_INTERVAL;
        while !self.engine.shutdown.is_requested() {
            if Instant::now() >= next {
                next = Instant::now() + HEARTBEAT_INTERVAL;
                self.reopen();
            }
            self.take_reopened();
            self.poll(next.saturating_duration_since(Instant::now()))?;
        }
        // A component that is asked to end may have been replaced before without noticing.
        self.held().map(drop)
    }

    /// Whether the lease is certainly held.
    fn held(&self) -> Result<bool, RunError> {
        match self.engine.check_lease() {
            LeaseStanding::Held => Ok(true),
            LeaseStanding::Lapsed => Ok(false),
            LeaseStanding::Lost => {
                let foreign = locked(&self.engine.lease).as_ref().and_then(Lease::foreign);
                let identity = || self.engine.outputs.identity().to_owned();
                Err(foreign.map_or_else(
                    || RunError::LeaseLost { identity: identity() },
                    RunError::Foreign,
                ))
            }
        }
    }

    /// Waits for a sample, at most for `timeout`, and processes it.
    fn poll(&mut self, timeout: Duration) -> Result<(), RunError> {
        let due = locked(&self.engine.protocol).controller.wake_at();
        let left = due.map_or(timeout, |due| timeout.min(self.engine.until(due)));
        let left = if self.pass_fences()? { left } else { left.min(FENCE_POLL_INTERVAL) };
        let next = match self.set.next_timeout(left) {
            Ok(next) => next,
            Err(failed) => {
                self.source_failed(failed)?;
                None
            }
        };
        let engine = &self.engine;
        if due.is_some_and(|due| engine.until(due).is_zero()) {
            engine.input(|controller, now| controller.tick(now));
        }
        // A stopped process does not notice the stop: check the lease before each command.
        let held = self.held()?;
        let unconfirmed = self.engine.unconfirmed.load(Ordering::Acquire);
        if !unconfirmed && self.check_lapse(next.is_some())? {
            return Ok(());
        }
        if let Some((member, event)) = next {
            self.take(member, event)?;
        }
        if unconfirmed && held { self.resume() } else { Ok(()) }
    }

    /// Accepts commands again after an outage. Requests that arrived while the lease was
    /// unconfirmed are answered first, up to a limit; the others are dropped.
    fn resume(&mut self) -> Result<(), RunError> {
        let members: Vec<_> = self.sources.keys().copied().collect();
        for member in members {
            for _ in 0..MAX_DRAINED_SAMPLES {
                let Some(samples) = self.set.get_mut(member) else { break };
                match samples.try_next() {
                    Ok(None) => break,
                    Ok(Some(event)) => self.take(member, event)?,
                    Err(source) => {
                        self.source_failed(MemberError { member, source })?;
                        break;
                    }
                }
            }
        }
        self.check_lapse(false)?;
        self.engine.resume_lease();
        Ok(())
    }

    fn take(&mut self, member: Member, event: Event) -> Result<(), RunError> {
        if let Some(samples) = self.set.get_mut(member) {
            match self.lapsed.holds(member, samples, &event) {
                Ok(held) if held && !self.cancels(member, &event) => return Ok(()),
                Ok(_) => {}
                Err(source) => return self.source_failed(MemberError { member, source }),
            }
        }
        match (self.sources.get(&member), event) {
            (Some(CommandSource::Command(name)), event) => self.engine.take_command(name, event),
            (Some(CommandSource::Control), Event::Sample(sample)) => {
                self.catch_up()?;
                self.engine.control(&self.control, &sample);
            }
            (Some(CommandSource::Control), event) => self.engine.missed(&event),
            (None, _) => {}
        }
        Ok(())
    }

    /// Whether an event is the cancellation of a command: it is processed, however late it is read.
    fn cancels(&mut self, member: Member, event: &Event) -> bool {
        let (Some(CommandSource::Control), Event::Sample(sample)) =
            (self.sources.get(&member), event)
        else {
            return false;
        };
        let asked = self.control.deserialize::<ControlRecord>(&sample.payload);
        let cancels = asked.is_ok_and(|asked| matches!(asked.action, ControlAction::Cancel));
        self.lapsed.dropped -= u64::from(cancels);
        cancels
    }

    /// Forgets the fences that were passed, and reports how many requests were dropped. Returns
    /// whether the engine has told where all the others are.
    fn pass_fences(&mut self) -> Result<bool, RunError> {
        if self.lapsed.fenced.is_empty() {
            return Ok(true);
        }
        let (mut known, mut failed) = (true, Vec::new());
        self.lapsed.fenced.retain(|member| {
            let Some(samples) = self.set.get_mut(*member) else { return false };
            let passed = samples.knows_fence().and_then(|knows| {
                known &= knows;
                samples.has_passed_fence()
            });
            match passed {
                Ok(passed) => !passed,
                Err(source) => {
                    failed.push(MemberError { member: *member, source });
                    true
                }
            }
        });
        failed.into_iter().try_for_each(|failed| self.source_failed(failed))?;
        if self.lapsed.fenced.is_empty() && self.lapsed.dropped > 0 {
            let dropped = std::mem::take(&mut self.lapsed.dropped);
            let text = format!("{dropped} more requests that were stored are dropped");
            self.engine.log(LogLevel::Warning, &text, "");
        }
        Ok(known)
    }

    /// Handles a topic that cannot be read. The others continue, unless it was the last one.
    fn source_failed(&mut self, failed: MemberError) -> Result<(), RunError> {
        let MemberError { member, source: error } = failed;
        let closed = matches!(error, ReadError::Transport(TransportError::Closed));
        let at = self.set.remove(member).map_or_else(Vec::new, |samples| samples.positions());
        let source = self.sources.remove(&member);
        if closed || self.sources.is_empty() {
            let identity = self.engine.outputs.identity().to_owned();
            return Err(RunError::Bus { identity, source: error });
        }
        let Some(source) = source else { return Ok(()) };
        // What is unread there from before a lapse must not run.
        let lapsed = self.lapsed.fenced.remove(&member);
        // A second failure at the same position skips the data there.
        let stuck = self.resumed.remove(&member).is_some_and(|resumed| same_place(&resumed, &at));
        let text = format!("{source} cannot be read: {error}; all others are");
        self.engine.log(LogLevel::Error, &text, "");
        let at = if stuck || lapsed { Vec::new() } else { at };
        self.failed_sources.push(FailedSource { source, at, opening: false });
        Ok(())
    }

    /// Resubscribes to failed topics, on threads that may block on files and locks.
    fn reopen(&mut self) {
        for unread in self.failed_sources.iter_mut().filter(|unread| !unread.opening) {
            unread.opening = true;
            let (engine, source) = (Arc::clone(&self.engine), unread.source.clone());
            let opened = self.opened.0.clone();
            self.engine.threads.reopening.run(move || {
                let samples = engine.listen(&source).ok().flatten();
                // A component that has ended in the meantime does not take it.
                let _ = opened.send((source, samples));
                engine.shutdown.wake();
            });
        }
    }

    /// Takes the reopened subscriptions and resumes them at their positions.
    fn take_reopened(&mut self) {
        while let Ok((source, samples)) = self.opened.1.try_recv() {
            let Some(which) = self.failed_sources.iter().position(|unread| unread.source == source)
            else {
                continue;
            };
            self.failed_sources[which].opening = false;
            let Some(mut samples) = samples else { continue };
            if self.failed_sources[which].place(&mut samples).is_err() {
                continue;
            }
            let unread = self.failed_sources.swap_remove(which);
            let member = self.set.add(samples);
            // It may have been opened before a lapse, and not all that is stored may be fetched.
            if unread.at.is_empty()
                && let Some(samples) = self.set.get_mut(member)
                && self.lapsed.skip(member, samples).is_err()
            {
                self.lapsed.fenced.remove(&member);
                self.set.remove(member);
                self.failed_sources.push(unread);
                continue;
            }
            let from = if unread.at.is_empty() { "; stored requests are skipped" } else { "" };
            let text = format!("{} are read again{from}", unread.source);
            self.engine.log(LogLevel::Info, &text, "");
            self.sources.insert(member, unread.source);
            self.resumed.insert(member, unread.at);
        }
    }

    /// Whether the lease lapsed without another instance taking over. Callers were notified that
    /// the component is gone, so the requests that its topics store now are dropped, and with them
    /// the one just read. Those that were not fetched yet are dropped when they arrive.
    fn check_lapse(&mut self, taken: bool) -> Result<bool, RunError> {
        let lapses = locked(&self.engine.lease).as_ref().map_or(self.lapses, Lease::lapses);
        if std::mem::replace(&mut self.lapses, lapses) == lapses {
            return Ok(false);
        }
        let (mut dropped, mut failed) = (u64::from(taken), Vec::new());
        for member in self.sources.keys() {
            let Some(samples) = self.set.get_mut(*member) else { continue };
            match self.lapsed.skip(*member, samples) {
                Ok(skipped) => dropped += skipped,
                Err(source) => failed.push(MemberError { member: *member, source }),
            }
        }
        failed.into_iter().try_for_each(|failed| self.source_failed(failed))?;
        // The positions of topics that cannot be read are outdated as well.
        self.failed_sources.iter_mut().for_each(|unread| unread.at.clear());
        let text = format!("the lease had lapsed; {dropped} requests are dropped");
        self.engine.log(LogLevel::Warning, &text, "");
        Ok(true)
    }

    /// Processes the pending commands. Topics are read in no particular order, but a caller's
    /// command must be processed before that caller's later control request, such as its
    /// cancellation.
    fn catch_up(&mut self) -> Result<(), RunError> {
        let Self { engine, set, sources, lapsed, .. } = self;
        let mut failed = Vec::new();
        for (member, source) in sources {
            let (CommandSource::Command(name), Some(samples)) = (source, set.get_mut(*member))
            else {
                continue;
            };
            for _ in 0..MAX_DRAINED_SAMPLES {
                let next = samples.try_next().and_then(|event| {
                    let Some(event) = event else { return Ok(None) };
                    let held = lapsed.holds(*member, samples, &event)?;
                    Ok(Some((event, held)))
                });
                match next {
                    Ok(None) => break,
                    Ok(Some((_, true))) => {}
                    Ok(Some((event, false))) => engine.take_command(name, event),
                    Err(source) => {
                        failed.push(MemberError { member: *member, source });
                        break;
                    }
                }
            }
        }
        failed.into_iter().try_for_each(|failed| self.source_failed(failed))
    }

    /// Stops accepting requests, interrupts running handlers and waits for them; returns the rest
    /// of the timeout.
    fn close(&mut self) -> Duration {
        let engine = Arc::clone(&self.engine);
        engine.input(|controller, now| controller.close(now));
        let until = Instant::now() + CLOSE_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        while !locked(&engine.protocol).controller.is_idle() {
            // Without the lease, handlers are still waited for.
            let bus = matches!(self.poll(left()), Err(RunError::Bus { .. }));
            if bus || left().is_zero() {
                break;
            }
        }
        engine.input(|controller, now| controller.give_up(now));
        left()
    }
}

/// Whether nothing was read between two positions.
fn same_place(one: &[Position], other: &[Position]) -> bool {
    let next = |all: &[Position]| all.iter().map(|at| at.next).collect::<Vec<_>>();
    next(one) == next(other)
}

impl Engine {
    /// Processes an event of a command's topic.
    fn take_command(self: &Arc<Self>, name: &str, event: Event) {
        match event {
            Event::Sample(sample) => self.command(name, sample),
            Event::Undecodable(wrong) => self.unreadable(name, wrong),
            Event::Gap(gap) => {
                self.input(|controller, _| controller.stream_lost(name, gap.lost));
                let text = format!("{} commands {name} were lost: {:?}", gap.lost, gap.cause);
                self.log(LogLevel::Warning, &text, "");
            }
            _ => {}
        }
    }

    /// Reports a control request that was lost or cannot be decoded.
    fn missed(self: &Arc<Self>, event: &Event) {
        match event {
            Event::Undecodable(wrong) => self.unreadable_request(&wrong.reason),
            Event::Gap(gap) => {
                let text = format!("{} control requests were lost: {:?}", gap.lost, gap.cause);
                self.log(LogLevel::Warning, &text, "");
            }
            _ => {}
        }
    }

    /// The time left until an instant.
    fn until(&self, instant: Tai) -> Duration {
        let left = instant.nanos().saturating_sub(self.now().nanos());
        Duration::from_nanos(u64::try_from(left).unwrap_or(0))
    }

    pub(super) fn fault(self: &Arc<Self>, code: i32, report: &str, traceback: &str) {
        self.input(|controller, now| {
            // Under the lock, so that no command leaves FAULT and clears the code in between.
            self.outputs.queue_fault(code, report, traceback);
            controller.fault(now, code, report);
        });
    }

    /// Ends the component; afterwards another instance may take the lease.
    pub(super) fn end(self: &Arc<Self>, held: bool) {
        self.shutdown.ended.set();
        self.settle_last();
        if held && self.outputs.state() != SummaryState::Offline {
            self.outputs.state.store(SummaryState::Offline.number(), Ordering::Release);
            self.outputs.queue_summary(SummaryState::Offline);
        }
        self.publish_last();
        let Threads { periodic, outbox_lines, reopening, .. } = &self.threads;
        for pool in [periodic, outbox_lines, reopening] {
            pool.close();
            // A thread that waits for a topic or a file ends when it can.
            pool.join(HEARTBEAT_INTERVAL);
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
        let mut command_loop = builder.command_loop().unwrap();
        let all = command_loop.set.len();
        cable.break_topic(&topic("command/stop"));
        command_loop.lapses = u64::MAX;
        assert!(command_loop.check_lapse(false).unwrap());
        let [unread] = &command_loop.failed_sources[..] else { panic!("it is read") };
        assert!(unread.at.is_empty(), "requests from before the lapse would run");
        assert_eq!(command_loop.set.len(), all - 1);
        cable.mend_topic(&topic("command/stop"));
        // Another thread opens it; this thread takes it afterwards.
        command_loop.reopen();
        assert!(command_loop.failed_sources[0].opening);
        assert_eq!(command_loop.set.len(), all - 1);
        until(|| {
            command_loop.take_reopened();
            command_loop.failed_sources.is_empty()
        });
        assert_eq!((command_loop.set.len(), command_loop.sources.len()), (all, all));
    }
}
