//! The program of `tests/engines`, carried along, so that an installed `helio` has it as well.
//!
//! It is written to the user's cache, in a folder named by its contents: what is there is whole,
//! and nobody changes it while an engine of another version of `helio` is looked after by it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::error::{CliError, CliResult};

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../tests/engines/", $path)))),+]
    };
}

/// All that `kafka` consists of; a test runs it.
const FILES: &[(&str, &str)] = files![
    "kafka",
    "lib/__init__.py",
    "lib/certificates.py",
    "lib/cli.py",
    "lib/engine.py",
    "lib/errors.py",
    "lib/files.py",
    "lib/java.py",
    "lib/kafka.lock",
    "lib/kafka.pom.xml",
    "lib/kafka.py",
    "lib/kafka_users.py",
    "lib/kafka_wire.py",
    "lib/kind.py",
    "lib/log4j2.xml",
    "lib/maven.py",
    "lib/ports.py",
    "lib/process.py",
];

/// What the program is told that it is called, so that its advice can be followed.
const NAME: &str = "HELIO_ENGINE_PROGRAM";

/// Runs the program of an engine with arguments; it says on standard error what is wrong.
pub(super) fn run(engine: &str, arguments: &[&std::ffi::OsStr]) -> CliResult<ExitStatus> {
    let program = unpacked()?.join(engine);
    let mut command = Command::new("python3");
    command.arg(&program).args(arguments).env(NAME, format!("helio dev {engine}"));
    command.status().map_err(|error| match error.kind() {
        ErrorKind::NotFound => CliError::NotFound(
            "python3 is not on PATH; engines are started by Python 3.11 or newer (Debian: python3)"
                .to_owned(),
        ),
        _ => CliError::Failure(format!("cannot start python3: {error}")),
    })
}

/// The folder with the files, written there unless they are there already.
fn unpacked() -> CliResult<PathBuf> {
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    let cache = cache()?;
    let folder = cache.join(format!("engines-{:016x}", hasher.finish()));
    if folder.exists() {
        return Ok(folder);
    }
    let draft = cache.join(format!("engines-draft-{}", std::process::id()));
    for (name, text) in FILES {
        write(&draft.join(name), text)?;
    }
    match std::fs::rename(&draft, &folder) {
        // Another process was faster, with the same files.
        Err(_) if folder.exists() => _ = std::fs::remove_dir_all(&draft),
        renamed => renamed.map_err(|error| CliError::file(&folder, &error))?,
    }
    Ok(folder)
}

fn write(path: &Path, text: &str) -> CliResult {
    let parent = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, text));
    written.map_err(|error| CliError::file(path, &error))
}

/// Where the engines' own files are kept too.
fn cache() -> CliResult<PathBuf> {
    Ok(crate::open::user_folder("XDG_CACHE_HOME", ".cache")?.join("heliograph"))
}
