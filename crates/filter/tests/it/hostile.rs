//! Random and damaged filters: what the fuzzer does, in small.

use std::cell::Cell;

use helio_filter::FUNCTIONS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

use crate::targets::filter_sql;

const NUMBERS: &[&str] =
    &["s.ra", "s.dec", "s.f", "s.i", "s.l", "0", "-1", "2.5", "1e300", "30", "NULL"];
const ARITHMETIC: &[&str] = &["+", "-", "*", "/", "%"];
const COMPARISONS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];
/// Around a number, which is `#`.
const FORMS: &[&str] = &[
    "(- #)",
    "CAST(# AS INT)",
    "TRY_CAST(# AS BIGINT)",
    "CAST(# AS REAL)",
    "CAST(# IS NULL AS DOUBLE)",
    "CASE WHEN s.b THEN # ELSE s.i END",
    "CASE WHEN # IN (1, NULL, 7.5) THEN 1 END",
    "CASE # WHEN 0 THEN 1.5 END",
    "last(h.snr / #)",
    "max(CASE WHEN h.snr > # THEN h.snr END, 2)",
    "count_if(# / h.snr BETWEEN -1 AND 7)",
];
const CONDITIONS: &[&str] = &[
    "NOT #",
    "# AND s.b",
    "# OR s.t LIKE '%g_'",
    "(#) IS UNKNOWN",
    "# AND in_moc('r')",
    "# OR cone(s.ra, s.dec, s.f, 0, 30)",
    "# IN (TRUE, NULL)",
];

fn numbers() -> impl Strategy<Value = String> {
    let leaf = select(NUMBERS).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 2, |inner| {
        let operation = (inner.clone(), select(ARITHMETIC), inner.clone());
        let call = (select(FUNCTIONS), vec(inner.clone(), 1..3));
        prop_oneof![
            operation.prop_map(|(left, op, right)| format!("({left} {op} {right})")),
            call.prop_map(|(function, args)| format!("{}({})", function.name, args.join(", "))),
            (select(FORMS), inner).prop_map(|(form, inner)| form.replace('#', &inner)),
        ]
    })
}

fn conditions() -> impl Strategy<Value = String> {
    let comparison = (numbers(), select(COMPARISONS), numbers());
    (comparison, select(CONDITIONS))
        .prop_map(|((left, op, right), form)| form.replace('#', &format!("{left} {op} {right}")))
}

#[test]
fn random_conditions() {
    let filters = Cell::new(0);
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(1_000) });
    let run = runner.run(&conditions(), |text| {
        filters.set(filters.get() + usize::from(filter_sql(&text)));
        Ok(())
    });
    run.unwrap();
    assert!(filters.get() > 100, "only {} are filters", filters.get());
}

proptest! {
    #![proptest_config(Config::with_cases(1_000))]

    #[test]
    fn damaged_conditions(text in conditions(), noise in ".{0,3}", place: Index, end: Index) {
        let chars: Vec<char> = text.chars().collect();
        let (place, end) = (place.index(chars.len() + 1), end.index(chars.len() + 1));
        let left: String = chars[..place].iter().collect();
        let right: String = chars[end.max(place)..].iter().collect();
        filter_sql(&format!("{left}{noise}{right}"));
    }

    #[test]
    fn noise(text: String) {
        filter_sql(&text);
    }
}
