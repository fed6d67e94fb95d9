//! The way to a bus and its topics, as all commands take it.

use std::path::PathBuf;

use helio_bus::{Builder, Bus, BusUrl, SchemaText, Topic, TopicName, TopicSpec};
use helio_core::Qos;

use crate::error::{CliError, CliResult};

/// The URL that was given, or the default one.
pub(crate) fn url(given: Option<&str>) -> CliResult<String> {
    match given {
        Some(url) => Ok(url.to_owned()),
        None => {
            let folder = state_folder().map_err(|_| {
                let text =
                    "no bus is named and there is no home folder; give --url or set HELIO_URL";
                CliError::Usage(text.to_owned())
            })?;
            Ok(format!("journal:{}", folder.join("default").display()))
        }
    }
}

/// `$XDG_STATE_HOME/heliograph`, or the same under `~/.local/state`.
pub(crate) fn state_folder() -> CliResult<PathBuf> {
    Ok(user_folder("XDG_STATE_HOME", ".local/state")?.join("heliograph"))
}

/// A folder of the user's, by the name of the XDG base directory specification, or below the home.
pub(crate) fn user_folder(name: &str, in_home: &str) -> CliResult<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let found = folder(name).or_else(|| Some(folder("HOME")?.join(in_home)));
    found.ok_or_else(|| CliError::Usage(format!("there is no home folder; set {name} or HOME")))
}

/// Connects to look at what there is. No journal is made: a path that was mistyped leaves nothing.
pub(crate) fn look(given: Option<&str>) -> CliResult<Bus> {
    let url = url(given)?;
    if let Some(folder) = empty_folder(&url)? {
        let folder = folder.display();
        return Err(CliError::NotFound(format!(
            "there is no journal in {folder}; check the path, or publish something to make one"
        )));
    }
    connect(Some(&url), None)
}

/// The folder of a journal's URL, where nothing is in it or it does not exist.
pub(crate) fn empty_folder(url: &str) -> CliResult<Option<PathBuf>> {
    let url: BusUrl = url.parse()?;
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    if url.scheme() != "journal" || path.is_empty() {
        return Ok(None);
    }
    let folder = PathBuf::from(path);
    let empty = match std::fs::read_dir(&folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    Ok(empty.then_some(folder))
}

/// Connects, under a producer's name where one is given.
pub(crate) fn connect(given: Option<&str>, producer: Option<&str>) -> CliResult<Bus> {
    Ok(builder(producer).connect(&url(given)?)?)
}

/// What connects, under a producer's name where one is given.
pub(crate) fn builder(producer: Option<&str>) -> Builder {
    match producer {
        Some(name) => Bus::builder().producer(name),
        None => Bus::builder(),
    }
}

/// A topic's name, as the command line has it.
pub(crate) fn name(text: &str) -> CliResult<TopicName> {
    TopicName::new(text).map_err(|e| CliError::Usage(e.to_string()))
}

/// A quality of service profile by name.
pub(crate) fn profile(name: &str) -> CliResult<Qos> {
    Qos::profile(name).ok_or_else(|| {
        CliError::Usage(format!("no profile is called {name:?}; `helio help pub` lists them"))
    })
}

/// Opens a topic as it is, with the newest schema that was declared for it.
pub(crate) fn existing(bus: &Bus, name: &TopicName) -> CliResult<Option<Topic>> {
    let Some(schemas) = bus.schemas_of(name)? else { return Ok(None) };
    let mut spec = TopicSpec::of(name.clone());
    if let Some(&id) = schemas.last()
        && let Some(text) = bus.schema(id)?
    {
        spec = spec.schema(SchemaText { id, text: text.into() });
    }
    Ok(Some(bus.topic(spec)?))
}
