//! Processor time and memory of other processes, as the kernel counts them (proc(5)).

/// The unit of processor time in `/proc`: `USER_HZ` of Linux's interface.
const TICKS_PER_S: f64 = 100.0;

/// What a process has used so far, and the memory that it has now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessUse {
    /// Processor seconds, those of its awaited children included.
    pub cpu_s: f64,
    /// Anonymous memory (`RssAnon`), bytes.
    pub anonymous_bytes: f64,
}

impl ProcessUse {
    /// Of a process by its number; `None` if there is none.
    pub fn of(process: u32) -> Option<Self> {
        let [stat, status] = ["stat", "status"]
            .map(|name| std::fs::read_to_string(format!("/proc/{process}/{name}")).ok());
        let stat = stat?;
        // The command's name is in brackets and may contain spaces. The four times begin at field
        // 14.
        let fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
        let kib = number(&status?, "RssAnon:").unwrap_or_default();
        Some(Self { cpu_s: ticks as f64 / TICKS_PER_S, anonymous_bytes: kib * 1024.0 })
    }
}

/// The number behind a name at the beginning of a line, as in the files of `/proc`.
pub fn number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured() {
        assert!(ProcessUse::of(std::process::id()).is_some_and(|own| own.anonymous_bytes > 1e5));
        assert_eq!(ProcessUse::of(u32::MAX), None);
        assert_eq!(number("a: 1 kB\nb:\t 2 kB\n", "b:"), Some(2.0));
    }
}
