//! The bus of one run of a bench or demo: the given one, or a new journal in a temporary folder.

use std::path::{Path, PathBuf};

use crate::error::{CliError, CliResult};

/// The bus of a run. Dropping it removes the temporary folder.
pub struct RunBus {
    url: String,
    scratch: Option<PathBuf>,
}

impl RunBus {
    /// The given bus, or a new journal in `parent` (default: the folder for temporary files).
    pub fn fresh(what: &str, parent: Option<&Path>, url: Option<&str>) -> CliResult<Self> {
        if let Some(url) = url {
            return Ok(Self { url: url.to_owned(), scratch: None });
        }
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let scratch = parent.join(format!("{what}.{}", std::process::id()));
        std::fs::create_dir_all(&scratch).map_err(|e| CliError::file(&scratch, &e))?;
        Ok(Self { url: format!("journal:{}", scratch.display()), scratch: Some(scratch) })
    }

    /// The temporary folder, if there is one.
    pub fn scratch(&self) -> Option<&Path> {
        self.scratch.as_deref()
    }

    /// Refuses `memory:`, which is one process, to a command that starts several.
    pub fn refuse_memory(&self, processes: u32) -> CliResult {
        if !self.url.starts_with("memory:") {
            return Ok(());
        }
        Err(CliError::Refused(format!(
            "memory: is one process and this command starts {processes}; use a journal: instead"
        )))
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for RunBus {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch {
            // What cannot be removed stays in the folder for temporary files.
            let _ = std::fs::remove_dir_all(scratch);
        }
    }
}
