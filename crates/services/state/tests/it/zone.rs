//! The decision core of a zone: explored exhaustively within small bounds, its rules switched off
//! one by one, the shared model's walks replayed, and simulated by seed. The whole is a soak.

use helio_state::zone::Mutant;

use crate::zone_model::walk::{text, walk};
use crate::zones::replay::{Replayed, model_world, replay};
use crate::zones::series::{MUTANTS, POLICIES, Run, caught, complete, policy, world};
use crate::zones::simulate::checked;
use crate::zones::world::World;

/// Small bounds, and the states of the shared model within them where its results name them.
const SMALL: &[Run] = &[
    ("consistent", "epochs=4,writes=2,breaks=2", "", 8_238),
    ("consistent", "epochs=4,writes=3,blanks=1,breaks=1", "", 24_264),
    ("fence", "resigns=2,breaks=1", "", 60_391),
    ("preferred", "epochs=2,powers=1", "", 0),
    ("preferred=B", "epochs=2,powers=1", "--durability both", 0),
    ("witness", "epochs=1,crashes=1", "", 0),
    ("available", "epochs=2,breaks=1", "", 0),
];

/// Rules whose mutants need more states than a fast test has.
const SLOW: &[Mutant] = &[
    Mutant::restart_serves_at_once,
    Mutant::dirty_is_member,
    Mutant::witness_init_in_sync,
    Mutant::witness_init_by_consent,
    Mutant::evidence_outlives_session,
    Mutant::fence_answer_late,
    Mutant::join_fences,
    Mutant::blackout_counts_on,
    Mutant::excess_ignored,
    Mutant::join_longest,
    Mutant::epoch_by_number,
    Mutant::heal_without_resign,
    Mutant::confirm_reuses_answer,
];

#[test]
fn no_invariant_is_violated_within_small_bounds() {
    for run in SMALL {
        complete(run, 400_000);
    }
}

#[test]
fn each_quick_mutant_is_caught() {
    for row in MUTANTS.iter().filter(|row| !SLOW.contains(&row.0)) {
        caught(row, 150_000);
    }
}

#[test]
fn each_mutant_has_a_row() {
    for mutant in Mutant::ALL {
        let rows = MUTANTS.iter().filter(|row| row.0 == *mutant).count();
        assert_eq!(rows, 1, "{}", mutant.name());
    }
}

/// S2: with a clock that stops, leases are not enough; `reads=confirm` is.
#[test]
fn a_stopped_clock_breaks_leases() {
    let row = (Mutant::no_lease, "witness", "epochs=1", "--clock-stops");
    let found = crate::zones::explore::search(&world(&row, None), 100_000);
    let crate::zones::explore::End::Violated(what, _) = found.end else {
        panic!("not found in {} states", found.states);
    };
    assert!(what.starts_with("I1"), "{what}");
}

#[test]
fn the_core_decides_as_the_shared_model_does() {
    for (name, flags) in POLICIES {
        let mut world = World::new(
            policy(name),
            "writes=3,crashes=2,powers=1,blanks=1,breaks=2,\
            resigns=1,fences=1,epochs=5,queue=3",
        )
        .flags(flags);
        (world.forgetful, world.coarse) = (true, true);
        let shared = model_world(&world);
        let mut found = Replayed::default();
        for seed in 1..=40 {
            let trace = walk(&shared, seed, 60);
            if let Err(difference) = replay(&world, &trace, &mut found) {
                let way = text(&trace[..=difference.step]);
                panic!("{name} {flags} seed {seed}: {difference:?}\n{way}");
            }
        }
        assert!(found.steps > 2_000, "{found:?}");
    }
}

#[test]
fn seeds_lose_nothing() {
    for (name, _) in POLICIES {
        for seed in 0..10 {
            checked(policy(name), seed).unwrap_or_else(|failed| panic!("{failed}"));
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let run = || checked(policy("available"), 7).unwrap();
    assert_eq!(run(), run());
}
