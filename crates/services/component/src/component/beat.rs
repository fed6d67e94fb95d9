//! What a component does each second, beside its commands: heartbeats, and looks at files.
//!
//! Each has a thread of its own. A heartbeat may wait for a topic's lock whose holder is stopped,
//! and a file for a server that does not answer; commands wait for neither, nor one for the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::generics::LogLevel;
use super::policy::Change;
use super::shell::{Shell, locked};
use crate::protocol::SummaryState;

/// How often there is a heartbeat, as SAL has it.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// The threads that there are.
pub(super) const THREADS: usize = 2;

impl Shell {
    /// Begins, with the first of each before this returns, until it has [ended](Shell::ended).
    ///
    /// # Errors
    /// The machine has no thread for one of them.
    pub(super) fn begin_beats(self: &Arc<Self>) -> io::Result<()> {
        self.each_second(|shell| shell.publish_heartbeat())?;
        if self.configurations.is_some() || locked(&self.policy).is_some() {
            self.each_second(Self::look_at_files)?;
        }
        Ok(())
    }

    fn each_second(self: &Arc<Self>, beat: fn(&Arc<Self>)) -> io::Result<()> {
        beat(self);
        let shell = Arc::clone(self);
        self.beats.begin(Box::new(move || {
            while !shell.ended.wait(EVERY) {
                beat(&shell);
            }
        }))
    }

    fn look_at_files(self: &Arc<Self>) {
        self.look_at_policy();
        if self.state() == SummaryState::Standby {
            self.say_available();
            self.publish();
        }
    }

    fn look_at_policy(self: &Arc<Self>) {
        let mut file = locked(&self.policy);
        let Some(policy) = file.as_mut() else { return };
        let path = policy.path().display().to_string();
        let change = policy.look();
        drop(file);
        match change {
            None => {}
            Some(Change::New(policy)) => {
                self.input(|controller, _| controller.set_policy(*policy));
                self.log(LogLevel::Info, &format!("the authorization file {path} is in force"), "");
            }
            Some(Change::Wrong(text)) => self.log(LogLevel::Error, &text, ""),
        }
    }
}
