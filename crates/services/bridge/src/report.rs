//! A bridge's reports: statistics of each topic, and notices.

use std::collections::HashSet;

use helio_core::TopicName;
use serde::{Serialize, Serializer};

/// The state of a topic on the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicState {
    /// It cannot be forwarded at present, and is retried.
    Waiting,
    /// Samples are in flight or unread.
    Forwarding,
    /// All stored samples were acknowledged by the target.
    CaughtUp,
}

/// The statistics of a topic since the bridge was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The topic.
    #[serde(serialize_with = "name")]
    pub topic: TopicName,
    /// Its state.
    pub state: TopicState,
    /// Samples that the target has acknowledged.
    pub forwarded: u64,
    /// Their payloads, in bytes.
    pub bytes: u64,
    /// Samples that the source no longer had, or that are missing by their producers' sequences.
    pub lost: u64,
    /// Gaps of unknown size.
    pub uncounted: u64,
    /// Samples that came from the target, directly or not.
    pub returned: u64,
    /// Samples that the target will never accept: too large, or of a producer that publishes there
    /// itself.
    pub skipped: u64,
    /// Samples of replaced incarnations on the source.
    pub fenced: u64,
    /// Samples that the source delivered twice.
    pub repeated: u64,
    /// Samples in flight to the target.
    pub under_way: usize,
    /// Samples of the source that are not read yet.
    pub lag: u64,
}

impl Figures {
    pub(crate) fn new(topic: &TopicName) -> Self {
        Self {
            topic: topic.clone(),
            state: TopicState::Waiting,
            forwarded: 0,
            bytes: 0,
            lost: 0,
            uncounted: 0,
            returned: 0,
            skipped: 0,
            fenced: 0,
            repeated: 0,
            under_way: 0,
            lag: 0,
        }
    }
}

/// The kind of a [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A topic is being forwarded.
    Opened,
    /// The target refuses a topic; an operator has to decide.
    Refused,
    /// A topic cannot be forwarded at present; it is retried.
    Failed,
    /// Samples are lost.
    Gap,
    /// The target will never accept a sample. Reported once for each reason.
    Skipped,
    /// A bus cannot be reached, or can be reached again.
    Outage,
}

/// A message to the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// Its kind.
    pub kind: NoticeKind,
    /// The topic; none if the notice concerns all.
    #[serde(serialize_with = "optional_name")]
    pub topic: Option<TopicName>,
    /// The cause, and the remedy if there is one.
    pub text: String,
}

/// How many reported reasons a topic remembers. When full, it forgets all and reports them again.
const MAX_REMEMBERED_NOTICES: usize = 1024;

/// Pending notices.
#[derive(Default)]
pub(crate) struct Notices(pub(crate) Vec<Notice>);

/// The most pending notices; later ones are dropped.
const MAX_PENDING_NOTICES: usize = 1024;

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() < MAX_PENDING_NOTICES {
            self.0.push(notice);
        }
    }
}

/// Drops notices that a topic has reported before.
#[derive(Default)]
pub(crate) struct NoticeFilter(HashSet<(NoticeKind, String)>);

impl NoticeFilter {
    fn push(&mut self, notices: &mut Notices, notice: Notice) {
        let once = !matches!(notice.kind, NoticeKind::Gap | NoticeKind::Outage);
        if once {
            // Sequences differ; the reason behind them is reported once.
            let reason = notice.text.rsplit_once("forwarded: ").map_or(&*notice.text, |(_, r)| r);
            if self.0.len() >= MAX_REMEMBERED_NOTICES {
                self.0.clear();
            }
            if !self.0.insert((notice.kind, reason.to_owned())) {
                return;
            }
        }
        notices.push(notice);
    }

    /// Later failures are reported again.
    pub(crate) fn forget_failures(&mut self) {
        self.0.retain(|(kind, _)| *kind == NoticeKind::Skipped);
    }
}

/// A topic's access to its statistics and to the notices.
pub(crate) struct Reporter<'a> {
    pub(crate) figures: &'a mut Figures,
    pub(crate) filter: &'a mut NoticeFilter,
    pub(crate) notices: &'a mut Notices,
}

impl Reporter<'_> {
    pub(crate) fn notify(&mut self, kind: NoticeKind, text: String) {
        let topic = Some(self.figures.topic.clone());
        self.filter.push(self.notices, Notice { kind, topic, text });
    }
}

fn name<S: Serializer>(name: &TopicName, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name.as_str())
}

fn optional_name<S: Serializer>(name: &Option<TopicName>, to: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(TopicName::as_str).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys and values that `helio bridge --json` prints.
    #[test]
    fn the_json_of_figures_and_notices() {
        let topic = TopicName::new("a/b").unwrap();
        let mut figures = Figures::new(&topic);
        assert_eq!(
            serde_json::to_string(&figures).unwrap(),
            concat!(
                r#"{"topic":"a/b","state":"waiting","forwarded":0,"bytes":0,"lost":0,"#,
                r#""uncounted":0,"returned":0,"skipped":0,"fenced":0,"repeated":0,"#,
                r#""under_way":0,"lag":0}"#
            )
        );
        figures.state = TopicState::CaughtUp;
        let states = [TopicState::Waiting, TopicState::Forwarding, figures.state];
        let states = serde_json::to_string(&states).unwrap();
        assert_eq!(states, r#"["waiting","forwarding","caught_up"]"#);
        let kinds = [
            NoticeKind::Opened,
            NoticeKind::Refused,
            NoticeKind::Failed,
            NoticeKind::Gap,
            NoticeKind::Skipped,
            NoticeKind::Outage,
        ];
        let kinds = serde_json::to_string(&kinds).unwrap();
        assert_eq!(kinds, r#"["opened","refused","failed","gap","skipped","outage"]"#);
        let mut notice = Notice { kind: NoticeKind::Gap, topic: None, text: "x".to_owned() };
        let json = |notice: &Notice| serde_json::to_string(notice).unwrap();
        assert_eq!(json(&notice), r#"{"kind":"gap","topic":null,"text":"x"}"#);
        notice.topic = Some(topic);
        assert_eq!(json(&notice), r#"{"kind":"gap","topic":"a/b","text":"x"}"#);
    }
}
