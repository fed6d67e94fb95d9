//! Process identity: id, start time and boot, so that a reused id is not taken for its former
//! process.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::hash::{mix, random};

/// The running system's boot id, which changes with each boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BootId(pub [u8; 16]);

impl BootId {
    /// Reads the kernel's boot id; `None` where `/proc` is missing.
    pub(crate) fn current() -> Option<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&hex, 16).ok().map(|id| Self(id.to_be_bytes()))
    }

    pub(crate) fn word(self) -> u64 {
        u128::from_le_bytes(self.0) as u64 ^ (u128::from_le_bytes(self.0) >> 64) as u64
    }
}

/// A process as a word in shared memory: id in the upper half, a hash of start time and boot in the
/// lower. 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

impl Token {
    pub(crate) const NOBODY: Self = Self(0);

    /// The calling process.
    pub(crate) fn own(boot: BootId) -> Self {
        let pid = std::process::id();
        Self::of(pid, stat(pid).map_or(0, |s| s.start), boot)
    }

    /// A process that others, which may be in another PID namespace, know by a random number.
    pub(crate) fn random() -> Self {
        Self(u64::from(std::process::id()) << 32 | random() & u64::from(u32::MAX) | 1)
    }

    fn of(pid: u32, start: u64, boot: BootId) -> Self {
        let check = mix(start ^ boot.word()) as u32 | 1;
        Self(u64::from(pid) << 32 | u64::from(check))
    }

    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns whether that process still runs. A zombie does not.
    pub(crate) fn alive(self, boot: BootId) -> bool {
        if self == Self::NOBODY {
            return false;
        }
        let pid = self.pid();
        match stat(pid) {
            Some(s) => !s.dead && Self::of(pid, s.start, boot) == self,
            // Other users' processes may be hidden in /proc: then only the id's existence counts.
            None => exists(pid),
        }
    }
}

/// Returns the PID namespace of this process; `None` if `/proc` is missing or shows another one's
/// processes.
pub(crate) fn pid_namespace() -> Option<u64> {
    let shown = fs::read_link("/proc/self").ok()?;
    let own = shown.to_str()?.parse() == Ok(std::process::id());
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) => own.then(|| namespace.ino()),
        // A kernel without namespaces.
        Err(_) => own.then_some(1),
    }
}

/// Returns a thread's process, and its name and state for people.
pub(crate) fn process_of(thread: u32) -> (u32, String) {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let field = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.map_or("", str::trim)
    };
    let stopped = matches!(field("State").chars().next(), Some('T' | 't'));
    let process = field("Tgid").parse().unwrap_or(thread);
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { "name unknown" } else { name.trim() };
    (process, format!("{name}{}", if stopped { ", stopped" } else { "" }))
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(pid) = pid else { return false };
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

struct Stat {
    start: u64,
    dead: bool,
}

/// Reads start time (clock ticks since boot) and state of a process from `/proc/PID/stat`.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    Some(Stat { start: fields.nth(18)?.parse().ok()?, dead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_dead() {
        let boot = BootId::current().unwrap();
        assert!(Token::own(boot).alive(boot));
        assert!(!Token::own(BootId([9; 16])).alive(boot), "another boot's process of the same id");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let token = Token::of(child.id(), stat(child.id()).unwrap().start, boot);
        assert!(token.alive(boot));
        child.kill().unwrap();
        while stat(child.id()).is_some_and(|s| !s.dead) {
            std::thread::yield_now();
        }
        assert!(!token.alive(boot), "a zombie is dead");
        child.wait().unwrap();
        assert!(!token.alive(boot));
        assert!(!Token::NOBODY.alive(boot));
    }
}
