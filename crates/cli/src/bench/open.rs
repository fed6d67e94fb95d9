//! `helio bench open`: the time to open a large journal after a crash.
//!
//! A writer fills a journal without pauses and is killed (SIGKILL), so that its last samples are
//! not synced. Then another process opens the topic for reading and writing, reads the oldest
//! sample and publishes one; its time runs from before it connects. Three kinds of crash alternate,
//! and before each the writer resumes for a time and is killed again:
//!
//! - *killed*: the machine keeps running.
//! - *power*: the machine seems to be restarted (the opening process sees another boot id of the
//!   kernel). Nothing in memory is trusted, and the journal's end must be found. The files are
//!   complete, which is the longest case for their check.
//! - *cold*: the same, and the files' pages are dropped from memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Event, Message, Start, Subscribe, TopicSpec};
use helio_core::Qos;
use rustix::fs::{Advice, fadvise, statvfs};
use serde::{Deserialize, Serialize};

use super::report::{Spread, print};
use crate::args::OpenArgs;
use crate::clock::{cpu_s, load, monotonic_ns, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::open::profile;
use crate::out::Progress;
use crate::run_bus::RunBus;
use crate::stop::Stop;
use crate::units::{human_bytes, human_count};
use crate::worker::{Worker, own_program, say};

const TOPIC: &str = "bench/open";
/// Bytes written before each later crash, at most as many as at first.
const MORE_BYTES: u64 = 128 << 20;
/// A writer reports its progress after this many bytes.
const TELL_BYTES: u64 = 8 << 20;
/// The kernel's identity of the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Replaces the boot id with a file, for this process only; exits with 4 without the permission.
const ANOTHER_BOOT: &str = "mount --bind \"$0\" \"$1\" || exit 4; shift; exec \"$@\"";
/// The timeout of the oldest sample.
const FIRST_SAMPLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    Killed,
    Power,
    Cold,
}

/// Where the journal is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OpenTask {
    url: String,
    qos: Qos,
    payload_bytes: usize,
}

/// An opener's report.
#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    ms: f64,
    cpu_ms: f64,
    rss_mb: f64,
    /// Samples in the journal before the published one.
    samples: u64,
}

#[derive(Serialize)]
struct Spreads {
    killed: Option<Spread>,
    power: Option<Spread>,
    cold: Option<Spread>,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    url: String,
    payload_bytes: usize,
    count: u64,
    received: u64,
    lost: u64,
    bytes: u64,
    open_ms: Spreads,
    cpu_ms: Spreads,
    rss_mb: f64,
    load: f64,
    version: &'static str,
    receipt: &'static str,
}

/// Runs `helio bench open`.
pub(crate) fn run(args: &OpenArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    let Some(scratch) = site.scratch() else {
        let text = "this bench crashes a journal of its own; leave --url out, and give --dir";
        return Err(CliError::Refused(text.to_owned()));
    };
    check_room(scratch, args.bytes as u64)?;
    let load_before = load();
    let mut qos = profile(&args.profile)?;
    (qos.retention.bytes, qos.retention.age) = (None, None);
    let url = format!("{}/journal", site.url());
    let task = OpenTask { url, qos, payload_bytes: args.payload.max(8) };
    let mut bench =
        Bench { task, scratch, stop, stored: 0, bytes: 0, lost: 0, progress: Progress::new() };
    bench.write(args.bytes as u64)?;
    let mut opened = Vec::new();
    for _ in 0..args.opens {
        for crash in [Crash::Killed, Crash::Power, Crash::Cold] {
            bench.write(MORE_BYTES.min(args.bytes as u64))?;
            opened.push((crash, bench.open(crash)?));
        }
    }
    bench.told(args, &opened, load_before)
}

/// Refuses if the file system would fill up.
fn check_room(folder: &Path, bytes: u64) -> CliResult {
    let at = |e: rustix::io::Errno| CliError::file(folder, &e.into());
    let system = statvfs(folder).map_err(at)?;
    let (free, needed) = (system.f_bavail * system.f_frsize, bytes / 4 * 5);
    if free < needed {
        let (free, needed) = (human_bytes(free as f64), human_bytes(needed as f64));
        let text = format!("{} has {free}, the bench needs {needed}", folder.display());
        return Err(CliError::Refused(format!("{text}; give --bytes or another --dir")));
    }
    Ok(())
}

struct Bench<'a> {
    task: OpenTask,
    scratch: &'a Path,
    stop: &'a Stop,
    /// Messages with a receipt.
    stored: u64,
    bytes: u64,
    lost: u64,
    progress: Progress,
}

impl Bench<'_> {
    /// Has a process write at least this much, and kills it while it goes on.
    fn write(&mut self, bytes: u64) -> CliResult {
        let mut writer = Worker::start("bench-filler", "bench writer", &self.task, self.stop)?;
        let size = self.task.payload_bytes as u64;
        let mut count = 0;
        while count * size < bytes {
            count = writer.reply()?;
            let written = self.bytes + count * size;
            self.progress.show(|| format!("{} written", human_bytes(written as f64)));
        }
        let said = writer.kill()?;
        let last = said.last().and_then(|line| line.parse().ok());
        let count: u64 = last.unwrap_or(count).max(count);
        self.stored += count;
        self.bytes += count * size;
        Ok(())
    }

    fn open(&mut self, crash: Crash) -> CliResult<Opened> {
        self.progress.show(|| "opening".to_owned());
        if crash != Crash::Killed {
            // A machine that was started anew has nothing left to write back.
            each_file(self.scratch, &|file| file.sync_all())?;
        }
        if crash == Crash::Cold {
            each_file(self.scratch, &|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?))?;
        }
        let launcher = match crash {
            Crash::Killed => Command::new(own_program()?),
            Crash::Power | Crash::Cold => self.another_boot()?,
        };
        let name = "bench opener (another boot id takes unshare(1) and leave to mount)";
        let mut opener = Worker::start_by(launcher, "bench-opener", name, &self.task, self.stop)?;
        let opened: Opened = opener.reply()?;
        opener.finish()?;
        self.lost = self.lost.max(self.stored.saturating_sub(opened.samples));
        // What was written behind the last receipt that was told is there too, and the opener's.
        self.stored = opened.samples + 1;
        Ok(opened)
    }

    /// This program on a machine that seems to have been started anew.
    fn another_boot(&self) -> CliResult<Command> {
        let path = self.scratch.join("boot_id");
        let id = format!("{:032x}\n", u128::from(monotonic_ns()));
        std::fs::write(&path, id).map_err(|e| CliError::file(&path, &e))?;
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", ANOTHER_BOOT]).arg(path).arg(BOOT_ID);
        command.arg(own_program()?);
        Ok(command)
    }

    fn told(self, args: &OpenArgs, opened: &[(Crash, Opened)], load: f64) -> CliResult {
        let spreads = |figure: fn(&Opened) -> f64| {
            let of = |kind| {
                let those = opened.iter().filter(|(crash, _)| *crash == kind);
                Spread::of(those.map(|(_, opened)| figure(opened)).collect())
            };
            Spreads { killed: of(Crash::Killed), power: of(Crash::Power), cold: of(Crash::Cold) }
        };
        let report = Report {
            workload: "open",
            url: self.task.url.clone(),
            payload_bytes: self.task.payload_bytes,
            count: self.stored,
            received: self.stored - self.lost,
            lost: self.lost,
            bytes: self.bytes,
            open_ms: spreads(|o| o.ms),
            cpu_ms: spreads(|o| o.cpu_ms),
            rss_mb: opened.iter().map(|(_, o)| o.rss_mb).fold(0.0, f64::max).round(),
            load,
            version: env!("CARGO_PKG_VERSION"),
            receipt: "stored",
        };
        let text = |s: Option<Spread>| s.map_or_else(String::new, |s| s.text());
        let rows = [
            ("journal", human_bytes(report.bytes as f64)),
            ("messages", human_count(report.count)),
            ("open after its writer was killed, ms", text(report.open_ms.killed)),
            ("after power loss, ms", text(report.open_ms.power)),
            ("after power loss, nothing in memory, ms", text(report.open_ms.cold)),
        ];
        drop(self.progress);
        print(&report, args.run.output.json, &rows)?;
        match report.lost {
            0 => Ok(()),
            lost => Err(CliError::Lost(format!("{lost} messages that had a receipt are lost"))),
        }
    }
}

/// Does something with each file of a folder and of those in it.
fn each_file(folder: &Path, act: &dyn Fn(&File) -> std::io::Result<()>) -> CliResult {
    let failed = |path: &Path, e: std::io::Error| CliError::file(path, &e);
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| failed(&folder, e))? {
            let path = entry.map_err(|e| failed(&folder, e))?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                File::open(&path).and_then(|file| act(&file)).map_err(|e| failed(&path, e))?;
            }
        }
    }
    Ok(())
}

fn spec(task: &OpenTask) -> CliResult<TopicSpec> {
    Ok(TopicSpec::new(TOPIC)?.qos(task.qos.clone()))
}

/// Runs a writer process: it writes until it is killed, and says how many messages have a receipt.
pub(crate) fn filler(task: &OpenTask) -> CliResult {
    let bus = Bus::builder().producer("bench-writer").connect(&task.url)?;
    let publisher = bus.topic(spec(task)?)?.publisher()?;
    let mut body = vec![7; task.payload_bytes];
    let (mut count, mut told) = (0_u64, 0);
    loop {
        body[..8].copy_from_slice(&count.to_le_bytes());
        publisher.publish(Message::new(&body).key(&[count as u8])).wait()?;
        count += 1;
        if (count - told) * task.payload_bytes as u64 >= TELL_BYTES {
            say(&count)?;
            told = count;
        }
    }
}

/// Runs an opener process.
pub(crate) fn opener(task: &OpenTask) -> CliResult {
    let (begin, cpu) = (Instant::now(), cpu_s());
    let bus = Bus::builder().producer("bench-opener").connect(&task.url)?;
    let topic = bus.topic(spec(task)?)?;
    let publisher = topic.publisher()?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    let first = samples.next_timeout(FIRST_SAMPLE_TIMEOUT)?;
    let receipt = publisher.publish(Message::new(b"open")).wait()?;
    let (ms, cpu_ms) = (begin.elapsed().as_secs_f64() * 1e3, (cpu_s() - cpu) * 1e3);
    match first {
        Some(Event::Sample(sample)) if sample.offset == 0 => {}
        other => return Err(CliError::Lost(format!("the oldest sample is gone: {other:?}"))),
    }
    let end = receipt.offset.ok_or_else(|| CliError::Failure("no offset came back".to_owned()))?;
    say(&Opened { ms, cpu_ms, rss_mb: peak_rss_mb(), samples: end })
}
