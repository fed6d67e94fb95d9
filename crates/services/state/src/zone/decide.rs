//! What a zone does by itself: messages, new epochs (N1 to N4), resigning. Each decision has its
//! rule in [`Zone::can`], without timers.

use super::config::ZoneName;
use super::config::{Policy, Time};
use super::epoch::{Basis, EpochId, Header, Members, MergedLine, REVISION_STRIDE, Relation};
use super::machine::{Decision, Effect, Lost, Peer, Sure, Zone};
use super::message::{Append, CopyDone, Hello, Message, NewEpoch, Resign, Role, Standing};

impl Zone {
    /// Whether the rules permit `decision` now.
    #[must_use]
    pub fn can(&self, now: Time, decision: Decision) -> bool {
        let leads = self.role == Role::Lead;
        let sends = leads && self.talks();
        match decision {
            Decision::Hello => self.session.hello_due,
            Decision::Append => sends && self.is_pair() && self.peer.member,
            Decision::Copy => {
                let lacks = self.peer.stored < self.length || self.peer.stored == 0;
                sends && !self.is_pair() && self.peer.copying && lacks
            }
            Decision::Epoch => sends && self.is_pair() && self.peer.copying && !self.peer.member,
            Decision::Alone => self.evidence(now).is_some(),
            Decision::Restart => self.can_restart(),
            Decision::Pair => {
                let local = self.config.policy != Policy::Witness;
                local && leads && !self.is_pair() && now >= self.promise_until && self.copied()
            }
            Decision::Renew => self.can_renew(),
            Decision::Swap { purpose, held } => self.proposal(now, purpose, held).is_some(),
            Decision::Resign => self.can_resign(),
            Decision::Fence => self.can_fence(),
            Decision::StartAlone => !leads && self.chain.is_some(),
        }
    }

    pub(super) fn decide(&mut self, now: Time, decision: Decision, fx: &mut Vec<Effect>) {
        if !self.can(now, decision) {
            return;
        }
        match decision {
            Decision::Hello => self.send_hello(fx),
            Decision::Append => self.send_append(now, fx),
            Decision::Copy => self.send_copy(now, fx),
            Decision::Epoch => self.send_epoch(now, fx),
            Decision::Alone => self.go_alone(now, fx),
            Decision::Restart => self.restart(now, fx),
            Decision::Pair | Decision::Renew => {
                let number = self.next_number();
                let header = self.header(number, Members::Pair, Basis::Joined, Jump::No);
                self.enter(now, header, fx);
                self.peer.copying = true;
            }
            Decision::Swap { purpose, held } => self.ask(now, purpose, held, fx),
            Decision::Resign => self.resign(now, fx),
            Decision::Fence => {
                self.fencing = Some(self.session.number);
                fx.push(Effect::Fence { session: self.session.number });
            }
            Decision::StartAlone => self.start_alone(now, fx),
        }
    }

    // ---- messages -------------------------------------------------------------------------------

    fn send_hello(&mut self, fx: &mut Vec<Effect>) {
        self.session.hello_due = false;
        fx.push(Effect::Send(Message::Hello(Hello {
            cluster: self.config.cluster,
            role: self.role,
            standing: self.standing,
            dirty: self.dirty,
            chain: self.chain.clone(),
            length: self.length,
            synced: self.synced,
        })));
    }

    fn send_append(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let Some(epoch) = self.tip().map(|tip| tip.id) else { return };
        let commit = self.committed(now).unwrap_or(0);
        self.last.sent = Some(now);
        let (length, read) = (self.length, self.reads_asked);
        fx.push(Effect::Send(Message::Append(Append { epoch, length, commit, sent: now, read })));
    }

    fn send_copy(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let Some(chain) = self.chain.clone() else { return };
        let commit = self.committed(now).unwrap_or(0);
        let length = self.length;
        self.last.copied = Some(length);
        fx.push(Effect::Send(Message::Copy(CopyDone { chain, length, commit })));
    }

    fn send_epoch(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let Some(chain) = self.chain.clone() else { return };
        self.last.sent = Some(now);
        fx.push(Effect::Send(Message::Epoch(NewEpoch { chain, sent: now })));
    }

    // ---- rules ----------------------------------------------------------------------------------

    /// N2: what permits a member of a pair to continue alone now, without the witness.
    fn evidence(&self, now: Time) -> Option<Basis> {
        let local = self.config.policy != Policy::Witness
            || mutant!(self, removal_not_at_witness) && self.role == Role::Lead;
        if !local || !self.is_pair() || self.standing != Standing::Member {
            return None;
        }
        let up = self.role != Role::Join;
        match self.sure {
            Sure::Resigned(_) if self.dirty => return Some(Basis::Blackout), // D1
            Sure::Resigned(_) => return Some(Basis::Resigned),
            Sure::Ended if !self.dirty => return Some(Basis::Ended),
            Sure::Fenced if !self.dirty => return Some(Basis::Fenced),
            _ if mutant!(self, reset_is_evidence) && up => return Some(Basis::Ended),
            _ if self.dirty => return None,
            _ => {}
        }
        let silent = self.role == Role::Lead || now >= self.promise_until;
        match self.config.policy {
            Policy::Preferred(zone) => {
                let mine = zone == self.config.zone || mutant!(self, silence_for_both);
                let up = up || mutant!(self, preferred_in_join);
                (mine && up && silent).then_some(Basis::Silence) // V3
            }
            Policy::Available => {
                let up = up || self.config.timers.start_alone_after.is_some();
                (up && silent).then_some(Basis::Assumed) // V3
            }
            Policy::Witness => Some(Basis::Witness), // only the mutant comes here
            _ => None,
        }
        .or((mutant!(self, member_leads_after_restart) && !up).then_some(Basis::Restart))
    }

    /// N3: alone before, so alone again, in an epoch of this process.
    fn can_restart(&self) -> bool {
        let own = self.tip().is_some_and(|tip| {
            tip.id.zone() == self.config.zone && tip.id.members() == Members::Alone
        });
        let local = self.config.policy != Policy::Witness;
        let member = self.role == Role::Join && self.standing == Standing::Member;
        own && local && member && !self.session.resigned
    }

    /// N4: the outsider has all.
    pub(super) fn copied(&self) -> bool {
        let all = self.peer.stored == self.length && self.peer.stored > 0;
        let all = all || self.length == 0 || mutant!(self, member_before_copied);
        self.session.heard && self.peer.copying && all
    }

    /// V6: a new epoch of the pair, with all acknowledged.
    fn can_renew(&self) -> bool {
        let asks = self.ask.is_some_and(|ask| ask.purpose != super::Purpose::Register);
        let acknowledged = self.peer.member && self.peer.stored == self.length;
        let pair = self.role == Role::Lead && self.is_pair();
        self.config.policy == Policy::Witness && pair && acknowledged && !asks
    }

    /// V1: a leader hands over what is acknowledged; a follower may leave at any time.
    fn can_resign(&self) -> bool {
        let member = self.is_pair() && self.standing == Standing::Member;
        let complete = match self.role {
            Role::Follow => true,
            Role::Lead => self.peer.member && self.peer.stored == self.length,
            Role::Join => false,
        };
        member && complete && self.talks() && self.sure == Sure::No
    }

    /// V4: never in JOIN.
    fn can_fence(&self) -> bool {
        let up = self.role != Role::Join || mutant!(self, join_fences);
        let member = self.is_pair() && self.standing == Standing::Member;
        self.config.policy == Policy::Fence && up && member && self.fencing.is_none()
    }

    // ---- new epochs -----------------------------------------------------------------------------

    pub(super) fn next_number(&self) -> u64 {
        self.tip().map_or(0, |tip| tip.id.number()) + 1
    }

    /// The header of a child of the last epoch; [`Zone::enter`] sets its start.
    pub(super) fn header(&self, number: u64, members: Members, basis: Basis, jump: Jump) -> Header {
        let parent = self.tip().map_or(0, |tip| tip.id.digest());
        let base = self.tip().map_or(0, |tip| tip.revision_base);
        let revision_base = match jump {
            Jump::No => base,
            Jump::Above(other) => self.jump(base.max(other)),
        };
        let id = EpochId::new(number, self.config.zone, members, parent);
        Header { id, start: self.length, basis, revision_base, copied: 0, merged: None }
    }

    /// The next multiple of 2^36 of this zone's parity above all it knows (section 6).
    fn jump(&self, base: u64) -> u64 {
        let stride = base.max(self.revision) / REVISION_STRIDE + 1;
        let odd = u64::from(self.config.zone == ZoneName::B);
        (stride + (stride + odd) % 2) * REVISION_STRIDE
    }

    fn go_alone(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let Some(basis) = self.evidence(now) else { return };
        let follower =
            basis == Basis::Assumed && self.role != Role::Lead && !mutant!(self, assumed_counts_on);
        let blackout = self.dirty && !mutant!(self, blackout_counts_on);
        let jump = if follower || blackout { Jump::Above(0) } else { Jump::No };
        if mutant!(self, reset_is_evidence) {
            self.sure = Sure::Ended;
        }
        let header = self.header(self.next_number(), Members::Alone, basis, jump);
        self.enter(now, header, fx);
    }

    fn restart(&mut self, now: Time, fx: &mut Vec<Effect>) {
        if mutant!(self, same_epoch_after_restart) {
            self.role = Role::Lead;
            self.session.hello_due = true;
            return;
        }
        let header = self.header(self.next_number(), Members::Alone, Basis::Restart, Jump::No);
        self.enter(now, header, fx);
        if mutant!(self, restart_serves_at_once) {
            self.promise_until = now;
        }
    }

    /// Section 6: asserts that the peer is down until it is heard.
    fn start_alone(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let jump = if mutant!(self, operator_counts_on) { Jump::No } else { Jump::Above(0) };
        let header = self.header(self.next_number(), Members::Alone, Basis::Operator, jump);
        self.sure = Sure::Operator;
        self.enter(now, header, fx);
        if self.config.policy == Policy::Witness {
            self.drop_ask();
            self.witness = Some(header.id);
            fx.push(Effect::Overwrite(header.id));
        }
    }

    /// N1: log, header and `member` on disk before anything that depends on them.
    pub(super) fn enter(&mut self, now: Time, mut header: Header, fx: &mut Vec<Effect>) {
        let Some(chain) = &self.chain else { return };
        let alone = header.id.members() == Members::Alone;
        header.start = self.length;
        let jumps = header.revision_base != chain.tip().revision_base;
        if jumps && !mutant!(self, jump_keeps_tail) {
            // Above the known commit another line may use the revisions: written again.
            header.start = self.known_commit().max(chain.tip().start.min(self.length));
            header.copied = self.length - header.start;
        }
        let chain = chain.extended(header, None);
        if !(mutant!(self, no_sync_at_promotion) && alone) {
            fx.push(Effect::SyncLog);
            self.synced = self.length;
        }
        fx.push(self.entered(header));
        let led = self.role == Role::Lead;
        if led || self.sure != Sure::No || mutant!(self, serve_at_once) {
            self.promise_until = now; // S3
        }
        (self.chain, self.standing, self.dirty) = (Some(chain), Standing::Member, false);
        self.commit = self.commit.max(header.start);
        self.leads_since(now);
    }

    #[cfg(feature = "model-check")]
    fn entered(&self, header: Header) -> Effect {
        let alone = header.id.members() == Members::Alone;
        let late = if alone {
            mutant!(self, removal_not_durable) && self.role == Role::Lead
        } else {
            mutant!(self, grant_before_durable)
        };
        if late { Effect::EnterLater(header) } else { Effect::Enter(header) }
    }

    #[cfg(not(feature = "model-check"))]
    fn entered(&self, header: Header) -> Effect {
        Effect::Enter(header)
    }

    fn leads_since(&mut self, now: Time) {
        self.role = Role::Lead;
        self.sure = Sure::No;
        self.lease_until = Time::default();
        let copying = self.peer.copying && self.is_pair();
        self.peer = Peer { copying, ..Peer::default() };
        self.session.hello_due = true;
        self.reads_done = self.reads_asked;
        self.lost = None;
        self.drop_ask();
        self.last.answered = now;
        self.last.copied = None;
    }

    /// V1: sent after the role is JOIN.
    pub(super) fn resign(&mut self, now: Time, fx: &mut Vec<Effect>) {
        let Some(chain) = self.chain.clone() else { return };
        self.commit = self.commit.max(self.committed(now).unwrap_or(0));
        let tip = *chain.tip();
        if !(mutant!(self, heal_without_resign) && tip.id.members() == Members::Alone) {
            self.role = Role::Join;
        }
        (self.sure, self.lost) = (Sure::No, None);
        self.peer = Peer::default();
        self.lease_until = Time::default();
        self.session.resigned = true;
        self.reads_done = self.reads_asked;
        self.drop_ask();
        let own =
            |epoch: &EpochId| epoch.zone() == self.config.zone && epoch.parent() == tip.id.digest();
        let unfinished = self.witness.filter(own);
        let length = self.length;
        fx.push(Effect::Send(Message::Resign(Resign { chain, length, unfinished })));
        #[cfg(feature = "model-check")]
        self.forget_line(fx);
    }

    /// The mutant that forgets its line before the merge.
    #[cfg(feature = "model-check")]
    fn forget_line(&mut self, fx: &mut Vec<Effect>) {
        let Some(chain) = &self.chain else { return };
        if !mutant!(self, heal_discards_first) || self.is_pair() {
            return;
        }
        let headers = chain.headers();
        let length = chain.tip().start;
        let Some(chain) = super::Chain::new(&headers[..headers.len() - 1]) else { return };
        fx.push(Effect::Adopt { chain: chain.clone(), length, standing: Standing::Outsider });
        (self.chain, self.length, self.synced) = (Some(chain), length, length);
        self.standing = Standing::Outsider;
    }

    // ---- section 7 ------------------------------------------------------------------------------

    /// The header of a merge with the lost line, by the higher of the known numbers.
    pub(super) fn merge_header(&self, lost: &Lost, held: Option<EpochId>) -> Header {
        let tip = lost.chain.tip();
        let known = tip.id.number().max(held.map_or(0, |epoch| epoch.number()));
        let number = self.next_number().max(known + 1);
        let jump =
            if mutant!(self, heal_no_jump) { Jump::No } else { Jump::Above(tip.revision_base) };
        let mut header = self.header(number, Members::Alone, Basis::Merged, jump);
        header.merged = Some(MergedLine { epoch: tip.id, length: lost.length });
        header
    }

    /// Step 3: one atomic batch of header, results and report.
    pub(super) fn merge(&mut self, now: Time, results: u64, fx: &mut Vec<Effect>) {
        let Some(lost) = self.lost.clone() else { return };
        let leads = self.role == Role::Lead && !self.is_pair();
        let two = self.relation(Some(&lost.chain), lost.length) == Relation::TwoLines;
        if !leads || !two {
            return;
        }
        let mut header = self.merge_header(&lost, None);
        if self.config.policy == Policy::Witness {
            let parent = self.tip().map_or(0, |tip| tip.id.digest());
            let Some(id) = lost.granted.filter(|id| id.parent() == parent) else { return };
            header.id = id;
        }
        header.copied = results;
        let Some(chain) = self.chain.as_ref().map(|c| c.extended(header, Some(&lost.chain))) else {
            return;
        };
        fx.push(Effect::SyncLog);
        fx.push(Effect::Enter(header));
        self.chain = Some(chain);
        self.length = header.start + results;
        self.synced = self.length;
        self.commit = self.commit.max(header.start);
        self.session.hello_due = true;
        self.peer = Peer::default();
        self.lost = None;
        self.last.answered = now;
    }
}

/// Whether revisions jump, and above which base of another line.
#[derive(Clone, Copy)]
pub(super) enum Jump {
    No,
    Above(u64),
}
