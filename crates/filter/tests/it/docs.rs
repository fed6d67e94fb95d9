//! docs/filters.md: every example is checked and run, every function and limit is in it.

use helio_filter::{FUNCTIONS, Filter, limits};

use crate::support::{catalog_of, error, run, small_batch};

const PAGE: &str = include_str!("../../../../docs/filters.md");

/// The page's fenced blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_example_is_accepted_and_runs() {
    let examples = blocks("sql");
    assert!(examples.len() >= 3, "{}", examples.len());
    run(&small_batch(), &examples);
}

#[test]
fn every_example_of_an_error_is_rejected_as_printed() {
    for block in blocks("text") {
        let Some((text, message)) = block.trim_end().rsplit_once("\n-> ") else { continue };
        assert_eq!(error(text).to_string(), message, "{text}");
    }
}

#[test]
fn every_function_has_a_line_with_an_example_that_is_accepted() {
    let catalog = catalog_of(&small_batch());
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for function in FUNCTIONS {
        let usage = format!("`{}`", function.usage.split(" or ").next().unwrap());
        let row = rows.iter().find(|row| row[0] == usage);
        let row = row.unwrap_or_else(|| panic!("docs/filters.md lacks {usage}"));
        let example = row.last().unwrap().trim().trim_matches('`');
        let text = format!("SELECT * FROM alerts WHERE {example}");
        Filter::check(&text, &catalog).unwrap_or_else(|error| panic!("{example}: {error}"));
        assert!(example.to_lowercase().contains(function.name), "{usage} is not in {example}");
    }
}

#[test]
fn every_limit_is_named() {
    for limit in [
        limits::MAX_TEXT_BYTES,
        limits::MAX_TOKENS,
        limits::MAX_DEPTH,
        limits::MAX_NODES,
        limits::MAX_IN_VALUES,
        limits::MAX_PATTERN_BYTES,
        limits::MAX_SELECT_COLUMNS,
        limits::MAX_ORDER_KEYS,
        limits::MAX_FILTERS,
        limits::MAX_WATCH_POSITIONS,
        limits::MAX_REGION_RANGES,
    ] {
        let digits = limit.to_string();
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        assert!(PAGE.contains(&format!("| {text} |")), "docs/filters.md lacks the limit {text}");
    }
}
