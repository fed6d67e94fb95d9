//! The wrappers of Cyclone's entities, on the loopback.

use std::io::IoSlice;
use std::sync::mpsc;
use std::time::Duration;

use helio_dds::entity::{
    DdsError, Domain, Extensibility, Guid, Member, Participant, Policy, Qos, Reader, Refused,
    Representation, StatusEvent, Struct, Topic, Type, Writer,
};

/// Unicast on the loopback, which works where multicast is filtered.
const LOOPBACK: &str = "<General><Interfaces><NetworkInterface name=\"lo\" multicast=\"false\"/>\
    </Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>\
    <ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>\
    <Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery>";

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn join(domain: u32) -> std::sync::Arc<Participant> {
    Participant::join(Domain::open(domain, LOOPBACK).unwrap(), &Qos::new()).unwrap()
}

/// `@final struct Reading { @key long station; string text; sequence<octet> bytes; }`
fn reading() -> Struct {
    Struct {
        name: "test::Reading".to_owned(),
        extensibility: Extensibility::Final,
        nested: false,
        members: vec![
            Member::new("station", Type::Int32).key(),
            Member::new("text", Type::String(None)),
            Member::new("bytes", Type::Sequence(Box::new(Type::Octet), None)),
        ],
    }
}

/// A value of it in XCDR2, little-endian.
fn cdr(station: i32, bytes: &[u8]) -> Vec<u8> {
    let mut cdr = vec![0, 7, 0, 0];
    cdr.extend(station.to_le_bytes());
    cdr.extend(3_u32.to_le_bytes());
    cdr.extend(b"hi\0\0");
    cdr.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
    cdr.extend(bytes);
    cdr
}

fn durable() -> Qos {
    Qos::new()
        .reliable(Duration::ZERO)
        .keep_all()
        .transient_local(Some(1))
        .representations(&[Representation::Xcdr2])
}

#[test]
fn a_late_joiner_takes_the_last_values_as_they_were_written() {
    let (here, there) = (join(171), join(171));
    let topic = Topic::create(&here, "late", &reading(), &Qos::new()).unwrap();
    let writer = Writer::open(&topic, &durable().user_data(b"me"), None).unwrap();
    for value in 1..=3_u8 {
        for station in 1..=2 {
            let (head, tail) = (cdr(station, &[]), [value; 5]);
            let mut head = head[..head.len() - 4].to_vec();
            head.extend(5_u32.to_le_bytes());
            let pieces = [IoSlice::new(&head), IoSlice::new(&tail), IoSlice::new(&[0; 3])];
            writer.write(&pieces, i64::from(value)).unwrap();
        }
    }
    let topic = Topic::create(&there, "late", &reading(), &Qos::new()).unwrap();
    let (tell, told) = mpsc::channel();
    let told_of = Box::new(move |news| tell.send(news).unwrap_or_default());
    let reader = Reader::open(&topic, &durable(), Some(told_of)).unwrap();
    let mut samples = Vec::new();
    while samples.len() < 2 {
        told.recv_timeout(TEST_TIMEOUT).unwrap();
        reader.take(&mut samples).unwrap();
    }
    samples.sort_by_key(|sample| sample.cdr().to_vec());
    for (station, sample) in (1..).zip(&samples) {
        assert!(sample.valid);
        assert_eq!(sample.source_time, 3);
        assert_eq!(&sample.cdr()[..21 + 4], &cdr(station, &[3; 5])[..]);
        let publication = reader.publication(sample.writer).unwrap();
        assert_eq!(publication.guid, writer.guid());
        assert_eq!(publication.user_data, b"me");
        assert_eq!(publication.type_name, "test::Reading");
    }
    assert!(writer.wait_for_acknowledgements(TEST_TIMEOUT).unwrap());
}

#[test]
fn what_is_no_value_of_the_type_is_refused() {
    let here = join(172);
    let topic = Topic::create(&here, "wrong", &reading(), &Qos::new()).unwrap();
    let writer = Writer::open(&topic, &durable(), None).unwrap();
    for bad in [&[][..], &[0, 7, 0, 0, 1], &cdr(1, &[1; 4])[..20]] {
        let refused = writer.write(&[IoSlice::new(bad)], 1);
        assert_eq!(refused, Err(Refused::Failed(DdsError::NoValue)), "{bad:?}");
    }
}

#[test]
fn both_sides_learn_the_policy_that_does_not_fit() {
    let (here, there) = (join(173), join(173));
    let (tell, told) = mpsc::channel();
    let telling = |who: &'static str| {
        let tell = tell.clone();
        Some(Box::new(move |news| tell.send((who, news)).unwrap_or_default()) as Box<_>)
    };
    let qos = || Qos::new().representations(&[Representation::Xcdr2]);
    let topic = Topic::create(&here, "offers", &reading(), &Qos::new()).unwrap();
    let _writer = Writer::open(&topic, &qos().best_effort(), telling("writer")).unwrap();
    let topic = Topic::create(&there, "offers", &reading(), &Qos::new()).unwrap();
    let reliable = qos().reliable(Duration::ZERO);
    let _reader = Reader::open(&topic, &reliable, telling("reader")).unwrap();
    let mut who: Vec<_> = (0..2)
        .map(|_| match told.recv_timeout(TEST_TIMEOUT).unwrap() {
            (who, StatusEvent::Incompatible(policy)) => (who, Policy::name(policy)),
            other => panic!("{other:?}"),
        })
        .collect();
    who.sort_unstable();
    assert_eq!(who, [("reader", "reliability"), ("writer", "reliability")]);
}

#[test]
fn a_process_has_one_configuration_a_domain() {
    let first = Domain::open(174, LOOPBACK).unwrap();
    let again = Domain::open(174, LOOPBACK).unwrap();
    let other = Domain::open(174, "").unwrap_err();
    assert!(matches!(other, DdsError::OtherConfiguration { domain: 174, .. }), "{other}");
    drop((first, again));
    drop(Domain::open(174, "<General><AllowMulticast>false</AllowMulticast></General>").unwrap());
}

#[test]
fn identities_read_like_cyclones_own() {
    let guid = Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255]);
    assert_eq!(guid.to_string(), "01020304:05060708:090a0b0c:0d0e0fff");
}
