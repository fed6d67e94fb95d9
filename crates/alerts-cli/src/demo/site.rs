//! The bus of a demo: a temporary journal, or a stream of its own on a given bus.

use std::path::{Path, PathBuf};

use helio_bus::{Bus, BusUrl};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::run_bus::RunBus;
use helio_console::units::human_bytes;

use super::args::{DemoArgs, Sizes};

/// The bytes of an alert on the disk, with its history and what the log adds.
const ALERT_BYTES: u64 = 160_000;
/// The most results of a user and visit.
const MAX_RESULTS: u64 = 20;
/// The bytes that must be free beside them.
const SPARE_BYTES: u64 = 2_000_000_000;

/// Where a stream is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The name of the temporary folder, if there is one.
    pub(super) what: &'a str,
    /// The folder for the temporary one.
    pub(super) dir: Option<&'a Path>,
    /// The bus; a temporary journal without one.
    pub(super) url: Option<&'a str>,
    /// The stream.
    pub(super) topic: &'a str,
}

impl<'a> Place<'a> {
    /// That of a demo.
    pub(super) fn of(args: &'a DemoArgs, url: Option<&'a str>) -> Self {
        let (dir, topic) = (args.dir.as_deref(), &args.topic[..]);
        Self { what: "helio-alerts-demo", dir, url, topic }
    }
}

/// The bus of a demo. Dropping it removes the stream, or the temporary folder.
pub(super) struct Site {
    bus: Bus,
    topic: String,
    is_given: bool,
    needed: u64,
    /// Dropped last.
    run: RunBus,
}

impl Site {
    /// Opens it, if the disk has room for the visits.
    pub(super) fn open(place: Place<'_>, sizes: &Sizes) -> CliResult<Self> {
        let needed = needed_bytes(sizes);
        let Place { what, dir, url, topic } = place;
        let folder = match url {
            None => Some(dir.map_or_else(std::env::temp_dir, Path::to_owned)),
            Some(url) => journal_folder(url)?,
        };
        if let Some(folder) = &folder {
            check_disk(folder, needed)?;
        }
        let run = RunBus::fresh(what, dir, url)?;
        run.refuse_memory(u32::from(sizes.producers))?;
        let bus = open::connect(Some(run.url()), Some("demo"))?;
        let (topic, is_given) = (topic.to_owned(), url.is_some());
        if bus.topics()?.iter().any(|name| is_of(name.as_str(), &topic)) {
            let text = format!("the stream {topic} exists; name another one with --topic");
            return Err(CliError::Refused(text));
        }
        Ok(Self { bus, topic, is_given, needed, run })
    }

    pub(super) fn url(&self) -> &str {
        self.run.url()
    }

    pub(super) fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Where it is, for people.
    pub(super) fn sentence(&self, seed: u64) -> String {
        let needed = human_bytes(self.needed as f64);
        format!("the stream {} on {}, seed {seed}; {needed} at most", self.topic, self.url())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.is_given {
            return;
        }
        // A file that cannot be removed stays: the next demo names it.
        for name in self.bus.topics().unwrap_or_default() {
            if is_of(name.as_str(), &self.topic)
                && let Err(error) = self.bus.remove_topic(&name)
            {
                helio_bus::notify(&format!("the topic {name} stays: {error}"));
            }
        }
    }
}

/// Whether a topic belongs to the stream.
fn is_of(name: &str, stream: &str) -> bool {
    name.strip_prefix(stream).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn needed_bytes(sizes: &Sizes) -> u64 {
    let a_visit = u64::from(sizes.alerts) + u64::from(sizes.users) * MAX_RESULTS;
    u64::from(sizes.visits) * a_visit * ALERT_BYTES + SPARE_BYTES
}

/// The folder of a journal; of others only their operators know the disks.
fn journal_folder(url: &str) -> CliResult<Option<PathBuf>> {
    let url: BusUrl = url.parse()?;
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    Ok((url.scheme() == "journal").then(|| PathBuf::from(path)))
}

fn check_disk(folder: &Path, needed: u64) -> CliResult {
    let existing = folder.ancestors().find(|one| one.exists()).unwrap_or(Path::new("."));
    let at = |error: rustix::io::Errno| CliError::file(existing, &error.into());
    let system = rustix::fs::statvfs(existing).map_err(at)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let [free, needed] = [free, needed].map(|bytes| human_bytes(bytes as f64));
    Err(CliError::Refused(format!(
        "{} has {free} free, and the visits take {needed}; take fewer --visits or --alerts, or \
         another folder with --dir",
        folder.display()
    )))
}
