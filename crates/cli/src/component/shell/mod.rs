//! `helio component shell`: commands a component interactively, and shows its events meanwhile.
//!
//! On a terminal a line editor completes commands, fields and labels, and what comes is printed
//! above the line that is being written. From a pipe, lines are taken one by one; what they print
//! is the same.

mod complete;
mod editor;
mod follow;
mod words;

use std::io::{BufRead, IsTerminal};

use helio_component::Remote;
use helio_component::protocol::SummaryState;
use helio_core::sal::{Component, TopicKind};

use super::args::ShellArgs;
use super::command::{ack_line, state, with_fields};
use super::target::{from_command, remote};
use crate::error::{CliError, CliResult};
use crate::open::look;
use editor::{Lines, Printer};
use follow::Follower;

/// Runs `helio component shell`.
pub(crate) fn run(args: &ShellArgs, url: Option<&str>) -> CliResult {
    let bus = look(url)?;
    let remote = remote(&bus, &args.interfaces, &args.component, &args.caller)?;
    let component = remote.interface().component().clone();
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let (mut lines, printer) = match terminal {
        true => Lines::editor(&component, &args.component.to_string())?,
        false => (Lines::Pipe(std::io::stdin().lock().lines()), Printer::plain()),
    };
    let follower = terminal.then(|| Follower::start(&bus, &remote, &printer)).transpose()?;
    let shell = Shell { remote, component, printer, follower, args };
    while let Some(line) = lines.next()? {
        match shell.line(&line) {
            Ok(Next::Line) => {}
            Ok(Next::Quit) => break,
            Err(CliError::Pipe) => return Err(CliError::Pipe),
            // A person tries again; a script must not go on as if nothing had happened.
            Err(error) if terminal => shell.printer.print(&error.to_string())?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

enum Next {
    Line,
    Quit,
}

struct Shell<'a> {
    remote: Remote,
    component: Component,
    printer: Printer,
    follower: Option<Follower>,
    args: &'a ShellArgs,
}

impl Shell<'_> {
    fn line(&self, line: &str) -> CliResult<Next> {
        let words = words::split(line);
        let Some((first, rest)) = words.split_first() else { return Ok(Next::Line) };
        match first.as_str() {
            ".quit" | "exit" | "quit" => return Ok(Next::Quit),
            ".help" | "help" | "?" => self.help(rest.first().map(String::as_str))?,
            ".state" => self.state()?,
            ".set-state" => self.set_state(rest.first())?,
            ".show" => self.show(rest.first())?,
            ".validate" => self.send(rest, Asked::Validate)?,
            ".events" => self.follow(TopicKind::Event, rest.first())?,
            ".telemetry" => self.follow(TopicKind::Telemetry, rest.first())?,
            word if word.starts_with('.') => {
                return Err(CliError::Usage(format!("{word} is none of .help's words")));
            }
            word if word.starts_with('#') => {}
            _ => self.send(&words, Asked::Run)?,
        }
        Ok(Next::Line)
    }

    fn help(&self, command: Option<&str>) -> CliResult {
        let Some(command) = command else {
            let words = complete::WORDS.iter().map(|(word, what)| format!("{word:<12} {what}"));
            let commands = self.component.topics_of(TopicKind::Command);
            let names: Vec<&str> = commands.map(helio_core::sal::Topic::name).collect();
            let commands = format!("commands: {}", names.join(", "));
            let fields = "a command is sent with its fields: COMMAND FIELD=VALUE …".to_owned();
            return words.chain([fields, commands]).try_for_each(|line| self.printer.print(&line));
        };
        let topic = self.component.topic(TopicKind::Command, command);
        let topic = topic.ok_or_else(|| CliError::NotFound(format!("no command {command}")))?;
        self.printer.print(topic.description())?;
        topic.fields().iter().try_for_each(|field| {
            let labels = field.enumeration.iter().flat_map(|e| &e.labels);
            let labels: Vec<&str> = labels.map(|(label, _)| label.as_str()).collect();
            let (units, text) = (&field.units, &field.description);
            self.printer.print(&format!("  {} ({units}): {text} {}", field.name, labels.join(" ")))
        })
    }

    fn state(&self) -> CliResult {
        let state = self.remote.state().map_err(|e| CliError::Failure(e.to_string()))?;
        self.printer.print(state.map_or("unknown", SummaryState::name))
    }

    fn set_state(&self, to: Option<&String>) -> CliResult {
        let to = state(to.map_or("", String::as_str))?;
        self.remote.set_state(to, "").map_err(from_command)?;
        self.state()
    }

    /// The newest value of a topic.
    fn show(&self, attribute: Option<&String>) -> CliResult {
        let attribute = attribute.map_or("", String::as_str);
        let topic = match attribute.split_once('_') {
            Some(("evt", name)) => self.remote.event(name),
            Some(("tel", name)) => self.remote.telemetry(name),
            _ => {
                let text = "name an event or telemetry, such as .show evt_summaryState";
                return Err(CliError::Usage(text.to_owned()));
            }
        };
        let failed = |e: helio_component::TopicReadError| CliError::NotFound(e.to_string());
        let mut topic = topic.map_err(failed)?;
        match topic.newest().map_err(failed)? {
            Some(reading) => self.printer.print(&follow::line(attribute, reading)),
            None => self.printer.print(&format!("{attribute} was never published")),
        }
    }

    fn send(&self, words: &[String], asked: Asked) -> CliResult {
        let Some((command, fields)) = words.split_first() else {
            return Err(CliError::Usage("name a command; .help lists them".to_owned()));
        };
        let call = self.remote.command(command).timeout(self.args.timeout);
        let call = with_fields(call, fields)?;
        if asked == Asked::Validate {
            let ack = call.validate().map_err(from_command)?;
            return self.printer.print(&ack_line(&ack));
        }
        let mut sent = call.send();
        while let Some(ack) = sent.next().map_err(from_command)? {
            self.printer.print(&ack_line(&ack))?;
        }
        Ok(())
    }

    fn follow(&self, kind: TopicKind, on: Option<&String>) -> CliResult {
        let on = match on.map(String::as_str) {
            Some("on") => follow::Shown::Yes,
            Some("off") => follow::Shown::No,
            _ => return Err(CliError::Usage("on or off?".to_owned())),
        };
        match &self.follower {
            Some(follower) => follower.show(kind, on),
            None => self.printer.print("events are shown on a terminal only; .show prints one")?,
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Run,
    Validate,
}
