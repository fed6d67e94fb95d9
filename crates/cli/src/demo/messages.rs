//! Tasks, orders and messages of the demo's processes.

use std::path::PathBuf;

use helio_component::protocol::StreamStats;
use serde::{Deserialize, Serialize};

use super::accounting::{AckedSequences, CommandId, Commands, CountsBySource, Numbering, Source};
use super::logging::Logged;

/// The environment of every process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct World {
    pub(crate) url: String,
    /// A folder of interfaces, instead of the built-in ones.
    pub(crate) interfaces: Option<PathBuf>,
}

/// A process that runs one or more components.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ComponentTask {
    pub(crate) world: World,
    pub(crate) parts: Vec<Part>,
}

/// A component's instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) component: String,
    pub(crate) index: i32,
    pub(crate) kind: Kind,
    /// Short names of telemetry, with samples per second.
    pub(crate) telemetry: Vec<(String, f64)>,
}

/// The role of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Measures something.
    Sensors,
    /// Follows targets.
    Mount,
    /// Takes images.
    Camera,
}

/// The player of alert packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AlertTask {
    pub(crate) url: String,
    pub(crate) topic: String,
    pub(crate) rate_hz: f64,
    /// Packets of a file, instead of synthetic ones.
    pub(crate) file: Option<PathBuf>,
}

/// The task of the script, which commands the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScriptTask {
    pub(crate) world: World,
    /// All components, with their indices; the mount is one of them.
    pub(crate) components: Vec<(String, i32)>,
    pub(crate) mount: String,
    pub(crate) camera: Option<(String, i32)>,
    pub(crate) exposure_s: f64,
}

/// The task of the sender of the mount's targets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PointingTask {
    pub(crate) world: World,
    pub(crate) mount: String,
    pub(crate) rate_hz: f64,
}

/// An order to a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin; schedules begin at this time of the monotonic clock.
    Begin { start_ns: u64 },
    /// Stop publishing by the schedule.
    Rest,
    /// Publish this many samples of the first telemetry at full speed.
    Burst { samples: u64 },
    /// The script: command the mount, which has just died.
    Died,
    /// The script: the mount is back; resume.
    Returned,
    /// End.
    End,
}

/// A message of a player.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ProcessMessage {
    /// It is ready, with all topics open.
    Ready,
    /// It was refused, with the reason.
    Refused(String),
    /// The receipt of a sample with this sequence number.
    Receipt(Source, u64),
    /// The burst is over.
    Burst(Burst),
    /// A line for people.
    Story(String),
    /// Its current activity, for people.
    Doing(String),
    /// The script's progress.
    Came(Step),
    /// A command has ended.
    Called(Called),
    /// The counters of the mount's stream of targets.
    Targets(Targets),
    /// The last message.
    End { cpu_s: f64, rss_mb: f64, logged: Logged },
}

/// The steps of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// All components are ENABLED and the mount tracks.
    Began,
    /// After this time it was notified that the mount is gone.
    ToldGone { after_ns: u64 },
    /// The mount tracks again.
    Resumed,
}

/// The burst at its writer, with times of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Burst {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) samples: u64,
}

/// A command and its outcome for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Called {
    /// `None` if nothing was sent.
    pub(crate) id: Option<CommandId>,
    pub(crate) command: String,
    /// SAL's code of the outcome.
    pub(crate) code: i32,
    /// Whether the component itself sent it.
    pub(crate) acknowledged: bool,
    /// Whether it was the expected one.
    pub(crate) met: bool,
    /// The time from sending to the outcome.
    pub(crate) took_ns: u64,
}

/// Counters of a stream of commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Targets {
    pub(crate) received: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    /// The most in a row that were late or lost.
    pub(crate) longest_run: u64,
}

impl From<StreamStats> for Targets {
    fn from(stats: StreamStats) -> Self {
        let StreamStats { received, late, lost, most_missing, .. } = stats;
        Self { received, late, lost, longest_run: most_missing }
    }
}

impl Targets {
    /// The counters of two incarnations of a component.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            late: self.late + other.late,
            lost: self.lost + other.lost,
            longest_run: self.longest_run.max(other.longest_run),
        }
    }
}

/// A reader process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReaderTask {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// The role of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Reads every topic that appears, from its beginning.
    Records,
    /// Reads these from their beginning.
    Follows(Vec<String>),
    /// Joins late and reads the newest sample of every key, until it has these or newer ones.
    Joins(Vec<Newest>),
}

/// The newest sample of a topic's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Newest {
    pub(crate) topic: String,
    pub(crate) key: Vec<u8>,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

/// An order to a reader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ReaderOrder {
    /// Report the newest received event of every key.
    TellNewest,
    /// All writers have ended; report once all of this is received.
    Drain(AckedSequences),
}

/// A message of a reader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ReaderMessage {
    /// It is ready.
    Ready,
    /// The newest event of every key.
    Newest(Vec<Newest>),
    /// The last message.
    Report(Box<ReaderReport>),
}

/// The report of a reader.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ReaderReport {
    /// By source.
    pub(crate) seen: CountsBySource,
    /// Latencies in nanoseconds with their counts, by topic.
    pub(crate) latencies: Vec<(String, Vec<(u64, u64)>)>,
    /// The burst: its samples and when the last one was read.
    pub(crate) burst: Option<(u64, u64)>,
    /// Numbers of events and telemetry, by topic and producer.
    pub(crate) numbering: Vec<(String, String, Numbering)>,
    /// Commands and their outcomes.
    pub(crate) commands: Commands,
    /// The newest event of every key, of one that joined late.
    pub(crate) newest: Vec<Newest>,
    /// How long it took, of one that joined late.
    pub(crate) joined_ns: u64,
    /// Samples that the bus reported as lost.
    pub(crate) told_lost: u64,
    /// Unread samples at the end.
    pub(crate) lag: u64,
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Peak memory.
    pub(crate) rss_mb: f64,
}
