//! The decision core of a zone, explored as far as the shared model was, with each rule switched
//! off, with long walks of the model, and with many seeds. Each module runs in one thread.
//!
//! `HELIO_PAUSE_FILE`: while this file exists, no further piece is begun (somebody measures).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/model/mod.rs"]
mod zone_model;

#[allow(dead_code, unreachable_pub, reason = "shared with the fast tests")]
#[path = "../support/zones/mod.rs"]
mod zones;

use zones::series::{Run, complete};

/// States a run may have; the largest of the shared model has 7.4 million.
const STATES: usize = 40_000_000;

/// Waits while the pause file is there.
fn pause() {
    let Some(path) = std::env::var_os("HELIO_PAUSE_FILE") else { return };
    while std::path::Path::new(&path).exists() {
        std::thread::park_timeout(std::time::Duration::from_secs(5));
    }
}

fn explore(series: &[Run]) {
    let mut states = 0;
    for run in series {
        pause();
        states += complete(run, STATES).states;
    }
    println!("{} of {} runs complete, {states} states", series.len(), series.len());
}

/// One module a piece of a series: a unit of the soak is to end within minutes.
macro_rules! pieces { ($($name:ident: $series:ident[$span:expr];)*) => { $(
    mod $name {
        #[test]
        fn no_invariant_is_violated() {
            super::explore(&crate::zones::series::$series[$span]);
        }
    }
)* } }

pieces! {
    consistent: CONSISTENT[..];
    preferred: PREFERRED[..];
    preferred_b_failures: PREFERRED_B[..6];
    preferred_b_rest: PREFERRED_B[6..];
    fence_failures: FENCE[..8];
    fence_rest: FENCE[8..];
    witness_failures: WITNESS[..5];
    witness_rest: WITNESS[5..9];
    witness_clocks: WITNESS[9..];
    available_failures: AVAILABLE[..3];
    available_operator: AVAILABLE[3..5];
    available_rest: AVAILABLE[5..];
}

mod mutants {
    use crate::zones::explore::{End, search};
    use crate::zones::series::{MUTANTS, caught, world};

    #[test]
    fn each_is_caught() {
        for row in MUTANTS {
            super::pause();
            caught(row, 8_000_000);
        }
        println!("{} of {} mutants caught", MUTANTS.len(), MUTANTS.len());
    }

    /// Messages of the last session and late answers of fences arrive, and the core refuses them.
    #[test]
    fn late_messages_change_nothing() {
        for row in MUTANTS.iter().filter(|row| row.3.contains("late")) {
            super::pause();
            let found = search(&world(row, None), super::STATES);
            assert!(matches!(found.end, End::Complete), "{}: {:?}", row.0.name(), found.end);
            println!("{}: the rule as it is: {} states", row.0.name(), found.states);
        }
    }
}

mod walks {
    use crate::zone_model::walk::{text, walk};
    use crate::zones::replay::{Replayed, model_world, replay};
    use crate::zones::series::{POLICIES, policy};
    use crate::zones::world::World;

    #[test]
    fn the_core_decides_as_the_shared_model_does() {
        const BOUNDS: &str = "writes=4,crashes=3,powers=2,blanks=1,breaks=4,resigns=2,\
            fences=2,epochs=5,queue=3";
        for (name, flags) in POLICIES {
            super::pause();
            let mut world = World::new(policy(name), BOUNDS).flags(flags);
            (world.forgetful, world.coarse) = (true, true);
            let shared = model_world(&world);
            let mut found = Replayed::default();
            for seed in 1_000..4_000 {
                let trace = walk(&shared, seed, 80);
                if let Err(difference) = replay(&world, &trace, &mut found) {
                    let way = text(&trace[..=difference.step]);
                    panic!("{name} {flags} seed {seed}: {difference:?}\n{way}");
                }
            }
            println!("{name} {flags}: {found:?}");
        }
    }
}

mod seeds {
    use crate::zones::series::{POLICIES, policy};
    use crate::zones::simulate::checked;

    /// `HELIO_SEED`: this seed only.
    #[test]
    fn nothing_acknowledged_is_lost() {
        let only = std::env::var("HELIO_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
        for (name, _) in POLICIES {
            let (mut settled, mut runs, mut acknowledged, mut merges) = (0, 0, 0, 0);
            for seed in only.map_or(1_000..3_000, |seed| seed..seed + 1) {
                if seed % 100 == 0 {
                    super::pause();
                }
                let run = checked(policy(name), seed).unwrap_or_else(|failed| panic!("{failed}"));
                runs += 1;
                settled += u64::from(run.settled);
                acknowledged += run.acknowledged;
                merges += run.merges;
            }
            println!(
                "{name}: {runs} seeds, {acknowledged} writes acknowledged, {merges} merges, \
                 {settled} in sync again"
            );
        }
    }
}
