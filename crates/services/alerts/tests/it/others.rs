//! Generated packets as others read them: fastavro and astropy.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use helio_alerts::fits::hdus;
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::rubin::Version;
use helio_core::codec::{Codec, Value};
use serde_json::Value as Json;

use crate::support::published;

/// Names a Python with fastavro and astropy; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// A Python that has the packages; where there is none the test says that it is skipped, and fails
/// where nothing may be.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut look = Command::new(&python);
    let there =
        look.args(["-c", "import fastavro, astropy.io.fits"]).stderr(Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let why = format!(
        "{} has no fastavro or astropy; `make test` installs them, or name a Python that has them \
         in {PYTHON}",
        python.display()
    );
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    None
}

#[test]
fn fastavro_and_astropy_read_what_we_write() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (version, history) in [(Version::V9_0, 0), (Version::LATEST, 200)] {
        // Published schemas, where they are; equal ones of ours otherwise.
        let schema = published(version).unwrap_or_else(|| version.schema().clone());
        let history = if history == 0 { History::None } else { History::Points(history) };
        let options = GeneratorOptions { version, history, ..GeneratorOptions::default() };
        let mut datum = Vec::new();
        let alert = AlertNumber { visit: 3, detector: 100, number: 5 };
        Generator::new(options).write(alert, &mut datum);
        let files = [folder.path().join("schema.json"), folder.path().join("datum")];
        std::fs::write(&files[0], schema.to_string()).unwrap();
        std::fs::write(&files[1], &datum).unwrap();
        let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/peer.py");
        let read = Command::new(&python).arg(peer).args(&files).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let read: Json = serde_json::from_slice(&read.stdout).unwrap();
        compare(&Codec::new(version.schema()), &datum, &read);
    }
}

fn compare(codec: &Codec, datum: &[u8], read: &Json) {
    let alert = codec.decode(datum).unwrap();
    let json = codec.value_to_json(&alert).unwrap();
    assert_eq!(read["id"], json["diaSourceId"]);
    let float = |value: &Json| value.as_f64().unwrap() as f32;
    assert_eq!(float(&read["flux"]), float(&json["diaSource"]["psfFlux"]));
    assert_eq!(read["ra"], json["diaSource"]["ra"]);
    let past = json["prvDiaSources"].as_array().cloned().unwrap_or_default();
    let ids: Vec<_> = past.iter().map(|one| one["diaSourceId"].clone()).collect();
    assert_eq!(read["previous"], Json::Array(ids));
    assert_eq!(read["forced"], json["prvDiaForcedSources"].as_array().unwrap().len());
    assert_eq!(read["detections"], past.len() + 1);
    for stamp in ["cutoutDifference", "cutoutScience", "cutoutTemplate"] {
        let Some(Value::Bytes(file)) = codec.field(&alert, stamp) else { panic!("{stamp}") };
        let found = read["stamps"][stamp].as_array().unwrap();
        let ours = hdus(file).unwrap();
        assert_eq!(found.len(), ours.len());
        for (found, ours) in found.iter().zip(&ours) {
            let data = &ours.data[..ours.data_bytes];
            let pixels: Vec<f64> = match ours.pixel_bytes {
                4 => data
                    .chunks(4)
                    .map(|b| f32::from_be_bytes(b.try_into().unwrap()).into())
                    .collect(),
                _ => data.chunks(8).map(|b| f64::from_be_bytes(b.try_into().unwrap())).collect(),
            };
            let kind = if ours.pixel_bytes == 4 { ">f4" } else { ">f8" };
            assert_eq!(found["type"], kind);
            let side = (pixels.len() as f64).sqrt() as usize;
            assert_eq!(found["shape"], serde_json::json!([side, side]));
            assert_eq!(found["corner"].as_f64(), Some(pixels[1]));
            let sum: f64 = pixels.iter().sum();
            let largest = pixels.iter().map(|pixel| pixel.abs()).fold(0.0, f64::max);
            assert!((found["sum"].as_f64().unwrap() - sum).abs() <= 1e-9 * largest.max(1.0));
        }
        let cards = &found[0]["cards"];
        assert_eq!(cards["BUNIT"], "nJy");
        assert_eq!(cards["CRVAL1"], json["diaSource"]["ra"]);
        assert_eq!(cards["CRVAL2"], json["diaSource"]["dec"]);
        assert_eq!(found[2]["cards"]["EXTNAME"], "PSFIMAGE");
    }
}
