//! What the model keeps of a cluster of two zones: disks, processes, the link, the witness, and a ghost
//! that remembers what clients were shown.
//!
//! All fields are bytes, so that a state is hashed and compared as a string of bytes.
//!
//! A *line* is named by (epoch, length): epoch -> parent epoch, each with the length at which it starts.
//! Records live in the epoch that wrote them, and a node's log is just such a name; the leader of an epoch
//! is the only writer of its records, so a record (epoch, index) has one content unless a rule is broken
//! (checked in `World::write`).
// tidy: allow(line-width): the shared model, unchanged.

/// No epoch: a blank disk, an empty witness, an empty field.
pub const NONE: u8 = 255;
/// Epochs held at a time (unreferenced ones are dropped), records an epoch, messages a direction, writes.
pub const ME: usize = 12;
pub const MR: usize = 4;
pub const QL: usize = 3;
pub const NW: usize = 6;

pub const DOWN: u8 = 0;
pub const JOIN: u8 = 1;
pub const FOLLOW: u8 = 2;
pub const LEAD: u8 = 3;

pub const OUTSIDER: u8 = 0;
pub const MEMBER: u8 = 1;

/// Header of an epoch with its records. Durable where a node's chain reaches it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    pub num: u8,
    /// the zone that leads it (0 = A, 1 = B); 255 = entry free
    pub zone: u8,
    pub parent: u8,
    /// length of the line where it starts; 255 until the header is on disk
    pub start: u8,
    /// members: 1 = both zones, 0 = the leader alone
    pub both: u8,
    /// revision = k * 16 + position; a jump takes the next k of the zone's parity
    pub k: u8,
    /// basis: 0 safe, 1 assumed or blackout, 2 operator
    pub basis: u8,
    /// records ever written in it
    pub n: u8,
    /// the first `cp` of them are copies: of the parent's tail (jump) or of the merged line (heal)
    pub cp: u8,
    pub rec: [u8; MR],
    /// second parent (heal): the losing line, and the writes listed in the report (bits)
    pub m_ep: u8,
    pub m_len: u8,
    pub report: u8,
}
pub const FREE: Epoch = Epoch { num: 0, zone: NONE, parent: NONE, start: 0, both: 0, k: 0, basis: 0, n: 0, cp: 0, rec: [0; MR], m_ep: NONE, m_len: 0, report: 0 };

/// One zone's server. The first block is on disk, the rest dies with the process.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub ep: u8,
    pub len: u8,
    /// how much of the log is on disk (the rest is in the kernel's memory: survives the process, not power)
    pub synced: u8,
    pub standing: u8,
    /// power was lost while a member of a two-zone epoch kept in memory (told by the boot id)
    pub dirty: u8,

    pub role: u8,
    /// machine without power (what a fence's status asks)
    pub off: u8,
    /// leader: the peer follows in this epoch / is being copied / has acknowledged so much
    pub peer_in: u8,
    pub copying: u8,
    pub peer_has: u8,
    /// leader: ticks left of the lease (0 = none)
    pub lease: u8,
    /// follower: ticks until it may serve after its last promise
    pub promise: u8,
    /// the peer certainly does not serve in this epoch: 1 ended or fenced, 2 resigned
    pub sure: u8,
    /// session: my HELLO is due / the peer's HELLO was heard / I resigned in it
    pub hello_due: u8,
    pub heard: u8,
    pub resigned_here: u8,
    /// witness: epoch asked for, answer awaited
    pub att: u8,
    /// the peer's unfinished child that it released with its RESIGN
    pub released: u8,
    /// reads=confirm: number of the pending read and the writes it must see
    pub rd: u8,
    pub rd_req: u8,
    /// mutants only: an epoch announced or used before it is on disk
    pub early: u8,
}

pub const HELLO: u8 = 1;
pub const APPEND: u8 = 2;
pub const ACK: u8 = 3;
pub const COPY: u8 = 4;
pub const EPOCH: u8 = 5;
pub const RESIGN: u8 = 6;

/// `x`: HELLO = role | standing << 2 | dirty << 4; APPEND, ACK, EPOCH = ticks left of the lease it would give
/// (stands for the send time it carries). `y`: APPEND, ACK = read to confirm.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Msg {
    pub kind: u8,
    pub ep: u8,
    pub len: u8,
    pub x: u8,
    pub y: u8,
    /// RESIGN: the sender's own unfinished epoch at the witness
    pub ep2: u8,
}
pub const NOMSG: Msg = Msg { kind: 0, ep: NONE, len: 0, x: 0, y: 0, ep2: NONE };

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub e: [Epoch; ME],
    pub node: [Node; 2],
    /// q[z]: messages on their way to zone z, in order
    pub q: [[Msg; QL]; 2],
    pub qn: [u8; 2],
    /// a session stands (false after a process died, until both reconnect)
    pub link: u8,
    /// clock of A is one tick ahead
    pub ahead: u8,
    /// witness: the epoch it holds; a request or an answer a zone (0 none, 1 asked, 2 yes, 3 no); a late copy
    pub wit: u8,
    pub w_st: [u8; 2],
    pub w_exp: [u8; 2],
    pub w_new: [u8; 2],
    pub late_exp: u8,
    pub late_new: u8,
    /// guard's word on its way: 1 = there, and the epoch on disk at death
    pub end_has: [u8; 2],
    pub end_ep: [u8; 2],
    /// zone z's fence against its peer: 1 running, 2 may still hit but counts no more, 3 said off, answer under way
    pub fence: [u8; 2],
    // ghost
    pub writes: u8,
    /// key of each write (bits)
    pub keys: u8,
    /// revision + 1 under which a client was shown the write
    pub exp: [u8; NW],
    /// writes of which power or disk loss destroyed every copy
    pub forgiven: u8,
    /// zones that ever lost power or disk
    pub lost_power: u8,
    /// two lines are allowed from here on (assumed epoch or operator)
    pub split: u8,
    pub reads: u8,
    // what may still go wrong
    pub crashes: u8,
    pub powers: u8,
    pub blanks: u8,
    pub breaks: u8,
    pub ops: u8,
    pub forgets: u8,
    pub resigns: u8,
    pub fences: u8,
}

impl State {
    /// drops epochs nobody refers to and numbers the rest in order: equal worlds become equal bytes
    // tidy: allow(function-length): the shared model, unchanged.
    pub fn canon(&mut self) {
        let mut used = [false; ME];
        let mut stack: [u8; 64] = [NONE; 64];
        let mut n = 0;
        let mut push = |x: u8, n: &mut usize| {
            if x != NONE {
                stack[*n] = x;
                *n += 1;
            }
        };
        for z in 0..2 {
            push(self.node[z].ep, &mut n);
            push(self.node[z].att, &mut n);
            push(self.node[z].released, &mut n);
            push(self.node[z].early, &mut n);
            for i in 0..self.qn[z] as usize {
                push(self.q[z][i].ep, &mut n);
                push(self.q[z][i].ep2, &mut n);
            }
            push(self.w_exp[z], &mut n);
            push(self.w_new[z], &mut n);
            push(self.end_ep[z], &mut n);
        }
        push(self.wit, &mut n);
        push(self.late_exp, &mut n);
        push(self.late_new, &mut n);
        while n > 0 {
            n -= 1;
            let x = stack[n];
            if used[x as usize] {
                continue;
            }
            used[x as usize] = true;
            for y in [self.e[x as usize].parent, self.e[x as usize].m_ep] {
                if y != NONE && !used[y as usize] {
                    stack[n] = y;
                    n += 1;
                }
            }
        }
        let mut order: [u8; ME] = [0; ME];
        let mut c = 0;
        for i in 0..ME {
            if used[i] {
                order[c] = i as u8;
                c += 1;
            }
        }
        let s = *self;
        order[..c].sort_by_key(|&i| {
            let e = &s.e[i as usize];
            (e.num, e.zone, e.both, e.start, e.n, i)
        });
        let mut map = [NONE; 256];
        for i in 0..c {
            map[order[i] as usize] = i as u8;
        }
        for i in 0..ME {
            if i < c {
                let mut e = s.e[order[i] as usize];
                e.parent = map[e.parent as usize];
                e.m_ep = map[e.m_ep as usize];
                self.e[i] = e;
            } else {
                self.e[i] = FREE;
            }
        }
        for z in 0..2 {
            self.node[z].ep = map[s.node[z].ep as usize];
            self.node[z].att = map[s.node[z].att as usize];
            self.node[z].released = map[s.node[z].released as usize];
            self.node[z].early = map[s.node[z].early as usize];
            for i in 0..QL {
                if i < s.qn[z] as usize {
                    self.q[z][i].ep = map[s.q[z][i].ep as usize];
                    self.q[z][i].ep2 = map[s.q[z][i].ep2 as usize];
                } else {
                    self.q[z][i] = NOMSG;
                }
            }
            self.w_exp[z] = map[s.w_exp[z] as usize];
            self.w_new[z] = map[s.w_new[z] as usize];
            self.end_ep[z] = map[s.end_ep[z] as usize];
        }
        self.wit = map[s.wit as usize];
        self.late_exp = map[s.late_exp as usize];
        self.late_new = map[s.late_new as usize];
    }
    pub fn ep(&self, i: u8) -> &Epoch {
        &self.e[i as usize]
    }
    /// index of a free epoch entry
    pub fn slot(&self) -> Option<u8> {
        (0..ME).find(|&i| self.e[i].zone == NONE).map(|i| i as u8)
    }
    pub fn on_line(&self, ep: u8, len: u8, w: u8) -> bool {
        let (mut e, mut hi) = (ep, len);
        while e != NONE {
            let x = self.ep(e);
            for p in x.start..hi {
                let i = (p - x.start) as usize;
                if i < MR && x.rec[i] == w {
                    return true;
                }
            }
            hi = hi.min(x.start);
            e = x.parent;
        }
        false
    }
    /// If the chain of `big` holds `e`: up to which length, and the basis of the epoch that leaves it there.
    pub fn find(&self, big: u8, e: u8) -> Option<(u8, u8)> {
        if big == NONE || e == NONE {
            return None;
        }
        let x = *self.ep(big);
        if x.parent == e {
            return Some((x.start + if x.m_ep == NONE { x.cp } else { 0 }, x.basis));
        }
        if x.m_ep == e {
            return Some((x.m_len, 9));
        }
        let a = self.find(x.parent, e);
        if a.is_some() {
            return a;
        }
        self.find(x.m_ep, e)
    }
    /// records (position, write) of the line above `from`
    pub fn suffix(&self, ep: u8, len: u8, from: u8, out: &mut [u8; 32]) -> usize {
        let mut n = 0;
        for p in from..len {
            let (mut e, mut hi) = (ep, len);
            while e != NONE {
                let x = self.ep(e);
                if p >= x.start && p < hi {
                    let i = (p - x.start) as usize;
                    if i < MR && x.rec[i] != 0 {
                        out[n] = x.rec[i];
                        n += 1;
                    }
                    break;
                }
                hi = hi.min(x.start);
                e = x.parent;
            }
        }
        n
    }
    pub fn key(&self, w: u8) -> u8 {
        (self.keys >> w) & 1
    }
    /// is write `w` on this line, in one of its reports, or superseded on a line it merged?
    pub fn accounted(&self, ep: u8, len: u8, w: u8) -> bool {
        if self.on_line(ep, len, w) {
            return true;
        }
        let mut e = ep;
        while e != NONE {
            let x = *self.ep(e);
            if x.m_ep != NONE {
                if x.report >> w & 1 == 1 {
                    return true;
                }
                if self.on_line(x.m_ep, x.m_len, w) {
                    // a later write of the same key on that line stands for it
                    let mut o = [0u8; 32];
                    let n = self.suffix(x.m_ep, x.m_len, 0, &mut o);
                    let at = (0..n).find(|&i| o[i] == w).unwrap_or(n);
                    if (at + 1..n).any(|i| self.key(o[i]) == self.key(w)) {
                        return true;
                    }
                }
                if self.accounted(x.m_ep, x.m_len, w) && !self.on_line(x.m_ep, x.m_len, w) {
                    return true;
                }
            }
            e = x.parent;
        }
        false
    }
}
