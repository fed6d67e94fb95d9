//! The checkout's files: those that git tracks or would track, with their text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a file is written in, as far as the checks care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    Other,
}

/// A text file: its path from the checkout's root, and its text.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn language(&self) -> Language {
        let extension = Path::new(&self.path).extension().and_then(|e| e.to_str());
        match extension {
            Some("rs") => Language::Rust,
            Some("py" | "pyi") => Language::Python,
            None if self.text.lines().next().is_some_and(is_python_shebang) => Language::Python,
            _ => Language::Other,
        }
    }

    pub(crate) fn is_markdown(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == "md")
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "examples"];
        let mut parts = self.path.split('/').rev();
        parts.next().is_some_and(|name| name == "tests.rs") || parts.any(|p| folders.contains(&p))
    }
}

fn is_python_shebang(line: &str) -> bool {
    line.starts_with("#!") && line.contains("python")
}

/// All files of a checkout.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<File>,
    /// Every path, whether text or not, with its place in `files` where it is text.
    paths: BTreeMap<String, Option<usize>>,
}

impl Tree {
    pub(crate) fn new(root: PathBuf, contents: Vec<(String, Option<String>)>) -> Self {
        let (mut files, mut paths) = (Vec::new(), BTreeMap::new());
        for (path, text) in contents {
            let place = text.map(|text| {
                files.push(File { path: path.clone(), text });
                files.len() - 1
            });
            paths.insert(path, place);
        }
        Self { root, files, paths }
    }

    /// Reads the checkout that the working directory is in.
    pub(crate) fn of_checkout() -> Result<Self, String> {
        let root =
            PathBuf::from(git(Path::new("."), &["rev-parse", "--show-toplevel"])?.trim_end());
        let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut contents = Vec::new();
        for path in git(&root, &listing)?.split_terminator('\0') {
            // A file that was removed and not yet committed is still listed.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            contents.push((path.to_owned(), String::from_utf8(bytes).ok()));
        }
        Ok(Self::new(root, contents))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.paths.get(path)?.map(|place| &self.files[place])
    }

    /// Whether there is such a file or folder.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains_key(path)
            || self
                .paths
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.map_err(|e| format!("cannot run git ({e}); install it"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}; run inside a checkout", arguments[0], said.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| "a path is not UTF-8; rename it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_told_by_extension_and_first_line() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        assert_eq!(file("a/b.rs", "").language(), Language::Rust);
        assert_eq!(file("a/run", "#!/usr/bin/env python3\n").language(), Language::Python);
        assert_eq!(file("a/run", "#!/usr/bin/env bash\n").language(), Language::Other);
        assert!(file("crates/x/tests/a.rs", "").is_test());
        assert!(!file("crates/x/src/a.rs", "").is_test());
    }

    #[test]
    fn folders_are_contained() {
        let tree = Tree::new(".".into(), vec![("docs/adr/1.md".into(), None)]);
        assert!(tree.contains("docs/adr") && tree.contains("docs/adr/1.md") && tree.contains(""));
        assert!(!tree.contains("doc") && !tree.contains("docs/adr/2.md"));
    }
}
