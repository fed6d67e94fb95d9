//! Speeds of a store with etcd's API: latencies at a pace, and rates at full speed.
//!
//! Constraints. The same client measures every store. It encodes requests before it sends them and
//! reads answers as bytes, so that little of the time is its own. Latencies at a pace count from
//! the intended time of sending.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_http::bytes_codec::RawCodec;
use helio_state_etcd::ClientTls;
use helio_state_etcd::client::{self, Client, ClientError};
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::requests::{self, Change};
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::history::Stored;
use crate::objects::{self, Kind, Random};
use crate::summary::Summary;

/// The bytes of a value: those of the seed's.
pub const VALUE_BYTES: usize = 953;
/// The prefix of the keys of puts and ranges.
pub const PREFIX: &str = "/b/";
/// The keys of puts and ranges.
const KEYS: usize = 1_000;
/// The objects that are updated and listed, and those of a list.
const OBJECTS: usize = 1_000;
const LISTED: i64 = 500;
/// Updates whose events are counted.
pub const UPDATES: u64 = 6_000;
/// Before a client sends, it spins so long: the overshoot of a sleep would count as latency.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Requests of each client that are not counted.
const WARM_UP: usize = 10;
/// How long events may be missing once all was written.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a watch looks whether it should end.
const WATCH_POLL_INTERVAL: Duration = Duration::from_millis(50);

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// What clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Puts of one key.
    Put,
    /// Reads of one key.
    Range,
    /// Updates of objects as an API server does.
    Update,
    /// Reads of objects.
    Get,
    /// Lists of 500 objects.
    List,
}

/// What clients do at a pace.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Clients, each with its connection and thread.
    pub clients: u16,
    /// Requests a second of all of them.
    pub per_second: f64,
    /// How long.
    pub time: Duration,
}

/// What clients do at full speed.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Clients, each with one request in flight.
    pub clients: usize,
    /// Connections that they share.
    pub connections: usize,
    /// How long; updates end after [`UPDATES`] instead.
    pub time: Duration,
}

/// What was measured at a pace.
#[derive(Debug, Clone, Default)]
pub struct Paced {
    /// Latencies of answers.
    pub answers: Summary,
    /// Latencies of events of puts.
    pub events: Summary,
    /// Requests that failed.
    pub errors: u64,
}

/// What was measured at full speed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    /// Answers a second.
    pub per_s: f64,
    /// Answers.
    pub count: u64,
    /// Their latencies.
    pub answers: Summary,
    /// Requests that failed.
    pub errors: u64,
    /// Events of updates that a watch was notified of.
    pub events: u64,
}

/// The key of puts and ranges of a number.
fn key(number: usize) -> Bytes {
    format!("{PREFIX}{:04}", number % KEYS).into()
}

fn object(number: usize) -> Bytes {
    Kind::Pod.key(number % OBJECTS)
}

fn put(key: Bytes, number: u64) -> pb::PutRequest {
    let value = objects::sized_value(number, VALUE_BYTES);
    pb::PutRequest { key, value, ..pb::PutRequest::default() }
}

fn get(key: Bytes) -> Bytes {
    let request = pb::RangeRequest { key, limit: 1, ..pb::RangeRequest::default() };
    request.encode_to_vec().into()
}

fn list() -> Bytes {
    let prefix = Kind::Pod.prefix();
    let request = pb::RangeRequest {
        key: prefix.into(),
        range_end: objects::range_end(prefix.as_bytes()),
        limit: LISTED,
        ..pb::RangeRequest::default()
    };
    request.encode_to_vec().into()
}

/// A connection; each request is one call.
#[derive(Clone)]
struct Connection(Grpc<Channel>);

impl Connection {
    async fn open(url: &str) -> Result<Self, ClientError> {
        let channel = client::open(url, &ClientTls::default()).await?;
        Ok(Self(Grpc::new(channel).max_decoding_message_size(usize::MAX)))
    }

    async fn call(&mut self, path: &'static str, body: Bytes) -> Result<Bytes, Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = tonic::Request::new(body);
        let answer = self.0.unary(request, PathAndQuery::from_static(path), RawCodec).await?;
        Ok(answer.into_inner())
    }
}

fn runtime() -> Result<Runtime, ClientError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Sleeps until shortly before a time, then spins.
fn wait_until(at: Instant) {
    let early = at.saturating_duration_since(Instant::now()).saturating_sub(SPIN_TIME);
    if !early.is_zero() {
        std::thread::sleep(early);
    }
    while Instant::now() < at {
        std::hint::spin_loop();
    }
}

/// Writes the keys and objects that are read and updated.
///
/// # Errors
/// The server's.
pub fn fill(url: &str) -> Result<(), ClientError> {
    runtime()?.block_on(async {
        let mut connection = Connection::open(url).await?;
        for number in 0..KEYS {
            let request = put(key(number), number as u64).encode_to_vec();
            connection.call(PUT, request.into()).await?;
        }
        for number in 0..OBJECTS {
            let value = objects::sized_value(number as u64, VALUE_BYTES);
            let create = requests::if_unchanged(object(number), 0, Change::Put { value, lease: 0 });
            connection.call(TXN, create.encode_to_vec().into()).await?;
        }
        Ok(())
    })
}

/// Puts or ranges at a pace; events of puts are awaited, too.
///
/// # Errors
/// If the store cannot be reached.
pub fn paced(url: &str, operation: Operation, pace: Pace) -> Result<Paced, ClientError> {
    let watch = match operation {
        Operation::Put => Some(Watch::open(url, PREFIX)?),
        _ => None,
    };
    let begin = Arc::new(Barrier::new(usize::from(pace.clients)));
    let clients: Vec<_> = (0..pace.clients)
        .map(|number| {
            let (url, begin) = (url.to_owned(), Arc::clone(&begin));
            std::thread::spawn(move || one_paced(&url, operation, pace, number, &begin))
        })
        .collect();
    let (mut samples, mut sent, mut errors) = (Vec::new(), HashMap::new(), 0);
    for client in clients {
        let Ok(done) = client.join() else { continue };
        let done = done?;
        samples.extend(done.samples);
        sent.extend(done.sent);
        errors += done.errors;
    }
    let mut events = Vec::new();
    if let Some(watch) = watch {
        let arrived = watch.finish(sent.len() as u64 + u64::from(pace.clients) * WARM_UP as u64);
        let latency =
            |(number, at): (u64, Instant)| Some(at.saturating_duration_since(*sent.get(&number)?));
        events.extend(arrived.into_iter().filter_map(latency));
    }
    Ok(Paced { answers: Summary::of(&samples), events: Summary::of(&events), errors })
}

/// What one client did.
#[derive(Default)]
struct Done {
    samples: Vec<Duration>,
    /// When each number of a value was meant to be sent.
    sent: Vec<(u64, Instant)>,
    errors: u64,
}

fn one_paced(
    url: &str,
    operation: Operation,
    pace: Pace,
    number: u16,
    begin: &Barrier,
) -> Result<Done, ClientError> {
    let runtime = runtime();
    let opened = runtime.and_then(|of| Ok((of.block_on(Connection::open(url))?, of)));
    // Also where it failed: the others wait for it.
    begin.wait();
    let (mut connection, runtime) = opened?;
    let mut random = Random::new(u64::from(number));
    let interval = Duration::from_secs_f64(f64::from(pace.clients) / pace.per_second);
    // Clients take turns.
    let first = Instant::now() + interval.mul_f64(f64::from(number) / f64::from(pace.clients));
    let counted = first + interval * WARM_UP as u32;
    let first_number = u64::from(number) << 40 | 1 << 56;
    let mut done = Done::default();
    for n in 0.. {
        let due = first + interval * n;
        let is_counted = n as usize >= WARM_UP;
        if is_counted && due.saturating_duration_since(counted) >= pace.time {
            return Ok(done);
        }
        let (key, value) = (key(random.below(KEYS)), first_number + u64::from(n));
        let (path, body) = match operation {
            Operation::Put => (PUT, put(key, value).encode_to_vec().into()),
            _ => (RANGE, get(key)),
        };
        wait_until(due);
        let answer = runtime.block_on(connection.call(path, body));
        let latency = due.elapsed();
        match answer {
            Ok(_) if is_counted => {
                done.samples.push(latency);
                done.sent.push((value, due));
            }
            Ok(_) => {}
            Err(_) => done.errors += 1,
        }
    }
    Ok(done)
}

/// A crowd at full speed.
///
/// # Errors
/// If the store cannot be reached.
pub fn full(url: &str, operation: Operation, crowd: Crowd) -> Result<Rate, ClientError> {
    let watch = match operation {
        Operation::Update => Some(Watch::open(url, Kind::Pod.prefix())?),
        _ => None,
    };
    let mut rate = runtime()?.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..crowd.connections {
            connections.push(Connection::open(url).await?);
        }
        let next = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let tasks: Vec<_> = (0..crowd.clients)
            .map(|number| {
                let member = Member {
                    number,
                    connection: connections[number % connections.len()].clone(),
                    operation,
                    crowd,
                    until: begun + crowd.time,
                    next: Arc::clone(&next),
                };
                tokio::spawn(member.run())
            })
            .collect();
        let (mut samples, mut errors) = (Vec::new(), 0);
        for task in tasks {
            let done: Done = task.await.unwrap_or_default();
            samples.extend(done.samples);
            errors += done.errors;
        }
        let time = begun.elapsed().as_secs_f64();
        let count = samples.len() as u64;
        let per_s = count as f64 / time;
        Ok::<_, ClientError>(Rate {
            per_s,
            count,
            answers: Summary::of(&samples),
            errors,
            events: 0,
        })
    })?;
    if let Some(watch) = watch {
        rate.events = watch.finish(rate.count).len() as u64;
    }
    Ok(rate)
}

/// One of a crowd.
struct Member {
    number: usize,
    connection: Connection,
    operation: Operation,
    crowd: Crowd,
    until: Instant,
    /// Updates so far, of all.
    next: Arc<AtomicU64>,
}

impl Member {
    async fn run(mut self) -> Done {
        let mut random = Random::new(self.number as u64);
        let mut known: HashMap<Bytes, i64> = HashMap::new();
        let mut done = Done::default();
        loop {
            let over = match self.operation {
                Operation::Update => self.next.fetch_add(1, Ordering::Relaxed) >= UPDATES,
                _ => Instant::now() >= self.until,
            };
            if over {
                return done;
            }
            let begun = Instant::now();
            let answered = match self.operation {
                Operation::Update => self.update(&mut random, &mut known).await,
                operation => {
                    let (path, body) = body(operation, &mut random);
                    self.connection.call(path, body).await.map(drop)
                }
            };
            match answered {
                Ok(()) => done.samples.push(begun.elapsed()),
                Err(_) => done.errors += 1,
            }
        }
    }

    /// An update of one of the client's own objects; the first of each reads it instead.
    async fn update(
        &mut self,
        random: &mut Random,
        known: &mut HashMap<Bytes, i64>,
    ) -> Result<(), Status> {
        let own = (OBJECTS / self.crowd.clients).max(1);
        let key = object(self.number * own + random.below(own));
        loop {
            let expected = known.get(&key).copied().unwrap_or(0);
            let value = objects::sized_value(random.draw(), VALUE_BYTES);
            let change = Change::Put { value, lease: 0 };
            let request = requests::if_unchanged(key.clone(), expected, change);
            let answer = self.connection.call(TXN, request.encode_to_vec().into()).await?;
            let answer = pb::TxnResponse::decode(answer);
            let answer = answer.map_err(|error| Status::internal(error.to_string()))?;
            if answer.succeeded {
                known.insert(key, answer.header.unwrap_or_default().revision);
                return Ok(());
            }
            let found = requests::found(&answer).map_or(0, |kv| Stored::of(kv).revision);
            known.insert(key.clone(), found);
        }
    }
}

fn body(operation: Operation, random: &mut Random) -> (&'static str, Bytes) {
    match operation {
        Operation::Put => {
            let request = put(key(random.below(KEYS)), random.draw());
            (PUT, request.encode_to_vec().into())
        }
        Operation::Range => (RANGE, get(key(random.below(KEYS)))),
        Operation::List => (RANGE, list()),
        Operation::Get | Operation::Update => (RANGE, get(object(random.below(OBJECTS)))),
    }
}

/// Puts each of some keys once, of 32 bytes, at full speed.
///
/// # Errors
/// If the store cannot be reached, or refuses one.
pub fn put_each(url: &str, keys: usize, crowd: Crowd) -> Result<(), ClientError> {
    runtime()?.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..crowd.connections {
            connections.push(Connection::open(url).await?);
        }
        let tasks: Vec<_> = (0..crowd.clients)
            .map(|number| {
                let mut connection = connections[number % connections.len()].clone();
                tokio::spawn(async move {
                    for n in (number..keys).step_by(crowd.clients) {
                        let key = format!("/memory/{n:024}").into();
                        let request = put(key, n as u64).encode_to_vec();
                        connection.call(PUT, request.into()).await?;
                    }
                    Ok::<_, Status>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap_or(Ok(()))?;
        }
        Ok(())
    })
}

/// A watch in a thread: the numbers of values, and when they arrived.
struct Watch {
    expected: Arc<AtomicU64>,
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, Instant)>>,
}

impl Watch {
    fn open(url: &str, prefix: &str) -> Result<Self, ClientError> {
        let client = Client::connect(url, &ClientTls::default())?;
        let create = pb::WatchCreateRequest {
            key: Bytes::copy_from_slice(prefix.as_bytes()),
            range_end: objects::range_end(prefix.as_bytes()),
            ..pb::WatchCreateRequest::default()
        };
        let (expected, is_ending) = <(Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (wanted, ending) = (Arc::clone(&expected), Arc::clone(&is_ending));
        let (opened, is_open) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut arrived = Vec::new();
            let Ok(mut watching) = client.watch(create) else { return arrived };
            let mut last = Instant::now();
            loop {
                let Ok(answer) = watching.next(WATCH_POLL_INTERVAL) else { return arrived };
                let at = Instant::now();
                if let Some(answer) = answer {
                    if answer.created {
                        // Its owner may have given up.
                        let _ = opened.send(());
                    }
                    last = at;
                    let kvs = answer.events.iter().filter_map(|event| event.kv.as_ref());
                    let numbers = kvs.map(|kv| objects::head(kv.0.fields().value).unwrap_or(0));
                    arrived.extend(numbers.map(|number| (number, at)));
                }
                let has_all = arrived.len() as u64 >= wanted.load(Ordering::Relaxed);
                if ending.load(Ordering::Relaxed) && (has_all || last.elapsed() > EVENT_TIMEOUT) {
                    return arrived;
                }
            }
        });
        // Where it could not be opened, no event arrives, which the count shows.
        let _ = is_open.recv_timeout(EVENT_TIMEOUT);
        Ok(Self { expected, is_ending, thread })
    }

    /// Waits for so many events, and gives those that arrived.
    fn finish(self, expected: u64) -> Vec<(u64, Instant)> {
        self.expected.store(expected, Ordering::Relaxed);
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// What a cluster with some pods asks for beside a measurement, until it is dropped.
#[derive(Debug)]
pub struct Background {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Reads and writes a second of a cluster: of itself, and of each pod. The seed counted them.
    const READS: [f64; 2] = [10.0, 2.6];
    const WRITES: [f64; 2] = [2.7, 1.23];

    /// Starts the requests of a cluster with so many pods.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub fn start(url: &str, pods: u16) -> Result<Self, ClientError> {
        let runtime = runtime()?;
        let connection = runtime.block_on(Connection::open(url))?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        let thread = std::thread::spawn(move || {
            runtime.block_on(background(connection, pods, &ending));
        });
        Ok(Self { is_ending, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            drop(thread.join());
        }
    }
}

async fn background(mut connection: Connection, pods: u16, ending: &AtomicBool) {
    let rate = |[own, of_each]: [f64; 2]| own + of_each * f64::from(pods);
    let (reads, writes) = (rate(Background::READS), rate(Background::WRITES));
    let interval = Duration::from_secs_f64(1.0 / (reads + writes));
    let mut random = Random::new(u64::from(pods));
    let mut due = tokio::time::Instant::now();
    while !ending.load(Ordering::Relaxed) {
        let key = Kind::Lease.key(random.below(usize::from(pods) + 10));
        let is_read = random.below(1_000) as f64 * (reads + writes) < reads * 1_000.0;
        let (path, body) = match is_read {
            true => (RANGE, get(key)),
            false => (PUT, put(key, random.draw()).encode_to_vec().into()),
        };
        // The measurement beside it shows what fails.
        drop(connection.call(path, body).await);
        due += interval;
        tokio::time::sleep_until(due).await;
    }
}
