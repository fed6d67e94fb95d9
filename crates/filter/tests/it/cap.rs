//! The cap: one answer, however the work is shared and whoever is killed.

use std::collections::BTreeSet;

use helio_filter::cap::{CAP, Candidate, MAX_OPEN_VISITS, Match, Mode, Worker};
use helio_filter::{Filter, Rank};

use crate::support::model::World;
use crate::support::{catalog_of, small_batch};

#[test]
fn ranked_results_equal_those_of_one_process() {
    let mut capped = 0;
    for seed in 0..24 {
        for processes in [1, 2, 4] {
            let mut world = World::new(seed, 1 + seed as usize % 6, 4, 60);
            world.run_ranked(processes, if seed % 3 == 0 { 0 } else { 8 });
            let reference = world.ranked_reference();
            let found: BTreeSet<_> = world.target.iter().cloned().collect();
            assert_eq!(found, reference, "seed {seed}, {processes} processes");
            world.assert_no_duplicates();
            world.assert_late();
            let of_first = |r: &&(i64, String, i64)| r.0 == 1 && r.1 == "user0";
            capped += usize::from(reference.iter().filter(of_first).count() == CAP);
        }
    }
    assert!(capped > 0, "no run reached the cap");
}

#[test]
fn claims_are_granted_once_in_the_order_of_their_log() {
    for seed in 0..24 {
        for processes in [1, 2, 4] {
            let mut world = World::new(seed, 1 + seed as usize % 6, 4, 60);
            let reference = world.run_claims(processes, if seed % 3 == 0 { 0 } else { 8 });
            let found: BTreeSet<_> = world.target.iter().cloned().collect();
            assert_eq!(found, reference, "seed {seed}, {processes} processes");
            world.assert_no_duplicates();
        }
    }
}

#[test]
fn a_users_filters_share_one_mode() {
    let catalog = catalog_of(&small_batch());
    let check = |order: &str| {
        let text = format!("SELECT * FROM alerts WHERE diaSource.snr > 5 {order}");
        Filter::check(&text, &catalog).unwrap()
    };
    let (none, by_snr) = (check(""), check("order by diaSource.snr desc"));
    let same = check("ORDER  BY diaSource.snr DESC");
    let other = check("ORDER BY diaSource.psfFlux");
    assert_eq!(Mode::of([]), Ok(None));
    assert_eq!(Mode::of([("a", &none), ("b", &none)]), Ok(Some(Mode::FirstCome)));
    let ranked = Mode::Ranked("diaSource.snr DESC".to_owned());
    assert_eq!(Mode::of([("a", &by_snr), ("b", &same)]), Ok(Some(ranked)));
    let mixed = Mode::of([("a", &by_snr), ("b", &none)]).unwrap_err().to_string();
    assert_eq!(
        mixed,
        "filter a has ORDER BY diaSource.snr DESC, and filter b has no ORDER BY: a user's active \
         filters share one ORDER BY, or have none"
    );
    assert!(Mode::of([("a", &by_snr), ("b", &other)]).is_err());
}

/// A visit whose end is known is ended by reading on: it must not stop the reading.
#[test]
fn a_visit_with_a_known_end_does_not_count_as_open() {
    let mut worker = Worker::default();
    worker.assign(0, 0);
    let matching = |position: u64| Match {
        partition: 0,
        position,
        visit: position as i64,
        user: "ada".to_owned(),
        candidate: Candidate { alert: 1, rank: Rank::default(), filters: BTreeSet::new() },
    };
    for visit in 0..2 * MAX_OPEN_VISITS as i64 {
        assert!(worker.end(1_000 + visit, 0, 5_000).is_empty());
    }
    assert!(!worker.is_full(0) && worker.open_visits().is_empty());
    for visit in 0..MAX_OPEN_VISITS as u64 {
        assert!(!worker.is_full(0));
        assert!(worker.take(matching(visit)).is_empty());
    }
    assert!(worker.is_full(0) && worker.open_visits().len() == MAX_OPEN_VISITS);
    assert!(worker.end(7, 0, 5_000).is_empty());
    assert!(!worker.is_full(0));
}
