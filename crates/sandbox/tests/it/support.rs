//! A Python with numpy, a batch, and filters over it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use helio_sandbox::{
    Batch, Column, Filter, FilterError, Launch, Limits, Mask, Number, StartError, Values, WORKER,
};

/// Names a Python with numpy; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// A Python that has numpy; none where there is none, which is said.
pub(crate) fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut probe = Command::new(&python);
    let status = probe.args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let why = format!(
        "{} has no numpy; `make test` installs it, or name a Python that has it in {PYTHON}",
        python.display()
    );
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    None
}

/// The worker with a part of its script replaced, which must be there.
pub(crate) fn changed(python: &Path, from: &str, to: &str) -> Launch {
    assert!(WORKER.contains(from), "{from}");
    let script = WORKER.replace(from, to);
    let arguments = ["-I", "-c", &script].map(Into::into).to_vec();
    Launch { arguments, ..Launch::python(python) }
}

/// `select` with a body, each line of which is indented.
pub(crate) fn select(body: &str) -> String {
    let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("import numpy as np\n\ndef select(batch):\n{lines}")
}

pub(crate) fn start(python: &Path, text: &str) -> Result<Filter, StartError> {
    Filter::start(Launch::python(python), text, Limits::default())
}

/// A filter that computes `body` and has started.
pub(crate) fn filter(python: &Path, body: &str) -> Filter {
    start(python, &select(body)).unwrap()
}

/// A batch with one column `n` of the numbers from 0.
pub(crate) fn numbers(rows: i32) -> Batch {
    let bytes: Vec<u8> = (0..rows).flat_map(i32::to_le_bytes).collect();
    let values = Values::Numbers { kind: Number::I32, bytes: &bytes };
    let column = Column { name: "n", values, validity: None };
    Batch::new(usize::try_from(rows).unwrap(), &[column]).unwrap()
}

/// The selected rows.
pub(crate) fn rows(mask: &Mask) -> Vec<usize> {
    (0..mask.rows()).filter(|row| mask.is_selected(*row)).collect()
}

/// The rows of [`numbers`]`(10)` that a filter selects.
pub(crate) fn selected(filter: &mut Filter) -> Result<Vec<usize>, FilterError> {
    filter.select(&numbers(10)).map(|(mask, _)| rows(&mask))
}
