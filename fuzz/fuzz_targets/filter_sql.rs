//! Any text as a filter: it is rejected, or runs, with the same outcome beside another filter.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/filter/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|text: &str| {
    targets::filter_sql(text);
});
