//! The line by which a storm says what it tried. `scripts/soak` collects these lines in a table.

use std::io::Write;

/// What a storm of faults did, and what it cost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Storm {
    /// Faults: kills, damaged bits, power cuts, deletions, members that came or left.
    pub(crate) tried: u64,
    /// Faults after which the test's checks held, each by itself or all together: the system went
    /// on, or refused with an error that names the cause.
    pub(crate) survived: u64,
    /// Acknowledged samples that are missing.
    pub(crate) lost: u64,
    /// Samples that are missing or wrong without a report to any reader.
    pub(crate) unreported: u64,
}

impl Storm {
    /// Prints the line, and fails where anything was lost in silence or did not survive.
    pub(crate) fn report(self, name: &str) {
        let Self { tried, survived, lost, unreported } = self;
        let line = format!(
            "storm: {name}: tried {tried}, survived {survived}, lost {lost}, \
             unreported {unreported}\n"
        );
        // Not by `eprintln!`, which a test that passes keeps to itself.
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        assert!(tried > 0, "{name}: nothing was tried");
        assert_eq!((survived, lost, unreported), (tried, 0, 0), "{name}");
    }
}
