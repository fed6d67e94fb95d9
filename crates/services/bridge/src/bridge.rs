//! All topics' ways over one bridge: samples in the caller's thread, what waits for a bus in
//! threads beside it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Clock, Member, SystemClock, TopicName, TransportError, WaitSet, WaitSetWaker,
};
use helio_core::name::fits;
use thiserror::Error;

use crate::book::{self, Book};
use crate::found::Nameless;
use crate::overrides::Override;
use crate::pool::{Pool, Running};
use crate::position::Begin;
use crate::report::{Figures, Notice, NoticeKind};
use crate::target::Making;
use crate::way::{Hands, Notices, Way};

/// How often it is looked for new topics.
const LOOK: Duration = Duration::from_secs(1);
/// The most threads that open and look back: so many topics at a time, and so many are made at
/// once.
const OPENERS: usize = 32;
/// The most threads that make ready what the samples of topics need that are open, and close
/// writers: beside the others, so that topics of a broker that has gone hold up none.
const PREPARERS: usize = 32;
/// The most threads that ask who lives and assert leases. They open nothing, so that nothing that
/// is slow to open lets a lease lapse.
const KEEPERS: usize = 16;
/// How long the end waits for positions that are written down.
const WRITING: Duration = Duration::from_secs(2);
/// How many events are taken before acknowledgements are looked at.
const TURN: usize = 1024;
/// What is to be forwarded, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The topics: patterns in which `*` stands for anything.
    pub topics: Vec<String>,
    /// Topics that are not forwarded though they fit.
    pub not: Vec<String>,
    /// Where a topic begins of which the target has nothing yet.
    pub begin: Begin,
    /// What of the quality of service is not carried over to topics that are created.
    pub overrides: Vec<Override>,
}

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

/// Both ends, and what they call themselves.
pub(crate) struct Ends {
    pub(crate) from: Bus,
    pub(crate) to: Bus,
    pub(crate) from_name: String,
    pub(crate) to_name: String,
    /// Who has published what has no producer, on other buses.
    pub(crate) nameless: Nameless,
    /// When the bridge was started: POSIX time in nanoseconds, as other incarnations are.
    pub(crate) started: u64,
    pub(crate) options: Options,
    /// Where topics stand; or why no bus can keep it.
    pub(crate) book: Result<Book, String>,
    pub(crate) making: Making,
    /// Ends the bridge's wait.
    pub(crate) waker: Waker,
    pub(crate) openers: Pool,
    pub(crate) preparers: Pool,
    pub(crate) keepers: Pool,
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
    ends: Arc<Ends>,
    set: WaitSet,
    topics: BTreeMap<TopicName, Way>,
    by_member: BTreeMap<Member, TopicName>,
    looked: Option<Instant>,
    looking: Option<Running<Result<Vec<TopicName>, TransportError>>>,
    notices: Notices,
    /// What was told of the look for topics, until it succeeds.
    complained: bool,
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
        let openers = Pool::start(OPENERS, "helio-bridge-open", &waker)?;
        let preparers = Pool::start(PREPARERS, "helio-bridge-ready", &waker)?;
        let keepers = Pool::start(KEEPERS, "helio-bridge-keep", &waker)?;
        let book = Book::of((&from, &from_name), (&to, &to_name));
        let nameless = Nameless::of(&from, &from_name);
        let started = SystemClock::new().now().unix_nanos().try_into().unwrap_or(0);
        let making = Making::default();
        let ends = Ends {
            from,
            to,
            from_name,
            to_name,
            nameless,
            started,
            options,
            book,
            making,
            waker,
            openers,
            preparers,
            keepers,
        };
        Ok(Self {
            ends: Arc::new(ends),
            set,
            topics: BTreeMap::new(),
            by_member: BTreeMap::new(),
            looked: None,
            looking: None,
            notices: Notices::default(),
            complained: false,
        })
    }

    /// What the source and the target call themselves, as the header of forwarded samples has it.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.ends.from_name, &self.ends.to_name)
    }

    /// Forwards what there is, and waits for this long at most where there is nothing.
    pub fn turn(&mut self, patience: Duration) -> Turn {
        self.look();
        self.each(|way, hands| {
            way.open(hands);
            way.settle(hands, true);
        });
        let until = Instant::now().checked_add(patience.min(LOOK));
        let mut left = TURN;
        // The first event is waited for, the others are taken as far as they are there.
        let mut wait = until.map_or(LOOK, |u| u.saturating_duration_since(Instant::now()));
        while left > 0 && self.next(wait) {
            (left, wait) = (left - 1, Duration::ZERO);
        }
        self.each(|way, hands| way.settle(hands, true));
        if self.is_caught_up() { Turn::CaughtUp } else { Turn::Busy }
    }

    /// Stops reading, and waits for what is under way, this long at most; whether all of it was
    /// acknowledged. What was not is forwarded by the next bridge, if the source can be read again.
    /// Topics that the target refuses are not waited for.
    pub fn finish(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            self.each(|way, hands| {
                way.put_aside(hands);
                if !way.is_refused() {
                    way.open(hands);
                }
                way.settle(hands, false);
            });
            let settled = self.topics.values().all(Way::is_settled);
            let over = self.topics.values().all(|way| way.is_refused() || way.is_settled());
            let left = until.saturating_duration_since(Instant::now());
            if over || left.is_zero() {
                self.write();
                return settled;
            }
            let _ = self.set.next_timeout(left.min(Duration::from_millis(50)));
        }
    }

    /// Writes down where topics stand, and waits a little until that is there.
    fn write(&mut self) {
        let until = Instant::now() + WRITING;
        loop {
            self.each(|way, hands| way.write(hands));
            if !self.topics.values().any(Way::is_writing) || Instant::now() >= until {
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
        self.topics.values_mut().map(|way| way.figures(set)).collect()
    }

    /// What is to be told since the last time.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices.0)
    }

    /// Topics that the target refuses, with the reason told as a notice before.
    #[must_use]
    pub fn refused(&self) -> Vec<TopicName> {
        let refused = self.topics.iter().filter(|(_, way)| way.is_refused());
        refused.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the source's topics could be listed, and nothing but refused topics waits.
    fn is_caught_up(&mut self) -> bool {
        let listed = self.looked.is_some() && !self.complained;
        let set = &mut self.set;
        listed && self.topics.values_mut().all(|way| way.is_refused() || way.is_caught_up(set))
    }

    /// Finds topics that came since the last look.
    fn look(&mut self) {
        if let Some(looking) = &self.looking {
            let Poll::Ready(found) = looking.poll() else { return };
            self.looking = None;
            self.found(found.unwrap_or(Err(TransportError::Closed)));
        }
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let from = self.ends.from.clone();
            self.looking = Some(self.ends.preparers.run(move || from.topics()));
        }
    }

    fn found(&mut self, names: Result<Vec<TopicName>, TransportError>) {
        self.looked = Some(Instant::now());
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    let text = format!("the source's topics cannot be listed: {error}");
                    self.notices.push(Notice { kind: NoticeKind::Outage, topic: None, text });
                }
                return;
            }
        };
        self.complained = false;
        let fit = |patterns: &[String], name: &TopicName| {
            patterns.iter().any(|pattern| fits(pattern, name.as_str()))
        };
        let Options { topics, not, .. } = &self.ends.options;
        for name in names {
            if fit(topics, &name) && !fit(not, &name) && !book::is_one(&name) {
                self.topics.entry(name.clone()).or_insert_with(|| Way::new(&name));
            }
        }
    }

    /// Does something with each topic.
    fn each(&mut self, mut act: impl FnMut(&mut Way, &mut Hands<'_>)) {
        let Self { ends, set, by_member, notices, .. } = self;
        let mut hands = Hands { ends, set, by_member, notices };
        self.topics.values_mut().for_each(|way| act(way, &mut hands));
    }

    /// Takes the next event of any topic; false where there is none.
    fn next(&mut self, wait: Duration) -> bool {
        let next = self.set.next_timeout(wait);
        let member = match &next {
            Ok(None) => return false,
            Ok(Some((member, _))) => *member,
            Err(error) => error.member,
        };
        let Self { ends, set, by_member, notices, .. } = self;
        let way = by_member.get(&member).and_then(|name| self.topics.get_mut(name));
        let Some(way) = way else { return true };
        let mut hands = Hands { ends, set, by_member, notices };
        match next {
            Ok(Some((_, event))) => way.take(event, &mut hands),
            Ok(None) => {}
            Err(error) => {
                way.lost_source(format!("the source cannot be read: {error}"), &mut hands);
            }
        }
        true
    }
}
