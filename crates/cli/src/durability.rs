//! `helio dds durability`: stores the persistent topics of a DDS domain.

use std::time::Instant;

use helio_bus::TopicName;
use helio_dds::durability::{Durability, DurabilityError, Figures, Notice};
use serde_json::json;

use crate::args::DurabilityArgs;
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::{Out, Progress};
use crate::service_error::{ServiceError, ServiceResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units::{human_bytes, human_count};

impl ServiceError for DurabilityError {
    fn into_cli(self) -> CliError {
        match self {
            DurabilityError::Connect(error) => error.into(),
            DurabilityError::Topic(error) => error.into(),
            DurabilityError::Read(error) => error.into(),
            DurabilityError::Transport(error) => error.into(),
            error @ (DurabilityError::Catalogue { .. } | DurabilityError::NotOurs(_)) => {
                CliError::Failure(error.to_string())
            }
        }
    }
}

/// Runs the service until a signal ends it.
pub(crate) fn run(args: &DurabilityArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let url = url.filter(|url| url.starts_with("dds:")).ok_or_else(|| {
        CliError::Usage("name the domain to store, such as --url dds://0".to_owned())
    })?;
    let mut reporter = Reporter::new(args);
    let forget =
        args.forget.iter().map(|topic| open::name(topic)).collect::<CliResult<Vec<_>>>()?;
    if !forget.is_empty() {
        reporter.forgot(&Durability::forget(&args.dir, &forget).or_cli()?, &forget)?;
    }
    let mut service = Durability::open(url, &args.dir).or_cli()?;
    reporter.started(url)?;
    let mut notices = Vec::new();
    while !stop.asked() {
        service.turn(STOP_POLL_INTERVAL, &mut |notice| notices.push(notice)).or_cli()?;
        notices.drain(..).try_for_each(|notice| reporter.notice(&notice))?;
        reporter.tick(&service.figures())?;
    }
    reporter.print(&service.figures())
}

/// Prints notices and lines of figures.
struct Reporter<'a> {
    args: &'a DurabilityArgs,
    out: Out,
    progress: Progress,
    at: Instant,
}

impl<'a> Reporter<'a> {
    fn new(args: &'a DurabilityArgs) -> Self {
        Self { args, out: Out::new(), progress: Progress::new(), at: Instant::now() }
    }

    fn forgot(&mut self, forgotten: &[TopicName], asked: &[TopicName]) -> CliResult {
        if let Some(missing) = asked.iter().find(|topic| !forgotten.contains(topic)) {
            let dir = self.args.dir.display();
            return Err(CliError::NotFound(format!("there is no topic {missing} in {dir}")));
        }
        for topic in forgotten {
            if self.args.output.json {
                self.out.json(&json!({"notice": "forgotten", "topic": topic.as_str()}))?;
            } else {
                self.out.line(&format!("{topic} is forgotten"))?;
            }
        }
        Ok(())
    }

    fn started(&mut self, url: &str) -> CliResult {
        let dir = self.args.dir.display();
        if self.args.output.json {
            self.out.json(&json!({"keeps": url, "dir": self.args.dir}))?;
        } else {
            self.out.line(&format!("the persistent topics of {url} are kept in {dir}"))?;
        }
        self.out.flush()
    }

    fn notice(&mut self, notice: &Notice) -> CliResult {
        let (kind, topic, text) = match notice {
            Notice::Keeps { topic, samples } => {
                ("keeps", topic, format!("kept from now on, {samples} samples are here"))
            }
            Notice::Ready { topic } => ("ready", topic, "what others have is here".to_owned()),
            Notice::Trouble { topic, cause } => ("trouble", topic, cause.clone()),
            Notice::Recovered { topic } => ("recovered", topic, "kept again".to_owned()),
            Notice::Hole { topic, loss } => ("hole", topic, format!("{loss} will never come")),
        };
        if self.args.output.json {
            self.out.json(&json!({"notice": kind, "topic": topic.as_str(), "text": text}))?;
            return self.out.flush();
        }
        if !matches!(kind, "keeps" | "ready") {
            eprintln!("helio: {topic}: {text}");
        }
        Ok(())
    }

    /// Prints a line when one is due, and shows progress on a terminal until then.
    fn tick(&mut self, figures: &Figures) -> CliResult {
        if self.at.elapsed() >= self.args.every {
            self.print(figures)?;
        } else {
            self.progress.show(|| format!("{} samples stored", human_count(figures.stored)));
        }
        self.out.check()
    }

    fn print(&mut self, figures: &Figures) -> CliResult {
        self.at = Instant::now();
        let Figures { topics, stored, bytes, served } = *figures;
        if self.args.output.json {
            self.out.json(&json!({
                "topics": topics,
                "stored": stored,
                "bytes": bytes,
                "served": served,
            }))?;
        } else {
            self.out.line(&format!(
                "{} topics, {} samples stored ({}), {} sent to late joiners",
                human_count(topics),
                human_count(stored),
                human_bytes(bytes as f64),
                human_count(served),
            ))?;
        }
        self.out.flush()
    }
}
