//! Publishing: whole cameras, single detectors, files.

use std::process::{Command, Stdio};

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::rubin::Version;
use helio_core::container::{Compression, Writer};

use crate::support::{Running, SMALL, Site, ran};

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

/// Runs a shell's line before the program, in the program's process.
fn limited(site: &Site, line: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_helio-alerts")).args(args);
    command.env("HELIO_URL", &site.url).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What the bus does not accept is spilled, and published again later.
#[test]
fn spilled_packets_are_published_again() {
    let site = Site::new();
    site.produce(&["--window", "1h"]);
    let spill = site.folder.path().join("spill");
    let spill = spill.to_str().unwrap();
    let options = ["--first-visit", "1000001", "--retry-for", "0s", "--spill", spill];
    let args = [&["produce", "--json", "--window", "1h"], &SMALL[..], &options].concat();
    // Files may not grow, as on a full disk; the spilled ones are smaller.
    let full = "trap '' XFSZ; ulimit -f 4096";
    let failed = ran(limited(&site, full, &args).spawn().unwrap());
    let line = &failed.lines()[0];
    let spilled: Vec<_> = line["spilled"].as_array().unwrap().iter().collect();
    assert_eq!(failed.code, Some(5), "{failed:?}");
    assert!(!spilled.is_empty(), "{failed:?}");
    let files: Vec<_> = spilled.iter().map(|file| file.as_str().unwrap()).collect();
    let replay = [&["produce", "--json", "--replay", "--from"], &files[..]].concat();
    let again = ran(limited(&site, full, &replay).spawn().unwrap());
    assert_eq!(again.code, Some(5), "the disk is full as before: {again:?}");
    assert!(files.iter().all(|file| std::path::Path::new(file).exists()));
    let replayed = site.run(&replay);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert!(replayed.lines().iter().all(|line| line["announced"] == true), "{replayed:?}");
    assert!(!files.iter().any(|file| std::path::Path::new(file).exists()));
    let from = ["consume", "--from", "visit:1000001", "--verify", "--visits", "1", "--json"];
    let decided = &site.run(&from).events("decided")[0];
    assert_eq!((&decided["complete"], &decided["verified"]), (&true.into(), &true.into()));
    let audit = site.run(&["audit", "--visit", "1000001", "--json"]);
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
