//! Questions of a session that wait for answers: several at once, each with a number of its own.

use std::collections::HashMap;
use std::sync::Mutex;

use helio_bus::transport::locked;

use super::words::Answer;

/// All that are open.
#[derive(Debug, Default)]
pub(super) struct Asking(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// How many there were.
    count: u64,
    /// By slot.
    questions: Vec<Option<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// By session.
    answers: HashMap<String, Answer>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Question<'a> {
    of: &'a Asking,
    slot: usize,
    number: u64,
}

impl Asking {
    /// A new one, in the first slot that is free: so there are as many words as questions at once.
    pub(super) fn question(&self) -> Question<'_> {
        let mut open = locked(&self.0);
        open.count += 1;
        let number = open.count;
        let waiting = Some(Waiting { number, answers: HashMap::new() });
        let slot = match open.questions.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                open.questions.push(None);
                open.questions.len() - 1
            }
        };
        open.questions[slot] = waiting;
        Question { of: self, slot, number }
    }

    /// Takes an answer; one that nobody waits for any more is nobody's.
    pub(super) fn hear(&self, session: &str, answer: Answer) {
        let mut open = locked(&self.0);
        let mut waiting = open.questions.iter_mut().flatten();
        if let Some(question) = waiting.find(|question| question.number == answer.number) {
            question.answers.insert(session.to_owned(), answer);
        }
    }
}

impl Question<'_> {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What a session has answered.
    pub(super) fn answer(&self, session: &str) -> Option<Answer> {
        let open = locked(&self.of.0);
        open.questions[self.slot].as_ref()?.answers.get(session).cloned()
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        locked(&self.of.0).questions[self.slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_gets_its_own_answer_and_a_free_slot() {
        let asking = Asking::default();
        let [first, second] = [asking.question(), asking.question()];
        let answer = |number| Answer { number, newest: number, ..Answer::default() };
        asking.hear("a", answer(second.number()));
        assert_eq!(second.answer("a"), Some(answer(2)));
        assert_eq!((first.answer("a"), second.answer("b")), (None, None));
        asking.hear("a", answer(first.number()));
        assert_eq!(first.answer("a"), Some(answer(1)));
        let slot = first.slot();
        drop(first);
        let third = asking.question();
        assert_eq!((third.slot(), third.number()), (slot, 3));
        asking.hear("a", answer(1));
        assert_eq!(third.answer("a"), None, "the answer to the one that is gone");
    }
}
