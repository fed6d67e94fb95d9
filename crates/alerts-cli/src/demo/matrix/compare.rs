//! `helio-alerts matrix compare`: cells by two programs in turn.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use helio_console::clock::load;
use helio_console::error::{CliError, CliResult};
use helio_console::out::{Out, Progress, table};
use helio_console::stop::Stop;
use serde::{Deserialize, Serialize};

use super::args::CompareArgs;
use super::results::CellResult;

/// The figures that are compared; of each, less is better.
const FIGURES: [&str; 3] = ["published s", "read s", "CPU s"];

/// What a program reports.
#[derive(Debug, Deserialize)]
struct Told {
    cells: Vec<CellResult>,
}

/// A figure of a cell by both programs.
#[derive(Debug, Default, Serialize)]
struct Compared {
    cell: String,
    figure: &'static str,
    /// Those of each pair.
    before: Vec<f64>,
    after: Vec<f64>,
    /// The median over pairs of B's to A's.
    ratio: f64,
    /// Whether that is above the limit.
    is_slower: bool,
}

/// The report.
#[derive(Debug, Serialize)]
struct Comparison {
    compared: Vec<Compared>,
    limit: f64,
    load: [f64; 2],
}

/// Runs `helio-alerts matrix compare`.
pub(super) fn run(args: &CompareArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let (before, progress) = (load(), &mut Progress::new());
    std::fs::create_dir_all(&args.dir).map_err(|e| CliError::file(&args.dir, &e))?;
    let mut figures: BTreeMap<(String, usize), [Vec<f64>; 2]> = BTreeMap::new();
    for pair in 1..=args.pairs {
        for (of, program) in [&args.before, &args.after].into_iter().enumerate() {
            stop.check()?;
            let name = ["A", "B"][of];
            progress.show(|| format!("pair {pair} of {}: {name}", args.pairs));
            for result in cells(args, program, url)? {
                let all = [result.published_s.mean, result.read_s.mean, result.cpu_s()];
                for (figure, value) in all.into_iter().enumerate() {
                    let key = (result.cell.name.clone(), figure);
                    figures.entry(key).or_default()[of].push(value);
                }
            }
        }
    }
    progress.clear();
    let limit = 1.0 + f64::from(args.limit) / 100.0;
    let compared = figures.into_iter().map(|((cell, figure), [before, after])| {
        compared(cell, FIGURES[figure], before, after, limit)
    });
    let comparison = Comparison { compared: compared.collect(), limit, load: [before, load()] };
    comparison.print(args.output.json)?;
    comparison.verdict()
}

/// Runs the cells by a program.
fn cells(args: &CompareArgs, program: &Path, url: Option<&str>) -> CliResult<Vec<CellResult>> {
    let failed = |cause: &dyn std::fmt::Display| {
        CliError::Failure(format!("{} matrix: {cause}", program.display()))
    };
    let out = args.dir.join(format!("helio-alerts-compare.{}.jsonl", std::process::id()));
    let mut command = Command::new(program);
    command.args(["matrix", "--json", "--visits", &args.visits.to_string(), "--dir"]);
    command.arg(&args.dir).arg("--out").arg(&out).arg("--cells").args(&args.cells);
    command.args(args.smoke.then_some("--smoke")).env_remove("HELIO_URL");
    if let Some(url) = url {
        command.args(["--url", url]);
    }
    let ran = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    // The next run measures the cells again.
    let _ = std::fs::remove_file(&out);
    let ran = ran.map_err(|e| failed(&e))?;
    if !ran.status.success() {
        return Err(failed(&format!("it ended with {}", ran.status)));
    }
    let told: Told = serde_json::from_slice(&ran.stdout).map_err(|e| failed(&e))?;
    Ok(told.cells)
}

fn compared(
    cell: String,
    figure: &'static str,
    before: Vec<f64>,
    after: Vec<f64>,
    limit: f64,
) -> Compared {
    let ratios = before.iter().zip(&after).map(|(before, after)| after / before.max(1e-9));
    let ratio = median(ratios.collect());
    Compared { cell, figure, before, after, ratio, is_slower: ratio > limit }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

impl Comparison {
    fn print(&self, as_json: bool) -> CliResult {
        let mut out = Out::new();
        if as_json {
            out.json(self)?;
            return out.flush();
        }
        let row = |one: &Compared| {
            let [before, after] = [&one.before, &one.after].map(|all| median(all.clone()));
            vec![
                one.cell.clone(),
                one.figure.to_owned(),
                format!("{before:.3}"),
                format!("{after:.3}"),
                format!("{:.3}", one.ratio),
                if one.is_slower { "MORE" } else { "" }.to_owned(),
            ]
        };
        let rows: Vec<_> = self.compared.iter().map(row).collect();
        let lines = table(&["cell", "figure", "A", "B", "B to A", ""], &rows);
        lines.iter().try_for_each(|line| out.line(line))?;
        let [before, after] = self.load;
        out.line(&format!("load {before:.1} before and {after:.1} after"))?;
        out.flush()
    }

    /// An error if B uses more than the limit.
    fn verdict(&self) -> CliResult {
        let slower = self.compared.iter().filter(|one| one.is_slower);
        let of = |one: &Compared| format!("{}, {}: {:.2} of A's", one.cell, one.figure, one.ratio);
        let slower: Vec<String> = slower.map(of).collect();
        if slower.is_empty() { Ok(()) } else { Err(CliError::Lost(slower.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_more_is_found_in_the_median_of_pairs() {
        let before = vec![1.0, 2.0, 4.0, 1.0, 1.0];
        let of = |times: f64| {
            let after = before.iter().map(|one| one * times).collect();
            compared(String::new(), "", before.clone(), after, 1.1).is_slower
        };
        assert_eq!([1.0, 1.09, 1.12].map(of), [false, false, true]);
        // The speed of the machine wanders more than that.
        let after = vec![1.15, 2.3, 4.6, 0.2, 9.0];
        assert!(compared(String::new(), "", before, after, 1.1).is_slower);
    }
}
