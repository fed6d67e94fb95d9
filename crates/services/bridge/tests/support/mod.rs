//! Buses that no engine in this process offers: they refuse late, panic, or have no offsets.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use helio_bridge::{Begin, Bridge, Figures, NoticeKind, Options, Turn};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    Armed, Decorator, HistorySupport, Item, PartitionInfo, Position, Published, Reader,
    ReaderRequest, Record, Support, TopicDecorator, Transport, TransportTopic, Writer,
    WriterRequest,
};
use helio_bus::{
    Bell, Bus, Capabilities, Guarantee, Lagging, Message, PendingReceipt, Producer, ProducerName,
    PublishError, Publisher, Qos, SampleRef, Start, Subscribe, Subscription, TopicName, TopicSpec,
    TransportError, pending_receipt,
};
use helio_core::qos::Durability;

/// How many missing topics are requested before a bus that is [`slow_to_make`] creates any.
pub(crate) const MANY: usize = 24;

/// Why a forwarded sample is refused after it was accepted, by producer and sequence.
pub(crate) type Refuses = Arc<dyn Fn(&str, u64) -> Option<PublishError> + Send + Sync>;

/// Only guards against hanging.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn publisher(bus: &Bus, topic: &str, name: &str, qos: Qos) -> Publisher {
    let spec = TopicSpec::new(topic).unwrap().qos(qos).producer(ProducerName::new(name).unwrap());
    bus.topic(spec).unwrap().publisher().unwrap()
}

pub(crate) fn publish(publisher: &Publisher, numbers: Range<u64>) {
    for number in numbers {
        let payload = number.to_le_bytes();
        publisher.publish(Message::new(&payload).key(b"k")).wait().unwrap();
    }
}

/// A quality of service that every transport of this process supports.
pub(crate) fn stream() -> Qos {
    Qos { durability: Durability::Volatile, ..Qos::stream() }
}

/// A bridge for all topics.
pub(crate) fn bridge(from: &Bus, to: &Bus) -> Bridge {
    bridge_from(from, to, Begin::AsPromised)
}

/// The same, with another beginning.
pub(crate) fn bridge_from(from: &Bus, to: &Bus, begin: Begin) -> Bridge {
    let options = Options { topics: vec!["*".to_owned()], begin, ..Options::default() };
    Bridge::new(from.clone(), to.clone(), options).unwrap()
}

/// Turns until a condition holds.
pub(crate) fn until(bridge: &mut Bridge, mut holds: impl FnMut(&mut Bridge) -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds(bridge) {
        assert!(Instant::now() < end, "{:?} {:?}", bridge.figures(), bridge.notices());
        bridge.turn(Duration::from_millis(20));
    }
}

/// Turns until a notice of this kind.
pub(crate) fn is_told(bridge: &mut Bridge, kind: NoticeKind) {
    until(bridge, |bridge| bridge.notices().iter().any(|notice| notice.kind == kind));
}

/// Turns until this many samples were forwarded; drops the notices.
pub(crate) fn forwarded(bridge: &mut Bridge, count: u64) {
    until(bridge, |bridge| {
        bridge.notices();
        bridge.figures().iter().map(|f| f.forwarded).sum::<u64>() >= count
    });
}

/// Forwards all samples, and finishes.
pub(crate) fn whole(mut bridge: Bridge) -> Figures {
    until(&mut bridge, |bridge| bridge.turn(Duration::ZERO) == Turn::CaughtUp);
    assert!(bridge.finish(TIMEOUT));
    bridge.figures().remove(0)
}

/// Reports an unknown outcome once for each sample from a sequence on.
pub(crate) fn doubts(from: u64) -> Refuses {
    let newest = Mutex::new(from - 1);
    Arc::new(move |_, number| {
        let mut newest = newest.lock().unwrap();
        let first = number > *newest;
        *newest = number.max(*newest);
        first.then(|| PublishError::Unknown { cause: "for this once".to_owned() })
    })
}

/// All samples of a topic.
pub(crate) fn everything(bus: &Bus, topic: &str) -> Subscription {
    let topic = bus.topic(TopicSpec::new(topic).unwrap()).unwrap();
    topic.subscribe(Subscribe::from(Start::Earliest).lagging(Lagging::Lossless)).unwrap()
}

/// Memory whose writers refuse late; it has no forwarders if `refuses` is none.
struct Target {
    inner: Arc<dyn Transport>,
    refuses: Option<Refuses>,
    panics: Arc<AtomicBool>,
    asked: Option<Asked>,
}

/// How many missing topics were requested, and the largest batch that was created.
#[derive(Default, Clone)]
pub(crate) struct Asked {
    pub(crate) absent: Arc<(Mutex<usize>, Condvar)>,
    pub(crate) most: Arc<AtomicUsize>,
}

/// A bus with such a target.
pub(crate) fn target(refuses: Option<Refuses>) -> Bus {
    target_on("memory:", refuses)
}

/// The same at a URL that others may use.
pub(crate) fn target_on(url: &str, refuses: Option<Refuses>) -> Bus {
    odd(url, refuses, Arc::default(), None)
}

/// A bus that panics when a topic is opened, while `panics` is set.
pub(crate) fn panicking(url: &str, refuses: Refuses, panics: &Arc<AtomicBool>) -> Bus {
    odd(url, Some(refuses), Arc::clone(panics), None)
}

/// A bus that creates topics once [`MANY`] were requested.
pub(crate) fn slow_to_make(asked: &Asked) -> Bus {
    odd("memory:", Some(Arc::new(|_, _| None)), Arc::default(), Some(asked.clone()))
}

fn odd(url: &str, refuses: Option<Refuses>, panics: Arc<AtomicBool>, asked: Option<Asked>) -> Bus {
    let inner = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    Bus::builder().over(Arc::new(Target { inner, refuses, panics, asked })).unwrap()
}

/// A bus without offsets that panics when a topic is opened, while `panics` is set.
pub(crate) fn placeless_panicking(url: &str, panics: &Arc<AtomicBool>) -> Bus {
    let inner = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    let refuses: Option<Refuses> = Some(Arc::new(|_, _| None));
    placeless(Arc::new(Target { inner, refuses, panics: Arc::clone(panics), asked: None }))
}

impl Decorator for Target {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(Topic { inner, refuses: self.refuses.clone() })
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        let found = self.inner.open_topic(name)?.map(|topic| self.topic(topic, name));
        if let (None, Some(asked)) = (&found, &self.asked) {
            *asked.absent.0.lock().unwrap() += 1;
            asked.absent.1.notify_all();
        }
        Ok(found)
    }

    fn make_topics(
        &self,
        topics: &[(TopicName, Qos)],
        made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        if let Some(asked) = &self.asked {
            asked.most.fetch_max(topics.len(), Ordering::SeqCst);
            let (absent, more) = &*asked.absent;
            let few = |absent: &mut usize| *absent < MANY;
            drop(more.wait_timeout_while(absent.lock().unwrap(), TIMEOUT, few).unwrap());
        }
        self.inner.make_topics(topics, made)
    }
}

struct Topic {
    inner: Arc<dyn TransportTopic>,
    refuses: Option<Refuses>,
}

impl TopicDecorator for Topic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.inner
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        let Some(refuses) = self.refuses.clone() else {
            return Err(TransportError::Unsupported {
                transport: "odd".to_owned(),
                what: "take samples of other buses".to_owned(),
                remedy: "forward to another one".to_owned(),
            });
        };
        let inner = self.inner.forwarder(request, incarnation)?;
        Ok(Box::new(Late { inner, refuses, sequence: 0 }))
    }
}

/// A writer whose receipts refuse samples, while later ones are accepted.
struct Late {
    inner: Box<dyn Writer>,
    refuses: Refuses,
    sequence: u64,
}

impl Writer for Late {
    fn producer(&self) -> &Producer {
        self.inner.producer()
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.sequence = sequence;
        self.inner.identify(incarnation, sequence)
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        let name = self.inner.producer().name.clone();
        match (self.refuses)(name.as_str(), self.sequence) {
            None => self.inner.publish(record, guarantee),
            // A fenced writer fails at once.
            Some(error @ PublishError::Transport(TransportError::Fenced { .. })) => Err(error),
            Some(error) => {
                let (ticket, pending) = pending_receipt();
                ticket.complete(Err(error));
                Ok(Published::Pending(pending))
            }
        }
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

/// Memory that cannot be read again: like DDS it delivers the newest samples of each key to late
/// joiners, and numbers deliveries.
struct Placeless {
    inner: Arc<dyn Transport>,
    capabilities: Capabilities,
}

/// A bus on memory without offsets.
pub(crate) fn placeless(inner: Arc<dyn Transport>) -> Bus {
    let capabilities = Capabilities {
        rewind: Support::No,
        grants: Support::No,
        exclusive_log: Support::No,
        groups: Support::No,
        history: HistorySupport::KeepAll,
        ..inner.capabilities().clone()
    };
    Bus::builder().over(Arc::new(Placeless { inner, capabilities })).unwrap()
}

impl Decorator for Placeless {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(PlacelessTopic(inner))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

struct PlacelessTopic(Arc<dyn TransportTopic>);

impl TopicDecorator for PlacelessTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.0
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        let (inner, next, drained) = (self.0.reader(request)?, HashMap::new(), false);
        Ok(Box::new(PlacelessReader { inner, next, drained }))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        let all = self.0.partitions()?.into_iter();
        Ok(all.map(|at| PartitionInfo { first: 0, end: 0, durable: 0, ..at }).collect())
    }

    fn committed(&self, _group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        Err(no_places())
    }
}

fn no_places() -> TransportError {
    TransportError::Unsupported {
        transport: "placeless".to_owned(),
        what: "go elsewhere".to_owned(),
        remedy: "read on".to_owned(),
    }
}

struct PlacelessReader {
    inner: Box<dyn Reader>,
    next: HashMap<u32, u64>,
    /// Whether the history was delivered.
    drained: bool,
}

impl Reader for PlacelessReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        let next = &mut self.next;
        let polled = self.inner.poll(max, &mut |item| match item {
            Item::Sample(sample) => {
                let next = next.entry(sample.partition).or_default();
                *next += 1;
                visit(Item::Sample(SampleRef { offset: *next - 1, ..sample }))
            }
            item => visit(item),
        })?;
        self.drained |= polled < max;
        Ok(polled)
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        self.inner.arm(bell, token)
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        self.inner.positions(&mut |at| {
            let next = self.next.get(&at.partition).copied().unwrap_or(0);
            let ahead = (at.end - at.next).max(u64::from(!self.drained));
            visit(Position { partition: at.partition, next, end: next + ahead });
        });
    }

    fn seek(&mut self, _partition: u32, _offset: u64) -> Result<(), TransportError> {
        Err(no_places())
    }

    fn commit(&mut self, _partition: u32, _offset: u64) -> Result<(), TransportError> {
        Err(no_places())
    }
}
