//! The command line as a table: help, manual pages and completions are generated from it.

pub(crate) mod archive;
pub(crate) mod batch;
pub(crate) mod component;
pub(crate) mod dev;
pub(crate) mod instances;
pub(crate) mod log;
mod start;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use helio_bridge::Override;
use helio_bus::Start;
#[cfg(feature = "kafka")]
use helio_core::confluent::Compatibility;
use helio_core::container::Compression;
use helio_core::qos::Guarantee;

use self::batch::Batch;
use self::component::ComponentCommand;
use self::dev::DevCommand;
use self::instances::Instances;
use self::log::LogCommand;
use crate::units;

const EXIT_CODES: &str = "\
Exit codes:
  0    done; also where the reader of the output has gone (a closed pipe)
  1    failed: input, output or the engine
  2    wrong command line
  3    not found: no such topic, journal, file, folder or schema
  4    refused: the engine cannot do what the topic needs, or a schema or value does not fit
  5    samples are missing, or came twice
  130  interrupted by SIGINT or SIGTERM before the work was done

Errors are one line on standard error: the cause, then the remedy.";

/// Publish, subscribe, look and measure on a Heliograph bus.
#[derive(Debug, Parser)]
#[command(name = "helio", version, after_long_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The bus, such as `journal:/var/lib/helio/site` or `memory:`.
    ///
    /// Where it is not given: the environment's HELIO_URL, otherwise a journal of your own in
    /// $XDG_STATE_HOME/heliograph/default (~/.local/state where that is not set).
    #[arg(long, global = true, env = "HELIO_URL", value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the topics of the bus, with their partitions, sizes and schemas.
    Topics(TopicsArgs),
    /// Publish values: of the command line, of files, or one a line of standard input.
    Pub(PubArgs),
    /// Subscribe, and print what comes.
    Sub(SubArgs),
    /// Count what comes: rates, bandwidth, losses.
    Hz(HzArgs),
    /// Publish the samples of files: Avro containers, Confluent-framed packets, lines of JSON.
    Play(PlayArgs),
    /// Write a topic to an Avro container file.
    Record(RecordArgs),
    /// Forward topics from one bus to another, whatever their transports.
    Bridge(BridgeArgs),
    /// Run a small observatory in separate processes, and account for every sample.
    Demo(DemoArgs),
    /// Start real engines on this machine, to develop against.
    #[command(subcommand)]
    Dev(DevCommand),
    /// Look at schemas and interface folders, check and export them.
    #[command(subcommand)]
    Schema(SchemaCommand),
    /// Serve a schema registry with Confluent's API, kept in a topic of the bus.
    Registry(RegistryArgs),
    /// What a DDS domain needs besides its participants.
    #[cfg(feature = "dds")]
    #[command(subcommand)]
    Dds(DdsCommand),
    /// Look at components, command them, simulate them.
    #[command(subcommand)]
    Component(ComponentCommand),
    /// Print log records, or publish some.
    #[command(subcommand)]
    Log(LogCommand),
    /// Measure the machine, or a bus, with separate publisher and subscriber processes.
    #[command(subcommand)]
    Bench(Bench),
    /// Print the manual page, or write all of them to a folder.
    Man(ManArgs),
    /// Print the completions for a shell.
    Completions(CompletionsArgs),
    /// Run a task for another process of this program.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// How data is printed.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct Output {
    /// Print JSON: one object, or one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `helio topics`.
#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    /// Only these; `*` stands for anything.
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How `helio pub` and `helio play` publish.
#[derive(Debug, Args)]
pub(crate) struct PublishingArgs {
    /// A field of the value that is the key, or a part of it where repeated: its Avro encoding
    /// where the topic has a schema, its text (nested fields with dots) where it has none.
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Vec<String>,
    /// The quality of service profile of a topic that is created (stream unless given).
    #[arg(long, value_parser = PROFILES)]
    pub(crate) profile: Option<String>,
    /// Samples a second, instead of as fast as they come and the bus takes them.
    #[arg(long, value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: Option<f64>,
    /// Wait for this of each sample (what the topic says unless given).
    #[arg(long, value_enum)]
    pub(crate) guarantee: Option<Receipt>,
    /// Publish under this name, which is stable over restarts.
    #[arg(long)]
    pub(crate) producer: Option<String>,
}

/// When a command ends that goes on by itself.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ForArg {
    /// End after this time, such as 30s (else with SIGINT or SIGTERM).
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
}

/// When `helio sub` and `helio record` end by themselves.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// End after so many samples.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) time: ForArg,
}

impl EndArgs {
    /// When the time is over, counted from now.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.time.duration.and_then(|time| Instant::now().checked_add(time))
    }

    /// Whether there have to be more samples than these.
    pub(crate) fn wants_more(&self, samples: u64) -> bool {
        self.count.is_none_or(|count| samples < count)
    }

    /// Whether there is an end but a signal.
    pub(crate) fn is_given(&self) -> bool {
        self.count.is_some() || self.time.duration.is_some()
    }
}

/// `helio pub`.
#[derive(Debug, Args)]
pub(crate) struct PubArgs {
    /// The topic. Where there is none yet it is created, see --profile.
    pub(crate) topic: String,
    /// Values: JSON where the topic has a schema, text where it has none.
    pub(crate) values: Vec<String>,
    /// Publish the bytes of a file as they are (encoded already, where the topic has a schema).
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) file: Vec<PathBuf>,
    /// The key of each sample.
    #[arg(long, conflicts_with = "key_field")]
    pub(crate) key: Option<String>,
    /// The routing byte of each sample.
    #[arg(long, default_value = "0")]
    pub(crate) level: u8,
    /// The Avro schema of what is published (a new topic's, or a new version).
    #[arg(long, value_name = "AVSC", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// Partitions of a topic that is created (1 unless given).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) partitions: Option<u32>,
    /// Publish the values and files so many times.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) repeat: u64,
    #[command(flatten)]
    pub(crate) publishing: PublishingArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What happens where a subscriber falls behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaggingArg {
    /// It reads everything that is still kept.
    Lossless,
    /// It passes over the oldest, counted.
    Drop,
    /// It gets the newest of each key, counted.
    Conflate,
}

/// `helio sub`.
#[derive(Debug, Args)]
pub(crate) struct SubArgs {
    /// The topics.
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Where to begin: latest, earliest, last (the newest of each key), last:N, offset:N,
    /// offset:PARTITION:N or time:2026-11-21T03:00:00Z.
    #[arg(long, default_value = "latest", value_name = "START")]
    #[arg(value_parser = start::start)]
    pub(crate) from: Start,
    /// Only samples of this key; may be repeated.
    #[arg(long, conflicts_with_all = ["key_prefix", "key_field"])]
    pub(crate) key: Vec<String>,
    /// Only samples whose key is this field with this value, or these where repeated, such as
    /// salIndex=1.
    #[arg(long, value_name = "FIELD=VALUE", conflicts_with = "key_prefix")]
    pub(crate) key_field: Vec<String>,
    /// Only samples whose key begins so.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// Share the topics with the other members of this group; begins where the group has got to.
    #[arg(long)]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// What happens where it falls behind (what the topic says unless given).
    #[arg(long, value_enum)]
    pub(crate) lagging: Option<LaggingArg>,
    /// Wait for topics that are not there yet, and for the journal.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Tell when writers come and go.
    #[arg(long)]
    pub(crate) writers: bool,
    /// Print payloads as they are, with nothing between them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio hz`.
#[derive(Debug, Args)]
pub(crate) struct HzArgs {
    /// The topics; `*` stands for anything. All of the bus unless given.
    #[arg(value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// The time between two lines.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) end: ForArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio play`.
#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// The topic. Where there is none yet it is created, see --profile.
    pub(crate) topic: String,
    /// Avro container files, files of Confluent-framed packets, files with a JSON value a line.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// The schema of framed packets and of JSON lines: .avsc files, which may name each other (the
    /// topic's own unless given). Framed packets without any are published as they are.
    #[arg(long, value_name = "AVSC", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub(crate) schema: Vec<PathBuf>,
    /// Play the files so many times.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) repeat: u64,
    /// Play the files again and again, until stopped.
    #[arg(long = "loop", conflicts_with = "repeat")]
    pub(crate) forever: bool,
    /// End after so many samples.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) publishing: PublishingArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How a recorded file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodecArg {
    /// Not at all.
    Null,
    /// Smaller and slower.
    Deflate,
    /// A little smaller, fast.
    Snappy,
}

impl From<CodecArg> for Compression {
    fn from(codec: CodecArg) -> Self {
        match codec {
            CodecArg::Null => Self::Null,
            CodecArg::Deflate => Self::Deflate,
            CodecArg::Snappy => Self::Snappy,
        }
    }
}

/// `helio record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The topic.
    pub(crate) topic: String,
    /// The file. It lies beside its place, as FILE.partial, until it is whole.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Where to begin; see `helio help sub`.
    #[arg(long, default_value = "latest", value_name = "START")]
    #[arg(value_parser = start::start)]
    pub(crate) from: Start,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// Begin a new file, NAME.1.avro, NAME.2.avro and so on, when one has this size.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) rotate: Option<usize>,
    /// Write key, time, level, trace, headers, producer and place of each sample beside its value:
    /// a record HeliographSample, of which `helio play` restores all but producer and place.
    #[arg(long)]
    pub(crate) envelope: bool,
    /// How blocks are compressed.
    #[arg(long, value_enum, default_value_t = CodecArg::Null)]
    pub(crate) codec: CodecArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where `helio bridge` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BeginArg {
    /// As a late joiner: with the oldest sample, or with the next one of topics without a history.
    AsPromised,
    /// With the oldest sample that is kept.
    Earliest,
    /// With what is published from now on.
    Latest,
}

/// `helio bridge`.
#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    /// The bus to read.
    #[arg(value_name = "FROM-URL")]
    pub(crate) from: String,
    /// The bus to write.
    #[arg(value_name = "TO-URL")]
    pub(crate) to: String,
    /// The topics; `*` stands for anything. New ones that fit are found within a second.
    #[arg(long, required = true, num_args = 1.., value_name = "PATTERN")]
    pub(crate) topics: Vec<String>,
    /// Topics that are not forwarded though they fit.
    #[arg(long, num_args = 1.., value_name = "PATTERN")]
    pub(crate) not: Vec<String>,
    /// Where to begin with a topic of which the target has nothing yet; else it goes on where it
    /// stopped.
    #[arg(long, value_enum, default_value_t = BeginArg::AsPromised)]
    pub(crate) start: BeginArg,
    /// A field of the quality of service that topics are created with on the target, if not the
    /// source's, such as durability=transient_local or retention.age=30d; may be repeated.
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) qos: Vec<Override>,
    /// End when all that is there has been forwarded.
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two lines of figures.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where a bench or the demo makes its journal, and how it prints what it found.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Where the fresh journal of this run is made, unless --url is given.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long the schedule runs, such as 30s; a burst follows.
    #[arg(long, default_value = "30", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// A folder of SAL interfaces, in place of those that the program carries.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
    /// Alert packets (an Avro container or Confluent-framed), in place of synthetic ones.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) alerts: Option<PathBuf>,
    /// Alert packets a second.
    #[arg(long, default_value = "10", value_name = "HZ", value_parser = units::rate)]
    pub(crate) alert_rate: f64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio schema`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Show a schema file, a folder of interfaces, or the schemas of a topic of the bus.
    Show(ShowArgs),
    /// Check schema files and folders of interfaces.
    Check(CheckArgs),
    /// Tell what changed between two versions, and who can still read whom.
    Diff(DiffArgs),
    /// Write the schemas of all topics of a folder of interfaces, one a line.
    Export(ExportArgs),
    /// Print the DDS types of topics as OMG IDL, for participants of other programs.
    Idl(IdlArgs),
    /// Show or set which schemas a registry lets follow which.
    #[cfg(feature = "kafka")]
    Compatibility(CompatibilityArgs),
}

/// `helio schema compatibility`.
#[cfg(feature = "kafka")]
#[derive(Debug, Args)]
pub(crate) struct CompatibilityArgs {
    /// The registry, such as `http://localhost:8081`.
    pub(crate) registry: String,
    /// A subject, such as `wind-value`; what holds for all others unless given.
    pub(crate) subject: Option<String>,
    /// Set it: NONE, BACKWARD, FORWARD, FULL, or the last three with _TRANSITIVE.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) set: Option<Compatibility>,
    /// `USER:PASSWORD`, for registries that ask who it is.
    #[arg(long, env = "HELIO_REGISTRY_USER", hide_env_values = true, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Certificates that are trusted instead of the system's, a file of PEM.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio registry`.
#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:8081", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// The bus that keeps it, instead of --url.
    #[arg(value_name = "BUS")]
    pub(crate) bus: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio dds`.
#[cfg(feature = "dds")]
#[derive(Debug, Subcommand)]
pub(crate) enum DdsCommand {
    /// Keep the persistent topics of the domain that --url names, and hand them to late joiners.
    ///
    /// What it acknowledges is on the disk, and survives its own death at any time. Two services of
    /// a domain, on two hosts, each with a folder of its own, take over from each other.
    Durability(DurabilityArgs),
}

/// `helio dds durability`.
#[cfg(feature = "dds")]
#[derive(Debug, Args)]
pub(crate) struct DurabilityArgs {
    /// The folder that they are kept in, a journal; made where there is none.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Forget a topic first, with all its samples and schemas, so that it can be made anew
    /// differently; may be repeated. Of two services both have to forget it, while none runs.
    #[arg(long, value_name = "TOPIC")]
    pub(crate) forget: Vec<String>,
    /// The time between two lines of figures.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio schema show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// An .avsc file, a folder of them that name each other, or a folder of SAL interfaces.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<PathBuf>,
    /// A topic of the bus, instead of a path.
    #[arg(long, conflicts_with = "path")]
    pub(crate) topic: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio schema check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// .avsc files, folders of them that name each other, folders of SAL interfaces.
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What a change must leave possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Require {
    /// New readers read old data.
    Backward,
    /// Old readers read new data.
    Forward,
    /// Both.
    Full,
}

/// `helio schema diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The older .avsc file, or folder of .avsc files or SAL interfaces.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) old: PathBuf,
    /// The newer one.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) new: PathBuf,
    /// Exit with 4 where a change does not leave this possible.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) require: Option<Require>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Whose names and schemas are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Naming {
    /// Names on the bus, schemas with array lengths, enumerations and SAL types.
    Helio,
    /// Kafka names and schemas as the Rubin Observatory registers them.
    Sal,
}

/// `helio schema export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A folder of SAL interfaces.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Whose names and schemas.
    #[arg(long, value_enum, default_value_t = Naming::Helio)]
    pub(crate) naming: Naming,
    /// With --naming sal: the sub-name in Kafka names (LSST_TOPIC_SUBNAME).
    #[arg(long, default_value = "sal", value_name = "NAME")]
    pub(crate) subname: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio schema idl`.
#[derive(Debug, Args)]
pub(crate) struct IdlArgs {
    /// An .avsc file, a folder of them that name each other, or a folder of SAL interfaces.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<PathBuf>,
    /// A topic of the bus, instead of a path; of its newest schema.
    #[arg(long, conflicts_with = "path")]
    pub(crate) topic: Option<String>,
    /// Of a folder of SAL interfaces, this component only; may be given several times.
    #[arg(long, value_name = "NAME", requires = "path")]
    pub(crate) component: Vec<String>,
    /// Without our header member: the type of a topic whose writers and readers are all others'.
    #[arg(long)]
    pub(crate) foreign: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Latency at a rate, from the intended time of each message to its subscriber.
    Latency(LatencyArgs),
    /// Messages a second, as fast as the bus takes them, until the subscribers have them all.
    Throughput(ThroughputArgs),
    /// The machine's own limits for a shared-memory log in a folder, without any engine.
    Floor(FloorArgs),
    /// How soon a late joiner has the newest value of every key.
    Join(JoinArgs),
    /// What a process costs that only waits, with many subscriptions.
    Idle(IdleArgs),
    /// How soon a large journal is open again after its writer was killed, and after a power loss.
    Open(OpenArgs),
    /// The round trip of a command between two processes: sent, acknowledged, done.
    Commands(CommandsArgs),
    /// A whole observatory of simulated components, with one recorder that reads everything.
    Observatory(ObservatoryArgs),
    /// Log records from producers to clients: rates, CPU of a record, latency in a flood.
    Logging(LoggingArgs),
}

/// What a receipt promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receipt {
    /// The transport took it.
    Accepted,
    /// It survives the death of any process.
    Stored,
    /// It survives power loss.
    Durable,
}

impl From<Receipt> for Guarantee {
    fn from(receipt: Receipt) -> Self {
        match receipt {
            Receipt::Accepted => Self::Accepted,
            Receipt::Stored => Self::Stored,
            Receipt::Durable => Self::Durable,
        }
    }
}

impl std::fmt::Display for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Stored => "stored",
            Self::Durable => "durable",
        })
    }
}

/// What `bench latency` and `bench throughput` have in common.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Bytes of each message (256 unless --topic is given).
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, conflicts_with = "topic")]
    pub(crate) payload: Option<usize>,
    /// Real messages of this topic of --interfaces, encoded and decoded: MTM1M3_forceActuatorData
    /// or MTM1M3/telemetry/forceActuatorData.
    #[arg(long, value_name = "NAME", requires = "interfaces")]
    pub(crate) topic: Option<String>,
    /// A folder of SAL interface files.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "topic")]
    pub(crate) interfaces: Option<PathBuf>,
    /// Subscriber processes that read.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) readers: u32,
    /// Subscriber processes that never read.
    #[arg(long, default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) stalled: u32,
    /// Publisher processes, each with the whole count, into one partition.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) writers: u32,
    /// What each receipt promises.
    #[arg(long, value_enum, default_value_t = Receipt::Stored)]
    pub(crate) guarantee: Receipt,
    /// Messages of a writer that may wait for their receipts; 1 awaits each before the next.
    #[arg(long, value_name = "N", default_value_t = LoadArgs::WINDOW)]
    #[arg(value_parser = window)]
    pub(crate) window: usize,
    /// The quality of service profile of the bench's topic.
    #[arg(long, default_value = "stream", value_parser = PROFILES)]
    pub(crate) profile: String,

    /// Keep nothing for late joiners, whatever the profile says: on DDS the stream and event
    /// profiles are kept by a durability service otherwise
    #[arg(long)]
    pub(crate) volatile: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl LoadArgs {
    /// Bytes of each message where nothing is said.
    pub(crate) const PAYLOAD: usize = 256;
    /// Receipts under way where nothing is said: enough to fill any transport's own queue.
    pub(crate) const WINDOW: usize = 10_000;
}

/// The names of the quality of service profiles.
pub(crate) const PROFILES: [&str; 6] = ["telemetry", "event", "command", "stream", "log", "state"];

fn window(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1_000_000) => Ok(n),
        _ => Err("1 to 1000000 are possible".to_owned()),
    }
}

/// `helio bench latency`.
#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    /// Messages a second of each writer.
    #[arg(long, default_value = "20", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Number of messages of each writer.
    #[arg(long, default_value = "400", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// `helio bench throughput`.
#[derive(Debug, Args)]
pub(crate) struct ThroughputArgs {
    /// Messages a second of each writer, instead of as fast as possible.
    #[arg(long, value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: Option<f64>,
    /// With --rate: so many messages are due at once, and nothing for the time of as many.
    #[arg(
        long,
        default_value = "1",
        value_name = "N",
        requires = "rate",
        conflicts_with = "batch"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) burst: u64,
    /// Number of messages of each writer (300 MB of them, a million at most, unless given).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Messages that are handed over at once.
    #[arg(long, default_value = "1", value_parser = window)]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// `helio bench floor`.
#[derive(Debug, Args)]
pub(crate) struct FloorArgs {
    /// The folder whose file system is measured.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Latency: messages a second.
    #[arg(long, default_value = "20", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Latency: number of messages.
    #[arg(long, default_value = "400")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Append rate: number of messages (a million, 50,000 of 6 kB, unless given).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) appends: Option<u32>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio bench join`.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// How many keys there are.
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// How often each key has been published: the newest values lie among older ones.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) updates: u32,
    /// Bytes of each message.
    #[arg(long, default_value = "256", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) payload: usize,
    /// How many late joiners, each a process of its own, one after the other.
    #[arg(long, default_value = "11", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) joins: u32,
    /// The quality of service profile of the bench's topic.
    #[arg(long, default_value = "event", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio bench idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// How many subscriptions, each on a topic of its own, all in one process.
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) subscriptions: u32,
    /// How long they wait, such as 10s.
    #[arg(long = "for", default_value = "10s", value_name = "TIME")]
    #[arg(value_parser = units::duration)]
    pub(crate) duration: Duration,
    /// The quality of service profile of the bench's topics.
    #[arg(long, default_value = "telemetry", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio bench open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// How large the journal is made; its file system needs a quarter more.
    #[arg(long, default_value = "10G", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) bytes: usize,
    /// Bytes of each message.
    #[arg(long, default_value = "1M", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) payload: usize,
    /// How often it is opened after each kind of crash; its writer goes on before each, and is
    /// killed again.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) opens: u32,
    /// The quality of service profile of the bench's topic (everything is kept, whatever it says).
    #[arg(long, default_value = "stream", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// In which language both ends of a command are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    /// This program.
    Rust,
    /// The package heliograph, by the interpreter that $PYTHON names (python3 unless set).
    Python,
}

/// `helio bench commands`.
#[derive(Debug, Args)]
pub(crate) struct CommandsArgs {
    /// In which language both ends are.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) language: Language,
    /// Commands a second.
    #[arg(long, default_value = "100", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Number of commands.
    #[arg(long, default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio bench observatory`.
#[derive(Debug, Args)]
pub(crate) struct ObservatoryArgs {
    /// A folder of SAL interfaces, all of whose components are simulated.
    #[arg(long, env = "HELIO_INTERFACES", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
    /// Multiplies the rates of the table.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = units::rate)]
    pub(crate) scale: f64,
    /// How long it is measured, such as 10s.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// Processes that the components are in.
    #[arg(long, default_value = "3", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Which instances of a component (see `helio help component run`); one of each unless given.
    #[arg(long, value_name = "WHICH")]
    pub(crate) instances: Vec<Instances>,
    /// Then look for the largest scale that still loses nothing and keeps up.
    #[arg(long)]
    pub(crate) find_limit: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// How log records get from producers to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogPath {
    /// Producers publish on the bus, clients read from it: nothing is between.
    Direct,
    /// Producers without a bus send syslog over TCP to `helio log serve`, which publishes.
    Central,
}

/// Log records a second; none where as many as the bus takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogRate(pub(crate) Option<f64>);

impl std::str::FromStr for LogRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self(None)),
            _ => units::rate(text).map(|rate| Self(Some(rate))),
        }
    }
}

/// `helio bench logging`.
#[derive(Debug, Args)]
pub(crate) struct LoggingArgs {
    /// How the records get from producers to clients.
    #[arg(long, value_enum, default_value_t = LogPath::Direct)]
    pub(crate) path: LogPath,
    /// Processes that log.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) producers: u32,
    /// Processes that read every field of every record.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) clients: u32,
    /// Clients that are stopped (SIGSTOP) while the others are measured, and go on afterwards.
    #[arg(long, default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) stalled: u32,
    /// Bytes of a record in its packet.
    #[arg(long, default_value = "300", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) size: usize,
    /// The most records of a packet, the longest time that one waits for others, or both: 1000,
    /// 20ms, or 1,1ms.
    #[arg(long, default_value = "1000,20ms", value_name = "BATCH")]
    pub(crate) batch: Batch,
    /// Records a second of all producers together; max is as many as the bus takes.
    #[arg(long, default_value = "24000", value_name = "HZ")]
    pub(crate) rate: LogRate,
    /// How long the producers log, such as 10s.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// From one ALERT of the first producer to the next.
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = units::interval)]
    pub(crate) urgent_every: Duration,
    /// A field of the quality of service of topics that are not urgent, such as
    /// reliability=best_effort or durability=volatile; may be repeated.
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) qos: Vec<Override>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write helio.1 and a page for each sub-command to this folder.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// `helio completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// `helio worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Which task.
    pub(crate) kind: String,
    /// The task as JSON.
    pub(crate) task: String,
}
