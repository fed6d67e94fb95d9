//! A command is sent with a value for every field, or not at all.

use serde_json::{Map, Value as Json, json};

use crate::mock::real;
use crate::support::{HANG_TIMEOUT, Site, move_to};
use helio_bus::{Bus, TopicSpec};
use helio_component::protocol::SummaryState;
use helio_component::protocol::caller::MissingFields;
use helio_component::{
    Call, Command, CommandError, Component, FieldError, Fields, Interface, InterfaceError, Remote,
    RemoteOptions, StartError,
};
use helio_core::sal::{Interfaces, TopicKind};

/// Zero, false or empty for each field of a command; a label where 0 has none.
fn zeros(remote: &Remote, command: &str) -> Map<String, Json> {
    let shape = remote.interface().shape(TopicKind::Command, command).unwrap();
    let Json::Object(mut zeros) = Fields::new(&shape).to_json() else { panic!("no object") };
    for rule in shape.checks().rules() {
        let Some(value) = zeros.get_mut(&rule.name) else { continue };
        if let Some(labels) =
            rule.enumeration.as_ref().filter(|_| rule.check_integer(None, 0).is_err())
        {
            let label = json!(labels.labels[0].1);
            *value = rule.length.map_or(label.clone(), |length| vec![label; length].into());
        }
    }
    zeros
}

fn send<'a>(
    remote: &Remote,
    command: &str,
    fields: impl Iterator<Item = (&'a String, &'a Json)>,
) -> Call {
    let call = remote.command(command);
    fields.fold(call, |call, (name, value)| call.set_json(name, value)).send()
}

/// The number of samples that a topic has; `None` if there is no such topic.
fn samples(bus: &Bus, topic: &str) -> Option<u64> {
    if !bus.topics().unwrap().iter().any(|name| name.as_str() == topic) {
        return None;
    }
    let topic = bus.topic(TopicSpec::new(topic).unwrap()).unwrap();
    Some(topic.partitions().unwrap().iter().map(|at| at.end).sum())
}

/// Leaves each field of each command out, then sends each command with explicit zeros. Returns the
/// number of fields.
fn try_all(interfaces: &Interfaces) -> usize {
    let mut tried = 0;
    for component in interfaces.components() {
        let bus = Site::memory().bus();
        let interface = Interface::new(component);
        let index = i32::from(component.indexed());
        let remote = Remote::open(&bus, &interface, index).unwrap();
        let zeros = |command: &str| zeros(&remote, command);
        for command in interface.names(TopicKind::Command) {
            let zeros = zeros(command);
            for left_out in zeros.keys() {
                tried += 1;
                let given = zeros.iter().filter(|(name, _)| *name != left_out);
                let error = send(&remote, command, given).wait().unwrap_err();
                let CommandError::Field(FieldError::Missing { topic, fields }) = &error else {
                    panic!("{error}");
                };
                let named = format!("{}/command/{command}", component.name());
                assert_eq!((topic, fields), (&named, left_out));
            }
        }
        assert_eq!(bus.topics().unwrap(), [], "nothing was published, and no topic was opened");
        let running = Component::builder(&bus, &interface, index).start().unwrap();
        // Afterwards the component would be gone.
        let mut commands: Vec<&str> = interface.names(TopicKind::Command).collect();
        commands.sort_by_key(|name| *name == "exitControl");
        for command in commands {
            drop(send(&remote, command, zeros(command).iter()));
            let topic = format!("{}/command/{command}", component.name());
            assert_eq!(samples(&bus, &topic), Some(1), "{topic}");
        }
        running.stop().unwrap();
    }
    tried
}

#[test]
fn each_field_left_out_is_named_and_nothing_is_sent() {
    assert!(try_all(Site::memory().interfaces()) > 20);
    if let Some(real) = real() {
        assert!(try_all(&real) > 700);
    }
}

#[test]
fn a_left_out_field_is_sent_as_zero_only_where_the_remote_allows_it() {
    let site = Site::memory();
    let component = Component::builder(&site.bus(), &site.mount(), 0)
        .initial_state(SummaryState::Enabled)
        .inline("moveToTarget", |command: &Command| Ok(command.number("elevation").to_string()))
        .start()
        .unwrap();
    let missing_fields = Some(MissingFields::Default);
    let options = RemoteOptions { missing_fields, ..Default::default() };
    let lax = Remote::with_options(&site.bus(), &site.mount(), 0, options).unwrap();
    let half = |remote: &Remote| {
        remote.command("moveToTarget").set("azimuth", 1.0).timeout(HANG_TIMEOUT).send().wait()
    };
    assert_eq!(half(&lax).unwrap().result, "0");
    let strict = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let told = half(&strict).unwrap_err().to_string();
    assert_eq!(
        told,
        "MTMount/command/moveToTarget: no value for elevation; a command is sent with a value for \
         every field"
    );
    let told = strict.command("moveToTarget").validate().unwrap_err().to_string();
    assert!(told.contains("no value for azimuth, elevation"), "{told}");
    assert_eq!(move_to(&strict, 1.0).set("elevation", 0).send().wait().unwrap().result, "0");
    component.stop().unwrap();
}

/// A field of an `.avsc` topic may declare its default.
#[test]
fn a_declared_default_stands_for_a_field_that_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "SALSubsystems.xml",
        "<SALSubsystemSet><SALSubsystem><Name>Lamp</Name><IndexEnumeration>no</IndexEnumeration>\
         <AddedGenerics>csc</AddedGenerics></SALSubsystem></SALSubsystemSet>",
    );
    let generics =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces/SALGenerics.xml");
    write("SALGenerics.xml", &std::fs::read_to_string(generics).unwrap());
    std::fs::create_dir(folder.path().join("Lamp")).unwrap();
    let shine = json!({"type": "record", "name": "command_shine", "fields": [
        {"name": "level", "type": "double"},
        {"name": "color", "type": "string", "default": "white"},
        {"name": "note", "type": ["null", "string"], "default": null}]});
    write("Lamp/command_shine.avsc", &shine.to_string());
    let interfaces = helio_bus::read_interfaces(folder.path()).unwrap();
    let lamp = Interface::of(&interfaces, "Lamp").unwrap();
    let site = Site::memory();
    let component = Component::builder(&site.bus(), &lamp, 0)
        .inline("shine", |command: &Command| Ok(command.text("color").to_owned()))
        .start()
        .unwrap();
    let remote = Remote::open(&site.bus(), &lamp, 0).unwrap();
    let told = remote.command("shine").send().wait().unwrap_err().to_string();
    assert!(told.contains("no value for level;"), "{told}");
    let done = remote.command("shine").set("level", 0.0).send().wait().unwrap();
    assert_eq!(done.result, "white");
    component.stop().unwrap();
}

/// The switch for programs that name no choice, in a process of its own.
#[test]
fn the_environment_decides_where_the_program_does_not() {
    const VALUE: &str = "HELIO_MISSING_FIELDS";
    let this = "the_environment_decides_where_the_program_does_not";
    let Some(value) = std::env::var_os(VALUE) else {
        for value in ["default", "refuse", "", "zeros"] {
            let ran = crate::support::only(module_path!(), this).env(VALUE, value).output();
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{ran:?}");
            assert!(String::from_utf8_lossy(&ran.stdout).contains(&format!("tried {value}.")));
        }
        return;
    };
    let site = Site::memory();
    let builder = || Component::builder(&site.bus(), &site.mount(), 0);
    let component = builder().missing_fields(MissingFields::Refuse).start().unwrap();
    let opened = Remote::open(&site.bus(), &site.mount(), 0);
    match value.to_str().unwrap() {
        "default" => drop(opened.unwrap().command("moveToTarget").send()),
        "zeros" => {
            let error = builder().start().err();
            let wrong = StartError::Interface(InterfaceError::MissingFields("zeros".to_owned()));
            assert_eq!(error.map(|error| error.to_string()), Some(wrong.to_string()));
            assert!(matches!(&opened, Err(InterfaceError::MissingFields(_))), "{opened:?}");
            let missing_fields = Some(MissingFields::Refuse);
            let options = RemoteOptions { missing_fields, ..Default::default() };
            Remote::with_options(&site.bus(), &site.mount(), 0, options).unwrap();
        }
        _ => drop(opened.unwrap().command("moveToTarget").send().wait().unwrap_err()),
    }
    let sent = samples(&site.bus(), "MTMount/command/moveToTarget").unwrap_or_default();
    assert_eq!(sent, u64::from(value == "default"));
    component.stop().unwrap();
    println!("tried {}.", value.display());
}
