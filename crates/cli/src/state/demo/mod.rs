//! `helio state demo`: a store under a load as Kubernetes makes, killed and restarted, saved and
//! restored; then an audit of every answer.
//!
//! Keys come from a real etcd first, where there is one: the store that is killed is the imported
//! one. Each step waits for an event and never for time alone, so that a slow machine only takes
//! longer.

mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helio_console::story::Story;
use helio_state_etcd::client::{Client, ClientError};
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_load::audit::{Findings, History, Record, audit};
use helio_state_load::history::{Listing, Stored, list};
use helio_state_load::load::{Counters, Load, Plan};
use helio_state_load::objects::{self, PREFIX};

use self::report::{Copied, Kill, Outcome, Report, Restored};
use super::ask::failed;
use super::process::{LISTEN, Server, command, find_program, path};
use crate::args::StateDemoArgs;
use crate::clock;
use crate::error::{CliError, CliResult};
use crate::run_bus::RunBus;
use crate::stop::Stop;
use crate::units::human_count;

/// The durability of the stores.
const DURABILITY: &str = "disk";
/// Kills during the load; the times between them are equal.
const KILLS: u32 = 4;
/// The kills after which revisions are compacted, and a snapshot is saved.
const COMPACT_AFTER: u32 = 1;
const SNAPSHOT_AFTER: u32 = 2;
/// Clients that write, and writes a second of all.
const WRITERS: u16 = 16;
const WRITES_PER_S: f64 = 4_000.0;
/// How long the etcd is written to that is imported.
const FILL_TIME: Duration = Duration::from_secs(1);
/// How often the load is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The longest time without an acknowledgement while one is awaited.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The random numbers of etcd's load and of the store's.
const ETCD_SEED: u16 = 1;
const SEED: u16 = 2;

/// Runs `helio state demo`.
pub(super) fn run(args: &StateDemoArgs, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-state-demo", args.dir.as_deref(), None)?;
    let folder = site.scratch().unwrap_or_else(|| Path::new("."));
    let etcd = find_program("etcd", args.etcd.as_deref())?;
    let begun = Instant::now();
    let before = clock::load();
    let mut demo = Demo { folder, stop, story: Story::of(&args.output) };
    let imported = match &etcd {
        Some(program) => Some(demo.import(program)?),
        None => None,
    };
    let outcome = demo.play(args.seconds, imported)?;
    let load = [before, clock::load()];
    let (mut out, story) = demo.story.close();
    let report = Report::of(outcome, story, begun.elapsed(), load);
    if args.output.json {
        out.json(&report)?;
    } else {
        report.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    report.verdict()
}

struct Demo<'a> {
    folder: &'a Path,
    stop: &'a Stop,
    story: Story,
}

impl Demo<'_> {
    /// The folder of the store that is killed.
    fn node(&self) -> PathBuf {
        self.folder.join("node")
    }

    /// Writes to a real etcd, and makes the store of it.
    fn import(&mut self, program: &Path) -> CliResult<Copied> {
        self.story.print(format!("etcd is started: {}", program.display()))?;
        let etcd = Server::etcd(program, &[], &self.folder.join("etcd"), self.stop)?;
        let client = etcd.client()?;
        let version = client.status().map_err(failed)?.version;
        let load = start(etcd.url(), ETCD_SEED, Listing { revision: 1, keys: Vec::new() })?;
        let begun = Instant::now();
        self.wait(&load, "filling etcd", |_| begun.elapsed() >= FILL_TIME)?;
        finished(load)?;
        let source = list(&client, 0).map_err(failed)?;
        let reply = command(&["import", etcd.url(), "--dir", path(&self.node())?], self.stop)?;
        let revision = reply["revision"].as_i64().unwrap_or_default();
        self.story.print(format!(
            "helio state import: {} keys of etcd {version} at revision {}, here at {revision}",
            human_count(source.keys.len() as u64),
            source.revision
        ))?;
        Ok(Copied { version, source, revision, differences: Findings::default() })
    }

    fn play(&mut self, time: Duration, mut imported: Option<Copied>) -> CliResult<Outcome> {
        let mut node = Server::serve(&self.node(), DURABILITY, LISTEN, self.stop)?;
        let client = node.client()?;
        let begin = list(&client, 0).map_err(failed)?;
        if let Some(imported) = &mut imported {
            imported.differences = differences(&imported.source.keys, &begin.keys);
        }
        let plan_begin = begin.clone();
        let load = start(node.url(), SEED, plan_begin)?;
        self.story.print(format!(
            "helio state serve at {}: {WRITERS} clients write, five watches read",
            node.url()
        ))?;
        let (kills, saved) = self.storm(&mut node, &load, time)?;
        let last = load.counters();
        let mut record = finished(load)?;
        let client = node.client()?;
        record.end = list(&client, 0).map_err(failed)?;
        self.story.print(format!("the load has ended at revision {}", record.end.revision))?;
        self.story.doing(|| "the audit".to_owned());
        let audit = audit(&record);
        let restored = self.restore(&client, &record, &saved)?;
        Ok(Outcome { kills, counters: last, audit, restored, imported })
    }

    /// The load's time, with kills, a compaction and a snapshot.
    fn storm(
        &mut self,
        node: &mut Server,
        load: &Load,
        time: Duration,
    ) -> CliResult<(Vec<Kill>, String)> {
        let saved = self.folder.join("saved.snapshot");
        let (begun, mut kills) = (Instant::now(), Vec::new());
        let mut acknowledged = 0;
        for number in 1..=KILLS {
            let due = time.mul_f64(f64::from(number) / f64::from(KILLS + 1));
            self.wait(load, "writing", |now| {
                begun.elapsed() >= due && now.acknowledged > acknowledged
            })?;
            let before = load.counters();
            let at = Instant::now();
            node.kill()?;
            let listen = node.url().trim_start_matches("http://").to_owned();
            *node = Server::serve(&self.node(), DURABILITY, &listen, self.stop)?;
            let served = at.elapsed();
            acknowledged = before.acknowledged + u64::from(WRITERS);
            self.wait(load, "restarting", |now| now.acknowledged > acknowledged)?;
            let kill = Kill {
                revision: before.revision,
                acknowledged: before.acknowledged,
                served_s: served.as_secs_f64(),
                written_s: at.elapsed().as_secs_f64(),
            };
            self.story.print(format!(
                "SIGKILL at revision {}; it served after {:.2} s, and writes went on after {:.2} s",
                kill.revision, kill.served_s, kill.written_s
            ))?;
            kills.push(kill);
            if number == COMPACT_AFTER {
                let revision = load.counters().watched;
                node.client()?.compact(revision).map_err(failed)?;
                self.story.print(format!("revisions below {revision} are compacted under load"))?;
            }
            if number == SNAPSHOT_AFTER {
                command(&["snapshot", path(&saved)?, "--endpoint", node.url()], self.stop)?;
                self.story.print("helio state snapshot: saved under load".to_owned())?;
            }
        }
        self.wait(load, "writing", |now| {
            begun.elapsed() >= time && now.acknowledged > acknowledged
        })?;
        Ok((kills, path(&saved)?.to_owned()))
    }

    /// Restores the snapshot to another folder, and compares it with the history at its revision.
    fn restore(&mut self, old: &Client, record: &Record, saved: &str) -> CliResult<Restored> {
        let folder = self.folder.join("restored");
        let reply = command(&["restore", saved, "--dir", path(&folder)?], self.stop)?;
        let revision = |name: &str| reply[name].as_i64().unwrap_or_default();
        let (from, to) = (revision("from_revision"), revision("revision"));
        let node = Server::serve(&folder, DURABILITY, LISTEN, self.stop)?;
        let client = node.client()?;
        let is = list(&client, 0).map_err(failed)?;
        let was = list(old, from).map_err(failed)?;
        let mut wrong = differences(&was.keys, &is.keys);
        let from_watch = History::of(record).differences(from, &is.keys);
        wrong.extend(from_watch);
        self.story.print(format!(
            "helio state restore: {} keys of revision {from}, at revision {to}",
            human_count(is.keys.len() as u64)
        ))?;
        let compacted = refuses_old(&client, from, record.end.revision)?;
        Ok(Restored { from, to, used: record.end.revision, keys: is.keys.len(), wrong, compacted })
    }

    /// Waits for an event of the load.
    fn wait(&mut self, load: &Load, what: &str, happened: impl Fn(&Counters) -> bool) -> CliResult {
        let (mut last, mut moved) = (load.counters(), Instant::now());
        loop {
            let now = load.counters();
            if happened(&now) {
                return Ok(());
            }
            if now.acknowledged > last.acknowledged {
                (last, moved) = (now, Instant::now());
            }
            if load.has_ended() {
                return Err(CliError::Failure("the load has ended too early".to_owned()));
            }
            if moved.elapsed() > SILENCE_TIMEOUT {
                return Err(CliError::Failure(format!("{what}: no write is acknowledged")));
            }
            self.story.doing(|| {
                format!(
                    "{what}: {} writes acknowledged, {} unknown, {} events, revision {}",
                    human_count(now.acknowledged),
                    now.unknown,
                    human_count(now.events),
                    now.revision
                )
            });
            self.stop.check()?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn start(url: &str, seed: u16, begin: Listing) -> CliResult<Load> {
    let plan =
        Plan { url: url.to_owned(), writers: WRITERS, per_second: WRITES_PER_S, seed, begin };
    Load::start(plan).map_err(failed)
}

fn finished(load: Load) -> CliResult<Record> {
    load.finish().ok_or_else(|| CliError::Failure("the load has panicked".to_owned()))
}

/// Where a copy differs from its source, leases and versions included.
fn differences(source: &[Stored], copy: &[Stored]) -> Findings {
    let mut found = Findings::default();
    if source.len() != copy.len() {
        found.add(|| format!("{} keys, not {}", copy.len(), source.len()));
    }
    for (was, is) in source.iter().zip(copy).filter(|(was, is)| was != is) {
        found.add(|| format!("{is:?}, not {was:?}"));
    }
    found
}

/// Whether a restored store answers reads and watches of revisions of the old line, up to its last
/// one, with *compacted*.
fn refuses_old(client: &Client, from: i64, last: i64) -> CliResult<bool> {
    for revision in [from, last] {
        let request =
            pb::RangeRequest { key: PREFIX.into(), revision, ..pb::RangeRequest::default() };
        match client.range(request) {
            Err(ClientError::Refused(status)) if status.message().contains("compacted") => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        let create = pb::WatchCreateRequest {
            key: PREFIX.into(),
            range_end: objects::range_end(PREFIX.as_bytes()),
            start_revision: revision,
            ..pb::WatchCreateRequest::default()
        };
        let mut watching = client.watch(create).map_err(failed)?;
        let cancelled = loop {
            match watching.next(SILENCE_TIMEOUT).map_err(failed)? {
                Some(answer) if answer.created && !answer.canceled => {}
                Some(answer) => break answer.canceled && answer.compact_revision > last,
                None => break false,
            }
        };
        if !cancelled {
            return Ok(false);
        }
    }
    Ok(true)
}
