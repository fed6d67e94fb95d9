//! The OTLP receiver of `helio log serve`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_log_otlp::{Limits, Listen, ServeError, Serving, Take, Taken, Taking, serve};
use helio_log_serve::{Cause, Ingest, Sender};
use helio_logging::{Record, RecordReceipt};

use crate::args::log::ServeArgs;
use crate::error::CliError;
use crate::service_error::ServiceError;

/// When a refused sender may retry; the rate limit is per second.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Starts the OTLP receivers of the command line.
pub(super) fn listen(args: &ServeArgs, intake: Ingest) -> Result<Option<Serving>, ServeError> {
    let listen = Listen { grpc: args.otlp_grpc.clone(), http: args.otlp_http.clone() };
    if listen.grpc.is_none() && listen.http.is_none() {
        return Ok(None);
    }
    let limits = Limits::default();
    let limits = Limits {
        connections: limits.connections.min(args.connections),
        connections_per_sender: args.connections_per_sender,
        unfinished: limits.unfinished.min(args.unfinished),
        ..limits
    };
    serve(&listen, &limits, Arc::new(Edge(intake))).map(Some)
}

/// The protocols and addresses of the receivers.
pub(super) fn listening(serving: &Serving) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let both = [("grpc", serving.grpc()), ("http", serving.http())];
    both.into_iter().filter_map(|(protocol, address)| Some((protocol, address?)))
}

struct Edge(Ingest);

impl Take for Edge {
    /// A request is deferred if none of its records is accepted. Once some are, OTLP cannot request
    /// the others again; they are refused and counted. So are those that are shed later.
    fn take(&self, sender: SocketAddr, records: Vec<Record>) -> Taking {
        let sender = self.sender(sender);
        let (receipt, stored) = RecordReceipt::new();
        let (mut taken, mut refused, mut reason) = (0_u64, 0_u64, String::new());
        for record in records {
            match sender.take_for(record, Some(&receipt)) {
                Ok(()) => taken += 1,
                Err(Cause::Rate | Cause::Shed) if taken + refused == 0 => {
                    return Box::pin(async { Taken::Later { after: RETRY_AFTER } });
                }
                Err(cause) => {
                    refused += 1;
                    reason = format!("dropped: {cause}");
                }
            }
        }
        drop(receipt);
        Box::pin(async move {
            match stored.await {
                0 if refused == 0 => Taken::All,
                0 => Taken::But { refused, reason },
                lost if lost == taken && refused == 0 => Taken::Later { after: RETRY_AFTER },
                lost => Taken::But {
                    refused: refused + lost,
                    reason: format!("dropped: {}", Cause::Shed),
                },
            }
        })
    }

    fn is_full(&self, since: Instant) -> bool {
        self.0.holds(since)
    }

    fn refused(&self, sender: SocketAddr, records: u64, reason: &str) {
        let sender = self.sender(sender);
        // A request with an unknown number of records counts as one.
        (0..records.max(1)).for_each(|_| sender.refuse(Cause::Malformed, &reason));
    }

    fn turned_away(&self, sender: SocketAddr) {
        self.sender(sender).count_refused();
    }

    fn timed_out(&self, sender: SocketAddr) {
        self.sender(sender).count_timed_out();
    }
}

impl Edge {
    fn sender(&self, sender: SocketAddr) -> Sender {
        self.0.sender(sender.ip().into())
    }
}

impl ServiceError for ServeError {
    fn into_cli(self) -> CliError {
        CliError::Failure(self.to_string())
    }
}
