//! What participants say of themselves on `_helio/table`: words, each under a key.
//!
//! Format. An envelope whose key is a word's key and whose payload is JSON; `null` takes the word
//! back. The producer is the session: the identity of the participant that says so. Beside it
//! `_helio/answers` has the answers to questions, whose key is the session that has asked.

use std::fmt::Write as _;

use helio_core::{ProducerName, Qos, SchemaId, TopicName};
use serde::{Deserialize, Serialize};

use crate::ends::Guids;
use crate::entity::Guid;

/// Who has said something first, and when: the smaller one holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    /// The session.
    pub(crate) by: String,
}

/// What a session says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(crate) enum Word {
    /// It has a topic open, and knows it like this.
    Topic {
        #[serde(with = "name")]
        topic: TopicName,
        qos: Qos,
        origin: Origin,
    },
    /// A schema's text.
    Text { schema: String, text: String },
    /// A topic has a schema, as one more behind so many.
    Of {
        #[serde(with = "name")]
        topic: TopicName,
        schema: String,
        after: usize,
        origin: Origin,
    },
    /// It writes a topic, or did.
    Writer {
        #[serde(with = "name")]
        topic: TopicName,
        writer: WriterWord,
    },
    /// It is a durability service.
    Keeper { at: u64 },
    /// It keeps a topic, as durability services do.
    Keeps {
        #[serde(with = "name")]
        topic: TopicName,
        keeps: Keeps,
    },
    /// Somebody wants a topic kept whose quality of service does not say so.
    Wanted {
        #[serde(with = "name")]
        topic: TopicName,
    },
    /// It wants answers.
    Ask(Ask),
}

/// How a durability service keeps a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keeps {
    /// It has all that others had before, and what it says to have is waited for.
    pub(crate) ready: bool,
    /// Grows each time that it is ready anew.
    pub(crate) turn: u64,
    /// Grows each time that another service is there again that was gone: it may have missed
    /// something without knowing.
    #[serde(default)]
    pub(crate) parted: u64,
    /// It has none of it, and hands out nothing.
    #[serde(default)]
    pub(crate) refused: bool,
    /// It has last values alone, with holes: nobody's receipts wait for it, and no mark is made of
    /// what it has.
    #[serde(default)]
    pub(crate) last_values: bool,
    /// It has it, and cannot hand it out yet: it has not been opened since the service's start.
    #[serde(default)]
    pub(crate) opening: bool,
    /// Why it cannot keep it at the moment; or, where it is ready, why not on the disk.
    pub(crate) trouble: Option<String>,
}

/// One producer in one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WriterWord {
    pub(crate) partition: u32,
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
    pub(crate) open: bool,
    /// When it last published or asserted that it lives, nanoseconds of TAI by its bus's clock: for
    /// lists that people read.
    pub(crate) seen: i64,
    /// How long ago that was when the word was said, in nanoseconds. Leases run by it and by the
    /// clock of who hears it: two hosts' times of day are not compared.
    #[serde(default)]
    pub(crate) quiet: u64,
    /// When it has claimed an exclusive topic; none where the topic is shared.
    pub(crate) claim: Option<Claim>,
}

/// A claim of an exclusive topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) origin: Origin,
    /// The ownership's strength: above that of every writer before it.
    pub(crate) strength: i32,
    /// Those that it has taken over from.
    pub(crate) fences: Vec<Fenced>,
}

/// A writer that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fenced {
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
}

impl Claim {
    /// Whether it has taken over from a writer.
    pub(crate) fn fences(&self, producer: &ProducerName, incarnation: u64) -> bool {
        self.fences.iter().any(|f| f.producer == *producer && f.incarnation == incarnation)
    }
}

/// A question: an answer says that everything said before has been heard, and what was said before
/// it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// Which of a session's open questions it is: each is a word of its own, so that one does not
    /// replace another that was not heard yet.
    #[serde(default)]
    pub(crate) slot: usize,
    /// Grows with each question of a session.
    pub(crate) number: u64,
    /// What is wanted besides.
    #[serde(default)]
    pub(crate) about: About,
}

/// What a question is about, besides what was said before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum About {
    #[default]
    Nothing,
    /// The session is new: writers with a lease say again how long they have been quiet.
    Joining,
    /// A producer's newest incarnation on a topic: what ended sessions have said is repeated by
    /// nobody.
    Producer {
        #[serde(with = "name")]
        topic: TopicName,
        #[serde(with = "name")]
        producer: ProducerName,
    },
    /// An end that was opened: the answer comes when those of the same topic have met it.
    Opened(Opened),
}

/// A reader or writer that was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Opened {
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    pub(crate) end: End,
    pub(crate) guids: Guids,
    /// Empty is all.
    pub(crate) partitions: Vec<u32>,
}

/// What an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Reader,
    Writer,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    /// The number of the session's newest word. Words and answers come by two DDS writers: the
    /// answer counts when that word has come.
    pub(crate) said: u64,
    /// The producer's newest incarnation, of a question about one; 0 is none.
    pub(crate) newest: u64,
    /// The ends of the other kind that the opened one has met.
    pub(crate) met: Vec<String>,
    /// Where their writers stand, so that a late joiner knows when its history is whole.
    pub(crate) stands: Vec<Stand>,
}

/// Where a producer stands in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stand {
    pub(crate) partition: u32,
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
    /// The number of its newest sample.
    pub(crate) sequence: u64,
    /// The numbers of its newest envelope and of its newest typed sample; 0 is none.
    #[serde(default)]
    pub(crate) ways: [u64; 2],
}

impl Stand {
    /// How far: incarnation and number.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }
}

impl Word {
    /// What it is said under: a later word of a session with the same key replaces it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Topic { topic, .. } => format!("topic {topic}"),
            Self::Text { schema, .. } => format!("text {schema}"),
            Self::Of { topic, schema, .. } => format!("of {topic} {schema}"),
            Self::Writer { topic, writer } => {
                format!("writer {topic} {} {}", writer.partition, writer.producer)
            }
            Self::Ask(Ask { slot, .. }) => format!("ask {slot}"),
            Self::Keeper { .. } => "keeper".to_owned(),
            Self::Keeps { topic, .. } => format!("keeps {topic}"),
            Self::Wanted { topic } => format!("wanted {topic}"),
        }
    }
}

/// A schema's identity as the words have it.
pub(crate) fn hex(id: SchemaId) -> String {
    format!("{:x}", id.0)
}

/// And back.
pub(crate) fn schema_id(text: &str) -> Option<SchemaId> {
    u64::from_str_radix(text, 16).ok().map(SchemaId)
}

/// An entity's identity as the words have it.
pub(crate) fn guid(guid: Guid) -> String {
    guid.0.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Names as text.
pub(crate) mod name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<N: Display, S: Serializer>(
        name: &N,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(name)
    }

    pub(crate) fn deserialize<'de, N, D>(deserializer: D) -> Result<N, D::Error>
    where
        N: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
