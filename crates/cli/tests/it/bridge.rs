//! `helio bridge --once`: a migration, its report, and what it refuses.

use crate::support::{Site, run};

#[test]
fn a_migration_ends_by_itself_and_tells_what_it_did() {
    let (from, to) = (Site::new(), Site::new());
    for topic in ["site/wind", "site/dome", "other"] {
        from.run(&["pub", topic, "1", "2", "--profile", "event", "--json"]).ok();
    }
    let args = ["bridge", &from.url, &to.url, "--topics", "site/*", "--not", "*/dome", "--once"];
    let ran = run(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["notice"], &lines[0]["topic"]), (&"opened".into(), &"site/wind".into()));
    let last = lines.last().unwrap();
    assert_eq!(last["total"]["forwarded"], 2, "{last}");
    assert_eq!(last["topics"][0]["state"], "caught_up");
    let again = run(&args);
    assert_eq!(
        (again.code, again.out.contains(" 0 samples forwarded")),
        (Some(0), true),
        "{again:?}"
    );
    // What the target cannot give is named, and may be chosen.
    let strict = "memory:strict?strict=1";
    let refused = run(&["bridge", &from.url, strict, "--topics", "other", "--once"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("durability = persistent"), "{}", refused.err);
    let chosen = ["--qos", "durability=transient_local"];
    let args = ["bridge", &from.url, strict, "--topics", "other", "--once"];
    assert_eq!(run(&[&args[..], &chosen].concat()).code, Some(0));
    let wrong = run(&[&args[..], &["--qos", "durability=eternal"]].concat());
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let same = run(&["bridge", &from.url, &from.url, "--topics", "*"]);
    assert_eq!(same.code, Some(2), "{same:?}");
}

#[test]
fn what_was_forwarded_and_is_played_has_been_nowhere() {
    let sites = [(); 3].map(|()| Site::new());
    let [first, second, third] = &sites;
    first.run(&["pub", "t", "1", "2", "--profile", "event", "--json"]).ok();
    let once = |from: &Site, to: &Site, topic: &str| {
        let ran = run(&["bridge", &from.url, &to.url, "--topics", topic, "--once", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let last: serde_json::Value =
            serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
        ["forwarded", "returned"].map(|what| last["total"][what].as_u64().unwrap())
    };
    assert_eq!(once(first, second, "t"), [2, 0]);
    let file = second.path("t.avro");
    let from = ["--from", "earliest", "--count", "2"];
    second.run(&[&["record", "t", &file, "--envelope"][..], &from].concat()).ok();
    third.run(&["play", "again", &file, "--profile", "event"]).ok();
    assert_eq!(once(third, first, "again"), [2, 0], "they are new, wherever the recorded were");
}
