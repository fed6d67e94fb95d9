//! The store in this process, without gRPC: puts with the disk every 50 ms, and gets.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state::{Previous, PutRequest, RangeRequest, WriteRequest};
use helio_state_load::objects::sized_value;
use helio_state_load::speed::VALUE_BYTES;
use helio_state_load::summary::Summary;
use helio_state_node::{Options, Store};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, CliResult};
use crate::worker::say;

/// The kind of worker, in [`crate::worker_kinds`].
pub(crate) const KIND: &str = "state-embedded";
/// Keys in turn.
const KEYS: u64 = 1_000;

/// What is measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) folder: PathBuf,
    /// How long each of both is.
    pub(super) time: Duration,
}

/// In a worker: measures.
pub(crate) fn run(task: &Task) -> CliResult {
    let wrong = |error: &dyn std::fmt::Display| CliError::Failure(error.to_string());
    let url = format!("journal:{}", task.folder.join("log").display());
    let bus = Bus::connect(&url)?;
    let options =
        Options { durability: LogDurability::Interval, ..Options::new("helio state bench") };
    let store =
        Store::open(&bus, &task.folder.join("store"), &options).map_err(|error| wrong(&error))?;
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for n in 0.. {
        let request = WriteRequest::Put(PutRequest {
            key: key(n).into(),
            value: Some(sized_value(n, VALUE_BYTES)),
            lease: Some(0),
            previous: Previous::Omit,
        });
        let at = Instant::now();
        store.write(request).wait().map_err(|error| wrong(&error))?;
        puts.push(at.elapsed());
        if begun.elapsed() >= task.time && n >= KEYS {
            break;
        }
    }
    let begun = Instant::now();
    for n in 0.. {
        let request = RangeRequest { key: key(n * 7).into(), ..RangeRequest::default() };
        let at = Instant::now();
        let answer = store.range(&request).map_err(|error| wrong(&error))?;
        gets.push(at.elapsed());
        if answer.kvs.is_empty() {
            return Err(CliError::Lost("a key that was put is absent".to_owned()));
        }
        if begun.elapsed() >= task.time {
            break;
        }
    }
    store.close().map_err(|error| wrong(&error))?;
    let (put, get) = (Summary::of(&puts), Summary::of(&gets));
    say(&serde_json::json!({
        "put_us": super::summary(&put), "get_us": super::summary(&get),
    }))
}

fn key(n: u64) -> String {
    format!("/b/{:04}", n % KEYS)
}
