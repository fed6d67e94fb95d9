//! What is explored: the shared model's series of complete runs, and its mutants.

use helio_state::zone::{Mutant, Policy, ZoneName};

use super::explore::{End, Search, search};
use super::world::World;

/// A run: policy, bounds, flags, and the states of the shared model's run within these bounds.
pub type Run = (&'static str, &'static str, &'static str, usize);

/// The policy of a name as in the shared model's results.
pub fn policy(name: &str) -> Policy {
    match name {
        "consistent" => Policy::Consistent,
        "preferred" => Policy::Preferred(ZoneName::A),
        "preferred=B" => Policy::Preferred(ZoneName::B),
        "witness" => Policy::Witness,
        "fence" => Policy::Fence,
        "available" => Policy::Available,
        other => panic!("unknown policy {other}"),
    }
}

/// The COMPLETE lines of the shared model's exhaustive results: `consistent`.
pub const CONSISTENT: &[Run] = &[
    ("consistent", "epochs=4,writes=3,crashes=2,breaks=1", "", 5_717_260),
    ("consistent", "epochs=4,writes=3,crashes=2", "", 2_620_244),
    ("consistent", "epochs=4,writes=3,powers=1,breaks=1", "", 558_672),
    ("consistent", "epochs=4,crashes=1,powers=1", "", 299_206),
    ("consistent", "epochs=4,powers=2", "", 136_838),
    ("consistent", "epochs=4,resigns=2,breaks=1,crashes=1", "", 955_330),
    ("consistent", "epochs=2,writes=2,ops=1,crashes=1", "", 1_473_705),
    ("consistent", "epochs=4,writes=3,blanks=1,breaks=1", "", 24_264),
    ("consistent", "epochs=4,powers=2", "--durability both", 155_389),
    ("consistent", "epochs=2,reads=1,writes=3,crashes=1,breaks=1", CONFIRM, 4_521_876),
    ("consistent", "epochs=2,crashes=1,breaks=1", "--lease 2", 134_444),
    ("consistent", "epochs=4,writes=2,breaks=2", "", 8_238),
    ("consistent", "epochs=2,writes=2,crashes=1,queue=3", "", 223_225),
];

const CONFIRM: &str = "--reads confirm --clock-stops";

/// `preferred`: zone A.
pub const PREFERRED: &[Run] = &[
    ("preferred", "epochs=4,writes=2,crashes=2,breaks=1", "", 6_136_529),
    ("preferred", "epochs=4,writes=2,powers=1,breaks=1", "", 2_112_658),
    ("preferred", "epochs=4,resigns=2,breaks=1,crashes=1", "", 2_231_322),
    ("preferred", "epochs=2,writes=2,ops=1,crashes=1", "", 3_015_729),
    ("preferred", "epochs=2,reads=1,writes=2,crashes=1,breaks=1", CONFIRM, 2_243_639),
];

/// `preferred=B`: zone A leads at first, and waits.
pub const PREFERRED_B: &[Run] = &[
    ("preferred=B", "epochs=4,writes=2,crashes=2,breaks=1", "", 6_970_685),
    ("preferred=B", "epochs=4,writes=2,crashes=2", "", 3_165_031),
    ("preferred=B", "epochs=4,writes=2,powers=1,breaks=1", "", 2_538_997),
    ("preferred=B", "epochs=4,crashes=1,powers=1", "", 1_299_794),
    ("preferred=B", "epochs=4,powers=2", "", 770_588),
    ("preferred=B", "epochs=4,resigns=2,breaks=1,crashes=1", "", 2_224_810),
    ("preferred=B", "epochs=2,writes=2,ops=1,crashes=1", "", 3_042_902),
    ("preferred=B", "epochs=4,writes=2,blanks=1,breaks=1", "", 697_332),
    ("preferred=B", "epochs=4,powers=2", "--durability both", 782_731),
    ("preferred=B", "epochs=2,reads=1,writes=2,crashes=1,breaks=1", CONFIRM, 2_451_082),
    ("preferred=B", "epochs=2,crashes=1,breaks=1", "--lease 2", 229_411),
    ("preferred=B", "epochs=4,writes=2,breaks=2", "", 463_332),
    ("preferred=B", "epochs=2,writes=2,crashes=1,queue=3", "", 384_757),
];

/// `fence`.
pub const FENCE: &[Run] = &[
    ("fence", "fences=1,crashes=1,breaks=1", "", 1_626_867),
    ("fence", "fences=1,crashes=2", "", 2_643_365),
    ("fence", "fences=1,powers=1,breaks=1", "", 1_259_644),
    ("fence", "fences=1,crashes=1,powers=1", "", 4_086_191),
    ("fence", "powers=2", "", 100_872),
    ("fence", "resigns=2,breaks=1", "", 60_391),
    ("fence", "fences=1,blanks=1,breaks=1", "", 315_683),
    ("fence", "fences=1,powers=2", "--durability both", 1_280_912),
    ("fence", "epochs=2,fences=1,crashes=1,breaks=1", "--lease 2", 2_875_069),
    ("fence", "fences=1,writes=2,breaks=2", "", 1_335_003),
    ("fence", "epochs=2,fences=1,writes=2,crashes=1,queue=3", "", 6_402_615),
    ("fence", "fences=2,crashes=1", "", 4_594_196),
    ("fence", "epochs=2,ops=1,crashes=1", "", 182_501),
    ("fence", "epochs=2,reads=1,crashes=1,fences=1", CONFIRM, 2_959_612),
];

/// `witness`.
pub const WITNESS: &[Run] = &[
    ("witness", "epochs=2,writes=2,crashes=1,breaks=1", "", 5_484_272),
    ("witness", "epochs=2,crashes=1,powers=1", "", 3_385_870),
    ("witness", "epochs=2,powers=2", "", 1_030_125),
    ("witness", "epochs=2,resigns=2,breaks=1", "", 751_203),
    ("witness", "epochs=2,writes=2,blanks=1,breaks=1", "", 1_385_899),
    ("witness", "epochs=2,powers=2", "--durability both", 1_951_769),
    ("witness", "epochs=2,writes=2,crashes=2", "", 7_382_634),
    ("witness", "epochs=2,writes=2,powers=1,breaks=1", "", 5_149_787),
    ("witness", "epochs=2,forgets=1,breaks=1", "", 3_746_593),
    ("witness", "epochs=2,reads=1,crashes=1,breaks=1", CONFIRM, 6_490_041),
    ("witness", "epochs=2,crashes=1", "--lease 2", 1_333_881),
    ("witness", "epochs=2,ops=1", "", 234_156),
];

/// `available`.
pub const AVAILABLE: &[Run] = &[
    ("available", "crashes=1,breaks=1", "", 2_020_441),
    ("available", "crashes=1,powers=1", "", 4_942_392),
    ("available", "epochs=4,writes=2,breaks=1", "", 6_496_253),
    ("available", "epochs=2,writes=2,ops=1,crashes=1", "", 6_438_055),
    ("available", "blanks=1,breaks=1", "", 834_518),
    ("available", "crashes=1,breaks=1", "--start-alone", 2_843_001),
    ("available", "powers=2", "--durability both", 2_841_442),
    ("available", "powers=2", "", 2_800_482),
    ("available", "resigns=2,breaks=1", "", 1_110_155),
];

/// Explores a run; panics with the way there if an invariant is violated.
pub fn complete(run: &Run, cap: usize) -> Search {
    let (name, bounds, flags, model) = *run;
    let world = World::new(policy(name), bounds).flags(flags);
    let found = search(&world, cap);
    let Search { states, depth, reach, end } = &found;
    println!(
        "{name} {bounds} {flags}: states {states} depth {depth} (shared model: {model}) {reach:?}"
    );
    match end {
        End::Complete => {}
        End::CutOff => panic!("{name} {bounds} {flags}: cut off at {states} states"),
        End::Violated(what, path) => panic!("{name} {bounds} {flags}: {what}\n{path:#?}"),
    }
    found
}

/// A row of the table of mutants: the rule, a policy, bounds and flags in which it shows.
pub type Row = (Mutant, &'static str, &'static str, &'static str);

/// Every rule switched off, in the shared model's bounds. (`late`: old messages and late answers
/// arrive, which the environment holds back otherwise.)
pub const MUTANTS: &[Row] = &[
    (Mutant::lease_from_arrival, "witness", "epochs=1", ""),
    (Mutant::no_drift_margin, "witness", "epochs=1", ""),
    (Mutant::no_lease, "witness", "epochs=1", ""),
    (Mutant::serve_at_once, "witness", "epochs=1", ""),
    (Mutant::restart_forgets_promise, "witness", "epochs=1,crashes=1", ""),
    (Mutant::restart_serves_at_once, "witness", "epochs=2,crashes=1", ""),
    (Mutant::ack_after_promotion, "witness", "epochs=1,writes=2", ""),
    (Mutant::no_sync_at_promotion, "fence", "epochs=2,fences=1,powers=1", ""),
    (Mutant::grant_before_durable, "preferred", "epochs=3,powers=1,breaks=1", ""),
    (Mutant::removal_not_durable, "preferred", "epochs=2,crashes=1,resigns=1,breaks=1", ""),
    (Mutant::removal_not_at_witness, "witness", "epochs=2", ""),
    (Mutant::member_before_copied, "preferred=B", "epochs=3,breaks=1,resigns=1,writes=2", ""),
    (Mutant::dirty_is_member, "witness", "epochs=2,powers=1", ""),
    (Mutant::witness_without_set, "witness", "epochs=2,crashes=1,breaks=1", ""),
    (Mutant::release_any, "witness", "epochs=4,resigns=1,breaks=1", ""),
    (Mutant::witness_init_in_sync, "witness", "epochs=2,forgets=1", ""),
    (Mutant::witness_init_by_consent, "witness", "epochs=2,forgets=1,resigns=1", ""),
    (Mutant::reset_is_evidence, "consistent", "epochs=1", ""),
    (Mutant::fence_without_status, "fence", "epochs=1,fences=1", ""),
    (Mutant::evidence_outlives_session, "fence", "fences=2,resigns=1", "--durability both"),
    (Mutant::fence_answer_late, "fence", "fences=2,resigns=1", "--durability both late"),
    (Mutant::join_fences, "fence", "epochs=2,fences=2,crashes=1,powers=1", ""),
    (Mutant::ended_without_epoch, "preferred", "epochs=2,crashes=1", ""),
    (Mutant::ended_in_join, "consistent", "epochs=2,crashes=3", ""),
    (Mutant::resign_crossing, "consistent", "epochs=1,resigns=2", ""),
    (Mutant::old_session, "consistent", "epochs=3,resigns=2,breaks=2", "late"),
    (Mutant::alone_before_evidence, "consistent", "epochs=1,resigns=1", ""),
    (Mutant::alone_without_sync, "preferred", "epochs=2,powers=1", ""),
    (Mutant::expose_before_commit, "witness", "epochs=1", ""),
    (Mutant::same_epoch_after_restart, "preferred", "epochs=2,powers=1,writes=2", ""),
    (Mutant::member_leads_after_restart, "consistent", "epochs=2,crashes=2", ""),
    (Mutant::silence_for_both, "preferred", "epochs=1", ""),
    (Mutant::preferred_in_join, "preferred", "epochs=2,crashes=1", ""),
    (Mutant::operator_counts_on, "consistent", "epochs=2,ops=1,crashes=1,writes=2", ""),
    (Mutant::jump_keeps_tail, "consistent", "epochs=2,ops=1,crashes=1,writes=2", ""),
    (Mutant::blackout_counts_on, "consistent", "epochs=1,powers=2,breaks=1,writes=2", ""),
    (Mutant::assumed_counts_on, "available", "epochs=1,writes=2", ""),
    (Mutant::excess_ignored, "consistent", "epochs=3,ops=1,crashes=2,writes=2", ""),
    (Mutant::join_longest, "available", "epochs=2,writes=2,breaks=1", ""),
    (Mutant::epoch_by_number, "available", "epochs=2,writes=2,breaks=1,crashes=1", ""),
    (Mutant::blank_resigns, "preferred=B", "epochs=2,blanks=1,writes=2,breaks=1", ""),
    (Mutant::heal_without_resign, "available", "epochs=3,writes=2,breaks=1", ""),
    (Mutant::heal_discards_first, "available", "epochs=3,writes=2,breaks=2", ""),
    (Mutant::heal_again, "available", "epochs=4,writes=2,breaks=2", ""),
    (Mutant::heal_no_jump, "available", "epochs=3,writes=2,breaks=1", ""),
    (Mutant::confirm_reuses_answer, "witness", "epochs=1,reads=1", CONFIRM),
];

/// The world of a row, with its rule switched off or not.
pub fn world(row: &Row, mutant: Option<Mutant>) -> World {
    let (_, name, bounds, flags) = *row;
    let mut world = World::new(policy(name), bounds).flags(flags);
    world.late = flags.contains("late");
    world.mutant = mutant;
    world
}

/// The violation that a row's mutant leads to, and the states searched. Panics if there is none.
pub fn caught(row: &Row, cap: usize) -> (usize, &'static str) {
    let found = search(&world(row, Some(row.0)), cap);
    let End::Violated(what, path) = found.end else {
        panic!("{}: not caught in {} states: {:?}", row.0.name(), found.states, found.end);
    };
    println!("{}: {} states, {what}, {} actions", row.0.name(), found.states, path.len());
    (found.states, what)
}

/// All policies, and the flags with which their walks are replayed.
pub const POLICIES: &[(&str, &str)] = &[
    ("consistent", ""),
    ("preferred", ""),
    ("preferred=B", "--lease 2"),
    ("witness", ""),
    ("fence", "--durability both"),
    ("available", "--start-alone"),
];
