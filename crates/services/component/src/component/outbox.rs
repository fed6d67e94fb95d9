//! The queue of a component's acknowledgements, events and audit records; a blocked topic does not
//! block the others.
//!
//! Constraints. Messages are decided and queued under the protocol's lock, so they have one order.
//! They are published outside that lock, on the thread that queued them. None of these publishes
//! waits for another process. A message that would have to wait, or fails, goes to its topic's
//! line, and later messages of that topic queue behind it. A thread of the line publishes them,
//! waits as long as necessary, and retries each second; other topics continue. Only
//! acknowledgements wait for other topics: an acknowledgement waits until earlier messages are
//! published or have failed.
//!
//! A message whose arrival is unknown is published once more, and not a third time. A duplicate
//! acknowledgement, audit record or state is harmless; a missing one is not.
//!
//! A line is bounded ([`MAX_BLOCKED_MESSAGES`]). Transient messages (progress, log messages) are
//! dropped first, and at the first failure. Then the oldest is dropped; in the audit's line the
//! newest, because a record of what was done matters more than a later refusal. Dropped messages
//! are counted.
//!
//! Operation. Callers call [`put`](Outbox::put) under the lock and [`publish`](Outbox::publish)
//! after it. One thread publishes at a time; others wait microseconds for it. When `publish`
//! returns, every message that its caller queued is published or in its line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{PendingPublish, PublishError, TransportError};

use crate::send::TrySend;

/// The most pending messages of one topic: some minutes of twenty commands a second.
pub(super) const MAX_BLOCKED_MESSAGES: usize = 10_000;
/// How often a failed publish is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long acknowledgements wait for earlier messages that are being tried: as long as a publish
/// waits for a lock whose holder is stopped.
const ACK_ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Audit,
    Event(&'static str),
    Log,
    Acks,
}

impl Line {
    /// Whether acknowledgements wait for earlier messages of this line.
    fn precedes_acks(self) -> bool {
        matches!(self, Self::Audit | Self::Event(_))
    }

    /// A description of the line's messages for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Audit => "records of the audit",
            Self::Acks => "acknowledgements",
            Self::Log => "log messages",
            Self::Event(name) => name,
        }
    }
}

/// A message in the outbox.
pub(super) trait OutboxItem {
    /// The line it belongs to.
    fn line(&self) -> Line;
    /// Whether it is transient: of no value later.
    fn is_transient(&self) -> bool;
    /// Publishes it even if its values did not change; its first publish did not arrive.
    fn force(&mut self);
}

/// Why a message was not published.
#[derive(Debug)]
pub(super) struct PublishFailure {
    pub reason: String,
    pub action: FailureAction,
}

/// What follows a failed publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureAction {
    Retry,
    /// Its arrival is unknown: publish once more. If that result is unknown too, the message counts
    /// as published.
    Repeat,
    /// Every further attempt would fail.
    Drop,
}

impl FailureAction {
    /// Classifies an error of the bus.
    pub(super) fn after(error: &PublishError) -> Self {
        match error {
            PublishError::Unknown { .. } => Self::Repeat,
            PublishError::NoPartition { .. }
            | PublishError::Encode(_)
            | PublishError::Transport(
                TransportError::TooLarge { .. }
                | TransportError::Unsupported { .. }
                | TransportError::Closed,
            ) => Self::Drop,
            _ => Self::Retry,
        }
    }
}

/// The unpublished messages of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unpublished {
    /// Still pending.
    pub pending: usize,
    /// Transient messages that were dropped.
    pub transient: u64,
    /// Messages beyond the line's limit that were dropped.
    pub shed: u64,
    pub reason: Option<String>,
}

impl std::fmt::Display for Unpublished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pending, transient, shed, reason } = self;
        let counts =
            [(*pending as u64, "pending"), (*transient, "discarded"), (*shed, "over the limit")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        let reason = reason.as_deref().unwrap_or("blocked");
        write!(f, "{} ({reason})", counts.join(", "))
    }
}

pub(super) struct Outbox<E> {
    turn: Mutex<()>,
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    /// Queued messages that were not tried yet.
    queued: VecDeque<E>,
    /// Pending messages of blocked topics.
    blocked: BTreeMap<Line, BlockedLine<E>>,
    closed: bool,
}

/// The pending messages of a blocked topic.
struct BlockedLine<E> {
    pending: VecDeque<E>,
    /// Whether the line's thread is publishing one of them.
    publishing: bool,
    /// The pending receipt of the first message, if the transport already has it.
    in_flight: Option<PendingPublish>,
    /// Whether the first message may have arrived.
    maybe_published: bool,
    blocked_at: Instant,
    retry_at: Option<Instant>,
    unpublished: Unpublished,
}

/// The next step of a line's thread.
enum LineStep<E> {
    Publish(E, Option<PendingPublish>),
    /// The line is empty, or the outbox is closed.
    End(Unpublished),
}

impl<E: OutboxItem> Outbox<E> {
    pub(super) fn new() -> Self {
        let state = State { queued: VecDeque::new(), blocked: BTreeMap::new(), closed: false };
        Self { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Queues a message. It costs one push and may be called under any lock.
    pub(super) fn put(&self, message: E) {
        locked(&self.state).queued.push_back(message);
    }

    /// Publishes the queued messages that nothing blocks; returns the lines that became blocked. A
    /// thread must [catch up](Self::catch_up) with each of them.
    pub(super) fn publish(
        &self,
        publish_one: impl Fn(&E) -> Result<TrySend, PublishFailure>,
    ) -> Vec<Line> {
        let _turn = locked(&self.turn);
        let mut started = Vec::new();
        while let Some(message) = self.next_unblocked(&mut started) {
            let (in_flight, maybe_published) = match publish_one(&message) {
                Ok(TrySend::Done) | Err(PublishFailure { action: FailureAction::Drop, .. }) => {
                    continue;
                }
                Ok(TrySend::WouldBlock)
                | Err(PublishFailure { action: FailureAction::Retry, .. }) => (None, false),
                Ok(TrySend::Pending(publishing)) => (Some(publishing), false),
                Err(PublishFailure { action: FailureAction::Repeat, .. }) => (None, true),
            };
            started.push(locked(&self.state).block(message, in_flight, maybe_published));
        }
        started
    }

    /// The next message that nothing blocks; blocked ones before it go to their lines.
    fn next_unblocked(&self, started: &mut Vec<Line>) -> Option<E> {
        let mut state = locked(&self.state);
        loop {
            let message = state.queued.pop_front()?;
            let line = message.line();
            if let Some(blocked) = state.blocked.get_mut(&line) {
                blocked.push(message);
            } else if line == Line::Acks && state.tried_until().is_some() {
                started.push(state.block(message, None, false));
            } else {
                return Some(message);
            }
        }
    }

    /// Whether a line has pending messages; `None` after closing, when the rest is removed.
    pub(super) fn holds(&self, line: Line) -> Option<bool> {
        let state = locked(&self.state);
        (!state.closed).then(|| state.blocked.contains_key(&line))
    }

    /// Publishes a line's messages until it is empty; returns the messages that were lost.
    pub(super) fn catch_up(
        &self,
        line: Line,
        publish_one: impl Fn(&E) -> Result<(), PublishFailure>,
    ) -> Unpublished {
        loop {
            let (mut message, in_flight) = match self.next_step(line) {
                LineStep::Publish(message, in_flight) => (message, in_flight),
                LineStep::End(unpublished) => return unpublished,
            };
            let published = match in_flight.map(PendingPublish::wait) {
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => {
                    message.force();
                    Err(PublishFailure {
                        reason: error.to_string(),
                        action: FailureAction::after(&error),
                    })
                }
                None => publish_one(&message),
            };
            let mut state = locked(&self.state);
            if let Some(blocked) = state.blocked.get_mut(&line) {
                blocked.settle(message, published);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until the first message of a line may be tried, and takes it.
    fn next_step(&self, line: Line) -> LineStep<E> {
        let mut state = locked(&self.state);
        loop {
            let (closed, until) = (state.closed, state.not_before(line));
            let Some(blocked) = state.blocked.get_mut(&line) else {
                return LineStep::End(Unpublished::default());
            };
            if closed || blocked.pending.is_empty() {
                let unpublished = state.end(line);
                drop(state);
                self.changed.notify_all();
                return LineStep::End(unpublished);
            }
            if let Some(until) = until {
                state = self.wait(state, until);
            } else if let Some(message) = blocked.pending.pop_front() {
                blocked.publishing = true;
                return LineStep::Publish(message, blocked.in_flight.take());
            }
        }
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State<E>>,
        until: Instant,
    ) -> MutexGuard<'a, State<E>> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until no message is pending, at most for `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = locked(&self.state);
        while !state.blocked.is_empty() && Instant::now() < until {
            state = self.wait(state, until);
        }
    }

    /// Ends the threads of all lines; returns the unpublished messages.
    pub(super) fn close(&self) -> Vec<(Line, Unpublished)> {
        let mut state = locked(&self.state);
        state.closed = true;
        let lines: Vec<Line> = state.blocked.keys().copied().collect();
        let unpublished = lines.into_iter().map(|line| (line, state.end(line))).collect();
        drop(state);
        self.changed.notify_all();
        unpublished
    }
}

impl<E: OutboxItem> State<E> {
    /// Starts a line.
    fn block(
        &mut self,
        message: E,
        in_flight: Option<PendingPublish>,
        maybe_published: bool,
    ) -> Line {
        let line = message.line();
        let blocked = BlockedLine {
            pending: VecDeque::from([message]),
            publishing: false,
            in_flight,
            maybe_published,
            blocked_at: Instant::now(),
            retry_at: None,
            unpublished: Unpublished::default(),
        };
        self.blocked.insert(line, blocked);
        line
    }

    /// The earliest time for the first message of a line, if it is in the future.
    fn not_before(&self, line: Line) -> Option<Instant> {
        let retry_at = self.blocked.get(&line).and_then(|blocked| blocked.retry_at);
        let before = self.tried_until().filter(|_| line == Line::Acks);
        retry_at.max(before).filter(|until| Instant::now() < *until)
    }

    /// The time until which messages before acknowledgements are tried for the first time, if there
    /// are any.
    fn tried_until(&self) -> Option<Instant> {
        let first = self
            .blocked
            .iter()
            .filter(|(line, blocked)| line.precedes_acks() && blocked.unpublished.reason.is_none());
        let until = first.map(|(_, blocked)| blocked.blocked_at + ACK_ORDER_TIMEOUT).max();
        until.filter(|until| Instant::now() < *until)
    }

    fn end(&mut self, line: Line) -> Unpublished {
        let blocked = self.blocked.remove(&line);
        blocked.map_or_else(Unpublished::default, |blocked| {
            let pending = blocked.pending.len() + usize::from(blocked.publishing);
            Unpublished { pending, ..blocked.unpublished }
        })
    }
}

impl<E: OutboxItem> BlockedLine<E> {
    fn push(&mut self, message: E) {
        if self.pending.len() < MAX_BLOCKED_MESSAGES {
            return self.pending.push_back(message);
        }
        // The first may be in flight or may have arrived.
        let first =
            usize::from(!self.publishing && (self.in_flight.is_some() || self.maybe_published));
        let oldest = match self.pending.iter().skip(first).position(OutboxItem::is_transient) {
            Some(at) => Some(first + at),
            None if message.is_transient() || message.line() == Line::Audit => None,
            None => Some(first),
        };
        let dropped = match oldest.and_then(|at| self.pending.remove(at)) {
            Some(oldest) => {
                self.pending.push_back(message);
                oldest
            }
            None => message,
        };
        match dropped.is_transient() {
            true => self.unpublished.transient += 1,
            false => self.unpublished.shed += 1,
        }
    }

    /// Records the result of the message that was taken.
    fn settle(&mut self, message: E, published: Result<(), PublishFailure>) {
        self.publishing = false;
        self.retry_at = None;
        let maybe_published = std::mem::take(&mut self.maybe_published);
        let Err(failure) = published else { return };
        self.unpublished.reason = Some(failure.reason);
        match failure.action {
            FailureAction::Drop => return,
            FailureAction::Repeat if maybe_published => return,
            action => {
                let unknown = maybe_published || action == FailureAction::Repeat;
                self.maybe_published = unknown && !message.is_transient();
            }
        }
        self.pending.push_front(message);
        let before = self.pending.len();
        self.pending.retain(|pending| !pending.is_transient());
        self.unpublished.transient += (before - self.pending.len()) as u64;
        self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    use helio_bus::pending_receipt;
    use helio_bus::transport::Published;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct TestMessage(Line, u32, bool);

    impl OutboxItem for TestMessage {
        fn line(&self) -> Line {
            self.0
        }

        fn is_transient(&self) -> bool {
            self.2
        }

        fn force(&mut self) {
            self.1 += FORCED;
        }
    }

    /// Added to the number of a message that is forced.
    const FORCED: u32 = 1_000;

    const STATE: Line = Line::Event("summaryState");

    fn message(line: Line, number: u32) -> TestMessage {
        TestMessage(line, number, false)
    }

    fn transient(line: Line, number: u32) -> TestMessage {
        TestMessage(line, number, true)
    }

    fn outbox(messages: impl IntoIterator<Item = TestMessage>) -> Arc<Outbox<TestMessage>> {
        let outbox = Outbox::new();
        messages.into_iter().for_each(|message| outbox.put(message));
        Arc::new(outbox)
    }

    fn refused() -> PublishFailure {
        PublishFailure { reason: "no room".to_owned(), action: FailureAction::Retry }
    }

    fn unknown() -> PublishError {
        PublishError::Unknown { cause: "no answer".to_owned() }
    }

    fn doubted() -> PublishFailure {
        PublishFailure { reason: unknown().to_string(), action: FailureAction::after(&unknown()) }
    }

    /// Publishes everything but the messages of one blocked topic.
    fn publish(outbox: &Outbox<TestMessage>, stuck: Line) -> (Vec<Line>, Vec<u32>) {
        let said = Mutex::new(Vec::new());
        let begun = outbox.publish(|message| {
            if message.0 == stuck {
                return Ok(TrySend::WouldBlock);
            }
            locked(&said).push(message.1);
            Ok(TrySend::Done)
        });
        (begun, said.into_inner().unwrap())
    }

    /// A thread that catches up with a line; each publish waits for its result.
    fn thread(
        outbox: &Arc<Outbox<TestMessage>>,
        line: Line,
    ) -> (Receiver<u32>, Sender<Result<(), PublishFailure>>, JoinHandle<Unpublished>) {
        let (said, hears) = channel();
        let (answer, answers) = channel();
        let outbox = Arc::clone(outbox);
        let thread = std::thread::spawn(move || {
            outbox.catch_up(line, |message| {
                said.send(message.1).unwrap();
                answers.recv().unwrap()
            })
        });
        (hears, answer, thread)
    }

    #[test]
    fn what_is_put_is_published_in_order_by_who_put_it() {
        let outbox = outbox([message(Line::Audit, 1), message(STATE, 2), message(Line::Acks, 3)]);
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![1, 2, 3]));
    }

    #[test]
    fn a_topic_that_is_held_up_holds_up_no_other_and_keeps_its_order() {
        let outbox = outbox([message(Line::Acks, 1), message(STATE, 2), message(Line::Acks, 3)]);
        assert_eq!(publish(&outbox, Line::Acks), (vec![Line::Acks], vec![2]));
        outbox.put(message(Line::Acks, 4));
        outbox.put(message(STATE, 5));
        // Messages behind it wait, although the topic would accept them now.
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![5]));
        let (hears, answer, thread) = thread(&outbox, Line::Acks);
        for number in [1, 3, 4] {
            assert_eq!(hears.recv().unwrap(), number);
            answer.send(Ok(())).unwrap();
        }
        assert_eq!(thread.join().unwrap(), Unpublished::default());
        outbox.put(message(Line::Acks, 6));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![6]));
    }

    #[test]
    fn what_counts_later_is_tried_again_and_what_passes_is_not() {
        let line = Line::Acks;
        let outbox =
            outbox([transient(line, 1), message(line, 2), transient(line, 3), message(line, 4)]);
        assert_eq!(publish(&outbox, line), (vec![line], vec![]));
        let (hears, answer, thread) = thread(&outbox, line);
        assert_eq!(hears.recv().unwrap(), 1);
        answer.send(Err(refused())).unwrap();
        assert_eq!(hears.recv().unwrap(), 2);
        answer.send(Err(refused())).unwrap();
        for number in [2, 4] {
            assert_eq!(hears.recv().unwrap(), number);
            answer.send(Ok(())).unwrap();
        }
        let missing = thread.join().unwrap();
        assert_eq!((missing.pending, missing.transient, missing.shed), (0, 2, 0));
    }

    #[test]
    fn acknowledgements_wait_for_what_came_before_until_it_has_failed() {
        let outbox = outbox([message(STATE, 1), message(Line::Acks, 2)]);
        assert_eq!(publish(&outbox, STATE), (vec![STATE, Line::Acks], vec![]));
        let not_before = |line: Line| locked(&outbox.state).not_before(line);
        assert_eq!(not_before(STATE), None);
        assert!(not_before(Line::Acks).is_some(), "an acknowledgement comes before the state");
        let (state, answer, first) = thread(&outbox, STATE);
        assert_eq!(state.recv().unwrap(), 1);
        assert!(not_before(Line::Acks).is_some(), "it comes while the state is on its way");
        let (acks, done, second) = thread(&outbox, Line::Acks);
        answer.send(Err(refused())).unwrap();
        assert_eq!(acks.recv().unwrap(), 2);
        assert_eq!(not_before(Line::Acks), None);
        done.send(Ok(())).unwrap();
        second.join().unwrap();
        // New acknowledgements do not wait: the state may take hours.
        outbox.put(message(Line::Acks, 3));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![3]));
        assert_eq!(state.recv().unwrap(), 1);
        answer.send(Ok(())).unwrap();
        first.join().unwrap();
    }

    #[test]
    fn what_may_have_arrived_is_published_once_more_and_no_more() {
        let tried = |outbox: &Outbox<TestMessage>, line: Line| {
            let said = Mutex::new(Vec::new());
            let missing = outbox.catch_up(line, |message| {
                let mut said = locked(&said);
                said.push(message.1);
                assert!(said.len() < 3, "it is published for ever");
                Err(doubted())
            });
            assert_eq!(missing.pending, 0);
            said.into_inner().unwrap()
        };
        // The result was unknown at once, and so was that of the repetition.
        let line = Line::Audit;
        let told = outbox([message(line, 1)]);
        assert_eq!(told.publish(|_| Err(doubted())), [line]);
        assert_eq!(tried(&told, line), [1]);
        // The first one was not tried here.
        let held = outbox([message(line, 1), transient(line, 2)]);
        publish(&held, line);
        assert_eq!(tried(&held, line), [1, 1]);
        // The result came later.
        let sent = outbox([message(line, 1)]);
        let (ticket, pending) = pending_receipt();
        let underway = Cell::new(Some(PendingPublish::from(Ok(Published::Pending(pending)))));
        assert_eq!(sent.publish(|_| Ok(TrySend::Pending(underway.take().unwrap()))), [line]);
        ticket.complete(Err(unknown()));
        assert_eq!(tried(&sent, line), [1 + FORCED]);
    }

    #[test]
    fn once_closed_nobody_knows_whether_something_waits() {
        let outbox = outbox([message(Line::Audit, 1)]);
        assert_eq!(outbox.holds(Line::Audit), Some(false));
        publish(&outbox, Line::Audit);
        assert_eq!(outbox.holds(Line::Audit), Some(true));
        outbox.close();
        assert_eq!(outbox.holds(Line::Audit), None);
    }

    #[test]
    fn a_line_is_bounded_and_what_is_shed_is_counted() {
        let bound = MAX_BLOCKED_MESSAGES as u32;
        let kept = |line: Line| {
            let numbers =
                (0..bound + 3).map(|n| if n == 5 { transient(line, n) } else { message(line, n) });
            let outbox = outbox(numbers);
            publish(&outbox, line);
            let (said, hears) = channel();
            let thread = Arc::clone(&outbox);
            let missing = thread.catch_up(line, |message| {
                said.send(message.1).unwrap();
                Ok(())
            });
            assert_eq!((missing.transient, missing.shed), (1, 2));
            let said: Vec<u32> = hears.try_iter().collect();
            (said[0], said[said.len() - 1])
        };
        assert_eq!(kept(Line::Acks), (2, bound + 2), "the oldest go");
        assert_eq!(kept(Line::Audit), (0, bound), "the newest go");
    }

    #[test]
    fn closing_waits_for_a_time_and_says_what_is_missing() {
        let outbox = outbox([message(Line::Audit, 1), message(Line::Audit, 2)]);
        publish(&outbox, Line::Audit);
        let (hears, answer, thread) = thread(&outbox, Line::Audit);
        assert_eq!(hears.recv().unwrap(), 1);
        answer.send(Err(refused())).unwrap();
        assert_eq!(hears.recv().unwrap(), 1);
        outbox.flush(Duration::ZERO);
        let missing = outbox.close();
        answer.send(Err(refused())).unwrap();
        thread.join().unwrap();
        let [(Line::Audit, missing)] = &missing[..] else { panic!("{missing:?}") };
        assert_eq!((missing.pending, missing.reason.as_deref()), (2, Some("no room")));
        outbox.put(message(Line::Acks, 3));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![3]));
    }
}
