//! Users' filters: from the check of a text to results.

use helio_bus::{Bus, Start, Subscribe, TopicSpec};
use serde_json::Value;

use crate::support::{Ran, Running, Site, get, wait_for};

/// Light curves have the larger limit of time, so that a slow machine refuses nothing.
const SNR: &str = "SELECT diaSourceId, diaSource.snr FROM alerts \
                   WHERE diaSource.snr > 40 AND count_if(prvDiaSources.snr > 5) = 0 \
                   ORDER BY diaSource.snr DESC";
const NONE: &str = "SELECT diaSourceId FROM alerts WHERE diaSource.snr < -1e9";
const ALL: &str = "SELECT diaSourceId FROM alerts WHERE diaSource.ra >= 0";

/// A visit of 2,000 alerts without stamps, which a reader closes.
fn visit(site: &Site, visit: &str) {
    let args = ["produce", "--json", "--no-stamps", "--history", "none", "--alerts", "2000"];
    let more = ["--detectors", "4", "--partitions", "2", "--first-visit", visit];
    assert_eq!(site.run(&[&args[..], &more].concat()).code, Some(0));
    let from = format!("visit:{visit}");
    let close = ["consume", "--from", &from, "--verify", "--visits", "1", "--json"];
    assert_eq!(site.run(&close).code, Some(0));
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.lines()[0].clone()
}

#[test]
fn texts_are_checked_with_their_place() {
    let site = Site::new();
    visit(&site, "1000000");
    let checked = json(&site.run(&["filter", "check", SNR, "--json"]));
    assert_eq!((&checked["cost"], &checked["packet"]), (&"history".into(), &false.into()));
    assert_eq!(checked["ranking"], "diaSource.snr DESC", "{checked}");
    let wrong = site.run(&["filter", "check", "SELECT * FROM alerts WHERE diaSource.snir > 1"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(4), ""), "{wrong:?}");
    assert!(wrong.err.contains("line 1, column 28"), "{}", wrong.err);
    let file = site.folder.path().join("filter.py");
    std::fs::write(&file, "# columns: diaSource.snr\ndef select(b): return b['diaSource.snr'] > 9")
        .unwrap();
    let python = json(&site.run(&["filter", "check", &format!("@{}", file.display()), "--json"]));
    assert_eq!((&python["language"], &python["cost"]), (&"python".into(), &"python".into()));
    assert_eq!(site.run(&["filter", "check", "@/none.sql"]).code, Some(3));
    assert_eq!(Site::new().run(&["filter", "check", SNR]).code, Some(3), "there is no stream");
}

#[test]
fn a_filter_goes_live_after_a_dry_run_within_the_limits() {
    let site = Site::new();
    visit(&site, "1000000");
    for (name, text) in [("ada/snr", SNR), ("bob/all", ALL)] {
        let added = json(&site.run(&["filter", "add", name, text, "--json"]));
        assert_eq!(added["version"], 1);
        let again = json(&site.run(&["filter", "add", name, text, "--json"]));
        assert_eq!(again["version"], 1, "the same text is the same version");
        let untried = site.run(&["filter", "activate", name]);
        assert_eq!(untried.code, Some(4), "{untried:?}");
        assert!(untried.err.contains("dry run"), "{}", untried.err);
    }
    let run = json(&site.run(&["filter", "dry-run", "ada/snr", "--json"]));
    assert_eq!((&run["filter"], &run["alerts"]), (&"ada/snr@1".into(), &2_000.into()));
    assert!(run["matches"].as_u64().unwrap() > 0, "{run}");
    let text = json(&site.run(&["filter", "dry-run", "--text", SNR, "--json"]));
    assert_eq!((&text["filter"], &text["matches"]), (&Value::Null, &run["matches"]));
    let past = ["filter", "dry-run", "--text", SNR, "--night", "2020-01-01", "--json"];
    assert_eq!(json(&site.run(&past))["alerts"], 0);
    site.run(&["filter", "activate", "ada/snr@1"]).ok();
    // All alerts are more than 5 %.
    let run = json(&site.run(&["filter", "dry-run", "bob/all", "--json"]));
    assert!(run["excesses"][0].as_str().unwrap().contains("100.0 %"), "{run}");
    let refused = site.run(&["filter", "activate", "bob/all"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(4), ""), "{refused:?}");
    assert!(refused.err.contains("5 at most"), "{}", refused.err);
    site.run(&["filter", "activate", "bob/all", "--force"]).ok();
    let second = json(&site.run(&["filter", "add", "bob/all", NONE, "--json"]));
    assert_eq!(second["version"], 2);
    let versions = site.run(&["filter", "versions", "--json"]);
    let state: Vec<_> = versions
        .lines()
        .iter()
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line["active"].as_bool().unwrap()))
        .collect();
    assert_eq!(state, [("snr".into(), true), ("all".into(), true), ("all".into(), false)]);
    site.run(&["filter", "deactivate", "bob/all"]).ok();
    assert_eq!(site.run(&["filter", "deactivate", "bob/all"]).code, Some(3));
    for (args, code) in [
        (["filter", "activate", "ada/none"], 3),
        (["filter", "activate", "ada/snr@9"], 3),
        (["filter", "activate", "ada"], 2),
        (["filter", "dry-run", "eve/x"], 3),
    ] {
        assert_eq!(site.run(&args).code, Some(code), "{args:?}");
    }
}

/// The results of a user, as JSON.
fn results(site: &Site, user: &str) -> Vec<Value> {
    let bus = Bus::connect(&site.url).unwrap();
    let topic = bus.topic(TopicSpec::new(&format!("alerts/results/{user}")).unwrap()).unwrap();
    let mut stored = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    stored.set_fence().unwrap();
    let mut results = Vec::new();
    while let Some(event) = stored.next_stored(crate::support::HANG_TIMEOUT).unwrap() {
        let samples = event.into_sample();
        results.extend(samples.map(|sample| serde_json::from_slice(&sample.payload).unwrap()));
    }
    results
}

#[test]
fn the_service_runs_until_a_signal() {
    helio_transports::register_all();
    let site = Site::new();
    visit(&site, "1000000");
    let filters = [("ada/snr", SNR), ("bob/none", NONE), ("eve/all", ALL)];
    for (name, text) in filters {
        site.run(&["filter", "add", name, text]).ok();
        site.run(&["filter", "activate", name, "--force"]).ok();
        let user = name.split('/').next().unwrap();
        site.run(&["filter", "deliver", user, "--format", "json"]).ok();
    }
    let waits = site.run(&["filter", "stats", "--json"]);
    assert_eq!(waits.lines()[1]["state"], "no_visit_decided", "{waits:?}");
    let mut serve = Running::start(site.command(&["serve", "--listen", "127.0.0.1:0", "--json"]));
    let served = serve.line()["metrics"].as_str().unwrap().to_owned();
    let run = ["filter", "run", "--from", "latest", "--listen", "127.0.0.1:0", "--json"];
    let mut running = Running::start(site.command(&run));
    let started = running.line();
    assert_eq!(
        (&started["event"], &started["group"]),
        (&"started".into(), &"alert-filters".into())
    );
    visit(&site, "1000001");
    // The visit before is decided, too, without its alerts.
    let mut decided = running.line();
    while decided["visit"] != 1_000_001 {
        assert_eq!((&decided["event"], &decided["matches"]), (&"visit".into(), &0.into()));
        decided = running.line();
    }
    assert_eq!((&decided["filters"], &decided["failures"]), (&3.into(), &0.into()), "{decided}");
    let stats = site.run(&["filter", "stats", "--visit", "1000001", "--json"]);
    let of = |user: &str, key: &str| {
        let lines = stats.lines();
        let line = lines.iter().find(|line| line["user"] == user && line.get(key).is_some());
        line.unwrap_or_else(|| panic!("{user} {key}: {stats:?}"))[key].as_u64().unwrap()
    };
    // One that ran and found nothing has seen the alerts.
    assert_eq!((of("bob", "alerts"), of("bob", "matches"), of("bob", "results")), (2_000, 0, 0));
    let (matches, sent) = (of("ada", "matches"), of("ada", "sent"));
    assert!(matches > 0 && sent == matches.min(20) && of("ada", "results") == sent, "{stats:?}");
    assert_eq!((of("eve", "matches"), of("eve", "sent")), (2_000, 20));
    let ada = results(&site, "ada");
    let snr: Vec<_> = ada.iter().map(|result| result["diaSource_snr"].as_f64().unwrap()).collect();
    assert!(ada.len() as u64 == sent && snr.is_sorted_by(|a, b| a >= b), "{ada:?}");
    assert_eq!(results(&site, "eve").len(), 20);
    // Both doors of metrics have it.
    let wait_for_line = |url: &str, wanted: &str| {
        wait_for(wanted, || get(url, &[]).text().lines().any(|own| own == wanted).then_some(()));
    };
    let of_filter = |name: &str, of: &str, value: u64| {
        format!("helio_alerts_filter_{name}_total{{{of}}} {value}")
    };
    let eve = r#"user="eve",filter="all@1""#;
    wait_for_line(&served, &of_filter("matches", eve, 2_000));
    wait_for_line(&served, &of_filter("capped_visits", eve, 1));
    wait_for_line(&served, &of_filter("alerts", r#"user="bob",filter="none@1""#, 2_000));
    wait_for_line(&served, &of_filter("results", r#"user="ada""#, sent));
    wait_for_line(&served, "helio_alerts_filter_active 3");
    let own = started["metrics"].as_str().unwrap();
    wait_for_line(own, "helio_alerts_filter_process_alerts_total 2000");
    wait_for_line(own, "helio_alerts_filter_process_is_publisher 1");
    let (code, rest) = running.end("TERM");
    let end: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((code, &end["event"], &end["alerts"]), (Some(0), &"end".into(), &2_000.into()));
    // A stored filter selects for an export what it selected live, without the cap.
    let folder = site.folder.path().join("files");
    let to = folder.to_str().unwrap();
    let export = ["export", "--visit", "1000001", "--filter", "ada/snr@1", "--to", to, "--json"];
    assert_eq!(json(&site.run(&export))["totals"]["rows"], matches);
}

#[test]
fn watch_lists_and_regions_are_stored() {
    let site = Site::new();
    visit(&site, "1000000");
    let file = |name: &str, text: &str| {
        let path = site.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let sky = file("sky.moc", "0/0-11");
    let near = file("targets.csv", "ra,dec\n10,-20\n11 -21\n");
    let put = ["watch-list", "put", "targets", &near, "--radius", "3", "--json"];
    let put = json(&site.run(&put));
    assert_eq!((&put["entries"], &put["radius_arcsec"]), (&2.into(), &3.0.into()));
    assert_eq!(json(&site.run(&["region", "put", "sky", &sky, "--json"]))["entries"], 1);
    let everywhere = "SELECT * FROM alerts WHERE in_moc('sky') AND NOT in_watchlist('targets')";
    let run = json(&site.run(&["filter", "dry-run", "--text", everywhere, "--json"]));
    assert_eq!((&run["alerts"], &run["matches"]), (&2_000.into(), &2_000.into()));
    let listed = json(&site.run(&["watch-list", "list", "--json"]));
    assert_eq!((&listed["name"], &listed["revision"]), (&"targets".into(), &1.into()));
    // A stored filter takes its lists into an export.
    site.run(&["filter", "add", "ada/near", everywhere]).ok();
    let folder = site.folder.path().join("files");
    let to = folder.to_str().unwrap();
    let export = ["export", "--visit", "1000000", "--filter", "ada/near", "--to", to, "--json"];
    assert_eq!(json(&site.run(&export))["totals"]["rows"], 2_000);
    assert_eq!(site.run(&["region", "remove", "targets"]).code, Some(3), "it is no region");
    site.run(&["region", "remove", "sky"]).ok();
    let gone = site.run(&["filter", "check", everywhere]);
    assert_eq!(gone.code, Some(4), "{gone:?}");
    let bad = file("bad", "here,there\n1\n");
    assert_eq!(site.run(&["watch-list", "put", "x", &bad]).code, Some(4));
    assert_eq!(site.run(&["region", "put", "x", &bad]).code, Some(4));
}
