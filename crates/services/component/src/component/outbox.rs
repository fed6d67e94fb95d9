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

use helio_bus::{PendingPublish, PublishError, TransportError};

use super::engine::locked;
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
    fn comes_first(self) -> bool {
        matches!(self, Self::Audit | Self::Event(_))
    }
}

/// A message in the outbox.
pub(super) trait OutboxItem {
    /// The line it belongs to.
    fn line(&self) -> Line;
    /// Whether it is transient: of no value later.
    fn passes(&self) -> bool;
    /// Makes it publish even if its values did not change; its first publish did not arrive.
    fn insist(&mut self);
}

/// Why a message was not published.
#[derive(Debug)]
pub(super) struct PublishFailure {
    pub reason: String,
    pub then: FailureAction,
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
    pub waiting: usize,
    /// Transient messages that were dropped.
    pub passed: u64,
    /// Messages beyond the line's limit that were dropped.
    pub shed: u64,
    pub reason: Option<String>,
}

pub(super) struct Outbox<E> {
    turn: Mutex<()>,
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    /// Queued messages that were not tried yet.
    fresh: VecDeque<E>,
    /// Pending messages of blocked topics.
    held: BTreeMap<Line, BlockedLine<E>>,
    closed: bool,
}

/// The pending messages of a blocked topic.
struct BlockedLine<E> {
    waiting: VecDeque<E>,
    /// Whether the line's thread is publishing one of them.
    busy: bool,
    /// The pending receipt of the first message, if the transport already has it.
    underway: Option<PendingPublish>,
    /// Whether the first message may have arrived.
    doubtful: bool,
    since: Instant,
    again: Option<Instant>,
    missing: Unpublished,
}

/// The next step of a line's thread.
enum LineStep<E> {
    Publish(E, Option<PendingPublish>),
    /// The line is empty, or the outbox is closed.
    End(Unpublished),
}

impl<E: OutboxItem> Outbox<E> {
    pub(super) fn new() -> Self {
        let state = State { fresh: VecDeque::new(), held: BTreeMap::new(), closed: false };
        Self { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Queues a message. It costs one push and may be called under any lock.
    pub(super) fn put(&self, entry: E) {
        locked(&self.state).fresh.push_back(entry);
    }

    /// Publishes the queued messages that nothing blocks; returns the lines that became blocked. A
    /// thread must [catch up](Self::catch_up) with each of them.
    pub(super) fn publish(&self, one: impl Fn(&E) -> Result<TrySend, PublishFailure>) -> Vec<Line> {
        let _turn = locked(&self.turn);
        let mut begun = Vec::new();
        while let Some(entry) = self.next(&mut begun) {
            let (underway, doubtful) = match one(&entry) {
                Ok(TrySend::Done) | Err(PublishFailure { then: FailureAction::Drop, .. }) => {
                    continue;
                }
                Ok(TrySend::WouldBlock)
                | Err(PublishFailure { then: FailureAction::Retry, .. }) => (None, false),
                Ok(TrySend::Pending(publishing)) => (Some(publishing), false),
                Err(PublishFailure { then: FailureAction::Repeat, .. }) => (None, true),
            };
            begun.push(locked(&self.state).hold(entry, underway, doubtful));
        }
        begun
    }

    /// The next message that nothing blocks; blocked ones before it go to their lines.
    fn next(&self, begun: &mut Vec<Line>) -> Option<E> {
        let mut state = locked(&self.state);
        loop {
            let entry = state.fresh.pop_front()?;
            let line = entry.line();
            if let Some(held) = state.held.get_mut(&line) {
                held.push(entry);
            } else if line == Line::Acks && state.tried_until().is_some() {
                begun.push(state.hold(entry, None, false));
            } else {
                return Some(entry);
            }
        }
    }

    /// Whether a line has pending messages; `None` after closing, when the rest is removed.
    pub(super) fn holds(&self, line: Line) -> Option<bool> {
        let state = locked(&self.state);
        (!state.closed).then(|| state.held.contains_key(&line))
    }

    /// Publishes a line's messages until it is empty; returns the messages that were lost.
    pub(super) fn catch_up(
        &self,
        line: Line,
        one: impl Fn(&E) -> Result<(), PublishFailure>,
    ) -> Unpublished {
        loop {
            let (mut entry, underway) = match self.turn_of(line) {
                LineStep::Publish(entry, underway) => (entry, underway),
                LineStep::End(missing) => return missing,
            };
            let published = match underway.map(PendingPublish::wait) {
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => {
                    entry.insist();
                    Err(PublishFailure {
                        reason: error.to_string(),
                        then: FailureAction::after(&error),
                    })
                }
                None => one(&entry),
            };
            let mut state = locked(&self.state);
            if let Some(held) = state.held.get_mut(&line) {
                held.settle(entry, published);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until the first message of a line may be tried, and takes it.
    fn turn_of(&self, line: Line) -> LineStep<E> {
        let mut state = locked(&self.state);
        loop {
            let (closed, until) = (state.closed, state.not_before(line));
            let Some(held) = state.held.get_mut(&line) else {
                return LineStep::End(Unpublished::default());
            };
            if closed || held.waiting.is_empty() {
                let missing = state.end(line);
                drop(state);
                self.changed.notify_all();
                return LineStep::End(missing);
            }
            if let Some(until) = until {
                state = self.wait(state, until);
            } else if let Some(entry) = held.waiting.pop_front() {
                held.busy = true;
                return LineStep::Publish(entry, held.underway.take());
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
        while !state.held.is_empty() && Instant::now() < until {
            state = self.wait(state, until);
        }
    }

    /// Ends the threads of all lines; returns the unpublished messages.
    pub(super) fn close(&self) -> Vec<(Line, Unpublished)> {
        let mut state = locked(&self.state);
        state.closed = true;
        let lines: Vec<Line> = state.held.keys().copied().collect();
        let missing = lines.into_iter().map(|line| (line, state.end(line))).collect();
        drop(state);
        self.changed.notify_all();
        missing
    }
}

impl<E: OutboxItem> State<E> {
    /// Starts a line.
    fn hold(&mut self, entry: E, underway: Option<PendingPublish>, doubtful: bool) -> Line {
        let line = entry.line();
        let held = BlockedLine {
            waiting: VecDeque::from([entry]),
            busy: false,
            underway,
            doubtful,
            since: Instant::now(),
            again: None,
            missing: Unpublished::default(),
        };
        self.held.insert(line, held);
        line
    }

    /// The earliest time for the first message of a line, if it is in the future.
    fn not_before(&self, line: Line) -> Option<Instant> {
        let again = self.held.get(&line).and_then(|held| held.again);
        let before = self.tried_until().filter(|_| line == Line::Acks);
        again.max(before).filter(|until| Instant::now() < *until)
    }

    /// The time until which messages before acknowledgements are tried for the first time, if there
    /// are any.
    fn tried_until(&self) -> Option<Instant> {
        let first = self
            .held
            .iter()
            .filter(|(line, held)| line.comes_first() && held.missing.reason.is_none());
        let until = first.map(|(_, held)| held.since + ACK_ORDER_TIMEOUT).max();
        until.filter(|until| Instant::now() < *until)
    }

    fn end(&mut self, line: Line) -> Unpublished {
        let held = self.held.remove(&line);
        held.map_or_else(Unpublished::default, |held| {
            let waiting = held.waiting.len() + usize::from(held.busy);
            Unpublished { waiting, ..held.missing }
        })
    }
}

impl<E: OutboxItem> BlockedLine<E> {
    fn push(&mut self, entry: E) {
        if self.waiting.len() < MAX_BLOCKED_MESSAGES {
            return self.waiting.push_back(entry);
        }
        // The first may be in flight or may have arrived.
        let first = usize::from(!self.busy && (self.underway.is_some() || self.doubtful));
        let old = match self.waiting.iter().skip(first).position(OutboxItem::passes) {
            Some(at) => Some(first + at),
            None if entry.passes() || entry.line() == Line::Audit => None,
            None => Some(first),
        };
        let gone = match old.and_then(|at| self.waiting.remove(at)) {
            Some(old) => {
                self.waiting.push_back(entry);
                old
            }
            None => entry,
        };
        match gone.passes() {
            true => self.missing.passed += 1,
            false => self.missing.shed += 1,
        }
    }

    /// Records the result of the message that was taken.
    fn settle(&mut self, entry: E, published: Result<(), PublishFailure>) {
        self.busy = false;
        self.again = None;
        let doubtful = std::mem::take(&mut self.doubtful);
        let Err(refused) = published else { return };
        self.missing.reason = Some(refused.reason);
        match refused.then {
            FailureAction::Drop => return,
            FailureAction::Repeat if doubtful => return,
            then => self.doubtful = (doubtful || then == FailureAction::Repeat) && !entry.passes(),
        }
        self.waiting.push_front(entry);
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !waiting.passes());
        self.missing.passed += (before - self.waiting.len()) as u64;
        self.again = Some(Instant::now() + RETRY_INTERVAL);
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
    struct Word(Line, u32, bool);

    impl OutboxItem for Word {
        fn line(&self) -> Line {
            self.0
        }

        fn passes(&self) -> bool {
            self.2
        }

        fn insist(&mut self) {
            self.1 += INSISTED;
        }
    }

    /// Added to the number of a message that is forced.
    const INSISTED: u32 = 1_000;

    const STATE: Line = Line::Event("summaryState");

    fn word(line: Line, number: u32) -> Word {
        Word(line, number, false)
    }

    fn passing(line: Line, number: u32) -> Word {
        Word(line, number, true)
    }

    fn outbox(words: impl IntoIterator<Item = Word>) -> Arc<Outbox<Word>> {
        let outbox = Outbox::new();
        words.into_iter().for_each(|word| outbox.put(word));
        Arc::new(outbox)
    }

    fn refused() -> PublishFailure {
        PublishFailure { reason: "no room".to_owned(), then: FailureAction::Retry }
    }

    fn unknown() -> PublishError {
        PublishError::Unknown { cause: "no answer".to_owned() }
    }

    fn doubted() -> PublishFailure {
        PublishFailure { reason: unknown().to_string(), then: FailureAction::after(&unknown()) }
    }

    /// Publishes everything but the messages of one blocked topic.
    fn publish(outbox: &Outbox<Word>, stuck: Line) -> (Vec<Line>, Vec<u32>) {
        let said = Mutex::new(Vec::new());
        let begun = outbox.publish(|word| {
            if word.0 == stuck {
                return Ok(TrySend::WouldBlock);
            }
            locked(&said).push(word.1);
            Ok(TrySend::Done)
        });
        (begun, said.into_inner().unwrap())
    }

    /// A thread that catches up with a line; each publish waits for its result.
    fn thread(
        outbox: &Arc<Outbox<Word>>,
        line: Line,
    ) -> (Receiver<u32>, Sender<Result<(), PublishFailure>>, JoinHandle<Unpublished>) {
        let (said, hears) = channel();
        let (answer, answers) = channel();
        let outbox = Arc::clone(outbox);
        let thread = std::thread::spawn(move || {
            outbox.catch_up(line, |word| {
                said.send(word.1).unwrap();
                answers.recv().unwrap()
            })
        });
        (hears, answer, thread)
    }

    #[test]
    fn what_is_put_is_published_in_order_by_who_put_it() {
        let outbox = outbox([word(Line::Audit, 1), word(STATE, 2), word(Line::Acks, 3)]);
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![1, 2, 3]));
    }

    #[test]
    fn a_topic_that_is_held_up_holds_up_no_other_and_keeps_its_order() {
        let outbox = outbox([word(Line::Acks, 1), word(STATE, 2), word(Line::Acks, 3)]);
        assert_eq!(publish(&outbox, Line::Acks), (vec![Line::Acks], vec![2]));
        outbox.put(word(Line::Acks, 4));
        outbox.put(word(STATE, 5));
        // Messages behind it wait, although the topic would accept them now.
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![5]));
        let (hears, answer, thread) = thread(&outbox, Line::Acks);
        for number in [1, 3, 4] {
            assert_eq!(hears.recv().unwrap(), number);
            answer.send(Ok(())).unwrap();
        }
        assert_eq!(thread.join().unwrap(), Unpublished::default());
        outbox.put(word(Line::Acks, 6));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![6]));
    }

    #[test]
    fn what_counts_later_is_tried_again_and_what_passes_is_not() {
        let line = Line::Acks;
        let outbox = outbox([passing(line, 1), word(line, 2), passing(line, 3), word(line, 4)]);
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
        assert_eq!((missing.waiting, missing.passed, missing.shed), (0, 2, 0));
    }

    #[test]
    fn acknowledgements_wait_for_what_came_before_until_it_has_failed() {
        let outbox = outbox([word(STATE, 1), word(Line::Acks, 2)]);
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
        outbox.put(word(Line::Acks, 3));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![3]));
        assert_eq!(state.recv().unwrap(), 1);
        answer.send(Ok(())).unwrap();
        first.join().unwrap();
    }

    #[test]
    fn what_may_have_arrived_is_published_once_more_and_no_more() {
        let tried = |outbox: &Outbox<Word>, line: Line| {
            let said = Mutex::new(Vec::new());
            let missing = outbox.catch_up(line, |word| {
                let mut said = locked(&said);
                said.push(word.1);
                assert!(said.len() < 3, "it is published for ever");
                Err(doubted())
            });
            assert_eq!(missing.waiting, 0);
            said.into_inner().unwrap()
        };
        // The result was unknown at once, and so was that of the repetition.
        let line = Line::Audit;
        let told = outbox([word(line, 1)]);
        assert_eq!(told.publish(|_| Err(doubted())), [line]);
        assert_eq!(tried(&told, line), [1]);
        // The first one was not tried here.
        let held = outbox([word(line, 1), passing(line, 2)]);
        publish(&held, line);
        assert_eq!(tried(&held, line), [1, 1]);
        // The result came later.
        let sent = outbox([word(line, 1)]);
        let (ticket, pending) = pending_receipt();
        let underway = Cell::new(Some(PendingPublish::from(Ok(Published::Pending(pending)))));
        assert_eq!(sent.publish(|_| Ok(TrySend::Pending(underway.take().unwrap()))), [line]);
        ticket.complete(Err(unknown()));
        assert_eq!(tried(&sent, line), [1 + INSISTED]);
    }

    #[test]
    fn once_closed_nobody_knows_whether_something_waits() {
        let outbox = outbox([word(Line::Audit, 1)]);
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
                (0..bound + 3).map(|n| if n == 5 { passing(line, n) } else { word(line, n) });
            let outbox = outbox(numbers);
            publish(&outbox, line);
            let (said, hears) = channel();
            let thread = Arc::clone(&outbox);
            let missing = thread.catch_up(line, |word| {
                said.send(word.1).unwrap();
                Ok(())
            });
            assert_eq!((missing.passed, missing.shed), (1, 2));
            let said: Vec<u32> = hears.try_iter().collect();
            (said[0], said[said.len() - 1])
        };
        assert_eq!(kept(Line::Acks), (2, bound + 2), "the oldest go");
        assert_eq!(kept(Line::Audit), (0, bound), "the newest go");
    }

    #[test]
    fn closing_waits_for_a_time_and_says_what_is_missing() {
        let outbox = outbox([word(Line::Audit, 1), word(Line::Audit, 2)]);
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
        assert_eq!((missing.waiting, missing.reason.as_deref()), (2, Some("no room")));
        outbox.put(word(Line::Acks, 3));
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![3]));
    }
}
