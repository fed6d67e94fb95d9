//! A player's schedule between its orders.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use helio_bus::{Bus, Tai};
use helio_component::MockSchedule;

use super::messages::Order;
use crate::clock::{monotonic_ns, wait_until};
use crate::worker::orders;

/// Orders are looked for at least this often.
const LOOK_NS: u64 = 20_000_000;

/// The instant of a time of the monotonic clock.
pub(crate) fn tai_at(bus: &Bus, at_ns: u64) -> Tai {
    let since_ns = i128::from(monotonic_ns()) - i128::from(at_ns);
    let since_ns = i64::try_from(since_ns).unwrap_or(0);
    Tai::from_nanos(bus.clock().now().nanos().saturating_sub(since_ns))
}

/// Says what is to be done next.
pub(crate) struct Pace {
    orders: Receiver<Order>,
    rates: Vec<f64>,
    running: Option<(u64, MockSchedule)>,
}

/// What is to be done.
pub(crate) enum Step {
    /// The next sample of the stream at this place was due at this time of the monotonic clock.
    Due { stream: usize, number: u64, due_ns: u64 },
    /// So many samples as fast as they are taken.
    Burst(u64),
}

impl Pace {
    /// Streams of these rates in hertz. It begins when that is ordered.
    pub(crate) fn new(rates: Vec<f64>) -> Self {
        Self { orders: orders(), rates, running: None }
    }

    /// Waits for what is to be done; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Step> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Begin { start_ns }) => {
                    self.running = Some((start_ns, MockSchedule::new(self.rates.iter().copied())));
                }
                Ok(Order::Rest) => self.running = None,
                Ok(Order::Burst { samples }) => return Some(Step::Burst(samples)),
                Ok(Order::End) | Err(TryRecvError::Disconnected) => return None,
                Ok(Order::Died | Order::Returned) | Err(TryRecvError::Empty) => {}
            }
            let horizon_ns = monotonic_ns() + LOOK_NS;
            let due = self.running.as_mut().and_then(|(start_ns, schedule)| {
                let due = schedule.next_before(horizon_ns.saturating_sub(*start_ns))?;
                Some((due, *start_ns + due.at_ns))
            });
            if let Some((due, due_ns)) = due {
                wait_until(due_ns);
                return Some(Step::Due { stream: due.topic, number: due.number, due_ns });
            }
            std::thread::sleep(Duration::from_nanos(LOOK_NS / 2));
        }
    }
}
