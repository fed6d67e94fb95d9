//! The stamps of generated alerts: images with noise, their variances, and the PSF.
//!
//! The HDUs, their sizes and cards are those of Rubin's packets. A PSF is made once a CCD: it is
//! equal in difference and science, as there.

use super::distributions::{PSF_SIGMA, SKY_VARIANCE};
use super::random::Random;
use crate::fits::{Header, Pixels, Size, put_doubles, put_floats};

/// Columns and rows of a stamp.
pub const STAMP_SIDE: usize = 30;
/// Columns and rows of the PSF of difference and science.
const PSF_SIDE: usize = 41;
/// Columns and rows of the template's PSF.
const TEMPLATE_PSF_SIDE: usize = 77;
/// Arcseconds a pixel.
pub(super) const PIXEL_ARCSEC: f64 = 0.2;
/// The share of the exposure's variance that the template has, which is a mean of many.
const TEMPLATE_VARIANCE: f32 = 0.04;
/// The share of a source's flux in its pixels' variance.
const SOURCE_VARIANCE: f32 = 0.03;
/// Normal numbers, of which each image takes a run from a random place.
const NOISE_NUMBERS: usize = 1 << 16;
const STAMP: Size = Size { columns: STAMP_SIDE, rows: STAMP_SIDE };
const STAMP_PIXELS: usize = STAMP_SIDE * STAMP_SIDE;

/// Normal numbers, made once.
#[derive(Debug)]
pub(super) struct Noise(Vec<f32>);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::of(seed, &[0]);
        Self((0..NOISE_NUMBERS).map(|_| random.normal() as f32).collect())
    }

    fn run(&self, random: &mut Random) -> &[f32] {
        let start = random.below(NOISE_NUMBERS - STAMP_PIXELS);
        &self.0[start..start + STAMP_PIXELS]
    }
}

/// The parts that the stamps of one CCD share.
#[derive(Debug)]
pub(super) struct Exposure {
    /// Variance of pixels without a source.
    sky_variance: f32,
    /// Standard deviation of the PSF, arcsec.
    pub(super) psf_sigma: f64,
    /// The PSF on the pixels of a stamp.
    psf: Vec<f32>,
    /// The HDU of the PSF of difference and science.
    psf_hdu: Vec<u8>,
    template_psf_hdu: Vec<u8>,
    variance_header: Vec<u8>,
}

/// Where and how bright a source is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) ra: f64,
    pub(super) dec: f64,
    pub(super) flux: f32,
    pub(super) template_flux: f32,
}

impl Exposure {
    pub(super) fn new(random: &mut Random) -> Self {
        let psf_sigma = PSF_SIGMA.draw(random);
        let pixels = psf_sigma / PIXEL_ARCSEC;
        let mut variance_header = Vec::new();
        let mut header = Header::extension("UNCERT", Pixels::Floats, STAMP);
        header.text("UTYPE", "VarianceUncertainty", "");
        header.put(&mut variance_header);
        Self {
            sky_variance: SKY_VARIANCE.draw(random) as f32,
            psf_sigma,
            psf: gaussian(STAMP_SIDE, pixels).into_iter().map(|value| value as f32).collect(),
            psf_hdu: psf_hdu(PSF_SIDE, pixels),
            template_psf_hdu: psf_hdu(TEMPLATE_PSF_SIDE, pixels * 0.8),
            variance_header,
        }
    }

    /// Writes difference, science and template of a source.
    pub(super) fn write(
        &self,
        place: &Place,
        noise: &Noise,
        random: &mut Random,
        files: &mut [Vec<u8>; 3],
    ) {
        let header = header(place);
        let total = place.template_flux + place.flux;
        let template = self.sky_variance * TEMPLATE_VARIANCE;
        let [difference, science, reference] = files;
        self.image(
            &header,
            self.sky_variance + template,
            place.flux,
            noise.run(random),
            difference,
        );
        difference.extend_from_slice(&self.psf_hdu);
        self.image(&header, self.sky_variance, total, noise.run(random), science);
        science.extend_from_slice(&self.psf_hdu);
        self.image(&header, template, place.template_flux, noise.run(random), reference);
        reference.extend_from_slice(&self.template_psf_hdu);
    }

    /// Writes the image of a source with noise, and its variance.
    fn image(&self, header: &[u8], sky: f32, flux: f32, noise: &[f32], file: &mut Vec<u8>) {
        let mut pixels = [0.0; STAMP_PIXELS];
        let mut variance = [0.0; STAMP_PIXELS];
        for (at, (psf, noise)) in self.psf.iter().zip(noise).enumerate() {
            let signal = flux * psf;
            variance[at] = sky + signal.abs() * SOURCE_VARIANCE;
            pixels[at] = signal + noise * variance[at].sqrt();
        }
        file.clear();
        file.extend_from_slice(header);
        put_floats(file, &pixels);
        file.extend_from_slice(&self.variance_header);
        put_floats(file, &variance);
    }
}

/// A Gaussian on a square, of sum 1 over the whole plane.
fn gaussian(side: usize, sigma: f64) -> Vec<f64> {
    let at = |place: usize| place as f64 - (side / 2) as f64;
    let norm = 1.0 / (std::f64::consts::TAU * sigma * sigma);
    let places = (0..side).flat_map(|row| (0..side).map(move |column| (row, column)));
    let square = |(row, column): (usize, usize)| at(row).powi(2) + at(column).powi(2);
    places.map(|place| norm * (-square(place) / (2.0 * sigma * sigma)).exp()).collect()
}

fn psf_hdu(side: usize, sigma: f64) -> Vec<u8> {
    let mut hdu = Vec::new();
    Header::extension("PSFIMAGE", Pixels::Doubles, Size { columns: side, rows: side })
        .put(&mut hdu);
    put_doubles(&mut hdu, &gaussian(side, sigma));
    hdu
}

/// The header of a stamp's first image, with its place on CCD and sky.
fn header(place: &Place) -> Vec<u8> {
    let corner = |at: f64| at.floor() - (STAMP_SIDE / 2) as f64;
    let pixel = "Pixel coordinate of reference point";
    let matrix = "Coordinate transformation matrix element";
    let mut header = Header::primary(Pixels::Floats, STAMP);
    header.integer("CUTMINX", corner(place.x) as i64, "");
    header.integer("CUTMINY", corner(place.y) as i64, "");
    header.text("BUNIT", "nJy", "");
    header.integer("WCSAXES", 2, "Number of coordinate axes");
    header.number("CRPIX1", place.x - corner(place.x), pixel);
    header.number("CRPIX2", place.y - corner(place.y), pixel);
    let degrees = PIXEL_ARCSEC / 3_600.0;
    header.number("PC1_1", -degrees, matrix);
    header.number("PC1_2", 0.0, matrix);
    header.number("PC2_1", 0.0, matrix);
    header.number("PC2_2", degrees, matrix);
    header.number("CDELT1", 1.0, "Coordinate increment at reference point");
    header.number("CDELT2", 1.0, "Coordinate increment at reference point");
    header.number("CRVAL1", place.ra, "Coordinate value at reference point");
    header.number("CRVAL2", place.dec, "Coordinate value at reference point");
    header.number("LATPOLE", 90.0, "[deg] Native latitude of celestial pole");
    header.number("MJDREF", 0.0, "[d] MJD of fiducial time");
    let mut file = Vec::new();
    header.put(&mut file);
    file
}
