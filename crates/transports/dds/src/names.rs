//! Topic names on the bus and in DDS.
//!
//! The DDS topic of a bus topic's first schema has the bus topic's name, after the URL's `prefix`.
//! The DDS topic of its envelopes is one of the transport's own. Names that DDS or the transport
//! reserve (those that begin with `DCPS` or `_`) get a leading `_`.

use helio_core::TopicName;

/// Reserved for topics of the transport and of the journal.
pub(crate) const INTERNAL_PREFIX: &str = "_helio/";

/// The naming rules of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The DDS topic of a bus topic's envelopes.
    pub(crate) fn envelopes(&self, name: &TopicName) -> String {
        self.internal(&format!("envelopes/{name}"))
    }

    /// The DDS topic of a bus topic's first schema.
    pub(crate) fn dds(&self, name: &TopicName) -> String {
        let name = name.as_str();
        let kept = self.prefix.is_empty() && name.starts_with("DCPS") || name.starts_with('_');
        format!("{}{}{name}", self.prefix, if kept { "_" } else { "" })
    }

    /// A DDS topic of the transport's own.
    pub(crate) fn internal(&self, name: &str) -> String {
        format!("{}{INTERNAL_PREFIX}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_on_both_sides_but_those_that_are_kept() {
        let names = Names::new("");
        let dds = |name: &str| names.dds(&TopicName::new(name).unwrap());
        assert_eq!(dds("MTMount/logevent/summaryState"), "MTMount/logevent/summaryState");
        assert_eq!(dds("DCPSTopic"), "_DCPSTopic");
        assert_eq!(names.internal("acks"), "_helio/acks");
        let wind = TopicName::new("weather/wind").unwrap();
        assert_eq!(names.envelopes(&wind), "_helio/envelopes/weather/wind");
        assert_eq!(Names::new("sim.").internal("acks"), "sim._helio/acks");
    }
}
