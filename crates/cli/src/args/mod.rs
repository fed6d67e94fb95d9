//! The command line as a table, from which help, manual pages and completions are generated.

pub(crate) mod archive;
pub(crate) mod batch;
pub(crate) mod component;
pub(crate) mod dev;
pub(crate) mod instances;
pub(crate) mod log;
mod profiles;
#[cfg(feature = "state")]
mod state;
pub(crate) mod topic;

use std::ffi::OsString;
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
use self::profiles::PROFILES;
#[cfg(feature = "state")]
pub(crate) use self::state::*;
use self::topic::TopicCommand;
use helio_console::args::EXIT_CODES;
pub(crate) use helio_console::args::{ForArg, Output};
use helio_console::start;

use crate::units;

/// Publish, subscribe, inspect and measure on a Heliograph bus.
#[derive(Debug, Parser)]
#[command(name = "helio", version, after_long_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The bus, such as `journal:/var/lib/helio/site` or `memory:`.
    ///
    /// The default is a journal in $XDG_STATE_HOME/heliograph/default, or in ~/.local/state where
    /// that variable is not set.
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
    /// List the groups of topics: members, committed positions and lag of each partition.
    Groups(GroupsArgs),
    /// Repair a journal.
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Create, alter, delete, purge and grant topics.
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Publish values from the command line, from files, or one per line of standard input.
    Pub(PubArgs),
    /// Subscribe to topics and print their samples.
    Sub(SubArgs),
    /// Measure topics: rates, bandwidth, losses.
    Hz(HzArgs),
    /// Publish the samples of files: Avro containers, Confluent-framed packets, lines of JSON.
    Play(PlayArgs),
    /// Write a topic to an Avro container file.
    Record(RecordArgs),
    /// Forward topics from one bus to another, whatever their transports.
    Bridge(BridgeArgs),
    /// Run a small observatory in separate processes and account for every sample.
    Demo(DemoArgs),
    /// Start real engines on this machine for development.
    #[command(subcommand)]
    Dev(DevCommand),
    /// Show, check, compare and export schemas and interface folders.
    #[command(subcommand)]
    Schema(SchemaCommand),
    /// Serve a schema registry with Confluent's API, stored in a topic of the bus.
    Registry(RegistryArgs),
    /// Serve and ask a cluster state store with etcd's API.
    #[cfg(feature = "state")]
    #[command(subcommand)]
    State(StateCommand),
    /// Run services for a DDS domain.
    #[cfg(feature = "dds")]
    #[command(subcommand)]
    Dds(DdsCommand),
    /// Observe, command and simulate components.
    #[command(subcommand)]
    Component(ComponentCommand),
    /// Print, publish, archive and forward log records.
    #[command(subcommand)]
    Log(LogCommand),
    /// Produce, consume, audit and serve alerts of a survey telescope: runs `helio-alerts`.
    #[command(disable_help_flag = true)]
    Alerts(AlertsArgs),
    /// Measure the machine or a bus with separate publisher and subscriber processes.
    #[command(subcommand)]
    Bench(Bench),
    /// Print the manual page, or write all manual pages to a folder.
    Man(ManArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
    /// Run a task for another process of this program.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// `helio alerts`.
#[derive(Debug, Args)]
pub(crate) struct AlertsArgs {
    /// The arguments of `helio-alerts`; --help lists its commands.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

/// `helio topics`.
#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    /// Only topics that match; `*` matches anything.
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio groups`.
#[derive(Debug, Args)]
pub(crate) struct GroupsArgs {
    /// Only groups of topics that match; `*` matches anything.
    #[arg(value_name = "TOPIC")]
    pub(crate) pattern: Option<String>,
    /// Only this group.
    #[arg(long)]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio journal`.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Rebuild damaged headers, and list what cannot be read.
    ///
    /// Samples that cannot be read are reported to readers as gaps, and their files stay until
    /// --discard. The exit code is 5 while any are missing.
    Repair(RepairArgs),
}

/// `helio journal repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Remove the files that cannot be read, for ever, and report them no longer.
    #[arg(long)]
    pub(crate) discard: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How `helio pub` and `helio play` publish.
#[derive(Debug, Args)]
pub(crate) struct PublishingArgs {
    /// The field of the value that is the key; repeat it for a compound key. With a schema the key
    /// is the field's Avro encoding, else its text (nested fields with dots).
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Vec<String>,
    /// The quality-of-service profile of a topic that is created (default: stream).
    #[arg(long, value_parser = PROFILES)]
    pub(crate) profile: Option<String>,
    /// Samples per second (default: as fast as input and bus allow).
    #[arg(long, value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: Option<f64>,
    /// Wait for this receipt of each sample (default: the topic's guarantee).
    #[arg(long, value_enum)]
    pub(crate) guarantee: Option<Receipt>,
    /// The producer's name, which is stable over restarts.
    #[arg(long)]
    pub(crate) producer: Option<String>,
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
    /// The end of the time, counted from now.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.time.duration.and_then(|time| Instant::now().checked_add(time))
    }

    /// Whether more samples than these are required.
    pub(crate) fn wants_more(&self, samples: u64) -> bool {
        self.count.is_none_or(|count| samples < count)
    }

    /// Whether an end other than a signal is given.
    pub(crate) fn is_given(&self) -> bool {
        self.count.is_some() || self.time.duration.is_some()
    }
}

/// `helio pub`.
#[derive(Debug, Args)]
pub(crate) struct PubArgs {
    /// The topic. Where there is none yet it is created, see --profile.
    pub(crate) topic: String,
    /// Values: JSON if the topic has a schema, else text.
    pub(crate) values: Vec<String>,
    /// Publish the bytes of a file unchanged; with a schema they must be encoded already.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) file: Vec<PathBuf>,
    /// The key of each sample.
    #[arg(long, conflicts_with = "key_field")]
    pub(crate) key: Option<String>,
    /// Publish a null (Kafka's tombstone), which deletes the last value of the key.
    #[arg(long, conflicts_with_all = ["values", "file", "key_field", "schema"])]
    pub(crate) null: bool,
    /// The routing byte of each sample.
    #[arg(long, default_value = "0")]
    pub(crate) level: u8,
    /// The Avro schema of the values: of a new topic, or a new version.
    #[arg(long, value_name = "AVSC", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// Partitions of a topic that is created (default: 1).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) partitions: Option<u32>,
    /// Publish the values and files this many times.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) repeat: u64,
    #[command(flatten)]
    pub(crate) publishing: PublishingArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What happens when a subscriber falls behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaggingArg {
    /// It reads everything that is still stored.
    Lossless,
    /// It skips the oldest samples and counts them.
    Drop,
    /// It receives the newest sample of each key and counts the skipped ones.
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
    /// Only samples whose key is this field with this value, such as salIndex=1; repeat it for a
    /// compound key.
    #[arg(long, value_name = "FIELD=VALUE", conflicts_with = "key_prefix")]
    pub(crate) key_field: Vec<String>,
    /// Only samples whose key begins with this prefix.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// Share the topics with the other members of this group, from the group's committed position.
    #[arg(long)]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// What happens when it falls behind (default: the topic's policy).
    #[arg(long, value_enum)]
    pub(crate) lagging: Option<LaggingArg>,
    /// Wait for missing topics and for a missing journal.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Report when writers appear and disappear.
    #[arg(long)]
    pub(crate) writers: bool,
    /// Print payloads unchanged, without separators.
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio hz`.
#[derive(Debug, Args)]
pub(crate) struct HzArgs {
    /// The topics; `*` matches anything (default: all topics of the bus).
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
    /// The schema of framed packets and of JSON lines: .avsc files, which may name each other
    /// (default: the topic's schema). Without a schema, framed packets are published unchanged.
    #[arg(long, value_name = "AVSC", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub(crate) schema: Vec<PathBuf>,
    /// Play the files this many times.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) repeat: u64,
    /// Repeat the files until stopped.
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
    /// No compression.
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
    /// The file. It is named FILE.partial until it is complete.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Where to begin; see `helio help sub`.
    #[arg(long, default_value = "latest", value_name = "START")]
    #[arg(value_parser = start::start)]
    pub(crate) from: Start,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// Begin a new file (NAME.1.avro, NAME.2.avro and so on) when one has this size.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) rotate: Option<usize>,
    /// Write key, time, level, trace, headers, producer and position of each sample beside its
    /// value, as a record HeliographSample. `helio play` restores all but producer and position.
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
    /// As a late joiner: at the oldest sample, or at the next one of topics without history.
    AsPromised,
    /// At the oldest stored sample.
    Earliest,
    /// At the next sample that is published.
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
    /// The topics; `*` matches anything. New topics that match are found within a second.
    #[arg(long, required = true, num_args = 1.., value_name = "PATTERN")]
    pub(crate) topics: Vec<String>,
    /// Topics that are not forwarded although they match.
    #[arg(long, num_args = 1.., value_name = "PATTERN")]
    pub(crate) not: Vec<String>,
    /// Where to begin with a topic that the target lacks; other topics resume where they stopped.
    #[arg(long, value_enum, default_value_t = BeginArg::AsPromised)]
    pub(crate) start: BeginArg,
    /// Override a field of the quality of service of topics that are created on the target, such as
    /// durability=transient_local or retention.age=30d; may be repeated.
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) qos: Vec<Override>,
    /// End when all stored samples have been forwarded.
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two lines of figures.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where a bench or the demo creates its journal, and how it prints its result.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Where the new journal of this run is created, unless --url is given.
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
    /// A folder of SAL interfaces, instead of the built-in ones.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
    /// Alert packets (an Avro container or Confluent-framed), instead of synthetic ones.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) alerts: Option<PathBuf>,
    /// Alert packets per second.
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
    /// Compare two versions: what changed, and which readers can still read which writers.
    Diff(DiffArgs),
    /// Write the schemas of all topics of a folder of interfaces, one per line.
    Export(ExportArgs),
    /// Print the DDS types of topics as OMG IDL, for other DDS programs.
    Idl(IdlArgs),
    /// Show or set the compatibility level of a registry.
    #[cfg(feature = "kafka")]
    Compatibility(CompatibilityArgs),
}

/// `helio schema compatibility`.
#[cfg(feature = "kafka")]
#[derive(Debug, Args)]
pub(crate) struct CompatibilityArgs {
    /// The registry, such as `http://localhost:8081`.
    pub(crate) registry: String,
    /// A subject, such as `wind-value` (default: the level of all other subjects).
    pub(crate) subject: Option<String>,
    /// Set the level: NONE, BACKWARD, FORWARD, FULL, or the last three with _TRANSITIVE.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) set: Option<Compatibility>,
    /// `USER:PASSWORD`, for registries that require authentication.
    #[arg(long, env = "HELIO_REGISTRY_USER", hide_env_values = true, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// A PEM file of certificates that are trusted instead of the system's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio registry`.
#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    /// The address that it listens at.
    #[arg(long, default_value = "127.0.0.1:8081", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// The bus that stores the schemas, instead of --url.
    #[arg(value_name = "BUS")]
    pub(crate) bus: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio dds`.
#[cfg(feature = "dds")]
#[derive(Debug, Subcommand)]
pub(crate) enum DdsCommand {
    /// Store the persistent topics of the domain that --url names, and send them to late joiners.
    ///
    /// An acknowledged sample is on disk. Two services of a domain, each on its own host with its
    /// own folder, replace each other after a failure.
    Durability(DurabilityArgs),
}

/// `helio dds durability`.
#[cfg(feature = "dds")]
#[derive(Debug, Args)]
pub(crate) struct DurabilityArgs {
    /// The folder of the journal that stores them; created if missing.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Delete a topic first, with its samples and schemas, so that it can be recreated with another
    /// quality of service; may be repeated. Two services must both delete it while neither runs.
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

/// The compatibility that a change must keep.
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
    /// Exit with 4 if a change breaks this compatibility.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) require: Option<Require>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which names and schemas are written.
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
    /// Which names and schemas are written.
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
    /// A topic of the bus, with its newest schema, instead of a path.
    #[arg(long, conflicts_with = "path")]
    pub(crate) topic: Option<String>,
    /// Only this component of a folder of SAL interfaces; may be repeated.
    #[arg(long, value_name = "NAME", requires = "path")]
    pub(crate) component: Vec<String>,
    /// Omit the header member: the type of a topic that only other DDS programs write and read.
    #[arg(long)]
    pub(crate) foreign: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Latency at a fixed rate, from the intended time of each message to its subscriber.
    Latency(LatencyArgs),
    /// Messages per second, until the subscribers have received all of them.
    Throughput(ThroughputArgs),
    /// The machine's limits for a shared-memory log in a folder, without an engine.
    Floor(FloorArgs),
    /// The time until a late joiner has the newest value of every key.
    Join(JoinArgs),
    /// The cost of a process that waits on many subscriptions.
    Idle(IdleArgs),
    /// The time to open a large journal after its writer was killed, and after a power loss.
    Open(OpenArgs),
    /// The round trip of a command between two processes: sent, acknowledged, completed.
    Commands(CommandsArgs),
    /// An observatory of simulated components, with one recorder that reads everything.
    Observatory(ObservatoryArgs),
    /// Log records from producers to clients: rates, CPU time per record, latency in a flood.
    Logging(LoggingArgs),
}

/// The guarantee of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receipt {
    /// The transport's queue has the sample.
    Accepted,
    /// The sample survives the death of any process.
    Stored,
    /// The sample survives power loss.
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
    /// Bytes of each message (default: 256; not with --topic).
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, conflicts_with = "topic")]
    pub(crate) payload: Option<usize>,
    /// Encode and decode real messages of this topic of --interfaces, such as
    /// MTM1M3_forceActuatorData or MTM1M3/telemetry/forceActuatorData.
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
    /// Publisher processes; each publishes the whole count to one partition.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) writers: u32,
    /// The guarantee of each receipt.
    #[arg(long, value_enum, default_value_t = Receipt::Stored)]
    pub(crate) guarantee: Receipt,
    /// Messages of a writer in flight; 1 waits for each receipt before the next message.
    #[arg(long, value_name = "N", default_value_t = LoadArgs::WINDOW)]
    #[arg(value_parser = window)]
    pub(crate) window: usize,
    /// The quality-of-service profile of the bench's topic.
    #[arg(long, default_value = "stream", value_parser = PROFILES)]
    pub(crate) profile: String,

    /// Store nothing for late joiners, whatever the profile says. On DDS a durability service would
    /// store the stream and event profiles
    #[arg(long)]
    pub(crate) volatile: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl LoadArgs {
    /// The default number of bytes of a message.
    pub(crate) const PAYLOAD: usize = 256;
    /// The default number of messages in flight: enough to fill any transport's queue.
    pub(crate) const WINDOW: usize = 10_000;
}

fn window(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1_000_000) => Ok(n),
        _ => Err("1 to 1000000 are possible".to_owned()),
    }
}

/// `helio bench latency`.
#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    /// Messages per second of each writer.
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
    /// Messages per second of each writer (default: as fast as possible).
    #[arg(long, value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: Option<f64>,
    /// With --rate: this many messages are due at once, followed by a pause of the same length.
    #[arg(
        long,
        default_value = "1",
        value_name = "N",
        requires = "rate",
        conflicts_with = "batch"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) burst: u64,
    /// Number of messages of each writer (default: 300 MB, at most a million).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Messages of one publish call.
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
    /// Latency: messages per second.
    #[arg(long, default_value = "20", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Latency: number of messages.
    #[arg(long, default_value = "400")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Append rate: number of messages (default: a million, and 50,000 of 6 kB).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) appends: Option<u32>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio bench join`.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Number of keys.
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// Samples of each key, so that the newest values lie among older ones.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) updates: u32,
    /// Bytes of each message.
    #[arg(long, default_value = "256", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) payload: usize,
    /// Number of late joiners, each a process, one after the other.
    #[arg(long, default_value = "11", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) joins: u32,
    /// The quality-of-service profile of the bench's topic.
    #[arg(long, default_value = "event", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio bench idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// Number of subscriptions in one process, each on a topic of its own.
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) subscriptions: u32,
    /// How long the process waits, such as 10s.
    #[arg(long = "for", default_value = "10s", value_name = "TIME")]
    #[arg(value_parser = units::duration)]
    pub(crate) duration: Duration,
    /// The quality-of-service profile of the bench's topics.
    #[arg(long, default_value = "telemetry", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `helio bench open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The size of the journal; its file system needs a quarter more.
    #[arg(long, default_value = "10G", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) bytes: usize,
    /// Bytes of each message.
    #[arg(long, default_value = "1M", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) payload: usize,
    /// Times that it is opened after each kind of crash. Before each, its writer resumes and is
    /// killed again.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) opens: u32,
    /// The quality-of-service profile of the bench's topic (retention is disabled).
    #[arg(long, default_value = "stream", value_parser = PROFILES)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The language of both ends of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    /// This program.
    Rust,
    /// The package heliograph, run by the interpreter that $PYTHON names (default: python3).
    Python,
}

/// `helio bench commands`.
#[derive(Debug, Args)]
pub(crate) struct CommandsArgs {
    /// The language of both ends.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) language: Language,
    /// Commands per second.
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
    /// A folder of SAL interfaces; all of its components are simulated.
    #[arg(long, env = "HELIO_INTERFACES", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
    /// Multiplies the rates of the table.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = units::rate)]
    pub(crate) scale: f64,
    /// The duration of the measurement, such as 10s.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// Number of processes that run the components.
    #[arg(long, default_value = "3", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// The instances of a component, see `helio help component run` (default: one of each).
    #[arg(long, value_name = "WHICH")]
    pub(crate) instances: Vec<Instances>,
    /// Then search the largest scale without losses and delays.
    #[arg(long)]
    pub(crate) find_limit: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The path of log records from producers to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogPath {
    /// Producers publish on the bus and clients read from it.
    Direct,
    /// Producers without a bus send syslog over TCP to `helio log serve`, which publishes.
    Central,
}

/// Log records per second; `None` for as many as the bus accepts.
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
    /// The path of the records from producers to clients.
    #[arg(long, value_enum, default_value_t = LogPath::Direct)]
    pub(crate) path: LogPath,
    /// Processes that log.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) producers: u32,
    /// Processes that read every field of every record.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) clients: u32,
    /// Clients that are stopped (SIGSTOP) during the measurement and resume afterwards.
    #[arg(long, default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) stalled: u32,
    /// Bytes of a record in its packet.
    #[arg(long, default_value = "300", value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) size: usize,
    /// The largest number of records in a packet, the longest wait for more records, or both: 1000,
    /// 20ms, or 1,1ms.
    #[arg(long, default_value = "1000,20ms", value_name = "BATCH")]
    pub(crate) batch: Batch,
    /// Records per second of all producers together; max is as many as the bus accepts.
    #[arg(long, default_value = "24000", value_name = "HZ")]
    pub(crate) rate: LogRate,
    /// How long the producers log, such as 10s.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// The time between two ALERTs of the first producer.
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = units::interval)]
    pub(crate) urgent_every: Duration,
    /// Override a field of the quality of service of topics that are not urgent, such as
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
