//! SAL's `byte` is -128 to 255: unsigned for its users, signed for older programs.

use crate::support::{HANG_TIMEOUT, Site, on_every_transport};
use helio_bus::{Start, Subscribe, TopicSpec};
use helio_component::protocol::SummaryState;
use helio_component::{Command, CommandError, Component, Interface, Remote};
use helio_core::codec::wire::put_long;
use helio_core::sal::Interfaces;

const HEATER: &str = "
name: Heater
description: One heater and its fans.
generics: [csc]
commands:
  demand:
    fields:
      - {name: fans, type: byte, count: 2}
      - {name: power, type: byte}
telemetry:
  power:
    fields:
      - {name: fans, type: byte, count: 2}
      - {name: power, type: byte}
";

/// All values of a byte.
const ALL: std::ops::RangeInclusive<i32> = -128..=255;

fn heater() -> Interface {
    Interface::of(&Interfaces::load([("Heater.yaml", HEATER)]).unwrap(), "Heater").unwrap()
}

/// The Avro bytes of the field at a topic's end, as fastavro writes them for salobj.
fn tail(value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_long(&mut bytes, i64::from(value));
    bytes
}

#[test]
fn every_value_of_a_byte_arrives() {
    on_every_transport(|site: &Site| {
        let heater = heater();
        let component = Component::builder(&site.bus(), &heater, 0)
            .initial_state(SummaryState::Enabled)
            .inline("demand", |command: &Command| {
                let values = command.fields().to_json();
                let power = command.component().telemetry("power")?;
                let update = power.update().set_json("fans", &values["fans"]);
                update.set_json("power", &values["power"]).write()?;
                Ok::<_, helio_component::Failed>(values)
            })
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &heater, 0).unwrap();
        let mut power = remote.telemetry("power").unwrap();
        let mut raw = ["Heater/command/demand", "Heater/telemetry/power"].map(|topic| {
            let topic = site.bus().topic(TopicSpec::new(topic).unwrap()).unwrap();
            topic.subscribe(Subscribe::from(Start::Earliest)).unwrap()
        });
        for value in ALL {
            let other = 127 - value;
            let call = remote.command("demand").set("power", value).timeout(HANG_TIMEOUT);
            let done = call.set("fans", vec![value, other]).send().wait().unwrap();
            let told: serde_json::Value = serde_json::from_str(&done.typed.unwrap()).unwrap();
            assert_eq!(told["power"], value);
            assert_eq!(told["fans"], serde_json::json!([value, other]));
            let read = power.next(HANG_TIMEOUT).unwrap();
            assert_eq!(read.integer("power"), Some(i64::from(value)));
            assert_eq!(read.fields().numbers("fans"), Some([value, other].map(f64::from).to_vec()));
            for samples in &mut raw {
                let sample = samples.next_sample().unwrap();
                assert!(sample.payload.ends_with(&tail(value)), "{value}: {:?}", sample.payload);
            }
        }
        let refused = remote.command("demand").set("fans", vec![0, 256]).set("power", 0);
        let error = refused.send().wait().unwrap_err();
        assert!(matches!(error, CommandError::Field(_)), "{error}");
        assert!(error.to_string().contains("fans[1] is 256; it must be -128 to 255"), "{error}");
        let error = component.telemetry("power").unwrap().set("power", -129).write().unwrap_err();
        assert!(error.to_string().contains("power is -129; it must be -128 to 255"), "{error}");
        component.stop().unwrap();
    });
}
