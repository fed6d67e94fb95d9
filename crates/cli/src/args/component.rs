//! The command line of `helio component` as a table.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use helio_bus::Evolution;
use helio_component::protocol::caller::DEFAULT_ACK_TIMEOUT;

use super::instances::Instances;
use super::{ForArg, Output};
use crate::units;

/// The default timeouts of the protocol, as arguments.
static ACK_TIMEOUT: LazyLock<String> = LazyLock::new(|| seconds(DEFAULT_ACK_TIMEOUT));
static STATE_TIMEOUT: LazyLock<String> = LazyLock::new(|| seconds(helio_component::STATE_TIMEOUT));

fn seconds(timeout: Duration) -> String {
    format!("{}s", timeout.as_secs())
}

/// `helio component`.
#[derive(Debug, Subcommand)]
pub(crate) enum ComponentCommand {
    /// List the components of the bus, or those of a folder of interfaces.
    List(ListArgs),
    /// Show a component's interface, or one of its topics with the fields.
    Show(ShowArgs),
    /// Show the activity of components: a table on a terminal, else a line per change.
    Watch(WatchArgs),
    /// Print the states of components.
    States(StatesArgs),
    /// Send a command and wait for its final acknowledgement.
    Command(CommandArgs),
    /// Bring components to a state on the shortest path.
    SetState(SetStateArgs),
    /// Print commands and their outcomes.
    Audit(AuditArgs),
    /// Lock a component for one caller; commands of others are refused.
    Lock(LockArgs),
    /// Unlock a component.
    Unlock(UnlockArgs),
    /// Print a caller's public key for the authorization file, or make a new key.
    Key(KeyArgs),
    /// Write typed Python stubs of components for type checkers and editors.
    Stubs(StubsArgs),
    /// Run simulated components, with plausible telemetry; they accept every command.
    Run(RunArgs),
    /// Command a component interactively with completion.
    Shell(ShellArgs),
}

/// An instance of a component: `MTMount`, `ESS:2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) component: String,
    pub(crate) index: Option<i32>,
}

impl FromStr for Instance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid component {text:?}; write MTMount or ESS:2");
        let (component, index) = text.split_once(':').map_or((text, None), |(c, i)| (c, Some(i)));
        let index = index.map(|index| index.parse().map_err(|_| wrong())).transpose()?;
        let legal = |c: char| c.is_ascii_alphanumeric();
        if component.is_empty() || !component.chars().all(legal) || index.is_some_and(|i| i < 1) {
            return Err(wrong());
        }
        Ok(Self { component: component.to_owned(), index })
    }
}

impl std::fmt::Display for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}:{index}", self.component),
            None => f.write_str(&self.component),
        }
    }
}

/// Where interfaces are read from.
#[derive(Debug, Args)]
pub(crate) struct InterfacesArg {
    /// The folder of SAL interfaces (default: the built-in ones).
    #[arg(long, env = "HELIO_INTERFACES", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
}

/// The interface with which a component or its caller opens topics.
#[derive(Debug, Args)]
pub(crate) struct InterfaceArgs {
    #[command(flatten)]
    pub(crate) folder: InterfacesArg,
    /// The differences allowed between the interfaces of releases that share topics; the same on
    /// the whole site. By default an interface that cannot be read is refused.
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) evolution: Option<Evolution>,
}

fn policies() -> impl TypedValueParser<Value = Evolution> {
    PossibleValuesParser::new(Evolution::ALL.map(Evolution::name))
        .try_map(|word| word.parse::<Evolution>())
}

/// The caller of a command, the interface, and the output.
#[derive(Debug, Args)]
pub(crate) struct AskingArgs {
    #[command(flatten)]
    pub(crate) caller: CallerArg,
    #[command(flatten)]
    pub(crate) interface: InterfaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The caller of a command.
#[derive(Debug, Args)]
pub(crate) struct CallerArg {
    /// The caller's name, for authorization and locks (default: user@host).
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
    /// The file with the caller's private key, which signs the commands; see `helio component key`.
    #[arg(long, env = "HELIO_CALLER_KEY", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) caller_key: Option<PathBuf>,
}

/// `helio component list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// List the components of this folder of SAL interfaces instead of those of the bus.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The component.
    pub(crate) component: String,
    /// A topic of the component, such as trackTarget or evt_summaryState, with its fields.
    pub(crate) topic: Option<String>,
    #[command(flatten)]
    pub(crate) interfaces: InterfacesArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only components that match, such as MT* or ESS:2; `*` matches anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// On a terminal: the time between two updates.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) end: ForArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component states`.
#[derive(Debug, Args)]
pub(crate) struct StatesArgs {
    /// Only components that match; `*` matches anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component command`.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// The component, with its index where it has several instances: MTMount, ESS:2.
    pub(crate) component: Instance,
    /// The command.
    pub(crate) command: String,
    /// The command's fields, all of them; a value is JSON, an enumeration's label, or text.
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) fields: Vec<String>,
    /// Only check whether the command would be accepted.
    #[arg(long)]
    pub(crate) validate: bool,
    /// The component must not begin the command later than this time from now.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) expiry: Option<Duration>,
    /// An idempotency key: a command that is sent again with the same key is not run again.
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// The timeout of each acknowledgement; every "in progress" restarts it.
    #[arg(long, default_value = ACK_TIMEOUT.as_str())]
    #[arg(value_name = "TIME", value_parser = units::duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// `helio component set-state`.
#[derive(Debug, Args)]
pub(crate) struct SetStateArgs {
    /// The components: MTMount, ESS:2.
    #[arg(required = true, value_name = "COMPONENT")]
    pub(crate) components: Vec<Instance>,
    /// The state: STANDBY, DISABLED, ENABLED, OFFLINE.
    #[arg(required = true)]
    pub(crate) state: String,
    /// The configuration of the start command.
    #[arg(long = "override", value_name = "NAME")]
    pub(crate) configuration: Option<String>,
    /// The timeout of the acknowledgements of each command.
    #[arg(long, default_value = STATE_TIMEOUT.as_str())]
    #[arg(value_name = "TIME", value_parser = units::duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// `helio component audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only commands to components that match; `*` matches anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// Only commands whose names match; `*` matches anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) command: Option<String>,
    /// Only commands of callers that match, with or without `declared:`; `*` matches anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
    /// Only commands that were not completed.
    #[arg(long)]
    pub(crate) failed: bool,
    /// The number of newest commands.
    #[arg(long, default_value = "50", value_name = "N")]
    pub(crate) last: usize,
    /// Then print new commands.
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: end after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration, requires = "follow")]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// The component.
    pub(crate) component: Instance,
    /// The duration of the lock; locking again extends it.
    #[arg(long = "for", default_value = "5m", value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// `helio component unlock`.
#[derive(Debug, Args)]
pub(crate) struct UnlockArgs {
    /// The component.
    pub(crate) component: Instance,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// `helio component key`.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file with the private key, a PEM text that only its owner may read.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Make a key, and write it to this new file.
    #[arg(long)]
    pub(crate) new: bool,
    /// The name of the caller in the printed line (default: user@host).
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component stubs`.
#[derive(Debug, Args)]
pub(crate) struct StubsArgs {
    /// The folder of SAL interfaces.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Only these components (default: all of the folder).
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Vec<String>,
    /// The output: a file for one component, a folder for several, with a file per component named
    /// in lower case with .pyi. One component is printed to standard output by default.
    #[arg(short = 'o', long = "output", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<PathBuf>,
}

/// `helio component run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The components, such as MTMount or ESS:2; ESS alone means the instances of --instances.
    #[arg(value_name = "COMPONENT", required_unless_present = "all")]
    pub(crate) components: Vec<Instance>,
    /// Every component of the interfaces.
    #[arg(long, conflicts_with = "components")]
    pub(crate) all: bool,
    /// The instances of a component: named (all that its interface names, or 1), one (the first of
    /// these), or COMPONENT=N (N instances of components that match; `*` matches anything). The
    /// last rule that matches holds.
    #[arg(long, value_name = "WHICH")]
    pub(crate) instances: Vec<Instances>,
    /// The initial state.
    #[arg(long, default_value = "ENABLED")]
    pub(crate) state: String,
    /// Multiplies the rates.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = units::rate)]
    pub(crate) scale: f64,
    /// A table of rates, instead of the built-in one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rates: Option<PathBuf>,
    /// The number of processes.
    #[arg(long, default_value = "1", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    #[command(flatten)]
    pub(crate) end: ForArg,
    #[command(flatten)]
    pub(crate) interface: InterfaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// The component, with its index where it has several instances.
    pub(crate) component: Instance,
    /// The timeout of each acknowledgement.
    #[arg(long, default_value = ACK_TIMEOUT.as_str())]
    #[arg(value_name = "TIME", value_parser = units::duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) caller: CallerArg,
    #[command(flatten)]
    pub(crate) interface: InterfaceArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_parsed() {
        let of = |component: &str, index| Instance { component: component.to_owned(), index };
        assert_eq!("MTMount".parse(), Ok(of("MTMount", None)));
        assert_eq!("ESS:2".parse(), Ok(of("ESS", Some(2))));
        for bad in ["", ":1", "ESS:", "ESS:0", "ESS:-1", "ESS:x", "a b", "Script:*", "a/b"] {
            assert!(bad.parse::<Instance>().is_err(), "{bad:?}");
        }
        assert_eq!(of("ESS", Some(2)).to_string(), "ESS:2");
    }
}
