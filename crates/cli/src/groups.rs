//! `helio groups`: lists the groups of topics, with their lag.

use helio_bus::{GroupInfo, GroupMember, GroupPartition, TopicName, TopicSpec};
use helio_core::name::fits;
use serde::Serialize;

use crate::args::GroupsArgs;
use crate::error::{CliError, CliResult};
use crate::open::look_only;
use crate::out::{Out, table};
use crate::units::human_count;

#[derive(Serialize)]
struct Line {
    topic: String,
    group: String,
    /// Over the partitions with a committed position.
    lag: u64,
    members: Vec<Member>,
    partitions: Vec<Partition>,
}

#[derive(Serialize)]
struct Member {
    name: String,
    /// Its process, on transports of one machine.
    process: Option<u32>,
    /// Its address, on transports of a network.
    host: Option<String>,
    partitions: Vec<u32>,
}

#[derive(Serialize)]
struct Partition {
    partition: u32,
    first: u64,
    end: u64,
    /// `null` before the group's first commit.
    committed: Option<u64>,
    lag: Option<u64>,
}

impl Line {
    fn of(topic: &TopicName, info: GroupInfo) -> Self {
        let member = |GroupMember { name, process, host, partitions }| Member {
            name,
            process,
            host,
            partitions,
        };
        let partition = |info: &GroupPartition| Partition {
            partition: info.partition,
            first: info.first,
            end: info.end,
            committed: info.committed,
            lag: info.lag(),
        };
        Self {
            topic: topic.to_string(),
            lag: info.lag(),
            partitions: info.partitions.iter().map(partition).collect(),
            members: info.members.into_iter().map(member).collect(),
            group: info.name,
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        self.partitions.iter().map(move |of| {
            let owner = self.members.iter().find(|m| m.partitions.contains(&of.partition));
            vec![
                self.topic.clone(),
                self.group.clone(),
                of.partition.to_string(),
                owner.map_or_else(|| "-".to_owned(), Member::text),
                number(of.committed),
                of.end.to_string(),
                of.lag.map_or_else(|| "-".to_owned(), human_count),
            ]
        })
    }
}

impl Member {
    fn text(&self) -> String {
        match (self.process, &self.host) {
            (Some(process), _) => format!("{} (process {process})", self.name),
            (None, Some(host)) => format!("{} ({host})", self.name),
            (None, None) => self.name.clone(),
        }
    }
}

const HEAD: [&str; 7] = ["topic", "group", "partition", "member", "committed", "end", "lag"];

/// Runs `helio groups`.
pub(crate) fn run(args: &GroupsArgs, url: Option<&str>) -> CliResult {
    let bus = look_only(url)?;
    let pattern = args.pattern.as_deref().unwrap_or("*");
    let wanted = |name: &TopicName| fits(pattern, name.as_str());
    let names: Vec<TopicName> = bus.topics()?.into_iter().filter(wanted).collect();
    let mut lines = Vec::new();
    for name in &names {
        let groups = bus.topic(TopicSpec::new(name.as_str())?)?.groups()?;
        lines.extend(groups.into_iter().map(|info| Line::of(name, info)));
    }
    if let Some(group) = &args.group {
        lines.retain(|line| line.group == *group);
    }
    if lines.is_empty() && (args.pattern.is_some() || args.group.is_some()) {
        let remedy = "a group exists from its first member or commit on";
        return Err(CliError::NotFound(format!("no such group on {}; {remedy}", bus.url())));
    }
    let mut out = Out::new();
    if args.output.json {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else if !lines.is_empty() {
        let rows: Vec<Vec<String>> = lines.iter().flat_map(Line::rows).collect();
        table(&HEAD, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}
