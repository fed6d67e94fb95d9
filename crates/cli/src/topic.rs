//! `helio topic`: creates, alters, deletes and purges topics.

use helio_bus::{Bus, TopicName, TopicSpec, TransportError};
use helio_core::Qos;

use crate::args::topic::{AlterArgs, CreateArgs, NamesArgs, TopicCommand};
use crate::error::{CliError, CliResult};
use crate::open::{connect, look, name, profile};
use crate::value::schema_file;

/// Runs `helio topic`.
pub(crate) fn run(command: &TopicCommand, url: Option<&str>) -> CliResult {
    match command {
        TopicCommand::Create(args) => create(args, url),
        TopicCommand::Alter(args) => alter(args, url),
        TopicCommand::Delete(args) => each(args, url, Bus::remove_topic),
        TopicCommand::Purge(args) => each(args, url, Bus::purge_topic),
    }
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
