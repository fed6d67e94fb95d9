//! Clients that have forgotten all brokers, and are given those of the URL again.
//!
//! Constraints. Who asks a broker that is out of its cluster for a moment, as after it stood still,
//! is told of none. librdkafka 2.12 then gives up every broker that it knows, those of its
//! configuration among them. It begins anew by itself when its last connection is down: it marks
//! that, and starts a timer. But an answer stops that timer, and this one does so while its own
//! brokers go down in other threads. Where it comes last nothing begins, and the mark stays, by
//! which nothing will ([#5301](https://github.com/confluentinc/librdkafka/issues/5301)).
//!
//! Operation. A thread of its own looks at all clients, whatever their callbacks wait for: at what
//! is, and not at what has changed since, for a client may learn brokers and forget them again
//! between two looks. One that knew brokers once, and knows none, is given those of the URL, and
//! asks for the others. By librdkafka's sources:
//!
//! - `rd_kafka_brokers_add` makes a broker of that name, unless one of a configuration is there
//!   that is not being closed; it does not look at those that are. So it helps where nothing has
//!   begun anew, and is nothing where it has. It connects at once where no broker is left at all.
//!   A consumer always has one, a place for its group's coordinator: there, and where old ones are
//!   still being closed, a timer that looks each second whether any is connected does it.
//! - A broker of the URL that is connected and tells of none is kept: only who knows others gives
//!   it up. Adding it again does nothing, then. What it is asked by itself is little: once when it
//!   is connected, not for topics whose question is under way, or was lost, within
//!   `socket.timeout.ms`; else for topics that are read or written, each second, and for clients
//!   without any not within `topic.metadata.refresh.interval.ms`. So it is asked here.
//! - Each list that was added is kept for ever, and gone through whenever it begins anew. So it is
//!   added more and more seldom.

use std::ffi::{CString, NulError};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use helio_bus::transport::locked;
use rdkafka::admin::AdminClient;
use rdkafka::client::{Client, ClientContext, DefaultClientContext};
use rdkafka::consumer::Consumer as _;
use rdkafka::producer::{Producer as _, ThreadedProducer};

use crate::context::Consumer;
use crate::monitor::Health;
use crate::native;
use crate::producer::Reports;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Each how many looks a client is given brokers in the end.
const SELDOM: u32 = 32;

/// What clients are given.
pub(crate) struct Named {
    /// The URL's, with commas between.
    brokers: CString,
    /// A topic to ask for.
    topic: String,
}

impl Named {
    pub(crate) fn new(brokers: &str, topic: String) -> Result<Self, NulError> {
        Ok(Self { brokers: CString::new(brokers)?, topic })
    }
}

/// What was seen of a client.
#[derive(Default)]
pub(crate) struct Seen {
    /// It has known brokers.
    knew: bool,
    /// How many looks have found none since.
    without: u32,
}

impl Seen {
    /// Looks at a client, and waits for nobody.
    fn look<C: ClientContext>(&mut self, client: &Client<C>, named: &Named) {
        if native::knows_brokers(client) {
            *self = Self { knew: true, without: 0 };
        } else if self.knew {
            self.without += 1;
            if self.without.is_power_of_two() || self.without.is_multiple_of(SELDOM) {
                native::add_brokers(client, &named.brokers);
            }
            // The answer is the client's own.
            let _ = client.fetch_metadata(Some(&named.topic), Duration::ZERO);
        }
    }
}

/// Any client of librdkafka's.
pub(crate) trait Kept: Send + Sync {
    /// Looks at it, and waits for nobody.
    fn look(&self, seen: &mut Seen, named: &Named);

    /// Has it fetch nothing any more of what it fetches now.
    #[cfg(test)]
    fn deafen(&self) {}
}

impl Kept for Consumer {
    fn look(&self, seen: &mut Seen, named: &Named) {
        seen.look(self.client(), named);
    }

    #[cfg(test)]
    fn deafen(&self) {
        let fetched = self.assignment().expect("it is a consumer");
        self.pause(&fetched).expect("it fetches them");
    }
}

impl Kept for ThreadedProducer<Reports> {
    fn look(&self, seen: &mut Seen, named: &Named) {
        seen.look(self.client(), named);
    }
}

impl Kept for AdminClient<DefaultClientContext> {
    fn look(&self, seen: &mut Seen, named: &Named) {
        seen.look(self.inner(), named);
    }
}

/// All clients of a connection.
#[derive(Default)]
pub(crate) struct Clients(Mutex<Vec<(Weak<dyn Kept>, Seen)>>);

impl Clients {
    pub(crate) fn add<C: Kept + 'static>(&self, client: &Arc<C>) {
        let client: Weak<dyn Kept> = Arc::<C>::downgrade(client);
        let mut all = locked(&self.0);
        all.retain(|(client, _)| client.strong_count() > 0);
        all.push((client, Seen::default()));
    }

    /// Looks at each.
    pub(crate) fn look(&self, named: &Named) {
        let mut all = locked(&self.0);
        let looked: Vec<_> = all
            .iter_mut()
            .filter_map(|(client, seen)| {
                let client = client.upgrade()?;
                client.look(seen, named);
                Some(client)
            })
            .collect();
        drop(all);
        // Not before: a client may end with this.
        drop(looked);
    }
}

#[cfg(test)]
impl Clients {
    /// Has all consumers fetch nothing any more of what they fetch now.
    pub(crate) fn deafen(&self) {
        let all: Vec<_> =
            locked(&self.0).iter().filter_map(|(client, _)| client.upgrade()).collect();
        all.iter().for_each(|client| client.deafen());
    }
}

/// Starts the thread that looks. It ends with the connection.
pub(crate) fn start(health: &Arc<Health>, named: Named) -> std::io::Result<()> {
    let health = Arc::clone(health);
    let run = move || {
        while !health.ends_within(EVERY) {
            health.clients.look(&named);
        }
    };
    std::thread::Builder::new().name("kafka-brokers".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use helio_bus::SystemClock;
    use helio_bus::transport::Opening;

    use super::*;
    use crate::admin::Admin;
    use crate::fetcher::{Fetcher, NO_GROUP};
    use crate::options::Options;
    use crate::producer::Producer;

    const PATIENCE: Duration = Duration::from_secs(60);
    const METADATA: i16 = 3;
    const API_VERSIONS: i16 = 18;

    /// A broker that is out of its cluster at times. It knows what is asked here of the protocol.
    struct Fake {
        port: u16,
        is_out: AtomicBool,
    }

    impl Fake {
        fn start() -> Arc<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let fake = Arc::new(Self { port, is_out: AtomicBool::new(false) });
            let serving = Arc::clone(&fake);
            std::thread::spawn(move || {
                for connection in listener.incoming() {
                    let (fake, connection) = (Arc::clone(&serving), connection.unwrap());
                    std::thread::spawn(move || fake.serve(connection));
                }
            });
            fake
        }

        /// Answers until the client hangs up.
        fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
            loop {
                let mut size = [0; 4];
                client.read_exact(&mut size)?;
                let mut request = vec![0; u32::from_be_bytes(size) as usize];
                client.read_exact(&mut request)?;
                let number = request[4..8].to_vec();
                let answer = match i16::from_be_bytes([request[0], request[1]]) {
                    METADATA => [number, self.metadata(&request)].concat(),
                    API_VERSIONS => [number, versions()].concat(),
                    _ => return Ok(()),
                };
                client.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes())?;
                client.write_all(&answer)?;
            }
        }

        /// Version 1: brokers, the controller, the topics that were asked for.
        fn metadata(&self, request: &[u8]) -> Vec<u8> {
            let mut answer = Vec::new();
            let is_out = self.is_out.load(Ordering::SeqCst);
            answer.extend(i32::from(!is_out).to_be_bytes());
            if !is_out {
                answer.extend(1_i32.to_be_bytes());
                answer.extend(text(b"127.0.0.1"));
                answer.extend(u32::from(self.port).to_be_bytes());
                answer.extend((-1_i16).to_be_bytes());
            }
            answer.extend((if is_out { -1_i32 } else { 1 }).to_be_bytes());
            let (_client, asked) = take_text(&request[8..]);
            let (count, mut asked) = asked.split_at(4);
            let mut count = i32::from_be_bytes(count.try_into().unwrap());
            let all = text(b"the only one");
            if count < 0 {
                (count, asked) = (1, &all);
            }
            answer.extend(count.to_be_bytes());
            for _ in 0..count {
                let name;
                (name, asked) = take_text(asked);
                // It has no leader, and no partition.
                answer.extend(5_i16.to_be_bytes());
                answer.extend(text(name));
                answer.push(0);
                answer.extend(0_i32.to_be_bytes());
            }
            // librdkafka makes its room by an answer's size: of a small one it reads nothing.
            answer.extend([0; 512]);
            answer
        }
    }

    /// Version 3, of what this broker can.
    fn versions() -> Vec<u8> {
        let range = |key: i16, versions: [u8; 2]| {
            let [first, last] = versions;
            [&key.to_be_bytes()[..], &[0, first, 0, last, 0]].concat()
        };
        let each = [range(METADATA, [1, 1]), range(API_VERSIONS, [0, 3])];
        [&[0, 0, 3][..], &each.concat(), &[0; 5]].concat()
    }

    fn text(text: &[u8]) -> Vec<u8> {
        [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
    }

    fn take_text(bytes: &[u8]) -> (&[u8], &[u8]) {
        let (size, rest) = bytes.split_at(2);
        rest.split_at(usize::from(u16::from_be_bytes(size.try_into().unwrap())))
    }

    fn options(fake: &Fake) -> Options {
        // By itself librdkafka does not begin anew, as where it has lost its race.
        let url = format!("kafka://127.0.0.1:{}?metadata.recovery.strategy=none", fake.port);
        let clock = Arc::new(SystemClock::new());
        Options::parse(&Opening { url: url.parse().unwrap(), clock }).unwrap()
    }

    /// Asks until the client knows brokers, or until it knows none; not for topics by name, for
    /// which the client would ask by itself from then on.
    fn asks_until<C: ClientContext>(client: &Client<C>, knows: bool) {
        let until = Instant::now() + PATIENCE;
        while native::knows_brokers(client) != knows {
            assert!(Instant::now() < until, "it still does not: {knows}");
            let _ = client.fetch_metadata(None, Duration::from_millis(20));
        }
    }

    /// Has a client forget its brokers, and learn and forget them again between two looks.
    fn begins_anew<K: Kept + 'static, C: ClientContext>(
        fake: &Fake,
        kept: &Arc<K>,
        client: &Client<C>,
    ) {
        let clients = Clients::default();
        let named = Named::new(&options(fake).brokers, "t".to_owned()).unwrap();
        clients.add(kept);
        let has_nobody = || client.fetch_metadata(None, Duration::from_millis(200)).is_err();
        asks_until(client, true);
        clients.look(&named);
        for _ in 0..2 {
            fake.is_out.store(true, Ordering::SeqCst);
            asks_until(client, false);
            fake.is_out.store(false, Ordering::SeqCst);
            assert!(has_nobody(), "it begins anew by itself: this shows nothing");
            clients.look(&named);
            asks_until(client, true);
        }
    }

    #[test]
    fn clients_that_have_forgotten_all_brokers_begin_anew() {
        let fake = Fake::start();
        let (options, health) = (options(&fake), Arc::default());
        let fetcher = Fetcher::start(&options, &health, (NO_GROUP, None)).unwrap();
        begins_anew(&fake, &fetcher.consumer, fetcher.consumer.client());
        let admin = Admin::new(&options, &health).client().unwrap();
        begins_anew(&fake, &admin, admin.inner());
    }

    #[test]
    fn a_client_that_knows_none_asks_a_broker_that_had_nothing_to_tell() {
        let fake = Fake::start();
        let (options, clients) = (options(&fake), Clients::default());
        let named = Named::new(&options.brokers, "t".to_owned()).unwrap();
        let admin = Admin::new(&options, &Arc::default()).client().unwrap();
        clients.add(&admin);
        asks_until(admin.inner(), true);
        clients.look(&named);
        fake.is_out.store(true, Ordering::SeqCst);
        asks_until(admin.inner(), false);
        // It is given the URL's broker, and hears of none from that.
        clients.look(&named);
        let until = Instant::now() + PATIENCE;
        while admin.inner().fetch_metadata(None, Duration::from_millis(20)).is_err() {
            assert!(Instant::now() < until, "it does not connect");
        }
        fake.is_out.store(false, Ordering::SeqCst);
        while !native::knows_brokers(admin.inner()) {
            assert!(Instant::now() < until, "it is not asked");
            clients.look(&named);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn all_kinds_of_clients_are_looked_at() {
        let fake = Fake::start();
        let (options, health) = (options(&fake), Arc::<Health>::default());
        let _fetcher = Fetcher::start(&options, &health, (NO_GROUP, None)).unwrap();
        let _producer = Producer::start(&options, &health).unwrap();
        let admin = Admin::new(&options, &health);
        assert_eq!(locked(&health.clients.0).len(), 2);
        let _admin = admin.client().unwrap();
        assert_eq!(locked(&health.clients.0).len(), 3);
    }
}
