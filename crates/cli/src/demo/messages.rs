//! What the demo's processes are given to do, are told, and say.

use std::path::PathBuf;

use helio_component::protocol::StreamStats;
use serde::{Deserialize, Serialize};

use super::accounting::{AckedSequences, CommandId, Commands, CountsBySource, Numbering, Source};
use super::logging::Logged;

/// What every process of the play is told of its world.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct World {
    pub(crate) url: String,
    /// A folder of interfaces, in place of those that the program carries.
    pub(crate) interfaces: Option<PathBuf>,
}

/// A process that is one or more components.
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
    /// Short names of telemetry, with samples a second.
    pub(crate) telemetry: Vec<(String, f64)>,
}

/// What a component does.
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
    /// Packets of a file, in place of synthetic ones.
    pub(crate) file: Option<PathBuf>,
}

/// The script that leads the others through the night.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScriptTask {
    pub(crate) world: World,
    /// All components, with their indices; the mount is one of them.
    pub(crate) components: Vec<(String, i32)>,
    pub(crate) mount: String,
    pub(crate) camera: Option<(String, i32)>,
    pub(crate) exposure_s: f64,
}

/// Who sends the mount its targets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PointingTask {
    pub(crate) world: World,
    pub(crate) mount: String,
    pub(crate) rate_hz: f64,
}

/// What a player is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin; what has a schedule begins it at this time of the monotonic clock.
    Begin { start_ns: u64 },
    /// Publish nothing by the schedule any more.
    Rest,
    /// Publish so many samples of the first telemetry as fast as the bus takes them.
    Burst { samples: u64 },
    /// The script: command the mount, which has just died.
    Died,
    /// The script: the mount is back; go on where you were.
    Returned,
    /// End.
    End,
}

/// What a player says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ProcessMessage {
    /// It is there, with everything opened.
    Ready,
    /// It may not run, and why.
    Refused(String),
    /// A receipt has come, of a sample with this sequence number.
    Receipt(Source, u64),
    /// The burst is over.
    Burst(Burst),
    /// A line for people.
    Story(String),
    /// What it does just now, for people.
    Doing(String),
    /// The script has come so far.
    Came(Step),
    /// A command has ended.
    Called(Called),
    /// The counters of the mount's stream of targets.
    Targets(Targets),
    /// The last word.
    End { cpu_s: f64, rss_mb: f64, logged: Logged },
}

/// How far the script has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// All components are ENABLED and the mount tracks.
    Began,
    /// It was told after so long that nobody is there.
    ToldGone { after_ns: u64 },
    /// The mount tracks again.
    Resumed,
}

/// What the burst gave at its writer, with times of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Burst {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) samples: u64,
}

/// A command and what became of it, as its caller has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Called {
    /// `None` where nothing was sent.
    pub(crate) id: Option<CommandId>,
    pub(crate) command: String,
    /// SAL's code of its end.
    pub(crate) code: i32,
    /// Whether the component itself said so.
    pub(crate) acknowledged: bool,
    /// Whether it ended as it should.
    pub(crate) met: bool,
    /// From sending to its end.
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
    /// Those of two lives of a component.
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

/// What a reader does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Reads every topic that appears, from its beginning.
    Records,
    /// Reads these from their beginning.
    Follows(Vec<String>),
    /// Joins late and asks for the newest of every key; goes when it has these, or something newer.
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

/// What a reader is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ReaderOrder {
    /// Say the newest event of every key that you have seen.
    TellNewest,
    /// All writers have ended; go when you have all of this.
    Drain(AckedSequences),
}

/// What a reader says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ReaderMessage {
    /// It is there.
    Ready,
    /// The newest event of every key.
    Newest(Vec<Newest>),
    /// The last word.
    Report(Box<ReaderReport>),
}

/// What a reader says at the end.
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
    /// Commands and what became of them.
    pub(crate) commands: Commands,
    /// The newest event of every key, of one that joined late.
    pub(crate) newest: Vec<Newest>,
    /// How long it took, of one that joined late.
    pub(crate) joined_ns: u64,
    /// Samples that the bus told were lost.
    pub(crate) told_lost: u64,
    /// Samples that still lay ahead at the end.
    pub(crate) lag: u64,
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Peak memory.
    pub(crate) rss_mb: f64,
}
