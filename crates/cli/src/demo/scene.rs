//! The observatory that the demo plays: from the interfaces, its writers and readers.

use helio_core::Qos;
use helio_core::codec::wire;
use helio_core::sal::{Interfaces, Topic};

use super::plan::{Body, Stream};
use crate::args::DemoArgs;
use crate::error::{CliError, CliResult};
use crate::sal;
use crate::value::schema_text;

/// The alerts' topic.
const ALERTS: &str = "alerts/packets";
/// Indices of the weather station's masts.
const MASTS: [i32; 2] = [1, 2];

/// Who takes part.
pub(crate) struct Scene {
    /// Writers by producer's name, with their streams; the first stream of the first is the
    /// burst's.
    pub(crate) writers: Vec<(String, Vec<Stream>)>,
    /// Readers by name, with their topics.
    pub(crate) readers: Vec<(String, Vec<String>)>,
    /// The writer that is killed and started again.
    pub(crate) victim: String,
}

impl Scene {
    /// The topics whose newest samples a late joiner asks for.
    pub(crate) fn event_topics(&self) -> Vec<String> {
        let streams = self.writers.iter().flat_map(|(_, streams)| streams);
        let events = streams.filter(|stream| stream.topic.contains("/event/"));
        events.map(|stream| stream.topic.clone()).collect()
    }
}

/// Sets the scene.
pub(crate) fn build(args: &DemoArgs) -> CliResult<Scene> {
    let interfaces = sal::folder_or_own(args.interfaces.as_deref())?;
    let stream = |name: &str, rate_hz: f64| stream(&interfaces, name, rate_hz);
    let alerts = args
        .alerts
        .as_deref()
        .map(|path| std::fs::canonicalize(path).map_err(|e| CliError::file(path, &e)));
    let alerts = Stream {
        topic: ALERTS.to_owned(),
        qos: Qos::stream(),
        rate_hz: args.alert_rate,
        body: Body::Alerts(alerts.transpose()?),
        indices: Vec::new(),
    };
    let writers = vec![
        writer(
            "MTM1M3",
            vec![
                stream("MTM1M3/telemetry/forceActuatorData", 50.0)?,
                stream("MTM1M3/event/summaryState", 1.0)?,
            ],
        ),
        writer(
            "MTPointing",
            vec![
                stream("MTMount/command/trackTarget", 20.0)?,
                stream("MTMount/event/summaryState", 1.0)?,
            ],
        ),
        writer(
            "ESS",
            vec![stream("ESS/telemetry/airFlow", 10.0)?, stream("ESS/event/summaryState", 2.0)?],
        ),
        writer("AlertPlayer", vec![alerts]),
    ];
    let all: Vec<String> = writers.iter().flat_map(|(_, s)| s).map(|s| s.topic.clone()).collect();
    let (alerts, console): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|t| t == ALERTS);
    let mount: Vec<_> = all.iter().filter(|t| t.starts_with("MTMount/command")).cloned().collect();
    let console = console.into_iter().filter(|topic| !mount.contains(topic)).collect();
    let readers = vec![
        ("mount".to_owned(), mount),
        ("operators' console".to_owned(), console),
        ("alert broker".to_owned(), alerts),
        ("recorder of everything".to_owned(), all),
    ];
    Ok(Scene { writers, readers, victim: "ESS".to_owned() })
}

fn writer(name: &str, streams: Vec<Stream>) -> (String, Vec<Stream>) {
    (name.to_owned(), streams)
}

fn stream(interfaces: &Interfaces, name: &str, rate_hz: f64) -> CliResult<Stream> {
    let topic: &Topic = sal::topic(interfaces, name)?;
    let schema = topic.schema().map_err(|e| CliError::Refused(format!("{topic}: {e}")))?;
    Ok(Stream {
        topic: topic.topic_name().to_string(),
        qos: topic.qos(),
        rate_hz,
        body: Body::Typed { schema: schema_text(&schema).text.to_string() },
        indices: if topic.indexed() { MASTS.to_vec() } else { Vec::new() },
    })
}

/// The key of an index: the field `salIndex` as Avro encodes it.
pub(crate) fn key_of(index: i32) -> Vec<u8> {
    let mut key = Vec::new();
    wire::put_long(&mut key, index.into());
    key
}
