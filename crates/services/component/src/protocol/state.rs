//! Summary states of components and the commands between them.

use std::collections::VecDeque;
use std::fmt;

/// The summary state of a component, with SAL's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum SummaryState {
    /// Configured; it refuses its own commands.
    Disabled = 1,
    /// Operating.
    Enabled = 2,
    /// A failure that needs a person.
    Fault = 3,
    /// Not running, or controlled by another system.
    Offline = 4,
    /// Running, and not yet configured.
    Standby = 5,
}

impl SummaryState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Disabled, Self::Enabled, Self::Fault, Self::Offline, Self::Standby];

    /// The state of that number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// The state of a name, ignoring case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(name))
    }

    /// SAL's number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// SAL's name, for example `STANDBY`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "DISABLED",
            Self::Enabled => "ENABLED",
            Self::Fault => "FAULT",
            Self::Offline => "OFFLINE",
            Self::Standby => "STANDBY",
        }
    }
}

impl fmt::Display for SummaryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A command that changes the summary state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateCommand {
    /// Configures the component.
    Start,
    /// Begins operation.
    Enable,
    /// Ends operation.
    Disable,
    /// Discards the configuration; leaves FAULT.
    Standby,
    /// Ends the component.
    ExitControl,
    /// Takes control back from another system.
    EnterControl,
}

/// Each command with its name, the states that allow it, and the state that it leads to.
const COMMANDS: [(StateCommand, &str, &[SummaryState], SummaryState); 6] = [
    (StateCommand::Start, "start", &[SummaryState::Standby], SummaryState::Disabled),
    (StateCommand::Enable, "enable", &[SummaryState::Disabled], SummaryState::Enabled),
    (StateCommand::Disable, "disable", &[SummaryState::Enabled], SummaryState::Disabled),
    (
        StateCommand::Standby,
        "standby",
        &[SummaryState::Disabled, SummaryState::Fault],
        SummaryState::Standby,
    ),
    (StateCommand::ExitControl, "exitControl", &[SummaryState::Standby], SummaryState::Offline),
    (StateCommand::EnterControl, "enterControl", &[SummaryState::Offline], SummaryState::Standby),
];

impl StateCommand {
    /// All commands.
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::Enable,
        Self::Disable,
        Self::Standby,
        Self::ExitControl,
        Self::EnterControl,
    ];

    /// The command of that name, for example `exitControl`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        COMMANDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        COMMANDS[self as usize].1
    }

    /// The states that allow it.
    #[must_use]
    pub const fn from(self) -> &'static [SummaryState] {
        COMMANDS[self as usize].2
    }

    /// The state to which it leads.
    #[must_use]
    pub const fn to(self) -> SummaryState {
        COMMANDS[self as usize].3
    }

    /// The transition from a state; `None` if the state does not allow it.
    #[must_use]
    pub fn transition(self, from: SummaryState) -> Option<Transition> {
        let transition = Transition { command: self, from, to: self.to() };
        self.from().contains(&from).then_some(transition)
    }
}

impl fmt::Display for StateCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A state change by a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The command.
    pub command: StateCommand,
    /// The state before.
    pub from: SummaryState,
    /// The state after.
    pub to: SummaryState,
}

/// The shortest sequence of commands from one state to another; `None` if there is none (no command
/// leads to [`SummaryState::Fault`]).
#[must_use]
pub fn path(from: SummaryState, to: SummaryState) -> Option<Vec<StateCommand>> {
    let mut seen = vec![from];
    let mut reached = VecDeque::from([(from, Vec::new())]);
    while let Some((state, commands)) = reached.pop_front() {
        if state == to {
            return Some(commands);
        }
        for step in StateCommand::ALL.iter().filter_map(|command| command.transition(state)) {
            if !seen.contains(&step.to) {
                seen.push(step.to);
                let further = commands.iter().copied().chain([step.command]).collect();
                reached.push_back((step.to, further));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_and_numbers_of_sal() {
        let named: Vec<_> = SummaryState::ALL.iter().map(|s| (s.number(), s.name())).collect();
        let sal = [(1, "DISABLED"), (2, "ENABLED"), (3, "FAULT"), (4, "OFFLINE"), (5, "STANDBY")];
        assert_eq!(named, sal);
        assert_eq!(SummaryState::from_name("standby"), Some(SummaryState::Standby));
        assert_eq!(SummaryState::from_number(0), None);
    }

    #[test]
    fn commands_are_in_the_order_of_their_table() {
        for (command, row) in StateCommand::ALL.into_iter().zip(&COMMANDS) {
            assert_eq!(command, row.0);
            assert_eq!(StateCommand::from_name(command.name()), Some(command));
        }
    }

    #[test]
    fn the_path_is_the_shortest() {
        use SummaryState::{Disabled, Enabled, Fault, Offline, Standby};
        let names = |from, to| {
            path(from, to).map(|all| all.iter().map(|c| c.name()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(Standby, Enabled).as_deref(), Some("start enable"));
        assert_eq!(names(Fault, Enabled).as_deref(), Some("standby start enable"));
        assert_eq!(names(Enabled, Offline).as_deref(), Some("disable standby exitControl"));
        assert_eq!(names(Offline, Disabled).as_deref(), Some("enterControl start"));
        assert_eq!(names(Enabled, Enabled).as_deref(), Some(""));
        assert_eq!(names(Enabled, Fault), None);
    }

    #[test]
    fn every_path_leads_where_it_should() {
        for from in SummaryState::ALL {
            for to in SummaryState::ALL {
                let Some(commands) = path(from, to) else {
                    assert_eq!(to, SummaryState::Fault);
                    continue;
                };
                let end = commands.iter().try_fold(from, |s, c| Some(c.transition(s)?.to));
                assert_eq!(end, Some(to));
            }
        }
    }
}
