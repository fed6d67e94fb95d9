//! When open streams end: at the loss of the leader, for clients that need one, and at the end of
//! the service, for all.
//!
//! Source: etcd's `server/etcdserver/api/v3rpc/interceptor.go`, `monitorLeader`.

use std::sync::Arc;
use std::time::Duration;

use helio_http::Ending;
use helio_state::Error;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::store::Store;

/// The interval of checks of the leader, and the checks in a row without one after which streams
/// end: a change of leadership in between ends none.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_millis(500);
const CHECKS_WITHOUT_LEADER: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serving {
    Led,
    Leaderless,
    Ended,
}

/// Whether a client asked that its stream ends when there is no leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderNeed {
    /// It ends.
    Required,
    /// It stays open, silent.
    Optional,
}

/// Notifies open streams of their end.
#[derive(Clone)]
pub(crate) struct StreamEnds(watch::Receiver<Serving>);

impl StreamEnds {
    /// Waits until a stream must end; the error that it ends with.
    pub(crate) async fn wait(&mut self, need: LeaderNeed) -> Error {
        let ends = |serving: &Serving| match serving {
            Serving::Led => false,
            Serving::Leaderless => need == LeaderNeed::Required,
            Serving::Ended => true,
        };
        match self.0.wait_for(ends).await.map(|serving| *serving) {
            Ok(Serving::Leaderless) => Error::NoLeader,
            _ => Error::Stopped,
        }
    }
}

/// What streams wait for, and the task that notifies them.
pub(crate) fn monitor(
    store: Arc<dyn Store>,
    mut ending: Ending,
) -> (StreamEnds, impl Future<Output = ()> + Send) {
    let (sender, receiver) = watch::channel(Serving::Led);
    let task = async move {
        let mut ticks = interval(LEADER_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut without = 0;
        loop {
            tokio::select! {
                () = ending.wait() => break,
                _ = ticks.tick() => {}
            }
            without = if store.position().leader == 0 { without + 1 } else { 0 };
            let serving = match without {
                CHECKS_WITHOUT_LEADER.. => Serving::Leaderless,
                _ => Serving::Led,
            };
            sender.send_if_modified(|last| std::mem::replace(last, serving) != serving);
        }
        sender.send_replace(Serving::Ended);
    };
    (StreamEnds(receiver), task)
}
