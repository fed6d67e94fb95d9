//! History as durability services have it: asked for page by page, so that neither side has more
//! of it than a page at a time.
//!
//! Operation. One service is asked, the first by name of those that are ready, or else of those in
//! trouble. Another one is asked, for all but what has come, if it goes, is silent, hands out
//! nothing for a minute, cannot read what it has, or ends and says that it has not all; the same
//! one where there is no other, as it may have forgotten a reader that did not ask for long. Where
//! no service answers that is told, and after a time what comes is read without the rest of the
//! past. The last page comes when the service has everything that the topic's writers had written
//! when the reader came; where none has it, what is missing is a gap. Last values are one
//! service's: of one that has all, or else of the first that has come to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{Outage, TransportError};

use crate::connection::Connection;
use crate::inbox::{Aside, Inbox};
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

/// Who asks so many times in vain for a page asks another service, or was most likely forgotten:
/// 20 s.
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
    /// Services that have not all of it, or do not answer.
    poor: Vec<String>,
    /// One of them has come to its end; its last values.
    ended: bool,
    aside: Option<Aside>,
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
    /// When a page has come last, and one with samples.
    heard: Instant,
    came: Instant,
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
    /// The service cannot read what it has.
    Failed,
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
            known: 0,
        };
        let now = Instant::now();
        Ok(Self {
            topic: Arc::clone(topic),
            wake,
            fetch,
            until,
            have,
            poor: Vec::new(),
            ended: false,
            aside: None,
            asked: None,
            asks: [0; 2],
            forgotten: FORGOTTEN,
            said: now,
            lost: None,
            news: VecDeque::new(),
            heard: now,
            came: now,
            alone,
            whole: false,
        })
    }

    /// Takes what has come, and asks for more where there is room for it. True where it is over.
    pub(crate) fn turn(&mut self, inbox: &mut Inbox) -> Result<bool, TransportError> {
        match self.take(inbox) {
            Came::All => return Ok(true),
            Came::Some => {}
            Came::AllThereIs | Came::Failed if self.alone == Alone::Ends => return Ok(true),
            Came::AllThereIs => {
                if !self.ask_another(inbox, true)? {
                    self.miss(inbox, false);
                    return Ok(true);
                }
            }
            Came::Failed => {
                if !self.ask_another(inbox, false)? {
                    self.miss(inbox, true);
                    return Ok(true);
                }
            }
        }
        let keepers = |state: &mut crate::tables::State| {
            state.keepers(&self.topic.name).any(|(keeper, _)| *keeper == self.fetch.to)
        };
        let mut there = self.topic.connection.tables.look(keepers);
        if !there {
            if self.aside.is_some() {
                self.miss(inbox, false);
                return Ok(true);
            }
            // Better those that have not all than none. But for another service, which asks each.
            self.poor.clear();
            let may = self.alone == Alone::Waits || self.fetch.last.is_some();
            if let Some(to) = keeper(&self.topic, &[]).filter(|_| may) {
                self.begin_again(to, inbox)?;
                (there, self.asks) = (true, [0; 2]);
            }
        }
        if (!there || self.is_silent()) && self.alone == Alone::Ends {
            return Ok(true);
        }
        if there && (self.asks[0] >= self.forgotten || self.is_stuck()) {
            // A service that is slow, and has forgotten nothing, gets more time.
            self.forgotten = SILENT.min(self.forgotten * 2);
            if self.leave(inbox)? {
                self.miss(inbox, false);
                return Ok(true);
            }
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
            if page.head.busy {
                // It comes when others have left.
                (self.heard, self.asks) = (Instant::now(), [0; 2]);
                continue;
            }
            if !page.samples.is_empty() {
                self.came = Instant::now();
            }
            for place in page.samples {
                inbox.add_past(&page.letter, place, last);
            }
            self.heard = Instant::now();
            (self.fetch.page, self.asked, self.asks) = (page.head.page + 1, None, [0; 2]);
            if page.head.end {
                inbox.covered_by_past(page.head.stands);
                self.whole = page.head.whole;
                return match (self.whole, page.head.failed) {
                    (true, _) => Came::All,
                    (_, true) => Came::Failed,
                    _ => Came::AllThereIs,
                };
            }
        }
        Came::Some
    }

    /// Looks whether a service answers, and has it told where that changes; true where none has for
    /// so long that it is waited for no more.
    fn is_lost(&mut self, there: bool) -> bool {
        if there && !self.is_silent() {
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
                post.ask(&self.question(inbox));
                (self.asked, self.said) = (Some(Instant::now()), Instant::now());
                self.asks = self.asks.map(|asks| asks.saturating_add(1));
            }
        } else if self.is_due() {
            // What has come already comes once more, and is put aside. Who has had none was not
            // asked yet, and has nothing to keep.
            if let Some(page) = self.fetch.page.checked_sub(1) {
                post.ask(&Fetch { page, ..self.fetch.clone() });
            }
            self.said = Instant::now();
        }
    }

    /// The question for the next page; the first says what is wanted besides what has come.
    fn question(&self, inbox: &Inbox) -> Fetch {
        if self.fetch.page > 0 {
            return self.fetch.clone();
        }
        let (until, mut have) = (self.until.clone(), self.have.clone());
        if self.fetch.last.is_none() {
            // Where it says so twice, the later one counts, which goes farther.
            have.extend(inbox.has_of_past());
        }
        Fetch { until, have, ..self.fetch.clone() }
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

    /// Whether it was asked so often in vain that nothing will be heard of it.
    pub(crate) fn is_silent(&self) -> bool {
        self.asks[1] >= SILENT
    }

    /// Whether a service that answers hands out no last values: it waits for what it does not get.
    fn is_stuck(&self) -> bool {
        self.fetch.last.is_some() && self.came.elapsed() >= PATIENCE
    }

    /// Leaves a service that has not all of it (`ended`), or cannot say what it has. False where
    /// there is no other.
    fn ask_another(&mut self, inbox: &mut Inbox, ended: bool) -> Result<bool, TransportError> {
        let was_ready = self.is_ready(&self.fetch.to);
        self.poor.push(self.fetch.to.clone());
        let last = self.fetch.last.is_some();
        if ended && last && self.aside.is_none() {
            self.aside = Some(inbox.put_past_aside());
        }
        self.ended |= ended;
        let other = keeper(&self.topic, &self.poor);
        // Last values of one in trouble are older: it may be so for days.
        let other = other.filter(|to| !(last && ended && was_ready) || self.is_ready(to));
        let Some(to) = other else { return Ok(false) };
        self.begin_again(to, inbox)?;
        Ok(true)
    }

    /// Leaves a service that is silent, or hands out nothing; where there is no other it is asked
    /// once more, or those that were silent before it. True where it is over.
    fn leave(&mut self, inbox: &mut Inbox) -> Result<bool, TransportError> {
        let last = self.fetch.last.is_some();
        // Another service is asked what itself has: only that one knows.
        let may = self.alone == Alone::Waits || last;
        // Last values of one in trouble are older: so the others have had time enough.
        let any = !last || self.forgotten == SILENT;
        let other = |besides: &[String]| {
            let besides = [besides, std::slice::from_ref(&self.fetch.to)].concat();
            let other = keeper(&self.topic, &besides).filter(|_| may);
            other.filter(|to| any || self.is_ready(to))
        };
        let (new, stuck) = (other(&self.poor), self.is_stuck());
        if new.is_none() && may && (self.ended || stuck && self.fetch.page > 0) {
            return Ok(true);
        }
        let known = if new.is_none() { other(&[]) } else { None };
        match new.as_ref().or(known.as_ref()) {
            Some(to) => {
                if new.is_none() {
                    self.poor.clear();
                } else if last {
                    self.asks[1] = 0;
                }
                self.poor.push(self.fetch.to.clone());
                self.begin_again(to.clone(), inbox)?;
            }
            // It has heard nothing that it could have forgotten.
            None if self.fetch.page == 0 => (self.asks[0], self.came) = (0, Instant::now()),
            None => self.begin_again(self.fetch.to.clone(), inbox)?,
        }
        Ok(false)
    }

    fn is_ready(&self, service: &String) -> bool {
        self.topic.connection.tables.look(|state| {
            let mut keepers = state.keepers(&self.topic.name);
            keepers.any(|(keeper, keeps)| keeper == service && keeps.ready)
        })
    }

    /// No service has all of it: tells what is missing. `unread`: nor does one know how much it is.
    fn miss(&mut self, inbox: &mut Inbox, unread: bool) {
        match self.aside.take() {
            Some(aside) => inbox.take_past_back(aside),
            None if unread => return inbox.miss_past(&self.until),
            None => {}
        }
        inbox.miss_until(&self.until);
    }

    /// Asks a service from the beginning: none has what another has at the same place.
    fn begin_again(&mut self, to: String, inbox: &mut Inbox) -> Result<(), TransportError> {
        self.end();
        let number = lane(&self.topic.connection, &self.wake)?;
        if self.fetch.last.is_some() {
            drop(inbox.put_past_aside());
        }
        (self.fetch.to, self.fetch.number, self.fetch.page) = (to, number, 0);
        let now = Instant::now();
        (self.asked, self.asks[0], self.heard) = (None, 0, now);
        (self.said, self.came) = (now, now);
        Ok(())
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
            // One that keeps it otherwise has it with holes.
            let others = others.filter(|(_, keeps)| !topic.is_kept() || !keeps.last_values);
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
    use crate::envelope::Header;
    use crate::inbox::Take;
    use crate::options::Options;
    use crate::post::{FETCH, PAST, PageHead, Pen, framed, letter_qos, page};
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
            let this = Self { connection, questions, pen };
            this.says(topic, None);
            this
        }

        /// That it is ready, or in trouble.
        fn says(&self, topic: &TopicName, trouble: Option<&str>) {
            let (ready, trouble) = (trouble.is_none(), trouble.map(str::to_owned));
            let keeps = Keeps { ready, trouble, ..Keeps::default() };
            let word = Word::Keeps { topic: topic.clone(), keeps };
            self.connection.tables.say(word).unwrap();
        }

        /// The newest question for a first page.
        fn begun(&self) -> Option<Fetch> {
            let mut asked = self.asked().into_iter();
            asked.rfind(|fetch| fetch.page == 0 && fetch.to == self.name())
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

        /// A page of samples of Mount's, by their numbers, to a reader.
        fn answer_with(
            &mut self,
            number: u64,
            head: &PageHead,
            samples: impl IntoIterator<Item = u64>,
        ) {
            let (mut cdr, mut made) = (Vec::new(), page(head));
            for sample in samples {
                let header = Header::of_session("Mount", sample, b"key");
                let header = Header { flags: envelope::RE_SERVED, ..header };
                envelope::write_head(&header, 0, &mut cdr);
                framed(&cdr, &mut made);
            }
            self.send(number, &made);
        }

        /// A page without samples, to a reader.
        fn answer(&mut self, number: u64, head: &PageHead) {
            self.send(number, &page(head));
        }

        fn send(&mut self, number: u64, page: &[u8]) {
            let until = Instant::now() + PATIENCE;
            while !self.pen.is_read() {
                assert!(Instant::now() < until, "they never met");
                std::thread::yield_now();
            }
            self.pen.write(number.to_string().as_bytes(), page).unwrap();
        }
    }

    /// Two services that a reader sees of a topic, by name; the first as it says.
    fn two_services(
        name: &TopicName,
        reading: &Arc<Connection>,
        trouble: [Option<&str>; 2],
    ) -> ([Service; 2], Arc<TopicState>) {
        Dds::new(Arc::clone(reading)).create_topic(name, &Qos::event()).unwrap();
        let mut services = [(); 2].map(|()| Service::of(name, &reading.tables.session));
        services.sort_by_key(|service| service.name().to_owned());
        for (service, trouble) in services.iter().zip(trouble) {
            service.says(name, trouble);
        }
        let troubled = trouble.iter().flatten().count();
        let seen = |state: &mut crate::tables::State| {
            let found = state.keepers(name).filter(|(_, keeps)| keeps.trouble.is_some()).count();
            found == troubled && state.keepers(name).count() == 2
        };
        let until = Instant::now() + PATIENCE;
        while !reading.tables.fresh(seen) {
            assert!(Instant::now() < until, "they are not seen");
            std::thread::yield_now();
        }
        (services, Dds::new(Arc::clone(reading)).state(name).unwrap().unwrap())
    }

    /// How far Mount is.
    fn mount(sequence: u64) -> Stand {
        let producer = helio_core::ProducerName::new("Mount").unwrap();
        Stand { partition: 0, producer, incarnation: 1, sequence, ways: [0; 2] }
    }

    /// Begins to read up to where Mount has five.
    fn begin(topic: &Arc<TopicState>, inbox: &mut Inbox, last: Option<u32>) -> Past {
        inbox.begin_past();
        let wanted = Wanted { partitions: vec![0], last, until: vec![mount(5)], have: Vec::new() };
        let asked = (await_keeper(topic).unwrap(), Alone::Waits);
        Past::begin(topic, asked, wanted, Arc::new(|| {})).unwrap()
    }

    fn handed_out(inbox: &mut Inbox) -> Vec<u64> {
        std::iter::from_fn(|| inbox.pop()).map(|queued| queued.sequence).collect()
    }

    #[test]
    fn a_service_that_does_not_answer_is_left_for_the_one_that_does() {
        let (name, reading) = ("silent".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, None);
        assert_eq!(past.fetch.to, services[0].name());
        let (until, mut told) = (Instant::now() + 3 * PATIENCE, Vec::new());
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it asks the silent one for ever");
            told.extend(past.news());
            if let Some(fetch) = services[1].begun() {
                let head = PageHead { end: true, ..PageHead::new(0) };
                services[1].answer(fetch.number, &head);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole && told.is_empty(), "{told:?}");
    }

    #[test]
    fn a_service_that_cannot_read_what_it_has_is_left_and_what_has_come_is_not_sent_again() {
        let (name, reading) = ("unread".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, None);
        let (until, mut pages) = (Instant::now() + 3 * PATIENCE, 0);
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it never ends");
            let [first, second] = &mut services;
            let to = first.name().to_owned();
            for fetch in first.asked().into_iter().filter(|fetch| fetch.to == to) {
                match fetch.page {
                    0 if pages == 0 => {
                        first.answer_with(fetch.number, &PageHead::new(0), [1]);
                        pages = 1;
                    }
                    1 if pages == 1 => {
                        first.answer(fetch.number, &PageHead::failed(1));
                        pages = 2;
                    }
                    _ => {}
                }
            }
            if let Some(fetch) = second.begun() {
                assert_eq!(fetch.have.iter().map(|stand| stand.sequence).max(), Some(1));
                let head = PageHead { end: true, ..PageHead::new(0) };
                second.answer_with(fetch.number, &head, [2]);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole);
        assert_eq!(handed_out(&mut inbox), [1, 2]);
    }

    #[test]
    fn a_slow_reader_asks_another_service_for_all_that_it_is_to_reach() {
        let (name, reading) = ("slow".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, None);
        let until = Instant::now() + PATIENCE;
        let turn = |past: &mut Past, inbox: &mut Inbox| {
            assert!(Instant::now() < until, "it never came so far");
            // It has not asked for long.
            past.said = past.said.checked_sub(KEEP_ALIVE).unwrap();
            assert!(!past.turn(inbox).unwrap());
            std::thread::sleep(Duration::from_millis(1));
        };
        while inbox.waiting() < ENOUGH {
            turn(&mut past, &mut inbox);
            if let Some(fetch) = services[0].begun() {
                services[0].answer_with(fetch.number, &PageHead::new(0), 1..=ENOUGH as u64);
            }
        }
        services[0].connection.close();
        while past.fetch.to != services[1].name() {
            turn(&mut past, &mut inbox);
        }
        turn(&mut past, &mut inbox);
        assert_eq!(handed_out(&mut inbox).len(), ENOUGH);
        let fetch = loop {
            turn(&mut past, &mut inbox);
            let mut asked = services[1].asked().into_iter();
            if let Some(fetch) = asked.find(|fetch| fetch.to == services[1].name()) {
                break fetch;
            }
        };
        assert_eq!((fetch.page, fetch.until), (0, vec![mount(5)]));
        assert_eq!(fetch.have, [mount(ENOUGH as u64)]);
    }

    #[test]
    fn a_service_that_has_no_room_yet_is_asked_again() {
        let (name, reading) = ("busy".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, None);
        let (until, mut answers) = (Instant::now() + PATIENCE, 0);
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it waits for ever");
            if let Some(fetch) = services[0].begun() {
                answers += 1;
                let busy = answers < 3;
                let head = PageHead { busy, end: !busy, ..PageHead::new(0) };
                services[0].answer_with(fetch.number, &head, (!busy).then_some(1));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole && answers >= 3);
        assert_eq!(handed_out(&mut inbox), [1]);
    }

    /// What comes of last values where the first service ends without having all, and the second
    /// one answers so.
    fn last_values(name: &str, trouble: Option<&str>, second: &PageHead) -> (Vec<u64>, usize) {
        let (name, reading) = (name.parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None, trouble]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, Some(1));
        let until = Instant::now() + 3 * PATIENCE;
        while !past.turn(&mut inbox).unwrap() {
            assert!(Instant::now() < until, "it never ends");
            let not_whole = PageHead { end: true, whole: false, ..PageHead::new(0) };
            for (service, head, sample) in [(0, &not_whole, 4), (1, second, 2)] {
                if let Some(fetch) = services[service].begun() {
                    services[service].answer_with(fetch.number, head, [sample]);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        inbox.end_past(true);
        crate::history::begin(&mut inbox, &[], 1);
        let gaps = inbox.gaps.len();
        (handed_out(&mut inbox), gaps)
    }

    #[test]
    fn last_values_of_a_service_are_kept_unless_another_one_has_all() {
        let not_whole = PageHead { end: true, whole: false, ..PageHead::new(0) };
        assert_eq!(last_values("troubled", Some("no room"), &not_whole), (vec![4], 1));
        let whole = PageHead { whole: true, ..not_whole.clone() };
        // For days it may have had no room.
        assert_eq!(last_values("whole", Some("no room"), &whole), (vec![4], 1));
        assert_eq!(last_values("neither", None, &not_whole), (vec![4], 1));
        assert_eq!(last_values("better", None, &whole), (vec![2], 0));
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
        let (mut services, topic) = two_services(&name, &reading, [Some("no room"), None]);
        let mut inbox = Inbox::new(&[0], Take::History);
        let mut past = begin(&topic, &mut inbox, None);
        let until = Instant::now() + PATIENCE;
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
