//! The whole corruption matrix: every bit of every header and small file, one at a time.
//! `HELIO_MATRIX_STEP=37` tries every thirty-seventh bit only; all of them take 3 to 6 minutes.

use std::fs;

use crate::storm_report::Storm;
use crate::support::damage::in_memory;
use crate::support::matrix::*;

/// What is damaged; a check that fails names it.
struct Case(String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Damages every bit of a file's ranges, in a journal of its own. Returns how many journals were
/// refused with an error, of those tried.
fn every_bit(file: &str, ranges: &[std::ops::Range<usize>]) -> (usize, usize) {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    let path = dir.join(file);
    let (mut refused, mut tried, mut unreported) = (0, 0, 0);
    let step = std::env::var("HELIO_MATRIX_STEP").map_or(1, |step| step.parse().unwrap());
    let bits = ranges.iter().cloned().flatten().flat_map(|byte| (0..8).map(move |b| (byte, b)));
    for (byte, bit) in bits.step_by(step) {
        damage(&path, |bytes| bytes[byte] ^= 1 << bit);
        let case = Case(format!("{file}, byte {byte}, bit {bit}"));
        let outcomes = check(&dir, &saved, &case.0);
        refused += outcomes.iter().filter(|outcome| outcome.refused.is_some()).count();
        tried += outcomes.len();
        unreported += outcomes.iter().map(Outcome::unreported).sum::<u64>();
    }
    // A journal is read, or refused with an error: `check` fails otherwise, and where bytes vanish.
    let storm = Storm { tried: tried as u64, survived: tried as u64, lost: 0, unreported };
    storm.report("journals with one damaged bit");
    (refused, tried)
}

/// Fixed part, seal, counts, *live*, closing time, and the first entries of the index.
#[test]
fn every_bit_of_every_segment_s_header() {
    for seq in 1..=SEGMENTS {
        let file = format!("topics/t/0/{seq:016}.seg");
        let (refused, tried) = every_bit(&file, std::slice::from_ref(&(0..304)));
        assert_eq!(refused, 0, "of {tried}: {file}");
    }
}

#[test]
fn every_bit_of_the_control_page() {
    let (refused, tried) = every_bit("topics/t/0/control", &[0..128, 192..960, 1024..1700]);
    // A reader cannot rebuild the head.
    assert!(refused <= 64 * 8, "{refused} of {tried} were refused");
}

/// The locks' bytes are the C library's: a damaged one is refused until the next boot.
#[test]
fn every_bit_of_the_locks() {
    let (refused, tried) = every_bit("topics/t/0/control", &[128..192, 960..1024]);
    assert!(refused * 2 < tried, "{refused} of {tried} were refused");
}

#[test]
fn every_bit_of_the_producers() {
    let (refused, tried) = every_bit("topics/t/producers", &[0..64, 128..1024]);
    assert_eq!(refused, 0, "of {tried}");
}

#[test]
fn every_bit_of_the_other_small_files() {
    for file in ["topics/t/0/keys.1", "journal.hj"] {
        let (refused, tried) = every_bit(file, std::slice::from_ref(&(0..130)));
        assert!(refused <= 64 * 8 * 3, "{refused} of {tried} were refused: {file}");
    }
}

/// Two of a journal's files are damaged at once: still no offset is given twice.
#[test]
fn two_headers_at_once() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    for one in 1..=SEGMENTS {
        for other in 1..=SEGMENTS {
            for (from, to) in [(0, 100), (16, 24), (32, 48), (128, 176)] {
                damage(&segment(&dir, one), |bytes| bytes[from..to].fill(0));
                damage(&segment(&dir, other), |bytes| bytes[8..100].fill(0xff));
                check(&dir, &saved, &format!("segments {one} and {other}, bytes {from} to {to}"));
            }
            damage(&segment(&dir, other), |bytes| bytes[33] ^= 4);
            fs::remove_file(segment(&dir, one)).unwrap();
            check(&dir, &saved, &format!("segment {one} is missing, {other} damaged"));
        }
    }
}
