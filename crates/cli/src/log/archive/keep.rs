//! `helio log archive`: stores a bus's log records in files.

use helio_log_archive::{ArchiveEvent, ArchiveOptions, Archiver, Retention};
use serde_json::json;

use crate::args::archive::{ArchiveArgs, KeepLevel};
use crate::args::log::From;
use crate::error::CliResult;
use crate::open;
use crate::out::Out;
use crate::outage::wait_out;
use crate::service_error::ServiceResult;
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};
use crate::units::human_count;

/// Runs `helio log archive`.
pub(crate) fn run(args: &ArchiveArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let segment = args.segment as u64;
    let options = args.keep.iter().fold(
        ArchiveOptions::default().segment_bytes(segment),
        |options, KeepLevel(level, keep)| {
            options.retention(*level, Retention { age: keep.age, bytes: keep.bytes })
        },
    );
    let waits = Until::new(args.time.duration, stop);
    let opened = wait_out(&waits, || {
        let bus = open::connect(url, None)?;
        let now = bus.clock().now();
        let start = args.from.as_ref().map(|from| From::start(Some(from), true, now));
        let lanes = args.lanes.lanes();
        let keeper = Archiver::open(&bus, &lanes, &args.folder, options.clone(), start).or_cli()?;
        Ok((bus, keeper))
    })?;
    let Some((_bus, mut keeper)) = opened else { return waits.result() };
    let until = Until::new(args.time.duration, stop);
    let mut archived = 0;
    let mut tell = |told: ArchiveEvent| match told {
        ArchiveEvent::Written { records } => archived += records,
        told => eprintln!("helio: {told}"),
    };
    let mut goes_on = true;
    while !until.is_over() && goes_on {
        goes_on = keeper.step(until.left().min(STOP_POLL_INTERVAL), &mut tell).or_cli()?
            || !keeper.is_ended();
    }
    keeper.finish(&mut tell).or_cli()?;
    if args.output.json {
        let mut out = Out::new();
        out.json(&json!({"records": archived, "folder": args.folder}))?;
        out.flush()?;
    } else {
        eprintln!("helio: {} records were archived", human_count(archived));
    }
    until.result()
}
