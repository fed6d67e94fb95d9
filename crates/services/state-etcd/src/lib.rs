//! etcd's v3 API over gRPC, and its HTTP probes, for a cluster state store.
//!
//! It knows etcd's protocol, its errors by text, and a store by the trait [`store::Store`]. It must
//! not know how a store keeps its revisions, nor the bus.
//!
//! Operation. One thread serves all connections. A request passes etcd's checks in etcd's order and
//! goes to the store; a stream of watches is one task that polls the store's cursors, so that a
//! slow client delays only itself. `docs/state.md` lists what is served.

mod checks;
pub mod client;
mod convert;
mod error;
mod exposition;
mod http;
mod kv;
mod lease;
mod maintenance;
mod metrics;
mod node;
mod process;
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated from etcd's proto files, which document it"
)]
#[rustfmt::skip]
pub mod proto;
mod raw;
pub mod requests;
mod rpc_body;
pub mod saved;
mod server;
mod service;
pub mod store;
mod stream_end;
mod tls;
pub mod transfer;
mod watch;

pub use helio_tls::{ClientTls, TlsError, TlsFiles};
pub use node::Served;
pub use raw::KeyValue;
pub use server::{ListenError, Listening, Server, listen};

/// The version of etcd whose API is served: clients choose features by it.
pub const ETCD_VERSION: &str = "3.6.16";
/// The version of the cluster's protocol, as `/version` tells it.
pub const CLUSTER_VERSION: &str = "3.6.0";
/// The version of the storage's schema, as etcd numbers it.
pub const STORAGE_VERSION: &str = "3.6.0";
/// The most bytes of a request, as in etcd.
pub const MAX_REQUEST_BYTES: usize = 3 << 19;
/// The most operations of a transaction, a list and nested ones included, as in etcd.
pub const MAX_TXN_OPERATIONS: usize = 128;

/// What a member tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The URLs at which clients reach it.
    pub client_urls: Vec<String>,
    /// The URLs at which other members reach it.
    pub peer_urls: Vec<String>,
    /// The most bytes on disk; 0 without a limit.
    pub quota_bytes: i64,
}
