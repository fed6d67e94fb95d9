//! `helio topic`: creates, alters, deletes, purges and grants topics.

use std::fs;

use helio_bus::{Bus, Topic, TopicName, TopicSpec, TransportError};
use helio_core::Qos;
use serde::Serialize;

use crate::args::topic::{AlterArgs, CreateArgs, GrantArgs, NamesArgs, RevokeArgs, TopicCommand};
use crate::error::{CliError, CliResult};
use crate::open::{connect, existing_untyped, look, name, profile};
use crate::out::Out;
use crate::value::schema_file;

/// Runs `helio topic`.
pub(crate) fn run(command: &TopicCommand, url: Option<&str>) -> CliResult {
    match command {
        TopicCommand::Create(args) => create(args, url),
        TopicCommand::Alter(args) => alter(args, url),
        TopicCommand::Delete(args) => each(args, url, Bus::remove_topic),
        TopicCommand::Purge(args) => each(args, url, Bus::purge_topic),
        TopicCommand::Grant(args) => grant(args, url),
        TopicCommand::Revoke(args) => revoke(args, url),
    }
}

/// A line of `helio topic grant --json`.
#[derive(Serialize)]
struct GrantLine<'a> {
    user: &'a str,
    topic: &'a str,
    /// The generated password, if there is one.
    password: Option<&'a str>,
}

fn grant(args: &GrantArgs, url: Option<&str>) -> CliResult {
    let password = match &args.password_file {
        None => None,
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| CliError::file(path, &error))?;
            let line = text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned);
            let empty = || CliError::Usage(format!("{} has no password", path.display()));
            Some(line.ok_or_else(empty)?)
        }
    };
    let bus = look(url)?;
    let topic = existing(&bus, &args.topic)?;
    let granted = topic.grant(&args.user, password.as_deref())?;
    let (user, topic) = (args.user.as_str(), topic.name().as_str());
    let password = granted.password.as_deref();
    let mut out = Out::new();
    match password {
        _ if args.json => out.json(&GrantLine { user, topic, password })?,
        Some(password) => out.line(&format!("password of {user}: {password}"))?,
        None => {}
    }
    out.flush()
}

fn revoke(args: &RevokeArgs, url: Option<&str>) -> CliResult {
    let bus = look(url)?;
    let topic = existing(&bus, &args.topic)?;
    let missing = || CliError::NotFound(format!("{} has no grant of {}", args.user, topic.name()));
    topic.revoke(&args.user)?.then_some(()).ok_or_else(missing)
}

fn existing(bus: &Bus, topic: &str) -> CliResult<Topic> {
    let topic = name(topic)?;
    existing_untyped(bus, &topic)?.ok_or_else(|| missing(bus, &topic))
}

fn create(args: &CreateArgs, url: Option<&str>) -> CliResult {
    let mut qos = profile(&args.profile)?;
    args.qos.iter().for_each(|one| one.apply(&mut qos));
    qos.partitions = args.partitions;
    let mut spec = TopicSpec::of(name(&args.topic)?).qos(qos);
    if let Some(path) = &args.schema {
        spec = spec.schema(schema_file(path)?);
    }
    let bus = connect(url, None)?;
    Ok(bus.topic(spec)?.declare()?)
}

fn alter(args: &AlterArgs, url: Option<&str>) -> CliResult {
    let topic = name(&args.topic)?;
    let bus = look(url)?;
    let info = bus.topic_info(&topic)?.ok_or_else(|| missing(&bus, &topic))?;
    let mut qos = info.qos.clone();
    if let Some(name) = &args.profile {
        let last_value = qos.retention.last_value;
        qos.retention = profile(name)?.retention;
        qos.retention.last_value = last_value;
    }
    args.qos.iter().for_each(|one| one.apply(&mut qos));
    let altered = Qos { retention: qos.retention.clone(), ..info.qos.clone() };
    if qos != altered || qos.retention.last_value != info.qos.retention.last_value {
        return Err(CliError::Usage(
            "only retention.bytes and retention.age can be altered; create a topic of another \
             name for other changes"
                .to_owned(),
        ));
    }
    bus.alter_topic(&topic, &qos.retention)?.then_some(()).ok_or_else(|| missing(&bus, &topic))
}

fn each(
    args: &NamesArgs,
    url: Option<&str>,
    run: impl Fn(&Bus, &TopicName) -> Result<bool, TransportError>,
) -> CliResult {
    let names = args.topics.iter().map(|text| name(text)).collect::<CliResult<Vec<_>>>()?;
    let bus = look(url)?;
    for topic in &names {
        if !run(&bus, topic)? {
            return Err(missing(&bus, topic));
        }
    }
    Ok(())
}

fn missing(bus: &Bus, topic: &TopicName) -> CliError {
    CliError::NotFound(format!("no topic {topic} on {}; `helio topics` lists them", bus.url()))
}
