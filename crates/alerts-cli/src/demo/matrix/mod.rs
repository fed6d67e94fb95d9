//! `helio-alerts matrix`: the experiments of LSST's testbed (DMTN-028), and changes around them.
//!
//! A cell is one experiment: a bus, numbers of processes, and a volume. Its result is a line of
//! JSON, appended when it is finished, so that a run that is killed resumes with the next cell.

mod args;
mod brokers;
mod cell;
mod cells;
mod compare;
mod report;
mod results;

use std::collections::BTreeSet;
use std::path::PathBuf;

use helio_console::error::{CliError, CliResult};
use helio_console::stop::Stop;
use helio_console::story::Story;
use serde::Serialize;

pub(crate) use self::args::MatrixArgs;
use self::args::MatrixCommand;
use self::brokers::Brokers;
use self::cell::Ground;
use self::cells::{Cell, On};
use self::report::Report;
use self::results::CellResult;

/// The name of the file of results.
const RESULTS: &str = "alerts-matrix.jsonl";

/// A cell of a list.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    cell: &'a Cell,
    is_done: bool,
}

/// Runs `helio-alerts matrix`.
pub(crate) fn run(args: &MatrixArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    match (&args.command, &args.dir) {
        (Some(MatrixCommand::Compare(args)), _) => compare::run(args, url, stop),
        (None, Some(dir)) => Matrix { args, dir: dir.clone(), url, stop }.run(),
        (None, None) => Err(CliError::Usage("--dir is missing".to_owned())),
    }
}

struct Matrix<'a> {
    args: &'a MatrixArgs,
    dir: PathBuf,
    url: Option<&'a str>,
    stop: &'a Stop,
}

impl Matrix<'_> {
    fn run(&self) -> CliResult {
        std::fs::create_dir_all(&self.dir).map_err(|e| CliError::file(&self.dir, &e))?;
        let path = self.args.out.clone().unwrap_or_else(|| self.dir.join(RESULTS));
        let chosen = self.chosen()?;
        let mut results = results::read(&path)?;
        let done: BTreeSet<&str> = results
            .iter()
            .filter(|one| self.is_same(one, &chosen))
            .map(|one| one.cell.name.as_str())
            .collect();
        if self.args.list {
            return self.list(&chosen, &done);
        }
        let left: Vec<&Cell> =
            chosen.iter().filter(|cell| !done.contains(cell.name.as_str())).collect();
        let mut story = Story::of(&self.args.output);
        let (skipped, all) = (chosen.len() - left.len(), chosen.len());
        story
            .print(format!("{all} cells, {skipped} of them have results in {}", path.display()))?;
        let mut failed = Vec::new();
        for (number, cell) in (skipped + 1..).zip(left) {
            match self.cell(cell, &mut story) {
                Ok(result) => {
                    results::append(&path, &result)?;
                    story.print(format!("{number} of {all}: {}", report::sentence(&result)))?;
                    results.push(result);
                }
                Err(error @ (CliError::Failure(_) | CliError::Outage(_) | CliError::Worker(_))) => {
                    story.print(format!("{number} of {all}: {} failed: {error}", cell.name))?;
                    failed.push(cell.name.as_str());
                }
                Err(error) => return Err(error),
            }
        }
        let (mut out, _) = story.close();
        results.retain(|one| self.is_same(one, &chosen));
        let report = Report::of(&chosen, results);
        if self.args.output.json {
            out.json(&report)?;
        } else {
            report.lines().iter().try_for_each(|line| out.line(line))?;
        }
        out.flush()?;
        if !failed.is_empty() {
            let text = format!("{} failed; run it again, results are kept", failed.join(", "));
            return Err(CliError::Failure(text));
        }
        report.verdict()
    }

    /// Runs a cell, on brokers of its own if it needs some and no bus is given.
    fn cell(&self, cell: &Cell, story: &mut Story) -> CliResult<CellResult> {
        let brokers = match (&cell.on, self.url, &self.args.brokers) {
            (On::Kafka { nodes, tls, .. }, None, Some(command)) => {
                story.doing(|| format!("{}: brokers start", cell.name));
                Some(Brokers::start(command, &self.dir, *nodes, *tls)?)
            }
            _ => None,
        };
        let url = match (&cell.on, &brokers, self.url) {
            (On::Kafka { options, .. }, Some(brokers), _) => Some(brokers.url(options)),
            (On::Kafka { options, .. }, None, Some(url)) if !options.is_empty() => {
                Some(format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' }))
            }
            (_, _, url) => url.map(str::to_owned),
        };
        let processes = brokers.as_ref().map(Brokers::processes).unwrap_or_default();
        let ground = Ground {
            dir: &self.dir,
            url: url.as_deref(),
            brokers: &processes,
            smoke: self.args.smoke,
        };
        cell::run(cell, ground, story, self.stop)
    }

    /// The cells that can run here and are asked for.
    fn chosen(&self) -> CliResult<Vec<Cell>> {
        let texts = &self.args.cells;
        // A whole name is that cell's alone, though others' contain it.
        let all = cells::all();
        let is_of = |cell: &Cell, text: &String| {
            let is_name = all.iter().any(|one| one.name == *text);
            if is_name { cell.name == *text } else { cell.name.contains(text) }
        };
        let is_asked = |cell: &Cell| texts.is_empty() || texts.iter().any(|text| is_of(cell, text));
        let sized = |cell: Cell| {
            let cell = if self.args.smoke { cell.smoke() } else { cell };
            Cell { visits: self.args.visits.unwrap_or(cell.visits), ..cell }
        };
        let asked = all.iter().filter(|cell| self.can_run(cell) && is_asked(cell));
        let chosen: Vec<Cell> = asked.cloned().map(sized).collect();
        if chosen.is_empty() {
            let text = "no cell that can run here has such a name; --list has them all";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(chosen)
    }

    /// A given bus stands for the cells of its kind.
    fn can_run(&self, cell: &Cell) -> bool {
        match (&cell.on, self.url) {
            (On::Journal, None) => true,
            (On::Journal, Some(url)) => url.starts_with("journal:"),
            (On::Kafka { nodes: 1, tls: false, .. }, Some(url)) => url.starts_with("kafka:"),
            (On::Kafka { .. }, None) => self.args.brokers.is_some(),
            (On::Kafka { .. }, Some(_)) => false,
        }
    }

    /// Whether a result is one of a chosen cell, as it would run now.
    fn is_same(&self, result: &CellResult, chosen: &[Cell]) -> bool {
        result.smoke == self.args.smoke && chosen.contains(&result.cell)
    }

    fn list(&self, chosen: &[Cell], done: &BTreeSet<&str>) -> CliResult {
        let mut out = helio_console::out::Out::new();
        for cell in chosen {
            let is_done = done.contains(cell.name.as_str());
            if self.args.output.json {
                out.json(&Listed { cell, is_done })?;
            } else {
                out.line(&format!("{} {}", if is_done { "done" } else { "    " }, cell.name))?;
            }
        }
        out.flush()
    }
}
