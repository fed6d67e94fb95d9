//! A damaged byte at every position of every file.

use std::collections::BTreeMap;
use std::fs;

use crate::storm_report::Storm;
use crate::support::damage::{files, in_memory, make, places, restore, use_it};
use helio_journal::Access;

#[test]
fn a_damaged_byte_anywhere_is_an_error_or_a_gap() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved: BTreeMap<_, _> =
        files(&dir).into_iter().map(|p| (p.clone(), fs::read(&p).unwrap())).collect();
    let mut tried = 0;
    for (path, bytes) in &saved {
        for at in places(path, bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(path, &damaged).unwrap();
            let access = if at % 4 == 0 { Access::ReadOnly } else { Access::ReadWrite };
            use_it(&dir, access);
            restore(&dir, &saved);
            tried += 1;
        }
    }
    assert!(tried > 3000, "{tried}");
    // `use_it` fails where a sample is wrong and no gap or error reports it.
    Storm { tried, survived: tried, ..Storm::default() }.report("journals with one damaged byte");
}
