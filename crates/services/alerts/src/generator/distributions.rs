//! What the generated alerts are like: one table, whose quantiles a test checks against packets.
//!
//! The figures are of the size that Rubin's first packets and its science requirements have; they
//! claim no more. The real packet is a test's witness for sizes, headers and noise.

use super::random::Random;

/// The shape of a quantity's distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Equally likely between two bounds.
    Uniform {
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// The logarithm is normally distributed.
    LogNormal {
        /// The median.
        median: f64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// A power law above a least value: Pareto's distribution.
    Power {
        /// The least value.
        low: f64,
        /// The exponent of the share above a value.
        exponent: f64,
    },
    /// True with a probability; the value is 1 or 0.
    Share(f64),
}

/// A quantity of the generated alerts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// Its name.
    pub name: &'static str,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// Its distribution.
    pub shape: Shape,
    /// The values below which 5, 50 and 95 % lie. For a share: the share, three times.
    pub quantiles: [f64; 3],
    /// The greatest value: larger ones are cut.
    pub most: f64,
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident, $unit:literal, $shape:expr, $quantiles:expr, $most:expr;)*)
    => {
        $(
            $(#[$doc])*
            pub const $name: Quantity = Quantity {
                name: stringify!($name),
                unit: $unit,
                shape: $shape,
                quantiles: $quantiles,
                most: $most,
            };
        )*

        /// The table.
        pub const TABLE: &[Quantity] = &[$($name),*];
    };
}

use Shape::{LogNormal, Power, Share, Uniform};

quantities! {
    /// Signal to noise ratio of a detection; the threshold is 5.
    SNR, "", Power { low: 5.0, exponent: 1.6 }, [5.163, 7.711, 32.52], 10_000.0;
    /// Standard error of a detection's flux.
    FLUX_ERROR, "nJy", LogNormal { median: 240.0, sigma: 0.35 }, [134.9, 240.0, 426.8], 5_000.0;
    /// Score between artefact and real.
    RELIABILITY, "", Uniform { low: 0.0, high: 1.0 }, [0.05, 0.5, 0.95], 1.0;
    /// Detections that are a decrease of flux.
    NEGATIVE, "", Share(0.3), [0.3; 3], 1.0;
    /// Alerts of objects that were seen before.
    REPEATED, "", Share(0.3), [0.3; 3], 1.0;
    /// Time from the first detection of such an object to the first exposure.
    HISTORY_DAYS, "d", Uniform { low: 0.0, high: 365.0 }, [18.25, 182.5, 346.75], 365.0;
    /// Detections of such an object before the first exposure.
    HISTORY_POINTS, "", LogNormal { median: 40.0, sigma: 0.9 }, [9.1, 40.0, 175.8], 400.0;
    /// Forced measurements of such an object, for each detection.
    FORCED_PER_POINT, "", LogNormal { median: 1.5, sigma: 0.4 }, [0.777, 1.5, 2.896], 5.0;
    /// Flux of the source in the template.
    TEMPLATE_FLUX, "nJy", LogNormal { median: 20_000.0, sigma: 1.2 },
        [2_778.0, 20_000.0, 143_974.0], 10_000_000.0;
    /// Variance of the exposure's pixels without a source.
    SKY_VARIANCE, "nJy2", LogNormal { median: 600.0, sigma: 0.25 }, [397.7, 600.0, 905.2], 10_000.0;
    /// Standard deviation of the PSF along an axis.
    PSF_SIGMA, "arcsec", LogNormal { median: 0.4, sigma: 0.15 }, [0.3125, 0.4, 0.5119], 1.5;
    /// Alerts at the place of a known Solar System object.
    KNOWN_OBJECT, "", Share(0.1), [0.1; 3], 1.0;
    /// Distance of such an alert from the object's predicted position.
    KNOWN_DISTANCE, "arcsec", LogNormal { median: 0.15, sigma: 0.7 }, [0.0474, 0.15, 0.4743], 1.0;
}

/// The filters, and the share of exposures in each.
pub const BANDS: [(&str, f64); 6] =
    [("u", 0.06), ("g", 0.10), ("r", 0.24), ("i", 0.24), ("z", 0.20), ("y", 0.16)];

impl Quantity {
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        let value = match self.shape {
            Uniform { low, high } => low + (high - low) * random.unit(),
            LogNormal { median, sigma } => median * (sigma * random.normal()).exp(),
            Power { low, exponent } => low * (1.0 - random.unit()).powf(-1.0 / exponent),
            Share(share) => f64::from(u8::from(random.unit() < share)),
        };
        value.min(self.most)
    }

    /// Draws a share.
    pub(super) fn is_drawn(&self, random: &mut Random) -> bool {
        self.draw(random) > 0.5
    }
}

/// Draws a filter: its place among [`BANDS`].
pub(super) fn draw_band(random: &mut Random) -> usize {
    let mut rest = random.unit();
    let below = |(_, share): &(&str, f64)| {
        rest -= share;
        rest < 0.0
    };
    BANDS.iter().position(below).unwrap_or(BANDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of draws below a stated quantile is its own, within 4 standard deviations.
    #[test]
    fn the_shapes_have_the_quantiles_of_the_table() {
        const DRAWS: usize = 20_000;
        for quantity in TABLE {
            let mut random = Random::of(1, &[2]);
            let draws: Vec<f64> = (0..DRAWS).map(|_| quantity.draw(&mut random)).collect();
            for (share, value) in [0.05_f64, 0.5, 0.95].into_iter().zip(quantity.quantiles) {
                let (expected, found) = match quantity.shape {
                    Share(share) => (share, draws.iter().sum::<f64>() / DRAWS as f64),
                    _ => {
                        let below = draws.iter().filter(|draw| **draw < value).count();
                        (share, below as f64 / DRAWS as f64)
                    }
                };
                let allowed = 4.0 * (expected * (1.0 - expected) / DRAWS as f64).sqrt();
                assert!(
                    (found - expected).abs() < allowed,
                    "{}: {found} of the draws lie below {value}, not {expected}",
                    quantity.name
                );
            }
        }
    }
}
