//! Processes that read and verify: members of groups, and the witness, which reads everything,
//! closes visits, and goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use helio_alerts::reader::{
    Alert, AlertReader, Read, ReaderError, ReaderOptions, Stamps, Start, VisitEvent,
};
use helio_alerts::visit::Closing;
use helio_bus::{Bus, ReadError, TransportError};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::worker::{orders, say};

use super::messages::{
    Decided, End, MemberReply, MemberTask, ReadTotal, Rewound, Stamped, WitnessOrder, WitnessReply,
    WitnessTask,
};
use super::stamps::Fetch;
use crate::error;

/// The most alerts of a read.
const MAX_ALERTS: usize = 256;
/// The most bytes of a read.
const MAX_BYTES: usize = 32 << 20;
/// How often orders are polled, if there are no alerts.
const ORDER_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a member commits while alerts come.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// The longest silence in which a rewound reader waits for stored alerts.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a member of a group.
pub(super) fn run(task: &MemberTask) -> CliResult {
    let bus = open::connect(Some(&task.survey.url), Some(&task.name))?;
    let stamps = match task.survey.stamped {
        Stamped::None | Stamped::Inline => Stamps::AsPublished,
        Stamped::Linked => Stamps::Linked,
        Stamped::Url => Stamps::None,
    };
    let mut fetch = Fetch::new(&bus, &task.survey);
    let options =
        ReaderOptions { group: Some(task.group.clone()), stamps, ..options(Start::Committed) };
    let mut reader = AlertReader::open(&bus, &task.survey.topic, options).map_err(error::reader)?;
    say(&MemberReply::Ready)?;
    let (orders, mut total, mut committed) =
        (orders::<End>(), ReadTotal::default(), Instant::now());
    while order(&orders)?.is_none() {
        let read = read(&mut reader, &mut total)?;
        total.bytes += fetch.stamps(&read.alerts)?;
        let decided: Vec<i64> = read.events.iter().filter_map(decided_visit).collect();
        if !decided.is_empty() || committed.elapsed() >= COMMIT_INTERVAL {
            commit(&mut reader)?;
            committed = Instant::now();
        }
        for visit in decided {
            say(&MemberReply::Decided { visit, at_ns: bus.clock().now().nanos() })?;
        }
    }
    commit(&mut reader)?;
    say(&MemberReply::End(total))?;
    rest(&orders);
    Ok(())
}

/// Waits until the starter closes the orders: it has read all replies by then.
pub(super) fn rest<T>(orders: &Receiver<T>) {
    while orders.recv().is_ok() {}
}

fn options(start: Start) -> ReaderOptions {
    ReaderOptions { stamps: Stamps::AsPublished, start, ..ReaderOptions::default() }
}

fn decided_visit(event: &VisitEvent) -> Option<i64> {
    match event {
        VisitEvent::Decided { closing, .. } => Some(closing.visit),
        _ => None,
    }
}

/// The next order, if there is one.
fn order<T>(orders: &Receiver<T>) -> CliResult<Option<T>> {
    match orders.try_recv() {
        Ok(order) => Ok(Some(order)),
        Err(TryRecvError::Empty) => Ok(None),
        Err(TryRecvError::Disconnected) => Err(CliError::Interrupted),
    }
}

fn read(reader: &mut AlertReader, total: &mut ReadTotal) -> CliResult<Read> {
    let read = reader.read(MAX_ALERTS, MAX_BYTES, ORDER_POLL_INTERVAL).map_err(error::reader)?;
    total.alerts += read.alerts.len() as u64;
    total.bytes += read.alerts.iter().map(bytes).sum::<u64>();
    for (cause, count) in read.dropped.counts().filter(|(_, count)| *count > 0) {
        *total.dropped.entry(cause.name().to_owned()).or_default() += count;
    }
    for event in &read.events {
        if let VisitEvent::Gap { gap, .. } = event {
            total.lost += gap.lost;
        }
    }
    Ok(read)
}

/// The bytes of an alert, with its stamps.
fn bytes(alert: &Alert) -> u64 {
    let stamps = alert.stamps.iter().flatten().flatten().map(|file| file.len()).sum::<usize>();
    (alert.datum.len() + stamps) as u64
}

/// Commits. The next commit includes what one during an outage left out.
fn commit(reader: &mut AlertReader) -> CliResult {
    match reader.commit() {
        Err(ReaderError::Read(ReadError::Transport(TransportError::Outage { .. }))) => Ok(()),
        committed => committed.map_err(error::reader),
    }
}

/// Runs the witness.
pub(super) fn witness(task: &WitnessTask) -> CliResult {
    let bus = open::connect(Some(&task.survey.url), Some("witness"))?;
    let reader = AlertReader::open(&bus, &task.survey.topic, options(Start::Earliest));
    let mut witness = Witness {
        bus,
        reader: reader.map_err(error::reader)?,
        total: ReadTotal::default(),
        first: BTreeMap::new(),
        seen: BTreeSet::new(),
        watched: BTreeSet::new(),
    };
    say(&WitnessReply::Ready)?;
    let orders = orders::<WitnessOrder>();
    loop {
        match order(&orders)? {
            Some(WitnessOrder::Watch { visit, detectors }) => {
                let watched = detectors.into_iter().map(|detector| (visit, detector));
                witness.watch(watched.collect())?;
            }
            Some(WitnessOrder::Rewind { to, until }) => witness.rewind(to, until)?,
            Some(WitnessOrder::End) => break,
            None => witness.follow()?,
        }
    }
    say(&WitnessReply::End(witness.total))?;
    rest(&orders);
    Ok(())
}

struct Witness {
    bus: Bus,
    reader: AlertReader,
    total: ReadTotal,
    /// The first alert of a visit in each partition.
    first: BTreeMap<(i64, u32), u64>,
    /// Visits and detectors of which an alert was read.
    seen: BTreeSet<(i64, i32)>,
    /// Those of which the first alert is to be reported.
    watched: BTreeSet<(i64, i32)>,
}

impl Witness {
    /// Reports the first alert of each detector, also of one that was read before the order came.
    fn watch(&mut self, detectors: BTreeSet<(i64, i32)>) -> CliResult {
        for (visit, detector) in detectors.intersection(&self.seen).copied() {
            say(&WitnessReply::Seen { visit, detector })?;
        }
        self.watched.extend(detectors.difference(&self.seen));
        Ok(())
    }

    fn follow(&mut self) -> CliResult {
        let read = read(&mut self.reader, &mut self.total)?;
        for alert in &read.alerts {
            self.first.entry((alert.visit, alert.at.partition)).or_insert(alert.at.offset);
            let (visit, detector) = (alert.visit, alert.detector);
            self.seen.insert((visit, detector));
            if self.watched.remove(&(visit, detector)) {
                say(&WitnessReply::Seen { visit, detector })?;
            }
        }
        for event in &read.events {
            if let VisitEvent::Decided { closing, late } = event {
                say(&WitnessReply::Decided(self.decided(closing, late.len() as u64)))?;
            }
        }
        Ok(())
    }

    fn decided(&self, closing: &Closing, late: u64) -> Decided {
        Decided {
            visit: closing.visit,
            complete: closing.is_complete(),
            verified: self.is_verified(closing),
            alerts: closing.totals.count(),
            repeated: closing.repeated.clone(),
            late,
            at_ns: self.bus.clock().now().nanos(),
        }
    }

    fn is_verified(&self, closing: &Closing) -> bool {
        let audit = self.reader.audit(closing.visit);
        audit.is_ok_and(|audit| audit.is_equal() && audit.found == closing.totals)
    }

    fn rewind(&mut self, to: i64, until: i64) -> CliResult {
        let begun = Instant::now();
        self.reader.rewind(Start::Visit(to)).map_err(error::reader)?;
        let (mut total, mut rewound, mut heard) = (ReadTotal::default(), None, Instant::now());
        let mut verified = 0;
        loop {
            let read = read(&mut self.reader, &mut total)?;
            if let (Some(first), None) = (read.alerts.first(), &rewound) {
                rewound = Some(self.rewound(to, first, begun));
            }
            let mut is_over = false;
            for event in &read.events {
                if let VisitEvent::Decided { closing, .. } = event {
                    verified += u64::from(self.is_verified(closing));
                    is_over |= closing.visit == until;
                }
            }
            if !read.is_empty() {
                heard = Instant::now();
            }
            if is_over || heard.elapsed() > SILENCE_TIMEOUT {
                break;
            }
        }
        let none = Rewound { visit: 0, is_first: false, seconds: 0.0, alerts: 0, verified: 0 };
        let rewound = rewound.unwrap_or(none);
        say(&WitnessReply::Rewound(Rewound { alerts: total.alerts, verified, ..rewound }))
    }

    fn rewound(&self, to: i64, first: &Alert, begun: Instant) -> Rewound {
        let offset = self.first.get(&(to, first.at.partition));
        Rewound {
            visit: first.visit,
            is_first: first.visit == to && offset == Some(&first.at.offset),
            seconds: begun.elapsed().as_secs_f64(),
            alerts: 0,
            verified: 0,
        }
    }
}
