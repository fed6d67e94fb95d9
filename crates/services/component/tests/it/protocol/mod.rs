//! Text scripts of the protocol, and properties of every sequence of inputs.
//!
//! A script of `tests/scripts` is a conversation. A line with a time in seconds is an input; the
//! indented lines below it are its effects, in order. If the effects differ, the test prints both.
//! `HELIO_WRITE_SCRIPTS=1 cargo test -p helio-component` writes the actual effects into the scripts
//! instead; review them before committing.

mod caller;
mod controller;
mod script;
mod sequences;

use std::path::{Path, PathBuf};

use script::Actor;

#[test]
fn scripts_of_components_come_out_as_written() {
    run("component", |line| Box::new(controller::Stage::new(line)));
}

#[test]
fn scripts_of_callers_come_out_as_written() {
    run("caller", |line| Box::new(caller::Stage::new(line)));
}

/// Runs all scripts whose names have a prefix.
fn run(kind: &str, actor: fn(&str) -> Box<dyn Actor>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder of scripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(kind)))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts of {kind}");
    let different: Vec<String> = paths.iter().filter_map(|path| difference(path, actor)).collect();
    assert!(different.is_empty(), "\n{}", different.join("\n"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// The differences between a script's effects and the actual ones.
fn difference(path: &Path, actor: fn(&str) -> Box<dyn Actor>) -> Option<String> {
    let written = std::fs::read_to_string(path).expect("a script is UTF-8");
    let comes = script::play(&written, actor);
    if written == comes {
        return None;
    }
    if std::env::var_os("HELIO_WRITE_SCRIPTS").is_some() {
        std::fs::write(path, comes).expect("the script is writable");
        return None;
    }
    Some(format!("{}\n{}", path.display(), script::diff(&written, &comes)))
}
