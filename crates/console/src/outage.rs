//! Starting while the engine of a bus is unreachable: services wait for it.

use std::time::Duration;

use helio_bus::notify;

use crate::error::{CliError, CliResult};
use crate::stop::Until;

/// The pause behind the first failed attempt. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Opens what a service needs, and waits while an engine is unreachable. The outage is reported
/// once, with its remedy, and so is its end. Returns `None` if `until` was over first.
///
/// # Errors
/// Every error of `open` but [`CliError::Outage`], at once: waiting does not change it.
pub fn wait_out<T>(until: &Until, mut open: impl FnMut() -> CliResult<T>) -> CliResult<Option<T>> {
    let (mut pause, mut is_reported) = (FIRST_PAUSE, false);
    loop {
        match open() {
            Err(CliError::Outage(cause)) => {
                if !is_reported {
                    notify(&format!(
                        "{cause}; waiting for it: start it, or end this command and correct the \
                         URL"
                    ));
                }
                is_reported = true;
            }
            opened => {
                if is_reported && opened.is_ok() {
                    notify("the outage is over");
                }
                return opened.map(Some);
            }
        }
        if until.is_over_within(pause) {
            return Ok(None);
        }
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;

    fn outage() -> CliError {
        CliError::Outage("kafka cannot reach its engine: none".to_owned())
    }

    #[test]
    fn an_outage_is_waited_out_and_another_error_is_not() {
        let until = Until::new(None, &Stop::on_signals().unwrap());
        let mut attempts = 0;
        let opened = wait_out(&until, || {
            attempts += 1;
            if attempts < 3 { Err(outage()) } else { Ok(attempts) }
        });
        assert_eq!(opened.unwrap(), Some(3));
        let mut attempts = 0;
        let refused = wait_out::<()>(&until, || {
            attempts += 1;
            Err(CliError::Refused("no permission".to_owned()))
        });
        assert!(matches!(refused, Err(CliError::Refused(_))) && attempts == 1, "{refused:?}");
    }

    #[test]
    fn the_end_of_the_command_ends_the_wait() {
        let until = Until::new(Some(Duration::ZERO), &Stop::on_signals().unwrap());
        let mut attempts = 0;
        let opened = wait_out::<()>(&until, || {
            attempts += 1;
            Err(outage())
        });
        assert!(matches!(opened, Ok(None)) && attempts == 1, "{opened:?}");
    }
}
