//! The demo's processes, and what they have said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use helio_console::error::{CliError, CliResult};
use helio_console::stop::Stop;
use helio_console::worker::Worker;
use serde::Serialize;

use super::messages::{
    Decided, End, FilterTask, MemberReply, MemberTask, ProducerOrder, ProducerReply, ProducerTask,
    Published, ReadTotal, Rewound, ServiceReply, Stamped, StampsTask, Survey, UsersReply,
    UsersTask, VisitResults, WitnessOrder, WitnessReply, WitnessTask,
};
use super::usage::Meter;

/// The longest silence of all processes while one is awaited; no slow machine takes that long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(180);
/// How often pipes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The contents of the processes' replies.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Processes that are ready.
    ready: usize,
    /// Producers whose packets of the visit are made.
    pub(super) prepared: BTreeSet<u16>,
    /// Of the present visit, by detector.
    pub(super) published: BTreeMap<u16, Published>,
    /// Detectors of which the witness has read an alert, by visit.
    pub(super) seen: BTreeSet<(i64, i32)>,
    /// When a member had a visit, by visit, group and number.
    pub(super) members: BTreeMap<(i64, u16, u16), i64>,
    pub(super) decided: BTreeMap<i64, Decided>,
    pub(super) results: BTreeMap<i64, VisitResults>,
    pub(super) rewound: Option<Rewound>,
    /// The totals of readers that have ended, by role.
    pub(super) read: BTreeMap<&'static str, Vec<ReadTotal>>,
    /// The counters of the filter service.
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) excess_results: u64,
    ended: usize,
}

/// A member of a group.
struct Member {
    group: u16,
    number: u16,
    worker: Worker,
}

/// All processes.
pub(super) struct Cast {
    stop: Stop,
    survey: Survey,
    meter: Meter,
    producers: Vec<Worker>,
    members: Vec<Member>,
    witness: Worker,
    /// The filter service, and the one that serves stamps.
    services: Vec<Worker>,
    users: Option<Worker>,
    pub(super) notes: Notes,
}

/// How many processes of which kind.
pub(super) struct Numbers<'a> {
    pub(super) groups: u16,
    pub(super) members: u16,
    pub(super) filter_processes: u16,
    pub(super) python: &'a str,
    pub(super) users: Vec<String>,
}

/// The name of a group.
pub(super) fn group(number: u16) -> String {
    format!("group-{}", number + 1)
}

impl Cast {
    /// Starts all processes; they are ready when this returns.
    pub(super) fn start(survey: &Survey, numbers: Numbers<'_>, stop: &Stop) -> CliResult<Self> {
        let meter = Meter::start();
        let starter = Starter { meter: &meter, stop };
        let task = WitnessTask { survey: survey.clone() };
        let witness = starter.start("demo-witness", "witness", "witness", &task)?;
        let pairs = (0..numbers.groups).flat_map(|g| (0..numbers.members).map(move |m| (g, m)));
        let member = |(group, number)| {
            Ok(Member { group, number, worker: starter.member(survey, group, number)? })
        };
        let members = pairs.map(member).collect::<CliResult<Vec<_>>>()?;
        let filter = |number| {
            let name = format!("filters-{number}");
            let python = numbers.python.to_owned();
            let task = FilterTask { survey: survey.clone(), name: name.clone(), python };
            starter.start("demo-filters", "filter service", &name, &task)
        };
        let mut services =
            (1..=numbers.filter_processes).map(filter).collect::<CliResult<Vec<_>>>()?;
        if survey.stamped == Stamped::Url {
            let task = StampsTask { survey: survey.clone() };
            services.push(starter.start("demo-stamps", "stamps service", "stamps", &task)?);
        }
        let users = (!numbers.users.is_empty()).then(|| {
            let task = UsersTask { survey: survey.clone(), users: numbers.users };
            starter.start("demo-users", "users", "users", &task)
        });
        let users = users.transpose()?;
        let producer = |detector| starter.producer(survey, detector);
        let producers = (0..survey.detectors).map(producer).collect::<CliResult<Vec<_>>>()?;
        let (stop, survey, notes) = (stop.clone(), survey.clone(), Notes::default());
        let mut cast =
            Self { stop, survey, meter, producers, members, witness, services, users, notes };
        let all = cast.len();
        cast.until("the processes to be ready", |notes| notes.ready == all)?;
        Ok(cast)
    }

    /// What follows the processes.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The number of its processes.
    pub(super) fn len(&self) -> usize {
        let users = usize::from(self.users.is_some());
        1 + users + self.members.len() + self.services.len() + self.producers.len()
    }

    /// Waits until something is so.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Notes) -> bool) -> CliResult {
        self.until_mut(what, |cast| Ok(is_so(&cast.notes)))
    }

    /// The same for a check that uses the processes, or the bus.
    pub(super) fn until_mut(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> CliResult<bool>,
    ) -> CliResult {
        let mut last_reply = Instant::now();
        loop {
            let any = self.collect()?;
            if is_so(self)? {
                return Ok(());
            }
            self.stop.check()?;
            if any {
                last_reply = Instant::now();
            } else if last_reply.elapsed() > SILENCE_TIMEOUT {
                let text = format!("the demo waits for {what}, and no process reports anything");
                return Err(CliError::Failure(text));
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Collects the replies; returns whether there was one.
    fn collect(&mut self) -> CliResult<bool> {
        let (notes, mut any) = (&mut self.notes, false);
        for (detector, worker) in (0..).zip(&mut self.producers) {
            while let Some(reply) = worker.try_reply()? {
                notes.producer(detector, reply);
                any = true;
            }
        }
        for Member { group, number, worker } in &mut self.members {
            while let Some(reply) = worker.try_reply()? {
                notes.member(*group, *number, reply);
                any = true;
            }
        }
        while let Some(reply) = self.witness.try_reply()? {
            notes.witness(reply);
            any = true;
        }
        for worker in &mut self.services {
            while let Some(reply) = worker.try_reply()? {
                notes.services(reply);
                any = true;
            }
        }
        if let Some(worker) = &mut self.users {
            while let Some(reply) = worker.try_reply()? {
                notes.users(reply);
                any = true;
            }
        }
        Ok(any)
    }

    /// Has all producers make the packets of a visit.
    pub(super) fn prepare(&mut self, visit: u16) -> CliResult {
        self.forget_published();
        let mut all = self.producers.iter_mut();
        all.try_for_each(|producer| producer.order(&ProducerOrder::Prepare { visit }))
    }

    /// Forgets what producers have done in the visit before.
    pub(super) fn forget_published(&mut self) {
        self.notes.prepared.clear();
        self.notes.published.clear();
    }

    /// Has one producer make the packets of a visit.
    pub(super) fn prepare_one(&mut self, detector: u16, visit: u16) -> CliResult {
        self.producers[usize::from(detector)].order(&ProducerOrder::Prepare { visit })
    }

    /// Has a producer publish.
    pub(super) fn publish(&mut self, detector: u16, shutter_ns: i64) -> CliResult {
        self.producers[usize::from(detector)].order(&ProducerOrder::Publish { shutter_ns })
    }

    /// Kills a producer, and starts it again: it makes the visit's packets again, and publishes
    /// them.
    pub(super) fn kill_producer(
        &mut self,
        detector: u16,
        visit: u16,
        shutter_ns: i64,
    ) -> CliResult {
        let starter = Starter { meter: &self.meter, stop: &self.stop };
        // The old one is killed when it is replaced: two under one name must not run.
        let old = &mut self.producers[usize::from(detector)];
        self.meter.retire(old.id());
        old.kill_now()?;
        *old = starter.producer(&self.survey, detector)?;
        // It may have published all, and said so.
        self.notes.published.remove(&detector);
        old.order(&ProducerOrder::Prepare { visit })?;
        old.order(&ProducerOrder::Publish { shutter_ns })
    }

    fn member_mut(&mut self, group: u16, number: u16) -> CliResult<&mut Member> {
        let mut all = self.members.iter_mut();
        let found = all.find(|member| (member.group, member.number) == (group, number));
        found.ok_or_else(|| CliError::Failure(format!("group {group} has no member {number}")))
    }

    /// Kills a member, and starts it again.
    pub(super) fn kill_member(&mut self, group: u16, number: u16) -> CliResult {
        let id = self.member_mut(group, number)?.worker.id();
        self.meter.retire(id);
        self.member_mut(group, number)?.worker.kill_now()?;
        let starter = Starter { meter: &self.meter, stop: &self.stop };
        let worker = starter.member(&self.survey, group, number)?;
        self.member_mut(group, number)?.worker = worker;
        Ok(())
    }

    /// Suspends a member (SIGSTOP).
    pub(super) fn pause(&mut self, group: u16, number: u16) -> CliResult {
        self.member_mut(group, number)?.worker.pause()
    }

    /// Resumes it.
    pub(super) fn resume(&mut self, group: u16, number: u16) -> CliResult {
        self.member_mut(group, number)?.worker.resume()
    }

    /// Suspends all members, and the witness.
    pub(super) fn pause_readers(&mut self) -> CliResult {
        self.readers().try_for_each(|one| one.pause())
    }

    /// Resumes them.
    pub(super) fn resume_readers(&mut self) -> CliResult {
        self.readers().try_for_each(|one| one.resume())
    }

    fn readers(&mut self) -> impl Iterator<Item = &mut Worker> {
        let members = self.members.iter_mut().map(|member| &mut member.worker);
        members.chain([&mut self.witness])
    }

    /// Has the witness do something.
    pub(super) fn witness(&mut self, order: &WitnessOrder) -> CliResult {
        self.witness.order(order)
    }

    /// Ends all processes in order; returns what was noted, and what they used.
    pub(super) fn end(mut self) -> CliResult<(Notes, Meter)> {
        for producer in std::mem::take(&mut self.producers) {
            self.meter.retire(producer.id());
            producer.finish()?;
        }
        self.witness.order(&WitnessOrder::End)?;
        let mut others: Vec<&mut Worker> =
            self.members.iter_mut().map(|member| &mut member.worker).collect();
        others.extend(&mut self.services);
        others.extend(&mut self.users);
        others.iter_mut().try_for_each(|worker| worker.order(&End::End))?;
        let all = others.len() + 1;
        self.until("the processes to end", |notes| notes.ended == all)?;
        let members = self.members.into_iter().map(|member| member.worker);
        let all = members.chain(self.services).chain([self.witness]).chain(self.users);
        for worker in all {
            self.meter.retire(worker.id());
            worker.finish()?;
        }
        Ok((self.notes, self.meter))
    }
}

/// Starts processes and follows what they use.
struct Starter<'a> {
    meter: &'a Meter,
    stop: &'a Stop,
}

impl Starter<'_> {
    fn start(
        &self,
        kind: &str,
        role: &'static str,
        name: &str,
        task: &impl Serialize,
    ) -> CliResult<Worker> {
        let worker = Worker::start(kind, name, task, self.stop)?;
        self.meter.add(worker.id(), role);
        Ok(worker)
    }

    fn producer(&self, survey: &Survey, detector: u16) -> CliResult<Worker> {
        let task = ProducerTask { survey: survey.clone(), detector };
        self.start("demo-producer", "producers", &format!("ccd-{detector}"), &task)
    }

    fn member(&self, survey: &Survey, of: u16, number: u16) -> CliResult<Worker> {
        let (group, name) = (group(of), format!("{}-member-{}", group(of), number + 1));
        let task = MemberTask { survey: survey.clone(), group, name: name.clone() };
        self.start("demo-member", "groups", &name, &task)
    }
}

impl Notes {
    fn producer(&mut self, detector: u16, reply: ProducerReply) {
        match reply {
            ProducerReply::Ready => self.ready += 1,
            ProducerReply::Prepared => _ = self.prepared.insert(detector),
            ProducerReply::Published(published) => {
                self.published.insert(detector, published);
            }
        }
    }

    fn member(&mut self, group: u16, number: u16, reply: MemberReply) {
        match reply {
            MemberReply::Ready => self.ready += 1,
            MemberReply::Decided { visit, at_ns } => {
                self.members.insert((visit, group, number), at_ns);
            }
            MemberReply::End(total) => self.end("groups", total),
        }
    }

    fn witness(&mut self, reply: WitnessReply) {
        match reply {
            WitnessReply::Ready => self.ready += 1,
            WitnessReply::Seen { visit, detector } => _ = self.seen.insert((visit, detector)),
            WitnessReply::Decided(decided) => _ = self.decided.insert(decided.visit, decided),
            WitnessReply::Rewound(rewound) => self.rewound = Some(rewound),
            WitnessReply::End(total) => self.end("witness", total),
        }
    }

    fn services(&mut self, reply: ServiceReply) {
        match reply {
            ServiceReply::Ready => self.ready += 1,
            ServiceReply::End(counters) => {
                self.ended += 1;
                for (name, count) in counters {
                    *self.counters.entry(name).or_default() += count;
                }
            }
        }
    }

    fn users(&mut self, reply: UsersReply) {
        match reply {
            UsersReply::Ready => self.ready += 1,
            UsersReply::Visit(results) => _ = self.results.insert(results.visit, *results),
            UsersReply::End { excess } => {
                self.ended += 1;
                self.excess_results = excess;
            }
        }
    }

    fn end(&mut self, role: &'static str, total: ReadTotal) {
        self.ended += 1;
        self.read.entry(role).or_default().push(total);
    }
}
