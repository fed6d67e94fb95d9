//! A session: one connection with records, messages and acknowledgements, one with beats.
//!
//! Constraints. At most [`MAX_IN_FLIGHT`] batches are sent and not acknowledged; all else waits in
//! the source's log. One thread sends, one receives, one has the beats. The sending thread alone
//! uses the source, the receiving one alone the sink; both are returned at the end.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_bus::mirror::{
    CopyMarks, CopyPosition, MAX_MESSAGE_BYTES, MAX_QUEUED_MESSAGES, MirrorError, MirrorFigures,
    MirrorItem, MirrorSession, MirrorSink, MirrorSource, MirrorUser, Order, SessionName,
};
use helio_bus::transport::locked;

use crate::channel::{Channel, Receiver};
use crate::wire::{Expect, Frame, MAX_BEAT_BYTES};

/// Batches that are sent and not acknowledged, at most.
pub const MAX_IN_FLIGHT: u64 = 8;

/// What this end copies: at most one of both in a session that copies one way.
#[derive(Default)]
pub(crate) struct Copied {
    pub source: Option<Box<dyn MirrorSource>>,
    pub sink: Option<Box<dyn MirrorSink>>,
}

/// What a session needs of its end.
pub(crate) struct Context {
    pub user: Arc<dyn MirrorUser>,
    pub figures: Mutex<MirrorFigures>,
    pub beat_interval: Duration,
    pub silence: Duration,
}

#[derive(Default)]
struct Outgoing {
    messages: VecDeque<(Order, Bytes)>,
    seek: Option<CopyPosition>,
    ack_due: bool,
    source_due: bool,
    sent_batches: u64,
    acked_batches: u64,
    /// The offset behind the records sent.
    next: u64,
    /// Batches that the sink has handled.
    handled: u64,
    acknowledged: CopyMarks,
    beats: Option<Arc<Channel>>,
    ended: Option<MirrorError>,
}

/// What the sending thread does next.
enum Task {
    Seek(CopyPosition),
    Ack(u64),
    Message(Bytes),
    Poll { below: u64 },
}

/// The state of a session that its threads share.
pub(crate) struct Session {
    name: SessionName,
    channel: Arc<Channel>,
    out: Mutex<Outgoing>,
    changed: Condvar,
    pub(crate) context: Arc<Context>,
}

/// Wakes the sending thread for the source, or for an acknowledgement.
struct Ring(Arc<Session>, fn(&mut Outgoing));

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.change(self.1);
    }
}

impl Outgoing {
    fn task(&mut self, has_source: bool, sought: bool) -> Option<Task> {
        if let Some(position) = self.seek.take() {
            return Some(Task::Seek(position));
        }
        if std::mem::take(&mut self.ack_due) {
            return Some(Task::Ack(self.handled));
        }
        let below = match self.messages.front() {
            Some((Order::After(offset), _)) if *offset > self.next => *offset,
            Some(_) => {
                // Records that the message held back may follow.
                self.source_due = true;
                return self.messages.pop_front().map(|(_, bytes)| Task::Message(bytes));
            }
            None => u64::MAX,
        };
        let may = has_source && sought && self.sent_batches - self.acked_batches < MAX_IN_FLIGHT;
        (may && std::mem::take(&mut self.source_due)).then_some(Task::Poll { below })
    }
}

impl Session {
    pub(crate) fn new(
        name: SessionName,
        channel: Arc<Channel>,
        context: Arc<Context>,
    ) -> Arc<Self> {
        let (out, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { name, channel, out, changed, context })
    }

    fn change(&self, change: impl FnOnce(&mut Outgoing)) {
        change(&mut locked(&self.out));
        self.changed.notify_one();
    }

    /// Ends the session; the first reason counts.
    pub(crate) fn end(&self, reason: MirrorError) {
        let mut out = locked(&self.out);
        out.ended.get_or_insert(reason);
        let beats = out.beats.take();
        drop(out);
        self.changed.notify_all();
        self.channel.shut();
        if let Some(beats) = beats {
            beats.shut();
        }
    }

    fn ended(&self) -> Option<MirrorError> {
        locked(&self.out).ended.clone()
    }

    /// Ends the session for a failure of this end, and names it to the peer.
    fn refuse(&self, reason: MirrorError) {
        let ours = matches!(
            reason,
            MirrorError::TwoLines { .. }
                | MirrorError::Gone { .. }
                | MirrorError::Log(_)
                | MirrorError::Limit { .. }
                | MirrorError::Protocol { .. }
        );
        if ours && self.ended().is_none() {
            let _ = self.channel.send(&Frame::Refused(reason.to_string()));
        }
        self.end(reason);
    }

    /// Runs until the session ends. Returns what it copied, and why it ended.
    pub(crate) fn run(
        self: &Arc<Self>,
        mut receiver: Receiver,
        copied: Copied,
    ) -> (Copied, MirrorError) {
        let Copied { source, mut sink } = copied;
        let marks = sink.as_ref().map(|sink| sink.marks());
        let session: Arc<dyn MirrorSession> = Arc::clone(self) as _;
        self.context.user.opened(&session);
        // These leave before the peer's first one is delivered.
        let first = std::mem::take(&mut locked(&self.out).messages);
        for (order, message) in first {
            match order {
                Order::Next => {
                    if let Err(error) = self.channel.send(&Frame::Message(message)) {
                        self.end(error);
                    }
                }
                Order::After(_) => self.change(|out| out.messages.push_back((order, message))),
            }
        }
        let this = Arc::clone(self);
        let sender = thread::Builder::new().name("mirror-send".into());
        let sender = sender.spawn(move || {
            let mut source = source;
            if let Err(error) = this.send_all(&mut source, marks.as_deref()) {
                this.refuse(error);
            }
            source
        });
        let received = self.receive_all(&mut receiver, &mut sink);
        self.refuse(received.err().unwrap_or(MirrorError::Closed));
        let source = match sender {
            Ok(sender) => sender.join().unwrap_or(None),
            Err(error) => {
                self.end(self.channel.protocol(error));
                None
            }
        };
        (Copied { source, sink }, self.ended().unwrap_or(MirrorError::Closed))
    }

    fn next_task(&self, has_source: bool, sought: bool) -> Option<Task> {
        let mut out = locked(&self.out);
        loop {
            if out.ended.is_some() {
                return None;
            }
            if let Some(task) = out.task(has_source, sought) {
                return Some(task);
            }
            out = self.changed.wait(out).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn send_all(
        self: &Arc<Self>,
        source: &mut Option<Box<dyn MirrorSource>>,
        marks: Option<&(dyn Fn() -> CopyMarks + Send + Sync)>,
    ) -> Result<(), MirrorError> {
        let waker = Waker::from(Arc::new(Ring(Arc::clone(self), |out| out.source_due = true)));
        let mut sought = false;
        while let Some(task) = self.next_task(source.is_some(), sought) {
            match task {
                Task::Seek(position) => {
                    if let Some(source) = source {
                        source.seek(&position)?;
                        sought = true;
                        self.change(|out| {
                            (out.source_due, out.next) = (true, position.next);
                            out.acknowledged.stored = position.next;
                        });
                    }
                }
                Task::Ack(batches) => {
                    if let Some(marks) = marks {
                        self.channel.send(&Frame::Ack { batches, marks: marks() })?;
                    }
                }
                Task::Message(message) => self.channel.send(&Frame::Message(message))?,
                Task::Poll { below } => {
                    let Some(source) = source else { continue };
                    if let Some(item) = source.poll(below, &waker)? {
                        self.send_item(item)?;
                    }
                    self.lag(source.as_ref());
                }
            }
        }
        Ok(())
    }

    fn send_item(&self, item: MirrorItem) -> Result<(), MirrorError> {
        let frame = match item {
            MirrorItem::Epoch(epoch) => {
                self.change(|out| (out.next, out.source_due) = (epoch.from, true));
                Frame::Epoch(epoch)
            }
            MirrorItem::Batch(batch) => {
                let count = batch.records.len() as u64;
                let bytes: usize = batch.records.iter().map(Bytes::len).sum();
                // Before it is sent: its acknowledgement may come at once.
                self.change(|out| {
                    (out.next, out.source_due) = (batch.first + count, true);
                    out.sent_batches += 1;
                });
                let mut figures = locked(&self.context.figures);
                figures.sent_records += count;
                figures.record_bytes += bytes as u64;
                Frame::Batch(batch)
            }
        };
        self.channel.send(&frame)
    }

    fn lag(&self, source: &dyn MirrorSource) {
        let stored = locked(&self.out).acknowledged.stored;
        let mut figures = locked(&self.context.figures);
        figures.lag_records = source.end().saturating_sub(stored);
    }

    fn receive_all(
        self: &Arc<Self>,
        receiver: &mut Receiver,
        sink: &mut Option<Box<dyn MirrorSink>>,
    ) -> Result<(), MirrorError> {
        if let Some(sink) = sink {
            self.channel.send(&Frame::Position(sink.position()?))?;
        }
        self.channel.limit(Some(self.context.silence))?;
        let durable = Waker::from(Arc::new(Ring(Arc::clone(self), |out| out.ack_due = true)));
        loop {
            let Some(frame) = receiver.receive(Expect::Any)? else {
                // From now on, beats notice a silent peer.
                self.check_beats()?;
                self.channel.limit(None)?;
                continue;
            };
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            match (frame, &mut *sink) {
                (Frame::Position(position), _) => self.change(|out| out.seek = Some(position)),
                (Frame::Ack { batches, marks }, _) => self.acked(batches, marks)?,
                (Frame::Message(message), _) => self.context.user.message(self.name, message),
                (Frame::Epoch(epoch), Some(sink)) => sink.begin(&epoch)?,
                (Frame::Batch(batch), Some(sink)) => {
                    sink.store(&batch, &durable)?;
                    let bytes: usize = batch.records.iter().map(Bytes::len).sum();
                    let mut figures = locked(&self.context.figures);
                    figures.received_records += batch.records.len() as u64;
                    figures.record_bytes += bytes as u64;
                    drop(figures);
                    self.change(|out| (out.handled, out.ack_due) = (out.handled + 1, true));
                }
                (Frame::Refused(reason), _) => {
                    let peer = self.channel.peer.clone();
                    return Err(MirrorError::Refused { peer, reason });
                }
                (Frame::Bye, _) => return Err(MirrorError::Closed),
                (Frame::Epoch(_) | Frame::Batch(_), None) => {
                    return Err(self.channel.protocol("records, and this end has no copy"));
                }
                (Frame::Hello { .. } | Frame::Beat { .. }, _) => {
                    return Err(self.channel.protocol("a frame of another connection"));
                }
            }
        }
    }

    fn check_beats(&self) -> Result<(), MirrorError> {
        let (peer, silence) = (self.channel.peer.clone(), self.context.silence);
        let beating = locked(&self.out).beats.is_some();
        if beating { Ok(()) } else { Err(MirrorError::Silent { peer, silence }) }
    }

    fn acked(&self, batches: u64, marks: CopyMarks) -> Result<(), MirrorError> {
        let mut out = locked(&self.out);
        if batches > out.sent_batches || batches < out.acked_batches {
            return Err(self.channel.protocol("an acknowledgement of what was not sent"));
        }
        (out.acked_batches, out.acknowledged) = (batches, marks);
        // A copy may hold records that a new epoch supersedes: those are not acknowledged ones.
        drop(out);
        self.changed.notify_one();
        let mut figures = locked(&self.context.figures);
        figures.acknowledged = marks;
        drop(figures);
        self.context.user.acknowledged(self.name, marks);
        Ok(())
    }

    /// Sends and echoes beats until the session ends; ends it when the peer is silent.
    pub(crate) fn beats(self: &Arc<Self>, mut receiver: Receiver) {
        let channel = Arc::clone(&receiver.channel);
        let mut out = locked(&self.out);
        if out.ended.is_some() {
            return channel.shut();
        }
        out.beats = Some(Arc::clone(&channel));
        drop(out);
        if let Err(error) = self.beat_all(&mut receiver) {
            self.end(error);
        }
        channel.shut();
    }

    fn beat_all(&self, receiver: &mut Receiver) -> Result<(), MirrorError> {
        let channel = Arc::clone(&receiver.channel);
        let Context { user, figures, beat_interval, silence } = &*self.context;
        let (mut number, mut sent, mut heard) = (0, Instant::now(), Instant::now());
        let mut due = sent;
        while self.ended().is_none() {
            let now = Instant::now();
            if now >= due {
                (number, sent, due) = (number + 1, now, now + *beat_interval);
                channel.send(&Frame::Beat { number, echo: 0, payload: Bytes::new() })?;
                // Watermarks that moved without a batch, as by a sync in the background.
                self.change(|out| out.ack_due = true);
            }
            if heard.elapsed() > *silence {
                let (peer, silence) = (channel.peer.clone(), *silence);
                return Err(MirrorError::Silent { peer, silence });
            }
            let left = due.saturating_duration_since(Instant::now());
            channel.limit(Some(left.max(Duration::from_millis(1))))?;
            let Some(frame) = receiver.receive(Expect::Any)? else { continue };
            let Frame::Beat { number: theirs, echo, payload } = frame else {
                return Err(channel.protocol("a frame that is no beat"));
            };
            heard = Instant::now();
            if echo != 0 && echo == number {
                locked(figures).round_trip = Some(sent.elapsed());
            }
            if theirs != 0 {
                channel.send(&Frame::Beat { number: 0, echo: theirs, payload: Bytes::new() })?;
            }
            if !payload.is_empty() {
                user.beat(self.name, payload);
            }
        }
        Ok(())
    }
}

impl MirrorSession for Session {
    fn name(&self) -> SessionName {
        self.name
    }

    fn send(&self, message: Bytes, order: Order) -> Result<(), MirrorError> {
        check_limit("bytes of a message", message.len(), MAX_MESSAGE_BYTES)?;
        let mut out = locked(&self.out);
        if let Some(ended) = &out.ended {
            return Err(ended.clone());
        }
        check_limit("messages that wait", out.messages.len() + 1, MAX_QUEUED_MESSAGES)?;
        out.messages.push_back((order, message));
        out.source_due = true;
        drop(out);
        self.changed.notify_one();
        Ok(())
    }

    fn beat(&self, payload: &[u8]) -> Result<(), MirrorError> {
        check_limit("bytes of a beat", payload.len(), MAX_BEAT_BYTES)?;
        let beats = locked(&self.out).beats.clone().ok_or(MirrorError::Closed)?;
        let payload = Bytes::copy_from_slice(payload);
        beats.send(&Frame::Beat { number: 0, echo: 0, payload })
    }

    fn acknowledged(&self) -> CopyMarks {
        locked(&self.out).acknowledged
    }

    fn close(&self) {
        if self.ended().is_none() {
            let _ = self.channel.send(&Frame::Bye);
        }
        self.end(MirrorError::Closed);
    }
}

fn check_limit(what: &'static str, value: usize, limit: usize) -> Result<(), MirrorError> {
    let (value, limit) = (value as u64, limit as u64);
    if value <= limit { Ok(()) } else { Err(MirrorError::Limit { what, value, limit }) }
}
