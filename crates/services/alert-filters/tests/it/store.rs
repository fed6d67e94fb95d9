//! Versions, activations, dry runs.

use helio_alert_filters::records::Cost;
use helio_alert_filters::{
    ChangeError, FilterId, FilterStore, Force, Language, Options, PythonOptions, Span, Topics,
};
use helio_alerts::producer::ProducerOptions;
use helio_alerts::topics::Keep;
use helio_bus::{Bus, Event, Start, Subscribe, Tai, TopicSpec};

use crate::support::{
    HANG_TIMEOUT, Night, Process, RANKED, TOPIC, best, bus, generated, header, producing, sql,
    until_decided,
};

fn store(bus: &Bus) -> FilterStore {
    Night::new(bus, generated(12));
    FilterStore::open(bus, TOPIC).unwrap()
}

const PLAIN: &str = "SELECT * FROM alerts WHERE diaSource.snr > 10";

#[test]
fn versions_grow_and_never_change() {
    let bus = Bus::connect("memory:").unwrap();
    let mut store = store(&bus);
    let first = store.add("ada", "f", Language::Sql, PLAIN).unwrap();
    let again = store.add("ada", "f", Language::Sql, PLAIN).unwrap();
    assert_eq!((first.version, &again), (1, &first));
    let second = store.add("ada", "f", Language::Sql, RANKED).unwrap();
    let other = store.add("ada", "g", Language::Sql, PLAIN).unwrap();
    assert_eq!((second.version, other.version, other.hash == first.hash), (2, 1, true));
    // A text of before is a new version: the newest one is another.
    assert_eq!(store.add("ada", "f", Language::Sql, PLAIN).unwrap().version, 3);
    let found: Vec<_> =
        store.definitions().versions(Some("ada")).map(|v| v.0.to_string()).collect();
    assert_eq!(found, ["ada/f@1", "ada/f@2", "ada/f@3", "ada/g@1"]);
    assert_eq!(store.definitions().versions(Some("bob")).count(), 0);
}

#[test]
fn texts_and_names_are_checked() {
    let bus = Bus::connect("memory:").unwrap();
    let mut store = store(&bus);
    let mut refused =
        |user: &str, text: &str| store.add(user, "f", Language::Sql, text).unwrap_err().to_string();
    let near = "SELECT * FROM alerts WHERE diaSource.snir > 10";
    assert!(refused("ada", near).contains("is it diaSource.snr?"));
    assert!(refused("a/b", PLAIN).contains("invalid name"));
    assert!(
        refused("ada", "SELECT * FROM alerts WHERE in_watchlist('w')").contains("no watch list")
    );
    let python = store.add("ada", "p", Language::Python, "def select(batch): return []");
    assert!(python.unwrap_err().to_string().contains("# columns:"));
    let text = "# columns: diaSource.snr, cutoutScience\n";
    let python = store.add("ada", "p", Language::Python, text).unwrap_err().to_string();
    assert!(python.contains("cutoutScience") && python.contains("cannot read Binary"), "{python}");
}

#[test]
fn an_activation_needs_a_dry_run_or_force() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(200));
    night.visit(0);
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let id =
        store.add("ada", "all", Language::Sql, "SELECT * FROM alerts WHERE TRUE").unwrap().id();
    let missing = store.activate(&id, Force::No).unwrap_err();
    assert!(matches!(missing, ChangeError::NoReport(_)), "{missing}");
    let python = PythonOptions::default();
    let report = store.dry_run_version(&id, Span::default(), &python).unwrap();
    assert_eq!((report.alerts, report.matches, report.visits), (200, 200, 1));
    let excess = store.activate(&id, Force::No).unwrap_err().to_string();
    assert!(excess.contains("matches 100.0 % of the alerts, 5 at most"), "{excess}");
    store.activate(&id, Force::Yes).unwrap();
    let rare = "SELECT * FROM alerts WHERE diaSource.snr > 1e9";
    let rare = store.add("ada", "rare", Language::Sql, rare).unwrap().id();
    let report = store.dry_run_version(&rare, Span::default(), &python).unwrap();
    assert_eq!((report.matches, report.cost), (0, Cost::Flat));
    assert!(report.bytes > 0 && report.bytes_of_visit() > 0 && report.selectivity() == 0.0);
    let unknown = FilterId { version: 9, ..rare.clone() };
    let unknown = store.activate(&unknown, Force::Yes).unwrap_err();
    assert!(matches!(unknown, ChangeError::Unknown(_)), "{unknown}");
}

/// The night before, and not what came after it.
#[test]
fn a_dry_run_reads_a_span() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(30));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    night.visit(0);
    let between = bus.clock().now();
    night.visit(1);
    let text = "SELECT * FROM alerts WHERE count_if(prvDiaSources.snr > 0) >= 0";
    let mut run =
        |span| store.dry_run(Language::Sql, text, span, &PythonOptions::default()).unwrap();
    let all = run(Span::default());
    assert_eq!((all.alerts, all.matches, all.visits, all.most_matches), (60, 60, 2, 30));
    assert_eq!(all.cost, Cost::History);
    let first = run(Span { until: Some(between), ..Span::default() });
    assert_eq!((first.alerts, first.visits), (30, 1));
    let second = run(Span { from: Some(between), ..Span::default() });
    assert_eq!((second.alerts, second.visits), (30, 1));
    assert_eq!(run(Span { max_alerts: 7, ..Span::default() }).alerts, 7);
    let never = Span { from: Some(Tai::from_nanos(i64::MAX / 2)), ..Span::default() };
    assert_eq!(run(never).alerts, 0);
}

/// What retention or damage has removed of the span is in the report.
#[test]
fn a_dry_run_reports_gaps() {
    let text = "SELECT * FROM alerts WHERE diaSource.snr > 0";
    let run = |bus: &Bus, span| {
        let mut store = FilterStore::open(bus, TOPIC).unwrap();
        store.dry_run(Language::Sql, text, span, &PythonOptions::default()).unwrap()
    };
    let bus = Bus::connect("memory:").unwrap();
    let keep = Keep { partition_bytes: Some(1 << 20), ..Keep::default() };
    let options = ProducerOptions { keep, ..producing() };
    let mut night = Night::with(&bus, generated(300), options);
    let begin = Span { from: Some(bus.clock().now()), ..Span::default() };
    night.visit(0);
    let whole = run(&bus, begin);
    assert_eq!((whole.alerts, whole.lost, whole.removed_before_ns), (300, 0, None));
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let is_cut = || topic.partitions().unwrap().iter().any(|partition| partition.first > 0);
    let visits = (1..).find(|visit| {
        night.visit(*visit);
        is_cut()
    });
    let rest = run(&bus, begin);
    assert!(rest.alerts < 300 * u64::from(visits.unwrap() + 1), "{rest:?}");
    let before = rest.removed_before_ns.unwrap();
    assert!(before > begin.from.unwrap().nanos() && before < bus.clock().now().nanos());
    // What comes behind the gap has none.
    let later = Span { from: Some(Tai::from_nanos(before)), ..Span::default() };
    assert_eq!(run(&bus, later).removed_before_ns, None);
    assert_eq!(run(&bus, Span::default()).removed_before_ns, None, "the oldest is the start");
    // Lost while it reads.
    let bus = Bus::connect("fault:memory:?drop=0.1&seed=7").unwrap();
    let mut night = Night::new(&bus, generated(300));
    night.visit(0);
    let lossy = run(&bus, Span::default());
    assert!(lossy.lost > 0 && lossy.alerts + lossy.lost <= 300, "{lossy:?}");
}

#[test]
fn a_users_filters_rank_alike_or_not_at_all() {
    let bus = Bus::connect("memory:").unwrap();
    let mut store = store(&bus);
    let mut add =
        |name: &str, text: &str| store.add("ada", name, Language::Sql, text).unwrap().id();
    let (ranked, plain) = (add("ranked", RANKED), add("plain", PLAIN));
    let alike = add("alike", &PLAIN.replace("10", "20 order by diaSource.snr desc"));
    store.activate(&ranked, Force::Yes).unwrap();
    let mixed = store.activate(&plain, Force::Yes).unwrap_err().to_string();
    assert!(
        mixed.contains("filter ranked has ORDER BY") || mixed.contains("no ORDER BY"),
        "{mixed}"
    );
    store.activate(&alike, Force::Yes).unwrap();
    let python = "# columns: diaSource.snr\ndef select(batch): return batch['diaSource.snr'] > 9";
    let python = store.add("ada", "python", Language::Python, python).unwrap().id();
    assert!(matches!(store.activate(&python, Force::Yes), Err(ChangeError::Mixed(_))));
    store.deactivate("ada", "ranked").unwrap();
    store.deactivate("ada", "alike").unwrap();
    store.activate(&plain, Force::Yes).unwrap();
    store.activate(&python, Force::Yes).unwrap();
    assert!(matches!(store.deactivate("ada", "ranked"), Err(ChangeError::NotActive { .. })));
    assert_eq!(store.definitions().active_set()["ada"].len(), 2);
}

/// Two programs at once: each version has one number, each change is seen by the other.
#[test]
fn two_writers_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    drop(store(&bus(&url, "first")));
    let add = |name: &'static str| {
        let url = url.clone();
        std::thread::spawn(move || {
            let mut store = FilterStore::open(&bus(&url, name), TOPIC).unwrap();
            let text = |n: i32| format!("SELECT * FROM alerts WHERE diaSource.snr > {n} -- {name}");
            let add = |n| store.add("ada", "f", Language::Sql, &text(n)).unwrap().version;
            (0..10).map(add).collect::<Vec<u32>>()
        })
    };
    let threads = ["one", "two"].map(add);
    let mut versions: Vec<u32> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=20).collect::<Vec<_>>());
    let store = FilterStore::open(&bus(&url, "third"), TOPIC).unwrap();
    assert_eq!(store.definitions().versions(None).count(), 20);
}

/// Users connect before there is a result.
#[test]
fn an_activation_creates_the_topic_of_results() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let (another, bus) = (bus(&url, "another"), bus(&url, "test"));
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "bright", RANKED);
    let topic = bus.topic(TopicSpec::new(&Topics::of(TOPIC).results("ada")).unwrap()).unwrap();
    let mut results = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let options = Options { results_bytes: 1 << 30, ..Options::of(TOPIC) };
    let mut process = [Process::with(&bus, &options)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    // An open topic has the retention with which it was opened.
    let topic = another.topic(TopicSpec::new(&Topics::of(TOPIC).results("ada")).unwrap()).unwrap();
    assert_eq!(topic.qos().retention.bytes, Some(1 << 30), "the process's option holds");
    let expected = best(&alerts, 6.0);
    for id in expected {
        let sample = results.next_timeout(HANG_TIMEOUT).unwrap().and_then(Event::into_sample);
        assert_eq!(header(&sample.unwrap(), "alert"), id.to_string());
    }
}
