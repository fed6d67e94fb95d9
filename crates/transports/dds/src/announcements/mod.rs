//! The tables that a broker would hold: every session announces its part and receives all others.
//!
//! Constraints. An announcement is not lost while its session is live: announcements are
//! transient-local, the newest of each key. Opening waits, for a bounded time, until the other
//! sessions have responded; nothing else waits.
//!
//! Operation. A session writes its announcements. Where it needs the other sessions' announcements,
//! it writes a request ([`Announcements::request`]). Every other session responds after it has
//! processed all earlier announcements. Samples of one DDS writer arrive in order, so after the
//! response no earlier announcement is missing.

mod messages;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::locked;
use helio_bus::{Clock, TransportError};

pub(crate) use messages::{
    Announcement, Claim, EndpointGuids, EndpointKind, Fenced, OpenedEndpoint, Origin,
    ProducerPosition, Request, RequestKind, Response, ServiceState, WriterAnnouncement, guid, hex,
    name,
};
pub(crate) use state::{Effect, ObservedWriter, SharedState, is_text_of};

use requests::PendingRequests;

use crate::entity::{
    Listener, Participant, Qos, Reader, Refused, Representation, Sample, StatusEvent, Topic, Writer,
};
use crate::envelope::{self, Header};
use crate::error::{engine, failed};
use crate::names::Names;
use crate::options::PEER_RESPONSE_TIMEOUT;
use crate::process_identity::has_ended;
use helio_bus::transport::versioned_json::{self, FormatError};

const ANNOUNCEMENT_TOPIC: &str = "announcements";
const RESPONSE_TOPIC: &str = "responses";

/// The longest time that an announcement blocks on lagging readers.
const MAX_BLOCKING_TIME: Duration = Duration::from_secs(1);
/// After this time a session that joins asks the others again for the sessions that they know, if
/// it has not discovered all of them; then after twice the time. Every session responds, so that a
/// session that cannot be discovered must not cost many requests.
const JOIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The poll interval while waiting for news.
const NEWS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The announcements of one connection.
pub(crate) struct Announcements {
    /// This session's name: its participant's identity.
    pub(crate) session: String,
    writers: Mutex<Option<AnnouncementWriters>>,
    table: Reader,
    responses: Reader,
    state: Mutex<SharedState>,
    changed: Condvar,
    requests: PendingRequests,
    closed: AtomicBool,
    clock: Arc<dyn Clock>,
    /// Effects that are not handled yet. Locked while announcements are taken.
    pending_effects: Mutex<Vec<(String, Effect)>>,
    /// The USER_DATA of the discovered participants, by handle; it does not change.
    user_data: Mutex<HashMap<u64, Vec<u8>>>,
}

struct AnnouncementWriters {
    table: Writer,
    responses: Writer,
    /// The number of samples that both have written.
    count: u64,
    /// The number of the newest announcement.
    said: u64,
    head: Vec<u8>,
}

fn reliable() -> Qos {
    Qos::new()
        .reliable(MAX_BLOCKING_TIME)
        .leave_instances()
        .representations(&[Representation::Xcdr2])
}

impl Announcements {
    /// Opens the DDS topics; `news` is called in Cyclone's threads when something arrives.
    pub(crate) fn open(
        participant: &Arc<Participant>,
        names: &Names,
        clock: &Arc<dyn Clock>,
        news: &Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, TransportError> {
        let of = envelope::envelope_type();
        let topic = |name| {
            let name = names.internal(name);
            Topic::create(participant, &name, &of, &Qos::new())
                .map_err(failed("create the announcement topics"))
        };
        let listening = || -> Option<Listener> {
            let news = Arc::clone(news);
            Some(Box::new(move |_: StatusEvent| news()))
        };
        let topics = [topic(ANNOUNCEMENT_TOPIC)?, topic(RESPONSE_TOPIC)?];
        let session = guid(participant.guid());
        let durable = || reliable().keep_last(1).transient_local(Some(1));
        let opened = || -> Result<_, crate::entity::DdsError> {
            Ok((
                Reader::open(&topics[0], &durable(), listening())?,
                Reader::open(&topics[1], &reliable().keep_all(), listening())?,
                AnnouncementWriters {
                    table: Writer::open(&topics[0], &durable(), None)?,
                    responses: Writer::open(&topics[1], &reliable().keep_all(), None)?,
                    count: 0,
                    said: 0,
                    head: Vec::new(),
                },
            ))
        };
        let (table, responses, writers) =
            opened().map_err(failed("open the announcement topics"))?;
        let mut state = SharedState::default();
        state.live.insert(session.clone());
        Ok(Self {
            session,
            writers: Mutex::new(Some(writers)),
            table,
            responses,
            state: Mutex::new(state),
            changed: Condvar::new(),
            requests: PendingRequests::default(),
            closed: AtomicBool::new(false),
            clock: Arc::clone(clock),
            pending_effects: Mutex::default(),
            user_data: Mutex::default(),
        })
    }

    /// Reads the state as received so far.
    pub(crate) fn with_state<R>(&self, look: impl FnOnce(&mut SharedState) -> R) -> R {
        look(&mut locked(&self.state))
    }

    /// Waits until something was received, or for a short time, not beyond `until`.
    pub(crate) fn wait_for_change(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now()).min(NEWS_POLL_INTERVAL);
        // `look` has released the state meanwhile, so a notification in between costs this time.
        let waited = self.changed.wait_timeout(locked(&self.state), left);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The origin of an announcement that is made now.
    pub(crate) fn origin(&self) -> Origin {
        Origin { time_nanos: unix_nanos(), session: self.session.clone() }
    }

    /// Sends an announcement, and applies it to the own state.
    pub(crate) fn announce(&self, announcement: Announcement) -> Result<(), TransportError> {
        let value = versioned_json::encode(&announcement)
            .map_err(|error| engine("write an announcement", error))?;
        self.write(&announcement.key(), &value)?;
        self.apply_locally(announcement);
        Ok(())
    }

    /// Applies an announcement to the own state without sending it.
    pub(crate) fn apply_locally(&self, announcement: Announcement) {
        let key = announcement.key();
        self.with_state(|state| {
            state.receive(&self.session, &key, Some(announcement), self.clock.uptime())
        });
    }

    /// Withdraws an announcement.
    pub(crate) fn withdraw(&self, announcement: &Announcement) -> Result<(), TransportError> {
        let key = announcement.key();
        self.write(&key, b"null")?;
        self.with_state(|state| state.receive(&self.session, &key, None, self.clock.uptime()));
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

    /// Receives what has arrived; returns the effects to handle, with their sessions. For one
    /// thread.
    pub(crate) fn receive(&self) -> Vec<(String, Effect)> {
        let mut pending_effects = locked(&self.pending_effects);
        self.take(&mut pending_effects);
        std::mem::take(&mut *pending_effects)
    }

    /// Receives what has arrived, and reads the state. The receiving thread handles the effects.
    pub(crate) fn with_fresh_state<R>(&self, look: impl FnOnce(&mut SharedState) -> R) -> R {
        self.take(&mut locked(&self.pending_effects));
        self.with_state(look)
    }

    fn take(&self, pending_effects: &mut Vec<(String, Effect)>) {
        let mut samples = Vec::new();
        let taken = self.table.take(&mut samples);
        // After the announcements: their sessions are live now, unless they have left again.
        self.update_live_sessions();
        if taken.is_ok() {
            let (mut state, now) = (locked(&self.state), self.clock.uptime());
            for (header, payload) in in_order(&samples) {
                let text = std::str::from_utf8(header.key).unwrap_or_default();
                let Some((key, session)) = text.rsplit_once(' ') else { continue };
                if session == self.session || !state.live.contains(session) {
                    continue;
                }
                match versioned_json::decode_optional::<Announcement>(payload) {
                    Ok(announcement) => match state.receive(session, key, announcement, now) {
                        Effect::Nothing => {}
                        heard => pending_effects.push((session.to_owned(), heard)),
                    },
                    Err(error) => {
                        let what = format!("the announcement \"{key}\"");
                        warn_unreadable(session, &what, &error, &mut state);
                    }
                }
                state.received_up_to(session, header.sequence);
            }
        }
        samples.clear();
        if self.responses.take(&mut samples).is_ok() {
            for (header, payload) in in_order(&samples) {
                if header.key != self.session.as_bytes() {
                    continue;
                }
                match versioned_json::decode::<Response>(payload) {
                    Ok(response) => self.requests.receive(header.producer, response),
                    Err(error) => self.report_unreadable(header.producer, "a response", &error),
                }
            }
        }
        // A waiter checks the responses with the state locked, and must not miss the notification.
        drop(locked(&self.state));
        self.changed.notify_all();
    }

    /// Counts and reports a message of a live session that cannot be read.
    pub(crate) fn report_unreadable(&self, session: &str, what: &str, error: &FormatError) {
        self.with_state(|state| {
            if state.live.contains(session) {
                warn_unreadable(session, what, error, state);
            }
        });
    }

    /// Concurrent calls must not replace a newer list by an older one: a session's announcements
    /// would be lost for good.
    fn update_live_sessions(&self) {
        let mut state = locked(&self.state);
        let Ok(handles) = self.table.writers() else { return };
        let endpoints = handles.into_iter().filter_map(|handle| self.table.publication(handle));
        let mut live: HashSet<_> = endpoints.map(|end| guid(end.participant)).collect();
        live.insert(self.session.clone());
        let ended: Vec<_> = state.live.difference(&live).cloned().collect();
        ended.iter().for_each(|session| state.end(session));
        state.live = live;
    }

    /// The live sessions whose process has not ended, as far as this host can tell.
    pub(crate) fn running_sessions(&self, participant: &Participant) -> Vec<String> {
        let handles = self.table.writers().unwrap_or_default().into_iter();
        let ends = handles.filter_map(|handle| self.table.publication(handle));
        let mut user_data = locked(&self.user_data);
        let mut former = std::mem::take(&mut *user_data);
        let mut running = vec![self.session.clone()];
        for end in ends {
            let handle = end.participant_handle;
            let process = || participant.process(handle).map(|process| process.user_data);
            let of = former.remove(&handle).or_else(process);
            if of.as_ref().is_none_or(|of| !has_ended(of)) {
                running.push(guid(end.participant));
            }
            user_data.extend(of.map(|of| (handle, of)));
        }
        running
    }

    /// Joins the others: after it, the announcements of all of them have been received. Sessions
    /// that others know are waited for until this one has discovered them, or they have left;
    /// returns those that it has not discovered.
    pub(crate) fn join(&self) -> Result<Vec<String>, TransportError> {
        let until = Instant::now() + PEER_RESPONSE_TIMEOUT;
        let mut interval = JOIN_RETRY_INTERVAL;
        // The sessions that each session knows.
        let mut known: HashMap<String, Vec<String>> = HashMap::new();
        loop {
            self.update_live_sessions();
            let asked = self.with_state(|state| state.live.clone());
            let of = asked.iter().cloned().collect();
            let left = until.saturating_duration_since(Instant::now());
            let responses = self.request_within(left, Some(of), RequestKind::Joining)?;
            known.extend(responses.into_iter().map(|(of, response)| (of, response.sessions)));
            let missing = || -> BTreeSet<String> {
                self.with_fresh_state(|state| {
                    let live = known.iter().filter(|(of, _)| state.live.contains(*of));
                    let sessions = live.flat_map(|(_, sessions)| sessions);
                    sessions.filter(|session| !state.live.contains(*session)).cloned().collect()
                })
            };
            // A session that has left meanwhile is in no later response.
            let again = until.min(Instant::now() + interval);
            interval *= 2;
            while !missing().is_empty() && Instant::now() < again {
                self.wait_for_change(again);
            }
            let missing = missing();
            let has_asked_all = self.with_state(|state| state.live.is_subset(&asked));
            if missing.is_empty() && has_asked_all || Instant::now() >= until {
                return Ok(missing.into_iter().collect());
            }
        }
    }

    /// Sends a request, and waits for the responses of the live sessions of `of`, or of all;
    /// returns each with its session. Must not be called by the receiving thread.
    pub(crate) fn request(
        &self,
        of: Option<Vec<String>>,
        subject: RequestKind,
    ) -> Result<Vec<(String, Response)>, TransportError> {
        self.request_within(PEER_RESPONSE_TIMEOUT, of, subject)
    }

    /// The same with another timeout.
    pub(crate) fn request_within(
        &self,
        timeout: Duration,
        of: Option<Vec<String>>,
        subject: RequestKind,
    ) -> Result<Vec<(String, Response)>, TransportError> {
        self.update_live_sessions();
        let others: Vec<_> = match of {
            Some(of) => of,
            None => self.with_state(|state| state.live.iter().cloned().collect()),
        };
        self.request_each(others.into_iter().map(|other| (other, timeout)).collect(), subject)
    }

    /// The same with a timeout for each session.
    pub(crate) fn request_each(
        &self,
        mut others: Vec<(String, Duration)>,
        subject: RequestKind,
    ) -> Result<Vec<(String, Response)>, TransportError> {
        others.retain(|(other, _)| *other != self.session);
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let request = self.requests.request();
        let (slot, number) = (request.slot(), request.number());
        self.announce(Announcement::Request(Request { slot, number, subject }))?;
        let begun = Instant::now();
        let mut state = locked(&self.state);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(TransportError::Closed);
            }
            let responded = |other: &String| {
                request
                    .response(other)
                    .filter(|response| state.said(other) >= response.last_announcement)
            };
            let silent = others
                .iter()
                .filter(|(other, _)| state.live.contains(other) && responded(other).is_none());
            let left = silent.map(|(_, timeout)| timeout.saturating_sub(begun.elapsed())).max();
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                let response = |(other, _): &(String, Duration)| {
                    responded(other).map(|response| (other.clone(), response))
                };
                return Ok(others.iter().filter_map(response).collect());
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Responds to a session.
    pub(crate) fn respond(&self, to: &str, mut response: Response) -> Result<(), TransportError> {
        let mut writers = locked(&self.writers);
        let Some(writers) = writers.as_mut() else { return Err(TransportError::Closed) };
        response.last_announcement = writers.said;
        let value =
            versioned_json::encode(&response).map_err(|error| engine("write a response", error))?;
        writers.put(&self.session, to, &value, |writers| &writers.responses)
    }

    /// Ends the session for all others.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let writers = locked(&self.writers).take();
        drop(writers);
        // A waiter checks the responses with the state locked, and must not miss the notification.
        drop(locked(&self.state));
        self.changed.notify_all();
    }
}

impl AnnouncementWriters {
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
            Err(Refused::Failed(error)) => Err(engine("write an announcement", error)),
            Err(Refused::Full) => Err(TransportError::Outage {
                transport: crate::SCHEME.to_owned(),
                cause: "a participant accepts no announcements".to_owned(),
            }),
        }
    }
}

/// Counts a message that cannot be read, and warns of the session's first, second, fourth, …
fn warn_unreadable(session: &str, what: &str, error: &FormatError, state: &mut SharedState) {
    let count = state.count_unreadable(session);
    if count.is_power_of_two() {
        // If standard error is closed, the warning is lost.
        let _ = writeln!(
            std::io::stderr().lock(),
            "heliograph: DDS participant {session} sent {what} in a format that this release \
             cannot read ({error}); ignored, {count} so far; use the same release on all \
             participants"
        );
    }
}

/// Samples in the order of each session's announcements: they arrive by key.
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

impl std::fmt::Debug for Announcements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcements").field("session", &self.session).finish_non_exhaustive()
    }
}
