//! What alerts of Prometheus find in the metrics of a server.

/// The alerts of etcd's mixin with the series that they need, and whether a store has it.
/// Source: etcd's `contrib/mixin/alerts/alerts.libsonnet`.
pub(crate) const ALERTS: &str = include_str!("../golden/mixin_alerts.txt");

/// The series of the alerts, and what is written about each: `found …`, or `none, WHY`.
pub(crate) fn alerts() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALERTS.lines().map(|line| {
        let (names, outcome) = line.split_once(": ").unwrap();
        (names.split_once(' ').unwrap().1, outcome)
    })
}

/// Whether a text has a sample of a series.
pub(crate) fn has(metrics: &str, series: &str) -> bool {
    let of =
        |line: &str| line.strip_prefix(series).is_some_and(|rest| rest.starts_with([' ', '{']));
    metrics.lines().any(of)
}

/// The name and kind of each metric, as in `# TYPE` lines.
pub(crate) fn kinds(metrics: &str) -> Vec<&str> {
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect()
}
