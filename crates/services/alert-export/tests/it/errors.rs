//! Options and targets that an export refuses.

use std::path::Path;

use helio_alert_export::{
    Compression, Export, ExportError, ExportOptions, Format, Job, Observer, Progress, StampsChoice,
};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::producer::TopicLayout;
use helio_alerts::rubin::Version;
use helio_alerts::stamps::Packing;
use helio_alerts::topics::Part;
use helio_bus::Bus;
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_core::TopicName;

use crate::contents::avro_datums;
use crate::support::{Stream, TOPIC, export, generator, job};

fn refused(stream: &Stream, folder: &Path, options: ExportOptions) -> String {
    Export::open(&stream.bus, job(folder), options).map(drop).unwrap_err().to_string()
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let mut stream = Stream::new();
    stream.publish_night(2);
    let folder = stream.target("night");
    export(&stream, &folder, &ExportOptions::default());
    let avro = ExportOptions { format: Format::Avro, ..ExportOptions::default() };
    let error = refused(&stream, &folder, avro.clone());
    assert!(error.contains("with the format parquet, not avro; repeat its options"), "{error}");
    let columns = Some(vec!["diaSource.ra".to_owned()]);
    let error =
        refused(&stream, &folder, ExportOptions { columns: columns.clone(), ..avro.clone() });
    assert!(error.contains("Avro files have whole packets"), "{error}");
    let error =
        refused(&stream, &folder, ExportOptions { compression: Some(Compression::Zstd), ..avro });
    assert!(error.contains("deflate, snappy or none"), "{error}");
    let columns = Some(vec!["diaSource.raa".to_owned()]);
    let options = ExportOptions { columns, ..ExportOptions::default() };
    let error = refused(&stream, &stream.target("columns"), options);
    assert!(error.starts_with("the columns: ") && error.contains("diaSource.raa"), "{error}");
    let job = Job { topic: "none".to_owned(), ..job(&folder) };
    assert!(Export::open(&stream.bus, job, ExportOptions::default()).is_err());
}

#[test]
fn a_folder_with_other_files_is_refused() {
    let mut stream = Stream::new();
    stream.publish_night(1);
    let folder = stream.target("other");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("thesis.tex"), "x").unwrap();
    let error = refused(&stream, &folder, ExportOptions::default());
    assert!(error.ends_with("name an empty or new folder"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn damage_to_the_target_is_found() {
    let mut stream = Stream::new();
    stream.publish_night(2);
    let folder = stream.target("night");
    let options = ExportOptions::default();
    export(&stream, &folder, &options);
    let part = folder.join("alerts-00001.parquet");
    let bytes = std::fs::read(&part).unwrap();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        std::fs::write(&part, &bytes).unwrap();
        let opened = Export::open(&stream.bus, job(&folder), options.clone());
        opened.and_then(|mut export| export.run(&mut ())).unwrap_err().to_string()
    };
    let error = damaged(&|bytes| bytes.truncate(100));
    assert!(error.contains("the file has 100 bytes, not the"), "{error}");
    let error = damaged(&|bytes| bytes[200] ^= 1);
    assert!(error.contains("its hash is another; restore the file"), "{error}");
    std::fs::remove_file(&part).unwrap();
    let error = refused(&stream, &folder, options.clone());
    assert!(error.contains("alerts-00001.parquet"), "{error}");
    std::fs::write(&part, &bytes).unwrap();
    let manifest = folder.join("export.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen("\"rows\"", "\"raws\"", 1)).unwrap();
    let error = refused(&stream, &folder, options.clone());
    assert!(error.contains("the manifest is damaged"), "{error}");
    std::fs::write(&manifest, text).unwrap();
    // What a killed process leaves is removed; files of others are not.
    std::fs::write(folder.join("alerts-00002.parquet"), "x").unwrap();
    std::fs::write(folder.join("alerts-00003.parquet.tmp"), "x").unwrap();
    std::fs::write(folder.join("notes.txt"), "x").unwrap();
    export(&stream, &folder, &options);
    let names: Vec<_> = crate::support::files(&folder).into_keys().collect();
    assert_eq!(names, ["alerts-00001.parquet", "export.json", "notes.txt"]);
}

/// Opens another export of the folder while one runs.
struct Second<'s>(&'s Stream, &'s Path, Option<ExportError>);

impl Observer for Second<'_> {
    fn progress(&mut self, _: &Progress) {
        let second = Export::open(&self.0.bus, job(self.1), ExportOptions::default());
        self.2 = second.map(drop).err();
    }
}

#[test]
fn a_folder_has_one_export_at_a_time() {
    let mut stream = Stream::new();
    stream.publish_night(1);
    let folder = stream.target("night");
    let mut export = Export::open(&stream.bus, job(&folder), ExportOptions::default()).unwrap();
    let mut second = Second(&stream, &folder, None);
    assert!(export.run(&mut second).unwrap().is_equal());
    assert!(matches!(second.2, Some(ExportError::Locked(_))));
}

/// Breaks a topic after the first batch.
struct Breaking<'s>(&'s Cable, &'s TopicName);

impl Observer for Breaking<'_> {
    fn progress(&mut self, _: &Progress) {
        self.0.break_topic(self.1);
    }
}

/// Rows are not left out for good because of an engine that fails for a while.
#[test]
fn stamps_that_cannot_be_read_for_a_while_fail_the_export_and_it_resumes() {
    let options = GeneratorOptions { stamps: WithStamps::Fits, ..generator(Version::LATEST) };
    let mut stream = Stream::with(options, TopicLayout::Split(Packing::Plain));
    stream.publish_night(1);
    let url = format!("journal:{}/bus", stream.folder.path().display());
    let faults = FaultTransport::connect(&url, FaultPlan::default()).unwrap();
    let cable = faults.cable();
    let bus = Bus::builder().producer("export").over(faults).unwrap();
    let folder = stream.target("night");
    let options = ExportOptions {
        format: Format::Avro,
        stamps: StampsChoice::Inline,
        batch_alerts: 1,
        ..ExportOptions::default()
    };
    let stamps = Part::Stamps.name(TOPIC).unwrap();
    let mut first = Export::open(&bus, job(&folder), options.clone()).unwrap();
    let mut breaking = Breaking(&cable, &stamps);
    let error = first.run(&mut breaking).unwrap_err();
    assert!(matches!(&error, ExportError::Stamps(_)), "{error}");
    drop(first);
    cable.mend_topic(&stamps);
    let outcome = Export::open(&bus, job(&folder), options).unwrap().run(&mut ()).unwrap();
    assert!(outcome.is_equal(), "{outcome:?}");
    let mut written: Vec<_> = avro_datums(&folder).into_iter().map(|(_, datum)| datum).collect();
    written.sort();
    let mut expected: Vec<_> = stream.packets.values().cloned().collect();
    expected.sort();
    assert!(written == expected, "{} of {}", written.len(), expected.len());
}
