//! Two buses with writers that come and go, bridges both ways that are torn down at any moment, and
//! faults: nothing is lost, nothing is read twice, nothing comes back.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bridge::hops::{self, Hops, Mark};
use helio_bridge::{Bridge, Options};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Event, Headers, Lagging, Message, Producer, Publisher, Qos, Start, Subscribe,
    Subscription, Tai, Topic, TopicSpec, TraceId,
};
use proptest::prelude::*;

const PARTITIONS: u32 = 3;
const TOPIC: &str = "site/events";

/// What a sample is known by, and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    producer: Producer,
    sequence: u64,
    time: Tai,
    key: Vec<u8>,
    payload: Vec<u8>,
    level: u8,
    trace: Option<TraceId>,
    note: Option<Vec<u8>>,
}

fn qos() -> Qos {
    Qos { partitions: PARTITIONS, ..Qos::stream() }
}

fn open(bus: &Bus) -> Topic {
    bus.topic(TopicSpec::new(TOPIC).unwrap().qos(qos())).unwrap()
}

fn everything(bus: &Bus) -> Subscription {
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    open(bus).subscribe(options).unwrap()
}

/// All samples by partition, in order; asserts that none is missing.
fn read(samples: &mut Subscription) -> BTreeMap<u32, Vec<Seen>> {
    let mut seen: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    while let Some(event) = samples.try_next().unwrap() {
        let Event::Sample(sample) = event else { panic!("{event:?}") };
        let note = sample.headers.as_ref().get("note").map(<[u8]>::to_vec);
        seen.entry(sample.partition).or_default().push(Seen {
            producer: sample.header.producer,
            sequence: sample.header.sequence,
            time: sample.header.time,
            key: sample.key.to_vec(),
            payload: sample.payload.to_vec(),
            level: sample.header.level,
            trace: sample.header.trace,
            note,
        });
    }
    assert_eq!((samples.stats().lost, samples.stats().fenced), (0, 0));
    seen
}

/// One side: its bus, and its writers.
struct Side {
    url: String,
    name: &'static str,
    bus: Bus,
    writers: BTreeMap<u8, (Bus, Publisher)>,
}

impl Side {
    fn new(url: &str, name: &'static str) -> Self {
        let bus = Bus::connect(url).unwrap();
        open(&bus);
        Self { url: url.to_owned(), name, bus, writers: BTreeMap::new() }
    }

    fn publish(&mut self, who: u8, n: u64) {
        let (url, name) = (&self.url, self.name);
        let (_, publisher) = self.writers.entry(who).or_insert_with(|| {
            let bus = Bus::builder().producer(&format!("{name}{who}")).connect(url).unwrap();
            let publisher = open(&bus).publisher().unwrap();
            (bus, publisher)
        });
        let headers = Headers::new().with("note", [who]).unwrap();
        let (key, payload) = ([who, (n % 5) as u8], n.to_le_bytes());
        let message = Message::new(&payload).key(&key).level(who).trace(TraceId([n as u8; 16]));
        publisher.publish(message.headers(headers.as_ref())).wait().unwrap();
    }
}

/// One direction.
struct Way {
    bridge: Option<Bridge>,
    from: String,
    to: String,
    plan: FaultPlan,
    seed: u64,
}

impl Way {
    fn turn(&mut self) {
        let bridge = self.bridge.get_or_insert_with(|| {
            self.seed += 1;
            let plan = FaultPlan { seed: self.seed, ..self.plan };
            let to = Bus::builder().over(FaultTransport::connect(&self.to, plan).unwrap());
            let options = Options { topics: vec!["site/*".to_owned()], ..Options::default() };
            Bridge::new(Bus::connect(&self.from).unwrap(), to.unwrap(), options).unwrap()
        });
        bridge.turn(Duration::ZERO);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish {
        side: usize,
        who: u8,
        count: u8,
    },
    /// A writer's next sample is of its next incarnation.
    Restart {
        side: usize,
        who: u8,
    },
    Turn {
        way: usize,
    },
    /// A bridge goes without a word.
    Kill {
        way: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2_usize, 0..3_u8, 1..40_u8)
            .prop_map(|(side, who, count)| Step::Publish { side, who, count }),
        1 => (0..2_usize, 0..3_u8).prop_map(|(side, who)| Step::Restart { side, who }),
        6 => (0..2_usize).prop_map(|way| Step::Turn { way }),
        2 => (0..2_usize).prop_map(|way| Step::Kill { way }),
    ];
    prop::collection::vec(step, 1..40)
}

fn both_ways(urls: [&str; 2], plan: FaultPlan, steps: &[Step]) {
    let mut sides = [Side::new(urls[0], "left"), Side::new(urls[1], "right")];
    let way = |from: usize, to: usize| Way {
        bridge: None,
        from: urls[from].to_owned(),
        to: urls[to].to_owned(),
        plan,
        seed: plan.seed,
    };
    let mut ways = [way(0, 1), way(1, 0)];
    let mut readers = [everything(&sides[0].bus), everything(&sides[1].bus)];
    let (mut n, mut published) = (0, 0);
    for step in steps {
        match *step {
            Step::Publish { side, who, count } => {
                for _ in 0..count {
                    n += 1;
                    sides[side].publish(who, n);
                }
                published += usize::from(count);
            }
            Step::Restart { side, who } => _ = sides[side].writers.remove(&who),
            Step::Turn { way } => ways[way].turn(),
            Step::Kill { way } => ways[way].bridge = None,
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    let total = |bus: &Bus| -> usize {
        // Repeats that an uncertain acknowledgement has left in the log are nobody's loss.
        read(&mut everything(bus)).values().map(Vec::len).sum()
    };
    while sides.iter().any(|side| total(&side.bus) < published) {
        ways.iter_mut().for_each(Way::turn);
        assert!(
            Instant::now() < until,
            "{:?} of {published}",
            sides.each_ref().map(|s| total(&s.bus))
        );
    }
    // What comes back, or is repeated, would come now.
    for _ in 0..3 {
        ways.iter_mut().for_each(Way::turn);
    }
    let [left, right] = &mut readers;
    let (left, right) = (read(left), read(right));
    for (here, there) in [(&left, &right), (&right, &left)] {
        assert_eq!(here.values().map(Vec::len).sum::<usize>(), published);
        for (partition, seen) in here {
            // Of each producer everything, in order, as it was published.
            let of = |all: &[Seen], name: &str| -> Vec<Seen> {
                all.iter().filter(|s| s.producer.name.as_str() == name).cloned().collect()
            };
            for name in seen.iter().map(|seen| seen.producer.name.as_str()) {
                assert_eq!(of(seen, name), of(&there[partition], name));
            }
        }
    }
    let fenced =
        |bridge: &mut Option<Bridge>| bridge.as_mut().map(Bridge::figures).unwrap_or_default();
    for figures in ways.iter_mut().flat_map(|way| fenced(&mut way.bridge)) {
        assert_eq!((figures.lost, figures.skipped), (0, 0), "{figures:?}");
    }
}

static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn memory(faults: FaultPlan, steps: &[Step]) {
    let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let names = [format!("left-{run}"), format!("right-{run}")];
    let urls = names.each_ref().map(|name| format!("memory:{name}"));
    both_ways(urls.each_ref().map(String::as_str), faults, steps);
    names.iter().for_each(|name| helio_bus::transport::memory::forget(name));
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn nothing_is_lost_repeated_or_sent_back(steps in steps(), seed in any::<u64>()) {
        memory(FaultPlan { seed, ..FaultPlan::default() }, &steps);
    }

    #[test]
    fn nor_where_queues_are_full_and_acknowledgements_are_late_or_lost(
        steps in steps(),
        seed in any::<u64>(),
    ) {
        let faults = FaultPlan { refuse: 0.2, pending: 0.5, doubt: 0.01, ..FaultPlan::default() };
        let plan = FaultPlan { seed, ..faults };
        memory(plan, &steps);
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn nor_between_a_journal_and_memory(steps in steps(), seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (journal, memory) =
            (format!("journal:{}", folder.path().display()), format!("memory:model-{run}"));
        let plan = FaultPlan { seed, refuse: 0.1, ..FaultPlan::default() };
        both_ways([&journal, &memory], plan, &steps);
        helio_bus::transport::memory::forget(&format!("model-{run}"));
    }
}

fn bridge(from: &Bus, to: &Bus) -> Bridge {
    let options = Options { topics: vec!["*".to_owned()], ..Options::default() };
    Bridge::new(from.clone(), to.clone(), options).unwrap()
}

/// Turns until a condition holds.
fn until(bridge: &mut Bridge, mut holds: impl FnMut(&mut Bridge) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds(bridge) {
        assert!(Instant::now() < end, "{:?} {:?}", bridge.figures(), bridge.notices());
        bridge.turn(Duration::from_millis(20));
    }
}

#[test]
fn a_target_that_is_frozen_holds_the_bridge_up_within_bounds() {
    let from = Bus::connect("memory:").unwrap();
    let engine =
        FaultTransport::connect("memory:", FaultPlan { queue: 100, ..FaultPlan::default() });
    let engine = engine.unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let publisher = open(&from).publisher().unwrap();
    publisher.publish(Message::new(b"0").key(b"k")).wait().unwrap();
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    cable.freeze();
    for _ in 0..5_000 {
        publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    }
    until(&mut bridge, |bridge| bridge.figures()[0].under_way > 100);
    for _ in 0..20 {
        bridge.turn(Duration::ZERO);
    }
    assert_eq!(bridge.figures()[0].under_way, 101, "a full queue, and the one that waits");
    cable.thaw();
    until(&mut bridge, |bridge| bridge.figures()[0].forwarded == 5_001);
    assert_eq!(read(&mut everything(&to)).values().map(Vec::len).sum::<usize>(), 5_001);
}

#[test]
fn what_retention_has_taken_is_told_counted_and_seen_by_readers() {
    let qos = Qos {
        retention: helio_core::qos::Retention { bytes: Some(20_000), age: None, last_value: false },
        ..Qos::stream()
    };
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let publisher = from.topic(TopicSpec::new("t").unwrap().qos(qos)).unwrap().publisher().unwrap();
    let publish = || publisher.publish(Message::new(&[0; 100])).wait().unwrap();
    publish();
    let bridge = || {
        let topics = vec!["*".to_owned()];
        let overrides = vec!["retention.bytes=none".parse().unwrap()];
        let options = Options { topics, overrides, ..Options::default() };
        Bridge::new(from.clone(), to.clone(), options).unwrap()
    };
    let mut first = bridge();
    until(&mut first, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    drop(first);
    let topic = to.topic(TopicSpec::new("t").unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert!(samples.try_next().unwrap().is_some());
    (0..1_000).for_each(|_| _ = publish());
    let mut second = bridge();
    until(&mut second, |bridge| bridge.turn(Duration::ZERO) == helio_bridge::Turn::CaughtUp);
    let figures = second.figures().remove(0);
    assert_eq!(figures.forwarded + figures.lost, 1_000, "{figures:?}");
    assert!(figures.lost > 0);
    assert!(second.notices().iter().any(|n| n.kind == helio_bridge::NoticeKind::Gap));
    while samples.try_next().unwrap().is_some() {}
    assert_eq!(samples.stats().received + samples.stats().lost, 1_001, "{:?}", samples.stats());
}

#[test]
fn refused_policies_are_told_by_name_and_can_be_chosen() {
    let from = Bus::connect("memory:").unwrap();
    let to = Bus::connect("memory:refusing?strict=1").unwrap();
    let publisher = open(&from).publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut plain = bridge(&from, &to);
    until(&mut plain, |bridge| bridge.turn(Duration::ZERO) == helio_bridge::Turn::CaughtUp);
    assert_eq!(plain.refused().len(), 1);
    let told = plain.notices();
    assert!(told[0].text.contains("durability = persistent"), "{told:?}");
    assert!(told[0].text.contains("--qos durability="), "{told:?}");
    let options = Options {
        topics: vec!["*".to_owned()],
        overrides: vec!["durability=transient_local".parse().unwrap()],
        ..Options::default()
    };
    let mut chosen = Bridge::new(from, to.clone(), options).unwrap();
    until(&mut chosen, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let qos = to.topic(TopicSpec::new(TOPIC).unwrap()).unwrap().qos().clone();
    assert_eq!(qos.partitions, PARTITIONS);
}

#[test]
fn an_exclusive_topic_moves_with_its_writer() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let spec = || TopicSpec::new("state").unwrap().qos(Qos::state());
    let owner = |bus: &Bus| {
        let name = helio_bus::ProducerName::new("Mount").unwrap();
        bus.topic(spec().producer(name)).unwrap().publisher()
    };
    let before = owner(&from).unwrap();
    before.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut there = bridge(&from, &to);
    until(&mut there, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    assert!(owner(&to).is_err(), "its writer lives, on the other bus");
    drop(before);
    // The bridge gives the topic back when its writer has gone.
    let mut after = None;
    until(&mut there, |_| {
        after = owner(&to).ok();
        after.is_some()
    });
    let after = after.unwrap();
    assert_eq!(after.producer().incarnation, 2, "the first one was forwarded");
    after.publish(Message::new(b"2").key(b"k")).wait().unwrap();
    let mut back = bridge(&to, &from);
    until(&mut back, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let mut samples =
        from.topic(spec()).unwrap().subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let payloads: Vec<_> = std::iter::from_fn(|| samples.try_next().unwrap())
        .filter_map(Event::into_sample)
        .map(|sample| sample.payload[0])
        .collect();
    assert_eq!(payloads, b"12");
}

#[test]
fn a_sample_says_where_it_has_been_and_goes_nowhere_twice() {
    let buses = [(); 3].map(|()| Bus::connect("memory:").unwrap());
    let publisher = open(&buses[0]).publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut ring = [(0, 1), (1, 2), (2, 0)].map(|(from, to)| bridge(&buses[from], &buses[to]));
    let returned = |ring: &mut [Bridge; 3]| ring[2].figures().iter().any(|f| f.returned == 1);
    let end = Instant::now() + Duration::from_secs(60);
    while !returned(&mut ring) {
        assert!(Instant::now() < end);
        ring.iter_mut().for_each(|bridge| _ = bridge.turn(Duration::ZERO));
    }
    assert_eq!(ring.each_mut().map(|bridge| bridge.figures()[0].forwarded), [1, 1, 0]);
    let sample = everything(&buses[2]).next_sample().unwrap();
    let names = buses.each_ref().map(|bus| bus.identity().unwrap());
    let hops: Vec<_> = Hops::of(sample.headers.as_ref()).iter().collect();
    assert_eq!(hops, [(names[0].as_str(), Mark::alone(0)), (names[1].as_str(), Mark::alone(0))]);
    assert!(sample.headers.as_ref().get(hops::NAME).is_some());
    let same = Bridge::new(buses[0].clone(), buses[0].clone(), Options::default());
    assert!(same.is_err_and(|error| error.to_string().contains("the same bus")));
}

#[test]
fn schemas_are_carried_and_new_topics_are_found() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let mut bridge = bridge(&from, &to);
    bridge.turn(Duration::ZERO);
    let text: Arc<str> =
        r#"{"type":"record","name":"Wind","fields":[{"name":"speed","type":"double"}]}"#.into();
    let schema = helio_core::schema::Schema::parse(&text).unwrap();
    let spec = TopicSpec::new("wind").unwrap().qos(Qos::telemetry());
    let wind = helio_bus::SchemaText { id: schema.id(), text };
    let topic = from.topic(spec.schema(wind.clone())).unwrap();
    topic.publisher().unwrap().publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let info = to.topic_info(topic.name()).unwrap().unwrap();
    assert_eq!(info.schemas, [wind.id]);
    assert_eq!(to.schema(wind.id).unwrap().as_deref(), Some(&*wind.text));
}
