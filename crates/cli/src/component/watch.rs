//! `helio component watch`: a live table on a terminal, else a line per change.

use std::time::{Duration, Instant};

use helio_core::Tai;
use serde_json::{Value, json};

use super::list::{age, presence_word};
use super::observe::{Commanded, InstanceStatus, Name, Observer, Presence, TopicRole, shown};
use crate::args::component::WatchArgs;
use crate::error::CliResult;
use crate::open::look;
use crate::out::{Out, is_screen, text_table};
use crate::screen::{Screen, UserAction};
use crate::stop::{Stop, Until};

/// How often new components are discovered and leases queried.
pub(crate) const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest useful time between two updates.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(50);
/// The longest text in the table.
const TEXT_MAX: usize = 48;
/// The lowest level of a warning (Python's numbers, which SAL uses).
const WARNING_LEVEL: i64 = 30;

/// The topics that the table needs.
pub(crate) const WATCHED_TOPICS: [TopicRole; 8] = [
    TopicRole::Lease,
    TopicRole::State,
    TopicRole::Heartbeat,
    TopicRole::Error,
    TopicRole::Log,
    TopicRole::Versions,
    TopicRole::Simulation,
    TopicRole::Audit,
];

/// Runs `helio component watch`.
pub(crate) fn run(args: &WatchArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let mut observer = Observer::new(&bus, &args.components, &WATCHED_TOPICS)?;
    let until = Until::new(args.end.duration, stop);
    match is_screen() && !args.output.json {
        true => live(&mut observer, args, &until)?,
        false => lines(&mut observer, args, &until)?,
    }
    until.result()
}

/// Shows the live table until the user quits.
fn live(observer: &mut Observer, args: &WatchArgs, until: &Until) -> CliResult {
    let mut screen = Screen::begin()?.with_keys();
    let (every, mut looked) = (args.every.max(MIN_REDRAW_INTERVAL), Instant::now());
    while !until.is_over() {
        observer.catch_up()?;
        if looked.elapsed() >= DISCOVERY_INTERVAL {
            observer.look_up()?;
            looked = Instant::now();
        }
        let mut table = table(observer);
        if table.rows.is_empty() {
            table.rows.push(nobody(args));
        }
        screen.show(&table.head, &table.rows)?;
        let drawn = Instant::now();
        while !until.is_over() && drawn.elapsed() < every {
            observer.next(until.left().min(every.saturating_sub(drawn.elapsed())))?;
            match screen.wish()? {
                UserAction::Quit => return Ok(()),
                UserAction::Draw => break,
                UserAction::None => {}
            }
        }
    }
    Ok(())
}

/// The text of an empty table: a name may be mistyped.
fn nobody(args: &WatchArgs) -> String {
    let wanted = match &args.components[..] {
        [] => String::new(),
        some => format!(" that fits {}", some.join(" or ")),
    };
    format!("no component{wanted} was ever on this bus; it is shown when it starts")
}

/// Prints a line per change: the instance and the new values. Heartbeats are no changes.
fn lines(observer: &mut Observer, args: &WatchArgs, until: &Until) -> CliResult {
    let (mut out, mut looked) = (Out::new(), Instant::now());
    let mut presences: Vec<(Name, Presence)> = Vec::new();
    let (mut wait, mut told_nobody) = (Duration::ZERO, false);
    loop {
        while let Some((name, told)) = observer.next(wait)? {
            wait = Duration::ZERO;
            if told != TopicRole::Heartbeat {
                let change = change(&observer.known[&name], told);
                print(&mut out, args, observer.now(), &name, &change)?;
            }
        }
        for name in changed_presences(observer, &mut presences) {
            let presence = observer.known[&name].presence();
            print(&mut out, args, observer.now(), &name, &json!({"presence": presence}))?;
        }
        out.flush()?;
        out.check()?;
        if observer.known.is_empty() && !std::mem::replace(&mut told_nobody, true) {
            eprintln!("helio: {}", nobody(args));
        }
        if until.is_over() {
            return Ok(());
        }
        if looked.elapsed() >= DISCOVERY_INTERVAL {
            observer.look_up()?;
            looked = Instant::now();
        }
        wait = until.left();
    }
}

fn changed_presences(observer: &Observer, before: &mut Vec<(Name, Presence)>) -> Vec<Name> {
    let present = |(name, seen): (&Name, &InstanceStatus)| (name.clone(), seen.presence());
    let after: Vec<(Name, Presence)> = observer.known.iter().map(present).collect();
    let changed = after.iter().filter(|one| !before.contains(one));
    let names = changed.map(|(name, _)| name.clone()).collect();
    *before = after;
    names
}

fn change(seen: &InstanceStatus, told: TopicRole) -> Value {
    match told {
        TopicRole::Lease => {
            let lease = seen.lease.as_ref();
            json!({"process": lease.map(|lease| lease.pid), "host": lease.map(|l| &l.host)})
        }
        TopicRole::State => json!({"state": seen.state_name()}),
        TopicRole::Error => {
            let (code, report) = seen.error.clone().unwrap_or_default();
            json!({"error_code": code, "error_report": report})
        }
        TopicRole::Log => {
            let (level, message) = seen.log.clone().unwrap_or_default();
            json!({"log_level": level, "log": message})
        }
        TopicRole::Versions => json!({"version": seen.version()}),
        TopicRole::Simulation => json!({"simulation_mode": seen.simulation}),
        TopicRole::Audit => match &seen.command {
            Some(Commanded { command, caller, ack }) => {
                json!({"command": command, "caller": caller, "ack": ack})
            }
            None => json!({}),
        },
        TopicRole::Heartbeat => json!({}),
    }
}

fn print(out: &mut Out, args: &WatchArgs, now: Tai, name: &Name, change: &Value) -> CliResult {
    let said: Vec<(&String, &Value)> = change.as_object().into_iter().flatten().collect();
    if said.iter().all(|(_, value)| **value == "") {
        return Ok(());
    }
    if args.output.json {
        let mut line = json!({"time": now.to_utc_string(), "component": name.0, "index": name.1});
        if let (Some(line), Some(change)) = (line.as_object_mut(), change.as_object()) {
            line.extend(change.clone());
        }
        return out.json(&line);
    }
    let text = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    };
    let said = said.into_iter().filter(|(_, value)| **value != "");
    let said: Vec<String> = said.map(text).collect();
    out.line(&format!("{now} {} {}", shown(name), said.join(", ")))
}

/// The table of all components.
pub(crate) struct Table {
    /// The summary line and the names of the columns.
    pub(crate) head: Vec<String>,
    /// A line per component.
    pub(crate) rows: Vec<String>,
}

/// The table at the present time.
pub(crate) fn table(observer: &Observer) -> Table {
    let now = observer.now();
    let head = ["component", "state", "presence", "heartbeat", "last command", "error", "log"];
    let rows: Vec<Vec<String>> = observer.known.iter().map(|(n, s)| row(n, s, now)).collect();
    let mut table = text_table(&head, &rows);
    let rows = table.split_off(1);
    table.insert(0, title(observer, now));
    Table { head: table, rows }
}

/// The summary: number of components, time, and components in trouble.
fn title(observer: &Observer, now: Tai) -> String {
    let utc = now.to_utc_string();
    let mut title =
        format!("{} components, {}", observer.known.len(), utc.get(..19).unwrap_or(&utc));
    let gone = |seen: &InstanceStatus| seen.presence() == Presence::Gone;
    let fault =
        |seen: &InstanceStatus| !gone(seen) && seen.state_name().as_deref() == Some("FAULT");
    let named = |which: &dyn Fn(&InstanceStatus) -> bool| {
        let fitting = observer.known.iter().filter(|(_, seen)| which(seen));
        fitting.map(|(name, _)| shown(name)).collect::<Vec<_>>()
    };
    for (what, names) in [("gone", named(&gone)), ("FAULT", named(&fault))] {
        if !names.is_empty() {
            title += &format!("; {} {what}: {}", names.len(), names.join(", "));
        }
    }
    title
}

fn row(name: &Name, seen: &InstanceStatus, now: Tai) -> Vec<String> {
    let dash = || "-".to_owned();
    let command = seen.command.as_ref().map(|last| match last.ack {
        Some(303) => last.command.clone(),
        Some(ack) => format!("{} ({ack})", last.command),
        None => format!("{} …", last.command),
    });
    let log = seen.log.as_ref().filter(|(level, _)| *level >= WARNING_LEVEL);
    vec![
        shown(name),
        seen.state_text(),
        presence_word(seen.presence()).to_owned(),
        seen.heartbeat_age_s(now).map_or_else(dash, age),
        command.unwrap_or_else(dash),
        seen.error.as_ref().map_or_else(dash, |(code, report)| clip(&format!("{code} {report}"))),
        log.map_or_else(String::new, |(_, message)| clip(message)),
    ]
}

fn clip(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let plain = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_short_line() {
        assert_eq!(clip("one\ntwo"), "one");
        assert_eq!(clip("a\x1b[2Jb"), "a [2Jb");
        assert_eq!(clip(&"x".repeat(100)).len(), TEXT_MAX);
    }
}
