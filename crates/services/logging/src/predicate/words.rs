//! Words of messages: matched by a predicate's bare words, and indexed by an archive.

use std::borrow::Cow;

/// The words of a text: runs of letters, digits and underscores, in lower case.
///
/// Case is folded by character, so that a word is folded in the same way everywhere. The one letter
/// that would become two (İ) is unchanged.
///
/// ```
/// use helio_logging::words;
///
/// let found: Vec<_> = words("Axis AZ: 0.25° off (dv11-abm)").collect();
/// assert_eq!(found, ["axis", "az", "0", "25", "off", "dv11", "abm"]);
/// ```
pub fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    raw(text).map(|word| match word.chars().any(|c| fold(c) != c) {
        true => Cow::Owned(word.chars().map(fold).collect()),
        false => Cow::Borrowed(word),
    })
}

/// Whether a text contains these folded words in immediate succession.
pub(super) fn has_phrase(text: &str, phrase: &[String]) -> bool {
    let [first, rest @ ..] = phrase else { return true };
    let mut found = raw(text);
    while let Some(word) = found.next() {
        // The following words are compared from here on, not from the start.
        let behind = || found.clone().zip(rest).filter(|(word, wanted)| same(word, wanted)).count();
        if same(word, first) && behind() == rest.len() {
            return true;
        }
    }
    false
}

fn raw(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn same(word: &str, folded: &str) -> bool {
    if word.is_ascii() {
        return word.eq_ignore_ascii_case(folded);
    }
    word.chars().map(fold).eq(folded.chars())
}

fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut small = c.to_lowercase();
    match (small.next(), small.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrase(text: &str) -> Vec<String> {
        words(text).map(Cow::into_owned).collect()
    }

    #[test]
    fn a_folded_word_is_a_word_and_stays_as_it_is() {
        for c in '\0'..=char::MAX {
            let small = fold(c);
            assert_eq!(fold(small), small, "{c:?}");
            assert_eq!(small.is_alphanumeric(), c.is_alphanumeric(), "{c:?}");
        }
    }

    #[test]
    fn words_are_whole_and_phrases_are_in_order() {
        let message = "Axis AZ: off by 0.25, off for 3 s; ÉTÉ";
        for there in ["axis", "AZ", "off for", "Off By 0.25", "été", "3 S"] {
            assert!(has_phrase(message, &phrase(there)), "{there}");
        }
        for missing in ["ax", "off 0.25", "for off", "s axis", "ete", "été x"] {
            assert!(!has_phrase(message, &phrase(missing)), "{missing}");
        }
    }

    #[test]
    fn the_kelvin_sign_is_a_k() {
        assert_eq!(phrase("300 \u{212a}"), ["300", "k"]);
        assert!(has_phrase("300 \u{212a}", &phrase("k")));
    }
}
