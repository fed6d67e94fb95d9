//! `helio schema idl`: the DDS types of topics, for other DDS programs.

use helio_core::idl::{Form, TopicType, document};
use helio_core::sal::Interfaces;
use helio_core::schema::Schema;
use serde_json::json;

use super::{PathContents, read, show};
use crate::args::IdlArgs;
use crate::error::{CliError, CliResult};
use crate::out::Out;

/// A topic, or a schema file, and its type.
struct Row {
    name: String,
    schema: Schema,
    of: TopicType,
    /// The reason if it is the envelope.
    unsayable: Option<String>,
}

/// Runs `helio schema idl`.
pub(super) fn run(args: &IdlArgs, url: Option<&str>) -> CliResult {
    let rows = rows(args, url)?;
    let mut out = Out::new();
    if args.output.json {
        for row in &rows {
            out.json(&json!({
                "topic": row.name,
                "schema": row.schema.id().to_string(),
                "type": row.of.name(),
                "form": form(&row.of),
                "unsayable": row.unsayable,
                "idl": row.of.text(),
            }))?;
        }
        return out.flush();
    }
    out.raw(document(rows.iter().map(|row| &row.of)).as_bytes())?;
    for row in &rows {
        if let Some(why) = &row.unsayable {
            out.line(&format!("// {}: {why}; its type is {}.", row.name, row.of.name()))?;
        }
    }
    out.flush()
}

/// The name of a type's form in JSON.
pub(crate) fn form(of: &TopicType) -> &'static str {
    match of.form() {
        Form::Typed => "typed",
        Form::Envelope => "envelope",
        Form::Foreign => "foreign",
    }
}

fn rows(args: &IdlArgs, url: Option<&str>) -> CliResult<Vec<Row>> {
    if let Some(topic) = &args.topic {
        let newest = show::of_topic(topic, url)?.pop();
        return newest.map(|schema| row(topic.clone(), schema, args.foreign)).into_iter().collect();
    }
    let Some(path) = &args.path else {
        let text = "nothing to print; name a file, a folder, or a topic of the bus with --topic";
        return Err(CliError::Usage(text.to_owned()));
    };
    match read(path)? {
        PathContents::Schema(_) if !args.component.is_empty() => {
            Err(CliError::Usage("--component is for folders of SAL interfaces".to_owned()))
        }
        PathContents::Schema(schema) => {
            let name = schema.name().unwrap_or("(no name)").to_owned();
            Ok(vec![row(name, schema, args.foreign)?])
        }
        PathContents::Interfaces(interfaces) => of_interfaces(&interfaces, args),
    }
}

fn of_interfaces(interfaces: &Interfaces, args: &IdlArgs) -> CliResult<Vec<Row>> {
    for name in &args.component {
        if interfaces.component(name).is_none() {
            let text = format!("no component {name}; `helio component list` lists them");
            return Err(CliError::NotFound(text));
        }
    }
    let asked = |component: &str| {
        args.component.is_empty() || args.component.iter().any(|name| name == component)
    };
    let topics = interfaces.topics().filter(|topic| asked(topic.component()));
    let rows = topics.map(|topic| {
        let schema = topic.schema().map_err(|e| CliError::Refused(format!("{topic}: {e}")))?;
        row(topic.to_string(), schema, args.foreign)
    });
    rows.collect()
}

fn row(name: String, schema: Schema, foreign: bool) -> CliResult<Row> {
    let made = if foreign { TopicType::foreign(&schema) } else { TopicType::new(&schema) };
    match made {
        Ok(of) => Ok(Row { name, schema, of, unsayable: None }),
        // Foreign topics have no envelope.
        Err(why) if foreign => Err(CliError::Refused(format!("{name}: {why}"))),
        Err(why) => {
            let unsayable = Some(why.to_string());
            Ok(Row { name, schema, of: TopicType::envelope(), unsayable })
        }
    }
}
