//! Why brokers do not let a client in, in words that say what to do about it.

use rdkafka::error::RDKafkaErrorCode;

use helio_bus::TransportError;

use crate::native;
use crate::options::Options;

/// OpenSSL's numbers of what is wrong with a certificate, and what to do (`x509_vfy.h`).
const CERTIFICATES: [(&[i32], &str); 5] = [
    (&[10], "it has expired: the brokers need a new one"),
    (&[9], "it is not valid yet: look at this machine's clock, and the brokers'"),
    (
        &[2, 18, 19, 20, 21],
        "its authority is unknown here: name its certificate in ssl.ca.location",
    ),
    (
        &[62, 64],
        "it is another host's: use a name that the certificate has, in the URL and in the brokers' \
         advertised.listeners, or set ssl.endpoint.identification.algorithm=none",
    ),
    (&[23], "it was revoked: the brokers need a new one"),
];

/// The error of a client that is not let in.
pub(crate) fn refused(
    options: &Options,
    (code, reason): (RDKafkaErrorCode, &str),
) -> TransportError {
    let brokers = &options.brokers;
    let (what, remedy) = match code {
        RDKafkaErrorCode::SSL => match native::verification(&options.admin()) {
            Some(number) => {
                let known = CERTIFICATES.iter().find(|(numbers, _)| numbers.contains(&number));
                let remedy = known.map_or("look at the ssl.* options of the URL", |known| known.1);
                let what = format!("trust the certificate of {brokers} (X.509 error {number})");
                (what, remedy)
            }
            None => (
                format!("speak TLS with {brokers}: {reason}"),
                "look at security.protocol and the ssl.* options of the URL, and the port",
            ),
        },
        _ => (
            format!("log in to {brokers}: {reason}"),
            "look at sasl.mechanism, sasl.username and sasl.password of the URL",
        ),
    };
    let transport = crate::SCHEME.to_owned();
    TransportError::Unsupported { transport, what, remedy: remedy.to_owned() }
}
