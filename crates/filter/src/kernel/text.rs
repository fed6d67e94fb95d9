//! LIKE: `%` stands for any text, `_` for one character, `\` takes the next one as it is.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray};
use arrow_buffer::BooleanBuffer;

use super::Value;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Any,
    One,
    Char(char),
}

fn parts(pattern: &str) -> Vec<Part> {
    let mut chars = pattern.chars();
    let mut parts = Vec::new();
    while let Some(char) = chars.next() {
        parts.push(match char {
            '%' => Part::Any,
            '_' => Part::One,
            // At the end it stands for itself.
            '\\' => Part::Char(chars.next().unwrap_or('\\')),
            other => Part::Char(other),
        });
    }
    parts
}

pub(super) fn like(value: &Value, pattern: &str, ignore_case: bool) -> Value {
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<String>();
    let array = value.array.as_string::<i32>();
    let parts = parts(&if ignore_case { fold(pattern) } else { pattern.to_owned() });
    let bits = BooleanBuffer::collect_bool(array.len(), |row| {
        let text = array.value(row);
        if ignore_case { matches(&parts, &fold(text)) } else { matches(&parts, text) }
    });
    Value::each(Arc::new(BooleanArray::new(bits, array.nulls().cloned())))
}

/// After a mismatch only the last `%` takes one character more: time is text times pattern.
fn matches(parts: &[Part], text: &str) -> bool {
    let mut rest = text.chars();
    let mut part = 0;
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let before = rest.clone();
        match (parts.get(part), rest.next()) {
            (Some(Part::Any), _) => {
                part += 1;
                rest = before.clone();
                retry = Some((part, before));
                continue;
            }
            (None, None) => return true,
            (Some(Part::One), Some(_)) => part += 1,
            (Some(Part::Char(wanted)), Some(found)) if *wanted == found => part += 1,
            _ => {
                let Some((again, from)) = &mut retry else { return false };
                if from.next().is_none() {
                    return false;
                }
                part = *again;
                rest = from.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        let is = |pattern: &str, text: &str| matches(&parts(pattern), text);
        assert!(is("", "") && !is("", "a") && is("%", "") && is("%", "aé"));
        assert!(is("a%b", "ab") && is("a%b", "axbxb") && !is("a%b", "abc"));
        assert!(is("_", "é") && !is("_", "") && !is("_", "ab"));
        assert!(is(r"a\%", "a%") && !is(r"a\%", "ab") && is(r"a\", r"a\"));
        assert!(is("%ab%ab%", "xababx") && !is("%ab%ab%", "xabx"));
        assert!(is("%_", "a") && !is("%_", ""));
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "%a".repeat(120) + "b";
        assert!(!matches(&parts(&pattern), &"a".repeat(20_000)));
    }
}
