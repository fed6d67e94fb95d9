//! What producers, clients and who starts them tell each other.

use std::collections::BTreeMap;

use helio_core::Qos;
use serde::{Deserialize, Serialize};

use crate::args::batch::Batch;

/// Records by the number of their lane's level.
pub(crate) type Offered = BTreeMap<u8, u64>;

/// What a producer logs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Of a thousand records 940 DEBUG, 50 INFO, 8 NOTICE, one WARNING for developers and one
    /// ERROR, for several audiences.
    Night,
    /// INFO, each of so many bytes in its packet: the fixed ones and its body.
    Bytes(usize),
}

/// A producer's urgent records.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Urgent {
    /// The number of their level.
    pub(crate) level: u8,
    /// When the first is due, after the beginning.
    pub(crate) first_ns: u64,
    /// From one to the next; there is only one where it is not said.
    pub(crate) every_ns: Option<u64>,
}

/// Where a producer's records go.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Way {
    /// To the bus, from its own process.
    Bus {
        /// How they travel together.
        batch: Batch,
    },
    /// To a service by syslog over TCP (RFC 5424, framed by RFC 6587's octet counting).
    Syslog {
        /// Where it listens.
        address: String,
    },
}

/// A producer's task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProducerTask {
    /// The bus.
    pub(crate) url: String,
    /// What the topics' names begin with.
    pub(crate) prefix: String,
    /// The quality of service of those that are not urgent, where it is not the library's.
    pub(crate) ordinary: Option<Qos>,
    /// Its name on the bus.
    pub(crate) name: String,
    /// Where the records go.
    pub(crate) way: Way,
    /// Records a second, besides urgent ones; as fast as they are taken where it is not said.
    pub(crate) rate_hz: Option<f64>,
    /// How long it logs.
    pub(crate) time_ns: u64,
    /// What.
    pub(crate) content: Content,
    /// What else.
    pub(crate) urgent: Option<Urgent>,
}

/// The order to begin.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// When the first record is due, on the monotonic clock.
    pub(crate) start_ns: u64,
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Peak memory in MB.
    pub(crate) rss_mb: f64,
}

/// What a producer reports, once everything is acknowledged or shed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProducerReport {
    /// What it logged.
    pub(crate) offered: Offered,
    /// Records that the bus, or the service's socket, has taken.
    pub(crate) published: u64,
    /// Bytes of these, with what packets have besides.
    pub(crate) bytes: u64,
    /// When the last was taken.
    pub(crate) end_ns: u64,
    /// What it used.
    pub(crate) used: Spent,
    /// CPU seconds of these that its own sleeping took, until more was due or could be logged.
    pub(crate) pacing_cpu_s: f64,
}

/// A client's task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientTask {
    /// The bus.
    pub(crate) url: String,
    /// What the topics' names begin with.
    pub(crate) prefix: String,
    /// The quality of service of those that are not urgent, where it is not the library's.
    pub(crate) ordinary: Option<Qos>,
    /// Its name.
    pub(crate) name: String,
    /// What it wants, in the grammar of predicates; everything where it is empty.
    pub(crate) predicate: String,
}

/// What a client is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ClientOrder {
    /// The producers are done, and have logged this: read it all, and tell.
    End {
        /// What they logged.
        offered: Offered,
    },
    /// The same, where some producers could not tell: theirs is what came.
    EndOfEach {
        /// What those that could have logged, by their names on the bus.
        offered: BTreeMap<String, u64>,
    },
}

/// What a client reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ClientReport {
    /// What became of the records.
    pub(crate) account: super::accounting::ClientCounts,
    /// Urgent records that it got.
    pub(crate) urgent: u64,
    /// When the last record came.
    pub(crate) end_ns: u64,
    /// Nanoseconds from when ordinary records were due until they were read, with their counts:
    /// of every 64th, and the first.
    pub(crate) tail_ns: Vec<(u64, u64)>,
    /// The same of all urgent ones.
    pub(crate) urgent_ns: Vec<(u64, u64)>,
    /// What it used.
    pub(crate) used: Spent,
}
