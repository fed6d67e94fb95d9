//! `helio component show`: a component's interface.

use helio_component::Rates;
use helio_core::sal::{Component, Field, FieldType, Topic, TopicKind};
use serde::Serialize;

use crate::args::component::ShowArgs;
use crate::error::{CliError, CliResult};
use crate::out::{Out, text_table};
use crate::sal;

/// Runs `helio component show`.
pub(crate) fn run(args: &ShowArgs) -> CliResult {
    let interfaces = sal::folder_or_own(args.interfaces.interfaces.as_deref())?;
    let component = super::component(&interfaces, &args.component)?;
    let topics = match &args.topic {
        Some(name) => topics_of(component, name)?,
        None => component.topics().iter().collect(),
    };
    let (mut out, rates) = (Out::new(), Rates::standard());
    if args.output.json {
        topics.iter().try_for_each(|topic| out.json(&TopicLine::of(topic, &rates)))?;
    } else if args.topic.is_some() {
        topics.iter().try_for_each(|topic| fields(topic, &rates, &mut out))?;
    } else {
        overview(component, &rates, &mut out)?;
    }
    out.flush()
}

/// The topics of a name: an attribute (`cmd_start`), or a short name of any kind.
fn topics_of<'a>(component: &'a Component, name: &str) -> CliResult<Vec<&'a Topic>> {
    let named = |topic: &&Topic| topic.name() == name || topic.attribute() == name;
    let found: Vec<&Topic> = component.topics().iter().filter(named).collect();
    if found.is_empty() {
        let component = component.name();
        return Err(CliError::NotFound(format!(
            "{component} has no topic {name}; `helio component show {component}` lists them"
        )));
    }
    Ok(found)
}

#[derive(Serialize)]
struct TopicLine<'a> {
    topic: &'a str,
    attribute: String,
    kind: TopicKind,
    rate_hz: f64,
    description: &'a str,
    fields: Vec<FieldLine<'a>>,
}

#[derive(Serialize)]
struct FieldLine<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    count: u32,
    units: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    enumeration: Option<&'a [(String, i64)]>,
    description: &'a str,
}

impl<'a> TopicLine<'a> {
    fn of(topic: &'a Topic, rates: &Rates) -> Self {
        Self {
            topic: topic.topic_name().as_str(),
            attribute: topic.attribute(),
            kind: topic.kind(),
            rate_hz: rates.of(topic),
            description: topic.description(),
            fields: topic.fields().iter().map(FieldLine::of).collect(),
        }
    }
}

impl<'a> FieldLine<'a> {
    fn of(field: &'a Field) -> Self {
        Self {
            name: &field.name,
            kind: type_word(field),
            count: field.count,
            units: &field.units,
            enumeration: field.enumeration.as_ref().map(|e| e.labels.as_slice()),
            description: &field.description,
        }
    }
}

fn type_word(field: &Field) -> String {
    match &field.field_type {
        FieldType::Sal(sal) => sal.name().to_owned(),
        FieldType::Avro(whole) => match &whole["type"] {
            serde_json::Value::String(name) => name.clone(),
            other => other.to_string(),
        },
    }
}

fn overview(component: &Component, rates: &Rates, out: &mut Out) -> CliResult {
    out.line(&format!("{}: {}", component.name(), one_line(component.description())))?;
    for kind in [TopicKind::Command, TopicKind::Event, TopicKind::Telemetry] {
        let row = |topic: &Topic| {
            let fields: Vec<&str> = topic.fields().iter().map(|field| &*field.name).collect();
            vec![topic.attribute(), hz(rates.of(topic)), fields.join(" ")]
        };
        let rows: Vec<Vec<String>> = component.topics_of(kind).map(row).collect();
        if !rows.is_empty() {
            out.line("")?;
            let head = [kind.segment(), "Hz", "fields"];
            text_table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
        }
    }
    Ok(())
}

fn fields(topic: &Topic, rates: &Rates, out: &mut Out) -> CliResult {
    let rate = hz(rates.of(topic));
    let text = one_line(topic.description());
    out.line(&format!("{} ({}, {rate} Hz): {text}", topic.topic_name(), topic.attribute()))?;
    let row = |field: &Field| {
        let kind = type_word(field);
        let labels = field.enumeration.as_ref().map(|enumeration| {
            let label = |(label, value): &(String, i64)| format!("{label}={value}");
            enumeration.labels.iter().map(label).collect::<Vec<_>>().join(" ")
        });
        vec![
            field.name.to_string(),
            if field.count > 1 { format!("{kind}[{}]", field.count) } else { kind },
            field.units.to_string(),
            labels.unwrap_or_else(|| one_line(&field.description)),
        ]
    };
    let rows: Vec<Vec<String>> = topic.fields().iter().map(row).collect();
    if rows.is_empty() {
        return out.line("it has no fields");
    }
    let head = ["field", "type", "units", "values or meaning"];
    text_table(&head, &rows).iter().try_for_each(|line| out.line(line))
}

fn hz(rate: f64) -> String {
    match rate {
        0.0 => "-".to_owned(),
        r if r < 0.1 => format!("{r:.3}"),
        r => format!("{r}"),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
