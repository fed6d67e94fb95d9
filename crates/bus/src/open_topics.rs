//! The topics that a bus has open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use helio_core::{ProducerName, Qos, TopicName};

use crate::bell::locked;
use crate::bus_core::BusCore;
use crate::error::{TopicError, TransportError};
use crate::topic::TopicSpec;
use crate::topic_core::TopicCore;
use crate::transport::{TransportTopic, first_difference};

/// Open topics by name.
#[derive(Default)]
pub(crate) struct OpenTopics(Mutex<HashMap<TopicName, Arc<TopicHandles>>>);

/// A topic's handles by producer. `opening` is held while the transport opens the topic: it opens
/// each topic once, and several topics at the same time.
#[derive(Default)]
struct TopicHandles {
    opening: Mutex<()>,
    open: Mutex<HashMap<ProducerName, Weak<TopicCore>>>,
}

impl TopicHandles {
    fn is_open(&self) -> bool {
        locked(&self.open).values().any(|topic| topic.strong_count() > 0)
    }

    fn all(&self) -> Vec<Arc<TopicCore>> {
        locked(&self.open).values().filter_map(Weak::upgrade).collect()
    }
}

fn is_same(name: &TopicName, qos: &Qos, open: &dyn TransportTopic) -> bool {
    first_difference(name, open.qos(), qos).is_none()
}

impl OpenTopics {
    /// Opens a topic, or returns the one that is open already.
    pub(crate) fn open(
        &self,
        bus: &Arc<BusCore>,
        spec: &TopicSpec,
    ) -> Result<Arc<TopicCore>, TopicError> {
        spec.validate()?;
        let (name, transport) = (&spec.name, &bus.transport);
        if let Some(qos) = &spec.qos {
            transport.prepare(qos);
            transport.capabilities().check(name, qos).map_err(|mut refusal| {
                let remedy = transport.remedy(refusal.policy);
                refusal.remedy = remedy.unwrap_or(std::mem::take(&mut refusal.remedy));
                refusal
            })?;
        }
        let producer = spec.producer.clone().unwrap_or_else(|| bus.producer.clone());
        let handles = self.handles(name);
        let _one = locked(&handles.opening);
        let open = locked(&handles.open).get(&producer).and_then(Weak::upgrade);
        if let Some(open) = open
            && spec.qos.as_ref().is_none_or(|qos| is_same(name, qos, &*open.transport))
            && open.transport.is_current()
        {
            return Ok(open);
        }
        let topic = match &spec.qos {
            Some(qos) => transport.create_topic(name, qos)?,
            None => {
                transport.open_topic(name)?.ok_or_else(|| TopicError::NoSuchTopic(name.clone()))?
            }
        };
        let core = TopicCore::new(name.clone(), producer.clone(), topic, Arc::clone(bus));
        let core = Arc::new(core);
        let mut open = locked(&handles.open);
        open.retain(|_, topic| topic.strong_count() > 0);
        open.insert(producer, Arc::downgrade(&core));
        drop(open);
        // Closing the bus closes open topics and does not wait for those that are being opened.
        if bus.is_closed() { Err(TransportError::Closed.into()) } else { Ok(core) }
    }

    pub(crate) fn close(&self) {
        let open: Vec<_> = locked(&self.0).values().flat_map(|handles| handles.all()).collect();
        open.iter().for_each(|topic| topic.close());
    }

    /// A topic's handles.
    fn handles(&self, name: &TopicName) -> Arc<TopicHandles> {
        let mut topics = locked(&self.0);
        if let Some(handles) = topics.get(name) {
            return Arc::clone(handles);
        }
        // Unused entries are removed whenever their number has doubled, so that opening thousands
        // of topics takes linear time.
        if topics.len().is_power_of_two() {
            topics.retain(|_, handles| Arc::strong_count(handles) > 1 || handles.is_open());
        }
        Arc::clone(topics.entry(name.clone()).or_default())
    }
}
