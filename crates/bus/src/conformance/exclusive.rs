//! Exclusive logs: one owner, whole batches, epochs and watermarks.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::support::{Outcome, ensure, process, unique};
use super::{Check, Failure, Harness};
use crate::error::TransportError;
use crate::exclusive::{Ended, ExclusiveError, ExclusiveLog, LogOptions, NewEpoch, Watermark};
use crate::transport::Support;
use crate::{Bus, TopicName};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "exclusive_owner",
        promise: "an exclusive log has one owner at a time, and its next one finds whole batches, \
                  or it is refused by name",
        run: owner,
    },
    Check {
        name: "exclusive_epochs",
        promise: "an epoch's start says how much of an exclusive log counts, and trimmed offsets \
                  are an error",
        run: epochs,
    },
];

fn open(bus: &Bus, name: &TopicName) -> Result<Arc<dyn ExclusiveLog>, Failure> {
    let offered = bus.capabilities().exclusive_log;
    match bus.exclusive_log(name, &LogOptions::new("conformance")) {
        Ok(log) => {
            ensure!(offered.is_yes(), "opened, although it is no capability");
            Ok(log)
        }
        Err(ExclusiveError::Transport(TransportError::Unsupported { transport, what, remedy })) => {
            ensure!(offered == Support::No, "{transport} cannot {what}, although it says so");
            Err(Failure::Refused(format!("{transport} cannot {what}; {remedy}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn read(log: &Arc<dyn ExclusiveLog>, from: u64) -> Result<Vec<Vec<u8>>, Failure> {
    let mut found = Vec::new();
    log.scan(from..u64::MAX, Watermark::Committed, &mut |_, record| {
        found.push(record.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn owner(harness: &dyn Harness) -> Outcome {
    let name = TopicName::new(&unique("exclusive"))?;
    let (bus, other) = (process(harness)?, process(harness)?);
    let log = open(&bus, &name)?;
    ensure!(log.last_run().ended == Ended::Never, "a new log had an owner");
    let second = other.exclusive_log(&name, &LogOptions::new("second")).map(drop);
    let held = matches!(&second, Err(ExclusiveError::Held { owner, pid, .. })
        if owner == "conformance" && *pid == std::process::id());
    ensure!(held, "a second owner got {second:?}");
    log.begin_epoch(&NewEpoch { number: 1, start: 0, header: b"first" })?;
    for batch in [&[&b"a"[..], b"b"][..], &[b"c"], &[b"", b"d"]] {
        let offsets = log.append(batch)?;
        log.wait(Watermark::Durable, offsets.end, Some(harness.timeout()))?;
        log.commit(offsets.end)?;
    }
    drop(log);
    let log = open(&other, &name)?;
    let run = log.last_run();
    ensure!((run.ended, run.stored) == (Ended::Killed, 5), "found {run:?}");
    ensure!(run.committed == 5 && run.durable == 5, "found {run:?}");
    let expected = [&b"a"[..], b"b", b"c", b"", b"d"];
    ensure!(read(&log, 0)? == expected, "other records are there");
    Ok(log.close()?)
}

fn epochs(harness: &dyn Harness) -> Outcome {
    let name = TopicName::new(&unique("epochs"))?;
    let bus = process(harness)?;
    let log = open(&bus, &name)?;
    log.begin_epoch(&NewEpoch { number: 3, start: 10, header: b"first" })?;
    log.append(&[b"a", b"b", b"c"])?;
    log.commit(11)?;
    let below = log.begin_epoch(&NewEpoch { number: 4, start: 10, header: b"" });
    ensure!(matches!(below, Err(ExclusiveError::Epoch { .. })), "below committed: {below:?}");
    log.begin_epoch(&NewEpoch { number: 4, start: 12, header: b"second" })?;
    let offsets = log.append(&[b"d"])?;
    ensure!(offsets == (12..13), "the epoch went on at {offsets:?}");
    let early = log.read(12, Watermark::Committed).map(drop);
    ensure!(matches!(early, Err(ExclusiveError::Ahead { .. })), "not committed: {early:?}");
    log.commit(13)?;
    ensure!(read(&log, 10)? == [&b"a"[..], b"b", b"d"], "a superseded record counts");
    log.close()?;
    let log = open(&bus, &name)?;
    ensure!(log.last_run().ended == Ended::Cleanly, "{:?}", log.last_run());
    let headers: Vec<_> = log.epochs().into_iter().map(|epoch| epoch.header).collect();
    ensure!(headers == [&b"first"[..], b"second"], "headers {headers:?}");
    log.trim(11)?;
    let trimmed = log.read(10, Watermark::Committed).map(drop);
    let first = matches!(trimmed, Err(ExclusiveError::Trimmed { offset: 10, first: 11 }));
    ensure!(first, "a trimmed record: {trimmed:?}");
    ensure!(read(&log, 11)? == [&b"b"[..], b"d"], "others were trimmed");
    Ok(log.close()?)
}
