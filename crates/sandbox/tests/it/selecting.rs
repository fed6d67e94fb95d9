//! What filters select, and the types that they see.

use helio_sandbox::{
    Batch, Column, Filter, FilterError, Launch, Limits, Number, StartError, Values,
};

use crate::support::{filter, numbers, python, rows, select, selected, start};

#[test]
fn a_filter_selects_rows_batch_after_batch() {
    let Some(python) = python() else { return };
    let mut filter = filter(&python, "return batch['n'] % 3 == 1");
    for count in [10_000, 1, 0, 17] {
        let (mask, usage) = filter.select(&numbers(count)).unwrap();
        let count = usize::try_from(count).unwrap();
        assert_eq!(rows(&mask), (0..count).filter(|n| n % 3 == 1).collect::<Vec<_>>());
        assert!(usage.memory_bytes > 1 << 20 && !usage.cpu.is_zero(), "{usage:?}");
    }
}

#[test]
fn a_list_and_a_masked_array_are_masks() {
    let Some(python) = python() else { return };
    let mut list = filter(&python, "return [n > 7 for n in batch['n']]");
    assert_eq!(selected(&mut list).unwrap(), [8, 9]);
    let masked = "n = batch['n']\nreturn np.ma.MaskedArray(n > 6, n == 8)";
    assert_eq!(selected(&mut filter(&python, masked)).unwrap(), [7, 9]);
}

#[test]
fn a_filter_keeps_what_it_counts() {
    let Some(python) = python() else { return };
    let text =
        "calls = []\ndef select(batch):\n    calls.append(1)\n    return batch['n'] < len(calls)";
    let mut filter = start(&python, text).unwrap();
    assert_eq!(selected(&mut filter).unwrap(), [0]);
    assert_eq!(selected(&mut filter).unwrap(), [0, 1]);
}

fn number<'a>(name: &'a str, kind: Number, bytes: &'a [u8]) -> Column<'a> {
    Column { name, values: Values::Numbers { kind, bytes }, validity: None }
}

/// Whether a filter that asserts things of a batch of three rows selects all of them.
fn holds(columns: &[Column<'_>], body: &str) {
    let Some(python) = python() else { return };
    let batch = Batch::new(3, columns).unwrap();
    let mut filter = filter(&python, &format!("{body}\nreturn [True] * batch.rows"));
    assert_eq!(filter.select(&batch).unwrap().0.count(), 3);
}

#[test]
fn every_type_of_number_is_itself() {
    let bytes = [0x01, 0x02, 0x03, 0xff].repeat(6);
    let kinds = [Number::I8, Number::I16, Number::I32, Number::I64, Number::U8, Number::U16];
    let kinds = kinds.into_iter().chain([Number::U32, Number::U64, Number::F32, Number::F64]);
    let names = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"];
    let columns: Vec<_> = names.into_iter().zip(kinds).map(|(n, k)| number(n, k, &bytes)).collect();
    holds(
        &columns,
        "assert len(batch) == 10\n\
         for name, column in batch.items():\n\
         \x20   want = np.frombuffer(bytes([1, 2, 3, 255] * 6), name)[:3]\n\
         \x20   assert column.dtype == want.dtype and column.tobytes() == want.tobytes(), name",
    );
}

#[test]
fn nulls_are_nan_or_masked() {
    let floats: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let offsets = [0, 1, 1, 3];
    let text = Values::Text { offsets: &offsets, bytes: "aé".as_bytes() };
    let columns = [
        Column { validity: Some(&[0b101]), ..number("f", Number::F32, &floats) },
        Column { validity: Some(&[0b110]), ..number("i", Number::I8, &[7, 8, 9]) },
        Column { name: "b", values: Values::Bools(&[0b011]), validity: Some(&[0b101]) },
        Column { name: "s", values: text, validity: None },
    ];
    holds(
        &columns,
        "assert batch['f'].dtype == np.float32\n\
         assert np.isnan(batch['f']).tolist() == [False, True, False]\n\
         assert (batch['i'] > 7).filled(False).tolist() == [False, True, True]\n\
         assert batch['b'].tolist() == [True, None, False]\n\
         assert batch['s'].tolist() == ['a', '', 'é']",
    );
}

#[test]
fn lists_are_reduced_row_by_row() {
    let flux: Vec<u8> =
        [9.0_f64, 1.0, 5.0, 2.0, 8.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let fields = [number("flux", Number::F64, &flux)];
    // As of a sliced array: the first list begins behind the fields' first value.
    let list = |offsets| Values::List { offsets, fields: &fields };
    let columns = [
        Column { name: "h", values: list(&[1, 3, 3, 5]), validity: None },
        Column { name: "nulls", values: list(&[0, 1, 3, 5]), validity: Some(&[0b101]) },
        Column { name: "empty", values: list(&[2, 2, 2, 2]), validity: None },
    ];
    holds(
        &columns,
        "h, nulls, empty = batch['h'], batch['nulls'], batch['empty']\n\
         assert h.lengths.tolist() == [2, 0, 2] and h['flux'].tolist() == [1, 5, 2, 8]\n\
         assert h.reduce(np.maximum, 'flux', empty=-1).tolist() == [5, -1, 8]\n\
         assert h.reduce(np.add, 'flux', empty=0).tolist() == [6, 0, 10]\n\
         assert nulls.lengths.tolist() == [1, 0, 2]\n\
         assert nulls.reduce(np.add, 'flux', empty=0).tolist() == [9, 0, 10]\n\
         assert np.isnan(empty.reduce(np.add, 'flux')).all()",
    );
}

#[test]
fn an_exception_is_reported_with_its_line_and_the_filter_continues() {
    let Some(python) = python() else { return };
    let text = select("if batch.rows == 10:\n    return batch['flux'] > 1\nreturn batch['n'] > 0");
    let mut filter = start(&python, &text).unwrap();
    let error = selected(&mut filter).unwrap_err();
    let FilterError::Raised(report) = error else { panic!("{error}") };
    let want = "Traceback (most recent call last):\n  File \"<filter>\", line 5, in select\n    \
                return batch['flux'] > 1\n";
    assert!(report.starts_with(want) && report.ends_with("KeyError: 'flux'"), "{report}");
    assert_eq!(filter.select(&numbers(3)).unwrap().0.count(), 2);
}

/// A filter that does one of several things, by the number of rows from 100 on.
fn by_rows<'a>(things: impl IntoIterator<Item = &'a str>) -> Option<Filter> {
    let cases = (100..).zip(things);
    let body: String =
        cases.map(|(rows, thing)| format!("if batch.rows == {rows}: {thing}\n")).collect();
    Some(filter(&python()?, &body))
}

#[test]
fn any_exception_is_reported() {
    let cases = [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ValueError('x' * 100_000)", "xxxx"),
        ("return select(batch)", "RecursionError: maximum recursion depth exceeded"),
        ("batch['n'][0] = 1", "ValueError: assignment destination is read-only"),
    ];
    let Some(mut filter) = by_rows(cases.map(|(raise, _)| raise)) else { return };
    for (count, (raise, end)) in (100..).zip(cases) {
        let error = filter.select(&numbers(count)).unwrap_err();
        let FilterError::Raised(report) = error else { panic!("{raise}: {error}") };
        assert!(report.len() <= 4096 && report.ends_with(end), "{raise}: {report}");
    }
}

#[test]
fn a_result_that_is_no_mask_is_reported() {
    let cases = [
        ("return None", "NoneType of object with the shape ()"),
        ("return [True, False]", "list of bool with the shape (2,)"),
        ("return batch['n']", "ndarray of int32 with the shape (102,)"),
        ("return np.zeros((batch.rows, 1), bool)", "ndarray of bool with the shape (103, 1)"),
        ("return [True, [False]]", "list: "),
    ];
    let Some(mut filter) = by_rows(cases.map(|(result, _)| result)) else { return };
    for (count, (result, want)) in (100..).zip(cases) {
        let error = filter.select(&numbers(count)).unwrap_err();
        let FilterError::Wrong(report) = error else { panic!("{result}: {error}") };
        assert!(report.starts_with(&format!("select returned {want}")), "{report}");
    }
}

#[test]
fn a_text_that_is_no_filter_does_not_start() {
    let Some(python) = python() else { return };
    for (text, want) in [
        ("def select(batch:", "SyntaxError: '(' was never closed"),
        ("x = 1", "NameError: the text defines no function select(batch)"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import scipy", "scipy is not among the modules of filters"),
        ("\0", "null bytes"),
    ] {
        let error = start(&python, text).unwrap_err();
        let StartError::Text(report) = error else { panic!("{text}: {error}") };
        assert!(report.contains(want), "{text}: {report}");
    }
    let long = " ".repeat(65_537);
    assert!(matches!(start(&python, &long), Err(StartError::TextSize(65_537))));
}

#[test]
fn further_modules_are_the_launchs() {
    let Some(python) = python() else { return };
    let text = "import colorsys\ndef select(batch):\n    return batch['n'] > 8";
    assert!(matches!(start(&python, text), Err(StartError::Text(_))));
    let launch =
        |module: &str| Launch { modules: vec![module.to_owned()], ..Launch::python(&python) };
    let mut filter = Filter::start(launch("colorsys"), text, Limits::default()).unwrap();
    assert_eq!(selected(&mut filter).unwrap(), [9]);
    let error = Filter::start(launch("no_such_module"), text, Limits::default()).unwrap_err();
    let StartError::Refused(report) = error else { panic!("{error}") };
    assert!(report.contains("cannot import no_such_module"), "{report}");
}

#[test]
fn what_filters_need_of_python_and_numpy_works_behind_the_guards() {
    let Some(python) = python() else { return };
    let body = "import datetime, json, math, random, re, statistics, sys, time, warnings\n\
                from numpy import fft, linalg\n\
                rng = np.random.default_rng()\n\
                a = rng.normal(size=(300, 300))\n\
                linalg.svd(a), fft.rfft(a), np.sort(a, axis=None), np.quantile(a, 0.5)\n\
                np.polynomial.Polynomial.fit(a[0], a[1], 3), np.unique(a), np.histogram(a)\n\
                np.ma.median(a), np.random.normal(), random.random(), math.sin(1)\n\
                json.loads(json.dumps([1])), re.findall('a+', 'baaa'), statistics.median([1, 2])\n\
                datetime.datetime.now(datetime.UTC), time.perf_counter(), time.sleep(0.001)\n\
                sorted(range(100_000), reverse=True), bytearray(50_000_000)\n\
                datetime.datetime.strptime('2026', '%Y'), 'é'.encode('latin-1')\n\
                print('to nobody' * 100_000), sys.stderr.write('to nobody' * 100_000)\n\
                warnings.warn('to nobody'), np.array([-1.0]) ** 0.5\n\
                return batch['n'] > 8";
    assert_eq!(selected(&mut filter(&python, body)).unwrap(), [9]);
}

#[test]
fn the_pages_filter_selects() {
    let Some(python) = python() else { return };
    let page = include_str!("../../../../docs/filters-python.md");
    let text = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let doubles = |values: &[f64]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    // The second row is no brighter than before, the third is new, the fourth may be bogus.
    let (mag, rb) = (doubles(&[18.0, 18.2, 18.4, 18.0]), doubles(&[0.9, 0.9, 0.9, 0.1]));
    let before = doubles(&[19.0, 18.6, 18.3, 19.0]);
    let fields = [number("mag", Number::F64, &before)];
    let values = Values::List { offsets: &[0, 2, 3, 3, 4], fields: &fields };
    let columns = [
        number("mag", Number::F64, &mag),
        number("rb", Number::F64, &rb),
        Column { name: "history", values, validity: None },
    ];
    let mut filter = start(&python, text).unwrap();
    let (mask, _) = filter.select(&Batch::new(4, &columns).unwrap()).unwrap();
    assert_eq!(rows(&mask), [0, 2]);
}
