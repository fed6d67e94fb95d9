//! Who sends simulated components commands at a rate: a pointing component, which has a thread of
//! its own, as it is a process of its own in an observatory. Sending a command takes a look at who
//! is there, and a receipt; nothing else waits for these.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use helio_bus::Tai;

use crate::remote::Remote;

/// How long before its time a command is sent: ten milliseconds more than it has to be.
const LEAD: Duration = Duration::from_millis(60);
/// The most commands that wait to be sent; beyond it they are late, and not sent.
const WAITING: usize = 256;

/// A sender of commands.
#[derive(Debug)]
pub(super) struct Pointing {
    remote: Remote,
    /// There until this is dropped.
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// Commands that were not sent, as too many waited.
    passed_over: u64,
}

#[derive(Debug)]
enum Order {
    /// A command, the field with the time that it is for, and when it is due.
    Send(Arc<str>, Arc<str>, Tai),
    /// Says when everything before it is sent.
    Settle(SyncSender<()>),
}

impl Pointing {
    pub(super) fn start(remote: Remote) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING);
        let sending = remote.clone();
        let thread = std::thread::Builder::new().name("mock-pointing".to_owned());
        let thread = thread.spawn(move || send_all(&sending, received))?;
        Ok(Self { remote, orders: Some(orders), thread: Some(thread), passed_over: 0 })
    }

    /// Has a command sent that is due at a time.
    pub(super) fn send(&mut self, (name, time): (&Arc<str>, &Arc<str>), at: Tai) {
        let order = Order::Send(Arc::clone(name), Arc::clone(time), at);
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.passed_over += 1;
        }
    }

    /// Waits until everything is sent.
    pub(super) fn settle(&self) {
        let (done, told) = sync_channel(1);
        if self.orders.as_ref().is_some_and(|orders| orders.send(Order::Settle(done)).is_ok()) {
            // An error says that the thread has ended: nothing is left to be sent.
            let _ = told.recv();
        }
    }

    /// How many were sent too late, or not at all.
    pub(super) fn late(&self) -> u64 {
        self.remote.late_sent() + self.passed_over
    }
}

impl Drop for Pointing {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A thread that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn send_all(remote: &Remote, orders: Receiver<Order>) {
    for order in orders {
        match order {
            Order::Send(name, time, at) => {
                let lead = i64::try_from(LEAD.as_nanos()).unwrap_or(0);
                let for_time = Tai::from_nanos(at.nanos() + lead);
                let call = remote.command(&name).time(for_time);
                // Nobody waits for these: a late one is of no use.
                drop(call.set(&time, for_time.seconds()).send());
            }
            Order::Settle(done) => drop(done.send(())),
        }
    }
}
