//! Values: null, NaN, errors, types; the table of docs/filters.md.

use crate::support::{outcome, run, small_batch};

/// The rows of the small batch that match, and those with errors.
fn rows(condition: &str) -> (Vec<u32>, Vec<u32>) {
    let outcome = outcome(&small_batch(), condition);
    (outcome.rows, outcome.errors)
}

fn assert_table(table: &[(&str, &[u32], &[u32])]) {
    for (condition, matches, errors) in table {
        let found = rows(condition);
        assert_eq!(found, (matches.to_vec(), errors.to_vec()), "{condition}");
    }
}

#[test]
fn null_nan_and_zeros_compare_as_documented() {
    // snr: 4.5, NaN, null, -0, 20
    assert_table(&[
        ("diaSource.snr > 5", &[1, 4], &[]),
        ("diaSource.snr <= 5", &[0, 3], &[]),
        ("NOT (diaSource.snr > 5)", &[0, 3], &[]),
        ("diaSource.snr <> 5", &[0, 1, 3, 4], &[]),
        ("diaSource.snr = 0", &[3], &[]),
        ("diaSource.snr = 0.0", &[3], &[]),
        ("diaSource.snr < 0", &[], &[]),
        ("diaSource.snr IN (0, 20, NULL)", &[3, 4], &[]),
        ("diaSource.snr NOT IN (20, NULL)", &[], &[]),
        ("diaSource.snr NOT IN (20)", &[0, 1, 3], &[]),
        ("isnan(diaSource.snr)", &[1], &[]),
        ("diaSource.snr = diaSource.snr", &[0, 1, 3, 4], &[]),
        ("diaSource.snr IS NULL", &[2], &[]),
        ("diaSource.snr IS NOT NULL", &[0, 1, 3, 4], &[]),
        ("diaSource.snr BETWEEN -1 AND 5", &[0, 3], &[]),
        ("diaSource.snr NOT BETWEEN -1 AND 5", &[1, 4], &[]),
        ("5 < diaSource.snr", &[1, 4], &[]),
        ("diaSource.snr = NULL", &[], &[]),
        ("(diaSource.snr > 5) IS UNKNOWN", &[2], &[]),
        ("(diaSource.snr > 5) IS NOT TRUE", &[0, 2, 3], &[]),
        ("(diaSource.snr > 5) IS FALSE", &[0, 3], &[]),
    ]);
}

#[test]
fn logic_has_three_values() {
    // isDipole: true, false, null, false, null; band: g, r, null, lsst_i, 100%
    assert_table(&[
        ("diaSource.isDipole", &[0], &[]),
        ("NOT diaSource.isDipole", &[1, 3], &[]),
        ("diaSource.isDipole OR diaSource.snr > 5", &[0, 1, 4], &[]),
        ("diaSource.isDipole AND NULL", &[], &[]),
        ("(diaSource.isDipole AND FALSE) = FALSE", &[0, 1, 2, 3, 4], &[]),
        ("diaSource.isDipole < TRUE", &[1, 3], &[]),
        ("diaSource.isDipole IN (FALSE)", &[1, 3], &[]),
        ("diaSource.band = 'g'", &[0], &[]),
        ("diaSource.band > 'g'", &[1, 3], &[]),
        ("diaSource.band IN ('g', 'r')", &[0, 1], &[]),
        ("diaSource.band LIKE 'lsst\\_%'", &[3], &[]),
        ("diaSource.band LIKE '%\\%'", &[4], &[]),
        ("diaSource.band NOT LIKE '_'", &[3, 4], &[]),
        ("diaSource.band ILIKE 'G'", &[0], &[]),
        ("CASE diaSource.band WHEN 'g' THEN 1 WHEN 'r' THEN 2 END = 2", &[1], &[]),
        ("CASE WHEN diaSource.isDipole THEN 'yes' ELSE 'no' END = 'no'", &[1, 2, 3, 4], &[]),
        ("coalesce(diaSource.band, 'none') = 'none'", &[2], &[]),
        ("nullif(diaSource.band, 'g') IS NULL", &[0, 2], &[]),
    ]);
}

#[test]
fn an_operation_that_fails_is_null_and_counted_for_its_alert() {
    // n: 3, 0, null, -7, 2147483647; id: 1, 0, null, -2^63, 12
    assert_table(&[
        ("12 / diaSource.n = 4", &[0], &[1]),
        ("12 % diaSource.n >= 0", &[0, 3, 4], &[1]),
        ("(12 / diaSource.n) IS NULL", &[1, 2], &[1]),
        ("diaSource.n <> 0 AND 12 / diaSource.n > 0", &[0], &[]),
        ("(diaSource.n = 0 OR 12 / diaSource.n > 0)", &[0, 1], &[]),
        ("(12 / diaSource.n > 0 OR diaSource.n = 0)", &[0, 1], &[1]),
        ("12 / diaSource.n > 0 AND FALSE", &[], &[1]),
        ("FALSE AND 12 / diaSource.n > 0", &[], &[]),
        ("CASE WHEN diaSource.n <> 0 THEN 12 / diaSource.n ELSE 1 END > 0", &[0, 1, 2], &[]),
        ("CASE diaSource.n WHEN 12 / diaSource.n THEN 1 ELSE 2 END = 2", &[0, 1, 2, 3, 4], &[1]),
        // The position is null where the root fails.
        ("CASE diaSource.ra WHEN sqrt(diaSource.n) THEN 1 ELSE 2 END = 2", &[0, 1, 2, 3, 4], &[]),
        ("coalesce(12 / diaSource.n, 100) = 100", &[1, 2], &[1]),
        ("diaSource.id / -1 = -12", &[4], &[3]),
        ("diaSource.id % -1 = 0", &[0, 1, 3, 4], &[]),
        ("abs(diaSource.id) > 5", &[4], &[3]),
        ("sqrt(diaSource.n) < 2", &[0, 1], &[3]),
        ("power(diaSource.n, -1) < 1", &[0, 3, 4], &[1]),
        ("CAST(diaSource.psfFlux AS INT) = 1000", &[0], &[1]),
        ("TRY_CAST(diaSource.psfFlux AS INT) IS NULL", &[1, 2], &[]),
        ("CAST(diaSource.n + 1 AS INT) > 0", &[0, 1], &[4]),
        ("CAST(diaSource.id AS INT) = 12", &[4], &[3]),
        // Wraps, as DataFusion's integers do.
        ("diaSource.id - 1 > 0", &[3, 4], &[]),
        ("diaSource.n + diaSource.n < 0", &[3, 4], &[]),
        ("diaSource.snr / 0 > 1", &[0, 1, 3, 4], &[]),
    ]);
}

#[test]
fn types_widen_as_documented() {
    assert_table(&[
        ("diaSource.n / 2 = -3", &[3], &[]),
        ("diaSource.n / 2.0 = -3.5", &[3], &[]),
        ("diaSource.n * 10000000000 = 30000000000", &[0], &[]),
        ("CAST(0.1 AS REAL) = 0.1", &[], &[]),
        ("CAST(diaSource.snr AS BOOLEAN)", &[0, 1, 4], &[]),
        ("CAST(diaSource.isDipole AS INT) = 1", &[0], &[]),
        ("CAST(2.9 AS INT) = 2", &[0, 1, 2, 3, 4], &[]),
        ("greatest(diaSource.n, 1.5, NULL) = 1.5", &[1, 2, 3], &[]),
        ("least(diaSource.snr, 5) = 5", &[1, 2, 4], &[]),
        // The first of equal arguments: -0.
        ("1.0 / greatest(diaSource.snr, 0) < 0", &[3], &[]),
        ("1.0 / least(0, diaSource.snr) < 0", &[], &[]),
        ("round(2.5) = 3 AND round(-2.5) = -3 AND floor(-0.5) = -1", &[0, 1, 2, 3, 4], &[]),
        ("diaSource.id = -9223372036854775808", &[3], &[]),
    ]);
}

#[test]
fn astronomy_has_units() {
    assert_table(&[
        ("cone(diaSource.ra, diaSource.dec, 10, -30.0005, 2)", &[0], &[]),
        ("cone(diaSource.ra, diaSource.dec, 0.0005, 0, 5.5)", &[1, 4], &[]),
        ("angular_distance(diaSource.ra, diaSource.dec, 0, 0) < 3.61", &[1, 4], &[]),
        ("scisql_angSep(diaSource.ra, diaSource.dec, 0, 0) < 0.00101", &[1, 4], &[]),
        // Four faces around the pole; the equator's corners belong to others.
        ("in_moc('north')", &[2], &[]),
        ("NOT in_moc('north')", &[0, 1, 4], &[]),
        ("in_watchlist('targets')", &[0, 4], &[]),
        ("in_watchlist('targets', 3.7)", &[0, 1, 4], &[]),
        ("magnitude(diaSource.psfFlux) BETWEEN 23.89 AND 23.91", &[0], &[]),
        ("magnitude(diaSource.psfFlux) IS NULL", &[1, 2, 3, 4], &[]),
        (
            "scisql_nanojanskyToAbMagSigma(diaSource.psfFlux, diaSource.psfFluxErr) < 0.11",
            &[0],
            &[],
        ),
    ]);
}

#[test]
fn light_curves_have_no_points_of_the_future() {
    // Row 0: flux 100, 300, 200 (and 900 in the future); 1: null, -7.5; 2: empty; 3: null, and no
    // alert time; 4: two points of one time, 1 and 2.
    assert_table(&[
        ("last(prvDiaSources.psfFlux) = 200", &[0], &[]),
        ("last(prvDiaSources.psfFlux) = 2", &[4], &[]),
        ("first(prvDiaSources.psfFlux) = 100", &[0], &[]),
        ("max(prvDiaSources.psfFlux) = 300", &[0], &[]),
        ("max(prvDiaSources.psfFlux) IS NULL", &[2, 3], &[]),
        ("min(prvDiaSources.psfFlux, 11) = 200", &[0], &[]),
        ("mean(prvDiaSources.psfFlux) = 200", &[0], &[]),
        ("mean(prvDiaSources.psfFlux) = -7.5", &[1], &[]),
        ("slope(prvDiaSources.psfFlux) = 5", &[0], &[]),
        ("slope(prvDiaSources.psfFlux) IS NULL", &[1, 2, 3, 4], &[]),
        ("count_if(prvDiaSources.snr >= 5) = 3", &[0], &[]),
        ("count_if(prvDiaSources.snr >= 5, 11) = 2", &[0], &[]),
        ("count_if(prvDiaSources.snr >= 5) = 0", &[2, 3, 4], &[]),
        ("last(prvDiaSources.band) = 'g'", &[0, 1], &[]),
        ("last(CASE WHEN prvDiaSources.band = 'r' THEN prvDiaSources.snr END) = 15", &[0], &[]),
        ("count_if(prvDiaSources.psfFlux > diaSource.psfFlux - 801) = 2", &[0, 4], &[]),
        ("count_if(cone(10, prvDiaSources.snr, 10, 5, 1)) = 1", &[0, 1], &[]),
        ("max(CAST(prvDiaSources.snr AS INT)) = 15", &[0], &[]),
        ("count_if(60 / (CAST(prvDiaSources.snr AS INT) - 45) < 0) = 3", &[0], &[]),
        ("count_if(60 / (CAST(prvDiaSources.snr AS INT) - 10) < 0) = 1", &[0], &[0]),
        ("max(prvDiaForcedSources.psfFlux) IS NULL", &[0, 1, 2, 3, 4], &[]),
    ]);
}

#[test]
fn results_are_selected_and_ranked_for_chosen_rows() {
    let text = "SELECT diaSourceId, diaSource.n + 1 AS next, diaSource.timeProcessed, \
                last(prvDiaSources.psfFlux) AS before, 7 AS seven FROM alerts \
                WHERE diaSource.n IS NOT NULL \
                ORDER BY max(prvDiaSources.psfFlux) DESC, diaSource.snr";
    let (plan, matches) = run(&small_batch(), &[text]);
    assert_eq!(matches.outcomes()[0].rows, [0, 1, 3, 4]);
    let batch = plan.select(&matches, 0, &[0, 4]).unwrap();
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["diaSourceId", "next", "diaSource.timeProcessed", "before", "seven"]);
    let longs = |column: usize| {
        let array = batch.column(column);
        let array = array.as_any().downcast_ref::<arrow_array::Int64Array>().unwrap();
        array.values().to_vec()
    };
    assert_eq!(
        (longs(0), longs(1), longs(4)),
        (vec![101, 105], vec![4, 2_147_483_648], vec![7, 7])
    );
    let ranks = plan.ranks(&matches, 0, &[0, 1, 3, 4]).unwrap();
    let mut order = vec![0, 1, 2, 3];
    order.sort_by_key(|place| ranks[*place].clone());
    // 300, 2, -7.5, none.
    assert_eq!(order, [0, 3, 1, 2]);
    assert!(plan.select(&matches, 0, &[2]).is_err());
}
