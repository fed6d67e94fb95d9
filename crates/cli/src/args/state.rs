//! The command lines of `helio state` as tables.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use helio_console::args::Output;

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
    /// Show a store's version, revision and sizes.
    Status(StatusArgs),
    /// Print keys and their values.
    Get(GetArgs),
    /// Print changes of keys as they come.
    Watch(WatchArgs),
    /// Forget the revisions below one.
    Compact(CompactArgs),
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
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio state restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The snapshot, of `helio state snapshot`.
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,
    /// The new store's folder.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The store that a command asks.
#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// The store's URL; its connection is not encrypted.
    #[arg(long, default_value = "http://127.0.0.1:2379", value_name = "URL")]
    pub(crate) endpoint: String,
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
