//! State machines over log records: they raise an alarm when a declared sequence appears, or fails
//! to end.
//!
//! ALMA's Log Detector as a value: records and times come in, alarms go out. It has no clock and no
//! bus. Records carry the time; [`Watch::at`] supplies it when there are no records. Memory is
//! bounded: a machine has at most [`MAX_INSTANCES`] active values of its field. Beyond that the
//! oldest is dropped and counted.

mod rules;
mod saved_state;

use std::collections::HashMap;

use helio_core::Tai;

pub use rules::WatchError;
pub use saved_state::WatchStateError;

use crate::level::Level;
use crate::predicate::Views;
use crate::record::{Record, Site};
use crate::value::Value;
use rules::{Alarm, Cause, Machine, State, Transition};

/// The most active values of a machine's field: enough for an observatory's antennas and actuators,
/// but not for each number in a message.
pub const MAX_INSTANCES: usize = 10_000;
/// The most records that an alarm quotes, the latest ones.
const MAX_STEPS: usize = 16;
/// No transition is due.
const NEVER: Tai = Tai::from_nanos(i64::MAX);
/// The prefix of the alarms' loggers. Machines ignore their records.
pub const WATCH_LOGGER: &str = "watch";

/// State machines and their states.
///
/// ```
/// use helio_logging::{Level, Record, Views, Watch};
///
/// let rules = "
/// machines:
///   - name: slews
///     each: antenna
///     states:
///       start:
///         - {when: '\"slew started\"', to: slewing}
///       slewing:
///         - when: '\"slew done\"'
///         - {after: 60s, raise: {message: 'a slew of {antenna} has not ended'}}
/// ";
/// let begin = "2026-11-21T03:00:00Z".parse()?;
/// let mut watch = Watch::read(rules, begin, &Views::default())?;
/// let mut record = Record::new(begin, Level::INFO, "CONTROL/DV11/Mount", "slew started");
/// record.antenna = "DV11".into();
/// assert!(watch.record(&record, begin).is_empty());
/// let alarms = watch.at("2026-11-21T03:01:00Z".parse()?);
/// assert_eq!(alarms[0].message(), "a slew of DV11 has not ended");
/// assert_eq!(alarms[0].level, Level::ALERT);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    machines: Vec<RunningMachine>,
    now: Tai,
    dropped: u64,
}

#[derive(Debug)]
struct RunningMachine {
    machine: Machine,
    /// The instances that have left the first state, by the value of the machine's field.
    instances: HashMap<String, Instance>,
    /// No timed transition is due before this time.
    due: Tai,
}

/// A machine's state for one value.
#[derive(Debug, Clone, PartialEq)]
struct Instance {
    state: usize,
    since: Tai,
    /// The number of records that have matched each transition.
    counts: Vec<u32>,
    /// The records that led to this state.
    steps: Vec<Step>,
    /// The antenna and array of the newest of these records.
    antenna: String,
    array: String,
}

/// A record that a transition has counted.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    time: Tai,
    level: Level,
    logger: String,
    message: String,
}

impl Step {
    fn of(record: &Record) -> Self {
        let (time, level) = (record.time, record.level);
        Self { time, level, logger: record.logger.clone(), message: record.message() }
    }

    fn value(&self) -> Value {
        Value::from(format!("{} {} {}: {}", self.time, self.level, self.logger, self.message))
    }
}

impl Instance {
    fn new(since: Tai, state: &State) -> Self {
        let counts = vec![0; state.ways.len()];
        let (antenna, array) = (String::new(), String::new());
        Self { state: 0, since, counts, steps: Vec::new(), antenna, array }
    }

    /// The timed transition that is due first, and its time.
    fn due(&self, states: &[State]) -> Option<(Tai, usize)> {
        let ways = states[self.state].ways.iter().enumerate();
        let waits = ways.filter_map(|(place, way)| match way.cause {
            Cause::After(nanos) => {
                Some((Tai::from_nanos(self.since.nanos().saturating_add(nanos)), place))
            }
            Cause::Records(..) => None,
        });
        waits.min()
    }

    fn remember(&mut self, record: &Record) {
        if self.steps.len() == MAX_STEPS {
            self.steps.remove(0);
        }
        self.steps.push(Step::of(record));
        self.antenna.clone_from(&record.antenna);
        self.array.clone_from(&record.array);
    }
}

impl Watch {
    /// Reads the machines of a YAML document (`docs/logging.md`), each in its first state. Times in
    /// their predicates, as in `time > -1h`, are relative to `now`.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn read(text: &str, now: Tai, views: &Views) -> Result<Self, WatchError> {
        let machines = rules::read(text, now, views)?;
        let running = |machine| RunningMachine { machine, instances: HashMap::new(), due: now };
        Ok(Self { machines: machines.into_iter().map(running).collect(), now, dropped: 0 })
    }

    /// The machines' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.machines.iter().map(|running| running.machine.name.as_str())
    }

    /// The levels of records that can trigger a transition, in ascending order.
    pub fn levels(&self) -> impl Iterator<Item = Level> {
        let states = self.machines.iter().flat_map(|running| &running.machine.states);
        let mut levels: Vec<_> = states
            .flat_map(|state| &state.ways)
            .filter_map(|way| match &way.cause {
                Cause::Records(selector, _) => Some(selector.levels()),
                Cause::After(_) => None,
            })
            .flatten()
            .collect();
        levels.sort_unstable();
        levels.dedup();
        levels.into_iter()
    }

    /// The number of instances that have left the first state.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.machines.iter().map(|running| running.instances.len()).sum()
    }

    /// The number of instances that were dropped because there were too many.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Processes a record at `now`, which is its own time if its clock is trusted. Returns the
    /// alarms raised by the time until then, and by the record.
    pub fn record(&mut self, record: &Record, now: Tai) -> Vec<Record> {
        let mut raised = self.at(now);
        let own = record.logger.strip_prefix(WATCH_LOGGER);
        if own.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return raised;
        }
        // A late record does not set the time back.
        let now = self.now;
        for running in &mut self.machines {
            self.dropped += running.record(record, now, &mut raised);
        }
        raised
    }

    /// Advances the time. Returns the alarms that this raises.
    pub fn at(&mut self, now: Tai) -> Vec<Record> {
        self.now = self.now.max(now);
        let mut raised = Vec::new();
        for running in &mut self.machines {
            running.at(self.now, &mut raised);
        }
        raised.sort_by_key(|alarm| alarm.time);
        raised
    }
}

impl RunningMachine {
    /// Advances the instance of the record's value. Returns the number of instances dropped for it.
    fn record(&mut self, record: &Record, now: Tai, raised: &mut Vec<Record>) -> u64 {
        let Self { machine, instances, .. } = self;
        let value = match &machine.each {
            None => String::new(),
            Some(field) => match field.shown(record) {
                Some(value) => value,
                None => return 0,
            },
        };
        let state = instances.get(&value).map_or(0, |instance| instance.state);
        let ways = &machine.states[state].ways;
        let matches = |way: &Transition| match &way.cause {
            Cause::Records(selector, _) => selector.matches(record),
            Cause::After(_) => false,
        };
        let Some(place) = ways.iter().position(matches) else { return 0 };
        let mut dropped = 0;
        if instances.len() >= MAX_INSTANCES && !instances.contains_key(&value) {
            let oldest = instances.iter().min_by_key(|(_, instance)| instance.since);
            let oldest = oldest.map(|(value, _)| value.clone());
            dropped = u64::from(oldest.and_then(|value| instances.remove(&value)).is_some());
        }
        let new = || Instance::new(now, &machine.states[0]);
        let instance = instances.entry(value.clone()).or_insert_with(new);
        instance.remember(record);
        instance.counts[place] += 1;
        let way = &machine.states[state].ways[place];
        let needed = if let Cause::Records(_, times) = way.cause { times } else { 1 };
        if instance.counts[place] >= needed {
            self.follow(&value, place, record.time, now, now, raised);
        }
        dropped
    }

    /// Takes timed transitions until none is due.
    fn at(&mut self, now: Tai, raised: &mut Vec<Record>) {
        if now < self.due {
            return;
        }
        if self.waits_at_start() {
            let new = || Instance::new(now, &self.machine.states[0]);
            self.instances.entry(String::new()).or_insert_with(new);
        }
        loop {
            let first = self.instances.iter().filter_map(|(value, instance)| {
                let (due, place) = instance.due(&self.machine.states)?;
                Some((due, value, place))
            });
            let Some((due, value, place)) = first.min() else { break self.due = NEVER };
            if due > now {
                break self.due = due;
            }
            let value = value.clone();
            // A machine that waits in its first state waits from now, not once for each past
            // period.
            self.follow(&value, place, due, due, now, raised);
        }
    }

    /// Whether the machine is one for all records and waits in its first state.
    fn waits_at_start(&self) -> bool {
        let waits = |way: &Transition| matches!(way.cause, Cause::After(_));
        self.machine.each.is_none() && self.machine.states[0].ways.iter().any(waits)
    }

    /// Takes a transition and raises its alarm. The next state is entered at the one time, the
    /// first state at the other.
    fn follow(
        &mut self,
        value: &str,
        place: usize,
        time: Tai,
        next: Tai,
        restart: Tai,
        raised: &mut Vec<Record>,
    ) {
        let waits_at_start = self.waits_at_start();
        let Self { machine, instances, due } = self;
        let Some(instance) = instances.get_mut(value) else { return };
        let state = &machine.states[instance.state];
        let way = &state.ways[place];
        if let Some(alarm) = &way.raise {
            raised.push(raise(machine, alarm, value, instance, &state.name, time));
        }
        match (way.to, waits_at_start) {
            (0, false) => {
                instances.remove(value);
                return;
            }
            (0, true) => *instance = Instance::new(restart, &machine.states[0]),
            (to, _) => {
                (instance.state, instance.since) = (to, next);
                instance.counts = vec![0; machine.states[to].ways.len()];
            }
        }
        if let Some((first, _)) = instance.due(&machine.states) {
            *due = first.min(*due);
        }
    }
}

/// The record of an alarm. The message contains the machine's field in braces.
fn raise(
    machine: &Machine,
    alarm: &Alarm,
    value: &str,
    instance: &Instance,
    state: &str,
    time: Tai,
) -> Record {
    let field = machine.each.as_ref().map(ToString::to_string);
    let names: Vec<_> = field.into_iter().collect();
    let arguments = names.iter().map(|_| Value::from(value)).collect();
    let mut data = vec![("watch.state".to_owned(), Value::from(state))];
    if let Some(name) = names.first() {
        data.push((format!("watch.{name}"), Value::from(value)));
    }
    let steps = instance.steps.iter().map(Step::value).collect();
    data.push(("watch.records".to_owned(), Value::Array(steps)));
    Record {
        time,
        level: alarm.level,
        logger: format!("{WATCH_LOGGER}/{}", machine.name),
        arguments,
        site: Site { template: alarm.message.clone(), names, ..Site::default() },
        audiences: alarm.audiences.clone(),
        antenna: instance.antenna.clone(),
        array: instance.array.clone(),
        log_id: machine.name.clone(),
        data,
        ..Record::default()
    }
}

#[cfg(test)]
mod tests;
