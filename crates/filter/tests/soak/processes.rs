//! The cap's model, with more seeds, partitions and kills than in the quick tests.

use std::collections::BTreeSet;

use crate::support::model::World;

#[test]
fn one_answer_for_2000_runs() {
    for seed in 1_000..3_000 {
        let processes = [1, 2, 4][seed as usize % 3];
        let partitions = 1 + seed as usize % 9;
        let mut world = World::new(seed, partitions, 5, 80);
        world.run_ranked(processes, seed as usize % 20);
        let found: BTreeSet<_> = world.target.iter().cloned().collect();
        assert_eq!(found, world.ranked_reference(), "seed {seed}");
        world.assert_no_duplicates();
        world.assert_late();
        let mut world = World::new(seed, partitions, 5, 80);
        let reference = world.run_claims(processes, seed as usize % 20);
        let found: BTreeSet<_> = world.target.iter().cloned().collect();
        assert_eq!(found, reference, "seed {seed}");
        world.assert_no_duplicates();
    }
}
