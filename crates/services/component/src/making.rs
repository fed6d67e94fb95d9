//! The topics of components, made all at once before they are opened one by one.

use std::collections::HashSet;

use helio_bus::{Bus, TopicError, TopicSpec};

use crate::interface::Interface;
use crate::lease;
use crate::records::{AuditRecord, ControlRecord, LeaseRecord};
use crate::topic;

/// Has all topics made that instances of components will open, for who opens many: on a bus where
/// making a topic takes time, thousands of them take minutes one after the other. `made` hears how
/// many of how many are there.
///
/// # Errors
/// What the bus says of making topics; what is wrong with one of them is told when it is opened.
pub fn make_topics<'a>(
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
