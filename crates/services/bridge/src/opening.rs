//! Opens a topic on both buses and finds where it resumes.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use helio_bus::transport::{HistorySupport, PartitionInfo};
use helio_bus::{
    Bus, Clock, Producer, Qos, SchemaId, Start, SystemClock, Topic, TopicName, TopicSpec,
};
use helio_core::qos::{Durability, History};

use crate::checkpoints::Checkpoint;
use crate::context::{BridgeContext, rewinds};
use crate::liveliness::tracks_liveliness;
use crate::position::{self, Begin, PositionError};
use crate::resume_state::{LogStatus, ResumeState};
use crate::target::{self, Both, OpenError};
use crate::types::{IdleProducer, ProducerKey};

/// A topic that is open on both buses and subscribed to.
pub(crate) struct Opened {
    pub(crate) both: Both,
    pub(crate) schemas: HashSet<SchemaId>,
    /// The notice's text.
    pub(crate) notice: String,
    /// Notices of partitions whose log is another one than before.
    pub(crate) replaced: Vec<String>,
}

/// Opens a topic on both buses and subscribes where it stopped.
pub(crate) fn open(
    context: &BridgeContext,
    name: &TopicName,
    state: &mut ResumeState,
) -> Result<Opened, OpenError> {
    state.closing.clear();
    let (both, schemas, replaced) = open_both(context, name, state)?;
    let limits = match (rewinds(&context.from), rewinds(&context.to), &context.checkpoints) {
        (false, ..) => SOURCE_NOT_REWINDABLE.to_owned(),
        (true, false, Ok(_)) => TARGET_NOT_REWINDABLE.to_owned(),
        (true, to, Err(reason)) => no_checkpoints(to, reason),
        (true, true, Ok(_)) => String::new(),
    };
    let notice = format!("{}{limits}", both.notice);
    Ok(Opened { both, schemas, notice, replaced })
}

/// Part of the notice if the source cannot be read again.
const SOURCE_NOT_REWINDABLE: &str = "; the source cannot be read again: while no bridge runs, only \
                                     samples that it delivers to late joiners are forwarded";
/// Part of the notice if the target cannot be read again.
const TARGET_NOT_REWINDABLE: &str = "; the target cannot be read again: the position is stored on \
                                     the source, and a crash may repeat some samples";
/// Part of the notice without checkpoints; `in_samples` if the target's samples hold the position.
fn no_checkpoints(in_samples: bool, reason: &str) -> String {
    let so = match in_samples {
        true => "a topic without samples on the target begins again with each bridge",
        false => "each topic begins again with each bridge",
    };
    format!("; neither bus stores the position ({reason}): {so}")
}

/// The source comes first: samples that are published while the target cannot be opened are not
/// missed.
fn open_both(
    context: &BridgeContext,
    name: &TopicName,
    state: &mut ResumeState,
) -> Result<(Both, HashSet<SchemaId>, Vec<String>), OpenError> {
    let buses = (&context.from, &context.to);
    let source = context.from.topic(TopicSpec::of(name.clone()))?;
    let earliest = context.options.begin.is_earliest(source.qos().history);
    let rewinds_source = rewinds(&context.from);
    if !rewinds_source && state.subscription.is_none() {
        let start =
            if earliest { late_joiner_start(&context.from, source.qos()) } else { Start::Latest };
        state.subscription = Some(source.subscribe(position::read_options(start))?);
        // Its offsets are of the earlier subscription.
        state.failures.clear();
    }
    let checkpoints = if rewinds_source {
        load_checkpoints(context, &source, (state, earliest))?
    } else {
        HashMap::new()
    };
    let overrides = (&*context.options.overrides, &context.creator);
    let both = target::open(&context.to, source, overrides)?;
    let mut schemas = HashSet::from([SchemaId::BYTES]);
    for id in context.from.schemas_of(name)?.unwrap_or_default() {
        if target::carry_schema(buses, name, id)? {
            schemas.insert(id);
        }
    }
    if !state.target_read {
        load_position(context, &both, (state, checkpoints), earliest)?;
        load_idle_producers(context, &both, state)?;
        state.target_read = true;
    }
    let replaced = match state.subscription.is_none() {
        true => subscribe(context, &both.source, (state, earliest))?,
        false => Vec::new(),
    };
    Ok((both, schemas, replaced))
}

/// Sets where the source's partitions begin for this bridge, and returns the checkpoints. A
/// partition without forwarded samples gets a checkpoint before anything is read, so that a bridge
/// killed later misses nothing.
fn load_checkpoints(
    context: &BridgeContext,
    source: &Topic,
    (state, earliest): (&mut ResumeState, bool),
) -> Result<HashMap<u32, Checkpoint>, OpenError> {
    if state.target_read {
        return Ok(HashMap::new());
    }
    let place = |at: &PartitionInfo| (at.partition, if earliest { at.first } else { at.end });
    let since = *state.since.get_or_insert_with(|| SystemClock::new().now());
    let there = source.partitions()?;
    for (partition, next) in there.iter().map(place) {
        state.next.entry(partition).or_insert(next);
    }
    state.logs.extend(there.iter().filter_map(|at| Some((at.partition, at.log?.id))));
    let Ok(store) = &context.checkpoints else { return Ok(HashMap::new()) };
    let mut checkpoints = store.load(source.name())?;
    if context.options.begin == Begin::Earliest {
        // An earlier choice of the beginning no longer counts.
        checkpoints.retain(|_, checkpoint| checkpoint.has_begun());
    }
    let is_new = |checkpoints: &HashMap<u32, Checkpoint>, at: &u32| !checkpoints.contains_key(at);
    let mut new = HashMap::new();
    if state.next.keys().any(|at| is_new(&checkpoints, at)) {
        let committed = committed_by_group(context, source)?
            .into_iter()
            .filter(|(at, _)| is_new(&checkpoints, at));
        new.extend(committed.map(|(at, next)| (at, Checkpoint::starting_at(next, None))));
    }
    if !earliest {
        let others =
            state.next.iter().filter(|(at, _)| is_new(&checkpoints, at) && is_new(&new, at));
        let starting =
            |(at, next): (&u32, &u64)| (*at, Checkpoint::starting_at(*next, Some(since)));
        let others: Vec<_> = others.map(starting).collect();
        new.extend(others);
    }
    let of_log = |(at, new): (u32, Checkpoint)| (at, new.of_log(state.logs.get(&at).copied()));
    let new: Vec<_> = new.into_iter().map(of_log).collect();
    state.logs.extend(checkpoints.iter().filter_map(|(at, one)| Some((*at, one.log()?))));
    store.store_and_wait(source.name(), &new)?;
    checkpoints.extend(new);
    Ok(checkpoints)
}

/// Where bridges without checkpoints stopped: with a target that cannot be read again, their
/// position was a group of the source.
fn committed_by_group(
    context: &BridgeContext,
    source: &Topic,
) -> Result<Vec<(u32, u64)>, OpenError> {
    if rewinds(&context.to) || !context.from.capabilities().groups.is_yes() {
        return Ok(Vec::new());
    }
    Ok(source.committed(&format!("helio-bridge:{}", context.to_name))?)
}

/// Takes the position from the target's samples and the checkpoints.
fn load_position(
    context: &BridgeContext,
    both: &Both,
    (state, mut checkpoints): (&mut ResumeState, HashMap<u32, Checkpoint>),
    earliest: bool,
) -> Result<(), OpenError> {
    let there = if rewinds(&context.to) { both.target.partitions()? } else { Vec::new() };
    for at in &there {
        let partition = at.partition;
        if !rewinds(&context.from) {
            let all = position::forwarded_producers(&both.target, at, &context.from_name)
                .map_err(failed)?;
            for (name, had) in all {
                let key = ProducerKey { partition, producer: name };
                state.record_sequence(key.clone(), had.newest);
                if !had.gaps.is_empty() {
                    state.gaps.insert(key, had);
                }
            }
            continue;
        }
        let checkpoint = checkpoints.remove(&partition);
        // An empty target topic was recreated since the checkpoint, so all is forwarded again if it
        // begins with the earliest sample.
        let is_recreated = at.end == 0 && earliest;
        let checkpoint = checkpoint.filter(|checkpoint| !is_recreated || !checkpoint.has_begun());
        let has_begun = checkpoint.as_ref().is_some_and(Checkpoint::has_begun);
        let source = (&*context.from_name, &context.anonymous);
        let found = position::forwarded_samples(&both.target, at, source).map_err(failed)?;
        let found =
            match (found, checkpoint.map(|checkpoint| checkpoint.reconciler(&context.anonymous))) {
                (Some(found), Some(written)) if has_begun => Some(found.merge(written)),
                (Some(found), _) => Some(found),
                (None, written) => written,
            };
        found.into_iter().for_each(|found| state.add_reconciler(partition, found));
    }
    if there.is_empty() {
        for (at, checkpoint) in checkpoints {
            state.add_reconciler(at, checkpoint.reconciler(&context.anonymous));
        }
    }
    // The reconcilers find where each partition is read from.
    state.reconcilers.keys().for_each(|partition| _ = state.next.remove(partition));
    Ok(())
}

/// Finds the producers that have published on the source, and may be alive without publishing.
fn load_idle_producers(
    context: &BridgeContext,
    both: &Both,
    state: &mut ResumeState,
) -> Result<(), OpenError> {
    if !rewinds(&context.from) || !tracks_liveliness(both.target.qos()) {
        return Ok(());
    }
    for at in &both.source.partitions()? {
        let all = position::own_producers(&both.source, at, &context.to_name).map_err(failed)?;
        for (name, had) in all {
            let incarnation = had.newest.incarnation;
            let producer = Producer { name, incarnation };
            state.idle_producers.push(IdleProducer {
                partition: at.partition,
                producer,
                since: Instant::now(),
            });
        }
    }
    Ok(())
}

/// Subscribes to a source that can be read again, where each partition resumes. Returns notices of
/// partitions whose log is another one than before.
fn subscribe(
    context: &BridgeContext,
    source: &Topic,
    (state, earliest): (&mut ResumeState, bool),
) -> Result<Vec<String>, OpenError> {
    let partitions = source.partitions()?;
    state.initial_ends = partitions.iter().map(|at| (at.partition, at.end)).collect();
    let mut samples = source.subscribe(position::read_options(Start::Earliest))?;
    let (mut replaced, mut renamed) = (Vec::new(), HashMap::new());
    for at in &partitions {
        match state.check_log(at) {
            LogStatus::Same => {}
            LogStatus::Renamed(id) => _ = renamed.insert(at.partition, id),
            LogStatus::Replaced(notice) => replaced.push(notice),
        }
    }
    rename_logs(context, source, (state, renamed))?;
    for PartitionInfo { partition, first, end, .. } in partitions {
        let begin = if earliest { first } else { end };
        let next = state.resume_offset(partition, first, end).unwrap_or(begin);
        let sought = samples.seek(partition, next);
        sought.map_err(|error| OpenError::Failed(error.to_string()))?;
        state.next.insert(partition, next);
    }
    state.subscription = Some(samples);
    Ok(replaced)
}

/// Gives the checkpoints of logs that fit them the logs' new identities. At once, as a log
/// remembers only one identity before its own, and no sample may come until the next one.
fn rename_logs(
    context: &BridgeContext,
    source: &Topic,
    (state, renamed): (&mut ResumeState, HashMap<u32, u64>),
) -> Result<(), OpenError> {
    if let (Ok(store), false) = (&context.checkpoints, renamed.is_empty()) {
        let stored = store.load(source.name())?.into_iter().filter(|(_, one)| one.log().is_some());
        let new: Vec<_> = stored
            .filter_map(|(at, one)| Some((at, one.of_log(Some(*renamed.get(&at)?)))))
            .collect();
        store.store_and_wait(source.name(), &new)?;
    }
    renamed.into_iter().for_each(|(partition, id)| state.set_log(partition, id));
    Ok(())
}

fn failed(error: PositionError) -> OpenError {
    OpenError::Failed(format!("the position on the target cannot be read: {error}"))
}

/// Start of a source that cannot be read again: all that a late joiner receives.
fn late_joiner_start(from: &Bus, qos: &Qos) -> Start {
    let samples = match (qos.history, from.capabilities().history) {
        (History::None, _) | (_, HistorySupport::None) => return Start::Latest,
        // A durability service stores the whole topic.
        (_, HistorySupport::KeepAll) if qos.durability == Durability::Persistent => {
            return Start::Earliest;
        }
        (History::KeepAll, HistorySupport::KeepAll) => return Start::Earliest,
        (History::KeepLast(n), _) | (History::KeepAll, HistorySupport::KeepLast(n)) => n.into(),
    };
    Start::Last(samples)
}
