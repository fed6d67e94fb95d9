//! `helio log level`: log levels of running programs.

use std::time::Duration;

use helio_bus::{Bus, Message, Tai};
use helio_component::user_at_host;
use helio_logging::{
    Glob, Lanes, Level, LevelEntry, LevelList, LevelTable, LevelsError, MAX_LEVEL_ENTRIES, Numbers,
    PacketWriter, Record, Value,
};
use serde_json::json;

use super::emit;
use crate::args::log::{LevelClearArgs, LevelCommand, LevelListArgs, LevelSetArgs};
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::{Out, text_table};
use crate::service_error::{ServiceError, ServiceResult};

/// The logger of the audit record of a change.
const LOGGER: &str = "log/levels";
/// The timeout of listing the levels.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `helio log level`.
pub(crate) fn run(command: &LevelCommand, url: Option<&str>) -> CliResult {
    match command {
        LevelCommand::Set(args) => set(args, url),
        LevelCommand::List(args) => list(args, url),
        LevelCommand::Clear(args) => clear(args, url),
    }
}

fn set(args: &LevelSetArgs, url: Option<&str>) -> CliResult {
    if args.time.is_some_and(|time| time.is_zero()) {
        return Err(CliError::Usage("invalid time --for 0; write 10m".to_owned()));
    }
    let (bus, lanes) = (open::connect(url, None)?, args.lanes.lanes());
    let table = LevelTable::make(&bus, &lanes)?;
    let now = bus.clock().now();
    let entry = LevelEntry {
        pattern: args.pattern.clone(),
        remote: args.level,
        local: args.local,
        until: args.time.map(|time| after(now, time)),
        who: user_at_host(),
        why: args.why.reason.clone(),
        when: now,
    };
    let known = table.list(LIST_TIMEOUT).or_cli()?.entries;
    if known.len() >= MAX_LEVEL_ENTRIES && !known.iter().any(|known| known.pattern == entry.pattern)
    {
        return Err(LevelsError::TooMany.into_cli());
    }
    table.set(&entry).or_cli()?;
    audit(&bus, &lanes, "set", &entry)
}

fn clear(args: &LevelClearArgs, url: Option<&str>) -> CliResult {
    let (bus, lanes) = (open::look(url)?, args.lanes.lanes());
    let set = |glob: &Glob| {
        let Some(table) = LevelTable::open(&bus, &lanes)? else { return Ok(None) };
        let entries = table.list(LIST_TIMEOUT).or_cli()?.entries;
        let entry = entries.into_iter().find(|entry| entry.pattern == *glob);
        CliResult::Ok(entry.map(|entry| (table, entry)))
    };
    let Some((table, entry)) = set(&args.pattern)? else {
        return Err(CliError::NotFound(format!(
            "no levels of {} are set; `helio log level list` shows those that are",
            args.pattern
        )));
    };
    let (who, why, when) = (user_at_host(), args.why.reason.clone(), bus.clock().now());
    let entry = LevelEntry { who, why, when, ..entry };
    table.clear(&entry).or_cli()?;
    audit(&bus, &lanes, "cleared", &entry)
}

fn after(now: Tai, time: Duration) -> Tai {
    let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    Tai::from_nanos(now.nanos().saturating_add(nanos))
}

/// Publishes the audit record of a change.
fn audit(bus: &Bus, lanes: &Lanes, done: &str, entry: &LevelEntry) -> CliResult {
    let failed = |error: CliError| {
        let text = format!("the levels are {done}, but their audit record is missing: {error}");
        CliError::Failure(text)
    };
    let told = || {
        let level = Level::NOTICE;
        let mut writer = PacketWriter::default();
        let pushed = writer.push(&record(done, entry));
        pushed.map_err(|error| CliError::Refused(error.to_string()))?;
        let publisher = emit::open(bus, lanes, level)?.publisher()?;
        let numbers = Numbers { lane: Some(level), first: 1, shed: 0 };
        let packet = writer.finish(numbers);
        publisher.publish(Message::new(packet).level(level.number())).wait()?;
        CliResult::Ok(())
    };
    told().map_err(failed)
}

fn record(done: &str, entry: &LevelEntry) -> Record {
    let text = |value: &dyn std::fmt::Display| Value::Text(value.to_string());
    let mut data = vec![
        ("action".to_owned(), text(&done)),
        ("pattern".to_owned(), text(&entry.pattern)),
        ("level".to_owned(), text(&entry.remote)),
    ];
    let local = entry.local.map(|local| ("local", text(&local)));
    let until = entry.until.map(|until| ("until", text(&until.to_utc_string())));
    let who = Some(("who", text(&entry.who)));
    let why = Some(("why", text(&entry.why))).filter(|_| !entry.why.is_empty());
    let more = [local, until, who, why].into_iter().flatten();
    data.extend(more.map(|(name, value)| (name.to_owned(), value)));
    let message = match done {
        "set" => format!("the level of {} is {}", entry.pattern, entry.remote),
        _ => format!("the level of {} is no longer {}", entry.pattern, entry.remote),
    };
    let record = Record::new(entry.when, Level::NOTICE, LOGGER, &message);
    let Record { host, process, .. } = emit::own();
    Record { host, process, data, ..record }
}

fn list(args: &LevelListArgs, url: Option<&str>) -> CliResult {
    let bus = open::look(url)?;
    let mut out = Out::new();
    if let Some(table) = LevelTable::open(&bus, &args.lanes.lanes())? {
        let list = table.list(LIST_TIMEOUT).or_cli()?;
        if args.output.json {
            list.entries.iter().try_for_each(|entry| out.json(&json_of(entry)))?;
        } else {
            lines(&list).iter().try_for_each(|line| out.line(line))?;
        }
        out.flush()?;
        if let Some(last) = &list.last {
            let topic = args.lanes.lanes().levels_name();
            let passed_over = list.passed_over;
            eprintln!("helio: {passed_over} samples of {topic} were skipped; the last: {last}");
        }
    }
    out.flush()
}

fn json_of(entry: &LevelEntry) -> serde_json::Value {
    json!({
        "pattern": entry.pattern.as_str(),
        "level": entry.remote.name(),
        "local": entry.local.map(|local| local.to_string()),
        "until": entry.until.map(Tai::to_utc_string),
        "who": entry.who,
        "why": entry.why,
        "when": entry.when.to_utc_string(),
    })
}

fn lines(list: &LevelList) -> Vec<String> {
    if list.entries.is_empty() {
        return Vec::new();
    }
    // Without fractions of a second.
    let short = |time: Tai| format!("{}Z", time.to_utc_string().get(..19).unwrap_or_default());
    let row = |entry: &LevelEntry| {
        vec![
            plain(entry.pattern.as_str()),
            entry.remote.to_string(),
            entry.local.map_or_else(|| "-".to_owned(), |local| local.to_string()),
            entry.until.map_or_else(|| "cleared".to_owned(), short),
            plain(&entry.who),
            short(entry.when),
            plain(&entry.why),
        ]
    };
    let rows: Vec<_> = list.entries.iter().map(row).collect();
    text_table(&["pattern", "level", "local", "until", "who", "when", "why"], &rows)
}

/// Text of others without control characters, which could move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
