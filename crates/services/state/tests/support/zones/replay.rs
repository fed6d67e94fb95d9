//! Replays the shared model's walks against the product's code.
//!
//! At each state of a walk, the states that both can go to are compared, not only the one that
//! the walk takes: so both permit the same decisions there, and decide the same.

use std::collections::BTreeMap;

use helio_state::zone::{
    Answer, Basis, Chain, Decision, EpochId, Header, Inspection, Members, Message, Purpose, Role,
    Standing, Time, ZoneName,
};

use super::explore::Successor;
use super::world::{Act, Fence, Node, State, Swap, World};
use crate::zone_model as model;
use model::rules::{Act as ModelAct, Bad as ModelBad};
use model::state::{Epoch, FREE, ME, MR, Msg, NOMSG, NONE, NW, QL, State as ModelState};

/// The epochs of a state, by digest, with the header if anything has it.
#[derive(Default)]
struct Epochs {
    index: BTreeMap<u64, u8>,
    table: Vec<Epoch>,
}

impl Epochs {
    fn of(world: &World, s: &State) -> Epochs {
        let mut epochs = Epochs::default();
        let chains = s.node.iter().filter_map(|node| node.chain.as_ref());
        let sent = s.queue.iter().flatten().filter_map(|packet| match &packet.message {
            Message::Hello(m) => m.chain.as_ref(),
            Message::Copy(m) => Some(&m.chain),
            Message::Epoch(m) => Some(&m.chain),
            Message::Resign(m) => Some(&m.chain),
            _ => None,
        });
        for chain in chains.chain(sent) {
            epochs.chain(world, s, chain);
        }
        epochs
    }

    fn chain(&mut self, world: &World, s: &State, chain: &Chain) {
        for header in chain.headers() {
            self.id(Some(header.id));
        }
        for header in chain.headers() {
            let at = self.id(Some(header.id)) as usize;
            if self.table[at].start == NONE {
                self.table[at] = self.entry(world, s, header);
            }
        }
    }

    /// The index of an id; an epoch that nobody entered has no start.
    fn id(&mut self, id: Option<EpochId>) -> u8 {
        let Some(id) = id else { return NONE };
        if let Some(at) = self.index.get(&id.digest()) {
            return *at;
        }
        let parent = self.index.get(&id.parent()).copied().unwrap_or(NONE);
        let both = u8::from(id.members() == Members::Pair);
        let zone = u8::from(id.zone() == ZoneName::B);
        let num = id.number() as u8;
        self.table.push(Epoch { num, zone, parent, start: NONE, both, ..FREE });
        let at = self.table.len() as u8 - 1;
        self.index.insert(id.digest(), at);
        at
    }

    fn entry(&mut self, _: &World, s: &State, header: &Header) -> Epoch {
        let at = self.id(Some(header.id)) as usize;
        let mut entry = self.table[at];
        entry.parent = self.index.get(&header.id.parent()).copied().unwrap_or(NONE);
        entry.start = header.start as u8;
        entry.k = (header.revision_base >> 36) as u8;
        entry.basis = match header.basis {
            Basis::Operator => 2,
            basis => u8::from(!basis.is_safe()),
        };
        entry.cp = header.copied as u8;
        if let Some(line) = header.merged {
            entry.m_ep = self.id(Some(line.epoch));
            entry.m_len = line.length as u8;
            let report = s.reports.iter().find(|r| r.merge == header.id.digest());
            entry.report = report.map_or(0, |r| r.writes);
        }
        entry
    }
}

fn role(role: Option<Role>) -> u8 {
    match role {
        None => model::state::DOWN,
        Some(Role::Join) => model::state::JOIN,
        Some(Role::Follow) => model::state::FOLLOW,
        Some(Role::Lead) => model::state::LEAD,
    }
}

fn standing(standing: Standing) -> u8 {
    match standing {
        Standing::Outsider => model::state::OUTSIDER,
        Standing::Member => model::state::MEMBER,
    }
}

/// The shared model's state that stands for `s`.
pub fn project(world: &World, s: &State) -> ModelState {
    let mut epochs = Epochs::of(world, s);
    let node = [0, 1].map(|z| project_node(world, &s.node[z], &mut epochs));
    let mut t = blank(node);
    for z in 0..2 {
        t.qn[z] = s.queue[z].len() as u8;
        for (i, packet) in s.queue[z].iter().enumerate() {
            t.q[z][i] = project_message(world, s, z, &packet.message, &mut epochs);
        }
        t.end_has[z] = u8::from(s.ended[z].is_some());
        t.end_ep[z] = epochs.id(s.ended[z].flatten());
        t.fence[z] = match s.fence[z] {
            Fence::Idle => 0,
            Fence::Running => 1,
            Fence::Orphaned => 2,
            Fence::Said => 3,
        };
        if let Some(Swap { expected, new, answer }) = s.swap[z] {
            t.w_new[z] = epochs.id(Some(new));
            (t.w_st[z], t.w_exp[z]) = match answer {
                None => (1, epochs.id(expected)),
                Some(Answer::Swapped) => (2, NONE),
                Some(_) => (3, NONE),
            };
        }
    }
    t.wit = epochs.id(s.witness);
    if let Some((expected, new)) = s.late {
        (t.late_exp, t.late_new) = (epochs.id(expected), epochs.id(Some(new)));
    }
    assert!(epochs.table.len() <= ME, "more epochs than the model holds");
    t.e[..epochs.table.len()].copy_from_slice(&epochs.table);
    project_ghost(s, &mut t);
    t
}

fn project_ghost(s: &State, t: &mut ModelState) {
    (t.link, t.ahead) = (u8::from(s.linked), s.ahead as u8);
    (t.writes, t.keys, t.forgiven) = (s.writes, s.keys, s.forgiven);
    (t.lost_power, t.split) = (s.lost_power, u8::from(s.split));
    t.exp = s.shown.map(|revision| revision as u8);
    let l = &s.left;
    (t.reads, t.crashes, t.powers, t.blanks) = (l.reads, l.crashes, l.powers, l.blanks);
    (t.breaks, t.ops, t.forgets) = (l.breaks, l.ops, l.forgets);
    (t.resigns, t.fences) = (l.resigns, l.fences);
}

fn blank(node: [model::state::Node; 2]) -> ModelState {
    ModelState {
        e: [FREE; ME],
        node,
        q: [[NOMSG; QL]; 2],
        qn: [0; 2],
        link: 0,
        ahead: 0,
        wit: NONE,
        w_st: [0; 2],
        w_exp: [NONE; 2],
        w_new: [NONE; 2],
        late_exp: NONE,
        late_new: NONE,
        end_has: [0; 2],
        end_ep: [NONE; 2],
        fence: [0; 2],
        writes: 0,
        keys: 0,
        exp: [0; NW],
        forgiven: 0,
        lost_power: 0,
        split: 0,
        reads: 0,
        crashes: 0,
        powers: 0,
        blanks: 0,
        breaks: 0,
        ops: 0,
        forgets: 0,
        resigns: 0,
        fences: 0,
    }
}

fn project_node(world: &World, node: &Node, epochs: &mut Epochs) -> model::state::Node {
    let inspection = node.zone.as_ref().map(|zone| zone.inspect(node.now()));
    let disk = model::state::Node {
        ep: epochs.id(node.id()),
        len: node.length as u8,
        synced: node.synced as u8,
        standing: standing(node.standing),
        dirty: u8::from(node.is_dirty(world)),
        role: role(node.role()),
        off: u8::from(node.off),
        peer_in: 0,
        copying: 0,
        peer_has: 0,
        lease: 0,
        promise: 0,
        sure: 0,
        hello_due: 0,
        heard: 0,
        resigned_here: 0,
        att: NONE,
        released: NONE,
        rd: 0,
        rd_req: 0,
        early: NONE,
    };
    inspection.map_or(disk, |i| project_memory(disk, &i, epochs))
}

fn project_memory(
    disk: model::state::Node,
    i: &Inspection,
    epochs: &mut Epochs,
) -> model::state::Node {
    let ask = i.ask.filter(|ask| ask.0 != Purpose::Register).map(|ask| ask.1);
    model::state::Node {
        peer_in: u8::from(i.member),
        copying: u8::from(i.copying),
        peer_has: i.stored as u8,
        lease: i.lease as u8,
        promise: i.promise as u8,
        sure: i.sure,
        hello_due: u8::from(i.hello_due),
        heard: u8::from(i.heard),
        resigned_here: u8::from(i.resigned),
        att: epochs.id(ask),
        released: epochs.id(i.released),
        ..disk
    }
}

fn project_message(
    world: &World,
    s: &State,
    z: usize,
    message: &Message,
    epochs: &mut Epochs,
) -> Msg {
    let left = |to: usize, sent: Time| sent.after(world.lease).since(s.node[to].now()) as u8;
    let msg =
        |kind: u8, ep: u8, len: u64, x: u8| Msg { kind, ep, len: len as u8, x, y: 0, ep2: NONE };
    match message {
        Message::Hello(m) => {
            let ep = epochs.id(m.chain.as_ref().map(|chain| chain.tip().id));
            let bits = role(Some(m.role)) | standing(m.standing) << 2 | u8::from(m.dirty) << 4;
            msg(model::state::HELLO, ep, m.length, bits)
        }
        Message::Append(m) => {
            let ep = epochs.id(Some(m.epoch));
            msg(model::state::APPEND, ep, m.length, left(1 - z, m.sent))
        }
        Message::Ack(m) => {
            let left = m.sent.map_or(0, |sent| left(z, sent));
            msg(model::state::ACK, epochs.id(Some(m.epoch)), m.stored, left)
        }
        Message::Copy(m) => msg(model::state::COPY, epochs.id(Some(m.chain.tip().id)), m.length, 0),
        Message::Epoch(m) => {
            let tip = m.chain.tip();
            let ep = epochs.id(Some(tip.id));
            msg(model::state::EPOCH, ep, tip.start, left(1 - z, m.sent))
        }
        Message::Resign(m) => {
            let ep = epochs.id(Some(m.chain.tip().id));
            let ep2 = epochs.id(m.unfinished);
            Msg { ep2, ..msg(model::state::RESIGN, ep, m.length, 0) }
        }
    }
}

/// What is compared of a model's state: the state without records, which the lines have, and
/// without what has no effect; each zone's line; and the records of the lines.
fn comparable(model: &model::rules::World, s: &ModelState) -> Comparable {
    let mut lines = [[0; 32]; 2];
    for (node, line) in s.node.iter().zip(&mut lines) {
        if node.ep != NONE {
            s.suffix(node.ep, node.len, 0, line);
        }
    }
    (reduced(model, s), lines)
}

type Comparable = (ModelState, [[u8; 32]; 2]);

/// The same of the product's state.
fn product(world: &World, model: &model::rules::World, s: &State) -> Comparable {
    let mut lines = [[0; 32]; 2];
    for (node, line) in s.node.iter().zip(&mut lines) {
        let length = node.length as usize;
        line[..length].copy_from_slice(&node.log[..length]);
    }
    (reduced(model, &project(world, s)), lines)
}

fn reduced(model: &model::rules::World, s: &ModelState) -> ModelState {
    let mut t = *s;
    for z in 0..2 {
        let waits = t.link == 0 && t.qn[z] == 0;
        let n = &mut t.node[z];
        if waits {
            n.heard = 0;
        }
        if n.role != model::state::LEAD {
            (n.peer_in, n.copying, n.peer_has, n.lease) = (0, 0, 0, 0);
        }
    }
    let held = held(s);
    for (i, e) in t.e.iter_mut().enumerate().filter(|(_, e)| e.zone != NONE) {
        (e.n, e.rec) = (0, [0; MR]);
        if e.start == NONE || !held[i] {
            (e.start, e.k, e.basis, e.cp) = (NONE, 0, 0, 0);
            (e.m_ep, e.m_len, e.report) = (NONE, 0, 0);
            if e.parent != NONE && !held[e.parent as usize] {
                e.parent = NONE;
            }
        }
    }
    unify(&mut t);
    model.normal(&mut t);
    t.canon();
    t
}

/// The epochs whose header some line or message has.
fn held(s: &ModelState) -> [bool; ME] {
    let mut held = [false; ME];
    let sent = (0..2).flat_map(|z| s.q[z][..s.qn[z] as usize].iter().map(|m| m.ep));
    let mut open: Vec<u8> = s.node.iter().map(|node| node.ep).chain(sent).collect();
    while let Some(at) = open.pop() {
        if at != NONE && !std::mem::replace(&mut held[at as usize], true) {
            open.extend([s.ep(at).parent, s.ep(at).m_ep]);
        }
    }
    held
}

/// Proposals of the same number, zone, members and parent have one name in the product.
fn unify(t: &mut ModelState) {
    for i in 0..ME {
        for j in 0..ME {
            let (a, b) = (t.e[i], t.e[j]);
            let name = |e: &Epoch| (e.num, e.zone, e.both, e.parent);
            let same = i != j && a.zone != NONE && name(&a) == name(&b);
            if same && b.start == NONE && (a.start != NONE || i < j) {
                rename(t, j as u8, i as u8);
                t.e[j] = FREE;
            }
        }
    }
}

fn rename(t: &mut ModelState, from: u8, to: u8) {
    let mut fields: Vec<&mut u8> = Vec::new();
    for node in &mut t.node {
        fields.extend([&mut node.ep, &mut node.att, &mut node.released]);
    }
    for m in t.q.iter_mut().flatten() {
        fields.extend([&mut m.ep, &mut m.ep2]);
    }
    fields.extend(t.w_exp.iter_mut().chain(&mut t.w_new).chain(&mut t.end_ep));
    fields.extend([&mut t.wit, &mut t.late_exp, &mut t.late_new]);
    for field in fields.into_iter().filter(|field| **field == from) {
        *field = to;
    }
}

/// The model's world of the same policy, bounds and options.
pub fn model_world(world: &World) -> model::rules::World {
    use helio_state::zone::Policy;
    let b = &world.bounds;
    model::rules::World {
        policy: match world.policy {
            Policy::Consistent => model::rules::Policy::Consistent,
            Policy::Preferred(zone) => {
                model::rules::Policy::Preferred(u8::from(zone == ZoneName::B))
            }
            Policy::Witness => model::rules::Policy::Witness,
            Policy::Fence => model::rules::Policy::Fence,
            Policy::Available => model::rules::Policy::Available,
        },
        b: model::rules::Bounds {
            writes: b.writes,
            crashes: b.crashes,
            powers: b.powers,
            blanks: b.blanks,
            breaks: b.breaks,
            ops: b.ops,
            forgets: b.forgets,
            resigns: b.resigns,
            fences: b.fences,
            reads: b.reads,
            epochs: b.epochs,
            queue: b.queue,
        },
        m: model::rules::Mutant::none,
        disks: world.both_disks,
        ended: world.ended,
        confirm: world.confirm,
        clock_stops: world.clock_stops,
        start_alone: world.start_alone,
        lease: world.lease as u8,
    }
}

/// The product's action for the model's.
fn translate(act: ModelAct, s: &State, after: &ModelState, world: &World) -> Act {
    use ModelAct as M;
    let decide = |z: u8, decision| Act::Decide(z as usize, decision);
    match act {
        M::Tick => Act::Tick,
        M::TickA => Act::TickOne(0),
        M::TickB => Act::TickOne(1),
        M::Crash(z) => Act::Crash(z as usize),
        M::Power(z) => Act::Power(z as usize),
        M::Blank(z) => Act::Blank(z as usize),
        M::Start(z) => Act::Start(z as usize),
        M::Reconnect => Act::Reconnect,
        M::SendHello(z) => decide(z, Decision::Hello),
        M::Recv(z) => Act::Receive(z as usize),
        M::Append(z) => decide(z, Decision::Append),
        M::SendCopy(z) => decide(z, Decision::Copy),
        M::SendEpoch(z) => decide(z, Decision::Epoch),
        M::Write(z, w) => Act::Write(z as usize, after.keys >> w & 1),
        M::Sync(z) => Act::Sync(z as usize),
        M::Grant(z) if world.policy == helio_state::zone::Policy::Witness => {
            decide(z, Decision::Renew)
        }
        M::Grant(z) => decide(z, Decision::Pair),
        M::GoAlone(z) => decide(z, Decision::Alone),
        M::RestartAlone(z) => decide(z, Decision::Restart),
        M::Resign(z) => decide(z, Decision::Resign),
        M::AskWitness(z, kind) => {
            let purpose = [Purpose::Alone, Purpose::Pair, Purpose::Register][kind as usize];
            decide(z, Decision::Swap { purpose, held: s.witness })
        }
        M::WitnessRuns(z) => Act::WitnessRuns(z as usize),
        M::WitnessLate => Act::WitnessLate,
        M::WitnessSays(z) => Act::WitnessSays(z as usize),
        M::GiveUp(z) => Act::GiveUp(z as usize),
        M::WitnessForgets => Act::WitnessForgets,
        M::Fence(z) => decide(z, Decision::Fence),
        M::FenceHits(z) => Act::FenceHits(z as usize),
        M::FenceOff(z) => Act::FenceOff(z as usize),
        M::FenceSaid(z) => Act::FenceSaid(z as usize),
        M::Ended(z) => Act::Ended(z as usize),
        M::Operator(z) => decide(z, Decision::StartAlone),
        M::ReadBegins(z) => Act::Read(z as usize),
        M::Init | M::Mutant(_) => unreachable!("no action of a sound model"),
    }
}

/// Where both went different ways.
#[derive(Debug)]
pub struct Difference {
    pub step: usize,
    pub text: String,
}

/// What a replay compared.
#[derive(Default, Debug, Clone, Copy)]
pub struct Replayed {
    pub steps: u64,
    pub compared: u64,
}

/// Replays a walk.
pub fn replay(
    world: &World,
    trace: &[model::walk::Step],
    found: &mut Replayed,
) -> Result<(), Difference> {
    let shared = model_world(world);
    let mut s = world.init();
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for (step, (act, after)) in trace.iter().enumerate().skip(1) {
        let before = trace[step - 1].1;
        world.next(&s, &mut mine);
        shared.next(&before, &mut theirs);
        let context = (&shared, step);
        compare(world, &s, context, &mine, &theirs)?;
        found.compared += theirs.len() as u64;
        let act = translate(*act, &s, after, world);
        if let Some(what) = world.take(&mut s, act) {
            return Err(Difference { step, text: format!("{act:?}: {what}") });
        }
        let (a, b) = (product(world, &shared, &s), comparable(&shared, after));
        if a != b {
            let text = format!("{act:?}: {}", describe(&a.0, &b.0));
            return Err(Difference { step, text });
        }
        found.steps += 1;
    }
    Ok(())
}

type Context<'a> = (&'a model::rules::World, usize);

fn compare(
    world: &World,
    s: &State,
    (shared, step): Context<'_>,
    mine: &[Successor],
    theirs: &[(ModelAct, ModelState, ModelBad)],
) -> Result<(), Difference> {
    let here = product(world, shared, s);
    let ours: Vec<_> = mine.iter().map(|(act, t, _)| (*act, product(world, shared, t))).collect();
    let model: Vec<_> = theirs
        .iter()
        .map(|(act, t, _)| (translate(*act, s, t, world), comparable(shared, t)))
        .collect();
    let only = |who: &str, act: &Act, t: &Comparable, others: &[(Act, Comparable)]| {
        let near = others.iter().find(|(other, _)| other == act);
        let near = near.map_or("not permitted".to_owned(), |(_, u)| describe(&t.0, &u.0));
        Difference { step, text: format!("only {who} goes {act:?}: {near}") }
    };
    for (act, t) in &ours {
        if *t != here && !model.iter().any(|(_, u)| u == t) {
            return Err(only("the product", act, t, &model));
        }
    }
    for (act, u) in &model {
        if *u != here && !ours.iter().any(|(_, t)| t == u) {
            return Err(only("the model", act, u, &ours));
        }
    }
    Ok(())
}

/// The fields in which two states differ: mine, the model's.
fn describe(mine: &ModelState, model: &ModelState) -> String {
    let (a, b) = (fields(mine), fields(model));
    let differ = a.iter().zip(&b).filter(|(a, b)| a != b);
    differ.map(|((name, a), (_, b))| format!("{name}: {a} / {b}")).collect::<Vec<_>>().join(", ")
}

fn fields(s: &ModelState) -> Vec<(String, String)> {
    let mut list = Vec::new();
    let mut add = |name: String, value: String| list.push((name, value));
    for (i, e) in s.e.iter().enumerate() {
        let text = format!(
            "{}{} p{} s{} both{} k{} b{} cp{} m{}/{} r{}",
            e.num,
            e.zone,
            e.parent as i8,
            e.start as i8,
            e.both,
            e.k,
            e.basis,
            e.cp,
            e.m_ep as i8,
            e.m_len,
            e.report
        );
        add(format!("epoch{i}"), text);
    }
    for (z, n) in s.node.iter().enumerate() {
        let text = format!(
            "ep{} len{}/{} st{} dirty{} role{} off{} in{} cp{} has{} lease{} pr{} sure{} due{} \
             heard{} res{} att{} rel{}",
            n.ep as i8,
            n.len,
            n.synced,
            n.standing,
            n.dirty,
            n.role,
            n.off,
            n.peer_in,
            n.copying,
            n.peer_has,
            n.lease,
            n.promise,
            n.sure,
            n.hello_due,
            n.heard,
            n.resigned_here,
            n.att as i8,
            n.released as i8
        );
        add(format!("node{z}"), text);
        let queue: Vec<_> = s.q[z][..s.qn[z] as usize]
            .iter()
            .map(|m| (m.kind, m.ep as i8, m.len, m.x, m.y, m.ep2 as i8))
            .collect();
        add(format!("queue{z}"), format!("{queue:?}"));
    }
    add("link".into(), format!("{} {}", s.link, s.ahead));
    let witness = [s.wit, s.w_exp[0], s.w_exp[1], s.w_new[0], s.w_new[1], s.late_exp, s.late_new];
    add("witness".into(), format!("{:?} {:?}", s.w_st, witness.map(|x| x as i8)));
    add("word".into(), format!("{:?} {:?} {:?}", s.end_has, s.end_ep, s.fence));
    add(
        "ghost".into(),
        format!("{} {} {:?} {} {} {}", s.writes, s.keys, s.exp, s.forgiven, s.lost_power, s.split),
    );
    list
}
