//! An engine that stops answering: bounded queues, waiting without a thread, no loss, no
//! reordering.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Message, PublishError, Publisher, Qos, Start, Subscribe, Subscription, TopicSpec,
    TransportError,
};
use helio_core::qos::Overload;

fn frozen(overload: Overload) -> (Cable, Publisher, Subscription) {
    let (_, cable, publisher, samples) = frozen_bus(overload);
    (cable, publisher, samples)
}

fn frozen_bus(overload: Overload) -> (Bus, Cable, Publisher, Subscription) {
    let plan = FaultPlan { queue: 3, ..FaultPlan::default() };
    let transport = FaultTransport::connect("memory:", plan).unwrap();
    let cable = transport.cable();
    let bus = Bus::builder().over(transport).unwrap();
    let spec = TopicSpec::new("wind").unwrap().qos(Qos { overload, ..Qos::stream() });
    let topic = bus.topic(spec).unwrap();
    let samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let publisher = topic.publisher().unwrap();
    cable.freeze();
    (bus, cable, publisher, samples)
}

fn drain(samples: &mut Subscription) -> Vec<u8> {
    let mut got = Vec::new();
    while let Some(event) = samples.try_next().unwrap() {
        got.extend(event.into_sample().map(|sample| sample.payload[0]));
    }
    got
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_full_queue_refuses_or_drops_by_policy_and_counts() {
    for (overload, counted) in [(Overload::Refuse, (3, 2, 0)), (Overload::DropNewest, (3, 0, 2))] {
        let (cable, publisher, mut samples) = frozen(overload);
        let publishing: Vec<_> = (0..5).map(|n| publisher.publish(Message::new(&[n]))).collect();
        let stats = publisher.stats();
        assert_eq!((stats.taken, stats.refused, stats.dropped), counted, "{overload:?}");
        assert!(publishing[2].outcome().is_none(), "a frozen engine acknowledged");
        assert!(publishing[3].outcome().unwrap().is_err());
        cable.thaw();
        let held = publishing.into_iter().filter(|p| matches!(p.outcome(), Some(Ok(_)))).count();
        assert_eq!((held, drain(&mut samples)), (3, vec![0, 1, 2]), "{overload:?}");
        assert_eq!(samples.stats().lost, 0);
    }
}

#[test]
fn those_who_block_keep_their_order_and_their_samples() {
    let (cable, publisher, mut samples) = frozen(Overload::Block);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<_> =
        (0..6).map(|n| Box::pin(publisher.publish(Message::new(&[n])))).collect();
    for publishing in &mut waiting {
        assert!(publishing.as_mut().poll(&mut context).is_pending());
    }
    // One is abandoned and counted; the others keep their order.
    drop(waiting.remove(4));
    assert_eq!(publisher.stats().abandoned, 1);
    cable.thaw();
    assert!(woken.0.load(Ordering::SeqCst) > 0, "nobody was told that there is room");
    // Blocked publishes were admitted although no receipt was polled.
    publisher.publish(Message::new(&[9])).wait().unwrap();
    for publishing in waiting {
        let mut publishing = pin!(publishing);
        assert!(matches!(publishing.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    }
    assert_eq!(drain(&mut samples), [0, 1, 2, 3, 5, 9]);
    assert_eq!(samples.stats().lost, 0);
}

#[test]
fn blocked_threads_go_on_when_there_is_room() {
    let (cable, publisher, mut samples) = frozen(Overload::Block);
    let first: Vec<_> = (0..3).map(|n| publisher.publish(Message::new(&[n]))).collect();
    let waiting = publisher.publish(Message::new(&[3]));
    let blocked = std::thread::spawn(move || waiting.wait());
    cable.thaw();
    blocked.join().unwrap().unwrap();
    assert!(first.iter().all(|publishing| matches!(publishing.outcome(), Some(Ok(_)))));
    assert_eq!(drain(&mut samples), [0, 1, 2, 3]);
}

#[test]
fn waiting_for_room_ends_with_the_caller_s_patience() {
    let (_cable, publisher, _samples) = frozen(Overload::Block);
    let first: Vec<_> = (0..3).map(|n| publisher.publish(Message::new(&[n]))).collect();
    let late = publisher.publish(Message::new(&[3])).wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(PublishError::Timeout)));
    assert_eq!(publisher.stats().abandoned, 1);
    drop(first);
}

#[test]
fn closing_ends_the_waiting_for_room() {
    let (bus, _cable, publisher, _samples) = frozen_bus(Overload::Block);
    let queued = publisher.publish(Message::new(b"queued"));
    let first: Vec<_> = (0..2).map(|n| publisher.publish(Message::new(&[n]))).collect();
    let in_line = publisher.publish(Message::new(b"in line"));
    let blocked = std::thread::spawn(move || in_line.wait());
    bus.close();
    let closed = blocked.join().unwrap().unwrap_err();
    assert!(matches!(closed, PublishError::Transport(TransportError::Closed)), "{closed}");
    assert!(matches!(queued.wait(), Err(PublishError::Unknown { .. })));
    drop(first);
}

#[test]
fn a_batch_waits_for_room_as_single_samples_do() {
    let (cable, publisher, mut samples) = frozen(Overload::Block);
    let payloads: Vec<[u8; 1]> = (0..8).map(|n| [n]).collect();
    let messages: Vec<_> = payloads.iter().map(|payload| Message::new(payload)).collect();
    let batching = publisher.publish_batch(&messages);
    assert_eq!(batching.taken(), 3);
    cable.thaw();
    batching.wait().unwrap();
    assert_eq!(drain(&mut samples), [0, 1, 2, 3, 4, 5, 6, 7]);
}
