//! Process identity: id, start time and boot, so that a reused id is not taken for its former
//! process.

use std::fs;

use crate::hash::mix;

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

    fn word(self) -> u64 {
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
