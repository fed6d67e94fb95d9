//! Meeting: J1 to J4, at each HELLO.

use super::config::Time;
use super::epoch::{Basis, Chain, Contained, Link, Members, Relation};
use super::machine::{Effect, Peer, Sure, Zone};
use super::message::{Hello, Message, Resign, Role, Standing};

impl Zone {
    pub(super) fn meet(&mut self, now: Time, hello: Hello, fx: &mut Vec<Effect>) {
        if hello.cluster != self.config.cluster {
            return fx.push(Effect::RefuseCluster { cluster: hello.cluster });
        }
        self.session.heard = true;
        match self.relation(hello.chain.as_ref(), hello.length) {
            Relation::TwoLines => self.meet_other_line(now, &hello, fx),
            Relation::PeerNewer => self.meet_newer(now, hello, fx),
            Relation::MineNewer => self.meet_older(&hello),
            Relation::Same if self.chain.is_some() => self.meet_same(now, &hello, fx),
            Relation::Same => {}
        }
    }

    /// Section 7, step 2: the loser ends its line. An outsider's line was never its own to end,
    /// but may hold what was acknowledged: it is handed over.
    fn meet_other_line(&mut self, now: Time, hello: &Hello, fx: &mut Vec<Effect>) {
        let (Some(mine), Some(theirs)) = (self.chain.clone(), &hello.chain) else { return };
        if hello.role != Role::Lead {
            return;
        }
        if self.standing == Standing::Outsider {
            send_resign(mine, self.length, fx);
        } else if !wins(&mine, theirs) {
            self.resign(now, fx);
        }
    }

    /// J3: the peer's chain contains my line.
    fn meet_newer(&mut self, now: Time, hello: Hello, fx: &mut Vec<Effect>) {
        let Some(theirs) = hello.chain else { return };
        let pair = theirs.tip().id.members() == Members::Pair;
        if mutant!(self, blank_resigns) && self.chain.is_none() && pair {
            send_resign(theirs, hello.length, fx);
        } else if hello.role == Role::Lead {
            self.become_outsider(now, fx);
            self.session.hello_due = true;
            self.drop_ask();
        } else if self.chain.is_some() && pair {
            self.become_outsider(now, fx);
            self.session.resigned = true;
            send_resign(theirs, hello.length, fx);
        }
    }

    fn become_outsider(&mut self, now: Time, fx: &mut Vec<Effect>) {
        self.commit = self.commit.max(self.committed(now).unwrap_or(0));
        if self.standing != Standing::Outsider {
            fx.push(Effect::Outsider);
        }
        (self.standing, self.role, self.dirty) = (Standing::Outsider, Role::Join, false);
        (self.peer, self.sure, self.lost) = (Peer::default(), Sure::No, None);
        self.lease_until = Time::default();
        self.reads_done = self.reads_asked;
    }

    /// The peer's line is a part of mine: it is copied, if I lead.
    fn meet_older(&mut self, hello: &Hello) {
        if self.role != Role::Lead {
            return;
        }
        let waits = !self.peer.member && hello.chain.is_some();
        if !self.is_pair() || waits {
            self.start_copying();
        } else {
            self.peer = Peer::default();
        }
    }

    fn start_copying(&mut self) {
        self.peer = Peer { copying: true, member: self.peer.member, stored: 0, durable: 0 };
        self.last.copied = None;
    }

    /// J1, J2, and members that meet again in their epoch.
    fn meet_same(&mut self, now: Time, hello: &Hello, fx: &mut Vec<Effect>) {
        let pair = self.is_pair();
        match (self.role, hello.role) {
            (Role::Lead, Role::Follow) if pair => {
                self.peer.member = true;
                self.peer.stored = hello.length.min(self.length);
                self.peer.durable = hello.synced.min(self.length);
            }
            (Role::Lead, _) if !pair => self.start_copying(),
            (Role::Lead, _) => {
                self.peer = Peer { copying: self.peer.copying, ..Peer::default() };
            }
            (Role::Join, Role::Lead) if pair && self.standing == Standing::Member => {
                self.resign(now, fx);
            }
            (Role::Join, Role::Lead) => {
                if self.standing != Standing::Outsider {
                    fx.push(Effect::Outsider);
                }
                (self.standing, self.dirty) = (Standing::Outsider, false);
            }
            (Role::Follow | Role::Join, Role::Follow | Role::Join)
                if pair && self.is_lesser(hello) =>
            {
                self.resign(now, fx);
            }
            _ => {}
        }
    }

    /// J2: not dirty > FOLLOW > longer > led it.
    fn is_lesser(&self, hello: &Hello) -> bool {
        let led = self.tip().map(|tip| tip.id.zone());
        let rank = |dirty: bool, role: Role, length: u64, zone| {
            (!dirty, !dirty && role == Role::Follow, length, led == Some(zone))
        };
        let zone = self.config.zone;
        rank(self.dirty, self.role, self.length, zone)
            < rank(hello.dirty, hello.role, hello.length, zone.peer())
    }

    /// J4: relation of my line to the peer's.
    pub(super) fn relation(&self, theirs: Option<&Chain>, length: u64) -> Relation {
        let mine = self.chain.as_ref();
        if mutant!(self, join_longest) {
            return longest(mine.map(|c| (c, self.length)), theirs.map(|c| (c, length)));
        }
        let (mine, theirs) = match (mine, theirs) {
            (None, None) => return Relation::Same,
            (None, Some(_)) => return Relation::PeerNewer,
            (Some(_), None) => return Relation::MineNewer,
            (Some(mine), Some(theirs)) => (mine, theirs),
        };
        let (my_id, their_id) = (mine.tip().id, theirs.tip().id);
        let numbers = mutant!(self, epoch_by_number) && my_id.number() == their_id.number();
        if my_id == their_id || numbers {
            return Relation::Same;
        }
        if let Some(found) = theirs.contains(my_id) {
            return self.judged(self.length, found, Relation::PeerNewer);
        }
        match mine.contains(their_id) {
            Some(found) => self.judged(length, found, Relation::MineNewer),
            None => Relation::TwoLines,
        }
    }

    /// Two lines after all, if the contained one is longer and the excess may be another's.
    fn judged(&self, length: u64, found: Contained, relation: Relation) -> Relation {
        let merge = found.link == Link::Merge;
        if mutant!(self, heal_again) && merge {
            return Relation::TwoLines;
        }
        let excess = length > found.length
            && found.link != Link::Safe
            && !mutant!(self, excess_ignored)
            && !(mutant!(self, heal_without_resign) && merge);
        if excess { Relation::TwoLines } else { relation }
    }
}

pub(super) fn send_resign(chain: Chain, length: u64, fx: &mut Vec<Effect>) {
    fx.push(Effect::Send(Message::Resign(Resign { chain, length, unfinished: None })));
}

/// Section 7: `operator`, then the higher number, then zone A. A line that contains the other
/// one's last epoch wins, whatever the excess is.
fn wins(mine: &Chain, theirs: &Chain) -> bool {
    if theirs.contains(mine.tip().id).is_some() {
        return false;
    }
    if mine.contains(theirs.tip().id).is_some() {
        return true;
    }
    let rank = |chain: &Chain| {
        let tip = chain.tip();
        let zone = std::cmp::Reverse(tip.id.zone());
        (tip.basis == Basis::Operator, tip.id.number(), zone)
    };
    rank(mine) > rank(theirs)
}

/// The mutant's rule: number, length, zone.
fn longest(mine: Option<(&Chain, u64)>, theirs: Option<(&Chain, u64)>) -> Relation {
    let tip = |line: Option<(&Chain, u64)>| line.map(|(chain, _)| chain.tip().id);
    if tip(mine) == tip(theirs) {
        return Relation::Same;
    }
    let rank = |line: Option<(&Chain, u64)>| {
        line.map(|(chain, length)| {
            let id = chain.tip().id;
            (id.number(), length, id.zone())
        })
    };
    if rank(mine) < rank(theirs) { Relation::PeerNewer } else { Relation::MineNewer }
}
