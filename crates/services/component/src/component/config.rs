//! A component's configuration: YAML files of a folder, merged in layers.
//!
//! Constraints. The layers are `_init.yaml`, then `_<site>.yaml` if there is a site and that file,
//! then the override that the command `start` names. A name must be a file of the folder, never a
//! path. A file has at most [`MAX_FILE_BYTES`].

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use helio_core::schema::crc64_avro;
use serde_json::{Map, Value as Json};
use thiserror::Error;

use crate::protocol::layers::{LayerError, merge};

/// The largest configuration file, in bytes; tables of a few thousand numbers fit.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most overrides that are listed, so that the event stays readable.
const MAX_OVERRIDES: usize = 500;

/// Why a configuration cannot be loaded. The component's state does not change.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The folder has no file of that name.
    #[error("{0:?} is not a configuration; name a file of the folder, such as high_gain.yaml")]
    Name(String),
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file is too large, or not a YAML map.
    #[error("{path}: {reason}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The error and its position.
        reason: String,
    },
    /// The layers contradict each other.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The values do not fit the component's type.
    #[error("the configuration {files} is wrong: {reason}")]
    Values {
        /// The files, from the lowest layer up.
        files: String,
        /// The error.
        reason: String,
    },
}

/// The location of a component's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFolder {
    /// The folder.
    pub folder: PathBuf,
    /// The site; its layer is `_<site>.yaml`.
    pub site: Option<String>,
    /// The version of the configuration's schema, for the events.
    pub schema_version: String,
}

/// A merged configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadedConfig {
    pub values: Map<String, Json>,
    /// The files' names, from the lowest layer up, separated by commas.
    pub files: String,
    /// A checksum of the files.
    pub version: String,
}

impl ConfigFolder {
    /// A folder without a site.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), site: None, schema_version: String::new() }
    }

    /// The available overrides, sorted, and a checksum of their names.
    pub(super) fn available(&self) -> (String, String) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_override(name)).collect();
        names.sort_unstable();
        names.truncate(MAX_OVERRIDES);
        let names = names.join(",");
        let version = format!("{:016x}", crc64_avro(names.as_bytes()));
        (names, version)
    }

    /// Reads the layers; an empty name selects no override.
    pub(super) fn load(&self, with: &str) -> Result<LoadedConfig, ConfigError> {
        if !with.is_empty() && !is_override(with) {
            return Err(ConfigError::Name(with.chars().take(100).collect()));
        }
        let mut names = vec!["_init.yaml".to_owned()];
        let site = self.site.as_ref().map(|site| format!("_{site}.yaml"));
        names.extend(site.filter(|name| self.folder.join(name).is_file()));
        if !with.is_empty() {
            names.push(with.to_owned());
        }
        let (mut layers, mut texts) = (Vec::new(), Vec::new());
        for name in &names {
            let path = self.folder.join(name);
            let text = read(&path)?;
            texts.extend_from_slice(text.as_bytes());
            layers.push((name.as_str(), parse(&path, &text)?));
        }
        let values = merge(layers)?;
        let version = format!("{:016x}", crc64_avro(&texts));
        Ok(LoadedConfig { values, files: names.join(","), version })
    }
}

/// Whether a name may be chosen as an override.
fn is_override(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    name.ends_with(".yaml") && !name.starts_with(['_', '.']) && name.chars().all(legal)
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|source| ConfigError::Io { path: path.to_owned(), source })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let reason = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(ConfigError::Yaml { path: path.to_owned(), reason });
    }
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Map<String, Json>, ConfigError> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let wrong = |reason: String| ConfigError::Yaml { path: path.to_owned(), reason };
    match serde_saphyr::from_str::<Json>(text) {
        Ok(Json::Object(values)) => Ok(values),
        Ok(Json::Null) => Ok(Map::new()),
        Ok(_) => Err(wrong("it is not a map of names and values".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn folder() -> (tempfile::TempDir, ConfigFolder) {
        let folder = tempfile::tempdir().unwrap();
        let config =
            ConfigFolder { site: Some("summit".into()), ..ConfigFolder::new(folder.path()) };
        (folder, config)
    }

    fn write(folder: &tempfile::TempDir, name: &str, text: &str) {
        fs::write(folder.path().join(name), text).unwrap();
    }

    #[test]
    fn layers_lie_over_each_other() {
        let (dir, config) = folder();
        write(&dir, "_init.yaml", "host: a\nport: 1\n");
        write(&dir, "_summit.yaml", "host: b\n");
        write(&dir, "slow.yaml", "port: 2\n");
        assert_eq!(config.available().0, "slow.yaml");
        let loaded = config.load("slow.yaml").unwrap();
        assert_eq!(Json::Object(loaded.values), json!({"host": "b", "port": 2}));
        assert_eq!(loaded.files, "_init.yaml,_summit.yaml,slow.yaml");
        let before = config.load("").unwrap();
        write(&dir, "_summit.yaml", "host: c\n");
        assert_ne!(config.load("").unwrap().version, before.version);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_file() {
        let (dir, config) = folder();
        let told = |with: &str| config.load(with).unwrap_err().to_string();
        assert!(told("").contains("_init.yaml cannot be read"));
        write(&dir, "_init.yaml", "port: 1\n");
        write(&dir, "text.yaml", "port: one\n");
        write(&dir, "list.yaml", "- 1\n");
        write(&dir, "broken.yaml", "port: [1\n");
        assert!(told("../etc/passwd").contains("is not a configuration"));
        assert!(told("_init.yaml").contains("is not a configuration"));
        assert!(told("text.yaml").contains("text.yaml: port is a text"));
        assert!(told("list.yaml").contains("it is not a map"));
        assert!(told("broken.yaml").contains("broken.yaml"));
    }
}
