//! All topics' ways over one bridge: samples in the caller's thread, what waits for a bus in
//! threads beside it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Wake};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Clock, Member, SystemClock, TopicName, TransportError, WaitSet, WaitSetWaker,
};
use helio_core::name::fits;
use thiserror::Error;

use crate::checkpoints::{self, CheckpointStore};
use crate::context::{BridgeContext, Options};
use crate::pool::{Pool, Running};
use crate::report::{Figures, Notice, NoticeKind, Notices};
use crate::target::TopicCreator;
use crate::topic_supervisor::{EventLoop, TopicSupervisor};
use crate::types::AnonymousProducer;

/// How often it is looked for new topics.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The most threads that open and look back: so many topics at a time, and so many are made at
/// once.
const MAX_OPEN_THREADS: usize = 32;
/// The most threads that make ready what the samples of topics need that are open, and close
/// writers: beside the others, so that topics of a broker that has gone hold up none.
const MAX_PREPARE_THREADS: usize = 32;
/// The most threads that ask who lives and assert leases. They open nothing, so that nothing that
/// is slow to open lets a lease lapse.
const MAX_LEASE_THREADS: usize = 16;
/// How long the end waits for positions that are written down.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(2);
/// How many events are taken before acknowledgements are looked at.
const MAX_EVENTS_PER_TURN: usize = 1024;
/// Why there is no bridge.
#[derive(Debug, Error)]
pub enum BridgeError {
    /// Both URLs name the same data.
    #[error("{from} and {to} are the same bus ({name}); name two")]
    SameBus {
        /// The source's URL.
        from: String,
        /// The target's URL.
        to: String,
        /// What both call themselves.
        name: String,
    },
    /// A bus failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The system gives no threads.
    #[error("the bridge's threads cannot be started: {0}")]
    Threads(#[from] io::Error),
}

/// What a turn has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    Busy,
    /// All that was there when its topics were opened has been read, acknowledged or given up; no
    /// topic waits for a bus.
    CaughtUp,
}

/// Forwards topics from one bus to another, in the thread of who holds it and calls
/// [`Bridge::turn`]; what waits for a bus is done in a few threads beside it.
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
    listing: Option<Running<Result<Vec<TopicName>, TransportError>>>,
    notices: Notices,
    /// What was told of the look for topics, until it succeeds.
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
    /// A bridge between two buses that are connected. Nothing is opened before the first turn.
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
        let waker = Arc::new(Woken(set.waker())).into();
        let openers = Pool::start(MAX_OPEN_THREADS, "helio-bridge-open", &waker)?;
        let preparers = Pool::start(MAX_PREPARE_THREADS, "helio-bridge-ready", &waker)?;
        let lease_renewers = Pool::start(MAX_LEASE_THREADS, "helio-bridge-keep", &waker)?;
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

    /// What the source and the target call themselves, as the header of forwarded samples has it.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.context.from_name, &self.context.to_name)
    }

    /// Forwards what there is, and waits for this long at most where there is nothing.
    pub fn turn(&mut self, timeout: Duration) -> Turn {
        self.poll_topic_list();
        self.for_each_topic(|topic, event_loop| {
            topic.open(event_loop);
            topic.advance(event_loop, true);
        });
        let deadline = Instant::now().checked_add(timeout.min(LIST_INTERVAL));
        let mut left = MAX_EVENTS_PER_TURN;
        // The first event is waited for, the others are taken as far as they are there.
        let mut wait =
            deadline.map_or(LIST_INTERVAL, |u| u.saturating_duration_since(Instant::now()));
        while left > 0 && self.handle_next(wait) {
            (left, wait) = (left - 1, Duration::ZERO);
        }
        self.for_each_topic(|topic, event_loop| topic.advance(event_loop, true));
        if self.is_caught_up() { Turn::CaughtUp } else { Turn::Busy }
    }

    /// Stops reading, and waits for what is under way, this long at most; whether all of it was
    /// acknowledged. What was not is forwarded by the next bridge, if the source can be read again.
    /// Topics that the target refuses are not waited for.
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

    /// Writes down where topics stand, and waits a little until that is there.
    fn write_checkpoints(&mut self) {
        let deadline = Instant::now() + CHECKPOINT_TIMEOUT;
        loop {
            self.for_each_topic(|topic, event_loop| topic.write_checkpoints(event_loop));
            if !self.topics.values().any(TopicSupervisor::is_writing_checkpoints)
                || Instant::now() >= deadline
            {
                // What did not arrive is what was written before, or what the samples say.
                return;
            }
            let _ = self.set.next_timeout(Duration::from_millis(10));
        }
    }

    /// Each topic's figures, by name.
    #[must_use]
    pub fn figures(&mut self) -> Vec<Figures> {
        let set = &mut self.set;
        self.topics.values_mut().map(|topic| topic.figures(set)).collect()
    }

    /// What is to be told since the last time.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices.0)
    }

    /// Topics that the target refuses, with the reason told as a notice before.
    #[must_use]
    pub fn refused(&self) -> Vec<TopicName> {
        let refused = self.topics.iter().filter(|(_, topic)| topic.is_refused());
        refused.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the source's topics could be listed, and nothing but refused topics waits.
    fn is_caught_up(&mut self) -> bool {
        let listed = self.listed_at.is_some() && !self.list_failed;
        let set = &mut self.set;
        listed
            && self.topics.values_mut().all(|topic| topic.is_refused() || topic.is_caught_up(set))
    }

    /// Finds topics that came since the last look.
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

    /// Does something with each topic.
    fn for_each_topic(&mut self, mut act: impl FnMut(&mut TopicSupervisor, &mut EventLoop<'_>)) {
        let Self { context, set, by_member, notices, .. } = self;
        let mut event_loop = EventLoop { context, set, by_member, notices };
        self.topics.values_mut().for_each(|topic| act(topic, &mut event_loop));
    }

    /// Takes the next event of any topic; false where there is none.
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
