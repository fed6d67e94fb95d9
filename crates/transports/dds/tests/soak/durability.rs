//! The durability service: data that outlives its writers, its readers, and the service itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Service, domain, is_ready, url};
use helio_bus::{
    Bus, Event, Gap, GapCause, Guarantee, Message, Outage, PublishError, Publisher, Qos, Sample,
    Start, Subscribe, Topic, TopicError, TopicSpec, TransportError,
};
use helio_core::qos::{History, Overload, Retention};
use helio_core::schema::Schema;
use helio_dds::durability::{Durability, Notice, Timeouts};
use helio_journal::{Journal, JournalOptions, Maintenance, Ownership, Record, WriterOptions};

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn numbers() -> Qos {
    let bytes = Some(64 << 20);
    let retention = Retention { bytes, age: None, last_value: true, default: false };
    Qos { overload: Overload::Block, guarantee: Guarantee::Durable, retention, ..Qos::stream() }
}

fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn publish(publisher: &Publisher, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = [b'a' + (number % 3) as u8];
        let payload = number.to_le_bytes();
        publisher.publish(Message::new(&payload).key(&key)).wait_timeout(TEST_TIMEOUT).unwrap();
    }
}

fn number(sample: &Sample) -> u64 {
    u64::from_le_bytes(sample.payload[..].try_into().unwrap())
}

/// The next `count` samples; fails if there are more.
fn read(topic: &Topic, start: Start, count: usize) -> Vec<u64> {
    let mut samples = topic.subscribe(Subscribe::from(start)).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    let mut read = Vec::new();
    while read.len() < count {
        let left = until.saturating_duration_since(Instant::now());
        let event = samples.next_timeout(left).unwrap();
        let event = event.unwrap_or_else(|| panic!("{} of {count}: {read:?}", read.len()));
        read.extend(event.into_sample().map(|sample| number(&sample)));
    }
    assert!(samples.next_timeout(Duration::from_millis(50)).unwrap().is_none(), "more came");
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
    read
}

#[test]
fn history_outlives_its_writers_and_the_service() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    publish(&topic(&bus, "kept", numbers()).publisher().unwrap(), 0..30);
    bus.close();
    let bus = Bus::connect(&url).unwrap();
    let kept = bus.topic(TopicSpec::new("kept").unwrap()).unwrap();
    assert_eq!(*kept.qos(), numbers());
    assert_eq!(read(&kept, Start::Earliest, 30), (0..30).collect::<Vec<_>>());
    assert_eq!(read(&kept, Start::Last(1), 3), [27, 28, 29]);
    drop(kept);
    bus.close();
    drop(service);
    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let kept = bus.topic(TopicSpec::new("kept").unwrap()).unwrap();
    assert_eq!(read(&kept, Start::Earliest, 30), (0..30).collect::<Vec<_>>());
    let publisher = kept.publisher().unwrap();
    publish(&publisher, 30..40);
    assert_eq!(read(&kept, Start::Earliest, 40), (0..40).collect::<Vec<_>>());
    assert_eq!(read(&kept, Start::Last(2), 6), (34..40).collect::<Vec<_>>());
}

#[test]
fn a_late_joiner_has_the_past_and_what_comes_without_a_seam() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let publisher = topic(&bus, "stream", numbers()).publisher().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !done.load(Ordering::Acquire) {
                let payload = number.to_le_bytes();
                let message = Message::new(&payload).guarantee(Guarantee::Accepted);
                publisher.publish(message).wait_timeout(TEST_TIMEOUT).unwrap();
                number += 1;
                if number.is_multiple_of(100) {
                    publisher.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
                }
            }
            number
        });
        for _ in 0..5 {
            let late = Bus::connect(&url).unwrap();
            let stream = topic(&late, "stream", numbers());
            let mut samples = stream.subscribe(Subscribe::from(Start::Earliest)).unwrap();
            for expected in 0..2_000 {
                let event = samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it comes in time");
                assert_eq!(number(&event.into_sample().unwrap()), expected);
            }
        }
        done.store(true, Ordering::Release);
        assert!(writer.join().unwrap() >= 2_000);
    });
}

#[test]
fn a_late_joiner_is_behind_until_all_of_the_past_has_come() {
    const COUNT: u64 = 100;
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let topic = topic(&bus, "numbers", numbers());
    let publisher = topic.publisher().unwrap();
    // Several pages of a MiB.
    let payload = vec![7; 48 << 10];
    for _ in 0..COUNT {
        publisher.publish(Message::new(&payload).key(b"k")).wait_timeout(TEST_TIMEOUT).unwrap();
    }
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let (mut read, until) = (0, Instant::now() + TEST_TIMEOUT);
    while read < COUNT {
        assert!(samples.stats().lag > 0, "{read} of {COUNT} have come, and more will");
        assert!(Instant::now() < until, "{read} of {COUNT}");
        let event = samples.next_timeout(Duration::from_millis(20)).unwrap();
        read += u64::from(event.and_then(Event::into_sample).is_some());
    }
    while samples.stats().lag > 0 {
        assert!(Instant::now() < until, "all has come");
        let event = samples.next_timeout(Duration::from_millis(20)).unwrap();
        assert!(event.is_none(), "more came: {event:?}");
    }
}

/// Waits until the last one of thirty samples is in a service's folder.
fn await_last(folder: &std::path::Path, until: Instant) {
    let kept = || -> Option<bool> {
        let journal = format!("journal:{}?access=read", folder.display());
        let kept = Bus::connect(&journal).ok()?.topic(TopicSpec::new("track").ok()?).ok()?;
        let mut samples = kept.subscribe(Subscribe::from(Start::Earliest)).ok()?;
        let mut numbers = std::iter::from_fn(|| samples.try_next().ok()??.into_sample());
        Some(numbers.any(|sample| number(&sample) == 29))
    };
    while kept() != Some(true) {
        assert!(Instant::now() < until, "it is not kept");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn last_values_of_writers_that_have_gone_stay_while_the_service_runs() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let _service = Service::start(&url, folder.path());
    let (gone, bus) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let track = topic(&bus, "track", Qos::telemetry());
    let going = topic(&gone, "track", Qos::telemetry()).publisher().unwrap();
    publish(&going, 0..30);
    let until = Instant::now() + TEST_TIMEOUT;
    await_last(folder.path(), until);
    drop(going);
    gone.close();
    assert_eq!(read(&track, Start::Last(1), 3), [27, 28, 29]);
    // The same beside a live writer.
    let publisher = track.publisher().unwrap();
    publisher
        .publish(Message::new(&40_u64.to_le_bytes()).key(b"a"))
        .wait_timeout(TEST_TIMEOUT)
        .unwrap();
    assert_eq!(read(&track, Start::Last(1), 3), [28, 29, 40]);
}

#[test]
fn last_values_are_handed_out_by_a_service_that_stood_still() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&url, folder.path());
    let (gone, bus) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let track = topic(&bus, "track", Qos::telemetry());
    let going = topic(&gone, "track", Qos::telemetry()).publisher().unwrap();
    publish(&going, 0..30);
    let until = Instant::now() + TEST_TIMEOUT;
    let last = || -> Vec<u64> {
        let mut samples = track.subscribe(Subscribe::from(Start::Last(1))).unwrap();
        let events = std::iter::from_fn(|| samples.try_next().unwrap());
        events.filter_map(Event::into_sample).map(|sample| number(&sample)).collect()
    };
    await_last(folder.path(), until);
    service.stand_still(true);
    // Longer than its lease: it restarts its cycle.
    std::thread::sleep(Duration::from_millis(1_500));
    service.stand_still(false);
    drop(going);
    gone.close();
    while last() != [27, 28, 29] {
        assert!(Instant::now() < until, "it was never ready again: {:?}", last());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_receipt_on_telemetry_covers_what_is_kept_from_then_on() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let track = topic(&bus, "track", Qos::telemetry());
    let publisher = track.publisher().unwrap();
    publish(&publisher, 0..30);
    for number in 30..33_u64 {
        let payload = number.to_le_bytes();
        let message = Message::new(&payload).key(b"a").guarantee(Guarantee::Durable);
        publisher.publish(message).wait_timeout(TEST_TIMEOUT).unwrap();
    }
    bus.close();
    drop(service);
    // It is still stored, although no session requests that any more.
    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let track = bus.topic(TopicSpec::new("track").unwrap()).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while behind_thirty(folder.path()) != [30, 31, 32] {
        assert!(Instant::now() < until, "{:?}", behind_thirty(folder.path()));
    }
    drop(track);
}

/// The samples in a service's folder after the first thirty.
fn behind_thirty(folder: &std::path::Path) -> Vec<u64> {
    let journal = Bus::connect(&format!("journal:{}?access=read", folder.display())).unwrap();
    let kept = journal.topic(TopicSpec::new("track").unwrap()).unwrap();
    let mut samples = kept.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let numbers = std::iter::from_fn(|| samples.try_next().unwrap());
    let numbers = numbers.filter_map(|event| Some(number(&event.into_sample()?)));
    numbers.filter(|number| *number >= 30).collect()
}

#[test]
fn of_two_services_with_last_values_none_takes_the_holes_of_the_other_one() {
    let url = url(domain());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let opened = |notice: &Notice| matches!(notice, Notice::Keeps { .. });
    let [first, second] = [0, 1].map(|of: usize| Service::start(&url, folders[of].path()));
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let track = topic(&bus, "track", Qos::telemetry());
    let publisher = track.publisher().unwrap();
    publish(&publisher, 0..30);
    let until = Instant::now() + TEST_TIMEOUT;
    folders.iter().for_each(|folder| await_last(folder.path(), until));
    first.await_notice(opened);
    drop(second);
    // It misses the samples before this one.
    let journal = Bus::connect(&format!("journal:{}", folders[1].path().display())).unwrap();
    let kept = journal.topic(TopicSpec::new("track").unwrap()).unwrap();
    let samples = kept.subscribe(Subscribe::from(Start::Last(1)));
    let mut sample = samples.unwrap().next_sample().unwrap();
    sample.header.sequence = 33;
    let mut newer = kept.forwarder(&sample.header.producer, 0).unwrap();
    newer.forward(&sample.as_ref(), sample.headers.as_ref()).unwrap().wait().unwrap();
    drop((newer, kept));
    journal.close();
    let second = Service::start(&url, folders[1].path());
    second.await_notice(opened);
    second.stand_still(true);
    for number in 30..33_u64 {
        let payload = number.to_le_bytes();
        let message = Message::new(&payload).key(b"a").guarantee(Guarantee::Durable);
        publisher.publish(message).wait_timeout(TEST_TIMEOUT).unwrap();
    }
    assert_eq!(behind_thirty(folders[0].path()), [30, 31, 32], "a receipt lies");
    second.stand_still(false);
    second.await_notice(is_ready);
    assert_eq!(behind_thirty(folders[1].path()), [30, 31, 32]);
}

#[test]
fn what_was_kept_is_not_removed_for_a_topic_that_is_made_differently() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    publish(&topic(&bus, "kept", numbers()).publisher().unwrap(), 0..3);
    bus.close();
    drop(service);
    let bus = Bus::connect(&url).unwrap();
    let other = topic(&bus, "kept", Qos { partitions: 2, ..Qos::telemetry() });
    let publisher = other.publisher().unwrap();
    publish(&publisher, 0..3);
    let service = Service::start(&url, folder.path());
    let until = Instant::now() + TEST_TIMEOUT;
    let late = Bus::connect(&url).unwrap();
    let plain = topic(&late, "plain", Qos::telemetry());
    publish(&plain.publisher().unwrap(), 0..3);
    // By then it has polled all topics.
    while !folder.path().join("topics/plain").exists() {
        assert!(Instant::now() < until, "it keeps nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(service);
    let journal = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    let kept = journal.topic(TopicSpec::new("kept").unwrap()).unwrap();
    assert_eq!(read(&kept, Start::Earliest, 3), [0, 1, 2]);
}

#[test]
fn a_service_rests_when_all_is_stored() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let mut service = Durability::open(&url, folder.path()).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (url, done) = (&url, &done);
        scope.spawn(move || {
            let bus = Bus::connect(url).unwrap();
            publish(&topic(&bus, "kept", numbers()).publisher().unwrap(), 0..3);
            while !done.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut rested = 0;
        while service.figures().stored < 3 || rested < 10 {
            let turn = Instant::now();
            service.turn(Duration::from_millis(50), &mut |_| ()).unwrap();
            rested = if turn.elapsed() < Duration::from_millis(25) { 0 } else { rested + 1 };
            assert!(Instant::now() < until, "it never rests");
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn a_topic_that_is_forgotten_can_be_made_differently() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    publish(&topic(&bus, "kept", numbers()).publisher().unwrap(), 0..3);
    bus.close();
    drop(service);
    let name = "kept".parse().unwrap();
    let forgotten = Durability::forget(folder.path(), std::slice::from_ref(&name)).unwrap();
    assert_eq!(forgotten, [name]);
    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let none = bus.topic(TopicSpec::new("kept").unwrap());
    assert!(matches!(none, Err(TopicError::NoSuchTopic(_))), "{none:?}");
    let other = Qos { partitions: 2, ..numbers() };
    publish(&topic(&bus, "kept", other.clone()).publisher().unwrap(), 7..8);
    assert_eq!(read(&topic(&bus, "kept", other), Start::Earliest, 1), [7]);
}

#[test]
fn without_a_service_what_wants_one_is_refused_with_the_remedy() {
    let bus = Bus::connect(&url(domain())).unwrap();
    let refused = bus.topic(TopicSpec::new("kept").unwrap().qos(Qos::event())).unwrap_err();
    let TopicError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.policy, "durability");
    assert!(refusal.remedy.contains("helio dds durability --dir DIR --url dds://"), "{refusal}");
}

#[test]
fn a_service_that_comes_back_gets_what_was_published_meanwhile() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    publish(&publisher, 0..10);
    drop(service);
    let pending: Vec<_> = (10..20_u64)
        .map(|number| publisher.publish(Message::new(&number.to_le_bytes()).key(b"k")))
        .collect();
    assert!(pending.iter().all(|publishing| publishing.outcome().is_none()), "nobody has them");
    let _service = Service::start(&url, folder.path());
    for publishing in pending {
        publishing.wait_timeout(TEST_TIMEOUT).unwrap();
    }
    assert_eq!(read(&kept, Start::Earliest, 20), (0..20).collect::<Vec<_>>());
}

#[test]
fn nothing_is_flushed_to_durable_that_no_service_was_asked_to_keep() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let refused = |publisher: &Publisher| match publisher.flush(Guarantee::Durable, TEST_TIMEOUT) {
        Err(PublishError::Transport(error @ TransportError::Unsupported { .. })) => {
            error.to_string()
        }
        other => panic!("{other:?}"),
    };
    let alone = Bus::connect(&url).unwrap();
    let publisher = topic(&alone, "track", Qos::telemetry()).publisher().unwrap();
    publisher.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
    publish(&publisher, 0..3);
    let told = refused(&publisher);
    assert!(told.contains("helio dds durability --dir DIR"), "{told}");
    alone.close();

    let _service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let publisher = topic(&bus, "beside", Qos::telemetry()).publisher().unwrap();
    publish(&publisher, 0..3);
    let told = refused(&publisher);
    assert!(told.contains("up to number 3") && told.contains("`persistent`"), "{told}");
    // Samples published before are not on the disk, whatever follows them.
    let durable = |publisher: &Publisher| {
        let message = Message::new(b"durable").guarantee(Guarantee::Durable);
        publisher.publish(message).wait_timeout(TEST_TIMEOUT).unwrap();
    };
    durable(&publisher);
    assert!(refused(&publisher).contains("up to number 3"));
    let publisher = topic(&bus, "first", Qos::telemetry()).publisher().unwrap();
    durable(&publisher);
    publish(&publisher, 3..6);
    publisher.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
}

#[test]
fn receipts_of_a_writer_that_was_fenced_say_so() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let buses = [0, 1].map(|_| Bus::builder().producer("Mount").connect(&url).unwrap());
    let [old, new] = [0, 1].map(|bus: usize| topic(&buses[bus], "kept", numbers()));
    let publisher = old.publisher().unwrap();
    publish(&publisher, 0..3);
    drop(service);
    let waiting = publisher.publish(Message::new(&[0; 8]));
    assert!(waiting.outcome().is_none(), "nobody has it");
    let newer = new.publisher().unwrap();
    let first = newer.publish(Message::new(&[0; 8]));
    let fenced = |outcome: Result<_, PublishError>| {
        let outcome = outcome.map(drop);
        let told = matches!(outcome, Err(PublishError::Transport(TransportError::Fenced { .. })));
        assert!(told, "{outcome:?}");
    };
    fenced(waiting.wait_timeout(TEST_TIMEOUT).map(drop));
    fenced(publisher.flush(Guarantee::Durable, TEST_TIMEOUT));
    fenced(publisher.publish(Message::new(&[0; 8])).wait_timeout(TEST_TIMEOUT).map(drop));
    let _service = Service::start(&url, folder.path());
    first.wait_timeout(TEST_TIMEOUT).unwrap();
}

/// Appends a sample of a producer to a folder whose disk refuses to sync it.
fn append_unsynced(folder: &std::path::Path, publisher: &Publisher, sequence: u64) {
    let refuses = std::sync::Arc::new(AtomicBool::new(false));
    let refused = std::sync::Arc::clone(&refuses);
    let disk = move |_: &std::path::Path| match refused.load(Ordering::Acquire) {
        true => Err(std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
        false => Ok(()),
    };
    let options = JournalOptions {
        maintenance: Maintenance::Manual,
        sync_hook: Some(std::sync::Arc::new(disk)),
        ..JournalOptions::default()
    };
    let journal = Journal::open(folder, options).unwrap();
    let topic = journal.topic(&"kept".parse().unwrap()).unwrap().unwrap();
    let producer = publisher.producer();
    let options = WriterOptions { producer: producer.name, ownership: Ownership::Shared };
    let claim = topic.adopt(&options, producer.incarnation, None).unwrap();
    let mut writer = topic.writer_with(0, &claim).unwrap();
    writer.identify(producer.incarnation, sequence).unwrap();
    let payload = &(sequence - 1).to_le_bytes();
    refuses.store(true, Ordering::Release);
    let offset = writer.append(&Record { key: b"k", payload, ..Record::default() }).unwrap();
    topic.wait_durable(0, offset, None).unwrap_err();
}

/// The numbers of a producer's samples in a folder.
fn sequences(folder: &std::path::Path) -> Vec<u64> {
    let journal = Bus::connect(&format!("journal:{}?access=read", folder.display())).unwrap();
    let kept = journal.topic(TopicSpec::new("kept").unwrap()).unwrap();
    let count: u64 = kept.partitions().unwrap().iter().map(|partition| partition.end).sum();
    let options = Subscribe::from(Start::Earliest).as_written();
    let mut samples = kept.subscribe(options).unwrap();
    let samples = std::iter::from_fn(|| samples.try_next().unwrap());
    let sequences = samples.filter_map(|event| Some(event.into_sample()?.header.sequence));
    let sequences: Vec<_> = sequences.collect();
    assert_eq!(sequences.len() as u64, count, "there are repeats in the folder");
    sequences
}

fn unknown(outcome: Result<helio_bus::transport::Receipt, PublishError>) {
    match outcome {
        Err(PublishError::Unknown { cause }) => {
            assert!(cause.contains("cannot store kept"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_disk_refused_to_sync_is_not_acknowledged_after_a_restart_either() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    publish(&publisher, 0..3);
    drop(service);
    // As if the service was killed when the disk refused the fourth sample.
    append_unsynced(folder.path(), &publisher, 4);
    let fourth = publisher.publish(Message::new(&3_u64.to_le_bytes()).key(b"k"));
    for _ in 0..2 {
        let folder_sync = Duration::from_millis(500);
        let timeouts = Timeouts { folder_sync, ..Timeouts::default() };
        let service = Service::start_timed(&url, folder.path(), timeouts);
        service.await_notice(|notice| match notice {
            Notice::Trouble { cause, .. } => cause.contains("until this host restarts"),
            Notice::Ready { .. } => panic!("it is ready over what the disk has refused"),
            _ => false,
        });
        assert!(!matches!(fourth.outcome(), Some(Ok(_))), "it is on no disk");
    }
    unknown(fourth.wait_timeout(TEST_TIMEOUT));
    assert_eq!(sequences(folder.path()), [1, 2, 3, 4]);
}

#[test]
fn what_is_in_the_journal_is_not_put_there_again_when_a_sync_fails() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let retry_interval = Duration::from_millis(200);
    let timeouts = Timeouts { retry_interval, ..Timeouts::default() };
    let service = Service::start_timed(&url, folder.path(), timeouts);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    publish(&publisher, 0..3);
    let other = Bus::builder().producer("Dome").connect(&url).unwrap();
    let dome = topic(&other, "kept", numbers()).publisher().unwrap();
    append_unsynced(folder.path(), &dome, 1);
    let pending: Vec<_> = (3..9_u64)
        .map(|number| publisher.publish(Message::new(&number.to_le_bytes()).key(b"k")))
        .collect();
    service.await_notice(|notice| matches!(notice, Notice::Trouble { .. }));
    pending.into_iter().for_each(|publishing| unknown(publishing.wait_timeout(TEST_TIMEOUT)));
    // It retries several times.
    let until = Instant::now() + 10 * retry_interval;
    while Instant::now() < until {
        let sequences = sequences(folder.path());
        assert!(sequences.len() <= 10, "{sequences:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_incarnation_below_what_the_service_has_is_told_so() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let publisher = topic(&bus, "kept", numbers()).publisher().unwrap();
    publish(&publisher, 0..3);
    drop(service);
    // A newer incarnation was here and left; no live session knows of it.
    let journal = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    let kept = journal.topic(TopicSpec::new("kept").unwrap()).unwrap();
    let samples = kept.subscribe(Subscribe::from(Start::Earliest));
    let mut sample = samples.unwrap().next_sample().unwrap();
    sample.header.producer.incarnation += 1_000_000_000;
    let mut newer = kept.forwarder(&sample.header.producer, 0).unwrap();
    newer.forward(&sample.as_ref(), sample.headers.as_ref()).unwrap().wait().unwrap();
    drop((newer, kept));
    journal.close();
    let waiting = publisher.publish(Message::new(&[0; 8]));
    let _service = Service::start(&url, folder.path());
    let outcome = waiting.wait_timeout(TEST_TIMEOUT).map(drop);
    let told = matches!(outcome, Err(PublishError::Transport(TransportError::Fenced { .. })));
    assert!(told, "{outcome:?}");
}

#[test]
fn a_bridge_that_is_started_anew_does_not_say_that_nothing_was_before() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let source = Bus::connect("memory:").unwrap();
    let source = topic(&source, "kept", Qos::stream());
    source.publisher().unwrap().publish(Message::new(&[0; 8])).wait().unwrap();
    let mut samples = source.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut sample = samples.next_sample().unwrap();
    let mut forward = |count: std::ops::RangeInclusive<u64>| {
        let bus = Bus::connect(&url).unwrap();
        let kept = topic(&bus, "kept", numbers());
        let mut bridge = kept.forwarder(&sample.header.producer, 0).unwrap();
        for number in count {
            sample.header.sequence = number;
            let forwarded = bridge.forward(&sample.as_ref(), sample.headers.as_ref()).unwrap();
            forwarded.wait_timeout(TEST_TIMEOUT).unwrap();
        }
    };
    let service = Service::start(&url, &folders[0]);
    forward(1..=5);
    drop(service);
    let copy = std::process::Command::new("cp").arg("-r").args(&folders).status();
    assert!(copy.unwrap().success());
    let service = Service::start(&url, &folders[0]);
    forward(6..=10);
    drop(service);
    // The service that was away runs alone.
    let service = Service::start(&url, &folders[1]);
    service.await_notice(is_ready);
    forward(11..=12);
    service.await_notice(
        |notice| matches!(notice, Notice::Hole { loss, .. } if loss.contains(": 5 samples")),
    );
}

#[test]
fn a_service_that_stands_still_holds_up_nobodys_receipts() {
    let url = format!("{}&lease_s=4", url(domain()));
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = [0, 1].map(|of: usize| Service::start(&url, folders[of].path()));
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    [&first, &second].iter().for_each(|service| service.await_notice(is_ready));
    publish(&publisher, 0..10);
    let mut next = 10;
    for _ in 0..3 {
        first.stand_still(true);
        publish(&publisher, next..next + 20);
        assert_eq!(sequences(folders[0].path()).len() as u64, next);
        first.stand_still(false);
        // The other service receives new samples: it lacks nothing.
        publish(&publisher, next + 20..next + 40);
        first.await_notice(is_ready);
        next += 40;
    }
    assert!(!second.has_told(is_ready), "it was out of service, too");
    drop(second);
    assert_eq!(sequences(folders[0].path()), (1..=next).collect::<Vec<_>>());
    publish(&publisher, next..next + 10);
    assert_eq!(
        read(&kept, Start::Earliest, next as usize + 10),
        (0..next + 10).collect::<Vec<_>>()
    );
}

#[test]
fn of_two_services_that_start_at_once_one_waits_for_what_the_slower_one_has() {
    let url = url(domain());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let before = Service::start(&url, folders[0].path());
    let bus = Bus::connect(&url).unwrap();
    publish(&topic(&bus, "kept", numbers()).publisher().unwrap(), 0..30);
    bus.close();
    drop(before);
    let slow = Service::start_still(&url, folders[0].path());
    let announcement = Duration::from_millis(500);
    let timeouts = Timeouts { announcement, ..Timeouts::default() };
    let fast = Service::start_timed(&url, folders[1].path(), timeouts);
    let bus = Bus::connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    let publishing = publisher.publish(Message::new(&30_u64.to_le_bytes()));
    // Longer than the timeout of a silent service.
    let until = Instant::now() + 6 * announcement;
    while Instant::now() < until {
        let outcome = publishing.outcome();
        assert!(outcome.is_none(), "it goes on without the other one: {outcome:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    slow.stand_still(false);
    publishing.wait_timeout(TEST_TIMEOUT).unwrap();
    fast.await_notice(is_ready);
    drop(slow);
    assert_eq!(read(&kept, Start::Earliest, 31), (0..31).collect::<Vec<_>>());
}

#[test]
fn a_topic_of_another_quality_of_service_is_told_and_the_others_are_kept() {
    let (here, there) = (url(domain()), url(domain()));
    let folder = tempfile::tempdir().unwrap();
    // The earlier definition wins, wherever they meet.
    let bus = Bus::connect(&there).unwrap();
    let publisher =
        topic(&bus, "kept", Qos { partitions: 2, ..Qos::telemetry() }).publisher().unwrap();
    let service = Service::start(&here, folder.path());
    let other = Bus::connect(&here).unwrap();
    publish(&topic(&other, "kept", numbers()).publisher().unwrap(), 0..3);
    drop(service);
    let service = Service::start(&there, folder.path());
    service.await_notice(|notice| match notice {
        Notice::Trouble { topic, cause } => {
            topic.as_str() == "kept" && cause.contains("exists with")
        }
        _ => false,
    });
    let message = Message::new(b"durable").guarantee(Guarantee::Durable);
    unknown(publisher.publish(message).wait_timeout(TEST_TIMEOUT));
    publish(&topic(&bus, "beside", numbers()).publisher().unwrap(), 0..3);
    drop(service);
    assert_eq!(sequences(folder.path()), [1, 2, 3]);
}

#[test]
fn durable_receipts_are_given_whenever_a_service_is_there() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let bus = Bus::connect(&url).unwrap();
    let publisher = topic(&bus, "track", Qos::telemetry()).publisher().unwrap();
    let durable = || {
        let message = Message::new(b"durable").guarantee(Guarantee::Durable);
        publisher.publish(message).wait_timeout(TEST_TIMEOUT).map(drop)
    };
    let refused = durable();
    let unsupported =
        matches!(refused, Err(PublishError::Transport(TransportError::Unsupported { .. })));
    assert!(unsupported, "{refused:?}");
    let _service = Service::start(&url, folder.path());
    let until = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = durable() {
        assert!(Instant::now() < until, "{error}");
    }
}

#[test]
fn history_that_keeps_all_is_kept_whole() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let whole = Qos { history: History::KeepAll, ..Qos::telemetry() };
    let alone = Bus::connect(&url).unwrap();
    let refused = alone.topic(TopicSpec::new("whole").unwrap().qos(whole.clone())).unwrap_err();
    let TopicError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.policy, "history");
    alone.close();
    let _service = Service::start(&url, folder.path());
    let (gone, bus) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let read_by = topic(&bus, "whole", whole.clone());
    // More samples of each key than our writers keep.
    publish(&topic(&gone, "whole", whole).publisher().unwrap(), 0..900);
    gone.close();
    assert_eq!(read(&read_by, Start::Earliest, 900), (0..900).collect::<Vec<_>>());
}

#[test]
fn a_late_joiner_whose_only_service_goes_is_told_and_reads_what_comes() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let kept = topic(&bus, "kept", numbers());
    let publisher = kept.publisher().unwrap();
    // Several pages.
    let payload = |number: u64| [number.to_le_bytes().to_vec(), vec![0; 64 << 10]].concat();
    for number in 0..100 {
        publisher.publish(Message::new(&payload(number))).wait_timeout(TEST_TIMEOUT).unwrap();
    }
    let late = Bus::connect(&url).unwrap();
    let mut samples =
        topic(&late, "kept", numbers()).subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let number = |sample: Sample| u64::from_le_bytes(sample.payload[..8].try_into().unwrap());
    let first = samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample().unwrap();
    assert_eq!(number(first), 0);
    drop(service);
    let live = publisher.publish(Message::new(&payload(100)));
    let (mut next, mut told) = (1, Vec::new());
    while next <= 100 {
        match samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it goes on") {
            Event::Sample(sample) => {
                let came = number(sample);
                assert_eq!(came, next);
                next = came + 1;
            }
            Event::Gap(Gap { cause: GapCause::Sequence { from, to, .. }, lost, .. }) => {
                assert_eq!((from, to, lost), (next + 1, 101, 100 - next), "numbers are from 1");
                next += lost;
                told.push("gap");
            }
            Event::Outage(Outage::Lost { cause }) => {
                assert!(cause.contains("has gone") && cause.contains("kept"), "{cause}");
                told.push("lost");
            }
            Event::Outage(Outage::Restored) => told.push("restored"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["lost", "gap", "restored"]);
    assert!(live.outcome().is_none(), "it is on no disk");
}

#[test]
fn a_writer_without_a_service_is_full_at_a_stated_bound_and_goes_on_with_one() {
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let kept = topic(&bus, "kept", Qos { overload: Overload::Refuse, ..numbers() });
    let publisher = kept.publisher().unwrap();
    publish(&publisher, 0..1);
    drop(service);
    let payload = vec![0; 1 << 20];
    let mut pending = Vec::new();
    let full = loop {
        let publishing = publisher.publish(Message::new(&payload).key(b"large"));
        match publishing.outcome() {
            None => pending.push(publishing),
            Some(outcome) => break outcome,
        }
    };
    assert!(matches!(full, Err(PublishError::Full { .. })), "{full:?}");
    assert_eq!(pending.len(), 64, "64 MiB");
    let _service = Service::start(&url, folder.path());
    for publishing in pending {
        publishing.wait_timeout(TEST_TIMEOUT).unwrap();
    }
    publish(&publisher, 1..2);
}

#[test]
fn what_retention_has_left_out_is_nobodys_loss() {
    const LAST_NUMBER: u64 = 400;
    const RARE_KEY_NUMBER: u64 = 100;
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let retention = Retention { bytes: Some(4 << 20), age: None, last_value: true, default: false };
    let kept = topic(&bus, "kept", Qos { retention, ..numbers() });
    let publisher = kept.publisher().unwrap();
    let pending: Vec<_> = (0..=LAST_NUMBER)
        .map(|number| {
            let payload = [number.to_le_bytes().to_vec(), vec![0; 48 << 10]].concat();
            let key: &[u8] = match number {
                0 => b"rare",
                RARE_KEY_NUMBER => b"seldom",
                _ => b"often",
            };
            publisher.publish(Message::new(&payload).key(key))
        })
        .collect();
    pending.into_iter().for_each(|publishing| _ = publishing.wait_timeout(TEST_TIMEOUT).unwrap());
    // A reader that retention overtakes loses samples.
    let (journal, until) =
        (format!("journal:{}?access=read", folder.path().display()), Instant::now() + TEST_TIMEOUT);
    let journal = Bus::connect(&journal).unwrap();
    let there = journal.topic(TopicSpec::new("kept").unwrap()).unwrap();
    while there.partitions().unwrap()[0].bytes > Some(8 << 20) {
        assert!(Instant::now() < until, "retention does nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    let reads_what_is_left = || {
        let mut samples = kept.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let mut read = Vec::new();
        while read.last() != Some(&LAST_NUMBER) {
            match samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it comes in time") {
                Event::Sample(sample) => {
                    assert!(sample.headers.is_empty(), "{:?}", sample.headers);
                    read.push(u64::from_le_bytes(sample.payload[..8].try_into().unwrap()));
                }
                other => panic!("{other:?} behind {read:?}"),
            }
        }
        assert_eq!(read[..2], [0, RARE_KEY_NUMBER], "the newest of their keys");
        assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
    };
    reads_what_is_left();
    // Another service that fetched the rest reports no loss either.
    let second = tempfile::tempdir().unwrap();
    let other = Service::start(&url, second.path());
    other.await_notice(is_ready);
    drop(service);
    reads_what_is_left();
    // Its own log may have no hole there: it has the mark.
    let journal = format!("journal:{}?access=read", second.path().display());
    let there = Bus::connect(&journal).unwrap().topic(TopicSpec::new("kept").unwrap()).unwrap();
    let mut samples = there.subscribe(Subscribe::from(Start::Earliest).as_written()).unwrap();
    let all = std::iter::from_fn(|| samples.try_next().unwrap()).filter_map(Event::into_sample);
    let mut marked = all.filter(|sample| sample.headers.as_ref().get("helio-left").is_some());
    let number = |sample: Sample| u64::from_le_bytes(sample.payload[..8].try_into().unwrap());
    assert_eq!(marked.next().map(number), Some(RARE_KEY_NUMBER));
}

#[test]
fn samples_of_both_topics_without_a_key_are_kept_in_order_over_a_restart() {
    const HALF_COUNT: u64 = 300;
    let (url, folder) = (url(domain()), tempfile::tempdir().unwrap());
    let service = Service::start(&url, folder.path());
    let bus = Bus::builder().producer("Mast").connect(&url).unwrap();
    let fields = r#"{"name": "number", "type": "long"}"#;
    let wider = format!(r#"{fields}, {{"name": "gust", "type": "double", "default": 0}}"#);
    let schemas = [fields, &wider].map(|fields| {
        let text = format!(r#"{{"type": "record", "name": "obs.Wind", "fields": [{fields}]}}"#);
        Schema::parse(&text).unwrap()
    });
    let publishers = [0, 1].map(|of: usize| {
        let spec = TopicSpec::new("wind").unwrap().qos(numbers()).schema(&schemas[of]);
        bus.topic(spec).unwrap().publisher().unwrap()
    });
    let mut pending = Vec::new();
    let mut publish = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            // In runs of one to five on each of the two topics.
            let of = (number / (1 + number % 5)) as usize % 2;
            let payload = [&[2][..], &[0; 8][..8 * of]].concat();
            pending.push(publishers[of].publish(Message::new(&payload)));
        }
    };
    publish(0..HALF_COUNT);
    drop(service);
    publish(HALF_COUNT..2 * HALF_COUNT);
    let _service = Service::start(&url, folder.path());
    pending.into_iter().for_each(|publishing| _ = publishing.wait_timeout(TEST_TIMEOUT).unwrap());
    drop(publishers);
    let raw = bus.topic(TopicSpec::new("wind").unwrap()).unwrap();
    let mut samples = raw.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut written = std::collections::HashSet::new();
    for expected in 1..=2 * HALF_COUNT {
        let event = samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it comes in time");
        let sample = event.into_sample().expect("nothing else");
        assert_eq!(sample.header.sequence, expected);
        written.insert(sample.header.schema);
    }
    assert_eq!(written.len(), 2);
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
}
