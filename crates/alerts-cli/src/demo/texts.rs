//! The users' filters: distinct texts of each kind, with the watch lists and regions that they
//! name. Rates of matches are 0 to 10 %, by the distributions of the generator.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use helio_alert_filters::Language;
use helio_alerts::generator::{AlertNumber, WithStamps};
use helio_alerts::rubin::Version;
use helio_columns::{Decoder, Layout};
use helio_console::error::{CliError, CliResult};
use helio_filter::{MOC_ORDER, healpix_cell};
use serde::Serialize;

use super::messages::Survey;

/// Positions of each watch list.
const LIST_POSITIONS: usize = 100_000;
/// The order of a region's cells, 0.23 degrees wide: about a CCD.
const REGION_ORDER: u32 = 8;
/// A region has a cell for so many detectors.
const REGION_STEP: usize = 20;
/// Visits from which watch lists and regions have positions.
const LISTED_VISITS: u16 = 10;
/// The radius of a watch list's positions.
pub(super) const RADIUS_ARCSEC: f64 = 1.0;

/// The kinds of filters, by the data that they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Flat,
    LightCurve,
    WatchList,
    Region,
    Python,
}

/// A user's filter.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) user: String,
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl Text {
    pub(super) fn language(&self) -> Language {
        if self.kind == Kind::Python { Language::Python } else { Language::Sql }
    }
}

/// The filters of so many users: of 100, 5 with light curves, 3 with watch lists, 2 with regions,
/// 10 in Python, and at least one of each kind.
pub(super) fn texts(users: u16) -> Vec<Text> {
    let share = |of_100: u16| (users * of_100 / 100).max(1);
    let special = [
        (Kind::LightCurve, share(5)),
        (Kind::WatchList, share(3)),
        (Kind::Region, share(2)),
        (Kind::Python, share(10)),
    ];
    let flat = users - special.iter().map(|(_, number)| number).sum::<u16>();
    let kinds = [(Kind::Flat, flat)].into_iter().chain(special);
    let numbered = kinds.flat_map(|(kind, number)| (0..number).map(move |n| (kind, n)));
    let texts = numbered.zip(1..).map(|((kind, number), user): (_, u16)| Text {
        user: format!("user-{user:03}"),
        kind,
        text: text(kind, number),
    });
    texts.collect()
}

fn text(kind: Kind, number: u16) -> String {
    let condition = match kind {
        Kind::Flat => flat(number),
        Kind::LightCurve => light_curve(number),
        Kind::WatchList => format!("in_watchlist('{}')", watch_list(number)),
        Kind::Region => {
            format!("in_moc('{}') AND diaSource.snr > {}", region(number), 5 + number / 2)
        }
        Kind::Python => return python(number),
    };
    // Every other user ranks.
    let order = if number.is_multiple_of(2) { " ORDER BY diaSource.snr DESC" } else { "" };
    format!("SELECT * FROM alerts WHERE {condition}{order}")
}

/// The signal to noise ratio that a share of the alerts exceeds, above its threshold of 5.
fn snr_above(share: f64) -> f64 {
    5.0 * share.powf(-1.0 / 1.6)
}

fn flat(number: u16) -> String {
    let step = f64::from(number / 8 + 1);
    match number % 8 {
        0 => format!("diaSource.snr > {:.3}", snr_above(0.009 * step)),
        1 => format!(
            "diaSource.reliability > {:.3} AND diaSource.band IN ('g', 'r', 'i', 'z')",
            1.0 - 0.009 * step
        ),
        2 => {
            format!("diaSource.snr > {:.3} AND NOT diaSource.isNegative", snr_above(0.0085 * step))
        }
        3 => format!("magnitude(diaSource.psfFlux) < {:.2}", 20.0 + 0.1 * step),
        4 => format!(
            "abs(diaSource.psfFlux / diaSource.psfFluxErr) > {:.2} AND diaSource.reliability > 0.5",
            snr_above(0.015 * step)
        ),
        5 => format!(
            "ssSource.ssObjectId IS NOT NULL AND diaSource.snr > {:.2}",
            snr_above(0.09 * step)
        ),
        6 => format!("diaSource.snr BETWEEN 5.001 AND {:.3}", 5.0 + 0.03 * step),
        _ => format!("diaSource.snr > {:.0}", 10_000.0 + step),
    }
}

fn light_curve(number: u16) -> String {
    let step = number / 5;
    match number % 5 {
        0 => format!("diaSource.snr > 8 AND count_if(prvDiaSources.snr > {}, 30) >= 2", 6 + step),
        1 => format!("diaSource.psfFlux > {} * max(prvDiaSources.psfFlux, 60)", 2 + step),
        2 => format!("diaSource.snr > 10 AND slope(prvDiaSources.psfFlux, 30) > {}", 20 + step),
        3 => {
            format!("diaSource.snr > {} AND last(prvDiaSources.band) <> diaSource.band", 12 + step)
        }
        _ => format!("diaSource.snr > {} AND mean(prvDiaSources.psfFlux, 365) > 1000", 7 + step),
    }
}

fn python(number: u16) -> String {
    let (step, share) = (number / 2, 0.01 * f64::from(number % 10 + 1));
    let (columns, condition) = if number.is_multiple_of(2) {
        ("diaSource.snr", format!("batch['diaSource.snr'] > {:.3}", snr_above(share)))
    } else {
        let condition = format!(
            "np.abs(batch['diaSource.psfFlux']) > {:.1} * batch['diaSource.psfFluxErr']",
            snr_above(share)
        );
        ("diaSource.psfFlux, diaSource.psfFluxErr", condition)
    };
    format!(
        "# columns: {columns}\n# filter {step}\nimport numpy as np\n\n\ndef select(batch):\n    \
         return {condition}\n"
    )
}

/// The watch list of a filter.
pub(super) fn watch_list(number: u16) -> String {
    format!("list-{number}")
}

/// The region of a filter.
pub(super) fn region(number: u16) -> String {
    format!("region-{number}")
}

/// The positions of a watch list: some of the alerts' to come, and many where there are none.
pub(super) fn list_positions(
    survey: &Survey,
    visits: u16,
    number: u16,
) -> CliResult<Vec<[f64; 2]>> {
    let detectors = (0..survey.detectors).skip(usize::from(number)).step_by(3);
    let mut positions = positions(survey, visits, detectors, 1 + u32::from(number))?;
    let far = (0..LIST_POSITIONS.saturating_sub(positions.len()))
        .map(|n| [n as f64 * 0.003, 80.0 + f64::from(number)]);
    positions.extend(far);
    Ok(positions)
}

/// The cells of a region: those of the first alerts of some detectors.
pub(super) fn region_cells(
    survey: &Survey,
    visits: u16,
    number: u16,
) -> CliResult<Vec<Range<u64>>> {
    let detectors = (0..survey.detectors).skip(usize::from(number)).step_by(REGION_STEP);
    let positions = positions(survey, visits.min(1), detectors, 1)?;
    let bits = 2 * (MOC_ORDER - REGION_ORDER);
    let cells = positions.iter().filter_map(|[ra, dec]| healpix_cell(*ra, *dec));
    let cells: BTreeSet<u64> = cells.map(|cell| cell >> bits).collect();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for cell in cells {
        match ranges.last_mut() {
            Some(last) if last.end == cell << bits => last.end = (cell + 1) << bits,
            _ => ranges.push(cell << bits..(cell + 1) << bits),
        }
    }
    Ok(ranges)
}

/// Where the first alerts of some detectors are.
fn positions(
    survey: &Survey,
    visits: u16,
    detectors: impl Iterator<Item = u16> + Clone,
    alerts: u32,
) -> CliResult<Vec<[f64; 2]>> {
    let failed = |error: &dyn std::fmt::Display| CliError::Failure(format!("positions: {error}"));
    let schema = Version::LATEST.schema();
    let paths = ["diaSource.ra", "diaSource.dec"];
    let layout = Layout::new(std::slice::from_ref(schema), &paths).map_err(|e| failed(&e))?;
    let (mut decoder, mut datum) = (Decoder::new(&layout), Vec::new());
    let mut generator = survey.generator(WithStamps::None);
    for visit in 0..visits.min(LISTED_VISITS) {
        for detector in detectors.clone() {
            for number in 0..generator.alerts(detector).min(alerts) {
                datum.clear();
                generator.write(AlertNumber { visit: visit.into(), detector, number }, &mut datum);
                decoder.push(schema, &datum).map_err(|e| failed(&e))?;
            }
        }
    }
    let records = decoder.finish().map_err(|e| failed(&e))?.records;
    let [ra, dec] = [0, 1].map(|column| records.column(column).as_primitive::<Float64Type>());
    Ok((0..records.num_rows()).map(|row| [ra.value(row), dec.value(row)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_users_have_a_hundred_texts_of_all_kinds() {
        for (users, kinds) in [(100, [80, 5, 3, 2, 10]), (20, [15, 1, 1, 1, 2])] {
            let texts = texts(users);
            let distinct: BTreeSet<&str> = texts.iter().map(|one| one.text.as_str()).collect();
            assert_eq!((texts.len(), distinct.len()), (users.into(), users.into()));
            let all = [Kind::Flat, Kind::LightCurve, Kind::WatchList, Kind::Region, Kind::Python];
            let number = |kind| texts.iter().filter(|one| one.kind == kind).count();
            assert_eq!(all.map(number), kinds);
        }
    }
}
