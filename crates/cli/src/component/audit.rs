//! `helio component audit`: commands and their outcomes.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use helio_bus::{Bus, Event, Lagging, Sample, Start, Subscribe, TopicName, WaitSet};
use helio_component::STORED_TIMEOUT;
use helio_core::name::fits;
use serde_json::Value;

use super::observe::shown;
use super::watch::DISCOVERY_INTERVAL;
use crate::args::component::AuditArgs;
use crate::error::{CliError, CliResult};
use crate::open::{existing, look};
use crate::out::Out;
use crate::stop::{Stop, Until};
use crate::value::Values;

/// The most records that are held to print the newest ones.
const LAST_MAX: usize = 100_000;
/// SAL's code of a completed command.
const COMPLETE: i64 = 303;

/// Runs `helio component audit`.
pub(crate) fn run(args: &AuditArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let mut audit = Audit::new(args, &bus)?;
    audit.look_up()?;
    if audit.known.is_empty() {
        let wanted = match &args.components[..] {
            [] => String::new(),
            some => format!(" of {}", some.join(" or ")),
        };
        let text = format!(
            "{} has no audit{wanted} yet; `helio component list` shows who was there",
            bus.url()
        );
        return Err(CliError::NotFound(text));
    }
    audit.newest(stop)?;
    audit.out.flush()?;
    if args.follow { audit.follow(&Until::new(args.duration, stop)) } else { Ok(()) }
}

fn may_fit(patterns: &[String], component: &str) -> bool {
    let own = |pattern: &String| pattern.split(':').next().is_some_and(|p| fits(p, component));
    patterns.is_empty() || patterns.iter().any(own)
}

struct Audit<'a> {
    args: &'a AuditArgs,
    bus: Bus,
    known: HashSet<TopicName>,
    set: WaitSet,
    out: Out,
    values: Values,
}

impl<'a> Audit<'a> {
    fn new(args: &'a AuditArgs, bus: &Bus) -> CliResult<Self> {
        let (known, set) = (HashSet::new(), bus.wait_set()?);
        Ok(Self { args, bus: bus.clone(), known, set, out: Out::new(), values: Values::new(bus) })
    }

    /// Subscribes to new audit topics from their beginning.
    fn look_up(&mut self) -> CliResult {
        for name in self.bus.topics()? {
            if let Some(component) = name.as_str().strip_suffix("/audit")
                && may_fit(&self.args.components, component)
                && !self.known.contains(&name)
                && let Some(topic) = existing(&self.bus, &name)?
            {
                let all = Subscribe::from(Start::Earliest).as_written().lagging(Lagging::Lossless);
                let mut samples = topic.subscribe(all)?;
                samples.set_fence()?;
                self.set.add(samples);
                self.known.insert(name);
            }
        }
        Ok(())
    }

    /// The newest stored records of all components, ordered by time.
    fn newest(&mut self, stop: &Stop) -> CliResult {
        let limit = self.args.last.min(LAST_MAX);
        let mut newest: VecDeque<(i64, Value)> = VecDeque::new();
        while let Some((_, event)) = self.set.next_stored(STORED_TIMEOUT)? {
            stop.check()?;
            let Some(found) = self.wanted(event)? else { continue };
            let place = newest.partition_point(|(time, _)| *time <= found.0);
            newest.insert(place, found);
            if newest.len() > limit {
                newest.pop_front();
            }
        }
        newest.iter().try_for_each(|(_, record)| self.print(record))
    }

    /// Prints new records, also of new components.
    fn follow(&mut self, until: &Until) -> CliResult {
        let mut looked = Instant::now();
        while !until.is_over() {
            if let Some((_, event)) = self.set.next_timeout(until.left())?
                && let Some((_, record)) = self.wanted(event)?
            {
                self.print(&record)?;
                self.out.flush()?;
            }
            if looked.elapsed() >= DISCOVERY_INTERVAL {
                self.look_up()?;
                looked = Instant::now();
            }
            self.out.check()?;
        }
        until.result()
    }

    /// A matching record with its time.
    fn wanted(&mut self, event: Event) -> CliResult<Option<(i64, Value)>> {
        let sample = match event {
            Event::Sample(sample) => sample,
            Event::Gap(gap) => {
                eprintln!("helio: {} records were gone before they could be read", gap.lost);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let Some(record) = self.record(&sample)? else { return Ok(None) };
        let args = self.args;
        let text = |field: &str| record[field].as_str().unwrap_or_default();
        let name = (text("component").to_owned(), record["index"].as_i64().unwrap_or(0) as i32);
        let fit = |pattern: &Option<String>, field: &str| {
            pattern.as_ref().is_none_or(|pattern| fits(pattern, text(field)))
        };
        let declared = text("caller").strip_prefix("declared:");
        let caller = |pattern: &String| {
            fits(pattern, text("caller")) || declared.is_some_and(|name| fits(pattern, name))
        };
        let whole = shown(&name);
        let component = |p: &String| fits(p, &whole) || fits(p, &name.0);
        let failed = text("phase") == "finished" && record["ack"].as_i64() != Some(COMPLETE);
        let wanted = (args.components.is_empty() || args.components.iter().any(component))
            && fit(&args.command, "command")
            && args.caller.as_ref().is_none_or(caller)
            && (!args.failed || failed);
        Ok(wanted.then_some((sample.header.time.nanos(), record)))
    }

    /// A sample as JSON, its time as text.
    fn record(&mut self, sample: &Sample) -> CliResult<Option<Value>> {
        let value = self.values.decode(sample.header.schema, &sample.payload)?;
        let Some(Value::Object(mut record)) = value else { return Ok(None) };
        record.insert("time".to_owned(), sample.header.time.to_utc_string().into());
        Ok(Some(Value::Object(record)))
    }

    fn print(&mut self, record: &Value) -> CliResult {
        if self.args.output.json { self.out.json(record) } else { self.out.line(&line(record)) }
    }
}

/// A record as text.
fn line(record: &Value) -> String {
    let text = |field: &str| record[field].as_str().unwrap_or_default();
    let name = (text("component").to_owned(), record["index"].as_i64().unwrap_or(0) as i32);
    let begin = format!("{} {} {}", text("time"), shown(&name), text("command"));
    if text("phase") == "received" {
        return format!("{begin} {} from {}", text("arguments"), text("caller"));
    }
    let duration_ms = record["duration"].as_f64().unwrap_or(0.0) * 1e3;
    let ack = record["ack"].as_i64().and_then(|ack| i32::try_from(ack).ok());
    let code = ack.and_then(helio_component::protocol::AckCode::from_number);
    let code = code.map_or_else(|| record["ack"].to_string(), |code| code.name().to_owned());
    let result = text("result").lines().next().unwrap_or_default();
    format!("{begin} {code} after {duration_ms:.1} ms: {result} (from {})", text("caller"))
}
