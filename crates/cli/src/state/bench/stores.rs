//! The stores of a bench: this program's by durability, and its peers, or why one is not run.

use std::path::{Path, PathBuf};

use helio_state_etcd::client::Client;

use super::super::ask::failed;
use super::super::process::{Foreign, Node, find_program, free_port};
use crate::args::{StateBenchArgs, StatePeer};
use crate::error::{CliError, CliResult};
use crate::stop::Stop;

/// The unit of CPU times in /proc, on every Linux.
const TICKS_PER_S: f64 = 100.0;

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
    // Options of the connection go to each of its sessions.
    let postgres = |commit: &str| {
        let url = postgres.ok_or("no server is named: --postgres URL")?;
        let next = if url.contains('?') { '&' } else { '?' };
        Ok::<_, &'static str>(format!("{url}{next}options=-c%20synchronous_commit%3D{commit}"))
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

/// A running store; dropping it kills it.
pub(super) enum Running {
    Own(Node),
    Foreign(Foreign),
}

impl Store {
    /// Starts it, empty, with its files in a folder.
    pub(super) fn start(&self, folder: &Path, stop: &Stop) -> CliResult<Running> {
        match &self.how {
            How::Own(durability) => Node::start(folder, durability, stop).map(Running::Own),
            How::Etcd(program, more) => {
                Foreign::etcd(program, more, folder, stop).map(Running::Foreign)
            }
            How::Kine(program, endpoint) => {
                let port = free_port()?;
                let arguments = vec![
                    format!("--listen-address=127.0.0.1:{port}"),
                    format!("--endpoint={endpoint}"),
                    "--metrics-bind-address=0".to_owned(),
                ];
                Foreign::start(program, arguments, folder, port, stop).map(Running::Foreign)
            }
        }
    }
}

impl Running {
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Own(node) => node.url(),
            Self::Foreign(foreign) => foreign.url(),
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::Own(node) => node.id(),
            Self::Foreign(foreign) => foreign.id(),
        }
    }

    fn client(&self) -> CliResult<Client> {
        match self {
            Self::Own(node) => node.client(),
            Self::Foreign(foreign) => foreign.client(),
        }
    }

    /// Bytes on disk, as its status tells.
    pub(super) fn disk_bytes(&self) -> CliResult<i64> {
        Ok(self.client()?.status().map_err(failed)?.db_size)
    }

    /// CPU seconds of its process so far.
    pub(super) fn cpu_s(&self) -> CliResult<f64> {
        let text = self.proc("stat")?;
        // The program's name, in brackets, may contain anything.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS_PER_S)
    }

    /// Its anonymous memory, bytes.
    pub(super) fn anonymous_bytes(&self) -> CliResult<f64> {
        let text = self.proc("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib =
            line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
        Ok(kib.unwrap_or(0.0) * 1024.0)
    }

    fn proc(&self, file: &str) -> CliResult<String> {
        let path = PathBuf::from(format!("/proc/{}/{file}", self.id()));
        std::fs::read_to_string(&path).map_err(|error| CliError::file(&path, &error))
    }
}
