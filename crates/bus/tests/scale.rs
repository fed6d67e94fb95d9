//! A thousand subscriptions with one waiting thread: each receives its samples, and nothing leaks.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use helio_bus::{
    Bus, Event, Message, Publisher, Qos, ReadError, Start, Subscribe, Subscription, TopicSpec,
};

const MANY: usize = 1_000;
const LONG: Duration = Duration::from_secs(60);

/// The woken tasks, for an executor of one thread.
#[derive(Default)]
struct Woken {
    tasks: Mutex<BTreeSet<usize>>,
    some: Condvar,
}

struct Task(usize, Arc<Woken>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.tasks.lock().unwrap().insert(self.0);
        self.1.some.notify_one();
    }
}

impl Woken {
    fn wait(&self) -> BTreeSet<usize> {
        let tasks = self.tasks.lock().unwrap();
        let (mut tasks, timeout) =
            self.some.wait_timeout_while(tasks, LONG, |tasks| tasks.is_empty()).unwrap();
        assert!(!timeout.timed_out(), "nobody was woken");
        std::mem::take(&mut *tasks)
    }
}

fn open(bus: &Bus, other: &Bus) -> (Vec<Publisher>, Vec<Subscription>) {
    let qos = || Qos { durability: helio_core::qos::Durability::Volatile, ..Qos::telemetry() };
    let spec = |n| TopicSpec::new(&format!("component/{n}")).unwrap().qos(qos());
    let publishers = (0..MANY).map(|n| bus.topic(spec(n)).unwrap().publisher().unwrap());
    let publishers: Vec<_> = publishers.collect();
    let latest = || Subscribe::from(Start::Latest);
    let subscriptions =
        (0..MANY).map(|n| other.topic(spec(n)).unwrap().subscribe(latest()).unwrap());
    (publishers, subscriptions.collect())
}

fn bridges() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "helio-bridge").count()
}

type Reading<'a> = Pin<Box<dyn Future<Output = Result<Event, ReadError>> + 'a>>;

fn tasks_share_one_thread(url: &str) {
    let (bus, other) = (Bus::connect(url).unwrap(), Bus::connect(url).unwrap());
    let (publishers, mut subscriptions) = open(&bus, &other);
    let woken = Arc::new(Woken::default());
    let wakers: Vec<Waker> =
        (0..MANY).map(|n| Waker::from(Arc::new(Task(n, Arc::clone(&woken))))).collect();
    let mut reading: Vec<Option<Reading<'_>>> =
        subscriptions.iter_mut().map(|s| Some(Box::pin(s.next()) as Reading<'_>)).collect();
    for (future, waker) in reading.iter_mut().zip(&wakers) {
        let polled = future.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
    }
    for (n, publisher) in publishers.iter().enumerate().rev() {
        publisher.publish(Message::new(&n.to_le_bytes())).wait().unwrap();
    }
    let mut left = MANY;
    while left > 0 {
        for n in woken.wait() {
            let Some(future) = &mut reading[n] else { continue };
            let mut context = Context::from_waker(&wakers[n]);
            match future.as_mut().poll(&mut context) {
                Poll::Pending => {}
                Poll::Ready(event) => {
                    let sample = event.unwrap().into_sample().unwrap();
                    assert_eq!(sample.payload, n.to_le_bytes()[..]);
                    reading[n] = None;
                    left -= 1;
                }
            }
        }
    }
    drop(reading);
    assert_eq!(bridges(), 1, "one thread waits for all tasks of a bus");
    // Subscriptions dropped while waiting are removed, and the others are still woken.
    for (subscription, waker) in subscriptions.iter_mut().zip(&wakers) {
        let mut next = pin!(subscription.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    subscriptions.truncate(1);
    publishers[0].publish(Message::new(b"still here")).wait().unwrap();
    while !woken.wait().contains(&0) {}
    assert!(subscriptions[0].try_next().unwrap().is_some());
}

#[test]
fn a_thousand_tasks_share_one_waiting_thread() {
    tasks_share_one_thread("memory:thousand-tasks");
    while bridges() > 0 {
        // The first bus is dropped, and its thread ends.
        std::thread::yield_now();
    }
    let folder = tempfile::tempdir().unwrap();
    tasks_share_one_thread(&format!("journal:{}", folder.path().display()));
}

fn a_set_waits_for_all(url: &str) {
    let (bus, other) = (Bus::connect(url).unwrap(), Bus::connect(url).unwrap());
    let (publishers, subscriptions) = open(&bus, &other);
    let mut set = other.wait_set().unwrap();
    let members: Vec<_> = subscriptions.into_iter().map(|s| set.add(s)).collect();
    assert!(set.try_next().unwrap().is_none());
    let publishing = std::thread::spawn(move || {
        for (n, publisher) in publishers.iter().enumerate() {
            publisher.publish(Message::new(&n.to_le_bytes())).wait().unwrap();
        }
        publishers
    });
    let mut seen = BTreeSet::new();
    while seen.len() < MANY {
        let (member, event) = set.next_timeout(LONG).unwrap().expect("something comes");
        let n = members.iter().position(|other| *other == member).unwrap();
        assert_eq!(event.into_sample().unwrap().payload, n.to_le_bytes()[..]);
        assert!(seen.insert(n), "{n} came twice");
    }
    let publishers = publishing.join().unwrap();
    let gone = set.remove(members[7]).unwrap();
    publishers[7].publish(Message::new(b"unheard")).wait().unwrap();
    publishers[8].publish(Message::new(b"heard")).wait().unwrap();
    let (member, _) = set.next_timeout(LONG).unwrap().unwrap();
    assert_eq!(member, members[8]);
    assert_eq!((set.len(), gone.stats().lag), (MANY - 1, 1));
}

#[test]
fn a_thousand_subscriptions_wait_in_one_thread() {
    a_set_waits_for_all("memory:thousand-in-a-set");
    let folder = tempfile::tempdir().unwrap();
    a_set_waits_for_all(&format!("journal:{}", folder.path().display()));
}
