//! Requirements of a demo: what must hold, and what was measured.

use serde::Serialize;

use crate::out::text_table;

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

    /// A table for people.
    pub fn table(all: &[Self]) -> Vec<String> {
        let word = |one: &Self| if one.met { "met" } else { "MISSED" }.to_owned();
        let row = |one: &Self| vec![one.name.to_owned(), word(one), one.measured.clone()];
        let rows: Vec<Vec<String>> = all.iter().map(row).collect();
        text_table(&["requirement", "", "measured"], &rows)
    }
}
