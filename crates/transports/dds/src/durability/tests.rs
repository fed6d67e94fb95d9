//! Invalid and late messages to the durability service.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    Begin, Decorator, Published, Reader, ReaderRequest, Record, TopicDecorator, Transport,
    TransportTopic, Writer as TransportWriter, WriterRequest,
};
use helio_bus::{Guarantee, Message, SchemaId, SchemaText, Start, Subscribe, TopicSpec};
use helio_core::{HeadersRef, Producer, ProducerName, Schema, Tai};

use super::history_server::ServedTopic;
use super::*;
use crate::announcements::{Effect, Origin, SharedState, hex};
use crate::error::engine;
use crate::peer_messages::{HistoryRequest, PAGE_TOPIC, REQUEST_TOPIC, message_qos};
use helio_bus::transport::versioned_json;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn url() -> String {
    crate::register();
    format!("dds://{}?interface=lo&multicast=false&service_ms=500", crate::test_domain::domain())
}

fn connect(url: &str) -> Arc<Connection> {
    let opening = opening(url).unwrap();
    Connection::open(&Options::parse(&opening).unwrap(), &opening.clock).unwrap()
}

/// A service in a thread of its own.
struct Running(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Running {
    fn start(url: &str, folder: &Path) -> Self {
        let (stop, mut service) = (Arc::<AtomicBool>::default(), Durability::open(url, folder));
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Ordering::Acquire) {
                let turned = service.as_mut().unwrap().turn(POLL_INTERVAL, &mut |_| ());
                turned.unwrap();
            }
        };
        Self(stop, Some(std::thread::spawn(run)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn kept() -> Qos {
    Qos { guarantee: Guarantee::Durable, ..Qos::event() }
}

#[test]
fn what_one_service_says_does_not_replace_what_another_says() {
    let url = url();
    let [reading, one, other] = [0; 3].map(|_| connect(&url));
    // Only this test takes the received messages.
    let messages = crate::peer_messages::PeerMessages::new("reader", Arc::new(|| ()));
    messages.subscribe_acks(|kind| reading.message_topic(kind)).unwrap();
    let message_writers = [&one, &other].map(|service| {
        let qos = ack_qos().partitions(&["reader"]).unwrap();
        let writer = Writer::open(&service.message_topic(ACK_TOPIC).unwrap(), &qos, None).unwrap();
        (
            MessageWriter::new(writer, &service.announcements.session),
            service.announcements.session.clone(),
        )
    });
    let position = ProducerPosition {
        partition: 0,
        producer: "Mount".parse().unwrap(),
        incarnation: 1,
        sequence: 7,
        topic_sequences: [7, 0],
    };
    let (topic, appended, nack) = ("kept".parse().unwrap(), 0, None);
    let ack = Ack { topic, position, appended, nack };
    let mut announced: Vec<String> = Vec::new();
    for (mut message_writer, session) in message_writers {
        let until = Instant::now() + TEST_TIMEOUT;
        while !message_writer.is_read() {
            assert!(Instant::now() < until, "they never met");
            std::thread::sleep(Duration::from_millis(1));
        }
        let value = versioned_json::encode(&ack).unwrap();
        assert!(message_writer.write(ack.key(&session).as_bytes(), &value).is_ok());
        announced.push(session);
    }
    let mut heard: Vec<_> = messages
        .take_acks(&reading.announcements)
        .into_iter()
        .map(|(service, _)| service)
        .collect();
    heard.sort_unstable();
    announced.sort_unstable();
    assert_eq!(heard, announced);
}

#[test]
fn letters_that_are_wrong_are_nobodys_trouble() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let _service = Running::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let topic = bus.topic(TopicSpec::new("kept").unwrap().qos(kept())).unwrap();
    let publisher = topic.publisher().unwrap();
    let publish =
        || publisher.publish(Message::new(b"1").key(b"k")).wait_timeout(TEST_TIMEOUT).unwrap();
    publish();
    let connection = connect(&url);
    let writer = Writer::open(
        &connection.message_topic(crate::peer_messages::REQUEST_TOPIC).unwrap(),
        &crate::peer_messages::message_qos().keep_all(),
        None,
    );
    let mut message_writer = MessageWriter::new(writer.unwrap(), &connection.announcements.session);
    let until = Instant::now() + TEST_TIMEOUT;
    while !message_writer.is_read() {
        assert!(Instant::now() < until, "they never met");
        std::thread::sleep(Duration::from_millis(1));
    }
    let to = connection.announcements.with_state(|state| {
        state.services(&"kept".parse().unwrap()).map(|(service, _)| service.clone()).next().unwrap()
    });
    let position = ProducerPosition {
        partition: u32::MAX,
        producer: "nobody".parse().unwrap(),
        incarnation: u64::MAX,
        sequence: u64::MAX,
        topic_sequences: [u64::MAX; 2],
    };
    let mut acks = vec![b"null".to_vec(), b"{".to_vec(), vec![0xFF; 9], Vec::new()];
    for (number, page) in [(1, 0), (1, u64::MAX), (1, u64::MAX), (2, u64::MAX), (3, 0)] {
        for partitions in [vec![], vec![99], vec![u32::MAX; 9]] {
            let request = HistoryRequest {
                service: to.clone(),
                reader: number * 10 + partitions.len() as u64,
                page,
                topic: "kept".parse().unwrap(),
                partitions,
                last: Some(u32::MAX).filter(|_| number == 3),
                required_positions: vec![position.clone()],
                received_positions: vec![position.clone()],
                digest: 0,
            };
            acks.push(versioned_json::encode(&request).unwrap());
        }
    }
    for ack in acks {
        message_writer.write(connection.announcements.session.as_bytes(), &ack).unwrap();
    }
    publish();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    for _ in 0..2 {
        assert!(samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample().is_some());
    }
    connection.close();
}

/// `null` withdraws an announcement, and is no message otherwise.
#[test]
fn messages_of_another_version_are_counted() {
    let url = url();
    let [reading, writing] = [0; 2].map(|_| connect(&url));
    reading.subscribe_acks().unwrap();
    let _server = HistoryServer::start(&reading, &Arc::default()).unwrap();
    let open = |kind: &str| reading.message_topic(kind);
    let reader = reading.messages.open_page_queue(open, Arc::new(|| ())).unwrap();
    let session = &writing.announcements.session;
    let mut count = 0;
    let mut send =
        |kind: &str, qos: crate::entity::Qos, key: &[u8], message: &dyn Fn(&[u8]) -> Vec<u8>| {
            let topic = writing.message_topic(kind).unwrap();
            let mut writer = MessageWriter::new(Writer::open(&topic, &qos, None).unwrap(), session);
            let until = Instant::now() + TEST_TIMEOUT;
            let wait = || {
                assert!(Instant::now() < until, "it never arrived");
                std::thread::sleep(Duration::from_millis(1));
            };
            while !writer.is_read() {
                wait();
            }
            for json in [&br#"{"v":1}"#[..], b"{}", b"null"] {
                assert!(writer.write(key, &message(json)).is_ok());
                count += 1;
                while reading.announcements.with_state(|state| state.unreadable(session)) < count {
                    assert!(reading.messages.next_page(reader, &reading.announcements).is_none());
                    wait();
                }
            }
        };
    let to = |qos: crate::entity::Qos| qos.partitions(&[&reading.announcements.session]).unwrap();
    send(ACK_TOPIC, to(ack_qos()), b"kept 0 Mount", &<[u8]>::to_vec);
    send(REQUEST_TOPIC, message_qos().keep_all(), session.as_bytes(), &<[u8]>::to_vec);
    let page = |json: &[u8]| {
        let mut page = Vec::new();
        crate::peer_messages::framed(json, &mut page);
        page
    };
    send(PAGE_TOPIC, to(message_qos().keep_all()), reader.to_string().as_bytes(), &page);
    assert_eq!(reading.announcements.with_state(|state| state.unreadable(session)), 9);
    reading.close();
    writing.close();
}

#[test]
fn a_sample_is_acknowledged_when_its_schemas_text_is_kept_and_no_other() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let service = Running::start(&url, folder.path());
    let dds = DdsTransport::new(connect(&url));
    let topic = dds.create_topic(&"kept".parse().unwrap(), &kept()).unwrap();
    let producer: ProducerName = "Mount".parse().unwrap();
    let mut writer = topic.writer(&WriterRequest { producer: &producer, partition: 0 }).unwrap();
    let schema = Schema::parse(r#"{"type": "record", "name": "of", "fields": []}"#).unwrap();
    let record = Record {
        key: b"k",
        payload: b"",
        time: Tai::from_nanos(1),
        schema: schema.id(),
        level: 0,
        trace: None,
        headers: HeadersRef::EMPTY,
    };
    let told = connect(&url);
    let text = r#"{"type": "record", "name": "another", "fields": []}"#.to_owned();
    told.announcements
        .announce(Announcement::SchemaText { schema: hex(schema.id()), text })
        .unwrap();
    let Published::Pending(pending) = writer.publish(&record, Guarantee::Durable).unwrap() else {
        panic!("nobody can have it yet");
    };
    assert!(pending.wait(Some(Duration::from_secs(2))).is_none(), "nobody could read it");
    let text = schema.to_json().to_string();
    dds.put_schema(schema.id(), &text).unwrap();
    pending.wait(Some(TEST_TIMEOUT)).unwrap().unwrap();
    drop(service);
    let journal = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    assert_eq!(journal.schema(schema.id()).unwrap(), Some(text));
    assert_eq!(journal.schema(SchemaId::BYTES).unwrap(), None);
    dds.close();
    told.close();
}

#[test]
fn an_edited_text_in_the_folder_delays_no_other_schema_and_is_replaced() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let of = |fields: &str| {
        let text = format!(r#"{{"type":"record","name":"of","fields":[{fields}]}}"#);
        SchemaText { id: Schema::parse(&text).unwrap().id(), text: text.into() }
    };
    let (old, new) = (of(""), of(r#"{"name":"a","type":"double","default":0}"#));
    let publish = |schema: &SchemaText, payload: &[u8]| {
        let bus = Bus::connect(&url).unwrap();
        let spec = TopicSpec::new("kept").unwrap().qos(kept()).schema(schema.clone());
        let publisher = bus.topic(spec).unwrap().publisher().unwrap();
        publisher.publish(Message::new(payload).key(b"k")).wait_timeout(TEST_TIMEOUT).unwrap();
    };
    let service = Running::start(&url, folder.path());
    publish(&old, b"");
    drop(service);
    let file = folder.path().join(format!("schemas/{}.avsc", old.id));
    std::fs::write(&file, old.text.replace("of", "edited")).unwrap();
    let service = Running::start(&url, folder.path());
    publish(&new, &[0; 8]);
    publish(&old, b"");
    drop(service);
    let journal = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    for schema in [old, new] {
        assert_eq!(journal.schema(schema.id).unwrap().as_deref(), Some(&*schema.text));
    }
}

#[test]
fn each_of_many_topics_is_opened_once_however_long_that_takes() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let mut service = Durability::open(&url, folder.path()).unwrap();
    let bus = Bus::connect(&url).unwrap();
    let topics: Vec<_> = (0..40)
        .map(|n| bus.topic(TopicSpec::new(&format!("kept{n}")).unwrap().qos(kept())).unwrap())
        .collect();
    let (until, mut opened) = (Instant::now() + TEST_TIMEOUT, Vec::new());
    while opened.len() < topics.len() && Instant::now() < until {
        // As if opening took longer than the poll interval.
        std::thread::sleep(POLL_INTERVAL * 3);
        let mut notify = |notice: Notice| {
            if let Notice::Keeps { topic, .. } = notice {
                opened.push(topic);
            }
        };
        service.turn(Duration::ZERO, &mut notify).unwrap();
    }
    assert_eq!(service.figures().topics, 40, "{opened:?}");
    opened.sort();
    opened.dedup();
    assert_eq!(opened.len(), topics.len(), "one was opened again");
}

#[test]
fn writers_send_again_to_a_service_that_is_ready_anew_and_to_no_other() {
    let (mut state, topic) = (SharedState::default(), "kept".parse::<TopicName>().unwrap());
    state.live.insert("a".to_owned());
    let mut says = |service_state: ServiceState| {
        let announcement = Announcement::ServiceState { topic: topic.clone(), service_state };
        let key = announcement.key();
        matches!(state.receive("a", &key, Some(announcement), Duration::ZERO), Effect::Ready(_))
    };
    let ready = |ready_count| ServiceState { ready: true, ready_count, ..ServiceState::default() };
    let trouble = ServiceState {
        error: Some("a full disk".to_owned()),
        ready_count: 1,
        ..ServiceState::default()
    };
    assert!(says(ready(1)));
    assert!(!says(ServiceState { reunions: 1, ..ready(1) }), "it has seen another one again");
    assert!(!says(trouble.clone()));
    assert!(!says(ServiceState { error: None, ..trouble }));
    assert!(says(ready(2)));
    assert!(says(ready(3)), "what was said between was replaced");
    state.end("a");
    let announcement = Announcement::ServiceState { topic: topic.clone(), service_state: ready(3) };
    let heard = state.receive("a", &announcement.key(), Some(announcement), Duration::ZERO);
    assert!(matches!(heard, Effect::Ready(_)), "it was away");
}

#[test]
fn nobody_waits_for_who_has_last_values_alone_nor_fetches_from_it() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let (other, name) = (connect(&url), "kept".parse::<TopicName>().unwrap());
    other.announcements.announce(Announcement::Service { started_nanos: 1 }).unwrap();
    let service_state = ServiceState { ready: true, last_values: true, ..ServiceState::default() };
    other
        .announcements
        .announce(Announcement::ServiceState { topic: name.clone(), service_state })
        .unwrap();
    let _service = Running::start(&url, folder.path());
    let bus = Bus::connect(&url).unwrap();
    let topic = bus.topic(TopicSpec::of(name).qos(kept())).unwrap();
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait_timeout(TEST_TIMEOUT).unwrap();
    other.close();
}

#[test]
fn of_a_topic_that_is_opened_anew_nothing_is_left_that_others_wait_for() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let mut service = Durability::open(&url, folder.path()).unwrap();
    let (dds, earlier) = (DdsTransport::new(connect(&url)), connect(&url));
    let name = "anew".parse::<TopicName>().unwrap();
    let _topic = dds.create_topic(&name, &kept()).unwrap();
    let turn_until = |service: &mut Durability, done: &dyn Fn(&Durability) -> bool| {
        let until = Instant::now() + TEST_TIMEOUT;
        while !done(service) {
            assert!(Instant::now() < until, "it never came so far");
            service.turn(POLL_INTERVAL, &mut |_| ()).unwrap();
        }
    };
    turn_until(&mut service, &|service| service.watchdog.announced(&name).ready);
    let (served_topic, ready_count) = (
        Arc::clone(&locked(&service.served_topics)[&name]),
        service.watchdog.announced(&name).ready_count,
    );
    // An earlier session with other properties was cut off.
    let origin = Origin { time_nanos: 1, session: earlier.announcements.session.clone() };
    let qos = Qos { partitions: 2, ..kept() };
    earlier
        .announcements
        .announce(Announcement::Topic { topic: name.clone(), qos, origin })
        .unwrap();
    turn_until(&mut service, &|service| {
        let served_topics = locked(&service.served_topics);
        !served_topics.get(&name).is_some_and(|now| Arc::ptr_eq(now, &served_topic))
    });
    assert!(served_topic.is_closed(), "its readers would wait for ever");
    let announced = service.watchdog.announced(&name);
    assert_eq!(
        announced.ready,
        announced.ready_count > ready_count,
        "who hears that it is ready hears so anew: {announced:?}"
    );
    dds.close();
    earlier.close();
}

/// A journal on a disk that may be full: then no writer can be opened, which is counted.
struct FullDisk(Arc<dyn Transport>, Disk);

/// Whether it is full, and how often a writer could not be opened.
type Disk = Arc<(AtomicBool, AtomicUsize)>;

impl Decorator for FullDisk {
    fn inner(&self) -> &dyn Transport {
        &*self.0
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(TopicOnFullDisk(inner, Arc::clone(&self.1)))
    }
}

struct TopicOnFullDisk(Arc<dyn TransportTopic>, Disk);

impl TopicDecorator for TopicOnFullDisk {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.0
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn TransportWriter>, TransportError> {
        let (full, failures) = &*self.1;
        if full.load(Ordering::Acquire) {
            failures.fetch_add(1, Ordering::AcqRel);
            return Err(engine("open a writer", std::io::Error::other("no room on the disk")));
        }
        self.0.forwarder(request, incarnation)
    }
}

#[test]
fn a_topic_has_not_recovered_before_the_sample_that_failed_is_stored() {
    let (url, folder) = (url(), tempfile::tempdir().unwrap());
    let timeouts = Timeouts { retry_interval: Duration::ZERO, ..Timeouts::default() };
    let mut service = Durability::open_with(&url, folder.path(), timeouts).unwrap();
    let disk: Disk = Arc::new((AtomicBool::new(true), AtomicUsize::new(0)));
    let journal = format!("journal:{}", folder.path().display());
    let journal = FaultTransport::connect(&journal, FaultPlan::default()).unwrap();
    let journal = FullDisk(journal, Arc::clone(&disk));
    service.journal = Bus::builder().producer("durability").over(Arc::new(journal)).unwrap();
    let bus = Bus::connect(&url).unwrap();
    let topic = bus.topic(TopicSpec::new("kept").unwrap().qos(kept())).unwrap();
    let publisher = topic.publisher().unwrap();
    let _pending = publisher.publish(Message::new(b"1").key(b"k"));
    let mut notices = Vec::new();
    let mut turn_until = |done: &dyn Fn(&[Notice]) -> bool| {
        let until = Instant::now() + TEST_TIMEOUT;
        while !done(&notices) {
            assert!(Instant::now() < until, "it never came so far: {notices:?}");
            service.turn(POLL_INTERVAL, &mut |notice| notices.push(notice)).unwrap();
        }
        (notices.clone(), service.figures().stored)
    };
    let recovered =
        |notices: &[Notice]| notices.iter().any(|one| matches!(one, Notice::Recovered { .. }));
    let (notices, stored) = turn_until(&|_| disk.1.load(Ordering::Acquire) >= 4);
    assert!(!recovered(&notices) && stored == 0, "{notices:?}");
    disk.0.store(false, Ordering::Release);
    assert_eq!(turn_until(&recovered).1, 1);
}

/// A memory transport whose searches for last values wait for the gate, or for a timeout.
struct Slow(Arc<dyn Transport>, Gate);

/// The number of searches so far, and whether the gate is open.
type Gate = Arc<(Mutex<(usize, bool)>, Condvar)>;

impl Decorator for Slow {
    fn inner(&self) -> &dyn Transport {
        &*self.0
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(SlowTopic(inner, Arc::clone(&self.1)))
    }
}

struct SlowTopic(Arc<dyn TransportTopic>, Gate);

impl TopicDecorator for SlowTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.0
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        if matches!(request.from, Begin::LastPerKey(_)) {
            let (state, opened) = &*self.1;
            state.lock().unwrap().0 += 1;
            let is_shut = |state: &mut (usize, bool)| !state.1;
            let waited = opened.wait_timeout_while(state.lock().unwrap(), TEST_TIMEOUT, is_shut);
            waited.unwrap().0.1 = true;
        }
        self.0.reader(request)
    }
}

#[test]
fn last_values_that_are_looked_for_for_long_hold_up_no_other_reader() {
    let (url, gate) = (url(), Gate::default());
    let memory = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let bus = Bus::builder().over(Arc::new(Slow(memory, Arc::clone(&gate)))).unwrap();
    let topic = bus.topic(TopicSpec::new("kept").unwrap().qos(Qos::stream())).unwrap();
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let Producer { name: producer, incarnation } = publisher.producer();
    let name: TopicName = "kept".parse().unwrap();
    let has = HashMap::from([((0, producer), (incarnation, 1))]);
    let served_topic = ServedTopic::new(topic, true, &has);
    let served_topics = Arc::new(ServedTopics::new(BTreeMap::from([(name.clone(), served_topic)])));
    let (serving, asking) = (connect(&url), connect(&url));
    let server = HistoryServer::start(&serving, &served_topics).unwrap();
    let until = Instant::now() + 2 * TEST_TIMEOUT;
    let lane = || {
        asking.messages.open_page_queue(|kind| asking.message_topic(kind), Arc::new(|| ())).unwrap()
    };
    let [slow, quick] = [(lane(), Some(1)), (lane(), None)];
    let ask = |(number, last): (u64, Option<u32>)| {
        assert!(Instant::now() < until, "it is never answered");
        let request = HistoryRequest {
            service: serving.announcements.session.clone(),
            reader: number,
            page: 0,
            topic: name.clone(),
            partitions: Vec::new(),
            last,
            required_positions: Vec::new(),
            received_positions: Vec::new(),
            digest: 0,
        };
        asking.messages.send_request(&request);
        std::thread::sleep(Duration::from_millis(10));
    };
    let samples = |reader: (u64, Option<u32>)| loop {
        ask(reader);
        if let Some(page) = asking.messages.next_page(reader.0, &asking.announcements)
            && !page.head.busy
        {
            break page.samples.len();
        }
    };
    while gate.0.lock().unwrap().0 == 0 {
        ask(slow);
    }
    assert_eq!(samples(quick), 1);
    assert_eq!(*gate.0.lock().unwrap(), (1, false), "it was waited for");
    gate.0.lock().unwrap().1 = true;
    gate.1.notify_all();
    assert_eq!(samples(slow), 1);
    drop(server);
    serving.close();
    asking.close();
}
