//! Alerts that look like a survey's, the same for the same seed, on every machine.
//!
//! Constraints. An alert is a function of seed, visit, detector and its number there: a producer
//! needs no other, and a reader can ask for any. The distributions are in one table
//! ([`distributions`]), whose quantiles a test finds in packets. Names, sizes and headers are held
//! against a real packet.
//!
//! Operation. An alert is of a new object, or of one of the detector's pool of variable objects,
//! which are seen in turn. A pool's object has a past from before the first visit, and all its
//! detections in earlier visits. Summaries are computed from these, not drawn.

pub mod distributions;
mod images;
mod random;
mod rows;

use distributions as table;
use images::{Exposure, Noise, Place};
use random::Random;
use rows::{Detection, Known, Rows};

use crate::packet::{Alert, PacketEncoder};
use crate::row::Row;
use crate::rubin::Version;

pub use images::STAMP_SIDE;

/// MJD (TAI) of the first visit.
const FIRST_MJD: f64 = 61_000.0;
/// Seconds from one visit to the next.
pub const CADENCE_S: f64 = 39.0;
/// The longest history, days.
const HISTORY_DAYS: f64 = 365.0;
/// A pool has so many times the objects that one visit sees, so that each is seen in every tenth
/// visit.
const POOL_VISITS: u64 = 10;
/// Bits of an alert's number within its CCD, in its identifier.
const NUMBER_BITS: u32 = 24;
/// Bits of a detector's number.
const DETECTOR_BITS: u32 = 8;
/// The bit of the identifiers of a pool's objects.
const POOL_BIT: i64 = 1 << 62;
/// The number of known Solar System objects.
const KNOWN_OBJECTS: usize = 1_000_000;

/// How much past an alert has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// As the table has it.
    #[default]
    Drawn,
    /// None: all objects are new.
    None,
    /// So many earlier detections and forced measurements, for every alert.
    Points(usize),
}

/// Whether packets have stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithStamps {
    /// FITS files as Rubin's.
    #[default]
    Fits,
    /// None.
    None,
}

/// The options of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorOptions {
    /// The schema of the packets.
    pub version: Version,
    /// The seed: equal alerts for an equal one.
    pub seed: u64,
    /// The number of the first visit, below 2^30.
    pub first_visit: u32,
    /// Alerts of a visit.
    pub alerts_per_visit: u32,
    /// Detectors, at most 256.
    pub detectors: u16,
    /// The past of the alerts.
    pub history: History,
    /// The stamps of the alerts.
    pub stamps: WithStamps,
}

impl Default for GeneratorOptions {
    /// Rubin's camera and rate: 10,000 alerts a visit on 189 detectors.
    fn default() -> Self {
        Self {
            version: Version::LATEST,
            seed: 1,
            first_visit: 1_000_000,
            alerts_per_visit: 10_000,
            detectors: 189,
            history: History::default(),
            stamps: WithStamps::default(),
        }
    }
}

/// The place of an alert in the generated survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlertNumber {
    /// The visit, from 0.
    pub visit: u32,
    /// The detector, from 0.
    pub detector: u16,
    /// The alert's number within the CCD, from 0.
    pub number: u32,
}

/// Generates alerts.
#[derive(Debug)]
pub struct Generator {
    options: GeneratorOptions,
    encoder: PacketEncoder,
    rows: Rows,
    noise: Noise,
    exposure: Option<(u32, u16, Exposure)>,
    files: [Vec<u8>; 3],
}

/// The past of an alert: detections and forced measurements in the order of time.
#[derive(Debug, Default)]
struct Past {
    found: Vec<Detection>,
    forced: Vec<Detection>,
}

/// An alert that is not encoded yet: rows of its records, and FITS files.
#[derive(Debug, Clone)]
pub struct Drawn {
    id: i64,
    source: Row,
    previous: Vec<Row>,
    forced: Vec<Row>,
    object: Row,
    solar_system: Option<Row>,
    orbit: Option<Row>,
    stamps: Option<[Vec<u8>; 3]>,
}

impl Drawn {
    /// The alert, as an encoder takes it.
    #[must_use]
    pub fn alert(&self) -> Alert<'_> {
        let stamps = self.stamps.as_ref();
        Alert {
            id: self.id,
            observation_reason: None,
            target_name: None,
            source: &self.source,
            previous: Some(&self.previous[..]).filter(|rows| !rows.is_empty()),
            forced: Some(&self.forced),
            object: Some(&self.object),
            solar_system: self.solar_system.as_ref(),
            orbit: self.orbit.as_ref(),
            stamps: stamps.map_or([None; 3], |files| files.each_ref().map(|file| Some(&file[..]))),
        }
    }
}

impl Generator {
    /// Prepares the generation.
    #[must_use]
    pub fn new(options: GeneratorOptions) -> Self {
        let encoder = PacketEncoder::new(options.version);
        let rows = Rows::new(&encoder);
        let noise = Noise::new(options.seed);
        Self { options, encoder, rows, noise, exposure: None, files: Default::default() }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &GeneratorOptions {
        &self.options
    }

    /// The number of alerts of a detector, in each visit.
    #[must_use]
    pub fn alerts(&self, detector: u16) -> u32 {
        let (all, detectors) = (self.options.alerts_per_visit, u32::from(self.options.detectors));
        all / detectors + u32::from(u32::from(detector) < all % detectors)
    }

    /// The identifier of a visit.
    #[must_use]
    pub fn visit_id(&self, visit: u32) -> i64 {
        i64::from(self.options.first_visit) + i64::from(visit)
    }

    /// The identifier of an alert.
    #[must_use]
    pub fn alert_id(&self, alert: AlertNumber) -> i64 {
        let ccd = self.visit_id(alert.visit) << DETECTOR_BITS | i64::from(alert.detector);
        ccd << NUMBER_BITS | i64::from(alert.number)
    }

    /// Appends the datum of an alert to `out`.
    pub fn write(&mut self, alert: AlertNumber, out: &mut Vec<u8>) {
        let drawn = self.draw(alert);
        self.encoder.encode(&drawn.alert(), out);
        // The next alert's stamps need no new memory.
        self.files = drawn.stamps.unwrap_or_default();
    }

    /// The rows and stamps of an alert: what is encoded.
    #[must_use]
    pub fn draw(&mut self, alert: AlertNumber) -> Drawn {
        let mut random = self.random(4, alert);
        self.expose(alert);
        let object = self.object(alert);
        let past = object.map(|object| self.past(object, alert)).unwrap_or_default();
        let found = match object {
            Some(object) => self.seen_again(object, alert, &mut random),
            None => self.first_seen(alert, &mut random),
        };
        let known = table::KNOWN_OBJECT.is_drawn(&mut random).then(|| known(&mut random));
        let (rows, known) = (&self.rows, known.as_ref());
        let all: Vec<_> = past.found.iter().chain([&found]).copied().collect();
        let drawn = Drawn {
            id: found.id,
            source: rows.source(&found, known),
            previous: past.found.iter().map(|one| rows.source(one, None)).collect(),
            forced: past.forced.iter().map(|one| rows.forced(one)).collect(),
            object: rows.object(&all, &past.forced),
            solar_system: known.map(|known| rows.solar_system(&found, known)),
            orbit: known.map(|known| rows.orbit(known)),
            stamps: None,
        };
        Drawn { stamps: self.stamps(&found, &mut random), ..drawn }
    }

    fn stamps(&mut self, found: &Detection, random: &mut Random) -> Option<[Vec<u8>; 3]> {
        let (WithStamps::Fits, Some((.., exposure))) = (self.options.stamps, &self.exposure) else {
            return None;
        };
        let place = Place {
            x: found.x,
            y: found.y,
            ra: found.ra,
            dec: found.dec,
            flux: found.flux as f32,
            template_flux: found.template_flux as f32,
        };
        exposure.write(&place, &self.noise, random, &mut self.files);
        Some(std::mem::take(&mut self.files))
    }

    fn random(&self, what: u64, alert: AlertNumber) -> Random {
        let AlertNumber { visit, detector, number } = alert;
        Random::of(self.options.seed, &[what, visit.into(), detector.into(), number.into()])
    }

    /// Prepares what the stamps of a CCD share.
    fn expose(&mut self, alert: AlertNumber) {
        let AlertNumber { visit, detector, .. } = alert;
        if !matches!(&self.exposure, Some((v, d, _)) if (*v, *d) == (visit, detector)) {
            let mut random = self.random(5, AlertNumber { number: 0, ..alert });
            self.exposure = Some((visit, detector, Exposure::new(&mut random)));
        }
    }

    /// The alerts of a CCD whose objects were seen before.
    fn repeats(&self, detector: u16) -> u64 {
        match self.options.history {
            History::None => 0,
            History::Points(_) => self.alerts(detector).into(),
            History::Drawn => {
                let expected = 0.3 * f64::from(self.alerts(detector));
                let mut random = Random::of(self.options.seed, &[6, detector.into()]);
                (expected + random.unit()) as u64
            }
        }
    }

    /// The object of the detector's pool that an alert is of; `None` if it is of a new one. The
    /// pool's alerts are spread evenly over the CCD's.
    fn object(&self, alert: AlertNumber) -> Option<u64> {
        let repeats = self.repeats(alert.detector);
        let alerts = u64::from(self.alerts(alert.detector));
        let before = u64::from(alert.number) * repeats / alerts;
        let is_repeat = (u64::from(alert.number) + 1) * repeats / alerts > before;
        let turn = u64::from(alert.visit) % POOL_VISITS;
        is_repeat.then_some(turn * repeats + before)
    }

    /// The alert of an object of the pool in a visit, if the visit sees it.
    fn alert_of(&self, object: u64, detector: u16, visit: u32) -> Option<AlertNumber> {
        let (repeats, alerts) = (self.repeats(detector), u64::from(self.alerts(detector)));
        let turn = u64::from(visit) % POOL_VISITS;
        let before = object.checked_sub(turn * repeats).filter(|before| *before < repeats)?;
        let number = ((before + 1) * alerts).div_ceil(repeats) - 1;
        Some(AlertNumber { visit, detector, number: number as u32 })
    }

    fn mjd(visit: u32) -> f64 {
        FIRST_MJD + f64::from(visit) * CADENCE_S / 86_400.0
    }

    fn psf_sigma(&self) -> f64 {
        self.exposure.as_ref().map_or(0.4, |(.., exposure)| exposure.psf_sigma)
    }

    /// The first detection of a new object.
    fn first_seen(&self, alert: AlertNumber, random: &mut Random) -> Detection {
        let flux_error = table::FLUX_ERROR.draw(random);
        let sign = if table::NEGATIVE.is_drawn(random) { -1.0 } else { 1.0 };
        let id = self.alert_id(alert);
        let (x, y) = (random.unit() * 4_072.0, random.unit() * 4_000.0);
        let (ra, dec) = sky(alert.detector, x, y);
        Detection {
            id,
            object: id,
            visit: self.visit_id(alert.visit),
            detector: alert.detector.into(),
            mjd: Self::mjd(alert.visit),
            band: self.band(alert.visit),
            ra,
            dec,
            x,
            y,
            flux: sign * flux_error * table::SNR.draw(random),
            flux_error,
            template_flux: table::TEMPLATE_FLUX.draw(random),
            reliability: table::RELIABILITY.draw(random),
            psf_sigma: self.psf_sigma(),
        }
    }

    /// The filter of a visit.
    fn band(&self, visit: u32) -> usize {
        table::draw_band(&mut Random::of(self.options.seed, &[7, visit.into()]))
    }

    /// A detection of a pool's object: its light curve at the time, and noise.
    fn seen_again(&self, object: u64, alert: AlertNumber, random: &mut Random) -> Detection {
        let curve = self.curve(object, alert.detector);
        Detection {
            id: self.alert_id(alert),
            visit: self.visit_id(alert.visit),
            band: self.band(alert.visit),
            ..curve.at(Self::mjd(alert.visit), random)
        }
    }

    /// The past of a pool's object before an alert.
    fn past(&self, object: u64, alert: AlertNumber) -> Past {
        let detector = alert.detector;
        let curve = self.curve(object, detector);
        let names = [8, detector.into(), object];
        let mut random = Random::of(self.options.seed, &names);
        let days = table::HISTORY_DAYS.draw(&mut random);
        let (points, forced) = match self.options.history {
            History::Points(points) => (points, points),
            _ => {
                let points = table::HISTORY_POINTS.draw(&mut random).round().max(1.0);
                let forced = (points * table::FORCED_PER_POINT.draw(&mut random)).round();
                (points as usize, forced as usize)
            }
        };
        let since = Self::mjd(alert.visit) - HISTORY_DAYS;
        let found = self.measured(&curve, points, days, &mut random);
        let mut past = Past { found, forced: self.measured(&curve, forced, days, &mut random) };
        if self.options.history == History::Drawn {
            let earlier =
                (0..alert.visit).filter_map(|visit| self.alert_of(object, detector, visit));
            for earlier in earlier {
                let one = self.seen_again(object, earlier, &mut self.random(4, earlier));
                past.found.push(one);
                past.forced.push(one);
            }
        }
        past.found.retain(|one| one.mjd >= since);
        past.forced.retain(|one| one.mjd >= since);
        past
    }

    /// Measurements of an object at random times before the first visit, the first of them so many
    /// days before.
    fn measured(
        &self,
        curve: &Curve,
        points: usize,
        days: f64,
        random: &mut Random,
    ) -> Vec<Detection> {
        let mut times: Vec<f64> = (1..points).map(|_| FIRST_MJD - days * random.unit()).collect();
        times.extend((points > 0).then_some(FIRST_MJD - days));
        times.sort_by(f64::total_cmp);
        let one = |mjd: f64| {
            let visit = ((mjd - FIRST_MJD + 2.0 * HISTORY_DAYS) * 1_000.0) as i64;
            let id = (visit << DETECTOR_BITS | curve.detector as i64) << NUMBER_BITS
                | (curve.object & ((1 << NUMBER_BITS) - 1));
            Detection { id, visit, band: table::draw_band(random), ..curve.at(mjd, random) }
        };
        times.into_iter().map(one).collect()
    }

    /// The light curve of a pool's object.
    fn curve(&self, object: u64, detector: u16) -> Curve {
        let mut random = Random::of(self.options.seed, &[9, detector.into(), object]);
        let (x, y) = (random.unit() * 4_072.0, random.unit() * 4_000.0);
        let (ra, dec) = sky(detector, x, y);
        let period = 0.2 + random.unit() * 60.0;
        let phase = random.unit();
        let (snr, template) = (&table::SNR, &table::TEMPLATE_FLUX);
        Curve {
            object: POOL_BIT | i64::from(detector) << 32 | object as i64,
            detector,
            x,
            y,
            ra,
            dec,
            snr: snr.draw(&mut random),
            template_flux: template.draw(&mut random),
            period,
            phase,
        }
    }
}

/// A variable object.
#[derive(Debug, Clone, Copy)]
struct Curve {
    object: i64,
    detector: u16,
    x: f64,
    y: f64,
    ra: f64,
    dec: f64,
    /// Signal to noise ratio at the maximum.
    snr: f64,
    template_flux: f64,
    /// Days.
    period: f64,
    phase: f64,
}

impl Curve {
    /// A detection at a time: a sine, and noise of one standard error. Below the threshold nothing
    /// would be detected; the flux is the threshold's there.
    fn at(&self, mjd: f64, random: &mut Random) -> Detection {
        let flux_error = table::FLUX_ERROR.draw(random);
        let angle = std::f64::consts::TAU * (mjd / self.period + self.phase);
        let ratio = self.snr * angle.sin() + random.normal();
        let ratio = ratio.signum() * ratio.abs().max(5.0);
        Detection {
            id: 0,
            object: self.object,
            visit: 0,
            detector: self.detector.into(),
            mjd,
            band: 0,
            ra: self.ra,
            dec: self.dec,
            x: self.x,
            y: self.y,
            flux: ratio * flux_error,
            flux_error,
            template_flux: self.template_flux,
            reliability: table::RELIABILITY.draw(random),
            psf_sigma: 0.4,
        }
    }
}

/// Right ascension and declination of a pixel: detectors lie in a square of 15 columns.
fn sky(detector: u16, x: f64, y: f64) -> (f64, f64) {
    let degrees = images::PIXEL_ARCSEC / 3_600.0;
    let (column, row) = (f64::from(detector % 15), f64::from(detector / 15));
    let dec = -30.0 + (row * 4_200.0 + y) * degrees;
    (150.0 + (column * 4_300.0 + x) * degrees / dec.to_radians().cos(), dec)
}

/// A known Solar System object near by.
fn known(random: &mut Random) -> Known {
    let number = random.below(KNOWN_OBJECTS);
    Known {
        id: 20_000_000_000_000_000 + number as i64,
        designation: format!("20{:02} A{}", number % 25, number),
        distance: table::KNOWN_DISTANCE.draw(random),
        direction: std::f64::consts::TAU * random.unit(),
        magnitude: 19.0 + 4.0 * random.unit(),
    }
}
