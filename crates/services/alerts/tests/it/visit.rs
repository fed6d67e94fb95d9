//! The protocol of a visit: cases, and a model with many readers.

use std::collections::{BTreeMap, BTreeSet};

use helio_alerts::visit::{
    Closing, Control, Digest, Effect, Finding, Manifest, Opening, Position, ReadAlert, Reader,
    Rejection, Role, Seen, payload_hash,
};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;
use proptest::prelude::*;

const VISIT: i64 = 42;
const WINDOW_NS: u64 = 60_000_000_000;

fn opening(detectors: &[i32]) -> Control {
    Control::Opening(Opening {
        visit: VISIT,
        detectors: detectors.to_vec(),
        shutter_close_ns: 0,
        window_ns: WINDOW_NS as i64,
        starts: Vec::new(),
    })
}

fn payload(id: i64) -> u128 {
    payload_hash(&id.to_le_bytes())
}

fn digest(ids: &[i64]) -> Digest {
    let mut digest = Digest::default();
    ids.iter().for_each(|id| digest.add(*id, payload(*id)));
    digest
}

fn manifest(detector: i32, ids: &[i64]) -> Control {
    Control::Manifest(Manifest {
        visit: VISIT,
        detector,
        producer: format!("ccd{detector}"),
        alerts: digest(ids),
        stamps: None,
        published_ns: 0,
        extent: None,
    })
}

fn alert(detector: i32, id: i64, offset: u64) -> ReadAlert {
    let at = Position { partition: 0, offset };
    ReadAlert { visit: VISIT, detector, id, payload: payload(id), at }
}

fn proposals<'e>(effects: &'e [Effect]) -> Vec<&'e Closing> {
    let proposal = |effect: &'e Effect| match effect {
        Effect::Propose(closing) => Some(closing),
        _ => None,
    };
    effects.iter().filter_map(proposal).collect()
}

#[test]
fn a_visit_is_complete_when_all_manifests_match() {
    let mut reader = Reader::new("r", Role::Whole, vec![0]);
    assert_eq!(reader.control(opening(&[1, 2]), 0), []);
    for (id, offset) in [(10, 0), (11, 1)] {
        assert_eq!(reader.alert(&alert(1, id, offset)), (Seen::New, vec![]));
    }
    // Out of order, and a detector without alerts.
    assert_eq!(reader.control(manifest(2, &[]), 1), []);
    let effects = reader.control(manifest(1, &[11, 10]), 2);
    let [closing] = proposals(&effects)[..] else { panic!("{effects:?}") };
    assert!(closing.is_complete() && closing.repeated.is_empty());
    assert_eq!((closing.totals, &closing.ends[..]), (digest(&[10, 11]), &[2][..]));
    assert!(reader.audit(VISIT).unwrap().is_equal());
    let closing = closing.clone();
    let decided = reader.control(Control::Closing(closing.clone()), 3);
    assert_eq!(decided, [Effect::Decided { closing, late: vec![] }]);
    // What comes now is late, and a second manifest or visit has no effect.
    assert_eq!(reader.alert(&alert(1, 12, 2)), (Seen::Late, vec![]));
    let rejected = |effects: Vec<Effect>| effects;
    assert_eq!(
        rejected(reader.control(manifest(1, &[10, 11, 12]), 4)),
        [Effect::Rejected(Rejection::Closed)]
    );
    assert_eq!(
        rejected(reader.control(opening(&[1]), 5)),
        [Effect::Rejected(Rejection::OpenedBefore)]
    );
    assert_eq!(reader.late(), 1);
    assert!(reader.audit(VISIT).unwrap().is_equal());
}

#[test]
fn at_the_deadline_what_is_missing_short_or_repeated_is_named() {
    let mut reader = Reader::new("r", Role::Whole, vec![0]);
    reader.control(opening(&[1, 2, 3, 4, 5]), 100);
    let read = [(1, 10), (2, 20), (3, 30), (3, 30), (5, 50), (5, 51)];
    for (offset, (detector, id)) in read.into_iter().enumerate() {
        reader.alert(&alert(detector, id, offset as u64));
    }
    // 2 lacks one, 3 came twice, 4 has sent nothing, 5 another one than it announced.
    for (detector, ids) in [(1, &[10][..]), (2, &[20, 21]), (3, &[30]), (5, &[50, 52])] {
        reader.control(manifest(detector, ids), 200);
    }
    assert_eq!(reader.tick(99 + WINDOW_NS), []);
    assert_eq!(reader.tick(100 + WINDOW_NS), [Effect::QueryEnds { visit: VISIT }]);
    assert_eq!(reader.tick(u64::MAX), [], "it is asked once");
    // Somebody has published one more: it is read first.
    assert_eq!(reader.ends(VISIT, vec![7]), []);
    let (seen, effects) = reader.alert(&alert(2, 22, 6));
    assert_eq!(seen, Seen::New);
    let [closing] = proposals(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((&closing.missing[..], &closing.repeated[..]), (&[4][..], &[3][..]));
    assert_eq!(closing.short, [2, 5], "2 has two, but not those");
    assert_eq!(closing.totals.count(), 6);
    let findings: Vec<_> =
        reader.audit(VISIT).unwrap().detectors.iter().map(|one| one.finding).collect();
    use Finding::{Differs, Equal, NoManifest};
    assert_eq!(findings, [Equal, Differs, Equal, NoManifest, Differs]);
    assert_eq!(reader.tick(u64::MAX), [], "it is proposed once");
    reader.proposal_failed(VISIT);
    assert_eq!(proposals(&reader.tick(u64::MAX)).len(), 1);
}

#[test]
fn the_first_closing_record_decides_and_leaves_the_rest_late() {
    let mut reader = Reader::new("r", Role::Member, vec![0]);
    reader.control(opening(&[1]), 0);
    (0..4).for_each(|n| _ = reader.alert(&alert(1, n, n as u64)));
    let closing = |closer: &str, end: i64| {
        let ids: Vec<_> = (0..end).collect();
        Closing {
            visit: VISIT,
            closer: closer.into(),
            totals: digest(&ids),
            ends: vec![end],
            missing: vec![1],
            short: vec![],
            repeated: vec![],
        }
    };
    assert_eq!(reader.tick(u64::MAX), [], "a member closes nothing");
    let effects = reader.control(Control::Closing(closing("a", 3)), 1);
    let [Effect::Decided { late, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(late, &[(1, 3)]);
    let second = reader.control(Control::Closing(closing("b", 4)), 2);
    assert_eq!(second, [Effect::Rejected(Rejection::Closed)]);
    assert_eq!(reader.ledger().visit(VISIT).unwrap().closing().unwrap().closer, "a");
    assert_eq!(reader.tally(VISIT).unwrap().total(), digest(&[0, 1, 2]));
}

#[test]
fn an_alert_with_another_payload_under_its_identifier_does_not_count() {
    let mut reader = Reader::new("r", Role::Whole, vec![0]);
    reader.control(opening(&[1]), 0);
    assert_eq!(reader.alert(&alert(1, 7, 0)).0, Seen::New);
    let other = ReadAlert { payload: 1, ..alert(1, 7, 1) };
    assert_eq!(reader.alert(&other).0, Seen::Conflict);
    assert_eq!(reader.alert(&alert(1, 7, 2)).0, Seen::Duplicate);
    assert_eq!(reader.tally(VISIT).unwrap().total(), digest(&[7]));
}

#[test]
fn a_manifest_of_a_detector_that_is_not_expected_is_rejected() {
    let mut reader = Reader::new("r", Role::Whole, vec![0]);
    // One overtakes the opening record.
    assert_eq!(reader.control(manifest(9, &[1]), 0), []);
    reader.control(opening(&[1]), 0);
    let rejected = [Effect::Rejected(Rejection::UnexpectedDetector)];
    assert_eq!(reader.control(manifest(2, &[]), 0), rejected);
    assert_eq!(reader.ledger().announced(VISIT).count(), 0);
}

#[test]
fn visits_decided_long_ago_are_forgotten_and_not_called_short() {
    let mut reader = Reader::new("r", Role::Whole, vec![0]).with_tallies(2);
    let of = |record: Control, visit: i64| match record {
        Control::Opening(opening) => Control::Opening(Opening { visit, ..opening }),
        Control::Manifest(manifest) => Control::Manifest(Manifest { visit, ..manifest }),
        Control::Closing(closing) => Control::Closing(Closing { visit, ..closing }),
    };
    for visit in 0..4 {
        reader.control(of(opening(&[1]), visit), 0);
        let one = ReadAlert { visit, ..alert(1, visit, visit as u64) };
        assert_eq!(reader.alert(&one).0, Seen::New);
        let effects = reader.control(of(manifest(1, &[visit]), visit), 0);
        let [closing] = proposals(&effects)[..] else { panic!("{effects:?}") };
        reader.control(Control::Closing(closing.clone()), 0);
    }
    let known = |visit| reader.audit(visit).map(|audit| audit.is_equal());
    assert_eq!([0, 1, 2, 3].map(known), [None, None, Some(true), Some(true)]);
    let old = ReadAlert { visit: 0, ..alert(1, 0, 0) };
    assert_eq!(reader.alert(&old).0, Seen::Forgotten);
    assert!(reader.ledger().visit(0).unwrap().closing().is_some());
}

/// Control records go over the bus as Avro.
#[test]
fn control_records_are_avro() {
    let codec = Codec::new(&Control::schema().unwrap());
    let mut reader = Reader::new("r", Role::Whole, vec![0, 0]);
    reader.control(opening(&[1]), 0);
    let closing = match &reader.control(manifest(1, &[]), 0)[..] {
        [Effect::Propose(closing)] => Control::Closing(closing.clone()),
        other => panic!("{other:?}"),
    };
    for record in [opening(&[1, 2]), manifest(1, &[1, 2]), closing] {
        let mut bytes = Vec::new();
        codec.serialize(&record, &mut bytes).unwrap();
        assert_eq!(codec.deserialize::<Control>(&bytes).unwrap(), record);
    }
    assert_eq!(format!("{:016x}", codec.schema().fingerprint()), "3123005dfb8999a2");
}

/// What the producers of a run do.
#[derive(Debug, Clone)]
struct Plan {
    /// Alerts of each detector.
    alerts: Vec<u8>,
    /// Detectors whose producer is killed after so many alerts, and whether it is started again.
    killed: BTreeMap<usize, (u8, bool)>,
    partitions: u8,
    readers: u8,
    /// The order of all steps.
    steps: Vec<u16>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let killed = proptest::collection::btree_map(0..5_usize, (0..6_u8, any::<bool>()), 0..3);
    let steps = proptest::collection::vec(any::<u16>(), 0..400);
    (proptest::collection::vec(0..6_u8, 1..5), killed, 1..4_u8, 1..5_u8, steps).prop_map(
        |(alerts, killed, partitions, readers, steps)| Plan {
            alerts,
            killed,
            partitions,
            readers,
            steps,
        },
    )
}

/// The logs of the topics, and all processes.
struct World {
    control: Vec<Control>,
    partitions: Vec<Vec<ReadAlert>>,
    /// What is still to be published, by detector, in order.
    scripts: Vec<Vec<Publish>>,
    readers: Vec<Process>,
}

#[derive(Clone)]
enum Publish {
    Alert(i32, i64),
    Manifest(Control),
}

struct Process {
    reader: Reader,
    control: usize,
    partitions: Vec<usize>,
    /// Its own steady clock, which begins anywhere.
    clock_ns: u64,
    /// Proposals that are not yet appended.
    pending: Vec<Closing>,
    decided: Vec<Closing>,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let detectors: Vec<_> = (0..plan.alerts.len() as i32).collect();
        let scripts = plan.alerts.iter().enumerate().map(|(detector, count)| {
            let ids: Vec<i64> = (0..i64::from(*count)).map(|n| detector as i64 * 100 + n).collect();
            let number = detector as i32;
            let mut run: Vec<_> = ids.iter().map(|id| Publish::Alert(number, *id)).collect();
            run.push(Publish::Manifest(manifest(number, &ids)));
            match plan.killed.get(&detector) {
                None => run,
                Some((after, again)) => {
                    let before = run.iter().take(usize::from(*after)).cloned();
                    // A producer that is started again publishes everything again.
                    before.chain(if *again { run.clone() } else { vec![] }).collect()
                }
            }
        });
        let partitions = usize::from(plan.partitions);
        let process = |number: u8| Process {
            reader: Reader::new(&format!("r{number}"), Role::Whole, vec![0; partitions]),
            control: 0,
            partitions: vec![0; partitions],
            clock_ns: u64::from(number) * 1_000_000_000_000,
            pending: Vec::new(),
            decided: Vec::new(),
        };
        Self {
            control: vec![opening(&detectors)],
            partitions: vec![Vec::new(); partitions],
            scripts: scripts.collect(),
            readers: (0..plan.readers).map(process).collect(),
        }
    }

    fn publish(&mut self, detector: usize) {
        if self.scripts[detector].is_empty() {
            return;
        }
        match self.scripts[detector].remove(0) {
            Publish::Manifest(record) => self.control.push(record),
            Publish::Alert(detector, id) => {
                let partition = detector as usize % self.partitions.len();
                let log = &mut self.partitions[partition];
                let at = Position { partition: partition as u32, offset: log.len() as u64 };
                log.push(ReadAlert { at, ..alert(detector, id, 0) });
            }
        }
    }

    /// Does one of a process's possible steps.
    fn act(&mut self, who: usize, what: u16) {
        let partitions = self.partitions.len();
        let process = &mut self.readers[who];
        let effects = match what % 6 {
            0 | 1 => match self.control.get(process.control) {
                None => vec![],
                Some(record) => {
                    process.control += 1;
                    process.reader.control(record.clone(), process.clock_ns)
                }
            },
            2 | 3 => {
                let partition = usize::from(what / 6) % partitions;
                match self.partitions[partition].get(process.partitions[partition]) {
                    None => vec![],
                    Some(alert) => {
                        process.partitions[partition] += 1;
                        process.reader.alert(alert).1
                    }
                }
            }
            4 => {
                // A clock that goes slowly, or jumps far ahead as after a suspension.
                process.clock_ns += if what & 64 == 0 { WINDOW_NS / 10 } else { WINDOW_NS * 2 };
                process.reader.tick(process.clock_ns)
            }
            _ => {
                let pending = std::mem::take(&mut process.pending);
                self.control.extend(pending.into_iter().map(Control::Closing));
                vec![]
            }
        };
        let ends: Vec<_> = self.partitions.iter().map(|log| log.len() as u64).collect();
        self.readers[who].take(effects, &ends);
    }

    /// Lets everything come to its end.
    fn finish(&mut self) {
        for detector in 0..self.scripts.len() {
            (0..20).for_each(|_| self.publish(detector));
        }
        for round in 0..400_u16 {
            for who in 0..self.readers.len() {
                for what in [0, 2, 8, 14, 70, 5] {
                    self.act(who, what + 6 * 12 * (round % 2));
                }
            }
        }
    }
}

impl Process {
    fn take(&mut self, effects: Vec<Effect>, ends: &[u64]) {
        for effect in effects {
            match effect {
                Effect::QueryEnds { visit } => {
                    let effects = self.reader.ends(visit, ends.to_vec());
                    self.take(effects, ends);
                }
                Effect::Propose(closing) => self.pending.push(closing),
                Effect::Decided { closing, .. } => self.decided.push(closing),
                Effect::Rejected(_) => {}
            }
        }
    }

    fn ids(&self) -> BTreeSet<(i32, i64)> {
        self.reader.tally(VISIT).into_iter().flat_map(|tally| tally.ids()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Readers, closers and producers in any order: one decision, the same alerts for all readers,
    /// and nothing lost without being named.
    #[test]
    fn all_readers_come_to_one_decision(plan in plan()) {
        let mut world = World::new(&plan);
        for step in &plan.steps {
            let (who, what) = (usize::from(step % 7), step / 7);
            match who {
                0..3 => world.publish(usize::from(what) % plan.alerts.len()),
                who => world.act(who % world.readers.len(), what),
            }
        }
        world.finish();
        let decisions: Vec<_> = world.readers.iter().map(|one| one.decided.clone()).collect();
        prop_assert_eq!(decisions[0].len(), 1);
        prop_assert!(decisions.iter().all(|decided| *decided == decisions[0]));
        let decision = &decisions[0][0];
        let first = world.control.iter().find_map(|record| match record {
            Control::Closing(closing) => Some(closing),
            _ => None,
        });
        prop_assert_eq!(Some(decision), first);

        let counted = world.readers[0].ids();
        for process in &world.readers {
            prop_assert_eq!(&process.ids(), &counted);
            prop_assert_eq!(process.reader.tally(VISIT).unwrap().total(), decision.totals);
        }
        let published: BTreeSet<_> =
            world.partitions.iter().flatten().map(|alert| (alert.detector, alert.id)).collect();
        prop_assert!(counted.is_subset(&published));
        // Whoever reads it later, from the beginning, comes to the same.
        let late = world.partitions.iter().flatten().filter(|alert| decision.is_late(alert.at));
        let late: BTreeSet<_> = late.map(|alert| (alert.detector, alert.id)).collect();
        prop_assert!(published.difference(&counted).all(|id| late.contains(id)));
        if decision.is_complete() {
            let announced = world.readers[0].reader.ledger().announced(VISIT);
            prop_assert_eq!(decision.totals, announced);
            prop_assert!(world.readers[0].reader.audit(VISIT).unwrap().is_equal());
        }
        let is_quiet = plan.killed.keys().all(|detector| *detector >= plan.alerts.len());
        let has_waited = world.readers.iter().any(|one| !one.decided[0].is_complete());
        prop_assert!(!is_quiet || has_waited || counted == published);
    }
}

/// Anybody may write to the control topic.
#[test]
fn manifests_of_impossible_counts_do_not_overflow() {
    let huge: Digest = format!("{}:{:032x}", i64::MAX, 0).parse().unwrap();
    let mut reader = Reader::new("reader", Role::Whole, vec![0]);
    let record = |detector| match manifest(detector, &[]) {
        Control::Manifest(one) => Control::Manifest(Manifest { alerts: huge, ..one }),
        other => other,
    };
    for detector in 0..3 {
        reader.control(record(detector), 0);
    }
    let visit = reader.ledger().visit(VISIT).unwrap();
    assert_eq!(visit.announced(), u64::MAX);
    assert_eq!(reader.ledger().announced(VISIT).count(), u64::MAX);
    // What remains is exact, also after the sum was too large.
    reader.control(opening(&[0]), 0);
    assert_eq!(reader.ledger().visit(VISIT).unwrap().announced(), i64::MAX as u64);
    reader.control(manifest(0, &[1, 2]), 0);
    assert_eq!(reader.ledger().visit(VISIT).unwrap().announced(), 2);
}
