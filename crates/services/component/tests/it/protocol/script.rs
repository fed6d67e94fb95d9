//! Reading, running and comparing scripts.

use helio_core::Tai;

/// The subject of a script.
pub(crate) trait Actor {
    /// A line of the script's head, without a time.
    fn set_up(&mut self, words: &[String]);
    /// Processes an input; returns its effects.
    fn input(&mut self, now: Tai, words: &[String]) -> Vec<String>;
}

/// Runs a script; returns it with the actual effects of each input.
pub(crate) fn play(script: &str, new: fn(&str) -> Box<dyn Actor>) -> String {
    let mut actor: Option<Box<dyn Actor>> = None;
    let mut out = String::new();
    for line in script.lines().filter(|line| !line.starts_with(' ')) {
        out += line;
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(actor) = &mut actor else {
            actor = Some(new(line));
            continue;
        };
        let words = words(line);
        match words[0].parse::<f64>() {
            Ok(seconds) => {
                for effect in actor.input(at(seconds), &words[1..]) {
                    out += &format!("    {effect}\n");
                }
            }
            Err(_) => actor.set_up(&words),
        }
    }
    out
}

/// The instant that many seconds after the start of the script.
pub(crate) fn at(seconds: f64) -> Tai {
    let start: Tai = "2026-01-01T00:00:00Z".parse().expect("a time");
    Tai::from_nanos(start.nanos() + (seconds * 1e9).round() as i64)
}

/// The seconds from the start of the script to an instant.
pub(crate) fn since_start(instant: Tai) -> f64 {
    (instant.nanos() - at(0.0).nanos()) as f64 / 1e9
}

/// The words of a line. A text in double quotes is one word, without the quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// The value of the word `name=value`.
pub(crate) fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The number of the word `name=number`.
pub(crate) fn number(words: &[String], name: &str) -> Option<f64> {
    option(words, name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The number of the first word `#number`.
pub(crate) fn seq_num(words: &[String]) -> i32 {
    let text = words.iter().find_map(|word| word.strip_prefix('#'));
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("#number in {words:?}"))
}

/// `name/process`.
pub(crate) fn identity(text: &str) -> (String, i32) {
    let (identity, origin) = text.split_once('/').unwrap_or((text, "1"));
    (identity.to_owned(), origin.parse().unwrap_or_else(|_| panic!("identity/process: {text}")))
}

/// Two texts line by line: `-` marks lines of the first only, `+` lines of the second only.
pub(crate) fn diff(written: &str, comes: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (written.lines().collect(), comes.lines().collect());
    // The longest common subsequence from each pair of positions; scripts are short.
    let mut common = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            lines.push(format!("  {}", a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("- {}", a[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", b[j]));
            j += 1;
        }
    }
    lines.join("\n")
}

#[test]
fn a_difference_is_shown() {
    assert_eq!(diff("a\nb\nc", "a\nx\nc"), "  a\n- b\n+ x\n  c");
    assert_eq!(words("1 a \"b c\" \"\" d=\"e f\""), ["1", "a", "b c", "", "d=e f"]);
}
