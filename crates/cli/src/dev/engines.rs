//! The embedded program of `tests/engines`, for an installed `helio`.
//!
//! It is written to the user's cache, in a folder named by its contents, so that engines of several
//! versions of `helio` can run side by side. Missing files are written again.

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

/// All files of `kafka`; a test runs it.
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

/// What `kube` has beside them; a test runs it, too.
const KUBE_FILES: &[(&str, &str)] = if cfg!(feature = "state") {
    files![
        "kube",
        "lib/control_plane.py",
        "lib/go/etcd/main.go",
        "lib/go/go.mod",
        "lib/go/go.sum",
        "lib/go/histories/client.go",
        "lib/go/histories/main.go",
        "lib/go/histories/model.go",
        "lib/go/histories/watch.go",
        "lib/go/tap/main.go",
        "lib/go/tap/shape.go",
        "lib/go/tools.go",
        "lib/go_modules.py",
        "lib/kube.py",
        "lib/kubernetes/go.mod",
        "lib/kubernetes/go.sum",
        "lib/kubernetes/kwok.yaml",
        "lib/kubernetes/tools.go",
    ]
} else {
    &[]
};

/// The age at which files of other versions are removed.
const STALE_FILES_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The variable with the program's name for its advice.
const PROGRAM_NAME_VARIABLE: &str = "HELIO_ENGINE_PROGRAM";

/// Runs an engine's program with arguments; it prints errors to standard error.
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

/// The folder with the files, which are written if missing.
fn unpacked() -> CliResult<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (FILES, KUBE_FILES).hash(&mut hasher);
    let cache = cache()?;
    let folder = cache.join(format!("engines-{:016x}", hasher.finish()));
    for (name, text) in FILES.iter().chain(KUBE_FILES) {
        let path = folder.join(name);
        if !std::fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            write(&path, text).map_err(|error| CliError::file(&path, &error))?;
        }
    }
    sweep(&cache, &folder);
    Ok(folder)
}

/// Writes a file atomically.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, path)
}

/// Removes old files of other versions; failures are ignored.
fn sweep(cache: &Path, own: &Path) {
    let others = std::fs::read_dir(cache).into_iter().flatten().flatten().filter(|entry| {
        let is_engines = entry.file_name().to_string_lossy().starts_with("engines-");
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        is_engines && entry.path() != own && age.is_some_and(|age| age > STALE_FILES_AGE)
    });
    others.for_each(|entry| _ = std::fs::remove_dir_all(entry.path()));
}

/// The folder of the engines' own files, too.
fn cache() -> CliResult<PathBuf> {
    Ok(crate::open::user_folder("XDG_CACHE_HOME", ".cache")?.join("heliograph"))
}
