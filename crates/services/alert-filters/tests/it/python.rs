//! Filters in Python among those in SQL.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use helio_alert_filters::{FilterStore, Language, Options, PythonOptions, Span, summaries};
use helio_bus::{Bus, TestClock};
use helio_core::Tai;
use helio_sandbox::{Launch, Limits};

use crate::support::{
    Night, Process, RANKED, TOPIC, activate, best, chosen, generated, sql, until_decided,
};

/// Names a Python with numpy; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// How filters in Python run, if there is one with numpy; else the test says that it is skipped.
fn python() -> Option<PythonOptions> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut probe = Command::new(&python);
    let status = probe.args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        let limits = Limits { memory_bytes: 128 << 20, ..PythonOptions::default().limits };
        return Some(PythonOptions { launch: Launch::python(python), limits });
    }
    let why = format!("{} has no numpy; name one that has in {PYTHON}", python.display());
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    None
}

const GOOD: &str = "# columns: diaSource.snr, diaSource.band, prvDiaSources.snr, \
                    prvDiaSources.midpointMjdTai\n\
                    import numpy as np\n\
                    def select(batch):\n    \
                    assert set(batch['diaSource.band']) <= set('ugrizy')\n    \
                    assert (batch['prvDiaSources'].lengths >= 0).all()\n    \
                    return batch['diaSource.snr'] > 6";

#[test]
fn a_filter_in_python_selects_what_a_query_does() {
    let Some(python) = python() else { return };
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    activate(&bus, "ada", "py", Language::Python, GOOD);
    sql(&bus, "bob", "sql", "SELECT * FROM alerts WHERE diaSource.snr > 6");
    let options = Options { python: python.clone(), ..Options::of(TOPIC) };
    let mut process = [Process::with(&bus, &options)];
    night.visit(0);
    until_decided(&mut process, 1);
    let (ada, bob) = (chosen(&bus, "ada"), chosen(&bus, "bob"));
    assert!(!ada[&night.id(0)].is_empty() && ada == bob, "{ada:?} {bob:?}");
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let dry = |store: &mut FilterStore, language, text: &str| {
        store.dry_run(language, text, Span::default(), &python).unwrap()
    };
    let by_python = dry(&mut store, Language::Python, GOOD);
    let by_sql = dry(&mut store, Language::Sql, "SELECT * FROM alerts WHERE diaSource.snr > 6");
    assert_eq!((by_python.matches, by_python.failure), (by_sql.matches, None));
    assert!(by_python.cpu_ns > 0);
}

#[test]
fn filters_that_misbehave_are_reported_and_the_others_stand() {
    let Some(python) = python() else { return };
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    let bad = [
        ("forks", "import os\ndef select(batch):\n    os.fork()\n    return [True] * batch.rows"),
        ("eats", "import numpy as np\ndef select(batch):\n    return np.ones(1 << 30) > 0"),
        ("spins", "def select(batch):\n    while True: pass"),
        ("raises", "def select(batch):\n    return 1 / 0"),
        ("lies", "def select(batch):\n    return [True]"),
        ("syntax", "def select(batch:\n"),
    ];
    for (name, text) in bad {
        let text = format!("# columns: diaSource.snr\n{text}");
        activate(&bus, "mallory", name, Language::Python, &text);
    }
    sql(&bus, "ada", "bright", RANKED);
    activate(&bus, "bob", "py", Language::Python, GOOD);
    let limits = Limits { cpu: Duration::from_millis(300), restarts: 0, ..python.limits };
    let python = PythonOptions { limits, ..python };
    let options = Options { python, ..Options::of(TOPIC) };
    let mut process = [Process::with(&bus, &options)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], best(&alerts, 6.0));
    assert!(!chosen(&bus, "bob")[&night.id(0)].is_empty());
    assert!(chosen(&bus, "mallory").is_empty());
    let summary = &summaries(&bus, TOPIC).unwrap()[0];
    for (name, _) in bad {
        let of = summary.filters["mallory"][&format!("{name}@1")];
        assert!(of.failures > 0 && of.matches == 0, "{name}: {of:?}");
    }
    assert_eq!(summary.filters["bob"]["py@1"].failures, 0);
    assert!(process[0].count(|c| &c.filter_failures) >= bad.len() as u64);
}

/// A start may fail for want of memory or processes: it is tried again.
#[test]
fn a_filter_that_cannot_be_started_is_started_later() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("python");
    let launch = Launch::python(&program);
    let clock = TestClock::new(Tai::from_nanos(1_000_000_000_000_000));
    let builder = Bus::builder().clock(std::sync::Arc::new(clock.clone()));
    let bus = builder.connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    activate(&bus, "ada", "py", Language::Python, GOOD);
    let real = python.launch.program.display().to_string();
    let options = Options { python: PythonOptions { launch, ..python }, ..Options::of(TOPIC) };
    let mut process = [Process::with(&bus, &options)];
    night.visit(0);
    until_decided(&mut process, 1);
    let of = summaries(&bus, TOPIC).unwrap()[0].filters["ada"]["py@1"];
    assert!(of.failures > 0 && chosen(&bus, "ada").is_empty(), "{of:?}");
    std::fs::write(&program, format!("#!/bin/sh\nexec {real} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    clock.advance(Duration::from_secs(61));
    night.visit(1);
    until_decided(&mut process, 2);
    assert!(!chosen(&bus, "ada")[&night.id(1)].is_empty());
}
