//! Results on a real Kafka broker with our registry, read by the clients of other brokers: they
//! are unmodified, from `PyPI`, in a virtual environment of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use helio_alert_filters::{Content, Delivery, FilterStore, Format, summaries};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_bus::Bus;
use helio_registry::{Registry, Server, serve};
use serde_json::Value;

use crate::filters::{Alert, Night, Process, TOPIC, best, chosen, generated, sql, until_decided};
use crate::support::{broker, skipped};

const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/others/clients.txt");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/others/clients.py");
/// Names a Python with the packages; else a virtual environment is made of them.
const PYTHON: &str = "HELIO_CLIENTS_PYTHON";

/// A Python with the clients.
fn clients() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PYTHON) {
        return Some(named.into());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alert-clients");
    let python = folder.join("bin/python");
    let pinned = std::fs::read_to_string(PINNED).unwrap();
    let installed = folder.join("installed.txt");
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == pinned) {
        return Some(python);
    }
    let mut commands = [Command::new("python3"), Command::new(&python)];
    commands[0].args(["-m", "venv", "--clear"]).arg(&folder);
    commands[1].args(["-m", "pip", "install", "--quiet", "--no-deps", "--requirement", PINNED]);
    for command in &mut commands {
        let ran = command.output().unwrap();
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            skipped(&format!("the clients of {PINNED} cannot be installed: {said}"));
            return None;
        }
    }
    std::fs::write(installed, pinned).unwrap();
    Some(python)
}

/// `helio registry`, stored in a journal.
fn registry(folder: &Path) -> Server {
    let bus = Bus::connect(&format!("journal:{}", folder.display())).unwrap();
    serve(Registry::open(&bus).unwrap(), "127.0.0.1:0").unwrap()
}

const COLUMNS: &str = "SELECT diaSourceId AS objectId, diaSource.snr, diaSource.band FROM alerts \
     WHERE diaSource.snr > 6 ORDER BY diaSource.snr DESC";
const PACKETS: &str = "SELECT * FROM alerts WHERE diaSource.snr > 6 ORDER BY diaSource.snr DESC";

/// The users, with the client of each.
const USERS: [(&str, &str, Format, Content, &str); 7] = [
    ("columns", "confluent", Format::Confluent, Content::Selected, COLUMNS),
    ("packets", "confluent", Format::Confluent, Content::WithStamps, PACKETS),
    ("places", "confluent", Format::Confluent, Content::Reference, PACKETS),
    ("fink", "fink", Format::Fink, Content::Selected, COLUMNS),
    ("fink-packets", "fink", Format::Fink, Content::WithStamps, PACKETS),
    ("lasair", "lasair", Format::Json, Content::Selected, COLUMNS),
    ("lasair-once", "lasair_once", Format::Json, Content::Selected, COLUMNS),
];

fn activate(bus: &Bus) {
    for (user, _, format, content, text) in USERS {
        sql(bus, user, "bright", text);
        let delivery = Delivery { format, content };
        FilterStore::open(bus, TOPIC).unwrap().set_delivery(user, delivery).unwrap();
    }
}

/// A user whose subject has another schema: the registry's level is BACKWARD.
fn activate_refused(bus: &Bus, registry: &str) {
    sql(bus, "mallory", "bright", COLUMNS);
    let subject = "alerts..results..mallory-value";
    let schema = r#"{"type":"record","name":"Other","fields":[{"name":"x","type":"int"}]}"#;
    let body = serde_json::json!({ "schema": schema }).to_string();
    let url = format!("{registry}/subjects/{subject}/versions");
    let script = "import sys,urllib.request as r; r.urlopen(r.Request(sys.argv[1], \
                  sys.argv[2].encode(), {'Content-Type': 'application/json'}))";
    let ran = Command::new("python3").args(["-c", script, &url, &body]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Checks the data that a client has read, in the order of the ranks.
fn check(user: &str, content: Content, read: &[Value], expected: &[&Alert]) {
    assert_eq!(read.len(), expected.len(), "{user}");
    for (datum, alert) in read.iter().zip(expected) {
        let snr = |datum: &Value| datum.as_f64().map(|snr| snr as f32);
        let packet = match (content, datum.get("objectId")) {
            (Content::Reference, _) => {
                assert_eq!(datum["alert"], alert.id, "{user}: {datum}");
                continue;
            }
            (_, Some(id)) => {
                assert_eq!((id, snr(&datum["diaSource_snr"])), (&alert.id.into(), alert.snr));
                assert!(datum["diaSource_band"].is_string(), "{user}: {datum}");
                continue;
            }
            (_, None) => datum,
        };
        assert_eq!(packet["diaSourceId"], alert.id, "{user}");
        assert_eq!(snr(&packet["diaSource"]["snr"]), alert.snr, "{user}");
        assert_eq!(packet["prvDiaSources"].as_array().unwrap().len(), 3, "{user}");
        // A FITS file has blocks of 2,880 bytes.
        let stamp = packet["cutoutScience"].as_u64().unwrap();
        assert!(stamp > 0 && stamp.is_multiple_of(2_880), "{user}: {stamp}");
    }
}

#[test]
fn clients_of_other_brokers_read_results_unmodified() {
    let (Some(python), Some(broker)) = (clients(), broker()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = registry(folder.path());
    let registry = format!("http://{}", server.address());
    let url = format!("{}?schema.registry.url={registry}", broker.url);
    let bus = Bus::builder().producer("night").connect(&url).unwrap();
    let stamps = GeneratorOptions { stamps: WithStamps::Fits, ..generated(60) };
    let mut night = Night::new(&bus, stamps);
    activate(&bus);
    activate_refused(&bus, &registry);
    let mut process = [Process::open(&bus)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    let expected: Vec<&Alert> = best(&alerts, 6.0)
        .into_iter()
        .map(|id| alerts.iter().find(|alert| alert.id == id).unwrap())
        .collect();
    // The registry has refused one user's schema, and nobody else's results.
    let summary = &summaries(&bus, TOPIC).unwrap()[0];
    let of = summary.filters["mallory"]["bright@1"];
    assert_eq!((of.refused, of.sent()), (expected.len() as u64, 0), "{summary:?}");
    assert!(summary.causes["mallory"]["bright@1"].contains("Other"), "{:?}", summary.causes);
    assert!(chosen(&bus, "mallory").is_empty());
    let topics = USERS.map(|(user, client, ..)| {
        assert_eq!(chosen(&bus, user)[&night.id(0)].len(), expected.len(), "{user}");
        format!("{client}:alerts..results..{user}:{}", expected.len())
    });
    let mut command = Command::new(python);
    let servers = broker.url.trim_start_matches("kafka://");
    let read = command.arg(SCRIPT).args([servers, &registry]).args(&topics).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).unwrap();
    // Confluent's registry client prints a warning of its HTTP library.
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let read: Vec<Value> = lines.map(parse).collect();
    assert_eq!(read.len(), USERS.len() * expected.len());
    for ((user, client, _, content, _), of_user) in
        USERS.into_iter().zip(read.chunks(expected.len()))
    {
        assert!(of_user.iter().all(|line| line["kind"] == client));
        let data: Vec<Value> = of_user.iter().map(|line| line["datum"].clone()).collect();
        check(user, content, &data, &expected);
    }
    println!("{} clients read {} results each, as they were sent", USERS.len(), expected.len());
}
