//! An observation as text for Prometheus (exposition format 0.0.4).

use std::fmt::Write as _;

use helio_alerts::reader::DropCause;
use helio_alerts::visit::Rejection;

use crate::histogram::Histogram;
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

/// Builds the text.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let begin = if place == 0 { '{' } else { ',' };
            _ = write!(self.0, "{begin}{label}=\"{}\"", escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(self.0, "{end} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value as f64);
    }

    fn each<'a, L: AsRef<str> + 'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.family(name, kind, help);
        for (of, value) in values {
            self.sample(name, &[(label, of.as_ref())], value as f64);
        }
    }

    fn histogram(&mut self, name: &str, label: (&str, &str), histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.sample(&bucket, &[label, ("le", &bound.to_string())], count as f64);
        }
        self.sample(&bucket, &[label, ("le", "+Inf")], histogram.count() as f64);
        self.sample(&format!("{name}_sum"), &[label], histogram.sum());
        self.sample(&format!("{name}_count"), &[label], histogram.count() as f64);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the text of numbers. Those of one name follow each other.
#[must_use]
pub fn counters(numbers: &[Counter]) -> String {
    let mut text = Text(String::new());
    let mut former = "";
    for Counter { name, help, labels, value } in numbers {
        if name != former {
            text.family(name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
            former = name;
        }
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &value[..])).collect();
        text.sample(name, &labels, *value);
    }
    text.0
}

/// Returns the text of an observation, and of other numbers.
#[must_use]
pub fn exposition(seen: &Observation, others: &[Counter]) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.one("helio_alerts_up", "gauge", "Whether the stream can be read.", seen.is_up.into());
    reading(&mut text, seen);
    visits(&mut text, seen);
    topics(&mut text, seen);
    text.0.push_str(&counters(others));
    text.0
}

fn reading(text: &mut Text, seen: &Observation) {
    text.one("helio_alerts_read_total", "counter", "Alerts read by this service.", seen.alerts);
    let help = "Bytes of packets read by this service.";
    text.one("helio_alerts_read_bytes_total", "counter", help, seen.bytes);
    let name = "helio_alerts_age_seconds";
    text.family(name, "histogram", "Time since shutter close at which a stage was passed.");
    for stage in Stage::ALL {
        let histogram = seen.ages.get(&stage).cloned().unwrap_or_default();
        text.histogram(name, ("stage", stage.name()), &histogram);
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

fn visits(text: &mut Text, seen: &Observation) {
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

fn topics(text: &mut Text, seen: &Observation) {
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
