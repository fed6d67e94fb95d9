//! Links of the documents lead somewhere: to a file or folder of the checkout, and to a heading.

use crate::tree::Tree;
use crate::{File, Finding};

pub(crate) fn check(file: &File, tree: &Tree) -> Vec<Finding> {
    if !file.is_markdown() {
        return Vec::new();
    }
    let links = prose(&file.text).flat_map(|(line, number)| {
        targets(&line).into_iter().map(move |target| (target, number)).collect::<Vec<_>>()
    });
    links.filter_map(|(target, number)| broken(file, tree, &target, number)).collect()
}

/// A page under docs/ is listed in the README beside it: otherwise nobody finds it.
pub(crate) fn unlisted(file: &File, tree: &Tree) -> Option<Finding> {
    let (folder, name) = file.path.rsplit_once('/')?;
    if !file.is_markdown() || !file.path.starts_with("docs/") || name == "README.md" {
        return None;
    }
    let index = format!("{folder}/README.md");
    let is_listed = tree.get(&index).is_some_and(|index| {
        prose(&index.text).flat_map(|(line, _)| targets(&line)).any(|target| target == name)
    });
    let message = format!("no reader finds it; list it in {index}");
    (!is_listed).then(|| Finding::new(&file.path, 1, "unlisted", message))
}

fn broken(file: &File, tree: &Tree, target: &str, number: usize) -> Option<Finding> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let finding = |message| Some(Finding::new(&file.path, number, "link", message));
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => file.path.clone(),
        _ => match resolve(&file.path, path) {
            Some(path) if tree.contains(&path) => path,
            _ => return finding(format!("{target} leads to no file of the checkout")),
        },
    };
    let aim = tree.get(&path).filter(|aim| aim.is_markdown());
    match aim {
        Some(aim) if !anchor.is_empty() && !headings(&aim.text).any(|h| h == anchor) => {
            finding(format!("{target} leads to no heading of {path}"))
        }
        _ => None,
    }
}

/// The path from the checkout's root of a link in a file; none where it leaves the checkout.
fn resolve(from: &str, link: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines that are no code, with their numbers; code inside a line is blanked.
fn prose(text: &str) -> impl Iterator<Item = (String, usize)> {
    let mut fence: Option<&str> = None;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((without_code(line), number)),
            _ => {}
        }
        None
    })
}

fn without_code(line: &str) -> String {
    // A lone backtick opens nothing.
    let parts: Vec<&str> = line.split('`').collect();
    let is_code = |place: usize| place % 2 == 1 && place + 1 < parts.len();
    let places = parts.iter().enumerate().filter(|(place, _)| !is_code(*place));
    places.map(|(_, part)| *part).collect::<Vec<_>>().join("`")
}

/// The targets of `[text](target)`, `![text](target "title")` and `[label]: target`.
fn targets(line: &str) -> Vec<String> {
    let mut found: Vec<String> = line
        .match_indices("](")
        .filter_map(|(at, _)| line[at + 2..].split([')', ' ']).next())
        .map(str::to_owned)
        .collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next().map(str::to_owned));
    }
    found
}

/// The anchors of a document's headings, as GitHub makes them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        (!fenced).then(|| anchor(title))
    })
}

fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let tree = Tree::new(
            ".".into(),
            vec![
                ("README.md".into(), Some("# Heliograph: a bus\n".into())),
                ("docs/a.md".into(), Some(text.into())),
                ("docs/adr/0001.md".into(), Some("# One\n".into())),
            ],
        );
        check(tree.get("docs/a.md").expect("it is there"), &tree).len()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Top\n[a](../README.md) [b](adr) [c](adr/0001.md#one) [d](#top)\n\
                    [e](https://example.org/x) [f](../README.md#heliograph-a-bus)\n[g]: ../README.md\n";
        assert_eq!(findings(text), 0);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for link in ["b.md", "../../README.md", "#missing", "adr/0001.md#two", "/README.md2"] {
            assert_eq!(findings(&format!("see [x]({link}).\n")), 1, "{link}");
        }
        assert_eq!(findings("[x]: b.md\n"), 1);
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let contents = [
            ("docs/README.md", "[a](a.md)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/adr/0001.md", ""),
            ("README.md", ""),
        ];
        let contents = contents.map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
        let tree = Tree::new(".".into(), contents.into());
        let found = tree.files.iter().filter_map(|file| unlisted(file, &tree)).map(|f| f.path);
        assert_eq!(found.collect::<Vec<_>>(), ["docs/b.md", "docs/adr/0001.md"]);
    }

    #[test]
    fn code_is_no_link() {
        assert_eq!(findings("`[x](b.md)` and\n```\n[x](b.md)\n```\n"), 0);
    }
}
