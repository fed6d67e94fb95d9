//! History as durability services have it: asked for page by page, so that neither side has more
//! of it than a page at a time.
//!
//! Operation. One service is asked, the first by name of those that keep the topic. If it goes
//! another one is asked from the beginning, and what has come is passed over. The last page comes
//! when the service has everything that the topic's writers had written when the reader came.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::Origin;

use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::options::SERVICE_PATIENCE;
use crate::post::Fetch;
use crate::tables::Stand;
use crate::topic::{TopicState, no_service};

/// A page that has not come by then is asked for again.
pub(crate) const RETRY: Duration = Duration::from_millis(300);
/// How long a service that is there may need before it says anything of a topic.
const PATIENCE: Duration = Duration::from_secs(60);
/// No page is asked for while so many samples wait to be handed out.
const ENOUGH: usize = 4_096;

/// What is left of a reader's past.
pub(crate) struct Past {
    topic: Arc<TopicState>,
    wake: Arc<dyn Fn() + Send + Sync>,
    fetch: Fetch,
    asked: Option<Instant>,
    /// When a page has come last.
    heard: Instant,
    alone: Alone,
}

/// What becomes of it when the service that was asked goes and no other is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It waits for another one.
    Waits,
    /// It is over.
    Ends,
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
        if let Some(keeper) = keeper(topic) {
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
        let name = topic.name.clone();
        let fetch = Fetch { to, number, page: 0, topic: name, partitions, last, until, have };
        let topic = Arc::clone(topic);
        Ok(Self { topic, wake, fetch, asked: None, heard: Instant::now(), alone })
    }

    /// Takes what has come, and asks for more where there is room for it. True where it is over.
    pub(crate) fn turn(&mut self, inbox: &mut Inbox) -> Result<bool, TransportError> {
        let origin = if self.fetch.last.is_some() { Origin::History } else { Origin::Log };
        let post = &self.topic.connection.post;
        while let Some(page) = post.next_page(self.fetch.number) {
            if page.head.page != self.fetch.page {
                continue;
            }
            for place in page.samples {
                inbox.add_past(&page.letter, place, origin);
            }
            self.heard = Instant::now();
            (self.fetch.page, self.asked) = (page.head.page + 1, None);
            if page.head.end {
                return Ok(true);
            }
        }
        let keepers = |state: &mut crate::tables::State| {
            state.keepers(&self.topic.name).any(|(keeper, _)| *keeper == self.fetch.to)
        };
        if !self.topic.connection.tables.look(keepers) {
            let again = self.begin_again(inbox)?;
            if !again && self.alone == Alone::Ends {
                return Ok(true);
            }
        }
        let due = self.asked.is_none_or(|asked| asked.elapsed() >= RETRY);
        if due && (inbox.waiting() < ENOUGH || self.fetch.last.is_some()) {
            self.topic.connection.post.ask(&self.fetch);
            self.asked = Some(Instant::now());
        }
        Ok(false)
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
        let Some(to) = keeper(&self.topic) else { return Ok(false) };
        let connection = &self.topic.connection;
        connection.post.end_lane(self.fetch.number);
        let number = lane(connection, &self.wake)?;
        if self.fetch.last.is_some() {
            inbox.forget_past();
        }
        (self.fetch.to, self.fetch.number, self.fetch.page) = (to, number, 0);
        (self.asked, self.heard) = (None, Instant::now());
        Ok(true)
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        self.topic.connection.post.end_lane(self.fetch.number);
    }
}

fn lane(
    connection: &Arc<Connection>,
    wake: &Arc<dyn Fn() + Send + Sync>,
) -> Result<u64, TransportError> {
    connection.post.lane(|kind| connection.letters(kind), Arc::clone(wake))
}

/// The service to be asked: the first by name.
pub(crate) fn keeper(topic: &TopicState) -> Option<String> {
    let tables = &topic.connection.tables;
    tables.look(|state| {
        // One that cannot take more at the moment has what it has.
        let ready =
            state.keepers(&topic.name).filter(|(_, keeps)| keeps.ready || keeps.trouble.is_some());
        let mut others = ready.filter(|(keeper, _)| **keeper != tables.session);
        others.next().map(|(keeper, _)| keeper.clone())
    })
}
