//! A topic over all failures: it is opened, forwarded, closed, and opened again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Event, Member, PendingTask, Subscription, TopicName, WaitSet};

use crate::context::BridgeContext;
use crate::liveliness::LivelinessMonitor;
use crate::open_topic::{Flow, OpenTopic};
use crate::opening::{self, Opened};
use crate::report::{Figures, NoticeFilter, NoticeKind, Notices, Reporter, TopicState};
use crate::resume_state::ResumeState;
use crate::target::OpenError;

/// When a failed topic is opened again; doubled with each failure, up to [`MAX_RETRY_INTERVAL`].
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The longest retry interval. A topic that was open this long starts again from the shortest.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// What a supervisor needs of the bridge.
pub(crate) struct EventLoop<'a> {
    pub(crate) context: &'a Arc<BridgeContext>,
    pub(crate) set: &'a mut WaitSet,
    pub(crate) by_member: &'a mut BTreeMap<Member, TopicName>,
    pub(crate) notices: &'a mut Notices,
}

/// A topic and its state.
pub(crate) struct TopicSupervisor {
    figures: Figures,
    stage: Stage,
    /// Consecutive failures.
    failures: u32,
    filter: NoticeFilter,
    /// Fenced and repeated samples that closed subscriptions have counted.
    earlier_counts: (u64, u64),
    refused: bool,
    /// Exists once the topic was open.
    liveliness: Option<LivelinessMonitor>,
}

/// A topic that a thread is opening. The state stays valid if the thread panics.
struct Opening {
    state: Arc<Mutex<Box<ResumeState>>>,
    opened: PendingTask<Result<Opened, OpenError>>,
    /// Samples that were read and not forwarded.
    pending: usize,
}

enum Stage {
    /// It is opened at this time.
    Closed { at: Instant, state: Box<ResumeState> },
    /// A thread is opening it.
    Opening(Opening),
    Open {
        topic: Box<OpenTopic>,
        /// Set while the source's subscription is in the wait set; otherwise the topic holds it.
        member: Option<Member>,
        /// Why the topic is closing: samples in flight are settled first.
        closing: Option<(NoticeKind, String)>,
    },
}

impl TopicSupervisor {
    pub(crate) fn new(name: &TopicName) -> Self {
        Self {
            figures: Figures::new(name),
            stage: Stage::Closed { at: Instant::now(), state: Box::default() },
            failures: 0,
            filter: NoticeFilter::default(),
            earlier_counts: (0, 0),
            refused: false,
            liveliness: None,
        }
    }

    fn notify(&mut self, notices: &mut Notices, kind: NoticeKind, text: String) {
        let Self { figures, filter, .. } = self;
        Reporter { figures, filter, notices }.notify(kind, text);
    }

    /// Starts opening the topic when it is due, and continues with the result.
    pub(crate) fn open(&mut self, event_loop: &mut EventLoop<'_>) {
        if let Stage::Closed { at, state } = &mut self.stage
            && *at <= Instant::now()
        {
            let (context, name) = (Arc::clone(event_loop.context), self.figures.topic.clone());
            let (pending, state) = (state.pending(), Arc::new(Mutex::new(std::mem::take(state))));
            let work = Arc::clone(&state);
            let open = move || opening::open(&context, &name, &mut locked(&work));
            let opened = event_loop.context.openers.run(open);
            self.stage = Stage::Opening(Opening { state, opened, pending });
        }
        if let (Stage::Closed { .. } | Stage::Opening(_), Some(liveliness)) =
            (&self.stage, &mut self.liveliness)
        {
            // Departed producers are handled once the topic is open.
            let _ = liveliness.sweep(event_loop.context, None);
        }
        let Stage::Opening(Opening { state, opened, .. }) = &self.stage else { return };
        let Poll::Ready(opened) = opened.poll() else { return };
        let state = std::mem::take(&mut *locked(state));
        let lost = || OpenError::Failed("a thread of the bridge panicked".to_owned());
        match opened.unwrap_or_else(|| Err(lost())) {
            Ok(mut opened) => {
                self.refused = false;
                let notice = std::mem::take(&mut opened.notice);
                for text in std::mem::take(&mut opened.replaced) {
                    self.notify(event_loop.notices, NoticeKind::Gap, text);
                }
                let (name, qos) = (&self.figures.topic, opened.both.target.qos());
                self.liveliness.get_or_insert_with(|| LivelinessMonitor::new(name, qos));
                let topic = Box::new(OpenTopic::new(name, state, opened));
                self.stage = Stage::Open { topic, member: None, closing: None };
                self.notify(event_loop.notices, NoticeKind::Opened, notice);
            }
            Err(error) => {
                let refused = matches!(error, OpenError::Refused(_));
                let kind = if refused { NoticeKind::Refused } else { NoticeKind::Failed };
                self.close(state, kind);
                self.notify(event_loop.notices, kind, error.to_string());
            }
        }
    }

    fn close(&mut self, mut state: Box<ResumeState>, kind: NoticeKind) {
        self.refused = kind == NoticeKind::Refused;
        if self.refused {
            // Samples would only accumulate until an operator decides.
            self.add_counts(state.subscription.take());
        }
        if std::mem::take(&mut state.source_replaced) {
            self.add_counts(state.subscription.take());
        }
        let wait =
            MIN_RETRY_INTERVAL.saturating_mul(1 << self.failures.min(8)).min(MAX_RETRY_INTERVAL);
        self.failures += 1;
        self.stage = Stage::Closed { at: Instant::now() + wait, state };
    }

    /// Adds the counts of a closed subscription.
    fn add_counts(&mut self, samples: Option<Subscription>) {
        if let Some(stats) = samples.map(|samples| samples.stats()) {
            self.earlier_counts.0 += stats.fenced;
            self.earlier_counts.1 += stats.duplicates;
        }
    }

    /// Handles an event of the source.
    pub(crate) fn handle(&mut self, event: Event, event_loop: &mut EventLoop<'_>) {
        let Self { figures, filter, stage: Stage::Open { topic, .. }, .. } = self else { return };
        let reporter = &mut Reporter { figures, filter, notices: event_loop.notices };
        let flow = topic.handle(event_loop.context, event, reporter);
        self.apply(flow, event_loop);
    }

    /// Reopens the topic after its subscription failed.
    pub(crate) fn source_failed(&mut self, cause: String, event_loop: &mut EventLoop<'_>) {
        self.apply(Flow::Reopen(cause), event_loop);
        if let Stage::Open { topic, .. } = &mut self.stage {
            let samples = topic.state.subscription.take();
            self.add_counts(samples);
        }
    }

    /// Acts on the result of an attempt to forward.
    fn apply(&mut self, flow: Flow, event_loop: &mut EventLoop<'_>) {
        let end = match flow {
            Flow::Continue => return,
            Flow::Full => None,
            Flow::Reopen(cause) => Some((NoticeKind::Failed, format!("{cause}; retrying"))),
            Flow::Refused(cause) => Some((NoticeKind::Refused, cause)),
        };
        self.stop_reading(event_loop);
        if let (Stage::Open { closing, .. }, Some(end)) = (&mut self.stage, end) {
            closing.get_or_insert(end);
        }
    }

    /// Takes the subscription out of the wait set.
    pub(crate) fn stop_reading(&mut self, event_loop: &mut EventLoop<'_>) {
        if let Stage::Open { topic, member, .. } = &mut self.stage
            && let Some(member) = member.take()
        {
            event_loop.by_member.remove(&member);
            topic.state.subscription = event_loop.set.remove(member);
        }
    }

    /// Polls acknowledgements, forwards pending samples, and finishes closing.
    pub(crate) fn advance(&mut self, event_loop: &mut EventLoop<'_>, read: bool) {
        let Self { figures, filter, stage: Stage::Open { topic, closing, .. }, .. } = self else {
            return;
        };
        let reporter = &mut Reporter { figures, filter, notices: event_loop.notices };
        let mut flow = topic.poll_receipts(event_loop.context, reporter);
        if closing.is_some() {
            // Samples in flight may still be acknowledged.
            if topic.is_idle() {
                self.finish_closing(event_loop);
            }
            return;
        }
        if matches!(flow, Flow::Continue) {
            flow = topic.forward_pending(event_loop.context, reporter);
        }
        if matches!(flow, Flow::Continue) && read {
            self.start_reading(event_loop);
        }
        if matches!(flow, Flow::Continue | Flow::Full)
            && let Err(cause) = self.sweep(event_loop)
        {
            flow = Flow::Reopen(cause);
        }
        self.apply(flow, event_loop);
    }

    fn start_reading(&mut self, event_loop: &mut EventLoop<'_>) {
        let Stage::Open { topic, member, .. } = &mut self.stage else { return };
        if let (None, Some(samples)) = (*member, topic.state.subscription.take()) {
            let new = event_loop.set.add(samples);
            event_loop.by_member.insert(new, self.figures.topic.clone());
            *member = Some(new);
        }
    }

    fn sweep(&mut self, event_loop: &mut EventLoop<'_>) -> Result<(), String> {
        let Stage::Open { topic, member, .. } = &mut self.stage else { return Ok(()) };
        let samples = member.and_then(|member| event_loop.set.get_mut(member));
        let idle = topic.is_settled() && samples.is_some_and(|samples| samples.stats().lag == 0);
        topic.write_checkpoints(event_loop.context, false);
        match &mut self.liveliness {
            Some(liveliness) => topic.update_liveliness(event_loop.context, liveliness, idle),
            None => Ok(()),
        }
    }

    /// Closes the topic, to be opened again.
    fn finish_closing(&mut self, event_loop: &mut EventLoop<'_>) {
        let closed = Stage::Closed { at: Instant::now(), state: Box::default() };
        let Stage::Open { topic, closing: Some((kind, cause)), .. } =
            std::mem::replace(&mut self.stage, closed)
        else {
            return;
        };
        if topic.is_healthy(MAX_RETRY_INTERVAL) {
            self.failures = 0;
            self.filter.forget_failures();
        }
        self.close(topic.into_state(), kind);
        self.notify(event_loop.notices, kind, cause);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether all samples that were read are settled.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.stage {
            Stage::Closed { state, .. } => state.pending() == 0,
            Stage::Opening(opening) => opening.pending == 0,
            Stage::Open { topic, .. } => topic.is_settled(),
        }
    }

    pub(crate) fn is_caught_up(&mut self, set: &mut WaitSet) -> bool {
        let Stage::Open { topic, member, closing: None } = &mut self.stage else { return false };
        let samples = match member {
            Some(member) => set.get_mut(*member).map(|samples| &*samples),
            None => topic.state.subscription.as_ref(),
        };
        let has_read =
            |samples: &Subscription| topic.has_read_initial(samples) && samples.stats().lag == 0;
        topic.is_settled() && samples.is_some_and(has_read)
    }

    pub(crate) fn write_checkpoints(&mut self, event_loop: &mut EventLoop<'_>) {
        if let Stage::Open { topic, .. } = &mut self.stage {
            topic.write_checkpoints(event_loop.context, true);
        }
    }

    pub(crate) fn is_writing_checkpoints(&self) -> bool {
        let Stage::Open { topic, .. } = &self.stage else { return false };
        topic.state.writing.iter().any(|(_, publishing)| publishing.outcome().is_none())
    }

    pub(crate) fn figures(&mut self, set: &mut WaitSet) -> Figures {
        let caught_up = self.is_caught_up(set);
        let mut figures = self.figures.clone();
        figures.fenced += self.earlier_counts.0;
        figures.repeated += self.earlier_counts.1;
        let (topic, member) = match &mut self.stage {
            Stage::Open { topic, member, .. } => (topic, member),
            // The lag stays the last known one.
            Stage::Closed { state, .. } => {
                return Figures { under_way: state.pending(), ..figures };
            }
            Stage::Opening(opening) => return Figures { under_way: opening.pending, ..figures },
        };
        figures.state = if caught_up { TopicState::CaughtUp } else { TopicState::Forwarding };
        figures.under_way = topic.pending();
        let stats = match member {
            Some(member) => set.get_mut(*member).map(|samples| samples.stats()),
            None => topic.state.subscription.as_ref().map(Subscription::stats),
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
