//! Commands of callers whose interface is from another release than the component's.

use std::sync::mpsc::{Receiver, channel};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport};
use helio_bus::Evolution;
use helio_component::protocol::caller::{Cause, MissingFields};
use helio_component::protocol::{AckCode, CallerKey};
use helio_component::{
    Command, CommandError, Component, Failed, Interface, Remote, RemoteOptions, Running,
};
use helio_core::sal::{SalType, TopicKind};
use serde_json::{Value as Json, json};

const MOVE: &str = "MTMount_command_moveToTarget</EFDB_Topic>
    <Description>Go to a position and stay there.</Description>
";
const ELEVATION: &str = "<item>
      <EFDB_Name>elevation</EFDB_Name>
      <Description>Elevation to go to.</Description>
      <IDL_Type>double</IDL_Type>
      <Units>deg</Units>
      <Count>1</Count>
    </item>
";
const AZIMUTH: &str = "<Description>Azimuth to go to.</Description>
      <IDL_Type>double";

/// The mount of our own observatory.
fn today(site: &Site) -> Interface {
    site.mount()
}

/// The command moveToTarget has more fields, some before those that it had.
fn more(site: &Site) -> Interface {
    let item = |name: &str, kind: &str, count: u8| {
        let about = "<Description>x</Description><Units>unitless</Units>";
        let kind = format!("<IDL_Type>{kind}</IDL_Type><Count>{count}</Count>");
        format!("<item><EFDB_Name>{name}</EFDB_Name>{about}{kind}</item>")
    };
    let more = [item("reason", "string", 1), item("limits", "double", 3)].concat();
    site.other_mount(MOVE, &format!("{MOVE}{more}"))
}

/// It lacks a field: a current component would move to an elevation that no caller gave.
fn less(site: &Site) -> Interface {
    site.other_mount(ELEVATION, "")
}

/// It has a field of another type, which cannot be resolved.
fn other(site: &Site) -> Interface {
    site.other_mount(AZIMUTH, &AZIMUTH.replace("double", "string"))
}

/// A component, and the commands that it ran.
fn mount(site: &Site, interface: &Interface) -> (Running, Receiver<(String, Json)>) {
    mount_with(site, interface, MissingFields::Refuse)
}

fn mount_with(
    site: &Site,
    interface: &Interface,
    missing: MissingFields,
) -> (Running, Receiver<(String, Json)>) {
    let (tell, told) = channel();
    let running = Component::builder(&site.bus(), interface, 0)
        .on("moveToTarget", move |command: &Command| {
            let run = (command.caller().to_owned(), command.fields().to_json());
            tell.send(run).map_err(|_| Failed::aborted())
        })
        .inline("stop", |_: &Command| Ok(()))
        .missing_fields(missing)
        .start()
        .unwrap();
    (running, told)
}

fn remote(site: &Site, interface: &Interface) -> Remote {
    Remote::open(&site.bus(), interface, 0).unwrap()
}

/// A command with every field that the caller knows.
fn moving(remote: &Remote, number: f64) -> helio_component::CallBuilder {
    let shape = remote.interface().shape(TopicKind::Command, "moveToTarget");
    let shape = shape.unwrap();
    let text = shape
        .topic()
        .fields()
        .iter()
        .any(|field| &*field.name == "azimuth" && field.sal_type() == Some(SalType::String));
    let call = remote.command("moveToTarget").timeout(HANG_TIMEOUT);
    shape.names().fold(call, |call, name| match name {
        "reason" => call.set(name, "seeing"),
        "limits" => call.set_json(name, &json!([number, number + 1.0, number + 2.0])),
        "azimuth" if text => call.set(name, number.to_string()),
        "azimuth" => call.set(name, number),
        _ => call.set(name, number / 2.0),
    })
}

/// Checks that commands and validations are rejected, while others continue.
fn refused(remote: &Remote, field: &str) -> [CommandError; 2] {
    let run = moving(remote, 1.0).send().wait().unwrap_err();
    let asked = moving(remote, 1.0).validate().unwrap_err();
    for error in [&run, &asked] {
        let told = error.to_string();
        assert!(told.contains("MTMount/command/moveToTarget") || told.contains(field), "{told}");
        assert!(told.contains(field), "{told}");
    }
    remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
    [run, asked]
}

fn refused_by_component(remote: &Remote, field: &str) {
    // Each one is answered, not only the first.
    for _ in 0..3 {
        for error in refused(remote, field) {
            assert_eq!(error.code(), Some(AckCode::Failed), "{error}");
            assert_eq!(error.cause(), Some(Cause::Acknowledged), "{error}");
        }
    }
}

fn refused_by_caller(remote: &Remote, field: &str) {
    for error in refused(remote, field) {
        assert_eq!(error.cause(), Some(Cause::NotSent), "{error}");
        assert!(error.to_string().contains("MTMount/command/moveToTarget"), "{error}");
    }
}

#[test]
fn two_releases_command_at_once_and_the_component_is_upgraded_and_back() {
    on_every_transport(|site: &Site| {
        let remotes = [today(site), more(site)].map(|interface| remote(site, &interface));
        for interface in [today(site), more(site), today(site)] {
            // Where nothing, or zero, was meant by the fields that old callers do not know.
            let (component, told) = mount_with(site, &interface, MissingFields::Default);
            std::thread::scope(|scope| {
                for (who, remote) in ["old", "new"].into_iter().zip(&remotes) {
                    scope.spawn(move || {
                        for n in 0..20_u8 {
                            let call = moving(remote, f64::from(n) + 0.5).caller(who);
                            call.send().wait().unwrap();
                        }
                        moving(remote, 7.0).validate().unwrap();
                    });
                }
            });
            let knows_more = interface.shape(TopicKind::Command, "moveToTarget");
            let knows_more = knows_more.unwrap().place("limits").is_some();
            let mut numbers = [0.5, 0.5];
            for (who, values) in told.try_iter() {
                let new = usize::from(who == "new");
                let n = numbers[new];
                let mut expected = json!({"azimuth": n, "elevation": n / 2.0});
                if knows_more {
                    let limits = if new == 1 { [n, n + 1.0, n + 2.0] } else { [0.0; 3] };
                    expected["limits"] = json!(limits);
                    expected["reason"] = json!(if new == 1 { "seeing" } else { "" });
                }
                assert_eq!(values, expected, "{who}");
                numbers[new] += 1.0;
            }
            assert_eq!(numbers, [20.5, 20.5]);
            component.stop().unwrap();
        }
    });
}

/// Its values would be zeros that nobody meant.
#[test]
fn a_command_without_a_field_that_its_caller_does_not_know_is_refused() {
    on_every_transport(|site: &Site| {
        let cases = [
            (today(site), less(site), "no value for elevation"),
            (more(site), today(site), "no value for reason, limits"),
            (more(site), less(site), "no value for reason, limits, elevation"),
        ];
        for (interface, older, named) in cases {
            let (component, told) = mount(site, &interface);
            let old = remote(site, &older);
            refused_by_component(&old, named);
            // A choice of the caller is none about fields that it does not know.
            let missing_fields = Some(MissingFields::Default);
            let options = RemoteOptions { missing_fields, ..Default::default() };
            let lax = Remote::with_options(&site.bus(), &older, 0, options).unwrap();
            refused_by_component(&lax, named);
            moving(&remote(site, &interface), 3.0).send().wait().unwrap();
            assert_eq!(told.try_iter().count(), 1);
            component.stop().unwrap();
        }
    });
}

/// The signature is over values that the component has, so the answer is about the fields.
#[test]
fn a_signed_command_without_a_field_is_refused_for_that_field() {
    let site = &Site::memory();
    let (folder, key) = (tempfile::tempdir().unwrap(), CallerKey::of_seed(&[7; 32]));
    let policy = folder.path().join("who.yaml");
    let keys = format!("keys: {{alice: {}}}", key.public());
    let all = "roles: {all: ['*']}\nidentities: {alice: [all]}";
    std::fs::write(&policy, format!("default: deny\n{keys}\n{all}\n")).unwrap();
    let component = Component::builder(&site.bus(), &more(site), 0)
        .inline("moveToTarget", |_: &Command| Ok(()))
        .policy(policy)
        .start()
        .unwrap();
    let options =
        RemoteOptions { caller: Some("alice".to_owned()), key: Some(key), ..Default::default() };
    let signed = Remote::with_options(&site.bus(), &today(site), 0, options).unwrap();
    let error = moving(&signed, 3.0).send().wait().unwrap_err();
    assert_eq!(error.code(), Some(AckCode::Failed), "{error}");
    assert!(error.to_string().contains("no value for reason, limits"), "{error}");
    component.stop().unwrap();
}

#[test]
fn a_command_that_cannot_be_resolved_is_not_sent() {
    on_every_transport(|site: &Site| {
        let (component, told) = mount(site, &today(site));
        // No command was sent yet: callers are compared with the component's schema.
        let strange = remote(site, &other(site));
        refused_by_caller(&strange, "azimuth");
        let known = remote(site, &today(site));
        moving(&known, 3.0).send().wait().unwrap();
        assert_eq!(told.try_iter().count(), 1);
        component.stop().unwrap();
    });
}

#[test]
fn a_command_that_was_let_in_and_cannot_be_resolved_is_answered_each_time() {
    on_every_transport(|site: &Site| {
        let (component, told) = mount(site, &today(site));
        let known = remote(site, &today(site));
        let strange = remote(site, &other(site).evolution(Evolution::None));
        let both = |told: &Receiver<(String, Json)>| {
            refused_by_component(&strange, "azimuth");
            moving(&known, 3.0).send().wait().unwrap();
            moving(&known, 3.0).validate().unwrap();
            assert_eq!(told.try_iter().count(), 1);
        };
        both(&told);
        component.stop().unwrap();
        // It restarts, although it cannot read the topic's newest schema.
        let (component, told) = mount(site, &today(site));
        both(&told);
        component.stop().unwrap();
        // After its upgrade it rejects the other callers, whose commands it cannot read.
        let (component, told) = mount(site, &other(site));
        moving(&strange, 3.0).send().wait().unwrap();
        refused_by_component(&known, "azimuth");
        refused_by_component(&remote(site, &today(site)), "azimuth");
        assert_eq!(told.try_iter().next().unwrap().1["azimuth"], json!("3"));
        component.stop().unwrap();
    });
}

#[test]
fn a_policy_refuses_what_it_says_on_either_side() {
    let cases = [
        (None, true),
        (Some(Evolution::None), true),
        (Some(Evolution::Backward), true),
        (Some(Evolution::Forward), false),
        (Some(Evolution::Full), false),
    ];
    for (policy, runs) in cases {
        let site = &Site::memory();
        let held = |interface: Interface| match policy {
            Some(policy) => interface.evolution(policy),
            None => interface,
        };
        let (component, told) = mount_with(site, &held(today(site)), MissingFields::Default);
        let caller = remote(site, &held(less(site)));
        let call = |remote: &Remote| {
            remote.command("moveToTarget").set("azimuth", 4).timeout(HANG_TIMEOUT)
        };
        if runs {
            call(&caller).send().wait().unwrap();
            let (_, values) = told.try_iter().next().unwrap();
            assert_eq!(values, json!({"azimuth": 4.0, "elevation": 0.0}));
        } else {
            // A caller without a policy is answered by a component with one.
            let lax = remote(site, &less(site).evolution(Evolution::None));
            let cases = [
                (call(&caller).send().wait(), Cause::NotSent),
                (call(&lax).send().wait(), Cause::Acknowledged),
                (call(&lax).send().wait(), Cause::Acknowledged),
                (call(&lax).validate(), Cause::Acknowledged),
            ];
            for (ended, cause) in cases {
                let error = ended.unwrap_err();
                assert_eq!(error.cause(), Some(cause), "{error}");
                assert!(error.to_string().contains("elevation: field removed"), "{error}");
            }
        }
        assert_eq!(told.try_iter().count(), 0);
        component.stop().unwrap();
    }
}
