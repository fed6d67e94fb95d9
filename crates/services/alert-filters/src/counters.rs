//! Counters of a process, for a monitoring system; there is no HTTP here.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// What a process of the service did since it started.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(#[doc = $help] pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Each counter's name, description and value.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    alerts: "Alerts read.",
    alert_bytes: "Bytes of the alerts read.",
    alerts_rejected: "Alerts that could not be read: no visit, no identifier, or damaged.",
    alerts_lost: "Alerts that retention or damage removed before they were read.",
    foreign_records: "Records of the service's topics that cannot be read: none of this program.",
    decisions_lost: "Records of decisions that retention or damage removed before they were read.",
    batches: "Batches filtered.",
    decode_cpu_ns: "Processor time of decoding columns, nanoseconds.",
    filter_cpu_ns: "Processor time of filters, nanoseconds.",
    matches: "Matches of filters.",
    filter_errors: "Alerts in which an operation of a filter failed.",
    filter_failures: "Batches in which a filter failed or did not run.",
    late: "Matches that came after their visit's end.",
    claims: "Alerts claimed for users without ORDER BY.",
    capped: "Matches without effect, as the user had 20 in the visit.",
    partials: "Partitions' parts in a visit's decision, written.",
    visits_decided: "Visits decided by this process as the publisher.",
    visits_abandoned: "Visits that were never decided, forgotten by the publisher.",
    results: "Results published.",
    result_bytes: "Bytes of the results published.",
    results_refused: "Results that the bus refused, such as a registry their schema: not sent.",
    results_without_packet: "Results whose packet was not in the log any more: references.",
    results_without_stamps: "Results whose stamps were not in the log any more: without them.",
    is_publisher: "Whether this process is the publisher: 1 or 0.",
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// The processor time of the calling thread.
pub(crate) fn processor_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_names() {
        let counters = Counters::default();
        add(&counters.matches, 3);
        let values = counters.values();
        assert!(values.contains(&("matches", "Matches of filters.", 3)), "{values:?}");
    }
}
