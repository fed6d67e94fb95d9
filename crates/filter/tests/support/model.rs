//! Processes, partitions, logs and a target, run in a random order with kills, against a reference
//! that sees everything at once.

use std::collections::{BTreeMap, BTreeSet};

use helio_filter::cap::{
    CAP, Candidate, Claim, ClaimEffect, Claims, Match, Partial, Publish, Ranking, Worker,
    WorkerEffect,
};
use helio_filter::{Key, Rank};

use super::Random;

/// Steps in which processes are killed: a restarted one reads its log from the start, and would
/// never come to its end.
const KILLED_STEPS: usize = 1_500;

/// A result: visit, user, alert.
pub(crate) type Result = (i64, String, i64);

/// An alert in a partition.
#[derive(Debug, Clone)]
struct Alert {
    visit: i64,
    id: i64,
    /// The users whose filters it matches.
    users: Vec<String>,
}

#[derive(Debug, Clone)]
enum Control {
    End { visit: i64, ends: Vec<u64> },
    Partial(Partial),
}

#[derive(Debug)]
pub(crate) struct World {
    random: Random,
    partitions: Vec<Vec<Alert>>,
    control: Vec<Control>,
    claims: Vec<Record>,
    pub(crate) target: Vec<Result>,
    pub(crate) late: BTreeSet<Result>,
    ends: BTreeMap<i64, Vec<u64>>,
}

#[derive(Debug, Clone)]
enum Record {
    Claim(Claim),
    End(i64),
}

/// A rank is a function of the alert, with ties, NaN and null.
fn rank(alert: i64) -> Rank {
    let key = match alert % 11 {
        0 => Key::Null,
        1 => Key::Nan,
        _ => Key::Number((alert.wrapping_mul(7919) % 97).unsigned_abs()),
    };
    Rank(vec![key])
}

fn candidate(alert: i64) -> Candidate {
    Candidate { alert, rank: rank(alert), filters: ["f-1".to_owned()].into() }
}

impl World {
    /// Visits of alerts in partitions, with duplicates; some come after their visit's end.
    pub(crate) fn new(seed: u64, partitions: usize, visits: i64, alerts: usize) -> Self {
        let mut random = Random::new(seed);
        let mut logs: Vec<Vec<Alert>> = vec![Vec::new(); partitions];
        for number in 0..visits as usize * alerts {
            let id =
                (number - if number > 0 { random.below(20).min(number) % 5 } else { 0 }) as i64;
            // A duplicate is of the same visit and partition, and matches the same users.
            let visit = id / alerts as i64 + 1;
            let users = (0..3).filter(|user| (id + user) % (user + 2) == 0);
            let users = users.map(|user| format!("user{user}")).collect();
            logs[id as usize % partitions].push(Alert { visit, id, users });
        }
        // Visits overlap a little: neighbours change places.
        for log in &mut logs {
            for at in 1..log.len() {
                if random.below(3) == 0 {
                    log.swap(at - 1, at);
                }
            }
        }
        let mut ends = BTreeMap::new();
        for visit in 1..=visits {
            let end = |log: &Vec<Alert>, random: &mut Random| {
                let last =
                    log.iter().rposition(|alert| alert.visit == visit).map_or(0, |at| at + 1);
                (last - random.below(6).min(last)) as u64
            };
            ends.insert(visit, logs.iter().map(|log| end(log, &mut random)).collect());
        }
        let (control, claims, target) = (Vec::new(), Vec::new(), Vec::new());
        Self { random, partitions: logs, control, claims, target, late: BTreeSet::new(), ends }
    }

    /// The result of ranking with everything in one place.
    pub(crate) fn ranked_reference(&self) -> BTreeSet<Result> {
        let mut all: BTreeMap<(i64, String), BTreeSet<(Rank, i64)>> = BTreeMap::new();
        for (visit, user, alert, _) in self.matches(|position, end| position < end) {
            all.entry((visit, user)).or_default().insert((rank(alert), alert));
        }
        let best = all.into_iter().flat_map(|((visit, user), ranked)| {
            let best = ranked.into_iter().take(CAP);
            best.map(move |(_, alert)| (visit, user.clone(), alert)).collect::<Vec<_>>()
        });
        best.collect()
    }

    /// Every match that came only behind its visit's end is late. A copy of one that came in time
    /// may be reported, too.
    pub(crate) fn assert_late(&self) {
        let all = |is: fn(u64, u64) -> bool| -> BTreeSet<Result> {
            self.matches(is).map(|(visit, user, alert, _)| (visit, user, alert)).collect()
        };
        let (in_time, late) = (all(|position, end| position < end), all(|p, end| p >= end));
        assert!(self.late.is_subset(&late), "{:?}", self.late.difference(&late));
        let only_late: BTreeSet<_> = late.difference(&in_time).cloned().collect();
        assert!(only_late.is_subset(&self.late), "{:?}", only_late.difference(&self.late));
    }

    fn matches<'a>(
        &'a self,
        is: impl Fn(u64, u64) -> bool + 'a,
    ) -> impl Iterator<Item = (i64, String, i64, usize)> + 'a {
        let is = std::rc::Rc::new(is);
        self.partitions.iter().enumerate().flat_map(move |(partition, log)| {
            let is = is.clone();
            let in_time = log.iter().enumerate().filter(move |(position, alert)| {
                is(*position as u64, self.ends[&alert.visit][partition])
            });
            in_time.flat_map(move |(_, alert)| {
                let user = move |user: &String| (alert.visit, user.clone(), alert.id, partition);
                alert.users.iter().map(user).collect::<Vec<_>>()
            })
        })
    }

    /// Runs ranking with so many processes, killing them (and the publisher) so often of 100 steps.
    pub(crate) fn run_ranked(&mut self, processes: usize, kills: usize) {
        let mut saved = vec![0_u64; self.partitions.len()];
        let mut workers: Vec<Process> = (0..processes).map(|_| Process::default()).collect();
        let mut owners: Vec<usize> = (0..self.partitions.len()).map(|p| p % processes).collect();
        for (partition, owner) in owners.iter().enumerate() {
            workers[*owner].assign(partition, 0);
        }
        let mut publisher = Publisher::new(self);
        let mut unannounced: Vec<i64> = self.ends.keys().copied().collect();
        let mut steps = 0;
        loop {
            steps += 1;
            let killed = self.random.below(100) < if steps < KILLED_STEPS { kills } else { 0 };
            match self.random.below(5) {
                0 if !unannounced.is_empty() => {
                    let visit = unannounced.remove(self.random.below(unannounced.len()));
                    let ends = self.ends[&visit].clone();
                    self.control.push(Control::End { visit, ends });
                }
                0 | 1 => {
                    if publisher.step(self, killed) {
                        publisher = Publisher::new(self);
                    }
                }
                2 if killed => {
                    let partition = self.random.below(owners.len());
                    workers[owners[partition]].revoke(partition);
                    owners[partition] = self.random.below(processes);
                    workers[owners[partition]].assign(partition, saved[partition]);
                }
                _ => {
                    let index = self.random.below(processes);
                    if workers[index].step(self, &mut saved, killed) {
                        workers[index] = Process::default();
                        for (partition, _) in
                            owners.iter().enumerate().filter(|(_, o)| **o == index)
                        {
                            workers[index].assign(partition, saved[partition]);
                        }
                    }
                }
            }
            let is_read = workers.iter().all(|worker| worker.is_done(self));
            if unannounced.is_empty() && is_read && publisher.read == self.control.len() {
                return;
            }
            assert!(steps < 1_000_000, "the run does not end: {workers:?}");
        }
    }

    /// Runs claims with so many processes; returns the distinct claims of each visit and user in
    /// the log's order, for the reference.
    pub(crate) fn run_claims(&mut self, processes: usize, kills: usize) -> BTreeSet<Result> {
        let mut saved = vec![0_usize; self.partitions.len()];
        let mut coordinator = Coordinator::new(self);
        let mut unannounced: Vec<i64> = self.ends.keys().copied().collect();
        for step in 0.. {
            // Kills stop at some time, so that the run ends.
            let killed = self.random.below(100) < if step < KILLED_STEPS { kills } else { 0 };
            match self.random.below(processes + 2) {
                0 => {
                    if coordinator.step(self, killed) {
                        coordinator = Coordinator::new(self);
                    }
                }
                1 => self.end_a_visit(&saved, &mut unannounced),
                _ => {
                    let partition = self.random.below(saved.len());
                    self.claim(partition, &mut saved[partition], killed);
                }
            }
            let is_read = saved.iter().zip(&self.partitions).all(|(read, log)| *read == log.len());
            if is_read && unannounced.is_empty() && coordinator.read == self.claims.len() {
                break;
            }
        }
        self.granted_reference()
    }

    fn end_a_visit(&mut self, saved: &[usize], unannounced: &mut Vec<i64>) {
        let Some(visit) = unannounced.first().copied() else { return };
        let ends = &self.ends[&visit];
        if saved.iter().zip(ends).all(|(read, end)| *read as u64 >= *end) {
            self.claims.push(Record::End(visit));
            unannounced.remove(0);
        }
    }

    /// A process claims the next alert; killed before it saves its position, it claims it again.
    fn claim(&mut self, partition: usize, saved: &mut usize, killed: bool) {
        let Some(alert) = self.partitions[partition].get(*saved).cloned() else { return };
        for user in alert.users {
            let filters = BTreeSet::new();
            let claim = Claim { visit: alert.visit, user, alert: alert.id, filters };
            self.claims.push(Record::Claim(claim));
            if killed {
                return;
            }
        }
        *saved += 1;
    }

    fn granted_reference(&self) -> BTreeSet<Result> {
        let mut granted: BTreeMap<(i64, String), Vec<i64>> = BTreeMap::new();
        let mut ended = BTreeSet::new();
        for record in &self.claims {
            match record {
                Record::End(visit) => drop(ended.insert(*visit)),
                Record::Claim(claim) => {
                    let of_user = granted.entry((claim.visit, claim.user.clone())).or_default();
                    let is_open = !ended.contains(&claim.visit) && of_user.len() < CAP;
                    if is_open && !of_user.contains(&claim.alert) {
                        of_user.push(claim.alert);
                    }
                }
            }
        }
        let all = granted.into_iter().flat_map(|((visit, user), alerts)| {
            alerts.into_iter().map(move |alert| (visit, user.clone(), alert)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// The target holds each result once.
    pub(crate) fn assert_no_duplicates(&self) {
        let distinct: BTreeSet<_> = self.target.iter().collect();
        assert_eq!(distinct.len(), self.target.len(), "a result was published twice");
    }
}

/// A filter process of the model.
#[derive(Debug, Default)]
struct Process {
    worker: Worker,
    control: usize,
    cursors: BTreeMap<usize, u64>,
}

impl Process {
    fn assign(&mut self, partition: usize, position: u64) {
        self.worker.assign(partition as u32, position);
        self.cursors.insert(partition, position);
        // The control log is read again for the new partition.
        self.control = 0;
    }

    fn revoke(&mut self, partition: usize) {
        self.worker.revoke(partition as u32);
        self.cursors.remove(&partition);
    }

    fn is_done(&self, world: &World) -> bool {
        let is_read =
            |(partition, at): (&usize, &u64)| *at == world.partitions[*partition].len() as u64;
        self.control == world.control.len() && self.cursors.iter().all(is_read)
    }

    /// One record of the control log or of a partition; true where it was killed.
    fn step(&mut self, world: &mut World, saved: &mut [u64], killed: bool) -> bool {
        let effects =
            if world.random.below(3) == 0 { self.read_control(world) } else { self.read(world) };
        if killed && world.random.below(2) == 0 {
            return true;
        }
        for effect in effects {
            match effect {
                WorkerEffect::Append(partial) => world.control.push(Control::Partial(partial)),
                WorkerEffect::Late { visit, user, alert } => {
                    world.late.insert((visit, user, alert));
                }
            }
        }
        if killed {
            return true;
        }
        if world.random.below(2) == 0 {
            for partition in self.cursors.keys() {
                saved[*partition] = self.worker.resume_position(*partition as u32).unwrap();
            }
        }
        false
    }

    fn read_control(&mut self, world: &World) -> Vec<WorkerEffect> {
        let Some(record) = world.control.get(self.control) else { return Vec::new() };
        self.control += 1;
        match record {
            Control::End { visit, ends } => {
                let ends = ends.iter().enumerate();
                ends.flat_map(|(p, end)| self.worker.end(*visit, p as u32, *end)).collect()
            }
            Control::Partial(partial) => {
                self.worker.stored(partial.visit, partial.partition);
                Vec::new()
            }
        }
    }

    fn read(&mut self, world: &mut World) -> Vec<WorkerEffect> {
        if self.cursors.is_empty() {
            return Vec::new();
        }
        let which = world.random.below(self.cursors.len());
        let (partition, at) = self.cursors.iter_mut().nth(which).unwrap();
        let Some(alert) = world.partitions[*partition].get(*at as usize) else { return Vec::new() };
        let mut effects = Vec::new();
        for user in &alert.users {
            effects.extend(self.worker.take(Match {
                partition: *partition as u32,
                position: *at,
                visit: alert.visit,
                user: user.clone(),
                candidate: candidate(alert.id),
            }));
        }
        *at += 1;
        effects.extend(self.worker.read_up_to(*partition as u32, *at));
        effects
    }
}

#[derive(Debug)]
struct Publisher {
    ranking: Ranking,
    read: usize,
}

impl Publisher {
    fn new(world: &World) -> Self {
        let mut ranking = Ranking::new(world.partitions.len() as u32);
        for (visit, user, alert) in &world.target {
            ranking.published(*visit, user, *alert);
        }
        Self { ranking, read: 0 }
    }

    /// One record of the control log; killed, it publishes a part and is restarted.
    fn step(&mut self, world: &mut World, killed: bool) -> bool {
        let Some(record) = world.control.get(self.read).cloned() else { return false };
        self.read += 1;
        let Control::Partial(partial) = record else { return false };
        for Publish { visit, user, chosen } in self.ranking.take(partial) {
            for candidate in chosen {
                if killed && world.random.below(4) == 0 {
                    return true;
                }
                world.target.push((visit, user.clone(), candidate.alert));
            }
        }
        killed
    }
}

#[derive(Debug)]
struct Coordinator {
    claims: Claims,
    read: usize,
}

impl Coordinator {
    fn new(world: &World) -> Self {
        let mut claims = Claims::default();
        for (visit, user, alert) in &world.target {
            claims.published(*visit, user, *alert);
        }
        Self { claims, read: 0 }
    }

    fn step(&mut self, world: &mut World, killed: bool) -> bool {
        let Some(record) = world.claims.get(self.read).cloned() else { return false };
        self.read += 1;
        match record {
            Record::End(visit) => self.claims.end(visit),
            Record::Claim(claim) => {
                let effect = self.claims.take(&claim);
                if killed && world.random.below(2) == 0 {
                    return true;
                }
                if effect == ClaimEffect::Publish {
                    world.target.push((claim.visit, claim.user, claim.alert));
                }
            }
        }
        killed
    }
}
