//! Plans: shared work, history for survivors only, outcomes that depend on no other filter.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use helio_filter::{Catalog, Filter, Layout, LiveWatchList, Plan, PlanError, RunError, WatchList};

use crate::support::{catalog_of, no_clock, outcome, run, small_batch};

const ALL: &str = "SELECT * FROM alerts WHERE ";

fn plan_of(conditions: &[&str]) -> Plan {
    let catalog = Arc::new(catalog_of(&small_batch()));
    let filters: Vec<(String, Filter)> = conditions
        .iter()
        .enumerate()
        .map(|(i, c)| (i.to_string(), Filter::check(&format!("{ALL}{c}"), &catalog).unwrap()))
        .collect();
    Plan::new(catalog, filters.iter().map(|(name, filter)| (name.as_str(), filter))).unwrap()
}

#[test]
fn a_plan_names_the_columns_it_needs() {
    let plan = plan_of(&[
        "diaSource.snr > 5 AND diaSource.n > 1",
        "diaSource.isDipole AND max(prvDiaSources.psfFlux, 30) > 10",
        "in_moc('north')",
    ]);
    let flat = ["snr", "n", "isDipole", "ra", "dec", "midpointMjdTai"];
    assert_eq!(plan.flat_columns(), flat.map(|name| format!("diaSource.{name}")));
    assert_eq!(plan.history_columns(), ["prvDiaSources.midpointMjdTai", "prvDiaSources.psfFlux"]);
    let none = plan_of(&["TRUE"]);
    assert!(none.flat_columns().is_empty() && none.history_columns().is_empty());
    assert_eq!(plan.names().collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[test]
fn equal_expressions_are_planned_once() {
    let one = plan_of(&["diaSource.snr * 2 > 5 AND diaSource.n > 1"]).expressions();
    let two = plan_of(&[
        "diaSource.snr * 2 > 5 AND diaSource.n > 1",
        "diaSource.n>1 AND (diaSource.snr * 2) > (1 + 4)",
    ]);
    // Constants that were folded away are in the tree, too: 4.
    assert_eq!(two.expressions(), one + 1);
}

#[test]
fn history_is_read_for_survivors_only() {
    let plan = plan_of(&[
        "diaSource.n > 0 AND last(prvDiaSources.psfFlux) > 1",
        "diaSource.band = 'r' AND count_if(prvDiaSources.snr > 1) > 0",
        "diaSource.snr > 5",
    ]);
    let batch = small_batch();
    let flat_only = batch.project(&(0..12).collect::<Vec<_>>()).unwrap();
    let flat = plan.run_flat(flat_only.clone(), &mut no_clock).unwrap();
    assert_eq!(flat.rows_needing_history(), [0, 1, 4]);
    let rows = UInt32Array::from(flat.rows_needing_history().to_vec());
    let history = take_record_batch(&batch.project(&[12]).unwrap(), &rows).unwrap();
    let matches = plan.run_history(flat, Some(history), &mut no_clock).unwrap();
    let rows: Vec<_> = matches.outcomes().iter().map(|outcome| outcome.rows.clone()).collect();
    assert_eq!(rows, [vec![0, 4], vec![1], vec![1, 4]]);

    let flat = plan.run_flat(flat_only, &mut no_clock).unwrap();
    let error = plan.run_history(flat, None, &mut no_clock).unwrap_err().to_string();
    assert_eq!(error, "the batch has 0 rows, 3 needed");
}

/// Each filter alone and all together have the same matches and errors, though they share work.
#[test]
fn a_filters_outcome_depends_on_no_other() {
    let conditions = [
        "12 / diaSource.n > 0 AND cone(diaSource.ra, diaSource.dec, 0, 0, 10)",
        "cone(diaSource.ra, diaSource.dec, 0, 0, 10) AND in_watchlist('targets')",
        "in_watchlist('targets') AND cone(diaSource.ra, diaSource.dec, 0, 0, 10)",
        "cone(diaSource.ra, 1 / diaSource.n, 0, 0, 10) AND diaSource.n > 0",
        "cone(diaSource.ra, 1 / diaSource.n, 0, 0, 10)",
        "diaSource.n > 0 AND max(1 / (diaSource.n - 3) * prvDiaSources.snr) > 0",
        "max(1 / (diaSource.n - 3) * prvDiaSources.snr) IS NULL",
        "12 / diaSource.n > 0",
    ];
    let batch = small_batch();
    let texts: Vec<String> = conditions.iter().map(|c| format!("{ALL}{c}")).collect();
    for _ in 0..2 {
        let together = run(&batch, &texts.iter().map(String::as_str).collect::<Vec<_>>()).1;
        for (condition, found) in conditions.iter().zip(together.outcomes()) {
            assert_eq!(*found, outcome(&batch, condition), "{condition}");
        }
    }
    assert_eq!(outcome(&batch, conditions[3]).errors, [] as [u32; 0]);
    assert_eq!(outcome(&batch, conditions[4]).errors, [1]);
}

#[test]
fn time_is_shared_by_the_users_of_an_expression() {
    let plan = plan_of(&["diaSource.snr > 5", "diaSource.snr > 5", "diaSource.n > 1 AND TRUE"]);
    let mut now = Duration::ZERO;
    let mut clock = || {
        now += Duration::from_millis(2);
        now
    };
    let matches = plan.run(small_batch(), &mut clock).unwrap();
    let times: Vec<u128> = matches.outcomes().iter().map(|o| o.time.as_millis()).collect();
    assert_eq!(times, [1, 1, 4]);
}

#[test]
fn a_batch_that_does_not_fit_is_rejected_with_the_columns_name() {
    let plan = plan_of(&["diaSource.snr > 5"]);
    let batch = small_batch();
    let lacks = batch.project(&[0]).unwrap();
    let error = plan.run_flat(lacks, &mut no_clock).unwrap_err();
    assert_eq!(error.to_string(), "the batch has no column diaSource.snr; read flat_columns");
    let other = RecordBatch::try_from_iter([("diaSource.snr", batch.column(2).clone())]).unwrap();
    let error = plan.run_flat(other, &mut no_clock).unwrap_err();
    assert!(matches!(error, RunError::ColumnType { .. }), "{error}");
    let plan = plan_of(&["last(prvDiaSources.snr) > 5"]);
    let flat = plan.run_flat(batch.clone(), &mut no_clock).unwrap();
    let error = plan.run_history(flat, Some(batch.project(&[0]).unwrap()), &mut no_clock);
    assert_eq!(
        error.unwrap_err().to_string(),
        "the batch has no column prvDiaSources; read history_columns"
    );
}

#[test]
fn an_empty_batch_and_an_empty_plan_are_fine() {
    let empty = small_batch().slice(0, 0);
    assert_eq!(outcome(&empty, "last(prvDiaSources.snr) > 5 OR diaSource.n / 0 > 1").rows, []);
    let plan = plan_of(&[]);
    assert!(plan.run(small_batch(), &mut no_clock).unwrap().outcomes().is_empty());
}

/// A slice of a batch has the outcome of its rows, though its arrays have offsets.
#[test]
fn slices_are_batches() {
    let batch = small_batch();
    for condition in [
        "diaSource.snr > 5 OR diaSource.isDipole",
        "diaSource.band LIKE '%' AND diaSource.n <> 0",
        "count_if(prvDiaSources.snr >= 5) = 0",
        "last(prvDiaSources.psfFlux) <> 0 AND diaSource.n / diaSource.n = 1",
    ] {
        let whole = outcome(&batch, condition);
        for start in 0..batch.num_rows() {
            let part = outcome(&batch.slice(start, batch.num_rows() - start), condition);
            let shifted = |rows: &[u32]| -> Vec<u32> {
                let start = start as u32;
                rows.iter().filter(|row| **row >= start).map(|row| row - start).collect()
            };
            assert_eq!(part.rows, shifted(&whole.rows), "{condition} from {start}");
            assert_eq!(part.errors, shifted(&whole.errors), "{condition} from {start}");
        }
    }
}

#[test]
fn a_watch_list_is_replaced_while_a_plan_uses_it() {
    let batch = small_batch();
    let live = Arc::new(LiveWatchList::new(WatchList::new(vec![], 2.0).unwrap()));
    let catalog = Catalog::new(&batch.schema(), Layout::rubin()).with_watch_list("l", live.clone());
    let filter = Filter::check(&format!("{ALL}in_watchlist('l')"), &catalog).unwrap();
    let plan = Plan::new(Arc::new(catalog), [("f", &filter)]).unwrap();
    let matches =
        |plan: &Plan| plan.run(batch.clone(), &mut no_clock).unwrap().outcomes()[0].rows.clone();
    assert_eq!(matches(&plan), [] as [u32; 0]);
    live.replace(WatchList::new(vec![[180.0, 89.9]], 2.0).unwrap());
    assert_eq!(matches(&plan), [2]);
}

#[test]
fn a_plan_is_of_one_schema_and_of_distinct_names() {
    let batch = small_batch();
    let catalog = Arc::new(catalog_of(&batch));
    let filter = Filter::check(&format!("{ALL}diaSource.snr > 5"), &catalog).unwrap();
    let twice = Plan::new(catalog, [("a", &filter), ("a", &filter)]).unwrap_err();
    assert_eq!(twice, PlanError::Twice("a".to_owned()));
    let other = Catalog::new(&batch.project(&[0]).unwrap().schema(), Layout::rubin());
    let stale = Plan::new(Arc::new(other), [("a", &filter)]).unwrap_err().to_string();
    assert!(stale.starts_with("filter a was checked against another schema: line 1"), "{stale}");
    assert!(batch.column(0).len() == 5);
}
