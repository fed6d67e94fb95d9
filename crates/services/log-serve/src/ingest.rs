//! The path from the edges to the bus: limits, counts and reports.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Clock, SystemClock, Tai};
use helio_logging::{
    EncodedRecord, Lanes, Level, LogFigures, LogOptions, Record, RecordReceipt, Relay, Value,
};

use crate::limits::Limits;
use crate::sender::{Cause, Peer, RateClass, Sender, SenderCounts, SenderEntry, Senders};
use crate::statistics::{Dropped, Statistics};

/// The logger of the service's own records.
const LOGGER: &str = "helio/log/serve";
/// The most senders that are reported individually; the rest share one record.
const MAX_REPORTED_SENDERS: usize = 16;

/// Accepts records of all edges. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Ingest(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    relay: Relay,
    lanes: Lanes,
    /// The host and process of the service's own records.
    host: String,
    process: String,
    limits: Limits,
    senders: Mutex<Senders>,
    clock: SystemClock,
    own: AtomicU64,
    /// The number of published records when [`Limits::hold`] last expired.
    in_vain: AtomicU64,
}

impl Ingest {
    pub(crate) fn new(relay: Relay, log: &LogOptions, limits: Limits) -> Self {
        let senders = Mutex::new(Senders::new(&limits, Instant::now()));
        Self(Arc::new(Shared {
            relay,
            lanes: log.lanes.clone(),
            host: log.host.clone(),
            process: log.process.clone(),
            limits,
            senders,
            clock: SystemClock::new(),
            own: AtomicU64::new(0),
            in_vain: AtomicU64::new(u64::MAX),
        }))
    }

    /// The sender of a connection, a request or a datagram; called once for each.
    #[must_use]
    pub fn sender(&self, peer: Peer) -> Sender {
        let now = Instant::now();
        let entry = locked(&self.0.senders).of(peer, &self.0.limits, now);
        Sender { ingest: self.clone(), entry, peer }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The interval at which a blocked sender polls [`Ingest::holds`].
    pub const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);

    /// Whether a sender that has been blocked `since` then must wait longer: the bus is too slow,
    /// and [`Limits::hold`] has not passed. Once it has passed for one sender, none is blocked
    /// until the bus accepts records again.
    #[must_use]
    pub fn holds(&self, since: Instant) -> bool {
        let shared = &self.0;
        if shared.relay.has_room() {
            return false;
        }
        let published = shared.relay.published();
        if since.elapsed() >= shared.limits.hold {
            shared.in_vain.store(published, Ordering::Relaxed);
        }
        shared.in_vain.load(Ordering::Relaxed) != published
    }

    /// Whether there is room for records of every level.
    pub(crate) fn has_room(&self) -> bool {
        self.0.relay.has_room()
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Tai {
        self.0.clock.now()
    }

    /// The statistics, with the figures of publishing.
    pub(crate) fn statistics(&self, figures: &LogFigures) -> Statistics {
        let senders = locked(&self.0.senders).statistics();
        let mut statistics = Statistics {
            own: self.0.own.load(Ordering::Relaxed),
            inherited: figures.inherited,
            published: figures.published,
            waiting: figures.waiting,
            ..Statistics::default()
        };
        for sender in &senders {
            statistics.received += sender.received;
            statistics.dropped.malformed += sender.dropped.malformed;
            statistics.dropped.too_large += sender.dropped.too_large;
            statistics.dropped.rate += sender.dropped.rate;
            statistics.refused += sender.refused;
            statistics.timed_out += sender.timed_out;
        }
        // This includes records shed from the queue.
        statistics.dropped.shed = figures.shed;
        statistics.senders = senders;
        statistics
    }

    /// Publishes a record for each sender with drops since the last report, the most drops first.
    pub(crate) fn tell(&self) {
        let mut news = self.news();
        news.sort_by_key(|(_, tally, _)| std::cmp::Reverse(tally.all_dropped() + tally.refused));
        for (peer, tally, why) in news.iter().take(MAX_REPORTED_SENDERS) {
            let name = peer.map_or_else(|| "senders without a place".to_owned(), |p| p.to_string());
            self.warn(&name, tally, why);
        }
        let rest = news.get(MAX_REPORTED_SENDERS..).unwrap_or_default();
        if !rest.is_empty() {
            let all = rest.iter().fold(SenderCounts::default(), |mut all, (_, tally, _)| {
                all.add(*tally);
                all
            });
            self.warn(&format!("{} other senders", rest.len()), &all, &rest[0].2);
        }
    }

    /// The drops since the last report, by sender.
    fn news(&self) -> Vec<(Option<Peer>, SenderCounts, String)> {
        let senders = locked(&self.0.senders);
        let new = |entry: &Arc<SenderEntry>| {
            let mut state = locked(&entry.state);
            let since = state.tally.since(state.told);
            state.told = state.tally;
            (!since.is_nothing_wrong()).then(|| (entry.peer, since, state.why.clone()))
        };
        senders.all().filter_map(new).collect()
    }

    /// Publishes a report on a sender's drops. If the bus is too slow the report is shed.
    fn warn(&self, sender: &str, tally: &SenderCounts, why: &str) {
        let mut record =
            Record::new(self.now(), Level::WARNING, LOGGER, &words(sender, tally, why));
        record.host.clone_from(&self.0.host);
        record.process.clone_from(&self.0.process);
        record.data.push(("sender".to_owned(), sender.into()));
        let counts = Dropped::of(tally).causes().map(|(cause, count)| (cause.name(), count));
        let connections = [("refused", tally.refused), ("timed_out", tally.timed_out)];
        for (name, count) in counts.chain(connections).filter(|(_, count)| *count > 0) {
            record.data.push((name.to_owned(), Value::from(count)));
        }
        // The record is far below the limit.
        if let Ok(written) = EncodedRecord::of(record) {
            self.0.own.fetch_add(1, Ordering::Relaxed);
            _ = self.0.relay.publish(written);
        }
    }
}

/// The text of a report.
fn words(sender: &str, tally: &SenderCounts, why: &str) -> String {
    let mut parts = Vec::new();
    let causes = Dropped::of(tally).causes().filter(|(_, count)| *count > 0);
    let causes: Vec<_> = causes.map(|(cause, count)| format!("{count} {}", cause)).collect();
    if !causes.is_empty() {
        let all = tally.all_dropped();
        parts.push(format!("{all} messages of {sender} dropped: {}", causes.join(", ")));
    }
    if tally.refused > 0 {
        parts.push(format!("{} connections of {sender} refused: too many", tally.refused));
    }
    if tally.timed_out > 0 {
        parts.push(format!("{} connections of {sender} closed: too slow", tally.timed_out));
    }
    if !why.is_empty() {
        parts.push(format!("for example: {why}"));
    }
    parts.join("; ")
}

impl Sender {
    /// Accepts a record for publishing, or counts it as dropped. It never waits.
    ///
    /// A missing or future observed time becomes now. A missing producer becomes this sender. The
    /// record's own time is unchanged.
    ///
    /// # Errors
    /// [`Cause`]; the drop is already counted.
    pub fn take(&self, record: Record) -> Result<(), Cause> {
        self.take_for(record, None)
    }

    /// The same; the receipt tells when the record is stored. A dropped record is no part of it.
    ///
    /// # Errors
    /// [`Cause`]; the drop is already counted.
    pub fn take_for(&self, record: Record, receipt: Option<&RecordReceipt>) -> Result<(), Cause> {
        let shared = &self.ingest.0;
        let urgent = shared.lanes.is_urgent(record.level);
        let urgency = if urgent { RateClass::Urgent } else { RateClass::Usual };
        {
            let mut state = locked(&self.entry.state);
            state.tally.received += 1;
            // Standard input has no rate limit: it is blocked while there is no room.
            let is_input = self.peer == Peer::Input;
            if !is_input && !state.allows(&shared.limits, urgency, Instant::now()) {
                state.count_drop(
                    Cause::Rate,
                    &format_args!("more than {} a second", shared.limits.rate.per_s),
                );
                return Err(Cause::Rate);
            }
        }
        let written = EncodedRecord::of(self.completed(record));
        let written = written.map_err(|error| self.dropped(Cause::TooLarge, &error))?;
        let (bytes, most) = (written.bytes(), shared.limits.record_bytes);
        if bytes > most {
            let why = format_args!("the record has {bytes} bytes, the limit is {most}");
            return Err(self.dropped(Cause::TooLarge, &why));
        }
        let published = shared.relay.publish_for(written, receipt);
        published.map_err(|shed| self.dropped(Cause::Shed, &shed))
    }

    /// Counts a refused connection or request of another edge.
    pub fn count_refused(&self) {
        locked(&self.entry.state).tally.refused += 1;
    }

    /// Counts a connection or request of another edge that was closed by a timeout.
    pub fn count_timed_out(&self) {
        locked(&self.entry.state).tally.timed_out += 1;
    }

    /// Counts a message that is dropped before it becomes a record.
    pub fn refuse(&self, cause: Cause, why: &dyn Display) {
        let mut state = locked(&self.entry.state);
        state.tally.received += 1;
        state.count_drop(cause, why);
    }

    fn dropped(&self, cause: Cause, why: &dyn Display) -> Cause {
        locked(&self.entry.state).count_drop(cause, why);
        cause
    }

    fn completed(&self, mut record: Record) -> Record {
        let now = self.ingest.now();
        // An earlier collector may have observed it, but not in the future.
        record.observed = record.observed.filter(|observed| *observed <= now).or(Some(now));
        if record.producer.is_empty() {
            record.producer = self.peer.to_string();
        }
        if record.host.is_empty() {
            record.host = match self.peer {
                Peer::Ip(address) => address.to_string(),
                Peer::User(_) | Peer::Local | Peer::Input => self.ingest.0.host.clone(),
            };
        }
        if record.sequence > 0 {
            // The topic assigns another sequence.
            record.data.push(("sequence".to_owned(), record.sequence.into()));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_said_in_a_sentence() {
        let tally = SenderCounts { received: 9, dropped: [2, 0, 5, 0], refused: 1, timed_out: 0 };
        assert_eq!(
            words("10.0.0.7", &tally, "more than 5 a second"),
            "7 messages of 10.0.0.7 dropped: 2 malformed, 5 over the sender's rate; 1 connections \
             of 10.0.0.7 refused: too many; for example: more than 5 a second"
        );
    }
}
