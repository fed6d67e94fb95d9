//! Watches of one stream: cursors into the log, and no queue of events that could overflow.
//!
//! Watches that are up to date share one cursor: each record is read once for all of them. A watch
//! that starts in the past has a cursor of its own until it has reached the shared one. A revision
//! is never split over two polls, and progress of the stream is withheld while any watch is behind.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;

use crate::range::KeyRange;
use crate::record::Change;
use crate::view::{Source, View, record_of, resolve};
use crate::{
    Error, Event, EventKind, Filter, Fragment, FragmentPart, KeyValue, Previous, Progress,
    Revision, STREAM_WATCH_ID, WatchBody, WatchCreate, WatchResponse, wire,
};

/// Bytes of a response above which one of a watch with fragments is split.
pub const FRAGMENT_BYTES: usize = 1_500_000;
/// A start this far above the store's revision belongs to another line of history.
pub const FOREIGN_REVISIONS: Revision = 1 << 35;
/// etcd's text for a second watch with one id.
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";
/// etcd's text for a range that can hold no key.
const EMPTY_RANGE: &str = "mvcc: watcher range is empty";

#[derive(Debug)]
struct Watch {
    range: KeyRange,
    /// Events below are not of interest.
    start: Revision,
    filter: Filter,
    previous: Previous,
    progress: Progress,
    fragment: Fragment,
    /// Its own cursor, while it is behind the stream's.
    behind: Option<u64>,
    /// Whether it got events since the last periodic progress.
    active: bool,
}

/// The watches of one stream.
#[derive(Debug, Default)]
pub struct WatchStream {
    watches: BTreeMap<i64, Watch>,
    /// Watches of single keys.
    by_key: HashMap<Bytes, BTreeSet<i64>>,
    /// Watches of ranges.
    by_range: BTreeSet<i64>,
    behind: BTreeSet<i64>,
    next_id: i64,
    /// The next record that watches up to date need.
    cursor: u64,
    ready: VecDeque<WatchResponse>,
    progress_requested: bool,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// [`crate::State::record_of`] its start revision.
    pub record: u64,
}

impl WatchStream {
    /// A stream without watches.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches open.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Whether no watch is open.
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Opens a watch; its first response says how that went. Gives its id, if it exists.
    pub fn create(&mut self, create: &WatchCreate, view: &View, start: Start) -> Option<i64> {
        let id = match self.choose_id(create) {
            Ok(id) => id,
            Err(reason) => {
                self.refuse(view, reason, 0);
                return None;
            }
        };
        if create.start_revision < 0 {
            self.refuse(view, Error::Compacted.text(), view.compact_revision);
            return None;
        }
        self.respond(view.revision, id, WatchBody::Created);
        let foreign = create.start_revision > view.revision.saturating_add(FOREIGN_REVISIONS);
        let compacted = create.start_revision > 0 && create.start_revision < view.compact_revision;
        if compacted || foreign {
            let compact_revision = if foreign { view.revision } else { view.compact_revision };
            self.end(id, compact_revision);
            return None;
        }
        self.insert(id, create, view, start);
        Some(id)
    }

    fn choose_id(&mut self, create: &WatchCreate) -> Result<i64, &'static str> {
        if watched(create).is_empty() {
            return Err(EMPTY_RANGE);
        }
        if create.watch_id != 0 {
            let taken = self.watches.contains_key(&create.watch_id);
            return if taken { Err(DUPLICATE_ID) } else { Ok(create.watch_id) };
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    fn insert(&mut self, id: i64, create: &WatchCreate, view: &View, start: Start) {
        if self.watches.is_empty() {
            self.cursor = view.next_record;
        }
        let past = create.start_revision > 0 && create.start_revision <= view.revision;
        let behind = past.then_some(start.record).filter(|record| *record < self.cursor);
        let first = if past { create.start_revision } else { view.revision + 1 };
        let range = watched(create);
        match range.single() {
            Some(key) => {
                self.by_key.entry(key.clone()).or_default().insert(id);
            }
            None => {
                self.by_range.insert(id);
            }
        }
        if behind.is_some() {
            self.behind.insert(id);
        }
        let watch = Watch {
            range,
            start: first.max(create.start_revision),
            filter: create.filter,
            previous: create.previous,
            progress: create.progress,
            fragment: create.fragment,
            behind,
            active: false,
        };
        self.watches.insert(id, watch);
    }

    /// Closes a watch on request.
    pub fn cancel(&mut self, id: i64, view: &View) {
        if self.remove(id) {
            let reason = String::new();
            let body = WatchBody::Canceled { compact_revision: 0, reason, created: false };
            self.respond(view.revision, id, body);
        }
    }

    fn remove(&mut self, id: i64) -> bool {
        let Some(watch) = self.watches.remove(&id) else { return false };
        self.by_range.remove(&id);
        self.behind.remove(&id);
        if let Some(key) = watch.range.single()
            && let Some(ids) = self.by_key.get_mut(key)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_key.remove(key);
            }
        }
        true
    }

    /// Asks for progress of the stream: answered as soon as no watch is behind.
    pub fn request_progress(&mut self) {
        self.progress_requested = true;
    }

    /// Responds with progress to each watch that wants it periodically and had no events since the
    /// last call; call it about every 10 minutes.
    pub fn periodic_progress(&mut self, view: &View) {
        let level = self.cursor >= view.next_record;
        let mut idle = Vec::new();
        for (id, watch) in &mut self.watches {
            let active = std::mem::take(&mut watch.active);
            let quiet = watch.progress == Progress::Periodic && !active;
            if quiet && level && watch.behind.is_none() && watch.start <= view.revision + 1 {
                idle.push(*id);
            }
        }
        for id in idle {
            self.respond(view.revision, id, WatchBody::Progress);
        }
    }

    /// Whether [`poll`](Self::poll) would find nothing.
    pub fn is_level(&self, view: &View) -> bool {
        self.ready.is_empty()
            && self.behind.is_empty()
            && (self.watches.is_empty() || self.cursor >= view.next_record)
    }

    /// Responses that are due, in order. Stops reading the log at about `budget` bytes of events;
    /// call it again until it gives none.
    pub fn poll(&mut self, view: &View, source: &dyn Source, budget: usize) -> Vec<WatchResponse> {
        let mut out: Vec<_> = self.ready.drain(..).collect();
        let mut left = budget;
        for id in self.behind.iter().copied().collect::<Vec<_>>() {
            if left == 0 {
                return out;
            }
            left = self.catch_up(id, view, source, left, &mut out);
        }
        if self.watches.is_empty() {
            self.cursor = self.cursor.max(view.next_record);
            self.progress_requested = false;
        }
        if left > 0 {
            self.advance(view, source, left, &mut out);
        }
        out.extend(self.ready.drain(..));
        self.progress(view, &mut out);
        out
    }

    fn progress(&mut self, view: &View, out: &mut Vec<WatchResponse>) {
        let level = self.behind.is_empty() && self.cursor >= view.next_record;
        let ahead = || self.watches.values().any(|w| w.start > view.revision + 1);
        if self.progress_requested && level && !ahead() {
            self.progress_requested = false;
            let revision = view.revision;
            let body = WatchBody::Progress;
            out.push(WatchResponse { revision, watch_id: STREAM_WATCH_ID, body });
        }
    }

    /// Reads on for one watch that is behind; gives what is left of the budget.
    fn catch_up(
        &mut self,
        id: i64,
        view: &View,
        source: &dyn Source,
        budget: usize,
        out: &mut Vec<WatchResponse>,
    ) -> usize {
        let mut left = budget;
        let mut events = Vec::new();
        while let Some(watch) = self.watches.get_mut(&id) {
            let at = watch.behind.unwrap_or(self.cursor);
            if at >= self.cursor || left == 0 {
                break;
            }
            match read(source, at, |change, key| {
                watch.wants(change.kind, change.revision, key).then_some(watch.previous)
            }) {
                Ok(found) => {
                    for (_, event) in found {
                        left = left.saturating_sub(size(&event));
                        events.push(event);
                    }
                    watch.behind = Some(at + 1);
                    left = left.saturating_sub(1);
                }
                Err(error) => {
                    self.deliver(id, events, Some(view.revision), out);
                    self.fail(id, view, error);
                    out.extend(self.ready.drain(..));
                    return left;
                }
            }
        }
        self.deliver(id, events, Some(view.revision), out);
        if let Some(watch) = self.watches.get_mut(&id)
            && watch.behind.is_some_and(|at| at >= self.cursor)
        {
            watch.behind = None;
            self.behind.remove(&id);
        }
        left
    }

    /// Reads on for all watches that are up to date.
    fn advance(
        &mut self,
        view: &View,
        source: &dyn Source,
        budget: usize,
        out: &mut Vec<WatchResponse>,
    ) {
        let mut left = budget;
        let mut events: BTreeMap<i64, Vec<Event>> = BTreeMap::new();
        while self.cursor < view.next_record && left > 0 {
            match self.dispatch(source) {
                Ok(found) => {
                    for (id, event) in found {
                        left = left.saturating_sub(size(&event));
                        events.entry(id).or_default().push(event);
                    }
                    left = left.saturating_sub(1);
                    self.cursor += 1;
                }
                Err(error) => {
                    let level = self.watches.iter().filter(|(_, w)| w.behind.is_none());
                    for id in level.map(|(id, _)| *id).collect::<Vec<_>>() {
                        let events = events.remove(&id).unwrap_or_default();
                        self.deliver(id, events, None, out);
                        self.fail(id, view, error);
                    }
                    self.cursor = view.next_record;
                }
            }
        }
        for (id, events) in events {
            self.deliver(id, events, None, out);
        }
    }

    /// The events of the record at the cursor, for each watch that is up to date.
    fn dispatch(&self, source: &dyn Source) -> Result<Vec<(i64, Event)>, Error> {
        let mut ids: Vec<Vec<i64>> = Vec::new();
        let found = read(source, self.cursor, |change, key| {
            let exact = self.by_key.get(key).into_iter().flatten();
            let wants = |id: &&i64| {
                let watch = &self.watches[*id];
                watch.behind.is_none() && watch.wants(change.kind, change.revision, key)
            };
            let of: Vec<i64> = exact.chain(&self.by_range).filter(wants).copied().collect();
            let previous = of.iter().any(|id| self.watches[id].previous == Previous::Include);
            let any = !of.is_empty();
            if any {
                ids.push(of);
            }
            any.then_some(if previous { Previous::Include } else { Previous::Omit })
        })?;
        let mut events = Vec::new();
        for ((_, event), ids) in found.into_iter().zip(ids) {
            for id in ids {
                let mut event = event.clone();
                if self.watches[&id].previous == Previous::Omit {
                    event.previous = None;
                }
                events.push((id, event));
            }
        }
        Ok(events)
    }

    /// Responds with events, split where the watch allows it. As in etcd, the revision is that of
    /// the last event, but the store's for a watch that is behind: clients resume behind events.
    fn deliver(
        &mut self,
        id: i64,
        events: Vec<Event>,
        revision: Option<Revision>,
        out: &mut Vec<WatchResponse>,
    ) {
        let Some(watch) = self.watches.get_mut(&id).filter(|_| !events.is_empty()) else { return };
        watch.active = true;
        let last = || events.last().map_or(0, |e| e.kv.fields().mod_revision);
        let revision = revision.unwrap_or_else(last);
        let mut parts = vec![Vec::new()];
        let mut bytes = 0;
        for event in events {
            bytes += size(&event);
            let full = bytes > FRAGMENT_BYTES && watch.fragment == Fragment::Split;
            if full && parts.last().is_some_and(|part: &Vec<Event>| !part.is_empty()) {
                bytes = size(&event);
                parts.push(Vec::new());
            }
            if let Some(part) = parts.last_mut() {
                part.push(event);
            }
        }
        let last = parts.len() - 1;
        for (at, events) in parts.into_iter().enumerate() {
            let fragment = if at == last { FragmentPart::Last } else { FragmentPart::More };
            let body = WatchBody::Events { events, fragment };
            out.push(WatchResponse { revision, watch_id: id, body });
        }
    }

    fn respond(&mut self, revision: Revision, watch_id: i64, body: WatchBody) {
        self.ready.push_back(WatchResponse { revision, watch_id, body });
    }

    /// Answers a creation that failed.
    fn refuse(&mut self, view: &View, reason: &str, compact_revision: Revision) {
        let reason = reason.to_owned();
        let body = WatchBody::Canceled { compact_revision, reason, created: true };
        self.respond(view.revision, STREAM_WATCH_ID, body);
    }

    /// Ends a watch whose next revision is gone; as etcd does, without a revision and a reason.
    fn end(&mut self, id: i64, compact_revision: Revision) {
        self.remove(id);
        let reason = String::new();
        let body = WatchBody::Canceled { compact_revision, reason, created: false };
        self.respond(0, id, body);
    }

    fn fail(&mut self, id: i64, view: &View, error: Error) {
        if error == Error::Compacted {
            // Never 0: clients take only that for a compaction.
            self.end(id, view.compact_revision.max(1));
        } else if self.remove(id) {
            let reason = error.text().to_owned();
            let body = WatchBody::Canceled { compact_revision: 0, reason, created: false };
            self.respond(view.revision, id, body);
        }
    }
}

impl Watch {
    fn wants(&self, kind: EventKind, revision: Revision, key: &[u8]) -> bool {
        let filtered = match kind {
            EventKind::Put => self.filter.no_put,
            EventKind::Delete => self.filter.no_delete,
        };
        !filtered && revision >= self.start && self.range.contains(key)
    }
}

/// The range that a watch asks for: an empty key is the least one.
fn watched(create: &WatchCreate) -> KeyRange {
    if create.key.is_empty() {
        return KeyRange::new(&Bytes::from_static(&[0]), &create.range_end);
    }
    KeyRange::new(&create.key, &create.range_end)
}

/// Bytes that an event adds to a response.
fn size(event: &Event) -> usize {
    event.kv.encoded().len() + event.previous.as_ref().map_or(0, |kv| kv.encoded().len()) + 8
}

/// A change as watches see it.
struct Seen {
    kind: EventKind,
    revision: Revision,
}

/// The events of a record that are wanted; `wants` says whether with the previous key-value.
fn read(
    source: &dyn Source,
    number: u64,
    mut wants: impl FnMut(&Seen, &[u8]) -> Option<Previous>,
) -> Result<Vec<(Change, Event)>, Error> {
    let record = record_of(source, number)?;
    let mut events = Vec::new();
    for change in record.changes() {
        let key = wire::key_of(&record.bytes[change.place.span()]).ok_or(Error::Corrupt)?;
        let seen = Seen { kind: change.kind, revision: record.revision };
        let Some(previous) = wants(&seen, key) else { continue };
        let before = change.before.filter(|(_, place)| !place.is_deletion());
        let previous = match (previous, before) {
            (Previous::Include, Some((_, place))) => resolve(source, key, place).ok(),
            _ => None,
        };
        let kv = KeyValue::from_log(record.bytes.clone(), change.place.span());
        let kv = kv.ok_or(Error::Corrupt)?;
        events.push((change, Event { kind: change.kind, kv, previous }));
    }
    Ok(events)
}
