//! A late joiner's historical data, requested from durability services page by page, so that
//! neither side holds more than a page at a time.
//!
//! Operation. The reader asks one service: the first by name of the ready ones, else of those in
//! trouble. It changes to another service if that one leaves, is silent, delivers nothing for a
//! minute, cannot read its journal, or ends without having everything. The new service sends only
//! what has not arrived. Without another service the reader restarts with the same one, which may
//! have forgotten an idle reader. If no service answers, the subscription reports an outage. After
//! a timeout it continues without the rest of the history. The last page arrives when the service
//! has everything that the topic's writers had written when the reader was opened. If no service
//! has all of it, the missing samples are a gap. Last values come from one service: one that has
//! all of them, else the first that reached its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{Outage, TransportError};

use crate::announcements::ProducerPosition;
use crate::connection::Connection;
use crate::peer_messages::{HistoryRequest, NO_MORE_PAGES};
use crate::reorder_queue::{ReorderQueue, SetAsideHistory};
use crate::topic::{TopicState, no_service};

/// The interval at which the request for a missing page is repeated.
pub(crate) const PAGE_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// How long to wait until a live service announces a topic.
const SERVICE_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// No page is requested while so many samples wait for delivery.
const MAX_WAITING_SAMPLES: usize = 4_096;

/// After so many requests for a page without a response (20 s), the reader changes the service.
/// Without another one it restarts with the same service, which has probably forgotten it.
const ATTEMPTS_UNTIL_RESTART: u32 = 66;
/// After so many requests without a response (a minute), restarts included, no service responds.
const ATTEMPTS_UNTIL_SILENT: u32 = 200;
/// How often a reader that needs no page requests one all the same: a service forgets readers that
/// are idle for 120 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long to wait for history without a responding service, before reading continues without it.
const SERVICE_LOSS_TIMEOUT: Duration = Duration::from_secs(30);

/// The outstanding history of a reader.
pub(crate) struct HistoricalData {
    topic: Arc<TopicState>,
    wake: Arc<dyn Fn() + Send + Sync>,
    request: HistoryRequest,
    /// The positions of the topic's writers at the start, and the positions that are there already.
    until: Vec<ProducerPosition>,
    have: Vec<ProducerPosition>,
    /// Services that are incomplete or do not respond.
    excluded: Vec<String>,
    /// An incomplete service has reached its end; the last values that it sent.
    ended: bool,
    aside: Option<SetAsideHistory>,
    asked: Option<Instant>,
    /// The number of requests for the current page, and of requests since a page arrived.
    attempts: [u32; 2],
    /// After so many requests the service counts as having forgotten this reader.
    restart_after: u32,
    /// When the last request was sent.
    last_request: Instant,
    /// Since when no service responds.
    lost: Option<Instant>,
    /// Outages that were not reported yet.
    news: VecDeque<Outage>,
    /// When the last page arrived, and the last one with samples.
    last_page: Instant,
    last_samples: Instant,
    on_loss: OnServiceLoss,
    /// The last page has arrived.
    pub(crate) whole: bool,
}

/// What happens if the requested service leaves and there is no other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnServiceLoss {
    /// Wait for another one.
    Wait,
    /// End the history.
    End,
}

/// The outcome of taking pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageOutcome {
    Some,
    All,
    /// The service has no more, but it is incomplete.
    Incomplete,
    /// The service cannot read its journal.
    Failed,
}

/// The requested range of history.
#[derive(Default)]
pub(crate) struct HistoryRange {
    pub(crate) partitions: Vec<u32>,
    /// The newest so many of each key; none is everything.
    pub(crate) last: Option<u32>,
    /// The positions of the topic's writers.
    pub(crate) until: Vec<ProducerPosition>,
    /// The positions that are there already.
    pub(crate) have: Vec<ProducerPosition>,
}

/// Waits until a service stores a topic; returns its session.
pub(crate) fn await_service(topic: &TopicState) -> Result<String, TransportError> {
    let (begun, until) = (Instant::now(), Instant::now() + SERVICE_RESPONSE_TIMEOUT);
    loop {
        if let Some(service) = service(topic, &[]) {
            return Ok(service);
        }
        topic.connection.check_open()?;
        let absent = !topic.connection.announcements.with_state(|state| state.has_services());
        if Instant::now() >= if absent { begun + topic.connection.service_timeout } else { until } {
            return Err(no_service(&format!("read the history of {}", topic.name), topic));
        }
        topic.connection.announcements.wait_for_change(until);
    }
}

impl HistoricalData {
    /// Begins requesting pages from a service.
    pub(crate) fn begin(
        topic: &Arc<TopicState>,
        to: String,
        on_loss: OnServiceLoss,
        wanted: HistoryRange,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, TransportError> {
        let number = open_page_queue(&topic.connection, &wake)?;
        let HistoryRange { partitions, last, until, have } = wanted;
        let request = HistoryRequest {
            service: to,
            reader: number,
            page: 0,
            topic: topic.name.clone(),
            partitions,
            last,
            required_positions: Vec::new(),
            received_positions: Vec::new(),
            digest: 0,
        };
        let now = Instant::now();
        Ok(Self {
            topic: Arc::clone(topic),
            wake,
            request,
            until,
            have,
            excluded: Vec::new(),
            ended: false,
            aside: None,
            asked: None,
            attempts: [0; 2],
            restart_after: ATTEMPTS_UNTIL_RESTART,
            last_request: now,
            lost: None,
            news: VecDeque::new(),
            last_page: now,
            last_samples: now,
            on_loss,
            whole: false,
        })
    }

    /// Takes received pages, and requests more if there is room. True when the history has ended.
    pub(crate) fn turn(
        &mut self,
        reorder_queue: &mut ReorderQueue,
    ) -> Result<bool, TransportError> {
        match self.take(reorder_queue) {
            PageOutcome::All => return Ok(true),
            PageOutcome::Some => {}
            PageOutcome::Incomplete | PageOutcome::Failed if self.on_loss == OnServiceLoss::End => {
                return Ok(true);
            }
            PageOutcome::Incomplete => {
                if !self.change_service(reorder_queue, true)? {
                    self.report_missing(reorder_queue, false);
                    return Ok(true);
                }
            }
            PageOutcome::Failed => {
                if !self.change_service(reorder_queue, false)? {
                    self.report_missing(reorder_queue, true);
                    return Ok(true);
                }
            }
        }
        let services = |state: &mut crate::announcements::SharedState| {
            state.services(&self.topic.name).any(|(service, _)| *service == self.request.service)
        };
        let mut there = self.topic.connection.announcements.with_state(services);
        if !there {
            if self.aside.is_some() {
                self.report_missing(reorder_queue, false);
                return Ok(true);
            }
            // An incomplete service is better than none. Another durability service asks each one
            // itself.
            self.excluded.clear();
            let may = self.on_loss == OnServiceLoss::Wait || self.request.last.is_some();
            if let Some(to) = service(&self.topic, &[]).filter(|_| may) {
                self.restart(to, reorder_queue)?;
                (there, self.attempts) = (true, [0; 2]);
            }
        }
        if (!there || self.is_silent()) && self.on_loss == OnServiceLoss::End {
            return Ok(true);
        }
        if there && (self.attempts[0] >= self.restart_after || self.is_stuck()) {
            // A slow service that has not forgotten this reader gets more time.
            self.restart_after = ATTEMPTS_UNTIL_SILENT.min(self.restart_after * 2);
            if self.leave(reorder_queue)? {
                self.report_missing(reorder_queue, false);
                return Ok(true);
            }
        }
        if self.on_loss == OnServiceLoss::Wait && self.request.last.is_none() && self.is_lost(there)
        {
            reorder_queue.report_missing_history(&self.until);
            self.news.push_back(Outage::Restored);
            return Ok(true);
        }
        self.request_next(reorder_queue);
        Ok(false)
    }

    /// Takes the received pages.
    fn take(&mut self, reorder_queue: &mut ReorderQueue) -> PageOutcome {
        let last = self.request.last.is_some();
        let connection = &self.topic.connection;
        let next = || connection.messages.next_page(self.request.reader, &connection.announcements);
        while let Some(page) = next() {
            if page.head.page != self.request.page {
                continue;
            }
            if page.head.busy {
                // The service serves this reader when others have left.
                (self.last_page, self.attempts) = (Instant::now(), [0; 2]);
                continue;
            }
            if !page.samples.is_empty() {
                self.last_samples = Instant::now();
            }
            for place in page.samples {
                reorder_queue.add_history(&page.message, place, last);
            }
            self.last_page = Instant::now();
            (self.request.page, self.asked, self.attempts) = (page.head.page + 1, None, [0; 2]);
            if page.head.end {
                reorder_queue.set_covered(page.head.positions);
                self.whole = page.head.complete;
                return match (self.whole, page.head.failed) {
                    (true, _) => PageOutcome::All,
                    (_, true) => PageOutcome::Failed,
                    _ => PageOutcome::Incomplete,
                };
            }
        }
        PageOutcome::Some
    }

    /// Checks whether a service responds, and queues an outage when that changes. True if none has
    /// responded for so long that reading continues without it.
    fn is_lost(&mut self, there: bool) -> bool {
        if there && !self.is_silent() {
            if self.lost.take().is_some() {
                self.news.push_back(Outage::Restored);
            }
            return false;
        }
        let since = *self.lost.get_or_insert_with(|| {
            let how = if there { "does not respond" } else { "has gone" };
            let (name, left) = (&self.topic.name, SERVICE_LOSS_TIMEOUT.as_secs());
            let cause = format!(
                "the durability service that sends the history of {name} {how}; in {left} s \
                 reading continues without the rest of the history"
            );
            self.news.push_back(Outage::Lost { cause });
            Instant::now()
        });
        since.elapsed() >= SERVICE_LOSS_TIMEOUT
    }

    /// Requests the next page if there is room for it; otherwise keeps the service from forgetting
    /// this reader.
    fn request_next(&mut self, reorder_queue: &ReorderQueue) {
        let messages = &self.topic.connection.messages;
        if reorder_queue.waiting() < MAX_WAITING_SAMPLES || self.request.last.is_some() {
            if self.asked.is_none_or(|asked| asked.elapsed() >= PAGE_RETRY_INTERVAL) {
                messages.send_request(&self.next_request(reorder_queue));
                (self.asked, self.last_request) = (Some(Instant::now()), Instant::now());
                self.attempts = self.attempts.map(|attempts| attempts.saturating_add(1));
            }
        } else if self.is_due() {
            // Repeats the request for the last page, whose copy is ignored. Without a first page
            // the service has no state to keep.
            if let Some(page) = self.request.page.checked_sub(1) {
                messages.send_request(&HistoryRequest { page, ..self.request.clone() });
            }
            self.last_request = Instant::now();
        }
    }

    /// The request for the next page; the first request contains the range.
    fn next_request(&self, reorder_queue: &ReorderQueue) -> HistoryRequest {
        if self.request.page > 0 {
            return self.request.clone();
        }
        let (required_positions, mut received_positions) = (self.until.clone(), self.have.clone());
        if self.request.last.is_none() {
            // Of two positions of one producer the later one counts, which is the larger.
            received_positions.extend(reorder_queue.history_positions());
        }
        HistoryRequest { required_positions, received_positions, ..self.request.clone() }
    }

    /// Whether a request is due although no page is needed.
    pub(crate) fn is_due(&self) -> bool {
        self.last_request.elapsed() >= KEEP_ALIVE_INTERVAL
    }

    /// The next outage to report.
    pub(crate) fn news(&mut self) -> Option<Outage> {
        self.news.pop_front()
    }

    /// Whether the service takes so long that reading begins without its last values.
    pub(crate) fn is_slow(&self) -> bool {
        self.last_page.elapsed() >= crate::options::PEER_RESPONSE_TIMEOUT
    }

    /// Whether so many requests had no response that none is expected.
    pub(crate) fn is_silent(&self) -> bool {
        self.attempts[1] >= ATTEMPTS_UNTIL_SILENT
    }

    /// Whether a responding service sends no last values, because it waits for samples that it
    /// lacks.
    fn is_stuck(&self) -> bool {
        self.request.last.is_some() && self.last_samples.elapsed() >= SERVICE_RESPONSE_TIMEOUT
    }

    /// Changes to another service, from one that is incomplete (`ended`) or cannot read its
    /// journal. False if there is no other one.
    fn change_service(
        &mut self,
        reorder_queue: &mut ReorderQueue,
        ended: bool,
    ) -> Result<bool, TransportError> {
        let was_ready = self.is_ready(&self.request.service);
        self.excluded.push(self.request.service.clone());
        let last = self.request.last.is_some();
        if ended && last && self.aside.is_none() {
            self.aside = Some(reorder_queue.set_history_aside());
        }
        self.ended |= ended;
        let other = service(&self.topic, &self.excluded);
        // The last values of a service in trouble are older, maybe by days.
        let other = other.filter(|to| !(last && ended && was_ready) || self.is_ready(to));
        let Some(to) = other else { return Ok(false) };
        self.restart(to, reorder_queue)?;
        Ok(true)
    }

    /// Leaves a service that is silent or sends nothing. Without another one, requests from it
    /// again, or from those that were silent before. True if the history has ended.
    fn leave(&mut self, reorder_queue: &mut ReorderQueue) -> Result<bool, TransportError> {
        let last = self.request.last.is_some();
        // A durability service requests the samples of one particular service: it cannot change.
        let may = self.on_loss == OnServiceLoss::Wait || last;
        // Services in trouble have older last values, so the others get all their time first.
        let any = !last || self.restart_after == ATTEMPTS_UNTIL_SILENT;
        let other = |besides: &[String]| {
            let besides = [besides, std::slice::from_ref(&self.request.service)].concat();
            let other = service(&self.topic, &besides).filter(|_| may);
            other.filter(|to| any || self.is_ready(to))
        };
        let (new, stuck) = (other(&self.excluded), self.is_stuck());
        if new.is_none() && may && (self.ended || stuck && self.request.page > 0) {
            return Ok(true);
        }
        let known = if new.is_none() { other(&[]) } else { None };
        match new.as_ref().or(known.as_ref()) {
            Some(to) => {
                if new.is_none() {
                    self.excluded.clear();
                } else if last {
                    self.attempts[1] = 0;
                }
                self.excluded.push(self.request.service.clone());
                self.restart(to.clone(), reorder_queue)?;
            }
            // It has received no request that it could have forgotten.
            None if self.request.page == 0 => {
                (self.attempts[0], self.last_samples) = (0, Instant::now())
            }
            None => self.restart(self.request.service.clone(), reorder_queue)?,
        }
        Ok(false)
    }

    fn is_ready(&self, service: &String) -> bool {
        self.topic.connection.announcements.with_state(|state| {
            let mut services = state.services(&self.topic.name);
            services.any(|(name, service_state)| name == service && service_state.ready)
        })
    }

    /// No service is complete: reports the missing samples. `unread`: their number is unknown, too.
    fn report_missing(&mut self, reorder_queue: &mut ReorderQueue, unread: bool) {
        match self.aside.take() {
            Some(aside) => reorder_queue.restore_history(aside),
            None if unread => return reorder_queue.report_missing_history(&self.until),
            None => {}
        }
        reorder_queue.report_missing_until(&self.until);
    }

    /// Requests from a service from the first page on: two services' pages differ.
    fn restart(
        &mut self,
        to: String,
        reorder_queue: &mut ReorderQueue,
    ) -> Result<(), TransportError> {
        self.end();
        let number = open_page_queue(&self.topic.connection, &self.wake)?;
        if self.request.last.is_some() {
            drop(reorder_queue.set_history_aside());
        }
        (self.request.service, self.request.reader, self.request.page) = (to, number, 0);
        let now = Instant::now();
        (self.asked, self.attempts[0], self.last_page) = (None, 0, now);
        (self.last_request, self.last_samples) = (now, now);
        Ok(())
    }

    /// Ends the requests, so that the service can drop the reader's state.
    fn end(&self) {
        let messages = &self.topic.connection.messages;
        messages.close_page_queue(self.request.reader);
        messages.send_request(&HistoryRequest { page: NO_MORE_PAGES, ..self.request.clone() });
    }
}

impl Drop for HistoricalData {
    fn drop(&mut self) {
        self.end();
    }
}

fn open_page_queue(
    connection: &Arc<Connection>,
    wake: &Arc<dyn Fn() + Send + Sync>,
) -> Result<u64, TransportError> {
    connection.messages.open_page_queue(|kind| connection.message_topic(kind), Arc::clone(wake))
}

/// The service to request from: the first ready one by name, except `besides`.
pub(crate) fn service(topic: &TopicState, besides: &[String]) -> Option<String> {
    let announcements = &topic.connection.announcements;
    announcements.with_state(|state| {
        let others = || {
            let others = state.services(&topic.name);
            // A service that stores the topic in the other way has holes.
            let others =
                others.filter(|(_, service_state)| !topic.is_kept() || !service_state.last_values);
            others.filter(|(name, _)| **name != announcements.session && !besides.contains(name))
        };
        // A service that cannot store more still has what it stored.
        let in_trouble = || others().find(|(_, service_state)| service_state.error.is_some());
        let found = others().find(|(_, service_state)| service_state.ready).or_else(in_trouble);
        found.map(|(name, _)| name.clone())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use crate::announcements::{Announcement, ServiceState};
    use crate::entity::{Reader, Writer};
    use crate::envelope;
    use crate::envelope::Header;
    use crate::options::Options;
    use crate::peer_messages::{
        MessageWriter, PAGE_TOPIC, PageHeader, REQUEST_TOPIC, framed, message_qos, page,
    };
    use crate::reorder_queue::AcceptResent;
    use crate::transport::DdsTransport;
    use helio_bus::transport::versioned_json;
    use helio_bus::transport::{Opening, Transport};
    use helio_bus::{Qos, TopicName};

    fn connect() -> Arc<Connection> {
        // Each test runs in a thread of its own.
        thread_local!(static DOMAIN: u32 = crate::test_domain::domain());
        let domain = DOMAIN.with(|domain| *domain);
        let url = format!("dds://{domain}?interface=lo&multicast=false").parse().unwrap();
        let opening = Opening { url, clock: Arc::new(helio_bus::SystemClock::new()) };
        Connection::open(&Options::parse(&opening).unwrap(), &opening.clock).unwrap()
    }

    /// A durability service by hand.
    struct Service {
        connection: Arc<Connection>,
        questions: Reader,
        message_writer: MessageWriter,
    }

    impl Service {
        fn of(topic: &TopicName, to: &str) -> Self {
            let connection = connect();
            let messages = connection.message_topic(REQUEST_TOPIC).unwrap();
            let questions = Reader::open(&messages, &message_qos().keep_all(), None).unwrap();
            let qos = message_qos().keep_all().partitions(&[to]).unwrap();
            let writer = Writer::open(&connection.message_topic(PAGE_TOPIC).unwrap(), &qos, None);
            let message_writer =
                MessageWriter::new(writer.unwrap(), &connection.announcements.session);
            connection.announcements.announce(Announcement::Service { started_nanos: 1 }).unwrap();
            let this = Self { connection, questions, message_writer };
            this.says(topic, None);
            this
        }

        /// Announces that it is ready, or in trouble.
        fn says(&self, topic: &TopicName, trouble: Option<&str>) {
            let (ready, trouble) = (trouble.is_none(), trouble.map(str::to_owned));
            let service_state = ServiceState { ready, error: trouble, ..ServiceState::default() };
            let word = Announcement::ServiceState { topic: topic.clone(), service_state };
            self.connection.announcements.announce(word).unwrap();
        }

        /// The newest request for a first page.
        fn begun(&self) -> Option<HistoryRequest> {
            let mut asked = self.asked().into_iter();
            asked.rfind(|request| request.page == 0 && request.service == self.name())
        }

        fn name(&self) -> &str {
            &self.connection.announcements.session
        }

        fn asked(&self) -> Vec<HistoryRequest> {
            let mut messages = Vec::new();
            self.questions.take(&mut messages).unwrap();
            let asked = |message: &crate::entity::Sample| {
                versioned_json::decode(envelope::parse(message.cdr())?.1).ok()
            };
            messages.iter().filter(|message| message.valid).filter_map(asked).collect()
        }

        /// Sends a page of Mount's samples, by their numbers, to a reader.
        fn answer_with(
            &mut self,
            number: u64,
            head: &PageHeader,
            samples: impl IntoIterator<Item = u64>,
        ) {
            let (mut cdr, mut made) = (Vec::new(), page(head));
            for sample in samples {
                let header = Header::of_session("Mount", sample, b"key");
                let header = Header { flags: envelope::RESENT, ..header };
                envelope::write_head(&header, 0, &mut cdr);
                framed(&cdr, &mut made);
            }
            self.send(number, &made);
        }

        /// Sends a page without samples to a reader.
        fn answer(&mut self, number: u64, head: &PageHeader) {
            self.send(number, &page(head));
        }

        fn send(&mut self, number: u64, page: &[u8]) {
            let until = Instant::now() + SERVICE_RESPONSE_TIMEOUT;
            while !self.message_writer.is_read() {
                assert!(Instant::now() < until, "they never met");
                std::thread::yield_now();
            }
            self.message_writer.write(number.to_string().as_bytes(), page).unwrap();
        }
    }

    /// Two services of a topic that a reader has discovered, by name, with their troubles.
    fn two_services(
        name: &TopicName,
        reading: &Arc<Connection>,
        trouble: [Option<&str>; 2],
    ) -> ([Service; 2], Arc<TopicState>) {
        DdsTransport::new(Arc::clone(reading)).create_topic(name, &Qos::event()).unwrap();
        let mut services = [(); 2].map(|()| Service::of(name, &reading.announcements.session));
        services.sort_by_key(|service| service.name().to_owned());
        for (service, trouble) in services.iter().zip(trouble) {
            service.says(name, trouble);
        }
        let troubled = trouble.iter().flatten().count();
        let seen = |state: &mut crate::announcements::SharedState| {
            let found = state
                .services(name)
                .filter(|(_, service_state)| service_state.error.is_some())
                .count();
            found == troubled && state.services(name).count() == 2
        };
        let until = Instant::now() + SERVICE_RESPONSE_TIMEOUT;
        while !reading.announcements.with_fresh_state(seen) {
            assert!(Instant::now() < until, "they are not seen");
            std::thread::yield_now();
        }
        (services, DdsTransport::new(Arc::clone(reading)).state(name).unwrap().unwrap())
    }

    /// A position of Mount.
    fn mount(sequence: u64) -> ProducerPosition {
        let producer = helio_core::ProducerName::new("Mount").unwrap();
        ProducerPosition::new(0, producer, (1, sequence))
    }

    /// Begins to read history up to Mount's position 5.
    fn begin(
        topic: &Arc<TopicState>,
        reorder_queue: &mut ReorderQueue,
        last: Option<u32>,
    ) -> HistoricalData {
        reorder_queue.begin_history();
        let wanted =
            HistoryRange { partitions: vec![0], last, until: vec![mount(5)], have: Vec::new() };
        let to = await_service(topic).unwrap();
        HistoricalData::begin(topic, to, OnServiceLoss::Wait, wanted, Arc::new(|| {})).unwrap()
    }

    fn delivered(reorder_queue: &mut ReorderQueue) -> Vec<u64> {
        std::iter::from_fn(|| reorder_queue.pop()).map(|queued| queued.sequence).collect()
    }

    #[test]
    fn a_service_that_does_not_answer_is_left_for_the_one_that_does() {
        let (name, reading) = ("silent".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, None);
        assert_eq!(past.request.service, services[0].name());
        let (until, mut told) = (Instant::now() + 3 * SERVICE_RESPONSE_TIMEOUT, Vec::new());
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it asks the silent one for ever");
            told.extend(past.news());
            if let Some(request) = services[1].begun() {
                let head = PageHeader { end: true, ..PageHeader::new(0) };
                services[1].answer(request.reader, &head);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole && told.is_empty(), "{told:?}");
    }

    #[test]
    fn a_service_that_cannot_read_what_it_has_is_left_and_what_has_come_is_not_sent_again() {
        let (name, reading) = ("unread".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, None);
        let (until, mut pages) = (Instant::now() + 3 * SERVICE_RESPONSE_TIMEOUT, 0);
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it never ends");
            let [first, second] = &mut services;
            let to = first.name().to_owned();
            for request in first.asked().into_iter().filter(|request| request.service == to) {
                match request.page {
                    0 if pages == 0 => {
                        first.answer_with(request.reader, &PageHeader::new(0), [1]);
                        pages = 1;
                    }
                    1 if pages == 1 => {
                        first.answer(request.reader, &PageHeader::failed(1));
                        pages = 2;
                    }
                    _ => {}
                }
            }
            if let Some(request) = second.begun() {
                assert_eq!(
                    request.received_positions.iter().map(|position| position.sequence).max(),
                    Some(1)
                );
                let head = PageHeader { end: true, ..PageHeader::new(0) };
                second.answer_with(request.reader, &head, [2]);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole);
        assert_eq!(delivered(&mut reorder_queue), [1, 2]);
    }

    #[test]
    fn a_slow_reader_asks_another_service_for_all_that_it_is_to_reach() {
        let (name, reading) = ("slow".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, None);
        let until = Instant::now() + SERVICE_RESPONSE_TIMEOUT;
        let turn = |past: &mut HistoricalData, reorder_queue: &mut ReorderQueue| {
            assert!(Instant::now() < until, "it never came so far");
            // The last request was long ago.
            past.last_request = past.last_request.checked_sub(KEEP_ALIVE_INTERVAL).unwrap();
            assert!(!past.turn(reorder_queue).unwrap());
            std::thread::sleep(Duration::from_millis(1));
        };
        while reorder_queue.waiting() < MAX_WAITING_SAMPLES {
            turn(&mut past, &mut reorder_queue);
            if let Some(request) = services[0].begun() {
                services[0].answer_with(
                    request.reader,
                    &PageHeader::new(0),
                    1..=MAX_WAITING_SAMPLES as u64,
                );
            }
        }
        services[0].connection.close();
        while past.request.service != services[1].name() {
            turn(&mut past, &mut reorder_queue);
        }
        turn(&mut past, &mut reorder_queue);
        assert_eq!(delivered(&mut reorder_queue).len(), MAX_WAITING_SAMPLES);
        let request = loop {
            turn(&mut past, &mut reorder_queue);
            let mut asked = services[1].asked().into_iter();
            if let Some(request) = asked.find(|request| request.service == services[1].name()) {
                break request;
            }
        };
        assert_eq!((request.page, request.required_positions), (0, vec![mount(5)]));
        assert_eq!(request.received_positions, [mount(MAX_WAITING_SAMPLES as u64)]);
    }

    #[test]
    fn a_service_that_has_no_room_yet_is_asked_again() {
        let (name, reading) = ("busy".parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None; 2]);
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, None);
        let (until, mut answers) = (Instant::now() + SERVICE_RESPONSE_TIMEOUT, 0);
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it waits for ever");
            if let Some(request) = services[0].begun() {
                answers += 1;
                let busy = answers < 3;
                let head = PageHeader { busy, end: !busy, ..PageHeader::new(0) };
                services[0].answer_with(request.reader, &head, (!busy).then_some(1));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.whole && answers >= 3);
        assert_eq!(delivered(&mut reorder_queue), [1]);
    }

    /// The last values and gaps of a reader whose first service ends incomplete, and whose second
    /// one responds with `second`.
    fn last_values(name: &str, trouble: Option<&str>, second: &PageHeader) -> (Vec<u64>, usize) {
        let (name, reading) = (name.parse::<TopicName>().unwrap(), connect());
        let (mut services, topic) = two_services(&name, &reading, [None, trouble]);
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, Some(1));
        let until = Instant::now() + 3 * SERVICE_RESPONSE_TIMEOUT;
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it never ends");
            let not_whole = PageHeader { end: true, complete: false, ..PageHeader::new(0) };
            for (service, head, sample) in [(0, &not_whole, 4), (1, second, 2)] {
                if let Some(request) = services[service].begun() {
                    services[service].answer_with(request.reader, head, [sample]);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        reorder_queue.end_history(true);
        crate::history::begin(&mut reorder_queue, &[], 1);
        let gaps = reorder_queue.gaps.len();
        (delivered(&mut reorder_queue), gaps)
    }

    #[test]
    fn last_values_of_a_service_are_kept_unless_another_one_has_all() {
        let not_whole = PageHeader { end: true, complete: false, ..PageHeader::new(0) };
        assert_eq!(last_values("troubled", Some("no room"), &not_whole), (vec![4], 1));
        let whole = PageHeader { complete: true, ..not_whole.clone() };
        // It may have been in trouble for days.
        assert_eq!(last_values("whole", Some("no room"), &whole), (vec![4], 1));
        assert_eq!(last_values("neither", None, &not_whole), (vec![4], 1));
        assert_eq!(last_values("better", None, &whole), (vec![2], 0));
    }

    #[test]
    fn who_was_forgotten_by_the_service_begins_again() {
        let (name, reading) = ("kept".parse::<TopicName>().unwrap(), connect());
        DdsTransport::new(Arc::clone(&reading)).create_topic(&name, &Qos::event()).unwrap();
        let mut service = Service::of(&name, &reading.announcements.session);
        let topic = DdsTransport::new(Arc::clone(&reading)).state(&name).unwrap().unwrap();
        let (to, mut reorder_queue) =
            (await_service(&topic).unwrap(), ReorderQueue::new(&[0], AcceptResent::History));
        reorder_queue.begin_history();
        let wanted =
            HistoryRange { partitions: vec![0], last: None, until: Vec::new(), have: Vec::new() };
        let mut past =
            HistoricalData::begin(&topic, to, OnServiceLoss::Wait, wanted, Arc::new(|| {}))
                .unwrap();
        let (first, until) = (past.request.reader, Instant::now() + 3 * SERVICE_RESPONSE_TIMEOUT);
        let (mut answered, mut begun) = (false, false);
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it asks for ever");
            // The other tests of this domain send requests, too.
            let own =
                |request: &&HistoryRequest| request.page == 0 && request.service == service.name();
            let asked = service.asked();
            let asked: Vec<_> = asked.iter().filter(own).collect();
            for request in asked {
                let head = PageHeader { end: request.reader != first, ..PageHeader::new(0) };
                if !std::mem::replace(if head.end { &mut begun } else { &mut answered }, true) {
                    service.answer(request.reader, &head);
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
        let mut reorder_queue = ReorderQueue::new(&[0], AcceptResent::History);
        let mut past = begin(&topic, &mut reorder_queue, None);
        let until = Instant::now() + SERVICE_RESPONSE_TIMEOUT;
        let mut order = Vec::new();
        while !past.turn(&mut reorder_queue).unwrap() {
            assert!(Instant::now() < until, "it asks for ever: {order:?}");
            for (place, service) in services.iter_mut().enumerate() {
                let to = service.name().to_owned();
                let asked = service.asked();
                let first = asked.iter().find(|request| request.page == 0 && request.service == to);
                if let Some(request) = first.filter(|_| !order.contains(&place)) {
                    assert_eq!(request.required_positions.len(), 1);
                    let head = PageHeader { end: true, complete: false, ..PageHeader::new(0) };
                    service.answer(request.reader, &head);
                    order.push(place);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(order, [1, 0]);
        let told: Vec<_> = reorder_queue.gaps.iter().map(|gap| (gap.partition, gap.lost)).collect();
        assert_eq!(told, [(0, 5)], "neither has it");
    }
}
