//! SAL's keys and schema texts on Kafka.

use serde_json::Value;

use super::naming::{NamingError, parse_bus};
use super::schema::OURS;
use super::topic::TopicKind;
use crate::codec::Reader;
use crate::name::TopicName;

/// Returns the key of a Kafka message: the JSON text of name, index (absent if the component has
/// none) and SAL's name of the topic, with salobj's blanks. The broker compacts by it; telemetry
/// has none.
pub(super) fn key(component: &str, kind: TopicKind, sal_name: &str, index: Option<i32>) -> String {
    if kind == TopicKind::Telemetry {
        return String::new();
    }
    let index = index.map_or_else(String::new, |index| format!("\"index\": {index}, "));
    // Both names consist of letters, digits and '_': nothing to escape.
    format!("{{ \"name\": \"{component}\", {index}\"topic\": \"{sal_name}\" }}")
}

/// The keys of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalKeys {
    component: String,
    kind: TopicKind,
    sal_name: String,
}

impl SalKeys {
    /// Creates the keys of a topic on the bus.
    ///
    /// # Errors
    /// [`NamingError::Bus`] if the name is no SAL topic's.
    pub fn of(topic: &TopicName) -> Result<Self, NamingError> {
        let refused = || NamingError::Bus(topic.to_string());
        let (component, kind, name) = parse_bus(topic.as_str()).ok_or_else(refused)?;
        let sal_name = format!("{}{name}", kind.sal_prefix());
        Ok(Self { component: component.to_owned(), kind, sal_name })
    }

    /// Returns the topic's kind.
    #[must_use]
    pub fn kind(&self) -> TopicKind {
        self.kind
    }

    /// Returns the Kafka key of a sample by its key on the bus: `salIndex` as Avro writes it, or
    /// empty. `None` for any other key.
    #[must_use]
    pub fn to_kafka(&self, key: &[u8]) -> Option<String> {
        let index = match key {
            [] => None,
            key => {
                let found = leading_long(key).filter(|found| found.1 == key)?;
                Some(i32::try_from(found.0).ok()?)
            }
        };
        Some(self::key(&self.component, self.kind, &self.sal_name, index))
    }
}

/// Returns the key on the bus of a datum that begins with its `salIndex`: those bytes. Empty if it
/// does not begin with a number.
#[must_use]
pub fn index_key(datum: &[u8]) -> &[u8] {
    leading_long(datum).map_or(&[], |found| found.1)
}

fn leading_long(datum: &[u8]) -> Option<(i64, &[u8])> {
    let mut reader = Reader::new(datum);
    let number = reader.long().ok()?;
    Some((number, &datum[..datum.len() - reader.rest().len()]))
}

/// Returns the text of SAL's schema of a topic, as SAL's own writers register it, from our schema,
/// which has more attributes. `None` if it is no JSON.
#[must_use]
pub fn sal_text(ours: &str) -> Option<String> {
    let mut schema: Value = serde_json::from_str(ours).ok()?;
    for field in schema["fields"].as_array_mut()? {
        let attributes = field.as_object_mut()?;
        OURS.iter().for_each(|name| _ = attributes.shift_remove(*name));
    }
    Some(schema.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::wire::put_long;

    fn keys(topic: &str) -> SalKeys {
        SalKeys::of(&TopicName::new(topic).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_json_with_the_index_that_the_bus_has() {
        let mut key = Vec::new();
        put_long(&mut key, -1);
        assert_eq!(
            keys("ESS/event/summaryState").to_kafka(&key).unwrap(),
            r#"{ "name": "ESS", "index": -1, "topic": "logevent_summaryState" }"#
        );
        assert_eq!(
            keys("MTMount/ackcmd").to_kafka(b"").unwrap(),
            r#"{ "name": "MTMount", "topic": "ackcmd" }"#
        );
        assert_eq!(keys("ESS/telemetry/wind").to_kafka(&key).unwrap(), "");
        assert_eq!(keys("ESS/event/x").to_kafka(b"name"), None);
        assert!(SalKeys::of(&TopicName::new("ESS/lease/2").unwrap()).is_err());
    }

    #[test]
    fn a_datum_s_index_is_what_it_begins_with() {
        let mut datum = Vec::new();
        put_long(&mut datum, 300);
        let key = datum.clone();
        datum.extend_from_slice(b"rest");
        assert_eq!(index_key(&datum), key);
        assert_eq!((index_key(b""), index_key(&[0xff; 2])), (&b""[..], &b""[..]));
    }

    #[test]
    fn our_attributes_are_taken_out_and_nothing_else() {
        let ours = r#"{"type":"record","name":"x","fields":[{"name":"a","type":"int","default":0,
            "length":2,"units":"m","enumeration":{"A":1},"salType":"long"}],"description":"d"}"#;
        let sal = r#"{"type":"record","name":"x","fields":[XX],"description":"d"}"#
            .replace("XX", r#"{"name":"a","type":"int","default":0,"units":"m"}"#);
        assert_eq!(sal_text(ours).unwrap(), sal);
        assert_eq!((sal_text("{}"), sal_text("x")), (None, None));
    }
}
