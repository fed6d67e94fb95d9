//! What every component publishes: state, error code, log messages, heartbeat, versions.
//!
//! An interface that lacks one of these events, or a field of one, is left without it. What `say_…`
//! puts into the outbox is published by the next [`publish`](Shell::publish).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use helio_core::Value;
use helio_core::sal::TopicKind;

use super::config::Loaded;
use super::publish::{How, LOG, Notice};
use super::shell::Shell;
use crate::host;
use crate::protocol::SummaryState;

/// How much a log message matters, with the numbers that SAL has from Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum LogLevel {
    /// For who looks for an error.
    Debug = 10,
    /// Rare, and good to know.
    Info = 20,
    /// Something went wrong and was put right.
    Warning = 30,
    /// Something was lost, or a person is needed.
    Error = 40,
    /// The component cannot go on.
    Critical = 50,
}

/// Versions of the software that a component is made of, for the event `softwareVersions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftwareVersions {
    /// Release of the interface files; where it is empty, that of [`Interface::release`].
    ///
    /// [`Interface::release`]: crate::Interface::release
    pub interface: String,
    /// Version of the component.
    pub component: String,
    /// Versions of its parts, `name=version`, separated by commas.
    pub subsystems: String,
}

/// What the component is made with, as leases and `salVersion` tell it.
pub(super) const MIDDLEWARE: &str = concat!("heliograph ", env!("CARGO_PKG_VERSION"));

impl Shell {
    /// Opens what is published from the beginning, so that nothing of it is held up.
    pub(super) fn open_first(&self) {
        for event in ["summaryState", "errorCode", "softwareVersions", "simulationMode", "logLevel"]
        {
            if let Ok(topic) = self.topic(TopicKind::Event, event) {
                // Where it cannot be opened it is told with what is to be published.
                let _ = topic.open();
            }
        }
    }

    /// Publishes what is there from the beginning.
    pub(super) fn say_first(&self) {
        let versions = &self.versions;
        let texts = [
            ("salVersion", MIDDLEWARE),
            ("xmlVersion", &versions.interface),
            ("cscVersion", &versions.component),
            ("subsystemVersions", &versions.subsystems),
        ];
        self.changed("softwareVersions", texts.map(|(name, text)| (name, text.into())));
        self.changed("simulationMode", [("mode", Value::Int(self.simulation_mode))]);
        self.say_log_level();
        self.say_error(0, "", "");
    }

    pub(super) fn say_summary(&self, state: SummaryState) {
        // Forced: a state that is restored is told again.
        self.forced("summaryState", [("summaryState", Value::Int(state.number()))]);
    }

    pub(super) fn say_error(&self, code: i32, report: &str, traceback: &str) {
        let values = [
            ("errorCode", Value::Int(code)),
            ("errorReport", report.into()),
            ("traceback", traceback.into()),
        ];
        self.forced("errorCode", values);
    }

    /// Publishes a heartbeat, however long that takes: a late one is worth nothing, so it is not
    /// kept.
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

    pub(super) fn say_log_level(&self) {
        let level = self.log_level.load(Ordering::Relaxed);
        self.changed("logLevel", [("level", Value::Int(level)), ("subsystem", "".into())]);
    }

    /// Tells which configurations may be chosen, where the folder has changed.
    pub(super) fn say_available(&self) {
        let Some(folder) = &self.configurations else { return };
        let (overrides, version) = folder.available();
        let values = [
            ("overrides", Value::String(overrides)),
            ("version", Value::String(version)),
            ("url", folder.folder.display().to_string().into()),
            ("schemaVersion", folder.schema_version.as_str().into()),
        ];
        self.changed("configurationsAvailable", values);
    }

    pub(super) fn say_applied(&self, loaded: &Loaded) {
        let Some(folder) = &self.configurations else { return };
        let values = [
            ("configurations", loaded.files.as_str().into()),
            ("version", loaded.version.as_str().into()),
            ("url", folder.folder.display().to_string().into()),
            ("schemaVersion", folder.schema_version.as_str().into()),
            ("otherInfo", "".into()),
        ];
        self.forced("configurationApplied", values);
    }

    /// Publishes a log message, where the log level lets it through.
    pub(super) fn log(self: &Arc<Self>, level: LogLevel, message: &str, traceback: &str) {
        self.say_log(level, message, traceback);
        self.publish();
    }

    pub(super) fn say_log(&self, level: LogLevel, message: &str, traceback: &str) {
        if (level as i32) < self.log_level.load(Ordering::Relaxed) {
            return;
        }
        let values = [
            ("name", self.identity.as_str().into()),
            ("level", Value::Int(level as i32)),
            ("message", message.into()),
            ("traceback", traceback.into()),
            ("process", Value::Int(host::origin())),
            ("timestamp", Value::Double(host::stamps(self.bus.clock().now()).0)),
        ];
        self.forced(LOG, values);
    }

    fn changed<const N: usize>(&self, event: &'static str, values: [(&'static str, Value); N]) {
        self.say(event, values, |update| update);
    }

    fn forced<const N: usize>(&self, event: &'static str, values: [(&'static str, Value); N]) {
        self.say(event, values, |update| update.force());
    }

    fn say<const N: usize>(
        &self,
        name: &'static str,
        values: [(&'static str, Value); N],
        how: How,
    ) {
        if self.interface.has(TopicKind::Event, name) {
            self.outbox.put(Notice::Event { name, values: values.into(), how });
        }
    }
}
