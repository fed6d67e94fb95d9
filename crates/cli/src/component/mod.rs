//! `helio component`: observes, commands and simulates components.

mod audit;
mod command;
mod follow;
pub(crate) mod instances;
mod key;
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

use crate::args::component::ComponentCommand;
use crate::error::{CliError, CliResult};
use crate::stop::Stop;

/// Runs `helio component`.
pub(crate) fn run(command: &ComponentCommand, url: Option<&str>, stop: &Stop) -> CliResult {
    match command {
        ComponentCommand::List(args) => list::run(args, url),
        ComponentCommand::Show(args) => show::run(args),
        ComponentCommand::Watch(args) => watch::run(args, url, stop),
        ComponentCommand::States(args) => states::run(args, url),
        ComponentCommand::Audit(args) => audit::run(args, url, stop),
        ComponentCommand::Stubs(args) => stubs::run(args),
        ComponentCommand::Command(args) => command::run(args, url, stop),
        ComponentCommand::SetState(args) => command::set_state(args, url, stop),
        ComponentCommand::Lock(args) => command::lock(args, url),
        ComponentCommand::Unlock(args) => command::unlock(args, url),
        ComponentCommand::Key(args) => key::run(args),
        ComponentCommand::Shell(args) => shell::run(args, url, stop),
        ComponentCommand::Run(args) => simulate::run(args, url, stop),
    }
}

/// The most names that a message lists.
const MAX_LISTED_NAMES: usize = 12;

/// A component of the interfaces.
fn component<'a>(interfaces: &'a Interfaces, name: &str) -> CliResult<&'a Component> {
    interfaces.component(name).ok_or_else(|| {
        let known: Vec<&str> = interfaces.components().iter().map(Component::name).collect();
        let remedy = match like(name, &known) {
            Some(meant) => format!("did you mean {meant}?"),
            None if known.len() <= MAX_LISTED_NAMES => format!("they have {}", known.join(", ")),
            None => format!("they have {} others", known.len()),
        };
        CliError::NotFound(format!(
            "the interfaces have no component {name}; {remedy} --interfaces or HELIO_INTERFACES \
             names another folder, `helio component list FOLDER` shows what is in it"
        ))
    })
}

/// The known name that is most similar to a mistyped one.
fn like<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let far = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let nearest = known.iter().min_by_key(|known| far(known))?;
    (far(nearest) <= name.chars().count().div_ceil(4)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_guessed() {
        let known = ["ESS", "MTMount", "MTM1M3"];
        assert_eq!(like("mtmount", &known), Some("MTMount"));
        assert_eq!(like("MTMuont", &known), Some("MTMount"));
        assert_eq!(like("MTM1M", &known), Some("MTM1M3"));
        assert_eq!(like("Dome", &known), None);
        assert_eq!(like("", &known), None);
    }
}
