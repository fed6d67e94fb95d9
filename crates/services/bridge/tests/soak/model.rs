//! Two buses with writers that start and end, bridges both ways that are killed at any moment, and
//! faults. Nothing is lost, read twice or sent back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use helio_bridge::{Bridge, Options};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Event, Headers, Lagging, Message, Producer, Publisher, Qos, Start, Subscribe,
    Subscription, Tai, Topic, TopicSpec, TraceId,
};
use proptest::prelude::*;

use crate::support::TIMEOUT;

const PARTITIONS: u32 = 3;
const TOPIC: &str = "site/events";

/// A sample's identity and content.
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
    /// The writer's next sample has the next incarnation.
    Restart {
        side: usize,
        who: u8,
    },
    Turn {
        way: usize,
    },
    /// A bridge is killed.
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
    let until = Instant::now() + TIMEOUT;
    let total = |bus: &Bus| -> usize {
        // Repeats after an unknown outcome are not counted.
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
    // Samples that are sent back or repeated would come now.
    for _ in 0..3 {
        ways.iter_mut().for_each(Way::turn);
    }
    let [left, right] = &mut readers;
    let (left, right) = (read(left), read(right));
    for (here, there) in [(&left, &right), (&right, &left)] {
        assert_eq!(here.values().map(Vec::len).sum::<usize>(), published);
        for (partition, seen) in here {
            // All samples of each producer, in order, as published.
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
