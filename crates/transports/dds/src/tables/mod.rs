//! The tables that a broker would have: every session says what it knows, and hears all others.
//!
//! Constraints. Nothing that was said is lost while its session lives: words are transient-local,
//! the newest of each key. Whoever opens something waits, a bounded time, until those who may have
//! something to say have answered; nothing else waits.
//!
//! Operation. A session writes its words and, where it has to know what others have said, a
//! question ([`Tables::ask`]); each other session answers when it has heard all before it. Samples
//! of one DDS writer come in order, so after the answer nothing is missing that was said before.

mod asking;
mod state;
mod words;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::locked;
use helio_bus::{Clock, TransportError};

pub(crate) use state::{Heard, Heeded, State, is_text_of};
pub(crate) use words::{
    About, Answer, Ask, Claim, End, Fenced, Keeps, Opened, Origin, Stand, Word, WriterWord, guid,
    hex, name,
};

use asking::Asking;

use crate::entity::{
    Listener, News, Participant, Qos, Reader, Refused, Representation, Sample, Topic, Writer,
};
use crate::envelope::{self, Header};
use crate::error::{engine, failed};
use crate::names::Names;
use crate::options::PATIENCE;

/// How long a word may wait for the room that readers who lag leave.
const ROOM: Duration = Duration::from_secs(1);
/// The longest that who waits for news sleeps before he looks again.
const NEWS: Duration = Duration::from_millis(20);

/// The tables of one connection.
pub(crate) struct Tables {
    /// What this session is called: its participant's identity.
    pub(crate) session: String,
    writers: Mutex<Option<Writers>>,
    table: Reader,
    answers: Reader,
    state: Mutex<State>,
    changed: Condvar,
    asking: Asking,
    closed: AtomicBool,
    clock: Arc<dyn Clock>,
    /// What was heard, and nothing was done about yet. Whoever takes words in holds it.
    undone: Mutex<Vec<(String, Heard)>>,
}

struct Writers {
    table: Writer,
    answers: Writer,
    /// How many samples both have written.
    count: u64,
    /// The number of the newest word.
    said: u64,
    head: Vec<u8>,
}

fn reliable() -> Qos {
    Qos::new().reliable(ROOM).leave_instances().representations(&[Representation::Xcdr2])
}

impl Tables {
    /// Joins the talk; `news` is called, in threads of Cyclone's, when there is something to hear.
    pub(crate) fn open(
        participant: &Arc<Participant>,
        names: &Names,
        clock: &Arc<dyn Clock>,
        news: &Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, TransportError> {
        let of = envelope::envelope_type();
        let topic = |name| {
            let name = names.internal(name);
            Topic::create(participant, &name, &of, &Qos::new()).map_err(failed("make the tables"))
        };
        let listening = || -> Option<Listener> {
            let news = Arc::clone(news);
            Some(Box::new(move |_: News| news()))
        };
        let topics = [topic("table")?, topic("answers")?];
        let session = guid(participant.guid());
        let durable = || reliable().keep_last(1).transient_local(Some(1));
        let opened = || -> Result<_, crate::entity::DdsError> {
            Ok((
                Reader::open(&topics[0], &durable(), listening())?,
                Reader::open(&topics[1], &reliable().keep_all(), listening())?,
                Writers {
                    table: Writer::open(&topics[0], &durable(), None)?,
                    answers: Writer::open(&topics[1], &reliable().keep_all(), None)?,
                    count: 0,
                    said: 0,
                    head: Vec::new(),
                },
            ))
        };
        let (table, answers, writers) = opened().map_err(failed("open the tables"))?;
        let mut state = State::default();
        state.live.insert(session.clone());
        Ok(Self {
            session,
            writers: Mutex::new(Some(writers)),
            table,
            answers,
            state: Mutex::new(state),
            changed: Condvar::new(),
            asking: Asking::default(),
            closed: AtomicBool::new(false),
            clock: Arc::clone(clock),
            undone: Mutex::default(),
        })
    }

    /// Looks at what was heard so far.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut locked(&self.state))
    }

    /// Waits until something was heard, or for a short time, not beyond `until`.
    pub(crate) fn await_news(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now()).min(NEWS);
        // Whoever looks has let go of the state meanwhile: what came then costs this time.
        let waited = self.changed.wait_timeout(locked(&self.state), left);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Who says something first, now.
    pub(crate) fn origin(&self) -> Origin {
        Origin { at: unix_nanos(), by: self.session.clone() }
    }

    /// Says a word, and hears it itself.
    pub(crate) fn say(&self, word: Word) -> Result<(), TransportError> {
        let value = serde_json::to_vec(&word).map_err(|error| engine("write a word", error))?;
        self.write(&word.key(), &value)?;
        self.know(word);
        Ok(())
    }

    /// Knows a word that is not said yet.
    pub(crate) fn know(&self, word: Word) {
        let key = word.key();
        self.look(|state| state.hear(&self.session, &key, Some(word), self.clock.uptime()));
    }

    /// Takes a word back.
    pub(crate) fn take_back(&self, word: &Word) -> Result<(), TransportError> {
        let key = word.key();
        self.write(&key, b"null")?;
        self.look(|state| state.hear(&self.session, &key, None, self.clock.uptime()));
        Ok(())
    }

    fn write(&self, key: &str, value: &[u8]) -> Result<(), TransportError> {
        let full = format!("{key} {}", self.session);
        let mut writers = locked(&self.writers);
        let Some(writers) = writers.as_mut() else { return Err(TransportError::Closed) };
        writers.put(&self.session, &full, value, |writers| &writers.table)?;
        writers.said = writers.count;
        Ok(())
    }

    /// Hears what has come; gives what is to be done about it, with who said it. For one thread.
    pub(crate) fn hear(&self) -> Vec<(String, Heard)> {
        let mut undone = locked(&self.undone);
        self.take(&mut undone);
        std::mem::take(&mut *undone)
    }

    /// Hears what has come, and looks: what there is to be done is left to who hears.
    pub(crate) fn fresh<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        self.take(&mut locked(&self.undone));
        self.look(look)
    }

    fn take(&self, undone: &mut Vec<(String, Heard)>) {
        let mut samples = Vec::new();
        let taken = self.table.take(&mut samples);
        // Behind the words: whoever has said one is known then, unless it has gone again.
        self.look_who_lives();
        if taken.is_ok() {
            let (mut state, now) = (locked(&self.state), self.clock.uptime());
            for (header, payload) in in_order(&samples) {
                let text = std::str::from_utf8(header.key).unwrap_or_default();
                let Some((key, session)) = text.rsplit_once(' ') else { continue };
                if session == self.session || !state.live.contains(session) {
                    continue;
                }
                let word: Option<Word> = serde_json::from_slice(payload).unwrap_or_default();
                match state.hear(session, key, word, now) {
                    Heard::Nothing => {}
                    heard => undone.push((session.to_owned(), heard)),
                }
                state.heard_up_to(session, header.sequence);
            }
        }
        samples.clear();
        if self.answers.take(&mut samples).is_ok() {
            for (header, payload) in in_order(&samples) {
                if header.key != self.session.as_bytes() {
                    continue;
                }
                if let Ok(answer) = serde_json::from_slice::<Answer>(payload) {
                    self.asking.hear(header.producer, answer);
                }
            }
        }
        // Whoever looks at the answers holds the state: it must not miss the ring.
        drop(locked(&self.state));
        self.changed.notify_all();
    }

    /// Two who look at once must not put an older list over a newer one: what a session has said
    /// would be forgotten for good.
    fn look_who_lives(&self) {
        let mut state = locked(&self.state);
        let Ok(handles) = self.table.writers() else { return };
        let ends = handles.into_iter().filter_map(|handle| self.table.publication(handle));
        let mut live: HashSet<_> = ends.map(|end| guid(end.participant)).collect();
        live.insert(self.session.clone());
        let ended: Vec<_> = state.live.difference(&live).cloned().collect();
        ended.iter().for_each(|session| state.end(session));
        state.live = live;
    }

    /// Asks, and waits until those of `of` who live have answered, all if nobody is named; gives
    /// their answers, each with who has given it. Not for the thread that hears.
    pub(crate) fn ask(
        &self,
        of: Option<Vec<String>>,
        about: About,
    ) -> Result<Vec<(String, Answer)>, TransportError> {
        self.ask_within(PATIENCE, of, about)
    }

    /// The same with other patience.
    pub(crate) fn ask_within(
        &self,
        patience: Duration,
        of: Option<Vec<String>>,
        about: About,
    ) -> Result<Vec<(String, Answer)>, TransportError> {
        self.look_who_lives();
        let others: Vec<_> = match of {
            Some(of) => of,
            None => self.look(|state| state.live.iter().cloned().collect()),
        };
        let others: Vec<_> = others.into_iter().filter(|other| *other != self.session).collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let question = self.asking.question();
        let (slot, number) = (question.slot(), question.number());
        self.say(Word::Ask(Ask { slot, number, about }))?;
        let until = Instant::now() + patience;
        let mut state = locked(&self.state);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(TransportError::Closed);
            }
            let answered = |other: &String| {
                question.answer(other).filter(|answer| state.said(other) >= answer.said)
            };
            let waiting =
                others.iter().any(|other| state.live.contains(other) && answered(other).is_none());
            let left = until.saturating_duration_since(Instant::now());
            if !waiting || left.is_zero() {
                let answer = |other: &String| answered(other).map(|answer| (other.clone(), answer));
                return Ok(others.iter().filter_map(answer).collect());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Answers a session.
    pub(crate) fn answer(&self, to: &str, mut answer: Answer) -> Result<(), TransportError> {
        let mut writers = locked(&self.writers);
        let Some(writers) = writers.as_mut() else { return Err(TransportError::Closed) };
        answer.said = writers.said;
        let value =
            serde_json::to_vec(&answer).map_err(|error| engine("write an answer", error))?;
        writers.put(&self.session, to, &value, |writers| &writers.answers)
    }

    /// Says no more: others take this session for ended.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let writers = locked(&self.writers).take();
        drop(writers);
        // Whoever waits for answers holds the state: it must not miss the ring.
        drop(locked(&self.state));
        self.changed.notify_all();
    }
}

impl Writers {
    fn put(
        &mut self,
        session: &str,
        key: &str,
        value: &[u8],
        which: impl Fn(&Self) -> &Writer,
    ) -> Result<(), TransportError> {
        self.count += 1;
        let header = Header::of_session(session, self.count, key.as_bytes());
        let mut head = std::mem::take(&mut self.head);
        envelope::write_head(&header, value.len(), &mut head);
        let pieces = envelope::pieces(&head, value);
        let now = i64::try_from(unix_nanos()).unwrap_or(0);
        let written = which(self).write(&pieces, now);
        self.head = head;
        match written {
            Ok(()) => Ok(()),
            Err(Refused::Failed(error)) => Err(engine("write a word", error)),
            Err(Refused::Full) => Err(TransportError::Outage {
                transport: crate::SCHEME.to_owned(),
                cause: "a participant takes no words of the tables".to_owned(),
            }),
        }
    }
}

/// Samples in the order of each session's words: they come by key.
fn in_order(samples: &[Sample]) -> Vec<(Header<'_>, &[u8])> {
    let valid = samples.iter().filter(|sample| sample.valid);
    let mut words: Vec<_> = valid.filter_map(|sample| envelope::parse(sample.cdr())).collect();
    words.sort_by_key(|(header, _)| header.sequence);
    words
}

pub(crate) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("session", &self.session).finish_non_exhaustive()
    }
}
