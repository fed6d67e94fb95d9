//! The Python extension: the bus and the codec for Python objects and numpy arrays.
//!
//! It knows Python objects, the bus's API and the core's types, and no transport. The package's
//! `__init__.py` defines the public API; this module is private to it.

#[cfg(feature = "alerts")]
mod alerts;
mod buffer;
mod bus;
mod codec;
mod component;
mod errors;
mod fork;
mod interfaces;
mod logging;
mod ndarray;
mod notify;
mod receipt;
mod sample;
mod schema;
mod subscription;
mod time;

use helio_component::protocol::MAX_TYPED_BYTES;
use helio_component::protocol::caller::DEFAULT_STREAM_LEAD;
use helio_component::{PRESENCE_POLL_INTERVAL, STATE_TIMEOUT, STORED_TIMEOUT};
use pyo3::prelude::*;

/// The quality-of-service profile of that name, as JSON.
#[pyfunction]
fn qos_profile(name: &str) -> PyResult<String> {
    let profile = helio_core::Qos::profile(name);
    let names = "telemetry, event, command, stream, log, state";
    let unknown =
        || errors::raise("QosRefused", &format!("no profile {name:?}; use one of {names}"));
    let profile = profile.ok_or_else(unknown)?;
    serde_json::to_string(&profile)
        .map_err(|error| errors::raise("QosRefused", &format!("the profile {name:?}: {error}")))
}

/// Logs a notice of the bus as a warning of the logger `heliograph`. The thread that found its
/// cause may hold locks for which a Python thread waits, so another one does it.
fn log_notice(text: &str) {
    let text = text.to_owned();
    let log = move || {
        // The interpreter may be ending; then nobody reads its log.
        let logged = Python::try_attach(|py| {
            let logger = py.import("logging")?.call_method1("getLogger", ("heliograph",))?;
            logger.call_method1("warning", ("%s", text)).map(drop)
        });
        drop(logged);
    };
    // Without a thread the events of subscriptions remain.
    drop(std::thread::Builder::new().name("helio-notice".to_owned()).spawn(log));
}

/// The extension; private, see the package `heliograph`.
#[pymodule]
fn _heliograph(module: &Bound<'_, PyModule>) -> PyResult<()> {
    helio_transports::register_all();
    helio_bus::on_notice(log_notice);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PRESENCE_POLL_INTERVAL_S", PRESENCE_POLL_INTERVAL.as_secs_f64())?;
    module.add("STATE_TIMEOUT_S", STATE_TIMEOUT.as_secs_f64())?;
    module.add("STORED_TIMEOUT_S", STORED_TIMEOUT.as_secs_f64())?;
    module.add("STREAM_LEAD_S", DEFAULT_STREAM_LEAD.as_secs_f64())?;
    module.add("TYPED_BYTES_MAX", MAX_TYPED_BYTES)?;
    let panic = module.py().get_type::<pyo3::panic::PanicException>();
    module.add("PanicException", panic)?;
    module.add_class::<time::Time>()?;
    module.add_class::<schema::Schema>()?;
    module.add_class::<bus::RawBus>()?;
    module.add_class::<bus::RawTopic>()?;
    module.add_class::<bus::ManualClock>()?;
    module.add_class::<subscription::RawSubscription>()?;
    module.add_class::<subscription::Stats>()?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<sample::Sample>()?;
    module.add_class::<sample::Null>()?;
    module.add("NULL", sample::Null)?;
    module.add_class::<receipt::Receipt>()?;
    module.add_class::<receipt::Pending>()?;
    module.add_class::<notify::Notifier>()?;
    module.add_class::<interfaces::RawInterfaces>()?;
    module.add_class::<logging::RawLogging>()?;
    module.add_class::<component::Lease>()?;
    module.add_class::<component::RawPresenceProbe>()?;
    module.add_class::<component::RawController>()?;
    module.add_class::<component::RawCaller>()?;
    module.add_class::<component::RawChecks>()?;
    module.add_function(wrap_pyfunction!(component::merge_layers, module)?)?;
    module.add_function(wrap_pyfunction!(component::state_path, module)?)?;
    module.add_function(wrap_pyfunction!(component::sends_defaults, module)?)?;
    module.add_function(wrap_pyfunction!(component::make_key, module)?)?;
    module.add_function(wrap_pyfunction!(component::service_topic, module)?)?;
    module.add_function(wrap_pyfunction!(component::create_topics, module)?)?;
    module.add_function(wrap_pyfunction!(interfaces::schema_set, module)?)?;
    module.add_function(wrap_pyfunction!(logging::log_records, module)?)?;
    module.add_function(wrap_pyfunction!(qos_profile, module)?)?;
    module.add_function(wrap_pyfunction!(fork::forked, module)?)?;
    module.add_function(wrap_pyfunction!(errors::panics, module)?)?;
    #[cfg(feature = "alerts")]
    alerts::add(module)?;
    Ok(())
}
