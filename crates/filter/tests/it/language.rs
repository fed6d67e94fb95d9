//! The language: what is accepted, and what is rejected, where and why.

use helio_filter::limits::{
    MAX_DEPTH, MAX_IN_VALUES, MAX_NODES, MAX_PATTERN_BYTES, MAX_TEXT_BYTES, MAX_TOKENS,
};
use helio_filter::{Filter, Type};

use crate::support::{catalog_of, error, small_batch};

/// The error of a condition, its place counted from the condition's start.
fn condition_error(condition: &str) -> String {
    let error = error(&format!("SELECT * FROM alerts WHERE\n{condition}"));
    format!("{}:{} {}", error.at.line - 1, error.at.column, error.reason)
}

#[test]
fn what_is_not_listed_is_rejected_with_its_place() {
    let table = [
        ("WITH a AS (SELECT 1) SELECT * FROM alerts WHERE TRUE", "line 1, column 1: WITH"),
        ("SELECT * FROM alerts WHERE TRUE\nLIMIT 5", "line 2, column 1: LIMIT"),
        ("SELECT DISTINCT diaSourceId FROM alerts WHERE TRUE", "line 1, column 8: DISTINCT"),
        ("SELECT * FROM alerts WHERE TRUE GROUP BY diaSourceId", "line 1, column 33: GROUP"),
        ("SELECT * FROM alerts WHERE TRUE HAVING TRUE", "line 1, column 33: HAVING"),
        ("SELECT * INTO x FROM alerts WHERE TRUE", "line 1, column 10: INTO"),
        ("SELECT * FROM alerts WHERE TRUE FOR UPDATE", "line 1, column 33: FOR"),
        (
            "SELECT * FROM alerts WHERE TRUE UNION SELECT * FROM alerts WHERE TRUE",
            "line 1, column 33: UNION",
        ),
        ("SELECT * FROM alerts JOIN b ON TRUE WHERE TRUE", "line 1, column 22: JOIN"),
        ("SELECT * FROM alerts, alerts WHERE TRUE", "line 1, column 10: another FROM"),
        ("SELECT * FROM alerts AS a WHERE TRUE", "line 1, column 10: another FROM"),
        ("SELECT * FROM (SELECT 1) WHERE TRUE", "line 1, column 10: another FROM"),
        ("SELECT * FROM users WHERE TRUE", "line 1, column 15: the table users"),
        ("SELECT * FROM alerts", "line 1, column 1: a query without WHERE"),
        ("SELECT *, diaSourceId FROM alerts WHERE TRUE", "line 1, column 8: this item"),
        ("SELECT * EXCEPT (a) FROM alerts WHERE TRUE", "line 1, column 8: `*`"),
        ("VALUES (1)", "line 1, column 1: a query of another form"),
        ("DELETE FROM alerts", "line 1, column 1: a query of another form"),
        ("SELECT * FROM alerts WHERE TRUE; SELECT 1", "line 1, column 32: expected the end"),
        ("SELECT * FROM alerts WHERE 'a", "line 1, column 28: unterminated string"),
        ("SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.band", "line 1, column 42: ORDER BY"),
        ("SELECT * FROM alerts WHERE TRUE ORDER BY 1", "line 1, column 42: ORDER BY"),
        (
            "SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.snr NULLS FIRST",
            "line 1, column 42: NULLS FIRST",
        ),
        ("SELECT diaSource.snr + 1 FROM alerts WHERE TRUE", "line 1, column 8: a computed column"),
        (
            "SELECT diaSourceId, diaSource.n AS diaSourceId FROM alerts WHERE TRUE",
            "line 1, column 21",
        ),
        ("SELECT NULL AS a FROM alerts WHERE TRUE", "line 1, column 8: NULL has no type"),
        ("SELECT prvDiaSources FROM alerts WHERE TRUE", "line 1, column 8: prvDiaSources has many"),
    ];
    for (text, expected) in table {
        let found = error(text).to_string();
        assert!(found.starts_with(expected), "{text}\n{found}\n{expected}");
    }
}

#[test]
fn expressions_that_are_not_listed_are_rejected_with_their_place() {
    let table = [
        ("diaSource.n IN (SELECT 1)", "1:1 `diaSource`, as it is used here,"),
        ("EXISTS (SELECT 1)", "1:"),
        ("diaSource.n = (SELECT 1)", "1:"),
        ("TRUE AND\n  SUBSTRING(diaSource.band, 1) = 'g'", "2:"),
        ("diaSource.band || 'x' = 'gx'", "1:1 the operator ||"),
        ("diaSource.n & 1 = 1", "1:1 the operator &"),
        ("diaSource.band ~ 'g.*'", "1:1 the operator ~"),
        ("diaSource.band SIMILAR TO 'g'", "1:"),
        ("system('rm') = 1", "1:1 no function system"),
        ("sqr(diaSource.n) > 1", "1:1 no function sqr; is it sqrt?"),
        ("abs(diaSource.n, 1) > 1", "1:1 write abs(x)"),
        ("count(DISTINCT diaSource.n) > 1", "1:1 no function count"),
        ("max(DISTINCT prvDiaSources.snr) > 1", "1:1 `max`"),
        ("max(prvDiaSources.snr) OVER () > 1", "1:1 `max`"),
        ("max(prvDiaSources.snr) FILTER (WHERE TRUE) > 1", "1:1 `max`"),
        ("public.abs(diaSource.n) > 1", "1:1 `public`"),
        ("diaSource.snir > 5", "1:1 no column diaSource.snir in the schema; is it diaSource.snr?"),
        ("diaSource.snr > 'a'", "1:1 TEXT and REAL have no common type"),
        ("diaSource.n", "1:1 WHERE takes BOOLEAN, not INT"),
        ("NOT diaSource.n", "1:5 NOT takes BOOLEAN, not INT"),
        ("diaSource.band + 1 > 2", "1:1 + takes numbers, not TEXT"),
        ("-diaSource.isDipole", "1:2 - takes numbers, not BOOLEAN"),
        ("sqrt(diaSource.band) > 1", "1:1 sqrt takes numbers, not TEXT"),
        ("CAST(diaSource.n AS VARCHAR) = '1'", "1:6 CAST to VARCHAR"),
        ("CAST(diaSource.band AS INT) = 1", "1:6 CAST takes numbers and booleans, not TEXT"),
        ("diaSource.n LIKE 'a'", "1:1 LIKE takes TEXT, not INT"),
        ("diaSource.band LIKE diaSource.band", "1:21 the pattern of LIKE"),
        ("diaSource.band LIKE 'a' ESCAPE '!'", "1:"),
        ("diaSource.n IN (diaSource.n)", "1:17 the values of IN are constants"),
        ("diaSource.n / 0 = 1 OR 1 / 0 = 1", "1:24 this fails for every alert"),
        ("diaSource.timeProcessed > 5", "1:1 diaSource.timeProcessed is Timestamp"),
        ("in_moc('south')", "1:8 no region south"),
        ("in_watchlist('target')", "1:14 no watch list target; is it targets?"),
        ("in_watchlist('targets', 4000)", "1:25 a radius is a number of arcsec, at most 3600"),
        ("in_watchlist('targets', diaSource.n)", "1:25 a radius is a number"),
        ("prvDiaSources.snr > 5", "1:1 prvDiaSources.snr has many values an alert"),
        ("last(diaSource.snr) > 5", "1:6 last takes a field of a history column"),
        ("last(prvDiaSources.snr, diaSource.n) > 5", "1:25 a window is a constant"),
        ("last(prvDiaSources.snr, 0) > 5", "1:25 a window is a constant"),
        ("last(max(prvDiaSources.snr)) > 5", "1:6 max has many values"),
        ("last(prvDiaSources.snr + prvDiaForcedSources.snr) > 5", "1:26 prvDiaForcedSources.snr"),
        ("count_if(prvDiaSources.snr) > 5", "1:1 count_if takes BOOLEAN, not DOUBLE"),
        ("max(prvDiaSources.band) = 'g'", "1:1 max takes numbers, not TEXT"),
        ("diaSource.snr > ?", "1:17 `?`"),
        ("diaSource.snr > DATE '2026-01-01'", "1:22 `'2026-01-01'`"),
        ("(diaSource.n, 1) = (1, 1)", "1:"),
        ("diaSource.snr > 5 AND", "1:"),
    ];
    let differs =
        |(condition, expected): &&(&str, &str)| !condition_error(condition).starts_with(expected);
    let different: Vec<String> = table
        .iter()
        .filter(differs)
        .map(|(condition, expected)| {
            format!("{condition}\n{}\n{expected}\n", condition_error(condition))
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn limits_are_named() {
    let numbers = |count: usize| vec!["1"; count].join(", ");
    let sums = |count: usize| vec!["diaSource.snr"; count].join(" + ");
    let distinct = |count: usize| {
        (0..count).map(|n| format!("diaSource.n = {n}")).collect::<Vec<_>>().join(" OR ")
    };
    let table = [
        (" ".repeat(MAX_TEXT_BYTES), format!("bytes of text: 32795, at most {MAX_TEXT_BYTES}")),
        (
            vec!["TRUE"; 2_100].join(" AND "),
            format!("words and signs in the text: 4204, at most {MAX_TOKENS}"),
        ),
        (
            format!("{} > 1", sums(MAX_DEPTH + 1)),
            "expressions within another: 65, at most 64".into(),
        ),
        (
            format!("{}TRUE{}", "(".repeat(60), ")".repeat(60)),
            "nested brackets and calls: 49".into(),
        ),
        (distinct(1_000), "words and signs".into()),
        (
            format!("diaSource.n IN ({})", numbers(MAX_IN_VALUES + 1)),
            "values of IN: 1001, at most 1000".into(),
        ),
        (
            format!("diaSource.band LIKE '{}'", "a".repeat(MAX_PATTERN_BYTES + 1)),
            "bytes of a LIKE pattern: 257, at most 256".into(),
        ),
        (
            format!(
                "greatest({}) > 1",
                (0..600).map(|n| format!("diaSource.n+{n}")).collect::<Vec<_>>().join(",")
            ),
            format!("expressions in the filter: 2049, at most {MAX_NODES}"),
        ),
    ];
    for (condition, expected) in table {
        let found = error(&format!("SELECT * FROM alerts WHERE {condition}")).to_string();
        assert!(found.contains(&expected), "{found}\n{expected}");
    }
    // What is just below passes.
    let catalog = catalog_of(&small_batch());
    for condition in [
        distinct(580),
        format!("diaSource.n IN ({})", numbers(MAX_IN_VALUES)),
        format!("{} > 1", sums(MAX_DEPTH - 2)),
    ] {
        let text = format!("SELECT * FROM alerts WHERE {condition}");
        Filter::check(&text, &catalog).unwrap();
    }
}

/// The longest chains that the parser makes: errors and drops recurse no deeper than the stack.
#[test]
fn deep_chains_are_rejected_on_a_small_stack() {
    let chains = [
        vec!["1"; 2_000].join("+"),
        vec!["1"; 2_000].join("||"),
        format!("1{}", " IS NULL".repeat(1_300)),
        format!("diaSource.n{}", "::int".repeat(1_300)),
        format!("a{}", "[1]".repeat(1_300)),
        format!("a{}", ".a".repeat(2_000)),
        format!("a{}", " COLLATE b".repeat(1_300)),
        format!("a{}", " AT TIME ZONE 'b'".repeat(800)),
        format!("a{}", " BETWEEN 1 AND 2".repeat(800)),
        format!("CASE {} END", "WHEN TRUE THEN 1 ".repeat(1_000)),
    ];
    std::thread::Builder::new()
        .stack_size(1 << 21)
        .spawn(move || {
            for chain in chains {
                error(&format!("SELECT * FROM alerts WHERE {chain}"));
            }
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn results_have_names_and_types() {
    let catalog = catalog_of(&small_batch());
    let text = "select diaSourceId, diaSource.snr * 2 as twice, diaSource.timeProcessed when_ , \
                last(prvDiaSources.band) AS \"band before\" FROM Alerts WHERE TRUE \
                ORDER  BY diaSource.snr desc, abs( diaSource.n )";
    let filter = Filter::check(text, &catalog).unwrap();
    let columns = filter.columns(&catalog);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["diaSourceId", "twice", "when_", "band before"]);
    assert_eq!(Type::of(&columns[1].1), Some(Type::Float32).map(|_| Type::Float32));
    assert_eq!(filter.ranking(), Some("diaSource.snr DESC, abs(diaSource.n)"));
    assert_eq!((filter.text(), filter.is_packet()), (text, false));
}
