//! Reading: groups, stamps, checkpoints and rewinds.

use crate::support::{Running, Site};

#[test]
fn a_group_resumes_and_its_audit_is_equal() {
    let site = Site::new();
    site.produce(&["--visits", "2"]);
    // Some reader without a group closes the visits.
    let closer = ["consume", "--from", "earliest", "--verify", "--visits", "2"];
    let closed = site.run(&closer).ok();
    assert_eq!(closed.matches("is complete: 30 alerts, verified").count(), 2, "{closed}");
    let read = |count: &str| {
        let args =
            ["consume", "--group", "g", "--verify", "--json", "-n", count, "--producer", "m"];
        let ran = site.run(&args);
        assert_eq!((ran.code, &ran.events("end")[0]["lost"]), (Some(0), &0.into()), "{ran:?}");
    };
    read("20");
    let audit = site.run(&["audit", "--visit", "1000000", "--group", "g", "--json"]);
    assert_eq!((audit.code, &audit.lines()[0]["equal"]), (Some(5), &false.into()), "{audit:?}");
    read("40");
    for visit in ["1000000", "1000001"] {
        let audit = site.run(&["audit", "--visit", visit, "--group", "g", "--json"]);
        assert_eq!((audit.code, &audit.lines()[0]["equal"]), (Some(0), &true.into()), "{audit:?}");
    }
    // The group starts again.
    let moved = site.run(&["rewind", "--group", "g", "--from", "visit:1000001"]);
    assert_eq!((moved.code, moved.err.as_str()), (Some(0), ""));
    let args = ["consume", "--group", "g", "-n", "30", "--list", "--json"];
    let ran = site.run(&args);
    assert!(ran.events("alert").iter().all(|alert| alert["visit"] == 1_000_001), "{ran:?}");
}

#[test]
fn checkpoints_and_wrong_starts() {
    let site = Site::new();
    site.produce(&[]);
    site.run(&["checkpoint", "before-two"]).ok();
    site.produce(&["--first-visit", "1000001"]);
    let args = ["consume", "--from", "checkpoint:before-two", "-n", "1", "--list", "--json"];
    assert_eq!(site.run(&args).events("alert")[0]["visit"], 1_000_001);
    for (start, code) in [("visit:7", 3), ("checkpoint:none", 3), ("night:2020-01-01", 3)] {
        let ran = site.run(&["consume", "--from", start]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
    }
    assert_eq!(Site::new().run(&["consume"]).code, Some(3), "there is no journal");
}

/// Stamps are equal from both layouts, and a signal ends a reader in order.
#[test]
fn stamps_come_from_both_layouts() {
    let mut sizes = Vec::new();
    for layout in ["inline", "split", "split-packed"] {
        let site = Site::new();
        site.produce(&["--layout", layout]);
        let total = |stamps: &str| {
            let start = ["consume", "--from", "earliest", "-n", "30", "--json", "--stamps", stamps];
            site.run(&start).events("end")[0]["bytes"].as_u64().unwrap()
        };
        sizes.push([total("none"), total("linked"), total("inline")]);
        let mut running =
            Running::start(site.command(&["consume", "--json", "--from", "earliest"]));
        assert_eq!(running.line()["event"], "opened");
        assert_eq!(running.end("TERM").0, Some(0));
    }
    assert_eq!((sizes[0], sizes[0]), (sizes[1], sizes[2]));
    assert!(sizes[0][0] < sizes[0][1] && sizes[0][1] < sizes[0][2], "{sizes:?}");
}
