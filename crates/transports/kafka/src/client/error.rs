//! librdkafka's errors as the bus's.

use std::sync::Arc;

use helio_bus::{PublishError, SizeLimit, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::SCHEME;

/// The error of a failed operation.
pub(crate) fn failed(what: &str) -> impl Fn(KafkaError) -> TransportError + '_ {
    // The crate's method does not cover this variant.
    let code = |error: &KafkaError| match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    };
    move |error| match code(&error) {
        Some(code) if is_outage(code) => outage(format!("{what}: {error}")),
        Some(code) => match remedy(code) {
            Some(remedy) => engine(what, Refused { code, remedy }),
            None => engine(what, error),
        },
        None => engine(what, error),
    }
}

/// An operation that the brokers do not authorize.
#[derive(Debug)]
struct Refused {
    code: Code,
    remedy: &'static str,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.code, self.remedy)
    }
}

impl std::error::Error for Refused {}

/// The remedy for a rejection.
fn remedy(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::TopicAuthorizationFailed => {
            "the brokers' access control lists must allow the user of this URL to DESCRIBE and \
             READ topics that it reads, _helio.* included, to WRITE those that it writes, \
             _helio.producers, _helio.schemas and _helio.last.* included, and to CREATE new ones"
        }
        Code::GroupAuthorizationFailed => {
            "the brokers' access control lists must allow the user of this URL to READ groups \
             whose names begin with the topic's"
        }
        Code::ClusterAuthorizationFailed => {
            "the brokers' access control lists must allow the user of this URL to WRITE its \
             topics (before Kafka 2.8, IDEMPOTENT_WRITE on the cluster), and to CREATE new ones; \
             then connect again"
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "check sasl.mechanism, sasl.username and sasl.password of the URL"
        }
        Code::Fatal => "the producer has a fatal error: reconnect",
        _ => return None,
    })
}

pub(crate) fn outage(cause: String) -> TransportError {
    TransportError::Outage { transport: SCHEME.to_owned(), cause }
}

pub(crate) fn engine<E>(what: &str, source: E) -> TransportError
where
    E: std::error::Error + Send + Sync + 'static,
{
    let (transport, source) = (SCHEME.to_owned(), Arc::new(source));
    TransportError::Engine { transport, what: what.to_owned(), source }
}

/// A broker's rejection that has only a code.
pub(crate) fn refused(what: &str, code: Code) -> TransportError {
    failed(what)(KafkaError::AdminOp(code))
}

/// The same with a remedy that fits the operation.
pub(crate) fn refused_with(what: &str, code: Code, remedy: &'static str) -> TransportError {
    engine(what, Refused { code, remedy })
}

/// Whether it is a rejection, which no retry changes.
pub(crate) fn is_refusal(error: &KafkaError) -> bool {
    matches!(error, KafkaError::MessageConsumptionFatal(_))
        || matches!(
            error.rdkafka_error_code(),
            Some(
                Code::ClusterAuthorizationFailed
                    | Code::FencedInstanceId
                    | Code::GroupAuthorizationFailed
                    | Code::InconsistentGroupProtocol
                    | Code::InvalidGroupId
                    | Code::InvalidSessionTimeout
                    | Code::TopicAuthorizationFailed
            )
        )
}

/// Whether a topic, or a partition of it, does not exist. Readers wait for another one of its name.
pub(crate) fn is_gone(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::UnknownPartition
                | Code::UnknownTopic
                | Code::UnknownTopicId
                | Code::UnknownTopicOrPartition
        )
    )
}

/// Whether the group has taken this member's partitions away, or is doing so. A retry of a commit
/// would set back the position of the member that has them now.
pub(crate) fn is_reassigned(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::AssignmentLost
                | Code::FencedInstanceId
                | Code::FencedMemberEpoch
                | Code::IllegalGeneration
                | Code::RebalanceInProgress
                | Code::StaleMemberEpoch
                | Code::UnknownMemberId
        )
    )
}

/// Whether no broker answers, or another one takes over the group.
fn is_outage(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::DestroyBroker
            | Code::NotCoordinator
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::Resolve
            | Code::TimedOutQueue
            | Code::UnstableOffsetCommit
            | Code::WaitingForCoordinator
    )
}

/// The error of a publish whose delivery failed; its record has so many bytes.
pub(crate) fn undelivered(error: &KafkaError, bytes: usize) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge) => TransportError::TooLarge {
            what: "the record",
            bytes,
            limit: SizeLimit::Setting("the topic's max.message.bytes; raise that or publish less"),
            transport: SCHEME.to_owned(),
        }
        .into(),
        // No retry makes these acceptable.
        Some(Code::InvalidRecord | Code::InvalidTimestamp) => {
            PublishError::Encode(error.to_string())
        }
        Some(
            Code::MessageTimedOut
            | Code::PurgeInflight
            | Code::PurgeQueue
            | Code::BrokerTransportFailure
            | Code::RequestTimedOut
            | Code::NotEnoughReplicasAfterAppend,
        )
        | None => PublishError::Unknown { cause: error.to_string() },
        Some(_) => failed("deliver a sample")(error.clone()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_broker_answers_later_is_an_outage_and_a_refusal_is_none() {
        let is_outage = |code| {
            let error = failed("look")(KafkaError::MetadataFetch(code));
            matches!(error, TransportError::Outage { .. })
        };
        let later = [Code::DestroyBroker, Code::NotCoordinator, Code::WaitingForCoordinator];
        assert!(later.into_iter().all(is_outage));
        assert!(!is_outage(Code::GroupAuthorizationFailed));
    }
}
