//! The cells: the testbed's twenty, and one change at a time around its largest.

use serde::{Deserialize, Serialize};

use super::super::messages::Stamped;

/// The volumes of a visit that the testbed had.
const VOLUMES: [u32; 3] = [100, 1_000, 10_000];
/// Its numbers of producers; that of one is a volume's.
const PRODUCERS: [u16; 3] = [10, 100, 200];
/// Its numbers of groups, with ten producers; that of two is a number of producers.
const GROUPS: [u16; 3] = [4, 6, 11];
/// Options of a producer that are changed one at a time: the testbed's `batch.size` is less than a
/// packet, so that each is a request of its own.
const OPTIONS: [&str; 7] = [
    "batch.size=16384",
    "batch.size=1000000",
    "linger.ms=0",
    "linger.ms=100",
    "queue.buffering.max.kbytes=32768",
    "compression.type=lz4",
    "compression.type=zstd",
];
/// Visits of the cells that show lag over visits.
const LAG_VISITS: u16 = 30;

/// When a visit begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pace {
    /// When all groups have read the one before.
    Read,
    /// The first two so, and then one after the other in so many times what all groups took to read
    /// the second. All packets are made before.
    OfRead(f64),
}

/// The bus of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum On {
    /// A temporary journal.
    Journal,
    /// Brokers, and what the URL has beside them.
    Kafka {
        /// One or three.
        nodes: u16,
        /// Whether connections are encrypted.
        tls: bool,
        /// Options as in a URL: `NAME=VALUE&…`.
        options: String,
    },
}

/// What is measured in one go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) on: On,
    /// Alerts of a visit.
    pub(super) alerts: u32,
    pub(super) producers: u16,
    /// Groups that read everything. One of a single process also closes the visits.
    pub(super) groups: u16,
    /// Members of a group.
    pub(super) members: u16,
    pub(super) partitions: u32,
    pub(super) stamped: Stamped,
    /// Processes of the filter service, with a hundred users.
    pub(super) filter_processes: u16,
    pub(super) pace: Pace,
    /// How many producers make and publish their packets at a time, within the times that are
    /// measured; 0 if all have made them before the shutter closes.
    pub(super) at_once: u16,
    /// Whether all readers stand still (SIGSTOP) while a visit is published.
    pub(super) stalled: bool,
    pub(super) visits: u16,
}

impl Cell {
    /// The group of processes that verify, without the witness, which is one of the testbed's
    /// groups of one.
    pub(super) fn member_groups(&self) -> u16 {
        if self.members == 1 { self.groups - 1 } else { self.groups }
    }

    /// The cell in miniature: the same processes and bus, fewer of each.
    pub(super) fn smoke(self) -> Self {
        let producers = self.producers.min(4 + self.producers / 50);
        Self {
            alerts: (self.alerts / 100).max(u32::from(producers) * 2),
            producers,
            groups: self.groups.min(4),
            members: self.members.min(2),
            partitions: self.partitions.min(2),
            visits: self.visits.min(if self.pace == Pace::Read { 2 } else { 12 }),
            ..self
        }
    }

    fn on(self, on: On, place: &str) -> Self {
        Self { name: format!("{place}/{}", self.name), on, ..self }
    }
}

/// A cell of the testbed, with and without stamps.
fn pair(name: &str, cell: Cell) -> [Cell; 2] {
    [("stamps", Stamped::Inline), ("bare", Stamped::None)].map(|(suffix, stamped)| Cell {
        name: format!("{name}-{suffix}"),
        stamped,
        ..cell.clone()
    })
}

/// The testbed's largest: 100 producers, 11 groups of 10 members, 10 partitions.
fn largest() -> Cell {
    Cell {
        name: "partitions-10".to_owned(),
        on: On::Journal,
        alerts: 10_000,
        producers: 100,
        groups: 11,
        members: 10,
        partitions: 10,
        stamped: Stamped::Inline,
        filter_processes: 0,
        pace: Pace::Read,
        at_once: 0,
        stalled: false,
        visits: 3,
    }
}

/// The testbed's twenty.
fn testbed() -> Vec<Cell> {
    let one = Cell { producers: 1, groups: 2, members: 1, partitions: 1, ..largest() };
    let volumes = VOLUMES.map(|alerts| {
        let name = format!("volume-{alerts}");
        pair(&name, Cell { alerts, ..one.clone() })
    });
    let producers = PRODUCERS.map(|producers| {
        let name = format!("producers-{producers}");
        pair(&name, Cell { producers, ..one.clone() })
    });
    let groups = GROUPS.map(|groups| {
        let name = format!("groups-{groups}");
        pair(&name, Cell { producers: 10, groups, ..one.clone() })
    });
    let all = volumes.into_iter().chain(producers).chain(groups).flatten();
    all.chain(pair("partitions-10-members-10", largest())).collect()
}

/// One change at a time on any bus, the lag over visits, and a lone producer beside many groups.
fn around() -> Vec<Cell> {
    let of = |name: &str, cell: Cell| Cell { name: name.to_owned(), ..cell };
    let lag = |name: &str, times: f64| {
        let pace = Pace::OfRead(times);
        let small = Cell { alerts: 300, producers: 10, members: 1, partitions: 1, ..largest() };
        of(name, Cell { pace, visits: LAG_VISITS, ..small })
    };
    let mut cells = vec![
        of("stamps-linked", Cell { stamped: Stamped::Linked, ..largest() }),
        of("stamps-url", Cell { stamped: Stamped::Url, ..largest() }),
    ];
    cells.extend([1, 2, 4].map(|filter_processes| {
        let cell = Cell { filter_processes, groups: 2, ..largest() };
        of(&format!("filters-{filter_processes}"), cell)
    }));
    // Why the testbed's readers fell behind: visits that come faster than they are read.
    cells.push(lag("lag-slower-than-read", 2.0));
    cells.push(lag("lag-faster-than-read", 0.25));
    // What readers cost producers: none that runs, and eleven groups that stand still.
    for (name, groups) in [("producers-alone", 1), ("groups-11-stalled", 11)] {
        cells.push(of(name, Cell { groups, stalled: true, ..testbed_groups_11() }));
    }
    // The survey's stretch goal: its packets do not fit into memory, and are made on the way.
    let stretch = Cell { alerts: 100_000, producers: 189, groups: 4, members: 2, ..largest() };
    let stretch = Cell { filter_processes: 1, at_once: 4, visits: 1, ..stretch };
    cells.push(of("stretch-100000", Cell { partitions: 16, ..stretch }));
    cells.push(of("one-producer-groups-11", Cell { producers: 1, ..testbed_groups_11() }));
    cells
}

fn testbed_groups_11() -> Cell {
    Cell { producers: 10, groups: 11, members: 1, partitions: 1, ..largest() }
}

/// Changes that only brokers have.
fn around_brokers() -> Vec<Cell> {
    let of = |name: String, nodes: u16, tls: bool, options: &str, cell: Cell| {
        let on = On::Kafka { nodes, tls, options: options.to_owned() };
        Cell { name, ..cell }.on(on, "kafka")
    };
    let replicated = (1..=3).map(|copies| {
        let options = format!("replication={copies}");
        of(format!("nodes-3-replication-{copies}"), 3, false, &options, largest())
    });
    let mut cells: Vec<Cell> = replicated.collect();
    cells.push(of("tls".to_owned(), 1, true, "", largest()));
    cells.extend(OPTIONS.map(|option| {
        let name = option.replace('=', "-");
        of(name, 1, false, option, largest())
    }));
    // Why the testbed's lone producer fell behind when there were more readers: each packet is a
    // request, whose round trip grows with the broker's load.
    for groups in [2, 11] {
        for option in ["batch.size=16384", "batch.size=8388608"] {
            let name = format!("one-producer-groups-{groups}-{}", option.replace('=', "-"));
            let cell = Cell { producers: 1, groups, ..testbed_groups_11() };
            cells.push(of(name, 1, false, option, cell));
        }
    }
    cells
}

/// All cells, in the order in which they are run.
pub(super) fn all() -> Vec<Cell> {
    let one = || On::Kafka { nodes: 1, tls: false, options: String::new() };
    let any = || testbed().into_iter().chain(around());
    let journal = any().map(|cell| cell.on(On::Journal, "journal"));
    let kafka = any().map(|cell| cell.on(one(), "kafka"));
    journal.chain(kafka).chain(around_brokers()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_testbed_has_twenty_cells_and_all_names_differ() {
        assert_eq!(testbed().len(), 20);
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|cell| &cell.name).collect();
        assert_eq!(names.len(), all.len());
        for cell in all {
            let smoke = cell.clone().smoke();
            for one in [cell, smoke] {
                assert!(one.alerts >= u32::from(one.producers), "{one:?}");
                assert!(one.groups >= 1 && one.visits >= 1, "{one:?}");
            }
        }
    }
}
