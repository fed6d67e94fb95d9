//! The command lines of `helio state` as tables.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use helio_console::args::Output;
use helio_console::units;

/// `helio state`.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Serve the store of a folder to etcd's clients, such as Kubernetes' API server.
    ///
    /// The folder is created if it does not exist. One process at a time serves it.
    Serve(ServeArgs),
    /// Make a store in an empty folder from a snapshot.
    ///
    /// Its revision jumps above all that the old store may have used, and older ones are compacted,
    /// so that clients list their objects again.
    Restore(RestoreArgs),
    /// Save a snapshot of a running store.
    Snapshot(SnapshotArgs),
    /// Make a store in an empty folder from a running etcd, Kine or store.
    ///
    /// All keys are of one revision and keep theirs; leases keep their remaining time. The store's
    /// revision begins above the source's, and older ones are compacted.
    Import(StateImportArgs),
    /// Copy all keys of a running store to an empty etcd.
    ///
    /// Revisions start anew there: stop API servers first. Leases keep their remaining time, at
    /// least a minute.
    Export(StateExportArgs),
    /// Show a store's version, revision and sizes.
    Status(StatusArgs),
    /// Print keys and their values.
    Get(GetArgs),
    /// Print changes of keys as they come.
    Watch(WatchArgs),
    /// Forget the revisions below one.
    Compact(CompactArgs),
    /// Kill and restart a store under a load as Kubernetes makes, and audit every answer.
    ///
    /// A store of this program is written to by several clients and watched by others, killed
    /// (SIGKILL) four times, compacted, saved and restored; an etcd is imported where one is found.
    /// The exit code is 1 where a requirement that must hold is missed.
    Demo(StateDemoArgs),
    /// Measure the store beside its peers, by one client.
    ///
    /// Every run starts every store in turn, empty: puts and ranges by 3 clients at 100 a second
    /// beside the requests of a cluster with so many pods, then 100 clients at full speed. Peers
    /// that are not there are named. The exit code is 1 where ours lacks an answer or event.
    Bench(StateBenchArgs),
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateDurability {
    /// After it is on disk.
    Disk,
    /// Before: the disk follows every 50 ms. A power cut loses what came since.
    Interval,
}

/// `helio state serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The store's folder.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The address that it listens at.
    #[arg(long, default_value = "127.0.0.1:2379", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// The member's name.
    #[arg(long, default_value = "helio")]
    pub(crate) name: String,
    /// When a write is acknowledged.
    #[arg(long, value_enum, default_value = "disk")]
    pub(crate) durability: StateDurability,
    /// The server's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The authorities of clients' certificates, in PEM; clients need one then.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Admit only clients whose certificate has this common or DNS name; may be repeated.
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    pub(crate) allow_name: Vec<String>,
    /// Save snapshots to this folder, too, on schedule.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) snapshots: Option<PathBuf>,
    /// The time between two of these snapshots.
    #[arg(
        long, default_value = "6h", value_name = "TIME", value_parser = units::interval,
        requires = "snapshots",
    )]
    pub(crate) snapshot_every: Duration,
    /// The number of these snapshots that are kept.
    #[arg(
        long, default_value_t = 5, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..), requires = "snapshots",
    )]
    pub(crate) snapshot_keep: u16,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The snapshot, of `helio state snapshot` or of `etcdctl snapshot save` at such a store.
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,
    /// The new store's folder.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The files of TLS, by etcdctl's names.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// The authorities of the server's certificate, in PEM; https:// needs them.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// The client's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(id = "tls_key", long = "key", value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

/// The store that a command asks.
#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// The store's URL.
    #[arg(long, default_value = "http://127.0.0.1:2379", value_name = "URL")]
    pub(crate) endpoint: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// `helio state import`.
#[derive(Debug, Args)]
pub(crate) struct StateImportArgs {
    /// The source, such as http://127.0.0.1:2379.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// The new store's folder.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Only keys that begin with PREFIX. Kine needs one that ends with a slash, such as /.
    #[arg(long, default_value = "", value_name = "PREFIX")]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state export`.
#[derive(Debug, Args)]
pub(crate) struct StateExportArgs {
    /// The empty target, such as http://127.0.0.1:2379.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Only keys that begin with PREFIX.
    #[arg(long, default_value = "", value_name = "PREFIX")]
    pub(crate) prefix: String,
    /// The authorities of the target's certificate, in PEM; https:// needs them.
    #[arg(long, value_name = "FILE")]
    pub(crate) target_cacert: Option<PathBuf>,
    /// The certificate for the target, in PEM.
    #[arg(long, value_name = "FILE", requires = "target_key")]
    pub(crate) target_cert: Option<PathBuf>,
    /// That certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "target_cert")]
    pub(crate) target_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// The file to write; it must not exist.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which keys.
#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// All keys that begin with KEY.
    #[arg(long)]
    pub(crate) prefix: bool,
}

/// `helio state get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    /// The revision to read at; the current one by default.
    #[arg(long, value_name = "REVISION", default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    /// The first revision to print; that after the current one by default.
    #[arg(long, value_name = "REVISION", default_value_t = 0)]
    pub(crate) from: i64,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state compact`.
#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    /// The first revision to keep.
    #[arg(value_name = "REVISION")]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state demo`.
#[derive(Debug, Args)]
pub(crate) struct StateDemoArgs {
    /// Where the folder of this run is created, and removed.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// How long the load runs, such as 20s.
    #[arg(long, default_value = "20", value_name = "TIME", value_parser = load_time)]
    pub(crate) seconds: Duration,
    /// The etcd to import from (default: that in PATH, or built by tests/engines/kube).
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A store that ours is measured beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatePeer {
    /// One etcd.
    Etcd,
    /// One etcd that acknowledges before writes are on disk.
    EtcdNofsync,
    /// Kine on SQLite.
    KineSqlite,
    /// Kine on PostgreSQL, which acknowledges before writes are on disk.
    KinePostgres,
    /// Kine on PostgreSQL.
    KinePostgresSync,
    /// Kine in memory.
    KineMemory,
}

/// `helio state bench`.
#[derive(Debug, Args)]
pub(crate) struct StateBenchArgs {
    /// The pods of the cluster whose requests come beside the measured ones, one row each.
    #[arg(long, default_value = "0,1,5,10,100", value_delimiter = ',', value_name = "NUMBERS")]
    pub(crate) pods: Vec<u16>,
    /// The stores to measure beside ours.
    #[arg(long, value_enum, default_value = "etcd,etcd-nofsync", value_delimiter = ',')]
    pub(crate) peers: Vec<StatePeer>,
    /// Runs, each with all stores in turn.
    #[arg(
        long, default_value_t = 40, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    pub(crate) runs: u16,
    /// How long each row of a run is measured.
    #[arg(long, default_value = "30", value_name = "TIME", value_parser = load_time)]
    pub(crate) seconds: Duration,
    /// Rows of five minutes, as the seed's.
    #[arg(long, conflicts_with = "smoke")]
    pub(crate) full: bool,
    /// One short run of everything, to see that all works; no figures.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Where the folder of this run is created, and removed.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The etcd (default: that in PATH, or built by tests/engines/kube).
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd: Option<PathBuf>,
    /// The Kine (default: that in PATH).
    #[arg(long, value_name = "FILE")]
    pub(crate) kine: Option<PathBuf>,
    /// A running PostgreSQL with a database of its own for Kine, such as
    /// `postgres://USER@HOST/DATABASE`.
    #[arg(long, value_name = "URL")]
    pub(crate) postgres: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The longest load of a demo: all that it wrote is kept for the audit.
const MOST_LOAD_TIME: Duration = Duration::from_secs(600);

/// Parses the time of a load.
fn load_time(text: &str) -> Result<Duration, String> {
    match units::interval(text)? {
        long if long > MOST_LOAD_TIME => Err(format!("{text:?} is too long; the maximum is 10m")),
        time => Ok(time),
    }
}
