//! Results of cells, as lines of JSON.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use helio_console::error::{CliError, CliResult};
use serde::{Deserialize, Serialize};

use super::cells::Cell;

/// Mean, standard deviation, least and greatest of some numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) sd: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// That of some numbers; zeros of none.
    pub(super) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let all: Vec<f64> = numbers.into_iter().collect();
        if all.is_empty() {
            return Self::default();
        }
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
        Self {
            mean,
            sd: (squares / (count - 1.0).max(1.0)).sqrt(),
            min: all.iter().copied().fold(f64::INFINITY, f64::min),
            max: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A visit, seconds from shutter close.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Visit {
    pub(super) visit: i64,
    /// When the shutter closed, after the first visit's.
    #[serde(default)]
    pub(super) shutter_s: f64,
    pub(super) alerts: u64,
    pub(super) bytes: u64,
    /// Alerts and manifests that were not accepted.
    pub(super) failed: u64,
    /// Until the last manifest was accepted.
    pub(super) published_s: f64,
    /// Until the last group had read and verified all.
    pub(super) read_s: f64,
    /// From the last manifest to the last read.
    pub(super) tail_s: f64,
    /// Processor seconds of all producers from their order to their manifests: without the making
    /// of packets.
    #[serde(default)]
    pub(super) publish_cpu_s: f64,
}

/// What the processes of a role used, each of them a number of each spread.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RoleUse {
    pub(super) processes: usize,
    pub(super) cpu_s: Spread,
    /// The most anonymous memory.
    pub(super) anon_mb: Spread,
    /// Megabytes from disks, and megabytes of files that were changed.
    pub(super) read_mb: Spread,
    pub(super) written_mb: Spread,
}

/// A finished cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CellResult {
    pub(super) cell: Cell,
    pub(super) smoke: bool,
    /// The program's version, seconds since 1970 at the end, and the load before and after.
    pub(super) version: String,
    pub(super) ended_s: u64,
    pub(super) load: [f64; 2],
    pub(super) seconds: f64,
    pub(super) visits: Vec<Visit>,
    pub(super) published_s: Spread,
    pub(super) read_s: Spread,
    pub(super) tail_s: Spread,
    /// Visits whose stored packets equal the manifests.
    pub(super) stored_equal: usize,
    /// Audits of groups, and those that are equal.
    pub(super) group_audits: usize,
    pub(super) groups_equal: usize,
    /// Samples that readers never received, and packets that they dropped.
    pub(super) lost: u64,
    pub(super) dropped: u64,
    /// Bytes of packets and stamps that groups and witness read.
    pub(super) read_bytes: u64,
    /// Results that users received.
    pub(super) results: u64,
    pub(super) processes: BTreeMap<String, RoleUse>,
    /// Megabytes through the loopback interface while the cell ran.
    pub(super) loopback_mb: f64,
    /// What was used over time.
    pub(super) samples: serde_json::Value,
}

impl CellResult {
    /// A result in which nothing was measured.
    pub(super) fn empty(cell: Cell) -> Self {
        Self {
            cell,
            smoke: false,
            version: String::new(),
            ended_s: 0,
            load: [0.0; 2],
            seconds: 0.0,
            visits: Vec::new(),
            published_s: Spread::default(),
            read_s: Spread::default(),
            tail_s: Spread::default(),
            stored_equal: 0,
            group_audits: 0,
            groups_equal: 0,
            lost: 0,
            dropped: 0,
            read_bytes: 0,
            results: 0,
            processes: BTreeMap::new(),
            loopback_mb: 0.0,
            samples: serde_json::Value::Null,
        }
    }

    /// Processor seconds of all processes.
    pub(super) fn cpu_s(&self) -> f64 {
        self.processes.values().map(|role| role.cpu_s.mean * role.processes as f64).sum()
    }

    /// Whether everything was published, read and verified.
    pub(super) fn is_whole(&self) -> bool {
        let expected = u64::from(self.cell.alerts);
        self.visits.len() == usize::from(self.cell.visits)
            && self.visits.iter().all(|one| (one.alerts, one.failed) == (expected, 0))
            && self.stored_equal == self.visits.len()
            && self.groups_equal == self.group_audits
            && self.lost + self.dropped == 0
    }
}

/// The results in a file; none if it does not exist. The last line of a run that was killed may be
/// incomplete: it is no result.
pub(super) fn read(path: &Path) -> CliResult<Vec<CellResult>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CliError::file(path, &error)),
    };
    let mut results = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).split(b'\n')) {
        let line = line.map_err(|e| CliError::file(path, &e))?;
        match serde_json::from_slice(&line) {
            Ok(result) => results.push(result),
            Err(error) if error.is_eof() => {}
            Err(error) => {
                let path = path.display();
                let text = format!("{path}, line {number} is no result of a cell: {error}");
                return Err(CliError::Failure(text));
            }
        }
    }
    Ok(results)
}

/// Appends a result, on the disk when this returns. An incomplete line before it is ended.
pub(super) fn append(path: &Path, result: &CellResult) -> CliResult {
    let at = |e: std::io::Error| CliError::file(path, &e);
    let old = std::fs::read(path).unwrap_or_default();
    let mut line = Vec::new();
    if old.last().is_some_and(|byte| *byte != b'\n') {
        line.push(b'\n');
    }
    serde_json::to_writer(&mut line, result).map_err(|e| at(e.into()))?;
    line.push(b'\n');
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(at)?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_sample_standard_deviation() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((spread.sd - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((spread.mean, spread.min, spread.max), (5.0, 2.0, 9.0));
        assert_eq!(Spread::of([3.0]), Spread { mean: 3.0, sd: 0.0, min: 3.0, max: 3.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}
