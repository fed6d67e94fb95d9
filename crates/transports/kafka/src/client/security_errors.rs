//! Why brokers reject a client, with a remedy.

use rdkafka::error::RDKafkaErrorCode;

use helio_bus::TransportError;

use crate::client::ffi;
use crate::client::options::Options;

/// OpenSSL's numbers of certificate errors (`x509_vfy.h`), and their remedies.
const CERTIFICATE_ERRORS: [(&[i32], &str); 5] = [
    (&[10], "it has expired: the brokers need a new one"),
    (&[9], "it is not valid yet: check this machine's clock, and the brokers'"),
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

/// The error of a rejected client.
pub(crate) fn refused(
    options: &Options,
    (code, reason): (RDKafkaErrorCode, &str),
) -> TransportError {
    let brokers = &options.brokers;
    let (what, remedy) = match code {
        RDKafkaErrorCode::SSL => match ffi::verification(&options.admin()) {
            Some(number) => {
                let known =
                    CERTIFICATE_ERRORS.iter().find(|(numbers, _)| numbers.contains(&number));
                let remedy = known.map_or("check the ssl.* options of the URL", |known| known.1);
                let what = format!("trust the certificate of {brokers} (X.509 error {number})");
                (what, remedy)
            }
            None => (
                format!("speak TLS with {brokers}: {reason}"),
                "check security.protocol and the ssl.* options of the URL, and the port",
            ),
        },
        _ => (
            format!("log in to {brokers}: {reason}"),
            "check sasl.mechanism, sasl.username and sasl.password of the URL",
        ),
    };
    let transport = crate::SCHEME.to_owned();
    TransportError::Unsupported { transport, what, remedy: remedy.to_owned() }
}
