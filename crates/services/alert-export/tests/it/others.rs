//! Exports as others read them: pyarrow, fastavro, astropy.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use helio_alert_export::{ExportOptions, Format, StampsChoice};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::producer::TopicLayout;
use helio_alerts::rubin::Version;
use serde_json::Value as Json;

use crate::support::{Stream, export, generator};

/// Names a Python with these packages; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// A Python that has the packages; where there is none the test says that it is skipped, and fails
/// where nothing may be.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut probe = Command::new(&python);
    let probe = probe.args(["-c", "import fastavro, pyarrow.dataset, astropy.table"]);
    if probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let why = format!(
        "{} has no fastavro, pyarrow or astropy; `make test` installs them, or name a Python that \
         has them in {PYTHON}",
        python.display()
    );
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    None
}

#[test]
fn pyarrow_and_fastavro_read_equal_values() {
    let Some(python) = python() else { return };
    let options = GeneratorOptions {
        alerts_per_visit: 25,
        stamps: WithStamps::Fits,
        ..generator(Version::LATEST)
    };
    let mut stream = Stream::with(options, TopicLayout::Inline);
    stream.publish_night(2);
    let folders = [stream.target("parquet"), stream.target("avro")];
    for (folder, format) in folders.iter().zip([Format::Parquet, Format::Avro]) {
        let stamps = StampsChoice::Inline;
        let options = ExportOptions { format, stamps, ..ExportOptions::default() };
        assert!(export(&stream, folder, &options).is_equal());
    }
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/peer.py");
    let read = Command::new(python).arg(peer).args(&folders).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: Json = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!((read["rows"].as_u64(), read["astropy"].as_u64()), (Some(50), Some(50)));
    assert!(read["points"].as_u64().unwrap() >= 4 * 50, "{read}");
    assert_eq!((&read["flux"], &read["history"]), (&"float".into(), &"float".into()));
    assert_eq!(read["units"], "nJy");
}
