//! `helio component audit`: commands, and what became of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Event, Lagging, Sample, Start, Subscribe, WaitSet};
use helio_core::name::fits;
use serde_json::Value;

use super::args::AuditArgs;
use super::observe::shown;
use crate::error::{CliError, CliResult};
use crate::open::{existing, look};
use crate::out::Out;
use crate::stop::{LOOK, Stop};
use crate::value::Values;

/// The most records that are kept to print the newest of.
const LAST_MAX: usize = 100_000;
/// SAL's code of a command that was done.
const COMPLETE: i64 = 303;

/// Runs `helio component audit`.
pub(crate) fn run(args: &AuditArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let mut set = bus.wait_set()?;
    for name in bus.topics()? {
        if let Some(component) = name.as_str().strip_suffix("/audit")
            && may_fit(&args.components, component)
            && let Some(topic) = existing(&bus, &name)?
        {
            let all = Subscribe::from(Start::Earliest).as_written().lagging(Lagging::Lossless);
            set.add(topic.subscribe(all)?);
        }
    }
    if set.is_empty() {
        let text = format!("{} has no audit of such a component yet", bus.url());
        return Err(CliError::NotFound(text));
    }
    let mut printer = Printer { args, out: Out::new(), values: Values::new(&bus) };
    printer.newest(&mut set, stop)?;
    printer.out.flush()?;
    if args.follow { printer.follow(&bus, &mut set, stop) } else { Ok(()) }
}

fn may_fit(patterns: &[String], component: &str) -> bool {
    let own = |pattern: &String| pattern.split(':').next().is_some_and(|p| fits(p, component));
    patterns.is_empty() || patterns.iter().any(own)
}

struct Printer<'a> {
    args: &'a AuditArgs,
    out: Out,
    values: Values,
}

impl Printer<'_> {
    /// The newest of all that lies there, over all components in the order of their times.
    fn newest(&mut self, set: &mut WaitSet, stop: &Stop) -> CliResult {
        let limit = self.args.last.min(LAST_MAX);
        let mut newest: VecDeque<(i64, Value)> = VecDeque::new();
        while let Some((_, event)) = set.try_next()? {
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

    fn follow(&mut self, _bus: &Bus, set: &mut WaitSet, stop: &Stop) -> CliResult {
        let until = self.args.duration.and_then(|time| Instant::now().checked_add(time));
        loop {
            let left = until.map_or(LOOK, |u| u.saturating_duration_since(Instant::now()));
            if stop.asked() {
                let whole = self.args.duration.is_none();
                return if whole { Ok(()) } else { Err(CliError::Interrupted) };
            }
            if left == Duration::ZERO {
                return Ok(());
            }
            if let Some((_, event)) = set.next_timeout(left.min(LOOK))?
                && let Some((_, record)) = self.wanted(event)?
            {
                self.print(&record)?;
                self.out.flush()?;
            }
        }
    }

    /// A record that was asked for, with its time.
    fn wanted(&mut self, event: Event) -> CliResult<Option<(i64, Value)>> {
        let Event::Sample(sample) = event else { return Ok(None) };
        let Some(record) = self.record(&sample)? else { return Ok(None) };
        let args = self.args;
        let text = |field: &str| record[field].as_str().unwrap_or_default();
        let name = (text("component").to_owned(), record["index"].as_i64().unwrap_or(0) as i32);
        let fit = |pattern: &Option<String>, field: &str| {
            pattern.as_ref().is_none_or(|pattern| fits(pattern, text(field)))
        };
        let whole = shown(&name);
        let component = |p: &String| fits(p, &whole) || fits(p, &name.0);
        let failed = text("phase") == "finished" && record["ack"].as_i64() != Some(COMPLETE);
        let wanted = (args.components.is_empty() || args.components.iter().any(component))
            && fit(&args.command, "command")
            && fit(&args.caller, "caller")
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

/// A record for people.
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
