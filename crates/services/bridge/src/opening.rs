//! Opening a topic on both buses, and finding where it goes on.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use helio_bus::transport::{HistorySupport, PartitionInfo};
use helio_bus::{
    Bus, Clock, Producer, Qos, SchemaId, Start, SystemClock, Topic, TopicName, TopicSpec,
};
use helio_core::qos::{Durability, History};

use crate::book::Entry;
use crate::bridge::Ends;
use crate::kept::{Kept, Rests};
use crate::lives::shows_life;
use crate::position::{self, Begin, PositionError};
use crate::target::{self, Both, OpenError};

/// A topic that is open on both buses, and subscribed to.
pub(crate) struct Opened {
    pub(crate) both: Both,
    pub(crate) schemas: HashSet<SchemaId>,
    /// What is to be told of it.
    pub(crate) told: String,
}

/// Opens a topic on both buses, and reads from where it stopped.
pub(crate) fn open(ends: &Ends, name: &TopicName, kept: &mut Kept) -> Result<Opened, OpenError> {
    kept.closing.clear();
    let (both, schemas) = open_both(ends, name, kept)?;
    let limits = match (rewinds(&ends.from), rewinds(&ends.to), &ends.book) {
        (false, ..) => ONLY_ONCE.to_owned(),
        (true, false, Ok(_)) => AT_LEAST_ONCE.to_owned(),
        (true, to, Err(reason)) => nowhere(to, reason),
        (true, true, Ok(_)) => String::new(),
    };
    let told = format!("{}{limits}", both.told);
    Ok(Opened { both, schemas, told })
}

/// What is told of a topic on a source that cannot be read again.
const ONLY_ONCE: &str = "; the source cannot be read again: what is published while no bridge \
                         runs is forwarded as far as the source hands it to late joiners";
/// What is told of a topic on a target that cannot be read again.
const AT_LEAST_ONCE: &str = "; the target cannot be read again: the position is kept on the \
                             source, and after a crash some samples may come twice";
/// What is told where nothing keeps the position but samples, if the target can be read again.
fn nowhere(in_samples: bool, reason: &str) -> String {
    let so = match in_samples {
        true => "where the target has no sample of a topic, each bridge begins anew",
        false => "each bridge begins anew",
    };
    format!("; no bus keeps the position ({reason}): {so}")
}

pub(crate) fn rewinds(bus: &Bus) -> bool {
    bus.capabilities().rewind.is_yes()
}

/// The source comes first: what is published while the target cannot be opened is not missed.
fn open_both(
    ends: &Ends,
    name: &TopicName,
    kept: &mut Kept,
) -> Result<(Both, HashSet<SchemaId>), OpenError> {
    let buses = (&ends.from, &ends.to);
    let source = ends.from.topic(TopicSpec::of(name.clone()))?;
    let earliest = ends.options.begin.is_earliest(source.qos().history);
    let again = rewinds(&ends.from);
    if !again && kept.samples.is_none() {
        let start = if earliest { newest(&ends.from, source.qos()) } else { Start::Latest };
        kept.samples = Some(source.subscribe(position::everything(start))?);
        // Its places are those of the subscription before.
        kept.trouble.clear();
    }
    let entries = if again { begins(ends, &source, (kept, earliest))? } else { HashMap::new() };
    let overrides = (&*ends.options.overrides, &ends.making);
    let both = target::open(&ends.to, source, overrides)?;
    let mut schemas = HashSet::from([SchemaId::BYTES]);
    for id in ends.from.schemas_of(name)?.unwrap_or_default() {
        if target::carry_schema(buses, name, id)? {
            schemas.insert(id);
        }
    }
    if !kept.asked {
        goes_on(ends, &both, (kept, entries), earliest)?;
        lived(ends, &both, kept)?;
        kept.asked = true;
    }
    if kept.samples.is_none() {
        subscribe(&both.source, (kept, earliest))?;
    }
    Ok((both, schemas))
}

/// Where the source's partitions begin for this bridge, from the first time that it was looked; and
/// what is written of them. Where none of a partition's samples are forwarded before, that is
/// written down before anything is read: who is killed from now on misses nothing.
fn begins(
    ends: &Ends,
    source: &Topic,
    (kept, earliest): (&mut Kept, bool),
) -> Result<HashMap<u32, Entry>, OpenError> {
    if kept.asked {
        return Ok(HashMap::new());
    }
    let place = |at: &PartitionInfo| (at.partition, if earliest { at.first } else { at.end });
    let since = *kept.since.get_or_insert_with(|| SystemClock::new().now());
    for (partition, next) in source.partitions()?.iter().map(place) {
        kept.next.entry(partition).or_insert(next);
    }
    let Ok(book) = &ends.book else { return Ok(HashMap::new()) };
    let mut entries = book.entries(source.name())?;
    if ends.options.begin == Begin::Earliest {
        // Where it once was to begin is not what is wanted now.
        entries.retain(|_, entry| entry.has_begun());
    }
    let is_new = |entries: &HashMap<u32, Entry>, at: &u32| !entries.contains_key(at);
    let mut new = HashMap::new();
    if kept.next.keys().any(|at| is_new(&entries, at)) {
        let stopped = stopped(ends, source)?.into_iter().filter(|(at, _)| is_new(&entries, at));
        new.extend(stopped.map(|(at, next)| (at, Entry::begins(next, None))));
    }
    if !earliest {
        let others = kept.next.iter().filter(|(at, _)| is_new(&entries, at) && is_new(&new, at));
        let begins = |(at, next): (&u32, &u64)| (*at, Entry::begins(*next, Some(since)));
        let others: Vec<_> = others.map(begins).collect();
        new.extend(others);
    }
    let new: Vec<_> = new.into_iter().collect();
    book.begin(source.name(), &new)?;
    entries.extend(new);
    Ok(entries)
}

/// Where bridges have stopped that wrote nothing down: a group of the source's was their position,
/// where the target could not be read again.
fn stopped(ends: &Ends, source: &Topic) -> Result<Vec<(u32, u64)>, OpenError> {
    if rewinds(&ends.to) || !ends.from.capabilities().groups.is_yes() {
        return Ok(Vec::new());
    }
    Ok(source.committed(&format!("helio-bridge:{}", ends.to_name))?)
}

/// Goes on behind what the target has, as its samples say, or what was written down.
fn goes_on(
    ends: &Ends,
    both: &Both,
    (kept, mut entries): (&mut Kept, HashMap<u32, Entry>),
    earliest: bool,
) -> Result<(), OpenError> {
    let there = if rewinds(&ends.to) { both.target.partitions()? } else { Vec::new() };
    for at in &there {
        let partition = at.partition;
        if !rewinds(&ends.from) {
            let all = position::of_producers(&both.target, at, &ends.from_name).map_err(failed)?;
            for (name, had) in all {
                kept.knows((partition, name.clone()), had.newest);
                if !had.holes.is_empty() {
                    kept.holes.insert((partition, name), had);
                }
            }
            continue;
        }
        let kept_there = entries.remove(&partition);
        // Where there never was anything the topic is another one than what was written of: it is
        // forwarded anew, if it is from its beginning.
        let is_anew = at.end == 0 && earliest;
        let kept_there = kept_there.filter(|entry| !is_anew || !entry.has_begun());
        let has_begun = kept_there.as_ref().is_some_and(Entry::has_begun);
        let source = (&*ends.from_name, &ends.nameless);
        let found = position::of(&both.target, at, source).map_err(failed)?;
        let found = match (found, kept_there.map(|entry| entry.found(&ends.nameless))) {
            (Some(found), Some(written)) if has_begun => Some(found.with(written)),
            (Some(found), _) => Some(found),
            (None, written) => written,
        };
        found.into_iter().for_each(|found| kept.finds(partition, found));
    }
    if there.is_empty() {
        for (at, entry) in entries {
            kept.finds(at, entry.found(&ends.nameless));
        }
    }
    // Where each is read from is found with what the source has.
    kept.found.keys().for_each(|partition| _ = kept.next.remove(partition));
    Ok(())
}

/// Who has published on the source what the target has, and may live there without a word.
fn lived(ends: &Ends, both: &Both, kept: &mut Kept) -> Result<(), OpenError> {
    if !rewinds(&ends.from) || !shows_life(both.target.qos()) {
        return Ok(());
    }
    for at in &both.source.partitions()? {
        let all = position::of_own(&both.source, at, &ends.to_name).map_err(failed)?;
        for (name, had) in all {
            let incarnation = had.newest.0;
            let producer = Producer { name, incarnation };
            kept.idle.push(Rests { partition: at.partition, producer, since: Instant::now() });
        }
    }
    Ok(())
}

/// Subscribes to a source that can be read again, where each partition goes on.
fn subscribe(source: &Topic, (kept, earliest): (&mut Kept, bool)) -> Result<(), OpenError> {
    let partitions = source.partitions()?;
    kept.goals = partitions.iter().map(|at| (at.partition, at.end)).collect();
    let mut samples = source.subscribe(position::everything(Start::Earliest))?;
    for PartitionInfo { partition, first, end, .. } in partitions {
        let begin = if earliest { first } else { end };
        let next = kept.goes_on(partition, (first, end)).unwrap_or(begin);
        let sought = samples.seek(partition, next);
        sought.map_err(|error| OpenError::Failed(error.to_string()))?;
        kept.next.insert(partition, next);
    }
    kept.samples = Some(samples);
    Ok(())
}

fn failed(error: PositionError) -> OpenError {
    OpenError::Failed(format!("the position on the target cannot be read: {error}"))
}

/// All that a late joiner gets of a source that cannot be read again.
fn newest(from: &Bus, qos: &Qos) -> Start {
    let kept = match (qos.history, from.capabilities().history) {
        (History::None, _) | (_, HistorySupport::None) => return Start::Latest,
        // What is kept of it is kept whole.
        (_, HistorySupport::KeepAll) if qos.durability == Durability::Persistent => {
            return Start::Earliest;
        }
        (History::KeepAll, HistorySupport::KeepAll) => return Start::Earliest,
        (History::KeepLast(n), _) | (History::KeepAll, HistorySupport::KeepLast(n)) => n.into(),
    };
    Start::Last(kept)
}
