//! `helio log archive`, `search` and `export`: log records in files.

mod export;
mod keep;
mod search;

use helio_bus::{Clock as _, SystemClock, Tai};
use helio_log_archive::{ArchiveError, Search, SearchItem};
use helio_logging::Selector;

use crate::args::archive::{WantedArgs, When};
use crate::error::{CliError, CliResult};
use crate::service_error::{ServiceError, ServiceResult};

pub(crate) use export::run as export;
pub(crate) use keep::run as archive;
pub(crate) use search::run as search;

impl ServiceError for ArchiveError {
    fn into_cli(self) -> CliError {
        let text = self.to_string();
        match self {
            ArchiveError::Reader(error) => error.into_cli(),
            ArchiveError::Missing(_) => CliError::NotFound(text),
            ArchiveError::Locked(_) | ArchiveError::OtherBus(_) => CliError::Refused(text),
            ArchiveError::File { .. } | ArchiveError::Format { .. } => CliError::Failure(text),
        }
    }
}

/// Opens the search, and reports records that retention has removed.
fn open(wanted: &WantedArgs) -> CliResult<Search> {
    let search =
        Search::open(&wanted.folder, selector(wanted, SystemClock::new().now())?).or_cli()?;
    for (lane, removed) in search.removed() {
        eprintln!(
            "helio: {lane}: retention removed {} records, the latest of {}; keep more",
            removed.records, removed.until
        );
    }
    Ok(search)
}

fn selector(wanted: &WantedArgs, now: Tai) -> CliResult<Selector> {
    let level = format!("level >= {}", wanted.level.number());
    let bound = |sign: &str, when: Option<When>| match when {
        None => String::new(),
        Some(When::At(time)) => format!("time {sign} {time}"),
        Some(When::Ago(ago)) => format!("time {sign} -{}ns", ago.as_nanos()),
    };
    let bounds = [level, bound(">=", wanted.from), bound("<", wanted.to)];
    super::selector(&wanted.predicate, &bounds, now)
}

/// Reports gaps and damage, and counts unreadable records.
fn tell(found: &SearchItem, unread: &mut u64) {
    match found {
        SearchItem::Record(_) => {}
        SearchItem::Gap(_, gap) => eprintln!("helio: {}", gap.text),
        SearchItem::Malformed { producer, sequence } => {
            *unread += 1;
            eprintln!("helio: record {sequence} of {producer} has a malformed body");
        }
        SearchItem::Damage(damage) => {
            *unread += u64::from(damage.records);
            let (path, at) = (damage.path.display(), damage.offset);
            eprintln!("helio: {path}, at {at}: {}, {} records", damage.what, damage.records);
        }
    }
}

fn whole(unread: u64) -> CliResult {
    match unread {
        0 => Ok(()),
        some => Err(CliError::Lost(format!(
            "{some} records of the archive could not be read (see above); check the disk"
        ))),
    }
}
