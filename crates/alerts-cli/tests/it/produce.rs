//! Publishing: whole cameras, single detectors, files.

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::rubin::Version;
use helio_core::container::{Compression, Writer};

use crate::support::{Running, SMALL, Site};

#[test]
fn visits_are_published_and_complete() {
    let site = Site::new();
    let ran = site.produce(&["--visits", "2"]);
    let lines = ran.lines();
    assert_eq!((ran.code, lines.len()), (Some(0), 3), "{ran:?}");
    assert_eq!((&lines[0]["visit"], &lines[0]["alerts"]), (&1_000_000.into(), &30.into()));
    assert_eq!((&lines[2]["alerts"], &lines[2]["failed"]), (&60.into(), &0.into()));
    let ran = site.run(&["consume", "--from", "earliest", "--verify", "--visits", "2", "--json"]);
    let decided = ran.events("decided");
    assert_eq!((ran.code, decided.len()), (Some(0), 2), "{ran:?}");
    for visit in &decided {
        assert_eq!((&visit["complete"], &visit["verified"]), (&true.into(), &true.into()));
    }
    assert_eq!(ran.events("end")[0]["alerts"], 60);
    let audit = site.run(&["audit", "--visit", "1000001", "--json"]);
    let report = &audit.lines()[0];
    assert_eq!((audit.code, &report["equal"]), (Some(0), &true.into()), "{audit:?}");
    assert_eq!(report["found"], report["decided"]);
}

/// One process for each CCD; the first opens the visit.
#[test]
fn detectors_are_processes_of_their_own() {
    let site = Site::new();
    for (detector, open) in [("0", true), ("1", false), ("2", false)] {
        let args = ["--detector", detector, "--layout", "split-packed", "--window", "0s", "--open"];
        let ran = site.produce(&args[..if open { 7 } else { 6 }]);
        assert_eq!((ran.code, &ran.lines()[0]["detectors"]), (Some(0), &1.into()), "{ran:?}");
    }
    let ran = site.run(&["consume", "--from", "earliest", "--verify", "--visits", "1", "--json"]);
    let decided = &ran.events("decided")[0];
    assert_eq!((&decided["complete"], &decided["missing"]), (&false.into(), &vec![3].into()));
    assert_eq!((ran.code, &decided["verified"]), (Some(0), &true.into()), "{ran:?}");
    let audit = site.run(&["audit", "--visit", "1000000"]);
    assert_eq!(audit.code, Some(5), "{audit:?}");
    assert!(audit.out.contains("no_manifest"), "{}", audit.out);
    let wrong = site.produce(&["--detector", "4"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""), "{wrong:?}");
}

/// The packets of files keep their visit, detector and bytes.
#[test]
fn packets_of_files_are_published() {
    let site = Site::new();
    let options = GeneratorOptions {
        version: Version::V10_0,
        alerts_per_visit: 6,
        detectors: 2,
        history: History::None,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(options);
    let mut container = Writer::new(Version::V10_0.schema(), Compression::Null, [7; 16]);
    let mut framed = vec![0];
    framed.extend(Version::V10_0.registry_id().to_be_bytes());
    for number in 0..3 {
        let mut datum = Vec::new();
        generator.write(AlertNumber { visit: 0, detector: 0, number }, &mut datum);
        container.append(&datum);
    }
    generator.write(AlertNumber { visit: 0, detector: 1, number: 0 }, &mut framed);
    let files = ["night.avro", "alert.bin"].map(|name| site.folder.path().join(name));
    std::fs::write(&files[0], container.finish()).unwrap();
    std::fs::write(&files[1], framed).unwrap();
    let files = files.each_ref().map(|file| file.to_str().unwrap());
    let ran = site.run(&["produce", "--json", "--from", files[0], files[1]]);
    assert_eq!((ran.code, &ran.lines()[0]["alerts"]), (Some(0), &4.into()), "{ran:?}");
    let list = ["consume", "--from", "visit:1000000", "-n", "4", "--list", "--json"];
    let ran = site.run(&list);
    let alerts = ran.events("alert");
    let detectors: Vec<_> =
        alerts.iter().map(|alert| alert["detector"].as_i64().unwrap()).collect();
    assert_eq!((ran.code, alerts.len()), (Some(0), 4), "{ran:?}");
    assert_eq!(detectors.iter().sum::<i64>(), 1, "{ran:?}");
    let bad = site.folder.path().join("bad");
    std::fs::write(&bad, b"no packet").unwrap();
    let ran = site.run(&["produce", "--from", bad.to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.err.contains("bad"), "{}", ran.err);
}

#[test]
fn a_signal_ends_it_between_detectors() {
    let site = Site::new();
    let args = [&["produce", "--json", "--visits", "1000", "--cadence", "1h"], &SMALL[..]].concat();
    let mut running = Running::start(site.command(&args));
    assert_eq!(running.line()["alerts"], 30);
    let (code, rest) = running.end("INT");
    assert_eq!(code, Some(130));
    assert!(rest.contains("\"visits\":1,"), "{rest}");
}

/// A spilled file completes its visit, and is removed.
#[test]
fn spilled_packets_are_published_again() {
    let site = Site::new();
    let three = ["--detector", "0", "--detector", "1", "--detector", "2"];
    let ran = site.produce(&[&three[..], &["--open", "--window", "1h"]].concat());
    assert_eq!((ran.code, &ran.lines()[0]["detectors"]), (Some(0), &3.into()), "{ran:?}");
    // A producer spills the packets of a detector as such a container, under such a name.
    let options = GeneratorOptions {
        alerts_per_visit: 30,
        detectors: 4,
        history: History::None,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(options);
    let mut container = Writer::new(Version::LATEST.schema(), Compression::Null, [7; 16]);
    for number in 0..generator.alerts(3) {
        let mut datum = Vec::new();
        generator.write(AlertNumber { visit: 0, detector: 3, number }, &mut datum);
        container.append(&datum);
    }
    let file = site.folder.path().join("visit-1000000-detector-3.avro");
    std::fs::write(&file, container.finish()).unwrap();
    let replay = ["produce", "--json", "--replay", "--from", file.to_str().unwrap()];
    let replayed = site.run(&replay);
    let line = &replayed.lines()[0];
    assert_eq!((replayed.code, &line["announced"]), (Some(0), &true.into()), "{replayed:?}");
    assert_eq!((&line["visit"], &line["detector"]), (&1_000_000.into(), &3.into()));
    assert_eq!((&line["failed"], file.exists()), (&Vec::<i64>::new().into(), false));
    assert_eq!(site.run(&replay).code, Some(3), "the file is gone");
    let from = ["consume", "--from", "earliest", "--verify", "--visits", "1", "--json"];
    let decided = &site.run(&from).events("decided")[0];
    assert_eq!((&decided["complete"], &decided["verified"]), (&true.into(), &true.into()));
    let audit = site.run(&["audit", "--visit", "1000000", "--json"]);
    assert_eq!((audit.code, &audit.lines()[0]["equal"]), (Some(0), &true.into()), "{audit:?}");
}

/// A copy on another bus is audited by this bus's manifests.
#[test]
fn copies_are_audited() {
    let [site, copy, other] = [Site::new(), Site::new(), Site::new()];
    site.produce(&[]);
    copy.produce(&[]);
    other.produce(&["--seed", "2"]);
    let close = ["consume", "--from", "earliest", "--verify", "--visits", "1", "--json"];
    assert_eq!(site.run(&close).code, Some(0));
    let audit = |url: &str| site.run(&["audit", "--visit", "1000000", "--copy", url, "--json"]);
    let equal = audit(&copy.url);
    assert_eq!((equal.code, &equal.lines()[0]["equal"]), (Some(0), &true.into()), "{equal:?}");
    let differs = audit(&other.url);
    let report = &differs.lines()[0];
    assert_eq!((differs.code, &report["equal"]), (Some(5), &false.into()), "{differs:?}");
    assert_eq!(report["differing"].as_array().unwrap().len(), 4, "{differs:?}");
    let none = audit(&Site::new().url);
    assert_eq!((none.code, none.out.as_str()), (Some(3), ""), "{none:?}");
}
