//! The way in where something fails: the bus, the disk, the limits, whoever logs when nobody takes
//! it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    self, Decorator, Published, TopicDecorator, Transport, TransportTopic, Writer, WriterRequest,
};
use helio_bus::{
    Bus, Guarantee, PendingReceipt, Producer, PublishError, Qos, ReceiptSender, TopicName,
    TopicSpec, TransportError, pending_receipt,
};
use helio_logging::{
    CallSite, Lanes, Level, LogFigures, LogOptions, Logging, MAX_LOGGERS, MAX_SITES, Next, Reader,
    ReaderOptions, Record, Records, Spill, Start, Value, log,
};

/// How long a test waits for what must come: it only keeps a failed test from hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
/// No packet is ever as old: it is published when it is full, urgent or asked for.
const NEVER: Duration = Duration::from_secs(3600);

fn over(transport: Arc<dyn Transport>) -> Bus {
    Bus::builder().producer("CONTROL").over(transport).unwrap()
}

fn faulty(plan: FaultPlan) -> (Bus, Arc<FaultTransport>) {
    let transport = FaultTransport::connect("memory:", plan).unwrap();
    (over(Arc::clone(&transport) as _), transport)
}

fn bus() -> Bus {
    Bus::builder().producer("CONTROL").connect("memory:").unwrap()
}

/// Little memory, and a file.
fn spilling(folder: &tempfile::TempDir) -> LogOptions {
    LogOptions {
        queue_bytes: 16 << 10,
        batch_records: 10,
        ring_bytes: 8 << 20,
        spill: Some(Spill { file: folder.path().join("spill"), bytes: 64 << 20 }),
        // Who ends leaves what is not published in the file.
        close_timeout: Duration::ZERO,
        ..LogOptions::default()
    }
}

fn records(bus: &Bus, level: Level) -> Records {
    let options = ReaderOptions::from(Start::Earliest).levels([level]);
    Reader::open(bus, &Lanes::default(), options).unwrap().records()
}

/// The next record, whatever is told before it.
fn next(records: &mut Records) -> Record {
    loop {
        match records.next(HANG_TIMEOUT).unwrap() {
            Next::Record(record, _) => return *record,
            Next::News(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// How many packets behind the first one do not arrive at once.
const LOST: usize = 3;

/// A transport that says nothing about some packets, which do not arrive, until it is asked.
#[derive(Default)]
struct Doubts {
    taken: usize,
    held: Vec<ReceiptSender>,
    /// The next attempt finds a full queue.
    is_full: bool,
}

struct Doubtful {
    inner: Arc<dyn Transport>,
    doubts: Arc<Mutex<Doubts>>,
}

struct DoubtfulTopic {
    inner: Arc<dyn TransportTopic>,
    doubts: Arc<Mutex<Doubts>>,
}

struct DoubtfulWriter {
    inner: Box<dyn Writer>,
    doubts: Arc<Mutex<Doubts>>,
}

impl Decorator for Doubtful {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(DoubtfulTopic { inner, doubts: Arc::clone(&self.doubts) })
    }
}

impl TopicDecorator for DoubtfulTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.inner
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        let (inner, doubts) = (self.inner.writer(request)?, Arc::clone(&self.doubts));
        Ok(Box::new(DoubtfulWriter { inner, doubts }))
    }
}

impl Writer for DoubtfulWriter {
    fn producer(&self) -> &Producer {
        self.inner.producer()
    }

    fn publish(
        &mut self,
        record: &transport::Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        let mut doubts = self.doubts.lock().unwrap();
        if std::mem::take(&mut doubts.is_full) {
            return Err(PublishError::Full {
                transport: "doubtful".to_owned(),
                queued: 0,
                waits_for: None,
            });
        }
        doubts.taken += 1;
        if !(2..2 + LOST).contains(&doubts.taken) {
            return self.inner.publish(record, guarantee);
        }
        let (ticket, pending) = pending_receipt();
        doubts.held.push(ticket);
        Ok(Published::Pending(pending))
    }

    fn try_publish(
        &mut self,
        record: &transport::Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Option<Published>, PublishError> {
        self.publish(record, guarantee).map(Some)
    }

    fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.inner.on_room(notify);
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.inner.assert_alive()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.inner.flush(guarantee)
    }
}

#[test]
fn packets_of_which_nobody_knows_are_published_again_in_their_order() {
    let inner = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let doubts = Arc::<Mutex<Doubts>>::default();
    let bus = over(Arc::new(Doubtful { inner, doubts: Arc::clone(&doubts) }));
    let mut reader = records(&bus, Level::INFO);
    let options = LogOptions { batch_records: 1, batch_age: NEVER, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("mount");
    for n in 0..6_i64 {
        log!(logger, Level::INFO, "step {}", n);
    }
    let steps: Vec<_> = (0..3).map(|_| next(&mut reader).arguments[0].clone()).collect();
    assert_eq!(steps, [0, 4, 5].map(Value::Int));
    assert!(!logging.flush(Duration::from_millis(1)), "nothing is known of the others");
    // Dropped, a ticket says that nobody knows. The second attempt has its number already.
    doubts.lock().unwrap().is_full = true;
    let held = std::mem::take(&mut doubts.lock().unwrap().held);
    drop(held);
    assert!(logging.flush(HANG_TIMEOUT));
    let late: Vec<_> = (0..LOST).map(|_| next(&mut reader).arguments[0].clone()).collect();
    assert_eq!(late, [1, 2, 3].map(Value::Int));
    let total = reader.account().total();
    assert_eq!((total.delivered, total.lost, total.repeated), (6, 0, 0));
}

#[test]
fn who_flushes_waits_for_what_was_before_and_not_for_what_comes_meanwhile() {
    let (bus, _transport) = faulty(FaultPlan { pending: 1.0, ..FaultPlan::default() });
    let logging = Logging::start(bus, LogOptions::default()).unwrap();
    let logger = logging.logger("flood");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                log!(logger, Level::INFO, "usual");
            }
        });
        let flushed: Vec<_> = (0..5).map(|_| logging.flush(HANG_TIMEOUT)).collect();
        ends.store(true, Ordering::Relaxed);
        assert_eq!(flushed, [true; 5]);
    });
}

#[test]
fn a_bus_that_does_not_answer_is_told_and_takes_bounded_memory() {
    let (bus, transport) = faulty(FaultPlan { queue: 1_000_000, ..FaultPlan::default() });
    let options = LogOptions { queue_bytes: 64 << 10, batch_records: 10, ..LogOptions::default() };
    let logging = Logging::start(bus, options).unwrap();
    let logger = logging.logger("stuck");
    transport.cable().freeze();
    for n in 0..20_000_i64 {
        log!(logger, Level::INFO, "usual {}", n);
    }
    log!(logger, Level::ERROR, "the one that matters");
    let until = Instant::now() + HANG_TIMEOUT;
    while logging.trouble().is_none() && Instant::now() < until {
        assert!(!logging.flush(Duration::from_millis(10)));
    }
    assert!(logging.trouble().is_some_and(|told| told.contains("does not answer")));
    let figures = logging.figures();
    // What is under way is bounded as well: the rest was dropped, and counted.
    assert!(figures.shed > 15_000, "{figures:?}");
    transport.cable().thaw();
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!((figures.offered, figures.waiting), (20_001, 0));
    assert_eq!(figures.published + figures.shed, 20_001);
    assert_eq!(logging.trouble(), None);
}

#[test]
fn a_bus_that_answers_late_gets_fewer_and_larger_packets() {
    const RECORDS: u64 = 50;
    let (bus, transport) = faulty(FaultPlan { queue: 1_000_000, ..FaultPlan::default() });
    let batch_age = Duration::from_millis(1);
    let logging = Logging::start(bus, LogOptions { batch_age, ..LogOptions::default() }).unwrap();
    let logger = logging.logger("slow");
    transport.cable().freeze();
    for n in 0..RECORDS {
        log!(logger, Level::INFO, "step {}", n);
        std::thread::sleep(5 * batch_age);
    }
    transport.cable().thaw();
    assert!(logging.flush(HANG_TIMEOUT));
    let LogFigures { published, shed, packets, .. } = logging.figures();
    assert_eq!((published, shed), (RECORDS, 0));
    // Five that nobody has answered, and one of all the others; at the end it may be two.
    assert!((2..=8).contains(&packets), "{packets} packets");
}

#[test]
fn an_urgent_record_does_not_wait_behind_what_was_spilled() {
    let folder = tempfile::tempdir().unwrap();
    let (bus, transport) = faulty(FaultPlan::default());
    let options = spilling(&folder);
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("stuck");
    transport.cable().pull();
    for n in 0..20_000_i64 {
        log!(logger, Level::INFO, "{}", n);
    }
    assert!(!logging.flush(Duration::from_millis(100)));
    while logging.figures().spilled_bytes < 100_000 {
        assert!(!logging.flush(Duration::from_millis(1)));
    }
    log!(logger, Level::ALERT, "the door is open");
    let mut alerts = records(&bus, Level::ALERT);
    let info = bus.topic(Lanes::default().topic(Level::INFO).unwrap()).unwrap();
    assert!(!logging.flush(Duration::from_millis(1)));
    // One lane alone can be written again.
    transport.cable().break_topic(info.name());
    transport.cable().put_back();
    assert_eq!(next(&mut alerts).message(), "the door is open");
    transport.cable().mend_topic(info.name());
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(logging.figures().shed, 0);
}

#[test]
fn what_another_process_has_left_is_in_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (bus, transport) = faulty(FaultPlan::default());
    let options = spilling(&folder);
    transport.cable().pull();
    let logging = Logging::start(bus.clone(), options.clone()).unwrap();
    let logger = logging.logger("stuck");
    for n in 0..5_000_i64 {
        log!(logger, Level::INFO, "{}", n);
    }
    drop(logging);
    let logging = Logging::start(bus.clone(), options).unwrap();
    assert!(!logging.flush(Duration::from_millis(1)));
    log!(logging.logger("stuck"), Level::INFO, "{}", 5_000);
    transport.cable().put_back();
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!((figures.offered, figures.published, figures.waiting), (5_001, 5_001, 0));
}

#[test]
fn lanes_that_a_site_has_made_otherwise_are_used_as_they_are() {
    let bus = bus();
    let lanes = Lanes::default();
    let qos = Qos { partitions: 4, ..lanes.qos(Level::INFO) };
    let spec = TopicSpec::new(&lanes.topic_name(Level::INFO)).unwrap().qos(qos);
    bus.topic(spec).unwrap();
    let mut reader = records(&bus, Level::INFO);
    let options = LogOptions { batch_records: 2, batch_age: NEVER, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("mount");
    for n in 0..40_i64 {
        log!(logger, Level::INFO, "step {}", n);
    }
    assert!(logging.flush(HANG_TIMEOUT));
    // Among partitions there is no order, so a producer's records lie in one.
    for n in 0..40_i64 {
        assert_eq!(next(&mut reader).arguments[0], Value::Int(n));
    }
    assert_eq!(reader.account().total().repeated, 0);
}

#[test]
fn call_sites_and_loggers_above_the_limit_lose_neither_message_nor_name() {
    let bus = bus();
    let options = LogOptions { ring_bytes: 64 << 20, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let first = logging.logger("first");
    for n in 0..MAX_LOGGERS {
        _ = logging.logger(&format!("logger/{n}"));
    }
    let late = logging.logger("late");
    let sites: Vec<_> = (0..=MAX_SITES as u32)
        .map(|line| CallSite::new("step {} of {}", &[], "mount.rs", line, "mount"))
        .collect();
    for site in &sites {
        late.record(Level::INFO, site, |body| _ = body.argument_int(7).argument_int(9));
    }
    log!(first, Level::NOTICE, "and on");
    assert!(logging.flush(HANG_TIMEOUT));
    let mut infos = records(&bus, Level::INFO);
    let last = (0..sites.len()).map(|_| next(&mut infos)).last().unwrap();
    assert_eq!(last.message(), "step 7 of 9");
    let data = [
        ("code.file.path".to_owned(), Value::from("mount.rs")),
        ("code.line.number".to_owned(), Value::Int(65_536)),
    ];
    assert_eq!(last.data, data);
    assert_eq!(last.logger, "too many loggers");
    assert_eq!(next(&mut records(&bus, Level::NOTICE)).logger, "first");
}

#[test]
fn threads_that_log_when_nobody_takes_it_get_no_memory_for_it() {
    let options = LogOptions { ring_bytes: 64 << 20, ..LogOptions::default() };
    let logging = Logging::start(bus(), options).unwrap();
    let logger = logging.logger("late");
    drop(logging);
    // With rings of their own these are 64 GB.
    let before = memory_kb();
    for _ in 0..1_000 {
        let logger = logger.clone();
        std::thread::spawn(move || log!(logger, Level::INFO, "to nobody")).join().unwrap();
    }
    assert!(memory_kb() < before + (16 << 20));
}

/// What the process has asked the system for.
fn memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_is_logged_before_the_bus_is_there_is_published_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("disk");
    // The disk is not mounted yet.
    std::fs::write(&place, "").unwrap();
    let url = format!("journal:{}", place.join("journal").display());
    let named = || Bus::builder().producer("CONTROL");
    let logging = Logging::connect(named(), &url, LogOptions::default()).unwrap();
    let logger = logging.logger("mount");
    log!(logger, Level::INFO, "step {}", 1);
    log!(logger, Level::ALERT, "the door is open");
    assert!(!logging.flush(Duration::from_millis(1)));
    assert!(logging.trouble().is_some_and(|told| told.contains("journal")));
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    log!(logger, Level::INFO, "step {}", 2);
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!((logging.figures().published, logging.trouble()), (3, None));
    let bus = Bus::connect(&url).unwrap();
    let mut infos = records(&bus, Level::INFO);
    let steps = [next(&mut infos), next(&mut infos)].map(|record| record.message());
    assert_eq!(steps, ["step 1", "step 2"]);
    assert_eq!(next(&mut records(&bus, Level::ALERT)).message(), "the door is open");
}

#[test]
fn what_no_waiting_mends_is_told_at_once() {
    let connect = |named, url| Logging::connect(named, url, LogOptions::default());
    let told = |named, url| connect(named, url).err().map(|error| error.to_string());
    for (url, why) in [
        ("nothing", "invalid bus URL"),
        ("nowhere:x", "unknown transport"),
        ("memory:?bogus=1", "bogus"),
    ] {
        let told = told(Bus::builder(), url).unwrap();
        assert!(told.contains(why), "{told}");
    }
    let told = told(Bus::builder().producer("no name\n"), "memory:").unwrap();
    assert!(told.contains("producer"), "{told}");
}

#[test]
fn who_ends_before_the_bus_was_there_leaves_its_records_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("disk");
    std::fs::write(&place, "").unwrap();
    let url = format!("journal:{}", place.join("journal").display());
    let connect = || Logging::connect(Bus::builder(), &url, spilling(&folder)).unwrap();
    let logging = connect();
    log!(logging.logger("mount"), Level::INFO, "step {}", 1);
    drop(logging);
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    assert!(connect().flush(HANG_TIMEOUT));
    let bus = Bus::connect(&url).unwrap();
    assert_eq!(next(&mut records(&bus, Level::INFO)).message(), "step 1");
}

#[test]
fn a_second_one_that_would_number_its_records_alike_is_refused() {
    let bus = bus();
    let start = |prefix| {
        let lanes = Lanes::default().prefix(prefix);
        Logging::start(bus.clone(), LogOptions { lanes, ..LogOptions::default() })
    };
    let first = start("log").unwrap();
    let told = start("log").err().unwrap().to_string();
    assert!(told.contains("another Logging"), "{told}");
    let other = start("site/log").unwrap();
    drop((first, other));
    assert!(start("log").is_ok());
}
