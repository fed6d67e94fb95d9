//! Grants: a topic for one user.

use super::support::{Outcome, ensure, open, plain, process, unique};
use super::{Check, Failure, Harness};
use crate::error::{TopicError, TransportError};

/// A user of every Linux, and of no Kafka.
const USER: &str = "nobody";

pub(super) const CHECKS: &[Check] = &[Check {
    name: "grant",
    promise: "a topic is granted to a user and revoked, each reported once, or the grant is \
              refused by name",
    run: grants,
}];

fn grants(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let topic = open(&bus, &unique("grant"), &plain())?;
    let can = bus.capabilities();
    match topic.grant(USER, None) {
        Ok(_) => ensure!(can.grants.is_yes(), "granted, although it is no capability"),
        // An engine that has users may be set up without them.
        Err(TopicError::Transport(TransportError::Unsupported { transport, what, remedy })) => {
            ensure!(what.contains("grant"), "it cannot {what}");
            let revoked = topic.revoke(USER).map_err(|error| error.to_string());
            ensure!(revoked.is_err(), "revoked what it refused to grant");
            return Err(Failure::Refused(format!("{transport} cannot {what}; {remedy}")));
        }
        Err(error) => ensure!(false, "granting a topic gave {error}"),
    }
    topic.grant(USER, None)?;
    ensure!(topic.revoke(USER)?, "no grant was found");
    ensure!(!topic.revoke(USER)?, "a grant is left");
    Ok(())
}
