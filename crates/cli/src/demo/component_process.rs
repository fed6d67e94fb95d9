//! A demo process that runs one or more components.

use helio_bus::{Bus, Tai};
use helio_component::{Component, Interface, Running, StartError, Update, WriteTopic};
use helio_core::Value;
use helio_logging::Level;

use super::accounting::Source;
use super::messages::{Burst, ComponentTask, Kind, Part, ProcessMessage};
use super::mount::{Axis, Mount};
use super::pace::{Pace, Step, tai_at};
use super::{camera, logging};
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::sal;
use crate::service_error::{ServiceError, ServiceResult};
use crate::worker::say;

/// Samples of a burst per reported receipt.
const SAMPLES_PER_REPORT: u64 = 1_000;

/// Runs the process until its components are commanded to end (`exitControl`).
pub(crate) fn run(task: &ComponentTask) -> CliResult {
    let interfaces = sal::folder_or_own(task.world.interfaces.as_deref())?;
    let bus = Bus::connect(&task.world.url)?;
    let names: Vec<&str> = task.parts.iter().map(|part| part.component.as_str()).collect();
    logging::begin(&bus, &names.join("+"))?;
    let (mut running, mut lanes) = (Vec::new(), Vec::new());
    for part in &task.parts {
        let interface = Interface::of(&interfaces, &part.component).or_cli()?;
        let mount = Mount::default();
        let component = match start(&bus, &interface, part, &mount) {
            Err(StartError::Lease(error)) => {
                logging::note(Level::WARNING, &format!("may not run: {error}"));
                logging::end();
                return say(&ProcessMessage::Refused(error.to_string()));
            }
            started => started.or_cli()?,
        };
        for (name, rate_hz) in &part.telemetry {
            let topic = component.telemetry(name).or_cli()?;
            let lane = TelemetryStream {
                values: Values::of(&topic, &mount),
                told: ReportingTopic::open(topic)?,
            };
            lanes.push((*rate_hz, lane));
        }
        running.push((component, part.kind));
    }
    logging::note(Level::INFO, &format!("{} is there", names.join(" and ")));
    say(&ProcessMessage::Ready)?;
    let (rates, lanes): (Vec<f64>, Vec<TelemetryStream>) = lanes.into_iter().unzip();
    publish(&bus, Pace::new(rates), &lanes, &running)?;
    for (component, kind) in running {
        tell_targets(&component, kind)?;
        component.wait().or_cli()?;
    }
    logging::note(Level::INFO, &format!("{} has gone home", names.join(" and ")));
    let logged = logging::end();
    say(&ProcessMessage::End { cpu_s: cpu_s(), rss_mb: peak_rss_mb(), logged })
}

fn start(
    bus: &Bus,
    interface: &Interface,
    part: &Part,
    mount: &Mount,
) -> Result<Running, StartError> {
    let builder = Component::builder(bus, interface, part.index).simulation_mode(1);
    let builder = match part.kind {
        Kind::Sensors => builder,
        Kind::Mount => mount.attach(builder),
        Kind::Camera => camera::attach(builder),
    };
    builder.start()
}

/// Publishes telemetry by the schedule until the order to end.
fn publish(
    bus: &Bus,
    mut pace: Pace,
    lanes: &[TelemetryStream],
    running: &[(Running, Kind)],
) -> CliResult {
    while let Some(step) = pace.next() {
        match step {
            Step::Due { stream, number, due_ns } => {
                let Some(lane) = lanes.get(stream) else { continue };
                lane.publish(number, Some(tai_at(bus, due_ns)))?.map_or(Ok(()), |w| say(&w))?;
                // The last reported counters of a killed component count.
                if stream == 0 {
                    running.iter().try_for_each(|(c, kind)| tell_targets(c, *kind))?;
                }
            }
            Step::Burst(samples) => burst(lanes.first(), samples)?,
        }
    }
    Ok(())
}

fn tell_targets(component: &Component, kind: Kind) -> CliResult {
    match component.stream("trackTarget").filter(|_| kind == Kind::Mount) {
        Some(stats) => say(&ProcessMessage::Targets(stats.into())),
        None => Ok(()),
    }
}

fn burst(lane: Option<&TelemetryStream>, samples: u64) -> CliResult {
    let Some(lane) = lane else { return Ok(()) };
    let begin_ns = monotonic_ns();
    for number in 1..=samples {
        let receipt = lane.publish(number, None)?;
        if let Some(word) =
            receipt.filter(|_| number % SAMPLES_PER_REPORT == 0 || number == samples)
        {
            say(&word)?;
        }
    }
    say(&ProcessMessage::Burst(Burst { begin_ns, end_ns: monotonic_ns(), samples }))
}

/// A topic whose receipts are reported.
pub(crate) struct ReportingTopic {
    topic: WriteTopic,
    source: Source,
}

impl ReportingTopic {
    /// Opens a topic.
    pub(crate) fn open(topic: WriteTopic) -> CliResult<Self> {
        let producer = topic.producer().or_cli()?;
        let source = Source {
            topic: topic.shape().topic().topic_name().to_string(),
            producer: producer.name.to_string(),
            incarnation: producer.incarnation,
        };
        Ok(Self { topic, source })
    }

    /// Whether it has this field; interfaces of other observatories lack some.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.topic.shape().place(field).is_some()
    }

    /// Publishes the values that it has fields for; returns the message about the receipt.
    pub(crate) fn write(
        &self,
        values: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> CliResult<Option<ProcessMessage>> {
        let values = values.into_iter().filter(|(name, _)| self.has(name));
        self.publish(values.fold(self.topic.update(), |all, (name, value)| all.set(name, value)))
    }

    fn publish(&self, update: Update<'_>) -> CliResult<Option<ProcessMessage>> {
        let receipt = update.write().or_cli()?.receipt;
        Ok(receipt.map(|receipt| ProcessMessage::Receipt(self.source.clone(), receipt.sequence)))
    }
}

/// A telemetry topic with its values.
struct TelemetryStream {
    told: ReportingTopic,
    values: Values,
}

enum Values {
    /// Of an axis of the mount.
    Axis(Mount, Axis),
    /// Synthetic: the public fields with the values of their first sample.
    Waves(Vec<(String, Value)>),
}

impl Values {
    fn of(topic: &WriteTopic, mount: &Mount) -> Self {
        if let Some(axis) = Axis::of(topic.shape().name()) {
            return Self::Axis(mount.clone(), axis);
        }
        let fields = topic.fields();
        let field = |name: &str| Some((name.to_owned(), fields.get(name)?.clone()));
        Self::Waves(topic.shape().names().filter(|name| *name != TIME).filter_map(field).collect())
    }
}

/// The field of telemetry with the time of measurement.
const TIME: &str = "timestamp";

impl TelemetryStream {
    /// Publishes a sample by number and due time; samples of a burst have no due time.
    fn publish(&self, number: u64, due: Option<Tai>) -> CliResult<Option<ProcessMessage>> {
        let time = Value::Double(due.map_or(0.0, Tai::seconds));
        match &self.values {
            Values::Axis(mount, axis) => {
                let values = mount.position(*axis, due.unwrap_or(Tai::from_nanos(0)));
                self.told.write(values.into_iter().chain([(TIME, time)]))
            }
            Values::Waves(first) => {
                let mut update = self.told.topic.update();
                for (name, value) in first {
                    update = update.set(name, wave(value, number));
                }
                if self.told.has(TIME) {
                    update = update.set(TIME, time);
                }
                self.told.publish(update)
            }
        }
    }
}

/// A measured value: arrays change in all their elements, as a mirror's forces do.
fn wave(first: &Value, number: u64) -> Value {
    let at = |place: usize| 1000.0 * ((number as f64 + place as f64) * 0.02).sin();
    match first {
        Value::Double(_) => Value::Double(at(0)),
        Value::Float(_) => Value::Float(at(0) as f32),
        Value::Doubles(all) => Value::Doubles((0..all.len()).map(at).collect()),
        Value::Floats(all) => Value::Floats((0..all.len()).map(|i| at(i) as f32).collect()),
        Value::String(_) => Value::String("demo".to_owned()),
        other => other.clone(),
    }
}

/// A failure of a component or of its topics.
macro_rules! failures {
    ($($error:ty)*) => {$(
        impl ServiceError for $error {
            fn into_cli(self) -> CliError {
                CliError::Failure(self.to_string())
            }
        }
    )*};
}

failures! {
    helio_component::InterfaceError
    helio_component::RunError
    helio_component::StartError
    helio_component::TopicReadError
    helio_component::WriteError
}
