//! Watch lists: up to a million positions, searched by zones of declination, replaced while
//! filters run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use crate::limits::{MAX_WATCH_POSITIONS, MAX_WATCH_RADIUS_ARCSEC};
use crate::sky::{is_in_cone, ra_reach_deg};

/// The least height of a zone: with 10^5 positions it has some hundred of them.
const ZONE_DEG: f64 = 0.25;

/// Positions with a radius around each.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchList {
    radius_arcsec: f64,
    /// [right ascension, declination] in degrees, by zone and right ascension.
    positions: Vec<[f64; 2]>,
    /// The places of each zone's positions, by the zone's number; empty zones have none.
    zones: BTreeMap<i32, Range<usize>>,
}

/// Why positions are no watch list.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchListError {
    /// Too many positions.
    #[error("{found} positions, at most {MAX_WATCH_POSITIONS}; describe a region instead")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// The radius is not within its bounds.
    #[error("a radius of {0} arcsec; it is above 0 and at most {MAX_WATCH_RADIUS_ARCSEC}")]
    Radius(f64),
    /// A coordinate is no finite number, or the declination is beyond a pole.
    #[error("position {index} is no right ascension and declination in degrees")]
    Position {
        /// Its place, from 0.
        index: usize,
    },
}

impl WatchList {
    /// A list of positions [right ascension, declination] in degrees with one radius.
    pub fn new(positions: Vec<[f64; 2]>, radius_arcsec: f64) -> Result<Self, WatchListError> {
        if positions.len() > MAX_WATCH_POSITIONS {
            return Err(WatchListError::TooMany { found: positions.len() });
        }
        if !is_radius(radius_arcsec) {
            return Err(WatchListError::Radius(radius_arcsec));
        }
        let is_position = |p: &[f64; 2]| p[0].is_finite() && (-90.0..=90.0).contains(&p[1]);
        if let Some(index) = positions.iter().position(|position| !is_position(position)) {
            return Err(WatchListError::Position { index });
        }
        let mut positions: Vec<[f64; 2]> =
            positions.into_iter().map(|[ra, dec]| [ra.rem_euclid(360.0), dec]).collect();
        positions.sort_by(|a, b| zone(a[1]).cmp(&zone(b[1])).then(a[0].total_cmp(&b[0])));
        let mut zones: BTreeMap<i32, Range<usize>> = BTreeMap::new();
        for (index, position) in positions.iter().enumerate() {
            zones.entry(zone(position[1])).or_insert(index..index).end = index + 1;
        }
        Ok(Self { radius_arcsec, positions, zones })
    }

    /// The list's radius, in arcseconds.
    #[must_use]
    pub fn radius_arcsec(&self) -> f64 {
        self.radius_arcsec
    }

    /// The number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether the list has no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Whether one of the list's positions lies within a radius of a position in degrees; false
    /// where a coordinate is NaN.
    #[must_use]
    pub fn is_near(&self, ra_deg: f64, dec_deg: f64, radius_arcsec: f64) -> bool {
        if !ra_deg.is_finite() || !dec_deg.is_finite() {
            return false;
        }
        let ra = ra_deg.rem_euclid(360.0);
        let reach = radius_arcsec / 3600.0;
        // A little more than the reach: rounding excludes nobody; the distance decides.
        let reach_ra = ra_reach_deg(dec_deg, radius_arcsec) * (1.0 + 1e-9) + 1e-9;
        let centre = [ra, dec_deg];
        let zones = zone(dec_deg - reach - 1e-9)..=zone(dec_deg + reach + 1e-9);
        self.zones.range(zones).any(|(_, places)| {
            let zone = &self.positions[places.clone()];
            [ra - 360.0, ra, ra + 360.0].iter().any(|ra| {
                let first = zone.partition_point(|p| p[0] < ra - reach_ra);
                let near = zone[first..].iter().take_while(|p| p[0] <= ra + reach_ra);
                near.into_iter().any(|p| is_in_cone(centre, *p, radius_arcsec))
            })
        })
    }
}

pub(crate) fn is_radius(radius_arcsec: f64) -> bool {
    radius_arcsec > 0.0 && radius_arcsec <= MAX_WATCH_RADIUS_ARCSEC
}

fn zone(dec_deg: f64) -> i32 {
    (dec_deg / ZONE_DEG).floor() as i32
}

/// A watch list that its owner replaces while filters use it.
#[derive(Debug)]
pub struct LiveWatchList {
    current: RwLock<Arc<WatchList>>,
}

impl LiveWatchList {
    /// A live list with its first contents.
    #[must_use]
    pub fn new(list: WatchList) -> Self {
        Self { current: RwLock::new(Arc::new(list)) }
    }

    /// Replaces the list; expressions that are being evaluated end with the old one.
    pub fn replace(&self, list: WatchList) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
    }

    /// The list as it is now.
    #[must_use]
    pub fn current(&self) -> Arc<WatchList> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sky::angular_distance_arcsec;
    use proptest::prelude::*;

    fn positions(sky: std::ops::Range<f64>) -> impl Strategy<Value = Vec<[f64; 2]>> {
        prop::collection::vec((-10.0..370.0, sky).prop_map(|(ra, dec)| [ra, dec]), 1..200)
    }

    proptest! {
        /// The zones find what comparing with every position finds, at poles and at 0 h, too.
        #[test]
        fn zones_agree_with_every_distance(
            list in prop_oneof![
                positions(-90.0..90.0), positions(89.0..90.0), positions(-1.0..1.0)
            ],
            offsets in prop::collection::vec((0_usize..200, -1.0..1.0_f64, -1.0..1.0_f64), 50),
            radius in prop_oneof![0.5..10.0, 600.0..3600.0],
        ) {
            let index = WatchList::new(list.clone(), radius).unwrap();
            for (at, dra, ddec) in offsets {
                let near = list[at % list.len()];
                let (ra, dec) = (near[0] + dra, (near[1] + ddec).clamp(-90.0, 90.0));
                let is_near = |p: &[f64; 2]| {
                    angular_distance_arcsec(ra, dec, p[0], p[1]) <= radius
                };
                prop_assert_eq!(index.is_near(ra, dec, radius), list.iter().any(is_near));
            }
        }
    }

    #[test]
    fn a_list_without_sense_is_rejected() {
        assert_eq!(WatchList::new(vec![], 0.0), Err(WatchListError::Radius(0.0)));
        assert!(matches!(WatchList::new(vec![], f64::NAN), Err(WatchListError::Radius(_))));
        let bad = vec![[0.0, 0.0], [0.0, 91.0]];
        assert_eq!(WatchList::new(bad, 1.0), Err(WatchListError::Position { index: 1 }));
        let empty = WatchList::new(vec![], 1.0).unwrap();
        assert!(empty.is_empty() && !empty.is_near(0.0, 0.0, 1.0));
        assert!(!empty.is_near(f64::NAN, 0.0, 1.0));
    }

    #[test]
    fn a_live_list_is_replaced() {
        let live = LiveWatchList::new(WatchList::new(vec![], 2.0).unwrap());
        let before = live.current();
        live.replace(WatchList::new(vec![[10.0, -5.0]], 2.0).unwrap());
        assert!(live.current().is_near(10.0, -5.0005, 2.0) && before.is_empty());
    }
}
