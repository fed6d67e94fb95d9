//! Observes the components of a bus by the topics that all of them have: leases, states,
//! heartbeats, errors, log messages, versions, and the audit of commands.
//!
//! It needs no interface files, because the bus stores the schemas.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use helio_bus::{Alive, Bus, Event, Lagging, Sample, Start, Subscribe, Tai, TopicName, WaitSet};
use helio_component::STORED_TIMEOUT;
use helio_component::protocol::SummaryState;
use helio_core::name::fits;
use serde::Serialize;
use serde_json::Value;

use crate::error::CliResult;
use crate::open::existing_untyped;
use crate::value::Values;

/// A component of another system is declared gone when its heartbeat, due every second, is missing
/// for this time.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to listen for another heartbeat of such a component: the age of a stored one is
/// unknown, because its sender's clock may be wrong.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);

/// The role of a topic for its component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopicRole {
    Lease,
    State,
    Heartbeat,
    Error,
    Log,
    Versions,
    Simulation,
    Audit,
}

/// The observed topics of a component.
const TOPICS: [(&str, TopicRole); 7] = [
    ("event/summaryState", TopicRole::State),
    ("event/heartbeat", TopicRole::Heartbeat),
    ("event/errorCode", TopicRole::Error),
    ("event/logMessage", TopicRole::Log),
    ("event/softwareVersions", TopicRole::Versions),
    ("event/simulationMode", TopicRole::Simulation),
    ("audit", TopicRole::Audit),
];

/// The component of a topic, and the topic's role.
fn told_by(topic: &str) -> Option<(&str, TopicRole)> {
    let (component, rest) = topic.split_once('/')?;
    let told = match rest.strip_prefix("lease/") {
        Some(_) => Some(TopicRole::Lease),
        None => TOPICS.iter().find(|(name, _)| *name == rest).map(|(_, told)| *told),
    };
    told.map(|told| (component, told))
}

/// The presence of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    /// It holds its lease, or its heartbeat is received.
    Here,
    /// It held a lease, or its heartbeat was received.
    Gone,
    /// Neither was observed.
    Unknown,
}

/// The observed status of an instance.
#[derive(Debug, Clone, Default)]
pub(crate) struct InstanceStatus {
    pub(crate) lease: Option<Lease>,
    pub(crate) state: Option<(i64, Tai)>,
    pub(crate) heartbeat: Option<Tai>,
    /// The newest heartbeat of other software.
    pub(crate) foreign: Option<ForeignHeartbeat>,
    pub(crate) error: Option<(i64, String)>,
    pub(crate) log: Option<(i64, String)>,
    pub(crate) version: String,
    pub(crate) simulation: Option<i64>,
    pub(crate) command: Option<Commanded>,
}

/// A heartbeat of a component of other software, which holds no lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignHeartbeat {
    arrived: Instant,
    /// It was stored before, so that its age is unknown.
    stored: bool,
}

/// A lease: its holder, and whether it is held now.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) topic: TopicName,
    pub(crate) held: bool,
    pub(crate) host: String,
    pub(crate) pid: i64,
    pub(crate) software: String,
    pub(crate) interface: String,
}

/// A command and its outcome.
#[derive(Debug, Clone)]
pub(crate) struct Commanded {
    pub(crate) command: String,
    pub(crate) caller: String,
    pub(crate) ack: Option<i64>,
}

impl InstanceStatus {
    /// The presence now. A component without a held lease is known by the heartbeats of other
    /// producers and their arrival here.
    pub(crate) fn presence(&self) -> Presence {
        self.presence_at(Instant::now())
    }

    fn presence_at(&self, now: Instant) -> Presence {
        let age = |beat: ForeignHeartbeat| now.saturating_duration_since(beat.arrived);
        match (&self.lease, self.foreign) {
            (Some(lease), _) if lease.held => Presence::Here,
            (_, Some(beat)) if !beat.stored && age(beat) < HEARTBEAT_TIMEOUT => Presence::Here,
            (_, Some(beat)) if beat.stored && age(beat) < LISTEN_TIMEOUT => Presence::Unknown,
            (Some(_), _) | (_, Some(_)) => Presence::Gone,
            (None, None) => Presence::Unknown,
        }
    }

    /// The age of its newest heartbeat.
    pub(crate) fn heartbeat_age_s(&self, now: Tai) -> Option<f64> {
        self.heartbeat.map(|at| now.nanos().saturating_sub(at.nanos()) as f64 * 1e-9)
    }

    /// Whether it is known by a stored heartbeat of other software alone.
    fn may_be_foreign(&self) -> bool {
        let held = self.lease.as_ref().is_some_and(|lease| lease.held);
        !held && self.foreign.is_some_and(|beat| beat.stored)
    }

    /// The name of its present state. A component that is gone has none, unless its last one was
    /// OFFLINE, which it publishes at its end.
    pub(crate) fn present_state(&self) -> Option<String> {
        let may_last = |name: &String| {
            self.presence() != Presence::Gone || name == SummaryState::Offline.name()
        };
        self.state_name().filter(may_last)
    }

    /// The state for people: `(ENABLED)`, its last one, of a component that is gone.
    pub(crate) fn state_text(&self) -> String {
        match (self.present_state(), self.state_name()) {
            (Some(present), _) => present,
            (None, Some(last)) => format!("({last})"),
            (None, None) => "-".to_owned(),
        }
    }

    /// The name of its last published state.
    pub(crate) fn state_name(&self) -> Option<String> {
        let (number, _) = self.state?;
        let known = i32::try_from(number).ok().and_then(SummaryState::from_number);
        Some(known.map_or_else(|| number.to_string(), |state| state.name().to_owned()))
    }

    /// Its own version, else that of its framework.
    pub(crate) fn version(&self) -> &str {
        match &self.lease {
            Some(lease) if self.version.is_empty() => &lease.software,
            _ => &self.version,
        }
    }
}

/// The identity of an instance.
pub(crate) type Name = (String, i32);

/// `MTMount`, or `ESS:2`.
pub(crate) fn shown(name: &Name) -> String {
    if name.1 == 0 { name.0.clone() } else { format!("{}:{}", name.0, name.1) }
}

/// Observes the components of a bus.
pub(crate) struct Observer {
    bus: Bus,
    values: Values,
    set: WaitSet,
    patterns: Vec<String>,
    wanted: Vec<TopicRole>,
    opened: HashSet<TopicName>,
    /// The topics with a sample that could not be decoded, which was reported.
    undecodable: HashSet<TopicName>,
    pub(crate) known: BTreeMap<Name, InstanceStatus>,
}

impl Observer {
    /// Observes the components that match a pattern (all without patterns), by the given topics.
    pub(crate) fn new(bus: &Bus, patterns: &[String], wanted: &[TopicRole]) -> CliResult<Self> {
        let mut observer = Self {
            bus: bus.clone(),
            values: Values::new(bus),
            set: bus.wait_set()?,
            patterns: patterns.to_vec(),
            wanted: wanted.to_vec(),
            opened: HashSet::new(),
            undecodable: HashSet::new(),
            known: BTreeMap::new(),
        };
        observer.look_up()?;
        Ok(observer)
    }

    /// The observed bus.
    pub(crate) fn url(&self) -> String {
        self.bus.url().to_string()
    }

    /// The time on the bus's clock.
    pub(crate) fn now(&self) -> Tai {
        self.bus.clock().now()
    }

    /// Subscribes to new topics, and queries the leases.
    pub(crate) fn look_up(&mut self) -> CliResult {
        for name in self.bus.topics()? {
            let told = told_by(name.as_str()).filter(|(_, told)| self.wanted.contains(told));
            if told.is_none_or(|(component, _)| !self.may_want(component))
                || self.opened.contains(&name)
            {
                continue;
            }
            let Some(topic) = existing_untyped(&self.bus, &name)? else { continue };
            let newest = Subscribe::from(Start::Last(1)).as_written().lagging(Lagging::Conflate);
            let mut samples = topic.subscribe(newest)?;
            samples.set_fence()?;
            self.set.add(samples);
            self.opened.insert(name);
        }
        self.look_at_leases()
    }

    fn look_at_leases(&mut self) -> CliResult {
        for lease in self.known.values_mut().filter_map(|seen| seen.lease.as_mut()) {
            let Some(topic) = existing_untyped(&self.bus, &lease.topic)? else {
                lease.held = false;
                continue;
            };
            match topic.writers() {
                Ok(all) => lease.held = all.iter().any(|one| one.alive == Some(Alive::Yes)),
                // Unknown: keep the last status.
                Err(error) if error.is_outage() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for an event for at most this time; returns the instance and the topic's role, or
    /// `None` after the timeout.
    pub(crate) fn next(&mut self, wait: Duration) -> CliResult<Option<(Name, TopicRole)>> {
        loop {
            let Some((_, event)) = self.set.next_timeout(wait)? else { return Ok(None) };
            if let Some(found) = self.take(event, false)? {
                return Ok(Some(found));
            }
        }
    }

    /// Processes an event; returns the instance and the topic's role if it is of interest.
    fn take(&mut self, event: Event, stored: bool) -> CliResult<Option<(Name, TopicRole)>> {
        let Event::Sample(sample) = event else { return Ok(None) };
        let Some((component, told)) = told_by(sample.topic.as_str()) else { return Ok(None) };
        let component = component.to_owned();
        let value = match self.values.decode(sample.header.schema, &sample.payload) {
            Ok(value) => value.unwrap_or(Value::Null),
            // A bad schema hides only its own topic.
            Err(error) => {
                if self.undecodable.insert(sample.topic.clone()) {
                    helio_bus::notify(&format!("{} is not shown: {error}", sample.topic));
                }
                return Ok(None);
            }
        };
        let name = (component, index(&value));
        if !self.wants(&name) {
            return Ok(None);
        }
        let seen = self.known.entry(name.clone()).or_default();
        take(seen, told, &sample, &value);
        if told == TopicRole::Heartbeat && sample.header.producer.name.as_str() != shown(&name) {
            seen.foreign = Some(ForeignHeartbeat { arrived: Instant::now(), stored });
        }
        Ok(Some((name, told)))
    }

    /// Reads all stored samples. It listens for components of other software, if only a stored
    /// heartbeat of one is known.
    pub(crate) fn catch_up(&mut self) -> CliResult {
        while let Some((_, event)) = self.set.next_stored(STORED_TIMEOUT)? {
            self.take(event, true)?;
        }
        self.look_at_leases()?;
        let until = Instant::now() + LISTEN_TIMEOUT;
        while self.known.values().any(InstanceStatus::may_be_foreign) && Instant::now() < until {
            self.next(until.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }

    fn may_want(&self, component: &str) -> bool {
        let own = |pattern: &String| pattern.split(':').next().is_some_and(|p| fits(p, component));
        self.patterns.is_empty() || self.patterns.iter().any(own)
    }

    fn wants(&self, name: &Name) -> bool {
        let whole = shown(name);
        let fit = |pattern: &String| fits(pattern, &whole) || fits(pattern, &name.0);
        self.patterns.is_empty() || self.patterns.iter().any(fit)
    }
}

/// The instance of a value.
fn index(value: &Value) -> i32 {
    let index = value.get("salIndex").or_else(|| value.get("index")).and_then(Value::as_i64);
    index.and_then(|index| i32::try_from(index).ok()).unwrap_or(0)
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

fn take(seen: &mut InstanceStatus, told: TopicRole, sample: &Sample, value: &Value) {
    match told {
        TopicRole::Lease => {
            seen.lease = Some(Lease {
                topic: sample.topic.clone(),
                held: true,
                host: text(value, "host"),
                pid: number(value, "pid").unwrap_or(0),
                software: text(value, "software"),
                interface: text(value, "interface"),
            });
        }
        TopicRole::State => {
            seen.state = number(value, "summaryState").map(|state| (state, sample.header.time));
        }
        TopicRole::Heartbeat => seen.heartbeat = Some(sample.header.time),
        TopicRole::Error => {
            let code = number(value, "errorCode").filter(|code| *code != 0);
            seen.error = code.map(|code| (code, text(value, "errorReport")));
        }
        TopicRole::Log => {
            seen.log = number(value, "level").map(|level| (level, text(value, "message")));
        }
        TopicRole::Versions => seen.version = text(value, "cscVersion"),
        TopicRole::Simulation => seen.simulation = number(value, "mode"),
        TopicRole::Audit => {
            seen.command = Some(Commanded {
                command: text(value, "command"),
                caller: text(value, "caller"),
                ack: (text(value, "phase") == "finished").then(|| number(value, "ack")).flatten(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_told_apart() {
        assert_eq!(told_by("ESS/lease/2"), Some(("ESS", TopicRole::Lease)));
        assert_eq!(told_by("MTMount/event/heartbeat"), Some(("MTMount", TopicRole::Heartbeat)));
        assert_eq!(told_by("MTMount/audit"), Some(("MTMount", TopicRole::Audit)));
        assert_eq!(told_by("MTMount/event/target"), None);
        assert_eq!(told_by("notes"), None);
    }

    #[test]
    fn a_component_that_is_gone_is_in_no_state_but_offline() {
        let (topic, host) = ("MTMount/lease/0".parse().unwrap(), String::new());
        let (software, interface) = (String::new(), String::new());
        let lease = |held| Some(Lease { topic, held, host, pid: 1, software, interface });
        let mut seen = InstanceStatus { lease: lease(true), ..InstanceStatus::default() };
        assert_eq!((seen.present_state(), seen.state_text()), (None, "-".to_owned()));
        let mut told = |held: bool, state: SummaryState| {
            if let Some(lease) = &mut seen.lease {
                lease.held = held;
            }
            seen.state = Some((state.number().into(), Tai::from_nanos(0)));
            (seen.present_state(), seen.state_text())
        };
        let word = |word: &str| (Some(word.to_owned()), word.to_owned());
        assert_eq!(told(true, SummaryState::Enabled), word("ENABLED"));
        assert_eq!(told(false, SummaryState::Enabled), (None, "(ENABLED)".to_owned()));
        assert_eq!(told(false, SummaryState::Offline), word("OFFLINE"));
    }

    #[test]
    fn a_component_without_a_lease_is_known_by_its_heartbeat() {
        let arrived = Instant::now();
        let after = |s: u64| arrived + Duration::from_secs(s);
        let mut seen = InstanceStatus::default();
        assert_eq!(seen.presence_at(arrived), Presence::Unknown);
        // The age of a stored one is unknown.
        seen.foreign = Some(ForeignHeartbeat { arrived, stored: true });
        assert_eq!(seen.presence_at(after(2)), Presence::Unknown);
        assert_eq!(seen.presence_at(after(3)), Presence::Gone);
        seen.foreign = Some(ForeignHeartbeat { arrived, stored: false });
        assert_eq!(seen.presence_at(after(2)), Presence::Here);
        assert_eq!(seen.presence_at(after(6)), Presence::Gone);
        // One of ours ran before, and held a lease.
        let (topic, host) = ("ESS/lease/2".parse().unwrap(), String::new());
        let (software, interface) = (String::new(), String::new());
        seen.lease = Some(Lease { topic, held: false, host, pid: 1, software, interface });
        assert_eq!(seen.presence_at(after(2)), Presence::Here);
        assert_eq!(seen.presence_at(after(6)), Presence::Gone);
    }
}
