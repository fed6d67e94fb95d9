//! A bridge: forwards samples in the caller's thread, and calls that wait for a bus in other
//! threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Clock, Member, PendingTask, SystemClock, ThreadPool, TopicName, TransportError, WaitSet,
    WaitSetWaker,
};
use helio_core::name::fits;
use thiserror::Error;

use crate::checkpoints::{self, CheckpointStore};
use crate::context::{BridgeContext, Options};
use crate::report::{Figures, Notice, NoticeKind, Notices};
use crate::target::TopicCreator;
use crate::topic_supervisor::{EventLoop, TopicSupervisor};
use crate::types::AnonymousProducer;

/// How often the source's topics are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The most threads that open topics and read their positions; as many topics are created at once.
const MAX_OPEN_THREADS: usize = 32;
/// The most threads that open and close writers and carry schemas of open topics. They are separate
/// from [`MAX_OPEN_THREADS`], so that topics of an unreachable broker block no other topic.
const MAX_PREPARE_THREADS: usize = 32;
/// The most threads that query and renew leases. They open no topic, so that a slow open lets no
/// lease expire.
const MAX_LEASE_THREADS: usize = 16;
/// How long [`Bridge::finish`] waits for its checkpoints to be stored.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(2);
/// How many events a turn handles before it polls acknowledgements.
const MAX_EVENTS_PER_TURN: usize = 1024;
/// Why a bridge cannot be created.
#[derive(Debug, Error)]
pub enum BridgeError {
    /// Both URLs name the same data.
    #[error("{from} and {to} are the same bus ({name}); name two different ones")]
    SameBus {
        /// The source's URL.
        from: String,
        /// The target's URL.
        to: String,
        /// The identity of both.
        name: String,
    },
    /// A bus failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// More work is pending.
    Busy,
    /// Everything that was stored when the topics were opened has been read, and acknowledged or
    /// given up; no topic waits for a bus.
    CaughtUp,
}

/// Forwards topics from one bus to another, in the thread that calls [`Bridge::turn`]. Calls that
/// wait for a bus run in a few other threads.
///
/// ```
/// use std::time::Duration;
/// use helio_bridge::{Bridge, Options, Turn};
/// use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
///
/// let (from, to) = (Bus::connect("memory:")?, Bus::connect("memory:")?);
/// let wind = from.topic(TopicSpec::new("weather/wind")?.qos(Qos::telemetry()))?;
/// wind.publisher()?.publish(Message::new(b"7.5").key(b"mast")).wait()?;
///
/// let options = Options { topics: vec!["weather/*".to_owned()], ..Options::default() };
/// let mut bridge = Bridge::new(from, to.clone(), options)?;
/// while bridge.turn(Duration::from_secs(1)) == Turn::Busy {}
/// assert_eq!(bridge.figures()[0].forwarded, 1);
///
/// let wind = to.topic(TopicSpec::new("weather/wind")?)?;
/// let sample = wind.subscribe(Subscribe::from(Start::Last(1)))?.next_sample()?;
/// assert_eq!((&sample.key[..], sample.header.sequence), (&b"mast"[..], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bridge {
    context: Arc<BridgeContext>,
    set: WaitSet,
    topics: BTreeMap<TopicName, TopicSupervisor>,
    by_member: BTreeMap<Member, TopicName>,
    listed_at: Option<Instant>,
    listing: Option<PendingTask<Result<Vec<TopicName>, TransportError>>>,
    notices: Notices,
    /// Whether the failure to list topics was reported; reset by the next success.
    list_failed: bool,
}

/// Ends the wait for the source's samples when the target has room or acknowledges.
struct Woken(WaitSetWaker);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl Bridge {
    /// A bridge between two connected buses. The first turn opens the topics.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub fn new(from: Bus, to: Bus, options: Options) -> Result<Self, BridgeError> {
        let (from_name, to_name) = (from.identity()?, to.identity()?);
        if from_name == to_name {
            let (from, to) = (from.url().to_string(), to.url().to_string());
            return Err(BridgeError::SameBus { from, to, name: to_name });
        }
        let set = from.wait_set()?;
        let waker = Waker::from(Arc::new(Woken(set.waker())));
        let pool = |max_threads, name| {
            let waker = waker.clone();
            ThreadPool::new(name, max_threads, move || waker.wake_by_ref())
        };
        let openers = pool(MAX_OPEN_THREADS, "helio-bridge-open");
        let preparers = pool(MAX_PREPARE_THREADS, "helio-bridge-ready");
        let lease_renewers = pool(MAX_LEASE_THREADS, "helio-bridge-keep");
        let checkpoints = CheckpointStore::new((&from, &from_name), (&to, &to_name));
        let anonymous = AnonymousProducer::of(&from, &from_name);
        let started = SystemClock::new().now().unix_nanos().try_into().unwrap_or(0);
        let creator = TopicCreator::default();
        let context = BridgeContext {
            from,
            to,
            from_name,
            to_name,
            anonymous,
            started,
            options,
            checkpoints,
            creator,
            waker,
            openers,
            preparers,
            lease_renewers,
        };
        Ok(Self {
            context: Arc::new(context),
            set,
            topics: BTreeMap::new(),
            by_member: BTreeMap::new(),
            listed_at: None,
            listing: None,
            notices: Notices::default(),
            list_failed: false,
        })
    }

    /// The identities of source and target, as in the header of forwarded samples.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.context.from_name, &self.context.to_name)
    }

    /// Forwards the available samples; waits up to `timeout` if there are none.
    pub fn turn(&mut self, timeout: Duration) -> Turn {
        self.poll_topic_list();
        self.for_each_topic(|topic, event_loop| {
            topic.open(event_loop);
            topic.advance(event_loop, true);
        });
        let deadline = Instant::now().checked_add(timeout.min(LIST_INTERVAL));
        let mut left = MAX_EVENTS_PER_TURN;
        // Only the first event is waited for.
        let mut wait =
            deadline.map_or(LIST_INTERVAL, |u| u.saturating_duration_since(Instant::now()));
        while left > 0 && self.handle_next(wait) {
            (left, wait) = (left - 1, Duration::ZERO);
        }
        self.for_each_topic(|topic, event_loop| topic.advance(event_loop, true));
        if self.is_caught_up() { Turn::CaughtUp } else { Turn::Busy }
    }

    /// Stops reading and waits up to `timeout` for the samples in flight. Returns whether all were
    /// acknowledged. The next bridge forwards the others if the source can be read again. Refused
    /// topics are not waited for.
    pub fn finish(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            self.for_each_topic(|topic, event_loop| {
                topic.stop_reading(event_loop);
                if !topic.is_refused() {
                    topic.open(event_loop);
                }
                topic.advance(event_loop, false);
            });
            let settled = self.topics.values().all(TopicSupervisor::is_settled);
            let over = self.topics.values().all(|topic| topic.is_refused() || topic.is_settled());
            let left = deadline.saturating_duration_since(Instant::now());
            if over || left.is_zero() {
                self.write_checkpoints();
                return settled;
            }
            let _ = self.set.next_timeout(left.min(Duration::from_millis(50)));
        }
    }

    /// Stores the topics' checkpoints; waits up to [`CHECKPOINT_TIMEOUT`].
    fn write_checkpoints(&mut self) {
        let deadline = Instant::now() + CHECKPOINT_TIMEOUT;
        loop {
            self.for_each_topic(|topic, event_loop| topic.write_checkpoints(event_loop));
            if !self.topics.values().any(TopicSupervisor::is_writing_checkpoints)
                || Instant::now() >= deadline
            {
                // An older checkpoint or the target's samples serve instead.
                return;
            }
            let _ = self.set.next_timeout(Duration::from_millis(10));
        }
    }

    /// Each topic's statistics, by name.
    #[must_use]
    pub fn figures(&mut self) -> Vec<Figures> {
        let set = &mut self.set;
        self.topics.values_mut().map(|topic| topic.figures(set)).collect()
    }

    /// The notices since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices.0)
    }

    /// The topics that the target refuses. A notice has given each reason.
    #[must_use]
    pub fn refused(&self) -> Vec<TopicName> {
        let refused = self.topics.iter().filter(|(_, topic)| topic.is_refused());
        refused.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the source's topics are listed and all but the refused ones are caught up.
    fn is_caught_up(&mut self) -> bool {
        let listed = self.listed_at.is_some() && !self.list_failed;
        let set = &mut self.set;
        listed
            && self.topics.values_mut().all(|topic| topic.is_refused() || topic.is_caught_up(set))
    }

    /// Adds topics that were created since the last list.
    fn poll_topic_list(&mut self) {
        if let Some(listing) = &self.listing {
            let Poll::Ready(found) = listing.poll() else { return };
            self.listing = None;
            self.add_topics(found.unwrap_or(Err(TransportError::Closed)));
        }
        if self.listed_at.is_none_or(|at| at.elapsed() >= LIST_INTERVAL) {
            let from = self.context.from.clone();
            self.listing = Some(self.context.preparers.run(move || from.topics()));
        }
    }

    fn add_topics(&mut self, names: Result<Vec<TopicName>, TransportError>) {
        self.listed_at = Some(Instant::now());
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                if !std::mem::replace(&mut self.list_failed, true) {
                    let text = format!("the source's topics cannot be listed: {error}");
                    self.notices.push(Notice { kind: NoticeKind::Outage, topic: None, text });
                }
                return;
            }
        };
        self.list_failed = false;
        let fit = |patterns: &[String], name: &TopicName| {
            patterns.iter().any(|pattern| fits(pattern, name.as_str()))
        };
        let Options { topics, not, .. } = &self.context.options;
        for name in names {
            if fit(topics, &name) && !fit(not, &name) && !checkpoints::is_checkpoint_topic(&name) {
                self.topics.entry(name.clone()).or_insert_with(|| TopicSupervisor::new(&name));
            }
        }
    }

    fn for_each_topic(&mut self, mut act: impl FnMut(&mut TopicSupervisor, &mut EventLoop<'_>)) {
        let Self { context, set, by_member, notices, .. } = self;
        let mut event_loop = EventLoop { context, set, by_member, notices };
        self.topics.values_mut().for_each(|topic| act(topic, &mut event_loop));
    }

    /// Handles the next event of any topic; returns false if there is none.
    fn handle_next(&mut self, wait: Duration) -> bool {
        let next = self.set.next_timeout(wait);
        let member = match &next {
            Ok(None) => return false,
            Ok(Some((member, _))) => *member,
            Err(error) => error.member,
        };
        let Self { context, set, by_member, notices, .. } = self;
        let topic = by_member.get(&member).and_then(|name| self.topics.get_mut(name));
        let Some(topic) = topic else { return true };
        let mut event_loop = EventLoop { context, set, by_member, notices };
        match next {
            Ok(Some((_, event))) => topic.handle(event, &mut event_loop),
            Ok(None) => {}
            Err(error) => {
                topic.source_failed(format!("the source cannot be read: {error}"), &mut event_loop);
            }
        }
        true
    }
}
