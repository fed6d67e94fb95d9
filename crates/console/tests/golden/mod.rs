//! Goldens of what a program shows to others by name: its command line and the keys of its JSON.
//! They hold the names apart from the Rust identifiers that they come from.
//!
//! Where a change is intended, a failed test leaves the new text in the folder for temporary files,
//! and names it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};

/// Compares a text with its golden. Where they differ, the new text is left beside the build.
pub(crate) fn hold(name: &str, golden: &str, actual: &str) {
    if golden == actual {
        return;
    }
    let place = std::env::temp_dir().join(name);
    std::fs::write(&place, actual).unwrap();
    let differs = |(golden, actual): &(&str, &str)| golden != actual;
    let first = golden.lines().zip(actual.lines()).find(differs);
    panic!("{name} differs, first in {first:?}; all of it is in {}", place.display());
}

/// Lists commands, arguments, values, defaults and environment variables, under a program's name.
pub(crate) fn command_line(mut cli: Command, program: &str) -> String {
    let mut text = String::new();
    cli.build();
    list_command(&cli, program, program, &mut text);
    text
}

fn list_command(command: &Command, program: &str, path: &str, text: &mut String) {
    let hidden = if command.is_hide_set() { " (hidden)" } else { "" };
    writeln!(text, "{path}{hidden}").unwrap();
    let own = |arg: &&Arg| !arg.is_global_set() || path == program;
    for arg in command.get_arguments().filter(own) {
        writeln!(text, "  {}", argument(command, arg)).unwrap();
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        list_command(sub, program, &format!("{path} {}", sub.get_name()), text);
    }
}

fn argument(command: &Command, arg: &Arg) -> String {
    let names: Vec<_> = [arg.get_short().map(|short| format!("-{short}"))]
        .into_iter()
        .chain([arg.get_long().map(|long| format!("--{long}"))])
        .flatten()
        .collect();
    let mut line = names.join(" ");
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if takes_values {
        let values = arg.get_value_names().unwrap_or_default().join(" ");
        write!(line, " <{values}>").unwrap();
        write!(line, " {}", arg.get_num_args().unwrap_or_default()).unwrap();
    }
    write!(line, " {:?}", arg.get_action()).unwrap();
    if arg.is_required_set() {
        line.push_str(" required");
    }
    if let Some(variable) = arg.get_env() {
        write!(line, " env={}", variable.display()).unwrap();
    }
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() {
        write!(line, " default={}", defaults.join(" ")).unwrap();
    }
    let possible = arg.get_possible_values();
    if takes_values && !possible.is_empty() {
        let possible: Vec<_> = possible.iter().map(|value| value.get_name()).collect();
        write!(line, " of={}", possible.join("|")).unwrap();
    }
    let conflicts = command.get_arg_conflicts_with(arg);
    if !conflicts.is_empty() {
        let name = |arg: &&Arg| arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned();
        let conflicts: Vec<_> = conflicts.iter().map(name).collect();
        write!(line, " not-with={}", conflicts.join("|")).unwrap();
    }
    line.trim_start().to_owned()
}

/// The keys and variants of every type below a folder of sources that becomes JSON, a line for each
/// type, in the order of the lines: types and modules may change their names.
pub(crate) fn json_keys(folder: &Path) -> String {
    let mut files = Vec::new();
    sources(folder, &mut files);
    let mut lines: Vec<String> = files
        .iter()
        .flat_map(|file| serialized_types(&std::fs::read_to_string(file).unwrap()))
        .collect();
    lines.sort();
    lines.join("\n") + "\n"
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("golden.rs") {
            files.push(path);
        }
    }
}

/// The names of a source file's types that derive `Serialize`, as the standard format lays them
/// out: an item's end is a closing brace at the margin.
pub(crate) fn serialized_types(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[derive(") && line.contains("Serialize")) {
            continue;
        }
        let mut text = String::new();
        for line in lines.by_ref() {
            let code = line.split("//").next().unwrap_or_default();
            text.push_str(code.trim());
            text.push(' ');
            if line.starts_with('}') || line.ends_with(';') && !line.starts_with(' ') {
                break;
            }
        }
        found.push(names(&text));
    }
    found
}

/// One type without its name, its visibilities, and the types of its fields.
fn names(text: &str) -> String {
    let (attributes, item) = text.split_once("struct ").map_or_else(
        || text.split_once("enum ").map(|(a, i)| (a, format!("enum {i}"))).unwrap(),
        |(a, i)| (a, format!("struct {i}")),
    );
    let kind = item.split(' ').next().unwrap_or_default().to_owned();
    let body = item.find(['{', '(', ';']).map_or("", |at| &item[at..]);
    let mut line = serde_attributes(attributes) + &kind;
    // Depth of braces, where names of fields are, and of what belongs to a field's type.
    let (mut of_type, mut word, mut in_type) = (0_usize, String::new(), false);
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        if let Some(attribute) = rest.strip_prefix("#[") {
            let end = attribute.find(']').unwrap();
            line += &serde_attributes(&rest[..end + 3]);
            rest = &attribute[end + 1..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '(' | '<' | '[' => of_type += 1,
            ')' | '>' | ']' => of_type = of_type.saturating_sub(1),
            ':' if of_type == 0 => in_type = true,
            ',' | '{' | '}' if of_type == 0 => {
                let name = word.split_whitespace().last().unwrap_or_default();
                write!(line, " {name}").unwrap();
                if c != ',' {
                    line.push(c);
                }
                (word, in_type) = (String::new(), false);
            }
            _ if of_type == 0 && !in_type => word.push(c),
            _ => {}
        }
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn serde_attributes(text: &str) -> String {
    let serde = text.split("#[serde(").skip(1);
    serde.map(|one| format!("({}) ", one.split(")]").next().unwrap_or_default())).collect()
}
