//! A player's schedule between its orders.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use helio_bus::{Bus, Tai};
use helio_component::MockSchedule;

use super::messages::Order;
use crate::clock::{monotonic_ns, wait_until};
use crate::worker::orders;

/// How often orders are polled.
const LOOK_NS: u64 = 20_000_000;

/// The instant of a time of the monotonic clock.
pub(crate) fn tai_at(bus: &Bus, at_ns: u64) -> Tai {
    let since_ns = i128::from(monotonic_ns()) - i128::from(at_ns);
    let since_ns = i64::try_from(since_ns).unwrap_or(0);
    Tai::from_nanos(bus.clock().now().nanos().saturating_sub(since_ns))
}

/// Decides the next step of a player.
pub(crate) struct Pace {
    orders: Receiver<Order>,
    rates: Vec<f64>,
    running: Option<(u64, MockSchedule)>,
}

/// The next step.
pub(crate) enum Step {
    /// The next sample of the stream at this index was due at this time of the monotonic clock.
    Due { stream: usize, number: u64, due_ns: u64 },
    /// This many samples at full speed.
    Burst(u64),
}

impl Pace {
    /// Streams of these rates in hertz, which begin with the order.
    pub(crate) fn new(rates: Vec<f64>) -> Self {
        Self { orders: orders(), rates, running: None }
    }

    /// Waits for the next step; `None` at the end.
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
