//! Messages between producers, clients and their starter.

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
    /// INFO, each with this many bytes in its packet: the fixed ones and its body.
    Bytes(usize),
}

/// A producer's urgent records.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Urgent {
    /// The number of their level.
    pub(crate) level: u8,
    /// When the first is due, after the beginning.
    pub(crate) first_ns: u64,
    /// The interval between them; only one if `None`.
    pub(crate) every_ns: Option<u64>,
}

/// The destination of a producer's records.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Way {
    /// To the bus, from its own process.
    Bus {
        /// The limits of packets.
        batch: Batch,
    },
    /// To a service by syslog over TCP (RFC 5424, framed by RFC 6587's octet counting).
    Syslog {
        /// The service's address.
        address: String,
    },
}

/// A producer's task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProducerTask {
    /// The bus.
    pub(crate) url: String,
    /// The prefix of the topics' names.
    pub(crate) prefix: String,
    /// The quality of service of ordinary topics, if not the library's.
    pub(crate) ordinary: Option<Qos>,
    /// The producer's name.
    pub(crate) name: String,
    /// The destination.
    pub(crate) way: Way,
    /// Records per second, besides urgent ones; `None` for as fast as they are accepted.
    pub(crate) rate_hz: Option<f64>,
    /// How long it logs.
    pub(crate) time_ns: u64,
    /// The ordinary records.
    pub(crate) content: Content,
    /// The urgent records.
    pub(crate) urgent: Option<Urgent>,
}

/// The order to begin.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// When the first record is due, on the monotonic clock.
    pub(crate) start_ns: u64,
}

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Peak memory in MB.
    pub(crate) rss_mb: f64,
}

/// The report of a producer, once all records are acknowledged or shed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProducerReport {
    /// The logged records.
    pub(crate) offered: Offered,
    /// Records that the bus or the service's socket has accepted.
    pub(crate) published: u64,
    /// Their bytes, with the packets' overhead.
    pub(crate) bytes: u64,
    /// When the last one was accepted.
    pub(crate) end_ns: u64,
    /// What it used.
    pub(crate) used: Spent,
    /// CPU seconds of pacing: sleeping until the next record is due or can be logged.
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
    /// The predicate; an empty one selects everything.
    pub(crate) predicate: String,
}

/// An order to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ClientOrder {
    /// The producers have logged this: read all of it and report.
    End {
        /// What they logged.
        offered: Offered,
    },
    /// The same if some producers sent no report; of theirs the received records count.
    EndOfEach {
        /// What those that could have logged, by their names on the bus.
        offered: BTreeMap<String, u64>,
    },
}

/// The report of a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ClientReport {
    /// What became of the records.
    pub(crate) account: super::accounting::ClientCounts,
    /// Received urgent records.
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
