//! The protocol: every action of a zone, of the network, of the outside world, and the invariants.
//!
//! No action is ever forced: a process may stand still for any time while clocks run (that is SIGSTOP),
//! a message may stay on the link for any time (that is a one-way or two-way cut), a queue may be lost
//! whole at a reconnection (that is TCP breaking).
// tidy: allow(line-width): the shared model, unchanged.
use super::state::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Consistent,
    /// the preferred zone
    Preferred(u8),
    Witness,
    Fence,
    Available,
}

macro_rules! mutants { ($($name:ident : $text:expr),* $(,)?) => {
    #[allow(non_camel_case_types)] #[derive(Clone, Copy, PartialEq, Eq, Debug)] pub enum Mutant { none, $($name),* }
    pub const MUTANTS: &[(Mutant, &str, &str)] = &[$((Mutant::$name, stringify!($name), $text)),*];
} }
mutants! {
    lease_from_arrival: "lease counted from the arrival of the answer, not from the send time",
    no_drift_margin: "T_promote = T_lease",
    no_lease: "leader reads without a lease (a flag that a timer should have cleared)",
    serve_at_once: "promoted by witness, preference or silence, serves without waiting T_promote",
    restart_forgets_promise: "a restarted process does not wait T_promote",
    restart_serves_at_once: "a zone that was alone serves at once after a restart",
    ack_after_promotion: "a zone that went on still answers the old epoch",
    no_sync_at_promotion: "epoch header written without syncing the log before it",
    grant_before_durable: "EPOCH sent before the leader's own header is on disk",
    removal_not_durable: "acknowledges alone before the alone epoch is on disk",
    removal_not_at_witness: "leader removes its peer on its own disk only",
    member_before_copied: "zone counts as in sync before its copy is complete",
    dirty_is_member: "a zone that lost power stays a member",
    witness_without_set: "witness grants to whoever asks for the next epoch",
    witness_init_in_sync: "a blank witness is filled by an in-sync leader without its peer's consent",
    release_any: "on RESIGN, swaps from any child the peer has at the witness, not from the one it named",
    witness_init_by_consent: "a blank witness is filled on a RESIGN or on the guard's word",
    reset_is_evidence: "a TCP reset counts as death",
    fence_without_status: "fence command's success counts before status says off",
    evidence_outlives_session: "evidence from before a new session is used after it",
    fence_answer_late: "a fence's answer counts after a new session",
    join_fences: "a zone in JOIN fences",
    ended_without_epoch: "guard's word does not name the epoch on disk",
    ended_in_join: "a zone in JOIN accepts the guard's word",
    resign_crossing: "takes the peer's RESIGN after sending its own in the session",
    old_session: "messages of an earlier session are taken",
    alone_before_evidence: "leader acknowledges alone on silence under any policy",
    alone_without_sync: "alone, acknowledges before the record is on disk",
    expose_before_commit: "in sync, shows a record before the peer has it",
    same_epoch_after_restart: "a zone that was alone goes on in its old epoch after a restart",
    member_leads_after_restart: "a member of a two-zone epoch leads after a restart without evidence",
    silence_for_both: "preferred: the other zone too goes on by silence",
    preferred_in_join: "preferred: silence counts in JOIN too",
    operator_counts_on: "operator override without a jump of revisions",
    jump_keeps_tail: "after a jump the tail above the last known commit keeps its old revisions",
    blackout_counts_on: "both lost power: longest log leads without a jump",
    assumed_counts_on: "follower's assumed epoch without a jump of revisions",
    excess_ignored: "what a zone holds above an operator's or assumed child is taken for unacknowledged",
    join_longest: "JOIN compares lengths, not parent chains",
    epoch_by_number: "epochs are told apart by number only",
    resign_without_epoch: "RESIGN does not name the epoch",
    ack_without_epoch: "an acknowledgement of another epoch counts",
    blank_resigns: "a blank zone answers as if it had never been a member",
    heal_without_resign: "loser goes on in the epoch it handed over, and lengths are not compared with the merged one",
    heal_discards_first: "loser leaves its line before the merge is on disk",
    heal_again: "second parent not looked up: a line is merged again",
    heal_no_jump: "merge counts on from the winner's revision",
    confirm_reuses_answer: "reads=confirm: an answer to a heartbeat sent before the read confirms it",
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub writes: u8,
    pub crashes: u8,
    pub powers: u8,
    pub blanks: u8,
    pub breaks: u8,
    pub ops: u8,
    pub forgets: u8,
    pub resigns: u8,
    pub fences: u8,
    pub reads: u8,
    /// highest epoch number
    pub epochs: u8,
    pub queue: u8,
}

pub struct World {
    pub policy: Policy,
    pub b: Bounds,
    pub m: Mutant,
    /// both disks before an acknowledgement in sync
    pub disks: bool,
    /// guard processes give `ended`
    pub ended: bool,
    /// reads are confirmed by a round trip, leases unused; A's clock may stand still
    pub confirm: bool,
    pub clock_stops: bool,
    /// available: a member alone in JOIN may assume, too
    pub start_alone: bool,
    /// ticks: lease
    pub lease: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Init, Tick, TickA, TickB, Crash(u8), Power(u8), Blank(u8), Start(u8), Reconnect, SendHello(u8), Recv(u8), Append(u8),
    SendCopy(u8), SendEpoch(u8), Write(u8, u8), Sync(u8), Grant(u8), GoAlone(u8), RestartAlone(u8), Resign(u8), AskWitness(u8, u8),
    WitnessRuns(u8), WitnessLate, WitnessSays(u8), GiveUp(u8), WitnessForgets, Fence(u8), FenceHits(u8), FenceOff(u8), FenceSaid(u8), Ended(u8),
    Operator(u8), ReadBegins(u8), Mutant(u8),
}

pub type Bad = Option<&'static str>;

impl World {
    pub fn init(&self) -> State {
        let node = Node { ep: 0, len: 0, synced: 0, standing: MEMBER, dirty: 0, role: FOLLOW, off: 0, peer_in: 0, copying: 0, peer_has: 0, lease: 0,
            promise: self.wait(), sure: 0, hello_due: 0, heard: 1, resigned_here: 0, att: NONE, released: NONE, rd: 0, rd_req: 0, early: NONE };
        let mut a = node;
        (a.role, a.peer_in, a.promise, a.lease) = (LEAD, 1, 0, self.lease);
        let mut e = [FREE; ME];
        e[0] = Epoch { zone: 0, both: 1, ..FREE };
        let wit = if self.policy == Policy::Witness { 0 } else { NONE };
        State { e, node: [a, node], q: [[NOMSG; QL]; 2], qn: [0; 2], link: 1, ahead: 0, wit, w_st: [0; 2], w_exp: [NONE; 2], w_new: [NONE; 2],
            late_exp: NONE, late_new: NONE, end_has: [0; 2], end_ep: [NONE; 2], fence: [0; 2], writes: 0, keys: 0, exp: [0; NW], forgiven: 0,
            lost_power: 0, split: 0, reads: self.b.reads, crashes: self.b.crashes, powers: self.b.powers, blanks: self.b.blanks, breaks: self.b.breaks,
            ops: self.b.ops, forgets: self.b.forgets, resigns: self.b.resigns, fences: self.b.fences }
    }
    fn is(&self, m: Mutant) -> bool {
        self.m == m
    }
    /// T_promote in ticks
    fn wait(&self) -> u8 {
        if self.is(Mutant::no_drift_margin) { self.lease } else { self.lease + 1 }
    }

    // ---- what a node may show ------------------------------------------------------------------------

    /// length of the line that leader `z` has committed
    fn commit(&self, s: &State, z: usize) -> u8 {
        let n = &s.node[z];
        if n.role != LEAD {
            return 0;
        }
        let e = s.ep(n.ep);
        if e.both == 0 && n.promise > 0 {
            return 0;
        }
        if e.both == 0 {
            return if self.is(Mutant::alone_without_sync) { n.len } else { n.synced };
        }
        if self.is(Mutant::expose_before_commit) || (self.is(Mutant::alone_before_evidence) && n.lease == 0) || n.early != NONE && self.is(Mutant::removal_not_durable) {
            return n.len;
        }
        let own = if self.disks { n.synced } else { n.len };
        let peer = if n.peer_in == 1 { n.peer_has } else { 0 };
        own.min(peer).max(e.start)
    }
    pub fn can_read(&self, s: &State, z: usize) -> bool {
        let n = &s.node[z];
        if n.role != LEAD {
            return false;
        }
        if s.ep(n.ep).both == 0 {
            return n.promise == 0;
        }
        (n.lease > 0 && n.peer_in == 1) || (self.is(Mutant::no_lease) && n.peer_in == 1)
    }

    // ---- invariants ----------------------------------------------------------------------------------

    /// After each action: note what clients can be shown now, then judge.
    fn post(&self, s: &mut State) -> Bad {
        for z in 0..2 {
            let c = self.commit(s, z);
            let (mut e, mut hi) = (s.node[z].ep, c);
            if c == 0 || e == NONE {
                continue;
            }
            while e != NONE {
                let x = *s.ep(e);
                for p in x.start..hi {
                    let w = x.rec[(p - x.start) as usize];
                    if w == 0 || p - x.start < x.cp {
                        continue;
                    }
                    let rev = x.k * 16 + p + 1;
                    for v in 0..NW as u8 {
                        if v + 1 != w && s.exp[v as usize] == rev {
                            return Some("I5: one revision names two contents");
                        }
                    }
                    let old = s.exp[w as usize - 1];
                    if old != 0 && old != rev {
                        return Some("I5: one write shown under two revisions");
                    }
                    s.exp[w as usize - 1] = rev;
                }
                hi = hi.min(x.start);
                e = x.parent;
            }
        }
        let must: Vec1 = Vec1::of(s);
        if !self.confirm && s.split == 0 {
            if self.can_read(s, 0) && self.can_read(s, 1) {
                return Some("I1: two zones serve at once");
            }
            for z in 0..2 {
                if self.can_read(s, z) {
                    let c = self.commit(s, z);
                    for &w in must.iter() {
                        if !s.on_line(s.node[z].ep, c, w) {
                            return Some("I2/I4: a zone serves without a write that was acknowledged or shown (lost or stale)");
                        }
                    }
                }
            }
        }
        if self.confirm && s.split == 0 {
            // writes: whoever can acknowledge alone holds all that was shown
            for z in 0..2 {
                let n = &s.node[z];
                if n.role == LEAD && s.ep(n.ep).both == 0 && n.promise == 0 {
                    for &w in must.iter() {
                        if !s.on_line(n.ep, n.synced, w) {
                            return Some("I2: a zone leads alone without an acknowledged write");
                        }
                    }
                }
            }
        }
        for &w in must.iter() {
            if !(0..2).any(|z| s.node[z].ep != NONE && s.accounted(s.node[z].ep, s.node[z].len, w)) {
                return Some("I7: an acknowledged write is on no line and in no report");
            }
        }
        None
    }
    /// Disk or memory of `z` is gone: forgive writes of which no copy exists, where the policy promises no more.
    fn forgive(&self, s: &mut State, z: usize, blank: bool) -> Bad {
        let other_lost = s.lost_power >> (1 - z) & 1 == 1;
        let alone = s.node[z].ep == NONE || blank;
        s.lost_power |= 1 << z;
        for &w in Vec1::of(s).iter() {
            let kept = (0..2).any(|y| s.node[y].ep != NONE && s.accounted(s.node[y].ep, s.node[y].len, w));
            if !kept {
                if !(alone || other_lost) {
                    return Some("I2: one loss of power destroyed an acknowledged write");
                }
                if self.disks && !blank && s.lost_power & 4 == 0 {
                    return Some("I2: loss of power destroyed an acknowledged write although both disks were promised");
                }
                s.forgiven |= 1 << w;
            }
        }
        if blank {
            s.lost_power |= 4;
        }
        None
    }

    // ---- small steps ---------------------------------------------------------------------------------

    fn push(&self, s: &mut State, to: usize, m: Msg) {
        if s.link == 1 && (s.qn[to] as usize) < self.b.queue as usize {
            s.q[to][s.qn[to] as usize] = m;
            s.qn[to] += 1;
        }
    }
    fn room(&self, s: &State, to: usize) -> bool {
        s.link == 0 || s.qn[to] < self.b.queue
    }
    fn die(&self, s: &mut State, z: usize) {
        let o = s.node[z];
        // a request to the witness may still arrive later
        if s.w_st[z] == 1 {
            self.late(s, z);
        }
        (s.w_st[z], s.w_exp[z], s.w_new[z]) = (0, NONE, NONE);
        s.node[z] = Node { ep: o.ep, len: o.len, synced: o.synced, standing: o.standing, dirty: o.dirty, role: DOWN, off: 0, peer_in: 0, copying: 0,
            peer_has: 0, lease: 0, promise: 0, sure: 0, hello_due: 0, heard: 0, resigned_here: 0, att: NONE, released: NONE, rd: 0, rd_req: 0, early: NONE };
        s.qn[z] = 0;
        s.link = 0;
        s.fence[z] = match s.fence[z] { 1 => 2, 3 => 0, x => x };
    }
    fn late(&self, s: &mut State, z: usize) {
        if s.late_new == NONE {
            (s.late_exp, s.late_new) = (s.w_exp[z], s.w_new[z]);
        }
    }
    fn jump(&self, k: u8, z: usize) -> u8 {
        k + if (k + 1) % 2 == z as u8 { 1 } else { 2 }
    }
    /// writes the header of epoch `x` (parent = my last) and enters it; syncs the log first
    fn header(&self, s: &mut State, z: usize, x: u8) {
        let n = &mut s.node[z];
        let both = s.e[x as usize].both;
        s.e[x as usize].start = n.len;
        if !self.is(Mutant::no_sync_at_promotion) || both == 1 {
            n.synced = n.len;
        }
        let led = n.role == LEAD;
        let (par, len) = (n.ep, n.len);
        if s.e[x as usize].k != s.e[par as usize].k && !self.is(Mutant::jump_keeps_tail) {
            // what may never have been committed gets new revisions: written again in the new epoch
            let p = s.e[par as usize];
            let e = &mut s.e[x as usize];
            e.start = p.start;
            for i in p.start..len {
                e.rec[(i - p.start) as usize] = p.rec[(i - p.start) as usize];
            }
            e.n = len - p.start;
            e.cp = e.n;
        }
        n.ep = x;
        n.standing = MEMBER;
        n.dirty = 0;
        n.role = LEAD;
        n.peer_in = 0;
        n.lease = 0;
        if led || n.sure > 0 || self.is(Mutant::serve_at_once) {
            n.promise = 0;
        }
        n.sure = 0;
        n.att = NONE;
        n.hello_due = 1;
        n.rd = 0;
        n.rd_req = 0;
        n.early = NONE;
        if both == 0 {
            n.copying = 0;
            n.peer_has = 0;
        }
        if s.e[x as usize].basis == 1 && self.policy == Policy::Available || s.e[x as usize].basis == 2 {
            s.split = 1;
        }
    }
    fn propose(&self, s: &mut State, z: usize, both: u8, basis: u8, jumps: bool, num: u8) -> Option<u8> {
        if num > self.b.epochs {
            return None;
        }
        let i = s.slot()?;
        let p = *s.ep(s.node[z].ep);
        let k = if jumps { self.jump(p.k, z) } else { p.k };
        if k > 14 {
            return None;
        }
        s.e[i as usize] = Epoch { num, zone: z as u8, parent: s.node[z].ep, start: NONE, both, k, basis, ..FREE };
        Some(i)
    }
    fn resign(&self, s: &mut State, z: usize) {
        let n = &mut s.node[z];
        let (ep, len) = (n.ep, n.len);
        if !(self.is(Mutant::heal_without_resign) && s.e[ep as usize].both == 0) {
            n.role = JOIN;
        }
        n.sure = 0;
        n.peer_in = 0;
        n.lease = 0;
        n.copying = 0;
        n.resigned_here = 1;
        n.rd = 0;
        n.rd_req = 0;
        if n.att != NONE {
            if s.w_st[z] == 1 {
                self.late(s, z);
            }
            (s.w_st[z], s.w_exp[z], s.w_new[z]) = (0, NONE, NONE);
            s.node[z].att = NONE;
        }
        // my own unfinished try at the witness, as it stands there now: the peer may swap from exactly that
        let w = s.wit;
        let own = self.policy == Policy::Witness && w != NONE && s.ep(w).zone == z as u8 && s.ep(w).parent == ep;
        self.push(s, 1 - z, Msg { kind: RESIGN, ep, len, x: 0, y: 0, ep2: if own { w } else { NONE } });
        if self.is(Mutant::heal_discards_first) && s.e[ep as usize].both == 0 {
            // forgets its line: back to the common past
            let p = *s.ep(ep);
            let n = &mut s.node[z];
            n.standing = OUTSIDER;
            n.len = p.start;
            n.ep = p.parent;
            n.synced = n.len;
        }
    }

    // ---- relation of two lines -----------------------------------------------------------------------

    /// (mine, peer's): 0 same epoch, 1 peer is newer (mine is part of it), 2 mine is newer, 3 two lines
    fn relate(&self, s: &State, ep: u8, len: u8, pep: u8, plen: u8) -> u8 {
        if self.is(Mutant::join_longest) {
            if ep == pep {
                return 0;
            }
            let f = |e: u8, l: u8| if e == NONE { (0, 0, 0) } else { (s.ep(e).num as i32 + 1, l as i32, s.ep(e).zone as i32) };
            return if f(ep, len) < f(pep, plen) { 1 } else { 2 };
        }
        if ep == pep || self.is(Mutant::epoch_by_number) && ep != NONE && pep != NONE && s.ep(ep).num == s.ep(pep).num {
            return 0;
        }
        if ep == NONE {
            return 1;
        }
        if pep == NONE {
            return 2;
        }
        let forks = |l: u8, f: (u8, u8)| l > f.0 && f.1 != 0 && !self.is(Mutant::excess_ignored);
        if let Some(f) = s.find(pep, ep) {
            if self.is(Mutant::heal_again) && f.1 == 9 {
                return 3;
            }
            return if forks(len, f) && !(self.is(Mutant::heal_without_resign) && f.1 == 9) { 3 } else { 1 };
        }
        if let Some(f) = s.find(ep, pep) {
            if self.is(Mutant::heal_again) && f.1 == 9 {
                return 3;
            }
            return if forks(plen, f) && !(self.is(Mutant::heal_without_resign) && f.1 == 9) { 3 } else { 2 };
        }
        3
    }
    /// Of two lines: does mine win? operator's word, then the higher number, then zone A
    fn wins(&self, s: &State, ep: u8, pep: u8) -> bool {
        if s.find(pep, ep).is_some() {
            return false;
        }
        if s.find(ep, pep).is_some() {
            return true;
        }
        let r = |e: u8| ((s.ep(e).basis == 2) as u8, s.ep(e).num, 1 - s.ep(e).zone);
        r(ep) > r(pep)
    }

    // tidy: allow(function-length): the shared model, unchanged.
    fn hello(&self, s: &mut State, z: usize, m: Msg) {
        let (role, standing, dirty) = (m.x & 3, m.x >> 2 & 3, m.x >> 4 & 1);
        s.node[z].heard = 1;
        let me = s.node[z];
        let _ = standing;
        match self.relate(s, me.ep, me.len, m.ep, m.len) {
            3 => {
                if !self.wins(s, me.ep, m.ep) && role == LEAD && me.standing != OUTSIDER {
                    self.resign(s, z);
                } else if me.standing == OUTSIDER && role == LEAD {
                    // my line was never mine to end, but it may hold what was acknowledged: hand it over
                    self.push(s, 1 - z, Msg { kind: RESIGN, ep: me.ep, len: me.len, x: 0, y: 0, ep2: NONE });
                }
            }
            1 => {
                if self.is(Mutant::blank_resigns) && me.ep == NONE && s.ep(m.ep).both == 1 {
                    self.push(s, 1 - z, Msg { kind: RESIGN, ep: m.ep, len: m.len, x: 0, y: 0, ep2: NONE });
                } else if role == LEAD {
                    let n = &mut s.node[z];
                    n.hello_due = 1;
                    n.standing = OUTSIDER;
                    n.role = JOIN;
                    (n.peer_in, n.copying, n.peer_has, n.lease, n.sure, n.rd, n.rd_req) = (0, 0, 0, 0, 0, 0, 0);
                    if n.att != NONE {
                        n.att = NONE;
                        if s.w_st[z] == 1 {
                            self.late(s, z);
                        }
                        (s.w_st[z], s.w_exp[z], s.w_new[z]) = (0, NONE, NONE);
                    }
                } else if me.ep != NONE && s.ep(m.ep).both == 1 {
                    s.node[z].standing = OUTSIDER;
                    s.node[z].role = JOIN;
                    s.node[z].resigned_here = 1;
                    self.push(s, 1 - z, Msg { kind: RESIGN, ep: m.ep, len: m.len, x: 0, y: 0, ep2: NONE });
                }
            }
            2 => {
                let both = s.ep(me.ep).both == 1;
                let n = &mut s.node[z];
                if n.role == LEAD && (!both || n.peer_in == 0 && m.ep != NONE) {
                    n.copying = 1;
                    n.peer_has = 0;
                } else if n.role == LEAD {
                    n.copying = 0;
                    n.peer_in = 0;
                }
            }
            _ => {
                if me.ep == NONE {
                    return;
                }
                let both = s.ep(me.ep).both == 1;
                match (me.role, role) {
                    (LEAD, FOLLOW) if both => {
                        s.node[z].peer_in = 1;
                        s.node[z].peer_has = m.len.min(me.len);
                    }
                    (LEAD, _) if !both => {
                        s.node[z].copying = 1;
                        s.node[z].peer_has = 0;
                    }
                    (LEAD, _) => s.node[z].peer_in = 0,
                    (JOIN, LEAD) if both && me.standing != OUTSIDER => self.resign(s, z),
                    (JOIN, LEAD) => s.node[z].standing = OUTSIDER,
                    (FOLLOW | JOIN, FOLLOW | JOIN) if both => {
                        let led = s.ep(me.ep).zone;
                        let r = |dirty: u8, role: u8, len: u8, y: u8| (1 - dirty, if dirty == 1 { 0 } else { role }, len, (y == led) as u8);
                        if r(me.dirty, me.role, me.len, z as u8) < r(dirty, role, m.len, 1 - z as u8) {
                            self.resign(s, z);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    // tidy: allow(function-length): the shared model, unchanged.
    fn recv(&self, s: &mut State, z: usize) -> Bad {
        let m = s.q[z][0];
        for i in 1..s.qn[z] as usize {
            s.q[z][i - 1] = s.q[z][i];
        }
        s.qn[z] -= 1;
        let me = s.node[z];
        if m.kind != HELLO && me.heard == 0 && !self.is(Mutant::old_session) {
            return None;
        }
        match m.kind {
            HELLO => self.hello(s, z, m),
            APPEND => {
                let stale = self.is(Mutant::ack_after_promotion) && me.role == LEAD && s.ep(me.ep).parent == m.ep;
                if me.role == FOLLOW && me.ep == m.ep || stale {
                    let n = &mut s.node[z];
                    if !stale {
                        n.len = n.len.max(m.len);
                        n.promise = self.wait();
                        if self.disks {
                            n.synced = n.len;
                        }
                    }
                    self.push(s, 1 - z, Msg { kind: ACK, ep: m.ep, len: m.len, x: m.x, y: m.y, ep2: NONE });
                }
            }
            ACK => {
                if me.role == LEAD && (me.ep == m.ep || self.is(Mutant::ack_without_epoch)) {
                    let both = s.ep(me.ep).both;
                    let n = &mut s.node[z];
                    n.peer_has = n.peer_has.max(m.len);
                    if both == 1 {
                        n.peer_in = 1;
                        n.lease = n.lease.max(if self.is(Mutant::lease_from_arrival) { self.lease } else { m.x });
                        let fits = m.y == n.rd || self.is(Mutant::confirm_reuses_answer);
                        if n.rd != 0 && fits {
                            let req = n.rd_req;
                            (n.rd, n.rd_req) = (0, 0);
                            let c = self.commit(s, z);
                            for w in 1..=NW as u8 {
                                if req >> w & 1 == 1 && s.forgiven >> w & 1 == 0 && !s.on_line(me.ep, c, w) && s.split == 0 {
                                    return Some("I4: a confirmed read misses a write acknowledged before it began");
                                }
                            }
                        }
                    }
                }
            }
            COPY => {
                if me.role == JOIN && me.standing == OUTSIDER {
                    let n = &mut s.node[z];
                    (n.ep, n.len, n.synced, n.dirty) = (m.ep, m.len, m.len, 0);
                    self.push(s, 1 - z, Msg { kind: ACK, ep: m.ep, len: m.len, x: 0, y: 0, ep2: NONE });
                }
            }
            EPOCH => {
                let next = me.role == FOLLOW && s.ep(m.ep).parent == me.ep && s.ep(m.ep).zone == 1 - z as u8 && me.len == m.len;
                if next || me.role == JOIN && me.standing == OUTSIDER && (me.ep != NONE || self.is(Mutant::member_before_copied)) && self.relate(s, me.ep, me.len, m.ep, m.len) == 1 {
                    if me.att != NONE {
                        if s.w_st[z] == 1 {
                            self.late(s, z);
                        }
                        (s.w_st[z], s.w_exp[z], s.w_new[z], s.node[z].att) = (0, NONE, NONE, NONE);
                    }
                    let n = &mut s.node[z];
                    n.ep = m.ep;
                    n.len = if self.is(Mutant::member_before_copied) { n.len } else { m.len };
                    n.synced = n.len;
                    (n.standing, n.dirty, n.role, n.promise, n.sure) = (MEMBER, 0, FOLLOW, self.wait(), 0);
                    self.push(s, 1 - z, Msg { kind: ACK, ep: m.ep, len: m.len, x: m.x, y: 0, ep2: NONE });
                }
            }
            RESIGN => {
                if me.ep == NONE || me.role == DOWN {
                    return None;
                }
                let e = *s.ep(me.ep);
                if (m.ep == me.ep || self.is(Mutant::resign_without_epoch)) && e.both == 1 && me.standing != OUTSIDER {
                    if me.resigned_here == 0 || self.is(Mutant::resign_crossing) {
                        s.node[z].sure = 2;
                        s.node[z].released = m.ep2;
                    }
                } else if me.role == LEAD && e.both == 0 && m.ep != me.ep && self.relate(s, me.ep, me.len, m.ep, m.len) == 3 {
                    return self.merge(s, z, m.ep, m.len);
                }
            }
            _ => {}
        }
        None
    }

    /// Heal: winner `z` takes the ended line (ep, len) into a new epoch with two parents, in one durable step.
    fn merge(&self, s: &mut State, z: usize, ep: u8, len: u8) -> Bad {
        let me = s.node[z];
        if let Some(f) = s.find(me.ep, ep) {
            if f.1 == 9 && len <= f.0 {
                return Some("I8: a line is merged twice");
            }
        }
        // fork: longest common line
        let mut f = 0;
        let (mut a, mut ha) = (me.ep, me.len);
        'outer: while a != NONE {
            let (mut b, mut hb) = (ep, len);
            while b != NONE {
                if a == b {
                    f = ha.min(hb);
                    break 'outer;
                }
                hb = hb.min(s.ep(b).start);
                b = s.ep(b).parent;
            }
            ha = ha.min(s.ep(a).start);
            a = s.ep(a).parent;
        }
        let (mut lo, mut wo) = ([0u8; 32], [0u8; 32]);
        let ln = s.suffix(ep, len, f, &mut lo);
        let wn = s.suffix(me.ep, me.len, f, &mut wo);
        let (mut rec, mut n, mut report) = ([0u8; MR], 0, 0u8);
        for key in 0..2 {
            let l = (0..ln).rev().map(|i| lo[i]).find(|&w| s.key(w) == key);
            let w = (0..wn).rev().map(|i| wo[i]).find(|&w| s.key(w) == key);
            match (l, w) {
                (Some(l), None) => {
                    rec[n] = l;
                    n += 1;
                }
                (Some(l), Some(w)) if l != w => report |= 1 << l,
                _ => {}
            }
        }
        let num = s.ep(me.ep).num.max(s.ep(ep).num) + 1;
        let top = s.ep(me.ep).k.max(s.ep(ep).k);
        let k = if self.is(Mutant::heal_no_jump) { s.ep(me.ep).k } else { self.jump(top, z) };
        let Some(i) = s.slot() else { return None };
        if num > self.b.epochs + 1 || k > 14 {
            return None;
        }
        if k * 16 <= top * 16 {
            return Some("I4: after heal, revisions are not above both lines");
        }
        s.e[i as usize] = Epoch { num, zone: z as u8, parent: me.ep, start: me.len, both: 0, k, basis: 0, n: n as u8, cp: n as u8, rec, m_ep: ep, m_len: len, report };
        if s.wit == me.ep {
            s.wit = i;
        }
        let nd = &mut s.node[z];
        nd.ep = i;
        nd.len += n as u8;
        nd.synced = nd.len;
        nd.hello_due = 1;
        nd.copying = 0;
        nd.peer_has = 0;
        None
    }

    /// Sets to a fixed value what can have no effect any more (fewer states, same behaviour).
    pub fn normal(&self, s: &mut State) {
        let no_power = s.powers == 0 && s.fences == 0 && s.fence == [0, 0];
        for z in 0..2 {
            let pep = s.node[1 - z].ep;
            if s.end_has[z] == 1 && pep != s.end_ep[z] && s.find(pep, s.end_ep[z]).is_some() && !self.is(Mutant::ended_without_epoch) {
                // the survivor has left that epoch for good
                (s.end_has[z], s.end_ep[z]) = (0, NONE);
            }
            let both = s.node[z].ep != NONE && s.ep(s.node[z].ep).both == 1;
            let (link, qn) = (s.link, s.qn[z]);
            let n = &mut s.node[z];
            if link == 0 {
                n.hello_due = 0;
                if qn == 0 && n.role != LEAD {
                    n.heard = 0;
                }
            }
            if n.standing == OUTSIDER {
                (n.promise, n.sure, n.dirty) = (0, 0, 0);
            }
            if no_power && (n.role != LEAD || both) && !self.disks {
                n.synced = n.len;
            }
            if n.role == LEAD && (both && n.peer_in == 0 || !both && n.copying == 0) {
                n.peer_has = 0;
            }
        }
        for z in 0..2 {
            if s.node[z].sure != 2 {
                s.node[z].released = NONE;
            }
        }
        // a late request that can never match again
        let x = s.late_exp;
        if s.late_new != NONE && s.forgets == 0 && s.wit != NONE && x != s.wit && !s.w_new.contains(&x) {
            (s.late_exp, s.late_new) = (NONE, NONE);
        }
    }

    // ---- all successors ------------------------------------------------------------------------------

    // tidy: allow(function-length): the shared model, unchanged.
    pub fn next(&self, s: &State, out: &mut Vec<(Act, State, Bad)>) {
        out.clear();
        let mut add = |a: Act, mut t: State, bad: Bad| {
            let bad = bad.or_else(|| self.post(&mut t));
            self.normal(&mut t);
            t.canon();
            if bad.is_some() || t != *s {
                out.push((a, t, bad));
            }
        };
        // time: both clocks, or one by one with at most a tick between them
        let tick = |t: &mut State, z: usize| {
            let n = &mut t.node[z];
            n.lease = n.lease.saturating_sub(1);
            n.promise = n.promise.saturating_sub(1);
            for y in 0..2 {
                for i in 0..t.qn[y] as usize {
                    let m = &mut t.q[y][i];
                    // the send time is the leader's: on its way out (to 1 - z) or back (to z)
                    if (m.kind == APPEND || m.kind == EPOCH) && y == 1 - z || m.kind == ACK && y == z {
                        m.x = m.x.saturating_sub(1);
                    }
                }
            }
        };
        {
            let mut t = *s;
            tick(&mut t, 0);
            tick(&mut t, 1);
            add(Act::Tick, t, None);
            let z = s.ahead as usize;
            let mut t = *s;
            tick(&mut t, z);
            t.ahead = 1 - s.ahead;
            add(if z == 0 { Act::TickA } else { Act::TickB }, t, None);
            if self.clock_stops {
                let mut t = *s;
                tick(&mut t, 1);
                add(Act::TickB, t, None);
            }
        }
        // the link
        if s.node[0].role != DOWN && s.node[1].role != DOWN && (s.link == 0 || s.breaks > 0) {
            let mut t = *s;
            if s.link == 1 {
                t.breaks -= 1;
            }
            t.link = 1;
            for z in 0..2 {
                t.qn[z] = if self.is(Mutant::old_session) { s.qn[z] } else { 0 };
                t.node[z].hello_due = 1;
                t.node[z].heard = 0;
                t.node[z].resigned_here = 0;
                t.node[z].peer_in = 0;
                t.node[z].copying = 0;
                // evidence ends with the session; a fence under way may still hit, but counts no more
                if !self.is(Mutant::evidence_outlives_session) {
                    t.node[z].sure = 0;
                }
                if !self.is(Mutant::fence_answer_late) {
                    t.fence[z] = match t.fence[z] { 1 => 2, 3 => 0, x => x };
                }
            }
            add(Act::Reconnect, t, None);
        }
        for z in 0..2usize {
            let me = s.node[z];
            let p = 1 - z;
            let zz = z as u8;
            // ---- failures
            if me.role != DOWN && s.crashes > 0 {
                let mut t = *s;
                t.crashes -= 1;
                self.die(&mut t, z);
                if self.ended {
                    (t.end_has[z], t.end_ep[z]) = (1, me.ep);
                }
                add(Act::Crash(zz), t, None);
            }
            let power = |t: &mut State| -> Bad {
                self.die(t, z);
                t.node[z].off = 1;
                let was = t.node[z];
                t.node[z].len = was.synced;
                if was.ep != NONE && t.ep(was.ep).both == 1 && was.standing != OUTSIDER && !self.disks && !self.is(Mutant::dirty_is_member) {
                    t.node[z].dirty = 1;
                }
                // the fence commands of a dead machine: the command may still arrive (FenceHits), its answer not
                self.forgive(t, z, false)
            };
            if s.powers > 0 && !(me.role == DOWN && me.off == 1) {
                let mut t = *s;
                t.powers -= 1;
                let bad = power(&mut t);
                add(Act::Power(zz), t, bad);
            }
            if s.blanks > 0 {
                let mut t = *s;
                t.blanks -= 1;
                if me.role != DOWN {
                    self.die(&mut t, z);
                }
                let n = &mut t.node[z];
                (n.ep, n.len, n.synced, n.standing, n.dirty) = (NONE, 0, 0, OUTSIDER, 0);
                let bad = self.forgive(&mut t, z, true);
                add(Act::Blank(zz), t, bad);
            }
            if me.role == DOWN {
                let mut t = *s;
                let n = &mut t.node[z];
                n.role = JOIN;
                n.off = 0;
                n.promise = if self.is(Mutant::restart_forgets_promise) { 0 } else { self.wait() };
                add(Act::Start(zz), t, None);
                continue;
            }
            // ---- messages
            if s.qn[z] > 0 && self.room(s, p) && (s.q[z][0].kind != HELLO || me.hello_due == 0) {
                let mut t = *s;
                let bad = self.recv(&mut t, z);
                add(Act::Recv(zz), t, bad);
            }
            if me.hello_due == 1 && s.link == 1 && self.room(s, p) {
                let mut t = *s;
                t.node[z].hello_due = 0;
                self.push(&mut t, p, Msg { kind: HELLO, ep: me.ep, len: me.len, x: me.role | me.standing << 2 | me.dirty << 4, y: 0, ep2: NONE });
                add(Act::SendHello(zz), t, None);
            }
            let talks = s.link == 1 && me.heard == 1 && me.hello_due == 0 && self.room(s, p);
            let ep = if me.ep == NONE { FREE } else { *s.ep(me.ep) };
            if me.role == LEAD && talks {
                if ep.both == 1 && me.peer_in == 1 {
                    let m = Msg { kind: APPEND, ep: me.ep, len: me.len, x: self.lease, y: me.rd, ep2: NONE };
                    if s.qn[p] == 0 || s.q[p][s.qn[p] as usize - 1] != m {
                        let mut t = *s;
                        self.push(&mut t, p, m);
                        add(Act::Append(zz), t, None);
                    }
                }
                if ep.both == 0 && me.copying == 1 && (me.peer_has < me.len || me.peer_has == 0) && s.qn[p] == 0 {
                    let mut t = *s;
                    self.push(&mut t, p, Msg { kind: COPY, ep: me.ep, len: me.len, x: 0, y: 0, ep2: NONE });
                    add(Act::SendCopy(zz), t, None);
                }
                if ep.both == 1 && me.copying == 1 && me.peer_in == 0 && s.qn[p] == 0 {
                    let mut t = *s;
                    self.push(&mut t, p, Msg { kind: EPOCH, ep: me.ep, len: ep.start, x: self.lease, y: 0, ep2: NONE });
                    add(Act::SendEpoch(zz), t, None);
                }
            }
            // ---- clients
            if me.role == LEAD && (s.writes as usize) < self.b.writes as usize && ((me.len - ep.start) as usize) < MR {
                for key in 0..if self.policy == Policy::Available || self.b.ops > 0 { 2 } else { 1 } {
                    let mut t = *s;
                    t.writes += 1;
                    let w = t.writes;
                    t.keys |= key << w;
                    let i = (me.len - ep.start) as usize;
                    let x = &mut t.e[me.ep as usize];
                    let bad = if i < x.n as usize { Some("I5: a record (epoch, index) was written twice") } else { None };
                    x.rec[i] = w;
                    x.n = x.n.max(i as u8 + 1);
                    t.node[z].len += 1;
                    add(Act::Write(zz, w), t, bad);
                }
            }
            if me.synced < me.len {
                let mut t = *s;
                t.node[z].synced = me.len;
                add(Act::Sync(zz), t, None);
            }
            if self.confirm && me.role == LEAD && ep.both == 1 && s.reads > 0 && me.rd == 0 {
                let mut t = *s;
                t.node[z].rd = s.reads;
                t.reads -= 1;
                for w in 1..=NW as u8 {
                    if s.exp[w as usize - 1] != 0 {
                        t.node[z].rd_req |= 1 << w;
                    }
                }
                add(Act::ReadBegins(zz), t, None);
            }
            // ---- members
            let copied = me.heard == 1 && me.copying == 1 && (me.peer_has == me.len && me.peer_has > 0 || me.len == 0 || self.is(Mutant::member_before_copied));
            if me.role == LEAD && ep.both == 0 && me.promise == 0 && copied && self.policy != Policy::Witness {
                let mut t = *s;
                if let Some(x) = self.propose(&mut t, z, 1, 0, false, ep.num + 1) {
                    if self.is(Mutant::grant_before_durable) && me.early == NONE && s.qn[p] == 0 {
                        // says so first; the header follows in a later step
                        let mut u = t;
                        u.e[x as usize].start = me.len;
                        u.node[z].early = x;
                        self.push(&mut u, p, Msg { kind: EPOCH, ep: x, len: me.len, x: self.lease, y: 0, ep2: NONE });
                        add(Act::Mutant(zz), u, None);
                    } else {
                        self.header(&mut t, z, x);
                        t.node[z].copying = 1;
                        add(Act::Grant(zz), t, None);
                    }
                }
            }
            let member = ep.zone != NONE && me.standing != OUTSIDER;
            if me.role != LEAD || ep.both == 1 {
                // go on alone
                let up = me.role == FOLLOW || me.role == LEAD;
                let sure = me.sure == 2 || me.sure == 1 && me.dirty == 0 || self.is(Mutant::reset_is_evidence) && up;
                let silent = me.role == LEAD || me.promise == 0;
                let local = self.policy != Policy::Witness || self.is(Mutant::removal_not_at_witness) && me.role == LEAD;
                let by_silence = me.standing == MEMBER
                    && me.dirty == 0
                    && match self.policy {
                        Policy::Preferred(y) => (y == zz || self.is(Mutant::silence_for_both)) && (up || self.is(Mutant::preferred_in_join)) && silent,
                        Policy::Available => silent && (up || self.start_alone),
                        Policy::Witness => true, // only by the mutant that does not tell it
                        _ => false,
                    };
                let restarts = self.is(Mutant::member_leads_after_restart) && me.role == JOIN && me.standing == MEMBER && me.dirty == 0;
                if member && ep.both == 1 && local && (sure || by_silence || restarts) {
                    let assumed = !sure && self.policy == Policy::Available;
                    let dirty = me.dirty == 1;
                    let jumps = dirty && !self.is(Mutant::blackout_counts_on) || assumed && me.role != LEAD && !self.is(Mutant::assumed_counts_on);
                    let mut t = *s;
                    if let Some(x) = self.propose(&mut t, z, 0, (assumed || dirty) as u8, jumps, ep.num + 1) {
                        if self.is(Mutant::reset_is_evidence) {
                            t.node[z].sure = 1;
                        }
                        if self.is(Mutant::removal_not_durable) && me.role == LEAD && me.early == NONE {
                            t.node[z].early = x;
                            t.e[x as usize].start = me.len;
                            add(Act::Mutant(zz), t, None);
                        } else {
                            self.header(&mut t, z, x);
                            add(Act::GoAlone(zz), t, None);
                        }
                    }
                }
                // it was alone before: a new epoch for the new process
                if me.role == JOIN && me.standing == MEMBER && ep.zone == zz && ep.both == 0 && me.resigned_here == 0 && self.policy != Policy::Witness {
                    let mut t = *s;
                    if self.is(Mutant::same_epoch_after_restart) {
                        t.node[z].role = LEAD;
                        t.node[z].hello_due = 1;
                        add(Act::RestartAlone(zz), t, None);
                    } else if let Some(x) = self.propose(&mut t, z, 0, 0, false, ep.num + 1) {
                        self.header(&mut t, z, x);
                        if self.is(Mutant::restart_serves_at_once) {
                            t.node[z].promise = 0;
                        }
                        add(Act::RestartAlone(zz), t, None);
                    }
                }
                // goodbye: planned hand-over, or a slow or full follower that leaves
                if up && member && me.standing == MEMBER && ep.both == 1 && s.resigns > 0 && talks && me.sure == 0
                    && (me.role == FOLLOW || me.peer_in == 1 && me.peer_has == me.len)
                {
                    let mut t = *s;
                    t.resigns -= 1;
                    self.resign(&mut t, z);
                    add(Act::Resign(zz), t, None);
                }
                // fence
                if self.policy == Policy::Fence && member && ep.both == 1 && s.fence[z] == 0 && s.fences > 0 && (up || self.is(Mutant::join_fences)) && me.standing == MEMBER {
                    let mut t = *s;
                    t.fences -= 1;
                    t.fence[z] = 1;
                    add(Act::Fence(zz), t, None);
                }
                if s.fence[z] == 1 && (s.node[p].off == 1 || self.is(Mutant::fence_without_status)) {
                    // status said off; the answer comes some time later
                    let mut t = *s;
                    t.fence[z] = 3;
                    add(Act::FenceSaid(zz), t, None);
                }
                if s.fence[z] == 3 && (up || self.is(Mutant::join_fences)) && me.sure == 0 {
                    let mut t = *s;
                    t.fence[z] = 0;
                    if member && ep.both == 1 {
                        t.node[z].sure = 1;
                    }
                    add(Act::FenceOff(zz), t, None);
                }
                // the guard's word
                let e = s.end_ep[p] == me.ep || self.is(Mutant::ended_without_epoch);
                if s.end_has[p] == 1 && e && (up || self.is(Mutant::ended_in_join)) && member && me.standing == MEMBER && ep.both == 1 && me.sure == 0 {
                    let mut t = *s;
                    t.node[z].sure = 1;
                    (t.end_has[p], t.end_ep[p]) = (0, NONE);
                    add(Act::Ended(zz), t, None);
                }
            }
            // the operator: on a zone that does not lead
            if s.ops > 0 && me.role != LEAD && me.ep != NONE {
                let mut t = *s;
                t.ops -= 1;
                if let Some(x) = self.propose(&mut t, z, 0, 2, !self.is(Mutant::operator_counts_on), ep.num + 1) {
                    t.node[z].sure = 1;
                    self.header(&mut t, z, x);
                    if self.policy == Policy::Witness {
                        t.wit = x;
                    }
                    add(Act::Operator(zz), t, None);
                }
            }
            // ---- witness
            if self.policy == Policy::Witness {
                let own_child = |w: u8| w != NONE && s.ep(w).zone == zz && s.ep(w).parent == me.ep;
                let released = me.sure == 2 && (me.released != NONE && s.wit == me.released || self.is(Mutant::release_any) && s.wit != NONE && s.ep(s.wit).parent == me.ep);
                let fits = s.wit == me.ep || own_child(s.wit) || released || (self.is(Mutant::witness_without_set) && s.wit != NONE);
                if s.w_st[z] == 0 && me.ep != NONE {
                    // alone (promotion, removal, restart)
                    let complete = me.standing != OUTSIDER || self.is(Mutant::witness_without_set);
                    let blank_ok = s.wit == NONE && me.sure > 0 && self.is(Mutant::witness_init_by_consent);
                    let suspects = me.role != FOLLOW || me.promise < self.wait() || me.sure > 0;
                    if suspects && (me.role != LEAD || ep.both == 1) && complete && (me.dirty == 0 || me.sure == 2) && (fits || blank_ok) && (ep.both == 1 || ep.zone == zz || self.is(Mutant::witness_without_set)) {
                        let mut t = *s;
                        let num = ep.num.max(if s.wit == NONE { 0 } else { s.ep(s.wit).num }) + 1;
                        if let Some(x) = self.propose(&mut t, z, 0, me.dirty, me.dirty == 1 && !self.is(Mutant::blackout_counts_on), num) {
                            (t.w_st[z], t.w_exp[z], t.w_new[z], t.node[z].att) = (1, s.wit, x, x);
                            add(Act::AskWitness(zz, 0), t, None);
                        }
                    }
                    if me.role == LEAD && ep.both == 0 && me.promise == 0 && copied && fits {
                        let mut t = *s;
                        let num = ep.num.max(s.ep(s.wit).num) + 1;
                        if let Some(x) = self.propose(&mut t, z, 1, 0, false, num) {
                            (t.w_st[z], t.w_exp[z], t.w_new[z], t.node[z].att) = (1, s.wit, x, x);
                            add(Act::AskWitness(zz, 1), t, None);
                        }
                    }
                    // a blank witness: who is alone registers its epoch; a pair starts a new epoch and registers that
                    let alone = ep.both == 0 && ep.zone == zz && me.standing == MEMBER;
                    let pair = ep.both == 1 && me.role == LEAD && me.peer_in == 1 && ep.parent != NONE && s.ep(ep.parent).both == 1;
                    if s.wit == NONE && (alone || pair || self.is(Mutant::witness_init_in_sync) && me.role == LEAD && me.lease > 0) {
                        let mut t = *s;
                        (t.w_st[z], t.w_exp[z], t.w_new[z]) = (1, NONE, me.ep);
                        add(Act::AskWitness(zz, 2), t, None);
                    }
                }
                if s.wit == NONE && me.role == LEAD && ep.both == 1 && me.peer_in == 1 && me.peer_has == me.len && me.att == NONE && ep.num < self.b.epochs {
                    let mut t = *s;
                    if let Some(x) = self.propose(&mut t, z, 1, 0, false, ep.num + 1) {
                        self.header(&mut t, z, x);
                        t.node[z].copying = 1;
                        t.node[z].peer_has = 0;
                        add(Act::Grant(zz), t, None);
                    }
                }
                if s.w_st[z] == 1 {
                    let mut t = *s;
                    let yes = s.wit == s.w_exp[z];
                    if yes {
                        t.wit = s.w_new[z];
                    }
                    t.w_st[z] = if yes { 2 } else { 3 };
                    t.w_exp[z] = NONE;
                    add(Act::WitnessRuns(zz), t, None);
                }
                if s.w_st[z] >= 2 {
                    let mut t = *s;
                    let x = s.w_new[z];
                    (t.w_st[z], t.w_new[z]) = (0, NONE);
                    t.node[z].att = NONE;
                    let alone = s.ep(x).both == 0;
                    let ok = s.w_st[z] == 2 && me.att == x && s.ep(x).parent == me.ep && if alone { me.role != LEAD || ep.both == 1 } else { me.role == LEAD && copied };
                    if ok {
                        self.header(&mut t, z, x);
                        if alone && ep.both == 0 && self.is(Mutant::restart_serves_at_once) {
                            t.node[z].promise = 0;
                        }
                        if !alone {
                            t.node[z].copying = 1;
                        }
                    }
                    add(Act::WitnessSays(zz), t, None);
                    // or the answer is lost
                    let mut t = *s;
                    (t.w_st[z], t.w_new[z], t.node[z].att) = (0, NONE, NONE);
                    add(Act::GiveUp(zz), t, None);
                }
                if s.w_st[z] == 1 && s.late_new == NONE {
                    let mut t = *s;
                    self.late(&mut t, z);
                    (t.w_st[z], t.w_exp[z], t.w_new[z], t.node[z].att) = (0, NONE, NONE, NONE);
                    add(Act::GiveUp(zz), t, None);
                }
            }
        }
        // ---- things nobody's process does
        for z in 0..2usize {
            let p = 1 - z;
            if (s.fence[z] == 1 || s.fence[z] == 2) && s.node[p].off == 0 {
                let mut t = *s;
                if t.fence[z] == 2 {
                    t.fence[z] = 0;
                }
                self.die(&mut t, p);
                t.node[p].off = 1;
                let was = t.node[p];
                t.node[p].len = was.synced;
                if was.ep != NONE && t.ep(was.ep).both == 1 && was.standing != OUTSIDER && !self.disks && !self.is(Mutant::dirty_is_member) {
                    t.node[p].dirty = 1;
                }
                let bad = self.forgive(&mut t, p, false);
                add(Act::FenceHits(z as u8), t, bad);
            }
        }
        if s.late_new != NONE {
            let mut t = *s;
            if s.wit == s.late_exp {
                t.wit = s.late_new;
            }
            (t.late_exp, t.late_new) = (NONE, NONE);
            add(Act::WitnessLate, t, None);
        }
        if s.forgets > 0 && s.wit != NONE {
            let mut t = *s;
            t.forgets -= 1;
            t.wit = NONE;
            add(Act::WitnessForgets, t, None);
        }
    }
}

/// The writes a client was shown and that were not forgiven.
struct Vec1 {
    a: [u8; NW],
    n: usize,
}
impl Vec1 {
    fn of(s: &State) -> Vec1 {
        let mut v = Vec1 { a: [0; NW], n: 0 };
        for w in 1..=NW as u8 {
            if s.exp[w as usize - 1] != 0 && s.forgiven >> w & 1 == 0 {
                v.a[v.n] = w;
                v.n += 1;
            }
        }
        v
    }
    fn iter(&self) -> std::slice::Iter<'_, u8> {
        self.a[..self.n].iter()
    }
}
