//! `helio schema`: shows, checks, compares and exports schemas and interface folders.

#[cfg(feature = "kafka")]
mod compatibility;
pub(crate) mod idl;
mod show;

use std::path::{Path, PathBuf};

use helio_core::evolution::{Level, compare};
use helio_core::sal::{Interfaces, SalNaming};
use helio_core::schema::{Schema, SchemaSet};

use crate::args::{CheckArgs, DiffArgs, ExportArgs, Naming, Require, SchemaCommand};
use crate::error::{CliError, CliResult};
use crate::out::{Out, table};
use crate::sal;

/// Runs `helio schema`.
pub(crate) fn run(command: &SchemaCommand, url: Option<&str>) -> CliResult {
    match command {
        SchemaCommand::Show(args) => show::run(args, url),
        SchemaCommand::Check(args) => check(args),
        SchemaCommand::Diff(args) => diff(args),
        SchemaCommand::Export(args) => export(args),
        #[cfg(feature = "kafka")]
        SchemaCommand::Compatibility(args) => compatibility::run(args),
        SchemaCommand::Idl(args) => idl::run(args, url),
    }
}

/// The contents of a path.
enum PathContents {
    /// A folder of SAL interfaces.
    Interfaces(Interfaces),
    /// A schema of one file, or of a folder of files that name each other.
    Schema(Schema),
}

/// Reads the contents of a path.
fn read(path: &Path) -> CliResult<PathContents> {
    if !path.is_dir() {
        return Ok(PathContents::Schema(files(&[path.to_owned()])?));
    }
    match sal::folder(path) {
        Ok(interfaces) => Ok(PathContents::Interfaces(interfaces)),
        Err(CliError::NotFound(text)) => match avsc_in(path)? {
            found if found.is_empty() => Err(CliError::NotFound(text)),
            found => Ok(PathContents::Schema(files(&found)?)),
        },
        Err(error) => Err(error),
    }
}

/// The `.avsc` files of a folder, by name.
fn avsc_in(folder: &Path) -> CliResult<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| CliError::file(folder, &e))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "avsc"))
        .collect();
    found.sort();
    Ok(found)
}

/// The schema of one file or of several that name each other.
pub(crate) fn files(paths: &[PathBuf]) -> CliResult<Schema> {
    let mut texts = Vec::with_capacity(paths.len());
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|e| CliError::file(path, &e))?;
        texts.push((path.display().to_string(), text));
    }
    let named = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let schema = SchemaSet::load(named).and_then(|set| set.root());
    schema.map_err(|e| CliError::Refused(e.to_string()))
}

fn check(args: &CheckArgs) -> CliResult {
    let mut out = Out::new();
    for path in &args.paths {
        let what = match read(path)? {
            PathContents::Schema(schema) => format!("schema {}", schema.id()),
            PathContents::Interfaces(interfaces) => {
                // Each topic's schema is parsed from its text.
                for topic in interfaces.topics() {
                    topic.schema().map_err(|e| CliError::Refused(format!("{topic}: {e}")))?;
                }
                let counts = interfaces.counts();
                let topics = interfaces.topics().count();
                format!("{} components, {topics} topics", counts.components)
            }
        };
        if args.output.json {
            out.json(&serde_json::json!({"path": path, "valid": true, "what": what}))?;
        } else {
            out.line(&format!("{}: {what}", path.display()))?;
        }
    }
    out.flush()
}

fn diff(args: &DiffArgs) -> CliResult {
    let mut out = Out::new();
    let json = args.output.json;
    let level = match (read(&args.old)?, read(&args.new)?) {
        (PathContents::Interfaces(old), PathContents::Interfaces(new)) => {
            let diff = old.diff(&new).map_err(|e| CliError::Refused(e.to_string()))?;
            if json {
                out.json(&diff)?
            } else {
                out.raw(diff.to_string().as_bytes())?
            }
            diff.level
        }
        (PathContents::Schema(old), PathContents::Schema(new)) => {
            let evolution = compare(&old, &new);
            if json {
                out.json(&evolution)?;
            } else {
                evolution.differences.iter().try_for_each(|one| out.line(&one.to_string()))?;
                out.line(&evolution.level.to_string())?;
            }
            evolution.level
        }
        _ => {
            let text = "a schema and a folder of interfaces cannot be compared; give two of a kind";
            return Err(CliError::Usage(text.to_owned()));
        }
    };
    out.flush()?;
    required(args.require, level)
}

/// An error if a change breaks the required compatibility.
fn required(require: Option<Require>, level: Level) -> CliResult {
    let (met, what) = match require {
        None => return Ok(()),
        Some(Require::Backward) => (level.is_backward(), "new readers to read old data"),
        Some(Require::Forward) => (level.is_forward(), "old readers to read new data"),
        Some(Require::Full) => (level == Level::Full, "old and new to read each other"),
    };
    match met {
        true => Ok(()),
        false => Err(CliError::Refused(format!(
            "the change is {level}, which does not allow {what}; see the differences above"
        ))),
    }
}

fn export(args: &ExportArgs) -> CliResult {
    let interfaces = sal::folder(&args.folder)?;
    let naming =
        SalNaming::new(&args.subname).map_err(|error| CliError::Usage(error.to_string()))?;
    let mut out = Out::new();
    let mut rows = Vec::new();
    for topic in interfaces.topics() {
        match (args.naming, args.output.json) {
            (Naming::Sal, true) => out.json(&topic.sal_record(&naming))?,
            (Naming::Sal, false) => {
                let record = topic.sal_record(&naming);
                rows.push(vec![
                    record.kafka_name,
                    record.revcode,
                    topic.fields().len().to_string(),
                ]);
            }
            (Naming::Helio, json) => {
                let schema = topic.schema();
                let schema = schema.map_err(|e| CliError::Refused(format!("{topic}: {e}")))?;
                let value = topic.helio_schema_json();
                let (name, id) = (topic.topic_name().as_str(), schema.id().to_string());
                if json {
                    out.json(&serde_json::json!({"topic": name, "id": id, "schema": value}))?;
                } else {
                    rows.push(vec![name.to_owned(), id, topic.fields().len().to_string()]);
                }
            }
        }
    }
    if !args.output.json {
        let head = match args.naming {
            Naming::Sal => ["topic", "revcode", "fields"],
            Naming::Helio => ["topic", "schema", "fields"],
        };
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}
