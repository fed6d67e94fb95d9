//! A reader of Rust text that knows comments, literals and braces, and no more of the grammar.
//!
//! Blanked text has the bytes and lines of the original, with spaces for what was taken out, so
//! that a place in one is the same place in the other.

/// A Rust file, as the checks see it.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text without comments and without what literals hold.
    pub(crate) code: String,
    /// The text without comments.
    pub(crate) text: String,
    /// The byte ranges of test code.
    tests: Vec<(usize, usize)>,
}

/// A function with a body.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// Where the keyword `fn` stands.
    pub(crate) start: usize,
    /// The closing brace.
    pub(crate) end: usize,
}

impl Source {
    pub(crate) fn new(original: &str) -> Self {
        let (code, text) = blank(original.as_bytes());
        let tests = test_regions(&code);
        Self { code, text, tests }
    }

    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|(start, end)| (*start..=*end).contains(&at))
    }

    /// The number, from 1, of the line that a byte is on.
    pub(crate) fn line(&self, at: usize) -> usize {
        1 + self.code.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Where a word stands in the code as a word of its own.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }

    /// All functions that have bodies, those inside others too.
    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let bytes = self.code.as_bytes();
        let with_body = |start: usize| {
            let (name, after) = identifier(&self.code, start + 2)?;
            let open = body(bytes, after)?;
            Some(Function { name, start, end: matching(bytes, open)? })
        };
        self.words("fn").filter_map(with_body).collect()
    }

    /// The paths under `root` that the code names, in full: `std::time::Instant` for
    /// `use std::{fs, time::{Duration, Instant}}`, with where each begins.
    pub(crate) fn paths(&self, root: &str) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        for at in self.words(root) {
            if self.code[at + root.len()..].starts_with("::") {
                expand(&self.code, at + root.len() + 2, root, &mut paths);
            }
        }
        paths
    }
}

/// Where a word stands as a word of its own.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifier at or after `at`, spaces skipped, and where it ends.
fn identifier(code: &str, at: usize) -> Option<(&str, usize)> {
    let rest = &code[at..];
    let start = at + (rest.len() - rest.trim_start().len());
    let end = start + code[start..].find(|c| !is_word(c)).unwrap_or(code.len() - start);
    (end > start).then(|| (&code[start..end], end))
}

/// The brace that opens a function's body, where it has one, from the end of its name.
fn body(code: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The bracket that closes the one at `open`.
pub(crate) fn matching(code: &[u8], open: usize) -> Option<usize> {
    let (opening, closing) = match code.get(open)? {
        b'(' => (b'(', b')'),
        b'[' => (b'[', b']'),
        b'<' => (b'<', b'>'),
        _ => (b'{', b'}'),
    };
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        // The arrow of a closure's or function's type closes nothing.
        let is_arrow = opening == b'<' && *byte == b'>' && code[at - 1] == b'-';
        if *byte == opening {
            depth += 1;
        } else if *byte == closing && !is_arrow {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

fn expand(code: &str, at: usize, prefix: &str, paths: &mut Vec<(usize, String)>) {
    if code[at..].starts_with('{') {
        let Some(close) = matching(code.as_bytes(), at) else { return };
        let mut item = at + 1;
        for part in split_top_level(&code[at + 1..close]) {
            let spaces = part.len() - part.trim_start().len();
            expand(&code[..close], item + spaces, prefix, paths);
            item += part.len() + 1;
        }
    } else if let Some((name, end)) = identifier(code, at) {
        let path = format!("{prefix}::{name}");
        if code[end..].starts_with("::") {
            expand(code, end + 2, &path, paths);
        }
        paths.push((at, path));
    }
}

/// Splits at the commas that are in no bracket.
pub(crate) fn split_top_level(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut last) = (Vec::new(), 0_i32, 0, ' ');
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if last == '-' || last == '=' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        last = c;
    }
    parts.push(&list[start..]);
    parts
}

/// The items that `#[test]`, `#[cfg(test)]` and the like stand on.
fn test_regions(code: &str) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut regions = Vec::new();
    for (at, _) in code.match_indices("#[") {
        let Some(close) = matching(bytes, at + 1) else { continue };
        let attribute = &code[at + 2..close];
        let only_tests = attribute == "test"
            || (attribute.starts_with("cfg(") && words(attribute, "test").next().is_some())
                && words(attribute, "not").next().is_none();
        if only_tests && let Some(end) = item_end(bytes, close + 1) {
            regions.push((at, end));
        }
    }
    regions
}

/// Where the item that begins at `from` ends, its attributes skipped.
fn item_end(code: &[u8], from: usize) -> Option<usize> {
    let start = from + code[from..].iter().position(|byte| !byte.is_ascii_whitespace())?;
    if code[start] == b'#' {
        return item_end(code, matching(code, start + 1)? + 1);
    }
    match body(code, start) {
        Some(open) => matching(code, open),
        None => code[start..].iter().position(|byte| *byte == b';').map(|at| start + at),
    }
}

/// The text without comments and literals, and without comments only.
fn blank(bytes: &[u8]) -> (String, String) {
    let (mut code, mut text) = (bytes.to_vec(), bytes.to_vec());
    let mut at = 0;
    while at < bytes.len() {
        let (end, is_comment) = match token(bytes, at) {
            Token::Plain(end) => {
                at = end;
                continue;
            }
            Token::Literal(end) => (end, false),
            Token::Comment(end) => (end, true),
        };
        erase(&mut code[at..end]);
        if is_comment {
            erase(&mut text[at..end]);
        }
        at = end;
    }
    let string = |bytes| String::from_utf8(bytes).expect("whole tokens become spaces");
    (string(code), string(text))
}

fn erase(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// What begins at a byte, and where it ends.
enum Token {
    Comment(usize),
    Literal(usize),
    Plain(usize),
}

fn token(bytes: &[u8], at: usize) -> Token {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => {
            Token::Comment(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()))
        }
        b'/' if rest.starts_with(b"/*") => Token::Comment(at + block_comment(rest)),
        b'"' => Token::Literal(at + quoted(rest, b'"')),
        b'\'' => match character(rest) {
            Some(length) => Token::Literal(at + length),
            None => Token::Plain(at + 1),
        },
        byte if byte.is_ascii_alphanumeric() || byte == b'_' => word(bytes, at),
        _ => Token::Plain(at + 1),
    }
}

/// A whole identifier or number, or the raw string that one introduces.
fn word(bytes: &[u8], at: usize) -> Token {
    let rest = &bytes[at..];
    let length = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'));
    let length = length.unwrap_or(rest.len());
    let is_raw = matches!(&rest[..length], b"r" | b"br" | b"cr");
    let hashes = rest[length..].iter().take_while(|b| **b == b'#').count();
    if is_raw && rest.get(length + hashes) == Some(&b'"') {
        let closing = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        let open = length + hashes + 1;
        let close = rest[open..].windows(closing.len()).position(|w| w == closing);
        return Token::Literal(close.map_or(bytes.len(), |c| at + open + c + closing.len()));
    }
    Token::Plain(at + length)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if rest[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a quoted literal, with its quotes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; none for a lifetime or a label.
fn character(rest: &[u8]) -> Option<usize> {
    let first = *rest.get(1)?;
    if first == b'\\' {
        return Some(quoted(rest, b'\''));
    }
    let width = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let cases = [
            ("a // {\nb", "a     \nb"),
            ("a /* { /* } */ { */ b", "a                   b"),
            (r#"f("{\"", '{', '\'', b'}')"#, "f(     ,    ,     , b   )"),
            (r##"r#"{" }"# + x"##, "          + x"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("r#fn + 'label: loop", "r#fn + 'label: loop"),
            ("'é' '💫' x", "            x"),
        ];
        for (original, expected) in cases {
            assert_eq!(Source::new(original).code, expected, "{original}");
        }
    }

    #[test]
    fn strings_stay_in_the_text() {
        assert_eq!(Source::new("a(\"kafka\") // dds").text, "a(\"kafka\")       ");
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let source = Source::new(
            "trait T { fn none(&self) -> [u8; 4]; }\n\
             fn outer(f: fn(u8) -> u8) -> String\nwhere String: Sized {\n  \"}\".into()\n}\n",
        );
        let functions = source.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].name, "outer");
        assert_eq!(source.line(functions[0].start), 2);
        assert_eq!(source.line(functions[0].end), 5);
    }

    #[test]
    fn test_code_is_known() {
        let source = Source::new(
            "fn a() { X }\n#[cfg(test)]\n#[allow(x)]\nmod tests { fn b() { Y } }\n\
             #[cfg(not(test))]\nfn c() { Z }\n#[test]\nfn d() { W }\nfn e() { V }\n",
        );
        let is_test = |word: &str| source.is_test(source.words(word).next().expect("it is there"));
        assert_eq!(["X", "Y", "Z", "W", "V"].map(is_test), [false, true, false, true, false]);
    }

    #[test]
    fn grouped_paths_are_expanded() {
        let source =
            Source::new("use std::{fs, time::{Duration, Instant}};\nlet x = std::env::var;");
        let mut paths: Vec<String> = source.paths("std").into_iter().map(|(_, p)| p).collect();
        paths.sort();
        let expected = [
            "std::env",
            "std::env::var",
            "std::fs",
            "std::time",
            "std::time::Duration",
            "std::time::Instant",
        ];
        assert_eq!(paths, expected);
    }
}
