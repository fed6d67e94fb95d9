//! Consumers that hear nothing any more after the brokers were away, though there is something.
//!
//! Constraints. A reader was seen that got nothing for a minute after its broker, which had stood
//! still, went on; what keeps librdkafka from fetching then is not known. Its own consumer cannot
//! be asked: another client says where a partition ends. A reader's consumer that has heard of less
//! when it was told so, and has still heard of less after [`DEAF`], while its reader has taken all
//! that it has fetched, is given up: the reader goes on where it stands, with another one.
//!
//! Operation. A thread watches the readers from when the brokers are back until each partition was
//! heard of: until its consumer knows of more than there was at first. Readers say where they stand
//! at the end of each look, as long as they are watched, and are rung to look. Who does not look is
//! left alone.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::anew::Told;
use crate::connection::Connection;
use crate::fetcher::Place;
use crate::monitor::Health;

/// How long a consumer may take to hear of what there is.
pub(crate) const DEAF: Duration = Duration::from_secs(10);
/// How long at the most between two looks at who has heard nothing, and may have nothing to hear.
const SELDOM: Duration = Duration::from_secs(60);
/// How long a reader that was rung has to look.
const LOOK: Duration = Duration::from_secs(1);
/// How long brokers have for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Where partitions end.
type Ends = HashMap<u32, u64>;

/// A reader that is watched.
struct Watched {
    told: Arc<Told>,
    /// As was told first, and last.
    first: Ends,
    last: Ends,
    /// When it was rung.
    rung: Instant,
}

impl Watched {
    /// A reader, as long as there is one.
    fn new(told: Arc<Told>) -> Option<Self> {
        told.wake.upgrade()?.watch();
        let (first, last) = (Ends::new(), Ends::new());
        Some(Self { told, first, last, rung: Instant::now() })
    }

    fn ring(&mut self) {
        self.rung = Instant::now();
        if let Some(wake) = self.told.wake.upgrade() {
            wake.ring();
        }
    }

    /// Looks whether the consumer has heard of what there was when it was asked last, and asks
    /// anew; whether it is to be watched on.
    fn look(&mut self, since: Instant) -> bool {
        let Some(wake) = self.told.wake.upgrade() else { return false };
        let Some(places) = wake.stands(self.rung) else { return true };
        let behind = |ends: &Ends, place: &Place| {
            ends.get(&place.partition).is_none_or(|end| place.heard <= *end)
        };
        if !places.is_empty() && !places.iter().any(|place| behind(&self.first, place)) {
            return false;
        }
        let is_deaf =
            |place: &Place| self.last.get(&place.partition).is_some_and(|end| place.heard < *end);
        if places.iter().any(is_deaf) {
            // Another time, where no consumer can be had.
            let _ = self.told.go_on(&places, since);
        }
        let partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        let ends = self.told.ends(&partitions, ANSWER);
        self.last = ends.into_iter().flatten().collect();
        for (partition, end) in &self.last {
            self.first.entry(*partition).or_insert(*end);
        }
        true
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(wake) = self.told.wake.upgrade() {
            wake.unwatch();
        }
    }
}

/// Watches the readers of a connection whose brokers are back; for how long at first.
pub(crate) fn watch(connection: &Arc<Connection>, pause: Duration) {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let mine = health.watch();
    let watched = connection.told().into_iter().filter_map(Watched::new).collect();
    let run = move || run(&weak, (&health, mine), watched, pause);
    // Where there is no thread, opening again helps.
    let _ = std::thread::Builder::new().name("kafka-watch".to_owned()).spawn(run);
}

/// Until all was heard of, or the brokers are away again.
fn run(
    weak: &Weak<Connection>,
    (health, mine): (&Health, u64),
    mut watched: Vec<Watched>,
    mut pause: Duration,
) {
    let since = Instant::now();
    let is_over = |time| health.ends_within(time) || health.is_lost() || !health.is_watch(mine);
    while !watched.is_empty() {
        watched.iter_mut().for_each(Watched::ring);
        if is_over(LOOK) {
            return;
        }
        // The connection is held while it looks only.
        let Some(connection) = weak.upgrade() else { return };
        watched.retain_mut(|one| health.is_lost() || connection.is_closed() || one.look(since));
        drop(connection);
        if is_over(pause) {
            return;
        }
        pause = (2 * pause).min(SELDOM);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use helio_bus::transport::{Begin, GroupRequest, Item, Opening, Reader, ReaderRequest};
    use helio_bus::transport::{Transport as _, TransportTopic};
    use helio_bus::{Qos, SystemClock, TopicName, TransportError};

    use super::*;
    use crate::common::{Broker, admin, broker, deliver, make, plain, unique};
    use crate::topic::Kafka;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// How long the first look takes here.
    const PAUSE: Duration = Duration::from_millis(100);

    fn opened(broker: &Broker) -> Kafka {
        let (url, clock) = (broker.url("").parse().unwrap(), Arc::new(SystemClock::new()));
        crate::open(&Opening { url, clock }).unwrap()
    }

    /// A topic with these samples, and where more can be written.
    fn topic(broker: &Broker, kafka: &Kafka) -> (Arc<dyn TransportTopic>, impl Fn(&[u8])) {
        let name = unique("deaf").replace('/', "_");
        make(&admin(broker), &name, &[]);
        let topic = kafka.open_topic(&TopicName::new(&name).unwrap()).unwrap().unwrap();
        let producer = plain(broker);
        (topic, move |payload: &[u8]| _ = deliver(&producer, (&name, 0), payload).unwrap())
    }

    /// What comes up to and with a payload, or an assignment; there is no gap.
    fn read(reader: &mut dyn Reader, last: &[u8]) -> Vec<Vec<u8>> {
        let (until, mut read) = (Instant::now() + PATIENCE, Vec::new());
        while read.last().is_none_or(|newest| newest != last) {
            assert!(Instant::now() < until, "{read:?}, and no more");
            let mut visit = |item: Item<'_>| {
                match item {
                    Item::Sample(sample) => read.push(sample.payload.to_vec()),
                    Item::Assigned(_) => read.push(b"assigned".to_vec()),
                    Item::Gap(gap) => panic!("{gap:?}"),
                    _ => {}
                }
                if read.last().is_some_and(|newest| newest == last) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            };
            reader.poll(1_000, &mut visit).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        read
    }

    #[test]
    fn a_reader_whose_consumer_hears_nothing_goes_on_where_it_stands() {
        let Some(broker) = broker() else { return };
        let kafka = opened(broker);
        let (topic, write) = topic(broker, &kafka);
        [b"1", b"2"].iter().for_each(|payload| write(*payload));
        let request = ReaderRequest { from: Begin::Earliest, partitions: &[], group: None };
        let [mut one, mut other] = [(); 2].map(|()| topic.reader(&request).unwrap());
        // What was fetched behind it is not handed on yet.
        assert_eq!(read(&mut *one, b"1"), [b"1"]);
        assert_eq!(read(&mut *other, b"2"), [b"1", b"2"]);
        kafka.connection.health.clients.deafen();
        // A fetch that is under way hears of the first, and gives it to nobody.
        [b"3", b"4"].iter().for_each(|payload| write(*payload));
        watch(&kafka.connection, PAUSE);
        assert_eq!(read(&mut *one, b"4"), [b"2", b"3", b"4"]);
        assert_eq!(read(&mut *other, b"4"), [b"3", b"4"]);
        // A second time, as after another outage, with what it goes on with.
        kafka.connection.health.clients.deafen();
        [b"5", b"6"].iter().for_each(|payload| write(*payload));
        watch(&kafka.connection, PAUSE);
        for reader in [&mut one, &mut other] {
            assert_eq!(read(&mut **reader, b"6"), [b"5", b"6"]);
        }
    }

    #[test]
    fn a_member_whose_consumer_hears_nothing_goes_and_comes_again() {
        let Some(broker) = broker() else { return };
        let kafka = opened(broker);
        let (topic, write) = topic(broker, &kafka);
        let group = Some(GroupRequest { name: "g", member: "m" });
        let request = ReaderRequest { from: Begin::Latest, partitions: &[], group };
        let mut member = topic.reader(&request).unwrap();
        read(&mut *member, b"assigned");
        write(b"1");
        assert_eq!(read(&mut *member, b"1"), [b"1"]);
        kafka.connection.health.clients.deafen();
        // A fetch that is under way hears of the first, and gives it to nobody.
        [b"2", b"3"].iter().for_each(|payload| write(*payload));
        watch(&kafka.connection, PAUSE);
        // Nothing was committed, and it does not begin with what is newest now.
        let read: Vec<_> = read(&mut *member, b"3");
        let samples: Vec<_> = read.iter().filter(|read| **read != b"assigned").collect();
        assert_eq!(samples, [b"2", b"3"]);
    }

    #[test]
    fn a_table_whose_consumer_hears_nothing_is_read_on_with_another_one() {
        let Some(broker) = broker() else { return };
        let [kafka, other] = [opened(broker), opened(broker)];
        let name = |base| TopicName::new(&unique(base)).unwrap();
        let first = name("first");
        kafka.create_topic(&first, &Qos::stream()).unwrap();
        kafka.connection.health.clients.deafen();
        let second = name("second");
        other.create_topic(&second, &Qos::stream()).unwrap();
        let unread = kafka.open_topic(&second).map(drop);
        assert!(matches!(unread, Err(TransportError::Outage { .. })), "{unread:?}");
        for topic in [&second, &first] {
            let topic = kafka.open_topic(topic).unwrap().unwrap();
            assert_eq!(topic.qos(), &Qos::stream());
        }
    }
}
