//! All successors of a state, fingerprints, and the breadth-first search.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use helio_state::zone::{
    Answer, Chain, Decision, Effect, EpochId, Header, Input, Message, Mutant, Policy, Purpose,
    Role, Standing, Time, Zone,
};

use super::invariants::{merge, written_twice};
use super::world::{
    Act, Bad, Fence, LOG, Packet, Report, State, Swap, World, abandoned, off, orphan,
};

pub type Successor = (Act, State, Bad);

impl World {
    /// All successors that differ from `s`.
    pub fn next(&self, s: &State, out: &mut Vec<Successor>) {
        out.clear();
        self.time_and_link(s, out);
        for z in 0..2 {
            self.failures(s, z, out);
            if s.node[z].zone.is_none() {
                self.act(s, Act::Start(z), out);
                continue;
            }
            self.messages(s, z, out);
            self.clients(s, z, out);
            self.decisions(s, z, out);
            self.evidence(s, z, out);
            self.witness(s, z, out);
        }
        for z in 0..2 {
            let hits = matches!(s.fence[z], Fence::Running | Fence::Orphaned);
            if hits && !s.node[1 - z].off {
                self.act(s, Act::FenceHits(z), out);
            }
        }
        if s.late.is_some() {
            self.act(s, Act::WitnessLate, out);
        }
        if s.left.forgets > 0 && s.witness.is_some() {
            self.act(s, Act::WitnessForgets, out);
        }
    }

    fn act(&self, s: &State, act: Act, out: &mut Vec<Successor>) {
        let mut t = s.clone();
        let bad = self.take(&mut t, act);
        out.push((act, t, bad));
    }

    fn time_and_link(&self, s: &State, out: &mut Vec<Successor>) {
        self.act(s, Act::Tick, out);
        self.act(s, Act::TickOne(s.ahead), out);
        if self.clock_stops {
            self.act(s, Act::Stopped, out);
        }
        let up = s.node.iter().all(|node| node.zone.is_some());
        if up && (!s.linked || s.left.breaks > 0) {
            self.act(s, Act::Reconnect, out);
        }
    }

    fn failures(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let node = &s.node[z];
        if node.zone.is_some() && s.left.crashes > 0 {
            self.act(s, Act::Crash(z), out);
        }
        if s.left.powers > 0 && !(node.zone.is_none() && node.off) {
            self.act(s, Act::Power(z), out);
        }
        if s.left.blanks > 0 {
            self.act(s, Act::Blank(z), out);
        }
    }

    fn messages(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let Some(zone) = &s.node[z].zone else { return };
        let due = zone.can(s.node[z].now(), Decision::Hello);
        let room = self.room(s, 1 - z);
        if let Some(first) = s.queue[z].first() {
            let hello = matches!(first.message, Message::Hello(_));
            if room && !(hello && due && s.linked) {
                self.act(s, Act::Receive(z), out);
            }
        }
        if due && s.linked && room {
            self.act(s, Act::Decide(z, Decision::Hello), out);
        }
        if !s.linked || !room {
            return;
        }
        let now = s.node[z].now();
        if zone.can(now, Decision::Append) {
            let before = s.queue[1 - z].len();
            self.act(s, Act::Decide(z, Decision::Append), out);
            let queue = &out[out.len() - 1].1.queue[1 - z];
            if before > 0 && queue[before - 1] == queue[before] {
                out.pop();
            }
        }
        for decision in [Decision::Copy, Decision::Epoch] {
            if s.queue[1 - z].is_empty() && zone.can(now, decision) {
                self.act(s, Act::Decide(z, decision), out);
            }
        }
    }

    fn clients(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let node = &s.node[z];
        let leads = node.role() == Some(Role::Lead);
        if leads && s.writes < self.bounds.writes && (node.length as usize) < LOG {
            let keys = self.policy == Policy::Available || self.bounds.ops > 0;
            for key in 0..=u8::from(keys) {
                self.act(s, Act::Write(z, key), out);
            }
        }
        let acks = node.role() == Some(Role::Follow) && self.both_disks;
        if node.synced < node.length && (!acks || self.room(s, 1 - z)) {
            self.act(s, Act::Sync(z), out);
        }
        if node.unwritten.is_some() {
            self.act(s, Act::WriteHeader(z), out);
        }
        let reads = self.confirm && leads && node.is_pair() && s.left.reads > 0;
        if reads && s.read[z].is_none() {
            self.act(s, Act::Read(z), out);
        }
    }

    fn decisions(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let node = &s.node[z];
        let Some(zone) = &node.zone else { return };
        let number = |held: Option<EpochId>| {
            let mine = node.id().map_or(0, |id| id.number());
            mine.max(held.map_or(0, |held| held.number())) + 1
        };
        let within = |held| number(held) <= u64::from(self.bounds.epochs);
        let mut decide = |decision: Decision, permitted: bool| {
            if permitted && zone.can(node.now(), decision) {
                self.act(s, Act::Decide(z, decision), out);
            }
        };
        decide(Decision::Alone, within(None));
        decide(Decision::Restart, within(None) || self.is(Mutant::same_epoch_after_restart));
        decide(Decision::Pair, within(None));
        decide(Decision::Renew, within(None) && s.witness.is_none());
        decide(Decision::Resign, s.left.resigns > 0 && s.linked && self.room(s, 1 - z));
        decide(Decision::Fence, s.left.fences > 0 && s.fence[z] == Fence::Idle);
        decide(Decision::StartAlone, s.left.ops > 0 && within(None));
        let held = s.witness;
        for purpose in super::world::PURPOSES {
            let bound = match purpose {
                Purpose::Register => true,
                Purpose::Merge => self.merge_within(s, z, held),
                _ => within(held),
            };
            decide(Decision::Swap { purpose, held }, bound && s.swap[z].is_none());
        }
        if self.merge_ready(s, z) {
            self.act(s, Act::Merge(z), out);
        }
    }

    fn merge_within(&self, s: &State, z: usize, held: Option<EpochId>) -> bool {
        let node = &s.node[z];
        let lost = node.zone.as_ref().and_then(|zone| zone.inspect(node.now()).lost);
        let known = [node.id(), held, lost.map(|lost| lost.0)];
        let highest = known.iter().flatten().map(|id| id.number()).max().unwrap_or(0);
        highest <= u64::from(self.bounds.epochs)
    }

    fn merge_ready(&self, s: &State, z: usize) -> bool {
        let node = &s.node[z];
        let lost = node.zone.as_ref().and_then(|zone| zone.inspect(node.now()).lost);
        let leads = node.role() == Some(Role::Lead) && !node.is_pair();
        let granted = |granted: Option<EpochId>| {
            self.policy != Policy::Witness || granted.is_some() && s.swap[z].is_none()
        };
        lost.is_some_and(|lost| leads && granted(lost.2)) && self.merge_within(s, z, None)
    }

    fn evidence(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let node = &s.node[z];
        let Some(zone) = &node.zone else { return };
        let alone = node.role() == Some(Role::Lead) && !node.is_pair();
        let unsure = zone.inspect(node.now()).sure == 0;
        if alone || !unsure {
            return self.fence_status(s, z, alone, out);
        }
        self.fence_status(s, z, alone, out);
        let up = node.role() != Some(Role::Join) || self.is(Mutant::join_fences);
        if s.fence[z] == Fence::Said && up {
            self.act(s, Act::FenceOff(z), out);
        }
        if s.ended[1 - z].is_some() {
            self.act(s, Act::Ended(z), out);
            let t = &out[out.len() - 1].1.node[z];
            if t.zone.as_ref().is_some_and(|zone| zone.inspect(t.now()).sure == 0) {
                out.pop();
            }
        }
    }

    fn fence_status(&self, s: &State, z: usize, alone: bool, out: &mut Vec<Successor>) {
        if s.fence[z] != Fence::Running || alone {
            return;
        }
        if s.node[1 - z].off {
            self.act(s, Act::FenceSaid(z), out);
        }
        if self.is(Mutant::fence_without_status) {
            self.act(s, Act::FenceDone(z), out);
        }
    }

    fn witness(&self, s: &State, z: usize, out: &mut Vec<Successor>) {
        let Some(swap) = s.swap[z] else { return };
        match swap.answer {
            None => {
                self.act(s, Act::WitnessRuns(z), out);
                if s.late.is_none() {
                    self.act(s, Act::GiveUp(z), out);
                }
            }
            Some(_) => {
                self.act(s, Act::WitnessSays(z), out);
                self.act(s, Act::GiveUp(z), out);
            }
        }
    }

    /// Takes `act` and judges the state after it; the caller has asked whether it may be.
    pub fn take(&self, s: &mut State, act: Act) -> Bad {
        let bad = self.apply(s, act).or_else(|| self.judge(s));
        s.late = s.late.filter(|(expected, _)| self.late_matters(s, *expected));
        for z in 0..2 {
            s.ended[z] = s.ended[z].filter(|epoch| self.word_matters(s, z, *epoch));
        }
        bad
    }

    fn apply(&self, s: &mut State, act: Act) -> Bad {
        const NO_LOG: &[u8; LOG] = &[0; LOG];
        match act {
            Act::Tick => s.node.iter_mut().for_each(|node| node.clock += 1),
            Act::TickOne(z) => {
                s.node[z].clock += 1;
                s.ahead = 1 - z;
            }
            Act::Stopped => s.node[1].clock += 1,
            Act::Reconnect => self.reconnect(s),
            Act::Crash(z) => {
                s.left.crashes -= 1;
                self.die(s, z);
                if self.ended {
                    s.ended[z] = Some(s.node[z].id());
                }
            }
            Act::Power(z) => {
                s.left.powers -= 1;
                return self.power_off(s, z);
            }
            Act::Blank(z) => return self.blank(s, z),
            Act::Start(z) => {
                let node = &mut s.node[z];
                node.off = false;
                let boot = 1 + u128::from(node.rebooted);
                let zone = Zone::start(self.config(z), node.stored(), boot, node.now());
                node.zone = Some(zone);
            }
            Act::Receive(z) => return self.receive(s, z),
            Act::Write(z, key) => return self.write(s, z, key),
            Act::Sync(z) => {
                let length = s.node[z].length;
                s.node[z].synced = length;
                return self.run(s, z, Input::Synced { length }, NO_LOG);
            }
            Act::WriteHeader(z) => s.node[z].unwritten = None,
            Act::Read(z) => {
                s.left.reads -= 1;
                s.node[z].zone.as_mut().expect("it leads").begin_read();
                let shown = |w: &u8| s.shown[*w as usize - 1] != 0;
                s.read[z] = Some((1..=6).filter(shown).fold(0, |bits, w| bits | 1 << w));
            }
            Act::Decide(z, decision) => {
                match decision {
                    Decision::Resign => s.left.resigns -= 1,
                    Decision::Fence => s.left.fences -= 1,
                    Decision::StartAlone => s.left.ops -= 1,
                    _ => {}
                }
                return self.run(s, z, Input::Decide(decision), NO_LOG);
            }
            Act::Merge(z) => return self.merge(s, z),
            other => return self.apply_outside(s, other),
        }
        None
    }

    /// Fences, guards, the witness.
    fn apply_outside(&self, s: &mut State, act: Act) -> Bad {
        const NO_LOG: &[u8; LOG] = &[0; LOG];
        match act {
            Act::FenceDone(z) => {
                let session = s.fence_session[z];
                return self.run(s, z, Input::FenceDone { session }, NO_LOG);
            }
            Act::FenceSaid(z) => s.fence[z] = Fence::Said,
            Act::FenceOff(z) => {
                s.fence[z] = Fence::Idle;
                let session = s.fence_session[z];
                let input = Input::FenceStatus { session, power: off() };
                return self.run(s, z, input, NO_LOG);
            }
            Act::FenceHits(z) => {
                if s.fence[z] == Fence::Orphaned {
                    s.fence[z] = Fence::Idle;
                }
                return self.power_off(s, 1 - z);
            }
            Act::Ended(z) => {
                let epoch = s.ended[1 - z].take().expect("a guard's word");
                return self.run(s, z, Input::Ended { epoch }, NO_LOG);
            }
            Act::WitnessRuns(_) | Act::WitnessSays(_) | Act::GiveUp(_) => {
                return self.swap(s, act);
            }
            Act::WitnessLate => {
                let (expected, new) = s.late.take().expect("a late request");
                if s.witness == expected {
                    s.witness = Some(new);
                }
            }
            Act::WitnessForgets => {
                s.left.forgets -= 1;
                s.witness = None;
            }
            other => unreachable!("{other:?} is a zone's own"),
        }
        None
    }

    fn reconnect(&self, s: &mut State) {
        if s.linked {
            s.left.breaks -= 1;
        }
        s.linked = true;
        s.session += 1;
        for z in 0..2 {
            if !self.late {
                s.queue[z].clear();
            }
            let number = s.session;
            self.run(s, z, Input::Session(number), &[0; LOG]);
            if !self.late {
                s.fence[z] = abandoned(s.fence[z]);
            }
        }
    }

    fn blank(&self, s: &mut State, z: usize) -> Bad {
        s.left.blanks -= 1;
        if s.node[z].zone.is_some() {
            self.die(s, z);
        }
        let node = &mut s.node[z];
        (node.chain, node.standing, node.log) = (None, Standing::Outsider, [0; LOG]);
        (node.length, node.synced, node.high, node.rebooted) = (0, 0, 0, false);
        self.forgive(s, z, true)
    }

    fn receive(&self, s: &mut State, z: usize) -> Bad {
        let Packet { session, message, log } = s.queue[z].remove(0);
        let bad = self.run(s, z, Input::Message { session, message }, &log);
        if self.coarse && bad.is_none() && s.node[z].lost.is_some() {
            if self.merge_ready(s, z) {
                return self.merge(s, z);
            }
            // The shared model has no merge that waits.
            s.node[z].lost = None;
        }
        bad
    }

    fn write(&self, s: &mut State, z: usize, key: u8) -> Bad {
        s.writes += 1;
        s.keys |= key << s.writes;
        let node = &mut s.node[z];
        let twice = written_twice(self, node);
        node.log[node.length as usize] = s.writes;
        node.length += 1;
        node.high = node.high.max(node.length);
        let length = node.length;
        let bad = twice.then_some("I5: a record (epoch, index) was written twice");
        bad.or(self.run(s, z, Input::Wrote { length }, &[0; LOG]))
    }

    fn swap(&self, s: &mut State, act: Act) -> Bad {
        match act {
            Act::WitnessRuns(z) => {
                let swap = s.swap[z].as_mut().expect("a swap");
                let yes = s.witness == swap.expected;
                if yes {
                    s.witness = Some(swap.new);
                }
                swap.answer = Some(if yes { Answer::Swapped } else { Answer::Refused });
                None
            }
            Act::WitnessSays(z) => {
                let Swap { new, answer, .. } = s.swap[z].take().expect("a swap");
                let answer = answer.expect("an answer");
                self.run(s, z, Input::Swapped { new, answer }, &[0; LOG])
            }
            Act::GiveUp(z) => {
                let new = s.swap[z].expect("a swap").new;
                orphan(s, z);
                self.run(s, z, Input::Swapped { new, answer: Answer::Lost }, &[0; LOG])
            }
            _ => None,
        }
    }

    fn merge(&self, s: &mut State, z: usize) -> Bad {
        let node = &s.node[z];
        let log = node.lost.expect("the lost line's records");
        let before = node.chain.clone().expect("it leads");
        let zone = node.zone.as_ref().expect("it leads");
        let (lost, length, _) = zone.inspect(node.now()).lost.expect("a lost line");
        let twice = before.contains(lost).is_some_and(|found| {
            found.link == helio_state::zone::Link::Merge && length <= found.length
        });
        if twice {
            return Some("I8: a line is merged twice");
        }
        let records = &log[..length as usize];
        let fork = zone.lost_fork().expect("a lost line");
        let base = before.tip().revision_base.max(zone.lost_base().unwrap_or(0));
        let (results, report) = merge(s, z, fork, records);
        let input = Input::Merge { results: results.len() as u64 };
        let bad = self.run(s, z, input, &[0; LOG]);
        let node = &mut s.node[z];
        let tip = *node.tip().expect("it leads");
        if tip.id == before.tip().id {
            return bad;
        }
        let from = node.length as usize;
        node.log[from..from + results.len()].copy_from_slice(&results);
        node.length += results.len() as u64;
        (node.synced, node.high) = (node.length, node.length);
        let writes = report;
        s.reports.push(Report { merge: tip.id.digest(), writes, log, length });
        let above = tip.revision_base > base;
        bad.or((!above).then_some("I4: after heal, revisions are not above both lines"))
    }
}

/// Whether a header was entered.
pub fn enters(effects: &[Effect]) -> Option<Header> {
    effects.iter().find_map(|effect| match effect {
        Effect::Enter(header) => Some(*header),
        _ => None,
    })
}

// ---- fingerprints -------------------------------------------------------------------------------

struct Print {
    a: u64,
    b: u64,
}

impl Print {
    fn add(&mut self, x: u64) {
        let m = u128::from(self.a ^ x).wrapping_mul(u128::from(self.b | 1));
        self.a = (m as u64) ^ ((m >> 64) as u64);
        self.b = self.b.rotate_left(23) ^ x.wrapping_mul(0xE703_7ED1_A0B4_28DB);
    }
    fn id(&mut self, id: Option<EpochId>) {
        self.add(id.map_or(0, |id| id.digest()));
    }
    fn log(&mut self, log: &[u8; LOG]) {
        let (low, high) = log.split_at(8);
        self.add(u64::from_le_bytes(low.try_into().expect("8 bytes")));
        self.add(u64::from_le_bytes(high.try_into().expect("8 bytes")));
    }
    /// Bases are distinguished as the rules distinguish them.
    fn chain(&mut self, chain: Option<&Chain>) {
        let Some(chain) = chain else { return self.add(1) };
        for header in chain.headers() {
            self.add(header.id.digest());
            let operator = header.basis == helio_state::zone::Basis::Operator;
            let basis = u64::from(header.basis.is_safe()) | u64::from(operator) << 1;
            let numbers = header.start | header.copied << 16 | basis << 32;
            self.add(numbers ^ header.revision_base << 4);
            if let Some(line) = header.merged {
                self.id(Some(line.epoch));
                self.add(line.length);
            }
        }
        self.add(2);
    }
    fn end(&self) -> u64 {
        let mut end = Print { a: self.a ^ self.b.rotate_left(32), b: 0x5895_65A1_5E1D_2C3F };
        end.add(self.b);
        end.add(self.a);
        end.a
    }
}

impl World {
    /// 64 bits of all on which the future depends; what has no effect any more is left out.
    pub fn fingerprint(&self, s: &State) -> u64 {
        let mut p = Print { a: 0x9E37_79B9_7F4A_7C15, b: 0xD6E8_FEB8_6659_FD93 };
        let calm = s.left.powers == 0 && s.left.fences == 0 && s.fence == [Fence::Idle; 2];
        for z in 0..2 {
            self.print_node(s, z, calm, &mut p);
            for packet in &s.queue[z] {
                self.print_packet(s, z, packet, &mut p);
            }
            self.print_outside(s, z, &mut p);
        }
        p.add(u64::from(s.linked) | (s.ahead as u64) << 1 | u64::from(s.split) << 2);
        p.id(s.witness);
        if let Some((expected, new)) = s.late {
            p.id(expected);
            p.id(Some(new));
        }
        for report in s.reports.iter().filter(|report| refers(s, report.merge)) {
            p.add(report.merge ^ u64::from(report.writes));
            p.log(&report.log);
        }
        for (w, revision) in s.shown.iter().enumerate() {
            p.add(revision ^ (w as u64) << 32);
        }
        p.add(u64::from_le_bytes([s.writes, s.keys, s.forgiven, s.lost_power, 0, 0, 0, 0]));
        let l = &s.left;
        p.add(u64::from_le_bytes([
            l.crashes, l.powers, l.blanks, l.breaks, l.ops, l.forgets, l.resigns, l.fences,
        ]));
        p.add(u64::from(l.reads));
        p.end()
    }

    fn late_matters(&self, s: &State, expected: Option<EpochId>) -> bool {
        let asked = s.swap.iter().flatten().any(|swap| Some(swap.new) == expected);
        s.left.forgets > 0
            || s.witness.is_none()
            || s.witness == expected
            || asked
            || expected.is_none()
    }

    fn print_node(&self, s: &State, z: usize, calm: bool, p: &mut Print) {
        let node = &s.node[z];
        let role = node.role();
        let pair = node.is_pair();
        let leads = role == Some(Role::Lead);
        let outsider = node.standing == Standing::Outsider;
        p.chain(node.chain.as_ref());
        p.log(&node.log);
        let same = calm && (!leads || pair) && !self.both_disks;
        let synced = if same { node.length } else { node.synced };
        let dirty = !outsider && node.is_dirty(self);
        let flags = u64::from(dirty) | u64::from(outsider) << 1 | u64::from(node.off) << 2;
        let flags = flags | u64::from(node.unwritten.is_some()) << 3;
        p.add(role.map_or(3, |role| role as u64) | flags << 2 | node.length << 8 | synced << 16);
        let high = if self.is(Mutant::same_epoch_after_restart) { node.high } else { 0 };
        p.add(high);
        if let Some((chain, length)) = &node.unwritten {
            p.chain(chain.as_ref());
            p.add(*length);
        }
        let Some(zone) = &node.zone else { return };
        let i = zone.inspect(node.now());
        let linked = s.linked;
        let heard = i.heard && (linked || !s.queue[z].is_empty() || leads);
        let peer = leads && (pair && i.member || !pair && i.copying);
        let (stored, durable) = if peer { (i.stored, i.durable) } else { (0, 0) };
        let durable = if self.both_disks { durable } else { 0 };
        let (promise, sure) = if outsider { (0, 0) } else { (i.promise, i.sure) };
        let bits = u64::from(heard) | u64::from(i.hello_due && linked) << 1;
        let bits = bits | u64::from(i.resigned) << 2 | u64::from(i.member && leads) << 3;
        let bits = bits | u64::from(i.copying && leads) << 4 | u64::from(i.fencing.is_some()) << 5;
        let bits = bits | u64::from(i.fencing == Some(s.fence_session[z])) << 6;
        let bits = bits | u64::from(sure) << 7 | i.reads.min(3) << 9;
        let lease = if leads { i.lease } else { 0 };
        let times = lease << 16 | promise << 24;
        // A leader's is its epoch's start.
        let commit = if leads { 0 } else { i.commit };
        p.add(bits | times | stored << 32 | durable << 40 | commit << 48);
        p.id(i.released.filter(|_| sure == 2));
        match i.ask {
            Some((purpose, id, base)) => {
                p.id(Some(id));
                p.add(purpose as u64 + 1 + (base << 4));
            }
            None => p.add(0),
        }
        if let Some((epoch, length, granted)) = i.lost {
            p.id(Some(epoch));
            p.id(granted);
            p.add(length);
            p.log(node.lost.as_ref().unwrap_or(&[0; LOG]));
        }
        p.add(s.read[z].map_or(0, |bits| 256 | u64::from(bits)));
    }

    fn print_packet(&self, s: &State, z: usize, packet: &Packet, p: &mut Print) {
        let left = |to: usize, sent: Time| sent.after(self.lease).since(s.node[to].now());
        p.add(u64::from(packet.session == s.session) + 16);
        match &packet.message {
            Message::Hello(m) => {
                p.chain(m.chain.as_ref());
                let bits = m.role as u64 | (m.standing as u64) << 2 | u64::from(m.dirty) << 3;
                let synced = if self.both_disks { m.synced } else { 0 };
                p.add(bits | m.length << 8 | synced << 16 | 1 << 60);
            }
            Message::Append(m) => {
                p.id(Some(m.epoch));
                let times = left(1 - z, m.sent) << 32 | m.read << 40;
                p.add(m.length | m.commit << 8 | times | 2 << 60);
            }
            Message::Ack(m) => {
                p.id(Some(m.epoch));
                let times = m.sent.map_or(0, |sent| left(z, sent)) << 32 | m.read << 40;
                let durable = if self.both_disks { m.durable } else { 0 };
                p.add(m.stored | durable << 8 | times | 3 << 60);
            }
            Message::Copy(m) => {
                p.chain(Some(&m.chain));
                p.add(m.length | m.commit << 8 | 4 << 60);
            }
            Message::Epoch(m) => {
                p.chain(Some(&m.chain));
                p.add(left(1 - z, m.sent) << 32 | 5 << 60);
            }
            Message::Resign(m) => {
                p.chain(Some(&m.chain));
                p.id(m.unfinished);
                p.add(m.length | 6 << 60);
            }
        }
        p.log(&packet.log);
    }

    fn print_outside(&self, s: &State, z: usize, p: &mut Print) {
        match s.swap[z] {
            Some(Swap { expected, new, answer: None }) => {
                p.id(expected);
                p.id(Some(new));
                p.add(1);
            }
            Some(Swap { new, answer: Some(answer), .. }) => {
                p.id(Some(new));
                p.add(2 + answer as u64);
            }
            None => p.add(0),
        }
        match s.ended[z] {
            Some(epoch) => {
                p.id(epoch);
                p.add(1);
            }
            None => p.add(0),
        }
        p.add(s.fence[z] as u64);
    }

    /// A guard's word counts no more when the survivor has left that epoch.
    fn word_matters(&self, s: &State, z: usize, epoch: Option<EpochId>) -> bool {
        let survivor = s.node[1 - z].chain.as_ref();
        let left = survivor.zip(epoch).is_some_and(|(chain, epoch)| {
            chain.tip().id != epoch && chain.contains(epoch).is_some()
        });
        !left || self.is(Mutant::ended_without_epoch)
    }
}

/// Whether any line still holds this merge.
fn refers(s: &State, merge: u64) -> bool {
    let has = |chain: Option<&Chain>| chain.is_some_and(|c| c.header(merge).is_some());
    s.node.iter().any(|node| has(node.chain.as_ref()))
        || s.queue.iter().flatten().any(|packet| match &packet.message {
            Message::Hello(m) => has(m.chain.as_ref()),
            Message::Copy(m) => has(Some(&m.chain)),
            Message::Epoch(m) => has(Some(&m.chain)),
            Message::Resign(m) => has(Some(&m.chain)),
            _ => false,
        })
}

// ---- search -------------------------------------------------------------------------------------

#[derive(Default)]
pub struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers")
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = x;
    }
}

type Seen = HashMap<u64, u64, BuildHasherDefault<Same>>;

/// What a search saw, so that silence is not taken for proof.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    pub alone: u64,
    pub pair: u64,
    pub reads: u64,
    pub merged: u64,
    pub jumped: u64,
    pub dirty: u64,
    pub split: u64,
}

impl Reach {
    fn note(&mut self, world: &World, s: &State) {
        for node in &s.node {
            let Some(zone) = &node.zone else { continue };
            if zone.role() == Role::Lead {
                *(if node.is_pair() { &mut self.pair } else { &mut self.alone }) += 1;
            }
            self.reads += u64::from(zone.may_read(node.now()));
            self.dirty += u64::from(node.is_dirty(world));
            self.jumped += u64::from(node.tip().is_some_and(|tip| tip.revision_base > 0));
        }
        self.merged += u64::from(!s.reports.is_empty());
        self.split += u64::from(s.split);
    }
}

/// How a search ended.
#[derive(Debug)]
pub enum End {
    Complete,
    CutOff,
    Violated(&'static str, Vec<Act>),
}

/// The result of a search.
#[derive(Debug)]
pub struct Search {
    pub states: usize,
    pub depth: usize,
    pub reach: Reach,
    pub end: End,
}

/// Breadth first, at most `cap` states.
pub fn search(world: &World, cap: usize) -> Search {
    let mut seen = Seen::default();
    let first = world.init();
    seen.insert(world.fingerprint(&first), 0);
    let (mut level, mut next) = (vec![first], Vec::new());
    let (mut depth, mut reach, mut out) = (0, Reach::default(), Vec::new());
    while !level.is_empty() {
        for s in level.drain(..) {
            reach.note(world, &s);
            let from = world.fingerprint(&s);
            world.next(&s, &mut out);
            for (act, t, bad) in out.drain(..) {
                if let Some(what) = bad {
                    let mut path = trace(world, &seen, from);
                    path.push(act);
                    let end = End::Violated(what, path);
                    return Search { states: seen.len(), depth: depth + 1, reach, end };
                }
                if let Entry::Vacant(vacant) = seen.entry(world.fingerprint(&t)) {
                    vacant.insert(from);
                    next.push(t);
                }
            }
            if seen.len() >= cap {
                return Search { states: seen.len(), depth, reach, end: End::CutOff };
            }
        }
        depth += 1;
        std::mem::swap(&mut level, &mut next);
    }
    Search { states: seen.len(), depth, reach, end: End::Complete }
}

/// The actions on the way to the state with this fingerprint.
fn trace(world: &World, seen: &Seen, mut at: u64) -> Vec<Act> {
    let mut prints = vec![at];
    while let Some(&from) = seen.get(&at) {
        if from == 0 {
            break;
        }
        prints.push(from);
        at = from;
    }
    let mut s = world.init();
    let mut out = Vec::new();
    let mut acts = Vec::new();
    for print in prints.iter().rev().skip(1) {
        world.next(&s, &mut out);
        let step = out.iter().find(|x| world.fingerprint(&x.1) == *print);
        let (act, t, _) = step.cloned().expect("the way there");
        acts.push(act);
        s = t;
    }
    acts
}
