//! Many subscriptions in one thread: one kernel wait for all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::bell::Bell;
use crate::bus_core::BusCore;
use crate::error::ReadError;
use crate::event::Event;
use crate::subscription::{Subscription, sooner};
use crate::transport::Armed;

/// Waits for many subscriptions of one bus. What is read costs what is ready, however many are
/// waited for; on a journal a wake-up looks at one in 384 of the others as well, and at all of them
/// where the journal may only be read.
///
/// ```
/// # use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
/// # use std::time::Duration;
/// let bus = Bus::connect("memory:")?;
/// let mut set = bus.wait_set()?;
/// let mount = bus.topic(TopicSpec::new("mount")?.qos(Qos::telemetry()))?;
/// let dome = bus.topic(TopicSpec::new("dome")?.qos(Qos::telemetry()))?;
/// let _mount = set.add(mount.subscribe(Subscribe::from(Start::Latest))?);
/// let of_dome = set.add(dome.subscribe(Subscribe::from(Start::Latest))?);
/// dome.publisher()?.publish(Message::new(b"open")).wait()?;
/// let (who, _event) = set.next_timeout(Duration::from_secs(5))?.expect("it was published");
/// assert_eq!(who, of_dome);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WaitSet {
    bus: Arc<BusCore>,
    bell: Arc<dyn Bell>,
    members: BTreeMap<u64, Subscription>,
    /// Members that are not armed: there may be something to read.
    awake: VecDeque<u64>,
    /// Armed members that have to be looked at by the clock.
    timed: BTreeMap<u64, Instant>,
    rung: Vec<u64>,
    events: u64,
    woken: Arc<AtomicBool>,
}

/// After how many events those who sleep are listened for, though others have more.
const BELL_CHECK_EVENTS: u64 = 64;

/// Which subscription of a [`WaitSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u64);

/// One of those that are waited for cannot be read. The others can: they are handed out by the next
/// call, and this one, where it is not [removed](WaitSet::remove), is tried again then.
#[derive(Debug, Clone, Error)]
#[error("{source}")]
pub struct MemberError {
    /// Which.
    pub member: Member,
    /// Why.
    pub source: ReadError,
}

impl WaitSet {
    pub(crate) fn new(bus: Arc<BusCore>, bell: Arc<dyn Bell>) -> Self {
        Self {
            bus,
            bell,
            members: BTreeMap::new(),
            awake: VecDeque::new(),
            timed: BTreeMap::new(),
            rung: Vec::new(),
            events: 0,
            woken: Arc::default(),
        }
    }

    /// Adds a subscription of the same bus.
    pub fn add(&mut self, mut subscription: Subscription) -> Member {
        let token = self.bus.token();
        subscription.set_token(token);
        self.members.insert(token, subscription);
        self.awake.push_back(token);
        Member(token)
    }

    /// Takes a subscription out.
    pub fn remove(&mut self, member: Member) -> Option<Subscription> {
        self.awake.retain(|token| *token != member.0);
        self.timed.remove(&member.0);
        self.members.remove(&member.0)
    }

    /// A subscription, to look at its statistics or to commit.
    pub fn get_mut(&mut self, member: Member) -> Option<&mut Subscription> {
        self.members.get_mut(&member.0)
    }

    /// How many subscriptions it waits for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it waits for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> WaitSetWaker {
        WaitSetWaker { bell: Arc::clone(&self.bell), woken: Arc::clone(&self.woken) }
    }

    /// Blocks until one of them has an event, at most for `timeout`; they take turns. `None` where
    /// the time is over, or somebody [woke](WaitSetWaker::wake) it.
    ///
    /// # Errors
    /// [`MemberError`] of any of them.
    pub fn next_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(Member, Event)>, MemberError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(found) = self.next_of_awake()? {
                return Ok(Some(found));
            }
            let now = Instant::now();
            let woken = self.woken.swap(false, Ordering::Acquire);
            if woken || until.is_some_and(|until| until <= now) {
                // What has come to those who sleep is there too.
                self.listen(Some(Duration::ZERO));
                return self.next_of_awake();
            }
            self.wait(until, now);
        }
    }

    /// An event of one of them, if there is one now.
    ///
    /// # Errors
    /// [`MemberError`] of any of them.
    pub fn try_next(&mut self) -> Result<Option<(Member, Event)>, MemberError> {
        match self.next_of_awake()? {
            None => {
                self.listen(Some(Duration::ZERO));
                self.next_of_awake()
            }
            found => Ok(found),
        }
    }

    /// An event of one of those who are awake.
    fn next_of_awake(&mut self) -> Result<Option<(Member, Event)>, MemberError> {
        self.events += 1;
        if self.events.is_multiple_of(BELL_CHECK_EVENTS) {
            // Those who have a backlog must not keep those who sleep from being heard.
            self.listen(Some(Duration::ZERO));
        }
        // Each gets one turn: one with a flood that it filters out gives the others theirs.
        for _ in 0..self.awake.len() {
            let Some(token) = self.awake.pop_front() else { break };
            let Some(subscription) = self.members.get_mut(&token) else { continue };
            let failed = |source| MemberError { member: Member(token), source };
            match subscription.try_next() {
                Ok(None) => {}
                other => {
                    self.awake.push_back(token);
                    let event = other.map_err(failed)?;
                    return Ok(event.map(|event| (Member(token), event)));
                }
            }
            let mut due = subscription.due();
            match subscription.arm(&self.bell) {
                Ok(Armed::Ready) => self.awake.push_back(token),
                Ok(Armed::Waiting) => {}
                Ok(Armed::Recheck(after)) => due = sooner(due, Instant::now().checked_add(after)),
                Err(error) => {
                    self.awake.push_back(token);
                    return Err(failed(error.into()));
                }
            }
            if let Some(due) = due {
                self.timed.insert(token, due);
            }
        }
        Ok(None)
    }

    fn wait(&mut self, until: Option<Instant>, now: Instant) {
        let due = self.timed.values().min().copied();
        let left = sooner(due, until).map(|at| at.saturating_duration_since(now));
        self.listen(if self.awake.is_empty() { left } else { Some(Duration::ZERO) });
    }

    fn listen(&mut self, timeout: Option<Duration>) {
        self.bell.wait(timeout, &mut self.rung);
        let now = Instant::now();
        let due = self.timed.iter().filter(|(_, at)| **at <= now).map(|(token, _)| *token);
        self.rung.extend(due);
        for token in self.rung.drain(..) {
            self.timed.remove(&token);
            if !self.awake.contains(&token) {
                self.awake.push_back(token);
            }
        }
    }
}

impl std::fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitSet").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

/// Ends a wait of a [`WaitSet`]: that under way, or else the next one. Cloning shares it.
#[derive(Clone)]
pub struct WaitSetWaker {
    bell: Arc<dyn Bell>,
    woken: Arc<AtomicBool>,
}

impl WaitSetWaker {
    /// Ends the wait; events that are there are handed out before.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.bell.ring(None);
    }
}

impl std::fmt::Debug for WaitSetWaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitSetWaker")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helio_core::Qos;

    use crate::transport::fault::{FaultPlan, FaultTransport};
    use crate::{Bus, Message, Start, Subscribe, Topic, TopicSpec};

    #[test]
    fn what_is_there_is_told_without_waiting() {
        let bus = Bus::connect("memory:").unwrap();
        let topic = bus.topic(TopicSpec::new("quiet").unwrap().qos(Qos::telemetry())).unwrap();
        let publisher = topic.publisher().unwrap();
        let mut set = bus.wait_set().unwrap();
        set.add(topic.subscribe(Subscribe::from(Start::Latest)).unwrap());
        assert!(set.try_next().unwrap().is_none(), "now it sleeps");
        publisher.publish(Message::new(b"1")).wait().unwrap();
        assert!(set.try_next().unwrap().is_some());
        assert!(set.next_timeout(Duration::ZERO).unwrap().is_none());
        publisher.publish(Message::new(b"2")).wait().unwrap();
        assert!(set.next_timeout(Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn a_wait_is_ended_from_another_thread() {
        let bus = Bus::connect("memory:").unwrap();
        let topic = bus.topic(TopicSpec::new("quiet").unwrap().qos(Qos::telemetry())).unwrap();
        let mut set = bus.wait_set().unwrap();
        set.add(topic.subscribe(Subscribe::from(Start::Latest)).unwrap());
        let waker = set.waker();
        // Before the wait it is remembered.
        waker.wake();
        assert!(set.next_timeout(Duration::MAX).unwrap().is_none());
        let other = std::thread::spawn(move || waker.wake());
        assert!(set.next_timeout(Duration::MAX).unwrap().is_none());
        other.join().unwrap();
    }
    #[test]
    fn one_that_cannot_be_read_is_named_and_leaves_the_others() {
        let transport = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
        let cable = transport.cable();
        let bus = Bus::builder().over(transport).unwrap();
        let topic =
            |name: &str| bus.topic(TopicSpec::new(name).unwrap().qos(Qos::telemetry())).unwrap();
        let [broken, well] = ["broken", "well"].map(topic);
        let [other, publisher] = [&broken, &well].map(|topic| topic.publisher().unwrap());
        let mut set = bus.wait_set().unwrap();
        let samples = |topic: &Topic| topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
        let [first, second] = [&broken, &well].map(|topic| set.add(samples(topic)));
        assert!(set.try_next().unwrap().is_none(), "now they sleep");
        cable.break_topic(broken.name());
        let failed = set.next_timeout(Duration::MAX).unwrap_err();
        assert_eq!(failed.member, first);
        assert!(other.publish(Message::new(b"1")).wait().is_err());
        assert!(broken.subscribe(Subscribe::from(Start::Latest)).is_err());
        set.remove(first);
        publisher.publish(Message::new(b"2")).wait().unwrap();
        assert_eq!(set.next_timeout(Duration::MAX).unwrap().unwrap().0, second);
        cable.mend_topic(broken.name());
        let again = set.add(samples(&broken));
        other.publish(Message::new(b"3")).wait().unwrap();
        assert_eq!(set.next_timeout(Duration::MAX).unwrap().unwrap().0, again);
    }
}
