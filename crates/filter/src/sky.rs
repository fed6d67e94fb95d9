//! Positions on the sky: distances, HEALPix cells, regions. Angles are in degrees, radii in
//! arcseconds.

use std::f64::consts::{FRAC_PI_2, PI};
use std::ops::Range;

use crate::limits::MAX_REGION_RANGES;

/// The order of the HEALPix cells in regions: 29, as in IVOA's MOC 2.0, cells of 0.4 mas.
pub const MOC_ORDER: u32 = 29;

/// Cells of [`MOC_ORDER`] on the whole sky.
pub const MOC_CELLS: u64 = 12 << (2 * MOC_ORDER);

/// The angle between two positions, by haversines: exact for small angles, too. Degrees to
/// arcseconds; NaN where a coordinate is.
#[must_use]
pub fn angular_distance_arcsec(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let (dec1, dec2) = (dec1.to_radians(), dec2.to_radians());
    let by_dec = ((dec2 - dec1) / 2.0).sin();
    let by_ra = ((ra2 - ra1).to_radians() / 2.0).sin();
    let haversine = by_dec * by_dec + dec1.cos() * dec2.cos() * by_ra * by_ra;
    (2.0 * haversine.sqrt().clamp(0.0, 1.0).asin()).to_degrees() * 3600.0
}

/// Whether a position lies within a radius of a centre; false where a value is NaN.
pub(crate) fn is_in_cone(position: [f64; 2], centre: [f64; 2], radius_arcsec: f64) -> bool {
    // Most positions are elsewhere: their declination suffices, without trigonometry.
    let by_dec_arcsec = (position[1] - centre[1]).abs() * 3600.0;
    if by_dec_arcsec > radius_arcsec * (1.0 + 1e-9) {
        return false;
    }
    angular_distance_arcsec(position[0], position[1], centre[0], centre[1]) <= radius_arcsec
}

/// The nested HEALPix cell of [`MOC_ORDER`] at a position; `None` where it is no position.
///
/// The sphere is projected on a plane (Calabretta & Roukema 2007, MNRAS 381, 865, section 2), in
/// which the 12 faces of Górski et al. 2005 (`ApJ` 622, 759) are squares on their corners.
#[must_use]
pub fn healpix_cell(ra_deg: f64, dec_deg: f64) -> Option<u64> {
    if !ra_deg.is_finite() || !(-90.0..=90.0).contains(&dec_deg) {
        return None;
    }
    let (x, y) = project(ra_deg, dec_deg);
    // Axes along the sides of the faces; the unit is a face.
    let (u, v) = (x + y + 0.5, x - y + 0.5);
    let (face, in_u, in_v) = face_of(u, v);
    let side = 1_u64 << MOC_ORDER;
    let place = |part: f64| ((part * side as f64) as u64).min(side - 1);
    let (east, west) = (place(in_u), side - 1 - place(in_v));
    Some((face << (2 * MOC_ORDER)) | spread(east) | (spread(west) << 1))
}

/// Longitude in quarters of the circle, 0 to 4, and height, -1 to 1, in the projection.
fn project(ra_deg: f64, dec_deg: f64) -> (f64, f64) {
    let quarters = ra_deg.rem_euclid(360.0) / 90.0;
    let quarters = if quarters >= 4.0 { 0.0 } else { quarters };
    let z = dec_deg.to_radians().sin();
    if z.abs() <= 2.0 / 3.0 {
        return (quarters, 0.75 * z);
    }
    // sqrt(3 (1 - |z|)), from the distance to the pole: exact there, too.
    let sigma = 6.0_f64.sqrt() * ((90.0 - dec_deg.abs()).to_radians() / 2.0).sin();
    let centre = quarters.floor() + 0.5;
    (centre + (quarters - centre) * sigma, (1.0 - sigma / 2.0).copysign(z))
}

/// The face, and the place in it along its two sides, 0 to 1.
fn face_of(u: f64, v: f64) -> (u64, f64, f64) {
    let (column, row) = (u.floor(), v.floor());
    let at = |number: f64| number.rem_euclid(4.0) as u64;
    if column == row {
        (at(column) + 4, u - column, v - row)
    } else if column > row {
        // The pole is the outer corner of four faces, which ends at row + 2.
        (at(row), (u - row - 1.0).min(1.0), v - row)
    } else {
        (at(column) + 8, u - column, (v - column - 1.0).min(1.0))
    }
}

/// Puts a zero before each bit.
fn spread(bits: u64) -> u64 {
    let mut bits = bits;
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | (bits << shift)) & mask;
    }
    bits
}

/// A region of the sky: a MOC (multi-order coverage map), as sorted ranges of its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    ranges: Vec<Range<u64>>,
}

/// Why ranges are no region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// Too many ranges.
    #[error("{found} ranges, at most {MAX_REGION_RANGES}; lower the map's order")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// A range is empty, outside of the sky, or not behind the one before it.
    #[error("range {index} is empty, beyond the sky's cells, or not behind the range before it")]
    Range {
        /// Its place, from 0.
        index: usize,
    },
}

impl Region {
    /// A region of ranges of nested cells of [`MOC_ORDER`], ascending and apart.
    pub fn new(ranges: Vec<Range<u64>>) -> Result<Self, RegionError> {
        if ranges.len() > MAX_REGION_RANGES {
            return Err(RegionError::TooMany { found: ranges.len() });
        }
        let mut end = 0;
        for (index, range) in ranges.iter().enumerate() {
            if range.start < end || range.is_empty() || range.end > MOC_CELLS {
                return Err(RegionError::Range { index });
            }
            end = range.end;
        }
        Ok(Self { ranges })
    }

    /// Whether a position in degrees lies in the region; false where it is no position.
    #[must_use]
    pub fn contains(&self, ra_deg: f64, dec_deg: f64) -> bool {
        let Some(cell) = healpix_cell(ra_deg, dec_deg) else { return false };
        let after = self.ranges.partition_point(|range| range.start <= cell);
        after.checked_sub(1).is_some_and(|index| cell < self.ranges[index].end)
    }

    /// The part of the sky that the region covers, 0 to 1.
    #[must_use]
    pub fn fraction_of_sky(&self) -> f64 {
        let cells: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        cells as f64 / MOC_CELLS as f64
    }
}

/// The greatest difference in right ascension of two positions within a radius, in degrees, where
/// one has a declination; 180 where the pole is within the radius.
pub(crate) fn ra_reach_deg(dec_deg: f64, radius_arcsec: f64) -> f64 {
    let radius = (radius_arcsec / 3600.0).to_radians();
    let dec = dec_deg.to_radians().abs();
    if dec + radius >= FRAC_PI_2 || radius >= PI {
        return 180.0;
    }
    (radius.sin() / dec.cos()).min(1.0).asin().to_degrees()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_exact_at_every_scale() {
        let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b.max(1e-3), "{a} {b}");
        close(angular_distance_arcsec(10.0, 0.0, 10.0, 1.0), 3600.0);
        close(angular_distance_arcsec(359.5, 0.0, 0.5, 0.0), 3600.0);
        close(angular_distance_arcsec(10.0, 60.0, 10.0 + 2e-6, 60.0), 3.6e-3);
        close(angular_distance_arcsec(0.0, 90.0, 123.0, -90.0), 648_000.0);
        assert!(angular_distance_arcsec(f64::NAN, 0.0, 0.0, 0.0).is_nan());
    }

    #[test]
    fn a_cone_agrees_with_the_distance_at_its_edge() {
        for (ra, dec) in [(10.0, -30.0), (0.0, 89.9), (359.999, 0.0)] {
            for (dra, ddec) in [(0.0, 5e-4), (3e-4, 0.0), (3e-4, -4e-4)] {
                let there = [ra + dra, dec + ddec];
                let radius = angular_distance_arcsec(ra, dec, there[0], there[1]);
                assert!(is_in_cone(there, [ra, dec], radius));
                assert!(!is_in_cone(there, [ra, dec], radius * (1.0 - 1e-12) - 1e-12));
            }
        }
        assert!(!is_in_cone([f64::NAN, 0.0], [0.0, 0.0], 10.0));
        assert!(!is_in_cone([0.0, f64::NAN], [0.0, 0.0], 10.0));
        assert!(!is_in_cone([0.0, 0.0], [0.0, 0.0], f64::NAN));
    }

    #[test]
    fn what_is_no_position_has_no_cell() {
        for (ra, dec) in [(f64::NAN, 0.0), (0.0, f64::NAN), (0.0, 90.1), (f64::INFINITY, 0.0)] {
            assert_eq!(healpix_cell(ra, dec), None);
        }
        // Longitudes repeat; a tiny negative one rounds to 360 degrees.
        assert_eq!(healpix_cell(-90.0, 5.0), healpix_cell(270.0, 5.0));
        assert_eq!(healpix_cell(-1e-30, 5.0), healpix_cell(0.0, 5.0));
    }

    #[test]
    fn a_region_is_sorted_and_within_the_sky() {
        assert_eq!(Region::new(vec![4..4, 5..6]), Err(RegionError::Range { index: 0 }));
        assert_eq!(Region::new(vec![4..6, 5..8]), Err(RegionError::Range { index: 1 }));
        assert_eq!(Region::new(vec![0..MOC_CELLS + 1, 0..1]), Err(RegionError::Range { index: 0 }));
        let sky = Region::new(vec![0..1, 1..MOC_CELLS]).unwrap();
        assert!(sky.contains(12.0, 90.0) && !sky.contains(f64::NAN, 0.0));
        assert!((sky.fraction_of_sky() - 1.0).abs() < 1e-12);
        assert!(!Region::new(Vec::new()).unwrap().contains(0.0, 0.0));
    }
}
