//! The house's rules for Rust: sizes, `unsafe`, `unwrap`, boolean parameters, what each layer
//! must not name. (That each `unsafe` block has its `SAFETY:` sentence, clippy checks.)

use crate::limits::{
    BUS_JOURNAL, BUS_REGISTRY, BUS_SOURCE, FILE_LINES, FUNCTION_LINES, LINE_COLUMNS,
    PROTOCOL_SOURCES, PURE_FORBIDDEN, PURE_SOURCES, TRANSPORTS, UNSAFE_MODULES,
};
use crate::rust_source::{Source, matching, split_top_level, words};
use crate::tree::Tree;
use crate::{File, Finding, allow};

pub(crate) fn check(file: &File) -> Vec<Finding> {
    let source = Source::new(&file.text);
    let mut findings = sizes(file);
    findings.extend(long_functions(file, &source));
    findings.extend(ignored_tests(file, &source));
    if !file.is_test() {
        findings.extend(unsafe_code(file, &source));
        findings.extend(unwraps(file, &source));
        findings.extend(boolean_parameters(file, &source));
        findings.extend(impure_names(file, &source));
        findings.extend(protocol_names(file, &source));
        findings.extend(bus_names(file, &source));
    }
    findings
}

/// Checks that hold for a file of any language: its length and its lines' widths.
pub(crate) fn sizes(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES && !allow::in_file(&file.text, "file-length") {
        let message = format!("{lines} lines, {FILE_LINES} at most; split it by what it does");
        findings.push(Finding::new(&file.path, 1, "file-length", message));
    }
    if !allow::in_file(&file.text, "line-width") {
        findings.extend(wide_lines(file));
    }
    findings
}

fn wide_lines(file: &File) -> impl Iterator<Item = Finding> {
    let measured = file.text.lines().zip(1..).map(|(line, number)| (line, number, columns(line)));
    // An address cannot be broken.
    measured.filter(|(line, _, columns)| *columns > LINE_COLUMNS && !line.contains("://")).map(
        |(_, number, columns)| {
            let message = format!("{columns} columns, {LINE_COLUMNS} at most");
            Finding::new(&file.path, number, "line-width", message)
        },
    )
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

fn long_functions(file: &File, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for function in source.functions() {
        let first = source.line(function.start);
        let lines = source.line(function.end) + 1 - first;
        if lines > FUNCTION_LINES && !allow::at_line(&file.text, first, "function-length") {
            let name = function.name;
            let message = format!("{name} has {lines} lines, {FUNCTION_LINES} at most; split it");
            findings.push(Finding::new(&file.path, first, "function-length", message));
        }
    }
    findings
}

/// A finding at each place, where no comment allows it.
fn at_places(
    file: &File,
    source: &Source,
    check: &'static str,
    places: impl Iterator<Item = (usize, String)>,
) -> Vec<Finding> {
    places
        .map(|(at, message)| (source.line(at), message))
        .filter(|(line, _)| !allow::at_line(&file.text, *line, check))
        .map(|(line, message)| Finding::new(&file.path, line, check, message))
        .collect()
}

fn ignored_tests(file: &File, source: &Source) -> Vec<Finding> {
    let places = source.code.match_indices("#[ignore").map(|(at, _)| {
        (at, "an ignored test proves nothing: make it run, or remove it".to_owned())
    });
    at_places(file, source, "ignored-test", places)
}

fn unsafe_code(file: &File, source: &Source) -> Vec<Finding> {
    if UNSAFE_MODULES.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    let message = "unsafe outside the modules listed in xtask's limits.rs; list it with its reason";
    let places = source.words("unsafe").map(|at| (at, message.to_owned()));
    at_places(file, source, "unsafe", places)
}

/// A listed module that is gone, or needs no `unsafe` any more, leaves the list.
pub(crate) fn stale_unsafe_list(tree: &Tree) -> Vec<Finding> {
    let is_stale = |path: &str| {
        tree.get(path).is_none_or(|f| Source::new(&f.text).words("unsafe").next().is_none())
    };
    let stale = UNSAFE_MODULES.iter().filter(|(path, _)| is_stale(path));
    let message = "listed in xtask's limits.rs as unsafe, and is not: take it off the list";
    stale.map(|(path, _)| Finding::new(path, 1, "unsafe", message)).collect()
}

/// A path of a list that names nothing: what it stands for would be checked no more.
pub(crate) fn missing_paths(tree: &Tree) -> Vec<Finding> {
    let sources = PURE_SOURCES.iter().map(|(path, _)| *path);
    let listed = sources.chain([BUS_SOURCE, BUS_REGISTRY, BUS_JOURNAL]);
    let missing = listed.filter(|path| !tree.files.iter().any(|f| f.path.starts_with(path)));
    let message = "named in xtask's limits.rs, and not there: write its new name";
    missing.map(|path| Finding::new(path, 1, "layers", message)).collect()
}

fn unwraps(file: &File, source: &Source) -> Vec<Finding> {
    let places = source.code.match_indices(".unwrap()").map(|(at, _)| at);
    let message = "unwrap outside tests: return the error, or say in an expect why it cannot be";
    let places = places.filter(|at| !source.is_test(*at)).map(|at| (at, message.to_owned()));
    at_places(file, source, "unwrap", places)
}

fn boolean_parameters(file: &File, source: &Source) -> Vec<Finding> {
    let code = &source.code;
    let mut places = Vec::new();
    for function in source.functions().iter().filter(|f| is_public(&code[..f.start])) {
        let Some(parameters) = parameters(code, function.start) else { continue };
        for parameter in split_top_level(parameters) {
            let Some((name, kind)) = parameter.split_once(':') else { continue };
            if kind.trim() == "bool" && !source.is_test(function.start) {
                let message = format!(
                    "{}({}: bool): nobody can read a call of it; use an enum or two functions",
                    function.name,
                    name.trim()
                );
                places.push((function.start, message));
            }
        }
    }
    at_places(file, source, "bool-parameter", places.into_iter())
}

/// Whether what stands before the keyword `fn` makes the function public.
fn is_public(before: &str) -> bool {
    let qualifiers = ["const", "async", "unsafe", "extern"];
    let mut words = before.rsplit(|c: char| c.is_whitespace()).filter(|word| !word.is_empty());
    words.find(|word| !qualifiers.contains(word)).is_some_and(|word| word == "pub")
}

/// What stands in the brackets of the function whose keyword is at `start`.
fn parameters(code: &str, start: usize) -> Option<&str> {
    let mut at = start + code[start..].find(['(', '<'])?;
    if code.as_bytes()[at] == b'<' {
        at = matching(code.as_bytes(), at)? + 1;
    }
    let open = at + code[at..].find('(')?;
    Some(&code[open + 1..matching(code.as_bytes(), open)?])
}

fn impure_names(file: &File, source: &Source) -> Vec<Finding> {
    let Some((_, what)) = PURE_SOURCES.iter().find(|(path, _)| file.path.starts_with(path)) else {
        return Vec::new();
    };
    let paths = source.paths("std").into_iter().filter(|(at, _)| !source.is_test(*at));
    let forbidden = paths.filter(|(_, path)| PURE_FORBIDDEN.contains(&path.as_str()));
    let places = forbidden.map(|(at, path)| {
        (at, format!("{path} in {what}, which has no I/O, clock or thread; take it as argument"))
    });
    at_places(file, source, "layers", places)
}

/// A protocol without I/O has no bus either.
fn protocol_names(file: &File, source: &Source) -> Vec<Finding> {
    if !PROTOCOL_SOURCES.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let places = source.words("helio_bus").filter(|at| !source.is_test(*at));
    let message = "helio_bus in a protocol, which has inputs and effects only; publish in a shell";
    at_places(file, source, "layers", places.map(|at| (at, message.to_owned())))
}

fn bus_names(file: &File, source: &Source) -> Vec<Finding> {
    if !file.path.starts_with(BUS_SOURCE) || file.path == BUS_REGISTRY {
        return Vec::new();
    }
    let text = source.text.to_lowercase();
    let named = TRANSPORTS.iter().flat_map(|name| words(&text, name).map(move |at| (at, *name)));
    let journal = words(&text, "helio_journal").map(|at| (at, "helio_journal"));
    let journal = journal.filter(|_| !file.path.starts_with(BUS_JOURNAL));
    let places = named.chain(journal).filter(|(at, _)| !source.is_test(*at));
    let message = "in the bus, which knows transports in its registry only";
    let places: Vec<_> = places.map(|(at, name)| (at, format!("{name} {message}"))).collect();
    at_places(file, source, "layers", places.into_iter())
}

/// The first line of a crate is a sentence: what it knows, and what it must not know.
pub(crate) fn crate_doc(file: &File) -> Option<Finding> {
    let docs = file.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = docs.take_while(|line| !line.is_empty()).collect();
    let is_sentence = paragraph.last().is_some_and(|line| line.ends_with('.'));
    let message = "a crate begins with one sentence, `//! What it knows.`, on its first line";
    (!is_sentence).then(|| Finding::new(&file.path, 1, "crate-doc", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    /// The checks that find something in a text, in order.
    fn found(path: &str, text: &str) -> Vec<&'static str> {
        check(&file(path, text)).into_iter().map(|finding| finding.check).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(found("a.rs", &function(FUNCTION_LINES)), [""; 0]);
        assert_eq!(found("a.rs", &function(FUNCTION_LINES + 1)), ["function-length"]);
        let allowed = format!("// {}a table.\n{}", "tidy: allow(function-length): ", function(90));
        assert_eq!(found("a.rs", &allowed), [""; 0]);
    }

    #[test]
    fn a_wide_line_is_found() {
        assert_eq!(found("a.rs", &format!("// {}", "é".repeat(97))), [""; 0]);
        assert_eq!(found("a.rs", &format!("// {}", "é".repeat(98))), ["line-width"]);
        assert_eq!(found("a.rs", &format!("// https://{}", "a".repeat(98))), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(found("a.rs", &"\n".repeat(FILE_LINES)), [""; 0]);
        assert_eq!(found("a.rs", &"\n".repeat(FILE_LINES + 1)), ["file-length"]);
    }

    #[test]
    fn an_ignored_test_is_found() {
        assert_eq!(
            found("x/tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
            ["ignored-test"]
        );
    }

    #[test]
    fn unsafe_outside_the_list_is_found() {
        let text = "fn f() { unsafe { g() } } // unsafe";
        assert_eq!(found("crates/core/src/a.rs", text), ["unsafe"]);
        assert_eq!(found(UNSAFE_MODULES[0].0, text), [""; 0]);
        assert_eq!(found("a.rs", "#![deny(unsafe_code)]"), [""; 0]);
    }

    #[test]
    fn a_stale_entry_of_the_unsafe_list_is_found() {
        let tree = |text: &str| {
            let entry = |(path, _): &(&str, &str)| ((*path).to_owned(), Some(text.to_owned()));
            Tree::new(".".into(), UNSAFE_MODULES.iter().map(entry).collect())
        };
        assert_eq!(stale_unsafe_list(&tree("unsafe {}")), []);
        assert_eq!(stale_unsafe_list(&tree("// unsafe")).len(), UNSAFE_MODULES.len());
    }

    #[test]
    fn unwrap_outside_tests_is_found() {
        assert_eq!(found("a.rs", "fn f() { g().unwrap(); }"), ["unwrap"]);
        assert_eq!(found("a.rs", "#[test]\nfn f() { g().unwrap(); }"), [""; 0]);
        assert_eq!(found("a.rs", "/// x.unwrap()\nfn f() {}"), [""; 0]);
        assert_eq!(found("x/tests/a.rs", "fn f() { g().unwrap(); }"), [""; 0]);
    }

    #[test]
    fn a_public_boolean_parameter_is_found() {
        let path = "crates/bus/src/a.rs";
        assert_eq!(found(path, "pub async fn f<F: Fn(u8) -> u8>(a: F, b: bool) {}").len(), 1);
        assert_eq!(found(path, "pub(crate) fn f(b: bool) {}"), [""; 0]);
        assert_eq!(found(path, "pub fn f(b: Option<bool>, g: fn(bool) -> u8) -> bool {}"), [""; 0]);
    }

    #[test]
    fn a_listed_path_that_is_gone_is_found() {
        let listed = [BUS_JOURNAL, BUS_REGISTRY].iter().map(|path| (*path).to_owned());
        let folders = PURE_SOURCES.iter().map(|(path, _)| format!("{path}a.rs"));
        let mut contents: Vec<_> =
            listed.chain(folders).map(|p| (p, Some(String::new()))).collect();
        assert_eq!(missing_paths(&Tree::new(".".into(), contents.clone())), []);
        contents.pop();
        assert!(!missing_paths(&Tree::new(".".into(), contents)).is_empty());
    }

    #[test]
    fn io_and_clocks_in_the_core_are_found() {
        let path = "crates/core/src/a.rs";
        assert_eq!(found(path, "use std::{fmt, fs};"), ["layers"]);
        assert_eq!(found(path, "let t = std::time::SystemTime::now();"), ["layers"]);
        assert_eq!(found(path, "use std::{io::Read, time::Duration};"), [""; 0]);
        assert_eq!(found(path, "#[cfg(test)]\nmod tests { use std::fs; }"), [""; 0]);
        assert_eq!(found("crates/journal/src/a.rs", "use std::fs;"), [""; 0]);
    }

    #[test]
    fn io_and_clocks_in_a_protocol_are_found() {
        let path = "crates/services/component/src/protocol/controller/mod.rs";
        assert_eq!(found(path, "use std::time::Instant;"), ["layers"]);
        assert_eq!(found(path, "use helio_bus::Bus;"), ["layers"]);
        assert_eq!(found(path, "use std::time::Duration;\nuse helio_core::Tai;"), [""; 0]);
        let shell = "crates/services/component/src/lease.rs";
        assert_eq!(found(shell, "use std::time::Instant;\nuse helio_bus::Bus;"), [""; 0]);
    }

    #[test]
    fn a_transport_named_in_the_bus_is_found() {
        assert_eq!(found("crates/bus/src/url.rs", "if scheme == \"kafka\" {}"), ["layers"]);
        assert_eq!(found("crates/bus/src/url.rs", "// kafka\nuse helio_core::x;"), [""; 0]);
        assert_eq!(found("crates/bus/src/bus.rs", "use helio_journal::Journal;"), ["layers"]);
        assert_eq!(
            found("crates/bus/src/transport/journal/mod.rs", "use helio_journal::X;"),
            [""; 0]
        );
        assert_eq!(found(BUS_REGISTRY, "(\"kafka\", kafka::connect)"), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_sentence_is_found() {
        let says = |text: &str| crate_doc(&file("src/lib.rs", text)).is_some();
        assert!(!says("//! Names, and\n//! times.\n\nuse x;"));
        assert!(says("//! names\n") && says("use x;") && says("\n//! Names.\n"));
    }
}
