//! Bytes of generated packets, as they are and compressed as Kafka's clients compress batches.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::Layout;
use helio_alerts::stamps::{Packing, SharedParts, pack, pack_shared};
use helio_console::error::{CliError, CliResult};
use helio_console::out::Progress;
use serde::Serialize;

/// Bytes of a batch: the default of librdkafka's `batch.size`. A codec sees one batch at a time.
const BATCH_BYTES: usize = 1_000_000;
/// Bytes of Confluent's frame.
const FRAME_BYTES: usize = 5;
/// The default levels of Kafka's producers.
const ZSTD_LEVEL: i32 = 3;

/// What packets contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// Stamps, and the past of a survey.
    Whole,
    /// Stamps, and no past.
    WithoutHistory,
    /// The past of a survey, and no stamps.
    WithoutStamps,
    /// A past of 100 detections and 100 forced measurements, and no stamps.
    LongHistory,
    /// The stamps alone, packed as `produce --layout split-packed` publishes them.
    PackedStamps,
}

/// Bytes of packets: means of one packet.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Packets {
    pub(super) content: Content,
    pub(super) alerts: usize,
    pub(super) bytes: f64,
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) snappy: f64,
    pub(super) gzip: f64,
    pub(super) zstd: f64,
}

impl Content {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "with stamps and history",
            Self::WithoutHistory => "with stamps, new objects only",
            Self::WithoutStamps => "without stamps",
            Self::LongHistory => "without stamps, 100 points of history",
            Self::PackedStamps => "stamps alone, packed",
        }
    }
}

/// Generates the alerts of some detectors, and measures them.
pub(super) fn measure(detectors: u16) -> CliResult<Vec<Packets>> {
    let mut progress = Progress::new();
    let mut found = Vec::new();
    for (content, history, stamps) in [
        (Content::Whole, History::Drawn, WithStamps::Fits),
        (Content::WithoutHistory, History::None, WithStamps::Fits),
        (Content::WithoutStamps, History::Drawn, WithStamps::None),
        (Content::LongHistory, History::Points(100), WithStamps::None),
    ] {
        progress.show(|| format!("packets {}", content.name()));
        let options = GeneratorOptions { history, stamps, ..GeneratorOptions::default() };
        let ccds = generate(options, detectors);
        found.push(Packets::of(content, &ccds.concat(), FRAME_BYTES)?);
        if content == Content::Whole {
            let layout = Layout::new(options.version.schema());
            let ccds: CliResult<Vec<_>> = ccds.iter().map(|ccd| packed(&layout, ccd)).collect();
            let alerts = ccds.as_ref().map_or(0, |ccds| ccds.iter().map(|(n, _)| n).sum());
            let samples = ccds?.into_iter().flat_map(|(_, samples)| samples).collect::<Vec<_>>();
            let packed = Packets::of(Content::PackedStamps, &samples, 0)?;
            found.push(packed.shared_by(samples.len(), alerts));
        }
    }
    Ok(found)
}

/// The packets of each detector, in the first visit.
fn generate(options: GeneratorOptions, detectors: u16) -> Vec<Vec<Vec<u8>>> {
    let mut generator = Generator::new(options);
    let mut packet = |detector, number| {
        let mut datum = Vec::new();
        generator.write(AlertNumber { visit: 0, detector, number }, &mut datum);
        datum
    };
    let counts = Generator::new(options);
    let ccd = |detector| (0..counts.alerts(detector)).map(|n| packet(detector, n)).collect();
    (0..detectors).map(ccd).collect()
}

/// The number of a detector's alerts, and the samples of their stamps, the shared ones among them.
fn packed(layout: &Layout, packets: &[Vec<u8>]) -> CliResult<(usize, Vec<Vec<u8>>)> {
    let wrong = |error: &dyn std::fmt::Display| CliError::Failure(error.to_string());
    let mut metadata = Vec::new();
    let mut stamps = Vec::new();
    let mut shared = SharedParts::default();
    for packet in packets {
        let found = layout.split(packet, &mut metadata).map_err(|error| wrong(&error))?;
        shared.count(&found);
        stamps.push(found);
    }
    let (mut samples, mut known) = (Vec::new(), std::collections::BTreeSet::new());
    for found in &stamps {
        for (hash, part) in shared.of(found) {
            if known.insert(hash) {
                let mut sample = Vec::new();
                let done = pack_shared(part, Packing::ShuffleZstd, &mut sample);
                done.map_err(|error| wrong(&error))?;
                samples.push(sample);
            }
        }
        let mut sample = Vec::new();
        let done = pack(1, found, &shared, Packing::ShuffleZstd, &mut sample);
        done.map_err(|error| wrong(&error))?;
        samples.push(sample);
    }
    Ok((packets.len(), samples))
}

impl Packets {
    fn of(content: Content, packets: &[Vec<u8>], frame: usize) -> CliResult<Self> {
        let sizes = packets.iter().map(|packet| packet.len() + frame);
        let batches = batches(packets, frame);
        let a_packet = |bytes: usize| bytes as f64 / packets.len() as f64;
        let sum = |codec: fn(&[u8]) -> CliResult<usize>| -> CliResult<f64> {
            let sizes: CliResult<Vec<usize>> = batches.iter().map(|batch| codec(batch)).collect();
            Ok(a_packet(sizes?.iter().sum()))
        };
        Ok(Self {
            content,
            alerts: packets.len(),
            bytes: a_packet(sizes.clone().sum()),
            least: sizes.clone().min().unwrap_or(0),
            most: sizes.max().unwrap_or(0),
            snappy: sum(snappy)?,
            gzip: sum(gzip)?,
            zstd: sum(zstd)?,
        })
    }

    /// Of samples that stand for fewer alerts.
    fn shared_by(self, samples: usize, alerts: usize) -> Self {
        let scale = samples as f64 / alerts as f64;
        Self {
            alerts,
            bytes: self.bytes * scale,
            snappy: self.snappy * scale,
            gzip: self.gzip * scale,
            zstd: self.zstd * scale,
            ..self
        }
    }
}

/// Framed packets in batches: what a codec of Kafka sees at once.
fn batches(packets: &[Vec<u8>], frame: usize) -> Vec<Vec<u8>> {
    let mut batches = vec![Vec::new()];
    for packet in packets {
        let is_full =
            |batch: &Vec<u8>| !batch.is_empty() && batch.len() + frame + packet.len() > BATCH_BYTES;
        if batches.last().is_some_and(is_full) {
            batches.push(Vec::new());
        }
        if let Some(batch) = batches.last_mut() {
            // Schema 11.1.
            batch.extend(&[0, 0, 0, 4, 0x4d][..frame]);
            batch.extend(packet);
        }
    }
    batches
}

fn snappy(batch: &[u8]) -> CliResult<usize> {
    let packed = snap::raw::Encoder::new().compress_vec(batch);
    packed.map(|packed| packed.len()).map_err(|error| CliError::Failure(error.to_string()))
}

fn gzip(batch: &[u8]) -> CliResult<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(batch).and_then(|()| encoder.finish());
    packed.map(|packed| packed.len()).map_err(|error| CliError::Failure(error.to_string()))
}

fn zstd(batch: &[u8]) -> CliResult<usize> {
    let packed = zstd::bulk::compress(batch, ZSTD_LEVEL);
    packed.map(|packed| packed.len()).map_err(|error| CliError::Failure(error.to_string()))
}
