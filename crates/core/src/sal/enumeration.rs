//! Enumerations: labels and values, as the interface files write them.
//!
//! A list is `Label[=value], …`; values are decimal or `0x…`. A label without value has the
//! previous label's value plus 1, the first has 1. In a set, and sometimes in an item, each label
//! begins with its class: `DomeState_Open, DomeState_Closed`.

use std::collections::HashMap;
use std::sync::Arc;

use super::{MAX_LABELS, SalCause};

/// Labels with their values, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// The class of all labels, without its underscore; empty if an item lists bare labels.
    pub class: String,
    /// Labels without the class, and their values.
    pub labels: Vec<(String, i64)>,
}

impl Enumeration {
    /// Reads the list of a set: all labels begin with a class.
    pub(super) fn of_set(text: &str) -> Result<Self, SalCause> {
        let labels = parse_labels(text)?;
        let class = common_class(&labels).ok_or_else(|| SalCause::Enumeration(clip(text)))?;
        Ok(Self::without_class(class, labels))
    }

    /// Reads the list of an item. Its labels may begin with a class: a common first part with a
    /// lower-case letter (`CSys_None, CSys_Mount`, but not `PLUS_X, PLUS_Y`).
    pub(super) fn of_item(text: &str) -> Result<Self, SalCause> {
        let labels = parse_labels(text)?;
        match common_class(&labels) {
            Some(class) if class.contains(|c: char| c.is_ascii_lowercase()) => {
                Ok(Self::without_class(class, labels))
            }
            _ => Ok(Self { class: String::new(), labels }),
        }
    }

    fn without_class(class: String, mut labels: Vec<(String, i64)>) -> Self {
        for (label, _) in &mut labels {
            label.drain(..=class.len());
        }
        Self { class, labels }
    }
}

/// Enumerations by the names of their fields.
pub(super) struct Classes(HashMap<String, Arc<Enumeration>>);

impl Classes {
    /// The first one of a class takes precedence.
    pub(super) fn of<'a>(enumerations: impl IntoIterator<Item = &'a Arc<Enumeration>>) -> Self {
        let mut classes = HashMap::new();
        for enumeration in enumerations {
            let class = enumeration.class.to_ascii_lowercase();
            // DetailedStates are those of detailedState.
            if let Some(single) = class.strip_suffix('s') {
                classes.entry(single.to_owned()).or_insert_with(|| enumeration.clone());
            }
            classes.entry(class).or_insert_with(|| enumeration.clone());
        }
        Self(classes)
    }

    /// Returns the enumeration whose class is the field's name, in any case, with or without an s.
    pub(super) fn of_field(&self, field: &str) -> Option<&Arc<Enumeration>> {
        self.0.get(&field.to_ascii_lowercase())
    }
}

fn common_class(labels: &[(String, i64)]) -> Option<String> {
    let class = labels.first()?.0.split_once('_')?.0;
    let shared = |label: &str| {
        label.strip_prefix(class).is_some_and(|rest| rest.len() > 1 && rest.starts_with('_'))
    };
    let all = !class.is_empty() && labels.iter().all(|(label, _)| shared(label));
    all.then(|| class.to_owned())
}

/// Reads `Label[=value], …`. A trailing comma is accepted.
pub(super) fn parse_labels(text: &str) -> Result<Vec<(String, i64)>, SalCause> {
    let text = text.trim();
    let list = text.strip_suffix(',').unwrap_or(text);
    numbered(list.split(',').map(|entry| match entry.split_once('=') {
        Some((label, value)) => Ok((label.trim(), Some(parse_value(value.trim(), entry)?))),
        None => Ok((entry.trim(), None)),
    }))
}

/// Checks labels, and numbers those without a number.
pub(super) fn numbered<'a>(
    entries: impl Iterator<Item = Result<(&'a str, Option<i64>), SalCause>>,
) -> Result<Vec<(String, i64)>, SalCause> {
    let mut labels: Vec<(String, i64)> = Vec::new();
    for entry in entries {
        let (label, value) = entry?;
        let next = || labels.last().map_or(Some(1), |last| last.1.checked_add(1));
        let value = value.or_else(next).filter(|_| is_label(label) && labels.len() < MAX_LABELS);
        let value = value.ok_or_else(|| SalCause::Enumeration(clip(label)))?;
        labels.push((label.to_owned(), value));
    }
    let mut names: Vec<&str> = labels.iter().map(|(label, _)| label.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SalCause::Enumeration(clip(pair[0]))),
        None if labels.is_empty() => Err(SalCause::Enumeration(String::new())),
        None => Ok(labels),
    }
}

fn is_label(label: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !label.is_empty() && label.len() <= 200 && label.chars().all(legal)
}

fn parse_value(text: &str, entry: &str) -> Result<i64, SalCause> {
    let refused = || SalCause::Enumeration(clip(entry.trim()));
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let hex = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        return hex.then(|| i64::from_str_radix(digits, 16).ok()).flatten().ok_or_else(refused);
    }
    let value: i64 = text.parse().map_err(|_| refused())?;
    let digits = text.trim_start_matches(['-', '+']);
    // 04 is always four, but 010 is ten or eight.
    if digits.len() > 1 && digits.starts_with('0') && value.unsigned_abs() > 7 {
        return Err(SalCause::LeadingZero(clip(entry.trim())));
    }
    Ok(value)
}

fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, i64)> {
        parse_labels(text).unwrap()
    }

    #[test]
    fn implicit_values_count_from_1_and_on_from_explicit_ones() {
        let expected = |list: &[(&str, i64)]| {
            list.iter().map(|(label, value)| ((*label).to_owned(), *value)).collect::<Vec<_>>()
        };
        assert_eq!(labels("A, B,\n C"), expected(&[("A", 1), ("B", 2), ("C", 3)]));
        assert_eq!(
            labels("A=0x10, B, C = -1, D=04,"),
            expected(&[("A", 16), ("B", 17), ("C", -1), ("D", 4)])
        );
    }

    #[test]
    fn classes_are_told_from_labels() {
        let state = Enumeration::of_set("DomeState_Open, DomeState_Half_Open=4").unwrap();
        assert_eq!(state.class, "DomeState");
        assert_eq!(state.labels, [("Open".to_owned(), 1), ("Half_Open".to_owned(), 4)]);
        let classes = Classes::of([&Arc::new(state)]);
        assert!(classes.of_field("domeState").is_some() && classes.of_field("dome").is_none());
        let modes = Arc::new(Enumeration::of_set("Modes_A,Modes_B").unwrap());
        let classes = Classes::of([&modes]);
        assert!(classes.of_field("mode").is_some() && classes.of_field("Modes").is_some());
        assert!(Enumeration::of_set("DomeState_Open, Closed").is_err());
        assert_eq!(Enumeration::of_item("CSys_None, CSys_Mount").unwrap().class, "CSys");
        assert_eq!(Enumeration::of_item("PLUS_X,PLUS_Y").unwrap().class, "");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for bad in
            ["", ",", "A,,B", "A B", "A=", "A=x", "A=0x", "A=0x-1", "A,A", "A=9999999999999999999"]
        {
            assert!(matches!(parse_labels(bad), Err(SalCause::Enumeration(_))), "{bad:?}");
        }
        assert!(parse_labels("A=9223372036854775807,B").is_err());
        assert!(matches!(parse_labels("A=010"), Err(SalCause::LeadingZero(_))));
    }
}
