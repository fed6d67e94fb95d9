//! What librdkafka says, in the bus's words.

use std::sync::Arc;

use helio_bus::{PublishError, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::SCHEME;
use crate::options::MAX_PAYLOAD_BYTES;

/// The error of something that was tried.
pub(crate) fn failed(what: &str) -> impl Fn(KafkaError) -> TransportError + '_ {
    move |error| match error.rdkafka_error_code() {
        Some(code) if is_outage(code) => outage(format!("{what}: {error}")),
        _ => engine(what, error),
    }
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

/// A broker's refusal that has only a code.
pub(crate) fn refused(what: &str, code: Code) -> TransportError {
    failed(what)(KafkaError::AdminOp(code))
}

/// Whether it is a refusal, which no waiting helps against.
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
                    | Code::UnknownTopicOrPartition
            )
        )
}

/// Whether it says that no broker answers.
fn is_outage(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::Resolve
            | Code::TimedOutQueue
    )
}

/// What became of a publish whose delivery failed.
pub(crate) fn undelivered(error: &KafkaError) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge) => TransportError::TooLarge {
            what: "the record, by the topic's own limit,",
            bytes: 0,
            limit: MAX_PAYLOAD_BYTES,
            transport: SCHEME.to_owned(),
        }
        .into(),
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
