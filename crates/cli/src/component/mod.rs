//! `helio component`: look at components, command them, simulate them.

pub(crate) mod args;
mod audit;
mod command;
mod list;
pub(crate) mod observe;
mod shell;
mod show;
pub(crate) mod simulate;
mod states;
mod stubs;
mod target;
pub(crate) mod watch;

use helio_core::sal::{Component, Interfaces};

use crate::error::{CliError, CliResult};
use crate::stop::Stop;
use args::ComponentCommand;

/// Runs `helio component`.
pub(crate) fn run(command: &ComponentCommand, url: Option<&str>, stop: &Stop) -> CliResult {
    match command {
        ComponentCommand::List(args) => list::run(args, url),
        ComponentCommand::Show(args) => show::run(args),
        ComponentCommand::Watch(args) => watch::run(args, url, stop),
        ComponentCommand::States(args) => states::run(args, url),
        ComponentCommand::Audit(args) => audit::run(args, url, stop),
        ComponentCommand::Stubs(args) => stubs::run(args),
        ComponentCommand::Command(args) => command::run(args, url),
        ComponentCommand::SetState(args) => command::set_state(args, url),
        ComponentCommand::Lock(args) => command::lock(args, url),
        ComponentCommand::Unlock(args) => command::unlock(args, url),
        ComponentCommand::Shell(args) => shell::run(args, url),
        ComponentCommand::Run(args) => simulate::run(args, url, stop),
    }
}

/// A component of the interfaces.
fn component<'a>(interfaces: &'a Interfaces, name: &str) -> CliResult<&'a Component> {
    interfaces.component(name).ok_or_else(|| {
        let known: Vec<&str> = interfaces.components().iter().map(Component::name).collect();
        let known = known.join(", ");
        CliError::NotFound(format!(
            "the interfaces have no component {name}, but {known}; --interfaces or \
             HELIO_INTERFACES names another folder"
        ))
    })
}
