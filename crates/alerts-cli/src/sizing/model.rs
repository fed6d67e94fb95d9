//! What a deployment needs, from the bytes of a packet.

use serde::Serialize;

use super::measure::{Content, Packets};
use crate::args::SizingArgs;

/// Detectors of the camera, each with a producer.
pub(super) const DETECTORS: u64 = 189;
/// Partitions of a broker, times brokers and copies, above which latency grows: Kafka's rule.
const PARTITIONS_RULE: u64 = 100;
/// How long what was published is to be read from memory.
const CACHE_S: f64 = 60.0;
/// Groups of the testbed's experiments.
const GROUPS: [u64; 4] = [2, 4, 6, 11];
const DAYS: [u64; 4] = [1, 7, 14, 30];
pub(super) const PARTITIONS: [u64; 6] = [1, 8, 16, 32, 64, 128];

/// How a stream is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Published {
    Inline,
    InlineZstd,
    Split,
    Metadata,
}

impl Published {
    pub(super) const ALL: [Self; 4] = [Self::Inline, Self::InlineZstd, Self::Split, Self::Metadata];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inline => "stamps inline",
            Self::InlineZstd => "stamps inline, zstd",
            Self::Split => "stamps split, packed",
            Self::Metadata => "no stamps",
        }
    }

    /// The bytes of an alert.
    fn bytes(self, packets: &[Packets]) -> f64 {
        let find = |content| packets.iter().find(|one| one.content == content);
        let of = |content, bytes: fn(&Packets) -> f64| find(content).map_or(0.0, bytes);
        match self {
            Self::Inline => of(Content::Whole, |one| one.bytes),
            Self::InlineZstd => of(Content::Whole, |one| one.zstd),
            Self::Split => {
                Self::Metadata.bytes(packets) + of(Content::PackedStamps, |one| one.bytes)
            }
            Self::Metadata => of(Content::WithoutStamps, |one| one.bytes),
        }
    }
}

/// The rates of a stream.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Stream {
    pub(super) published: Published,
    pub(super) alert_bytes: f64,
    pub(super) visit_bytes: f64,
    pub(super) mean_bytes_per_s: f64,
    pub(super) burst_bytes_per_s: f64,
    pub(super) night_bytes: f64,
}

/// What brokers send to groups that read all.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Egress {
    pub(super) groups: u64,
    pub(super) inline_mean_bytes_per_s: f64,
    pub(super) inline_burst_bytes_per_s: f64,
    pub(super) metadata_mean_bytes_per_s: f64,
    pub(super) metadata_burst_bytes_per_s: f64,
}

/// The disk of all brokers.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Disk {
    pub(super) days: u64,
    /// By [`Published::ALL`], all copies.
    pub(super) bytes: Vec<f64>,
}

/// How long a group reads again what was published.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rewind {
    pub(super) days: u64,
    pub(super) bytes: f64,
    /// By [`PARTITIONS`].
    pub(super) seconds: Vec<f64>,
}

/// What each of so many brokers carries, stamps inline.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Broker {
    pub(super) brokers: u64,
    pub(super) replication: u64,
    pub(super) partitions: f64,
    pub(super) most_partitions: u64,
    pub(super) disk_bytes: f64,
    pub(super) cache_bytes: f64,
    pub(super) in_burst_bytes_per_s: f64,
    pub(super) out_burst_bytes_per_s: f64,
}

/// All that is computed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Needs {
    pub(super) streams: Vec<Stream>,
    pub(super) egress: Vec<Egress>,
    pub(super) disk: Vec<Disk>,
    pub(super) rewind: Vec<Rewind>,
    pub(super) brokers: Vec<Broker>,
}

impl Needs {
    pub(super) fn of(args: &SizingArgs, packets: &[Packets]) -> Self {
        let stream = |published: Published| Stream::of(args, published, packets);
        let streams: Vec<Stream> = Published::ALL.map(stream).into();
        let (inline, metadata) = (stream(Published::Inline), stream(Published::Metadata));
        let groups = with(&GROUPS, args.groups);
        let days = with(&DAYS, args.days);
        let brokers = [args.brokers, 2 * args.brokers, 4 * args.brokers];
        let rewind = |days: &u64| Rewind::of(args, *days, inline.night_bytes);
        Self {
            egress: groups.iter().map(|groups| Egress::of(*groups, &inline, &metadata)).collect(),
            disk: days.iter().map(|days| Disk::of(args, *days, &streams)).collect(),
            rewind: days.iter().map(rewind).collect(),
            brokers: brokers.map(|brokers| Broker::of(args, brokers, &inline)).into(),
            streams,
        }
    }
}

/// A row for each of these, and for what was asked.
fn with(known: &[u64], asked: u64) -> Vec<u64> {
    let mut all = known.to_vec();
    all.push(asked);
    all.sort_unstable();
    all.dedup();
    all
}

impl Stream {
    fn of(args: &SizingArgs, published: Published, packets: &[Packets]) -> Self {
        let alert_bytes = published.bytes(packets);
        let visit_bytes = alert_bytes * args.alerts as f64;
        Self {
            published,
            alert_bytes,
            visit_bytes,
            mean_bytes_per_s: visit_bytes / args.cadence.as_secs_f64(),
            burst_bytes_per_s: visit_bytes / args.burst.as_secs_f64(),
            night_bytes: visit_bytes * args.visits as f64,
        }
    }
}

impl Egress {
    fn of(groups: u64, inline: &Stream, metadata: &Stream) -> Self {
        let all = |bytes_per_s: f64| bytes_per_s * groups as f64;
        Self {
            groups,
            inline_mean_bytes_per_s: all(inline.mean_bytes_per_s),
            inline_burst_bytes_per_s: all(inline.burst_bytes_per_s),
            metadata_mean_bytes_per_s: all(metadata.mean_bytes_per_s),
            metadata_burst_bytes_per_s: all(metadata.burst_bytes_per_s),
        }
    }
}

impl Disk {
    fn of(args: &SizingArgs, days: u64, streams: &[Stream]) -> Self {
        let copies = (days * args.replication) as f64;
        Self { days, bytes: streams.iter().map(|stream| stream.night_bytes * copies).collect() }
    }
}

impl Rewind {
    fn of(args: &SizingArgs, days: u64, night_bytes: f64) -> Self {
        let bytes = night_bytes * days as f64;
        let (member, network) = (args.member_rate as f64, args.network_rate as f64);
        let seconds = |partitions: u64| bytes / (member * partitions as f64).min(network);
        Self { days, bytes, seconds: PARTITIONS.map(seconds).into() }
    }
}

impl Broker {
    fn of(args: &SizingArgs, brokers: u64, inline: &Stream) -> Self {
        let (copies, share) = (args.replication as f64, 1.0 / brokers as f64);
        // A leader sends each byte to the groups, and to the other copies.
        let readers = args.groups as f64 + copies - 1.0;
        Self {
            brokers,
            replication: args.replication,
            partitions: (DETECTORS * args.replication) as f64 * share,
            most_partitions: PARTITIONS_RULE * brokers * args.replication,
            disk_bytes: inline.night_bytes * args.days as f64 * copies * share,
            cache_bytes: inline.mean_bytes_per_s * CACHE_S * copies * share,
            in_burst_bytes_per_s: inline.burst_bytes_per_s * copies * share,
            out_burst_bytes_per_s: inline.burst_bytes_per_s * readers * share,
        }
    }
}
