//! Errors of services as errors of commands.

use crate::error::{CliError, CliResult};

/// The error of a service that a command uses.
pub(crate) trait ServiceError {
    /// The command's error, with its exit code.
    fn into_cli(self) -> CliError;
}

/// Results of services as results of commands.
pub(crate) trait ServiceResult<T> {
    /// Converts the error.
    fn or_cli(self) -> CliResult<T>;
}

impl<T, E: ServiceError> ServiceResult<T> for Result<T, E> {
    fn or_cli(self) -> CliResult<T> {
        self.map_err(E::into_cli)
    }
}
