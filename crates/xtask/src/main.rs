//! Checks of the house: layers, style limits, links; it reads the checkout and changes nothing.
//!
//! `cargo xtask tidy` runs all checks, `cargo xtask links` the documents' only, and
//! `cargo xtask-proto` generates Rust from Protobuf. Each finding is one
//! line, `path:line: check: what is wrong and what to do`; the exit code is 1 where there is one.
//!
//! A place that has a reason to be otherwise says so in a comment, on the line or directly above
//! it (for `file-length` and `line-width`: anywhere in the file):
//!
//! ```text
//! // tidy: allow(function-length): a table; it is read from top to bottom.
//! ```

mod allow;
mod circles;
mod foreign;
mod generated;
mod layers;
mod limits;
mod markdown;
mod metadata;
#[cfg(feature = "proto")]
mod proto;
mod python;
mod rust_checks;
mod rust_source;
mod tree;

use std::fmt;
use std::process::ExitCode;

use tree::{File, Tree};

/// One thing that is wrong at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    check: &'static str,
    message: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        check: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, check, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.check, self.message)
    }
}

fn tidy(tree: &Tree) -> Result<Vec<Finding>, String> {
    let packages = metadata::packages(&tree.root)?;
    let mut findings = links(tree);
    findings.extend(layers::check(&packages));
    findings.extend(packages.iter().flat_map(|package| crate_docs(tree, package)));
    findings.extend(rust_checks::stale_unsafe_list(tree));
    findings.extend(rust_checks::missing_paths(tree));
    findings.extend(circles::check(tree, &packages));
    findings.extend(generated::check(tree));
    findings.extend(circles::forbidden(tree));
    for file in &tree.files {
        if generated::is_output(&file.path) {
            continue;
        }
        findings.extend(foreign::check(file));
        findings.extend(allow::check(file));
        findings.extend(match file.language() {
            tree::Language::Rust => rust_checks::check(file),
            tree::Language::Python => python::check(file),
            tree::Language::Other => Vec::new(),
        });
    }
    Ok(findings)
}

fn crate_docs(tree: &Tree, package: &metadata::Package) -> Vec<Finding> {
    let roots = package.roots.iter();
    roots.filter_map(|root| rust_checks::crate_doc(tree.get(root)?)).collect()
}

fn links(tree: &Tree) -> Vec<Finding> {
    let broken = tree.files.iter().flat_map(|file: &File| markdown::check(file, tree));
    broken.chain(tree.files.iter().filter_map(|file| markdown::unlisted(file, tree))).collect()
}

fn run() -> Result<Vec<Finding>, String> {
    let usage = "usage: cargo xtask tidy | links";
    let task = std::env::args().nth(1).ok_or(usage)?;
    let tree = Tree::of_checkout()?;
    match task.as_str() {
        "tidy" => tidy(&tree),
        "links" => Ok(links(&tree)),
        #[cfg(feature = "proto")]
        "proto" => proto::write(&tree.root).map(|()| Vec::new()),
        _ => Err(usage.to_owned()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(mut findings) => {
            findings.sort();
            findings.iter().for_each(|finding| println!("{finding}"));
            match findings.len() {
                0 => ExitCode::SUCCESS,
                n => {
                    eprintln!("xtask: {n} finding(s)");
                    ExitCode::FAILURE
                }
            }
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
