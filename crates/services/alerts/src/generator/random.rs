//! Random numbers that are the same for the same seed, on every machine.

/// SplitMix64, a public-domain generator: a stream for each seed, without state to be kept.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The stream of a seed and the numbers that name something: a visit, a detector, an alert.
    pub(super) fn of(seed: u64, names: &[u64]) -> Self {
        let fold = |state: u64, name: &u64| mix(state.wrapping_add(*name)).wrapping_add(GOLDEN);
        Self(names.iter().fold(mix(seed ^ GOLDEN), fold))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number from 0 (included) to 1 (excluded).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number of the normal distribution of mean 0 and deviation 1 (Box and Muller's method).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
