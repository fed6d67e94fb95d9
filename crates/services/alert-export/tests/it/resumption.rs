//! Exports that are stopped and resumed, at every batch.

use helio_alert_export::{Ended, Export, ExportOptions, FilterQuery, Format, Observer, Progress};

use crate::support::{Stream, files, job};

/// Stops after so many batches.
struct StopAfter(usize);

impl Observer for StopAfter {
    fn progress(&mut self, _: &Progress) {
        self.0 = self.0.saturating_sub(1);
    }

    fn stops(&self) -> bool {
        self.0 == 0
    }
}

/// Fails as a process that is killed: nothing is finished.
struct KillAfter(usize);

impl Observer for KillAfter {
    fn progress(&mut self, _: &Progress) {
        self.0 = self.0.checked_sub(1).unwrap_or_else(|| panic!("killed"));
    }
}

/// Small files, so that a night has many.
fn options(format: Format) -> ExportOptions {
    ExportOptions {
        format,
        part_bytes: 60_000,
        part_input_bytes: 150_000,
        batch_alerts: 16,
        ..Default::default()
    }
}

/// Kills an export after so many batches, and then after so many more each time.
fn interrupted(
    stream: &Stream,
    name: &str,
    options: &ExportOptions,
    mut batches: usize,
    more: usize,
) {
    let folder = stream.target(name);
    for _ in 0..1_000 {
        let mut export = Export::open(&stream.bus, job(&folder), options.clone()).unwrap();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            export.run(&mut KillAfter(batches)).unwrap()
        }));
        drop(export);
        match ran {
            Ok(outcome) => {
                assert!(outcome.is_equal() && outcome.ended != Ended::Stopped);
                return;
            }
            Err(_) => batches += more,
        }
    }
    panic!("no progress");
}

#[test]
fn killed_exports_write_the_same_files() {
    let mut stream = Stream::new();
    stream.publish_night(7);
    for format in [Format::Parquet, Format::Avro] {
        let options = options(format);
        let whole = stream.target(&format!("whole-{format:?}"));
        let outcome = crate::support::export(&stream, &whole, &options);
        assert!(outcome.is_equal() && outcome.totals.files > 3, "{:?}", outcome.totals);
        for every in [1, 2, 3] {
            let name = format!("killed-{format:?}-{every}");
            interrupted(&stream, &name, &options, every, every);
            assert!(files(&whole) == files(&stream.target(&name)), "{format:?} {every}");
        }
    }
}

/// Each run is killed soon after the one before it, while visits are read again.
#[test]
fn exports_that_are_killed_again_and_again_write_the_same_files() {
    let mut stream = Stream::new();
    stream.publish_night(3);
    // Each batch is a file.
    let options = ExportOptions { part_bytes: 1, batch_alerts: 2, ..options(Format::Avro) };
    let whole = stream.target("whole");
    assert!(crate::support::export(&stream, &whole, &options).is_equal());
    for batches in [2, 3] {
        let name = format!("killed-{batches}");
        interrupted(&stream, &name, &options, batches, 0);
        assert!(files(&whole) == files(&stream.target(&name)), "{batches}");
    }
}

#[test]
fn a_killed_export_of_few_alerts_does_not_begin_again() {
    let mut stream = Stream::new();
    stream.publish_night(7);
    let text = "SELECT * FROM alerts WHERE diaSource.snr > 60".to_owned();
    let filter = Some(FilterQuery { text, ..FilterQuery::default() });
    let options = ExportOptions { filter, ..options(Format::Parquet) };
    let whole = stream.target("whole");
    let outcome = crate::support::export(&stream, &whole, &options);
    assert!(outcome.is_equal() && outcome.totals.rows < outcome.totals.alerts / 2);
    interrupted(&stream, "killed", &options, 2, 2);
    assert!(files(&whole) == files(&stream.target("killed")));
}

#[test]
fn a_stopped_export_keeps_what_it_has() {
    let mut stream = Stream::new();
    stream.publish_night(4);
    let folder = stream.target("stopped");
    let options = ExportOptions::default();
    let mut rows = 0;
    loop {
        let mut export = Export::open(&stream.bus, job(&folder), options.clone()).unwrap();
        let outcome = export.run(&mut StopAfter(2)).unwrap();
        if outcome.ended != Ended::Stopped {
            assert!(outcome.is_equal());
            break;
        }
        assert!(outcome.totals.rows > rows, "{outcome:?}");
        rows = outcome.totals.rows;
    }
    let ids = crate::support::sorted(crate::contents::parquet_ids(&folder));
    assert_eq!(ids, crate::support::published(&stream));
}
