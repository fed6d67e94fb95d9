//! Fences on a transport that fetches late: what was not fetched yet counts as stored.

use std::time::Duration;

use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Message, Qos, ReadError, Start, Subscribe, Subscription, TopicSpec, TransportError,
};

const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A subscription whose transport fetches nothing until the cable thaws, and five stored samples of
/// three keys.
fn unfetched(url: &str, start: Start) -> (Bus, Cable, Subscription) {
    let transport = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    let cable = transport.cable();
    let bus = Bus::builder().over(transport).unwrap();
    let topic = bus.topic(TopicSpec::new("wind").unwrap().qos(Qos::event())).unwrap();
    let publisher = topic.publisher().unwrap();
    for (key, number) in [(b"a", 0), (b"a", 1), (b"b", 2), (b"c", 3), (b"c", 4)] {
        publisher.publish(Message::new(&[number]).key(key)).wait().unwrap();
    }
    cable.freeze();
    let samples = topic.subscribe(Subscribe::from(start)).unwrap();
    (bus, cable, samples)
}

fn payloads(samples: &mut Subscription) -> Vec<u8> {
    let mut payloads = Vec::new();
    samples.set_fence().unwrap();
    while let Some(event) = samples.next_stored(HANG_TIMEOUT).unwrap() {
        payloads.extend(event.into_sample().map(|sample| sample.payload[0]));
    }
    payloads.sort_unstable();
    payloads
}

const CASES: [(Start, &[u8]); 3] =
    [(Start::Last(1), &[1, 2, 4]), (Start::Earliest, &[0, 1, 2, 3, 4]), (Start::Latest, &[])];

fn nothing_fetched_is_not_nothing_stored(url: &str) {
    for (start, stored) in CASES {
        let (_bus, cable, mut samples) = unfetched(url, start);
        samples.set_fence().unwrap();
        for _ in 0..3 {
            assert!(samples.try_next().unwrap().is_none());
            let passed = samples.has_passed_fence().unwrap();
            assert_eq!(passed, stored.is_empty(), "{start:?}");
            samples.set_fence().unwrap();
        }
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            cable.thaw();
        });
        assert_eq!(payloads(&mut samples), stored, "{start:?}");
        late.join().unwrap();
        assert!(samples.has_passed_fence().unwrap(), "there is none any more");
    }
}

#[test]
fn nothing_fetched_from_memory_is_not_nothing_stored() {
    nothing_fetched_is_not_nothing_stored("memory:");
}

#[test]
fn nothing_fetched_from_a_journal_is_not_nothing_stored() {
    for (start, stored) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().display());
        let (_bus, cable, mut samples) = unfetched(&url, start);
        samples.set_fence().unwrap();
        assert!(samples.try_next().unwrap().is_none());
        assert_eq!(samples.has_passed_fence().unwrap(), stored.is_empty(), "{start:?}");
        cable.thaw();
        assert_eq!(payloads(&mut samples), stored, "{start:?}");
    }
}

#[test]
fn a_wait_set_ends_when_all_members_have_passed() {
    for (start, stored) in CASES {
        let (bus, cable, mut samples) = unfetched("memory:", start);
        samples.set_fence().unwrap();
        let mut set = bus.wait_set().unwrap();
        set.add(samples);
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            cable.thaw();
        });
        let mut payloads = Vec::new();
        while let Some((_, event)) = set.next_stored(HANG_TIMEOUT).unwrap() {
            payloads.extend(event.into_sample().map(|sample| sample.payload[0]));
        }
        payloads.sort_unstable();
        assert_eq!(payloads, stored, "{start:?}");
        late.join().unwrap();
    }
}

#[test]
fn what_does_not_arrive_is_an_outage() {
    let (_bus, _cable, mut samples) = unfetched("memory:", Start::Last(1));
    samples.set_fence().unwrap();
    let missing = samples.next_stored(Duration::from_millis(20));
    let Err(ReadError::Transport(TransportError::Outage { cause, .. })) = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(cause, "not all that wind stores has arrived, and nothing came for 0.02 s");
}

#[test]
fn a_group_s_member_is_refused() {
    let bus = Bus::connect("memory:").unwrap();
    let topic = bus.topic(TopicSpec::new("wind").unwrap().qos(Qos::stream())).unwrap();
    let mut member = topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    let refused = member.set_fence().unwrap_err().to_string();
    assert!(refused.contains("subscribe without a group"), "{refused}");
}
