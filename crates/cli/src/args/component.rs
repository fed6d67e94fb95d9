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
    /// Show a component's interface: commands, events, telemetry, or one of them with its fields.
    Show(ShowArgs),
    /// Show what components do: a live table on a terminal, a line for each change elsewhere.
    Watch(WatchArgs),
    /// Print the states that components are in.
    States(StatesArgs),
    /// Send a command, and wait until it is done.
    Command(CommandArgs),
    /// Bring components to a state, by the shortest way.
    SetState(SetStateArgs),
    /// Print commands and what became of them.
    Audit(AuditArgs),
    /// Keep a component for one caller: others' commands are refused.
    Lock(LockArgs),
    /// Give a locked component back.
    Unlock(UnlockArgs),
    /// Write typed Python stubs of components, for type checkers and editors.
    Stubs(StubsArgs),
    /// Run simulated components: plausible telemetry, every command accepted.
    Run(RunArgs),
    /// Command a component interactively, with completion.
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
        let wrong = || format!("{text:?} is no component; write it like MTMount or ESS:2");
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
    /// The folder of SAL interfaces (those that the program carries unless given).
    #[arg(long, env = "HELIO_INTERFACES", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
}

/// The interface that a component, or its caller, opens topics with.
#[derive(Debug, Args)]
pub(crate) struct InterfaceArgs {
    #[command(flatten)]
    pub(crate) folder: InterfacesArg,
    /// How far the interface may part from those of other releases that write and read the same
    /// topics; give all of a site the same. Unless given, what cannot be read is refused.
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) evolution: Option<Evolution>,
}

fn policies() -> impl TypedValueParser<Value = Evolution> {
    PossibleValuesParser::new(Evolution::ALL.map(Evolution::name))
        .try_map(|word| word.parse::<Evolution>())
}

/// Who commands, by which interface, and how what comes of it is printed.
#[derive(Debug, Args)]
pub(crate) struct AskingArgs {
    #[command(flatten)]
    pub(crate) caller: CallerArg,
    #[command(flatten)]
    pub(crate) interface: InterfaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Who commands.
#[derive(Debug, Args)]
pub(crate) struct CallerArg {
    /// Command under this name, which authorization and locks go by (user@host unless given).
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
}

/// `helio component list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// A folder of SAL interfaces, whose components are listed instead of those of the bus.
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
    /// A topic of it, such as trackTarget or evt_summaryState, with its fields.
    pub(crate) topic: Option<String>,
    #[command(flatten)]
    pub(crate) interfaces: InterfacesArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only these; `*` stands for anything, such as MT* or ESS:2.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// On a terminal: the time from one drawing to the next.
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
    /// Only these; `*` stands for anything.
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
    /// Its fields: a value is JSON, an enumeration's label, or text.
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) fields: Vec<String>,
    /// Only ask whether it would be accepted.
    #[arg(long)]
    pub(crate) validate: bool,
    /// Never to be begun after this time from now.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) expiry: Option<Duration>,
    /// A text that stands for this command: sent again with it, it is not run again.
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// How long to wait for an acknowledgement; each that says "in progress" begins anew.
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
    /// The configuration to start with.
    #[arg(long = "override", value_name = "NAME")]
    pub(crate) configuration: Option<String>,
    /// How long to wait for an acknowledgement of each command on the way.
    #[arg(long, default_value = STATE_TIMEOUT.as_str())]
    #[arg(value_name = "TIME", value_parser = units::duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// `helio component audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only commands to these; `*` stands for anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// Only these commands; `*` stands for anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) command: Option<String>,
    /// Only those of these callers; `*` stands for anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
    /// Only those that were not done.
    #[arg(long)]
    pub(crate) failed: bool,
    /// The newest so many.
    #[arg(long, default_value = "50", value_name = "N")]
    pub(crate) last: usize,
    /// Then print what comes.
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
    /// For how long; locking again goes on from then.
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

/// `helio component stubs`.
#[derive(Debug, Args)]
pub(crate) struct StubsArgs {
    /// The folder of SAL interfaces.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Only these components (all of the folder unless given).
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Vec<String>,
    /// Where to: a file for one component, a folder for several, each as its name in small letters
    /// with .pyi; standard output where nothing is said of one component.
    #[arg(short = 'o', long = "output", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<PathBuf>,
}

/// `helio component run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The components: MTMount, ESS:2; ESS alone stands for the instances that --instances says.
    #[arg(value_name = "COMPONENT", required_unless_present = "all")]
    pub(crate) components: Vec<Instance>,
    /// Every component of the interfaces.
    #[arg(long, conflicts_with = "components")]
    pub(crate) all: bool,
    /// Which instances of a component: named (all that its interface has a name for, 1 where it
    /// names none), one (the first of these), or COMPONENT=N (so many of these; `*` stands for
    /// anything). The last that fits counts.
    #[arg(long, value_name = "WHICH")]
    pub(crate) instances: Vec<Instances>,
    /// The state that they begin in.
    #[arg(long, default_value = "ENABLED")]
    pub(crate) state: String,
    /// Multiplies the rates.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = units::rate)]
    pub(crate) scale: f64,
    /// A table of rates, in place of the one that the program carries.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rates: Option<PathBuf>,
    /// In so many processes.
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
    /// How long to wait for an acknowledgement of a command.
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
