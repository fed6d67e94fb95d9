//! `helio hz`: rates, bandwidth and losses of topics.

use std::time::{Duration, Instant};

use helio_bus::{Bus, Event, Lagging, Member, Start, Subscribe, TopicName, WaitSet};
use helio_core::name::fits;
use serde::Serialize;

use crate::args::HzArgs;
use crate::error::{CliError, CliResult};
use crate::open::{existing_untyped, look_only};
use crate::out::{Out, table};
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};
use crate::units::{human_bytes, human_count};

/// The shortest useful time between two lines.
const MIN_PRINT_INTERVAL: Duration = Duration::from_millis(10);

/// A topic's counts since the last line.
struct Counted {
    topic: TopicName,
    member: Member,
    samples: u64,
    bytes: u64,
    lost_before: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    seconds: f64,
    samples: u64,
    rate_hz: f64,
    bytes: u64,
    bytes_per_s: f64,
    lost: u64,
}

/// Runs `helio hz`.
pub(crate) fn run(args: &HzArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look_only(url)?;
    let mut set = bus.wait_set()?;
    let mut counted = subscribe(&bus, &mut set, args)?;
    let mut out = Out::new();
    let (until, mut total_lost) = (Until::new(args.end.duration, stop), 0);
    while !until.is_over() {
        let begun = Instant::now();
        count(
            &mut set,
            &mut counted,
            begun.checked_add(args.every.max(MIN_PRINT_INTERVAL)),
            &until,
        )?;
        total_lost += print(&mut out, &mut set, &mut counted, begun.elapsed(), args)?;
    }
    until.result()?;
    match total_lost {
        0 => Ok(()),
        lost => Err(CliError::Lost(format!("{lost} samples are lost; see the lines above"))),
    }
}

fn subscribe(bus: &Bus, set: &mut WaitSet, args: &HzArgs) -> CliResult<Vec<Counted>> {
    let wanted = |name: &TopicName| {
        args.topics.is_empty() || args.topics.iter().any(|pattern| fits(pattern, name.as_str()))
    };
    let mut counted = Vec::new();
    for name in bus.topics()?.into_iter().filter(wanted) {
        let Some(topic) = existing_untyped(bus, &name)? else { continue };
        let options = Subscribe::from(Start::Latest).as_written().lagging(Lagging::Lossless);
        let member = set.add(topic.subscribe(options)?);
        counted.push(Counted { topic: name, member, samples: 0, bytes: 0, lost_before: 0 });
    }
    if counted.is_empty() {
        let text = format!("no topic of {} matches; `helio topics` lists them", bus.url());
        return Err(CliError::NotFound(text));
    }
    Ok(counted)
}

fn count(
    set: &mut WaitSet,
    counted: &mut [Counted],
    due: Option<Instant>,
    until: &Until,
) -> CliResult {
    while !until.is_over() {
        let left =
            due.map_or(STOP_POLL_INTERVAL, |due| due.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        let left = left.min(until.left());
        let Some((member, Event::Sample(sample))) = set.next_timeout(left)? else {
            continue;
        };
        // Members are added in order.
        if let Ok(at) = counted.binary_search_by_key(&member, |c| c.member) {
            counted[at].samples += 1;
            counted[at].bytes += sample.payload.len() as u64;
        }
    }
    Ok(())
}

/// Prints one line per topic and resets the counts; returns the samples lost since the last line.
fn print(
    out: &mut Out,
    set: &mut WaitSet,
    counted: &mut [Counted],
    elapsed: Duration,
    args: &HzArgs,
) -> CliResult<u64> {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let mut rows = Vec::new();
    let mut all_lost = 0;
    for one in counted.iter_mut() {
        let lost_by_now = set.get_mut(one.member).map_or(0, |s| s.stats().lost);
        let lost = lost_by_now - one.lost_before;
        all_lost += lost;
        let line = Line {
            topic: one.topic.as_str(),
            seconds: (seconds * 1e3).round() / 1e3,
            samples: one.samples,
            rate_hz: (one.samples as f64 / seconds * 1e3).round() / 1e3,
            bytes: one.bytes,
            bytes_per_s: (one.bytes as f64 / seconds).round(),
            lost,
        };
        if args.output.json {
            out.json(&line)?;
        } else if one.samples > 0 || args.topics.len() == 1 {
            rows.push(row(&line));
        }
        (one.samples, one.bytes, one.lost_before) = (0, 0, lost_by_now);
    }
    if !args.output.json {
        let head = ["topic", "samples", "Hz", "per second", "lost"];
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    Ok(all_lost)
}

fn row(line: &Line<'_>) -> Vec<String> {
    vec![
        line.topic.to_owned(),
        human_count(line.samples),
        format!("{:.1}", line.rate_hz),
        human_bytes(line.bytes_per_s),
        human_count(line.lost),
    ]
}
