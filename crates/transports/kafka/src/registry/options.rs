//! A URL's options of a schema registry, by the names of Confluent's clients.

use std::path::PathBuf;
use std::str::FromStr;

use helio_bus::{BusUrl, ConnectError};

use super::client::{Client, ClientOptions};

/// The registry's options.
pub(crate) const REGISTRY_OPTIONS: [&str; 5] = [
    "schema.registry.url",
    "schema.registry.ssl.ca.location",
    "basic.auth.user.info",
    "auto.register.schemas",
    "subject.name.strategy",
];

/// How a registry is used, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct RegistryOptions {
    pub(crate) client: Client,
    pub(crate) new: NewSchemas,
    pub(crate) strategy: SubjectStrategy,
}

/// The treatment of a schema that a subject does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSchemas {
    /// It is registered.
    Register,
    /// It is rejected: other programs register, and writers look up.
    LookUp,
}

/// The subject of a topic's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectStrategy {
    /// `TOPIC-value`.
    Topic,
    /// The record's full name.
    Record,
    /// `TOPIC-RECORD`.
    TopicRecord,
}

impl SubjectStrategy {
    const ALL: [(&str, Self); 3] = [
        ("TopicNameStrategy", Self::Topic),
        ("RecordNameStrategy", Self::Record),
        ("TopicRecordNameStrategy", Self::TopicRecord),
    ];

    /// The subject of a schema on a Kafka topic. A schema without a name has the topic's.
    pub(crate) fn subject(self, topic: &str, record: Option<&str>) -> String {
        match (self, record) {
            (Self::Record, Some(record)) => record.to_owned(),
            (Self::TopicRecord, Some(record)) => format!("{topic}-{record}"),
            _ => format!("{topic}-value"),
        }
    }
}

impl FromStr for SubjectStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Java's clients use a class's full name.
        let name = text.rsplit_once('.').map_or(text, |(_, name)| name);
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, strategy)| strategy).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("there are {}", known.join(", "))
        })
    }
}

impl RegistryOptions {
    /// Parses them; `None` if the URL names no registry.
    pub(crate) fn parse(url: &BusUrl) -> Result<Option<Self>, ConnectError> {
        let Some(at) = url.option(REGISTRY_OPTIONS[0]) else {
            return match REGISTRY_OPTIONS.iter().find_map(|name| Some((name, url.option(name)?))) {
                None => Ok(None),
                Some((name, value)) => {
                    Err(url.bad_option(name, value, "it has no effect without schema.registry.url"))
                }
            };
        };
        let authority = url.option(REGISTRY_OPTIONS[1]).or_else(|| url.option("ssl.ca.location"));
        let options = ClientOptions {
            user_info: url.option("basic.auth.user.info").map(str::to_owned),
            authority: authority.map(PathBuf::from),
        };
        let client = Client::new(at, options);
        let client = client.map_err(|reason| url.bad_option(REGISTRY_OPTIONS[0], at, &reason))?;
        let new = match url.option("auto.register.schemas") {
            None | Some("true") => NewSchemas::Register,
            Some("false") => NewSchemas::LookUp,
            Some(other) => {
                return Err(url.bad_option("auto.register.schemas", other, "true or false"));
            }
        };
        let strategy = match url.option("subject.name.strategy") {
            None => SubjectStrategy::Topic,
            Some(text) => text
                .parse()
                .map_err(|reason: String| url.bad_option("subject.name.strategy", text, &reason))?,
        };
        Ok(Some(Self { client, new, strategy }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Result<Option<RegistryOptions>, ConnectError> {
        RegistryOptions::parse(&format!("kafka://a:1?{options}").parse()?)
    }

    #[test]
    fn subjects_are_called_as_confluent_s_strategies_say() {
        for (word, subject) in [
            ("TopicNameStrategy", "t-value"),
            ("RecordNameStrategy", "a.W"),
            ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "t-a.W"),
        ] {
            let url = format!("schema.registry.url=http://r&subject.name.strategy={word}");
            let options = parse(&url).unwrap().unwrap();
            assert_eq!(options.strategy.subject("t", Some("a.W")), subject);
            assert_eq!(options.strategy.subject("t", None), "t-value");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        assert!(parse("linger.ms=1").unwrap().is_none());
        for (options, named) in [
            ("auto.register.schemas=true", "without schema.registry.url"),
            ("schema.registry.url=ftp://r", "http://"),
            ("schema.registry.url=http://", "http://"),
            ("schema.registry.url=http://r&auto.register.schemas=1", "true or false"),
            ("schema.registry.url=http://r&subject.name.strategy=x", "RecordNameStrategy"),
            ("schema.registry.url=http://r&basic.auth.user.info=me", "USER:PASSWORD"),
        ] {
            let told = parse(options).unwrap_err().to_string();
            assert!(told.contains(named), "{options}: {told}");
        }
    }
}
