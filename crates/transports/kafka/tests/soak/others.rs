//! Changes of topics by other programs: transactions, retention, recreation, more partitions,
//! codecs. Every loss is reported, and nothing else counts as a loss.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Gap, GapCause, Message, Outage, Qos, Start, Subscribe, Subscription, Tai, TopicSpec,
};
use rdkafka::admin::{AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::support::{
    Admin, Broker, HANG_TIMEOUT, admin, broker, config, deliver, done, make, plain, unique,
};

fn send(producer: &BaseProducer, topic: &str, payloads: &[&[u8]]) {
    for payload in payloads {
        let record = BaseRecord::<[u8], [u8]>::to(topic).key(b"k").payload(payload).partition(0);
        producer.send(record).unwrap();
    }
    producer.flush(HANG_TIMEOUT).unwrap();
}

/// Writes the first samples of a recreated topic.
fn begin(broker: &Broker, topic: &str, payloads: &[&[u8]]) {
    let producer = plain(broker);
    for (offset, payload) in (0..).zip(payloads) {
        assert_eq!(deliver(&producer, (topic, 0), payload), Ok(offset));
    }
}

fn open(bus: &Bus, name: &str) -> helio_bus::Topic {
    let until = Instant::now() + HANG_TIMEOUT;
    loop {
        match bus.topic(TopicSpec::new(name).unwrap()) {
            Ok(topic) => return topic,
            // Brokers learn of a new topic a little later.
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

/// The payloads up to one, and all other events.
fn until(subscription: &mut Subscription, last: &[u8]) -> (Vec<Vec<u8>>, Vec<Event>) {
    let until = Instant::now() + HANG_TIMEOUT;
    let (mut payloads, mut others) = (Vec::<Vec<u8>>::new(), Vec::new());
    while payloads.last().is_none_or(|payload| payload != last) {
        let left = until.saturating_duration_since(Instant::now());
        match subscription.next_timeout(left).unwrap() {
            Some(Event::Sample(sample)) => payloads.push(sample.payload.to_vec()),
            Some(other) => others.push(other),
            None => panic!("{payloads:?} and {others:?} came"),
        }
    }
    (payloads, others)
}

/// The next event of a kind.
fn event(subscription: &mut Subscription, mut wanted: impl FnMut(&Event) -> bool) -> Event {
    loop {
        let event = subscription.next_timeout(HANG_TIMEOUT).unwrap().expect("it is told");
        if wanted(&event) {
            return event;
        }
    }
}

fn gaps(events: &[Event]) -> Vec<&Gap> {
    events.iter().filter_map(|e| if let Event::Gap(gap) = e { Some(gap) } else { None }).collect()
}

#[test]
fn marks_of_transactions_are_no_losses_and_hold_nobody_up() {
    let Some(broker) = broker() else { return };
    let (bus, name) = (broker.bus("reader"), unique("transactions").replace('/', "_"));
    let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::event())).unwrap();
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(b"ours").key(b"ours")).wait().unwrap();
    let id = format!("id-{name}");
    let foreign: BaseProducer = config(broker).set("transactional.id", &id).create().unwrap();
    foreign.init_transactions(HANG_TIMEOUT).unwrap();
    for (payload, is_kept) in [(b"one", true), (b"not", false), (b"two", true)] {
        foreign.begin_transaction().unwrap();
        send(&foreign, &name, &[payload]);
        let end = if is_kept {
            foreign.commit_transaction(HANG_TIMEOUT)
        } else {
            foreign.abort_transaction(HANG_TIMEOUT)
        };
        end.unwrap();
    }
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    // The last record is a marker: a history scan must not wait for a sample behind it.
    let mut last = topic.subscribe(Subscribe::from(Start::Last(2))).unwrap();
    let (payloads, others) = until(&mut last, b"two");
    assert_eq!((payloads.len(), others.len()), (3, 0), "{payloads:?} {others:?}");
    publisher.publish(Message::new(b"end").key(b"ours")).wait().unwrap();
    let (payloads, others) = until(&mut all, b"end");
    assert_eq!(payloads, [&b"ours"[..], b"one", b"two", b"end"]);
    assert!(others.is_empty(), "{others:?}");
    assert_eq!((all.stats().lost, all.stats().lag), (0, 0));
}

#[test]
fn who_has_passed_the_marks_behind_the_last_sample_is_at_the_end() {
    let Some(broker) = broker() else { return };
    let (bus, name) = (broker.bus("reader"), unique("marked").replace('/', "_"));
    let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::event())).unwrap();
    let id = format!("id-{name}");
    let foreign: BaseProducer = config(broker).set("transactional.id", &id).create().unwrap();
    foreign.init_transactions(HANG_TIMEOUT).unwrap();
    let transaction = |payloads: &[&[u8]], is_kept: bool| {
        foreign.begin_transaction().unwrap();
        send(&foreign, &name, payloads);
        let end = match is_kept {
            true => foreign.commit_transaction(HANG_TIMEOUT),
            false => foreign.abort_transaction(HANG_TIMEOUT),
        };
        end.unwrap();
    };
    transaction(&[b"one", b"two"], true);
    transaction(&[b"not"], false);
    // Two samples, an aborted one, and a marker behind each transaction, which comes a bit later.
    let (end, late) = (5, Instant::now() + HANG_TIMEOUT);
    while topic.partitions().unwrap()[0].end < end {
        assert!(Instant::now() < late, "the marks do not come");
    }
    let reads_to_the_end = |samples: &mut Subscription, expected: &[&[u8]]| {
        let (mut come, late) = (Vec::new(), Instant::now() + HANG_TIMEOUT);
        loop {
            match samples.try_next().unwrap() {
                Some(Event::Sample(sample)) => come.push(sample.payload.to_vec()),
                Some(other) => panic!("{other:?}"),
                None if samples.positions()[0].next >= end => break,
                None => assert!(samples.wait_until(Some(late)).unwrap(), "{come:?} came"),
            }
        }
        assert_eq!(come, expected);
        assert_eq!((samples.stats().lost, samples.stats().lag), (0, 0));
    };
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    reads_to_the_end(&mut all, &[b"one", b"two"]);
    let mut marks =
        topic.subscribe(Subscribe::from(Start::Offset { partition: 0, offset: 2 })).unwrap();
    reads_to_the_end(&mut marks, &[]);
    // After a seek back, the markers count as unread.
    all.seek(0, 1).unwrap();
    assert_eq!(all.positions()[0].next, 1);
    reads_to_the_end(&mut all, &[b"two"]);
    transaction(&[b"three"], true);
    for samples in [&mut all, &mut marks] {
        let (payloads, others) = until(samples, b"three");
        assert_eq!((payloads.len(), others.len()), (1, 0), "{payloads:?} {others:?}");
    }
}

#[test]
fn a_topic_that_was_deleted_and_made_anew_is_read_from_its_first_record() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("anew").replace('/', "_"));
    make(&admin, &name, &[]);
    let bus = broker.bus("reader");
    let topic = open(&bus, &name);
    let mut reader = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let producer: BaseProducer = config(broker).create().unwrap();
    send(&producer, &name, &[b"1", b"2", b"3", b"4", b"old"]);
    until(&mut reader, b"old");
    until(&mut member, b"old");
    member.commit().unwrap();
    drop(member);
    remake(&admin, &name);
    begin(broker, &name, &[b"first", b"new"]);
    let (payloads, others) = until(&mut reader, b"new");
    assert_eq!(payloads, [&b"first"[..], b"new"]);
    let told = gaps(&others);
    assert!(
        matches!(told[..], [Gap { lost: 0, cause: GapCause::Damaged { to: 5, .. }, .. }]),
        "{told:?}"
    );
    // Brokers delete a group's positions with the topic.
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let (payloads, _) = until(&mut member, b"new");
    assert_eq!(payloads, [&b"first"[..], b"new"]);
}

/// Deletes a topic and recreates it with one partition.
fn remake(admin: &Admin, name: &str) {
    done(admin.delete_topics(&[name], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    make(admin, name, &[]);
}

/// The reader's consumer has fetched ahead and fetches nothing meanwhile, so that it does not
/// detect the recreation: it would continue in the new topic at its position in the former one.
#[test]
fn what_lies_before_a_readers_place_in_a_topic_made_anew_comes_too() {
    let Some(broker) = broker() else { return };
    let admin = admin(broker);
    let names = ["ours", "foreign"].map(|base| unique(base).replace('/', "_"));
    let bus =
        Bus::connect(&broker.url("queued.min.messages=1&queued.max.messages.kbytes=1")).unwrap();
    let producer: BaseProducer = config(broker).create().unwrap();
    let mut readers = names.each_ref().map(|name| {
        make(&admin, name, &[]);
        let mut reader = open(&bus, name).subscribe(Subscribe::from(Start::Earliest)).unwrap();
        send(&producer, name, &[b"1", b"2", b"3", b"4", b"5"]);
        until(&mut reader, b"5");
        send(&producer, name, &[b"ahead"]);
        let late = Instant::now() + HANG_TIMEOUT;
        while reader.positions()[0].end < 6 {
            assert!(Instant::now() < late, "it is not fetched");
            std::thread::sleep(Duration::from_millis(5));
        }
        reader
    });
    let new: Vec<_> = (0..20).map(|n| format!("new {n}").into_bytes()).collect();
    names.iter().for_each(|name| remake(&admin, name));
    // A producer that is new to the reader, and a plain client.
    let publisher = open(&broker.bus("after"), &names[0]).publisher().unwrap();
    for payload in &new {
        publisher.publish(Message::new(payload)).wait_timeout(HANG_TIMEOUT).unwrap();
    }
    begin(broker, &names[1], &new.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (reader, name) in readers.iter_mut().zip(&names) {
        let (mut payloads, mut told) = (BTreeSet::new(), Vec::new());
        while !new.iter().all(|payload| payloads.contains(payload)) {
            match reader.next_timeout(HANG_TIMEOUT).unwrap() {
                Some(Event::Sample(sample)) => _ = payloads.insert(sample.payload.to_vec()),
                Some(Event::Gap(gap)) => told.push(gap),
                Some(Event::Outage(_)) => {}
                other => panic!("{name}: {other:?} behind {payloads:?} and {told:?}"),
            }
        }
        let damaged = |gap: &Gap| matches!(gap.cause, GapCause::Damaged { .. }) && gap.lost == 0;
        assert!(told.len() == 1 && told.iter().all(damaged), "{name}: {told:?}");
    }
}

#[test]
fn a_topic_made_anew_with_fewer_partitions_is_read_as_far_as_it_goes() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("narrower").replace('/', "_"));
    let wide = NewTopic::new(&name, 3, TopicReplication::Fixed(1));
    done(admin.create_topics([&wide], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    let (bus, producer) = (broker.bus("reader"), plain(broker));
    let topic = open(&bus, &name);
    for partition in 0..3 {
        deliver(&producer, (&name, partition), b"old").unwrap();
    }
    // These two are not polled before the topic is recreated.
    let mut unread = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut last = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let mut one = topic.subscribe(Subscribe::from(Start::Earliest).partitions([2])).unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    until(&mut one, b"old");
    (0..3).for_each(|_| _ = event(&mut all, |event| matches!(event, Event::Sample(_))));
    remake(&admin, &name);
    begin(broker, &name, &[b"new"]);
    // Only a reader with another consumer reports a partition without records.
    event(&mut all, |event| matches!(event, Event::Gap(gap) if gap.partition == 2));
    let partitions = all.positions().iter().map(|at| at.partition).collect::<Vec<_>>();
    assert_eq!(partitions, [0]);
    for reader in [&mut unread, &mut last] {
        let (payloads, others) = until(reader, b"new");
        assert_eq!(payloads, [b"new"]);
        assert_eq!(gaps(&others).len(), 3, "{others:?}");
    }
    event(
        &mut one,
        |event| matches!(event, Event::Outage(Outage::Lost { cause }) if cause.contains("[2]")),
    );
    let more = NewPartitions::new(&name, 3);
    done(admin.create_partitions([&more], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    let late = Instant::now() + HANG_TIMEOUT;
    while let Err(error) = deliver(&producer, (&name, 2), b"again") {
        assert!(Instant::now() < late, "{error}");
    }
    let (payloads, _) = until(&mut one, b"again");
    assert_eq!(payloads, [b"again"]);
    event(&mut one, |event| matches!(event, Event::Outage(Outage::Restored)));
}

/// A group's committed position in the first partition, and its metadata.
fn position(broker: &Broker, name: &str, group: &str) -> (Offset, String) {
    let group = format!("{name}.{group}");
    let consumer: BaseConsumer = config(broker).set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(name, 0);
    let told = consumer.committed_offsets(list, HANG_TIMEOUT).unwrap();
    let place = &told.elements()[0];
    (place.offset(), place.metadata().to_owned())
}

#[test]
fn what_a_member_commits_of_a_former_topic_is_not_a_place_in_the_next() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("late").replace('/', "_"));
    make(&admin, &name, &[]);
    let producer: BaseProducer = config(broker).create().unwrap();
    send(&producer, &name, &[b"1", b"2", b"3"]);
    let bus = broker.bus("member");
    let group = |start| Subscribe::from(start).group("g");
    let mut member = open(&bus, &name).subscribe(group(Start::Earliest)).unwrap();
    until(&mut member, b"3");
    remake(&admin, &name);
    let new: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    begin(broker, &name, &new);
    member.commit().unwrap();
    drop(member);
    assert_eq!(position(broker, &name, "g").0, Offset::Offset(3));
    let next = broker.bus("next");
    let topic = open(&next, &name);
    assert!(topic.committed("g").unwrap().is_empty());
    // The group has read nothing of the new topic, whatever start a member requests.
    let behind = Start::Time(Tai::from_unix_nanos(4_000_000_000_000_000_000));
    for start in [Start::Latest, behind, Start::Earliest] {
        let mut member = topic.subscribe(group(start)).unwrap();
        let (payloads, _) = until(&mut member, b"e");
        assert_eq!(payloads, new);
        if start == Start::Earliest {
            member.commit().unwrap();
        }
    }
    assert_eq!(topic.committed("g").unwrap(), [(0, 5)]);
    let mut member = topic.subscribe(group(Start::Earliest)).unwrap();
    assert_eq!(deliver(&plain(broker), (&name, 0), b"f"), Ok(5));
    assert_eq!(until(&mut member, b"f").0, [b"f"]);
}

/// Without the identifier, its position would count in the next topic of the name.
#[test]
fn a_member_that_was_there_before_its_topic_commits_which_one_it_is() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("early").replace('/', "_"));
    make(&admin, &name, &[]);
    let often = broker.url("topic.metadata.refresh.interval.ms=200");
    let bus = Bus::connect(&often).unwrap();
    let topic = open(&bus, &name);
    done(admin.delete_topics(&[&name], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    let late = Instant::now() + HANG_TIMEOUT;
    let is_there = || {
        let all = admin.inner().fetch_metadata(None, HANG_TIMEOUT).unwrap();
        all.topics().iter().any(|topic| topic.name() == name)
    };
    while is_there() {
        assert!(Instant::now() < late, "it is not deleted");
    }
    let mut member = topic.subscribe(Subscribe::from(Start::Latest).group("g")).unwrap();
    make(&admin, &name, &[]);
    let payloads: [&[u8]; 2] = [b"1", b"2"];
    begin(broker, &name, &payloads);
    assert_eq!(until(&mut member, b"2").0, payloads);
    member.commit().unwrap();
    let (offset, note) = position(broker, &name, "g");
    assert!(offset == Offset::Offset(2) && note.starts_with("topic="), "{offset:?} {note}");
}

/// The clients refresh metadata often and accept at once that a topic is missing. With the defaults
/// this takes half a minute.
#[test]
fn readers_wait_for_a_topic_that_is_deleted_and_go_on_with_the_next_of_its_name() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("gone").replace('/', "_"));
    make(&admin, &name, &[]);
    let impatient = "topic.metadata.refresh.interval.ms=200&topic.metadata.propagation.max.ms=1";
    let bus = Bus::connect(&broker.url(impatient)).unwrap();
    let topic = open(&bus, &name);
    let mut reader = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let producer: BaseProducer = config(broker).create().unwrap();
    send(&producer, &name, &[b"1", b"2", b"old"]);
    until(&mut reader, b"old");
    until(&mut member, b"old");
    done(admin.delete_topics(&[&name], &AdminOptions::new())).unwrap();
    for reads in [&mut reader, &mut member] {
        let told = event(reads, |event| matches!(event, Event::Outage(_)));
        let Event::Outage(Outage::Lost { cause }) = told else { panic!("{told:?}") };
        assert!(cause.contains(&name) && cause.contains("deleted"), "{cause}");
    }
    make(&admin, &name, &[]);
    begin(broker, &name, &[b"first", b"new"]);
    for reads in [&mut reader, &mut member] {
        let (payloads, others) = until(reads, b"new");
        assert_eq!(payloads, [&b"first"[..], b"new"]);
        let restored = |event: &Event| matches!(event, Event::Outage(Outage::Restored));
        assert!(others.iter().any(restored), "{others:?}");
    }
}

#[test]
fn what_retention_takes_from_a_topic_of_others_is_told() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("retained").replace('/', "_"));
    make(&admin, &name, &[("segment.ms", "100"), ("retention.ms", "-1")]);
    let producer: BaseProducer = config(broker).create().unwrap();
    send(&producer, &name, &[b"0", b"1", b"2"]);
    let bus =
        Bus::connect(&broker.url("queued.min.messages=1&queued.max.messages.kbytes=1")).unwrap();
    let topic = open(&bus, &name);
    // It starts among records that retention will delete.
    let mut reader = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    assert!(reader.try_next().unwrap().is_none());
    let first = Instant::now() + HANG_TIMEOUT;
    broker.set(&name, "retention.ms", "1");
    // A segment is closed by a write.
    while topic.partitions().unwrap()[0].first < 3 {
        send(&producer, &name, &[b"filler"]);
        assert!(Instant::now() < first, "retention takes nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    broker.set(&name, "retention.ms", "-1");
    let at = topic.partitions().unwrap()[0].first;
    reader.seek(0, 1).unwrap();
    send(&producer, &name, &[b"end"]);
    let (_, others) = until(&mut reader, b"end");
    let told = gaps(&others);
    let expected = Gap::retention(0, 1, at);
    assert_eq!(told, [&expected]);
    assert_eq!(reader.stats().lost, at - 1);
}

#[test]
fn partitions_that_others_add_are_read_from_their_first_record() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("wider").replace('/', "_"));
    make(&admin, &name, &[]);
    // A member learns of it from its own client's metadata, refreshed at this interval.
    let bus = Bus::connect(&broker.url("topic.metadata.refresh.interval.ms=500")).unwrap();
    let topic = open(&bus, &name);
    let mut reader = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let mut member = topic.subscribe(Subscribe::from(Start::Latest).group("g")).unwrap();
    event(&mut member, |event| matches!(event, Event::Assigned(_)));
    let more = NewPartitions::new(&name, 2);
    done(admin.create_partitions([&more], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    // The controller knows first, then the broker, then the clients.
    let late = Instant::now() + HANG_TIMEOUT;
    while let Err(error) = deliver(&plain(broker), (&name, 1), b"there") {
        assert!(Instant::now() < late, "{error}");
    }
    for subscription in [&mut member, &mut reader] {
        let (payloads, _) = until(subscription, b"there");
        assert_eq!(payloads, [&b"there"[..]]);
    }
}

#[test]
fn every_codec_is_read() {
    let Some(broker) = broker() else { return };
    let (admin, name) = (admin(broker), unique("codecs").replace('/', "_"));
    make(&admin, &name, &[]);
    let codecs = ["gzip", "snappy", "lz4", "zstd", "none"];
    for codec in codecs {
        let producer: BaseProducer =
            config(broker).set("compression.codec", codec).create().unwrap();
        send(&producer, &name, &[codec.repeat(200).as_bytes()]);
    }
    let bus = broker.bus("reader");
    let mut reader = open(&bus, &name).subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let (payloads, _) = until(&mut reader, "none".repeat(200).as_bytes());
    assert_eq!(payloads, codecs.map(|codec| codec.repeat(200).into_bytes()));
}
