//! Swaps at the witness: V5, V6.

use super::config::{Policy, Time};
use super::decide::Jump;
use super::epoch::{Basis, EpochId, Header, Members};
use super::machine::{Answer, Ask, Effect, Purpose, Sure, Zone};
use super::message::{Role, Standing};

impl Zone {
    /// The header that a swap for `purpose` is for, if the rules permit the swap; `held` is what
    /// the witness holds. The one of [`Purpose::Register`] is the last epoch's.
    pub(super) fn proposal(
        &self,
        now: Time,
        purpose: Purpose,
        held: Option<EpochId>,
    ) -> Option<Header> {
        if self.config.policy != Policy::Witness || self.ask.is_some() {
            return None;
        }
        match purpose {
            Purpose::Alone => self.proposal_alone(now, held),
            Purpose::Pair => {
                let leads = self.role == Role::Lead && !self.is_pair();
                let ready = leads && now >= self.promise_until && self.copied();
                let number = self.next_number().max(number_above(held));
                (ready && self.fits(held))
                    .then(|| self.header(number, Members::Pair, Basis::Joined, Jump::No))
            }
            Purpose::Register => self.tip().filter(|_| self.may_register(now, held)).copied(),
            Purpose::Merge => {
                let lost = self.lost.as_ref()?;
                let leads = self.role == Role::Lead && !self.is_pair();
                let new = lost.granted.is_none();
                (leads && new && self.fits(held)).then(|| self.merge_header(lost, held))
            }
        }
    }

    fn proposal_alone(&self, now: Time, held: Option<EpochId>) -> Option<Header> {
        let tip = self.tip()?;
        let any = mutant!(self, witness_without_set);
        let sure = self.sure != Sure::No;
        let resigned = matches!(self.sure, Sure::Resigned(_));
        let suspects = self.role != Role::Follow || self.silent_since_promise(now) || sure;
        let pair = self.is_pair();
        let permitted = (self.role != Role::Lead || pair)
            && (self.standing == Standing::Member || any)
            && (!self.dirty || resigned) // D1
            && (pair || tip.id.zone() == self.config.zone || any);
        let consent = held.is_none() && sure && mutant!(self, witness_init_by_consent);
        if !suspects || !permitted || !(self.fits(held) || consent) {
            return None;
        }
        let number = self.next_number().max(number_above(held));
        let jumps = self.dirty && !mutant!(self, blackout_counts_on);
        let jump = if jumps { Jump::Above(0) } else { Jump::No };
        let basis = if self.dirty { Basis::Blackout } else { Basis::Witness };
        Some(self.header(number, Members::Alone, basis, jump))
    }

    /// Whether the clock has moved since the last promise.
    fn silent_since_promise(&self, now: Time) -> bool {
        let timers = self.config.timers;
        let wait = if mutant!(self, no_drift_margin) { timers.lease } else { timers.promote };
        self.promise_until.since(now) < wait
    }

    /// V5: exactly my last epoch, my own unfinished child of it, or the peer's that its RESIGN
    /// named.
    fn fits(&self, held: Option<EpochId>) -> bool {
        let (Some(held), Some(tip)) = (held, self.tip()) else { return false };
        let child = held.parent() == tip.id.digest();
        let own = child && held.zone() == self.config.zone;
        let released = match self.sure {
            Sure::Resigned(named) => named == Some(held) || mutant!(self, release_any) && child,
            _ => false,
        };
        held == tip.id || own || released || mutant!(self, witness_without_set)
    }

    /// V6: alone in its own epoch, or a pair that was renewed with all acknowledged.
    fn may_register(&self, now: Time, held: Option<EpochId>) -> bool {
        let (Some(chain), None) = (&self.chain, held) else { return false };
        let tip = chain.tip().id;
        let own = tip.zone() == self.config.zone && self.standing == Standing::Member;
        let leads = self.role == Role::Lead;
        let parent = chain.header(tip.parent());
        let renewed = parent.is_some_and(|p| p.id.members() == Members::Pair);
        let in_sync = mutant!(self, witness_init_in_sync) && leads && now < self.lease_until;
        match tip.members() {
            Members::Alone => own || in_sync,
            Members::Pair => leads && self.peer.member && renewed || in_sync,
        }
    }

    pub(super) fn ask(
        &mut self,
        now: Time,
        purpose: Purpose,
        held: Option<EpochId>,
        fx: &mut Vec<Effect>,
    ) {
        let Some(header) = self.proposal(now, purpose, held) else { return };
        self.ask = Some(Ask { purpose, header });
        fx.push(Effect::Swap { expected: held, new: header.id });
    }

    /// An answer to a swap that was withdrawn meanwhile finds no ask, and changes nothing.
    pub(super) fn swapped(
        &mut self,
        now: Time,
        new: EpochId,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) {
        let Some(ask) = self.ask.filter(|ask| ask.header.id == new) else { return };
        self.ask = None;
        if answer != Answer::Swapped {
            return;
        }
        self.witness = Some(new);
        let child = self.tip().is_some_and(|tip| tip.id.digest() == new.parent());
        let alone = !self.is_pair();
        let leads = self.role == Role::Lead;
        match ask.purpose {
            Purpose::Alone if child && !(leads && alone) => {
                self.enter(now, ask.header, fx);
                if alone && mutant!(self, restart_serves_at_once) {
                    self.promise_until = now;
                }
            }
            Purpose::Pair if child && leads && self.copied() => {
                self.enter(now, ask.header, fx);
                self.peer.copying = true;
            }
            Purpose::Merge if child => {
                if let Some(lost) = &mut self.lost {
                    lost.granted = Some(new);
                }
            }
            _ => {}
        }
    }

    /// Withdraws a swap; it may still happen at the witness.
    pub(super) fn drop_ask(&mut self) {
        self.ask = self.ask.filter(|ask| ask.purpose == Purpose::Register);
    }
}

fn number_above(held: Option<EpochId>) -> u64 {
    held.map_or(0, |epoch| epoch.number() + 1)
}
