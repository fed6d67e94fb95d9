//! The report of a run: a row for each cell, and what must hold.

use helio_console::error::{CliError, CliResult};
use helio_console::out::table;
use helio_console::requirement::Requirement;
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use super::cells::{Cell, Pace};
use super::results::CellResult;

/// By how much lag may grow from visit to visit, of the time from one visit to the next, and count
/// as steady.
const STEADY: f64 = 0.05;

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    cells: Vec<CellResult>,
    requirements: Vec<Requirement>,
}

/// What was measured of a cell, in a sentence.
pub(super) fn sentence(result: &CellResult) -> String {
    let CellResult { cell, published_s, tail_s, .. } = result;
    format!(
        "{}: published in {:.2} s, read {:.2} s later; {:.1} s of processors, load {:.1}",
        cell.name,
        published_s.mean,
        tail_s.mean,
        result.cpu_s(),
        result.load[1]
    )
}

impl Report {
    pub(super) fn of(chosen: &[Cell], cells: Vec<CellResult>) -> Self {
        let requirements = requirements(chosen, &cells);
        Self { cells, requirements }
    }

    /// An error if a requirement that must hold is missed.
    pub(super) fn verdict(&self) -> CliResult {
        let wrong = Requirement::wrong(&self.requirements);
        if wrong.is_empty() { Ok(()) } else { Err(CliError::Lost(wrong.join("; "))) }
    }

    /// The tables for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let head = [
            "cell",
            "alerts",
            "visits",
            "bytes",
            "published s",
            "sd",
            "tail s",
            "sd",
            "CPU s",
            "load",
            "whole",
        ];
        let mut lines = vec![String::new()];
        lines.extend(table(&head, &self.cells.iter().map(row).collect::<Vec<_>>()));
        lines.push(String::new());
        lines.extend(Requirement::table(&self.requirements));
        lines
    }
}

fn row(result: &CellResult) -> Vec<String> {
    let bytes: u64 = result.visits.iter().map(|visit| visit.bytes).sum();
    let seconds = |number: f64| format!("{number:.2}");
    vec![
        result.cell.name.clone(),
        human_count(result.cell.alerts.into()),
        result.visits.len().to_string(),
        human_bytes(bytes as f64),
        seconds(result.published_s.mean),
        seconds(result.published_s.sd),
        seconds(result.tail_s.mean),
        seconds(result.tail_s.sd),
        format!("{:.1}", result.cpu_s()),
        format!("{:.1}", result.load[1]),
        if result.is_whole() { "yes" } else { "NO" }.to_owned(),
    ]
}

fn requirements(chosen: &[Cell], cells: &[CellResult]) -> Vec<Requirement> {
    let of = |name, must, bad: Vec<String>, good: String| {
        let met = bad.is_empty();
        Requirement { name, must, met, measured: if met { good } else { bad.join(", ") } }
    };
    let bad = |is_good: fn(&CellResult) -> bool| {
        let bad = cells.iter().filter(move |one| !is_good(one));
        bad.map(|one| one.cell.name.clone()).collect::<Vec<_>>()
    };
    let missing = chosen.iter().filter(|cell| cells.iter().all(|one| one.cell != **cell));
    let alerts: u64 = cells.iter().flat_map(|one| &one.visits).map(|visit| visit.alerts).sum();
    let audits: usize = cells.iter().map(|one| one.group_audits).sum();
    let visits: usize = cells.iter().map(|one| one.visits.len()).sum();
    let read: u64 = cells.iter().map(|one| one.read_bytes).sum();
    let measured = |one: &CellResult| {
        // A cell of one group has no group beside the witness.
        let roles = ["producers", "groups", "witness"];
        let is_used = |role: &str| one.processes.get(role).is_some_and(|used| used.cpu_s.max > 0.0);
        // In miniature a process may use less than the kernel's unit of 10 ms.
        let is_there = |role: &&str| *role != "groups" || one.group_audits > 0;
        one.smoke || roles.into_iter().filter(is_there).all(is_used)
    };
    let mut all = vec![
        of(
            "every cell has a result",
            true,
            missing.map(|cell| cell.name.clone()).collect(),
            format!("{} of {}", cells.len(), chosen.len()),
        ),
        of(
            "every alert is published",
            true,
            bad(|one| {
                let all = u64::from(one.cell.alerts);
                one.visits.iter().all(|visit| (visit.alerts, visit.failed) == (all, 0))
            }),
            human_count(alerts),
        ),
        of(
            "the stored packets equal the manifests",
            true,
            bad(|one| one.stored_equal == one.visits.len()),
            format!("{visits} visits"),
        ),
        of(
            "every group has verified every payload",
            true,
            bad(|one| one.groups_equal == one.group_audits),
            format!("{audits} audits are equal, {} read", human_bytes(read as f64)),
        ),
        of(
            "nothing is lost or dropped",
            true,
            bad(|one| one.lost + one.dropped == 0),
            format!("0 of {}", human_count(alerts)),
        ),
        of(
            "what processes use is measured",
            true,
            cells.iter().filter(|one| !measured(one)).map(|one| one.cell.name.clone()).collect(),
            format!("{} processes", processes(cells)),
        ),
    ];
    all.extend(of_lag(cells));
    all
}

/// Lag over visits: it depends on the machine and its load.
fn of_lag(cells: &[CellResult]) -> [Requirement; 2] {
    let of = |name, bad: Vec<String>, good: String| {
        let met = bad.is_empty();
        let measured = if met { good } else { bad.join(", ") };
        Requirement { name, must: false, met, measured }
    };
    let bad = |is_good: fn(&CellResult) -> bool| {
        let bad = cells.iter().filter(move |one| !is_good(one));
        bad.map(|one| format!("{} ({:+.2})", one.cell.name, lag_growth(one))).collect::<Vec<_>>()
    };
    [
        of(
            "readers keep up with visits slower than they read",
            bad(|one| !is_paced(one, |times| times > 1.0) || lag_growth(one) < STEADY),
            growth(cells, |times| times > 1.0),
        ),
        of(
            "readers fall behind visits faster than they read",
            bad(|one| !is_paced(one, |times| times < 1.0) || lag_growth(one) >= STEADY),
            growth(cells, |times| times < 1.0),
        ),
    ]
}

fn processes(cells: &[CellResult]) -> usize {
    cells.iter().flat_map(|one| one.processes.values()).map(|role| role.processes).sum()
}

/// Whether a cell's visits come at a pace of their own.
fn is_paced(result: &CellResult, is_so: fn(f64) -> bool) -> bool {
    matches!(result.cell.pace, Pace::OfRead(times) if is_so(times))
}

/// By how much lag grows from visit to visit, as a part of the time from one visit to the next: the
/// slope of a line of least squares through the visits at that pace.
fn lag_growth(result: &CellResult) -> f64 {
    let Pace::OfRead(times) = result.cell.pace else { return 0.0 };
    let Some((first, others)) = result.visits.split_at_checked(2) else { return 0.0 };
    let count = others.len() as f64;
    let middle = (count - 1.0) * 0.5;
    let (mut products, mut squares) = (0.0, 0.0);
    for (number, visit) in (0..).map(f64::from).zip(others) {
        products += (number - middle) * visit.tail_s;
        squares += (number - middle).powi(2);
    }
    products / squares.max(1e-9) / (first[1].read_s * times).max(1e-9)
}

fn growth(cells: &[CellResult], is_so: fn(f64) -> bool) -> String {
    let of = |one: &CellResult| {
        format!("{:+.0} % of the cadence a visit ({})", lag_growth(one) * 100.0, one.cell.name)
    };
    let all: Vec<String> = cells.iter().filter(|one| is_paced(one, is_so)).map(of).collect();
    if all.is_empty() { "no such cell".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{self, On};
    use super::super::results::Visit;
    use super::*;

    fn result(tails_s: &[f64]) -> CellResult {
        let visit = |tail_s: &f64| Visit { tail_s: *tail_s, read_s: 4.0, ..Visit::default() };
        let cell = Cell { pace: Pace::OfRead(0.5), ..cells::all().swap_remove(0) };
        CellResult { visits: tails_s.iter().map(visit).collect(), ..CellResult::empty(cell) }
    }

    #[test]
    fn lag_that_grows_is_told_from_steady_lag() {
        let grows = result(&[9.0, 1.0, 1.0, 2.0, 3.0, 4.0]);
        assert!((lag_growth(&grows) - 0.5).abs() < 1e-9);
        assert!(lag_growth(&result(&[9.0, 1.0, 3.0, 3.0, 3.0])).abs() < 1e-9);
    }

    #[test]
    fn what_is_missing_or_lost_is_named() {
        let cells = &cells::all()[..2];
        let whole = |name| {
            let result = CellResult::empty(cells[0].clone());
            let all = requirements(cells, &[result]);
            all.into_iter().find(|one| one.name == name).unwrap()
        };
        let missing = whole("every cell has a result");
        assert!(!missing.met && missing.measured == cells[1].name, "{missing:?}");
        assert!(whole("nothing is lost or dropped").met);
        let result = CellResult { lost: 1, ..CellResult::empty(cells[0].clone()) };
        let report = Report::of(&cells[..1], vec![result]);
        let error = report.verdict().unwrap_err().to_string();
        assert!(error.contains(&cells[0].name), "{error}");
    }

    #[test]
    fn brokers_options_are_one_change_each() {
        let all = cells::all();
        let with =
            |cell: &&Cell| matches!(&cell.on, On::Kafka { options, .. } if !options.is_empty());
        assert!(all.iter().filter(with).count() >= 10);
    }
}
