//! Bursts: every chapter is accounted for.

use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
use helio_core::Codec;
use helio_core::schema::{DType, HasSchema};
use helio_detector::{
    Burst, BurstAccount, BurstEnd, BurstError, BurstEvent, Frame, MAX_CHAPTERS, MAX_OPEN_BURSTS,
    Verdict,
};
use proptest::prelude::*;

use crate::bus::places;
use crate::frames::{decoded, encoded};

fn event(source: &str, burst: u64, event: BurstEvent, chapters: u32) -> Burst {
    Burst { source: source.to_owned(), burst, event, chapters, time: 0 }
}

fn chapter(source: &str, burst: u64, chapter: u32) -> Frame<'_> {
    Frame { burst, chapter, ..Frame::new(source, DType::Int8, &[1], &[1]) }
}

fn begun(burst: u64, chapters: u32) -> BurstAccount {
    let mut account = BurstAccount::default();
    assert_eq!(account.event(&event("llrf", burst, BurstEvent::Begin, chapters)).unwrap(), []);
    account
}

fn only(mut verdicts: Vec<Verdict>) -> Verdict {
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_missing_is_what_did_not_come(
        sent in prop::collection::vec(1_u32..40, 0..80),
        chapters in 1_u32..40,
    ) {
        let mut account = begun(1, chapters);
        let sent: Vec<u32> = sent.into_iter().filter(|number| *number <= chapters).collect();
        for number in &sent {
            prop_assert_eq!(account.frame(&chapter("llrf", 1, *number)).unwrap(), []);
        }
        let verdict = only(account.event(&event("llrf", 1, BurstEvent::End, chapters)).unwrap());
        let missing: Vec<u32> = verdict.missing.iter().cloned().flatten().collect();
        let expected: Vec<u32> = (1..=chapters).filter(|number| !sent.contains(number)).collect();
        prop_assert_eq!(verdict.is_complete(), expected.is_empty());
        prop_assert_eq!(verdict.received as usize, chapters as usize - expected.len());
        prop_assert_eq!(verdict.repeated as usize, sent.len() - verdict.received as usize);
        prop_assert_eq!(missing, expected);
    }
}

#[test]
fn each_way_to_end_is_named() {
    let mut account = begun(1, 3);
    account.frame(&chapter("llrf", 1, 2)).unwrap();
    let verdict = only(account.disconnect("llrf"));
    assert_eq!((verdict.end, verdict.is_complete()), (BurstEnd::Disconnected, false));
    assert_eq!(verdict.missing, [1..2, 3..4]);
    assert_eq!(account.disconnect("llrf"), []);
    // A burst whose end was lost is over when the next one begins.
    account.event(&event("llrf", 2, BurstEvent::Begin, 1)).unwrap();
    account.frame(&chapter("llrf", 2, 1)).unwrap();
    let verdict = only(account.event(&event("llrf", 3, BurstEvent::Begin, 1)).unwrap());
    assert_eq!((verdict.burst, verdict.end), (2, BurstEnd::Replaced));
    assert_eq!((verdict.is_complete(), verdict.missing.len()), (false, 0));
    // One whose begin was not received is incomplete, too.
    account.frame(&chapter("other", 9, 1)).unwrap();
    let verdict = only(account.event(&event("other", 9, BurstEvent::End, 1)).unwrap());
    assert_eq!((verdict.begun, verdict.is_complete(), verdict.received), (false, false, 1));
    // Two numbers of chapters: the larger one counts.
    let mut account = begun(4, 2);
    let verdict = only(account.event(&event("llrf", 4, BurstEvent::End, 3)).unwrap());
    assert_eq!(verdict.missing.iter().cloned().flatten().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn what_belongs_to_no_burst_is_refused() {
    let mut account = begun(5, 3);
    assert_eq!(account.frame(&chapter("llrf", 0, 0)).unwrap(), []);
    for number in [0, 4] {
        let error = account.frame(&chapter("llrf", 5, number)).unwrap_err();
        assert!(matches!(error, BurstError::Chapter { limit: 3, .. }), "{error}");
    }
    for chapters in [0, MAX_CHAPTERS + 1] {
        let error = account.event(&event("llrf", 6, BurstEvent::Begin, chapters)).unwrap_err();
        assert!(error.to_string().contains("not among 1 to 65536"), "{error}");
    }
    account.event(&event("llrf", 5, BurstEvent::End, 3)).unwrap();
    let error = account.frame(&chapter("llrf", 5, 1)).unwrap_err();
    assert!(matches!(error, BurstError::Over { last: 5, .. }), "{error}");
    assert!(account.event(&event("llrf", 4, BurstEvent::Begin, 3)).is_err());
}

#[test]
fn open_bursts_are_bounded() {
    let mut account = BurstAccount::default();
    let source = |i: usize| format!("s{i}");
    for i in 0..MAX_OPEN_BURSTS {
        account.event(&event(&source(i), 1, BurstEvent::Begin, 1)).unwrap();
    }
    let verdict = only(account.event(&event("more", 1, BurstEvent::Begin, 1)).unwrap());
    assert_eq!((verdict.source, verdict.end), (source(0), BurstEnd::Replaced));
}

#[test]
fn verdicts_of_a_topic_name_the_chapters_that_were_dropped() {
    places("bursts", |url| {
        let bus = Bus::builder().producer("llrf").connect(url).unwrap();
        let spec = |name: &str| TopicSpec::new(name).unwrap().qos(Qos::event());
        let schema = Burst::schema().unwrap();
        let codec = Codec::new(&schema);
        let bursts = bus.topic(spec("detector/bursts").schema(schema)).unwrap();
        let frames = bus.topic(spec("detector/frames").schema(Frame::schema().unwrap())).unwrap();
        let (events_to, frames_to) = (bursts.publisher().unwrap(), frames.publisher().unwrap());
        let mut events = bursts.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let mut chapters = frames.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let mut account = BurstAccount::default();
        let mut verdicts = Vec::new();
        for burst in 1..=2_u64 {
            for kind in [BurstEvent::Begin, BurstEvent::End] {
                if kind == BurstEvent::End {
                    // Of the second burst two chapters are dropped.
                    let sent = |number: &u32| burst == 1 || ![7, 480].contains(number);
                    for number in (1..=480).filter(sent) {
                        let frame = encoded(&chapter("llrf", burst, number));
                        frames_to.publish(Message::new(&frame).key(b"llrf")).wait().unwrap();
                    }
                    while let Some(event) = chapters.try_next().unwrap() {
                        let Event::Sample(sample) = event else { panic!("{event:?}") };
                        verdicts.extend(account.frame(&decoded(&sample.payload)).unwrap());
                    }
                }
                let mut datum = Vec::new();
                codec.serialize(&event("llrf", burst, kind, 480), &mut datum).unwrap();
                events_to.publish(Message::new(&datum).key(b"llrf")).wait().unwrap();
                let Some(Event::Sample(sample)) = events.try_next().unwrap() else { panic!() };
                let read = codec.deserialize(&sample.payload).unwrap();
                verdicts.extend(account.event(&read).unwrap());
            }
        }
        assert_eq!(verdicts.len(), 2);
        assert!(verdicts[0].is_complete() && verdicts[0].received == 480);
        assert_eq!((verdicts[1].received, verdicts[1].is_complete()), (478, false));
        assert_eq!(verdicts[1].missing, [7..8, 480..481]);
    });
}
