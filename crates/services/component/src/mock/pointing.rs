//! The simulated sender of stream commands: a pointing component. It has its own thread, because
//! it is a separate process in an observatory. Sending a command waits for a presence query
//! and a receipt; nothing else waits for these. Every field has a plausible value, such as a
//! position that the target has at the command's time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use helio_bus::Tai;

use super::MockValues;
use crate::fields::Fields;
use crate::interface::Shape;
use crate::remote::Remote;

/// How long before its time a command is sent: ten milliseconds more than required.
const SEND_LEAD: Duration = Duration::from_millis(60);
/// The most queued commands; further ones are late and not sent.
const MAX_QUEUED_SENDS: usize = 256;

/// A sender of commands.
#[derive(Debug)]
pub(super) struct Pointing {
    remote: Remote,
    /// Present until this is dropped.
    orders: Option<SyncSender<SendRequest>>,
    thread: Option<JoinHandle<()>>,
    /// Commands that were dropped because the queue was full.
    dropped: u64,
}

/// A stream command: its fields, the one with its time, and what the others are.
#[derive(Debug)]
pub(super) struct Targets {
    pub shape: Arc<Shape>,
    pub time: String,
    pub values: MockValues,
}

impl Targets {
    /// The values of a command for a time.
    fn fields(&mut self, number: u64, at: Tai) -> Option<Fields> {
        let mut public = Vec::new();
        self.values.write(number, at, &mut public);
        Fields::of_public(&self.shape, &public)
    }
}

#[derive(Debug)]
enum SendRequest {
    /// A command's number, and the time when it is due.
    Send(u64, Tai),
    /// Signals when everything before it is sent.
    Settle(SyncSender<()>),
}

impl Pointing {
    pub(super) fn start(remote: Remote, targets: Targets) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(MAX_QUEUED_SENDS);
        let sending = remote.clone();
        let thread = std::thread::Builder::new().name("mock-pointing".to_owned());
        let thread = thread.spawn(move || send_all(&sending, targets, received))?;
        Ok(Self { remote, orders: Some(orders), thread: Some(thread), dropped: 0 })
    }

    /// Queues a command that is due at a time.
    pub(super) fn send(&mut self, number: u64, at: Tai) {
        let order = SendRequest::Send(number, at);
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.dropped += 1;
        }
    }

    /// Waits until everything is sent.
    pub(super) fn settle(&self) {
        let (done, told) = sync_channel(1);
        if self.orders.as_ref().is_some_and(|orders| orders.send(SendRequest::Settle(done)).is_ok())
        {
            // An error means that the thread has ended and nothing is pending.
            let _ = told.recv();
        }
    }

    /// The number of commands that were late or dropped.
    pub(super) fn late(&self) -> u64 {
        self.remote.late_sent() + self.dropped
    }
}

impl Drop for Pointing {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic of the thread was already reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn send_all(remote: &Remote, mut targets: Targets, orders: Receiver<SendRequest>) {
    for order in orders {
        match order {
            SendRequest::Send(number, at) => {
                let lead = i64::try_from(SEND_LEAD.as_nanos()).unwrap_or(0);
                let for_time = Tai::from_nanos(at.nanos() + lead);
                let Some(fields) = targets.fields(number, for_time) else { continue };
                let call = remote.command(targets.shape.name()).time(for_time).values(fields);
                // The result is not awaited: a late command is of no use.
                drop(call.set(&targets.time, for_time.seconds()).send());
            }
            SendRequest::Settle(done) => drop(done.send(())),
        }
    }
}
