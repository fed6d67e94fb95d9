//! The events of every component: state, error code, log messages, heartbeat, versions.
//!
//! Events and fields that the interface lacks are omitted. The engine's next `publish` sends the
//! messages that `queue_…` puts into the outbox.

use std::sync::atomic::Ordering;

use helio_core::Value;
use helio_core::sal::TopicKind;

use super::config::{ConfigFolder, LoadedConfig};
use super::messages::{LOG, OutboxMessage, PublishMode};
use super::outbox::Line;
use super::outputs::Outputs;
use crate::process_identity;
use crate::protocol::SummaryState;
use crate::timestamps;

/// The severity of a log message, with the numbers of Python's logging that SAL uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum LogLevel {
    /// Details for finding errors.
    Debug = 10,
    /// Rare and informative.
    Info = 20,
    /// Something failed and was corrected.
    Warning = 30,
    /// Something was lost, or a person must act.
    Error = 40,
    /// The component cannot continue.
    Critical = 50,
}

/// The versions of a component's software, for the event `softwareVersions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftwareVersions {
    /// Release of the interface files; where it is empty, that of [`Interface::release`].
    ///
    /// [`Interface::release`]: crate::Interface::release
    pub interface: String,
    /// The component's version.
    pub component: String,
    /// The versions of its parts: `name=version`, separated by commas.
    pub subsystems: String,
}

/// The middleware and its version, for leases and `salVersion`.
pub(super) const MIDDLEWARE: &str = concat!("heliograph ", env!("CARGO_PKG_VERSION"));

impl Outputs {
    /// Opens the initial topics, so that their first messages are not delayed.
    pub(super) fn open_first(&self) {
        for event in ["summaryState", "errorCode", "softwareVersions", "simulationMode", "logLevel"]
        {
            if let Ok(topic) = self.topic(TopicKind::Event, event) {
                // A failure is reported when the first message is published.
                let _ = topic.open();
            }
        }
    }

    /// Queues the initial events.
    pub(super) fn queue_first(&self, versions: &SoftwareVersions, simulation_mode: i32) {
        let texts = [
            ("salVersion", MIDDLEWARE),
            ("xmlVersion", &versions.interface),
            ("cscVersion", &versions.component),
            ("subsystemVersions", &versions.subsystems),
        ];
        self.queue_if_changed("softwareVersions", texts.map(|(name, text)| (name, text.into())));
        self.queue_if_changed("simulationMode", [("mode", Value::Int(simulation_mode))]);
        self.queue_log_level();
        self.queue_error(0, "", "");
    }

    /// Queues a new summary state; leaving FAULT clears the error code.
    pub(super) fn queue_state(&self, state: SummaryState) {
        let before = self.state.swap(state.number(), Ordering::AcqRel);
        if before == SummaryState::Fault.number() && state != SummaryState::Fault {
            self.queue_error(0, "", "");
        }
        self.queue_summary(state);
    }

    pub(super) fn queue_summary(&self, state: SummaryState) {
        // Forced: a restored state is published again.
        self.queue_forced("summaryState", [("summaryState", Value::Int(state.number()))]);
    }

    pub(super) fn queue_error(&self, code: i32, report: &str, traceback: &str) {
        let values = [
            ("errorCode", Value::Int(code)),
            ("errorReport", report.into()),
            ("traceback", traceback.into()),
        ];
        self.queue_forced("errorCode", values);
    }

    /// Queues the error code; the state follows.
    pub(super) fn queue_fault(&self, code: i32, report: &str, traceback: &str) {
        self.queue_error(code, report, traceback);
        self.queue_log(LogLevel::Error, &format!("fault {code}: {report}"), traceback);
    }

    /// Publishes a heartbeat and waits for the topic. A late heartbeat has no value, so it is not
    /// queued.
    pub(super) fn publish_heartbeat(&self) {
        let event = "heartbeat";
        if !self.interface.has(TopicKind::Event, event) {
            return;
        }
        let topic = self.topic(TopicKind::Event, event);
        let written = topic.map_err(Into::into).and_then(|topic| topic.write());
        match written {
            Ok(_) => self.recovered(event),
            Err(error) => self.complain(event, &error.to_string()),
        }
    }

    pub(super) fn queue_log_level(&self) {
        let level = self.log_level.load(Ordering::Relaxed);
        self.queue_if_changed("logLevel", [("level", Value::Int(level)), ("subsystem", "".into())]);
    }

    /// Publishes the available configurations if the folder has changed.
    pub(super) fn queue_available(&self, folder: &ConfigFolder) {
        let (overrides, version) = folder.available();
        let values = [
            ("overrides", Value::String(overrides)),
            ("version", Value::String(version)),
            ("url", folder.folder.display().to_string().into()),
            ("schemaVersion", folder.schema_version.as_str().into()),
        ];
        self.queue_if_changed("configurationsAvailable", values);
    }

    pub(super) fn queue_applied(&self, folder: &ConfigFolder, loaded: &LoadedConfig) {
        let values = [
            ("configurations", loaded.files.as_str().into()),
            ("version", loaded.version.as_str().into()),
            ("url", folder.folder.display().to_string().into()),
            ("schemaVersion", folder.schema_version.as_str().into()),
            ("otherInfo", "".into()),
        ];
        self.queue_forced("configurationApplied", values);
    }

    /// Queues a log message if its level is high enough.
    pub(super) fn queue_log(&self, level: LogLevel, message: &str, traceback: &str) {
        if (level as i32) < self.log_level.load(Ordering::Relaxed) {
            return;
        }
        let values = [
            ("name", self.identity().into()),
            ("level", Value::Int(level as i32)),
            ("message", message.into()),
            ("traceback", traceback.into()),
            ("process", Value::Int(process_identity::origin())),
            ("timestamp", Value::Double(timestamps::stamps(self.bus.clock().now()).0)),
        ];
        self.queue_forced(LOG, values);
    }

    /// Reports the number of lost log messages once messages can be published again.
    pub(super) fn queue_unlogged(&self) {
        let lost = self.unlogged.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} {} before could not be published", Line::Log.words());
            self.queue_log(LogLevel::Warning, &text, "");
        }
    }

    fn queue_if_changed<const N: usize>(
        &self,
        event: &'static str,
        values: [(&'static str, Value); N],
    ) {
        self.queue(event, values, |update| update);
    }

    fn queue_forced<const N: usize>(
        &self,
        event: &'static str,
        values: [(&'static str, Value); N],
    ) {
        self.queue(event, values, |update| update.force());
    }

    fn queue<const N: usize>(
        &self,
        name: &'static str,
        values: [(&'static str, Value); N],
        how: PublishMode,
    ) {
        if self.interface.has(TopicKind::Event, name) {
            self.outbox.put(OutboxMessage::Event { name, values: values.into(), how });
        }
    }
}
