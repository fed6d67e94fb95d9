//! History as durability services have it: asked for page by page, so that neither side has more
//! of it than a page at a time.
//!
//! Operation. One service is asked, the first by name of those that are ready, or else of those in
//! trouble. If it goes another one is asked from the beginning, and what has come is passed over;
//! so it is where a service has forgotten a reader that did not ask for long, and where one ends
//! and says that it has not all. Where no service answers that is told, and after a time what comes
//! is read without the rest of the past. The last page comes when the service has everything that
//! the topic's writers had written when the reader came; where none has it, what is missing is a
//! gap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{Outage, TransportError};

use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::options::SERVICE_PATIENCE;
use crate::post::{Fetch, NO_MORE};
use crate::tables::Stand;
use crate::topic::{TopicState, no_service};

/// A page that has not come by then is asked for again.
pub(crate) const RETRY: Duration = Duration::from_millis(300);
/// How long a service that is there may need before it says anything of a topic.
const PATIENCE: Duration = Duration::from_secs(60);
/// No page is asked for while so many samples wait to be handed out.
const ENOUGH: usize = 4_096;

/// Who asks so many times in vain for a page that is not the first was most likely forgotten: 20 s.
const FORGOTTEN: u32 = 66;
/// Who asks so many times in vain, begun again or not, has no service that answers: a minute.
const SILENT: u32 = 200;
/// How soon a service is asked again by a reader that has enough to do: it forgets who asks for
/// nothing for 120 s.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long the past is waited for where no service answers, before what comes is read without it.
const AWAY: Duration = Duration::from_secs(30);

/// What is left of a reader's past.
pub(crate) struct Past {
    topic: Arc<TopicState>,
    wake: Arc<dyn Fn() + Send + Sync>,
    fetch: Fetch,
    /// Where the topic's writers stood, and what is there already.
    until: Vec<Stand>,
    have: Vec<Stand>,
    /// Services that have not all of it.
    poor: Vec<String>,
    asked: Option<Instant>,
    /// How many times the service was asked for this page, and any since a page has come.
    asks: [u32; 2],
    /// How many times it is asked before it counts as having forgotten this reader.
    forgotten: u32,
    /// When it was asked last, for whichever page.
    said: Instant,
    /// Since when no service answers.
    lost: Option<Instant>,
    /// What has not been told of that.
    news: VecDeque<Outage>,
    /// When a page has come last.
    heard: Instant,
    alone: Alone,
    /// The last page has come.
    pub(crate) whole: bool,
}

/// What becomes of it when the service that was asked goes and no other is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It waits for another one.
    Waits,
    /// It is over.
    Ends,
}

/// What has come of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Some,
    All,
    /// The service has no more, and says that there is more.
    AllThereIs,
}

/// What is wanted of the past.
pub(crate) struct Wanted {
    pub(crate) partitions: Vec<u32>,
    /// The newest so many of each key; none is everything.
    pub(crate) last: Option<u32>,
    /// Where the topic's writers stand.
    pub(crate) until: Vec<Stand>,
    /// What is there already.
    pub(crate) have: Vec<Stand>,
}

/// Waits until a service keeps a topic; gives its name.
pub(crate) fn await_keeper(topic: &TopicState) -> Result<String, TransportError> {
    let (begun, until) = (Instant::now(), Instant::now() + PATIENCE);
    loop {
        if let Some(keeper) = keeper(topic, &[]) {
            return Ok(keeper);
        }
        topic.connection.check_open()?;
        let alone = !topic.connection.tables.look(|state| state.is_kept_by_anybody());
        if Instant::now() >= if alone { begun + SERVICE_PATIENCE } else { until } {
            return Err(no_service(&format!("read the history of {}", topic.name), topic));
        }
        topic.connection.tables.await_news(until);
    }
}

impl Past {
    /// Begins to ask a service.
    pub(crate) fn begin(
        topic: &Arc<TopicState>,
        (to, alone): (String, Alone),
        wanted: Wanted,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, TransportError> {
        let number = lane(&topic.connection, &wake)?;
        let Wanted { partitions, last, until, have } = wanted;
        let fetch = Fetch {
            to,
            number,
            page: 0,
            topic: topic.name.clone(),
            partitions,
            last,
            until: Vec::new(),
            have: Vec::new(),
        };
        let now = Instant::now();
        Ok(Self {
            topic: Arc::clone(topic),
            wake,
            fetch,
            until,
            have,
            poor: Vec::new(),
            asked: None,
            asks: [0; 2],
            forgotten: FORGOTTEN,
            said: now,
            lost: None,
            news: VecDeque::new(),
            heard: now,
            alone,
            whole: false,
        })
    }

    /// Takes what has come, and asks for more where there is room for it. True where it is over.
    pub(crate) fn turn(&mut self, inbox: &mut Inbox) -> Result<bool, TransportError> {
        match self.take(inbox) {
            Came::All => return Ok(true),
            Came::Some => {}
            Came::AllThereIs if self.alone == Alone::Ends => return Ok(true),
            Came::AllThereIs => {
                self.poor.push(self.fetch.to.clone());
                if !self.begin_again(inbox)? {
                    inbox.miss_until(&self.until);
                    return Ok(true);
                }
            }
        }
        let keepers = |state: &mut crate::tables::State| {
            state.keepers(&self.topic.name).any(|(keeper, _)| *keeper == self.fetch.to)
        };
        let mut there = self.topic.connection.tables.look(keepers);
        if !there {
            // Better those that have not all than none.
            self.poor.clear();
            if self.begin_again(inbox)? {
                (there, self.asks) = (true, [0; 2]);
            }
        }
        if (!there || self.is_silent()) && self.alone == Alone::Ends {
            return Ok(true);
        }
        if there && self.fetch.page > 0 && self.asks[0] >= self.forgotten {
            // A service that is slow, and has forgotten nothing, gets more time.
            self.forgotten = SILENT.min(self.forgotten * 2);
            self.begin_again(inbox)?;
        }
        if self.alone == Alone::Waits && self.fetch.last.is_none() && self.is_lost(there) {
            inbox.miss_past(&self.until);
            self.news.push_back(Outage::Restored);
            return Ok(true);
        }
        self.ask(inbox);
        Ok(false)
    }

    /// Takes the pages that have come.
    fn take(&mut self, inbox: &mut Inbox) -> Came {
        let last = self.fetch.last.is_some();
        let post = &self.topic.connection.post;
        while let Some(page) = post.next_page(self.fetch.number) {
            if page.head.page != self.fetch.page {
                continue;
            }
            for place in page.samples {
                inbox.add_past(&page.letter, place, last);
            }
            self.heard = Instant::now();
            (self.fetch.page, self.asked, self.asks) = (page.head.page + 1, None, [0; 2]);
            if page.head.end {
                inbox.covered_by_past(page.head.stands);
                self.whole = page.head.whole;
                return if self.whole { Came::All } else { Came::AllThereIs };
            }
        }
        Came::Some
    }

    /// Looks whether a service answers, and has it told where that changes; true where none has for
    /// so long that it is waited for no more.
    fn is_lost(&mut self, there: bool) -> bool {
        let silent = self.asks[1] >= SILENT;
        if there && !silent {
            if self.lost.take().is_some() {
                self.news.push_back(Outage::Restored);
            }
            return false;
        }
        let since = *self.lost.get_or_insert_with(|| {
            let how = if there { "does not answer" } else { "has gone" };
            let (name, left) = (&self.topic.name, AWAY.as_secs());
            let cause = format!(
                "the durability service {how} that hands out the history of {name}; in {left} s \
                 what comes is read without the rest of it"
            );
            self.news.push_back(Outage::Lost { cause });
            Instant::now()
        });
        since.elapsed() >= AWAY
    }

    /// Asks for the next page where there is room for it; else says that it will.
    fn ask(&mut self, inbox: &Inbox) {
        let post = &self.topic.connection.post;
        if inbox.waiting() < ENOUGH || self.fetch.last.is_some() {
            if self.asked.is_none_or(|asked| asked.elapsed() >= RETRY) {
                if self.fetch.page == 0 {
                    let (until, have) = (self.until.clone(), self.have.clone());
                    post.ask(&Fetch { until, have, ..self.fetch.clone() });
                } else {
                    post.ask(&self.fetch);
                }
                (self.asked, self.said) = (Some(Instant::now()), Instant::now());
                self.asks = self.asks.map(|asks| asks.saturating_add(1));
            }
        } else if self.is_due() {
            // What has come already comes once more, and is put aside.
            let page = self.fetch.page.saturating_sub(1);
            post.ask(&Fetch { page, ..self.fetch.clone() });
            self.said = Instant::now();
        }
    }

    /// Whether the service is to be asked though there is enough to do.
    pub(crate) fn is_due(&self) -> bool {
        self.said.elapsed() >= KEEP_ALIVE
    }

    /// What is to be told of services that went and came.
    pub(crate) fn news(&mut self) -> Option<Outage> {
        self.news.pop_front()
    }

    /// Whether it is not worth waiting for where others have most of it.
    pub(crate) fn is_slow(&self) -> bool {
        self.heard.elapsed() >= crate::options::PATIENCE
    }

    /// Whether nothing was heard of it for so long that nothing will be.
    pub(crate) fn is_silent(&self) -> bool {
        self.heard.elapsed() >= PATIENCE
    }

    /// Asks another service from the beginning: none has what the other has at the same place.
    /// False where there is none.
    fn begin_again(&mut self, inbox: &mut Inbox) -> Result<bool, TransportError> {
        let Some(to) = keeper(&self.topic, &self.poor) else { return Ok(false) };
        let connection = &self.topic.connection;
        self.end();
        let number = lane(connection, &self.wake)?;
        if self.fetch.last.is_some() {
            inbox.forget_past();
        }
        (self.fetch.to, self.fetch.number, self.fetch.page) = (to, number, 0);
        (self.asked, self.asks[0], self.heard) = (None, 0, Instant::now());
        Ok(true)
    }

    /// Asks no more; the service need not keep what it has made.
    fn end(&self) {
        let post = &self.topic.connection.post;
        post.end_lane(self.fetch.number);
        post.ask(&Fetch { page: NO_MORE, ..self.fetch.clone() });
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        self.end();
    }
}

fn lane(
    connection: &Arc<Connection>,
    wake: &Arc<dyn Fn() + Send + Sync>,
) -> Result<u64, TransportError> {
    connection.post.lane(|kind| connection.letters(kind), Arc::clone(wake))
}

/// The service to be asked: the first by name of those that are ready, besides some.
pub(crate) fn keeper(topic: &TopicState, besides: &[String]) -> Option<String> {
    let tables = &topic.connection.tables;
    tables.look(|state| {
        let others = || {
            let others = state.keepers(&topic.name);
            others.filter(|(name, _)| **name != tables.session && !besides.contains(name))
        };
        // One that cannot take more at the moment has what it has.
        let in_trouble = || others().find(|(_, keeps)| keeps.trouble.is_some());
        let found = others().find(|(_, keeps)| keeps.ready).or_else(in_trouble);
        found.map(|(name, _)| name.clone())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use crate::entity::{Reader, Writer};
    use crate::envelope;
    use crate::inbox::Take;
    use crate::options::Options;
    use crate::post::{FETCH, PAST, PageHead, Pen, letter_qos, page};
    use crate::tables::{Keeps, Word};
    use crate::topic::Dds;
    use helio_bus::transport::{Opening, Transport};
    use helio_bus::{Qos, TopicName};

    fn connect() -> Arc<Connection> {
        let domain = (std::process::id() + 41) % 231;
        let url = format!("dds://{domain}?interface=lo&multicast=false").parse().unwrap();
        let opening = Opening { url, clock: Arc::new(helio_bus::SystemClock::new()) };
        Connection::open(&Options::parse(&opening).unwrap(), &opening.clock).unwrap()
    }

    /// Says that it keeps a topic, and answers as it is told.
    struct Service {
        connection: Arc<Connection>,
        questions: Reader,
        pen: Pen,
    }

    impl Service {
        fn of(topic: &TopicName, to: &str) -> Self {
            let connection = connect();
            let letters = connection.letters(FETCH).unwrap();
            let questions = Reader::open(&letters, &letter_qos().keep_all(), None).unwrap();
            let qos = letter_qos().keep_all().partitions(&[to]).unwrap();
            let writer = Writer::open(&connection.letters(PAST).unwrap(), &qos, None);
            let pen = Pen::new(writer.unwrap(), &connection.tables.session);
            connection.tables.say(Word::Keeper { at: 1 }).unwrap();
            let keeps = Keeps { ready: true, ..Keeps::default() };
            connection.tables.say(Word::Keeps { topic: topic.clone(), keeps }).unwrap();
            Self { connection, questions, pen }
        }

        fn name(&self) -> &str {
            &self.connection.tables.session
        }

        fn asked(&self) -> Vec<Fetch> {
            let mut letters = Vec::new();
            self.questions.take(&mut letters).unwrap();
            let asked = |letter: &crate::entity::Sample| {
                serde_json::from_slice(envelope::parse(letter.cdr())?.1).ok()
            };
            letters.iter().filter(|letter| letter.valid).filter_map(asked).collect()
        }

        /// A page without samples, to a reader.
        fn answer(&mut self, number: u64, head: &PageHead) {
            let until = Instant::now() + PATIENCE;
            while !self.pen.is_read() {
                assert!(Instant::now() < until, "they never met");
                std::thread::yield_now();
            }
            self.pen.write(number.to_string().as_bytes(), &page(head)).unwrap();
        }
    }

    #[test]
    fn who_was_forgotten_by_the_service_begins_again() {
        let (name, reading) = ("kept".parse::<TopicName>().unwrap(), connect());
        Dds::new(Arc::clone(&reading)).create_topic(&name, &Qos::event()).unwrap();
        let mut service = Service::of(&name, &reading.tables.session);
        let topic = Dds::new(Arc::clone(&reading)).state(&name).unwrap().unwrap();
        let (to, mut inbox) = (await_keeper(&topic).unwrap(), Inbox::new(&[0], Take::History));
        inbox.begin_past();
        let wanted =
            Wanted { partitions: vec![0], last: None, until: Vec::new(), have: Vec::new() };
        let mut past = Past::begin(&topic, (to, Alone::Waits), wanted, Arc::new(|| {})).unwrap();
        let (first, until) = (past.fetch.number, Instant::now() + 3 * PATIENCE);
        let (mut answered, mut begun) = (false, false);
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it asks for ever");
            // The other tests of this domain have questions of their own.
            let own = |fetch: &&Fetch| fetch.page == 0 && fetch.to == service.name();
            let asked = service.asked();
            let asked: Vec<_> = asked.iter().filter(own).collect();
            for fetch in asked {
                let head = PageHead { end: fetch.number != first, ..PageHead::new(0) };
                if !std::mem::replace(if head.end { &mut begun } else { &mut answered }, true) {
                    service.answer(fetch.number, &head);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(answered && begun);
        assert_eq!(past.news(), None, "the service was there all the time");
    }

    #[test]
    fn services_in_trouble_are_asked_last_and_another_one_where_one_has_not_all() {
        let (name, reading) = ("poor".parse::<TopicName>().unwrap(), connect());
        Dds::new(Arc::clone(&reading)).create_topic(&name, &Qos::event()).unwrap();
        let mut services = [(); 2].map(|()| Service::of(&name, &reading.tables.session));
        services.sort_by_key(|service| service.name().to_owned());
        let trouble = Some("no room".to_owned());
        let keeps = Keeps { trouble, ..Keeps::default() };
        let word = Word::Keeps { topic: name.clone(), keeps };
        services[0].connection.tables.say(word).unwrap();
        let topic = Dds::new(Arc::clone(&reading)).state(&name).unwrap().unwrap();
        let both = |state: &mut crate::tables::State| {
            let troubled = state.keepers(&name).any(|(_, keeps)| keeps.trouble.is_some());
            troubled && state.keepers(&name).count() == 2
        };
        let until = Instant::now() + PATIENCE;
        while !reading.tables.fresh(both) {
            assert!(Instant::now() < until, "they are not seen");
            std::thread::yield_now();
        }
        let mut inbox = Inbox::new(&[0], Take::History);
        inbox.begin_past();
        let producer = helio_core::ProducerName::new("Mount").unwrap();
        let stand = Stand { partition: 0, producer, incarnation: 1, sequence: 5, ways: [0; 2] };
        let wanted =
            Wanted { partitions: vec![0], last: None, until: vec![stand], have: Vec::new() };
        let asked = (await_keeper(&topic).unwrap(), Alone::Waits);
        let mut past = Past::begin(&topic, asked, wanted, Arc::new(|| {})).unwrap();
        let mut order = Vec::new();
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it asks for ever: {order:?}");
            for (place, service) in services.iter_mut().enumerate() {
                let to = service.name().to_owned();
                let asked = service.asked();
                let first = asked.iter().find(|fetch| fetch.page == 0 && fetch.to == to);
                if let Some(fetch) = first.filter(|_| !order.contains(&place)) {
                    assert_eq!(fetch.until.len(), 1);
                    let head = PageHead { end: true, whole: false, ..PageHead::new(0) };
                    service.answer(fetch.number, &head);
                    order.push(place);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(order, [1, 0]);
        let told: Vec<_> = inbox.gaps.iter().map(|gap| (gap.partition, gap.lost)).collect();
        assert_eq!(told, [(0, 5)], "neither has it");
    }
}
