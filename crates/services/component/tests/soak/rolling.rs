//! Components and callers of two releases of the Rubin Observatory's interfaces, run together and
//! upgraded one by one, and back. Needs the shared test data; skipped where it is absent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, OnceLock};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport, only};
use helio_bus::Evolution;
use helio_component::protocol::SummaryState;
use helio_component::protocol::caller::{Cause, MissingFields};
use helio_component::{
    Command, Component, Interface, ReadTopic, Remote, Running, Shape, TopicReadError, WriteError,
    WriteTopic,
};
use helio_core::evolution::compare;
use helio_core::sal::{Interfaces, TopicKind};
use helio_core::schema::{NodeId, Type};
use helio_core::{Resolution, Schema};
use serde_json::{Value as Json, json};

const OLD: usize = 0;
const NEW: usize = 1;
const RELEASES: [&str; 2] = ["v26.0.0", "v27.1.1"];

/// Both releases; if they are absent, the test prints that it is skipped.
fn releases() -> Option<&'static [Interfaces; 2]> {
    static LOADED: OnceLock<Option<[Interfaces; 2]>> = OnceLock::new();
    let load = || {
        let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data"),
            PathBuf::from,
        );
        let paths = RELEASES.map(|release| root.join("sal-interfaces").join(release));
        if let Some(absent) = paths.iter().find(|path| !path.exists()) {
            // Not with eprintln!, whose output the test runner captures.
            let _ = writeln!(std::io::stderr(), "skipped: {} not found", absent.display());
            return None;
        }
        Some(paths.map(|path| helio_bus::read_interfaces(path).unwrap()))
    };
    LOADED.get_or_init(load).as_ref()
}

/// The most checked topics of one component that only one release has.
const MOST: usize = 4;

/// The checked topics of a component: those that differ between the releases.
struct Case {
    interfaces: [Interface; 2],
    index: i32,
    /// Events and telemetry, of one release or of both.
    topics: BTreeSet<(TopicKind, String)>,
}

impl Case {
    fn new(releases: &[Interfaces; 2], component: &str, policy: Option<Evolution>) -> Self {
        let interfaces = releases.each_ref().map(|release| {
            let interface = Interface::of(release, component).unwrap();
            match policy {
                Some(policy) => interface.evolution(policy),
                None => interface,
            }
        });
        let mut topics = BTreeSet::new();
        for kind in [TopicKind::Event, TopicKind::Telemetry] {
            let names = interfaces
                .each_ref()
                .map(|interface| interface.names(kind).map(str::to_owned).collect::<BTreeSet<_>>());
            let both = names[OLD].intersection(&names[NEW]);
            let changed = both.filter(|name| {
                let schema = |release: usize| interfaces[release].shape(kind, name).unwrap();
                schema(OLD).schema().id() != schema(NEW).schema().id()
            });
            let gone = names[OLD].difference(&names[NEW]).take(MOST);
            let come = names[NEW].difference(&names[OLD]).take(MOST);
            topics.extend(changed.chain(gone).chain(come).map(|name| (kind, name.clone())));
        }
        let index = i32::from(interfaces[OLD].indexed());
        Self { interfaces, index, topics }
    }

    fn shape(&self, release: usize, (kind, name): &(TopicKind, String)) -> Option<Schema> {
        let interface = &self.interfaces[release];
        let shape = interface.has(*kind, name).then(|| interface.shape(*kind, name).unwrap());
        shape.map(|shape| shape.schema().clone())
    }

    /// Whether a release can read another one's samples; `None` if one of them lacks the topic.
    fn resolves(&self, writer: usize, reader: usize, topic: &(TopicKind, String)) -> Option<bool> {
        let (written, read) = (self.shape(writer, topic)?, self.shape(reader, topic)?);
        Some(Resolution::new(&written, &read).is_ok())
    }

    /// The message names the topic and a field in which the releases differ.
    fn names(&self, told: &str, (kind, name): &(TopicKind, String)) {
        let topic = (*kind, name.clone());
        assert!(told.contains(name), "{name} is not named: {told}");
        let schemas = [OLD, NEW].map(|release| self.shape(release, &topic).unwrap());
        let report = compare(&schemas[OLD], &schemas[NEW]);
        let named = report.differences.iter().any(|one| told.contains(&one.at));
        assert!(named, "no field of {name} is named: {told}");
    }
}

/// Values of all public fields that are unique to a write, as JSON.
fn values(shape: &Shape, number: u8) -> BTreeMap<String, Json> {
    let schema = shape.schema();
    let public: BTreeSet<&str> = shape.names().collect();
    let fields = schema.fields().iter().filter(|field| public.contains(field.name.as_str()));
    let value = |field: &helio_core::schema::Field| {
        let label =
            field.enumeration.as_ref().and_then(|labels| labels.iter().cycle().nth(number.into()));
        let one = |kind: &Type| match kind {
            _ if label.is_some() => json!(label.map(|(_, value)| value)),
            Type::Boolean => json!(number % 2 == 1),
            Type::String => json!(format!("{number} of {}", field.name)),
            Type::Float | Type::Double => json!(f64::from(number) + 0.5),
            _ => json!(number),
        };
        match &schema.node(field.kind).kind {
            Type::Array(items) => {
                let item = one(&schema.node(*items).kind);
                json!(vec![item; field.length.unwrap_or(1)])
            }
            kind => one(kind),
        }
    };
    fields.map(|field| (field.name.clone(), value(field))).collect()
}

/// The values that a reader should get from a writer: common fields, and defaults.
fn seen(reader: &Shape, written: &BTreeMap<String, Json>) -> Json {
    let codec = reader.codec();
    let defaults = (0..reader.schema().fields().len())
        .map(|place| codec.default_value(NodeId::ROOT, place).unwrap());
    let defaults = helio_core::Value::Record(defaults.collect());
    let Ok(Json::Object(mut values)) = codec.value_to_json(&defaults) else { panic!("no record") };
    let public: BTreeSet<&str> = reader.names().collect();
    values.retain(|name, _| public.contains(name.as_str()));
    for (name, value) in &mut values {
        if let Some(written) = written.get(name) {
            *value = written.clone();
        }
    }
    Json::Object(values)
}

/// A running component of a release.
struct Live<'a> {
    case: &'a Case,
    release: usize,
    running: Running,
}

impl<'a> Live<'a> {
    fn start(site: &Site, case: &'a Case, release: usize) -> Self {
        let interface = &case.interfaces[release];
        let mut builder = Component::builder(&site.bus(), interface, case.index)
            .missing_fields(MissingFields::Default);
        for name in interface.names(TopicKind::Command) {
            let generic = name == "setLogLevel";
            let state = helio_component::protocol::StateCommand::from_name(name).is_some();
            if !generic && !state {
                builder = builder.on(name, |command: &Command| Ok(command.fields().to_json()));
            }
        }
        Self { case, release, running: builder.start().unwrap() }
    }

    fn topic(&self, (kind, name): &(TopicKind, String)) -> WriteTopic {
        match kind {
            TopicKind::Event => self.running.event(name).unwrap(),
            _ => self.running.telemetry(name).unwrap(),
        }
    }

    /// Writes a topic; `None` if the topic rejects this release's schema.
    fn write(&self, topic: &(TopicKind, String), number: u8) -> Option<BTreeMap<String, Json>> {
        let written = self.topic(topic);
        let values = values(written.shape(), number);
        let update =
            values.iter().fold(written.update(), |all, (name, value)| all.set_json(name, value));
        match update.force().write() {
            Ok(_) => Some(values),
            Err(WriteError::Open { topic: refused, reason }) => {
                assert_eq!(refused, written.shape().topic().to_string());
                self.case.names(&reason, topic);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A running caller of a release, which opens all topics at its start.
struct Caller {
    release: usize,
    remote: Remote,
    readers: BTreeMap<(TopicKind, String), Follower>,
    states: (ReadTopic, i32),
    beats: (ReadTopic, i32),
    logs: ReadTopic,
}

/// The result of reading a topic.
enum Follower {
    /// It was rejected, and the rejection was logged.
    Refused,
    /// It can be read; whether an undecodable sample was logged.
    Reads { reader: Box<ReadTopic>, told: bool, last: i32 },
}

impl Caller {
    fn start(site: &Site, case: &Case, release: usize) -> Self {
        let remote = Remote::open(&site.bus(), &case.interfaces[release], case.index).unwrap();
        let topics = case.topics.iter().filter(|(kind, name)| remote.interface().has(*kind, name));
        let readers = topics.map(|topic| {
            let follower = match open(&remote, topic) {
                Ok(mut reader) => {
                    let (told, last) = newest(case, &mut reader, topic);
                    Follower::Reads { reader: Box::new(reader), told, last }
                }
                Err(TopicReadError::Open { reason, .. }) => {
                    case.names(&reason, topic);
                    Follower::Refused
                }
                Err(error) => panic!("{error}"),
            };
            (topic.clone(), follower)
        });
        let readers = readers.collect();
        let event = |name| {
            let mut reader = remote.event(name).unwrap();
            reader.flush().unwrap();
            reader
        };
        let (states, beats) = ((event("summaryState"), 0), (event("heartbeat"), 0));
        let logs = event("logMessage");
        Self { release, remote, readers, states, beats, logs }
    }
}

fn open(remote: &Remote, (kind, name): &(TopicKind, String)) -> Result<ReadTopic, TopicReadError> {
    match kind {
        TopicKind::Event => remote.event(name),
        _ => remote.telemetry(name),
    }
}

/// Reads the stored samples; returns whether the topic was rejected, and the newest number.
fn newest(case: &Case, reader: &mut ReadTopic, topic: &(TopicKind, String)) -> (bool, i32) {
    let (mut told, mut last) = (false, 0);
    loop {
        match reader.try_next() {
            Ok(None) => return (told, last),
            Ok(Some(reading)) => last = reading.seq_num(),
            Err(TopicReadError::Undecodable { reason, topic: name }) => {
                assert!(!told, "{name} told twice");
                case.names(&format!("{name}: {reason}"), topic);
                told = true;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// An upgraded part of a component, and its new release.
#[derive(Debug, Clone, Copy)]
enum Step {
    Component(usize),
    Caller(usize, usize),
}

/// A component and its callers, upgraded one by one.
struct Observatory<'a> {
    site: &'a Site,
    case: &'a Case,
    policy: Option<Evolution>,
    component: Option<Live<'a>>,
    callers: Vec<Caller>,
    /// The releases that wrote each topic.
    declared: BTreeMap<(TopicKind, String), BTreeSet<usize>>,
    number: u8,
}

impl<'a> Observatory<'a> {
    /// Callers start first: they open topics that do not exist yet.
    fn new(
        site: &'a Site,
        case: &'a Case,
        policy: Option<Evolution>,
        component: usize,
        callers: [usize; 2],
    ) -> Self {
        let callers = callers.map(|release| Caller::start(site, case, release)).into();
        let component = Some(Live::start(site, case, component));
        let declared = BTreeMap::new();
        let mut all = Self { site, case, policy, component, callers, declared, number: 0 };
        all.meet(true);
        all
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Component(release) => {
                self.component.take().unwrap().running.stop().unwrap();
                self.component = Some(Live::start(self.site, self.case, release));
            }
            Step::Caller(place, release) => {
                self.callers[place] = Caller::start(self.site, self.case, release);
            }
        }
        self.meet(matches!(step, Step::Component(_)));
    }

    /// Whether the policy permits a topic's schemas to coexist.
    fn fits(&self, topic: &(TopicKind, String)) -> bool {
        let schema = |release| self.case.shape(release, topic);
        let (Some(old), Some(new)) = (schema(OLD), schema(NEW)) else { return true };
        match self.policy {
            Some(Evolution::None) => true,
            Some(policy) => policy.allows(compare(&old, &new).level),
            None => Resolution::new(&old, &new).is_ok() && Resolution::new(&new, &old).is_ok(),
        }
    }

    /// Whether a reader receives the samples that a writer may publish.
    fn reads(&self, writer: usize, reader: usize, topic: &(TopicKind, String)) -> bool {
        let schema = |release| self.case.shape(release, topic).unwrap();
        let report = compare(&schema(writer), &schema(reader));
        let held = self.policy != Some(Evolution::Full) || report.level.is_backward();
        held && self.case.resolves(writer, reader, topic).unwrap()
    }

    /// Readable topics continue, and unreadable ones are named in the log.
    fn meet(&mut self, restarted: bool) {
        let topics: Vec<_> = self.case.topics.iter().cloned().collect();
        for topic in &topics {
            self.number += 1;
            self.topic(topic);
        }
        let component = self.component.as_ref().unwrap();
        for caller in &mut self.callers {
            caller.command(component, self.number);
            let beats = caller.goes_on();
            // Its first heartbeat follows its start at once.
            assert!(beats > 0 || !restarted);
        }
    }

    fn topic(&mut self, topic: &(TopicKind, String)) {
        let component = self.component.as_ref().unwrap();
        let writer = component.release;
        let declared = self.declared.get(topic).cloned().unwrap_or_default();
        let others = !declared.is_empty() && !declared.contains(&writer);
        let written = self.case.shape(writer, topic).and_then(|_| {
            let written = component.write(topic, self.number);
            assert_eq!(written.is_none(), others && !self.fits(topic), "{topic:?}");
            written
        });
        if written.is_some() {
            self.declared.entry(topic.clone()).or_default().insert(writer);
        }
        for place in 0..self.callers.len() {
            self.follow(place, topic, written.as_ref());
        }
    }

    /// A caller reads the sample that was just written.
    fn follow(
        &mut self,
        place: usize,
        topic: &(TopicKind, String),
        written: Option<&BTreeMap<String, Json>>,
    ) {
        let (writer, fits) = (self.component.as_ref().unwrap().release, self.fits(topic));
        let reader = self.callers[place].release;
        let reads = written.is_some()
            && self.case.shape(reader, topic).is_some()
            && self.reads(writer, reader, topic);
        let caller = &mut self.callers[place];
        let Some(follower) = caller.readers.get_mut(topic) else {
            let none = open(&caller.remote, topic).unwrap_err();
            assert!(matches!(none, TopicReadError::Interface(_)), "{none}");
            return;
        };
        let Follower::Reads { reader: queue, told, last } = follower else {
            assert!(!fits, "{topic:?} was refused");
            return;
        };
        match written {
            None => assert!(queue.try_next().unwrap().is_none(), "{topic:?}"),
            Some(written) if reads => {
                let reading = queue.next(HANG_TIMEOUT).unwrap();
                assert_eq!(reading.to_json(), seen(queue.shape(), written), "{topic:?}");
                assert!(*last == 0 || reading.seq_num() == *last + 1, "{topic:?} after {last}");
                *last = reading.seq_num();
            }
            Some(_) if *told => {
                assert!(queue.try_next().unwrap().is_none(), "{topic:?}");
                *last += i32::from(*last > 0);
            }
            Some(_) => {
                let error = queue.next(HANG_TIMEOUT).unwrap_err();
                assert!(matches!(error, TopicReadError::Undecodable { .. }), "{error}");
                self.case.names(&error.to_string(), topic);
                *told = true;
                *last += i32::from(*last > 0);
            }
        }
        let stats = queue.stats();
        assert!(stats.lost == 0 && (stats.undecodable == 0 || *told), "{topic:?}: {stats:?}");
    }
}

/// The number of sent commands of each component.
const COMMANDS: usize = 3;

impl Caller {
    /// Goes through the states; sends and validates commands, including those that it lacks.
    fn command(&self, component: &Live<'_>, number: u8) {
        let remote = &self.remote;
        let has = |name| remote.interface().has(TopicKind::Command, name);
        if has("enable") {
            remote.set_state(SummaryState::Disabled, "").unwrap();
            remote.set_state(SummaryState::Standby, "").unwrap();
        }
        let level = remote
            .command("setLogLevel")
            .set("level", 20)
            .set("subsystem", "")
            .timeout(HANG_TIMEOUT);
        level.send().wait().unwrap();
        let shape = |interface: &Interface, name: &str| {
            let known = interface.has(TopicKind::Command, name);
            known.then(|| interface.shape(TopicKind::Command, name).unwrap())
        };
        let mut sent = 0;
        for name in remote.interface().names(TopicKind::Command) {
            let own = shape(remote.interface(), name).unwrap();
            let plain = own.schema().fields().iter().all(|field| field.enumeration.is_none());
            let state = helio_component::protocol::StateCommand::from_name(name).is_some();
            if state || !plain || name == "setLogLevel" {
                continue;
            }
            let values = values(&own, number);
            let with = |call| {
                values.iter().fold(call, |call: helio_component::CallBuilder, set| {
                    call.set_json(set.0, set.1)
                })
            };
            let call = || with(remote.command(name).timeout(HANG_TIMEOUT));
            match shape(component.running.interface(), name) {
                Some(theirs) if sent < COMMANDS => {
                    sent += 1;
                    call().validate().unwrap();
                    let done = call().send().wait().unwrap();
                    let result: Json = serde_json::from_str(&done.typed.unwrap()).unwrap();
                    assert_eq!(result, seen(&theirs, &values), "{name}");
                }
                Some(_) => {}
                None => {
                    let error = call().send().wait().unwrap_err();
                    assert_eq!(error.cause(), Some(Cause::NotSent), "{error}");
                    assert!(error.to_string().contains("has no command"), "{error}");
                }
            }
        }
        let theirs = component.running.interface();
        for name in theirs.names(TopicKind::Command).filter(|name| !has(name)) {
            remote.command(name).send().wait().unwrap_err();
        }
    }

    /// Numbers of states and heartbeats continue across restarts, and nothing was logged. Returns
    /// the number of heartbeats.
    fn goes_on(&mut self) -> usize {
        let beats = [&mut self.states, &mut self.beats].map(|(reader, last)| {
            let mut number = 0;
            while let Some(reading) = reader.try_next().unwrap() {
                assert!(*last == 0 || reading.seq_num() == *last + 1, "{last}: {reading:?}");
                *last = reading.seq_num();
                number += 1;
            }
            number
        });
        assert!(self.logs.try_next().unwrap().is_none());
        beats[1]
    }
}

/// Components with changes: fully and backward compatible topics, breaking ones that resolve and
/// that do not, added and removed topics, added commands.
const CHANGED: [&str; 8] =
    ["MTM1M3", "MTAOS", "MTCamera", "CCCamera", "GIS", "ESS", "MTDome", "HVAC"];

/// Those of them whose differences all resolve.
const SILENT: [&str; 3] = ["MTM1M3", "MTAOS", "MTCamera"];

/// Tells the process that a test starts its task.
const CHILD: &str = "HELIO_TEST_SILENT";

const COMPONENT_FIRST: [Step; 5] = [
    Step::Component(NEW),
    Step::Caller(0, NEW),
    Step::Component(OLD),
    Step::Caller(0, OLD),
    Step::Caller(1, OLD),
];

const CALLERS_FIRST: [Step; 6] = [
    Step::Caller(0, NEW),
    Step::Caller(1, NEW),
    Step::Component(NEW),
    Step::Caller(1, OLD),
    Step::Caller(0, OLD),
    Step::Component(OLD),
];

fn upgrade(
    component: &str,
    policy: Option<Evolution>,
    first: usize,
    callers: [usize; 2],
    steps: &[Step],
) {
    let Some(releases) = releases() else { return };
    let case = Case::new(releases, component, policy);
    on_every_transport(|site: &Site| {
        let mut all = Observatory::new(site, &case, policy, first, callers);
        for step in steps {
            all.step(*step);
        }
    });
}

#[test]
fn the_component_is_upgraded_first_and_goes_back_first() {
    for component in CHANGED {
        upgrade(component, None, OLD, [OLD, NEW], &COMPONENT_FIRST);
    }
}

#[test]
fn the_callers_are_upgraded_first_and_go_back_first() {
    for component in CHANGED {
        upgrade(component, None, OLD, [OLD, OLD], &CALLERS_FIRST);
    }
}

#[test]
fn a_site_that_began_with_the_new_release_goes_back() {
    for component in CHANGED {
        let steps = [Step::Component(OLD), Step::Caller(1, OLD), Step::Component(NEW)];
        upgrade(component, None, NEW, [OLD, NEW], &steps);
    }
}

#[test]
fn without_a_policy_all_is_written_and_readers_are_told_once() {
    for component in ["CCCamera", "GIS", "ESS"] {
        let policy = Some(Evolution::None);
        upgrade(component, policy, OLD, [OLD, NEW], &COMPONENT_FIRST);
        upgrade(component, policy, OLD, [OLD, OLD], &CALLERS_FIRST);
        // Numbers continue after those of samples that neither component nor caller can read.
        let steps = [NEW, OLD, NEW].map(Step::Component);
        upgrade(component, policy, OLD, [OLD, NEW], &steps);
    }
}

#[test]
fn under_a_full_policy_what_loses_a_field_or_renumbers_a_label_is_refused() {
    for component in CHANGED {
        let policy = Some(Evolution::Full);
        upgrade(component, policy, OLD, [OLD, OLD], &COMPONENT_FIRST[..2]);
    }
}

#[test]
fn what_resolves_is_resolved_in_silence() {
    if std::env::var_os(CHILD).is_some() {
        for component in SILENT {
            upgrade(component, None, OLD, [OLD, NEW], &COMPONENT_FIRST);
        }
    } else if releases().is_some() {
        // A separate process, whose whole output is captured.
        let mut child = only(module_path!(), "what_resolves_is_resolved_in_silence");
        let ran = child.env(CHILD, "1").output().unwrap();
        assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && said.is_empty(), "{said}");
    }
}

const GENSET: &str = "agcGenset150";

/// Two instances of one component, of different releases, start to write at the same time, and
/// callers of both subscribe at the same time.
#[test]
fn instances_of_both_releases_share_topics() {
    let Some(releases) = releases() else { return };
    for site in [Site::memory(), Site::journal(), Site::memory(), Site::journal()] {
        let cases = [1, 2].map(|index| Case { index, ..Case::new(releases, "ESS", None) });
        let components = [OLD, NEW].map(|n| Live::start(&site, &cases[n], n));
        let winner = at_once(&site, &components);
        // Topics that are equal in both releases continue for all of them.
        let common = (TopicKind::Telemetry, "temperature".to_owned());
        for component in &components {
            let written = component.write(&common, 3).unwrap();
            for release in [OLD, NEW] {
                let remote = caller(&site, component.case, release);
                let mut reader = open(&remote, &common).unwrap();
                let reading = reader.next(HANG_TIMEOUT).unwrap();
                assert_eq!(reading.to_json(), seen(reader.shape(), &written));
                let level = remote.command("setLogLevel").set("level", 20).set("subsystem", "");
                level.timeout(HANG_TIMEOUT).send().wait().unwrap();
            }
        }
        let other = &components[1 - winner];
        assert!(other.write(&(TopicKind::Telemetry, GENSET.to_owned()), 4).is_none());
    }
}

fn caller(site: &Site, case: &Case, release: usize) -> Remote {
    Remote::open(&site.bus(), &case.interfaces[release], case.index).unwrap()
}

/// All write and subscribe at once to a topic whose two schemas exclude each other. The release
/// that comes first is admitted; it is returned.
fn at_once(site: &Site, components: &[Live<'_>; 2]) -> usize {
    let topic = (TopicKind::Telemetry, GENSET.to_owned());
    let callers = [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)];
    let start = &Barrier::new(callers.len() + components.len());
    let (wrote, opened) = std::thread::scope(|scope| {
        let topic = &topic;
        let writers = components.each_ref().map(|component| {
            scope.spawn(move || {
                start.wait();
                component.write(topic, 1).is_some()
            })
        });
        let readers = callers.map(|(instance, release)| {
            scope.spawn(move || {
                let case = components[instance].case;
                let remote = caller(site, case, release);
                start.wait();
                let opened = open(&remote, topic);
                opened.map_err(|error| case.names(&error.to_string(), topic)).ok()
            })
        });
        let wrote = writers.map(|thread| thread.join().unwrap());
        (wrote, readers.map(|thread| thread.join().unwrap()))
    });
    assert_eq!(wrote.into_iter().filter(|wrote| *wrote).count(), 1);
    let winner = if wrote[OLD] { OLD } else { NEW };
    let written = components[winner].write(&topic, 2).unwrap();
    for ((instance, release), reader) in callers.into_iter().zip(opened) {
        let Some(mut reader) = reader else {
            assert_ne!(release, winner);
            continue;
        };
        if instance != winner {
            assert!(reader.try_next().unwrap().is_none());
            continue;
        }
        match reader.next_where(HANG_TIMEOUT, |reading| reading.seq_num() == 2) {
            Ok(reading) => {
                assert_eq!(release, winner);
                assert_eq!(reading.to_json(), seen(reader.shape(), &written));
            }
            Err(error) => {
                assert_ne!(release, winner);
                components[instance].case.names(&error.to_string(), &topic);
            }
        }
    }
    winner
}
