//! Retention by bytes, by age, and of the newest record of each key; the rest becomes a gap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use helio_core::{Headers, ProducerName, Tai, TopicName};
use helio_journal::{
    Budget, From, Gap, GapCause, Item, Journal, JournalError, JournalOptions, LastValue,
    Maintenance, Ownership, Reader, Record, Topic, TopicConfig, Writer, WriterOptions,
};

struct Site {
    dir: tempfile::TempDir,
    /// The machine's uptime in nanoseconds.
    uptime: Arc<AtomicU64>,
    journal: Journal,
    topic: Topic,
}

fn site(config: &TopicConfig) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let uptime = Arc::new(AtomicU64::new(0));
    let journal = Journal::open(&dir.path().join("j"), options(&uptime, 1)).unwrap();
    let topic = journal.create_topic(&name(), config).unwrap();
    Site { dir, uptime, journal, topic }
}

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

/// The time of day of the tests.
const NOW: i64 = 1_000 * HOUR as i64;
const HOUR: u64 = 3_600_000_000_000;

fn options(uptime: &Arc<AtomicU64>, boot: u8) -> JournalOptions {
    let uptime = Arc::clone(uptime);
    JournalOptions {
        maintenance: Maintenance::Manual,
        clock: Arc::new(|| Tai::from_nanos(NOW)),
        uptime: Arc::new(move || Duration::from_nanos(uptime.load(SeqCst))),
        boot_id: Some([boot; 16]),
        ..JournalOptions::default()
    }
}

/// Lets the journal run for a time, with maintenance every minute.
fn run(site: &Site, nanos: u64) {
    let end = site.uptime.load(SeqCst) + nanos;
    while site.uptime.load(SeqCst) < end {
        let next = site.uptime.load(SeqCst) + HOUR / 60;
        site.uptime.store(next.min(end), SeqCst);
        site.journal.maintain();
    }
}

fn kept(site: &Site) -> Vec<u64> {
    drain(&mut site.topic.reader(0, From::Earliest).unwrap()).0
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

fn fill(writer: &mut Writer, count: i64) {
    for time in 0..count {
        append(writer, 0, time);
    }
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

/// Where a segment's seal is lost, and the next one, its end is not known.
#[test]
fn bytes_are_bounded_behind_a_lost_seal_and_segment() {
    let Site { dir, uptime, journal, topic } = site(&forget(64 << 10));
    fill(&mut writer(&topic), 60);
    drop((topic, journal));
    let segment = |seq: u64| dir.path().join(format!("j/topics/t/0/{seq:016}.seg"));
    assert!(segment(3).exists());
    let mut bytes = std::fs::read(segment(1)).unwrap();
    bytes[128..160].fill(0);
    std::fs::write(segment(1), bytes).unwrap();
    std::fs::remove_file(segment(2)).unwrap();
    let journal = Journal::open(&dir.path().join("j"), options(&uptime, 2)).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    assert_eq!(drain(&mut topic.reader(0, From::Earliest).unwrap()).0[0], 0);
    fill(&mut writer(&topic), 300);
    journal.maintain();
    let site = Site { dir, uptime, journal, topic };
    assert!(folder_bytes(&site) < 128 << 10, "{}", folder_bytes(&site));
    assert_eq!(kept(&site).last(), Some(&359));
}

#[test]
fn age_ends_records_of_a_quiet_topic_too() {
    let config = TopicConfig { retention_bytes: None, retention_age_ns: Some(100), ..forget(1) };
    let site = site(&config);
    let mut writer = writer(&site.topic);
    (0..50).for_each(|t| {
        append(&mut writer, 0, t);
    });
    run(&site, 11);
    assert_eq!(kept(&site).len(), 50, "a tenth of the age closes the last segment");
    run(&site, 90);
    let last = kept(&site);
    assert!(last.len() < 17 && last.ends_with(&[49]), "{last:?}");
    run(&site, 11);
    assert_eq!(kept(&site), [0; 0]);
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

fn aged(age: u64) -> TopicConfig {
    TopicConfig { retention_bytes: None, retention_age_ns: Some(age), ..forget(1) }
}

#[test]
fn age_counts_no_sample_s_own_time() {
    let site = site(&aged(HOUR));
    let mut writer = writer(&site.topic);
    let year = 8_766 * HOUR as i64;
    // On time, hours late as a bridge that catches up, from a replay, and from 2036.
    let times = [0, -2 * HOUR as i64, -10 * year, 10 * year, i64::MAX - NOW].map(|t| NOW + t);
    for i in 0..100 {
        append(&mut writer, 0, times[i % times.len()]);
    }
    run(&site, HOUR);
    assert_eq!(kept(&site), Vec::from_iter(0..100), "their age is less than an hour");
    run(&site, HOUR / 5);
    assert_eq!(kept(&site), [0; 0], "no time of a sample keeps a segment");
    assert_eq!(site.topic.info(0).unwrap().taken.samples, 100);
}

#[test]
fn time_off_and_other_boots_do_not_count() {
    let site = site(&aged(HOUR));
    append(&mut writer(&site.topic), 0, NOW);
    site.topic.wait_durable(0, 0, None).unwrap();
    let Site { dir, uptime, journal, topic } = site;
    drop((journal, topic));
    for boot in 2..12 {
        uptime.store(u64::from(boot) * 1_000 * HOUR, SeqCst);
        let journal = Journal::open(&dir.path().join("j"), options(&uptime, boot)).unwrap();
        let topic = journal.topic(&name()).unwrap().unwrap();
        journal.maintain();
        assert_eq!(drain(&mut topic.reader(0, From::Earliest).unwrap()).0, [0], "boot {boot}");
    }
}

#[test]
fn a_sample_far_ahead_does_not_move_seeks_by_time() {
    let site = site(&TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() });
    let mut writer = writer(&site.topic);
    let second = 1_000_000_000;
    for i in 0..200 {
        // Every seventh is of a clock that is two hours ahead; it is the first one, too.
        let ahead = if i % 7 == 0 { 2 * HOUR as i64 } else { 0 };
        append(&mut writer, 0, NOW + (i - 200) * second + ahead);
    }
    for from in [0, 60, 120, 199] {
        let time = Tai::from_nanos(NOW + (from - 200) * second);
        let found = drain(&mut site.topic.reader(0, From::Time(time)).unwrap()).0;
        let first = from as u64 + u64::from(from % 7 == 0);
        assert_eq!(found, Vec::from_iter(first..200), "from {from}");
    }
    let last = site.topic.info(0).unwrap().last_time;
    assert_eq!(last, Some(Tai::from_nanos(NOW - second)));
}

/// A process that appends a little and ends: it runs this binary.
#[test]
fn child() {
    let Ok(dir) = std::env::var("HELIO_RETENTION_DIR") else { return };
    let journal = Journal::open(std::path::Path::new(&dir), JournalOptions::default()).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let mut writer = writer(&topic);
    fill(&mut writer, 400);
    drop(writer);
    std::process::exit(0);
}

#[test]
fn writers_that_live_for_a_moment_apply_retention() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Journal::open(&dir.path().join("j"), JournalOptions::default()).unwrap();
    let journal = open();
    drop(journal.create_topic(&name(), &forget(1 << 20)).unwrap());
    drop(journal);
    for _ in 0..20 {
        let child = crate::support::child_test(module_path!());
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        run.args(["--exact", &child]).env("HELIO_RETENTION_DIR", dir.path().join("j"));
        assert!(run.output().unwrap().status.success());
    }
    let journal = open();
    let info = journal.topic(&name()).unwrap().unwrap().info(0).unwrap();
    assert!(info.bytes < 3 << 20, "{} bytes of at most a megabyte", info.bytes);
    assert_eq!(info.taken.samples, info.first_offset);
}

fn allocated(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap());
    files.map(|data| data.blocks() * 512).sum()
}

#[test]
fn files_follow_the_bytes_that_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let uptime = Arc::default();
    let config = TopicConfig { last_value: LastValue::Forget, ..TopicConfig::default() };
    let open = |boot| {
        let journal = Journal::open(&dir.path().join("j"), options(&uptime, boot)).unwrap();
        let topic = journal.create_topic(&name(), &config).unwrap();
        (journal, topic)
    };
    // A burst, then a few records between power cuts.
    let (journal, topic) = open(1);
    let mut burst = writer(&topic);
    fill(&mut burst, 4_000);
    drop((burst, journal, topic));
    for boot in 2..28 {
        let (journal, topic) = open(boot);
        let mut writer = writer(&topic);
        fill(&mut writer, 20);
        journal.maintain();
    }
    let (_journal, topic) = open(28);
    let used = topic.info(0).unwrap().bytes;
    let files = allocated(&dir.path().join("j/topics/t/0"));
    assert!(files < 2 * used, "{files} bytes of files for {used} of log");
    assert_eq!(drain(&mut topic.reader(0, From::Earliest).unwrap()).0.len(), 4_520);
}

#[test]
fn what_retention_took_is_counted_without_what_it_kept() {
    let site = site(&TopicConfig { last_value: LastValue::Keep, ..forget(64 << 10) });
    let mut writer = writer(&site.topic);
    for i in 0..2_000 {
        append(&mut writer, if i < 30 { i } else { 30 + i % 5 }, 0);
        if i % 50 == 0 {
            site.journal.maintain();
        }
    }
    let taken = site.topic.info(0).unwrap().taken;
    assert_eq!(taken.samples, 2_000 - kept(&site).len() as u64);
    assert!((900 * taken.samples..1_100 * taken.samples).contains(&taken.bytes), "{taken:?}");
}

#[test]
fn retention_is_altered_under_those_that_have_the_topic_open() {
    let site = site(&forget(1 << 20));
    let mut writer = writer(&site.topic);
    fill(&mut writer, 500);
    site.journal.maintain();
    assert_eq!(kept(&site).len(), 500);
    let other = Journal::open(&site.dir.path().join("j"), options(&site.uptime, 1)).unwrap();
    let lower = forget(64 << 10);
    // It is no part of the topic's identity.
    assert_eq!(other.create_topic(&name(), &lower).unwrap().config(), &forget(1 << 20));
    assert!(other.alter_topic(&name(), &lower).unwrap());
    site.journal.maintain();
    assert!(kept(&site).len() < 110, "{}", kept(&site).len());
    assert_eq!(append(&mut writer, 0, 0), 500);
    assert_eq!(other.topic(&name()).unwrap().unwrap().config(), &lower);
    let wider = TopicConfig { partitions: 2, ..lower };
    assert!(other.alter_topic(&name(), &wider).is_err());
    assert!(!other.alter_topic(&TopicName::new("no").unwrap(), &wider).unwrap());
}

#[test]
fn an_edited_description_deletes_nothing() {
    let site = site(&forget(1 << 20));
    let mut writer = writer(&site.topic);
    fill(&mut writer, 500);
    let path = site.dir.path().join("j/topics/t/topic.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("1048576", "65536")).unwrap();
    site.journal.maintain();
    assert_eq!(kept(&site).len(), 500);
    let other = Journal::open(&site.dir.path().join("j"), options(&site.uptime, 1)).unwrap();
    let error = other.topic(&name()).unwrap_err().to_string();
    assert!(error.contains("helio topic alter"), "{error}");
    std::fs::write(&path, text).unwrap();
    assert!(other.topic(&name()).unwrap().is_some());
}

#[test]
fn the_budget_shortens_default_retention_and_refuses_what_cannot_fit() {
    let dir = tempfile::tempdir().unwrap();
    let uptime = Arc::new(AtomicU64::new(0));
    let budget = Budget::Bytes(1 << 20);
    let options = JournalOptions { budget, ..options(&uptime, 1) };
    let journal = Journal::open(&dir.path().join("j"), options).unwrap();
    let create = |name: &str, config: &TopicConfig| {
        let topic = journal.create_topic(&TopicName::new(name).unwrap(), config);
        topic.map(|topic| (writer(&topic), topic))
    };
    let limits = TopicConfig { retention_bytes: None, segment_bytes: 64 << 10, ..forget(1) };
    let default = TopicConfig { within_budget: true, ..limits.clone() };
    let kept_last = TopicConfig { last_value: LastValue::Keep, ..default.clone() };
    let (mut chosen, stays) = create("chosen", &limits).unwrap();
    let mut shortened = [create("old", &kept_last).unwrap(), create("new", &default).unwrap()];
    fill(&mut chosen, 400);
    for (second, (writer, _)) in shortened.iter_mut().enumerate() {
        uptime.store(second as u64 * 1_000_000_000, SeqCst);
        (0..600).for_each(|t| assert!(append(writer, u64::from(t > 0), t) < 600));
    }
    // A topic that this process does not have open is shortened, too.
    let [(old_writer, old), (_, new)] = shortened;
    drop((old_writer, old));
    uptime.store(90_000_000_000, SeqCst);
    journal.maintain();
    let first = |topic: &Topic| drain(&mut topic.reader(0, From::Earliest).unwrap()).0;
    let topic = |name: &str| journal.topic(&TopicName::new(name).unwrap()).unwrap().unwrap();
    assert_eq!(first(&stays).len(), 400);
    let old = first(&topic("old"));
    assert!(old.len() < 200 && old[0] == 0 && old.ends_with(&[599]), "{old:?}");
    assert!(first(&new).len() > 200, "the oldest of all topics go first: {}", first(&new).len());
    assert!(topic("old").info(0).unwrap().taken.samples > 400);
    let total = ["chosen", "old", "new"]
        .map(|name| allocated(&dir.path().join("j/topics").join(name).join("0")));
    assert!(total.iter().sum::<u64>() <= 1 << 20, "{total:?}");
    // Two partitions of 600 kB do not fit, neither at the creation nor later.
    let wide =
        |bytes| TopicConfig { partitions: 2, retention_bytes: Some(bytes), ..limits.clone() };
    let refused = create("wide", &wide(600_000)).map(drop).unwrap_err();
    assert!(matches!(refused, JournalError::OverBudget { wanted: 1_200_000, .. }), "{refused}");
    create("wide", &wide(500_000)).unwrap();
    assert!(journal.alter_topic(&TopicName::new("wide").unwrap(), &wide(600_000)).is_err());
    create("default", &TopicConfig { within_budget: true, ..wide(600_000) }).unwrap();
}
