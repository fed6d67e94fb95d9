//! The users: each has a connection and a thread that receives its results. The main thread
//! compares every result with the packet that was generated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use helio_alert_filters::records::Summary;
use helio_alert_filters::targets::{ALERT_HEADER, STAGE_HEADERS, VISIT_HEADER};
use helio_alert_filters::{Topics, VisitStatistics};
use helio_alerts::generator::{Generator, WithStamps};
use helio_alerts::visit::{PayloadHash, payload_hash};
use helio_bus::{Event, Lagging, Sample, Start, Subscribe, TopicError, TopicSpec};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::worker::{orders, say};

use super::member::rest;
use super::messages::{End, Survey, UserResults, UsersReply, UsersTask, VisitResults};

/// How often a user's thread, and the main one, check whether to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Results on their way to the main thread.
const MAX_PENDING: usize = 4_096;

/// The results that a thread received.
enum Received {
    Connected,
    Result(UserResult),
    Summary(Box<Summary>),
    Failed(CliError),
}

struct UserResult {
    user: usize,
    visit: i64,
    alert: i64,
    bytes: u64,
    hash: PayloadHash,
    age_s: f64,
}

/// Runs the process.
pub(super) fn run(task: &UsersTask) -> CliResult {
    let (sender, received) = sync_channel(MAX_PENDING);
    for (number, user) in task.users.iter().enumerate() {
        let (survey, user, to) = (task.survey.clone(), user.clone(), sender.clone());
        spawn(move || follow_results(&survey, &user, number, &to), received_failure(&sender));
    }
    let survey = task.survey.clone();
    let to = sender.clone();
    spawn(move || follow_summaries(&survey, &to), received_failure(&sender));
    let mut users = Users {
        names: &task.users,
        generator: task.survey.generator(WithStamps::Fits),
        packets: HashMap::new(),
        pending: BTreeMap::new(),
        done: BTreeSet::new(),
        excess: 0,
    };
    users.run(&received)
}

fn received_failure(sender: &SyncSender<Received>) -> impl FnOnce(CliError) + Send + 'static {
    let sender = sender.clone();
    // The main thread may have ended.
    move |error| _ = sender.send(Received::Failed(error))
}

fn spawn(
    run: impl FnOnce() -> CliResult + Send + 'static,
    failed: impl FnOnce(CliError) + Send + 'static,
) {
    std::thread::spawn(move || run().unwrap_or_else(failed));
}

/// Receives a user's results, until the main thread ends.
fn follow_results(
    survey: &Survey,
    user: &str,
    number: usize,
    sender: &SyncSender<Received>,
) -> CliResult {
    let bus = open::connect(Some(&survey.url), Some(user))?;
    let topic = bus.topic(TopicSpec::new(&Topics::of(&survey.topic).results(user))?)?;
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless).as_written();
    let mut results = topic.subscribe(options)?;
    if sender.send(Received::Connected).is_err() {
        return Ok(());
    }
    loop {
        let Some(Event::Sample(sample)) = results.next_timeout(POLL_INTERVAL)? else { continue };
        let now_ns = bus.clock().now().nanos();
        let number_of = |name| header(&sample, name).unwrap_or_default();
        let result = UserResult {
            user: number,
            visit: number_of(VISIT_HEADER),
            alert: number_of(ALERT_HEADER),
            bytes: sample.payload.len() as u64,
            hash: payload_hash(&sample.payload),
            age_s: (now_ns - number_of(STAGE_HEADERS[0])) as f64 * 1e-9,
        };
        if sender.send(Received::Result(result)).is_err() {
            return Ok(());
        }
    }
}

fn header(sample: &Sample, name: &str) -> Option<i64> {
    std::str::from_utf8(sample.headers.as_ref().get(name)?).ok()?.parse().ok()
}

/// Receives the summaries of decided visits.
fn follow_summaries(survey: &Survey, sender: &SyncSender<Received>) -> CliResult {
    let bus = open::connect(Some(&survey.url), Some("users-summaries"))?;
    let name = Topics::of(&survey.topic).summaries();
    let topic = loop {
        match bus.topic(TopicSpec::new(&name)?) {
            Err(TopicError::NoSuchTopic(_)) => std::thread::sleep(POLL_INTERVAL),
            opened => break opened?,
        }
    };
    let mut summaries = topic.subscribe(Subscribe::from(Start::Earliest))?;
    loop {
        let Some(Event::Sample(sample)) = summaries.next_timeout(POLL_INTERVAL)? else { continue };
        let summary = serde_json::from_slice(&sample.payload);
        let summary = summary.map_err(|e| CliError::Failure(format!("a summary: {e}")))?;
        if sender.send(Received::Summary(summary)).is_err() {
            return Ok(());
        }
    }
}

/// The results of a visit that is not complete.
#[derive(Default)]
struct Pending {
    summary: Option<Box<Summary>>,
    /// Of each user.
    alerts: BTreeMap<usize, BTreeSet<i64>>,
    bytes: u64,
    differing: u64,
    repeated: u64,
    ages_s: Vec<f64>,
}

struct Users<'a> {
    names: &'a [String],
    generator: Generator,
    /// The hashes of packets that users received, of visits that are not complete.
    packets: HashMap<i64, PayloadHash>,
    pending: BTreeMap<i64, Pending>,
    done: BTreeSet<i64>,
    excess: u64,
}

impl Users<'_> {
    fn run(&mut self, received: &Receiver<Received>) -> CliResult {
        let (orders, mut connected) = (orders::<End>(), 0);
        loop {
            match received.recv_timeout(POLL_INTERVAL) {
                Ok(Received::Connected) => {
                    connected += 1;
                    if connected == self.names.len() {
                        say(&UsersReply::Ready)?;
                    }
                }
                Ok(Received::Result(result)) => self.take(&result)?,
                Ok(Received::Summary(summary)) => {
                    let visit = summary.visit;
                    self.pending.entry(visit).or_default().summary = Some(summary);
                    self.settle(visit)?;
                }
                Ok(Received::Failed(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) if orders.try_recv().is_ok() => {
                    say(&UsersReply::End { excess: self.excess })?;
                    rest(&orders);
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn take(&mut self, result: &UserResult) -> CliResult {
        let UserResult { visit, alert, .. } = *result;
        if self.done.contains(&visit) {
            self.excess += 1;
            return Ok(());
        }
        let is_equal = self.packet(alert) == Some(result.hash);
        let pending = self.pending.entry(visit).or_default();
        let is_new = pending.alerts.entry(result.user).or_default().insert(alert);
        pending.repeated += u64::from(!is_new);
        pending.differing += u64::from(!is_equal);
        pending.bytes += result.bytes;
        pending.ages_s.push(result.age_s);
        self.settle(visit)
    }

    /// The hash of an alert's packet as it was generated.
    fn packet(&mut self, alert: i64) -> Option<PayloadHash> {
        if let Some(hash) = self.packets.get(&alert) {
            return Some(*hash);
        }
        let mut datum = Vec::new();
        self.generator.write(Survey::number(alert)?, &mut datum);
        let hash = payload_hash(&datum);
        self.packets.insert(alert, hash);
        Some(hash)
    }

    /// Reports a visit, once each user has what the summary counts.
    fn settle(&mut self, visit: i64) -> CliResult {
        let Some(pending) = self.pending.get(&visit) else { return Ok(()) };
        let Some(summary) = &pending.summary else { return Ok(()) };
        let received =
            |number: usize| pending.alerts.get(&number).map_or(0, |alerts| alerts.len() as u64);
        let announced = |user: &String| summary.results.get(user).copied().unwrap_or_default();
        let mut numbered = self.names.iter().enumerate();
        if numbered.any(|(number, user)| received(number) < announced(user)) {
            return Ok(());
        }
        let of = |(number, user): (usize, &String)| {
            let mut filter = VisitStatistics::default();
            let filters = summary.filters.get(user).into_iter().flatten();
            filters.for_each(|(_, one)| filter.add(one));
            (user.clone(), UserResults { received: received(number), filter })
        };
        let results = VisitResults {
            visit,
            users: self.names.iter().enumerate().map(of).collect(),
            bytes: pending.bytes,
            differing: pending.differing,
            repeated: pending.repeated,
            age_s: ages(&pending.ages_s),
        };
        self.pending.remove(&visit);
        self.packets.clear();
        self.done.insert(visit);
        say(&UsersReply::Visit(Box::new(results)))
    }
}

/// The median, 99 % and the most.
fn ages(ages_s: &[f64]) -> [f64; 3] {
    let mut sorted = ages_s.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |share: f64| sorted.get((last as f64 * share).round() as usize).copied();
    [0.5, 0.99, 1.0].map(|share| at(share).unwrap_or_default())
}
