//! Detections as rows of Rubin's records.

use super::distributions::BANDS;
use super::images::PIXEL_ARCSEC;
use crate::packet::PacketEncoder;
use crate::row::{Plan, Row};

macro_rules! places {
    ($(#[$doc:meta])* $name:ident { $($field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the fields have the names of the schema")]
        #[derive(Debug)]
        struct $name {
            $($field: Option<usize>),*
        }

        impl $name {
            fn of(plan: &Plan) -> Self {
                Self { $($field: plan.place(stringify!($field))),* }
            }
        }
    };
}

places! {
    /// Fields of `diaSource`.
    Source {
        diaSourceId, visit, detector, diaObjectId, ssObjectId, parentDiaSourceId, midpointMjdTai,
        exposureTime, ra, raErr, dec, decErr, ra_dec_Cov, x, xErr, y, yErr, apFlux, apFluxErr,
        isNegative, snr, psfFlux, psfFluxErr, psfChi2, psfNdata, dipoleNdata, scienceFlux,
        scienceFluxErr, templateFlux, templateFluxErr, ixxPSF, iyyPSF, ixyPSF, reliability,
        reliabilityVersion, band, timeProcessedMjdTai, bboxSize,
    }
}

places! {
    /// Fields of `diaForcedSource`.
    Forced {
        diaForcedSourceId, diaObjectId, ra, dec, visit, detector, psfFlux, psfFluxErr,
        midpointMjdTai, scienceFlux, scienceFluxErr, band, timeProcessedMjdTai,
    }
}

places! {
    /// Fields of `diaObject` that no band has.
    Object {
        diaObjectId, validityStartMjdTai, ra, raErr, dec, decErr, ra_dec_Cov, firstDiaSourceMjdTai,
        lastDiaSourceMjdTai, nDiaSources,
    }
}

places! {
    /// Fields of `ssSource`, of all versions.
    SolarSystem {
        diaSourceId, ssObjectId, designation, eclLambda, eclBeta, galLon, galLat, phaseAngle,
        topoRange, helioRange, ephVmag, ephOffset, ephOffsetRa, ephOffsetDec, diaDistanceRank,
        eclipticLambda, eclipticBeta, galacticL, galacticB, heliocentricDist, topocentricDist,
        predictedVMagnitude, residualRa, residualDec,
    }
}

places! {
    /// Fields of orbits, of all versions.
    Orbit {
        mpcDesignation, ssObjectId, mpcH, incl, id, designation,
        packed_primary_provisional_designation, unpacked_primary_provisional_designation, a, e, q,
        i, h,
    }
}

/// Fields of `diaObject` of a band.
#[derive(Debug)]
struct BandSummary {
    places: [Option<usize>; 12],
}

/// Their names, without the band.
const SUMMARY: [&str; 12] = [
    "psfFluxMean",
    "psfFluxMeanErr",
    "psfFluxSigma",
    "psfFluxNdata",
    "psfFluxMin",
    "psfFluxMax",
    "psfFluxMaxSlope",
    "psfFluxErrMean",
    "fpFluxMean",
    "fpFluxMeanErr",
    "scienceFluxMean",
    "scienceFluxMeanErr",
];

/// A detection or a forced measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detection {
    pub(super) id: i64,
    pub(super) object: i64,
    pub(super) visit: i64,
    pub(super) detector: i32,
    pub(super) mjd: f64,
    /// The filter's place among [`BANDS`].
    pub(super) band: usize,
    pub(super) ra: f64,
    pub(super) dec: f64,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) flux: f64,
    pub(super) flux_error: f64,
    pub(super) template_flux: f64,
    pub(super) reliability: f64,
    pub(super) psf_sigma: f64,
}

/// A known Solar System object at the place of a detection.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) designation: String,
    /// Distance from the predicted position, arcsec, and its direction, radians.
    pub(super) distance: f64,
    pub(super) direction: f64,
    pub(super) magnitude: f64,
}

/// Exposure time of a visit, seconds.
const EXPOSURE_S: f32 = 30.0;
/// Days from an exposure to the record of its detections.
const PROCESSING_DAYS: f64 = 60.0 / 86_400.0;

/// Writes rows of the records of one version.
#[derive(Debug)]
pub(super) struct Rows {
    source: Source,
    forced: Forced,
    object: Object,
    solar_system: SolarSystem,
    orbit: Orbit,
    bands: Vec<BandSummary>,
    empty_source: Row,
    empty_forced: Row,
    empty_object: Row,
    empty_solar_system: Row,
    empty_orbit: Row,
}

impl Rows {
    pub(super) fn new(encoder: &PacketEncoder) -> Self {
        let summary = |(band, _): &(&str, f64)| BandSummary {
            places: SUMMARY.map(|name| encoder.object.place(&format!("{band}_{name}"))),
        };
        Self {
            source: Source::of(&encoder.source),
            forced: Forced::of(&encoder.forced),
            object: Object::of(&encoder.object),
            solar_system: SolarSystem::of(&encoder.solar_system),
            orbit: Orbit::of(&encoder.orbit),
            bands: BANDS.iter().map(summary).collect(),
            empty_source: encoder.source.unmeasured(),
            empty_forced: encoder.forced.unmeasured(),
            empty_object: encoder.object.unmeasured(),
            empty_solar_system: encoder.solar_system.unmeasured(),
            empty_orbit: encoder.orbit.row(),
        }
    }

    pub(super) fn source(&self, found: &Detection, known: Option<&Known>) -> Row {
        let (mut row, at) = (self.empty_source.clone(), &self.source);
        let error = found.flux_error as f32;
        let snr = (found.flux / found.flux_error).abs();
        // A centroid is as good as the PSF's width over the signal to noise ratio.
        let pixels = found.psf_sigma / PIXEL_ARCSEC / snr;
        let degrees = (found.psf_sigma / snr / 3_600.0) as f32;
        row.set_number(at.diaSourceId, found.id);
        row.set_number(at.visit, found.visit);
        row.set_number(at.detector, found.detector.into());
        row.set_number(at.diaObjectId, found.object);
        row.set_number(at.ssObjectId, known.map_or(0, |known| known.id));
        row.set_number(at.parentDiaSourceId, 0);
        row.set_double(at.midpointMjdTai, found.mjd);
        row.set_float(at.exposureTime, EXPOSURE_S);
        row.set_double(at.ra, found.ra);
        row.set_double(at.dec, found.dec);
        row.set_float(at.raErr, degrees);
        row.set_float(at.decErr, degrees);
        row.set_float(at.ra_dec_Cov, degrees * degrees * -0.1);
        row.set_float(at.x, found.x as f32);
        row.set_float(at.y, found.y as f32);
        row.set_float(at.xErr, pixels as f32);
        row.set_float(at.yErr, pixels as f32);
        row.set_float(at.apFlux, found.flux as f32 * 0.9);
        row.set_float(at.apFluxErr, error * 2.3);
        if found.flux < 0.0 {
            row.set_true(at.isNegative);
        }
        row.set_float(at.snr, snr as f32);
        row.set_float(at.psfFlux, found.flux as f32);
        row.set_float(at.psfFluxErr, error);
        row.set_float(at.psfChi2, 1_681.0 + (found.reliability * 50.0) as f32);
        row.set_number(at.psfNdata, 1_681);
        row.set_number(at.dipoleNdata, 0);
        row.set_float(at.scienceFlux, (found.template_flux + found.flux) as f32);
        row.set_float(at.scienceFluxErr, error);
        row.set_float(at.templateFlux, found.template_flux as f32);
        row.set_float(at.templateFluxErr, error * 0.2);
        row.set_float(at.ixxPSF, found.psf_sigma.powi(2) as f32);
        row.set_float(at.iyyPSF, found.psf_sigma.powi(2) as f32);
        row.set_float(at.ixyPSF, 0.0);
        row.set_float(at.reliability, found.reliability as f32);
        row.set_text(at.reliabilityVersion, "1");
        row.set_text(at.band, BANDS[found.band].0);
        row.set_double(at.timeProcessedMjdTai, found.mjd + PROCESSING_DAYS);
        row.set_number(at.bboxSize, 12 + (snr.ln() * 4.0) as i64);
        row
    }

    pub(super) fn forced(&self, found: &Detection) -> Row {
        let (mut row, at) = (self.empty_forced.clone(), &self.forced);
        row.set_number(at.diaForcedSourceId, found.id);
        row.set_number(at.diaObjectId, found.object);
        row.set_double(at.ra, found.ra);
        row.set_double(at.dec, found.dec);
        row.set_number(at.visit, found.visit);
        row.set_number(at.detector, found.detector.into());
        row.set_float(at.psfFlux, found.flux as f32);
        row.set_float(at.psfFluxErr, found.flux_error as f32);
        row.set_double(at.midpointMjdTai, found.mjd);
        row.set_float(at.scienceFlux, (found.template_flux + found.flux) as f32);
        row.set_float(at.scienceFluxErr, found.flux_error as f32);
        row.set_text(at.band, BANDS[found.band].0);
        row.set_double(at.timeProcessedMjdTai, found.mjd + PROCESSING_DAYS);
        row
    }

    /// The object of detections in the order of time, the newest of which is the alert's.
    pub(super) fn object(&self, found: &[Detection], forced: &[Detection]) -> Row {
        let (mut row, at) = (self.empty_object.clone(), &self.object);
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return row };
        let degrees = (last.psf_sigma / 5.0 / 3_600.0) as f32;
        row.set_number(at.diaObjectId, last.object);
        row.set_double(at.validityStartMjdTai, last.mjd + PROCESSING_DAYS);
        row.set_double(at.ra, last.ra);
        row.set_double(at.dec, last.dec);
        row.set_float(at.raErr, degrees);
        row.set_float(at.decErr, degrees);
        row.set_float(at.ra_dec_Cov, 0.0);
        row.set_double(at.firstDiaSourceMjdTai, first.mjd);
        row.set_double(at.lastDiaSourceMjdTai, last.mjd);
        row.set_number(at.nDiaSources, found.len() as i64);
        for (band, summary) in self.bands.iter().enumerate() {
            summary.set(&mut row, of_band(found, band), of_band(forced, band));
        }
        row
    }

    pub(super) fn solar_system(&self, found: &Detection, known: &Known) -> Row {
        let (mut row, at) = (self.empty_solar_system.clone(), &self.solar_system);
        let (sine, cosine) = known.direction.sin_cos();
        row.set_number(at.diaSourceId, found.id);
        row.set_number(at.ssObjectId, known.id);
        row.set_text(at.designation, &known.designation);
        for place in [at.eclLambda, at.eclipticLambda, at.galLon, at.galacticL] {
            row.set_double(place, found.ra);
        }
        for place in [at.eclBeta, at.eclipticBeta, at.galLat, at.galacticB] {
            row.set_double(place, found.dec);
        }
        row.set_float(at.phaseAngle, 12.0);
        row.set_float(at.helioRange, 2.7);
        row.set_float(at.heliocentricDist, 2.7);
        row.set_float(at.topoRange, 1.9);
        row.set_float(at.topocentricDist, 1.9);
        row.set_float(at.ephVmag, known.magnitude as f32);
        row.set_float(at.predictedVMagnitude, known.magnitude as f32);
        row.set_float(at.ephOffset, known.distance as f32);
        row.set_double(at.ephOffsetRa, known.distance * cosine);
        row.set_double(at.ephOffsetDec, known.distance * sine);
        row.set_double(at.residualRa, known.distance * cosine / 3_600.0);
        row.set_double(at.residualDec, known.distance * sine / 3_600.0);
        row.set_number(at.diaDistanceRank, 1);
        row
    }

    pub(super) fn orbit(&self, known: &Known) -> Row {
        let (mut row, at) = (self.empty_orbit.clone(), &self.orbit);
        let (axis, eccentricity) = (2.2 + known.direction / 10.0, 0.12);
        for place in [
            at.mpcDesignation,
            at.designation,
            at.packed_primary_provisional_designation,
            at.unpacked_primary_provisional_designation,
        ] {
            row.set_text(place, &known.designation);
        }
        row.set_number(at.ssObjectId, known.id);
        row.set_number(at.id, known.id & 0x7fff_ffff);
        row.set_double(at.a, axis);
        row.set_double(at.e, eccentricity);
        row.set_double(at.q, axis * (1.0 - eccentricity));
        row.set_double(at.i, 8.5);
        row.set_double(at.incl, 8.5);
        row.set_double(at.h, known.magnitude - 4.0);
        row.set_float(at.mpcH, (known.magnitude - 4.0) as f32);
        row
    }
}

fn of_band(all: &[Detection], band: usize) -> impl Iterator<Item = &Detection> + Clone {
    all.iter().filter(move |detection| detection.band == band)
}

impl BandSummary {
    fn set<'a>(
        &self,
        row: &mut Row,
        found: impl Iterator<Item = &'a Detection> + Clone,
        forced: impl Iterator<Item = &'a Detection> + Clone,
    ) {
        let count = found.clone().count();
        row.set_number(self.places[3], count as i64);
        let mut set = |place: usize, value: f64| row.set_float(self.places[place], value as f32);
        if let Some(mean) = Mean::of(forced.map(|one| (one.flux, one.flux_error))) {
            set(8, mean.value);
            set(9, mean.error);
        }
        let Some(mean) = Mean::of(found.clone().map(|one| (one.flux, one.flux_error))) else {
            return;
        };
        set(0, mean.value);
        set(1, mean.error);
        let science = found.clone().map(|one| (one.flux + one.template_flux, one.flux_error));
        if let Some(science) = Mean::of(science) {
            set(10, science.value);
            set(11, science.error);
        }
        let fluxes = found.clone().map(|one| one.flux);
        set(4, fluxes.clone().fold(f64::INFINITY, f64::min));
        set(5, fluxes.clone().fold(f64::NEG_INFINITY, f64::max));
        set(7, found.clone().map(|one| one.flux_error).sum::<f64>() / count as f64);
        if count > 1 {
            let squares = fluxes.map(|flux| (flux - mean.value).powi(2)).sum::<f64>();
            set(2, (squares / (count - 1) as f64).sqrt());
            let slopes = found.clone().zip(found.skip(1)).filter(|(a, b)| b.mjd > a.mjd);
            let slopes = slopes.map(|(a, b)| ((b.flux - a.flux) / (b.mjd - a.mjd)).abs());
            set(6, slopes.fold(f64::NAN, f64::max));
        }
    }
}

/// A mean weighted by the inverse squares of the errors.
struct Mean {
    value: f64,
    error: f64,
}

impl Mean {
    fn of(measured: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let (mut weights, mut sum) = (0.0, 0.0);
        for (value, error) in measured {
            let weight = error.powi(-2);
            weights += weight;
            sum += weight * value;
        }
        (weights > 0.0).then(|| Self { value: sum / weights, error: weights.powf(-0.5) })
    }
}
