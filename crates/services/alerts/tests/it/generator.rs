//! Generated packets: against a real one, against their table, and against themselves.

use std::collections::HashMap;

use helio_alerts::fits::hdus;
use helio_alerts::generator::distributions::{self, Quantity, Shape};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::rubin::Version;
use helio_core::codec::{Codec, Value};
use serde_json::Value as Json;

use crate::support::rubin_packet;

fn options() -> GeneratorOptions {
    GeneratorOptions { stamps: WithStamps::None, ..GeneratorOptions::default() }
}

fn datum(generator: &mut Generator, alert: AlertNumber) -> Vec<u8> {
    let mut datum = Vec::new();
    generator.write(alert, &mut datum);
    datum
}

fn at(visit: u32, detector: u16, number: u32) -> AlertNumber {
    AlertNumber { visit, detector, number }
}

fn json(codec: &Codec, datum: &[u8]) -> Json {
    codec.value_to_json(&codec.decode(datum).unwrap()).unwrap()
}

/// The stamps' cards, but for their values, sizes, and the packet's.
#[test]
fn a_packet_is_like_the_real_one() {
    let Some(real) = rubin_packet() else { return };
    let options = GeneratorOptions {
        version: Version::V9_0,
        history: History::None,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(options);
    let codec = Codec::new(Version::V9_0.schema());
    let ours = (0..20).map(|number| datum(&mut generator, at(0, 168, number)));
    let ours = ours.map(|datum| (codec.decode(&datum).unwrap(), datum));
    // Without a Solar System object, as the real one.
    let is_alone = |alert: &Value| codec.field(alert, "ssSource") == Some(&Value::Null);
    let (ours, datum) = ours.into_iter().find(|(alert, _)| is_alone(alert)).unwrap();
    assert!(datum.len().abs_diff(real.len() - 5) < 40, "{} bytes", datum.len());
    let real = codec.decode(&real[5..]).unwrap();
    for stamp in ["cutoutDifference", "cutoutScience", "cutoutTemplate"] {
        let [ours, real] = [&ours, &real].map(|alert| match codec.field(alert, stamp) {
            Some(Value::Bytes(file)) => hdus(file).unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!(ours.len(), real.len());
        for (ours, real) in ours.iter().zip(&real) {
            let keywords = |header: &[u8]| -> Vec<String> {
                let cards =
                    header.chunks(80).map(|card| String::from_utf8_lossy(&card[..8]).into());
                cards.collect()
            };
            let sorted = |header: &[u8]| {
                let mut all = keywords(header);
                all.sort();
                all
            };
            assert_eq!(sorted(ours.header), sorted(real.header), "{stamp}");
            assert_eq!((ours.data_bytes, ours.pixel_bytes), (real.data_bytes, real.pixel_bytes));
            for card in ["BITPIX", "NAXIS1", "NAXIS2", "EXTNAME", "UTYPE", "BUNIT", "WCSAXES"] {
                assert_eq!(ours.value(card), real.value(card));
            }
        }
    }
    // The same fields are null, as after a detection without history.
    let nulls = |alert: &Value, record: &str| match codec.field(alert, record) {
        Some(Value::Record(fields)) => {
            fields.iter().map(|field| *field.bare() == Value::Null).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(nulls(&ours, "diaSource"), nulls(&real, "diaSource"));
    for list in ["prvDiaSources", "prvDiaForcedSources"] {
        assert_eq!(codec.field(&ours, list), codec.field(&real, list), "{list}");
    }
}

#[test]
fn packets_of_all_versions_are_valid_and_the_same_for_a_seed() {
    for version in Version::ALL {
        let options = GeneratorOptions { version, ..GeneratorOptions::default() };
        let (mut one, mut two) = (Generator::new(options), Generator::new(options));
        let codec = Codec::new(version.schema());
        for number in 0..one.alerts(3) {
            let datum = datum(&mut one, at(2, 3, number));
            codec.check(&datum).unwrap();
            // Ours is the encoding of the codec's, sized blocks included.
            let mut again = Vec::new();
            codec.encode(&codec.decode(&datum).unwrap(), &mut again).unwrap();
            assert!(datum == again, "{version}, alert {number}");
        }
        // In another order.
        let last = at(2, 3, one.alerts(3) - 1);
        assert!(datum(&mut one, last) == datum(&mut two, last));
        let other = GeneratorOptions { seed: 2, ..options };
        assert!(datum(&mut one, last) != datum(&mut Generator::new(other), last));
    }
}

/// What is drawn for a packet, found in it.
#[derive(Default)]
struct Drawn(HashMap<&'static str, Vec<f64>>);

impl Drawn {
    fn add(&mut self, quantity: Quantity, value: f64) {
        self.0.entry(quantity.name).or_default().push(value);
    }

    fn read(&mut self, alert: &Json, first_mjd: f64) {
        use distributions::*;
        let (source, object) = (&alert["diaSource"], &alert["diaObject"]);
        let number = |value: &Json| value.as_f64().unwrap();
        let share = |is_so: bool| f64::from(u8::from(is_so));
        let past = alert["prvDiaSources"].as_array();
        self.add(REPEATED, share(past.is_some()));
        self.add(RELIABILITY, number(&source["reliability"]));
        self.add(FLUX_ERROR, number(&source["psfFluxErr"]));
        self.add(KNOWN_OBJECT, share(!alert["ssSource"].is_null()));
        if !alert["ssSource"].is_null() {
            self.add(KNOWN_DISTANCE, number(&alert["ssSource"]["ephOffset"]));
            assert_eq!(alert["ssSource"]["ssObjectId"], source["ssObjectId"]);
        }
        self.add(TEMPLATE_FLUX, number(&source["templateFlux"]));
        match past {
            None => {
                self.add(SNR, number(&source["snr"]));
                self.add(NEGATIVE, share(number(&source["psfFlux"]) < 0.0));
                assert_eq!(object["nDiaSources"], 1);
            }
            Some(past) => {
                let before = past.iter().filter(|one| number(&one["midpointMjdTai"]) <= first_mjd);
                self.add(HISTORY_POINTS, before.count() as f64);
                self.add(HISTORY_DAYS, first_mjd - number(&past[0]["midpointMjdTai"]));
                assert_eq!(object["nDiaSources"], past.len() + 1);
            }
        }
    }
}

#[test]
fn packets_have_the_quantiles_of_the_table() {
    let mut generator = Generator::new(options());
    let codec = Codec::new(Version::LATEST.schema());
    let mut drawn = Drawn::default();
    for detector in 0..189 {
        // Every eighth CCD, and of the others the first alert, which is of a new object.
        let numbers = if detector % 8 == 0 { generator.alerts(detector) } else { 1 };
        for number in 0..numbers {
            let alert = json(&codec, &datum(&mut generator, at(0, detector, number)));
            if detector % 8 == 0 {
                drawn.read(&alert, 61_000.0);
            }
            if number == 0 {
                let moment = alert["diaSource"]["ixxPSF"].as_f64().unwrap();
                drawn.add(distributions::PSF_SIGMA, moment.sqrt());
            }
        }
    }
    for quantity in distributions::TABLE {
        // Tested in the images and by the shapes' own test.
        if ["SKY_VARIANCE", "FORCED_PER_POINT"].contains(&quantity.name) {
            continue;
        }
        let values = &drawn.0[quantity.name];
        for (share, value) in [0.05_f64, 0.5, 0.95].into_iter().zip(quantity.quantiles) {
            let (expected, found) = match quantity.shape {
                Shape::Share(share) => (share, values.iter().sum::<f64>() / values.len() as f64),
                _ => {
                    let below = values.iter().filter(|drawn| **drawn < value).count();
                    (share, below as f64 / values.len() as f64)
                }
            };
            // Five standard deviations, and half a point where numbers are whole.
            let allowed = 5.0 * (expected * (1.0 - expected) / values.len() as f64).sqrt() + 0.006;
            assert!(
                (found - expected).abs() < allowed,
                "{}: of {}, {found} lie below {value}, not {expected}",
                quantity.name,
                values.len(),
            );
        }
    }
}

/// An object that is seen again has the detections of all earlier visits, each as it was sent.
#[test]
fn a_past_is_what_was_sent() {
    let options = GeneratorOptions { alerts_per_visit: 60, detectors: 3, ..options() };
    let mut generator = Generator::new(options);
    let codec = Codec::new(Version::LATEST.schema());
    let mut sent: HashMap<i64, Json> = HashMap::new();
    let mut seen_twice = 0;
    for visit in 0..25 {
        for detector in 0..3 {
            for number in 0..generator.alerts(detector) {
                let number = at(visit, detector, number);
                let alert = json(&codec, &datum(&mut generator, number));
                assert_eq!(alert["diaSourceId"], generator.alert_id(number));
                let past = alert["prvDiaSources"].as_array().cloned().unwrap_or_default();
                let times: Vec<_> =
                    past.iter().map(|one| one["midpointMjdTai"].as_f64().unwrap()).collect();
                assert!(times.is_sorted());
                for one in &past {
                    assert_eq!(one["diaObjectId"], alert["diaObject"]["diaObjectId"]);
                    let id = one["diaSourceId"].as_i64().unwrap();
                    if let Some(before) = sent.get(&id) {
                        let flux = |source: &Json| source["psfFlux"].clone();
                        assert_eq!(flux(before), flux(one));
                        assert_eq!(before["band"], one["band"]);
                        seen_twice += 1;
                    }
                }
                let id = alert["diaSourceId"].as_i64().unwrap();
                assert!(sent.insert(id, alert["diaSource"].clone()).is_none(), "an id twice");
            }
        }
    }
    // Each visit sees 18 objects; from the 11th on each was seen once before, from the 21st twice.
    assert_eq!(seen_twice, 10 * 18 + 5 * 2 * 18);
}

#[test]
fn summaries_are_those_of_the_detections() {
    let history = History::Points(200);
    let mut generator = Generator::new(GeneratorOptions { history, ..options() });
    let codec = Codec::new(Version::LATEST.schema());
    let alert = json(&codec, &datum(&mut generator, at(0, 0, 0)));
    let past = alert["prvDiaSources"].as_array().unwrap();
    assert_eq!(past.len(), 200);
    assert_eq!(alert["prvDiaForcedSources"].as_array().unwrap().len(), 200);
    let object = &alert["diaObject"];
    for band in ["u", "g", "r", "i", "z", "y"] {
        let all = past.iter().chain([&alert["diaSource"]]).filter(|one| one["band"] == band);
        let number = |one: &Json, name: &str| one[name].as_f64().unwrap();
        let fluxes: Vec<_> = all.clone().map(|one| number(one, "psfFlux")).collect();
        let summary = |name: &str| number(object, &format!("{band}_{name}"));
        assert_eq!(object[format!("{band}_psfFluxNdata")], fluxes.len());
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{found}, not {expected}");
        };
        close(summary("psfFluxMin"), fluxes.iter().copied().fold(f64::INFINITY, f64::min));
        close(summary("psfFluxMax"), fluxes.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let weights = all.clone().map(|one| number(one, "psfFluxErr").powi(-2));
        let sum =
            all.clone().map(|one| number(one, "psfFlux") * number(one, "psfFluxErr").powi(-2));
        close(summary("psfFluxMean"), sum.sum::<f64>() / weights.sum::<f64>());
        assert!(summary("psfFluxMaxSlope") > 0.0 && summary("fpFluxMeanErr") > 0.0);
    }
}

/// Noise has the variance that the variance image says.
#[test]
fn images_have_their_noise() {
    let options = GeneratorOptions { history: History::None, ..GeneratorOptions::default() };
    let mut generator = Generator::new(options);
    let codec = Codec::new(Version::LATEST.schema());
    let alert = codec.decode(&datum(&mut generator, at(0, 0, 0))).unwrap();
    for stamp in ["cutoutDifference", "cutoutScience"] {
        let Some(Value::Bytes(file)) = codec.field(&alert, stamp) else { panic!() };
        let all = hdus(file).unwrap();
        let floats = |place: usize| -> Vec<f64> {
            let data = &all[place].data[..all[place].data_bytes];
            let pixels = data.chunks(4).map(|word| f32::from_be_bytes(word.try_into().unwrap()));
            pixels.map(f64::from).collect()
        };
        let (pixels, variance) = (floats(0), floats(1));
        // The outermost two rows on each side, where the source's light does not reach.
        let sky: Vec<_> = (0..60).chain(840..900).collect();
        let chi2 = sky.iter().map(|at| pixels[*at].powi(2) / variance[*at]).sum::<f64>();
        assert!((80.0..170.0).contains(&chi2), "{stamp}: chi squared {chi2} of {}", sky.len());
        let psf: f64 = all[2].data[..all[2].data_bytes]
            .chunks(8)
            .map(|word| f64::from_be_bytes(word.try_into().unwrap()))
            .sum();
        assert!((psf - 1.0).abs() < 1e-3, "{psf}");
    }
}
