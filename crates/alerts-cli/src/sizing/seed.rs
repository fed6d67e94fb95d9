//! Figures of DMTN-028 that contradict each other, with what its own figures give.

use serde::Serialize;

const KB: f64 = 1e3;
const MIB: f64 = 1_048_576.0;
/// A packet of the testbed, bytes; its calculation of memory has 135 KB.
const PACKET: f64 = 136.0 * KB;
const CADENCE_S: f64 = 39.0;

/// A figure, and what it should be.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Slip {
    pub(super) figure: &'static str,
    pub(super) stated: &'static str,
    pub(super) computed: String,
}

/// The slips, computed from the figures beside them in the note.
pub(super) fn slips() -> Vec<Slip> {
    let mib = |alerts: f64| alerts * PACKET / CADENCE_S / MIB;
    let slip = |figure, stated, computed| Slip { figure, stated, computed };
    let memory = 250.0 * 135.0 * KB * 30.0;
    let egress = 180_000.0 * 1024.0;
    // Producer, first consumer, Kafka and second consumer.
    let (others, second) = (1.97 + 23.7 / 1024.0 + 4.03, 2.01);
    vec![
        slip(
            "memory to buffer 30 s of 250 alerts/s of 135 KB",
            "10+ gigabytes",
            format!("{:.1} GB", memory / 1e9),
        ),
        slip(
            "180,000 KiB/s out of Kafka for 11 consumers",
            "180 Mbps",
            format!("{:.0} MB/s, {:.2} Gb/s", egress / 1e6, egress * 8.0 / 1e9),
        ),
        slip(
            "peak into Kafka, 10,000 alerts of 136 KB every 39 s",
            "23 MiB/s",
            format!("the mean alone is {:.1} MiB/s", mib(10_000.0)),
        ),
        slip(
            "network out of the second consumer, which only reads",
            "2.01 MiB/s",
            format!(
                "all containers would send {:.2} MiB/s, the cluster sent 6.5; with the first \
                 consumer's 23.7 KiB/s they send {:.2}",
                others + second,
                others + 23.7 / 1024.0
            ),
        ),
        slip(
            "mean into Kafka, 1,000 alerts of 136 KB every 39 s",
            "2.08 MiB/s",
            format!("{:.2} MiB/s, or packets of {:.0} KB", mib(1_000.0), {
                2.08 * MIB * CADENCE_S / 1_000.0 / KB
            }),
        ),
        slip(
            "100 producers of 100 alerts each take 5.9 s, one takes 1.29 s",
            "a small additional overhead",
            format!("{:.1} times as long for the same work of each", 5.9 / 1.29),
        ),
        slip(
            "most memory of Kafka on a machine of 30.5 GiB",
            "30.6 GiB",
            "30.5 GiB at most, page cache included".to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::slips;

    /// The figures that the corrections state, worked out by hand.
    #[test]
    fn slips_are_computed() {
        let computed: Vec<String> = slips().into_iter().map(|slip| slip.computed).collect();
        assert_eq!(computed[0], "1.0 GB");
        assert_eq!(computed[1], "184 MB/s, 1.47 Gb/s");
        assert_eq!(computed[2], "the mean alone is 33.3 MiB/s");
        assert!(computed[3].contains("8.03 MiB/s") && computed[3].contains("6.05"));
        assert_eq!(computed[4], "3.33 MiB/s, or packets of 85 KB");
        assert_eq!(computed[5], "4.6 times as long for the same work of each");
    }
}
