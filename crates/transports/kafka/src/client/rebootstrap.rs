//! Reconnects clients that have forgotten all brokers to those of the URL.
//!
//! Constraints. A broker that is briefly out of its cluster, as after a freeze, answers with no
//! brokers. librdkafka 2.12 then drops all its brokers, including the configured ones. It
//! re-bootstraps automatically when its last connection is down: it sets a mark and starts a timer.
//! But an answer stops that timer, and this answer does so while its own brokers go down on other
//! threads. If it comes last, nothing starts, and the mark prevents any later start
//! ([#5301](https://github.com/confluentinc/librdkafka/issues/5301)).
//!
//! Operation. A thread of its own checks all clients, since their callbacks may wait. It checks the
//! state rather than changes: a client may learn brokers and forget them again between two checks.
//! A client that had brokers and now has none gets those of the URL, and requests metadata. By
//! librdkafka's sources:
//!
//! - `rd_kafka_brokers_add` adds a broker of that name unless a configured one exists that is not
//!   being closed; it ignores those that are. So it helps if no re-bootstrap has started, and does
//!   nothing otherwise. It connects at once if no broker is left at all. A consumer always has one,
//!   a placeholder for its group's coordinator. There, and while old brokers are still being
//!   closed, a timer that checks every second for a connection does it.
//! - A connected broker of the URL that answers with no brokers is kept: only a client that knows
//!   others drops it. Adding it again then has no effect. librdkafka requests little from it: once
//!   after connecting, and not for topics whose request is in flight or was lost within
//!   `socket.timeout.ms`. Otherwise it requests topics in use every second; a client without any
//!   sends a request once per `topic.metadata.refresh.interval.ms`. So metadata is requested here.
//! - Every added list is kept for ever, and searched at each re-bootstrap. So lists are added less
//!   and less often.

use std::ffi::{CString, NulError};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use helio_bus::transport::locked;
use rdkafka::admin::AdminClient;
use rdkafka::client::{Client, ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::producer::{Producer as _, ProducerContext};

use crate::client::ffi;
use crate::client::polled_producer::PolledProducer;

/// The maximum number of checks between two additions of brokers.
const MAX_CHECKS_BETWEEN_REBOOTSTRAPS: u32 = 32;

/// The brokers that clients get.
pub(crate) struct BootstrapServers {
    /// The URL's brokers, separated by commas.
    brokers: CString,
    /// A topic whose metadata is requested.
    topic: String,
}

impl BootstrapServers {
    pub(crate) fn new(brokers: &str, topic: String) -> Result<Self, NulError> {
        Ok(Self { brokers: CString::new(brokers)?, topic })
    }
}

/// The observed state of a client.
#[derive(Default)]
pub(crate) struct ClientState {
    /// It has known brokers.
    knew: bool,
    /// How many checks have found none since.
    without: u32,
}

impl ClientState {
    /// Checks a client, without waiting.
    fn check<C: ClientContext>(&mut self, client: &Client<C>, named: &BootstrapServers) {
        if !ffi::brokers(client).is_empty() {
            *self = Self { knew: true, without: 0 };
        } else if self.knew {
            self.without += 1;
            if self.without.is_power_of_two()
                || self.without.is_multiple_of(MAX_CHECKS_BETWEEN_REBOOTSTRAPS)
            {
                ffi::add_brokers(client, &named.brokers);
            }
            // The client processes the answer itself.
            let _ = client.fetch_metadata(Some(&named.topic), Duration::ZERO);
        }
    }
}

/// Any client of librdkafka.
pub(crate) trait RebootstrapClient: Send + Sync {
    /// Checks it, without waiting.
    fn check(&self, seen: &mut ClientState, named: &BootstrapServers);

    /// Makes it stop fetching its current partitions.
    #[cfg(test)]
    fn stop_fetching(&self) {}
}

impl<C: ConsumerContext + 'static> RebootstrapClient for BaseConsumer<C> {
    fn check(&self, seen: &mut ClientState, named: &BootstrapServers) {
        seen.check(self.client(), named);
    }

    #[cfg(test)]
    fn stop_fetching(&self) {
        let fetched = self.assignment().expect("it is a consumer");
        self.pause(&fetched).expect("it fetches them");
    }
}

impl<C: ProducerContext + 'static> RebootstrapClient for PolledProducer<C> {
    fn check(&self, seen: &mut ClientState, named: &BootstrapServers) {
        seen.check(self.client(), named);
    }
}

impl RebootstrapClient for AdminClient<DefaultClientContext> {
    fn check(&self, seen: &mut ClientState, named: &BootstrapServers) {
        seen.check(self.inner(), named);
    }
}

/// All clients of a connection.
#[derive(Default)]
pub(crate) struct ClientList(Mutex<Vec<(Weak<dyn RebootstrapClient>, ClientState)>>);

impl ClientList {
    pub(crate) fn add<C: RebootstrapClient + 'static>(&self, client: &Arc<C>) {
        let client: Weak<dyn RebootstrapClient> = Arc::<C>::downgrade(client);
        let mut all = locked(&self.0);
        all.retain(|(client, _)| client.strong_count() > 0);
        all.push((client, ClientState::default()));
    }

    /// Checks each client.
    pub(crate) fn check(&self, named: &BootstrapServers) {
        let mut all = locked(&self.0);
        let checked: Vec<_> = all
            .iter_mut()
            .filter_map(|(client, seen)| {
                let client = client.upgrade()?;
                client.check(seen, named);
                Some(client)
            })
            .collect();
        drop(all);
        // Not earlier: this may drop the last reference of a client.
        drop(checked);
    }
}

#[cfg(test)]
impl ClientList {
    /// Makes all consumers stop fetching their current partitions.
    pub(crate) fn stop_fetching(&self) {
        let all: Vec<_> =
            locked(&self.0).iter().filter_map(|(client, _)| client.upgrade()).collect();
        all.iter().for_each(|client| client.stop_fetching());
    }
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
    use crate::client::admin::Admin;
    use crate::client::fetcher::{Fetcher, NO_GROUP};
    use crate::client::health::Health;
    use crate::client::options::Options;
    use crate::client::producer::Producer;

    const HANG_TIMEOUT: Duration = Duration::from_secs(60);
    const METADATA: i16 = 3;
    const API_VERSIONS: i16 = 18;

    /// A broker that is out of its cluster at times. It implements two requests of the protocol.
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

        /// Answers until the client disconnects.
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

        /// Metadata response, version 1: brokers, the controller, the requested topics.
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
                // No leader and no partitions.
                answer.extend(5_i16.to_be_bytes());
                answer.extend(text(name));
                answer.push(0);
                answer.extend(0_i32.to_be_bytes());
            }
            // librdkafka allocates by an answer's size and cannot parse a very small one.
            answer.extend([0; 512]);
            answer
        }
    }

    /// The versions of the two requests; response version 3.
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
        // Disables librdkafka's own re-bootstrap, as if it had lost its race.
        let url = format!("kafka://127.0.0.1:{}?metadata.recovery.strategy=none", fake.port);
        let clock = Arc::new(SystemClock::new());
        Options::parse(&Opening { url: url.parse().unwrap(), clock }).unwrap()
    }

    /// Requests metadata until the client has brokers, or has none. No topics are named: the client
    /// would request those automatically from then on.
    fn asks_until<C: ClientContext>(client: &Client<C>, knows: bool) {
        let until = Instant::now() + HANG_TIMEOUT;
        while ffi::brokers(client).is_empty() == knows {
            assert!(Instant::now() < until, "it still does not: {knows}");
            let _ = client.fetch_metadata(None, Duration::from_millis(20));
        }
    }

    /// Makes a client forget its brokers, then learn and forget them again between two checks.
    fn begins_anew<K: RebootstrapClient + 'static, C: ClientContext>(
        fake: &Fake,
        kept: &Arc<K>,
        client: &Client<C>,
    ) {
        let clients = ClientList::default();
        let named = BootstrapServers::new(&options(fake).brokers, "t".to_owned()).unwrap();
        clients.add(kept);
        let has_nobody = || client.fetch_metadata(None, Duration::from_millis(200)).is_err();
        asks_until(client, true);
        clients.check(&named);
        for _ in 0..2 {
            fake.is_out.store(true, Ordering::SeqCst);
            asks_until(client, false);
            fake.is_out.store(false, Ordering::SeqCst);
            assert!(has_nobody(), "it begins anew by itself: this shows nothing");
            clients.check(&named);
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
        let (options, clients) = (options(&fake), ClientList::default());
        let named = BootstrapServers::new(&options.brokers, "t".to_owned()).unwrap();
        let admin = Admin::new(&options, &Arc::default()).client().unwrap();
        clients.add(&admin);
        asks_until(admin.inner(), true);
        clients.check(&named);
        fake.is_out.store(true, Ordering::SeqCst);
        asks_until(admin.inner(), false);
        // It gets the URL's broker, whose answer names no brokers.
        clients.check(&named);
        let until = Instant::now() + HANG_TIMEOUT;
        while admin.inner().fetch_metadata(None, Duration::from_millis(20)).is_err() {
            assert!(Instant::now() < until, "it does not connect");
        }
        fake.is_out.store(false, Ordering::SeqCst);
        while ffi::brokers(admin.inner()).is_empty() {
            assert!(Instant::now() < until, "it is not asked");
            clients.check(&named);
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
