//! All topics' ways over one bridge, in one thread.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Member, Subscription, TopicName, TransportError, WaitSet, WaitSetWaker};
use helio_core::name::fits;
use thiserror::Error;

use crate::lane::{self, Flow, Lane};
use crate::overrides::Override;
use crate::position::Begin;
use crate::report::{Figures, Notice, NoticeKind, TopicState};
use crate::target::OpenError;

/// How often it is looked for new topics.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a topic that failed is tried again; twice as late each time, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(200);
/// How late at most.
const LATEST: Duration = Duration::from_secs(5);
/// How many events are taken before acknowledgements are looked at.
const TURN: usize = 1024;
/// How many notices wait for whoever asks; later ones are dropped while so many do.
const MAX_NOTICES: usize = 1024;

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
}

/// Both ends, and what they call themselves.
pub(crate) struct Ends {
    pub(crate) from: Bus,
    pub(crate) to: Bus,
    pub(crate) from_name: String,
    pub(crate) to_name: String,
    /// Ends the bridge's wait.
    pub(crate) waker: Waker,
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

/// Forwards topics from one bus to another. It has no thread of its own: who holds it calls
/// [`Bridge::turn`].
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
    ends: Ends,
    options: Options,
    set: WaitSet,
    topics: BTreeMap<TopicName, Way>,
    by_member: BTreeMap<Member, TopicName>,
    looked: Option<Instant>,
    notices: Vec<Notice>,
    /// What was told of the look for topics, until it succeeds.
    complained: bool,
}

/// A topic, and whether it is open.
struct Way {
    figures: Figures,
    stage: Stage,
    /// Failures in a row, for the next time.
    failures: u32,
    /// What was told, once each.
    told: HashSet<String>,
    /// What its subscriptions counted that are gone: fenced, repeated.
    before: (u64, u64),
    refused: bool,
}

enum Stage {
    /// It is opened then.
    Shut {
        at: Instant,
        trouble: Option<((u32, u64), u32)>,
    },
    Open {
        lane: Box<Lane>,
        reading: Reading,
    },
}

/// Where the source's subscription is.
enum Reading {
    /// Waited for with the others.
    On(Member),
    /// Put aside: the target takes no more at the moment.
    Held(Box<Subscription>),
    /// Given up: what is under way is settled, then the topic is opened anew.
    Ending(String),
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
        let ends = Ends { from, to, from_name, to_name, waker };
        Ok(Self {
            ends,
            options,
            set,
            topics: BTreeMap::new(),
            by_member: BTreeMap::new(),
            looked: None,
            notices: Vec::new(),
            complained: false,
        })
    }

    /// What the source and the target call themselves, as the header of forwarded samples has it.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.ends.from_name, &self.ends.to_name)
    }

    /// Forwards what there is, and waits for this long at most where there is nothing. Opening a
    /// topic may take longer, where a bus does not answer.
    pub fn turn(&mut self, patience: Duration) -> Turn {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.look();
        }
        self.open_due();
        self.settle();
        let until = Instant::now().checked_add(patience.min(LOOK));
        let mut left = TURN;
        // The first event is waited for, the others are taken as far as they are there.
        let mut wait = until.map_or(LOOK, |u| u.saturating_duration_since(Instant::now()));
        while left > 0 && self.next(wait) {
            (left, wait) = (left - 1, Duration::ZERO);
        }
        self.settle();
        if self.is_caught_up() { Turn::CaughtUp } else { Turn::Busy }
    }

    /// Stops reading, and waits for what is under way, this long at most; whether all of it was
    /// acknowledged. What was not is forwarded by the next bridge.
    pub fn finish(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            for way in self.topics.values_mut() {
                way.put_aside(&mut self.set, &mut self.by_member);
            }
            self.settle_all(false);
            let settled = self.topics.values().all(Way::is_settled);
            let left = until.saturating_duration_since(Instant::now());
            if settled || left.is_zero() {
                self.topics.values_mut().for_each(Way::commit);
                return settled;
            }
            let _ = self.set.next_timeout(left.min(Duration::from_millis(50)));
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
        std::mem::take(&mut self.notices)
    }

    /// Topics that the target refuses, with the reason told as a notice before.
    #[must_use]
    pub fn refused(&self) -> Vec<TopicName> {
        let refused = self.topics.iter().filter(|(_, way)| way.refused);
        refused.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the source's topics could be listed, and nothing but refused topics waits.
    fn is_caught_up(&mut self) -> bool {
        let listed = self.looked.is_some() && !self.complained;
        let set = &mut self.set;
        listed && self.topics.values_mut().all(|way| way.refused || way.is_caught_up(set))
    }

    /// Finds topics that came since the last look.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        let names = match self.ends.from.topics() {
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
        for name in names {
            if fit(&self.options.topics, &name) && !fit(&self.options.not, &name) {
                self.topics.entry(name.clone()).or_insert_with(|| Way::new(&name));
            }
        }
    }

    /// Opens the topics whose time has come.
    fn open_due(&mut self) {
        for (name, way) in &mut self.topics {
            let Stage::Shut { at, trouble } = &way.stage else { continue };
            if *at > Instant::now() {
                continue;
            }
            match lane::open(&self.ends, name, &self.options, *trouble) {
                Ok((lane, samples, told)) => {
                    (way.refused, way.failures) = (false, 0);
                    let member = self.set.add(samples);
                    self.by_member.insert(member, name.clone());
                    way.stage = Stage::Open { lane: Box::new(lane), reading: Reading::On(member) };
                    way.tell((NoticeKind::Opened, told), &mut self.notices);
                }
                Err(error) => {
                    way.refused = matches!(error, OpenError::Refused(_));
                    let kind = if way.refused { NoticeKind::Refused } else { NoticeKind::Failed };
                    let trouble = *trouble;
                    way.shut(trouble);
                    way.tell((kind, error.to_string()), &mut self.notices);
                    if kind == NoticeKind::Failed {
                        // Where a bus does not answer, the others would wait for it in turn.
                        break;
                    }
                }
            }
        }
    }

    /// Takes the next event of any topic; false where there is none.
    fn next(&mut self, wait: Duration) -> bool {
        match self.set.next_timeout(wait) {
            Ok(None) => false,
            Ok(Some((member, event))) => {
                let Some(way) =
                    self.by_member.get(&member).and_then(|name| self.topics.get_mut(name))
                else {
                    return true;
                };
                let notices = &mut self.notices;
                let Stage::Open { lane, .. } = &mut way.stage else { return true };
                let told = &mut way.told;
                let mut tell = |notice: Notice| say(told, notices, notice);
                let flow = lane.take(&self.ends, event, (&mut way.figures, &mut tell));
                way.flow(flow, &mut self.set, &mut self.by_member);
                true
            }
            Err(error) => {
                let name = self.by_member.get(&error.member).cloned();
                if let Some(way) = name.and_then(|name| self.topics.get_mut(&name)) {
                    let cause = format!("the source cannot be read: {error}");
                    way.flow(Flow::Anew(cause), &mut self.set, &mut self.by_member);
                }
                true
            }
        }
    }

    fn settle(&mut self) {
        self.settle_all(true);
    }

    /// Looks at acknowledgements, goes on where there is room, and closes what is to be opened
    /// anew.
    fn settle_all(&mut self, read_on: bool) {
        for way in self.topics.values_mut() {
            way.settle(
                (&self.ends, &mut self.set, &mut self.by_member),
                &mut self.notices,
                read_on,
            );
        }
    }
}

fn say(told: &mut HashSet<String>, notices: &mut Vec<Notice>, notice: Notice) {
    // The numbers differ from sample to sample; the reasons are what is told once.
    let once =
        matches!(notice.kind, NoticeKind::Skipped | NoticeKind::Failed | NoticeKind::Refused);
    let reason = notice.text.rsplit_once("forwarded: ").map_or(&*notice.text, |(_, why)| why);
    if once && (told.len() >= MAX_NOTICES || !told.insert(reason.to_owned())) {
        return;
    }
    if notices.len() < MAX_NOTICES {
        notices.push(notice);
    }
}

impl Way {
    fn new(name: &TopicName) -> Self {
        Self {
            figures: Figures::new(name),
            stage: Stage::Shut { at: Instant::now(), trouble: None },
            failures: 0,
            told: HashSet::new(),
            before: (0, 0),
            refused: false,
        }
    }

    fn tell(&mut self, (kind, text): (NoticeKind, String), notices: &mut Vec<Notice>) {
        let topic = Some(self.figures.topic.clone());
        say(&mut self.told, notices, Notice { kind, topic, text });
    }

    /// Does what an attempt has come to.
    fn flow(&mut self, flow: Flow, set: &mut WaitSet, by_member: &mut BTreeMap<Member, TopicName>) {
        match flow {
            Flow::On => {}
            Flow::Full => self.put_aside(set, by_member),
            Flow::Anew(cause) => {
                self.put_aside(set, by_member);
                if let Stage::Open { reading, .. } = &mut self.stage
                    && let Reading::Held(samples) =
                        std::mem::replace(reading, Reading::Ending(cause))
                {
                    let stats = samples.stats();
                    self.before.0 += stats.fenced;
                    self.before.1 += stats.duplicates;
                }
            }
        }
    }

    /// Reads no more until there is room.
    fn put_aside(&mut self, set: &mut WaitSet, by_member: &mut BTreeMap<Member, TopicName>) {
        if let Stage::Open { reading, .. } = &mut self.stage
            && let Reading::On(member) = reading
        {
            by_member.remove(member);
            if let Some(samples) = set.remove(*member) {
                *reading = Reading::Held(Box::new(samples));
            }
        }
    }

    fn settle(
        &mut self,
        (ends, set, by_member): (&Ends, &mut WaitSet, &mut BTreeMap<Member, TopicName>),
        notices: &mut Vec<Notice>,
        read_on: bool,
    ) {
        let Stage::Open { lane, reading } = &mut self.stage else { return };
        let settled = lane.settle(&ends.waker, &mut self.figures);
        if let Reading::Ending(cause) = reading {
            // What is under way may arrive still: only then the position is read again.
            if lane.is_acknowledged() {
                let (cause, trouble) = (std::mem::take(cause), lane.trouble());
                self.shut(trouble);
                self.tell((NoticeKind::Failed, format!("{cause}; it is tried again")), notices);
            }
            return;
        }
        let mut flow = settled;
        if matches!(flow, Flow::On) {
            let told = &mut self.told;
            let mut tell = |notice: Notice| say(told, notices, notice);
            flow = lane.go_on(ends, (&mut self.figures, &mut tell));
        }
        if matches!(flow, Flow::On) && read_on {
            if let Reading::Held(_) = reading
                && let Reading::Held(samples) =
                    std::mem::replace(reading, Reading::Ending(String::new()))
            {
                let member = set.add(*samples);
                by_member.insert(member, self.figures.topic.clone());
                *reading = Reading::On(member);
            }
            if let Reading::On(member) = reading
                && let Some(samples) = set.get_mut(*member)
                && let Err(cause) = lane.sweep(samples)
            {
                flow = Flow::Anew(cause);
            }
        }
        self.flow(flow, set, by_member);
    }

    fn shut(&mut self, trouble: Option<((u32, u64), u32)>) {
        let wait = AGAIN.saturating_mul(1 << self.failures.min(8)).min(LATEST);
        self.failures += 1;
        self.stage = Stage::Shut { at: Instant::now() + wait, trouble };
    }

    fn is_settled(&self) -> bool {
        match &self.stage {
            Stage::Shut { .. } => true,
            Stage::Open { lane, .. } => lane.is_settled(),
        }
    }

    fn is_caught_up(&mut self, set: &mut WaitSet) -> bool {
        let Stage::Open { lane, reading } = &mut self.stage else { return false };
        let samples = match reading {
            Reading::On(member) => set.get_mut(*member),
            Reading::Held(samples) => Some(&mut **samples),
            Reading::Ending(_) => None,
        };
        let has_read =
            |samples: &mut Subscription| lane.has_read(samples) && samples.stats().lag == 0;
        lane.is_settled() && samples.is_some_and(has_read)
    }

    fn commit(&mut self) {
        if let Stage::Open { lane, reading: Reading::Held(samples) } = &mut self.stage {
            // Where it cannot be committed, some samples come twice.
            let _ = lane.commit(samples, Duration::ZERO);
        }
    }

    fn figures(&mut self, set: &mut WaitSet) -> Figures {
        let caught_up = self.is_caught_up(set);
        let mut figures = self.figures.clone();
        (figures.fenced, figures.repeated) = self.before;
        let Stage::Open { lane, reading } = &mut self.stage else { return figures };
        figures.state = if caught_up { TopicState::CaughtUp } else { TopicState::Forwarding };
        figures.under_way = lane.under_way();
        let stats = match reading {
            Reading::On(member) => set.get_mut(*member).map(|samples| samples.stats()),
            Reading::Held(samples) => Some(samples.stats()),
            Reading::Ending(_) => None,
        };
        if let Some(stats) = stats {
            figures.fenced += stats.fenced;
            figures.repeated += stats.duplicates;
            figures.lag = stats.lag;
        }
        figures
    }
}
