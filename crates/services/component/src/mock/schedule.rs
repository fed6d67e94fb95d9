//! The schedule of messages: many topics, each at its own rate, spread over time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Messages of many topics in the order of their times. It is an open loop: a message has its time
/// however late those before it were.
///
/// ```
/// use helio_component::MockSchedule;
///
/// let mut schedule = MockSchedule::new([20.0, 0.0, 1.0]);
/// let first_second = std::iter::from_fn(|| schedule.next_before(1_000_000_000)).count();
/// assert_eq!(first_second, 21);
/// ```
#[derive(Debug, Clone)]
pub struct MockSchedule {
    /// The period in nanoseconds and the number of messages so far, by topic.
    topics: Vec<Paced>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

#[derive(Debug, Clone, Copy)]
struct Paced {
    step_ns: f64,
    first_ns: f64,
    count: u64,
}

/// A message that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Its time, in nanoseconds from the start.
    pub at_ns: u64,
    /// The topic's index among the given rates.
    pub topic: usize,
    /// The number of the topic's message, from 0.
    pub number: u64,
}

impl MockSchedule {
    /// A schedule for topics with these rates in hertz, from time 0; topics with rate 0 have no
    /// messages. First messages are spread over their periods, so that topics of one rate do not
    /// coincide.
    pub fn new(rates: impl IntoIterator<Item = f64>) -> Self {
        let mut schedule = Self { topics: Vec::new(), due: BinaryHeap::new() };
        for (place, hz) in rates.into_iter().enumerate() {
            let step_ns = 1e9 / hz;
            let first_ns = if hz > 0.0 { step_ns * spread(place) } else { 0.0 };
            schedule.topics.push(Paced { step_ns, first_ns, count: 0 });
            if hz > 0.0 {
                schedule.due.push(Reverse((first_ns as u64, place)));
            }
        }
        schedule
    }

    /// The time of the next message, in nanoseconds from the start; `None` if no topic has a rate.
    #[must_use]
    pub fn peek_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// The next message, if it is due before `end_ns`.
    pub fn next_before(&mut self, end_ns: u64) -> Option<Due> {
        let at_ns = self.peek_ns().filter(|at_ns| *at_ns < end_ns)?;
        let Reverse((_, topic)) = self.due.pop()?;
        let paced = &mut self.topics[topic];
        let number = paced.count;
        paced.count += 1;
        // Counted from the first one, so that errors do not accumulate.
        let next = paced.first_ns + paced.step_ns * paced.count as f64;
        self.due.push(Reverse((next as u64, topic)));
        Some(Due { at_ns, topic, number })
    }
}

/// Numbers from 0 to 1 that are evenly spread for any count (multiples of the golden ratio).
fn spread(place: usize) -> f64 {
    (place as f64 * 0.618_033_988_749_895).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_kept_over_a_long_time() {
        let mut schedule = MockSchedule::new([50.0, 0.0, 1.0 / 60.0, 3.0]);
        let (mut counts, mut before) = ([0; 4], 0);
        while let Some(due) = schedule.next_before(3_600_000_000_000) {
            assert!(due.at_ns >= before, "in order");
            assert_eq!(due.number, counts[due.topic]);
            counts[due.topic] += 1;
            before = due.at_ns;
        }
        assert_eq!(counts, [180_000, 0, 60, 10_800]);
        assert_eq!(MockSchedule::new([0.0]).peek_ns(), None);
    }

    #[test]
    fn topics_of_one_rate_do_not_come_together() {
        let mut schedule = MockSchedule::new(vec![1.0; 100]);
        let mut places: Vec<u64> =
            std::iter::from_fn(|| schedule.next_before(1_000_000_000)).map(|d| d.at_ns).collect();
        places.dedup_by_key(|at| *at / 1_000_000);
        assert_eq!(places.len(), 100);
    }
}
