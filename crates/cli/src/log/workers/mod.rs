//! Producer and client processes of the log demo and the log bench: started, suspended and resumed,
//! and accounted for.
//!
//! Producers count the records that they log by level, clients those that they receive. A client is
//! done when delivered, filtered and reported drops add up to the producers' counts.

pub(crate) mod accounting;
pub(crate) mod client;
pub(crate) mod messages;
pub(crate) mod producer;
pub(crate) mod server;
pub(crate) mod syslog;

use std::collections::BTreeMap;
use std::process::Command;

use helio_core::Qos;
use helio_logging::Lanes;
use messages::{ClientOrder, ClientReport, ClientTask, Go, Offered, ProducerReport, ProducerTask};

use crate::clock::monotonic_ns;
use crate::error::CliResult;
use crate::stop::Stop;
use crate::worker::Worker;

/// The first record is due this long after the order to begin.
const LEAD_NS: u64 = 200_000_000;

/// The topics of a task.
fn lanes(prefix: &str, ordinary: Option<&Qos>) -> Lanes {
    let lanes = Lanes::default().prefix(prefix);
    match ordinary {
        Some(qos) => lanes.ordinary(qos),
        None => lanes,
    }
}

/// The records of all producers together.
pub(crate) fn sum(produced: &BTreeMap<String, ProducerReport>) -> Offered {
    let mut sum = Offered::new();
    for (level, records) in produced.values().flat_map(|report| &report.offered) {
        *sum.entry(*level).or_default() += records;
    }
    sum
}

/// A process and its name.
struct NamedWorker {
    name: String,
    worker: Worker,
}

/// All processes. Dropping it kills them, also suspended ones.
pub(crate) struct LogProcesses {
    clients: Vec<NamedWorker>,
    producers: Vec<NamedWorker>,
    stop: Stop,
}

impl LogProcesses {
    /// Starts the clients; all are reading when this returns.
    pub(crate) fn of(clients: &[ClientTask], stop: &Stop) -> CliResult<Self> {
        let start = |task: &ClientTask| {
            let worker = Worker::start("log-client", &task.name, task, stop)?;
            Ok(NamedWorker { name: task.name.clone(), worker })
        };
        let mut clients = clients.iter().map(start).collect::<CliResult<Vec<_>>>()?;
        clients.iter_mut().try_for_each(|process| process.worker.reply::<()>())?;
        Ok(Self { clients, producers: Vec::new(), stop: stop.clone() })
    }

    /// Starts a producer, by this program or by another command.
    pub(crate) fn add(&mut self, task: &ProducerTask, by: Option<Command>) -> CliResult {
        let (name, stop) = (&task.name, &self.stop);
        let worker = match by {
            Some(command) => Worker::start_by(command, "log-producer", name, task, stop),
            None => Worker::start("log-producer", name, task, stop),
        }?;
        self.producers.push(NamedWorker { name: name.clone(), worker });
        Ok(())
    }

    /// Waits until all producers are ready and starts them; returns the start on the monotonic
    /// clock.
    pub(crate) fn begin(&mut self) -> CliResult<u64> {
        self.producers.iter_mut().try_for_each(|process| process.worker.reply::<()>())?;
        let start_ns = monotonic_ns() + LEAD_NS;
        for process in &mut self.producers {
            process.worker.order(&Go { start_ns })?;
        }
        Ok(start_ns)
    }

    /// Suspends a client.
    pub(crate) fn pause(&self, name: &str) -> CliResult {
        self.clients
            .iter()
            .filter(|process| process.name == name)
            .try_for_each(|s| s.worker.pause())
    }

    /// Resumes a client.
    pub(crate) fn resume(&self, name: &str) -> CliResult {
        self.clients
            .iter()
            .filter(|process| process.name == name)
            .try_for_each(|s| s.worker.resume())
    }

    /// Waits until the producers have logged everything; their processes stay.
    pub(crate) fn produced(&mut self) -> CliResult<BTreeMap<String, ProducerReport>> {
        let report =
            |process: &mut NamedWorker| Ok((process.name.clone(), process.worker.reply()?));
        self.producers.iter_mut().map(report).collect()
    }

    /// Has clients read everything that was offered, and waits for their reports.
    pub(crate) fn consumed(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        offered: &Offered,
    ) -> CliResult<BTreeMap<String, ClientReport>> {
        let mut those: Vec<_> = self.clients.iter_mut().filter(|s| wanted(&s.name)).collect();
        for process in &mut those {
            process.worker.order(&ClientOrder::End { offered: offered.clone() })?;
        }
        let report =
            |process: &mut NamedWorker| Ok((process.name.clone(), process.worker.reply()?));
        those.into_iter().map(report).collect()
    }

    /// Ends all processes.
    pub(crate) fn finish(self) -> CliResult {
        let mut all = self.producers.into_iter().chain(self.clients);
        all.try_for_each(|process| process.worker.finish())
    }
}
