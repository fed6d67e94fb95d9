//! The alert rules and the dashboard in a real Prometheus, which scrapes `helio-alerts serve`: each
//! rule fires for its fault, and each panel has data. Without Debian's package `prometheus` the
//! tests say so, and fail where `HELIO_ENGINES_REQUIRED` is set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use helio_alert_filters::records::Summary;
use helio_alert_filters::{Topics, VisitStatistics};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, control_topic};
use helio_alerts::rubin::Version;
use helio_alerts::visit::{Closing, Control, Digest, Opening};
use helio_bus::{Bus, Message, Tai, TopicName, TopicSpec};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema as _;
use serde_json::Value;

use crate::support::{HANG_TIMEOUT, Running, Site, get, wait_for};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");
/// A visit is some minutes away from the next of another fault, so that none meets another.
const FILTERED: &str = "2000000";

/// The program, where it is there.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file());
    if found.is_none() {
        let why = format!("{name} is not here; on Debian: apt-get install prometheus");
        let required =
            std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
        assert!(!required, "{why}");
        std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    }
    found
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let Some(promtool) = program("promtool") else { return };
    for args in [["check", "rules", "alerts.rules.yml"], ["test", "rules", "alerts.rules.test.yml"]]
    {
        let ran = Command::new(&promtool).args(args).current_dir(MONITORING).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
    }
    // No rule is without a test.
    let tests = std::fs::read_to_string(Path::new(MONITORING).join("alerts.rules.test.yml"));
    let tests = tests.unwrap();
    for name in rules() {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} has no test");
    }
}

/// The rules' names.
fn rules() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(MONITORING).join("alerts.rules.yml")).unwrap();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// A running Prometheus.
struct Prometheus {
    child: Child,
    url: String,
    /// Rules that have fired.
    fired: BTreeSet<String>,
}

impl Prometheus {
    /// Starts it with the rules, which wait a second instead of minutes, and these targets.
    fn start(program: &Path, folder: &Path, targets: &[&str]) -> Self {
        let rules = std::fs::read_to_string(Path::new(MONITORING).join("alerts.rules.yml"));
        let soon = |line: &str| match line.trim_start().strip_prefix("for: ") {
            Some(_) => line.split("for: ").next().unwrap().to_owned() + "for: 1s\n",
            None => format!("{line}\n"),
        };
        let rules: String = rules.unwrap().lines().map(soon).collect();
        std::fs::write(folder.join("rules.yml"), rules).unwrap();
        let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n\
             \x20 - job_name: helio-alerts\n\
             \x20   static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        // The port is free again when the listener is dropped.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut started = Self { child, url: address.to_string(), fired: BTreeSet::new() };
        let url = started.url.clone();
        wait_for("Prometheus", || {
            assert_eq!(started.child.try_wait().unwrap(), None, "it has ended");
            TcpStream::connect(&url).ok()
        });
        started
    }

    /// The data of an answer of its API; `None` while it is not ready.
    fn api(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.url).unwrap();
        stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        // HTTP/1.0 has no chunks.
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.url);
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// The values of a query.
    fn query(&self, expression: &str) -> Vec<f64> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => encoded.push(char::from(byte)),
                _ => write!(encoded, "%{byte:02X}").unwrap(),
            }
        }
        let Some(data) = self.api(&format!("query?query={encoded}")) else { return Vec::new() };
        let value = |series: &Value| series["value"][1].as_str().unwrap().parse().unwrap();
        data["result"].as_array().unwrap().iter().map(value).collect()
    }

    /// Waits until a query has a value, which is not 0.
    fn wait_for(&self, expression: &str) {
        wait_for(expression, || {
            self.query(expression).iter().any(|value| *value != 0.0).then_some(())
        });
    }

    /// Waits until a rule has fired.
    fn wait_until_fired(&mut self, rule: &str) {
        wait_for(rule, || {
            let alerts = self.api("alerts")?["alerts"].take();
            let firing = alerts.as_array().unwrap().iter().filter(|one| one["state"] == "firing");
            let names = firing.map(|one| one["labels"]["alertname"].as_str().unwrap().to_owned());
            self.fired.extend(names);
            self.fired.contains(rule).then_some(())
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A running `helio-alerts serve`, and where it is.
struct Served {
    running: Running,
    address: String,
    stamps: String,
}

impl Served {
    fn start(site: &Site, stream: &str) -> Self {
        let serve = ["serve", "--topic", stream, "--listen", "127.0.0.1:0", "--json"];
        let mut running = Running::start(site.command(&serve));
        let line = running.line();
        let address = line["metrics"].as_str().unwrap().strip_prefix("http://").unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        Self { running, address, stamps: line["stamps"].as_str().unwrap().to_owned() }
    }

    fn signal(&self, name: &str) {
        let id = self.running.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

/// The streams of the test, and their faults.
struct Faults {
    site: Site,
    bus: Bus,
}

impl Faults {
    /// Publishes alerts without stamps and pasts.
    fn produce(&self, args: &[&str]) {
        let plain = ["produce", "--no-stamps", "--history", "none", "--partitions", "2"];
        let ran = self.site.run(&[&plain[..], args].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }

    /// Publishes a visit of 2,000 alerts, or more.
    fn visit(&self, visit: &str, alerts: &str) {
        self.produce(&["--first-visit", visit, "--alerts", alerts, "--detectors", "4"]);
    }

    /// Publishes some detectors of four, which have 8 alerts together.
    fn part(&self, visit: &str, args: &[&str]) {
        let few = ["--first-visit", visit, "--alerts", "8", "--detectors", "4"];
        self.produce(&[&few[..], args].concat());
    }

    /// The alerts of a visit's only published detector of two, by a shutter that closed earlier.
    fn published_late(&self, first_visit: u32, alerts: u32, seconds: i64) -> i64 {
        let options = GeneratorOptions {
            first_visit,
            alerts_per_visit: alerts,
            detectors: 1,
            stamps: WithStamps::None,
            history: History::None,
            ..GeneratorOptions::default()
        };
        let mut generator = Generator::new(options);
        let options = ProducerOptions::default();
        let producer = CcdProducer::open(&self.bus, "alerts", Version::LATEST.schema(), options);
        let producer = producer.unwrap();
        let visit = generator.visit_id(0);
        let now = self.bus.clock().now().nanos();
        let shutter_close_ns = now - seconds * 1_000_000_000;
        let detectors = vec![0, 1];
        let window_ns = 3_600_000_000_000;
        let opening =
            Opening { visit, detectors, shutter_close_ns, window_ns, ..Opening::default() };
        producer.open_visit(opening).unwrap();
        producer.set_shutter_close(visit, Tai::from_nanos(shutter_close_ns));
        let packet = |number| {
            let mut datum = Vec::new();
            generator.write(AlertNumber { visit: 0, detector: 0, number }, &mut datum);
            datum
        };
        let packets: Vec<_> = (0..alerts).map(packet).collect();
        assert!(producer.publish(Ccd { visit, detector: 0 }, &packets).unwrap().is_published());
        visit
    }

    /// Closes a visit with totals that are not those of its alerts.
    fn close_wrongly(&self, visit: i64) {
        let topic = self.bus.topic(TopicSpec::new("alerts").unwrap()).unwrap();
        let closing = Control::Closing(Closing {
            visit,
            closer: "test".to_owned(),
            totals: Digest::default(),
            ends: topic.partitions().unwrap().iter().map(|p| p.end as i64).collect(),
            missing: vec![1],
            short: Vec::new(),
            repeated: Vec::new(),
        });
        let mut payload = Vec::new();
        Codec::new(&Control::schema().unwrap()).serialize(&closing, &mut payload).unwrap();
        let control = control_topic(&self.bus, "alerts").unwrap().publisher().unwrap();
        control.publish(Message::new(&payload)).wait().unwrap();
    }

    /// Decides a visit whose results were refused, as a registry does: a journal has none.
    fn refuse_results(&self) {
        let bus = Bus::connect(&self.site.url).unwrap();
        let visit = 9_000_000;
        let refused = VisitStatistics { alerts: 9, matches: 2, refused: 2, ..Default::default() };
        let of_filters = |filter: &str| BTreeMap::from([(filter.to_owned(), refused)]);
        let summary = Summary {
            visit,
            decided_ns: 0,
            filters: BTreeMap::from([("ada".to_owned(), of_filters("all@1"))]),
            results: BTreeMap::new(),
            late: BTreeMap::new(),
            causes: BTreeMap::new(),
        };
        let topic = Topics::of("alerts").summaries();
        let publisher = bus.topic(TopicSpec::new(&topic).unwrap()).unwrap().publisher().unwrap();
        let (key, value) = (visit.to_string(), serde_json::to_vec(&summary).unwrap());
        publisher.publish(Message::new(&value).key(key.as_bytes())).wait().unwrap();
    }

    /// Activates filters: one that always hits the cap, one whose list is removed, one with an
    /// error for each alert, and a slow one.
    fn filters(&self) {
        let list = self.site.folder.path().join("list");
        std::fs::write(&list, "10 -20\n").unwrap();
        let list = list.to_str().unwrap();
        self.site.run(&["watch-list", "put", "targets", list, "--json"]);
        let powers = (0..300).map(|n| format!("power(diaSource.snr, 1.{n:03}) < 0"));
        let slow = powers.collect::<Vec<_>>().join(" OR ");
        let filters = [
            ("ada/all", "diaSource.ra >= 0"),
            ("bob/list", "in_watchlist('targets')"),
            ("dan/slow", &slow),
            ("eve/errors", "10 / (diaSource.visit - diaSource.visit) = 1"),
        ];
        for (name, condition) in filters {
            let text = format!("SELECT diaSourceId FROM alerts WHERE {condition}");
            self.site.run(&["filter", "add", name, &text]).ok();
            self.site.run(&["filter", "activate", name, "--force"]).ok();
        }
        self.site.run(&["watch-list", "remove", "targets"]).ok();
    }
}

#[test]
fn each_rule_fires_for_its_fault_and_each_panel_has_data() {
    let Some(program) = program("prometheus") else { return };
    helio_transports::register_all();
    let site = Site::new();
    let bus = Bus::connect(&site.url).unwrap();
    let faults = Faults { site, bus };
    let site = &faults.site;
    faults.visit("1000000", "2000");
    faults.filters();
    let (small, split) = (["--topic", "small", "--keep-bytes", "1M"], ["--topic", "split"]);
    site.produce(&small);
    site.produce(&[&split[..], &["--layout", "split"]].concat());
    let [main, of_small, of_split, of_none] =
        ["alerts", "small", "split", "none"].map(|stream| Served::start(site, stream));
    let targets = [&main, &of_small, &of_split, &of_none].map(|served| &served.address[..]);
    let mut prometheus = Prometheus::start(&program, site.folder.path(), &targets);
    // What is counted is known before anything happens.
    prometheus.wait_for("count(up == 1) == 4");
    prometheus.wait_for("count(count_over_time(helio_alerts_filter_failures_total[1m]) >= 2) == 4");
    prometheus.wait_for("count(helio_alerts_up == 1) == 3");
    prometheus.wait_until_fired("HelioAlertsStreamDown");

    faults.visit("1000001", "2000");
    prometheus.wait_until_fired("HelioAlertsFiltersStopped");
    let run = ["filter", "run", "--json"];
    let mut service = Running::start(site.command(&run));
    assert_eq!(service.line()["event"], "started");
    faults.visit(FILTERED, "2000");
    for rule in ["FilterFails", "FilterErrors", "FilterSlow", "FilterCapped"] {
        prometheus.wait_until_fired(&format!("HelioAlerts{rule}"));
    }

    faults_of_visits(&faults, &mut prometheus);
    assert_eq!(service.end("TERM").0, Some(0));
    faults.refuse_results();
    prometheus.wait_until_fired("HelioAlertsResultsRefused");

    // A service that sleeps for longer than packets are stored.
    of_small.signal("STOP");
    site.produce(&[&small[..], &["--first-visit", "1000001", "--visits", "6"]].concat());
    of_small.signal("CONT");
    prometheus.wait_until_fired("HelioAlertsLost");
    // The packets are there, but not the topic with their stamps.
    assert!(faults.bus.remove_topic(&TopicName::new("split/stamps").unwrap()).unwrap());
    let alert = Generator::new(GeneratorOptions {
        alerts_per_visit: 30,
        detectors: 4,
        history: History::None,
        ..GeneratorOptions::default()
    });
    let alert = alert.alert_id(AlertNumber { visit: 0, detector: 0, number: 0 }).to_string();
    let url = of_split.stamps.replace("{alert}", &alert).replace("{stamp}", "cutoutScience");
    assert_eq!(get(&url, &[]).status, 500);
    prometheus.wait_until_fired("HelioAlertsStampsFail");
    panels_have_data(&prometheus);
    of_none.signal("KILL");
    prometheus.wait_until_fired("HelioAlertsServiceDown");
    let missing: Vec<_> =
        rules().into_iter().filter(|rule| !prometheus.fired.contains(rule)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// Provokes what goes wrong with groups, visits and packets.
fn faults_of_visits(faults: &Faults, prometheus: &mut Prometheus) {
    let site = &faults.site;
    let few = ["consume", "--group", "slow", "--from", "earliest", "-n", "10", "--json"];
    assert_eq!(site.run(&few).code, Some(0));
    faults.visit("3000000", "24000");
    prometheus.wait_until_fired("HelioAlertsGroupLags");
    prometheus.wait_until_fired("HelioAlertsGroupAway");

    faults.part("4000000", &["--detector", "0", "--open", "--window", "0s"]);
    prometheus.wait_until_fired("HelioAlertsVisitIncomplete");
    faults.part("4000000", &["--detector", "1"]);
    prometheus.wait_until_fired("HelioAlertsLate");
    faults.part("5000000", &["--visits", "5", "--detector", "0", "--open", "--window", "1h"]);
    prometheus.wait_until_fired("HelioAlertsVisitsOpen");
    let again = ["--alerts", "6000", "--detectors", "4", "--detector", "0", "--window", "1h"];
    for open in [true, false] {
        let first = ["--first-visit", "6000000", "--open"];
        faults.produce(&[&again[..], &first[..if open { 3 } else { 2 }]].concat());
    }
    prometheus.wait_until_fired("HelioAlertsRepeated");
    faults.published_late(7_000_000, 1_500, 100);
    prometheus.wait_until_fired("HelioAlertsSlow");
    let visit = faults.published_late(8_000_000, 8, 0);
    faults.close_wrongly(visit);
    prometheus.wait_until_fired("HelioAlertsVisitDiffers");
    let alerts = faults.bus.topic(TopicSpec::new("alerts").unwrap()).unwrap();
    alerts.publisher().unwrap().publish(Message::new(b"no packet")).wait().unwrap();
    prometheus.wait_until_fired("HelioAlertsDamaged");
}

/// Asserts that each query of the dashboard returns numbers.
fn panels_have_data(prometheus: &Prometheus) {
    let text = std::fs::read_to_string(Path::new(MONITORING).join("alerts-dashboard.json"));
    let dashboard: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "1m");
            let values = prometheus.query(&expression.replace("$__range", "10m"));
            let is_there = values.iter().any(|value| value.is_finite());
            assert!(is_there, "{}: {expression} has no data", panel["title"]);
            queries += 1;
        }
    }
    assert!(queries > 20, "the dashboard has {queries} queries");
}
