//! One topic over all failures: opened, forwarded, shut, and opened again.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Event, Member, Subscription, TopicName, WaitSet};

use crate::bridge::Ends;
use crate::kept::Kept;
use crate::lane::{Flow, Lane};
use crate::lives::Lives;
use crate::opening::{self, Opened};
use crate::pool::Running;
use crate::report::{Figures, Notice, NoticeKind, TopicState};
use crate::target::OpenError;

/// How soon a topic that failed is tried again; twice as late each time, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(200);
/// How late at most; a topic that was well for so long has failed for the first time again.
const LATEST: Duration = Duration::from_secs(5);
/// How many reasons are remembered as told; with more they are forgotten, and told again.
const MAX_TOLD: usize = 1024;

/// What a topic's way is worked with.
pub(crate) struct Hands<'a> {
    pub(crate) ends: &'a Arc<Ends>,
    pub(crate) set: &'a mut WaitSet,
    pub(crate) by_member: &'a mut BTreeMap<Member, TopicName>,
    pub(crate) notices: &'a mut Notices,
}

/// What is to be told, until somebody asks.
#[derive(Default)]
pub(crate) struct Notices(pub(crate) Vec<Notice>);

/// How many notices wait for whoever asks; later ones are dropped while so many do.
const MAX_NOTICES: usize = 1024;

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() < MAX_NOTICES {
            self.0.push(notice);
        }
    }
}

/// What was told of a topic, once each.
#[derive(Default)]
struct Told(HashSet<(NoticeKind, String)>);

impl Told {
    fn say(&mut self, notices: &mut Notices, notice: Notice) {
        let once = !matches!(notice.kind, NoticeKind::Gap | NoticeKind::Outage);
        if once {
            // The numbers differ from sample to sample; the reasons are what is told once.
            let reason = notice.text.rsplit_once("forwarded: ").map_or(&*notice.text, |(_, r)| r);
            if self.0.len() >= MAX_TOLD {
                self.0.clear();
            }
            if !self.0.insert((notice.kind, reason.to_owned())) {
                return;
            }
        }
        notices.push(notice);
    }

    /// What fails from now on is told again.
    fn is_well(&mut self) {
        self.0.retain(|(kind, _)| *kind == NoticeKind::Skipped);
    }
}

/// A topic, and whether it is open.
pub(crate) struct Way {
    figures: Figures,
    stage: Stage,
    /// Failures in a row, for the next time.
    failures: u32,
    told: Told,
    /// What its subscriptions counted that are gone: fenced, repeated.
    before: (u64, u64),
    refused: bool,
    /// Who lives on the source, once it was open.
    lives: Option<Lives>,
}

/// What a thread opens, and what it works on: that stays what it is where the thread fails.
struct Opening {
    kept: Arc<Mutex<Box<Kept>>>,
    opened: Running<Result<Opened, OpenError>>,
    /// How much it has in hand.
    behind: usize,
}

enum Stage {
    /// It is opened then.
    Shut { at: Instant, kept: Box<Kept> },
    /// A thread of its own is opening it.
    Opening(Opening),
    Open {
        lane: Box<Lane>,
        /// The source's subscription is waited for with the others; else the lane has it.
        member: Option<Member>,
        /// Given up, and why: what is under way is settled, then the topic is opened anew.
        ending: Option<(NoticeKind, String)>,
    },
}

impl Way {
    pub(crate) fn new(name: &TopicName) -> Self {
        Self {
            figures: Figures::new(name),
            stage: Stage::Shut { at: Instant::now(), kept: Box::default() },
            failures: 0,
            told: Told::default(),
            before: (0, 0),
            refused: false,
            lives: None,
        }
    }

    fn tell(&mut self, (kind, text): (NoticeKind, String), notices: &mut Notices) {
        let topic = Some(self.figures.topic.clone());
        self.told.say(notices, Notice { kind, topic, text });
    }

    /// Begins to open it where its time has come, and takes it where it was opened.
    pub(crate) fn open(&mut self, hands: &mut Hands<'_>) {
        if let Stage::Shut { at, kept } = &mut self.stage
            && *at <= Instant::now()
        {
            let (ends, name) = (Arc::clone(hands.ends), self.figures.topic.clone());
            let (behind, kept) = (kept.behind(), Arc::new(Mutex::new(std::mem::take(kept))));
            let work = Arc::clone(&kept);
            let open = move || opening::open(&ends, &name, &mut locked(&work));
            let opened = hands.ends.openers.run(open);
            self.stage = Stage::Opening(Opening { kept, opened, behind });
        }
        if let (Stage::Shut { .. } | Stage::Opening(_), Some(lives)) =
            (&self.stage, &mut self.lives)
        {
            // Who has gone meanwhile is seen when it is open.
            let _ = lives.sweep(hands.ends, None);
        }
        let Stage::Opening(Opening { kept, opened, .. }) = &self.stage else { return };
        let Poll::Ready(opened) = opened.poll() else { return };
        let kept = std::mem::take(&mut *locked(kept));
        let lost = || OpenError::Failed("a thread of the bridge has failed".to_owned());
        match opened.unwrap_or_else(|| Err(lost())) {
            Ok(mut opened) => {
                self.refused = false;
                let told = std::mem::take(&mut opened.told);
                let (name, qos) = (&self.figures.topic, opened.both.target.qos());
                self.lives.get_or_insert_with(|| Lives::new(name, qos));
                let lane = Box::new(Lane::new(name, kept, opened));
                self.stage = Stage::Open { lane, member: None, ending: None };
                self.tell((NoticeKind::Opened, told), hands.notices);
            }
            Err(error) => {
                let refused = matches!(error, OpenError::Refused(_));
                let kind = if refused { NoticeKind::Refused } else { NoticeKind::Failed };
                self.shut(kept, kind);
                self.tell((kind, error.to_string()), hands.notices);
            }
        }
    }

    fn shut(&mut self, mut kept: Box<Kept>, kind: NoticeKind) {
        self.refused = kind == NoticeKind::Refused;
        if self.refused {
            // Until somebody decides, what comes would only lie here.
            self.lose(kept.samples.take());
        }
        if std::mem::take(&mut kept.astray) {
            self.lose(kept.samples.take());
        }
        let wait = AGAIN.saturating_mul(1 << self.failures.min(8)).min(LATEST);
        self.failures += 1;
        self.stage = Stage::Shut { at: Instant::now() + wait, kept };
    }

    /// A subscription is gone.
    fn lose(&mut self, samples: Option<Subscription>) {
        if let Some(stats) = samples.map(|samples| samples.stats()) {
            self.before.0 += stats.fenced;
            self.before.1 += stats.duplicates;
        }
    }

    /// Takes what the source has handed out.
    pub(crate) fn take(&mut self, event: Event, hands: &mut Hands<'_>) {
        let Stage::Open { lane, .. } = &mut self.stage else { return };
        let (told, notices) = (&mut self.told, &mut *hands.notices);
        let mut tell = |notice: Notice| told.say(notices, notice);
        let flow = lane.take(hands.ends, event, (&mut self.figures, &mut tell));
        self.flow(flow, hands);
    }

    /// The source's subscription has failed.
    pub(crate) fn lost_source(&mut self, cause: String, hands: &mut Hands<'_>) {
        self.flow(Flow::Anew(cause), hands);
        if let Stage::Open { lane, .. } = &mut self.stage {
            let samples = lane.kept.samples.take();
            self.lose(samples);
        }
    }

    /// Does what an attempt has come to.
    fn flow(&mut self, flow: Flow, hands: &mut Hands<'_>) {
        let end = match flow {
            Flow::On => return,
            Flow::Full => None,
            Flow::Anew(cause) => Some((NoticeKind::Failed, format!("{cause}; it is tried again"))),
            Flow::Refused(cause) => Some((NoticeKind::Refused, cause)),
        };
        self.put_aside(hands);
        if let (Stage::Open { ending, .. }, Some(end)) = (&mut self.stage, end) {
            ending.get_or_insert(end);
        }
    }

    /// Reads no more until there is room.
    pub(crate) fn put_aside(&mut self, hands: &mut Hands<'_>) {
        if let Stage::Open { lane, member, .. } = &mut self.stage
            && let Some(member) = member.take()
        {
            hands.by_member.remove(&member);
            lane.kept.samples = hands.set.remove(member);
        }
    }

    /// Looks at acknowledgements, goes on where there is room, and shuts what is to be opened anew.
    pub(crate) fn settle(&mut self, hands: &mut Hands<'_>, read_on: bool) {
        let Stage::Open { lane, ending, .. } = &mut self.stage else { return };
        let (told, notices) = (&mut self.told, &mut *hands.notices);
        let mut tell = |notice: Notice| told.say(notices, notice);
        let mut flow = lane.settle(hands.ends, (&mut self.figures, &mut tell));
        if ending.is_some() {
            // What is under way may arrive still.
            if lane.is_quiet() {
                self.end(hands);
            }
            return;
        }
        if matches!(flow, Flow::On) {
            flow = lane.go_on(hands.ends, (&mut self.figures, &mut tell));
        }
        if matches!(flow, Flow::On) && read_on {
            self.read_on(hands);
        }
        if matches!(flow, Flow::On | Flow::Full)
            && let Err(cause) = self.sweep(hands)
        {
            flow = Flow::Anew(cause);
        }
        self.flow(flow, hands);
    }

    fn read_on(&mut self, hands: &mut Hands<'_>) {
        let Stage::Open { lane, member, .. } = &mut self.stage else { return };
        if let (None, Some(samples)) = (*member, lane.kept.samples.take()) {
            let new = hands.set.add(samples);
            hands.by_member.insert(new, self.figures.topic.clone());
            *member = Some(new);
        }
    }

    fn sweep(&mut self, hands: &mut Hands<'_>) -> Result<(), String> {
        let Stage::Open { lane, member, .. } = &mut self.stage else { return Ok(()) };
        let samples = member.and_then(|member| hands.set.get_mut(member));
        let idle = lane.is_settled() && samples.is_some_and(|samples| samples.stats().lag == 0);
        lane.write(hands.ends, false);
        match &mut self.lives {
            Some(lives) => lane.sweep(hands.ends, lives, idle),
            None => Ok(()),
        }
    }

    /// Shuts it, to be opened anew.
    fn end(&mut self, hands: &mut Hands<'_>) {
        let shut = Stage::Shut { at: Instant::now(), kept: Box::default() };
        let Stage::Open { lane, ending: Some((kind, cause)), .. } =
            std::mem::replace(&mut self.stage, shut)
        else {
            return;
        };
        if lane.is_well(LATEST) {
            self.failures = 0;
            self.told.is_well();
        }
        self.shut(lane.into_kept(), kind);
        self.tell((kind, cause), hands.notices);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether nothing of what was read waits for the target.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.stage {
            Stage::Shut { kept, .. } => kept.behind() == 0,
            Stage::Opening(opening) => opening.behind == 0,
            Stage::Open { lane, .. } => lane.is_settled(),
        }
    }

    pub(crate) fn is_caught_up(&mut self, set: &mut WaitSet) -> bool {
        let Stage::Open { lane, member, ending: None } = &mut self.stage else { return false };
        let samples = match member {
            Some(member) => set.get_mut(*member).map(|samples| &*samples),
            None => lane.kept.samples.as_ref(),
        };
        let has_read = |samples: &Subscription| lane.has_read(samples) && samples.stats().lag == 0;
        lane.is_settled() && samples.is_some_and(has_read)
    }

    /// Writes down where it stands.
    pub(crate) fn write(&mut self, hands: &mut Hands<'_>) {
        if let Stage::Open { lane, .. } = &mut self.stage {
            lane.write(hands.ends, true);
        }
    }

    pub(crate) fn is_writing(&self) -> bool {
        let Stage::Open { lane, .. } = &self.stage else { return false };
        lane.kept.writing.iter().any(|(_, publishing)| publishing.outcome().is_none())
    }

    pub(crate) fn figures(&mut self, set: &mut WaitSet) -> Figures {
        let caught_up = self.is_caught_up(set);
        let mut figures = self.figures.clone();
        figures.fenced += self.before.0;
        figures.repeated += self.before.1;
        let (lane, member) = match &mut self.stage {
            Stage::Open { lane, member, .. } => (lane, member),
            // The lag is what it was.
            Stage::Shut { kept, .. } => return Figures { under_way: kept.behind(), ..figures },
            Stage::Opening(opening) => return Figures { under_way: opening.behind, ..figures },
        };
        figures.state = if caught_up { TopicState::CaughtUp } else { TopicState::Forwarding };
        figures.under_way = lane.under_way();
        let stats = match member {
            Some(member) => set.get_mut(*member).map(|samples| samples.stats()),
            None => lane.kept.samples.as_ref().map(Subscription::stats),
        };
        if let Some(stats) = stats {
            figures.fenced += stats.fenced;
            figures.repeated += stats.duplicates;
            figures.lag = stats.lag;
            self.figures.lag = stats.lag;
        }
        figures
    }
}
