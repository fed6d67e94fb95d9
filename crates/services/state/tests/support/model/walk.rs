//! The extension: random walks of the model, written down.

use super::rules::{Act, World};
use super::state::State;

/// A xorshift generator, as the shared model's walks have it.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
}

fn fault(act: Act) -> bool {
    use Act::*;
    matches!(
        act,
        Crash(_)
            | Power(_)
            | Blank(_)
            | Operator(_)
            | WitnessForgets
            | Resign(_)
            | Fence(_)
            | FenceHits(_)
            | GoAlone(_)
            | AskWitness(_, 0)
            | GiveUp(_)
            | Reconnect
    )
}

/// A step of a trace: an action and the state after it.
pub type Step = (Act, State);

/// A walk of at most `length` actions; most of them are no faults.
pub fn walk(world: &World, seed: u64, length: usize) -> Vec<Step> {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut state = world.init();
    state.canon();
    let mut trace = vec![(Act::Init, state)];
    let mut out = Vec::new();
    for _ in 0..length {
        world.next(&state, &mut out);
        if out.is_empty() {
            break;
        }
        let quiet = rng.next() % 100 < 85;
        let mut at = (rng.next() % out.len() as u64) as usize;
        for _ in 0..4 {
            if quiet && fault(out[at].0) {
                at = (rng.next() % out.len() as u64) as usize;
            }
        }
        assert!(out[at].2.is_none(), "the model itself fails: {:?}", out[at].2);
        state = out[at].1;
        trace.push((out[at].0, state));
    }
    trace
}

/// A trace as text: its actions.
pub fn text(trace: &[Step]) -> String {
    let acts = trace.iter().skip(1).map(|(act, _)| format!("{act:?}"));
    acts.collect::<Vec<_>>().join(" ").replace("(0", "(A").replace("(1", "(B")
}
