//! Where a bridge resumes after an earlier one was killed: it forwards only what the target lacks,
//! and uses checkpoints where samples do not suffice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use helio_bridge::hops::{Mark, with_hop};
use helio_bridge::{Begin, Bridge, Figures, NoticeKind, Options, Turn};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Event, Message, ProducerName, PublishError, Qos, SizeLimit, Start, Subscribe, TopicName,
    TopicSpec, TransportError, partition_of,
};
use helio_core::qos::{Liveliness, Retention};

/// The payloads of a producer's samples.
fn of(bus: &Bus, name: &str) -> Vec<u64> {
    let mut samples = everything(bus, "t");
    let events = std::iter::from_fn(|| samples.try_next().unwrap());
    let samples = events.filter_map(Event::into_sample);
    let own = samples.filter(|sample| sample.header.producer.name.as_str() == name);
    own.map(|sample| u64::from_le_bytes(sample.payload[..].try_into().unwrap())).collect()
}

fn too_large() -> PublishError {
    let (what, transport) = ("the record", "odd".to_owned());
    TransportError::TooLarge { what, bytes: 2, limit: SizeLimit::Bytes(1), transport }.into()
}

/// A bridge is killed after Mount's samples were refused late, from a sequence on or only that one,
/// while Dome's were accepted. Returns the next bridge's statistics, and the target.
fn killed_behind_a_refusal(name: &str, url: &str, refused: fn(u64) -> bool) -> (Figures, Bus) {
    let from = Bus::connect(&format!("memory:{name}")).unwrap();
    let (mount, dome) =
        (publisher(&from, "t", "Mount", stream()), publisher(&from, "t", "Dome", stream()));
    for n in 0..50 {
        publish(&mount, n..n + 1);
        publish(&dome, n..n + 1);
    }
    let refuses = move |who: &str, number: u64| (who == "Mount" && refused(number)).then(too_large);
    let to = target_on(url, Some(Arc::new(refuses)));
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Failed);
    drop(first);
    let to = target_on(url, Some(Arc::new(|_, _| None)));
    (whole(bridge(&from, &to)), to)
}

#[test]
fn what_was_refused_late_is_given_by_the_next_bridge() {
    let (figures, to) =
        killed_behind_a_refusal("late-from", "memory:late-to", |number| number >= 20);
    assert_eq!((figures.skipped, figures.lost), (0, 0), "{figures:?}");
    for name in ["Mount", "Dome"] {
        assert!(of(&to, name).into_iter().eq(0..50), "{name}");
    }
    let stats = everything(&to, "t");
    assert_eq!(stats.stats().lost, 0);
}

#[test]
fn what_cannot_be_given_any_more_is_counted_by_the_next_bridge() {
    let (figures, to) =
        killed_behind_a_refusal("missed-from", "memory:missed-to", |number| number == 20);
    assert_eq!((figures.skipped, figures.lost), (1, 0), "{figures:?}");
    assert_eq!(of(&to, "Mount").len(), 49);
    assert!(of(&to, "Dome").into_iter().eq(0..50));
}

#[test]
fn commands_are_forwarded_from_when_their_topic_was_first_open() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let qos = Qos { partitions: 2, ..Qos::command() };
    let script = publisher(&from, "t", "Script", qos);
    publish(&script, 0..5);
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Opened);
    // It is killed before any sample came.
    drop(first);
    publish(&script, 5..10);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 5);
    // The other partition gets its first sample while no bridge runs.
    let other = (0_u8..).find(|key| partition_of(&[*key], 2) != partition_of(b"k", 2)).unwrap();
    script.publish(Message::new(&10_u64.to_le_bytes()).key(&[other])).wait().unwrap();
    assert_eq!(whole(bridge(&from, &to)).forwarded, 1);
    assert_eq!(of(&to, "Script").len(), 6);
}

#[test]
fn into_a_target_without_places_too() {
    let from = Bus::connect("memory:").unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let url = "memory:placeless-into";
    let (plain, to) = (Bus::connect(url).unwrap(), placeless_panicking(url, &panics));
    let script = publisher(&from, "t", "Script", Qos::command());
    let mut there = {
        let topic = plain.topic(TopicSpec::new("t").unwrap().qos(Qos::command())).unwrap();
        topic.subscribe(Subscribe::from(Start::Latest)).unwrap()
    };
    // The target cannot be opened while the first samples come.
    panics.store(true, Ordering::SeqCst);
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Failed);
    publish(&script, 0..5);
    drop(first);
    panics.store(false, Ordering::SeqCst);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 5);
    publish(&script, 5..10);
    let last = whole(bridge(&from, &to));
    assert_eq!((last.forwarded, last.repeated), (5, 0), "{last:?}");
    let events = std::iter::from_fn(|| there.try_next().unwrap());
    let samples: Vec<_> = events.filter_map(Event::into_sample).collect();
    assert_eq!(samples.len(), 10);
    assert_eq!((there.stats().lost, there.stats().duplicates), (0, 0));
}

#[test]
fn the_position_is_known_where_retention_took_all_that_was_forwarded() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let short = Retention { bytes: Some(10_000), age: None, last_value: false, default: false };
    let there = publisher(&to, "t", "Other", Qos { retention: short, ..Qos::command() });
    let script = publisher(&from, "t", "Script", Qos::command());
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Opened);
    publish(&script, 0..5);
    until(&mut first, |bridge| bridge.figures()[0].forwarded == 5);
    assert!(first.finish(TIMEOUT));
    drop(first);
    let large = [0; 1_000];
    (0..1_000).for_each(|_| _ = there.publish(Message::new(&large)).wait().unwrap());
    let mut all = everything(&to, "t");
    let first = std::iter::from_fn(|| all.try_next().unwrap()).find_map(Event::into_sample);
    assert!(first.unwrap().offset > 5, "retention has taken all of them");
    publish(&script, 5..8);
    let figures = whole(bridge(&from, &to));
    assert_eq!((figures.forwarded, figures.lost), (3, 0), "{figures:?}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => _ = std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap(),
        }
    }
}

/// A journal that may lose its end, as in a power failure.
struct Cut {
    folder: tempfile::TempDir,
    bus: Option<Bus>,
}

impl Cut {
    fn new() -> Self {
        let mut cut = Self { folder: tempfile::tempdir().unwrap(), bus: None };
        cut.open();
        cut
    }

    fn bus(&self) -> &Bus {
        self.bus.as_ref().unwrap()
    }

    fn open(&mut self) {
        let live = self.folder.path().join("live");
        self.bus = Some(Bus::connect(&format!("journal:{}", live.display())).unwrap());
    }

    fn close(&mut self) {
        self.bus.take().unwrap().close();
    }

    /// Later samples will be lost.
    fn save(&mut self) {
        self.close();
        copy(&self.folder.path().join("live"), &self.folder.path().join("saved"));
        self.open();
    }

    fn cut(&mut self) {
        self.close();
        std::fs::remove_dir_all(self.folder.path().join("live")).unwrap();
        copy(&self.folder.path().join("saved"), &self.folder.path().join("live"));
        self.open();
    }
}

/// A journal loses its end and gets this many other samples in its place.
fn cut(others: u64) {
    let mut source = Cut::new();
    let to = Bus::connect("memory:").unwrap();
    publish(&publisher(source.bus(), "t", "Mount", stream()), 0..1_000);
    source.save();
    publish(&publisher(source.bus(), "t", "Lost", stream()), 0..10);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 1_010);
    source.cut();
    let from = source.bus().clone();
    publish(&publisher(&from, "t", "New", stream()), 0..others);
    let figures = whole(bridge(&from, &to));
    assert_eq!((figures.forwarded, figures.skipped), (others, 0), "{figures:?}");
    publish(&publisher(&from, "t", "Newer", stream()), 0..30);
    let figures = whole(bridge(&from, &to));
    assert_eq!((figures.forwarded, figures.skipped), (30, 0), "{figures:?}");
    for (name, count) in [("Mount", 1_000), ("Lost", 10), ("New", others), ("Newer", 30)] {
        assert!(of(&to, name).into_iter().eq(0..count), "{name}");
    }
}

#[test]
fn a_source_that_lost_its_end_is_gone_on_with_where_that_was() {
    cut(5);
    cut(15);
    cut(0);
}

#[test]
fn of_a_log_that_was_cut_nothing_new_is_taken_for_what_was_there() {
    // Samples from the target were at those offsets, which no mark on the target covers.
    let mut source = Cut::new();
    let to = Bus::connect("memory:").unwrap();
    publish(&publisher(source.bus(), "t", "Mount", stream()), 0..100);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 100);
    source.save();
    let there = publisher(&to, "t", "There", stream());
    for n in 0..5 {
        publish(&publisher(source.bus(), "t", "Lost", stream()), 2 * n..2 * n + 2);
        assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 2);
        publish(&there, 4 * n..4 * n + 4);
        assert_eq!(whole(bridge(&to, source.bus())).forwarded, 4);
    }
    source.cut();
    publish(&publisher(source.bus(), "t", "New", stream()), 0..40);
    let figures = whole(bridge(source.bus(), &to));
    assert_eq!((figures.forwarded, figures.skipped), (40, 0), "{figures:?}");
    for (name, count) in [("Mount", 100), ("Lost", 10), ("New", 40)] {
        assert!(of(&to, name).into_iter().eq(0..count), "{name}");
    }
}

#[test]
fn old_commands_are_not_given_again_where_a_log_lost_its_end() {
    let mut source = Cut::new();
    let to = Bus::connect("memory:").unwrap();
    // Published before the bridge.
    publish(&publisher(source.bus(), "t", "Script", Qos::command()), 0..20);
    let mut first = bridge(source.bus(), &to);
    is_told(&mut first, NoticeKind::Opened);
    publish(&publisher(source.bus(), "t", "Dome", Qos::command()), 0..20);
    assert_eq!(whole(first).forwarded, 20);
    source.save();
    // Only one is known, as the target has others.
    publish(&publisher(&to, "t", "There", Qos::command()), 0..300);
    publish(&publisher(source.bus(), "t", "Mount", Qos::command()), 0..1);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 1);
    source.cut();
    let figures = whole(bridge(source.bus(), &to));
    assert_eq!((figures.forwarded, figures.skipped), (0, 0), "{figures:?}");
    publish(&publisher(source.bus(), "t", "New", Qos::command()), 0..3);
    let figures = whole(bridge(source.bus(), &to));
    assert_eq!((figures.forwarded, figures.skipped), (3, 0), "{figures:?}");
}

#[test]
fn nor_where_none_was_forwarded_yet() {
    let mut source = Cut::new();
    let to = Bus::connect("memory:").unwrap();
    publish(&publisher(source.bus(), "t", "Script", Qos::command()), 0..20);
    source.save();
    publish(&publisher(source.bus(), "t", "Script", Qos::command()), 20..30);
    let mut first = bridge(source.bus(), &to);
    is_told(&mut first, NoticeKind::Opened);
    drop(first);
    source.cut();
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 0);
    publish(&publisher(source.bus(), "t", "New", Qos::command()), 0..3);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 3);
    publish(&publisher(source.bus(), "t", "New", Qos::command()), 3..30);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 27);
}

#[test]
fn samples_below_the_position_in_a_former_log_are_forwarded() {
    for forwarded in [0, 5] {
        let mut source = Cut::new();
        let to = Bus::connect("memory:").unwrap();
        publish(&publisher(source.bus(), "t", "Script", Qos::command()), 0..20);
        source.save();
        publish(&publisher(source.bus(), "t", "Script", Qos::command()), 20..30);
        let mut first = bridge(source.bus(), &to);
        is_told(&mut first, NoticeKind::Opened);
        publish(&publisher(source.bus(), "t", "Lost", Qos::command()), 0..forwarded);
        assert_eq!(whole(first).forwarded, forwarded);
        source.cut();
        // The position lies inside of the log again, in other samples.
        publish(&publisher(source.bus(), "t", "New", Qos::command()), 0..30);
        let mut next = bridge(source.bus(), &to);
        let notice = std::cell::RefCell::new(String::new());
        until(&mut next, |bridge| {
            let gaps = bridge.notices().into_iter().filter(|n| n.kind == NoticeKind::Gap);
            gaps.for_each(|gap| *notice.borrow_mut() += &gap.text);
            !notice.borrow().is_empty()
        });
        assert!(notice.borrow().contains("another log from offset 20"), "{notice:?}");
        assert_eq!(whole(next).forwarded, 30);
        assert!(of(&to, "New").into_iter().eq(0..30));
        assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 0);
    }
}

#[test]
fn a_source_that_is_copied_again_and_again_is_the_same_log() {
    for forwarded in [0, 5] {
        let mut source = Cut::new();
        let to = Bus::connect("memory:").unwrap();
        publish(&publisher(source.bus(), "t", "Script", Qos::command()), 0..20);
        let mut first = bridge(source.bus(), &to);
        is_told(&mut first, NoticeKind::Opened);
        publish(&publisher(source.bus(), "t", "Dome", Qos::command()), 0..forwarded);
        assert_eq!(whole(first).forwarded, forwarded);
        for _ in 0..3 {
            source.save();
            source.cut();
            let figures = whole(bridge(source.bus(), &to));
            let Figures { forwarded, repeated, skipped, .. } = figures;
            assert_eq!((forwarded, repeated, skipped), (0, 0, 0), "{figures:?}");
        }
    }
}

#[test]
fn samples_of_an_unrelated_log_that_the_target_has_are_repeated_ones() {
    let mut source = Cut::new();
    let to = Bus::connect("memory:").unwrap();
    let dome = |source: &Cut, numbers| {
        publish(&publisher(source.bus(), "t", "Dome", Qos::command()), numbers);
    };
    dome(&source, 0..0);
    let mut first = bridge(source.bus(), &to);
    is_told(&mut first, NoticeKind::Opened);
    dome(&source, 0..20);
    assert_eq!(whole(first).forwarded, 20);
    // Only the last one is compared, as the target has others.
    publish(&publisher(&to, "t", "There", Qos::command()), 0..300);
    dome(&source, 20..21);
    assert_eq!(whole(bridge(source.bus(), &to)).forwarded, 1);
    // No bridge runs between the copies.
    for _ in 0..2 {
        source.save();
        source.cut();
        publisher(source.bus(), "t", "Dome", Qos::command());
    }
    let figures = whole(bridge(source.bus(), &to));
    let Figures { forwarded, repeated, skipped, .. } = figures;
    assert_eq!((forwarded, repeated, skipped), (0, 20, 0), "{figures:?}");
}

#[test]
fn who_wants_all_gets_all_where_nothing_was_forwarded_yet() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    publish(&publisher(&from, "t", "Script", Qos::command()), 0..5);
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Opened);
    drop(first);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 0);
    let (topics, begin) = (vec!["t".to_owned()], Begin::Earliest);
    let options = Options { topics, begin, ..Options::default() };
    assert_eq!(whole(Bridge::new(from, to, options).unwrap()).forwarded, 5);
}

#[test]
fn what_an_older_bridge_has_forwarded_is_not_forwarded_again() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let theirs = publisher(&from, "t", "memory", stream());
    publish(&theirs, 0..10);
    // Producers without a name had the engine's.
    let there = to.topic(TopicSpec::new("t").unwrap().qos(stream())).unwrap();
    let mut forwarder = there.forwarder(&theirs.producer(), 0).unwrap();
    let mut samples = everything(&from, "t");
    while let Some(event) = samples.try_next().unwrap() {
        let sample = event.into_sample().unwrap();
        let name = from.identity().unwrap();
        let headers = with_hop(sample.headers.as_ref(), &name, Mark::alone(sample.offset));
        let given = forwarder.forward(&sample.as_ref(), headers.unwrap().as_ref());
        given.unwrap().wait().unwrap();
    }
    drop(forwarder);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 0);
    publish(&theirs, 10..13);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 3);
    assert!(of(&to, &from.identity().unwrap()).into_iter().eq(10..13));
}

#[test]
fn a_position_that_an_older_bridge_kept_in_a_group_is_gone_on_with() {
    let from = Bus::connect("memory:").unwrap();
    let to = placeless(FaultTransport::connect("memory:", FaultPlan::default()).unwrap());
    publish(&publisher(&from, "t", "Script", Qos::command()), 0..10);
    let group = format!("helio-bridge:{}", to.identity().unwrap());
    let topic = from.topic(TopicSpec::new("t").unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest).group(&group)).unwrap();
    samples.next_sample().unwrap();
    samples.commit_at(0, 6).unwrap();
    drop(samples);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 4);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 0);
}

#[test]
fn a_source_that_was_made_anew_is_forwarded_from_its_first_sample() {
    let folder = tempfile::tempdir().unwrap();
    let from = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    let to = Bus::connect("memory:").unwrap();
    let name = TopicName::new("t").unwrap();
    for (who, count, before) in [("One", 20, 0), ("Two", 5, 0), ("Three", 60, 1)] {
        let script = publisher(&from, "t", who, Qos::command());
        if before == 0 && who == "One" {
            let mut first = bridge(&from, &to);
            is_told(&mut first, NoticeKind::Opened);
        }
        publish(&script, 0..count);
        assert_eq!(whole(bridge(&from, &to)).forwarded, count, "{who}");
        drop(script);
        assert!(from.remove_topic(&name).unwrap());
    }
    for (who, count) in [("One", 20), ("Two", 5), ("Three", 60)] {
        assert!(of(&to, who).into_iter().eq(0..count), "{who}");
    }
}

#[test]
fn a_thread_that_panics_takes_nothing_with_it_that_was_read() {
    let from = Bus::connect("memory:").unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let to = panicking("memory:", doubts(5), &panics);
    let script = publisher(&from, "t", "Script", Qos::command());
    let mut bridge = bridge(&from, &to);
    is_told(&mut bridge, NoticeKind::Opened);
    panics.store(true, Ordering::SeqCst);
    publish(&script, 0..10);
    until(&mut bridge, |bridge| {
        bridge.notices().iter().any(|notice| notice.text.contains("a thread of the bridge"))
    });
    let figures = bridge.figures().remove(0);
    assert!(figures.under_way > 0, "{figures:?}");
    panics.store(false, Ordering::SeqCst);
    publish(&script, 10..20);
    until(&mut bridge, |bridge| bridge.figures()[0].forwarded == 20);
    assert!(of(&to, "Script").into_iter().eq(0..20));
}

#[test]
fn without_places_what_was_refused_late_is_counted_by_the_next_bridge() {
    let from = placeless(FaultTransport::connect("memory:", FaultPlan::default()).unwrap());
    publish(&publisher(&from, "t", "Mount", stream()), 0..50);
    let url = "memory:placeless-to";
    let to = target_on(url, Some(Arc::new(|_, number| (number == 20).then(too_large))));
    let mut first = bridge(&from, &to);
    is_told(&mut first, NoticeKind::Failed);
    drop(first);
    let to = target_on(url, Some(Arc::new(|_, _| None)));
    let figures = whole(bridge(&from, &to));
    assert_eq!((figures.forwarded, figures.skipped), (0, 1), "{figures:?}");
    assert_eq!((figures.repeated, of(&to, "Mount").len()), (49, 49));
}

#[test]
fn those_without_a_producer_are_of_the_bus_that_they_come_from() {
    // Producers without a name get the transport's.
    let sources = [(); 2].map(|()| Bus::connect("memory:").unwrap());
    let to = Bus::connect("memory:").unwrap();
    for (n, from) in sources.iter().enumerate() {
        publish(&publisher(from, "t", "memory", stream()), 0..10 + 5 * n as u64);
        assert_eq!(whole(bridge(from, &to)).forwarded, 10 + 5 * n as u64);
    }
    for (n, from) in sources.iter().enumerate() {
        let name = from.identity().unwrap();
        assert!(of(&to, &name).into_iter().eq(0..10 + 5 * n as u64), "{name}");
    }
    // The target's own ones stay distinct.
    publish(&publisher(&to, "t", "memory", stream()), 0..3);
    let mut samples = everything(&to, "t");
    while samples.try_next().unwrap().is_some() {}
    let stats = samples.stats();
    assert_eq!((stats.received, stats.duplicates, stats.fenced), (28, 0, 0));
}

#[test]
fn those_without_a_producer_are_read_behind_each_restart() {
    let never = Arc::new(AtomicBool::new(false));
    let urls = ["memory:nameless-to", "memory:nameless-placeless-to"];
    let targets = [Bus::connect(urls[0]).unwrap(), placeless_panicking(urls[1], &never)];
    for (url, to) in urls.into_iter().zip(targets) {
        let plain = Bus::connect(url).unwrap();
        let from = Bus::connect("memory:").unwrap();
        let (theirs, mount) =
            (publisher(&from, "t", "memory", stream()), publisher(&from, "t", "Mount", stream()));
        drop(plain.topic(TopicSpec::new("t").unwrap().qos(stream())).unwrap());
        let mut reader = everything(&plain, "t");
        let rewinds = to.capabilities().rewind;
        // One bridge runs without any of their samples, and another without any among the target's
        // newest.
        let steps = [(0, 0), (20, 0), (20, 300), (40, 300), (40, 600), (45, 600)];
        for (before, now) in steps.into_iter().zip(steps.into_iter().skip(1)) {
            publish(&theirs, before.0..now.0);
            publish(&mount, before.1..now.1);
            let figures = whole(bridge(&from, &to));
            assert_eq!(figures.forwarded, now.0 - before.0 + now.1 - before.1, "{rewinds:?}");
        }
        let name = from.identity().unwrap();
        let events = std::iter::from_fn(|| reader.try_next().unwrap());
        let samples = events.filter_map(Event::into_sample);
        let theirs = samples.filter(|sample| sample.header.producer.name.as_str() == name);
        assert_eq!(theirs.count(), 45, "{rewinds:?}");
        let stats = reader.stats();
        assert_eq!((stats.duplicates, stats.fenced, stats.lost), (0, 0, 0), "{rewinds:?}");
    }
}

#[test]
fn a_writer_is_open_on_the_target_behind_each_failure() {
    let from = Bus::connect("memory:").unwrap();
    let url = "memory:owned-to";
    let lease = Liveliness::Lease(Duration::from_secs(60));
    let state = Qos { liveliness: lease, ..Qos::state() };
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let to = target_on(
        url,
        Some(Arc::new(move |_, number| {
            let fails = number == 2 && count.fetch_add(1, Ordering::SeqCst) < 1;
            fails.then(|| PublishError::Unknown { cause: "for this once".to_owned() })
        })),
    );
    let own = publisher(&from, "t", "Mount", state.clone());
    publish(&own, 0..1);
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let ended = Arc::new(AtomicBool::new(false));
    let (end, spec) = (Arc::clone(&ended), TopicSpec::new("t").unwrap().qos(state));
    let stranger = std::thread::spawn(move || {
        let bus = Bus::connect(url).unwrap();
        let topic = bus.topic(spec.producer(ProducerName::new("Stranger").unwrap())).unwrap();
        let mut tried = 0_u64;
        while !end.load(Ordering::SeqCst) {
            assert!(topic.publisher().is_err(), "the topic is Mount's");
            tried += 1;
            std::thread::yield_now();
        }
        tried
    });
    publish(&own, 1..2);
    until(&mut bridge, |bridge| bridge.figures()[0].forwarded == 2);
    ended.store(true, Ordering::SeqCst);
    assert!(stranger.join().unwrap() > 0);
    assert_eq!(failures.load(Ordering::SeqCst), 2, "it was given twice");
}

#[test]
fn topics_that_are_opened_together_are_made_together() {
    let from = Bus::connect("memory:").unwrap();
    let asked = Asked::default();
    let to = slow_to_make(&asked);
    for n in 0..4 * MANY {
        let topic = from.topic(TopicSpec::new(&format!("t{n}")).unwrap().qos(stream())).unwrap();
        topic.publisher().unwrap().publish(Message::new(b"1")).wait().unwrap();
    }
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| {
        bridge.figures().iter().map(|figures| figures.forwarded).sum::<u64>() == 4 * MANY as u64
    });
    let most = asked.most.load(Ordering::SeqCst);
    assert!(most >= MANY / 2, "{most} of {} topics were made at once", 4 * MANY);
}

#[test]
fn no_bridge_forwards_what_bridges_have_written_down() {
    let (left, right) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let all = |from: &Bus, to: &Bus| {
        let options = Options { topics: vec!["*".to_owned()], ..Options::default() };
        Bridge::new(from.clone(), to.clone(), options).unwrap()
    };
    publish(&publisher(&left, "t", "Script", Qos::command()), 0..1);
    for (from, to) in [(&left, &right), (&right, &left), (&left, &right)] {
        let mut bridge = all(from, to);
        until(&mut bridge, |bridge| bridge.turn(Duration::ZERO) == Turn::CaughtUp);
        assert!(bridge.finish(TIMEOUT));
    }
    let names = right.topics().unwrap();
    let books: Vec<_> = names.iter().filter(|name| name.as_str() != "t").collect();
    let own = format!("helio-bridge/from/{}", left.identity().unwrap());
    let book = right.topic(TopicSpec::new(&own).unwrap()).unwrap();
    assert!(book.qos().retention.bytes.is_some(), "it does not grow for ever");
    assert_eq!(books.iter().map(|name| name.as_str()).collect::<Vec<_>>(), [own]);
}
