//! Requirements of a demo: what must hold, and what was measured.

use serde::Serialize;

use crate::out::text_table;

/// What is said of a figure that was not measured.
pub const NOT_MEASURED: &str = "not measured";

/// One requirement.
#[derive(Debug, Serialize)]
pub struct Requirement {
    /// What is required.
    pub name: &'static str,
    /// Whether missing it is an error. Times depend on the machine and its load.
    pub must: bool,
    /// Whether it is met.
    pub met: bool,
    /// What was measured.
    pub measured: String,
}

impl Requirement {
    /// The missed ones that must be met, as sentences.
    pub fn wrong(all: &[Self]) -> Vec<String> {
        let wrong = all.iter().filter(|one| one.must && !one.met);
        wrong.map(|one| format!("{}: {}", one.name, one.measured)).collect()
    }

    /// A table for people. What was not measured is neither met nor missed.
    pub fn table(all: &[Self]) -> Vec<String> {
        let word = |one: &Self| match one.met {
            true => "met",
            false if one.measured == NOT_MEASURED => "",
            false => "MISSED",
        };
        let row =
            |one: &Self| vec![one.name.to_owned(), word(one).to_owned(), one.measured.clone()];
        let rows: Vec<Vec<String>> = all.iter().map(row).collect();
        text_table(&["requirement", "", "measured"], &rows)
    }
}
