//! `helio component shell`: commands a component interactively, and shows its events meanwhile.
//!
//! On a terminal a line editor completes commands, fields and labels; events are printed above the
//! line that is being edited. Lines of a pipe are run one by one with the same output.

mod complete;
mod editor;
mod follow;
mod words;

use std::io::{BufRead, IsTerminal};

use helio_component::protocol::caller::Presence;
use helio_component::protocol::{Acknowledgement, SummaryState};
use helio_component::{Call, Remote};
use helio_core::sal::{Component, TopicKind};

use super::command::{ack_line, lead, state, with_fields};
use super::target::remote;
use crate::args::component::ShellArgs;
use crate::error::{CliError, CliResult};
use crate::open::look;
use crate::out::is_screen;
use crate::stop::Stop;
use editor::{Lines, print};
use follow::{Ending, Follower};

/// Runs `helio component shell`.
pub(crate) fn run(args: &ShellArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = look(url)?;
    let remote = remote(&bus, &args.component, &args.caller, &args.interface)?;
    let component = remote.interface().component().clone();
    let person = std::io::stdin().is_terminal() && is_screen();
    let mut shell = Shell { remote, component, follower: None, args, stop };
    if !person {
        return shell.script();
    }
    let (mut lines, above) = Lines::editor(&shell.component, &args.component.to_string())?;
    shell.greet()?;
    let ending = Ending::on_sigterm(stop)?;
    shell.follower = Some(Follower::start(&bus, &shell.remote, above, &ending)?);
    let ended = shell.dialogue(&mut lines, &ending);
    // The editor first: a printer without an editor would block for ever.
    drop(lines);
    ended
}

enum Next {
    Line,
    Quit,
}

struct Shell<'a> {
    remote: Remote,
    component: Component,
    follower: Option<Follower>,
    args: &'a ShellArgs,
    stop: &'a Stop,
}

impl Shell<'_> {
    /// Runs lines without an editor. A pipe or file ends at the first error, so that no script
    /// continues after it.
    fn script(&self) -> CliResult {
        let person = std::io::stdin().is_terminal();
        let mut lines = Lines::Pipe(std::io::stdin().lock().lines());
        while let Some(line) = lines.next()? {
            if person {
                self.stop.take();
            }
            match self.line(&line) {
                Ok(Next::Line) => {}
                Ok(Next::Quit) => break,
                Err(error) if person && !matches!(error, CliError::Pipe) => {
                    eprintln!("helio: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs lines of a terminal; errors are printed.
    fn dialogue(&self, lines: &mut Lines, ending: &Ending) -> CliResult {
        while let Some(line) = lines.next()? {
            if ending.is_due() {
                break;
            }
            // Ctrl-C was meant for the previous command.
            self.stop.take();
            match self.line(&line) {
                Ok(Next::Line) => {}
                Ok(Next::Quit) => break,
                Err(CliError::Pipe) => return Err(CliError::Pipe),
                Err(error) => print(&error.to_string())?,
            }
        }
        Ok(())
    }

    /// The greeting with component and caller.
    fn greet(&self) -> CliResult {
        let name = self.remote.interface().identity(self.remote.index());
        let here = match self.remote.presence() {
            Ok(Presence::Here { .. }) => "is here",
            Ok(Presence::Gone) => "is gone",
            Ok(Presence::Unknown) | Err(_) => "was never here",
        };
        let state = self.remote.state().ok().flatten();
        let state = state.map_or_else(String::new, |state| format!(", {state}"));
        print(&format!("{name} {here}{state}; Tab completes, .help tells more, Ctrl-D ends"))
    }

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
                return Err(CliError::Usage(format!("unknown command {word}; .help lists them")));
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
            return words.chain([fields, commands]).try_for_each(|line| print(&line));
        };
        let topic = self.component.topic(TopicKind::Command, command);
        let topic = topic.ok_or_else(|| CliError::NotFound(format!("no command {command}")))?;
        print(topic.description())?;
        topic.fields().iter().try_for_each(|field| {
            let labels = field.enumeration.iter().flat_map(|e| &e.labels);
            let labels: Vec<&str> = labels.map(|(label, _)| label.as_str()).collect();
            let (units, text) = (&field.units, &field.description);
            print(&format!("  {} ({units}): {text} {}", field.name, labels.join(" ")))
        })
    }

    fn state(&self) -> CliResult {
        let state = self.remote.state().map_err(|e| CliError::Failure(e.to_string()))?;
        print(state.map_or("unknown", SummaryState::name))
    }

    fn set_state(&self, to: Option<&String>) -> CliResult {
        let to = state(to.map_or("", String::as_str))?;
        lead(&self.remote, to, "", |call| self.wait(call.send()).map(drop))?;
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
            Some(reading) => print(&follow::line(attribute, reading)),
            None => print(&format!("{attribute} was never published")),
        }
    }

    fn send(&self, words: &[String], asked: Asked) -> CliResult {
        let Some((command, fields)) = words.split_first() else {
            return Err(CliError::Usage("name a command; .help lists them".to_owned()));
        };
        let call = self.remote.command(command).timeout(self.args.timeout);
        let call = with_fields(call, fields)?;
        let call = if asked == Asked::Validate { call.send_validate() } else { call.send() };
        print(&ack_line(&self.wait(call)?))
    }

    /// Waits for a call's end and prints its acknowledgements; Ctrl-C cancels it.
    fn wait(&self, call: Call) -> CliResult<Acknowledgement> {
        super::follow::follow(call, self.stop, |ack| print(&ack_line(ack)))?.result()
    }

    fn follow(&self, kind: TopicKind, on: Option<&String>) -> CliResult {
        let on = match on.map(String::as_str) {
            Some("on") => follow::Shown::Yes,
            Some("off") => follow::Shown::No,
            _ => return Err(CliError::Usage("on or off?".to_owned())),
        };
        match &self.follower {
            Some(follower) => follower.show(kind, on),
            None => print("events are shown on a terminal only; .show prints one")?,
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Run,
    Validate,
}
