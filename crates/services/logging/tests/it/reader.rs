//! The reader, with producers on real buses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Lagging, Qos, Tai, TopicSpec};
use helio_core::qos::Retention;
use helio_logging::{
    Cursor, FilterDecision, Follow, Gap, GapRange, Item, Lanes, Level, LossCause, News, Next,
    Predicate, Reader, ReaderError, ReaderOptions, RecordRef, Start, Views, Waited,
};
use proptest::prelude::*;

use crate::support::{HANG_TIMEOUT, Producer};

const ALL: usize = usize::MAX;

fn reader(bus: &Bus, options: ReaderOptions) -> Reader {
    Reader::open(bus, &Lanes::default(), options).unwrap()
}

fn past(start: Start) -> ReaderOptions {
    ReaderOptions::from(start).follow(Follow::No)
}

/// A record as a test sees it: lane, logger and number.
type Seen = (Level, String, u64);

fn seen(record: RecordRef<'_>) -> Seen {
    (record.level(), record.logger().to_owned(), record.sequence())
}

#[derive(Default)]
struct Read {
    records: Vec<Seen>,
    times: Vec<i64>,
    news: Vec<News>,
}

impl Read {
    fn gaps(&self) -> Vec<(Option<u64>, LossCause)> {
        let gap = |news: &News| match news {
            News::Gap(Gap { records, why, .. }) => Some((*records, *why)),
            _ => None,
        };
        self.news.iter().filter_map(gap).collect()
    }
}

fn visit(reader: &mut Reader, max: usize) -> Read {
    let mut read = Read::default();
    let visited = reader.visit(max, |item| {
        match item {
            Item::Record(record, place) => {
                assert_eq!(place.producer.name.as_str(), record.logger());
                read.records.push(seen(record));
                read.times.push(record.time().nanos());
            }
            Item::News(news) => read.news.push(news.clone()),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(visited.unwrap(), read.records.len() + read.news.len());
    read
}

/// Each producer's numbers in each lane.
fn numbers(records: &[Seen]) -> BTreeMap<(Level, String), Vec<u64>> {
    let mut numbers: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (level, logger, number) in records {
        numbers.entry((*level, logger.clone())).or_default().push(*number);
    }
    numbers
}

/// A journal of its own, and a bus in memory.
fn buses() -> (tempfile::TempDir, [Bus; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let journal = format!("journal:{}", folder.path().join("journal").display());
    (folder, [Bus::connect("memory:").unwrap(), Bus::connect(&journal).unwrap()])
}

/// The topic of a level that keeps little.
fn small_topic(bus: &Bus, level: Level, bytes: u64) {
    let retention = Retention { bytes: Some(bytes), age: None, last_value: false, default: false };
    let spec = TopicSpec::new(&Lanes::default().topic_name(level)).unwrap();
    bus.topic(spec.qos(Qos { retention, ..Lanes::default().qos(level) })).unwrap();
}

#[test]
fn many_producers_and_lanes_are_read_each_in_order_and_accounted_for() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut late = reader(bus, ReaderOptions::from(Start::Latest));
        let mut offered = 0;
        for producer in 0..8 {
            let mut producer = Producer::new(bus, &format!("p{producer}"));
            for (place, level) in Level::ALL.into_iter().enumerate() {
                for packet in 0..5 {
                    producer.packet(level, (0..packet + place as i64).map(|n| n * 10));
                    offered += packet as u64 + place as u64;
                }
                producer.shed(level, 3);
                producer.lose(level, 2);
                producer.empty(level);
                offered += 5;
            }
        }
        let mut early = reader(bus, past(Start::Earliest));
        for reader in [&mut late, &mut early] {
            let read = visit(reader, ALL);
            for ((level, _), numbers) in numbers(&read.records) {
                let place = Level::ALL.iter().position(|known| *known == level).unwrap() as u64;
                let all: Vec<u64> = (1..=10 + 5 * place).collect();
                assert_eq!(numbers, all);
            }
            let account = reader.account();
            let total = account.total();
            assert_eq!(total.offered(), offered);
            assert_eq!((total.shed, total.lost), (8 * 10 * 3, 8 * 10 * 2));
            assert_eq!(total.delivered, read.records.len() as u64);
            let debug = account.of(|row| row.lane == Level::DEBUG);
            assert_eq!((debug.delivered, debug.shed, debug.lost), (8 * 20, 8 * 3, 8 * 2));
            assert_eq!(account.packets.len(), 10);
            assert!(account.packets.iter().all(|lane| lane.lag == 0 && lane.lost == 0));
            assert_eq!(read.gaps().len(), 8 * 10 * 2);
        }
        assert!(early.is_ended() && !late.is_ended());
        assert_eq!(early.wait(Duration::MAX).unwrap(), Waited::Ended);
    }
}

#[test]
fn the_past_comes_in_order_of_time_whatever_lane_it_lies_in() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let levels = [Level::TRACE, Level::INFO, Level::ERROR, Level::EMERGENCY];
        let mut producers: Vec<_> = (0..5).map(|p| Producer::new(bus, &format!("p{p}"))).collect();
        // Each publishes what it has gathered since its last packet, and all of them overlap.
        for round in 0..200_i64 {
            for (p, producer) in producers.iter_mut().enumerate() {
                let level = levels[(round as usize + p) % levels.len()];
                producer.packet(level, (0..7).map(|n| round * 100 + n * 50 + p as i64));
            }
        }
        let mut reader = reader(bus, past(Start::Earliest));
        let read = visit(&mut reader, ALL);
        assert_eq!(read.records.len(), 200 * 5 * 7);
        assert!(read.times.is_sorted());
        assert!(numbers(&read.records).values().all(|numbers| numbers.is_sorted()));
        assert_eq!(reader.account().total().offered(), 200 * 5 * 7);
    }
}

#[test]
fn a_clock_that_is_ahead_disturbs_no_other_and_numbers_stand_above_times() {
    let bus = Bus::connect("memory:").unwrap();
    let [mut ahead, mut right] = ["ahead", "right"].map(|name| Producer::new(&bus, name));
    ahead.packet(Level::INFO, [i64::MAX - 1, 5, i64::MIN]);
    for round in 0..500 {
        right.packet(Level::INFO, [2 * round]);
        right.packet(Level::WARNING, [2 * round + 1]);
    }
    ahead.packet(Level::INFO, [1]);
    let read = visit(&mut reader(&bus, past(Start::Earliest)), ALL);
    let numbers = numbers(&read.records);
    assert_eq!(numbers[&(Level::INFO, "ahead".to_owned())], [1, 2, 3, 4]);
    let right = read.records.iter().zip(&read.times).filter(|((_, who, _), _)| who == "right");
    let times: Vec<_> = right.map(|(_, time)| *time).collect();
    assert_eq!(times.len(), 1_000);
    assert!(times.is_sorted());
}

#[test]
fn an_alert_does_not_wait_behind_a_flood() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut reader = reader(bus, ReaderOptions::from(Start::Latest));
        let mut flood = Producer::new(bus, "flood");
        for _ in 0..20 {
            flood.packet(Level::DEBUG, vec![0; 4_000]);
            flood.packet(Level::TRACE, vec![0; 4_000]);
        }
        let mut mount = Producer::new(bus, "mount");
        let mut order = Vec::new();
        reader
            .visit(60_000, |item| {
                let Item::Record(record, _) = item else { panic!("{item:?}") };
                // In the middle of what is read.
                if order.len() == 30_000 {
                    mount.packet(Level::ALERT, [0]);
                    mount.packet(Level::EMERGENCY, [0]);
                }
                order.push(record.level());
                ControlFlow::Continue(())
            })
            .unwrap();
        let place = |level| order.iter().position(|seen| *seen == level).unwrap();
        // What was begun goes on to the end of its turn.
        assert!(place(Level::ALERT) < 30_000 + 1_100, "{}", place(Level::ALERT));
        assert!(place(Level::EMERGENCY) < place(Level::ALERT));
    }
}

#[test]
fn a_flood_of_alerts_does_not_silence_the_others() {
    let bus = Bus::connect("memory:").unwrap();
    let mut reader = reader(&bus, ReaderOptions::from(Start::Latest));
    let mut flood = Producer::new(&bus, "flood");
    (0..10).for_each(|_| flood.packet(Level::ALERT, vec![0; 4_000]));
    flood.packet(Level::INFO, [0]);
    let infos = |reader: &mut Reader| {
        let read = visit(reader, 100);
        read.records.iter().filter(|(level, ..)| *level == Level::INFO).count()
    };
    let infos: usize = (0..40).map(|_| infos(&mut reader)).sum();
    assert_eq!(infos, 1);
}

#[test]
fn what_was_published_is_told_to_who_waits_and_the_end_is_an_end() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut records = reader(bus, ReaderOptions::from(Start::Latest)).records();
        assert!(matches!(records.next(Duration::ZERO).unwrap(), Next::TimeOver));
        let other = bus.clone();
        let published = std::thread::spawn(move || {
            Producer::new(&other, "mount").packet(Level::NOTICE, [7]);
        });
        let Next::Record(record, producer) = records.next(Duration::MAX).unwrap() else {
            panic!("no record")
        };
        published.join().unwrap();
        assert_eq!((record.message().as_str(), record.sequence), ("1", 1));
        assert_eq!((record.producer.as_str(), producer.name.as_str()), ("mount", "mount"));
        let waker = records.waker();
        let woken = std::thread::spawn(move || waker.wake());
        assert!(matches!(records.next(Duration::MAX).unwrap(), Next::TimeOver));
        woken.join().unwrap();
        let other = bus.clone();
        let closed = std::thread::spawn(move || other.close());
        assert!(matches!(records.next(Duration::MAX).unwrap(), Next::End));
        assert!(matches!(records.next(Duration::MAX).unwrap(), Next::End));
        closed.join().unwrap();
    }
}

#[test]
fn what_retention_took_is_told_and_counted() {
    let (_folder, buses) = buses();
    for bus in &buses {
        small_topic(bus, Level::INFO, 64 << 10);
        let mut reader = reader(bus, ReaderOptions::from(Start::Latest));
        let mut mount = Producer::new(bus, "mount");
        mount.packet(Level::INFO, [0]);
        let begun = visit(&mut reader, 1);
        assert_eq!(begun.records.len(), 1);
        let cursor = reader.cursor();
        for _ in 0..400 {
            mount.packet(Level::INFO, vec![0; 100]);
        }
        // Retention takes its time, and what a reader has before its eyes it may finish.
        let until = Instant::now() + HANG_TIMEOUT;
        let oldest = || {
            let mut resumed = self::reader(bus, past(Start::Cursor(cursor.clone())));
            visit(&mut resumed, 8).records.last().map_or(0, |(.., number)| *number)
        };
        while oldest() < 20_000 {
            assert!(Instant::now() < until, "too little is removed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let read = visit(&mut reader, ALL);
        // A gap of packets and one of records, or more: retention may continue meanwhile.
        let gaps = read.gaps();
        assert!(!gaps.is_empty() && gaps.len().is_multiple_of(2), "{gaps:?}");
        for pair in gaps.chunks(2) {
            let is_pair =
                matches!(pair, [(None, LossCause::Retention), (Some(_), LossCause::Retention)]);
            assert!(is_pair, "{gaps:?}");
        }
        let lost: u64 = gaps.iter().filter_map(|(lost, _)| *lost).sum();
        let total = reader.account().total();
        assert_eq!((total.lost, total.offered()), (lost, 40_001));
        assert!(total.delivered > 100 && lost > 100, "{total:?}");
        assert_eq!(read.records.last().unwrap().2, 40_001);
        assert!(reader.account().packets.iter().any(|lane| lane.lost > 0));

        // Who stood there is told the same.
        let mut resumed = self::reader(bus, past(Start::Cursor(cursor)));
        let again = visit(&mut resumed, ALL);
        let News::Gap(gap) = &again.news[0] else { panic!("{:?}", again.news) };
        assert!(
            matches!(gap.span, GapRange::Packets { partition: 0, from: 1, to } if to > 1),
            "{gap}"
        );
        // Retention may continue, also while this one reads: then it has gaps of its own, counted
        // from its first record on.
        let known: BTreeSet<u64> = numbers(&read.records).into_values().flatten().collect();
        let came: Vec<u64> = again.records.iter().map(|(.., number)| *number).collect();
        assert!(came.len() > 100 && came.iter().all(|number| known.contains(number)));
        let lost: u64 = again.gaps().iter().filter_map(|(lost, _)| *lost).sum();
        assert_eq!(came.last(), Some(&40_001));
        assert_eq!(came[0] + came.len() as u64 + lost, 40_002, "{:?}", again.gaps());
    }
}

#[test]
fn who_is_too_slow_passes_over_the_oldest_and_is_told() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let lagging = Lagging::DropOldest { depth: 8 };
        let mut reader = reader(bus, ReaderOptions::from(Start::Latest).lagging(lagging));
        let mut mount = Producer::new(bus, "mount");
        mount.packet(Level::DEBUG, [0]);
        assert_eq!(visit(&mut reader, ALL).records.len(), 1);
        for _ in 0..100 {
            mount.packet(Level::DEBUG, [0, 1]);
        }
        let read = visit(&mut reader, ALL);
        let gaps = read.gaps();
        let [(None, LossCause::Overload), (Some(lost), LossCause::Overload)] = gaps[..] else {
            panic!("{gaps:?}")
        };
        let total = reader.account().total();
        assert_eq!((total.lost, total.offered()), (lost, 201));
        assert!(lost >= 2 * 92);
    }
}

#[test]
fn a_producer_that_begins_anew_is_counted_anew() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut mount = Producer::new(bus, "mount");
        mount.packet(Level::INFO, [0, 1, 2]);
        // It is killed with two records that nobody saw, and begins with number 1.
        mount.restart();
        mount.lose(Level::INFO, 4);
        mount.packet(Level::INFO, [3]);
        mount.restart();
        mount.packet(Level::INFO, [4, 5]);
        let mut reader = reader(bus, past(Start::Earliest));
        let read = visit(&mut reader, ALL);
        let sequences: Vec<_> = read.records.iter().map(|(.., number)| *number).collect();
        assert_eq!(sequences, [1, 2, 3, 5, 1, 2]);
        let account = reader.account();
        let incarnations: Vec<_> = account.rows.iter().map(|row| row.tally.delivered).collect();
        assert_eq!(incarnations, [3, 1, 2]);
        let producers: Vec<_> = account.rows.iter().map(|row| row.producer.clone()).collect();
        assert!(producers.is_sorted() && producers.iter().all(Option::is_some));
        // It counts on where it was: what lies between is missing.
        assert_eq!(account.total().lost, 1);
    }
}

#[test]
fn damage_is_told_with_its_sender_and_what_was_in_it_is_lost() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut mount = Producer::new(bus, "mount");
        mount.packet(Level::ERROR, [0]);
        mount.damaged(Level::ERROR, 5, b"HLOG\x01 and no more");
        mount.packet(Level::ERROR, [1]);
        mount.malformed(Level::ERROR);
        let mut stranger = Producer::new(bus, "stranger");
        stranger.damaged(Level::ERROR, 1, b"hello");
        for options in [past(Start::Earliest), ReaderOptions::from(Start::Earliest)] {
            let mut records = reader(bus, options).records();
            let (mut sequences, mut told) = (Vec::new(), Vec::new());
            loop {
                match records.next(Duration::ZERO).unwrap() {
                    Next::Record(record, _) => sequences.push(record.sequence),
                    Next::News(news) => told.push(news.to_string()),
                    Next::TimeOver | Next::End => break,
                }
            }
            assert_eq!(sequences, [1, 7]);
            told.sort();
            let expected = [
                "ERROR: 5 records of mount (incarnation 1), numbers 2 to 6, are missing: they \
                 were damaged; look at the disk and at their sender",
                "ERROR: a sample of mount (incarnation 1), offset 1 of partition 0: the log \
                 packet is cut or damaged: it ends in its header",
                "ERROR: a sample of stranger (incarnation 1), offset 4 of partition 0: no log \
                 packet: it does not begin with \"HLOG\"",
                "ERROR: record 8 of mount (incarnation 1) has a malformed body; its sender \
                 wrote it wrong",
            ];
            assert_eq!(told, expected);
            let total = records.account().total();
            let counted = (total.delivered, total.lost, total.malformed, total.damaged);
            assert_eq!(counted, (2, 5, 1, 2));
            assert_eq!(total.offered(), 8);
        }
    }
}

#[test]
fn who_only_says_what_it_shed_is_heard() {
    let bus = Bus::connect("memory:").unwrap();
    let mut reader = reader(&bus, ReaderOptions::from(Start::Latest));
    let mut mount = Producer::new(&bus, "mount");
    mount.shed(Level::TRACE, 1_000);
    mount.empty(Level::TRACE);
    let read = visit(&mut reader, ALL);
    assert_eq!(read.gaps(), [(Some(1_000), LossCause::Shed)]);
    assert_eq!(
        read.news[0].to_string(),
        "TRACE: 1000 records of mount (incarnation 1) are missing: their producer shed them; have \
         it log less, or less often"
    );
    // Who comes later does not count what was before.
    let mut late = self::reader(&bus, ReaderOptions::from(Start::Latest));
    mount.packet(Level::TRACE, [0]);
    mount.shed(Level::TRACE, 1);
    mount.packet(Level::TRACE, [0]);
    visit(&mut late, ALL);
    assert_eq!((late.account().total().shed, late.account().total().lost), (1, 0));
    visit(&mut reader, ALL);
    assert_eq!(reader.account().total().offered(), 1_003);
}

#[test]
fn a_filter_passes_over_what_is_not_wanted_and_counts_it() {
    let bus = Bus::connect("memory:").unwrap();
    let mut mount = Producer::new(&bus, "mount");
    mount.packet(Level::INFO, 0..100);
    mount.packet(Level::DEBUG, 0..100);
    let even = |record: RecordRef<'_>| match record.sequence() % 2 {
        0 => FilterDecision::Yes,
        _ => FilterDecision::No,
    };
    for follow in [Follow::Yes, Follow::No] {
        let options = ReaderOptions::from(Start::Earliest).follow(follow);
        let options = options.levels([Level::INFO, Level::ALERT]).filter(even);
        let mut reader = reader(&bus, options);
        let read = visit(&mut reader, ALL);
        assert!(read.records.iter().all(|(level, _, n)| *level == Level::INFO && n % 2 == 0));
        let total = reader.account().total();
        assert_eq!((total.delivered, total.filtered, total.offered()), (50, 50, 100));
    }
}

#[test]
fn a_predicate_opens_the_lanes_that_it_can_match_in_and_no_others() {
    let bus = Bus::connect("memory:").unwrap();
    for (name, level) in [("CONTROL/DV11", Level::ERROR), ("CONTROL/DV11", Level::DEBUG)] {
        Producer::new(&bus, name).packet(level, 0..5);
    }
    Producer::new(&bus, "CORR").packet(Level::ERROR, 0..7);
    let predicate: Predicate = "level >= WARNING and not logger = CONTROL/*".parse().unwrap();
    let selector = predicate.compile(Tai::default(), &Views::default()).unwrap();
    let mut reader = reader(&bus, past(Start::Earliest).select(selector));
    let read = visit(&mut reader, ALL);
    assert!(read.records.iter().all(|(_, who, _)| who == "CORR"));
    let total = reader.account().total();
    // Nobody has looked at those of DEBUG.
    assert_eq!((total.delivered, total.filtered, total.offered()), (7, 5, 12));
}

#[test]
fn one_by_one_is_the_same_as_all_at_once() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut mount = Producer::new(bus, "mount");
        for level in [Level::INFO, Level::ALERT, Level::DEBUG] {
            mount.packet(level, 0..50);
            mount.shed(level, 1);
            mount.packet(level, 50..60);
        }
        let mut whole = reader(bus, past(Start::Earliest));
        let mut single = reader(bus, past(Start::Earliest));
        let all = visit(&mut whole, ALL);
        let mut one_by_one = Vec::new();
        while !single.is_ended() {
            one_by_one.extend(visit(&mut single, 1).records);
        }
        assert_eq!(one_by_one, all.records);
        assert_eq!(single.account(), whole.account());
        assert_eq!(single.cursor(), whole.cursor());
    }
}

#[test]
fn times_begin_at_the_packet_that_was_published_then() {
    let (_folder, buses) = buses();
    for bus in &buses {
        let mut mount = Producer::new(bus, "mount");
        mount.packet(Level::INFO, [0]);
        let now = bus.clock().now();
        mount.packet(Level::INFO, [1]);
        let read = visit(&mut reader(bus, past(Start::Time(now))), ALL);
        assert_eq!(read.times, [1]);
        let later = Tai::from_nanos(now.nanos() + 3_600_000_000_000);
        assert!(visit(&mut reader(bus, past(Start::Time(later))), ALL).times.is_empty());
    }
}

#[test]
fn lanes_that_are_not_there_are_made_by_who_follows_and_passed_over_by_who_does_not() {
    let bus = Bus::connect("memory:").unwrap();
    let mut reader = reader(&bus, past(Start::Earliest));
    assert_eq!(visit(&mut reader, ALL).records.len(), 0);
    assert!(reader.is_ended() && bus.topics().unwrap().is_empty());
    let followed = self::reader(&bus, ReaderOptions::from(Start::Latest).levels([Level::ALERT]));
    assert_eq!(bus.topics().unwrap().len(), 1);
    let name = "log/ALERT".parse().unwrap();
    let made = bus.topic_info(&name).unwrap().unwrap();
    assert_eq!(made.qos, Lanes::default().qos(Level::ALERT));
    drop(followed);
    assert!(Reader::open(&bus, &Lanes::default().prefix("a//b"), past(Start::Latest)).is_err());
}

#[test]
fn cursors_of_elsewhere_are_refused() {
    let (_folder, [other, bus]) = buses();
    Producer::new(&bus, "mount").packet(Level::INFO, [0]);
    let cursor = reader(&bus, ReaderOptions::from(Start::Latest)).cursor();
    let open = |bus: &Bus, lanes: &Lanes| {
        Reader::open(bus, lanes, past(Start::Cursor(cursor.clone()))).map(|_| ())
    };
    assert!(matches!(open(&other, &Lanes::default()), Err(ReaderError::OtherSite)));
    let other = Lanes::default().prefix("other");
    assert!(matches!(open(&bus, &other), Err(ReaderError::OtherSite)));
    assert!(open(&bus, &Lanes::default()).is_ok());
    // The topic is made anew, with less in it.
    bus.remove_topic(&"log/INFO".parse().unwrap()).unwrap();
    small_topic(&bus, Level::INFO, 1 << 20);
    let told = open(&bus, &Lanes::default()).unwrap_err();
    assert!(matches!(told, ReaderError::Behind { next: 1, end: 0, .. }), "{told}");
}

#[test]
fn lanes_that_a_cursor_does_not_have_begin_now() {
    let bus = Bus::connect("memory:").unwrap();
    let mut mount = Producer::new(&bus, "mount");
    let options = ReaderOptions::from(Start::Latest).levels([Level::INFO]);
    let cursor = reader(&bus, options).cursor();
    mount.packet(Level::INFO, [0]);
    mount.packet(Level::DEBUG, [0]);
    let mut resumed = reader(&bus, ReaderOptions::from(Start::Cursor(cursor)));
    mount.packet(Level::DEBUG, [0]);
    let read = visit(&mut resumed, ALL);
    let levels: Vec<_> = read.records.iter().map(|(level, _, n)| (*level, *n)).collect();
    assert_eq!(levels, [(Level::INFO, 1), (Level::DEBUG, 2)]);
}

/// What happens on a bus: a producer publishes a packet, or somebody reads a little and goes.
#[derive(Debug, Clone)]
enum Step {
    Publish { producer: usize, level: Level, times: Vec<i64> },
    Visit { max: usize, follow: Follow },
    Next { max: usize, follow: Follow },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let level = prop::sample::select(vec![Level::DEBUG, Level::INFO, Level::ALERT]);
    let times = prop::collection::vec(0..1_000_i64, 0..12);
    let publish = (0..3_usize, level, times).prop_map(|(producer, level, times)| Step::Publish {
        producer,
        level,
        times,
    });
    let follow = prop::sample::select(vec![Follow::Yes, Follow::No]);
    let visit = (1..20_usize, follow.clone()).prop_map(|(max, follow)| Step::Visit { max, follow });
    let next = (1..20_usize, follow).prop_map(|(max, follow)| Step::Next { max, follow });
    prop::collection::vec(prop_oneof![3 => publish, 1 => visit, 1 => next], 1..60)
}

fn resumed(bus: &Bus, cursor: &str, follow: Follow) -> Reader {
    let cursor: Cursor = cursor.parse().unwrap();
    let levels = [Level::DEBUG, Level::INFO, Level::ALERT];
    let options = ReaderOptions::from(Start::Cursor(cursor)).follow(follow).levels(levels);
    reader(bus, options)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn who_resumes_anywhere_sees_each_record_once(steps in steps()) {
        let bus = Bus::connect("memory:").unwrap();
        let mut producers: Vec<_> = (0..3).map(|p| Producer::new(&bus, &format!("p{p}"))).collect();
        let levels = [Level::DEBUG, Level::INFO, Level::ALERT];
        let opened = reader(&bus, ReaderOptions::from(Start::Latest).levels(levels));
        let mut cursor = opened.cursor().to_string();
        let mut model: BTreeMap<(Level, String), Vec<u64>> = BTreeMap::new();
        let mut all = Vec::new();
        let end = [Step::Visit { max: ALL, follow: Follow::No }];
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Publish { producer, level, times } => {
                    let count = times.len() as u64;
                    producers[producer].packet(level, times);
                    let seen = model.entry((level, format!("p{producer}"))).or_default();
                    let next = seen.len() as u64 + 1;
                    seen.extend(next..next + count);
                }
                Step::Visit { max, follow } => {
                    let mut reader = resumed(&bus, &cursor, follow);
                    let read = visit(&mut reader, max);
                    prop_assert!(read.news.is_empty(), "{:?}", read.news);
                    all.extend(read.records);
                    cursor = reader.cursor().to_string();
                }
                Step::Next { max, follow } => {
                    let mut records = resumed(&bus, &cursor, follow).records();
                    let mut delivered = 0;
                    for _ in 0..max {
                        let Next::Record(record, _) = records.next(Duration::ZERO).unwrap() else {
                            break;
                        };
                        delivered += 1;
                        all.push((record.level, record.logger.clone(), record.sequence));
                    }
                    prop_assert_eq!(records.account().total().delivered, delivered);
                    cursor = records.cursor().to_string();
                }
            }
        }
        model.retain(|_, numbers| !numbers.is_empty());
        prop_assert_eq!(numbers(&all), model);
    }
}
