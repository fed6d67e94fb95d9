//! Workers that end: over a limit, by themselves, by garbage. Each end is named, and another worker
//! serves the next request.

use std::time::Duration;

use helio_sandbox::{Ended, Filter, FilterError, Launch, Limits, StartError};

use crate::support::{numbers, python, rows, select, selected};

/// Limits that tests reach soon; the other ones do not come in between.
fn limits() -> Limits {
    Limits { memory_bytes: 128 << 20, ..Limits::default() }
}

/// How the worker ends that does something for a batch of ten rows; the next batch is served.
fn ends(body: &str, limits: Limits) -> Option<Ended> {
    let python = python()?;
    let text = select(&format!(
        "import ctypes, os, struct, time\n\
         if batch.rows == 10:\n    {body}\nreturn batch['n'] > 0"
    ));
    let mut filter = Filter::start(Launch::python(python), &text, limits).unwrap();
    let error = selected(&mut filter).unwrap_err();
    let FilterError::Ended(ended) = error else { panic!("{body}: {error}") };
    assert_eq!(rows(&filter.select(&numbers(3)).unwrap().0), [1, 2], "{body}");
    Some(ended)
}

#[test]
fn a_filter_that_never_ends_is_ended_by_processor_time() {
    let limits = Limits { cpu: Duration::from_millis(300), ..limits() };
    let Some(ended) = ends("while True: pass", limits) else { return };
    let Ended::Cpu { used, limit } = ended else { panic!("{ended}") };
    assert!(used > limit && limit == Duration::from_millis(300), "{used:?}");
}

#[test]
fn a_filter_that_sleeps_and_ignores_signals_is_ended_by_time() {
    let limits = Limits { time: Duration::from_secs(2), ..limits() };
    let body = "import signal\n    for s in range(1, 32):\n        \
                if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\n    time.sleep(1e6)";
    let Some(ended) = ends(body, limits) else { return };
    let Ended::Time { used, limit } = ended else { panic!("{ended}") };
    assert!(used > limit, "{used:?}");
}

#[test]
fn a_filter_that_allocates_is_ended_by_memory() {
    let grow = "kept = []\n    while True: kept.append(bytearray(1 << 20))";
    let Some(ended) = ends(grow, limits()) else { return };
    let Ended::Memory { bytes, limit_bytes } = ended else { panic!("{ended}") };
    assert!(bytes > limit_bytes && limit_bytes == 128 << 20, "{bytes}");
}

#[test]
fn memory_that_a_filter_keeps_counts_after_its_answer() {
    let Some(python) = python() else { return };
    let text = "kept = []\ndef select(batch):\n    kept.append(b'x' * 10_000_000)\n    \
                return batch['n'] > 0";
    let mut filter = Filter::start(Launch::python(python), text, limits()).unwrap();
    let error = (0..20).find_map(|_| selected(&mut filter).err()).unwrap();
    assert!(matches!(error, FilterError::Ended(Ended::Memory { .. })), "{error}");
    assert_eq!(selected(&mut filter).unwrap().len(), 9);
}

#[test]
fn an_allocation_beyond_the_address_space_is_an_exception() {
    let Some(python) = python() else { return };
    let text = select("if batch.rows == 10: np.ones(10**12)\nreturn batch['n'] > 0");
    let mut filter = Filter::start(Launch::python(python), &text, limits()).unwrap();
    let error = selected(&mut filter).unwrap_err();
    let FilterError::Raised(report) = error else { panic!("{error}") };
    assert!(report.contains("MemoryError"), "{report}");
    assert_eq!(filter.select(&numbers(3)).unwrap().0.count(), 2);
}

#[test]
fn an_exit_and_a_crash_are_reported_with_their_status() {
    for (body, want) in [
        ("os._exit(7)", "exit status: 7"),
        ("ctypes.string_at(0)", "signal: 11 (SIGSEGV)"),
        ("os.close(0); time.sleep(1e6)", "signal: 9 (SIGKILL)"),
    ] {
        let Some(ended) = ends(body, limits()) else { return };
        let Ended::Exited(status) = ended else { panic!("{body}: {ended}") };
        assert!(status.to_string().starts_with(want), "{body}: {status}");
    }
}

#[test]
fn garbage_on_the_connection_ends_the_filter() {
    let Some(python) = python() else { return };
    let forged = |number, mask| format!("struct.pack('<cI', b'M', {number}) + {mask}");
    let messages = [
        ("b'x'".to_owned(), "1 bytes that answer no request"),
        ("b'garbage' * 20".to_owned(), "140 bytes that answer no request"),
        ("b'M' * 150_000".to_owned(), "a message of 150000 bytes"),
        // A worker's first batch is its third request.
        (forged(3, "b'x'"), "an answer M of 1 bytes"),
        (forged(3, "b'xxxx' * 5"), "an answer M of 20 bytes"),
        (forged(3, "bytes([255] * 14)"), "an answer M of 14 bytes"),
        ("struct.pack('<cI', b'?', 3)".to_owned(), "an answer ? of 0 bytes"),
        (forged(2, "bytes(13)"), "18 bytes that answer no request"),
    ];
    let cases = (100..).zip(&messages);
    let body: String = cases
        .clone()
        .map(|(count, (message, _))| format!("if batch.rows == {count}: os.write(0, {message})\n"))
        .collect();
    let text = select(&format!("import os, struct\n{body}return batch['n'] > 0"));
    let limits = Limits { restarts: messages.len(), ..limits() };
    let mut filter = Filter::start(Launch::python(python), &text, limits).unwrap();
    for (count, (message, want)) in cases {
        let error = filter.select(&numbers(count)).unwrap_err();
        let FilterError::Ended(Ended::Garbage(found)) = error else { panic!("{message}: {error}") };
        assert_eq!(found, *want, "{message}");
    }
    assert_eq!(filter.select(&numbers(3)).unwrap().0.count(), 2);
}

#[test]
fn an_answer_too_many_ends_the_filter_at_the_next_request() {
    let Some(python) = python() else { return };
    let text = select(
        "import os, struct\n\
         if batch.rows == 10: os.write(0, struct.pack('<cI', b'M', 3) + bytes([1, 0]))\n\
         return batch['n'] > 0",
    );
    let mut filter = Filter::start(Launch::python(python), &text, limits()).unwrap();
    assert_eq!(selected(&mut filter).unwrap(), [0]); // A filter's own mask, forged or not.
    let error = filter.select(&numbers(3)).unwrap_err();
    let FilterError::Ended(Ended::Garbage(found)) = error else { panic!("{error}") };
    assert_eq!(found, "7 bytes that answer no request");
    assert_eq!(filter.select(&numbers(3)).unwrap().0.count(), 2);
}

#[test]
fn a_filter_that_ends_too_often_is_suspended() {
    let Some(python) = python() else { return };
    let limits = Limits { restarts: 1, ..limits() };
    let text = select("import os\nos._exit(1)");
    let mut filter = Filter::start(Launch::python(python), &text, limits).unwrap();
    for _ in 0..2 {
        assert!(matches!(selected(&mut filter), Err(FilterError::Ended(Ended::Exited(_)))));
    }
    for _ in 0..2 {
        let error = selected(&mut filter).unwrap_err();
        let FilterError::Suspended { restarts: 1, retry_after } = error else { panic!("{error}") };
        assert!(retry_after <= limits.restart_window && !retry_after.is_zero());
    }
}

#[test]
fn a_text_that_never_ends_or_allocates_does_not_start() {
    let Some(python) = python() else { return };
    let limits = Limits { cpu: Duration::from_millis(300), ..limits() };
    let start = |text| Filter::start(Launch::python(&python), text, limits).unwrap_err();
    let error = start("while True: pass");
    assert!(matches!(error, StartError::Ended(Ended::Cpu { .. })), "{error}");
    let error = start("x = []\nwhile True: x.append(bytes(b'x') * (1 << 24))");
    assert!(matches!(error, StartError::Ended(Ended::Memory { .. })), "{error}");
}
