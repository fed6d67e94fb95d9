//! `helio state serve` and `restore`: the store of a folder.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state_etcd::{Description, Served, TlsFiles, listen, saved};
use helio_state_node::{OpenError, Options, Restore, Store};
use serde_json::{Value, json};

use super::schedule::Schedule;
use crate::args::{RestoreArgs, ServeArgs, StateDurability};
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// The ids of a store, in its folder.
const IDENTITY_FILE: &str = "identity.json";
/// The folder of snapshots, beside the log.
const STORE_FOLDER: &str = "store";
/// A snapshot that is being restored.
const PART_FILE: &str = "restore.part";

/// Who a store is to its clients.
#[derive(Debug, Clone, Copy)]
struct Identity {
    cluster_id: u64,
    member_id: u64,
}

/// Serves until a signal ends it.
pub(super) fn serve(args: &ServeArgs, stop: &Stop) -> CliResult {
    let tls = tls(args);
    let listening = listen(&args.listen, tls.clone()).map_err(failed)?;
    let options = options(args);
    let (_bus, store) = open(&args.dir, options.clone())?;
    let store = Arc::new(store);
    let identity = identity(&args.dir)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listening.address());
    let served = Served::new(Arc::clone(&store), identity.cluster_id, identity.member_id);
    let description = Description {
        name: args.name.clone(),
        client_urls: vec![url.clone()],
        peer_urls: vec![url.clone()],
        quota_bytes: i64::try_from(options.quota_bytes).unwrap_or(i64::MAX),
    };
    let server = listening.serve(Arc::new(served), description);
    let schedule = args.snapshots.clone().map(|folder| {
        let (every, keep) = (args.snapshot_every, args.snapshot_keep.into());
        Schedule::start(Arc::clone(&store), folder, every, keep)
    });
    let schedule = schedule.transpose()?;
    let revision = store.status().revision;
    let folder = args.dir.display();
    let mut out = Out::new();
    if args.output.json {
        out.json(&json!({ "url": url, "dir": args.dir, "revision": revision }))?;
    } else {
        out.line(&format!("{folder} is served at {url}, from revision {revision} on"))?;
    }
    out.flush()?;
    while !stop.asked() && store.check().is_ok() {
        std::thread::sleep(STOP_POLL_INTERVAL);
    }
    drop(server);
    drop(schedule);
    let failure = store.status().failure;
    store.close().map_err(failed)?;
    failure.map_or(Ok(()), |failure| Err(CliError::Failure(failure)))
}

/// Makes a store from a snapshot.
pub(super) fn restore(args: &RestoreArgs) -> CliResult {
    refuse_store(&args.dir)?;
    fs::create_dir_all(&args.dir).map_err(|error| at(&args.dir, &error))?;
    let part = args.dir.join(PART_FILE);
    saved::unseal(&args.snapshot, &part).map_err(|error| at(&args.snapshot, &error))?;
    let done = restore_from(&part, &args.dir, "helio state restore");
    // It is in the store now, or of no use.
    drop(fs::remove_file(&part));
    let done = done?;
    let mut out = Out::new();
    if args.output.json {
        let told = json!({
            "from_revision": done.from, "revision": done.to, "keys": done.keys,
        });
        out.json(&told)?;
    } else {
        let folder = args.dir.display();
        out.line(&format!("{folder} has {} keys, at revision {}", done.keys, done.to))?;
    }
    out.flush()
}

/// Refuses a folder that has a store.
pub(super) fn refuse_store(folder: &Path) -> CliResult {
    let store = folder.join(STORE_FOLDER);
    match fs::read_dir(&store).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(refused(OpenError::NotEmpty { path: store })),
        _ => Ok(()),
    }
}

/// Makes a store in a folder from the snapshot of a file.
pub(super) fn restore_from(file: &Path, folder: &Path, owner: &str) -> CliResult<Restore> {
    let bus = bus(folder)?;
    helio_state_node::restore(&bus, file, &folder.join(STORE_FOLDER), &Options::new(owner))
        .map_err(refused)
}

fn options(args: &ServeArgs) -> Options {
    let durability = match args.durability {
        StateDurability::Disk => LogDurability::Disk,
        StateDurability::Interval => LogDurability::Interval,
    };
    Options { durability, ..Options::new(&format!("helio state serve, {}", args.name)) }
}

fn tls(args: &ServeArgs) -> Option<TlsFiles> {
    Some(TlsFiles {
        certificate: args.cert.clone()?,
        key: args.key.clone()?,
        client_authorities: args.client_ca.clone(),
        allowed_names: args.allow_name.clone(),
    })
}

/// The log lies in a journal of the folder, the snapshots beside it.
fn bus(folder: &Path) -> CliResult<Bus> {
    open::connect(Some(&format!("journal:{}", folder.join("log").display())), None)
}

fn open(folder: &Path, options: Options) -> CliResult<(Bus, Store)> {
    fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    let bus = bus(folder)?;
    let store = Store::open(&bus, &folder.join(STORE_FOLDER), &options).map_err(refused)?;
    Ok((bus, store))
}

/// The ids of the store of a folder, which are chosen when it is served first.
fn identity(folder: &Path) -> CliResult<Identity> {
    let file = folder.join(IDENTITY_FILE);
    match fs::read(&file) {
        Ok(text) => {
            let read: Value = serde_json::from_slice(&text).unwrap_or_default();
            let ids = read["cluster_id"].as_u64().zip(read["member_id"].as_u64());
            let damaged = || CliError::Failure(format!("{} is damaged; remove it", file.display()));
            let (cluster_id, member_id) = ids.ok_or_else(damaged)?;
            Ok(Identity { cluster_id, member_id })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let identity = Identity { cluster_id: random()?, member_id: random()? };
            let ids = json!({
                "cluster_id": identity.cluster_id, "member_id": identity.member_id,
            });
            write_synced(&file, ids.to_string().as_bytes()).map_err(|error| at(&file, &error))?;
            Ok(identity)
        }
        Err(error) => Err(at(&file, &error)),
    }
}

/// Writes a file that is there whole or not at all after a power cut.
fn write_synced(file: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = file.with_extension("new");
    let mut opened = fs::File::create(&temporary)?;
    opened.write_all(content)?;
    opened.sync_all()?;
    fs::rename(&temporary, file)?;
    file.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

fn random() -> CliResult<u64> {
    let mut bytes = [0; 8];
    let source = Path::new("/dev/urandom");
    let read = fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| at(source, &error))?;
    Ok(u64::from_le_bytes(bytes))
}

fn at(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Failure(format!("{}: {error}", path.display()))
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failure(error.to_string())
}

fn refused(error: OpenError) -> CliError {
    match error {
        OpenError::NotEmpty { .. } => CliError::Refused(error.to_string()),
        _ => failed(error),
    }
}
