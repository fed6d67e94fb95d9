//! A component's configuration: YAML files of a folder, one layer over the other.
//!
//! Constraints. The layers are `_init.yaml`, then `_<site>.yaml` where there is a site and the
//! file, then the override that the command `start` names. A name is a file of the folder and
//! never a path; a file has [`MAX_FILE_BYTES`] at the most.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use helio_core::schema::crc64_avro;
use serde_json::{Map, Value as Json};
use thiserror::Error;

use crate::protocol::layers::{LayerError, merge};

/// The largest configuration file, in bytes: tables of a few thousand numbers fit.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most overrides that are told of, so that the event stays readable.
const MAX_OVERRIDES: usize = 500;

/// Why there is no configuration. The component's state stays as it was.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The name is none of a file in the folder.
    #[error("{0:?} is no configuration; name a file of the folder, such as high_gain.yaml")]
    Name(String),
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is too large, or no YAML map.
    #[error("{path}: {reason}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The layers do not fit each other.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The values are not what the component takes.
    #[error("the configuration {files} is wrong: {reason}")]
    Values {
        /// The files, from the lowest layer up.
        files: String,
        /// What is wrong.
        reason: String,
    },
}

/// Where a component's configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFolder {
    /// The folder.
    pub folder: PathBuf,
    /// The site, whose layer is `_<site>.yaml`.
    pub site: Option<String>,
    /// The version of what the component takes, for the events.
    pub schema_version: String,
}

/// A configuration, merged.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loaded {
    pub values: Map<String, Json>,
    /// The files' names, from the lowest layer up, separated by commas.
    pub files: String,
    /// A checksum of the files: it changes when one does.
    pub version: String,
}

impl ConfigFolder {
    /// A folder without a site.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), site: None, schema_version: String::new() }
    }

    /// The overrides that there are, sorted, and a checksum of their names.
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

    /// Reads the layers; an empty override is none.
    pub(super) fn load(&self, with: &str) -> Result<Loaded, ConfigError> {
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
        Ok(Loaded { values, files: names.join(","), version })
    }
}

/// Whether that is the name of a file that may be chosen.
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
        Ok(_) => Err(wrong("it is no map of names and values".to_owned())),
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
        assert!(told("../etc/passwd").contains("is no configuration"));
        assert!(told("_init.yaml").contains("is no configuration"));
        assert!(told("text.yaml").contains("text.yaml: port is a text"));
        assert!(told("list.yaml").contains("it is no map"));
        assert!(told("broken.yaml").contains("broken.yaml"));
    }
}
