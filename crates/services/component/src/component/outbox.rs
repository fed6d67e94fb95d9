//! What a component says of itself, in one order, published without holding anybody up.
//!
//! Constraints. What is to be said is decided under the protocol's lock and put here under it, so
//! it has one order; it is published outside of that lock, by whoever put it, on his own thread. No
//! publish of that waits for another process. What would have to wait, or fails, is kept in the
//! line of its topic with all that follows on it, and a thread of that line publishes it, however
//! long that takes, and tries again each second: other topics go on. Acknowledgements alone wait
//! for others: for what was said before them on another topic, until that is published or has
//! failed.
//!
//! What may have arrived, because nobody knows whether it did, is published once more and no more
//! than once: of an acknowledgement, a record of the audit or a state a second one is harmless, and
//! none is not.
//!
//! A line is bounded ([`MAX_WAITING`]). What passes (progress, log messages) goes first, and at the
//! first failure; then the oldest, but of the audit the newest: what was done counts more there
//! than what was refused since. What is shed is counted.
//!
//! Operation. [`put`](Outbox::put) under the lock, [`publish`](Outbox::publish) after it. Who
//! publishes has the turn; others wait for it, which is microseconds, so that whatever somebody has
//! put is published or in its line when his `publish` returns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::{PublishError, Publishing, TransportError};

use super::shell::locked;
use crate::send::Tried;

/// The most that waits for one topic: what twenty commands a second say in some minutes.
pub(super) const MAX_WAITING: usize = 10_000;
/// How often it is tried again.
const EVERY: Duration = Duration::from_secs(1);
/// For how long acknowledgements wait for what was said before them and is being tried: as long as
/// a publish waits for a lock whose holder is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A topic, as those who wait for it see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Audit,
    Event(&'static str),
    Log,
    Acks,
}

impl Line {
    /// Whether acknowledgements come after what was said there before them.
    fn comes_first(self) -> bool {
        matches!(self, Self::Audit | Self::Event(_))
    }
}

/// Something to be said.
pub(super) trait Entry {
    /// Where.
    fn line(&self) -> Line;
    /// Whether it is worth nothing later.
    fn passes(&self) -> bool;
    /// It was under way and has not arrived: it is to be published whatever its topic remembers.
    fn insist(&mut self);
}

/// Why something was not published.
#[derive(Debug)]
pub(super) struct Refused {
    pub reason: String,
    pub then: Then,
}

/// What is to be done after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Retry,
    /// Nobody knows whether it arrived: it is published once more, and where nobody knows that of
    /// the second one either it counts as published.
    Repeat,
    /// It would be refused for ever.
    Drop,
}

impl Then {
    /// After an error of the bus.
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

/// What was not published of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// What waits still.
    pub waiting: usize,
    /// What passed while it waited.
    pub passed: u64,
    /// What was more than can wait.
    pub shed: u64,
    pub reason: Option<String>,
}

pub(super) struct Outbox<E> {
    turn: Mutex<()>,
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    /// What was put and not yet looked at.
    fresh: VecDeque<E>,
    /// What waits, by topic.
    held: BTreeMap<Line, Held<E>>,
    closed: bool,
}

/// The line of a topic that is held up.
struct Held<E> {
    waiting: VecDeque<E>,
    /// Whether the thread of the line has one of them in hand.
    busy: bool,
    /// The first one's, where the transport has it already.
    underway: Option<Publishing>,
    /// Whether the first one may have arrived.
    doubtful: bool,
    since: Instant,
    again: Option<Instant>,
    missing: Missing,
}

/// What the thread of a line is to do.
enum Next<E> {
    Publish(E, Option<Publishing>),
    /// All is done, or it was closed.
    End(Missing),
}

impl<E: Entry> Outbox<E> {
    pub(super) fn new() -> Self {
        let state = State { fresh: VecDeque::new(), held: BTreeMap::new(), closed: false };
        Self { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes something to be said. Costs a push: it may be called under any lock.
    pub(super) fn put(&self, entry: E) {
        locked(&self.state).fresh.push_back(entry);
    }

    /// Publishes what was put, as far as nothing holds it up; gives the lines that were begun
    /// because something did. Each is to be [caught up](Self::catch_up) with by a thread.
    pub(super) fn publish(&self, one: impl Fn(&E) -> Result<Tried, Refused>) -> Vec<Line> {
        let _turn = locked(&self.turn);
        let mut begun = Vec::new();
        while let Some(entry) = self.next(&mut begun) {
            let (underway, doubtful) = match one(&entry) {
                Ok(Tried::Done) | Err(Refused { then: Then::Drop, .. }) => continue,
                Ok(Tried::HeldUp) | Err(Refused { then: Then::Retry, .. }) => (None, false),
                Ok(Tried::Underway(publishing)) => (Some(publishing), false),
                Err(Refused { then: Then::Repeat, .. }) => (None, true),
            };
            begun.push(locked(&self.state).hold(entry, underway, doubtful));
        }
        begun
    }

    /// The next one that nothing holds up; those before it go to their lines.
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

    /// Whether something waits in a line; `None` once closed, when what was left is gone from it.
    pub(super) fn holds(&self, line: Line) -> Option<bool> {
        let state = locked(&self.state);
        (!state.closed).then(|| state.held.contains_key(&line))
    }

    /// Publishes what waits in a line until nothing does; what came of it is what is missing.
    pub(super) fn catch_up(&self, line: Line, one: impl Fn(&E) -> Result<(), Refused>) -> Missing {
        loop {
            let (mut entry, underway) = match self.turn_of(line) {
                Next::Publish(entry, underway) => (entry, underway),
                Next::End(missing) => return missing,
            };
            let published = match underway.map(Publishing::wait) {
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => {
                    entry.insist();
                    Err(Refused { reason: error.to_string(), then: Then::after(&error) })
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

    /// Waits until the first of a line may be tried, and takes it.
    fn turn_of(&self, line: Line) -> Next<E> {
        let mut state = locked(&self.state);
        loop {
            let (closed, until) = (state.closed, state.not_before(line));
            let Some(held) = state.held.get_mut(&line) else {
                return Next::End(Missing::default());
            };
            if closed || held.waiting.is_empty() {
                let missing = state.end(line);
                drop(state);
                self.changed.notify_all();
                return Next::End(missing);
            }
            if let Some(until) = until {
                state = self.wait(state, until);
            } else if let Some(entry) = held.waiting.pop_front() {
                held.busy = true;
                return Next::Publish(entry, held.underway.take());
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

    /// Waits until nothing waits any more, at most for a time.
    pub(super) fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = locked(&self.state);
        while !state.held.is_empty() && Instant::now() < until {
            state = self.wait(state, until);
        }
    }

    /// Ends the threads of all lines; what was not published.
    pub(super) fn close(&self) -> Vec<(Line, Missing)> {
        let mut state = locked(&self.state);
        state.closed = true;
        let lines: Vec<Line> = state.held.keys().copied().collect();
        let missing = lines.into_iter().map(|line| (line, state.end(line))).collect();
        drop(state);
        self.changed.notify_all();
        missing
    }
}

impl<E: Entry> State<E> {
    /// Begins a line.
    fn hold(&mut self, entry: E, underway: Option<Publishing>, doubtful: bool) -> Line {
        let line = entry.line();
        let held = Held {
            waiting: VecDeque::from([entry]),
            busy: false,
            underway,
            doubtful,
            since: Instant::now(),
            again: None,
            missing: Missing::default(),
        };
        self.held.insert(line, held);
        line
    }

    /// Until when the first of a line must not be tried, if it is later than now.
    fn not_before(&self, line: Line) -> Option<Instant> {
        let again = self.held.get(&line).and_then(|held| held.again);
        let before = self.tried_until().filter(|_| line == Line::Acks);
        again.max(before).filter(|until| Instant::now() < *until)
    }

    /// Until when what comes before acknowledgements is tried for the first time, if it is.
    fn tried_until(&self) -> Option<Instant> {
        let first = self
            .held
            .iter()
            .filter(|(line, held)| line.comes_first() && held.missing.reason.is_none());
        let until = first.map(|(_, held)| held.since + PATIENCE).max();
        until.filter(|until| Instant::now() < *until)
    }

    fn end(&mut self, line: Line) -> Missing {
        let held = self.held.remove(&line);
        held.map_or_else(Missing::default, |held| {
            let waiting = held.waiting.len() + usize::from(held.busy);
            Missing { waiting, ..held.missing }
        })
    }
}

impl<E: Entry> Held<E> {
    fn push(&mut self, entry: E) {
        if self.waiting.len() < MAX_WAITING {
            return self.waiting.push_back(entry);
        }
        // The first may be on its way already, or there.
        let first = usize::from(!self.busy && (self.underway.is_some() || self.doubtful));
        let old = match self.waiting.iter().skip(first).position(Entry::passes) {
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

    /// What became of the one in hand.
    fn settle(&mut self, entry: E, published: Result<(), Refused>) {
        self.busy = false;
        self.again = None;
        let doubtful = std::mem::take(&mut self.doubtful);
        let Err(refused) = published else { return };
        self.missing.reason = Some(refused.reason);
        match refused.then {
            Then::Drop => return,
            Then::Repeat if doubtful => return,
            then => self.doubtful = (doubtful || then == Then::Repeat) && !entry.passes(),
        }
        self.waiting.push_front(entry);
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !waiting.passes());
        self.missing.passed += (before - self.waiting.len()) as u64;
        self.again = Some(Instant::now() + EVERY);
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

    impl Entry for Word {
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

    /// What is added to the number of a word that is insisted on.
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

    fn refused() -> Refused {
        Refused { reason: "no room".to_owned(), then: Then::Retry }
    }

    fn unknown() -> PublishError {
        PublishError::Unknown { cause: "no answer".to_owned() }
    }

    fn doubted() -> Refused {
        Refused { reason: unknown().to_string(), then: Then::after(&unknown()) }
    }

    /// Publishes all but what goes to one topic, which is held up.
    fn publish(outbox: &Outbox<Word>, stuck: Line) -> (Vec<Line>, Vec<u32>) {
        let said = Mutex::new(Vec::new());
        let begun = outbox.publish(|word| {
            if word.0 == stuck {
                return Ok(Tried::HeldUp);
            }
            locked(&said).push(word.1);
            Ok(Tried::Done)
        });
        (begun, said.into_inner().unwrap())
    }

    /// A thread that catches up with a line; each publish waits for its outcome.
    fn thread(
        outbox: &Arc<Outbox<Word>>,
        line: Line,
    ) -> (Receiver<u32>, Sender<Result<(), Refused>>, JoinHandle<Missing>) {
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
        // Those behind it wait with it, though it would be free now.
        assert_eq!(publish(&outbox, Line::Log), (vec![], vec![5]));
        let (hears, answer, thread) = thread(&outbox, Line::Acks);
        for number in [1, 3, 4] {
            assert_eq!(hears.recv().unwrap(), number);
            answer.send(Ok(())).unwrap();
        }
        assert_eq!(thread.join().unwrap(), Missing::default());
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
        // And those that come now do not wait: the state may take hours.
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
        // It was told at once that nobody knows; so was its repetition.
        let line = Line::Audit;
        let told = outbox([word(line, 1)]);
        assert_eq!(told.publish(|_| Err(doubted())), [line]);
        assert_eq!(tried(&told, line), [1]);
        // Nobody had tried the first one here.
        let held = outbox([word(line, 1), passing(line, 2)]);
        publish(&held, line);
        assert_eq!(tried(&held, line), [1, 1]);
        // It was told later.
        let sent = outbox([word(line, 1)]);
        let (ticket, pending) = pending_receipt();
        let underway = Cell::new(Some(Publishing::from(Ok(Published::Pending(pending)))));
        assert_eq!(sent.publish(|_| Ok(Tried::Underway(underway.take().unwrap()))), [line]);
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
        let bound = MAX_WAITING as u32;
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
