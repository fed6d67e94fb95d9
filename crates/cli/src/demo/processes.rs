//! The demo's processes and their messages.

use std::collections::BTreeMap;

use super::accounting::AckedSequences;
use super::layout::{ALERTS, Player, Scene};
use super::logging;
use super::messages::{
    Burst, Called, Newest, Order, ProcessMessage, ReaderMessage, ReaderOrder, ReaderReport,
    ReaderTask, Role, Step, Targets,
};
use crate::error::{CliError, CliResult};
use crate::log::workers::messages::{ClientOrder, ClientReport, ClientTask};
use crate::stop::Stop;
use crate::worker::Worker;

/// A player's process, so that it can be started again.
struct Acting {
    player: Player,
    process: Option<Worker>,
}

/// The collected messages of the players.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) books: AckedSequences,
    pub(crate) calls: Vec<Called>,
    pub(crate) steps: Vec<Step>,
    /// Counters of the mount's targets, of its present incarnation and of earlier ones.
    pub(crate) targets: Targets,
    pub(crate) targets_before: Targets,
    pub(crate) burst: Option<Burst>,
    /// Log records by producer, without a killed one.
    pub(crate) logged: BTreeMap<String, u64>,
    /// Lines for people that are not shown yet.
    pub(crate) story: Vec<String>,
    pub(crate) doing: Option<String>,
    pub(crate) cpu_s: f64,
    pub(crate) rss_mb: f64,
}

impl Notes {
    /// Adds a message; returns whether it was the last one.
    fn take(&mut self, word: ProcessMessage) -> bool {
        match word {
            ProcessMessage::Receipt(source, sequence) => self.books.note(source, sequence),
            ProcessMessage::Burst(burst) => self.burst = Some(burst),
            ProcessMessage::Story(line) | ProcessMessage::Refused(line) => self.story.push(line),
            ProcessMessage::Doing(text) => self.doing = Some(text),
            ProcessMessage::Came(step) => self.steps.push(step),
            ProcessMessage::Called(called) => self.calls.push(called),
            ProcessMessage::Targets(targets) => self.targets = targets,
            ProcessMessage::End { cpu_s, rss_mb, logged } => {
                self.logged.insert(logged.producer, logged.records);
                self.cpu_s += cpu_s;
                self.rss_mb = self.rss_mb.max(rss_mb);
                return true;
            }
            ProcessMessage::Ready => {}
        }
        false
    }

    /// The number of targets that were followed so far.
    pub(crate) fn followed(&self) -> usize {
        let completed = helio_component::protocol::AckCode::Complete.number();
        let followed = |call: &&Called| call.command == "trackTarget" && call.code == completed;
        self.calls.iter().filter(followed).count()
    }
}

/// All processes.
pub(crate) struct Processes {
    url: String,
    stop: Stop,
    players: Vec<Acting>,
    recorder: Worker,
    broker: Worker,
    log: Worker,
    pub(crate) notes: Notes,
}

impl Processes {
    /// Starts the recorder, the players and the alert broker; all are ready when this returns.
    pub(crate) fn start(scene: &Scene, url: &str, stop: &Stop) -> CliResult<Self> {
        let recorder = reader(url, "recorder", Role::Records, stop)?;
        let log = log_reader(url, stop)?;
        let begin = |player: &Player| {
            let player = player.clone();
            let process = Some(Worker::start(player.worker, &player.name, &player.task, stop)?);
            Ok(Acting { player, process })
        };
        let mut players = scene.players.iter().map(begin).collect::<CliResult<Vec<_>>>()?;
        for Acting { player, process } in &mut players {
            process.iter_mut().try_for_each(|process| ready(player, process))?;
        }
        let broker = reader(url, "alert broker", Role::Follows(vec![ALERTS.to_owned()]), stop)?;
        let (url, stop, notes) = (url.to_owned(), stop.clone(), Notes::default());
        Ok(Self { url, stop, players, recorder, broker, log, notes })
    }

    fn player(&mut self, name: &str) -> CliResult<&mut Acting> {
        let found = self.players.iter_mut().find(|acting| acting.player.name == name);
        found.ok_or_else(|| CliError::Failure(format!("the demo has no player {name}")))
    }

    /// Sends an order to one player.
    pub(crate) fn order(&mut self, name: &str, order: Order) -> CliResult {
        let process = self.player(name)?.process.as_mut();
        process.map_or(Ok(()), |process| process.order(&order))
    }

    /// Sends an order to all players but one.
    pub(crate) fn order_all_but(&mut self, name: &str, order: Order) -> CliResult {
        let others = self.players.iter_mut().filter(|acting| acting.player.name != name);
        let mut processes = others.filter_map(|acting| acting.process.as_mut());
        processes.try_for_each(|process| process.order(&order))
    }

    /// Has the first player publish the burst.
    pub(crate) fn burst(&mut self, samples: u64) -> CliResult {
        let process = self.players.first_mut().and_then(|acting| acting.process.as_mut());
        process.map_or(Ok(()), |process| process.order(&Order::Burst { samples }))
    }

    /// Collects the players' messages and waits for players that have ended; returns whether there
    /// was a message.
    pub(crate) fn collect(&mut self) -> CliResult<bool> {
        let mut any = false;
        for acting in &mut self.players {
            let Some(mut process) = acting.process.take() else { continue };
            let mut ended = false;
            while let Some(word) =
                if ended { None } else { process.try_reply::<ProcessMessage>()? }
            {
                ended = self.notes.take(word);
                any = true;
            }
            if ended {
                process.finish()?;
            } else {
                acting.process = Some(process);
            }
        }
        Ok(any)
    }

    /// Whether a player has ended.
    pub(crate) fn has_ended(&self, name: &str) -> bool {
        let ours = self.players.iter().filter(|acting| acting.player.name == name);
        ours.into_iter().all(|acting| acting.process.is_none())
    }

    /// Whether all players have ended.
    pub(crate) fn have_all_ended(&self) -> bool {
        self.players.iter().all(|acting| acting.process.is_none())
    }

    /// Kills a player (SIGKILL) and collects its remaining messages.
    pub(crate) fn kill(&mut self, name: &str) -> CliResult {
        let Some(process) = self.player(name)?.process.take() else { return Ok(()) };
        for line in process.kill()? {
            let word = serde_json::from_str(&line);
            self.notes.take(word.map_err(|e| CliError::Failure(format!("{name}: {e}")))?);
        }
        let last = std::mem::take(&mut self.notes.targets);
        self.notes.targets_before = self.notes.targets_before.and(last);
        Ok(())
    }

    /// Restarts a player, which begins its schedule at once.
    pub(crate) fn restart(&mut self, name: &str, start_ns: u64) -> CliResult {
        let stop = self.stop.clone();
        let Acting { player, process } = self.player(name)?;
        let mut again = Worker::start(player.worker, &player.name, &player.task, &stop)?;
        ready(player, &mut again)?;
        again.order(&Order::Begin { start_ns })?;
        *process = Some(again);
        Ok(())
    }

    /// Starts a second instance of a component; returns why it was refused, or `None` if it ran.
    pub(crate) fn double(&mut self, player: &Player) -> CliResult<Option<String>> {
        let mut process = Worker::start(player.worker, &player.name, &player.task, &self.stop)?;
        match process.reply()? {
            ProcessMessage::Refused(why) => {
                process.finish()?;
                Ok(Some(why))
            }
            _ => Ok(None),
        }
    }

    /// Starts a late joiner; returns the newest event of every key that the recorder has, and the
    /// late joiner's report.
    pub(crate) fn join_late(&mut self) -> CliResult<(Vec<Newest>, ReaderReport)> {
        self.recorder.order(&ReaderOrder::TellNewest)?;
        let expected = match self.recorder.reply()? {
            ReaderMessage::Newest(newest) => newest,
            word => return Err(CliError::Failure(format!("the recorder said {word:?}"))),
        };
        let (url, name, role) =
            (self.url.clone(), "late joiner".to_owned(), Role::Joins(expected.clone()));
        let task = ReaderTask { url, name, role };
        let joiner = Worker::start("demo-reader", &task.name, &task, &self.stop)?;
        Ok((expected, report(joiner)?))
    }

    /// Ends the readers once they have everything; returns the reports of recorder, broker and log
    /// reader.
    pub(crate) fn drain(mut self) -> CliResult<(ReaderReport, ReaderReport, ClientReport, Notes)> {
        self.log.order(&ClientOrder::EndOfEach { offered: self.notes.logged.clone() })?;
        let drain = ReaderOrder::Drain(self.notes.books.clone());
        self.recorder.order(&drain)?;
        self.broker.order(&drain)?;
        let log = self.log.reply()?;
        self.log.finish()?;
        Ok((report(self.recorder)?, report(self.broker)?, log, self.notes))
    }
}

/// Waits until a player has opened everything.
fn ready(player: &Player, process: &mut Worker) -> CliResult {
    match process.reply()? {
        ProcessMessage::Ready => Ok(()),
        ProcessMessage::Refused(why) => Err(CliError::Refused(why)),
        word => Err(CliError::Failure(format!("{} said {word:?} first", player.name))),
    }
}

fn reader(url: &str, name: &str, role: Role, stop: &Stop) -> CliResult<Worker> {
    let task = ReaderTask { url: url.to_owned(), name: name.to_owned(), role };
    let mut process = Worker::start("demo-reader", &task.name, &task, stop)?;
    match process.reply()? {
        ReaderMessage::Ready => Ok(process),
        word => Err(CliError::Failure(format!("the {name} said {word:?} first"))),
    }
}

/// A reader of all log records.
fn log_reader(url: &str, stop: &Stop) -> CliResult<Worker> {
    let task = ClientTask {
        url: url.to_owned(),
        prefix: logging::PREFIX.to_owned(),
        ordinary: None,
        name: "log reader".to_owned(),
        predicate: String::new(),
    };
    let mut process = Worker::start("log-client", &task.name, &task, stop)?;
    process.reply::<()>()?;
    Ok(process)
}

/// A reader's report.
fn report(mut reader: Worker) -> CliResult<ReaderReport> {
    match reader.reply()? {
        ReaderMessage::Report(report) => {
            reader.finish()?;
            Ok(*report)
        }
        word => Err(CliError::Failure(format!("a reader said {word:?} last"))),
    }
}
