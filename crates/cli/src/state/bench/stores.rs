//! The stores of a bench: this program's by durability, and its peers, or why one is not run.

use std::path::{Path, PathBuf};

use helio_console::usage::ProcessUse;

use super::super::ask::failed;
use super::super::process::{LISTEN, Server, find_program, free_port};
use crate::args::{StateBenchArgs, StatePeer};
use crate::error::{CliError, CliResult};
use crate::stop::Stop;

/// A store that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) name: &'static str,
    how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    Own(&'static str),
    Etcd(PathBuf, &'static [&'static str]),
    Kine(PathBuf, String),
}

/// A peer that is not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Absent {
    pub(super) name: &'static str,
    pub(super) why: String,
}

/// The stores of this program, by durability.
const OWN: [(&str, &str); 2] = [("helio-disk", "disk"), ("helio-interval", "interval")];

/// The name of a peer, which its value on the command line is.
fn name(peer: StatePeer) -> &'static str {
    match peer {
        StatePeer::Etcd => "etcd",
        StatePeer::EtcdNofsync => "etcd-nofsync",
        StatePeer::KineSqlite => "kine-sqlite",
        StatePeer::KinePostgres => "kine-postgres",
        StatePeer::KinePostgresSync => "kine-postgres-sync",
        StatePeer::KineMemory => "kine-memory",
    }
}

/// What can be run of what is asked for, in turn, and what cannot.
pub(super) fn chosen(args: &StateBenchArgs) -> CliResult<(Vec<Store>, Vec<Absent>)> {
    let etcd = find_program("etcd", args.etcd.as_deref())?;
    let kine = find_program("kine", args.kine.as_deref())?;
    let mut stores: Vec<_> = OWN
        .into_iter()
        .map(|(name, durability)| Store { name, how: How::Own(durability) })
        .collect();
    let mut absent = Vec::new();
    for peer in &args.peers {
        let name = name(*peer);
        match how(*peer, etcd.as_deref(), kine.as_deref(), args.postgres.as_deref()) {
            Ok(how) => stores.push(Store { name, how }),
            Err(why) => absent.push(Absent { name, why: why.to_owned() }),
        }
    }
    Ok((stores, absent))
}

fn how(
    peer: StatePeer,
    etcd: Option<&Path>,
    kine: Option<&Path>,
    postgres: Option<&str>,
) -> Result<How, &'static str> {
    let etcd = etcd.ok_or("there is no etcd: tests/engines/kube build, or --etcd FILE");
    let kine = kine.ok_or("there is no kine: name one by --kine FILE");
    // A parameter that is not of the connection itself is set in each of its sessions.
    let postgres = |commit: &str| {
        let url = postgres.ok_or("no server is named: --postgres URL")?;
        let next = if url.contains('?') { '&' } else { '?' };
        Ok::<_, &'static str>(format!("{url}{next}synchronous_commit={commit}"))
    };
    Ok(match peer {
        StatePeer::Etcd => How::Etcd(etcd?.to_owned(), &[]),
        StatePeer::EtcdNofsync => How::Etcd(etcd?.to_owned(), &["--unsafe-no-fsync"]),
        StatePeer::KineSqlite => How::Kine(kine?.to_owned(), "sqlite://".to_owned()),
        StatePeer::KineMemory => How::Kine(kine?.to_owned(), "memory://".to_owned()),
        StatePeer::KinePostgres => How::Kine(kine?.to_owned(), postgres("off")?),
        StatePeer::KinePostgresSync => How::Kine(kine?.to_owned(), postgres("on")?),
    })
}

impl Store {
    /// Starts it, empty, with its files in a folder.
    pub(super) fn start(&self, folder: &Path, stop: &Stop) -> CliResult<Server> {
        match &self.how {
            How::Own(durability) => Server::serve(folder, durability, LISTEN, stop),
            How::Etcd(program, more) => Server::etcd(program, more, folder, stop),
            How::Kine(program, endpoint) => {
                let port = free_port()?;
                let arguments = vec![
                    format!("--listen-address=127.0.0.1:{port}"),
                    format!("--endpoint={endpoint}"),
                    "--metrics-bind-address=0".to_owned(),
                ];
                Server::foreign(program, arguments, folder, port, stop)
            }
        }
    }
}

/// Bytes on disk, as its status has them.
pub(super) fn disk_bytes(server: &Server) -> CliResult<i64> {
    Ok(server.client()?.status().map_err(failed)?.db_size)
}

/// What its process has used so far.
pub(super) fn used(server: &Server) -> CliResult<ProcessUse> {
    let none = || CliError::Failure(format!("the server at {} has ended", server.url()));
    ProcessUse::of(server.id()).ok_or_else(none)
}
