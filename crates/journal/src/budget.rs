//! The budget of a whole journal, a share of its disk, which shortens default retention.
//!
//! Constraints: only segments of topics whose limits are a default
//! ([`TopicConfig::within_budget`]) are dropped, the oldest of all topics first, and never a
//! partition's last one. Chosen limits are kept: what cannot fit is refused at creation.
//!
//! Operation: one process looks every [`LOOK_INTERVAL`] of the journal's running time. While the
//! whole disk holds less than the budget, that is one system call. Otherwise the files are summed;
//! if they exceed the budget, the closed segments are sorted by the time at which they were closed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use crate::description::{self, Limits};
use crate::env::Env;
use crate::error::IoContext;
use crate::map::Mode;
use crate::partition::Partition;
use crate::segment::{self, Segment, SegmentHold};
use crate::{Budget, JournalError, TopicConfig};

/// How often the journal's size is compared with its budget.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// The word in `journal.hj` of the running time of the last look.
const LOOKED: usize = 128;
/// The part of the budget that stays free after topics were shortened, so that it is not at once
/// exceeded again.
const FREE_SHARE: u64 = 20;

/// A closed segment of a topic with default retention.
struct Closed {
    at: u64,
    partition: PathBuf,
    seq: u64,
    bytes: u64,
}

/// Returns the journal's budget in bytes.
pub(crate) fn bytes(env: &Env) -> Result<u64, JournalError> {
    match env.options.budget {
        Budget::Bytes(bytes) => Ok(bytes),
        Budget::Percent(percent) => {
            let disk = rustix::fs::statvfs(&env.dir).at("look at", &env.dir)?;
            let all = disk.f_blocks.saturating_mul(disk.f_frsize);
            Ok(all / 100 * u64::from(percent))
        }
    }
}

/// Refuses limits of bytes that were chosen and cannot fit.
pub(crate) fn check(env: &Env, config: &TopicConfig) -> Result<(), JournalError> {
    let Some(limit) = config.retention_bytes.filter(|_| !config.within_budget) else {
        return Ok(());
    };
    let (wanted, budget) = (limit.saturating_mul(config.partitions.into()), bytes(env)?);
    if wanted <= budget { Ok(()) } else { Err(JournalError::OverBudget { wanted, budget }) }
}

/// Shortens topics with default retention if the journal exceeds its budget and it is this
/// process's turn to look. `open` are the partitions that this process has open.
pub(crate) fn keep(env: &Arc<Env>, open: &[Arc<Partition>]) -> Result<(), JournalError> {
    let (looked, now) = (env.doorbells.map.u64(LOOKED), env.running_time());
    let last = looked.load(Acquire);
    let due = now < last || u128::from(now - last) >= LOOK_INTERVAL.as_nanos();
    if !due || looked.compare_exchange(last, now, AcqRel, Acquire).is_err() {
        return Ok(());
    }
    let budget = bytes(env)?;
    let disk = rustix::fs::statvfs(&env.dir).at("look at", &env.dir)?;
    let used = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize);
    if used <= budget {
        return Ok(());
    }
    let (total, partitions) = measure(&env.dir.join("topics"))?;
    if total > budget {
        let excess = total - (budget - budget / FREE_SHARE);
        shorten(env, open, closed_segments(&partitions), excess)?;
    }
    Ok(())
}

/// Returns the room that the topics' files take, and the partitions' folders.
fn measure(topics: &Path) -> Result<(u64, Vec<PathBuf>), JournalError> {
    let (mut total, mut partitions) = (0, Vec::new());
    let mut folders = vec![topics.to_owned()];
    while let Some(folder) = folders.pop() {
        // Files come and go meanwhile.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.at("list", &folder)?;
            let Ok(data) = entry.metadata() else { continue };
            match data.is_dir() {
                true => folders.push(entry.path()),
                false => total += data.blocks() * 512,
            }
            if entry.file_name() == "control" {
                partitions.push(folder.clone());
            }
        }
    }
    Ok((total, partitions))
}

/// Returns the closed segments of the topics with default retention.
fn closed_segments(partitions: &[PathBuf]) -> Vec<Closed> {
    let mut found = Vec::new();
    for partition in partitions {
        let topic = partition.parent().map(description::read);
        let Some(Ok(Some(config))) = topic else { continue };
        if config.within_budget {
            found.extend(closed_of(partition));
        }
    }
    found.sort_by_key(|segment| segment.at);
    found
}

fn closed_of(partition: &Path) -> Vec<Closed> {
    let closed = |seq: u64| {
        let opened = Segment::open(partition, seq, Mode::Read, SegmentHold::Loose);
        let seal = opened.ok().flatten()?.sealed().ok().flatten()?;
        let data = fs::metadata(segment::path(partition, seq)).ok()?;
        let (partition, bytes) = (partition.to_owned(), data.blocks() * 512);
        Some(Closed { at: seal.closed, partition, seq, bytes })
    };
    let mut files = segment::files(partition).unwrap_or_default();
    files.pop();
    files.into_iter().filter_map(closed).collect()
}

/// Drops segments in order until so many bytes are free.
fn shorten(
    env: &Arc<Env>,
    open: &[Arc<Partition>],
    segments: Vec<Closed>,
    excess: u64,
) -> Result<(), JournalError> {
    let mut last = std::collections::BTreeMap::new();
    let mut freed = 0;
    for segment in segments {
        if freed >= excess {
            break;
        }
        freed += segment.bytes;
        last.insert(segment.partition, segment.seq);
    }
    for (folder, seq) in last {
        let known = open.iter().find(|partition| partition.dir == folder);
        let partition = match known {
            Some(partition) => Arc::clone(partition),
            None => Arc::new(opened(env, &folder)?),
        };
        partition.shorten(seq)?;
    }
    Ok(())
}

/// Opens a partition that no handle of this process refers to.
fn opened(env: &Arc<Env>, folder: &Path) -> Result<Partition, JournalError> {
    let topic = folder.parent().unwrap_or(folder);
    let config = description::read(topic)?.ok_or_else(|| JournalError::gone(topic))?;
    let limits = Arc::new(Limits::new(topic, &config));
    Partition::open(env, folder.to_owned(), &Arc::new(config), &limits)
}
