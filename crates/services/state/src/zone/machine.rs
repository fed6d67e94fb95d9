//! The state of a zone, its inputs and effects; messages that carry records.

use super::config::{Config, Durability, Reads, Time, ZoneName};
use super::epoch::{Chain, EpochId, Header, Members, Relation};
use super::message::{Ack, Append, CopyDone, Message, NewEpoch, Resign, Role, Standing};

/// What a zone has on its disk, as its process finds it.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// The headers of its line; `None`: blank.
    pub chain: Option<Chain>,
    /// The length of its log.
    pub length: u64,
    /// The commit length last written down.
    pub commit: u64,
    /// Whether its last epoch counts for it.
    pub standing: Standing,
    /// The kernel's boot id that was written with `standing`.
    pub boot: u128,
    /// Stopped cleanly after a full sync, and nothing was appended since.
    pub whole: Whole,
}

/// Whether a log is known to be all on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// The process stopped cleanly after a full sync.
    Yes,
    /// Anything else.
    No,
}

impl Stored {
    /// Dirty: a member of a pair that keeps records in memory lost power since (section 2).
    #[must_use]
    pub fn is_dirty(&self, durability: Durability, boot: u128) -> bool {
        let pair = self.chain.as_ref().is_some_and(|c| c.tip().id.members() == Members::Pair);
        let member = pair && self.standing == Standing::Member;
        let lost = self.boot != boot && self.whole == Whole::No;
        member && durability == Durability::Memory && lost
    }
}

/// What happens to a zone. Each is given with the zone's clock.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// A session stands; its number is above those of all earlier ones of this process.
    Session(u64),
    /// A message of a session, in its order. The records that come with it follow the effects.
    Message {
        /// The session's number.
        session: u64,
        /// The message.
        message: Message,
    },
    /// Takes a decision, if its rule permits it now. [`super::Zone::tick`] takes those due.
    Decide(Decision),
    /// Clients' records were appended to the leader's log.
    Wrote {
        /// The log's length.
        length: u64,
    },
    /// The log is on disk.
    Synced {
        /// Up to this length.
        length: u64,
    },
    /// The guard of the peer reports its death (V2).
    Ended {
        /// The last epoch on its disk.
        epoch: Option<EpochId>,
    },
    /// The fence command ended with success; its status decides (V4).
    FenceDone {
        /// The session in which it was started.
        session: u64,
    },
    /// What the power controller says of the peer after a fence (V4).
    FenceStatus {
        /// The session in which the fence was started.
        session: u64,
        /// The status.
        power: Power,
    },
    /// The witness answered a swap (V5).
    Swapped {
        /// The epoch that was asked for.
        new: EpochId,
        /// The answer.
        answer: Answer,
    },
    /// The witness was read; kept for RESIGN.
    WitnessHolds(Option<EpochId>),
    /// The lost line of [`Effect::Heal`] is stored and synced here, and a merge of it with the
    /// log as it is now writes so many records (section 7).
    Merge {
        /// Records of the one batch behind the header.
        results: u64,
    },
}

/// What a power controller says of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Power {
    /// It has power.
    On,
    /// It has none.
    Off,
}

/// A witness's answer to a swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It holds the new epoch.
    Swapped,
    /// It held another one than expected.
    Refused,
    /// None came; the swap may still happen.
    Lost,
}

/// A step that a zone takes by itself. Its rule says when it may; timers say when it does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Decision {
    /// Sends HELLO.
    Hello,
    /// Sends APPEND to the pair's follower.
    Append,
    /// Sends COPY to an outsider (N4).
    Copy,
    /// Sends EPOCH to the copied outsider (N4).
    Epoch,
    /// Continues alone (N2).
    Alone,
    /// Continues alone after a restart (N3).
    Restart,
    /// Makes the copied outsider a member (N4).
    Pair,
    /// Starts a new epoch of the pair, for a blank witness (V6).
    Renew,
    /// Swaps at the witness (V5).
    Swap {
        /// What for.
        purpose: Purpose,
        /// What the witness holds.
        held: Option<EpochId>,
    },
    /// Resigns: hand-over, stop, slow or full (V1).
    Resign,
    /// Starts the fence command (V4).
    Fence,
    /// The operator's `start-alone` (section 6).
    StartAlone,
}

/// What a swap at the witness is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To continue alone.
    Alone,
    /// To make the outsider a member.
    Pair,
    /// To register the own epoch at a blank witness (V6).
    Register,
    /// To merge (section 7).
    Merge,
}

/// What the driver does for a zone: in order, each completed before the next, and all before the
/// next input. One that fails ends the process.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send in the session, after what was sent before.
    Send(Message),
    /// Append the records of the APPEND just given, up to this length; the kernel holds them.
    Store {
        /// The log's length.
        length: u64,
    },
    /// Sync the log (N1).
    SyncLog,
    /// Write this header as a child of the last epoch, with the records that it copies, and
    /// `member` with the boot id; sync (N1).
    Enter(Header),
    /// The parent's log ends at `length` and the rest was received: write the chain, the
    /// standing and the boot id; sync.
    Adopt {
        /// The line.
        chain: Chain,
        /// Its length.
        length: u64,
        /// The standing.
        standing: Standing,
    },
    /// A mutant's: the header is written some time later.
    #[cfg(feature = "model-check")]
    #[doc(hidden)]
    EnterLater(Header),
    /// Write `outsider`; sync.
    Outsider,
    /// Swap at the witness, answer by [`Input::Swapped`]. A swap before it is given up.
    Swap {
        /// What it must hold.
        expected: Option<EpochId>,
        /// What it shall hold.
        new: EpochId,
    },
    /// Read the witness, then give [`Input::WitnessHolds`] and tick.
    ReadWitness,
    /// Overwrite the witness (operator).
    Overwrite(EpochId),
    /// Run the fence command, then ask the status (V4).
    Fence {
        /// Goes into the answer.
        session: u64,
    },
    /// Copy the peer's line above the fork and sync the copy, then give [`Input::Merge`].
    Heal {
        /// The peer's line.
        chain: Chain,
        /// Its length.
        length: u64,
        /// The length up to which both lines are the same.
        fork: u64,
    },
    /// All reads up to this number may be answered with what is committed (S2).
    Confirmed {
        /// The number.
        read: u64,
    },
    /// The peer belongs to another cluster: close the session and report it.
    RefuseCluster {
        /// The peer's cluster.
        cluster: u128,
    },
}

/// Evidence that the peer does not serve in this epoch; ends with the session.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) enum Sure {
    #[default]
    No,
    Ended,
    Fenced,
    Operator,
    /// With its unfinished child at the witness.
    Resigned(Option<EpochId>),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    pub number: u64,
    /// The peer's HELLO was handled.
    pub heard: bool,
    pub hello_due: bool,
    /// RESIGN was sent in it.
    pub resigned: bool,
}

/// A leader's knowledge of its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// It follows in this epoch.
    pub member: bool,
    pub copying: bool,
    pub stored: u64,
    pub durable: u64,
}

/// A swap that awaits its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub purpose: Purpose,
    pub header: Header,
}

/// A line of the peer that was ended for a merge.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub chain: Chain,
    pub length: u64,
    /// The id that the witness holds for the merge.
    pub granted: Option<EpochId>,
}

/// What only the timers read: when something was last done or heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    pub started: Time,
    pub sent: Option<Time>,
    pub answered: Time,
    pub witness: Option<Time>,
    pub copied: Option<u64>,
}

/// The decision core of one zone. See the [module](super).
#[derive(Clone, Debug)]
pub struct Zone {
    pub(super) config: Config,
    // On disk.
    pub(super) chain: Option<Chain>,
    pub(super) length: u64,
    pub(super) synced: u64,
    pub(super) commit: u64,
    pub(super) standing: Standing,
    pub(super) dirty: bool,
    // In memory.
    pub(super) revision: u64,
    pub(super) role: Role,
    pub(super) session: Session,
    pub(super) peer: Peer,
    pub(super) lease_until: Time,
    pub(super) promise_until: Time,
    pub(super) sure: Sure,
    pub(super) reads_asked: u64,
    pub(super) reads_done: u64,
    pub(super) ask: Option<Ask>,
    pub(super) witness: Option<EpochId>,
    pub(super) fencing: Option<u64>,
    pub(super) lost: Option<Lost>,
    pub(super) last: Last,
}

impl Zone {
    /// The zone of a process that starts with `stored` on its disk, which the driver has synced.
    /// Its start counts as a promise (S3).
    #[must_use]
    pub fn start(config: Config, stored: Stored, boot: u128, now: Time) -> Zone {
        let dirty = stored.is_dirty(config.durability, boot);
        let mut zone = Zone {
            config,
            chain: stored.chain,
            length: stored.length,
            synced: stored.length,
            commit: stored.commit,
            standing: stored.standing,
            dirty,
            revision: 0,
            role: Role::Join,
            session: Session::default(),
            peer: Peer::default(),
            lease_until: Time::default(),
            promise_until: Time::default(),
            sure: Sure::No,
            reads_asked: 0,
            reads_done: 0,
            ask: None,
            witness: None,
            fencing: None,
            lost: None,
            last: Last { started: now, answered: now, ..Last::default() },
        };
        if !mutant!(zone, restart_forgets_promise) {
            zone.promise(now);
        }
        if mutant!(zone, dirty_is_member) {
            zone.dirty = false;
        }
        zone
    }

    /// Handles `input`; what the driver must do is appended to `effects`.
    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Session(number) => self.new_session(number, now),
            Input::Message { session, message } => self.receive(now, session, message, effects),
            Input::Decide(decision) => self.decide(now, decision, effects),
            Input::Wrote { length } => self.length = self.length.max(length),
            Input::Synced { length } => self.log_synced(length, effects),
            Input::Ended { epoch } => self.peer_ended(epoch),
            Input::FenceDone { session } => {
                if mutant!(self, fence_without_status) {
                    self.fence_status(session, Power::Off);
                }
            }
            Input::FenceStatus { session, power } => self.fence_status(session, power),
            Input::Swapped { new, answer } => self.swapped(now, new, answer, effects),
            Input::WitnessHolds(held) => self.witness = held,
            Input::Merge { results } => self.merge(now, results, effects),
        }
    }

    /// The highest revision in the own log, before a step that may jump (section 6).
    pub fn saw_revision(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Evidence ends with the session, as does all that was read of the peer (section 3).
    fn new_session(&mut self, number: u64, now: Time) {
        self.session = Session { number, hello_due: true, ..Session::default() };
        self.peer = Peer::default();
        self.lost = None;
        self.last = Last { sent: None, copied: None, ..self.last };
        self.last.answered = self.last.answered.max(now);
        if !mutant!(self, evidence_outlives_session) {
            self.sure = Sure::No;
        }
        if !mutant!(self, fence_answer_late) {
            self.fencing = None;
        }
    }

    fn receive(&mut self, now: Time, session: u64, message: Message, fx: &mut Vec<Effect>) {
        let old = session != self.session.number;
        if old && !mutant!(self, old_session) {
            return;
        }
        if let Message::Hello(hello) = message {
            // HELLO goes out before the peer's is handled: else RESIGN would be lost (section 3).
            self.decide(now, Decision::Hello, fx);
            return self.meet(now, hello, fx);
        }
        if !self.session.heard && !mutant!(self, old_session) {
            return;
        }
        match message {
            Message::Hello(_) => {}
            Message::Append(append) => self.receive_append(now, append, fx),
            Message::Ack(ack) => self.receive_ack(now, ack, fx),
            Message::Copy(copy) => self.receive_copy(copy, fx),
            Message::Epoch(epoch) => self.receive_epoch(now, epoch, fx),
            Message::Resign(resign) => self.receive_resign(resign, fx),
        }
    }

    /// S1 on the follower's side, S4: only the own epoch is acknowledged.
    fn receive_append(&mut self, now: Time, append: Append, fx: &mut Vec<Effect>) {
        let follows = self.role == Role::Follow && self.tip_is(append.epoch);
        let stale = mutant!(self, ack_after_promotion)
            && self.role == Role::Lead
            && self.chain.as_ref().is_some_and(|c| c.tip().id.parent() == append.epoch.digest());
        if !follows && !stale {
            return;
        }
        let mut durable = append.length;
        if follows {
            if append.length > self.length {
                self.length = append.length;
                fx.push(Effect::Store { length: append.length });
            }
            self.commit = self.commit.max(append.commit.min(self.length));
            self.promise(now);
            durable = self.synced.min(append.length);
        }
        let stored = append.length;
        let (sent, read) = (Some(append.sent), append.read);
        fx.push(Effect::Send(Message::Ack(Ack {
            epoch: append.epoch,
            stored,
            durable,
            sent,
            read,
        })));
    }

    /// The watermark *durable* follows when the disk has caught up; it makes no promise.
    fn log_synced(&mut self, length: u64, fx: &mut Vec<Effect>) {
        let before = self.synced;
        self.synced = self.synced.max(length.min(self.length));
        let follows = self.role == Role::Follow && self.both_disks();
        if !follows || !self.talks() || self.synced == before {
            return;
        }
        let Some(epoch) = self.tip().map(|tip| tip.id) else { return };
        let (stored, durable) = (self.length, self.synced);
        fx.push(Effect::Send(Message::Ack(Ack { epoch, stored, durable, sent: None, read: 0 })));
    }

    fn receive_ack(&mut self, now: Time, ack: Ack, fx: &mut Vec<Effect>) {
        if self.role != Role::Lead || !self.tip_is(ack.epoch) {
            return;
        }
        self.peer.stored = self.peer.stored.max(ack.stored);
        self.peer.durable = self.peer.durable.max(ack.durable);
        if !self.is_pair() {
            return;
        }
        self.peer.member = true;
        let Some(sent) = ack.sent else { return };
        self.last.answered = now;
        let from = if mutant!(self, lease_from_arrival) { now } else { sent };
        self.lease_until = self.lease_until.max(from.after(self.config.timers.lease));
        let read = if mutant!(self, confirm_reuses_answer) { self.reads_asked } else { ack.read };
        if read > self.reads_done {
            self.reads_done = read;
            fx.push(Effect::Confirmed { read });
        }
    }

    /// N4: a copied outsider stays one until EPOCH.
    fn receive_copy(&mut self, copy: CopyDone, fx: &mut Vec<Effect>) {
        if self.role != Role::Join || self.standing != Standing::Outsider {
            return;
        }
        let epoch = copy.chain.tip().id;
        self.adopt(copy.chain, copy.length, Standing::Outsider, fx);
        self.commit = copy.commit.min(copy.length);
        let (stored, durable) = (copy.length, copy.length);
        fx.push(Effect::Send(Message::Ack(Ack { epoch, stored, durable, sent: None, read: 0 })));
    }

    /// N4: header and `member` on disk, then the ACK.
    fn receive_epoch(&mut self, now: Time, epoch: NewEpoch, fx: &mut Vec<Effect>) {
        let tip = *epoch.chain.tip();
        let follows = self.role == Role::Follow
            && self.tip().is_some_and(|mine| mine.id.digest() == tip.id.parent())
            && tip.id.zone() == self.config.zone.peer()
            && self.length == tip.start;
        let joins = self.role == Role::Join
            && self.standing == Standing::Outsider
            && (self.chain.is_some() || mutant!(self, member_before_copied))
            && self.relation(Some(&epoch.chain), tip.start) == Relation::PeerNewer;
        if !follows && !joins {
            return;
        }
        self.ask = None;
        let early = mutant!(self, member_before_copied);
        let length = if early { self.length } else { tip.start };
        self.adopt(epoch.chain, length, Standing::Member, fx);
        self.commit = self.commit.max(tip.start);
        self.role = Role::Follow;
        self.sure = Sure::No;
        self.promise(now);
        let (stored, durable) = (tip.start, tip.start);
        let sent = Some(epoch.sent);
        fx.push(Effect::Send(Message::Ack(Ack { epoch: tip.id, stored, durable, sent, read: 0 })));
    }

    fn adopt(&mut self, chain: Chain, length: u64, standing: Standing, fx: &mut Vec<Effect>) {
        fx.push(Effect::Adopt { chain: chain.clone(), length, standing });
        (self.chain, self.length, self.synced) = (Some(chain), length, length);
        (self.standing, self.dirty) = (standing, false);
        self.commit = self.commit.min(length);
    }

    /// V1, and the end of the losing line (section 7).
    fn receive_resign(&mut self, resign: Resign, fx: &mut Vec<Effect>) {
        let Some(chain) = &self.chain else { return };
        let (mine, theirs) = (chain.tip().id, resign.chain.tip().id);
        if mine == theirs && self.is_pair() && self.standing == Standing::Member {
            if !self.session.resigned || mutant!(self, resign_crossing) {
                self.sure = Sure::Resigned(resign.unfinished);
            }
            return;
        }
        let wins = self.role == Role::Lead && !self.is_pair() && mine != theirs;
        if !wins || self.relation(Some(&resign.chain), resign.length) != Relation::TwoLines {
            return;
        }
        let fork = chain.fork(self.length, &resign.chain, resign.length);
        let (chain, length) = (resign.chain, resign.length);
        self.lost = Some(Lost { chain: chain.clone(), length, granted: None });
        fx.push(Effect::Heal { chain, length, fork });
    }

    /// V2: my epoch, and not in JOIN, where a newer one may be on the peer's disk already.
    fn peer_ended(&mut self, epoch: Option<EpochId>) {
        let named = epoch.is_some_and(|epoch| self.tip_is(epoch));
        let up = self.role != Role::Join || mutant!(self, ended_in_join);
        if (named || mutant!(self, ended_without_epoch)) && up && self.needs_evidence() {
            self.sure = Sure::Ended;
        }
    }

    /// V4: the answer counts in the session of the fence, outside JOIN.
    fn fence_status(&mut self, session: u64, power: Power) {
        if self.fencing != Some(session) {
            return;
        }
        self.fencing = None;
        let up = self.role != Role::Join || mutant!(self, join_fences);
        if power == Power::Off && up && self.needs_evidence() {
            self.sure = Sure::Fenced;
        }
    }

    fn needs_evidence(&self) -> bool {
        self.is_pair() && self.standing == Standing::Member && self.sure == Sure::No
    }

    /// Registers a read (`reads=confirm`); it may be answered after [`Effect::Confirmed`] with
    /// this number or a higher one, if the zone leads the same epoch still.
    pub fn begin_read(&mut self) -> u64 {
        self.reads_asked += 1;
        self.reads_asked
    }

    // ---- what the zone is -----------------------------------------------------------------------

    pub(super) fn promise(&mut self, now: Time) {
        let timers = self.config.timers;
        let wait = if mutant!(self, no_drift_margin) { timers.lease } else { timers.promote };
        self.promise_until = self.promise_until.max(now.after(wait));
    }

    pub(super) fn tip(&self) -> Option<&Header> {
        self.chain.as_ref().map(Chain::tip)
    }

    pub(super) fn tip_is(&self, epoch: EpochId) -> bool {
        self.tip().is_some_and(|tip| tip.id == epoch)
    }

    pub(super) fn is_pair(&self) -> bool {
        self.tip().is_some_and(|tip| tip.id.members() == Members::Pair)
    }

    pub(super) fn both_disks(&self) -> bool {
        self.config.durability == Durability::Both
    }

    /// Whether messages other than HELLO may be sent.
    pub(super) fn talks(&self) -> bool {
        self.session.heard && !self.session.hello_due
    }

    /// This zone's name.
    #[must_use]
    pub fn name(&self) -> ZoneName {
        self.config.zone
    }

    /// Its role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its line; `None`: blank.
    #[must_use]
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// The length of its log.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its standing.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether it lost power as a member of a pair that keeps records in memory.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// S1: the length that a leader may acknowledge and show now; `None`: nothing is served.
    #[must_use]
    pub fn committed(&self, now: Time) -> Option<u64> {
        let tip = self.tip()?;
        if self.role != Role::Lead {
            return None;
        }
        if !self.is_pair() {
            let shown = now >= self.promise_until; // S3
            let unsynced = mutant!(self, alone_without_sync);
            return shown.then_some(if unsynced { self.length } else { self.synced });
        }
        let silent = now >= self.lease_until && mutant!(self, alone_before_evidence);
        if silent || mutant!(self, expose_before_commit) {
            return Some(self.length);
        }
        let (own, peer) = match self.config.durability {
            Durability::Memory => (self.length, self.peer.stored),
            Durability::Both => (self.synced, self.peer.durable),
        };
        let peer = if self.peer.member { peer } else { 0 };
        Some(own.min(peer).max(tip.start))
    }

    /// The length that watches of a follower may show.
    #[must_use]
    pub fn known_commit(&self) -> u64 {
        let start = self.tip().map_or(0, |tip| tip.start);
        self.commit.clamp(start.min(self.length), self.length)
    }

    /// S2: whether this zone may answer a read now with what is committed. Ask between the
    /// request's arrival and its answer. Under `reads=confirm` a pair's read waits for
    /// [`Effect::Confirmed`] instead.
    #[must_use]
    pub fn may_read(&self, now: Time) -> bool {
        if self.role != Role::Lead {
            return false;
        }
        if !self.is_pair() {
            return now >= self.promise_until;
        }
        let leased = now < self.lease_until || mutant!(self, no_lease);
        leased && self.peer.member && self.config.reads == Reads::Lease
    }

    /// How many records the outsider still lacks; the driver holds writes back when they are few.
    #[must_use]
    pub fn catching_up(&self) -> Option<u64> {
        let copies = self.role == Role::Lead && !self.is_pair() && self.peer.copying;
        copies.then(|| self.length.saturating_sub(self.peer.stored))
    }
}
