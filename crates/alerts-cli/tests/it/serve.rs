//! Metrics and stamps over HTTP.

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::layout::Layout;
use helio_alerts::rubin::Version;

use crate::support::{Running, Site, get, wait_for};

/// The packets of `SMALL` visits.
fn generator() -> Generator {
    Generator::new(GeneratorOptions {
        alerts_per_visit: 30,
        detectors: 4,
        history: History::None,
        ..GeneratorOptions::default()
    })
}

/// A line of metrics, once it is there.
fn wait_for_metric(url: &str, line: &str) -> String {
    wait_for(line, || {
        let text = get(url, &[]).text().to_owned();
        text.lines().any(|own| own == line).then_some(text)
    })
}

#[test]
fn stamps_are_exact_and_metrics_are_counted() {
    for layout in ["inline", "split-packed"] {
        let site = Site::new();
        // It may start before the stream.
        let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
        let mut running = Running::start(site.command(&serve));
        let serving = running.line();
        let metrics = serving["metrics"].as_str().unwrap();
        wait_for_metric(metrics, "helio_alerts_up 0");
        site.produce(&["--layout", layout]);
        let text =
            wait_for_metric(metrics, "helio_alerts_visits_decided_total{outcome=\"complete\"} 1");
        for line in ["helio_alerts_up 1", "helio_alerts_read_total 30"] {
            assert!(text.lines().any(|own| own == line), "{layout}: {text}");
        }
        let drops = text.lines().filter(|line| line.starts_with("helio_alerts_dropped_total"));
        drops.for_each(|line| assert!(line.ends_with(" 0"), "{layout}: {line}"));
        wait_for_metric(metrics, "helio_alerts_samples_total{topic=\"alerts\"} 30");
        wait_for_metric(metrics, "helio_alerts_http_refused_total{cause=\"limit\"} 0");
        let mut generator = generator();
        let (mut datum, mut metadata) = (Vec::new(), Vec::new());
        let number = AlertNumber { visit: 0, detector: 2, number: 3 };
        generator.write(number, &mut datum);
        let compiled = Layout::new(Version::LATEST.schema());
        let files = compiled.split(&datum, &mut metadata).unwrap();
        let template = serving["stamps"].as_str().unwrap();
        let alert = generator.alert_id(number).to_string();
        let url = |stamp: &str| template.replace("{alert}", &alert).replace("{stamp}", stamp);
        for (field, file) in compiled.stamps().zip(&files) {
            let response = get(&url(field), &[]);
            assert_eq!((response.status, Some(&response.body[..])), (200, *file), "{field}");
        }
        let science = url("cutoutScience.fits");
        let part = get(&science, &[("Range", "bytes=2880-2889")]);
        assert_eq!((part.status, &part.body[..]), (206, &files[1].unwrap()[2_880..2_890]));
        assert_eq!(get(&science, &[("Range", "bytes=9999999-")]).status, 416);
        assert_eq!(get(&science, &[("If-None-Match", part.header("etag"))]).status, 304);
        assert_eq!(get(&url("cutoutNone"), &[]).status, 404);
        let unknown = template.replace("{alert}", "7").replace("{stamp}", "cutoutScience");
        assert_eq!(get(&unknown, &[]).status, 404);
        wait_for_metric(metrics, "helio_alerts_stamp_requests_total{status=\"404\"} 2");
        let top = site.run(&["top", "--for", "3s", "--json"]);
        assert_eq!(top.lines()[0]["visits"][0]["state"], "complete", "{top:?}");
        assert_eq!(running.end("TERM").0, Some(0));
    }
}

/// A stamp that retention has removed is gone, and not unknown.
#[test]
fn removed_stamps_are_gone() {
    let site = Site::new();
    let keep = ["--keep-bytes", "4M"];
    site.produce(&keep);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let mut running = Running::start(site.command(&serve));
    let template = running.line()["stamps"].as_str().unwrap().to_owned();
    let mut generator = generator();
    let mut url = |visit: u32| {
        let number = AlertNumber { visit, detector: 0, number: 0 };
        generator.write(number, &mut Vec::new());
        let alert = generator.alert_id(number).to_string();
        template.replace("{alert}", &alert).replace("{stamp}", "cutoutScience")
    };
    let (first, last) = (url(0), url(8));
    assert_eq!(get(&first, &[]).status, 200);
    site.produce(&["--first-visit", "1000001", "--visits", "8"]);
    wait_for("the newest", || (get(&last, &[]).status == 200).then_some(()));
    assert_eq!(get(&first, &[]).status, 410);
    assert_eq!(running.end("TERM").0, Some(0));
}
