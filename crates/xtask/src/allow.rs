//! Comments that allow what a check forbids: `tidy: allow(CHECK): REASON`.

use crate::{File, Finding};

const OPENING: &str = "tidy: allow(";

/// The check that a line allows, and the reason it gives.
fn parse(line: &str) -> Option<(&str, &str)> {
    let rest = &line[line.find(OPENING)? + OPENING.len()..];
    let (check, rest) = rest.split_once(')')?;
    Some((check, rest.strip_prefix(':').unwrap_or("").trim()))
}

/// Whether the file allows a check for all of itself.
pub(crate) fn in_file(text: &str, check: &str) -> bool {
    text.lines().any(|line| parse(line).is_some_and(|(c, reason)| c == check && !reason.is_empty()))
}

/// Whether a line (from 1) is allowed what the check forbids: by itself, or by the comments and
/// attributes directly above it.
pub(crate) fn at_line(text: &str, line: usize, check: &str) -> bool {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let Some((this, above)) = lines.split_last() else { return false };
    let attached = above.iter().rev().take_while(|l| is_attached(l.trim_start()));
    attached.chain([this]).any(|l| in_file(l, check))
}

fn is_attached(line: &str) -> bool {
    ["//", "#", "@"].iter().any(|start| line.starts_with(start))
}

/// A permission without a reason is a finding.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().zip(1..);
    let bare = lines.filter(|(line, _)| parse(line).is_some_and(|(_, reason)| reason.is_empty()));
    let message = "give the reason after a colon: allow(…): REASON";
    bare.map(|(_, number)| Finding::new(&file.path, number, "allow", message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(reason: &str) -> String {
        format!("// {OPENING}file-length){reason}")
    }

    #[test]
    fn a_reason_is_needed() {
        let file = |text| File { path: "a.rs".into(), text };
        assert_eq!(check(&file(marker(": a table."))), []);
        assert_eq!(check(&file(marker(""))).len(), 1);
        assert_eq!(check(&file(marker(": "))).len(), 1);
        assert!(in_file(&marker(": a table."), "file-length"));
        assert!(!in_file(&marker(": a table."), "line-width"));
        assert!(!in_file(&marker(""), "file-length"));
    }

    #[test]
    fn a_line_is_allowed_by_what_is_attached_to_it() {
        let text = format!("{}\n#[inline]\nfn a() {{\n}}\nfn b() {{}}\n", marker(": a table."));
        assert!(at_line(&text, 3, "file-length"));
        assert!(!at_line(&text, 5, "file-length"));
    }
}
