//! One cell: its processes, its visits, and what they used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use helio_alerts::producer::CcdProducer;
use helio_alerts::visit::Opening;
use helio_bus::Bus;
use helio_console::clock::load;
use helio_console::error::CliResult;
use helio_console::stop::{STOP_POLL_INTERVAL, Stop};
use helio_console::story::Story;

use super::super::args::Sizes;
use super::super::cast::{Cast, Notes, Numbers};
use super::super::messages::{Published, Survey};
use super::super::report::AuditLine;
use super::super::site::{Place, Site};
use super::super::texts::{Kind, Text};
use super::super::usage::{Meter, ProcessUse};
use super::super::{WINDOW, activate, audit, producer, report, texts};
use super::cells::{Cell, Pace};
use super::results::{CellResult, RoleUse, Spread, Visit};
use crate::error;

/// The users of cells with filters.
const USERS: u16 = 100;
/// The seed of what is generated: equal packets in each cell.
const SEED: u64 = 28;
/// Where a cell runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    /// The folder of temporary journals.
    pub(super) dir: &'a Path,
    /// The bus; a temporary journal without one.
    pub(super) url: Option<&'a str>,
    /// The processes of brokers, if they are known.
    pub(super) brokers: &'a [u32],
    pub(super) smoke: bool,
}

/// A cell that runs.
struct Run<'a> {
    cell: &'a Cell,
    bus: &'a Bus,
    producer: &'a CcdProducer,
    cast: Cast,
    stop: &'a Stop,
    story: &'a mut Story,
    visits: Vec<Visit>,
    /// When the shutter closed, by visit from 0.
    shutters_ns: Vec<i64>,
    /// When the last manifest was accepted.
    published_ns: Vec<i64>,
}

/// Runs a cell.
pub(super) fn run(
    cell: &Cell,
    ground: Ground<'_>,
    story: &mut Story,
    stop: &Stop,
) -> CliResult<CellResult> {
    let (begun, before) = (Instant::now(), load());
    let sizes = Sizes {
        visits: cell.visits,
        alerts: cell.alerts,
        producers: cell.producers,
        groups: cell.member_groups(),
        members: cell.members,
        users: if cell.filter_processes > 0 { USERS } else { 0 },
    };
    let (what, dir) = ("helio-alerts-matrix", Some(ground.dir));
    // Topics stay on brokers, so that each cell has one of its own.
    let topic = &format!("alerts-matrix-{}-{}", std::process::id(), now_s());
    let site = Site::open(Place { what, dir, url: ground.url, topic }, &sizes)?;
    let survey = Survey {
        url: site.url().to_owned(),
        topic: topic.clone(),
        seed: SEED,
        alerts: cell.alerts,
        detectors: cell.producers,
        partitions: cell.partitions,
        stamped: cell.stamped,
    };
    let bus = site.bus();
    let producer = producer::open_producer(bus, &survey)?;
    let texts = filters(&sizes);
    if !texts.is_empty() {
        activate(bus, &survey, &sizes, &texts, &mut Story::silent(), stop)?;
    }
    let cast = Cast::start(&survey, numbers(cell, &sizes, &texts), stop)?;
    ground.brokers.iter().for_each(|id| cast.meter().add(*id, "brokers"));
    let (visits, shutters_ns, published_ns) = (Vec::new(), Vec::new(), Vec::new());
    let producer = &producer;
    let mut run = Run { cell, bus, producer, cast, stop, story, visits, shutters_ns, published_ns };
    run.play()?;
    let Run { cast, visits, story, .. } = run;
    ground.brokers.iter().for_each(|id| cast.meter().retire(*id));
    let (notes, meter) = cast.end()?;
    story.doing(|| format!("{}: audits", cell.name));
    let audits = report::visits(&sizes).map(|visit| audit(bus, &survey, &sizes, visit));
    let audits = audits.collect::<CliResult<Vec<_>>>()?;
    let result = result(cell, visits, &notes, &audits);
    Ok(CellResult {
        smoke: ground.smoke,
        load: [before, load()],
        seconds: begun.elapsed().as_secs_f64(),
        processes: roles(&meter),
        loopback_mb: meter.loopback_mb(),
        samples: serde_json::to_value(meter.samples()).unwrap_or_default(),
        ..result
    })
}

/// What was published and read; what was used is not in it.
fn result(cell: &Cell, visits: Vec<Visit>, notes: &Notes, audits: &[AuditLine]) -> CellResult {
    let of = |figure: fn(&Visit) -> f64| Spread::of(visits.iter().map(figure));
    let read = || notes.read.values().flatten();
    CellResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ended_s: now_s(),
        published_s: of(|visit| visit.published_s),
        read_s: of(|visit| visit.read_s),
        tail_s: of(|visit| visit.tail_s),
        stored_equal: audits.iter().filter(|one| one.stored_equal).count(),
        group_audits: audits.len() * usize::from(cell.member_groups()),
        groups_equal: audits.iter().map(|one| usize::from(one.groups_equal)).sum(),
        lost: read().map(|one| one.lost).sum(),
        dropped: dropped(notes),
        read_bytes: read().map(|one| one.bytes).sum(),
        results: results(notes),
        visits,
        ..CellResult::empty(cell.clone())
    }
}

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

/// All kinds of filters but those in Python, whose interpreter another machine may lack.
fn filters(sizes: &Sizes) -> Vec<Text> {
    if sizes.users == 0 {
        return Vec::new();
    }
    let all = texts::texts(sizes.users).into_iter();
    all.filter(|text| text.kind != Kind::Python).collect()
}

fn numbers<'a>(cell: &Cell, sizes: &Sizes, texts: &[Text]) -> Numbers<'a> {
    Numbers {
        groups: sizes.groups,
        members: sizes.members,
        filter_processes: cell.filter_processes,
        python: "python3",
        users: texts.iter().map(|text| text.user.clone()).collect(),
    }
}

/// Packets that readers dropped. Copies, which a group that changes its members may read, are none.
fn dropped(notes: &Notes) -> u64 {
    let all = notes.read.values().flatten().flat_map(|one| &one.dropped);
    all.filter(|(cause, _)| cause.as_str() != "duplicate").map(|(_, count)| count).sum()
}

fn results(notes: &Notes) -> u64 {
    let users = notes.results.values().flat_map(|visit| visit.users.values());
    users.map(|user| user.received).sum()
}

fn roles(meter: &Meter) -> BTreeMap<String, RoleUse> {
    let mut by_role: BTreeMap<&str, Vec<ProcessUse>> = BTreeMap::new();
    for (role, used) in meter.processes() {
        by_role.entry(role).or_default().push(used);
    }
    let of =
        |all: &[ProcessUse], figure: fn(&ProcessUse) -> f64| Spread::of(all.iter().map(figure));
    let role = |(role, all): (&str, Vec<ProcessUse>)| {
        let used = RoleUse {
            processes: all.len(),
            cpu_s: of(&all, |one| one.cpu_s),
            anon_mb: of(&all, |one| one.most_anon_mb),
            read_mb: of(&all, |one| one.read_mb),
            written_mb: of(&all, |one| one.written_mb),
        };
        (role.to_owned(), used)
    };
    by_role.into_iter().map(role).collect()
}

impl Run<'_> {
    fn play(&mut self) -> CliResult {
        let is_paced = self.cell.pace != Pace::Read;
        if is_paced {
            (0..self.cell.visits).try_for_each(|visit| self.prepare(visit))?;
        }
        for visit in 0..self.cell.visits {
            if !is_paced {
                self.prepare(visit)?;
            }
            if let Some(at) = self.due(visit) {
                self.wait_until(at)?;
            }
            self.publish(visit)?;
            if visit < 2 || !is_paced {
                self.await_readers(visit)?;
            }
        }
        (0..self.cell.visits).try_for_each(|visit| self.await_readers(visit))?;
        self.visits = (0..self.cell.visits).map(|visit| self.figures(visit)).collect();
        Ok(())
    }

    /// When a visit's shutter closes, TAI; none if that is now.
    fn due(&self, visit: u16) -> Option<i64> {
        let Pace::OfRead(times) = self.cell.pace else { return None };
        let (last, second) = (*self.shutters_ns.last()?, *self.shutters_ns.get(1)?);
        let read_ns = self.read_ns(1)? - second;
        (visit > 1).then_some(last + (read_ns as f64 * times) as i64)
    }

    fn wait_until(&self, at_ns: i64) -> CliResult {
        loop {
            self.stop.check()?;
            let left = u64::try_from(at_ns - self.bus.clock().now().nanos()).unwrap_or_default();
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left).min(STOP_POLL_INTERVAL));
        }
    }

    fn prepare(&mut self, visit: u16) -> CliResult {
        let (name, all) = (&self.cell.name, usize::from(self.cell.producers));
        let (number, of) = (visit + 1, self.cell.visits);
        if self.cell.at_once > 0 {
            return Ok(());
        }
        self.cast.prepare(visit)?;
        let (cast, story) = (&mut self.cast, &mut *self.story);
        cast.until_mut("the packets", |cast| {
            let done = cast.notes.prepared.len();
            story.doing(|| format!("{name}: visit {number} of {of}, packets of {done} of {all}"));
            Ok(done == all)
        })
    }

    fn publish(&mut self, visit: u16) -> CliResult {
        self.cast.forget_published();
        let shutter_ns = self.bus.clock().now().nanos();
        let opening = Opening {
            visit: Survey::visit(visit),
            detectors: (0..i32::from(self.cell.producers)).collect(),
            shutter_close_ns: shutter_ns,
            window_ns: i64::try_from(WINDOW.as_nanos()).unwrap_or(i64::MAX),
            starts: Vec::new(),
        };
        self.producer.open_visit(opening).map_err(error::producer)?;
        if self.cell.stalled {
            self.cast.pause_readers()?;
        }
        self.publish_all(visit, shutter_ns)?;
        if self.cell.stalled {
            self.cast.resume_readers()?;
        }
        let published = || self.cast.notes.published.values();
        let sum = |of: fn(&Published) -> u64| published().map(of).sum::<u64>();
        self.visits.push(Visit {
            visit: Survey::visit(visit),
            alerts: sum(|one| one.alerts),
            bytes: sum(|one| one.bytes),
            failed: sum(|one| one.failed),
            publish_cpu_s: published().map(|one| one.cpu_s).sum(),
            ..Visit::default()
        });
        self.published_ns.push(published().map(|one| one.done_ns).max().unwrap_or_default());
        self.shutters_ns.push(shutter_ns);
        Ok(())
    }

    fn publish_all(&mut self, visit: u16, shutter_ns: i64) -> CliResult {
        let (cell, all) = (self.cell, usize::from(self.cell.producers));
        let mut next = 0..cell.producers;
        if cell.at_once == 0 {
            next.try_for_each(|one| self.cast.publish(one, shutter_ns))?;
            return self.cast.until("the producers", |notes| notes.published.len() == all);
        }
        let (mut ordered, story) = (0, &mut *self.story);
        self.cast.until_mut("the producers", |cast| {
            let done = cast.notes.published.len();
            while ordered < done + usize::from(cell.at_once)
                && let Some(one) = next.next()
            {
                cast.prepare_one(one, visit)?;
                cast.publish(one, shutter_ns)?;
                ordered += 1;
            }
            story.doing(|| format!("{}: {done} of {all} CCDs are published", cell.name));
            Ok(done == all)
        })
    }

    /// Waits until all groups, the witness and the users have a visit.
    fn await_readers(&mut self, visit: u16) -> CliResult {
        let (cell, id) = (self.cell, Survey::visit(visit));
        let mut left: BTreeSet<(u16, u16)> = (0..cell.member_groups())
            .flat_map(|of| (0..cell.members).map(move |number| (of, number)))
            .collect();
        let all = left.len();
        let (cast, story) = (&mut self.cast, &mut *self.story);
        cast.until_mut("the groups", |cast| {
            let notes = &cast.notes;
            left.retain(|(of, number)| !notes.members.contains_key(&(id, *of, *number)));
            let done = all - left.len();
            story.doing(|| format!("{}: visit {id}, read by {done} of {all}", cell.name));
            let has_results = cell.filter_processes == 0 || notes.results.contains_key(&id);
            Ok(left.is_empty() && notes.decided.contains_key(&id) && has_results)
        })
    }

    /// When the last group, or the witness, had read a visit.
    fn read_ns(&self, visit: u16) -> Option<i64> {
        let (id, notes) = (Survey::visit(visit), &self.cast.notes);
        let members = notes.members.iter().filter(|((of, ..), _)| *of == id);
        let members = members.map(|(_, at_ns)| *at_ns);
        members.chain(notes.decided.get(&id).map(|decided| decided.at_ns)).max()
    }

    fn figures(&self, visit: u16) -> Visit {
        let index = usize::from(visit);
        let (shutter_ns, published_ns) = (self.shutters_ns[index], self.published_ns[index]);
        let read_ns = self.read_ns(visit).unwrap_or(published_ns);
        let seconds = |from: i64, until: i64| (until - from) as f64 * 1e-9;
        Visit {
            shutter_s: seconds(self.shutters_ns[0], shutter_ns),
            published_s: seconds(shutter_ns, published_ns),
            read_s: seconds(shutter_ns, read_ns),
            tail_s: seconds(published_ns, read_ns),
            ..self.visits[index].clone()
        }
    }
}
