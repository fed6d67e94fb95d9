//! Tasks, orders and replies of the demo's processes, as JSON.

use std::collections::BTreeMap;

use helio_alert_filters::VisitStatistics;
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, WithStamps};
use serde::{Deserialize, Serialize};

/// The number of the first visit.
const FIRST_VISIT: u32 = 1_000_000;

/// The stream, and what is generated for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Survey {
    pub(super) url: String,
    pub(super) topic: String,
    pub(super) seed: u64,
    pub(super) alerts: u32,
    pub(super) detectors: u16,
    pub(super) partitions: u32,
    pub(super) stamped: Stamped,
}

/// The stamps of the packets, and how members of groups read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stamped {
    /// There are none.
    None,
    /// In the packets.
    Inline,
    /// In a topic of their own, which members read, too.
    Linked,
    /// In the packets. Members read metadata alone, and get by URL the stamps of the alerts of
    /// which [`Survey::is_fetched`] says so.
    Url,
}

impl Survey {
    /// The generator of what is published.
    pub(super) fn packets(&self) -> Generator {
        self.generator(match self.stamped {
            Stamped::None => WithStamps::None,
            Stamped::Inline | Stamped::Linked | Stamped::Url => WithStamps::Fits,
        })
    }

    pub(super) fn generator(&self, stamps: WithStamps) -> Generator {
        Generator::new(GeneratorOptions {
            seed: self.seed,
            first_visit: FIRST_VISIT,
            alerts_per_visit: self.alerts,
            detectors: self.detectors,
            stamps,
            ..GeneratorOptions::default()
        })
    }

    /// The identifier of a visit, which counts from 0.
    pub(super) fn visit(visit: u16) -> i64 {
        i64::from(FIRST_VISIT) + i64::from(visit)
    }

    /// Whether members get an alert's stamps by URL: of one in twenty.
    pub(super) fn is_fetched(&self, alert: i64) -> bool {
        self.stamped == Stamped::Url && alert % 20 == 0
    }

    /// The place of an alert, from its identifier.
    pub(super) fn number(alert: i64) -> Option<AlertNumber> {
        let visit = u32::try_from(alert >> 32).ok()?.checked_sub(FIRST_VISIT)?;
        let (detector, number) = ((alert >> 24) & 0xff, alert & 0xff_ffff);
        Some(AlertNumber { visit, detector: detector as u16, number: number as u32 })
    }
}

/// The producer of a CCD.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProducerTask {
    pub(super) survey: Survey,
    pub(super) detector: u16,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum ProducerOrder {
    /// Makes the packets of a visit, which counts from 0: what the pipelines of a survey do.
    Prepare { visit: u16 },
    /// Publishes those of the earliest visit that was prepared.
    Publish { shutter_ns: i64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ProducerReply {
    Ready,
    Prepared,
    Published(Published),
}

/// A producer's outcome of a visit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) alerts: u64,
    pub(super) bytes: u64,
    /// Alerts and manifests that were not accepted.
    pub(super) failed: u64,
    pub(super) cause: Option<String>,
    /// Processor seconds of the process while it published.
    pub(super) cpu_s: f64,
    /// When the manifest was accepted, TAI.
    pub(super) done_ns: i64,
}

/// A member of a group.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MemberTask {
    pub(super) survey: Survey,
    pub(super) group: String,
    pub(super) name: String,
}

/// The order to end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum End {
    End,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MemberReply {
    Ready,
    /// All alerts of its partitions that count were read and committed.
    Decided {
        visit: i64,
        at_ns: i64,
    },
    End(ReadTotal),
}

/// The totals of a reader.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ReadTotal {
    pub(super) alerts: u64,
    pub(super) bytes: u64,
    /// Samples that it will never receive.
    pub(super) lost: u64,
    /// Packets that were dropped, by cause.
    pub(super) dropped: BTreeMap<String, u64>,
}

/// The reader of everything, which closes visits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WitnessTask {
    pub(super) survey: Survey,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WitnessOrder {
    /// Reports the first alert of these detectors in the visit.
    Watch {
        visit: i64,
        detectors: Vec<i32>,
    },
    /// Goes back to a visit, and reads until another is decided.
    Rewind {
        to: i64,
        until: i64,
    },
    End,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WitnessReply {
    Ready,
    Seen { visit: i64, detector: i32 },
    Decided(Decided),
    Rewound(Rewound),
    End(ReadTotal),
}

/// A decided visit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Decided {
    pub(super) visit: i64,
    pub(super) complete: bool,
    /// Whether count and hash of what was read are those of the closing record.
    pub(super) verified: bool,
    pub(super) alerts: u64,
    pub(super) repeated: Vec<i32>,
    pub(super) late: u64,
    pub(super) at_ns: i64,
}

/// A rewind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rewound {
    /// The visit of the first alert.
    pub(super) visit: i64,
    /// Whether it is the first of the visit in its partition.
    pub(super) is_first: bool,
    /// Until it was returned.
    pub(super) seconds: f64,
    pub(super) alerts: u64,
    /// Visits whose count and hash were verified again.
    pub(super) verified: u64,
}

/// A process of the filter service.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FilterTask {
    pub(super) survey: Survey,
    pub(super) name: String,
    pub(super) python: String,
}

/// The process that serves stamps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StampsTask {
    pub(super) survey: Survey,
}

/// The reply of a process of the filter service, or of the one that serves stamps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ServiceReply {
    Ready,
    /// The filter service's counters, by name.
    End(BTreeMap<String, u64>),
}

/// All users, each with a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UsersTask {
    pub(super) survey: Survey,
    pub(super) users: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum UsersReply {
    Ready,
    Visit(Box<VisitResults>),
    /// Results that came after all of a visit's: more than were announced.
    End {
        excess: u64,
    },
}

/// The results of a visit, once each user has all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct VisitResults {
    pub(super) visit: i64,
    pub(super) users: BTreeMap<String, UserResults>,
    pub(super) bytes: u64,
    /// Results that differ from the alert's packet.
    pub(super) differing: u64,
    /// Results that came twice.
    pub(super) repeated: u64,
    /// Seconds from shutter close to the user: median, 99 %, most.
    pub(super) age_s: [f64; 3],
}

/// The results of a user in a visit, and what the user's filter did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UserResults {
    pub(super) received: u64,
    pub(super) filter: VisitStatistics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_found_by_its_identifier() {
        let survey = Survey {
            url: String::new(),
            topic: String::new(),
            seed: 1,
            alerts: 400,
            detectors: 189,
            partitions: 1,
            stamped: Stamped::Inline,
        };
        let generator = survey.generator(WithStamps::None);
        let number = AlertNumber { visit: 3, detector: 188, number: 1 };
        assert_eq!(Survey::number(generator.alert_id(number)), Some(number));
    }
}
