//! Processes that are killed at random moments, on any bus: each chosen alert is once in its user's
//! results, and the ranked ones are those of one process that nobody kills.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helio_alert_filters::{FilterStore, Options, Service, summaries};
use helio_bus::Bus;

use super::{
    Alert, DETECTORS, HANG_TIMEOUT, Night, Process, RANKED, TOPIC, best, bus, chosen, generated,
    sql, until_decided,
};

const VISITS: u32 = 8;
const ALERTS: u32 = 600;
const KILLS: u32 = 20;
const URL: &str = "HELIO_TEST_URL";
const NAME: &str = "HELIO_TEST_NAME";
/// What the service may have of anonymous memory.
const MAX_RSS_ANON: u64 = 500 << 20;

/// Where processes are killed.
pub(crate) struct Site<'s> {
    pub(crate) url: &'s str,
    /// The test that calls [`child`].
    pub(crate) child: &'s str,
    /// A process's longest life. To be killed at work, it has to start and to become the publisher.
    pub(crate) life: Duration,
}

/// The life of a process of the service, where a test of the binary is started as one.
pub(crate) fn child() {
    let (Ok(url), Ok(name)) = (std::env::var(URL), std::env::var(NAME)) else { return };
    let bus = bus(&url, &name);
    let options = Options { takeover_interval: Duration::from_millis(20), ..Options::of(TOPIC) };
    let _service = Service::start(&bus, &options).unwrap();
    loop {
        std::thread::park();
    }
}

fn start(site: &Site<'_>, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", site.child, "--nocapture"])
        .env(URL, site.url)
        .env(NAME, name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The service's processes, each restarted under a new name after a kill.
struct Processes<'s> {
    site: &'s Site<'s>,
    running: Vec<Child>,
    started: u32,
    killed: u32,
    random: Random,
}

impl<'s> Processes<'s> {
    fn start(site: &'s Site<'s>, number: usize, seed: u64) -> Self {
        let random = Random(seed);
        let mut processes = Self { site, running: Vec::new(), started: 0, killed: 0, random };
        (0..number).for_each(|_| processes.add());
        processes
    }

    fn add(&mut self) {
        self.started += 1;
        let child = start(self.site, &format!("filters-{}", self.started));
        self.running.push(child);
    }

    /// Waits for a random moment, and kills one of them.
    fn kill_one(&mut self) {
        let most = self.site.life.as_millis() as u64 / self.running.len() as u64;
        std::thread::sleep(Duration::from_millis(self.random.below(most)));
        let which = self.random.below(self.running.len() as u64) as usize;
        let mut child = self.running.swap_remove(which);
        child.kill().unwrap();
        child.wait().unwrap();
        self.killed += 1;
        self.add();
    }

    fn assert_memory(&self) {
        for child in &self.running {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
            let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            println!("RssAnon of a process: {kib} KiB");
            assert!(kib << 10 < MAX_RSS_ANON);
        }
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for child in &mut self.running {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

const PLAIN: &str = "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 6";

fn activate(bus: &Bus) {
    sql(bus, "ranked", "bright", RANKED);
    sql(bus, "ranked", "brighter", &RANKED.replace("> 6", "> 8"));
    sql(bus, "plain", "any", PLAIN);
    sql(bus, "all", "all", "SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.ra, diaSource.dec");
    sql(
        bus,
        "curve",
        "curve",
        "SELECT diaSourceId, max(prvDiaSources.snr) AS most FROM alerts \
         WHERE count_if(prvDiaSources.snr > 1) > 0 ORDER BY max(prvDiaSources.snr) DESC",
    );
    sql(bus, "rare", "rare", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 60");
    sql(bus, "none", "none", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 1e9");
}

type Chosen = BTreeMap<String, BTreeMap<i64, Vec<i64>>>;

fn everything(bus: &Bus) -> Chosen {
    let users = ["ranked", "plain", "all", "curve", "rare", "none"];
    users.into_iter().map(|user| (user.to_owned(), chosen(bus, user))).collect()
}

/// The choice of one process that nobody kills, and the alerts of each visit.
fn reference() -> (Chosen, Vec<(i64, Vec<Alert>)>) {
    let bus = bus("memory:", "night");
    let mut night = Night::new(&bus, generated(ALERTS));
    activate(&bus);
    let visits = (0..VISITS).map(|visit| (night.id(visit), night.visit(visit))).collect();
    let mut process = [Process::open(&bus)];
    until_decided(&mut process, VISITS.into());
    (everything(&bus), visits)
}

/// Publishes the night while processes are killed.
fn with_kills(site: &Site<'_>, number: usize) -> Chosen {
    let bus = bus(site.url, "night");
    let mut night = Night::new(&bus, generated(ALERTS));
    activate(&bus);
    let mut processes = Processes::start(site, number, 0x9e37_79b9 + number as u64);
    for visit in 0..VISITS {
        night.open(visit);
        for detector in 0..DETECTORS {
            night.publish(visit, [detector]);
            let due = KILLS * (visit * u32::from(DETECTORS) + u32::from(detector) + 1)
                / (VISITS * u32::from(DETECTORS));
            while processes.killed < due {
                processes.kill_one();
            }
        }
        night.close(visit);
    }
    assert_eq!(processes.killed, KILLS);
    println!("{} of {VISITS} visits are decided", summaries(&bus, TOPIC).unwrap().len());
    let start = Instant::now();
    while summaries(&bus, TOPIC).unwrap().len() < VISITS as usize {
        assert!(start.elapsed() < HANG_TIMEOUT * 3, "{:?}", summaries(&bus, TOPIC));
        std::thread::sleep(Duration::from_millis(50));
    }
    processes.assert_memory();
    everything(&bus)
}

/// Some processes, killed twenty times, choose what one process chooses that nobody kills.
pub(crate) fn killed(site: &Site<'_>, number: usize) {
    let (expected, visits) = reference();
    let found = with_kills(site, number);
    for user in ["ranked", "all", "curve", "none"] {
        assert_eq!(found[user], expected[user], "{user}");
    }
    let mut results = 0;
    for (visit, alerts) in &visits {
        assert_eq!(found["ranked"][visit], best(alerts, 6.0));
        for (user, above) in [("plain", 6.0), ("rare", 60.0)] {
            let matching: BTreeSet<i64> = alerts
                .iter()
                .filter(|alert| alert.snr.is_some_and(|snr| snr > above))
                .map(|alert| alert.id)
                .collect();
            let of_user = found[user].get(visit).cloned().unwrap_or_default();
            let distinct: BTreeSet<i64> = of_user.iter().copied().collect();
            assert_eq!(distinct.len(), of_user.len(), "an alert came twice to {user}");
            assert_eq!(distinct.len(), matching.len().min(20), "{user}");
            assert!(distinct.is_subset(&matching), "{user}");
        }
        results +=
            found.values().filter_map(|of_user| of_user.get(visit)).map(Vec::len).sum::<usize>();
    }
    println!("{number} processes, {KILLS} kills: {results} results, each once, as of one process");
}

/// Statistics count each alert once, whoever was killed.
pub(crate) fn statistics(site: &Site<'_>) {
    with_kills(site, 2);
    let bus = bus(site.url, "reader");
    drop(FilterStore::open(&bus, TOPIC).unwrap());
    for summary in summaries(&bus, TOPIC).unwrap() {
        let of = summary.filters["none"]["none@1"];
        assert_eq!((of.alerts, of.matches), (u64::from(ALERTS), 0), "visit {}", summary.visit);
        assert_eq!(summary.filters["all"]["all@1"].matches, u64::from(ALERTS));
    }
}
