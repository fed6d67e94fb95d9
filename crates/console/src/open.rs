//! Opening a bus and its topics, for all commands.

use std::path::PathBuf;

use helio_bus::{Builder, Bus, BusUrl, Topic, TopicError, TopicName, TopicSpec};
use helio_core::Qos;

use crate::error::{CliError, CliResult};

/// The given URL, or the default one.
pub fn url(given: Option<&str>) -> CliResult<String> {
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
pub fn state_folder() -> CliResult<PathBuf> {
    Ok(user_folder("XDG_STATE_HOME", ".local/state")?.join("heliograph"))
}

/// A user's folder by its XDG variable, or below the home folder.
pub fn user_folder(name: &str, in_home: &str) -> CliResult<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let found = folder(name).or_else(|| Some(folder("HOME")?.join(in_home)));
    found.ok_or_else(|| CliError::Usage(format!("there is no home folder; set {name} or HOME")))
}

/// Connects to an existing bus. It creates no journal, so that a mistyped path leaves nothing.
pub fn look(given: Option<&str>) -> CliResult<Bus> {
    Ok(Bus::connect(&existing_url(given)?)?)
}

/// The same for commands that change nothing: a journal is opened for reading.
pub fn look_only(given: Option<&str>) -> CliResult<Bus> {
    Ok(Bus::builder().read_only().connect(&existing_url(given)?)?)
}

fn existing_url(given: Option<&str>) -> CliResult<String> {
    let url = url(given)?;
    if let Some(folder) = empty_folder(&url)? {
        let folder = folder.display();
        return Err(CliError::NotFound(format!(
            "no journal in {folder}; check the path, or publish a sample to create one"
        )));
    }
    Ok(url)
}

/// The folder of a journal's URL, if it is empty or missing.
pub fn empty_folder(url: &str) -> CliResult<Option<PathBuf>> {
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

/// Connects, under the producer's name if given.
pub fn connect(given: Option<&str>, producer: Option<&str>) -> CliResult<Bus> {
    Ok(builder(producer).connect(&url(given)?)?)
}

/// A builder with the producer's name, if given.
pub fn builder(producer: Option<&str>) -> Builder {
    match producer {
        Some(name) => Bus::builder().producer(name),
        None => Bus::builder(),
    }
}

/// A topic's name of the command line.
pub fn name(text: &str) -> CliResult<TopicName> {
    TopicName::new(text).map_err(|e| CliError::Usage(e.to_string()))
}

/// A quality-of-service profile by name.
pub fn profile(name: &str) -> CliResult<Qos> {
    Qos::profile(name).ok_or_else(|| {
        CliError::Usage(format!("no profile is named {name:?}; `helio help pub` lists them"))
    })
}

/// Opens an existing topic with its newest declared schema.
pub fn existing(bus: &Bus, name: &TopicName) -> CliResult<Option<Topic>> {
    let Some(schemas) = bus.schemas_of(name)? else { return Ok(None) };
    let mut spec = TopicSpec::of(name.clone());
    if let Some(&id) = schemas.last() {
        spec = spec.schema(bus.schema_text(id)?);
    }
    Ok(Some(bus.topic(spec)?))
}

/// The same without a schema, for commands that read samples as they were written, or none: a
/// missing or edited text of a schema does not stop them.
pub fn existing_untyped(bus: &Bus, name: &TopicName) -> CliResult<Option<Topic>> {
    match bus.topic(TopicSpec::of(name.clone())) {
        Ok(topic) => Ok(Some(topic)),
        Err(TopicError::NoSuchTopic(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
