//! The component that a command line names, as its callers see it.

use helio_bus::Bus;
use helio_component::protocol::AckCode;
use helio_component::{CommandError, Interface, InterfaceError, Remote, RemoteOptions};
use serde_json::Value;

use super::args::{CallerArg, Instance, InterfacesArg};
use crate::error::{CliError, CliResult};
use crate::sal;

/// Whom to command, and how.
pub(crate) fn remote(
    bus: &Bus,
    interfaces: &InterfacesArg,
    instance: &Instance,
    caller: &CallerArg,
) -> CliResult<Remote> {
    let interfaces = sal::folder_or_own(interfaces.interfaces.as_deref())?;
    let component = super::component(&interfaces, &instance.component)?;
    let options = RemoteOptions { identity: None, caller: caller.caller.clone() };
    let index = instance.index.unwrap_or(0);
    Remote::with_options(bus, &Interface::new(component), index, options).map_err(from_interface)
}

/// An error of the interface as one of the command line.
pub(crate) fn from_interface(error: InterfaceError) -> CliError {
    match error {
        InterfaceError::NoComponent { .. } | InterfaceError::NoTopic { .. } => {
            CliError::NotFound(error.to_string())
        }
        InterfaceError::Index { .. } => CliError::Usage(error.to_string()),
        InterfaceError::Schema { .. } => CliError::Refused(error.to_string()),
    }
}

/// A command that was not completed, as an error of the command line: what is not there, what is
/// refused, and what failed have their own exit codes.
pub(crate) fn from_command(error: CommandError) -> CliError {
    let text = error.to_string();
    match (&error, error.code()) {
        (CommandError::Interface(error), _) => from_interface(error.clone()),
        (CommandError::Field(_) | CommandError::NoPath { .. }, _) => CliError::Refused(text),
        (_, Some(AckCode::NoAck)) => CliError::NotFound(text),
        (_, Some(AckCode::NoPerm)) => CliError::Refused(text),
        _ => CliError::Failure(text),
    }
}

/// A field that is given as `NAME=VALUE`: the value is JSON, else text, which may be a label.
pub(crate) fn field(given: &str) -> CliResult<(&str, Value)> {
    let (name, text) = given.split_once('=').ok_or_else(|| {
        CliError::Usage(format!("{given:?} is no field with its value; write NAME=VALUE"))
    })?;
    Ok((name, serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_or_text() {
        assert_eq!(field("a=1.5").unwrap(), ("a", Value::from(1.5)));
        assert_eq!(field("a=[1,2]").unwrap(), ("a", serde_json::json!([1, 2])));
        assert_eq!(field("a=Moving").unwrap(), ("a", Value::from("Moving")));
        assert_eq!(field("a=b=c").unwrap(), ("a", Value::from("b=c")));
        assert_eq!(field("a=\"1\"").unwrap(), ("a", Value::from("1")));
        assert!(field("a").is_err());
    }
}
