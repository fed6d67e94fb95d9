//! The identity of a process on its host, which its participant announces as USER_DATA. By it
//! others on the host can tell that the process has ended, before its lease expires.
//!
//! Format. `helio-process BOOT NAMESPACE PID START`: the boot's id, the link of the PID namespace,
//! and the process's start time in clock ticks since the boot. A PID says nothing in another
//! namespace, and without its start time it may be a later process's.

use std::fs;

const PREFIX: &str = "helio-process";

/// This process's identity; `None` where `/proc` is missing.
pub(crate) fn own() -> Option<String> {
    let pid = std::process::id();
    let Stat { start, .. } = stat(pid)?;
    Some(format!("{PREFIX} {} {pid} {start}", place()?))
}

/// Whether a process has ended. `false` if that cannot be known: it runs elsewhere, or it or its
/// end is hidden here.
pub(crate) fn has_ended(identity: &[u8]) -> bool {
    ended(identity).unwrap_or(false)
}

fn ended(identity: &[u8]) -> Option<bool> {
    let identity = std::str::from_utf8(identity).ok()?.strip_prefix(PREFIX)?;
    let mut words = identity.trim_start().rsplitn(3, ' ');
    let (start, pid): (u64, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    if words.next()? != place()? {
        return None;
    }
    // Where `/proc` hides other users' processes, it hides the first one, too.
    stat(1)?;
    Some(stat(pid).is_none_or(|now| now.dead || now.start != start))
}

/// The boot and the PID namespace.
fn place() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

struct Stat {
    start: u64,
    dead: bool,
}

/// Start time and state, from `/proc/PID/stat`.
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
    fn a_process_has_ended_when_it_or_its_start_time_is_gone() {
        let own = own().expect("/proc is mounted");
        assert!(!has_ended(own.as_bytes()), "{own}");
        let (process, start) = own.rsplit_once(' ').expect("it has words");
        let start: u64 = start.parse().expect("a number");
        assert!(has_ended(format!("{process} {}", start + 1).as_bytes()), "its number is reused");
        let mut child = std::process::Command::new("true").spawn().expect("it runs");
        let (place, _) = process.rsplit_once(' ').expect("it has words");
        let of = |pid: u32, start: u64| format!("{place} {pid} {start}");
        let begun = stat(child.id()).map_or(start, |stat| stat.start);
        child.wait().expect("it ends");
        assert!(has_ended(of(child.id(), begun).as_bytes()));
        let elsewhere = of(child.id(), begun).replace("pid:[", "pid:[9");
        for unknown in [&elsewhere[..], "", PREFIX, "helio-process a b", "another's 1 2 3"] {
            assert!(!has_ended(unknown.as_bytes()), "{unknown}");
        }
    }
}
