//! `helio schema show`: a schema file, a folder of interfaces, or the schema of a topic of the bus.

use helio_core::sal::{Component, Interfaces, TopicKind};
use helio_core::schema::{Field, Schema, Type};
use serde_json::{Value, json};

use super::{PathContents, read};
use crate::args::ShowArgs;
use crate::error::{CliError, CliResult};
use crate::open::{look, name};
use crate::out::{Out, table, text_table};
use crate::units::human_count;

/// Runs `helio schema show`.
pub(crate) fn run(args: &ShowArgs, url: Option<&str>) -> CliResult {
    let mut out = Out::new();
    let json = args.output.json;
    if let Some(topic) = &args.topic {
        for schema in of_topic(topic, url)? {
            if json { out.json(&described(&schema))? } else { print(&mut out, &schema)? }
        }
        return out.flush();
    }
    let Some(path) = &args.path else {
        let text = "nothing to show; name a file, a folder, or a topic of the bus with --topic";
        return Err(CliError::Usage(text.to_owned()));
    };
    match read(path)? {
        PathContents::Schema(schema) if json => out.json(&described(&schema))?,
        PathContents::Schema(schema) => print(&mut out, &schema)?,
        PathContents::Interfaces(interfaces) if json => out.json(&interfaces.counts())?,
        PathContents::Interfaces(interfaces) => print_interfaces(&mut out, &interfaces)?,
    }
    out.flush()
}

/// The declared schemas of a topic, oldest first.
pub(super) fn of_topic(topic: &str, url: Option<&str>) -> CliResult<Vec<Schema>> {
    let bus = look(url)?;
    let name = name(topic)?;
    let missing = |what: String| CliError::NotFound(format!("{what}; `helio topics` lists them"));
    let declared = bus.schemas_of(&name)?;
    let declared = declared.ok_or_else(|| missing(format!("there is no topic {name}")))?;
    let mut schemas = Vec::with_capacity(declared.len());
    for id in &declared {
        let stored = bus.schema_text(*id)?;
        schemas.push(Schema::parse(&stored.text).map_err(|e| CliError::Failure(e.to_string()))?);
    }
    if schemas.is_empty() {
        return Err(missing(format!("the topic {name} has no schema: its samples are bytes")));
    }
    Ok(schemas)
}

fn described(schema: &Schema) -> Value {
    json!({
        "name": schema.name(),
        "id": schema.id().to_string(),
        "fingerprint": format!("{:016x}", schema.fingerprint()),
        "canonical_form": schema.canonical_form(),
        "schema": schema.to_json(),
    })
}

fn print(out: &mut Out, schema: &Schema) -> CliResult {
    out.line(&format!("{}  id {}", schema.name().unwrap_or("(no name)"), schema.id()))?;
    let rows: Vec<Vec<String>> = schema.fields().iter().map(|field| row(schema, field)).collect();
    if rows.is_empty() {
        return out.line(schema.canonical_form());
    }
    let head = ["field", "type", "units", "description"];
    for (n, line) in text_table(&head, &rows).iter().enumerate() {
        out.line(&format!("{}{line}", if n == 0 { "" } else { "  " }))?;
    }
    Ok(())
}

fn row(schema: &Schema, field: &Field) -> Vec<String> {
    let text = |value: Option<&str>| value.unwrap_or("").to_owned();
    vec![
        field.name.clone(),
        type_text(schema, field),
        text(field.units.as_deref()),
        text(field.text()),
    ]
}

/// A type in short notation: `float[156]`, `alert.diaSource?`, `int (Disabled=1, …)`.
fn type_text(schema: &Schema, field: &Field) -> String {
    let word = |of: &Type| of.name().unwrap_or_else(|| of.word()).to_owned();
    let node = &schema.node(field.kind).kind;
    match node {
        Type::Array(items) => {
            let length = field.length.map_or_else(String::new, |length| length.to_string());
            format!("{}[{length}]", word(&schema.node(*items).kind))
        }
        _ => match schema.nullable(field.kind) {
            Some((inner, _)) => format!("{}?", word(&schema.node(inner).kind)),
            None => word(node),
        },
    }
}

fn print_interfaces(out: &mut Out, interfaces: &Interfaces) -> CliResult {
    let of = |component: &Component, kind| component.topics_of(kind).count().to_string();
    let row = |component: &Component| {
        let fields: usize = component.topics().iter().map(|topic| topic.fields().len()).sum();
        vec![
            component.name().to_owned(),
            of(component, TopicKind::Command),
            of(component, TopicKind::Event),
            of(component, TopicKind::Telemetry),
            of(component, TopicKind::Ack),
            human_count(fields as u64),
        ]
    };
    let rows: Vec<Vec<String>> = interfaces.components().iter().map(row).collect();
    let head = ["component", "commands", "events", "telemetry", "acks", "fields"];
    table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    let counts = interfaces.counts();
    let topics = interfaces.topics().count() as u64;
    out.line(&format!(
        "{} components, {} topics, {} fields",
        counts.components,
        human_count(topics),
        human_count(counts.fields as u64)
    ))
}
