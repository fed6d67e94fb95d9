//! Many subscriptions in one thread, which waits for all of them by one system call.

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

/// Waits for many subscriptions of one bus. The cost depends on the ready subscriptions, not on
/// their number. On a journal, a wake-up also polls one in 384 of the others, and all of them with
/// `access=read`.
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
    /// Members that are not armed: events may be pending.
    awake: VecDeque<u64>,
    /// Armed members that must be polled at a time.
    timed: BTreeMap<u64, Instant>,
    rung: Vec<u64>,
    events: u64,
    woken: Arc<AtomicBool>,
}

/// How many events of other members are returned before the bell is checked again.
const BELL_CHECK_EVENTS: u64 = 64;

/// How long [`WaitSet::next_stored`] waits for an event before it checks the fences.
const FENCE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The identity of a subscription in a [`WaitSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u64);

/// A member's error. The other members stay readable by the next call. It also retries this one,
/// unless it was [removed](WaitSet::remove).
#[derive(Debug, Clone, Error)]
#[error("{source}")]
pub struct MemberError {
    /// The member.
    pub member: Member,
    /// The error.
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

    /// Removes a subscription.
    pub fn remove(&mut self, member: Member) -> Option<Subscription> {
        self.awake.retain(|token| *token != member.0);
        self.timed.remove(&member.0);
        self.members.remove(&member.0)
    }

    /// A member, for its statistics or to commit.
    pub fn get_mut(&mut self, member: Member) -> Option<&mut Subscription> {
        self.members.get_mut(&member.0)
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A handle that ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> WaitSetWaker {
        WaitSetWaker { bell: Arc::clone(&self.bell), woken: Arc::clone(&self.woken) }
    }

    /// Blocks until a member has an event, at most for `timeout`; members take turns. `None` after
    /// the timeout, or after [`WaitSetWaker::wake`].
    ///
    /// # Errors
    /// [`MemberError`] of any member.
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
                // Armed members may have events, too.
                self.listen(Some(Duration::ZERO));
                return self.next_of_awake();
            }
            self.wait(until, now);
        }
    }

    /// A member's event, if one is pending.
    ///
    /// # Errors
    /// [`MemberError`] of any member.
    pub fn try_next(&mut self) -> Result<Option<(Member, Event)>, MemberError> {
        match self.next_of_awake()? {
            None => {
                self.listen(Some(Duration::ZERO));
                self.next_of_awake()
            }
            found => Ok(found),
        }
    }

    /// An event; `None` when every member has passed its fence, or has none; see
    /// [`Subscription::set_fence`]. It blocks until then, or for an event.
    ///
    /// # Errors
    /// [`MemberError`] of any member: [`TransportError::Outage`](crate::TransportError::Outage) if
    /// some of its stored samples are missing and nothing arrives for `timeout`.
    pub fn next_stored(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(Member, Event)>, MemberError> {
        let until = Instant::now() + timeout;
        loop {
            // Every so often also beside events: writers may be as fast as this reader.
            let is_due = self.events.is_multiple_of(BELL_CHECK_EVENTS);
            if is_due && self.before_fence()?.is_none() {
                return Ok(None);
            }
            if let Some(event) = self.next_timeout(FENCE_CHECK_INTERVAL)? {
                return Ok(Some(event));
            }
            let Some(member) = self.before_fence()? else { return Ok(None) };
            if Instant::now() >= until
                && let Some(subscription) = self.members.get(&member.0)
            {
                return Err(MemberError { member, source: subscription.not_arrived(timeout) });
            }
        }
    }

    /// A member that has not passed its fence.
    fn before_fence(&mut self) -> Result<Option<Member>, MemberError> {
        for (token, subscription) in &mut self.members {
            let member = Member(*token);
            match subscription.has_passed_fence() {
                Ok(true) => {}
                Ok(false) => return Ok(Some(member)),
                Err(source) => return Err(MemberError { member, source }),
            }
        }
        Ok(None)
    }

    /// An event of a member that is not armed.
    fn next_of_awake(&mut self) -> Result<Option<(Member, Event)>, MemberError> {
        self.events += 1;
        if self.events.is_multiple_of(BELL_CHECK_EVENTS) {
            // Members with a backlog must not delay the events of armed ones.
            self.listen(Some(Duration::ZERO));
        }
        // Each member has one turn, however many samples it filters out.
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

/// Ends the present or else the next wait of a [`WaitSet`]. Cloning shares it.
#[derive(Clone)]
pub struct WaitSetWaker {
    bell: Arc<dyn Bell>,
    woken: Arc<AtomicBool>,
}

impl WaitSetWaker {
    /// Ends the wait; pending events are returned before.
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
