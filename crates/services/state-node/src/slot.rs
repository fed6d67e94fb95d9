//! Answers that are due: for threads that wait, and for futures without a runtime.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use helio_state::{Error, WriteResponse};

use crate::locked;

/// The answer to a write.
pub type Answer = Result<WriteResponse, Error>;

#[derive(Debug, Default)]
struct Content {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Slot {
    content: Mutex<Content>,
    filled: Condvar,
}

impl Slot {
    fn fill(&self, answer: Answer) {
        let mut content = locked(&self.content);
        content.answer = Some(answer);
        let waker = content.waker.take();
        drop(content);
        self.filled.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A slot that gets an answer in any case: [`Error::Stopped`] if its holder is dropped without one,
/// as a panic does.
#[derive(Debug)]
pub(crate) struct Due(Option<Arc<Slot>>);

impl Due {
    pub(crate) fn new() -> (Self, Pending) {
        let slot = Arc::new(Slot::default());
        (Self(Some(Arc::clone(&slot))), Pending(slot))
    }

    pub(crate) fn fill(mut self, answer: Answer) {
        if let Some(slot) = self.0.take() {
            slot.fill(answer);
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.fill(Err(Error::Stopped));
        }
    }
}

/// A write whose answer is due when its record is committed: [wait](Self::wait), or await it.
/// Dropping it does not undo the write.
#[derive(Debug)]
#[must_use = "the write's outcome is unknown until its answer is there"]
pub struct Pending(Arc<Slot>);

impl Pending {
    /// Blocks until the answer is there.
    ///
    /// # Errors
    ///
    /// The request's; [`Error::Stopped`] or [`Error::Timeout`]: its outcome is unknown.
    pub fn wait(self) -> Answer {
        let mut content = locked(&self.0.content);
        loop {
            if let Some(answer) = content.answer.take() {
                return answer;
            }
            content = self.0.filled.wait(content).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut content = locked(&self.0.content);
        match content.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                content.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
