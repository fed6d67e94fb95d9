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
    slots: Vec<Option<PendingRequest>>,
}

#[derive(Debug)]
struct PendingRequest {
    number: u64,
    /// By session.
    responses: HashMap<String, Response>,
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
    pub(super) fn request(&self) -> RequestHandle<'_> {
        let mut open = locked(&self.0);
        open.count += 1;
        let number = open.count;
        let waiting = Some(PendingRequest { number, responses: HashMap::new() });
        let slot = match open.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                open.slots.push(None);
                open.slots.len() - 1
            }
        };
        open.slots[slot] = waiting;
        RequestHandle { of: self, slot, number }
    }

    /// Takes a response; one without a pending request is dropped.
    pub(super) fn receive(&self, session: &str, response: Response) {
        let mut open = locked(&self.0);
        let mut waiting = open.slots.iter_mut().flatten();
        if let Some(request) = waiting.find(|request| request.number == response.number) {
            request.responses.insert(session.to_owned(), response);
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
    pub(super) fn response(&self, session: &str) -> Option<Response> {
        let open = locked(&self.of.0);
        open.slots[self.slot].as_ref()?.responses.get(session).cloned()
    }
}

impl Drop for RequestHandle<'_> {
    fn drop(&mut self) {
        locked(&self.of.0).slots[self.slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_gets_its_own_answer_and_a_free_slot() {
        let asking = PendingRequests::default();
        let [first, second] = [asking.request(), asking.request()];
        let response =
            |number| Response { number, newest_incarnation: number, ..Response::default() };
        asking.receive("a", response(second.number()));
        assert_eq!(second.response("a"), Some(response(2)));
        assert_eq!((first.response("a"), second.response("b")), (None, None));
        asking.receive("a", response(first.number()));
        assert_eq!(first.response("a"), Some(response(1)));
        let slot = first.slot();
        drop(first);
        let third = asking.request();
        assert_eq!((third.slot(), third.number()), (slot, 3));
        asking.receive("a", response(1));
        assert_eq!(third.response("a"), None, "the answer to the one that is gone");
    }
}
