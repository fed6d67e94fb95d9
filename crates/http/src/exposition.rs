//! Metrics as text for Prometheus (exposition format 0.0.4).

use std::fmt::{Display, Write as _};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Builds the text. Samples of a metric follow its head.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Writes the head of a metric; the kind is `counter`, `gauge` or `histogram`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail, here and below.
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample with its labels.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let begin = if place == 0 { '{' } else { ',' };
            _ = write!(self.0, "{begin}{label}=\"{}\"", escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(self.0, "{end} {value}");
    }

    /// Writes a metric of one sample without labels.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Writes a metric with one label: a sample for each of its values.
    pub fn each<L: AsRef<str>>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.family(name, kind, help);
        for (of, value) in values {
            self.sample(name, &[(label, of.as_ref())], value);
        }
    }

    /// Writes the series of a histogram: for each bound the values at most as large, then the
    /// number of all and their sum.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        cumulative: impl IntoIterator<Item = (f64, u64)>,
        total: Total,
    ) {
        let bucket = format!("{name}_bucket");
        let bounds = cumulative.into_iter().map(|(bound, count)| (bound.to_string(), count));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), total.count)]) {
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), count);
        }
        self.sample(&format!("{name}_sum"), labels, total.sum);
        self.sample(&format!("{name}_count"), labels, total.count);
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

/// All values of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// Their number.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_escaped_and_a_histogram_ends_with_all() {
        let mut text = Exposition::default();
        text.one("up", "gauge", "Whether.", 1);
        text.sample("x", &[("of", "a \"b\"\\\n"), ("to", "c")], 1.5);
        text.histogram("h", &[("of", "a")], [(0.5, 1), (10.0, 2)], Total { count: 3, sum: 30.25 });
        text.histogram("i", &[], [], Total { count: 0, sum: 0.0 });
        let lines = [
            "# HELP up Whether.",
            "# TYPE up gauge",
            "up 1",
            r#"x{of="a \"b\"\\\n",to="c"} 1.5"#,
            r#"h_bucket{of="a",le="0.5"} 1"#,
            r#"h_bucket{of="a",le="10"} 2"#,
            r#"h_bucket{of="a",le="+Inf"} 3"#,
            r#"h_sum{of="a"} 30.25"#,
            r#"h_count{of="a"} 3"#,
            r#"i_bucket{le="+Inf"} 0"#,
            "i_sum 0",
            "i_count 0",
        ];
        assert_eq!(text.into_text().lines().collect::<Vec<_>>(), lines);
    }
}
