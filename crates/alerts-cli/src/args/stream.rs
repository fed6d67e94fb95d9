//! The stream of a command.

use clap::Args;

/// The stream of a command.
#[derive(Debug, Args)]
pub(crate) struct StreamArg {
    /// The stream: the name of the topic of alerts.
    #[arg(long, default_value = "alerts", value_name = "STREAM")]
    pub(crate) topic: String,
}
