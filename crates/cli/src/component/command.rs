//! `helio component command`, `set-state`, `lock` and `unlock`: commands to a component.

use std::io::IsTerminal;

use helio_component::protocol::{Acknowledgement, SummaryState};
use helio_component::{Call, CallBuilder, CommandError, Remote};
use serde_json::{Value, json};

use super::follow::follow;
use super::target::{field, from_command, remote};
use crate::args::component::{AskingArgs, CommandArgs, LockArgs, SetStateArgs, UnlockArgs};
use crate::error::{CliError, CliResult};
use crate::open::look;
use crate::out::Out;
use crate::stop::Stop;

/// Runs `helio component command`.
pub(crate) fn run(args: &CommandArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let asking = &args.asking;
    let remote = remote(&look(url)?, &args.component, &asking.caller, &asking.interface)?;
    let mut call = with_fields(remote.command(&args.command), &args.fields)?;
    call = call.timeout(args.timeout);
    if let Some(expiry) = args.expiry {
        call = call.expires_in(expiry);
    }
    if let Some(key) = &args.key {
        call = call.key(key);
    }
    let call = if args.validate { call.send_validate() } else { call.send() };
    AckPrinter::new(asking).follow(call, stop)
}

/// A command with fields given as `NAME=VALUE`.
pub(crate) fn with_fields(mut call: CallBuilder, fields: &[String]) -> CliResult<CallBuilder> {
    for given in fields {
        let (name, value) = field(given)?;
        call = call.set_json(name, &value);
    }
    Ok(call)
}

/// Prints a command's acknowledgements: a line for each, with --json an object.
struct AckPrinter {
    out: Out,
    json: bool,
    /// Progress is shown on a terminal and as JSON, elsewhere only the outcome.
    shown: bool,
}

impl AckPrinter {
    fn new(asking: &AskingArgs) -> Self {
        let json = asking.output.json;
        Self { out: Out::new(), json, shown: json || std::io::stdout().is_terminal() }
    }

    /// Prints the acknowledgements of a call to its end.
    fn follow(&mut self, call: Call, stop: &Stop) -> CliResult {
        let ended = follow(call, stop, |ack| if self.shown { self.print(ack) } else { Ok(()) })?;
        self.failed(&ended.how)?;
        let ack = ended.result()?;
        self.print(&ack)
    }

    fn end(&mut self, how: Result<Acknowledgement, CommandError>) -> CliResult {
        self.failed(&how)?;
        self.print(&how.map_err(from_command)?)
    }

    /// With --json, the acknowledgement of a failure is printed like the others.
    fn failed(&mut self, how: &Result<Acknowledgement, CommandError>) -> CliResult {
        match how.as_ref().err().and_then(CommandError::ack) {
            Some(ack) if self.json => self.print(ack),
            _ => Ok(()),
        }
    }

    fn print(&mut self, ack: &Acknowledgement) -> CliResult {
        if self.json {
            self.out.json(&ack_json(ack))?;
        } else {
            self.out.line(&ack_line(ack))?;
        }
        self.out.flush()
    }
}

fn typed(ack: &Acknowledgement) -> Option<Value> {
    let text = ack.typed.as_deref()?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
}

/// An acknowledgement as JSON.
fn ack_json(ack: &Acknowledgement) -> Value {
    json!({
        "ack": ack.code.number(), "code": ack.code.name(), "error": ack.error,
        "result": ack.result, "timeout_s": ack.timeout_s, "progress": ack.progress,
        "typed": typed(ack), "final": ack.code.is_final(),
    })
}

/// An acknowledgement as text.
pub(crate) fn ack_line(ack: &Acknowledgement) -> String {
    let mut line = ack.code.name().to_owned();
    if let Some(progress) = ack.progress {
        line += &format!(" {:.0} %", progress * 100.0);
    }
    if !ack.result.is_empty() {
        line += &format!(": {}", ack.result);
    }
    if let Some(typed) = typed(ack) {
        line += &format!(" {typed}");
    }
    line
}

/// Runs `helio component set-state`.
pub(crate) fn set_state(args: &SetStateArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let state = state(&args.state)?;
    let (bus, asking) = (look(url)?, &args.asking);
    // Mistyped names are errors before the first command.
    let remote = |instance| remote(&bus, instance, &asking.caller, &asking.interface);
    let remotes = args.components.iter().map(remote).collect::<CliResult<Vec<_>>>()?;
    let (mut out, mut failed) = (Out::new(), None);
    for (instance, remote) in args.components.iter().zip(&remotes) {
        let before = told_state(remote)?;
        let with = args.configuration.as_deref().unwrap_or_default();
        let ended = lead(remote, state, with, |call| {
            follow(call.timeout(args.timeout).send(), stop, |_| Ok(()))?.result().map(drop)
        });
        let after = told_state(remote)?;
        let name = |state: Option<SummaryState>| state.map(SummaryState::name);
        if asking.output.json {
            let error = ended.as_ref().err().map(ToString::to_string);
            out.json(&json!({
                "component": instance.component, "index": remote.index(),
                "from": name(before), "state": name(after), "error": error,
            }))?;
        } else {
            let state = name(after).unwrap_or("-");
            out.line(&format!("{instance} {state} (was {})", name(before).unwrap_or("-")))?;
        }
        out.flush()?;
        // The others continue after a failure, unless interrupted; the first failure is returned.
        let interrupted = matches!(ended, Err(CliError::Left(_)));
        failed = match (failed, ended) {
            (Some(first), Err(error)) => {
                eprintln!("helio: {error}");
                Some(first)
            }
            (failed, ended) => failed.or(ended.err()),
        };
        if interrupted {
            break;
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Brings a component to a state by the fewest commands; `with` is the start configuration.
pub(crate) fn lead(
    remote: &Remote,
    to: SummaryState,
    with: &str,
    mut run: impl FnMut(CallBuilder) -> CliResult,
) -> CliResult {
    let commands = remote.path_to(to).map_err(from_command)?;
    commands.into_iter().try_for_each(|command| run(remote.state_command(command, with)))
}

/// A state that commands can reach.
pub(crate) fn state(text: &str) -> CliResult<SummaryState> {
    SummaryState::from_name(text).filter(|state| *state != SummaryState::Fault).ok_or_else(|| {
        let text =
            format!("{text:?} is no state to go to; STANDBY, DISABLED, ENABLED, OFFLINE are");
        CliError::Usage(text)
    })
}

fn told_state(remote: &Remote) -> CliResult<Option<SummaryState>> {
    remote.state().map_err(|error| CliError::Failure(error.to_string()))
}

/// Runs `helio component lock`.
pub(crate) fn lock(args: &LockArgs, url: Option<&str>) -> CliResult {
    let asking = &args.asking;
    let remote = remote(&look(url)?, &args.component, &asking.caller, &asking.interface)?;
    AckPrinter::new(asking).end(remote.lock(args.duration))
}

/// Runs `helio component unlock`.
pub(crate) fn unlock(args: &UnlockArgs, url: Option<&str>) -> CliResult {
    let asking = &args.asking;
    let remote = remote(&look(url)?, &args.component, &asking.caller, &asking.interface)?;
    AckPrinter::new(asking).end(remote.unlock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_component::protocol::AckCode;

    #[test]
    fn acknowledgements_are_lines() {
        let mut ack = Acknowledgement::new(AckCode::InProgress, "moving");
        ack.progress = Some(0.25);
        assert_eq!(ack_line(&ack), format!("{} 25 %: moving", AckCode::InProgress.name()));
        ack.typed = Some("{\"a\":1}".to_owned());
        assert!(ack_line(&ack).ends_with("moving {\"a\":1}"));
    }

    #[test]
    fn faults_are_not_gone_to() {
        assert_eq!(state("enabled").unwrap(), SummaryState::Enabled);
        assert!(state("FAULT").is_err() && state("x").is_err());
    }
}
