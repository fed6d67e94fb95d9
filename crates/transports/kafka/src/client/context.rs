//! The callbacks of librdkafka's clients: errors, and a group's assignments.

use std::sync::{Arc, OnceLock, Weak};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use crate::client::error::{is_gone, is_refusal};
use crate::client::health::Health;

/// The transport's consumer type.
pub(crate) type Consumer = BaseConsumer<Context>;

/// The group's notifications to a member, called on its consumer's thread.
pub(crate) trait GroupEvents: Send + Sync {
    /// Partitions are assigned: the member must take them over.
    fn assign(&self, consumer: &Arc<Consumer>, list: &TopicPartitionList);

    /// Partitions are revoked for a rebalance; if they were lost, other members have them.
    fn revoke(&self, lost: bool);

    /// The group refuses the member.
    fn refused(&self, error: &KafkaError);

    /// The topic was deleted.
    fn gone(&self);
}

/// The state of a consumer's callbacks.
pub(crate) struct Context {
    health: Arc<Health>,
    membership: Option<Arc<dyn GroupEvents>>,
    this: OnceLock<Weak<Consumer>>,
}

impl Context {
    pub(crate) fn new(health: &Arc<Health>, membership: Option<Arc<dyn GroupEvents>>) -> Self {
        Self { health: Arc::clone(health), membership, this: OnceLock::new() }
    }

    /// Gives the callbacks their consumer.
    pub(crate) fn belongs_to(&self, consumer: &Arc<Consumer>) {
        let _ = self.this.set(Arc::downgrade(consumer));
    }
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.health.complained(&error, reason);
    }
}

impl Context {
    /// An error in place of a sample, in the consumer's own queue: a group's member receives it if
    /// waiting does not help.
    pub(crate) fn failed(&self, error: &KafkaError) {
        match &self.membership {
            Some(membership) if is_refusal(error) => membership.refused(error),
            Some(membership) if is_gone(error) => membership.gone(),
            _ => {}
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let this = self.this.get().and_then(Weak::upgrade);
        match (&self.membership, this) {
            (Some(membership), Some(this))
                if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS =>
            {
                membership.assign(&this, partitions);
            }
            (membership, _) => {
                if let Some(membership) = membership {
                    membership.revoke(consumer.assignment_lost());
                }
                // It fails if the consumer is closed already, which has the same effect.
                let _ = consumer.unassign();
            }
        }
    }
}
