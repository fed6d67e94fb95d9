//! The state that a topic's writers and readers share.

use std::sync::{Arc, OnceLock};

use helio_bus::{Qos, TopicName, TransportError};
use helio_core::qos::Overload;

use crate::SCHEME;
use crate::client::link::Link;
use crate::client::options::{FORWARDING_BATCH_BYTES, FetchPace};
use crate::internal::internal_topics::InternalTopics;
use crate::topic::record_format::RecordFormat;

/// One topic of a connection.
pub(crate) struct TopicState {
    pub(crate) link: Arc<Link>,
    pub(crate) tables: Arc<InternalTopics>,
    pub(crate) name: TopicName,
    pub(crate) kafka: String,
    pub(crate) companion: Option<String>,
    pub(crate) qos: Qos,
    pub(crate) format: RecordFormat,
    /// The forwarders' batch size, by its index in [`FORWARDING_BATCH_BYTES`], once that was
    /// queried.
    pub(crate) batch: OnceLock<usize>,
}

impl TopicState {
    /// Queries once how large forwarders' batches may be: the largest size that the topic admits.
    /// Without an answer it is the largest of all. All forwarders keep the first answer: each size
    /// has a producer of its own, and records of two producers have no order.
    pub(crate) fn learn_batch(&self) -> Result<(), TransportError> {
        if self.batch.get().is_some() {
            return Ok(());
        }
        let config = match self.link.admin.describe(&self.kafka) {
            Err(outage @ TransportError::Outage { .. }) => return Err(outage),
            // Reading configurations may be forbidden.
            config => config.unwrap_or_default(),
        };
        let most = config.get("max.message.bytes").and_then(|most| most.parse::<u32>().ok());
        let fits = |bytes: &u32| most.is_none_or(|most| *bytes <= most);
        let place = FORWARDING_BATCH_BYTES
            .iter()
            .position(fits)
            .unwrap_or(FORWARDING_BATCH_BYTES.len() - 1);
        // The first answer is kept.
        let _ = self.batch.set(place);
        Ok(())
    }

    /// The forwarders' batch size, by its index in [`FORWARDING_BATCH_BYTES`].
    pub(crate) fn batch(&self) -> usize {
        self.batch.get().copied().unwrap_or(0)
    }

    /// The pace of fetching: samples that newer ones may replace are written at a regular rate.
    pub(crate) fn pace(&self) -> FetchPace {
        if self.qos.overload == Overload::DropOldest { FetchPace::Busy } else { FetchPace::Patient }
    }

    /// The partitions that a request names, or all.
    pub(crate) fn partitions(&self, named: &[u32]) -> Result<Vec<u32>, TransportError> {
        let partitions = self.qos.partitions;
        if let Some(wrong) = named.iter().find(|partition| **partition >= partitions) {
            return Err(TransportError::Unsupported {
                transport: SCHEME.to_owned(),
                what: format!("open partition {wrong} of {}", self.name),
                remedy: format!("the topic has {partitions} partitions"),
            });
        }
        Ok(if named.is_empty() { (0..partitions).collect() } else { named.to_vec() })
    }
}
