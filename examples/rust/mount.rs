//! A telescope mount as a component, and a script that commands it.
//!
//!     cargo run -p helio-component --example mount [URL]     # memory: without one
//!
//! On a `journal:` others see it meanwhile: `helio component watch --url URL`.

use std::time::Duration;

use helio_bus::Bus;
use helio_component::protocol::checks::{Limits, Nan};
use helio_component::protocol::{StateCommand, SummaryState};
use helio_component::{Command, Component, Failed, Interface, Remote, Running, StartError};
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Goes to a position in ten steps, telling how it gets on; it can be cancelled in between.
fn move_to_target(command: &Command) -> Result<serde_json::Value, Failed> {
    let mount = command.component();
    if mount.state() != SummaryState::Enabled {
        return Err(Failed::new("the mount moves in state ENABLED only"));
    }
    let (azimuth, elevation) = (command.number("azimuth"), command.number("elevation"));
    mount.event("target")?.set("azimuth", azimuth).set("elevation", elevation).write()?;
    mount.event("elevationMotionState")?.set("state", "Moving").write()?;
    let position = mount.telemetry("elevation")?;
    for step in 1..=10 {
        let fraction = f64::from(step) / 10.0;
        command.in_progress(Duration::from_secs(5), "moving", Some(fraction));
        command.pause(Duration::from_millis(20))?;
        position.set("actualPosition", elevation * fraction).write()?;
    }
    mount.event("elevationMotionState")?.set("state", "Stopped").write()?;
    Ok(json!({"elevation": elevation}))
}

fn start(bus: &Bus, interface: &Interface) -> Result<Running, StartError> {
    let limits = Limits { min: Some(15.0), max: Some(86.5), nan: Nan::Refused };
    Component::builder(bus, interface, 0)
        .on("moveToTarget", move_to_target)
        .limit("moveToTarget", "elevation", limits)
        .inline("stop", |_: &Command| Ok(()))
        .begin(StateCommand::Enable, |command: &Command| {
            println!("{} asks for power", command.caller());
            Ok(())
        })
        .start()
}

fn script(mount: &Remote) -> Result<(), Failure> {
    mount.set_state(SummaryState::Enabled, "")?;
    let to = |elevation: f64| {
        mount.command("moveToTarget").set("azimuth", 0.0).set("elevation", elevation)
    };
    if let Err(refused) = to(5.0).validate() {
        println!("{refused}");
    }
    let mut call = to(45.0).timeout(Duration::from_secs(10)).send();
    while let Some(ack) = call.next()? {
        match ack.progress {
            Some(fraction) => println!("{} {:3.0} %", ack.result, fraction * 100.0),
            None => println!("{} {}", ack.code, ack.typed.unwrap_or(ack.result)),
        }
    }
    let mut position = mount.telemetry("elevation")?;
    if let Some(newest) = position.newest()? {
        println!("elevation: {}", newest.to_json());
    }
    mount.set_state(SummaryState::Offline, "")?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");
    let interface = Interface::of(&helio_bus::read_interfaces(folder)?, "MTMount")?;
    let bus = Bus::connect(&url)?;
    let component = start(&bus, &interface)?;
    script(&Remote::open(&bus, &interface, 0)?)?;
    Ok(component.wait()?)
}
