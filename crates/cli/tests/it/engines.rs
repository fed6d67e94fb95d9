//! What only whole programs on real engines show, one short test each; storms are in the soak.

#[cfg(feature = "dds")]
use crate::support::Simulated;
use crate::support::Site;
#[cfg(all(feature = "dds", feature = "kafka"))]
use crate::support::helio;

fn site(url: String) -> Site {
    Site { url, ..Site::new() }
}

/// A component on DDS: its lease keeps a second one away, and it is commanded.
#[cfg(feature = "dds")]
#[test]
fn a_component_on_dds_is_alone_and_is_commanded() {
    let site = site(crate::dds::url(crate::dds::domain()));
    let folder = tempfile::tempdir().unwrap();
    let _service = crate::dds::Service::start(&site.url, folder.path());
    let mount = Simulated::start(&site, &["MTMount", "--state", "ENABLED"]);
    let second = Simulated::try_start(&site, &["MTMount"]).err().unwrap();
    assert!(second.contains("MTMount runs already"), "{second}");
    let moves = ["MTMount", "moveToTarget", "azimuth=1.5", "elevation=45", "--json"];
    let ran = site.run(&[&["component", "command"], &moves[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("303"), "{ran:?}");
    mount.interrupt();
}

/// Logging on Kafka: what is logged arrives once, in order.
#[cfg(feature = "kafka")]
#[test]
fn records_on_kafka_are_tailed_once_and_in_order() {
    let Some(url) = crate::support::shared_broker() else { return };
    let site = site(url);
    let lines: Vec<_> = (0..100).map(|n| format!("step {n}")).collect();
    site.run_with(&["log", "emit", "-"], lines.join("\n").as_bytes()).ok();
    let records = site.run(&["log", "tail", "--no-follow", "--json"]).lines();
    let messages: Vec<_> = records.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, lines);
}

/// The bridge between both.
#[cfg(all(feature = "dds", feature = "kafka"))]
#[test]
fn a_bridge_hands_a_topic_of_kafka_to_late_joiners_on_dds() {
    let Some(url) = crate::support::shared_broker() else { return };
    let (from, to) = (site(url), site(crate::dds::url(crate::dds::domain())));
    let values = ["{\"k\": 1}", "{\"k\": 2}", "{\"k\": 3}"];
    let publish = ["pub", "t", values[0], values[1], values[2], "--key-field", "k"];
    from.run(&[&publish[..], &["--profile", "event", "--json"]].concat()).ok();
    let mut bridge = helio();
    bridge.args(["bridge", &from.url, &to.url, "--topics", "t"]);
    bridge.args(["--qos", "durability=transient_local"]).stdout(std::process::Stdio::null());
    let bridge = Simulated(bridge.spawn().unwrap());
    let late = ["sub", "t", "--from", "last", "--count", "3", "--wait", "--json"];
    let mut came: Vec<_> =
        to.run(&late).lines().iter().map(|sample| sample["payload"].to_string()).collect();
    came.sort();
    assert_eq!(came.len(), 3, "{came:?}");
    for (value, k) in came.iter().zip(1..) {
        assert!(value.contains(&k.to_string()), "{came:?}");
    }
    bridge.interrupt();
}
