//! `helio-alerts sizing`: measured packets, and what a deployment needs for them.

mod measure;
mod model;
mod seed;

use helio_console::error::CliResult;
use helio_console::out::{Out, table};
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use crate::args::SizingArgs;
use measure::{Packets, measure};
use model::{DETECTORS, Needs, PARTITIONS, Published};
use seed::{Slip, slips};

/// The page, with places for tables.
const PAGE: &str = include_str!("page.txt");

/// What the tables are computed for.
#[derive(Debug, Clone, Serialize)]
struct Workload {
    alerts_per_visit: u64,
    cadence_s: f64,
    visits_per_night: u64,
    burst_s: f64,
    groups: u64,
    brokers: u64,
    replication: u64,
    days: u64,
    member_bytes_per_s: usize,
    network_bytes_per_s: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    workload: Workload,
    packets: Vec<Packets>,
    #[serde(flatten)]
    needs: Needs,
    slips: Vec<Slip>,
}

/// A table, for the terminal or the page.
struct Table {
    name: &'static str,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Runs `helio-alerts sizing`.
pub(crate) fn run(args: &SizingArgs) -> CliResult {
    let packets = measure(args.detectors)?;
    let needs = Needs::of(args, &packets);
    let report = Report { workload: Workload::of(args), packets, needs, slips: slips() };
    let mut out = Out::new();
    if args.output.json {
        out.json(&report)?;
    } else if args.markdown {
        out.raw(page(&report).as_bytes())?;
    } else {
        for one in tables(&report) {
            let head: Vec<&str> = one.head.iter().map(String::as_str).collect();
            table(&head, &one.rows).iter().try_for_each(|line| out.line(line))?;
            out.line("")?;
        }
    }
    out.flush()
}

impl Workload {
    fn of(args: &SizingArgs) -> Self {
        Self {
            alerts_per_visit: args.alerts,
            cadence_s: args.cadence.as_secs_f64(),
            visits_per_night: args.visits,
            burst_s: args.burst.as_secs_f64(),
            groups: args.groups,
            brokers: args.brokers,
            replication: args.replication,
            days: args.days,
            member_bytes_per_s: args.member_rate,
            network_bytes_per_s: args.network_rate,
        }
    }
}

fn page(report: &Report) -> String {
    let fill = |page: String, one: Table| {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let rule = line(&vec!["---".to_owned(); one.head.len()]);
        let rows = one.rows.iter().map(|row| line(row));
        let lines: Vec<String> = [line(&one.head), rule].into_iter().chain(rows).collect();
        page.replace(&format!("{{{{{}}}}}", one.name), &lines.join("\n"))
    };
    tables(report).into_iter().fold(PAGE.to_owned(), fill)
}

fn tables(report: &Report) -> [Table; 8] {
    let (needs, load) = (&report.needs, &report.workload);
    [
        workload(load),
        packets(&report.packets),
        streams(needs),
        egress(needs),
        disk(needs),
        rewind(needs),
        brokers(needs),
        Table {
            name: "slips",
            head: texts(&["figure of DMTN-028", "as stated", "by its own figures"]),
            rows: report.slips.iter().map(Slip::row).collect(),
        },
    ]
}

impl Slip {
    fn row(&self) -> Vec<String> {
        vec![self.figure.to_owned(), self.stated.to_owned(), self.computed.clone()]
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn per_s(bytes: f64) -> String {
    format!("{}/s", human_bytes(bytes))
}

fn bytes(bytes: f64) -> String {
    human_count(bytes.round() as u64)
}

fn workload(of: &Workload) -> Table {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    Table {
        name: "workload",
        head: texts(&["workload", "value"]),
        rows: vec![
            row("alerts of a visit", human_count(of.alerts_per_visit)),
            row("from one visit to the next", format!("{} s", of.cadence_s)),
            row("visits of a night", human_count(of.visits_per_night)),
            row("a visit is published, and read by each group, in", format!("{} s", of.burst_s)),
            row("groups that read all", of.groups.to_string()),
            row("brokers; copies", format!("{}; {}", of.brokers, of.replication)),
            row("stored for", format!("{} days", of.days)),
            row("a member of a group reads", per_s(of.member_bytes_per_s as f64)),
            row("a group's network", per_s(of.network_bytes_per_s as f64)),
        ],
    }
}

fn packets(of: &[Packets]) -> Table {
    let row = |one: &Packets| {
        let packed = |size: f64| format!("{} ({:.2})", bytes(size), one.bytes / size);
        let range = format!("{} to {}", bytes(one.least as f64), bytes(one.most as f64));
        vec![
            one.content.name().to_owned(),
            one.alerts.to_string(),
            bytes(one.bytes),
            range,
            packed(one.snappy),
            packed(one.gzip),
            packed(one.zstd),
        ]
    };
    let head = ["packets", "alerts", "bytes, mean", "samples", "snappy", "gzip", "zstd"];
    Table { name: "packets", head: texts(&head), rows: of.iter().map(row).collect() }
}

fn streams(needs: &Needs) -> Table {
    let row = |one: &model::Stream| {
        vec![
            one.published.name().to_owned(),
            bytes(one.alert_bytes),
            human_bytes(one.visit_bytes),
            per_s(one.mean_bytes_per_s),
            per_s(one.burst_bytes_per_s),
            human_bytes(one.night_bytes),
        ]
    };
    let head = ["published", "bytes an alert", "a visit", "mean", "burst", "a night"];
    Table { name: "streams", head: texts(&head), rows: needs.streams.iter().map(row).collect() }
}

fn egress(needs: &Needs) -> Table {
    let row = |one: &model::Egress| {
        vec![
            one.groups.to_string(),
            per_s(one.inline_mean_bytes_per_s),
            per_s(one.inline_burst_bytes_per_s),
            per_s(one.metadata_mean_bytes_per_s),
            per_s(one.metadata_burst_bytes_per_s),
        ]
    };
    let head = ["groups", "inline, mean", "inline, burst", "no stamps, mean", "no stamps, burst"];
    Table { name: "egress", head: texts(&head), rows: needs.egress.iter().map(row).collect() }
}

fn disk(needs: &Needs) -> Table {
    let row = |one: &model::Disk| {
        let sizes = one.bytes.iter().map(|size| human_bytes(*size));
        [one.days.to_string()].into_iter().chain(sizes).collect()
    };
    let head: Vec<&str> = ["days"].into_iter().chain(Published::ALL.map(Published::name)).collect();
    Table { name: "disk", head: texts(&head), rows: needs.disk.iter().map(row).collect() }
}

fn rewind(needs: &Needs) -> Table {
    let row = |one: &model::Rewind| {
        let hours = one.seconds.iter().map(|seconds| format!("{:.1} h", seconds / 3_600.0));
        let first = [one.days.to_string(), human_bytes(one.bytes)];
        first.into_iter().chain(hours).collect()
    };
    let head = PARTITIONS.map(|partitions| match partitions {
        1 => "1 partition".to_owned(),
        many => many.to_string(),
    });
    let head: Vec<String> = texts(&["days", "bytes"]).into_iter().chain(head).collect();
    Table { name: "rewind", head, rows: needs.rewind.iter().map(row).collect() }
}

fn brokers(needs: &Needs) -> Table {
    let row = |one: &model::Broker| {
        vec![
            format!("{}; {}", one.brokers, one.replication),
            format!("{:.0}", one.partitions),
            human_count(one.most_partitions),
            human_bytes(one.disk_bytes),
            human_bytes(one.cache_bytes),
            per_s(one.in_burst_bytes_per_s),
            per_s(one.out_burst_bytes_per_s),
        ]
    };
    let partitions = format!("partitions, {DETECTORS} in all");
    let head =
        ["brokers; copies", &partitions, "at most", "disk", "cache", "in, burst", "out, burst"];
    Table { name: "brokers", head: texts(&head), rows: needs.brokers.iter().map(row).collect() }
}
