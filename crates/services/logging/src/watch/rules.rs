//! Parses the declaration of state machines in YAML.

use helio_core::Tai;
use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::level::Level;
use crate::predicate::{FieldName, Predicate, Selector, Views, span};
use crate::record::{Audiences, audience};

/// The longest document, in bytes: some thousand machines.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// The most machines of a document: each is matched with every record.
const MAX_MACHINES: usize = 1_024;
/// The most states of a machine, and transitions of a state.
const MAX_STATES: usize = 256;
/// The first state.
const START: &str = "start";

/// An error in a document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{cause}; {remedy}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct WatchError {
    /// The line, from 1, if known.
    pub line: Option<u64>,
    /// The error.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    machines: Vec<MachineText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
    name: Spanned<String>,
    each: Option<Spanned<String>>,
    states: std::collections::BTreeMap<String, Vec<TransitionText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransitionText {
    when: Option<Spanned<String>>,
    times: Option<Spanned<u32>>,
    after: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    raise: Option<AlarmText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlarmText {
    level: Option<Spanned<String>>,
    message: String,
    audience: Option<String>,
}

/// The declaration of a machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    /// One instance for each value of this field; none means one for all records.
    pub(super) each: Option<FieldName>,
    /// The states, the first state first.
    pub(super) states: Vec<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) ways: Vec<Transition>,
}

/// A transition.
#[derive(Debug)]
pub(super) struct Transition {
    pub(super) cause: Cause,
    pub(super) to: usize,
    pub(super) raise: Option<Alarm>,
}

#[derive(Debug)]
pub(super) enum Cause {
    /// After this many matching records since the state was entered.
    Records(Selector, u32),
    /// After this many nanoseconds since then.
    After(i64),
}

#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) audiences: Audiences,
}

fn wrong<T>(at: Option<u64>, cause: impl Into<String>, remedy: &str) -> Result<T, WatchError> {
    Err(WatchError { line: at, cause: cause.into(), remedy: remedy.to_owned() })
}

fn line<T>(spanned: &Spanned<T>) -> Option<u64> {
    Some(spanned.referenced.line())
}

/// Reads a document. Times in its predicates, as in `time > -1h`, are relative to `now`.
pub(super) fn read(text: &str, now: Tai, views: &Views) -> Result<Vec<Machine>, WatchError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let cause = format!("the document has {} bytes", text.len());
        return wrong(None, cause, "split it; 1 MiB is the most");
    }
    let document: Document = serde_saphyr::from_str(text).map_err(|error| WatchError {
        line: error.location().map(|at| at.line()),
        cause: error.without_snippet().to_string(),
        remedy: "write `machines:`, each with `name` and `states`".to_owned(),
    })?;
    if document.machines.len() > MAX_MACHINES {
        return wrong(None, "there are too many machines", "1,024 are the most");
    }
    let mut machines: Vec<Machine> = Vec::new();
    for written in &document.machines {
        if machines.iter().any(|known| known.name == written.name.value) {
            let cause = format!("there are two machines {:?}", written.name.value);
            return wrong(line(&written.name), cause, "give each a name of its own");
        }
        machines.push(machine(written, now, views)?);
    }
    Ok(machines)
}

fn machine(written: &MachineText, now: Tai, views: &Views) -> Result<Machine, WatchError> {
    let at = line(&written.name);
    let each = match &written.each {
        None => None,
        Some(field) => Some(field.value.parse::<FieldName>().or_else(|error| {
            wrong(line(field), format!("each: {error}"), "name a field, such as antenna")
        })?),
    };
    // `start` is the first state, whatever the order of names.
    let mut names: Vec<&str> = written.states.keys().map(String::as_str).collect();
    names.sort_by_key(|name| *name != START);
    if names.first() != Some(&START) {
        return wrong(at, "there is no state `start`", "declare it: each machine begins there");
    }
    if names.len() > MAX_STATES || written.states.values().any(|ways| ways.len() > MAX_STATES) {
        return wrong(at, "it has too many states, or ways out of one", "256 are the most");
    }
    let state = |name: &&str| {
        let ways = &written.states[*name];
        let ways = ways.iter().map(|written| way(written, &names, now, views));
        Ok(State { name: (*name).to_owned(), ways: ways.collect::<Result<_, WatchError>>()? })
    };
    let states = names.iter().map(state).collect::<Result<Vec<_>, WatchError>>()?;
    let waits = |way: &Transition| matches!(way.cause, Cause::After(_));
    if each.is_some() && states[0].ways.iter().any(waits) {
        let cause = "`after` in `start` never begins where there is a machine for each value";
        return wrong(at, cause, "wait in a state that a record has led to");
    }
    Ok(Machine { name: written.name.value.clone(), each, states })
}

fn way(
    written: &TransitionText,
    names: &[&str],
    now: Tai,
    views: &Views,
) -> Result<Transition, WatchError> {
    let cause = match (&written.when, &written.after) {
        (Some(when), None) => {
            let times = written.times.as_ref().map_or(1, |times| times.value);
            if times == 0 {
                let at = written.times.as_ref().and_then(line);
                return wrong(at, "`times` is 0", "write 1 or more, or leave it out");
            }
            Cause::Records(selector(when, now, views)?, times)
        }
        (None, Some(after)) => {
            let time = span(&after.value).filter(|nanos| *nanos > 0);
            let Some(nanos) = time else {
                let cause = format!("invalid duration {:?}", after.value);
                return wrong(line(after), cause, "write it like 30s, 250ms or 1h30m");
            };
            Cause::After(nanos)
        }
        (when, after) => {
            let at = when.as_ref().or(after.as_ref()).and_then(line);
            return wrong(at, "a way out of a state has no single cause", "write when or after");
        }
    };
    let to = match &written.to {
        None => 0,
        Some(to) => match names.iter().position(|name| *name == to.value) {
            Some(place) => place,
            None => {
                let cause = format!("there is no state {:?}", to.value);
                let remedy = format!("the states are {}", names.join(", "));
                return wrong(line(to), cause, &remedy);
            }
        },
    };
    let raise = written.raise.as_ref().map(alarm).transpose()?;
    Ok(Transition { cause, to, raise })
}

fn selector(when: &Spanned<String>, now: Tai, views: &Views) -> Result<Selector, WatchError> {
    let refused = |error: String| WatchError {
        line: line(when),
        cause: format!("when: {error}"),
        remedy: "docs/logging.md has the grammar of predicates".to_owned(),
    };
    let predicate: Predicate = when.value.parse().map_err(|e| refused(format!("{e}")))?;
    predicate.compile(now, views).map_err(|e| refused(format!("{e}")))
}

fn alarm(written: &AlarmText) -> Result<Alarm, WatchError> {
    let level = match &written.level {
        None => Level::ALERT,
        Some(level) => level.value.parse().or_else(|error| {
            wrong(line(level), format!("{error}"), "write ALERT, ERROR or another level")
        })?,
    };
    let audiences = match written.audience.as_deref() {
        None => Audiences::of([audience::OPERATOR]),
        Some("*") => Audiences::everyone(),
        Some(name) => Audiences::of([name]),
    };
    Ok(Alarm { level, message: written.message.clone(), audiences })
}
