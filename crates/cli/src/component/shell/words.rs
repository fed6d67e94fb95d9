//! Splits a line into words at blanks outside quotes and brackets.

/// The words of a line. Quotes around a whole value are removed if the rest is no JSON.
pub(super) fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut depth, mut quoted) = (Vec::new(), String::new(), 0_u32, false);
    let mut escaped = false;
    for letter in line.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if letter.is_whitespace() && !quoted && depth == 0 {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(letter);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_have_blanks_in_quotes_and_brackets() {
        assert_eq!(split("  start  "), ["start"]);
        assert_eq!(split("move x=1 y=[1, 2]"), ["move", "x=1", "y=[1, 2]"]);
        let line = r#"start configurationOverride="a \"b\" c" z={"a": [1, 2]}"#;
        let words = ["start", r#"configurationOverride="a \"b\" c""#, r#"z={"a": [1, 2]}"#];
        assert_eq!(split(line), words);
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split("a=]] b"), ["a=]]", "b"]);
    }
}
