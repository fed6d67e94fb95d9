//! File systems of a given size, which get full: only root can have them.

use std::path::Path;
use std::process::Command;

/// Runs a test on a file system of a size of its own, if one can be mounted here; returns whether
/// it did.
pub(crate) fn on_tmpfs(size: &str, test: impl FnOnce(&Path) + std::panic::UnwindSafe) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("full disk: skipped, it needs root to mount a file system");
        return false;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("full disk: skipped, no file system can be mounted here");
        return false;
    }
    let outcome = std::panic::catch_unwind(|| test(dir.path()));
    Command::new("umount").arg("-l").arg(dir.path()).status().unwrap();
    outcome.unwrap();
    true
}
