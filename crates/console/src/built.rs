//! Refusals of commands and transports that this build lacks, as that of `make demo` does.

use helio_bus::ConnectError;
use helio_transports::SCHEMES;

/// The refusal of a command that this build lacks.
pub fn without(command: &str) -> crate::error::CliError {
    crate::error::CliError::Refused(format!(
        "`helio {command}` is not in this build of helio; `make build` makes one with everything"
    ))
}

/// The remedy for a transport that this build lacks.
pub fn remedy(error: &ConnectError) -> Option<String> {
    match error {
        ConnectError::UnknownScheme { scheme, known } if SCHEMES.contains(&scheme.as_str()) => {
            Some(format!(
                "the transport {scheme:?} is not in this build, which has: {known}; \
                 `make build` makes one with everything"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_is_left_out_is_refused_with_the_remedy() {
        let unknown = |scheme: &str| ConnectError::UnknownScheme {
            scheme: scheme.to_owned(),
            known: "journal, memory".to_owned(),
        };
        let text = remedy(&unknown("kafka")).unwrap();
        assert!(text.contains("\"kafka\"") && text.contains("make build"), "{text}");
        assert_eq!(remedy(&unknown("kafak")), None);
    }
}
