//! The program of `tests/engines`, carried along, so that an installed `helio` has it as well.
//!
//! It is written to the user's cache, in a folder named by its contents, so that nobody changes it
//! while an engine of another version of `helio` is looked after by it. What somebody has cleaned
//! away is written again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

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
    "lib/kafka_cache.py",
    "lib/kafka_users.py",
    "lib/kafka_wire.py",
    "lib/kind.py",
    "lib/log4j2.xml",
    "lib/maven.py",
    "lib/ports.py",
    "lib/process.py",
    "lib/shared.py",
];

/// The age at which the files of another version are removed.
const STALE_FILES_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the program is told that it is called, so that its advice can be followed.
const PROGRAM_NAME_VARIABLE: &str = "HELIO_ENGINE_PROGRAM";

/// Runs the program of an engine with arguments; it says on standard error what is wrong.
pub(super) fn run(engine: &str, arguments: &[&std::ffi::OsStr]) -> CliResult<ExitStatus> {
    let program = unpacked()?.join(engine);
    let mut command = Command::new("python3");
    command.arg(&program).args(arguments).env(PROGRAM_NAME_VARIABLE, format!("helio dev {engine}"));
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
    for (name, text) in FILES {
        let path = folder.join(name);
        if !std::fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            write(&path, text).map_err(|error| CliError::file(&path, &error))?;
        }
    }
    sweep(&cache, &folder);
    Ok(folder)
}

/// Whoever reads it meanwhile finds all of it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, path)
}

/// Removes what other versions have left long ago. Where it fails it stays.
fn sweep(cache: &Path, own: &Path) {
    let others = std::fs::read_dir(cache).into_iter().flatten().flatten().filter(|entry| {
        let is_engines = entry.file_name().to_string_lossy().starts_with("engines-");
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        is_engines && entry.path() != own && age.is_some_and(|age| age > STALE_FILES_AGE)
    });
    others.for_each(|entry| _ = std::fs::remove_dir_all(entry.path()));
}

/// Where the engines' own files are kept too.
fn cache() -> CliResult<PathBuf> {
    Ok(crate::open::user_folder("XDG_CACHE_HOME", ".cache")?.join("heliograph"))
}
