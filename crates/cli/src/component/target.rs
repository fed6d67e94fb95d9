//! The component that a command line names, for its caller.

use helio_bus::Bus;
use helio_component::protocol::AckCode;
use helio_component::{
    CommandError, Interface, InterfaceError, Remote, RemoteOptions, read_caller_key,
};
use helio_core::sal::{Component, Indexing};
use serde_json::Value;

use super::key::from_key_file;
use crate::args::component::{CallerArg, Instance, InterfaceArgs};
use crate::error::{CliError, CliResult};
use crate::sal;

/// The commanded component, the caller and the interface.
pub(crate) fn remote(
    bus: &Bus,
    instance: &Instance,
    caller: &CallerArg,
    interface: &InterfaceArgs,
) -> CliResult<Remote> {
    let interfaces = sal::folder_or_own(interface.folder.interfaces.as_deref())?;
    let component = super::component(&interfaces, &instance.component)?;
    let index = index(component, instance)?.ok_or_else(|| which(component))?;
    let key = caller.caller_key.as_deref().map(read_caller_key).transpose();
    let key = key.map_err(from_key_file)?;
    let options = RemoteOptions { caller: caller.caller.clone(), key, ..RemoteOptions::default() };
    let interface = Interface::new(component).evolution(interface.evolution);
    Remote::with_options(bus, &interface, index, options).map_err(from_interface)
}

/// The index of an instance; 0 if the component is not indexed, `None` if the index is missing.
pub(crate) fn index(component: &Component, instance: &Instance) -> CliResult<Option<i32>> {
    match (component.indexed(), instance.index) {
        (false, None) => Ok(Some(0)),
        (true, index) => Ok(index),
        (false, Some(_)) => {
            let name = component.name();
            let text = format!("{name} is not indexed: there is one of it; write {name} alone");
            Err(CliError::Usage(text))
        }
    }
}

/// The possible instances, for the error about a missing index.
fn which(component: &Component) -> CliError {
    let name = component.name();
    let named: Vec<String> = match component.indexing() {
        Indexing::Named(names) => {
            names.iter().map(|(label, index)| format!("{name}:{index} ({label})")).collect()
        }
        _ => vec![format!("{name}:1")],
    };
    let text = format!("{name} has several instances; say which, such as {}", named.join(", "));
    CliError::Usage(text)
}

/// An error of the interface as a command's error.
pub(crate) fn from_interface(error: InterfaceError) -> CliError {
    match error {
        InterfaceError::NoComponent { .. } | InterfaceError::NoTopic { .. } => {
            CliError::NotFound(error.to_string())
        }
        InterfaceError::Index { .. } | InterfaceError::MissingFields(_) => {
            CliError::Usage(error.to_string())
        }
        InterfaceError::Schema { .. } => CliError::Refused(error.to_string()),
    }
}

/// A command that was not completed, as an error: missing, refused and failed have their own exit
/// codes.
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

/// A field given as `NAME=VALUE`: the value is JSON, else text, which may be a label.
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
