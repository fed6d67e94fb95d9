//! What a bridge tells: figures of each topic, and what somebody may have to know.

use std::collections::HashSet;

use helio_core::TopicName;
use serde::{Serialize, Serializer};

/// What a topic's way over the bridge is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicState {
    /// It cannot be forwarded at the moment, and is tried again.
    Waiting,
    /// Samples are under way, or lie ahead.
    Forwarding,
    /// Everything that was there has been acknowledged by the target.
    CaughtUp,
}

/// What became of a topic's samples, since the bridge was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The topic.
    #[serde(serialize_with = "name")]
    pub topic: TopicName,
    /// What it is doing.
    pub state: TopicState,
    /// Samples that the target has acknowledged.
    pub forwarded: u64,
    /// Their payloads, in bytes.
    pub bytes: u64,
    /// Samples that the source no longer had, or that its producers' numbers say are missing.
    pub lost: u64,
    /// How often samples were said to be missing of which nobody knows how many they are.
    pub uncounted: u64,
    /// Samples that had been on the target before.
    pub returned: u64,
    /// Samples that the target will never take: too large, or of a producer that writes there
    /// itself.
    pub skipped: u64,
    /// Samples of replaced incarnations on the source.
    pub fenced: u64,
    /// Samples that the source handed out twice.
    pub repeated: u64,
    /// Samples on their way to the target.
    pub under_way: usize,
    /// Samples that lie ahead on the source.
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

/// What kind of thing a [`Notice`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A topic is being forwarded.
    Opened,
    /// The target refuses a topic; somebody has to decide.
    Refused,
    /// A topic cannot be forwarded at the moment; it is tried again.
    Failed,
    /// Samples are lost.
    Gap,
    /// A sample will never be taken by the target. Told once for each reason.
    Skipped,
    /// A bus cannot be reached, or can again.
    Outage,
}

/// What somebody may have to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// What kind of thing it is.
    pub kind: NoticeKind,
    /// The topic; none where it is about all.
    #[serde(serialize_with = "optional_name")]
    pub topic: Option<TopicName>,
    /// The cause, and the remedy where there is one.
    pub text: String,
}

/// How many reasons are remembered as told; with more they are forgotten, and told again.
const MAX_REMEMBERED_NOTICES: usize = 1024;

/// What is to be told, until somebody asks.
#[derive(Default)]
pub(crate) struct Notices(pub(crate) Vec<Notice>);

/// How many notices wait for whoever asks; later ones are dropped while so many do.
const MAX_PENDING_NOTICES: usize = 1024;

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() < MAX_PENDING_NOTICES {
            self.0.push(notice);
        }
    }
}

/// What was told of a topic, once each.
#[derive(Default)]
pub(crate) struct NoticeFilter(HashSet<(NoticeKind, String)>);

impl NoticeFilter {
    fn push(&mut self, notices: &mut Notices, notice: Notice) {
        let once = !matches!(notice.kind, NoticeKind::Gap | NoticeKind::Outage);
        if once {
            // The numbers differ from sample to sample; the reasons are what is told once.
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

    /// What fails from now on is told again.
    pub(crate) fn forget_failures(&mut self) {
        self.0.retain(|(kind, _)| *kind == NoticeKind::Skipped);
    }
}

/// Where one topic counts, and sends its notices.
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
