//! The OTLP receiver of `helio log serve`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_log_otlp::{Listen, ServeError, Serving, Take, Taken, serve};
use helio_log_serve::{Cause, Ingest};
use helio_logging::Record;

use crate::args::log::ServeArgs;
use crate::error::CliError;

/// When a refused sender may retry; the rate limit is per second.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Records of a request between two checks of backpressure.
const RECORDS_PER_CHECK: usize = 256;

/// Starts the OTLP receivers of the command line.
pub(super) fn listen(args: &ServeArgs, intake: Ingest) -> Result<Option<Serving>, ServeError> {
    let listen = Listen { grpc: args.otlp_grpc.clone(), http: args.otlp_http.clone() };
    if listen.grpc.is_none() && listen.http.is_none() {
        return Ok(None);
    }
    serve(&listen, Arc::new(Edge(intake))).map(Some)
}

/// The protocols and addresses of the receivers.
pub(super) fn listening(serving: &Serving) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let both = [("grpc", serving.grpc()), ("http", serving.http())];
    both.into_iter().filter_map(|(protocol, address)| Some((protocol, address?)))
}

struct Edge(Ingest);

impl Take for Edge {
    /// A request is deferred if none of its records is accepted. Once some are, OTLP cannot request
    /// the others again; they are refused and counted.
    fn take(&self, sender: SocketAddr, records: Vec<Record>, arrived: Instant) -> Taken {
        let sender = self.0.sender(sender.ip().into());
        let (mut taken, mut refused, mut reason) = (0_u64, 0_u64, String::new());
        for (place, record) in records.into_iter().enumerate() {
            if place > 0 && place.is_multiple_of(RECORDS_PER_CHECK) {
                self.room(arrived);
            }
            match sender.take(record) {
                Ok(()) => taken += 1,
                Err(Cause::Rate | Cause::Shed) if taken + refused == 0 => {
                    return Taken::Later { after: RETRY_AFTER };
                }
                Err(cause) => {
                    refused += 1;
                    reason = format!("dropped: {cause}");
                }
            }
        }
        self.room(arrived);
        if refused == 0 { Taken::All } else { Taken::But { refused, reason } }
    }

    fn refused(&self, sender: SocketAddr, records: u64, reason: &str) {
        let sender = self.0.sender(sender.ip().into());
        // A request with an unknown number of records counts as one.
        (0..records.max(1)).for_each(|_| sender.refuse(Cause::Malformed, &reason));
    }
}

impl Edge {
    /// Blocks a sender that is faster than the bus.
    fn room(&self, arrived: Instant) {
        while self.0.holds(arrived) {
            std::thread::sleep(Ingest::ROOM_POLL_INTERVAL);
        }
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        Self::Failure(error.to_string())
    }
}
