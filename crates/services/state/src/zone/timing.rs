//! When a zone takes the decisions that its rules permit. No rule depends on this module: a tick
//! that comes late, or not at all, breaks nothing.

use super::config::{Policy, Time};
use super::epoch::EpochId;
use super::machine::{Decision, Effect, Purpose, Sure, Zone};
use super::message::Role;

impl Zone {
    /// Takes what is due. Called after each input and at [`Zone::wake`].
    pub fn tick(&mut self, now: Time, fx: &mut Vec<Effect>) {
        self.decide(now, Decision::Hello, fx);
        if self.heartbeat_is_due(now) {
            self.decide(now, Decision::Append, fx);
            self.decide(now, Decision::Epoch, fx);
        }
        if self.last.copied != Some(self.length) {
            self.decide(now, Decision::Copy, fx);
        }
        self.decide(now, Decision::Restart, fx);
        self.decide(now, Decision::Pair, fx);
        if self.is_suspicious(now) {
            self.continue_alone(now, fx);
        }
        if self.wants_witness(now) {
            self.last.witness = Some(now);
            fx.push(Effect::ReadWitness);
        }
    }

    /// Takes the decisions that what the witness holds permits; called after the reading.
    pub fn witness_was_read(&mut self, now: Time, held: Option<EpochId>, fx: &mut Vec<Effect>) {
        self.witness = held;
        let alone = self.is_suspicious(now);
        let purposes = [Purpose::Merge, Purpose::Pair, Purpose::Register, Purpose::Alone];
        for purpose in purposes {
            if purpose != Purpose::Alone || alone {
                self.decide(now, Decision::Swap { purpose, held }, fx);
            }
        }
        if held.is_none() && self.ask.is_none() {
            self.decide(now, Decision::Renew, fx);
        }
    }

    /// When [`Zone::tick`] is to be called if no input comes before.
    #[must_use]
    pub fn wake(&self, now: Time) -> Time {
        now.after(self.config.timers.heartbeat)
    }

    /// The records of this batch go out at once; a commit that none carries, too.
    pub fn send_now(&mut self, now: Time, fx: &mut Vec<Effect>) {
        self.decide(now, Decision::Append, fx);
    }

    fn heartbeat_is_due(&self, now: Time) -> bool {
        let every = self.config.timers.heartbeat;
        self.last.sent.is_none_or(|sent| now.since(sent) >= every)
    }

    /// Whether the peer was silent for as long as the role asks for, or is known to be gone.
    fn is_suspicious(&self, now: Time) -> bool {
        let timers = self.config.timers;
        if self.sure != Sure::No {
            return true;
        }
        match self.role {
            Role::Lead => now.since(self.last.answered) >= timers.suspect,
            Role::Follow => self.promise_age(now) >= timers.suspect,
            Role::Join => match self.config.policy {
                Policy::Available => timers
                    .start_alone_after
                    .is_some_and(|after| now.since(self.last.started) >= after),
                Policy::Witness => now.since(self.last.started) >= timers.suspect,
                _ => false,
            },
        }
    }

    fn promise_age(&self, now: Time) -> u64 {
        let promote = self.config.timers.promote;
        promote.saturating_sub(self.promise_until.since(now))
    }

    fn continue_alone(&mut self, now: Time, fx: &mut Vec<Effect>) {
        self.decide(now, Decision::Alone, fx);
        let delay = match self.role {
            Role::Follow => self.config.timers.fence_delay,
            _ => 0,
        };
        let silent = match self.role {
            Role::Follow => {
                self.config.timers.promote.saturating_add(now.since(self.promise_until))
            }
            _ => now.since(self.last.answered),
        };
        if self.sure == Sure::No && silent >= self.config.timers.suspect.saturating_add(delay) {
            self.decide(now, Decision::Fence, fx);
        }
    }

    /// Whether something waits for the witness; asked once each T_suspect.
    fn wants_witness(&self, now: Time) -> bool {
        let every = self.config.timers.suspect;
        let waited = self.last.witness.is_none_or(|asked| now.since(asked) >= every);
        let due = waited || self.sure != Sure::No;
        if self.config.policy != Policy::Witness || self.ask.is_some() || !due {
            return false;
        }
        let tip = self.tip().map(|tip| tip.id);
        let unregistered = self.role == Role::Lead && self.witness != tip;
        let leads_alone = self.role == Role::Lead && !self.is_pair();
        let joins = leads_alone && now >= self.promise_until && self.copied();
        let merges = leads_alone && self.lost.as_ref().is_some_and(|l| l.granted.is_none());
        let leaves = self.is_suspicious(now) && !leads_alone && tip.is_some();
        unregistered || joins || merges || leaves
    }
}
