//! `helio-alerts watch-list` and `region`: lists and areas of the sky that filters name.

use std::ops::Range;
use std::path::Path;

use helio_alert_filters::{FilterStore, Head, ListKind};
use helio_console::args::Output;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, table};
use helio_console::units::human_count;
use serde::Serialize;

use crate::args::{
    ListArgs, RegionArgs, RegionCommand, RemoveArgs, StreamArg, WatchListArgs, WatchListCommand,
};
use crate::error;

/// The order of the cells of stored regions.
const MOC_ORDER: u32 = 29;

/// A list.
#[derive(Debug, Serialize)]
struct ListLine<'a> {
    name: &'a str,
    kind: &'static str,
    entries: usize,
    radius_arcsec: Option<f64>,
    revision: u64,
}

impl<'a> ListLine<'a> {
    fn new(name: &'a str, head: &Head) -> Self {
        let (kind, radius_arcsec) = match head.kind {
            ListKind::WatchList { radius_arcsec } => ("watch_list", Some(radius_arcsec)),
            ListKind::Region => ("region", None),
        };
        Self { name, kind, entries: head.entries, radius_arcsec, revision: head.revision }
    }

    fn row(&self) -> Vec<String> {
        let radius = self.radius_arcsec.map_or_else(|| "-".to_owned(), |r| format!("{r}"));
        let entries = human_count(self.entries as u64);
        vec![self.name.to_owned(), entries, radius, self.revision.to_string()]
    }
}

/// Runs `helio-alerts watch-list`.
pub(crate) fn watch_list(args: &WatchListArgs, url: Option<&str>) -> CliResult {
    match &args.command {
        WatchListCommand::Put(args) => {
            let positions = read(&args.file, positions)?;
            let put = store(&args.stream, url)?.put_watch_list(&args.name, positions, args.radius);
            print(&args.name, &put.map_err(error::filter_change)?, args.output)
        }
        WatchListCommand::List(args) => list(args, url, "watch_list"),
        WatchListCommand::Remove(args) => remove(args, url, "watch_list"),
    }
}

/// Runs `helio-alerts region`.
pub(crate) fn region(args: &RegionArgs, url: Option<&str>) -> CliResult {
    match &args.command {
        RegionCommand::Put(args) => {
            let ranges = read(&args.file, moc)?;
            let put = store(&args.stream, url)?.put_region(&args.name, ranges);
            print(&args.name, &put.map_err(error::filter_change)?, args.output)
        }
        RegionCommand::List(args) => list(args, url, "region"),
        RegionCommand::Remove(args) => remove(args, url, "region"),
    }
}

fn store(stream: &StreamArg, url: Option<&str>) -> CliResult<FilterStore> {
    FilterStore::open(&open::look(url)?, &stream.topic).map_err(error::filter_service)
}

fn read<T>(file: &Path, parse: impl Fn(&str) -> Result<T, String>) -> CliResult<T> {
    let text = std::fs::read_to_string(file).map_err(|error| CliError::file(file, &error))?;
    parse(&text).map_err(|error| CliError::Refused(format!("{}: {error}", file.display())))
}

fn print(name: &str, head: &Head, output: Output) -> CliResult {
    let (mut out, line) = (Out::new(), ListLine::new(name, head));
    if output.json {
        out.json(&line)?;
    } else {
        let (entries, revision) = (human_count(line.entries as u64), line.revision);
        out.line(&format!("{name}: {entries} entries, revision {revision}"))?;
    }
    out.flush()
}

fn list(args: &ListArgs, url: Option<&str>, kind: &str) -> CliResult {
    let store = store(&args.stream, url)?;
    let lines = store.lists().iter().map(|(name, head)| ListLine::new(name, head));
    let lines: Vec<_> = lines.filter(|line| line.kind == kind).collect();
    let mut out = Out::new();
    if args.output.json {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else {
        let rows: Vec<_> = lines.iter().map(ListLine::row).collect();
        let head = ["name", "entries", "radius (arcsec)", "revision"];
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

fn remove(args: &RemoveArgs, url: Option<&str>, kind: &str) -> CliResult {
    let (mut store, name) = (store(&args.stream, url)?, &args.name);
    let is_there =
        store.lists().get(name).is_some_and(|head| ListLine::new(name, head).kind == kind);
    if !is_there {
        return Err(CliError::NotFound(format!("there is no {} {name}", kind.replace('_', " "))));
    }
    store.remove_list(name).map_err(error::filter_change)
}

/// Reads lines of right ascension and declination, degrees.
fn positions(text: &str) -> Result<Vec<[f64; 2]>, String> {
    let mut positions = Vec::new();
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut is_first = true;
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = line.split([',', ' ', '\t']).filter(|field| !field.is_empty());
        let mut degrees = || fields.next().and_then(|field| field.trim().parse::<f64>().ok());
        match (degrees(), degrees(), std::mem::replace(&mut is_first, false)) {
            (Some(ra), Some(dec), _) => positions.push([ra, dec]),
            (None, None, true) => {}
            _ => return Err(format!("line {number}: no right ascension and declination")),
        }
    }
    if positions.is_empty() { Err("no positions".to_owned()) } else { Ok(positions) }
}

/// Reads an ASCII MOC (IVOA, MOC 2.0, section 4.3.2), as ranges of cells of order 29.
fn moc(text: &str) -> Result<Vec<Range<u64>>, String> {
    let (mut order, mut ranges) = (None, Vec::new());
    for token in text.split([' ', '\t', '\r', '\n', ',']).filter(|token| !token.is_empty()) {
        let wrong = || format!("{token:?} is no cell; write ORDER/CELL, CELL or CELL-CELL");
        let cells = match token.split_once('/') {
            None => token,
            Some((of, cells)) => {
                let of = of.parse().ok().filter(|order: &u32| *order <= MOC_ORDER);
                order = Some(of.ok_or_else(wrong)?);
                cells
            }
        };
        if cells.is_empty() {
            continue;
        }
        let order = order.ok_or_else(wrong)?;
        let (first, last) = cells.split_once('-').unwrap_or((cells, cells));
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n < 12 << (2 * order));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first > last {
            return Err(wrong());
        }
        let shift = 2 * (MOC_ORDER - order);
        ranges.push(first << shift..(last + 1) << shift);
    }
    ranges.sort_by_key(|range| range.start);
    // Cells that touch or overlap are one range.
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    if joined.is_empty() { Err("no cells".to_owned()) } else { Ok(joined) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_columns_of_text() {
        let text = "ra,dec,name\n# a comment\n10.5, -20.25,x\n\n350\t5\r\n";
        assert_eq!(positions(text), Ok(vec![[10.5, -20.25], [350.0, 5.0]]));
        assert!(positions("1,2\nra,dec\n").is_err_and(|error| error.contains("line 2")));
        assert!(positions("ra,dec\n").is_err() && positions("1\n").is_err());
    }

    #[test]
    fn a_moc_becomes_ranges_of_the_finest_cells() {
        let cells = |order: u32| 1_u64 << (2 * (MOC_ORDER - order));
        let (of, one) = (cells(3), |range| std::iter::once(range).collect());
        assert_eq!(moc("3/1-2 8"), Ok(vec![of..3 * of, 8 * of..9 * of]));
        // A child of the cell 3/3, which touches 3/2; the maximal order alone proves nothing.
        assert_eq!(moc("3/1-2\n4/12\n29/"), Ok(one(of..3 * of + cells(4))));
        assert_eq!(moc("0/0-11"), Ok(one(0..12 << 58)));
        for bad in ["", "5", "30/1", "3/768", "3/2-1", "x/1", "3/a"] {
            assert!(moc(bad).is_err(), "{bad}");
        }
    }
}
