//! The house's rules for Python: sizes, docstrings, tests that run. (Ruff and mypy do the rest.)

use crate::limits::FUNCTION_LINES;
use crate::rust_checks::sizes;
use crate::{File, Finding, allow};

pub(crate) fn check(file: &File) -> Vec<Finding> {
    let lines = blanked_lines(&file.text);
    let mut findings = sizes(file);
    findings.extend(docstring(file));
    findings.extend(long_functions(file, &lines));
    findings.extend(ignored_tests(file, &lines));
    findings
}

fn docstring(file: &File) -> Option<Finding> {
    let mut lines = file.text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let first = lines.next()?;
    let message = "a module begins with a sentence, \"\"\"What it knows.\"\"\"";
    (!first.starts_with("\"\"\"") && !first.starts_with("r\"\"\"") && !is_stub(file))
        .then(|| Finding::new(&file.path, 1, "module-doc", message))
}

fn is_stub(file: &File) -> bool {
    file.path.ends_with(".pyi")
}

fn ignored_tests(file: &File, lines: &[String]) -> Vec<Finding> {
    let skips = ["mark.skip", "mark.xfail", "pytest.skip(", "importorskip("];
    let message = "a skipped test proves nothing: make it run, or remove it";
    let numbered = lines.iter().zip(1..).filter(|(line, _)| skips.iter().any(|s| line.contains(s)));
    numbered
        .filter(|(_, number)| !allow::at_line(&file.text, *number, "ignored-test"))
        .map(|(_, number)| Finding::new(&file.path, number, "ignored-test", message))
        .collect()
}

fn long_functions(file: &File, lines: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let count = function_lines(lines, first, &file.text);
        if count > FUNCTION_LINES && !allow::at_line(&file.text, first + 1, "function-length") {
            let message = format!("{name} has {count} lines, {FUNCTION_LINES} at most; split it");
            findings.push(Finding::new(&file.path, first + 1, "function-length", message));
        }
    }
    findings
}

fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ")?;
    rest.split('(').next()
}

/// The number of lines of the function whose `def` is on line `first`, its docstring left out.
fn function_lines(lines: &[String], first: usize, original: &str) -> usize {
    let indent = indentation(&lines[first]);
    let body = signature_end(lines, first) + 1;
    let inside = |line: &&String| line.trim().is_empty() || indentation(line) > indent;
    let mut last = body;
    for (number, line) in lines.iter().enumerate().skip(body).take_while(|(_, l)| inside(l)) {
        if !line.trim().is_empty() {
            last = number;
        }
    }
    last + 1 - first - docstring_lines(original, body).min(last - body)
}

fn signature_end(lines: &[String], first: usize) -> usize {
    let mut depth = 0_i32;
    for (number, line) in lines.iter().enumerate().skip(first) {
        depth += line.chars().map(bracket).sum::<i32>();
        if depth == 0 && line.contains(':') {
            return number;
        }
    }
    first
}

fn bracket(c: char) -> i32 {
    match c {
        '(' | '[' | '{' => 1,
        ')' | ']' | '}' => -1,
        _ => 0,
    }
}

fn docstring_lines(original: &str, body: usize) -> usize {
    let mut lines = original.lines().skip(body).map(str::trim);
    let Some(first) = lines.next().filter(|line| line.starts_with("\"\"\"")) else { return 0 };
    if first.len() > 3 && first.ends_with("\"\"\"") {
        return 1;
    }
    2 + lines.take_while(|line| !line.ends_with("\"\"\"")).count()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lines, with spaces for comments and for what strings hold.
fn blanked_lines(text: &str) -> Vec<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest, c),
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        let (taken, left) = rest.split_at(length);
        out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = left;
    }
    out.lines().map(str::to_owned).collect()
}

/// The length of the string literal that begins `rest`, with its quotes.
fn string_length(rest: &str, quote: char) -> usize {
    let triple = quote.to_string().repeat(3);
    let close = if rest.starts_with(&triple) { triple } else { quote.to_string() };
    let mut at = close.len();
    while at < rest.len() {
        if rest[at..].starts_with(&close) {
            return at + close.len();
        }
        let escaped = rest[at..].starts_with('\\');
        let width = |from: usize| rest[from..].chars().next().map_or(0, char::len_utf8);
        at += width(at);
        if escaped {
            at += width(at);
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&'static str> {
        let file = File { path: "a.py".into(), text: text.into() };
        check(&file).into_iter().map(|finding| finding.check).collect()
    }

    fn function(lines: usize, docstring: &str) -> String {
        let body = "    g()\n".repeat(lines - 3);
        format!("\"\"\"A.\"\"\"\ndef f(\n    a: int = 1,\n) -> int:\n{docstring}{body}\nx = 1\n")
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(found(&function(FUNCTION_LINES, "")), [""; 0]);
        assert_eq!(found(&function(FUNCTION_LINES + 1, "")), ["function-length"]);
    }

    #[test]
    fn a_docstring_does_not_count() {
        let long = format!("    \"\"\"A.\n{}    \"\"\"\n", "    words\n".repeat(90));
        assert_eq!(found(&function(FUNCTION_LINES, &long)), [""; 0]);
        assert_eq!(found(&function(FUNCTION_LINES + 1, &long)), ["function-length"]);
    }

    #[test]
    fn strings_and_comments_are_blanked() {
        let lines = blanked_lines("a = 'def \\' f' # def\n\"\"\"def\ng():\"\"\"\nb");
        assert_eq!(lines.join("\n").split_whitespace().collect::<Vec<_>>(), ["a", "=", "b"]);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_module_without_a_docstring_is_found() {
        assert_eq!(found("#!/usr/bin/env python3\n\"\"\"A.\"\"\"\n"), [""; 0]);
        assert_eq!(found("import os\n"), ["module-doc"]);
        assert_eq!(found(""), [""; 0]);
    }

    #[test]
    fn a_skipped_test_is_found() {
        assert_eq!(found("\"\"\"A.\"\"\"\n@pytest.mark.skip\ndef f(): ...\n"), ["ignored-test"]);
    }
}
