//! The reorder queue, fed by hand.
use super::*;
use helio_core::{HeadersRef, SchemaId};

const ENVELOPE: usize = 0;
const TYPED: usize = 1;

/// A sample of Mast: its time, its order, the previous number, and the index of its DDS topic.
fn sample(time: i64, order: (u64, u64), previous: u64, topic_index: usize) -> QueuedSample {
    of(("Mast", b""), time, order, (previous, topic_index))
}

/// The same of any producer, with a key.
fn of(
    (producer, key): (&str, &[u8]),
    time: i64,
    order: (u64, u64),
    (previous, topic_index): (u64, usize),
) -> QueuedSample {
    let header = Header {
        producer,
        incarnation: order.0,
        sequence: order.1,
        previous,
        time: Tai::from_nanos(time),
        schema: SchemaId::BYTES,
        partition: 0,
        level: 0,
        flags: 0,
        trace: None,
        key,
        headers: HeadersRef::EMPTY,
    };
    let mut bytes = Vec::new();
    envelope::write_head(&header, 0, &mut bytes);
    QueuedSample {
        // One key has the same handle on both topics.
        sample: SampleBytes::Bytes(bytes, 1),
        partition: 0,
        offset: 0,
        sequence: order.1,
        origin: Origin::Log,
        typed: None,
        time: header.time,
        incarnation: order.0,
        foreign: None,
        previous,
        follows_other_topic: false,
        resent: false,
        topic_index,
        writer: topic_index as u64,
        since: Instant::now(),
        base: false,
        past: false,
        behind: ReaderBehind::No,
    }
}

/// The same, where the previous sample came by the other topic.
fn turn(order: (u64, u64), previous: u64, topic_index: usize) -> QueuedSample {
    QueuedSample { follows_other_topic: true, ..sample(0, order, previous, topic_index) }
}

fn come(
    reorder_queue: &mut ReorderQueue,
    come: Vec<QueuedSample>,
    now: Instant,
) -> Vec<(u64, u64)> {
    for queued in &come {
        reorder_queue.record_sequence(queued.partition, "Mast", queued.order(), queued.topic_index);
        if queued.resent {
            reorder_queue.record_resent(
                queued.partition,
                "Mast",
                queued.order(),
                queued.topic_index,
            );
        }
    }
    reorder_queue.admit(come, now);
    std::iter::from_fn(|| reorder_queue.pop()).map(|queued| queued.order()).collect()
}

/// Mast has a writer on each of the two topics.
fn reorder_queue() -> ReorderQueue {
    let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::New);
    for topic_index in [ENVELOPE, TYPED] {
        let (participant, partitions) = (Guid([7; 16]), vec!["0".to_owned()]);
        let wrote = MatchedWriter { topic_index, participant, partitions, live: true };
        reorder_queue.writers.insert(topic_index as u64, wrote);
    }
    reorder_queue
}

#[test]
fn samples_of_both_topics_are_sorted_though_their_key_is_one() {
    let typed = sample(2, (2, 1), 0, TYPED);
    let both = vec![typed, sample(0, (1, 8), 7, ENVELOPE), sample(1, (1, 9), 8, ENVELOPE)];
    let order = come(&mut reorder_queue(), both, Instant::now());
    assert_eq!(order, [(1, 8), (1, 9), (2, 1)]);
}

#[test]
fn a_sample_waits_for_the_one_before_it_though_numbers_are_left_out() {
    let (mut reorder_queue, now) = (reorder_queue(), Instant::now());
    assert_eq!(come(&mut reorder_queue, vec![sample(0, (1, 2), 0, TYPED)], now), [(1, 2)]);
    assert_eq!(come(&mut reorder_queue, vec![turn((1, 7), 5, ENVELOPE)], now), []);
    assert_eq!(come(&mut reorder_queue, vec![sample(0, (1, 8), 7, ENVELOPE)], now), []);
    let last = vec![sample(0, (1, 5), 2, TYPED)];
    assert_eq!(come(&mut reorder_queue, last, now), [(1, 5), (1, 7), (1, 8)]);
    assert!(!reorder_queue.has_blocked());
    // By the first topic again.
    assert_eq!(come(&mut reorder_queue, vec![turn((1, 9), 8, TYPED)], now), [(1, 9)]);
}

#[test]
fn what_is_sent_again_waits_for_what_is_sent_again() {
    let resent = |queued| QueuedSample { resent: true, origin: Origin::History, ..queued };
    let (mut reorder_queue, now) = (reorder_queue(), Instant::now());
    for queued in [sample(0, (1, 1), 0, TYPED), turn((1, 2), 1, ENVELOPE)] {
        come(&mut reorder_queue, vec![queued], now);
    }
    assert_eq!(come(&mut reorder_queue, vec![resent(turn((1, 2), 1, ENVELOPE))], now), []);
    let first = resent(sample(0, (1, 1), 0, TYPED));
    assert_eq!(come(&mut reorder_queue, vec![first], now), [(1, 1), (1, 2)]);
}

#[test]
fn it_waits_as_long_as_the_other_topics_writer_lives_and_may_send() {
    let now = Instant::now();
    let waits = |reorder_queue: &mut ReorderQueue, after| {
        reorder_queue.admit(Vec::new(), now + after);
        let waits = reorder_queue.has_blocked();
        assert_eq!(waits, !reorder_queue.has_any());
        waits
    };
    let blocked = |best_effort| {
        let mut reorder_queue = reorder_queue().best_effort(best_effort);
        assert_eq!(come(&mut reorder_queue, vec![turn((1, 2), 1, ENVELOPE)], now), []);
        reorder_queue
    };
    let mut lost = blocked(true);
    assert!(waits(&mut lost, PREDECESSOR_TIMEOUT / 2) && !waits(&mut lost, PREDECESSOR_TIMEOUT));
    let mut late = blocked(false);
    assert!(
        waits(&mut late, PREDECESSOR_TIMEOUT) && waits(&mut late, RELIABLE_PREDECESSOR_TIMEOUT / 2)
    );
    let order =
        come(&mut late, vec![sample(0, (1, 1), 0, TYPED)], now + RELIABLE_PREDECESSOR_TIMEOUT / 2);
    assert_eq!(order, [(1, 1), (1, 2)]);
    let mut gone = blocked(false);
    assert!(waits(&mut gone, PREDECESSOR_TIMEOUT));
    gone.writers.values_mut().for_each(|wrote| wrote.live = wrote.topic_index == ENVELOPE);
    assert!(!waits(&mut gone, PREDECESSOR_TIMEOUT));
    let mut never = blocked(false);
    assert!(
        waits(&mut never, PREDECESSOR_TIMEOUT) && !waits(&mut never, RELIABLE_PREDECESSOR_TIMEOUT)
    );
}

#[test]
fn samples_of_others_are_numbered_by_partition_in_the_order_of_their_times() {
    let mut reorder_queue = ReorderQueue::new(&[0, 1], AcceptResent::New);
    // In the order in which Cyclone delivers them: by key.
    let foreign = [(1, 0, 1), (1, 0, 3), (2, 0, 2), (2, 0, 4), (3, 1, 5)];
    let foreign = foreign.map(|(key, partition, time)| {
        let queued = sample(time, (9, 0), 0, ENVELOPE);
        let SampleBytes::Bytes(bytes, _) = queued.sample else { unreachable!() };
        let (sample, key) = (SampleBytes::Bytes(bytes, key), vec![key as u8]);
        QueuedSample { sample, partition, foreign: Some(key), ..queued }
    });
    reorder_queue.admit(foreign.into(), Instant::now());
    let order = std::iter::from_fn(|| reorder_queue.pop());
    let order: Vec<_> = order.map(|q| (q.time.nanos(), q.partition, q.sequence)).collect();
    assert_eq!(order, [(1, 0, 1), (2, 0, 2), (3, 0, 3), (4, 0, 4), (5, 1, 1)]);
}

fn who() -> (u32, String) {
    (0, "Mount".to_owned())
}

#[test]
fn what_did_not_wait_is_lost_only_where_the_pages_do_not_have_it() {
    let mut past = HistoryPhase::default();
    let skipped = SkippedSamples { count: 40, first: (7, 11), last: (7, 50) };
    let mut lost = |seen: Option<(u64, u64)>| {
        past.seen = seen.map(|seen| (who(), seen)).into_iter().collect();
        past.lost(&who(), &skipped)
    };
    assert_eq!(lost(None), 40);
    let seen = [(6, 99), (7, 10), (7, 11), (7, 49), (7, 50), (8, 1)];
    assert_eq!(seen.map(|seen| lost(Some(seen))), [40, 40, 39, 1, 0, 0]);
    let values = [(7, 9), (7, 20), (7, 50)].map(|order| (0, who().1, order));
    past.values = values.into_iter().collect();
    assert_eq!(past.lost(&who(), &skipped), 38, "last values have holes");
}

#[test]
fn a_past_that_does_not_come_is_a_gap_up_to_where_its_writers_stood() {
    let producer = ProducerName::new("Mount").unwrap();
    let position =
        |partition, sequence| ProducerPosition::new(partition, producer.clone(), (7, sequence));
    let mut reorder_queue = ReorderQueue::new(&[0, 1, 2], AcceptResent::History);
    reorder_queue.begin_history();
    if let Some(past) = &mut reorder_queue.past {
        past.seen.insert(who(), (7, 30));
    }
    reorder_queue.report_missing_history(&[position(0, 100), position(1, 5)]);
    let gap = |partition, from, to| {
        let producer = Producer { name: producer.clone(), incarnation: 7 };
        Gap { partition, lost: to - from, cause: GapCause::Sequence { producer, from, to } }
    };
    assert_eq!(reorder_queue.gaps, [gap(0, 31, 101), gap(1, 1, 6), Gap::retention(2, 0, 0)]);
}

#[test]
fn what_is_passed_over_is_one_gap_of_a_partition_until_it_is_told() {
    let mut reorder_queue = ReorderQueue::new(&[0, 1], AcceptResent::New);
    for offset in 0..5 {
        reorder_queue.report_skipped(0, offset);
        reorder_queue.report_skipped(1, offset + 7);
    }
    let gap = |partition, from| {
        let cause = GapCause::Overload { from, to: from + 5 };
        Gap { partition, lost: 5, cause }
    };
    assert_eq!(reorder_queue.gaps, [gap(0, 0), gap(1, 7)]);
}

#[test]
fn others_write_the_partitions_that_their_writer_names() {
    let reorder_queue = ReorderQueue::new(&[1, 3], AcceptResent::New);
    let of = |names: &[&str]| {
        reorder_queue.partition_of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    };
    assert_eq!([of(&["3"]), of(&["site", "2", "1"]), of(&["*"]), of(&[])], [3, 1, 0, 0]);
}

/// Last values in the order of a service's journal, and the service's positions.
fn begin_with_last_values(values: Vec<QueuedSample>, positions: &[(&str, u64)]) -> ReorderQueue {
    let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
    reorder_queue.begin_history();
    for value in values {
        let name = value.names().1.to_owned();
        if let Some(past) = &mut reorder_queue.past {
            past.values.insert((0, name, value.order()));
        }
        reorder_queue.push(QueuedSample {
            past: true,
            behind: ReaderBehind::No,
            resent: true,
            origin: Origin::History,
            ..value
        });
    }
    let positions = positions.iter().map(|(name, sequence)| {
        let producer = ProducerName::new(name).unwrap();
        ProducerPosition::new(0, producer, (1, *sequence))
    });
    reorder_queue.set_covered(positions.collect());
    reorder_queue
}

fn delivered(reorder_queue: &mut ReorderQueue) -> Vec<(String, u64)> {
    let all = std::iter::from_fn(|| reorder_queue.pop());
    all.map(|queued| (queued.names().1.to_owned(), queued.sequence)).collect()
}

#[test]
fn last_values_of_a_service_come_in_its_order_whatever_the_clocks_say() {
    let (early, late) = (("Early", &b"k"[..]), ("Late", &b"k"[..]));
    // The clock of the first writer is ahead.
    let values = vec![of(early, 900, (1, 1), (0, 0)), of(late, 100, (1, 1), (0, 0))];
    let mut reorder_queue = begin_with_last_values(values, &[("Early", 2), ("Late", 1)]);
    // The service received its second sample before the other's first; it is no last value.
    reorder_queue.add(of(early, 950, (1, 2), (1, 0)));
    reorder_queue.add(of(late, 120, (1, 2), (1, 0)));
    reorder_queue.end_history(true);
    crate::history::begin(&mut reorder_queue, &[], 1);
    let late = |number| ("Late".to_owned(), number);
    assert_eq!(delivered(&mut reorder_queue), [late(1), late(2)]);
}

#[test]
fn a_newer_value_that_a_living_writer_has_and_the_service_has_missed_is_the_last_one() {
    // The service skipped a hole of this telemetry topic: the second sample of the first key.
    let (first, other) = (("Mount", &b"first"[..]), ("Mount", &b"other"[..]));
    let values = vec![of(first, 3, (1, 3), (0, 0)), of(other, 6, (1, 6), (0, 0))];
    let mut reorder_queue = begin_with_last_values(values, &[("Mount", 6)]);
    reorder_queue.add(of(first, 5, (1, 5), (0, 0)));
    reorder_queue.add(of(other, 6, (1, 6), (0, 0)));
    reorder_queue.end_history(false);
    crate::history::begin(&mut reorder_queue, &[], 1);
    assert_eq!(delivered(&mut reorder_queue), [("Mount".to_owned(), 5), ("Mount".to_owned(), 6)]);
}

#[test]
fn damaged_samples_are_one_gap_until_it_is_told() {
    let mut reorder_queue = ReorderQueue::new(&[0, 1], AcceptResent::New);
    for _ in 0..5 {
        reorder_queue.report_unreadable(0);
        reorder_queue.report_unreadable(1);
    }
    let gap = |partition| Gap { partition, lost: 5, cause: GapCause::Damaged { from: 0, to: 5 } };
    assert_eq!(reorder_queue.gaps, [gap(0), gap(1)]);
    let lag = |reorder_queue: &ReorderQueue| {
        let mut lag = 0;
        reorder_queue.positions(&mut |at| lag += at.end - at.next);
        lag
    };
    assert!(reorder_queue.pop().is_none());
    assert_eq!(lag(&reorder_queue), 10, "they were not told");
    reorder_queue.gaps.clear();
    assert!(reorder_queue.pop().is_none());
    assert_eq!(lag(&reorder_queue), 0);
}

#[test]
fn what_a_writer_has_and_its_service_has_not_is_handed_out_before_that_services() {
    let values =
        vec![of(("Mount", b"a"), 5, (1, 1), (0, 0)), of(("Dome", b"b"), 4, (1, 1), (0, 0))];
    let mut reorder_queue = begin_with_last_values(values, &[("Mount", 3), ("Dome", 1)]);
    // Two writers know it, too.
    reorder_queue.add(of(("Dome", b"b"), 4, (1, 1), (0, 0)));
    reorder_queue.add(of(("Mount", b"c"), 6, (1, 2), (1, 0)));
    reorder_queue.end_history(true);
    crate::history::begin(&mut reorder_queue, &[], 1);
    let one = |name: &str, number| (name.to_owned(), number);
    assert_eq!(delivered(&mut reorder_queue), [one("Mount", 1), one("Mount", 2), one("Dome", 1)]);
}

#[test]
fn incarnations_far_ahead_of_the_clock_are_nobodys() {
    let reorder_queue = ReorderQueue::new(&[0], AcceptResent::New).since(unix_nanos());
    let is_plausible = [1, unix_nanos(), unix_nanos() + MAX_INCARNATION_AHEAD_NANOS / 2]
        .map(|i| reorder_queue.is_plausible(i));
    assert_eq!(is_plausible, [true; 3]);
    assert!(
        !reorder_queue.is_plausible(u64::MAX)
            && !reorder_queue.is_plausible(unix_nanos() + 2 * MAX_INCARNATION_AHEAD_NANOS)
    );
}

/// A sample of Mast as it is accepted, with the flags that its writer sets.
fn accepted(
    reorder_queue: &mut ReorderQueue,
    order: (u64, u64),
    previous: u64,
    topic_index: usize,
    flags: u8,
) -> QueuedSample {
    let mut queued = sample(0, order, previous, topic_index);
    let header = envelope::header(queued.sample.cdr()).unwrap();
    let header = Header { flags, ..header };
    let (origin, behind) = reorder_queue.origin(&header, topic_index).unwrap();
    queued.follows_other_topic = flags & OTHER_TOPIC != 0;
    QueuedSample { origin, behind, ..queued }
}

/// What is delivered of these: each number, with the first one that was lost before it.
fn lost_before(
    reorder_queue: &mut ReorderQueue,
    come: Vec<QueuedSample>,
    now: Instant,
) -> Vec<(u64, Option<u64>)> {
    reorder_queue.admit(come, now);
    let lost = |queued: QueuedSample| match queued.behind {
        ReaderBehind::From(from) => (queued.sequence, Some(from)),
        _ => (queued.sequence, None),
    };
    std::iter::from_fn(|| reorder_queue.pop()).map(lost).collect()
}

/// A reader that joined at time 10, when Mast's incarnation 5 was at a number.
fn joined(at: u64) -> ReorderQueue {
    let mut reorder_queue = reorder_queue().since(10);
    let position = ProducerPosition::new(0, "Mast".parse().unwrap(), (5, at));
    reorder_queue.set_join_positions(vec![position]);
    reorder_queue
}

#[test]
fn samples_between_the_join_and_the_first_that_arrives_are_lost() {
    let now = Instant::now();
    for (at, previous, lost) in
        [(0, 0, None), (0, 1, Some(1)), (3, 3, None), (3, 7, Some(4)), (3, 2, None)]
    {
        let mut reorder_queue = joined(at);
        let first = accepted(&mut reorder_queue, (5, 8), previous, TYPED, 0);
        let next = accepted(&mut reorder_queue, (5, 9), 8, TYPED, 0);
        let delivered = lost_before(&mut reorder_queue, vec![first, next], now);
        assert_eq!(delivered, [(8, lost), (9, None)], "{at} {previous}");
    }
}

#[test]
fn a_producer_that_began_after_the_reader_has_lost_all_before_its_first_that_arrives() {
    let now = Instant::now();
    for (incarnation, lost) in [(4, None), (6, None), (10, None), (11, Some(1))] {
        let mut reorder_queue = joined(3);
        let first = accepted(&mut reorder_queue, (incarnation, 3), 2, TYPED, 0);
        let delivered = lost_before(&mut reorder_queue, vec![first], now);
        assert_eq!(delivered, [(3, lost)], "{incarnation}");
    }
    // Also if its earlier incarnation was read.
    let mut reorder_queue = joined(3);
    let both = vec![
        accepted(&mut reorder_queue, (5, 4), 3, TYPED, 0),
        accepted(&mut reorder_queue, (11, 2), 1, TYPED, 0),
    ];
    assert_eq!(lost_before(&mut reorder_queue, both, now), [(4, None), (2, Some(1))]);
}

#[test]
fn a_first_sample_whose_predecessor_comes_by_the_other_topic_loses_nothing() {
    let (mut reorder_queue, now) = (joined(3), Instant::now());
    let typed = accepted(&mut reorder_queue, (5, 5), 4, TYPED, OTHER_TOPIC);
    assert_eq!(lost_before(&mut reorder_queue, vec![typed], now), [], "it waits");
    let envelope = accepted(&mut reorder_queue, (5, 4), 3, ENVELOPE, 0);
    let delivered = lost_before(&mut reorder_queue, vec![envelope], now);
    assert_eq!(delivered, [(4, None), (5, None)]);
    // The predecessor never comes.
    let mut reorder_queue = joined(3);
    reorder_queue.writers.clear();
    let typed = accepted(&mut reorder_queue, (5, 5), 4, TYPED, OTHER_TOPIC);
    assert_eq!(lost_before(&mut reorder_queue, vec![typed], now), []);
    let later = now + PREDECESSOR_TIMEOUT;
    assert_eq!(lost_before(&mut reorder_queue, vec![], later), [(5, Some(4))]);
}

#[test]
fn a_producer_that_was_forgotten_is_not_taken_for_new() {
    let (mut reorder_queue, now) = (joined(3), Instant::now());
    let first = accepted(&mut reorder_queue, (5, 4), 3, TYPED, 0);
    assert_eq!(lost_before(&mut reorder_queue, vec![first], now), [(4, None)]);
    for n in 0..2 * MAX_REMEMBERED_PRODUCERS {
        reorder_queue.record_sequence(0, &format!("Other-{n}"), (5, 1), TYPED);
    }
    let next = accepted(&mut reorder_queue, (5, 9), 8, TYPED, 0);
    assert_eq!(lost_before(&mut reorder_queue, vec![next], now), [(9, None)]);
}
