//! Retention by bytes, by age, and of the newest record of each key; the rest becomes a gap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use helio_core::{Headers, ProducerName, Tai, TopicName};
use helio_journal::{
    From, Gap, GapCause, Item, Journal, JournalOptions, LastValue, Maintenance, Ownership, Reader,
    Record, Topic, TopicConfig, Writer, WriterOptions,
};

struct Site {
    dir: tempfile::TempDir,
    now: Arc<AtomicI64>,
    journal: Journal,
    topic: Topic,
}

fn site(config: &TopicConfig) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let options = JournalOptions {
        maintenance: Maintenance::Manual,
        clock: Arc::new(move || Tai::from_nanos(clock.load(SeqCst))),
        ..JournalOptions::default()
    };
    let journal = Journal::open(&dir.path().join("j"), options).unwrap();
    let topic = journal.create_topic(&TopicName::new("t").unwrap(), config).unwrap();
    Site { dir, now, journal, topic }
}

fn writer(topic: &Topic) -> Writer {
    let producer = ProducerName::new("me").unwrap();
    topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared }).unwrap()
}

fn forget(bytes: u64) -> TopicConfig {
    TopicConfig {
        segment_bytes: 16 << 10,
        retention_bytes: Some(bytes),
        last_value: LastValue::Forget,
        ..TopicConfig::default()
    }
}

fn append(writer: &mut Writer, key: u64, time: i64) -> u64 {
    let (key, time) = (key.to_le_bytes(), Tai::from_nanos(time));
    writer.append(&Record { key: &key, payload: &[1; 900], time, ..Record::default() }).unwrap()
}

/// Offsets read, and gaps.
fn drain(reader: &mut Reader) -> (Vec<u64>, Vec<Gap>) {
    let (mut offsets, mut gaps) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(s) => offsets.push(s.offset),
            Item::Gap(gap) => gaps.push(gap),
        }
    }
    (offsets, gaps)
}

fn folder_bytes(site: &Site) -> u64 {
    let folder = site.dir.path().join("j/topics/t/0");
    let sizes = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    sizes.sum()
}

#[test]
fn bytes_are_bounded_and_a_slow_reader_is_told() {
    let site = site(&forget(64 << 10));
    let mut writer = writer(&site.topic);
    let mut slow = site.topic.reader(0, From::Earliest).unwrap();
    assert_eq!(append(&mut writer, 0, 0), 0);
    assert!(matches!(slow.next().unwrap(), Some(Item::Sample(s)) if s.offset == 0));
    for _ in 1..1000 {
        append(&mut writer, 0, 0);
        site.journal.maintain();
    }
    let first = site.topic.info(0).unwrap().first_offset;
    assert!(first > 900, "{first}");
    assert!(folder_bytes(&site) < 160 << 10, "{}", folder_bytes(&site));
    let (offsets, gaps) = drain(&mut slow);
    let cause = GapCause::Retention;
    let from = offsets.iter().copied().find(|o| *o >= first).unwrap();
    assert_eq!(from, first);
    // Its segment stays readable for it; the ones behind are gone.
    let held = offsets.iter().take_while(|o| **o < first).count() as u64;
    assert_eq!(gaps, [Gap { from: held + 1, to: first, cause }]);
    assert_eq!(offsets.len() as u64, 999 - (first - held - 1));
    let (offsets, gaps) = drain(&mut site.topic.reader(0, From::Earliest).unwrap());
    assert_eq!((offsets, gaps), ((first..1000).collect(), vec![]));
    let (offsets, gaps) = drain(&mut site.topic.reader(0, From::Offset(10)).unwrap());
    assert_eq!(
        (offsets, gaps),
        ((first..1000).collect(), vec![Gap { from: 10, to: first, cause }])
    );
}

#[test]
fn age_ends_records_of_a_quiet_topic_too() {
    let config = TopicConfig { retention_bytes: None, retention_age_ns: Some(100), ..forget(1) };
    let site = site(&config);
    let mut writer = writer(&site.topic);
    (0..50).for_each(|t| {
        append(&mut writer, 0, t);
    });
    site.now.store(120, SeqCst);
    site.journal.maintain();
    let kept = drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0;
    assert!(kept.len() > 15 && kept.ends_with(&[49]), "{kept:?}");
    site.now.store(200, SeqCst);
    site.journal.maintain();
    assert_eq!(drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0, [0; 0]);
    assert_eq!(append(&mut writer, 0, 200), 50);
    assert_eq!(drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0, [50]);
}

#[test]
fn the_newest_of_each_key_outlives_retention() {
    let config = TopicConfig { last_value: LastValue::Keep, ..forget(64 << 10) };
    let site = site(&config);
    let mut writer = writer(&site.topic);
    let mut newest = BTreeMap::new();
    let mut late = Vec::new();
    for i in 0..3000_u64 {
        // Keys 0 to 19 are written once or rarely, the others all the time.
        let key = if i < 20 {
            i
        } else if i % 611 == 0 {
            i % 20
        } else {
            20 + i % 7
        };
        newest.insert(key, append(&mut writer, key, i as i64));
        if i % 37 == 0 {
            site.journal.maintain();
        }
        if i % 500 == 0 {
            late.push(site.topic.reader(0, From::Latest).unwrap());
        }
    }
    site.journal.maintain();
    let mut expected: Vec<_> = newest.values().copied().collect();
    expected.sort_unstable();
    let last = drain(&mut site.topic.reader(0, From::LastPerKey(1)).unwrap());
    assert_eq!(last, (expected.clone(), vec![]));
    assert!(folder_bytes(&site) < 250 << 10, "{}", folder_bytes(&site));
    let (all, gaps) = drain(&mut site.topic.reader(0, From::Earliest).unwrap());
    assert!(all.is_sorted() && expected.iter().all(|o| all.contains(o)), "{all:?}");
    assert_eq!(gaps, []);
    for (i, reader) in late.iter_mut().enumerate() {
        let (offsets, gaps) = drain(reader);
        let lost: u64 = gaps.iter().map(|g| g.to - g.from).sum();
        assert_eq!(offsets.len() as u64 + lost, 3000 - i as u64 * 500 - 1, "reader {i}");
        assert!(offsets.is_sorted() && gaps.iter().all(|g| g.cause == GapCause::Retention));
    }
}

#[test]
fn an_owner_compacts_below_a_point_of_its_own() {
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    let site = site(&config);
    let mut writer = writer(&site.topic);
    (0..500).for_each(|i| {
        append(&mut writer, i % 10, i as i64);
    });
    site.topic.compact_below(0, 300).unwrap();
    let all = drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0;
    assert!(all.contains(&300) && all.ends_with(&[499]) && !all.contains(&250), "{all:?}");
    let last = drain(&mut site.topic.reader(0, From::LastPerKey(1)).unwrap()).0;
    assert_eq!(last, (490..500).collect::<Vec<_>>());
    (0..3).for_each(|i| {
        append(&mut writer, i, 0);
    });
    let last = drain(&mut site.topic.reader(0, From::LastPerKey(2)).unwrap()).0;
    assert_eq!(last, (483..503).collect::<Vec<_>>());
}

#[test]
fn compaction_keeps_the_headers_of_last_values() {
    let config = TopicConfig { last_value: LastValue::Keep, ..forget(64 << 10) };
    let site = site(&config);
    let mut writer = writer(&site.topic);
    let headers = |key: u64| match key % 2 {
        0 => Headers::new().with("key", key.to_le_bytes()).unwrap(),
        _ => Headers::new(),
    };
    for key in 0_u64..40 {
        let (key, headers) = (key.to_le_bytes(), headers(key));
        let record = Record { key: &key, headers: headers.as_ref(), ..Record::default() };
        writer.append(&record).unwrap();
    }
    for n in 0..400 {
        append(&mut writer, 40, n);
    }
    site.journal.maintain();
    let kept = drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0;
    assert!(kept.len() < 300 && kept[..40] == Vec::from_iter(0..40), "not compacted: {kept:?}");
    let mut last = site.topic.reader(0, From::LastPerKey(1)).unwrap();
    for key in 0..40_u64 {
        let Some(Item::Sample(s)) = last.next().unwrap() else { panic!("key {key}") };
        assert_eq!((s.key, s.headers), (&key.to_le_bytes()[..], headers(key).as_ref()));
    }
}
