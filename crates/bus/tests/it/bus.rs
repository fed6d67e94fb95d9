//! The bus as applications use it, mostly on `memory:`.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::support::HANG_TIMEOUT;
use helio_bus::{
    Bus, ConnectError, Event, GapCause, Lagging, Message, Qos, ReadError, Start, Subscribe, Topic,
    TopicError, TopicSpec, TransportError,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread: an executor of ten lines, to show that any one suffices.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn publish(topic: &Topic, texts: &[&str]) {
    let publisher = topic.publisher().unwrap();
    for text in texts {
        publisher.publish(Message::new(text.as_bytes())).wait().unwrap();
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_event_loop_s_turns_wake_tasks_without_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", dir.path().join("journal").display());
    let (bus, other) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let source = bus.event_source().unwrap().unwrap();
    assert!(bus.event_source().unwrap().is_none(), "a bus has one");
    let mut pipe = File::from(source.as_fd().try_clone_to_owned().unwrap());
    let mut readable = || pipe.read(&mut [0; 8]).is_ok();
    let wind = topic(&bus, "wind", Qos::telemetry());
    let mut samples = wind.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    for round in 1..4 {
        assert!(samples.poll_event(&mut Context::from_waker(&waker)).is_pending());
        source.turn();
        assert_eq!(woken.0.load(Ordering::SeqCst), round - 1);
        publish(&topic(&other, "wind", Qos::telemetry()), &["7.5"]);
        assert!(readable() && !readable());
        source.turn();
        assert_eq!(woken.0.load(Ordering::SeqCst), round);
        assert!(samples.poll_event(&mut Context::from_waker(&waker)).is_ready());
    }
    bus.close();
    assert!(readable());
}

#[test]
fn a_publish_that_must_not_wait_is_refused_where_a_writer_has_to_be_opened() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos { partitions: 2, ..Qos::telemetry() });
    let publisher = wind.publisher().unwrap();
    let to = |partition| Message::new(b"7.5").partition(partition);
    assert_eq!(publisher.try_publish(to(0)).unwrap().wait().unwrap().sequence, 1);
    assert!(publisher.try_publish(to(1)).is_none());
    assert_eq!(publisher.publish(to(1)).wait().unwrap().sequence, 1);
    assert_eq!(publisher.try_publish(to(1)).unwrap().wait().unwrap().sequence, 2);
    assert!(publisher.try_publish(to(2)).unwrap().wait().is_err());
}

#[test]
fn without_a_descriptor_a_thread_wakes_tasks() {
    let bus = Bus::connect("memory:").unwrap();
    assert!(bus.event_source().unwrap().is_none());
}

#[test]
fn unknown_schemes_are_told_what_there_is() {
    let told = Bus::connect("carrier-pigeon:coop").unwrap_err();
    assert!(matches!(&told, ConnectError::UnknownScheme { known, .. } if known.contains("memory")));
    assert!(Bus::connect("memory").is_err());
    assert!(Bus::connect("memory:x?color=red").unwrap_err().to_string().contains("strict"));
}

#[test]
fn a_topic_is_created_once_and_checked_ever_after() {
    let bus = Bus::connect("memory:").unwrap();
    let missing = bus.topic(TopicSpec::new("wind").unwrap()).unwrap_err();
    assert!(matches!(missing, TopicError::NoSuchTopic(_)));
    topic(&bus, "wind", Qos::telemetry());
    topic(&bus, "wind", Qos::telemetry());
    assert_eq!(*bus.topic(TopicSpec::new("wind").unwrap()).unwrap().qos(), Qos::telemetry());
    let other = Qos { partitions: 3, ..Qos::telemetry() };
    let told = bus.topic(TopicSpec::new("wind").unwrap().qos(other)).unwrap_err();
    assert!(matches!(
        &told,
        TopicError::Transport(TransportError::Differs { field, .. }) if field == "partitions"
    ));
    let none = Qos { partitions: 0, ..Qos::telemetry() };
    let told = bus.topic(TopicSpec::new("none").unwrap().qos(none)).unwrap_err();
    assert!(matches!(told, TopicError::Invalid { field: "partitions", .. }));
}

#[test]
fn what_a_transport_cannot_do_is_refused_by_name() {
    let bus = Bus::connect("memory:?strict=1").unwrap();
    let told = bus.topic(TopicSpec::new("e").unwrap().qos(Qos::event())).unwrap_err();
    let TopicError::Refused(refusal) = &told else { panic!("{told}") };
    assert_eq!(refusal.policy, "durability");
    let text = told.to_string();
    assert!(text.contains("persistent") && text.contains("transient_local at most"), "{text}");
}

#[test]
fn a_task_waits_without_a_runtime() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::telemetry());
    let mut samples = wind.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let publisher = wind.publisher().unwrap();
    let other = std::thread::spawn(move || {
        block_on(async move {
            for text in ["a", "b"] {
                publisher.publish(Message::new(text.as_bytes())).await.unwrap();
            }
        });
    });
    let got = block_on(async {
        let mut got = Vec::new();
        while got.len() < 2 {
            if let Event::Sample(sample) = samples.next().await.unwrap() {
                got.push(sample.payload);
            }
        }
        got
    });
    assert_eq!(got, ["a", "b"]);
    other.join().unwrap();
}

#[test]
fn closing_ends_every_wait() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::telemetry());
    let mut samples = wind.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let mut tasks = wind.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let blocked = std::thread::spawn(move || samples.next_timeout(HANG_TIMEOUT));
    let task = std::thread::spawn(move || block_on(tasks.next()));
    bus.close();
    let closed = ReadError::Transport(TransportError::Closed).to_string();
    assert_eq!(blocked.join().unwrap().unwrap_err().to_string(), closed);
    assert_eq!(task.join().unwrap().unwrap_err().to_string(), closed);
}

#[test]
fn a_slow_reader_loses_by_its_own_policy_only() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::stream());
    let shallow = Subscribe::from(Start::Latest).lagging(Lagging::DropOldest { depth: 2 });
    let mut shallow = wind.subscribe(shallow).unwrap();
    let mut whole = wind.subscribe(Subscribe::from(Start::Latest)).unwrap();
    publish(&wind, &["1", "2", "3", "4", "5"]);
    let first = shallow.try_next().unwrap().unwrap();
    let Event::Gap(gap) = first else { panic!("{first:?}") };
    assert_eq!((gap.lost, gap.cause), (3, GapCause::Overload { from: 0, to: 3 }));
    assert_eq!(shallow.next_sample().unwrap().payload, "4");
    assert_eq!(shallow.next_sample().unwrap().payload, "5");
    let stats = shallow.stats();
    assert_eq!((stats.received, stats.lost, stats.lag), (2, 3, 0));
    for n in ["1", "2", "3", "4", "5"] {
        assert_eq!(whole.next_sample().unwrap().payload, n);
    }
    assert_eq!(whole.stats().lost, 0);
}

#[test]
fn conflation_leaves_the_newest_of_each_key() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::stream());
    let conflating = Subscribe::from(Start::Latest).lagging(Lagging::Conflate);
    let mut samples = wind.subscribe(conflating).unwrap();
    let publisher = wind.publisher().unwrap();
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")] {
        let message = Message::new(value.as_bytes()).key(key.as_bytes());
        publisher.publish(message).wait().unwrap();
    }
    assert_eq!(samples.next_sample().unwrap().payload, "2");
    assert_eq!(samples.next_sample().unwrap().payload, "4");
    assert!(samples.try_next().unwrap().is_none());
    let stats = samples.stats();
    assert_eq!((stats.received, stats.conflated, stats.lost), (2, 2, 0));
}
