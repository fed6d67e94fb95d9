//! `helio component watch`: a live table on a terminal, a line for each change elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use helio_core::Tai;
use serde_json::{Value, json};

use super::args::WatchArgs;
use super::list::{age, presence_word};
use super::observe::{Commanded, Name, Observer, Presence, Seen, Told, shown};
use crate::error::{CliError, CliResult};
use crate::open::look;
use crate::out::{Out, text_table};
use crate::stop::{LOOK, Stop};

/// How often components that are new are looked for, and leases looked at.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(1);
/// The shortest time between two drawings that the eye can follow.
const EVERY_MIN: Duration = Duration::from_millis(50);
/// So much of a text is shown in the table.
const TEXT_MAX: usize = 48;
/// From this level on a log message is a warning (Python's numbers, which SAL has).
const WARNING: i64 = 30;

/// What is looked at for the table.
pub(crate) const WANTED: [Told; 8] = [
    Told::Lease,
    Told::State,
    Told::Heartbeat,
    Told::Error,
    Told::Log,
    Told::Versions,
    Told::Simulation,
    Told::Audit,
];

/// Runs `helio component watch`.
pub(crate) fn run(args: &WatchArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let mut observer = Observer::new(&bus, &args.components, &WANTED)?;
    let terminal = std::io::stdout().is_terminal() && !args.output.json;
    let ended = if terminal {
        Screen::begin()?.run(&mut observer, args, stop)
    } else {
        lines(&mut observer, args, stop)
    };
    ended?;
    match stop.asked() && args.duration.is_some() {
        true => Err(CliError::Interrupted),
        false => Ok(()),
    }
}

/// The time until something is to be done, or until the next look whether to stop.
fn left(until: Option<Instant>) -> Duration {
    until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK))
}

fn over(until: Option<Instant>, stop: &Stop) -> bool {
    stop.asked() || until.is_some_and(|until| until <= Instant::now())
}

/// A line for each change: who, and what is different now. A heartbeat is none.
fn lines(observer: &mut Observer, args: &WatchArgs, stop: &Stop) -> CliResult {
    let (mut out, until, mut looked) = (Out::new(), args.until(), Instant::now());
    let mut presences: Vec<(Name, Presence)> = Vec::new();
    loop {
        while let Some((name, told)) = observer.next(Duration::ZERO)? {
            if told != Told::Heartbeat {
                let seen = &observer.known[&name];
                let change = change(seen, told);
                print(&mut out, args, observer.now(), &name, &change)?;
            }
        }
        for name in changed_presences(observer, &mut presences) {
            let presence = observer.known[&name].presence(observer.now());
            print(&mut out, args, observer.now(), &name, &json!({"presence": presence}))?;
        }
        out.flush()?;
        if over(until, stop) {
            return Ok(());
        }
        if looked.elapsed() >= LOOK_UP {
            observer.look_up()?;
            looked = Instant::now();
        }
        if let Some((name, told)) = observer.next(left(until))?
            && told != Told::Heartbeat
        {
            let change = change(&observer.known[&name], told);
            print(&mut out, args, observer.now(), &name, &change)?;
        }
    }
}

fn changed_presences(observer: &Observer, before: &mut Vec<(Name, Presence)>) -> Vec<Name> {
    let now = observer.now();
    let present = |(name, seen): (&Name, &Seen)| (name.clone(), seen.presence(now));
    let after: Vec<(Name, Presence)> = observer.known.iter().map(present).collect();
    let changed = after.iter().filter(|one| !before.contains(one));
    let names = changed.map(|(name, _)| name.clone()).collect();
    *before = after;
    names
}

fn change(seen: &Seen, told: Told) -> Value {
    match told {
        Told::Lease => {
            let lease = seen.lease.as_ref();
            json!({"process": lease.map(|lease| lease.pid), "host": lease.map(|l| &l.host)})
        }
        Told::State => json!({"state": seen.state_name()}),
        Told::Error => {
            let (code, report) = seen.error.clone().unwrap_or_default();
            json!({"error_code": code, "error_report": report})
        }
        Told::Log => {
            let (level, message) = seen.log.clone().unwrap_or_default();
            json!({"log_level": level, "log": message})
        }
        Told::Versions => json!({"version": seen.version()}),
        Told::Simulation => json!({"simulation_mode": seen.simulation}),
        Told::Audit => match &seen.command {
            Some(Commanded { command, caller, ack }) => {
                json!({"command": command, "caller": caller, "ack": ack})
            }
            None => json!({}),
        },
        Told::Heartbeat => json!({}),
    }
}

fn print(out: &mut Out, args: &WatchArgs, now: Tai, name: &Name, change: &Value) -> CliResult {
    if args.output.json {
        let mut line = json!({"time": now.to_utc_string(), "component": name.0, "index": name.1});
        if let (Some(line), Some(change)) = (line.as_object_mut(), change.as_object()) {
            line.extend(change.clone());
        }
        return out.json(&line);
    }
    let said = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    };
    let said: Vec<String> = change.as_object().into_iter().flatten().map(said).collect();
    out.line(&format!("{now} {} {}", shown(name), said.join(", ")))
}

/// A screen of its own on the terminal, which is given back at the end.
pub(crate) struct Screen(Out);

impl Screen {
    /// Takes the terminal.
    pub(crate) fn begin() -> CliResult<Self> {
        let mut out = Out::new();
        // The alternate screen, without a cursor.
        out.raw(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(Self(out))
    }

    fn run(mut self, observer: &mut Observer, args: &WatchArgs, stop: &Stop) -> CliResult {
        let until = args.until();
        let every = args.every.max(EVERY_MIN);
        let mut looked = Instant::now();
        while !over(until, stop) {
            observer.catch_up()?;
            if looked.elapsed() >= LOOK_UP {
                observer.look_up()?;
                looked = Instant::now();
            }
            self.show(&table(observer))?;
            let next = Instant::now() + every;
            while !over(until, stop) && Instant::now() < next {
                observer.next(left(Some(next)))?;
            }
        }
        Ok(())
    }

    /// Shows lines from the top; those for which there is no room are left out.
    pub(crate) fn show(&mut self, all: &[String]) -> CliResult {
        let (columns, lines) = size();
        self.0.raw(b"\x1b[H")?;
        // The last line stays free: writing there would scroll.
        for line in all.iter().take(lines.saturating_sub(1)) {
            let line: String = line.chars().take(columns).collect();
            self.0.line(&format!("{}\x1b[K", coloured(&line)))?;
        }
        self.0.raw(b"\x1b[J")?;
        self.0.flush()
    }
}

/// What is known of all components: when, and a table.
pub(crate) fn table(observer: &Observer) -> Vec<String> {
    let now = observer.now();
    let head = ["component", "state", "presence", "heartbeat", "last command", "error", "log"];
    let rows: Vec<Vec<String>> = observer.known.iter().map(|(n, s)| row(n, s, now)).collect();
    let utc = now.to_utc_string();
    let title = format!("{} components, {}", rows.len(), utc.get(..19).unwrap_or(&utc));
    std::iter::once(title).chain(text_table(&head, &rows)).collect()
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever closed the terminal does not need it back.
        let _ = self.0.raw(b"\x1b[?25h\x1b[?1049l").and_then(|()| self.0.flush());
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// A line of the table with what needs a look in red, and what is at work in green.
fn coloured(line: &str) -> String {
    let colours =
        [("FAULT", 31), (" gone ", 31), ("ENABLED", 32), ("DISABLED", 33), ("STANDBY", 36)];
    match colours.iter().find(|(word, _)| line.contains(word)) {
        Some((word, colour)) => line.replacen(word, &format!("\x1b[{colour}m{word}\x1b[0m"), 1),
        None => line.to_owned(),
    }
}

fn row(name: &Name, seen: &Seen, now: Tai) -> Vec<String> {
    let dash = || "-".to_owned();
    let command = seen.command.as_ref().map(|last| match last.ack {
        Some(303) => last.command.clone(),
        Some(ack) => format!("{} ({ack})", last.command),
        None => format!("{} …", last.command),
    });
    let log = seen.log.as_ref().filter(|(level, _)| *level >= WARNING);
    vec![
        shown(name),
        seen.state_name().unwrap_or_else(dash),
        presence_word(seen.presence(now)).to_owned(),
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
    fn what_needs_a_look_is_red() {
        assert_eq!(coloured("a  FAULT  here"), "a  \x1b[31mFAULT\x1b[0m  here");
        assert_eq!(coloured("a  ENABLED  gone  x"), "a  ENABLED \x1b[31m gone \x1b[0m x");
        assert_eq!(coloured("nothing"), "nothing");
    }

    #[test]
    fn texts_are_one_short_line() {
        assert_eq!(clip("one\ntwo"), "one");
        assert_eq!(clip("a\x1b[2Jb"), "a [2Jb");
        assert_eq!(clip(&"x".repeat(100)).len(), TEXT_MAX);
    }
}
