//! Two zones of the product's code, the link between them, a witness, guards, fences, an operator
//! and clients: what the shared model has as its environment.
//!
//! Nothing is forced: a zone may stand still for any time, a message may stay on its way for any
//! time, a session may break at any moment with any prefix delivered.

use helio_state::zone::{
    Answer, Chain, Config, Decision, Durability, Effect, EpochId, Header, Input, Members, Message,
    Mutant, Policy, Power, Purpose, Reads, Role, Standing, Stored, Time, Timers, Whole, Zone,
    ZoneName,
};

/// Records of a log, messages a direction, writes.
pub const LOG: usize = 16;
pub const WRITES: usize = 6;

pub type Log = [u8; LOG];
pub type Bad = Option<&'static str>;

/// How often each thing may happen; the names are the shared model's.
#[derive(Clone, Copy, Debug, Default)]
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
    /// The highest epoch number.
    pub epochs: u8,
    pub queue: u8,
}

impl Bounds {
    /// `base` with the values of a text such as `epochs=2,crashes=1`.
    pub fn with(mut self, text: &str) -> Bounds {
        for (name, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let field = match name {
                "writes" => &mut self.writes,
                "crashes" => &mut self.crashes,
                "powers" => &mut self.powers,
                "blanks" => &mut self.blanks,
                "breaks" => &mut self.breaks,
                "ops" => &mut self.ops,
                "forgets" => &mut self.forgets,
                "resigns" => &mut self.resigns,
                "fences" => &mut self.fences,
                "reads" => &mut self.reads,
                "epochs" => &mut self.epochs,
                "queue" => &mut self.queue,
                _ => panic!("unknown bound {name}"),
            };
            *field = value.parse().expect("a number");
        }
        self
    }
}

/// What is explored: a policy, bounds and options.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub policy: Policy,
    pub bounds: Bounds,
    pub mutant: Option<Mutant>,
    pub both_disks: bool,
    /// Guards report deaths.
    pub ended: bool,
    /// Reads are confirmed by a round trip.
    pub confirm: bool,
    /// A's clock may stand still.
    pub clock_stops: bool,
    /// `available`: a member alone in JOIN may assume.
    pub start_alone: bool,
    /// Ticks.
    pub lease: u64,
    /// Messages of the last session still arrive, and late answers of fences: the core refuses.
    pub late: bool,
    /// What was known of the commit length is forgotten at once, as the shared model has it.
    pub forgetful: bool,
    /// The disk catches up in the same step, and the merge follows its RESIGN (shared model).
    pub coarse: bool,
}

impl World {
    /// The world of `policy` with the base bounds of the series and those of `bounds`.
    pub fn new(policy: Policy, bounds: &str) -> World {
        let base = Bounds { writes: 1, epochs: 3, queue: 2, ..Bounds::default() };
        World {
            policy,
            bounds: base.with(bounds),
            mutant: None,
            both_disks: false,
            ended: true,
            confirm: false,
            clock_stops: false,
            start_alone: false,
            lease: 1,
            late: false,
            forgetful: false,
            coarse: false,
        }
    }

    /// With the flags of a line of the shared model's series.
    pub fn flags(mut self, flags: &str) -> World {
        self.both_disks = flags.contains("--durability both");
        self.confirm = flags.contains("--reads confirm");
        self.clock_stops = flags.contains("--clock-stops");
        self.start_alone = flags.contains("--start-alone");
        if flags.contains("--lease 2") {
            self.lease = 2;
        }
        self
    }

    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub fn config(&self, z: usize) -> Config {
        let mut config = Config::new(7, name(z), self.policy);
        config.durability = if self.both_disks { Durability::Both } else { Durability::Memory };
        config.reads = if self.confirm { Reads::Confirm } else { Reads::Lease };
        config.timers = Timers {
            heartbeat: 1,
            suspect: 0,
            lease: self.lease,
            promote: self.lease + 1,
            fence_delay: 0,
            start_alone_after: self.start_alone.then_some(0),
        };
        config.mutant = self.mutant;
        config
    }
}

pub fn name(z: usize) -> ZoneName {
    if z == 0 { ZoneName::A } else { ZoneName::B }
}

/// A message on its way, with its records.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    pub session: u64,
    pub message: Message,
    pub log: Log,
}

/// A zone's machine: its disk, its process, its clock.
#[derive(Clone, Debug)]
pub struct Node {
    pub zone: Option<Zone>,
    pub chain: Option<Chain>,
    pub standing: Standing,
    pub length: u64,
    pub synced: u64,
    /// The boot id on disk is an earlier boot's.
    pub rebooted: bool,
    pub log: Log,
    pub off: bool,
    pub clock: u64,
    /// The highest length ever written in the epoch that it leads.
    pub high: u64,
    /// A mutant's header that is not on disk yet: the chain and length that are.
    pub unwritten: Option<(Option<Chain>, u64)>,
    /// The records of the line that awaits its merge.
    pub lost: Option<Log>,
}

impl Node {
    pub fn now(&self) -> Time {
        Time(self.clock)
    }
    pub fn role(&self) -> Option<Role> {
        self.zone.as_ref().map(Zone::role)
    }
    pub fn tip(&self) -> Option<&Header> {
        self.chain.as_ref().map(Chain::tip)
    }
    pub fn id(&self) -> Option<EpochId> {
        self.tip().map(|tip| tip.id)
    }
    pub fn is_pair(&self) -> bool {
        self.id().is_some_and(|id| id.members() == Members::Pair)
    }
    /// Whether its process would find itself dirty, or does.
    pub fn is_dirty(&self, world: &World) -> bool {
        match &self.zone {
            Some(zone) => zone.is_dirty(),
            None if world.is(Mutant::dirty_is_member) => false,
            None => self.stored().is_dirty(world.config(0).durability, self.boot()),
        }
    }
    fn boot(&self) -> u128 {
        1 + u128::from(self.rebooted)
    }
    pub fn stored(&self) -> Stored {
        Stored {
            chain: self.chain.clone(),
            length: self.length,
            commit: 0,
            standing: self.standing,
            boot: 1,
            whole: Whole::No,
        }
    }
}

/// A swap at the witness, by a zone: asked, or done and its answer in flight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Swap {
    pub expected: Option<EpochId>,
    pub new: EpochId,
    pub answer: Option<Answer>,
}

/// Zone z's fence against its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    Idle,
    Running,
    /// May still hit, but counts no more.
    Orphaned,
    /// The status was off; the answer is in flight.
    Said,
}

/// What a merge kept of the losing line.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    pub merge: u64,
    /// Writes listed (bits).
    pub writes: u8,
    pub log: Log,
    pub length: u64,
}

#[derive(Clone, Debug)]
pub struct State {
    pub node: [Node; 2],
    /// `queue[z]`: on their way to zone z, in order.
    pub queue: [Vec<Packet>; 2],
    pub linked: bool,
    pub session: u64,
    /// The zone whose clock may move alone.
    pub ahead: usize,
    pub witness: Option<EpochId>,
    pub swap: [Option<Swap>; 2],
    pub late: Option<(Option<EpochId>, EpochId)>,
    /// A guard's word of zone z's death: the epoch on its disk.
    pub ended: [Option<Option<EpochId>>; 2],
    pub fence: [Fence; 2],
    pub fence_session: [u64; 2],
    pub reports: Vec<Report>,
    // What clients saw.
    pub writes: u8,
    pub keys: u8,
    /// The revision under which a client was shown the write; 0: none.
    pub shown: [u64; WRITES],
    pub forgiven: u8,
    pub lost_power: u8,
    /// Two lines are allowed from here on.
    pub split: bool,
    /// The writes that the pending read of zone z must see.
    pub read: [Option<u8>; 2],
    pub left: Bounds,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Act {
    Tick,
    TickOne(usize),
    /// B's clock runs while A's stands.
    Stopped,
    Reconnect,
    Crash(usize),
    Power(usize),
    Blank(usize),
    Start(usize),
    Receive(usize),
    Write(usize, u8),
    Sync(usize),
    WriteHeader(usize),
    Read(usize),
    Decide(usize, Decision),
    /// The command ended with success; that is no evidence.
    FenceDone(usize),
    FenceSaid(usize),
    FenceOff(usize),
    FenceHits(usize),
    Ended(usize),
    WitnessRuns(usize),
    WitnessSays(usize),
    GiveUp(usize),
    WitnessLate,
    WitnessForgets,
    Merge(usize),
}

impl World {
    /// A pair in the middle of its life: A leads, B follows.
    pub fn init(&self) -> State {
        let id = EpochId::new(0, ZoneName::A, Members::Pair, 0);
        let header = Header {
            id,
            start: 0,
            basis: helio_state::zone::Basis::Joined,
            revision_base: 0,
            copied: 0,
            merged: None,
        };
        let node = |z: usize, role: Role| {
            let mut node = Node {
                zone: None,
                chain: Chain::new(&[header]),
                standing: Standing::Member,
                length: 0,
                synced: 0,
                rebooted: false,
                log: [0; LOG],
                off: false,
                clock: 100,
                high: 0,
                unwritten: None,
                lost: None,
            };
            let zone = Zone::start(self.config(z), node.stored(), 1, node.now());
            node.zone = Some(zone.in_pair(role, node.now()));
            node
        };
        let witness = (self.policy == Policy::Witness).then_some(id);
        State {
            node: [node(0, Role::Lead), node(1, Role::Follow)],
            queue: [Vec::new(), Vec::new()],
            linked: true,
            session: 1,
            ahead: 0,
            witness,
            swap: [None; 2],
            late: None,
            ended: [None; 2],
            fence: [Fence::Idle; 2],
            fence_session: [1; 2],
            reports: Vec::new(),
            writes: 0,
            keys: 0,
            shown: [0; WRITES],
            forgiven: 0,
            lost_power: 0,
            split: false,
            read: [None; 2],
            left: self.bounds,
        }
    }

    // ---- the driver -----------------------------------------------------------------------------

    /// Gives `input` to zone `z` and completes its effects.
    pub fn run(&self, s: &mut State, z: usize, input: Input, log: &Log) -> Bad {
        let node = &mut s.node[z];
        let now = node.now();
        let Some(zone) = &mut node.zone else { return None };
        if self.policy == Policy::Witness {
            zone.step(now, Input::WitnessHolds(s.witness), &mut Vec::new());
        }
        let Some(zone) = &mut node.zone else { return None };
        let merging = matches!(input, Input::Merge { .. });
        let mut effects = Vec::new();
        zone.step(now, input, &mut effects);
        if self.forgetful {
            zone.forget_commit();
        }
        let mut bad = None;
        for effect in effects {
            bad = bad.or(self.complete(s, z, effect, log, merging));
        }
        self.withdraw(s, z);
        if self.coarse {
            self.coarse_sync(s, z);
        }
        bad
    }

    /// Shared model: a follower's disk catches up before its ACK.
    fn coarse_sync(&self, s: &mut State, z: usize) {
        let node = &s.node[z];
        let follows = node.role() == Some(Role::Follow) && node.synced < node.length;
        if self.both_disks && follows {
            let first = s.queue[1 - z].pop();
            let length = node.length;
            s.node[z].synced = length;
            let mut effects = Vec::new();
            let now = s.node[z].now();
            let zone = s.node[z].zone.as_mut().expect("it follows");
            zone.step(now, Input::Synced { length }, &mut effects);
            let both = (first, effects.pop());
            if let (Some(mut packet), Some(Effect::Send(Message::Ack(second)))) = both {
                if let Message::Ack(ack) = &mut packet.message {
                    ack.durable = second.durable;
                }
                s.queue[1 - z].push(packet);
            }
        }
    }

    fn complete(&self, s: &mut State, z: usize, fx: Effect, log: &Log, merging: bool) -> Bad {
        let node = &mut s.node[z];
        match fx {
            Effect::Send(message) => self.push(s, z, message),
            Effect::Store { length } => {
                let from = node.length as usize;
                node.log[from..length as usize].copy_from_slice(&log[from..length as usize]);
                node.length = length;
            }
            Effect::SyncLog => node.synced = node.length,
            Effect::Enter(header) => self.entered(s, z, &header, merging),
            Effect::EnterLater(header) => {
                node.unwritten = Some((node.chain.clone(), node.length));
                self.entered(s, z, &header, merging);
            }
            Effect::Adopt { chain, length, standing } => {
                let same = (node.length.min(length)) as usize;
                let early = self.is(Mutant::member_before_copied);
                let joins = standing == Standing::Member && !early;
                if joins && node.log[..same] != log[..same] {
                    return Some("I5: a new member's log differs from its leader's");
                }
                let forgets = self.is(Mutant::heal_discards_first);
                if !(early && standing == Standing::Member || forgets && log == &[0; LOG]) {
                    node.log = *log;
                }
                node.log[length as usize..].fill(0);
                (node.chain, node.standing, node.rebooted) = (Some(chain), standing, false);
                (node.length, node.synced, node.high) = (length, length, 0);
            }
            Effect::Outsider => (node.standing, node.rebooted) = (Standing::Outsider, false),
            Effect::Swap { expected, new } => {
                s.swap[z] = Some(Swap { expected, new, answer: None });
            }
            Effect::Overwrite(new) => s.witness = Some(new),
            Effect::Fence { session } => {
                s.fence[z] = Fence::Running;
                s.fence_session[z] = session;
            }
            Effect::Heal { .. } => node.lost = Some(*log),
            Effect::Confirmed { .. } => return self.confirmed(s, z),
            Effect::ReadWitness | Effect::RefuseCluster { .. } => {}
        }
        None
    }

    fn entered(&self, s: &mut State, z: usize, header: &Header, merging: bool) {
        let node = &mut s.node[z];
        node.chain = node.zone.as_ref().and_then(|zone| zone.chain().cloned());
        (node.standing, node.rebooted) = (Standing::Member, false);
        node.high = node.length;
        if !merging {
            let available = self.policy == Policy::Available;
            let unsafe_basis = !header.basis.is_safe();
            let operator = header.basis == helio_state::zone::Basis::Operator;
            s.split |= unsafe_basis && (available || operator);
        }
    }

    fn confirmed(&self, s: &mut State, z: usize) -> Bad {
        let must = s.read[z].take()?;
        let node = &s.node[z];
        let commit = node.zone.as_ref().and_then(|zone| zone.committed(node.now()));
        let seen = &node.log[..commit.unwrap_or(0) as usize];
        let missed = (1..=WRITES as u8)
            .any(|w| must >> w & 1 == 1 && s.forgiven >> w & 1 == 0 && !seen.contains(&w));
        (missed && !s.split)
            .then_some("I4: a confirmed read misses a write acknowledged before it began")
    }

    /// A swap that its zone no longer waits for may still happen.
    fn withdraw(&self, s: &mut State, z: usize) {
        let node = &s.node[z];
        let inspection = node.zone.as_ref().map(|zone| zone.inspect(node.now()));
        let waits = inspection.is_some_and(|i| i.ask.is_some());
        if s.swap[z].is_some() && !waits {
            orphan(s, z);
        }
        if inspection.is_none_or(|i| i.lost.is_none()) {
            s.node[z].lost = None;
        }
        if s.read[z].is_some() && inspection.is_none_or(|i| i.reads == 0) {
            s.read[z] = None;
        }
    }

    pub fn push(&self, s: &mut State, from: usize, mut message: Message) {
        if let (true, Message::Append(append)) = (self.forgetful, &mut message) {
            append.commit = 0;
        }
        let to = 1 - from;
        if !s.linked || s.queue[to].len() >= self.bounds.queue as usize {
            return;
        }
        let mut log = [0; LOG];
        let length = match &message {
            Message::Append(append) => append.length,
            Message::Copy(copy) => copy.length,
            Message::Epoch(epoch) => epoch.chain.tip().start,
            Message::Resign(resign) => resign.length.min(s.node[from].length),
            Message::Hello(_) | Message::Ack(_) => 0,
        } as usize;
        log[..length].copy_from_slice(&s.node[from].log[..length]);
        s.queue[to].push(Packet { session: s.session, message, log });
    }

    pub fn room(&self, s: &State, to: usize) -> bool {
        !s.linked || s.queue[to].len() < self.bounds.queue as usize
    }

    /// The process ends; its machine may lose power, too.
    pub fn die(&self, s: &mut State, z: usize) {
        orphan(s, z);
        let node = &mut s.node[z];
        node.zone = None;
        node.off = false;
        node.lost = None;
        if let Some((chain, length)) = node.unwritten.take() {
            (node.chain, node.length) = (chain, length);
            node.synced = node.synced.min(length);
            node.log[length as usize..].fill(0);
        }
        s.read[z] = None;
        s.queue[z].clear();
        s.linked = false;
        s.fence[z] = abandoned(s.fence[z]);
    }

    pub fn power_off(&self, s: &mut State, z: usize) -> Bad {
        self.die(s, z);
        let node = &mut s.node[z];
        node.off = true;
        node.rebooted = true;
        node.length = node.synced;
        node.log[node.length as usize..].fill(0);
        self.forgive(s, z, false)
    }
}

/// The request of a process that does not wait for it may still arrive.
pub fn orphan(s: &mut State, z: usize) {
    if let Some(swap) = s.swap[z].take()
        && swap.answer.is_none()
        && s.late.is_none()
    {
        s.late = Some((swap.expected, swap.new));
    }
}

pub fn abandoned(fence: Fence) -> Fence {
    match fence {
        Fence::Running => Fence::Orphaned,
        Fence::Said => Fence::Idle,
        other => other,
    }
}

/// What a fence's answer says.
pub fn off() -> Power {
    Power::Off
}

/// The purposes of swaps.
pub const PURPOSES: [Purpose; 4] =
    [Purpose::Alone, Purpose::Pair, Purpose::Register, Purpose::Merge];
