//! Fences: reading everything that was stored at one time, and no guess about what is yet to be
//! fetched.

use std::task::Poll;
use std::time::{Duration, Instant};

use super::{State, Subscription};
use crate::error::{ReadError, TransportError};
use crate::event::{Event, Gap, GapCause};
use crate::thread_pool::PendingTask;
use crate::transport::{Ends, Fence, Reader};

/// How often a fence whose ends are not known yet is polled.
pub(super) const FENCE_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The fence of a subscription, until it is passed.
pub(super) enum SetFence {
    /// The engine is queried in another thread.
    Queried(PendingTask<Result<Fence, TransportError>>),
    Found(Fence),
}

impl SetFence {
    /// The ends, once they are known.
    fn ends(&mut self) -> Result<Option<&mut Ends>, TransportError> {
        if let Self::Queried(query) = self {
            let found = match query.poll() {
                Poll::Pending => return Ok(None),
                Poll::Ready(found) => found.unwrap_or(Err(TransportError::Closed))?,
            };
            *self = Self::Found(found);
        }
        if let Self::Found(Fence::Pending(poll)) = self {
            let Some(ends) = poll()? else { return Ok(None) };
            *self = Self::Found(Fence::Ends(ends));
        }
        match self {
            Self::Found(Fence::Ends(ends)) => Ok(Some(ends)),
            _ => Ok(None),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self, Self::Found(Fence::Ends(_)))
    }
}

impl Subscription {
    /// Sets a fence behind everything that is stored now. All of it was delivered or skipped when
    /// [`has_passed_fence`](Self::has_passed_fence) is true; an empty read alone may mean that it
    /// was not fetched yet. A later fence replaces this one. The call never waits for the engine.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] for a member of a group, whose partitions change;
    /// [`TransportError::Closed`].
    pub fn set_fence(&mut self) -> Result<(), ReadError> {
        if self.in_group.is_yes() {
            return Err(TransportError::Unsupported {
                transport: self.topic.bus.transport.capabilities().transport.clone(),
                what: "set a fence for a member of a group, whose partitions change".to_owned(),
                remedy: "subscribe without a group".to_owned(),
            }
            .into());
        }
        self.state.passed.clear();
        self.state.fence = Some(match self.reader.fence()? {
            Fence::Query(query) => SetFence::Queried(self.topic.bus.queries().run(query)),
            found => SetFence::Found(found),
        });
        Ok(())
    }

    /// Whether everything that was stored when the fence was set has been delivered or skipped;
    /// true without a fence. Samples beyond it may have been delivered, too.
    ///
    /// # Errors
    /// The engine's error; the fence is then removed.
    pub fn has_passed_fence(&mut self) -> Result<bool, ReadError> {
        let Self { reader, state, .. } = self;
        let passed = state.has_passed_fence(&**reader);
        if !matches!(passed, Ok(false))
            && let Some(SetFence::Found(Fence::Ends(ends))) = state.fence.take()
        {
            state.passed = ends;
        }
        passed
    }

    /// Whether the engine has answered where the fence is. Samples that are stored until then may
    /// count as stored when the fence was set.
    ///
    /// # Errors
    /// The engine's error; the fence is then removed.
    pub fn knows_fence(&mut self) -> Result<bool, ReadError> {
        let Some(fence) = &mut self.state.fence else { return Ok(true) };
        let known = fence.ends().map(|ends| ends.is_some());
        if known.is_err() {
            self.state.fence = None;
        }
        Ok(known?)
    }

    /// Whether an offset of a partition is before the last fence, passed or not. A fence whose ends
    /// are not known yet is behind everything that was delivered.
    #[must_use]
    pub fn is_before_fence(&self, partition: u32, offset: u64) -> bool {
        let ends = match &self.state.fence {
            None => &self.state.passed,
            Some(SetFence::Found(Fence::Ends(ends))) => ends,
            Some(_) => return true,
        };
        ends.iter().any(|(of, end)| *of == partition && offset < *end)
    }

    /// The next event before the fence; `None` when it [was passed](Self::has_passed_fence). It
    /// blocks until then. Without a fence, or after it, it returns the pending events.
    ///
    /// ```
    /// # use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
    /// # use std::time::Duration;
    /// let bus = Bus::connect("memory:")?;
    /// let wind = bus.topic(TopicSpec::new("wind")?.qos(Qos::stream()))?;
    /// wind.publisher()?.publish(Message::new(b"7.5")).wait()?;
    /// let mut samples = wind.subscribe(Subscribe::from(Start::Earliest))?;
    /// samples.set_fence()?;
    /// let mut stored = 0;
    /// while let Some(event) = samples.next_stored(Duration::from_secs(10))? {
    ///     stored += usize::from(event.into_sample().is_some());
    /// }
    /// assert_eq!(stored, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TransportError::Outage`] if some of it is missing and nothing arrives for `timeout`; the
    /// fence is then removed. As [`has_passed_fence`](Self::has_passed_fence).
    pub fn next_stored(&mut self, timeout: Duration) -> Result<Option<Event>, ReadError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            // First: samples behind the fence stay unread, as far as the partitions' order allows.
            let passed = self.state.fence.is_some() && self.has_passed_fence()?;
            if passed {
                return Ok(None);
            }
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if self.has_passed_fence()? {
                return Ok(None);
            }
            if !self.wait_until(until)? {
                self.state.fence = None;
                return Err(self.not_arrived(timeout));
            }
        }
    }

    /// The error for stored samples that do not arrive in time.
    pub(crate) fn not_arrived(&self, timeout: Duration) -> ReadError {
        let transport = self.topic.bus.transport.capabilities().transport.clone();
        let (name, waited) = (&self.state.name, timeout.as_secs_f64());
        let cause =
            format!("not all that {name} stores has arrived, and nothing came for {waited} s");
        TransportError::Outage { transport, cause }.into()
    }
}

impl State {
    fn has_passed_fence(&mut self, reader: &dyn Reader) -> Result<bool, ReadError> {
        let Some(fence) = &mut self.fence else { return Ok(true) };
        let Some(ends) = fence.ends()? else { return Ok(false) };
        let waits = !self.pending.is_empty() || self.undecided.is_some() || self.failed.is_some();
        if waits || reader.unread_history() > 0 {
            return Ok(false);
        }
        let mut passed = true;
        reader.positions(&mut |at| {
            let end = ends.iter().find(|(partition, _)| *partition == at.partition);
            passed &= end.is_none_or(|(_, end)| at.next >= *end);
        });
        Ok(passed)
    }

    /// A partition's log was recreated: its offsets start again, and the fence's samples are gone.
    pub(super) fn open_fence(&mut self, partition: u32) {
        if let Some(SetFence::Found(Fence::Ends(ends))) = &mut self.fence {
            ends.retain(|(of, _)| *of != partition);
        }
    }

    /// The same if a gap says that the log was truncated: its end is lower than before.
    pub(super) fn open_truncated_fence(&mut self, gap: &Gap) {
        if gap.lost == 0 && matches!(gap.cause, GapCause::Damaged { .. }) {
            self.open_fence(gap.partition);
        }
    }
}
