//! The demo's observatory: processes and topics, derived from the interfaces.

use std::path::PathBuf;

use helio_core::qos::Guarantee;
use helio_core::sal::{Component, Interfaces};
use serde_json::{Value, json};

use super::messages::{AlertTask, ComponentTask, Kind, Part, PointingTask, ScriptTask, World};
use crate::args::DemoArgs;
use crate::error::{CliError, CliResult};
use crate::sal;

/// The alerts' topic.
pub(crate) const ALERTS: &str = "alerts/packets";
/// The component that is killed and restarted.
pub(crate) const MOUNT: &str = "MTMount";
/// The topic of the mount's targets, and their rate in hertz.
pub(crate) const TARGETS: (&str, f64) = ("MTMount/command/trackTarget", 20.0);
/// The component whose second instance is refused, the first of these that exists.
const CAMERAS: [&str; 2] = ["Camera", "GenericCamera"];
/// Telemetry of cameras; each has one of these.
const TEMPERATURES: [&str; 2] = ["temperatures", "temperature"];
/// The longest exposure, in seconds.
const EXPOSURE_S: f64 = 1.0;

/// A process of the demo.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    /// Its name for people.
    pub(crate) name: String,
    /// Its kind of worker and its task.
    pub(crate) worker: &'static str,
    pub(crate) task: Value,
}

/// A topic with a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Scheduled {
    pub(crate) topic: String,
    /// Samples per second of all its writers.
    pub(crate) rate_hz: f64,
    /// Whether one of its writers is killed during the run.
    pub(crate) interrupted: bool,
    /// Whether it has the burst at the end.
    pub(crate) bursts: bool,
}

/// The processes and topics of a run.
pub(crate) struct Scene {
    /// The first publishes the burst.
    pub(crate) players: Vec<Player>,
    pub(crate) scheduled: Vec<Scheduled>,
    /// A second instance of the camera.
    pub(crate) double: Option<Player>,
    pub(crate) components: Vec<String>,
    pub(crate) guarantee: Guarantee,
}

/// Names of the players that receive special orders.
pub(crate) const SCRIPT: &str = "script";
pub(crate) const POINTING: &str = "pointing";
pub(crate) const ALERT_PLAYER: &str = "alert player";

/// Derives the processes and topics.
pub(crate) fn build(args: &DemoArgs, url: &str) -> CliResult<Scene> {
    let interfaces = sal::folder_or_own(args.interfaces.as_deref())?;
    let world = World { url: url.to_owned(), interfaces: whole(args.interfaces.as_ref())? };
    let camera = CAMERAS.into_iter().find(|name| interfaces.component(name).is_some());
    let mut casts = vec![
        vec![part(&interfaces, "MTM1M3", 0, Kind::Sensors, &[("forceActuatorData", 50.0)])?],
        vec![part(&interfaces, MOUNT, 0, Kind::Mount, &[("azimuth", 20.0), ("elevation", 20.0)])?],
        vec![
            part(&interfaces, "ESS", 1, Kind::Sensors, &[("airFlow", 1.0)])?,
            part(&interfaces, "ESS", 2, Kind::Sensors, &[("airFlow", 1.0)])?,
        ],
    ];
    let camera = camera.map(|name| {
        let warm = TEMPERATURES.map(|topic| (topic, 1.0));
        let known = |(topic, _): &(&str, f64)| {
            sal::topic(&interfaces, &format!("{name}/telemetry/{topic}")).is_ok()
        };
        let warm: Vec<_> = warm.into_iter().filter(known).collect();
        part(&interfaces, name, 1, Kind::Camera, &warm)
    });
    let camera = camera.transpose()?;
    casts.extend(camera.clone().map(|camera| vec![camera]));
    let parts = || casts.iter().flatten();
    let identity = |part: &Part| match part.index {
        0 => part.component.clone(),
        index => format!("{}:{index}", part.component),
    };
    let components: Vec<String> = parts().map(identity).collect();
    let instances = parts().map(|part| (part.component.clone(), part.index)).collect();
    let guarantees = parts().filter_map(|part| interfaces.component(&part.component));
    let guarantees = guarantees.flat_map(Component::topics).map(|topic| topic.qos().guarantee);
    let guarantee = guarantees.min().unwrap_or(Guarantee::Stored);
    let scheduled = scheduled(parts(), args);
    let cast = |parts: &Vec<Part>| {
        let names: Vec<String> = parts.iter().map(identity).collect();
        let task = ComponentTask { world: world.clone(), parts: parts.clone() };
        player(names.join(" and "), "demo-component", json!(task))
    };
    let mut players: Vec<Player> = casts.iter().map(cast).collect();
    let script = ScriptTask {
        world: world.clone(),
        components: instances,
        mount: MOUNT.to_owned(),
        camera: camera.as_ref().map(|part| (part.component.clone(), part.index)),
        exposure_s: (args.seconds.as_secs_f64() / 20.0).min(EXPOSURE_S),
    };
    let pointing =
        PointingTask { world: world.clone(), mount: MOUNT.to_owned(), rate_hz: TARGETS.1 };
    let alerts = AlertTask {
        url: url.to_owned(),
        topic: ALERTS.to_owned(),
        rate_hz: args.alert_rate,
        file: whole(args.alerts.as_ref())?,
    };
    players.push(player(POINTING.to_owned(), "demo-pointing", json!(pointing)));
    players.push(player(SCRIPT.to_owned(), "demo-script", json!(script)));
    players.push(player(ALERT_PLAYER.to_owned(), "demo-alerts", json!(alerts)));
    let double = camera.map(|camera| cast(&vec![camera]));
    Ok(Scene { players, scheduled, double, components, guarantee })
}

/// An absolute path.
fn whole(path: Option<&PathBuf>) -> CliResult<Option<PathBuf>> {
    let whole = path.map(|path| std::fs::canonicalize(path).map_err(|e| CliError::file(path, &e)));
    whole.transpose()
}

fn player(name: String, worker: &'static str, task: Value) -> Player {
    Player { name, worker, task }
}

fn part(
    interfaces: &Interfaces,
    component: &str,
    index: i32,
    kind: Kind,
    telemetry: &[(&str, f64)],
) -> CliResult<Part> {
    for (name, _) in telemetry {
        sal::topic(interfaces, &format!("{component}/telemetry/{name}"))?;
    }
    let telemetry = telemetry.iter().map(|(name, hz)| ((*name).to_owned(), *hz)).collect();
    Ok(Part { component: component.to_owned(), index, kind, telemetry })
}

fn scheduled<'a>(parts: impl Iterator<Item = &'a Part>, args: &DemoArgs) -> Vec<Scheduled> {
    let mut all: Vec<Scheduled> = Vec::new();
    let telemetry = parts.flat_map(|part| {
        part.telemetry.iter().map(move |(name, rate_hz)| Scheduled {
            topic: format!("{}/telemetry/{name}", part.component),
            rate_hz: *rate_hz,
            interrupted: part.component == MOUNT,
            bursts: false,
        })
    });
    let others = [(TARGETS.0, TARGETS.1, true), (ALERTS, args.alert_rate, false)];
    let others = others.map(|(topic, rate_hz, interrupted)| Scheduled {
        topic: topic.to_owned(),
        rate_hz,
        interrupted,
        bursts: false,
    });
    for one in telemetry.chain(others) {
        match all.iter_mut().find(|known| known.topic == one.topic) {
            Some(known) => known.rate_hz += one.rate_hz,
            None => all.push(one),
        }
    }
    // The first telemetry of the first player.
    all.iter_mut().take(1).for_each(|one| one.bursts = true);
    all
}
