//! A journal in one process: records, start positions, claims, waiting.

use std::time::Duration;

use crate::support::HANG_TIMEOUT;
use helio_core::{Headers, ProducerName, Schema, SchemaId, Tai, TopicName, TraceId};
use helio_journal::{
    From, Item, Journal, JournalError, JournalOptions, MAX_SCHEMA_BYTES, Ownership, Reader, Record,
    Topic, TopicConfig, Wake, Writer, WriterOptions,
};

struct Site {
    dir: tempfile::TempDir,
    journal: Journal,
    topic: Topic,
}

fn site(config: &TopicConfig) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("j"), JournalOptions::default()).unwrap();
    let topic = journal.create_topic(&TopicName::new("a/b").unwrap(), config).unwrap();
    Site { dir, journal, topic }
}

fn options(name: &str, ownership: Ownership) -> WriterOptions {
    WriterOptions { producer: ProducerName::new(name).unwrap(), ownership }
}

fn writer(topic: &Topic, name: &str) -> Writer {
    topic.writer(0, &options(name, Ownership::Shared)).unwrap()
}

fn record(payload: &[u8], time: i64) -> Record<'_> {
    Record { payload, time: Tai::from_nanos(time), ..Record::default() }
}

fn drain(reader: &mut Reader) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(s) => out.push((s.offset, s.payload.to_vec())),
            Item::Gap(gap) => panic!("{gap:?}"),
        }
    }
    out
}

#[test]
fn a_record_comes_out_as_it_went_in() {
    let site = site(&TopicConfig::default());
    let mut reader = site.topic.reader(0, From::Latest).unwrap();
    let mut writer = writer(&site.topic, "me");
    let trace = Some(TraceId([7; 16]));
    let (key, payload, time) = (&b"k"[..], &b"hello"[..], Tai::from_nanos(5));
    let headers = Headers::new().with("helio-caller", b"me").unwrap();
    let headers = headers.as_ref();
    let full = Record { key, payload, time, schema: SchemaId(9), level: 3, trace, headers };
    assert_eq!(writer.append(&full).unwrap(), 0);
    assert_eq!(reader.lag(), 1);
    let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("no sample") };
    assert_eq!((s.offset, s.key, s.payload, s.trace), (0, key, payload, trace));
    assert_eq!(s.headers, headers);
    let header = s.header();
    assert_eq!(
        (header.sequence, header.time, header.schema, header.level),
        (1, time, SchemaId(9), 3)
    );
    assert_eq!(header.producer, *writer.producer());
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.offset(), 1);
}

#[test]
fn records_of_all_sizes_cross_many_segments() {
    let site = site(&TopicConfig::default());
    let mut writer = writer(&site.topic, "me");
    let sizes = [0, 1, 7, 8, 9, 1000, 5000, 20_000, 70_000, 3_000_000];
    let payloads: Vec<Vec<u8>> = (0..300).map(|i| vec![i as u8; sizes[i % sizes.len()]]).collect();
    let mut live = site.topic.reader(0, From::Earliest).unwrap();
    let mut seen = Vec::new();
    for (i, payload) in payloads.iter().enumerate() {
        assert_eq!(writer.append(&record(payload, i as i64)).unwrap(), i as u64);
        seen.extend(drain(&mut live));
    }
    let expected: Vec<_> = (0..).zip(payloads).collect();
    assert!(seen == expected);
    assert!(drain(&mut site.topic.reader(0, From::Earliest).unwrap()) == expected);
    for start in [0, 1, 7, 150, 299, 300] {
        let rest = drain(&mut site.topic.reader(0, From::Offset(start)).unwrap());
        assert!(rest == expected[start as usize..], "from offset {start}");
        let by_time = From::Time(Tai::from_nanos(start as i64));
        let rest = drain(&mut site.topic.reader(0, by_time).unwrap());
        assert!(rest == expected[start as usize..], "from time {start}");
    }
}

#[test]
fn many_small_records_are_found_by_offset_and_time() {
    let site = site(&TopicConfig::default());
    let mut writer = writer(&site.topic, "me");
    let bodies: Vec<[u8; 8]> = (0..50_000_u64).map(u64::to_le_bytes).collect();
    let records: Vec<_> =
        bodies.iter().enumerate().map(|(i, b)| record(b, i as i64 * 10)).collect();
    for (i, chunk) in records.chunks(100).enumerate() {
        let first = i as u64 * 100;
        let appended = writer.append_batch(chunk);
        assert!(appended.failed.is_none());
        assert_eq!(appended.offsets, first..first + 100);
    }
    for start in (0..50_000).step_by(997) {
        let mut reader = site.topic.reader(0, From::Offset(start)).unwrap();
        let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("no sample") };
        assert_eq!((s.offset, s.payload), (start, &start.to_le_bytes()[..]));
        let time = From::Time(Tai::from_nanos(start as i64 * 10 - 5));
        let mut reader = site.topic.reader(0, time).unwrap();
        let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("no sample") };
        assert_eq!(s.offset, start);
    }
}

#[test]
fn a_bell_wakes_the_thread_that_waits_for_many_readers() {
    let config = TopicConfig { partitions: 100, ..TopicConfig::default() };
    let site = site(&config);
    let bell = site.journal.bell().unwrap();
    let mut readers: Vec<_> =
        (0..100).map(|p| site.topic.reader(p, From::Latest).unwrap()).collect();
    let (topic, second) = (site.topic.clone(), site.journal.clone());
    let thread = std::thread::spawn(move || {
        let claim = topic.claim(&options("me", Ownership::Shared)).unwrap();
        let again = Journal::open(second.path(), JournalOptions::default()).unwrap();
        let _other_mapping = again.topic(topic.name()).unwrap();
        for round in 0..200_u32 {
            let mut writer = topic.writer_with(round * 7 % 100, &claim).unwrap();
            writer.append(&record(&round.to_le_bytes(), 0)).unwrap();
        }
    });
    let mut seen = 0;
    while seen < 200 {
        let got: usize = readers.iter_mut().map(|r| drain(r).len()).sum();
        seen += got;
        let ready = readers.iter_mut().filter_map(|r| r.arm(&bell).then_some(())).count();
        if ready == 0 && seen < 200 {
            assert_eq!(bell.wait(Some(HANG_TIMEOUT)), Wake::Rung);
        }
    }
    thread.join().unwrap();
    while bell.wait(Some(Duration::ZERO)) == Wake::Rung {}
    bell.ring();
    assert_eq!(bell.wait(None), Wake::Rung);
    assert_eq!(bell.wait(Some(Duration::from_millis(1))), Wake::TimedOut);
}

#[test]
fn a_newer_claim_fences_the_older_writer() {
    let site = site(&TopicConfig::default());
    let mut old = writer(&site.topic, "me");
    let mut other = writer(&site.topic, "other");
    old.append(&record(b"1", 0)).unwrap();
    let mut new = writer(&site.topic, "me");
    assert_eq!(new.producer().incarnation, old.producer().incarnation + 1);
    let refused = old.append(&record(b"2", 0)).unwrap_err().to_string();
    assert!(refused.contains("newer incarnation 2, this one is 1"), "{refused}");
    new.append(&record(b"3", 0)).unwrap();
    other.append(&record(b"4", 0)).unwrap();
    let all = drain(&mut site.topic.reader(0, From::Earliest).unwrap());
    let payloads: Vec<_> = all.iter().map(|(_, p)| &p[..]).collect();
    assert_eq!(payloads, [b"1", b"3", b"4"]);
}

#[test]
fn an_exclusive_topic_has_one_live_producer() {
    let site = site(&TopicConfig::default());
    let first = site.topic.writer(0, &options("me", Ownership::Exclusive)).unwrap();
    for name in ["me", "other"] {
        for ownership in [Ownership::Exclusive, Ownership::Shared] {
            let refused = site.topic.writer(0, &options(name, ownership)).unwrap_err();
            assert!(matches!(refused, JournalError::Claimed { .. }), "{refused}");
        }
    }
    drop(first);
    let second = site.topic.writer(0, &options("me", Ownership::Exclusive)).unwrap();
    assert_eq!(second.producer().incarnation, 2);
}

#[test]
fn topics_are_made_once_and_listed() {
    let site = site(&TopicConfig::default());
    let name = TopicName::new("a/b").unwrap();
    site.journal.create_topic(&name, &TopicConfig::default()).unwrap();
    let other = TopicConfig { partitions: 2, ..TopicConfig::default() };
    let refused = site.journal.create_topic(&name, &other).unwrap_err().to_string();
    assert_eq!(
        refused,
        "topic a/b exists with partitions = 1, asked for 2; use the existing value"
    );
    site.journal.create_topic(&TopicName::new("c").unwrap(), &other).unwrap();
    let names: Vec<_> =
        site.journal.topics().unwrap().into_iter().map(|t| t.name.to_string()).collect();
    assert_eq!(names, ["a/b", "c"]);
    assert!(site.journal.topic(&TopicName::new("none").unwrap()).unwrap().is_none());
    assert!(matches!(
        site.topic.reader(1, From::Latest).unwrap_err(),
        JournalError::NoPartition { .. }
    ));
}

fn wind(units: &str) -> (SchemaId, String) {
    let field = format!(r#"{{"name":"speed","type":"double","units":"{units}"}}"#);
    let text = format!(r#"{{"type":"record","name":"Wind","fields":[{field}]}}"#);
    (Schema::parse(&text).unwrap().id(), text)
}

#[test]
fn schemas_are_kept_by_id() {
    let site = site(&TopicConfig::default());
    let (metric, knots) = (wind("m/s"), wind("kn"));
    for text in ["{", "", r#"{"type":"recrod"}"#] {
        let error = site.journal.put_schema(metric.0, text).unwrap_err();
        assert!(matches!(error, JournalError::SchemaText { id, .. } if id == metric.0), "{error}");
        assert_eq!(site.journal.schema(metric.0).unwrap(), None);
    }
    for (id, text) in [&metric, &knots] {
        site.journal.put_schema(*id, text).unwrap();
        assert_eq!(site.journal.schema(*id).unwrap().as_ref(), Some(text));
    }
    assert_eq!(site.journal.schema(SchemaId(2)).unwrap(), None);
    let mut ids = [metric.0, knots.0];
    ids.sort();
    assert_eq!(site.journal.schemas().unwrap(), ids);
    let other = site.journal.put_schema(metric.0, &knots.1).unwrap_err().to_string();
    assert!(other.contains(&knots.0.to_string()) && other.contains(&metric.0.to_string()));
}

#[test]
fn an_edited_schema_is_refused_until_the_good_text_replaces_it() {
    let site = site(&TopicConfig::default());
    let (id, text) = wind("m/s");
    site.journal.put_schema(id, &text).unwrap();
    let path = site.dir.path().join(format!("j/schemas/{id}.avsc"));
    let described = text.replacen(r#""units""#, r#""description":"of the wind","units""#, 1);
    std::fs::write(&path, &described).unwrap();
    assert_eq!(site.journal.schema(id).unwrap(), Some(described), "it means the same");
    let cut = text[..text.len() / 2].to_owned().into_bytes();
    let long = [text.as_bytes(), &vec![b' '; MAX_SCHEMA_BYTES]].concat();
    let edits = [
        text.replace("m/s", "km/h").into_bytes(),
        text.replace("speed", "gusts").into_bytes(),
        text.replace("double", "float").into_bytes(),
        cut,
        vec![0xff; 8],
        Vec::new(),
        long,
    ];
    for edit in edits {
        std::fs::write(&path, &edit).unwrap();
        let error = site.journal.schema(id).unwrap_err();
        assert!(matches!(error, JournalError::SchemaEdited { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        // A text that is no better replaces nothing.
        site.journal.put_schema(id, "{").unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), edit);
        site.journal.put_schema(id, &text).unwrap();
        assert_eq!(site.journal.schema(id).unwrap().as_ref(), Some(&text));
    }
}
