//! `helio sub --group` beside members of other software that join and leave: Apache Kafka's Java
//! client and librdkafka. Every sample is processed, and no member of ours dies.
//!
//! `HELIO_GROUP_SECONDS` is how long members come and go; by default a minute.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::{Message, Publisher, Qos, TopicSpec};
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::kafka::{Broker, HANG_TIMEOUT, admin, config, done, make, unique};
use crate::storm_report::Storm;
use crate::support::{helio, interrupt};

const PARTITIONS: u32 = 6;
/// How long a round lasts, in which one member joins or leaves.
const ROUND: Duration = Duration::from_secs(3);
/// How long a member or the broker is frozen: beyond the session's 6 s, and a commit's 10 s.
const FREEZE: Duration = Duration::from_secs(20);

fn duration() -> Duration {
    let given = std::env::var("HELIO_GROUP_SECONDS").ok();
    Duration::from_secs(given.map_or(60, |text| text.parse().expect("seconds")))
}

/// The numbers that members have processed, and how often one came again.
#[derive(Default)]
struct Processed {
    numbers: HashSet<u64>,
    repeated: u64,
}

type Book = Arc<Mutex<Processed>>;

fn enter(book: &Book, number: u64) {
    let mut book = book.lock().unwrap();
    if !book.numbers.insert(number) {
        book.repeated += 1;
    }
}

/// A member that runs.
enum Member {
    Ours(Child, JoinHandle<()>),
    Java(Child, ChildStdin, JoinHandle<()>),
    Librdkafka(Arc<AtomicBool>, JoinHandle<()>),
}

/// Enters the numbers that a program prints.
fn reads(child: &mut Child, book: &Book) -> JoinHandle<()> {
    let (out, book) = (child.stdout.take().unwrap(), Arc::clone(book));
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            enter(&book, line.unwrap().parse().unwrap());
        }
    })
}

impl Member {
    fn ours(url: &str, topic: &str, book: &Book) -> Self {
        let mut command = helio();
        command.args(["sub", topic, "--group", "g", "--from", "earliest", "--raw", "--url", url]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let read = reads(&mut child, book);
        Self::Ours(child, read)
    }

    fn java(broker: &Broker, topic: &str, book: &Book) -> Self {
        let text = |name: &str| broker.report["java"][name].as_str().unwrap().to_owned();
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../transports/kafka/tests/support/foreign_clients/Member.java"
        );
        let mut command = Command::new(text("program"));
        command.args(["-cp", &text("classpath"), source, broker.servers(), topic]);
        command.arg(group(topic)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (stdin, read) = (child.stdin.take().unwrap(), reads(&mut child, book));
        Self::Java(child, stdin, read)
    }

    /// The engine of kcat.
    fn librdkafka(broker: &Broker, topic: &str, book: &Book) -> Self {
        let mut config = config(broker);
        config.set("group.id", group(topic)).set("auto.offset.reset", "earliest");
        config.set("auto.commit.interval.ms", "500");
        let consumer: BaseConsumer = config.create().unwrap();
        consumer.subscribe(&[topic]).unwrap();
        let (ends, book) = (Arc::<AtomicBool>::default(), Arc::clone(book));
        let end = Arc::clone(&ends);
        let read = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                    let text = std::str::from_utf8(message.payload().unwrap()).unwrap();
                    enter(&book, text.trim_end().parse().unwrap());
                }
            }
        });
        Self::Librdkafka(ends, read)
    }

    fn of_kind(kind: usize, (broker, topic, book): (&Broker, &str, &Book)) -> Self {
        match kind % 4 {
            0 | 2 => Self::ours(&broker.url(""), topic, book),
            1 => Self::java(broker, topic, book),
            _ => Self::librdkafka(broker, topic, book),
        }
    }

    /// Ends it in order; ours must end well.
    fn leave(self) {
        match self {
            Self::Ours(mut child, read) => {
                assert_eq!(interrupt(&mut child), Some(0), "a member of ours died");
                read.join().unwrap();
            }
            Self::Java(mut child, mut stdin, read) => {
                // Its compiler may not have started it yet.
                let _ = stdin.write_all(b"\n");
                child.wait().unwrap();
                read.join().unwrap();
            }
            Self::Librdkafka(ends, read) => {
                ends.store(true, Ordering::Release);
                read.join().unwrap();
            }
        }
    }

    /// Fails if it has ended by itself.
    fn is_alive(&mut self) {
        if let Self::Ours(child, _) = self {
            assert_eq!(child.try_wait().unwrap(), None, "a member of ours died");
        }
    }
}

/// The group of the bus, by Kafka's name.
fn group(topic: &str) -> String {
    format!("{topic}.g")
}

/// Publishes numbers, one line each, to all partitions in turn.
fn publish(publisher: &Publisher, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let partition = u32::try_from(number % u64::from(PARTITIONS)).unwrap();
        let text = format!("{number}\n");
        let message = Message::new(text.as_bytes()).partition(partition);
        publisher.publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
    }
}

/// Waits until all numbers up to one were processed.
fn await_all(book: &Book, members: &mut [Member], end: u64) {
    let until = Instant::now() + HANG_TIMEOUT;
    loop {
        let missing = {
            let book = book.lock().unwrap();
            (0..end).filter(|number| !book.numbers.contains(number)).count()
        };
        if missing == 0 {
            return;
        }
        members.iter_mut().for_each(Member::is_alive);
        assert!(Instant::now() < until, "{missing} of {end} samples were not processed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn members_of_other_software_join_and_leave() {
    let Some(broker) = Broker::start(1) else { return };
    let topic = unique("groups").replace('/', "_");
    let qos = Qos { partitions: PARTITIONS, ..Qos::stream() };
    let bus = broker.bus("Mount");
    let publisher = bus.topic(TopicSpec::new(&topic).unwrap().qos(qos)).unwrap();
    let publisher = publisher.publisher().unwrap();
    let book = Book::default();
    let site = (&broker, topic.as_str(), &book);
    let mut members = vec![Member::of_kind(0, site), Member::of_kind(2, site)];
    let (until, mut end, mut frozen) = (Instant::now() + duration(), 0, None);
    let mut changes = 0;
    for round in 0_usize.. {
        if Instant::now() >= until {
            break;
        }
        changes += 1;
        match members.len() {
            6.. => members.remove(round % 6).leave(),
            2 => members.push(Member::of_kind(round, site)),
            count if round % 3 == 2 => members.remove(round % count).leave(),
            _ => members.push(Member::of_kind(round, site)),
        }
        if round == 1 {
            let one = Member::ours(&broker.url(""), &topic, &book);
            if let Member::Ours(child, _) = &one {
                kill_process(Pid::from_child(child), Signal::STOP).unwrap();
            }
            frozen = Some((one, Instant::now() + FREEZE));
        }
        if let Some((Member::Ours(child, _), _)) = frozen.as_ref().filter(|f| f.1 < Instant::now())
        {
            kill_process(Pid::from_child(child), Signal::CONT).unwrap();
            members.extend(frozen.take().map(|(member, _)| member));
        }
        let next = Instant::now() + ROUND;
        while Instant::now() < next {
            publish(&publisher, end..end + 10);
            end += 10;
            members.iter_mut().for_each(Member::is_alive);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    if let Some((Member::Ours(child, _), _)) = &frozen {
        kill_process(Pid::from_child(child), Signal::CONT).unwrap();
    }
    members.extend(frozen.map(|(member, _)| member));
    await_all(&book, &mut members, end);
    members.into_iter().for_each(Member::leave);
    let book = book.lock().unwrap();
    println!("{end} samples were processed, {} of them again after a rebalance", book.repeated);
    let lost = (0..end).filter(|number| !book.numbers.contains(number)).count() as u64;
    let storm = Storm { tried: changes, survived: changes, lost, unreported: 0 };
    storm.report("members that joined, left or froze");
}

#[test]
fn a_member_survives_a_frozen_broker_and_a_deleted_topic() {
    let Some(broker) = Broker::start(1) else { return };
    let (admin, topic) = (admin(&broker), unique("deleted").replace('/', "_"));
    make(&admin, &topic, &[]);
    let bus = broker.bus("Mount");
    let open = || bus.topic(TopicSpec::new(&topic).unwrap()).unwrap().publisher().unwrap();
    let send = |publisher: &Publisher, number: u64| {
        let text = format!("{number}\n");
        publisher.publish(Message::new(text.as_bytes())).wait_timeout(HANG_TIMEOUT).unwrap();
    };
    let book = Book::default();
    let mut members = [Member::ours(&broker.url(""), &topic, &book)];
    let publisher = open();
    send(&publisher, 0);
    await_all(&book, &mut members, 1);
    broker.does("freeze");
    std::thread::sleep(FREEZE);
    broker.does("thaw");
    send(&publisher, 1);
    await_all(&book, &mut members, 2);
    drop(publisher);
    done(admin.delete_topics(&[&topic], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    // Commits go on meanwhile, into a topic that does not exist.
    std::thread::sleep(ROUND);
    members.iter_mut().for_each(Member::is_alive);
    make(&admin, &topic, &[]);
    send(&open(), 2);
    await_all(&book, &mut members, 3);
    members.into_iter().for_each(Member::leave);
}
