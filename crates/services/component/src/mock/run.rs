//! Running simulated components: they hold leases, accept every command, and publish by the table.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Evolution, Tai, TopicError};
use helio_core::sal::{Component as Interfaced, Interfaces, Topic, TopicKind};
use thiserror::Error;

use super::pointing::{Pointing, Targets};
use super::{Due, MockSchedule, MockValues};
use crate::component::{Command, Component, Failed, Running, SoftwareVersions, StartError};
use crate::create_topics::create_topics;
use crate::interface::{Interface, InterfaceError};
use crate::protocol::caller::MissingFields;
use crate::protocol::{StateCommand, SummaryState};
use crate::rates::Rates;
use crate::remote::{Remote, RemoteOptions};
use crate::topic::WriteError;
use crate::write::WriteTopic;

/// Events that a component publishes itself.
const GENERIC_EVENTS: [&str; 9] = [
    "summaryState",
    "heartbeat",
    "errorCode",
    "logLevel",
    "logMessage",
    "simulationMode",
    "softwareVersions",
    "configurationApplied",
    "configurationsAvailable",
];

/// How long the end waits for receipts: far longer than a healthy engine needs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Fields with the time that a stream command is for.
const TIME_FIELDS: [&str; 2] = ["taiTime", "tai"];

/// Why components could not be simulated.
#[derive(Debug, Error)]
pub enum MockError {
    /// The interfaces have no such component, or it has no such instance.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A component could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The topics cannot be created.
    #[error("the topics of the components cannot be made: {0}")]
    Topics(TopicError),
    /// A topic can no longer be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No thread can be started.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// A topic that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTopic {
    /// The topic's name on the bus.
    pub topic: String,
    /// Why: the bus refuses its schema, or no values can be generated for it.
    pub reason: String,
}

/// The counters of the published messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MockCounts {
    /// Telemetry and events by the table.
    pub published: u64,
    /// Their bytes, public fields only.
    pub bytes: u64,
    /// Due messages that were not published because the bus was unreachable or the lease
    /// unconfirmed.
    pub withheld: u64,
    /// Stream commands that were sent.
    pub commands: u64,
    /// Late stream commands: sent too late, or received too late by a simulated component.
    pub late_commands: u64,
}

/// The components to simulate.
#[derive(Debug, Clone)]
pub struct MockOptions {
    /// Names and indices; 0 if a component is not indexed.
    pub instances: Vec<(String, i32)>,
    /// The initial state.
    pub state: SummaryState,
    /// The evolution policy of their topics ([`Interface::evolution`]).
    pub evolution: Option<Evolution>,
}

impl MockOptions {
    /// The instances with their interfaces; instances of a component share one.
    ///
    /// # Errors
    /// [`InterfaceError`] for an unknown component.
    pub fn instances(
        &self,
        interfaces: &Interfaces,
    ) -> Result<Vec<(Interface, i32)>, InterfaceError> {
        let (mut known, mut instances) = (HashMap::new(), Vec::new());
        for (name, index) in &self.instances {
            let interface = match known.get(name) {
                Some(interface) => Interface::clone(interface),
                None => Interface::of(interfaces, name)?.evolution(self.evolution),
            };
            known.insert(name, interface.clone());
            instances.push((interface, *index));
        }
        Ok(instances)
    }
}

/// Simulated components of one process. Dropping them ends them in order.
#[derive(Debug)]
pub struct Mock {
    components: Vec<Running>,
    topics: Vec<Simulated>,
    pointing: Vec<Pointing>,
    skipped: Vec<SkippedTopic>,
    begin: Tai,
    counts: MockCounts,
    encoded: Vec<u8>,
}

/// A topic or command that is sent at a rate.
#[derive(Debug)]
struct Simulated {
    hz: f64,
    to: Target,
}

#[derive(Debug)]
enum Target {
    Topic(WriteTopic, Box<MockValues>),
    Command { pointing: usize, component: usize, name: String },
}

impl Mock {
    /// Starts simulated components. When this returns they accept commands; messages at a rate
    /// begin with [`publish_until`](Self::publish_until). A topic that cannot be published is
    /// [skipped](Self::skipped).
    ///
    /// # Errors
    /// [`MockError`] of a component that cannot run; none runs then.
    pub fn start(
        bus: &Bus,
        interfaces: &Interfaces,
        options: &MockOptions,
    ) -> Result<Self, MockError> {
        let mut mock = Self {
            components: Vec::new(),
            topics: Vec::new(),
            pointing: Vec::new(),
            skipped: Vec::new(),
            begin: bus.clock().now(),
            counts: MockCounts::default(),
            encoded: Vec::new(),
        };
        let mut instances = options.instances(interfaces)?;
        // All topics together, before each component waits for its own.
        create_topics(
            bus,
            instances.iter().map(|(interface, index)| (interface, *index)),
            |_, _| {},
        )
        .map_err(MockError::Topics)?;
        // Components with the most topics first: the last one to begin has the least work.
        let topics = |interface: &Interface| interface.component().topics().len();
        instances.sort_by_key(|(interface, _)| std::cmp::Reverse(topics(interface)));
        let start =
            |one: &(Interface, i32)| SimulatedComponent::start(bus, &one.0, one.1, options.state);
        for one in helio_bus::parallel_map(&instances, start) {
            mock.add(one?);
        }
        Ok(mock)
    }

    /// Topics that are not simulated, and why.
    #[must_use]
    pub fn skipped(&self) -> &[SkippedTopic] {
        &self.skipped
    }

    /// Replaces the standard table of rates.
    #[must_use]
    pub fn with_rates(mut self, rates: &Rates) -> Self {
        for simulated in &mut self.topics {
            simulated.hz = match &simulated.to {
                Target::Topic(topic, _) => rates.of(topic.shape().topic()),
                Target::Command { component, name, .. } => {
                    let component = self.components[*component].interface().name();
                    rates.hz(component, TopicKind::Command, name)
                }
            };
        }
        self
    }

    /// The number of components.
    #[must_use]
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// Whether there is no component.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Messages per second by the table, including stream commands.
    #[must_use]
    pub fn hz(&self) -> f64 {
        self.topics.iter().map(|topic| topic.hz).sum()
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> MockCounts {
        let streams = |component: &Running| {
            let commands = component.interface().names(TopicKind::Command);
            let late = commands.filter_map(|name| component.stream(name)).map(|stats| stats.late);
            late.sum::<u64>()
        };
        let late: u64 = self.components.iter().map(streams).sum();
        let sent: u64 = self.pointing.iter().map(Pointing::late).sum();
        MockCounts { late_commands: late + sent, ..self.counts }
    }

    /// Publishes by the table of rates, multiplied by `scale`, from `begin`; each message has the
    /// time when it is due. `wait` waits until that time and returns false to end; then pending
    /// receipts are awaited for at most 10 s.
    ///
    /// # Errors
    /// [`MockError`] of the first message that could not be published.
    pub fn publish_until(
        &mut self,
        begin: Tai,
        scale: f64,
        mut wait: impl FnMut(Tai) -> bool,
    ) -> Result<(), MockError> {
        self.begin = begin;
        let mut schedule = MockSchedule::new(self.topics.iter().map(|topic| topic.hz * scale));
        while let Some(next_ns) = schedule.peek_ns() {
            if !wait(self.at(next_ns)) {
                return self.settle();
            }
            if let Some(due) = schedule.next_before(next_ns + 1) {
                self.publish(due)?;
            }
        }
        // No topic has a rate: wait for the end.
        while wait(Tai::from_nanos(i64::MAX)) {}
        Ok(())
    }

    /// Waits for all receipts, and until every command is sent.
    fn settle(&self) -> Result<(), MockError> {
        self.pointing.iter().for_each(Pointing::settle);
        let until = Instant::now() + SETTLE_TIMEOUT;
        let topics = self.topics.iter().filter_map(|simulated| match &simulated.to {
            Target::Topic(topic, _) => Some(topic),
            Target::Command { .. } => None,
        });
        let left = || until.saturating_duration_since(Instant::now());
        // All of them, even if the first fails.
        let settled: Vec<_> = topics.map(|topic| topic.settle(left())).collect();
        Ok(settled.into_iter().collect::<Result<(), _>>()?)
    }

    fn at(&self, ns: u64) -> Tai {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        Tai::from_nanos(self.begin.nanos().saturating_add(ns))
    }

    fn publish(&mut self, due: Due) -> Result<(), MockError> {
        let at = self.at(due.at_ns);
        match &mut self.topics[due.topic].to {
            Target::Topic(topic, values) => {
                self.encoded.clear();
                values.write(due.number, at, &mut self.encoded);
                match topic.write_encoded(&self.encoded, at) {
                    Ok(()) => {
                        self.counts.published += 1;
                        self.counts.bytes += self.encoded.len() as u64;
                    }
                    Err(error) if error.is_outage() => self.counts.withheld += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            Target::Command { pointing, .. } => {
                self.pointing[*pointing].send(due.number, at);
                self.counts.commands += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, one: SimulatedComponent) {
        let (component, before) = (self.components.len(), self.pointing.len());
        self.components.push(one.running);
        self.pointing.extend(one.pointing);
        for skipped in one.skipped {
            // Instances of a component share its topics.
            if !self.skipped.iter().any(|known| known.topic == skipped.topic) {
                self.skipped.push(skipped);
            }
        }
        self.topics.extend(one.topics.into_iter().map(|mut simulated| {
            if let Target::Command { pointing: p, component: c, .. } = &mut simulated.to {
                (*p, *c) = (*p + before, component);
            }
            simulated
        }));
    }
}

/// A started component, its topics, and the commands that are sent to it.
struct SimulatedComponent {
    running: Running,
    topics: Vec<Simulated>,
    pointing: Vec<Pointing>,
    skipped: Vec<SkippedTopic>,
}

impl SimulatedComponent {
    fn start(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        state: SummaryState,
    ) -> Result<Self, MockError> {
        let (running, rates) = (start_one(bus, interface, index, state)?, Rates::standard());
        let (topics, pointing, skipped) = (Vec::new(), Vec::new(), Vec::new());
        let mut one = Self { running, topics, pointing, skipped };
        one.add_topics(interface.component(), &rates)?;
        one.add_streams(bus, interface, index, &rates)?;
        Ok(one)
    }

    fn add_topics(&mut self, component: &Interfaced, rates: &Rates) -> Result<(), MockError> {
        for topic in component.topics() {
            let writer = match topic.kind() {
                TopicKind::Event if GENERIC_EVENTS.contains(&topic.name()) => continue,
                TopicKind::Event => self.running.event(topic.name())?,
                TopicKind::Telemetry => self.running.telemetry(topic.name())?,
                TopicKind::Command | TopicKind::Ack => continue,
            };
            // Opening thousands of topics takes seconds, for which the first messages cannot wait.
            let opened = writer.open().map_err(|error| error.to_string());
            let values = MockValues::new(topic).map_err(|error| error.to_string());
            match opened.and(values) {
                Ok(values) => {
                    let to = Target::Topic(writer, Box::new(values));
                    self.topics.push(Simulated { hz: rates.of(topic), to });
                }
                Err(reason) => self.skipped.push(SkippedTopic { topic: topic.to_string(), reason }),
            }
        }
        Ok(())
    }

    /// Stream commands have a simulated sender: the pointing component.
    fn add_streams(
        &mut self,
        bus: &Bus,
        interface: &Interface,
        index: i32,
        rates: &Rates,
    ) -> Result<(), MockError> {
        for topic in interface.component().topics_of(TopicKind::Command) {
            let (hz, Some(time)) = (rates.of(topic), time_of(topic)) else { continue };
            if hz > 0.0 {
                let values = match MockValues::new(topic) {
                    Ok(values) => values,
                    Err(error) => {
                        let (topic, reason) = (topic.to_string(), error.to_string());
                        self.skipped.push(SkippedTopic { topic, reason });
                        continue;
                    }
                };
                let options = RemoteOptions {
                    identity: Some(pointing(interface.name())),
                    missing_fields: Some(MissingFields::Refuse),
                    ..Default::default()
                };
                let remote = Remote::with_options(bus, interface, index, options)?;
                let shape = interface.shape(TopicKind::Command, topic.name())?;
                let targets = Targets { shape, time: time.to_owned(), values };
                let (pointing, name) = (self.pointing.len(), topic.name().to_owned());
                let to = Target::Command { pointing, component: 0, name };
                self.pointing.push(Pointing::start(remote, targets)?);
                self.topics.push(Simulated { hz, to });
            }
        }
        Ok(())
    }
}

/// Whether simulated components publish a topic of that name at a rate: telemetry, and events that
/// a component does not publish itself.
#[must_use]
pub fn is_mocked(topic: &str) -> bool {
    let mut parts = topic.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("telemetry"), Some(_)) => true,
        (Some("event"), Some(name)) => !GENERIC_EVENTS.contains(&name),
        _ => false,
    }
}

/// The field with the time that a stream command is for.
fn time_of(topic: &Topic) -> Option<&str> {
    let named = |name: &&str| topic.fields().iter().any(|field| &*field.name == *name);
    TIME_FIELDS.iter().find(|name| named(name)).copied()
}

/// The sender of a component's targets: the pointing component of its telescope.
fn pointing(component: &str) -> String {
    if component.starts_with("AT") { "ATPtg" } else { "MTPtg" }.to_owned()
}

fn start_one(
    bus: &Bus,
    interface: &Interface,
    index: i32,
    state: SummaryState,
) -> Result<Running, MockError> {
    let versions = SoftwareVersions { component: "mock".to_owned(), ..SoftwareVersions::default() };
    let mut builder = Component::builder(bus, interface, index)
        .initial_state(state)
        .versions(versions)
        .simulation_mode(1);
    for topic in interface.component().topics_of(TopicKind::Command) {
        let name = topic.name();
        if StateCommand::from_name(name).is_none() && name != "setLogLevel" {
            builder = builder.inline(name, |_: &Command| Ok::<_, Failed>(()));
        }
        if let (true, Some(time)) = (Rates::standard().of(topic) > 0.0, time_of(topic)) {
            builder = builder.stream(name, time, Duration::ZERO);
        }
    }
    Ok(builder.start()?)
}
