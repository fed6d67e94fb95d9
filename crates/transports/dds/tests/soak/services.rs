//! Durability services as processes, killed without warning under load: acknowledged samples
//! survive.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{Process, domain, url};
use helio_bus::{
    Bus, Guarantee, Lagging, Message, Publisher, Qos, Start, Subscribe, Subscription, Topic,
    TopicSpec,
};
use helio_core::qos::Overload;
use helio_dds::durability::{Durability, Notice, Timeouts, is_there};
use helio_journal::{
    Journal, JournalOptions, Maintenance, Ownership, ProducerClaim, SyncHook, WriterOptions,
};
use rustix::process::Signal;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The most pending publishes.
const MAX_PENDING: usize = 200;

/// Not a test by itself: the other processes run it.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    helio_dds::register();
    let url = std::env::var("HELIO_TEST_URL").unwrap();
    let folder = std::env::var("HELIO_TEST_FOLDER").unwrap();
    match role.as_str() {
        "service" | "impatient" => {
            let mut timeouts = Timeouts::default();
            if role == "impatient" {
                timeouts.disk = Duration::from_secs(3);
            }
            let service = Durability::open_with(&url, Path::new(&folder), timeouts);
            let mut service = service.unwrap();
            let mut tell = |notice| {
                let named =
                    Path::new(&folder).parent().is_some_and(|of| of != std::env::temp_dir());
                if named && matches!(notice, Notice::Ready { .. }) {
                    std::fs::write(ready(Path::new(&folder)), "").unwrap();
                }
            };
            loop {
                service.turn(Duration::from_millis(50), &mut tell).unwrap();
            }
        }
        "writer" => {
            let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
            let publisher = storm(&bus).publisher().unwrap();
            for number in 0_u64.. {
                publisher.publish(Message::new(&number.to_le_bytes())).wait().unwrap();
                // The newest acknowledged number, written atomically.
                let (new, named) = (format!("{folder}/new"), format!("{folder}/acknowledged"));
                std::fs::write(&new, number.to_string()).unwrap();
                std::fs::rename(new, named).unwrap();
            }
        }
        other => panic!("no role {other}"),
    }
}

fn process(role: &str, url: &str, folder: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("HELIO_TEST_FOLDER", folder);
    Process::run(command, module_path!(), role, url)
}

fn service(url: &str, folder: &Path) -> Process {
    process("service", url, folder)
}

/// The file that a service creates when it has all samples of the others.
fn ready(folder: &Path) -> PathBuf {
    folder.with_extension("ready")
}

fn await_ready(folder: &Path) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !ready(folder).exists() {
        assert!(Instant::now() < until, "the service never had what the other one has");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(ready(folder)).unwrap();
}

fn await_service(url: &str) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !is_there(url).unwrap() {
        assert!(Instant::now() < until, "the service never came");
    }
}

fn storm(bus: &Bus) -> Topic {
    let qos = Qos { overload: Overload::Block, guarantee: Guarantee::Durable, ..Qos::stream() };
    bus.topic(TopicSpec::new("storm").unwrap().qos(qos)).unwrap()
}

/// Publishes numbers until it is asked to end; counts the receipts.
fn publish(publisher: &Publisher, from: u64, done: &AtomicBool, held: &AtomicU64) -> u64 {
    let mut under_way = std::collections::VecDeque::new();
    let mut next = from;
    while !done.load(Ordering::Acquire) || !under_way.is_empty() {
        if !done.load(Ordering::Acquire) && under_way.len() < MAX_PENDING {
            let payload = next.to_le_bytes();
            under_way.push_back(publisher.publish(Message::new(&payload)));
            next += 1;
            continue;
        }
        under_way.pop_front().unwrap().wait_timeout(TEST_TIMEOUT).unwrap();
        held.fetch_add(1, Ordering::AcqRel);
    }
    next
}

/// Waits for so many more receipts.
fn await_more(held: &AtomicU64, more: u64) {
    let (goal, until) = (held.load(Ordering::Acquire) + more, Instant::now() + TEST_TIMEOUT);
    while held.load(Ordering::Acquire) < goal {
        assert!(Instant::now() < until, "the storm stands still");
        std::thread::yield_now();
    }
}

/// Reads all numbers in order, from a new connection.
fn read_all(url: &str, count: u64) {
    let bus = Bus::connect(url).unwrap();
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    let mut samples = storm(&bus).subscribe(options).unwrap();
    for expected in 0..count {
        assert_eq!(next(&mut samples), expected);
    }
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
}

fn next(samples: &mut Subscription) -> u64 {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let event = samples.next_timeout(left).unwrap().expect("it comes in time");
        if let Some(sample) = event.into_sample() {
            return u64::from_le_bytes(sample.payload[..].try_into().unwrap());
        }
    }
}

#[test]
fn a_service_that_is_killed_in_a_storm_loses_nothing_that_was_acknowledged() {
    let (url, folder) = (format!("{}&lease_s=1", url(domain())), tempfile::tempdir().unwrap());
    let mut serving = service(&url, folder.path());
    await_service(&url);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let publisher = storm(&bus).publisher().unwrap();
    let (done, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = std::thread::scope(|scope| {
        let storm = scope.spawn(|| publish(&publisher, 0, &done, &held));
        for round in 0..6 {
            await_more(&held, 300 + 137 * round);
            serving.signal(Signal::KILL);
            serving.wait();
            serving = service(&url, folder.path());
        }
        await_more(&held, 300);
        done.store(true, Ordering::Release);
        storm.join().unwrap()
    });
    assert_eq!(held.load(Ordering::Acquire), count);
    drop(publisher);
    bus.close();
    read_all(&url, count);
}

#[test]
fn two_services_take_over_from_each_other_and_fetch_what_they_missed() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let mut first = service(&url, &folders[0]);
    await_service(&url);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let publisher = storm(&bus).publisher().unwrap();
    let (done, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = std::thread::scope(|scope| {
        let storm = scope.spawn(|| publish(&publisher, 0, &done, &held));
        await_more(&held, 1_000);
        // The second service starts in the middle, and fetches the earlier samples.
        let mut second = service(&url, &folders[1]);
        await_ready(&folders[1]);
        await_more(&held, 500);
        first.signal(Signal::KILL);
        first.wait();
        await_more(&held, 1_000);
        let _ = std::fs::remove_file(ready(&folders[0]));
        first = service(&url, &folders[0]);
        await_ready(&folders[0]);
        await_more(&held, 500);
        second.signal(Signal::KILL);
        second.wait();
        await_more(&held, 500);
        done.store(true, Ordering::Release);
        storm.join().unwrap()
    });
    drop(publisher);
    bus.close();
    read_all(&url, count);
}

/// Starts two services, each in a folder of its own.
fn two_services(url: &str, folders: &[PathBuf; 2]) -> [Process; 2] {
    [0, 1].map(|of| service(url, &folders[of]))
}

#[test]
fn a_service_that_was_paused_fetches_what_writers_have_let_go_of() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let [paused, mut other] = two_services(&url, &folders);
    await_service(&url);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let publisher = storm(&bus).publisher().unwrap();
    folders.iter().for_each(|folder| await_ready(folder));
    let (done, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = std::thread::scope(|scope| {
        let storm = scope.spawn(|| publish(&publisher, 0, &done, &held));
        await_more(&held, 500);
        let _ = std::fs::remove_file(ready(&folders[0]));
        paused.signal(Signal::STOP);
        // Receipts wait until its lease expires, and no longer.
        await_more(&held, 2_000);
        paused.signal(Signal::CONT);
        await_ready(&folders[0]);
        await_more(&held, 500);
        other.signal(Signal::KILL);
        other.wait();
        await_more(&held, 500);
        done.store(true, Ordering::Release);
        storm.join().unwrap()
    });
    drop(publisher);
    bus.close();
    read_all(&url, count);
    assert_eq!(in_folder(&folders[0]), (0..count).collect::<Vec<_>>());
}

#[test]
fn a_service_that_was_paused_while_all_was_published_fetches_it() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let [paused, mut other] = two_services(&url, &folders);
    await_service(&url);
    let mut count = publish_more(&url, 0, 100);
    folders.iter().for_each(|folder| await_ready(folder));
    let _ = std::fs::remove_file(ready(&folders[0]));
    paused.signal(Signal::STOP);
    let lease_is_over = Instant::now() + Duration::from_secs(3);
    while Instant::now() < lease_is_over {
        // The publisher ends before the service resumes: nobody resends these samples.
        count = publish_more(&url, count, 100);
    }
    paused.signal(Signal::CONT);
    await_ready(&folders[0]);
    other.signal(Signal::KILL);
    other.wait();
    read_all(&url, count);
    assert_eq!(in_folder(&folders[0]), (0..count).collect::<Vec<_>>());
}

#[test]
fn a_producer_whose_samples_cannot_be_kept_is_in_trouble_alone() {
    let url = url(domain());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a");
    let _service = service(&url, &folder);
    await_service(&url);
    let count = publish_more(&url, 0, 100);
    let claim = claim_the_dome(&folder);
    let bus = Bus::builder().producer("Dome").connect(&url).unwrap();
    let dome = storm(&bus).publisher().unwrap();
    let publish = || dome.publish(Message::new(&[0; 8])).wait_timeout(TEST_TIMEOUT);
    let refused = publish().unwrap_err().to_string();
    assert!(refused.contains("cannot store Dome of storm"), "{refused}");
    let count = publish_more(&url, count, 100);
    let refused = publish().unwrap_err().to_string();
    assert!(refused.contains("cannot store Dome of storm"), "{refused}");
    claim.release();
    // The refused samples are stored now, too.
    let until = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = publish() {
        assert!(Instant::now() < until, "{error}");
    }
    assert!(in_folder(&folder).len() as u64 > count + 2);
}

/// Another writer writes into a service's folder under the name Dome.
fn claim_the_dome(folder: &Path) -> ProducerClaim {
    let journal = Journal::open(folder, JournalOptions::default()).unwrap();
    let topic = journal.topic(&"storm".parse().unwrap()).unwrap().unwrap();
    let producer = "Dome".parse().unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    topic.adopt(&options, 1, None).unwrap()
}

#[test]
fn a_producer_that_one_service_cannot_keep_has_its_receipts_from_the_other_one() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folder = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let [mut first, _second] = two_services(&url, &folders);
    await_service(&url);
    publish_more(&url, 0, 100);
    folders.iter().for_each(|folder| await_ready(folder));
    let claim = claim_the_dome(&folders[1]);
    let bus = Bus::builder().producer("Dome").connect(&url).unwrap();
    let dome = storm(&bus).publisher().unwrap();
    let publish = || _ = dome.publish(Message::new(&[0; 8])).wait_timeout(TEST_TIMEOUT).unwrap();
    let kept = || {
        folders.each_ref().map(|folder| {
            let url = format!("journal:{}?access=read", folder.display());
            let journal = Bus::connect(&url).unwrap();
            let topic = journal.topic(TopicSpec::new("storm").unwrap()).unwrap();
            topic.partitions().unwrap().iter().map(|partition| partition.end).sum::<u64>()
        })
    };
    let before = kept();
    (0..20).for_each(|_| publish());
    assert_eq!(kept(), [before[0] + 20, before[1]]);
    claim.release();
    // The refused samples are fetched from the first service before new ones are stored.
    let until = Instant::now() + TEST_TIMEOUT;
    while !matches!(kept(), [one, other] if one == other) {
        assert!(Instant::now() < until, "{:?}", kept());
        publish();
        std::thread::sleep(Duration::from_millis(100));
    }
    first.signal(Signal::KILL);
    first.wait();
    let late = Bus::connect(&url).unwrap();
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    let mut samples = storm(&late).subscribe(options).unwrap();
    (0..in_folder(&folders[1]).len()).for_each(|_| _ = next(&mut samples));
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
}

/// The storm's numbers in a service's folder.
fn in_folder(folder: &Path) -> Vec<u64> {
    let journal = Bus::connect(&format!("journal:{}?access=read", folder.display())).unwrap();
    let topic = journal.topic(TopicSpec::new("storm").unwrap()).unwrap();
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless).as_written();
    let mut samples = topic.subscribe(options).unwrap();
    let ends: u64 = topic.partitions().unwrap().iter().map(|partition| partition.end).sum();
    let mut numbers = Vec::new();
    while let Some(event) = samples.try_next().unwrap() {
        let Some(sample) = event.into_sample() else { continue };
        numbers.push(u64::from_le_bytes(sample.payload[..8].try_into().unwrap()));
    }
    assert_eq!(numbers.len() as u64, ends, "there are repeats in the folder");
    numbers
}

#[test]
fn what_gets_lost_on_the_way_to_a_service_is_sent_again() {
    let config = tempfile::NamedTempFile::new().unwrap();
    // Of a thousand packets.
    let lossy = "<CycloneDDS><Domain><Internal><Test><XmitLossiness>100</XmitLossiness></Test>\
                 </Internal></Domain></CycloneDDS>";
    std::fs::write(config.path(), lossy).unwrap();
    let url = format!("{}&config={}", url(domain()), config.path().display());
    let folder = tempfile::tempdir().unwrap();
    let _service = service(&url, &folder.path().join("a"));
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while !is_there(&url).unwrap() {
        assert!(Instant::now() < until, "the service never came");
    }
    let best_effort = helio_core::qos::Reliability::BestEffort;
    let kept = Qos { reliability: best_effort, guarantee: Guarantee::Durable, ..Qos::telemetry() };
    // By its quality of service, and by request.
    for (name, qos) in [("kept", kept), ("wanted", Qos::telemetry())] {
        let qos = Qos { reliability: best_effort, ..qos };
        let topic = bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap();
        let publisher = topic.publisher().unwrap();
        for number in 0..100_u64 {
            let payload = number.to_le_bytes();
            let message = Message::new(&payload).key(b"k").guarantee(Guarantee::Durable);
            publisher.publish(message).wait_timeout(TEST_TIMEOUT).unwrap();
        }
    }
}

/// Publishes until there are so many more receipts; returns the next number.
fn publish_more(url: &str, from: u64, more: u64) -> u64 {
    let bus = Bus::builder().producer("Mount").connect(url).unwrap();
    let publisher = storm(&bus).publisher().unwrap();
    let (done, held) = (AtomicBool::new(false), AtomicU64::new(from));
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| publish(&publisher, from, &done, &held));
        await_more(&held, more);
        done.store(true, Ordering::Release);
        storm.join().unwrap()
    })
}

#[test]
fn two_services_that_start_at_once_have_what_one_of_them_had() {
    let url = format!("{}&lease_s=1", url(domain()));
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut alone = service(&url, folders[0].path());
    await_service(&url);
    let count = publish_more(&url, 0, 500);
    alone.signal(Signal::KILL);
    alone.wait();
    let [mut first, _second] = [0, 1].map(|of| service(&url, folders[of].path()));
    await_service(&url);
    // A new reader misses nothing, whichever service it asks.
    read_all(&url, count);
    crate::support::await_kept(folders[1].path(), "storm", count);
    let count = publish_more(&url, count, 500);
    first.signal(Signal::KILL);
    first.wait();
    read_all(&url, count);
}

#[test]
fn what_a_writer_that_is_killed_had_acknowledged_is_there() {
    let (url, kept) = (format!("{}&lease_s=1", url(domain())), tempfile::tempdir().unwrap());
    let told = tempfile::tempdir().unwrap();
    let _serving = service(&url, kept.path());
    await_service(&url);
    let acknowledged = || {
        let text = std::fs::read_to_string(told.path().join("acknowledged"));
        text.ok().map(|text| text.parse::<u64>().unwrap())
    };
    for round in 0..3 {
        let mut writer = process("writer", &url, told.path());
        let until = Instant::now() + TEST_TIMEOUT;
        while acknowledged().is_none_or(|number| number < 100) {
            assert!(Instant::now() < until, "the writer never came far enough");
            std::thread::sleep(Duration::from_millis(1));
        }
        writer.signal(Signal::KILL);
        writer.wait();
        let newest = acknowledged().unwrap();
        let bus = Bus::connect(&url).unwrap();
        let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
        let mut samples = storm(&bus).subscribe(options).unwrap();
        // Each writer counted from 0, and none of its numbers is missing.
        let (mut begun, mut last) = (0, None);
        while begun <= round || last < Some(newest) {
            let number = next(&mut samples);
            begun += u64::from(number == 0);
            assert!(number == 0 || Some(number - 1) == last, "{number} after {last:?}");
            last = Some(number);
        }
        assert_eq!(begun, round + 1);
        std::fs::remove_file(told.path().join("acknowledged")).unwrap();
    }
}

/// A disk of a few megabytes, removed when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` if this machine does not allow it.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=224m", "helio-test"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_named_and_no_receipt_lies_and_with_room_all_is_kept() {
    let Some(disk) = Disk::new() else {
        eprintln!("SKIPPED: no small disk can be mounted here (root is wanted)");
        return;
    };
    let url = url(domain());
    let (filler, folder) = (disk.0.path().join("filler"), disk.0.path().join("kept"));
    std::fs::write(&filler, vec![0; 64 << 20]).unwrap();
    let service = crate::support::Service::start(&url, &folder);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let topic = storm(&bus);
    let publisher = topic.publisher().unwrap();
    let mut payload = vec![7; 256 << 10];
    let mut held = 0_u64;
    let error = loop {
        payload[..8].copy_from_slice(&held.to_le_bytes());
        match publisher.publish(Message::new(&payload)).wait_timeout(TEST_TIMEOUT) {
            Ok(_) => held += 1,
            Err(error) => break error.to_string(),
        }
        assert!(held < 10_000, "the disk never got full");
    };
    let named = error.contains("durability service cannot store storm");
    assert!(named && error.contains("no room on the disk"), "{error}");
    assert!(error.contains("the outcome of the publish is unknown"), "it is kept later: {error}");
    assert!(held > 0);
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    let mut samples = topic.subscribe(options);
    // Until its trouble is announced here, the service may be neither ready nor in trouble.
    let until = Instant::now() + TEST_TIMEOUT;
    while samples.is_err() && Instant::now() < until {
        let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
        samples = topic.subscribe(options);
    }
    let mut samples = samples.unwrap();
    for expected in 0..held {
        let event = samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it comes in time");
        let sample = event.into_sample().unwrap();
        assert_eq!(sample.payload[..8], expected.to_le_bytes());
    }
    std::fs::remove_file(&filler).unwrap();
    service.await_notice(|notice| matches!(notice, Notice::Recovered { .. }));
    // Until the recovery is announced here, publishes still fail.
    let until = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = publisher.flush(Guarantee::Durable, TEST_TIMEOUT) {
        assert!(Instant::now() < until, "{error}");
    }
    let count = held + 20;
    for number in held + 1..count {
        payload[..8].copy_from_slice(&number.to_le_bytes());
        publisher.publish(Message::new(&payload)).wait_timeout(TEST_TIMEOUT).unwrap();
    }
    // The failed sample, too, and each once.
    assert_eq!(in_folder(&folder), (0..count).collect::<Vec<_>>());
}

#[test]
fn of_two_services_one_that_had_no_room_fetches_what_the_other_one_has_acknowledged() {
    let Some(disk) = Disk::new() else {
        eprintln!("SKIPPED: no small disk can be mounted here (root is wanted)");
        return;
    };
    let (url, large) = (url(domain()), tempfile::tempdir().unwrap());
    let (filler, folder) = (disk.0.path().join("filler"), disk.0.path().join("kept"));
    std::fs::write(&filler, vec![0; 64 << 20]).unwrap();
    let small = crate::support::Service::start(&url, &folder);
    let other = crate::support::Service::start(&url, large.path());
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let publisher = storm(&bus).publisher().unwrap();
    [&small, &other].iter().for_each(|service| service.await_notice(crate::support::is_ready));
    let mut payload = vec![7; 256 << 10];
    let mut count = 0_u64;
    let mut publish = |more: u64| {
        for number in count..count + more {
            payload[..8].copy_from_slice(&number.to_le_bytes());
            publisher.publish(Message::new(&payload)).wait_timeout(TEST_TIMEOUT).unwrap();
        }
        count += more;
        count
    };
    while !small.has_told(|notice| matches!(notice, Notice::Trouble { .. })) {
        assert!(publish(1) < 10_000, "the disk never got full");
    }
    publish(50);
    std::fs::remove_file(&filler).unwrap();
    small.await_notice(crate::support::is_ready);
    let count = publish(5);
    drop(other);
    assert_eq!(in_folder(&folder), (0..count).collect::<Vec<_>>());
}

/// Blocks the disk syncs of one topic in a folder until it is dropped: another journal handle holds
/// the sync and stalls.
struct Stalled(Option<(Sender<()>, JoinHandle<()>)>);

impl Stalled {
    fn begin(folder: &Path, topic: &str) -> Self {
        let (entered, has_entered) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let hook: SyncHook = Arc::new(move |_: &Path| {
            let _ = entered.send(());
            let _ = may_go_on.lock().unwrap().recv();
            Ok(())
        });
        let (maintenance, sync_hook) = (Maintenance::Manual, Some(hook));
        let options = JournalOptions { maintenance, sync_hook, ..JournalOptions::default() };
        let journal = Journal::open(folder, options).unwrap();
        let topic = journal.topic(&topic.parse().unwrap()).unwrap().unwrap();
        let sync = move || {
            // That offset is never reached; the attempt is enough.
            topic.wait_durable(0, u64::MAX - 1, None).unwrap_err();
        };
        let thread = std::thread::spawn(sync);
        has_entered.recv_timeout(TEST_TIMEOUT).unwrap();
        Self(Some((go_on, thread)))
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        let (go_on, thread) = self.0.take().unwrap();
        drop(go_on);
        thread.join().unwrap();
    }
}

/// A topic whose receipts do not wait for the disk unless requested.
fn patient(bus: &Bus, name: &str) -> Topic {
    let qos = Qos { overload: Overload::Block, ..Qos::stream() };
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn publish_all(publisher: &Publisher, numbers: std::ops::Range<u64>, guarantee: Guarantee) {
    for number in numbers {
        let payload = number.to_le_bytes();
        let receipt = publisher.publish(Message::new(&payload).guarantee(guarantee));
        assert_eq!(receipt.wait_timeout(TEST_TIMEOUT).unwrap().guarantee, guarantee, "{number}");
    }
}

/// Reads a topic from its beginning, from a new connection.
fn await_all(url: &str, name: &str, count: u64) {
    let bus = Bus::connect(url).unwrap();
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    let mut samples = patient(&bus, name).subscribe(options).unwrap();
    for expected in 0..count {
        assert_eq!(next(&mut samples), expected);
    }
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
}

#[test]
fn a_disk_that_does_not_answer_holds_up_the_durable_receipts_of_its_topic_alone() {
    // The lease is so long that it cannot expire meanwhile, even on a loaded machine.
    let (url, folder) = (format!("{}&lease_s=60", url(domain())), tempfile::tempdir().unwrap());
    let _serving = service(&url, folder.path());
    await_service(&url);
    let bus = Bus::connect(&url).unwrap();
    let [slow, fast] = ["slow", "fast"].map(|name| patient(&bus, name).publisher().unwrap());
    for publisher in [&slow, &fast] {
        publish_all(publisher, 0..1, Guarantee::Durable);
    }
    let stalled = Stalled::begin(folder.path(), "slow");
    let durable = slow.publish(Message::new(&1_u64.to_le_bytes()).guarantee(Guarantee::Durable));
    publish_all(&slow, 2..20, Guarantee::Stored);
    publish_all(&fast, 1..20, Guarantee::Durable);
    assert!(durable.outcome().is_none(), "it is on no disk");
    drop(stalled);
    durable.wait_timeout(TEST_TIMEOUT).unwrap();
    slow.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
    for name in ["slow", "fast"] {
        await_all(&url, name, 20);
    }
}

#[test]
fn a_disk_that_is_silent_for_long_holds_up_no_stored_receipt_of_the_only_service() {
    let (url, folder) = (format!("{}&lease_s=1", url(domain())), tempfile::tempdir().unwrap());
    let _serving = process("impatient", &url, folder.path());
    await_service(&url);
    let bus = Bus::connect(&url).unwrap();
    let publisher = patient(&bus, "storm").publisher().unwrap();
    publish_all(&publisher, 0..1, Guarantee::Durable);
    let stalled = Stalled::begin(folder.path(), "storm");
    let durable =
        publisher.publish(Message::new(&1_u64.to_le_bytes()).guarantee(Guarantee::Durable));
    let mut count = 2;
    while durable.outcome().is_none() {
        publish_all(&publisher, count..count + 1, Guarantee::Stored);
        count += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = durable.outcome().unwrap().unwrap_err().to_string();
    assert!(told.contains("the disk") && told.contains("has not answered"), "{told}");
    publish_all(&publisher, count..count + 20, Guarantee::Stored);
    drop(stalled);
    let until = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = publisher.flush(Guarantee::Durable, TEST_TIMEOUT) {
        assert!(Instant::now() < until, "{error}");
    }
    await_all(&url, "storm", count + 20);
}

#[test]
fn what_is_stored_and_not_synced_outlives_the_service_and_then_its_writer() {
    let (url, folder) = (format!("{}&lease_s=1", url(domain())), tempfile::tempdir().unwrap());
    let mut serving = service(&url, folder.path());
    await_service(&url);
    let bus = Bus::connect(&url).unwrap();
    let publisher = patient(&bus, "storm").publisher().unwrap();
    publish_all(&publisher, 0..1, Guarantee::Durable);
    for (from, lives) in [(1, true), (20, false)] {
        let stalled = Stalled::begin(folder.path(), "storm");
        publish_all(&publisher, from..from + 19, Guarantee::Stored);
        serving.signal(Signal::KILL);
        serving.wait();
        drop(stalled);
        if !lives {
            bus.close();
        }
        serving = service(&url, folder.path());
        await_service(&url);
        if lives {
            publisher.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
        }
        await_all(&url, "storm", from + 19);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, name) = (entry.as_ref().unwrap().path(), entry.as_ref().unwrap().file_name());
        match entry.is_dir() {
            true => copy(&entry, &to.join(name)),
            false => _ = std::fs::copy(&entry, to.join(name)).unwrap(),
        }
    }
}

/// Gives a copied file the inode of its removed original, as file systems often do by themselves,
/// if this one assigns it to one of some new files.
fn reuse_inode(file: &Path, inode: u64) {
    let folder = file.ancestors().nth(4).unwrap();
    let new: Vec<_> = (0..1_000).map(|number| folder.join(format!("new-{number}"))).collect();
    let is_it = |path: &&PathBuf| {
        std::fs::write(path, "").unwrap();
        std::fs::metadata(path).unwrap().ino() == inode
    };
    if let Some(found) = new.iter().find(is_it) {
        std::fs::copy(file, found).unwrap();
        std::fs::rename(found, file).unwrap();
    }
    new.iter().filter(|path| path.exists()).for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn what_a_power_cut_takes_that_was_stored_alone_a_living_writer_sends_again() {
    let (url, root) = (format!("{}&lease_s=1", url(domain())), tempfile::tempdir().unwrap());
    let [folder, disk] = ["folder", "disk"].map(|name| root.path().join(name));
    let mut serving = service(&url, &folder);
    await_service(&url);
    let bus = Bus::connect(&url).unwrap();
    let publisher = patient(&bus, "storm").publisher().unwrap();
    publish_all(&publisher, 0..10, Guarantee::Durable);
    let stalled = Stalled::begin(&folder, "storm");
    copy(&folder, &disk);
    publish_all(&publisher, 10..30, Guarantee::Stored);
    serving.signal(Signal::KILL);
    serving.wait();
    drop(stalled);
    // Data that was never synced is lost.
    let control = folder.join("topics/storm/0/control");
    let inode = std::fs::metadata(&control).unwrap().ino();
    std::fs::remove_dir_all(&folder).unwrap();
    copy(&disk, &folder);
    reuse_inode(&control, inode);
    serving = service(&url, &folder);
    await_service(&url);
    publisher.flush(Guarantee::Durable, TEST_TIMEOUT).unwrap();
    publish_all(&publisher, 30..40, Guarantee::Durable);
    await_all(&url, "storm", 40);
    drop(serving);
}
