//! Groups: shared partitions, committed positions, reassignment.

use std::collections::HashSet;
use std::time::Instant;

use helio_core::Qos;

use super::support::{Outcome, ensure, gather, named, number, open, process, unique};
use super::{Check, Failure, Harness};
use crate::error::ReadError;
use crate::event::{Event, Sample};
use crate::publisher::{Message, Publisher};
use crate::subscribe::{Start, Subscribe};
use crate::subscription::Subscription;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "group_shares",
        promise: "the members of a group share its partitions: each sample is received by one of \
                  them",
        run: shares,
    },
    Check {
        name: "group_takes_over",
        promise: "samples that a departed member has not committed are received by the others: \
                  none is lost",
        run: takes_over,
    },
    Check {
        name: "group_resumes",
        promise: "a group resumes at its committed position, also at one set back",
        run: resumes,
    },
    Check {
        name: "group_listed",
        promise: "a topic's groups are listed with their members, committed positions and lag",
        run: listed,
    },
    Check {
        name: "group_apart",
        promise: "groups, and readers without a group, do not affect each other",
        run: apart,
    },
];

fn qos() -> Qos {
    Qos { partitions: 4, ..Qos::stream() }
}

fn member(bus: &crate::bus::Bus, name: &str, group: &str) -> Result<Subscription, Failure> {
    let options = Subscribe::from(Start::Earliest).group(group);
    Ok(open(bus, name, &qos())?.subscribe(options)?)
}

fn spread(publisher: &Publisher, numbers: std::ops::Range<u64>) -> Outcome {
    for number in numbers {
        let bytes = number.to_le_bytes();
        publisher.publish(Message::new(&bytes).partition(number as u32 % 4)).wait()?;
    }
    Ok(())
}

/// Reads with all members in turn until each number was received.
fn until_seen(
    harness: &dyn Harness,
    members: &mut [&mut Subscription],
    wanted: std::ops::Range<u64>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let until = Instant::now() + harness.timeout();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut by_member = vec![Vec::new(); members.len()];
    while !wanted.clone().all(|number| seen.contains(&number)) {
        let missing = wanted.clone().filter(|number| !seen.contains(number)).count();
        ensure!(Instant::now() < until, "{missing} samples were not received by a member");
        for (member, samples) in members.iter_mut().zip(&mut by_member) {
            while let Some(event) = member.next_timeout(harness.quiet_period())? {
                if let Event::Sample(sample) = event {
                    seen.insert(number(&sample)?);
                    samples.push(sample);
                }
            }
        }
    }
    Ok(by_member)
}

/// Waits until each member has its assignment, and together they have all partitions.
fn settle(harness: &dyn Harness, members: &mut [&mut Subscription]) -> Outcome {
    let until = Instant::now() + harness.timeout();
    loop {
        for member in members.iter_mut() {
            while member.next_timeout(harness.quiet_period())?.is_some() {}
        }
        let counts: Vec<usize> = members.iter().map(|member| member.positions().len()).collect();
        if counts.iter().all(|count| *count > 0) && counts.iter().sum::<usize>() == 4 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "the members have {counts:?} partitions of 4");
    }
}

fn shares(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (named(harness, "member1")?, named(harness, "member2")?);
    let name = unique("shares");
    let publisher = open(&bus, &name, &qos())?.publisher()?;
    let mut one = member(&bus, &name, "g")?;
    let mut two = member(&other, &name, "g")?;
    settle(harness, &mut [&mut one, &mut two])?;
    spread(&publisher, 0..100)?;
    let by_member = until_seen(harness, &mut [&mut one, &mut two], 0..100)?;
    let counts: Vec<usize> = by_member.iter().map(Vec::len).collect();
    ensure!(counts.iter().sum::<usize>() == 100, "members got {counts:?} of 100");
    ensure!(counts.iter().all(|count| *count > 0), "members got {counts:?}: not shared");
    let of = |n: usize| by_member[n].iter().map(|s: &Sample| s.partition).collect::<HashSet<_>>();
    ensure!(of(0).is_disjoint(&of(1)), "a partition went to both members");
    Ok(())
}

fn takes_over(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (named(harness, "member1")?, named(harness, "member2")?);
    let name = unique("takes-over");
    let publisher = open(&bus, &name, &qos())?.publisher()?;
    let mut one = member(&bus, &name, "g")?;
    let mut two = member(&other, &name, "g")?;
    settle(harness, &mut [&mut one, &mut two])?;
    spread(&publisher, 0..40)?;
    until_seen(harness, &mut [&mut one, &mut two], 0..40)?;
    one.commit()?;
    two.commit()?;
    // The second reads without committing and leaves; the first receives those samples again.
    spread(&publisher, 40..80)?;
    let before = until_seen(harness, &mut [&mut one, &mut two], 40..80)?;
    drop(two);
    drop(other);
    let mut uncommitted = HashSet::new();
    for sample in &before[1] {
        uncommitted.insert(number(sample)?);
    }
    spread(&publisher, 80..100)?;
    let until = Instant::now() + harness.timeout();
    let mut again = HashSet::new();
    while !uncommitted.is_subset(&again) || !(80..100).all(|number| again.contains(&number)) {
        ensure!(
            Instant::now() < until,
            "the lost member's samples were not received again: {again:?}"
        );
        while let Some(event) = one.next_timeout(harness.quiet_period())? {
            if let Event::Sample(sample) = event {
                again.insert(number(&sample)?);
            }
        }
    }
    let old = again.iter().filter(|number| **number < 40).count();
    ensure!(old == 0, "{old} committed samples were received again");
    Ok(())
}

fn resumes(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let name = unique("resumes");
    let qos = Qos::stream();
    let topic = open(&bus, &name, &qos)?;
    let publisher = topic.publisher()?;
    let options = || Subscribe::from(Start::Earliest).group("g");
    super::support::publish_numbers(&publisher, "k", 0..10)?;
    let mut reader = topic.subscribe(options())?;
    let gathered = gather(harness, &mut reader, 10)?;
    reader.commit_at(0, gathered.samples[6].offset)?;
    drop(reader);
    let other = process(harness)?;
    let mut reader = open(&other, &name, &qos)?.subscribe(options())?;
    let numbers = gather(harness, &mut reader, 4)?.numbers()?;
    ensure!(numbers == [6, 7, 8, 9], "the group went on with {numbers:?}");
    reader.commit()?;
    drop(reader);
    let committed = topic.committed("g")?;
    let end = gathered.samples[9].offset + 1;
    ensure!(committed == [(0, end)], "committed {committed:?}, read up to {end}");
    let mut reader = topic.subscribe(options())?;
    gather(harness, &mut reader, 0)?;
    reader.commit_at(0, gathered.samples[2].offset)?;
    drop(reader);
    let mut reader = topic.subscribe(options())?;
    let numbers = gather(harness, &mut reader, 8)?.numbers()?;
    ensure!(numbers.iter().copied().eq(2..10), "set back to 2, it went on with {numbers:?}");
    Ok(())
}

fn listed(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (named(harness, "member1")?, named(harness, "member2")?);
    let name = unique("listed");
    let topic = open(&bus, &name, &qos())?;
    let publisher = topic.publisher()?;
    let mut one = member(&bus, &name, "g")?;
    let mut two = member(&other, &name, "g")?;
    settle(harness, &mut [&mut one, &mut two])?;
    spread(&publisher, 0..40)?;
    until_seen(harness, &mut [&mut one, &mut two], 0..40)?;
    one.commit()?;
    two.commit()?;
    spread(&publisher, 40..52)?;
    let groups = open(&process(harness)?, &name, &qos())?.groups()?;
    ensure!(groups.len() == 1 && groups[0].name == "g", "listed {groups:?}");
    let info = &groups[0];
    let mut members: Vec<&str> = info.members.iter().map(|member| member.name.as_str()).collect();
    members.sort_unstable();
    ensure!(members == ["member1", "member2"], "listed the members {members:?}");
    let shared: Vec<u32> = info.members.iter().flat_map(|m| m.partitions.iter().copied()).collect();
    let distinct: HashSet<u32> = shared.iter().copied().collect();
    ensure!((shared.len(), distinct.len()) == (4, 4), "assigned {shared:?}");
    for at in &info.partitions {
        let committed = at.end.checked_sub(3);
        ensure!(at.committed == committed && at.lag() == Some(3), "{at:?}, 3 are not committed");
    }
    ensure!(info.lag() == 12 && info.partitions.len() == 4, "{info:?}");
    drop((one, two));
    let groups = topic.groups()?;
    let gone = groups.len() == 1 && groups[0].members.is_empty() && groups[0].lag() == 12;
    ensure!(gone, "without members: {groups:?}");
    Ok(())
}

fn apart(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("apart"), &Qos::stream())?;
    let publisher = topic.publisher()?;
    super::support::publish_numbers(&publisher, "k", 0..20)?;
    for group in ["g", "h"] {
        let mut reader = topic.subscribe(Subscribe::from(Start::Earliest).group(group))?;
        gather(harness, &mut reader, 20)?;
        reader.commit()?;
    }
    let mut alone = topic.subscribe(Subscribe::from(Start::Earliest))?;
    gather(harness, &mut alone, 20)?;
    let refused = matches!(alone.commit(), Err(ReadError::NoGroup));
    ensure!(refused, "a reader without a group could commit");
    Ok(())
}
