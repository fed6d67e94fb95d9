//! Completions of a line of the shell.

use helio_core::sal::{Component, Field, SalType, TopicKind};

/// The shell's own commands, which cannot be commands of a component.
pub(super) const WORDS: [(&str, &str); 8] = [
    (".help", "this list; .help COMMAND shows its fields"),
    (".state", "the component's state"),
    (".set-state", "bring it to a state by the shortest way: .set-state ENABLED"),
    (".show", "the newest value of an event or telemetry topic: .show evt_summaryState"),
    (".validate", "ask whether a command would be accepted: .validate start"),
    (".telemetry", "print telemetry that has changed: .telemetry on, .telemetry off"),
    (".events", "print events: .events on, .events off"),
    (".quit", "leave; so does the end of the input"),
];

/// States that commands can reach.
pub(super) const STATES: [&str; 4] = ["STANDBY", "DISABLED", "ENABLED", "OFFLINE"];

/// The start of the current word, and its completions.
pub(super) fn complete(component: &Component, line: &str) -> (usize, Vec<String>) {
    let begin = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (before, word) = line.split_at(begin);
    let before: Vec<&str> = before.split_whitespace().collect();
    let found = match before[..] {
        [] => first_words(component),
        [".help" | ".validate"] => commands(component).collect(),
        [".set-state"] => STATES.map(str::to_owned).to_vec(),
        [".telemetry" | ".events"] => vec!["on".to_owned(), "off".to_owned()],
        [".show"] => shown(component),
        [".validate", command, ref given @ ..] => return fields(component, command, given, line),
        [command, ref given @ ..] => return fields(component, command, given, line),
    };
    (begin, fitting(found, word))
}

fn fitting(all: Vec<String>, word: &str) -> Vec<String> {
    let fits =
        |one: &String| one.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    all.into_iter().filter(fits).collect()
}

fn commands(component: &Component) -> impl Iterator<Item = String> {
    component.topics_of(TopicKind::Command).map(|topic| topic.name().to_owned())
}

fn first_words(component: &Component) -> Vec<String> {
    commands(component).chain(WORDS.iter().map(|(word, _)| (*word).to_owned())).collect()
}

fn shown(component: &Component) -> Vec<String> {
    let kinds = [TopicKind::Event, TopicKind::Telemetry];
    let topics = kinds.into_iter().flat_map(|kind| component.topics_of(kind));
    topics.map(helio_core::sal::Topic::attribute).collect()
}

/// The fields that are not given yet, or the values of a field.
fn fields(
    component: &Component,
    command: &str,
    given: &[&str],
    line: &str,
) -> (usize, Vec<String>) {
    let begin = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = &line[begin..];
    let Some(topic) = component.topic(TopicKind::Command, command) else {
        return (begin, Vec::new());
    };
    if let Some((name, value)) = word.split_once('=') {
        let field = topic.fields().iter().find(|field| &*field.name == name);
        return (begin + name.len() + 1, fitting(field.map_or_else(Vec::new, values), value));
    }
    let missing = |field: &&Field| {
        !given.iter().any(|one| one.split_once('=').is_some_and(|(name, _)| name == &*field.name))
    };
    let names = topic.fields().iter().filter(missing).map(|field| format!("{}=", field.name));
    (begin, fitting(names.collect(), word))
}

/// The named values of a field.
fn values(field: &Field) -> Vec<String> {
    if let Some(enumeration) = &field.enumeration {
        return enumeration.labels.iter().map(|(label, _)| label.clone()).collect();
    }
    match field.sal_type() {
        Some(SalType::Boolean) => vec!["true".to_owned(), "false".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sal::folder_or_own;

    fn of(line: &str) -> (usize, Vec<String>) {
        let own = folder_or_own(None).unwrap();
        complete(own.component("MTMount").unwrap(), line)
    }

    #[test]
    fn commands_fields_and_labels_are_completed() {
        assert_eq!(of("trackT"), (0, vec!["trackTarget".to_owned()]));
        assert_eq!(of("TRACKT"), (0, vec!["trackTarget".to_owned()]));
        assert_eq!(of(".set-s"), (0, vec![".set-state".to_owned()]));
        assert_eq!(of(".set-state en"), (11, vec!["ENABLED".to_owned()]));
        assert_eq!(of(".show evt_summ"), (6, vec!["evt_summaryState".to_owned()]));
        let (begin, found) = of("trackTarget azimuth=1 ");
        assert_eq!(begin, 22);
        assert!(
            found.contains(&"elevation=".to_owned()) && !found.contains(&"azimuth=".to_owned())
        );
        assert_eq!(of("nothing x"), (8, vec![]));
        assert!(of("").1.len() > 10);
    }

    #[test]
    fn enumerations_are_completed_by_their_labels() {
        let own = folder_or_own(None).unwrap();
        let labelled = own.topics().find_map(|topic| {
            let field = topic.fields().iter().find(|f| f.enumeration.is_some())?;
            (topic.kind() == TopicKind::Command).then_some((topic, field))
        });
        let (topic, field) = labelled.unwrap();
        let label = &field.enumeration.as_ref().unwrap().labels[0].0;
        let line = format!("{} {}=", topic.name(), field.name);
        let (begin, found) = complete(own.component(topic.component()).unwrap(), &line);
        assert_eq!(begin, line.len());
        assert!(found.contains(label));
    }
}
