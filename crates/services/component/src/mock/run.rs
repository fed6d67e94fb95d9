//! Simulated components that run: they are there, take every command, and publish by the table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Evolution, Tai, TopicError};
use helio_core::sal::{Component as Interfaced, Interfaces, Topic, TopicKind};
use thiserror::Error;

use super::pointing::Pointing;
use super::{Due, MockSchedule, MockValues};
use crate::component::{Command, Component, Failed, Running, SoftwareVersions, StartError};
use crate::interface::{Interface, InterfaceError};
use crate::making::make_topics;
use crate::protocol::{StateCommand, SummaryState};
use crate::rates::Rates;
use crate::remote::{Remote, RemoteOptions};
use crate::topic::WriteError;
use crate::write::WriteTopic;

/// Events that a component publishes by itself.
const ITS_OWN: [&str; 9] = [
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

/// How long receipts are waited for at the end: an engine that is well has them long before.
const SETTLED: Duration = Duration::from_secs(10);

/// Fields that have the time which a stream's command is for.
const TIMES: [&str; 2] = ["taiTime", "tai"];

/// Why components could not be simulated.
#[derive(Debug, Error)]
pub enum MockError {
    /// The interfaces have no such component, or it has no such instance.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// One could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Their topics cannot be made.
    #[error("the topics of the components cannot be made: {0}")]
    Topics(TopicError),
    /// A topic cannot be written any more.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// There is no thread for what they do.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// A topic that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The topic's name on the bus.
    pub topic: String,
    /// Why: the bus does not take its schema, or no values can be made up for it.
    pub reason: String,
}

/// What was published so far, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MockCounts {
    /// Telemetry and events by the table.
    pub published: u64,
    /// Bytes of them, the public fields alone.
    pub bytes: u64,
    /// What was due and not published, as the bus could not be reached, or did not say who has the
    /// lease.
    pub withheld: u64,
    /// Commands of streams that were sent.
    pub commands: u64,
    /// Of these, those that were sent too late, and those that a simulated component took for late.
    pub late_commands: u64,
}

/// Which components are simulated, and how.
#[derive(Debug, Clone)]
pub struct MockOptions {
    /// Names with their indices, 0 where they are not indexed.
    pub instances: Vec<(String, i32)>,
    /// The state that they begin in.
    pub state: SummaryState,
    /// What their topics are held to where they meet those of other releases
    /// ([`Interface::evolution`]).
    pub evolution: Option<Evolution>,
}

impl MockOptions {
    /// The instances with their interfaces, which those of a component share.
    ///
    /// # Errors
    /// [`InterfaceError`] of a component that the interfaces do not have.
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

/// Simulated components of one process. Dropped, they end in order.
#[derive(Debug)]
pub struct Mock {
    components: Vec<Running>,
    topics: Vec<Simulated>,
    pointing: Vec<Pointing>,
    refused: Vec<Refused>,
    begin: Tai,
    counts: MockCounts,
    encoded: Vec<u8>,
}

/// What is published at a rate.
#[derive(Debug)]
struct Simulated {
    hz: f64,
    to: To,
}

#[derive(Debug)]
enum To {
    Topic(WriteTopic, Box<MockValues>),
    Command { pointing: usize, component: usize, name: Arc<str>, time: Arc<str> },
}

impl Mock {
    /// Starts simulated components. When this returns they take commands; nothing is published at a
    /// rate before [`publish_until`](Self::publish_until). A topic that cannot be published is
    /// [refused](Self::refused) by itself.
    ///
    /// # Errors
    /// [`MockError`] of a component that cannot run; none of them runs then.
    pub fn start(
        bus: &Bus,
        interfaces: &Interfaces,
        options: &MockOptions,
    ) -> Result<Self, MockError> {
        let mut mock = Self {
            components: Vec::new(),
            topics: Vec::new(),
            pointing: Vec::new(),
            refused: Vec::new(),
            begin: bus.clock().now(),
            counts: MockCounts::default(),
            encoded: Vec::new(),
        };
        let mut instances = options.instances(interfaces)?;
        // All at once, before each waits for its own.
        make_topics(bus, instances.iter().map(|(interface, index)| (interface, *index)), |_, _| {})
            .map_err(MockError::Topics)?;
        // Those with the most topics first: who begins last has least to do.
        let topics = |interface: &Interface| interface.component().topics().len();
        instances.sort_by_key(|(interface, _)| std::cmp::Reverse(topics(interface)));
        let start = |one: &(Interface, i32)| One::start(bus, &one.0, one.1, options.state);
        for one in helio_bus::beside_each_other(&instances, start) {
            mock.add(one?);
        }
        Ok(mock)
    }

    /// Topics that are not simulated, and why.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Takes another table of rates than the standard one.
    #[must_use]
    pub fn with_rates(mut self, rates: &Rates) -> Self {
        for simulated in &mut self.topics {
            simulated.hz = match &simulated.to {
                To::Topic(topic, _) => rates.of(topic.shape().topic()),
                To::Command { component, name, .. } => {
                    let component = self.components[*component].interface().name();
                    rates.hz(component, TopicKind::Command, name)
                }
            };
        }
        self
    }

    /// How many run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Messages a second by the table, commands of streams among them.
    #[must_use]
    pub fn hz(&self) -> f64 {
        self.topics.iter().map(|topic| topic.hz).sum()
    }

    /// What was published so far.
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

    /// Publishes by the table of rates, multiplied by `scale`, from `begin` on, each message as of
    /// the time when it is due. `wait` is asked to wait until that time, and gives false where
    /// there is an end; then the receipts of what was published are waited for, 10 s at most.
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
        // Nothing has a rate: there is nothing to do until the end.
        while wait(Tai::from_nanos(i64::MAX)) {}
        Ok(())
    }

    /// Waits until everything that was published has its receipt, and every command is sent.
    fn settle(&self) -> Result<(), MockError> {
        self.pointing.iter().for_each(Pointing::settle);
        let until = Instant::now() + SETTLED;
        let topics = self.topics.iter().filter_map(|simulated| match &simulated.to {
            To::Topic(topic, _) => Some(topic),
            To::Command { .. } => None,
        });
        let left = || until.saturating_duration_since(Instant::now());
        // All of them, whatever becomes of the first.
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
            To::Topic(topic, values) => {
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
            To::Command { pointing, name, time, .. } => {
                self.pointing[*pointing].send((name, time), at);
                self.counts.commands += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, one: One) {
        let (component, before) = (self.components.len(), self.pointing.len());
        self.components.push(one.running);
        self.pointing.extend(one.pointing);
        for refused in one.refused {
            // Instances of a component share its topics.
            if !self.refused.iter().any(|known| known.topic == refused.topic) {
                self.refused.push(refused);
            }
        }
        self.topics.extend(one.topics.into_iter().map(|mut simulated| {
            if let To::Command { pointing: p, component: c, .. } = &mut simulated.to {
                (*p, *c) = (*p + before, component);
            }
            simulated
        }));
    }
}

/// One component that was started, with what it publishes and the commands that are sent to it.
struct One {
    running: Running,
    topics: Vec<Simulated>,
    pointing: Vec<Pointing>,
    refused: Vec<Refused>,
}

impl One {
    fn start(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        state: SummaryState,
    ) -> Result<Self, MockError> {
        let (running, rates) = (start_one(bus, interface, index, state)?, Rates::standard());
        let (topics, pointing, refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut one = Self { running, topics, pointing, refused };
        one.add_topics(interface.component(), &rates)?;
        one.add_streams(bus, interface, index, &rates)?;
        Ok(one)
    }

    fn add_topics(&mut self, component: &Interfaced, rates: &Rates) -> Result<(), MockError> {
        for topic in component.topics() {
            let writer = match topic.kind() {
                TopicKind::Event if ITS_OWN.contains(&topic.name()) => continue,
                TopicKind::Event => self.running.event(topic.name())?,
                TopicKind::Telemetry => self.running.telemetry(topic.name())?,
                TopicKind::Command | TopicKind::Ack => continue,
            };
            // Opening thousands of topics takes seconds, which the first messages cannot wait for.
            let opened = writer.open().map_err(|error| error.to_string());
            let values = MockValues::new(topic).map_err(|error| error.to_string());
            match opened.and(values) {
                Ok(values) => {
                    let to = To::Topic(writer, Box::new(values));
                    self.topics.push(Simulated { hz: rates.of(topic), to });
                }
                Err(reason) => self.refused.push(Refused { topic: topic.to_string(), reason }),
            }
        }
        Ok(())
    }

    /// Commands that come at a rate have a simulated sender: its pointing component.
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
                let identity = pointing(interface.name());
                let options = RemoteOptions { identity: Some(identity), caller: None };
                let remote = Remote::with_options(bus, interface, index, options)?;
                let (name, time) = (topic.name().into(), time.into());
                let to = To::Command { pointing: self.pointing.len(), component: 0, name, time };
                self.pointing.push(Pointing::start(remote)?);
                self.topics.push(Simulated { hz, to });
            }
        }
        Ok(())
    }
}

/// Whether a topic of that name on the bus is one that simulated components publish at a rate:
/// telemetry, and events that a component does not publish by itself.
#[must_use]
pub fn is_mocked(topic: &str) -> bool {
    let mut parts = topic.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("telemetry"), Some(_)) => true,
        (Some("event"), Some(name)) => !ITS_OWN.contains(&name),
        _ => false,
    }
}

/// The field with the time that a stream's command is for.
fn time_of(topic: &Topic) -> Option<&str> {
    let named = |name: &&str| topic.fields().iter().any(|field| &*field.name == *name);
    TIMES.iter().find(|name| named(name)).copied()
}

/// Who sends a component's targets: the pointing component of its telescope.
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
