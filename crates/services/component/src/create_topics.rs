//! Creates the topics of components together, before they are opened one by one.

use std::collections::HashSet;

use helio_bus::{Bus, TopicError, TopicSpec};

use crate::interface::Interface;
use crate::lease;
use crate::records::{AuditRecord, ControlRecord, LeaseRecord};
use crate::topic;

/// Creates all topics that instances of components will open. On a bus where creating a topic takes
/// time, thousands of them would take minutes one by one. `made` receives the number of existing
/// topics and their total.
///
/// # Errors
/// The bus's error; a problem of a single topic is reported when it is opened.
pub fn create_topics<'a>(
    bus: &Bus,
    instances: impl IntoIterator<Item = (&'a Interface, i32)>,
    mut made: impl FnMut(usize, usize),
) -> Result<(), TopicError> {
    let (mut specs, mut seen) = (Vec::new(), HashSet::new());
    for (interface, index) in instances {
        let name = interface.name();
        let beside = |segment: &str| topic::beside(name, segment).map(TopicSpec::of);
        specs.push(TopicSpec::of(lease::name(name, index)?).qos(LeaseRecord::qos()));
        // Instances of a component share its topics.
        if seen.insert(name) {
            specs.push(beside("audit")?.qos(AuditRecord::qos()));
            specs.push(beside("control")?.qos(ControlRecord::qos()));
            let topics = interface.component().topics().iter();
            specs.extend(topics.map(|t| TopicSpec::of(t.topic_name().clone()).qos(t.qos())));
        }
    }
    let all = specs.len();
    Ok(bus.make_topics(&specs, |so_many| made(so_many, all))?)
}
