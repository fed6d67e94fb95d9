//! Texts of filters: on the command line, in files, and stored ones.

use std::path::Path;

use helio_alert_filters::{FilterId, FilterStore, Language, Version};
use helio_console::error::{CliError, CliResult};

use crate::args::{FilterName, LanguageOption};

/// A text with its language.
pub(crate) struct Text {
    pub(crate) language: Language,
    pub(crate) text: String,
}

impl Text {
    /// The text itself, or that of `@FILE`.
    pub(crate) fn read(given: &str, language: &LanguageOption) -> CliResult<Self> {
        let (text, is_python) = match given.strip_prefix('@') {
            None => (given.to_owned(), false),
            Some(path) => {
                let path = Path::new(path);
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| CliError::file(path, &error))?;
                (text, path.extension().is_some_and(|extension| extension == "py"))
            }
        };
        let by_name = if is_python { Language::Python } else { Language::Sql };
        Ok(Self { language: language.language.map_or(by_name, Language::from), text })
    }
}

/// A stored version, or the newest one.
pub(crate) fn stored(store: &FilterStore, filter: &FilterName) -> CliResult<Version> {
    let FilterName { user, name, version } = filter;
    let definitions = store.definitions();
    let found = match version {
        None => definitions.newest(user, name),
        Some(version) => {
            let (user, name) = (user.clone(), name.clone());
            definitions.version(&FilterId { user, name, version: *version })
        }
    };
    found.cloned().ok_or_else(|| {
        let version = version.map(|version| format!("@{version}")).unwrap_or_default();
        CliError::NotFound(format!(
            "there is no filter {user}/{name}{version}; `helio alerts filter versions` lists them"
        ))
    })
}
