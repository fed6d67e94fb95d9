//! `helio bridge`: forwards topics from one bus to another.

use std::time::{Duration, Instant};

use helio_bridge::{
    Begin, Bridge, BridgeError, Figures, Notice, NoticeKind, Options, TopicState, Turn,
};
use serde::Serialize;
use serde_json::json;

use crate::args::{BeginArg, BridgeArgs};
use crate::error::{CliError, CliResult};
use crate::open::{connect, look};
use crate::out::{Out, Progress};
use crate::outage::wait_out;
use crate::service_error::{ServiceError, ServiceResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};
use crate::units::{human_bytes, human_count};

/// How long the end waits for samples in flight; the next bridge forwards the rest.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

impl From<BeginArg> for Begin {
    fn from(begin: BeginArg) -> Self {
        match begin {
            BeginArg::AsPromised => Self::AsPromised,
            BeginArg::Earliest => Self::Earliest,
            BeginArg::Latest => Self::Latest,
        }
    }
}

impl ServiceError for BridgeError {
    fn into_cli(self) -> CliError {
        match self {
            BridgeError::Transport(error) => error.into(),
            error => CliError::Usage(error.to_string()),
        }
    }
}

/// Runs `helio bridge`.
pub(crate) fn run(args: &BridgeArgs, stop: &Stop) -> CliResult {
    let open = || {
        let (from, to) = (look(Some(&args.from))?, connect(Some(&args.to), None)?);
        let options = Options {
            topics: args.topics.clone(),
            not: args.not.clone(),
            begin: args.start.into(),
            overrides: args.qos.clone(),
        };
        Bridge::new(from, to, options).or_cli()
    };
    // A migration ends with the error; a bridge waits for both sides.
    let opened = if args.once { Some(open()?) } else { wait_out(&Until::new(None, stop), open)? };
    let Some(mut bridge) = opened else { return Ok(()) };
    let mut reporter = Reporter::new(args);
    let mut done = false;
    while !stop.asked() && !done {
        let turn = bridge.turn(STOP_POLL_INTERVAL);
        reporter.notices(bridge.notices())?;
        reporter.tick(&mut bridge)?;
        done = args.once && turn == Turn::CaughtUp;
    }
    if !bridge.finish(FINISH_TIMEOUT) {
        eprintln!(
            "helio: samples in flight are not acknowledged; the next bridge forwards them if the \
             source can be read again, and reports those that it cannot forward"
        );
    }
    reporter.notices(bridge.notices())?;
    let total = reporter.print(&bridge.figures())?;
    if args.once && !done {
        return Err(CliError::Interrupted);
    }
    ended(args, &bridge, total)
}

/// The result of a migration (`--once`).
fn ended(args: &BridgeArgs, bridge: &Bridge, total: Totals) -> CliResult {
    let refused = bridge.refused();
    if let (true, Some(first)) = (args.once, refused.first()) {
        let others = refused.len() - 1;
        return Err(CliError::Refused(format!(
            "{first} and {others} other topics are not forwarded; see the message of each, and \
             choose with --qos"
        )));
    }
    match total.lost + total.skipped {
        _ if !args.once => Ok(()),
        0 if total.uncounted > 0 => Err(CliError::Lost(
            "samples are missing on the target, and nobody knows how many: see the messages of \
             each topic"
                .to_owned(),
        )),
        0 => Ok(()),
        missing => Err(CliError::Lost(format!("{missing} samples are missing on the target"))),
    }
}

/// All topics' figures together.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Totals {
    topics: usize,
    waiting: usize,
    forwarded: u64,
    bytes: u64,
    lost: u64,
    uncounted: u64,
    returned: u64,
    skipped: u64,
    fenced: u64,
    repeated: u64,
    under_way: usize,
    lag: u64,
}

impl Totals {
    fn of(figures: &[Figures]) -> Self {
        figures.iter().fold(Self::default(), |all, one| Self {
            topics: all.topics + 1,
            waiting: all.waiting + usize::from(one.state == TopicState::Waiting),
            forwarded: all.forwarded + one.forwarded,
            bytes: all.bytes + one.bytes,
            lost: all.lost + one.lost,
            uncounted: all.uncounted + one.uncounted,
            returned: all.returned + one.returned,
            skipped: all.skipped + one.skipped,
            fenced: all.fenced + one.fenced,
            repeated: all.repeated + one.repeated,
            under_way: all.under_way + one.under_way,
            lag: all.lag + one.lag,
        })
    }
}

/// Prints notices and lines of figures.
struct Reporter<'a> {
    args: &'a BridgeArgs,
    out: Out,
    progress: Progress,
    at: Instant,
    before: Totals,
}

impl<'a> Reporter<'a> {
    fn new(args: &'a BridgeArgs) -> Self {
        let (out, progress) = (Out::new(), Progress::new());
        Self { args, out, progress, at: Instant::now(), before: Totals::default() }
    }

    fn notices(&mut self, notices: Vec<Notice>) -> CliResult {
        for Notice { kind, topic, text } in notices {
            if self.args.output.json {
                let topic = topic.as_ref().map(|topic| topic.as_str());
                self.out.json(&json!({"notice": kind, "topic": topic, "text": text}))?;
                self.out.flush()?;
            } else if kind != NoticeKind::Opened {
                let topic = topic.map_or_else(String::new, |topic| format!("{topic}: "));
                eprintln!("helio: {topic}{text}");
            }
        }
        Ok(())
    }

    /// Prints a line when one is due, and shows progress on a terminal until then.
    fn tick(&mut self, bridge: &mut Bridge) -> CliResult {
        if self.at.elapsed() >= self.args.every {
            self.print(&bridge.figures())?;
        } else {
            self.progress.show(|| {
                let all = Totals::of(&bridge.figures());
                let (done, lag) = (human_count(all.forwarded), human_count(all.lag));
                format!("{done} samples forwarded, {lag} pending")
            });
        }
        self.out.check()
    }

    fn print(&mut self, figures: &[Figures]) -> CliResult<Totals> {
        let all = Totals::of(figures);
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let rate = (all.forwarded - self.before.forwarded) as f64 / seconds;
        let bytes = (all.bytes - self.before.bytes) as f64 / seconds;
        (self.at, self.before) = (Instant::now(), all);
        if self.args.output.json {
            let line = json!({
                "seconds": (seconds * 1e3).round() / 1e3,
                "rate_hz": (rate * 1e3).round() / 1e3,
                "total": all,
                "topics": figures,
            });
            self.out.json(&line)?;
        } else {
            self.out.line(&line(&all, rate, bytes))?;
        }
        self.out.flush()?;
        Ok(all)
    }
}

fn line(all: &Totals, rate: f64, bytes: f64) -> String {
    let mut text = format!(
        "{} topics, {} samples forwarded ({rate:.0} Hz, {}/s), {} pending, {} in flight",
        human_count(all.topics as u64),
        human_count(all.forwarded),
        human_bytes(bytes),
        human_count(all.lag),
        human_count(all.under_way as u64),
    );
    let rest = [
        ("lost", all.lost),
        ("losses of unknown size", all.uncounted),
        ("returned", all.returned),
        ("skipped", all.skipped),
        ("fenced", all.fenced),
        ("repeated", all.repeated),
        ("topics waiting", all.waiting as u64),
    ];
    for (what, count) in rest.into_iter().filter(|(_, count)| *count > 0) {
        text += &format!(", {} {what}", human_count(count));
    }
    text
}
