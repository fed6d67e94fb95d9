//! Three brokers, killed one after the other: no acknowledged sample is lost or repeated.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, GapCause, Guarantee, Message, Outage, PendingPublish, Publisher, Qos, Start,
    Subscribe, Subscription, TopicError, TopicSpec, TransportError,
};
use helio_core::qos::Ownership;
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};

use crate::storm_report::Storm;
use crate::support::{Broker, HANG_TIMEOUT, admin, deliver, done, plain, unique};

/// The tests use one cluster, one after the other.
static TEST_LOCK: Mutex<()> = Mutex::new(());

fn cluster() -> Option<&'static Broker> {
    static CLUSTER: OnceLock<Option<Broker>> = OnceLock::new();
    CLUSTER.get_or_init(|| Broker::start(3)).as_ref()
}

/// How many of a storm's numbers are in flight at most.
const MAX_IN_FLIGHT: usize = 500;

/// The brokers that are killed, one after the other.
const KILLED: [&str; 4] = ["1", "2", "3", "1"];

/// Publishes numbers until `stop`, some ahead of their receipts, and counts the acknowledged ones,
/// in order.
fn storm(publisher: &Publisher, stop: &AtomicBool, acknowledged: &AtomicU64) {
    let mut pending = std::collections::VecDeque::new();
    let arrives = |one: PendingPublish| {
        one.wait_timeout(HANG_TIMEOUT).unwrap();
        acknowledged.fetch_add(1, Ordering::SeqCst);
    };
    for number in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let bytes = number.to_le_bytes();
        let message = Message::new(&bytes).key(b"k").guarantee(Guarantee::Durable);
        pending.push_back(publisher.publish(message));
        if pending.len() >= MAX_IN_FLIGHT {
            pending.pop_front().into_iter().for_each(arrives);
        }
    }
    pending.into_iter().for_each(arrives);
}

#[test]
fn a_storm_survives_the_death_of_one_broker_after_the_other() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let bus = Bus::builder().producer("Mount").connect(&cluster.url("replication=3")).unwrap();
    let topic = TopicSpec::new(&unique("storm")).unwrap().qos(Qos::stream());
    let topic = bus.topic(topic).unwrap();
    let publisher = topic.publisher().unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let storming = {
        let (publisher, shared) = (publisher.clone(), Arc::clone(&shared));
        std::thread::spawn(move || storm(&publisher, &shared.0, &shared.1))
    };
    let acknowledged = || shared.1.load(Ordering::SeqCst);
    // The partition's leader and both followers are among the killed.
    for node in KILLED {
        cluster.does_to("kill", node);
        // Beyond the limit in flight, some were published after its death.
        let (goal, until) =
            (acknowledged() + MAX_IN_FLIGHT as u64 + 1, Instant::now() + HANG_TIMEOUT);
        while acknowledged() < goal {
            assert!(Instant::now() < until, "nothing is published without {node}");
            std::thread::sleep(Duration::from_millis(10));
        }
        cluster.does_to("restart", node);
    }
    shared.0.store(true, Ordering::Release);
    storming.join().unwrap();
    let acknowledged = acknowledged();
    let until = Instant::now() + HANG_TIMEOUT;
    let mut next = 0;
    while next < acknowledged {
        let left = until.saturating_duration_since(Instant::now());
        match samples.next_timeout(left).unwrap() {
            Some(Event::Sample(sample)) => {
                let number = u64::from_le_bytes(sample.payload[..].try_into().unwrap());
                assert_eq!(number, next, "lost, repeated or out of order");
                next += 1;
            }
            Some(Event::Outage(_)) => {}
            other => panic!("{other:?} came for {next} of {acknowledged}"),
        }
    }
    let stats = samples.stats();
    assert_eq!((stats.lost, stats.duplicates), (0, 0), "{stats:?}");
    let lost = acknowledged - next;
    Storm { tried: KILLED.len() as u64, survived: KILLED.len() as u64, lost, unreported: 0 }
        .report("kills of Kafka brokers");
}

fn publish(topic: &helio_bus::Topic) -> Result<Publisher, Box<dyn std::error::Error>> {
    let publisher = topic.publisher()?;
    publisher.publish(Message::new(b"mine")).wait_timeout(HANG_TIMEOUT)?;
    Ok(publisher)
}

#[test]
fn a_claim_that_was_given_up_keeps_nobody_out() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let bus = cluster.bus("Mount");
    let qos = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
    let open = |name: &str| {
        let spec = TopicSpec::new(&unique(name)).unwrap().qos(qos.clone());
        bus.topic(spec).unwrap()
    };
    let (other, topic) = (open("other"), open("claimed"));
    // The session lives, so that its unconfirmed claim would count as live, too.
    let _other = publish(&other).unwrap();
    cluster.set("_helio.producers", "min.insync.replicas", "3");
    cluster.does_to("kill", "3");
    let given_up = publish(&topic);
    cluster.does_to("restart", "3");
    cluster.set("_helio.producers", "min.insync.replicas", "2");
    assert!(given_up.is_err(), "nobody can have acknowledged it");
    let until = Instant::now() + HANG_TIMEOUT;
    while let Err(error) = publish(&topic) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_partition_without_a_leader_is_an_outage_too() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let name = unique("leaderless").replace('/', "_");
    let topic = NewTopic::new(&name, 3, TopicReplication::Fixed(1));
    done(admin(cluster).create_topics([&topic], &AdminOptions::new())).unwrap();
    let bus = cluster.bus("Mount");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    let all = || (0..3).map(|n| publisher.publish(Message::new(b"x").partition(n)));
    all().for_each(|one| _ = one.wait_timeout(HANG_TIMEOUT).unwrap());
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let mut told = |wanted: &dyn Fn(&Outage) -> bool| {
        let until = Instant::now() + HANG_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match samples.next_timeout(left).unwrap() {
                Some(Event::Outage(outage)) if wanted(&outage) => return,
                Some(_) => {}
                None => panic!("it was never reported"),
            }
        }
    };
    cluster.does_to("kill", "2");
    let pending: Vec<_> = all().collect();
    told(&|outage| {
        let Outage::Lost { cause } = outage else { return false };
        assert!(cause.contains(&name) && cause.contains("not acknowledged"), "{cause}");
        true
    });
    assert!(pending.iter().any(|one| one.outcome().is_none()));
    cluster.does_to("restart", "2");
    told(&|outage| matches!(outage, Outage::Restored));
    pending.into_iter().for_each(|one| _ = one.wait_timeout(HANG_TIMEOUT).unwrap());
}

/// Each node in turn is frozen: among them the one that the connection has used last, which gets
/// its next request for metadata.
#[test]
fn one_frozen_broker_of_three_is_no_outage() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let bus = Bus::connect(&cluster.url("replication=3")).unwrap();
    let spec = TopicSpec::new(&unique("frozen-one")).unwrap().qos(Qos::stream());
    let mut samples = bus.topic(spec).unwrap().subscribe(Subscribe::from(Start::Latest)).unwrap();
    for node in ["1", "2", "3"] {
        cluster.does_to("freeze", node);
        let until = Instant::now() + Duration::from_secs(7);
        let left = || until.saturating_duration_since(Instant::now());
        while let Some(event) = samples.next_timeout(left()).unwrap() {
            let is_outage = matches!(event, Event::Outage(Outage::Lost { .. }));
            if is_outage {
                cluster.does_to("thaw", node);
            }
            assert!(!is_outage, "without {node}: {event:?}");
        }
        cluster.does_to("thaw", node);
    }
}

/// The log of the elected follower is shorter than the group's position, and grows beyond it before
/// the group resumes: the position is in it, at another sample.
#[test]
fn offsets_that_an_unclean_election_reuses_under_a_group_are_reported() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let name = unique("unclean").replace('/', "_");
    let replicas: &[&[i32]] = &[&[1, 2]];
    let topic = NewTopic::new(&name, 1, TopicReplication::Variable(replicas))
        .set("unclean.leader.election.enable", "true")
        .set("min.insync.replicas", "1");
    done(admin(cluster).create_topics([&topic], &AdminOptions::new())).unwrap()[0]
        .as_ref()
        .unwrap();
    let publish = |numbers: std::ops::Range<u64>| {
        let bus = Bus::builder().producer("Mount").connect(&cluster.url("replication=3")).unwrap();
        let until = Instant::now() + HANG_TIMEOUT;
        let topic = loop {
            // While a broker is away, a loaded machine may take too long for a question to it.
            match bus.topic(TopicSpec::new(&name).unwrap()) {
                Ok(topic) => break topic,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        let publisher = topic.publisher().unwrap();
        for number in numbers {
            let payload = number.to_le_bytes();
            publisher.publish(Message::new(&payload)).wait_timeout(HANG_TIMEOUT).unwrap();
        }
    };
    let bus = Bus::connect(&cluster.url("replication=3")).unwrap();
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let group = || topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    publish(0..10);
    cluster.does_to("kill", "2");
    publish(10..20);
    let mut member = group();
    read_until(&mut member, &19_u64.to_le_bytes());
    member.commit().unwrap();
    drop(member);
    cluster.does_to("kill", "1");
    cluster.does_to("restart", "2");
    publish(20..45);
    let mut member = group();
    let (mut gap, mut first) = (None, None);
    while first.is_none() {
        match member.next_timeout(HANG_TIMEOUT).unwrap().expect("the group resumes") {
            Event::Gap(found) => gap = Some(found.cause),
            Event::Sample(sample) => first = Some((sample.offset, sample.payload)),
            _ => {}
        }
    }
    cluster.does_to("restart", "1");
    // Ten samples were replicated, so that the 29th is the first one at offset 19.
    let payload = 29_u64.to_le_bytes();
    assert_eq!(first, Some((19, payload.to_vec().into())), "{gap:?}");
    assert_eq!(gap, Some(GapCause::Damaged { from: 19, to: 20 }));
}

/// The node that stores a group's positions, by Java's hash of the group's name.
fn coordinator(cluster: &Broker, group: &str) -> String {
    let hash =
        group.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    let name = "__consumer_offsets";
    let metadata = admin(cluster).inner().fetch_metadata(Some(name), HANG_TIMEOUT).unwrap();
    let partitions = metadata.topics()[0].partitions();
    let place = hash.checked_abs().map_or(0, |hash| usize::try_from(hash).unwrap());
    let id = i32::try_from(place % partitions.len()).unwrap();
    partitions.iter().find(|partition| partition.id() == id).unwrap().leader().to_string()
}

/// The node that leads a partition.
fn leader(cluster: &Broker, name: &str, partition: usize) -> String {
    let metadata = admin(cluster).inner().fetch_metadata(Some(name), HANG_TIMEOUT).unwrap();
    let partitions = metadata.topics()[0].partitions();
    let wanted = i32::try_from(partition).unwrap();
    partitions.iter().find(|partition| partition.id() == wanted).unwrap().leader().to_string()
}

/// Reads until a sample comes.
fn read_until(reader: &mut Subscription, payload: &[u8]) {
    loop {
        match reader.next_timeout(HANG_TIMEOUT).unwrap() {
            Some(Event::Sample(sample)) if sample.payload[..] == *payload => return,
            Some(_) => {}
            None => panic!("the sample does not come"),
        }
    }
}

/// The topic's readers continue with the new one and wait for its leader. Heartbeats and ownership
/// checks do not wait with them.
#[test]
fn a_topic_made_anew_without_a_leader_makes_nobody_a_dead_owner() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let (admin, read) = (admin(cluster), unique("leaderless").replace('/', "_"));
    let make = |node: &str| {
        let node = [node.parse().unwrap()];
        let copies: [&[i32]; 1] = [&node];
        let topic = NewTopic::new(&read, 1, TopicReplication::Variable(&copies));
        let until = Instant::now() + HANG_TIMEOUT;
        let made = || done(admin.create_topics([&topic], &AdminOptions::new())).unwrap().pop();
        while let Some(Err(error)) = made() {
            assert!(Instant::now() < until, "{error:?}");
        }
    };
    let owned = unique("owned").replace('/', ".");
    let exclusive = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
    let spec = || TopicSpec::new(&owned).unwrap().qos(exclusive.clone());
    let (bus, rival) = (cluster.bus("Mount"), cluster.bus("rival"));
    let publisher = publish(&bus.topic(spec()).unwrap()).unwrap();
    // The topics in use must have other leaders.
    let busy = [leader(cluster, &owned, 0), leader(cluster, "_helio.producers", 0)];
    let idle = ["1", "2", "3"].into_iter().find(|node| !busy.contains(&(*node).to_owned()));
    let idle = idle.unwrap();
    make(&busy[0]);
    let until = Instant::now() + HANG_TIMEOUT;
    let topic = loop {
        match bus.topic(TopicSpec::new(&read).unwrap()) {
            Ok(topic) => break topic,
            // Brokers learn of a new topic a little later.
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    let mut readers = [(); 3].map(|()| topic.subscribe(Subscribe::from(Start::Earliest)).unwrap());
    deliver(&plain(cluster), (&read, 0), b"former").unwrap();
    readers.iter_mut().for_each(|reader| read_until(reader, b"former"));
    done(admin.delete_topics(&[&read], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    make(idle);
    cluster.does_to("kill", idle);
    let rival = rival.topic(spec()).unwrap();
    let (until, mut told, mut refused) = (Instant::now() + HANG_TIMEOUT, [false; 3], 0);
    while told.contains(&false) || refused == 0 {
        assert!(Instant::now() < until, "gaps: {told:?}, refused claims: {refused}");
        match rival.publisher() {
            Err(TopicError::Transport(TransportError::Owned { .. })) => refused += 1,
            // One of the brokers is down.
            Err(TopicError::Transport(TransportError::Outage { .. })) => {}
            other => panic!("the owner was declared dead: {:?}", other.map(drop)),
        }
        publisher.publish(Message::new(b"mine")).wait_timeout(HANG_TIMEOUT).unwrap();
        for (reader, told) in readers.iter_mut().zip(&mut told) {
            let event = reader.next_timeout(Duration::from_millis(30)).unwrap();
            *told |= matches!(event, Some(Event::Gap(_)));
        }
    }
    cluster.does_to("restart", idle);
    let after = cluster.bus("after").topic(TopicSpec::new(&read).unwrap()).unwrap();
    publish(&after).unwrap();
    readers.iter_mut().for_each(|reader| read_until(reader, b"mine"));
}

/// A frozen broker. It is thawed when this is dropped, since other tests use the same cluster.
struct Frozen<'a>(&'a Broker, String);

impl<'a> Frozen<'a> {
    fn new(cluster: &'a Broker, node: String) -> Self {
        cluster.does_to("freeze", &node);
        Self(cluster, node)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.does_to("thaw", &self.1);
    }
}

/// A member is assigned partitions while the broker of one does not answer the query of its start.
/// The query is retried until it does, and no sample is repeated or skipped.
#[test]
fn a_rebalance_that_failed_is_tried_again() {
    let Some(cluster) = cluster() else { return };
    let _one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let name = unique("rebalanced").replace('/', "_");
    let topic = NewTopic::new(&name, 3, TopicReplication::Fixed(1));
    done(admin(cluster).create_topics([&topic], &AdminOptions::new())).unwrap();
    let bus = cluster.bus("Mount");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    let publish = |bytes: &[u8], partition| {
        let message = Message::new(bytes).partition(partition);
        publisher.publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
    };
    (0..3).for_each(|partition| publish(b"before", partition));
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let mut read = |wanted: usize| {
        let (until, mut read) = (Instant::now() + HANG_TIMEOUT, Vec::new());
        while read.len() < wanted {
            let left = until.saturating_duration_since(Instant::now());
            match member.next_timeout(left).unwrap() {
                Some(Event::Sample(sample)) => read.push((sample.partition, sample.payload)),
                Some(_) => {}
                None => panic!("{read:?} came"),
            }
        }
        read.sort_unstable();
        (read, member.commit())
    };
    let (first, committed) = read(3);
    assert!(first.iter().all(|(_, payload)| payload[..] == *b"before"), "{first:?}");
    committed.unwrap();
    (0..3).for_each(|partition| publish(b"after", partition));
    // The coordinator must answer meanwhile.
    let coordinator = coordinator(cluster, &format!("{name}.g"));
    let mut leaders = (0..3).map(|partition| leader(cluster, &name, partition));
    let silent = leaders.find(|node| *node != coordinator).unwrap();
    // Opened before: the query of a topic may go to any broker, also the frozen one.
    let second = cluster.bus("second").topic(TopicSpec::new(&name).unwrap()).unwrap();
    let (frozen, began) = (Frozen::new(cluster, silent), Instant::now());
    // A second member joins: both get new assignments while a leader is frozen.
    let second = second.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    // Longer than one attempt: a failed attempt is not observable.
    std::thread::sleep(Duration::from_secs(15).saturating_sub(began.elapsed()));
    drop(frozen);
    drop(second);
    let (rest, _) = read(3);
    assert_eq!(rest.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(rest.iter().all(|(_, payload)| payload[..] == *b"after"), "{rest:?}");
}
