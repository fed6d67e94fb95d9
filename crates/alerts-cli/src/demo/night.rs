//! The night: visits, and what is killed and stalled in them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use helio_alerts::producer::CcdProducer;
use helio_alerts::reader::Stream;
use helio_alerts::visit::Opening;
use helio_bus::Bus;
use helio_console::error::CliResult;
use helio_console::stop::{STOP_POLL_INTERVAL, Stop};
use helio_console::story::Story;
use helio_console::units::{human_bytes, human_count};

use super::WINDOW;
use super::args::{DemoArgs, Sizes};
use super::cast::{Cast, group};
use super::messages::{Published, Survey, WitnessOrder};
use crate::error;

/// How often the digests of a group are read, where a member was killed or stalled.
const AUDIT_INTERVAL: Duration = Duration::from_millis(250);

/// Kills and stalls of processes, by visits that count from 0.
#[derive(Debug)]
pub(super) struct Plan {
    /// Producers that are killed: visit and detector.
    pub(super) killed: Vec<(u16, u16)>,
    /// The member that is stalled, from the beginning of a visit until others have read another.
    pub(super) stalled: (u16, u16),
    pub(super) stall: (u16, u16),
    /// The member that is killed, and the visit.
    pub(super) killed_member: (u16, u16),
    pub(super) member_kill: u16,
}

/// Random numbers; their quality does not matter.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u16) -> u16 {
        // xorshift*: Vigna 2016, ACM TOMS 42, 30.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (high % u64::from(limit.max(1))) as u16
    }
}

impl Plan {
    /// Draws it. The first visit is undisturbed, if there are several.
    pub(super) fn draw(sizes: &Sizes, seed: u64) -> Self {
        let mut random = Random(seed | 1);
        (0..8).for_each(|_| _ = random.below(1));
        let (visits, mut killed) = (sizes.visits, BTreeSet::new());
        while killed.len() < 3 {
            killed.insert(random.below(sizes.producers));
        }
        let disturbed = |number: u16| if visits > 1 { 1 + number % (visits - 1) } else { 0 };
        let killed = (0..).zip(killed).map(|(n, detector)| (disturbed(n), detector)).collect();
        let mut member = |group: u16| (group, random.below(sizes.members));
        Self {
            killed,
            stalled: member(0),
            stall: (disturbed(0), disturbed(1).max(disturbed(0))),
            killed_member: member(1),
            member_kill: disturbed(1),
        }
    }

    /// The producers that are killed in a visit.
    fn killed_in(&self, visit: u16) -> Vec<u16> {
        let of = self.killed.iter().filter(|(of, _)| *of == visit);
        of.map(|(_, detector)| *detector).collect()
    }

    fn is_stalled(&self, group: u16, visit: u16) -> bool {
        group == self.stalled.0 && (self.stall.0..=self.stall.1).contains(&visit)
    }
}

/// Measurements of a visit, seconds from shutter close.
#[derive(Debug, Default, serde::Serialize)]
pub(super) struct VisitFigures {
    pub(super) visit: i64,
    /// When the shutter closed, TAI nanoseconds since 1970.
    pub(super) shutter_ns: i64,
    pub(super) alerts: u64,
    pub(super) bytes: u64,
    /// Until the last manifest was accepted.
    pub(super) published_s: f64,
    /// Until the last group had read and committed all, without one that is stalled.
    pub(super) read_s: f64,
    /// Until the witness closed it.
    pub(super) closed_s: f64,
    /// Results: median, 99 %, most.
    pub(super) result_s: [f64; 3],
    pub(super) results: u64,
    pub(super) result_bytes: u64,
    /// Detectors whose producer was killed.
    pub(super) killed: Vec<u16>,
    /// Alerts and manifests that were not accepted.
    pub(super) failed: u64,
    /// How long the producers took to make the packets, before the shutter closed.
    pub(super) prepared_s: f64,
}

/// A night that runs.
pub(super) struct Night<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) sizes: Sizes,
    pub(super) plan: Plan,
    pub(super) bus: &'a Bus,
    pub(super) survey: &'a Survey,
    pub(super) producer: &'a CcdProducer,
    pub(super) cast: Cast,
    pub(super) stop: &'a Stop,
    pub(super) story: Story,
    pub(super) visits: Vec<VisitFigures>,
    /// The groups that had read the visits of the stall while a member of another stood still.
    pub(super) beside_stall: Option<u16>,
}

impl Night<'_> {
    /// Plays all visits and the rewind.
    pub(super) fn play(&mut self) -> CliResult {
        let mut first = None;
        for visit in 0..self.sizes.visits {
            self.prepare(visit)?;
            // The cadence is that of shutters: the first closes once its packets are made.
            let begun = *first.get_or_insert_with(Instant::now);
            self.wait_until(begun + self.args.cadence * u32::from(visit))?;
            self.visit(visit)?;
        }
        self.rewind()
    }

    fn wait_until(&self, time: Instant) -> CliResult {
        loop {
            self.stop.check()?;
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STOP_POLL_INTERVAL));
        }
    }

    fn prepare(&mut self, visit: u16) -> CliResult {
        let begun = Instant::now();
        let (number, of) = (visit + 1, self.sizes.visits);
        let all = usize::from(self.sizes.producers);
        self.cast.prepare(visit)?;
        let (cast, story) = (&mut self.cast, &mut self.story);
        cast.until_mut("the packets", |cast| {
            let done = cast.notes.prepared.len();
            story.doing(|| format!("visit {number} of {of}: packets of {done} of {all} CCDs"));
            Ok(done == all)
        })?;
        let prepared_s = begun.elapsed().as_secs_f64();
        self.visits.push(VisitFigures { prepared_s, ..VisitFigures::default() });
        Ok(())
    }

    fn visit(&mut self, visit: u16) -> CliResult {
        let id = Survey::visit(visit);
        if visit == self.plan.stall.0 {
            let (of, number) = self.plan.stalled;
            self.cast.pause(of, number)?;
            let (of, number) = (group(of), number + 1);
            self.story.print(format!("SIGSTOP for member {number} of {of}"))?;
        }
        let killed = self.plan.killed_in(visit);
        if !killed.is_empty() || visit == self.plan.member_kill {
            let mut detectors: Vec<i32> = killed.iter().map(|d| i32::from(*d)).collect();
            detectors.extend(killed.is_empty().then_some(0));
            self.cast.witness(&WitnessOrder::Watch { visit: id, detectors })?;
        }
        let shutter_ns = self.bus.clock().now().nanos();
        let opening = Opening {
            visit: id,
            detectors: (0..i32::from(self.sizes.producers)).collect(),
            shutter_close_ns: shutter_ns,
            window_ns: i64::try_from(WINDOW.as_nanos()).unwrap_or(i64::MAX),
            starts: Vec::new(),
        };
        self.producer.open_visit(opening).map_err(error::producer)?;
        self.publish(visit, &killed, shutter_ns)?;
        let failed = self.cast.notes.published.values().map(|one| one.failed).sum();
        if let Some(cause) = self.cast.notes.published.values().find_map(|one| one.cause.clone()) {
            self.story.print(format!("visit {id}: {failed} not accepted: {cause}"))?;
        }
        self.await_readers(visit)?;
        self.note(visit, shutter_ns, killed, failed)
    }

    /// Has all producers publish; those that are to be killed are killed once an alert of theirs is
    /// in the log. The last producer waits for them, so that the visit is not complete before.
    fn publish(&mut self, visit: u16, killed: &[u16], shutter_ns: i64) -> CliResult {
        let id = Survey::visit(visit);
        let all = usize::from(self.sizes.producers);
        let mut others = (0..self.sizes.producers).filter(|d| !killed.contains(d));
        let last = others.next_back().unwrap_or_default();
        for detector in (0..self.sizes.producers).filter(|detector| *detector != last) {
            self.cast.publish(detector, shutter_ns)?;
        }
        let mut left: BTreeSet<u16> = killed.iter().copied().collect();
        if killed.is_empty() && visit == self.plan.member_kill {
            self.kill_member(id)?;
        }
        while !left.is_empty() {
            let is_left = |(of, detector): &(i64, i32)| {
                *of == id && u16::try_from(*detector).is_ok_and(|d| left.contains(&d))
            };
            self.cast.until("an alert of a producer that is to be killed", |notes| {
                notes.seen.iter().any(is_left)
            })?;
            let seen: Vec<(i64, i32)> =
                self.cast.notes.seen.iter().copied().filter(|one| is_left(one)).collect();
            for (_, detector) in seen {
                let detector = u16::try_from(detector).unwrap_or_default();
                left.remove(&detector);
                self.cast.kill_producer(detector, visit, shutter_ns)?;
                let line = format!("visit {id}: SIGKILL for ccd-{detector}, which starts again");
                self.story.print(line)?;
            }
            if visit == self.plan.member_kill && left.is_empty() {
                self.kill_member(id)?;
            }
        }
        self.cast.until("killed producers", |notes| {
            killed.iter().all(|detector| notes.published.contains_key(detector))
        })?;
        self.cast.publish(last, shutter_ns)?;
        let (cast, story) = (&mut self.cast, &mut self.story);
        cast.until_mut("the producers", |cast| {
            let done = cast.notes.published.len();
            story.doing(|| format!("visit {id}: {done} of {all} CCDs are published"));
            Ok(done == all)
        })
    }

    fn kill_member(&mut self, id: i64) -> CliResult {
        self.cast
            .until("an alert of the visit", |notes| notes.seen.iter().any(|(of, _)| *of == id))?;
        let (of, number) = self.plan.killed_member;
        self.cast.kill_member(of, number)?;
        let (of, number) = (group(of), number + 1);
        self.story
            .print(format!("visit {id}: SIGKILL for member {number} of {of}, which starts again"))
    }

    /// Waits until the visit is closed, read by all groups, and filtered; a stalled group is waited
    /// for after it was resumed.
    fn await_readers(&mut self, visit: u16) -> CliResult {
        let all: Vec<u16> = (0..self.sizes.groups).collect();
        let (stalled, running): (Vec<u16>, Vec<u16>) =
            all.iter().partition(|of| self.plan.is_stalled(**of, visit));
        self.await_groups(visit, &running)?;
        let id = Survey::visit(visit);
        self.cast.until("the end of the visit and its results", |notes| {
            notes.decided.contains_key(&id) && notes.results.contains_key(&id)
        })?;
        if visit == self.plan.stall.1 {
            let (of, number) = self.plan.stalled;
            let stood_still = !self.cast.notes.members.contains_key(&(id, of, number));
            self.beside_stall = stood_still.then_some(running.len() as u16);
            self.cast.resume(of, number)?;
            let (of, number, others) = (group(of), number + 1, running.len());
            self.story.print(format!(
                "{others} groups and all users have visit {id}; SIGCONT for member {number} of {of}"
            ))?;
            for visit in self.plan.stall.0..=self.plan.stall.1 {
                self.await_groups(visit, &stalled)?;
            }
        }
        Ok(())
    }

    fn await_groups(&mut self, visit: u16, groups: &[u16]) -> CliResult {
        let (id, members) = (Survey::visit(visit), self.sizes.members);
        let stream = Stream { bus: self.bus, name: &self.survey.topic };
        let disturbed = [self.plan.stalled.0, self.plan.killed_member.0];
        let mut audited = Instant::now();
        let mut left: BTreeSet<u16> = groups.iter().copied().collect();
        let (cast, story) = (&mut self.cast, &mut self.story);
        cast.until_mut("the groups", |cast| {
            let notes = &mut cast.notes;
            let reported = |notes: &super::cast::Notes, of: u16| {
                (0..members).all(|number| notes.members.contains_key(&(id, of, number)))
            };
            left.retain(|of| !reported(notes, *of));
            // A member that began behind the visit's end reports nothing of it.
            if audited.elapsed() > AUDIT_INTERVAL && left.iter().any(|of| disturbed.contains(of)) {
                for of in disturbed {
                    let audit = stream.audit_group(&group(of), id).map_err(error::reader)?;
                    if audit.is_equal() && audit.audit.decided.is_some() {
                        left.remove(&of);
                    }
                }
                audited = Instant::now();
            }
            let (done, all) = (groups.len() - left.len(), groups.len());
            story.doing(|| format!("visit {id}: {done} of {all} groups have read it"));
            Ok(left.is_empty())
        })
    }

    fn note(&mut self, visit: u16, shutter_ns: i64, killed: Vec<u16>, failed: u64) -> CliResult {
        let (id, notes) = (Survey::visit(visit), &self.cast.notes);
        let since = |ns: i64| (ns - shutter_ns) as f64 * 1e-9;
        let sum = |of: fn(&Published) -> u64| notes.published.values().map(of).sum::<u64>();
        let published = notes.published.values().map(|one| one.done_ns).max();
        let read = notes
            .members
            .iter()
            .filter(|((of, group, _), _)| *of == id && !self.plan.is_stalled(*group, visit));
        let results = notes.results.get(&id);
        let Some(figures) = self.visits.last_mut() else { return Ok(()) };
        *figures = VisitFigures {
            visit: id,
            shutter_ns,
            alerts: sum(|one| one.alerts),
            bytes: sum(|one| one.bytes),
            published_s: published.map_or(0.0, since),
            read_s: read.map(|(_, at_ns)| *at_ns).max().map_or(0.0, since),
            closed_s: notes.decided.get(&id).map_or(0.0, |decided| since(decided.at_ns)),
            result_s: results.map_or([0.0; 3], |results| results.age_s),
            results: results.map_or(0, |of| of.users.values().map(|user| user.received).sum()),
            result_bytes: results.map_or(0, |results| results.bytes),
            killed,
            failed,
            prepared_s: figures.prepared_s,
        };
        let line = format!(
            "visit {id}: {} alerts, {} published in {:.2} s, read by all groups in {:.2} s; {} \
             results in {:.2} s",
            human_count(figures.alerts),
            human_bytes(figures.bytes as f64),
            figures.published_s,
            figures.read_s,
            human_count(figures.results),
            figures.result_s[2],
        );
        self.story.print(line)
    }

    /// Has the witness go back to the second visit, and read all again from there.
    fn rewind(&mut self) -> CliResult {
        let (to, until) = (1.min(self.sizes.visits - 1), self.sizes.visits - 1);
        let (to, until) = (Survey::visit(to), Survey::visit(until));
        self.cast.witness(&WitnessOrder::Rewind { to, until })?;
        self.story.doing(|| format!("back to visit {to}"));
        self.cast.until("the rewind", |notes| notes.rewound.is_some())?;
        let rewound = self.cast.notes.rewound.clone();
        let seconds = rewound.map_or(0.0, |rewound| rewound.seconds);
        self.story.print(format!("back to visit {to}: its first alert after {seconds:.3} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_drawn_within_the_night() {
        for visits in 1..7 {
            let sizes = Sizes { visits, alerts: 9, producers: 4, groups: 2, members: 1, users: 10 };
            for seed in 0..50 {
                let plan = Plan::draw(&sizes, seed);
                assert_eq!(plan.killed.len(), 3);
                let fits = |(visit, detector): &(u16, u16)| *visit < visits && *detector < 4;
                assert!(plan.killed.iter().all(fits), "{plan:?}");
                assert!(plan.stall.0 <= plan.stall.1 && plan.stall.1 < visits, "{plan:?}");
                assert!(plan.member_kill < visits && plan.stalled.0 != plan.killed_member.0);
                assert!(visits == 1 || plan.killed_in(0).is_empty(), "{plan:?}");
            }
        }
    }
}
