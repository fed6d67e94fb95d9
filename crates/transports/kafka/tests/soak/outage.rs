//! A broker that freezes, dies and returns: the outage is reported and survived, and no call
//! blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::transport::Origin;
use helio_bus::{
    Alive, Bus, Event, GapCause, Guarantee, HeadersRef, Message, Outage, Producer, PublishError,
    Qos, SampleRef, SchemaId, Start, Subscribe, Subscription, Tai, Topic, TopicSpec,
};
use helio_core::ProducerName;
use helio_core::qos::{Liveliness, Overload, Ownership};
use rdkafka::admin::{AdminOptions, NewPartitions};

use crate::support::{Broker, HANG_TIMEOUT, admin, deliver, done, make, plain, unique};

/// The broker of these tests, which freeze and kill it.
fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(|| Broker::start(1)).as_ref()
}

/// One test at a time.
static TEST_LOCK: Mutex<()> = Mutex::new(());

/// Reserves the broker for one test, and thaws it in case the test before failed.
fn alone(broker: &Broker) -> MutexGuard<'static, ()> {
    let one = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    broker.does("thaw");
    one
}

fn until_event(
    subscription: &mut Subscription,
    mut wanted: impl FnMut(&Event) -> bool,
) -> Vec<Event> {
    let until = Instant::now() + HANG_TIMEOUT;
    let mut seen = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let event = subscription.next_timeout(left).unwrap();
        let event = event.unwrap_or_else(|| panic!("it was never told; {seen:?} was"));
        let found = wanted(&event);
        seen.push(event);
        if found {
            return seen;
        }
    }
}

fn payloads(events: &[Event]) -> Vec<Vec<u8>> {
    let samples = events.iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample.payload.to_vec()),
        _ => None,
    });
    samples.collect()
}

fn opened(bus: &Bus, name: &str) -> (helio_bus::Publisher, Subscription) {
    let topic = bus.topic(TopicSpec::new(name).unwrap().qos(Qos::stream())).unwrap();
    let subscription = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    (topic.publisher().unwrap(), subscription)
}

fn is(wanted: &'static [u8]) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Sample(sample) if sample.payload == wanted)
}

fn damaged(event: &Event) -> bool {
    let Event::Gap(gap) = event else { return false };
    matches!(gap.cause, GapCause::Damaged { .. })
}

fn restored(event: &Event) -> bool {
    matches!(event, Event::Outage(Outage::Restored))
}

fn lost(event: &Event) -> bool {
    matches!(event, Event::Outage(Outage::Lost { cause }) if !cause.is_empty())
}

#[test]
fn a_frozen_broker_holds_nobody_up() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let (publisher, mut samples) = opened(&bus, &unique("frozen"));
    publisher.publish(Message::new(b"before")).wait().unwrap();
    until_event(&mut samples, |event| matches!(event, Event::Sample(_)));
    broker.does("freeze");
    let mut pending = Vec::new();
    for n in 0..1_000_u32 {
        pending.push(publisher.publish(Message::new(&n.to_le_bytes())));
        assert!(samples.try_next().unwrap().is_none());
        let _ = samples.stats();
    }
    until_event(&mut samples, lost);
    assert!(pending.iter().all(|one| one.outcome().is_none()), "something was acknowledged");
    pending.push(publisher.publish(Message::new(b"while it is told")));
    let accepted = Message::new(b"accepted").guarantee(Guarantee::Accepted);
    publisher.publish(accepted).wait_timeout(HANG_TIMEOUT).unwrap();
    // All of these calls have returned while the broker was frozen.
    broker.does("thaw");
    for one in pending {
        one.wait_timeout(HANG_TIMEOUT).unwrap();
    }
    let seen = until_event(
        &mut samples,
        |event| matches!(event, Event::Sample(sample) if sample.payload[..] == *b"accepted"),
    );
    assert_eq!(payloads(&seen).len(), 1_002, "each came once");
    assert_eq!(samples.stats().lost, 0);
}

/// It froze so recently that nobody has noticed.
#[test]
fn closing_does_not_wait_long_for_a_broker_that_froze() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let (publisher, _samples) = opened(&bus, &unique("closing"));
    publisher.publish(Message::new(b"before")).wait().unwrap();
    broker.does("freeze");
    let began = Instant::now();
    bus.close();
    let took = began.elapsed();
    broker.does("thaw");
    assert!(took < Duration::from_secs(8), "closing took {took:?}");
}

#[test]
fn a_record_above_the_topics_own_limit_is_refused_with_its_size() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let name = unique("small").replace('/', "_");
    make(&admin(broker), &name, &[("max.message.bytes", "100000")]);
    let topic = broker.bus("Mount").topic(TopicSpec::new(&name).unwrap()).unwrap();
    let payload: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let refused = topic.publisher().unwrap().publish(Message::new(&payload).key(b"key"));
    let told = refused.wait_timeout(HANG_TIMEOUT).unwrap_err().to_string();
    assert!(told.contains("300003 bytes") && told.contains("max.message.bytes"), "{told}");
}

#[test]
fn a_broker_that_was_killed_comes_back() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let (publisher, mut samples) = opened(&bus, &unique("killed"));
    publisher.publish(Message::new(b"before")).wait().unwrap();
    until_event(&mut samples, |event| matches!(event, Event::Sample(_)));
    broker.does("kill");
    let down = publisher.publish(Message::new(b"down"));
    until_event(&mut samples, lost);
    broker.does("restart");
    down.wait_timeout(HANG_TIMEOUT).unwrap();
    let (mut came, mut ended) = (false, false);
    until_event(&mut samples, |event| {
        came |= is(b"down")(event);
        ended |= restored(event);
        came && ended
    });
    assert_eq!(samples.stats().lost, 0);
}

/// The leader epochs of the new topic start again below those of the former one. Clients must not
/// ignore them as stale.
#[test]
fn a_topic_that_is_made_anew_after_its_leader_has_changed_is_read_on() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let (admin, name) = (admin(broker), unique("anew").replace('/', "_"));
    make(&admin, &name, &[]);
    let bus = broker.bus("reader");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let mut reader = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    // All consumers of this bus shall have read the first topic, also those of history.
    let newest = || topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let publisher = broker.bus("before").topic(TopicSpec::new(&name).unwrap()).unwrap();
    let publisher = publisher.publisher().unwrap();
    for payload in [b"one", b"two"] {
        publisher.publish(Message::new(payload)).wait_timeout(HANG_TIMEOUT).unwrap();
    }
    until_event(&mut reader, is(b"two"));
    until_event(&mut member, is(b"two"));
    broker.does("kill");
    until_event(&mut reader, lost);
    broker.does("restart");
    publisher.publish(Message::new(b"restarted")).wait_timeout(HANG_TIMEOUT).unwrap();
    until_event(&mut reader, is(b"restarted"));
    until_event(&mut member, is(b"restarted"));
    until_event(&mut newest(), is(b"restarted"));
    drop(publisher);
    done(admin.delete_topics(&[&name], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    make(&admin, &name, &[]);
    let publisher = broker.bus("after").topic(TopicSpec::new(&name).unwrap()).unwrap();
    publisher
        .publisher()
        .unwrap()
        .publish(Message::new(b"new"))
        .wait_timeout(HANG_TIMEOUT)
        .unwrap();
    // A new reader must not wait until the recreation is detected.
    let mut later = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    for reads in [&mut later, &mut newest(), &mut reader, &mut member] {
        let seen = until_event(reads, is(b"new"));
        assert_eq!(payloads(&seen), [b"new"]);
    }
}

/// A truncation that a reader has detected must not hide a later recreation of the topic.
#[test]
fn a_topic_that_is_made_anew_after_its_log_was_cut_is_read_from_its_first_record() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let admin = admin(broker);
    let [name, other] = ["cut", "other"].map(|base| unique(base).replace('/', "_"));
    let bus = broker.bus("reader");
    let [mut reader, mut looks] = [&name, &other].map(|name| {
        make(&admin, name, &[]);
        let topic = bus.topic(TopicSpec::new(name).unwrap()).unwrap();
        topic.subscribe(Subscribe::from(Start::Earliest)).unwrap()
    });
    let producer = plain(broker);
    for payload in [b"1", b"2", b"3", b"4"] {
        deliver(&producer, (&name, 0), payload).unwrap();
    }
    until_event(&mut reader, is(b"4"));
    broker.does("kill");
    broker.cut(&name);
    broker.does("restart");
    for payload in [b"a", b"b", b"c", b"d"] {
        deliver(&producer, (&name, 0), payload).unwrap();
    }
    let seen = until_event(&mut reader, is(b"d"));
    assert!(seen.iter().any(damaged), "{seen:?}");
    // No check has run meanwhile, so both outage events are still pending.
    for wanted in [lost, restored] {
        until_event(&mut looks, wanted);
    }
    // One check covers all topics: when it finds this one's new partition, it also finds the other
    // one unchanged.
    let more = NewPartitions::new(&other, 2);
    done(admin.create_partitions([&more], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    let late = Instant::now() + HANG_TIMEOUT;
    while let Err(error) = deliver(&producer, (&other, 1), b"there") {
        assert!(Instant::now() < late, "{error}");
    }
    until_event(&mut looks, is(b"there"));
    done(admin.delete_topics(&[&name], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    make(&admin, &name, &[]);
    deliver(&plain(broker), (&name, 0), b"new").unwrap();
    let seen = until_event(&mut reader, is(b"new"));
    assert_eq!(payloads(&seen), [b"new"]);
    assert!(seen.iter().any(damaged), "{seen:?}");
}

#[test]
fn a_publish_that_nobody_takes_fails_in_its_time() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = Bus::connect(&broker.url("message.timeout.ms=2000")).unwrap();
    let (publisher, mut samples) = opened(&bus, &unique("timeout"));
    publisher.publish(Message::new(b"before")).wait().unwrap();
    broker.does("freeze");
    let failed = publisher.publish(Message::new(b"lost")).wait_timeout(HANG_TIMEOUT);
    assert!(matches!(failed, Err(PublishError::Unknown { .. })), "{failed:?}");
    broker.does("thaw");
    let after = publisher.publish(Message::new(b"after")).wait_timeout(HANG_TIMEOUT);
    assert_eq!(after.unwrap().sequence, 3);
    until_event(
        &mut samples,
        |event| matches!(event, Event::Sample(sample) if sample.payload[..] == *b"after"),
    );
}

#[test]
fn a_full_queue_refuses_and_lets_those_in_line_go_on() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = Bus::connect(&broker.url("queue.buffering.max.messages=10")).unwrap();
    let name = unique("full");
    let (blocking, mut samples) = opened(&bus, &name);
    let refusing = Qos { overload: helio_core::qos::Overload::Refuse, ..Qos::stream() };
    let spec = TopicSpec::new(&unique("refusing")).unwrap().qos(refusing);
    let refusing = bus.topic(spec).unwrap().publisher().unwrap();
    broker.does("freeze");
    let line: Vec<_> =
        (0..100_u32).map(|n| blocking.publish(Message::new(&n.to_le_bytes()))).collect();
    let refused = refusing.publish(Message::new(b"x")).wait_timeout(HANG_TIMEOUT);
    assert!(matches!(refused, Err(PublishError::Full { queued: 10, .. })), "{refused:?}");
    broker.does("thaw");
    for one in line {
        one.wait_timeout(HANG_TIMEOUT).unwrap();
    }
    let last = 99_u32.to_le_bytes();
    let seen = until_event(
        &mut samples,
        |event| matches!(event, Event::Sample(sample) if sample.payload[..] == last),
    );
    let expected: Vec<_> = (0..100_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(payloads(&seen), expected);
}

#[test]
fn many_exclusive_writers_do_not_keep_an_outage_from_being_noticed() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let (base, qos) = (unique("many"), Qos { ownership: Ownership::Exclusive, ..Qos::stream() });
    let open = |n| {
        let spec = TopicSpec::new(&format!("{base}/{n}")).unwrap().qos(qos.clone());
        bus.topic(spec).unwrap()
    };
    let topics: Vec<_> = (0..8).map(open).collect();
    let publishers: Vec<_> = topics.iter().map(|topic| topic.publisher().unwrap()).collect();
    for publisher in &publishers {
        publisher.publish(Message::new(b"before")).wait().unwrap();
    }
    let mut samples = topics[0].subscribe(Subscribe::from(Start::Earliest)).unwrap();
    until_event(&mut samples, |event| matches!(event, Event::Sample(_)));
    broker.does("freeze");
    let began = Instant::now();
    let seen = loop {
        // A query of the writers does not queue behind calls that wait for the broker.
        match topics[0].writers() {
            Err(error) => assert!(error.is_outage(), "{error}"),
            Ok(writers) => assert_eq!(writers[0].alive, Some(Alive::Yes)),
        }
        if let Some(event) = samples.next_timeout(Duration::from_millis(100)).unwrap() {
            break event;
        }
        assert!(began.elapsed() < HANG_TIMEOUT, "the outage is not noticed");
    };
    broker.does("thaw");
    assert!(lost(&seen), "{seen:?}");
}

/// The owner asserts its liveliness all the time; its heartbeats arrive after the outage.
#[test]
fn nobody_is_told_that_a_lease_ran_out_in_an_outage() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let [bus, other] = ["Mount", "watcher"].map(|name| broker.bus(name));
    let lease = Duration::from_secs(4);
    let (ownership, liveliness) = (Ownership::Exclusive, Liveliness::Lease(lease));
    let (name, qos) = (unique("leased"), Qos { ownership, liveliness, ..Qos::stream() });
    let open = |bus: &Bus| bus.topic(TopicSpec::new(&name).unwrap().qos(qos.clone())).unwrap();
    let (publisher, topic) = (open(&bus).publisher().unwrap(), open(&other));
    let watched = Subscribe::from(Start::Latest).watch_writers();
    let mut samples = topic.subscribe(watched).unwrap();
    let told = |event: &Event| match event {
        Event::Liveliness(told) => Some(told.alive),
        _ => None,
    };
    let seen = until_event(&mut samples, |event| told(event).is_some());
    assert_eq!(seen.iter().filter_map(told).collect::<Vec<_>>(), [Alive::Yes]);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // It fails while the broker does not answer.
                let _ = publisher.assert_alive();
                std::thread::sleep(lease / 8);
            }
        });
        broker.does("freeze");
        let mut seen = until_event(&mut samples, lost);
        // Longer than the lease, from the report of the outage.
        let over = Instant::now() + lease * 2;
        while let Some(left) = over.checked_duration_since(Instant::now()) {
            seen.extend(samples.next_timeout(left).unwrap());
        }
        let unknown = topic.writers().unwrap_err();
        assert!(unknown.is_outage(), "{unknown}");
        broker.does("thaw");
        let back = |event: &Event| matches!(event, Event::Outage(Outage::Restored));
        seen.extend(until_event(&mut samples, back));
        let over = Instant::now() + lease * 2;
        while let Some(left) = over.checked_duration_since(Instant::now()) {
            seen.extend(samples.next_timeout(left).unwrap());
        }
        ended.store(true, Ordering::Relaxed);
        assert_eq!(seen.iter().find_map(told), None, "{seen:?}");
    });
    assert_eq!(topic.writers_within(HANG_TIMEOUT).unwrap()[0].alive, Some(Alive::Yes));
}

/// Samples are delivered while the bus is being closed and their writer's ownership is
/// unconfirmed.
#[test]
fn receipts_that_wait_for_a_look_come_when_the_bus_is_closed() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let liveliness = Liveliness::Lease(Duration::from_secs(4));
    let (ownership, overload) = (Ownership::Exclusive, Overload::Refuse);
    let qos = Qos { ownership, liveliness, overload, ..Qos::stream() };
    let spec = TopicSpec::new(&unique("closed")).unwrap().qos(qos);
    let topic = bus.topic(spec).unwrap();
    let publisher = topic.publisher().unwrap();
    let mut pending = Vec::new();
    std::thread::scope(|scope| {
        let frozen = scope.spawn(|| broker.does("freeze"));
        // Refused after three quarters of the lease, before the outage is detected.
        loop {
            let publishing = publisher.publish(Message::new(b"under way"));
            match publishing.outcome() {
                Some(Err(PublishError::Full { .. })) if frozen.is_finished() => break,
                Some(_) => {}
                None => pending.push(publishing),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(pending.iter().any(|one| one.outcome().is_none()), "nothing is under way");
        scope.spawn(|| bus.close());
        broker.does("thaw");
    });
    for publishing in pending {
        let outcome = publishing.wait_timeout(HANG_TIMEOUT);
        // Unknown if the broker did not return in time.
        assert!(matches!(outcome, Ok(_) | Err(PublishError::Unknown { .. })), "{outcome:?}");
    }
}

#[test]
fn a_group_commits_goes_and_comes_while_a_broker_is_frozen() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("reader");
    let name = unique("commits");
    let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::stream())).unwrap();
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(b"one")).wait().unwrap();
    let member = || topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let mut first = member();
    until_event(&mut first, |event| matches!(event, Event::Sample(_)));
    first.commit().unwrap();
    broker.does("freeze");
    // Both return while the broker is frozen.
    assert!(first.commit().is_err());
    drop(first);
    broker.does("thaw");
    publisher.publish(Message::new(b"two")).wait_timeout(HANG_TIMEOUT).unwrap();
    let mut second = member();
    let seen = until_event(&mut second, |event| matches!(event, Event::Sample(_)));
    assert_eq!(payloads(&seen), [b"two"], "the first commit has arrived");
}

#[test]
fn writers_that_promise_little_are_told_apart_all_the_same() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    for acks in ["acks=0", "acks=1"] {
        let name = unique("weak");
        let qos = Qos { guarantee: Guarantee::Accepted, ..Qos::stream() };
        let connect = || {
            let bus = Bus::builder().producer("Mount").connect(&broker.url(acks)).unwrap();
            let spec = TopicSpec::new(&name).unwrap().qos(qos.clone());
            let topic = bus.topic(spec).unwrap();
            (bus, topic)
        };
        let (_reading, topic) = connect();
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        for payload in [b"one", b"two"] {
            let (bus, topic) = connect();
            let publisher = topic.publisher().unwrap();
            publisher.publish(Message::new(payload)).wait().unwrap();
            bus.close();
        }
        let seen = until_event(
            &mut samples,
            |event| matches!(event, Event::Sample(sample) if sample.payload[..] == *b"two"),
        );
        assert_eq!(payloads(&seen), [b"one", b"two"], "{acks}");
    }
}

/// A producer of another bus, as a bridge has it: its incarnation is older than any owner's here.
fn far() -> Producer {
    Producer { name: ProducerName::new("Far").unwrap(), incarnation: 1 }
}

fn sample<'a>(producer: &'a Producer, sequence: u64, payload: &'a [u8]) -> SampleRef<'a> {
    SampleRef {
        partition: 0,
        offset: 0,
        key: b"",
        producer,
        sequence,
        time: Tai::from_nanos(0),
        schema: SchemaId::BYTES,
        level: 0,
        trace: None,
        headers: HeadersRef::EMPTY,
        payload,
        origin: Origin::Log,
        pin: None,
    }
}

/// Publishes a sample as a bridge does.
fn forwarded(topic: &Topic, sequence: u64) {
    let (producer, payload) = (far(), sequence.to_le_bytes());
    let mut forwarder = topic.forwarder(&producer, 0).unwrap();
    let sample = sample(&producer, sequence, &payload);
    forwarder.forward(&sample, HeadersRef::EMPTY).unwrap().wait_timeout(HANG_TIMEOUT).unwrap();
}

#[test]
fn a_bus_whose_broker_stands_still_is_closed_and_each_receipt_is_told() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let bus = broker.bus("Mount");
    let opened = |ownership| {
        let qos = Qos { ownership, ..Qos::stream() };
        bus.topic(TopicSpec::new(&unique("closed")).unwrap().qos(qos)).unwrap()
    };
    let [shared, own] = [Ownership::Shared, Ownership::Exclusive].map(opened);
    let publishers = [&shared, &own].map(|topic| topic.publisher().unwrap());
    for publisher in &publishers {
        publisher.publish(Message::new(b"before")).wait_timeout(HANG_TIMEOUT).unwrap();
    }
    // Not before the writers: a plain client whose broker is out of its cluster may never recover.
    let admin = admin(broker);
    // Forwarders have a producer for each of these batch sizes.
    let far = far();
    let mut forwarders = ["1048588", "300000", "100000", "20000"].map(|bytes| {
        let name = unique("far").replace('/', "_");
        make(&admin, &name, &[("max.message.bytes", bytes)]);
        bus.topic(TopicSpec::new(&name).unwrap()).unwrap().forwarder(&far, 0).unwrap()
    });
    broker.does("freeze");
    let mut pending: Vec<_> =
        publishers.iter().map(|one| one.publish(Message::new(b"under way"))).collect();
    for forwarder in &mut forwarders {
        let under_way = sample(&far, 1, b"under way");
        pending.push(forwarder.forward(&under_way, HeadersRef::EMPTY).unwrap());
    }
    // It returns while the broker is frozen.
    bus.close();
    let outcomes = pending.iter().map(|one| one.outcome().map(|told| told.map(drop)));
    let outcomes: Vec<_> = outcomes.collect();
    broker.does("thaw");
    let unknown = |told: &Option<Result<(), PublishError>>| {
        matches!(told, Some(Err(PublishError::Unknown { .. })))
    };
    assert!(outcomes.iter().all(unknown), "{outcomes:?}");
}

#[test]
fn a_bridged_owner_is_read_though_the_broker_did_not_say_so_once() {
    let Some(broker) = broker() else { return };
    let _one = alone(broker);
    let [native, bridge, reading] = ["Mount", "bridge", "reader"].map(|name| broker.bus(name));
    let name = unique("bridged");
    let opened = |bus: &Bus, name: &str| {
        let qos = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
        bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
    };
    // Another topic gets the first incarnation of all.
    drop(opened(&native, &unique("first")).publisher().unwrap());
    let publisher = opened(&native, &name).publisher().unwrap();
    assert!(publisher.producer().incarnation > 1);
    let mut samples = opened(&reading, &name).subscribe(Subscribe::from(Start::Latest)).unwrap();
    publisher.publish(Message::new(b"own")).wait().unwrap();
    until_event(&mut samples, |event| matches!(event, Event::Sample(_)));
    native.close();
    let topic = opened(&bridge, &name);
    let is = |number: u64| {
        let payload = number.to_le_bytes();
        move |event: &Event| matches!(event, Event::Sample(it) if it.payload[..] == payload)
    };
    forwarded(&topic, 1);
    // The sample has arrived and was not polled yet.
    assert!(samples.wait_until(Instant::now().checked_add(HANG_TIMEOUT)).unwrap());
    broker.does("freeze");
    let first = samples.try_next().unwrap();
    assert!(first.is_none(), "{first:?} came without a query");
    until_event(&mut samples, is(1));
    broker.does("thaw");
    forwarded(&topic, 2);
    until_event(&mut samples, is(2));
    assert_eq!(samples.stats().fenced, 0);
}
