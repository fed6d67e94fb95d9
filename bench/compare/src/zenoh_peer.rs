//! Zenoh: peer to peer over a unix socket, congestion control *block*, express in latency runs.

use std::time::Duration;

use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

use crate::harness::{Kind, Publish, Subscribe, Work};

fn session(topic: &str, role: &str) -> Session {
    let mut config = Config::default();
    let socket = format!("unixsock-stream/{}/{topic}.sock", std::env::temp_dir().display());
    let settings = [
        ("mode", "\"peer\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        (role, format!("[\"{socket}\"]")),
    ];
    for (key, value) in settings {
        config.insert_json5(key, &value).expect("a legal setting");
    }
    if role != "listen/endpoints" {
        config.insert_json5("listen/endpoints", "[]").expect("a legal setting");
    }
    zenoh::open(config).wait().expect("a session")
}

/// The sending end.
pub struct Sender {
    publisher: Publisher<'static>,
    _session: Session,
}

impl Sender {
    /// Connects to the subscriber's socket.
    pub fn open(work: &Work) -> Self {
        let path = std::env::temp_dir().join(format!("{}.sock", work.topic));
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let session = session(&work.topic, "connect/endpoints");
        let publisher = session
            .declare_publisher(work.topic.clone())
            .congestion_control(CongestionControl::Block)
            .express(work.kind == Kind::Latency)
            .wait()
            .expect("a publisher");
        Self { publisher, _session: session }
    }
}

impl Publish for Sender {
    fn wait_for_subscriber(&mut self) {
        while !self.publisher.matching_status().wait().expect("a status").matching() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(&mut self, payload: &[u8]) {
        self.publisher.put(payload).wait().expect("put");
    }

    fn finish(&mut self) {
        // Batches leave in the background; the session must outlive them.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The receiving end.
pub struct Receiver {
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
    _session: Session,
}

impl Receiver {
    /// Listens on a socket named after the topic.
    pub fn open(work: &Work) -> Self {
        let session = session(&work.topic, "listen/endpoints");
        let channel = zenoh::handlers::FifoChannel::new(1024);
        let subscriber = session
            .declare_subscriber(work.topic.clone())
            .with(channel)
            .wait()
            .expect("subscribed");
        Self { subscriber, _session: session }
    }
}

impl Subscribe for Receiver {
    fn receive(&mut self, limit: Duration, each: &mut dyn FnMut(&[u8])) {
        let mut next = self.subscriber.recv_timeout(limit).expect("the session is open");
        while let Some(sample) = next {
            each(&sample.payload().to_bytes());
            next = self.subscriber.try_recv().expect("the session is open");
        }
    }
}
