//! Pending requests of a session: several at a time, each with its own number.

use std::collections::HashMap;
use std::sync::Mutex;

use helio_bus::transport::locked;

use super::messages::Response;

/// All pending requests.
#[derive(Debug, Default)]
pub(super) struct PendingRequests(Mutex<OpenRequests>);

#[derive(Debug, Default)]
struct OpenRequests {
    /// The number of requests so far.
    count: u64,
    /// By slot.
    questions: Vec<Option<PendingRequest>>,
}

#[derive(Debug)]
struct PendingRequest {
    number: u64,
    /// By session.
    answers: HashMap<String, Response>,
}

/// A pending request, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestHandle<'a> {
    of: &'a PendingRequests,
    slot: usize,
    number: u64,
}

impl PendingRequests {
    /// A new request, in the first free slot: there are as many keys as requests at a time.
    pub(super) fn question(&self) -> RequestHandle<'_> {
        let mut open = locked(&self.0);
        open.count += 1;
        let number = open.count;
        let waiting = Some(PendingRequest { number, answers: HashMap::new() });
        let slot = match open.questions.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                open.questions.push(None);
                open.questions.len() - 1
            }
        };
        open.questions[slot] = waiting;
        RequestHandle { of: self, slot, number }
    }

    /// Takes a response; one without a pending request is dropped.
    pub(super) fn receive(&self, session: &str, answer: Response) {
        let mut open = locked(&self.0);
        let mut waiting = open.questions.iter_mut().flatten();
        if let Some(question) = waiting.find(|question| question.number == answer.number) {
            question.answers.insert(session.to_owned(), answer);
        }
    }
}

impl RequestHandle<'_> {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A session's response.
    pub(super) fn answer(&self, session: &str) -> Option<Response> {
        let open = locked(&self.of.0);
        open.questions[self.slot].as_ref()?.answers.get(session).cloned()
    }
}

impl Drop for RequestHandle<'_> {
    fn drop(&mut self) {
        locked(&self.of.0).questions[self.slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_gets_its_own_answer_and_a_free_slot() {
        let asking = PendingRequests::default();
        let [first, second] = [asking.question(), asking.question()];
        let answer = |number| Response { number, newest: number, ..Response::default() };
        asking.receive("a", answer(second.number()));
        assert_eq!(second.answer("a"), Some(answer(2)));
        assert_eq!((first.answer("a"), second.answer("b")), (None, None));
        asking.receive("a", answer(first.number()));
        assert_eq!(first.answer("a"), Some(answer(1)));
        let slot = first.slot();
        drop(first);
        let third = asking.question();
        assert_eq!((third.slot(), third.number()), (slot, 3));
        asking.receive("a", answer(1));
        assert_eq!(third.answer("a"), None, "the answer to the one that is gone");
    }
}
