//! `helio journal`: repairs a journal.

use helio_bus::BusUrl;
use helio_journal::{Damage, DamagedFiles, Journal, JournalError, JournalOptions, PidNamespaces};
use serde::Serialize;

use crate::args::RepairArgs;
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;

#[derive(Serialize)]
struct Line {
    topic: String,
    partition: u32,
    missing: u64,
    missing_from: u64,
    files: Vec<String>,
}

impl Line {
    fn of(damage: Damage) -> Self {
        let files = damage.files.iter().map(|path| path.display().to_string()).collect();
        let Damage { partition, missing, missing_from, .. } = damage;
        Self { topic: damage.topic.to_string(), partition, missing, missing_from, files }
    }

    fn text(&self, discarded: bool) -> Vec<String> {
        let Self { topic, partition, missing, missing_from, files } = self;
        let samples = format!(
            "{topic}, partition {partition}: {missing} samples are missing from offset \
             {missing_from} on"
        );
        let verb = if discarded { "discarded" } else { "kept" };
        let files = files.iter().map(|file| format!("  {verb} {file}"));
        std::iter::once(samples).chain(files).collect()
    }
}

/// Runs `helio journal repair`.
pub(crate) fn repair(args: &RepairArgs, url: Option<&str>) -> CliResult {
    let url: BusUrl = open::url(url)?.parse()?;
    if url.scheme() != "journal" {
        return Err(CliError::Usage(format!("{url} is no journal; give --url journal:FOLDER")));
    }
    let folder = url.rest().strip_prefix("//").unwrap_or(url.rest());
    if open::empty_folder(&url.to_string())?.is_some() {
        return Err(CliError::NotFound(format!("no journal in {folder}; check the path")));
    }
    let failed = |e: JournalError| CliError::Failure(e.to_string());
    let mut options = JournalOptions::default();
    if url.option("pid_namespaces") == Some("any") {
        options.pid_namespaces = PidNamespaces::Any;
    }
    let journal = Journal::open(folder.as_ref(), options).map_err(failed)?;
    let files = if args.discard { DamagedFiles::Discard } else { DamagedFiles::Keep };
    let damage = journal.repair(files).map_err(failed)?;
    let missing: u64 = damage.iter().map(|damage| damage.missing).sum();
    let mut out = Out::new();
    for line in damage.into_iter().map(Line::of) {
        match args.output.json {
            true => out.json(&line)?,
            false => line.text(args.discard).iter().try_for_each(|text| out.line(text))?,
        }
    }
    out.flush()?;
    if missing > 0 && !args.discard {
        return Err(CliError::Lost(format!(
            "{missing} samples are missing; restore a copy of the files, or give --discard"
        )));
    }
    Ok(())
}
