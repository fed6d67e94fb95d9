//! Simulation by seed: two machines with the product's core and timers, on virtual time.
//!
//! Clocks drift by up to 10 %, links break, stall and block one way, processes are killed between
//! any two effects, machines lose power with a torn tail, disks are slow, fences hang or lie by
//! their exit code, the witness is away, late or loses answers. A failing seed prints its number,
//! and gives the same run again.

use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use helio_state::merge::{self, Change, Classes, Transaction};
use helio_state::zone::{
    Answer, Basis, Chain, Config, Decision, Durability, Effect, EpochId, Header, Input, Members,
    Message, Policy, Power, Role, Standing, Stored, Time, Whole, Zone, ZoneName,
};

const MS: u64 = 1_000_000;
const KEYS: u32 = 5;

/// How long faults happen, and how long the calm after them may last.
const STORM_NS: u64 = 12_000 * MS;
const CALM_NS: u64 = 25_000 * MS;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

type Log = Vec<u32>;

enum Event {
    /// The process of zone, of this life, wakes.
    Wake(usize, u64),
    Deliver {
        to: usize,
        session: u64,
        message: Message,
        log: Log,
    },
    Synced {
        z: usize,
        life: u64,
        length: u64,
    },
    Connect,
    Write,
    Fault,
    Start(usize),
    Ended {
        to: usize,
        epoch: Option<EpochId>,
    },
    Unblock(usize),
    FenceRuns {
        z: usize,
        life: u64,
        session: u64,
        works: bool,
    },
    FenceAsked {
        z: usize,
        life: u64,
        session: u64,
    },
    WitnessRead {
        z: usize,
        life: u64,
    },
    WitnessSwap {
        z: usize,
        life: u64,
        expected: Option<EpochId>,
        new: EpochId,
    },
    WitnessSaid {
        z: usize,
        life: u64,
        new: EpochId,
        answer: Answer,
    },
    WitnessBack,
}

struct Machine {
    zone: Option<Zone>,
    /// Counts processes, so that nothing of an earlier one reaches the next.
    life: u64,
    chain: Option<Chain>,
    standing: Standing,
    log: Log,
    synced: usize,
    commit: u64,
    boot: u128,
    stored_boot: u128,
    off: bool,
    rate_permille: u64,
    offset: u64,
    busy_until: u64,
    lost: Option<Log>,
}

impl Machine {
    fn clock(&self, now: u64) -> Time {
        Time(self.offset + now / 1_000 * self.rate_permille)
    }
    fn pair(&self) -> bool {
        self.chain.as_ref().is_some_and(|c| c.tip().id.members() == Members::Pair)
    }
}

/// What a run did.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub acknowledged: u64,
    pub kills: u64,
    pub power_losses: u64,
    pub cuts: u64,
    pub epochs: u64,
    pub merges: u64,
    pub forgiven: u64,
    /// In sync again after the calm.
    pub settled: bool,
}

struct Simulation {
    config: Config,
    random: Random,
    now: u64,
    order: u64,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    machines: [Machine; 2],
    session: u64,
    linked: bool,
    /// Until when nothing arrives at this zone.
    blocked: [u64; 2],
    last_arrival: [u64; 2],
    witness: Option<EpochId>,
    witness_away: bool,
    reports: Vec<(u64, Vec<u32>)>,
    writes: u32,
    shown: BTreeMap<u32, u64>,
    by_revision: BTreeMap<u64, u32>,
    forgiven: Vec<u32>,
    lost_power: [bool; 2],
    split: bool,
    done: Outcome,
}

/// Runs `seed` under `policy`. An error names what was violated.
pub fn simulate(policy: Policy, seed: u64) -> Result<Outcome, String> {
    let mut simulation = Simulation::new(policy, seed);
    simulation.run().map_err(|what| {
        format!("seed {seed}, {policy:?}, at {} ms: {what}", simulation.now / MS)
    })?;
    Ok(simulation.done)
}

impl Simulation {
    fn new(policy: Policy, seed: u64) -> Simulation {
        let mut random = Random(seed);
        let mut config = Config::new(1, ZoneName::A, policy);
        if random.chance(50) {
            config.durability = Durability::Memory;
        }
        let id = EpochId::new(1, ZoneName::A, Members::Alone, 0);
        let first =
            Header { id, start: 0, basis: Basis::First, revision_base: 0, copied: 0, merged: None };
        let mut machine = |z: usize| Machine {
            zone: None,
            life: 0,
            chain: if z == 0 { Chain::new(&[first]) } else { None },
            standing: if z == 0 { Standing::Member } else { Standing::Outsider },
            log: Log::new(),
            synced: 0,
            commit: 0,
            boot: 1,
            stored_boot: 1,
            off: false,
            rate_permille: 955 + random.below(90),
            offset: random.below(1_000_000) * MS,
            busy_until: 0,
            lost: None,
        };
        let machines = [machine(0), machine(1)];
        let mut simulation = Simulation {
            config,
            random,
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            machines,
            session: 0,
            linked: false,
            blocked: [0; 2],
            last_arrival: [0; 2],
            witness: (policy == Policy::Witness).then_some(id),
            witness_away: false,
            reports: Vec::new(),
            writes: 0,
            shown: BTreeMap::new(),
            by_revision: BTreeMap::new(),
            forgiven: Vec::new(),
            lost_power: [false; 2],
            split: false,
            done: Outcome::default(),
        };
        for (after, event) in [
            (0, Event::Start(0)),
            (1, Event::Start(1)),
            (5, Event::Connect),
            (20, Event::Write),
            (2_000, Event::Fault),
        ] {
            simulation.at(after * MS, event);
        }
        simulation
    }

    fn at(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.push(std::cmp::Reverse((self.now + after, self.order)));
        self.pending.insert(self.order, event);
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(std::cmp::Reverse((time, order))) = self.events.pop() {
            self.now = time;
            let Some(event) = self.pending.remove(&order) else { continue };
            self.handle(event)?;
            self.judge()?;
            if self.now > STORM_NS && self.in_sync() {
                self.done.settled = true;
                break;
            }
            if self.now > STORM_NS + CALM_NS {
                break;
            }
        }
        self.done.forgiven = self.forgiven.len() as u64;
        Ok(())
    }

    fn in_sync(&self) -> bool {
        let leader = (0..2).find(|z| self.role(*z) == Some(Role::Lead));
        leader.is_some_and(|z| {
            let (mine, peer) = (&self.machines[z], &self.machines[1 - z]);
            let follows = self.role(1 - z) == Some(Role::Follow);
            let reads = mine.zone.as_ref().is_some_and(|x| x.may_read(mine.clock(self.now)));
            follows && mine.pair() && reads && tip(mine) == tip(peer)
        })
    }

    fn role(&self, z: usize) -> Option<Role> {
        self.machines[z].zone.as_ref().map(Zone::role)
    }

    fn lives(&self, z: usize, life: u64) -> bool {
        self.machines[z].zone.is_some() && self.machines[z].life == life
    }

    // ---- events ---------------------------------------------------------------------------------

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wake(z, life) if self.lives(z, life) => {
                self.tick(z)?;
                let step = 5 * MS + self.random.below(20) * MS;
                self.at(step, Event::Wake(z, life));
            }
            Event::Deliver { to, session, message, log } => {
                return self.deliver(to, session, message, &log);
            }
            Event::Synced { z, life, length } if self.lives(z, life) => {
                let machine = &mut self.machines[z];
                machine.synced = machine.synced.max((length as usize).min(machine.log.len()));
                return self.step(z, Input::Synced { length }, &Log::new());
            }
            Event::Connect => self.connect()?,
            Event::Write => self.write()?,
            Event::Fault => self.fault()?,
            Event::Start(z) => self.start(z),
            Event::Ended { to, epoch } => {
                if self.blocked[to] <= self.now {
                    return self.step(to, Input::Ended { epoch }, &Log::new());
                }
            }
            Event::Unblock(z) => self.blocked[z] = self.blocked[z].min(self.now),
            Event::WitnessBack => self.witness_away = false,
            event => return self.outside(event),
        }
        Ok(())
    }

    /// Fences and the witness.
    fn outside(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::FenceRuns { z, life, session, works } => {
                if works {
                    self.power_off(1 - z)?;
                }
                if self.lives(z, life) {
                    self.step(z, Input::FenceDone { session }, &Log::new())?;
                    self.at(50 * MS, Event::FenceAsked { z, life, session });
                }
            }
            Event::FenceAsked { z, life, session } if self.lives(z, life) => {
                let power = if self.machines[1 - z].off { Power::Off } else { Power::On };
                return self.step(z, Input::FenceStatus { session, power }, &Log::new());
            }
            Event::WitnessRead { z, life } if self.lives(z, life) && !self.witness_away => {
                let held = self.witness;
                let mut effects = Vec::new();
                let clock = self.machines[z].clock(self.now);
                if let Some(zone) = &mut self.machines[z].zone {
                    zone.witness_was_read(clock, held, &mut effects);
                }
                return self.complete(z, effects, &Log::new());
            }
            Event::WitnessSwap { z, life, expected, new } => {
                let yes = !self.witness_away && self.witness == expected;
                if yes {
                    self.witness = Some(new);
                }
                let lost = self.witness_away || self.random.chance(10);
                let answer = if lost {
                    Answer::Lost
                } else if yes {
                    Answer::Swapped
                } else {
                    Answer::Refused
                };
                let after = 1 + self.random.below(10) + if lost { 300 } else { 0 };
                self.at(after * MS, Event::WitnessSaid { z, life, new, answer });
            }
            Event::WitnessSaid { z, life, new, answer } if self.lives(z, life) => {
                return self.step(z, Input::Swapped { new, answer }, &Log::new());
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), String> {
        let open = self.blocked.iter().all(|until| *until <= self.now);
        let up = self.machines.iter().all(|m| m.zone.is_some());
        if !self.linked && open && up {
            self.linked = true;
            self.session += 1;
            for z in 0..2 {
                self.step(z, Input::Session(self.session), &Log::new())?;
            }
        }
        let after = 20 + self.random.below(60);
        self.at(after * MS, Event::Connect);
        Ok(())
    }

    fn deliver(
        &mut self,
        to: usize,
        session: u64,
        message: Message,
        log: &Log,
    ) -> Result<(), String> {
        if session != self.session || !self.linked {
            return Ok(());
        }
        if self.blocked[to] > self.now {
            // It waits at its sender, before all that comes after it.
            let after = self.blocked[to] - self.now;
            let message = Event::Deliver { to, session, message, log: log.clone() };
            self.at(after, message);
            return Ok(());
        }
        self.step(to, Input::Message { session, message }, log)
    }

    fn write(&mut self) -> Result<(), String> {
        let leads: Vec<usize> = (0..2).filter(|z| self.role(*z) == Some(Role::Lead)).collect();
        for z in leads {
            // A process that stands still appends nothing.
            let stands = self.machines[z].busy_until > self.now;
            if stands || self.random.chance(30) || self.writes > 4_000 {
                continue;
            }
            self.writes += 1;
            let machine = &mut self.machines[z];
            machine.log.push(self.writes);
            let length = machine.log.len() as u64;
            self.step(z, Input::Wrote { length }, &Log::new())?;
            let clock = self.machines[z].clock(self.now);
            let mut effects = Vec::new();
            if let Some(zone) = &mut self.machines[z].zone {
                zone.send_now(clock, &mut effects);
            }
            self.complete(z, effects, &Log::new())?;
            self.sync_later(z);
        }
        let after = 5 + self.random.below(60);
        self.at(after * MS, Event::Write);
        Ok(())
    }

    /// Each disk has its own pace; some stall.
    fn sync_later(&mut self, z: usize) {
        let machine = &self.machines[z];
        let eager = !machine.pair() || self.config.durability == Durability::Both;
        let (life, length) = (machine.life, machine.log.len() as u64);
        let mut after = 1 + self.random.below(5) + if eager { 0 } else { self.random.below(50) };
        if self.random.chance(1) {
            after += 400;
        }
        self.at(after * MS, Event::Synced { z, life, length });
    }

    fn fault(&mut self) -> Result<(), String> {
        if self.now >= STORM_NS {
            // The calm: links open, machines start.
            self.blocked = [0; 2];
            self.witness_away = false;
            return Ok(());
        }
        let z = self.random.below(2) as usize;
        match self.random.below(8) {
            0 | 1 => self.kill(z),
            2 => self.power_off(z)?,
            3 => {
                self.linked = false;
                self.done.cuts += 1;
            }
            4 => self.block(z),
            5 => {
                self.block(0);
                self.block(1);
            }
            6 => {
                self.witness_away = true;
                let after = 100 + self.random.below(2_000);
                self.at(after * MS, Event::WitnessBack);
                self.step(z, Input::Decide(Decision::Resign), &Log::new())?;
            }
            _ => {
                // SIGSTOP: the process stands still, its clock does not.
                let stop = 50 + self.random.below(1_500);
                self.machines[z].busy_until = self.now + stop * MS;
            }
        }
        let after = 100 + self.random.below(2_500);
        self.at(after * MS, Event::Fault);
        Ok(())
    }

    /// Nothing arrives at `z` for a while; a long silence breaks the session.
    fn block(&mut self, z: usize) {
        self.done.cuts += 1;
        let span = (20 + self.random.below(3_000)) * MS;
        self.blocked[z] = self.now + span;
        if span > 1_000 * MS {
            self.linked = false;
        }
        self.at(span, Event::Unblock(z));
    }

    fn start(&mut self, z: usize) {
        let now = self.now;
        let config = Config { zone: name(z), ..self.config };
        let machine = &mut self.machines[z];
        if machine.zone.is_some() {
            return;
        }
        machine.off = false;
        machine.life += 1;
        machine.synced = machine.log.len();
        let stored = Stored {
            chain: machine.chain.clone(),
            length: machine.log.len() as u64,
            commit: machine.commit.min(machine.log.len() as u64),
            standing: machine.standing,
            boot: machine.stored_boot,
            whole: Whole::No,
        };
        let clock = machine.clock(now);
        machine.zone = Some(Zone::start(config, stored, machine.boot, clock));
        machine.busy_until = now;
        let life = machine.life;
        self.at(0, Event::Wake(z, life));
    }

    fn kill(&mut self, z: usize) {
        if self.machines[z].zone.is_none() {
            return;
        }
        self.done.kills += 1;
        self.die(z);
        let epoch = tip(&self.machines[z]);
        if self.random.chance(80) {
            let after = 5 + self.random.below(40);
            self.at(after * MS, Event::Ended { to: 1 - z, epoch });
        }
        // The guard has read the disk; then it starts the next process.
        let after = 50 + self.random.below(1_500);
        self.at(after * MS, Event::Start(z));
    }

    fn die(&mut self, z: usize) {
        let machine = &mut self.machines[z];
        machine.zone = None;
        machine.lost = None;
        self.linked = false;
    }

    fn power_off(&mut self, z: usize) -> Result<(), String> {
        if self.machines[z].off {
            return Ok(());
        }
        self.done.power_losses += 1;
        self.die(z);
        let machine = &mut self.machines[z];
        (machine.off, machine.boot) = (true, machine.boot + 1);
        // A torn tail: some of what was not synced is there.
        let unsynced = machine.log.len() - machine.synced;
        let torn = machine.synced + self.random.below(unsynced as u64 + 1) as usize;
        self.machines[z].log.truncate(torn);
        self.forgive(z)?;
        let after = 200 + self.random.below(3_000);
        self.at(after * MS, Event::Start(z));
        Ok(())
    }

    // ---- the driver -----------------------------------------------------------------------------

    fn step(&mut self, z: usize, input: Input, log: &Log) -> Result<(), String> {
        let now = self.now;
        let machine = &mut self.machines[z];
        if machine.busy_until > now {
            // A process that stands still, or waits for its disk, takes it later.
            return self.postpone(z, input, log);
        }
        let clock = machine.clock(now);
        let base = machine.chain.as_ref().map_or(0, |c| c.tip().revision_base);
        let Some(zone) = &mut machine.zone else { return Ok(()) };
        zone.saw_revision(base + machine.log.len() as u64);
        let mut effects = Vec::new();
        zone.step(clock, input, &mut effects);
        self.complete(z, effects, log)?;
        self.tick(z)
    }

    fn postpone(&mut self, z: usize, input: Input, log: &Log) -> Result<(), String> {
        let after = self.machines[z].busy_until - self.now + 1;
        let life = self.machines[z].life;
        let event = match input {
            Input::Message { session, message } => {
                Event::Deliver { to: z, session, message, log: log.clone() }
            }
            Input::Synced { length } => Event::Synced { z, life, length },
            Input::Ended { epoch } => Event::Ended { to: z, epoch },
            Input::FenceStatus { session, .. } => Event::FenceAsked { z, life, session },
            Input::Swapped { new, answer } => Event::WitnessSaid { z, life, new, answer },
            Input::Session(_) => {
                // The handshake is not answered.
                self.linked = false;
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.at(after, event);
        Ok(())
    }

    fn tick(&mut self, z: usize) -> Result<(), String> {
        let now = self.now;
        let machine = &mut self.machines[z];
        if machine.busy_until > now {
            return Ok(());
        }
        let clock = machine.clock(now);
        let base = machine.chain.as_ref().map_or(0, |c| c.tip().revision_base);
        let Some(zone) = &mut machine.zone else { return Ok(()) };
        zone.saw_revision(base + machine.log.len() as u64);
        let mut effects = Vec::new();
        zone.tick(clock, &mut effects);
        machine.commit = machine.commit.max(zone.known_commit());
        self.complete(z, effects, &Log::new())?;
        self.heal(z)
    }

    /// Completes the effects; the process may be killed before any of them.
    fn complete(&mut self, z: usize, effects: Vec<Effect>, log: &Log) -> Result<(), String> {
        for effect in effects {
            let heavy = !matches!(effect, Effect::Send(_) | Effect::Store { .. });
            if heavy && self.now < STORM_NS && self.random.chance(2) {
                self.kill(z);
            }
            if self.machines[z].zone.is_none() {
                return Ok(());
            }
            self.effect(z, effect, log)?;
        }
        Ok(())
    }

    fn effect(&mut self, z: usize, effect: Effect, log: &Log) -> Result<(), String> {
        let life = self.machines[z].life;
        match effect {
            Effect::Send(message) => self.send(z, message),
            Effect::Store { length } => {
                let machine = &mut self.machines[z];
                let from = machine.log.len();
                machine.log.extend_from_slice(&log[from..length as usize]);
                self.sync_later(z);
            }
            Effect::SyncLog => {
                let machine = &mut self.machines[z];
                machine.synced = machine.log.len();
                machine.busy_until = self.now + (1 + self.random.below(20)) * MS;
            }
            Effect::Enter(header) => self.entered(z, &header),
            Effect::Adopt { chain, length, standing } => {
                let machine = &mut self.machines[z];
                let length = length as usize;
                let same = machine.log.len().min(length);
                let joins = standing == Standing::Member;
                if joins && (machine.log.len() < length || machine.log[..same] != log[..same]) {
                    return Err("a new member's log differs from its leader's".into());
                }
                machine.log = log[..length].to_vec();
                machine.synced = length;
                (machine.chain, machine.standing) = (Some(chain), standing);
                machine.stored_boot = machine.boot;
            }
            Effect::Outsider => {
                let machine = &mut self.machines[z];
                machine.standing = Standing::Outsider;
                machine.stored_boot = machine.boot;
            }
            Effect::Swap { expected, new } => {
                let after = 1 + self.random.below(10);
                let after = if self.random.chance(5) { after + 500 } else { after };
                self.at(after * MS, Event::WitnessSwap { z, life, expected, new });
            }
            Effect::ReadWitness => {
                let after = 1 + self.random.below(5);
                self.at(after * MS, Event::WitnessRead { z, life });
            }
            Effect::Fence { session } => {
                // Some commands say success and do nothing; some hang for long.
                let works = !self.random.chance(25);
                let hangs = if self.random.chance(20) { 3_000 } else { 0 };
                let after = 200 + self.random.below(300) + hangs;
                self.at(after * MS, Event::FenceRuns { z, life, session, works });
            }
            Effect::Heal { .. } => self.machines[z].lost = Some(log.clone()),
            Effect::Overwrite(new) => self.witness = Some(new),
            Effect::Confirmed { .. } => {}
            other => return Err(format!("unexpected effect {other:?}")),
        }
        Ok(())
    }

    fn entered(&mut self, z: usize, header: &Header) {
        self.done.epochs += 1;
        let machine = &mut self.machines[z];
        machine.chain = machine.zone.as_ref().and_then(|zone| zone.chain().cloned());
        machine.standing = Standing::Member;
        machine.stored_boot = machine.boot;
        self.split |= header.basis == Basis::Assumed
            || header.basis == Basis::Blackout && self.config.policy == Policy::Available;
    }

    fn send(&mut self, z: usize, message: Message) {
        let machine = &self.machines[z];
        let length = match &message {
            Message::Append(m) => m.length,
            Message::Copy(m) => m.length,
            Message::Epoch(m) => m.chain.tip().start,
            Message::Resign(m) => m.length.min(machine.log.len() as u64),
            Message::Hello(_) | Message::Ack(_) => 0,
        };
        let log = machine.log[..length as usize].to_vec();
        let to = 1 - z;
        let copy = if matches!(message, Message::Copy(_)) { 20 * MS } else { 0 };
        let delay = self.random.below(3 * MS) + 100_000 + copy;
        let arrival = (self.now + delay).max(self.last_arrival[to] + 1);
        self.last_arrival[to] = arrival;
        let session = self.session;
        if self.linked {
            self.at(arrival - self.now, Event::Deliver { to, session, message, log });
        }
    }

    /// Section 7, steps 1 and 3, with the product's merge.
    fn heal(&mut self, z: usize) -> Result<(), String> {
        let machine = &self.machines[z];
        let (Some(lost), Some(zone)) = (machine.lost.clone(), machine.zone.as_ref()) else {
            return Ok(());
        };
        let inspected = zone.inspect(machine.clock(self.now));
        let Some((_, length, granted)) = inspected.lost else {
            self.machines[z].lost = None;
            return Ok(());
        };
        if self.config.policy == Policy::Witness && granted.is_none() {
            return Ok(());
        }
        let fork = zone.lost_fork().unwrap_or(0) as usize;
        let before = tip(machine);
        let merged = merge::merge(
            &transactions(&machine.log[fork..], fork),
            &transactions(&lost[fork..length as usize], fork),
            |key| at_fork(&machine.log[..fork], key),
            &Classes::default(),
        );
        let results: Vec<u32> = merged.results.iter().filter_map(written).collect();
        let clock = machine.clock(self.now);
        let mut effects = Vec::new();
        if let Some(zone) = &mut self.machines[z].zone {
            zone.step(clock, Input::Merge { results: results.len() as u64 }, &mut effects);
        }
        // The batch is atomic: either all of it is there, or nothing.
        let atomic = self.machines[z].zone.is_some();
        for effect in effects {
            self.effect(z, effect, &Log::new())?;
        }
        let machine = &mut self.machines[z];
        if tip(machine) == before || !atomic {
            return Ok(());
        }
        machine.log.extend(&results);
        machine.synced = machine.log.len();
        machine.lost = None;
        self.done.merges += 1;
        let conflicts = merged.report.conflicts.iter();
        let mut reported: Vec<u32> =
            conflicts.filter_map(|c| c.loser.as_ref().map(value)).collect();
        reported.extend(superseded(&lost[..length as usize]));
        let id = before.map_or(0, |_| tip(machine).map_or(0, |id| id.digest()));
        self.reports.push((id, reported));
        Ok(())
    }

    // ---- what clients see -----------------------------------------------------------------------

    fn judge(&mut self) -> Result<(), String> {
        let mut readers = 0;
        for z in 0..2 {
            let machine = &self.machines[z];
            let Some(zone) = &machine.zone else { continue };
            let clock = machine.clock(self.now);
            // A process that stands still answers nobody.
            if machine.busy_until > self.now {
                continue;
            }
            let Some(shown) = zone.committed(clock) else { continue };
            let reads = zone.may_read(clock);
            self.show(z, shown as usize)?;
            if reads {
                readers += 1;
                self.complete_read(z, shown as usize)?;
            }
        }
        if readers > 1 && !self.split {
            return Err("I1: two zones serve at once".into());
        }
        Ok(())
    }

    fn show(&mut self, z: usize, shown: usize) -> Result<(), String> {
        let machine = &self.machines[z];
        let Some(chain) = &machine.chain else { return Ok(()) };
        let mut end = shown as u64;
        let mut header = Some(chain.tip());
        while let Some(h) = header {
            for position in ((h.start + h.copied).min(end)..end).rev() {
                let write = machine.log[position as usize];
                let revision = h.revision_base + position + 1;
                match self.shown.insert(write, revision) {
                    // All below was shown with it before.
                    Some(old) if old == revision => return Ok(()),
                    Some(_) => return Err("I5: one write shown under two revisions".into()),
                    None => self.done.acknowledged += 1,
                }
                if self.by_revision.insert(revision, write).is_some_and(|w| w != write) {
                    return Err(format!("I5: revision {revision} names two contents"));
                }
            }
            end = end.min(h.start);
            header = chain.header(h.id.parent());
        }
        Ok(())
    }

    fn complete_read(&self, z: usize, shown: usize) -> Result<(), String> {
        if self.split {
            return Ok(());
        }
        let log = &self.machines[z].log[..shown];
        let missing =
            self.shown.keys().find(|write| !log.contains(write) && !self.forgiven.contains(write));
        match missing {
            Some(write) => Err(format!("I2/I4: {} serves without write {write}", name(z))),
            None => Ok(()),
        }
    }

    fn forgive(&mut self, z: usize) -> Result<(), String> {
        self.lost_power[z] = true;
        let gone: Vec<u32> = self.shown.keys().copied().filter(|w| !self.kept(*w)).collect();
        for write in gone {
            if self.forgiven.contains(&write) {
                continue;
            }
            let both = self.config.durability == Durability::Both;
            if both || !self.lost_power[1 - z] {
                return Err(format!("I2: a loss of power destroyed write {write}"));
            }
            self.forgiven.push(write);
        }
        Ok(())
    }

    fn kept(&self, write: u32) -> bool {
        self.machines.iter().any(|machine| {
            let merged =
                |id: u64| machine.chain.as_ref().is_some_and(|chain| chain.header(id).is_some());
            machine.log.contains(&write)
                || self.reports.iter().any(|(id, list)| merged(*id) && list.contains(&write))
        })
    }

    /// I7, at the end.
    fn accounted(&self) -> Result<(), String> {
        let lost = self.shown.keys().find(|w| !self.kept(**w) && !self.forgiven.contains(w));
        lost.map_or(Ok(()), |write| Err(format!("I7: acknowledged write {write} is nowhere")))
    }
}

/// Runs a seed to its end and asks for I7 there, too.
pub fn checked(policy: Policy, seed: u64) -> Result<Outcome, String> {
    let mut simulation = Simulation::new(policy, seed);
    let end = simulation.run().and_then(|()| simulation.accounted());
    end.map_err(|what| format!("seed {seed}, {policy:?}, {} ms: {what}", simulation.now / MS))?;
    Ok(simulation.done)
}

fn name(z: usize) -> ZoneName {
    if z == 0 { ZoneName::A } else { ZoneName::B }
}

fn tip(machine: &Machine) -> Option<EpochId> {
    machine.chain.as_ref().map(|chain| chain.tip().id)
}

/// A write is a put of its number under one of a few keys.
fn transactions(log: &[u32], fork: usize) -> Vec<Transaction> {
    let transaction = |(at, write): (usize, &u32)| Transaction {
        revision: (fork + at) as i64 + 1,
        changes: vec![Change {
            key: Bytes::from((write % KEYS).to_string()),
            value: Some(Bytes::from(write.to_string())),
            lease: 0,
        }],
    };
    log.iter().enumerate().map(transaction).collect()
}

fn at_fork(log: &[u32], key: &[u8]) -> Option<Bytes> {
    let fits = |write: &&u32| (**write % KEYS).to_string().as_bytes() == key;
    log.iter().rev().find(fits).map(|write| Bytes::from(write.to_string()))
}

fn value(value: &Bytes) -> u32 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn written(change: &Change) -> Option<u32> {
    change.value.as_ref().map(value)
}

/// Writes that a later one of the same line replaced.
fn superseded(log: &[u32]) -> Vec<u32> {
    let replaced = |(at, write): &(usize, &u32)| {
        log[at + 1..].iter().any(|later| later % KEYS == **write % KEYS)
    };
    log.iter().enumerate().filter(replaced).map(|(_, write)| *write).collect()
}
