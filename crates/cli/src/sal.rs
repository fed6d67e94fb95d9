//! SAL interfaces of the commands: a folder of files, or the built-in small observatory.

use std::path::Path;

use helio_bus::{InterfacesError, read_interfaces};
use helio_core::sal::{Interfaces, Topic, TopicKind};

use crate::error::{CliError, CliResult};

macro_rules! own {
    ($($path:literal)*) => {
        [$(($path, include_str!(concat!("../../../examples/interfaces/", $path)))),*]
    };
}

/// The built-in interfaces.
const OWN: [(&str, &str); 13] = own! {
    "VERSION"
    "SALSubsystems.xml"
    "SALGenerics.xml"
    "MTM1M3/MTM1M3_Commands.xml"
    "MTM1M3/MTM1M3_Events.xml"
    "MTM1M3/MTM1M3_Telemetry.xml"
    "MTMount/MTMount_Commands.xml"
    "MTMount/MTMount_Events.xml"
    "MTMount/MTMount_Telemetry.xml"
    "ESS/ESS_Events.xml"
    "ESS/ESS_Telemetry.xml"
    "ESS/skyBrightness.avsc"
    "Camera.yaml"
};

/// The interfaces of a folder.
pub(crate) fn folder(path: &Path) -> CliResult<Interfaces> {
    read_interfaces(path).map_err(|error| match &error {
        InterfacesError::NoInterfaces(_) => CliError::NotFound(error.to_string()),
        InterfacesError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            CliError::NotFound(error.to_string())
        }
        InterfacesError::Io { .. } => CliError::Failure(error.to_string()),
        _ => CliError::Refused(error.to_string()),
    })
}

/// Writes the built-in interfaces to a folder, for programs in other languages.
pub(crate) fn write_own(folder: &Path) -> CliResult {
    for (path, text) in OWN {
        let path = folder.join(path);
        let written = match path.parent() {
            Some(parent) => std::fs::create_dir_all(parent),
            None => Ok(()),
        };
        written
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| CliError::file(&path, &e))?;
    }
    Ok(())
}

/// The interfaces of a folder, or the built-in ones.
pub(crate) fn folder_or_own(path: Option<&Path>) -> CliResult<Interfaces> {
    match path {
        Some(path) => folder(path),
        None => {
            let [(_, release), files @ ..] = OWN;
            let interfaces = Interfaces::load(files);
            let interfaces = interfaces.map_err(|e| CliError::Failure(e.to_string()))?;
            Ok(interfaces.with_release(release.trim()))
        }
    }
}

/// A topic by its name on the bus (`MTMount/command/trackTarget`), its SAL name after the
/// component's (`MTMount_command_trackTarget`), or its Kafka name.
pub(crate) fn topic<'a>(interfaces: &'a Interfaces, name: &str) -> CliResult<&'a Topic> {
    let found = interfaces.topic(name).or_else(|| {
        let name = name.strip_prefix("lsst.").and_then(|n| n.split_once('.')).map_or(name, |n| n.1);
        let (component, sal) = name.split_once(['_', '.'])?;
        let (kind, short) = TopicKind::of_sal_name(sal);
        interfaces.component(component)?.topic(kind, short)
    });
    found.ok_or_else(|| {
        CliError::NotFound(format!(
            "the interfaces have no topic {name}; write it like MTM1M3_forceActuatorData, \
             MTMount_command_trackTarget or MTMount/command/trackTarget"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_interfaces_are_all_on_board() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/interfaces");
        let ours = folder_or_own(None).unwrap();
        assert_eq!(ours, folder(&root).unwrap(), "a file of the folder is not in the list");
    }

    #[test]
    fn topics_are_found_by_any_of_their_names() {
        let ours = folder_or_own(None).unwrap();
        for name in [
            "MTMount/command/trackTarget",
            "MTMount_command_trackTarget",
            "lsst.sal.MTMount.command_trackTarget",
        ] {
            let topic = topic(&ours, name).unwrap();
            assert_eq!(topic.topic_name().as_str(), "MTMount/command/trackTarget", "{name}");
        }
        let telemetry = topic(&ours, "MTM1M3_forceActuatorData").unwrap();
        assert_eq!(telemetry.kind(), TopicKind::Telemetry);
        assert!(topic(&ours, "MTM1M3_nothing").is_err());
    }
}
