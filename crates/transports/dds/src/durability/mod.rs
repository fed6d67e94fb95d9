//! The durability service: it keeps persistent topics of a domain in a journal, says what it has,
//! and hands it to late joiners when the writers have gone.
//!
//! Constraints. Nothing is acknowledged before it is durable in the journal; what is not
//! acknowledged stays with its writer, which sends it again. Killing the service at any instruction
//! loses nothing that was acknowledged. One thread does all that receipts depend on, so that no two
//! of its parts see different things, and waits for nobody: what takes the disk is done by others
//! for it. Another one hands out what is there, and where the first one stands still a third takes
//! back that the service is ready. What goes wrong with a topic, a producer or a letter is theirs:
//! the service goes on.
//!
//! Format. The journal is the bus's own: a topic is kept under its name, its samples as they were
//! published. `catalogue` says what the topics are in the domain.
//!
//! Operation, a turn: topics that are new in the tables are opened, some at a time, beside it; what
//! has come is appended to the journal, and the writers are told; what has got onto the disk by now
//! they are told, too. Beside it, who has asked for history gets it page by page.
//!
//! Two services of a domain keep the same topics. Writers wait for both; a reader asks one of them,
//! and the other one when that has gone; one that comes back fetches what it has missed.

mod catalogue;
mod errands;
mod left;
mod letters;
mod level;
mod lost;
mod opening;
mod serve;
mod syncing;
#[cfg(test)]
mod tests;
mod topic;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use helio_bus::transport::{Opening, locked};
use helio_bus::{
    Bell, Bus, ConnectError, LocalBell, Qos, ReadError, SystemClock, TopicError, TopicName,
    TransportError,
};
use thiserror::Error;

use crate::connection::Connection;
use crate::entity::{Refused, Writer};
use crate::error::failed;
use crate::options::Options;
use crate::post::{Pen, STORED, Stored, stored_qos};
use crate::tables::{Keeps, Stand, Word, unix_nanos};
use crate::topic::{Dds, has_last_values, is_kept};
use catalogue::Catalogue;
use errands::{Errand, Errands};
use opening::{Opened, Opener};
use serve::{Server, Shelves};
use topic::Keeping;
use watch::Watch;

/// How many errands are done at a time: most of it is waiting, and who asks the disk at the same
/// moment shares what it does.
const ERRANDS: usize = 24;
/// The most topics that are opened at a time: other errands have their turn meanwhile.
const OPENED_AT_A_TIME: usize = 16;
/// What begins with it is the transport's own, and the journal's.
pub(crate) const INTERNAL: &str = "_helio/";
/// How often it is looked for new topics, schemas and services.
const LOOK: Duration = Duration::from_millis(100);
/// How long after a topic could not be opened it is tried again.
const REFUSED: Duration = Duration::from_secs(10);

/// Why the service cannot start, or has to stop. What it cannot keep is a [`Notice`].
#[derive(Debug, Error)]
pub enum DurabilityError {
    /// The domain or the folder cannot be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A topic of the folder cannot be opened; one that is in use by another service names it.
    #[error("the folder's topics cannot be opened: {0}")]
    Topic(#[from] TopicError),
    /// The folder cannot be read.
    #[error("the folder cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The domain cannot be used any more.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// What the folder says of a topic is not ours.
    #[error("the folder's catalogue of {topic} cannot be read ({reason}); remove it there")]
    Catalogue {
        /// The topic.
        topic: String,
        /// What is wrong.
        reason: String,
    },
    /// The folder has a topic of that name that no service has made.
    #[error("the folder has a topic {0} of its own; keep the domain in a folder of the service's")]
    NotOurs(TopicName),
}

/// What the service tells whoever runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It keeps a topic from now on.
    Keeps {
        /// The topic.
        topic: TopicName,
        /// How many samples of it were in the folder.
        samples: u64,
    },
    /// It has what each other service has of a topic that it keeps: from now on receipts wait for
    /// it, and the others may go.
    Ready {
        /// The topic.
        topic: TopicName,
    },
    /// It cannot keep a topic at the moment, and tries again; its writers get no receipts.
    Trouble {
        /// The topic.
        topic: TopicName,
        /// Why: no room on the disk, for example.
        cause: String,
    },
    /// It keeps the topic again.
    Recovered {
        /// The topic.
        topic: TopicName,
    },
    /// Samples of a producer will never come: others had them acknowledged, and are gone.
    Hole {
        /// The topic.
        topic: TopicName,
        /// Who and how many.
        told: String,
    },
}

/// What the service has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Topics that it keeps.
    pub topics: u64,
    /// Samples that it has stored since it started.
    pub stored: u64,
    /// Their payloads, in bytes.
    pub bytes: u64,
    /// Samples that it has handed to late joiners.
    pub served: u64,
}

/// Whether a domain (`dds://…`) has a durability service; one is waited for at most 3 s.
///
/// # Errors
/// [`DurabilityError::Connect`].
pub fn is_there(url: &str) -> Result<bool, DurabilityError> {
    let opening = opening(url)?;
    let options = Options::parse(&opening)?;
    Ok(Connection::open(&options, &opening.clock).map_err(ConnectError::from)?.has_service())
}

fn opening(url: &str) -> Result<Opening, ConnectError> {
    Ok(Opening { url: url.parse()?, clock: Arc::new(SystemClock::new()) })
}

/// A topic that is being opened.
struct Begun {
    qos: Qos,
    kept: bool,
    token: u64,
    opened: Errand<Opened>,
}

/// A durability service: whoever runs it takes turns until it is to stop. Dropping it ends it; what
/// it has stays in the folder.
pub struct Durability {
    dds: Arc<Dds>,
    catalogue: Arc<Catalogue>,
    journal: Bus,
    bell: Arc<dyn Bell>,
    errands: Arc<Errands>,
    topics: BTreeMap<TopicName, Keeping>,
    /// Those that are to be opened, and those that are being.
    unopened: VecDeque<(TopicName, Qos, bool)>,
    opening: BTreeMap<TopicName, Begun>,
    tokens: HashMap<u64, TopicName>,
    next_token: u64,
    /// What is handed out of the topics, and who does so.
    shelves: Arc<Shelves>,
    server: Server,
    marks: HashMap<String, Pen>,
    watch: Arc<Watch>,
    /// What was not said yet of itself and of topics that nobody has open.
    unsaid: VecDeque<Word>,
    /// Topics that could not be opened, as they were then, and when.
    refused: HashMap<TopicName, (Qos, Instant)>,
    looked: Option<Instant>,
    figures: Figures,
}

impl Durability {
    /// Joins a domain (`dds://…`), and keeps its persistent topics in a folder, which is made where
    /// there is none. A folder is one service's.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn open(url: &str, folder: &Path) -> Result<Self, DurabilityError> {
        let journal = Bus::builder().producer("durability");
        let journal = journal.connect(&format!("journal:{}", folder.display()))?;
        let catalogue = Catalogue::open(&journal)?;
        let opening = opening(url)?;
        let options = Options::parse(&opening)?;
        let connection = Connection::open(&options, &opening.clock)?;
        let bell: Arc<dyn Bell> = LocalBell::new();
        let errands = Errands::start(&bell, ERRANDS)?;
        let watch = Arc::new(Watch::new(connection.lease));
        let (watching, rung) = (Arc::clone(&watch), Arc::clone(&bell));
        connection.listen(move |connection| {
            watching.look(&connection.tables);
            rung.ring(None);
        });
        let shelves = Arc::<Shelves>::default();
        let server = Server::start(&connection, &shelves)?;
        let mut service = Self {
            dds: Arc::new(Dds::new(connection)),
            catalogue: Arc::new(catalogue),
            journal,
            bell,
            errands,
            topics: BTreeMap::new(),
            unopened: VecDeque::new(),
            opening: BTreeMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
            shelves,
            server,
            marks: HashMap::new(),
            watch,
            unsaid: VecDeque::from([Word::Keeper { at: unix_nanos() }]),
            refused: HashMap::new(),
            looked: None,
            figures: Figures::default(),
        };
        service.learn()?;
        service.say_what_is_due();
        Ok(service)
    }

    /// Forgets topics of a folder, samples and all: for whoever wants them otherwise. No service
    /// may use the folder meanwhile. Gives those that were there.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn forget(folder: &Path, topics: &[TopicName]) -> Result<Vec<TopicName>, DurabilityError> {
        let journal = Bus::connect(&format!("journal:{}", folder.display()))?;
        let catalogue = Catalogue::open(&journal)?;
        let mut forgotten = Vec::new();
        for topic in topics {
            let known = catalogue.forget(topic)?;
            if journal.remove_topic(topic)? || known {
                forgotten.push(topic.clone());
            }
        }
        Ok(forgotten)
    }

    /// Topics that nobody has open are there all the same: what is to be said of them. First that
    /// they are here: another service that starts, too, waits for what this one has.
    fn learn(&mut self) -> Result<(), DurabilityError> {
        let known = self.catalogue.known();
        let kept = known.iter().filter(|(_, known)| known.kept);
        self.unsaid.extend(kept.map(|(topic, _)| {
            let keeps = Keeps { opening: true, ..Keeps::default() };
            Word::Keeps { topic: topic.clone(), keeps }
        }));
        for (topic, known) in known.iter().filter(|(_, known)| known.kept) {
            let (qos, origin) = (known.qos.clone(), known.origin.clone());
            self.unsaid.push_back(Word::Topic {
                topic: topic.clone(),
                qos,
                origin: origin.clone(),
            });
            let schemas = self.journal.schemas_of(topic)?;
            for (after, id) in schemas.unwrap_or_default().into_iter().enumerate() {
                let Some(text) = self.journal.schema(id)? else { continue };
                let schema = crate::tables::hex(id);
                self.unsaid.push_back(Word::Text { schema: schema.clone(), text });
                let (topic, origin) = (topic.clone(), origin.clone());
                self.unsaid.push_back(Word::Of { topic, schema, after, origin });
            }
        }
        Ok(())
    }

    /// Says it, up to where a participant takes no words at the moment.
    fn say_what_is_due(&mut self) {
        while let Some(word) = self.unsaid.front() {
            if self.dds.connection.tables.say(word.clone()).is_err() {
                return;
            }
            self.unsaid.pop_front();
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let served = self.figures.served + self.server.served();
        Figures { topics: self.topics.len() as u64, served, ..self.figures }
    }

    /// Ends the wait of a turn, from any thread.
    #[must_use]
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let bell = Arc::clone(&self.bell);
        Arc::new(move || bell.ring(None))
    }

    /// Does what there is to do; where there is nothing, waits so long for something.
    ///
    /// # Errors
    /// [`DurabilityError`]: it cannot go on.
    pub fn turn(
        &mut self,
        at_most: Duration,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), DurabilityError> {
        self.dds.connection.check_open()?;
        if self.server.has_ended() {
            self.figures.served += self.server.served();
            self.server = Server::start(&self.dds.connection, &self.shelves)?;
        }
        if self.watch.begin_turn() {
            self.topics.values_mut().for_each(Keeping::stood_still);
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.look(tell);
        }
        self.take_opened(tell);
        if !self.store(tell) {
            self.rest(at_most);
        }
        Ok(())
    }

    fn rest(&mut self, at_most: Duration) {
        let mut at_most = at_most.min(LOOK);
        for topic in self.topics.values_mut().filter(|topic| !topic.is_armed()) {
            at_most = at_most.min(topic.arm(&self.bell));
        }
        let mut ready = Vec::new();
        self.bell.wait(Some(at_most), &mut ready);
        for name in ready.iter().filter_map(|token| self.tokens.get(token)) {
            if let Some(topic) = self.topics.get_mut(name) {
                topic.rung();
            }
        }
    }

    /// Opens what is new, and looks after what is there.
    fn look(&mut self, tell: &mut dyn FnMut(Notice)) {
        self.say_what_is_due();
        if !self.unsaid.is_empty() {
            // It would be said behind what it says of topics that are open.
            return;
        }
        self.look_for_topics();
        for topic in self.topics.values_mut() {
            topic.look(&mut self.figures, tell);
            self.watch.beat();
        }
        let tables = &self.dds.connection.tables;
        let live = |session: &String| tables.look(|state| state.live.contains(session));
        self.marks.retain(|session, _| live(session));
        self.looked = Some(Instant::now());
    }

    /// Looks what is to be opened.
    fn look_for_topics(&mut self) {
        let tables = &self.dds.connection.tables;
        // What was kept stays so: what was acknowledged of it is in the folder.
        let was_kept =
            |name: &TopicName| self.catalogue.known().get(name).is_some_and(|known| known.kept);
        let wanted = tables.fresh(|state| {
            let wanted = |name: TopicName| {
                if name.as_str().starts_with(INTERNAL) {
                    return None;
                }
                let (_, qos) = state.topic(&name)?;
                let kept = state.is_wanted(&name) || is_kept(qos) || was_kept(&name);
                (kept || has_last_values(qos)).then(|| (name.clone(), qos.clone(), kept))
            };
            state.topics().into_iter().filter_map(wanted).collect::<Vec<_>>()
        });
        self.unopened.clear();
        for (name, qos, kept) in wanted {
            let open = self.topics.get(&name);
            let refused = self.refused.get(&name);
            let refused =
                refused.filter(|(as_it_was, at)| *as_it_was == qos && at.elapsed() < REFUSED);
            // One that nobody had open any more may have been made anew, and differently.
            let is_open = open.is_some_and(|topic| topic.is(&qos, kept));
            if !is_open && refused.is_none() && !self.opening.contains_key(&name) {
                self.unopened.push_back((name, qos, kept));
            }
        }
        self.open_some();
    }

    /// Begins to open what is to be opened, up to so many at a time.
    fn open_some(&mut self) {
        while self.opening.len() < OPENED_AT_A_TIME
            && let Some((name, qos, kept)) = self.unopened.pop_front()
        {
            // Where it cannot be closed, it is tried again with the next look.
            if !self.close_topic(&name) {
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let opener = Opener {
                dds: Arc::clone(&self.dds),
                journal: self.journal.clone(),
                catalogue: Arc::clone(&self.catalogue),
                watch: Arc::clone(&self.watch),
                errands: Arc::clone(&self.errands),
                bell: Arc::clone(&self.bell),
            };
            let topic = name.clone();
            let opened = self.errands.run(move || opener.open(&topic, (token, kept)));
            self.opening.insert(name, Begun { qos, kept, token, opened });
        }
    }

    /// Looks after topics that were opened meanwhile.
    fn take_opened(&mut self, tell: &mut dyn FnMut(Notice)) {
        let over = |(name, opening): (&TopicName, &Begun)| match opening.opened.try_recv() {
            Err(TryRecvError::Empty) => None,
            opened => Some((name.clone(), opened)),
        };
        let over: Vec<_> = self.opening.iter().filter_map(over).collect();
        for (name, opened) in over {
            let Some(Begun { qos, kept, token, .. }) = self.opening.remove(&name) else {
                continue;
            };
            match opened {
                Ok(Ok(Some((topic, samples)))) => {
                    self.tokens.insert(token, name.clone());
                    locked(&self.shelves).insert(name.clone(), Arc::clone(topic.shelf()));
                    self.topics.insert(name.clone(), topic);
                    tell(Notice::Keeps { topic: name, samples });
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => self.refuse(name, (qos, kept), &error.to_string(), tell),
                Err(panicked) => self.refuse(name, (qos, kept), &panicked.to_string(), tell),
            }
        }
        self.open_some();
    }

    /// A topic cannot be opened: its writers are told, and it is tried again.
    fn refuse(
        &mut self,
        topic: TopicName,
        (qos, kept): (Qos, bool),
        cause: &str,
        tell: &mut dyn FnMut(Notice),
    ) {
        let cause = format!("the durability service cannot keep {topic}: {cause}");
        if kept {
            let (refused, trouble) = (true, Some(cause.clone()));
            let before = self.watch.said(&topic);
            let keeps = Keeps { refused, trouble, ready: false, last_values: false, ..before };
            // Where it cannot be said, it is when the topic is tried again.
            let _ = self.watch.say(&self.dds.connection.tables, &topic, &keeps);
        }
        self.refused.insert(topic.clone(), (qos, Instant::now()));
        tell(Notice::Trouble { topic, cause });
    }

    /// Before a topic is opened anew, which may fail: nobody waits for this service any more, nor
    /// reads what is not looked after. False where that cannot be said at the moment.
    fn close_topic(&mut self, name: &TopicName) -> bool {
        let Some(topic) = self.topics.get(name) else { return true };
        let keeps = Keeps { ready: false, ..self.watch.said(name) };
        if self.watch.say(&self.dds.connection.tables, name, &keeps).is_err() {
            return false;
        }
        topic.shelf().close();
        locked(&self.shelves).remove(name);
        self.topics.remove(name);
        true
    }

    /// Puts what has come into the journal, and says so; then what has got onto the disk.
    fn store(&mut self, tell: &mut dyn FnMut(Notice)) -> bool {
        let mut busy = self.take(true, tell);
        self.write_letters();
        for topic in self.topics.values_mut().filter(|topic| topic.is_kept()) {
            topic.settle(tell);
        }
        self.write_letters();
        // Receipts first: nobody waits for what has last values alone.
        busy |= self.take(false, tell);
        busy
    }

    /// Takes what has come of the topics that are kept, or of which last values are. True where
    /// there may be more.
    fn take(&mut self, kept: bool, tell: &mut dyn FnMut(Notice)) -> bool {
        let mut busy = false;
        for topic in self.topics.values_mut() {
            if topic.is_kept() == kept && !topic.is_armed() {
                busy |= topic.take(&mut self.figures, tell);
                self.watch.beat();
            }
        }
        busy
    }

    /// Tells writers what is new of their samples.
    fn write_letters(&mut self) {
        let mut letters = Vec::new();
        for topic in self.topics.values_mut().filter(|topic| topic.is_kept()) {
            topic.letters(&mut letters);
        }
        for (session, letter) in letters {
            if self.send(&session, &letter).is_err()
                && let Some(topic) = self.topics.get_mut(&letter.topic)
            {
                // The session takes none at the moment.
                topic.untold(&session, &letter);
            }
        }
        self.watch.beat();
    }

    fn send(&mut self, session: &str, letter: &Stored) -> Result<(), TransportError> {
        if !self.marks.contains_key(session) {
            let connection = &self.dds.connection;
            let qos = stored_qos().partitions(&[session]).map_err(failed("name a session"))?;
            let writer = Writer::open(&connection.letters(STORED)?, &qos, None);
            let writer = writer.map_err(failed("open a writer of letters"))?;
            self.marks.insert(session.to_owned(), Pen::new(writer, &connection.tables.session));
        }
        let value = serde_json::to_vec(letter).unwrap_or_default();
        let Some(pen) = self.marks.get_mut(session) else { return Ok(()) };
        let key = letter.key(&self.dds.connection.tables.session);
        pen.write(key.as_bytes(), &value).map_err(|refused| match refused {
            Refused::Full => TransportError::Outage {
                transport: crate::SCHEME.to_owned(),
                cause: "a participant takes no letters".to_owned(),
            },
            Refused::Failed(error) => failed("write a letter")(error),
        })
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        self.topics.clear();
        self.dds.connection.close();
        self.errands.end();
        self.journal.close();
    }
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durability").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

/// Who, in which partition.
type Who = (u32, helio_core::ProducerName);
/// How far: incarnation and number.
type Order = (u64, u64);

/// Stands as others read them.
fn stands(known: &HashMap<Who, Order>) -> Vec<Stand> {
    let stand = |((partition, producer), (incarnation, sequence)): (&Who, &Order)| Stand {
        partition: *partition,
        producer: producer.clone(),
        incarnation: *incarnation,
        sequence: *sequence,
        ways: [0; 2],
    };
    known.iter().map(stand).collect()
}
