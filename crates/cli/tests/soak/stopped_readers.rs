//! Readers that are stopped (SIGSTOP) beside one that lives: the writer and the live reader do not
//! notice, and those that were stopped have everything afterwards.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "kafka")]
use crate::kafka::{Broker, unique};
use crate::storm_report::Storm;
use crate::support::{Site, helio};
use helio_bus::{Bus, Message, Qos, TopicSpec};
use rustix::process::{Pid, Signal, kill_process};

const COUNT: u64 = 20_000;
const STOPPED: usize = 3;
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A process that reads a topic, and the number that it waits for next; it panics at another.
struct Reader {
    process: Child,
    next: Arc<AtomicU64>,
}

impl Reader {
    fn start(url: &str, topic: &str) -> Self {
        let mut command = helio();
        command.args(["sub", topic, "--from", "earliest", "--raw", "--url", url]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let next = Arc::<AtomicU64>::default();
        let seen = Arc::clone(&next);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let number: u64 = line.parse().unwrap();
                assert_eq!(number, seen.fetch_add(1, Ordering::AcqRel), "lost or repeated");
            }
        });
        Self { process, next }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until it has so many; gives how many are missing in the end.
    fn lacks(&self, count: u64) -> u64 {
        let until = Instant::now() + HANG_TIMEOUT;
        while self.next.load(Ordering::Acquire) < count && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        count - self.next.load(Ordering::Acquire)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn storm(url: &str, name: &str) {
    let bus = Bus::connect(url).unwrap();
    let topic = bus.topic(TopicSpec::new(name).unwrap().qos(Qos::stream())).unwrap();
    let publisher = topic.publisher().unwrap();
    let publish = |number: u64| publisher.publish(Message::new(format!("{number}\n").as_bytes()));
    publish(0).wait_timeout(HANG_TIMEOUT).unwrap();
    let live = Reader::start(url, name);
    let stopped: [Reader; STOPPED] = std::array::from_fn(|_| Reader::start(url, name));
    let lost: u64 = stopped.iter().chain([&live]).map(|reader| reader.lacks(1)).sum();
    assert_eq!(lost, 0, "not all have begun");
    stopped.iter().for_each(|reader| reader.signal(Signal::STOP));
    let pending: Vec<_> = (1..COUNT).map(publish).collect();
    for receipt in pending {
        receipt.wait_timeout(HANG_TIMEOUT).unwrap();
    }
    let unreported = live.lacks(COUNT);
    assert!(stopped.iter().all(|reader| reader.next.load(Ordering::Acquire) < COUNT));
    stopped.iter().for_each(|reader| reader.signal(Signal::CONT));
    let lost = stopped.iter().map(|reader| reader.lacks(COUNT)).sum();
    let tried = STOPPED as u64;
    let scheme = url.split(':').next().unwrap();
    Storm { tried, survived: tried, lost, unreported }
        .report(&format!("stopped readers on {scheme}"));
}

#[test]
fn stopped_readers_of_a_journal_hurt_nobody_and_lose_nothing() {
    let site = Site::new();
    storm(&site.url, "stopped");
}

#[cfg(feature = "kafka")]
#[test]
fn stopped_readers_of_kafka_hurt_nobody_and_lose_nothing() {
    let Some(broker) = Broker::start(1) else { return };
    storm(&broker.url(""), &unique("stopped").replace('/', "_"));
}
