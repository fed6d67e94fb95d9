//! Schemas that change in mid-night, and stamps.

use helio_alert_export::{Compression, ExportOptions, Format, StampsChoice};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::layout::Layout;
use helio_alerts::producer::TopicLayout;
use helio_alerts::rubin::Version;

use crate::contents::{avro_datums, parquet_ids};
use crate::support::{DETECTORS, Stream, export, generator, parts, published, sorted};

#[test]
fn a_schema_that_changes_in_mid_night_is_another_file_of_avro_and_the_same_columns() {
    let mut stream = Stream::with(generator(Version::V9_0), TopicLayout::Inline);
    stream.publish(0, 0..DETECTORS);
    stream.close(0);
    let mut packets = stream.packets.clone();
    stream.change_schema(Version::LATEST);
    stream.publish(1, 0..DETECTORS);
    stream.close(0);
    packets.extend(stream.packets.drain());
    stream.packets = packets;
    let folder = stream.target("avro");
    let options = ExportOptions { format: Format::Avro, ..ExportOptions::default() };
    assert!(export(&stream, &folder, &options).is_equal());
    assert_eq!(parts(&folder, ".avro").len(), 2);
    let found = avro_datums(&folder);
    let of = |version| found.iter().filter(|(one, _)| *one == version).count();
    assert_eq!(of(Version::V9_0), of(Version::LATEST));
    let datums = found.into_iter().map(|(_, datum)| datum).collect();
    assert!(sorted(datums) == sorted(stream.packets.values().cloned().collect()));
    let folder = stream.target("parquet");
    assert!(export(&stream, &folder, &ExportOptions::default()).is_equal());
    assert_eq!(parts(&folder, ".parquet").len(), 1);
    assert_eq!(sorted(parquet_ids(&folder)), published(&stream));
}

#[test]
fn stamps_are_left_out_unless_they_are_wanted() {
    let options = GeneratorOptions {
        alerts_per_visit: 7,
        stamps: WithStamps::Fits,
        ..generator(Version::LATEST)
    };
    let mut stream = Stream::with(options, TopicLayout::Inline);
    stream.publish_night(1);
    let layout = Layout::new(Version::LATEST.schema());
    let mut whole: Vec<_> = stream.packets.values().cloned().collect();
    whole.sort();
    let mut metadata: Vec<Vec<u8>> = Vec::new();
    for packet in &whole {
        let mut datum = Vec::new();
        layout.split(packet, &mut datum).unwrap();
        metadata.push(datum);
    }
    let avro = |name: &str, stamps, compression| {
        let options =
            ExportOptions { format: Format::Avro, stamps, compression, ..ExportOptions::default() };
        let folder = stream.target(name);
        assert!(export(&stream, &folder, &options).is_equal());
        sorted(avro_datums(&folder).into_iter().map(|(_, datum)| datum).collect())
    };
    assert!(avro("none", StampsChoice::None, None) == sorted(metadata));
    assert!(avro("inline", StampsChoice::Inline, Some(Compression::Snappy)) == whole);
    let parquet = |name: &str, stamps| {
        let folder = stream.target(name);
        let options = ExportOptions { stamps, ..ExportOptions::default() };
        assert!(export(&stream, &folder, &options).is_equal());
        parts(&folder, ".parquet").remove(0).len()
    };
    let (none, inline) =
        (parquet("p-none", StampsChoice::None), parquet("p", StampsChoice::Inline));
    assert!(inline > none + 7 * 20_000, "{none} {inline}");
}

#[test]
fn stamps_of_a_topic_of_their_own_are_put_back() {
    let options = GeneratorOptions {
        alerts_per_visit: 30,
        stamps: WithStamps::Fits,
        ..generator(Version::LATEST)
    };
    let layout = TopicLayout::Split(helio_alerts::stamps::Packing::ShuffleZstd);
    let mut stream = Stream::with(options, layout);
    stream.publish_night(2);
    let folder = stream.target("whole");
    let options = ExportOptions {
        format: Format::Avro,
        stamps: StampsChoice::Inline,
        part_bytes: 1 << 20,
        ..ExportOptions::default()
    };
    let outcome = export(&stream, &folder, &options);
    assert!(outcome.is_equal(), "{outcome:?}");
    let found = avro_datums(&folder).into_iter().map(|(_, datum)| datum).collect();
    assert!(sorted(found) == sorted(stream.packets.values().cloned().collect()));
    let bare = ExportOptions { stamps: StampsChoice::None, ..options };
    let outcome = export(&stream, &stream.target("bare"), &bare);
    assert!(outcome.is_equal() && outcome.totals.bytes < 60 * 10_000, "{:?}", outcome.totals);
}
