//! Tasks that run each second beside the commands: heartbeats, and polling of files.
//!
//! Each task has its own thread. A heartbeat may wait for a topic's lock whose holder is stopped,
//! and a file for a server that does not answer. Commands wait for neither, and the tasks do not
//! wait for each other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use helio_bus::transport::locked;

use super::engine::Engine;
use super::generics::LogLevel;
use super::policy::PolicyChange;
use crate::protocol::SummaryState;

/// The interval of heartbeats, as in SAL.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The number of threads.
pub(super) const PERIODIC_THREADS: usize = 2;

impl Engine {
    /// Runs each task once, then starts its thread, which runs until the component has
    /// [ended](super::shutdown::Shutdown::ended).
    ///
    /// # Errors
    /// The operating system refused a thread.
    pub(super) fn start_periodic(self: &Arc<Self>) -> io::Result<()> {
        self.run_periodically(|engine| engine.outputs.publish_heartbeat())?;
        if self.configurations.is_some() || locked(&self.policy).is_some() {
            self.run_periodically(Self::check_files)?;
        }
        Ok(())
    }

    fn run_periodically(self: &Arc<Self>, task: fn(&Arc<Self>)) -> io::Result<()> {
        task(self);
        let engine = Arc::clone(self);
        self.threads.periodic.run_on_new_thread(move || {
            while !engine.shutdown.ended.wait(HEARTBEAT_INTERVAL) {
                task(&engine);
            }
        })
    }

    fn check_files(self: &Arc<Self>) {
        self.check_policy();
        if let Some(folder) = &self.configurations
            && self.outputs.state() == SummaryState::Standby
        {
            self.outputs.queue_available(folder);
            self.publish();
        }
    }

    fn check_policy(self: &Arc<Self>) {
        let mut file = locked(&self.policy);
        let Some(policy) = file.as_mut() else { return };
        let path = policy.path().display().to_string();
        let change = policy.poll();
        drop(file);
        match change {
            None => {}
            Some(PolicyChange::New(policy)) => {
                self.input(|controller, _| controller.set_policy(*policy));
                self.log(LogLevel::Info, &format!("the authorization file {path} is in force"), "");
            }
            Some(PolicyChange::Wrong(text)) => self.log(LogLevel::Error, &text, ""),
        }
    }
}
