//! An observation as text for Prometheus (exposition format 0.0.4).

use helio_alerts::reader::DropCause;
use helio_alerts::visit::Rejection;
use helio_http::exposition::{Exposition, Total};

use crate::observation::{Observation, Stage};

/// A number of another part of the program, such as one of the filter service.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// The metric's name, such as `helio_alerts_filter_matches_total`.
    pub name: String,
    /// The help text.
    pub help: String,
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its value.
    pub value: f64,
}

/// Returns the text of numbers. Those of one name follow each other.
#[must_use]
pub fn counters(numbers: &[Counter]) -> String {
    let mut text = Exposition::default();
    write_counters(&mut text, numbers);
    text.into_text()
}

fn write_counters(text: &mut Exposition, numbers: &[Counter]) {
    let mut former = "";
    for Counter { name, help, labels, value } in numbers {
        if name != former {
            text.family(name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
            former = name;
        }
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &value[..])).collect();
        text.sample(name, &labels, *value);
    }
}

/// Returns the text of an observation, and of other numbers.
#[must_use]
pub fn exposition(seen: &Observation, others: &[Counter]) -> String {
    let mut text = Exposition::default();
    text.one("helio_alerts_up", "gauge", "Whether the stream can be read.", u64::from(seen.is_up));
    reading(&mut text, seen);
    visits(&mut text, seen);
    topics(&mut text, seen);
    write_counters(&mut text, others);
    text.into_text()
}

fn reading(text: &mut Exposition, seen: &Observation) {
    text.one("helio_alerts_read_total", "counter", "Alerts read by this service.", seen.alerts);
    let help = "Bytes of packets read by this service.";
    text.one("helio_alerts_read_bytes_total", "counter", help, seen.bytes);
    let name = "helio_alerts_age_seconds";
    text.family(name, "histogram", "Time since shutter close at which a stage was passed.");
    for stage in Stage::ALL {
        let histogram = seen.ages.get(&stage).cloned().unwrap_or_default();
        let total = Total { count: histogram.count(), sum: histogram.sum() };
        text.histogram(name, &[("stage", stage.name())], histogram.cumulative(), total);
    }
    let help = "Packets that were left out, by cause.";
    let dropped = DropCause::ALL.into_iter();
    let dropped =
        dropped.map(|cause| (cause.name(), seen.dropped.get(&cause).copied().unwrap_or_default()));
    text.each("helio_alerts_dropped_total", "counter", help, "cause", dropped);
    let help = "Samples that retention or damage removed before this service read them.";
    let lost = seen.topics.keys().map(|topic| (topic, seen.lost.get(topic).copied().unwrap_or(0)));
    text.each("helio_alerts_lost_total", "counter", help, "topic", lost);
}

fn visits(text: &mut Exposition, seen: &Observation) {
    let help = "Visits that opened.";
    text.one("helio_alerts_visits_opened_total", "counter", help, seen.opened);
    let help = "Visits that were decided.";
    let decided = [("complete", seen.complete), ("incomplete", seen.incomplete)];
    text.each("helio_alerts_visits_decided_total", "counter", help, "outcome", decided);
    let open = seen.open_visits().count() as u64;
    text.one("helio_alerts_visits_open", "gauge", "Visits that are open.", open);
    let help = "Visits whose alerts, as read, have another count or hash than the decision.";
    text.one("helio_alerts_visits_differing_total", "counter", help, seen.differing);
    let help = "Detectors of decided visits without manifest, or whose alerts do not match it.";
    let detectors = [("missing", seen.missing_detectors), ("short", seen.short_detectors)];
    text.each("helio_alerts_detectors_failed_total", "counter", help, "cause", detectors);
    let help = "Records of visits without effect, by cause.";
    let rejected = Rejection::ALL.into_iter();
    let rejected = rejected
        .map(|cause| (cause.name(), seen.rejected.get(&cause).copied().unwrap_or_default()));
    text.each("helio_alerts_control_rejected_total", "counter", help, "cause", rejected);
}

fn topics(text: &mut Exposition, seen: &Observation) {
    let help = "Samples that were ever published on a topic of the stream.";
    let samples = seen.topics.iter().map(|(topic, state)| (topic, state.samples));
    text.each("helio_alerts_samples_total", "counter", help, "topic", samples);
    let help = "Stored bytes of a topic of the stream.";
    let bytes = seen.topics.iter().filter_map(|(topic, state)| Some((topic, state.bytes?)));
    text.each("helio_alerts_stored_bytes", "gauge", help, "topic", bytes);
    let help = "Samples that a group has not committed.";
    let lags = seen.groups.iter().map(|(group, state)| (group, state.lag));
    text.each("helio_alerts_group_lag", "gauge", help, "group", lags);
    let help = "Live members of a group.";
    let members = seen.groups.iter().map(|(group, state)| (group, state.members as u64));
    text.each("helio_alerts_group_members", "gauge", help, "group", members);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::GroupState;

    #[test]
    fn names_are_escaped_and_histograms_are_cumulative() {
        let mut seen = Observation { is_up: true, alerts: 3, ..Observation::default() };
        seen.groups.insert("a \"b\"\\".to_owned(), GroupState { lag: 7, members: 1 });
        seen.ages.entry(Stage::Read).or_default().add(0.3);
        let other = |label: &str, value| Counter {
            name: "x_total".into(),
            help: "An x.".into(),
            labels: vec![("of", label.to_owned())],
            value,
        };
        let text = exposition(&seen, &[other("a", 1.5), other("b", 2.0)]);
        assert_eq!(text.matches("# HELP x_total").count(), 1);
        for line in [
            "helio_alerts_up 1",
            "helio_alerts_read_total 3",
            r#"helio_alerts_group_lag{group="a \"b\"\\"} 7"#,
            r#"helio_alerts_age_seconds_bucket{stage="read",le="0.2"} 0"#,
            r#"helio_alerts_age_seconds_bucket{stage="read",le="0.5"} 1"#,
            r#"helio_alerts_age_seconds_bucket{stage="read",le="+Inf"} 1"#,
            r#"helio_alerts_age_seconds_count{stage="decided"} 0"#,
            r#"helio_alerts_dropped_total{cause="late"} 0"#,
            "# TYPE x_total counter",
            r#"x_total{of="a"} 1.5"#,
            r#"x_total{of="b"} 2"#,
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is missing in\n{text}");
        }
    }
}
